//! The device's side of a packed virtqueue (virtio 1.2, section 2.8).
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::chain::{BufferAccess, Descriptor, MAX_SEGMENTS, Pieces, SgEntry};
use crate::device_ring::{RingPosition, VirtqueueConfig};
use crate::fault::{RingFault, RingSetupError};
use crate::guest_memory::{GuestMemory, LastRegion};
use crate::inflight::{Inflight, InflightPart};
use crate::layout::{
    DESC_AVAIL, DESC_INDIRECT, DESC_NEXT, DESC_USED, DESC_WRITE, DESCRIPTOR_BYTES, EVENT_AT_DESCRIPTOR,
    EVENT_DISABLE, EVENT_ENABLE, MAX_RING_ENTRIES, passes_event,
};
use crate::split_device::find_part;
use crate::table::IndirectTable;
use crate::words::Words;

const LAP: u16 = 1 << 15;

/// A position in a packed ring: index and lap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RingCursor {
    index: u16,
    wrap_counter: bool,
}

impl RingCursor {
    fn from_bits(bits: u16) -> Self {
        Self { index: bits & !LAP, wrap_counter: bits & LAP != 0 }
    }

    fn to_bits(self) -> u16 {
        self.index | if self.wrap_counter { LAP } else { 0 }
    }

    #[inline]
    fn advance(&mut self, by: u16, entries: u16) {
        self.index += by;
        if self.index >= entries {
            self.index -= entries;
            self.wrap_counter = !self.wrap_counter;
        }
    }
}

/// A taken buffer.
#[derive(Debug, Clone, Copy)]
struct Chain {
    id: u16,
    /// Number of the ring's entries that the buffer occupies.
    entries: u16,
}

/// A returned buffer that is not yet published.
#[derive(Debug, Clone, Copy)]
struct Given {
    chain: Chain,
    written: u32,
}

/// The device's side of a packed virtqueue.
#[derive(Debug)]
pub struct PackedDevice {
    pub(crate) memory: Arc<GuestMemory>,
    ring: Words,
    ring_guest: u64,
    driver_event: Words,
    device_event: Words,
    entries: u16,
    has_event_index: bool,
    has_tables: bool,
    next_available: RingCursor,
    next_used: RingCursor,
    /// Buffers taken and not given back, oldest first.
    taken: VecDeque<Chain>,
    given: Vec<Given>,
    inflight: Option<InflightPart>,
    last_region: LastRegion,
}

// SAFETY: the words lie in `memory`, which the value keeps mapped, and are accessed atomically.
unsafe impl Send for PackedDevice {}

impl PackedDevice {
    pub(crate) fn new(
        memory: Arc<GuestMemory>,
        config: &VirtqueueConfig,
        position: RingPosition,
    ) -> Result<Self, RingSetupError> {
        let entries = config.entries;
        if entries == 0 || entries > MAX_RING_ENTRIES {
            return Err(RingSetupError::Entries(entries.into()));
        }
        let ring_bytes = DESCRIPTOR_BYTES * usize::from(entries);
        let (ring, ring_guest) = find_part(&memory, "descriptor ring", config.descriptors, ring_bytes, 8)?;
        let (driver_event, _) = find_part(&memory, "driver's event area", config.driver, 4, 4)?;
        let (device_event, _) = find_part(&memory, "device's event area", config.device, 4, 4)?;
        let next_available = RingCursor::from_bits(position.0 as u16);
        // Front ends that do not keep the upper half leave it zero. No buffer was in use then.
        let used = (position.0 >> 16) as u16;
        let next_used = if used == 0 { next_available } else { RingCursor::from_bits(used) };
        if next_available.index >= entries || next_used.index >= entries {
            return Err(RingSetupError::Entries(position.0));
        }
        Ok(Self {
            memory,
            ring,
            ring_guest,
            driver_event,
            device_event,
            entries,
            has_event_index: config.has_event_index,
            has_tables: config.has_tables,
            next_available,
            next_used,
            taken: VecDeque::with_capacity(entries.into()),
            given: Vec::with_capacity(entries.into()),
            inflight: None,
            last_region: LastRegion::NONE,
        })
    }

