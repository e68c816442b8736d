//! Values of each header in a definition, by field name.

use std::net::Ipv4Addr;

use ringroad_wire::mac::Mac;

use super::{Checksum, Header, HeaderKind, Icmp, Ipv4, Tcp, Udp};

impl Header {
    pub(crate) fn kind(&self) -> HeaderKind {
        match self {
            Self::Ethernet(_) => HeaderKind::Ethernet,
            Self::Vlan(_) => HeaderKind::Vlan,
            Self::Mpls(_) => HeaderKind::Mpls,
            Self::Ipv4(_) => HeaderKind::Ipv4,
            Self::Ipv6(_) => HeaderKind::Ipv6,
            Self::Udp(_) => HeaderKind::Udp,
            Self::Tcp(_) => HeaderKind::Tcp,
            Self::Icmp(_) => HeaderKind::Icmp,
            Self::Icmpv6(_) => HeaderKind::Icmpv6,
            Self::Arp(_) => HeaderKind::Arp,
            Self::Vxlan(_) => HeaderKind::Vxlan,
            Self::Raw(_) => HeaderKind::Raw,
        }
    }

    pub(super) fn checksum(&self) -> Checksum {
        match self {
            Self::Ipv4(Ipv4 { checksum, .. })
            | Self::Udp(Udp { checksum, .. })
            | Self::Tcp(Tcp { checksum, .. })
            | Self::Icmp(Icmp { checksum, .. })
            | Self::Icmpv6(Icmp { checksum, .. }) => *checksum,
            _ => Checksum::Given(0),
        }
    }

    /// Fields that the definition sets, by name. Fields that follow from the stack are included only if the definition
    /// sets them.
    pub(super) fn values(&self) -> Vec<(&'static str, u128)> {
        let mac = |address: Mac| u128::from(address.number());
        let ipv4 = |address: Ipv4Addr| u128::from(address.to_bits());
        let mut values = match self {
            Self::Ethernet(ethernet) => {
                vec![("source", mac(ethernet.source)), ("destination", mac(ethernet.destination))]
            }
            Self::Vlan(vlan) => {
                vec![("id", vlan.id.into()), ("priority", vlan.priority.into()), ("dei", vlan.dei.into())]
            }
            Self::Mpls(mpls) => vec![
                ("label", mpls.label.into()),
                ("traffic_class", mpls.traffic_class.into()),
                ("ttl", mpls.ttl.into()),
            ],
            Self::Ipv4(ip) => vec![
                ("version", 4),
                ("header_words", 5),
                ("source", ipv4(ip.source)),
                ("destination", ipv4(ip.destination)),
                ("ttl", ip.ttl.into()),
                ("dscp", ip.dscp.into()),
                ("ecn", ip.ecn.into()),
                ("identification", ip.identification.into()),
                ("dont_fragment", ip.dont_fragment.into()),
            ],
            Self::Ipv6(ip) => vec![
                ("version", 6),
                ("source", ip.source.to_bits()),
                ("destination", ip.destination.to_bits()),
                ("hop_limit", ip.hop_limit.into()),
                ("traffic_class", ip.traffic_class.into()),
                ("flow_label", ip.flow_label.into()),
            ],
            Self::Udp(udp) => vec![("source", udp.source.into())],
            Self::Tcp(tcp) => vec![
                ("header_words", 5),
                ("source", tcp.source.into()),
                ("destination", tcp.destination.into()),
                ("sequence", tcp.sequence.into()),
                ("acknowledgment", tcp.acknowledgment.into()),
                ("flags", tcp.flags.0.into()),
                ("window", tcp.window.into()),
            ],
            Self::Icmp(icmp) | Self::Icmpv6(icmp) => {
                let echo_request = if matches!(self, Self::Icmp(_)) { 8 } else { 128 };
                vec![
                    ("type", icmp.kind.unwrap_or(echo_request).into()),
                    ("code", icmp.code.into()),
                    ("identifier", icmp.identifier.into()),
                    ("sequence", icmp.sequence.into()),
                ]
            }
            Self::Arp(arp) => vec![
                ("hardware_type", 1),
                ("protocol_type", 0x0800),
                ("hardware_length", 6),
                ("protocol_length", 4),
                ("operation", arp.operation.into()),
                ("sender_mac", mac(arp.sender_mac)),
                ("sender_ip", ipv4(arp.sender_ip)),
                ("target_mac", mac(arp.target_mac)),
                ("target_ip", ipv4(arp.target_ip)),
            ],
            // The flag means that the VNI is valid.
            Self::Vxlan(vxlan) => vec![("flags", 8), ("vni", vxlan.vni.into())],
            Self::Raw(_) => vec![],
        };
        if let Checksum::Given(checksum) = self.checksum()
            && self.kind().checksum_offset().is_some()
        {
            values.push(("checksum", checksum.into()));
        }
        values
    }
}
