//! Look-up of ports by name, creation and removal of ports.

use std::sync::Arc;

use ringroad_control::netmap::{ExternalMemory, PortSizes};
use ringroad_datapath::fabric::QueueParts;
use ringroad_drivers::catalogue::plan_device_in;
use ringroad_drivers::catalogue::port_name::{PortName, check_plain_name};
use ringroad_drivers::shm::PortShape;
use ringroad_netdev::link::link_by_name;
use ringroad_netdev::namespace::HeldNamespace;
use ringroad_port::port_settings::PortSettings;
use ringroad_port_table::entry::SwitchPortName;
use ringroad_port_table::opening::Opener;
use ringroad_ring::geometry::{DEFAULT_SLOTS, MAX_EXTRA_BUFFERS, MAX_QUEUES, SLOTS_RANGE};
use ringroad_ring::region::HugePages;
use rustix::io::Errno;

use super::failure::{NetmapFailure, fail};
use super::memory::{MemoryRegion, global_geometry, private_geometry};
use super::name::{Base, Name, PipeEnd, PortKey};
use super::port::{Kind, NetmapPort};
use super::{Netmap, Requester};
use crate::claims::holder_of;
use crate::namespace_scope::NamespaceScope;
use crate::port_entries::{Client, ClientId};
use crate::ports::Ports;
use crate::quotas::{Demand, Holding};

/// Maximum number of rings of a direction of a pipe.
const MAX_PIPE_RINGS: u16 = 256;

/// The properties of a port if it is created.
#[derive(Debug, Clone, Default)]
pub(crate) struct PortSettingsRequest {
    pub(crate) sizes: PortSizes,
    pub(crate) mem_id: u16,
    pub(crate) extra_buffers: u32,
    pub(crate) external_memory: Option<ExternalMemory>,
}

/// Clamps sizes to the range of ports whose default is `default_slots` slots.
pub(crate) fn clamp_sizes(request: &PortSizes, default_slots: [u32; 2], most_rings: u16) -> PortSizes {
    let slots = |requested: u32, default: u32| match requested {
        0 => default,
        requested => requested.clamp(2, *SLOTS_RANGE.end()),
    };
    let rings = |requested: u16| requested.clamp(1, most_rings);
    PortSizes {
        tx_slots: slots(request.tx_slots, default_slots[0]),
        rx_slots: slots(request.rx_slots, default_slots[1]),
        tx_rings: rings(request.tx_rings),
        rx_rings: rings(request.rx_rings),
        host_tx_rings: 0,
        host_rx_rings: 0,
    }
}

impl Netmap {
    /// Key of the port that `text` names. The port is made if a REGISTER would make it; if it then stays unused, the
    /// caller reaps it.
    pub(crate) fn find(
        &mut self,
        requester: &mut Requester<'_>,
        text: &str,
        request: &PortSettingsRequest,
    ) -> Result<PortKey, NetmapFailure> {
        let Name { base, pipe } = Name::parse(text)?;
        let (key, netns) = self.key_of(requester, &base);
        let Some(end) = pipe else {
            self.find_base(requester, &key, netns, request)?;
            return Ok(key);
        };
        let parent_request = PortSettingsRequest { sizes: PortSizes::default(), ..request.clone() };
        match &key {
            PortKey::Persistent(name) if !self.ports.contains_key(&key) => {
                self.make_automatic(requester, &key, name, &parent_request)?;
            }
            _ => self.find_base(requester, &key, netns, &parent_request)?,
        }
        let found = self.find_pipe(requester, &key, &end, request);
        if found.is_err() {
            self.reap(&key, requester.ports)?;
        }
        found
    }

    /// Key of a port that exists and that the requester may have; nothing is made.
    pub(crate) fn known(&self, requester: &Requester<'_>, text: &str) -> Result<PortKey, NetmapFailure> {
        let Name { base, pipe } = Name::parse(text)?;
        let (mut key, _) = self.key_of(requester, &base);
        if let Some(end) = pipe {
            key = end.of(&key);
        }
        match self.is_there(requester, &key)? {
            true => Ok(key),
            false => Err(fail(Errno::NXIO, format!("there is no port {text:?}"))),
        }
    }

