//! The receiving end of a ring. It borrows frames in place, and gives their slots back in order.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringroad_port::batch::Batch;
use ringroad_port::frame::Fragment;
use ringroad_ring::layout::MAX_FRAGMENTS;
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use ringroad_ring::shared::{SharedBytes, prefetch_read};

use super::fault::Fault;
use super::own_region::OwnBuffers;
use super::ring::{Descriptor, Ring};

/// Distance of the prefetch of buffers, slots.
const PREFETCH_SLOTS: u16 = 8;
/// Maximum length of a part of a frame that the datapath can describe, bytes.
const MAX_PART_BYTES: u32 = u16::MAX as u32;

/// The receiving end of a ring.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    pub(super) ring: Ring,
    /// Buffers of a client. A server has none and uses the offsets in the client's descriptors, checked.
    own: Option<OwnBuffers>,
    /// Position of the first slot that was not borrowed yet.
    taken: u16,
    /// Position of the first slot that is borrowed and not given back.
    released: u16,
    /// Last position up to which slots were published as given back.
    published: u16,
    /// Index at which the ring ends: later frames are not taken.
    last: Option<u16>,
    /// The peer's index when its last frame was incomplete.
    unfinished_at: Option<u16>,
    /// Length of the longest received frame, bytes.
    pub(super) longest_bytes: usize,
    /// The eventfd with which the peer wakes this side.
    pub(super) event: Arc<OwnedFd>,
}

impl ReceiveRing {
    /// Receiving end of `ring`: of a client with the buffers `own`, otherwise of a server. `event` is the eventfd with
    /// which the peer wakes this side.
    pub(super) fn new(ring: Ring, own: Option<OwnBuffers>, event: Arc<OwnedFd>) -> Self {
        let start = match own {
            Some(_) => 0,
            None => ring.tail().load(Ordering::Relaxed),
        };
        ring.want_interrupt(false);
        Self {
            ring,
            own,
            taken: start,
            released: start,
            published: start,
            last: None,
            unfinished_at: None,
            longest_bytes: 0,
            event,
        }
    }

    /// Gives all buffers to the server, once the server has taken over the ring. Does nothing at a server.
    pub(super) fn start(&mut self) {
        if let Some(own) = self.own {
            for position in 0..self.ring.size() {
                self.ring.describe_whole(position, own.empty(position));
            }
            self.ring.head().store(self.ring.size(), Ordering::Release);
        }
    }

    #[inline]
    fn arrived_unchecked(&self) -> u16 {
        let index = if self.own.is_some() { self.ring.tail() } else { self.ring.head() };
        index.load(Ordering::Acquire)
    }

    /// Index up to which frames have come.
    #[inline]
    fn arrived(&self) -> Result<u16, Fault> {
        if let Some(last) = self.last {
            return Ok(last);
        }
        let arrived = self.arrived_unchecked();
        let most = self.released.wrapping_add(self.ring.size());
        if arrived.wrapping_sub(self.taken) > most.wrapping_sub(self.taken) {
            return Err(Fault::Index { index: arrived, from: self.taken, to: most });
        }
        Ok(arrived)
    }

    /// Whether frames are waiting.
    pub(super) fn is_waiting(&self) -> bool {
        let arrived = self.last.unwrap_or_else(|| self.arrived_unchecked());
        arrived != self.taken && self.unfinished_at != Some(arrived)
    }

