"""Pages of results: filters, hostile texts, rejected requests, and the security headers of every answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape

import pytest
from web_visitor import WebVisitor

from fabricated_runs import HOSTILE, fabricated_run
from ringroad_lab.comparison import compare_labels, compare_runs
from ringroad_lab.record import RunRecord, RunState
from ringroad_lab.store.result_store import ResultStore

DAY_S = 86_400.0


@pytest.fixture
def runs(store: ResultStore) -> dict[str, RunRecord]:
    """Runs that differ in all values of the filters."""
    found = {
        "old": fabricated_run(
            seed=1,
            name="P2P_A",
            capacities_fps={"ovs": 2e5},
            versions={"ovs-vswitchd": "3.1.0"},
            labels={"branch": "main"},
            started_at=1.7e9,
        ),
        "new": fabricated_run(
            seed=2,
            name="P2P_A",
            capacities_fps={"ovs": 2e5},
            versions={"ovs-vswitchd": "3.2.0"},
            labels={"branch": "main"},
            started_at=1.7e9 + DAY_S,
        ),
        "other": fabricated_run(
            seed=3,
            name="PVP_B",
            capacities_fps={"ringroad": 5e6},
            labels={"branch": "fix-3.2"},
            state=RunState.FAILED,
            started_at=1.7e9 + 2 * DAY_S,
        ),
    }
    store.add_runs(list(found.values()))
    return found


def listed(text: str) -> set[str]:
    """Return the ids of the runs in a list."""
    return set(re.findall(r'name="candidate" value="([^"]+)"', text))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"old", "new", "other"}),
        ("?scenario=&dut=&version=&state=&verdict=&since=&until=", {"old", "new", "other"}),
        ("?scenario=P2P_A", {"old", "new"}),
        ("?dut=ringroad", {"other"}),
        ("?version=3.2", {"new", "other"}),
        ("?state=failed", {"other"}),
        ("?verdict=pass", set()),
        # The first starts at 2023-11-14 22:13:20 UTC.
        ("?since=2023-11-15", {"new", "other"}),
        ("?until=2023-11-14", {"old"}),
        ("?since=2023-11-15&until=2023-11-15", {"new"}),
        ("?scenario=P2P_A&version=3.1", {"old"}),
        ("?scenario=%25", set()),
        ("?version=%25", set()),
        ("?version=_.2", set()),
        ("?scenario=' OR 1=1 --", set()),
        ("?dut=x'); DROP TABLE run; --", set()),
        ("?version=' UNION SELECT digest FROM api_token --", set()),
        ("?version=\\", set()),
    ],
)
def test_filters_select_matching_runs(tester: WebVisitor, runs: dict[str, RunRecord], query: str, expected: set[str]) -> None:
    response = tester.get("/runs" + query)

    assert response.status_code == 200
    assert listed(response.text) == {runs[name].run_id for name in expected}


@pytest.mark.parametrize(
    "query",
    [
        "page=0",
        "page=-1",
        "page=1e9",
        "page=99999999999999999999999999",
        "page_runs=1000000",
        "state=none",
        "verdict=<script>",
        "finding=<script>",
        "since=yesterday",
        "since=0001-01-01",
        "until=9999-12-31",
        "since=2023-02-30",
        "scenario=" + "x" * 201,
        "version=%00",
        "dut=a%0ab",
        "unknown=1",
    ],
)
@pytest.mark.parametrize("path", ["/runs", "/api/runs"])
def test_invalid_filters_are_refused_with_the_reason(tester: WebVisitor, path: str, query: str) -> None:
    response = tester.get(f"{path}?{query}")

    assert response.status_code == 400
    assert query.partition("=")[0] in response.text
    assert "<script>" not in response.text


@pytest.mark.parametrize(
    "query", ["min_change_percent=-1", "min_change_percent=nan", "min_change_percent=many", "metric=" + "x" * 201, "unknown=1"]
)
@pytest.mark.parametrize("path", ["/trends", "/api/trend"])
def test_invalid_trend_queries_are_refused(tester: WebVisitor, path: str, query: str) -> None:
    assert tester.get(f"{path}?{query}").status_code == 400


def test_pages_of_a_list_have_all_runs_once_and_keep_the_filter(tester: WebVisitor, store: ResultStore) -> None:
    records = [fabricated_run(seed=seed, name="MANY", capacities_fps={"ovs": 2e5}, frames=["64"], repetitions=1) for seed in range(5)]
    store.add_runs([*records, fabricated_run(seed=99, name="OTHER")])
    found: list[str] = []
    path: str | None = "/runs?scenario=MANY&page_runs=2"
    while path:
        text = tester.get(path).text
        found += sorted(listed(text))
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = following[1].replace("&amp;", "&") if following else None

    assert sorted(found) == sorted(record.run_id for record in records)


@pytest.mark.parametrize(
    "path",
    [
        "/runs/none",
        "/runs/" + "x" * 65,
        "/runs/%00",
        "/runs/..%2f..",
        "/runs/'--",
        "/api/runs/none",
        "/runs/none/report.html",
        "/audit?page=2",
        "/nothing",
    ],
)
def test_missing_pages_are_reported(tester: WebVisitor, path: str) -> None:
    assert tester.get(path).status_code == 404


def test_hostile_texts_are_escaped(tester: WebVisitor, store: ResultStore) -> None:
    record = fabricated_run(
        name=HOSTILE,
        capacities_fps={HOSTILE: 1e6},
        labels={HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        facts={HOSTILE: {HOSTILE: HOSTILE}},
        supersedes="javascript:alert(1)//",
    )
    again = fabricated_run(name=HOSTILE, capacities_fps={HOSTILE: 1e6}, seed=2)
    store.add_runs([record, again])
    tester.review(record.run_id, verdict="fail", comment=HOSTILE, bug_link="https://bugs.example/?<script>alert(1)</script>'\"")
    paths = ["/runs", f"/runs/{record.run_id}", "/trends", "/audit", f"/compare?baseline={record.run_id}&candidate={again.run_id}"]
    for path in [*paths, "/compare?baseline=<script>alert(1)</script>&candidate=x", "/login?next=<script>alert(1)</script>"]:
        text = tester.get(path).text
        # Only chart data is allowed in a script element, and browsers do not run it.
        scripts = re.findall(r"<script([^>]*)>", text)
        assert all("src=" in script or 'type="application/json"' in script for script in scripts), path
        assert "alert(1)</script>" not in text, path
        assert 'href="javascript:' not in text, path
        assert "{{7*7}}" in text or HOSTILE not in text, path
    assert "&lt;script&gt;alert(" in tester.get("/runs").text


def test_the_data_of_a_chart_cannot_leave_its_element(tester: WebVisitor, store: ResultStore) -> None:
    record = fabricated_run(name="</script><script>alert(1)</script>", capacities_fps={"ovs": 1e6})
    store.add_run(record)

    chart = re.search(r'<script type="application/json">(.*?)</script>', tester.get("/trends").text)

    assert chart
    assert json.loads(chart[1])["points"][0]["path"] == f"/runs/{record.run_id}"


def test_findings_of_a_comparison_are_in_lists_and_on_the_page_of_the_run(tester: WebVisitor, store: ResultStore) -> None:
    old = fabricated_run(seed=1, name="OLD", capacities_fps={"ovs": 1e6, HOSTILE: 1e6}, repetitions=12)
    new = fabricated_run(seed=2, name="NEW", capacities_fps={"ovs": 0.8e6}, repetitions=12)
    store.add_runs([old, new])
    store.keep_comparison(old.run_id, new.run_id, compare_runs(old, new))
    store.keep_comparison(old.run_id, old.run_id, compare_labels(old, "ovs", HOSTILE))

    for path in ("/runs?finding=regression", f"/runs/{new.run_id}"):
        text = tester.get(path).text
        assert re.search(r'3 <span class="chip bad">▼ regression</span>', text), path
        link = re.search(r'href="(/compare[^"]*)">OLD \(', text)
        assert link, path
        assert tester.get(link[1].replace("&amp;", "&")).status_code == 200
    assert listed(tester.get("/runs?finding=regression").text) == {new.run_id}
    within = tester.get(f"/runs/{old.run_id}").text
    assert "<script>alert" not in within
    link = re.search(r'href="(/compare[^"]*)">ovs</a>', within)
    assert link
    assert tester.get(link[1].replace("&amp;", "&")).status_code == 200
    (found,) = tester.get("/api/runs?finding=regression").json()["runs"]
    assert found["comparisons"][0]["counts"]["regression"] == 3


def test_a_trend_states_which_steps_it_can_detect(tester: WebVisitor, store: ResultStore) -> None:
    records = [fabricated_run(seed=night, capacities_fps={"ovs": 2e5}, started_at=1.7e9 + 86_400 * night) for night in range(14)]
    store.add_runs(records[:11])
    assert "no step can be detected" in tester.get("/trends").text

    store.add_runs(records[11:])
    text = " ".join(tester.get("/trends").text.split())

    assert re.search(r"A step of [34]\.\d % or more in the middle of these runs would have been detected in nine of ten cases\.", text)
    assert "With this noise a step of 5 % needs 12 runs, a step of 10 % needs 12 runs, a step of 20 % needs 12 runs." in text


def test_invalid_times_of_a_run_do_not_break_the_pages(tester: WebVisitor, store: ResultStore) -> None:
    record = fabricated_run().model_copy(update={"started_at": 253_402_300_799.0, "ended_at": 0.0})
    store.add_run(record)

    for path in ("/runs", f"/runs/{record.run_id}", "/trends"):
        assert tester.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/runs", "/login", "/nothing", "/runs?page=0", "/static/lab.css", "/static/plotly.min.js", "/api/runs"])
def test_every_answer_has_security_headers(tester: WebVisitor, path: str) -> None:
    headers = tester.get(path).headers

    assert "script-src 'self';" in headers["content-security-policy"]
    assert "unsafe-inline" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"


def test_failures_have_security_headers(
    make_visitor: Callable[..., WebVisitor], store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = make_visitor(public_read=True)
    visitor.client = type(visitor.client)(visitor.client.app, raise_server_exceptions=False)
    monkeypatch.setattr(store, "count", lambda _: 1 // 0)

    response = visitor.get("/runs")

    assert response.status_code == 500
    assert "ZeroDivisionError" not in response.text
    assert "script-src 'self';" in response.headers["content-security-policy"]
    assert response.headers["cache-control"] == "no-store"


def test_only_the_static_files_of_the_page_are_served(visitor: WebVisitor) -> None:
    assert visitor.get("/static/lab.css").status_code == 200
    assert visitor.get("/static/../site.py").status_code == 404
    assert visitor.get("/static/%2e%2e/site.py").status_code == 404


def test_a_report_is_sandboxed(tester: WebVisitor, run: RunRecord) -> None:
    response = tester.get(f"/runs/{run.run_id}/report.html")

    assert run.name in response.text
    policy = response.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize(
    ("form", "begin"),
    [("html", "<!doctype html>"), ("markdown", "# "), ("csv", "run_id"), ("json", "{"), ("junit", "<?xml")],
)
def test_reports_can_be_downloaded(tester: WebVisitor, run: RunRecord, form: str, begin: str) -> None:
    response = tester.get(f"/runs/{run.run_id}/reports/{form}")

    assert response.text.lower().startswith(begin)
    assert response.headers["content-disposition"].startswith(f'attachment; filename="{run.run_id}.')


def test_a_downloaded_record_equals_the_stored_one(tester: WebVisitor, run: RunRecord) -> None:
    assert RunRecord.model_validate_json(tester.get(f"/runs/{run.run_id}/reports/json").text) == run


def test_a_report_can_have_a_baseline(tester: WebVisitor, runs: dict[str, RunRecord]) -> None:
    old, new, other = (runs[name].run_id for name in ("old", "new", "other"))

    assert "3.1.0" in tester.get(f"/runs/{new}/report.html?baseline={old}").text
    at_layer_1 = tester.get(f"/runs/{new}/report.html?baseline={old}&rates=sum-l1").text
    assert "Throughput sum L1, 64 bytes, P2P" in at_layer_1
    assert "Throughput sum L1, Mbit/s" in at_layer_1
    assert tester.get(f"/runs/{new}/report.html?rates=sum-l7").status_code == 400
    assert tester.get(f"/runs/{new}/report.html?baseline={other}").status_code == 400
    assert tester.get(f"/runs/{new}/report.html?baseline=none").status_code == 404


def test_a_comparison_shows_results_and_other_differences(tester: WebVisitor, runs: dict[str, RunRecord]) -> None:
    response = tester.get(f"/compare?baseline={runs['old'].run_id[:8]}&candidate={runs['new'].run_id}")

    assert response.status_code == 200
    assert "n = 3" in response.text
    assert "version of ovs-vswitchd" in response.text


def test_two_devices_of_one_run_are_compared(tester: WebVisitor, run: RunRecord) -> None:
    query = f"baseline={run.run_id}&candidate={run.run_id}&baseline_dut=ovs&candidate_dut=ovs-dpdk"

    page = tester.get(f"/compare?{query}").text
    assert "against ovs<" in page
    (link,) = re.findall(r'href="(/compare[^"]*)">Mbit/s at layer 1', page)
    at_layer_1 = tester.get(unescape(link)).text
    assert "Throughput sum L1" in at_layer_1
    assert "frames/s of one direction</a>" in at_layer_1
    assert tester.get(f"/compare?{query}x").status_code == 400


@pytest.mark.parametrize(
    "query",
    ["baseline=OLD&candidate=OLD", "baseline=OLD&candidate=OTHER", "baseline=none&candidate=OLD", "baseline=last-stable&candidate=OLD"],
)
def test_incomparable_runs_are_reported(tester: WebVisitor, runs: dict[str, RunRecord], store: ResultStore, query: str) -> None:
    query = query.replace("OLD", runs["old"].run_id).replace("OTHER", runs["other"].run_id)

    for path in (f"/compare?{query}", f"/api/comparison?{query}"):
        response = tester.get(path)
        assert response.status_code == 400
        assert store.location not in response.text


def test_an_empty_store_has_pages(tester: WebVisitor) -> None:
    for path in ("/", "/runs", "/trends", "/compare", "/audit"):
        response = tester.client.get(path, follow_redirects=True)
        assert response.status_code == 200
    assert "There are no runs yet" in tester.get("/runs").text


def test_a_running_run_is_shown(tester: WebVisitor, store: ResultStore) -> None:
    record = fabricated_run()
    store.begin_run(record.model_copy(update={"measurements": ()}))

    assert "not ended" in tester.get("/runs").text
    assert "not ended" in tester.get(f"/runs/{record.run_id}").text


def test_a_failing_store_is_reported_without_its_location(
    make_visitor: Callable[..., WebVisitor], store: ResultStore, run: RunRecord
) -> None:
    visitor = make_visitor(public_read=True)
    with store.writing() as database:
        database.connection().exec_driver_sql("DROP TABLE run_label")

    response = visitor.get("/runs")

    assert response.status_code == 503
    assert store.location not in response.text
