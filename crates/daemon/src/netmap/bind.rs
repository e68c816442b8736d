//! REGISTER: binds a device to rings of a port, and unbinds it.

use std::os::fd::{AsFd, OwnedFd};

use ringroad_control::netmap::{Bound, NetmapReply, Offsets, Pools, Register, RingBinding, RingService};
use ringroad_port_table::entry::SwitchPortName;
use ringroad_ring::geometry::MAX_EXTRA_BUFFERS;
use ringroad_ring::layout::Direction;
use ringroad_ring::ring_view::{lay_out_interface, list_extra_buffers};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

use super::failure::{NetmapFailure, fail};
use super::find::PortSettingsRequest;
use super::name::PortKey;
use super::port::{Kind, NetmapPort};
use super::service::Service;
use super::{Binding, Netmap, NetmapAnswer, Requester};
use crate::ports::Ports;
use crate::quotas::Demand;

/// Modes of REGISTER: `NR_REG_*`.
pub(crate) mod mode {
    pub(crate) const ALL_NIC: u32 = 1;
    pub(crate) const SW: u32 = 2;
    pub(crate) const NIC_SW: u32 = 3;
    pub(crate) const ONE_NIC: u32 = 4;
    pub(crate) const NULL: u32 = 7;
    pub(crate) const ONE_SW: u32 = 8;
}

/// Flags of REGISTER: `NR_*`.
pub(crate) mod flag {
    pub(crate) const MONITOR_TX: u64 = 0x100;
    pub(crate) const MONITOR_RX: u64 = 0x200;
    pub(crate) const ZCOPY_MON: u64 = 0x400;
    pub(crate) const EXCLUSIVE: u64 = 0x800;
    pub(crate) const RX_RINGS_ONLY: u64 = 0x2000;
    pub(crate) const TX_RINGS_ONLY: u64 = 0x4000;
    pub(crate) const ACCEPT_VNET_HDR: u64 = 0x8000;
}

impl Netmap {
    pub(crate) fn register(
        &mut self,
        requester: &mut Requester<'_>,
        device: u64,
        mut register: Register,
    ) -> Result<NetmapAnswer, NetmapFailure> {
        if self.devices.get(&device).is_none_or(|entry| entry.binding.is_some()) {
            return Err(fail(Errno::BUSY, "the device is bound already"));
        }
        if register.needs_exclusive && register.flags & flag::EXCLUSIVE == 0 {
            return Err(fail(Errno::INVAL, "CSB mode needs exclusive use"));
        }
        if register.flags & flag::ZCOPY_MON != 0 {
            register.flags |= flag::MONITOR_TX | flag::MONITOR_RX;
        }
        let request = PortSettingsRequest {
            sizes: register.sizes,
            mem_id: register.mem_id,
            extra_buffers: register.extra_buffers,
            external_memory: register.external_memory,
        };
        // Unknown ids are refused for every port.
        let _named = match register.mem_id {
            0 => None,
            id => Some(self.known_memory(requester, id)?),
        };
        let key = if register.mode == mode::NULL {
            self.make_null(requester, device, &request)?
        } else if register.flags & (flag::MONITOR_TX | flag::MONITOR_RX) != 0 {
            self.make_monitor(requester, device, &register)?
        } else {
            self.find(requester, &register.name, &request)?
        };
        let bound = self.bind(requester, device, &key, &register).and_then(|()| self.describe(device));
        if bound.is_err() {
            // Failure at any stage undoes the whole binding.
            match self.devices.get_mut(&device).and_then(|entry| entry.binding.take()) {
                Some(binding) => self.unbind(device, binding, requester.ports)?,
                None => self.reap(&key, requester.ports)?,
            }
        }
        bound
    }

    fn make_null(
        &mut self,
        requester: &Requester<'_>,
        device: u64,
        request: &PortSettingsRequest,
    ) -> Result<PortKey, NetmapFailure> {
        if request.mem_id == 0 {
            return Err(fail(Errno::INVAL, "a null port needs a memory id"));
        }
        let memory = self.memory.named(request.mem_id, &requester.payer())?;
        let key = PortKey::Null { device };
        let mut sizes = request.sizes;
        (sizes.host_tx_rings, sizes.host_rx_rings) = (0, 0);
        let holding = requester.hold(Demand::of_port(1))?;
        self.insert(
            key.clone(),
            NetmapPort::new("null", Kind::Null, requester.client, memory, sizes, holding),
        )?;
        Ok(key)
    }

