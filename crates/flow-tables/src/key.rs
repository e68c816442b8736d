//! Fields of a packet as a few words, which are compared with those of entries.
//!
//! Each field has a fixed position in a word. Fields that no packet has together share a position. A further word tells
//! which fields are present, since an absent field matches nothing.

use ringroad_openflow::oxm::{OxmField, VLAN_PRESENT};

use crate::layout::{Layout, Network};
use crate::packet::MAX_REWRITE_BYTES;
use ringroad_wire::{ether_type, ip_protocol};

/// Number of words of a key; the last word tells which fields are present. A power of two, so that every masked word
/// number is valid.
pub(crate) const WORDS: usize = 16;

/// Numbers of the words.
pub(crate) mod word {
    /// Port and physical port.
    pub const PORTS: usize = 0;
    pub const METADATA: usize = 1;
    pub const TUNNEL: usize = 2;
    /// Destination address, VLAN and its priority.
    pub const TO: usize = 3;
    /// Source address.
    pub const FROM: usize = 4;
    /// Ethernet type, protocol, traffic class, and ports or the fields that share their position.
    pub const TYPES: usize = 5;
    /// IPv4 addresses, or those of ARP.
    pub const IPV4: usize = 6;
    /// IPv6 source, or ARP's hardware address of the sender.
    pub const IPV6_FROM: usize = 7;
    /// IPv6 destination, or ARP's hardware address of the target.
    pub const IPV6_TO: usize = 9;
    /// Flow label, extension headers, and the outermost MPLS or PBB header.
    pub const LABELS: usize = 11;
    pub const NEIGHBOUR: usize = 12;
    pub const NEIGHBOUR_LINK: usize = 14;
    pub const PRESENT: usize = 15;
}

/// Set of words, one bit for each.
pub(crate) type Words = u16;

/// Words that do not come from the frame.
pub(crate) const PIPELINE_WORDS: Words = 1 << word::PORTS | 1 << word::METADATA | 1 << word::TUNNEL;
/// Words that need no more than the Ethernet header, and the bytes needed for them.
pub(crate) const ETHERNET_WORDS: Words = PIPELINE_WORDS | 1 << word::TO | 1 << word::FROM;
pub(crate) const ETHERNET_BYTES: usize = 18;
/// Bytes that are enough for most IPv4 packets: a tag, the IP header and the ports.
pub(crate) const SHORT_BYTES: usize = 18 + 20 + 4;

const fn bits(fields: &[OxmField]) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < fields.len() {
        bits |= 1 << fields[at] as u64;
        at += 1;
    }
    bits
}

/// Fields that every packet has.
pub(crate) const ALWAYS: u64 = bits(&[
    OxmField::InPort,
    OxmField::InPhyPort,
    OxmField::Metadata,
    OxmField::TunnelId,
    OxmField::EthDst,
    OxmField::EthSrc,
    OxmField::EthType,
    OxmField::VlanVid,
]);
const TAGGED: u64 = bits(&[OxmField::VlanPcp]);
const IPV4: u64 =
    bits(&[OxmField::IpDscp, OxmField::IpEcn, OxmField::IpProto, OxmField::Ipv4Src, OxmField::Ipv4Dst]);
const IPV6: u64 = bits(&[
    OxmField::IpDscp,
    OxmField::IpEcn,
    OxmField::IpProto,
    OxmField::Ipv6Src,
    OxmField::Ipv6Dst,
    OxmField::Ipv6Flabel,
    OxmField::Ipv6Exthdr,
]);
const TCP: u64 = bits(&[OxmField::TcpSrc, OxmField::TcpDst]);
const UDP: u64 = bits(&[OxmField::UdpSrc, OxmField::UdpDst]);
const SCTP: u64 = bits(&[OxmField::SctpSrc, OxmField::SctpDst]);
const ICMPV4: u64 = bits(&[OxmField::Icmpv4Type, OxmField::Icmpv4Code]);
const ICMPV6: u64 = bits(&[OxmField::Icmpv6Type, OxmField::Icmpv6Code]);
const MPLS: u64 = bits(&[OxmField::MplsLabel, OxmField::MplsTc, OxmField::MplsBos]);
const PBB: u64 = bits(&[OxmField::PbbIsid]);
const ARP: [OxmField; 5] =
    [OxmField::ArpOp, OxmField::ArpSpa, OxmField::ArpTpa, OxmField::ArpSha, OxmField::ArpTha];
