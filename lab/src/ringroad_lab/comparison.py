"""A run beside another, or a device beside another within one run: figures, verdicts, and other differences.

Samples are the repetitions of a measurement. What is not worth a figure (invalid, inconclusive) gives no sample; a lower bound is a
sample, but what it cannot show is not concluded from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ringroad_lab.disturbances import DisturbanceTally, tally_disturbances
from ringroad_lab.errors import ReportError
from ringroad_lab.record import Better, DutRecord, Measurement, MeasurementStatus, Metric, NoiseFloor, RunRecord
from ringroad_lab.statistics.bootstrap import symmetric
from ringroad_lab.statistics.comparison import DEFAULT_CONFIDENCE, compare
from ringroad_lab.statistics.sequential import look_confidence
from ringroad_lab.statistics.verdict import DEFAULT_LIMIT, Comparison, Verdict, by_severity
from ringroad_lab.trial import Frozen

# Stands for the metric where neither side has one.
NO_FIGURE = "no figure"
_SEVERITY = list(Verdict)
# They differ in every two runs, and say nothing about either.
_VOLATILE = frozenset({("memory", "available at the start"), ("processor", "frequency at the start")})


class RowKey(Frozen):
    """What is compared."""

    topology: str
    dut: str
    """Label of the device in the candidate."""
    method: str
    frame: str
    metric: str


class ComparisonRow(Frozen):
    """One metric, compared."""

    key: RowKey
    baseline_dut: str
    """Label of the device in the baseline; mostly the same."""
    unit: str
    is_headline: bool
    """Whether the metric stands for the measurement, or is what the device costs: only these decide the verdict of the whole."""
    noise_floor: tuple[float, float] | None
    """Interval of the ratio of the same build to itself, as the runs measured it."""
    comparison: Comparison


class Difference(Frozen):
    """Something that was not the same; None where a side does not have it."""

    group: str
    name: str
    baseline: str | None
    candidate: str | None


class RunComparison(Frozen):
    """A candidate beside a baseline, whole."""

    baseline: str
    """For people: name and beginning of the id of the run, or the label of the device."""
    candidate: str
    rows: tuple[ComparisonRow, ...]
    unmatched: tuple[str, ...]
    """What only one side measured, a sentence each."""
    environment: tuple[Difference, ...]
    verdict: Verdict
    """The most severe of the headline metrics."""
    baseline_disturbances: DisturbanceTally
    candidate_disturbances: DisturbanceTally

    def disturbances(self) -> tuple[str, str]:
        """Say what disturbed each side: whoever reads the figures has to know it first."""
        return (
            f"The baseline {self.baseline}: {self.baseline_disturbances.describe()}.",
            f"The candidate {self.candidate}: {self.candidate_disturbances.describe()}.",
        )

    @property
    def is_decided(self) -> bool:
        """Whether more samples would change nothing: no headline metric is inconclusive."""
        return Verdict.INCONCLUSIVE not in self.counts

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many headline metrics have each verdict, the most severe first."""
        return by_severity(row.comparison.verdict for row in self.rows if row.is_headline)


def compare_runs(baseline: RunRecord, candidate: RunRecord, limit: float | None = None) -> RunComparison:
    """Compare two runs. Devices are matched by label; else by driver, where each run has one of it.

    Args:
        baseline: The one.
        candidate: The other.
        limit: For a verdict of no difference (`statistics.comparison.compare`); None for the stricter one of the two scenarios.

    Raises:
        ReportError: they have nothing in common.
    """
    matches = _match_duts(baseline.duts, candidate.duts)
    floors = (*baseline.noise_floors, *candidate.noise_floors)
    limit = min(_limit(baseline), _limit(candidate)) if limit is None else limit
    rows, unmatched = _compare(baseline.measurements, candidate.measurements, matches, floors, limit)
    if not rows:
        raise ReportError(
            f"runs {describe_run(baseline)} and {describe_run(candidate)} cannot be compared: "
            f"no device was measured in both by the same method, topology and frame size"
        )
    return RunComparison(
        baseline=describe_run(baseline),
        candidate=describe_run(candidate),
        rows=rows,
        unmatched=unmatched,
        environment=environment_differences(baseline, candidate),
        verdict=_overall(rows),
        baseline_disturbances=_disturbances(baseline.measurements),
        candidate_disturbances=_disturbances(candidate.measurements),
    )


