//! A port whose rings lie in a region that a program maps: the port of every client of the daemon and of embedded mode.
//!
//! Trust: everything in the region may be written by the program at any time. The ring ends check it; a violation
//! stops that ring, is counted, and is shown to the program. Other ports never see this region.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use ringroad_port::batch::Batch;
use ringroad_port::counters::QueueCounters;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, PortQueue};
use ringroad_ring::datapath_end::{RxPutEnd, TxTakeEnd, fence_before_kicks};
use ringroad_ring::geometry::{GeometryError, PortPlacement, RegionGeometry};
use ringroad_ring::layout::{FIRST_BUFFER, MAX_FRAGMENTS};
use ringroad_ring::region::{HugePages, Region, RegionError};
use ringroad_ring::ring_view::{RingView, lay_out_port};
use ringroad_ring::shared::{prefetch_read, prefetch_write};
use ringroad_ring::violation::RingViolation;
use ringroad_ring::wakeup::Sleeper;

/// How many frames ahead buffers are prefetched.
const PREFETCH_FRAMES: u32 = 8;

/// The two eventfds of a queue. Non-blocking, close-on-exec.
#[derive(Debug)]
pub struct QueueEvents {
    /// Written by the program to wake the datapath.
    pub kick: OwnedFd,
    /// Written by the datapath to wake the program.
    pub notify: OwnedFd,
}

impl QueueEvents {
    /// A new pair.
    ///
    /// # Errors
    /// What the kernel says to `eventfd` (out of descriptors).
    pub fn new() -> rustix::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let make = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self { kick: make()?, notify: make()? })
    }

    /// Another handle on the same pair.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn try_clone(&self) -> Result<Self, RegionError> {
        let clone = |event: &OwnedFd| {
            rustix::io::fcntl_dupfd_cloexec(event, 0).map_err(|source| RegionError::System {
                step: "sharing the eventfds of",
                bytes: 0,
                source,
            })
        };
        Ok(Self { kick: clone(&self.kick)?, notify: clone(&self.notify)? })
    }
}

/// Ports that a region of small pages has room for: memory that nobody touches costs nothing.
const PLACES: u32 = 4;

/// A region with room for several ports, so that others of the same user can come to share it.
#[derive(Debug)]
pub struct ShmRegion {
    region: Arc<Region>,
    queues: u16,
    slots: u32,
    extra_buffers: u32,
    places: Mutex<Places>,
}

#[derive(Debug)]
struct Places {
    used: Vec<bool>,
    /// Buffers from here on were never handed out.
    untouched: u32,
}

impl ShmRegion {
    /// Makes a region for ports of `queues` queues of `slots` slots.
    ///
    /// # Errors
    /// [`RegionError`] where a size is out of range or memory is short.
    pub fn create(
        queues: u16,
        slots: u32,
        buffer_bytes: u32,
        extra_buffers: u32,
        huge_pages: HugePages,
    ) -> Result<Arc<Self>, RegionError> {
        let most =
            extra_buffers.checked_mul(PLACES).ok_or(GeometryError::Buffers(u64::from(extra_buffers)))?;
        let roomy = RegionGeometry::for_ports(PLACES, queues, slots, buffer_bytes, most);
        // Where four do not fit, one may.
        let (places, geometry) = match roomy {
            Ok(geometry) => (PLACES, geometry),
            Err(_) => (1, RegionGeometry::for_ports(1, queues, slots, buffer_bytes, extra_buffers)?),
        };
        let region = Arc::new(Region::create(geometry, huge_pages)?);
        let places = Places { used: vec![false; places as usize], untouched: FIRST_BUFFER };
        Ok(Arc::new(Self { region, queues, slots, extra_buffers, places: Mutex::new(places) }))
    }

    /// Lays a port out in the next free place.
    ///
    /// # Errors
    /// [`RegionError`] where the region is full.
    pub fn place(self: &Arc<Self>, name: &str) -> Result<ShmPort, RegionError> {
        const FULL: GeometryError =
            GeometryError::Impossible("the shared region is full: close a port that shares it");
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.used.iter().position(|used| !used).ok_or(FULL)?;
        let placement = self.placement(place as u32);
        let free = self.free_buffers(&places)?;
        let needed = 2 * u32::from(self.queues) * self.slots + self.extra_buffers;
        if free.len() < needed as usize {
            return Err(FULL.into());
        }
        let mut handed_out = free.into_iter().take(needed as usize).inspect(|&buffer| {
            places.untouched = places.untouched.max(buffer + 1);
        });
        lay_out_port(&self.region, name, &placement, &mut handed_out)?;
        drop(handed_out);
        let failed = |source| RegionError::System { step: "making eventfds for", bytes: 0, source };
        let events =
            (0..self.queues).map(|_| QueueEvents::new()).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        if let Some(used) = places.used.get_mut(place) {
            *used = true;
        }
        Ok(ShmPort { home: Arc::clone(self), place, placement, events })
    }

