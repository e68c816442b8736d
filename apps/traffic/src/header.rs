//! The headers of a frame as a definition lists them, outermost first.
//!
//! Lengths, checksums and the fields that name the next header follow from the stack and are right by default. Some can
//! be set to other values in the definition. Defaults keep test traffic apart from real traffic: locally administered
//! Ethernet addresses, IPv4 addresses from 198.18.0.0/15 (RFC 2544, appendix C.2.2), IPv6 addresses from 2001:2::/48
//! (RFC 5180, section 8), and the discard port (RFC 863), so that no host answers.

mod field;
mod layout;
mod text;
mod values;

use std::net::{Ipv4Addr, Ipv6Addr};

use ringroad_wire::mac::Mac;
use serde::{Deserialize, Serialize};

pub(crate) use self::field::{FieldKind, HeaderKind, get_bits, set_bits};
pub(crate) use self::layout::{Layout, Span};
pub use self::text::{Checksum, HexBytes, HexBytesError, TcpFlags, TcpFlagsError};
use self::text::{address, optional, up_to};

/// Default UDP and TCP source port: the first dynamic port (RFC 6335, section 6).
pub const DEFAULT_SOURCE_PORT: u16 = 49152;
/// Default UDP and TCP destination port: discard (RFC 863).
pub const DISCARD_PORT: u16 = 9;
/// UDP destination port before a VXLAN header (RFC 7348, section 5).
pub const VXLAN_PORT: u16 = 4789;
/// Default IPv4 "time to live" and IPv6 "hop limit" (RFC 1700).
pub const DEFAULT_TTL: u8 = 64;

/// One header of a packet. In text, a table with one entry that is named as in [`Header::name`]: `{ipv4 = {ttl = 7}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Header {
    /// Ethernet II (IEEE 802.3, clause 3.2.6), 14 bytes.
    Ethernet(Ethernet),
    /// A VLAN tag (IEEE 802.1Q, clause 9), 4 bytes.
    Vlan(Vlan),
    /// An entry of the MPLS label stack (RFC 3032), 4 bytes.
    Mpls(Mpls),
    /// IPv4 without options (RFC 791), 20 bytes.
    Ipv4(Ipv4),
    /// IPv6 (RFC 8200), 40 bytes.
    Ipv6(Ipv6),
    /// UDP (RFC 768), 8 bytes.
    Udp(Udp),
    /// TCP without options (RFC 9293), 20 bytes. Each frame has just the given values: there is no connection.
    Tcp(Tcp),
    /// ICMP (RFC 792), 8 bytes.
    Icmp(Icmp),
    /// ICMPv6 (RFC 4443), 8 bytes.
    Icmpv6(Icmp),
    /// ARP for IPv4 over Ethernet (RFC 826), 28 bytes.
    Arp(Arp),
    /// VXLAN (RFC 7348, section 5), 8 bytes.
    Vxlan(Vxlan),
    /// Raw bytes of any content.
    Raw(HexBytes),
}

/// Ethernet II header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ethernet {
    /// Source address; 02:00:00:00:00:01 if not given.
    pub source: Mac,
    /// Destination address; 02:00:00:00:00:02 if not given.
    pub destination: Mac,
    /// EtherType; if not given, the next header's, or 0x88b5 (local experiments, IEEE 802).
    #[serde(deserialize_with = "optional::<0xffff, _, _>", skip_serializing_if = "Option::is_none")]
    pub ether_type: Option<u16>,
}

impl Default for Ethernet {
    fn default() -> Self {
        Self {
            source: Mac::from_octets([2, 0, 0, 0, 0, 1]),
            destination: Mac::from_octets([2, 0, 0, 0, 0, 2]),
            ether_type: None,
        }
    }
}

/// VLAN tag. Its TPID is in the EtherType field of the preceding header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vlan {
    /// VLAN identifier, 0 to 4095; 1 if not given.
    #[serde(deserialize_with = "up_to::<4095, _, _>")]
    pub id: u16,
    /// Priority code point, 0 to 7.
    #[serde(deserialize_with = "up_to::<7, _, _>")]
    pub priority: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// Tag protocol identifier; if not given, 0x88a8 for the first of several tags (IEEE 802.1ad), else 0x8100.
    #[serde(deserialize_with = "optional::<0xffff, _, _>", skip_serializing_if = "Option::is_none")]
    pub tpid: Option<u16>,
    /// EtherType of the next header, as in [`Ethernet::ether_type`].
    #[serde(deserialize_with = "optional::<0xffff, _, _>", skip_serializing_if = "Option::is_none")]
    pub ether_type: Option<u16>,
}

