//! A worker's cache for packets that took many lookups: the entries found, by those words of the key that any table
//! uses.
//!
//! The cache's memory has a fixed size. Entries cached before a change of the tables are never used. Senders can make
//! the cache useless by many different packets; then workers bypass it for a while, at no cost.

use crate::fast_path::FastOutcome;
use crate::key::{FlowKey, WORDS, Words, word};
use crate::lookup_cache::Step;
use crate::tables::Tables;
use crate::tuples::{Seed, hash};

/// Number of entries per hash value.
const WAYS: usize = 2;
const SETS: usize = 4096;
/// Maximum number of steps after the first. Longer paths are not cached.
const MAX_STEPS: usize = 7;
/// Minimum number of hash tables in use: with fewer, a lookup in them costs no more than a lookup in the cache.
const LEAST_PARTS: usize = 4;
/// Number of lookups after which the cache's benefit is checked.
const JUDGED_AFTER: u32 = 4096;
/// Minimum hit rate, as its reciprocal: the cache has no benefit if fewer than one of this many lookups hit.
const LEAST_HITS: u32 = 3;
/// Number of packets that bypass a cache without benefit.
const PASSED_BY: u32 = 128 * 1024;

/// Cached outcome of packets with one key.
#[derive(Debug, Clone, Copy)]
struct CacheEntry {
    /// Generation of the tables that the outcome is from; 0 if the entry is empty.
    generation: u64,
    hash: u64,
    fast_outcome: FastOutcome,
    first: Step,
    /// Number of steps after the first.
    count: u8,
    others: [Step; MAX_STEPS],
}

/// Result of a query to the cache.
#[derive(Debug)]
pub(crate) enum Known<'cache> {
    /// The key is that of the previous packet, in the same batch.
    Last(FastOutcome),
    /// The outcome, the first step, and the other steps.
    Way(FastOutcome, Step, &'cache [Step]),
    Nothing,
}

/// Relevant words of a key, packed to the front.
type Words16 = [u64; WORDS];

/// A worker's cache of outcomes, by key.
#[derive(Debug, Default)]
pub(crate) struct ExactMatchCache {
    /// Entries; empty until the first use.
    remembered: Box<[[CacheEntry; WAYS]]>,
    /// Key words of each entry.
    words: Box<[[Words16; WAYS]]>,
    seed: Seed,
    /// Generation of the tables for which `used` lists the relevant words.
    generation: u64,
    used: Words,
    numbers: [u8; WORDS],
    count: usize,
    /// Words of the last packet.
    recent: Words16,
    hash: u64,
    /// Outcome of the previous packet, if there was one in the same batch.
    last: Option<FastOutcome>,
    lookups: u32,
    hits: u32,
    passes: u32,
}

impl ExactMatchCache {
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
        if self.lookups >= JUDGED_AFTER {
            if self.hits < self.lookups / LEAST_HITS {
                self.passes = PASSED_BY;
            }
            (self.lookups, self.hits) = (0, 0);
        }
        if self.remembered.is_empty() {
            let step = Step::nothing(0);
            let (fast_outcome, others) = (FastOutcome::Other, [step; MAX_STEPS]);
            let nothing = CacheEntry { generation: 0, hash: 0, fast_outcome, first: step, count: 0, others };
            self.remembered = vec![[nothing; WAYS]; SETS].into();
            self.words = vec![[[0; WORDS]; WAYS]; SETS].into();
        }
        // Zero stands for an empty entry, so the numbers begin at one.
        self.generation = tables.generation + 1;
        // The port is always a part of the key: outcomes depend on it, even if no entry matches on it.
        let used = tables.words | 1 << word::PORTS | 1 << word::PRESENT;
        if used != self.used {
            let numbers = (0..WORDS as u8).filter(|number| used >> number & 1 != 0);
            self.count = 0;
            for (slot, number) in self.numbers.iter_mut().zip(numbers) {
                *slot = number;
                self.count += 1;
            }
            self.used = used;
        }
        true
    }

    /// Queries the outcome of a packet with this key.
    #[inline]
    pub fn find(&mut self, key: &FlowKey) -> Known<'_> {
        let Some(words) = self.recent.get_mut(..self.count) else { return Known::Nothing };
        let mut differs = 0;
        for (word, &number) in words.iter_mut().zip(&self.numbers) {
            let before = std::mem::replace(word, key.word(number.into()));
            differs |= *word ^ before;
        }
        if differs == 0
            && let Some(fast_outcome) = self.last
        {
            return Known::Last(fast_outcome);
        }
        self.last = None;
        self.hash = hash(words, self.seed);
        self.lookups += 1;
        let set = self.hash as usize % SETS;
        let (Some(remembered), Some(known)) = (self.remembered.get(set), self.words.get(set)) else {
            return Known::Nothing;
        };
        for (remembered, known) in remembered.iter().zip(known) {
            // Comparison word by word: a call would cost more.
            let differs = || {
                known.iter().zip(words.iter()).fold(0, |differs, (one, other)| differs | (one ^ other)) != 0
            };
            if remembered.generation == self.generation && remembered.hash == self.hash && !differs() {
                self.hits += 1;
                self.last = Some(remembered.fast_outcome);
                let others = remembered.others.get(..usize::from(remembered.count)).unwrap_or(&[]);
                return Known::Way(remembered.fast_outcome, remembered.first, others);
            }
        }
        Known::Nothing
    }

    /// Stores the outcome of the last packet, which was not found.
    pub fn put(&mut self, fast_outcome: FastOutcome, (first, others): (Step, &[Step])) {
        self.last = Some(fast_outcome);
        if others.len() > MAX_STEPS {
            return;
        }
        let set = self.hash as usize % SETS;
        let (Some(remembered), Some(words)) = (self.remembered.get_mut(set), self.words.get_mut(set)) else {
            return;
        };
        // Replaces an entry from an earlier generation, if there is one; else one of the two, chosen by a bit of the
        // hash.
        let old = remembered.iter().position(|remembered| remembered.generation != self.generation);
        let way_index = old.unwrap_or((self.hash >> 63) as usize);
        let (Some(remembered), Some(words)) = (remembered.get_mut(way_index), words.get_mut(way_index))
        else {
            return;
        };
        (remembered.generation, remembered.hash, remembered.fast_outcome) =
            (self.generation, self.hash, fast_outcome);
        (remembered.first, remembered.count) = (first, others.len() as u8);
        for (slot, &step) in remembered.others.iter_mut().zip(others) {
            *slot = step;
        }
        *words = self.recent;
    }
}
