//! Memory of a switch's tables, as charged to its controllers: bytes of the controllers' copy and of the workers' two
//! copies, with the overhead of the allocator and of hash tables.

use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringroad_openflow::action::Action;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{Bucket, MeterBand};

use crate::flow::FlowEntry;
use crate::meter::Band;
use crate::packed_match::PackedMatch;

/// Bytes that a switch may always use, even if others have used up the shared budget: enough for a learning switch, and
/// for repairs.
const GUARANTEED_BYTES: u64 = 256 << 10;
/// Copies of each hash table.
const COPIES: usize = 3;
/// Bytes of an allocation beyond its content: the allocator's word, and the mean of what rounding adds.
const PIECE_BYTES: usize = 24;
/// Bytes of a hash table's entry beyond its key's words: packed entry, flow and shape.
const ENTRY_BYTES: usize = 24;
/// Bytes of a combination of fields and masks in one copy of a table, with a hash table of its own.
const SHAPE_BYTES: usize = 1536;
/// Bytes of a counter: number, start value, owner, and cells of a few workers.
const COUNTER_BYTES: usize = 24 + 24 + 4 * 16;
/// Bytes of a time at which an entry ends.
const TIMED_BYTES: usize = 128;
/// Bytes of a group or a meter in the hash tables of all copies.
const NUMBERED_BYTES: usize = 128;

/// Bytes per entry of a hash table that has just doubled, if one bucket takes `bytes`.
const fn at_its_emptiest(bytes: usize) -> usize {
    bytes * 16 / 7
}

/// Memory budget that the tables of all switches share.
#[derive(Debug)]
pub struct SharedBudget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

impl SharedBudget {
    /// Makes a budget of which nothing is used.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { limit_bytes, used_bytes: AtomicU64::new(0) })
    }

    /// Bytes charged by all switches together.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.used_bytes().saturating_add(bytes) <= self.limit_bytes
    }
}

/// Budget of one switch. Several threads may charge the shared budget at once, so each can exceed it by one entry.
#[derive(Debug)]
pub(crate) struct TableBudget {
    limit_bytes: u64,
    shared: Arc<SharedBudget>,
    used_bytes: u64,
    /// Bytes of deleted entries that workers may still read in an earlier copy: since the last publication, and before
    /// it.
    leaving: [u64; 2],
    /// Bytes freed since the last query.
    freed_bytes: u64,
}

impl TableBudget {
    pub fn new(limit_bytes: u64, shared: Arc<SharedBudget>) -> Self {
        Self { limit_bytes, shared, used_bytes: 0, leaving: [0; 2], freed_bytes: 0 }
    }

    /// Whether there is room for `bytes` more bytes.
    pub fn has_room(&self, bytes: u64) -> bool {
        let used = self.used_bytes.saturating_add(bytes);
        used <= self.limit_bytes && (used <= GUARANTEED_BYTES || self.shared.has_room(bytes))
    }

    /// Charges the bytes, whether there is room or not.
    pub fn take(&mut self, bytes: u64) {
        self.used_bytes += bytes;
        self.shared.used_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns a charge, once no worker sees the memory that it was for.
    pub fn give_back(&mut self, bytes: u64) {
        self.leaving[0] += bytes;
    }

    /// Whether some charged bytes become free after two publications.
    pub fn is_leaving(&self) -> bool {
        self.leaving != [0; 2]
    }

    /// Notes that workers see another copy from now on.
    pub fn publish(&mut self) {
        let gone = self.leaving[1];
        self.leaving = [0, self.leaving[0]];
        self.used_bytes -= gone;
        self.freed_bytes += gone;
        self.shared.used_bytes.fetch_sub(gone, Ordering::Relaxed);
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Bytes freed since the last call.
    pub fn take_freed(&mut self) -> u64 {
        std::mem::take(&mut self.freed_bytes)
    }
}

impl Drop for TableBudget {
    fn drop(&mut self) {
        self.shared.used_bytes.fetch_sub(self.used_bytes, Ordering::Relaxed);
    }
}

/// Bytes of an entry without its instructions, which entries can share, and without its shape.
pub(crate) fn of_flow(matching: &PackedMatch, words: usize, is_timed: bool) -> u64 {
    let own = size_of::<FlowEntry>() + 16 + matching.bytes() + 2 * PIECE_BYTES;
    let entry = at_its_emptiest(words.next_power_of_two() * 8 + ENTRY_BYTES) * COPIES;
    (own + entry + COUNTER_BYTES + if is_timed { TIMED_BYTES } else { 0 }) as u64
}

/// Bytes of a shape of a table.
pub(crate) fn of_shape() -> u64 {
    (SHAPE_BYTES * COPIES) as u64
}

/// Bytes of instructions.
pub(crate) fn of_instructions(Instructions { apply, write, .. }: &Instructions) -> u64 {
    let lists = [apply, write].into_iter().flatten();
    let lists: usize = lists.map(|list| size_of::<Action>() * list.len() + PIECE_BYTES).sum();
    (size_of::<Instructions>() + 16 + PIECE_BYTES + at_its_emptiest(24) + lists) as u64
}

/// Bytes of a group.
pub(crate) fn of_group(buckets: &[Bucket]) -> u64 {
    let each = size_of::<Bucket>() + PIECE_BYTES + COUNTER_BYTES + 4;
    let actions: usize = buckets.iter().map(|bucket| bucket.actions.len()).sum();
    let watchers = buckets.len() * 16;
    (NUMBERED_BYTES + COUNTER_BYTES + each * buckets.len() + actions * size_of::<Action>() + watchers) as u64
}

/// Bytes of a meter.
pub(crate) fn of_meter(bands: &[MeterBand]) -> u64 {
    let each = size_of::<MeterBand>() + size_of::<Band>() + COUNTER_BYTES;
    (NUMBERED_BYTES + COUNTER_BYTES + 64 + 2 * PIECE_BYTES + each * bands.len()) as u64
}
