//! Buffers in flight, recorded for a back end that crashes, in memory that the front end keeps (vhost-user, "Inflight
//! I/O tracking").
//!
//! This device gives buffers back in the order in which it took them. So the buffers in flight are those in the ring
//! between the last used entry and the last available entry, and a successor begins behind the last used entry. No
//! descriptor is marked; only that entry is noted. Another program's back end finds no mark, and does the same.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringroad_ring::foreign_memory::{ForeignMemory, ForeignMemoryError};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::words::Words;

/// Alignment of each ring's part, bytes.
const ALIGNMENT: u64 = 64;
const VERSION: u16 = 1;
// Offsets of the fields of a part. Parts of split and packed rings begin alike.
const VERSION_AT: usize = 8;
const ENTRIES_AT: usize = 10;
const SPLIT_USED_AT: usize = 14;
const PACKED_USED_AT: [usize; 2] = [16, 18];
const PACKED_LAPS_AT: usize = 20;
const SPLIT_HEADER_BYTES: u64 = 16;
const SPLIT_ENTRY_BYTES: u64 = 16;
const PACKED_HEADER_BYTES: u64 = 32;
const PACKED_ENTRY_BYTES: u64 = 32;

/// Division of the memory into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InflightLayout {
    /// Number of rings.
    pub rings: u16,
    /// Number of entries of each ring.
    pub entries: u16,
    /// Whether the rings are packed.
    pub is_packed: bool,
}

impl InflightLayout {
    /// Bytes of one ring's part.
    #[must_use]
    pub fn part_bytes(&self) -> u64 {
        let (header, entry) = if self.is_packed {
            (PACKED_HEADER_BYTES, PACKED_ENTRY_BYTES)
        } else {
            (SPLIT_HEADER_BYTES, SPLIT_ENTRY_BYTES)
        };
        (header + entry * u64::from(self.entries)).next_multiple_of(ALIGNMENT)
    }

    /// Bytes of the parts of all rings.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.part_bytes() * u64::from(self.rings)
    }
}

/// The mapped memory of all parts.
#[derive(Debug)]
pub struct Inflight {
    layout: InflightLayout,
    memory: ForeignMemory,
}

impl Inflight {
    /// Creates the memory, and the file by which the front end keeps it.
    ///
    /// # Errors
    /// [`ForeignMemoryError`].
    pub fn create(layout: InflightLayout) -> Result<(Self, OwnedFd), ForeignMemoryError> {
        let failed =
            |source: rustix::io::Errno| ForeignMemoryError::System { step: "making", source: source.into() };
        let file = memfd_create("ringroad-inflight", MemfdFlags::CLOEXEC).map_err(failed)?;
        ftruncate(&file, layout.bytes()).map_err(failed)?;
        Ok((Self::map(layout, file.as_fd(), 0)?, file))
    }

    /// Maps memory that the front end has kept.
    ///
    /// # Errors
    /// [`ForeignMemoryError`].
    pub fn map(
        layout: InflightLayout,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<Self, ForeignMemoryError> {
        Ok(Self { layout, memory: ForeignMemory::map(file, offset, layout.bytes())? })
    }
}

/// The part of one ring.
#[derive(Debug)]
pub(crate) struct InflightPart {
    words: Words,
    /// Keeps the memory mapped.
    _memory: Arc<Inflight>,
}

// SAFETY: the words lie in memory that the value keeps mapped, and are accessed atomically.
unsafe impl Send for InflightPart {}

impl InflightPart {
    /// The part of ring `index` with `entries` entries; `None` if the memory has no part for such a ring.
    pub(crate) fn of(inflight: &Arc<Inflight>, index: u16, entries: u16) -> Option<Self> {
        let layout = inflight.layout;
        if index >= layout.rings || entries > layout.entries {
            return None;
        }
        let bytes = usize::try_from(layout.part_bytes()).ok()?;
        let part = inflight.memory.part(bytes * usize::from(index), bytes)?;
        let start = std::ptr::NonNull::new(part.as_ptr())
            .filter(|start| (start.as_ptr() as usize).is_multiple_of(8))?;
        // SAFETY: the part is mapped as long as the memory, which the value keeps.
        let words = unsafe { Words::new(start, bytes) };
        let this = Self { words, _memory: Arc::clone(inflight) };
        this.words.word16(ENTRIES_AT).store(entries, Ordering::Relaxed);
        Some(this)
    }

    /// Whether a predecessor has used the part.
    pub(crate) fn is_used(&self) -> bool {
        self.words.word16(VERSION_AT).load(Ordering::Relaxed) == VERSION
    }

    /// Notes that the entries up to `index` are used.
    pub(crate) fn note_split(&self, index: u16) {
        self.words.word16(SPLIT_USED_AT).store(index, Ordering::Relaxed);
        self.words.word16(VERSION_AT).store(VERSION, Ordering::Release);
    }

    /// Notes that the entries up to `index`, of an odd or even lap, are used.
    pub(crate) fn note_packed(&self, index: u16, wrap_counter: bool) {
        for at in PACKED_USED_AT {
            self.words.word16(at).store(index, Ordering::Relaxed);
        }
        // The lap is stored twice: for the used index and for the old used index, which are equal here.
        self.words.word16(PACKED_LAPS_AT).store(u16::from(wrap_counter) * 0x0101, Ordering::Relaxed);
        self.words.word16(VERSION_AT).store(VERSION, Ordering::Release);
    }

    /// Last noted index and lap of a packed ring.
    pub(crate) fn packed(&self) -> (u16, bool) {
        let index = self.words.word16(PACKED_USED_AT[1]).load(Ordering::Relaxed);
        (index, self.words.word16(PACKED_LAPS_AT).load(Ordering::Relaxed) & 0xff != 0)
    }
}
