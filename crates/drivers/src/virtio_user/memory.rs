//! The memory of a card: its rings and buffers in one sealed memfd, which the back end maps, too.
//!
//! Each connection has a new memory. So a back end that has lost its connection but still runs cannot reach memory in
//! use.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringroad_ring::foreign_memory::ForeignMemory;
use ringroad_virtqueue::layout::{
    AVAIL_NO_INTERRUPT, DESCRIPTOR_BYTES, NET_HEADER_BYTES, avail_ring_bytes, used_ring_bytes,
};
use ringroad_virtqueue::words::Words;
use rustix::fs::{MemfdFlags, SealFlags};

const LINE_BYTES: usize = 64;
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Start of the memory in the address space of the back end. Like that of a guest, it does not begin at 0.
pub(super) const GUEST_BASE: u64 = 1 << 32;
/// Bytes of a buffer behind its header.
const DATA_BYTES: usize = 34 * LINE_BYTES;
/// Distance of buffers, bytes. The header is at the end of a separate cache line, so that the frame begins with a line,
/// and an unchanged header does not move between caches. The distance is an odd number of lines, so that the first
/// lines of the buffers map to different cache sets.
const STRIDE_BYTES: usize = LINE_BYTES + DATA_BYTES;
/// Offset of a buffer in its part of the memory, bytes.
const HEADER_OFFSET: usize = LINE_BYTES - NET_HEADER_BYTES;
/// Size of a buffer, header included, bytes.
pub(super) const BUFFER_BYTES: usize = NET_HEADER_BYTES + DATA_BYTES;

/// Offsets of the parts of one ring, bytes from the start of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RingLayout {
    descriptors: usize,
    avail: usize,
    used: usize,
    buffers: usize,
}

impl RingLayout {
    /// Layout of a ring of `entries` entries from `from` on, and its end.
    fn after(from: usize, entries: u16) -> (Self, usize) {
        let descriptors = from.next_multiple_of(2 * LINE_BYTES);
        let avail = (descriptors + DESCRIPTOR_BYTES * usize::from(entries)).next_multiple_of(2 * LINE_BYTES);
        // The entries of the used ring begin with a cache line. Flags and index, 4 bytes, are at the end of the line
        // before.
        let used = (avail + avail_ring_bytes(entries)).next_multiple_of(2 * LINE_BYTES) + LINE_BYTES - 4;
        let buffers = (used + used_ring_bytes(entries)).next_multiple_of(2 * LINE_BYTES);
        (Self { descriptors, avail, used, buffers }, buffers + STRIDE_BYTES * usize::from(entries))
    }
}

/// The memory of a card.
#[derive(Debug)]
pub(super) struct CardMemory {
    map: ForeignMemory,
    pub(super) file: OwnedFd,
    rings: Vec<RingLayout>,
    entries: u16,
}

/// Addresses of a ring that are sent to the back end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingAddresses {
    pub(super) descriptors: u64,
    pub(super) avail: u64,
    pub(super) used: u64,
}

impl CardMemory {
    /// Memory for `rings` rings of `entries` entries, a power of two, with a buffer for each entry; all zero.
    ///
    /// # Errors
    /// The system does not have enough memory.
    pub(super) fn new(rings: usize, entries: u16) -> std::io::Result<Arc<Self>> {
        let mut layouts = Vec::with_capacity(rings);
        let mut end = 0;
        for _ in 0..rings {
            let (layout, next) = RingLayout::after(end, entries);
            layouts.push(layout);
            end = next;
        }
        let bytes = end.next_multiple_of(HUGE_PAGE_BYTES) as u64;
        // Huge pages are used if some are reserved.
        let file = memory_file(bytes, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)
            .or_else(|_| memory_file(bytes, MemfdFlags::empty()))?;
        let map = ForeignMemory::map(file.as_fd(), 0, bytes).map_err(std::io::Error::other)?;
        Ok(Arc::new(Self { map, file, rings: layouts, entries }))
    }

