//! The device's side of a split virtqueue (virtio 1.2, section 2.7).
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::chain::{BufferAccess, Descriptor, Pieces, SgEntry};
use crate::device_ring::{RingPosition, VirtqueueConfig};
use crate::fault::{RingFault, RingSetupError};
use crate::guest_memory::{GuestMemory, LastRegion};
use crate::inflight::{Inflight, InflightPart};
use crate::layout::{
    AVAIL_NO_INTERRUPT, DESC_INDIRECT, DESC_NEXT, DESCRIPTOR_BYTES, MAX_RING_ENTRIES, USED_NO_NOTIFY,
    avail_ring_bytes, passes_event, used_ring_bytes,
};
use crate::table::IndirectTable;
use crate::words::Words;

const RING_INDEX: usize = 2;
const RING_ENTRIES: usize = 4;
const USED_ENTRY_BYTES: usize = 8;

/// The device's side of a split virtqueue. Buffers are given back in the order in which they were taken, so entry `n`
/// of the available ring comes back in entry `n` of the used ring. That entry is written when the buffer is taken: the
/// driver does not read it before the used index shows it.
#[derive(Debug)]
pub struct SplitDevice {
    pub(crate) memory: Arc<GuestMemory>,
    parts: Parts,
    /// Guest's address of the used ring's first byte.
    used_guest: u64,
    has_event_index: bool,
    has_tables: bool,
    /// Next available entry to take.
    next_available: u16,
    /// The driver's index at its last read.
    known_available: u16,
    /// Oldest entry that was taken and not given back.
    next_used: u16,
    /// The published used index.
    shown_used: u16,
    inflight: Option<InflightPart>,
    last_region: LastRegion,
}

// SAFETY: the words lie in `memory`, which the value keeps mapped, and are accessed atomically.
unsafe impl Send for SplitDevice {}

/// Words of the three parts of the ring.
#[derive(Debug, Clone, Copy)]
struct Parts {
    descriptors: Words,
    available: Words,
    used: Words,
    entries: u16,
}

impl Parts {
    #[inline]
    fn mask(&self, index: u16) -> usize {
        usize::from(index) & (usize::from(self.entries) - 1)
    }

    /// The head of the chain in available entry `index`. Also writes the used entry, with no byte written, if the
    /// device reads the buffer. For a buffer that the device writes, [`Self::note_written`] does this.
    #[inline]
    fn take_head(&self, index: u16, access: BufferAccess) -> u16 {
        let head = self.available.word16(RING_ENTRIES + 2 * self.mask(index)).load(Ordering::Relaxed);
        let used = RING_ENTRIES + USED_ENTRY_BYTES * self.mask(index);
        self.used.word32(used).store(head.into(), Ordering::Relaxed);
        if access == BufferAccess::Read {
            self.used.word32(used + 4).store(0, Ordering::Relaxed);
        }
        head
    }

    /// Descriptor `index`. The caller has checked the index.
    #[inline]
    fn descriptor(&self, index: u16) -> Descriptor {
        let offset = DESCRIPTOR_BYTES * usize::from(index);
        let second = self.descriptors.word64(offset + 8).load(Ordering::Relaxed);
        Descriptor::from_split(self.descriptors.word64(offset).load(Ordering::Relaxed), second)
    }

    /// Notes that `written` bytes were written into the buffer of used entry `index`.
    #[inline]
    fn note_written(&self, index: u16, written: u32) {
        let used = RING_ENTRIES + USED_ENTRY_BYTES * self.mask(index);
        self.used.word32(used + 4).store(written, Ordering::Relaxed);
    }
}

/// Finds the part of a ring at the front end's address `address`, and its address in the guest.
pub(crate) fn find_part(
    memory: &GuestMemory,
    part: &'static str,
    address: u64,
    bytes: usize,
    alignment: usize,
) -> Result<(Words, u64), RingSetupError> {
    let wrong = RingSetupError::PartAddress { part, address };
    let (start, guest) = memory.at_user(address, bytes).ok_or(wrong)?;
    // Words are accessed as a whole, so the alignment of the mapping counts. Every mapping begins on a page.
    if !(start.as_ptr() as usize).is_multiple_of(alignment) {
        return Err(wrong);
    }
    // SAFETY: the bytes are mapped, and the holder of the words keeps the memory mapped.
    Ok((unsafe { Words::new(start, bytes) }, guest))
}

