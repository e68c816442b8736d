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
    let (floor, paths): (Vec<&PointReport>, Vec<&PointReport>) =
        report.points.iter().partition(|point| point.point.path == FramePath::Null);
    let (generators, paths): (Vec<&PointReport>, Vec<&PointReport>) =
        paths.into_iter().partition(|point| point.point.path.is_gen());
    let (veth, memory): (Vec<&PointReport>, Vec<&PointReport>) =
        paths.into_iter().partition(|point| point.point.path.is_veth());
    let (netmap, memory): (Vec<&PointReport>, Vec<&PointReport>) =
        memory.into_iter().partition(|point| point.point.path.is_netmap());
    if !memory.is_empty() {
        let _ = writeln!(text, "{}\n", ratios(&memory, width));
    }
    if !netmap.is_empty() {
        let table = ways(&netmap, Cost::NotMeasured, width);
        let _ = writeln!(text, "Programs written for netmap, and the native ones:\n{table}\n");
    }
    if !veth.is_empty() {
        let _ = writeln!(
            text,
            "Network interfaces (veth), one program on one core:\n{}\n",
            interfaces(&veth, width)
        );
    }
    if !generators.is_empty() {
        let table = ways(&generators, Cost::Measured, width);
        let _ = writeln!(text, "Generators, one on one core:\n{table}\n");
    }
    if !veth.is_empty() || !generators.is_empty() {
        let _ = writeln!(text, "Processor time: {}.\n", CONVENTIONS.cpu_cost);
    }
    if !floor.is_empty() {
        let _ = writeln!(text, "Overhead floor (null ports, one core):\n{}\n", overhead(&floor, width));
    }
    notes(report, &mut text);
    text
}

fn ratios(points: &[&PointReport], width: Option<u16>) -> Table {
    let mut table = empty(
        &["path", "size B", "burst", "peer", "ratio", "min-max", "Ringroad Mpps", "peer Mpps", "Gbit/s L1"],
        width,
    );
    for report in points {
        let ours =
            report.series.iter().position(|series| series.ours).and_then(|at| report.absolutes.get(at));
        let condition = |rest: [String; 6]| {
            let [peer, ratio, range, our_rate, rate, layer1] = rest;
            let point = &report.point;
            vec![
                point.path.to_string(),
                point.frame_bytes.to_string(),
                point.burst_frames.to_string(),
                peer,
                ratio,
                range,
                our_rate,
                rate,
                layer1,
            ]
        };
        let our_rate = ours.map_or_else(|| NONE.into(), mpps);
        let our_layer1 = ours.map_or_else(|| NONE.into(), gbps);
        for comparison in &report.ratios {
            let summary = comparison.ratio.as_ref().map(|ratio| ratio.summary);
            let peer = report.absolutes.iter().find(|absolute| absolute.contestant == comparison.peer);
            table.add_row(condition([
                comparison.peer.clone(),
                summary.map_or_else(|| NONE.into(), |summary| format!("{:.2}", summary.median)),
                summary
                    .map_or_else(|| NONE.into(), |summary| format!("{:.2}-{:.2}", summary.min, summary.max)),
                our_rate.clone(),
                peer.map_or_else(|| NONE.into(), mpps),
                format!("{our_layer1} / {}", peer.map_or_else(|| NONE.into(), gbps)),
            ]));
        }
        if report.ratios.is_empty() {
            table.add_row(condition([NONE, NONE, NONE, &our_rate, NONE, &our_layer1].map(String::from)));
        }
    }
    table
}

fn overhead(points: &[&PointReport], width: Option<u16>) -> Table {
    let mut table =
        empty(&["size B", "burst", "", "Mpps", "ns/frame", "cycles/frame", "Ringroad's ratio"], width);
    for report in points {
        for absolute in &report.absolutes {
            table.add_row(vec![
                report.point.frame_bytes.to_string(),
                report.point.burst_frames.to_string(),
                absolute.contestant.clone(),
                mpps(absolute),
                number(absolute.ns_per_frame, 2),
                number(absolute.cycles_per_frame, 1),
                ratio_to(report, absolute),
            ]);
        }
    }
    table
}

/// Makes a table with a row for each contestant: processor time matters as much as the ratio.
fn interfaces(points: &[&PointReport], width: Option<u16>) -> Table {
    let mut table = empty(
        &[
            "path",
            "size B",
            "burst",
            "",
            "Mpps",
            "Ringroad's ratio",
            "offered Mpps",
            "user ns/frame",
            "kernel ns/frame",
        ],
        width,
    );
    for report in points {
        for absolute in &report.absolutes {
            table.add_row(vec![
                report.point.path.to_string(),
                report.point.frame_bytes.to_string(),
                report.point.burst_frames.to_string(),
                absolute.contestant.clone(),
                mpps(absolute),
                ratio_to(report, absolute),
                number(absolute.offered_fps.map(|fps| fps / 1e6), 2),
                number(absolute.cpu_cost.map(|cost| cost.user_ns_per_frame), 0),
                number(absolute.cpu_cost.map(|cost| cost.kernel_ns_per_frame), 0),
            ]);
        }
    }
    table
}

/// Whether the processor time per frame is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cost {
    Measured,
    NotMeasured,
}

/// Makes a table with a row for each contestant, and a ratio for each of Ringroad's contestants.
fn ways(points: &[&PointReport], cost: Cost, width: Option<u16>) -> Table {
    let mut ours: Vec<&str> = Vec::new();
    for series in points.iter().flat_map(|report| &report.series).filter(|series| series.ours) {
        if !ours.contains(&series.contestant.as_str()) {
            ours.push(&series.contestant);
        }
    }
    let ratios: Vec<String> = ours.iter().map(|ours| format!("ratio of {ours}")).collect();
    let mut header = vec!["path", "size B", "burst", "", "Mpps", "ns/frame"];
    header.extend(ratios.iter().map(String::as_str));
    if cost == Cost::Measured {
        header.extend(["user ns/frame", "kernel ns/frame"]);
    }
    let mut table = empty(&header, width);
    for report in points {
        for absolute in &report.absolutes {
            let mut row = vec![
                report.point.path.to_string(),
                report.point.frame_bytes.to_string(),
                report.point.burst_frames.to_string(),
                absolute.contestant.clone(),
                mpps(absolute),
                number(absolute.ns_per_frame, 1),
            ];
            row.extend(ours.iter().map(|ours| ratio_of(report, Some(ours), absolute)));
            if cost == Cost::Measured {
                row.push(number(absolute.cpu_cost.map(|cost| cost.user_ns_per_frame), 0));
                row.push(number(absolute.cpu_cost.map(|cost| cost.kernel_ns_per_frame), 0));
            }
            table.add_row(row);
        }
    }
    table
}

/// Formats Ringroad's ratio to a contestant; "-" for Ringroad itself.
fn ratio_to(report: &PointReport, absolute: &Absolute) -> String {
    ratio_of(report, None, absolute)
}

/// Formats the ratio of Ringroad's contestant `ours`, or of the only one, to another contestant.
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

/// Formats "median (min-max)", scaled.
fn range(summary: &ValueSummary, scale: f64) -> String {
    format!("{:.2} ({:.2}-{:.2})", summary.median * scale, summary.min * scale, summary.max * scale)
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| NONE.into(), |value| format!("{value:.decimals$}"))
}
