//! What becomes of packets, where entries do no more than most do: found without the interpreter of all instructions.

use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_index::PortIndex;

use crate::brief::Plain;
use crate::effort::Effort;
use crate::key::{FlowKey, Words, word};
use crate::tables::{Fragments, Tables};
use crate::trail::Step;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It leaves by this port, and nothing else.
    Port(PortIndex),
    Drop(DropCause),
    /// A learning switch decides.
    Normal,
    /// The interpreter of all instructions decides.
    Other,
}

/// The ports that a packet's way depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub from: PortIndex,
    pub controllers: PortIndex,
}

impl Tables {
    /// The words of a packet's key that have to be read.
    pub(crate) fn words_to_read(&self) -> Words {
        match self.fragments {
            Fragments::Normal => self.words,
            // The IP headers show which packets are fragments.
            Fragments::Drop => self.words | 1 << word::TYPES,
        }
    }

    /// The way of a packet with this key, and its first step; further ones are added to `more`.
    #[inline(always)]
    pub(crate) fn way(
        &self,
        key: &FlowKey,
        ends: Ends,
        more: &mut Vec<Step>,
        effort: &mut Effort,
    ) -> (Way, Step) {
        let first = match self.tables.first() {
            Some(table) => table.find(0, key, effort),
            None => Step::nothing(0),
        };
        (self.way_behind(first, key, ends, more, effort), first)
    }

    /// The same where the first step is known.
    #[inline(always)]
    pub(crate) fn way_behind(
        &self,
        first: Step,
        key: &FlowKey,
        ends: Ends,
        more: &mut Vec<Step>,
        effort: &mut Effort,
    ) -> Way {
        match first.brief.plain() {
            Plain::Output(port) => self.output(port, ends),
            Plain::Goto(next) => self.way_on(next, key, ends, more, effort),
            other => Self::end(other, effort),
        }
    }

    /// The same from this table on.
    #[inline(never)]
    fn way_on(
        &self,
        mut table: u8,
        key: &FlowKey,
        ends: Ends,
        more: &mut Vec<Step>,
        effort: &mut Effort,
    ) -> Way {
        while let Some(classifier) = self.tables.get(usize::from(table)) {
            let step = classifier.find(table, key, effort);
            more.push(step);
            match step.brief.plain() {
                Plain::Output(port) => return self.output(port, ends),
                Plain::Goto(next) => table = next,
                other => return Self::end(other, effort),
            }
        }
        Way::Other
    }

    fn end(plain: Plain, effort: &Effort) -> Way {
        match plain {
            Plain::Nothing if !effort.has_found() => Way::Drop(DropCause::TooManySteps),
            Plain::Nothing => Way::Drop(DropCause::NoFlow),
            Plain::Drop => Way::Drop(DropCause::ByFlow),
            Plain::Normal => Way::Normal,
            Plain::Output(_) | Plain::Goto(_) | Plain::Other => Way::Other,
        }
    }

    /// As the interpreter's output to a port.
    #[inline]
    fn output(&self, port: PortIndex, Ends { from, controllers }: Ends) -> Way {
        if port == from || !self.ports.may_send(port) {
            Way::Drop(DropCause::ByFlow)
        } else if port == controllers {
            Way::Drop(DropCause::NoDestination)
        } else {
            Way::Port(port)
        }
    }
}
