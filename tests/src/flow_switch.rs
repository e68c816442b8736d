//! A switch with flow tables, for tests with Open vSwitch's tools.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use ringroad::Port;
use ringroad::control::{Reply, Request};
use serde_json::Value;

use crate::command::{run, stderr};
use crate::daemon::{Daemon, PATIENCE};
use crate::frames::send;

/// A daemon whose switch `vale0` has flow tables and the ports `a` (1), `b` (2) and `c` (3).
#[derive(Debug)]
pub struct FlowSwitch {
    /// The daemon.
    pub daemon: Daemon,
    /// Port 1.
    pub a: Port,
    /// Port 2.
    pub b: Port,
    /// Port 3.
    pub c: Port,
}

impl FlowSwitch {
    /// Makes a switch with these options after `--openflow`.
    #[must_use]
    pub fn new(options: &[&str]) -> Self {
        Self::with_workers(2, options)
    }

    /// Makes a switch with these options in a daemon with `workers` workers.
    #[must_use]
    pub fn with_workers(workers: usize, options: &[&str]) -> Self {
        Self::with_config(&format!("[workers]\ncount = {workers}\n"), options)
    }

    /// Makes a switch with these options in a daemon with this configuration.
    #[must_use]
    pub fn with_config(config: &str, options: &[&str]) -> Self {
        let daemon = Daemon::with_config(config);
        let [a, b, c] = ["vale0:a", "vale0:b", "vale0:c"].map(|name| daemon.open(name));
        let this = Self { daemon, a, b, c };
        this.set(options);
        this
    }

    /// Changes the options of the switch, and waits until the switch has its ports.
    ///
    /// # Panics
    /// If the daemon refuses the options.
    pub fn set(&self, options: &[&str]) {
        let printed = run(self.daemon.ringroad(&[&["switch", "vale0", "--openflow"], options].concat()));
        assert!(printed.status.success(), "{}", stderr(&printed));
        self.await_report("three ports", |_| self.ofctl(&["dump-ports-desc"]).contains("3(c)"));
    }

    /// Path of the switch's socket for OpenFlow tools.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.daemon.folder().join("vale0.mgmt")
    }

    /// Returns the output of `ovs-ofctl` for the switch.
    ///
    /// # Panics
    /// If `ovs-ofctl` fails.
    pub fn ofctl(&self, arguments: &[&str]) -> String {
        let [verb, rest @ ..] = arguments else { panic!("a verb") };
        let printed = run(self.ofctl_command(verb, rest));
        assert!(printed.status.success(), "{arguments:?}: {}", stderr(&printed));
        String::from_utf8(printed.stdout).unwrap()
    }

    /// An `ovs-ofctl` command for the switch. `verb` may begin with options; `rest` are the arguments after the switch.
    #[must_use]
    pub fn ofctl_command(&self, verb: &str, rest: &[&str]) -> Command {
        let mut command = Command::new("ovs-ofctl");
        command.env("OVS_RUNDIR", self.daemon.folder());
        command.args(["-O", "OpenFlow13"]).args(verb.split(' '));
        command.arg(format!("unix:{}", self.socket().display())).args(rest);
        command
    }

    /// Returns the daemon's report of the switch.
    ///
    /// # Panics
    /// If the command fails.
    #[must_use]
    pub fn report(&self) -> Value {
        let Reply::OpenFlow(reports) = self.daemon.ask(&Request::OpenFlow) else { panic!("no report") };
        let report = reports.into_iter().find(|report| report.settings.switch == "vale0");
        serde_json::to_value(report).unwrap()
    }

    /// Polls the report until the condition holds.
    ///
    /// # Panics
    /// If the time limit passes first.
    pub fn await_report(&self, what: &str, requested: impl Fn(&Value) -> bool) {
        let end = Instant::now() + PATIENCE.unwrap();
        while !requested(&self.report()) {
            assert!(Instant::now() < end, "no {what}: {:#}", self.report());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the report has `count` flows: the agent updates the report after its reply to the tool.
    ///
    /// # Panics
    /// If the time limit passes first.
    pub fn await_flows(&self, count: u64) {
        self.await_report(&format!("{count} flows"), |report| report["flows"] == count);
    }

    /// Number of frames that the switch's ports have dropped for a cause.
    ///
    /// # Panics
    /// If the daemon does not report it.
    #[must_use]
    pub fn dropped(&self, cause: &str) -> u64 {
        let Reply::Status(status) = self.daemon.ask(&Request::Status) else { panic!("no status") };
        let ports = status.ports.iter().filter(|port| port.name.starts_with("vale0:"));
        let status = serde_json::to_value(ports.collect::<Vec<_>>()).unwrap();
        let of_port = |port: &Value| port["counters"]["drops"][cause].as_u64().unwrap_or(0);
        status.as_array().unwrap().iter().map(of_port).sum()
    }
}

/// Sends a frame and syncs, so that the switch gets the frame.
///
/// # Panics
/// If the port fails.
pub fn pass(port: &mut Port, frame: &[u8]) {
    send(port, frame);
    port.tx().sync().unwrap();
}
