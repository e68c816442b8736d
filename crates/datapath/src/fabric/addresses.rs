//! Addresses of switches: learned, static, and seen on several ports in turn.

use ringroad_port::port_index::PortIndex;
use ringroad_switch::{LearningSwitch, MacEntry};
use ringroad_wire::mac::Mac;

use super::Fabric;

impl Fabric {
    /// Learned addresses of a switch, with their age in ticks.
    #[must_use]
    pub fn mac_table(&self, switch: &str) -> Option<Vec<MacEntry>> {
        let switch = self.switches.get(switch)?;
        Some(switch.learning.table.entries(switch.learning.now()).collect())
    }

    /// Marks a learned address as seen again, unless it is on another port by now.
    pub fn refresh(&self, switch: &str, mac: Mac, port: PortIndex) {
        let Some(switch) = self.switches.get(switch) else { return };
        let LearningSwitch { table, .. } = &*switch.learning;
        let now = switch.learning.now();
        if table.lookup(mac, now) == Some(port) {
            table.learn(mac, port, now);
        }
    }

    /// Binds an address to the port of that name, now and whenever a port of that name is made. `None` removes the
    /// binding. Returns `false` if there was no binding to remove.
    pub fn set_static(&mut self, switch: &str, mac: Mac, port: Option<&str>) -> bool {
        let state = self.switches.get(switch);
        let was = state.is_some_and(|state| state.learning.table.unset_static(mac));
        let Some(port) = port else {
            let Some(statics) = self.statics.get_mut(switch) else { return was };
            let known = statics.remove(&mac).is_some();
            if statics.is_empty() {
                self.statics.remove(switch);
            }
            return known;
        };
        self.statics.entry(switch.to_owned()).or_default().insert(mac, port.to_owned());
        if let Some((state, port)) = state.and_then(|state| Some((state, state.ports.get(port)?))) {
            state.learning.table.set_static(mac, port.index, state.learning.now());
        }
        true
    }

    /// The static addresses: switch, address, and name of the port.
    pub fn statics(&self) -> impl Iterator<Item = (&str, Mac, &str)> {
        self.statics.iter().flat_map(|(switch, statics)| {
            statics.iter().map(move |(&mac, port)| (switch.as_str(), mac, port.as_str()))
        })
    }

    /// Forgets the learned addresses of a switch, or of one of its ports. Returns their number, or `None` if there is
    /// no switch or port of that name.
    #[must_use]
    pub fn forget_learned(&self, switch: &str, port: Option<&str>) -> Option<usize> {
        let state = self.switches.get(switch)?;
        let index = match port {
            Some(port) => Some(state.ports.get(port)?.index),
            None => None,
        };
        Some(state.learning.table.forget_learned(index))
    }

    /// Learns addresses of a switch, each with its VLAN or 0, as if frames had come from them.
    pub fn learn(&self, switch: &str, addresses: impl Iterator<Item = (u16, Mac, PortIndex)>) {
        let Some(state) = self.switches.get(switch) else { return };
        let LearningSwitch { table, ports, .. } = &*state.learning;
        let now = state.learning.now();
        for (vlan, mac, port) in addresses.filter(|(.., port)| ports.contains(*port)) {
            table.learn_in(vlan, mac, port, now);
        }
    }

    /// The switches that found a loop since the last call, each with the port that it blocked last.
    pub fn take_loops(&self) -> impl Iterator<Item = (&str, PortIndex)> {
        self.switches
            .iter()
            .filter_map(|(name, switch)| Some((name.as_str(), switch.learning.loops.take_blocked()?)))
    }

    /// Whether a port is blocked: flooded frames neither enter nor leave by it, since there is a loop behind it.
    #[must_use]
    pub fn is_blocked(&self, switch: &str, port: PortIndex) -> bool {
        self.switches.get(switch).is_some_and(|switch| switch.learning.loops.is_blocked(port))
    }

    /// Moves the ageing clock of every switch on by one tick.
    pub fn tick(&self) {
        for switch in self.switches.values() {
            switch.learning.tick();
        }
    }
}
