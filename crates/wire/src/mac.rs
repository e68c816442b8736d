//! Ethernet addresses: the form in which the switch reads, compares and stores them, and their text.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Bits of an address in a word: the lower 48.
const ADDRESS_BITS: u64 = 0xffff_ffff_ffff;

/// A 48-bit Ethernet address (IEEE 802, EUI-48).
///
/// The first octet on the wire is the least significant of the word, and the upper 16 bits are zero. So on a
/// little-endian machine an address is read from a frame by one 8-byte load and one mask, and the group bit is bit 0.
///
/// Addresses order as their octets do on the wire and in print. Serialised as text.
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

    /// The address as a number of 48 bits, its first octet the most significant.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0.swap_bytes() >> 16
    }

    /// The inverse of [`Self::number`]; the upper 16 bits are ignored.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self((number << 16).swap_bytes())
    }

    /// Whether the group bit is set: multicast, broadcast included.
    #[inline]
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether a station can have this address: it is no group address, and not zero.
    #[inline]
    #[must_use]
    pub const fn is_station(&self) -> bool {
        !self.is_multicast() && self.0 != 0
    }

    /// The lower 48 bits of a word, first octet least significant; the upper 16 are zero.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Self::bits`]; the upper 16 bits are ignored.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & ADDRESS_BITS)
    }
}

/// The text is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is not an Ethernet address: write six pairs of hexadecimal digits, like 02:00:00:00:00:01"
)]
#[non_exhaustive]
pub struct MacError {
    /// Text that was read.
    pub text: String,
}

impl FromStr for Mac {
    type Err = MacError;

    /// Parses six pairs of hexadecimal digits, all separated by colons or all by hyphens.
    fn from_str(text: &str) -> Result<Self, MacError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        octets(text, separator, 2).ok_or_else(|| MacError { text: text.to_owned() })
    }
}

impl Mac {
    /// The address in the notation of OVS's tools: colons, and octets below 16 may have one digit. `None` if `text` is
    /// not an address.
    #[must_use]
    pub fn from_short_text(text: &str) -> Option<Self> {
        octets(text, ':', 1)
    }
}

/// Parses six octets of two hexadecimal digits each, or of at least `least_digits`.
fn octets(text: &str, separator: char, least_digits: usize) -> Option<Mac> {
    let mut octets = [0; 6];
    let mut parts = text.split(separator);
    for octet in &mut octets {
        let part = parts.next()?;
        // The number parser would accept a sign.
        let is_octet =
            (least_digits..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        *octet = u8::from_str_radix(part, 16).ok().filter(|_| is_octet)?;
    }
    parts.next().is_none().then_some(Mac::from_octets(octets))
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

#[cfg(feature = "serde")]
crate::serde_as_text!(Mac);

impl Ord for Mac {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number().cmp(&other.number())
    }
}

impl PartialOrd for Mac {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Mac {
    /// Formats six pairs of lower-case hexadecimal digits, with colons between them.
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn addresses_round_trip_through_text(octets: [u8; 6]) {
            let mac = Mac::from_octets(octets);
            let text = mac.to_string();
            prop_assert_eq!(text.parse(), Ok(mac));
            prop_assert_eq!(text.replace(':', "-").to_uppercase().parse(), Ok(mac));
            prop_assert_eq!(Mac::from_short_text(&text), Some(mac));
        }
    }

    #[test]
    fn text_other_than_six_hex_pairs_is_refused() {
        for text in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "02:00:00:00:00:01:",
            "2:0:0:0:0:1",
            "02:00:00:00:00:+1",
            "02:00:00:00:00:0g",
            "02-00:00:00:00:01",
            " 02:00:00:00:00:01",
            "02:00:00:00:00:0é",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(MacError { text: text.to_owned() }), "{text}");
        }
    }

    #[test]
    fn short_text_has_octets_of_one_digit_and_colons() {
        assert_eq!(Mac::from_short_text("2:0:0:0:a:01"), Some(Mac::from_octets([2, 0, 0, 0, 10, 1])));
        for text in
            ["2:0:0:0:0", "2:0:0:0:0:1:2", "2::0:0:0:1", "2:0:0:0:0:001", "2:0:0:0:0:+", "2-0-0-0-0-1"]
        {
            assert_eq!(Mac::from_short_text(text), None, "{text}");
        }
    }

    #[test]
    fn a_station_has_an_address_of_its_own() {
        assert!(Mac::from_octets([2, 0, 0, 0, 0, 1]).is_station());
        assert!(!Mac::BROADCAST.is_station() && !Mac::default().is_station());
        assert!(!Mac::from_octets([1, 0, 0x5e, 0, 0, 1]).is_station());
    }

    #[test]
    fn octets_survive_every_form() {
        let octets = [0x02, 0x34, 0x56, 0x78, 0x9a, 0xbc];
        let mac = Mac::from(octets);
        assert_eq!(<[u8; 6]>::from(mac), octets);
        assert_eq!(mac.to_string(), "02:34:56:78:9a:bc");
        assert_eq!(Mac::from_bits(mac.bits()), mac);
        assert_eq!((mac.number(), Mac::from_number(mac.number())), (0x0234_5678_9abc, mac));
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
