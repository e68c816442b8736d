"""A device is called the highest only if the samples decide it and the trials were undisturbed."""

from __future__ import annotations

import pytest

from fabricated_runs import disturbed, fabricated_run
from ringroad_lab.comparison import compare_labels, compare_runs
from ringroad_lab.record import GIVEN_UP, MeasurementStatus, Outcome, RunRecord
from ringroad_lab.report.figures import metric_title, overview, sentence_case, warnings
from ringroad_lab.report.html import HtmlReporter
from ringroad_lab.report.markdown import MarkdownReporter, comparison_blocks


def two(fast_fps: float = 2e6, *, repetitions: int = 8, spread: float = 0.005) -> RunRecord:
    return fabricated_run(
        capacities_fps={"fast": fast_fps, "slow": 1e6}, frames=["64"], repetitions=repetitions, spread=spread, latency=False, link_bps=None
    )


def test_an_order_that_the_samples_decide_is_reported_with_its_interval() -> None:
    sentence = overview(two(), None)[1]
    assert sentence.startswith("At 64 bytes, fast has the highest throughput, 1.9")
    assert "slow is next with " in sentence
    assert "the interval of the difference (95 %) is +9" in sentence


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (two(repetitions=5), "5 samples; an interval of 95 % needs 6"),
        (two(1.002e6), "compared with"),
        (two(1.1e6, spread=0.3), "more samples of each would decide it"),
    ],
    ids=["few samples", "no difference", "wide spread"],
)
def test_an_order_that_the_samples_leave_open_is_not_reported(record: RunRecord, why: str) -> None:
    sentence = overview(record, None)[1]
    assert sentence.startswith("At 64 bytes, the order of the devices by throughput is not decided (")
    assert "highest" not in sentence
    assert why in sentence


@pytest.mark.parametrize("dut", ["fast", "slow"])
def test_no_order_rests_on_disturbed_trials(dut: str) -> None:
    record = disturbed(two(), dut)
    sentence = overview(record, None)[1]
    assert "the order of the devices by throughput is not decided" in sentence
    assert "others disturbed 8 of 32 trials, and its figures rest on 8 of these; " in sentence
    assert "at worst they took 40% of processor 1 (cc1plus 40%)" in sentence
    (warning,) = warnings(record)
    assert warning.startswith("Others disturbed 8 of ")


def test_a_device_that_was_given_up_comes_first() -> None:
    record = two()
    outcome = Outcome(status=MeasurementStatus.INVALID, reasons=(f"{GIVEN_UP}3 starts failed: no memory\nits log",))
    untried = [m.model_copy(update={"outcome": outcome}) if m.dut == "slow" and m.repetition > 4 else m for m in record.measurements]
    record = record.model_copy(update={"measurements": tuple(untried)})
    sentence = "slow was given up in P2P, and 3 of its measurements were not tried: 3 starts failed: no memory."
    assert overview(record, None)[0] == sentence
    # Before all other sentences, also of the forms that are made from this one.
    assert MarkdownReporter().render(record).split("\n\n")[2] == sentence


def test_repeated_trials_do_not_prevent_an_order() -> None:
    record = disturbed(two(), "slow", is_repeated=True)
    assert "fast has the highest throughput" in overview(record, None)[1]
    assert warnings(record) == []


def test_a_figure_that_the_generator_bounds_is_not_ranked() -> None:
    record = two()
    bound = [
        m.model_copy(update={"outcome": m.outcome.model_copy(update={"status": MeasurementStatus.LOWER_BOUND})}) if m.dut == "slow" else m
        for m in record.measurements
    ]
    sentence = overview(record.model_copy(update={"measurements": tuple(bound)}), None)[1]
    assert "slow at least 9" in sentence
    assert "the generator's ceiling was reached" in sentence
    assert "highest" not in sentence


