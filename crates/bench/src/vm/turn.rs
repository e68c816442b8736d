//! One turn of one switch: started, measured at every size, ended.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::contestant::{Ground, GuestSwitch, RunningSwitch};
use super::generator::{Generator, Trial, TrialOutcome};
use super::plan::{VmCores, VmPlan};
use super::search::ThroughputSearch;
use super::testpmd_guest::TestpmdGuest;
use crate::error::BenchError;
use crate::peers::testpmd::Installation;
use crate::process::{BenchProcess, cpu_wait_share};
use crate::sockets::socket_folder;
use crate::stop::StopFlag;

/// How often a rate is tried that lost frames: on a machine that others use too, one trial may be theirs.
const ATTEMPTS: u32 = 2;
/// A trial in which the generator was idle for less than this says what it can do rather than what the switch can.
const BUSY_GENERATOR: f64 = 0.02;

/// Latencies of a trial, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Half of the frames took no longer.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p999_us: f64,
}

/// What a turn came to at one frame size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeOutcome {
    /// Frame size in bytes, FCS included.
    pub frame_bytes: u32,
    /// Frames per second at which no more was lost than allowed, both directions together; `None` where every rate lost some.
    pub throughput_fps: Option<f64>,
    /// Frames per second that arrived when more was offered than it could carry.
    pub overload_fps: f64,
    /// Whether the generator had hardly a moment to spare then: the switch may be faster than this says.
    pub generator_was_the_limit: bool,
    /// Share of the time in which the generator had nothing to do at overload.
    pub generator_idle_share: f64,
    /// At half of the throughput; `None` where there is none, or the generator could not keep to that rate.
    pub latency: Option<Latency>,
    /// Processor time of the switch for each frame at the throughput, all of its threads, ns.
    pub cpu_ns_per_frame: Option<f64>,
    /// Share of the time in which the switch was ready to run and other programs had its processor: much of it makes all the rest worthless.
    pub cpu_wait: Option<f64>,
    /// Trials of the search.
    pub trials: u32,
}

/// The guest that forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GuestFacts {
    /// Product and version.
    pub version: Option<String>,
    /// Where its memory comes from.
    pub memory: String,
    /// Its command line.
    pub command: String,
    /// Frames that it took from its ports in the turn.
    pub frames: u64,
}

/// What a turn came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnOutcome {
    /// One for each size of the plan.
    pub sizes: Vec<SizeOutcome>,
    /// Processor time of the switch without traffic, percent of a core.
    pub idle_cpu_percent: Option<f64>,
    /// The guest that forwarded, where the topology has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestFacts>,
    /// The commands that made it.
    pub commands: Vec<String>,
}

/// Starts `switch`, and `guest` where the plan's topology has one that forwards, measures the switch, and ends both.
pub(super) fn measure(
    switch: &dyn GuestSwitch,
    plan: &VmPlan,
    cores: VmCores,
    guest: Option<&Installation>,
    stop: &StopFlag,
) -> Result<TurnOutcome, BenchError> {
    let folder = socket_folder()?;
    let ground = Ground { folder: folder.path(), topology: plan.topology, cores, stop };
    let running = switch.start(&ground)?;
    let mut guest = (guest.zip(cores.guest))
        .map(|(installation, cpu)| TestpmdGuest::start(installation, &ground, &running, cpu))
        .transpose()?;
    let generator =
        Generator::start(running.ports.clone(), running.namespace.clone(), cores.generator, stop)?;
    let mut sizes = Vec::new();
    for &frame_bytes in &plan.sizes_bytes {
        sizes.push(at_size(&running, &generator, plan, frame_bytes, stop)?);
    }
    let idle_cpu_percent = idle_cpu(&running, plan.idle, stop)?;
    let facts = guest.as_mut().map(|guest| guest.facts(generator.received())).transpose()?;
    // The generator goes first, as a guest's side of the sockets does when a machine ends, and the switch last.
    drop(generator);
    drop(guest);
    Ok(TurnOutcome { sizes, idle_cpu_percent, guest: facts, commands: running.commands.clone() })
}

fn at_size(
    running: &RunningSwitch,
    generator: &Generator,
    plan: &VmPlan,
    frame_bytes: u32,
    stop: &StopFlag,
) -> Result<SizeOutcome, BenchError> {
    let trial = |rate_fps| Trial { rate_fps, frame_bytes, duration: plan.trial, measures_latency: false };
    let times = || running.process.iter().map(BenchProcess::thread_times).collect::<Vec<_>>();
    let (began, times_before) = (Instant::now(), times());
    let overload = generator.run(&trial(None))?;
    let mut search = ThroughputSearch::up_to(overload.rate_fps(), plan.precision);
    let (mut trials, mut cpu_ns_per_frame) = (0, None);
    while let Some(rate) = search.next_rate() {
        let mut carried = false;
        for _ in 0..ATTEMPTS {
            stop.pass(Duration::ZERO)?;
            trials += 1;
            let before_ns = run_ns(running);
            let Some(outcome) = attempt(generator, &trial(Some(rate)))? else { continue };
            carried = outcome.loss_ratio() <= plan.loss_ratio;
            if carried {
                let spent_ns = run_ns(running).zip(before_ns).map(|(after, before)| after - before);
                cpu_ns_per_frame = spent_ns.map(|spent| spent as f64 / outcome.received.max(1) as f64);
                break;
            }
        }
        search.record(rate, carried);
    }
    let throughput_fps = search.throughput();
    let mut latency = None;
    if let Some(rate) = throughput_fps {
        let half = Trial { measures_latency: true, ..trial(Some(rate / 2.0)) };
        for _ in 0..ATTEMPTS {
            if let Some(outcome) = attempt(generator, &half)? {
                latency = latency_of(&outcome);
                break;
            }
        }
    }
    Ok(SizeOutcome {
        frame_bytes,
        throughput_fps,
        overload_fps: overload.rate_fps(),
        generator_was_the_limit: overload.idle_share < BUSY_GENERATOR,
        generator_idle_share: overload.idle_share,
        latency,
        cpu_ns_per_frame,
        cpu_wait: cpu_wait_share(&times_before, &times(), began.elapsed()),
        trials,
    })
}

/// Runs a trial; nothing came of it where the moment was bad for the generator, which says nothing of the switch.
fn attempt(generator: &Generator, trial: &Trial) -> Result<Option<TrialOutcome>, BenchError> {
    match generator.run(trial) {
        Err(BenchError::Implausible(_)) => Ok(None),
        outcome => outcome.map(Some),
    }
}

fn latency_of(outcome: &TrialOutcome) -> Option<Latency> {
    let histogram = outcome.latency_ns.as_ref().filter(|histogram| !histogram.is_empty())?;
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    Some(Latency { p50_us: at(0.5), p99_us: at(0.99), p999_us: at(0.999) })
}

fn run_ns(running: &RunningSwitch) -> Option<u64> {
    running.process.as_ref().map(|process| process.thread_times().run_ns())
}

fn idle_cpu(running: &RunningSwitch, duration: Duration, stop: &StopFlag) -> Result<Option<f64>, BenchError> {
    let Some(before_ns) = run_ns(running) else { return Ok(None) };
    let began = Instant::now();
    stop.pass(duration)?;
    let elapsed_ns = began.elapsed().as_nanos().max(1) as f64;
    Ok(run_ns(running).map(|after_ns| (after_ns - before_ns) as f64 / elapsed_ns * 100.0))
}
