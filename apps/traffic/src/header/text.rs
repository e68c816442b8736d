//! Values of header fields as text.

use std::fmt;
use std::str::FromStr;

use ringroad_wire::serde_as_text;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Value of a checksum field. Text: `right`, `zero`, or a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Checksum {
    /// The right checksum for every frame.
    #[default]
    Right,
    /// A checksum of 0. In UDP it means "no checksum".
    Zero,
    /// A given checksum, right or not.
    Given(u16),
}

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Right => serializer.serialize_str("right"),
            Self::Zero => serializer.serialize_str("zero"),
            Self::Given(checksum) => serializer.serialize_u16(*checksum),
        }
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChecksumVisitor;
        impl Visitor<'_> for ChecksumVisitor {
            type Value = Checksum;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"right\", \"zero\" or a number from 0 to 65535")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Checksum, E> {
                match text {
                    "right" => Ok(Checksum::Right),
                    "zero" => Ok(Checksum::Zero),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Checksum, E> {
                u16::try_from(number)
                    .map(Checksum::Given)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Checksum, E> {
                u16::try_from(number)
                    .map(Checksum::Given)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }
        }
        deserializer.deserialize_any(ChecksumVisitor)
    }
}

/// Control bits of TCP. In text, a letter for each bit that is set, of `FSRPAUEC` (FIN, SYN, RST, PSH, ACK, URG, ECE,
/// CWR), in any order; the empty text if no bit is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpFlags(
    /// The bits as in the header (RFC 9293, section 3.1): FIN is 1, CWR 128.
    pub u8,
);

/// The text is not a set of control bits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a set of TCP flags: give letters of FSRPAUEC, like \"SA\" for SYN and ACK")]
#[non_exhaustive]
pub struct TcpFlagsError {
    pub text: String,
}

impl TcpFlags {
    /// The set with SYN only.
    pub const SYN: Self = Self(2);
    /// Letters, the lowest bit first.
    const LETTERS: &str = "FSRPAUEC";
}

impl FromStr for TcpFlags {
    type Err = TcpFlagsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bits = text.chars().try_fold(0, |bits, letter| {
            Self::LETTERS.find(letter.to_ascii_uppercase()).map(|index| bits | 1 << index)
        });
        bits.map(Self).ok_or_else(|| TcpFlagsError { text: text.to_owned() })
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::LETTERS.chars().enumerate().filter(|(index, _)| self.0 >> index & 1 == 1);
        set.map(|(_, letter)| letter).try_for_each(|letter| write!(f, "{letter}"))
    }
}

serde_as_text!(TcpFlags);

/// A string of bytes. In text, pairs of hexadecimal digits (`00`, `55aa`, `0xdeadbeef`), at least one pair. Spaces,
/// colons and line ends between pairs are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HexBytes(
    /// Bytes in the order of the text.
    pub Vec<u8>,
);

/// The text is not bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not bytes: give pairs of hexadecimal digits, like 00 or 55aa, one pair at least")]
#[non_exhaustive]
pub struct HexBytesError {
    /// The given text, cut off after 40 characters.
    pub text: String,
}

impl FromStr for HexBytes {
    type Err = HexBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let digits: Vec<u8> =
            digits.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b':').collect();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(hex_byte).collect();
        match bytes {
            Some(bytes) if !bytes.is_empty() => Ok(Self(bytes)),
            _ => Err(HexBytesError { text: text.chars().take(40).collect() }),
        }
    }
}

/// The value of exactly two hexadecimal digits.
fn hex_byte(digits: &[u8]) -> Option<u8> {
    let &[high, low] = digits else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

impl fmt::Display for HexBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

serde_as_text!(HexBytes);

/// Reads a number from 0 to `MAX`, which fits `T`.
pub(super) fn up_to<'de, const MAX: u64, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: TryFrom<u64>,
    D: Deserializer<'de>,
{
    struct AnyInteger<const MAX: u64>;
    impl<const MAX: u64> Visitor<'_> for AnyInteger<MAX> {
        type Value = i128;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a number from 0 to {MAX}")
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<i128, E> {
            Ok(number.into())
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<i128, E> {
            Ok(number.into())
        }
    }
    let number = deserializer.deserialize_any(AnyInteger::<MAX>)?;
    let within = u64::try_from(number).ok().filter(|number| *number <= MAX);
    within
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| D::Error::custom(format_args!("{number} is out of range: give 0 to {MAX}")))
}

/// Reads a number as [`up_to`] does, for a field that may be left out.
pub(super) fn optional<'de, const MAX: u64, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: TryFrom<u64>,
    D: Deserializer<'de>,
{
    up_to::<MAX, T, D>(deserializer).map(Some)
}

/// Reads an IP address.
pub(super) fn address<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr + AddressForm,
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| D::Error::custom(format_args!("\"{text}\" is not {}", T::EXPECTED)))
}

/// Expected form of the text of an address.
pub(super) trait AddressForm {
    const EXPECTED: &str;
}

impl AddressForm for std::net::Ipv4Addr {
    const EXPECTED: &str = "an IPv4 address: write it like 198.18.0.1";
}

impl AddressForm for std::net::Ipv6Addr {
    const EXPECTED: &str = "an IPv6 address: write it like 2001:2::1";
}
