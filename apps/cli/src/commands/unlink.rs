//! `ringroad unlink`: what `ringroad link` made, taken back.

use clap::Args;
use ringroad_control::report::PortReport;
use ringroad_control::{Connection, ControlError};
use ringroad_netdev::Namespace;
use serde::Serialize;

use crate::arguments::Global;
use crate::commands::link::joint::{self, Joint};
use crate::commands::link::{INNER_NAME, Outside, detach, outside};
use crate::failure::Failure;
use crate::output::Output;

/// Take namespaces off the switch that `ringroad link` joined
///
/// The port goes, and the interface in the namespace with it. The namespace may be gone already.
#[derive(Debug, Args)]
pub(crate) struct Unlink {
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

impl Unlink {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        // The pair outlives a daemon that was killed, most likely in this namespace.
        let mut daemon = match global.connect() {
            Ok(daemon) => Some(daemon),
            Err(failure) => match Connection::connect(global.socket_path()) {
                Err(ControlError::DaemonNotRunning { .. }) => None,
                _ => return Err(failure),
            },
        };
        let (outside, ports) = match &mut daemon {
            Some(daemon) => {
                let Outside { namespace, ports, .. } = outside(daemon)?;
                (namespace, ports)
            }
            None => (Namespace::Current, Vec::new()),
        };
        // All are found before any is touched, so that a slip in a name changes nothing.
        let mut found = Vec::new();
        for text in &self.namespaces {
            let namespace = joint::parse(text)?;
            let joint = match Joint::find(&outside, &namespace, &self.interface) {
                Ok(joint) => joint,
                Err(failure) => {
                    let gone = Joint::of_gone(&namespace, &self.interface);
                    gone.filter(|joint| ports.iter().any(|port| is_of(port, joint))).ok_or(failure)?
                }
            };
            found.push((text, joint));
        }
        let mut unlinked = Vec::new();
        for (text, joint) in found {
            let mut names = Vec::new();
            for port in ports.iter().filter(|port| is_of(port, &joint)) {
                if let Some(daemon) = &mut daemon {
                    detach(daemon, &port.name)?;
                    names.push(port.name.clone());
                }
            }
            joint.remove(&outside)?;
            unlinked.push(UnlinkedNamespace {
                namespace: text.clone(),
                interface: joint.inner,
                ports: names,
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

/// Whether `port` is served by the outer end of `joint`, or was until that went with its namespace.
fn is_of(port: &PortReport, joint: &Joint) -> bool {
    let called = || port.name.split_once(':').is_some_and(|(_, name)| name == joint.outer);
    let by_link = match &port.link {
        Some(link) => link.netns.is_none() && link.interface == joint.outer,
        None => port.kind != "shm" && called(),
    };
    port.persistent && by_link
}
