//! Changes to links (rtnetlink(7)): creation and deletion of veth pairs, up and down, MTU, addresses, namespace. All
//! changes need `CAP_NET_ADMIN` in the namespace of the calling thread.
//!
//! Promiscuous mode is not part of this module: a packet socket requests it as a membership, which ends with the
//! socket.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo as LinkKind, LinkMessage, LinkXdp, Prop,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use ringroad_wire::mac::Mac;

use crate::error::NetdevError;
use crate::link::{XdpReportedMode, check_name, link_by_name, name_missing};
use crate::netlink::Requests;

/// One end of a veth pair to be created.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    pub name: &'a str,
    /// Network namespace of the end; `None` for the calling thread's.
    pub namespace: Option<BorrowedFd<'a>>,
    /// Number of receive queues and of transmit queues; `None` for the kernel's default.
    pub queues: Option<u32>,
}

impl<'a> VethEnd<'a> {
    /// An end in the calling thread's namespace.
    #[must_use]
    pub fn here(name: &'a str) -> Self {
        Self { name, namespace: None, queues: None }
    }

    /// An end in the namespace of a descriptor ([`crate::Namespace::open`]).
    #[must_use]
    pub fn within(name: &'a str, namespace: BorrowedFd<'a>) -> Self {
        Self { name, namespace: Some(namespace), queues: None }
    }

    /// Sets the number of queues.
    #[must_use]
    pub fn queues(self, queues: u32) -> Self {
        Self { queues: Some(queues), ..self }
    }

    fn message(&self) -> LinkMessage {
        let mut message = by_name(self.name);
        message.attributes.extend(self.namespace.map(|fd| LinkAttribute::NetNsFd(fd.as_raw_fd())));
        if let Some(queues) = self.queues {
            message.attributes.push(LinkAttribute::NumRxQueues(queues));
            message.attributes.push(LinkAttribute::NumTxQueues(queues));
        }
        message
    }
}

/// Creates a pair of virtual interfaces. Each receives the frames sent on the other. Both are down at first.
///
/// # Errors
/// [`NetdevError::Refused`], with `EXIST` if one of the names is taken; [`NetdevError::BadName`].
pub fn create_veth(first: VethEnd<'_>, second: VethEnd<'_>) -> Result<(), NetdevError> {
    check_name(first.name)?;
    check_name(second.name)?;
    let mut request = first.message();
    let peer = InfoData::Veth(InfoVeth::Peer(second.message()));
    request
        .attributes
        .push(LinkAttribute::LinkInfo(vec![LinkKind::Kind(InfoKind::Veth), LinkKind::Data(peer)]));
    Requests::open(NETLINK_ROUTE)?
        .ask(RouteNetlinkMessage::NewLink(request), NLM_F_CREATE | NLM_F_EXCL, &|| {
            format!("create the veth pair {} and {}", first.name, second.name)
        })
        .map(drop)
}

/// Gives an interface one more name (`ip link property`), which it keeps if its first name changes.
///
/// # Errors
/// [`NetdevError::Refused`], with `EXIST` if an interface of the namespace has the name; [`NetdevError::BadName`].
pub fn add_alternative_name(name: &str, alternative: &str) -> Result<(), NetdevError> {
    check_name(name)?;
    check_name(alternative)?;
    let mut request = by_name(name);
    request.attributes.push(LinkAttribute::PropList(vec![Prop::AltIfName(alternative.to_owned())]));
    let operation = || format!("give interface {name} the name {alternative} too");
    Requests::open(NETLINK_ROUTE)?
        .ask(RouteNetlinkMessage::NewLinkProp(request), NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND, &operation)
        .map(drop)
        .map_err(|error| name_missing(name, error))
}

/// Deletes a virtual interface, by any of its names. If it is an end of a veth pair, both ends are deleted.
///
/// # Errors
/// [`NetdevError`], for example if the interface does not exist, or is hardware and so cannot be deleted.
pub fn delete_link(name: &str) -> Result<(), NetdevError> {
    check_name(name)?;
    change(name, RouteNetlinkMessage::DelLink(by_name(name)), || format!("delete interface {name}"))
}

/// Deletes the virtual interface with index `index`, as [`delete_link`].
///
/// # Errors
/// [`NetdevError`], for example if the interface does not exist.
pub fn delete_link_by_index(index: u32) -> Result<(), NetdevError> {
    let mut request = LinkMessage::default();
    request.header.index = index;
    let operation = || format!("delete interface number {index}");
    Requests::open(NETLINK_ROUTE)?.ask(RouteNetlinkMessage::DelLink(request), 0, &operation).map(drop)
}

