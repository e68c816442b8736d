//! Attached ports that end with the connection that requested them, unless the client keeps them before.
//!
//! So a client that is killed while it sets something up leaves nothing, whatever it had done.

use std::collections::BTreeMap;

use ringroad_control::message::AttachedPort;
use ringroad_drivers::device::DeviceInterface;
use ringroad_netdev::NetdevError;
use ringroad_netdev::link_change::delete_link_by_index;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::port_entries::ClientId;
use crate::ports::Ports;
use crate::refusal::Refusal;

/// Drivers of interfaces that exist for their port alone.
const INTERFACES_OF_PORTS: [&str; 2] = ["tap", "veth"];

/// Names and numbers of the provisional ports of each client, in the order of their requests.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ProvisionalPorts(BTreeMap<ClientId, Vec<(String, u64)>>);

impl ProvisionalPorts {
    pub(crate) fn add(&mut self, client: ClientId, ports: &[AttachedPort]) {
        let ports = ports.iter().map(|port| (port.name.clone(), port.number));
        self.0.entry(client).or_default().extend(ports);
    }

    /// Forgets a port that was removed.
    pub(crate) fn forget(&mut self, key: &str) {
        self.0.values_mut().for_each(|ports| ports.retain(|(name, _)| name != key));
    }

    /// Takes the ports of a client out of this list.
    pub(crate) fn take(&mut self, client: ClientId) -> Vec<(String, u64)> {
        self.0.remove(&client).unwrap_or_default()
    }
}

impl Ports {
    /// Removes a port with the interface that exists for it, also from a program that has the port open. Returns this
    /// program's client.
    ///
    /// # Errors
    /// The refusal of [`Ports::detach`].
    pub(crate) fn detach_with_interface(&mut self, key: &str) -> Result<Option<ClientId>, Refusal> {
        let device = self.table.occupant(key).and_then(|occupant| occupant.device());
        let device = device.filter(|device| INTERFACES_OF_PORTS.contains(&device.capabilities.driver));
        let interface = device.and_then(|device| device.interface.clone());
        let owner = self.detach(key, true)?;
        if let Some(interface) = interface
            && let Err(error) = delete(&interface)
        {
            warn!(port = %key, interface = %interface.name, %error, "an interface stays");
        }
        Ok(owner)
    }
}

/// Deletes an interface, if it still exists.
fn delete(interface: &DeviceInterface) -> Result<(), String> {
    let delete = || match delete_link_by_index(interface.link.index()) {
        Err(error) if error.is_no_interface() => Ok(()),
        result => result,
    };
    let deleted: Result<(), NetdevError> = match &interface.netns {
        Some(netns) => netns.run(delete).map_err(|error| error.to_string())?,
        None => delete(),
    };
    deleted.map_err(|error| error.to_string())
}
