//! A part of a table's entries: those of one shape (a combination of fields and masks), or of several shapes that have
//! bits in common.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;
use ringroad_openflow::oxm::FieldMatch;

use crate::flow::FlowEntry;
use crate::key::{FlowKey, WORDS, Words};
use crate::packed_entry::{PackedEntry, rank};
use crate::step_budget::StepBudget;
use crate::tuples::{BucketIndex, ManyShapes, Seed, ShapeNumber, SingleShape, Tuples};

/// A hash table, by the number of relevant words, so that an entry is as short as possible, and contiguous.
#[derive(Debug, Clone)]
enum ByWords {
    One(Tuples<1, SingleShape>),
    Two(Tuples<2, SingleShape>),
    Three(Tuples<3, SingleShape>),
    Four(Tuples<4, SingleShape>),
    Six(Tuples<6, SingleShape>),
    All(Tuples<{ WORDS - 1 }, SingleShape>),
    MergedTwo(Tuples<2, ManyShapes<2>>),
    MergedFour(Tuples<4, ManyShapes<4>>),
    MergedSix(Tuples<6, ManyShapes<6>>),
    MergedAll(Tuples<{ WORDS - 1 }, ManyShapes<{ WORDS - 1 }>>),
}

macro_rules! each {
    ($by_words:expr, $tuples:ident => $does:expr) => {
        match $by_words {
            ByWords::One($tuples) => $does,
            ByWords::Two($tuples) => $does,
            ByWords::Three($tuples) => $does,
            ByWords::Four($tuples) => $does,
            ByWords::Six($tuples) => $does,
            ByWords::All($tuples) => $does,
            ByWords::MergedTwo($tuples) => $does,
            ByWords::MergedFour($tuples) => $does,
            ByWords::MergedSix($tuples) => $does,
            ByWords::MergedAll($tuples) => $does,
        }
    };
}

/// Entries in one hash table.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    by_words: ByWords,
    /// Fields that not all packets have, and that all entries of the part require.
    required: u64,
    /// Rank of the highest priority.
    top: u32,
    /// Whether the part has entries of several shapes.
    is_merged: bool,
    rest: Box<Rest>,
}

/// Data that no lookup needs.
#[derive(Debug, Clone, Default)]
struct Rest {
    /// Number and entry count of each shape, by its mask.
    shapes: HashMap<FlowKey, (ShapeNumber, usize), FixedState>,
    /// Free shape numbers, which deleted shapes had.
    free: Vec<ShapeNumber>,
    /// Bits that all shapes have.
    common: FlowKey,
    /// Relevant words, in the order in which entries store them.
    words: Vec<u8>,
    /// Entries behind another entry with the same shape and key, the highest priority first.
    behind: BTreeMap<(ShapeNumber, [u64; WORDS]), Vec<Arc<FlowEntry>>>,
    /// Number of entries with each priority.
    priorities: BTreeMap<u16, usize>,
}

/// Compiles a match to two keys: the mask of relevant bits, and their values.
pub(crate) fn compiled(fields: impl Iterator<Item = FieldMatch>) -> (FlowKey, FlowKey) {
    let (mut mask, mut value) = (FlowKey::default(), FlowKey::default());
    for one in fields {
        mask.add(one.field, one.mask);
        value.add(one.field, one.value);
    }
    (mask, value)
}

impl Part {
    /// Makes a part for the entries of one shape.
    pub fn alone(mask: FlowKey, seed: Seed) -> Self {
        let words: Vec<u8> = mask.used_words().collect();
        let by_words = match words.len() {
            0 | 1 => ByWords::One(Tuples::new(&words, &mask, seed)),
            2 => ByWords::Two(Tuples::new(&words, &mask, seed)),
            3 => ByWords::Three(Tuples::new(&words, &mask, seed)),
            4 => ByWords::Four(Tuples::new(&words, &mask, seed)),
            5 | 6 => ByWords::Six(Tuples::new(&words, &mask, seed)),
            _ => ByWords::All(Tuples::new(&words, &mask, seed)),
        };
        let shapes = [(mask, (0, 0))].into_iter().collect();
        let rest = Rest { shapes, common: mask, words, ..Rest::default() };
        Self { by_words, required: mask.required(), top: 0, is_merged: false, rest: Box::new(rest) }
    }

    /// Makes a part for the entries of shapes that have these bits in common, with a first shape.
    pub fn merged(common: FlowKey, first: &FlowKey, seed: Seed) -> Self {
        let words: Vec<u8> = common.used_words().collect();
        let by_words = match first.used_words().count() {
            0..=2 => ByWords::MergedTwo(Tuples::new(&words, &common, seed)),
            3 | 4 => ByWords::MergedFour(Tuples::new(&words, &common, seed)),
            5 | 6 => ByWords::MergedSix(Tuples::new(&words, &common, seed)),
            _ => ByWords::MergedAll(Tuples::new(&words, &common, seed)),
        };
        let rest = Box::new(Rest { common, words, ..Rest::default() });
        let mut part = Self { by_words, required: 0, top: 0, is_merged: true, rest };
        part.add_shape(first);
        part
    }

