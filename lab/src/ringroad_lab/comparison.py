"""Compares two runs, or two devices within one run: figures, verdicts, and other differences.

Samples are the repetitions of a measurement. A measurement without a reliable figure (invalid, inconclusive) is not a sample. A lower bound
is a sample, but supports only some verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto

from ringroad_lab.disturbances import DisturbanceTally, tally_disturbances
from ringroad_lab.errors import ReportError
from ringroad_lab.grouping import grouped
from ringroad_lab.record import Better, DutRecord, Measurement, MeasurementStatus, Metric, NoiseFloor, RunRecord
from ringroad_lab.statistics.bootstrap import symmetric
from ringroad_lab.statistics.sequential import look_confidence
from ringroad_lab.statistics.two_samples import DEFAULT_CONFIDENCE, compare
from ringroad_lab.statistics.verdict import DEFAULT_LIMIT, MetricComparison, Verdict, by_severity
from ringroad_lab.trial import Frozen

# Name of the metric if neither side has a value.
NO_FIGURE = "no value"
_SEVERITY = list(Verdict)
# Facts that differ between any two runs and are irrelevant.
_VOLATILE = frozenset({("memory", "available at the start"), ("processor", "frequency at the start")})


class _Bound(Enum):
    """Whether the results of a side are lower bounds, and why."""

    NONE = auto()
    HELD_UP = auto()
    """The generator's thread forwards for the device, and had no time for more."""
    OUTSIDE = auto()
    """The limit is not the device's: the generator's ceiling, or frames lost outside the device."""


class RowKey(Frozen):
    """Identifies a compared metric."""

    topology: str
    dut: str
    """Label of the device in the candidate."""
    method: str
    frame: str
    metric: str


class ComparisonRow(Frozen):
    """Comparison of one metric."""

    key: RowKey
    baseline_dut: str
    """Label of the device in the baseline; usually the same."""
    unit: str
    is_headline: bool
    """Whether the metric represents the measurement or the device's cost: only these metrics decide the overall verdict."""
    noise_floor: tuple[float, float] | None
    """Interval of the ratio of the same build to itself, as measured by the runs."""
    comparison: MetricComparison


class Difference(Frozen):
    """A difference between the sides; None if a side does not have the item."""

    group: str
    name: str
    baseline: str | None
    candidate: str | None


class RunComparison(Frozen):
    """Complete comparison of a candidate with a baseline."""

    baseline: str
    """Display name: name and start of the id of the run, or label of the device."""
    candidate: str
    rows: tuple[ComparisonRow, ...]
    unmatched: tuple[str, ...]
    """Measurements of only one side, a sentence each."""
    environment: tuple[Difference, ...]
    verdict: Verdict
    """The most severe of the headline metrics."""
    baseline_disturbances: DisturbanceTally
    candidate_disturbances: DisturbanceTally

    def disturbances(self) -> tuple[str, str]:
        """Describe the disturbances of each side, which readers of the figures must know first."""
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
        """Number of headline metrics by verdict, the most severe first."""
        return by_severity(row.comparison.verdict for row in self.rows if row.is_headline)


def compare_runs(baseline: RunRecord, candidate: RunRecord, limit: float | None = None) -> RunComparison:
    """Compare two runs. Devices are matched by label; else by driver, if each run has exactly one device with that driver.

    Args:
        baseline: The baseline run.
        candidate: The candidate run.
        limit: For a verdict of no difference (`statistics.comparison.compare`); None: the stricter limit of the two scenarios.

    Raises:
        ReportError: the runs have nothing in common.
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
    """Compare two devices of one run. They were measured in turns, so drift affects both.

    For a run that continued until it was decided, the confidence accounts for the false-alarm probability of each look.

    Raises:
        ReportError: a device is missing, or the devices have nothing in common.
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
        raise ReportError(f"{baseline_label} and {candidate_label} cannot be compared: they have no measurement in common")
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
    """Return the number of looks at a run that continues until it is decided; 0 for other runs."""
    looks = record.scenario.get("looks", 0)
    return looks if isinstance(looks, int) and looks >= 0 else 0


def _limit(record: RunRecord) -> float:
    """Return the strictest limit of a run's scenarios; the default for records of versions without limits."""
    found = [each.get("difference_limit") for each in record.scenario_tables()]
    return min((limit for limit in found if isinstance(limit, float)), default=DEFAULT_LIMIT)


def describe_run(record: RunRecord) -> str:
    """Return the display name of a run."""
    return f"{record.name} ({record.run_id[:8]})"


def environment_differences(baseline: RunRecord, candidate: RunRecord) -> tuple[Difference, ...]:
    """Return the differences between two runs other than figures."""
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
    """Compare measurements; `matches` has the baseline's label by the candidate's. Measurements taken in turns are pairs by repetition."""
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
        bounds = _bound(before[subject]), _bound(measured)
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
                        before[subject], measured, name, metric.better, floor, limit, confidence, bounds, are_pairs=are_in_turns
                    ),
                )
            )
    return tuple(rows), tuple(unmatched)


def _by_subject(measurements: Iterable[Measurement], labels: Mapping[str, str]) -> dict[tuple[str, str, str, str], list[Measurement]]:
    # Measurements for the noise floor are used only there.
    counted = [measurement for measurement in measurements if not measurement.is_noise_floor]
    counted.sort(key=lambda m: (m.repetition, m.number))
    return grouped(counted, lambda m: (m.topology, labels.get(m.dut, m.dut), m.method, m.frame.name))


