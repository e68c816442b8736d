//! Stations at a switch, each with its own interface. The test chooses the mechanism that serves an interface.

use std::net::IpAddr;
use std::process::Command;

use ringroad::control::report::PortReport;

use crate::daemon::Daemon;
use crate::network::{NetworkNamespace, address, cable, finished};
use crate::transfer::{real_file, there_and_back};

/// Mechanisms that can serve an interface: driver, kind, and the beginning of the reported mode.
pub const MECHANISMS: [(&str, &str, &str); 3] = [
    ("xdp:{}@mode=native", "af_xdp", "AF_XDP copy, native"),
    ("xdp:{}@mode=generic", "af_xdp", "AF_XDP copy, generic"),
    ("packet:{}", "af_packet", "AF_PACKET"),
];

/// A daemon in a namespace of its own, and stations with cables to this namespace. The cables' ends are `inner` at each
/// station, and `outer0`, `outer1`, ... at the daemon.
#[derive(Debug)]
pub struct Testbed {
    // Fields are dropped in this order: the daemon before the namespace where its interfaces are.
    /// The daemon.
    pub daemon: Daemon,
    /// The stations. Their addresses are `10.78.0.1`, `10.78.0.2` and so on.
    pub stations: Vec<NetworkNamespace>,
    /// Namespace of the daemon.
    pub outside: NetworkNamespace,
}

impl Testbed {
    /// Makes a site of `count` stations. Interfaces have one queue and take packets of up to `mtu` bytes.
    #[must_use]
    pub fn new(count: usize, mtu: u32) -> Self {
        Self::launched_by(&[], count, mtu, 1)
    }

    /// Makes a site whose daemon is started through the command `launcher`, in the daemon's namespace.
    #[must_use]
    pub fn launched_by(launcher: &[&str], count: usize, mtu: u32, queues: u32) -> Self {
        let outside = NetworkNamespace::new();
        let within = [&["ip", "netns", "exec", outside.name()], launcher].concat();
        let daemon = Daemon::launched_by(&within, "");
        let stations: Vec<_> = (0..count).map(|_| NetworkNamespace::new()).collect();
        for (number, station) in stations.iter().enumerate() {
            cable(&outside, &outer(number), station, "inner", mtu, queues);
            station.number("inner", host(number));
        }
        Self { daemon, stations, outside }
    }

    /// Makes the daemon's end of a station's cable a port. In `driver` the interface's name replaces `{}`.
    pub fn attach(&self, number: usize, driver: &str) -> PortReport {
        let name = port(number);
        let driver = driver.replace("{}", &outer(number));
        finished(&mut self.ringroad(&["attach", &name, "--driver", &driver]));
        self.daemon.port(&name).unwrap()
    }

    /// Makes the daemon's ends of all cables ports, with the same driver.
    pub fn attach_all(&self, driver: &str) -> Vec<PortReport> {
        (0..self.stations.len()).map(|number| self.attach(number, driver)).collect()
    }

    /// Detaches the port of a station.
    pub fn detach(&self, number: usize) {
        finished(&mut self.daemon.ringroad(&["detach", &port(number)]));
    }

    /// A command of the CLI that runs in the namespace of the daemon and its interfaces.
    #[must_use]
    pub fn ringroad(&self, arguments: &[&str]) -> Command {
        self.daemon.ringroad_within(&self.outside, arguments)
    }

    /// Runs a command that must fail with status 1. Returns its error message.
    #[must_use]
    pub fn refusal(&self, arguments: &[&str]) -> String {
        refusal(&mut self.ringroad(arguments))
    }

    /// Transfers a real file from the first station to the second and back.
    pub fn transfer(&self) {
        self.transfer_of(&real_file());
    }

    /// Transfers the given file from the first station to the second and back.
    pub fn transfer_of(&self, file: &[u8]) {
        there_and_back(&self.stations[0], IpAddr::V4(address(host(0))), &self.stations[1], file);
    }

    /// Number of frames delivered to the second station's port.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.daemon.port(&port(1)).unwrap().counters.delivered_frames
    }

    /// Waits until `frames` frames are delivered to the second station's port.
    pub fn await_delivered(&self, frames: u64) {
        self.daemon.await_status("traffic", |status| status.ports[1].counters.delivered_frames >= frames);
    }
}

/// Name of the daemon's end of a station's cable.
#[must_use]
pub fn outer(number: usize) -> String {
    format!("outer{number}")
}

/// Name of the port of a station.
#[must_use]
pub fn port(number: usize) -> String {
    format!("vale0:p{number}")
}

/// Host part of a station's address.
#[must_use]
pub fn host(number: usize) -> u8 {
    number as u8 + 1
}

/// Runs a command that must fail with status 1. Returns its error message.
#[must_use]
pub fn refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{command:?}: {output:?}");
    why
}
