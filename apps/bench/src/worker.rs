//! The worker processes of Ringroad's side: their requests and answers.
//!
//! A worker is the program's own binary, called as `bench-worker ROLE --port NAME --size BYTES --burst FRAMES --cpu N
//! --seconds S`. It pins itself, attaches, prints `{"ready":true}`, waits for the line `go`, lets a settling time pass,
//! counts for S seconds, prints one [`WorkerLine::Measured`] and continues until its standard input ends, so that the
//! far side never runs dry within an interval. On the line `count` it immediately prints how many frames it has
//! received ([`WorkerLine::SoFar`]), so that a caller with other counters can choose its own interval. Any error is a
//! [`WorkerLine::Failed`].

mod frame;
mod generator;
mod libpcap;
mod meter;
mod netmap;
mod roles;

use std::fmt;
use std::io::{BufRead, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringroad::{Embedded, OpenError, Port, PortError};
use ringroad_generator::{SessionError, SessionOptions, TestSession};
use ringroad_traffic::line_rate::FrameSizeError;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::plan::FCS_BYTES;
pub use frame::template;
pub use generator::session as generator_session;
pub use meter::WorkerCounts;
use meter::{LoopClock, Next, WorkerCommands};
pub use netmap::NetmapCalls;
use netmap::{NetmapOneWay, NetmapSink, NetmapSource};
pub use roles::RoleStep;
use roles::{Forwarder, OneWay, Receiver, Sender, Sink, Source, SwitchLoop};

/// Time between the first frame and the counting interval.
pub const SETTLE: Duration = Duration::from_millis(200);

/// The line that starts a worker.
pub const GO: &str = "go";

/// The line that makes a worker print how many frames it has received so far.
pub const COUNT: &str = "count";

/// Roles of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerRole {
    /// Writes every byte of every frame and sends it.
    Source,
    /// Receives, reads every byte, checks for gaps.
    Sink,
    /// Sends to and receives from two ports of a switch at once.
    Loop,
    /// Sends as [`WorkerRole::Source`] to one port of a switch, receives as [`WorkerRole::Sink`] from another.
    OneWay,
    /// Forwards between two null ports.
    Null,
    /// Sends, on a device that it opens itself.
    Send,
    /// Receives and drops, on a device that it opens itself.
    Receive,
    /// Forwards between two devices that it opens itself.
    Forward,
    /// Generates test frames with signatures, on a device that it opens itself.
    Generate,
    /// The same without signatures.
    GenerateUnsigned,
    /// Sends by `pcap_inject`, on a device of the loaded libpcap.
    PcapSend,
    /// Receives by `pcap_dispatch`, likewise.
    PcapReceive,
    /// [`WorkerRole::Source`] as a program written for netmap.
    NetmapSource(NetmapCalls),
    /// [`WorkerRole::Sink`], likewise.
    NetmapSink(NetmapCalls),
    /// [`WorkerRole::OneWay`], likewise.
    NetmapOneWay(NetmapCalls),
}

impl WorkerRole {
    const ALL: [Self; 18] = [
        Self::Source,
        Self::Sink,
        Self::Loop,
        Self::OneWay,
        Self::Null,
        Self::Send,
        Self::Receive,
        Self::Forward,
        Self::Generate,
        Self::GenerateUnsigned,
        Self::PcapSend,
        Self::PcapReceive,
        Self::NetmapSource(NetmapCalls::Sync),
        Self::NetmapSource(NetmapCalls::Poll),
        Self::NetmapSink(NetmapCalls::Sync),
        Self::NetmapSink(NetmapCalls::Poll),
        Self::NetmapOneWay(NetmapCalls::Sync),
        Self::NetmapOneWay(NetmapCalls::Poll),
    ];