    /// Size of the memory, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.map.bytes() as u64
    }

    /// Addresses of ring `ring`; `None` if there is no such ring.
    pub(super) fn addresses(&self, ring: usize) -> Option<RingAddresses> {
        let layout = self.rings.get(ring)?;
        let address = |offset: usize| GUEST_BASE + offset as u64;
        Some(RingAddresses {
            descriptors: address(layout.descriptors),
            avail: address(layout.avail),
            used: address(layout.used),
        })
    }

    /// Ring `ring`; `None` if there is no such ring.
    pub(super) fn ring(self: &Arc<Self>, ring: usize) -> Option<RingMemory> {
        let layout = *self.rings.get(ring)?;
        let at = |offset: usize| {
            // SAFETY: every offset of a layout lies within the mapping, which was made as large as all layouts
            // together.
            unsafe { self.map.start().add(offset) }
        };
        // SAFETY: the parts lie in the mapping, too, which the ring keeps. The layout aligns them, the used ring to 4.
        // The back end accesses them from its own process.
        let words = |offset: usize, bytes: usize| unsafe { Words::new(at(offset), bytes) };
        Some(RingMemory {
            descriptors: words(layout.descriptors, DESCRIPTOR_BYTES * usize::from(self.entries)),
            avail: words(layout.avail, avail_ring_bytes(self.entries)),
            used: words(layout.used, used_ring_bytes(self.entries)),
            buffers: at(layout.buffers),
            first_address: GUEST_BASE + (layout.buffers + HEADER_OFFSET) as u64,
            mask: self.entries - 1,
            _memory: Arc::clone(self),
        })
    }
}

/// A sealed memfd of `bytes` bytes, which are allocated.
fn memory_file(bytes: u64, pages: MemfdFlags) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | pages;
    let file = rustix::fs::memfd_create("ringroad-virtio-user", flags)?;
    rustix::fs::ftruncate(&file, bytes)?;
    if !pages.is_empty() {
        // Pages are allocated now, because access to a missing huge page would cause SIGBUS.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
    }
    // The back end has the descriptor, too, and must not be able to truncate the memory.
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// A split virtqueue (virtio 1.2, section 2.7) from the driver's side. The back end may write any byte at any time: the
/// caller must check all values read from the ring, and no check may rely on values written to it before.
#[derive(Debug)]
pub(super) struct RingMemory {
    /// Descriptor table, two words an entry: the address, then length, flags and next.
    descriptors: Words,
    avail: Words,
    /// Used ring: flags and index, then entries of two words.
    used: Words,
    buffers: NonNull<u8>,
    /// Address of the first buffer for the back end.
    first_address: u64,
    /// Number of entries, a power of two, less one.
    mask: u16,
    /// The memory, kept mapped.
    _memory: Arc<CardMemory>,
}

// SAFETY: the pointers point into a mapping that the value keeps, and their memory is accessed by atomics or raw
// copies, on any thread.
unsafe impl Send for RingMemory {}

impl RingMemory {
    #[inline]
    pub(super) fn entries(&self) -> u16 {
        self.mask + 1
    }

    /// Index of the entry with a running number.
    #[inline]
    pub(super) fn slot_of(&self, number: u16) -> u16 {
        number & self.mask
    }

    /// Second word of a descriptor.
    #[inline]
    pub(super) fn descriptor_word(len: u32, flags: u16, next: u16) -> u64 {
        u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48
    }

    /// Points descriptor `index` to buffer `index`.
    pub(super) fn set_address(&self, index: u16) {
        let index = self.slot_of(index);
        let address = self.first_address + u64::from(index) * STRIDE_BYTES as u64;
        self.descriptors.word64(DESCRIPTOR_BYTES * usize::from(index)).store(address, Ordering::Relaxed);
    }

