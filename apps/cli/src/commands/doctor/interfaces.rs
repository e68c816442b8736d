//! Checks for ports of network interfaces: the kernel's features, the rights to use them, and the interfaces
//! themselves.

use std::path::Path;

use ringroad::interface::mechanisms;
use ringroad_control::Connection;
use ringroad_control::report::PortReport;
use ringroad_netdev::ethtool::{driver_name, link_speed, real_queue_count};
use ringroad_netdev::link::{LinkInfo, link_by_index, link_by_name, links};
use ringroad_netdev::link_use::uses_of;
use ringroad_netdev::xdp_features::xdp_features;
use ringroad_wire::mac::Mac;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{CapabilitySet, capabilities};

use super::machine::{kernel, version};
use super::{Check, Outcome, Verdict, ok, warn};
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
pub(super) fn checks_of(name: &str, socket: &Path) -> Result<Vec<Check>, Failure> {
    let link = link_by_name(name)?;
    let machine = Machine::examine(socket);
    Ok([machine.checks(), machine.checks_of(&link)?].concat())
}

/// The same checks of each interface of the network namespace but loopback.
pub(super) fn checks_of_all(socket: &Path) -> Result<Vec<Check>, Failure> {
    let machine = Machine::examine(socket);
    let mut checks = machine.checks();
    for link in links()?.iter().filter(|link| link.name != "lo") {
        match machine.checks_of(link) {
            Ok(of_link) => checks.extend(of_link),
            // The interface was removed after it had been listed.
            Err(_) if link_by_index(link.index).is_err() => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(checks)
}

/// Findings that hold for all interfaces: the machine's support, and the daemon's ports.
struct Machine {
    checks: Vec<(&'static str, Outcome)>,
    has_af_xdp: bool,
    ports: Vec<PortReport>,
}

impl Machine {
    fn examine(socket: &Path) -> Self {
        let checks = [vec![("kernel", kernel())], support()].concat();
        let has_af_xdp =
            checks.iter().all(|(check, (verdict, ..))| *check != "AF_XDP" || *verdict == Verdict::Ok);
        let list = Connection::connect(socket).and_then(|mut connection| {
            connection.hello("ringroad doctor")?;
            connection.list()
        });
        // Without a daemon there are no ports.
        Self { checks, has_af_xdp, ports: list.map(|list| list.ports).unwrap_or_default() }
    }

    fn checks(&self) -> Vec<Check> {
        self.checks.iter().cloned().map(Check::from).collect()
    }

    fn checks_of(&self, link: &LinkInfo) -> Result<Vec<Check>, Failure> {
        let outcomes = self.outcomes_of(link)?.into_iter();
        let of_link = |outcome| Check { interface: Some(link.name.clone()), ..Check::from(outcome) };
        Ok(outcomes.map(of_link).collect())
    }

    fn outcomes_of(&self, link: &LinkInfo) -> Result<Vec<(&'static str, Outcome)>, Failure> {
        let name = &link.name;
        let driver = driver_name(name).unwrap_or_else(|_| "not reported".to_owned());
        let mut outcomes = vec![("interface", ok(description(link))), ("driver", ok(driver))];
        if let Some(features) = xdp_features(link.index)? {
            outcomes.push(("XDP features of the driver", ok(features.to_string())));
            outcomes.push(("metadata of frames", ok(features.metadata())));
        } else {
            let remedy = "use Linux 6.3 or newer; `ringroad list` reports the mechanism of an open port";
            let unknown = warn("this kernel does not report them, so the mechanism is a guess", remedy);
            outcomes.push(("XDP features of the driver", unknown));
        }
        outcomes.push(("host", host(link)?));
        let ports = self.ports_of(link);
        if !ports.is_empty() {
            outcomes.extend(ports.into_iter().map(|port| ("port", ok(port))));
            return Ok(outcomes);
        }
        let mechanisms = mechanisms(name).map_err(ringroad::OpenError::from)?;
        let possible =
            mechanisms.into_iter().filter(|one| self.has_af_xdp || !one.name.starts_with("AF_XDP"));
        for mechanism in possible {
            let Some(obstacle) = mechanism.obstacle else {
                outcomes
                    .push(("mechanism", ok(format!("{}, as soon as a port opens {name}", mechanism.name))));
                break;
            };
            let finding = format!("not {}: {}", mechanism.name, obstacle.reason);
            outcomes.push(("mechanism", warn(finding, obstacle.remedy)));
        }
        Ok(outcomes)
    }

    /// The daemon's ports of an interface, each with its mechanism.
    fn ports_of(&self, link: &LinkInfo) -> Vec<String> {
        // An interface of another namespace can have the same name.
        let is_link = |interface: &str, mac: &str| {
            interface == link.name && link.mac.is_some_and(|own| Mac::from(own).to_string() == mac)
        };
        let ports = self.ports.iter();
        let of_link =
            ports.filter(|port| port.link.as_ref().is_some_and(|it| is_link(&it.interface, &it.mac)));
        of_link.map(|port| format!("{}: {}, {}", port.name, port.kind, port.mode)).collect()
    }
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
