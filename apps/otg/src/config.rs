//! A configuration of the model, read into ports and loads. The reader reports all unsupported members; it carries out
//! nothing.

mod flow;
mod packet;
mod pattern;
mod size;

use std::collections::HashSet;

use ringroad_generator::plan::{PlannedPort, TestPlan};
use serde_json::Value;

pub(crate) use self::flow::FlowConfig;
use self::flow::flow;
use crate::document::{Node, Problems};
use crate::refusal::Refusal;

/// The model's names of speeds, and their values in bit/s.
const SPEEDS: [(&str, f64); 13] = [
    ("speed_10_fd_mbps", 10e6),
    ("speed_10_hd_mbps", 10e6),
    ("speed_100_fd_mbps", 100e6),
    ("speed_100_hd_mbps", 100e6),
    ("speed_1_gbps", 1e9),
    ("speed_10_gbps", 10e9),
    ("speed_25_gbps", 25e9),
    ("speed_40_gbps", 40e9),
    ("speed_50_gbps", 50e9),
    ("speed_100_gbps", 100e9),
    ("speed_200_gbps", 200e9),
    ("speed_400_gbps", 400e9),
    ("speed_800_gbps", 800e9),
];
/// Members of `layer1` that do not apply to a port of Ringroad: accepted with a warning, as the model requires.
const LINK_SETTINGS: [&str; 4] = ["media", "ieee_media_defaults", "auto_negotiate", "auto_negotiation"];
/// Maximum number of ports: each has threads of its own.
const MAX_PORTS: usize = 64;
/// Maximum number of flows.
const MAX_FLOWS: usize = 1024;
/// Default values, in the model, of settings that cannot be changed.
const DEFAULT_MTU: u64 = 1500;

/// Configuration of ports and flows.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Config {
    /// JSON document as received.
    pub(crate) document: Value,
    pub(crate) ports: Vec<ConfiguredPort>,
    pub(crate) flows: Vec<FlowConfig>,
    /// Accepted settings without effect.
    pub(crate) warnings: Vec<String>,
}

/// A port as it was configured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConfiguredPort {
    pub(crate) name: String,
    /// Name of a port of Ringroad.
    pub(crate) location: String,
    /// Nominal speed, bit/s, if one was given.
    pub(crate) speed_bps: Option<f64>,
}

impl Config {
    /// Reads `document`.
    ///
    /// # Errors
    /// [`Refusal`] that names all that is wrong or not supported.
    pub(crate) fn read(document: Value) -> Result<Self, Refusal> {
        let config = Problems::collect(&document, |root| {
            root.only(&["ports", "layer1", "flows", "options"]);
            let mut warnings = Vec::new();
            options(&root.get("options"), &mut warnings);
            let ports = ports(root, &mut warnings);
            let nodes = root.get("flows").items_up_to(MAX_FLOWS);
            let flows: Vec<FlowConfig> = nodes.iter().map(|node| flow(node, &ports, &mut warnings)).collect();
            unique(&nodes, "name");
            Self { document: Value::Null, ports, flows, warnings }
        })?;
        Ok(Self { document, ..config })
    }

    /// The generator's plan.
    pub(crate) fn plan(&self) -> TestPlan {
        let port = |port: &ConfiguredPort| PlannedPort {
            label: Some(port.name.clone()),
            ..PlannedPort::new(&port.location)
        };
        TestPlan {
            ports: self.ports.iter().map(port).collect(),
            loads: self.flows.iter().map(|flow| flow.load.clone()).collect(),
        }
    }
}

fn ports(root: &Node<'_>, warnings: &mut Vec<String>) -> Vec<ConfiguredPort> {
    let nodes = root.get("ports").items_up_to(MAX_PORTS);
    let read = |node: &Node<'_>| {
        node.only(&["name", "location"]);
        ConfiguredPort {
            name: node.get("name").required_text().to_owned(),
            location: node.get("location").required_text().to_owned(),
            speed_bps: None,
        }
    };
    let mut ports: Vec<ConfiguredPort> = nodes.iter().map(read).collect();
    unique(&nodes, "name");
    unique(&nodes, "location");
    for node in root.get("layer1").items() {
        layer1(&node, &mut ports, warnings);
    }
    ports
}

fn layer1(node: &Node<'_>, ports: &mut [ConfiguredPort], warnings: &mut Vec<String>) {
    let own = ["name", "port_names", "speed", "promiscuous", "mtu"];
    node.only(&[&own[..], &LINK_SETTINGS].concat());
    let speed = node.get("speed");
    let speed_bps = speed.text().and_then(|name| {
        let known = SPEEDS.iter().find(|(known, _)| *known == name);
        if known.is_none() {
            speed.report_value(format_args!("one of {}", SPEEDS.map(|(name, _)| name).join(", ")));
        }
        known.map(|(_, speed_bps)| *speed_bps)
    });
    let mtu = node.get("mtu");
    if mtu.whole(64, 14000, DEFAULT_MTU) != DEFAULT_MTU {
        warnings
            .push(format!("{}: no effect; the limits are the port's buffers and its interface", mtu.path()));
    }
    for setting in LINK_SETTINGS.map(|name| node.get(name)).iter().filter(|setting| !setting.is_absent()) {
        warnings.push(format!("{}: no effect; the interface's own settings stay", setting.path()));
    }
    let promiscuous = node.get("promiscuous");
    if !promiscuous.flag(true) {
        promiscuous.report("false is not supported: a port receives every frame that reaches it");
    }
    let names = node.get("port_names");
    for name in names.texts() {
        match ports.iter_mut().find(|port| port.name == name) {
            Some(port) => port.speed_bps = speed_bps.or(port.speed_bps),
            None => names.report(format_args!("no port is called \"{name}\"")),
        }
    }
}

fn options(node: &Node<'_>, warnings: &mut Vec<String>) {
    node.only(&["port_options", "protocol_options"]);
    node.get("protocol_options").only(&["auto_start_all"]);
    let ports = node.get("port_options");
    ports.only(&["location_preemption", "data_integrity", "frame_ordering_mode"]);
    let preemption = ports.get("location_preemption");
    if preemption.flag(false) {
        warnings.push(format!("{}: no effect; a port is never taken from its owner", preemption.path()));
    }
    let integrity = ports.get("data_integrity");
    if integrity.flag(false) {
        integrity
            .report("true is not supported; loss and latency are measured per flow, see flows[].metrics");
    }
    let ordering = ports.get("frame_ordering_mode");
    if !ordering.is_absent() {
        ordering.chosen(&["no_ordering"], "no_ordering");
    }
}

/// Reports values of `key` that occur more than once in `nodes`.
fn unique(nodes: &[Node<'_>], key: &str) {
    let mut known = HashSet::new();
    for node in nodes {
        let value = node.get(key);
        if let Some(text) = value.value().as_str()
            && !known.insert(text)
        {
            value.report(format_args!("\"{text}\" is given twice; each needs its own"));
        }
    }
}

#[cfg(test)]
mod tests;
