//! Outcomes of packets whose entries have only the most common actions, found without the interpreter of all
//! instructions.

use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_index::PortIndex;

use crate::key::{FlowKey, Words, word};
use crate::lookup_cache::Step;
use crate::packed_entry::Plain;
use crate::step_budget::StepBudget;
use crate::tables::Tables;

/// Outcome of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FastOutcome {
    /// The packet leaves by this port, and nothing else happens.
    Port(PortIndex),
    Drop(DropCause),
    /// The learning switch decides.
    Normal,
    /// The interpreter of all instructions decides.
    Other,
}

/// Ports that a packet's outcome depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutcomePorts {
    pub from: PortIndex,
    pub controllers: PortIndex,
}

impl Tables {
    /// Words of a packet's key that have to be read.
    pub(crate) fn words_to_read(&self) -> Words {
        // The IP headers show which packets are fragments.
        if self.drops_fragments { self.words | 1 << word::TYPES } else { self.words }
    }

    /// Outcome of a packet with this key, and its first step. Further steps are added to `more`.
    #[inline(always)]
    pub(crate) fn fast_outcome(
        &self,
        key: &FlowKey,
        ends: OutcomePorts,
        more: &mut Vec<Step>,
        steps_left: &mut StepBudget,
    ) -> (FastOutcome, Step) {
        let first = match self.tables.first() {
            Some(table) => table.find(0, key, steps_left),
            None => Step::nothing(0),
        };
        (self.fast_outcome_after(first, key, ends, more, steps_left), first)
    }

    /// Outcome of a packet whose first step is known.
    #[inline(always)]
    pub(crate) fn fast_outcome_after(
        &self,
        first: Step,
        key: &FlowKey,
        ends: OutcomePorts,
        more: &mut Vec<Step>,
        steps_left: &mut StepBudget,
    ) -> FastOutcome {
        match first.entry.plain() {
            Plain::Output(port) => self.output(port, ends),
            Plain::Goto(next) => self.fast_outcome_from(next, key, ends, more, steps_left),
            other => Self::end(other, steps_left),
        }
    }

    /// Outcome of a packet from this table on.
    #[inline(never)]
    fn fast_outcome_from(
        &self,
        mut table: u8,
        key: &FlowKey,
        ends: OutcomePorts,
        more: &mut Vec<Step>,
        steps_left: &mut StepBudget,
    ) -> FastOutcome {
        while let Some(classifier) = self.tables.get(usize::from(table)) {
            let step = classifier.find(table, key, steps_left);
            more.push(step);
            match step.entry.plain() {
                Plain::Output(port) => return self.output(port, ends),
                Plain::Goto(next) => table = next,
                other => return Self::end(other, steps_left),
            }
        }
        FastOutcome::Other
    }

    fn end(plain: Plain, steps_left: &StepBudget) -> FastOutcome {
        match plain {
            Plain::Nothing if !steps_left.has_found() => FastOutcome::Drop(DropCause::TooManySteps),
            Plain::Nothing => FastOutcome::Drop(DropCause::NoFlow),
            Plain::Drop => FastOutcome::Drop(DropCause::ByFlow),
            Plain::Normal => FastOutcome::Normal,
            Plain::Output(_) | Plain::Goto(_) | Plain::Other => FastOutcome::Other,
        }
    }

    /// Outcome of an output to a port, as the interpreter has it.
    #[inline]
    fn output(&self, port: PortIndex, OutcomePorts { from, controllers }: OutcomePorts) -> FastOutcome {
        if port == from || !self.ports.may_send(port) {
            FastOutcome::Drop(DropCause::ByFlow)
        } else if port == controllers {
            FastOutcome::Drop(DropCause::NoDestination)
        } else {
            FastOutcome::Port(port)
        }
    }
}
