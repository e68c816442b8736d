"""The programs that a scenario needs, and those missing on their hosts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from ringroad_lab.build.choice import BuildChoice
from ringroad_lab.build.opened import BuildHost, Programs, open_build, presumed_build
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import HostError, LabError, MissingProgramError
from ringroad_lab.host.interface import Completed, Host, Process
from ringroad_lab.message_size.sweep import require_programs
from ringroad_lab.method.message_size import MessageSizeMethod, MessageSizeSettings
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.scenario.registries import Registries


@dataclass(frozen=True)
class RequiredProgram:
    """A program, where it has to be."""

    program: str
    package: str
    """Of Debian."""
    host: str
    path: str | None
    """None: it is missing."""


class LookingHost(Host):
    """Stands before a host while devices and guests look for what they need: notes what they ask for, and starts nothing.

    A missing program is noted, and said to be there, so that the next is asked for too.
    """

    def __init__(self, host: Host) -> None:
        """Stand before `host`."""
        self._host = host
        self.name = host.name
        self.folder = host.folder
        self.found: list[RequiredProgram] = []

    def require(self, program: str, package: str) -> str:
        """Note that a program is needed."""
        path = self._host.find_program(program)
        self.found.append(RequiredProgram(program, package, self.name, path))
        return path or program

    def find_program(self, program: str) -> str | None:
        """Look as the host does."""
        return self._host.find_program(program)

    def read_text(self, path: PurePosixPath) -> str:
        """Read as the host does."""
        return self._host.read_text(path)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        check: bool = True,
    ) -> Completed:
        """Refuse: who only looks runs nothing."""
        raise HostError(f"{self.name}: {argv[0]} is not run while programs are looked for")

    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cpus: frozenset[int] | None = None) -> Process:
        """Refuse, as `run` does."""
        raise HostError(f"{self.name}: {name} is not started while programs are looked for")

    def write_text(self, path: PurePosixPath, text: str) -> None:
        """Refuse, as `run` does."""
        raise HostError(f"{self.name}: {path} is not written while programs are looked for")

    def close(self) -> None:
        """Leave the host behind as it is."""


def required_programs(scenarios: Sequence[Scenario], registries: Registries, host: Host) -> tuple[RequiredProgram, ...]:
    """Return what the devices and guests of checked scenarios need on this machine, each program once, missing ones first.

    What other machines need is known only when they are reached, in the run. Builds that are there are looked at; those that are to be
    unpacked are presumed to have what they are for.

    Raises:
        BuildError: a build has not what it is for, or does not run on this machine.
    """
    looking = LookingHost(host)

    def placed(choice: BuildChoice | None, programs: Programs, name: str) -> Placement:
        if choice is None:
            return Placement(host=looking, cpus=frozenset({0}))
        build = presumed_build(choice, programs) if choice.is_packed else open_build(host, choice, programs, name)
        return Placement(host=BuildHost(looking, build), cpus=frozenset({0}), build=build)

    for scenario in scenarios:
        guest_type = registries.guests[scenario.guest] if scenario.topology.guests and scenario.guest is not None else None
        for choice in scenario.duts:
            generator = scenario.generator_of(choice)
            driver = registries.generators[generator.driver]
            _look(driver(driver.settings_type.model_validate_json(json.dumps(generator.settings)), looking, frozenset()).prepare, looking)
            if choice.host == "local":
                dut_type = registries.duts[choice.driver]
                placement = placed(choice.build, dut_type.build_programs, f"dut.{choice.label}.build")
                dut = dut_type(dut_type.settings_type.model_validate(choice.settings), placement)
                _look(dut.prepare, looking)
                if guest_type is not None:
                    placement = placed(choice.guest_build, guest_type.build_programs, f"dut.{choice.label}.guest_build")
                    _look(guest_type("guest", placement).prepare, looking)
        for method in scenario.methods:
            if method.name == MessageSizeMethod.name:
                settings = MessageSizeSettings.model_validate(method.settings)
                _look(partial(require_programs, settings, placed(None, {}, "")), looking)
    programs = {(found.program, found.host): found for found in looking.found}
    return tuple(sorted(programs.values(), key=lambda found: (found.path is not None, found.program)))


def _look(prepare: Callable[[], object], looking: LookingHost) -> None:
    try:
        prepare()
    except MissingProgramError as error:
        looking.found.append(RequiredProgram(error.program, error.package, looking.name, None))
    except LabError:
        # It wanted to run something it had found: there is nothing more to learn without running it.
        return
