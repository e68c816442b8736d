"""Validation of run records: they contain only values that can be calculated with, stored and shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from fabricated_runs import fabricated_run
from ringroad_lab.record import DutRecord, RunRecord

VALID = fabricated_run(link_bps=1e10).model_dump_json()


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "-Infinity", "1e300"])
@pytest.mark.parametrize(
    "place",
    [
        "started_at",
        "ended_at",
        "link_bps",
        "ceilings.0.ceiling_fps",
        "ceilings.0.clock_error",
        "noise_floors.0.ratio_interval.1",
        "series.0.points.0.0",
        "series.0.points.0.1",
        "measurements.0.started_at",
        "measurements.0.elapsed_s",
        "measurements.0.outcome.metrics.throughput_fps.value",
        "measurements.0.outcome.curves.0.points.0.0",
        "measurements.0.outcome.curves.0.points.0.1",
        "measurements.0.trials.0.started_at",
        "measurements.0.trials.0.request.load.rate_fps",
        "measurements.0.trials.0.directions.0.latency.mean_ns",
    ],
)
def test_a_figure_that_cannot_be_measured_is_rejected(place: str, figure: str) -> None:
    with pytest.raises(ValidationError) as error:
        RunRecord.model_validate_json(with_figure(place, figure))
    assert [".".join(map(str, problem["loc"])) for problem in error.value.errors()] == [place]


@pytest.mark.parametrize(
    ("place", "figure"),
    [
        ("started_at", "-1"),
        ("noise_floors.0.ratio_interval.0", "0"),
        ("noise_floors.0.ratio_interval.0", "-1"),
        ("measurements.0.number", str(2**63)),
        ("measurements.0.frame.parts.0.0", "-20"),
        ("measurements.0.frame.parts.0.1", "0"),
        ("measurements.0.trials.0.directions.0.sent_frames", "1" + 400 * "0"),
    ],
)
def test_a_figure_that_cannot_be_calculated_with_is_rejected(place: str, figure: str) -> None:
    with pytest.raises(ValidationError, match=place):
        RunRecord.model_validate_json(with_figure(place, figure))


@pytest.mark.parametrize("figure", ["NaN", "Infinity", '[1, {"a": -Infinity}]'])
def test_non_json_numbers_are_rejected_also_in_fields_without_a_schema(figure: str) -> None:
    for text in (f'"scenario": {{"limit": {figure}, ', f'"settings": {{"limit": {figure}, '):
        field = text.partition(": {")[0]
        record = VALID.replace(f"{field}:{{", text, 1).replace(", }", "}")
        assert figure in record
        with pytest.raises(ValidationError, match="JSON compliant"):
            RunRecord.model_validate_json(record)


def with_figure(place: str, figure: str) -> str:
    """Return a record with the value at `place` replaced."""
    record = json.loads(VALID)
    parent: Any = record
    *way, last = (int(step) if step.isdecimal() else step for step in place.split("."))
    for step in way:
        parent = parent[step]
    assert parent[last] is not None
    parent[last] = "<figure>"
    return json.dumps(record).replace('"<figure>"', figure)


def test_a_build_is_distinguished_from_another_and_from_itself_after_a_change() -> None:
    libraries = {"/lib/librte_eal.so.23": "b" * 64, "/lib/librte_net.so.23": "c" * 64}
    before = DutRecord(label="new", driver="ovs", build="prefix /opt/ovs", files={"/opt/ovs/sbin/ovs-vswitchd": "a" * 64, **libraries})
    identity = before.identity()
    assert identity["build"] == "prefix /opt/ovs"
    assert identity["sha256 of /opt/ovs/sbin/ovs-vswitchd"] == "a" * 64
    assert identity["libraries of the build"].startswith("2, sha256 of their sums ")
    later = before.model_copy(update={"files": {**before.files, "/lib/librte_eal.so.23": "d" * 64}})
    assert later.identity()["libraries of the build"] != identity["libraries of the build"]
    assert before.changed_files(later) == "/lib/librte_eal.so.23"
    assert before.changed_files(before) == ""
