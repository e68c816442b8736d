//! Positions of the fields of each header.

use ringroad_wire::ip_protocol;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderKind {
    Ethernet,
    Vlan,
    Mpls,
    Ipv4,
    Ipv6,
    Udp,
    Tcp,
    Icmp,
    Icmpv6,
    Arp,
    Vxlan,
    Raw,
}

/// Notation of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Number,
    Mac,
    Ipv4,
    Ipv6,
    TcpFlags,
}

/// One field of a header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldSpec {
    pub(crate) name: &'static str,
    /// First bit, counted from the start of the header and from the most significant bit of each byte.
    pub(crate) bit: usize,
    /// Length in bits.
    pub(crate) bits: usize,
    pub(crate) kind: FieldKind,
    /// Whether modifiers can vary the field. False if the rest of the frame depends on the field.
    pub(crate) modifiable: bool,
}

const fn of(name: &'static str, bit: usize, bits: usize, kind: FieldKind) -> FieldSpec {
    FieldSpec { name, bit, bits, kind, modifiable: true }
}

const fn number(name: &'static str, bit: usize, bits: usize) -> FieldSpec {
    of(name, bit, bits, FieldKind::Number)
}

const fn fixed(name: &'static str, bit: usize, bits: usize) -> FieldSpec {
    FieldSpec { modifiable: false, ..number(name, bit, bits) }
}

const ETHERNET: &[FieldSpec] = &[
    of("destination", 0, 48, FieldKind::Mac),
    of("source", 48, 48, FieldKind::Mac),
    number("ether_type", 96, 16),
];

const VLAN: &[FieldSpec] =
    &[number("priority", 0, 3), number("dei", 3, 1), number("id", 4, 12), number("ether_type", 16, 16)];

const MPLS: &[FieldSpec] =
    &[number("label", 0, 20), number("traffic_class", 20, 3), number("bottom", 23, 1), number("ttl", 24, 8)];

const IPV4: &[FieldSpec] = &[
    fixed("version", 0, 4),
    fixed("header_words", 4, 4),
    number("dscp", 8, 6),
    number("ecn", 14, 2),
    fixed("total_length", 16, 16),
    number("identification", 32, 16),
    number("dont_fragment", 49, 1),
    number("ttl", 64, 8),
    fixed("protocol", 72, 8),
    number("checksum", 80, 16),
    of("source", 96, 32, FieldKind::Ipv4),
    of("destination", 128, 32, FieldKind::Ipv4),
];

const IPV6: &[FieldSpec] = &[
    fixed("version", 0, 4),
    number("traffic_class", 4, 8),
    number("flow_label", 12, 20),
    fixed("payload_length", 32, 16),
    fixed("next_header", 48, 8),
    number("hop_limit", 56, 8),
    of("source", 64, 128, FieldKind::Ipv6),
    of("destination", 192, 128, FieldKind::Ipv6),
];

const UDP: &[FieldSpec] = &[
    number("source", 0, 16),
    number("destination", 16, 16),
    fixed("length", 32, 16),
    number("checksum", 48, 16),
];

const TCP: &[FieldSpec] = &[
    number("source", 0, 16),
    number("destination", 16, 16),
    number("sequence", 32, 32),
    number("acknowledgment", 64, 32),
    fixed("header_words", 96, 4),
    of("flags", 104, 8, FieldKind::TcpFlags),
    number("window", 112, 16),
    number("checksum", 128, 16),
    number("urgent", 144, 16),
];

const ICMP: &[FieldSpec] = &[
    number("type", 0, 8),
    number("code", 8, 8),
    number("checksum", 16, 16),
    number("identifier", 32, 16),
    number("sequence", 48, 16),
];

const ARP: &[FieldSpec] = &[
    fixed("hardware_type", 0, 16),
    fixed("protocol_type", 16, 16),
    fixed("hardware_length", 32, 8),
    fixed("protocol_length", 40, 8),
    number("operation", 48, 16),
    of("sender_mac", 64, 48, FieldKind::Mac),
    of("sender_ip", 112, 32, FieldKind::Ipv4),
    of("target_mac", 144, 48, FieldKind::Mac),
    of("target_ip", 192, 32, FieldKind::Ipv4),
];

const VXLAN: &[FieldSpec] = &[fixed("flags", 0, 8), number("vni", 32, 24)];

