//! A netmap port: its rings in a region, their users, and the lay-out and release of rings.

use std::sync::Arc;

use ringroad_control::netmap::{Offsets, PortSizes};
use ringroad_drivers::shm::{BindingUpdates, QueueEvents};
use ringroad_netdev::namespace::HeldNamespace;
use ringroad_ring::cursor::{advance, distance};
use ringroad_ring::layout::Direction;
use ringroad_ring::ring_view::{RingInit, RingView, lay_out_fake_ring, lay_out_ring, listed_extra_buffers};
use rustix::io::Errno;

use super::failure::{NetmapFailure, fail};
use super::memory::MemoryRegion;
use super::name::PortKey;
use super::service::Service;
use crate::port_entries::Client;
use crate::quotas::Holding;

/// A ring of a port.
#[derive(Debug)]
pub(crate) struct PortRing {
    pub(crate) direction: Direction,
    /// Index within its direction, host rings behind the others.
    pub(crate) index: u16,
    pub(crate) slots: u32,
    pub(crate) host: bool,
    /// Ring object of the region.
    pub(crate) object: u32,
    pub(crate) users: u32,
    pub(crate) exclusive: bool,
}

/// The kind of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Port of a switch, while a program has it open.
    Ephemeral { switch: String, port: String },
    /// Port made by NEWIF, or by the first pipe of a name that no port has (`automatic`, removed with its last user).
    Persistent { automatic: bool, switch: Option<String> },
    /// A network interface.
    Interface { interface: String, netns: HeldNamespace },
    /// One end of a pipe.
    Pipe { parent: PortKey, peer: PortKey, master: bool },
    /// Monitor of another port.
    Monitor { parent: PortKey, zero_copy: bool, tx: bool, rx: bool },
    /// Rings without a peer.
    Null,
}

/// A netmap port.
#[derive(Debug)]
pub(crate) struct NetmapPort {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Client that made the port.
    pub(crate) owner: Client,
    pub(crate) memory: Arc<MemoryRegion>,
    pub(crate) sizes: PortSizes,
    /// Rings in the order of `ring_ofs`: tx, host tx, rx, host rx. Empty while no program uses the port.
    pub(crate) rings: Vec<PortRing>,
    /// Eventfds: one pair per queue, host queues behind the others, or one pair for ports that no datapath serves.
    pub(crate) events: Vec<QueueEvents>,
    /// States of the queues that a datapath serves, as many as `events`.
    pub(crate) states: Vec<Arc<BindingUpdates>>,
    pub(crate) offsets: Option<Offsets>,
    pub(crate) service: Service,
    /// Devices bound to the port.
    pub(crate) bound: Vec<u64>,
    /// Number of pipes whose parent is this port.
    pub(crate) pipes: usize,
    /// Keys of the port's monitors.
    pub(crate) monitors: Vec<PortKey>,
    /// Length of the virtio-net header, bytes.
    pub(crate) header_bytes: u32,
    /// Second switch of a persistent port that joins two switches.
    pub(crate) joins: Option<String>,
    /// Whether another user than the owner and administrators may have kept eventfds of the port.
    pub(crate) was_shared: bool,
    /// Part of its maker's share that the port takes.
    _holding: Holding,
}

