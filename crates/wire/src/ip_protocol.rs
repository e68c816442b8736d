//! Protocols in IP, by IANA's numbers, and IPv6's extension headers, which share them.

/// IPv6: options for each hop.
pub const HOP_BY_HOP: u8 = 0;
/// ICMP of IPv4.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// IPv6: routing header.
pub const ROUTING: u8 = 43;
/// IPv6: fragment header.
pub const FRAGMENT: u8 = 44;
/// Encapsulating Security Payload.
pub const ESP: u8 = 50;
/// Authentication Header.
pub const AUTHENTICATION: u8 = 51;
/// ICMP of IPv6.
pub const ICMPV6: u8 = 58;
/// IPv6: nothing follows.
pub const NO_NEXT: u8 = 59;
/// IPv6: options for the destination.
pub const DESTINATION_OPTIONS: u8 = 60;
/// SCTP.
pub const SCTP: u8 = 132;

/// Offset of the Internet checksum in a header of this protocol, bytes; `None` if it has none.
#[inline]
#[must_use]
pub const fn checksum_offset(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        ICMP | ICMPV6 => Some(2),
        _ => None,
    }
}

/// Whether the Internet checksum of this protocol also covers IP addresses, protocol and length (RFC 768, RFC 9293, RFC
/// 8200, section 8.1). ICMP's checksum covers only its message (RFC 792).
#[inline]
#[must_use]
pub const fn has_pseudo_header(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | ICMPV6)
}
