//! Offered rates as text.

use std::fmt;
use std::str::FromStr;

use ringroad_wire::serde_as_text;

use super::RateUnit;
use crate::line_rate::BitLayer;

/// A rate to offer.
///
/// ```text
/// rate   := "max" | frames | bits | NUMBER "%@" link
/// frames := NUMBER [ PREFIX ] ( "pps" | "fps" )
/// bits   := NUMBER [ PREFIX ] ( "bit/s" | "bit" | "bps" ) [ "L1" | "L2" ]
/// link   := bits, of which the unit may be left out
/// PREFIX := "k" | "M" | "G" | "T"        powers of 1000
/// ```
///
/// `14.88Mpps`, `10Gbit`, `1GbitL2`, `100%@10G`. Upper and lower case are the same. A rate needs its unit: `1M` may be
/// frames as well as bits. Bits count at L1, as a link's speed does, unless marked `L2`. A percentage refers to a
/// link's L1 rate and is at most 100. Rates are printed and serialised in the same grammar, and reading the text back
/// gives the same value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateSpec {
    /// The maximum rate.
    Max,
    /// A rate in frames/s.
    Frames {
        /// Rate, frames/s, finite and above 0.
        rate_fps: f64,
    },
    /// A rate in bit/s.
    Bits {
        /// Rate, bit/s, finite and above 0.
        rate_bps: f64,
        /// Selection of the bits that count.
        layer: BitLayer,
    },
    /// A share of a link's L1 rate.
    PercentOfLink {
        /// Percentage, above 0, at most 100.
        percent: f64,
        /// The link's nominal speed, bit/s (L1).
        link_bps: f64,
    },
}

/// Reason why a rate cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RateError {
    /// A number is missing.
    #[error("\"{text}\" is not a rate: begin with a number, like 1Mpps, 10Gbit or 100%@10G, or write max")]
    Number { text: String },
    /// The number is not followed by a unit.
    #[error("rate \"{text}\" has unknown unit \"{unit}\": use pps, or bit with L1 or L2, after k, M, G or T")]
    Unit {
        text: String,
        /// The text instead of a unit.
        unit: String,
    },
    /// The number has no unit, or only a prefix.
    #[error("rate \"{text}\" has no unit: write {text}pps for frames/s or {text}bit for bit/s")]
    UnitMissing { text: String },
    /// A percentage has no link speed.
    #[error("rate \"{text}\" does not name a link speed: write {text}@10G for a link of 10 Gbit/s")]
    LinkMissing { text: String },
    /// `%@` is not followed by a link speed.
    #[error("rate \"{text}\" is a share of \"{link}\", which is not a link speed: write it like 100%@10G")]
    Link {
        text: String,
        /// The text instead of a link speed.
        link: String,
    },
    /// The value cannot be offered.
    #[error("rate \"{text}\" is out of range: rates are above 0, and percentages at most 100")]
    Range { text: String },
    /// A shape that spreads frames in time has no rate.
    #[error(
        "shape {shape} spreads frames in time and cannot go as fast as possible: give a rate, like 1Mpps"
    )]
    ShapeNeedsRate {
        /// Name of the shape.
        shape: &'static str,
    },
    /// A burst has no frames, or too many.
    #[error("bursts.frames is {frames}: give 1 to {}", super::load_shape::MAX_BURST_FRAMES)]
    BurstFrames { frames: u32 },
    /// A span of time is empty.
    #[error("{what} is 0: give nanoseconds above 0")]
    NoTime {
        /// Name of the field.
        what: &'static str,
    },
}

/// Prefixes with their factors, the largest first; the last prefix is empty.
const PREFIXES: [(&str, f64); 5] = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)];

impl RateSpec {
    /// The rate as a number of frames or bits per second; `None` is the maximum rate.
    ///
    /// # Errors
    /// [`RateError::Range`] for values outside their ranges, which are possible in code but not in text.
    pub(super) fn units_per_s(&self) -> Result<Option<(RateUnit, f64)>, RateError> {
        let (unit, rate) = match *self {
            Self::Max => return Ok(None),
            Self::Frames { rate_fps } => (RateUnit::Frame, rate_fps),
            Self::Bits { rate_bps, layer } => (RateUnit::Bit(layer), rate_bps),
            Self::PercentOfLink { percent, .. } if percent > 100.0 => (RateUnit::Frame, f64::NAN),
            Self::PercentOfLink { percent, link_bps } => {
                (RateUnit::Bit(BitLayer::L1), percent / 100.0 * link_bps)
            }
        };
        if usable(rate) { Ok(Some((unit, rate))) } else { Err(RateError::Range { text: self.to_string() }) }
    }
}

