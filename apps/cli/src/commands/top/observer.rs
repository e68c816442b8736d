//! Traffic of the ports in an interval: rates from the daemon's counters.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use clap::ValueEnum;
use ringroad_control::report::{OpenFlowReport, PortReport};
use ringroad_control::{Connection, Reply, Request};
use ringroad_traffic::rate_meter::{RateMeter, TrafficRate, TrafficSnapshot};
use serde::Serialize;

use crate::commands::status::controllers;
use crate::failure::Failure;
use crate::options::Global;
use crate::output::rates::grouped;
use crate::run::as_ns;
use crate::verb::request;

/// Maximum number of intervals in the history of a port: no terminal is wider.
const MOST_HISTORY: usize = 500;

/// The order of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Order {
    /// Name of the port
    Port,
    /// Rate of frames in, the greatest first
    In,
    /// Rate of frames out, the greatest first
    Out,
    /// Rate of drops, the greatest first
    Drops,
}

impl Order {
    /// Sorts the ports; ports with equal rates are in the order of their names.
    pub(super) fn sort(self, ports: &mut [PortRates]) {
        let rate = |port: &PortRates| match self {
            Self::Port => 0.0,
            Self::In => port.received.rate_fps,
            Self::Out => port.delivered.rate_fps,
            Self::Drops => port.drops_fps,
        };
        ports.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then_with(|| a.name.cmp(&b.name)));
    }
}

/// Traffic of a port in one interval.
#[derive(Debug, Serialize)]
pub(super) struct PortRates {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) queues: u16,
    /// Frames taken from the port.
    pub(super) received: TrafficRate,
    /// Frames delivered to the port.
    pub(super) delivered: TrafficRate,
    /// Number of frames dropped in the interval, by cause.
    pub(super) drops: BTreeMap<String, u64>,
    pub(super) drops_fps: f64,
    pub(super) received_frames_total: u64,
    pub(super) delivered_frames_total: u64,
    pub(super) drops_total: BTreeMap<String, u64>,
    /// Frames in and out per second, in this interval and earlier intervals, the oldest first.
    #[serde(skip)]
    pub(super) history_fps: VecDeque<f64>,
}

/// Traffic of a switch with flow tables in one interval.
#[derive(Debug, Serialize)]
pub(super) struct FlowTableRates {
    pub(super) switch: String,
    pub(super) flows: u64,
    pub(super) controllers: usize,
    pub(super) connected_controllers: usize,
    /// Frames sent to controllers, per second.
    pub(super) packet_ins_per_s: f64,
}

impl FlowTableRates {
    /// Formats a line of text.
    pub(super) fn words(&self) -> String {
        let controllers = controllers(self.connected_controllers, self.controllers);
        let Self { switch, flows, packet_ins_per_s, .. } = self;
        format!("{switch}: {} flows, {controllers}, {packet_ins_per_s:.0} packet-ins/s", grouped(*flows))
    }
}

#[derive(Debug, Default, Serialize)]
pub(super) struct ObservedInterval {
    pub(super) interval_s: f64,
    pub(super) ports: Vec<PortRates>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) flow_tables: Vec<FlowTableRates>,
}

/// Counters of a port at the last query.
struct Seen {
    received: RateMeter,
    delivered: RateMeter,
    drops: BTreeMap<String, u64>,
    history_fps: VecDeque<f64>,
}

/// Connection that queries the daemon, and the counters that become rates.
pub(super) struct Observer {
    connection: Connection,
    start: Instant,
    last_ns: u64,
    seen: BTreeMap<String, Seen>,
    /// Packet-ins of each switch with flow tables, at the last query.
    packet_ins: BTreeMap<String, u64>,
}

impl Observer {
    pub(super) fn new(global: &Global) -> Result<Self, Failure> {
        let connection = global.connect()?;
        Ok(Self {
            connection,
            start: Instant::now(),
            last_ns: 0,
            seen: BTreeMap::new(),
            packet_ins: BTreeMap::new(),
        })
    }

    /// Queries the daemon, and returns the interval since the last query.
    pub(super) fn sample(&mut self) -> Result<ObservedInterval, Failure> {
        let ports = self.connection.list()?.ports;
        let now_ns = as_ns(self.start.elapsed());
        let interval_s = (now_ns - self.last_ns) as f64 / 1e9;
        self.last_ns = now_ns;
        self.seen.retain(|name, _| ports.iter().any(|port| port.name == *name));
        let ports = ports.into_iter().map(|port| rates(&mut self.seen, port, now_ns)).collect();
        let reports = request!(self.connection, &Request::OpenFlow, Reply::OpenFlow(reports) => reports)?;
        let flow_tables = reports.iter().map(|report| self.flow_tables(report, interval_s)).collect();
        Ok(ObservedInterval { interval_s, ports, flow_tables })
    }

    fn flow_tables(&mut self, report: &OpenFlowReport, interval_s: f64) -> FlowTableRates {
        let switch = report.settings.switch.clone();
        let before = self.packet_ins.insert(switch.clone(), report.packet_ins).unwrap_or(report.packet_ins);
        // Flow tables that were made again count from 0.
        let new = report.packet_ins.checked_sub(before).unwrap_or(report.packet_ins);
        FlowTableRates {
            switch,
            flows: report.flows,
            controllers: report.controllers.len(),
            connected_controllers: report.connected_controllers(),
            packet_ins_per_s: if interval_s > 0.0 { new as f64 / interval_s } else { 0.0 },
        }
    }
}

