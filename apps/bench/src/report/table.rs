//! Report for users: ratios with absolute figures, then the cost of null ports, then the conditions.

use std::fmt::Write;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::{Absolute, BenchReport, CONVENTIONS, Comparison, PointReport};
use crate::plan::FramePath;
use crate::ratio::ValueSummary;

/// Share of waiting for a CPU above which a figure is marked as disturbed.
const DISTURBED: f64 = 0.03;

/// Text for a missing figure.
const NONE: &str = "-";

pub(super) fn render(report: &BenchReport, width: Option<u16>) -> String {
    let mut text = String::new();
    let with = |wanted: fn(FramePath) -> bool| -> Vec<&PointReport> {
        report.points.iter().filter(|report| wanted(report.point.path)).collect()
    };
    let (generators, netmap) = (with(FramePath::is_gen), with(FramePath::is_netmap));
    let memory = with(|path| matches!(path, FramePath::Pipe | FramePath::Switch));
    let veth = with(|path| path.is_veth() && !path.is_gen());
    let floor = with(|path| path == FramePath::Null);
    let sends = with(|path| path == FramePath::Send);
    if !memory.is_empty() {
        let _ = writeln!(text, "{}\n", ratios(&memory, width));
    }
    if !netmap.is_empty() {
        let table = ways(&netmap, width);
        let _ = writeln!(text, "Programs written for netmap, and the native ones:\n{table}\n");
    }
    if !veth.is_empty() {
        let table = interfaces(&veth, width);
        let _ = writeln!(text, "Network interfaces (veth), one program on one core:\n{table}\n");
    }
    if !generators.is_empty() {
        let table = ways(&generators, width);
        let _ = writeln!(text, "Generators, one on one core:\n{table}\n");
    }
    if !veth.is_empty() || !generators.is_empty() {
        let _ = writeln!(text, "Processor time: {}.\n", CONVENTIONS.cpu_cost);
    }
    if !sends.is_empty() {
        let _ = writeln!(text, "One frame's send, step by step:\n{}\n", steps(&sends, width));
    }
    if !floor.is_empty() {
        let _ = writeln!(text, "Overhead floor (null ports, one core):\n{}\n", overhead(&floor, width));
    }
    notes(report, &mut text);
    text
}

fn ratios(points: &[&PointReport], width: Option<u16>) -> Table {
    let mut table = empty(
        &[
            "path",
            "size B",
            "burst",
            "peer",
            "ratio",
            "min-max",
            "Ringroad Mpps",
            "peer Mpps",
            "Gbit/s L1",
            "cycles/frame",
        ],
        width,
    );
    for PointReport { point, ratios, absolutes, series } in points {
        let ours = series.iter().position(|series| series.ours).and_then(|at| absolutes.get(at));
        let our_layer1 = ours.map_or_else(|| NONE.into(), gbps);
        let our_cycles = ours.map_or_else(|| NONE.into(), cycles);
        let alone = ratios.is_empty().then_some(None);
        for comparison in ratios.iter().map(Some).chain(alone) {
            let summary =
                comparison.and_then(|comparison| comparison.ratio.as_ref()).map(|ratio| ratio.summary);
            let peer = comparison.map_or(NONE, |comparison| &comparison.peer);
            let absolute = absolutes.iter().find(|absolute| absolute.contestant == peer);
            table.add_row([
                point.path.to_string(),
                point.frame_bytes.to_string(),
                point.burst_frames.to_string(),
                peer.into(),
                number(summary.map(|summary| summary.median), 2),
                summary
                    .map_or_else(|| NONE.into(), |summary| format!("{:.2}-{:.2}", summary.min, summary.max)),
                ours.map_or_else(|| NONE.into(), mpps),
                absolute.map_or_else(|| NONE.into(), mpps),
                match comparison {
                    Some(_) => format!("{our_layer1} / {}", absolute.map_or_else(|| NONE.into(), gbps)),
                    None => our_layer1.clone(),
                },
                match comparison {
                    Some(_) => format!("{our_cycles} / {}", absolute.map_or_else(|| NONE.into(), cycles)),
                    None => our_cycles.clone(),
                },
            ]);
        }
    }
    table
}

/// Column of a table with a row for each contestant: its heading and its cells.
type Column<'a> = (String, Box<dyn Fn(&PointReport, &Absolute) -> String + 'a>);

