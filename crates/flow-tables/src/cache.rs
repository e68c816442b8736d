//! A worker's cache for packets whose way through the tables took many lookups: the entries found, by the words of the
//! key that any table uses.
//!
//! Its memory has a fixed size. Entries cached before a change of the tables are never used. Strangers can make it
//! useless by many different packets; then it is left alone for a while, and costs nothing.

use crate::key::{FlowKey, WORDS, Words, word};
use crate::tables::Tables;
use crate::trail::Step;
use crate::tuples::{Seed, hash};
use crate::way::Way;

/// Places that one hash has.
const WAYS: usize = 2;
const SETS: usize = 4096;
/// Paths with more steps after the first are not cached.
const MAX_STEPS: usize = 7;
/// With fewer hash tables than that, a lookup in them costs no more than one in the cache.
const LEAST_PARTS: usize = 4;
/// After this many lookups the cache's benefit is checked.
const JUDGED_AFTER: u32 = 4096;
/// The cache has no benefit if fewer than one of this many lookups hit.
const LEAST_HITS: u32 = 3;
/// This many packets bypass a cache without benefit.
const PASSED_BY: u32 = 128 * 1024;

/// What is remembered of packets with one key.
#[derive(Debug, Clone, Copy)]
struct Remembered {
    /// Of which tables; 0: nothing is remembered.
    generation: u64,
    hash: u64,
    way: Way,
    first: Step,
    /// How many steps follow.
    count: u8,
    others: [Step; MAX_STEPS],
}

/// What is known of a packet.
#[derive(Debug)]
pub(crate) enum Known<'cache> {
    /// It has the key of the one before, in the same batch.
    Last(Way),
    /// Its way, the first step of it, and the others.
    Way(Way, Step, &'cache [Step]),
    Nothing,
}

/// The words of a key that count, one after the other.
type Words16 = [u64; WORDS];

/// A worker's memory of ways through the tables.
#[derive(Debug, Default)]
pub(crate) struct WayCache {
    /// Empty until the first use.
    remembered: Box<[[Remembered; WAYS]]>,
    /// The words of each.
    words: Box<[[Words16; WAYS]]>,
    seed: Seed,
    /// Which words count, in the tables of this generation.
    generation: u64,
    used: Words,
    numbers: [u8; WORDS],
    count: usize,
    /// The words of the last packet.
    recent: Words16,
    hash: u64,
    /// Whether there was one before, in the same batch; and its way.
    last: Option<Way>,
    looks: u32,
    hits: u32,
    passes: u32,
}

impl WayCache {
    /// Begins a batch of `frames` frames. Returns whether to use the cache.
    pub fn begin(&mut self, tables: &Tables, frames: usize) -> bool {
        self.last = None;
        if tables.parts < LEAST_PARTS {
            return false;
        }
        if self.passes > 0 {
            self.passes = self.passes.saturating_sub(frames as u32);
            return false;
        }
        if self.looks >= JUDGED_AFTER {
            if self.hits < self.looks / LEAST_HITS {
                self.passes = PASSED_BY;
            }
            (self.looks, self.hits) = (0, 0);
        }
        if self.remembered.is_empty() {
            let step = Step::nothing(0);
            let (way, others) = (Way::Other, [step; MAX_STEPS]);
            let nothing = Remembered { generation: 0, hash: 0, way, first: step, count: 0, others };
            self.remembered = vec![[nothing; WAYS]; SETS].into();
            self.words = vec![[[0; WORDS]; WAYS]; SETS].into();
        }
        // Not zero, which stands for nothing.
        self.generation = tables.generation + 1;
        // The way of a packet depends on the port that it came from, even if no entry matches on it.
        let used = tables.words | 1 << word::PORTS | 1 << word::PRESENT;
        if used != self.used {
            let numbers = (0..WORDS as u8).filter(|number| used >> number & 1 != 0);
            self.count = 0;
            for (place, number) in self.numbers.iter_mut().zip(numbers) {
                *place = number;
                self.count += 1;
            }
            self.used = used;
        }
        true
    }

    /// What is known of a packet with this key.
    #[inline]
    pub fn find(&mut self, key: &FlowKey) -> Known<'_> {
        let Some(words) = self.recent.get_mut(..self.count) else { return Known::Nothing };
        let mut differs = 0;
        for (place, &number) in words.iter_mut().zip(&self.numbers) {
            let before = std::mem::replace(place, key.word(number.into()));
            differs |= *place ^ before;
        }
        if differs == 0
            && let Some(way) = self.last
        {
            return Known::Last(way);
        }
        self.last = None;
        self.hash = hash(words, self.seed);
        self.looks += 1;
        let set = self.hash as usize % SETS;
        let (Some(remembered), Some(known)) = (self.remembered.get(set), self.words.get(set)) else {
            return Known::Nothing;
        };
        for (remembered, known) in remembered.iter().zip(known) {
            // Word by word: a call would cost more.
            let differs = || {
                known.iter().zip(words.iter()).fold(0, |differs, (one, other)| differs | (one ^ other)) != 0
            };
            if remembered.generation == self.generation && remembered.hash == self.hash && !differs() {
                self.hits += 1;
                self.last = Some(remembered.way);
                let others = remembered.others.get(..usize::from(remembered.count)).unwrap_or(&[]);
                return Known::Way(remembered.way, remembered.first, others);
            }
        }
        Known::Nothing
    }

    /// Remembers the way of the packet that was not found.
    pub fn put(&mut self, way: Way, (first, others): (Step, &[Step])) {
        self.last = Some(way);
        if others.len() > MAX_STEPS {
            return;
        }
        let set = self.hash as usize % SETS;
        let (Some(remembered), Some(words)) = (self.remembered.get_mut(set), self.words.get_mut(set)) else {
            return;
        };
        // Replaces a way through other tables, if one is there; else one of the two, by a bit of the hash.
        let old = remembered.iter().position(|remembered| remembered.generation != self.generation);
        let place = old.unwrap_or((self.hash >> 63) as usize);
        let (Some(remembered), Some(words)) = (remembered.get_mut(place), words.get_mut(place)) else {
            return;
        };
        (remembered.generation, remembered.hash, remembered.way) = (self.generation, self.hash, way);
        (remembered.first, remembered.count) = (first, others.len() as u8);
        for (place, &step) in remembered.others.iter_mut().zip(others) {
            *place = step;
        }
        *words = self.recent;
    }
}
