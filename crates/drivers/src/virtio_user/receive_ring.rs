//! The receive ring. Its buffers are lent to the back end, which fills them, and to the datapath, which reads them in
//! place.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ptr::NonNull;

use ringroad_port::batch::{Batch, FrameMeta};
use ringroad_port::frame::Fragment;
use ringroad_port::offload::{Unfinished, VIRTIO_HEADER_BYTES};
use ringroad_ring::layout::MAX_FRAGMENTS;
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use ringroad_ring::shared::{SharedBytes, prefetch_read};
use ringroad_virtqueue::layout::{DESC_WRITE, NET_HEADER_BYTES};

use super::driver_ring::{DriverRing, UsedRingFault};
use super::memory::{BUFFER_BYTES, RingMemory};

/// Number of entries read ahead, so that their frames are in the cache when they are used.
const LOOKAHEAD: usize = 32;

/// The receiving half of a queue.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    ring: DriverRing,
    /// For each buffer, whether the back end has it.
    is_out: Box<[bool]>,
    /// Buffers that the datapath reads, oldest first. The list is never longer than the ring, so it never grows.
    borrowed: VecDeque<u16>,
    /// Whether a frame may take several buffers.
    is_mergeable: bool,
    /// Whether headers describe unfinished work.
    may_be_unfinished: bool,
}

/// A checked buffer that came back.
#[derive(Debug, Clone, Copy, Default)]
struct Filled {
    index: u16,
    bytes: u16,
}

impl ReceiveRing {
    /// Ring with all buffers made available, which the back end sees after [`Self::publish`].
    pub(super) fn new(
        memory: RingMemory,
        has_event_indexes: bool,
        is_mergeable: bool,
        may_be_unfinished: bool,
    ) -> Self {
        let entries = memory.entries();
        let mut ring = DriverRing::new(memory, has_event_indexes);
        for index in 0..entries {
            ring.memory
                .set_descriptor(index, RingMemory::descriptor_word(BUFFER_BYTES as u32, DESC_WRITE, 0));
            ring.make_available(index);
        }
        Self {
            ring,
            is_out: vec![true; usize::from(entries)].into_boxed_slice(),
            borrowed: VecDeque::with_capacity(usize::from(entries)),
            is_mergeable,
            may_be_unfinished,
        }
    }

    /// Publishes the released buffers to the back end. Returns whether it wants to be woken.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Whether frames are waiting.
    ///
    /// # Errors
    /// [`UsedRingFault`].
    #[inline]
    pub(super) fn has_waiting(&self) -> Result<bool, UsedRingFault> {
        Ok(self.ring.returned()? != 0)
    }

    /// Whether the datapath reads no buffer.
    #[inline]
    pub(super) fn is_quiescent(&self) -> bool {
        self.borrowed.is_empty()
    }

    /// Requests a wake-up by the next frame.
    pub(super) fn arm(&mut self) {
        self.ring.arm(1);
    }

    /// Requests no wake-ups.
    pub(super) fn disarm(&mut self) {
        self.ring.disarm();
    }

    /// Gives back the `buffers` oldest borrowed buffers.
    #[inline]
    pub(super) fn release(&mut self, buffers: usize) {
        for _ in 0..buffers {
            let Some(index) = self.borrowed.pop_front() else { return };
            if let Some(is_out) = self.is_out.get_mut(usize::from(index)) {
                *is_out = true;
            }
            self.ring.make_available(index);
        }
    }

    /// Lends frames to `batch`, as many as it has room for. Stops before a frame longer than `longest_bytes`, unless it
    /// is the first, and stores its length in `longest_bytes`. So a caller with room for shorter frames can make more
    /// room.
    ///
    /// # Errors
    /// [`UsedRingFault`]; frames before the invalid one are lent.
    pub(super) fn receive(
        &mut self,
        batch: &mut Batch,
        longest_bytes: &mut usize,
    ) -> Result<(), UsedRingFault> {
        while batch.has_room(1) {
            let returned = self.ring.returned()?;
            if returned == 0 {
                break;
            }
            let mut ahead = [(0, 0); LOOKAHEAD];
            let seen = usize::from(returned).min(LOOKAHEAD);
            for (number, entry) in ahead.iter_mut().enumerate().take(seen) {
                *entry = self.ring.entry(number as u16);
                // Any number leads to some buffer. The number is checked when the buffer is used.
                let index = entry.0 as u16;
                prefetch_read(self.ring.memory.frame(index).as_ptr());
                if self.is_mergeable || self.may_be_unfinished {
                    prefetch_read(self.ring.memory.buffer(index).as_ptr());
                }
            }
            let mut used = 0;
            while used < seen && batch.has_room(1) {
                let entry = ahead.get(used).copied().unwrap_or_default();
                let (fragments, borrowed) = (batch.fragment_count(), self.borrowed.len());
                let taken = match self.take_frame(batch, entry, returned - used as u16, longest_bytes) {
                    Ok(taken) => taken,
                    Err(fault) => {
                        batch.truncate(fragments);
                        self.borrowed.truncate(borrowed);
                        return Err(fault);
                    }
                };
                if taken == 0 {
                    return Ok(());
                }
                used += usize::from(taken);
            }
        }
        Ok(())
    }

