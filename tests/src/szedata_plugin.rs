//! DPDK's driver for SZE2 cards, as the tests load it.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

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
        for file in ["librte_net_szedata2.so", "libsze2.so.0"] {
            std::fs::copy(built.with_file_name(file), folder.path().join(file)).unwrap();
        }
        Some(Self { folder })
    }

    /// Path of the driver's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("librte_net_szedata2.so")
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
        Testpmd::interactive(memory, &self.path(), &devices, &[&[mode.as_str()], options].concat())
    }
}