impl SplitDevice {
    pub(crate) fn new(memory: Arc<GuestMemory>, config: &VirtqueueConfig) -> Result<Self, RingSetupError> {
        let entries = config.entries;
        if !entries.is_power_of_two() || entries > MAX_RING_ENTRIES {
            return Err(RingSetupError::Entries(entries.into()));
        }
        let table_bytes = DESCRIPTOR_BYTES * usize::from(entries);
        let (descriptors, _) = find_part(&memory, "descriptor table", config.descriptors, table_bytes, 8)?;
        let (available, _) =
            find_part(&memory, "available ring", config.driver, avail_ring_bytes(entries), 2)?;
        let (used, used_guest) = find_part(&memory, "used ring", config.device, used_ring_bytes(entries), 4)?;
        // All taken buffers are given back in order, so the next entry to take is the one after the last used entry. A
        // front end that reconnects to a new back end may report another value; DPDK's front end reports 0.
        let next_used = used.word16(RING_INDEX).load(Ordering::Relaxed);
        let next_available = next_used;
        Ok(Self {
            memory,
            parts: Parts { descriptors, available, used, entries },
            used_guest,
            has_event_index: config.has_event_index,
            has_tables: config.has_tables,
            next_available,
            known_available: next_available,
            next_used,
            shown_used: next_used,
            inflight: None,
            last_region: LastRegion::NONE,
        })
    }

    pub(crate) fn track(&mut self, inflight: &Arc<Inflight>, index: u16) -> Result<(), RingSetupError> {
        let part =
            InflightPart::of(inflight, index, self.parts.entries).ok_or(RingSetupError::Inflight(index))?;
        part.note_split(self.next_used);
        self.inflight = Some(part);
        Ok(())
    }

    pub(crate) fn position(&self) -> RingPosition {
        RingPosition(self.next_available.into())
    }