const NEIGHBOURS: [OxmField; 3] = [OxmField::Ipv6NdTarget, OxmField::Ipv6NdSll, OxmField::Ipv6NdTll];

/// Word of a field, and the field's shift to the left in it. A field of 128 bits has this word and the next.
const fn word_bits(field: OxmField) -> (usize, u32) {
    match field {
        OxmField::InPort => (word::PORTS, 32),
        OxmField::InPhyPort => (word::PORTS, 0),
        OxmField::Metadata => (word::METADATA, 0),
        OxmField::TunnelId => (word::TUNNEL, 0),
        OxmField::EthDst => (word::TO, 16),
        OxmField::VlanVid => (word::TO, 3),
        OxmField::VlanPcp => (word::TO, 0),
        OxmField::EthSrc => (word::FROM, 16),
        OxmField::EthType => (word::TYPES, 48),
        OxmField::IpProto => (word::TYPES, 40),
        OxmField::IpDscp => (word::TYPES, 34),
        OxmField::IpEcn => (word::TYPES, 32),
        OxmField::TcpSrc
        | OxmField::UdpSrc
        | OxmField::SctpSrc
        | OxmField::Icmpv4Type
        | OxmField::Icmpv6Type
        | OxmField::ArpOp => (word::TYPES, 16),
        OxmField::TcpDst
        | OxmField::UdpDst
        | OxmField::SctpDst
        | OxmField::Icmpv4Code
        | OxmField::Icmpv6Code => (word::TYPES, 0),
        OxmField::Ipv4Src | OxmField::ArpSpa => (word::IPV4, 32),
        OxmField::Ipv4Dst | OxmField::ArpTpa => (word::IPV4, 0),
        OxmField::Ipv6Src | OxmField::ArpSha => (word::IPV6_FROM, 0),
        OxmField::Ipv6Dst | OxmField::ArpTha => (word::IPV6_TO, 0),
        OxmField::Ipv6Flabel => (word::LABELS, 44),
        OxmField::Ipv6Exthdr => (word::LABELS, 24),
        OxmField::MplsLabel => (word::LABELS, 4),
        OxmField::MplsTc => (word::LABELS, 1),
        OxmField::MplsBos | OxmField::PbbIsid => (word::LABELS, 0),
        OxmField::Ipv6NdTarget => (word::NEIGHBOUR, 0),
        OxmField::Ipv6NdSll | OxmField::Ipv6NdTll => (word::NEIGHBOUR_LINK, 0),
    }
}

/// Fields of a packet, or a mask of the relevant bits of fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    words: [u64; WORDS],
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&word| u64::from_be_bytes(word))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&word| u32::from_be_bytes(word).into())
}

/// VLAN ID and priority, from a tag's control information.
#[inline]
fn tag(control: u64) -> u64 {
    (VLAN_PRESENT as u64 | control & 0xfff) << 3 | control >> 13 & 7
}

impl FlowKey {
    /// Word `number`; only the last bits of the number are used.
    #[inline]
    pub fn word(&self, number: usize) -> u64 {
        self.words[number & (WORDS - 1)]
    }

    #[inline]
    pub fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    /// Whether all these fields are present.
    #[inline]
    pub fn has(&self, fields: u64) -> bool {
        self.words[word::PRESENT] & fields == fields
    }

    /// Writes a field's value or mask. The field's bits must be zero before.
    pub fn add(&mut self, field: OxmField, value: u128) {
        let (number, shift) = word_bits(field);
        self.words[word::PRESENT] |= 1 << field as u64;
        if field.bits() > u64::BITS {
            self.words[number] |= (value >> 64) as u64;
            self.words[number + 1] |= value as u64;
        } else {
            self.words[number] |= (value as u64) << shift;
        }
    }

