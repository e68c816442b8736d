//! `ringroad container`: a network namespace as a guest of a switch.

mod namespace_keeper;

use std::ffi::OsString;
use std::process::Command;

use clap::{Args, ValueEnum};
use ringroad_attachment::device_text::device_text;
use ringroad_attachment::veth_pair::{DaemonNamespace, VethPair, outside};
use ringroad_guest::GuestKind;
use ringroad_guest::process::end_with_caller;
use ringroad_netdev::link_change::{set_mac, set_up};
use ringroad_netdev::{HeldNamespace, Namespace, in_namespace};
use ringroad_wire::mac::Mac;
use serde::Serialize;

use self::namespace_keeper::NamespaceKeeper;
use crate::commands::guests::addresses::{InterfaceAddress, station_address};
use crate::commands::guests::foreground::{HeldSignals, Keys, exit_status};
use crate::commands::guests::{Guest, guest_name};
use crate::commands::namespaces::{self, CARRIER_PATIENCE, NAMESAKES_MAX, name_after};
use crate::failure::Failure;
use crate::options::{Global, switch_port};
use crate::output::Output;
use crate::verb::MainVerb;

pub(crate) use self::namespace_keeper::KeepNamespaceArgs;

/// Run a command in its own network namespace on the switch
///
/// The namespace has the container's name, and its interface is the port of the switch: one end of a veth pair whose
/// other end the daemon serves, or a TAP that the daemon makes in the namespace. Namespace, interface and port go when
/// the command ends. With --netns an existing namespace gets the interface, such as that of a container: --netns
/// docker:web. Command and daemon need root. See docs/guests.md.
///
/// Exit status: the command's.
#[derive(Debug, Args)]
pub(crate) struct ContainerArgs {
    /// Name of the container
    #[arg(value_name = "NAME", value_parser = guest_name)]
    name: String,
    /// Port of a switch that the interface becomes
    #[arg(long, value_name = "PORT", value_parser = switch_port)]
    port: String,
    /// Kind of the interface [default: veth, or tap before Linux 6.6]
    #[arg(long, value_name = "HOW")]
    via: Option<Via>,
    /// Address of the interface
    #[arg(long, value_name = "ADDRESS/BITS")]
    address: Option<InterfaceAddress>,
    /// Hardware address of the interface
    #[arg(long, value_name = "MAC", value_parser = station_address)]
    mac: Option<Mac>,
    /// Name of the interface [default: eth0, with --netns rr0]
    #[arg(long = "name", value_name = "IFACE")]
    interface: Option<String>,
    /// Use this existing namespace and do not remove it: a name from ip netns list, a process in it, or a container
    /// (podman:NAME, docker:NAME)
    #[arg(long, value_name = "NAMESPACE")]
    netns: Option<String>,
    /// Keep namespace, interface and port at the end
    #[arg(long)]
    keep: bool,
    /// Command to run [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Via {
    /// A TAP made by the daemon inside the namespace
    Tap,
    /// A veth pair: frames between two containers of a switch pass within the kernel
    Veth,
}

#[derive(Debug, Serialize)]
struct StartedContainer {
    ready: bool,
    name: String,
    namespace: String,
    interface: String,
    port: String,
    mode: String,
    address: Option<String>,
}

impl MainVerb for ContainerArgs {
    const EXAMPLES: &str = "\
# A shell in a network namespace of its own
ringroad container blue --port vale0:blue --address 10.0.0.3/24
# A program
ringroad container web --port vale0:web --address 10.0.0.4/24 -- busybox httpd -f";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        // Signals from here on end the command, but not this process, which cleans up afterwards.
        let signals = HeldSignals::hold()?;
        let mut guest = Guest::claim(global, output, &self.name, GuestKind::Container)?;
        let (namespace, keeper) = match &self.netns {
            Some(text) => (namespaces::parse(text)?, None),
            None => {
                let (namespace, keeper) = self.make_namespace(&mut guest, global)?;
                (namespace, Some(keeper))
            }
        };
        let interface =
            self.interface.as_deref().unwrap_or(if self.netns.is_some() { "rr0" } else { "eth0" });
        namespaces::check(&namespace, interface)?;
        let switch = self.port.split_once(':').map_or("", |(switch, _)| switch);
        let address: Vec<_> = self.address.iter().map(|address| address.0.0).collect();
        let joining = std::slice::from_ref(&namespace);
        namespaces::check_addresses(guest.daemon(), switch, joining, &address)?;
        let mode = match self.via {
            Some(Via::Tap) => self.join_by_tap(&mut guest, &namespace, interface)?,
            Some(Via::Veth) => self.join_by_veth(&mut guest, &namespace, interface)?,
            None => match self.join_by_veth(&mut guest, &namespace, interface) {
                Ok(mode) => mode,
                Err(refused) => {
                    let mode = self.join_by_tap(&mut guest, &namespace, interface)?;
                    output.note(&format!("a TAP instead of a veth pair: {}", refused.message));
                    mode
                }
            },
        };
        let address = self.address.map(|address| address.to_string());
        guest.note(|record| record.addresses.extend(address.clone()))?;
        let started = StartedContainer {
            ready: true,
            name: self.name.clone(),
            namespace: namespace.to_string(),
            interface: interface.to_owned(),
            port: self.port.clone(),
            mode,
            address,
        };
        output.announce(&started, |started| {
            let address = started.address.as_deref().unwrap_or("no address");
            format!("{interface} in {namespace}: {}, {}, {address}", self.port, started.mode)
        })?;

