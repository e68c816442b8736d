//! `ringroad link`: network namespaces joined through a switch.

mod addresses;
pub(super) mod joint;

use std::time::Duration;

use clap::Args;
use ringroad_control::message::{AttachedPort, PortWish};
use ringroad_control::report::{PortReport, StartedBy};
use ringroad_control::{Connection, Reply, Request};
use ringroad_netdev::Namespace;
use serde::Serialize;

use crate::arguments::Global;
use crate::commands::link::addresses::Addresses;
use crate::commands::link::joint::Joint;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::table::Columns;
use crate::run::StopFlag;

/// Default name of the interface inside a namespace.
pub(super) const INNER_NAME: &str = "rr0";

/// Time after which a link without carrier is a failure.
const CARRIER_PATIENCE: Duration = Duration::from_secs(5);

/// Join network namespaces through a switch
///
/// Each namespace gets an interface with an address, one end of a veth pair whose other end becomes a port of the
/// switch. A namespace is given by its name (ip netns list) or by a process in it; 1 is the machine's own. `ringroad
/// unlink` undoes all of it. Needs root. The command starts the daemon if none runs.
#[derive(Debug, Args)]
pub(crate) struct Link {
    /// The namespaces: names, or processes in them
    #[arg(value_name = "NAMESPACE", required = true)]
    namespaces: Vec<String>,
    /// The switch
    #[arg(long, value_name = "SWITCH", default_value = "vale0")]
    switch: String,
    /// Name of the interface in each namespace
    #[arg(long = "name", value_name = "IFACE", default_value = INNER_NAME)]
    interface: String,
    /// Address for the first namespace, counted up for the others, or none [default: 10.77.0.1/24]
    #[arg(long, value_name = "ADDRESS/BITS|none")]
    address: Option<Addresses>,
    /// Longest packet, bytes without the Ethernet header [default: 1500]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
}

/// One namespace on the switch.
#[derive(Debug, Serialize)]
struct LinkedNamespace {
    namespace: String,
    interface: String,
    address: Option<String>,
    outer_interface: String,
    #[serde(flatten)]
    port: AttachedPort,
}

#[derive(Debug, Serialize)]
struct Linked {
    switch: String,
    links: Vec<LinkedNamespace>,
    /// A command that tests the link.
    next: Option<String>,
}

impl Link {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        if self.namespaces.len() == 1 && self.address.is_none() {
            return Err(Failure::usage(
                "a single namespace joins those already on the switch: give it its own address",
                "give one with --address, such as --address 10.77.0.9/24, or name several namespaces",
            ));
        }
        let addresses = self.address.unwrap_or_default();
        addresses.check(self.namespaces.len()).map_err(|problem| Failure::usage(problem, ""))?;
        let namespaces = self.free_namespaces()?;
        let stop = StopFlag::on_signals()?;
        ringroad::ensure_daemon(&global.socket_path())?;
        let mut daemon = global.connect()?;
        let Outside { namespace: outside, process, ports } = outside(&mut daemon)?;

        let mut made: Vec<(Joint, Option<String>)> = Vec::new();
        let mut links = Vec::new();
        let mut join_all = || {
            for (number, namespace) in namespaces.iter().enumerate() {
                if stop.is_set() {
                    return Err(Failure::new("interrupted", ""));
                }
                let joint = Joint::make(&outside, namespace, &self.interface, self.mtu)?;
                let name = format!("{}:{}", self.switch, joint.outer);
                made.push((joint.clone(), None));
                clear_stale(&mut daemon, &ports, &name)?;
                let port = attach(&mut daemon, name.clone(), &joint.outer, process)?;
                if let Some((_, attached)) = made.last_mut() {
                    *attached = Some(name);
                }
                let address = addresses.nth(number);
                links.push(LinkedNamespace {
                    namespace: self.namespaces.get(number).cloned().unwrap_or_default(),
                    interface: self.interface.clone(),
                    address: address.map(|address| format!("{address}/{}", addresses.bits())),
                    outer_interface: joint.outer.clone(),
                    port,
                });
                // Its other end is served by now, so not even its first frame is lost.
                joint.set_inner_up(address, addresses.bits())?;
            }
            made.iter().try_for_each(|(joint, _)| joint.await_carrier(&outside, CARRIER_PATIENCE))
        };
        let joined = join_all();
        if let Err(failure) = joined {
            return Err(undo(&mut daemon, &outside, &made, failure));
        }
        let next = match (namespaces.as_slice(), addresses.nth(1)) {
            ([first, _, ..], Some(second)) => Some(format!("{}ping {second}", joint::command_prefix(first))),
            _ => None,
        };
        output.result(&Linked { switch: self.switch.clone(), links, next }, text)
    }

    /// The namespaces, once it is sure that all can be entered, differ, and have no such interface yet.
    fn free_namespaces(&self) -> Result<Vec<Namespace>, Failure> {
        let mut namespaces = Vec::new();
        let mut identities = Vec::new();
        for text in &self.namespaces {
            let namespace = joint::parse(text)?;
            let identity = joint::look(&namespace, &self.interface)?;
            if identities.contains(&identity) {
                return Err(Failure::usage(
                    format!("{namespace} is given twice"),
                    "name each namespace once",
                ));
            }
            identities.push(identity);
            namespaces.push(namespace);
        }
        Ok(namespaces)
    }
}