    /// Ends the ring: frames that come from now on are not taken.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        self.last = Some(self.arrived()?);
        Ok(())
    }

    /// Whether no slot is borrowed.
    pub(super) fn is_returned(&self) -> bool {
        self.taken == self.released
    }

    /// Borrows whole frames, as many as there is room for.
    #[inline]
    pub(super) fn receive(&mut self, batch: &mut Batch) -> Result<(), Fault> {
        let arrived = self.arrived()?;
        let mut waiting = arrived.wrapping_sub(self.taken);
        for ahead in 0..waiting.min(PREFETCH_SLOTS) {
            self.prefetch(self.taken.wrapping_add(ahead));
        }
        while waiting != 0 && batch.has_room(MAX_FRAGMENTS) {
            let before = batch.fragment_count();
            let slots = match self.take_frame(batch, waiting) {
                Ok(slots) => slots,
                Err(fault) => {
                    batch.truncate(before);
                    return Err(fault);
                }
            };
            if slots == 0 {
                batch.truncate(before);
                self.unfinished_at = Some(arrived);
                break;
            }
            self.taken = self.taken.wrapping_add(slots);
            waiting -= slots;
        }
        Ok(())
    }

    /// Prefetches the buffer of the slot at `position`, without any check.
    #[inline]
    fn prefetch(&self, position: u16) {
        let descriptor = self.ring.descriptor(position);
        if let Ok(bytes) = self.buffer(position, descriptor) {
            prefetch_read(bytes.as_ptr());
        }
    }

    /// Borrows the frame at `taken`. Returns the number of its slots, 0 if a part of it has not come yet.
    #[inline]
    fn take_frame(&mut self, batch: &mut Batch, waiting: u16) -> Result<u16, Fault> {
        let (mut slots, mut frame_bytes) = (0, 0);
        loop {
            let position = self.taken.wrapping_add(slots);
            if waiting - slots > PREFETCH_SLOTS {
                self.prefetch(position.wrapping_add(PREFETCH_SLOTS));
            }
            let descriptor = self.ring.descriptor(position);
            let flags = if descriptor.has_next { MORE_FRAGMENTS } else { 0 };
            let bytes = self.buffer(position, descriptor)?;
            // SAFETY: the regions stay mapped while this ring lives. The ring outlives borrowed frames, because it is
            // only dropped after all were released.
            batch.push(unsafe { Fragment::new(&bytes, flags) }, slots == 0);
            slots += 1;
            frame_bytes += descriptor.bytes as usize;
            if !descriptor.has_next {
                break;
            }
            let most = self.ring.size().min(MAX_FRAGMENTS as u16);
            if slots == most {
                return Err(Fault::Chain { slot: self.ring.slot(self.taken), most });
            }
            if slots == waiting {
                return Ok(0);
            }
        }
        self.longest_bytes = self.longest_bytes.max(frame_bytes);
        if slots > 1 && self.own.is_none() {
            self.unchain(slots);
        }
        Ok(slots)
    }

    /// Clears the flags in the descriptors of a frame, because some clients do not clear them when they reuse slots.
    #[cold]
    fn unchain(&self, slots: u16) {
        for ahead in 0..slots {
            let position = self.taken.wrapping_add(ahead);
            let descriptor = self.ring.descriptor(position);
            self.ring.describe(position, Descriptor { has_next: false, ..descriptor });
        }
    }

    /// Bytes of a descriptor's buffer, checked.
    #[inline]
    fn buffer(&self, position: u16, descriptor: Descriptor) -> Result<SharedBytes<'_>, Fault> {
        let (region, offset, most) = match &self.own {
            Some(own) => (0, own.offset(position), own.bytes),
            None => (descriptor.region, descriptor.offset, MAX_PART_BYTES),
        };
        let slot = self.ring.slot(position);
        let bytes = descriptor.bytes;
        if bytes > most.min(MAX_PART_BYTES) {
            return Err(Fault::Length { slot, bytes, most });
        }
        let part = self.ring.regions.part(region, offset, bytes as usize);
        part.ok_or(Fault::Buffer { slot, region, offset, bytes })
    }

    /// Gives back the `slots` oldest borrowed slots.
    #[inline]
    pub(super) fn release(&mut self, slots: usize) {
        let slots = (slots as u16).min(self.taken.wrapping_sub(self.released));
        if let Some(own) = &self.own {
            for ahead in 0..slots {
                let position = self.released.wrapping_add(ahead);
                self.ring.describe_whole(position, own.empty(position));
            }
        }
        self.released = self.released.wrapping_add(slots);
    }

    /// Publishes the returned slots to the peer.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.published == self.released {
            return;
        }
        self.published = self.released;
        if self.own.is_some() {
            self.ring.head().store(self.released.wrapping_add(self.ring.size()), Ordering::Release);
        } else {
            self.ring.tail().store(self.released, Ordering::Release);
        }
    }
}
