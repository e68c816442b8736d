//! Offsets of the headers of a frame: Ethernet with its VLAN tags, IPv4, IPv6 with its extension headers.
//!
//! Any bytes are accepted. The walk ends after [`MAX_TAGS`] tags and [`MAX_EXTENSIONS`] extension headers, and finds no
//! header beyond the bytes. It reads the frame's first bytes from one slice: if other processes can write to the frame,
//! or the frame lies in several buffers, the caller copies these bytes first, and reads no field from the frame again.
//! Returned offsets count from the frame's first byte.

use crate::checksum::{counted, sum_bytes};
use crate::{ether_type, ip_protocol};

/// Bytes of an Ethernet header without tags.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes of both addresses of an Ethernet header; the type, or the outermost tag, follows.
pub const ADDRESSES_BYTES: usize = 12;
/// Bytes of a VLAN tag: its protocol and its control information.
pub const TAG_BYTES: usize = 4;
/// Bits of a tag's control information with the number of the VLAN.
pub const VLAN_BITS: u16 = 0xfff;
/// Maximum number of VLAN tags that are skipped, as in Linux. After more tags, the type is that of the next tag.
pub const MAX_TAGS: usize = 8;
/// Maximum number of IPv6 extension headers that are skipped: more than any sender uses.
pub const MAX_EXTENSIONS: usize = 16;
/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;
/// Bytes of an IPv6 header without extension headers.
pub const IPV6_BYTES: usize = 40;

/// Bits of IPv4's word with the fragment offset: more fragments follow, or the offset.
const IPV4_FRAGMENT: u16 = 0x3fff;
/// Bits of the fragment offset in IPv4's word.
const IPV4_FRAGMENT_OFFSET: u16 = 0x1fff;
/// Bits of the fragment offset in IPv6's fragment header.
const IPV6_FRAGMENT_OFFSET: u16 = 0xfff8;

/// EtherTypes that count as VLAN tags.
///
/// A switch with VLANs of customers ([`ether_type::VLAN`]) does not use this: for such a switch, IEEE 802.1Q treats
/// tags of providers as a frame's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tags {
    /// Tags of IEEE 802.1Q: of customers (0x8100) and of providers (0x88a8), as in Linux, Open vSwitch and DPDK.
    Standard,
    /// Standard tags and the tag that older switches write (0x9100): for programs that examine foreign frames, as
    /// libpcap does.
    WithOld,
}

impl Tags {
    /// Whether this type is a tag's.
    #[inline]
    #[must_use]
    pub const fn contains(self, ether_type: u16) -> bool {
        match ether_type {
            ether_type::VLAN | ether_type::SERVICE_VLAN => true,
            ether_type::OLD_SERVICE_VLAN => matches!(self, Self::WithOld),
            _ => false,
        }
    }
}

/// A frame's Ethernet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EthernetHeader {
    /// Offset of the control information of the outermost VLAN tag; `None` without a tag. A tag that is cut off, or
    /// that no type follows, does not count.
    pub tag: Option<usize>,
    /// Offset of the type after all tags.
    pub type_at: usize,
    /// Type after all tags.
    pub ether_type: u16,
}

impl EthernetHeader {
    /// Reads the header at the start of `bytes`; `None` if it is cut off.
    #[inline]
    #[must_use]
    pub fn read(bytes: &[u8], tags: Tags) -> Option<Self> {
        let (mut tag, mut type_at) = (None, ADDRESSES_BYTES);
        let mut ether_type = half(bytes, type_at)?;
        for _ in 0..MAX_TAGS {
            if !tags.contains(ether_type) {
                break;
            }
            let Some(inner) = half(bytes, type_at + TAG_BYTES) else { break };
            tag = tag.or(Some(type_at + 2));
            (ether_type, type_at) = (inner, type_at + TAG_BYTES);
        }
        Some(Self { tag, type_at, ether_type })
    }

    /// Offset of the header's end.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> usize {
        self.type_at + 2
    }
}

/// The version of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    Four,
    /// IPv6.
    Six,
}

/// Whether an IP packet is a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpFragment {
    /// The packet is no fragment.
    No,
    /// The packet is the first fragment, with the header of the protocol above IP.
    First,
    /// The packet is a later fragment.
    Later,
}

/// The IP header of a frame, with the extension headers of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ip {
    /// Version of the packet.
    pub version: IpVersion,
    /// Offset of the header. The whole header is there, but perhaps not the options of IPv4.
    pub at: usize,
    /// Offset of the packet's end according to its header: perhaps beyond the frame, or before its last byte.
    pub end: usize,
    /// Protocol after all extension headers ([`ip_protocol`]).
    pub protocol: u8,
    /// Offset of this protocol's data: perhaps beyond the bytes.
    pub payload_at: usize,
    /// Whether the packet is a fragment.
    pub fragment: IpFragment,
    /// Whether a routing header of IPv6 has segments left. The transport's checksum has the final destination then, not
    /// the one of the IP header (RFC 8200, 8.1).
    pub has_segments_left: bool,
}

impl Ip {
    /// Reads the IP header after an Ethernet header; `None` if there is none, if it is cut off, or if version or length
    /// are invalid.
    #[inline]
    #[must_use]
    pub fn read(bytes: &[u8], ethernet: &EthernetHeader) -> Option<Self> {
        Self::read_with(bytes, ethernet, |_| {})
    }

