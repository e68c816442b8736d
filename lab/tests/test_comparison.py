"""Comparisons of runs, and of devices within a run."""

from __future__ import annotations

import pytest

from fabricated_runs import FACTS, fabricated_run, fabricated_throughput
from ringroad_lab.comparison import NO_FIGURE, ComparisonRow, RunComparison, compare_labels, compare_runs
from ringroad_lab.errors import ReportError
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.record import Better, DutRecord, Measurement, MeasurementStatus, Metric, RunRecord
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.trial import DirectionCounts, Load, LossByPlace, TrialRequest, TrialResult, TrialVerdict

FRAME = parse_frame_mix("64")
FIGURES = [1e6 * factor for factor in (1.0, 1.001, 0.999, 1.002, 0.998, 1.0, 1.001, 0.999, 1.002, 0.998, 1.0, 1.001)]


def run_of(measurements: dict[str, list[Measurement]], drivers: dict[str, str] | None = None, run_id: str = "run-of-figures") -> RunRecord:
    """Return a run with these measurements by device, renumbered."""
    empty = fabricated_run(run_id=run_id, capacities_fps={}, latency=False)
    every = [measurement for of_dut in measurements.values() for measurement in of_dut]
    duts = tuple(DutRecord(label=label, driver=(drivers or {}).get(label, label)) for label in measurements)
    numbered = tuple(measurement.model_copy(update={"number": number}) for number, measurement in enumerate(every))
    return empty.model_copy(update={"duts": duts, "measurements": numbered})


def measured(dut: str, factor: float = 1.0, status: MeasurementStatus = MeasurementStatus.OK) -> list[Measurement]:
    """Return repetitions of a throughput of one million frames/s, times a factor."""
    return [fabricated_throughput(0, dut, FRAME, factor * rate, repetition=n, status=status) for n, rate in enumerate(FIGURES)]


def headline(comparison: RunComparison) -> ComparisonRow:
    """Return the only row of a headline metric."""
    (row,) = [row for row in comparison.rows if row.is_headline]
    return row


@pytest.mark.parametrize(("factor", "verdict"), [(0.9, Verdict.REGRESSION), (1.0, Verdict.NO_DIFFERENCE), (1.1, Verdict.IMPROVEMENT)])
def test_the_verdict_follows_from_the_samples(factor: float, verdict: Verdict) -> None:
    comparison = compare_runs(run_of({"ovs": measured("ovs")}), run_of({"ovs": measured("ovs", factor)}))
    row = headline(comparison)
    assert (comparison.verdict, row.comparison.verdict) == (verdict, verdict)
    assert row.comparison.baseline == tuple(FIGURES)
    assert row.key.metric == "throughput_fps"
    assert comparison.counts == {verdict: 1}


def test_the_worst_verdict_of_the_headline_metrics_counts() -> None:
    before = run_of({"ovs": measured("ovs"), "testpmd": measured("testpmd")})
    after = run_of({"ovs": measured("ovs", 1.2), "testpmd": measured("testpmd", 0.8)})
    comparison = compare_runs(before, after)
    assert comparison.verdict is Verdict.REGRESSION
    assert comparison.counts == {Verdict.REGRESSION: 1, Verdict.IMPROVEMENT: 1}


def test_invalid_measurements_give_no_sample_and_never_a_zero() -> None:
    broken = fabricated_throughput(0, "ovs", FRAME, 0.0, repetition=3, status=MeasurementStatus.INVALID)
    of_ovs = measured("ovs")
    after = run_of({"ovs": [*of_ovs[:3], broken, *of_ovs[4:]]})
    row = headline(compare_runs(run_of({"ovs": of_ovs}), after))
    assert len(row.comparison.candidate) == len(of_ovs) - 1
    assert row.comparison.verdict is Verdict.NO_DIFFERENCE
    assert "1 of 12 measurements of the candidate gave no value (invalid)" in row.comparison.reason


def test_noise_floor_measurements_are_neither_samples_nor_missing() -> None:
    pair = [m.model_copy(update={"is_noise_floor": True}) for m in measured("ovs", 0.5)[:2]]
    before, after = run_of({"ovs": measured("ovs")}), run_of({"ovs": [*measured("ovs"), *pair]})
    assert headline(compare_runs(before, after)).comparison == headline(compare_runs(before, before)).comparison


