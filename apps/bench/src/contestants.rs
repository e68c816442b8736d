//! The contestants of a run, by path.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::contestant::{Contestant, ContestantFacts};
use crate::plan::{BenchPlan, FramePath};

/// A peer that cannot take part, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absent {
    pub name: String,
    /// Reason why it is missing, and how to add it.
    pub reason: String,
}

/// Whether a contestant is Ringroad, the numerator of the ratios; and the contestant.
type Entry = (bool, Box<dyn Contestant>);

/// The contestants of a run.
#[derive(Default)]
pub struct Contestants {
    /// Contestants by path, in the order of entering.
    pub(crate) fields: BTreeMap<FramePath, Vec<Entry>>,
    /// Peers that cannot take part, with the reasons.
    pub absent: Vec<Absent>,
}

impl Contestants {
    /// Adds a contestant to those on its path; `ours` says that it is Ringroad.
    pub fn enter(&mut self, ours: bool, contestant: impl Contestant + 'static) {
        self.fields.entry(contestant.path()).or_default().push((ours, Box::new(contestant)));
    }

    /// Records contestants that cannot take part.
    pub(crate) fn leave_out(&mut self, name: &str, reason: String) {
        self.absent.push(Absent { name: name.into(), reason });
    }

    /// Estimates the duration of a plan with these contestants.
    #[must_use]
    pub fn estimate(&self, plan: &BenchPlan) -> Duration {
        let contestants = plan.points.iter().filter_map(|point| self.fields.get(&point.path)).flatten();
        let turns = |overhead| (plan.sample + overhead) * plan.rounds + plan.warm_up + overhead;
        contestants.map(|(_, contestant)| turns(contestant.turn_overhead())).sum()
    }

    /// Returns descriptions of the contestants on the plan's paths, which are complete after a run.
    #[must_use]
    pub fn facts(&self, plan: &BenchPlan) -> Vec<ContestantFacts> {
        let planned = |path: &FramePath| plan.points.iter().any(|point| point.path == *path);
        let fields = self.fields.iter().filter(|(path, _)| planned(path));
        fields.flat_map(|(_, field)| field).map(|(_, contestant)| contestant.facts()).collect()
    }
}
