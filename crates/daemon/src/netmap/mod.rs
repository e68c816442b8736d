//! The daemon's part of netmap: devices, the ports that they are bound to, memory ids, and the control requests.
//!
//! The datapath serves ports on switches, interfaces and their host rings like those of any other program. This module
//! adds netmap's own rules: several bindings share one port's rings, a port may lie in another port's region, pipes
//! have parents, monitors watch rings.
//!
//! - `bind`: REGISTER and its end; `find`: look-up by name, and new ports; `port`: rings; `service`: the datapath's
//!   side;
//! - `requests`: all requests that bind nothing; `report`: reports of ports; `memory`: regions; `name`, `failure`.

mod bind;
mod failure;
mod find;
mod memory;
mod monitors;
mod name;
mod port;
mod report;
mod requests;
mod service;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringroad_control::netmap::{Badge, Bound, NetmapReply, NetmapRequest};
use ringroad_control::report::PortReport;
use ringroad_datapath::fabric::FabricError;
use ringroad_ring::ledger::ChargedUser;
use rustix::io::Errno;

use crate::namespace_scope::NamespaceScope;
use crate::permissions::PortAccess;
use crate::port_entries::{Client, ClientId};
use crate::ports::Ports;
use crate::quotas::{Demand, Holding};
use crate::refusal::Refusal;
use failure::{NetmapFailure, fail};
use memory::{GLOBAL, Memory, MemoryRegion};
use name::PortKey;
use port::{Kind, NetmapPort};

/// One open of `/dev/netmap`.
#[derive(Debug)]
struct DeviceEntry {
    badge: Badge,
    binding: Option<Binding>,
}

/// The rings to which a device is bound.
#[derive(Debug)]
struct Binding {
    /// Key of the port.
    port: PortKey,
    /// Client that bound the device.
    client: Client,
    /// Index of the interface object.
    interface: u32,
    /// Indexes in the port's list of rings.
    rings: Vec<usize>,
    exclusive: bool,
    bound: Bound,
}

/// All devices, ports and regions of netmap programs.
#[derive(Debug, Default)]
pub struct Netmap {
    devices: BTreeMap<u64, DeviceEntry>,
    ports: BTreeMap<PortKey, NetmapPort>,
    memory: Memory,
    /// Numbers of switches, for VALE_LIST.
    switch_numbers: BTreeMap<String, u16>,
    /// Attachments on which polling is enabled, by full name.
    polled: BTreeMap<String, u32>,
}

/// A reply with its descriptors.
#[derive(Debug)]
pub struct NetmapAnswer {
    /// Reply to send.
    pub reply: NetmapReply,
    /// Descriptors that travel with the reply, in its order.
    pub descriptors: Vec<OwnedFd>,
}

impl From<NetmapReply> for NetmapAnswer {
    fn from(reply: NetmapReply) -> Self {
        Self { reply, descriptors: Vec::new() }
    }
}

impl NetmapAnswer {
    /// The refusal of a request that only administrators may send.
    #[must_use]
    pub fn denied() -> Self {
        let message = "only root and the daemon's user may do that".to_owned();
        NetmapReply::Failed { errno: Errno::ACCESS.raw_os_error(), message }.into()
    }
}

/// The requester, and the ports that it can change.
#[derive(Debug)]
pub struct Requester<'a> {
    pub ports: &'a mut Ports,
    /// Connection of the request.
    pub client: &'a Client,
    /// Namespace scope of the request's interface names.
    pub scope: NamespaceScope<'a>,
    /// The highest real-time priority that workers take for the requester's program.
    pub workers_real_time: u8,
}

impl Requester<'_> {
    fn payer(&self) -> ChargedUser {
        self.ports.quotas.memory_payer(self.client)
    }

    fn hold(&self, demand: Demand) -> Result<Holding, Refusal> {
        self.ports.quotas.hold(self.client, demand)
    }

    /// Checks that the rules give the requester a port that does not exist yet.
    fn check_free(&self, key: &PortKey, device: bool) -> Result<(), NetmapFailure> {
        Ok(self.ports.permissions.check(self.client.peer, &key.to_string(), PortAccess::Free { device })?)
    }

    /// Checks that the rules give the requester a port that exists.
    fn check_taken(&self, key: &PortKey, port: &NetmapPort) -> Result<(), NetmapFailure> {
        // Pipes and monitors of a port have makers of their own, and are named by the port.
        let standing = PortAccess::Of(port.owner.peer.uid);
        Ok(self.ports.permissions.check(self.client.peer, &key.base().to_string(), standing)?)
    }
}

