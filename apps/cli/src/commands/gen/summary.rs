//! Text of a generator's report.

use ringroad_generator::SessionReport;
use ringroad_generator::report::{ArrivalReport, LoadReport, PortResult};
use ringroad_generator::series::Interval;
use ringroad_traffic::meter::StreamSummary;

use crate::output::rates::{CONVENTION, frame_rate, grouped, reconnections, span, traffic_rate};

/// Maximum number of streams of a load that are listed; for more streams only their sum is shown.
const MOST_STREAMS: usize = 16;

/// Formats the whole report.
pub(crate) fn text(report: &SessionReport) -> String {
    let mut lines = Vec::new();
    for load in &report.loads {
        tell_load(load, &mut lines);
    }
    for port in &report.ports {
        tell_port(port, report, &mut lines);
    }
    lines.push(format!(
        "clock: {}, {} off the system's at most; {CONVENTION}",
        report.clock.source,
        span(report.clock.max_ns as f64)
    ));
    lines.join("\n")
}

/// Formats one interval in one line.
pub(super) fn interval(interval: &Interval) -> String {
    let sent =
        interval.loads.iter().map(|load| format!("{} sent {}", load.load, frame_rate(load.sent.rate_fps)));
    let received = interval.ports.iter().filter(|port| port.received.frames > 0).map(|port| {
        let total = &port.test_frames.total;
        let latency = total.latency.map_or(String::new(), |latency| {
            format!(", latency {} mean, {} p99", span(latency.mean_ns), span(latency.p99_ns as f64))
        });
        format!("{} received {}, {} lost{latency}", port.port, frame_rate(port.received.rate_fps), total.lost)
    });
    format!("{:8.1} s  {}", interval.until_s, sent.chain(received).collect::<Vec<_>>().join("; "))
}

fn tell_load(load: &LoadReport, lines: &mut Vec<String>) {
    let targets: Vec<&str> = load.arrivals.iter().map(|arrival| arrival.port.as_str()).collect();
    let route = if targets.is_empty() {
        load.from.clone()
    } else {
        format!("{} → {}", load.from, targets.join(", "))
    };
    lines.push(format!(
        "{route}: {} frames of {:.0} bytes in {:.3} s: {}",
        grouped(load.sent.frames),
        load.mean_size_bytes,
        load.offered.elapsed_ns as f64 / 1e9,
        traffic_rate(&load.rate)
    ));
    if let Some(intended_fps) = load.intended_fps {
        let offered = &load.offered;
        let part = if offered.intended_frames == 0 {
            0.0
        } else {
            offered.sent_frames as f64 / offered.intended_frames as f64 * 100.0
        };
        lines.push(format!(
            "  offered: {part:.4} % of {} meant ({}, {}); {} frames skipped for being late",
            frame_rate(intended_fps),
            load.intended_rate,
            load.shape,
            grouped(offered.skipped_frames),
        ));
    }
    if let Some(timing) = &load.timing {
        let (late, gap) = (&timing.lateness, &timing.inter_departure);
        lines.push(format!(
            "  departures: late by {} on average, {} p99; gaps off by {} on average, {} p99, {} at most",
            span(late.mean_ns),
            span(late.p99_ns as f64),
            span(gap.mean_ns),
            span(gap.p99_ns as f64),
            span(gap.max_ns as f64),
        ));
    }
    load.arrivals.iter().for_each(|arrival| tell_arrival(arrival, "  ", lines));
    if load.streams.len() <= MOST_STREAMS {
        for stream in &load.streams {
            lines.push(format!("  {}: {} frames sent", stream.stream, grouped(stream.sent_frames)));
            stream.arrivals.iter().for_each(|arrival| tell_arrival(arrival, "    ", lines));
        }
    }
}

fn tell_arrival(arrival: &ArrivalReport, indent: &str, lines: &mut Vec<String>) {
    let stream = &arrival.stream;
    lines.push(format!("{indent}{}: {}", arrival.port, counts(stream)));
    lines.extend(delay(stream).map(|delay| format!("{indent}  {delay}")));
    lines.extend(reordering(stream).map(|reordering| format!("{indent}  {reordering}")));
}

/// Formats the counters of loss and other faults of frames.
pub(crate) fn counts(stream: &StreamSummary) -> String {
    format!(
        "{} received, {} lost{}, {} duplicate, {} reordered, {} corrupted{}",
        grouped(stream.received),
        grouped(stream.lost),
        stream
            .loss_ratio
            .filter(|_| stream.lost > 0)
            .map_or(String::new(), |ratio| format!(" ({:.4} %)", ratio * 100.0)),
        grouped(stream.duplicates),
        grouped(stream.reordered),
        grouped(stream.corrupted),
        if stream.stale > 0 {
            format!(", {} too late to classify", grouped(stream.stale))
        } else {
            String::new()
        },
    )
}

/// Formats latency and jitter, if they were measured.
pub(crate) fn delay(stream: &StreamSummary) -> Option<String> {
    let latency = stream.delay.latency_ns.as_ref()?;
    let percentiles = [
        ("p50", latency.p50),
        ("p90", latency.p90),
        ("p99", latency.p99),
        ("p99.9", latency.p99_9),
        ("p99.99", latency.p99_99),
        ("p99.999", latency.p99_999),
        ("max", latency.max),
    ];
    let percentiles: Vec<String> =
        percentiles.iter().map(|(name, value_ns)| format!("{name} {}", span(*value_ns as f64))).collect();
    let jitter = stream.delay.jitter_ns.map_or(String::new(), |jitter| format!("; jitter {}", span(jitter)));
    let negative = match stream.delay.negative {
        0 => String::new(),
        frames => format!("; {} frames arrived before they were sent, by the clocks", grouped(frames)),
    };
    Some(format!(
        "latency min {}, mean {}, {}{jitter}{negative}",
        span(latency.min as f64),
        span(latency.mean),
        percentiles.join(", ")
    ))
}

fn reordering(stream: &StreamSummary) -> Option<String> {
    let extent = stream.reordering.extent_frames.as_ref()?;
    Some(format!(
        "reordered by {:.1} frames on average, {} at most; longest run without {}",
        extent.mean,
        extent.max,
        grouped(stream.reordering.longest_free_run_frames)
    ))
}

fn tell_port(port: &PortResult, report: &SessionReport, lines: &mut Vec<String>) {
    let received = &port.received;
    // A port that expects no frames may get other ports' frames, since switches flood.
    let expects =
        report.loads.iter().any(|load| load.arrivals.iter().any(|arrival| arrival.port == port.port));
    let mut told = Vec::new();
    for (frames, what) in [
        (received.foreign_frames, "foreign frames"),
        (received.corrupted_unattributed, "damaged test frames of no known stream"),
        (if expects { received.unknown_stream_frames } else { 0 }, "test frames expected at another port"),
        (received.earlier_frames, "test frames of a previous run"),
        (port.unsent_slots, "slots handed over that the other side did not take"),
    ] {
        if frames > 0 {
            told.push(format!("{} {what}", grouped(frames)));
        }
    }
    if let Some(frames) = port.port_timed_frames {
        told.push(format!("{} frames with the port's own arrival times", grouped(frames)));
    }
    if port.blocked_ns > 0 {
        told.push(format!("waited {} for room in its ring", span(port.blocked_ns as f64)));
    }
    if !told.is_empty() {
        lines.push(format!("{}: {}", port.port, told.join(", ")));
    }
    lines.extend(reconnections(&port.reconnections));
}
