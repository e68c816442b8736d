//! A turn of a contestant: its processes start, frames flow, the counters are read twice, the processes end.

use std::path::Path;
use std::time::{Duration, Instant};

use ringroad_netdev::Namespace;

use crate::contestant::{Contestant, ContestantFacts, CorePair, CpuCost, Sample};
use crate::error::BenchError;
use crate::hugepages::HugepageReserve;
use crate::plan::{FramePath, InterfaceWork, Point};
use crate::process::{BenchProcess, PATIENCE, ProcessorTime, ThreadTimes, cpu_wait_share};
use crate::reading::{PathCounts, Reading};
use crate::sockets::socket_folder;
use crate::stop::StopFlag;
use crate::veth::{ARRIVAL, END, ENTRANCE, Lab, Wiring};

/// Time between polls of a counter until it begins to increase; there is no event for that.
const FLOW_CHECK: Duration = Duration::from_millis(5);

/// Time to start a worker.
pub(crate) const WORKER_START_UP: Duration = Duration::from_millis(150);

/// Time between the first frame and the start of a sample.
pub(crate) const SETTLE: Duration = Duration::from_millis(200);

/// Task of the programs in a turn.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    /// Path, frame size and burst.
    pub point: Point,
    pub cores: CorePair,
    /// CPU of the program under test, on a path over interfaces.
    pub cpu: usize,
    /// Namespace of the interfaces.
    pub namespace: &'a Namespace,
    /// Interfaces: the receiving interface, then the sending interface; none on other paths.
    pub interfaces: &'a [&'static str],
    /// A private folder, removed with the turn.
    pub folder: &'a Path,
    /// Flag that ends every wait.
    pub stop: &'a StopFlag,
}

impl Task<'_> {
    /// Returns the first interface.
    pub(crate) fn interface(&self) -> &'static str {
        self.interfaces.first().copied().unwrap_or_default()
    }
}

/// Reads the counters at the end of the path, if necessary by a query of the turn's first process.
pub(crate) type FrameCounter = Box<dyn FnMut(&mut BenchProcess, &StopFlag) -> Result<PathCounts, BenchError>>;

/// Part of a turn's daemon in the work on frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DaemonPart {
    /// It carries no frames, or its processor does not matter.
    None,
    /// It carries the frames on a processor of its own.
    Carries,
    /// It carries the frames on the processor of the first process, which does not count as waiting meanwhile.
    SharesProcessor,
}

/// The processes of a turn, and the counter. Dropping it ends the processes, then returns what they used.
pub(crate) struct Turn {
    /// The program under test, or the first of several.
    pub first: BenchProcess,
    /// Other processes that work on the frames.
    pub others: Vec<BenchProcess>,
    /// Counters of the first of these processes, if each process counts its own frames.
    pub other_counters: Vec<FrameCounter>,
    pub daemon: Option<(BenchProcess, DaemonPart)>,
    /// Counter of a program that receives; not used on paths at whose end the kernel counts.
    pub counter: FrameCounter,
    /// Product and version, if the processes report it.
    pub version: Option<String>,
    /// Kind of memory, if the processes report it.
    pub memory: Option<String>,
    /// Huge pages, which are returned after the processes have ended.
    pub _pages: Vec<HugepageReserve>,
    /// Interfaces, and the work of the program under test on their frames, if the kernel's counters show it.
    pub lab: Option<(Lab, Option<InterfaceWork>)>,
}

impl Turn {
    /// Makes the turn of one process.
    pub(crate) fn of(first: BenchProcess, counter: FrameCounter) -> Self {
        Self {
            first,
            others: Vec::new(),
            other_counters: Vec::new(),
            daemon: None,
            counter,
            version: None,
            memory: None,
            _pages: Vec::new(),
            lab: None,
        }
    }

