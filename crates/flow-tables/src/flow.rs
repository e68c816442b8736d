//! Flow entries.

use std::sync::Arc;

use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::FlowFlags;
use ringroad_openflow::oxm::{FieldMatch, Match};

use crate::counters::CounterId;
use crate::packed_match::PackedMatch;

/// A flow entry. It does not change: a changed one takes its place.
#[derive(Debug)]
pub struct FlowEntry {
    /// Of several entries that match, the one of the highest priority counts.
    pub priority: u16,
    /// Which packets.
    pub matching: PackedMatch,
    /// The controller's own number.
    pub cookie: u64,
    /// What is done with the packets. Entries that do the same share it.
    pub instructions: Arc<Instructions>,
    /// Seconds without a packet after which it ends; 0: never.
    pub idle_timeout_s: u16,
    /// Seconds after which it ends; 0: never.
    pub hard_timeout_s: u16,
    /// As the controller gave them.
    pub flags: FlowFlags,
    /// When it was added, ns of the caller's clock.
    pub added_ns: u64,
    pub(crate) counter: CounterId,
}

impl FlowEntry {
    /// Whether it is the entry for all packets that no other entry of its table matches (OpenFlow 1.3.5, 5.4).
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

/// Whether one packet can be matched by both.
pub(crate) fn overlap(one: &PackedMatch, other: &Match) -> bool {
    let agrees =
        |one: &FieldMatch, other: &FieldMatch| (one.value ^ other.value) & one.mask & other.mask == 0;
    one.fields().all(|field| other.get(field.field).is_none_or(|other| agrees(&field, other)))
}
