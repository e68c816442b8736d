//! A flow of the model: one load with one stream.

use ringroad_generator::plan::Load;
use ringroad_traffic::definition::{Problem, StreamDefinition, StreamError};
use ringroad_traffic::line_rate::BitLayer;
use ringroad_traffic::modifier::MAX_MODIFIERS;
use ringroad_traffic::pacing::{LoadShape, MAX_BURST_FRAMES, RateSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ConfiguredPort;
use super::packet::{PacketTemplate, packet};
use super::size::size;
use crate::document::Node;

/// Gap between frames on Ethernet, bytes. The gap cannot be smaller, and the rate sets larger gaps.
const LINE_GAP_BYTES: u64 = 12;
/// Longest time in a flow, s: one year.
const LONGEST_S: f64 = 31_536_000.0;
/// Default rate, frames/s.
const DEFAULT_PPS: u64 = 1000;

/// A flow as it was configured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FlowConfig {
    pub(crate) name: String,
    /// Names of the sending port and of the receiving ports.
    pub(crate) tx: String,
    pub(crate) rx: Vec<String>,
    pub(crate) metrics: FlowMetrics,
    pub(crate) load: Load,
}

/// Settings for the measurement of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FlowMetrics {
    /// Whether frames carry the signature that identifies them.
    pub(crate) enabled: bool,
    pub(crate) loss: bool,
    pub(crate) latency: bool,
    /// Frames that should arrive for each sent frame, summed over all receiving ports.
    pub(crate) expected_copies: f64,
}

const MEMBERS: &[&str] = &["name", "tx_rx", "packet", "size", "rate", "duration", "metrics", "payload"];

/// Reads a flow.
pub(crate) fn flow(node: &Node<'_>, ports: &[ConfiguredPort], warnings: &mut Vec<String>) -> FlowConfig {
    node.only(MEMBERS);
    let name = node.get("name").required_text().to_owned();
    let (tx, rx) = endpoints(&node.get("tx_rx"), ports);
    let speed_bps = ports.iter().find(|port| port.name == tx).and_then(|port| port.speed_bps);
    let metrics = metrics(&node.get("metrics"), rx.len(), warnings);
    let mut load = Load {
        name: name.clone(),
        rate: rate(&node.get("rate"), &tx, speed_bps),
        streams: stream(node, &name, metrics.enabled).into_iter().collect(),
        ..Load::new(&tx, &rx.iter().map(String::as_str).collect::<Vec<_>>(), Vec::new())
    };
    duration(&node.get("duration"), &tx, speed_bps, &mut load);
    FlowConfig { name, tx, rx, metrics, load }
}

fn endpoints(node: &Node<'_>, ports: &[ConfiguredPort]) -> (String, Vec<String>) {
    let Some((_, port)) = node.chosen(&["port"], "port") else { return Default::default() };
    port.only(&["tx_name", "rx_name", "rx_names"]);
    let known = |node: &Node<'_>, name: &str| {
        if !name.is_empty() && !ports.iter().any(|port| port.name == name) {
            let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
            node.report(format_args!("no port is called \"{name}\"; there are {}", names.join(", ")));
        }
    };
    let tx = port.get("tx_name");
    known(&tx, tx.required_text());
    let mut receivers: Vec<&str> = port.get("rx_name").text().into_iter().collect();
    receivers.extend(port.get("rx_names").texts());
    receivers.iter().for_each(|name| known(&port.get("rx_names"), name));
    let mut names: Vec<String> = Vec::new();
    for name in receivers {
        if !names.iter().any(|other| other == name) {
            names.push(name.to_owned());
        }
    }
    (tx.text().unwrap_or_default().to_owned(), names)
}

