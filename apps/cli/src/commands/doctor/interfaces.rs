//! Checks for ports of network interfaces: the kernel's features, the rights to use them, and the interfaces
//! themselves.

use ringroad_netdev::ethtool::{link_speed, real_queue_count};
use ringroad_netdev::link::{LinkInfo, links};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{CapabilitySet, capabilities};

use super::machine::version;
use super::{Outcome, ok, warn};

/// First kernel with tcx, which host rings use to redirect traffic.
const HOST_RINGS_KERNEL: (u32, u32) = (6, 6);

/// Runs the checks of this module.
pub(super) fn checks() -> Vec<(&'static str, Outcome)> {
    let mut checks =
        vec![("AF_XDP", af_xdp()), ("right to open interfaces", rights()), ("host rings", host_rings())];
    // An error or an empty list means that there is no interface to check.
    let links = links().unwrap_or_default().into_iter().filter(|link| link.name != "lo");
    checks.extend(links.map(|link| ("interface", interface(&link))));
    checks
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

fn interface(link: &LinkInfo) -> Outcome {
    let speed = link_speed(&link.name).ok().flatten();
    let speed = speed.map(|speed| format!(", {:.0} Gbit/s", speed as f64 / 1e9)).unwrap_or_default();
    let queues = real_queue_count(&link.name).unwrap_or(1);
    let kind = link.kind.as_deref().map(|kind| format!("{kind}, ")).unwrap_or_default();
    let state = if link.running { "up" } else { "down" };
    let finding = format!("{}: {kind}{state}{speed}, {queues} queue(s), MTU {}", link.name, link.mtu);
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