    fn placement(&self, place: u32) -> PortPlacement {
        let first = place * 2 * u32::from(self.queues);
        let middle = first + u32::from(self.queues);
        PortPlacement {
            interface: place,
            tx_rings: (first..middle).collect(),
            rx_rings: (middle..middle + u32::from(self.queues)).collect(),
            slots: self.slots,
            extra_buffers: self.extra_buffers,
        }
    }

    /// Buffers that no port holds. Programs exchange buffers between ports, so it is the slots of the ports in use
    /// that tell; what a hostile program wrote there is its own and its fellows' loss. Extra buffers stand in no slot:
    /// where ports have them, only buffers that were never handed out are surely free.
    fn free_buffers(&self, places: &Places) -> Result<Vec<u32>, GeometryError> {
        let count = self.region.geometry().buffers;
        let in_use = || (0u32..).zip(&places.used).filter(|(_, used)| **used).map(|(place, _)| place);
        if self.extra_buffers > 0 && in_use().next().is_some() {
            return Ok((places.untouched..count).collect());
        }
        let mut held = vec![false; count as usize];
        for place in in_use() {
            let placement = self.placement(place);
            for &ring in placement.tx_rings.iter().chain(&placement.rx_rings) {
                let view = RingView::new(&self.region, ring, self.slots)?;
                for slot in 0..self.slots {
                    if let Some(held) = held.get_mut(view.slot(slot).load().buffer as usize) {
                        *held = true;
                    }
                }
            }
        }
        Ok((FIRST_BUFFER..count).filter(|&buffer| held.get(buffer as usize) == Some(&false)).collect())
    }
}

/// A program's port: its place in a region, and the eventfds of its queues.
#[derive(Debug)]
pub struct ShmPort {
    home: Arc<ShmRegion>,
    place: usize,
    placement: PortPlacement,
    events: Vec<QueueEvents>,
}

impl Drop for ShmPort {
    fn drop(&mut self) {
        let mut places = self.home.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = places.used.get_mut(self.place) {
            *used = false;
        }
    }
}

impl ShmPort {
    /// A port in a region of its own.
    ///
    /// # Errors
    /// As [`ShmRegion::create`].
    pub fn create(
        name: &str,
        queues: u16,
        slots: u32,
        buffer_bytes: u32,
        extra_buffers: u32,
        huge_pages: HugePages,
    ) -> Result<Self, RegionError> {
        ShmRegion::create(queues, slots, buffer_bytes, extra_buffers, huge_pages)?.place(name)
    }

    /// The datapath's side of queue number `queue`.
    ///
    /// # Errors
    /// [`RegionError`] where there is no such queue or descriptors run out.
    pub fn queue(&self, queue: u16, counters: Arc<QueueCounters>) -> Result<ShmQueue, RegionError> {
        let events = self
            .events
            .get(usize::from(queue))
            .ok_or(RegionError::Geometry(GeometryError::Queues(queue)))?
            .try_clone()?;
        Ok(ShmQueue::new(self.region(), &self.placement, queue, events, counters)?)
    }

    /// The region that the port lies in, with room for others.
    #[must_use]
    pub fn home(&self) -> &Arc<ShmRegion> {
        &self.home
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.home.region
    }

    /// Where the port lies in it.
    #[must_use]
    pub fn placement(&self) -> &PortPlacement {
        &self.placement
    }

    /// The eventfds, one pair per queue.
    #[must_use]
    pub fn events(&self) -> &[QueueEvents] {
        &self.events
    }

    /// Other handles on the eventfds, for the program's side.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn clone_events(&self) -> Result<Vec<QueueEvents>, RegionError> {
        self.events.iter().map(QueueEvents::try_clone).collect()
    }
}

/// One queue of a program's port, from the datapath's side.
#[derive(Debug)]
pub struct ShmQueue {
    take: TxTakeEnd,
    put: RxPutEnd,
    events: QueueEvents,
    sleeper: Sleeper,
    released: bool,
    counters: Arc<QueueCounters>,
    counted: [bool; 2],
}