    /// Returns the command lines in the order of starting.
    pub(crate) fn commands(&self) -> Vec<String> {
        let daemon = self.daemon.iter().map(|(daemon, _)| daemon);
        let processes = daemon.chain([&self.first]).chain(&self.others);
        processes.map(|process| process.command().to_owned()).collect()
    }

    /// Waits until frames flow, and for a settling time. Then counts frames for `duration`.
    pub(crate) fn measure(&mut self, duration: Duration, stop: &StopFlag) -> Result<Sample, BenchError> {
        self.settle(stop)?;
        self.sample(duration, stop)
    }

    /// Waits until frames flow, and for a settling time.
    pub(crate) fn settle(&mut self, stop: &StopFlag) -> Result<(), BenchError> {
        let began = Instant::now();
        while self.count(stop)?.directions.iter().any(|reading| reading.frames == 0) {
            self.check_running()?;
            if began.elapsed() > PATIENCE {
                return Err(self.first.not_ready("pass a frame on"));
            }
            stop.pass(FLOW_CHECK)?;
        }
        stop.pass(SETTLE)
    }

    /// Counts frames for `duration`.
    pub(crate) fn sample(&mut self, duration: Duration, stop: &StopFlag) -> Result<Sample, BenchError> {
        let start = self.snapshot(stop)?;
        stop.pass(duration)?;
        Ok(start.until(&self.snapshot(stop)?))
    }

    fn count(&mut self, stop: &StopFlag) -> Result<PathCounts, BenchError> {
        match &self.lab {
            Some((lab, Some(InterfaceWork::Tx | InterfaceWork::Gen))) => {
                Ok(vec![lab.arrived(ARRIVAL)?].into())
            }
            Some((lab, Some(InterfaceWork::Io))) => Ok(vec![lab.arrived(END)?].into()),
            Some((_, Some(InterfaceWork::Rx) | None)) | None => {
                let mut counts = (self.counter)(&mut self.first, stop)?;
                for (process, counter) in self.others.iter_mut().zip(&mut self.other_counters) {
                    counts.add(counter(process, stop)?);
                }
                Ok(counts)
            }
        }
    }

    /// Checks that no process has ended: the kernel's counters would not show that.
    fn check_running(&mut self) -> Result<(), BenchError> {
        for process in std::iter::once(&mut self.first).chain(&mut self.others) {
            if process.has_ended() {
                return Err(process.exited());
            }
        }
        Ok(())
    }

    fn snapshot(&mut self, stop: &StopFlag) -> Result<Snapshot, BenchError> {
        let offered = match &self.lab {
            Some((lab, Some(InterfaceWork::Rx | InterfaceWork::Io))) => Some(lab.arrived(ARRIVAL)?),
            _ => None,
        };
        let counts = self.count(stop)?;
        self.check_running()?;
        let first = match &self.daemon {
            Some((daemon, DaemonPart::SharesProcessor)) => self.first.thread_times_beside(daemon),
            _ => self.first.thread_times(),
        };
        let carriers = self.daemon.iter().filter(|(_, part)| *part == DaemonPart::Carries);
        let others = self.others.iter().chain(carriers.map(|(daemon, _)| daemon));
        let waits = std::iter::once(first).chain(others.map(BenchProcess::thread_times)).collect();
        let time = self.lab.as_ref().and_then(|_| self.first.processor_time());
        Ok(Snapshot { at: Instant::now(), counts, offered, time, waits })
    }

    /// Requests the end of all processes before waiting for any, so that they end together and not one grace period
    /// after another.
    fn ask_to_end(&mut self) {
        self.first.ask_to_end();
        self.others.iter_mut().for_each(BenchProcess::ask_to_end);
    }
}

/// Values of all counters at about one instant.
struct Snapshot {
    at: Instant,
    counts: PathCounts,
    /// Frames at the receiving interface of the program under test, if it has one.
    offered: Option<Reading>,
    time: Option<ProcessorTime>,
    waits: Vec<ThreadTimes>,
}

