//! Which port a name means, and the making and vanishing of ports.

use std::sync::Arc;

use ringroad_control::netmap::{ExternalMemory, PortSizes};
use ringroad_drivers::registry::plan_device;
use ringroad_netdev::link::link_by_name;
use ringroad_netdev::namespace::{Namespace, in_namespace};
use ringroad_port::port_name::PortName;
use ringroad_ring::geometry::{DEFAULT_SLOTS, MAX_QUEUES, SLOTS_RANGE};
use rustix::io::Errno;

use super::failure::{Failure, fail};
use super::memory::{MemoryRegion, private_geometry};
use super::name::Name;
use super::port::{Kind, NetmapPort};
use super::{Asker, Netmap};
use crate::port_entries::{Client, ClientId, Origin, Sizes, SwitchPort};
use crate::ports::{NETMAP_DRIVER, Ports};

/// Most rings of a direction of a pipe.
const MAX_PIPE_RINGS: u16 = 256;
/// Most extra buffers of one binding.
pub(crate) const MAX_EXTRA_BUFFERS: u32 = 128 * 4096;

/// What a port is to be like, should it come into being.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wish {
    pub(crate) sizes: PortSizes,
    pub(crate) mem_id: u16,
    pub(crate) extra_buffers: u32,
    pub(crate) external_memory: Option<ExternalMemory>,
}

/// Sizes within what a port of `default` slots can have.
pub(crate) fn clamp_sizes(wish: &PortSizes, default_slots: [u32; 2], most_rings: u16) -> PortSizes {
    let slots = |wished: u32, default: u32| match wished {
        0 => default,
        wished => wished.clamp(2, *SLOTS_RANGE.end()),
    };
    let rings = |wished: u16| wished.clamp(1, most_rings);
    PortSizes {
        tx_slots: slots(wish.tx_slots, default_slots[0]),
        rx_slots: slots(wish.rx_slots, default_slots[1]),
        tx_rings: rings(wish.tx_rings),
        rx_rings: rings(wish.rx_rings),
        host_tx_rings: 0,
        host_rx_rings: 0,
    }
}

impl Netmap {
    /// The key of the port that `text` names, which is made where a REGISTER would make it. What is made and not used has to be reaped.
    pub(crate) fn find(
        &mut self,
        ports: &mut Ports,
        asker: Asker<'_>,
        text: &str,
        wish: &Wish,
    ) -> Result<String, Failure> {
        let name = Name::parse(text)?;
        let device = matches!(&name, Name::Plain(plain) if !self.ports.contains_key(plain));
        if !asker.permissions.may_open(asker.client.peer, text, device) {
            return Err(fail(Errno::ACCESS, format!("user {} may not open {text}", asker.client.peer.uid)));
        }
        match name {
            Name::Pipe { parent, id, master } => self.find_pipe(ports, asker, &parent, &id, master, wish),
            Name::Vale { switch, port } => self.find_on_switch(ports, asker, &switch, &port, wish),
            Name::Plain(plain) => self.find_plain(ports, asker, &plain, wish),
        }
    }

    /// The key of a port that exists; nothing is made.
    pub(crate) fn known(&self, asker: Asker<'_>, text: &str) -> Result<String, Failure> {
        let absent = || fail(Errno::NXIO, format!("there is no port {text}"));
        let key = match Name::parse(text)? {
            Name::Pipe { .. } => text.to_owned(),
            Name::Vale { switch, port } => {
                self.persistent_on(&switch, &port).unwrap_or_else(|| text.to_owned())
            }
            Name::Plain(plain) if self.ports.contains_key(&plain) => plain,
            Name::Plain(plain) => interface_key(&plain, netns_of(asker).as_ref()),
        };
        self.ports.contains_key(&key).then_some(key).ok_or_else(absent)
    }

    /// The key of the persistent port of that name, if it is on that switch.
    pub(crate) fn persistent_on(&self, switch: &str, port: &str) -> Option<String> {
        let entry = self.ports.get(port)?;
        matches!(&entry.kind, Kind::Persistent { switch: Some(on), .. } if on == switch)
            .then(|| port.to_owned())
    }

    fn find_on_switch(
        &mut self,
        ports: &mut Ports,
        asker: Asker<'_>,
        switch: &str,
        port: &str,
        wish: &Wish,
    ) -> Result<String, Failure> {
        if let Some(key) = self.persistent_on(switch, port) {
            return Ok(key);
        }
        let key = format!("{switch}:{port}");
        if self.ports.contains_key(&key) {
            return Ok(key);
        }
        if ports.on_switches.contains_key(&key) {
            return Err(fail(
                Errno::BUSY,
                format!("{key} is a port of the daemon, or of a program that is no netmap program"),
            ));
        }
        if self.ports.contains_key(port) || interface_exists(port, netns_of(asker).as_ref()) {
            return Err(fail(Errno::INVAL, format!("{port} is an interface: attach it to {switch}")));
        }
        let sizes = clamp_sizes(&wish.sizes, [DEFAULT_SLOTS; 2], MAX_QUEUES);
        let memory = self.memory_for(ports, asker, wish, &sizes)?;
        let kind = Kind::Ephemeral { switch: switch.to_owned(), port: port.to_owned() };
        self.ports.insert(key.clone(), NetmapPort::new(&key, kind, memory, sizes));
        Ok(key)
    }

