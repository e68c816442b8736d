//! The error of a sender's timing.
//!
//! For each frame the sender records its due time and its departure. Two distributions follow. *Lateness* is the time
//! from a frame's due time to its departure. The *inter-departure error* is the difference, in either direction,
//! between the time from one departure to the next and the time between the two due times. A sender that hands frames
//! over in bursts has a large inter-departure error even if frames are not late on average.

use serde::Serialize;

use crate::meter::Distribution;

/// Timing error of one sender.
#[derive(Debug, Clone, Default)]
pub struct DepartureError {
    lateness: Distribution,
    inter_departure: Distribution,
    /// Due time and departure of the previous frame, ns after the origin.
    last: Option<(f64, f64)>,
}

/// Figures of a distribution of times, ns; percentiles to three significant digits.
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
    /// Number of recorded frames.
    pub frames: u64,
    /// Time from due time to departure.
    pub lateness: TimeDistribution,
    /// Deviation of the times between departures from the intended times, in either direction.
    pub inter_departure: TimeDistribution,
}

impl DepartureError {
    /// Records a frame due at `due_ns` that left at `left_ns`, both ns after the same moment.
    #[inline]
    pub fn record(&mut self, due_ns: f64, left_ns: f64) {
        self.lateness.record((left_ns - due_ns).max(0.0) as u64);
        if let Some((last_due_ns, last_left_ns)) = self.last {
            let error_ns = (left_ns - last_left_ns) - (due_ns - last_due_ns);
            self.inter_departure.record(error_ns.abs() as u64);
        }
        self.last = Some((due_ns, left_ns));
    }

    /// Begins a new sequence at the next frame: the time since the last departure is not recorded.
    pub fn pause(&mut self) {
        self.last = None;
    }

    /// Adds the records of another sender.
    pub fn merge(&mut self, other: &Self) {
        self.lateness.merge(&other.lateness);
        self.inter_departure.merge(&other.inter_departure);
    }

    /// The figures so far.
    #[must_use]
    pub fn report(&self) -> DepartureErrorReport {
        DepartureErrorReport {
            frames: self.lateness.count(),
            lateness: TimeDistribution::of(&self.lateness),
            inter_departure: TimeDistribution::of(&self.inter_departure),
        }
    }
}

impl TimeDistribution {
    fn of(times: &Distribution) -> Self {
        times.summary().map_or_else(Self::default, |times| Self {
            mean_ns: times.mean,
            p50_ns: times.p50,
            p99_ns: times.p99,
            max_ns: times.max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_counts_from_due_times_and_errors_between_departures() {
        let mut error = DepartureError::default();
        for (due, left) in [(0.0, 10.0), (100.0, 110.0), (200.0, 260.0), (300.0, 300.0)] {
            error.record(due, left);
        }
        let report = error.report();
        assert_eq!(report.frames, 4);
        assert_eq!((report.lateness.max_ns, report.lateness.mean_ns), (60, 20.0));
        // The differences are 100 − 100, 150 − 100 and 40 − 100.
        assert_eq!(report.inter_departure.max_ns, 60);
        assert!((report.inter_departure.mean_ns - 110.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_pause_is_not_a_pacing_error() {
        let mut error = DepartureError::default();
        error.record(0.0, 0.0);
        error.pause();
        error.record(10.0, 1_000_010.0);
        assert_eq!(error.report().inter_departure, TimeDistribution::default());
    }
}
