//! The Linux bridge: in a namespace of its own a bridge for each pair of ports. The generator's ports are virtual interfaces (veth) with one end in the
//! bridge, a forwarding guest's are TAPs.

use ringroad_netdev::in_namespace;

use super::contestant::{Ground, GuestSwitch, RunningSwitch};
use super::plan::SwitchPort;
use crate::error::BenchError;
use crate::process::run_to_end;
use crate::veth::lab::Lab;

/// What hands frames of a bridge to the packet filter (Documentation/networking/bridge.rst); absent without that module.
const PACKET_FILTERS: [&str; 3] = [
    "/proc/sys/net/bridge/bridge-nf-call-iptables",
    "/proc/sys/net/bridge/bridge-nf-call-ip6tables",
    "/proc/sys/net/bridge/bridge-nf-call-arptables",
];

/// The kernel as a switch.
#[derive(Debug)]
pub(super) struct LinuxBridge;

impl GuestSwitch for LinuxBridge {
    fn name(&self) -> &'static str {
        "Linux bridge"
    }

    fn about(&self) -> &'static str {
        "learns; another path: the generator sends and receives by AF_PACKET on virtual interfaces (veth), a forwarding guest by TAPs, and the bridge runs \
         on the sender's core, so that its time is not told apart from theirs"
    }

    fn start(&self, ground: &Ground<'_>) -> Result<RunningSwitch, BenchError> {
        let lab = Lab::create(&[["outer0", "bridged0"], ["outer1", "bridged1"]])?;
        let namespace = lab.namespace();
        let mut lines = Vec::new();
        let mut guest_devices = Vec::new();
        for (bridge, pair) in ground.topology.port_pairs().iter().enumerate() {
            lines.push(format!("link add br{bridge} type bridge stp_state 0"));
            for port in pair {
                match port {
                    SwitchPort::Generator(number) => {
                        lines.push(format!("link set bridged{number} master br{bridge}"));
                    }
                    SwitchPort::Guest(number) => {
                        // testpmd's driver opens TAPs as ones of several queues.
                        lines.push(format!("tuntap add {port} mode tap multi_queue"));
                        lines.push(format!("link set {port} master br{bridge} up"));
                        guest_devices.push(format!("net_tap{number},iface={port}").into());
                    }
                }
            }
            lines.push(format!("link set br{bridge} up"));
        }
        let mut commands = Vec::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            commands.push(run_to_end(&namespace, "ip", &words, &[])?);
        }
        in_namespace(&namespace, || {
            for setting in PACKET_FILTERS.iter().filter(|setting| std::path::Path::new(setting).exists()) {
                std::fs::write(setting, "0").map_err(BenchError::NewNamespace)?;
            }
            Ok::<(), BenchError>(())
        })??;
        Ok(RunningSwitch {
            ports: ["packet:outer0@immediate=1", "packet:outer1@immediate=1"].map(String::from),
            guest_devices,
            namespace,
            process: None,
            commands,
            _keep: vec![Box::new(lab)],
        })
    }
}
