//! A status report in the text format of OpenMetrics 1.0 (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).
//!
//! Counters of a switch include ports that have left it, so they never decrease while the daemon runs. Counters of a
//! port begin anew with the port.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabel, EncodeLabelSet, LabelSetEncoder,
    NoLabelSet, text,
};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge};
use prometheus_client::registry::Registry;
use ringroad_control::report::{
    CounterReport, FlowTableReport, LinkReport, MOST_TURN_FRAMES, OpenFlowReport, PortReport, Statistic,
    StatusReport, SwitchReport, WorkerReport, WorkerState,
};

/// Formats a daemon's status report as metrics.
#[must_use]
pub fn exposition(status: StatusReport) -> String {
    let mut registry = Registry::with_prefix("ringroad");
    registry.register_collector(Box::new(Metrics(status)));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = text::encode(&mut text, &registry);
    text
}

/// Names and values of the labels.
type Labels = Vec<(&'static str, String)>;

/// A metric of a report: its kind, name and help, and its value.
type Metric<R, V> = (MetricType, &'static str, &'static str, fn(&R) -> V);

const DAEMON: &[Metric<StatusReport, u64>] = &[
    (Gauge, "uptime_seconds", "Time since the daemon started", |status| status.uptime_s),
    (Counter, "rejected_requests", "Requests answered with an error", |status| status.rejected_requests),
    (Gauge, "shared_memory_bytes", "Memory of all regions", |status| status.shared_memory_bytes),
    (Gauge, "huge_page_bytes", "Part of it in huge pages", |status| status.huge_page_bytes),
];
const WORKER_TURNS: &[Metric<WorkerReport, u64>] = &[
    (Counter, "worker_turns", "Turns over the ports", |worker| worker.loops),
    (Counter, "worker_busy_turns", "Turns that moved frames", |worker| worker.busy_loops),
];
const WORKER_SECONDS: &[Metric<WorkerReport, f64>] = &[
    (Counter, "worker_busy_seconds", "Time of the turns that moved frames", |worker| seconds(worker.busy_ns)),
    (Counter, "worker_cpu_seconds", "Processor time", |worker| seconds(worker.cpu_time_ns)),
];
const WORKER_SLEEPS: &[Metric<WorkerReport, u64>] = &[
    (Counter, "worker_sleeps", "Times that it went to sleep", |worker| worker.sleeps),
    (Counter, "worker_kicks", "Times that a program woke it", |worker| worker.kicks_received),
    (Gauge, "worker_up", "1 unless it has ended", |worker| (worker.state != WorkerState::Stopped).into()),
];
const SWITCH: &[Metric<SwitchReport, u64>] = &[
    (Gauge, "switch_ports", "Ports", |switch| switch.ports.into()),
    (Gauge, "switch_addresses", "Addresses that are known", |switch| switch.macs.into()),
    (Counter, "switch_address_evictions", "Addresses forgotten for want of room", |switch| switch.evictions),
    (
        Counter,
        "switch_refused_moves",
        "Frames from a static address on another port than the address's",
        |switch| switch.refused_moves,
    ),
    (
        Counter,
        "switch_replicated_frames",
        "Copies of frames beyond the first, and segments of long frames beyond the first",
        |switch| switch.replicated_frames,
    ),
];
const FLOW_TABLES: &[Metric<OpenFlowReport, u64>] = &[
    (Gauge, "openflow_controllers", "Controllers that it is configured to connect to", |report| {
        report.controllers.len() as u64
    }),
    (Gauge, "openflow_connected_controllers", "Controllers that are connected", |report| {
        report.connected_controllers() as u64
    }),
    (Gauge, "openflow_groups", "Groups", |report| report.groups),
    (Gauge, "openflow_meters", "Meters", |report| report.meters),
    (Gauge, "openflow_memory_bytes", "Memory that entries, groups and meters are charged for", |report| {
        report.memory_bytes
    }),
    (Gauge, "openflow_memory_limit_bytes", "The most that this may be", |report| report.memory_limit_bytes),
    (Counter, "openflow_flow_mods", "Changes of flow entries", |report| report.flow_mods),
    (Counter, "openflow_packet_ins", "Frames for controllers", |report| report.packet_ins),
    (
        Counter,
        "openflow_metered_packet_ins",
        "Frames that the meters of the controllers have kept from them",
        |report| report.metered_packet_ins,
    ),
    (
        Counter,
        "openflow_dropped_news",
        "Messages that controllers did not get because they did not read",
        |report| report.dropped_news,
    ),
    (
        Counter,
        "openflow_dropped_packet_outs",
        "Packets of controllers that the switch did not take",
        |report| report.dropped_packet_outs,
    ),
];
const FLOW_TABLE: &[Metric<FlowTableReport, u64>] = &[
    (Gauge, "openflow_table_flows", "Flow entries", |table| table.flows),
    (Counter, "openflow_table_lookups", "Frames that arrived at it", |table| table.lookups),
    (Counter, "openflow_table_matches", "Frames that an entry matched", |table| table.matches),
];
const PORT: &[Metric<PortReport, u64>] = &[
    (Gauge, "port_up", "1 unless it is stopped by an error", |port| port.error.is_none().into()),
    (Gauge, "port_bound", "1 if a program or device serves it", |port| port.bound.into()),
];
const LINK: &[Metric<LinkReport, u64>] =
    &[(Gauge, "port_link_running", "1 if its interface has a carrier", |link| link.running.into())];

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

struct LabelSet<'a>(&'a Labels);