    fn find_plain(
        &mut self,
        ports: &mut Ports,
        asker: Asker<'_>,
        plain: &str,
        wish: &Wish,
    ) -> Result<String, Failure> {
        if self.ports.contains_key(plain) {
            return Ok(plain.to_owned());
        }
        let netns = netns_of(asker);
        let key = interface_key(plain, netns.as_ref());
        if self.ports.contains_key(&key) {
            return Ok(key);
        }
        if !interface_exists(plain, netns.as_ref()) {
            return Err(fail(Errno::NXIO, format!("there is no port or interface {plain}")));
        }
        if !asker.permissions.may_open(asker.client.peer, plain, true) {
            return Err(fail(Errno::ACCESS, format!("user {} may not open {plain}", asker.client.peer.uid)));
        }
        let taken = ports.devices.contains_key(&key)
            || ports
                .on_switches
                .values()
                .filter_map(|port| port.device.as_ref()?.interface.as_ref())
                .any(|interface| interface.name == plain && interface.netns.is_some() == netns.is_some());
        if taken {
            return Err(fail(
                Errno::BUSY,
                format!("{plain} is attached to a switch, or open in another program"),
            ));
        }
        let mut spelled = plain.to_owned();
        if let Some(netns) = &netns {
            spelled += &format!("@netns={}", netns.pid);
        }
        let name: PortName =
            spelled.parse().map_err(|error| fail(Errno::NXIO, format!("{plain}: {error}")))?;
        let queues = plan_device(&name, None)?.queues;
        let host = |wished: u16| wished.clamp(1, MAX_QUEUES);
        let sizes = PortSizes {
            tx_slots: DEFAULT_SLOTS,
            rx_slots: DEFAULT_SLOTS,
            tx_rings: queues,
            rx_rings: queues,
            host_tx_rings: host(wish.sizes.host_tx_rings),
            host_rx_rings: host(wish.sizes.host_rx_rings),
        };
        let memory = match (&wish.external_memory, wish.mem_id) {
            (None, 0) => self.memory.for_interface(asker.client.peer.uid)?,
            _ => self.memory_for(ports, asker, wish, &sizes)?,
        };
        let kind = Kind::Interface { interface: plain.to_owned(), netns: netns.map(|netns| netns.pid) };
        self.ports.insert(key.clone(), NetmapPort::new(plain, kind, memory, sizes));
        Ok(key)
    }

    fn find_pipe(
        &mut self,
        ports: &mut Ports,
        asker: Asker<'_>,
        parent: &str,
        id: &str,
        master: bool,
        wish: &Wish,
    ) -> Result<String, Failure> {
        let parent_wish = Wish { sizes: PortSizes::default(), ..wish.clone() };
        let parent = match self.find(ports, asker, parent, &parent_wish) {
            Err(failure) if failure.errno == Errno::NXIO => {
                self.make_automatic(ports, asker, parent, wish)?
            }
            result => result?,
        };
        let [one, other] = ["{", "}"].map(|brace| format!("{parent}{brace}{id}"));
        let (own, peer) = if master { (one, other) } else { (other, one) };
        if self.ports.contains_key(&own) {
            return Ok(own);
        }
        let Some(parent_port) = self.ports.get_mut(&parent) else {
            return Err(fail(Errno::NXIO, "the parent vanished"));
        };
        let memory = Arc::clone(&parent_port.memory);
        let defaults = [parent_port.sizes.tx_slots, parent_port.sizes.rx_slots];
        let sizes = clamp_sizes(&wish.sizes, defaults, MAX_PIPE_RINGS);
        let mirrored = PortSizes {
            tx_slots: sizes.rx_slots,
            rx_slots: sizes.tx_slots,
            tx_rings: sizes.rx_rings,
            rx_rings: sizes.tx_rings,
            ..sizes
        };
        parent_port.pipes += 1;
        for (key, peer, master, sizes) in [(&own, &peer, master, sizes), (&peer, &own, !master, mirrored)] {
            let kind = Kind::Pipe { parent: parent.clone(), peer: peer.clone(), master };
            self.ports.insert(key.clone(), NetmapPort::new(key, kind, Arc::clone(&memory), sizes));
        }
        Ok(own)
    }