impl Default for Vlan {
    fn default() -> Self {
        Self { id: 1, priority: 0, dei: false, tpid: None, ether_type: None }
    }
}

/// Entry of the MPLS label stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mpls {
    /// Label, 0 to 1048575; if not given 16, the first label that is not reserved.
    #[serde(deserialize_with = "up_to::<0xf_ffff, _, _>")]
    pub label: u32,
    /// Traffic class (RFC 5462), 0 to 7.
    #[serde(deserialize_with = "up_to::<7, _, _>")]
    pub traffic_class: u8,
    /// Bottom of stack; if not given, 0 before another MPLS header, else 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottom: Option<bool>,
    /// Time to live, 64 if not given.
    #[serde(deserialize_with = "up_to::<255, _, _>")]
    pub ttl: u8,
}

impl Default for Mpls {
    fn default() -> Self {
        Self { label: 16, traffic_class: 0, bottom: None, ttl: DEFAULT_TTL }
    }
}

/// IPv4 header without options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ipv4 {
    /// Source address; 198.18.0.1 if not given.
    #[serde(deserialize_with = "address")]
    pub source: Ipv4Addr,
    /// Destination address; 198.19.0.1 if not given.
    #[serde(deserialize_with = "address")]
    pub destination: Ipv4Addr,
    /// Time to live, 64 if not given.
    #[serde(deserialize_with = "up_to::<255, _, _>")]
    pub ttl: u8,
    /// Differentiated services code point (RFC 2474), 0 to 63.
    #[serde(deserialize_with = "up_to::<63, _, _>")]
    pub dscp: u8,
    /// Explicit congestion notification (RFC 3168), 0 to 3.
    #[serde(deserialize_with = "up_to::<3, _, _>")]
    pub ecn: u8,
    /// Identification.
    #[serde(deserialize_with = "up_to::<0xffff, _, _>")]
    pub identification: u16,
    /// The "don't fragment" flag; set if not given.
    pub dont_fragment: bool,
    /// Protocol; if not given, the next header's, or 253 (experiments, RFC 3692).
    #[serde(deserialize_with = "optional::<255, _, _>", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Header checksum.
    pub checksum: Checksum,
}

impl Default for Ipv4 {
    fn default() -> Self {
        Self {
            source: Ipv4Addr::new(198, 18, 0, 1),
            destination: Ipv4Addr::new(198, 19, 0, 1),
            ttl: DEFAULT_TTL,
            dscp: 0,
            ecn: 0,
            identification: 0,
            dont_fragment: true,
            protocol: None,
            checksum: Checksum::Right,
        }
    }
}

/// IPv6 header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ipv6 {
    /// Source address; 2001:2::1 if not given.
    #[serde(deserialize_with = "address")]
    pub source: Ipv6Addr,
    /// Destination address; 2001:2:0:1::1 if not given.
    #[serde(deserialize_with = "address")]
    pub destination: Ipv6Addr,
    /// Hop limit, 64 if not given.
    #[serde(deserialize_with = "up_to::<255, _, _>")]
    pub hop_limit: u8,
    /// Traffic class: DSCP times 4 plus ECN, 0 to 255.
    #[serde(deserialize_with = "up_to::<255, _, _>")]
    pub traffic_class: u8,
    /// Flow label (RFC 6437), 0 to 1048575.
    #[serde(deserialize_with = "up_to::<0xf_ffff, _, _>")]
    pub flow_label: u32,
    /// Next header; the default is as in [`Ipv4::protocol`].
    #[serde(deserialize_with = "optional::<255, _, _>", skip_serializing_if = "Option::is_none")]
    pub next_header: Option<u8>,
}

