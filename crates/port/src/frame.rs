//! Frame in the datapath: one or more fragments, borrowed in place.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use ringroad_ring::datapath_end::TakenFragment;
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use ringroad_ring::shared::{SharedBytes, SlotWord};
pub use ringroad_ring::shared::{prefetch_read, prefetch_write};

/// Bytes of an Ethernet header: two addresses and a type.
pub const ETHERNET_HEADER_BYTES: usize = 14;

/// A piece of a frame: the bytes of one slot.
#[derive(Debug, Clone, Copy)]
pub struct Fragment {
    start: NonNull<u8>,
    /// Length, flags and buffer. The buffer is 0, which no frame uses, unless the source of the batch offers it.
    slot: SlotWord,
}

// SAFETY: a fragment is only dereferenced through `bytes`, under the contract of `Fragment::new`, which holds on any
// thread.
unsafe impl Send for Fragment {}

impl Fragment {
    /// Borrows `bytes` for the datapath. `flags` are netmap's slot flags.
    ///
    /// # Safety
    /// The bytes must stay mapped until the queue that hands out the fragment has to release it. Other processes may
    /// write them meanwhile, which only damages the frame's content. At most 65535 bytes.
    #[inline]
    #[must_use]
    pub unsafe fn new(bytes: &SharedBytes<'_>, flags: u16) -> Self {
        Self {
            start: bytes.start(),
            slot: SlotWord::new(0, bytes.len().min(usize::from(u16::MAX)) as u16, flags),
        }
    }

    /// Borrows the bytes of a slot for the datapath, and names their buffer.
    ///
    /// # Safety
    /// The conditions of [`Fragment::new`].
    #[inline]
    #[must_use]
    pub unsafe fn of_slot(taken: &TakenFragment<'_>) -> Self {
        Self { start: taken.bytes.start(), slot: taken.slot }
    }

    /// Borrows private memory of a driver for the datapath, which only reads it.
    ///
    /// # Safety
    /// The conditions of [`Fragment::new`], and no code writes to the bytes meanwhile.
    #[inline]
    #[must_use]
    pub unsafe fn from_private(bytes: &[u8], flags: u16) -> Self {
        let len = bytes.len().min(usize::from(u16::MAX)) as u16;
        Self { start: NonNull::from(bytes).cast(), slot: SlotWord::new(0, len, flags) }
    }

    /// Fragment with the same bytes, which lie in `buffer` of the region that the batch offers
    /// ([`crate::batch::Batch::offer`]).
    #[inline]
    #[must_use]
    pub fn in_buffer(self, buffer: u32) -> Self {
        Self { slot: self.slot.in_buffer(buffer), ..self }
    }

    /// Buffer, length and flags.
    #[inline]
    #[must_use]
    pub fn slot(&self) -> SlotWord {
        self.slot
    }

    /// Index of the buffer in the region that the batch offers; 0, which no frame uses, if no region is offered.
    #[inline]
    #[must_use]
    pub fn buffer(&self) -> u32 {
        self.slot.buffer()
    }

    /// Length, bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        usize::from(self.slot.len())
    }

    /// The slot's flags.
    #[inline]
    #[must_use]
    pub fn flags(&self) -> u16 {
        self.slot.flags()
    }

    /// Whether another fragment of the same frame follows.
    #[inline]
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.flags() & MORE_FRAGMENTS != 0
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: the maker of the fragment guaranteed the mapping until release, and the datapath drops fragments
        // before it releases them.
        unsafe { SharedBytes::from_trusted_parts(self.start, self.len()) }
    }

    /// Fragment without its first `bytes` bytes; empty if it has fewer.
    #[inline]
    #[must_use]
    pub fn behind(&self, bytes: usize) -> Self {
        let skipped = bytes.min(self.len());
        // SAFETY: at most as far as the end of the fragment's own bytes.
        let start = unsafe { self.start.add(skipped) };
        let len = self.slot.len() - skipped as u16;
        Self { start, slot: SlotWord::new(self.buffer(), len, self.flags()) }
    }

    /// The first 14 bytes as two words, bytes 0 to 7 and 6 to 13, each read once; `None` if the fragment is shorter.
    #[inline]
    #[must_use]
    pub fn ethernet_header(&self) -> Option<(u64, u64)> {
        (self.len() >= ETHERNET_HEADER_BYTES).then(|| self.header_words())
    }

    /// Works as [`Self::ethernet_header`], if the fragment has exactly these flags; else returns `None`.
    #[inline]
    #[must_use]
    pub fn ethernet_header_with(&self, flags: u16) -> Option<(u64, u64)> {
        self.slot.has_flags_and(flags, ETHERNET_HEADER_BYTES as u16).then(|| self.header_words())
    }

    /// Reads both words of the header. The caller has checked that there are 14 bytes.
    #[inline]
    fn header_words(&self) -> (u64, u64) {
        let start = self.start.as_ptr().cast::<u64>();
        // SAFETY: 14 bytes are mapped; copied out once, since other processes may write them, and unaligned by
        // construction.
        let first = unsafe { read_word(start) };
        // SAFETY: offset 6 of 14 mapped bytes leaves 8.
        let second_start = unsafe { start.byte_add(6) };
        // SAFETY: as above.
        let second = unsafe { read_word(second_start) };
        (first, second)
    }
}

/// Reads 8 bytes of any alignment, once.
///
/// # Safety
/// 8 bytes must be mapped at `from`.
#[inline]
unsafe fn read_word(from: *const u64) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the caller's contract; an array on the stack overlaps nothing.
    unsafe { core::ptr::copy_nonoverlapping(from.cast::<u8>(), bytes.as_mut_ptr(), 8) };
    u64::from_ne_bytes(bytes)
}

/// Copies the bytes of fragments, one after the other, into buffers of other sizes.
#[derive(Debug)]
pub struct Gather<'frame, Fragments> {
    fragments: Fragments,
    current: Option<&'frame Fragment>,
    /// Number of bytes of the current fragment that were copied.
    offset: usize,
}

impl<'frame, Fragments: Iterator<Item = &'frame Fragment>> Gather<'frame, Fragments> {
    /// Starts at the first byte of the first fragment.
    #[inline]
    pub fn new(mut fragments: Fragments) -> Self {
        let current = fragments.next();
        Self { fragments, current, offset: 0 }
    }

    /// Fills `room`, or as much of it as there are bytes left.
    #[inline]
    pub fn fill(&mut self, mut room: SharedBytes<'_>) {
        while let Some(fragment) = self.current
            && !room.is_empty()
        {
            let copied = room.copy_from(&fragment.bytes().skip(self.offset));
            room = room.skip(copied);
            self.offset += copied;
            if self.offset == fragment.len() {
                (self.current, self.offset) = (self.fragments.next(), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    #[test]
    fn fragments_are_gathered_across_the_borders_of_buffers() {
        let parts: [&[u8]; 4] = [b"ab", b"", b"cdefg", b"h"];
        // SAFETY: the bytes outlive the test, and nothing writes to them.
        let fragments = parts.map(|part| unsafe { Fragment::from_private(part, 0) });
        let mut gather = Gather::new(fragments.iter());
        let mut buffers = [[b'.'; 3]; 4];
        for buffer in &mut buffers {
            // SAFETY: the buffer is the test's own.
            gather.fill(unsafe { SharedBytes::from_trusted_parts(NonNull::from(buffer).cast(), 3) });
        }
        assert_eq!(buffers.concat(), b"abcdefgh....");
    }
}
