//! The headers of a frame as bytes, and their positions.

mod recognise;

use ringroad_wire::ether_type;

use super::{
    Checksum, DISCARD_PORT, Ethernet, Header, HeaderKind, Ipv4, Ipv6, VXLAN_PORT, Vlan, get_bits, set_bits,
};
use crate::definition::{Problem, StreamError};

/// EtherType if no header with an EtherType follows: local experiments (IEEE 802, clause 9.2.4).
const EXPERIMENTAL_ETHER_TYPE: u16 = ether_type::LOCAL_EXPERIMENT;
/// IP protocol if no header with a protocol number follows: experiments (RFC 3692, section 2.1).
const EXPERIMENTAL_PROTOCOL: u8 = 253;

/// Position and kind of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) kind: HeaderKind,
    /// Offset of the header's first byte in the frame.
    pub(crate) start: usize,
    /// Length with options, bytes.
    pub(crate) bytes: usize,
    /// Whether the header's checksum, if it has one, must be computed.
    pub(crate) computes_checksum: bool,
    /// Whether the header's length field, if it has one, must be computed so that it reaches the frame's end.
    pub(crate) computes_length: bool,
}

impl Span {
    /// Offset after the header's last byte.
    pub(crate) fn end(&self) -> usize {
        self.start + self.bytes
    }

    /// Offset of the header's checksum, if the checksum must be computed.
    pub(crate) fn computed_checksum(&self) -> Option<usize> {
        let offset = self.kind.checksum_offset().filter(|_| self.computes_checksum)?;
        Some(self.start + offset)
    }

    /// Offset of the header's length field and of the first counted byte, if the length must be computed.
    pub(crate) fn computed_length(&self) -> Option<(usize, usize)> {
        let (offset, from) = self.kind.spec().length.filter(|_| self.computes_length)?;
        Some((self.start + offset, self.start + from))
    }

    /// Offsets of the computed fields, which have two bytes each.
    pub(crate) fn computed(&self) -> impl Iterator<Item = usize> {
        self.computed_checksum().into_iter().chain(self.computed_length().map(|(at, _)| at))
    }
}

/// The headers of a frame; the bytes after them are payload.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// Headers in their order, outermost first, without gaps.
    pub(crate) spans: Vec<Span>,
    /// Bytes of all headers. Lengths and computed checksums are still 0.
    pub(crate) bytes: Vec<u8>,
}

impl Layout {
    /// The layout of a definition's headers.
    pub(crate) fn of_packet(packet: &[Header]) -> Result<Self, StreamError> {
        let mut layout = Self { spans: Vec::new(), bytes: Vec::new() };
        for (index, header) in packet.iter().enumerate() {
            let path = format!("packet[{index}].{}", header.name());
            layout.push(header, index.checked_sub(1).and_then(|before| packet.get(before)), &path)?;
            layout.link(header, packet.get(index + 1), packet.get(index + 2)).map_err(|problem| {
                let next = packet.get(index + 1).map_or("", Header::name);
                StreamError::at(format!("packet[{}].{next}", index + 1), problem)
            })?;
        }
        Ok(layout)
    }

    /// Start of the payload.
    pub(crate) fn payload_start(&self) -> usize {
        self.bytes.len()
    }

    /// The IP header whose addresses the checksum of span number `index` covers.
    pub(crate) fn ip_before(&self, index: usize) -> Option<&Span> {
        self.spans[..index].iter().rev().find(|span| matches!(span.kind, HeaderKind::Ipv4 | HeaderKind::Ipv6))
    }

    fn push(&mut self, header: &Header, before: Option<&Header>, path: &str) -> Result<(), StreamError> {
        let kind = header.kind();
        let start = self.bytes.len();
        if before.is_none() && !matches!(kind, HeaderKind::Ethernet | HeaderKind::Raw) {
            return Err(StreamError::at(
                path,
                Problem::Misplaced {
                    header: kind.name(),
                    after: "the start of the frame",
                    advice: "begin with ethernet, or with raw",
                },
            ));
        }
        match header {
            Header::Raw(raw) => self.bytes.extend_from_slice(&raw.0),
            _ => self.bytes.resize(start + kind.spec().bytes, 0),
        }
        for (name, value) in header.values() {
            self.set(start, kind, name, value, path)?;
        }
        self.spans.push(Span {
            kind,
            start,
            bytes: self.bytes.len() - start,
            computes_checksum: header.checksum() == Checksum::Right,
            computes_length: true,
        });
        if kind.spec().has_pseudo_header && header.checksum() == Checksum::Right {
            self.check_ip_before(path)?;
        }
        Ok(())
    }

    fn check_ip_before(&self, path: &str) -> Result<(), StreamError> {
        let Some(last) = self.spans.last() else { return Ok(()) };
        match self.ip_before(self.spans.len() - 1) {
            // At an odd distance, the bytes of the addresses would be in the other halves of the checksum's words.
            Some(ip) if ip.start % 2 != last.start % 2 => Err(StreamError::combination(
                path,
                "the raw bytes between it and its IP header are an odd number: make them even",
            )),
            Some(_) => Ok(()),
            None => Err(StreamError::combination(
                path,
                "its checksum needs the addresses of an IP header before it: add ipv4 or ipv6, or set checksum = \"zero\"",
            )),
        }
    }

