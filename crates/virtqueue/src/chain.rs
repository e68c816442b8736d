//! Buffers that descriptors describe.

use std::ptr::NonNull;
use std::sync::Arc;

use ringroad_ring::shared::{prefetch_read, prefetch_write};

use crate::fault::RingFault;
use crate::guest_memory::{GuestMemory, LastRegion};
use crate::layout::{DESC_INDIRECT, DESC_NEXT, DESC_WRITE};

/// Most pieces of a buffer. A frame of 64 KiB in pages of 4 KiB has 18.
pub const MAX_SEGMENTS: usize = 66;
/// Longest buffer that the driver may give to be read: a frame of 64 KiB behind Ethernet and virtio headers, and some.
pub const MAX_CHAIN_BYTES: u32 = 80 << 10;

/// A piece of a buffer that lies together. It stays mapped while the memory that it was found in exists.
#[derive(Debug, Clone, Copy)]
pub struct SgEntry {
    /// First byte.
    pub start: NonNull<u8>,
    /// Length, bytes.
    pub bytes: u32,
    /// The guest's address of the first byte.
    pub guest: u64,
}

impl SgEntry {
    /// No byte.
    pub const EMPTY: Self = Self { start: NonNull::dangling(), bytes: 0, guest: 0 };
}

// SAFETY: a segment is a place in memory that its holder keeps mapped; its use is the responsibility of the code that
// dereferences it.
#[allow(unsafe_code)]
unsafe impl Send for SgEntry {}

/// The device's use of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferAccess {
    /// Reads: the driver sends.
    Read,
    /// Writes: the driver receives.
    Write,
}

/// A descriptor, read once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) flags: u16,
    /// The next one's index; in a packed ring the buffer's id.
    pub(crate) last: u16,
}

impl Descriptor {
    /// Of the two words of a split ring or of a table in one.
    #[inline]
    pub(crate) fn from_split(first: u64, second: u64) -> Self {
        Self {
            address: first,
            bytes: second as u32,
            flags: (second >> 32) as u16,
            last: (second >> 48) as u16,
        }
    }

    /// Of the two words of a packed ring or of a table in one.
    #[inline]
    pub(crate) fn from_packed(first: u64, second: u64) -> Self {
        Self {
            address: first,
            bytes: second as u32,
            last: (second >> 32) as u16,
            flags: (second >> 48) as u16,
        }
    }

    /// The piece of memory that it describes, where it is all of a buffer and lies in one region; its first bytes are
    /// prefetched. `None` if it is more, less or wrong, which [`Pieces`] distinguishes.
    #[inline]
    pub(crate) fn sole_piece(
        self,
        memory: &Arc<GuestMemory>,
        last: &mut LastRegion,
        access: BufferAccess,
    ) -> Option<SgEntry> {
        let (direction, most) = match access {
            BufferAccess::Read => (0, MAX_CHAIN_BYTES),
            BufferAccess::Write => (DESC_WRITE, u32::MAX),
        };
        if self.flags & (DESC_NEXT | DESC_WRITE | DESC_INDIRECT) != direction
            || self.bytes == 0
            || self.bytes > most
        {
            return None;
        }
        let start = last.find(memory, self.address, self.bytes)?;
        match access {
            BufferAccess::Read => prefetch_read(start.as_ptr()),
            BufferAccess::Write => prefetch_write(start.as_ptr()),
        }
        Some(SgEntry { start, bytes: self.bytes, guest: self.address })
    }
}

/// The pieces of one chain, appended to those of the chains before it. Counts for all its descriptors, in the ring and
/// in a table, together.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    memory: &'a GuestMemory,
    access: BufferAccess,
    segments: &'a mut Vec<SgEntry>,
    /// Most segments that there may be with the chain's.
    limit: usize,
    /// Bytes of the chain's descriptors so far.
    bytes: u32,
}

impl<'a> Pieces<'a> {
    /// Of a chain that begins, in `memory`.
    #[inline]
    pub(crate) fn new(memory: &'a GuestMemory, access: BufferAccess, segments: &'a mut Vec<SgEntry>) -> Self {
        let limit = segments.len() + MAX_SEGMENTS;
        Self { memory, access, segments, limit, bytes: 0 }
    }

    /// Appends the pieces of a descriptor's buffer.
    ///
    /// # Errors
    /// [`RingFault`]: the chain is too long with it, the buffer for the other direction, or not in the memory.
    #[inline]
    pub(crate) fn append(&mut self, descriptor: Descriptor) -> Result<(), RingFault> {
        self.bytes = self.bytes.saturating_add(descriptor.bytes);
        if self.access == BufferAccess::Read && self.bytes > MAX_CHAIN_BYTES {
            return Err(RingFault::TooLong);
        }
        if (descriptor.flags & DESC_WRITE != 0) != (self.access == BufferAccess::Write) {
            return Err(RingFault::Direction);
        }
        let (mut guest, mut bytes) = (descriptor.address, descriptor.bytes);
        while bytes != 0 {
            let Some((start, together)) = self.memory.at(guest, bytes) else {
                return Err(RingFault::NoMemory { address: descriptor.address, bytes: descriptor.bytes });
            };
            if self.segments.len() >= self.limit {
                return Err(RingFault::TooManyPieces);
            }
            self.segments.push(SgEntry { start, bytes: together, guest });
            guest = guest.wrapping_add(u64::from(together));
            bytes -= together;
        }
        Ok(())
    }
}
