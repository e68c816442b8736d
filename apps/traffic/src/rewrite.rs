//! Rewrites the addresses of existing frames, and the checksums that cover them.
//!
//! Ethernet addresses are replaced. IP addresses are mapped by prefix: an address inside a prefix gets the bits of
//! another prefix and keeps the rest, so that different hosts stay different. Addresses inside ARP packets are mapped,
//! too. Checksums are updated by the difference (RFC 1624, equation 3), so a wrong checksum stays wrong by as much.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::str::FromStr;

use ringroad_wire::checksum::{difference, not_zero, updated};
use ringroad_wire::headers::{EthernetHeader, Ip, IpFragment, IpVersion, Tags};
use ringroad_wire::mac::Mac;
use ringroad_wire::{ether_type, ip_protocol, serde_as_text};
use serde::{Deserialize, Serialize};

/// Changes of a frame's addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AddressRewrite {
    /// Source Ethernet address of every frame.
    pub source: Option<Mac>,
    /// Destination Ethernet address of every frame.
    pub destination: Option<Mac>,
    /// Maps for IP addresses, both source and destination. The first map whose prefix contains an address applies.
    pub ip: Vec<PrefixMap>,
}

/// Map from one prefix to another of the same length and family: `10.0.0.0/8=198.18.0.0/8`. Serialised as that text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixMap {
    from: IpAddr,
    to: IpAddr,
    prefix_bits: u8,
}

/// The text is not a map of prefixes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is not a map of prefixes: {reason}; write PREFIX=PREFIX, as 10.0.0.0/8=198.18.0.0/8, both of one length and family, \
     or ADDRESS=ADDRESS"
)]
#[non_exhaustive]
pub struct PrefixMapError {
    pub text: String,
    pub reason: &'static str,
}

impl FromStr for PrefixMap {
    type Err = PrefixMapError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |reason| PrefixMapError { text: text.to_owned(), reason };
        let (from, to) = text.split_once('=').ok_or(wrong("it has no \"=\""))?;
        let (from, from_bits) = prefix(from).ok_or(wrong("the text before \"=\" is not a prefix"))?;
        let (to, to_bits) = prefix(to).ok_or(wrong("the text after \"=\" is not a prefix"))?;
        if from.is_ipv4() != to.is_ipv4() {
            return Err(wrong("one is IPv4, the other IPv6"));
        }
        if from_bits != to_bits {
            return Err(wrong("the lengths differ"));
        }
        Ok(Self { from, to, prefix_bits: from_bits })
    }
}

/// Reads an address and the length of its prefix, bits.
fn prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok())?;
    (bits <= most).then_some((address, bits))
}

impl fmt::Display for PrefixMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{bits}={}/{bits}", self.from, self.to, bits = self.prefix_bits)
    }
}

serde_as_text!(PrefixMap);

impl PrefixMap {
    /// The mapped `address`; `None` if it is outside the prefix.
    fn map(&self, address: IpAddr) -> Option<IpAddr> {
        let bits = |address| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let most = if address.is_ipv4() { 32 } else { 128 };
        let host = u128::MAX.checked_shr(128 - most + u32::from(self.prefix_bits)).unwrap_or(0);
        if address.is_ipv4() != self.from.is_ipv4() || (bits(address) ^ bits(self.from)) & !host != 0 {
            return None;
        }
        let mapped = bits(self.to) & !host | bits(address) & host;
        Some(match address {
            IpAddr::V4(_) => Ipv4Addr::from_bits(mapped as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(mapped).into(),
        })
    }
}

impl AddressRewrite {
    /// Whether the rewrite changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Rewrites `frame` (without FCS) in place. Truncated headers stay unchanged.
    pub fn apply(&self, frame: &mut [u8]) {
        if let (Some(address), Some(field)) = (self.destination, frame.get_mut(0..6)) {
            field.copy_from_slice(&address.octets());
        }
        if let (Some(address), Some(field)) = (self.source, frame.get_mut(6..12)) {
            field.copy_from_slice(&address.octets());
        }
        if self.ip.is_empty() {
            return;
        }
        let Some(ethernet) = EthernetHeader::read(frame, Tags::WithOld) else { return };
        if ethernet.ether_type == ether_type::ARP {
            // In ARP for Ethernet and IPv4 (RFC 826), the sender's address is at offset 14, the target's at 24.
            for offset in [14, 24] {
                self.map_field(frame, ethernet.end() + offset, 4);
            }
        } else if let Some(ip) = Ip::read(frame, &ethernet) {
            self.apply_ip(frame, &ip);
        }
    }