impl Netmap {
    /// Makes a connection a device.
    ///
    /// # Errors
    /// No random bytes are available for a secret.
    pub fn open_device(&mut self, client: ClientId) -> Result<Badge, NetmapFailure> {
        let mut secret = [0; 16];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| fail(errno, "making a secret"))?;
        let secret = u128::from_ne_bytes(secret);
        let badge = Badge { device: client, secret: [secret as u64, (secret >> 64) as u64] };
        self.devices.insert(client, DeviceEntry { badge, binding: None });
        Ok(badge)
    }

    /// Whether a connection is a netmap device.
    #[must_use]
    pub fn is_device(&self, client: ClientId) -> bool {
        self.devices.contains_key(&client)
    }

    /// Ends a device after every copy of its descriptor is closed.
    ///
    /// # Errors
    /// A worker that is gone, as a failure.
    pub fn close_device(&mut self, client: ClientId, ports: &mut Ports) -> Result<(), NetmapFailure> {
        let Some(device) = self.devices.remove(&client) else { return Ok(()) };
        match device.binding {
            Some(binding) => {
                self.let_go_of_memory(client, &binding.port);
                self.unbind(client, binding, ports)
            }
            None => Ok(()),
        }
    }

    /// Releases memory whose last user was a device.
    fn let_go_of_memory(&self, device: u64, port: &PortKey) {
        let Some(memory) = self.ports.get(port).map(|port| &port.memory) else { return };
        let mut others = self.ports.values().filter(|port| Arc::ptr_eq(&port.memory, memory));
        let stays = |port: &NetmapPort| {
            matches!(port.kind, Kind::Persistent { automatic: false, .. })
                || port.bound.iter().any(|&other| other != device)
        };
        if !others.any(stays) {
            memory.home.region().discard_at_end();
        }
    }

    /// Whether nothing would be lost if the daemon ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Reports of the ports that are on no switch, which no other report has, in the order of their names and from
    /// `first` on. An interface may have two reports: its own side and the host's.
    pub(crate) fn reports<'a>(
        &'a self,
        ports: &'a Ports,
        first: &str,
    ) -> impl Iterator<Item = (String, Result<Vec<PortReport>, FabricError>)> {
        let off_switches = self.ports.iter().filter(|(_, port)| port.is_off_switches());
        let mut named: Vec<_> = off_switches
            .map(|(key, port)| (key.to_string(), key, port))
            .filter(|(name, ..)| name.as_str() >= first)
            .collect();
        named.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        named.into_iter().map(|(name, key, port)| {
            (name, port.report(key, self.user_of(port), self.peer_of(port), ports.table.fabric()))
        })
    }

    /// The other end of a pipe.
    fn peer_of(&self, port: &NetmapPort) -> Option<&NetmapPort> {
        match &port.kind {
            Kind::Pipe { peer, .. } => self.ports.get(peer),
            _ => None,
        }
    }

    /// The first user of a bound port.
    fn user_of(&self, port: &NetmapPort) -> Option<&Client> {
        let device = self.devices.get(port.bound.first()?)?;
        Some(&device.binding.as_ref()?.client)
    }

    /// Inserts a port that does not exist yet.
    fn insert(&mut self, key: PortKey, port: NetmapPort) -> Result<(), NetmapFailure> {
        match self.ports.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(port);
                Ok(())
            }
            Entry::Occupied(entry) => Err(fail(Errno::BUSY, format!("{} is there already", entry.key()))),
        }
    }

    /// Checks that the requester may have a region: with it comes the memory of every port in it.
    fn check_memory(
        &self,
        requester: &Requester<'_>,
        memory: &Arc<MemoryRegion>,
    ) -> Result<(), NetmapFailure> {
        if memory.uid == requester.client.peer.uid {
            return Ok(());
        }
        let mut in_it = self.ports.iter().filter(|(_, port)| Arc::ptr_eq(&port.memory, memory));
        in_it.try_for_each(|(key, port)| requester.check_taken(key, port))
    }

    /// The region of an existing port that the request names.
    fn known_memory(
        &mut self,
        requester: &Requester<'_>,
        id: u16,
    ) -> Result<Arc<MemoryRegion>, NetmapFailure> {
        let others = self.ports.values().map(|port| &port.memory);
        match others.filter(|memory| memory.id != GLOBAL).find(|memory| memory.id == id) {
            Some(memory) => self.check_memory(requester, memory).map(|()| Arc::clone(memory)),
            None => self.memory.named(id, &requester.payer()),
        }
    }

    /// Replies to a request.
    pub fn answer(
        &mut self,
        mut requester: Requester<'_>,
        device: Option<Badge>,
        request: NetmapRequest,
    ) -> NetmapAnswer {
        self.serve(&mut requester, device, request).unwrap_or_else(|failure| {
            NetmapReply::Failed { errno: failure.errno.raw_os_error(), message: failure.message }.into()
        })
    }

    fn serve(
        &mut self,
        requester: &mut Requester<'_>,
        device: Option<Badge>,
        request: NetmapRequest,
    ) -> Result<NetmapAnswer, NetmapFailure> {
        match request {
            NetmapRequest::Register(register) => {
                let device = self.check_badge(device)?;
                self.register(requester, device, register)
            }
            NetmapRequest::Binding => self.describe(self.check_badge(device)?),
            // The server has already checked for closed devices.
            NetmapRequest::Settle => Ok(NetmapReply::Done.into()),
            NetmapRequest::Monitors => self.monitors_to_fill(self.check_badge(device)?),
            request => self.serve_portwise(requester, request).map(NetmapAnswer::from),
        }
    }

    /// The binding of a device, and the port that it is bound to.
    fn bound(&self, device: u64) -> Result<(&Binding, &NetmapPort), NetmapFailure> {
        let binding = self.devices.get(&device).and_then(|entry| entry.binding.as_ref());
        let bound = binding.and_then(|binding| Some((binding, self.ports.get(&binding.port)?)));
        bound.ok_or_else(|| fail(Errno::NXIO, "the device is not bound"))
    }

    /// Device whose badge the request shows.
    fn check_badge(&self, badge: Option<Badge>) -> Result<u64, NetmapFailure> {
        let entry = badge.and_then(|badge| Some((badge, self.devices.get(&badge.device)?)));
        match entry {
            Some((badge, entry)) if entry.badge == badge => Ok(badge.device),
            _ => Err(fail(Errno::BADF, "no such netmap device")),
        }
    }
}

#[cfg(test)]
mod tests;
