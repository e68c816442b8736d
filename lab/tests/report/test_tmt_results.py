"""Results of a run as custom results for tmt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fabricated_runs import EPOCH, HOSTILE, fabricated_run, fabricated_throughput
from ringroad_lab.comparison import RunComparison, compare_runs
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.record import MeasurementStatus, RunRecord, RunState
from ringroad_lab.report.tmt_results import TmtReporter


def run(capacity_fps: float, **more: Any) -> RunRecord:  # noqa: ANN401
    more = {"seed": int(capacity_fps) % 1000, "frames": ("64", "512"), "repetitions": 12, "latency": False, **more}
    return fabricated_run(name="NIGHTLY", capacities_fps={"ovs": capacity_fps}, **more)


def results(record: RunRecord, comparison: RunComparison | None = None) -> dict[str, str]:
    """Return the outcome of each result, and of each subresult by both names."""
    found = {}
    for result in json.loads(TmtReporter().render(record, comparison)):
        found[result["name"]] = result["result"]
        found |= {result["name"] + part["name"]: part["result"] for part in result.get("subresult", ())}
    return found


OLD = run(1_000_001)
SUBJECTS = ("/P2P/ovs", "/P2P/ovs/throughput/64", "/P2P/ovs/throughput/512")


@pytest.mark.parametrize(
    ("capacity_fps", "repetitions", "result"),
    [(800_002, 12, "fail"), (1_250_002, 12, "pass"), (1_000_001, 12, "pass"), (1_000_003, 2, "warn")],
)
def test_verdicts_are_results(capacity_fps: float, repetitions: int, result: str) -> None:
    record = run(capacity_fps, repetitions=repetitions, started_at=EPOCH + 1e6)
    assert results(record, compare_runs(OLD, record)) == dict.fromkeys(SUBJECTS, result)


def test_an_invalid_measurement_is_an_error_of_its_subresult_and_of_the_device() -> None:
    broken = fabricated_throughput(0, "ovs", parse_frame_mix("64"), 1.0, status=MeasurementStatus.INVALID, reasons=("the device died",))
    fine = [m for m in OLD.measurements if m.frame.name == "512"]
    record = OLD.model_copy(update={"measurements": (broken, *fine)})
    assert results(record) == {SUBJECTS[0]: "error", SUBJECTS[1]: "error", SUBJECTS[2]: "pass"}
    (result,) = json.loads(TmtReporter().render(record, None))
    assert result["subresult"][0]["note"] == ["the device died"]
    assert result["duration"] == "00:01:38"
    assert result["ids"] == {"ringroad-lab-run": record.run_id}


def test_an_unfinished_run_reports_its_failure() -> None:
    failed = OLD.model_copy(update={"state": RunState.FAILED, "failure": "out of memory", "measurements": ()})
    assert json.loads(TmtReporter().render(failed, None)) == [{"name": "/", "result": "error", "note": ["out of memory"]}]


def test_untrusted_texts_cannot_break_the_file() -> None:
    record = fabricated_run(capacities_fps={f"{HOSTILE}\x00\x85 /x": 1e6}, latency=False)
    text = TmtReporter().render(record, None)
    assert all(character.isprintable() or character == "\n" for character in text)
    for name in results(record):
        assert not set(name) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-/")
