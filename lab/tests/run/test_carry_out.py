"""A run carried out without the command line, up to the point where it would measure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from fabricated_runs import fabricated_run
from ringroad_lab.build.choice import BuildChoice
from ringroad_lab.errors import BuildError, ReportError, StoreError
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.record import RunRecord, RunState
from ringroad_lab.run.carry_out import EndedRun, carry_out
from ringroad_lab.run.recorded_scenario import described
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario
from ringroad_lab.store.result_store import ResultStore


@pytest.fixture
def results(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield store


def scenario(prefix: Path | None = None) -> Scenario:
    build = BuildChoice(prefix=str(prefix)) if prefix else None
    return Scenario(
        name="some",
        duts=(DutChoice(label="new", driver="testpmd", build=build),),
        methods=(MethodChoice(name="throughput"),),
        frames=(parse_frame_mix("64"),),
    )


def attempt(results: ResultStore, measured: Scenario, baseline: str | None = None) -> EndedRun:
    record = RunRecord(
        run_id="11111111-1111-1111-1111-111111111111",
        name=measured.name,
        scenario=described((measured,), looks=0),
        command=("ringroad-lab",),
        lab_version="0",
        started_at=0.0,
        ended_at=0.0,
        state=RunState.STOPPED,
        duts=(),
        facts={},
    )
    return carry_out(results, record, (measured,), Console(quiet=True), baseline=baseline)


def test_a_wrong_baseline_is_an_error_before_anything_is_measured(results: ResultStore) -> None:
    old = fabricated_run()
    results.add_run(old)
    with pytest.raises(ReportError, match="has no device, topology, method and frame size in common"):
        attempt(results, scenario(), old.run_id)
    with pytest.raises(StoreError, match="no run or baseline 'mian'"):
        attempt(results, scenario(), "mian")
    assert results.count() == 1


def test_a_build_that_is_not_there_ends_the_run_and_is_stored_with_its_reason(results: ResultStore, tmp_path: Path) -> None:
    ended = attempt(results, scenario(tmp_path / "nowhere"))
    assert ended.exit_status == BuildError.exit_status
    assert (ended.record.state, ended.comparison) == (RunState.NOT_INSTALLED, None)
    stored = results.get_run(ended.record.run_id)
    assert stored == ended.record
    assert "nowhere" in stored.failure
    assert ended.notice.what_came == "not installed"