        let mut command = self.command(&namespace);
        end_with_caller(&mut command);
        let mut child = command.spawn().map_err(|error| {
            Failure::not_executable(
                format!("entering {namespace}: {error}"),
                "on Debian: apt-get install iproute2 util-linux",
            )
        })?;
        let ended = signals.wait_for(&mut child, Keys::Shared)?;
        if self.keep {
            let kept = guest.keep()?;
            keeper.map_or(Ok(()), NamespaceKeeper::let_go)?;
            let mut ways = vec![format!("ringroad detach {}", self.port)];
            ways.extend(kept.interface.map(|outer| format!("ip link delete {outer}")));
            if let Some((_, interface)) = &kept.lent_interface {
                ways.push(format!("{}ip link delete {interface}", namespaces::command_prefix(&namespace)));
            }
            ways.extend(kept.namespace.map(|namespace| format!("ip netns delete {namespace}")));
            output.note(&format!("kept; to remove it: {}", ways.join(" && ")));
        } else {
            guest.end()?;
        }
        match exit_status(ended.status) {
            0 => Ok(()),
            status => Err(Failure::status(status)),
        }
    }
}

impl ContainerArgs {
    fn make_namespace(
        &self,
        guest: &mut Guest,
        global: &Global,
    ) -> Result<(Namespace, NamespaceKeeper), Failure> {
        let namespace = Namespace::Named(self.name.clone());
        if namespace.path().exists() {
            return Err(Failure::new(
                format!("there is {namespace} already"),
                format!("use it with --netns {0}, or choose another name", self.name),
            ));
        }
        let keeper = NamespaceKeeper::start(&self.name, global)?;
        guest.note(|record| record.namespace = Some(self.name.clone()))?;
        in_namespace(&namespace, || set_up("lo", true))??;
        Ok((namespace, keeper))
    }

    /// Lets the daemon make the interface in the namespace.
    fn join_by_tap(
        &self,
        guest: &mut Guest,
        namespace: &Namespace,
        interface: &str,
    ) -> Result<String, Failure> {
        let within = namespaces::as_text(namespace);
        let mac = self.mac.map(|mac| mac.to_string());
        // Option `persist` keeps the interface and its addresses while the daemon is restarted.
        let mut options = vec![("netns", within.as_str()), ("persist", "1")];
        options.extend(mac.as_deref().map(|mac| ("mac", mac)));
        let driver = device_text("tap", interface, &options)?;
        let port = guest.attach(&self.port, driver)?;
        self.note_lent(guest, namespace, interface)?;
        namespaces::bring_up(namespace, interface, self.address.map(|address| address.0))?;
        Ok(port.mode)
    }

    /// Records an interface in a namespace that this command did not make.
    fn note_lent(&self, guest: &mut Guest, namespace: &Namespace, interface: &str) -> Result<(), Failure> {
        if self.netns.is_none() {
            return Ok(());
        }
        let lent = (namespaces::as_text(namespace), interface.to_owned());
        guest.note(|record| record.lent_interface = Some(lent))
    }

    fn join_by_veth(
        &self,
        guest: &mut Guest,
        namespace: &Namespace,
        interface: &str,
    ) -> Result<String, Failure> {
        let DaemonNamespace { namespace: outside, process } = outside(guest.daemon())?;
        let names = (1..=NAMESAKES_MAX).map(|number| name_after(namespace, number));
        // Until the daemon has the port, the pair ends with this process, which alone has the inner end's namespace.
        let mut pair = VethPair::make(&outside, HeldNamespace::unnamed()?, interface, names)?;
        let driver = device_text("veth", &pair.outer, &[("netns", &process.to_string())])?;
        let port = match guest.attach(&self.port, driver) {
            Ok(port) => port,
            Err(refused) => {
                pair.remove(&outside)?;
                return Err(refused);
            }
        };
        guest.note(|record| record.interface = Some(pair.outer.clone()))?;
        pair.move_inner(namespace.hold()?)?;
        self.note_lent(guest, namespace, interface)?;
        if let Some(mac) = self.mac {
            in_namespace(namespace, || set_mac(interface, mac))??;
        }
        let (address, bits) = self.address.map(|address| address.0).unzip();
        pair.set_inner_up(address, bits.unwrap_or(0))?;
        pair.await_carrier(&outside, CARRIER_PATIENCE)?;
        Ok(port.mode)
    }

    fn command(&self, namespace: &Namespace) -> Command {
        let mut words = namespaces::launcher(namespace);
        if self.command.is_empty() {
            let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
            words.push(shell.unwrap_or_else(|| "/bin/sh".into()));
        } else {
            words.extend(self.command.iter().cloned());
        }
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }
}