    /// Lends the frame that begins with the used entry `entry`, of `returned` returned entries. Returns the number of
    /// the frame's entries, 0 if it is not taken now.
    #[inline]
    fn take_frame(
        &mut self,
        batch: &mut Batch,
        entry: (u32, u32),
        returned: u16,
        longest_bytes: &mut usize,
    ) -> Result<u16, UsedRingFault> {
        let first = self.check(entry)?;
        if usize::from(first.bytes) < NET_HEADER_BYTES {
            return Err(UsedRingFault::Length(u32::from(first.bytes)));
        }
        let buffer = self.ring.memory.buffer(first.index);
        let mut header = [0; NET_HEADER_BYTES];
        if self.is_mergeable || self.may_be_unfinished {
            // SAFETY: a buffer begins with a header and stays mapped as long as the ring lives.
            unsafe { SharedBytes::from_trusted_parts(buffer, NET_HEADER_BYTES) }.read(&mut header);
        }
        let buffers = match header.last_chunk::<2>() {
            Some(&buffers) if self.is_mergeable => u16::from_le_bytes(buffers),
            _ => 1,
        };
        if buffers == 0 || usize::from(buffers) > MAX_FRAGMENTS {
            return Err(UsedRingFault::Buffers(buffers));
        }
        if buffers > returned || !batch.has_room(usize::from(buffers)) {
            return Ok(0);
        }
        let frame_bytes = if buffers == 1 {
            usize::from(first.bytes) - NET_HEADER_BYTES
        } else {
            self.frame_bytes(buffers)?
        };
        if frame_bytes > usize::from(u16::MAX) {
            return Err(UsedRingFault::Buffers(buffers));
        }
        if frame_bytes > *longest_bytes {
            *longest_bytes = frame_bytes;
            if batch.frames() != 0 {
                return Ok(0);
            }
        }
        let frame = self.ring.memory.frame(first.index);
        self.lend(batch, first.index, frame, usize::from(first.bytes) - NET_HEADER_BYTES, true, buffers > 1);
        for number in 1..buffers {
            // Each entry is checked after the buffer before it was lent, to detect a buffer that is named twice.
            let next = self.check(self.ring.entry(number))?;
            let start = self.ring.memory.buffer(next.index);
            self.lend(batch, next.index, start, usize::from(next.bytes), false, number + 1 < buffers);
        }
        self.ring.take(buffers);
        if self.may_be_unfinished
            && let Some(header) = header.first_chunk::<VIRTIO_HEADER_BYTES>()
        {
            let unfinished = Unfinished::from_header(header);
            if !unfinished.is_nothing() {
                batch.describe(FrameMeta { unfinished, ..FrameMeta::default() });
            }
        }
        Ok(buffers)
    }

    /// Length of the frame in the next `buffers` entries. Each entry is read and checked again when its buffer is lent,
    /// and its length at that time counts.
    #[cold]
    fn frame_bytes(&self, buffers: u16) -> Result<usize, UsedRingFault> {
        let mut bytes = 0;
        for number in 0..buffers {
            bytes += usize::from(self.check(self.ring.entry(number))?.bytes);
        }
        Ok(bytes - NET_HEADER_BYTES)
    }

    /// Checks an entry of the used ring that was read.
    #[inline]
    fn check(&self, (id, len): (u32, u32)) -> Result<Filled, UsedRingFault> {
        match self.is_out.get(id as usize) {
            Some(true) => {}
            _ => return Err(UsedRingFault::NotItsOwn(id)),
        }
        if len as usize > BUFFER_BYTES {
            return Err(UsedRingFault::Length(len));
        }
        Ok(Filled { index: id as u16, bytes: len as u16 })
    }

    #[inline]
    fn lend(
        &mut self,
        batch: &mut Batch,
        index: u16,
        start: NonNull<u8>,
        bytes: usize,
        is_first: bool,
        has_more: bool,
    ) {
        if let Some(is_out) = self.is_out.get_mut(usize::from(index)) {
            *is_out = false;
        }
        self.borrowed.push_back(index);
        // SAFETY: the bytes lie in the buffer, as their number was checked, and the ring keeps the buffer mapped.
        let bytes = unsafe { SharedBytes::from_trusted_parts(start, bytes) };
        let flags = if has_more { MORE_FRAGMENTS } else { 0 };
        // SAFETY: the buffer is made available again only by `release`, and the ring is given back only if no buffer is
        // borrowed.
        batch.push(unsafe { Fragment::new(&bytes, flags) }, is_first);
    }
}

#[cfg(test)]
mod tests;
