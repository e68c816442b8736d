"""Errors, named after the step in which they occur.

The text of each error states what went wrong, where, and what the user can do. The command line prints it and exits with the error's
status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringroad_lab.package_names import how_to_install

if TYPE_CHECKING:
    from pydantic import ValidationError


def value_problems(error: ValidationError) -> list[str]:
    """Return the problem of each invalid value: `frames.0: Input should be ...`."""
    return [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors(include_url=False)]


class LabError(Exception):
    """Base of all errors that are reported to the user."""

    exit_status = 1


class ScenarioError(LabError):
    """A scenario, one of its layers or an argument is invalid."""

    exit_status = 2


class StepFailedError(LabError):
    """A test step did not do what the scenario expects."""

    exit_status = 7


class PluginError(LabError):
    """A plug-in package, which adds kinds to the laboratory, is broken."""


class MissingProgramError(LabError):
    """A required program is not installed on the host where it must run."""

    exit_status = 3

    def __init__(self, program: str, package: str, host: str = "this machine") -> None:
        """Set the program, and the Debian package that provides it."""
        super().__init__(f"{program} is not installed on {host}: {how_to_install([package])}")
        self.program = program
        self.package = package


class BuildError(LabError):
    """The build for a device or guest is not available, or does not run here."""

    exit_status = 9

    def __init__(self, text: str, log: str = "") -> None:
        """Set the text, and the end of the build's log."""
        super().__init__(text)
        self.log = log


class MachineBusyError(LabError):
    """Another run is measuring on this machine."""


class BedError(LabError):
    """A bed is not available or not fit: another run has it, it is in quarantine, or its calibration or clean-up failed."""

    exit_status = 8


class BedLostError(LabError):
    """A run's lease on its bed ended. Another run may have the bed, and no further results of this run are stored."""


class SandboxError(LabError):
    """The private namespaces or the huge pages of a run are not available."""


class HostError(LabError):
    """A command on a host failed, or the host cannot be reached."""


class DutError(LabError):
    """The device under test did not start, rejected its configuration, or ended."""


class GuestError(LabError):
    """A guest did not start, or ended."""


class GeneratorError(LabError):
    """The generator cannot be reached, refused the traffic, or ended."""


class StoreError(LabError):
    """The result store cannot be opened, or does not contain the requested item."""


class StoreFailedError(StoreError):
    """The store's database failed: it is unknown whether it contains the requested item."""


class ReportError(LabError):
    """A report could not be written."""


class RunStoppedError(LabError):
    """The user stopped the run; its measurements until then are kept."""

    exit_status = 130