impl Default for Ipv6 {
    fn default() -> Self {
        Self {
            source: Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1),
            destination: Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 1),
            hop_limit: DEFAULT_TTL,
            traffic_class: 0,
            flow_label: 0,
            next_header: None,
        }
    }
}

/// UDP header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Udp {
    /// Source port; 49152 if not given.
    #[serde(deserialize_with = "up_to::<0xffff, _, _>")]
    pub source: u16,
    /// Destination port; if not given, 4789 before VXLAN, else 9.
    #[serde(deserialize_with = "optional::<0xffff, _, _>", skip_serializing_if = "Option::is_none")]
    pub destination: Option<u16>,
    /// Checksum. "zero" means that the packet has no checksum.
    pub checksum: Checksum,
}

impl Default for Udp {
    fn default() -> Self {
        Self { source: DEFAULT_SOURCE_PORT, destination: None, checksum: Checksum::Right }
    }
}

/// TCP header without options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tcp {
    /// Source port; 49152 if not given.
    #[serde(deserialize_with = "up_to::<0xffff, _, _>")]
    pub source: u16,
    /// Destination port; 9 if not given.
    #[serde(deserialize_with = "up_to::<0xffff, _, _>")]
    pub destination: u16,
    /// Sequence number.
    #[serde(deserialize_with = "up_to::<0xffff_ffff, _, _>")]
    pub sequence: u32,
    /// Acknowledgment number.
    #[serde(deserialize_with = "up_to::<0xffff_ffff, _, _>")]
    pub acknowledgment: u32,
    /// Control bits; "S" if not given.
    pub flags: TcpFlags,
    /// Window; 65535 if not given.
    #[serde(deserialize_with = "up_to::<0xffff, _, _>")]
    pub window: u16,
    /// Checksum.
    pub checksum: Checksum,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            source: DEFAULT_SOURCE_PORT,
            destination: DISCARD_PORT,
            sequence: 0,
            acknowledgment: 0,
            flags: TcpFlags::SYN,
            window: u16::MAX,
            checksum: Checksum::Right,
        }
    }
}

/// ICMP or ICMPv6 header, with the second four bytes as in echo messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Icmp {
    /// Type; if not given, an echo request (8, in ICMPv6 128).
    #[serde(
        rename = "type",
        deserialize_with = "optional::<255, _, _>",
        skip_serializing_if = "Option::is_none"
    )]
    pub kind: Option<u8>,
    /// Code.
    #[serde(deserialize_with = "up_to::<255, _, _>")]
    pub code: u8,
    /// Identifier.
    #[serde(deserialize_with = "up_to::<0xffff, _, _>")]
    pub identifier: u16,
    /// Sequence number.
    #[serde(deserialize_with = "up_to::<0xffff, _, _>")]
    pub sequence: u16,
    /// Checksum.
    pub checksum: Checksum,
}

/// ARP packet for IPv4 over Ethernet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Arp {
    /// Operation: 1 is a request, 2 a reply; 1 if not given.
    #[serde(deserialize_with = "up_to::<0xffff, _, _>")]
    pub operation: u16,
    /// Sender's Ethernet address; 02:00:00:00:00:01 if not given.
    pub sender_mac: Mac,
    /// Sender's IPv4 address; 198.18.0.1 if not given.
    #[serde(deserialize_with = "address")]
    pub sender_ip: Ipv4Addr,
    /// Target's Ethernet address; zeros if not given.
    pub target_mac: Mac,
    /// Target's IPv4 address; 198.19.0.1 if not given.
    #[serde(deserialize_with = "address")]
    pub target_ip: Ipv4Addr,
}

impl Default for Arp {
    fn default() -> Self {
        Self {
            operation: 1,
            sender_mac: Ethernet::default().source,
            sender_ip: Ipv4::default().source,
            target_mac: Mac::from_octets([0; 6]),
            target_ip: Ipv4::default().destination,
        }
    }
}

/// VXLAN header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vxlan {
    /// VXLAN network identifier, 0 to 16777215; 1 if not given.
    #[serde(deserialize_with = "up_to::<0xff_ffff, _, _>")]
    pub vni: u32,
}

impl Default for Vxlan {
    fn default() -> Self {
        Self { vni: 1 }
    }
}

impl Header {
    /// Name of the header in definitions and in field names.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }
}
