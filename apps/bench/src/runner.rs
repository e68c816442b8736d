//! Turns of the contestants.
//!
//! At each point, after one discarded round, every round measures each contestant once. The next round has the opposite
//! order (A B, B A, A B, ...), so that neither a drift of the machine nor the state left by the previous contestant
//! favours one side.

use std::fmt;

use serde::Serialize;

use crate::contestant::{CorePair, Sample};
use crate::contestants::Contestants;
use crate::error::BenchError;
use crate::plan::{BenchPlan, Point};
use crate::stop::StopFlag;

/// Maximum number of failures of a contestant at a point, warm-up included. Then it is not run again at that point.
const FAILURES_TOLERATED: usize = 2;

/// Result of one turn of a contestant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ContestantOutcome {
    /// A measurement that counts.
    Valid(Sample),
    /// No sample, which is not the same as zero.
    Invalid { reason: String },
}

impl ContestantOutcome {
    /// Returns the sample, if there is one.
    #[must_use]
    pub fn sample(&self) -> Option<&Sample> {
        match self {
            Self::Valid(sample) => Some(sample),
            Self::Invalid { .. } => None,
        }
    }
}

/// Turns of a contestant at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointSeries {
    pub contestant: String,
    /// Whether the contestant is Ringroad.
    pub ours: bool,
    /// Outcomes, one per round, in the order of the rounds.
    pub outcomes: Vec<ContestantOutcome>,
}

impl PointSeries {
    /// Returns the rate of each round, `None` for an invalid sample.
    #[must_use]
    pub fn rates_fps(&self) -> Vec<Option<f64>> {
        self.outcomes.iter().map(|outcome| outcome.sample().map(|sample| sample.frames_per_second)).collect()
    }
}

/// Turns of all contestants at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointResult {
    pub point: Point,
    /// Turns by contestant, Ringroad first.
    pub series: Vec<PointSeries>,
}

/// Progress of a run, for a display.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunEvent<'a> {
    /// The measurement of a point begins.
    Point {
        point: &'a Point,
        /// Number of finished points.
        done: usize,
        /// Number of all points.
        total: usize,
    },
    /// A contestant's turn is over.
    Turn {
        point: &'a Point,
        contestant: &'a str,
        /// Number of the round, from 0; `None` for the discarded round.
        round: Option<u32>,
        /// Result of the turn.
        outcome: &'a ContestantOutcome,
    },
}

impl fmt::Display for RunEvent<'_> {
    /// Formats one line, for a log or a progress bar.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Point { point, done, total } => write!(f, "[{}/{total}] {point}", done + 1),
            Self::Turn { contestant, round, outcome, .. } => {
                match round {
                    Some(round) => write!(f, "round {}: {contestant}: ", round + 1)?,
                    None => write!(f, "warm-up: {contestant}: ")?,
                }
                match outcome {
                    ContestantOutcome::Valid(sample) => {
                        write!(f, "{:.2} Mpps", sample.frames_per_second / 1e6)
                    }
                    ContestantOutcome::Invalid { reason } => write!(f, "invalid: {reason}"),
                }
            }
        }
    }
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// Results by point; the last point can be incomplete if the run was stopped.
    pub points: Vec<PointResult>,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
}

/// Runs a plan.
///
/// If a contestant fails, its sample is invalid and the run continues. A raised `stop` ends the run with the results so
/// far.
pub fn run(
    plan: &BenchPlan,
    contestants: &mut Contestants,
    cores: CorePair,
    stop: &StopFlag,
    progress: &mut dyn FnMut(RunEvent<'_>),
) -> RunResult {
    let mut points = Vec::new();
    for (done, point) in plan.points.iter().enumerate() {
        if stop.is_raised() {
            return RunResult { points, stopped: true };
        }
        progress(RunEvent::Point { point, done, total: plan.points.len() });
        let field = contestants.fields.entry(point.path).or_default();
        let mut turns: Vec<_> = field
            .iter_mut()
            .map(|(ours, contestant)| {
                let name = contestant.name().into();
                (contestant, PointSeries { contestant: name, ours: *ours, outcomes: Vec::new() }, 0)
            })
            .collect();
        let mut stopped = false;
        'rounds: for round in std::iter::once(None).chain((0..plan.rounds).map(Some)) {
            let duration = if round.is_none() { plan.warm_up } else { plan.sample };
            let mut order: Vec<_> = turns.iter_mut().collect();
            if round.is_some_and(|round| round % 2 == 1) {
                order.reverse();
            }
            for (contestant, series, failures) in order {
                if stop.is_raised() {
                    stopped = true;
                    break 'rounds;
                }
                let turn = if *failures < FAILURES_TOLERATED {
                    contestant.measure(point, duration, cores, stop)
                } else {
                    Err(BenchError::KeepsFailing(FAILURES_TOLERATED))
                };
                let outcome = match turn {
                    Ok(sample) => ContestantOutcome::Valid(sample),
                    Err(BenchError::Stopped) => {
                        stopped = true;
                        break 'rounds;
                    }
                    Err(error) => {
                        // An implausible sample is caused by a disturbance, not by the contestant.
                        *failures += usize::from(!matches!(error, BenchError::Implausible(_)));
                        ContestantOutcome::Invalid { reason: error.with_causes() }
                    }
                };
                let contestant = &series.contestant;
                progress(RunEvent::Turn { point, contestant, round, outcome: &outcome });
                if round.is_some() {
                    series.outcomes.push(outcome);
                }
            }
        }
        let series = turns.into_iter().map(|(_, series, _)| series).collect();
        points.push(PointResult { point: *point, series });
        if stopped {
            return RunResult { points, stopped };
        }
    }
    RunResult { points, stopped: false }
}

#[cfg(test)]
mod tests;
