//! A driver's report of its XDP features, and of the metadata that it has for frames. Source:
//! Documentation/netlink/specs/netdev.yaml; numbers from linux/netdev.h, since Linux 6.3.

use std::fmt;

use netlink_packet_core::DefaultNla;

use crate::error::NetdevError;
use crate::generic_message::ask_family;

const FAMILY: &str = "netdev";
const DEV_GET: u8 = 1;
const DEV_IFINDEX: u16 = 1;
const DEV_XDP_FEATURES: u16 = 3;
/// Since Linux 6.6, of drivers with zero copy.
const DEV_XDP_ZC_MAX_SEGS: u16 = 4;
/// Since Linux 6.7.
const DEV_XDP_RX_METADATA: u16 = 5;
/// Since Linux 6.8.
const DEV_XSK_FEATURES: u16 = 6;

/// Names of `enum netdev_xdp_act` by bit, as the specification has them.
const NAMES: [&str; 7] =
    ["basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg"];
/// Names of `enum netdev_xdp_rx_metadata` by bit: what an XDP program can ask the driver about a received frame.
const RX_METADATA_NAMES: [&str; 3] = ["timestamp", "hash", "vlan-tag"];
/// Names of `enum netdev_xsk_flags` by bit: what the driver does for a frame that AF_XDP sends in zero-copy mode.
const TX_METADATA_NAMES: [&str; 3] = ["tx-timestamp", "tx-checksum", "tx-launch-time-fifo"];
/// `NETDEV_XDP_ACT_BASIC` and `NETDEV_XDP_ACT_REDIRECT`: programs run in the driver, and can redirect frames.
const NATIVE: u64 = 1 | 1 << 1;
/// `NETDEV_XDP_ACT_XSK_ZEROCOPY`.
const ZERO_COPY: u64 = 1 << 3;
/// `NETDEV_XDP_ACT_RX_SG`.
const RX_SG: u64 = 1 << 5;
/// `NETDEV_XDP_RX_METADATA_VLAN_TAG`.
const RX_VLAN_TAG: u64 = 1 << 2;

/// Abilities of a driver for XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpFeatures {
    features: u64,
    zero_copy_buffers: u32,
    rx_metadata: u64,
    tx_metadata: u64,
}

impl XdpFeatures {
    /// Whether the driver runs XDP programs that redirect frames, as AF_XDP's do, before the kernel's stack.
    #[must_use]
    pub fn has_native(self) -> bool {
        self.features & NATIVE == NATIVE
    }

    /// Whether the driver supports AF_XDP's zero copy.
    #[must_use]
    pub fn has_zero_copy(self) -> bool {
        self.features & ZERO_COPY != 0
    }

    /// Whether XDP programs of the driver can receive a frame in several buffers.
    #[must_use]
    pub fn has_several_buffers(self) -> bool {
        self.features & RX_SG != 0
    }

    /// Maximum number of buffers of a frame in zero-copy mode, at least 1.
    #[must_use]
    pub fn zero_copy_buffers(self) -> u32 {
        self.zero_copy_buffers.max(1)
    }

    /// Whether XDP programs of the driver can ask for the VLAN tag that lies beside a received frame.
    #[must_use]
    pub fn has_vlan_tag(self) -> bool {
        self.rx_metadata & RX_VLAN_TAG != 0
    }

    /// Names of the metadata that the driver has for received frames, and for sent frames in zero-copy mode.
    #[must_use]
    pub fn metadata(self) -> String {
        let (received, sent) =
            (names(self.rx_metadata, &RX_METADATA_NAMES), names(self.tx_metadata, &TX_METADATA_NAMES));
        format!("received: {received}; sent with zero copy: {sent}")
    }
}

/// Names of the bits that are set, as `ynl` prints them. A bit of a newer kernel has no name here.
fn names(bits: u64, names: &[&str]) -> String {
    let set: Vec<_> =
        names.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(", ") }
}

impl fmt::Display for XdpFeatures {
    /// Writes the names of the features.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&names(self.features, &NAMES))
    }
}

/// XDP features of the driver of interface number `index`; `None` if the kernel does not report them.
///
/// # Errors
/// [`NetdevError`], for example if there is no such interface.
pub fn xdp_features(index: u32) -> Result<Option<XdpFeatures>, NetdevError> {
    let number = DefaultNla::new(DEV_IFINDEX, index.to_ne_bytes().to_vec());
    let operation = || format!("read what XDP can do on interface {index}");
    let answer = ask_family(FAMILY, DEV_GET, &[number], &operation)?;
    Ok(answer.and_then(|answer| {
        let features = answer.large_number(DEV_XDP_FEATURES)?;
        Some(XdpFeatures {
            features,
            zero_copy_buffers: answer.number(DEV_XDP_ZC_MAX_SEGS).unwrap_or(1),
            rx_metadata: answer.large_number(DEV_XDP_RX_METADATA).unwrap_or(0),
            tx_metadata: answer.large_number(DEV_XSK_FEATURES).unwrap_or(0),
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::link_by_name;
    use crate::link_change::{VethEnd, create_veth};
    use crate::test_namespace::in_new_namespace;

    #[test]
    fn a_veth_reports_native_xdp_without_zero_copy_and_a_missing_interface_is_an_error() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            // Kernels before 6.3 do not report it.
            if let Some(veth) = xdp_features(link_by_name("va").unwrap().index).unwrap() {
                assert!(veth.has_native() && !veth.has_zero_copy(), "{veth}");
                assert_eq!(veth.zero_copy_buffers(), 1);
                // Kernels before 6.8 have no VLAN tags there.
                let can_ask = std::fs::read_to_string("/proc/kallsyms").unwrap();
                assert_eq!(veth.has_vlan_tag(), can_ask.contains(" bpf_xdp_metadata_rx_vlan_tag"));
            }
            assert!(xdp_features(4242).map_or_else(|error| error.is_no_interface(), |told| told.is_none()));
        });
    }

    #[test]
    fn features_have_the_names_of_the_specification() {
        let none = XdpFeatures { features: 0, zero_copy_buffers: 1, rx_metadata: 0, tx_metadata: 0 };
        let features = |features| XdpFeatures { features, ..none }.to_string();
        assert_eq!(features(0), "none");
        assert_eq!(features(ZERO_COPY | NATIVE), "basic, redirect, xsk-zerocopy");
        // A bit of a newer kernel has no name here.
        assert_eq!(features(RX_SG | 1 << 40), "rx-sg");
        let metadata = |rx_metadata, tx_metadata| XdpFeatures { rx_metadata, tx_metadata, ..none };
        let (all, no) = (metadata(7, 3), metadata(3, 1 << 40));
        assert!(all.has_vlan_tag() && !no.has_vlan_tag());
        assert_eq!(
            all.metadata(),
            "received: timestamp, hash, vlan-tag; sent with zero copy: tx-timestamp, tx-checksum"
        );
        assert_eq!(no.metadata(), "received: timestamp, hash; sent with zero copy: none");
    }
}
