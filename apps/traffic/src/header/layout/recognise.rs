//! Headers of a frame that is given as bytes.

use ringroad_wire::headers::Tags;
use ringroad_wire::{ether_type, ip_protocol};

use super::{HeaderKind, Layout, Span, VXLAN_PORT, get_bits};

impl Layout {
    /// The headers recognised at the start of `frame`, up to the first that is cut off; the rest is payload. With
    /// `fix`, lengths and checksums must be computed, except for a UDP checksum of 0, which means "none".
    ///
    /// The bytes after IPv6 extension headers other than hop-by-hop and destination options, and in IPv4 fragments, are
    /// payload.
    pub(crate) fn of_frame(frame: &[u8], fix: bool) -> Self {
        let mut layout = Self { spans: Vec::new(), bytes: Vec::new() };
        let mut next = Some(HeaderKind::Ethernet);
        while let Some(kind) = next {
            let start = layout.bytes.len();
            let rest = &frame[start..];
            let Some(bytes) = whole(kind, rest) else { break };
            let header = &rest[..bytes];
            let no_checksum = kind == HeaderKind::Udp && header[6..8] == [0, 0];
            layout.spans.push(Span {
                kind,
                start,
                bytes,
                computes_checksum: fix && !no_checksum,
                computes_length: fix,
            });
            layout.bytes.extend_from_slice(header);
            next = carried(kind, header, rest.get(bytes..).unwrap_or_default(), &layout);
        }
        layout
    }

    /// The transport header or extension header with number `protocol` after the last IP header.
    fn in_ip(&self, protocol: u8) -> Option<HeaderKind> {
        let ipv6 = self.ip_before(self.spans.len()).is_some_and(|ip| ip.kind == HeaderKind::Ipv6);
        match protocol {
            ip_protocol::HOP_BY_HOP | ip_protocol::DESTINATION_OPTIONS if ipv6 => Some(HeaderKind::Raw),
            ip_protocol::ICMPV6 if !ipv6 => None,
            _ => [
                HeaderKind::Icmp,
                HeaderKind::Ipv4,
                HeaderKind::Tcp,
                HeaderKind::Udp,
                HeaderKind::Ipv6,
                HeaderKind::Icmpv6,
            ]
            .into_iter()
            .find(|kind| kind.spec().ip_protocol == Some(protocol)),
        }
    }
}

/// Length of the header of `kind` at the start of `bytes`. `None` if the header is cut off or not valid.
fn whole(kind: HeaderKind, bytes: &[u8]) -> Option<usize> {
    let words = |bit| get_bits(bytes, bit, 4) as usize * 4;
    let length = match kind {
        HeaderKind::Ipv4 if get_bits(bytes, 0, 4) != 4 => return None,
        HeaderKind::Ipv6 if get_bits(bytes, 0, 4) != 6 => return None,
        HeaderKind::Arp if bytes.get(..6)? != [0, 1, 8, 0, 6, 4] => return None,
        HeaderKind::Ipv4 => words(4),
        HeaderKind::Tcp => words(96),
        // IPv6 options have 8 bytes, and 8 more for each that the second byte counts.
        HeaderKind::Raw => 8 + 8 * usize::from(*bytes.get(1)?),
        _ => kind.spec().bytes,
    };
    (length >= kind.spec().bytes && bytes.len() >= length).then_some(length)
}

/// Kind of the header at the start of `behind`, according to the preceding `header`.
fn carried(kind: HeaderKind, header: &[u8], behind: &[u8], layout: &Layout) -> Option<HeaderKind> {
    let value = |name| kind.field(name).map(|field| get_bits(header, field.bit, field.bits));
    match kind {
        HeaderKind::Ethernet | HeaderKind::Vlan => match value("ether_type")? as u16 {
            found if Tags::WithOld.contains(found) => Some(HeaderKind::Vlan),
            ether_type::MPLS | ether_type::MPLS_MULTICAST => Some(HeaderKind::Mpls),
            ether_type::IPV4 => Some(HeaderKind::Ipv4),
            ether_type::IPV6 => Some(HeaderKind::Ipv6),
            ether_type::ARP => Some(HeaderKind::Arp),
            _ => None,
        },
        HeaderKind::Mpls if value("bottom") == Some(0) => Some(HeaderKind::Mpls),
        HeaderKind::Mpls => match behind.first()? >> 4 {
            4 => Some(HeaderKind::Ipv4),
            6 => Some(HeaderKind::Ipv6),
            _ => None,
        },
        HeaderKind::Ipv4 => {
            // The bits of the more-fragments flag and of the fragment offset.
            let fragment = get_bits(header, 50, 14) != 0;
            if fragment { None } else { layout.in_ip(header[9]) }
        }
        HeaderKind::Ipv6 => layout.in_ip(header[6]),
        HeaderKind::Raw => layout.in_ip(header[0]),
        HeaderKind::Udp if value("destination") == Some(VXLAN_PORT.into()) => Some(HeaderKind::Vxlan),
        HeaderKind::Vxlan => Some(HeaderKind::Ethernet),
        _ => None,
    }
}
