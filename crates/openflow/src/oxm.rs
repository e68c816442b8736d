//! Match fields (OXM): definitions, values and masks, and the match of a flow entry.

use std::fmt;

use ringroad_wire::{ether_type, ip_protocol};

use crate::error::ErrorCode;
use crate::wire::{Reader, Wire, kind_and_part, pad, to_eight};

/// Class of the fields that OpenFlow itself defines.
const BASIC_CLASS: u16 = 0x8000;
/// Bit of a VLAN VID: the frame has a tag.
pub const VLAN_PRESENT: u128 = 0x1000;

/// Notation of a value in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    Decimal,
    Hexadecimal,
    Mac,
    Ipv4,
    Ipv6,
    Port,
}

/// Prerequisite of a field: a condition on another field, without which the field has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prerequisite {
    /// The field is matched, with any value.
    Matched(OxmField),
    /// The field is matched exactly, and its value is one of these.
    OneOf(OxmField, &'static [u128]),
    /// The frame has a VLAN tag.
    Tagged,
}

use Prerequisite::{Matched, OneOf, Tagged};

const ETH_IPV4: Prerequisite = OneOf(OxmField::EthType, &[ether_type::IPV4 as u128]);
const ETH_IPV6: Prerequisite = OneOf(OxmField::EthType, &[ether_type::IPV6 as u128]);
pub(crate) const ETH_IP: Prerequisite =
    OneOf(OxmField::EthType, &[ether_type::IPV4 as u128, ether_type::IPV6 as u128]);
const ETH_ARP: Prerequisite = OneOf(OxmField::EthType, &[ether_type::ARP as u128]);
pub(crate) const ETH_MPLS: Prerequisite =
    OneOf(OxmField::EthType, &[ether_type::MPLS as u128, ether_type::MPLS_MULTICAST as u128]);
const ETH_PBB: Prerequisite = OneOf(OxmField::EthType, &[ether_type::PBB as u128]);
const IS_TCP: Prerequisite = OneOf(OxmField::IpProto, &[ip_protocol::TCP as u128]);
const IS_UDP: Prerequisite = OneOf(OxmField::IpProto, &[ip_protocol::UDP as u128]);
const IS_SCTP: Prerequisite = OneOf(OxmField::IpProto, &[ip_protocol::SCTP as u128]);
const IS_ICMP: Prerequisite = OneOf(OxmField::IpProto, &[ip_protocol::ICMP as u128]);
const IS_ICMPV6: Prerequisite = OneOf(OxmField::IpProto, &[ip_protocol::ICMPV6 as u128]);
/// Neighbour solicitation or advertisement.
const IS_NEIGHBOUR: Prerequisite = OneOf(OxmField::Icmpv6Type, &[135, 136]);
const NO: bool = false;
const YES: bool = true;

macro_rules! fields {
    ($( $field:ident = $number:literal, $name:literal, $bits:literal, $mask:ident, $notation:ident, $position:literal,
        [$($needs:expr),*] $(, $in_words:literal)?; )*) => {
        /// Fields of OpenFlow 1.3, with their numbers in the basic class.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum OxmField { $( #[doc = $name] $field = $number, )* }

        impl OxmField {
            /// All fields, by number.
            pub const ALL: [Self; 40] = [$( Self::$field, )*];

            /// Name in the specification, without the prefix and in lower case: `eth_dst`.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$field => $name, )* }
            }

            /// Width of the value in bits.
            pub const fn bits(self) -> u32 {
                match self { $( Self::$field => $bits, )* }
            }

            /// Whether a match may have a mask. The specification allows none for ports and a neighbour's address; Open
            /// vSwitch and controllers use them.
            pub const fn is_maskable(self) -> bool {
                match self { $( Self::$field => $mask, )* }
            }

            /// Prerequisites: further conditions that a match with this field must have.
            pub const fn prerequisites(self) -> &'static [Prerequisite] {
                match self { $( Self::$field => &[$( $needs ),*], )* }
            }

            /// Prerequisites as text; empty if there are none.
            pub(crate) const fn needs(self) -> &'static str {
                match self { $( Self::$field => concat!($($in_words)?), )* }
            }

            pub(crate) const fn notation(self) -> Notation {
                match self { $( Self::$field => Notation::$notation, )* }
            }

            /// Position of the field in a match that Open vSwitch prints.
            pub(crate) const fn printed_position(self) -> u8 {
                match self { $( Self::$field => $position, )* }
            }
        }
    };
}

