"""`ringroad-lab run` and `ringroad-lab resume`; their arguments are in `run_verbs`, which does not need to import this module."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from ringroad_lab import __version__
from ringroad_lab.cli import status
from ringroad_lab.cli.notify import warn_of, without_secrets
from ringroad_lab.cli.report import STANDARD_OUTPUT, reporter_of, write_file
from ringroad_lab.cli.run_bed import ChosenBed, bed_of_record
from ringroad_lab.cli.scenario_options import resolve_arguments
from ringroad_lab.comparison import RunComparison, compare_runs, describe_run
from ringroad_lab.cpu_layout import CpuLayout, lay_out_cpus, pin_cpus
from ringroad_lab.disturbances import tally_disturbances
from ringroad_lab.errors import BuildError, MissingProgramError, ReportError, ScenarioError, StoreError
from ringroad_lab.facts.machine import is_same_machine, machine_facts
from ringroad_lab.host.interface import Host
from ringroad_lab.host.local import LocalHost
from ringroad_lab.noise import noise_floors
from ringroad_lab.notification.delivery import Target, notify
from ringroad_lab.notification.message import Notice
from ringroad_lab.record import MeasurementStatus, RunRecord, RunState
from ringroad_lab.report.figures import same_builds, took
from ringroad_lab.report.junit import run_as_junit
from ringroad_lab.report.plain_text import printable
from ringroad_lab.report.quantity import duration
from ringroad_lab.run.bed_guard import BedGuard
from ringroad_lab.run.events import Event, HugePagesNeeded
from ringroad_lab.run.installation import keep_uninstalled
from ringroad_lab.run.machine_lock import machine_lock
from ringroad_lab.run.progress import RunProgress
from ringroad_lab.run.recorded_scenario import described, scenarios_of
from ringroad_lab.run.staging import Staging
from ringroad_lab.run.supervisor import Supervisor
from ringroad_lab.run.until_decided import UntilDecided, read_until_decided
from ringroad_lab.sandbox.huge_pages import huge_pages
from ringroad_lab.sandbox.isolation import isolated
from ringroad_lab.scenario.library import LOCAL_HOST
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.scenario.plan import make_methods, plan
from ringroad_lab.scenario.registries import Registries
from ringroad_lab.scenario.requirements import required_programs
from ringroad_lab.scenario.schedule import schedule
from ringroad_lab.setup.test_setup import huge_pages_mib
from ringroad_lab.store import models
from ringroad_lab.store.result_store import ResultStore


@dataclass(frozen=True)
class Ending:
    """How a run reports its end."""

    is_quiet: bool
    as_json: bool
    fails_on_inconclusive: bool
    report: Path | None
    junit: Path | None
    recipients: tuple[Target, ...]
    """Recipients of a notification when the run ends."""


def begin_run(
    scenario: str,
    layer: Sequence[str] | None,
    set_: Sequence[str] | None,
    label: Sequence[str] | None,
    store: str | None,
    baseline: str | None,
    decision: tuple[str | None, int | None],
    ending: Ending,
    run_id: str | None = None,
    bed: ChosenBed | None = None,
) -> NoReturn:
    """Measure a scenario, keep the result, compare it, and exit; `decision` is the devices to compare, and the maximum number of pairs.

    The run gets a new id unless one is given. A run with this id that was started before is resumed: an engine restarted its job.
    """
    if run_id and _is_started(run_id, store):
        resume_run(run_id, store, baseline, ending, bed.name if bed else None, bed.fleet if bed else None)
    registries = Registries()
    resolved = resolve_arguments(scenario, layer, set_, registries, bed.bed if bed else None)
    until_decided = read_until_decided(*decision, resolved.scenarios)
    if until_decided and baseline:
        raise ScenarioError("--until-decided compares two devices of this run: leave out --baseline")
    for warning in resolved.warnings:
        print(f"ringroad-lab: warning: {printable(warning)}", file=sys.stderr)
    labels = _labels(resolved.scenarios, label or ())
    now = time.time()
    record = RunRecord(
        run_id=run_id or str(uuid.uuid4()),
        name=resolved.name,
        scenario=described(resolved.scenarios, looks=1 if until_decided else 0),
        command=("ringroad-lab", *without_secrets(sys.argv[1:])),
        lab_version=__version__,
        started_at=now,
        ended_at=now,
        state=RunState.STOPPED,
        duts=(),
        facts=_facts(resolved.scenarios) | (bed.facts if bed else {}),
        link_bps=resolved.scenarios[0].link_bps,
        deviations=_deviations(resolved.scenarios, registries),
        labels=labels,
    )
    with machine_lock(record.run_id), bed.occupied(store, record.run_id, resolved.scenarios) if bed else nullcontext() as guard:
        _carry_out(record, resolved.scenarios, registries, store, baseline, until_decided, ending, guard)


def resume_run(
    name: str, store: str | None, baseline: str | None, ending: Ending, bed_name: str | None = None, fleet: Path | None = None
) -> NoReturn:
    """Make the missing measurements of a run, and exit."""
    with ResultStore(store) as results:
        run_id = results.resolve(name)
        stored = results.get_run(run_id)
        bed = bed_of_record(stored, bed_name, fleet)
        with machine_lock(run_id), bed.occupied(store, run_id, scenarios_of(stored)) if bed else nullcontext() as guard:
            # Read only now: the process that measured it may have just ended it.
            record = results.get_run(run_id)
            if record.state is RunState.FINISHED:
                raise StoreError(f"run {record.run_id} is finished: there is nothing left to measure")
            scenarios = scenarios_of(record)
            facts = _facts(scenarios)
            if not is_same_machine(record.facts, facts):
                name = record.facts.get("machine", {}).get("name", "another machine")
                raise StoreError(f"run {record.run_id} was started on {name}, and all its results must be from there: resume it there")
            _carry_out(record, scenarios, Registries(), store, baseline, None, ending, guard, is_resumed=True)


def _is_started(run_id: str, store: str | None) -> bool:
    with ResultStore(store) as results, results.reading() as session:
        return session.get(models.Run, run_id) is not None


def _carry_out(
    record: RunRecord,
    scenarios: Sequence[Scenario],
    registries: Registries,
    store: str | None,
    baseline: str | None,
    until_decided: UntilDecided | None,
    ending: Ending,
    guard: BedGuard | None,
    *,
    is_resumed: bool = False,
) -> NoReturn:
    for file in (ending.report, ending.junit):
        if file:
            _check_folder(file)
    console = Console(stderr=True, quiet=ending.is_quiet)
    with ExitStack() as stack:
        results = stack.enter_context(ResultStore(store))
        if guard:
            results = results.fenced(guard.check_in)
        # Before anything is measured: a wrong name must not be reported after an hour.
        before = results.get_run(results.resolve(baseline, record)) if baseline else None
        if before:
            _check_baseline(before, record, scenarios)
        host = LocalHost()
        stack.callback(host.close)
        stage = Staging(host, lambda step: console.print(step, highlight=False, markup=False, soft_wrap=True))
        try:
            staged = stage.scenarios(scenarios)
            _require_programs(staged, registries, host)
        except BuildError as error:
            whole = keep_uninstalled(results, record, stage.facts, error, is_resumed=is_resumed)
            _report_end(whole, None, Notice(whole, None), ending, console, store, error.exit_status)
        record = record.model_copy(update={"facts": {**record.facts, **stage.facts}})
        pages_mib = max(huge_pages_mib(scenario) for scenario in scenarios)
        if guard:
            guard.uses_huge_pages = bool(pages_mib)
        request_pages = stack.enter_context(huge_pages(pages_mib)) if pages_mib else _nothing
        isolation = _isolate(scenarios, stack, console)
        record = isolation.begin(record)
        while True:
            expected_s = _expected_s(scenarios, registries, {m.number for m in record.measurements})
            console.print(
                f"{record.name}: {len(expected_s)} measurements, "
                f"about {duration(sum(expected_s.values()), decimals=0)}; run {record.run_id[:8]}",
                highlight=False,
            )
            conclude = partial(_conclude, expected_s=expected_s, began_s=time.monotonic(), until_decided=until_decided)
            with RunProgress(expected_s, console) as progress:

                def watch(event: Event, show: Callable[[Event], None] = progress.watch) -> None:
                    if isinstance(event, HugePagesNeeded):
                        request_pages()
                    show(event)

                supervisor = Supervisor(results, watch, isolation.enter, guard)
                whole, inner_status = supervisor.run(record, isolation.pin(staged), conclude, is_resumed=is_resumed)
            if guard:
                guard.state = whole.state
            if until_decided is None or inner_status or whole.state is not RunState.STOPPED:
                break
            console.print(f"{scenarios[0].repetitions} pairs are not enough for a decision: more are measured", highlight=False)
            record, scenarios, is_resumed = whole, scenarios_of(whole), True
            staged = stage.scenarios(scenarios)
        comparison = compare_runs(before, whole) if before and whole.measurements else None
        if until_decided and whole.state is RunState.FINISHED:
            comparison = until_decided.compare(whole)
        if comparison:
            results.keep_comparison((before or whole).run_id, whole.run_id, comparison)
        notice = Notice(whole, results.comparisons(whole.run_id)[0] if comparison else None, load_comparison=lambda: comparison)
    _report_end(whole, comparison, notice, ending, console, store, inner_status)


def _report_end(
    whole: RunRecord,
    comparison: RunComparison | None,
    notice: Notice,
    ending: Ending,
    console: Console,
    store: str | None,
    inner_status: int,
) -> NoReturn:
    """Report the end of a run, notify recipients, and exit."""
    if ending.report:
        reporter = reporter_of(ending.report)
        write_file(reporter.render(whole, comparison if reporter.compares else None), ending.report)
    if ending.junit:
        write_file(run_as_junit(whole, comparison, fails_on_inconclusive=ending.fails_on_inconclusive), ending.junit)
    if ending.as_json:
        print(json.dumps(summary(whole, comparison), indent=2))
    else:
        _print_end(console, whole, comparison, ending.report, store)
    warn_of(notify([each for each in ending.recipients if each.notifier.concerns(notice)], notice))
    if whole.failure:
        print(f"ringroad-lab: {whole.failure}", file=sys.stderr)
    sys.exit(inner_status or _measured_status(whole, comparison, fails_on_inconclusive=ending.fails_on_inconclusive))


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
    """Check, before anything is measured, that a baseline can be compared with the run, and warn if it was measured on another machine.

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


