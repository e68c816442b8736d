//! Ethernet addresses, in the form in which the switch reads, compares and stores them.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The 48 bits that an address takes of a word.
const ADDRESS_BITS: u64 = 0xffff_ffff_ffff;

/// A 48-bit Ethernet address (IEEE 802, EUI-48).
///
/// The first octet on the wire is the least significant of the word, and the upper 16 bits are zero. So on a
/// little-endian machine an address is read from a frame by one 8-byte load and one mask, and the group bit is bit 0.
///
/// Addresses order as their octets do on the wire and in print.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mac(u64);

impl Mac {
    /// ff:ff:ff:ff:ff:ff, all stations.
    pub const BROADCAST: Self = Self(ADDRESS_BITS);

    /// The address whose octets are the first six bytes in memory of `word`, a native-endian load of eight bytes. The
    /// last two bytes are ignored.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(u64::from_le(word) & ADDRESS_BITS)
    }

    /// The address with these octets, in wire order.
    #[inline]
    #[must_use]
    pub const fn from_octets(octets: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = octets;
        Self(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    /// The octets in wire order.
    #[inline]
    #[must_use]
    pub const fn octets(self) -> [u8; 6] {
        let [a, b, c, d, e, f, _, _] = self.0.to_le_bytes();
        [a, b, c, d, e, f]
    }

    /// Whether the group bit is set: multicast, broadcast included.
    #[inline]
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0 & 1 != 0
    }

    /// The lower 48 bits of a word, first octet least significant; the upper 16 are zero.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Self::bits`]; the upper 16 bits are ignored.
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits & ADDRESS_BITS)
    }
}

/// A text that is not an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacError;

impl fmt::Display for MacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an Ethernet address: write six octets, such as 02:00:00:00:00:01")
    }
}

impl std::error::Error for MacError {}

impl FromStr for Mac {
    type Err = MacError;

    /// Six octets of two hexadecimal digits, between colons or between hyphens.
    fn from_str(text: &str) -> Result<Self, MacError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts
                .next()
                .filter(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()));
            *octet = part.and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or(MacError)?;
        }
        if parts.next().is_some() { Err(MacError) } else { Ok(Self::from_octets(octets)) }
    }
}

impl From<[u8; 6]> for Mac {
    fn from(octets: [u8; 6]) -> Self {
        Self::from_octets(octets)
    }
}

impl From<Mac> for [u8; 6] {
    fn from(mac: Mac) -> Self {
        mac.octets()
    }
}

impl Ord for Mac {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.swap_bytes().cmp(&other.0.swap_bytes())
    }
}

impl PartialOrd for Mac {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Mac {
    /// Six pairs of lower-case hexadecimal digits with colons between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.octets();
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_survive_every_form() {
        let octets = [0x02, 0x34, 0x56, 0x78, 0x9a, 0xbc];
        let mac = Mac::from(octets);
        assert_eq!(<[u8; 6]>::from(mac), octets);
        assert_eq!(mac.to_string(), "02:34:56:78:9a:bc");
        assert_eq!(Mac::from_bits(mac.bits()), mac);
        let [a, b, c, d, e, f] = octets;
        assert_eq!(Mac::from_word(u64::from_ne_bytes([a, b, c, d, e, f, 0xff, 0xee])), mac);
    }

    #[test]
    fn only_the_group_bit_makes_an_address_multicast() {
        assert!(Mac::BROADCAST.is_multicast());
        assert!(Mac::from([0x01, 0x80, 0xc2, 0, 0, 0]).is_multicast());
        assert!(Mac::from([0x33, 0x33, 0, 0, 0, 1]).is_multicast());
        assert!(!Mac::from([0x02, 0xff, 0xff, 0xff, 0xff, 0xff]).is_multicast());
        assert!(!Mac::from([0xfe, 1, 1, 1, 1, 1]).is_multicast());
        assert!(!Mac::default().is_multicast());
    }

    #[test]
    fn addresses_order_by_their_first_octet_first() {
        assert!(Mac::from([1, 0, 0, 0, 0, 9]) < Mac::from([2, 0, 0, 0, 0, 0]));
        assert!(Mac::from([2, 0, 0, 0, 0, 1]) < Mac::from([2, 0, 0, 0, 0, 2]));
    }
}
