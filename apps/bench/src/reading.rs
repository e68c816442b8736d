//! Readings of counters that increase while they are read.

use std::time::{Duration, Instant};

use ringroad::monotonic_ns;

use crate::contestant::Sample;
use crate::error::BenchError;
use crate::worker::TimedCounts;

/// Number of frames of a counter at an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub frames: u64,
    /// The instant on the machine's monotonic clock, ns: the middle between query and reply, if the counter gives none.
    pub at_ns: u64,
    /// Time from query to reply: the count is of a moment in between.
    pub width: Duration,
}

impl Reading {
    /// Reads a counter by `ask`, and takes the time.
    pub(crate) fn of(ask: impl FnOnce() -> Result<u64, BenchError>) -> Result<Self, BenchError> {
        let (asked_ns, asked) = (monotonic_ns(), Instant::now());
        let frames = ask()?;
        let width = asked.elapsed();
        Ok(Self { frames, at_ns: asked_ns + width.as_nanos() as u64 / 2, width })
    }

    /// Returns the frames counted from this reading to a later reading, and the seconds between the two.
    pub(crate) fn until(&self, end: &Self) -> (u64, f64) {
        let seconds = Duration::from_nanos(end.at_ns.saturating_sub(self.at_ns)).as_secs_f64();
        (end.frames.saturating_sub(self.frames), seconds)
    }
}

/// Counters at the end of a path, read one after the other.
#[derive(Clone, Debug)]
pub(crate) struct PathCounts {
    /// Counter of each direction.
    pub directions: Vec<Reading>,
    /// Ticks of the time-stamp counter at the count, if the counting process reads it.
    pub ticks: Option<u64>,
    /// Number of frames missing or out of order so far, if the counting process checks for them.
    pub lost_or_reordered_frames: Option<u64>,
}

impl PathCounts {
    /// Adds the counts of another process, as further directions.
    pub(crate) fn add(&mut self, other: Self) {
        self.directions.extend(other.directions);
        self.lost_or_reordered_frames =
            self.lost_or_reordered_frames.zip(other.lost_or_reordered_frames).map(|(one, more)| one + more);
        // Ticks per frame are those of one core.
        self.ticks = None;
    }

    /// Makes the sample between these counts and later counts of the same counters.
    pub(crate) fn until(&self, end: &Self) -> Sample {
        let mut uncertainty = 0.0_f64;
        let directions: Vec<(u64, f64)> = self
            .directions
            .iter()
            .zip(&end.directions)
            .map(|(start, end)| {
                let (frames, seconds) = start.until(end);
                uncertainty = uncertainty.max((start.width + end.width).as_secs_f64() / 2.0 / seconds);
                (frames, seconds)
            })
            .collect();
        let sample = Sample::of_directions(&directions, uncertainty);
        let ticks = end.ticks.zip(self.ticks).map(|(end, start)| end.wrapping_sub(start));
        Sample {
            lost_or_reordered_frames: end.lost_or_reordered_frames,
            cycles_per_frame: ticks
                .filter(|_| sample.frames > 0)
                .map(|ticks| ticks as f64 / sample.frames as f64),
            ..sample
        }
    }
}

impl From<Vec<Reading>> for PathCounts {
    fn from(directions: Vec<Reading>) -> Self {
        Self { directions, ticks: None, lost_or_reordered_frames: None }
    }
}

impl From<TimedCounts> for PathCounts {
    fn from(counts: TimedCounts) -> Self {
        let TimedCounts { directions_frames, lost_or_reordered_frames, at_ns, ticks } = counts;
        let reading = |frames| Reading { frames, at_ns, width: Duration::ZERO };
        let directions = directions_frames.into_iter().map(reading).collect();
        Self { directions, ticks, lost_or_reordered_frames }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(frames: u64, at_ms: u64, width_ms: u64) -> Reading {
        Reading { frames, at_ns: at_ms * 1_000_000, width: Duration::from_millis(width_ms) }
    }

    #[test]
    fn each_counter_is_divided_by_its_own_interval() {
        let start = PathCounts::from(vec![reading(100, 0, 1), reading(50, 10, 1)]);
        let end = PathCounts::from(vec![reading(1100, 1000, 3), reading(2050, 2010, 1)]);
        let sample = start.until(&end);
        assert_eq!(sample.directions_fps, [1000.0, 1000.0]);
        assert!((sample.clock_uncertainty - 0.002).abs() < 1e-9);
        assert_eq!((sample.cycles_per_frame, sample.lost_or_reordered_frames), (None, None));
    }

    #[test]
    fn a_worker_s_counts_give_cycles_and_an_exact_interval() {
        let at = |frames, at_ns, ticks| {
            let lost_or_reordered_frames = Some(frames / 10);
            let directions_frames = vec![frames];
            PathCounts::from(TimedCounts {
                directions_frames,
                lost_or_reordered_frames,
                at_ns,
                ticks: Some(ticks),
            })
        };
        let sample = at(10, 0, 0).until(&at(30, 500_000_000, 80));
        assert_eq!((sample.frames_per_second, sample.clock_uncertainty), (40.0, 0.0));
        assert_eq!((sample.cycles_per_frame, sample.lost_or_reordered_frames), (Some(4.0), Some(3)));
        assert_eq!(at(10, 0, 0).until(&at(10, 1, 5)).cycles_per_frame, None, "no frame, no cost of it");
    }
}