def test_a_side_without_a_figure_is_invalid() -> None:
    nothing = run_of({"ovs": measured("ovs", status=MeasurementStatus.INVALID)})
    comparison = compare_runs(run_of({"ovs": measured("ovs")}), nothing)
    assert comparison.verdict is Verdict.INVALID
    assert headline(comparison).comparison.ratio is None
    both = compare_runs(nothing, nothing)
    assert both.verdict is Verdict.INVALID
    assert headline(both).key.metric == NO_FIGURE


def held_up(measurements: list[Measurement], at_receiver: int = 0) -> list[Measurement]:
    """Return lower bounds of a device that forwards in the generator's thread, whose ring had no room for some frames."""
    nowhere = {"before_device": 0, "in_device": 0, "in_guests": 0, "behind_device": 0, "unexplained": 0}
    lost = {"refused": 1000, "at_receiver": at_receiver, "is_forwarded_by_sender": True}
    direction = DirectionCounts(
        sender="1",
        receiver="2",
        intended_frames=10_000,
        sent_frames=10_000,
        refused_frames=1000,
        received_frames=9000 - at_receiver,
        transmit_s=1.0,
        loss=LossByPlace.model_validate(nowhere | lost),
    )
    trial = TrialResult(
        request=TrialRequest(load=Load(frame=FRAME, rate_fps=10_000), duration_s=1.0),
        started_at=0.0,
        verdict=TrialVerdict.VALID,
        directions=(direction,),
    )
    return [measurement.model_copy(update={"trials": (trial,)}) for measurement in measurements]


@pytest.mark.parametrize(("factor", "verdict"), [(0.95, Verdict.REGRESSION), (1.0, Verdict.NO_DIFFERENCE), (1.05, Verdict.IMPROVEMENT)])
def test_rates_of_a_device_in_the_generators_thread_are_compared_though_they_are_lower_bounds(factor: float, verdict: Verdict) -> None:
    before, after = held_up(measured("bridge", 1.0, BOUND)), held_up(measured("bridge", factor, BOUND))
    comparison = headline(compare_runs(run_of({"bridge": before}), run_of({"bridge": after}))).comparison
    assert comparison.verdict is verdict
    assert comparison.reason == "the rates include the generator's work, which runs in the same thread as the device's"


def test_a_lower_bound_with_other_loss_outside_the_device_is_no_rate_of_it() -> None:
    before, after = held_up(measured("bridge", 1.0, BOUND)), held_up(measured("bridge", 0.9, BOUND), at_receiver=1)
    comparison = headline(compare_runs(run_of({"bridge": before}), run_of({"bridge": after}))).comparison
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert "lower bounds" in comparison.reason


BOUND, OK = MeasurementStatus.LOWER_BOUND, MeasurementStatus.OK


@pytest.mark.parametrize(
    ("before", "after", "factor", "verdict"),
    [
        (OK, BOUND, 1.2, Verdict.IMPROVEMENT),
        (OK, BOUND, 1.0, Verdict.INCONCLUSIVE),
        (OK, BOUND, 0.8, Verdict.INCONCLUSIVE),
        (BOUND, OK, 0.8, Verdict.REGRESSION),
        (BOUND, OK, 1.0, Verdict.INCONCLUSIVE),
        (BOUND, OK, 1.2, Verdict.INCONCLUSIVE),
        (BOUND, BOUND, 1.2, Verdict.INCONCLUSIVE),
        (BOUND, BOUND, 0.8, Verdict.INCONCLUSIVE),
    ],
)
def test_lower_bounds_support_some_verdicts(before: MeasurementStatus, after: MeasurementStatus, factor: float, verdict: Verdict) -> None:
    comparison = compare_runs(run_of({"ovs": measured("ovs", status=before)}), run_of({"ovs": measured("ovs", factor, after)}))
    assert comparison.verdict is verdict
    assert ("lower bounds" in headline(comparison).comparison.reason) is (verdict is Verdict.INCONCLUSIVE)


def test_devices_are_matched_by_label_and_else_by_driver() -> None:
    before = run_of({"old": measured("old"), "same": measured("same")}, {"old": "ovs", "same": "testpmd"})
    after = run_of({"new": measured("new"), "same": measured("same")}, {"new": "ovs", "same": "testpmd"})
    rows = [row for row in compare_runs(before, after).rows if row.is_headline]
    assert [(row.baseline_dut, row.key.dut) for row in rows] == [("old", "new"), ("same", "same")]


def test_measurements_of_only_one_side_are_reported() -> None:
    before = run_of({"ovs": measured("ovs"), "gone": measured("gone")})
    after = run_of({"ovs": [*measured("ovs"), fabricated_throughput(0, "ovs", parse_frame_mix("1518"), 1.0)]})
    comparison = compare_runs(before, after)
    assert comparison.unmatched == ("only in the candidate: throughput of ovs, P2P, frames 1518", "only in the baseline: gone")