fn stream(node: &Node<'_>, name: &str, signature: bool) -> Option<StreamDefinition> {
    let problems_before = node.problem_count();
    let packet = packet(&node.get("packet"));
    let definition = json!({
        "name": name,
        "size": size(&node.get("size")),
        "signature": signature,
        "payload": payload(&node.get("payload")),
        "packet": packet.headers,
        "modify": packet.modifiers,
    });
    let definition = StreamDefinition::deserialize(definition).map_err(|error| node.report(error)).ok()?;
    // Each field is valid by itself. Making frames shows whether the fields fit together.
    if node.problem_count() > problems_before {
        return None;
    }
    definition.compile(0).map(|_| definition.clone()).map_err(|error| report(node, &packet, &error)).ok()
}

/// Reports an error of the stream that was made from the flow `node`, in the words of the model.
fn report(node: &Node<'_>, packet: &PacketTemplate, error: &StreamError) {
    let field = error.field.as_str();
    let member = match field.split('.').next() {
        Some("size") => "size",
        Some("payload") => "payload",
        Some("signature") => "metrics.enable",
        _ => "packet",
    };
    let path = packet.path_of(field).map_or_else(|| node.get(member).path().to_owned(), str::to_owned);
    let problem = match &error.problem {
        Problem::NoSuchField { .. } | Problem::NotModifiable { .. } => {
            "cannot vary from frame to frame; give one value".to_owned()
        }
        _ if field == "modify" => format!("too many fields vary; give at most {MAX_MODIFIERS}"),
        // The model calls two things otherwise than the advice.
        problem @ (Problem::Misplaced { .. } | Problem::Combination { .. }) => {
            problem.to_string().replace("checksum = \"zero\"", "a custom checksum").replace("raw", "custom")
        }
        problem => problem.to_string(),
    };
    node.report_at(&path, problem);
}

fn payload(node: &Node<'_>) -> Value {
    match node.given(&["fixed", "increment_byte"], "fixed") {
        Some(("increment_byte", _)) => json!({"increment": true}),
        Some((_, fixed)) => {
            fixed.only(&["pattern", "repeat"]);
            let repeat = fixed.get("repeat");
            if !repeat.flag(true) {
                repeat.report("false is not supported: the pattern fills the payload");
            }
            let pattern = fixed.get("pattern");
            let text = pattern.text().unwrap_or("00");
            if text.is_empty() || text.len() % 2 == 1 || !text.bytes().all(|digit| digit.is_ascii_hexdigit())
            {
                pattern.report_value("pairs of hexadecimal digits");
                return json!("00");
            }
            json!(text)
        }
        None => json!("00"),
    }
}

fn rate(node: &Node<'_>, tx: &str, speed_bps: Option<f64>) -> RateSpec {
    let default = RateSpec::Frames { rate_fps: DEFAULT_PPS as f64 };
    let choices = &["pps", "bps", "kbps", "mbps", "gbps", "percentage"];
    let Some((choice, chosen)) = node.given(choices, "pps") else { return default };
    let bits = |default: u64, unit: f64| RateSpec::Bits {
        rate_bps: chosen.whole(1, u64::MAX, default) as f64 * unit,
        layer: BitLayer::L1,
    };
    match choice {
        "pps" => RateSpec::Frames { rate_fps: chosen.whole(1, u64::MAX, DEFAULT_PPS) as f64 },
        "bps" => bits(1_000_000_000, 1.0),
        "kbps" => bits(1_000_000, 1e3),
        "mbps" => bits(1_000, 1e6),
        "gbps" => bits(1, 1e9),
        _ => {
            let percent = chosen.number(f64::MIN_POSITIVE..=100.0, "a number above 0, up to 100", 100.0);
            match speed_bps {
                Some(link_bps) => RateSpec::PercentOfLink { percent, link_bps },
                None => {
                    no_speed(&chosen, tx);
                    default
                }
            }
        }
    }
}

/// Reports that a value depends on the speed of the port, which has none.
fn no_speed(node: &Node<'_>, port: &str) {
    node.report(format_args!("port \"{port}\" has no speed; set its speed in layer1, like speed_10_gbps"));
}

