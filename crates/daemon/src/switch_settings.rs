//! Settings of switches besides their ports and flows: static addresses, mirrors, OpenFlow.

use ringroad_control::message::{Mirror, OpenFlow};
use ringroad_datapath::fabric::FabricError;
use serde::{Deserialize, Serialize};

use crate::config::{Config, StaticAddress};
use crate::ports::Ports;
use crate::{mirrors, openflow, reload};

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
        let (mirrors, openflow) = (mirrors::in_force(ports), openflow::in_force(ports));
        Self { addresses: addresses_in_force(ports), mirrors, openflow }
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

    /// Puts the settings in force beside others. Returns the settings that are retried.
    ///
    /// # Errors
    /// A worker that is gone.
    pub(crate) fn apply(&self, ports: &mut Ports) -> Result<Vec<String>, FabricError> {
        reload::apply_addresses(ports, &[], &self.addresses);
        reload::apply_mirrors(ports, &[], &self.mirrors)?;
        Ok(reload::apply_openflow(ports, &[], &self.openflow))
    }
}

/// The static addresses in force, as a configuration has them.
pub(crate) fn addresses_in_force(ports: &Ports) -> Vec<StaticAddress> {
    let statics = ports.table.fabric().statics();
    statics
        .map(|(switch, mac, port)| StaticAddress { mac: mac.to_string(), port: format!("{switch}:{port}") })
        .collect()
}
