//! The send ring. Each frame is copied once into one or several free buffers, behind a header.
#![allow(unsafe_code)]

use std::collections::VecDeque;

use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::offload::{Unfinished, VIRTIO_HEADER_BYTES};
use ringroad_ring::shared::{SharedBytes, prefetch_write};
use ringroad_virtqueue::layout::{DESC_NEXT, NET_HEADER_BYTES};

use super::driver_ring::{DriverRing, UsedRingFault};
use super::memory::{BUFFER_BYTES, RingMemory};

/// Maximum length of a sent frame, bytes.
pub(super) const MAX_FRAME_BYTES: usize = 65535;
/// Distance of the prefetch of buffers for writing, frames.
const PREFETCH_FRAMES: usize = 8;

/// The sending half of a queue.
#[derive(Debug)]
pub(super) struct SendRing {
    ring: DriverRing,
    /// Free descriptors, in the order in which they came back. There are never more of them than entries.
    free: VecDeque<u16>,
    /// For each descriptor n, the number of descriptors of the frame that begins with n; 0 if the back end has no such
    /// frame.
    chain: Box<[u16]>,
    /// Last written second word of each descriptor. A word that would not change is not written.
    words: Box<[u64]>,
    /// For each buffer, whether its header may be other than zeros.
    has_header: Box<[bool]>,
}

/// Number of buffers that a frame takes.
fn buffers_for(frame_bytes: usize) -> usize {
    (NET_HEADER_BYTES + frame_bytes).div_ceil(BUFFER_BYTES)
}

impl SendRing {
    pub(super) fn new(memory: RingMemory, has_event_indexes: bool) -> Self {
        let entries = usize::from(memory.entries());
        Self {
            free: (0..memory.entries()).collect(),
            ring: DriverRing::new(memory, has_event_indexes),
            chain: vec![0; entries].into_boxed_slice(),
            words: vec![0; entries].into_boxed_slice(),
            has_header: vec![false; entries].into_boxed_slice(),
        }
    }

    /// Publishes the new frames to the back end. Returns whether it wants to be woken.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Requests a wake-up when the back end has returned half of its descriptors, so that no wake-up comes for a single
    /// frame.
    pub(super) fn arm(&mut self) {
        let out = self.ring.out();
        self.ring.arm(out / 2);
    }

    /// Requests a wake-up when the back end has no more frames. Returns whether that is so now.
    ///
    /// # Errors
    /// [`UsedRingFault`].
    pub(super) fn arm_for_all(&mut self) -> Result<bool, UsedRingFault> {
        let out = self.ring.out();
        self.ring.arm(out);
        Ok(self.ring.returned()? == out)
    }

    /// Requests no wake-ups.
    pub(super) fn disarm(&mut self) {
        self.ring.disarm();
    }

    /// Number of frames of `frame_bytes` bytes that fit now, at least `wanted` if there is enough room.
    ///
    /// # Errors
    /// [`UsedRingFault`].
    pub(super) fn room(&mut self, frame_bytes: usize, wanted: usize) -> Result<usize, UsedRingFault> {
        let buffers = buffers_for(frame_bytes);
        self.make_free(wanted * buffers)?;
        Ok(self.free.len() / buffers)
    }

    /// Takes back returned descriptors if fewer than `wanted` are free. It does so only then, because each query moves
    /// cache lines between processors, and a later query finds more descriptors in each line.
    ///
    /// # Errors
    /// [`UsedRingFault`].
    #[inline]
    pub(super) fn make_free(&mut self, wanted: usize) -> Result<(), UsedRingFault> {
        if self.free.len() >= wanted {
            return Ok(());
        }
        for _ in 0..self.ring.returned()? {
            let (id, _) = self.ring.entry(0);
            let length = self.chain.get_mut(id as usize).map_or(0, std::mem::take);
            if length == 0 {
                return Err(UsedRingFault::NotItsOwn(id));
            }
            let mut index = id as u16;
            self.free.push_back(index);
            for _ in 1..length {
                index = (self.words.get(usize::from(index)).copied().unwrap_or(0) >> 48) as u16;
                self.free.push_back(index);
            }
            self.ring.take(1);
        }
        Ok(())
    }

    /// Prefetches the buffer that is [`PREFETCH_FRAMES`] buffers ahead, for writing.
    #[inline]
    pub(super) fn prefetch(&self) {
        if let Some(&index) = self.free.get(PREFETCH_FRAMES) {
            prefetch_write(self.ring.memory.frame(index).as_ptr());
        }
    }