    /// Binds the device. After a failure the device may still be bound.
    fn bind(
        &mut self,
        requester: &mut Requester<'_>,
        device: u64,
        key: &PortKey,
        register: &Register,
    ) -> Result<(), NetmapFailure> {
        let gone = || fail(Errno::NXIO, "the port vanished");
        {
            let port = self.ports.get(key).ok_or_else(gone)?;
            self.check_memory(requester, &port.memory)?;
            if port.joins.is_some() {
                return Err(fail(Errno::BUSY, format!("{key} joins two switches")));
            }
            let external = register.external_memory.as_ref();
            if external.is_some_and(|external| !port.memory.stands_for(external.identity)) {
                return Err(fail(Errno::BUSY, format!("{key} lies in other memory already")));
            }
            self.check_trust(requester, key)?;
            if port.header_bytes != 0 && register.flags & flag::ACCEPT_VNET_HDR == 0 {
                return Err(fail(Errno::IO, format!("frames of {key} have a virtio-net header")));
            }
        }
        self.activate(key, register.offsets)?;
        self.note_sharing(requester, key);
        let is_single_user = self.is_single_user(requester, key);
        let port = self.ports.get_mut(key).ok_or_else(gone)?;
        let rings = select_rings(port, register)?;
        let exclusive = register.flags & flag::EXCLUSIVE != 0;
        let in_use = rings.iter().filter_map(|&index| port.rings.get(index));
        if in_use.clone().any(|ring| ring.exclusive || exclusive && ring.users > 0) {
            return Err(fail(Errno::BUSY, format!("rings of {key} are in exclusive use, or in use at all")));
        }
        let (interface, granted) = lay_out_binding(port, &rings, register.extra_buffers)?;
        for &index in &rings {
            if let Some(ring) = port.rings.get_mut(index) {
                ring.users += 1;
                ring.exclusive |= exclusive;
            }
        }
        port.bound.push(device);
        let geometry = *port.memory.geometry();
        let bound = Bound {
            port: port.name.clone(),
            sizes: port.sizes,
            mem_id: port.memory.id,
            geometry,
            interface_offset: geometry.interface_offset(interface),
            extra_buffers: granted,
            mode: register.mode,
            flags: register.flags,
            rings: Vec::new(),
            event_pairs: port.events.len() as u16,
            is_single_user,
            workers_real_time: requester.workers_real_time,
            external_memory: register
                .external_memory
                .map(|external| Pools { memory_bytes: external.pools.memory_bytes, ..port.memory.pools() }),
        };
        let client = requester.client.clone();
        let binding = Binding { port: key.clone(), client, interface, rings, exclusive, bound };
        // The end of the binding takes everything back from here on.
        self.devices.get_mut(&device).ok_or_else(gone)?.binding = Some(binding);
        let port = self.ports.get_mut(key).ok_or_else(gone)?;
        port.show_users()?;
        match &port.kind {
            Kind::Ephemeral { switch, port: name } if port.is_unserved() => {
                let switch_port = SwitchPortName { switch, port: name };
                Self::enter_on_switch(requester, port, switch_port, port.queue_parts()?)?;
                port.service = Service::Switch;
            }
            _ => port.serve(requester.ports.table.fabric_mut())?,
        }
        self.show_monitors(key, requester.ports)
    }

    /// Whether only programs of the requester's user and of administrators can get the eventfds of a port, its pipes
    /// and its monitors.
    fn is_single_user(&self, requester: &Requester<'_>, key: &PortKey) -> bool {
        let (peer, base) = (requester.client.peer, key.base());
        let mut related = self.ports.iter().filter(|(other, _)| other.base() == base);
        !requester.ports.permissions.is_shared(peer, &base.to_string())
            && related.all(|(_, port)| port.owner.peer.uid == peer.uid && !port.was_shared)
    }

