//! Gives ports that are veth pairs the addresses that their switch has learned, so that the kernel passes frames
//! between them by itself (`ringroad_drivers::shortcut`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ringroad_drivers::shortcut::{BpfError, Octets, Shortcut};
use ringroad_port::port_index::PortIndex;
use ringroad_wire::mac::Mac;
use tracing::warn;

use crate::port_entries::DaemonPortTable;

/// Interval of reading the addresses of a switch: frames for an address that moves go to its old port for up to this
/// time.
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// Port that is an end of the kernel's path.
struct End<'a> {
    shortcut: &'a Arc<Shortcut>,
    /// Whether frames can leave by the port: other frames go to the datapath, which counts them.
    is_running: bool,
    /// Addresses learned at the port.
    addresses: BTreeSet<Octets>,
}

/// The ends of a switch, by the indexes of their ports.
type SwitchEnds<'a> = BTreeMap<u8, End<'a>>;

/// Updates the kernel's tables with the learned addresses of the switches. Returns whether there are ports that need
/// this.
pub(crate) fn follow(table: &DaemonPortTable) -> bool {
    let mut by_switch: BTreeMap<&str, SwitchEnds<'_>> = BTreeMap::new();
    for port in table.on_switches().values() {
        let Some(device) = port.occupant.device() else { continue };
        if let Some(shortcut) = &device.shortcut {
            let is_running = device.interface.as_ref().is_none_or(|interface| interface.link.is_running());
            let end = End { shortcut, is_running, addresses: BTreeSet::new() };
            by_switch.entry(&port.switch).or_default().insert(port.index, end);
        }
    }
    // A single end has no other end to pass frames to.
    by_switch.retain(|_, ends| ends.len() > 1 || ends.values().any(|end| end.shortcut.is_on_way()));
    for (switch, ends) in &mut by_switch {
        if let Err(error) = follow_switch(table, switch, ends) {
            warn!(switch, %error, "no frames pass within the kernel");
            ends.values().for_each(|end| end.shortcut.give_up());
        }
    }
    !by_switch.is_empty()
}

fn follow_switch(table: &DaemonPortTable, switch: &str, ends: &mut SwitchEnds<'_>) -> Result<(), BpfError> {
    let fabric = table.fabric();
    // Mirrors must see the frames, and settings of ports must apply to them.
    if !fabric.only_learns(switch) {
        return ends.values().try_for_each(|end| end.shortcut.leave());
    }
    let Some(number) = fabric.switch_number(switch) else { return Ok(()) };
    for entry in fabric.mac_table(switch).unwrap_or_default() {
        if let Some(end) = ends.get_mut(&entry.port.0).filter(|end| end.is_running) {
            end.addresses.insert(entry.mac.octets());
        }
    }
    // An address that has moved is removed from its old end first.
    for (&index, end) in ends.iter() {
        for mac in end.shortcut.keep_only(number + 1, &end.addresses)? {
            fabric.refresh(switch, Mac::from_octets(mac), PortIndex(index));
        }
    }
    ends.values().try_for_each(|end| end.shortcut.add(&end.addresses))
}