    /// In how many directions it receives.
    const fn directions(self) -> usize {
        match self {
            Self::Loop | Self::Null | Self::Forward => 2,
            Self::Source
            | Self::Sink
            | Self::OneWay
            | Self::Send
            | Self::Receive
            | Self::Generate
            | Self::GenerateUnsigned
            | Self::PcapSend
            | Self::PcapReceive
            | Self::NetmapSource(_)
            | Self::NetmapSink(_)
            | Self::NetmapOneWay(_) => 1,
        }
    }

    /// The role's word on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Sink => "sink",
            Self::Loop => "loop",
            Self::OneWay => "one-way",
            Self::Null => "null",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Forward => "forward",
            Self::Generate => "generate",
            Self::GenerateUnsigned => "generate-unsigned",
            Self::PcapSend => "pcap-send",
            Self::PcapReceive => "pcap-receive",
            Self::NetmapSource(NetmapCalls::Sync) => "netmap-sync-source",
            Self::NetmapSource(NetmapCalls::Poll) => "netmap-poll-source",
            Self::NetmapSink(NetmapCalls::Sync) => "netmap-sync-sink",
            Self::NetmapSink(NetmapCalls::Poll) => "netmap-poll-sink",
            Self::NetmapOneWay(NetmapCalls::Sync) => "netmap-sync-one-way",
            Self::NetmapOneWay(NetmapCalls::Poll) => "netmap-poll-one-way",
        }
    }
}

impl fmt::Display for WorkerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// An unknown role.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a worker's role; the roles are {words}", words = WorkerRole::ALL.map(WorkerRole::word).join(", "))]
pub struct UnknownRole(String);

impl FromStr for WorkerRole {
    type Err = UnknownRole;

    fn from_str(word: &str) -> Result<Self, UnknownRole> {
        Self::ALL.into_iter().find(|role| role.word() == word).ok_or_else(|| UnknownRole(word.into()))
    }
}

/// A worker's task.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerOptions {
    /// Its part.
    pub role: WorkerRole,
    /// The ports it attaches to: two for roles that send to one and receive from another, else one.
    pub ports: Vec<String>,
    /// Frame size in bytes, FCS included.
    pub frame_bytes: u32,
    /// Frames per handover.
    pub burst_frames: u32,
    /// The CPU it keeps to.
    pub cpu: usize,
    /// Length of the interval in which it counts.
    pub interval: Duration,
}

impl WorkerOptions {
    /// The command-line words after the program's name.
    #[must_use]
    pub fn to_arguments(&self) -> Vec<String> {
        let mut words = vec!["bench-worker".into(), self.role.to_string()];
        for port in &self.ports {
            words.extend(["--port".into(), port.clone()]);
        }
        words.extend([
            "--size".into(),
            self.frame_bytes.to_string(),
            "--burst".into(),
            self.burst_frames.to_string(),
            "--cpu".into(),
            self.cpu.to_string(),
            "--seconds".into(),
            self.interval.as_secs_f64().to_string(),
        ]);
        words
    }
}

/// A worker's counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Frames, all directions together.
    pub frames: u64,
    /// Frames of each direction.
    pub directions_frames: Vec<u64>,
    /// Length of the interval on the monotonic clock.
    pub seconds: f64,
    /// Time-stamp counter ticks of the interval per frame.
    pub cycles_per_frame: Option<f64>,
    /// Frames missing or out of order, if the role checks for them.
    pub lost_or_reordered_frames: Option<u64>,
}

/// A line of a worker's standard output, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WorkerLine {
    /// Attached; waiting for [`GO`].
    Ready {
        /// Always true.
        ready: bool,
        /// The mechanism of the ports, in the library's words: page size and the like.
        #[serde(default)]
        mode: String,
    },
    /// The interval is over.
    Measured(Measured),
    /// The answer to [`COUNT`].
    SoFar {
        /// Frames received since the start, all directions together.
        so_far_frames: u64,
    },
    /// The worker cannot continue.
    Failed { error: String },
}

