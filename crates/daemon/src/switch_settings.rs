//! Settings of switches besides their ports and flows: static addresses, mirrors, OpenFlow.

use ringroad_control::message::{Mirror, OpenFlow};
use ringroad_datapath::fabric::{Fabric, FabricError};
use serde::{Deserialize, Serialize};

use crate::config::{Config, StaticAddress};
use crate::ports::Ports;
use crate::{mirrors, openflow};

/// Static addresses, mirrors and OpenFlow of all switches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SwitchSettings {
    pub(crate) addresses: Vec<StaticAddress>,
    pub(crate) mirrors: Vec<Mirror>,
    pub(crate) openflow: Vec<OpenFlow>,
}

impl SwitchSettings {
    /// Settings in force.
    pub(crate) fn in_force(ports: &Ports) -> Self {
        let statics = ports.table.fabric().statics();
        let statics = statics.map(|(switch, mac, port)| StaticAddress {
            mac: mac.to_string(),
            port: format!("{switch}:{port}"),
        });
        Self {
            addresses: statics.collect(),
            mirrors: mirrors::in_force(ports),
            openflow: openflow::in_force(ports),
        }
    }

    /// Settings of a configuration.
    pub(crate) fn of(config: &Config) -> Self {
        let (addresses, mirrors) = (config.address.clone(), config.mirror.clone());
        Self { addresses, mirrors, openflow: config.openflow.clone() }
    }

    /// Settings that `other` does not have.
    pub(crate) fn without(mut self, other: &Self) -> Self {
        self.addresses.retain(|address| !other.addresses.iter().any(|other| other.is_same(address)));
        self.mirrors.retain(|mirror| !other.mirrors.contains(mirror));
        self.openflow.retain(|settings| !other.openflow.contains(settings));
        self
    }

    /// The settings in words, one by one.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        let addresses = self.addresses.iter().map(|address| format!("{} on {}", address.mac, address.port));
        let openflow = self.openflow.iter().map(|settings| format!("OpenFlow for {}", settings.switch));
        addresses.chain(self.mirrors.iter().map(mirrors::words)).chain(openflow)
    }

    /// Changes the settings in force from `before` to these. Other settings, which commands made, stay. Keys and
    /// certificates are read again. Returns the settings that are retried.
    ///
    /// # Errors
    /// A worker that is gone.
    pub(crate) fn apply(&self, ports: &mut Ports, before: &Self) -> Result<Vec<String>, FabricError> {
        self.apply_to_fabric(ports.table.fabric_mut(), before)?;
        let is_wanted = |old: &OpenFlow| self.openflow.iter().any(|new| new.switch == old.switch);
        for old in before.openflow.iter().filter(|old| !is_wanted(old)) {
            // A command may have removed it already.
            let _ = ports.remove_openflow(&old.switch);
        }
        let now = openflow::in_force(ports);
        let is_changed = |new: &&OpenFlow| !now.contains(new) || new.private_key.is_some();
        Ok(self.openflow.iter().filter(is_changed).filter_map(|new| ports.want_openflow(new)).collect())
    }

    /// Changes the static addresses and the mirrors as [`Self::apply`].
    ///
    /// # Errors
    /// A worker that is gone.
    pub(crate) fn apply_to_fabric(&self, fabric: &mut Fabric, before: &Self) -> Result<(), FabricError> {
        let gone = before.addresses.iter().filter(|old| !self.addresses.contains(old));
        for (switch, mac, _) in gone.flat_map(StaticAddress::parse) {
            fabric.set_static(&switch, mac, None);
        }
        for (switch, mac, port) in self.addresses.iter().flat_map(StaticAddress::parse) {
            fabric.set_static(&switch, mac, Some(&port));
        }
        let gone = before.mirrors.iter().filter(|old| !self.mirrors.contains(old));
        for (switch, old) in gone.flat_map(mirrors::parse) {
            fabric.remove_mirror(&switch, old.from.as_deref(), &old.to)?;
        }
        for (switch, mirror) in self.mirrors.iter().flat_map(mirrors::parse) {
            fabric.set_mirror(&switch, mirror)?;
        }
        Ok(())
    }
}