    /// Remembers that the requester gets eventfds of another user's ports, and may keep them.
    fn note_sharing(&mut self, requester: &Requester<'_>, key: &PortKey) {
        let (peer, base) = (requester.client.peer, key.base());
        if !requester.ports.permissions.may_administer(peer) {
            let related = self.ports.iter_mut().filter(|(other, _)| other.base() == base);
            related.for_each(|(_, port)| port.was_shared |= port.owner.peer.uid != peer.uid);
        }
    }

    /// Refuses a user to whom a new rule gives a port while programs have it open that count on their own user: this
    /// user's program could block them.
    fn check_trust(&self, requester: &Requester<'_>, key: &PortKey) -> Result<(), NetmapFailure> {
        let (peer, base) = (requester.client.peer, key.base());
        let counts_on_own = |binding: &Binding| {
            binding.bound.is_single_user && binding.client.peer.uid != peer.uid && binding.port.base() == base
        };
        let mut bindings = self.devices.values().filter_map(|device| device.binding.as_ref());
        if requester.ports.permissions.may_administer(peer) || !bindings.any(counts_on_own) {
            return Ok(());
        }
        let message = format!(
            "{key} is open since before a rule shared it; it is shared once its programs have closed it"
        );
        Err(fail(Errno::BUSY, message))
    }

    /// Lays out the rings of a port that becomes used.
    fn activate(&mut self, key: &PortKey, offsets: Option<Offsets>) -> Result<(), NetmapFailure> {
        let Some(port) = self.ports.get_mut(key) else { return Ok(()) };
        check_offsets(port, offsets.as_ref())?;
        let counts = port.sizes;
        let empty = counts.tx_rings == 0 && counts.rx_rings == 0;
        if !port.rings.is_empty() || empty {
            return port.make_events();
        }
        port.offsets = offsets;
        match port.kind.clone() {
            Kind::Pipe { peer, .. } => {
                let Some(mut own) = self.ports.remove(key) else { return Ok(()) };
                let laid_out = match self.ports.get_mut(&peer) {
                    Some(peer) => {
                        peer.offsets = offsets;
                        NetmapPort::lay_out_pipe([&mut own, peer]).and_then(|()| {
                            own.make_events()?;
                            peer.make_events()
                        })
                    }
                    None => Err(fail(Errno::NXIO, "the pipe vanished")),
                };
                self.ports.insert(key.clone(), own);
                laid_out
            }
            kind => {
                port.lay_out(|ring| match kind {
                    Kind::Monitor { .. } => ring.direction == Direction::Tx,
                    _ => kind == Kind::Null,
                })?;
                port.make_events()
            }
        }
    }

    fn bound_rings(&self, key: &PortKey, indexes: &[usize]) -> Vec<RingBinding> {
        let Some(port) = self.ports.get(key) else { return Vec::new() };
        let rings = indexes.iter().filter_map(|&index| port.rings.get(index));
        rings
            .map(|ring| {
                let service = match &port.kind {
                    Kind::Pipe { peer, .. } => {
                        let other = match ring.direction {
                            Direction::Tx => Direction::Rx,
                            Direction::Rx => Direction::Tx,
                        };
                        let peer = self.ports.get(peer).and_then(|peer| peer.ring(other, ring.index));
                        peer.map_or(RingService::Nobody { fails: true }, |peer| RingService::Pipe {
                            peer: peer.object,
                        })
                    }
                    Kind::Monitor { .. } if ring.direction == Direction::Rx => RingService::Monitor,
                    Kind::Monitor { .. } => RingService::Nobody { fails: true },
                    Kind::Null => RingService::Nobody { fails: false },
                    _ => RingService::Datapath,
                };
                RingBinding {
                    direction: ring.direction,
                    index: ring.index,
                    object: ring.object,
                    slots: ring.slots,
                    service,
                    events: port.events_of(ring),
                    host: ring.host,
                }
            })
            .collect()
    }

