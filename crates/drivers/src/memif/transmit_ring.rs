//! The sending end of a ring: frames are copied once, into the buffers of the slots.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::{Fragment, Gather};
use ringroad_ring::eventfd;
use ringroad_ring::shared::{SharedBytes, prefetch_write};

use super::fault::Fault;
use super::own_region::OwnBuffers;
use super::ring::{Descriptor, Ring};

/// Distance of the prefetch of buffers, slots.
const PREFETCH_SLOTS: u16 = 8;
/// Maximum length of a frame, bytes.
const MAX_FRAME_BYTES: usize = u16::MAX as usize;

/// Reason why a frame was not put on the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The frame is dropped.
    Dropped(DropCause),
    /// The peer broke a rule.
    Fault(Fault),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The sending end of a ring.
#[derive(Debug)]
pub(super) struct TransmitRing {
    pub(super) ring: Ring,
    /// Buffers of a client. A server has none and uses the offsets in the client's descriptors, checked.
    own: Option<OwnBuffers>,
    /// Position of the next slot to fill.
    next: u16,
    /// Last position that was published to the peer.
    published: u16,
    /// Position up to which slots may be filled, at the last query.
    limit: u16,
    /// Size of the smallest known buffer, bytes.
    smallest_bytes: u32,
    event: Arc<OwnedFd>,
}

impl TransmitRing {
    /// Sending end of `ring`: of a client with the buffers `own`, otherwise of a server. `event` is the eventfd that
    /// wakes the peer.
    pub(super) fn new(ring: Ring, own: Option<OwnBuffers>, event: Arc<OwnedFd>) -> Self {
        let (next, limit) = match own {
            Some(_) => (0, ring.size()),
            None => {
                let next = ring.tail().load(Ordering::Relaxed);
                (next, next)
            }
        };
        let smallest_bytes = own.map_or(u32::MAX, |own| own.bytes);
        Self { ring, own, next, published: next, limit, smallest_bytes, event }
    }

    /// Reads how many slots may be filled now.
    #[inline]
    fn refresh(&mut self) -> Result<u16, Fault> {
        let size = self.ring.size();
        let limit = match self.own {
            Some(_) => self.ring.tail().load(Ordering::Acquire).wrapping_add(size),
            None => self.ring.head().load(Ordering::Acquire),
        };
        // The limit never moves back, and never exceeds the number of slots.
        let most = self.published.wrapping_add(size);
        if limit.wrapping_sub(self.limit) > most.wrapping_sub(self.limit) {
            return Err(Fault::Index { index: limit, from: self.limit, to: most });
        }
        self.limit = limit;
        Ok(self.free())
    }

    #[inline]
    fn free(&self) -> u16 {
        self.limit.wrapping_sub(self.next)
    }

    /// Number of frames of `frame_bytes` bytes that fit now, as far as the size of the peer's buffers is known.
    pub(super) fn room(&mut self, frame_bytes: usize) -> Result<usize, Fault> {
        let free = usize::from(self.refresh()?);
        if self.smallest_bytes == u32::MAX && free != 0 {
            self.smallest_bytes = self.ring.descriptor(self.next).bytes;
        }
        let slots = frame_bytes.div_ceil(self.smallest_bytes.max(1) as usize).max(1);
        Ok(free / slots)
    }

    /// Puts a frame, whole or not at all. Returns its length, bytes.
    #[inline]
    pub(super) fn put(&mut self, fragments: &[Fragment]) -> Result<usize, Refused> {
        if self.free() == 0 && self.refresh()? == 0 {
            return Err(Refused::Dropped(DropCause::NoSpace));
        }
        if self.free() > PREFETCH_SLOTS
            && let Ok((bytes, _)) = self.buffer(self.next.wrapping_add(PREFETCH_SLOTS), 1)
        {
            prefetch_write(bytes.as_ptr());
        }
        if let [fragment] = fragments {
            let (mut bytes, capacity) = self.buffer(self.next, fragment.len())?;
            if fragment.len() <= capacity as usize {
                bytes.copy_from(&fragment.bytes());
                self.describe(self.next, fragment.len(), false);
                self.next = self.next.wrapping_add(1);
                return Ok(fragment.len());
            }
        }
        self.put_chain(fragments)
    }