    /// Writes the second word of descriptor `index`.
    #[inline]
    pub(super) fn set_descriptor(&self, index: u16, word: u64) {
        let offset = DESCRIPTOR_BYTES * usize::from(self.slot_of(index)) + 8;
        self.descriptors.word64(offset).store(word, Ordering::Relaxed);
    }

    /// Writes descriptor `head` into the available ring.
    #[inline]
    pub(super) fn set_available(&self, number: u16, head: u16) {
        self.avail.word16(4 + 2 * usize::from(self.slot_of(number))).store(head, Ordering::Relaxed);
    }

    /// Publishes all entries up to `number`.
    #[inline]
    pub(super) fn publish(&self, number: u16) {
        self.avail.word16(2).store(number, Ordering::Release);
    }

    /// Suppresses the back end's wake-ups, or allows them; for rings without event indexes.
    pub(super) fn set_quiet(&self, quiet: bool) {
        let flags = if quiet { AVAIL_NO_INTERRUPT } else { 0 };
        self.avail.word16(0).store(flags, Ordering::Relaxed);
    }

    /// Sets the used entry at which the back end wakes this side; for rings with event indexes.
    pub(super) fn set_used_event(&self, number: u16) {
        self.avail.word16(4 + 2 * usize::from(self.entries())).store(number, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn used_flags(&self) -> u16 {
        self.used.word16(0).load(Ordering::Acquire)
    }

    /// The back end's used index. After this read the back end's earlier writes can be read, too.
    #[inline]
    pub(super) fn used_index(&self) -> u16 {
        self.used.word16(2).load(Ordering::Acquire)
    }

    /// Available entry at which the back end wants to be woken.
    #[inline]
    pub(super) fn avail_event(&self) -> u16 {
        self.used.word16(4 + 8 * usize::from(self.entries())).load(Ordering::Acquire)
    }

    /// Used entry `number`: index of the descriptor, and number of bytes written.
    #[inline]
    pub(super) fn used_entry(&self, number: u16) -> (u32, u32) {
        let offset = 4 + 8 * usize::from(self.slot_of(number));
        let word = |offset| self.used.word32(offset).load(Ordering::Relaxed);
        (word(offset), word(offset + 4))
    }

    /// Buffer `index`: [`BUFFER_BYTES`] bytes, the header first.
    #[inline]
    pub(super) fn buffer(&self, index: u16) -> NonNull<u8> {
        let offset = usize::from(self.slot_of(index)) * STRIDE_BYTES + HEADER_OFFSET;
        // SAFETY: there is a buffer for each entry, and the index was masked.
        unsafe { self.buffers.add(offset) }
    }

    /// Start of the frame in buffer `index`.
    #[inline]
    pub(super) fn frame(&self, index: u16) -> NonNull<u8> {
        // SAFETY: a buffer is longer than the header.
        unsafe { self.buffer(index).add(NET_HEADER_BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_lie_apart_aligned_and_within_the_memory() {
        for entries in [64, 1024, 32768] {
            let memory = CardMemory::new(3, entries).unwrap();
            let mut end = 0;
            for layout in &memory.rings {
                assert_eq!((layout.descriptors % 16, layout.avail % 2, layout.used % 4), (0, 0, 0));
                assert_eq!((layout.buffers + HEADER_OFFSET + NET_HEADER_BYTES) % LINE_BYTES, 0);
                assert!(layout.descriptors >= end);
                assert!(layout.avail >= layout.descriptors + 16 * usize::from(entries));
                assert!(layout.used >= layout.avail + avail_ring_bytes(entries));
                assert!(layout.buffers >= layout.used + used_ring_bytes(entries));
                end = layout.buffers + STRIDE_BYTES * usize::from(entries);
            }
            assert!(end as u64 <= memory.bytes());
            assert!(memory.ring(3).is_none() && memory.addresses(3).is_none());
        }
    }

    #[test]
    fn the_memory_cannot_be_taken_away() {
        let memory = CardMemory::new(1, 64).unwrap();
        assert!(rustix::fs::ftruncate(&memory.file, 0).is_err());
    }
}
