//! EtherTypes (IEEE's registry of numbers).

/// Internet Protocol version 4.
pub const IPV4: u16 = 0x0800;
/// Address Resolution Protocol.
pub const ARP: u16 = 0x0806;
/// The tag of a customer's VLAN (IEEE 802.1Q, C-TAG).
pub const VLAN: u16 = 0x8100;
/// Internet Protocol version 6.
pub const IPV6: u16 = 0x86dd;
/// MPLS.
pub const MPLS: u16 = 0x8847;
/// MPLS with a label that the sender's neighbour upstream chose; multicast in the first standard.
pub const MPLS_MULTICAST: u16 = 0x8848;
/// The tag of a provider's VLAN (IEEE 802.1ad, now in 802.1Q, S-TAG).
pub const SERVICE_VLAN: u16 = 0x88a8;
/// Type for experiments within a network (IEEE 802, local experimental EtherType 1). No host answers it.
pub const LOCAL_EXPERIMENT: u16 = 0x88b5;
/// The tag of a backbone's service instance (IEEE 802.1ah, now in 802.1Q, I-TAG).
pub const PBB: u16 = 0x88e7;
/// Outer VLAN tag of switches older than IEEE 802.1ad, in no standard.
pub const OLD_SERVICE_VLAN: u16 = 0x9100;
/// Smallest value of a type; a smaller value is a length (IEEE 802.3, 3.2.6).
pub const LEAST: u16 = 0x0600;
