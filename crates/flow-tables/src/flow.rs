//! Flow entries.

use std::sync::Arc;

use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::FlowFlags;
use ringroad_openflow::oxm::{FieldMatch, Match};

use crate::counters::CounterId;
use crate::packed_match::PackedMatch;

/// A flow entry. It never changes: a modified entry replaces it.
#[derive(Debug, Clone)]
pub struct FlowEntry {
    /// Priority: of several entries that match, the one of the highest priority applies.
    pub priority: u16,
    /// Match: the packets that the entry applies to.
    pub matching: PackedMatch,
    /// Number that the controller chose for the entry.
    pub cookie: u64,
    /// Instructions for the packets. Entries with the same instructions share them.
    pub instructions: Arc<Instructions>,
    /// Seconds without a packet after which the entry ends; 0: never.
    pub idle_timeout_s: u16,
    /// Seconds after which the entry ends; 0: never.
    pub hard_timeout_s: u16,
    /// Flags as the controller gave them.
    pub flags: FlowFlags,
    /// Time at which the entry was added, ns of the caller's clock.
    pub added_ns: u64,
    pub(crate) counter: CounterId,
}

impl FlowEntry {
    /// Whether the entry has a timeout.
    pub(crate) fn is_timed(&self) -> bool {
        self.idle_timeout_s != 0 || self.hard_timeout_s != 0
    }

    /// Whether the entry is for all packets that no other entry of its table matches (OpenFlow 1.3.5, 5.4).
    #[must_use]
    pub fn is_table_miss(&self) -> bool {
        self.priority == 0 && self.matching.is_empty()
    }
}

/// Whether every packet that `narrow` matches is matched by `wide` as well.
pub(crate) fn covers(wide: &Match, narrow: &PackedMatch) -> bool {
    wide.fields().iter().all(|wide| {
        narrow.get(wide.field).is_some_and(|narrow| {
            narrow.mask & wide.mask == wide.mask && narrow.value & wide.mask == wide.value
        })
    })
}

/// Whether both can match one packet.
pub(crate) fn overlap(one: &PackedMatch, other: &Match) -> bool {
    let agrees =
        |one: &FieldMatch, other: &FieldMatch| (one.value ^ other.value) & one.mask & other.mask == 0;
    one.fields().all(|field| other.get(field.field).is_none_or(|other| agrees(&field, other)))
}
