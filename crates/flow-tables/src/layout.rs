//! Positions of the headers of a frame.

use ringroad_openflow::oxm::OxmField;
use ringroad_wire::headers::{ADDRESSES_BYTES, EthernetHeader, Ip, IpFragment, IpVersion, Tags};
use ringroad_wire::{ether_type, ip_protocol};

/// Placeholder for the type of a frame that has a length in place of a type, and no SNAP header.
pub(crate) const NO_ETH_TYPE: u16 = 0x05ff;

/// Bits of the field for IPv6 extension headers (OpenFlow 1.3.5, 7.2.3.8).
mod exthdr {
    pub const NO_NEXT: u16 = 1;
    pub const ESP: u16 = 1 << 1;
    pub const AUTH: u16 = 1 << 2;
    pub const DESTINATION: u16 = 1 << 3;
    pub const FRAGMENT: u16 = 1 << 4;
    pub const ROUTER: u16 = 1 << 5;
    pub const HOP: u16 = 1 << 6;
    pub const REPEATED: u16 = 1 << 7;
    pub const OUT_OF_ORDER: u16 = 1 << 8;
}

pub(crate) const LABEL_BYTES: usize = 4;
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];
/// Extension headers of a packet that were read so far.
#[derive(Default)]
struct Extensions {
    bits: u16,
    /// Rank of the last header in the order that RFC 8200, 4.1 recommends.
    rank: u8,
}

impl Extensions {
    fn add(&mut self, kind: u8) {
        let rank = self.rank;
        let (bit, order) = match kind {
            ip_protocol::HOP_BY_HOP => (exthdr::HOP, 1),
            ip_protocol::DESTINATION_OPTIONS => (exthdr::DESTINATION, if rank < 3 { 2 } else { 7 }),
            ip_protocol::ROUTING => (exthdr::ROUTER, 3),
            ip_protocol::FRAGMENT => (exthdr::FRAGMENT, 4),
            ip_protocol::AUTHENTICATION => (exthdr::AUTH, 5),
            ip_protocol::ESP => (exthdr::ESP, 6),
            _ => (exthdr::NO_NEXT, 8),
        };
        // Destination options may occur twice: before a routing header, and last.
        let is_repeated = self.bits & bit != 0 && !(bit == exthdr::DESTINATION && order == 7 && rank < 7);
        self.bits |= bit;
        self.bits |= if is_repeated { exthdr::REPEATED } else { 0 };
        self.bits |= if order < rank { exthdr::OUT_OF_ORDER } else { 0 };
        self.rank = rank.max(order);
    }
}

/// The header above Ethernet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Network {
    #[default]
    None,
    Arp,
    Ipv4,
    Ipv6,
}

/// Offsets of the headers from the frame's first byte; `None` if the frame has no such header, or not all of it was
/// read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Offset of the Ethernet type after all VLAN tags.
    pub eth_type_at: usize,
    /// Ethernet type at that offset, or the type in the SNAP header.
    pub eth_type: u16,
    /// Control information of the outermost VLAN tag.
    pub vlan: Option<usize>,
    /// Control information of the PBB service tag.
    pub service_tag: Option<usize>,
    /// The outermost MPLS header.
    pub mpls: Option<usize>,
    pub network: Network,
    /// The network header; 0 if `network` is `None`.
    pub network_at: usize,
    /// Protocol after all extension headers.
    pub ip_proto: u8,
    pub exthdr: u16,
    /// Whether a routing header of IPv6 has segments left.
    pub has_segments_left: bool,
    /// Whether the packet is a fragment of an IP packet.
    pub is_fragment: bool,
    /// The transport header; in fragments, only the first has one.
    pub transport: Option<usize>,
}

/// Location of a field: `bytes` bytes at `at`, big-endian, shifted right by `shift` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldLocation {
    pub at: usize,
    pub bytes: usize,
    pub shift: u32,
}

impl FieldLocation {
    /// Number that the bytes encode, without the shift.
    pub fn raw(self, headers: &[u8]) -> u128 {
        let bytes = headers.get(self.at..self.at + self.bytes).unwrap_or(&[]);
        bytes.iter().fold(0, |value, &byte| value << 8 | u128::from(byte))
    }

