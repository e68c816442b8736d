//! DPDK's testpmd as the other side of vhost-user sockets: a switch that passes frames from one port to the next and back.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A running testpmd, killed with the value.
#[derive(Debug)]
pub struct Testpmd {
    child: Child,
}

impl Testpmd {
    /// Whether it is installed.
    #[must_use]
    pub fn is_installed() -> bool {
        let found = Command::new("dpdk-testpmd").arg("--version").output().is_ok();
        if !found {
            eprintln!("skipped: dpdk-testpmd is not installed (package dpdk)");
        }
        found
    }

    /// As [`Self::with_memory`], in ordinary pages.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn start(folder: &Path, devices: &[String], options: &[&str]) -> Self {
        Self::with_memory(folder, &["--no-huge", "-m", "256"], devices, options)
    }

    /// Starts one with `devices`, DPDK's `--vdev` arguments, and `options` of testpmd's own, forwarding between each two of its ports; `memory` are DPDK's arguments for that.
    /// What it says goes to the file `testpmd.log` in `folder`.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn with_memory(folder: &Path, memory: &[&str], devices: &[String], options: &[&str]) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("ringroad{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let log = File::options().create(true).append(true).open(folder.join("testpmd.log")).unwrap();
        let child = Command::new("dpdk-testpmd")
            .args(["--lcores", "0@0,1@1", "--no-pci"])
            .args(memory)
            .arg(format!("--file-prefix={prefix}"))
            .args(devices.iter().map(|device| format!("--vdev={device}")))
            .args(["--", "--nb-cores=1", "--no-mlockall", "--total-num-mbufs=8192", "--forward-mode=io"])
            .arg("--stats-period=60")
            .args(options)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child }
    }

    /// Kills it as a crash would, without a word to the other side.
    ///
    /// # Panics
    /// Where it had ended by itself.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), None, "testpmd had ended before: see its log");
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
