"""`ringroad-lab run` and `ringroad-lab resume`; their arguments are in `run_verbs`, which does not need to import this module."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from ringroad_lab import __version__
from ringroad_lab.cli.notify import without_secrets
from ringroad_lab.cli.run_end import EndOptions, report_end
from ringroad_lab.cli.scenario_options import read_labels, resolve_arguments
from ringroad_lab.errors import ScenarioError, StoreError
from ringroad_lab.facts.machine import is_same_machine
from ringroad_lab.record import RunRecord, RunState
from ringroad_lab.report.plain_text import printable
from ringroad_lab.run.carry_out import carry_out, facts_of_run
from ringroad_lab.run.chosen_bed import ChosenBed, bed_of_record
from ringroad_lab.run.recorded_scenario import described, scenarios_of
from ringroad_lab.run.until_decided import read_until_decided
from ringroad_lab.sandbox.machine_lock import machine_lock
from ringroad_lab.scenario.plan import deviations
from ringroad_lab.store import models
from ringroad_lab.store.result_store import ResultStore


def begin_run(
    scenario: str,
    layer: Sequence[str] | None,
    set_: Sequence[str] | None,
    label: Sequence[str] | None,
    store: str | None,
    baseline: str | None,
    decision: tuple[str | None, int | None],
    end: EndOptions,
    supersedes: str | None = None,
    run_id: str | None = None,
    bed: ChosenBed | None = None,
) -> NoReturn:
    """Measure a scenario, keep the result, compare it, and exit; `decision` is the devices to compare, and the maximum number of pairs.

    The run gets a new id unless one is given. A run with this id that was started before is resumed: an engine restarted its job.
    """
    if run_id and _is_started(run_id, store):
        resume_run(run_id, store, baseline, end, bed.name if bed else None, bed.fleet if bed else None)
    resolved = resolve_arguments(scenario, layer, set_, bed.settings if bed else None)
    until_decided = read_until_decided(*decision, resolved.scenarios)
    if until_decided and baseline:
        raise ScenarioError("--until-decided compares two devices of this run: leave out --baseline")
    for warning in resolved.warnings:
        print(f"ringroad-lab: warning: {printable(warning)}", file=sys.stderr)
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
        labels={name: value for each in resolved.scenarios for name, value in each.labels.items()} | read_labels(label),
        facts=facts_of_run(resolved.scenarios) | (bed.facts if bed else {}),
        link_bps=resolved.scenarios[0].link_bps,
        deviations=deviations(resolved.scenarios),
        supersedes=_superseded(supersedes, resolved.name, store) if supersedes else None,
    )
    console = Console(stderr=True, quiet=end.is_quiet)
    with machine_lock(record.run_id), bed.occupied(store, record.run_id, resolved.scenarios) if bed else nullcontext() as guard:
        end.check()
        with ResultStore(store) as results:
            ended = carry_out(
                results,
                record,
                resolved.scenarios,
                console,
                baseline=baseline,
                until_decided=until_decided,
                guard=guard,
            )
        sys.exit(report_end(ended, end, console, store))


def resume_run(
    name: str, store: str | None, baseline: str | None, end: EndOptions, bed_name: str | None = None, fleet: Path | None = None
) -> NoReturn:
    """Make the missing measurements of a run, and exit."""
    console = Console(stderr=True, quiet=end.is_quiet)
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
            if not is_same_machine(record.facts, facts_of_run(scenarios)):
                machine = record.facts.get("machine", {}).get("name", "another machine")
                raise StoreError(f"run {record.run_id} was started on {machine}, and all its results must be from there: resume it there")
            end.check()
            ended = carry_out(results, record, scenarios, console, baseline=baseline, guard=guard, is_resumed=True)
            sys.exit(report_end(ended, end, console, store))


def _superseded(name: str, scenario: str, store: str | None) -> str:
    """Return the id of the run that a new run of a scenario replaces.

    Raises:
        StoreError: there is no such run, or it measured another scenario.
    """
    with ResultStore(store) as results:
        old = results.get_run(results.resolve(name))
    if old.name != scenario:
        raise StoreError(f"run {old.run_id} measured {old.name}: a run of {scenario} cannot supersede it")
    return old.run_id


def _is_started(run_id: str, store: str | None) -> bool:
    with ResultStore(store) as results, results.reading() as session:
        return session.get(models.Run, run_id) is not None
