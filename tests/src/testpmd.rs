//! DPDK's testpmd at the other side of a socket: a program that passes frames from one of its ports to the next and
//! back.

use std::path::Path;
use std::process::Command;

use ringroad_bench::hugepages::HugepageReserve;
use ringroad_test_needs::{has_program, is_root};

use crate::network::unused_name;
use crate::service::Service;

/// Packet buffers and rings of a testpmd.
const MEBIBYTES: u64 = 256;
/// Pages of 2 MiB for that, and some for the regions of a daemon that takes them too.
const HUGE_PAGES: u64 = 280;

/// Starts of a testpmd at most: any program may take the pages that are reserved for it first.
const STARTS: usize = 10;
/// What it writes once it has its memory.
const HAS_MEMORY: &str = "create a new mbuf pool";

/// A running testpmd, killed with the value.
#[derive(Debug)]
pub struct Testpmd {
    service: Service,
    prefix: String,
    /// Returned after it has ended.
    _pages: Vec<HugepageReserve>,
}

/// Where its memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Ordinary pages.
    Ordinary,
    /// Pages of 2 MiB, reserved while it runs.
    Huge,
}

impl Memory {
    /// Huge pages; `None`, and the reason printed, if none are available.
    #[must_use]
    pub fn huge() -> Option<Self> {
        HugepageReserve::of(HUGE_PAGES)
            .inspect_err(|error| eprintln!("skipped on huge pages: {error}"))
            .ok()
            .map(|_| Self::Huge)
    }
}

impl Testpmd {
    /// Whether it is installed, and may be run.
    #[must_use]
    pub fn is_installed() -> bool {
        is_root() && has_program("dpdk-testpmd")
    }

    /// Starts one with `devices`, DPDK's `--vdev` arguments, and `options` of testpmd's own, forwarding between each
    /// two of its ports.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(memory: Memory, devices: &[String], options: &[&str]) -> Self {
        Self::with_memory(memory, || {
            let (mut command, prefix) = command(memory, devices, &[]);
            command.args(["--forward-mode=io", "--stats-period=60"]).args(options);
            (Service::start(command), prefix)
        })
    }

    /// Starts one by `start`, again where it found its huge pages taken.
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

    /// Starts one that is controlled by commands ([`Self::tell`]), with a driver from outside of DPDK's tree.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn interactive(memory: Memory, plugin: &Path, devices: &[String], options: &[&str]) -> Self {
        let plugin = plugin.display().to_string();
        let mut testpmd = Self::with_memory(memory, || {
            let (mut command, prefix) = command(memory, devices, &["-d", &plugin]);
            command.arg("--interactive").args(options);
            (Service::start_interactive(command), prefix)
        });
        // Its prompt ends no line; this is its answer to a first command.
        testpmd.tell("show config cores");
        testpmd.service.await_line("List of forwarding lcores");
        testpmd
    }

    /// Gives it a command. What it prints comes with [`Self::await_line`].
    ///
    /// # Panics
    /// If it has ended.
    pub fn tell(&mut self, command: &str) {
        self.service.tell(command);
    }

    /// Waits until it prints a line with `part` in it, and returns that line.
    ///
    /// # Panics
    /// If it ends, or prints no such line within the time limit.
    pub fn await_line(&mut self, part: &str) -> String {
        self.service.await_line(part)
    }

    /// Stops it and waits for its end; returns all its output.
    ///
    /// # Panics
    /// If it does not end, or ends with an error.
    pub fn quit(&mut self) -> String {
        self.tell("quit");
        let (status, printed) = self.service.await_end();
        assert!(status.success(), "testpmd: {status}: {printed}");
        printed
    }

    /// Waits until it forwards. Its peers may not be connected then.
    ///
    /// # Panics
    /// If it ends, or does not forward within the time limit.
    pub fn await_forwarding(&mut self) {
        self.service.await_line("Port statistics");
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.service.is_running()
    }

    /// Kills it as a crash would, without a message to the other side.
    ///
    /// # Panics
    /// If it had ended by itself.
    pub fn kill(mut self) {
        assert!(self.is_running(), "testpmd has ended by itself");
        self.service.kill();
    }
}

/// The command line up to testpmd's own options, and the prefix of its files.
fn command(memory: Memory, devices: &[String], arguments: &[&str]) -> (Command, String) {
    let prefix = unused_name("ringroad");
    // Line by line, even though its output is not a terminal.
    let mut command = Command::new("stdbuf");
    command.args(["-oL", "dpdk-testpmd"]);
    command.args(["--lcores", "0@0,1@1", "--no-pci", "--single-file-segments"]).args(arguments);
    command.args(match memory {
        Memory::Ordinary => ["--no-huge"],
        Memory::Huge => ["--in-memory"],
    });
    command.args(["-m", &MEBIBYTES.to_string(), &format!("--file-prefix={prefix}")]);
    command.args(devices.iter().map(|device| format!("--vdev={device}")));
    command.args(["--", "--nb-cores=1", "--no-mlockall", "--total-num-mbufs=8192"]);
    (command, prefix)
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        self.service.kill();
        // It removes its own files only when it ends regularly.
        let _ = std::fs::remove_dir_all(Path::new("/var/run/dpdk").join(&self.prefix));
    }
}
