//! Table of addresses, with the port on which each was last seen.
//!
//! # Layout
//! The table is a power of two of sets, each half a cache line of four entries. An address belongs to one set, chosen
//! by a keyed hash. An entry is one atomic word, so it is read and replaced whole:
//!
//! | bits | content |
//! |---|---|
//! | 0..8 | tick at which the address was last seen |
//! | 8..16 | index of the port |
//! | 16..64 | the complement of the address, first octet least significant |
//!
//! The set of an address also identifies its VLAN: the address chooses a set, and the VLAN's number is added to that
//! set's number without carry. So addresses of one VLAN are spread over the sets as without VLANs, and an address in
//! two VLANs is in two sets. Address and set together identify the VLAN, if there are at least as many sets as VLAN
//! numbers ([`MacTableConfig::LEAST_ENTRIES_FOR_VLANS`]). VLAN 0 stands for no VLAN.
//!
//! An all-zero word is an empty entry. It reads as the broadcast address, which is never learned or looked up: no entry
//! in use is zero, and an empty one matches no address. The exclusive-or of an entry and the word of an address, its
//! lower 16 bits zero, is less than 2^16 exactly if the entry is that address's, and then equals its port and tick. A
//! lookup takes the least of the four values, without a branch that depends on the entry's position in the set.
//!
//! # Threads
//! Any thread may call any method at any time. Entries are independent facts that publish no other memory, so all
//! accesses are relaxed. Entries change by compare-exchange only, tried at most twice: a sweep cannot clear an entry
//! that was refreshed meanwhile, and no thread overwrites a value that it has not read. A learner that fails twice
//! gives up; the next frame of that source tries again. In steady state nothing is stored: a refresh stores only if the
//! tick or the port changed, so an address costs one store a tick, and cache lines stay shared between cores.
//!
//! Two threads that learn the same address at the same moment, while a third one empties entries of the set, can leave
//! it in two entries. This is harmless: both entries were just seen, and all lookups take the same entry (lower port,
//! then lower tick). The learner that next changes one entry clears the other, one tick later at the latest if the
//! address is still in use. An address not in use ages out of both.
//!
//! # Time
//! The caller counts ticks in a wrapping byte. An entry more than `ageing_ticks` old is not returned and not counted as
//! evicted, and [`MacTable::sweep`] clears it. Called at each tick, it clears an entry at the age of `ageing_ticks` +
//! 1, which is at most 201. An entry would seem young again from an age of 240 on, so 39 sweeps in a row may be missed.
//! Ages from 240 up count as 0: their reader has read the clock a moment before their writer.

use std::fmt;
use std::hint::select_unpredictable;
use std::sync::atomic::{AtomicU64, Ordering};

use ringroad_port::port_index::PortIndex;
use ringroad_wire::mac::Mac;

use crate::static_addresses::StaticAddresses;

/// Number of entries of a set. Sets of eight take about a third longer per frame. A table twice as large with sets of
/// four has as few addresses without an entry.
const WAYS: usize = 4;

/// Number of possible VLAN numbers in a tag.
const VLAN_NUMBERS: usize = 4096;

/// Smallest age that means that the writing thread's clock was ahead of the reader's.
const AHEAD_OF_CLOCK_TICKS: u8 = 240;

/// 2^64 divided by the golden ratio: an odd number whose multiples spread evenly.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// Time of the caller: a counter that wraps after 255. The caller chooses the length of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tick(pub u8);

/// Size, ageing and key of a [`MacTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacTableConfig {
    /// Number of entries, a power of two from [`Self::MIN_ENTRIES`] to [`Self::MAX_ENTRIES`]; 8 bytes each.
    pub entries: usize,
    /// Age in ticks up to which an entry is used, from 1 to [`Self::MAX_AGEING_TICKS`].
    pub ageing_ticks: u8,
    /// Secret of the hash, random for each table: without it a sender cannot choose addresses of one set.
    pub hash_key: u64,
}

impl MacTableConfig {
    /// Smallest number of entries: one set.
    pub const MIN_ENTRIES: usize = WAYS;
    /// Smallest number of entries of a table that distinguishes VLANs.
    pub const LEAST_ENTRIES_FOR_VLANS: usize = WAYS * VLAN_NUMBERS;
    /// Largest number of entries: 8 MiB.
    pub const MAX_ENTRIES: usize = 1 << 20;
    /// Default number of entries: 128 KiB. With 4096 addresses fewer than 1 in 100 have no entry.
    pub const DEFAULT_ENTRIES: usize = 16384;
    /// Longest ageing, in ticks.
    pub const MAX_AGEING_TICKS: u8 = 200;
    /// Default ageing, in ticks: with ticks of 5 s the 300 s that IEEE 802.1Q recommends.
    pub const DEFAULT_AGEING_TICKS: u8 = 60;