    fn apply_ip(&self, frame: &mut [u8], ip: &Ip) {
        let Range { start, end } = ip.addresses();
        let len = (end - start) / 2;
        let difference = self.map_field(frame, start, len) + self.map_field(frame, start + len, len);
        if ip.version == IpVersion::Four {
            update(frame, ip.at + 10, difference, false);
        }
        if ip.fragment == IpFragment::Later || !ip_protocol::has_pseudo_header(ip.protocol) {
            return;
        }
        if let Some(offset) = ip_protocol::checksum_offset(ip.protocol) {
            update(frame, ip.payload_at + offset, difference, ip.protocol == ip_protocol::UDP);
        }
    }

    /// Maps the address at `at`. Returns the change of the one's complement sum.
    fn map_field(&self, frame: &mut [u8], at: usize, len: usize) -> u64 {
        let Some(field) = frame.get_mut(at..at + len) else { return 0 };
        let address = match (<[u8; 4]>::try_from(&*field), <[u8; 16]>::try_from(&*field)) {
            (Ok(bytes), _) => IpAddr::from(bytes),
            (_, Ok(bytes)) => IpAddr::from(bytes),
            _ => return 0,
        };
        let Some(mapped) = self.ip.iter().find_map(|map| map.map(address)) else { return 0 };
        match (address, mapped) {
            (IpAddr::V4(old), IpAddr::V4(new)) => {
                field.copy_from_slice(&new.octets());
                difference(&old.octets(), &new.octets())
            }
            (IpAddr::V6(old), IpAddr::V6(new)) => {
                field.copy_from_slice(&new.octets());
                difference(&old.octets(), &new.octets())
            }
            _ => 0,
        }
    }
}

/// Updates the checksum at `at`. A UDP checksum of 0 means "none" and stays. All words of a packet are at positions of
/// the same parity, so the change of an address counts the same in all checksums of the packet.
fn update(frame: &mut [u8], at: usize, difference: u64, is_udp: bool) {
    let Some(field) = frame.get_mut(at..at + 2) else { return };
    let old = u16::from_le_bytes([field[0], field[1]]);
    if difference == 0 || is_udp && old == 0 {
        return;
    }
    let new = updated(old, difference);
    let new = if is_udp { not_zero(new) } else { new };
    field.copy_from_slice(&new.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, SlicedPacket};
    use proptest::prelude::*;

    use super::*;

    fn rewrite(maps: &[&str]) -> AddressRewrite {
        AddressRewrite {
            ip: maps.iter().map(|map| map.parse().unwrap()).collect(),
            ..AddressRewrite::default()
        }
    }

    fn checksums_are_right(frame: &[u8]) -> bool {
        let packet = SlicedPacket::from_ethernet(frame).unwrap();
        let net = packet.net.as_ref().unwrap();
        let header_is_right = net
            .ipv4_ref()
            .is_none_or(|ip| ip.header().to_header().calc_header_checksum() == ip.header().header_checksum());
        header_is_right && transport_is_right(&packet)
    }

    fn transport_is_right(packet: &SlicedPacket<'_>) -> bool {
        use etherparse::TransportSlice::{Tcp, Udp};
        let net = packet.net.as_ref().unwrap();
        match (packet.transport.as_ref().unwrap(), net.ipv4_ref(), net.ipv6_ref()) {
            (Udp(udp), Some(ip), _) => {
                let ip = ip.header().to_header();
                udp.to_header().calc_checksum_ipv4(&ip, udp.payload()).unwrap() == udp.checksum()
            }
            (Tcp(tcp), Some(ip), _) => {
                let ip = ip.header().to_header();
                tcp.to_header().calc_checksum_ipv4(&ip, tcp.payload()).unwrap() == tcp.checksum()
            }
            (Udp(udp), _, Some(ip)) => {
                let ip = ip.header().to_header();
                udp.to_header().calc_checksum_ipv6(&ip, udp.payload()).unwrap() == udp.checksum()
            }
            (Tcp(tcp), _, Some(ip)) => {
                let ip = ip.header().to_header();
                tcp.to_header().calc_checksum_ipv6(&ip, tcp.payload()).unwrap() == tcp.checksum()
            }
            _ => false,
        }
    }

    #[test]
    fn a_map_replaces_the_prefix_and_keeps_the_rest() {
        for (map, from, to) in [
            ("10.0.0.0/8=198.18.0.0/8", "10.1.2.3", "198.1.2.3"),
            ("10.1.0.0/16=198.18.0.0/16", "10.1.2.3", "198.18.2.3"),
            ("10.1.2.3=1.2.3.4", "10.1.2.3", "1.2.3.4"),
            ("0.0.0.0/0=9.9.9.9/0", "10.1.2.3", "10.1.2.3"),
            ("2001:db8::/32=fd00:1::/32", "2001:db8::7", "fd00:1::7"),
            ("::/0=::/0", "2001:db8::7", "2001:db8::7"),
        ] {
            let map: PrefixMap = map.parse().unwrap();
            assert_eq!(map.map(from.parse().unwrap()), Some(to.parse().unwrap()), "{map}");
            assert_eq!(map.to_string().parse(), Ok(map));
        }
        let map: PrefixMap = "10.0.0.0/8=198.18.0.0/8".parse().unwrap();
        assert_eq!(map.map("11.0.0.1".parse().unwrap()), None);
        assert_eq!(map.map("2001:db8::1".parse().unwrap()), None);
    }

    #[test]
    fn faults_of_a_map_are_named() {
        for (text, told) in [
            ("10.0.0.0/8", "no \"=\""),
            ("x=10.0.0.0/8", "before \"=\""),
            ("10.0.0.0/8=", "after \"=\""),
            ("10.0.0.0/33=10.0.0.0/33", "before \"=\""),
            ("10.0.0.0/8=10.0.0.0/9", "lengths differ"),
            ("10.0.0.0/8=::/8", "one is IPv4"),
        ] {
            let error = text.parse::<PrefixMap>().unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn ethernet_and_arp_addresses_follow() {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&ether_type::ARP.to_be_bytes());
        frame[28..32].copy_from_slice(&[10, 0, 0, 1]);
        frame[38..42].copy_from_slice(&[10, 0, 0, 2]);
        let rewrite = AddressRewrite {
            source: Some(Mac::from_octets([2; 6])),
            destination: Some(Mac::from_octets([4; 6])),
            ..rewrite(&["10.0.0.0/8=192.0.0.0/8"])
        };
        rewrite.apply(&mut frame);
        assert_eq!((&frame[..6], &frame[6..12]), (&[4; 6][..], &[2; 6][..]));
        assert_eq!((&frame[28..32], &frame[38..42]), (&[192, 0, 0, 1][..], &[192, 0, 0, 2][..]));
    }

    #[test]
    fn a_udp_datagram_keeps_its_zero_checksum() {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9)
            .udp(1, 2)
            .write(&mut frame, &[7; 20])
            .unwrap();
        frame[40..42].fill(0);
        rewrite(&["10.0.0.0/8=192.0.0.0/8"]).apply(&mut frame);
        assert_eq!(frame[40..42], [0, 0]);
        assert_eq!(frame[26..30], [192, 0, 0, 1]);
    }

    proptest! {
        #[test]
        fn checksums_stay_right_with_and_without_a_tag(
            source: u32, destination: u32, to: u32, bits in 0..=32u8,
            payload in prop::collection::vec(any::<u8>(), 0..80), tagged: bool, tcp: bool,
        ) {
            let ip = |bits: u32| Ipv4Addr::from_bits(bits).octets();
            let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let mut frame = Vec::new();
            let step = if tagged {
                ethernet.single_vlan(etherparse::VlanId::try_new(7).unwrap()).ipv4(ip(source), ip(destination), 9)
            } else {
                ethernet.ipv4(ip(source), ip(destination), 9)
            };
            if tcp {
                step.tcp(1, 2, 3, 4).write(&mut frame, &payload).unwrap();
            } else {
                step.udp(1, 2).write(&mut frame, &payload).unwrap();
            }
            prop_assert!(checksums_are_right(&frame));
            let map = format!("{}/{bits}={}/{bits}", Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(to));
            rewrite(&[&map]).apply(&mut frame);
            prop_assert!(checksums_are_right(&frame));
        }

        #[test]
        fn ipv6_checksums_stay_right(source: u128, destination: u128, to: u128, bits in 0..=128u8, tcp: bool) {
            let ip = |bits: u128| Ipv6Addr::from_bits(bits).octets();
            let step = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(ip(source), ip(destination), 9);
            let mut frame = Vec::new();
            if tcp {
                step.tcp(1, 2, 3, 4).write(&mut frame, &[5; 21]).unwrap();
            } else {
                step.udp(1, 2).write(&mut frame, &[5; 21]).unwrap();
            }
            let map = format!("{}/{bits}={}/{bits}", Ipv6Addr::from_bits(source), Ipv6Addr::from_bits(to));
            rewrite(&[&map]).apply(&mut frame);
            prop_assert!(checksums_are_right(&frame));
        }

        #[test]
        fn any_frame_is_rewritten_without_panic(mut frame in prop::collection::vec(any::<u8>(), 0..100), kind in 0..5usize) {
            let kinds = [ether_type::IPV4, ether_type::IPV6, ether_type::ARP, ether_type::VLAN, ether_type::SERVICE_VLAN];
            if let Some(field) = frame.get_mut(12..14) {
                field.copy_from_slice(&kinds[kind].to_be_bytes());
            }
            rewrite(&["0.0.0.0/0=1.2.3.4/0", "::/0=::1/0"]).apply(&mut frame);
        }
    }
}
