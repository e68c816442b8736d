//! Shared code of all contestants on virtual interfaces: the wiring, the source of frames, and the counters.
//!
//! ```text
//! tx   program ─► bench0═bench1                                counted: what arrives at bench1
//! gen  generator ─► bench0═bench1                              counted: what arrives at bench1
//! rx   source ─► bench0═bench1 ─► program                      counted: what the program says it received
//! io   source ─► bench0═bench1 ─► program ─► bench2═bench3     counted: what arrives at bench3
//! ```
//!
//! Every turn has its own namespace, interfaces and processes. The source is the same for all contestants: Ringroad's
//! sender over AF_XDP, at the maximum rate. Frames that reach bench1 and are not counted were dropped by the program
//! under test, or by the kernel because the program was too slow. A veth's receiving half runs on the core that sends
//! into it.

mod lab;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::contestant::{Contestant, ContestantFacts, CorePair, CpuCost, Sample};
use crate::error::BenchError;
use crate::plan::{FramePath, InterfaceWork, Mechanism, Point};
use crate::process::{BenchProcess, ProcessorTime, ThreadTimes, cpu_wait_share};
use crate::reading::{Reading, sample_between};
use crate::sockets::socket_folder;
use crate::stop::StopFlag;
pub use lab::Lab;

/// Interface on which the source sends, or the program that only sends.
const ENTRANCE: &str = "bench0";

/// Interface on which the program under test receives.
const ARRIVAL: &str = "bench1";

/// Interface on which the forwarding program sends.
const EXIT: &str = "bench2";

/// Interface at the end of the path, without a receiver.
const END: &str = "bench3";

/// Time limit for frames to begin to flow.
const FLOW_LIMIT: Duration = Duration::from_secs(60);

/// Time between polls of a counter until it begins to increase; there is no event for that.
const FLOW_CHECK: Duration = Duration::from_millis(5);

/// Time between the first frame and the start of a sample.
const SETTLE: Duration = Duration::from_millis(200);

/// Task of a program in a turn.
pub(crate) struct Task<'a> {
    /// Namespace of the interfaces.
    pub lab: &'a Lab,
    /// Mechanism of access to frames.
    pub mechanism: Mechanism,
    /// Work on the frames.
    pub flow: InterfaceWork,
    /// Interfaces: the receiving interface, then the sending interface.
    pub interfaces: &'a [&'static str],
    /// Frame size and burst.
    pub point: &'a Point,
    /// CPU of the program.
    pub cpu: usize,
    /// A private folder, removed with the turn.
    pub folder: &'a Path,
    /// Flag that ends every wait.
    pub stop: &'a StopFlag,
}

/// A program whose use of interfaces is measured.
pub(crate) trait InterfaceProgram {
    /// Returns the name in tables.
    fn name(&self) -> &str;

    /// Starts the program, and waits until it is ready.
    fn start(&mut self, task: &Task<'_>) -> Result<Box<dyn RunningProgram>, BenchError>;

    /// Returns the description for `flow`, with the commands of the latest start.
    fn facts(&self, flow: InterfaceWork) -> ContestantFacts;

    /// Returns the time to start the program, for the estimate.
    fn start_up(&self) -> Duration;
}

/// Started program. Dropping it ends the program.
pub(crate) trait RunningProgram {
    /// Starts the program's work, if it waits for that.
    fn begin(&mut self) -> Result<(), BenchError> {
        Ok(())
    }

    /// Returns the program's process.
    fn process(&mut self) -> &mut BenchProcess;

    /// Returns the scheduler's counters for the program.
    fn thread_times(&mut self) -> ThreadTimes {
        self.process().thread_times()
    }

    /// Returns the number of received frames, for programs that receive.
    fn received(&mut self, _stop: &StopFlag) -> Result<Reading, BenchError> {
        Err(BenchError::Implausible("the program does not count received frames".into()))
    }
}

/// Contestant made of a program on one path.
pub(crate) struct VethContestant {
    mechanism: Mechanism,
    flow: InterfaceWork,
    program: Box<dyn InterfaceProgram>,
    source: Box<dyn InterfaceProgram>,
    cores: CorePair,
    stop: StopFlag,
}

impl VethContestant {
    /// Makes a contestant of `program` doing `flow` over `mechanism`, with frames from `source`.
    pub(crate) fn new(
        mechanism: Mechanism,
        flow: InterfaceWork,
        program: Box<dyn InterfaceProgram>,
        source: Box<dyn InterfaceProgram>,
        cores: CorePair,
        stop: &StopFlag,
    ) -> Self {
        Self { mechanism, flow, program, source, cores, stop: stop.clone() }
    }

    fn path(&self) -> FramePath {
        FramePath::Veth(self.mechanism, self.flow)
    }

    /// Returns pairs of interfaces, the program's interfaces, its core and the source's core.
    fn wiring(&self) -> (&'static [[&'static str; 2]], &'static [&'static str], usize, usize) {
        let CorePair { first, second } = self.cores;
        match self.flow {
            InterfaceWork::Tx | InterfaceWork::Gen => (&[[ENTRANCE, ARRIVAL]], &[ENTRANCE], second, first),
            InterfaceWork::Rx => (&[[ENTRANCE, ARRIVAL]], &[ARRIVAL], first, second),
            InterfaceWork::Io => (&[[ENTRANCE, ARRIVAL], [EXIT, END]], &[ARRIVAL, EXIT], second, first),
        }
    }
}

/// The processes of a turn, and the counters.
struct VethRun<'a> {
    flow: InterfaceWork,
    lab: &'a Lab,
    program: Box<dyn RunningProgram>,
    source: Option<Box<dyn RunningProgram>>,
    stop: &'a StopFlag,
}