def compare_labels(record: RunRecord, baseline_label: str, candidate_label: str, limit: float | None = None) -> RunComparison:
    """Compare two devices of one run: they were measured in turns, so what drifts meets both.

    Of a run that went on until it was decided, each look has had its part of the chance of a false alarm.

    Raises:
        ReportError: one is not there, or they have nothing in common.
    """
    duts = {dut.label: dut for dut in record.duts}
    for label in (baseline_label, candidate_label):
        if label not in duts:
            raise ReportError(f"run {describe_run(record)} has no device {label!r}; it has {', '.join(duts)}")
    baseline, candidate = ([m for m in record.measurements if m.dut == label] for label in (baseline_label, candidate_label))
    limit = _limit(record) if limit is None else limit
    matches = {candidate_label: baseline_label}
    confidence = look_confidence(looks_of(record))
    rows, unmatched = _compare(baseline, candidate, matches, record.noise_floors, limit, confidence, are_in_turns=True)
    if not rows:
        raise ReportError(f"{baseline_label} and {candidate_label} cannot be compared: nothing was measured of both")
    return RunComparison(
        baseline=baseline_label,
        candidate=candidate_label,
        rows=rows,
        unmatched=unmatched,
        environment=_differences(_dut_facts(duts[baseline_label], "device"), _dut_facts(duts[candidate_label], "device")),
        verdict=_overall(rows),
        baseline_disturbances=_disturbances(baseline),
        candidate_disturbances=_disturbances(candidate),
    )


def looks_of(record: RunRecord) -> int:
    """Return how often a run that goes on until it is decided has been looked at, 0 for any other."""
    looks = record.scenario.get("looks", 0)
    return looks if isinstance(looks, int) and looks >= 0 else 0


def _limit(record: RunRecord) -> float:
    """Return the strictest limit of a run's scenarios; one that was recorded before there were limits has the usual."""
    found = [each.get("difference_limit") for each in record.scenario_tables()]
    return min((limit for limit in found if isinstance(limit, float)), default=DEFAULT_LIMIT)


def describe_run(record: RunRecord) -> str:
    """Name a run for people."""
    return f"{record.name} ({record.run_id[:8]})"


def environment_differences(baseline: RunRecord, candidate: RunRecord) -> tuple[Difference, ...]:
    """Return what was different between two runs, beside the figures."""
    return _differences(_environment(baseline), _environment(candidate))


def _compare(
    baseline: Iterable[Measurement],
    candidate: Iterable[Measurement],
    matches: Mapping[str, str],
    floors: tuple[NoiseFloor, ...],
    limit: float,
    confidence: float = DEFAULT_CONFIDENCE,
    *,
    are_in_turns: bool = False,
) -> tuple[tuple[ComparisonRow, ...], tuple[str, ...]]:
    """Compare measurements; `matches` has the baseline's label by the candidate's. In turns: repetition by repetition they are pairs."""
    labels = {of_baseline: of_candidate for of_candidate, of_baseline in matches.items()}
    before = _by_subject(baseline, labels)
    after = _by_subject(candidate, {})
    rows = []
    unmatched = [f"only in the candidate: {text}" for text in _only_in(after, before)]
    unmatched += [f"only in the baseline: {text}" for text in _only_in(before, after)]
    for subject, measured in after.items():
        if subject not in before:
            continue
        topology, dut, method, frame = subject
        for name, metric in _metrics(before[subject], measured).items():
            key = RowKey(topology=topology, dut=dut, method=method, frame=frame, metric=name)
            baseline_dut = matches.get(dut, dut)
            floor = _noise_floor(floors, key, baseline_dut)
            rows.append(
                ComparisonRow(
                    key=key,
                    baseline_dut=baseline_dut,
                    unit=metric.unit,
                    is_headline=name == NO_FIGURE
                    or any(name in (m.outcome.headline, *m.outcome.compared) for m in (*before[subject], *measured)),
                    noise_floor=floor,
                    comparison=_compare_metric(
                        before[subject], measured, name, metric.better, floor, limit, confidence, are_pairs=are_in_turns
                    ),
                )
            )
    return tuple(rows), tuple(unmatched)