    /// Puts a frame of `bytes` bytes with the unfinished work `unfinished`. The back end sees it after
    /// [`Self::publish`].
    ///
    /// # Errors
    /// The cause of the drop.
    #[inline]
    pub(super) fn put(
        &mut self,
        fragments: &[Fragment],
        bytes: usize,
        unfinished: Unfinished,
    ) -> Result<(), DropCause> {
        let buffers = buffers_for(bytes);
        if bytes > MAX_FRAME_BYTES {
            return Err(DropCause::TooLong);
        }
        if buffers > self.free.len() {
            return Err(DropCause::NoSpace);
        }
        let (Some(head), [single]) = (self.free.front().copied(), fragments) else {
            return self.put_scattered(fragments, bytes, buffers, unfinished);
        };
        if buffers != 1 {
            return self.put_scattered(fragments, bytes, buffers, unfinished);
        }
        self.free.pop_front();
        self.write_header(head, unfinished);
        let frame = self.ring.memory.frame(head);
        // SAFETY: a frame of one buffer fits behind its header; the ring keeps it mapped.
        let mut target = unsafe { SharedBytes::from_trusted_parts(frame, bytes) };
        target.copy_from(&single.bytes());
        self.describe(head, (NET_HEADER_BYTES + bytes) as u32, None);
        self.hand_over(head, 1);
        Ok(())
    }

    /// Puts a frame as [`Self::put`] does, from several fragments or into several buffers. At least `buffers`
    /// descriptors are free.
    #[cold]
    fn put_scattered(
        &mut self,
        fragments: &[Fragment],
        bytes: usize,
        buffers: usize,
        unfinished: Unfinished,
    ) -> Result<(), DropCause> {
        let Some(head) = self.free.pop_front() else { return Err(DropCause::NoSpace) };
        self.write_header(head, unfinished);
        let (mut index, mut filled) = (head, NET_HEADER_BYTES);
        let mut left = bytes;
        for fragment in fragments {
            let mut rest = fragment.bytes();
            while !rest.is_empty() {
                if filled == BUFFER_BYTES {
                    let Some(next) = self.free.pop_front() else { break };
                    self.describe(index, BUFFER_BYTES as u32, Some(next));
                    (index, filled) = (next, 0);
                    if let Some(has_header) = self.has_header.get_mut(usize::from(index)) {
                        *has_header = true;
                    }
                }
                let part = rest.len().min(BUFFER_BYTES - filled);
                // SAFETY: `filled` is less than a buffer's length.
                let start = unsafe { self.ring.memory.buffer(index).add(filled) };
                // SAFETY: `part` bytes from there lie in the buffer; the ring keeps it mapped.
                unsafe { SharedBytes::from_trusted_parts(start, part) }.copy_from(&rest);
                filled += part;
                left -= part.min(left);
                rest = rest.skip(part);
            }
        }
        debug_assert_eq!(left, 0);
        self.describe(index, filled as u32, None);
        self.hand_over(head, buffers as u16);
        Ok(())
    }

    #[inline]
    fn write_header(&mut self, index: u16, unfinished: Unfinished) {
        let Some(has_header) = self.has_header.get_mut(usize::from(index)) else { return };
        if !*has_header && unfinished.is_nothing() {
            return;
        }
        *has_header = !unfinished.is_nothing();
        let mut header = [0; NET_HEADER_BYTES];
        if let Some(said) = header.first_chunk_mut::<VIRTIO_HEADER_BYTES>()
            && !unfinished.is_nothing()
        {
            *said = unfinished.to_header();
        }
        // SAFETY: a buffer begins with room for a header; the ring keeps it mapped.
        unsafe { SharedBytes::from_trusted_parts(self.ring.memory.buffer(index), NET_HEADER_BYTES) }
            .write(&header);
    }

    #[inline]
    fn describe(&mut self, index: u16, len: u32, next: Option<u16>) {
        let word = RingMemory::descriptor_word(len, next.map_or(0, |_| DESC_NEXT), next.unwrap_or_default());
        if let Some(known) = self.words.get_mut(usize::from(index))
            && *known != word
        {
            *known = word;
            self.ring.memory.set_descriptor(index, word);
        }
    }

    #[inline]
    fn hand_over(&mut self, head: u16, buffers: u16) {
        if let Some(chain) = self.chain.get_mut(usize::from(head)) {
            *chain = buffers;
        }
        self.ring.make_available(head);
    }
}

#[cfg(test)]
mod tests;