    /// Field's value, perhaps with other bits left of it.
    pub fn value(self, headers: &[u8]) -> u128 {
        self.raw(headers) >> self.shift
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|&two| u16::from_be_bytes(two))
}

impl Layout {
    /// Finds the headers in a frame's first bytes. The bytes may be anything.
    pub fn of(bytes: &[u8]) -> Self {
        let mut layout = Self { eth_type_at: ADDRESSES_BYTES, eth_type: NO_ETH_TYPE, ..Self::default() };
        let Some(ethernet) = EthernetHeader::read(bytes, Tags::Standard) else { return layout };
        (layout.vlan, layout.eth_type_at) = (ethernet.tag, ethernet.type_at);
        let at = ethernet.end();
        if ethernet.ether_type < ether_type::LEAST {
            // Ethernet type of a SNAP header: only this field of such a frame can be matched.
            if bytes.get(at..at + SNAP.len()) == Some(&SNAP)
                && let Some(snap) = u16_at(bytes, at + SNAP.len())
            {
                layout.eth_type = snap;
            }
            return layout;
        }
        layout.eth_type = ethernet.ether_type;
        let has = |count: usize| bytes.len() >= at + count;
        match ethernet.ether_type {
            ether_type::PBB if has(4 + ADDRESSES_BYTES) => layout.service_tag = Some(at),
            ether_type::MPLS | ether_type::MPLS_MULTICAST if has(LABEL_BYTES) => layout.mpls = Some(at),
            ether_type::ARP if has(28) => (layout.network, layout.network_at) = (Network::Arp, at),
            ether_type::IPV4 | ether_type::IPV6 => layout.find_ip(bytes, &ethernet),
            _ => {}
        }
        layout
    }

    fn find_ip(&mut self, bytes: &[u8], ethernet: &EthernetHeader) {
        let mut extensions = Extensions::default();
        let Some(ip) = Ip::read_with(bytes, ethernet, |kind| extensions.add(kind)) else { return };
        self.network = match ip.version {
            IpVersion::Four => Network::Ipv4,
            IpVersion::Six => Network::Ipv6,
        };
        (self.network_at, self.ip_proto, self.exthdr) = (ip.at, ip.protocol, extensions.bits);
        self.has_segments_left = ip.has_segments_left;
        self.is_fragment = ip.fragment != IpFragment::No;
        if ip.fragment != IpFragment::Later {
            self.find_transport(bytes, ip.payload_at);
        }
    }

    fn find_transport(&mut self, bytes: &[u8], at: usize) {
        let header_bytes = match (self.network, self.ip_proto) {
            (_, ip_protocol::TCP) => 20,
            (_, ip_protocol::UDP) => 8,
            (_, ip_protocol::SCTP) => 12,
            (Network::Ipv4, ip_protocol::ICMP) | (Network::Ipv6, ip_protocol::ICMPV6) => 4,
            _ => return,
        };
        self.transport = (bytes.len() >= at + header_bytes).then_some(at);
    }