def _by_subject(measurements: Iterable[Measurement], labels: Mapping[str, str]) -> dict[tuple[str, str, str, str], list[Measurement]]:
    found: dict[tuple[str, str, str, str], list[Measurement]] = {}
    # What was measured for the noise floor counts there.
    counted = [measurement for measurement in measurements if not measurement.is_noise_floor]
    for measurement in sorted(counted, key=lambda m: (m.repetition, m.number)):
        subject = (measurement.topology, labels.get(measurement.dut, measurement.dut), measurement.method, measurement.frame.name)
        found.setdefault(subject, []).append(measurement)
    return found


def _only_in(side: Iterable[tuple[str, str, str, str]], other: Iterable[tuple[str, str, str, str]]) -> list[str]:
    """Return what was measured on a side alone; of a device that the other does not have at all, only that."""
    subjects = set(other)
    duts = {dut for _, dut, _, _ in subjects}
    missing = [subject for subject in side if subject not in subjects]
    texts = (f"{method} of {dut}, {topology}, frames {frame}" if dut in duts else dut for topology, dut, method, frame in missing)
    return list(dict.fromkeys(texts))


def _metrics(before: list[Measurement], after: list[Measurement]) -> dict[str, Metric]:
    """Return the metrics that can be better or worse, by name, with an example."""
    both = [metric for m in (*before, *after) for metric in m.outcome.metrics.items()]
    if not both:
        # Nothing valid on either side must not look like nothing to tell.
        return {NO_FIGURE: Metric(value=0, unit="", better=Better.HIGHER)}
    return {name: metric for name, metric in both if metric.better is not Better.NEITHER}


def _compare_metric(
    before: list[Measurement],
    after: list[Measurement],
    name: str,
    better: Better,
    floor: tuple[float, float] | None,
    limit: float,
    confidence: float,
    *,
    are_pairs: bool,
) -> Comparison:
    baseline, candidate = _samples(before, name), _samples(after, name)
    if are_pairs:
        # One of which the other is missing is no pair.
        both = sorted(baseline.keys() & candidate.keys())
        baseline, candidate = ({repetition: side[repetition] for repetition in both} for side in (baseline, candidate))
    metrics = [*baseline.values(), *candidate.values()]
    # A run of an older ringroad-lab has none.
    resolution = max((metric.resolution for metric in metrics), default=0.0)
    resolved = (tuple(max(metric.value, resolution) for metric in side.values()) for side in (baseline, candidate))
    comparison = compare(*resolved, better=better, is_paired=are_pairs, noise_floor=floor, limit=limit, confidence=confidence)
    reasons = [comparison.reason] if comparison.reason else []
    if any(metric.value < resolution for metric in metrics):
        reasons.append(f"figures below {resolution:g} {metrics[0].unit} count as that")
    for side, measurements in (("baseline", before), ("candidate", after)):
        left_out = [m.outcome.status for m in measurements if not m.outcome.status.is_sample]
        if left_out:
            reasons.append(
                f"{len(left_out)} of {len(measurements)} measurements of the {side} gave no figure ({', '.join(sorted(set(left_out)))})"
            )
    verdict = comparison.verdict
    is_bound = tuple(any(m.outcome.status is MeasurementStatus.LOWER_BOUND for m in side) for side in (before, after))
    if not _is_shown(verdict, *is_bound):
        verdict = Verdict.INCONCLUSIVE
        reasons.append("the generator's ceiling was reached, so the figures are lower bounds")
    sides = {"baseline": tuple(m.value for m in baseline.values()), "candidate": tuple(m.value for m in candidate.values())}
    return comparison.model_copy(update={**sides, "verdict": verdict, "reason": "; ".join(reasons)})


def _is_shown(verdict: Verdict, is_baseline_bound: bool, is_candidate_bound: bool) -> bool:
    """Whether lower bounds on a side can show the verdict: the true figure may be any higher one."""
    if verdict in (Verdict.INVALID, Verdict.INCONCLUSIVE) or not (is_baseline_bound or is_candidate_bound):
        return True
    if is_baseline_bound and is_candidate_bound:
        return False
    return verdict is (Verdict.REGRESSION if is_baseline_bound else Verdict.IMPROVEMENT)


