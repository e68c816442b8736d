"""The findings of a run: the figures of each measurement by device and frame size, and two sentences of summary."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ringroad_lab.comparison import RunComparison
from ringroad_lab.disturbances import tally_disturbances
from ringroad_lab.frame_size import LINE_OVERHEAD_BYTES, FrameMix
from ringroad_lab.grouping import grouped
from ringroad_lab.method.message_size import MESSAGES
from ringroad_lab.record import GIVEN_UP, Measurement, MeasurementStatus, Metric, RunRecord, RunState
from ringroad_lab.report.quantity import duration, percent_change, quantity
from ringroad_lab.report.ranking import rank
from ringroad_lab.report.rates import FRAME_RATE, L1_ENDING, SUM_ENDING, SUM_L1_ENDING
from ringroad_lab.statistics.verdict import Verdict

# Tolerance for clock errors before a rate counts as beyond the line rate.
_LINE_RATE_TOLERANCE = 1.001
_SEVERITY = list(MeasurementStatus)
_REASONS_SHOWN = 2
_OF_THROUGHPUT = re.compile(r"_([0-9.]+)pct_")
# Words that are not written as in an identifier; RFC 2285 and RFC 2889 have the abbreviations.
_SPELLINGS = {"frmol": "FRMOL", "l1": "L1", "mfr": "MFR", "mlrsearch": "MLRsearch", "netpipe": "NetPIPE", "udp": "UDP", "tcp": "TCP"}
MARKS = {MeasurementStatus.DISTURBED: "~", MeasurementStatus.LOWER_BOUND: "\u2265", MeasurementStatus.INCONCLUSIVE: "?"}
"""Marks of figures by status."""
MARKS_LEGEND = "\u2265 marks a lower bound, ~ a value from disturbed trials, ? an inconclusive value"
_VERDICTS = {
    Verdict.REGRESSION: ("regression", "regressions"),
    Verdict.IMPROVEMENT: ("improvement", "improvements"),
    Verdict.NO_DIFFERENCE: ("without a difference", "without a difference"),
}


@dataclass(frozen=True)
class Cell:
    """The headline metric of a device at a frame size: its repetitions."""

    dut: str
    frame: FrameMix
    values: tuple[float, ...]
    """Values of the measurements that have a figure."""
    repetitions: int
    status: MeasurementStatus
    """The most severe status of the measurements with a figure; `invalid` if none has a figure."""

    @property
    def without_figure(self) -> int:
        """The number of repetitions without a figure."""
        return self.repetitions - len(self.values)

    @property
    def median(self) -> float | None:
        """The median; None without a figure."""
        return statistics.median(self.values) if self.values else None


@dataclass(frozen=True)
class Grid:
    """The headline metric of one method in one topology, by device and frame size."""

    topology: str
    method: str
    metric: str
    unit: str
    duts: tuple[str, ...]
    frames: tuple[FrameMix, ...]
    cells: dict[tuple[str, str], Cell]
    """Cells by label of the device and name of the frame size."""

    @property
    def title(self) -> str:
        """Title for people."""
        return f"{sentence_case(self.method)}, {self.topology}"

    def row(self, frame: FrameMix) -> list[Cell | None]:
        """Return the cells of a frame size, in the order of the devices."""
        return [self.cells.get((dut, frame.name)) for dut in self.duts]

    @property
    def is_at_layer_1(self) -> bool:
        """Whether the figures are rates at layer 1."""
        return self.metric.endswith(L1_ENDING)

    @property
    def is_sum(self) -> bool:
        """Whether the figures are rates of two directions together."""
        return self.metric.endswith((SUM_ENDING, SUM_L1_ENDING))

    @property
    def rates_note(self) -> str:
        """What a rate counts, a sentence; empty for other figures."""
        if not self.is_at_layer_1 and self.unit != FRAME_RATE:
            return ""
        layer = f", at layer 1: {LINE_OVERHEAD_BYTES} bytes of preamble and gap count with each frame" if self.is_at_layer_1 else ""
        return f"{'Both directions together' if self.is_sum else 'Per direction'}{layer}."

    def line_rate(self, frame: FrameMix, link_bps: float | None) -> float | None:
        """Return the line rate of links of `link_bps`, in the unit of the figures; None if there is none."""
        if link_bps is None:
            return None
        links_bps = link_bps * (2 if self.is_sum else 1)
        if self.is_at_layer_1:
            return links_bps
        # In other bits, preamble and gap do not count.
        bits = {FRAME_RATE: 1, "bit/s": 8 * frame.mean_bytes}.get(self.unit)
        return None if bits is None else bits * frame.line_rate_fps(links_bps)


@dataclass(frozen=True)
class StatusGroup:
    """Measurements of a device and method that share a status other than OK."""

    status: MeasurementStatus
    dut: str
    method: str
    topology: str
    frames: tuple[str, ...]
    count: int
    reasons: tuple[str, ...]
    """All distinct reasons."""

    @property
    def why(self) -> str:
        """The first reasons, for display."""
        more = len(self.reasons) - _REASONS_SHOWN
        return " / ".join(self.reasons[:_REASONS_SHOWN]) + (f" / and {more} more, listed with the trials" if more > 0 else "")


def sentence_case(text: str) -> str:
    """Return an identifier as words, the first one capitalized."""
    words = identifier_words(text)
    return words[:1].upper() + words[1:]


def identifier_words(text: str) -> str:
    """Return an identifier as words, as they are written within a sentence."""
    return " ".join(_SPELLINGS.get(word, word) for word in text.replace("-", " ").replace("_", " ").split(" "))


def metric_title(name: str) -> str:
    """Return the name of a metric for people, without its unit."""
    return sentence_case(metric_words(name))


def metric_words(name: str) -> str:
    """Return the name of a metric within a sentence, without its unit."""
    for ending in ("_fps", "_bps", "_ns", "_s", "_ratio", "_frames", "_bytes"):
        name = name.removesuffix(ending)
    return identifier_words(_OF_THROUGHPUT.sub(r" at \1 % of throughput, ", name))


def frames_text(name: str) -> str:
    """Return the name of a frame size for people."""
    if name == MESSAGES.name:
        return name
    return f"{name} bytes" if name.isdigit() else f"frames {name}"


def headline_grids(record: RunRecord) -> list[Grid]:
    """Return the headline metrics, a grid for each method and topology."""
    measured = [m for m in record.measurements if not m.is_noise_floor]
    groups = grouped(measured, lambda m: (m.topology, m.method))
    return [_grid(record, topology, method, measurements) for (topology, method), measurements in groups.items()]


def dut_labels(record: RunRecord) -> list[str]:
    """Return the labels of all devices; a killed run can have measurements of devices without a record."""
    return list(dict.fromkeys((*(dut.label for dut in record.duts), *(m.dut for m in record.measurements))))


def frame_order(mix: FrameMix) -> tuple[int, float]:
    """Return the sort key of a frame size; mixes are last."""
    return len(mix.parts), mix.mean_bytes


def _grid(record: RunRecord, topology: str, method: str, measurements: Sequence[Measurement]) -> Grid:
    headline = next((m.outcome.headline for m in measurements if m.outcome.headline), "")
    measured = {m.dut for m in measurements}
    frames = {m.frame.name: m.frame for m in measurements}
    cells = {
        key: Cell(
            dut=same[0].dut,
            frame=same[0].frame,
            values=tuple(m.outcome.metrics[headline].value for m in same if has_figure(m) and headline in m.outcome.metrics),
            repetitions=len(same),
            status=worst_status([m for m in same if has_figure(m)] or same),
        )
        for key, same in grouped(measurements, lambda m: (m.dut, m.frame.name)).items()
    }
    units = [m.outcome.metrics[headline].unit for m in measurements if headline in m.outcome.metrics]
    return Grid(
        topology=topology,
        method=method,
        metric=headline,
        unit=units[0] if units else "",
        duts=tuple(label for label in dut_labels(record) if label in measured),
        frames=tuple(sorted(frames.values(), key=frame_order)),
        cells=cells,
    )


def in_bits(grid: Grid) -> Grid:
    """Convert a grid from frames per second to bits per second, including the FCS, without preamble and gap."""
    return _times(grid, {mix.name: 8 * mix.mean_bytes for mix in grid.frames}, grid.metric, "bit/s")


def in_frames(grid: Grid) -> Grid:
    """Convert a grid from rates at layer 1 to frames per second."""
    factors = {mix.name: 1 / (8 * (mix.mean_bytes + LINE_OVERHEAD_BYTES)) for mix in grid.frames}
    return _times(grid, factors, grid.metric.removesuffix(L1_ENDING) + "_fps", FRAME_RATE)


def _times(grid: Grid, factors: Mapping[str, float], metric: str, unit: str) -> Grid:
    """Multiply the figures by a factor for each frame size."""
    cells = {
        key: replace(cell, values=tuple(value * factors[cell.frame.name] for value in cell.values)) for key, cell in grid.cells.items()
    }
    return replace(grid, metric=metric, unit=unit, cells=cells)


def has_figure(measurement: Measurement) -> bool:
    """Return whether its figure can be shown; the figure of an invalid measurement never is."""
    return measurement.outcome.status is not MeasurementStatus.INVALID


def worst_status(measurements: Iterable[Measurement]) -> MeasurementStatus:
    """Return the most severe status."""
    return max((m.outcome.status for m in measurements), key=_SEVERITY.index, default=MeasurementStatus.OK)


def status_counts(record: RunRecord) -> dict[MeasurementStatus, int]:
    """Return the number of measurements by status, the most severe first."""
    found = [m.outcome.status for m in record.measurements]
    return {status: found.count(status) for status in reversed(_SEVERITY) if status in found}


def status_groups(record: RunRecord) -> list[StatusGroup]:
    """Return measurements with a status other than OK, the most severe first, grouped by device and method."""
    found = [m for m in record.measurements if m.outcome.status is not MeasurementStatus.OK]
    found.sort(key=lambda m: -_SEVERITY.index(m.outcome.status))
    groups = grouped(found, lambda m: (m.outcome.status, m.dut, m.method, m.topology))
    return [
        StatusGroup(
            *key,
            frames=tuple(mix.name for mix in sorted({m.frame for m in same}, key=frame_order)),
            count=len(same),
            reasons=tuple(dict.fromkeys("; ".join(m.outcome.reasons) or "no reason was recorded" for m in same)),
        )
        for key, same in groups.items()
    ]


def warnings(record: RunRecord) -> list[str]:
    """Return warnings about wrong or doubtful figures, a sentence each."""
    found = []
    if record.state is not RunState.FINISHED:
        why = record.failure or "no reason was recorded"
        ends = {RunState.STOPPED: "was stopped before its end", RunState.NOT_INSTALLED: f"could not install a build: {why}"}
        end = ends.get(record.state, f"failed: {why}")
        found.append(f"The run {end}. The report shows the measurements until then.")
    if not record.measurements:
        found.append("The run has no measurement.")
    if record.link_bps:
        found += _beyond_line_rate(record, record.link_bps)
    tally = tally_disturbances(watched for m in record.measurements for watched in m.watched)
    if tally.left:
        text = tally.describe()
        found.append(f"{text[0].upper()}{text[1:]}.")
    return [*found, *same_builds(record), *record.warnings]


def same_builds(record: RunRecord) -> Iterator[str]:
    """Yield warnings about devices that should differ but ran the same build with the same settings."""
    for one, other in combinations(record.duts, 2):
        is_same = (one.driver, one.settings, one.guest_build) == (other.driver, other.settings, other.guest_build)
        if is_same and (one.build or other.build) and one.files and set(one.files.values()) == set(other.files.values()):
            yield f"{one.label} and {other.label} ran the same files with the same settings: they are one build, not two."


def _beyond_line_rate(record: RunRecord, link_bps: float) -> Iterator[str]:
    """Yield warnings about devices and methods that exceed the line rate, with the frame size of the largest excess."""
    found: dict[tuple[str, str, str], dict[FrameMix, float]] = {}
    for m in record.measurements:
        line_fps = m.frame.line_rate_fps(link_bps)
        for name, metric in m.outcome.metrics.items() if has_figure(m) else ():
            # A sum of two directions can be twice the line rate; each direction has a metric of its own.
            if metric.unit == FRAME_RATE and not name.endswith(SUM_ENDING) and metric.value > line_fps * _LINE_RATE_TOLERANCE:
                rates = found.setdefault((m.topology, m.method, m.dut), {})
                rates[m.frame] = max(metric.value, rates.get(m.frame, 0.0))
    for (topology, method, dut), rates in found.items():
        worst = max(rates, key=lambda mix: rates[mix] / mix.line_rate_fps(link_bps))
        yield (
            f"{sentence_case(method)} of {dut} in {topology} with {_sizes(sorted(rates, key=frame_order))} exceeds the line "
            f"rate: {quantity(rates[worst], FRAME_RATE)} at {frames_text(worst.name)}; the links carry at most "
            f"{quantity(worst.line_rate_fps(link_bps), FRAME_RATE)}. The figure or the speed of the links is wrong."
        )


def _sizes(frames: Sequence[FrameMix]) -> str:
    names = dict.fromkeys(mix.name for mix in frames if mix != MESSAGES)
    unit = " bytes" if all(name.isdigit() for name in names) else ""
    texts = [f"frames of {_listed(names)}{unit}"] if names else []
    if MESSAGES in frames:
        texts.append(MESSAGES.name)
    return _listed(texts)


def overview(record: RunRecord, comparison: RunComparison | None) -> list[str]:
    """Return a summary of the measurements and results, a sentence each."""
    grids = headline_grids(record)
    if not grids:
        return [f"Nothing was measured in {took(record)}."]
    methods = _listed(dict.fromkeys(identifier_words(grid.method) for grid in grids))
    duts = list(dict.fromkeys(dut for grid in grids for dut in grid.duts))
    sizes = _sizes([mix for grid in grids for mix in grid.frames])
    repetitions = max(cell.repetitions for grid in grids for cell in grid.cells.values())
    sentences = [
        *_given_up(record),
        f"{methods[:1].upper()}{methods[1:]} of {_listed(duts)} in {_listed(dict.fromkeys(grid.topology for grid in grids))} with {sizes}"
        f"{f', each {repetitions} times' if repetitions > 1 else ''}, in {took(record)}.",
    ]
    first = next((grid for grid in grids if grid.rates_note), grids[0])
    mix = next((mix for mix in first.frames if any(cell and cell.values for cell in first.row(mix))), None)
    if mix is not None:
        ranking = rank(record, first.topology, first.method, mix, first.metric, metric_words(first.metric))
        sentences.append(f"{'With' if mix == MESSAGES else 'At'} {frames_text(mix.name)}, {ranking}.")
    if comparison is not None:
        text = _listed(f"{count} {_VERDICTS.get(verdict, (verdict, verdict))[count != 1]}" for verdict, count in comparison.counts.items())
        sentences.append(f"Compared with {comparison.baseline}: {text}.{_worst_regression(comparison)}{_caveat(comparison)}")
    return sentences


def _given_up(record: RunRecord) -> Iterator[str]:
    """Yield a sentence for each device that was not started any more."""
    untried = [(m, reason) for m in record.measurements for reason in m.outcome.reasons[:1] if reason.startswith(GIVEN_UP)]
    for (dut, topology), same in grouped(untried, lambda each: (each[0].dut, each[0].topology)).items():
        why = same[0][1].removeprefix(GIVEN_UP).partition("\n")[0].rstrip(".")
        yield f"{dut} was given up in {topology}, and {len(same)} of its measurements were not tried: {why}."


def took(record: RunRecord) -> str:
    """Return the duration of a run, and its ratio to the planned time."""
    if record.took_s is None or not record.planned_s:
        return duration(record.ended_at - record.started_at)
    return f"{duration(record.took_s)}, {record.took_s / record.planned_s:.2f} times the planned time"


def _worst_regression(comparison: RunComparison) -> str:
    found = [
        (abs(math.log(row.comparison.ratio)), row)
        for row in comparison.rows
        if row.is_headline and row.comparison.verdict is Verdict.REGRESSION and row.comparison.ratio
    ]
    if not found:
        return ""
    _, row = max(found, key=lambda each: each[0])
    return (
        f" The largest regression is {metric_words(row.key.metric)} of {row.key.dut} in {row.key.topology} "
        f"at {frames_text(row.key.frame)}, {percent_change(row.comparison.ratio or 1)}."
    )


def _caveat(comparison: RunComparison) -> str:
    is_disturbed = comparison.baseline_disturbances.left or comparison.candidate_disturbances.left
    return " Some of the compared figures rest on disturbed trials, so other programs may have caused a difference." if is_disturbed else ""


def headline_metric(measurement: Measurement) -> Metric | None:
    """Return the headline metric of a measurement; None if it has no figure."""
    return measurement.outcome.metrics.get(measurement.outcome.headline) if has_figure(measurement) else None


def _listed(texts: Iterable[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last