impl Snapshot {
    fn until(&self, end: &Self) -> Sample {
        let counted = self.counts.until(&end.counts);
        let per_frame = |seconds: f64| seconds * 1e9 / counted.frames.max(1) as f64;
        let offered = self.offered.zip(end.offered).map(|(start, end)| start.until(&end));
        Sample {
            cpu_wait: cpu_wait_share(&self.waits, &end.waits, end.at - self.at),
            cpu_cost: self.time.zip(end.time).map(|(start, end)| CpuCost {
                user_ns_per_frame: per_frame(end.user_seconds - start.user_seconds),
                kernel_ns_per_frame: per_frame(end.kernel_seconds - start.kernel_seconds),
            }),
            offered_fps: offered.map(|(frames, seconds)| frames as f64 / seconds),
            ..counted
        }
    }
}

/// Starts the processes of a task, and waits until they are ready.
pub(crate) type StartTurn = Box<dyn Fn(&Task<'_>) -> Result<Turn, BenchError>>;

/// Starts the source of frames of a task.
pub(crate) type StartSource = Box<dyn Fn(&Task<'_>) -> Result<BenchProcess, BenchError>>;

/// Contestant made of programs that start anew in each turn.
pub(crate) struct ProgramContestant {
    /// Name in tables.
    pub name: &'static str,
    pub path: FramePath,
    /// Description; on paths over interfaces without the method of counting.
    pub facts: ContestantFacts,
    pub start: StartTurn,
    /// Time to start the programs, for the estimate.
    pub start_up: Duration,
    /// Starts the program that sends to a program which receives from an interface.
    pub source: Option<StartSource>,
}

impl Contestant for ProgramContestant {
    fn name(&self) -> &str {
        self.name
    }

    fn path(&self) -> FramePath {
        self.path
    }

    fn measure(
        &mut self,
        point: &Point,
        duration: Duration,
        cores: CorePair,
        stop: &StopFlag,
    ) -> Result<Sample, BenchError> {
        let folder = socket_folder()?;
        let wiring = Wiring::of(self.path, cores);
        let lab = match wiring.pairs {
            [] => None,
            pairs => Some((Lab::create(pairs)?, wiring.work)),
        };
        let namespace = lab.as_ref().map_or(Namespace::Current, |(lab, _)| lab.namespace());
        let (cpu, interfaces) = (wiring.cpu, wiring.interfaces);
        let task = Task {
            point: *point,
            cores,
            cpu,
            namespace: &namespace,
            interfaces,
            folder: folder.path(),
            stop,
        };
        let mut turn = (self.start)(&task)?;
        if let (Some(cpu), Some(start_source)) = (wiring.source_cpu, &self.source) {
            turn.others.push(start_source(&Task { cpu, interfaces: &[ENTRANCE], ..task })?);
        }
        turn.lab = lab;
        self.facts.commands = turn.commands();
        self.facts.version = turn.version.take().or(self.facts.version.take());
        self.facts.memory = turn.memory.take().unwrap_or_else(|| std::mem::take(&mut self.facts.memory));
        let sample = turn.measure(duration, stop);
        turn.ask_to_end();
        sample?.checked(duration)
    }

    fn facts(&self) -> ContestantFacts {
        let counting = match self.path {
            FramePath::Veth(_, InterfaceWork::Rx) => {
                "by the program itself, queried at both ends of the interval"
            }
            FramePath::Veth(..) => {
                "frames arrived at the far interface, by the kernel's statistics at both ends of the interval"
            }
            _ => self.facts.counting,
        };
        ContestantFacts { counting, ..self.facts.clone() }
    }

    fn turn_overhead(&self) -> Duration {
        let has_source = matches!(self.path, FramePath::Veth(_, InterfaceWork::Rx | InterfaceWork::Io));
        SETTLE + self.start_up + if has_source { WORKER_START_UP } else { Duration::ZERO }
    }
}
