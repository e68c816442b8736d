//! Consecutive addresses from a first address on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::commands::guests::addresses::InterfaceAddress;

/// The addresses of one network from a first address on, or no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    first: Option<IpAddr>,
    bits: u8,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { first: Some(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1))), bits: 24 }
    }
}

impl Addresses {
    /// Returns the length of the network's prefix, bits.
    pub(crate) fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns the address `number` after the first; `None` without addresses, or if the network has no more.
    pub(crate) fn nth(&self, number: usize) -> Option<IpAddr> {
        let number = number as u128;
        match self.first? {
            IpAddr::V4(first) => {
                let hosts = u32::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                let host = u128::from(first.to_bits() & hosts) + number;
                // The first and the last address are the network and its broadcast, except in networks of one or two
                // addresses (RFC 3021).
                let usable = self.bits >= 31 || (host > 0 && host < u128::from(hosts));
                (usable && host <= u128::from(hosts))
                    .then(|| Ipv4Addr::from_bits(first.to_bits() & !hosts | host as u32).into())
            }
            IpAddr::V6(first) => {
                let hosts = u128::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                let host = (first.to_bits() & hosts).checked_add(number)?;
                (host <= hosts).then(|| Ipv6Addr::from_bits(first.to_bits() & !hosts | host).into())
            }
        }
    }

    /// Checks whether the network has `count` addresses, if addresses are assigned.
    pub(crate) fn check(&self, count: usize) -> Result<(), String> {
        match self.first {
            Some(first) if self.nth(count.saturating_sub(1)).is_none() => {
                Err(format!("a network {first}/{} has no {count} addresses from there on", self.bits))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self { first: None, bits: 0 });
        }
        let wrong = || "give an address with the bits of its network, like 10.77.0.1/24, or none".to_owned();
        let InterfaceAddress((first, bits)) = text.parse().map_err(|_| wrong())?;
        let addresses = Self { first: Some(first), bits };
        match addresses.nth(0) {
            Some(_) => Ok(addresses),
            None => Err(format!("{first} is the network itself or its broadcast: choose one between")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nth(text: &str, number: usize) -> Option<String> {
        text.parse::<Addresses>().unwrap().nth(number).map(|address| address.to_string())
    }

    #[test]
    fn addresses_count_up_within_their_network() {
        assert_eq!(nth("10.77.0.1/24", 0).as_deref(), Some("10.77.0.1"));
        assert_eq!(nth("10.77.0.1/24", 253).as_deref(), Some("10.77.0.254"));
        assert_eq!(nth("10.77.0.1/24", 254), None, "that is the broadcast");
        assert_eq!(nth("10.77.0.254/16", 3).as_deref(), Some("10.77.1.1"));
        assert_eq!(nth("10.0.0.0/31", 1).as_deref(), Some("10.0.0.1"));
        assert_eq!(nth("10.0.0.0/31", 2), None);
        assert_eq!(nth("10.0.0.7/32", 1), None);
        assert_eq!(nth("fd00::ffff/64", 1).as_deref(), Some("fd00::1:0"));
        assert_eq!(nth("fd00::1/128", 1), None);
        assert_eq!(nth("1.2.3.4/0", 1).as_deref(), Some("1.2.3.5"));
        assert_eq!(nth("none", 0), None);
    }

    #[test]
    fn text_without_address_and_prefix_is_refused() {
        for text in
            ["", "10.77.0.1", "10.77.0.1/33", "10.77.0.0/24", "10.77.0.255/24", "fd00::/129", "blue/24"]
        {
            assert!(text.parse::<Addresses>().is_err(), "{text}");
        }
    }

    #[test]
    fn too_small_a_network_is_refused_before_any_change() {
        let small: Addresses = "10.0.0.1/30".parse().unwrap();
        assert_eq!(small.check(2), Ok(()));
        assert!(small.check(3).unwrap_err().contains("10.0.0.1/30"));
        assert_eq!("none".parse::<Addresses>().unwrap().check(99), Ok(()));
    }
}
