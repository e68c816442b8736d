//! Checks for ports of network interfaces: the kernel's features, the rights to use them, and the interfaces
//! themselves.

use std::path::Path;

use ringroad::interface::mechanisms;
use ringroad_control::Connection;
use ringroad_netdev::ethtool::{driver_name, link_speed, real_queue_count};
use ringroad_netdev::link::{LinkInfo, link_by_name, links};
use ringroad_netdev::link_use::uses_of;
use ringroad_netdev::xdp_features::xdp_features;
use ringroad_wire::mac::Mac;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{CapabilitySet, capabilities};

use super::machine::{kernel, version};
use super::{Outcome, Verdict, ok, warn};
use crate::failure::Failure;

/// First kernel with tcx, which host rings use to redirect traffic.
const HOST_RINGS_KERNEL: (u32, u32) = (6, 6);

/// Runs the checks of this module.
pub(super) fn checks() -> Vec<(&'static str, Outcome)> {
    let mut checks = support();
    // An error or an empty list means that there is no interface to check.
    let links = links().unwrap_or_default().into_iter().filter(|link| link.name != "lo");
    checks.extend(links.map(|link| ("interface", interface(&link))));
    checks
}

/// Checks whether kernel and user support ports of interfaces.
fn support() -> Vec<(&'static str, Outcome)> {
    vec![("AF_XDP", af_xdp()), ("right to open interfaces", rights()), ("host rings", host_rings())]
}

/// Checks of the interface `name`: what its driver reports, who uses it, and the mechanism that serves it.
pub(super) fn checks_of(name: &str, socket: &Path) -> Result<Vec<(&'static str, Outcome)>, Failure> {
    let link = link_by_name(name)?;
    let mut checks = [vec![("kernel", kernel())], support()].concat();
    let has_af_xdp =
        checks.iter().all(|(check, (verdict, ..))| *check != "AF_XDP" || *verdict == Verdict::Ok);
    let driver = driver_name(name).unwrap_or_else(|_| "not reported".to_owned());
    let features = match xdp_features(link.index)? {
        Some(features) => {
            vec![
                ("XDP features of the driver", ok(features.to_string())),
                ("metadata of frames", ok(features.metadata())),
            ]
        }
        None => {
            let remedy = "use Linux 6.3 or newer; `ringroad list` reports the mechanism of an open port";
            let unknown = warn("this kernel does not report them, so the mechanism is a guess", remedy);
            vec![("XDP features of the driver", unknown)]
        }
    };
    let ports = ports_of(&link, socket);
    checks.extend([("interface", ok(description(&link))), ("driver", ok(driver))]);
    checks.extend(features);
    checks.push(("host", host(&link)?));
    if !ports.is_empty() {
        checks.extend(ports.into_iter().map(|port| ("port", ok(port))));
        return Ok(checks);
    }
    let mechanisms = mechanisms(name).map_err(ringroad::OpenError::from)?;
    let possible = mechanisms.into_iter().filter(|one| has_af_xdp || !one.name.starts_with("AF_XDP"));
    for mechanism in possible {
        let Some(obstacle) = mechanism.obstacle else {
            checks.push(("mechanism", ok(format!("{}, as soon as a port opens {name}", mechanism.name))));
            break;
        };
        let finding = format!("not {}: {}", mechanism.name, obstacle.reason);
        checks.push(("mechanism", warn(finding, obstacle.remedy)));
    }
    Ok(checks)
}

/// The daemon's ports of an interface, each with its mechanism; none without a daemon.
fn ports_of(link: &LinkInfo, socket: &Path) -> Vec<String> {
    let list = Connection::connect(socket).and_then(|mut connection| {
        connection.hello("ringroad doctor")?;
        connection.list()
    });
    let ports = list.map(|list| list.ports).unwrap_or_default().into_iter();
    // An interface of another namespace can have the same name.
    let is_link = |interface: &str, mac: &str| {
        interface == link.name && link.mac.is_some_and(|own| Mac::from(own).to_string() == mac)
    };
    let of_link = ports.filter(|port| port.link.as_ref().is_some_and(|it| is_link(&it.interface, &it.mac)));
    of_link.map(|port| format!("{}: {}, {}", port.name, port.kind, port.mode)).collect()
}

/// Checks whether the host's stack uses an interface.
fn host(link: &LinkInfo) -> Result<Outcome, Failure> {
    let uses = uses_of(link)?;
    if uses.is_empty() {
        return Ok(ok("does not use it"));
    }
    Ok(warn(
        format!("uses it: {}", uses.join(", ")),
        format!("attach it with --host, which keeps the host connected; packet:{} only observes", link.name),
    ))
}

fn af_xdp() -> Outcome {
    match socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None) {
        Ok(_) | Err(Errno::PERM | Errno::ACCESS) => ok("the kernel has it"),
        Err(error) => warn(
            format!("the kernel gives no such socket: {error}"),
            "interfaces are served by AF_PACKET; for speed use a kernel with CONFIG_XDP_SOCKETS",
        ),
    }
}

fn rights() -> Outcome {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::BPF;
    match capabilities(None) {
        Ok(sets) if sets.effective.contains(needed) => ok("here"),
        _ => warn(
            "this user may not",
            "the daemon needs it, its clients do not: run ringroadd as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF",
        ),
    }
}

fn host_rings() -> Outcome {
    let uname = rustix::system::uname();
    match version(&uname.release().to_string_lossy()) {
        Some(found) if found < HOST_RINGS_KERNEL => {
            warn("this kernel has no tcx", "ports such as eth0^ need Linux 6.6 or newer")
        }
        _ => ok("the kernel has tcx"),
    }
}

/// State and sizes of an interface.
fn description(link: &LinkInfo) -> String {
    let speed = link_speed(&link.name).ok().flatten();
    let speed = speed.map(|speed| format!(", {:.0} Gbit/s", speed as f64 / 1e9)).unwrap_or_default();
    let queues = real_queue_count(&link.name).unwrap_or(1);
    let kind = link.kind.as_deref().map(|kind| format!("{kind}, ")).unwrap_or_default();
    let state = if link.running { "up" } else { "down" };
    format!("{}: {kind}{state}{speed}, {queues} queue(s), MTU {}", link.name, link.mtu)
}

fn interface(link: &LinkInfo) -> Outcome {
    let finding = description(link);
    match link.xdp {
        Some(program) => warn(
            format!("{finding}, XDP program {} attached", program.prog_id),
            format!(
                "unless that is Ringroad's: `ip link set dev {} xdp off`, or open it with @force",
                link.name
            ),
        ),
        None => ok(finding),
    }
}