fn usable(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

impl FromStr for RateSpec {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let given = || text.to_owned();
        if text.eq_ignore_ascii_case("max") {
            return Ok(Self::Max);
        }
        let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, unit) = text.split_at(digits);
        let number: f64 = number.parse().map_err(|_| RateError::Number { text: given() })?;
        if !usable(number) {
            return Err(RateError::Range { text: given() });
        }
        if PREFIXES.iter().any(|(prefix, _)| prefix.eq_ignore_ascii_case(unit)) {
            return Err(RateError::UnitMissing { text: given() });
        }
        if let Some(of) = unit.strip_prefix('%') {
            return percent_of_link(number, of, text);
        }
        let rate = with_unit(number, unit)
            .ok_or_else(|| RateError::Unit { text: given(), unit: unit.to_owned() })?;
        match rate {
            Self::Frames { rate_fps: value } | Self::Bits { rate_bps: value, .. } if !usable(value) => {
                Err(RateError::Range { text: given() })
            }
            rate => Ok(rate),
        }
    }
}

fn percent_of_link(percent: f64, of: &str, text: &str) -> Result<RateSpec, RateError> {
    if of.is_empty() {
        return Err(RateError::LinkMissing { text: text.to_owned() });
    }
    if percent > 100.0 {
        return Err(RateError::Range { text: text.to_owned() });
    }
    let digits = of.bytes().take_while(|byte| b"@.".contains(byte) || byte.is_ascii_digit()).count();
    let (speed, unit) = of.split_at(digits);
    let unit = if PREFIXES.iter().any(|(prefix, _)| !prefix.is_empty() && prefix.eq_ignore_ascii_case(unit)) {
        format!("{unit}bit")
    } else {
        unit.to_owned()
    };
    match speed.strip_prefix('@').map(|speed| format!("{speed}{unit}").parse()) {
        Some(Ok(RateSpec::Bits { rate_bps, layer: BitLayer::L1 })) => {
            Ok(RateSpec::PercentOfLink { percent, link_bps: rate_bps })
        }
        _ => Err(RateError::Link { text: text.to_owned(), link: of.trim_start_matches('@').to_owned() }),
    }
}

/// The rate of `number` with `unit`, which is not empty.
fn with_unit(number: f64, unit: &str) -> Option<RateSpec> {
    let unit = unit.to_ascii_lowercase();
    let (scale, kind) = PREFIXES.iter().find_map(|(prefix, scale)| {
        unit.strip_prefix(&prefix.to_ascii_lowercase()).map(|kind| (*scale, kind))
    })?;
    let value = number * scale;
    if matches!(kind, "pps" | "fps") {
        return Some(RateSpec::Frames { rate_fps: value });
    }
    let (kind, layer) = match kind.strip_suffix("l2") {
        Some(kind) => (kind, BitLayer::L2),
        None => (kind.strip_suffix("l1").unwrap_or(kind), BitLayer::L1),
    };
    matches!(kind, "bit" | "bit/s" | "bps").then_some(RateSpec::Bits { rate_bps: value, layer })
}

/// `value` with the largest prefix that gives the same value when read back.
fn prefixed(value: f64) -> String {
    PREFIXES
        .iter()
        .find(|(_, scale)| value >= *scale && value / scale * scale == value)
        .map_or_else(|| value.to_string(), |(prefix, scale)| format!("{}{prefix}", value / scale))
}

impl fmt::Display for RateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Max => f.write_str("max"),
            Self::Frames { rate_fps } => write!(f, "{}pps", prefixed(rate_fps)),
            Self::Bits { rate_bps, layer: BitLayer::L1 } => write!(f, "{}bit", prefixed(rate_bps)),
            Self::Bits { rate_bps, layer: BitLayer::L2 } => write!(f, "{}bitL2", prefixed(rate_bps)),
            Self::PercentOfLink { percent, link_bps } => write!(f, "{percent}%@{}bit", prefixed(link_bps)),
        }
    }
}