    /// Location of a field; `None` if the frame has no such field, or its bytes were not read.
    pub fn location(&self, bytes: &[u8], field: OxmField) -> Option<FieldLocation> {
        let location = |at: usize, bytes: usize, shift: u32| Some(FieldLocation { at, bytes, shift });
        let network = |kind: Network| (self.network == kind).then_some(self.network_at);
        let transport = |proto: u8| self.transport.filter(|_| self.ip_proto == proto);
        match field {
            OxmField::EthDst => location(0, 6, 0),
            OxmField::EthSrc => location(6, 6, 0),
            OxmField::EthType => location(self.eth_type_at, 2, 0),
            OxmField::VlanVid => location(self.vlan?, 2, 0),
            OxmField::VlanPcp => location(self.vlan?, 2, 13),
            OxmField::IpDscp | OxmField::IpEcn => {
                let shift = if field == OxmField::IpDscp { 2 } else { 0 };
                match self.network {
                    Network::Ipv4 => location(self.network_at + 1, 1, shift),
                    Network::Ipv6 => location(self.network_at, 2, shift + 4),
                    Network::None | Network::Arp => None,
                }
            }
            OxmField::IpProto => match self.network {
                Network::Ipv4 => location(self.network_at + 9, 1, 0),
                Network::Ipv6 if self.exthdr == 0 => location(self.network_at + 6, 1, 0),
                _ => None,
            },
            OxmField::Ipv4Src => location(network(Network::Ipv4)? + 12, 4, 0),
            OxmField::Ipv4Dst => location(network(Network::Ipv4)? + 16, 4, 0),
            OxmField::TcpSrc => location(transport(ip_protocol::TCP)?, 2, 0),
            OxmField::TcpDst => location(transport(ip_protocol::TCP)? + 2, 2, 0),
            OxmField::UdpSrc => location(transport(ip_protocol::UDP)?, 2, 0),
            OxmField::UdpDst => location(transport(ip_protocol::UDP)? + 2, 2, 0),
            OxmField::SctpSrc => location(transport(ip_protocol::SCTP)?, 2, 0),
            OxmField::SctpDst => location(transport(ip_protocol::SCTP)? + 2, 2, 0),
            OxmField::Icmpv4Type => location(transport(ip_protocol::ICMP)?, 1, 0),
            OxmField::Icmpv4Code => location(transport(ip_protocol::ICMP)? + 1, 1, 0),
            OxmField::ArpOp => location(network(Network::Arp)? + 6, 2, 0),
            OxmField::ArpSha => location(network(Network::Arp)? + 8, 6, 0),
            OxmField::ArpSpa => location(network(Network::Arp)? + 14, 4, 0),
            OxmField::ArpTha => location(network(Network::Arp)? + 18, 6, 0),
            OxmField::ArpTpa => location(network(Network::Arp)? + 24, 4, 0),
            OxmField::Ipv6Src => location(network(Network::Ipv6)? + 8, 16, 0),
            OxmField::Ipv6Dst => location(network(Network::Ipv6)? + 24, 16, 0),
            OxmField::Ipv6Flabel => location(network(Network::Ipv6)?, 4, 0),
            OxmField::Icmpv6Type => location(transport(ip_protocol::ICMPV6)?, 1, 0),
            OxmField::Icmpv6Code => location(transport(ip_protocol::ICMPV6)? + 1, 1, 0),
            OxmField::Ipv6NdTarget => location(self.neighbour_target(bytes)?, 16, 0),
            OxmField::Ipv6NdSll => location(self.neighbour_option(bytes, 135, 1)?, 6, 0),
            OxmField::Ipv6NdTll => location(self.neighbour_option(bytes, 136, 2)?, 6, 0),
            OxmField::MplsLabel => location(self.mpls?, 4, 12),
            OxmField::MplsTc => location(self.mpls?, 4, 9),
            OxmField::MplsBos => location(self.mpls?, 4, 8),
            OxmField::PbbIsid => location(self.service_tag? + 1, 3, 0),
            OxmField::InPort
            | OxmField::InPhyPort
            | OxmField::Metadata
            | OxmField::TunnelId
            | OxmField::Ipv6Exthdr => None,
        }
    }

    /// Address that a neighbour solicitation or advertisement is about (RFC 4861, 4.3 and 4.4).
    fn neighbour_target(&self, bytes: &[u8]) -> Option<usize> {
        let at = self.transport.filter(|_| self.ip_proto == ip_protocol::ICMPV6)?;
        (matches!(bytes.get(at), Some(135 | 136)) && bytes.len() >= at + 24).then_some(at + 8)
    }

    /// Link-layer address in the option of this kind (RFC 4861, 4.6.1), in a message of this type.
    fn neighbour_option(&self, bytes: &[u8], message: u8, kind: u8) -> Option<usize> {
        let mut at = self.neighbour_target(bytes)? + 16;
        if bytes.get(self.transport?) != Some(&message) {
            return None;
        }
        loop {
            let (&found, &units) = (bytes.get(at)?, bytes.get(at + 1)?);
            if found == kind && units == 1 {
                return (bytes.len() >= at + 8).then_some(at + 2);
            }
            // An option without a length would never end.
            at += usize::from(units).checked_mul(8).filter(|&length| length > 0)?;
        }
    }
}
