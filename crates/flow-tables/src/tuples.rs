//! Hash tables of entries. Either all entries have the same mask, and one lookup finds the right entry; or the masks
//! have some bits in common, and a lookup finds a few candidates.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;
use ringroad_port::frame::prefetch_read;

use crate::batch_lookup::LANES;
use crate::flow::FlowEntry;
use crate::key::FlowKey;
use crate::packed_entry::PackedEntry;
use crate::step_budget::StepBudget;

/// Number of a shape in a hash table.
pub(crate) type ShapeNumber = u32;
/// Bucket number in a hash table, valid while the table does not change.
pub(crate) type BucketIndex = u32;

/// Random seed of the hash: a peer that chooses the addresses in a controller's entries cannot choose their buckets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed([u64; 2]);

impl Default for Seed {
    fn default() -> Self {
        let random = RandomState::new();
        Self([1u8, 2].map(|number| random.hash_one(number)))
    }
}

/// Mixes two words: both halves of a product together depend on all bits of the factors.
#[inline]
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// Hash of a few words.
#[inline]
pub(crate) fn hash(words: &[u64], Seed([first, second]): Seed) -> u64 {
    let (pairs, rest) = words.as_chunks();
    let hash = pairs.iter().fold(first, |hash, [one, other]| folded(one ^ hash, other ^ second));
    rest.iter().fold(hash, |hash, one| folded(one ^ hash, second))
}

/// Compares word by word: a call would cost more.
#[inline]
fn is_same<const N: usize>(one: &[u64; N], other: &[u64; N]) -> bool {
    one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

#[inline]
fn and<const N: usize>(words: &[u64; N], masks: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|position| words[position] & masks[position])
}

/// Shapes of the entries of a hash table.
pub(crate) trait Shapes<const N: usize> {
    /// Reference of an entry to its shape.
    type Of: Copy + PartialEq;
    fn of(shape: ShapeNumber) -> Self::Of;
    /// Mask of a shape's relevant bits; `hashed` is the mask of bits that all shapes have.
    fn masks<'shapes>(&'shapes self, shape: Self::Of, hashed: &'shapes [u64; N]) -> &'shapes [u64; N];
}

/// A single shape, all of whose bits are hashed.
#[derive(Debug, Clone, Default)]
pub(crate) struct SingleShape;

impl<const N: usize> Shapes<N> for SingleShape {
    type Of = ();

    fn of(_: ShapeNumber) {}

    fn masks<'shapes>(&'shapes self, (): (), hashed: &'shapes [u64; N]) -> &'shapes [u64; N] {
        hashed
    }
}

/// A shape among others.
#[derive(Debug, Clone)]
struct OneShape<const N: usize> {
    masks: [u64; N],
    /// Fields that not all packets have, and that the shape's entries require.
    required: u64,
}

/// Several shapes, by number.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManyShapes<const N: usize>(Vec<OneShape<N>>);

impl<const N: usize> Shapes<N> for ManyShapes<N> {
    type Of = ShapeNumber;

    fn of(shape: ShapeNumber) -> ShapeNumber {
        shape
    }

    fn masks<'shapes>(&'shapes self, shape: ShapeNumber, hashed: &'shapes [u64; N]) -> &'shapes [u64; N] {
        self.0.get(shape as usize).map_or(hashed, |shape| &shape.masks)
    }
}

/// An entry, and the key that a packet must have to match.
#[derive(Debug, Clone)]
struct Entry<const N: usize, Of> {
    key: [u64; N],
    entry: PackedEntry,
    flow: Arc<FlowEntry>,
    shape: Of,
}

/// Entries by `N` words. Of the entries with the same shape and key, only the one with the highest priority is here.
#[derive(Debug, Clone)]
pub(crate) struct Tuples<const N: usize, S: Shapes<N>> {
    /// Relevant words, and the mask of their hashed bits. Unused positions have words without relevant bits.
    words: [u8; N],
    hashed: [u64; N],
    seed: Seed,
    shapes: S,
    entries: HashTable<Entry<N, S::Of>>,
}

