//! `ringroad status`.

use std::fmt::Write;

use clap::Args;
use ringroad_control::report::{
    CounterReport, OpenFlowReport, StartedBy, StatusReport, SwitchReport, WorkerReport, WorkerState,
};

use super::list::{ports_table, waiting};
use super::switch::{memory, refused_tools};
use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::output::rates::{grouped, size};
use crate::output::table::{drops, table};
use crate::verb::MainVerb;

/// Show the daemon, its workers, switches and ports
///
/// For each switch it shows the balance: frames in, plus copies made by flooding, minus frames out and drops. The
/// balance is the number of frames in transit, and 0 once traffic has stopped.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {}

impl MainVerb for StatusArgs {
    const EXAMPLES: &str = "\
ringroad status
ringroad status --json | jq .workers";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        output.result(&global.connect()?.status()?, text)
    }
}

fn text(status: &StatusReport) -> String {
    let mut text = String::new();
    let started = match status.started {
        StartedBy::OnDemand => "on demand",
        StartedBy::Command => "by a command",
        StartedBy::ServiceManager => "by a service manager",
        _ => "otherwise",
    };
    let config = status.config.as_deref().unwrap_or("none");
    // Writing into a string cannot fail.
    let _ = writeln!(
        text,
        "ringroadd {}: process {}, up {}, started {started}\nsocket {}, configuration {config}\n\
         shared memory {}{}, of which {} in huge pages; {} requests rejected",
        status.version,
        status.pid,
        span(status.uptime_s),
        status.socket,
        size(status.shared_memory_bytes),
        by_user(status),
        size(status.huge_page_bytes),
        grouped(status.rejected_requests),
    );
    let _ = write!(text, "\n{}\n{}", workers(status), switches(status));
    let flow_switches = status.switches.iter().filter_map(|switch| switch.openflow.as_ref());
    for report in flow_switches {
        let _ = writeln!(text, "{}", flow_tables(report));
    }
    let _ = write!(text, "\n{}{}", ports_table(&status.ports), waiting(&status.waiting));
    text
}

/// Lists the users that hold shared memory, if there is more than one.
fn by_user(status: &StatusReport) -> String {
    if status.shared_memory_by_user.len() < 2 {
        return String::new();
    }
    let users = status.shared_memory_by_user.iter();
    let users: Vec<_> = users.map(|(uid, bytes)| format!("user {uid} {}", size(*bytes))).collect();
    format!(" ({})", users.join(", "))
}

fn workers(status: &StatusReport) -> String {
    table(
        &status.workers,
        &[
            (">worker", |worker| worker.index.to_string()),
            (">CPU", |worker| worker.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string())),
            ("state", |worker| state(worker).to_owned()),
            (">CPU time", |worker| format!("{:.1} s", worker.cpu_time_ns as f64 / 1e9)),
            (">busy time", |worker| format!("{:.1} s", worker.busy_ns as f64 / 1e9)),
            (">loops", |worker| grouped(worker.loops)),
            (">busy", |worker| grouped(worker.busy_loops)),
            (">sleeps", |worker| grouped(worker.sleeps)),
            (">kicks", |worker| grouped(worker.kicks_received)),
        ],
        "no workers",
    )
}

fn state(worker: &WorkerReport) -> &'static str {
    match worker.state {
        WorkerState::Running => "running",
        WorkerState::Sleeping => "sleeping",
        WorkerState::Stopped => "stopped",
        _ => "unknown",
    }
}

fn switches(status: &StatusReport) -> String {
    table(
        &status.switches,
        &[
            ("switch", |switch| switch.name.clone()),
            (">ports", |switch| switch.ports.to_string()),
            (">addresses", |switch| switch.macs.to_string()),
            (">frames in", |switch| grouped(switch.totals.received_frames)),
            (">copies", |switch| grouped(switch.replicated_frames)),
            (">frames out", |switch| grouped(switch.totals.delivered_frames)),
            (">on their way", |switch| unaccounted(switch).to_string()),
            ("drops", |switch| drops(&switch.totals.drops)),
        ],
        "no switches",
    )
}

/// Formats a line about a switch with flow tables.
fn flow_tables(report: &OpenFlowReport) -> String {
    let mut words = format!("{}: {} flows", report.settings.switch, grouped(report.flows));
    let counts = [(report.groups, "groups"), (report.meters, "meters")];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(words, ", {} {what}", grouped(count));
    }
    let controllers = controllers(report.connected_controllers(), report.controllers.len());
    let _ =
        write!(words, ", {} MiB, {controllers}, {} packet-ins", memory(report), grouped(report.packet_ins));
    if report.metered_packet_ins > 0 {
        let _ = write!(words, " ({} more metered)", grouped(report.metered_packet_ins));
    }
    if report.refused_tools > 0 {
        let _ = write!(words, ", refused {}", refused_tools(report));
    }
    if !report.waiting.is_empty() {
        let _ = write!(words, "; waiting: {}", report.waiting);
    }
    words
}

/// Formats how many of a switch's controllers are connected.
pub(super) fn controllers(connected: usize, all: usize) -> String {
    if all == 0 { "no controller".to_owned() } else { format!("{connected} of {all} controllers") }
}

/// Returns the number of received and replicated frames that were neither delivered nor dropped.
pub(super) fn unaccounted(switch: &SwitchReport) -> i128 {
    let CounterReport { received_frames, delivered_frames, drops, .. } = &switch.totals;
    let dropped: i128 = drops.values().map(|frames| i128::from(*frames)).sum();
    i128::from(*received_frames) + i128::from(switch.replicated_frames)
        - i128::from(*delivered_frames)
        - dropped
}

/// Formats seconds in the two greatest units of days, hours, minutes and seconds.
fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_switch_without_loss_has_no_frames_in_transit() {
        let totals = CounterReport {
            received_frames: 100,
            delivered_frames: 180,
            drops: BTreeMap::from([("no_space".to_owned(), 20)]),
            ..CounterReport::default()
        };
        let mut switch = SwitchReport {
            name: "vale0".into(),
            ports: 3,
            macs: 2,
            evictions: 0,
            refused_moves: 0,
            replicated_frames: 100,
            totals,
            openflow: None,
        };
        assert_eq!(unaccounted(&switch), 0);
        switch.totals.delivered_frames -= 1;
        assert_eq!(unaccounted(&switch), 1);
    }

    #[test]
    fn durations_show_their_two_greatest_units() {
        for (seconds, text) in [(59, "59 s"), (61, "1 min 1 s"), (3661, "1 h 1 min"), (90_000, "1 d 1 h")] {
            assert_eq!(span(seconds), text);
        }
    }
}
