//! `ringroad unlink`: undoes `ringroad link`.

use clap::Args;
use ringroad_control::{Connection, ControlError};
use ringroad_netdev::in_namespace;
use ringroad_netdev::link::link_by_name;
use serde::Serialize;

use crate::commands::link::{INNER_NAME, Tap, detach};
use crate::commands::namespaces;
use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;

/// Take namespaces off the switch that `ringroad link` joined
///
/// Removes the port, and with it the interface in the namespace. The namespace need not exist any more.
#[derive(Debug, Args)]
pub(crate) struct UnlinkArgs {
    /// The namespaces: names, or processes in them
    #[arg(value_name = "NAMESPACE", required = true)]
    namespaces: Vec<String>,
    /// Name of the interface in each namespace
    #[arg(long = "name", value_name = "IFACE", default_value = INNER_NAME)]
    interface: String,
}

#[derive(Debug, Serialize)]
struct UnlinkedNamespace {
    namespace: String,
    interface: String,
    ports: Vec<String>,
}

impl MainVerb for UnlinkArgs {
    const EXAMPLES: &str = "ringroad unlink blue green";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        // A missing daemon is not an error: the interface outlives a daemon that was killed.
        let mut daemon = match global.connect() {
            Ok(daemon) => Some(daemon),
            Err(failure) => match Connection::connect(global.socket_path()) {
                Err(ControlError::DaemonNotRunning { .. }) => None,
                _ => return Err(failure),
            },
        };
        let ports =
            daemon.as_mut().map_or(Ok(Vec::new()), |daemon| daemon.status().map(|status| status.ports))?;
        // All interfaces are found before any is removed, so that a wrong name changes nothing.
        let mut found = Vec::new();
        for text in &self.namespaces {
            let tap = Tap { namespace: namespaces::parse(text)?, interface: self.interface.clone() };
            let served: Vec<_> =
                ports.iter().filter(|port| tap.is_served_by(port)).map(|port| port.name.clone()).collect();
            if served.is_empty() {
                self.check_without_port(&tap, daemon.is_some())?;
            }
            found.push((text, tap, served));
        }
        let mut unlinked = Vec::new();
        for (text, tap, served) in found {
            for name in &served {
                if let Some(daemon) = &mut daemon {
                    detach(daemon, name)?;
                }
            }
            tap.remove()?;
            unlinked.push(UnlinkedNamespace {
                namespace: text.clone(),
                interface: tap.interface,
                ports: served,
            });
        }
        output.result(&unlinked, |unlinked| {
            let line = |one: &UnlinkedNamespace| {
                let ports: String = one.ports.iter().map(|port| format!(", {port}")).collect();
                format!("{}: removed {}{ports}", one.namespace, one.interface)
            };
            unlinked.iter().map(line).collect::<Vec<_>>().join("\n")
        })
    }
}

impl UnlinkArgs {
    /// Checks an interface without a port of the daemon. `ringroad link` can have made it only if no daemon runs.
    fn check_without_port(&self, tap: &Tap, has_daemon: bool) -> Result<(), Failure> {
        let Tap { namespace, interface } = tap;
        let link = in_namespace(namespace, || link_by_name(interface))??;
        if !has_daemon && link.kind.as_deref() == Some("tun") {
            return Ok(());
        }
        Err(Failure::new(
            format!("{interface} in {namespace} was not made by ringroad link, or by another daemon's"),
            "name the right interface with --name, or the other daemon with --socket",
        ))
    }
}