    /// Default size and ageing, with the caller's random key.
    #[must_use]
    pub const fn new(hash_key: u64) -> Self {
        Self { entries: Self::DEFAULT_ENTRIES, ageing_ticks: Self::DEFAULT_AGEING_TICKS, hash_key }
    }
}

/// Reason why a table cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MacTableError {
    /// The number of entries is not a power of two or is out of range.
    #[error(
        "a MAC table cannot have {0} entries: choose a power of two from {min} to {max}",
        min = MacTableConfig::MIN_ENTRIES,
        max = MacTableConfig::MAX_ENTRIES
    )]
    Entries(usize),
    /// The ageing is out of range.
    #[error(
        "a MAC table cannot age in {0} ticks: choose 1 to {max} and make ticks longer or shorter",
        max = MacTableConfig::MAX_AGEING_TICKS
    )]
    AgeingTicks(u8),
}

/// One entry as [`MacTable::entries`] reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MacEntry {
    /// The address.
    pub mac: Mac,
    /// VLAN in which the address was seen; 0 for none.
    pub vlan: u16,
    /// Port on which the address was last seen.
    pub port: PortIndex,
    /// Number of ticks since the address was last seen.
    pub age_ticks: u8,
    /// Whether the address was set by [`MacTable::set_static`], and not learned.
    pub is_static: bool,
}

/// Word of an entry, in the layout of the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) const EMPTY: Self = Self(0);

    /// Makes the word of an entry. It is not the empty entry if `mac` is not multicast.
    #[inline]
    pub(crate) fn new(mac: Mac, port: PortIndex, seen: Tick) -> Self {
        Self(!mac.bits() << 16 | u64::from(port.0) << 8 | u64::from(seen.0))
    }

    #[inline]
    fn mac(self) -> Mac {
        Mac::from_bits(!self.0 >> 16)
    }

    #[inline]
    fn port(self) -> PortIndex {
        PortIndex((self.0 >> 8) as u8)
    }

    #[inline]
    fn seen(self) -> Tick {
        Tick(self.0 as u8)
    }

    #[inline]
    fn age_ticks(self, now: Tick) -> u8 {
        let age = now.0.wrapping_sub(self.seen().0);
        if age >= AHEAD_OF_CLOCK_TICKS { 0 } else { age }
    }
}

#[repr(align(32))]
#[derive(Default)]
struct Set([AtomicU64; WAYS]);

impl Set {
    #[inline]
    fn load(&self) -> [Entry; WAYS] {
        self.0.each_ref().map(|word| Entry(word.load(Ordering::Relaxed)))
    }

    /// Smallest exclusive-or of `word` and an entry. Without a branch, since the position in the set is random.
    #[inline]
    fn nearest(&self, word: u64) -> u64 {
        let [a, b, c, d] = self.load().map(|entry| entry.0 ^ word);
        let least = |one: u64, other: u64| select_unpredictable(one < other, one, other);
        least(least(a, b), least(c, d))
    }

    #[inline]
    fn replace(&self, way: usize, old: Entry, new: Entry) -> bool {
        self.0.get(way).is_some_and(|word| replace(word, old, new))
    }
}

