//! How a load's frames lie in time.

use serde::{Deserialize, Serialize};

use super::rate_spec::{RateError, RateSpec};

/// Longest burst, frames.
pub const MAX_BURST_FRAMES: u32 = 1_000_000_000;

/// How frames of a load follow each other at a given rate.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LoadShape {
    /// Evenly.
    #[default]
    Constant,
    /// With exponentially distributed gaps of the same mean: a Poisson process.
    Poisson {
        /// Where the random numbers begin; the same seed makes the same gaps.
        #[serde(default)]
        seed: u64,
    },
    /// In bursts.
    Bursts {
        /// Frames of each burst, 1 to [`MAX_BURST_FRAMES`].
        frames: u32,
        /// Pause behind each burst, ns; the rate then holds within the bursts. Without it frames of a burst leave as
        /// fast as they go, and the bursts so far apart that the rate holds on average.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap_ns: Option<u64>,
    },
    /// From one rate to another, linearly in time, and on at the latter.
    Ramp {
        /// The rate at the start.
        from: RateSpec,
        /// How long the change takes, ns, above 0.
        over_ns: u64,
    },
}

impl LoadShape {
    /// The shape's name in definitions.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Poisson { .. } => "poisson",
            Self::Bursts { .. } => "bursts",
            Self::Ramp { .. } => "ramp",
        }
    }

    /// Checks the ranges.
    pub(super) fn check(&self) -> Result<(), RateError> {
        match *self {
            Self::Bursts { frames, .. } if !(1..=MAX_BURST_FRAMES).contains(&frames) => {
                Err(RateError::BurstFrames { frames })
            }
            Self::Bursts { gap_ns: Some(0), .. } => Err(RateError::NoTime { what: "bursts.gap_ns" }),
            Self::Ramp { over_ns: 0, .. } => Err(RateError::NoTime { what: "ramp.over_ns" }),
            _ => Ok(()),
        }
    }
}