def _check_folder(report: Path | None) -> None:
    """Check, before anything is measured, that a report can be written.

    Raises:
        ReportError: the report cannot be written.
    """
    if report is None:
        return
    if report == STANDARD_OUTPUT or report.is_dir() or not os.access(report.parent, os.W_OK):
        raise ReportError(f"cannot write the report {report}: name a file in an existing, writable folder")


def summary(record: RunRecord, comparison: RunComparison | None) -> dict[str, object]:
    """Return the summary of a run for programs (JSON); `ringroad-lab export` writes the whole record."""
    return {
        "run_id": record.run_id,
        "name": record.name,
        "state": record.state,
        "failure": record.failure,
        "measurements": [
            {
                "number": m.number,
                "dut": m.dut,
                "topology": m.topology,
                "method": m.method,
                "frame": m.frame.name,
                "repetition": m.repetition,
                "is_noise_floor": m.is_noise_floor,
                "status": m.outcome.status,
                "reasons": m.outcome.reasons,
                "disturbances": tally_disturbances(m.trials).model_dump(mode="json"),
                "headline": m.outcome.headline,
                "metrics": {name: metric.model_dump(mode="json") for name, metric in m.outcome.metrics.items()},
            }
            for m in record.measurements
        ],
        "warnings": record.warnings,
        "comparison": comparison.model_dump(mode="json") if comparison else None,
    }