fn duration(node: &Node<'_>, tx: &str, speed_bps: Option<f64>, load: &mut Load) {
    let choices = &["fixed_packets", "fixed_seconds", "burst", "continuous"];
    let Some((choice, chosen)) = node.given(choices, "continuous") else { return };
    let own: &[&str] = match choice {
        "fixed_packets" => &["packets", "gap", "delay"],
        "fixed_seconds" => &["seconds", "gap", "delay"],
        "burst" => &["bursts", "packets", "gap", "inter_burst_gap"],
        _ => &["gap", "delay"],
    };
    chosen.only(own);
    let gap = chosen.get("gap");
    if gap.whole(0, u64::from(u32::MAX), LINE_GAP_BYTES) > LINE_GAP_BYTES {
        gap.report_value("at most 12, the gap of the line: the rate sets larger distances");
    }
    load.delay = span_ns(&chosen.get("delay"), tx, speed_bps, 0.0) / 1e9;
    let count = u64::from(u32::MAX);
    match choice {
        "fixed_packets" => load.frames = Some(chosen.get("packets").whole(1, count, 1)),
        "fixed_seconds" => {
            let seconds = chosen.get("seconds");
            load.duration =
                Some(seconds.number(f64::MIN_POSITIVE..=LONGEST_S, "seconds above 0, up to a year", 1.0));
        }
        "burst" => {
            let frames = chosen.get("packets").whole(1, MAX_BURST_FRAMES.into(), 1);
            let bursts = chosen.get("bursts").whole(0, count, 0);
            load.frames = (bursts > 0).then(|| frames.saturating_mul(bursts));
            let gap_ns = span_ns(&chosen.get("inter_burst_gap"), tx, speed_bps, 96.0).round() as u64;
            // Bursts without a gap between them are ordinary frames.
            if gap_ns > 0 {
                load.shape = LoadShape::Bursts { frames: frames as u32, gap_ns: Some(gap_ns) };
            }
        }
        _ => {}
    }
}

/// Reads a span of time, in ns, µs or bytes of line time, and returns it in ns.
fn span_ns(node: &Node<'_>, tx: &str, speed_bps: Option<f64>, default_ns: f64) -> f64 {
    let Some((choice, chosen)) = node.given(&["bytes", "nanoseconds", "microseconds"], "bytes") else {
        return default_ns;
    };
    let span = chosen.number(0.0..=LONGEST_S * 1e9, "0 or more, up to a year", default_ns);
    match (choice, speed_bps) {
        ("nanoseconds", _) => span,
        ("microseconds", _) => span * 1e3,
        (_, Some(speed_bps)) => span * 8e9 / speed_bps,
        _ if span == 0.0 => 0.0,
        _ => {
            no_speed(&chosen, tx);
            default_ns
        }
    }
}

fn metrics(node: &Node<'_>, receivers: usize, warnings: &mut Vec<String>) -> FlowMetrics {
    node.only(&["enable", "loss", "rx_tx_ratio", "timestamps", "latency", "predefined_metric_tags"]);
    let latency = node.get("latency");
    latency.only(&["enable", "mode"]);
    let mode = latency.get("mode");
    if mode.one_of(&["store_forward", "cut_through"], "store_forward") == "cut_through" {
        mode.report_unsupported(&["store_forward"]);
    }
    let tags = node.get("predefined_metric_tags");
    tags.only(&["rx_name"]);
    let rx_name = tags.get("rx_name");
    if rx_name.flag(false) {
        rx_name.report("true is not supported: a flow has one row of metrics");
    }
    let timestamps = node.get("timestamps");
    if timestamps.flag(false) {
        warnings.push(format!("{}: no effect; the first and last arrival are not kept", timestamps.path()));
    }
    FlowMetrics {
        enabled: node.get("enable").flag(false),
        loss: node.get("loss").flag(false),
        latency: latency.get("enable").flag(false),
        expected_copies: expected_copies(&node.get("rx_tx_ratio"), receivers),
    }
}

fn expected_copies(node: &Node<'_>, receivers: usize) -> f64 {
    match node.given(&["rx_count", "value"], "value") {
        Some(("rx_count", _)) => receivers as f64,
        Some((_, value)) => value.number(f64::MIN_POSITIVE..=1e9, "a number above 0", 1.0),
        None => 1.0,
    }
}
