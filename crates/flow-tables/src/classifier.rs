//! Finds the entry of one table that applies to a packet.

use std::sync::Arc;

use ringroad_openflow::oxm::Match;

use crate::flow::FlowEntry;
use crate::key::{FlowKey, Words};
use crate::lookup_cache::Step;
use crate::packed_match::PackedMatch;
use crate::step_budget::StepBudget;
use crate::subtable::{Part, compiled};
use crate::tuples::{BucketIndex, Seed};

/// Number of shapes from which small and new shapes are merged: a lookup in a few hash tables then finds some
/// candidates, instead of a lookup in one hash table per shape.
const MERGED_FROM: usize = 8;
/// Maximum number of entries of a shape that is merged when merging begins. Larger shapes would take too long.
const MOST_MOVED: usize = 4096;
/// Maximum number of candidates that a lookup has to search. Beyond it, some entries move to a part whose masks have
/// more bits in common.
const MOST_BESIDE: usize = 16;

/// Finds entries by the packets that they match. Each part has one hash table. Lookups search the parts with the
/// highest priorities first, until no other part can win. (Merged parts are those of TupleMerge: J. Daly et al.,
/// "TupleMerge: Fast Software Packet Processing for Online Packet Classification", IEEE/ACM Transactions on Networking
/// 27(4), 2019.)
#[derive(Debug, Clone, Default)]
pub(crate) struct Classifier {
    parts: Vec<Part>,
    seed: Seed,
    len: usize,
    /// Relevant words of a packet's key.
    words: Words,
    /// Whether shapes are merged. This holds until no shapes are left.
    merges: bool,
}

/// Location of an entry, valid while its table does not change. From the left: 8 bits of the table's number, 24 of the
/// part's, and 32 of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryLocation(u64);

impl EntryLocation {
    #[inline]
    pub fn new(table: u8, part: usize, bucket: BucketIndex) -> Self {
        Self(u64::from(table) << 56 | (part as u64) << 32 | u64::from(bucket))
    }

    #[inline]
    pub fn table(self) -> u8 {
        (self.0 >> 56) as u8
    }
}

/// Returns bits that some of the masks have in common, more than `common` has; `None` if there are none.
fn finer(common: &FlowKey, mut masks: Vec<FlowKey>) -> Option<FlowKey> {
    masks.sort_by_key(|mask| std::cmp::Reverse(mask.bits()));
    let first = masks.first()?;
    let finer = masks.iter().fold(first.common(first), |finer, mask| {
        let both = finer.common(mask);
        if both.bits() > common.bits() { both } else { finer }
    });
    (finer.bits() > common.bits()).then_some(finer)
}

impl Classifier {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Maximum number of hash tables that a packet has to search.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Relevant words of a packet's key.
    pub fn words(&self) -> Words {
        self.words
    }

    fn collect_words(&mut self) {
        self.words = self.parts.iter().map(Part::words).fold(0, |all, words| all | words);
    }

    /// Finds the entry that applies to a packet, as the step of this table. Finds nothing if the packet may not search
    /// that much ([`StepBudget::has_found`]).
    #[inline(always)]
    pub fn find(&self, table: u8, key: &FlowKey, steps_left: &mut StepBudget) -> Step {
        if let [only] = self.parts.as_slice()
            && !only.is_merged()
        {
            // No check of the limit: a packet may search more hash tables than there are flow tables.
            steps_left.search();
            let (bucket, entry) = only.find(key);
            return Step { location: EntryLocation::new(table, 0, bucket), entry };
        }
        self.find_in_parts(table, key, steps_left)
    }

    #[inline(always)]
    fn find_in_parts(&self, table: u8, key: &FlowKey, steps_left: &mut StepBudget) -> Step {
        let (mut best, mut rank) = (Step::nothing(table), 0);
        for (number, part) in self.parts.iter().enumerate() {
            if part.top() <= rank {
                break;
            }
            steps_left.search();
            let (bucket, entry) = if part.is_merged() {
                let found = part.find_merged(key, rank, steps_left);
                // The limit is checked only here: parts of one shape are few, or have thousands of entries each. A part
                // that was not searched may have a better entry.
                if !steps_left.has_found() {
                    return Step::nothing(table);
                }
                found
            } else {
                part.find(key)
            };
            if entry.rank() > rank {
                (best, rank) =
                    (Step { location: EntryLocation::new(table, number, bucket), entry }, entry.rank());
            }
        }
        best
    }