impl EncodeLabelSet for LabelSet<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> Result<(), Error> {
        self.0.iter().try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

#[derive(Debug)]
struct Metrics(StatusReport);

/// Writer of metric families. The format requires all values of one name together.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    /// Writes one family, with a value of each source.
    fn write<S, V: EncodeCounterValue + EncodeGaugeValue>(
        &mut self,
        kind: MetricType,
        name: &str,
        help: &str,
        sources: &[(Labels, S)],
        value: impl Fn(&S) -> V,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, source) in sources {
            let labels = LabelSet(labels);
            let mut encoder = family.encode_family(&labels)?;
            match kind {
                Counter => encoder.encode_counter::<NoLabelSet, _, u64>(&value(source), None)?,
                _ => encoder.encode_gauge(&value(source))?,
            }
        }
        Ok(())
    }

    fn write_all<R, V: EncodeCounterValue + EncodeGaugeValue>(
        &mut self,
        reports: &[(Labels, &R)],
        metrics: &[Metric<R, V>],
    ) -> Result<(), Error> {
        metrics.iter().try_for_each(|(kind, name, help, value)| {
            self.write(*kind, name, help, reports, |report| value(report))
        })
    }

    /// Writes the counters of switches, ports or queues.
    fn frame_counters(&mut self, of: &str, reports: &[(Labels, &CounterReport)]) -> Result<(), Error> {
        for Statistic { name, help, is_gauge, value, .. } in Statistic::ALL {
            let kind = if *is_gauge { Gauge } else { Counter };
            self.write(kind, &format!("{of}_{name}"), help, reports, |report| value(report))?;
        }
        let drops = reports.iter().flat_map(|(labels, report)| {
            report.drops.iter().map(move |(cause, frames)| (with(labels, "cause", cause), *frames))
        });
        let drops: Vec<_> = drops.collect();
        let name = format!("{of}_dropped_frames");
        self.write(Counter, &name, "Frames dropped, by cause", &drops, |frames| *frames)
    }
}

/// Returns the labels and one more.
fn with(labels: &Labels, name: &'static str, value: &impl ToString) -> Labels {
    [&labels[..], &[(name, value.to_string())]].concat()
}

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), Error> {
        let mut families = Families(encoder);
        let status = &self.0;
        let version = [(vec![("version", status.version.clone())], 1u64)];
        families.write(Gauge, "build_info", "The daemon's version", &version, |one| *one)?;
        families.write_all(&[(vec![], status)], DAEMON)?;
        let users = status.shared_memory_by_user.iter();
        let users: Vec<_> = users.map(|(user, bytes)| (vec![("user", user.to_string())], *bytes)).collect();
        let help = "Memory of the regions of a user";
        families.write(Gauge, "user_shared_memory_bytes", help, &users, |bytes| *bytes)?;
        let waiting: Vec<_> =
            status.waiting.keys().map(|port| (vec![("port", port.clone())], 1u64)).collect();
        let help = "1 for each port whose device is missing or busy";
        families.write(Gauge, "waiting_ports", help, &waiting, |one| *one)?;
        workers(&mut families, &status.workers)?;
        switches(&mut families, &status.switches)?;
        ports(&mut families, &status.ports)
    }
}

