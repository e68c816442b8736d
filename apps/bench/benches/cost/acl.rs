//! Rules like those of an access control list, made from a seed, and headers that match them. The weights are those of
//! the laboratory's `flow_set/acl_rules.py`; the random numbers differ.

use std::collections::HashSet;

/// Weights of protocols (0: any), of prefix lengths, and of classes of port ranges.
const PROTOCOLS: [(u8, u32); 4] = [(17, 84), (6, 8), (1, 2), (0, 6)];
const SOURCE_BITS: [(u32, u32); 17] = [
    (0, 12),
    (8, 2),
    (14, 2),
    (16, 8),
    (17, 2),
    (18, 3),
    (19, 3),
    (20, 4),
    (21, 4),
    (22, 4),
    (23, 5),
    (24, 16),
    (26, 3),
    (27, 4),
    (28, 4),
    (30, 4),
    (32, 22),
];
const TARGET_BITS: [(u32, u32); 17] = [
    (0, 4),
    (8, 1),
    (16, 5),
    (18, 2),
    (20, 3),
    (21, 3),
    (22, 4),
    (23, 5),
    (24, 20),
    (25, 3),
    (26, 4),
    (27, 5),
    (28, 6),
    (29, 4),
    (30, 5),
    (31, 2),
    (32, 26),
];
const SOURCE_PORTS: [(Ports, u32); 2] = [(Ports::Any, 97), (Ports::One, 3)];
const TARGET_PORTS: [(Ports, u32); 5] =
    [(Ports::Any, 20), (Ports::Upper, 4), (Ports::Lower, 1), (Ports::One, 68), (Ports::Range, 7)];
const ANY_PORT: (u16, u16) = (0, u16::MAX);
const LENGTH_PAIRS: usize = 32;
const SINGLE_PORTS: usize = 200;
const RANGES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ports {
    Any,
    Upper,
    Lower,
    One,
    Range,
}

/// A value and the mask of its bits that must match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Masked {
    pub(crate) value: u32,
    pub(crate) mask: u32,
}

/// An entry of a flow table: a protocol (0: any), addresses and ports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AclEntry {
    pub(crate) priority: u16,
    pub(crate) proto: u8,
    pub(crate) addresses: [Masked; 2],
    pub(crate) ports: [Masked; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Rule {
    proto: u8,
    addresses: [Masked; 2],
    ports: [(u16, u16); 2],
}

impl Rule {
    /// Returns the binary logarithm of the number of matching headers, which is the sort key of rules.
    fn scope_bits(&self) -> f64 {
        let addresses: u32 = self.addresses.iter().map(|one| one.mask.count_zeros()).sum();
        let ports: f64 =
            self.ports.iter().map(|(first, last)| (f64::from(*last) - f64::from(*first) + 1.0).log2()).sum();
        f64::from(addresses) + ports + if self.proto == 0 { 8.0 } else { 0.0 }
    }
}

/// Returns the fewest masks that match a range of ports and no other port.
fn port_masks((first, last): (u16, u16)) -> Vec<Masked> {
    let (mut first, last, mut found) = (u32::from(first), u32::from(last), Vec::new());
    while first <= last {
        // Largest power of two of ports that is aligned at `first` and not beyond the last port.
        let mut size = if first == 0 { 1 << 16 } else { 1 << first.trailing_zeros() };
        while first + size - 1 > last {
            size /= 2;
        }
        found.push(Masked { value: first, mask: 0x1_0000 - size });
        first += size;
    }
    found
}

/// Pseudo-random numbers (SplitMix64).
pub(crate) struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn weighted<T: Copy>(&mut self, all: &[(T, u32)], fallback: T) -> T {
        let total: u32 = all.iter().map(|(_, weight)| weight).sum();
        let mut point = self.below(total as usize) as u32;
        for &(one, weight) in all {
            if point < weight {
                return one;
            }
            point -= weight;
        }
        fallback
    }

    /// Draws an element by Zipf's law: the second half as often as the first, the third a third as often.
    fn frequent<T: Copy>(&mut self, all: &[T], fallback: T) -> T {
        let weights = (1..=all.len() as u32).map(|number| 1_000_000 / number);
        let all: Vec<(T, u32)> = all.iter().copied().zip(weights).collect();
        self.weighted(&all, fallback)
    }

    /// Draws a value that matches `one`.
    pub(crate) fn within(&mut self, one: Masked) -> u32 {
        one.value | self.next() as u32 & !one.mask
    }

    /// Puts the elements into a random order.
    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last + 1));
        }
    }

    fn prefix(&mut self, bits: u32, known: &mut Vec<u32>) -> Masked {
        let mask = |bits: u32| u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let mut address = (1 + self.below(223) as u32) << 24 | self.next() as u32 & 0xff_ffff;
        // Most addresses share a prefix with a known address. The more addresses a network has, the more it gets.
        if !known.is_empty() && self.below(10) < 8 {
            let shared = mask(8 + self.below(25) as u32);
            let other = known.get(self.below(known.len())).copied().unwrap_or_default();
            address = other & shared | address & !shared;
        }
        known.push(address);
        Masked { value: address & mask(bits), mask: mask(bits) }
    }
}

