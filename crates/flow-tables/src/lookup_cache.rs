//! The entries that a packet's lookups find, one table after the other. Packets with the same key have the same lookup
//! cache, so it can be kept.

use std::sync::Arc;

use ringroad_openflow::action::Effect;
use ringroad_openflow::oxm::OxmField;

use crate::classifier::EntryLocation;
use crate::flow::FlowEntry;
use crate::packed_entry::PackedEntry;
use crate::packet::Packet;
use crate::step_budget::StepBudget;
use crate::tables::Tables;

/// What a table's lookup has found: an entry, if there is one, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub location: EntryLocation,
    pub entry: PackedEntry,
}

/// Steps, as far as they follow from the key that a packet had at first.
#[derive(Debug, Default)]
pub(crate) struct LookupCache {
    steps: Vec<Step>,
    /// The next step of the packet that is on its way.
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

    /// The first step, and the others.
    pub fn steps(&self) -> Option<(Step, &[Step])> {
        self.steps.split_first().map(|(&first, others)| (first, others))
    }

    /// Takes over steps that are known.
    pub fn set(&mut self, first: Step, others: &[Step]) {
        self.clear();
        self.steps.push(first);
        self.steps.extend_from_slice(others);
    }

    /// Another packet begins.
    pub fn rewind(&mut self) {
        (self.next, self.is_open) = (0, true);
    }

    /// What the lookup of `table` finds for the packet that is on its way.
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
                // What was not searched to the end is not known.
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

    /// What is found from here on depends on more than the key.
    pub fn close(&mut self) {
        if self.is_open {
            self.steps.truncate(self.next);
            self.is_open = false;
        }
    }
}

/// Whether what later lookups find still follows from the fields that a packet had before an action. It does not
/// where the action uncovers headers, or makes others of them.
#[inline]
pub(crate) fn keeps_lookups(effect: Effect) -> bool {
    match effect {
        Effect::Field(field) => {
            !matches!(field, OxmField::EthType | OxmField::IpProto | OxmField::Icmpv6Type | OxmField::MplsBos)
        }
        Effect::VlanTag { is_pushed } => is_pushed,
        Effect::Header => false,
        Effect::Output { .. } | Effect::Group(_) | Effect::Queue(_) | Effect::Ttl => true,
    }
}
