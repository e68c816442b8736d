//! Lookup cache: the entries that a packet's lookups found, table by table. Packets with the same key find the same
//! entries.

use std::sync::Arc;

use ringroad_openflow::action::Effect;
use ringroad_openflow::oxm::OxmField;

use crate::classifier::EntryLocation;
use crate::flow::FlowEntry;
use crate::packed_entry::PackedEntry;
use crate::packet::Packet;
use crate::step_budget::StepBudget;
use crate::tables::Tables;

/// Result of a table's lookup: the packed entry, if there is one, and its location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub location: EntryLocation,
    pub entry: PackedEntry,
}

/// Steps that follow from the key that a packet had at first.
#[derive(Debug, Default)]
pub(crate) struct LookupCache {
    steps: Vec<Step>,
    /// Index of the next step of the current packet.
    next: usize,
    /// Whether further steps follow from the key.
    is_open: bool,
}

impl Step {
    #[inline]
    pub fn nothing(table: u8) -> Self {
        Self { location: EntryLocation::new(table, 0, 0), entry: PackedEntry::NOTHING }
    }
}

impl LookupCache {
    /// Forgets all steps.
    #[inline]
    pub fn clear(&mut self) {
        self.steps.clear();
        (self.next, self.is_open) = (0, true);
    }

    /// First step, and the other steps.
    pub fn steps(&self) -> Option<(Step, &[Step])> {
        self.steps.split_first().map(|(&first, others)| (first, others))
    }

    /// Replaces the steps by known ones.
    pub fn set(&mut self, first: Step, others: &[Step]) {
        self.clear();
        self.steps.push(first);
        self.steps.extend_from_slice(others);
    }

    /// Begins another packet.
    pub fn rewind(&mut self) {
        (self.next, self.is_open) = (0, true);
    }

    /// Looks up the current packet in `table`, in the known steps if possible.
    pub fn find<'tables>(
        &mut self,
        tables: &'tables Tables,
        table: u8,
        packet: &mut Packet,
        steps_left: &mut StepBudget,
    ) -> Option<&'tables Arc<FlowEntry>> {
        let classifier = tables.tables.get(usize::from(table))?;
        let known = self.steps.get(self.next).filter(|step| self.is_open && step.location.table() == table);
        let step = match known {
            Some(&step) => step,
            None => {
                let step = classifier.find(table, packet.key(), steps_left);
                // The result of an incomplete search is not kept.
                if self.is_open && steps_left.has_found() {
                    self.steps.truncate(self.next);
                    self.steps.push(step);
                }
                step
            }
        };
        self.next += 1;
        if step.entry.is_entry() { classifier.at(step.location) } else { None }
    }

    /// Ends the known steps: later lookups depend on more than the key.
    pub fn close(&mut self) {
        if self.is_open {
            self.steps.truncate(self.next);
            self.is_open = false;
        }
    }
}

/// Whether later lookups still follow from the fields that a packet had before an action. They do not if the action
/// uncovers headers, or changes their kind.
#[inline]
pub(crate) fn keeps_lookups(effect: Effect) -> bool {
    match effect {
        Effect::Field(field) => {
            !matches!(field, OxmField::EthType | OxmField::IpProto | OxmField::Icmpv6Type | OxmField::MplsBos)
        }
        Effect::VlanTag { is_pushed } => is_pushed,
        Effect::Header => false,
        Effect::Output(_) | Effect::Group(_) | Effect::Queue(_) | Effect::Ttl => true,
    }
}
