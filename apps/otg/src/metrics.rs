//! Counters in the form of the model's `metrics_response`. Bytes and rates in bytes and bits count the FCS, as the
//! model's frame sizes do.

use ringroad_traffic::line_rate::FCS_BYTES;
use ringroad_traffic::rate_meter::TrafficRate;
use serde::Serialize;
use serde_json::{Value, json};

use crate::config::{Config, ConfiguredPort, FlowConfig};
use crate::document::{Node, Problems};
use crate::refusal::Refusal;
use crate::traffic::{Counts, FlowCounts, FlowPortCounters, Traversal};

const BITS_PER_GIGABIT: f64 = 1e9;

const PORT_COLUMNS: &[&str] = &[
    "transmit",
    "location",
    "link",
    "capture",
    "frames_tx",
    "frames_rx",
    "bytes_tx",
    "bytes_rx",
    "frames_tx_rate",
    "frames_rx_rate",
    "bytes_tx_rate",
    "bytes_rx_rate",
    "last_change",
    "speed",
];
const FLOW_COLUMNS: &[&str] = &[
    "transmit",
    "frames_tx",
    "frames_rx",
    "bytes_tx",
    "bytes_rx",
    "frames_tx_rate",
    "frames_rx_rate",
    "tx_l1_rate_bps",
    "rx_l1_rate_bps",
    "tx_rate_bytes",
    "rx_rate_bytes",
    "tx_rate_bps",
    "rx_rate_bps",
    "tx_rate_kbps",
    "rx_rate_kbps",
    "tx_rate_mbps",
    "rx_rate_mbps",
];

/// The counters that a client requests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MetricsRequest {
    of: Of,
    /// Indexes of ports or flows in the configuration.
    rows: Vec<usize>,
    /// Names of the requested columns; `None` for all columns.
    columns: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Ports,
    Flows,
}

#[derive(Debug, Serialize)]
struct PortMetric<'a> {
    name: &'a str,
    location: &'a str,
    link: &'static str,
    capture: &'static str,
    transmit: &'static str,
    frames_tx: u64,
    frames_rx: u64,
    bytes_tx: u64,
    bytes_rx: u64,
    frames_tx_rate: f64,
    frames_rx_rate: f64,
    bytes_tx_rate: f64,
    bytes_rx_rate: f64,
    /// Nominal speed, kbyte/s, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<u64>,
}

#[derive(Debug, Serialize)]
struct FlowMetric<'a> {
    name: &'a str,
    port_tx: &'a str,
    /// Name of the first receiving port.
    #[serde(skip_serializing_if = "Option::is_none")]
    port_rx: Option<&'a str>,
    transmit: &'static str,
    frames_tx: u64,
    bytes_tx: u64,
    frames_tx_rate: f64,
    tx_l1_rate_bps: f64,
    tx_rate_bytes: f64,
    tx_rate_bps: f64,
    tx_rate_kbps: f64,
    tx_rate_mbps: f64,
    #[serde(flatten)]
    received: Option<Received>,
}

