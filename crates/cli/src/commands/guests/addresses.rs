//! Addresses of guests' interfaces.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address with the bits of its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InterfaceAddress(pub(crate) (IpAddr, u8));

impl FromStr for InterfaceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(address, bits)| {
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            Some(Self((address, bits.parse().ok().filter(|bits| *bits <= most)?)))
        });
        parsed.ok_or_else(|| "give an address with the bits of its network, like 10.0.0.1/24".to_owned())
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.0, self.0.1)
    }
}

/// A station's own hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MacAddress(pub(crate) [u8; 6]);

impl FromStr for MacAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "give a hardware address of a station, like 02:00:00:00:00:01".to_owned();
        // A sign would pass for a digit.
        let is_octet = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let octet = |text: &str| is_octet(text).then(|| u8::from_str_radix(text, 16).ok()).flatten();
        let octets: Option<Vec<u8>> = text.split(':').map(octet).collect();
        let octets: [u8; 6] = octets.and_then(|octets| octets.try_into().ok()).ok_or_else(wrong)?;
        if octets == [0; 6] || octets[0] & 1 == 1 { Err(wrong()) } else { Ok(Self(octets)) }
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A locally administered address for the interface at `port`: the same each time, so that neighbours need not learn it anew, and another
/// one at other ports (FNV-1a, 40 bits of it).
pub(crate) fn mac_of(port: &str) -> [u8; 6] {
    let hash = port.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [_, _, _, a, b, c, d, e] = (hash ^ hash >> 40).to_be_bytes();
    [2, a, b, c, d, e]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_as_people_do() {
        for text in ["10.0.0.1/24", "fd00::1/64"] {
            assert_eq!(text.parse::<InterfaceAddress>().unwrap().to_string(), text);
        }
        for text in ["", "10.0.0.1", "10.0.0.1/33", "fd00::1/129", "a/24", "10.0.0.1/24; reboot"] {
            assert!(text.parse::<InterfaceAddress>().is_err(), "{text}");
        }
        assert_eq!("02:00:00:00:aB:01".parse::<MacAddress>().unwrap().to_string(), "02:00:00:00:ab:01");
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:+1",
            "01:00:00:00:00:01",
            "00:00:00:00:00:00",
            "0:0:0:0:0:1",
        ] {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_port_has_an_address_of_its_own_that_stays() {
        assert_eq!(mac_of("vale0:a"), mac_of("vale0:a"));
        assert_ne!(mac_of("vale0:a"), mac_of("vale0:b"));
        assert_ne!(mac_of("vale0:a"), mac_of("vale1:a"));
        assert!(MacAddress(mac_of("vale0:a")).to_string().parse::<MacAddress>().is_ok());
    }
}
