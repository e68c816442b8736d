//! The receiving end of a ring: it borrows frames in place, and gives their slots back in order.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringroad_port::batch::Batch;
use ringroad_port::frame::Fragment;
use ringroad_ring::layout::MAX_FRAGMENTS;
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use ringroad_ring::shared::{SharedBytes, prefetch_read};

use super::fault::Fault;
use super::own_region::OwnBuffers;
use super::ring::{Descriptor, Regions, Ring};

/// How many slots ahead buffers are prefetched.
const PREFETCH_SLOTS: u16 = 8;
/// Longest part of a frame that the datapath can describe, bytes.
const MAX_PART_BYTES: u32 = u16::MAX as u32;

/// The receiving end.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    ring: Ring,
    /// Where our buffers are: as a client. A server takes the client's word, checked.
    own: Option<OwnBuffers>,
    /// Position of the first slot that was not borrowed yet.
    taken: u16,
    /// Position of the first slot borrowed and not given back.
    released: u16,
    /// The same, as the peer knows it.
    published: u16,
    /// Index at which it ends: later frames are not taken.
    last: Option<u16>,
    /// The peer's index when its last frame was not whole.
    unfinished_at: Option<u16>,
    longest_bytes: usize,
    event: Arc<OwnedFd>,
}

impl ReceiveRing {
    /// The end of `ring` of a server, or, with buffers, of a client. `event` is what the peer wakes us by.
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

    /// As a client, once the server has taken the ring: gives it all buffers.
    pub(super) fn start(&mut self) {
        if let Some(own) = self.own {
            for position in 0..self.ring.size() {
                self.ring.describe_whole(position, own.empty(position));
            }
            self.ring.head().store(self.ring.size(), Ordering::Release);
        }
    }

    /// The eventfd with which the peer wakes us.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(super) fn regions(&self) -> &Regions {
        self.ring.regions()
    }

    /// Sets whether the peer must wake us.
    pub(super) fn want_interrupt(&self, wanted: bool) {
        self.ring.want_interrupt(wanted);
    }

    #[inline]
    fn arrived_unchecked(&self) -> u16 {
        let index = if self.own.is_some() { self.ring.tail() } else { self.ring.head() };
        index.load(Ordering::Acquire)
    }

    /// Up to where frames have come.
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

    /// Whether frames wait.
    pub(super) fn is_waiting(&self) -> bool {
        let arrived = self.last.unwrap_or_else(|| self.arrived_unchecked());
        arrived != self.taken && self.unfinished_at != Some(arrived)
    }

    /// Takes nothing that comes from now on.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        self.last = Some(self.arrived()?);
        Ok(())
    }

    /// Whether nothing of it is borrowed.
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

    /// Starts loading the buffer of the slot at `position`, without any check.
    #[inline]
    fn prefetch(&self, position: u16) {
        let descriptor = self.ring.descriptor(position);
        if let Ok(bytes) = self.buffer(position, descriptor) {
            prefetch_read(bytes.as_ptr());
        }
    }

    /// Borrows the frame at `taken`. Gives the number of its slots, 0 where its rest is not there yet.
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
            // SAFETY: the regions stay mapped while this ring lives, which outlives what is borrowed from it: the ring
            // is only dropped once all was released.
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

    /// Takes the flags off the descriptors of a frame: some clients do not clear them when they use the slots again.
    #[cold]
    fn unchain(&self, slots: u16) {
        for ahead in 0..slots {
            let position = self.taken.wrapping_add(ahead);
            let descriptor = self.ring.descriptor(position);
            self.ring.describe(position, Descriptor { has_next: false, ..descriptor });
        }
    }

    /// The bytes that a descriptor names, checked.
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
        let part = self.ring.regions().part(region, offset, bytes as usize);
        part.ok_or(Fault::Buffer { slot, region, offset, bytes })
    }

    /// Longest frame that came, bytes.
    #[inline]
    pub(super) fn longest_bytes(&self) -> usize {
        self.longest_bytes
    }

    /// Gives back the `slots` slots that were borrowed first.
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

    /// Shows the peer what was given back.
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