    /// Key of the port that the requester's name means, whether it exists or not, and the namespace of an interface.
    fn key_of(&self, requester: &Requester<'_>, base: &Base) -> (PortKey, Option<HeldNamespace>) {
        match base {
            Base::Switch { switch, port } => {
                let key = self.persistent_on(switch, port);
                (key.unwrap_or_else(|| PortKey::Switch { switch: switch.clone(), port: port.clone() }), None)
            }
            Base::Plain(name) => {
                let persistent = (PortKey::Persistent(name.clone()), None);
                let Ok(netns) = requester.scope.home() else { return persistent };
                // Interface names take precedence over names of ports.
                let key = interface_key(name, &netns);
                match self.ports.contains_key(&key) || has_interface(&netns, name) {
                    true => (key, Some(netns)),
                    false => persistent,
                }
            }
        }
    }

    /// Whether there is a port with this key; a failure if the requester may not have it.
    fn is_there(&self, requester: &Requester<'_>, key: &PortKey) -> Result<bool, NetmapFailure> {
        match self.ports.get(key) {
            Some(port) => requester.check_taken(key, port).map(|()| true),
            None => Ok(false),
        }
    }

    /// The key of the persistent port of that name, if it is on that switch.
    pub(crate) fn persistent_on(&self, switch: &str, port: &str) -> Option<PortKey> {
        let key = PortKey::Persistent(port.to_owned());
        let entry = self.ports.get(&key)?;
        matches!(&entry.kind, Kind::Persistent { switch: Some(on), .. } if on == switch).then_some(key)
    }

    /// Finds or makes a port that is not a pipe.
    fn find_base(
        &mut self,
        requester: &mut Requester<'_>,
        key: &PortKey,
        netns: Option<HeldNamespace>,
        request: &PortSettingsRequest,
    ) -> Result<(), NetmapFailure> {
        if self.is_there(requester, key)? {
            return Ok(());
        }
        match key {
            PortKey::Switch { switch, port } => self.make_on_switch(requester, key, switch, port, request),
            PortKey::Interface { interface, .. } => {
                self.make_interface(requester, key, interface, netns, request)
            }
            _ => Err(fail(Errno::NXIO, format!("there is no port or interface {key}"))),
        }
    }

    fn make_on_switch(
        &mut self,
        requester: &mut Requester<'_>,
        key: &PortKey,
        switch: &str,
        port: &str,
        request: &PortSettingsRequest,
    ) -> Result<(), NetmapFailure> {
        requester.check_free(key, false)?;
        if requester.ports.table.occupant(&key.to_string()).is_some() {
            return Err(fail(
                Errno::BUSY,
                format!("{key} is a port of the daemon, or of a program that is not a netmap program"),
            ));
        }
        let persistent = self.ports.get(&PortKey::Persistent(port.to_owned()));
        let is_persistent =
            persistent.is_some_and(|port| matches!(port.kind, Kind::Persistent { automatic: false, .. }));
        if is_persistent || interface_exists(port, requester.scope) {
            return Err(fail(Errno::INVAL, format!("{port} is an interface: attach it to {switch}")));
        }
        let sizes = clamp_sizes(&request.sizes, [DEFAULT_SLOTS; 2], MAX_QUEUES);
        requester.ports.check_switch(switch, requester.client)?;
        let holding = requester.hold(Demand::of_port(sizes.tx_rings.max(sizes.rx_rings)))?;
        let memory = self.memory_for(requester, request, &sizes)?;
        let kind = Kind::Ephemeral { switch: switch.to_owned(), port: port.to_owned() };
        self.insert(
            key.clone(),
            NetmapPort::new(&key.to_string(), kind, requester.client, memory, sizes, holding),
        )
    }

