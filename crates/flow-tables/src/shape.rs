//! Entries of one shape: they look at the same bits of the same fields, so one look into a hash table finds the right
//! one.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;
use ringroad_openflow::oxm::FieldMatch;

use crate::brief::{Brief, rank};
use crate::flow::Flow;
use crate::key::{ALWAYS, FlowKey, WORDS, Words, word};

/// An entry, and what a packet must have to be its own.
#[derive(Debug, Clone)]
struct Entry<const N: usize> {
    key: [u64; N],
    brief: Brief,
    flow: Arc<Flow>,
}

/// Secret numbers: who chooses the addresses that a controller makes entries of cannot choose places in a hash table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed([u64; 2]);

impl Default for Seed {
    fn default() -> Self {
        let random = RandomState::new();
        Self([1u8, 2].map(|number| random.hash_one(number)))
    }
}

/// Both halves of a product together depend on all bits of the factors.
#[inline]
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// The hash of a few words.
#[inline]
pub(crate) fn hash(words: &[u64], Seed([first, second]): Seed) -> u64 {
    let (pairs, rest) = words.as_chunks();
    let hash = pairs.iter().fold(first, |hash, [one, other]| folded(one ^ hash, other ^ second));
    rest.iter().fold(hash, |hash, one| folded(one ^ hash, second))
}

/// Word by word: a call would cost more.
#[inline]
fn is_same<const N: usize>(one: &[u64; N], other: &[u64; N]) -> bool {
    one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

/// Entries by `N` words. Each is the one of the highest priority with its key.
#[derive(Debug, Clone)]
struct Tuples<const N: usize> {
    /// Which words count, and which bits of them.
    words: [u8; N],
    masks: [u64; N],
    seed: Seed,
    entries: HashTable<Entry<N>>,
}

/// A place in a hash table, as long as nobody changes that.
pub(crate) type Bucket = u32;

impl<const N: usize> Tuples<N> {
    /// Words of which no bit counts fill up a shape that has fewer.
    fn new(mask: &FlowKey, seed: Seed) -> Self {
        let used = (0..word::PRESENT).map(|number| (number as u8, mask.word(number)));
        let mut used = used.filter(|&(_, mask)| mask != 0);
        let pairs: [_; N] = std::array::from_fn(|_| used.next().unwrap_or_default());
        let (words, masks) = (pairs.map(|(word, _)| word), pairs.map(|(_, mask)| mask));
        Self { words, masks, seed, entries: HashTable::new() }
    }

    #[inline]
    fn masked(&self, key: &FlowKey) -> [u64; N] {
        std::array::from_fn(|place| key.word(self.words[place].into()) & self.masks[place])
    }

    #[inline(always)]
    fn find(&self, key: &FlowKey) -> (Bucket, Brief) {
        let key = self.masked(key);
        let found = self.entries.find_bucket_index(hash(&key, self.seed), |entry| is_same(&entry.key, &key));
        let entry = found.and_then(|bucket| self.entries.get_bucket(bucket));
        match (found, entry) {
            (Some(bucket), Some(entry)) => (bucket as Bucket, entry.brief),
            _ => (0, Brief::NOTHING),
        }
    }

    #[inline]
    fn at(&self, bucket: Bucket) -> Option<&Arc<Flow>> {
        Some(&self.entries.get_bucket(bucket as usize)?.flow)
    }

    fn get(&self, key: &FlowKey) -> Option<&Arc<Flow>> {
        let key = self.masked(key);
        self.entries.find(hash(&key, self.seed), |entry| entry.key == key).map(|entry| &entry.flow)
    }

    /// Puts an entry in the place of the one with its key, and returns that.
    fn put(&mut self, key: &FlowKey, flow: Arc<Flow>) -> Option<Arc<Flow>> {
        let key = self.masked(key);
        let (hashed, seed) = (hash(&key, self.seed), self.seed);
        let entry = Entry { key, brief: Brief::of(&flow), flow };
        match self.entries.find_mut(hashed, |other| other.key == key) {
            Some(other) => Some(std::mem::replace(other, entry).flow),
            None => {
                self.entries.insert_unique(hashed, entry, |other| hash(&other.key, seed));
                None
            }
        }
    }

    fn take(&mut self, key: &FlowKey) {
        let key = self.masked(key);
        let found = self.entries.find_entry(hash(&key, self.seed), |entry| entry.key == key);
        if let Ok(found) = found {
            found.remove();
        }
        let (len, seed) = (self.entries.len(), self.seed);
        if len < self.entries.capacity() / 4 {
            self.entries.shrink_to(2 * len, |other| hash(&other.key, seed));
        }
    }

    fn flows(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.entries.iter().map(|entry| &entry.flow)
    }
}

/// A hash table for the number of words that count: an entry is as long as it must be, and in one piece.
#[derive(Debug, Clone)]
enum ByWords {
    One(Tuples<1>),
    Two(Tuples<2>),
    Three(Tuples<3>),
    Four(Tuples<4>),
    Six(Tuples<6>),
    All(Tuples<{ WORDS - 1 }>),
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
        }
    };
}

/// The entries of one shape.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    by_words: ByWords,
    /// Fields that not all packets have, and entries of this shape ask for.
    required: u64,
    /// The rank of the highest priority.
    top: u32,
    rest: Box<Rest>,
}

/// What no lookup needs.
#[derive(Debug, Clone)]
struct Rest {
    /// The bits that count, and the fields that they are of.
    mask: FlowKey,
    /// Entries behind another one with their key, the highest priority first.
    behind: BTreeMap<[u64; WORDS], Vec<Arc<Flow>>>,
    /// How many entries have each priority.
    priorities: BTreeMap<u16, usize>,
}

