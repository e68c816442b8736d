//! Number of a port in its switch.

use std::fmt;

/// Maximum number of ports of one switch; their indexes are 0 to 253 (VALE).
pub const MAX_PORTS: usize = 254;

/// Index that means all ports except the source (VALE); no port has it.
pub const BROADCAST_INDEX: PortIndex = PortIndex(254);

/// Index that means no port (VALE).
pub const NO_PORT_INDEX: PortIndex = PortIndex(255);

/// Number of a port in its switch: 0 to 253, or [`BROADCAST_INDEX`] or [`NO_PORT_INDEX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortIndex(pub u8);

impl PortIndex {
    /// Whether the index can belong to a port: it is less than [`MAX_PORTS`].
    #[inline]
    #[must_use]
    pub const fn is_port(self) -> bool {
        (self.0 as usize) < MAX_PORTS
    }
}

impl fmt::Display for PortIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Set of ports of a switch, as plans use it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortMask([u64; 4]);

impl PortMask {
    /// Set without ports.
    pub const EMPTY: Self = Self([0; 4]);

    /// Set of all ports that a switch can have.
    #[must_use]
    pub fn all() -> Self {
        (0..MAX_PORTS as u8).map(PortIndex).collect()
    }

    /// Adds a port. An index that cannot be a port is not added.
    pub fn insert(&mut self, port: PortIndex) {
        if port.is_port() {
            self.0[usize::from(port.0 >> 6)] |= 1 << (port.0 & 63);
        }
    }

    /// Removes a port.
    pub fn remove(&mut self, port: PortIndex) {
        self.0[usize::from(port.0 >> 6)] &= !(1 << (port.0 & 63));
    }

    /// Whether the port is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, port: PortIndex) -> bool {
        self.0[usize::from(port.0 >> 6)] >> (port.0 & 63) & 1 != 0
    }

    /// Number of ports in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Set of the indexes whose bits are set in four words of 64 bits each; indexes that cannot be ports are left out.
    #[inline]
    #[must_use]
    pub const fn from_words([first, second, third, fourth]: [u64; 4]) -> Self {
        Self([first, second, third, fourth & (u64::MAX >> (256 - MAX_PORTS))])
    }

    /// Ports in either set.
    #[inline]
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.with(other, |own, other| own | other)
    }

    /// Ports in both sets.
    #[inline]
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.with(other, |own, other| own & other)
    }

    /// Ports of this set that are not in the other set.
    #[inline]
    #[must_use]
    pub fn but(self, other: Self) -> Self {
        self.with(other, |own, other| own & !other)
    }

    #[inline]
    fn with(mut self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own = of(*own, other));
        self
    }

    /// The ports in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = PortIndex> + use<> {
        (0u8..4).zip(self.0).flat_map(|(group, mut word)| {
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros() as u8;
                word &= word.checked_sub(1)?;
                Some(PortIndex(group * 64 + bit))
            })
        })
    }
}

impl FromIterator<PortIndex> for PortMask {
    fn from_iter<Ports: IntoIterator<Item = PortIndex>>(ports: Ports) -> Self {
        let mut mask = Self::default();
        ports.into_iter().for_each(|port| mask.insert(port));
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_exactly_the_ports_inserted_and_not_removed() {
        let mut mask: PortMask = [253, 0, 64, 63, 0, 254, 255].map(PortIndex).into_iter().collect();
        assert_eq!(mask.iter().map(|port| port.0).collect::<Vec<_>>(), [0, 63, 64, 253]);
        assert_eq!(mask.len(), 4);
        mask.remove(PortIndex(63));
        assert!(!mask.contains(PortIndex(63)) && mask.contains(PortIndex(64)));
        [0, 64, 253].into_iter().for_each(|port| mask.remove(PortIndex(port)));
        assert!(mask.is_empty());
    }

    #[test]
    fn masks_are_joined_and_parted() {
        let mask = |ports: &[u8]| ports.iter().copied().map(PortIndex).collect::<PortMask>();
        let (one, other) = (mask(&[0, 64, 200]), mask(&[64, 253]));
        assert_eq!(one.or(other), mask(&[0, 64, 200, 253]));
        assert_eq!(one.and(other), mask(&[64]));
        assert_eq!(one.but(other), mask(&[0, 200]));
        assert_eq!(PortMask::from_words([u64::MAX; 4]), PortMask::all());
    }
}
