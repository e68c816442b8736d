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
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use ringroad_control::report::{
    CounterReport, FlowTableReport, MOST_TURN_FRAMES, OpenFlowReport, PortReport, Statistic, StatusReport,
    SwitchReport, WorkerReport, WorkerState,
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
type Labels<'a> = Vec<(&'static str, &'a str)>;

struct LabelSet<'a>(Labels<'a>);

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
    fn counters<'l, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l>, V)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            let labels = LabelSet(labels);
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn gauges<'l, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l>, V)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            let labels = LabelSet(labels);
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Writes the counters of switches, ports or queues.
    fn frame_counters(&mut self, of: &str, counters: &[(Labels<'_>, &CounterReport)]) -> Result<(), Error> {
        for Statistic { name, help, is_gauge, value, .. } in Statistic::ALL {
            let name = format!("{of}_{name}");
            let values = counters.iter().map(|(labels, report)| (labels.clone(), value(report)));
            match is_gauge {
                true => self.gauges(&name, help, values)?,
                false => self.counters(&name, help, values)?,
            }
        }
        let drops = counters.iter().flat_map(|(labels, report)| {
            report.drops.iter().map(move |(cause, frames)| {
                let mut labels = labels.clone();
                labels.push(("cause", cause.as_str()));
                (labels, *frames)
            })
        });
        self.counters(&format!("{of}_dropped_frames"), "Frames dropped, by cause", drops)
    }
}

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), Error> {
        let mut families = Families(encoder);
        let status = &self.0;
        families.gauges(
            "build_info",
            "The daemon's version",
            [(vec![("version", status.version.as_str())], 1u64)],
        )?;
        families.gauges("uptime_seconds", "Time since the daemon started", [(vec![], status.uptime_s)])?;
        families.counters(
            "rejected_requests",
            "Requests answered with an error",
            [(vec![], status.rejected_requests)],
        )?;
        families.gauges(
            "shared_memory_bytes",
            "Memory of all regions",
            [(vec![], status.shared_memory_bytes)],
        )?;
        families.gauges("huge_page_bytes", "Part of it in huge pages", [(vec![], status.huge_page_bytes)])?;
        let users: Vec<_> =
            status.shared_memory_by_user.iter().map(|(user, bytes)| (user.to_string(), *bytes)).collect();
        let users = users.iter().map(|(user, bytes)| (vec![("user", user.as_str())], *bytes));
        families.gauges("user_shared_memory_bytes", "Memory of the regions of a user", users)?;
        let waiting = status.waiting.keys().map(|port| (vec![("port", port.as_str())], 1u64));
        families.gauges("waiting_ports", "1 for each port whose device is missing or busy", waiting)?;
        workers(&mut families, &status.workers)?;
        switches(&mut families, &status.switches)?;
        flow_tables(&mut families, &status.switches)?;
        ports(&mut families, &status.ports)
    }
}

fn workers(families: &mut Families<'_>, workers: &[WorkerReport]) -> Result<(), Error> {
    let named: Vec<_> = workers.iter().map(|worker| (worker.index.to_string(), worker)).collect();
    let values = |value: fn(&WorkerReport) -> u64| {
        named.iter().map(move |(name, worker)| (vec![("worker", name.as_str())], value(worker)))
    };
    let seconds =
        |value: fn(&WorkerReport) -> u64| values(value).map(|(labels, ns)| (labels, ns as f64 / 1e9));
    families.counters("worker_turns", "Turns over the ports", values(|worker| worker.loops))?;
    families.counters("worker_busy_turns", "Turns that moved frames", values(|worker| worker.busy_loops))?;
    families.counters(
        "worker_busy_seconds",
        "Time of the turns that moved frames",
        seconds(|worker| worker.busy_ns),
    )?;
    families.counters("worker_cpu_seconds", "Processor time", seconds(|worker| worker.cpu_time_ns))?;
    families.counters("worker_sleeps", "Times that it went to sleep", values(|worker| worker.sleeps))?;
    families.counters(
        "worker_kicks",
        "Times that a program woke it",
        values(|worker| worker.kicks_received),
    )?;
    let alive = |worker: &WorkerReport| u64::from(worker.state != WorkerState::Stopped);
    families.gauges("worker_up", "1 unless it has ended", values(alive))?;
    let help = "Frames of each turn that moved any";
    let mut family = families.0.encode_descriptor("worker_turn_frames", help, None, MetricType::Histogram)?;
    for (name, worker) in &named {
        let bounds =
            (0..).map(|power| f64::from(1u32 << power)).take_while(|bound| *bound <= MOST_TURN_FRAMES as f64);
        let buckets: Vec<_> = bounds
            .chain([f64::MAX])
            .zip(worker.turn_frames.iter().copied().chain(std::iter::repeat(0)))
            .collect();
        let turns = buckets.iter().map(|(_, turns)| turns).sum();
        let labels = LabelSet(vec![("worker", name)]);
        let mut histogram = family.encode_family(&labels)?;
        histogram.encode_histogram::<NoLabelSet>(worker.frames as f64, turns, &buckets, None)?;
    }
    Ok(())
}

