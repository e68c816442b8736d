//! A switch between two guests: what it takes to start one, and what there is to know of one that runs.

use std::any::Any;
use std::path::Path;

use ringroad_netdev::Namespace;

use crate::contestant::CorePair;
use crate::error::BenchError;
use crate::process::BenchProcess;
use crate::stop::StopFlag;

/// Where and with what a switch is started.
#[derive(Debug)]
pub(super) struct Ground<'a> {
    /// For sockets; goes with the turn.
    pub(super) folder: &'a Path,
    /// Guests on the first, switch on the second.
    pub(super) cores: CorePair,
    pub(super) stop: &'a StopFlag,
}

/// A switch that runs. It ends with the value.
pub(super) struct RunningSwitch {
    /// The guests' ports, as Ringroad names them.
    pub(super) ports: [String; 2],
    /// Where those are opened.
    pub(super) namespace: Namespace,
    /// The process whose time is the switch's; none where the kernel is the switch, whose time nobody counts apart.
    pub(super) process: Option<BenchProcess>,
    /// The command lines that made it.
    pub(super) commands: Vec<String>,
    /// What has to outlive the process.
    pub(super) _keep: Vec<Box<dyn Any>>,
}

/// A switch to be measured.
pub(super) trait GuestSwitch {
    /// Its name in tables.
    fn name(&self) -> &'static str;
    /// What it does with each frame, and what has to be known of the way to it.
    fn about(&self) -> &'static str;
    /// Starts it with two ports.
    fn start(&self, ground: &Ground<'_>) -> Result<RunningSwitch, BenchError>;
}
