//! `ringroad bench vm`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ringroad_bench::BenchError;
use ringroad_bench::vm::{self, SwitchKind, VmPlan, VmSession};

use super::{stop_by_signal, write_report};
use crate::failure::Failure;
use crate::output::Output;

/// Measure switches between guests: Ringroad beside OVS-DPDK, DPDK's testpmd and the Linux bridge
///
/// One thread on the first core, the generator, sends frames at a rate on each of two virtio-user ports, receives on the other, and knows which came and when. The
/// switch has the second core. With topology v2v the generator is two guests of one switch; with pvp a third core has a guest, DPDK's testpmd, through which the frames
/// come back. Of each switch are found: the highest rate without loss (binary search), latencies at half of that, processor time for each frame,
/// and processor time without traffic. Each turn starts the switch anew; ratios are taken within a round. Peers need the Debian packages dpdk-dev and
/// openvswitch-switch-dpdk; OVS and the bridge need root. What is not installed is left out and named.
#[derive(Debug, Args)]
pub(super) struct BenchVm {
    /// What stands between the generator's two ports
    #[arg(long, value_enum, default_value = "v2v")]
    topology: Topology,
    /// With pvp: put the guest on the generator's core, where there are too few; then no goal is judged
    #[arg(long)]
    shared_core: bool,
    /// All sizes of RFC 2544 instead of 64 and 1518 bytes
    #[arg(long, conflicts_with = "size")]
    full: bool,
    /// Frame sizes, FCS included
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(64..=1518))]
    size: Vec<u32>,
    /// Compare these switches only, and Ringroad
    #[arg(long, value_enum, value_name = "SWITCH", value_delimiter = ',')]
    switch: Vec<Switch>,
    /// Turns of each switch
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Length of a trial, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    trial: f64,
    /// Share of the frames that may be lost, such as 0.00001
    #[arg(long, value_name = "RATIO", default_value_t = 0.0)]
    loss: f64,
    /// Measure OVS with action NORMAL too, in which it learns addresses
    #[arg(long)]
    ovs_normal: bool,
    /// Write the JSON report to this file as well
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What stands between the generator's two ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Topology {
    /// The switch: both ports are guests
    V2v,
    /// The switch, a guest that forwards, and the switch again
    Pvp,
}

/// A peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    OvsDpdk,
    Testpmd,
    LinuxBridge,
}

impl BenchVm {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let usage = |message: String| Failure::usage(message, "");
        let trial = Duration::try_from_secs_f64(self.trial)
            .ok()
            .filter(|trial| (0.01..=60.0).contains(&trial.as_secs_f64()))
            .ok_or_else(|| usage(format!("--trial {}: choose from 0.01 to 60", self.trial)))?;
        if !(0.0..1.0).contains(&self.loss) {
            return Err(usage(format!("--loss {}: choose from 0 to less than 1", self.loss)));
        }
        if self.shared_core && self.topology == Topology::V2v {
            return Err(usage("--shared-core: only --topology pvp has a guest to share a core".into()));
        }
        let mut plan = if self.full { VmPlan::full() } else { VmPlan::default() };
        plan.topology = match self.topology {
            Topology::V2v => vm::Topology::V2v,
            Topology::Pvp => vm::Topology::Pvp,
        };
        if !self.size.is_empty() {
            plan.sizes_bytes.clone_from(&self.size);
        }
        plan.repeat = self.repeat;
        plan.trial = trial;
        plan.loss_ratio = self.loss;
        plan.ovs_normal = self.ovs_normal;
        let wanted: Vec<SwitchKind> = if self.switch.is_empty() {
            SwitchKind::ALL.to_vec()
        } else {
            let peers = self.switch.iter().map(|switch| match switch {
                Switch::OvsDpdk => SwitchKind::OvsDpdk,
                Switch::Testpmd => SwitchKind::Testpmd,
                Switch::LinuxBridge => SwitchKind::LinuxBridge,
            });
            std::iter::once(SwitchKind::Ringroad).chain(peers).collect()
        };
        let stop = stop_by_signal()?;
        let failed = |error: BenchError| {
            let advice = match error {
                BenchError::NoCpuForGuest { .. } => {
                    "--shared-core puts the guest on the generator's, and then no goal is judged"
                }
                _ => "",
            };
            Failure::new(error.to_string(), advice)
        };
        let program = std::env::current_exe()
            .map_err(|error| Failure::new(format!("finding this program: {error}"), ""))?;
        let session = VmSession::prepare(plan, &wanted, self.shared_core, &program, &stop).map_err(failed)?;
        let report = session.run(&mut |line| output.note(line));
        let json =
            || report.to_json().map_err(|error| Failure::new(format!("writing the report: {error}"), ""));
        write_report(self.report.as_deref(), json)?;
        output.line(&if output.is_json() { json()? } else { report.to_table() })
    }
}
