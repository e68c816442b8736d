//! DPDK's testpmd in `io` mode between the two vhost-user ports of each pair.

use std::rc::Rc;

use ringroad_netdev::Namespace;

use super::contestant::{Ground, GuestSwitch, RunningSwitch};
use crate::error::BenchError;
use crate::peers::testpmd::{Installation, Launch, Testpmd};

/// testpmd as a switch.
#[derive(Debug)]
pub(super) struct TestpmdSwitch {
    pub(super) installation: Rc<Installation>,
}

impl GuestSwitch for TestpmdSwitch {
    fn name(&self) -> &'static str {
        "DPDK testpmd io"
    }

    fn about(&self) -> &'static str {
        "what comes in at one vhost-user port of a pair goes out at the other, no address looked at: 2 copies; polls always"
    }

    fn start(&self, ground: &Ground<'_>) -> Result<RunningSwitch, BenchError> {
        let pages = self.installation.lend_memory()?;
        let ports = ground.topology.port_pairs().as_flattened().iter().enumerate();
        let launch = Launch {
            role: "switch",
            cpu: ground.cores.switch,
            // Ports one after the other are testpmd's pairs, too.
            plugin: None,
            devices: ports
                .map(|(number, port)| {
                    let socket = ground.socket(*port);
                    format!("net_vhost{number},iface={},queues=1", socket.display()).into()
                })
                .collect(),
            burst_frames: 32,
            mode: ["--forward-mode=io", "--txd=1024", "--rxd=1024"].map(String::from).to_vec(),
        };
        let (testpmd, command) =
            Testpmd::start(&self.installation, &Namespace::Current, &launch, ground.folder)?;
        Ok(RunningSwitch {
            ports: ground.generator_ports(""),
            guest_devices: ground.guest_devices(""),
            namespace: Namespace::Current,
            process: Some(testpmd.process),
            commands: vec![command],
            _keep: vec![Box::new(pages)],
        })
    }
}
