"""Run records as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabricated_runs import HOSTILE, fabricated_run
from ringroad_lab.errors import StoreError
from ringroad_lab.store.exchange import read_record_file, read_records, write_records


@pytest.mark.parametrize("count", [1, 2])
def test_records_are_read_back_unchanged(count: int) -> None:
    records = tuple(fabricated_run(name=HOSTILE, seed=seed) for seed in range(count))
    assert read_records(write_records(records), "test") == records


def test_a_record_of_version_0_1_0_is_read() -> None:
    (record,) = read_record_file(Path(__file__).parent / "record_of_version_0_1_0.json")
    assert (record.name, record.lab_version) == ("RUN_OF_0_1_0", "0.1.0")
    assert record.measurements[0].outcome.metrics["throughput_fps"].value > 0


RIGHT = json.loads(fabricated_run().model_dump_json())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "invalid JSON"),
        (b"\xff\xfe\x00", "invalid JSON"),
        ("[" * 100_000, "invalid JSON"),
        ("7", "not the record of a run"),
        ("{}", "not the record of a run"),
        ("[[]]", "not the record of a run"),
        (json.dumps(RIGHT | {"schema_version": 2}), "newer ringroad-lab"),
        (json.dumps(RIGHT | {"unknown": 1}), "unknown: Extra inputs"),
        (json.dumps(RIGHT | {"state": "exploded"}), "state: "),
        (json.dumps([RIGHT, RIGHT | {"duts": 3}]), "1.duts: "),
    ],
)
def test_an_invalid_record_is_rejected(content: str | bytes, expected: str) -> None:
    with pytest.raises(StoreError, match=expected) as error:
        read_records(content, "results.json")
    assert str(error.value).startswith("results.json: ")
    assert len(str(error.value)) < 1000


def test_an_absent_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        read_record_file(tmp_path / "nowhere.json")
