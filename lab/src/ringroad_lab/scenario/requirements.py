"""The programs that a scenario needs, and the programs missing on their hosts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from ringroad_lab.build.choice import BuildChoice
from ringroad_lab.build.opened import BuildHost, Programs, open_build, presumed_build
from ringroad_lab.dut.interface import DUTS, Placement
from ringroad_lab.errors import HostError, LabError, MissingProgramError
from ringroad_lab.generator.interface import GENERATORS
from ringroad_lab.guest.interface import GUESTS
from ringroad_lab.host.interface import Completed, Host, Process
from ringroad_lab.message_size.sweep import require_programs
from ringroad_lab.method.interface import METHODS
from ringroad_lab.method.message_size import StationMethod
from ringroad_lab.scenario.model import Scenario


@dataclass(frozen=True)
class RequiredProgram:
    """A required program on a host."""

    program: str
    package: str
    """Package of Debian."""
    host: str
    path: str | None
    """None: the program is missing."""


class LookingHost(Host):
    """Wraps a host while devices and guests look for their programs: records the requested programs, and starts nothing.

    A missing program is recorded and reported as found, so that the next program is requested too.
    """

    def __init__(self, host: Host) -> None:
        """Wrap `host`."""
        self._host = host
        self.name = host.name
        self.folder = host.folder
        self.found: list[RequiredProgram] = []

    def require(self, program: str, package: str) -> str:
        """Record a needed program."""
        path = self._host.find_program(program)
        self.found.append(RequiredProgram(program, package, self.name, path))
        return path or program

    def find_program(self, program: str) -> str | None:
        """Look for a program on the host."""
        return self._host.find_program(program)

    def read_text(self, path: PurePosixPath) -> str:
        """Read a file of the host."""
        return self._host.read_text(path)

    def run(self, argv: Sequence[str], **options: Any) -> Completed:  # noqa: ANN401 - as of any host
        """Fail: this host runs nothing."""
        raise HostError(f"{self.name}: {argv[0]} is not run during the search for programs")

    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cpus: frozenset[int] | None = None) -> Process:
        """Fail, as `run` does."""
        raise HostError(f"{self.name}: {name} is not started during the search for programs")

    def write_text(self, path: PurePosixPath, text: str) -> None:
        """Fail, as `run` does."""
        raise HostError(f"{self.name}: {path} is not written during the search for programs")

    def close(self) -> None:
        """Leave the host open."""


def required_programs(scenarios: Sequence[Scenario], host: Host) -> tuple[RequiredProgram, ...]:
    """Return the programs that devices and guests of checked scenarios need on this machine, each once, missing programs first.

    Programs on other machines are checked in the run, when these are reached. Existing builds are inspected; builds that must be unpacked
    are assumed to have their programs.

    Raises:
        BuildError: a build lacks its program, or does not run on this machine.
    """
    looking = LookingHost(host)

    def placed(choice: BuildChoice | None, programs: Programs, name: str) -> Placement:
        if choice is None:
            return Placement(host=looking, cpus=frozenset({0}))
        build = presumed_build(choice, programs) if choice.is_packed else open_build(host, choice, programs, name)
        return Placement(host=BuildHost(looking, build), cpus=frozenset({0}), build=build)

    for scenario in scenarios:
        for choice in scenario.duts:
            own = scenario.of(choice)
            guest_type = GUESTS[own.guest] if own.topology.guests and own.guest is not None else None
            generator = scenario.generator_of(choice)
            driver = GENERATORS[generator.driver]
            _look(driver(driver.settings_type.model_validate_json(json.dumps(generator.settings)), looking, frozenset()).prepare, looking)
            if choice.host == "local":
                dut_type = DUTS[choice.driver]
                placement = placed(choice.build, dut_type.build_programs, f"dut.{choice.label}.build")
                dut = dut_type(dut_type.settings_type.model_validate(choice.settings), placement)
                _look(dut.prepare, looking)
                if guest_type is not None:
                    placement = placed(choice.guest_build, guest_type.build_programs, f"dut.{choice.label}.guest_build")
                    _look(guest_type("guest", placement).prepare, looking)
            for method in own.methods:
                if issubclass(kind := METHODS[method.name], StationMethod):
                    settings = kind.settings_type.model_validate(method.settings)
                    _look(partial(require_programs, settings, placed(None, {}, "")), looking)
    programs = {(found.program, found.host): found for found in looking.found}
    return tuple(sorted(programs.values(), key=lambda found: (found.path is not None, found.program)))


def _look(prepare: Callable[[], object], looking: LookingHost) -> None:
    try:
        prepare()
    except MissingProgramError as error:
        looking.found.append(RequiredProgram(error.program, error.package, looking.name, None))
    except LabError:
        # The driver tried to run a program that it found: nothing more can be found out without running programs.
        return
