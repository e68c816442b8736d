//! DPDK's testpmd as the peer of a socket: a program that forwards frames from one of its ports to the next and back.

use std::path::Path;
use std::process::Command;

use ringroad_bench::hugepages::HugepageReserve;
use ringroad_test_needs::{has_program, is_root};

use crate::network::unused_name;
use crate::service::Service;

/// Memory for the packet buffers and rings of a testpmd, in MiB.
const MEBIBYTES: u64 = 256;
/// Number of 2 MiB pages for this memory, with some more for the regions of a daemon that uses such pages, too.
const HUGE_PAGES: u64 = 280;

/// Maximum number of starts of a testpmd: any program may take the reserved pages first.
const STARTS: usize = 10;
/// Part of the line that testpmd writes once it has its memory.
const HAS_MEMORY: &str = "create a new mbuf pool";
/// Environment variable with the path of another testpmd than the installed one.
const OTHER_TESTPMD: &str = "RINGROAD_TESTPMD";

/// A running testpmd, killed when the value is dropped.
#[derive(Debug)]
pub struct Testpmd {
    service: Service,
    prefix: String,
    /// Huge pages, released after testpmd has ended.
    _pages: Vec<HugepageReserve>,
}

/// Memory that a testpmd uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Ordinary pages.
    Ordinary,
    /// Pages of 2 MiB, reserved while testpmd runs.
    Huge,
}

impl Memory {
    /// Huge pages. Returns `None`, and prints the reason, if none are available.
    #[must_use]
    pub fn huge() -> Option<Self> {
        HugepageReserve::of(HUGE_PAGES)
            .inspect_err(|error| eprintln!("skipped on huge pages: {error}"))
            .ok()
            .map(|_| Self::Huge)
    }
}

impl Testpmd {
    /// Whether testpmd is installed and may run.
    #[must_use]
    pub fn is_installed() -> bool {
        is_root() && (std::env::var_os(OTHER_TESTPMD).is_some() || has_program("dpdk-testpmd"))
    }

    /// Starts a testpmd that forwards between each two of its ports. `devices` are DPDK's `--vdev` arguments, and
    /// `options` are testpmd's own.
    ///
    /// # Panics
    /// If testpmd cannot be started.
    #[must_use]
    pub fn start(memory: Memory, devices: &[String], options: &[&str]) -> Self {
        Self::with_memory(memory, || {
            let (mut command, prefix) = command(memory, devices, &[]);
            command.args(["--forward-mode=io", "--stats-period=60"]).args(options);
            (Service::start(command), prefix)
        })
    }

    /// Starts a testpmd by `start`. Repeats this if another program has taken the huge pages.
    fn with_memory(memory: Memory, start: impl Fn() -> (Service, String)) -> Self {
        let mut pages = Vec::new();
        loop {
            if memory == Memory::Huge {
                pages.push(HugepageReserve::of(HUGE_PAGES).unwrap());
            }
            let (service, prefix) = start();
            let mut testpmd = Self { service, prefix, _pages: std::mem::take(&mut pages) };
            if memory == Memory::Ordinary || testpmd.service.await_line_or_end(HAS_MEMORY).is_some() {
                return testpmd;
            }
            let (status, printed) = testpmd.service.await_end();
            assert!(
                printed.contains("Cannot allocate memory") && testpmd._pages.len() < STARTS,
                "testpmd: {status}: {printed}"
            );
            pages = std::mem::take(&mut testpmd._pages);
        }
    }

    /// Starts a testpmd that takes commands ([`Self::tell`]). `arguments` are DPDK's own, before testpmd's `options`.
    ///
    /// # Panics
    /// If testpmd cannot be started.
    #[must_use]
    pub fn interactive(memory: Memory, arguments: &[&str], devices: &[String], options: &[&str]) -> Self {
        let mut testpmd = Self::with_memory(memory, || {
            let (mut command, prefix) = command(memory, devices, arguments);
            command.arg("--interactive").args(options);
            (Service::start_interactive(command), prefix)
        });
        // The prompt ends no line, so the test waits for the reply to a first command.
        testpmd.tell("show config cores");
        testpmd.service.await_line("List of forwarding lcores");
        testpmd
    }

    /// Sends testpmd a command. Its output comes with [`Self::await_line`].
    ///
    /// # Panics
    /// If testpmd has ended.
    pub fn tell(&mut self, command: &str) {
        self.service.tell(command);
    }

    /// Waits until testpmd prints a line that contains `part`. Returns this line.
    ///
    /// # Panics
    /// If testpmd ends, or prints no such line within the time limit.
    pub fn await_line(&mut self, part: &str) -> String {
        self.service.await_line(part)
    }

    /// Waits until testpmd has printed a line that contains `part`, unless it has already.
    ///
    /// # Panics
    /// If testpmd ends, or prints no such line within the time limit.
    pub fn await_line_or_seen(&mut self, part: &str) {
        if !self.service.has_written(part) {
            self.service.await_line(part);
        }
    }

    /// Returns the number of frames that a port has received and sent.
    ///
    /// # Panics
    /// If testpmd does not report them.
    pub fn frames(&mut self, port: usize) -> (u64, u64) {
        self.tell(&format!("show port stats {port}"));
        self.await_line(&format!("statistics for port {port} "));
        let mut count = |what: &str| {
            let line = self.await_line(what);
            line.split(what).nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap()
        };
        (count("RX-packets:"), count("TX-packets:"))
    }

    /// Stops testpmd and waits for its end. Returns all its output.
    ///
    /// # Panics
    /// If testpmd does not end, or ends with an error.
    pub fn quit(&mut self) -> String {
        self.tell("quit");
        let (status, printed) = self.service.await_end();
        assert!(status.success(), "testpmd: {status}: {printed}");
        printed
    }

    /// Waits until testpmd forwards. Its peers may not be connected yet.
    ///
    /// # Panics
    /// If testpmd ends, or does not forward within the time limit.
    pub fn await_forwarding(&mut self) {
        self.service.await_line("Port statistics");
    }

    /// Whether testpmd still runs.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.service.is_running()
    }

    /// Kills testpmd without a message to the peer.
    ///
    /// # Panics
    /// If testpmd has ended by itself.
    pub fn kill(mut self) {
        assert!(self.is_running(), "testpmd has ended by itself");
        self.service.kill();
    }
}

/// Returns the command line before testpmd's own options, and the prefix of DPDK's files.
fn command(memory: Memory, devices: &[String], arguments: &[&str]) -> (Command, String) {
    let prefix = unused_name("ringroad");
    // `stdbuf -oL` makes the output appear line by line, although it is not a terminal.
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg(std::env::var_os(OTHER_TESTPMD).unwrap_or_else(|| "dpdk-testpmd".into()));
    command.args(["--lcores", "0@0,1@1", "--no-pci", "--single-file-segments"]).args(arguments);
    command.args(match memory {
        Memory::Ordinary => ["--no-huge"],
        Memory::Huge => ["--in-memory"],
    });
    command.args(["-m", &MEBIBYTES.to_string(), &format!("--file-prefix={prefix}")]);
    command.args(devices.iter().map(|device| format!("--vdev={device}")));
    command.args(["--", "--nb-cores=1", "--no-mlockall", "--total-num-mbufs=16384"]);
    (command, prefix)
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        self.service.kill();
        // DPDK removes its own files only after a regular end.
        let _ = std::fs::remove_dir_all(Path::new("/var/run/dpdk").join(&self.prefix));
    }
}
