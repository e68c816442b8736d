"""The API: the same results as JSON, and uploaded runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from httpx import Response
from web_visitor import WebVisitor

from fabricated_runs import fabricated_run
from ringroad_lab.record import RunRecord
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.audit import entries
from ringroad_lab.web.tokens import add_token, remove_token


@pytest.fixture
def token(store: ResultStore) -> str:
    """A token in the store."""
    return add_token(store, "ci")


def send(visitor: WebVisitor, token: str, body: str | bytes) -> Response:
    """Upload a record."""
    response: Response = visitor.client.post("/api/runs", content=body, headers={"Authorization": f"Bearer {token}"})
    return response


@pytest.mark.parametrize("path", ["/api/runs", "/api/runs/RUN", "/api/runs/RUN/review", "/api/trend", "/api/comparison"])
def test_reading_needs_login_or_token(visitor: WebVisitor, run: RunRecord, path: str) -> None:
    response = visitor.get(path.replace("RUN", run.run_id))

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert "token" in response.json()["errors"][0]


def test_a_token_allows_reading(visitor: WebVisitor, run: RunRecord, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}

    runs = visitor.client.get("/api/runs?dut=ovs", headers=headers).json()
    assert (runs["total"], [one["run_id"] for one in runs["runs"]]) == (1, [run.run_id])
    record = visitor.client.get(f"/api/runs/{run.run_id}", headers=headers)
    assert RunRecord.model_validate_json(record.text) == run


def test_a_token_opens_no_page(visitor: WebVisitor, token: str) -> None:
    assert visitor.client.get("/runs", headers={"Authorization": f"Bearer {token}"}).status_code == 303


def test_a_run_is_uploaded_once(visitor: WebVisitor, store: ResultStore, token: str) -> None:
    record = fabricated_run()

    response = send(visitor, token, record.model_dump_json())
    assert response.status_code == 201
    assert response.headers["location"] == f"/api/runs/{record.run_id}"
    assert store.get_run(record.run_id) == record

    assert send(visitor, token, record.model_dump_json()).status_code == 200
    other = record.model_copy(update={"name": "OTHER"})
    assert send(visitor, token, other.model_dump_json()).status_code == 409
    assert store.get_run(record.run_id) == record
    with store.reading() as database:
        found, _ = entries(database, run_id=record.run_id, limit=10)
        assert [(entry.actor, entry.action) for entry in found] == [("token ci", "run imported")]


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", "null", "\ud800".encode("utf-8", "surrogatepass"), b"\xff\xfe", "[" * 100_000])
def test_an_invalid_record_is_refused(visitor: WebVisitor, store: ResultStore, token: str, body: str | bytes) -> None:
    response = send(visitor, token, body)

    assert response.status_code == 400
    assert response.json()["errors"]
    assert store.count() == 0


@pytest.mark.parametrize(
    "values",
    [
        {"run_id": "../x"},
        {"run_id": ""},
        {"schema_version": 2},
        {"started_at": "NaN"},
        {"started_at": 1e300},
        {"ended_at": -1},
        {"unknown": 1},
        {"scenario": {"limit": math.inf}},
        {"measurements": [{**json.loads(fabricated_run().measurements[0].model_dump_json()), "number": 10**30}]},
    ],
    ids=str,
)
def test_a_record_with_wrong_values_is_refused(visitor: WebVisitor, store: ResultStore, token: str, values: dict[str, object]) -> None:
    response = send(visitor, token, json.dumps({**json.loads(fabricated_run().model_dump_json()), **values}))

    assert response.status_code == 400
    assert response.json()["errors"]
    assert store.count() == 0


def test_a_login_does_not_allow_uploading_runs(tester: WebVisitor, store: ResultStore) -> None:
    assert tester.client.post("/api/runs", content=fabricated_run().model_dump_json()).status_code == 401
    assert store.count() == 0


@pytest.mark.parametrize("spoil", [lambda token: token[:-1], lambda token: token + "x", lambda _: "", lambda _: "é' OR 1=1"])
def test_a_wrong_token_is_refused(visitor: WebVisitor, store: ResultStore, token: str, spoil: Callable[[str], str]) -> None:
    headers = {"Authorization": f"Bearer {spoil(token)}".encode()}

    assert visitor.client.post("/api/runs", content=fabricated_run().model_dump_json(), headers=headers).status_code == 401
    assert store.count() == 0


def test_a_removed_token_is_refused(visitor: WebVisitor, store: ResultStore, token: str) -> None:
    remove_token(store, "ci")

    assert send(visitor, token, fabricated_run().model_dump_json()).status_code == 401


def test_a_trend_has_its_change_point(tester: WebVisitor, store: ResultStore) -> None:
    records = [
        fabricated_run(
            seed=night,
            capacities_fps={"ovs": 2e5 * (0.9 if night >= 12 else 1)},
            frames=["64"],
            started_at=1.7e9 + 86_400 * night,
            latency=False,
        )
        for night in range(24)
    ]
    store.add_runs(records)
    subject = "scenario=P2P_FABRICATED&topology=P2P&dut=ovs&method=throughput&frame=64&metric=throughput_fps"

    trend = tester.get(f"/api/trend?{subject}").json()

    assert [point["run_id"] for point in trend["points"]] == [record.run_id for record in records]
    assert [(step["run_id"], step["verdict"]) for step in trend["steps"]] == [(records[12].run_id, "regression")]
    assert 0.03 <= trend["visible"]["smallest"] <= 0.06
    assert trend["visible"]["needed_points"]["0.1"] == 12
    assert tester.get(f"/api/trend?{subject}&min_change_percent=20").json()["steps"] == []
    assert tester.get(f"/api/trend?{subject}x").status_code == 404
    assert tester.get("/api/trend?scenario=P2P_FABRICATED").status_code == 400


def test_the_review_of_a_run_is_returned(tester: WebVisitor, run: RunRecord) -> None:
    tester.review(run.run_id, verdict="pass", comment="fine")

    review = tester.get(f"/api/runs/{run.run_id}/review").json()

    assert (review["verdict"], review["comment"], review["tester"]) == ("pass", "fine", "tester")


def test_a_comparison_is_returned(tester: WebVisitor, store: ResultStore) -> None:
    old, new = fabricated_run(seed=1), fabricated_run(seed=2)
    store.add_runs([old, new])

    comparison = tester.get(f"/api/comparison?baseline={old.run_id}&candidate={new.run_id}").json()

    assert {row["key"]["dut"] for row in comparison["rows"]} == {dut.label for dut in old.duts}


def test_the_api_describes_itself(visitor: WebVisitor) -> None:
    assert set(visitor.get("/api/openapi.json").json()["paths"]) >= {"/api/runs", "/api/runs/{run_id}", "/api/trend", "/api/comparison"}