    pub(crate) fn track(&mut self, inflight: &Arc<Inflight>, index: u16) -> Result<(), RingSetupError> {
        let wrong = RingSetupError::Inflight(index);
        let part = InflightPart::of(inflight, index, self.entries).ok_or(wrong)?;
        if part.is_used() {
            let (index, wrap_counter) = part.packed();
            if index >= self.entries {
                return Err(wrong);
            }
            self.next_used = RingCursor { index, wrap_counter };
            self.next_available = self.next_used;
        }
        part.note_packed(self.next_used.index, self.next_used.wrap_counter);
        self.inflight = Some(part);
        Ok(())
    }

    pub(crate) fn position(&self) -> RingPosition {
        let used = u32::from(self.next_used.to_bits());
        RingPosition(u32::from(self.next_available.to_bits()) | used << 16)
    }

    /// The descriptor at `cursor` if the driver made it available in this lap.
    #[inline]
    fn available_at(&self, cursor: RingCursor) -> Option<Descriptor> {
        let offset = DESCRIPTOR_BYTES * usize::from(cursor.index);
        let second = self.ring.word64(offset + 8).load(Ordering::Acquire);
        let flags = (second >> 48) as u16;
        if (flags & DESC_AVAIL != 0) != cursor.wrap_counter || (flags & DESC_USED != 0) == cursor.wrap_counter
        {
            return None;
        }
        Some(Descriptor::from_packed(self.ring.word64(offset).load(Ordering::Relaxed), second))
    }

    #[inline]
    pub(crate) fn has_available(&mut self) -> Result<bool, RingFault> {
        Ok(self.available_at(self.next_available).is_some())
    }

    /// Number of available descriptors, up to `most`. It is also the number of buffers if each has one descriptor.
    pub(crate) fn available(&mut self, most: u16) -> u16 {
        let mut cursor = self.next_available;
        let mut count = 0;
        while count < most.min(self.entries) && self.available_at(cursor).is_some() {
            count += 1;
            cursor.advance(1, self.entries);
        }
        count
    }

    #[inline]
    pub(crate) fn take_singles(&mut self, access: BufferAccess, segments: &mut [SgEntry]) -> usize {
        let mut taken = 0;
        for segment in segments {
            let Some(descriptor) = self.available_at(self.next_available) else { break };
            let piece = descriptor.sole_piece(&self.memory, &mut self.last_region, access);
            let Some(piece) = piece else { break };
            *segment = piece;
            self.note_taken(Chain { id: descriptor.last, entries: 1 });
            taken += 1;
        }
        taken
    }

    #[inline]
    fn note_taken(&mut self, chain: Chain) {
        self.next_available.advance(chain.entries, self.entries);
        self.taken.push_back(chain);
    }

    pub(crate) fn take(
        &mut self,
        access: BufferAccess,
        segments: &mut Vec<SgEntry>,
    ) -> Result<bool, RingFault> {
        let Some(mut descriptor) = self.available_at(self.next_available) else { return Ok(false) };
        let mut cursor = self.next_available;
        let mut taken = 1;
        let mut pieces = Pieces::new(&self.memory, access, segments);
        if descriptor.flags & DESC_INDIRECT != 0 {
            self.take_table(descriptor, pieces)?;
        } else {
            loop {
                pieces.append(descriptor)?;
                if descriptor.flags & DESC_NEXT == 0 {
                    break;
                }
                if taken == self.entries {
                    return Err(RingFault::Endless);
                }
                cursor.advance(1, self.entries);
                // The driver makes the first descriptor of a chain available last, so the others are available already.
                // The check of their flags guards against drivers that do not.
                descriptor = self.available_at(cursor).ok_or(RingFault::NoSuchDescriptor(cursor.index))?;
                if descriptor.flags & DESC_INDIRECT != 0 {
                    return Err(RingFault::Table(descriptor.bytes));
                }
                taken += 1;
            }
        }
        self.note_taken(Chain { id: descriptor.last, entries: taken });
        Ok(true)
    }