    /// Finds the entries for several packets, at most [`crate::batch_lookup::LANES`], as `find` does for one.
    pub fn find_each(&self, table: u8, keys: &[FlowKey], steps: &mut [Step], budgets: &mut [StepBudget]) {
        steps.fill(Step::nothing(table));
        for (number, part) in self.parts.iter().enumerate() {
            let is_over = |(best, steps_left): (&Step, &StepBudget)| {
                part.top() <= best.entry.rank() || !steps_left.has_found()
            };
            if steps.iter().zip(&*budgets).all(is_over) {
                break;
            }
            part.fetch(keys);
            for ((key, best), steps_left) in keys.iter().zip(steps.iter_mut()).zip(budgets.iter_mut()) {
                if !steps_left.search() {
                    continue;
                }
                let (bucket, entry) = match part.is_merged() {
                    false => part.find(key),
                    true => part.find_merged(key, best.entry.rank(), steps_left),
                };
                if entry.rank() > best.entry.rank() {
                    *best = Step { location: EntryLocation::new(table, number, bucket), entry };
                }
            }
        }
    }

    /// Returns the entry at a location that a packet's lookup has found.
    #[inline]
    pub fn at(&self, EntryLocation(location): EntryLocation) -> Option<&Arc<FlowEntry>> {
        self.parts.get((location >> 32) as usize & 0xff_ffff)?.at(location as BucketIndex)
    }

    /// Returns the entry with exactly this match and priority.
    pub fn get(&self, priority: u16, matching: &Match) -> Option<&Arc<FlowEntry>> {
        let (mask, value) = compiled(matching.fields().iter().copied());
        self.parts.iter().find(|part| part.has_shape(&mask))?.get(&mask, &value, priority)
    }

    /// Whether there are entries of the same combination of fields and masks.
    pub fn has_shape_of(&self, mask: &FlowKey) -> bool {
        self.parts.iter().any(|part| part.has_shape(mask))
    }

    /// Adds an entry, or replaces the one with the same match and priority. Returns whether its shape is new.
    pub fn insert(&mut self, flow: Arc<FlowEntry>) -> bool {
        let (mask, value) = compiled(flow.matching.fields());
        let part = self.parts.iter_mut().find(|part| part.has_shape(&mask));
        let has_shape = part.is_some();
        match part {
            Some(part) if part.get(&mask, &value, flow.priority).is_some() => {
                part.replace(&mask, &value, flow)
            }
            _ => {
                self.len += 1;
                self.add(&mask, &value, flow, &mask.relaxed());
                self.order();
            }
        }
        if !has_shape {
            self.collect_words();
        }
        !has_shape
    }

    /// Removes the entry with exactly this match and priority. Returns whether its shape is gone with it.
    pub fn remove(&mut self, priority: u16, matching: &PackedMatch) -> bool {
        let (mask, value) = compiled(matching.fields());
        let Some(part) = self.parts.iter_mut().find(|part| part.has_shape(&mask)) else { return false };
        if part.remove(&mask, &value, priority).is_none() {
            return false;
        }
        self.len -= 1;
        let is_last = !part.has_shape(&mask);
        self.parts.retain(|part| !part.is_empty());
        if self.parts.len() < self.parts.capacity() / 4 {
            self.parts.shrink_to_fit();
        }
        self.merges &= !self.parts.is_empty();
        self.order();
        if is_last {
            self.collect_words();
        }
        is_last
    }

    /// Adds an entry. A new shape goes to a part whose entries have at least as many bits in common as `common` has.
    fn add(&mut self, mask: &FlowKey, value: &FlowKey, flow: Arc<FlowEntry>, common: &FlowKey) {
        let known = self.parts.iter().position(|part| part.has_shape(mask));
        let number = known.unwrap_or_else(|| self.add_shape(mask, common));
        let Some(part) = self.parts.get_mut(number) else { return };
        part.insert(mask, value, flow);
        if part.is_merged() && part.beside(value) > MOST_BESIDE {
            self.split(number, value);
        }
    }

