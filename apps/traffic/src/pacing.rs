//! Schedule of frames.
//!
//! [`Departures`] computes when the next frame of a load should leave, from a [`RateSpec`] and a [`LoadShape`], on a
//! clock that the caller reads. Every time is computed from the start, so that errors do not add up. At a rate in bits,
//! each frame takes the time of its own length, as on a link.
//!
//! A late sender can catch up only to the *catch-up limit*. The schedule moves on by the lateness beyond this limit,
//! and the frames of that time are counted as skipped. So at a constant rate r, no more than r · T + 1 + catch-up limit
//! frames leave in any span of time T, whatever the caller's timing. Both the offered and the intended load are known.
//!
//! [`DepartureError`] measures the accuracy of the sender's own timing.

mod departure_error;
mod load_shape;
mod rate_spec;

use serde::Serialize;

pub use self::departure_error::{DepartureError, DepartureErrorReport, TimeDistribution};
pub use self::load_shape::{LoadShape, LoadShapeError, MAX_BURST_FRAMES};
pub use self::rate_spec::{RateError, RateSpec};
use crate::line_rate::{BitLayer, FCS_BYTES, FrameSize};
use crate::random::SplitMix64;

/// Default catch-up limit, frames, for sending from a thread that a stock kernel interrupts now and then.
pub const DEFAULT_CATCH_UP_FRAMES: u32 = 2048;

/// Time before a frame is due for which the sender stays awake, ns: more than a sleep is usually late by.
pub const AWAKE_NS: u64 = 100_000;

const NS_PER_S: f64 = 1e9;

/// The unit of a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RateUnit {
    Frame,
    Bit(BitLayer),
}

/// Departure times of the frames of one load. Times are nanoseconds of one monotonic clock.
#[derive(Debug, Clone)]
pub struct Departures {
    unit: RateUnit,
    timing: Timing,
    /// Intended frames/s for frames of the mean size; `None` is the maximum rate.
    mean_fps: Option<f64>,
    catch_up_ns: f64,
    origin_ns: u64,
    /// Time by which the schedule has moved on because the sender was late, ns.
    given_up_ns: f64,
    skipped_frames: f64,
    /// Due time of the next frame, ns after the origin, without `given_up_ns`.
    due_ns: f64,
    sent: u64,
}

/// Rule for the time of a frame, given the frames before it.
#[derive(Debug, Clone)]
enum Timing {
    /// All frames are due at once.
    Max,
    /// Each unit takes the same time. `units` have passed so far.
    Constant { ns_per_unit: f64, units: f64 },
    /// The time between frames is exponentially distributed.
    Poisson { ns_per_unit: f64, random: SplitMix64 },
    /// Frames leave in bursts. `pause` sets the distance between bursts.
    Bursts { frames: u32, left: u32, ns_per_unit: f64, start_ns: f64, pause: Pause, units: f64 },
    /// The rate changes linearly from `from` to `to` units/ns within `span_ns`, and then stays.
    Ramp { from: f64, to: f64, span_ns: f64, units: f64 },
}

#[derive(Debug, Clone, Copy)]
enum Pause {
    /// Time from the end of a burst's last frame to the next burst, ns.
    Gap(f64),
    /// Time for each unit of a burst, ns. The sum over a burst is the time from its start to the start of the next
    /// burst.
    PerUnit(f64),
}

/// Offered load and intended load.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct OfferedLoad {
    /// Time since the start, ns.
    pub elapsed_ns: u64,
    /// Frames due by now: sent, skipped and waiting frames. At the maximum rate, the frames sent.
    pub intended_frames: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Frames that will never be sent, because the sender was late by more than the catch-up limit.
    pub skipped_frames: u64,
}

impl OfferedLoad {
    /// Frames due by now and not sent: skipped or waiting.
    #[must_use]
    pub fn shortfall_frames(&self) -> u64 {
        self.intended_frames.saturating_sub(self.sent_frames)
    }

    /// The sum of loads that several senders offered side by side.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            elapsed_ns: self.elapsed_ns.max(other.elapsed_ns),
            intended_frames: self.intended_frames.saturating_add(other.intended_frames),
            sent_frames: self.sent_frames.saturating_add(other.sent_frames),
            skipped_frames: self.skipped_frames.saturating_add(other.skipped_frames),
        }
    }
}

