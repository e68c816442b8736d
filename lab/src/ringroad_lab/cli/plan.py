"""`ringroad-lab plan`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ringroad_lab.cli.list_scenarios import print_table
from ringroad_lab.cli.scenario_options import AsJson, Assignments, LayerNames, ScenarioName, resolve_arguments
from ringroad_lab.host.local import LocalHost
from ringroad_lab.package_names import how_to_install, package_name
from ringroad_lab.report.plain_text import printable
from ringroad_lab.report.quantity import duration
from ringroad_lab.scenario.resolve import ResolvedScenario

if TYPE_CHECKING:
    from ringroad_lab.scenario.plan import Plan, PlannedStart
    from ringroad_lab.scenario.requirements import RequiredProgram


def plan(scenario: ScenarioName, layer: LayerNames = None, set_: Assignments = None, as_json: AsJson = False) -> None:
    """Show what a run would measure, in which order, how long it takes, and which programs are missing."""
    # Imported here: methods import slow libraries, and other verbs must not wait for them.
    from ringroad_lab.scenario.plan import plan as make_plan
    from ringroad_lab.scenario.requirements import required_programs

    resolved = resolve_arguments(scenario, layer, set_)
    planned = make_plan(resolved.scenarios)
    host = LocalHost()
    try:
        programs = required_programs(resolved.scenarios, host)
    finally:
        host.close()
    if as_json:
        print(json.dumps(_document(resolved, planned, programs), indent=2))
    else:
        _print(resolved, planned, programs)


def _document(resolved: ResolvedScenario, planned: Plan, programs: tuple[RequiredProgram, ...]) -> dict[str, object]:
    return {
        "name": resolved.name,
        "expected_s": planned.expected_s,
        "self_test_s": planned.self_test_s,
        "measurements": planned.measurements,
        "trials": planned.trials,
        "starts": [
            {
                "topology": start.scenario.topology,
                "dut": start.dut.label,
                "driver": start.dut.driver,
                "repetition": start.repetition,
                "is_noise_floor": start.is_noise_floor,
                "expected_s": start.expected_s,
                "measurements": [
                    {"method": each.method, "frame": each.frame.name, "trials": each.trials, "expected_s": each.expected_s}
                    for each in start.measurements
                ],
            }
            for start in planned.starts
        ],
        "programs": [{"program": each.program, "package": each.package, "host": each.host, "path": each.path} for each in programs],
        "missing_packages": _missing(programs),
        "how_to_install": how_to_install(_missing(programs)),
        "warnings": resolved.warnings,
        "deviations": planned.deviations,
    }


def _missing(programs: tuple[RequiredProgram, ...]) -> list[str]:
    return sorted({program.package for program in programs if program.path is None})


def _row(number: int, start: PlannedStart) -> dict[str, str]:
    return {
        "": str(number),
        "topology": str(start.scenario.topology),
        "device": start.dut.label,
        "cables": ", ".join(start.cables),
        "repetition": f"{start.repetition + 1}{' (noise floor)' if start.is_noise_floor else ''}",
        "methods": ", ".join(dict.fromkeys(each.method for each in start.measurements)),
        "frames": ", ".join(dict.fromkeys(each.frame.name for each in start.measurements)),
        "trials": str(sum(each.trials for each in start.measurements)),
        "time": duration(start.expected_s, decimals=0),
    }


def _print(resolved: ResolvedScenario, planned: Plan, programs: tuple[RequiredProgram, ...]) -> None:
    print(printable(f"{resolved.name}: {resolved.title}" if resolved.title else resolved.name))
    print()
    print_table([_row(number, start) for number, start in enumerate(planned.starts, 1)])
    print()
    self_test = f"; the generator tests itself first ({duration(planned.self_test_s, decimals=0)})" if planned.self_test_s else ""
    expected = duration(planned.expected_s, decimals=0)
    print(f"{planned.measurements} measurements of about {planned.trials} trials{self_test}. About {expected} in all.")
    for program in programs:
        if program.path is None:
            print(f"Missing on {program.host}: {program.program} ({package_name(program.package)})")
    if missing := _missing(programs):
        print(f"To install the missing programs: {how_to_install(missing)}")
    for warning in resolved.warnings:
        print(f"Warning: {printable(warning)}")
    for deviation in planned.deviations:
        print(f"Deviation: {deviation}")