    /// Adds a shape to a part, or a part for the shape. Returns the part's number.
    fn add_shape(&mut self, mask: &FlowKey, common: &FlowKey) -> usize {
        if !self.merges && self.parts.len() < MERGED_FROM {
            self.parts.push(Part::alone(*mask, self.seed));
            return self.parts.len() - 1;
        }
        if !std::mem::replace(&mut self.merges, true) {
            let parts = std::mem::take(&mut self.parts).into_iter();
            let small: Vec<Part>;
            (small, self.parts) = parts.partition(|part| part.len() <= MOST_MOVED);
            for flow in small.iter().flat_map(Part::flows) {
                let (mask, value) = compiled(flow.matching.fields());
                self.add(&mask, &value, Arc::clone(flow), &mask.relaxed());
            }
        }
        let parts = self.parts.iter().enumerate();
        let fitting =
            parts.filter(|(_, part)| part.common().bits() >= common.bits() && part.has_room_for(mask));
        let number = fitting.max_by_key(|(_, part)| part.common().bits()).map(|(number, _)| number);
        if let Some(part) = number.and_then(|number| self.parts.get_mut(number)) {
            part.add_shape(mask);
        } else {
            self.parts.push(Part::merged(*common, mask, self.seed));
        }
        number.unwrap_or(self.parts.len() - 1)
    }

    /// Moves some of the entries that a lookup of this value searches to a part whose entries have more bits in common.
    fn split(&mut self, number: usize, value: &FlowKey) {
        let Some(part) = self.parts.get_mut(number) else { return };
        let Some(common) = finer(part.common(), part.masks_beside(value)) else { return };
        let all = part.flows().map(|flow| (compiled(flow.matching.fields()), Arc::clone(flow)));
        let moved: Vec<_> = all.filter(|((mask, _), _)| common.is_within(mask)).collect();
        for ((mask, value), flow) in &moved {
            part.remove(mask, value, flow.priority);
        }
        if part.is_empty() {
            self.parts.remove(number);
        }
        for ((mask, value), flow) in moved {
            self.add(&mask, &value, flow, &common);
        }
    }

    fn order(&mut self) {
        if !self.parts.is_sorted_by(|one, next| one.top() >= next.top()) {
            self.parts.sort_by_key(|part| std::cmp::Reverse(part.top()));
        }
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<FlowEntry>> {
        self.parts.iter().flat_map(Part::flows)
    }
}

#[cfg(test)]
mod tests {
    use ringroad_openflow::instruction::Instructions;
    use ringroad_openflow::message::FlowFlags;
    use ringroad_openflow::oxm::{FieldMatch, OxmField};

    use super::*;
    use crate::counters::CounterId;

    /// Makes an entry for two nested networks, with one of 33 times 12 pairs of masks.
    fn flow(number: u32) -> FlowEntry {
        let prefix = |field: OxmField, address: u32, bits: u32| {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            FieldMatch { field, value: (address & mask).into(), mask: mask.into() }
        };
        let fields = [
            FieldMatch::exact(OxmField::EthType, 0x0800),
            prefix(OxmField::Ipv4Src, 0x0a00_0000 | number.wrapping_mul(0x9e37_79b9) >> 16, number % 33),
            prefix(
                OxmField::Ipv4Dst,
                0x0a00_0000 | number.wrapping_mul(0x85eb_ca6b) >> 20,
                21 + number / 33 % 12,
            ),
        ];
        let matching = Match::new(fields.into_iter().filter(|one| one.mask != 0)).unwrap();
        FlowEntry {
            priority: (number % 5000) as u16,
            matching: (&matching).into(),
            cookie: 0,
            instructions: Arc::new(Instructions::default()),
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            flags: FlowFlags::default(),
            added_ns: 0,
            counter: CounterId(number),
        }
    }

    #[test]
    fn a_lookup_searches_few_hash_tables_and_few_entries_in_each() {
        let mut classifier = Classifier::default();
        let flows: Vec<_> = (0..5000).map(|number| Arc::new(flow(number))).collect();
        for flow in &flows {
            classifier.insert(Arc::clone(flow));
        }
        assert_eq!((classifier.len(), classifier.iter().count()), (5000, 5000));
        assert!(classifier.parts() < 396 / 4, "{} hash tables for 396 shapes", classifier.parts());
        for flow in &flows {
            let (_, value) = compiled(flow.matching.fields());
            assert!(classifier.parts.iter().all(|part| part.beside(&value) <= MOST_BESIDE));
        }
        for (number, flow) in flows.iter().enumerate() {
            let matching = flow.matching.to_match();
            assert!(classifier.get(flow.priority, &matching).is_some());
            classifier.remove(flow.priority, &flow.matching);
            assert!(classifier.get(flow.priority, &matching).is_none());
            assert_eq!(classifier.iter().count(), 4999 - number);
        }
        assert_eq!((classifier.parts(), classifier.merges), (0, false));
    }
}