def _only_in(side: Iterable[tuple[str, str, str, str]], other: Iterable[tuple[str, str, str, str]]) -> list[str]:
    """Return the measurements of only one side; only the device's label if the other side does not have the device at all."""
    subjects = set(other)
    duts = {dut for _, dut, _, _ in subjects}
    missing = [subject for subject in side if subject not in subjects]
    texts = (f"{method} of {dut}, {topology}, frames {frame}" if dut in duts else dut for topology, dut, method, frame in missing)
    return list(dict.fromkeys(texts))


def _metrics(before: list[Measurement], after: list[Measurement]) -> dict[str, Metric]:
    """Return the metrics that can be better or worse, by name, with an example."""
    both = [metric for m in (*before, *after) for metric in m.outcome.metrics.items()]
    if not both:
        # A comparison without any valid figure must still have a row.
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
    bounds: tuple[_Bound, _Bound],
    *,
    are_pairs: bool,
) -> MetricComparison:
    baseline, candidate = _samples(before, name), _samples(after, name)
    if are_pairs:
        # A sample without its counterpart is not a pair.
        both = sorted(baseline.keys() & candidate.keys())
        baseline, candidate = ({repetition: side[repetition] for repetition in both} for side in (baseline, candidate))
    metrics = [*baseline.values(), *candidate.values()]
    # Metrics of an older ringroad-lab have no resolution.
    resolution = max((metric.resolution for metric in metrics), default=0.0)
    resolved = (tuple(max(metric.value, resolution) for metric in side.values()) for side in (baseline, candidate))
    comparison = compare(*resolved, better=better, is_paired=are_pairs, noise_floor=floor, limit=limit, confidence=confidence)
    reasons = [comparison.reason] if comparison.reason else []
    if any(metric.value < resolution for metric in metrics):
        reasons.append(f"figures below {resolution:g} {metrics[0].unit} count as that much")
    for side, measurements in (("baseline", before), ("candidate", after)):
        left_out = [m.outcome.status for m in measurements if not m.outcome.status.is_sample]
        if left_out:
            reasons.append(
                f"{len(left_out)} of {len(measurements)} measurements of the {side} gave no value ({', '.join(sorted(set(left_out)))})"
            )
    verdict = comparison.verdict
    is_bound = tuple(bound is _Bound.OUTSIDE for bound in bounds)
    if _Bound.HELD_UP in bounds and not any(is_bound):
        reasons.append("the rates include the generator's work, which runs in the same thread as the device's")
    if not _is_shown(verdict, *is_bound):
        verdict = Verdict.INCONCLUSIVE
        reasons.append("the generator's ceiling was reached, so the figures are lower bounds")
    sides = {"baseline": tuple(m.value for m in baseline.values()), "candidate": tuple(m.value for m in candidate.values())}
    return comparison.model_copy(update={**sides, "verdict": verdict, "reason": "; ".join(reasons)})


def _is_shown(verdict: Verdict, is_baseline_bound: bool, is_candidate_bound: bool) -> bool:
    """Return whether lower bounds on a side can support the verdict: the true figure may be any higher value."""
    if verdict in (Verdict.INVALID, Verdict.INCONCLUSIVE) or not (is_baseline_bound or is_candidate_bound):
        return True
    if is_baseline_bound and is_candidate_bound:
        return False
    return verdict is (Verdict.REGRESSION if is_baseline_bound else Verdict.IMPROVEMENT)


def _bound(measurements: list[Measurement]) -> _Bound:
    """Return the strictest kind of lower bound of a side."""
    bounds = [m for m in measurements if m.outcome.status is MeasurementStatus.LOWER_BOUND]
    if not bounds:
        return _Bound.NONE
    return _Bound.HELD_UP if all(map(_is_held_up, bounds)) else _Bound.OUTSIDE


def _is_held_up(measurement: Measurement) -> bool:
    """Return whether a lower bound is the rate of generator and device in one thread: then only the device can change it."""
    losses = [trial.loss for trial in measurement.trials if trial.lost_frames]
    return bool(losses) and all(loss is not None and loss.is_held_up for loss in losses)


def _disturbances(measurements: Iterable[Measurement]) -> DisturbanceTally:
    return tally_disturbances(watched for measurement in measurements for watched in measurement.watched)


def _samples(measurements: list[Measurement], name: str) -> dict[tuple[int, int], Metric]:
    """Return the figures of a metric by repetition, and by index within a repetition."""
    found: dict[tuple[int, int], Metric] = {}
    for measurement in measurements:
        if measurement.outcome.status.is_sample and name in measurement.outcome.metrics:
            place = sum(repetition == measurement.repetition for repetition, _ in found)
            found[measurement.repetition, place] = measurement.outcome.metrics[name]
    return found


def _noise_floor(floors: tuple[NoiseFloor, ...], key: RowKey, baseline_dut: str) -> tuple[float, float] | None:
    """Return the widest measured noise floor."""
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
    facts = {(group, "driver"): dut.driver} | {(group, name): value for name, value in dut.identity().items()}
    facts |= {(group, f"version of {program}"): version for program, version in dut.versions.items()}
    facts |= {(group, f"setting {name}"): _text(value) for name, value in dut.settings.items()}
    facts |= {(group, f"port {port}"): mode for port, mode in dut.ports.items()}
    facts |= {(group, name): machine for name, machine in dut.guests.items()}
    return facts


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield all single values of a scenario by their path, so that a difference names the changed value."""
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
