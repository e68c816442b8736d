//! Gives ports that are veth pairs the addresses that their switch has learned, so that the kernel passes frames
//! between them by itself (`ringroad_drivers::veth::shortcut`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ringroad_drivers::veth::shortcut::{BpfError, Octets, Shortcut};
use ringroad_port::port_index::PortIndex;
use ringroad_switch::Mac;
use tracing::warn;

use crate::port_entries::PortTable;

/// Interval of reading the addresses of a switch: frames for an address that moves go to its old place for up to this
/// time.
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// A port's place on the way, and the addresses learned there.
type Ends<'a> = BTreeMap<u8, (&'a Arc<Shortcut>, BTreeSet<Octets>)>;

/// Updates the kernel's tables to what the switches have learned. Returns whether there are ports that need it.
pub(crate) fn follow(table: &PortTable) -> bool {
    let mut by_switch: BTreeMap<&str, Ends<'_>> = BTreeMap::new();
    for port in table.on_switches().values() {
        if let Some(shortcut) = port.occupant.device().and_then(|device| device.shortcut.as_ref()) {
            let ends = by_switch.entry(&port.switch).or_default();
            ends.insert(port.index, (shortcut, BTreeSet::new()));
        }
    }
    // One alone has nowhere to pass frames to.
    by_switch.retain(|_, ends| ends.len() > 1 || ends.values().any(|(shortcut, _)| shortcut.is_on_way()));
    for (switch, ends) in &mut by_switch {
        if let Err(error) = follow_switch(table, switch, ends) {
            warn!(switch, %error, "no frames pass within the kernel");
            ends.values().for_each(|(shortcut, _)| shortcut.give_up());
        }
    }
    !by_switch.is_empty()
}

fn follow_switch(table: &PortTable, switch: &str, ends: &mut Ends<'_>) -> Result<(), BpfError> {
    let fabric = table.fabric();
    // A mirror must see the frames, and settings of ports must hold for them.
    if !fabric.only_learns(switch) {
        return ends.values().try_for_each(|(shortcut, _)| shortcut.leave());
    }
    let Some(number) = fabric.switch_number(switch) else { return Ok(()) };
    for entry in fabric.mac_table(switch).unwrap_or_default() {
        if let Some((_, addresses)) = ends.get_mut(&entry.port.0) {
            addresses.insert(entry.mac.octets());
        }
    }
    // An address that has moved leaves its old place first.
    for (&index, (shortcut, addresses)) in ends.iter() {
        for mac in shortcut.keep_only(number + 1, addresses)? {
            fabric.refresh(switch, Mac::from_octets(mac), PortIndex(index));
        }
    }
    ends.values().try_for_each(|(shortcut, addresses)| shortcut.add(addresses))
}