    /// Fields of a mask that not all packets have.
    pub fn required(&self) -> u64 {
        self.words[word::PRESENT] & !ALWAYS
    }

    /// Words of a mask that have relevant bits.
    pub fn used_words(&self) -> impl Iterator<Item = u8> {
        (0..word::PRESENT as u8).filter(|&number| self.word(number.into()) != 0)
    }

    /// Number of relevant bits of a mask.
    pub fn bits(&self) -> u32 {
        self.words[..word::PRESENT].iter().map(|word| word.count_ones()).sum()
    }

    /// Whether all relevant bits of the mask are relevant in `other`, too.
    pub fn is_within(&self, other: &Self) -> bool {
        (0..word::PRESENT).all(|number| self.words[number] & !other.words[number] == 0)
    }

    /// Bits that are relevant in both masks.
    pub fn common(&self, other: &Self) -> Self {
        let mut words = std::array::from_fn(|number| self.words[number] & other.words[number]);
        words[word::PRESENT] = 0;
        Self { words }
    }

    /// Bits of a mask that similar masks probably have, too: no ports, and of all other fields only whole 16-bit
    /// pieces, so not the ends of prefixes.
    pub fn relaxed(&self) -> Self {
        let whole = |word: u64| {
            let pieces = (0..4).map(|number| 0xffff << (16 * number));
            pieces.filter(|piece| word & piece == *piece).sum()
        };
        let mut words = self.words.map(whole);
        words[word::TYPES] = self.words[word::TYPES] >> 32 << 32;
        words[word::PRESENT] = 0;
        Self { words }
    }

    /// Sets the words that do not come from the frame.
    #[inline]
    pub fn set_pipeline(&mut self, in_port: u32, metadata: u64, tunnel_id: u64) {
        self.words[word::PORTS] = u64::from(in_port) << 32 | u64::from(in_port);
        self.words[word::METADATA] = metadata;
        self.words[word::TUNNEL] = tunnel_id;
    }

    /// Reads the words that tables about Ethernet headers use, from the first [`ETHERNET_BYTES`] of a frame of `len`
    /// bytes. Other words stay as they were, and no other field counts as present. Returns false if the frame is too
    /// short for this.
    #[inline]
    pub fn read_ethernet(&mut self, bytes: &[u8; MAX_REWRITE_BYTES], len: usize) -> bool {
        let [to, from, next] = [0, 6, 14].map(|at| u64_at(bytes, at));
        if len < ETHERNET_BYTES {
            return false;
        }
        self.words[word::TO] = to >> 16 << 16;
        self.words[word::FROM] = from >> 16 << 16;
        self.words[word::PRESENT] = ALWAYS;
        if matches!(from as u16, ether_type::VLAN | ether_type::SERVICE_VLAN) {
            self.words[word::TO] |= tag(next >> 48);
            self.words[word::PRESENT] |= TAGGED;
        }
        true
    }

    /// Reads all words from the first [`SHORT_BYTES`] of the most common kind of frame: IPv4 without options, no
    /// fragment, with at most one VLAN tag. Returns false for other frames.
    #[inline]
    pub fn read_ipv4(&mut self, bytes: &[u8; MAX_REWRITE_BYTES], len: usize) -> bool {
        let (from, next) = (u64_at(bytes, 6), u64_at(bytes, 14));
        match (from as u16, (next >> 32) as u16) {
            (ether_type::IPV4, _) => self.read_ipv4_at::<14>(bytes, len, (0, 0)),
            (ether_type::VLAN | ether_type::SERVICE_VLAN, ether_type::IPV4) => {
                self.read_ipv4_at::<18>(bytes, len, (tag(next >> 48), TAGGED))
            }
            _ => false,
        }
    }