    /// Number of words that entries have room for; `None` if the part is for one shape.
    fn room(&self) -> Option<usize> {
        match self.by_words {
            ByWords::MergedTwo(_) => Some(2),
            ByWords::MergedFour(_) => Some(4),
            ByWords::MergedSix(_) => Some(6),
            ByWords::MergedAll(_) => Some(WORDS - 1),
            _ => None,
        }
    }

    /// Whether the part is for several shapes.
    #[inline]
    pub fn is_merged(&self) -> bool {
        self.is_merged
    }

    /// Whether a new shape fits into the part.
    pub fn has_room_for(&self, mask: &FlowKey) -> bool {
        let new = mask.used_words().filter(|word| !self.rest.words.contains(word)).count();
        self.room().is_some_and(|room| self.rest.words.len() + new <= room)
            && self.rest.common.is_within(mask)
    }

    /// Bits that all shapes have.
    pub fn common(&self) -> &FlowKey {
        &self.rest.common
    }

    pub fn add_shape(&mut self, mask: &FlowKey) {
        let Rest { shapes, free, words, .. } = &mut *self.rest;
        for word in mask.used_words() {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        let number = free.pop().unwrap_or(shapes.len() as ShapeNumber);
        shapes.insert(*mask, (number, 0));
        match &mut self.by_words {
            ByWords::MergedTwo(tuples) => tuples.set_shape(number, mask, words),
            ByWords::MergedFour(tuples) => tuples.set_shape(number, mask, words),
            ByWords::MergedSix(tuples) => tuples.set_shape(number, mask, words),
            ByWords::MergedAll(tuples) => tuples.set_shape(number, mask, words),
            _ => {}
        }
    }

    pub fn has_shape(&self, mask: &FlowKey) -> bool {
        self.rest.shapes.contains_key(mask)
    }

    fn number(&self, mask: &FlowKey) -> Option<ShapeNumber> {
        self.rest.shapes.get(mask).map(|&(number, _)| number)
    }

    pub fn is_empty(&self) -> bool {
        self.rest.shapes.is_empty()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.rest.shapes.values().map(|&(_, entries)| entries).sum()
    }

    /// Relevant words.
    pub fn words(&self) -> Words {
        let words = self.rest.shapes.keys().flat_map(FlowKey::used_words);
        words.fold(0, |words, word| words | 1 << word)
    }

    /// Rank of the highest priority.
    #[inline]
    pub fn top(&self) -> u32 {
        self.top
    }

    /// Finds the entry of the highest priority for a packet, in a part of one shape.
    #[inline(never)]
    pub fn find(&self, key: &FlowKey) -> (BucketIndex, PackedEntry) {
        if !key.has(self.required) {
            return (0, PackedEntry::NOTHING);
        }
        match &self.by_words {
            ByWords::One(tuples) => tuples.find(key),
            ByWords::Two(tuples) => tuples.find(key),
            ByWords::Three(tuples) => tuples.find(key),
            ByWords::Four(tuples) => tuples.find(key),
            ByWords::Six(tuples) => tuples.find(key),
            ByWords::All(tuples) => tuples.find(key),
            _ => (0, PackedEntry::NOTHING),
        }
    }

    /// Finds the entry of the highest priority for a packet, in a part of several shapes, if its rank is above
    /// `beyond`. Each comparison counts as a search.
    pub fn find_merged(
        &self,
        key: &FlowKey,
        beyond: u32,
        steps_left: &mut StepBudget,
    ) -> (BucketIndex, PackedEntry) {
        match &self.by_words {
            ByWords::MergedTwo(tuples) => tuples.find(key, beyond, steps_left),
            ByWords::MergedFour(tuples) => tuples.find(key, beyond, steps_left),
            ByWords::MergedSix(tuples) => tuples.find(key, beyond, steps_left),
            ByWords::MergedAll(tuples) => tuples.find(key, beyond, steps_left),
            _ => (0, PackedEntry::NOTHING),
        }
    }

    /// Prefetches the memory that lookups of these keys need.
    pub fn fetch(&self, keys: &[FlowKey]) {
        each!(&self.by_words, tuples => tuples.fetch(keys));
    }

    /// Entry in a bucket.
    #[inline]
    pub fn at(&self, bucket: BucketIndex) -> Option<&Arc<FlowEntry>> {
        each!(&self.by_words, tuples => tuples.at(bucket))
    }

    /// Entry with this mask, value and priority.
    pub fn get(&self, mask: &FlowKey, value: &FlowKey, priority: u16) -> Option<&Arc<FlowEntry>> {
        let shape = self.number(mask)?;
        let first = each!(&self.by_words, tuples => tuples.get(shape, value))?;
        if first.priority == priority {
            return Some(first);
        }
        self.rest.behind.get(&(shape, *value.words()))?.iter().find(|flow| flow.priority == priority)
    }

    /// Adds an entry to one of the part's shapes. No entry may have its value and priority yet.
    pub fn insert(&mut self, mask: &FlowKey, value: &FlowKey, flow: Arc<FlowEntry>) {
        let Some((shape, entries)) = self.rest.shapes.get_mut(mask) else { return };
        let shape = *shape;
        *entries += 1;
        *self.rest.priorities.entry(flow.priority).or_default() += 1;
        self.top = self.top.max(rank(flow.priority));
        let first = each!(&self.by_words, tuples => tuples.get(shape, value));
        let is_first = first.is_none_or(|first| flow.priority > first.priority);
        let behind = match is_first {
            true => each!(&mut self.by_words, tuples => tuples.put(shape, value, flow)),
            false => Some(flow),
        };
        if let Some(flow) = behind {
            let flows = self.rest.behind.entry((shape, *value.words())).or_default();
            let at = flows.partition_point(|other| other.priority > flow.priority);
            flows.insert(at, flow);
        }
    }

    /// Replaces the entry with the same mask, value and priority.
    pub fn replace(&mut self, mask: &FlowKey, value: &FlowKey, flow: Arc<FlowEntry>) {
        let Some(shape) = self.number(mask) else { return };
        let first = each!(&self.by_words, tuples => tuples.get(shape, value));
        if first.is_some_and(|first| first.priority == flow.priority) {
            each!(&mut self.by_words, tuples => tuples.put(shape, value, flow));
        } else if let Some(flows) = self.rest.behind.get_mut(&(shape, *value.words()))
            && let Some(target) = flows.iter_mut().find(|other| other.priority == flow.priority)
        {
            *target = flow;
        }
    }

    /// Removes the entry with this mask, value and priority, and its shape if no entry is left.
    pub fn remove(&mut self, mask: &FlowKey, value: &FlowKey, priority: u16) -> Option<Arc<FlowEntry>> {
        let removed = Arc::clone(self.get(mask, value, priority)?);
        let shape = self.number(mask)?;
        let first = each!(&self.by_words, tuples => tuples.get(shape, value))?;
        let is_first = first.priority == priority;
        let mut next = None;
        let behind = (shape, *value.words());
        if let Some(flows) = self.rest.behind.get_mut(&behind) {
            let gone =
                if is_first { Some(0) } else { flows.iter().position(|flow| flow.priority == priority) };
            next = gone.map(|gone| flows.remove(gone)).filter(|_| is_first);
            if flows.is_empty() {
                self.rest.behind.remove(&behind);
            }
        }
        match next {
            Some(next) => drop(each!(&mut self.by_words, tuples => tuples.put(shape, value, next))),
            None if is_first => each!(&mut self.by_words, tuples => tuples.take(shape, value)),
            None => {}
        }
        if let Some(count) = self.rest.priorities.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.rest.priorities.remove(&priority);
            }
        }
        self.top = self.rest.priorities.last_key_value().map_or(0, |(&priority, _)| rank(priority));
        if let Some((_, entries)) = self.rest.shapes.get_mut(mask) {
            *entries -= 1;
            if *entries == 0 {
                self.rest.shapes.remove(mask);
                self.rest.free.push(shape);
            }
        }
        Some(removed)
    }

    /// Shape numbers of the candidates that a lookup of this value searches, in a part of several shapes.
    fn numbers_beside(&self, value: &FlowKey) -> Vec<ShapeNumber> {
        match &self.by_words {
            ByWords::MergedTwo(tuples) => tuples.beside(value).collect(),
            ByWords::MergedFour(tuples) => tuples.beside(value).collect(),
            ByWords::MergedSix(tuples) => tuples.beside(value).collect(),
            ByWords::MergedAll(tuples) => tuples.beside(value).collect(),
            _ => Vec::new(),
        }
    }

    /// Number of candidates that a lookup of this value searches, in a part of several shapes.
    pub fn beside(&self, value: &FlowKey) -> usize {
        self.numbers_beside(value).len()
    }

    /// Masks of the candidates that a lookup of this value searches.
    pub fn masks_beside(&self, value: &FlowKey) -> Vec<FlowKey> {
        let numbers = self.numbers_beside(value);
        let shapes = self.rest.shapes.iter().filter(|(_, (number, _))| numbers.contains(number));
        shapes.map(|(mask, _)| *mask).collect()
    }

    /// All entries, in no particular order.
    pub fn flows(&self) -> Box<dyn Iterator<Item = &Arc<FlowEntry>> + '_> {
        let behind = self.rest.behind.values().flatten();
        each!(&self.by_words, tuples => Box::new(tuples.flows().chain(behind)))
    }
}
