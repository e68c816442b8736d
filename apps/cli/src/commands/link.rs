//! `ringroad link`: network namespaces joined through a switch.

mod addresses;

use clap::Args;
use ringroad_attachment::device_text::device_text;
use ringroad_attachment::veth_pair::remove_interface;
use ringroad_control::message::{AttachedPort, PortSpec};
use ringroad_control::report::PortReport;
use ringroad_control::{Connection, Reply, Request};
use ringroad_netdev::Namespace;
use serde::Serialize;

use crate::commands::guests::attach;
use crate::commands::link::addresses::Addresses;
use crate::commands::namespaces::{self, NAMESAKES_MAX, name_after};
use crate::failure::Failure;
use crate::options::{Global, switch_name};
use crate::output::Output;
use crate::output::table::table;
use crate::run::SignalFlag;
use crate::verb::{MainVerb, request};

/// Default name of the interface inside a namespace.
pub(super) const INNER_NAME: &str = "rr0";

/// Join network namespaces through a switch
///
/// Each namespace gets an interface with an address: a TAP that is a port of the switch. A namespace is given by its
/// name (ip netns list), by a process in it, or by a container (podman:NAME, docker:NAME); 1 is the machine's own.
/// `ringroad unlink` undoes all of it. Needs root. The command starts the daemon if none runs.
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// The namespaces: names, processes in them, or containers (podman:NAME, docker:NAME)
    #[arg(value_name = "NAMESPACE", required = true)]
    namespaces: Vec<String>,
    /// Name of the switch
    #[arg(long, value_name = "SWITCH", default_value = "vale0", value_parser = switch_name)]
    switch: String,
    /// Name of the interface in each namespace
    #[arg(long = "name", value_name = "IFACE", default_value = INNER_NAME)]
    interface: String,
    /// Address for the first namespace, counted up for the others, or none [default: 10.77.0.1/24]
    #[arg(long, value_name = "ADDRESS/BITS|none")]
    address: Option<Addresses>,
    /// Longest packet, bytes without the Ethernet header [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65521))]
    mtu: Option<u32>,
}

/// One namespace on the switch.
#[derive(Debug, Serialize)]
struct LinkedNamespace {
    namespace: String,
    interface: String,
    address: Option<String>,
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

impl MainVerb for LinkArgs {
    const EXAMPLES: &str = "ringroad link blue green --address 10.77.0.1/24";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        if self.namespaces.len() == 1 && self.address.is_none() {
            return Err(Failure::usage(
                "a single namespace joins those already on the switch: give it its own address",
                "give one with --address, such as --address 10.77.0.9/24, or name several namespaces",
            ));
        }
        let addresses = self.address.unwrap_or_default();
        addresses.check(self.namespaces.len()).map_err(|problem| Failure::usage(problem, ""))?;
        let namespaces = self.free_namespaces()?;
        let stop = SignalFlag::on_signals()?;
        ringroad::ensure_daemon(&global.socket_path())?;
        let mut daemon = global.connect()?;
        let ports = daemon.status()?.ports;
        let wanted: Vec<_> = (0..namespaces.len()).filter_map(|number| addresses.nth(number)).collect();
        namespaces::check_addresses(&mut daemon, &self.switch, &namespaces, &wanted)?;

        let mut links = Vec::new();
        let mut join_all = || {
            for (number, namespace) in namespaces.iter().enumerate() {
                if stop.is_set() {
                    return Err(Failure::new("interrupted", ""));
                }
                let tap = Tap { namespace: namespace.clone(), interface: self.interface.clone() };
                let text = self.namespaces.get(number).map(String::as_str).unwrap_or_default();
                let name = self.port_of(&tap, &ports, &mut daemon)?;
                let port = self.attach(&mut daemon, name, &namespaces::as_text(namespace))?;
                let address = addresses.nth(number);
                let with_bits = address.map(|address| (address, addresses.bits()));
                namespaces::bring_up(namespace, &self.interface, with_bits)?;
                links.push(LinkedNamespace {
                    namespace: text.to_owned(),
                    interface: self.interface.clone(),
                    address: address.map(|address| format!("{address}/{}", addresses.bits())),
                    port,
                });
            }
            Ok(())
        };
        let joined = join_all();
        // All ports stay, or none. If this process is killed before, the daemon removes them.
        let settled = request!(daemon, &Request::Settle { keep: joined.is_ok() }, Reply::Done => ());
        match (joined, settled) {
            (Err(failure), Err(left)) => {
                let message = format!("{}, and something is left: {}", failure.message, left.message);
                return Err(Failure { message, ..failure });
            }
            (joined, settled) => joined.and(settled)?,
        }
        let next = match (namespaces.as_slice(), addresses.nth(1)) {
            ([first, _, ..], Some(second)) => {
                Some(format!("{}ping {second}", namespaces::command_prefix(first)))
            }
            _ => None,
        };
        output.result(&Linked { switch: self.switch.clone(), links, next }, text)
    }
}