#[derive(Debug, Serialize)]
struct Received {
    frames_rx: u64,
    bytes_rx: u64,
    frames_rx_rate: f64,
    rx_l1_rate_bps: f64,
    rx_rate_bytes: f64,
    rx_rate_bps: f64,
    rx_rate_kbps: f64,
    rx_rate_mbps: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Latency {
    minimum_ns: f64,
    maximum_ns: f64,
    average_ns: f64,
}

impl MetricsRequest {
    pub(crate) fn is_of_flows(&self) -> bool {
        self.of == Of::Flows
    }
}

/// Reads a `metrics_request` for `config`.
pub(crate) fn request(request: &Value, config: &Config) -> Result<MetricsRequest, Refusal> {
    Problems::collect(request, |root| {
        let chosen = root.chosen(&["port", "flow"], "port");
        let of = if matches!(chosen, Some(("flow", _))) { Of::Flows } else { Of::Ports };
        let (names, columns, known): (_, _, Vec<&str>) = match of {
            Of::Ports => {
                ("port_names", "column_names", config.ports.iter().map(|port| port.name.as_str()).collect())
            }
            Of::Flows => {
                ("flow_names", "metric_names", config.flows.iter().map(|flow| flow.name.as_str()).collect())
            }
        };
        let Some((_, node)) = chosen else { return MetricsRequest { of, rows: Vec::new(), columns: None } };
        // Tags are not supported, so settings for tags have no effect.
        node.only(if of == Of::Ports {
            &["port_names", "column_names"]
        } else {
            &["flow_names", "metric_names", "tagged_metrics"]
        });
        MetricsRequest {
            of,
            rows: rows(&node.get(names), &known),
            columns: requested_columns(&node.get(columns), of),
        }
    })
}

/// Returns the indexes of the given names; of all if no names are given.
pub(crate) fn rows(node: &Node<'_>, known: &[&str]) -> Vec<usize> {
    let names = node.texts();
    for name in names.iter().filter(|name| !known.contains(name)) {
        node.report(format_args!("nothing is called \"{name}\"; there are {}", known.join(", ")));
    }
    (0..known.len())
        .filter(|index| names.is_empty() || known.get(*index).is_some_and(|name| names.contains(name)))
        .collect()
}

fn requested_columns(node: &Node<'_>, of: Of) -> Option<Vec<String>> {
    let known = if of == Of::Ports { PORT_COLUMNS } else { FLOW_COLUMNS };
    let columns = node.texts();
    for column in columns.iter().filter(|column| !known.contains(column)) {
        node.report(format_args!("there is no metric \"{column}\"; there are {}", known.join(", ")));
    }
    (!columns.is_empty()).then(|| columns.iter().map(|column| (*column).to_owned()).collect())
}

/// Makes the `metrics_response`.
pub(crate) fn response(request: &MetricsRequest, config: &Config, counts: &Counts) -> Result<Value, Refusal> {
    let unwritable = |error: serde_json::Error| Refusal::internal(format!("writing the metrics: {error}"));
    let mut rows = Vec::with_capacity(request.rows.len());
    for index in &request.rows {
        let row = match request.of {
            Of::Ports => config
                .ports
                .get(*index)
                .zip(counts.ports.get(*index))
                .map(|(config, counts)| port(config, counts))
                .map(serde_json::to_value),
            Of::Flows => config
                .flows
                .get(*index)
                .zip(counts.flows.get(*index))
                .map(|(config, counts)| flow(config, counts))
                .map(serde_json::to_value),
        };
        let Some(mut row) = row.transpose().map_err(unwritable)? else { continue };
        if let (Some(columns), Some(members)) = (&request.columns, row.as_object_mut()) {
            members.retain(|name, _| name == "name" || columns.contains(name));
        }
        rows.push(row);
    }
    let choice = match request.of {
        Of::Ports => "port_metrics",
        Of::Flows => "flow_metrics",
    };
    Ok(json!({"choice": choice, choice: rows}))
}

fn port<'a>(config: &'a ConfiguredPort, counts: &FlowPortCounters) -> PortMetric<'a> {
    let (sent, received) = (&counts.sent, &counts.received);
    PortMetric {
        name: &config.name,
        location: &config.location,
        // A link that is not up cannot occur: a missing port cannot be opened, and a failed port is reported as an
        // error.
        link: "up",
        capture: "stopped",
        transmit: counts.transmit.name(),
        frames_tx: sent.frames,
        frames_rx: received.frames,
        bytes_tx: bytes(sent),
        bytes_rx: bytes(received),
        frames_tx_rate: sent.rate.rate_fps,
        frames_rx_rate: received.rate.rate_fps,
        bytes_tx_rate: l2_bps(&sent.rate) / 8.0,
        bytes_rx_rate: l2_bps(&received.rate) / 8.0,
        speed: config.speed_bps.map(|speed_bps| (speed_bps / 8e3) as u64),
    }
}

fn flow<'a>(config: &'a FlowConfig, counts: &FlowCounts) -> FlowMetric<'a> {
    let sent = &counts.sent;
    let received = counts.received.as_ref().map(|(received, summary)| {
        let expected = sent.frames as f64 * config.metrics.expected_copies;
        let loss =
            if expected > 0.0 { (1.0 - summary.distinct as f64 / expected).max(0.0) * 100.0 } else { 0.0 };
        let latency = summary.delay.latency_ns.as_ref().map_or(
            Latency { minimum_ns: 0.0, maximum_ns: 0.0, average_ns: 0.0 },
            |latency| Latency {
                minimum_ns: latency.min as f64,
                maximum_ns: latency.max as f64,
                average_ns: latency.mean,
            },
        );
        Received {
            frames_rx: received.frames,
            bytes_rx: bytes(received),
            frames_rx_rate: received.rate.rate_fps,
            rx_l1_rate_bps: l1_bps(&received.rate),
            rx_rate_bytes: l2_bps(&received.rate) / 8.0,
            rx_rate_bps: l2_bps(&received.rate),
            rx_rate_kbps: l2_bps(&received.rate) / 1e3,
            rx_rate_mbps: l2_bps(&received.rate) / 1e6,
            loss: config.metrics.loss.then_some(loss),
            latency: config.metrics.latency.then_some(latency),
        }
    });
    FlowMetric {
        name: &config.name,
        port_tx: &config.tx,
        port_rx: config.rx.first().map(String::as_str),
        transmit: counts.transmit.name(),
        frames_tx: sent.frames,
        bytes_tx: bytes(sent),
        frames_tx_rate: sent.rate.rate_fps,
        tx_l1_rate_bps: l1_bps(&sent.rate),
        tx_rate_bytes: l2_bps(&sent.rate) / 8.0,
        tx_rate_bps: l2_bps(&sent.rate),
        tx_rate_kbps: l2_bps(&sent.rate) / 1e3,
        tx_rate_mbps: l2_bps(&sent.rate) / 1e6,
        received,
    }
}

/// Returns the number of bytes, with FCS.
fn bytes(traversal: &Traversal) -> u64 {
    traversal.bytes + traversal.frames * u64::from(FCS_BYTES)
}

fn l1_bps(rate: &TrafficRate) -> f64 {
    rate.l1_gbps * BITS_PER_GIGABIT
}

fn l2_bps(rate: &TrafficRate) -> f64 {
    rate.l2_gbps * BITS_PER_GIGABIT
}