impl ShmQueue {
    /// Queue number `queue` of the port at `placement`, newly laid out in `region`.
    ///
    /// # Errors
    /// [`GeometryError`] where the placement has no such queue.
    pub fn new(
        region: &Arc<Region>,
        placement: &PortPlacement,
        queue: u16,
        events: QueueEvents,
        counters: Arc<QueueCounters>,
    ) -> Result<Self, GeometryError> {
        let none = GeometryError::Queues(queue);
        let index = usize::from(queue);
        let (Some(&tx), Some(&rx)) = (placement.tx_rings.get(index), placement.rx_rings.get(index)) else {
            return Err(none);
        };
        Ok(Self {
            take: TxTakeEnd::new(RingView::new(region, tx, placement.slots)?),
            put: RxPutEnd::new(RingView::new(region, rx, placement.slots)?),
            events,
            sleeper: Sleeper::default(),
            released: false,
            counters,
            counted: [false; 2],
        })
    }

    #[cold]
    fn count_violation(&mut self, side: usize) {
        if !self.counted[side] {
            self.counted[side] = true;
            self.counters.violation();
            // The program may be asleep on this ring: it is to learn why nothing comes any more.
            ring(self.events.notify.as_fd());
        }
    }

    /// Takes the fragments of one frame. `Ok(false)`: no whole frame is there, or no room for it.
    #[inline]
    fn take_frame(&mut self, batch: &mut Batch) -> Result<bool, RingViolation> {
        let before = batch.fragment_count();
        let mut fragments = 0;
        loop {
            // Asked before anything is taken: what is taken must end up in the batch or be put back.
            if fragments == 0 && !batch.has_room(MAX_FRAGMENTS) {
                return Ok(false);
            }
            if let Some(address) = self.take.prefetch_address(PREFETCH_FRAMES) {
                prefetch_read(address);
            }
            let taken = match self.take.take() {
                Ok(Some(taken)) => taken,
                // A frame whose rest is not there waits for it.
                Ok(None) => {
                    batch.truncate(before);
                    self.take.put_back(fragments);
                    return Ok(false);
                }
                Err(violation) => {
                    batch.truncate(before);
                    self.take.put_back(fragments);
                    return Err(violation);
                }
            };
            // SAFETY: the region stays mapped while this queue lives, and the slot is not given back to the program
            // before `release`.
            let fragment = unsafe { Fragment::new(&taken.bytes, taken.flags) };
            batch.push(fragment, fragments == 0);
            fragments += 1;
            if !fragment.has_more() {
                return Ok(true);
            }
            if fragments as usize == MAX_FRAGMENTS {
                batch.truncate(before);
                self.take.stop(RingViolation::Fragments);
                return Err(RingViolation::Fragments);
            }
        }
    }

    /// Puts one frame of several fragments, or one that needs several buffers.
    fn put_fragmented(&mut self, fragments: &[Fragment], used: u32) -> Result<u32, DropCause> {
        let buffer_bytes = self.put.buffer_bytes().min(u32::from(u16::MAX)) as usize;
        let total: usize = fragments.iter().map(Fragment::len).sum();
        let needed = total.div_ceil(buffer_bytes).max(1);
        if needed > MAX_FRAGMENTS || needed as u32 >= self.put.slot_count() {
            return Err(DropCause::TooLong);
        }
        let free = self.put.free(used + needed as u32).map_err(|_| DropCause::RingStopped)?;
        if used + needed as u32 > free {
            return Err(DropCause::NoSpace);
        }
        let mut source = fragments.iter();
        let mut current = source.next();
        let mut offset = 0;
        for slot in 0..needed {
            let len = (total - slot * buffer_bytes).min(buffer_bytes);
            let ahead = used + slot as u32;
            let (bytes, buffer) = self.put.buffer(ahead, len).map_err(|_| DropCause::RingStopped)?;
            let mut room = bytes;
            while let Some(fragment) = current
                && !room.is_empty()
            {
                let copied = room.copy_from(&fragment.bytes().skip(offset));
                room = room.skip(copied);
                offset += copied;
                if offset == fragment.len() {
                    offset = 0;
                    current = source.next();
                }
            }
            self.put.describe(ahead, buffer, len as u16, needed as u8, slot + 1 < needed);
        }
        Ok(needed as u32)
    }
}

