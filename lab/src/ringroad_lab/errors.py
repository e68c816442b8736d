"""Errors, named by the step in which they occur.

The text of each error tells what went wrong, where, and what the user can do. The command line prints it and ends with the error's status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringroad_lab.packages import how_to_install

if TYPE_CHECKING:
    from pydantic import ValidationError


def value_problems(error: ValidationError) -> list[str]:
    """Tell what is wrong with which value: `frames.0: Input should be ...`."""
    return [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors(include_url=False)]


class LabError(Exception):
    """Anything that the user has to be told of."""

    exit_status = 1


class ScenarioError(LabError):
    """A scenario, a layer of it or an argument is not what it may be."""

    exit_status = 2


class StepFailedError(LabError):
    """A test step did not do what the scenario expects."""

    exit_status = 7


class PluginError(LabError):
    """A package that adds kinds to the laboratory is broken."""


class MissingProgramError(LabError):
    """A program that the scenario needs is not installed on the host where it has to run."""

    exit_status = 3

    def __init__(self, program: str, package: str, host: str = "this machine") -> None:
        """Name the program, and the Debian package that has it."""
        super().__init__(f"{program} is not installed on {host}: {how_to_install([package])}")
        self.program = program
        self.package = package


class BuildError(LabError):
    """The build that a device or guest is to run cannot be had, or does not run here."""

    exit_status = 9

    def __init__(self, text: str, log: str = "") -> None:
        """Take the text, and the end of what was said while the build was made."""
        super().__init__(text)
        self.log = log


class MachineBusyError(LabError):
    """Another run measures on this machine."""


class BedError(LabError):
    """A bed cannot be had, or is not fit: another run has it, it is in quarantine, or its calibration or clean-up failed."""

    exit_status = 8


class BedLostError(LabError):
    """A run's lease on its bed ended: another run may have the bed, and nothing more of this one is kept."""


class SandboxError(LabError):
    """The private namespaces or the memory of a run could not be made."""


class HostError(LabError):
    """A command on a host failed, or the host cannot be reached."""


class DutError(LabError):
    """The device under test did not start, take its configuration, or stay alive."""


class GuestError(LabError):
    """A guest did not come up, or ended."""


class GeneratorError(LabError):
    """The generator cannot be reached, refused the traffic, or ended."""


class StoreError(LabError):
    """The result store cannot be opened, or does not hold what was asked for."""


class StoreFailedError(StoreError):
    """The store's database failed: nobody can tell whether it holds what was asked for."""


class ReportError(LabError):
    """A report could not be written."""


class RunStoppedError(LabError):
    """The user stopped the run; what was measured until then is kept."""

    exit_status = 130
