"""The drivers that a scenario names, with their settings, builds and huge pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from pydantic import ValidationError

from ringroad_lab.build.choice import BuildChoice
from ringroad_lab.build.opened import BuildHost, Programs, open_build
from ringroad_lab.dut.interface import DUTS, Dut, DutSettings, Placement
from ringroad_lab.errors import ScenarioError, value_problems
from ringroad_lab.generator.interface import GENERATORS, GeneratorDriver
from ringroad_lab.guest.interface import GUESTS, Guest
from ringroad_lab.host.interface import Host
from ringroad_lab.scenario.model import DutChoice, GeneratorChoice, Scenario

T = TypeVar("T")

# The generator's vhost-user ports allocate rings and frames from huge pages if there are any: some 14 MiB for two ports with one queue.
GENERATOR_HUGE_PAGES_MIB = 64


def find(kinds: Mapping[str, type[T]], name: str, what: str) -> type[T]:
    """Return a class by its name, or raise ScenarioError; `what` is the word for its kind."""
    if name not in kinds:
        raise ScenarioError(f"there is no {what} {name!r}: there are {', '.join(sorted(kinds))}")
    return kinds[name]


def find_dut(driver: str) -> type[Dut]:
    """Return the class of a device; raise ScenarioError if there is none."""
    return find(DUTS, driver, "device")


def find_guest(kind: str) -> type[Guest]:
    """Return the class of a guest; raise ScenarioError if there is none."""
    return find(GUESTS, kind, "guest")


def read_settings(choice: DutChoice) -> DutSettings:
    """Return the validated settings of a device.

    Raises:
        ScenarioError: there is no such device, or a setting is invalid.
    """
    try:
        return find_dut(choice.driver).settings_type.model_validate(choice.settings)
    except ValidationError as error:
        raise ScenarioError(f"{choice.label}: settings of {choice.driver}: {'; '.join(value_problems(error))}") from error


def make_generator(choice: GeneratorChoice, host: Host, cpus: frozenset[int]) -> GeneratorDriver:
    """Create the generator, which offers the load.

    Raises:
        ScenarioError: there is no such generator, or one of its settings is invalid.
    """
    driver_type = find(GENERATORS, choice.driver, "generator")
    try:
        # JSON: there a list is a tuple and a text a path.
        settings = driver_type.settings_type.model_validate_json(json.dumps(choice.settings))
    except ValidationError as error:
        raise ScenarioError(f"settings of the generator {choice.driver}: {'; '.join(value_problems(error))}") from error
    return driver_type(settings, host, cpus)


def with_build(placement: Placement, choice: BuildChoice | None, programs: Programs, name: str) -> Placement:
    """Return the placement of a device or guest with its build; `name` names the choice in errors.

    Raises:
        BuildError: there is no such build, or it does not run there.
    """
    if choice is None:
        return placement
    build = open_build(placement.host, choice, programs, name)
    return replace(placement, host=BuildHost(placement.host, build), build=build)


def huge_pages_mib(scenario: Scenario, choice: DutChoice | None = None) -> int:
    """Return the huge pages that a device's setup needs, MiB; without a device, the most that a setup of the scenario needs; 0: none."""
    return max(_huge_pages_mib(scenario.of(each), each) for each in ([choice] if choice else scenario.duts))


def _huge_pages_mib(scenario: Scenario, choice: DutChoice) -> int:
    if not scenario.huge_pages:
        return 0
    guests = scenario.topology.guests * find_guest(scenario.guest).huge_pages_mib if scenario.guest else 0
    needed = guests + find_dut(choice.driver).huge_pages_mib
    return needed + GENERATOR_HUGE_PAGES_MIB if needed else 0
