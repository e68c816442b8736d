"""Carries out a run on this machine: installs builds, measures, stores, and compares."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from ringroad_lab.comparison import RunComparison, compare_runs, describe_run
from ringroad_lab.errors import BuildError, MissingProgramError, ReportError
from ringroad_lab.facts.machine import is_same_machine, machine_facts
from ringroad_lab.host.interface import Host
from ringroad_lab.host.local import LocalHost
from ringroad_lab.noise import noise_floors
from ringroad_lab.notification.message import Notice
from ringroad_lab.record import LogExcerpt, RunRecord, RunState
from ringroad_lab.report.plain_text import printable
from ringroad_lab.report.quantity import duration
from ringroad_lab.run.bed_guard import BedGuard
from ringroad_lab.run.events import Event, HugePagesNeeded
from ringroad_lab.run.processors import isolated_processors, layout_of_run, station_cpus
from ringroad_lab.run.progress import RunProgress
from ringroad_lab.run.recorded_scenario import scenarios_of
from ringroad_lab.run.staging import Staging
from ringroad_lab.run.supervisor import Supervisor
from ringroad_lab.run.until_decided import UntilDecided
from ringroad_lab.sandbox.huge_pages import huge_pages
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.scenario.plan import expected_s
from ringroad_lab.scenario.requirements import required_programs
from ringroad_lab.scenario.schedule import schedule
from ringroad_lab.setup.drivers import huge_pages_mib
from ringroad_lab.store.result_store import ResultStore


@dataclass(frozen=True)
class EndedRun:
    """A run that ended, as stored, and its comparison."""

    record: RunRecord
    comparison: RunComparison | None
    notice: Notice
    exit_status: int
    """Status that the measuring process requests; 0: the results decide."""


def facts_of_run(scenarios: Sequence[Scenario]) -> dict[str, dict[str, str]]:
    """Return the facts of this machine for a run."""
    layout = layout_of_run(scenarios)
    cpus = {"generator": layout.generator, "dut": layout.dut}
    cpus |= {f"guest{number}": guest for number, guest in enumerate(layout.guests, 1)}
    cpus |= station_cpus(scenarios, os.sched_getaffinity(0))
    host = LocalHost()
    try:
        return machine_facts(host, cpus)
    finally:
        host.close()


def carry_out(
    results: ResultStore,
    record: RunRecord,
    scenarios: Sequence[Scenario],
    console: Console,
    *,
    baseline: str | None = None,
    until_decided: UntilDecided | None = None,
    guard: BedGuard | None = None,
    is_resumed: bool = False,
) -> EndedRun:
    """Make the missing measurements of a run, store them, and compare the run.

    `record` is the head of the run, with the measurements made before; `baseline` names the run to compare with. A run with
    `until_decided` measures more pairs until the comparison of its two devices is decided.

    Raises:
        LabError: the run could not start. Later errors are in the record.
    """
    results = results.fenced(guard.check_in) if guard else results
    # The baseline is read before anything is measured: a wrong name must not be reported after an hour.
    before = results.get_run(results.resolve(baseline, record)) if baseline else None
    if before:
        _check_baseline(before, record, scenarios)
    with ExitStack() as stack:
        host = LocalHost()
        stack.callback(host.close)
        staging = Staging(host, lambda step: console.print(step, highlight=False, markup=False, soft_wrap=True))
        try:
            staged = staging.scenarios(scenarios)
            _require_programs(staged, host)
        except BuildError as error:
            whole = _keep_uninstalled(results, record, staging.facts, error, is_resumed=is_resumed)
            return EndedRun(whole, None, Notice(whole), error.exit_status)
        record = record.model_copy(update={"facts": {**record.facts, **staging.facts}})
        pages_mib = max(huge_pages_mib(scenario) for scenario in scenarios)
        if guard:
            guard.uses_huge_pages = bool(pages_mib)
        request_pages = stack.enter_context(huge_pages(pages_mib)) if pages_mib else _nothing
        processors = stack.enter_context(isolated_processors(scenarios))
        for sentence in processors.warnings:
            console.print(f"warning: {printable(sentence)}", style="yellow", highlight=False, markup=False)
        record = processors.note(record)
        while True:
            left_s = expected_s(scenarios, {m.number for m in record.measurements})
            console.print(
                f"{record.name}: {len(left_s)} measurements, about {duration(sum(left_s.values()), decimals=0)}; run {record.run_id[:8]}",
                highlight=False,
            )
            conclude = partial(_conclude, expected_s=left_s, began_s=time.monotonic(), until_decided=until_decided)
            with RunProgress(left_s, console) as progress:

                def watch(event: Event, show: Callable[[Event], None] = progress.watch) -> None:
                    if isinstance(event, HugePagesNeeded):
                        request_pages()
                    show(event)

                supervisor = Supervisor(results, watch, processors.enter, guard)
                whole, exit_status = supervisor.run(record, processors.pin(staged), conclude, is_resumed=is_resumed)
            if guard:
                guard.state = whole.state
            if until_decided is None or exit_status or whole.state is not RunState.STOPPED:
                break
            console.print(f"{scenarios[0].repetitions} pairs are not enough for a decision: more are measured", highlight=False)
            record, scenarios, is_resumed = whole, scenarios_of(whole), True
            staged = staging.scenarios(scenarios)
        comparison = compare_runs(before, whole) if before and whole.measurements else None
        if until_decided and whole.state is RunState.FINISHED:
            comparison = until_decided.compare(whole)
        if comparison:
            results.keep_comparison((before or whole).run_id, whole.run_id, comparison)
        notice = Notice(whole, results.comparisons(whole.run_id)[0] if comparison else None, load_comparison=lambda: comparison)
    return EndedRun(whole, comparison, notice, exit_status)


def _keep_uninstalled(
    store: ResultStore, record: RunRecord, facts: Mapping[str, dict[str, str]], error: BuildError, *, is_resumed: bool
) -> RunRecord:
    """Store a run whose build could not be installed, with the known facts of its builds; return the run.

    Raises:
        StoreError: the database failed.
    """
    log = LogExcerpt(source="installing the build", text=error.log).shortened()
    update = {
        "ended_at": time.time(),
        "state": RunState.NOT_INSTALLED,
        "failure": str(error),
        "facts": {**record.facts, **facts},
        "logs": (*record.logs, log) if error.log else record.logs,
    }
    whole = record.model_copy(update=update)
    if not is_resumed:
        store.begin_run(record)
    store.end_run(whole)
    return whole


def _nothing() -> None:
    return


def _conclude(record: RunRecord, expected_s: Mapping[int, float], began_s: float, until_decided: UntilDecided | None) -> RunRecord:
    """Return a run with the results derived from its measurements, and with the planned and the actual duration."""
    planned_s = sum(expected_s.get(measurement.number, 0.0) for measurement in record.measurements)
    update = {
        "noise_floors": noise_floors(record),
        "planned_s": (record.planned_s or 0.0) + planned_s,
        "took_s": (record.took_s or 0.0) + time.monotonic() - began_s,
    }
    record = record.model_copy(update=update)
    return until_decided.settle(record) if until_decided and record.state is RunState.FINISHED else record


def _check_baseline(before: RunRecord, record: RunRecord, scenarios: Sequence[Scenario]) -> None:
    """Check that a baseline can be compared with the run, and warn if it was measured on another machine.

    Raises:
        ReportError: the baseline has nothing in common with the run.
    """
    planned = {(each.scenario.topology.value, m.method.name, m.frame.name) for each in schedule(scenarios) for m in each.measurements}
    devices = {name for scenario in scenarios for dut in scenario.duts for name in (dut.label, dut.driver)}
    known = {name for dut in before.duts for name in (dut.label, dut.driver)}
    measured = {(m.topology, m.method, m.frame.name) for m in before.measurements}
    if planned.isdisjoint(measured) or devices.isdisjoint(known):
        raise ReportError(
            f"the baseline {describe_run(before)} has no device, topology, method and frame size in common with this run: "
            "there is nothing to compare"
        )
    if not is_same_machine(before.facts, record.facts):
        name = before.facts.get("machine", {}).get("name", "another machine")
        text = f"the baseline {describe_run(before)} was measured on {name}: differences can be due to the machine"
        print(f"ringroad-lab: warning: {printable(text)}", file=sys.stderr)


def _require_programs(scenarios: Sequence[Scenario], host: Host) -> None:
    """Check that every program is installed, and that every build can run.

    Raises:
        MissingProgramError: for the first missing program.
        BuildError: for the first build that cannot run.
    """
    for program in required_programs(scenarios, host):
        if program.path is None:
            raise MissingProgramError(program.program, program.package, program.host)
