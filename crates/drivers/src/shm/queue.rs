//! The datapath's side of a program's queue.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ringroad_port::batch::{BATCH_FRAMES, Batch, Custody};
use ringroad_port::counters::QueueCounters;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, PortQueue};
use ringroad_ring::datapath_end::{RxPutEnd, TxTakeEnd};
use ringroad_ring::eventfd;
use ringroad_ring::geometry::{GeometryError, PortPlacement};
use ringroad_ring::layout::MAX_FRAGMENTS;
use ringroad_ring::region::{Region, RegionId};
use ringroad_ring::ring_view::RingView;
use ringroad_ring::shared::{prefetch_read, prefetch_write};
use ringroad_ring::violation::RingViolation;
use ringroad_ring::wakeup::{Sleeper, publish_fence};

use super::QueueEvents;

/// How many frames ahead buffers are prefetched.
const PREFETCH_FRAMES: u32 = 8;

/// One queue of a program's port, from the datapath's side.
#[derive(Debug)]
pub struct ShmQueue {
    take: TxTakeEnd,
    put: RxPutEnd,
    events: QueueEvents,
    sleeper: Sleeper,
    region: RegionId,
    /// Whether frames are stamped with the time at which they came: from the first one on of which it is known.
    stamps: bool,
    /// Whether the next sleep is to end when the program makes room.
    awaits_room: bool,
    announced_room: bool,
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
            region: region.id(),
            stamps: false,
            awaits_room: false,
            announced_room: false,
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
            eventfd::ring(&self.events.notify);
        }
    }

    /// Takes the fragments of one frame. `Ok(false)`: no whole frame is there, or no room for it.
    #[inline]
    fn take_frame(&mut self, batch: &mut Batch, lending: bool) -> Result<bool, RingViolation> {
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
            if lending {
                batch.push_buffer(fragment, taken.buffer, fragments == 0);
            } else {
                batch.push(fragment, fragments == 0);
            }
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

    /// Puts a frame by keeping its buffers, for which the source gets those of the slots.
    fn put_exchanged(&mut self, batch: &mut Batch, frame: usize, used: u32) -> Result<u32, DropCause> {
        let fragments = batch.fragments_of(frame);
        let needed = fragments.len() as u32;
        let free = self.put.free(used + needed).map_err(|_| DropCause::RingStopped)?;
        if used + needed > free {
            return Err(DropCause::NoSpace);
        }
        let last = fragments.end.saturating_sub(1);
        for (ahead, fragment) in (used..).zip(fragments) {
            let (_, own) = self.put.buffer(ahead, 0).map_err(|_| DropCause::RingStopped)?;
            let len = batch.fragment(fragment).map_or(0, Fragment::len);
            self.put.describe(ahead, batch.buffer(fragment), len as u16, needed as u8, fragment != last);
            batch.exchange(fragment, own);
        }
        Ok(needed)
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
        // The slots of a tx ring keep their buffers, so these are lent and never given.
        let lending = batch.taker() == Some(self.region);
        if lending {
            batch.offer(self.region, Custody::Lend);
        }
        loop {
            match self.take_frame(batch, lending) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => return self.count_violation(0),
            }
        }
    }

    fn room(&mut self, frame_bytes: usize) -> usize {
        let buffer_bytes = self.put.buffer_bytes().min(u32::from(u16::MAX)) as usize;
        let slots = frame_bytes.div_ceil(buffer_bytes).clamp(1, MAX_FRAGMENTS);
        // A ring too small for such a frame takes one at a time when it is empty, to drop it by cause.
        let slots = slots.min(self.put.slot_count() as usize - 1);
        let wanted = (BATCH_FRAMES * slots) as u32;
        self.put.free(wanted).map_or(BATCH_FRAMES, |free| free as usize / slots)
    }

    fn release(&mut self, fragments: usize) {
        self.take.release(fragments as u32);
        self.released = true;
    }

    fn region(&self) -> Option<RegionId> {
        Some(self.region)
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery::default();
        let given = batch.gives_to(self.region);
        self.stamps |= batch.has_timestamps();
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
            let bytes: u64 = fragments.iter().map(|fragment| fragment.len() as u64).sum();
            let result = match fragments {
                _ if given && batch.is_sole(usize::from(frame)) => {
                    self.put_exchanged(batch, usize::from(frame), used)
                }
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
                    if self.stamps {
                        for slot in used..used + slots {
                            self.put.stamp(slot, batch.timestamp_ns(usize::from(frame)));
                        }
                    }
                    used += slots;
                    delivery.frames += 1;
                    delivery.bytes += bytes;
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
        publish_fence();
        let wake_rx = put && self.put.needs_kick();
        let wake_tx = self.released && self.take.needs_kick();
        self.released = false;
        if wake_rx || wake_tx {
            eventfd::ring(&self.events.notify);
            return 1;
        }
        0
    }

    fn await_room(&mut self) -> bool {
        self.awaits_room = true;
        self.announced_room
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        let room = self.awaits_room.then(|| self.put.sleeping_flag());
        let flags = std::iter::once(self.take.sleeping_flag()).chain(room);
        if sleeping {
            self.sleeper.announce(flags);
        } else {
            flags.for_each(Sleeper::awake);
        }
        self.announced_room = sleeping && self.awaits_room;
        self.awaits_room &= sleeping;
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.kick.as_fd())
    }

    fn drain_wake(&mut self) {
        eventfd::drain(&self.events.kick);
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

    fn end(&mut self) {
        if self.take.violation().is_none() && self.put.violation().is_none() {
            self.take.stop(RingViolation::DeviceGone);
            self.put.stop(RingViolation::DeviceGone);
            // No rule was broken, so nothing is to be counted.
            self.counted = [true; 2];
            eventfd::ring(&self.events.notify);
        }
    }

    fn fault(&self) -> Option<String> {
        let tx = self.take.violation().map(|violation| format!("tx ring stopped: {violation}"));
        tx.or_else(|| self.put.violation().map(|violation| format!("rx ring stopped: {violation}")))
    }
}

/// The queue of a persistent port that no program has bound: takes nothing, gives nothing, counts.
#[derive(Debug, Default)]
pub struct UnboundQueue;

impl PortQueue for UnboundQueue {
    fn receive(&mut self, _batch: &mut Batch) {}

    fn release(&mut self, _fragments: usize) {}

    fn deliver(&mut self, _batch: &mut Batch, frames: &[u16]) -> Delivery {
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
