//! The guest of topology pvp: DPDK's testpmd, which sends what comes at one of its two ports out at the other.

use super::contestant::{Ground, RunningSwitch};
use super::turn::GuestFacts;
use crate::error::BenchError;
use crate::hugepages::HugepageReserve;
use crate::peers::testpmd::{Installation, Launch, Testpmd};

/// A guest that runs. It ends with the value.
pub(super) struct TestpmdGuest<'a> {
    testpmd: Testpmd,
    command: String,
    installation: &'a Installation,
    /// Given back after the process is gone.
    _pages: Option<HugepageReserve>,
}

impl<'a> TestpmdGuest<'a> {
    /// Starts it on `cpu` at the ports that `running` has for it.
    pub(super) fn start(
        installation: &'a Installation,
        ground: &Ground<'_>,
        running: &RunningSwitch,
        cpu: usize,
    ) -> Result<Self, BenchError> {
        let pages = installation.lend_memory()?;
        let launch = Launch {
            role: "guest",
            cpu,
            plugin: None,
            devices: running.guest_devices.clone(),
            burst_frames: 32,
            mode: ["--forward-mode=io", "--txd=1024", "--rxd=1024"].map(String::from).to_vec(),
        };
        let (testpmd, command) = Testpmd::start(installation, &running.namespace, &launch, ground.folder)?;
        Ok(Self { testpmd, command, installation, _pages: pages })
    }

    /// What is known of it, after the generator has `received` frames.
    ///
    /// # Errors
    /// [`BenchError::Implausible`] where fewer passed the guest: then they took another way.
    pub(super) fn facts(&mut self, received: u64) -> Result<GuestFacts, BenchError> {
        let frames = self.testpmd.received(2)?;
        if frames < received {
            return Err(BenchError::Implausible(format!(
                "{received} frames came and {frames} of them passed the guest"
            )));
        }
        let facts = self.installation.facts();
        Ok(GuestFacts { version: facts.version, memory: facts.memory, command: self.command.clone(), frames })
    }
}
