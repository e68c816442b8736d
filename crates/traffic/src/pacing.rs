//! When frames are due.
//!
//! A [`Pacer`] compares what a rate entitles to with what was sent, on a clock that the caller reads. Frame k (from 0)
//! of a rate r is due k / r after the start; computed from the start each time, so that errors do not add up (the count
//! is exact to one frame up to 2^51 frames).
//!
//! A sender that was held up may catch up only so far: of the frames due but unsent, no more than the *backlog limit*
//! are kept, the others are skipped for good and counted. Hence, whatever the caller's timing,
//!
//! - in any span of time T no more than r · T + 1 + backlog limit frames are sent, and from the start until time T no
//!   more than r · T + 1;
//! - sent + skipped + waiting = what the rate entitles to, so the load really offered is known.
//!
//! A caller that asks less often than the backlog limit lasts at the rate loses load: at 14.88 Mpps
//! [`DEFAULT_BACKLOG_FRAMES`] last 138 µs.

mod rate_spec;

use std::num::NonZeroU32;

use serde::Serialize;

pub use self::rate_spec::{RateError, RateSpec};
use crate::line_rate::FrameSize;

/// A backlog limit for sending from a thread that a stock kernel interrupts now and then, frames.
pub const DEFAULT_BACKLOG_FRAMES: NonZeroU32 = NonZeroU32::new(2048).unwrap();

const NS_PER_S: f64 = 1e9;

/// Says how many frames may be sent now. Times are nanoseconds of one monotonic clock.
#[derive(Debug, Clone)]
pub struct Pacer {
    /// Frames per nanosecond; none is as fast as it goes.
    frames_per_ns: Option<f64>,
    backlog_limit: u64,
    start_ns: u64,
    sent: u64,
    skipped: u64,
}

/// What was offered, and what should have been.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OfferedLoad {
    /// Time since the start, ns.
    pub elapsed_ns: u64,
    /// Frames due by now; those sent, if the rate is as fast as it goes.
    pub intended_frames: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Frames that will never be sent, because the sender was late by more than the backlog limit.
    pub skipped_frames: u64,
}

impl OfferedLoad {
    /// Frames due by now and not sent: skipped, or still waiting.
    #[must_use]
    pub fn shortfall_frames(&self) -> u64 {
        self.intended_frames.saturating_sub(self.sent_frames)
    }

    /// Frames/s really sent; 0 before any time has passed.
    #[must_use]
    pub fn sent_fps(&self) -> f64 {
        if self.elapsed_ns == 0 {
            return 0.0;
        }
        self.sent_frames as f64 * NS_PER_S / self.elapsed_ns as f64
    }
}

impl Pacer {
    /// Paces frames of `size` at `rate`, the first due at `start_ns`.
    ///
    /// # Errors
    /// [`RateError::Range`] if `rate` was made with values outside their ranges.
    pub fn new(
        rate: &RateSpec,
        size: FrameSize,
        backlog_limit_frames: NonZeroU32,
        start_ns: u64,
    ) -> Result<Self, RateError> {
        Ok(Self {
            frames_per_ns: rate.frame_rate_fps(size)?.map(|rate_fps| rate_fps / NS_PER_S),
            backlog_limit: u64::from(backlog_limit_frames.get()),
            start_ns,
            sent: 0,
            skipped: 0,
        })
    }

    /// How many frames may be sent at `now_ns`, at most `burst_limit`. What of them was sent, the caller tells by
    /// [`Self::record_sent`]; the rest stays due. Skips what exceeds the backlog limit. None are due before the start.
    #[inline]
    pub fn due(&mut self, now_ns: u64, burst_limit: u32) -> u32 {
        let Some(entitled) = self.entitled(now_ns) else {
            return if now_ns < self.start_ns { 0 } else { burst_limit };
        };
        let waiting = entitled.saturating_sub(self.sent.saturating_add(self.skipped));
        let kept = waiting.min(self.backlog_limit);
        self.skipped += waiting - kept;
        u32::try_from(kept).map_or(burst_limit, |kept| kept.min(burst_limit))
    }

    /// Tells that `frames` of those due were sent.
    #[inline]
    pub fn record_sent(&mut self, frames: u32) {
        self.sent = self.sent.saturating_add(u64::from(frames));
    }

    /// When the next unsent frame is due, for a caller who would wait: ns of the same clock, possibly past; `None` if
    /// the rate is as fast as it goes. Right to the nanosecond or to one part in 2^52, whichever is more.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        let frame = self.sent.saturating_add(self.skipped);
        self.frames_per_ns.map(|rate| self.start_ns.saturating_add((frame as f64 / rate).ceil() as u64))
    }

    /// The account at `now_ns`.
    #[must_use]
    pub fn offered_load(&self, now_ns: u64) -> OfferedLoad {
        OfferedLoad {
            elapsed_ns: now_ns.saturating_sub(self.start_ns),
            intended_frames: self.entitled(now_ns).unwrap_or(self.sent),
            sent_frames: self.sent,
            skipped_frames: self.skipped,
        }
    }

    /// Frames due from the start until `now_ns`, both included; none before the start. `None` is as many as one likes.
    #[inline]
    fn entitled(&self, now_ns: u64) -> Option<u64> {
        let rate = self.frames_per_ns?;
        let Some(elapsed_ns) = now_ns.checked_sub(self.start_ns) else { return Some(0) };
        Some(((elapsed_ns as f64 * rate) as u64).saturating_add(1))
    }
}

#[cfg(test)]
mod tests;