    #[inline]
    fn read_ipv4_at<const AT: usize>(
        &mut self,
        bytes: &[u8; MAX_REWRITE_BYTES],
        len: usize,
        (tag, tagged): (u64, u64),
    ) -> bool {
        let (begin, transport) = (u64_at(bytes, AT), u32_at(bytes, AT + 20));
        // Version, header length, and no fragment: only the bit that forbids fragments may be set.
        if begin & 0xff00_0000_0000_3fff != 0x4500_0000_0000_0000 || len < AT + 20 {
            return false;
        }
        let proto = bytes[AT + 9];
        let (header_bytes, fields) = match proto {
            ip_protocol::TCP => (20, TCP),
            ip_protocol::UDP => (8, UDP),
            ip_protocol::SCTP => (12, SCTP),
            ip_protocol::ICMP => (4, ICMPV4),
            _ => (0, 0),
        };
        let has_transport = header_bytes != 0 && len >= AT + 20 + header_bytes;
        let (transport, fields) = match proto {
            _ if !has_transport => (0, 0),
            ip_protocol::ICMP => (transport >> 8 & 0xff_0000 | transport >> 16 & 0xff, fields),
            _ => (transport, fields),
        };
        self.words[word::TO] = u64_at(bytes, 0) >> 16 << 16 | tag;
        self.words[word::FROM] = u64_at(bytes, 6) >> 16 << 16;
        self.words[word::TYPES] = u64::from(ether_type::IPV4) << 48
            | u64::from(proto) << 40
            | u64::from(bytes[AT + 1]) << 32
            | transport;
        self.words[word::IPV4] = u64_at(bytes, AT + 12);
        if self.words[word::PRESENT] & !(ALWAYS | TAGGED | IPV4 | TCP | UDP | SCTP | ICMPV4) != 0 {
            self.forget_rare();
        }
        self.words[word::PRESENT] = ALWAYS | tagged | IPV4 | fields;
        true
    }

    /// Zeroes words that only few packets use.
    #[cold]
    fn forget_rare(&mut self) {
        self.words[word::IPV6_FROM..word::PRESENT].fill(0);
    }

    /// Reads all words of the frame.
    pub fn read(&mut self, headers: &[u8], layout: &Layout) {
        self.words[word::TO..].fill(0);
        let mut present = ALWAYS;
        let words = &mut self.words;
        // An incomplete field counts as absent, as everywhere.
        let address = |at: usize| match headers.len() < at + 6 {
            true => 0,
            false => u32_at(headers, at) << 16 | u32_at(headers, at + 2) & 0xffff,
        };
        words[word::TO] = address(0) << 16;
        words[word::FROM] = address(6) << 16;
        if let Some(at) = layout.vlan {
            words[word::TO] |= tag(u32_at(headers, at.saturating_sub(2)) & 0xffff);
            present |= TAGGED;
        }
        words[word::TYPES] = u64::from(layout.eth_type) << 48;
        let at = layout.network_at;
        match layout.network {
            Network::None | Network::Arp => {}
            Network::Ipv4 => {
                words[word::TYPES] |=
                    u64::from(layout.ip_proto) << 40 | (u32_at(headers, at) >> 16 & 0xff) << 32;
                words[word::IPV4] = u64_at(headers, at + 12);
                present |= IPV4;
            }
            Network::Ipv6 => {
                let begin = u32_at(headers, at);
                words[word::TYPES] |= u64::from(layout.ip_proto) << 40 | (begin >> 20 & 0xff) << 32;
                for (number, at) in [(word::IPV6_FROM, at + 8), (word::IPV6_TO, at + 24)] {
                    words[number] = u64_at(headers, at);
                    words[number + 1] = u64_at(headers, at + 8);
                }
                words[word::LABELS] = (begin & 0xf_ffff) << 44 | u64::from(layout.exthdr) << 24;
                present |= IPV6;
            }
        }
        self.words[word::PRESENT] = present;
        self.read_others(headers, layout);
    }