def _print_end(console: Console, record: RunRecord, comparison: RunComparison | None, report: Path | None, store: str | None) -> None:
    where = f" --store {store}" if store else ""
    time_s = f" in {took(record)}" if record.took_s else ""
    console.print(
        f"{record.state.value}: {len(record.measurements)} measurements{time_s}, run {record.run_id[:8]}", highlight=False, soft_wrap=True
    )
    for text in same_builds(record):
        console.print(f"warning: {printable(text)}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    tally = tally_disturbances(trial for m in record.measurements for trial in m.trials)
    console.print(tally.describe(), highlight=False, markup=False, soft_wrap=True)
    if comparison:
        console.print(f"compared with {comparison.baseline}: {comparison.verdict.value}", highlight=False)
    if report:
        console.print(f"report: {report}", highlight=False)
    else:
        console.print(f"report: ringroad-lab report {record.run_id[:8]}{where}", highlight=False)
    if record.state is not RunState.FINISHED:
        console.print(f"to continue: ringroad-lab resume {record.run_id[:8]}{where}", highlight=False)


def _measured_status(record: RunRecord, comparison: RunComparison | None, *, fails_on_inconclusive: bool) -> int:
    counts = comparison.counts if comparison else {}
    compared = status.of_verdicts(counts, fails_on_regression=True, fails_on_inconclusive=fails_on_inconclusive)
    if compared != status.REGRESSION and any(step.failure for m in record.measurements for step in m.steps):
        return status.STEP_FAILED
    # A regression of the device goes before a failure of the bed.
    if compared != status.REGRESSION and any(m.outcome.status is MeasurementStatus.INVALID for m in record.measurements):
        return status.INVALID
    return compared


def _require_programs(scenarios: Sequence[Scenario], registries: Registries, host: Host) -> None:
    """Check that every program is installed, and that every build can run.

    Raises:
        MissingProgramError: for the first missing program.
        BuildError: for the first build that cannot run.
    """
    for program in required_programs(scenarios, registries, host):
        if program.path is None:
            raise MissingProgramError(program.program, program.package, program.host)


def _layout(scenarios: Sequence[Scenario]) -> CpuLayout:
    scenario = scenarios[0]
    return lay_out_cpus(
        scenario.cpus,
        os.sched_getaffinity(0),
        scenario.queues,
        max(each.topology.guests for each in scenarios),
        is_dut_elsewhere=_is_elsewhere(scenarios),
    )


def _is_elsewhere(scenarios: Sequence[Scenario]) -> bool:
    return any(dut.host != LOCAL_HOST for scenario in scenarios for dut in scenario.duts)


@dataclass(frozen=True)
class _Isolated:
    """A run whose processors are isolated as far as possible."""

    facts: dict[str, str]
    warnings: tuple[str, ...]
    enter: Path | None
    usable: frozenset[int]
    """Processors that were available to the run before the isolation."""

    def begin(self, record: RunRecord) -> RunRecord:
        """Record the result of the isolation."""
        update = {
            "facts": {**record.facts, "isolation of this run": self.facts},
            "warnings": tuple(dict.fromkeys((*record.warnings, *self.warnings))),
        }
        return record.model_copy(update=update)

    def pin(self, scenarios: Sequence[Scenario]) -> tuple[Scenario, ...]:
        """Return the scenarios for the measuring process."""
        return _pinned(scenarios, self.usable) if self.enter else tuple(scenarios)


def _pinned(scenarios: Sequence[Scenario], usable: frozenset[int]) -> tuple[Scenario, ...]:
    return tuple(pin_cpus(each, usable, is_dut_elsewhere=_is_elsewhere(scenarios)) for each in scenarios)


def _isolate(scenarios: Sequence[Scenario], stack: ExitStack, console: Console) -> _Isolated:
    """Isolate the processors that a run uses on this machine until the stack is closed."""
    usable = frozenset(os.sched_getaffinity(0))
    used: frozenset[int] = frozenset()
    for cpus in (each.cpus for each in _pinned(scenarios, usable)):
        used |= cpus.generator if _is_elsewhere(scenarios) else cpus.generator | cpus.dut | cpus.guests
    isolation = stack.enter_context(isolated(scenarios[0].isolation, used))
    for sentence in isolation.refused():
        console.print(f"warning: {printable(sentence)}", style="yellow", highlight=False, markup=False)
    return _Isolated(isolation.facts, isolation.refused(), isolation.enter, usable)


def _facts(scenarios: Sequence[Scenario]) -> dict[str, dict[str, str]]:
    layout = _layout(scenarios)
    cpus = {"generator": layout.generator, "dut": layout.dut}
    cpus |= {f"guest{number}": guest for number, guest in enumerate(layout.guests, 1)}
    host = LocalHost()
    try:
        return machine_facts(host, cpus)
    finally:
        host.close()


def _deviations(scenarios: Sequence[Scenario], registries: Registries) -> tuple[str, ...]:
    methods = [method for scenario in scenarios for method in make_methods(scenario, registries)]
    return tuple(dict.fromkeys(sentence for method in methods for sentence in method.deviations()))


def _labels(scenarios: Sequence[Scenario], texts: Sequence[str]) -> dict[str, str]:
    labels = {name: value for scenario in scenarios for name, value in scenario.labels.items()}
    for text in texts:
        name, is_pair, value = text.partition("=")
        if not is_pair or not name.strip():
            raise ScenarioError(f"label {text!r}: write NAME=VALUE")
        labels[name.strip()] = value.strip()
    return labels


def _expected_s(scenarios: Sequence[Scenario], registries: Registries, measured: set[int]) -> Mapping[int, float]:
    """Return the expected duration of each missing measurement, s, by its number."""
    expected: dict[int, float] = {}
    planned = plan(scenarios, registries)
    for start, turn in zip(planned.starts, schedule(scenarios), strict=True):
        # The time of a device's start is divided among its measurements, the time of the generator's self-test among all measurements.
        overhead_s = (start.expected_s - sum(each.expected_s for each in start.measurements)) / len(start.measurements)
        overhead_s += planned.self_test_s / planned.measurements
        for scheduled, each in zip(turn.measurements, start.measurements, strict=True):
            if scheduled.number not in measured:
                expected[scheduled.number] = each.expected_s + overhead_s
    return expected