impl<const N: usize, S: Shapes<N> + Default> Tuples<N, S> {
    /// Makes a table for entries with at most `N` relevant words. `hashed` is the mask of bits that all entries have.
    pub fn new(words: &[u8], hashed: &FlowKey, seed: Seed) -> Self {
        let mut used = words.iter().map(|&word| (word, hashed.word(word.into())));
        let pairs: [_; N] = std::array::from_fn(|_| used.next().unwrap_or_default());
        let (words, hashed) = (pairs.map(|(word, _)| word), pairs.map(|(_, mask)| mask));
        Self { words, hashed, seed, shapes: S::default(), entries: HashTable::new() }
    }
}

impl<const N: usize, S: Shapes<N>> Tuples<N, S> {
    #[inline]
    fn words_of(&self, key: &FlowKey) -> [u64; N] {
        self.words.map(|word| key.word(word.into()))
    }

    fn key_of(&self, shape: S::Of, value: &FlowKey) -> [u64; N] {
        and(&self.words_of(value), self.shapes.masks(shape, &self.hashed))
    }

    /// Prefetches the memory that lookups of these keys need. At most [`LANES`] keys.
    pub fn fetch(&self, keys: &[FlowKey]) {
        let mut hashes = [0; LANES];
        for (hashed, key) in hashes.iter_mut().zip(keys) {
            *hashed = hash(&and(&self.words_of(key), &self.hashed), self.seed);
        }
        let hashes = hashes.iter().take(keys.len());
        // The table does not tell which address it reads first, so each bucket is read here: these loads do not wait
        // for each other.
        let last = self.entries.num_buckets() - 1;
        let there = hashes.clone().map(|&hashed| self.entries.get_bucket(hashed as usize & last).is_some());
        std::hint::black_box(there.fold(false, |any, is_there| any ^ is_there));
        for &hashed in hashes {
            self.entries.find(hashed, |entry| {
                prefetch_read(std::ptr::from_ref(&entry.key).cast());
                prefetch_read(std::ptr::from_ref(&entry.entry).cast());
                false
            });
        }
    }

    #[inline]
    pub fn at(&self, bucket: BucketIndex) -> Option<&Arc<FlowEntry>> {
        Some(&self.entries.get_bucket(bucket as usize)?.flow)
    }

    pub fn get(&self, shape: ShapeNumber, value: &FlowKey) -> Option<&Arc<FlowEntry>> {
        let shape = S::of(shape);
        let key = self.key_of(shape, value);
        let hashed = hash(&and(&key, &self.hashed), self.seed);
        self.entries.find(hashed, |entry| entry.shape == shape && entry.key == key).map(|entry| &entry.flow)
    }

    /// Stores an entry. Returns the one with the same shape and key that it replaces.
    pub fn put(
        &mut self,
        shape: ShapeNumber,
        value: &FlowKey,
        flow: Arc<FlowEntry>,
    ) -> Option<Arc<FlowEntry>> {
        let shape = S::of(shape);
        let key = self.key_of(shape, value);
        let (hashed, seed) = (self.hashed, self.seed);
        let hash_of = |key: &[u64; N]| hash(&and(key, &hashed), seed);
        let entry = Entry { key, entry: PackedEntry::of(&flow), flow, shape };
        match self.entries.find_mut(hash_of(&key), |other| other.shape == shape && other.key == key) {
            Some(other) => Some(std::mem::replace(other, entry).flow),
            None => {
                self.entries.insert_unique(hash_of(&key), entry, |other| hash_of(&other.key));
                None
            }
        }
    }

