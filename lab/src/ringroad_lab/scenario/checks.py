"""Checks between the settings of a scenario."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

from pydantic import ValidationError

from ringroad_lab.build.choice import GuestBuildChoice
from ringroad_lab.cable.interface import CABLES, CableKind
from ringroad_lab.dut.interface import DUTS
from ringroad_lab.errors import ScenarioError
from ringroad_lab.generator.interface import GENERATORS
from ringroad_lab.guest.interface import GUESTS, guest_cable
from ringroad_lab.method.interface import METHODS
from ringroad_lab.method.live_migration import LiveMigrationSettings
from ringroad_lab.method.message_size import StationSettings
from ringroad_lab.scenario.cpu_layout import lay_out_cpus
from ringroad_lab.scenario.document import KeyPath
from ringroad_lab.scenario.layers import LayerKind, Merged
from ringroad_lab.scenario.library import LOCAL_HOST
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario
from ringroad_lab.scenario.near_miss import suggest
from ringroad_lab.scenario.problem import Problem, validate
from ringroad_lab.scenario.schema import ScenarioTable

PHYSICAL_PORTS = 2


def check(scenario: Scenario, table: ScenarioTable, merged: Merged, online_cpus: frozenset[int] | None) -> tuple[list[Problem], list[str]]:
    """Return the problems of a scenario, and warnings."""
    problems: list[Problem] = []
    _check_described(table, merged, problems)
    _check_duts(scenario, table, problems)
    _check_methods(scenario, table, problems)
    _check_guest(scenario, problems)
    _check_queues(scenario, problems)
    _check_places(scenario, problems)
    _check_steps(scenario, problems)
    problems += _repeated(("topologies",), table.topologies)
    problems += _repeated(("frames",), [frame.name for frame in scenario.frames])
    warnings = [*_idle_guest(table, merged), *_check_cpus(scenario, online_cpus, problems)]
    return problems, warnings


def _check_described(table: ScenarioTable, merged: Merged, problems: list[Problem]) -> None:
    """Report tables of devices that are not measured: probably a typing error.

    A table is allowed if a later layer chose other devices, or if it describes a driver for many scenarios.
    """
    chosen = merged.origin(("duts",))
    for label in table.dut:
        origin = merged.origin(("dut", label))
        if label in table.duts or origin is None or chosen is None or origin.rank < chosen.rank:
            continue
        if label not in DUTS or origin.kind is LayerKind.COMMAND_LINE:
            problems.append(Problem(("dut", label), f"describes a device that `duts` does not name{suggest(label, table.duts)}"))


def _check_duts(scenario: Scenario, table: ScenarioTable, problems: list[Problem]) -> None:
    problems += _repeated(("duts",), table.duts)
    for dut in scenario.duts:
        is_described = dut.label in table.dut
        driver_type = DUTS.get(dut.driver)
        if driver_type is None:
            path = ("dut", dut.label, "driver") if is_described and table.dut[dut.label].driver else ("duts",)
            problems.append(Problem(path, f"there is no driver '{dut.driver}'{suggest(dut.driver, DUTS)}"))
            continue
        settings = validate(driver_type.settings_type, dut.settings, ("dut", dut.label, "settings"), problems)
        _check_builds(scenario, dut, problems)
        kind = scenario.physical_of(dut)
        methods = [method.name for method in scenario.methods if method.name in METHODS and not METHODS[method.name].is_between_stations]
        if settings is not None and methods and (why := settings.why_stations_only(kind)):
            problems.append(Problem(("dut", dut.label, "settings"), f"{', '.join(methods)} cannot measure it: {why}"))
        path = ("dut", dut.label, "physical") if is_described and table.dut[dut.label].physical is kind else ("physical",)
        reached = _check_generator(scenario, dut, problems)
        if kind not in driver_type.carries:
            problems.append(Problem(path, f"{dut.driver} has no ports for {kind}, only for {_names(driver_type.carries & reached)}"))
        # Stations open cables that the generator has no ports for.
        if methods and kind not in reached:
            problems.append(Problem(path, f"the generator has no ports for {kind}, only for {_names(reached)}"))


def _check_generator(scenario: Scenario, dut: DutChoice, problems: list[Problem]) -> frozenset[CableKind]:
    """Check the generator of a device, and return the cables that it has ports for."""
    choice = scenario.generator_of(dut)
    path: KeyPath = ("dut", dut.label, "generator") if dut.generator else ("generator",)
    every = frozenset(CableKind(name) for name in CABLES)
    driver_type = GENERATORS.get(choice.driver)
    if driver_type is None:
        problems.append(Problem((*path, "driver"), f"there is no generator '{choice.driver}'{suggest(choice.driver, GENERATORS)}"))
        return every
    settings = validate(driver_type.settings_type, choice.settings, path, problems, extra_keys=("driver",))
    if settings is None:
        return every
    if settings.is_elsewhere and scenario.private:
        text = f"has to be false with the generator {choice.driver}, which runs without the lab: private namespaces hide it"
        problems.append(Problem(("private",), text))
    return frozenset(kind for kind in every if driver_type.reaches(kind, settings))


def _check_builds(scenario: Scenario, dut: DutChoice, problems: list[Problem]) -> None:
    own = scenario.of(dut)
    guest = GUESTS.get(own.guest or "")
    for key, choice, programs in (
        ("build", dut.build, DUTS[dut.driver].build_programs),
        ("guest_build", dut.guest_build, guest.build_programs if guest else None),
    ):
        path = ("dut", dut.label, key)
        if choice is None or programs is None:
            continue
        if not programs:
            part = dut.driver if key == "build" else f"guest {own.guest}"
            problems.append(Problem(path, f"{part} has no programs of its own, because the kernel forwards: it cannot have another build"))
        elif isinstance(choice, GuestBuildChoice) and choice.kernel and guest is not None and not guest.boots_kernel:
            problems.append(Problem((*path, "kernel"), f"guest {own.guest} has no kernel of its own: use a qemu guest"))
        elif dut.host != LOCAL_HOST and choice.is_packed:
            problems.append(
                Problem(path, f"can be unpacked only on this machine: unpack it on {dut.host}, and set `prefix` to its folder there")
            )


def _check_methods(scenario: Scenario, table: ScenarioTable, problems: list[Problem]) -> None:
    problems += _repeated(("methods",), table.methods)
    for method in scenario.methods:
        if method.name not in METHODS:
            problems.append(Problem(("methods",), f"there is no method '{method.name}'{suggest(method.name, METHODS)}"))
        elif METHODS[method.name].is_between_stations:
            _check_stations(scenario, method, problems)
    described: list[tuple[KeyPath, dict[str, Any]]] = [(("method", name), settings) for name, settings in table.method.items()]
    described += [(("dut", dut.label, "method", name), settings) for dut in scenario.duts for name, settings in dut.methods.items()]
    for path, settings in described:
        name = path[-1]
        if name in METHODS:
            validate(METHODS[name].settings_type, settings, path, problems)
        elif name not in table.methods:
            problems.append(Problem(path, f"there is no such method{suggest(name, METHODS)}"))


def _check_stations(scenario: Scenario, method: MethodChoice, problems: list[Problem]) -> None:
    # Imported here because it imports all modules of devices and guests.
    from ringroad_lab.message_size.sweep import station_cable

    if scenario.topology.guests:
        problems.append(Problem(("topologies",), f"{method.name} measures between two stations: P2P, not {scenario.topology}"))
    for dut in scenario.duts:
        if dut.host != LOCAL_HOST:
            problems.append(Problem(("dut", dut.label, "host"), f"{method.name} measures on this machine only"))
        try:
            settings = METHODS[method.name].settings_type.model_validate(dut.methods.get(method.name, method.settings))
        except ValidationError:
            # Reported with the settings of all methods.
            continue
        assert isinstance(settings, StationSettings)
        if dut.driver in DUTS:
            try:
                station_cable(dut.driver, settings)
            except ScenarioError as error:
                problems.append(Problem(("duts",), f"{method.name}: {error}"))
            if isinstance(settings, LiveMigrationSettings) and not DUTS[dut.driver].learns:
                problems.append(Problem(("duts",), f"{method.name}: {dut.driver} is no learning switch of several ports"))


def _check_guest(scenario: Scenario, problems: list[Problem]) -> None:
    if not scenario.topology.guests:
        return
    for dut in scenario.duts:
        _check_guest_of(scenario.of(dut), dut, problems)


def _check_guest_of(scenario: Scenario, dut: DutChoice, problems: list[Problem]) -> None:
    """Check the guest of a device; problems of the guest of all devices are reported once."""
    path = _path(dut, "guest")
    found: list[Problem] = []
    guest_type = GUESTS.get(scenario.guest or "")
    driver_type = DUTS.get(dut.driver)
    if scenario.guest is None:
        found.append(Problem(path, f"{scenario.topology} needs a guest{suggest('', GUESTS)}"))
    elif guest_type is None:
        found.append(Problem(path, f"there is no guest '{scenario.guest}'{suggest(scenario.guest, GUESTS)}"))
    elif driver_type is not None:
        both = driver_type.carries & guest_type.carries
        if not both:
            text = f"no cable joins {dut.driver} ({_names(driver_type.carries)}) and {scenario.guest} ({_names(guest_type.carries)})"
            found.append(Problem(path, text))
        elif scenario.guest_cables is not None and scenario.guest_cables not in both:
            text = f"{scenario.guest_cables} does not join {dut.driver} and {scenario.guest}; {_names(both)} does"
            found.append(Problem(_path(dut, "guest_cables"), text))
    problems += [each for each in found if each not in problems]


def _path(dut: DutChoice, setting: str) -> KeyPath:
    """Return the path of a setting that a device can have of its own."""
    return ("dut", dut.label, setting) if setting in dut.own() else (setting,)


def _idle_guest(table: ScenarioTable, merged: Merged) -> list[str]:
    """Warn about a guest that the layer of the topologies, or a later layer, sets although no topology has a guest."""
    origin, chosen = merged.origin(("guest",)), merged.origin(("topologies",))
    if table.guest is None or origin is None or chosen is None or origin.rank < chosen.rank:
        return []
    if any(topology.guests for topology in table.topologies):
        return []
    return [f'guest {table.guest} is not used: {_names(table.topologies)} has no guest; topologies = ["PVP"] has one ({origin})']


def _check_queues(scenario: Scenario, problems: list[Problem]) -> None:
    for dut in scenario.duts:
        own = scenario.of(dut)
        if own.queues == 1 or (driver_type := DUTS.get(dut.driver)) is None:
            continue
        guest_type = GUESTS.get(own.guest or "")
        kinds = {own.physical_of(dut)}
        single = {f"{dut.driver} over {kind}" for kind in kinds & driver_type.single_queue}
        if guest_type is not None:
            kind = guest_cable(own.guest_cables, driver_type.carries & guest_type.carries)
            single |= {f"{dut.driver} over {kind}"} if kind in driver_type.single_queue else set()
            single |= {f"guest {own.guest} over {kind}"} if kind in guest_type.single_queue else set()
        found = [Problem(_path(dut, "queues"), f"{part} has one queue pair, not {own.queues}") for part in sorted(single)]
        problems += [each for each in found if each not in problems]


def _check_places(scenario: Scenario, problems: list[Problem]) -> None:
    hosts = {host.name: host for host in scenario.hosts}
    kinds = {dut.label: scenario.physical_of(dut) for dut in scenario.duts}
    for dut in scenario.duts:
        path: KeyPath = ("dut", dut.label, "host")
        host = hosts.get(dut.host)
        if dut.host != LOCAL_HOST and host is None:
            problems.append(
                Problem(path, f"there is no host '{dut.host}'{suggest(dut.host, [LOCAL_HOST, *hosts])}; a site describes it as [host.NAME]")
            )
        elif dut.host != LOCAL_HOST and not CABLES[kinds[dut.label]].joins_cards:
            problems.append(Problem(path, f'another machine needs network cards: set physical = "nic" or "vfio", not {kinds[dut.label]}'))
        elif CABLES[kinds[dut.label]].joins_cards and (host is None or len(host.nics) < PHYSICAL_PORTS):
            problems.append(
                Problem(
                    ("host", dut.host, "nics"),
                    f"{PHYSICAL_PORTS} pairs of network cards are needed, each with generator_interface and dut_interface",
                )
            )
    if scenario.private and any(dut.host != LOCAL_HOST for dut in scenario.duts):
        problems.append(Problem(("private",), "has to be false if a device is on another machine: private namespaces cannot reach it"))
    elif scenario.private and any(CABLES[kind].joins_cards for kind in kinds.values()):
        problems.append(Problem(("private",), "has to be false with network cards: they are not in the run's namespaces"))


def _check_steps(scenario: Scenario, problems: list[Problem]) -> None:
    places = ["dut", "generator", *(host.name for host in scenario.hosts)]
    for number, step in enumerate(scenario.steps):
        if step.on not in places:
            problems.append(Problem(("steps", str(number), "on"), f"there is no host '{step.on}'{suggest(step.on, places)}"))
    between = [choice.name for choice in scenario.methods if (m := METHODS.get(choice.name)) and m.is_between_stations]
    if scenario.steps and between:
        problems.append(Problem(("steps",), f"{', '.join(between)} has no test steps: it measures between stations, without a test setup"))


def _check_cpus(scenario: Scenario, online_cpus: frozenset[int] | None, problems: list[Problem]) -> list[str]:
    cpus = scenario.cpus
    is_local = all(dut.host == LOCAL_HOST for dut in scenario.duts)
    named = {"generator": cpus.generator, "dut": cpus.dut, "guests": cpus.guests} if is_local else {"generator": cpus.generator}
    if online_cpus is None:
        return []
    missing = {role: wanted - online_cpus for role, wanted in named.items() if not wanted <= online_cpus}
    for role, numbers in missing.items():
        problems.append(Problem(("cpus", role), f"there is no {_processors(numbers)} here; there are {_names(online_cpus)}"))
    if missing or not is_local:
        return []
    layout = lay_out_cpus(cpus, online_cpus, scenario.most_queues, scenario.topology.guests)
    guests = {f"guest {number}": used for number, used in enumerate(layout.guests, 1)}
    roles = {"generator": layout.generator, "device": layout.dut, **guests}
    warnings = [
        f"{scenario.topology}: {left} and {right} share {_processors(roles[left] & roles[right])}: they take time from each other"
        for left, right in combinations(roles, 2)
        if roles[left] & roles[right]
    ]
    if scenario.most_queues > len(layout.dut):
        processors = "1 processor" if len(layout.dut) == 1 else f"{len(layout.dut)} processors"
        warnings.append(f"{scenario.topology}: {scenario.most_queues} queues, but {processors} for the device: queues share them")
    return warnings


def _processors(numbers: frozenset[int]) -> str:
    return f"processor{'s' if len(numbers) > 1 else ''} {', '.join(map(str, sorted(numbers)))}"


def _repeated(path: KeyPath, names: Iterable[str]) -> list[Problem]:
    seen: set[str] = set()
    repeated = [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    return [Problem(path, f"{name} is given twice") for name in dict.fromkeys(repeated)]


def _names(items: Iterable[object]) -> str:
    return ", ".join(str(item) for item in sorted(items, key=str)) or "nothing"