impl Departures {
    /// Makes the schedule of frames whose mean length, without FCS, is `mean_slot_bytes`, at `rate` and in `shape`. The
    /// first frame is due at `origin_ns`. `share` is this sender's part of the rate: 1, or less if several send one
    /// load.
    ///
    /// # Errors
    /// [`RateError`] for a rate or shape outside its range.
    pub fn new(
        rate: &RateSpec,
        shape: &LoadShape,
        mean_slot_bytes: f64,
        share: f64,
        catch_up_frames: u32,
        origin_ns: u64,
    ) -> Result<Self, RateError> {
        let unit = rate.units_per_s()?.map_or(RateUnit::Frame, |(unit, _)| unit);
        let mean_units = unit.of(mean_slot_bytes);
        // Rates in units/ns; `None` is the maximum rate.
        let units_per_ns = |rate: &RateSpec| -> Result<Option<f64>, RateError> {
            let Some((given, rate)) = rate.units_per_s()? else { return Ok(None) };
            let units_per_s =
                if given == unit { rate } else { rate / given.of(mean_slot_bytes) * mean_units };
            Ok(Some(units_per_s * share / NS_PER_S))
        };
        let full = units_per_ns(rate)?;
        let timing = Timing::new(shape, full, &units_per_ns)?;
        let mean_fps = timing.mean_units_per_ns(full, mean_units).map(|units| units / mean_units * NS_PER_S);
        Ok(Self {
            unit,
            timing,
            mean_fps,
            catch_up_ns: mean_fps.map_or(f64::INFINITY, |fps| f64::from(catch_up_frames) / fps * NS_PER_S),
            origin_ns,
            given_up_ns: 0.0,
            skipped_frames: 0.0,
            due_ns: 0.0,
            sent: 0,
        })
    }

    /// Intended mean rate, frames/s of the mean length. The final rate of a ramp; `None` is the maximum rate.
    #[inline]
    #[must_use]
    pub fn intended_fps(&self) -> Option<f64> {
        self.mean_fps
    }

    /// Lateness of a sender up to which no frames are skipped, ns; endless at the maximum rate.
    #[must_use]
    pub fn catch_up_ns(&self) -> u64 {
        self.catch_up_ns as u64
    }

    /// Start of the schedule, ns.
    #[inline]
    #[must_use]
    pub fn origin_ns(&self) -> u64 {
        self.origin_ns
    }

    /// Begins again at `origin_ns`, with nothing sent. The random numbers continue.
    pub fn restart(&mut self, origin_ns: u64) {
        (self.origin_ns, self.given_up_ns, self.skipped_frames) = (origin_ns, 0.0, 0.0);
        (self.due_ns, self.sent) = (0.0, 0);
        self.timing.restart();
    }

    /// Due time of the next frame, ns of the caller's clock, rounded up.
    #[inline]
    #[must_use]
    pub fn next_due_ns(&self) -> u64 {
        let (due_ns, whole_ns) = (self.next_due(), self.next_due() as u64);
        // This rounding avoids `ceil`, which is a function call on the oldest processors.
        self.origin_ns.saturating_add(whole_ns).saturating_add(u64::from((whole_ns as f64) < due_ns))
    }

    /// Due time of the next frame, ns after the origin, with its fraction.
    #[inline]
    #[must_use]
    pub fn next_due(&self) -> f64 {
        self.due_ns + self.given_up_ns
    }

    /// Whether the next frame is due at `now_ns`. Skips the sender's lateness beyond the catch-up limit.
    #[inline]
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        let Some(elapsed_ns) = now_ns.checked_sub(self.origin_ns) else { return false };
        let late_ns = elapsed_ns as f64 - self.next_due();
        if late_ns > self.catch_up_ns {
            self.give_up(late_ns - self.catch_up_ns);
        }
        late_ns >= 0.0
    }

    #[cold]
    fn give_up(&mut self, span_ns: f64) {
        self.given_up_ns += span_ns;
        self.skipped_frames += span_ns * self.mean_fps.unwrap_or(0.0) / NS_PER_S;
    }

    /// Makes the next frame due `span_ns` later, for loads without a rate: a capture file sets the distance of its
    /// frames.
    #[inline]
    pub fn postpone(&mut self, span_ns: f64) {
        self.due_ns += span_ns;
    }

    /// Records that the next frame left. The frame has `slot_bytes` bytes, without FCS.
    #[inline]
    pub fn depart(&mut self, slot_bytes: usize) {
        self.sent += 1;
        let units = self.unit.of(slot_bytes as f64);
        self.timing.advance(units, &mut self.due_ns);
    }

    /// Records that `frames` frames of a load without a rate left; all its frames are due immediately.
    #[inline]
    pub fn depart_at_once(&mut self, frames: u32) {
        debug_assert!(self.mean_fps.is_none(), "a load with a rate has a time for each frame");
        self.sent += u64::from(frames);
    }

    /// Offered and intended load at `now_ns`.
    #[must_use]
    pub fn offered_load(&self, now_ns: u64) -> OfferedLoad {
        let elapsed_ns = now_ns.saturating_sub(self.origin_ns);
        let waiting = match self.mean_fps {
            Some(fps) if elapsed_ns as f64 >= self.next_due() && now_ns >= self.origin_ns => {
                1.0 + (elapsed_ns as f64 - self.next_due()) * fps / NS_PER_S
            }
            _ => 0.0,
        };
        let skipped = self.skipped_frames as u64;
        OfferedLoad {
            elapsed_ns,
            intended_frames: self.sent + skipped + waiting as u64,
            sent_frames: self.sent,
            skipped_frames: skipped,
        }
    }
}

