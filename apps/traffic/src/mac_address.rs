//! Ethernet addresses as text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An Ethernet address, in the order of the wire.
///
/// Text: six pairs of hexadecimal digits, separated by `:` or by `-` throughout (`02:00:00:00:00:0a`); printed in lower
/// case with `:`. Serialised as that text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress(
    /// The six bytes.
    pub [u8; 6],
);

/// The text is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is not an Ethernet address: write six pairs of hexadecimal digits, like 02:00:00:00:00:01"
)]
#[non_exhaustive]
pub struct MacAddressError {
    pub text: String,
}

impl FromStr for MacAddress {
    type Err = MacAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self).ok_or_else(|| MacAddressError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<[u8; 6]> {
    let separator = if text.contains('-') { '-' } else { ':' };
    let mut groups = text.split(separator);
    let mut bytes = [0; 6];
    for byte in &mut bytes {
        *byte = hex_byte(groups.next()?.as_bytes())?;
    }
    groups.next().is_none().then_some(bytes)
}

/// The value of exactly two hexadecimal digits.
pub(crate) fn hex_byte(digits: &[u8]) -> Option<u8> {
    let &[high, low] = digits else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl TryFrom<String> for MacAddress {
    type Error = MacAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(address: MacAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn addresses_round_trip_through_text(bytes: [u8; 6]) {
            let address = MacAddress(bytes);
            let text = address.to_string();
            prop_assert_eq!(text.parse(), Ok(address));
            prop_assert_eq!(text.replace(':', "-").to_uppercase().parse(), Ok(address));
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
            assert_eq!(text.parse::<MacAddress>(), Err(MacAddressError { text: text.to_owned() }), "{text}");
        }
    }
}
