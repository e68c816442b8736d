"""JUnit XML of runs and comparisons, read by another parser."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

import junitparser
import pytest

from fabricated_runs import EPOCH, HOSTILE, fabricated_run, fabricated_throughput
from ringroad_lab.comparison import compare_labels, compare_runs
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.record import LogExcerpt, MeasurementStatus, RunRecord, RunState
from ringroad_lab.report.junit import JunitReporter, comparisons_as_junit

# From junit-10.xsd of Jenkins' xunit plugin: allowed attributes, required attributes, and allowed child elements.
SCHEMA = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set(), {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname", "id"},
        {"name", "tests", "failures", "errors"},
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, {"name", "value"}, set()),
    "testcase": ({"name", "time", "classname"}, {"name"}, {"skipped", "error", "failure", "system-out", "system-err"}),
    "failure": ({"type", "message"}, set(), set()),
    "error": ({"type", "message"}, set(), set()),
    "skipped": ({"type", "message"}, set(), set()),
    "system-out": (set(), set(), set()),
}


def fits_schema(element: ElementTree.Element) -> bool:
    """Whether the schema allows an element and all its children."""
    allowed, needed, inside = SCHEMA[element.tag]
    attributes = set(element.attrib)
    return needed <= attributes <= allowed and all(child.tag in inside and fits_schema(child) for child in element)


def read(text: str) -> junitparser.TestSuite:
    """Read a file with another parser; check its counts."""
    assert fits_schema(ElementTree.fromstring(text.encode()))
    (suite,) = junitparser.JUnitXml.fromstring(text.encode())
    counts = (suite.tests, suite.failures, suite.errors, suite.skipped)
    suite.update_statistics()  # type: ignore[no-untyped-call]
    assert counts == (suite.tests, suite.failures, suite.errors, suite.skipped)
    return suite


def results(suite: Iterable[junitparser.TestCase]) -> dict[str, list[str]]:
    """Return the results of each case, by its class and name."""
    return {f"{case.classname}: {case.name}": [type(result).__name__ for result in case.result] for case in suite}


def run(capacity_fps: float, name: str = "NIGHTLY", **more: object) -> RunRecord:
    """Return a run of one device at one size, twelve times."""
    more = {"seed": int(capacity_fps) % 1000, "frames": ["64"], "repetitions": 12, "latency": False, **more}
    return fabricated_run(name=name, capacities_fps={"ovs": capacity_fps}, **more)  # type: ignore[arg-type]


OLD = run(1_000_001)
SLOWER = run(800_002, started_at=EPOCH + 1e6)
CASE = "NIGHTLY.P2P.ovs: throughput, 64, throughput_fps"


def test_a_regression_is_a_failure_with_its_figures() -> None:
    suite = read(JunitReporter().render(SLOWER, compare_runs(OLD, SLOWER)))

    assert results(suite) == {CASE: ["Failure"]}
    (case,) = suite
    (failure,) = case.result
    assert "regression: throughput_fps \u2212" in failure.message
    assert "median of 12" in failure.text
    assert "\ufffd" not in failure.message + failure.text
    assert "interval of the change, 95 %" in case.system_out
    assert case.time == pytest.approx(12 * 7.5)
    properties = suite.properties()  # type: ignore[no-untyped-call]
    assert {each.name: each.value for each in properties}["run"] == SLOWER.run_id


def test_an_improvement_passes() -> None:
    assert results(read(JunitReporter().render(OLD, compare_runs(SLOWER, OLD)))) == {CASE: []}


@pytest.mark.parametrize(("fails", "result"), [(False, "Skipped"), (True, "Failure")])
def test_an_inconclusive_comparison_is_skipped_unless_it_must_fail(fails: bool, result: str) -> None:
    short = run(1_000_003, repetitions=2)
    comparison = compare_runs(OLD, short)

    assert results(read(JunitReporter().render(short, comparison, fails_on_inconclusive=fails))) == {CASE: [result]}
    (case,) = read(comparisons_as_junit([comparison], fails_on_inconclusive=fails))
    assert [type(each).__name__ for each in case.result] == [result]


def test_an_invalid_measurement_is_an_error_with_its_reason() -> None:
    frame = parse_frame_mix("64")
    broken = fabricated_throughput(0, "ovs", frame, 1.0, status=MeasurementStatus.INVALID, reasons=("the device <died>",))
    record = OLD.model_copy(update={"measurements": (broken,)})

    for text in (JunitReporter().render(record, None), JunitReporter().render(record, compare_runs(OLD, record))):
        (case,) = read(text)
        (error,) = case.result
        assert isinstance(error, junitparser.Error)
        assert "the device <died>" in error.message


def test_a_failed_run_has_a_case_that_reports_the_failure() -> None:
    failed = OLD.model_copy(update={"state": RunState.FAILED, "failure": "out of memory"})
    stopped = OLD.model_copy(update={"state": RunState.STOPPED})

    assert results(read(JunitReporter().render(failed, None))) == {"NIGHTLY: the run": ["Error"], CASE: []}
    assert results(read(JunitReporter().render(stopped, None)))["NIGHTLY: the run"] == ["Skipped"]


def test_a_build_that_was_not_installed_has_its_own_case_with_its_log() -> None:
    log = LogExcerpt(source="installing the build", text="compiling")
    update = {"state": RunState.NOT_INSTALLED, "failure": "no rule to make switch", "measurements": (), "logs": (log,)}
    suite = read(JunitReporter().render(run(1e6).model_copy(update=update), None))
    assert results(suite) == {"NIGHTLY: installing the build": ["Error"]}
    (case,) = suite
    (error,) = case.result
    assert (error.message, error.text) == ("not installed: no rule to make switch", "compiling")


def test_a_comparison_of_devices_has_their_headline_metrics() -> None:
    record = fabricated_run(capacities_fps={"ovs": 1e6, "ringroad": 2e6}, repetitions=12)

    suite = read(comparisons_as_junit([compare_labels(record, "ovs", "ringroad")]))

    assert suite.name == "ringroad compared with ovs"
    assert [case.name for case in suite][:3] == [f"throughput, {size}, throughput_fps" for size in (64, 512, 1518)]
    assert suite.failures == 0


def test_untrusted_texts_cannot_break_the_file() -> None:
    name = f"{HOSTILE}\x00\x1b[31m]]>\ud800.x"
    record = run(1_000_001, name=name, labels={"<a>": "\x01"}).model_copy(update={"started_at": 253_402_300_799.0})

    (case,) = read(JunitReporter().render(record, None))

    assert case.classname.count(".") == 2
    assert HOSTILE in case.classname
