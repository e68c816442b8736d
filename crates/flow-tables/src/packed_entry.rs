//! What a worker has to know of an entry for most packets, in eight bytes beside the entry's key.

use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::instruction::Instructions;
use ringroad_port::port_index::PortIndex;

use crate::control_frame::port_index;
use crate::counters::CounterId;
use crate::flow::FlowEntry;

/// What an entry does, where that is one of the things that most entries do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    /// There is no entry.
    Nothing,
    /// To a port, and nothing else.
    Output(PortIndex),
    /// On to another table.
    Goto(u8),
    Drop,
    /// Where a learning switch would send it.
    Normal,
    /// Something else: the interpreter knows.
    Other,
}

/// What most packets have to know of an entry: from the left 32 bits of its counter's number, 17 of its rank, 7 of what
/// it does, and 8 of where to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedEntry(u64);

impl Plain {
    fn of(instructions: &Instructions) -> Self {
        let Instructions { meter, apply, clear: _, write, metadata, goto } = instructions;
        // The action set is empty where only plain entries came before: there is nothing to clear.
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
    /// Of no entry.
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

    /// More than that of each entry of a lower priority; 0 of no entry.
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
