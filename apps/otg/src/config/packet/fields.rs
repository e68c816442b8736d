//! The headers of the model and their fields: each field's allowed values and its name in a stream definition.

use crate::config::pattern::Kind;

/// Translation of a field of the model to a field of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    /// Any pattern; the default is the model's default value.
    Varies { default: u64 },
    /// Any pattern; the default is the model's default value, which the model also calls `auto`.
    VariesOrAuto { default: u64 },
    /// Any pattern; the default is the computed value.
    Follows,
    /// Computed value, or one of these values. Used for fields whose value a stream definition cannot set.
    Only(&'static [u64]),
    /// Checksum: `generated` and good, or a number.
    Checksum,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    /// Name of the field in the model.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) rule: Rule,
    /// Name of the field in a stream definition; empty for fields that cannot be set.
    pub(super) to: &'static str,
}

pub(super) const BYTE: Kind = Kind::Number(0xff);
const WORD: Kind = Kind::Number(0xffff);
const LONG: Kind = Kind::Number(0xffff_ffff);

const fn field(name: &'static str, kind: Kind, rule: Rule, to: &'static str) -> Field {
    Field { name, kind, rule, to }
}

pub(super) const fn varies(name: &'static str, kind: Kind, default: u64, to: &'static str) -> Field {
    field(name, kind, Rule::Varies { default }, to)
}

const fn only(name: &'static str, right: &'static [u64]) -> Field {
    field(name, LONG, Rule::Only(right), "")
}

const fn checksum(name: &'static str) -> Field {
    field(name, WORD, Rule::Checksum, "checksum")
}

/// Destination address for flows with destination `auto` or without a destination: 02:00:00:00:00:02. Frames to the
/// default source, 00:00:00:00:00:00, would go back to their sender, so a switch drops them.
const CHOSEN_DESTINATION: u64 = 0x0200_0000_0002;

const ETHERNET: &[Field] = &[
    field("dst", Kind::Mac, Rule::VariesOrAuto { default: CHOSEN_DESTINATION }, "destination"),
    varies("src", Kind::Mac, 0, "source"),
    field("ether_type", WORD, Rule::Follows, "ether_type"),
    only("pfc_queue", &[0]),
];
const VLAN: &[Field] = &[
    varies("priority", Kind::Number(7), 0, "priority"),
    varies("cfi", Kind::Bit, 0, "dei"),
    varies("id", Kind::Number(4095), 0, "id"),
    field("tpid", WORD, Rule::Follows, "tpid"),
];
const MPLS: &[Field] = &[
    field("label", Kind::Number(0xf_ffff), Rule::VariesOrAuto { default: 16 }, "label"),
    varies("traffic_class", Kind::Number(7), 0, "traffic_class"),
    field("bottom_of_stack", Kind::Bit, Rule::Follows, "bottom"),
    varies("time_to_live", BYTE, 64, "ttl"),
];
const IPV4: &[Field] = &[
    only("version", &[4]),
    only("header_length", &[5]),
    only("total_length", &[]),
    varies("identification", WORD, 0, "identification"),
    only("reserved", &[0]),
    varies("dont_fragment", Kind::Bit, 0, "dont_fragment"),
    only("more_fragments", &[0]),
    only("fragment_offset", &[0]),
    varies("time_to_live", BYTE, 64, "ttl"),
    field("protocol", BYTE, Rule::Follows, "protocol"),
    checksum("header_checksum"),
    varies("src", Kind::Ipv4, 0, "source"),
    varies("dst", Kind::Ipv4, 0, "destination"),
];
const IPV6: &[Field] = &[
    only("version", &[6]),
    varies("traffic_class", BYTE, 0, "traffic_class"),
    varies("flow_label", Kind::Number(0xf_ffff), 0, "flow_label"),
    only("payload_length", &[]),
    field("next_header", BYTE, Rule::Follows, "next_header"),
    varies("hop_limit", BYTE, 64, "hop_limit"),
    varies("src", Kind::Ipv6, 0, "source"),
    varies("dst", Kind::Ipv6, 0, "destination"),
];
const UDP: &[Field] = &[
    varies("src_port", WORD, 0, "source"),
    varies("dst_port", WORD, 0, "destination"),
    only("length", &[]),
    checksum("checksum"),
];
const TCP: &[Field] = &[
    varies("src_port", WORD, 0, "source"),
    varies("dst_port", WORD, 0, "destination"),
    varies("seq_num", LONG, 0, "sequence"),
    varies("ack_num", LONG, 0, "acknowledgment"),
    only("data_offset", &[0, 5]),
    only("ecn_ns", &[0]),
    varies("window", WORD, 0, "window"),
    checksum("checksum"),
];
const ARP: &[Field] = &[
    only("hardware_type", &[1]),
    only("protocol_type", &[0x0800]),
    only("hardware_length", &[6]),
    only("protocol_length", &[4]),
    varies("operation", WORD, 1, "operation"),
    varies("sender_hardware_addr", Kind::Mac, 0, "sender_mac"),
    varies("sender_protocol_addr", Kind::Ipv4, 0, "sender_ip"),
    varies("target_hardware_addr", Kind::Mac, 0, "target_mac"),
    varies("target_protocol_addr", Kind::Ipv4, 0, "target_ip"),
];
const VXLAN: &[Field] = &[
    only("flags", &[8]),
    only("reserved0", &[0]),
    field("vni", Kind::Number(0xff_ffff), Rule::VariesOrAuto { default: 0 }, "vni"),
    only("reserved1", &[0]),
];

/// The headers, by their names, which are the same in the model and in a stream definition.
pub(super) const HEADERS: [(&str, &[Field]); 11] = [
    ("ethernet", ETHERNET),
    ("vlan", VLAN),
    ("mpls", MPLS),
    ("ipv4", IPV4),
    ("ipv6", IPV6),
    ("udp", UDP),
    ("tcp", TCP),
    ("icmp", &echo_fields(8)),
    ("icmpv6", &echo_fields(128)),
    ("arp", ARP),
    ("vxlan", VXLAN),
];

const fn echo_fields(echo_request: u64) -> [Field; 5] {
    [
        varies("type", BYTE, echo_request, "type"),
        varies("code", BYTE, 0, "code"),
        checksum("checksum"),
        varies("identifier", WORD, 0, "identifier"),
        varies("sequence_number", WORD, 0, "sequence"),
    ]
}

/// Names of all headers, the values of `choice`.
pub(super) const CHOICES: &[&str] =
    &["ethernet", "vlan", "mpls", "ipv4", "ipv6", "udp", "tcp", "icmp", "icmpv6", "arp", "vxlan", "custom"];

/// The model's single-bit fields of a TCP header, and their letters in a stream definition.
pub(super) const TCP_FLAGS: [(&str, char); 8] = [
    ("ctl_fin", 'F'),
    ("ctl_syn", 'S'),
    ("ctl_rst", 'R'),
    ("ctl_psh", 'P'),
    ("ctl_ack", 'A'),
    ("ctl_urg", 'U'),
    ("ecn_echo", 'E'),
    ("ecn_cwr", 'C'),
];
