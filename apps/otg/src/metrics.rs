//! Counters in the form of the model's `metrics_response`. Bytes and rates in bytes and bits count the FCS, as the
//! model's frame sizes do.

use ringroad_traffic::line_rate::FCS_BYTES;
use ringroad_traffic::rate_meter::TrafficRate;
use serde_json::{Map, Value, json};

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
        node.only(if of == Of::Ports {
            &["port_names", "column_names"]
        } else {
            &["flow_names", "metric_names", "tagged_metrics"]
        });
        let tagged = node.get("tagged_metrics");
        tagged.only(&["include", "include_empty_metrics", "metric_names", "filters"]);
        if !tagged.is_absent() && tagged.get("include").flag(true) {
            tagged.report("not supported: no field of a flow can have metric tags; leave it out, or set include to false");
        }
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
pub(crate) fn response(request: &MetricsRequest, config: &Config, counts: &Counts) -> Value {
    let row = |index: &usize| match request.of {
        Of::Ports => Some(port(config.ports.get(*index)?, counts.ports.get(*index)?)),
        Of::Flows => Some(flow(config.flows.get(*index)?, counts.flows.get(*index)?)),
    };
    let mut rows: Vec<_> = request.rows.iter().filter_map(row).collect();
    if let Some(columns) = &request.columns {
        rows.iter_mut().for_each(|row| row.retain(|name, _| name == "name" || columns.contains(name)));
    }
    let choice = match request.of {
        Of::Ports => "port_metrics",
        Of::Flows => "flow_metrics",
    };
    json!({"choice": choice, choice: rows})
}

fn port(config: &ConfiguredPort, counts: &FlowPortCounters) -> Map<String, Value> {
    let (sent, received) = (&counts.sent, &counts.received);
    let mut row = members([
        ("name", json!(config.name)),
        ("location", json!(config.location)),
        // A link that is not up cannot occur: a missing port cannot be opened, and a failed port is reported as an
        // error.
        ("link", json!("up")),
        ("capture", json!("stopped")),
        ("transmit", json!(counts.transmit)),
        ("frames_tx", json!(sent.frames)),
        ("frames_rx", json!(received.frames)),
        ("bytes_tx", json!(bytes(sent))),
        ("bytes_rx", json!(bytes(received))),
        ("frames_tx_rate", json!(sent.rate.rate_fps)),
        ("frames_rx_rate", json!(received.rate.rate_fps)),
        ("bytes_tx_rate", json!(l2_bps(&sent.rate) / 8.0)),
        ("bytes_rx_rate", json!(l2_bps(&received.rate) / 8.0)),
    ]);
    // The model counts the speed in kbyte/s.
    let speed = config.speed_bps.map(|speed_bps| ("speed", json!((speed_bps / 8e3) as u64)));
    row.extend(members(speed));
    row
}

fn flow(config: &FlowConfig, counts: &FlowCounts) -> Map<String, Value> {
    let mut row = traversal("tx", &counts.sent);
    row.extend(members([
        ("name", json!(config.name)),
        ("port_tx", json!(config.tx)),
        ("transmit", json!(counts.transmit)),
    ]));
    // The model has room for one receiving port: the first.
    row.extend(members(config.rx.first().map(|port| ("port_rx", json!(port)))));
    let Some((received, summary)) = &counts.received else { return row };
    row.extend(traversal("rx", received));
    if config.metrics.loss {
        let expected = counts.sent.frames as f64 * config.metrics.expected_copies;
        let loss =
            if expected > 0.0 { (1.0 - summary.distinct as f64 / expected).max(0.0) * 100.0 } else { 0.0 };
        row.extend(members([("loss", json!(loss))]));
    }
    if config.metrics.latency {
        let latency = summary.delay.latency_ns.as_ref();
        let [minimum, maximum, average] =
            latency.map_or([0.0; 3], |latency| [latency.min as f64, latency.max as f64, latency.mean]);
        let latency = json!({"minimum_ns": minimum, "maximum_ns": maximum, "average_ns": average});
        row.extend(members([("latency", latency)]));
    }
    row
}

/// Makes the members of a flow for one direction, `tx` or `rx`.
fn traversal(of: &str, traversal: &Traversal) -> Map<String, Value> {
    let bps = l2_bps(&traversal.rate);
    Map::from_iter([
        (format!("frames_{of}"), json!(traversal.frames)),
        (format!("bytes_{of}"), json!(bytes(traversal))),
        (format!("frames_{of}_rate"), json!(traversal.rate.rate_fps)),
        (format!("{of}_l1_rate_bps"), json!(traversal.rate.l1_gbps * BITS_PER_GIGABIT)),
        (format!("{of}_rate_bytes"), json!(bps / 8.0)),
        (format!("{of}_rate_bps"), json!(bps)),
        (format!("{of}_rate_kbps"), json!(bps / 1e3)),
        (format!("{of}_rate_mbps"), json!(bps / 1e6)),
    ])
}

fn members<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the number of bytes, with FCS.
fn bytes(traversal: &Traversal) -> u64 {
    traversal.bytes + traversal.frames * u64::from(FCS_BYTES)
}

fn l2_bps(rate: &TrafficRate) -> f64 {
    rate.l2_gbps * BITS_PER_GIGABIT
}