/// Where the daemon is.
pub(super) struct Outside {
    /// Its network namespace, as this process names it.
    pub(super) namespace: Namespace,
    /// Its process, as it sees itself: so it takes its own namespace by `@netns=`.
    pub(super) process: u32,
    /// Its ports.
    pub(super) ports: Vec<PortReport>,
}

/// Looks where the daemon is.
pub(super) fn outside(daemon: &mut Connection) -> Result<Outside, Failure> {
    let status = daemon.status()?;
    // The kernel's word is in the numbers of this PID namespace; but a service manager made its daemon's socket itself.
    let process = match status.started {
        StartedBy::ServiceManager => Some(status.pid),
        _ => daemon.daemon().pid,
    };
    match process {
        Some(process) => {
            Ok(Outside { namespace: Namespace::OfProcess(process), process: status.pid, ports: status.ports })
        }
        None => Err(Failure::new(
            "the daemon's network namespace cannot be seen: it runs in another PID namespace",
            "run this command beside the daemon",
        )),
    }
}

fn attach(
    daemon: &mut Connection,
    name: String,
    interface: &str,
    process: u32,
) -> Result<AttachedPort, Failure> {
    let request = Request::Attach {
        name,
        driver: Some(format!("{interface}@netns={process}")),
        for_program: false,
        host: false,
        take: false,
        wish: PortWish::default(),
    };
    match daemon.request(&request)?.0 {
        Reply::Attached(ports) => {
            ports.into_iter().next().ok_or_else(|| Failure::new("the daemon attached no port", ""))
        }
        reply => Err(Failure::reply(&reply)),
    }
}

/// Takes away a port of that name whose interface went with a namespace that was deleted.
fn clear_stale(daemon: &mut Connection, ports: &[PortReport], name: &str) -> Result<(), Failure> {
    let stale = |port: &&PortReport| port.name == name && port.kind != "shm" && port.link.is_none();
    match ports.iter().find(stale) {
        Some(port) => detach(daemon, &port.name),
        None => Ok(()),
    }
}

pub(super) fn detach(daemon: &mut Connection, name: &str) -> Result<(), Failure> {
    match daemon.request(&Request::Detach { name: name.to_owned(), take: false, number: None })?.0 {
        Reply::Done => Ok(()),
        reply => Err(Failure::reply(&reply)),
    }
}

/// Undoes the steps before `failure`, and adds to it the steps that could not be undone.
fn undo(
    daemon: &mut Connection,
    outside: &Namespace,
    made: &[(Joint, Option<String>)],
    mut failure: Failure,
) -> Failure {
    for (joint, port) in made {
        let detached = port.as_ref().map_or(Ok(()), |port| detach(daemon, port));
        if let Err(left) = detached.and(joint.remove(outside)) {
            failure.message += &format!(", and {} was left behind: {}", joint.outer, left.message);
        }
    }
    failure
}

fn text(linked: &Linked) -> String {
    let mut columns = Columns::new(&["namespace", "interface", "address", "port", "mode"]);
    for link in &linked.links {
        columns.row([
            link.namespace.clone(),
            link.interface.clone(),
            link.address.clone().unwrap_or_else(|| "none".to_owned()),
            link.port.name.clone(),
            link.port.mode.clone(),
        ]);
    }
    let table = columns.lines_or("no links");
    match &linked.next {
        Some(next) => format!("{table}try: {next}"),
        None => table,
    }
}
