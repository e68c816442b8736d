//! The host stack's uses of an interface. They end if another program takes the interface's frames.

use std::net::IpAddr;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::error::NetdevError;
use crate::link::{LinkInfo, link_by_index, links};
use crate::netlink::Requests;

/// Kinds of interfaces whose `IFLA_LINK` is the other end of a pair, not the interface below.
const PAIRS: [&str; 2] = ["veth", "netkit"];

/// Addresses of `link`, an interface of the calling thread's network namespace, each with the length of its network
/// prefix, bits.
///
/// # Errors
/// [`NetdevError`] if the kernel cannot be queried.
pub fn addresses_of(link: &LinkInfo) -> Result<Vec<(IpAddr, u8)>, NetdevError> {
    let all = addresses(&|| format!("list the addresses of {}", link.name))?;
    let of_link = all.into_iter().filter(|(index, ..)| *index == link.index);
    Ok(of_link.map(|(_, address, bits)| (address, bits)).collect())
}

/// The first interface of the calling thread's network namespace that has `address`; `None` if none has it.
///
/// # Errors
/// [`NetdevError`] if the kernel cannot be queried.
pub fn link_with_address(address: IpAddr) -> Result<Option<LinkInfo>, NetdevError> {
    let all = addresses(&|| format!("find the interface with {address}"))?;
    let found = all.into_iter().find(|(_, other, _)| *other == address);
    found.map(|(index, ..)| link_by_index(index)).transpose()
}

/// All addresses of the calling thread's network namespace: the index of the interface, the address, and the length of
/// its network prefix, bits.
fn addresses(operation: &dyn Fn() -> String) -> Result<Vec<(u32, IpAddr, u8)>, NetdevError> {
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let answers = Requests::open(NETLINK_ROUTE)?.ask(request, NLM_F_DUMP, operation)?;
    let addresses = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewAddress(message) => {
            let address = own_address(&message.attributes)?;
            Some((message.header.index, address, message.header.prefix_len))
        }
        _ => None,
    });
    Ok(addresses.collect())
}

/// The host's uses of `link`, an interface of the calling thread's network namespace, as text for users: its addresses,
/// the bridge or bond that it is a member of, and the interfaces on top of it. If there are none, the first of its
/// routes. Empty if the host does not use the link.
///
/// Link-local IPv6 addresses and routes that come with addresses do not count, because the kernel gives them to every
/// interface.
///
/// # Errors
/// [`NetdevError`] if the kernel cannot be queried.
pub fn uses_of(link: &LinkInfo) -> Result<Vec<String>, NetdevError> {
    let mut uses = Vec::new();
    for (address, bits) in addresses_of(link)? {
        if !matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()) {
            uses.push(format!("it has the address {address}/{bits}"));
        }
    }
    for other in links()? {
        if Some(other.index) == link.controller {
            uses.push(format!("it belongs to {}", other.name));
        }
        let lies_on_it = other.peer.is_some_and(|peer| peer.index == link.index && peer.elsewhere.is_none());
        if lies_on_it && !other.kind.as_deref().is_some_and(|kind| PAIRS.contains(&kind)) {
            uses.push(format!("{} lies on it", other.name));
        }
    }
    // The number of routes may be large, so they are read only if no other use was found.
    if uses.is_empty() {
        uses.extend(route_over(link)?);
    }
    Ok(uses)
}

/// A route over `link` that was set by a user or program, as text.
fn route_over(link: &LinkInfo) -> Result<Option<String>, NetdevError> {
    let mut requests = Requests::open(NETLINK_ROUTE)?.with_filtered_dumps();
    let operation = || format!("list the routes over {}", link.name);
    let leads_over_it = |attribute: &RouteAttribute| match attribute {
        RouteAttribute::Oif(index) => *index == link.index,
        RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == link.index),
        _ => false,
    };
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        request.attributes.push(RouteAttribute::Oif(link.index));
        for answer in requests.ask(RouteNetlinkMessage::GetRoute(request), NLM_F_DUMP, &operation)? {
            if let RouteNetlinkMessage::NewRoute(route) = answer
                && route.header.protocol != RouteProtocol::Kernel
                && route.attributes.iter().any(leads_over_it)
            {
                let to = route.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::V4(*address)),
                    RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
                    _ => None,
                });
                let bits = route.header.destination_prefix_length;
                return Ok(Some(to.map_or("the default route leads over it".to_owned(), |to| {
                    format!("the route to {to}/{bits} leads over it")
                })));
            }
        }
    }
    Ok(None)
}

/// The address of this end. Point-to-point links have the address of the far end in the other attribute.
fn own_address(attributes: &[AddressAttribute]) -> Option<IpAddr> {
    let local = attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    local.or_else(|| {
        attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::link::link_by_name;
    use crate::link_change::{VethEnd, add_address, create_veth, set_up};
    use crate::test_namespace::in_new_namespace;

    #[test]
    fn addresses_routes_bridges_and_vlans_are_uses_of_an_interface() {
        in_new_namespace(|| {
            let uses = |name: &str| uses_of(&link_by_name(name).unwrap()).unwrap();
            let ip = |arguments: &str| {
                assert!(
                    Command::new("ip").args(arguments.split(' ')).status().unwrap().success(),
                    "{arguments}"
                );
            };
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            for name in ["va", "vb"] {
                set_up(name, true).unwrap();
            }
            assert_eq!(uses("va"), Vec::<String>::new());
            for (route, words) in [
                ("10.9.0.0/16 dev va", "the route to 10.9.0.0/16 leads over it"),
                ("default dev va table 7", "the default route leads over it"),
                ("fd09::/64 dev va", "the route to fd09::/64 leads over it"),
                ("10.8.0.0/16 nexthop dev vb nexthop dev va", "the route to 10.8.0.0/16 leads over it"),
            ] {
                ip(&format!("route add {route}"));
                assert_eq!(uses("va"), [words]);
                ip(&format!("route del {route}"));
                assert_eq!(uses("va"), Vec::<String>::new());
            }
            add_address("va", "10.1.2.3".parse().unwrap(), 24).unwrap();
            add_address("va", "fd00::1".parse().unwrap(), 64).unwrap();
            let holder =
                |address: &str| link_with_address(address.parse().unwrap()).unwrap().map(|link| link.name);
            assert_eq!((holder("10.1.2.3"), holder("fd00::1")), (Some("va".into()), Some("va".into())));
            assert_eq!(holder("10.1.2.4"), None);
            ip("link add link va name upper type macvlan");
            let own = ["it has the address 10.1.2.3/24", "it has the address fd00::1/64", "upper lies on it"];
            assert_eq!(uses("va"), own);
            ip("link add br9 type bridge");
            ip("link set vb master br9");
            assert_eq!(uses("vb"), ["it belongs to br9"]);
        });
    }
}