def test_a_comparison_first_reports_the_disturbances_of_both_sides() -> None:
    record = two()
    comparison = compare_runs(record, disturbed(record, "slow"))
    first = comparison_blocks(comparison)[0]
    assert "what others did during its trials is not recorded." in first
    assert "others disturbed 8 of 32 trials, and its figures rest on 8 of these" in first
    within = compare_labels(disturbed(record, "slow", is_repeated=True), "slow", "fast")
    assert within.disturbances() == (
        "The baseline slow: others disturbed 8 of 16 trials, and all of these were repeated; "
        "at worst they took 40% of processor 1 (cc1plus 40%).",
        "The candidate fast: others disturbed none of 16 trials.",
    )
    page = HtmlReporter().render(disturbed(record, "slow"), comparison)
    assert page.index('class="disturbances"') < page.index('class="compared"')
    assert "40% of processor 1" in page


def test_names_of_other_programs_are_not_markup() -> None:
    record = disturbed(two(), "slow")
    text = record.model_dump_json().replace("cc1plus", "<b>x</b>|`")
    hostile = RunRecord.model_validate_json(text)
    assert "<b>x" not in HtmlReporter().render(hostile, compare_runs(record, hostile))
    assert "<b>x" not in MarkdownReporter().render(hostile)


def three() -> RunRecord:
    capacities = {"fast": 2e6, "alike": 1.999e6, "slow": 1e6}
    return fabricated_run(capacities_fps=capacities, frames=["64"], repetitions=8, spread=0.005, latency=False, link_bps=None)


def test_a_decided_comparison_is_stated_beside_one_that_is_not() -> None:
    sentence = overview(three(), None)[1]
    assert sentence.startswith("At 64 bytes, fast has a higher throughput than slow, and the rest of the order is not decided (fast 1.9")
    assert "fast compared with alike: " in sentence
    assert "fast compared with slow" not in sentence


def test_a_verdict_from_disturbed_trials_does_not_contradict_the_open_order() -> None:
    record = disturbed(two(), "slow")
    comparison = compare_labels(record, "fast", "slow")
    order, compared = overview(record, comparison)[1:]
    assert "the order of the devices by throughput is not decided" in order
    assert compared.startswith("Compared with fast: 1 regression.")
    assert compared.endswith("Some of the compared figures rest on disturbed trials, so other programs may have caused a difference.")
    quiet = overview(two(), compare_labels(two(), "fast", "slow"))[2]
    assert "disturbed" not in quiet


def test_abbreviations_of_the_rfcs_are_written_as_there() -> None:
    assert [metric_title(name) for name in ("frmol_fps", "mfr_fps", "mfr_left_to_right_fps", "tcp_throughput_bps")] == [
        "FRMOL",
        "MFR",
        "MFR left to right",
        "TCP throughput",
    ]
    assert sentence_case("mlrsearch") == "MLRsearch"
    outcomes = [m.outcome for m in two().measurements]
    renamed = [
        outcome.model_copy(update={"headline": "frmol_fps", "metrics": {"frmol_fps": outcome.metrics["throughput_fps"]}})
        for outcome in outcomes
    ]
    record = two()
    measurements = tuple(m.model_copy(update={"outcome": outcome}) for m, outcome in zip(record.measurements, renamed, strict=True))
    assert "fast has the highest FRMOL, " in overview(record.model_copy(update={"measurements": measurements}), None)[1]


def test_each_mark_of_a_figure_is_explained() -> None:
    marked = disturbed(two(), "slow")
    outcomes = {"slow": MeasurementStatus.DISTURBED, "fast": MeasurementStatus.OK}
    marked = marked.model_copy(
        update={
            "measurements": tuple(
                m.model_copy(update={"outcome": m.outcome.model_copy(update={"status": outcomes[m.dut]})}) for m in marked.measurements
            )
        }
    )
    legend = "\u2265 marks a lower bound, ~ a value from disturbed trials, ? an inconclusive value"
    assert legend in HtmlReporter().render(marked)
    text = MarkdownReporter().render(marked)
    assert "| \\~ 0.9" in text or "| \\~ 9" in text
    assert legend.replace("~", "\\~") in text
    assert legend.replace("~", "\\~") not in MarkdownReporter().render(two())
