//! Addresses that are in use already, where an interface that joins a switch would meet them: in its own namespace, in
//! the other namespaces that join with it, and at the ports of the switch.

use std::fmt;
use std::net::IpAddr;

use ringroad_control::Connection;
use ringroad_control::report::{LinkReport, PortReport};
use ringroad_netdev::link::{LinkInfo, LinkPeer, link_by_name, links};
use ringroad_netdev::link_use::{addresses_of, link_with_address};
use ringroad_netdev::namespace::all_namespaces;
use ringroad_netdev::{HeldNamespace, Namespace};

use crate::veth_pair::{AttachmentError, outside};

/// An interface that has an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressUse {
    /// The address.
    pub address: IpAddr,
    /// Name of the interface.
    pub interface: String,
    /// Namespace of the interface.
    pub namespace: HeldNamespace,
    /// Name of the interface's port of the switch, if it was found there.
    pub port: Option<String>,
}

impl fmt::Display for AddressUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, interface, namespace, port } = self;
        write!(f, "{address} is in use already: {interface} in {namespace} has it")?;
        port.as_ref().map_or(Ok(()), |port| write!(f, ", as port {port}"))
    }
}

/// Finds a use of one of `addresses`, which interfaces in `namespaces` are to get on `switch`.
///
/// # Errors
/// [`AttachmentError`]: the daemon or a namespace cannot be queried.
pub fn find_use(
    daemon: &mut Connection,
    switch: &str,
    namespaces: &[Namespace],
    addresses: &[IpAddr],
) -> Result<Option<AddressUse>, AttachmentError> {
    if addresses.is_empty() {
        return Ok(None);
    }
    for namespace in namespaces {
        let namespace = namespace.hold()?;
        for &address in addresses {
            if let Some(link) = namespace.run(|| link_with_address(address))?? {
                return Ok(Some(AddressUse { address, interface: link.name, namespace, port: None }));
            }
        }
    }
    let ports = daemon.list()?.ports;
    let of_switch = |port: &PortReport| port.name.split_once(':').is_some_and(|(of, _)| of == switch);
    let ports: Vec<_> = ports.into_iter().filter(|port| of_switch(port) && port.link.is_some()).collect();
    if ports.is_empty() {
        return Ok(None);
    }
    let all = all_namespaces();
    // The namespace of a daemon in another PID namespace cannot be found, and neither can its ports.
    let Ok(own) = outside(daemon).map(|outside| outside.namespace) else { return Ok(None) };
    let own = own.hold()?;
    for port in ports {
        for (namespace, link) in stations(&port, &own, &all) {
            let there = namespace.run(|| addresses_of(&link))??;
            if let Some((address, _)) = there.into_iter().find(|(address, _)| addresses.contains(address)) {
                let (interface, port) = (link.name, Some(port.name));
                return Ok(Some(AddressUse { address, interface, namespace, port }));
            }
        }
    }
    Ok(None)
}

/// Interfaces by which network stacks are at a port: a TAP, an interface whose host stack is at the port, or the other
/// end of a veth pair. The daemon is in the namespace `own`.
fn stations(port: &PortReport, own: &HeldNamespace, all: &[HeldNamespace]) -> Vec<(HeldNamespace, LinkInfo)> {
    let Some(LinkReport { interface, netns, .. }) = &port.link else { return Vec::new() };
    let label = netns.as_deref();
    let namespace = label.map_or(Some(own), |label| all.iter().find(|namespace| namespace.label() == label));
    // An interface or namespace that is gone has no address.
    let Some(namespace) = namespace else { return Vec::new() };
    let Ok(Ok(link)) = namespace.run(|| link_by_name(interface)) else { return Vec::new() };
    match port.kind.as_str() {
        "tap" | "host" => vec![(namespace.clone(), link)],
        "veth" => other_end(namespace, &link, all).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The other end of the pair of `link` in `namespace`, if its namespace is among `all`.
fn other_end(
    namespace: &HeldNamespace,
    link: &LinkInfo,
    all: &[HeldNamespace],
) -> Option<(HeldNamespace, LinkInfo)> {
    let LinkPeer { index, elsewhere } = link.peer?;
    // Indexes are unique only in a namespace, so the namespace is found first.
    let leads_to =
        |candidate: &HeldNamespace| candidate.number_here().is_ok_and(|number| number == elsewhere);
    let there = match elsewhere {
        None => namespace,
        Some(_) => namespace.run(|| all.iter().find(|candidate| leads_to(candidate))).ok()??,
    };
    let links = there.run(links).ok()?.ok()?;
    let end =
        links.into_iter().find(|other| other.index == index && other.kind.as_deref() == Some("veth"))?;
    Some((there.clone(), end))
}
