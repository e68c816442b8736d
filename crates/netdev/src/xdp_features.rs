//! A driver's report of its XDP features. Source: Documentation/netlink/specs/netdev.yaml; numbers from linux/netdev.h,
//! since Linux 6.3.

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

/// Names of `enum netdev_xdp_act` by bit, as the specification has them.
const NAMES: [&str; 7] =
    ["basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg"];
/// `NETDEV_XDP_ACT_BASIC` and `NETDEV_XDP_ACT_REDIRECT`: programs run in the driver, and can redirect frames.
const NATIVE: u64 = 1 | 1 << 1;
/// `NETDEV_XDP_ACT_XSK_ZEROCOPY`.
const ZERO_COPY: u64 = 1 << 3;
/// `NETDEV_XDP_ACT_RX_SG`.
const RX_SG: u64 = 1 << 5;

/// Abilities of a driver for XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpFeatures {
    features: u64,
    zero_copy_buffers: u32,
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
}

impl fmt::Display for XdpFeatures {
    /// Writes the names of the features, as `ynl` prints them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = NAMES.iter().enumerate().filter(|(bit, _)| self.features >> bit & 1 != 0);
        let names: Vec<_> = names.map(|(_, name)| *name).collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(", ") }.as_str())
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
        Some(XdpFeatures { features, zero_copy_buffers: answer.number(DEV_XDP_ZC_MAX_SEGS).unwrap_or(1) })
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
            }
            assert!(xdp_features(4242).map_or_else(|error| error.is_no_interface(), |told| told.is_none()));
        });
    }

    #[test]
    fn features_have_the_names_of_the_specification() {
        let features = |features| XdpFeatures { features, zero_copy_buffers: 1 }.to_string();
        assert_eq!(features(0), "none");
        assert_eq!(features(ZERO_COPY | NATIVE), "basic, redirect, xsk-zerocopy");
        // A bit of a newer kernel has no name here.
        assert_eq!(features(RX_SG | 1 << 40), "rx-sg");
    }
}
