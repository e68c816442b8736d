//! `ringroad attach`: a port that stays.

use clap::Args;
use ringroad_control::message::{AttachedPort, PortSpec};
use ringroad_control::{Reply, Request};

use crate::commands::config::save;
use crate::failure::Failure;
use crate::options::{Global, PortSizeArgs, switch_port};
use crate::output::Output;
use crate::verb::{MainVerb, request};

/// Make a port that stays until it is detached
///
/// A port named after a network interface is that interface: `ringroad attach vale0:eth0`. With --host the interface's
/// host stack gets a port too, vale0:eth0^. The interface is looked up in the network namespace in which the command
/// runs. Other names need a driver, such as `ringroad attach vale0:in --driver pcap:FILE`, or --for-program. The
/// command starts the daemon if none runs.
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Name of the port, such as vale0:a
    #[arg(value_name = "PORT", value_parser = switch_port)]
    name: String,
    /// Driver of the port, such as xdp:eth0@mode=native, tap:t0 or memif:SOCKET; `ringroad kinds` shows all [default:
    /// the interface of the port's name]
    #[arg(long, value_name = "DRIVER")]
    driver: Option<String>,
    /// Let the port wait for a program to open it
    #[arg(long, conflicts_with_all = ["driver", "host", "take", "netns", "force"])]
    for_program: bool,
    /// Attach the host stack's side of the interface too
    #[arg(long)]
    host: bool,
    /// Attach an interface that the host uses, and cut the host off from it
    #[arg(long, conflicts_with = "host")]
    take: bool,
    /// Write the port into the daemon's configuration file too
    #[arg(long)]
    save: bool,
    #[command(flatten)]
    sizes: PortSizeArgs,
}

impl MainVerb for AttachArgs {
    const EXAMPLES: &str = "\
# An interface and its host stack on a switch: the host stays connected
ringroad attach vale0:eth0 --host
# A port for a virtual machine
ringroad attach vale0:vm1 --driver vhost-user:/run/vm1.sock
# A trunk to the network, and a port of VLAN 10 for a program
ringroad attach vale0:up@trunk=10,20-29,native=5 --driver eth0
ringroad attach vale0:app@vlan=10 --for-program";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        ringroad::ensure_daemon(&global.socket_path())?;
        // Name of the port without its switch, if options require that this name is a device.
        let own = self.name.split('@').next().and_then(|base| base.split_once(':')).map(|(_, port)| port);
        let device = self.driver.as_deref().or(own.filter(|_| self.sizes.names_a_device()));
        let driver = device.map(|device| self.sizes.device(device));
        let port =
            PortSpec { driver, properties: self.sizes.properties(), ..PortSpec::for_program(&self.name) };
        let (for_program, host, take) = (self.for_program, self.host, self.take);
        let request = Request::Attach { port, for_program, host, take, provisional: false };
        let ports = request!(global.connect()?, &request, Reply::Attached(ports) => ports)?;
        output.result(&ports, |ports| {
            let line = |port: &AttachedPort| {
                let notes: String = port.notes.iter().map(|note| format!("\n  {note}")).collect();
                format!("{}: {}, {}{notes}", port.name, port.driver, port.mode)
            };
            ports.iter().map(line).collect::<Vec<_>>().join("\n")
        })?;
        if self.save {
            let report = save(global, ports.into_iter().map(|port| port.name).collect())
                .map_err(|failure| failure.after("the port is attached, but not saved"))?;
            output.note(&format!("saved in {}", report.config));
        }
        Ok(())
    }
}