    pub fn take(&mut self, shape: ShapeNumber, value: &FlowKey) {
        let shape = S::of(shape);
        let key = self.key_of(shape, value);
        let (hashed, seed) = (self.hashed, self.seed);
        let hash_of = |key: &[u64; N]| hash(&and(key, &hashed), seed);
        let found = self.entries.find_entry(hash_of(&key), |entry| entry.shape == shape && entry.key == key);
        if let Ok(found) = found {
            found.remove();
        }
        let len = self.entries.len();
        if len < self.entries.capacity() / 4 {
            self.entries.shrink_to(2 * len, |other| hash_of(&other.key));
        }
    }

    pub fn flows(&self) -> impl Iterator<Item = &Arc<FlowEntry>> {
        self.entries.iter().map(|entry| &entry.flow)
    }
}

impl<const N: usize> Tuples<N, SingleShape> {
    /// Finds the entry for a packet.
    #[inline(always)]
    pub fn find(&self, key: &FlowKey) -> (BucketIndex, PackedEntry) {
        let key = and(&self.words_of(key), &self.hashed);
        let found = self.entries.find_bucket_index(hash(&key, self.seed), |entry| is_same(&entry.key, &key));
        let entry = found.and_then(|bucket| self.entries.get_bucket(bucket));
        match (found, entry) {
            (Some(bucket), Some(entry)) => (bucket as BucketIndex, entry.entry),
            _ => (0, PackedEntry::NOTHING),
        }
    }
}

impl<const N: usize> Tuples<N, ManyShapes<N>> {
    /// Finds the entry of the highest priority for a packet, if its rank is above `beyond`. The result has no meaning
    /// if the packet exceeds its searches ([`StepBudget::has_found`]). (Not inlined, so that a table of few shapes does
    /// not pay for it.)
    #[inline(never)]
    pub fn find(
        &self,
        key: &FlowKey,
        beyond: u32,
        steps_left: &mut StepBudget,
    ) -> (BucketIndex, PackedEntry) {
        let words = self.words_of(key);
        let hashed = hash(&and(&words, &self.hashed), self.seed);
        let (mut best, mut rank) = (PackedEntry::NOTHING, beyond);
        // All candidates are compared, because the last may have the highest rank.
        self.entries.find(hashed, |entry| {
            if !steps_left.search() {
                return true;
            }
            if entry.entry.rank() > rank
                && let Some(shape) = self.shapes.0.get(entry.shape as usize)
                && is_same(&and(&words, &shape.masks), &entry.key)
                && key.has(shape.required)
            {
                (best, rank) = (entry.entry, entry.entry.rank());
            }
            false
        });
        if !best.is_entry() {
            return (0, PackedEntry::NOTHING);
        }
        // The comparison is exact: counters are unique, and so are packed entries.
        let bucket = self.entries.find_bucket_index(hashed, |entry| entry.entry == best);
        (bucket.unwrap_or_default() as BucketIndex, best)
    }

    /// Shapes of the candidates that have the hashed bits of `value`: a lookup of one compares all of them.
    pub fn beside(&self, value: &FlowKey) -> impl Iterator<Item = ShapeNumber> {
        let key = and(&self.words_of(value), &self.hashed);
        let beside = self.entries.iter_hash(hash(&key, self.seed));
        beside.filter(move |entry| and(&entry.key, &self.hashed) == key).map(|entry| entry.shape)
    }

    /// Gives a shape this number. `words` are the relevant words of all shapes, at most `N`; some may be new.
    pub fn set_shape(&mut self, shape: ShapeNumber, mask: &FlowKey, words: &[u8]) {
        self.words.iter_mut().zip(words).for_each(|(slot, &word)| *slot = word);
        let masks =
            std::array::from_fn(|position| words.get(position).map_or(0, |&word| mask.word(word.into())));
        let one = OneShape { masks, required: mask.required() };
        match self.shapes.0.get_mut(shape as usize) {
            Some(slot) => *slot = one,
            None => self.shapes.0.push(one),
        }
    }
}
