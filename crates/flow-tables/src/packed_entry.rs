//! Packed entry: the part of an entry that most packets need, in eight bytes beside the entry's key.

use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::instruction::Instructions;
use ringroad_port::port_index::PortIndex;

use crate::control_frame::port_index;
use crate::counters::CounterId;
use crate::flow::FlowEntry;

/// Action of an entry, as far as it is one of the most common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    /// There is no entry.
    Nothing,
    /// The packet goes to a port, and nothing else happens.
    Output(PortIndex),
    /// The packet goes on to another table.
    Goto(u8),
    Drop,
    /// The learning switch decides.
    Normal,
    /// The interpreter decides: the entry does something else.
    Other,
}

/// Fields from the left: 32 bits of the counter's number, 17 of the rank, 7 of the action, 8 of its port or table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedEntry(u64);

impl Plain {
    fn of(instructions: &Instructions) -> Self {
        let Instructions { meter, apply, clear: _, write, metadata, goto } = instructions;
        // Plain entries leave the action set empty, so a plain entry has nothing to clear.
        if meter.is_some() || metadata.is_some() {
            return Self::Other;
        }
        let mut actions = apply.iter().chain(write).flatten();
        match (actions.next(), actions.next(), goto) {
            (None, _, &Some(next)) => Self::Goto(next),
            (None, _, None) => Self::Drop,
            (Some(&Action::Output { port, .. }), None, None) if port == PortNo::NORMAL => Self::Normal,
            (Some(&Action::Output { port, .. }), None, None) => {
                port_index(port).map_or(Self::Other, Self::Output)
            }
            _ => Self::Other,
        }
    }
}

const COUNTER_SHIFT: u32 = 32;
const RANK_SHIFT: u32 = 15;
const KIND_SHIFT: u32 = 8;

impl PackedEntry {
    /// Value that stands for no entry.
    pub const NOTHING: Self = Self(0);

    pub fn of(flow: &FlowEntry) -> Self {
        let (kind, to) = match Plain::of(&flow.instructions) {
            Plain::Nothing => (0, 0),
            Plain::Output(port) => (1, port.0),
            Plain::Goto(table) => (2, table),
            Plain::Drop => (3, 0),
            Plain::Normal => (4, 0),
            Plain::Other => (5, 0),
        };
        let rank = u64::from(rank(flow.priority)) << RANK_SHIFT;
        Self(u64::from(flow.counter.0) << COUNTER_SHIFT | rank | kind << KIND_SHIFT | u64::from(to))
    }

    #[inline]
    pub fn counter(self) -> CounterId {
        CounterId((self.0 >> COUNTER_SHIFT) as u32)
    }

    /// Rank: higher than that of each entry of a lower priority. 0 if there is no entry.
    #[inline]
    pub fn rank(self) -> u32 {
        self.0 as u32 >> RANK_SHIFT
    }

    #[inline]
    pub fn plain(self) -> Plain {
        let to = self.0 as u8;
        match self.0 >> KIND_SHIFT & 0x7f {
            0 => Plain::Nothing,
            1 => Plain::Output(PortIndex(to)),
            2 => Plain::Goto(to),
            3 => Plain::Drop,
            4 => Plain::Normal,
            _ => Plain::Other,
        }
    }

    #[inline]
    pub fn is_entry(self) -> bool {
        self.0 != 0
    }
}

/// The rank of entries of a priority.
pub(crate) fn rank(priority: u16) -> u32 {
    u32::from(priority) + 1
}