    /// Reads the headers after the network header, or in its place.
    fn read_others(&mut self, headers: &[u8], layout: &Layout) {
        let words = &mut self.words;
        if let Some(at) = layout.transport {
            let begin = u32_at(headers, at);
            let codes = begin >> 8 & 0xff_0000 | begin >> 16 & 0xff;
            let (transport, fields) = match layout.ip_proto {
                ip_protocol::TCP => (begin, TCP),
                ip_protocol::UDP => (begin, UDP),
                ip_protocol::SCTP => (begin, SCTP),
                ip_protocol::ICMP => (codes, ICMPV4),
                _ => (codes, ICMPV6),
            };
            words[word::TYPES] |= transport;
            words[word::PRESENT] |= fields;
        }
        if let Some(at) = layout.mpls {
            words[word::LABELS] |= u32_at(headers, at) >> 8;
            words[word::PRESENT] |= MPLS;
        }
        if let Some(at) = layout.service_tag {
            words[word::LABELS] |= u32_at(headers, at) & 0xff_ffff;
            words[word::PRESENT] |= PBB;
        }
        let is_icmpv6 = layout.transport.is_some() && layout.ip_proto == ip_protocol::ICMPV6;
        let others: &[OxmField] = match layout.network {
            Network::Arp => &ARP,
            Network::Ipv6 if is_icmpv6 => &NEIGHBOURS,
            _ => &[],
        };
        for &field in others {
            if let Some(location) = layout.location(headers, field) {
                self.add(field, location.value(headers));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ringroad_openflow::action::PortNo;

    use super::*;
    use crate::frames;
    use crate::packet::{HEADER_BYTES, Packet};
    use crate::packet_headers::PacketHeaders;

    fn field(key: &FlowKey, field: OxmField) -> Option<u128> {
        let (number, shift) = word_bits(field);
        let value = match field.bits() > u64::BITS {
            true => u128::from(key.word(number)) << 64 | u128::from(key.word(number + 1)),
            false => u128::from(key.word(number)) >> shift & field.all_ones(),
        };
        key.has(1 << field as u64).then_some(value)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_key_has_the_fields_that_the_packet_has(
            before in frames::parts(),
            parts in frames::parts(),
            metadata: u64,
            tunnel_id: u64,
        ) {
            let frame = frames::bytes(&parts);
            let mut packet = Packet::default();
            packet.load(PortNo(7), &frame, frame.len(), false);
            (packet.metadata, packet.tunnel_id) = (metadata, tunnel_id);
            let expected = *packet.key();
            for one in OxmField::ALL {
                prop_assert_eq!(field(&expected, one), packet.field(one), "{}", one);
            }

            // Both short paths have the same result as the full path, independent of the frame before.
            let mut headers = PacketHeaders::default();
            let mut load = |parts: &frames::Parts| {
                let frame = frames::bytes(parts);
                headers.set(frame.get(..HEADER_BYTES).unwrap_or(&frame));
                headers.clone()
            };
            let before = load(&before);
            let mut key = FlowKey::default();
            key.read(&before, &Layout::of(&before));
            key.set_pipeline(7, metadata, tunnel_id);
            let headers = load(&parts);
            if key.clone().read_ipv4(headers.all(), frame.len()) {
                key.read_ipv4(headers.all(), frame.len());
                prop_assert_eq!(key, expected);
            }
            if key.read_ethernet(headers.all(), frame.len()) {
                for number in [word::PORTS, word::METADATA, word::TUNNEL, word::TO, word::FROM] {
                    prop_assert_eq!(key.word(number), expected.word(number));
                }
                prop_assert_eq!(key.has(TAGGED), expected.has(TAGGED));
            }
        }
    }

    #[test]
    fn most_frames_go_the_short_way() {
        let mut frame = [0; 60];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 17;
        let mut headers = PacketHeaders::default();
        headers.set(&frame);
        assert!(FlowKey::default().read_ipv4(headers.all(), headers.len()));
        headers.splice(12..12, &[0x81, 0, 0, 7]);
        assert!(FlowKey::default().read_ipv4(headers.all(), headers.len()));
    }
}
