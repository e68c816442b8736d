//! DPDK's testpmd at the other side of a socket: a program that passes frames from one of its ports to the next and back.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use ringroad_bench::hugepages::HugepageReserve;

use crate::service::Service;

/// Packet buffers and rings of a testpmd.
const MEBIBYTES: u64 = 256;
/// Pages of 2 MiB for that, and some for the regions of a daemon that takes them too.
const HUGE_PAGES: u64 = 280;

/// A running testpmd, killed with the value.
#[derive(Debug)]
pub struct Testpmd {
    service: Service,
    prefix: String,
}

/// Where its memory comes from.
#[derive(Debug)]
pub enum Memory {
    /// Ordinary pages.
    Ordinary,
    /// Pages of 2 MiB, reserved while this lives.
    Huge(HugepageReserve),
}

impl Memory {
    /// Huge pages; `None`, and the reason printed, where there are none to be had.
    #[must_use]
    pub fn huge() -> Option<Self> {
        HugepageReserve::of(HUGE_PAGES)
            .inspect_err(|error| eprintln!("skipped on huge pages: {error}"))
            .ok()
            .map(Self::Huge)
    }
}

impl Testpmd {
    /// Whether it is installed, and may be run.
    #[must_use]
    pub fn is_installed() -> bool {
        let runs = Path::new("/usr/bin/dpdk-testpmd").exists() && rustix::process::geteuid().is_root();
        if !runs {
            eprintln!("skipped: needs root and dpdk-testpmd (package dpdk)");
        }
        runs
    }

    /// Starts one with `devices`, DPDK's `--vdev` arguments, and `options` of testpmd's own, forwarding between each two of its ports.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn start(memory: &Memory, devices: &[String], options: &[&str]) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("ringroad{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--lcores", "0@0,1@1", "--no-pci", "--single-file-segments"]);
        command.args(match memory {
            Memory::Ordinary => ["--no-huge"],
            Memory::Huge(_) => ["--in-memory"],
        });
        command.args(["-m", &MEBIBYTES.to_string(), &format!("--file-prefix={prefix}")]);
        command.args(devices.iter().map(|device| format!("--vdev={device}")));
        command.args(["--", "--nb-cores=1", "--no-mlockall", "--total-num-mbufs=8192", "--forward-mode=io"]);
        command.arg("--stats-period=60").args(options);
        Self { service: Service::start(command), prefix }
    }

    /// Waits until it forwards. Its peers may not be connected then.
    ///
    /// # Panics
    /// Where it ends or waits for long without.
    pub fn await_forwarding(&mut self) {
        self.service.await_line("Port statistics");
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.service.is_running()
    }

    /// Kills it as a crash would, without a word to the other side.
    ///
    /// # Panics
    /// Where it had ended by itself.
    pub fn kill(mut self) {
        assert!(self.is_running(), "testpmd has ended by itself");
        self.service.kill();
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        self.service.kill();
        // It removes its own files only when it ends in peace.
        let _ = std::fs::remove_dir_all(Path::new("/var/run/dpdk").join(&self.prefix));
    }
}
