//! Set of a switch's ports, readable by workers while the control thread changes it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use ringroad_port::port_index::{PortIndex, PortMask};

/// A set of port indexes: 256 bits; the two that are not ports stay clear.
///
/// Any thread may read or change it at any time. A change does not order other memory (all accesses are relaxed): data
/// that belongs to a port must be published to readers by other means.
#[derive(Default)]
pub struct PortSet([AtomicU64; 4]);

impl PortSet {
    /// A set without ports.
    #[must_use]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 4])
    }

    /// Adds a port; returns whether it was not in the set before. An index that cannot be a port is not added.
    pub fn insert(&self, port: PortIndex) -> bool {
        let (word, bit) = self.word_and_bit(port);
        port.is_port() && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Removes a port; returns whether it was in the set before.
    pub fn remove(&self, port: PortIndex) -> bool {
        let (word, bit) = self.word_and_bit(port);
        word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// Whether the port is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, port: PortIndex) -> bool {
        let (word, bit) = self.word_and_bit(port);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// The ports in ascending order, as of this call. Each group of 64 indexes is read in one moment, the four groups
    /// one after another.
    pub fn iter(&self) -> impl Iterator<Item = PortIndex> + use<> {
        self.mask().iter()
    }

    /// Current ports, as a mask.
    #[inline]
    #[must_use]
    pub fn mask(&self) -> PortMask {
        PortMask::from_words(self.0.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Number of ports in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mask().len()
    }

    /// Whether no port is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn word_and_bit(&self, port: PortIndex) -> (&AtomicU64, u64) {
        (&self.0[usize::from(port.0 >> 6)], 1 << (port.0 & 63))
    }
}

impl fmt::Debug for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|port| port.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use ringroad_port::port_index::{BROADCAST_INDEX, MAX_PORTS, NO_PORT_INDEX};

    use super::*;

    #[test]
    fn a_port_is_in_the_set_from_insertion_to_removal() {
        let ports = PortSet::new();
        assert!(ports.is_empty());
        for index in [0, 63, 64, 127, 128, 191, 192, 253] {
            let port = PortIndex(index);
            assert!(!ports.contains(port));
            assert!(ports.insert(port));
            assert!(!ports.insert(port), "already there");
            assert!(ports.contains(port));
            assert_eq!(ports.iter().collect::<Vec<_>>(), [port]);
            assert!(ports.remove(port));
            assert!(!ports.remove(port), "already gone");
            assert!(!ports.contains(port));
        }
    }

    #[test]
    fn every_port_index_fits_and_iterates_in_order() {
        let ports = PortSet::new();
        for index in (0..=255).rev() {
            assert_eq!(ports.insert(PortIndex(index)), index <= 253);
        }
        assert_eq!(ports.len(), MAX_PORTS);
        assert!(ports.iter().map(|port| port.0).eq(0..=253));
        assert_eq!(ports.mask(), PortMask::all());
        assert!(!ports.contains(BROADCAST_INDEX));
        assert!(!ports.contains(NO_PORT_INDEX));
    }

    #[test]
    fn changes_by_two_threads_in_one_word_are_both_kept() {
        let ports = PortSet::new();
        std::thread::scope(|scope| {
            for parity in 0..2 {
                let ports = &ports;
                scope.spawn(move || {
                    for round in 0..1001 {
                        for index in (0..64).filter(|index| index % 2 == parity) {
                            if round % 2 == 0 {
                                assert!(ports.insert(PortIndex(index)));
                            } else {
                                assert!(ports.remove(PortIndex(index)));
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(ports.len(), 64);
    }
}