impl LinkArgs {
    /// Returns the namespaces, after checking that all can be entered, differ, and have no such interface yet.
    fn free_namespaces(&self) -> Result<Vec<Namespace>, Failure> {
        let mut namespaces = Vec::new();
        let mut identities = Vec::new();
        for text in &self.namespaces {
            let namespace = namespaces::parse(text)?;
            let identity = namespaces::check(&namespace, &self.interface)?;
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

    /// Returns the name of a namespace's port. A port with that name whose namespace was deleted is removed.
    fn port_of(&self, tap: &Tap, ports: &[PortReport], daemon: &mut Connection) -> Result<String, Failure> {
        let label = tap.namespace.hold()?.label().to_owned();
        let mut number = 1;
        loop {
            let name = format!("{}:{}", self.switch, name_after(&tap.namespace, number));
            let known = ports.iter().find(|port| port.name == name && is_link(port));
            match known.map(|port| port.link.as_ref().and_then(|link| link.netns.as_ref())) {
                // Another namespace whose name has the same beginning uses the name.
                Some(Some(other)) if *other != label && number < NAMESAKES_MAX => number += 1,
                // The interface is not in the namespace with that name, so the port belongs to a deleted namespace of
                // the same name.
                Some(_) => {
                    detach(daemon, &name)?;
                    return Ok(name);
                }
                None => return Ok(name),
            }
        }
    }

    /// Makes the interface in the namespace `text`.
    fn attach(&self, daemon: &mut Connection, name: String, text: &str) -> Result<AttachedPort, Failure> {
        let mtu = self.mtu.map(|mtu| mtu.to_string());
        // Option `persist` keeps the interface and its addresses while the daemon is restarted.
        let mut options = vec![("netns", text), ("persist", "1")];
        options.extend(mtu.as_deref().map(|mtu| ("mtu", mtu)));
        let driver = device_text("tap", &self.interface, &options)?;
        let port = PortSpec::for_device(name, driver);
        attach(daemon, port)
    }
}

/// The interface of a linked namespace.
#[derive(Debug, Clone)]
pub(super) struct Tap {
    pub(super) namespace: Namespace,
    pub(super) interface: String,
}

impl Tap {
    /// Whether the port of `report` is this interface, or was in a namespace that no longer exists.
    pub(super) fn is_served_by(&self, report: &PortReport) -> bool {
        let label = self.namespace.hold().map(|held| (!held.is_current()).then(|| held.label().to_owned()));
        let named =
            || report.name.split_once(':').is_some_and(|(_, name)| name == name_after(&self.namespace, 1));
        is_link(report)
            && match (&report.link, label) {
                (Some(link), Ok(label)) => link.interface == self.interface && link.netns == label,
                (Some(link), Err(_)) => link.interface == self.interface && named(),
                (None, _) => named(),
            }
    }

    /// Removes the interface after its port was removed. It may have been removed with its namespace.
    pub(super) fn remove(&self) -> Result<(), Failure> {
        if self.namespace.open().is_err() {
            return Ok(());
        }
        Ok(remove_interface(&self.namespace, &self.interface)?)
    }
}

/// Whether `ringroad link` may have made the port.
fn is_link(port: &PortReport) -> bool {
    port.persistent && port.kind == "tap"
}

pub(super) fn detach(daemon: &mut Connection, name: &str) -> Result<(), Failure> {
    let request = Request::Detach { name: name.to_owned(), take: false, number: None };
    request!(daemon, &request, Reply::Done => ())
}

fn text(linked: &Linked) -> String {
    let table = table(
        &linked.links,
        &[
            ("namespace", |link| link.namespace.clone()),
            ("interface", |link| link.interface.clone()),
            ("address", |link| link.address.clone().unwrap_or_else(|| "none".to_owned())),
            ("port", |link| link.port.name.clone()),
            ("mode", |link| link.port.mode.clone()),
        ],
        "no links",
    );
    match &linked.next {
        Some(next) => format!("{table}try: {next}"),
        None => table,
    }
}
