//! Check that keeps a generator from flooding network interfaces by mistake.

use ringroad_control::report::{MacEntryReport, PortReport};
use ringroad_generator::{Load, TestPlan};
use ringroad_traffic::definition::StreamDefinition;
use ringroad_traffic::header::Ethernet;
use ringroad_traffic::modifier::{ModifierDefinition, Progression};

use crate::failure::Failure;
use crate::options::Global;

/// Drivers of ports whose frames leave by a network interface.
const INTERFACE_DRIVERS: [&str; 2] = ["af_xdp", "af_packet"];

/// Refuses a plan if a switch would flood the plan's frames to network interfaces that the plan does not name. Switches
/// with flow tables are not checked: their controllers decide.
///
/// # Errors
/// The message names the interfaces, and the address that no port has announced.
pub(super) fn refuse(global: &Global, plan: &TestPlan) -> Result<(), Failure> {
    // Without a daemon the only ports are the program's own.
    let Ok(mut connection) = global.connect() else { return Ok(()) };
    let status = connection.status()?;
    for load in &plan.loads {
        let Some((switch, _)) = load.from.split_once(':') else { continue };
        let floods = status.switches.iter().any(|known| known.name == switch && known.openflow.is_none());
        let others = status.ports.iter().filter(|port| is_other(port, switch, load));
        let interfaces: Vec<&str> = others.map(|port| port.name.as_str()).collect();
        if !floods || interfaces.is_empty() {
            continue;
        }
        let known = connection.mac_table(switch)?;
        if let Some(what) = load.streams.iter().find_map(|stream| flooded(stream, &known)) {
            return Err(Failure::new(
                format!("{switch} would flood {what} to {}", interfaces.join(", ")),
                "name a destination that the switch knows (`ringroad macs` shows them), receive with --to, or send all \
                 the same: --flood",
            ));
        }
    }
    Ok(())
}

/// Whether `port` is an interface on this switch that the load does not name.
fn is_other(port: &PortReport, switch: &str, load: &Load) -> bool {
    let is_named = |name: &String| name.split('@').next() == Some(&port.name);
    port.switch.as_deref() == Some(switch)
        && INTERFACE_DRIVERS.contains(&port.kind.as_str())
        && !std::iter::once(&load.from).chain(&load.to).any(is_named)
}

/// Describes the frames of a stream that a switch with the addresses `known` floods.
fn flooded(stream: &StreamDefinition, known: &[MacEntryReport]) -> Option<String> {
    let is_random = |modifier: &ModifierDefinition| {
        modifier.field == "ethernet.destination" && matches!(modifier.progression, Progression::Random(_))
    };
    if stream.modify.iter().any(is_random) {
        return Some("frames to random addresses".to_owned());
    }
    // The first of several consecutive addresses stands for all of them.
    let destination = stream.destination().unwrap_or(Ethernet::default().destination);
    if destination.is_multicast() {
        return Some(format!("frames to the group address {destination}"));
    }
    let text = destination.to_string();
    let is_known = known.iter().any(|entry| entry.mac == text);
    (!is_known).then(|| format!("frames to {text}, which no port has announced,"))
}