fn rates(seen: &mut BTreeMap<String, Seen>, port: PortReport, now_ns: u64) -> PortRates {
    let counters = port.counters;
    let received =
        TrafficSnapshot { frames: counters.received_frames, bytes: counters.received_bytes, now_ns };
    let delivered =
        TrafficSnapshot { frames: counters.delivered_frames, bytes: counters.delivered_bytes, now_ns };
    let known = seen.entry(port.name.clone()).or_insert_with(|| Seen {
        received: RateMeter::new(received),
        delivered: RateMeter::new(delivered),
        drops: counters.drops.clone(),
        history_fps: VecDeque::new(),
    });
    let (received, delivered) = (known.received.update(received), known.delivered.update(delivered));
    let mut by_cause = BTreeMap::new();
    for (cause, frames) in &counters.drops {
        let before = known.drops.get(cause).copied().unwrap_or(0);
        // A port that was opened again counts from 0.
        let new = frames.checked_sub(before).unwrap_or(*frames);
        if new > 0 {
            by_cause.insert(cause.clone(), new);
        }
    }
    known.drops.clone_from(&counters.drops);
    let dropped: u64 = by_cause.values().sum();
    let interval_s = received.interval_ns as f64 / 1e9;
    if interval_s > 0.0 {
        known.history_fps.push_back(received.rate_fps + delivered.rate_fps);
        known.history_fps.drain(..known.history_fps.len().saturating_sub(MOST_HISTORY));
    }
    PortRates {
        name: port.name,
        kind: port.kind,
        queues: port.queues,
        received,
        delivered,
        drops: by_cause,
        drops_fps: if interval_s > 0.0 { dropped as f64 / interval_s } else { 0.0 },
        received_frames_total: counters.received_frames,
        delivered_frames_total: counters.delivered_frames,
        drops_total: counters.drops,
        history_fps: known.history_fps.clone(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ringroad_control::report::CounterReport;

    use super::*;

    fn port(received_frames: u64, no_space: u64) -> PortReport {
        let counters = CounterReport {
            received_frames,
            received_bytes: received_frames * 60,
            drops: BTreeMap::from([("no_space".to_owned(), no_space)]),
            ..CounterReport::default()
        };
        PortReport {
            name: "vale0:a".into(),
            kind: "shm".into(),
            persistent: false,
            bound: true,
            owner: None,
            queues: 1,
            slots: 1024,
            buffer_bytes: 2048,
            counters,
            ..PortReport::default()
        }
    }

    pub(crate) fn interval() -> ObservedInterval {
        let mut seen = BTreeMap::new();
        rates(&mut seen, port(1000, 5), 0);
        let rates = rates(&mut seen, port(2_001_000, 25), 2_000_000_000);
        let flow_tables = FlowTableRates {
            switch: "vale0".to_owned(),
            flows: 12_345,
            controllers: 2,
            connected_controllers: 1,
            packet_ins_per_s: 7.0,
        };
        ObservedInterval { interval_s: 2.0, ports: vec![rates], flow_tables: vec![flow_tables] }
    }

    #[test]
    fn rates_and_drops_cover_the_interval_and_totals_the_port() {
        let interval = interval();
        let port = &interval.ports[0];
        assert_eq!((port.received.rate_fps, port.received.l1_gbps), (1e6, 0.672));
        assert_eq!(port.drops, BTreeMap::from([("no_space".to_owned(), 20)]));
        assert_eq!((port.drops_fps, port.received_frames_total), (10.0, 2_001_000));
    }

    #[test]
    fn a_reopened_port_counts_its_drops_from_zero() {
        let mut seen = BTreeMap::new();
        rates(&mut seen, port(1000, 50), 0);
        let rates = rates(&mut seen, port(10, 3), 1_000_000_000);
        assert_eq!(rates.drops["no_space"], 3);
    }

    #[test]
    fn the_history_is_bounded_and_ends_with_this_interval() {
        let mut seen = BTreeMap::new();
        let samples = MOST_HISTORY as u64 + 10;
        for sample in 0..samples {
            rates(&mut seen, port(sample * sample, 0), sample * 1_000_000_000);
        }
        let last = rates(&mut seen, port(samples * samples, 0), samples * 1_000_000_000);
        assert_eq!(last.history_fps.len(), MOST_HISTORY);
        assert_eq!(last.history_fps.back(), Some(&last.received.rate_fps));
    }

    #[test]
    fn ports_of_equal_rates_are_sorted_by_name() {
        let named = |name: &str, drops_fps| {
            let rates = rates(&mut BTreeMap::new(), port(0, 0), 0);
            PortRates { name: name.to_owned(), drops_fps, ..rates }
        };
        let mut ports = [named("c", 0.0), named("b", 7.0), named("a", 0.0)];
        let names = |ports: &[PortRates]| ports.iter().map(|port| port.name.clone()).collect::<String>();
        Order::Drops.sort(&mut ports);
        assert_eq!(names(&ports), "bac");
        Order::Port.sort(&mut ports);
        assert_eq!(names(&ports), "abc");
    }
}
