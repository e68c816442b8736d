//! Reading of a counter that increases while it is read.

use std::time::{Duration, Instant};

use crate::contestant::Sample;
use crate::error::BenchError;

/// Number of frames of a counter at an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub frames: u64,
    /// Middle between query and reply.
    pub at: Instant,
    /// Time from query to reply: the count is of a moment in between.
    pub width: Duration,
}

impl Reading {
    /// Reads a counter by `ask`, and takes the time.
    pub(crate) fn of(ask: impl FnOnce() -> Result<u64, BenchError>) -> Result<Self, BenchError> {
        let asked = Instant::now();
        let frames = ask()?;
        let width = asked.elapsed();
        Ok(Self { frames, at: asked + width / 2, width })
    }

    /// Returns the frames counted from this reading to a later reading, and the seconds between the two.
    pub(crate) fn until(&self, end: &Self) -> (u64, f64) {
        let seconds = end.at.saturating_duration_since(self.at).as_secs_f64();
        (end.frames.saturating_sub(self.frames), seconds)
    }
}

/// Makes the sample between two readings of each direction's counter.
pub(crate) fn sample_between(start: &[Reading], end: &[Reading]) -> Sample {
    let mut uncertainty = 0.0_f64;
    let directions: Vec<(u64, f64)> = start
        .iter()
        .zip(end)
        .map(|(start, end)| {
            let (frames, seconds) = start.until(end);
            uncertainty = uncertainty.max((start.width + end.width).as_secs_f64() / 2.0 / seconds);
            (frames, seconds)
        })
        .collect();
    Sample::of_directions(&directions, uncertainty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(frames: u64, origin: Instant, at_ms: u64, width_ms: u64) -> Reading {
        Reading { frames, at: origin + Duration::from_millis(at_ms), width: Duration::from_millis(width_ms) }
    }

    #[test]
    fn each_counter_is_divided_by_its_own_interval() {
        let origin = Instant::now();
        let start = [reading(100, origin, 0, 1), reading(50, origin, 10, 1)];
        let end = [reading(1100, origin, 1000, 3), reading(2050, origin, 2010, 1)];
        let sample = sample_between(&start, &end);
        assert_eq!(sample.directions_fps, [1000.0, 1000.0]);
        assert!((sample.clock_uncertainty - 0.002).abs() < 1e-9);
    }
}