fields! {
    InPort = 0, "in_port", 32, NO, Port, 2, [];
    InPhyPort = 1, "in_phy_port", 32, NO, Port, 3, [Matched(OxmField::InPort)], "in_port";
    Metadata = 2, "metadata", 64, YES, Hexadecimal, 1, [];
    EthDst = 3, "eth_dst", 48, YES, Mac, 6, [];
    EthSrc = 4, "eth_src", 48, YES, Mac, 5, [];
    EthType = 5, "eth_type", 16, NO, Hexadecimal, 7, [];
    VlanVid = 6, "vlan_vid", 13, YES, Decimal, 4, [];
    VlanPcp = 7, "vlan_pcp", 3, NO, Decimal, 35, [Tagged], "a VLAN tag";
    IpDscp = 8, "ip_dscp", 6, NO, Decimal, 19, [ETH_IP], "ip or ipv6";
    IpEcn = 9, "ip_ecn", 2, NO, Decimal, 20, [ETH_IP], "ip or ipv6";
    IpProto = 10, "ip_proto", 8, NO, Decimal, 15, [ETH_IP], "ip or ipv6";
    Ipv4Src = 11, "ipv4_src", 32, YES, Ipv4, 10, [ETH_IPV4], "ip, tcp, arp or the like";
    Ipv4Dst = 12, "ipv4_dst", 32, YES, Ipv4, 11, [ETH_IPV4], "ip, tcp, arp or the like";
    TcpSrc = 13, "tcp_src", 16, YES, Decimal, 31, [IS_TCP], "tcp or tcp6";
    TcpDst = 14, "tcp_dst", 16, YES, Decimal, 32, [IS_TCP], "tcp or tcp6";
    UdpSrc = 15, "udp_src", 16, YES, Decimal, 36, [IS_UDP], "udp or udp6";
    UdpDst = 16, "udp_dst", 16, YES, Decimal, 37, [IS_UDP], "udp or udp6";
    SctpSrc = 17, "sctp_src", 16, YES, Decimal, 38, [IS_SCTP], "sctp or sctp6";
    SctpDst = 18, "sctp_dst", 16, YES, Decimal, 39, [IS_SCTP], "sctp or sctp6";
    Icmpv4Type = 19, "icmpv4_type", 8, NO, Decimal, 24, [IS_ICMP, ETH_IPV4], "icmp";
    Icmpv4Code = 20, "icmpv4_code", 8, NO, Decimal, 25, [IS_ICMP, ETH_IPV4], "icmp";
    ArpOp = 21, "arp_op", 16, NO, Decimal, 16, [ETH_ARP], "arp";
    ArpSpa = 22, "arp_spa", 32, YES, Ipv4, 12, [ETH_ARP], "arp";
    ArpTpa = 23, "arp_tpa", 32, YES, Ipv4, 13, [ETH_ARP], "arp";
    ArpSha = 24, "arp_sha", 48, YES, Mac, 17, [ETH_ARP], "arp";
    ArpTha = 25, "arp_tha", 48, YES, Mac, 18, [ETH_ARP], "arp";
    Ipv6Src = 26, "ipv6_src", 128, YES, Ipv6, 8, [ETH_IPV6], "ipv6, tcp6 or the like";
    Ipv6Dst = 27, "ipv6_dst", 128, YES, Ipv6, 9, [ETH_IPV6], "ipv6, tcp6 or the like";
    Ipv6Flabel = 28, "ipv6_flabel", 20, YES, Hexadecimal, 14, [ETH_IPV6], "ipv6, tcp6 or the like";
    Icmpv6Type = 29, "icmpv6_type", 8, NO, Decimal, 26, [IS_ICMPV6, ETH_IPV6], "icmp6";
    Icmpv6Code = 30, "icmpv6_code", 8, NO, Decimal, 27, [IS_ICMPV6, ETH_IPV6], "icmp6";
    Ipv6NdTarget = 31, "ipv6_nd_target", 128, YES, Ipv6, 28, [IS_NEIGHBOUR], "icmp6 and icmp_type=135 or 136";
    Ipv6NdSll = 32, "ipv6_nd_sll", 48, NO, Mac, 29, [OneOf(OxmField::Icmpv6Type, &[135])], "icmp6 and icmp_type=135";
    Ipv6NdTll = 33, "ipv6_nd_tll", 48, NO, Mac, 30, [OneOf(OxmField::Icmpv6Type, &[136])], "icmp6 and icmp_type=136";
    MplsLabel = 34, "mpls_label", 20, NO, Decimal, 21, [ETH_MPLS], "mpls or mplsm";
    MplsTc = 35, "mpls_tc", 3, NO, Decimal, 22, [ETH_MPLS], "mpls or mplsm";
    MplsBos = 36, "mpls_bos", 1, NO, Decimal, 23, [ETH_MPLS], "mpls or mplsm";
    PbbIsid = 37, "pbb_isid", 24, YES, Decimal, 33, [ETH_PBB], "dl_type=0x88e7";
    TunnelId = 38, "tunnel_id", 64, YES, Hexadecimal, 0, [];
    Ipv6Exthdr = 39, "ipv6_exthdr", 9, YES, Hexadecimal, 34, [ETH_IPV6], "ipv6, tcp6 or the like";
}