fn switches(families: &mut Families<'_>, switches: &[SwitchReport]) -> Result<(), Error> {
    let values = |value: fn(&SwitchReport) -> u64| {
        switches.iter().map(move |switch| (vec![("switch", switch.name.as_str())], value(switch)))
    };
    families.gauges("switch_ports", "Ports", values(|switch| switch.ports.into()))?;
    families.gauges("switch_addresses", "Addresses that are known", values(|switch| switch.macs.into()))?;
    let help = "Addresses forgotten for want of room";
    families.counters("switch_address_evictions", help, values(|switch| switch.evictions))?;
    let help = "Frames from a static address on another port than the address's";
    families.counters("switch_refused_moves", help, values(|switch| switch.refused_moves))?;
    let help = "Copies of frames beyond the first, and segments of long frames beyond the first";
    families.counters("switch_replicated_frames", help, values(|switch| switch.replicated_frames))?;
    let counters: Vec<_> =
        switches.iter().map(|switch| (vec![("switch", switch.name.as_str())], &switch.totals)).collect();
    families.frame_counters("switch", &counters)
}

fn flow_tables(families: &mut Families<'_>, switches: &[SwitchReport]) -> Result<(), Error> {
    let named: Vec<_> = switches
        .iter()
        .filter_map(|switch| Some((switch.name.as_str(), switch.openflow.as_ref()?)))
        .collect();
    let values = |value: fn(&OpenFlowReport) -> u64| {
        named.iter().map(move |&(name, report)| (vec![("switch", name)], value(report)))
    };
    let connected = |report: &OpenFlowReport| report.connected_controllers() as u64;
    families.gauges(
        "openflow_controllers",
        "Controllers that it is configured to connect to",
        values(|report| report.controllers.len() as u64),
    )?;
    families.gauges("openflow_connected_controllers", "Controllers that are connected", values(connected))?;
    families.gauges("openflow_groups", "Groups", values(|report| report.groups))?;
    families.gauges("openflow_meters", "Meters", values(|report| report.meters))?;
    families.gauges(
        "openflow_memory_bytes",
        "Memory that entries, groups and meters are charged for",
        values(|report| report.memory_bytes),
    )?;
    families.gauges(
        "openflow_memory_limit_bytes",
        "The most that this may be",
        values(|report| report.memory_limit_bytes),
    )?;
    families.counters("openflow_flow_mods", "Changes of flow entries", values(|report| report.flow_mods))?;
    families.counters("openflow_packet_ins", "Frames for controllers", values(|report| report.packet_ins))?;
    families.counters(
        "openflow_dropped_news",
        "Messages that controllers did not get because they did not read",
        values(|report| report.dropped_news),
    )?;
    families.counters(
        "openflow_dropped_packet_outs",
        "Packets of controllers that the switch did not take",
        values(|report| report.dropped_packet_outs),
    )?;
    let refused = named.iter().flat_map(|&(name, report)| {
        let causes = report.refused_tools_by_cause.iter();
        causes.map(move |(cause, &count)| (vec![("switch", name), ("cause", cause.as_str())], count))
    });
    families.counters(
        "openflow_refused_tools",
        "Connections of tools that the switch refused or ended",
        refused,
    )?;
    let numbers: Vec<String> = (0..=u8::MAX).map(|number| number.to_string()).collect();
    let of_tables = |value: fn(&FlowTableReport) -> u64| {
        let numbers = &numbers;
        named.iter().flat_map(move |&(name, report)| {
            report.tables.iter().filter_map(move |table| {
                let number = numbers.get(usize::from(table.table))?;
                Some((vec![("switch", name), ("table", number.as_str())], value(table)))
            })
        })
    };
    families.gauges("openflow_table_flows", "Flow entries", of_tables(|table| table.flows))?;
    families.counters(
        "openflow_table_lookups",
        "Frames that arrived at it",
        of_tables(|table| table.lookups),
    )?;
    families.counters(
        "openflow_table_matches",
        "Frames that an entry matched",
        of_tables(|table| table.matches),
    )
}

fn ports(families: &mut Families<'_>, ports: &[PortReport]) -> Result<(), Error> {
    let named = ports
        .iter()
        .map(|port| (Labels::from([("port", port.name.as_str()), ("kind", port.kind.as_str())]), port));
    let named: Vec<_> = named.collect();
    let values = |value: fn(&PortReport) -> bool| {
        named.iter().map(move |(labels, port)| (labels.clone(), u64::from(value(port))))
    };
    families.gauges("port_up", "1 unless it is stopped by an error", values(|port| port.error.is_none()))?;
    families.gauges("port_bound", "1 if a program or device serves it", values(|port| port.bound))?;
    let links = named.iter().filter_map(|(labels, port)| Some((labels.clone(), port.link.as_ref()?)));
    let running = links.map(|(labels, link)| (labels, u64::from(link.running)));
    families.gauges("port_link_running", "1 if its interface has a carrier", running)?;
    let counters: Vec<_> = named.iter().map(|(labels, port)| (labels.clone(), &port.counters)).collect();
    families.frame_counters("port", &counters)?;
    let most_queues = ports.iter().map(|port| port.queue_counters.len()).max().unwrap_or(0);
    let numbers: Vec<String> = (0..most_queues).map(|number| number.to_string()).collect();
    let queues = ports.iter().flat_map(|port| {
        let labels = |number| Labels::from([("port", port.name.as_str()), ("queue", number)]);
        port.queue_counters
            .iter()
            .zip(&numbers)
            .map(move |(report, number)| (labels(number.as_str()), report))
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
