//! Buffers of descriptor chains, in segments.

use std::ptr::NonNull;
use std::sync::Arc;

use ringroad_ring::shared::{prefetch_read, prefetch_write};

use crate::fault::RingFault;
use crate::guest_memory::{GuestMemory, LastRegion};
use crate::layout::{DESC_INDIRECT, DESC_NEXT, DESC_WRITE};

/// Maximum number of segments of a buffer. A frame of 64 KiB in pages of 4 KiB has 18.
pub const MAX_SEGMENTS: usize = 66;
/// Maximum length of a buffer that the device reads: a frame of 64 KiB with Ethernet and virtio headers, and some
/// reserve.
pub const MAX_CHAIN_BYTES: u32 = 80 << 10;

/// A contiguous part of a buffer. The segment stays mapped as long as the memory in which it was found exists.
#[derive(Debug, Clone, Copy)]
pub struct SgEntry {
    /// Address of the first byte.
    pub start: NonNull<u8>,
    /// Length, bytes.
    pub bytes: u32,
    /// The guest's address of the first byte.
    pub guest: u64,
}

impl SgEntry {
    /// A segment without bytes.
    pub const EMPTY: Self = Self { start: NonNull::dangling(), bytes: 0, guest: 0 };
}

// SAFETY: a segment is an address in memory that its holder keeps mapped; its use is the responsibility of the code
// that dereferences it.
#[allow(unsafe_code)]
unsafe impl Send for SgEntry {}

/// Direction of the device's access to a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferAccess {
    /// The device reads: the driver sends.
    Read,
    /// The device writes: the driver receives.
    Write,
    /// The device reads the first segments, and writes its answer into the others. [`SgEntry::EMPTY`] stands between
    /// the two parts, if there is an answer.
    ReadThenWrite,
}

/// A descriptor, read from memory once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) flags: u16,
    /// Index of the next descriptor; in a packed ring the buffer's id.
    pub(crate) last: u16,
}

impl Descriptor {
    /// Descriptor from its two words in a split ring or in a table of such a ring.
    #[inline]
    pub(crate) fn from_split(first: u64, second: u64) -> Self {
        Self {
            address: first,
            bytes: second as u32,
            flags: (second >> 32) as u16,
            last: (second >> 48) as u16,
        }
    }

    /// Descriptor from its two words in a packed ring or in a table of such a ring.
    #[inline]
    pub(crate) fn from_packed(first: u64, second: u64) -> Self {
        Self {
            address: first,
            bytes: second as u32,
            last: (second >> 32) as u16,
            flags: (second >> 48) as u16,
        }
    }

    /// The segment that the descriptor describes, if it is the whole buffer and lies in one region. Prefetches its
    /// first bytes. `None` for all other buffers, valid or not; [`Pieces`] tells them apart.
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
            // A request has at least two pieces.
            BufferAccess::ReadThenWrite => return None,
        };
        if self.flags & (DESC_NEXT | DESC_WRITE | DESC_INDIRECT) != direction
            || self.bytes == 0
            || self.bytes > most
        {
            return None;
        }
        let start = last.find(memory, self.address, self.bytes)?;
        match access {
            BufferAccess::Read | BufferAccess::ReadThenWrite => prefetch_read(start.as_ptr()),
            BufferAccess::Write => prefetch_write(start.as_ptr()),
        }
        Some(SgEntry { start, bytes: self.bytes, guest: self.address })
    }
}

/// Collector of the segments of one chain, which are appended to those of earlier chains. Its limits count all
/// descriptors of the chain, in the ring and in a table.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    memory: &'a GuestMemory,
    access: BufferAccess,
    segments: &'a mut Vec<SgEntry>,
    /// Maximum number of segments, those of earlier chains included.
    limit: usize,
    /// Bytes of the chain's descriptors so far.
    bytes: u32,
}

impl<'a> Pieces<'a> {
    /// Collector for a new chain in `memory`.
    #[inline]
    pub(crate) fn new(memory: &'a GuestMemory, access: BufferAccess, segments: &'a mut Vec<SgEntry>) -> Self {
        let limit = segments.len() + MAX_SEGMENTS;
        Self { memory, access, segments, limit, bytes: 0 }
    }

    /// Appends the segments of a descriptor's buffer.
    ///
    /// # Errors
    /// [`RingFault`] if the chain gets too long, the buffer is only for reading but must be for writing, or the buffer
    /// is not in the memory.
    #[inline]
    pub(crate) fn append(&mut self, descriptor: Descriptor) -> Result<(), RingFault> {
        self.bytes = self.bytes.saturating_add(descriptor.bytes);
        if self.access != BufferAccess::Write && self.bytes > MAX_CHAIN_BYTES {
            return Err(RingFault::TooLong);
        }
        let is_writable = descriptor.flags & DESC_WRITE != 0;
        // A frame to be sent may lie in a buffer that is marked for writing: DPDK marks its headers so in the tables of
        // packed rings. Reading it harms nobody.
        if self.access != BufferAccess::Read && is_writable != (self.access == BufferAccess::Write) {
            self.begin_answer()?;
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

    /// Begins the part of the chain that the device writes. Only a request has both parts.
    #[cold]
    fn begin_answer(&mut self) -> Result<(), RingFault> {
        if self.access != BufferAccess::ReadThenWrite {
            return Err(RingFault::Direction);
        }
        self.access = BufferAccess::Write;
        self.segments.push(SgEntry::EMPTY);
        Ok(())
    }
}