/// Sets an interface up or down.
///
/// # Errors
/// [`NetdevError`].
pub fn set_up(name: &str, up: bool) -> Result<(), NetdevError> {
    check_name(name)?;
    let mut request = by_name(name);
    request.header.change_mask = LinkFlags::Up;
    request.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    let word = if up { "up" } else { "down" };
    change(name, RouteNetlinkMessage::SetLink(request), || format!("set interface {name} {word}"))
}

/// Sets the maximum payload of a frame, bytes without the Ethernet header.
///
/// # Errors
/// [`NetdevError`], for example if `mtu` is outside the driver's limits.
pub fn set_mtu(name: &str, mtu: u32) -> Result<(), NetdevError> {
    set_attribute(name, LinkAttribute::Mtu(mtu), || format!("set the MTU of {name} to {mtu}"))
}

/// Sets the maximum length of frames whose segmentation the stack leaves to the interface, bytes with headers.
///
/// # Errors
/// [`NetdevError`], for example if `bytes` is above the driver's limit.
pub fn set_gso_max_bytes(name: &str, bytes: u32) -> Result<(), NetdevError> {
    set_attribute(name, LinkAttribute::GsoMaxSize(bytes), || {
        format!("set the longest uncut frame of {name} to {bytes} bytes")
    })
}

/// Sets the hardware address.
///
/// # Errors
/// [`NetdevError`], for example if the address is multicast or zero, or if the driver requires that the interface is
/// down.
pub fn set_mac(name: &str, mac: Mac) -> Result<(), NetdevError> {
    set_attribute(name, LinkAttribute::Address(mac.octets().to_vec()), || {
        format!("set the hardware address of {name} to {mac}")
    })
}

/// Detaches the XDP program that runs in this mode on the interface with index `index`.
///
/// # Errors
/// [`NetdevError`], for example if the program has a link, which alone can detach it.
pub fn detach_xdp(index: u32, mode: XdpReportedMode) -> Result<(), NetdevError> {
    // `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` of linux/if_link.h.
    let flags = match mode {
        XdpReportedMode::Generic => 1 << 1,
        XdpReportedMode::Native => 1 << 2,
        XdpReportedMode::Offloaded | XdpReportedMode::Several => 0,
    };
    let mut request = LinkMessage::default();
    request.header.index = index;
    request.attributes.push(LinkAttribute::Xdp(vec![LinkXdp::Fd(-1), LinkXdp::Flags(flags)]));
    let operation = || format!("detach the XDP program of interface number {index}");
    Requests::open(NETLINK_ROUTE)?.ask(RouteNetlinkMessage::SetLink(request), 0, &operation).map(drop)
}

/// Moves an interface into another network namespace. It arrives down and without addresses.
///
/// # Errors
/// [`NetdevError`], for example if the name is taken there, or if the interface cannot be moved (loopback).
pub fn move_to_namespace(name: &str, namespace: BorrowedFd<'_>) -> Result<(), NetdevError> {
    set_attribute(name, LinkAttribute::NetNsFd(namespace.as_raw_fd()), || {
        format!("move interface {name} to another network namespace")
    })
}

/// Adds an IPv4 or IPv6 address whose first `prefix_bits` bits are the prefix of its network. An IPv6 address is used
/// at once, without duplicate address detection (`IFA_F_NODAD`).
///
/// # Errors
/// [`NetdevError`].
pub fn add_address(name: &str, address: IpAddr, prefix_bits: u8) -> Result<(), NetdevError> {
    let mut request = AddressMessage::default();
    request.header.index = link_by_name(name)?.index;
    request.header.prefix_len = prefix_bits;
    request.header.family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => {
            request.header.flags = AddressHeaderFlags::Nodad;
            AddressFamily::Inet6
        }
    };
    request.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    Requests::open(NETLINK_ROUTE)?
        .ask(RouteNetlinkMessage::NewAddress(request), NLM_F_CREATE | NLM_F_EXCL, &|| {
            format!("add the address {address}/{prefix_bits} to {name}")
        })
        .map(drop)
}

/// Adds a route to the network of the first `prefix_bits` bits of `destination`. The route uses interface `name`, and
/// the gateway if one is given.
///
/// # Errors
/// [`NetdevError`], with `EXIST` if there is such a route, with `NETUNREACH` if the gateway is in no network of the
/// interface.
pub fn add_route(
    name: &str,
    (destination, prefix_bits): (IpAddr, u8),
    gateway: Option<IpAddr>,
) -> Result<(), NetdevError> {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    };
    let mut request = RouteMessage::default();
    request.header.address_family =
        if destination.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    request.header.destination_prefix_length = prefix_bits;
    request.header.table = RouteHeader::RT_TABLE_MAIN;
    request.header.protocol = RouteProtocol::Static;
    request.header.kind = RouteType::Unicast;
    request.header.scope = if gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
    request.attributes = vec![
        RouteAttribute::Destination(address(destination)),
        RouteAttribute::Oif(link_by_name(name)?.index),
    ];
    request.attributes.extend(gateway.map(|gateway| RouteAttribute::Gateway(address(gateway))));
    Requests::open(NETLINK_ROUTE)?
        .ask(RouteNetlinkMessage::NewRoute(request), NLM_F_CREATE | NLM_F_EXCL, &|| {
            let way = gateway.map(|gateway| format!(" by {gateway}")).unwrap_or_default();
            format!("add the route to {destination}/{prefix_bits}{way} at {name}")
        })
        .map(drop)
}

