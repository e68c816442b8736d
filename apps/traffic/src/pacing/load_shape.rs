//! Spacing of a load's frames in time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::rate_spec::{RateError, RateSpec};

/// Longest burst, frames.
pub const MAX_BURST_FRAMES: u32 = 1_000_000_000;

/// Spacing of the frames of a load at a given rate.
///
/// ```text
/// shape := "constant" | "poisson" [ ":" SEED ] | "bursts:" FRAMES [ ":" TIME ] | "ramp:" RATE ":" TIME
/// TIME  := NUMBER ( "ns" | "us" | "ms" | "s" )
/// ```
///
/// This is the form for command lines. Definitions have tables: `{bursts = {frames = 32, gap_ns = 1000}}`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LoadShape {
    /// Equal distances.
    #[default]
    Constant,
    /// Exponentially distributed distances with the same mean: a Poisson process.
    Poisson {
        /// Seed of the random numbers. The same seed gives the same distances.
        #[serde(default)]
        seed: u64,
    },
    /// Bursts of frames.
    Bursts {
        /// Number of frames of each burst, 1 to [`MAX_BURST_FRAMES`].
        frames: u32,
        /// Pause after each burst, ns; the rate then applies within the bursts. Without a pause, the frames of a burst
        /// leave as fast as possible, and the distance of the bursts gives the mean rate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap_ns: Option<u64>,
    },
    /// Linear change from one rate to another, which then stays.
    Ramp {
        /// Rate at the start.
        from: RateSpec,
        /// Duration of the change, ns, above 0.
        over_ns: u64,
    },
}

/// The text is not a shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is not a shape: write constant, poisson, poisson:SEED, bursts:FRAMES, bursts:FRAMES:GAP or ramp:RATE:TIME, with times \
     like 500ns, 10us, 1ms, 2s"
)]
#[non_exhaustive]
pub struct LoadShapeError {
    pub text: String,
}

impl FromStr for LoadShape {
    type Err = LoadShapeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, values) = text.split_once(':').map_or((text, None), |(name, values)| (name, Some(values)));
        let shape = match (name, values) {
            ("constant", None) => Some(Self::Constant),
            ("poisson", None) => Some(Self::Poisson { seed: 0 }),
            ("poisson", Some(seed)) => seed.parse().ok().map(|seed| Self::Poisson { seed }),
            ("bursts", Some(values)) => bursts(values),
            ("ramp", Some(values)) => values.rsplit_once(':').and_then(|(rate, time)| {
                Some(Self::Ramp { from: rate.parse().ok()?, over_ns: time_ns(time)? })
            }),
            _ => None,
        };
        shape.ok_or_else(|| LoadShapeError { text: text.to_owned() })
    }
}

fn bursts(values: &str) -> Option<LoadShape> {
    let (frames, gap) = values.split_once(':').map_or((values, None), |(frames, gap)| (frames, Some(gap)));
    let gap_ns = match gap {
        Some(gap) => Some(time_ns(gap)?),
        None => None,
    };
    Some(LoadShape::Bursts { frames: frames.parse().ok()?, gap_ns })
}

fn time_ns(text: &str) -> Option<u64> {
    let (number, factor) = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)]
        .into_iter()
        .find_map(|(unit, factor)| text.strip_suffix(unit).map(|number| (number, factor)))?;
    let time_ns = number.parse::<f64>().ok()? * factor;
    (0.0..=1e18).contains(&time_ns).then_some(time_ns as u64)
}

impl fmt::Display for LoadShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Constant => f.write_str("constant"),
            Self::Poisson { seed } => write!(f, "poisson:{seed}"),
            Self::Bursts { frames, gap_ns: None } => write!(f, "bursts:{frames}"),
            Self::Bursts { frames, gap_ns: Some(gap_ns) } => write!(f, "bursts:{frames}:{gap_ns}ns"),
            Self::Ramp { from, over_ns } => write!(f, "ramp:{from}:{over_ns}ns"),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_round_trip_through_text() {
        let from = "1kpps".parse().unwrap();
        for (text, shape) in [
            ("constant", LoadShape::Constant),
            ("poisson:7", LoadShape::Poisson { seed: 7 }),
            ("bursts:32", LoadShape::Bursts { frames: 32, gap_ns: None }),
            ("bursts:32:1500ns", LoadShape::Bursts { frames: 32, gap_ns: Some(1500) }),
            ("ramp:1kpps:2000000000ns", LoadShape::Ramp { from, over_ns: 2_000_000_000 }),
        ] {
            assert_eq!(text.parse(), Ok(shape));
            assert_eq!(shape.to_string(), text);
        }
        assert_eq!("poisson".parse(), Ok(LoadShape::Poisson { seed: 0 }));
        assert_eq!("bursts:2:1.5us".parse(), Ok(LoadShape::Bursts { frames: 2, gap_ns: Some(1500) }));
        assert_eq!("ramp:1kpps:2s".parse(), Ok(LoadShape::Ramp { from, over_ns: 2_000_000_000 }));
        for text in [
            "",
            "flat",
            "constant:1",
            "poisson:x",
            "bursts",
            "bursts:x",
            "bursts:1:5",
            "ramp:1kpps",
            "ramp:x:1s",
        ] {
            assert!(text.parse::<LoadShape>().unwrap_err().to_string().contains("is not a shape"), "{text}");
        }
    }
}