    fn set(
        &mut self,
        start: usize,
        kind: HeaderKind,
        name: &str,
        value: u128,
        path: &str,
    ) -> Result<(), StreamError> {
        let Some(field) = kind.field(name) else { return Ok(()) };
        let highest = u128::MAX >> (128 - field.bits);
        if value > highest {
            return Err(StreamError::out_of_range(
                format!("{path}.{name}"),
                value,
                format!("0 to {highest}"),
            ));
        }
        set_bits(&mut self.bytes, start * 8 + field.bit, field.bits, value);
        Ok(())
    }

    /// Writes into the last header, `header`, that `next` follows it. `after_next` is the header after `next`.
    fn link(
        &mut self,
        header: &Header,
        next: Option<&Header>,
        after_next: Option<&Header>,
    ) -> Result<(), Problem> {
        let Some(&Span { kind, start, .. }) = self.spans.last() else { return Ok(()) };
        let misplaced = |advice| {
            Err(Problem::Misplaced { header: next.map_or("", Header::name), after: kind.name(), advice })
        };
        let anything = matches!(next, None | Some(Header::Raw(_)));
        let (name, value) = match header {
            Header::Ethernet(Ethernet { ether_type: set, .. })
            | Header::Vlan(Vlan { ether_type: set, .. }) => {
                let followed = match next {
                    None | Some(Header::Raw(_)) => Some(EXPERIMENTAL_ETHER_TYPE),
                    Some(Header::Vlan(vlan)) => {
                        let outermost = kind == HeaderKind::Ethernet;
                        let several = matches!(after_next, Some(Header::Vlan(_)));
                        let usual =
                            if outermost && several { ether_type::SERVICE_VLAN } else { ether_type::VLAN };
                        Some(vlan.tpid.unwrap_or(usual))
                    }
                    Some(Header::Mpls(_)) => Some(ether_type::MPLS),
                    Some(Header::Ipv4(_)) => Some(ether_type::IPV4),
                    Some(Header::Ipv6(_)) => Some(ether_type::IPV6),
                    Some(Header::Arp(_)) => Some(ether_type::ARP),
                    Some(_) => None,
                };
                match set.or(followed) {
                    Some(ether_type) => ("ether_type", u128::from(ether_type)),
                    None => return misplaced("put ipv4 or ipv6 between, or set ether_type"),
                }
            }
            Header::Ipv4(Ipv4 { protocol: set, .. }) | Header::Ipv6(Ipv6 { next_header: set, .. }) => {
                let name = if kind == HeaderKind::Ipv4 { "protocol" } else { "next_header" };
                let followed = match next {
                    None | Some(Header::Raw(_)) => Some(EXPERIMENTAL_PROTOCOL),
                    Some(next) => next.kind().spec().ip_protocol,
                };
                if kind == HeaderKind::Ipv4 && matches!(next, Some(Header::Icmpv6(_))) && set.is_none() {
                    return misplaced("use icmp, or ipv6 before it, or set protocol");
                }
                match set.or(followed) {
                    Some(protocol) => (name, protocol.into()),
                    None => return misplaced("IP carries udp, tcp, icmp, icmpv6, ipv4, ipv6 and raw"),
                }
            }
            Header::Mpls(mpls) => {
                let carried = matches!(
                    next,
                    Some(Header::Mpls(_) | Header::Ipv4(_) | Header::Ipv6(_) | Header::Ethernet(_))
                );
                if !(anything || carried) {
                    return misplaced("MPLS carries mpls, ipv4, ipv6, ethernet and raw");
                }
                let bottom = !matches!(next, Some(Header::Mpls(_)));
                ("bottom", mpls.bottom.unwrap_or(bottom).into())
            }
            Header::Udp(udp) => {
                let vxlan = matches!(next, Some(Header::Vxlan(_)));
                if !(anything || vxlan) {
                    return misplaced("UDP carries vxlan and raw");
                }
                let usual = if vxlan { VXLAN_PORT } else { DISCARD_PORT };
                ("destination", udp.destination.unwrap_or(usual).into())
            }
            Header::Vxlan(_) if matches!(next, Some(Header::Ethernet(_))) => return Ok(()),
            Header::Vxlan(_) if !anything => return misplaced("VXLAN carries ethernet and raw"),
            Header::Tcp(_) | Header::Icmp(_) | Header::Icmpv6(_) | Header::Arp(_) if !anything => {
                return misplaced("only raw can");
            }
            _ => return Ok(()),
        };
        if let Some(field) = kind.field(name) {
            set_bits(&mut self.bytes, start * 8 + field.bit, field.bits, value);
        }
        Ok(())
    }
}