fn column<'a>(heading: &str, cell: impl Fn(&PointReport, &Absolute) -> String + 'a) -> Column<'a> {
    (heading.into(), Box::new(cell))
}

/// Returns the columns of conditions, contestant and rate.
fn rate_columns<'a>() -> Vec<Column<'a>> {
    vec![
        column("path", |report, _| report.point.path.to_string()),
        column("size B", |report, _| report.point.frame_bytes.to_string()),
        column("burst", |report, _| report.point.burst_frames.to_string()),
        column("", |_, absolute| absolute.contestant.clone()),
        column("Mpps", |_, absolute| mpps(absolute)),
    ]
}

/// Returns the columns of processor time, which matters as much as the ratio.
fn cost_columns<'a>() -> [Column<'a>; 2] {
    [
        column("user ns/frame", |_, absolute| {
            number(absolute.cpu_cost.map(|cost| cost.user_ns_per_frame), 0)
        }),
        column("kernel ns/frame", |_, absolute| {
            number(absolute.cpu_cost.map(|cost| cost.kernel_ns_per_frame), 0)
        }),
    ]
}

/// Makes a table with a row for each contestant.
fn by_contestant(points: &[&PointReport], columns: &[Column<'_>], width: Option<u16>) -> Table {
    let header: Vec<&str> = columns.iter().map(|(heading, _)| heading.as_str()).collect();
    let mut table = empty(&header, width);
    for report in points {
        for absolute in &report.absolutes {
            table.add_row(columns.iter().map(|(_, cell)| cell(report, absolute)));
        }
    }
    table
}

fn overhead(points: &[&PointReport], width: Option<u16>) -> Table {
    // The path is the same in each row.
    let mut columns = rate_columns().split_off(1);
    columns.extend([
        column("ns/frame", |_, absolute| number(absolute.ns_per_frame, 2)),
        column("cycles/frame", |_, absolute| cycles(absolute)),
        column("Ringroad's ratio", |report, absolute| ratio_of(report, None, absolute)),
    ]);
    by_contestant(points, &columns, width)
}

fn interfaces(points: &[&PointReport], width: Option<u16>) -> Table {
    let mut columns = rate_columns();
    columns.extend([
        column("Ringroad's ratio", |report, absolute| ratio_of(report, None, absolute)),
        column("offered Mpps", |_, absolute| number(absolute.offered_fps.map(|fps| fps / 1e6), 2)),
    ]);
    columns.extend(cost_columns());
    by_contestant(points, &columns, width)
}

/// Makes a table with a ratio for each of Ringroad's contestants.
fn ways(points: &[&PointReport], width: Option<u16>) -> Table {
    let mut ours: Vec<&str> = Vec::new();
    for series in points.iter().flat_map(|report| &report.series).filter(|series| series.ours) {
        if !ours.contains(&series.contestant.as_str()) {
            ours.push(&series.contestant);
        }
    }
    let mut columns = rate_columns();
    columns.push(column("ns/frame", |_, absolute| number(absolute.ns_per_frame, 1)));
    if points.iter().any(|report| !report.point.path.is_veth()) {
        columns.push(column("cycles/frame", |_, absolute| cycles(absolute)));
    }
    columns.extend(ours.into_iter().map(|ours| {
        column(&format!("ratio of {ours}"), move |report, absolute| ratio_of(report, Some(ours), absolute))
    }));
    if points.iter().any(|report| report.point.path.is_gen()) {
        columns.extend(cost_columns());
    }
    by_contestant(points, &columns, width)
}

/// Makes a table with a row for each step of a send, and what the step adds to the one before it.
fn steps(points: &[&PointReport], width: Option<u16>) -> Table {
    let added = |report: &PointReport, absolute: &Absolute| {
        let at = report.absolutes.iter().position(|other| other.contestant == absolute.contestant)?;
        let before = at.checked_sub(1)?;
        let is_of_same_kind = report.series.get(at)?.ours == report.series.get(before)?.ours;
        Some(absolute.ns_per_frame? - report.absolutes.get(before)?.ns_per_frame?).filter(|_| is_of_same_kind)
    };
    let whole = |report: &PointReport, absolute: &Absolute| {
        let ours = report.series.iter().rfind(|series| series.ours)?;
        Some(ratio_of(report, Some(&ours.contestant), absolute))
    };
    let mut columns = rate_columns().split_off(1);
    columns.extend([
        column("ns/frame", |_, absolute| number(absolute.ns_per_frame, 1)),
        column("added ns", move |report, absolute| number(added(report, absolute), 1)),
        column("cycles/frame", |_, absolute| cycles(absolute)),
        column("ratio of Ringroad's last step", move |report, absolute| {
            whole(report, absolute).unwrap_or_else(|| NONE.into())
        }),
    ]);
    columns.extend(cost_columns());
    by_contestant(points, &columns, width)
}

/// Formats the ratio of Ringroad's contestant `ours`, or of the only one, to another contestant; "-" for Ringroad
/// itself.
fn ratio_of(report: &PointReport, ours: Option<&str>, absolute: &Absolute) -> String {
    let wanted = |comparison: &&Comparison| {
        comparison.peer == absolute.contestant && (ours.is_none() || comparison.ours.as_deref() == ours)
    };
    let comparison = report.ratios.iter().find(wanted);
    let ratio = comparison.and_then(|comparison| comparison.ratio.as_ref());
    ratio.map_or_else(|| NONE.into(), |ratio| range(&ratio.summary, 1.0))
}

fn notes(report: &BenchReport, text: &mut String) {
    for absent in &report.absent {
        let _ = writeln!(text, "Not compared: {}: {}", absent.name, absent.reason);
    }
    for (point, series, invalid) in report.points.iter().flat_map(|point| {
        point
            .absolutes
            .iter()
            .filter(|absolute| absolute.invalid_samples > 0)
            .map(|absolute| (&point.point, &absolute.contestant, absolute.invalid_samples))
    }) {
        let _ = writeln!(text, "Invalid: {point}: {series}: {invalid} samples (reasons in the JSON)");
    }
    for (point, absolute, wait) in report.points.iter().flat_map(|point| {
        point.absolutes.iter().filter_map(|absolute| Some((&point.point, absolute, absolute.cpu_wait?)))
    }) {
        if wait > DISTURBED {
            let (name, percent) = (&absolute.contestant, wait * 100.0);
            let _ =
                writeln!(text, "Disturbed: {point}: {name} waited for its CPU {percent:.0} % of the time");
        }
    }
    let _ = writeln!(text, "Work per frame:");
    for contestant in &report.contestants {
        let _ =
            writeln!(text, "  {}: {} [{}]", contestant.name, contestant.work_per_frame, contestant.memory);
    }
    let _ = writeln!(
        text,
        "Rates: {}. Sizes: {}. L1: {}. Ratio: {}. {} rounds of {} s, CPUs {} and {}.",
        CONVENTIONS.rate,
        CONVENTIONS.frame_size,
        CONVENTIONS.layer1,
        CONVENTIONS.ratio,
        report.plan.rounds,
        report.plan.sample.as_secs_f64(),
        report.cores.first,
        report.cores.second,
    );
    let machine = &report.machine;
    let _ = writeln!(
        text,
        "Machine: {}, {} CPUs, {}, {}, load {}, steal {} %.",
        machine.cpu_model.as_deref().unwrap_or("unknown processor"),
        machine.online_cpus,
        if machine.hypervisor { "virtual" } else { "not virtual" },
        machine.kernel,
        number(machine.load_average.map(|[one, ..]| one), 2),
        number(report.steal_percent, 1),
    );
    if report.stopped {
        let _ = writeln!(text, "The run was stopped before its end.");
    }
}

fn empty(header: &[&str], width: Option<u16>) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    if let Some(width) = width {
        table.set_width(width);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn mpps(absolute: &Absolute) -> String {
    absolute.frames_per_second.map_or_else(|| NONE.into(), |rate| range(&rate, 1e-6))
}

fn gbps(absolute: &Absolute) -> String {
    number(absolute.layer1_gbps, 1)
}

fn cycles(absolute: &Absolute) -> String {
    number(absolute.cycles_per_frame, 1)
}

/// Formats "median (min-max)", scaled.
fn range(summary: &ValueSummary, scale: f64) -> String {
    format!("{:.2} ({:.2}-{:.2})", summary.median * scale, summary.min * scale, summary.max * scale)
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| NONE.into(), |value| format!("{value:.decimals$}"))
}