impl OxmField {
    /// Returns the field with this number in the basic class.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Value, or mask, whose bits are all one.
    pub const fn all_ones(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    /// Bytes of a value in a message.
    pub const fn bytes(self) -> usize {
        match self {
            // Both fields are padded to 32 bits.
            Self::Ipv6Flabel | Self::MplsLabel => 4,
            _ => self.bits().div_ceil(8) as usize,
        }
    }

    /// Header of this field in a message.
    pub const fn id(self, has_mask: bool) -> OxmId {
        let length = self.bytes() << (has_mask as u32);
        let header = (BASIC_CLASS as u32) << 16 | (self as u32) << 9 | (has_mask as u32) << 8 | length as u32;
        OxmId { header, experimenter: None }
    }

    fn read_bits(self, reader: &mut Reader) -> Result<u128, ErrorCode> {
        Ok(reader.take(self.bytes())?.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
    }

    fn write_bits(self, value: u128, out: &mut Vec<u8>) {
        out.extend(value.to_be_bytes().iter().skip(16 - self.bytes()));
    }
}

/// Header of a field. Lists of fields consist of headers. The field may be unknown to this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OxmId {
    /// Class, number, mask flag and length, as in a message.
    pub header: u32,
    /// Number of the experimenter, in the class of experimenters.
    pub experimenter: Option<u32>,
}

impl OxmId {
    const EXPERIMENTER_CLASS: u32 = 0xffff;

    /// Returns the field and whether it has a mask, if OpenFlow itself defines the field.
    pub fn field(self) -> Option<(OxmField, bool)> {
        let has_mask = self.header & 0x100 != 0;
        let field = OxmField::from_number((self.header >> 9 & 0x7f) as u8)?;
        (self.header >> 16 == u32::from(BASIC_CLASS)).then_some((field, has_mask))
    }

    fn length(self) -> usize {
        (self.header & 0xff) as usize
    }
}

impl Wire for OxmId {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let header: u32 = reader.get()?;
        let experimenter = (header >> 16 == Self::EXPERIMENTER_CLASS).then(|| reader.get()).transpose()?;
        Ok(Self { header, experimenter })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.header.write(out);
        self.experimenter.iter().for_each(|id| id.write(out));
    }
}

/// Match of one field. The value is zero in bits that the mask does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldMatch {
    /// Field to match.
    pub field: OxmField,
    /// Value, in the low bits.
    pub value: u128,
    /// Mask of the relevant bits; all of the field's width for an exact match.
    pub mask: u128,
}

impl FieldMatch {
    /// Makes a match of one value.
    pub const fn exact(field: OxmField, value: u128) -> Self {
        Self { field, value, mask: field.all_ones() }
    }

    /// Whether all bits are relevant.
    pub const fn is_exact(&self) -> bool {
        self.mask == self.field.all_ones()
    }

    /// Checks value and mask. Fails if the field cannot have them.
    pub fn check(&self) -> Result<(), ErrorCode> {
        let width = self.field.all_ones();
        if self.value & !width != 0 {
            Err(ErrorCode::MATCH_BAD_VALUE)
        } else if self.mask & !width != 0 || (!self.is_exact() && !self.field.is_maskable()) {
            Err(ErrorCode::MATCH_BAD_MASK)
        } else if self.value & !self.mask != 0 {
            Err(ErrorCode::MATCH_BAD_WILDCARDS)
        } else {
            Ok(())
        }
    }
}

impl Wire for FieldMatch {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let id: OxmId = reader.get()?;
        let (field, has_mask) = id.field().ok_or(ErrorCode::MATCH_BAD_FIELD)?;
        if has_mask && !field.is_maskable() {
            return Err(ErrorCode::MATCH_BAD_MASK);
        }
        if id != field.id(has_mask) {
            return Err(ErrorCode::MATCH_BAD_LEN);
        }
        let value = field.read_bits(reader)?;
        let mask = if has_mask { field.read_bits(reader)? } else { field.all_ones() };
        let read = Self { field, value, mask };
        read.check().map(|()| read)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let has_mask = !self.is_exact();
        self.field.id(has_mask).write(out);
        self.field.write_bits(self.value, out);
        if has_mask {
            self.field.write_bits(self.mask, out);
        }
    }
}

/// A value for a field, as an action sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldValue {
    /// Field to set.
    pub field: OxmField,
    /// Value, in the low bits.
    pub value: u128,
}

