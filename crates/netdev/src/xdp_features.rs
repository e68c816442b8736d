//! A driver's report of its XDP features. Source: Documentation/netlink/specs/netdev.yaml; numbers from linux/netdev.h,
//! since Linux 6.3.

use netlink_packet_core::DefaultNla;

use crate::error::NetdevError;
use crate::generic_message::ask_family;

const FAMILY: &str = "netdev";
const DEV_GET: u8 = 1;
const DEV_IFINDEX: u16 = 1;
const DEV_XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_XSK_ZEROCOPY`.
const ZERO_COPY: u64 = 1 << 3;

/// Whether the driver of interface number `index` supports AF_XDP's zero copy; `None` if the kernel does not report it.
///
/// # Errors
/// [`NetdevError`], for example if there is no such interface.
pub fn has_zero_copy(index: u32) -> Result<Option<bool>, NetdevError> {
    let number = DefaultNla::new(DEV_IFINDEX, index.to_ne_bytes().to_vec());
    let operation = || format!("read what XDP can do on interface {index}");
    let answer = ask_family(FAMILY, DEV_GET, &[number], &operation)?;
    Ok(answer
        .and_then(|answer| answer.large_number(DEV_XDP_FEATURES))
        .map(|features| features & ZERO_COPY != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::link_by_name;
    use crate::link_change::{VethEnd, create_veth};
    use crate::test_namespace::in_new_namespace;

    #[test]
    fn a_veth_reports_that_it_has_no_zero_copy_and_a_missing_interface_is_an_error() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            // Kernels before 6.3 do not report it.
            assert_ne!(has_zero_copy(link_by_name("va").unwrap().index).unwrap(), Some(true));
            assert!(has_zero_copy(4242).map_or_else(|error| error.is_no_interface(), |told| told.is_none()));
        });
    }
}