    fn make_interface(
        &mut self,
        requester: &Requester<'_>,
        key: &PortKey,
        plain: &str,
        netns: Option<HeldNamespace>,
        request: &PortSettingsRequest,
    ) -> Result<(), NetmapFailure> {
        requester.check_free(key, true)?;
        let unknown = || fail(Errno::NXIO, format!("{plain} vanished"));
        let netns = netns.ok_or_else(unknown)?;
        let name: PortName = plain.parse().map_err(|error| fail(Errno::NXIO, format!("{plain}: {error}")))?;
        let plan = plan_device_in(Some(&netns), &name, None)?;
        if let Some(holder) = plan.side.and_then(|side| holder_of(side).or_else(|| holder_of(side.other()))) {
            return Err(fail(Errno::BUSY, format!("{holder} has {plain}")));
        }
        let queues = plan.queues;
        let host = |requested: u16| requested.clamp(1, MAX_QUEUES);
        let sizes = PortSizes {
            tx_slots: DEFAULT_SLOTS,
            rx_slots: DEFAULT_SLOTS,
            tx_rings: queues,
            rx_rings: queues,
            host_tx_rings: host(request.sizes.host_tx_rings),
            host_rx_rings: host(request.sizes.host_rx_rings),
        };
        let taken = sizes.tx_rings + sizes.host_tx_rings.max(sizes.host_rx_rings);
        let holding = requester.hold(Demand::of_device(taken))?;
        let payer = requester.payer();
        let memory = match (&request.external_memory, request.mem_id) {
            // Exception for shared interfaces: a user with access to this interface must not get access to the maker's
            // other interfaces.
            (None, 0) if requester.ports.permissions.is_shared(requester.client.peer, &key.to_string()) => {
                self.memory.private(&payer, global_geometry())?
            }
            (None, 0) => self.memory.global(&payer)?,
            _ => self.memory_for(requester, request, &sizes)?,
        };
        let kind = Kind::Interface { interface: plain.to_owned(), netns };
        self.insert(key.clone(), NetmapPort::new(plain, kind, requester.client, memory, sizes, holding))
    }

    /// Finds or makes an end of a pipe, and its other end with it.
    fn find_pipe(
        &mut self,
        requester: &Requester<'_>,
        parent: &PortKey,
        end: &PipeEnd,
        request: &PortSettingsRequest,
    ) -> Result<PortKey, NetmapFailure> {
        let own = end.of(parent);
        if self.is_there(requester, &own)? {
            return Ok(own);
        }
        let vanished = || fail(Errno::NXIO, format!("{parent} vanished"));
        let peer = own.other_end().ok_or_else(vanished)?;
        requester.check_free(&own, false)?;
        // Each end has a pair of eventfds.
        let holding = requester.hold(Demand { pipes: 1, queues: 2, ..Demand::default() })?;
        let parent_port = self.ports.get(parent).ok_or_else(vanished)?;
        let memory = Arc::clone(&parent_port.memory);
        let defaults = [parent_port.sizes.tx_slots, parent_port.sizes.rx_slots];
        let sizes = clamp_sizes(&request.sizes, defaults, MAX_PIPE_RINGS);
        let mirrored = PortSizes {
            tx_slots: sizes.rx_slots,
            rx_slots: sizes.tx_slots,
            tx_rings: sizes.rx_rings,
            rx_rings: sizes.tx_rings,
            ..sizes
        };
        // Both ends come and go together, so one of them holds the pipe's demand.
        for (key, peer, master, sizes, holding) in [
            (&own, &peer, end.master, sizes, holding),
            (&peer, &own, !end.master, mirrored, Holding::default()),
        ] {
            let kind = Kind::Pipe { parent: parent.clone(), peer: peer.clone(), master };
            let memory = Arc::clone(&memory);
            let port = NetmapPort::new(&key.to_string(), kind, requester.client, memory, sizes, holding);
            self.insert(key.clone(), port)?;
        }
        self.ports.get_mut(parent).ok_or_else(vanished)?.pipes += 1;
        Ok(own)
    }

    /// Makes a persistent port for the pipes of a name that no port has.
    fn make_automatic(
        &mut self,
        requester: &Requester<'_>,
        key: &PortKey,
        name: &str,
        request: &PortSettingsRequest,
    ) -> Result<(), NetmapFailure> {
        check_plain_name(name).map_err(|problem| fail(Errno::INVAL, problem))?;
        requester.check_free(key, false)?;
        let sizes = clamp_sizes(&PortSizes::default(), [DEFAULT_SLOTS; 2], MAX_QUEUES);
        let memory = self.memory_for(requester, request, &sizes)?;
        let kind = Kind::Persistent { automatic: true, switch: None };
        let holding = requester.hold(Demand::of_port(1))?;
        self.insert(key.clone(), NetmapPort::new(name, kind, requester.client, memory, sizes, holding))
    }

