//! A participant of a comparison, and the result of one turn.

use std::time::Duration;

use serde::Serialize;

use crate::error::BenchError;
use crate::plan::{FramePath, Point};
use crate::stop::StopFlag;

/// Largest relative difference between the measured and the configured interval of a valid sample.
const DURATION_TOLERANCE: f64 = 0.25;

/// Largest error of the clock around the counters in a valid sample, as a share of the interval.
const UNCERTAINTY_LIMIT: f64 = 0.02;

/// CPUs of a comparison, the same for every contestant.
///
/// The receiver or generator runs on the first, the sender or switch on the second; the null path uses only the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CorePair {
    /// CPU number of the receiver or generator.
    pub first: usize,
    /// CPU number of the sender or switch.
    pub second: usize,
}

impl CorePair {
    /// Returns the two lowest of the given CPUs.
    ///
    /// # Errors
    /// [`BenchError::TooFewCpus`]: fewer than two CPUs are given.
    pub fn lowest_of(cpus: &[usize]) -> Result<Self, BenchError> {
        match cpus {
            [first, second, ..] => Ok(Self { first: *first, second: *second }),
            _ => Err(BenchError::TooFewCpus { allowed: cpus.len() }),
        }
    }
}

/// Largest share of the interval, in a valid sample, that a process waited for its CPU. Above it the figure shows the
/// load by other programs.
pub(crate) const CPU_WAIT_LIMIT: f64 = 0.2;

/// Processor time of the program under test per counted frame.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuCost {
    /// Time in the program itself, ns.
    pub user_ns_per_frame: f64,
    /// Time in the kernel for the program, including interrupts meanwhile, ns.
    pub kernel_ns_per_frame: f64,
}

/// Result of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Frames per second that reached the end of the path, the sum of all directions.
    pub frames_per_second: f64,
    /// Frames per second of each direction (of each port, on the null path).
    pub directions_fps: Vec<f64>,
    /// Number of counted frames.
    pub frames: u64,
    /// Length of the interval in which the frames were counted, s.
    pub seconds: f64,
    /// Largest possible relative error caused by reading the clock and the counters at different times.
    pub clock_uncertainty: f64,
    /// Largest share of the interval in which one of the processes was ready to run but did not have its CPU. It shows
    /// how much other programs disturbed the sample.
    pub cpu_wait: Option<f64>,
    /// Frames that the receiver found missing or reordered; `None` if it does not check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_or_reordered_frames: Option<u64>,
    /// Ticks of the time-stamp counter per frame on the counting core, if the contestant counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_frame: Option<f64>,
    /// Frames per second that reached the program's receiving interface. Frames that the program did not count were
    /// dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_fps: Option<f64>,
    /// Cost per frame for the program under test, on the paths over interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cost: Option<CpuCost>,
}

impl Sample {
    /// Makes a sample from frames and seconds of each direction. Each direction has its own interval, since counters
    /// are read one after the other.
    #[must_use]
    pub fn of_directions(directions: &[(u64, f64)], clock_uncertainty: f64) -> Self {
        let directions_fps: Vec<f64> =
            directions.iter().map(|(frames, seconds)| *frames as f64 / seconds).collect();
        let seconds =
            directions.iter().map(|(_, seconds)| *seconds).sum::<f64>() / directions.len().max(1) as f64;
        Self {
            frames_per_second: directions_fps.iter().sum(),
            directions_fps,
            frames: directions.iter().map(|(frames, _)| *frames).sum(),
            seconds,
            clock_uncertainty,
            cpu_wait: None,
            lost_or_reordered_frames: None,
            cycles_per_frame: None,
            offered_fps: None,
            cpu_cost: None,
        }
    }