def test_runs_with_nothing_in_common_are_rejected() -> None:
    with pytest.raises(ReportError, match="cannot be compared"):
        compare_runs(run_of({"ovs": measured("ovs")}), run_of({"testpmd": measured("testpmd")}))


def test_devices_of_one_run_are_compared_in_pairs() -> None:
    # A drift far larger than the difference affects both measurements of a pair.
    drift = [1 + 0.05 * n for n in range(len(FIGURES))]
    record = run_of(
        {
            "old": [fabricated_throughput(0, "old", FRAME, 1e6 * d, repetition=n) for n, d in enumerate(drift)],
            "new": [fabricated_throughput(0, "new", FRAME, 0.93e6 * d, repetition=n) for n, d in enumerate(drift)],
        }
    )
    row = headline(compare_labels(record, "old", "new"))
    assert row.comparison.verdict is Verdict.REGRESSION
    assert row.comparison.ratio == pytest.approx(0.93)
    assert (row.baseline_dut, row.key.dut) == ("old", "new")
    with pytest.raises(ReportError, match="no device 'newer'; it has old, new"):
        compare_labels(record, "old", "newer")


def test_a_pair_with_a_missing_figure_is_left_out() -> None:
    broken = fabricated_throughput(0, "new", FRAME, 0.0, repetition=5, status=MeasurementStatus.INVALID)
    after = measured("new")
    record = run_of({"old": measured("old"), "new": [*after[:5], broken, *after[6:]]})
    row = headline(compare_labels(record, "old", "new"))
    assert len(row.comparison.baseline) == len(row.comparison.candidate) == len(FIGURES) - 1


def test_the_noise_floor_of_both_runs_is_used() -> None:
    before, after = (fabricated_run(seed=s, capacities_fps={"ovs": 1e6}, frames=["64"], latency=False) for s in (1, 2))
    row = headline(compare_runs(before, after))
    assert row.noise_floor == pytest.approx((1 / 1.016, 1.016))


def test_the_environment_is_reported_where_it_differs() -> None:
    other = FACTS | {"kernel": {"release": "5.10", "command line": "quiet mitigations=auto"}}
    before = fabricated_run(seed=1, facts=other, versions={"ovs": "2.17", "extra": "1"})
    after = fabricated_run(seed=2, versions={"ovs": "3.1"})
    differences = {(d.group, d.name): (d.baseline, d.candidate) for d in compare_runs(before, after).environment}
    assert differences["kernel", "release"] == ("5.10", "6.1.0-56-amd64")
    assert differences["device ovs", "version of ovs"] == ("2.17", "3.1")
    assert differences["device ovs", "version of extra"] == ("1", None)
    assert ("kernel", "command line") not in differences


def test_facts_that_always_differ_are_not_reported() -> None:
    before, after = (fabricated_run(seed=1, facts={"memory": {"available at the start": size}}) for size in ("1 GiB", "2 GiB"))
    assert compare_runs(before, after).environment == ()


def test_only_differing_values_of_scenarios_are_reported() -> None:
    before, after = fabricated_run(seed=1, repetitions=3), fabricated_run(seed=1, repetitions=4)
    (difference,) = [d for d in compare_runs(before, after).environment if d.group == "scenario"]
    assert (difference.name, difference.baseline, difference.candidate) == ("scenarios.1.repetitions", "3", "4")


def test_the_noise_floor_of_the_same_topology_is_used() -> None:
    before, after = (fabricated_run(seed=s, capacities_fps={"ovs": 1e6}, frames=["64"], latency=False) for s in (1, 2))
    other, same = (before.noise_floors[0].model_copy(update={"topology": topology}) for topology in ("PVP", "P2P"))
    after = after.model_copy(update={"noise_floors": (other,)})
    assert headline(compare_runs(before.model_copy(update={"noise_floors": ()}), after)).noise_floor is None
    assert headline(compare_runs(before.model_copy(update={"noise_floors": (same,)}), after)).noise_floor == pytest.approx(
        (1 / 1.016, 1.016)
    )


def limited(record: RunRecord, limit: float) -> RunRecord:
    """Return a run whose scenario has this limit."""
    return record.model_copy(update={"scenario": {"scenarios": [{"difference_limit": limit}]}})