    #[inline]
    pub(crate) fn has_available(&mut self) -> Result<bool, RingFault> {
        Ok(self.known_available != self.next_available || self.refresh()? != 0)
    }

    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.known_available == self.next_available
    }

    pub(crate) fn available(&mut self, most: u16) -> Result<u16, RingFault> {
        let known = self.known_available.wrapping_sub(self.next_available);
        if known >= most {
            return Ok(most);
        }
        Ok(self.refresh()?.min(most))
    }

    #[inline]
    fn refresh(&mut self) -> Result<u16, RingFault> {
        let index = self.parts.available.word16(RING_INDEX).load(Ordering::Acquire);
        let available = index.wrapping_sub(self.next_available);
        if available > self.parts.entries {
            return Err(RingFault::AvailableIndex);
        }
        self.known_available = index;
        Ok(available)
    }

    #[inline(always)]
    pub(crate) fn take_singles(&mut self, access: BufferAccess, segments: &mut [SgEntry]) -> usize {
        let known = self.known_available.wrapping_sub(self.next_available);
        // An invalid index is found again, and reported, when the remaining buffers are taken.
        let available = if usize::from(known) < segments.len() { self.refresh().unwrap_or(0) } else { known };
        // A copy of the parts. Without it the compiler must assume that the writes below change the fields themselves.
        let parts = self.parts;
        let mut next = self.next_available;
        for (segment, _) in segments.iter_mut().zip(0..available) {
            let head = parts.take_head(next, access);
            if head >= parts.entries {
                break;
            }
            let piece = parts.descriptor(head).sole_piece(&self.memory, &mut self.last_region, access);
            let Some(piece) = piece else { break };
            *segment = piece;
            next = next.wrapping_add(1);
        }
        let taken = next.wrapping_sub(self.next_available);
        self.next_available = next;
        usize::from(taken)
    }

    pub(crate) fn take(
        &mut self,
        access: BufferAccess,
        segments: &mut Vec<SgEntry>,
    ) -> Result<bool, RingFault> {
        if !self.has_available()? {
            return Ok(false);
        }
        let mut index = self.parts.take_head(self.next_available, access);
        let mut pieces = Pieces::new(&self.memory, access, segments);
        for _ in 0..self.parts.entries {
            if index >= self.parts.entries {
                return Err(RingFault::NoSuchDescriptor(index));
            }
            let descriptor = self.parts.descriptor(index);
            if descriptor.flags & DESC_INDIRECT != 0 {
                self.take_table(descriptor, pieces)?;
            } else {
                pieces.append(descriptor)?;
                if descriptor.flags & DESC_NEXT != 0 {
                    index = descriptor.last;
                    continue;
                }
            }
            self.next_available = self.next_available.wrapping_add(1);
            return Ok(true);
        }
        Err(RingFault::Endless)
    }

    /// Appends the segments in a table, which ends the chain.
    #[cold]
    fn take_table(&self, descriptor: Descriptor, mut pieces: Pieces<'_>) -> Result<(), RingFault> {
        let table = IndirectTable::at(&self.memory, descriptor, self.has_tables)?;
        let (mut first, mut second) = table.words(0)?;
        for _ in 0..table.count {
            let descriptor = Descriptor::from_split(first, second);
            if descriptor.flags & DESC_INDIRECT != 0 {
                return Err(RingFault::Table(descriptor.bytes));
            }
            pieces.append(descriptor)?;
            if descriptor.flags & DESC_NEXT == 0 {
                return Ok(());
            }
            (first, second) = table.words(descriptor.last)?;
        }
        Err(RingFault::Endless)
    }

    pub(crate) fn put_back(&mut self, buffers: u16) {
        self.next_available = self.next_available.wrapping_sub(buffers);
    }

    #[inline]
    pub(crate) fn give_back_all(&mut self, written: impl Iterator<Item = u32>) {
        let parts = self.parts;
        let mut next = self.next_used;
        written.for_each(|written| {
            parts.note_written(next, written);
            next = next.wrapping_add(1);
        });
        self.next_used = next;
    }

    #[inline]
    pub(crate) fn give_back_read(&mut self, buffers: u16) {
        self.next_used = self.next_used.wrapping_add(buffers);
    }

    #[inline]
    pub(crate) fn is_unpublished(&self) -> bool {
        self.next_used != self.shown_used
    }

    #[inline]
    pub(crate) fn publish(&mut self, mut log: impl FnMut(u64, u32)) -> bool {
        let before = self.shown_used;
        self.parts.used.word16(RING_INDEX).store(self.next_used, Ordering::Release);
        log(self.used_guest, used_ring_bytes(self.parts.entries) as u32);
        self.shown_used = self.next_used;
        if let Some(inflight) = &self.inflight {
            inflight.note_split(self.next_used);
        }
        // The used index is stored before the driver's request for a wake-up is read. The driver does the reverse.
        fence(Ordering::SeqCst);
        if self.has_event_index {
            let event = self.parts.available.word16(RING_ENTRIES + 2 * usize::from(self.parts.entries));
            passes_event(event.load(Ordering::Relaxed), self.next_used, before)
        } else {
            self.parts.available.word16(0).load(Ordering::Relaxed) & AVAIL_NO_INTERRUPT == 0
        }
    }

    pub(crate) fn wake_me(&mut self, wanted: bool) {
        if !self.has_event_index {
            let flags = if wanted { 0 } else { USED_NO_NOTIFY };
            self.parts.used.word16(0).store(flags, Ordering::Relaxed);
        } else if wanted {
            // If no wake-up is wanted, the last requested event stays, and is passed at most once.
            let event =
                self.parts.used.word16(RING_ENTRIES + USED_ENTRY_BYTES * usize::from(self.parts.entries));
            event.store(self.next_available, Ordering::Relaxed);
        }
    }
}
