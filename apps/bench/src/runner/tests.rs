use std::cell::RefCell;
use std::rc::Rc;

use std::time::Duration;

use super::*;
use crate::contestant::{Contestant, ContestantFacts};
use crate::plan::FramePath;

/// Contestant that replays prepared rates and records its turns in a shared log.
struct Scripted {
    name: &'static str,
    rates: Vec<Option<f64>>,
    turns: usize,
    log: Rc<RefCell<Vec<&'static str>>>,
    stops: Option<StopFlag>,
}

impl Contestant for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    fn path(&self) -> FramePath {
        FramePath::Pipe
    }

    fn measure(
        &mut self,
        _: &Point,
        duration: Duration,
        _: CorePair,
        _: &StopFlag,
    ) -> Result<Sample, BenchError> {
        self.log.borrow_mut().push(self.name);
        let rate = self.rates.get(self.turns % self.rates.len()).copied().flatten();
        self.turns += 1;
        if let Some(stop) = &self.stops
            && self.turns == 3
        {
            stop.raise();
            return Err(BenchError::Stopped);
        }
        let rate = rate.ok_or(BenchError::DaemonAbsent)?;
        Sample::of_directions(&[((rate * duration.as_secs_f64()) as u64, duration.as_secs_f64())], 0.0)
            .checked(duration)
    }

    fn facts(&self) -> ContestantFacts {
        ContestantFacts { name: self.name.into(), ..ContestantFacts::default() }
    }

    fn turn_overhead(&self) -> Duration {
        Duration::from_millis(500)
    }
}

const CORES: CorePair = CorePair { first: 0, second: 1 };

struct Bench {
    plan: BenchPlan,
    contestants: Contestants,
    log: Rc<RefCell<Vec<&'static str>>>,
}

impl Bench {
    fn new(ours: Vec<Option<f64>>, peer: Vec<Option<f64>>) -> Self {
        let log = Rc::new(RefCell::new(Vec::new()));
        let mut contestants = Contestants::default();
        for (name, rates) in [("ours", ours), ("peer", peer)] {
            let scripted = Scripted { name, rates, turns: 0, log: Rc::clone(&log), stops: None };
            contestants.enter(name == "ours", scripted);
        }
        let plan = BenchPlan {
            points: vec![Point { path: FramePath::Pipe, frame_bytes: 64, burst_frames: 32 }],
            rounds: 4,
            sample: Duration::from_secs(1),
            warm_up: Duration::from_secs(1),
        };
        Self { plan, contestants, log }
    }

    fn run(&mut self) -> RunResult {
        run(&self.plan, &mut self.contestants, CORES, &StopFlag::default(), &mut |_| {})
    }
}

#[test]
fn rounds_alternate_and_every_other_one_goes_backwards_after_a_discarded_one() {
    let mut bench = Bench::new(vec![Some(10.0)], vec![Some(5.0)]);
    let result = bench.run();
    let order = ["ours", "peer", "ours", "peer", "peer", "ours", "ours", "peer", "peer", "ours"];
    assert_eq!(*bench.log.borrow(), order);
    assert_eq!(result.points[0].series[0].outcomes.len(), 4);
}

#[test]
fn outcomes_stay_in_the_order_of_the_rounds_although_turns_do_not() {
    let rates = |scale: f64| (0..5).map(|round| Some(scale * f64::from(round + 1))).collect();
    let result = Bench::new(rates(10.0), rates(100.0)).run();
    let series = &result.points[0].series;
    assert_eq!(series[0].rates_fps(), [Some(20.0), Some(30.0), Some(40.0), Some(50.0)]);
    assert_eq!(series[1].rates_fps(), [Some(200.0), Some(300.0), Some(400.0), Some(500.0)]);
}

#[test]
fn a_failure_is_an_invalid_sample_and_the_other_side_keeps_its_turns() {
    let result = Bench::new(vec![Some(10.0)], vec![Some(5.0), Some(5.0), None, Some(5.0), Some(5.0)]).run();
    let series = &result.points[0].series;
    assert_eq!(series[1].rates_fps(), [Some(5.0), None, Some(5.0), Some(5.0)]);
    assert!(series[0].rates_fps().iter().all(Option::is_some));
}

#[test]
fn a_contestant_that_keeps_failing_is_not_run_again_at_that_point() {
    let mut bench = Bench::new(vec![Some(10.0)], vec![None]);
    let result = bench.run();
    assert_eq!(bench.log.borrow().iter().filter(|name| **name == "peer").count(), FAILURES_TOLERATED);
    assert!(result.points[0].series[1].outcomes.iter().all(|outcome| outcome.sample().is_none()));
    assert_eq!(result.points[0].series[1].outcomes.len(), 4);
}

#[test]
fn a_contestant_with_an_implausible_sample_is_run_again() {
    let mut bench = Bench::new(vec![Some(10.0)], vec![Some(f64::NAN)]);
    bench.run();
    assert_eq!(bench.log.borrow().iter().filter(|name| **name == "peer").count(), 5);
}

#[test]
fn a_stop_in_mid_round_keeps_the_rounds_before_it() {
    let mut bench = Bench::new(vec![Some(10.0)], vec![Some(5.0)]);
    let stop = StopFlag::default();
    bench.contestants.fields.get_mut(&FramePath::Pipe).unwrap().pop();
    bench.contestants.enter(
        false,
        Scripted {
            name: "peer",
            rates: vec![Some(5.0)],
            turns: 0,
            log: Rc::clone(&bench.log),
            stops: Some(stop.clone()),
        },
    );
    let result = run(&bench.plan, &mut bench.contestants, CORES, &stop, &mut |_| {});
    assert!(result.stopped);
    // After warm-up and round 0, the peer stops the run in round 1 (in the opposite order) before Ringroad's turn.
    assert_eq!(result.points[0].series[0].rates_fps(), [Some(10.0)]);
    assert_eq!(result.points[0].series[1].rates_fps(), [Some(5.0)]);
}

#[test]
fn a_path_without_contestants_is_reported_empty_rather_than_left_out() {
    let mut bench = Bench::new(vec![Some(1.0)], vec![Some(1.0)]);
    bench.plan.points[0].path = FramePath::Switch;
    let result = bench.run();
    assert_eq!(result.points.len(), 1);
    assert!(result.points[0].series.is_empty());
}

#[test]
fn the_estimate_counts_every_contestant_in_every_round_and_the_warm_up() {
    let bench = Bench::new(vec![Some(1.0)], vec![Some(1.0)]);
    // Two contestants, 4 rounds and a warm-up of 1 s each, with an overhead of 0.5 s each turn.
    assert_eq!(bench.contestants.estimate(&bench.plan), Duration::from_secs(15));
}