impl FieldValue {
    /// Checks field and value. Fails if the field cannot be set, or cannot have the value.
    pub fn check(&self) -> Result<(), ErrorCode> {
        if matches!(self.field, OxmField::InPort | OxmField::InPhyPort | OxmField::Metadata) {
            Err(ErrorCode::ACTION_BAD_SET_TYPE)
        } else if self.value & !self.field.all_ones() != 0
            // A VID without the tag's bit would mean no tag.
            || (self.field == OxmField::VlanVid && self.value & VLAN_PRESENT == 0)
        {
            Err(ErrorCode::ACTION_BAD_SET_ARGUMENT)
        } else {
            Ok(())
        }
    }
}

impl Wire for FieldValue {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let id: OxmId = reader.get()?;
        let (field, has_mask) = id.field().ok_or(ErrorCode::ACTION_BAD_SET_TYPE)?;
        if has_mask {
            return Err(ErrorCode::ACTION_BAD_SET_ARGUMENT);
        }
        if id.length() != field.bytes() {
            return Err(ErrorCode::ACTION_BAD_SET_LEN);
        }
        let read = Self { field, value: field.read_bits(reader)? };
        read.check().map(|()| read)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.field.id(false).write(out);
        self.field.write_bits(self.value, out);
    }
}

/// A match: the fields that a packet must have, sorted, each once, with their prerequisites. An empty match fits every
/// packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    fields: Vec<FieldMatch>,
}

impl Match {
    /// Makes a match for packets with all these fields, which may come in any order. A field without relevant bits is
    /// left out.
    ///
    /// Fails for a bad value or mask, and for a field that is repeated or lacks its prerequisites.
    pub fn new(fields: impl IntoIterator<Item = FieldMatch>) -> Result<Self, ErrorCode> {
        let built = Self::sorted(fields.into_iter().collect())?;
        if built.unmet().is_some() { Err(ErrorCode::MATCH_BAD_PREREQ) } else { Ok(built) }
    }

    /// Makes a match whose prerequisites are not checked yet.
    pub(crate) fn sorted(mut fields: Vec<FieldMatch>) -> Result<Self, ErrorCode> {
        fields.sort_unstable();
        for pair in fields.windows(2) {
            if let [one, other] = pair
                && one.field == other.field
            {
                return Err(ErrorCode::MATCH_DUP_FIELD);
            }
        }
        fields.iter().try_for_each(FieldMatch::check)?;
        fields.retain(|field| field.mask != 0);
        Ok(Self { fields })
    }

    /// Returns the first field that lacks its prerequisites.
    pub(crate) fn unmet(&self) -> Option<OxmField> {
        let is_met = |field: OxmField| field.prerequisites().iter().all(|needed| self.has(*needed));
        self.fields.iter().map(|matched| matched.field).find(|field| !is_met(*field))
    }

    /// Fields, by number.
    pub fn fields(&self) -> &[FieldMatch] {
        &self.fields
    }

    /// Returns the match of one field.
    pub fn get(&self, field: OxmField) -> Option<&FieldMatch> {
        let at = self.fields.binary_search_by_key(&field, |matched| matched.field).ok()?;
        self.fields.get(at)
    }

    /// Returns the value of a field that is matched exactly.
    pub fn exact(&self, field: OxmField) -> Option<u128> {
        self.get(field).filter(|matched| matched.is_exact()).map(|matched| matched.value)
    }

    /// Whether each packet of this match fulfils `needed`.
    pub fn has(&self, needed: Prerequisite) -> bool {
        match needed {
            Matched(field) => self.get(field).is_some(),
            OneOf(field, values) => self.exact(field).is_some_and(|value| values.contains(&value)),
            Tagged => self.get(OxmField::VlanVid).is_some_and(|vid| vid.value & VLAN_PRESENT != 0),
        }
    }
}

/// Type of a match that consists of OXM fields, the only one in OpenFlow 1.3.
const OXM_MATCH: u16 = 1;

impl Wire for Match {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let mut listed = reader.reporting(ErrorCode::MATCH_BAD_LEN, |within| {
            if within.get::<u16>()? != OXM_MATCH {
                return Err(ErrorCode::MATCH_BAD_TYPE);
            }
            let listed = within.sized(2)?;
            within.skip(to_eight(4 + listed.len()))?;
            Ok(listed)
        })?;
        // The number of fields is bounded, so a long list that repeats fields ends early.
        let mut fields = Vec::new();
        while !listed.is_empty() {
            if fields.len() > OxmField::ALL.len() {
                return Err(ErrorCode::MATCH_DUP_FIELD);
            }
            fields.push(listed.get()?);
        }
        Self::new(fields)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        kind_and_part(out, OXM_MATCH, |out| self.fields.write(out));
        pad(out, to_eight(out.len() - start));
    }
}

impl fmt::Display for OxmField {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}