impl RateUnit {
    /// Number of units of a frame of `slot_bytes`.
    #[inline]
    fn of(self, slot_bytes: f64) -> f64 {
        match self {
            Self::Frame => 1.0,
            // A link pads frames that are shorter than Ethernet's minimum.
            Self::Bit(layer) => {
                let shortest = f64::from(FrameSize::MIN.bytes() - FCS_BYTES);
                (slot_bytes.max(shortest) + f64::from(layer.bytes_over_slot())) * 8.0
            }
        }
    }
}

impl Timing {
    fn new(
        shape: &LoadShape,
        units_per_ns: Option<f64>,
        convert: &dyn Fn(&RateSpec) -> Result<Option<f64>, RateError>,
    ) -> Result<Self, RateError> {
        shape.check()?;
        Ok(match (shape, units_per_ns) {
            (LoadShape::Constant, None) => Self::Max,
            (LoadShape::Constant, Some(rate)) => Self::Constant { ns_per_unit: 1.0 / rate, units: 0.0 },
            (
                LoadShape::Poisson { .. } | LoadShape::Ramp { .. } | LoadShape::Bursts { gap_ns: None, .. },
                None,
            ) => {
                return Err(RateError::ShapeNeedsRate { shape: shape.name() });
            }
            (LoadShape::Poisson { seed }, Some(rate)) => {
                Self::Poisson { ns_per_unit: 1.0 / rate, random: SplitMix64::new(*seed) }
            }
            (LoadShape::Bursts { frames, gap_ns }, rate) => {
                let (ns_per_unit, pause) = match gap_ns {
                    Some(gap_ns) => (rate.map_or(0.0, |rate| 1.0 / rate), Pause::Gap(*gap_ns as f64)),
                    None => (0.0, Pause::PerUnit(rate.map_or(0.0, |rate| 1.0 / rate))),
                };
                Self::Bursts { frames: *frames, left: *frames, ns_per_unit, start_ns: 0.0, pause, units: 0.0 }
            }
            (LoadShape::Ramp { from, over_ns }, Some(to)) => {
                let from = convert(from)?.ok_or(RateError::ShapeNeedsRate { shape: shape.name() })?;
                Self::Ramp { from, to, span_ns: *over_ns as f64, units: 0.0 }
            }
        })
    }

    /// The mean rate, units/ns.
    fn mean_units_per_ns(&self, full: Option<f64>, mean_units: f64) -> Option<f64> {
        match *self {
            Self::Max => None,
            Self::Bursts { frames, ns_per_unit, pause: Pause::Gap(gap_ns), .. } => {
                let units = f64::from(frames) * mean_units;
                let period_ns = units * ns_per_unit + gap_ns;
                Some(units / period_ns)
            }
            _ => full,
        }
    }

    fn restart(&mut self) {
        match self {
            Self::Max | Self::Poisson { .. } => {}
            Self::Constant { units, .. } | Self::Ramp { units, .. } => *units = 0.0,
            Self::Bursts { frames, left, start_ns, units, .. } => {
                (*left, *start_ns, *units) = (*frames, 0.0, 0.0);
            }
        }
    }

    /// Moves `due_ns` from a frame of `counted` units to the next frame.
    #[inline]
    fn advance(&mut self, counted: f64, due_ns: &mut f64) {
        match self {
            Self::Max => {}
            Self::Constant { ns_per_unit, units } => {
                *units += counted;
                *due_ns = *units * *ns_per_unit;
            }
            Self::Poisson { ns_per_unit, random } => *due_ns += counted * *ns_per_unit * random.exponential(),
            Self::Bursts { frames, left, ns_per_unit, start_ns, pause, units } => {
                *left -= 1;
                *units += counted;
                let sent_ns = *units * *ns_per_unit;
                if *left == 0 {
                    *start_ns += match *pause {
                        Pause::Gap(gap_ns) => sent_ns + gap_ns,
                        Pause::PerUnit(ns) => *units * ns,
                    };
                    (*left, *units, *due_ns) = (*frames, 0.0, *start_ns);
                } else {
                    *due_ns = *start_ns + sent_ns;
                }
            }
            Self::Ramp { from, to, span_ns, units } => {
                *units += counted;
                *due_ns = ramp_time(*from, *to, *span_ns, *units);
            }
        }
    }
}

/// Time at which `units` have passed, ns, if the rate changes linearly from `from` to `to` units/ns within `span_ns`,
/// and then stays.
#[inline]
fn ramp_time(from: f64, to: f64, span_ns: f64, units: f64) -> f64 {
    let on_the_ramp = (from + to) / 2.0 * span_ns;
    if units >= on_the_ramp {
        return span_ns + (units - on_the_ramp) / to;
    }
    // The solution of units = from·t + (to − from)·t² / (2·span) for t, in the form that does not cancel if to = from.
    let slope = (to - from) / span_ns;
    2.0 * units / (from + (from * from + 2.0 * slope * units).max(0.0).sqrt())
}

#[cfg(test)]
mod tests;
