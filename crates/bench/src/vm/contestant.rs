//! A switch between guests: what it takes to start one, and what there is to know of one that runs.

use std::any::Any;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ringroad_guest::testpmd::virtio_user;
use ringroad_netdev::Namespace;

use super::plan::{SwitchPort, Topology, VmCores};
use crate::error::BenchError;
use crate::process::BenchProcess;
use crate::stop::StopFlag;

/// Where and with what a switch is started.
#[derive(Debug)]
pub(super) struct Ground<'a> {
    /// For sockets; goes with the turn.
    pub(super) folder: &'a Path,
    pub(super) topology: Topology,
    pub(super) cores: VmCores,
    pub(super) stop: &'a StopFlag,
}

impl Ground<'_> {
    /// The socket of a port.
    pub(super) fn socket(&self, port: SwitchPort) -> PathBuf {
        self.folder.join(port.to_string())
    }

    /// The generator's ends of vhost-user ports at their sockets, with `options` behind each.
    pub(super) fn generator_ports(&self, options: &str) -> [String; 2] {
        [0, 1].map(|number| {
            format!("virtio-user:{}{options}", self.socket(SwitchPort::Generator(number)).display())
        })
    }

    /// The forwarding guest's ends of vhost-user ports at their sockets, with `options` behind each; none where there is no such guest.
    pub(super) fn guest_devices(&self, options: &str) -> Vec<OsString> {
        let ports = self.topology.port_pairs().as_flattened().iter();
        let devices = ports.filter_map(|port| match port {
            SwitchPort::Guest(number) => Some(virtio_user(*number, &self.socket(*port), 1)),
            SwitchPort::Generator(_) => None,
        });
        devices
            .map(|mut device| {
                device.push(options);
                device
            })
            .collect()
    }
}

/// A switch that runs. It ends with the value.
pub(super) struct RunningSwitch {
    /// The generator's ports, as Ringroad names them.
    pub(super) ports: [String; 2],
    /// The forwarding guest's, as testpmd's `--vdev` has them.
    pub(super) guest_devices: Vec<OsString>,
    /// Where all of them are opened.
    pub(super) namespace: Namespace,
    /// The process whose time is the switch's; none where the kernel is the switch, whose time nobody counts apart.
    pub(super) process: Option<BenchProcess>,
    /// The command lines that made it.
    pub(super) commands: Vec<String>,
    /// What has to outlive the process.
    pub(super) _keep: Vec<Box<dyn Any>>,
}

/// A switch to be measured.
pub(super) trait GuestSwitch {
    /// Its name in tables.
    fn name(&self) -> &'static str;
    /// What it does with each frame, and what has to be known of the way to it.
    fn about(&self) -> &'static str;
    /// Starts it with the ports of the ground's topology.
    fn start(&self, ground: &Ground<'_>) -> Result<RunningSwitch, BenchError>;
}