def _disturbances(measurements: Iterable[Measurement]) -> DisturbanceTally:
    return tally_disturbances(trial for measurement in measurements for trial in measurement.trials)


def _samples(measurements: list[Measurement], name: str) -> dict[tuple[int, int], Metric]:
    """Return the figures of a metric by repetition, and by number where a repetition has several."""
    found: dict[tuple[int, int], Metric] = {}
    for measurement in measurements:
        if measurement.outcome.status.is_sample and name in measurement.outcome.metrics:
            place = sum(repetition == measurement.repetition for repetition, _ in found)
            found[measurement.repetition, place] = measurement.outcome.metrics[name]
    return found


def _noise_floor(floors: tuple[NoiseFloor, ...], key: RowKey, baseline_dut: str) -> tuple[float, float] | None:
    """Return the widest of those that were measured."""
    wanted = (key.method, key.frame, key.metric)
    found = [
        floor.ratio_interval
        for floor in floors
        if floor.dut in (key.dut, baseline_dut)
        and floor.topology in ("", key.topology)
        and (floor.method, floor.frame_name, floor.metric) == wanted
    ]
    return symmetric((min(low for low, _ in found), max(high for _, high in found))) if found else None


def _match_duts(baseline: tuple[DutRecord, ...], candidate: tuple[DutRecord, ...]) -> dict[str, str]:
    labels = {dut.label for dut in baseline}
    matches = {dut.label: dut.label for dut in candidate if dut.label in labels}
    for dut in candidate:
        same = [other.label for other in baseline if other.driver == dut.driver]
        alone = sum(other.driver == dut.driver for other in candidate) == 1
        if dut.label not in matches and alone and len(same) == 1 and same[0] not in matches.values():
            matches[dut.label] = same[0]
    return matches


def _overall(rows: Iterable[ComparisonRow]) -> Verdict:
    rows = tuple(rows)
    counted = [row for row in rows if row.is_headline] or rows
    return max((row.comparison.verdict for row in counted), key=_SEVERITY.index)


def _environment(record: RunRecord) -> dict[tuple[str, str], str]:
    facts = {
        (group, name): value for group, entries in record.facts.items() for name, value in entries.items() if (group, name) not in _VOLATILE
    }
    facts["lab", "ringroad-lab"] = record.lab_version
    facts["lab", "generator"] = record.generator_version
    facts |= {("scenario", name): value for name, value in _leaves(record.scenario)}
    facts |= {("labels", name): value for name, value in record.labels.items()}
    for dut in record.duts:
        facts |= _dut_facts(dut, f"device {dut.label}")
    return facts


def _dut_facts(dut: DutRecord, group: str) -> dict[tuple[str, str], str]:
    facts = {(group, "driver"): dut.driver} | {(group, name): told for name, told in dut.identity().items()}
    facts |= {(group, f"version of {program}"): version for program, version in dut.versions.items()}
    facts |= {(group, f"setting {name}"): _text(value) for name, value in dut.settings.items()}
    facts |= {(group, f"port {port}"): mode for port, mode in dut.ports.items()}
    return facts


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield all single values of a scenario by their path: a whole scenario beside another shows nobody what is different."""
    if isinstance(value, Mapping | list) and value:
        entries = value.items() if isinstance(value, Mapping) else ((number, part) for number, part in enumerate(value, 1))
        for name, part in entries:
            yield from _leaves(part, f"{path}.{name}" if path else str(name))
    else:
        yield path, _text(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def _differences(baseline: Mapping[tuple[str, str], str], candidate: Mapping[tuple[str, str], str]) -> tuple[Difference, ...]:
    names = dict.fromkeys((*baseline, *candidate))
    return tuple(
        Difference(group=group, name=name, baseline=baseline.get((group, name)), candidate=candidate.get((group, name)))
        for group, name in sorted(names)
        if baseline.get((group, name)) != candidate.get((group, name))
    )
