//! Checks for ports of network interfaces: the kernel's features, the rights to use them, and the interfaces
//! themselves.

use ringroad_netdev::ethtool::{link_speed, real_queue_count};
use ringroad_netdev::link::{LinkInfo, links};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{CapabilitySet, capabilities};

use super::Check;
use super::machine::version;

/// First kernel with tcx, which host rings use to redirect traffic.
const HOST_RINGS_KERNEL: (u32, u32) = (6, 6);

/// Runs the checks of this module.
pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![af_xdp(), rights(), host_rings()];
    // An error or an empty list means that there is no interface to check.
    checks.extend(links().unwrap_or_default().iter().filter(|link| link.name != "lo").map(interface));
    checks
}

fn af_xdp() -> Check {
    const CHECK: &str = "AF_XDP";
    match socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None) {
        Ok(_) | Err(Errno::PERM | Errno::ACCESS) => Check::ok(CHECK, "the kernel has it"),
        Err(error) => Check::warn(
            CHECK,
            format!("the kernel gives no such socket: {error}"),
            "interfaces are served by AF_PACKET; for speed use a kernel with CONFIG_XDP_SOCKETS",
        ),
    }
}

fn rights() -> Check {
    const CHECK: &str = "right to open interfaces";
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::BPF;
    match capabilities(None) {
        Ok(sets) if sets.effective.contains(needed) => Check::ok(CHECK, "here"),
        _ => Check::warn(
            CHECK,
            "this user may not",
            "the daemon needs it, its clients do not: run ringroadd as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF",
        ),
    }
}

fn host_rings() -> Check {
    const CHECK: &str = "host rings";
    let uname = rustix::system::uname();
    match version(&uname.release().to_string_lossy()) {
        Some(found) if found < HOST_RINGS_KERNEL => {
            Check::warn(CHECK, "this kernel has no tcx", "ports such as eth0^ need Linux 6.6 or newer")
        }
        _ => Check::ok(CHECK, "the kernel has tcx"),
    }
}

fn interface(link: &LinkInfo) -> Check {
    let speed = link_speed(&link.name).ok().flatten();
    let speed = speed.map(|speed| format!(", {:.0} Gbit/s", speed as f64 / 1e9)).unwrap_or_default();
    let queues = real_queue_count(&link.name).unwrap_or(1);
    let kind = link.kind.as_deref().map(|kind| format!("{kind}, ")).unwrap_or_default();
    let state = if link.running { "up" } else { "down" };
    let finding = format!("{}: {kind}{state}{speed}, {queues} queue(s), MTU {}", link.name, link.mtu);
    match link.xdp {
        Some(program) => Check::warn(
            "interface",
            format!("{finding}, XDP program {} attached", program.prog_id),
            format!(
                "unless that is Ringroad's: `ip link set dev {} xdp off`, or open it with @force",
                link.name
            ),
        ),
        None => Check::ok("interface", finding),
    }
}
