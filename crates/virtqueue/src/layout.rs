//! The layout of virtqueues in memory (Virtual I/O Device version 1.2, sections 2.7 and 2.8), and the features of a
//! network card (5.1.3). All fields are little-endian.

/// Feature bits that matter to rings and network cards.
pub mod features {
    /// The device accepts frames with a partial checksum (checksum offload).
    pub const NET_CSUM: u64 = 1 << 0;
    /// The driver accepts frames with a partial checksum.
    pub const NET_GUEST_CSUM: u64 = 1 << 1;
    /// The device gives the card its address.
    pub const NET_MAC: u64 = 1 << 5;
    /// The driver accepts long TCP frames over IPv4.
    pub const NET_GUEST_TSO4: u64 = 1 << 7;
    /// The driver accepts long TCP frames over IPv6.
    pub const NET_GUEST_TSO6: u64 = 1 << 8;
    /// The driver accepts long TCP frames with explicit congestion notification.
    pub const NET_GUEST_ECN: u64 = 1 << 9;
    /// The device accepts long TCP frames over IPv4.
    pub const NET_HOST_TSO4: u64 = 1 << 11;
    /// The device accepts long TCP frames over IPv6.
    pub const NET_HOST_TSO6: u64 = 1 << 12;
    /// The device accepts long TCP frames with explicit congestion notification.
    pub const NET_HOST_ECN: u64 = 1 << 13;
    /// With all of these the device accepts unfinished frames: partial checksums, and long TCP frames.
    pub const HOST_OFFLOADS: u64 = NET_CSUM | NET_HOST_TSO4 | NET_HOST_TSO6 | NET_HOST_ECN;
    /// With all of these the driver accepts unfinished frames.
    pub const GUEST_OFFLOADS: u64 = NET_GUEST_CSUM | NET_GUEST_TSO4 | NET_GUEST_TSO6 | NET_GUEST_ECN;
    /// A received frame may take several buffers.
    pub const NET_MRG_RXBUF: u64 = 1 << 15;
    /// The card reports whether it has a link.
    pub const NET_STATUS: u64 = 1 << 16;
    /// The card has a control queue.
    pub const NET_CTRL_VQ: u64 = 1 << 17;
    /// The control queue sets which frames the driver receives: all, all multicast frames, those to listed addresses.
    pub const NET_CTRL_RX: u64 = 1 << 18;
    /// The control queue sets the VLANs whose frames the driver receives.
    pub const NET_CTRL_VLAN: u64 = 1 << 19;
    /// The control queue can also turn off kinds of frames: unicast, multicast, broadcast.
    pub const NET_CTRL_RX_EXTRA: u64 = 1 << 20;
    /// The driver announces itself on request, after a migration.
    pub const NET_GUEST_ANNOUNCE: u64 = 1 << 21;
    /// The card has several pairs of queues.
    pub const NET_MQ: u64 = 1 << 22;
    /// The control queue sets the card's address.
    pub const NET_CTRL_MAC_ADDR: u64 = 1 << 23;
    /// The device keeps a log of the pages that it writes (vhost, no bit of virtio's).
    pub const LOG_ALL: u64 = 1 << 26;
    /// A legacy driver accepts any split between header and frame.
    pub const ANY_LAYOUT: u64 = 1 << 27;
    /// A descriptor may point to a table of descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Each side sets the entry at which it is woken.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// vhost-user has features of its own (vhost, no bit of virtio's).
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// The device and its driver use virtio 1.0 or later.
    pub const VERSION_1: u64 = 1 << 32;
    /// The rings are packed.
    pub const RING_PACKED: u64 = 1 << 34;
    /// Buffers are given back in the order in which they were made available.
    pub const IN_ORDER: u64 = 1 << 35;
}

/// Bytes of a descriptor, in a ring of either kind and in a table.
pub const DESCRIPTOR_BYTES: usize = 16;
/// The descriptor continues in the next one.
pub const DESC_NEXT: u16 = 1;
/// The device writes the buffer.
pub const DESC_WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub const DESC_INDIRECT: u16 = 4;
/// Packed rings: the descriptor was made available in a lap in which the driver's counter was 1.
pub const DESC_AVAIL: u16 = 1 << 7;
/// Packed rings: the descriptor was used in a lap in which the device's counter was 1.
pub const DESC_USED: u16 = 1 << 15;

/// Split rings, `avail.flags`: the driver need not be woken.
pub const AVAIL_NO_INTERRUPT: u16 = 1;
/// Split rings, `used.flags`: the device need not be woken.
pub const USED_NO_NOTIFY: u16 = 1;

/// Packed rings, `flags` of an event suppression area: wake always.
pub const EVENT_ENABLE: u16 = 0;
/// Packed rings: wake never.
pub const EVENT_DISABLE: u16 = 1;
/// Packed rings: wake at the descriptor that the area names.
pub const EVENT_AT_DESCRIPTOR: u16 = 2;

/// Maximum number of entries of a ring.
pub const MAX_RING_ENTRIES: u16 = 32768;
/// Length of the header in front of each frame, bytes, with [`features::VERSION_1`] or [`features::NET_MRG_RXBUF`].
pub const NET_HEADER_BYTES: usize = 12;
/// Length of the header in front of each frame, bytes, without these two features.
pub const SHORT_NET_HEADER_BYTES: usize = 10;

/// Bytes of the available ring of a split virtqueue of `entries` entries: flags, index, entries, `used_event`.
#[must_use]
pub const fn avail_ring_bytes(entries: u16) -> usize {
    6 + 2 * entries as usize
}

/// Bytes of the used ring of a split virtqueue of `entries` entries: flags, index, entries of 8 bytes, `avail_event`.
#[must_use]
pub const fn used_ring_bytes(entries: u16) -> usize {
    6 + 8 * entries as usize
}

/// Whether the entry at which the other side wants to be woken, `event`, is among those published from `before` up to,
/// but without, `now` (virtio 1.2, section 2.7.10.1).
#[inline]
#[must_use]
pub const fn passes_event(event: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use super::passes_event;

    #[test]
    fn an_event_is_passed_by_the_step_that_publishes_its_entry() {
        assert!(passes_event(5, 6, 5) && passes_event(5, 9, 3));
        assert!(!passes_event(5, 5, 3) && !passes_event(5, 9, 6));
        assert!(passes_event(65535, 1, 65534) && !passes_event(1, 1, 65534));
    }
}
