//! A driver's reports through ethtool: speed, queues, rings.

use rustix::io::Errno;

use crate::error::NetdevError;
use crate::ethtool_message::ask;
use crate::link::{check_name, link_by_name};
use crate::link_probe::{interface_ioctl, interface_request, interface_socket};

// Commands and attributes of linux/ethtool_netlink.h.
const LINKMODES_GET: u8 = 4;
const LINKMODES_SPEED: u16 = 5;
const RINGS_GET: u8 = 15;
const RINGS_RX: u16 = 6;
const RINGS_TX: u16 = 9;
const CHANNELS_GET: u8 = 17;
const CHANNELS_RX: u16 = 6;
const CHANNELS_COMBINED: u16 = 9;

/// `SIOCETHTOOL` of linux/sockios.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
/// `ETHTOOL_GDRVINFO` of linux/ethtool.h.
const GDRVINFO: u32 = 3;

/// `SPEED_UNKNOWN` of linux/ethtool.h.
const SPEED_UNKNOWN: u32 = u32::MAX;

/// Sizes of the rings of each queue of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RingParams {
    /// Slots of a receive ring.
    pub rx: u32,
    /// Slots of a transmit ring.
    pub tx: u32,
}

/// Speed of `interface`, bit/s; `None` if unknown, as for many links that are down.
///
/// # Errors
/// [`NetdevError`], for example if there is no such interface.
pub fn link_speed(interface: &str) -> Result<Option<u64>, NetdevError> {
    let speed = match ask(interface, LINKMODES_GET, "speed") {
        Err(NetdevError::Unsupported { .. }) => None,
        answer => answer?.number(LINKMODES_SPEED),
    };
    let known = speed.filter(|&speed| speed != 0 && speed != SPEED_UNKNOWN);
    Ok(known.map(|megabits_per_s| u64::from(megabits_per_s) * 1_000_000))
}

/// The rings of `interface`.
///
/// # Errors
/// [`NetdevError::Unsupported`] if it has none, as most virtual interfaces; others, for example if there is no such
/// interface.
pub fn rings(interface: &str) -> Result<RingParams, NetdevError> {
    let answer = ask(interface, RINGS_GET, "rings")?;
    let number = |kind| answer.number(kind).unwrap_or(0);
    Ok(RingParams { rx: number(RINGS_RX), tx: number(RINGS_TX) })
}

/// `struct ethtool_drvinfo` of linux/ethtool.h; versions, bus and sizes of dumps are the rest.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// Name of the driver of `interface`, such as `igb` or `veth`. Netlink has no request for it.
///
/// # Errors
/// [`NetdevError::Unsupported`] if the interface has no driver that reports one, like loopback; others, for example if
/// there is no such interface.
pub fn driver_name(interface: &str) -> Result<String, NetdevError> {
    link_by_name(interface)?;
    let mut info = DriverInfo { command: GDRVINFO, driver: [0; 32], rest: [0; 160] };
    let value = libc::__c_anonymous_ifr_ifru { ifru_data: std::ptr::from_mut(&mut info).cast() };
    let mut request = interface_request(interface, value);
    interface_ioctl(&interface_socket()?, SIOCETHTOOL, &mut request).map_err(|source| match source {
        Errno::OPNOTSUPP => NetdevError::Unsupported { interface: interface.to_owned(), what: "driver" },
        source => NetdevError::Refused {
            operation: format!("read the driver of {interface}"),
            source,
            kernel_message: None,
        },
    })?;
    let name = info.driver.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Makes the card of `interface` stamp each received frame by the card's clock. Netlink has no request for that before
/// Linux 6.14.
///
/// # Errors
/// [`NetdevError::Refused`] if the card cannot do this or `CAP_NET_ADMIN` is missing; others, for example if there is
/// no such interface.
pub fn stamp_all_frames(interface: &str) -> Result<(), NetdevError> {
    check_name(interface)?;
    // struct hwtstamp_config: flags, no sent frames stamped, all received frames stamped.
    let mut config: [u32; 3] = [0, 0, libc::HWTSTAMP_FILTER_ALL];
    let value = libc::__c_anonymous_ifr_ifru { ifru_data: config.as_mut_ptr().cast() };
    let mut request = interface_request(interface, value);
    let answer = interface_ioctl(&interface_socket()?, libc::SIOCSHWTSTAMP, &mut request);
    answer.map_err(|source| NetdevError::Refused {
        operation: format!("make the card of {interface} stamp received frames"),
        source,
        kernel_message: None,
    })
}

/// Number of receive queues that `interface` uses now, at least 1: combined and receive-only ones. If its driver does
/// not report them, or uses none yet like a TAP that is not open, the number of queues that it was created with.
///
/// # Errors
/// [`NetdevError`], for example if there is no such interface.
pub fn real_queue_count(interface: &str) -> Result<u32, NetdevError> {
    let used = match ask(interface, CHANNELS_GET, "number of queues") {
        Ok(answer) => [CHANNELS_COMBINED, CHANNELS_RX]
            .iter()
            .fold(0_u32, |sum, &kind| sum.saturating_add(answer.number(kind).unwrap_or(0))),
        Err(NetdevError::Unsupported { .. } | NetdevError::NoEthtool) => 0,
        Err(error) => return Err(error),
    };
    if used > 0 { Ok(used) } else { link_by_name(interface).map(|link| link.queues_rx.max(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_change::{VethEnd, create_veth};
    use crate::test_namespace::in_new_namespace;

    #[test]
    fn a_veth_has_its_nominal_speed() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            assert_eq!(link_speed("va").unwrap(), Some(10_000_000_000));
            assert_eq!(link_speed("lo").unwrap(), None, "loopback has none");
        });
    }

    #[test]
    fn used_queues_differ_from_existing_queues() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va").queues(4), VethEnd::here("vb")).unwrap();
            assert_eq!(real_queue_count("va").unwrap(), 4);

            // Linux creates one queue for each processor by default, and uses one.
            create_veth(VethEnd::here("xa"), VethEnd::here("xb")).unwrap();
            assert_eq!(real_queue_count("xa").unwrap(), 1);
            assert_eq!(real_queue_count("lo").unwrap(), 1);
        });
    }

    #[test]
    fn an_interface_names_its_driver_if_it_has_one() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            assert_eq!(driver_name("va").unwrap(), "veth");
            assert!(matches!(driver_name("lo"), Err(NetdevError::Unsupported { .. })));
        });
    }

    #[test]
    fn loopback_has_no_rings() {
        in_new_namespace(|| {
            let none = rings("lo").unwrap_err().to_string();
            assert!(none.starts_with("lo has no rings"), "{none}");
        });
    }

    #[test]
    fn requests_for_a_missing_interface_list_existing_ones() {
        in_new_namespace(|| {
            let refused = [
                link_speed("vc").map(drop),
                rings("vc").map(drop),
                real_queue_count("vc").map(drop),
                driver_name("vc").map(drop),
            ];
            for answer in refused {
                let text = answer.unwrap_err().to_string();
                assert!(
                    text.starts_with("there is no interface vc") && text.ends_with("there are: lo"),
                    "{text}"
                );
            }
        });
    }
}
