//! What a worker has to know of an entry for most packets, in eight bytes beside the entry's key.

use ringroad_openflow::action::Action;
use ringroad_openflow::action::PortNo;
use ringroad_openflow::instruction::Instructions;
use ringroad_port::port_index::PortIndex;

use crate::control_frame::port_index;
use crate::counters::CounterId;
use crate::flow::Flow;

/// What an entry does, where that is one of the things that most entries do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    /// To a port, and nothing else.
    Output(PortIndex),
    /// On to another table.
    Goto(u8),
    Drop,
    /// Where a learning switch would send it.
    Normal,
    /// Something else: the pipeline knows.
    Other,
}

/// What most packets have to know of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Brief {
    pub counter: CounterId,
    pub priority: u16,
    pub plain: Plain,
}

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

impl Brief {
    pub fn of(flow: &Flow) -> Self {
        let &Flow { counter, priority, ref instructions, .. } = flow;
        Self { counter, priority, plain: Plain::of(instructions) }
    }
}
