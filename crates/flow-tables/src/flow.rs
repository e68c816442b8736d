//! Flow entries, and one table's way to find the right one.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::FlowFlags;
use ringroad_openflow::oxm::{Field, FieldMatch, Match};

use crate::counters::CounterId;
use crate::packet::Packet;

/// A flow entry. It does not change: a changed one takes its place.
#[derive(Debug)]
pub struct Flow {
    /// Of several entries that match, the one of the highest priority counts.
    pub priority: u16,
    /// Which packets.
    pub matching: Match,
    /// The controller's own number.
    pub cookie: u64,
    /// What is done with the packets.
    pub instructions: Instructions,
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

impl Flow {
    /// Whether it is the entry for all packets that no other entry of its table matches (OpenFlow 1.3.5, 5.4).
    #[must_use]
    pub fn is_table_miss(&self) -> bool {
        self.priority == 0 && self.matching.fields().is_empty()
    }
}

/// Fields and the bits of them that count: entries of one shape are found by one look into a hash table.
type Shape = Box<[(Field, u128)]>;

/// The entries of one shape.
#[derive(Debug, Clone)]
struct Shaped {
    shape: Shape,
    /// Entries with the same values, the highest priority first.
    entries: HashTable<Vec<Arc<Flow>>>,
    /// How many entries have each priority.
    priorities: BTreeMap<u16, usize>,
}

/// Finds entries by the packets that they match. One hash table for each shape, those with the highest priorities first,
/// until none of the rest can win.
#[derive(Debug, Clone, Default)]
pub(crate) struct Classifier {
    shapes: Vec<Shaped>,
    len: usize,
}

/// The values of an entry have their keys' hash; attackers choose packets, and cannot choose entries by them.
const HASHER: FixedState = FixedState::with_seed(0x5249_4e47_524f_4144);

fn hash(values: impl Iterator<Item = u128>) -> u64 {
    let mut hasher = HASHER.build_hasher();
    values.for_each(|value| hasher.write_u128(value));
    hasher.finish()
}

fn shape_of(matching: &Match) -> impl Iterator<Item = (Field, u128)> {
    matching.fields().iter().map(|field| (field.field, field.mask))
}

fn values_of(matching: &Match) -> impl Iterator<Item = u128> {
    matching.fields().iter().map(|field| field.value)
}

impl Shaped {
    fn top(&self) -> u16 {
        self.priorities.last_key_value().map_or(0, |(&priority, _)| priority)
    }

    fn has_shape(&self, matching: &Match) -> bool {
        self.shape.iter().copied().eq(shape_of(matching))
    }

    fn same(&self, matching: &Match) -> Option<&Vec<Arc<Flow>>> {
        self.entries.find(hash(values_of(matching)), |one| has_values(one, values_of(matching)))
    }
}

fn has_values(entries: &[Arc<Flow>], mut values: impl Iterator<Item = u128>) -> bool {
    entries.first().is_some_and(|flow| values_of(&flow.matching).all(|one| values.next() == Some(one)))
}

impl Classifier {
    pub fn len(&self) -> usize {
        self.len
    }

    /// The entry that counts for a packet.
    pub fn find(&self, packet: &Packet) -> Option<&Arc<Flow>> {
        let mut best: Option<&Arc<Flow>> = None;
        'shapes: for shaped in &self.shapes {
            if best.is_some_and(|best| best.priority >= shaped.top()) {
                break;
            }
            let mut values = [0; Field::ALL.len()];
            let mut count = 0;
            for ((field, mask), place) in shaped.shape.iter().zip(&mut values) {
                // A packet without the field matches no entry of this shape.
                let Some(value) = packet.field(*field) else { continue 'shapes };
                *place = value & mask;
                count += 1;
            }
            let values = values.get(..count).unwrap_or_default();
            let hash = hash(values.iter().copied());
            let found = shaped.entries.find(hash, |one| has_values(one, values.iter().copied()));
            if let Some(flow) = found.and_then(|entries| entries.first())
                && best.is_none_or(|best| flow.priority > best.priority)
            {
                best = Some(flow);
            }
        }
        best
    }

    /// The entry with exactly this match and priority.
    pub fn get(&self, priority: u16, matching: &Match) -> Option<&Arc<Flow>> {
        let shaped = self.shapes.iter().find(|shaped| shaped.has_shape(matching))?;
        shaped.same(matching)?.iter().find(|flow| flow.priority == priority)
    }

    /// Adds an entry, in place of one with the same match and priority.
    pub fn insert(&mut self, flow: Arc<Flow>) {
        self.remove(flow.priority, &flow.matching);
        let place =
            self.shapes.iter().position(|shaped| shaped.has_shape(&flow.matching)).unwrap_or_else(|| {
                let shape = shape_of(&flow.matching).collect();
                self.shapes.push(Shaped { shape, entries: HashTable::new(), priorities: BTreeMap::new() });
                self.shapes.len() - 1
            });
        let Some(shaped) = self.shapes.get_mut(place) else { return };
        *shaped.priorities.entry(flow.priority).or_default() += 1;
        self.len += 1;
        let key = hash(values_of(&flow.matching));
        let rehash = |entries: &Vec<Arc<Flow>>| {
            hash(entries.iter().take(1).flat_map(|flow| values_of(&flow.matching)))
        };
        let same = |entries: &Vec<Arc<Flow>>| has_values(entries, values_of(&flow.matching));
        match shaped.entries.find_mut(key, same) {
            Some(entries) => {
                let behind = entries.partition_point(|other| other.priority > flow.priority);
                entries.insert(behind, flow);
            }
            None => {
                shaped.entries.insert_unique(key, vec![flow], rehash);
            }
        }
        self.order();
    }

    /// Removes the entry with exactly this match and priority.
    pub fn remove(&mut self, priority: u16, matching: &Match) -> Option<Arc<Flow>> {
        let place = self.shapes.iter().position(|shaped| shaped.has_shape(matching))?;
        let shaped = self.shapes.get_mut(place)?;
        let key = hash(values_of(matching));
        let mut found = shaped.entries.find_entry(key, |one| has_values(one, values_of(matching))).ok()?;
        let entries = found.get_mut();
        let at = entries.iter().position(|flow| flow.priority == priority)?;
        let removed = entries.remove(at);
        if entries.is_empty() {
            found.remove();
        }
        if let Some(count) = shaped.priorities.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                shaped.priorities.remove(&priority);
            }
        }
        self.len -= 1;
        if shaped.priorities.is_empty() {
            self.shapes.remove(place);
        }
        self.order();
        Some(removed)
    }

    fn order(&mut self) {
        if !self.shapes.is_sorted_by(|one, next| one.top() >= next.top()) {
            self.shapes.sort_by_key(|shaped| std::cmp::Reverse(shaped.top()));
        }
    }

    /// All entries, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.shapes.iter().flat_map(|shaped| shaped.entries.iter().flatten())
    }
}

/// Whether every packet that `narrow` matches is matched by `wide` as well.
pub(crate) fn covers(wide: &Match, narrow: &Match) -> bool {
    wide.fields().iter().all(|wide| {
        narrow.get(wide.field).is_some_and(|narrow| {
            narrow.mask & wide.mask == wide.mask && narrow.value & wide.mask == wide.value
        })
    })
}

/// Whether one packet can be matched by both.
pub(crate) fn overlap(one: &Match, other: &Match) -> bool {
    let agrees =
        |one: &FieldMatch, other: &FieldMatch| (one.value ^ other.value) & one.mask & other.mask == 0;
    one.fields().iter().all(|field| other.get(field.field).is_none_or(|other| agrees(field, other)))
}
