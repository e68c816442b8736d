//! Taking turns.
//!
//! At each point, after one discarded round, every round measures each contestant once; the next round goes through
//! them the other way (A B, B A, A B, ...), so that neither a drift of the machine nor the state left by the previous
//! contestant favours one side.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::contestant::{Contestant, ContestantFacts, Sample};
use crate::error::BenchError;
use crate::peers::{Absent, reason};
use crate::plan::{BenchPlan, FramePath, Point};
use crate::stop::StopFlag;

/// A contestant that failed this often at a point, warm-up included, is not run again at that point.
const FAILURES_TOLERATED: usize = 2;

/// The contestants on one path.
#[derive(Default)]
pub struct PathContestants {
    /// Ringroad, the numerator of every ratio; several if several configurations are relevant.
    pub ours: Vec<Box<dyn Contestant>>,
    /// The peers.
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
    /// Peers that cannot take part, and why.
    pub absent: Vec<Absent>,
}

impl Contestants {
    /// A list without contestants.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The contestants on a path; `None` if there are none.
    #[must_use]
    pub fn field(&self, path: FramePath) -> Option<&PathContestants> {
        self.fields.get(&path)
    }

    /// The contestants on a path, mutable.
    pub fn field_mut(&mut self, path: FramePath) -> &mut PathContestants {
        self.fields.entry(path).or_default()
    }

    /// How long a plan will take with these contestants.
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

    /// Descriptions of the contestants on the plan's paths; complete after a run.
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
    /// No value, which differs from zero.
    Invalid { reason: String },
}

impl ContestantOutcome {
    /// The sample, if there is one.
    #[must_use]
    pub fn sample(&self) -> Option<&Sample> {
        match self {
            Self::Valid(sample) => Some(sample),
            Self::Invalid { .. } => None,
        }
    }
}

/// A contestant's turns at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointSeries {
    pub contestant: String,
    /// Whether it is Ringroad.
    pub ours: bool,
    /// One outcome per round, in the order of the rounds.
    pub outcomes: Vec<ContestantOutcome>,
}

impl PointSeries {
    /// The rate of each round, absent if the sample is invalid.
    #[must_use]
    pub fn rates_fps(&self) -> Vec<Option<f64>> {
        self.outcomes.iter().map(|outcome| outcome.sample().map(|sample| sample.frames_per_second)).collect()
    }
}

/// All turns at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointResult {
    pub point: Point,
    /// The contestants, Ringroad first.
    pub series: Vec<PointSeries>,
}

/// Events of a run, for a display.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunEvent<'a> {
    /// A point begins.
    Point {
        point: &'a Point,
        /// Number of points done.
        done: usize,
        /// Number of points in all.
        total: usize,
    },
    /// A contestant's turn is over.
    Turn {
        point: &'a Point,
        contestant: &'a str,
        /// The round, from 0; `None` for the discarded one.
        round: Option<u32>,
        /// Its result.
        outcome: &'a ContestantOutcome,
    },
}

impl fmt::Display for RunEvent<'_> {
    /// One line, for a log or a progress bar.
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

/// Measurements of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// The points, the last one possibly incomplete if the run was stopped.
    pub points: Vec<PointResult>,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
}

/// Runs a plan.
///
/// A contestant that fails has an invalid sample and the run continues; a raised `stop` ends the run with the results
/// so far.
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

/// The run was stopped.
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
                        // An implausible sample is due to the moment, not to the contestant.
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