    /// The region for a new port.
    pub(crate) fn memory_for(
        &mut self,
        requester: &Requester<'_>,
        request: &PortSettingsRequest,
        sizes: &PortSizes,
    ) -> Result<Arc<MemoryRegion>, NetmapFailure> {
        let payer = requester.payer();
        if let Some(external) = &request.external_memory {
            return self.memory.external(&payer, external);
        }
        if request.mem_id != 0 {
            return self.memory.named(request.mem_id, &payer);
        }
        let geometry = private_geometry(sizes, request.extra_buffers.min(MAX_EXTRA_BUFFERS))?;
        self.memory.private(&payer, geometry)
    }

    /// Puts a port on a switch; returns its index there.
    pub(crate) fn enter_on_switch(
        requester: &mut Requester<'_>,
        port: &NetmapPort,
        switch_port: SwitchPortName<'_>,
        queues: Vec<QueueParts>,
    ) -> Result<u32, NetmapFailure> {
        let shape = PortShape {
            queues: port.queues(),
            slots: port.sizes.tx_slots.max(port.sizes.rx_slots),
            buffer_bytes: port.memory.geometry().buffer_bytes,
            huge_pages: HugePages::Never,
            ..PortShape::DEFAULT
        };
        // The port belongs to no single connection, since several devices may be bound to it. The netmap port holds its
        // demand.
        let anybody = Client { id: ClientId::MAX, ..requester.client.clone() };
        let opener = Opener { share: port.share(), ..anybody.opener(Holding::default()) };
        let settings = requester.ports.rules.settings(&switch_port.to_string(), &PortSettings::default());
        Ok(requester.ports.table.attach_netmap(switch_port, (shape, settings), opener, queues)?.index.into())
    }

    /// Stops serving a port that is not bound, and removes the port unless it is persistent; also removes its parent,
    /// if the parent existed only for this port.
    pub(crate) fn reap(&mut self, key: &PortKey, ports: &mut Ports) -> Result<(), NetmapFailure> {
        let Some(port) = self.ports.get(key) else { return Ok(()) };
        if !port.bound.is_empty() {
            return Ok(());
        }
        let stays = port.pipes > 0;
        match port.kind.clone() {
            Kind::Persistent { automatic: false, .. } => self.retire(key, ports),
            Kind::Pipe { parent, peer, .. } => {
                if self.ports.get(&peer).is_some_and(|peer| !peer.bound.is_empty()) {
                    return Ok(());
                }
                if let (Some(mut one), Some(mut other)) = (self.ports.remove(key), self.ports.remove(&peer)) {
                    NetmapPort::take_back_pipe([&mut one, &mut other]);
                }
                if let Some(parent_port) = self.ports.get_mut(&parent) {
                    parent_port.pipes -= 1;
                }
                self.reap(&parent, ports)
            }
            Kind::Monitor { parent, .. } => self.leave_parent(key, &parent, ports),
            Kind::Persistent { automatic: true, .. }
            | Kind::Ephemeral { .. }
            | Kind::Interface { .. }
            | Kind::Null => {
                let retired = self.retire(key, ports);
                if !stays {
                    self.ports.remove(key);
                }
                retired
            }
        }
    }

    /// Takes the rings of an unbound port out of the datapath and gives them back.
    fn retire(&mut self, key: &PortKey, ports: &mut Ports) -> Result<(), NetmapFailure> {
        let Some(port) = self.ports.get_mut(key) else { return Ok(()) };
        let ended = port.end_service(&mut ports.table);
        port.take_back();
        port.events.clear();
        port.states.clear();
        port.offsets = None;
        ended
    }
}

/// Key of an interface.
fn interface_key(name: &str, netns: &HeldNamespace) -> PortKey {
    let netns = (!netns.is_current()).then(|| netns.label().to_owned());
    PortKey::Interface { interface: name.to_owned(), netns }
}

fn has_interface(netns: &HeldNamespace, name: &str) -> bool {
    netns.run(|| link_by_name(name).is_ok()).unwrap_or(false)
}

/// Whether the requesting process's namespace has an interface of that name.
pub(crate) fn interface_exists(name: &str, scope: NamespaceScope<'_>) -> bool {
    scope.home().is_ok_and(|netns| has_interface(&netns, name))
}
