//! A driver's reports through ethtool: speed, queues, rings.

use crate::error::NetdevError;
use crate::ethtool_message::{ask, number_attribute};
use crate::generic_message::Attributes;
use crate::link::{check_name, link_by_name};
use crate::link_probe::{interface_ioctl, interface_request, interface_socket};

// Commands and attributes of linux/ethtool_netlink.h.
const LINKMODES_GET: u8 = 4;
const LINKMODES_SPEED: u16 = 5;
const LINKMODES_DUPLEX: u16 = 6;
const LINKSTATE_GET: u8 = 6;
const LINKSTATE_LINK: u16 = 2;
const RINGS_GET: u8 = 15;
const RINGS_RX_MAX: u16 = 2;
const RINGS_TX_MAX: u16 = 5;
const RINGS_RX: u16 = 6;
const RINGS_TX: u16 = 9;
const CHANNELS_GET: u8 = 17;
const CHANNELS_SET: u8 = 18;
const CHANNELS_RX_MAX: u16 = 2;
const CHANNELS_TX_MAX: u16 = 3;
const CHANNELS_COMBINED_MAX: u16 = 5;
const CHANNELS_RX: u16 = 6;
const CHANNELS_TX: u16 = 7;
const CHANNELS_COMBINED: u16 = 9;
/// `SPEED_UNKNOWN` of linux/ethtool.h.
const SPEED_UNKNOWN: u32 = u32::MAX;

/// Speed and duplex mode of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LinkSpeed {
    /// Speed, bit/s; `None` if unknown, as for many links that are down.
    pub bits_per_s: Option<u64>,
    /// Duplex mode; `None` if unknown.
    pub duplex: Option<Duplex>,
    /// Whether the driver sees the other end; `None` if it does not know.
    pub link_detected: Option<bool>,
}

/// Duplex mode of a link: whether it carries frames in both directions at once (`DUPLEX_*` of linux/ethtool.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplex {
    /// The link carries frames in one direction at a time.
    Half,
    /// The link carries frames in both directions at once.
    Full,
}

/// Numbers of queues that a driver uses and could use. A combined queue receives and transmits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Channels {
    /// Receive-only queues.
    pub rx: u32,
    /// Transmit-only queues.
    pub tx: u32,
    /// Combined queues.
    pub combined: u32,
    /// Maximum number of receive-only queues.
    pub rx_max: u32,
    /// Maximum number of transmit-only queues.
    pub tx_max: u32,
    /// Maximum number of combined queues.
    pub combined_max: u32,
}

/// Sizes of the rings of each queue of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RingParams {
    /// Slots of a receive ring.
    pub rx: u32,
    /// Slots of a transmit ring.
    pub tx: u32,
    /// Maximum number of slots of a receive ring.
    pub rx_max: u32,
    /// Maximum number of slots of a transmit ring.
    pub tx_max: u32,
}

/// Speed of `interface`. Values that the driver does not know are `None`.
///
/// # Errors
/// [`NetdevError`], for example if there is no such interface.
pub fn link_speed(interface: &str) -> Result<LinkSpeed, NetdevError> {
    let or_nothing = |answer| match answer {
        Err(NetdevError::Unsupported { .. }) => Ok(Attributes::default()),
        other => other,
    };
    let modes = or_nothing(get(interface, LINKMODES_GET, "speed"))?;
    let state = or_nothing(get(interface, LINKSTATE_GET, "link state"))?;
    let known = modes.number(LINKMODES_SPEED).filter(|&speed| speed != 0 && speed != SPEED_UNKNOWN);
    Ok(LinkSpeed {
        bits_per_s: known.map(|megabits_per_s| u64::from(megabits_per_s) * 1_000_000),
        duplex: match modes.byte(LINKMODES_DUPLEX) {
            Some(0) => Some(Duplex::Half),
            Some(1) => Some(Duplex::Full),
            _ => None,
        },
        link_detected: state.byte(LINKSTATE_LINK).map(|link| link != 0),
    })
}