#[inline]
fn replace(word: &AtomicU64, old: Entry, new: Entry) -> bool {
    word.compare_exchange(old.0, new.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// The addresses of a switch and their ports, shared by all its workers. See the [module](self).
pub struct MacTable {
    sets: Box<[Set]>,
    hash_keys: (u64, u64),
    ageing_ticks: u8,
    evictions: AtomicU64,
    statics: StaticAddresses,
}

impl MacTable {
    /// An empty table.
    ///
    /// # Errors
    /// [`MacTableError`] if the size or the ageing is out of range.
    pub fn new(config: MacTableConfig) -> Result<Self, MacTableError> {
        let MacTableConfig { entries, ageing_ticks, hash_key } = config;
        if !entries.is_power_of_two()
            || !(MacTableConfig::MIN_ENTRIES..=MacTableConfig::MAX_ENTRIES).contains(&entries)
        {
            return Err(MacTableError::Entries(entries));
        }
        if !(1..=MacTableConfig::MAX_AGEING_TICKS).contains(&ageing_ticks) {
            return Err(MacTableError::AgeingTicks(ageing_ticks));
        }
        Ok(Self {
            sets: (0..entries / WAYS).map(|_| Set::default()).collect(),
            hash_keys: (splitmix(hash_key), splitmix(!hash_key) | 1),
            ageing_ticks,
            evictions: AtomicU64::new(0),
            statics: StaticAddresses::default(),
        })
    }

    /// Port on which `mac` was last seen; `None` if the entry has expired or was forgotten. A multicast address is on
    /// no port.
    #[inline]
    #[must_use]
    pub fn lookup(&self, mac: Mac, now: Tick) -> Option<PortIndex> {
        self.lookup_in(0, mac, now)
    }

    /// Looks up an address in a VLAN, as [`Self::lookup`] does without one.
    #[inline]
    #[must_use]
    pub fn lookup_in(&self, vlan: u16, mac: Mac, now: Tick) -> Option<PortIndex> {
        if mac.is_multicast() {
            return None;
        }
        let found = self.set_of(vlan, mac)?.nearest(Entry::new(mac, PortIndex(0), Tick(0)).0);
        let entry = Entry(found);
        (found < 1 << 16 && entry.age_ticks(now) <= self.ageing_ticks).then(|| entry.port())
    }

    /// Notes that `mac` was seen on `port`; replaces the earlier entry of `mac`.
    ///
    /// In a full set the entry that was seen longest ago makes room: an expired one if there is one; of equally old
    /// entries, the last one. A multicast address and an index that cannot be a port are not learned.
    pub fn learn(&self, mac: Mac, port: PortIndex, now: Tick) {
        self.learn_in(0, mac, port, now);
    }

    /// Learns an address in a VLAN, as [`Self::learn`] does without one.
    pub fn learn_in(&self, vlan: u16, mac: Mac, port: PortIndex, now: Tick) {
        if port.is_port() && !mac.is_multicast() {
            self.learn_entry(vlan, mac, Entry::new(mac, port, now), now);
        }
    }

    /// Works as [`Self::learn_in`], for addresses and ports that can be learned; `entry` is the entry of `mac` at
    /// `now`.
    #[inline]
    pub(crate) fn learn_entry(&self, vlan: u16, mac: Mac, entry: Entry, now: Tick) {
        if let Some(set) = self.set_of(vlan, mac)
            && set.nearest(entry.0) != 0
        {
            self.change_set(set, mac, entry, now);
        }
    }

    /// Puts `mac` onto `port`, where it stays in all VLANs: it does not age, and frames do not move it. A multicast
    /// address and an index that cannot be a port are ignored.
    pub fn set_static(&self, mac: Mac, port: PortIndex, now: Tick) {
        if port.is_port() && !mac.is_multicast() {
            self.statics.set(mac, port);
            self.learn(mac, port, now);
        }
    }

    /// Forgets a static address. Returns false if the address was not static.
    pub fn unset_static(&self, mac: Mac) -> bool {
        let was = self.statics.unset(mac);
        if was {
            self.clear(|entry| entry.mac() == mac);
        }
        was
    }

    /// Port of `mac`, if the address is static.
    #[inline]
    #[must_use]
    pub fn static_port(&self, mac: Mac) -> Option<PortIndex> {
        self.statics.port_of(mac)
    }

    /// Whether the table distinguishes addresses of several VLANs.
    #[must_use]
    pub fn has_vlans(&self) -> bool {
        self.sets.len() >= VLAN_NUMBERS
    }

    /// Number of times that a frame came from a static address on another port than the address's.
    #[must_use]
    pub fn refused_moves(&self) -> u64 {
        self.statics.refused_moves()
    }

    /// Clears expired entries; returns their number. The caller calls this at each tick.
    pub fn sweep(&self, now: Tick) -> usize {
        for (mac, port) in self.statics.all() {
            self.learn(mac, port, now);
        }
        self.clear(|entry| entry.age_ticks(now) > self.ageing_ticks)
    }

    /// Forgets all addresses on `port`, also static ones; returns their number.
    ///
    /// A worker that still classifies frames of this port may learn from them afterwards. So before another port gets
    /// the index, make sure that no worker has the old port any more, then call this.
    pub fn forget_port(&self, port: PortIndex) -> usize {
        self.statics.unset_port(port);
        self.clear(|entry| entry.port() == port)
    }

    /// Forgets learned addresses, only those on `port` if one is given; returns their number.
    pub fn forget_learned(&self, port: Option<PortIndex>) -> usize {
        let is_meant = |entry: Entry| port.is_none_or(|port| entry.port() == port);
        self.clear(|entry| is_meant(entry) && self.statics.port_of(entry.mac()).is_none())
    }

    /// Entries that have not expired, in no order. Each is read when the iterator reaches it: an address that moves or
    /// is relearned meanwhile may be missed.
    pub fn entries(&self, now: Tick) -> impl Iterator<Item = MacEntry> + '_ {
        let words =
            self.sets.iter().enumerate().flat_map(|(set, words)| words.0.iter().map(move |word| (set, word)));
        words.filter_map(move |(set, word)| {
            let entry = Entry(word.load(Ordering::Relaxed));
            let age_ticks = entry.age_ticks(now);
            (entry != Entry::EMPTY && age_ticks <= self.ageing_ticks).then(|| MacEntry {
                mac: entry.mac(),
                vlan: if self.has_vlans() { (set ^ self.set_index(entry.mac())) as u16 } else { 0 },
                port: entry.port(),
                age_ticks,
                is_static: self.static_port(entry.mac()).is_some(),
            })
        })
    }

    /// Number of entries in use, including expired ones that are not yet swept. Reads the whole table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words().filter(|word| word.load(Ordering::Relaxed) != Entry::EMPTY.0).count()
    }

    /// Whether no entry is in use. Reads the table up to the first entry in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words().all(|word| word.load(Ordering::Relaxed) == Entry::EMPTY.0)
    }

    /// Number of addresses for which the table has room.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Number of addresses that lost their entry to other addresses before they expired, since the table was made. A
    /// large number means that the table is too small, or that a sender invents addresses.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    #[cold]
    #[inline(never)]
    fn change_set(&self, set: &Set, mac: Mac, entry: Entry, now: Tick) {
        let entry = match self.statics.port_of(mac) {
            Some(port) if port != entry.port() => {
                self.statics.refuse_move();
                Entry::new(mac, port, now)
            }
            _ => entry,
        };
        for _attempt in 0..2 {
            let entries = set.load();
            // Order of replacement: the address's own entry, an empty one, the oldest one (expired ones are the
            // oldest), and last a static one.
            let rank = |known: Entry| match known {
                known if known.mac() == mac => u16::MAX,
                Entry::EMPTY => u16::MAX - 1,
                known if self.statics.port_of(known.mac()).is_some() => 0,
                known => 1 + u16::from(known.age_ticks(now)),
            };
            let ranked = entries.into_iter().enumerate().max_by_key(|&(_, known)| rank(known));
            let Some((way, old)) = ranked else { return };
            let is_known = old.mac() == mac;
            if is_known && old.port() == entry.port() && old.age_ticks(now) == 0 {
                return;
            }
            if !set.replace(way, old, entry) {
                continue;
            }
            if !is_known && old != Entry::EMPTY && old.age_ticks(now) <= self.ageing_ticks {
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
            for (other, known) in entries.into_iter().enumerate() {
                if other != way && known.mac() == mac {
                    set.replace(other, known, Entry::EMPTY);
                }
            }
            return;
        }
    }

    fn clear(&self, is_unwanted: impl Fn(Entry) -> bool) -> usize {
        self.words()
            .filter(|word| {
                let entry = Entry(word.load(Ordering::Relaxed));
                entry != Entry::EMPTY && is_unwanted(entry) && replace(word, entry, Entry::EMPTY)
            })
            .count()
    }

    fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        self.sets.iter().flat_map(|set| &set.0)
    }

    /// Number of an address's set without a VLAN. The result depends on the key by the widening multiplication, whose
    /// halves are folded. A second multiplication follows, because with an unlucky key the first one alone puts
    /// sequential addresses into few sets.
    #[inline]
    fn set_index(&self, mac: Mac) -> usize {
        let (mask, factor) = self.hash_keys;
        let product = u128::from(mac.bits() ^ mask) * u128::from(factor);
        let folded = product as u64 ^ (product >> 64) as u64;
        (folded.wrapping_mul(GOLDEN_RATIO) >> 40) as usize & self.sets.len().wrapping_sub(1)
    }

    /// The set of an address in a VLAN; always present if the table distinguishes VLANs.
    #[inline]
    fn set_of(&self, vlan: u16, mac: Mac) -> Option<&Set> {
        self.sets.get(self.set_index(mac) ^ usize::from(vlan))
    }
}

impl fmt::Debug for MacTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MacTable")
            .field("capacity", &self.capacity())
            .field("ageing_ticks", &self.ageing_ticks)
            .field("evictions", &self.evictions())
            .finish_non_exhaustive()
    }
}

/// The output function of SplitMix64 (Steele, Lea, Flood 2014): makes well-mixed words from any key, even a poor one.
fn splitmix(key: u64) -> u64 {
    let mut word = key.wrapping_add(GOLDEN_RATIO);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests;
