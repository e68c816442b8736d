//! Addresses of guests' interfaces.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ringroad_wire::mac::Mac;

/// Address, and length of the network prefix.
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

/// Parses a unicast hardware address other than all zeros.
///
/// # Errors
/// The text tells users the valid values.
pub(crate) fn station_address(text: &str) -> Result<Mac, String> {
    let address = text.parse().ok().filter(Mac::is_station);
    address.ok_or_else(|| "give a hardware address of a station, like 02:00:00:00:00:01".to_owned())
}

/// Returns a locally administered address for the interface at `port`: 40 bits of the name's FNV-1a hash. The address
/// is the same each time, so that neighbours need not learn a new one, and differs between ports.
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
    fn addresses_are_read_and_written_in_text_form() {
        for text in ["10.0.0.1/24", "fd00::1/64"] {
            assert_eq!(text.parse::<InterfaceAddress>().unwrap().to_string(), text);
        }
        for text in ["", "10.0.0.1", "10.0.0.1/33", "fd00::1/129", "a/24", "10.0.0.1/24; reboot"] {
            assert!(text.parse::<InterfaceAddress>().is_err(), "{text}");
        }
        assert_eq!(station_address("02:00:00:00:aB:01"), Ok(Mac::from_octets([2, 0, 0, 0, 0xab, 1])));
        for text in ["", "02:00:00:00:00:+1", "01:00:00:00:00:01", "00:00:00:00:00:00"] {
            assert!(station_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_port_has_its_own_stable_address() {
        assert_eq!(mac_of("vale0:a"), mac_of("vale0:a"));
        assert_ne!(mac_of("vale0:a"), mac_of("vale0:b"));
        assert_ne!(mac_of("vale0:a"), mac_of("vale1:a"));
        let address = Mac::from_octets(mac_of("vale0:a"));
        assert_eq!(station_address(&address.to_string()), Ok(address));
    }
}
