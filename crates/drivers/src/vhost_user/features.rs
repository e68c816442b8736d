//! The features offered to a guest's front end, and the text for the agreed ones.

use ringroad_virtqueue::layout::features::*;
use vhost::vhost_user::message::VhostUserProtocolFeatures as Protocol;

/// Virtio features that are offered to a front end. A front end that emulates the card itself takes none of those about
/// the control queue and the card's address.
pub(super) fn offered(queues: u16, offloads: bool, packed: bool, has_address: bool) -> u64 {
    let mut features = VERSION_1
        | ANY_LAYOUT
        | INDIRECT_DESC
        | EVENT_IDX
        | IN_ORDER
        | NET_MRG_RXBUF
        | NET_STATUS
        | NET_CTRL_VQ
        | NET_CTRL_RX
        | NET_CTRL_VLAN
        | NET_CTRL_RX_EXTRA
        | NET_CTRL_MAC_ADDR
        | NET_GUEST_ANNOUNCE
        | PROTOCOL_FEATURES
        | LOG_ALL;
    if queues > 1 {
        features |= NET_MQ;
    }
    if offloads {
        // The datapath supports no UDP segmentation.
        features |= HOST_OFFLOADS | GUEST_OFFLOADS;
    }
    if packed {
        features |= RING_PACKED;
    }
    if has_address {
        features |= NET_MAC;
    }
    features
}

/// Features of the vhost-user protocol that are offered to a front end.
pub(super) fn offered_protocol() -> Protocol {
    Protocol::MQ
        | Protocol::LOG_SHMFD
        | Protocol::REPLY_ACK
        | Protocol::BACKEND_REQ
        | Protocol::CONFIG
        | Protocol::INFLIGHT_SHMFD
        | Protocol::RESET_DEVICE
        | Protocol::CONFIGURE_MEM_SLOTS
        | Protocol::STATUS
}

/// Agreed features, as text for users.
pub(super) fn describe(features: u64) -> String {
    let has = |bits: u64| features & bits == bits;
    let words = [
        (true, if has(VERSION_1) { "virtio 1" } else { "legacy virtio" }),
        (true, if has(RING_PACKED) { "packed rings" } else { "split rings" }),
        (has(NET_MRG_RXBUF), "merged buffers"),
        (has(INDIRECT_DESC), "indirect descriptors"),
        (has(EVENT_IDX), "event index"),
        (has(IN_ORDER), "buffers in order"),
        (has(NET_CSUM) || has(NET_GUEST_CSUM), "checksum offload"),
        (has(NET_HOST_TSO4) || has(NET_GUEST_TSO4), "TCP segmentation offload"),
        (has(NET_MQ), "several queues"),
        (has(NET_CTRL_VQ), "control queue"),
        (has(NET_CTRL_VQ | NET_CTRL_RX), "receive filter"),
        (has(LOG_ALL), "logging for a migration"),
    ];
    words.into_iter().filter_map(|(holds, word)| holds.then_some(word)).collect::<Vec<_>>().join(", ")
}