impl VethRun<'_> {
    fn measure(&mut self, duration: Duration) -> Result<Sample, BenchError> {
        self.program.begin()?;
        if let Some(source) = &mut self.source {
            source.begin()?;
        }
        self.await_flow()?;
        let start = self.snapshot()?;
        self.stop.pass(duration)?;
        let end = self.snapshot()?;
        Ok(sample(self.flow, &start, &end))
    }

    /// Waits until frames are counted, and for a settling time.
    fn await_flow(&mut self) -> Result<(), BenchError> {
        let began = Instant::now();
        while self.counted()?.frames == 0 {
            self.check_running()?;
            if began.elapsed() > FLOW_LIMIT {
                return Err(self.program.process().not_ready("pass a frame on", FLOW_LIMIT));
            }
            self.stop.pass(FLOW_CHECK)?;
        }
        self.stop.pass(SETTLE)
    }

    fn counted(&mut self) -> Result<Reading, BenchError> {
        match self.flow {
            InterfaceWork::Tx | InterfaceWork::Gen => self.lab.arrived(ARRIVAL),
            InterfaceWork::Rx => self.program.received(self.stop),
            InterfaceWork::Io => self.lab.arrived(END),
        }
    }

    /// Checks that no process has ended: the kernel's counters would not show that.
    fn check_running(&mut self) -> Result<(), BenchError> {
        for running in std::iter::once(&mut self.program).chain(&mut self.source) {
            if running.process().has_ended() {
                return Err(running.process().exited());
            }
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, BenchError> {
        self.check_running()?;
        let running = std::iter::once(&mut self.program).chain(&mut self.source);
        let waits = running.map(|running| running.thread_times()).collect();
        Ok(Snapshot {
            arrived: self.lab.arrived(ARRIVAL)?,
            counted: self.counted()?,
            time: self.program.process().processor_time(),
            waits,
        })
    }

    /// Requests the end of both processes before waiting for either, so that they end together and not one grace period
    /// after another.
    fn ask_to_end(&mut self) {
        self.program.process().ask_to_end();
        self.source.iter_mut().for_each(|source| source.process().ask_to_end());
    }
}

/// Values of all counters at about one instant.
struct Snapshot {
    arrived: Reading,
    counted: Reading,
    time: Option<ProcessorTime>,
    waits: Vec<ThreadTimes>,
}

impl Contestant for VethContestant {
    fn name(&self) -> &str {
        self.program.name()
    }

    fn measure(&mut self, point: &Point, duration: Duration) -> Result<Sample, BenchError> {
        if point.path != self.path() {
            return Err(BenchError::WrongPath { contestant: self.name().into(), path: point.path });
        }
        let folder = socket_folder()?;
        let (pairs, interfaces, cpu, source_cpu) = self.wiring();
        let lab = Lab::create(pairs)?;
        let stop = self.stop.clone();
        let (mechanism, flow, folder) = (self.mechanism, self.flow, folder.path());
        let task = Task { lab: &lab, mechanism, flow, interfaces, point, cpu, folder, stop: &stop };
        let program = self.program.start(&task)?;
        let source = match flow {
            InterfaceWork::Tx | InterfaceWork::Gen => None,
            InterfaceWork::Rx | InterfaceWork::Io => Some(self.source.start(&Task {
                mechanism: Mechanism::Xdp,
                flow: InterfaceWork::Tx,
                interfaces: &[ENTRANCE],
                cpu: source_cpu,
                ..task
            })?),
        };
        let mut turn = VethRun { flow, lab: &lab, program, source, stop: &stop };
        let sample = turn.measure(duration);
        turn.ask_to_end();
        sample?.checked(duration)
    }

    fn facts(&self) -> ContestantFacts {
        let facts = self.program.facts(self.flow);
        let source = match self.flow {
            InterfaceWork::Tx | InterfaceWork::Gen => Vec::new(),
            InterfaceWork::Rx | InterfaceWork::Io => self.source.facts(InterfaceWork::Tx).commands,
        };
        ContestantFacts {
            name: format!("{} ({})", facts.name, self.path()),
            commands: facts.commands.into_iter().chain(source).collect(),
            counting: match self.flow {
                InterfaceWork::Tx | InterfaceWork::Io | InterfaceWork::Gen => {
                    "frames arrived at the far interface, by the kernel's statistics at both ends of the interval"
                }
                InterfaceWork::Rx => "by the program itself, queried at both ends of the interval",
            },
            ..facts
        }
    }

    fn turn_overhead(&self) -> Duration {
        let source = match self.flow {
            InterfaceWork::Tx | InterfaceWork::Gen => Duration::ZERO,
            InterfaceWork::Rx | InterfaceWork::Io => self.source.start_up(),
        };
        SETTLE + self.program.start_up() + source
    }
}

fn sample(flow: InterfaceWork, start: &Snapshot, end: &Snapshot) -> Sample {
    let elapsed = end.counted.at.saturating_duration_since(start.counted.at);
    let measured = sample_between(&[start.counted], &[end.counted]);
    let per_frame = |seconds: f64| seconds * 1e9 / measured.frames.max(1) as f64;
    let times = start.time.zip(end.time);
    Sample {
        cpu_wait: cpu_wait_share(&start.waits, &end.waits, elapsed),
        cpu_cost: times.map(|(start, end)| CpuCost {
            user_ns_per_frame: per_frame(end.user_seconds - start.user_seconds),
            kernel_ns_per_frame: per_frame(end.kernel_seconds - start.kernel_seconds),
        }),
        offered_fps: match flow {
            InterfaceWork::Tx | InterfaceWork::Gen => None,
            InterfaceWork::Rx | InterfaceWork::Io => {
                let (frames, seconds) = start.arrived.until(&end.arrived);
                Some(frames as f64 / seconds)
            }
        },
        ..measured
    }
}
