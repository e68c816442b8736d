//! What a comparison of switches between guests measures.

use std::time::Duration;

use serde::Serialize;

use crate::plan::FRAME_SIZES_BYTES;

/// The sizes that decide, FCS included: where the cost of a frame shows, and where that of its bytes does.
const DECISIVE_SIZES_BYTES: [u32; 2] = [64, 1518];

/// What is measured, and how.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VmPlan {
    /// Frame sizes, FCS included.
    pub sizes_bytes: Vec<u32>,
    /// Turns of each switch.
    pub repeat: u32,
    /// Length of a trial.
    #[serde(rename = "trial_seconds", serialize_with = "crate::plan::as_seconds")]
    pub trial: Duration,
    /// Length of the look at a switch without traffic.
    #[serde(rename = "idle_seconds", serialize_with = "crate::plan::as_seconds")]
    pub idle: Duration,
    /// Share of the frames that a trial may lose.
    pub loss_ratio: f64,
    /// Width of the throughput found, as a share of it.
    pub precision: f64,
    /// Whether Open vSwitch is measured with action NORMAL too.
    pub ovs_normal: bool,
}

impl Default for VmPlan {
    fn default() -> Self {
        Self {
            sizes_bytes: DECISIVE_SIZES_BYTES.to_vec(),
            repeat: 3,
            trial: Duration::from_millis(500),
            idle: Duration::from_secs(1),
            loss_ratio: 0.0,
            precision: 0.05,
            ovs_normal: false,
        }
    }
}

impl VmPlan {
    /// With every size of RFC 2544.
    #[must_use]
    pub fn full() -> Self {
        Self { sizes_bytes: FRAME_SIZES_BYTES.to_vec(), ..Self::default() }
    }
}
