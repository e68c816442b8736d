//! Worker processes of Ringroad's contestants: their requests and replies.
//!
//! A worker is the program's own binary, called as `bench-worker ROLE --port NAME --size BYTES --burst FRAMES --cpu N
//! --seconds S`. It pins itself, attaches, prints `{"ready":true}`, waits for the line `go`, waits for a settling time,
//! counts for S seconds, prints one [`WorkerLine::Measured`] and continues until its standard input ends. So the worker
//! at the other end has frames during its whole interval. On the line `count` it immediately prints the number of
//! received frames ([`WorkerLine::SoFar`]), so that a caller with other counters can choose its own interval. Any error
//! is a [`WorkerLine::Failed`].

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

/// Line that starts a worker's work.
pub const GO: &str = "go";

/// Line that makes a worker print the number of frames received so far.
pub const COUNT: &str = "count";

/// Roles of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerRole {
    /// Writes every byte of every frame and sends it.
    Source,
    /// Receives, reads every byte, checks for gaps in the numbers.
    Sink,
    /// Sends to and receives from two ports of a switch at once.
    Loop,
    /// Sends like [`WorkerRole::Source`] to one port of a switch, receives like [`WorkerRole::Sink`] from another port.
    OneWay,
    /// Forwards between two null ports.
    Null,
    /// Sends on a device that it opens itself.
    Send,
    /// Receives and drops on a device that it opens itself.
    Receive,
    /// Forwards between two devices that it opens itself.
    Forward,
    /// Generates test frames with signatures on a device that it opens itself.
    Generate,
    /// Generates test frames without signatures on a device that it opens itself.
    GenerateUnsigned,
    /// Sends by `pcap_inject` on a device of the loaded libpcap.
    PcapSend,
    /// Receives by `pcap_dispatch` on a device of the loaded libpcap.
    PcapReceive,
    /// Does the work of [`WorkerRole::Source`] as a program written for netmap.
    NetmapSource(NetmapCalls),
    /// Does the work of [`WorkerRole::Sink`] as a program written for netmap.
    NetmapSink(NetmapCalls),
    /// Does the work of [`WorkerRole::OneWay`] as a program written for netmap.
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

    /// Returns the number of directions in which the role counts frames.
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

    /// Returns the role's word on the command line.
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

/// Error for an unknown role.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a worker's role; the roles are {words}", words = WorkerRole::ALL.map(WorkerRole::word).join(", "))]
pub struct UnknownRole(String);

impl FromStr for WorkerRole {
    type Err = UnknownRole;

    fn from_str(word: &str) -> Result<Self, UnknownRole> {
        Self::ALL.into_iter().find(|role| role.word() == word).ok_or_else(|| UnknownRole(word.into()))
    }
}

/// Task of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerOptions {
    pub role: WorkerRole,
    /// Names of the ports: two for roles that send to one port and receive from another, else one.
    pub ports: Vec<String>,
    /// Frame size in bytes, FCS included.
    pub frame_bytes: u32,
    /// Number of frames per handover.
    pub burst_frames: u32,
    /// CPU to which the worker is pinned.
    pub cpu: usize,
    /// Length of the counting interval.
    pub interval: Duration,
}

impl WorkerOptions {
    /// Returns the command-line words after the program's name.
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

/// Counts of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Number of frames in all directions.
    pub frames: u64,
    /// Number of frames in each direction.
    pub directions_frames: Vec<u64>,
    /// Length of the interval on the monotonic clock, s.
    pub seconds: f64,
    /// Ticks of the time-stamp counter per frame in the interval.
    pub cycles_per_frame: Option<f64>,
    /// Number of frames missing or out of order, if the role checks for them.
    pub lost_or_reordered_frames: Option<u64>,
}

/// A line of a worker's standard output, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WorkerLine {
    /// The worker has attached, and waits for [`GO`].
    Ready {
        /// Value that is always true.
        ready: bool,
        /// Mechanism of the ports, as the library describes it: page size and the like.
        #[serde(default)]
        mode: String,
    },
    /// The interval has ended.
    Measured(Measured),
    /// Reply to [`COUNT`].
    SoFar {
        /// Number of frames received since the start, in all directions.
        so_far_frames: u64,
    },
    /// The worker cannot continue.
    Failed { error: String },
}

impl WorkerLine {
    /// Parses a line; `None` if it is invalid.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// Reasons why a worker failed.
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
        role: WorkerRole,
        /// Number of ports that the role needs.
        needed: usize,
        /// Number of ports on the command line.
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
    /// A device of libpcap cannot be opened.
    #[error("opening {name} with libpcap: {told}")]
    Libpcap {
        name: String,
        /// Message of libpcap.
        told: String,
    },
    /// The device of a netmap program cannot be opened.
    #[error("opening {name} as a netmap program: {call}: {source}")]
    Netmap {
        name: String,
        /// Name of the failed call.
        call: &'static str,
        /// Error of the call.
        source: std::io::Error,
    },
    /// The frame size is invalid.
    #[error(transparent)]
    FrameSize(#[from] FrameSizeError),
    /// The bench has ended, or did not send `go`.
    #[error("the bench that started this worker is gone")]
    BenchGone,
}

/// Runs a worker until its `input` ends. The command `bench-worker` calls this with standard input and output.
///
/// A failure is written to `output` as [`WorkerLine::Failed`] before it is returned.
///
/// # Errors
/// [`BenchWorkerError`]: the worker could not start, or a port failed.
pub fn run(
    options: &WorkerOptions,
    input: impl BufRead + Send + 'static,
    output: &mut impl Write,
) -> Result<(), BenchWorkerError> {
    match options.role {
        // A common datapath of the worker, so that its ports can share a region.
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
        // A message without a reader is lost.
        let _ = say(output, &WorkerLine::Failed { error: error.to_string() });
    }
    worked
}

/// A prepared worker.
enum Work {
    /// A role whose turns run in the worker's own loop.
    Turns(Box<dyn RoleStep>),
    /// A generator session, which has a thread of its own.
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

/// Opens the ports of a worker, and returns their mechanism.
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

/// Returns the turns of a role over ports that `open` opens, and the mechanism of the ports. Generators have no turns,
/// but a session: [`generator_session`].
///
/// # Errors
/// [`BenchWorkerError`]: a port cannot be opened, or the number of ports is wrong.
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

/// Opens programs whose ports have other interfaces than Ringroad's own.
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

/// Runs the role's turns until the meter ends them.
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

/// Starts a thread that reads commands from `input`, and returns the commands.
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
