//! Stations at a switch, each with its own interface; the test chooses the mechanism that serves it.

use std::net::IpAddr;
use std::process::Command;

use ringroad::control::report::PortReport;

use crate::daemon::Daemon;
use crate::network::{NetworkNamespace, address, cable, finished};
use crate::transfer::{real_file, there_and_back};

/// Mechanisms that can serve an interface, with the beginning of their reports.
pub const MECHANISMS: [(&str, &str, &str); 3] = [
    ("xdp:{}@mode=native", "af_xdp", "AF_XDP copy, native"),
    ("xdp:{}@mode=generic", "af_xdp", "AF_XDP copy, generic"),
    ("packet:{}", "af_packet", "AF_PACKET"),
];

/// A daemon in a namespace of its own; stations with cables to it: `inner` there, `outer0`, `outer1`, ... here.
#[derive(Debug)]
pub struct Testbed {
    // Fields are dropped in this order: the daemon before the namespace where its interfaces are.
    /// The daemon.
    pub daemon: Daemon,
    /// The stations; `10.78.0.1` is the first one's address, and so on.
    pub stations: Vec<NetworkNamespace>,
    /// Where the daemon is.
    pub outside: NetworkNamespace,
}

impl Testbed {
    /// A site with packets of up to `mtu` bytes and one queue for each interface.
    #[must_use]
    pub fn new(count: usize, mtu: u32) -> Self {
        Self::launched_by(&[], count, mtu, 1)
    }

    /// `launcher` becomes the daemon, in its namespace.
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

    /// Makes the interface of a station a port, by `driver` with the interface's name in place of `{}`.
    pub fn attach(&self, number: usize, driver: &str) -> PortReport {
        let name = port(number);
        let driver = driver.replace("{}", &outer(number));
        finished(&mut self.ringroad(&["attach", &name, "--driver", &driver]));
        self.daemon.port(&name).unwrap()
    }

    /// The same for all stations.
    pub fn attach_all(&self, driver: &str) -> Vec<PortReport> {
        (0..self.stations.len()).map(|number| self.attach(number, driver)).collect()
    }

    /// Takes the port of a station off.
    pub fn detach(&self, number: usize) {
        finished(&mut self.daemon.ringroad(&["detach", &port(number)]));
    }

    /// A command of the CLI that runs where the daemon and its interfaces are.
    #[must_use]
    pub fn ringroad(&self, arguments: &[&str]) -> Command {
        self.daemon.ringroad_within(&self.outside, arguments)
    }

    /// Why a command fails.
    #[must_use]
    pub fn refusal(&self, arguments: &[&str]) -> String {
        refusal(&mut self.ringroad(arguments))
    }

    /// A real file from the first station to the second and back.
    pub fn transfer(&self) {
        self.transfer_of(&real_file());
    }

    /// A file of one's own from the first station to the second and back.
    pub fn transfer_of(&self, file: &[u8]) {
        there_and_back(&self.stations[0], IpAddr::V4(address(host(0))), &self.stations[1], file);
    }

    /// Frames that have gone into the second station's port.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.daemon.port(&port(1)).unwrap().counters.delivered_frames
    }

    /// Waits until `frames` frames have gone into the second station's port.
    pub fn await_delivered(&self, frames: u64) {
        self.daemon.await_status("traffic", |status| status.ports[1].counters.delivered_frames >= frames);
    }
}

/// The daemon's end of a station's cable.
#[must_use]
pub fn outer(number: usize) -> String {
    format!("outer{number}")
}

/// The port of a station.
#[must_use]
pub fn port(number: usize) -> String {
    format!("vale0:p{number}")
}

/// The host part of a station's address.
#[must_use]
pub fn host(number: usize) -> u8 {
    number as u8 + 1
}

/// Why a command fails, with status 1.
#[must_use]
pub fn refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{command:?}: {output:?}");
    why
}
