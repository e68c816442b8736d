//! Key of filter and distribution: a frame's addresses, protocol and ports.

use std::net::IpAddr;

use ringroad_wire::headers::{
    ADDRESSES_BYTES, EthernetHeader, Ip, IpFragment, IpVersion, TAG_BYTES, Tags, VLAN_BITS,
};
use ringroad_wire::ip_protocol::{SCTP, TCP, UDP};

/// Number of bytes from the start of a frame that contain the whole key, except for unusual frames.
pub const KEY_BYTES: usize = 128;
/// The IP part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpKey {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol (IANA's numbers), after the extension headers of IPv6.
    pub protocol: u8,
    /// Source and destination ports of TCP, UDP and SCTP. `None` for other protocols, and in fragments other than the
    /// first.
    pub ports: Option<(u16, u16)>,
}

/// The key of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashKey {
    /// Destination Ethernet address.
    pub destination: [u8; 6],
    /// Source Ethernet address.
    pub source: [u8; 6],
    /// Identifier of the outermost VLAN, if the frame has a tag.
    pub vlan: Option<u16>,
    /// Number of VLAN tags.
    pub tags: u16,
    /// EtherType after the tags.
    pub ethertype: u16,
    /// IP part of the key; `None` if the frame has no IP packet.
    pub ip: Option<IpKey>,
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|pair| u16::from_be_bytes(*pair))
}

impl HashKey {
    /// Parses the first bytes of a frame: [`KEY_BYTES`], or all bytes of a shorter frame. `None` if there is no whole
    /// Ethernet header. Fields that are cut off are unknown.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (destination, rest) = bytes.split_first_chunk()?;
        let (source, _) = rest.split_first_chunk()?;
        let ethernet = EthernetHeader::read(bytes, Tags::WithOld)?;
        let vlan = ethernet.tag.and_then(|at| half(bytes, at)).map(|control| control & VLAN_BITS);
        let ip = Ip::read(bytes, &ethernet).and_then(|ip| IpKey::read(bytes, &ip));
        Some(Self {
            destination: *destination,
            source: *source,
            vlan,
            tags: ((ethernet.type_at - ADDRESSES_BYTES) / TAG_BYTES) as u16,
            ethertype: ethernet.ether_type,
            ip,
        })
    }
}

impl IpKey {
    fn read(bytes: &[u8], ip: &Ip) -> Option<Self> {
        let addresses = bytes.get(ip.addresses())?;
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        let address = |octets: &[u8]| match ip.version {
            IpVersion::Four => octets.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
            IpVersion::Six => octets.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
        };
        let ports = match ip.fragment {
            IpFragment::Later => None,
            IpFragment::No | IpFragment::First => {
                bytes.get(ip.payload_at..).and_then(|segment| ports(ip.protocol, segment))
            }
        };
        Some(Self {
            source: address(source)?,
            destination: address(destination)?,
            protocol: ip.protocol,
            ports,
        })
    }
}

fn ports(protocol: u8, segment: &[u8]) -> Option<(u16, u16)> {
    if !matches!(protocol, TCP | UDP | SCTP) {
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
        // The option comes first, then the ports.
        packet.extend([1, 1, 1, 0, 0x12, 0x34, 0, 53]);
        packet
    }

    #[test]
    fn ports_are_found_behind_tags_and_options() {
        let frame = [ethernet(&[0x2005, 7], 0x0800), ipv4(0x2000)].concat();
        let key = HashKey::parse(&frame).unwrap();
        assert_eq!((key.vlan, key.tags, key.ethertype), (Some(5), 2, 0x0800));
        let ip = key.ip.unwrap();
        assert_eq!(ip.source.to_string(), "10.0.0.1");
        assert_eq!(ip.destination.to_string(), "10.0.0.2");
        assert_eq!((ip.protocol, ip.ports), (17, Some((0x1234, 53))));
        let later = [ethernet(&[], 0x0800), ipv4(0x0003)].concat();
        assert_eq!(HashKey::parse(&later).unwrap().ip.unwrap().ports, None);
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
        let ip = HashKey::parse(&frame).unwrap().ip.unwrap();
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
            prop_assert_eq!(HashKey::parse(&bytes).is_some(), bytes.len() >= 14);
        }
    }
}