fn workers(families: &mut Families<'_>, workers: &[WorkerReport]) -> Result<(), Error> {
    let workers: Vec<_> =
        workers.iter().map(|worker| (vec![("worker", worker.index.to_string())], worker)).collect();
    families.write_all(&workers, WORKER_TURNS)?;
    families.write_all(&workers, WORKER_SECONDS)?;
    families.write_all(&workers, WORKER_SLEEPS)?;
    let help = "Frames of each turn that moved any";
    let mut family = families.0.encode_descriptor("worker_turn_frames", help, None, MetricType::Histogram)?;
    for (labels, worker) in &workers {
        let bounds =
            (0..).map(|power| f64::from(1u32 << power)).take_while(|bound| *bound <= MOST_TURN_FRAMES as f64);
        let buckets: Vec<_> = bounds
            .chain([f64::MAX])
            .zip(worker.turn_frames.iter().copied().chain(std::iter::repeat(0)))
            .collect();
        let turns = buckets.iter().map(|(_, turns)| turns).sum();
        let labels = LabelSet(labels);
        let mut histogram = family.encode_family(&labels)?;
        histogram.encode_histogram::<NoLabelSet>(worker.frames as f64, turns, &buckets, None)?;
    }
    Ok(())
}

fn switches(families: &mut Families<'_>, switches: &[SwitchReport]) -> Result<(), Error> {
    let labels = |switch: &SwitchReport| vec![("switch", switch.name.clone())];
    let named: Vec<_> = switches.iter().map(|switch| (labels(switch), switch)).collect();
    families.write_all(&named, SWITCH)?;
    let totals: Vec<_> = switches.iter().map(|switch| (labels(switch), &switch.totals)).collect();
    families.frame_counters("switch", &totals)?;
    let reports: Vec<_> =
        switches.iter().filter_map(|switch| Some((labels(switch), switch.openflow.as_ref()?))).collect();
    families.write_all(&reports, FLOW_TABLES)?;
    let refused = reports.iter().flat_map(|(labels, report)| {
        let causes = report.refused_tools_by_cause.iter();
        causes.map(move |(cause, count)| (with(labels, "cause", cause), *count))
    });
    let refused: Vec<_> = refused.collect();
    let help = "Connections of tools that the switch refused or ended";
    families.write(Counter, "openflow_refused_tools", help, &refused, |count| *count)?;
    let tables = reports.iter().flat_map(|(labels, report)| {
        report.tables.iter().map(move |table| (with(labels, "table", &table.table), table))
    });
    families.write_all(&tables.collect::<Vec<_>>(), FLOW_TABLE)
}

fn ports(families: &mut Families<'_>, ports: &[PortReport]) -> Result<(), Error> {
    let labels = |port: &PortReport| vec![("port", port.name.clone()), ("kind", port.kind.clone())];
    let named: Vec<_> = ports.iter().map(|port| (labels(port), port)).collect();
    families.write_all(&named, PORT)?;
    let links: Vec<_> = ports.iter().filter_map(|port| Some((labels(port), port.link.as_ref()?))).collect();
    families.write_all(&links, LINK)?;
    let counters: Vec<_> = ports.iter().map(|port| (labels(port), &port.counters)).collect();
    families.frame_counters("port", &counters)?;
    let queues = ports.iter().flat_map(|port| {
        let labels = |number: usize| vec![("port", port.name.clone()), ("queue", number.to_string())];
        port.queue_counters.iter().enumerate().map(move |(number, report)| (labels(number), report))
    });
    families.frame_counters("queue", &queues.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::Path;

    use super::*;

    /// Environment variable that makes the test write the table into the page, for `make docs`.
    const WRITE: &str = "RINGROAD_WRITE_DOCS";

    #[test]
    fn the_page_on_metrics_has_the_statistics() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (begin, end) = ("<!-- the statistics -->\n", "<!-- end of the statistics -->");
        let (before, rest) = page.split_once(begin).unwrap();
        let (_, after) = rest.split_once(end).unwrap();
        let mut table = "| account | meaning |\n|---|---|\n".to_owned();
        for Statistic { name, meaning, is_gauge, .. } in Statistic::ALL {
            let meaning = meaning.trim_end_matches('.');
            let gauge = if *is_gauge { " (a gauge)" } else { "" };
            let _ = writeln!(table, "| `{name}` | {meaning}{gauge} |");
        }
        let expected = format!("{before}{begin}{table}{end}{after}");
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &expected).unwrap();
            return;
        }
        assert!(page == expected, "docs/metrics.md differs from the statistics: run `make docs`");
    }
}