impl WorkerLine {
    /// Reads a line; `None` if it is not valid.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// Why a worker gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchWorkerError {
    /// The process is not allowed to use the CPU.
    #[error("cannot keep to CPU {cpu}: {source}")]
    Cpu {
        /// The requested CPU.
        cpu: usize,
        source: rustix::io::Errno,
    },
    /// A role got the wrong number of ports.
    #[error("the role {role} needs {needed} ports, and {given} were given with --port")]
    Ports {
        /// The role.
        role: WorkerRole,
        /// Ports it needs.
        needed: usize,
        /// Ports it got.
        given: usize,
    },
    /// A port cannot be opened.
    #[error("opening {name}: {source}")]
    Open { name: String, source: OpenError },
    /// A port stopped working.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The generator cannot make the frames, or one of its ports failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A device of libpcap's cannot be opened.
    #[error("opening {name} with libpcap: {told}")]
    Libpcap {
        name: String,
        /// libpcap's message.
        told: String,
    },
    /// A netmap program's device cannot be opened.
    #[error("opening {name} as a netmap program: {call}: {source}")]
    Netmap {
        name: String,
        /// The call that failed.
        call: &'static str,
        /// The message.
        source: std::io::Error,
    },
    /// The frame size is invalid.
    #[error(transparent)]
    FrameSize(#[from] FrameSizeError),
    /// The bench has ended, or did not send `go`.
    #[error("the bench that started this worker is gone")]
    BenchGone,
}

/// Runs a worker until its `input` ends: the whole of `bench-worker`, with standard input and output.
///
/// A failure is written to `output` as [`WorkerLine::Failed`] before it is returned.
///
/// # Errors
/// [`BenchWorkerError`].
pub fn run(
    options: &WorkerOptions,
    input: impl BufRead + Send + 'static,
    output: &mut impl Write,
) -> Result<(), BenchWorkerError> {
    match options.role {
        // One datapath in the worker, so that its ports can share a region.
        WorkerRole::Send
        | WorkerRole::Receive
        | WorkerRole::Forward
        | WorkerRole::Generate
        | WorkerRole::GenerateUnsigned => {
            let datapath = Embedded::new();
            run_with(options, &|name| datapath.open(name), input, output)
        }
        _ => run_with(options, &|name| Port::open(name), input, output),
    }
}

fn run_with(
    options: &WorkerOptions,
    open: &dyn Fn(&str) -> Result<Port, OpenError>,
    mut input: impl BufRead + Send + 'static,
    output: &mut impl Write,
) -> Result<(), BenchWorkerError> {
    let worked = prepare(options, open).and_then(|(work, mode)| {
        say(output, &WorkerLine::Ready { ready: true, mode })?;
        let mut line = String::new();
        match input.read_line(&mut line) {
            Ok(_) if line.trim_end() == GO => {}
            _ => return Err(BenchWorkerError::BenchGone),
        }
        match work {
            Work::Turns(mut role) => {
                let meter = LoopClock::new(options.interval, options.role.directions(), orders_from(input));
                turn_until_told(role.as_mut(), meter, output)
            }
            Work::Session(session) => generator::run(*session, options.interval, input, output),
        }
    });
    if let Err(error) = &worked {
        // Without a reader the message is lost.
        let _ = say(output, &WorkerLine::Failed { error: error.to_string() });
    }
    worked
}

/// A prepared worker.
enum Work {
    /// To be turned by the worker's own loop.
    Turns(Box<dyn RoleStep>),
    /// With a thread of its own.
    Session(Box<TestSession>),
}

fn prepare(
    options: &WorkerOptions,
    open: &dyn Fn(&str) -> Result<Port, OpenError>,
) -> Result<(Work, String), BenchWorkerError> {
    let mut cpus = CpuSet::new();
    cpus.set(options.cpu);
    sched_setaffinity(None, &cpus).map_err(|source| BenchWorkerError::Cpu { cpu: options.cpu, source })?;
    if !matches!(options.role, WorkerRole::Generate | WorkerRole::GenerateUnsigned) {
        return turns(options, open).map(|(turn, mode)| (Work::Turns(turn), mode));
    }
    let (ports, mode) = open_all(options, open)?;
    let session_options = SessionOptions { cpus: vec![options.cpu], ..SessionOptions::default() };
    let session = generator_session(options, one(options.role, ports)?, session_options)?;
    Ok((Work::Session(Box::new(session)), mode))
}

/// Opens the ports of a worker; also returns their mechanism.
fn open_all(
    options: &WorkerOptions,
    open: &dyn Fn(&str) -> Result<Port, OpenError>,
) -> Result<(Vec<Port>, String), BenchWorkerError> {
    let ports = options
        .ports
        .iter()
        .map(|name| open(name).map_err(|source| BenchWorkerError::Open { name: name.clone(), source }))
        .collect::<Result<Vec<Port>, BenchWorkerError>>()?;
    let mode = ports.first().map(|port| port.info().mode.clone()).unwrap_or_default();
    Ok((ports, mode))
}

/// The body of a role's loop, over ports that `open` opens, and the mechanism of these. Generators have none:
/// [`generator_session`].
///
/// # Errors
/// [`BenchWorkerError`].
pub fn turns(
    options: &WorkerOptions,
    open: &dyn Fn(&str) -> Result<Port, OpenError>,
) -> Result<(Box<dyn RoleStep>, String), BenchWorkerError> {
    let slot_bytes = options.frame_bytes.saturating_sub(FCS_BYTES);
    let (role, burst_frames) = (options.role, options.burst_frames);
    if let Some(turn) = foreign(options, slot_bytes)? {
        return Ok((turn, String::new()));
    }
    let (ports, mode) = open_all(options, open)?;
    let turn: Box<dyn RoleStep> = match role {
        WorkerRole::Source => Box::new(Source::new(one(role, ports)?, slot_bytes, burst_frames)),
        WorkerRole::Sink => Box::new(Sink::new(one(role, ports)?, slot_bytes, burst_frames)),
        WorkerRole::Loop => Box::new(SwitchLoop::new(exactly(role, ports)?, slot_bytes, burst_frames)),
        WorkerRole::OneWay => Box::new(OneWay::new(exactly(role, ports)?, slot_bytes, burst_frames)?),
        WorkerRole::Null | WorkerRole::Forward => {
            Box::new(Forwarder::new(exactly(role, ports)?, burst_frames))
        }
        WorkerRole::Send => Box::new(Sender::new(one(role, ports)?, slot_bytes, burst_frames)),
        WorkerRole::Receive => Box::new(Receiver::new(one(role, ports)?, slot_bytes, burst_frames)),
        // Generators have no turns, and the other roles are handled above.
        WorkerRole::Generate
        | WorkerRole::GenerateUnsigned
        | WorkerRole::PcapSend
        | WorkerRole::PcapReceive
        | WorkerRole::NetmapSource(_)
        | WorkerRole::NetmapSink(_)
        | WorkerRole::NetmapOneWay(_) => {
            return Err(BenchWorkerError::Ports { role, needed: 0, given: ports.len() });
        }
    };
    Ok((turn, mode))
}

/// Programs that have ports by other interfaces than Ringroad's own.
fn foreign(options: &WorkerOptions, slot_bytes: u32) -> Result<Option<Box<dyn RoleStep>>, BenchWorkerError> {
    let (role, burst) = (options.role, options.burst_frames);
    let names = || options.ports.iter().map(String::as_str).collect::<Vec<_>>();
    let turn: Box<dyn RoleStep> = match role {
        WorkerRole::PcapSend | WorkerRole::PcapReceive => {
            let name = one(role, names())?;
            let refused = |told| BenchWorkerError::Libpcap { name: name.into(), told };
            match role {
                WorkerRole::PcapSend => Box::new(libpcap::Injector::open(name, slot_bytes).map_err(refused)?),
                _ => Box::new(libpcap::Capturer::open(name).map_err(refused)?),
            }
        }
        WorkerRole::NetmapSource(calls) => {
            Box::new(NetmapSource::open(one(role, names())?, calls, slot_bytes, burst)?)
        }
        WorkerRole::NetmapSink(calls) => {
            Box::new(NetmapSink::open(one(role, names())?, calls, slot_bytes, burst)?)
        }
        WorkerRole::NetmapOneWay(calls) => {
            Box::new(NetmapOneWay::open(exactly(role, names())?, calls, slot_bytes, burst)?)
        }
        _ => return Ok(None),
    };
    Ok(Some(turn))
}

fn exactly<const N: usize, P>(role: WorkerRole, ports: Vec<P>) -> Result<[P; N], BenchWorkerError> {
    ports.try_into().map_err(|ports: Vec<P>| BenchWorkerError::Ports { role, needed: N, given: ports.len() })
}

fn one<P>(role: WorkerRole, ports: Vec<P>) -> Result<P, BenchWorkerError> {
    exactly(role, ports).map(|[port]| port)
}

/// Runs turns of the role until the meter ends it.
fn turn_until_told(
    role: &mut dyn RoleStep,
    mut meter: LoopClock,
    output: &mut impl Write,
) -> Result<(), BenchWorkerError> {
    let mut tally = WorkerCounts::default();
    loop {
        role.turn(&mut tally)?;
        match meter.turn(&tally) {
            Next::GoOn => {}
            Next::Report(measured) => say(output, &WorkerLine::Measured(measured))?,
            Next::SoFar(so_far_frames) => say(output, &WorkerLine::SoFar { so_far_frames })?,
            Next::End => return Ok(()),
        }
    }
}

/// The commands that a thread reads from `input`.
fn orders_from(mut input: impl BufRead + Send + 'static) -> Arc<WorkerCommands> {
    let orders = Arc::new(WorkerCommands::default());
    let given = Arc::clone(&orders);
    std::thread::spawn(move || {
        let mut line = String::new();
        while matches!(input.read_line(&mut line), Ok(1..)) {
            if line.trim_end() == COUNT {
                given.count.store(true, Ordering::Relaxed);
            }
            line.clear();
        }
        given.end.store(true, Ordering::Relaxed);
    });
    orders
}

fn say(output: &mut impl Write, line: &WorkerLine) -> Result<(), BenchWorkerError> {
    let text = serde_json::to_string(line).map_err(|_| BenchWorkerError::BenchGone)?;
    writeln!(output, "{text}").and_then(|()| output.flush()).map_err(|_| BenchWorkerError::BenchGone)
}

#[cfg(test)]
mod loop_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_is_found_by_its_word() {
        for role in WorkerRole::ALL {
            assert_eq!(role.word().parse::<WorkerRole>().unwrap(), role);
        }
        assert!("sinkhole".parse::<WorkerRole>().unwrap_err().to_string().contains("sink, loop"));
    }

    #[test]
    fn the_lines_are_distinguished() {
        assert_eq!(
            WorkerLine::parse(r#"{"ready":true}"#),
            Some(WorkerLine::Ready { ready: true, mode: String::new() })
        );
        let measured = r#"{"frames":3,"directions_frames":[1,2],"seconds":0.5,"cycles_per_frame":null,"lost_or_reordered_frames":0}"#;
        assert!(
            matches!(WorkerLine::parse(measured), Some(WorkerLine::Measured(measured)) if measured.frames == 3)
        );
        assert_eq!(
            WorkerLine::parse(r#"{"error":"no daemon"}"#),
            Some(WorkerLine::Failed { error: "no daemon".into() })
        );
        assert_eq!(WorkerLine::parse(r#"{"so_far_frames":7}"#), Some(WorkerLine::SoFar { so_far_frames: 7 }));
        assert_eq!(WorkerLine::parse("warning: something"), None);
    }
}
