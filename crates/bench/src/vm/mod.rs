//! Switches between guests: Ringroad beside Open vSwitch, testpmd and the Linux bridge.
//!
//! ```text
//! v2v     guest ─ virtio-user ═ vhost-user ─ switch ─ vhost-user ═ virtio-user ─ guest
//!         └──────────────── one thread of ours on the first core ────────────────┘        switch on the second
//!
//! pvp     port 0 ─ virtio-user ═ vhost-user ─ switch ─ vhost-user ═ virtio-user ─ port 0 ┐
//!         port 1 ─ virtio-user ═ vhost-user ─ switch ─ vhost-user ═ virtio-user ─ port 1 ┘ testpmd
//!         └─ the same thread                  └─ one switch, ports in pairs       └─ the guest, on the third core or the first
//! ```
//!
//! The generator ([`generator`]) sends at a rate, both ways at once, and knows of each frame whether and when it came. Each *turn* ([`turn`]) starts one switch anew,
//! searches its throughput ([`search`]), and measures latency at half of that, the processor time of a frame, and what the switch costs without traffic.
//! Rounds go through the switches in turn, each the other way, and ratios are taken within a round ([`report`]).

use std::path::Path;
use std::rc::Rc;

use crate::error::BenchError;
use crate::facts::{MachineFacts, StealClock, allowed_cpus};
use crate::ours::Programs;
use crate::peers::testpmd::Installation;
use crate::peers::{Absent, reason};
use crate::stop::StopFlag;
use bridge::LinuxBridge;
use contestant::GuestSwitch;
use ovs::OvsSwitch;
use ringroad::RingroadSwitch;
use testpmd::TestpmdSwitch;

mod bridge;
mod contestant;
mod generator;
mod ovs;
pub mod plan;
pub mod report;
mod ringroad;
pub mod search;
mod testpmd;
mod testpmd_guest;
pub mod turn;

pub use plan::{Topology, VmCores, VmPlan};
pub use report::VmReport;

/// A switch that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// Ringroad's daemon, always first.
    Ringroad,
    /// Open vSwitch with DPDK.
    OvsDpdk,
    /// testpmd.
    Testpmd,
    /// The kernel's bridge.
    LinuxBridge,
}

impl SwitchKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ringroad, Self::OvsDpdk, Self::Testpmd, Self::LinuxBridge];
}

/// A comparison that is set up and not begun.
pub struct VmSession {
    plan: VmPlan,
    switches: Vec<Box<dyn GuestSwitch>>,
    absent: Vec<Absent>,
    /// The guest that forwards, where the topology has one.
    guest: Option<Rc<Installation>>,
    cores: VmCores,
    stop: StopFlag,
}

impl VmSession {
    /// Looks which of `wanted` are installed; `program` is one beside which the daemon is found. `shared_core` puts a guest that forwards on the generator's core.
    ///
    /// # Errors
    /// [`BenchError::TooFewCpus`], [`BenchError::NoCpuForGuest`]: generator, switch and guest need a core each. [`BenchError::PeerAbsent`]: the guest is testpmd.
    pub fn prepare(
        plan: VmPlan,
        wanted: &[SwitchKind],
        shared_core: bool,
        program: &Path,
        stop: &StopFlag,
    ) -> Result<Self, BenchError> {
        let cores = VmCores::lowest_of(&allowed_cpus(), plan.topology, shared_core)?;
        let guest = cores.guest.map(|_| Installation::find(stop)).transpose()?;
        let mut session =
            Self { plan, switches: Vec::new(), absent: Vec::new(), guest, cores, stop: stop.clone() };
        for kind in wanted {
            session.enter(*kind, program);
        }
        Ok(session)
    }

    fn enter(&mut self, kind: SwitchKind, program: &Path) {
        let entered: Result<Vec<Box<dyn GuestSwitch>>, (&str, BenchError)> = match kind {
            SwitchKind::Ringroad => {
                let programs = Programs::beside(program);
                Ok(vec![Box::new(RingroadSwitch { programs })])
            }
            SwitchKind::Testpmd => (self.guest.clone().map_or_else(|| Installation::find(&self.stop), Ok))
                .map(|installation| vec![Box::new(TestpmdSwitch { installation }) as Box<dyn GuestSwitch>])
                .map_err(|error| ("DPDK testpmd io", error)),
            SwitchKind::OvsDpdk => [false, true]
                .into_iter()
                .filter(|learns| !learns || self.plan.ovs_normal)
                .map(|learns| OvsSwitch::find(learns).map(|ovs| Box::new(ovs) as Box<dyn GuestSwitch>))
                .collect::<Result<_, _>>()
                .map_err(|error| ("OVS-DPDK", error)),
            SwitchKind::LinuxBridge => Ok(vec![Box::new(LinuxBridge)]),
        };
        match entered {
            Ok(switches) => self.switches.extend(switches),
            Err((name, error)) => self.absent.push(Absent { name: name.into(), reason: reason(&error) }),
        }
    }

    /// Measures everything, or until the stop flag is raised; `progress` is told of each turn in a line.
    #[must_use]
    pub fn run(self, progress: &mut dyn FnMut(&str)) -> VmReport {
        let (machine, steal) = (MachineFacts::gather(), StealClock::start());
        let mut turns: Vec<Vec<Result<turn::TurnOutcome, String>>> =
            self.switches.iter().map(|_| Vec::new()).collect();
        let mut stopped = false;
        'rounds: for round in 0..self.plan.repeat {
            let mut order: Vec<usize> = (0..self.switches.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for number in order {
                let (Some(switch), Some(turns)) = (self.switches.get(number), turns.get_mut(number)) else {
                    continue;
                };
                let outcome =
                    turn::measure(switch.as_ref(), &self.plan, self.cores, self.guest.as_deref(), &self.stop);
                if matches!(outcome, Err(BenchError::Stopped)) {
                    stopped = true;
                    break 'rounds;
                }
                let outcome = outcome.map_err(|error| reason(&error));
                progress(&format!("round {}: {}: {}", round + 1, switch.name(), report::in_a_line(&outcome)));
                turns.push(outcome);
            }
        }
        let contestants =
            self.switches.iter().zip(turns).map(|(switch, turns)| (switch.name(), switch.about(), turns));
        VmReport::new(self.plan, machine, steal.percent(), self.cores, stopped, self.absent, contestants)
    }
}