/// The queues of `interface`.
///
/// # Errors
/// [`NetdevError::Unsupported`] if its driver does not report them; others, for example if there is no such interface.
pub fn channels(interface: &str) -> Result<Channels, NetdevError> {
    let answer = get(interface, CHANNELS_GET, "number of queues")?;
    let number = |kind| answer.number(kind).unwrap_or(0);
    Ok(Channels {
        rx: number(CHANNELS_RX),
        tx: number(CHANNELS_TX),
        combined: number(CHANNELS_COMBINED),
        rx_max: number(CHANNELS_RX_MAX),
        tx_max: number(CHANNELS_TX_MAX),
        combined_max: number(CHANNELS_COMBINED_MAX),
    })
}

/// Sets the numbers of receive-only and transmit-only queues of `interface`.
///
/// # Errors
/// [`NetdevError::Unsupported`] if its driver cannot change them; [`NetdevError::Refused`] above their maximum.
pub fn set_channels(interface: &str, rx: u32, tx: u32) -> Result<(), NetdevError> {
    let content = [number_attribute(CHANNELS_RX, rx), number_attribute(CHANNELS_TX, tx)];
    let operation = || format!("set the number of queues of {interface}");
    ask(interface, CHANNELS_SET, &content, "number of queues", &operation).map(drop)
}

/// The rings of `interface`.
///
/// # Errors
/// [`NetdevError::Unsupported`] if it has none, as most virtual interfaces; others, for example if there is no such
/// interface.
pub fn rings(interface: &str) -> Result<RingParams, NetdevError> {
    let answer = get(interface, RINGS_GET, "rings")?;
    let number = |kind| answer.number(kind).unwrap_or(0);
    Ok(RingParams {
        rx: number(RINGS_RX),
        tx: number(RINGS_TX),
        rx_max: number(RINGS_RX_MAX),
        tx_max: number(RINGS_TX_MAX),
    })
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
    let used = match channels(interface) {
        Ok(channels) => channels.combined.saturating_add(channels.rx),
        Err(NetdevError::Unsupported { .. } | NetdevError::NoEthtool) => 0,
        Err(error) => return Err(error),
    };
    if used > 0 { Ok(used) } else { link_by_name(interface).map(|link| link.queues_rx.max(1)) }
}

fn get(interface: &str, command: u8, what: &'static str) -> Result<Attributes, NetdevError> {
    ask(interface, command, &[], what, &|| format!("read the {what} of {interface}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_change::{VethEnd, create_veth, set_up};
    use crate::test_namespace::in_new_namespace;

    #[test]
    fn a_veth_has_its_nominal_speed_and_sees_its_peer_come_up() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            let mut expected = LinkSpeed {
                bits_per_s: Some(10_000_000_000),
                duplex: Some(Duplex::Full),
                link_detected: Some(false),
            };
            assert_eq!(link_speed("va").unwrap(), expected);
            set_up("va", true).unwrap();
            set_up("vb", true).unwrap();
            expected.link_detected = Some(true);
            assert_eq!(link_speed("va").unwrap(), expected);
            assert_eq!(link_speed("lo").unwrap().bits_per_s, None, "loopback has none");
        });
    }

    #[test]
    fn used_queues_differ_from_existing_queues() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va").queues(4), VethEnd::here("vb")).unwrap();
            let four = channels("va").unwrap();
            assert_eq!((four.rx, four.tx, four.combined, four.rx_max, four.tx_max), (4, 4, 0, 4, 4));
            assert_eq!(real_queue_count("va").unwrap(), 4);

            // Linux creates one queue for each processor by default, and uses one.
            create_veth(VethEnd::here("xa"), VethEnd::here("xb")).unwrap();
            let used = channels("xa").unwrap();
            assert_eq!((used.rx, used.rx_max), (1, link_by_name("xa").unwrap().queues_rx));
            assert_eq!(real_queue_count("xa").unwrap(), 1);

            let none = channels("lo").unwrap_err();
            assert!(matches!(none, NetdevError::Unsupported { .. }), "{none}");
            assert_eq!(real_queue_count("lo").unwrap(), 1);
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
                channels("vc").map(drop),
                rings("vc").map(drop),
                real_queue_count("vc").map(drop),
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