    /// Describes the rings of a bound device, with its descriptors.
    pub(crate) fn describe(&self, device: u64) -> Result<NetmapAnswer, NetmapFailure> {
        let (binding, port) = self.bound(device)?;
        let mut descriptors = vec![duplicate(port.memory.home.region().as_fd())?];
        // One end of a pipe waits on the eventfd that the other end signals: the master's eventfds serve both ends.
        let crossed = matches!(port.kind, Kind::Pipe { master: false, .. });
        let events = &self.peer_of(port).filter(|_| crossed).unwrap_or(port).events;
        for pair in events {
            let (kick, notify) = (duplicate(pair.kick.as_fd())?, duplicate(pair.notify.as_fd())?);
            descriptors.extend(if crossed { [notify, kick] } else { [kick, notify] });
        }
        let rings = self.bound_rings(&binding.port, &binding.rings);
        let bound = Bound { event_pairs: events.len() as u16, rings, ..binding.bound.clone() };
        Ok(NetmapAnswer { reply: NetmapReply::Bound(Box::new(bound)), descriptors })
    }

    /// Releases the rings of a device.
    pub(super) fn unbind(
        &mut self,
        device: u64,
        binding: Binding,
        ports: &mut Ports,
    ) -> Result<(), NetmapFailure> {
        let key = binding.port;
        let Some(port) = self.ports.get_mut(&key) else { return Ok(()) };
        for &index in &binding.rings {
            if let Some(ring) = port.rings.get_mut(index) {
                ring.users -= 1;
                ring.exclusive &= !binding.exclusive;
            }
        }
        port.bound.retain(|&other| other != device);
        let is_unused = port.bound.is_empty();
        // All steps are carried out, even if one fails.
        let mut done = vec![port.show_users()];
        if is_unused {
            done.push(self.end_monitors_of(&key, ports));
        }
        if let Some(port) = self.ports.get_mut(&key) {
            // A side of an interface closes with its last user. Any other port is served until no program has it open,
            // then reaped.
            if !is_unused || matches!(port.kind, Kind::Interface { .. }) {
                done.push(port.serve(ports.table.fabric_mut()));
            }
            port.take_back_interface(binding.interface, binding.bound.extra_buffers);
        }
        done.push(self.reap(&key, ports));
        done.into_iter().collect()
    }
}

impl NetmapPort {
    /// Reports the number of users of each ring to the datapath and the programs.
    pub(crate) fn show_users(&self) -> Result<(), NetmapFailure> {
        for ring in &self.rings {
            self.view(ring)?.control().datapath.users.store(ring.users, Ordering::Relaxed);
            if ring.direction == Direction::Rx
                && self.is_served()
                && let Some(state) = self.states.get(usize::from(self.events_of(ring)))
            {
                state.set_rx_users(ring.users);
            }
        }
        Ok(())
    }
}

pub(crate) fn duplicate(descriptor: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, NetmapFailure> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, 0).map_err(|errno| fail(errno, "sharing a descriptor"))
}

/// Indexes in the port's list of rings that a request selects.
fn select_rings(port: &NetmapPort, register: &Register) -> Result<Vec<usize>, NetmapFailure> {
    let invalid = |message: String| Err(fail(Errno::INVAL, message));
    let sizes = &port.sizes;
    let id = register.ring_id;
    let has_host = sizes.host_tx_rings > 0;
    let pipe = matches!(port.kind, Kind::Pipe { .. });
    let (own, host, single) = match register.mode {
        mode::ALL_NIC => (true, false, None),
        mode::SW if !pipe => (false, true, None),
        mode::NIC_SW if !pipe => (true, true, None),
        mode::ONE_NIC => (true, false, Some((sizes.tx_rings, sizes.rx_rings))),
        mode::ONE_SW if !pipe => (false, true, Some((sizes.host_tx_rings, sizes.host_rx_rings))),
        mode::NULL => (true, false, None),
        other => return invalid(format!("mode {other} for {}", port.name)),
    };
    if host && !has_host {
        return invalid(format!("{} has no host rings", port.name));
    }
    if let Some((tx, rx)) = single
        && id >= tx
        && id >= rx
    {
        return invalid(format!("{} has no ring {id}", port.name));
    }
    let selects = |ring: &super::port::PortRing| {
        let direction = match ring.direction {
            Direction::Tx => register.flags & flag::RX_RINGS_ONLY == 0,
            Direction::Rx => register.flags & flag::TX_RINGS_ONLY == 0,
        };
        let number = single.is_none_or(|(tx, rx)| {
            let (count, first) = match (ring.direction, ring.host) {
                (Direction::Tx, false) => (tx, 0),
                (Direction::Rx, false) => (rx, 0),
                (Direction::Tx, true) => (tx, sizes.tx_rings),
                (Direction::Rx, true) => (rx, sizes.rx_rings),
            };
            // A number that fits only one direction stands for ring 0 of the other.
            ring.index == first + if id < count { id } else { 0 }
        });
        direction && number && if ring.host { host } else { own }
    };
    Ok(port.rings.iter().enumerate().filter(|(_, ring)| selects(ring)).map(|(index, _)| index).collect())
}