    /// Refuses an invalid sample: no frames in some direction, an interval far from the configured one, too uncertain a
    /// clock, or a CPU shared with other programs.
    ///
    /// # Errors
    /// [`BenchError::Implausible`] with the reason.
    pub fn checked(self, asked: Duration) -> Result<Self, BenchError> {
        let asked_seconds = asked.as_secs_f64();
        let reason =
            if self.frames == 0 || self.directions_fps.iter().any(|fps| !fps.is_finite() || *fps <= 0.0) {
                format!("a direction carried nothing ({:?} frames/s)", self.directions_fps)
            } else if (self.seconds - asked_seconds).abs() > asked_seconds * DURATION_TOLERANCE {
                format!("the interval was {:.3} s instead of {asked_seconds:.3} s", self.seconds)
            } else if self.clock_uncertainty > UNCERTAINTY_LIMIT {
                format!("the clock was uncertain by {:.1} %", self.clock_uncertainty * 100.0)
            } else if let Some(wait) = self.cpu_wait.filter(|wait| *wait > CPU_WAIT_LIMIT) {
                format!("other programs had its CPU for {:.0} % of the time", wait * 100.0)
            } else {
                return Ok(self);
            };
        Err(BenchError::Implausible(reason))
    }
}

/// Description of a contestant, for the report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContestantFacts {
    /// Name in tables.
    pub name: String,
    /// Product and version, where already known.
    pub version: Option<String>,
    /// Command lines of the latest sample, in the order of starting.
    pub commands: Vec<String>,
    /// Kind of memory: huge pages or not, and why not.
    pub memory: String,
    /// The work on each frame: payload written, copied, read.
    pub work_per_frame: &'static str,
    /// Description of how the frames are counted.
    pub counting: &'static str,
}

/// One side of a comparison.
///
/// Each turn starts all its processes and ends them. So the spread of the samples contains the spread of restarts, and
/// the next contestant has the cores to itself.
pub trait Contestant {
    /// Returns the name in tables.
    fn name(&self) -> &str;

    /// Returns the path on which the contestant is measured.
    fn path(&self) -> FramePath;

    /// Measures a point of the path for `duration`, after the start-up is complete.
    ///
    /// # Errors
    /// Any [`BenchError`]: the runner notes the sample as invalid. [`BenchError::Stopped`] ends the run.
    fn measure(
        &mut self,
        point: &Point,
        duration: Duration,
        cores: CorePair,
        stop: &StopFlag,
    ) -> Result<Sample, BenchError>;

    /// Returns the description, which is complete after the first sample.
    fn facts(&self) -> ContestantFacts;

    /// Returns the time of a turn in addition to the sample, for the estimate of a run.
    fn turn_overhead(&self) -> Duration;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_cores_needs_two_cpus() {
        assert_eq!(CorePair::lowest_of(&[2, 5, 7]).unwrap(), CorePair { first: 2, second: 5 });
        assert!(matches!(CorePair::lowest_of(&[2]), Err(BenchError::TooFewCpus { allowed: 1, .. })));
    }

    #[test]
    fn directions_add_up_over_their_own_intervals() {
        let sample = Sample::of_directions(&[(100, 1.0), (300, 2.0)], 0.0);
        assert_eq!(sample.frames, 400);
        assert_eq!(sample.directions_fps, [100.0, 150.0]);
        assert!((sample.frames_per_second - 250.0).abs() < 1e-9);
    }

    #[test]
    fn a_silent_direction_makes_the_sample_invalid_rather_than_slow() {
        let sample = Sample::of_directions(&[(100, 1.0), (0, 1.0)], 0.0);
        assert!(matches!(sample.checked(Duration::from_secs(1)), Err(BenchError::Implausible(_))));
    }

    #[test]
    fn a_stretched_interval_makes_the_sample_invalid() {
        let sample = Sample::of_directions(&[(100, 1.7)], 0.0);
        assert!(sample.clone().checked(Duration::from_secs(1)).is_err());
        assert!(sample.checked(Duration::from_millis(1700)).is_ok());
    }

    #[test]
    fn a_sample_without_its_cpu_for_a_quarter_of_the_time_is_invalid() {
        let waiting = |share| Sample { cpu_wait: Some(share), ..Sample::of_directions(&[(100, 1.0)], 0.0) };
        assert!(waiting(0.25).checked(Duration::from_secs(1)).is_err());
        assert!(waiting(0.05).checked(Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn an_uncertain_clock_makes_the_sample_invalid() {
        assert!(Sample::of_directions(&[(100, 1.0)], 0.05).checked(Duration::from_secs(1)).is_err());
    }
}