    /// Works as [`Self::read`], and calls `see` with the protocol number of each extension header of IPv6 in order. ESP
    /// and [`ip_protocol::NO_NEXT`] count as extension headers for `see`, but are the packet's protocol.
    #[inline]
    pub fn read_with(bytes: &[u8], ethernet: &EthernetHeader, see: impl FnMut(u8)) -> Option<Self> {
        match ethernet.ether_type {
            ether_type::IPV4 => Self::read_ipv4(bytes, ethernet.end()),
            ether_type::IPV6 => Self::read_ipv6(bytes, ethernet.end(), see),
            _ => None,
        }
    }

    /// Bytes of the IP header itself: with the options of IPv4, without the extension headers of IPv6.
    #[inline]
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        match self.version {
            IpVersion::Four => self.payload_at - self.at,
            IpVersion::Six => IPV6_BYTES,
        }
    }

    /// Whether extension headers of IPv6 are before the payload.
    #[inline]
    #[must_use]
    pub const fn has_extensions(&self) -> bool {
        self.payload_at != self.at + self.header_bytes()
    }

    /// Range of the source and destination addresses, one after the other.
    #[inline]
    #[must_use]
    pub const fn addresses(&self) -> std::ops::Range<usize> {
        match self.version {
            IpVersion::Four => self.at + 12..self.at + 20,
            IpVersion::Six => self.at + 8..self.at + 40,
        }
    }

    /// Sum of the pseudo header before `payload_bytes` bytes of payload, as [`crate::checksum`] has sums (RFC 768, RFC
    /// 8200, section 8.1). `None` if `bytes` ends before the addresses do.
    #[inline]
    #[must_use]
    pub fn pseudo_header_sum(&self, bytes: &[u8], payload_bytes: usize) -> Option<u64> {
        let words = [u16::from(self.protocol), payload_bytes as u16].map(|word| u64::from(counted(word, 0)));
        Some(sum_bytes(bytes.get(self.addresses())?, 0) + words.iter().sum::<u64>())
    }

    #[inline]
    fn read_ipv4(bytes: &[u8], at: usize) -> Option<Self> {
        let header: &[u8; IPV4_BYTES] = bytes.get(at..)?.first_chunk()?;
        let header_bytes = usize::from(header[0] & 0xf) * 4;
        if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES {
            return None;
        }
        let offset_field = u16::from_be_bytes([header[6], header[7]]);
        let fragment = match () {
            () if offset_field & IPV4_FRAGMENT == 0 => IpFragment::No,
            () if offset_field & IPV4_FRAGMENT_OFFSET == 0 => IpFragment::First,
            () => IpFragment::Later,
        };
        Some(Self {
            version: IpVersion::Four,
            at,
            end: at + usize::from(u16::from_be_bytes([header[2], header[3]])),
            protocol: header[9],
            payload_at: at + header_bytes,
            fragment,
            has_segments_left: false,
        })
    }

    #[inline]
    fn read_ipv6(bytes: &[u8], at: usize, mut see: impl FnMut(u8)) -> Option<Self> {
        let header: &[u8; IPV6_BYTES] = bytes.get(at..)?.first_chunk()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let mut ip = Self {
            version: IpVersion::Six,
            at,
            end: at + IPV6_BYTES + usize::from(u16::from_be_bytes([header[4], header[5]])),
            protocol: header[6],
            payload_at: at + IPV6_BYTES,
            fragment: IpFragment::No,
            has_segments_left: false,
        };
        for _ in 0..MAX_EXTENSIONS {
            if !ip.pass_extension(bytes, &mut see) {
                break;
            }
        }
        Some(ip)
    }

    /// Skips an extension header. Returns false if no readable header follows.
    #[inline]
    fn pass_extension(&mut self, bytes: &[u8], mut see: impl FnMut(u8)) -> bool {
        use ip_protocol::{AUTHENTICATION, DESTINATION_OPTIONS, ESP, FRAGMENT, HOP_BY_HOP, NO_NEXT, ROUTING};
        let kind = self.protocol;
        match kind {
            HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS => see(kind),
            ESP | NO_NEXT => {
                see(kind);
                return false;
            }
            _ => return false,
        }
        let start: Option<&[u8; 8]> = bytes.get(self.payload_at..).and_then(|rest| rest.first_chunk());
        let Some(&[next, length, high, low, ..]) = start else { return false };
        let bytes = match kind {
            FRAGMENT => {
                let is_first = u16::from_be_bytes([high, low]) & IPV6_FRAGMENT_OFFSET == 0;
                self.fragment = if is_first { IpFragment::First } else { IpFragment::Later };
                8
            }
            ROUTING => {
                self.has_segments_left |= low != 0;
                (usize::from(length) + 1) * 8
            }
            // RFC 4302 counts in units of four bytes, and leaves out two.
            AUTHENTICATION => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        (self.protocol, self.payload_at) = (next, self.payload_at + bytes);
        self.fragment != IpFragment::Later
    }
}

#[inline]
fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|&half| u16::from_be_bytes(half))
}

#[cfg(test)]
mod tests;