def test_no_difference_needs_the_limit_of_the_stricter_scenario_or_of_the_caller() -> None:
    one, other = (run_of({"ovs": measured("ovs")}, run_id=run_id) for run_id in ("one", "other"))
    detectable = headline(compare_runs(one, other)).comparison.smallest_detectable
    assert detectable is not None
    above, below = 1.1 * detectable, 0.9 * detectable
    verdicts = {
        "both above": compare_runs(limited(one, above), limited(other, above)),
        "one below": compare_runs(limited(one, above), limited(other, below)),
        "caller above": compare_runs(limited(one, below), limited(other, below), above),
    }
    assert {name: headline(comparison).comparison.verdict for name, comparison in verdicts.items()} == {
        "both above": Verdict.NO_DIFFERENCE,
        "one below": Verdict.INCONCLUSIVE,
        "caller above": Verdict.NO_DIFFERENCE,
    }


MIRRORED = {Verdict.REGRESSION: Verdict.IMPROVEMENT, Verdict.IMPROVEMENT: Verdict.REGRESSION}


@pytest.mark.parametrize("seed", range(6))
def test_verdicts_are_mirrored_when_baseline_and_candidate_are_exchanged(seed: int) -> None:
    before = fabricated_run(seed=seed, repetitions=8, capacities_fps={"ovs": 1e6}, frames=["64", "1518"])
    after = fabricated_run(seed=seed + 100, repetitions=8, capacities_fps={"ovs": 0.97e6 + 1e4 * seed}, frames=["64", "1518"])
    forth, back = compare_runs(before, after), compare_runs(after, before)
    assert [row.key for row in back.rows] == [row.key for row in forth.rows]
    for one, other in zip(forth.rows, back.rows, strict=True):
        assert other.comparison.verdict is MIRRORED.get(one.comparison.verdict, one.comparison.verdict), (one, other)
        assert other.comparison.smallest_detectable == one.comparison.smallest_detectable
        assert other.noise_floor == one.noise_floor


def costing(idle: float, memory: float, *, resolution: float = 0.01) -> list[Measurement]:
    """Return repetitions of a throughput, with the cost of the device without load."""
    idle_metric = Metric(value=idle, unit="processors", better=Better.LOWER, resolution=resolution)
    costs = {"cost_idle_processors": idle_metric, "dut_memory_bytes": Metric(value=memory, unit="bytes", better=Better.LOWER)}

    def with_costs(m: Measurement) -> Measurement:
        outcome = m.outcome.model_copy(update={"metrics": m.outcome.metrics | costs, "compared": tuple(costs)})
        return m.model_copy(update={"outcome": outcome})

    return [with_costs(m) for m in measured("ovs")]


def cost_verdicts(comparison: RunComparison) -> dict[str, Verdict]:
    return {row.key.metric: row.comparison.verdict for row in comparison.rows if row.is_headline}


def test_the_cost_of_a_device_counts_like_its_rate() -> None:
    comparison = compare_runs(run_of({"ovs": costing(0.5, 1e6)}), run_of({"ovs": costing(0.6, 0.9e6)}))
    assert comparison.verdict is Verdict.REGRESSION
    assert cost_verdicts(comparison) == {
        "throughput_fps": Verdict.NO_DIFFERENCE,
        "cost_idle_processors": Verdict.REGRESSION,
        "dut_memory_bytes": Verdict.IMPROVEMENT,
    }


@pytest.mark.parametrize("resolution_before", [0.0, 0.01])
def test_costs_below_the_resolution_are_no_difference(resolution_before: float) -> None:
    before, after = costing(0.0, 1e6, resolution=resolution_before), costing(0.003, 1e6)
    comparison = compare_runs(run_of({"ovs": before}), run_of({"ovs": after}))
    (row,) = (row for row in comparison.rows if row.key.metric == "cost_idle_processors")
    assert row.comparison.verdict is Verdict.NO_DIFFERENCE
    assert row.comparison.candidate == (0.003,) * 12
    assert "figures below 0.01 processors count as that" in row.comparison.reason
    assert cost_verdicts(compare_runs(run_of({"ovs": before}), run_of({"ovs": costing(0.5, 1e6)})))["cost_idle_processors"] is (
        Verdict.REGRESSION
    )


def test_a_baseline_without_compared_costs_is_still_compared() -> None:
    old = [m.model_copy(update={"outcome": m.outcome.model_copy(update={"compared": ()})}) for m in costing(0.5, 1e6)]
    comparison = compare_runs(run_of({"ovs": old}), run_of({"ovs": costing(1.0, 1e6)}))
    assert cost_verdicts(comparison)["cost_idle_processors"] is Verdict.REGRESSION