impl NetmapPort {
    pub(crate) fn new(
        name: &str,
        kind: Kind,
        owner: &Client,
        memory: Arc<MemoryRegion>,
        sizes: PortSizes,
        holding: Holding,
    ) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            owner: owner.clone(),
            memory,
            sizes,
            rings: Vec::new(),
            events: Vec::new(),
            states: Vec::new(),
            offsets: None,
            service: Service::None,
            bound: Vec::new(),
            pipes: 0,
            monitors: Vec::new(),
            header_bytes: 0,
            joins: None,
            was_shared: false,
            _holding: holding,
        }
    }

    /// Whether the datapath serves the port's rings.
    pub(crate) fn is_served(&self) -> bool {
        matches!(self.kind, Kind::Ephemeral { .. } | Kind::Persistent { .. } | Kind::Interface { .. })
    }

    /// Number of queues apart from host queues.
    pub(crate) fn queues(&self) -> u16 {
        self.sizes.tx_rings.max(self.sizes.rx_rings)
    }

    /// Number of host queues.
    pub(crate) fn host_queues(&self) -> u16 {
        self.sizes.host_tx_rings.max(self.sizes.host_rx_rings)
    }

    /// Number of rings of each kind as an interface object counts them: at least one host ring of each direction.
    pub(crate) fn counts(&self) -> [u32; 4] {
        let sizes = &self.sizes;
        [
            u32::from(sizes.tx_rings),
            u32::from(sizes.host_tx_rings).max(1),
            u32::from(sizes.rx_rings),
            u32::from(sizes.host_rx_rings).max(1),
        ]
    }

    /// Index of a ring's pair of eventfds.
    pub(crate) fn events_of(&self, ring: &PortRing) -> u16 {
        match (self.is_served(), ring.host) {
            (false, _) => 0,
            (true, false) => ring.index,
            (true, true) => {
                let others = match ring.direction {
                    Direction::Tx => self.sizes.tx_rings,
                    Direction::Rx => self.sizes.rx_rings,
                };
                self.queues() + (ring.index - others)
            }
        }
    }

    /// The ring of a direction by its index.
    pub(crate) fn ring(&self, direction: Direction, index: u16) -> Option<&PortRing> {
        self.rings.iter().find(|ring| ring.direction == direction && ring.index == index)
    }

    /// View of one of the port's rings.
    pub(crate) fn view(&self, ring: &PortRing) -> Result<RingView, NetmapFailure> {
        Ok(RingView::new(self.memory.home.region(), ring.object, ring.slots)?)
    }

    /// The rings that the port will have, without objects yet.
    fn wanted_rings(&self) -> Vec<PortRing> {
        let sizes = &self.sizes;
        let part = |direction, first: u16, count: u16, slots, host| {
            (first..first + count).map(move |index| PortRing {
                direction,
                index,
                slots,
                host,
                object: 0,
                users: 0,
                exclusive: false,
            })
        };
        part(Direction::Tx, 0, sizes.tx_rings, sizes.tx_slots, false)
            .chain(part(Direction::Tx, sizes.tx_rings, sizes.host_tx_rings, sizes.tx_slots, true))
            .chain(part(Direction::Rx, 0, sizes.rx_rings, sizes.rx_slots, false))
            .chain(part(Direction::Rx, sizes.rx_rings, sizes.host_rx_rings, sizes.rx_slots, true))
            .collect()
    }

    fn plan(&self, ring: &PortRing) -> RingInit {
        let (offset_mask, initial_offset) =
            self.offsets.map_or((0, 0), |offsets| (offset_mask(&offsets), offsets.initial));
        RingInit { offset_mask, initial_offset, ..RingInit::new(ring.direction, ring.index, ring.slots) }
    }

    /// Lays out all rings, each slot with a buffer of its own. `fake` selects the rings without a peer, whose slots
    /// need no buffers. A failure takes nothing.
    pub(crate) fn lay_out(&mut self, fake: impl Fn(&PortRing) -> bool) -> Result<(), NetmapFailure> {
        let mut rings = self.wanted_rings();
        self.memory.take_back_left();
        let region = self.memory.home.region();
        let needed: u32 = rings.iter().filter(|ring| !fake(ring)).map(|ring| ring.slots).sum();
        let mut allocator = self.memory.home.allocator();
        let full = || {
            fail(
                Errno::NOMEM,
                format!("memory {} has no room for the rings of {}", self.memory.id, self.name),
            )
        };
        let longest = rings.iter().map(|ring| ring.slots).max().unwrap_or(0);
        if allocator.free_rings() < rings.len() as u32 || longest > region.geometry().max_slots() {
            return Err(full());
        }
        let mut buffers = allocator.take_buffers(needed).ok_or_else(full)?.into_iter();
        for ring in &mut rings {
            ring.object = allocator.take_ring().ok_or_else(full)?;
            let plan = self.plan(ring);
            match fake(ring) {
                true => lay_out_fake_ring(region, ring.object, &plan)?,
                false => lay_out_ring(region, ring.object, &plan, &mut buffers)?,
            };
        }
        drop(allocator);
        self.rings = rings;
        Ok(())
    }

    /// Lays out the rings of both ends of a pipe, which share their buffers slot by slot.
    pub(crate) fn lay_out_pipe(ends: [&mut Self; 2]) -> Result<(), NetmapFailure> {
        let [one, other] = ends;
        // The rx rings have the buffers; each tx ring begins with the buffers of the rx ring that it leads to.
        one.lay_out(|ring| ring.direction == Direction::Tx)?;
        if let Err(failure) = other.lay_out(|ring| ring.direction == Direction::Tx) {
            one.take_back();
            return Err(failure);
        }
        for (from, to) in [(&*one, &*other), (&*other, &*one)] {
            for tx in from.rings.iter().filter(|ring| ring.direction == Direction::Tx) {
                let Some(rx) = to.ring(Direction::Rx, tx.index) else { continue };
                let (tx_view, rx_view) = (from.view(tx)?, to.view(rx)?);
                for slot in 0..tx.slots {
                    tx_view.slot(slot).store_with_ptr(rx_view.slot(slot).load_with_ptr());
                }
            }
        }
        Ok(())
    }

    /// Gives the rings and the buffers in their slots back to the region.
    pub(crate) fn take_back(&mut self) {
        self.take_back_behind(Vec::new());
    }

    /// Takes rings back as [`Self::take_back`] does, after the present syncs at `filled_from`, which may still exchange
    /// buffers with these rings.
    pub(crate) fn take_back_behind(&mut self, filled_from: Vec<RingView>) {
        let rings = std::mem::take(&mut self.rings);
        let views = rings.iter().filter_map(|ring| Some((ring.object, self.view(ring).ok()?))).collect();
        self.memory.take_back_behind(views, filled_from);
    }

    /// Gives the rings of both ends of a pipe back. Each pair of slots has one buffer. It is in the receiver's slot if
    /// its frame is under way or not yet taken back, else in the sender's slot, where the sender may have put another
    /// buffer since.
    pub(crate) fn take_back_pipe(ends: [&mut Self; 2]) {
        let [one, other] = ends;
        let mut held = Vec::new();
        for (from, to) in [(&*one, &*other), (&*other, &*one)] {
            for tx in from.rings.iter().filter(|ring| ring.direction == Direction::Tx) {
                let Some(rx) = to.ring(Direction::Rx, tx.index) else { continue };
                if let (Ok(tx_view), Ok(rx_view)) = (from.view(tx), to.view(rx)) {
                    held.extend(pipe_buffers(&tx_view, &rx_view));
                }
            }
        }
        let memory = Arc::clone(&one.memory);
        let mut allocator = memory.home.allocator();
        for buffer in held {
            allocator.free_buffer(buffer);
        }
        for end in [&mut *one, other] {
            for ring in std::mem::take(&mut end.rings) {
                allocator.free_ring(ring.object);
            }
        }
    }

    /// Gives back the extra buffers that a binding's interface object lists, no more than the binding was granted, and
    /// the object itself.
    pub(crate) fn take_back_interface(&self, interface: u32, granted: u32) {
        let listed = listed_extra_buffers(self.memory.home.region(), interface, granted);
        let mut allocator = self.memory.home.allocator();
        for buffer in listed {
            allocator.free_buffer(buffer);
        }
        allocator.free_interface(interface);
    }

    /// Makes as many pairs of eventfds as the port needs, unless it has them.
    pub(crate) fn make_events(&mut self) -> Result<(), NetmapFailure> {
        let count = if self.is_served() { self.queues() + self.host_queues() } else { 1 };
        while self.events.len() < usize::from(count) {
            let pair = QueueEvents::new().map_err(|errno| fail(errno, "making eventfds"))?;
            self.events.push(pair);
            let state = Arc::<BindingUpdates>::default();
            state.set_header_bytes(self.header_bytes);
            self.states.push(state);
        }
        Ok(())
    }
}

/// Mask of the bits of `slot.ptr` that hold an offset.
pub(crate) fn offset_mask(offsets: &Offsets) -> u64 {
    match offsets.bits {
        0 | 64.. => u64::MAX,
        bits => (1 << bits) - 1,
    }
}

/// Buffers of a pipe's slots, one for each pair.
fn pipe_buffers(tx: &RingView, rx: &RingView) -> Vec<u32> {
    use std::sync::atomic::Ordering::Relaxed;
    let slots = tx.slot_count();
    // Reduction modulo the ring size makes a hostile program's numbers harmless.
    let reclaimed = advance(tx.control().program.shown_tail.load(Relaxed) % slots, 1, slots);
    let published = rx.control().datapath.tail.load(Relaxed) % slots;
    let under_way = distance(reclaimed, published, slots);
    (0..slots)
        .map(|slot| {
            let view = if distance(reclaimed, slot, slots) < under_way { rx } else { tx };
            view.slot(slot).load().buffer
        })
        .collect()
}