/// Makes the entries of a list of `count` rules. The entries of the first rule have the highest priority.
pub(crate) fn entries(count: usize, seed: u64) -> (Vec<AclEntry>, Draw) {
    let mut draw = Draw(seed);
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    for _ in 0..LENGTH_PAIRS {
        pairs.push((draw.weighted(&SOURCE_BITS, 0), draw.weighted(&TARGET_BITS, 0)));
    }
    let weight = |all: &[(u32, u32)], bits| all.iter().find(|one| one.0 == bits).map_or(0, |one| one.1);
    pairs.sort_by_key(|&(source, target)| {
        (std::cmp::Reverse(weight(&SOURCE_BITS, source) * weight(&TARGET_BITS, target)), source, target)
    });
    pairs.dedup();
    let mut range = |_| {
        let first = 1 + draw.below(usize::from(u16::MAX) - 2) as u16;
        (first, first.saturating_add(1 + draw.below(63) as u16))
    };
    let ranges: Vec<(u16, u16)> = (0..RANGES).map(&mut range).collect();
    let singles: Vec<u16> = (0..SINGLE_PORTS).map(|_| draw.next() as u16).collect();
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    let (mut rules, mut known, mut left) = (Vec::new(), HashSet::new(), count);
    while left > 0 {
        let proto = draw.weighted(&PROTOCOLS, 17);
        let (source, target) = draw.frequent(&pairs, (32, 32));
        let ports = |draw: &mut Draw, classes: &[(Ports, u32)]| match draw.weighted(classes, Ports::Any) {
            _ if !matches!(proto, 6 | 17) => ANY_PORT,
            Ports::Any => ANY_PORT,
            Ports::Upper => (1024, u16::MAX),
            Ports::Lower => (0, 1023),
            Ports::One => {
                let port = draw.frequent(&singles, 80);
                (port, port)
            }
            Ports::Range => draw.frequent(&ranges, ANY_PORT),
        };
        let ports = [ports(&mut draw, &SOURCE_PORTS), ports(&mut draw, &TARGET_PORTS)];
        let addresses = [draw.prefix(source, &mut sources), draw.prefix(target, &mut targets)];
        let rule = Rule { proto, addresses, ports };
        let needed: usize = ports.iter().map(|&range| port_masks(range).len()).product();
        if needed <= left && known.insert(rule) {
            rules.push(rule);
            left -= needed;
        }
    }
    rules.sort_by(|one, other| one.scope_bits().total_cmp(&other.scope_bits()));
    let entries = (0u16..).zip(&rules).flat_map(|(number, rule)| {
        let [sources, targets] = rule.ports.map(port_masks);
        let pairs: Vec<[Masked; 2]> =
            sources.iter().flat_map(|&one| targets.iter().map(move |&other| [one, other])).collect();
        pairs.into_iter().map(move |ports| AclEntry {
            priority: u16::MAX - number,
            proto: rule.proto,
            addresses: rule.addresses,
            ports,
        })
    });
    (entries.collect(), draw)
}