/// Lays out an interface object for a binding, with as many extra buffers as are free; returns the object's index and
/// the number of extra buffers.
fn lay_out_binding(
    port: &NetmapPort,
    rings: &[usize],
    extra_buffers: u32,
) -> Result<(u32, u32), NetmapFailure> {
    let region = port.memory.home.region();
    let counts = port.counts();
    let mut table = Vec::new();
    for (direction, host, count) in [
        (Direction::Tx, false, counts[0]),
        (Direction::Tx, true, counts[1]),
        (Direction::Rx, false, counts[2]),
        (Direction::Rx, true, counts[3]),
    ] {
        let of_kind: Vec<_> = (0..)
            .zip(&port.rings)
            .filter(|(_, ring)| ring.direction == direction && ring.host == host)
            .map(|(index, ring)| rings.contains(&index).then_some(ring.object))
            .collect();
        let missing = (count as usize).saturating_sub(of_kind.len());
        table.extend(of_kind);
        table.extend(std::iter::repeat_n(None, missing));
    }
    let mut allocator = port.memory.home.allocator();
    let full = || fail(Errno::NOMEM, format!("memory {} has no room for another binding", port.memory.id));
    let interface = allocator.take_interface().ok_or_else(full)?;
    let wanted = extra_buffers.min(MAX_EXTRA_BUFFERS).min(allocator.free_buffers());
    let extra = allocator.take_buffers(wanted).ok_or_else(full)?;
    let flags = u32::from(port.memory.id != super::memory::GLOBAL);
    let laid_out = lay_out_interface(region, interface, &port.name, flags, counts, table.into_iter())
        .and_then(|()| list_extra_buffers(region, interface, &extra));
    if let Err(error) = laid_out {
        extra.iter().for_each(|&buffer| {
            allocator.free_buffer(buffer);
        });
        allocator.free_interface(interface);
        return Err(error.into());
    }
    Ok((interface, wanted))
}

/// Whether a port supports offsets.
fn check_offsets(port: &NetmapPort, offsets: Option<&Offsets>) -> Result<(), NetmapFailure> {
    let Some(offsets) = offsets else { return Ok(()) };
    if matches!(port.kind, Kind::Monitor { zero_copy: true, .. }) {
        return Err(fail(Errno::OPNOTSUPP, "a zero-copy monitor has the offsets of its port"));
    }
    let mask = super::port::offset_mask(offsets);
    let bytes = u64::from(port.memory.geometry().buffer_bytes);
    if offsets.max > bytes || offsets.max > mask || offsets.initial > offsets.max || offsets.bits > 64 {
        return Err(fail(Errno::INVAL, "offsets larger than a buffer, or than their bits hold"));
    }
    let in_use = port.rings.iter().any(|ring| ring.users > 0);
    match &port.offsets {
        Some(known) if offsets.max <= known.max => Ok(()),
        _ if in_use || !port.rings.is_empty() && port.offsets.is_some() => {
            Err(fail(Errno::BUSY, format!("the rings of {} are in use with smaller offsets", port.name)))
        }
        _ => Ok(()),
    }
}