serde_as_text!(RateSpec);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pacing::{Departures, LoadShape};

    fn bits(rate_bps: f64) -> RateSpec {
        RateSpec::Bits { rate_bps, layer: BitLayer::L1 }
    }

    #[test]
    fn all_notations_of_rates_are_read() {
        for (text, rate) in [
            ("1Mpps", RateSpec::Frames { rate_fps: 1e6 }),
            ("500kpps", RateSpec::Frames { rate_fps: 500e3 }),
            ("14.88Mpps", RateSpec::Frames { rate_fps: 14.88 * 1e6 }),
            ("0.5fps", RateSpec::Frames { rate_fps: 0.5 }),
            ("10Gbit", bits(10e9)),
            ("1Gbit", bits(1e9)),
            ("1Tbit", bits(1e12)),
            ("9600bit/s", bits(9600.0)),
            ("100mbps", bits(100e6)),
            ("1GbitL1", bits(1e9)),
            ("1GbitL2", RateSpec::Bits { rate_bps: 1e9, layer: BitLayer::L2 }),
            ("MAX", RateSpec::Max),
            ("100%@10G", RateSpec::PercentOfLink { percent: 100.0, link_bps: 10e9 }),
            ("12.5%@25Gbit", RateSpec::PercentOfLink { percent: 12.5, link_bps: 25e9 }),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
    }

    #[test]
    fn faults_of_a_rate_are_named() {
        for (text, told) in [
            ("", "begin with a number"),
            ("fast", "begin with a number"),
            ("-1pps", "begin with a number"),
            ("1.2.3pps", "begin with a number"),
            ("inf", "begin with a number"),
            (".", "begin with a number"),
            ("1000", "write 1000pps for frames/s or 1000bit for bit/s"),
            ("1M", "write 1Mpps for frames/s or 1Mbit for bit/s"),
            ("1GL2", "unknown unit \"GL2\""),
            ("1Xpps", "unknown unit \"Xpps\""),
            ("1e6pps", "unknown unit \"e6pps\""),
            ("1 Mpps", "unknown unit \" Mpps\""),
            ("1GL3", "unknown unit \"GL3\""),
            ("1MppsL2", "unknown unit \"MppsL2\""),
            ("1Gé", "unknown unit \"Gé\""),
            ("0pps", "above 0"),
            ("0%@10G", "above 0"),
            ("101%@10G", "percentages at most 100"),
            ("100%", "write 100%@10G"),
            ("100%@", "\"\", which is not a link speed"),
            ("100%@1Mpps", "\"1Mpps\", which is not a link speed"),
            ("100%@1GL2", "which is not a link speed"),
            ("50%@50%@10G", "which is not a link speed"),
            ("100%10G", "which is not a link speed"),
        ] {
            let error = text.parse::<RateSpec>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
        assert_eq!(
            format!("{}pps", "9".repeat(400))
                .parse::<RateSpec>()
                .map_err(|error| matches!(error, RateError::Range { .. })),
            Err(true)
        );
        assert!(matches!(
            format!("{}Tpps", "9".repeat(308)).parse::<RateSpec>(),
            Err(RateError::Range { .. })
        ));
    }

    #[test]
    fn rates_are_printed_in_short_notation() {
        for text in ["1Mpps", "14.88Mpps", "0.5pps", "10Gbit", "1GbitL2", "max", "99.9%@10Gbit"] {
            assert_eq!(text.parse::<RateSpec>().map(|rate| rate.to_string()), Ok(text.to_owned()));
        }
    }

    /// Rate of the shortest frames, frames/s.
    fn frame_rate_fps(rate: &RateSpec) -> Result<Option<f64>, RateError> {
        Ok(Departures::new(rate, &LoadShape::Constant, 60.0, 1.0, 0, 0)?.intended_fps())
    }

    #[test]
    fn a_rate_means_frames_of_a_size() {
        let frame_rate = |text: &str| frame_rate_fps(&text.parse()?);
        assert_eq!(frame_rate("max"), Ok(None));
        assert_eq!(frame_rate("2kpps"), Ok(Some(2000.0)));
        assert_eq!(frame_rate("672kbit"), Ok(Some(1000.0)));
        assert_eq!(frame_rate("512kbitL2"), Ok(Some(1000.0)));
        assert_eq!(frame_rate("50%@672kbit"), Ok(Some(500.0)));
    }

    #[test]
    fn invalid_values_from_code_are_refused_when_used() {
        for value in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            for rate in [
                RateSpec::Frames { rate_fps: value },
                bits(value),
                RateSpec::PercentOfLink { percent: value, link_bps: 10e9 },
                RateSpec::PercentOfLink { percent: 50.0, link_bps: value },
            ] {
                assert!(matches!(frame_rate_fps(&rate), Err(RateError::Range { .. })), "{rate:?}");
            }
        }
        let above = RateSpec::PercentOfLink { percent: 100.1, link_bps: 10e9 };
        assert!(matches!(frame_rate_fps(&above), Err(RateError::Range { .. })));
    }

    fn positive() -> impl Strategy<Value = f64> {
        prop_oneof![
            1e-9..1e13f64,
            (1..10_000u32).prop_map(f64::from),
            (1..2000u32).prop_map(|n| f64::from(n) * 1e7)
        ]
    }

    proptest! {
        #[test]
        fn rates_round_trip_through_text(value in positive(), percent in 0.0001..=100.0f64) {
            for rate in [
                RateSpec::Frames { rate_fps: value },
                bits(value),
                RateSpec::Bits { rate_bps: value, layer: BitLayer::L2 },
                RateSpec::PercentOfLink { percent, link_bps: value },
            ] {
                prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            }
        }

        #[test]
        fn any_text_is_refused_or_gives_a_usable_rate(text in "[0-9]{0,3}[.]?[0-9]{0,2}[kMGTxé%]?(pps|bit|@)?.{0,3}") {
            if let Ok(rate) = text.parse::<RateSpec>() {
                prop_assert!(frame_rate_fps(&rate).is_ok(), "{}", text);
            }
        }
    }
}
