//! The key of filter and distribution: a frame's addresses, protocol and ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes from the start of a frame that are enough for all of it, in all but strange frames.
pub const KEY_BYTES: usize = 128;
/// Tags of VLANs (IEEE 802.1Q, 802.1ad).
const VLAN_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Most tags, and most extension headers of IPv6, that are passed over.
const MAX_LAYERS: usize = 8;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Both ends of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpKey {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol (IANA's numbers), past the extension headers of IPv6.
    pub protocol: u8,
    /// Ports of TCP, UDP and SCTP, source and destination, in the first fragment of a packet or one that has no others.
    pub ports: Option<(u16, u16)>,
}

/// The key of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowKey {
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
    /// Identifier of the outermost VLAN, where the frame has a tag.
    pub vlan: Option<u16>,
    /// Type behind the tags.
    pub ethertype: u16,
    /// The part of the key from an IP packet.
    pub ip: Option<IpKey>,
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|pair| u16::from_be_bytes(*pair))
}

impl FlowKey {
    /// Reads it off the first bytes of a frame ([`KEY_BYTES`] or all); `None` where there is no whole Ethernet header.
    /// Fields that are cut off are unknown.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (destination, rest) = bytes.split_first_chunk()?;
        let (source, _) = rest.split_first_chunk()?;
        let (mut vlan, mut ethertype, mut at) = (None, half(bytes, 12)?, 14);
        for _ in 0..MAX_LAYERS {
            if !VLAN_TYPES.contains(&ethertype) {
                break;
            }
            let (Some(tag), Some(inner)) = (half(bytes, at), half(bytes, at + 2)) else { break };
            vlan = vlan.or(Some(tag & 0xfff));
            (ethertype, at) = (inner, at + 4);
        }
        let packet = bytes.get(at..).unwrap_or_default();
        let ip = match ethertype {
            0x0800 => IpKey::of_version_4(packet),
            0x86dd => IpKey::of_version_6(packet),
            _ => None,
        };
        Some(Self { destination: *destination, source: *source, vlan, ethertype, ip })
    }
}

impl IpKey {
    fn of_version_4(packet: &[u8]) -> Option<Self> {
        let header: &[u8; 20] = packet.first_chunk()?;
        let header_bytes = usize::from(header[0] & 15) * 4;
        if header[0] >> 4 != 4 || header_bytes < 20 {
            return None;
        }
        let address = |at: usize| {
            IpAddr::from(Ipv4Addr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]))
        };
        let protocol = header[9];
        let is_first = (u16::from_be_bytes([header[6], header[7]]) & 0x1fff) == 0;
        let ports = if is_first { ports(protocol, packet.get(header_bytes..)?) } else { None };
        Some(Self { source: address(12), destination: address(16), protocol, ports })
    }

    fn of_version_6(packet: &[u8]) -> Option<Self> {
        let header: &[u8; 40] = packet.first_chunk()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            IpAddr::from(Ipv6Addr::from(octets))
        };
        let (mut protocol, mut at, mut is_first) = (header[6], 40, true);
        for _ in 0..MAX_LAYERS {
            // Hop by hop, routing, destination options; fragment, authentication (RFC 8200, RFC 4302).
            let extension = packet.get(at..).and_then(|rest| rest.first_chunk::<4>());
            let Some(extension) = extension else { break };
            at += match protocol {
                0 | 43 | 60 => (usize::from(extension[1]) + 1) * 8,
                44 => {
                    is_first &= u16::from_be_bytes([extension[2], extension[3]]) & 0xfff8 == 0;
                    8
                }
                51 => (usize::from(extension[1]) + 2) * 4,
                _ => break,
            };
            protocol = extension[0];
        }
        let ports = if is_first { packet.get(at..).and_then(|rest| ports(protocol, rest)) } else { None };
        Some(Self { source: address(8), destination: address(24), protocol, ports })
    }
}

fn ports(protocol: u8, segment: &[u8]) -> Option<(u16, u16)> {
    if ![TCP, UDP, SCTP].contains(&protocol) {
        return None;
    }
    Some((half(segment, 0)?, half(segment, 2)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An Ethernet header with `tags`, then `ethertype`.
    fn ethernet(tags: &[u16], ethertype: u16) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in tags {
            frame.extend([0x81, 0x00]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        frame
    }

    fn ipv4(fragment: u16) -> Vec<u8> {
        let mut packet = vec![0x46, 0, 0, 0, 0, 0];
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        // An option, then the ports.
        packet.extend([1, 1, 1, 0, 0x12, 0x34, 0, 53]);
        packet
    }

    #[test]
    fn ports_are_found_behind_tags_and_options() {
        let frame = [ethernet(&[0x2005, 7], 0x0800), ipv4(0x2000)].concat();
        let key = FlowKey::parse(&frame).unwrap();
        assert_eq!((key.vlan, key.ethertype), (Some(5), 0x0800));
        let ip = key.ip.unwrap();
        assert_eq!(ip.source.to_string(), "10.0.0.1");
        assert_eq!(ip.destination.to_string(), "10.0.0.2");
        assert_eq!((ip.protocol, ip.ports), (17, Some((0x1234, 53))));
        let later = [ethernet(&[], 0x0800), ipv4(0x0003)].concat();
        assert_eq!(FlowKey::parse(&later).unwrap().ip.unwrap().ports, None);
    }

    #[test]
    fn ports_are_found_behind_extension_headers() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
        packet.extend([0x20; 16]);
        packet.extend([0x30; 16]);
        packet.extend([44, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend([6, 0, 0, 1, 0, 0, 0, 0]);
        packet.extend([0, 80, 1, 0]);
        let frame = [ethernet(&[], 0x86dd), packet].concat();
        let ip = FlowKey::parse(&frame).unwrap().ip.unwrap();
        assert_eq!((ip.protocol, ip.ports), (6, Some((80, 256))));
    }

    proptest! {
        #[test]
        fn any_frame_gives_a_key_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..160), kind in 0usize..3) {
            let mut bytes = bytes;
            if bytes.len() > 20 {
                let ethertype: [u8; 2] = [[0x08, 0], [0x86, 0xdd], [0x81, 0]][kind];
                bytes[12..14].copy_from_slice(&ethertype);
                bytes[14] = [0x45, 0x60, 0][kind];
            }
            prop_assert_eq!(FlowKey::parse(&bytes).is_some(), bytes.len() >= 14);
        }
    }
}