fn by_name(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message
}

fn set_attribute(
    name: &str,
    attribute: LinkAttribute,
    operation: impl Fn() -> String,
) -> Result<(), NetdevError> {
    check_name(name)?;
    let mut request = by_name(name);
    request.attributes.push(attribute);
    change(name, RouteNetlinkMessage::SetLink(request), operation)
}

fn change(
    name: &str,
    request: RouteNetlinkMessage,
    operation: impl Fn() -> String,
) -> Result<(), NetdevError> {
    Requests::open(NETLINK_ROUTE)?
        .ask(request, 0, &operation)
        .map(drop)
        .map_err(|error| name_missing(name, error))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use rustix::io::Errno;

    use super::*;
    use crate::link::{LinkPeer, links};
    use crate::link_monitor::wait_running;
    use crate::test_namespace::{in_new_namespace, new_namespace};
    use crate::{Namespace, in_namespace};

    #[test]
    fn a_veth_pair_is_made_changed_and_deleted() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va").queues(3), VethEnd::here("vb")).unwrap();
            let (a, b) = (link_by_name("va").unwrap(), link_by_name("vb").unwrap());
            assert_eq!(a.kind.as_deref(), Some("veth"));
            assert_eq!(a.queues_rx, 3);
            assert_eq!(a.peer, Some(LinkPeer { index: b.index, elsewhere: None }));
            assert!(!a.up && !a.running && !a.promiscuous && a.xdp.is_none());

            set_up("va", true).unwrap();
            let alone = link_by_name("va").unwrap();
            assert!(alone.up && !alone.running, "no carrier while the other end is down");
            set_up("vb", true).unwrap();
            assert!(wait_running("va", Duration::from_secs(10)).unwrap().running);
            set_up("va", false).unwrap();
            assert!(!link_by_name("va").unwrap().up);

            set_mtu("va", 9000).unwrap();
            set_mac("va", [2, 0, 0, 0, 0, 7].into()).unwrap();
            let changed = link_by_name("va").unwrap();
            assert_eq!((changed.mtu, changed.mac), (9000, Some([2, 0, 0, 0, 0, 7])));

            delete_link("va").unwrap();
            let left: Vec<_> = links().unwrap().into_iter().map(|link| link.name).collect();
            assert_eq!(left, ["lo"], "both ends go");
        });
    }

    #[test]
    fn an_interface_is_deleted_by_an_alternative_name_or_by_its_index() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            create_veth(VethEnd::here("vc"), VethEnd::here("vd")).unwrap();
            add_alternative_name("va", "mark").unwrap();
            assert_eq!(link_by_name("mark").unwrap().name, "va");
            let taken = add_alternative_name("vc", "mark").unwrap_err();
            assert!(matches!(taken, NetdevError::Refused { source: Errno::EXIST, .. }), "{taken}");
            delete_link("mark").unwrap();
            assert!(delete_link("mark").unwrap_err().is_no_interface());
            let index = link_by_name("vc").unwrap().index;
            delete_link_by_index(index).unwrap();
            assert!(delete_link_by_index(index).unwrap_err().is_no_interface());
            assert_eq!(links().unwrap().len(), 1);
        });
    }

    #[test]
    fn routes_lead_by_their_gateways() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            add_address("va", "10.1.0.2".parse().unwrap(), 24).unwrap();
            add_address("va", "fd00::2".parse().unwrap(), 64).unwrap();
            set_up("va", true).unwrap();
            set_up("vb", true).unwrap();
            let to = |text: &str, bits| (text.parse().unwrap(), bits);
            add_route("va", to("0.0.0.0", 0), Some("10.1.0.1".parse().unwrap())).unwrap();
            add_route("va", to("10.9.0.0", 16), None).unwrap();
            add_route("va", to("::", 0), Some("fd00::1".parse().unwrap())).unwrap();
            let twice = add_route("va", to("10.9.0.0", 16), None).unwrap_err();
            assert!(matches!(twice, NetdevError::Refused { source: Errno::EXIST, .. }), "{twice}");
            let far = add_route("va", to("10.8.0.0", 16), Some("192.0.2.1".parse().unwrap())).unwrap_err();
            assert!(far.to_string().contains("10.8.0.0/16 by 192.0.2.1 at va"), "{far}");
            let routes = std::process::Command::new("ip").args(["route"]).output().unwrap();
            let routes = String::from_utf8(routes.stdout).unwrap();
            assert!(routes.contains("default via 10.1.0.1 dev va"), "{routes}");
            assert!(routes.contains("10.9.0.0/16 dev va"), "{routes}");
        });
    }

    #[test]
    fn refusals_name_the_interface_the_reason_and_a_remedy() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            let missing = set_mtu("vc", 1500).unwrap_err();
            assert!(missing.is_no_interface());
            let text = missing.to_string();
            assert!(text.starts_with("there is no interface vc in network namespace net:["), "{text}");
            // The kernel numbers the ends of a pair beginning with the second end.
            assert!(text.ends_with("there are: lo, vb, va"), "{text}");
            for request in [
                delete_link("vc"),
                set_up("vc", true),
                set_mac("vc", [2; 6].into()),
                link_by_name("vc").map(drop),
            ] {
                assert!(matches!(request, Err(NetdevError::NoInterface { .. })), "{request:?}");
            }

            let twice = create_veth(VethEnd::here("va"), VethEnd::here("vx")).unwrap_err();
            assert!(matches!(twice, NetdevError::Refused { source: Errno::EXIST, .. }), "{twice}");
            assert!(twice.to_string().contains("va and vx"), "{twice}");

            let short = set_mtu("va", 10).unwrap_err().to_string();
            assert!(short.starts_with("cannot set the MTU of va to 10"), "{short}");
            assert!(short.contains("(the kernel reports: mtu less than device minimum)"), "{short}");

            let multicast = set_mac("va", [1, 0, 0, 0, 0, 0].into()).unwrap_err();
            assert!(multicast.to_string().contains("01:00:00:00:00:00"), "{multicast}");

            for name in ["", ".", "..", "a/b", "a b", "a:b", "v%d", "sixteen-bytes-xx", "a\0"] {
                assert!(matches!(link_by_name(name), Err(NetdevError::BadName { .. })), "{name:?}");
            }
        });
    }

    #[test]
    fn an_end_is_made_in_or_moved_to_another_namespace() {
        in_new_namespace(|| {
            let other = new_namespace();
            create_veth(VethEnd::here("va"), VethEnd::within("vb", other.as_fd())).unwrap();
            create_veth(VethEnd::within("wb", other.as_fd()), VethEnd::here("wa")).unwrap();
            create_veth(VethEnd::here("xa"), VethEnd::here("xb")).unwrap();
            move_to_namespace("xb", other.as_fd()).unwrap();

            for name in ["va", "wa", "xa"] {
                assert!(link_by_name(name).unwrap().peer.unwrap().elsewhere.is_some(), "{name}");
            }
            assert!(link_by_name("xb").unwrap_err().is_no_interface());
            let path = format!("/proc/self/fd/{}", other.as_fd().as_raw_fd());
            let there = in_namespace(&Namespace::File(path.into()), || links().unwrap()).unwrap();
            let mut names: Vec<_> = there.iter().map(|link| link.name.as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, ["lo", "vb", "wb", "xb"]);
            let lo = move_to_namespace("lo", other.as_fd()).unwrap_err();
            assert!(matches!(lo, NetdevError::Refused { .. }), "{lo}");
        });
    }

    #[test]
    fn addresses_of_both_families_are_usable_at_once_and_traffic_is_counted() {
        in_new_namespace(|| {
            let other = new_namespace();
            create_veth(VethEnd::here("va"), VethEnd::within("vb", other.as_fd())).unwrap();
            let there = Namespace::File(format!("/proc/self/fd/{}", other.as_fd().as_raw_fd()).into());
            let addresses: [[IpAddr; 2]; 2] = [
                ["10.1.1.1".parse().unwrap(), "10.1.1.2".parse().unwrap()],
                ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()],
            ];
            for [here, remote] in addresses {
                let prefix_bits = if here.is_ipv4() { 24 } else { 64 };
                add_address("va", here, prefix_bits).unwrap();
                in_namespace(&there, || add_address("vb", remote, prefix_bits).unwrap()).unwrap();
            }
            set_up("va", true).unwrap();
            in_namespace(&there, || set_up("vb", true).unwrap()).unwrap();
            wait_running("va", Duration::from_secs(10)).unwrap();
            in_namespace(&there, || wait_running("vb", Duration::from_secs(10)).unwrap()).unwrap();
            for [_, remote] in addresses {
                let listener = in_namespace(&there, || TcpListener::bind((remote, 0)).unwrap()).unwrap();
                TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            }
            let counted = link_by_name("va").unwrap().statistics;
            assert!(counted.tx_packets >= 4 && counted.rx_packets >= 2, "{counted:?}");

            let twice = add_address("va", addresses[0][0], 24).unwrap_err();
            assert!(matches!(twice, NetdevError::Refused { source: Errno::EXIST, .. }), "{twice}");
        });
    }
}
