//! Turns of the contestants.
//!
//! At each point, after one discarded round, every round measures each contestant once. The next round has the opposite
//! order (A B, B A, A B, ...), so that neither a drift of the machine nor the state left by the previous contestant
//! favours one side.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::contestant::{Contestant, ContestantFacts, Sample};
use crate::error::BenchError;
use crate::peers::{Absent, reason};
use crate::plan::{BenchPlan, FramePath, Point};
use crate::stop::StopFlag;

/// Maximum number of failures of a contestant at a point, warm-up included. Then it is not run again at that point.
const FAILURES_TOLERATED: usize = 2;

/// The contestants on one path.
#[derive(Default)]
pub struct PathContestants {
    /// Ringroad's contestants, the numerators of the ratios; several if several configurations are relevant.
    pub ours: Vec<Box<dyn Contestant>>,
    /// Contestants that Ringroad is compared with.
    pub peers: Vec<Box<dyn Contestant>>,
}

impl PathContestants {
    fn contestants(&mut self) -> Vec<(bool, &mut Box<dyn Contestant>)> {
        let ours = self.ours.iter_mut().map(|contestant| (true, contestant));
        ours.chain(self.peers.iter_mut().map(|contestant| (false, contestant))).collect()
    }

    fn iter(&self) -> impl Iterator<Item = &dyn Contestant> {
        self.ours.iter().chain(&self.peers).map(|contestant| &**contestant)
    }
}

/// The contestants of a run.
#[derive(Default)]
pub struct Contestants {
    fields: BTreeMap<FramePath, PathContestants>,
    /// Peers that cannot take part, with the reasons.
    pub absent: Vec<Absent>,
}

impl Contestants {
    /// Makes a list without contestants.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the contestants on a path; `None` if there are none.
    #[must_use]
    pub fn field(&self, path: FramePath) -> Option<&PathContestants> {
        self.fields.get(&path)
    }

    /// Returns the contestants on a path, to change them.
    pub fn field_mut(&mut self, path: FramePath) -> &mut PathContestants {
        self.fields.entry(path).or_default()
    }

    /// Estimates the duration of a plan with these contestants.
    #[must_use]
    pub fn estimate(&self, plan: &BenchPlan) -> Duration {
        let turns = |point: &Point| {
            self.field(point.path)
                .into_iter()
                .flat_map(PathContestants::iter)
                .map(|contestant| {
                    (plan.sample + contestant.turn_overhead()) * plan.rounds
                        + plan.warm_up
                        + contestant.turn_overhead()
                })
                .sum::<Duration>()
        };
        plan.points.iter().map(turns).sum()
    }

    /// Returns descriptions of the contestants on the plan's paths, which are complete after a run.
    #[must_use]
    pub fn facts(&self, plan: &BenchPlan) -> Vec<ContestantFacts> {
        let planned = |path: &FramePath| plan.points.iter().any(|point| point.path == *path);
        let fields = self.fields.iter().filter(|(path, _)| planned(path)).map(|(_, field)| field);
        fields.flat_map(PathContestants::iter).map(Contestant::facts).collect()
    }
}

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
    stop: &StopFlag,
    progress: &mut dyn FnMut(RunEvent<'_>),
) -> RunResult {
    let mut points = Vec::new();
    for (done, point) in plan.points.iter().enumerate() {
        if stop.is_raised() {
            return RunResult { points, stopped: true };
        }
        progress(RunEvent::Point { point, done, total: plan.points.len() });
        let mut turns = PointState::new(point, contestants.field_mut(point.path));
        let finished = turns.all(plan, stop, progress);
        points.push(PointResult { point: *point, series: turns.series });
        if finished.is_err() {
            return RunResult { points, stopped: true };
        }
    }
    RunResult { points, stopped: false }
}

/// Error of a stopped run.
struct Stopped;

/// The state of one point.
struct PointState<'a> {
    point: &'a Point,
    contestants: Vec<&'a mut Box<dyn Contestant>>,
    series: Vec<PointSeries>,
    failures: Vec<usize>,
}

impl<'a> PointState<'a> {
    fn new(point: &'a Point, field: &'a mut PathContestants) -> Self {
        let (ours, contestants): (Vec<bool>, Vec<_>) = field.contestants().into_iter().unzip();
        let series = contestants
            .iter()
            .zip(ours)
            .map(|(contestant, ours)| PointSeries {
                contestant: contestant.name().into(),
                ours,
                outcomes: Vec::new(),
            })
            .collect();
        let failures = vec![0; contestants.len()];
        Self { point, contestants, series, failures }
    }

    fn all(
        &mut self,
        plan: &BenchPlan,
        stop: &StopFlag,
        progress: &mut dyn FnMut(RunEvent<'_>),
    ) -> Result<(), Stopped> {
        self.round(None, plan.warm_up, stop, progress)?;
        for round in 0..plan.rounds {
            self.round(Some(round), plan.sample, stop, progress)?;
        }
        Ok(())
    }

    fn round(
        &mut self,
        round: Option<u32>,
        duration: Duration,
        stop: &StopFlag,
        progress: &mut dyn FnMut(RunEvent<'_>),
    ) -> Result<(), Stopped> {
        let mut turns: Vec<_> =
            self.contestants.iter_mut().zip(&mut self.series).zip(&mut self.failures).collect();
        if round.is_some_and(|round| round % 2 == 1) {
            turns.reverse();
        }
        for ((contestant, series), failures) in turns {
            if stop.is_raised() {
                return Err(Stopped);
            }
            let outcome = if *failures >= FAILURES_TOLERATED {
                ContestantOutcome::Invalid {
                    reason: format!("not run again after {FAILURES_TOLERATED} failures at this point"),
                }
            } else {
                match contestant.measure(self.point, duration) {
                    Ok(sample) => ContestantOutcome::Valid(sample),
                    Err(BenchError::Stopped) => return Err(Stopped),
                    Err(error) => {
                        // An implausible sample is caused by a disturbance, not by the contestant.
                        if !matches!(error, BenchError::Implausible(_)) {
                            *failures += 1;
                        }
                        ContestantOutcome::Invalid { reason: reason(&error) }
                    }
                }
            };
            progress(RunEvent::Turn {
                point: self.point,
                contestant: &series.contestant,
                round,
                outcome: &outcome,
            });
            if round.is_some() {
                series.outcomes.push(outcome);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
