//! DPDK's driver for SZE2 cards, as the tests load it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::service::Service;
use crate::testpmd::{Memory, Testpmd};

/// The driver, in a folder to which only root can write: DPDK loads no driver from other folders.
#[derive(Debug)]
pub struct SzedataPlugin {
    folder: TempDir,
}

impl SzedataPlugin {
    /// Finds the driver and copies it. Returns `None`, and prints the reason, if the driver is not built or testpmd
    /// cannot run.
    ///
    /// # Panics
    /// If the driver cannot be copied.
    #[must_use]
    pub fn find() -> Option<Self> {
        let Some(built) = std::env::var_os("RINGROAD_DPDK_PLUGIN").map(PathBuf::from) else {
            ringroad_test_needs::skip("the driver that `make e2e` names in RINGROAD_DPDK_PLUGIN");
            return None;
        };
        if !Testpmd::is_installed() {
            return None;
        }
        let folder = tempfile::Builder::new().prefix("ringroad-dpdk-").tempdir_in("/run").unwrap();
        for file in ["librte_net_szedata2.so", "libsze2.so.0", "hold"] {
            std::fs::copy(built.with_file_name(file), folder.path().join(file)).unwrap();
        }
        Some(Self { folder })
    }

    /// Path of the driver's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("librte_net_szedata2.so")
    }

    /// Starts a program that keeps the frames of the card at `path` as long as the test wants.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    pub fn keeper(&self, path: &Path, arguments: &str, options: &[&str]) -> FrameKeeper {
        let mut command = Command::new(self.folder.path().join("hold"));
        command.arg(format!("dev_path={}{arguments}", path.display())).args(options);
        let mut service = Service::start_interactive(command);
        service.await_line("ready");
        FrameKeeper(service)
    }

    /// Starts a testpmd with the cards at `paths`, in the forwarding mode `mode`.
    ///
    /// # Panics
    /// If testpmd cannot be started.
    #[must_use]
    pub fn testpmd(
        &self,
        memory: Memory,
        paths: &[&Path],
        arguments: &str,
        mode: &str,
        options: &[&str],
    ) -> Testpmd {
        let device = |(number, path): (usize, &&Path)| {
            format!("net_szedata2{number},dev_path={}{arguments}", path.display())
        };
        let devices: Vec<String> = paths.iter().enumerate().map(device).collect();
        let mode = format!("--forward-mode={mode}");
        Testpmd::interactive(
            memory,
            &["-d", &self.path().display().to_string()],
            &devices,
            &[&[mode.as_str()], options].concat(),
        )
    }
}

/// A running program of DPDK that keeps frames (`satellites/dpdk-szedata2/tests/hold.c`).
#[derive(Debug)]
pub struct FrameKeeper(Service);

/// A frame that the program has.
#[derive(Debug, PartialEq, Eq)]
pub struct KeptFrame {
    /// Whether it is still in the channel's buffer.
    pub is_external: bool,
    /// Time of its arrival, ns since the Unix epoch; 0 if the mbuf has none.
    pub time_ns: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl FrameKeeper {
    /// Has the program carry out a command without a result.
    ///
    /// # Panics
    /// If the program cannot.
    pub fn carry_out(&mut self, command: &str) {
        self.0.tell(command);
        self.0.await_line("done");
    }

    /// A kept frame.
    ///
    /// # Panics
    /// If it is not there.
    pub fn frame(&mut self, number: usize) -> KeptFrame {
        self.0.tell(&format!("show {number}"));
        let line = self.0.await_line("frame ");
        let [_, length, kind, time, bytes] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let byte = |at: usize| u8::from_str_radix(&bytes[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..bytes.len()).step_by(2).map(byte).collect();
        assert_eq!(length.parse(), Ok(bytes.len()));
        KeptFrame { is_external: kind == "external", time_ns: time.parse().unwrap(), bytes }
    }

    /// Features of the device, by DPDK's names.
    ///
    /// # Panics
    /// If the program does not report them.
    pub fn features(&mut self) -> BTreeSet<String> {
        self.0.tell("features");
        std::iter::from_fn(|| {
            let line = self.0.await_line("");
            (line != "done").then(|| line.strip_prefix("feature ").map(str::to_owned))
        })
        .flatten()
        .collect()
    }

    /// A number that the program reports: `clock`, `dropped`, or `count` with the name of a statistic.
    ///
    /// # Panics
    /// If it reports none.
    pub fn number(&mut self, command: &str) -> u64 {
        self.0.tell(command);
        let name = command.rsplit(' ').next().unwrap();
        self.0.await_line(name).rsplit(' ').next().unwrap().parse().unwrap()
    }
}
