//! The Linux bridge: two pairs of virtual interfaces in a namespace of their own, one end of each in the bridge.

use ringroad_netdev::in_namespace;

use super::contestant::{Ground, GuestSwitch, RunningSwitch};
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
        "learns; another path: the guests send and receive by AF_PACKET on virtual interfaces (veth), and the bridge runs on the sender's core, so that its \
         time is not told apart from theirs"
    }

    fn start(&self, _ground: &Ground<'_>) -> Result<RunningSwitch, BenchError> {
        let lab = Lab::create(&[["guest0", "bridged0"], ["guest1", "bridged1"]])?;
        let namespace = lab.namespace();
        let mut commands = Vec::new();
        let lines = [
            "link add br0 type bridge stp_state 0",
            "link set bridged0 master br0",
            "link set bridged1 master br0",
            "link set br0 up",
        ];
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
            ports: ["packet:guest0@immediate=1", "packet:guest1@immediate=1"].map(String::from),
            namespace,
            process: None,
            commands,
            _keep: vec![Box::new(lab)],
        })
    }
}
