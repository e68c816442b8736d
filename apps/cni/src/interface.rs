//! Interface of a container: creation, check, removal.

use std::time::Duration;

use ringroad_attachment::veth_pair::{AttachmentError, DaemonNamespace, VethPair};
use ringroad_netdev::link::{LinkInfo, link_by_name};
use ringroad_netdev::link_change::{add_address, add_alternative_name, add_route, set_mtu, set_up};
use ringroad_netdev::link_use::addresses_of;
use ringroad_netdev::{Namespace, NetdevError, in_namespace};

use crate::request::{IpamResult, Subnet};

/// Time limit until an interface has carrier.
const CARRIER_PATIENCE: Duration = Duration::from_secs(5);

/// Makes the veth pair: `inner` in the container, `outer` in the daemon's namespace. The name `outer` is the inner end's
/// too: `DEL` knows by it what this plugin made.
pub(crate) fn make(
    outside: &DaemonNamespace,
    sandbox: &Namespace,
    inner: &str,
    outer: &str,
    mtu: Option<u32>,
) -> Result<VethPair, AttachmentError> {
    let pair = VethPair::make(&outside.namespace, sandbox.hold()?, inner, [outer.to_owned()])?;
    let set = || -> Result<(), AttachmentError> {
        in_namespace(sandbox, || add_alternative_name(inner, outer))??;
        let Some(mtu) = mtu else { return Ok(()) };
        in_namespace(&outside.namespace, || set_mtu(outer, mtu))??;
        in_namespace(sandbox, || set_mtu(inner, mtu))??;
        Ok(())
    };
    set().inspect_err(|_| drop(pair.remove(&outside.namespace)))?;
    Ok(pair)
}

/// Gives the interface its addresses and routes, and waits for its carrier.
pub(crate) fn set_up_with(
    outside: &DaemonNamespace,
    sandbox: &Namespace,
    pair: &VethPair,
    outcome: &IpamResult,
) -> Result<(), AttachmentError> {
    let inner = pair.inner.as_str();
    in_namespace(sandbox, || -> Result<(), NetdevError> {
        set_up(inner, true)?;
        for known in &outcome.ips {
            add_address(inner, known.address.address, known.address.bits)?;
        }
        for route in &outcome.routes {
            let Subnet { address, bits } = route.dst;
            // A route without its own gateway uses the gateway of an address of its family.
            let of_family = outcome.ips.iter().filter_map(|known| known.gateway);
            let gateway = route.gw.or(of_family.into_iter().find(|way| way.is_ipv4() == address.is_ipv4()));
            add_route(inner, (address, bits), gateway)?;
        }
        Ok(())
    })??;
    pair.await_carrier(&outside.namespace, CARRIER_PATIENCE)
}

/// Finds an interface of a namespace.
pub(crate) fn query(namespace: &Namespace, name: &str) -> Result<LinkInfo, AttachmentError> {
    Ok(in_namespace(namespace, || link_by_name(name))??)
}

/// Returns the addresses of an interface, with the lengths of their network prefixes.
pub(crate) fn addresses(namespace: &Namespace, name: &str) -> Result<Vec<String>, AttachmentError> {
    let addresses = in_namespace(namespace, || addresses_of(&link_by_name(name)?))??;
    Ok(addresses.into_iter().map(|(address, bits)| format!("{address}/{bits}")).collect())
}