/// A match as two keys: of the bits that count, and of their values.
pub(crate) fn compiled(fields: impl Iterator<Item = FieldMatch>) -> (FlowKey, FlowKey) {
    let (mut mask, mut value) = (FlowKey::default(), FlowKey::default());
    for one in fields {
        mask.add(one.field, one.mask);
        value.add(one.field, one.value);
    }
    (mask, value)
}

impl Shape {
    pub fn new(mask: FlowKey, seed: Seed) -> Self {
        let words = (0..word::PRESENT).filter(|&number| mask.word(number) != 0).count();
        let by_words = match words {
            0 | 1 => ByWords::One(Tuples::new(&mask, seed)),
            2 => ByWords::Two(Tuples::new(&mask, seed)),
            3 => ByWords::Three(Tuples::new(&mask, seed)),
            4 => ByWords::Four(Tuples::new(&mask, seed)),
            5 | 6 => ByWords::Six(Tuples::new(&mask, seed)),
            _ => ByWords::All(Tuples::new(&mask, seed)),
        };
        let required = mask.word(word::PRESENT) & !ALWAYS;
        let (behind, priorities) = Default::default();
        Self { by_words, required, top: 0, rest: Box::new(Rest { mask, behind, priorities }) }
    }

    pub fn is_of(&self, mask: &FlowKey) -> bool {
        self.rest.mask == *mask
    }

    /// The rank of the highest priority.
    #[inline]
    pub fn top(&self) -> u32 {
        self.top
    }

    pub fn is_empty(&self) -> bool {
        self.rest.priorities.is_empty()
    }

    /// The words that count.
    pub fn words(&self) -> Words {
        (0..word::PRESENT).filter(|&number| self.rest.mask.word(number) != 0).map(|number| 1 << number).sum()
    }

    /// The entry of the highest priority for a packet.
    #[inline]
    pub fn find(&self, key: &FlowKey) -> (Bucket, Brief) {
        if !key.has(self.required) {
            return (0, Brief::NOTHING);
        }
        each!(&self.by_words, tuples => tuples.find(key))
    }

    /// The entry at a place.
    #[inline]
    pub fn at(&self, bucket: Bucket) -> Option<&Arc<Flow>> {
        each!(&self.by_words, tuples => tuples.at(bucket))
    }

    /// The entry with this value and priority.
    pub fn get(&self, value: &FlowKey, priority: u16) -> Option<&Arc<Flow>> {
        let first = each!(&self.by_words, tuples => tuples.get(value))?;
        if first.priority == priority {
            return Some(first);
        }
        self.rest.behind.get(value.words())?.iter().find(|flow| flow.priority == priority)
    }

    /// Adds an entry, of which there is none with this value and priority.
    pub fn insert(&mut self, value: &FlowKey, flow: Arc<Flow>) {
        *self.rest.priorities.entry(flow.priority).or_default() += 1;
        self.top = self.top.max(rank(flow.priority));
        let first = each!(&self.by_words, tuples => tuples.get(value));
        let is_first = first.is_none_or(|first| flow.priority > first.priority);
        let behind = match is_first {
            true => each!(&mut self.by_words, tuples => tuples.put(value, flow)),
            false => Some(flow),
        };
        if let Some(flow) = behind {
            let flows = self.rest.behind.entry(*value.words()).or_default();
            let at = flows.partition_point(|other| other.priority > flow.priority);
            flows.insert(at, flow);
        }
    }

    /// Puts an entry in the place of one with the same value and priority.
    pub fn replace(&mut self, value: &FlowKey, flow: Arc<Flow>) {
        let first = each!(&self.by_words, tuples => tuples.get(value));
        if first.is_some_and(|first| first.priority == flow.priority) {
            each!(&mut self.by_words, tuples => tuples.put(value, flow));
        } else if let Some(flows) = self.rest.behind.get_mut(value.words())
            && let Some(place) = flows.iter_mut().find(|other| other.priority == flow.priority)
        {
            *place = flow;
        }
    }

    /// Removes the entry with this value and priority.
    pub fn remove(&mut self, value: &FlowKey, priority: u16) -> Option<Arc<Flow>> {
        let removed = Arc::clone(self.get(value, priority)?);
        let first = each!(&self.by_words, tuples => tuples.get(value))?;
        let is_first = first.priority == priority;
        let mut next = None;
        if let Some(flows) = self.rest.behind.get_mut(value.words()) {
            let gone =
                if is_first { Some(0) } else { flows.iter().position(|flow| flow.priority == priority) };
            next = gone.map(|gone| flows.remove(gone)).filter(|_| is_first);
            if flows.is_empty() {
                self.rest.behind.remove(value.words());
            }
        }
        match next {
            Some(next) => drop(each!(&mut self.by_words, tuples => tuples.put(value, next))),
            None if is_first => each!(&mut self.by_words, tuples => tuples.take(value)),
            None => {}
        }
        if let Some(count) = self.rest.priorities.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.rest.priorities.remove(&priority);
            }
        }
        self.top = self.rest.priorities.last_key_value().map_or(0, |(&priority, _)| rank(priority));
        Some(removed)
    }

    /// All entries, in no order that means anything.
    pub fn flows(&self) -> Box<dyn Iterator<Item = &Arc<Flow>> + '_> {
        let behind = self.rest.behind.values().flatten();
        each!(&self.by_words, tuples => Box::new(tuples.flows().chain(behind)))
    }
}
