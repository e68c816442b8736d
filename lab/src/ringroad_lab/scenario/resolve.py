"""Makes runnable scenarios from the name of a scenario and the user's layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from ringroad_lab.cable.interface import CableKind
from ringroad_lab.scenario.checks import check
from ringroad_lab.scenario.document import Document
from ringroad_lab.scenario.layers import Layer, LayerKind, Merged, merge
from ringroad_lab.scenario.library import Library
from ringroad_lab.scenario.model import DutChoice, GeneratorChoice, MethodChoice, Scenario, SiteHost
from ringroad_lab.scenario.problem import Problem, raise_problems, validate
from ringroad_lab.scenario.schema import DutTable, ScenarioTable
from ringroad_lab.topology import Topology


@dataclass(frozen=True)
class ResolvedTopology:
    """A scenario in one topology."""

    scenario: Scenario
    merged: Merged
    """Settings, each with its origin."""


@dataclass(frozen=True)
class ResolvedScenario:
    """A scenario, merged from all its layers: a value for each of its topologies, in the order of measuring."""

    name: str
    title: str
    topologies: tuple[ResolvedTopology, ...]
    warnings: tuple[str, ...] = field(default=())
    """Conditions that can distort the measurement."""

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenarios without their settings' origins."""
        return tuple(resolved.scenario for resolved in self.topologies)


def resolve(
    library: Library,
    name: str,
    user_layers: Sequence[Layer] = (),
    *,
    online_cpus: frozenset[int] | None = None,
) -> ResolvedScenario:
    """Merge all layers of a scenario and check the result.

    `user_layers` are the files and `--set` arguments of the command line. `online_cpus` are this machine's processors, None to skip
    their check.

    Raises:
        ScenarioError: with all problems together.
    """
    own = library.scenario(name)
    below, site = library.defaults(), library.site_layers()
    # The first merge has no layers of the hosts of devices: only its result names these hosts.
    above = [own, *site, *library.host_layers(()), *user_layers]
    chosen = check_table(_own_name(own, name), merge([below, *above]))
    hosts = [chosen.dut[label].host for label in chosen.duts if label in chosen.dut]
    above = [own, *site, *library.host_layers(hosts), *user_layers]
    chosen = check_table(_own_name(own, name), merge([below, *above]))
    resolved = []
    warnings: list[str] = []
    for topology in chosen.topologies:
        merged = _merge_for(library, above, chosen, topology)
        scenario, found = _build(_own_name(own, name), merged, topology, online_cpus)
        resolved.append(ResolvedTopology(scenario, merged))
        warnings += found
    return ResolvedScenario(resolved[0].scenario.name, chosen.title, tuple(resolved), tuple(dict.fromkeys(warnings)))


def _own_name(layer: Layer, name: str) -> str:
    """Return the name of a scenario; for a file, its name without the suffix."""
    return PurePath(layer.document.source).stem or name


def check_table(name: str, merged: Merged) -> ScenarioTable:
    """Check each setting by itself, not yet in combination.

    Raises:
        ScenarioError: with all problems together.
    """
    problems: list[Problem] = []
    table = validate(ScenarioTable, merged.tree, (), problems)
    raise_problems(name, problems, merged)
    assert table is not None
    return table


def _merge_for(library: Library, above: Sequence[Layer], chosen: ScenarioTable, topology: Topology) -> Merged:
    layers = [library.defaults()]
    for label in chosen.duts:
        table = chosen.dut.get(label)
        driver = (table.driver if table else None) or label
        if layer := library.dut_layer(driver):
            document = layer.document
            lines = {("dut", label, *path): line for path, line in document.lines.items()}
            layers.append(Layer(LayerKind.DUT, Document(document.source, {"dut": {label: document.tree}}, lines)))
    if layer := library.topology_layer(topology):
        layers.append(layer)
    return merge([*layers, *above])


def _build(name: str, merged: Merged, topology: Topology, online_cpus: frozenset[int] | None) -> tuple[Scenario, list[str]]:
    table = check_table(name, merged)
    # A topology without guests ignores the guest: other topologies of the scenario use it.
    guest = table.guest if topology.guests else None
    physical = {label: _physical(table, merged, label) for label in table.duts}
    duts = []
    for label in table.duts:
        described = table.dut.get(label, DutTable())
        duts.append(
            DutChoice(
                label=label,
                driver=described.driver or label,
                host=described.host,
                settings=described.settings,
                build=described.build,
                guest_build=described.guest_build,
                generator=_generator(described.generator) if described.generator else None,
                guest=described.guest if topology.guests else None,
                guest_cables=described.guest_cables if topology.guests else None,
                queues=described.queues,
                huge_pages=described.huge_pages,
                methods={method: _over(table.method.get(method, {}), settings) for method, settings in described.method.items()},
            )
        )
    # The other settings are the same in a scenario.
    unchanged = {key: value for key, value in table if key in Scenario.model_fields}
    made = {
        "name": name,
        "topology": topology,
        "duts": tuple(duts),
        "physical": physical[table.duts[0]],
        "physical_by_dut": {label: kind for label, kind in physical.items() if kind is not physical[table.duts[0]]},
        "guest": guest,
        "guest_cables": table.guest_cables if guest else None,
        "generator": _generator(table.generator),
        "methods": tuple(MethodChoice(name=method, settings=table.method.get(method, {})) for method in table.methods),
        "hosts": tuple(SiteHost(name=host, address=entry.address or host, **_rest(entry)) for host, entry in table.host.items()),
    }
    scenario = Scenario.model_validate(unchanged | made)
    problems, warnings = check(scenario, table, merged, online_cpus)
    raise_problems(name, problems, merged)
    return scenario, warnings


def _generator(table: Mapping[str, Any]) -> GeneratorChoice:
    settings = {key: value for key, value in table.items() if key != "driver"}
    return GeneratorChoice(driver=str(table.get("driver", GeneratorChoice().driver)), settings=settings)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a method with others over them; tables are merged."""
    both = {key: _over(below[key], value) for key, value in above.items() if isinstance(value, dict) and isinstance(below.get(key), dict)}
    return {**below, **above, **both}


def _rest(entry: Any) -> Mapping[str, Any]:  # noqa: ANN401
    return {key: value for key, value in entry if key != "address"}


def _physical(table: ScenarioTable, merged: Merged, label: str) -> CableKind:
    """Return the generator's cables of a device: the setting of the later layer; within a layer the device's own wins."""
    own = table.dut[label].physical if label in table.dut else None
    if own is None or table.physical is None:
        return own or table.physical or CableKind.VETH
    own_origin, common_origin = merged.origin(("dut", label, "physical")), merged.origin(("physical",))
    is_later = own_origin is not None and common_origin is not None and common_origin.rank > own_origin.rank
    return table.physical if is_later else own