impl PortQueue for ShmQueue {
    fn receive(&mut self, batch: &mut Batch) {
        match self.take.refresh() {
            Ok(0) => return,
            Ok(_) => {}
            Err(_) => return self.count_violation(0),
        }
        for ahead in 0..PREFETCH_FRAMES {
            if let Some(address) = self.take.prefetch_address(ahead) {
                prefetch_read(address);
            }
        }
        loop {
            match self.take_frame(batch) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => return self.count_violation(0),
            }
        }
    }

    fn release(&mut self, fragments: usize) {
        self.take.release(fragments as u32);
        self.released = true;
    }

    fn deliver(&mut self, batch: &Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery::default();
        let Ok(mut free) = self.put.free(frames.len() as u32) else {
            delivery.dropped.add(DropCause::RingStopped, frames.len() as u32);
            self.count_violation(1);
            return delivery;
        };
        let buffer_bytes = self.put.buffer_bytes() as usize;
        let mut used = 0;
        for &frame in frames {
            if used + PREFETCH_FRAMES < free
                && let Some(address) = self.put.prefetch_address(used + PREFETCH_FRAMES)
            {
                prefetch_write(address);
            }
            let fragments = batch.frame(usize::from(frame));
            let result = match fragments {
                [single] if single.len() <= buffer_bytes => {
                    if used >= free {
                        // Frames of several slots before it may have used up what was known to be free.
                        free = self.put.free(used + 1).unwrap_or(0);
                    }
                    if used >= free {
                        Err(DropCause::NoSpace)
                    } else {
                        match self.put.buffer(used, single.len()) {
                            Ok((mut bytes, buffer)) => {
                                bytes.copy_from(&single.bytes());
                                self.put.describe(used, buffer, single.len() as u16, 1, false);
                                Ok(1)
                            }
                            Err(_) => Err(DropCause::RingStopped),
                        }
                    }
                }
                several => self.put_fragmented(several, used),
            };
            match result {
                Ok(slots) => {
                    used += slots;
                    delivery.frames += 1;
                    delivery.bytes += fragments.iter().map(|fragment| fragment.len() as u64).sum::<u64>();
                }
                Err(cause) => {
                    delivery.dropped.add(cause, 1);
                    if cause == DropCause::RingStopped {
                        self.count_violation(1);
                    }
                }
            }
        }
        self.put.commit(used);
        delivery
    }

    fn flush(&mut self) -> u32 {
        let put = self.put.flush();
        if !put && !self.released {
            return 0;
        }
        fence_before_kicks();
        let wake_rx = put && self.put.needs_kick();
        let wake_tx = self.released && self.take.needs_kick();
        self.released = false;
        if wake_rx || wake_tx {
            ring(self.events.notify.as_fd());
            return 1;
        }
        0
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        if sleeping {
            self.sleeper.announce([self.take.sleeping_flag()]);
        } else {
            Sleeper::awake(self.take.sleeping_flag());
        }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.kick.as_fd())
    }

    fn drain_wake(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.events.kick, &mut count);
    }

    fn has_waiting(&mut self) -> bool {
        // An unfinished frame is no work: it would keep the datapath from sleeping.
        match self.take.refresh() {
            Ok(0) => false,
            Ok(_) => self.take.has_whole_frame(),
            Err(_) => {
                self.count_violation(0);
                false
            }
        }
    }

    fn fault(&self) -> Option<String> {
        let tx = self.take.violation().map(|violation| format!("tx ring stopped: {violation}"));
        tx.or_else(|| self.put.violation().map(|violation| format!("rx ring stopped: {violation}")))
    }
}

fn ring(event: BorrowedFd<'_>) {
    // A full counter already says what is to be said.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// The queue of a persistent port that no program has bound: takes nothing, gives nothing, counts.
#[derive(Debug, Default)]
pub struct UnboundQueue;

impl PortQueue for UnboundQueue {
    fn receive(&mut self, _batch: &mut Batch) {}

    fn release(&mut self, _fragments: usize) {}

    fn deliver(&mut self, _batch: &Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery::default();
        delivery.dropped.add(DropCause::NotBound, frames.len() as u32);
        delivery
    }

    fn flush(&mut self) -> u32 {
        0
    }

    fn prepare_sleep(&mut self, _sleeping: bool) {}

    fn has_waiting(&mut self) -> bool {
        false
    }
}
