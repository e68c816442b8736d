//! A whole run, for `ringroad bench` and tests.

use std::path::Path;
use std::time::Duration;

use crate::contestant::CorePair;
use crate::contestants::Contestants;
use crate::error::BenchError;
use crate::facts::{MachineFacts, StealClock, allowed_cpus};
use crate::ours::{self, Programs};
use crate::peers;
use crate::plan::{BenchPlan, FramePath};
use crate::report::BenchReport;
use crate::runner::{RunEvent, run};
use crate::stop::StopFlag;
use crate::veth::Lab;

/// Run that is prepared but not begun.
pub struct BenchSession {
    plan: BenchPlan,
    contestants: Contestants,
    cores: CorePair,
    machine: MachineFacts,
    stop: StopFlag,
}

impl BenchSession {
    /// Examines the machine, finds the peers, and checks whether huge pages are available for them.
    ///
    /// `program` is a binary with the worker's command line ([`crate::worker`]); without it only the peers run, and not
    /// on interfaces. With one allowed CPU only the paths of null ports are measured; without root's rights no path
    /// over interfaces is measured. The report states both. Missing peers are not an error: the report names them, and
    /// how to add them.
    ///
    /// # Errors
    /// [`BenchError::TooFewCpus`] if the process may use no CPU, which cannot happen on Linux.
    pub fn prepare(plan: BenchPlan, program: Option<&Path>, stop: &StopFlag) -> Result<Self, BenchError> {
        let programs = program.map(Programs::beside);
        let mut session = Self::without_peers(plan, programs.as_ref(), stop, &allowed_cpus())?;
        peers::enter_installed(&mut session.contestants, programs.as_ref());
        Ok(session)
    }

    fn without_peers(
        mut plan: BenchPlan,
        programs: Option<&Programs>,
        stop: &StopFlag,
        cpus: &[usize],
    ) -> Result<Self, BenchError> {
        let machine = MachineFacts::gather();
        let mut contestants = Contestants::default();
        let cores = match (CorePair::lowest_of(cpus), cpus.first()) {
            (Ok(cores), _) => cores,
            (Err(error), Some(only)) => {
                plan = plan
                    .only(|path| matches!(path, FramePath::Null | FramePath::GenNull | FramePath::Cores(1)));
                contestants.leave_out("every path of two processors", error.with_causes());
                CorePair { first: *only, second: *only }
            }
            (Err(error), None) => return Err(error),
        };
        let too_many = |path: FramePath| path.cores() > cpus.len();
        if plan.points.iter().any(|point| too_many(point.path)) {
            plan = plan.only(|path| !too_many(path));
            contestants.leave_out("paths of more cores", format!("this process may use {} CPUs", cpus.len()));
        }
        if plan.points.iter().any(|point| point.path.has_interfaces())
            && let Err(error) = Lab::create(&[])
        {
            plan = plan.only(|path| !path.has_interfaces());
            contestants.leave_out("every path over network interfaces", error.with_causes());
        }
        if let Some(programs) = programs {
            ours::enter(&mut contestants, programs);
        }
        Ok(Self { plan, contestants, cores, machine, stop: stop.clone() })
    }

    /// Estimates the duration of the run.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        self.contestants.estimate(&self.plan)
    }

    /// Returns the planned measurements.
    #[must_use]
    pub fn plan(&self) -> &BenchPlan {
        &self.plan
    }

    /// Returns participants and missing contestants.
    #[must_use]
    pub fn contestants(&self) -> &Contestants {
        &self.contestants
    }

    /// Measures all points, or until the stop flag is raised.
    #[must_use]
    pub fn run(mut self, progress: &mut dyn FnMut(RunEvent<'_>)) -> BenchReport {
        let steal = StealClock::start();
        let result = run(&self.plan, &mut self.contestants, self.cores, &self.stop, progress);
        BenchReport::new(self.machine, steal.percent(), self.cores, self.plan, &self.contestants, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_leaves_the_null_floor_with_a_reason() {
        let session =
            BenchSession::without_peers(BenchPlan::full(), None, &StopFlag::default(), &[7]).unwrap();
        let on_one_core = [FramePath::Null, FramePath::GenNull, FramePath::Cores(1)];
        assert!(session.plan().points.iter().all(|point| on_one_core.contains(&point.path)));
        assert!(!session.plan().points.is_empty());
        assert!(session.contestants().absent.iter().any(|absent| absent.reason.contains("2 CPUs")));
    }

    #[test]
    fn a_session_stopped_at_once_reports_nothing() {
        let stop = StopFlag::default();
        let session = BenchSession::without_peers(BenchPlan::quick(), None, &stop, &[0, 1]).unwrap();
        stop.raise();
        let report = session.run(&mut |_| {});
        assert!(report.stopped);
        assert!(report.points.is_empty());
    }
}
