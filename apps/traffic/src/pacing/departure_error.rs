//! The error of a sender's timing.
//!
//! For each frame the sender records when it was due and when it left. Two distributions follow: *lateness*, how long
//! after its time a frame left, and the *inter-departure error*, how far the time between two frames that left one
//! after the other was from the time between their due times, in either direction. A sender that hands frames over in
//! bursts has a large inter-departure error even if frames are not late on average.

use hdrhistogram::Histogram;
use hdrhistogram::errors::CreationError;
use serde::Serialize;

/// Greatest recorded time, ns; larger ones count as this.
const LONGEST_NS: u64 = 1_000_000_000_000;

/// Collects departures of one sender.
#[derive(Debug, Clone)]
pub struct DepartureError {
    lateness: Histogram<u64>,
    inter_departure: Histogram<u64>,
    /// Due time and departure of the frame before, ns after the origin.
    last: Option<(f64, f64)>,
}

/// A distribution of times, ns: three significant digits.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct TimeDistribution {
    /// Mean, ns.
    pub mean_ns: f64,
    /// Median, ns.
    pub p50_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// Maximum, ns.
    pub max_ns: u64,
}

/// The error of a sender's timing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct DepartureErrorReport {
    /// Frames that the figures are of.
    pub frames: u64,
    /// How long after their time frames left.
    pub lateness: TimeDistribution,
    /// How far the times between departures were from those meant, whichever way.
    pub inter_departure: TimeDistribution,
}

impl DepartureError {
    /// Nothing recorded yet.
    ///
    /// # Errors
    /// Never for the bounds in use; they are the histogram's to check.
    pub fn new() -> Result<Self, CreationError> {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Ok(Self { lateness: histogram()?, inter_departure: histogram()?, last: None })
    }

    /// A frame due at `due_ns` left at `left_ns`, both ns after the same moment.
    #[inline]
    pub fn record(&mut self, due_ns: f64, left_ns: f64) {
        self.lateness.saturating_record((left_ns - due_ns).max(0.0) as u64);
        if let Some((last_due_ns, last_left_ns)) = self.last {
            let error_ns = (left_ns - last_left_ns) - (due_ns - last_due_ns);
            self.inter_departure.saturating_record(error_ns.abs() as u64);
        }
        self.last = Some((due_ns, left_ns));
    }

    /// The next frame starts a new sequence: the time since the last one is not recorded.
    pub fn pause(&mut self) {
        self.last = None;
    }

    /// Adds the records of another sender.
    pub fn merge(&mut self, other: &Self) {
        // The bounds are the same, so adding cannot fail.
        let _ = self.lateness.add(&other.lateness);
        let _ = self.inter_departure.add(&other.inter_departure);
    }

    /// The figures so far.
    #[must_use]
    pub fn report(&self) -> DepartureErrorReport {
        DepartureErrorReport {
            frames: self.lateness.len(),
            lateness: TimeDistribution::of(&self.lateness),
            inter_departure: TimeDistribution::of(&self.inter_departure),
        }
    }
}

impl TimeDistribution {
    /// The figures of a histogram in ns.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            mean_ns: histogram.mean(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_counts_from_due_times_and_errors_between_departures() {
        let mut error = DepartureError::new().unwrap();
        for (due, left) in [(0.0, 10.0), (100.0, 110.0), (200.0, 260.0), (300.0, 300.0)] {
            error.record(due, left);
        }
        let report = error.report();
        assert_eq!(report.frames, 4);
        assert_eq!((report.lateness.max_ns, report.lateness.mean_ns), (60, 20.0));
        // 100 − 100, 150 − 100, 40 − 100.
        assert_eq!(report.inter_departure.max_ns, 60);
        assert!((report.inter_departure.mean_ns - 110.0 / 3.0).abs() < 0.01);
    }

    #[test]
    fn a_pause_is_not_a_pacing_error() {
        let mut error = DepartureError::new().unwrap();
        error.record(0.0, 0.0);
        error.pause();
        error.record(10.0, 1_000_010.0);
        assert_eq!(error.report().inter_departure, TimeDistribution::default());
    }
}