    /// Puts a frame of several fragments, or one that needs several slots.
    fn put_chain(&mut self, fragments: &[Fragment]) -> Result<usize, Refused> {
        let total: usize = fragments.iter().map(Fragment::len).sum();
        if total > MAX_FRAME_BYTES {
            return Err(Refused::Dropped(DropCause::TooLong));
        }
        let slots = self.slots_for(total)?;
        let mut gather = Gather::new(fragments.iter());
        let mut left = total;
        for ahead in 0..slots {
            let position = self.next.wrapping_add(ahead);
            let (bytes, capacity) = self.buffer(position, left)?;
            let len = left.min(capacity as usize);
            gather.fill(bytes);
            left -= len;
            self.describe(position, len, ahead + 1 < slots);
            if left != 0 && ahead + 1 == slots {
                // The buffers were large enough before, so the peer shrank a buffer that it does not own now.
                let slot = self.ring.slot(position);
                return Err(Fault::Length { slot, bytes: (len + left) as u32, most: capacity }.into());
            }
        }
        self.next = self.next.wrapping_add(slots);
        Ok(total)
    }

    /// Number of slots for `total` bytes, all of which are free.
    fn slots_for(&mut self, total: usize) -> Result<u16, Refused> {
        let mut free = self.free();
        let (mut slots, mut room) = (0, 0);
        while room < total {
            if slots == free {
                free = self.refresh()?;
            }
            if slots == free {
                let cause = if slots == self.ring.size() { DropCause::TooLong } else { DropCause::NoSpace };
                return Err(Refused::Dropped(cause));
            }
            let (_, capacity) = self.buffer(self.next.wrapping_add(slots), 0)?;
            self.smallest_bytes = self.smallest_bytes.min(capacity);
            room += capacity as usize;
            slots += 1;
        }
        Ok(slots.max(1))
    }

    /// The first `wanted` bytes of the buffer at `position`, or all if it has fewer, and the size of the buffer.
    #[inline]
    fn buffer(&self, position: u16, wanted: usize) -> Result<(SharedBytes<'_>, u32), Fault> {
        let (region, offset, capacity) = match &self.own {
            Some(own) => (0, own.offset(position), own.bytes),
            None => {
                let descriptor = self.ring.descriptor(position);
                if descriptor.bytes == 0 {
                    return Err(Fault::NoBuffer { slot: self.ring.slot(position) });
                }
                (descriptor.region, descriptor.offset, descriptor.bytes)
            }
        };
        let bytes = wanted.min(capacity as usize);
        let slot = self.ring.slot(position);
        let part = self.ring.regions.part(region, offset, bytes);
        let part = part.ok_or(Fault::Buffer { slot, region, offset, bytes: bytes as u32 })?;
        Ok((part, capacity))
    }

    #[inline]
    fn describe(&self, position: u16, len: usize, has_next: bool) {
        let bytes = len as u32;
        match &self.own {
            Some(own) => {
                let offset = own.offset(position);
                self.ring.describe_whole(position, Descriptor { has_next, region: 0, bytes, offset });
            }
            None => {
                let region = self.ring.descriptor(position).region;
                self.ring.describe(position, Descriptor { has_next, region, bytes, offset: 0 });
            }
        }
    }

    /// Publishes the put frames, and wakes the peer if it wants that. Returns the number of wake-ups.
    #[inline]
    pub(super) fn publish(&mut self) -> u32 {
        if self.published == self.next {
            return 0;
        }
        self.published = self.next;
        let index = if self.own.is_some() { self.ring.head() } else { self.ring.tail() };
        index.store(self.next, Ordering::Release);
        if !self.ring.wants_interrupt() {
            return 0;
        }
        eventfd::ring(&*self.event);
        1
    }
}
