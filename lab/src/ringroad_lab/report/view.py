"""The content of a report, made from the record; templates only do the layout."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ringroad_lab.comparison import RunComparison
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.grouping import grouped
from ringroad_lab.method.message_size import MESSAGES
from ringroad_lab.record import DutRecord, Measurement, MeasurementStatus, RunRecord
from ringroad_lab.report.charts import (
    Chart,
    LatencyLine,
    comparison_chart,
    curve_charts,
    grid_chart,
    latency_charts,
    latency_lines,
    latency_scale,
    series_charts,
    style_index,
)
from ringroad_lab.report.figures import (
    Grid,
    StatusGroup,
    dut_labels,
    frame_order,
    headline_grids,
    in_bits,
    in_frames,
    overview,
    status_counts,
    status_groups,
    warnings,
)
from ringroad_lab.report.loss_rows import LossRow, loss_rows, loss_sentences
from ringroad_lab.report.quantity import Scale, scale_for
from ringroad_lab.report.rates import FRAME_RATE
from ringroad_lab.report.topology_picture import topology_picture

_BARS_OF_HALF_A_PAGE = 20
# Reports with such rates have this unit, whatever the rates are.
_L1_SCALE = Scale(1e6, "Mbit/s", 2)


@dataclass(frozen=True)
class GridSection:
    """The headline metric of a method: a chart, and a table of the same figures."""

    grid: Grid
    scale: Scale
    charts: tuple[Chart, ...]
    is_wide: bool
    """Whether there are too many bars for two charts side by side."""
    line_rates: dict[str, float]
    """By name of the frame size, in the unit of the figures; empty if the figures are no rates, or the links have no nominal speed."""
    losses: tuple[str, ...]
    """Places where frames were lost, a sentence for each device with loss."""


@dataclass(frozen=True)
class Traffic:
    """The sent traffic of one frame mix."""

    frame: FrameMix
    flows: str
    directions: str
    addresses: str


@dataclass(frozen=True)
class ReportView:
    """A report."""

    record: RunRecord
    comparison: RunComparison | None
    comparison_chart: Chart | None
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]
    status_counts: dict[MeasurementStatus, int]
    status_groups: tuple[StatusGroup, ...]
    grids: tuple[GridSection, ...]
    loss_rows: tuple[LossRow, ...]
    latency_charts: tuple[Chart, ...]
    latency_lines: tuple[LatencyLine, ...]
    latency_scale: Scale
    curve_charts: tuple[Chart, ...]
    series_charts: tuple[Chart, ...]
    topology_pictures: tuple[str, ...]
    """SVG, a picture for each topology; their texts are escaped."""
    traffic: tuple[Traffic, ...]
    command: str
    """The shell command that repeats the run."""

    @property
    def latency_percentiles(self) -> list[float]:
        """All percentiles of all devices."""
        return sorted({percentile for line in self.latency_lines for percentile in line.percentiles_ns})


def make_view(record: RunRecord, comparison: RunComparison | None = None) -> ReportView:
    """Make a report from a run, and from its comparison with another run if there is one."""
    styles = style_index(record)
    lines = latency_lines(record)
    losses = loss_rows(record)
    return ReportView(
        record=record,
        comparison=comparison,
        comparison_chart=comparison_chart(comparison) if comparison else None,
        sentences=tuple(overview(record, comparison)),
        warnings=tuple(warnings(record)),
        status_counts=status_counts(record),
        status_groups=tuple(status_groups(record)),
        grids=tuple(
            section
            for grid in headline_grids(record)
            for section in (
                _grid_section(grid, styles, record.link_bps, losses),
                *([_grid_section(in_frames(grid), styles, record.link_bps, ())] if grid.is_at_layer_1 else []),
            )
        ),
        loss_rows=tuple(losses),
        latency_charts=tuple(latency_charts(record, styles)),
        latency_lines=tuple(lines),
        latency_scale=latency_scale(lines),
        curve_charts=tuple(curve_charts(record, styles)),
        series_charts=tuple(series_charts(record)),
        topology_pictures=tuple(_pictures(record)),
        traffic=tuple(_traffic(record.measurements)),
        command=shlex.join(record.command),
    )


def _grid_section(grid: Grid, styles: dict[str, int], link_bps: float | None, losses: Sequence[LossRow]) -> GridSection:
    charts = [grid_chart(grid, styles, link_bps)] if grid.metric else []
    if grid.unit == FRAME_RATE and not grid.is_sum:
        charts.append(grid_chart(in_bits(grid), styles, link_bps))
    found = {mix.name: grid.line_rate(mix, link_bps) for mix in grid.frames}
    line_rates = {name: rate for name, rate in found.items() if rate is not None}
    values = [value for cell in grid.cells.values() for value in cell.values]
    is_wide = len(grid.duts) * len(grid.frames) > _BARS_OF_HALF_A_PAGE
    own = [row for row in losses if (row.topology, row.method) == (grid.topology, grid.method)]
    scale = _L1_SCALE if grid.is_at_layer_1 else scale_for([*values, *line_rates.values()], grid.unit)
    return GridSection(grid, scale, tuple(charts), is_wide, line_rates, tuple(loss_sentences(own)))


def _pictures(record: RunRecord) -> list[str]:
    details = {
        str(each.get("topology")): [str(each.get(key) or "") for key in ("physical", "guest", "guest_cables")]
        for each in record.scenario_tables()
    }
    topologies = dict.fromkeys(m.topology for m in record.measurements) or details or {"P2P": None}
    names = ", ".join(dut_labels(record))
    if record.measurements and all(m.frame == MESSAGES for m in record.measurements):
        return [topology_picture(topology, names, "", ends="station") for topology in topologies]
    return [topology_picture(topology, names, *details.get(topology, ("", "", ""))) for topology in topologies]


def _traffic(measurements: Sequence[Measurement]) -> list[Traffic]:
    kinds = []
    for same in grouped(measurements, lambda m: m.frame.name).values():
        loads = [trial.request.load for m in same for trial in m.trials]
        both_ways = {load.bidirectional for load in loads}
        kinds.append(
            Traffic(
                frame=same[0].frame,
                flows=", ".join(str(flows) for flows in sorted({load.flows for load in loads})),
                directions=" and ".join("both at once" if both else "one" for both in sorted(both_ways, reverse=True)),
                addresses=", ".join(sorted({load.addresses for load in loads})),
            )
        )
    return sorted(kinds, key=lambda kind: frame_order(kind.frame))


def dut_facts(dut: DutRecord) -> list[tuple[str, str]]:
    """Return the known facts of a device, as names and values."""
    facts = [("driver", dut.driver), *dut.identity().items()]
    facts += [(f"version of {program}", version) for program, version in dut.versions.items()]
    facts += [(f"port {port}", mode) for port, mode in dut.ports.items()]
    facts += list(dut.guests.items())
    if dut.work_of_sender:
        facts.append(("work in the generator's thread", dut.work_of_sender))
    facts += [(name.replace("_", " "), str(value)) for name, value in dut.settings.items()]
    return facts