    /// A persistent port for the pipes of a name that nothing has.
    fn make_automatic(
        &mut self,
        ports: &Ports,
        asker: Asker<'_>,
        name: &str,
        wish: &Wish,
    ) -> Result<String, Failure> {
        let sizes = clamp_sizes(&PortSizes::default(), [DEFAULT_SLOTS; 2], MAX_QUEUES);
        let memory = self.memory_for(ports, asker, wish, &sizes)?;
        let kind = Kind::Persistent { automatic: true, switch: None };
        self.ports.insert(name.to_owned(), NetmapPort::new(name, kind, memory, sizes));
        Ok(name.to_owned())
    }

    /// The region for a new port.
    pub(crate) fn memory_for(
        &mut self,
        ports: &Ports,
        asker: Asker<'_>,
        wish: &Wish,
        sizes: &PortSizes,
    ) -> Result<Arc<MemoryRegion>, Failure> {
        let uid = asker.client.peer.uid;
        if let Some(external) = &wish.external_memory {
            return self.memory.external(uid, external);
        }
        if wish.mem_id != 0 {
            return self.memory.named(wish.mem_id, uid);
        }
        let geometry = private_geometry(sizes, wish.extra_buffers.min(MAX_EXTRA_BUFFERS))?;
        ports.check_memory(geometry.total_bytes())?;
        self.memory.private(uid, geometry)
    }

    /// Shows an ephemeral port among those of the switches.
    pub(crate) fn enter_on_switch(
        ports: &mut Ports,
        asker: Asker<'_>,
        port: &NetmapPort,
        switch: &str,
        name: &str,
        index: u8,
    ) {
        let entry = SwitchPort {
            switch: switch.to_owned(),
            port: name.to_owned(),
            index,
            driver: NETMAP_DRIVER,
            mode: "shared memory, 4 KiB pages".to_owned(),
            origin: Origin::Program,
            sizes: Sizes {
                queues: port.queues(),
                slots: port.sizes.tx_slots.max(port.sizes.rx_slots),
                buffer_bytes: port.memory.geometry().buffer_bytes,
                extra_buffers: 0,
                huge_pages: ringroad_ring::region::HugePages::Never,
            },
            // No connection in particular: several devices may be bound to it.
            owner: Some(Client { id: ClientId::MAX, ..asker.client.clone() }),
            shm: None,
            device: None,
            home: None,
        };
        ports.on_switches.insert(format!("{switch}:{name}"), entry);
    }

    /// Takes a port away that nobody uses, unless it is to stay; its parent too, if that was only there for it.
    pub(crate) fn reap(&mut self, key: &str, ports: &mut Ports) -> Result<(), Failure> {
        let Some(port) = self.ports.get(key) else { return Ok(()) };
        if !port.bound.is_empty() || port.pipes > 0 {
            return Ok(());
        }
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
            Kind::Monitor { parent, .. } => {
                self.leave_parent(key, &parent, ports)?;
                if let Some(mut port) = self.ports.remove(key) {
                    port.take_back();
                }
                Ok(())
            }
            Kind::Ephemeral { switch, port: name } => {
                self.retire(key, ports)?;
                self.ports.remove(key);
                ports.on_switches.remove(&format!("{switch}:{name}"));
                Ok(())
            }
            Kind::Persistent { automatic: true, .. } | Kind::Interface { .. } | Kind::Null => {
                self.retire(key, ports)?;
                self.ports.remove(key);
                Ok(())
            }
        }
    }

    /// Takes the rings of a port that nobody has bound out of the datapath and gives them back.
    fn retire(&mut self, key: &str, ports: &mut Ports) -> Result<(), Failure> {
        let Some(mut port) = self.ports.remove(key) else { return Ok(()) };
        port.end_service(&mut ports.fabric)?;
        port.take_back();
        port.events.clear();
        port.states.clear();
        port.offsets = None;
        self.ports.insert(key.to_owned(), port);
        Ok(())
    }
}

/// A network namespace that is not the daemon's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OtherNamespace {
    /// What it is called whoever is in it, such as `net:[4026531840]`.
    identity: String,
    /// A process in it.
    pub(crate) pid: String,
}

/// Under which key an interface is known.
fn interface_key(name: &str, netns: Option<&OtherNamespace>) -> String {
    match netns {
        Some(netns) => format!("{name}@{}", netns.identity),
        None => name.to_owned(),
    }
}

/// The asking process's network namespace, where it is not the daemon's own.
pub(crate) fn netns_of(asker: Asker<'_>) -> Option<OtherNamespace> {
    let pid = asker.client.peer.pid?.to_string();
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let (own, theirs) = (of("thread-self")?, of(&pid)?);
    (own != theirs).then(|| OtherNamespace { identity: theirs.to_string_lossy().into_owned(), pid })
}

/// Whether there is an interface of that name in a namespace.
pub(crate) fn interface_exists(name: &str, netns: Option<&OtherNamespace>) -> bool {
    let namespace = match netns.map(|netns| netns.pid.parse::<Namespace>()) {
        Some(Ok(namespace)) => namespace,
        Some(Err(_)) => return false,
        None => Namespace::Current,
    };
    in_namespace(&namespace, || link_by_name(name).is_ok()).unwrap_or(false)
}