    /// Appends the segments of a table's descriptors.
    #[cold]
    fn take_table(&self, descriptor: Descriptor, mut pieces: Pieces<'_>) -> Result<(), RingFault> {
        let table = IndirectTable::at(&self.memory, descriptor, self.has_tables)?;
        for index in 0..table.count {
            let (first, second) = table.words(index)?;
            let descriptor = Descriptor::from_packed(first, second);
            // The direction is the only flag that counts in a table, so each entry is a segment. The collector does not
            // count empty entries, so they are limited here.
            if descriptor.bytes == 0 && usize::from(index) > MAX_SEGMENTS {
                return Err(RingFault::TooManyPieces);
            }
            pieces.append(descriptor)?;
        }
        Ok(())
    }

    pub(crate) fn put_back(&mut self, buffers: u16) {
        let kept = self.taken.len().saturating_sub(buffers.into());
        for chain in self.taken.drain(kept..) {
            let cursor = &mut self.next_available;
            if cursor.index < chain.entries {
                cursor.index += self.entries;
                cursor.wrap_counter = !cursor.wrap_counter;
            }
            cursor.index -= chain.entries;
        }
    }

    #[inline]
    pub(crate) fn give_back_all(&mut self, written: impl Iterator<Item = u32>) {
        written.for_each(|written| {
            if let Some(chain) = self.taken.pop_front() {
                self.given.push(Given { chain, written });
            }
        });
    }

    #[inline]
    pub(crate) fn give_back_read(&mut self, buffers: u16) {
        self.give_back_all((0..buffers).map(|_| 0));
    }

    #[inline]
    pub(crate) fn is_unpublished(&self) -> bool {
        !self.given.is_empty()
    }

    #[inline]
    pub(crate) fn publish(&mut self, mut log: impl FnMut(u64, u32)) -> bool {
        let first = self.next_used;
        let mut shown_last = None;
        for (turn, given) in self.given.iter().enumerate() {
            let cursor = self.next_used;
            let mut flags = if given.written != 0 { DESC_WRITE } else { 0 };
            if cursor.wrap_counter {
                flags |= DESC_AVAIL | DESC_USED;
            }
            let word = u64::from(given.written) | u64::from(given.chain.id) << 32 | u64::from(flags) << 48;
            let second = self.ring.word64(DESCRIPTOR_BYTES * usize::from(cursor.index) + 8);
            // The driver reads descriptors in order, so all others are stored before the first one is released.
            match turn {
                0 => shown_last = Some((second, word)),
                _ => second.store(word, Ordering::Release),
            }
            self.next_used.advance(given.chain.entries, self.entries);
        }
        if let Some((second, word)) = shown_last {
            second.store(word, Ordering::Release);
        }
        self.given.clear();
        if let Some(inflight) = &self.inflight {
            inflight.note_packed(self.next_used.index, self.next_used.wrap_counter);
        }
        log(self.ring_guest, (DESCRIPTOR_BYTES * usize::from(self.entries)) as u32);
        fence(Ordering::SeqCst);
        // Both halves are read at once: read separately, event and flags may not belong together.
        let event_bits = self.driver_event.word32(0).load(Ordering::Relaxed);
        let (event, flags) = (RingCursor::from_bits(event_bits as u16), (event_bits >> 16) as u16 & 3);
        match flags {
            EVENT_ENABLE => true,
            EVENT_AT_DESCRIPTOR if self.has_event_index => {
                let mut offset = event.index;
                if event.wrap_counter != self.next_used.wrap_counter {
                    offset = offset.wrapping_sub(self.entries);
                }
                let now = self.next_used.index;
                let before = if first.wrap_counter == self.next_used.wrap_counter {
                    first.index
                } else {
                    first.index.wrapping_sub(self.entries)
                };
                passes_event(offset, now, before)
            }
            _ => false,
        }
    }

    pub(crate) fn wake_me(&mut self, wanted: bool) {
        let (event, flags) = match (wanted, self.has_event_index) {
            (false, _) => (0, EVENT_DISABLE),
            (true, false) => (0, EVENT_ENABLE),
            (true, true) => (self.next_available.to_bits(), EVENT_AT_DESCRIPTOR),
        };
        self.device_event.word32(0).store(u32::from(event) | u32::from(flags) << 16, Ordering::Relaxed);
    }
}