/// Properties of a kind of header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderSpec {
    pub(crate) name: &'static str,
    /// Length without options, bytes; 0 for raw headers, which can have any length.
    pub(crate) bytes: usize,
    pub(crate) fields: &'static [FieldSpec],
    /// Offset of the length field in the header, and of the first byte that the length counts.
    pub(crate) length: Option<(usize, usize)>,
    /// Protocol number of a header that IP carries (IANA, "Assigned Internet Protocol Numbers").
    pub(crate) ip_protocol: Option<u8>,
    /// Whether the checksum covers the addresses of the preceding IP header.
    pub(crate) has_pseudo_header: bool,
}

const fn header(name: &'static str, bytes: usize, fields: &'static [FieldSpec]) -> HeaderSpec {
    HeaderSpec { name, bytes, fields, length: None, ip_protocol: None, has_pseudo_header: false }
}

/// A header that IP carries.
const fn in_ip(protocol: u8, carried: HeaderSpec) -> HeaderSpec {
    HeaderSpec { ip_protocol: Some(protocol), ..carried }
}

/// A transport header, with a checksum that covers the addresses of the IP header.
const fn transport(protocol: u8, carried: HeaderSpec) -> HeaderSpec {
    HeaderSpec { has_pseudo_header: true, ..in_ip(protocol, carried) }
}

const fn with_length(offset: usize, from: usize, of: HeaderSpec) -> HeaderSpec {
    HeaderSpec { length: Some((offset, from)), ..of }
}

impl HeaderKind {
    pub(crate) const fn spec(self) -> HeaderSpec {
        match self {
            Self::Ethernet => header("ethernet", 14, ETHERNET),
            Self::Vlan => header("vlan", 4, VLAN),
            Self::Mpls => header("mpls", 4, MPLS),
            Self::Ipv4 => in_ip(4, with_length(2, 0, header("ipv4", 20, IPV4))),
            Self::Ipv6 => in_ip(41, with_length(4, 40, header("ipv6", 40, IPV6))),
            Self::Udp => transport(ip_protocol::UDP, with_length(4, 0, header("udp", 8, UDP))),
            Self::Tcp => transport(ip_protocol::TCP, header("tcp", 20, TCP)),
            Self::Icmp => in_ip(ip_protocol::ICMP, header("icmp", 8, ICMP)),
            Self::Icmpv6 => transport(ip_protocol::ICMPV6, header("icmpv6", 8, ICMP)),
            Self::Arp => header("arp", 28, ARP),
            Self::Vxlan => header("vxlan", 8, VXLAN),
            Self::Raw => header("raw", 0, &[]),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        self.spec().name
    }

    pub(crate) fn field(self, name: &str) -> Option<&'static FieldSpec> {
        self.spec().fields.iter().find(|field| field.name == name)
    }

    /// Offset of the checksum in the header, bytes.
    pub(crate) fn checksum_offset(self) -> Option<usize> {
        self.field("checksum").map(|field| field.bit / 8)
    }
}

/// The `bits` bits of `bytes` from `bit` on, at most 128.
pub(crate) fn get_bits(bytes: &[u8], bit: usize, bits: usize) -> u128 {
    (bit..bit + bits).fold(0, |value, bit| {
        let byte = bytes.get(bit / 8).copied().unwrap_or(0);
        value << 1 | u128::from(byte >> (7 - bit % 8) & 1)
    })
}

/// Writes the low `bits` bits of `value` from `bit` on.
pub(crate) fn set_bits(bytes: &mut [u8], bit: usize, bits: usize, value: u128) {
    for (index, bit) in (bit..bit + bits).rev().enumerate() {
        if let Some(byte) = bytes.get_mut(bit / 8) {
            let mask = 1 << (7 - bit % 8);
            *byte = if value >> index & 1 == 1 { *byte | mask } else { *byte & !mask };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [HeaderKind; 12] = [
        HeaderKind::Ethernet,
        HeaderKind::Vlan,
        HeaderKind::Mpls,
        HeaderKind::Ipv4,
        HeaderKind::Ipv6,
        HeaderKind::Udp,
        HeaderKind::Tcp,
        HeaderKind::Icmp,
        HeaderKind::Icmpv6,
        HeaderKind::Arp,
        HeaderKind::Vxlan,
        HeaderKind::Raw,
    ];

    #[test]
    fn fields_are_within_their_headers_without_overlap() {
        for kind in KINDS {
            let mut taken = vec![false; kind.spec().bytes * 8];
            for field in kind.spec().fields {
                for taken in &mut taken[field.bit..field.bit + field.bits] {
                    assert!(!std::mem::replace(taken, true), "{}.{}", kind.name(), field.name);
                }
            }
        }
    }
}
