//! Worker processes of Ringroad's contestants: their requests and replies.
//!
//! A worker is the program's own binary, called as `bench-worker ROLE --port NAME --size BYTES --burst FRAMES --cpu N`.
//! It pins itself, attaches, prints [`WorkerLine::Ready`], waits for the line `go`, and works until its standard input
//! ends. On each line `count` it prints the number of received frames ([`WorkerLine::Counted`]) with the time of the
//! count, so that two counts give the rate between them. Any error is a [`WorkerLine::Failed`].

mod frame;
mod generator;
mod libpcap;
mod netmap;
mod roles;
mod socket_send;

use std::cell::OnceCell;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use ringroad::{Embedded, OpenError, Port, PortError, monotonic_ns};
use ringroad_generator::clock::ticks_and_ns;
use ringroad_generator::{SessionError, SessionOptions, TestSession};
use ringroad_traffic::line_rate::FrameSizeError;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::plan::FCS_BYTES;
pub use frame::template;
pub use generator::session as generator_session;
use libpcap::{Capturer, Injector, PcapForwarder};
use netmap::{NetmapCalls, NetmapOneWay, NetmapSink, NetmapSource};
pub use roles::RoleStep;
use roles::{Fill, Forwarder, OneWay, Receiver, Sender, Sink, Source, SwitchLoop};
pub use socket_send::SocketCall;
use socket_send::SocketSend;

/// Line that starts a worker's work.
pub const GO: &str = "go";

/// Line that makes a worker print the number of frames received so far.
pub const COUNT: &str = "count";

/// Roles of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
    /// Writes frames like [`WorkerRole::Send`], and hands none over.
    Fill,
    /// Sends by a system call for each frame. The name of the port is that of a [`SocketCall`].
    SocketSend,
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
    /// Receives on one device of the loaded libpcap, and sends each frame on another by `pcap_inject`.
    PcapForward,
    /// Does the work of [`WorkerRole::Source`] as a program written for netmap, with a sync for each burst.
    NetmapSyncSource,
    /// Does the work of [`WorkerRole::Source`] as a program written for netmap, with `poll`.
    NetmapPollSource,
    /// Does the work of [`WorkerRole::Sink`] as a program written for netmap, with a sync for each burst.
    NetmapSyncSink,
    /// Does the work of [`WorkerRole::Sink`] as a program written for netmap, with `poll`.
    NetmapPollSink,
    /// Does the work of [`WorkerRole::OneWay`] as a program written for netmap, with a sync for each burst.
    NetmapSyncOneWay,
    /// Does the work of [`WorkerRole::OneWay`] as a program written for netmap, with `poll`.
    NetmapPollOneWay,
}

impl WorkerRole {
    /// Returns the number of directions in which the role counts frames.
    const fn directions(self) -> usize {
        if matches!(self, Self::Loop | Self::Null | Self::Forward) { 2 } else { 1 }
    }

    /// Returns the role's word on the command line.
    #[must_use]
    pub fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Task of a worker, and its command line.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct WorkerOptions {
    #[arg(value_enum)]
    pub role: WorkerRole,
    /// Names of the ports: two for roles that send to one port and receive from another, else one.
    #[arg(long = "port")]
    pub ports: Vec<String>,
    /// Frame size in bytes, FCS included.
    #[arg(long = "size")]
    pub frame_bytes: u32,
    /// Number of frames per handover.
    #[arg(long = "burst")]
    pub burst_frames: u32,
    /// CPU to which the worker is pinned.
    #[arg(long)]
    pub cpu: usize,
}

impl WorkerOptions {
    /// Returns the command-line words after the program's name.
    #[must_use]
    pub fn to_arguments(&self) -> Vec<String> {
        let mut words = vec!["bench-worker".into(), self.role.word()];
        for port in &self.ports {
            words.extend(["--port".into(), port.clone()]);
        }
        let numbers = [
            ("--size", self.frame_bytes as usize),
            ("--burst", self.burst_frames as usize),
            ("--cpu", self.cpu),
        ];
        words.extend(numbers.into_iter().flat_map(|(option, number)| [option.into(), number.to_string()]));
        words
    }
}

/// Counts of a worker since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Number of frames by direction.
    pub directions_frames: [u64; 2],
    /// Number of frames missing or out of order.
    pub lost_or_reordered_frames: u64,
}

/// Counts of a worker at an instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedCounts {
    /// Number of frames in each direction.
    pub directions_frames: Vec<u64>,
    /// Number of frames missing or out of order, if the role checks for them.
    pub lost_or_reordered_frames: Option<u64>,
    /// The instant on the machine's monotonic clock, ns.
    pub at_ns: u64,
    /// The instant by the processor's time-stamp counter.
    pub ticks: Option<u64>,
}

impl TimedCounts {
    fn now(directions_frames: &[u64], lost_or_reordered_frames: Option<u64>) -> Self {
        let ticks = ticks_and_ns().map(|(ticks, _)| ticks);
        Self {
            directions_frames: directions_frames.to_vec(),
            lost_or_reordered_frames,
            at_ns: monotonic_ns(),
            ticks,
        }
    }
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
    /// Reply to [`COUNT`].
    Counted(TimedCounts),
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
    #[error("the role {} needs {needed} ports, and {given} were given with --port", .role.word())]
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
    /// A socket cannot be prepared to send.
    #[error("preparing to send by {name}: {told}")]
    Socket {
        name: String,
        /// Failed step, and the reason.
        told: String,
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
        | WorkerRole::Fill
        | WorkerRole::SocketSend
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
                turn_until_told(role.as_mut(), options.role.directions(), &commands_from(input), output)
            }
            Work::Session(session) => generator::run(*session, input, output),
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
    let mode = OnceCell::new();
    let open = |name: &str| -> Result<Port, OpenError> {
        let port = open(name)?;
        mode.get_or_init(|| port.info().mode.clone());
        Ok(port)
    };
    let work = if matches!(options.role, WorkerRole::Generate | WorkerRole::GenerateUnsigned) {
        let [port] = ports(options, &open)?;
        let session_options = SessionOptions { cpus: vec![options.cpu], ..SessionOptions::default() };
        Work::Session(Box::new(generator_session(options, port, session_options)?))
    } else {
        Work::Turns(turns(options, &open)?)
    };
    Ok((work, mode.into_inner().unwrap_or_default()))
}

fn ports<const N: usize>(
    options: &WorkerOptions,
    open: &dyn Fn(&str) -> Result<Port, OpenError>,
) -> Result<[Port; N], BenchWorkerError> {
    let open = |name: &str| open(name).map_err(|source| BenchWorkerError::Open { name: name.into(), source });
    let ports = names::<N>(options)?.into_iter().map(open).collect::<Result<_, _>>()?;
    exactly(options.role, ports)
}

fn names<const N: usize>(options: &WorkerOptions) -> Result<[&str; N], BenchWorkerError> {
    exactly(options.role, options.ports.iter().map(String::as_str).collect())
}

fn exactly<const N: usize, P>(role: WorkerRole, ports: Vec<P>) -> Result<[P; N], BenchWorkerError> {
    ports.try_into().map_err(|ports: Vec<P>| BenchWorkerError::Ports { role, needed: N, given: ports.len() })
}

/// Returns the turns of a role over ports that `open` opens. Generators have no turns, but a session:
/// [`generator_session`].
///
/// # Errors
/// [`BenchWorkerError`]: a port cannot be opened, or the number of ports is wrong.
pub fn turns(
    options: &WorkerOptions,
    open: &dyn Fn(&str) -> Result<Port, OpenError>,
) -> Result<Box<dyn RoleStep>, BenchWorkerError> {
    let (slot_bytes, burst) = (options.frame_bytes.saturating_sub(FCS_BYTES), options.burst_frames);
    let one = || ports(options, open).map(|[port]| port);
    let two = || ports(options, open);
    // Programs over other libraries than Ringroad's open their ports by name.
    let name = || names(options).map(|[name]| name);
    let refused = |told| BenchWorkerError::Libpcap { name: options.ports.join(" "), told };
    let netmap_source = |calls| NetmapSource::open(name()?, calls, slot_bytes, burst);
    let netmap_sink = |calls| NetmapSink::open(name()?, calls, slot_bytes, burst);
    let netmap_one_way = |calls| NetmapOneWay::open(names(options)?, calls, slot_bytes, burst);
    Ok(match options.role {
        WorkerRole::Source => Box::new(Source::new(one()?, slot_bytes, burst)),
        WorkerRole::Sink => Box::new(Sink::new(one()?, slot_bytes, burst)),
        WorkerRole::Loop => Box::new(SwitchLoop::new(two()?, slot_bytes, burst)),
        WorkerRole::OneWay => Box::new(OneWay::new(two()?, slot_bytes, burst)?),
        WorkerRole::Null | WorkerRole::Forward => Box::new(Forwarder::new(two()?, burst)),
        WorkerRole::Send => Box::new(Sender::new(one()?, slot_bytes, burst)),
        WorkerRole::Fill => Box::new(Fill::new(one()?, slot_bytes, burst)),
        WorkerRole::SocketSend => Box::new(SocketSend::prepare(name()?, slot_bytes, burst, open)?),
        WorkerRole::Receive => Box::new(Receiver::new(one()?, slot_bytes, burst)),
        role @ (WorkerRole::Generate | WorkerRole::GenerateUnsigned) => {
            return Err(BenchWorkerError::Ports { role, needed: 0, given: options.ports.len() });
        }
        WorkerRole::PcapSend => Box::new(Injector::open(name()?, slot_bytes).map_err(refused)?),
        WorkerRole::PcapReceive => Box::new(Capturer::open(name()?).map_err(refused)?),
        WorkerRole::PcapForward => Box::new(PcapForwarder::open(names(options)?).map_err(refused)?),
        WorkerRole::NetmapSyncSource => Box::new(netmap_source(NetmapCalls::Sync)?),
        WorkerRole::NetmapPollSource => Box::new(netmap_source(NetmapCalls::Poll)?),
        WorkerRole::NetmapSyncSink => Box::new(netmap_sink(NetmapCalls::Sync)?),
        WorkerRole::NetmapPollSink => Box::new(netmap_sink(NetmapCalls::Poll)?),
        WorkerRole::NetmapSyncOneWay => Box::new(netmap_one_way(NetmapCalls::Sync)?),
        WorkerRole::NetmapPollOneWay => Box::new(netmap_one_way(NetmapCalls::Poll)?),
    })
}

/// Commands of the bench to a running worker, from the thread that reads them.
#[derive(Debug, Default)]
struct WorkerCommands {
    /// Request to print the counts so far.
    count: AtomicBool,
    /// Request to end.
    end: AtomicBool,
}

/// Runs the role's turns until the bench ends them. The role counts in the first `directions` elements of its tally.
fn turn_until_told(
    role: &mut dyn RoleStep,
    directions: usize,
    commands: &WorkerCommands,
    output: &mut impl Write,
) -> Result<(), BenchWorkerError> {
    let mut tally = WorkerCounts::default();
    while !commands.end.load(Ordering::Relaxed) {
        role.turn(&mut tally)?;
        if commands.count.load(Ordering::Relaxed) {
            commands.count.store(false, Ordering::Relaxed);
            let frames = tally.directions_frames.get(..directions).unwrap_or_default();
            let counts = TimedCounts::now(frames, Some(tally.lost_or_reordered_frames));
            say(output, &WorkerLine::Counted(counts))?;
        }
    }
    Ok(())
}

/// Starts a thread that reads commands from `input`, and returns the commands.
fn commands_from(mut input: impl BufRead + Send + 'static) -> Arc<WorkerCommands> {
    let commands = Arc::new(WorkerCommands::default());
    let given = Arc::clone(&commands);
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
    commands
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
    fn the_lines_are_distinguished() {
        assert_eq!(
            WorkerLine::parse(r#"{"ready":true}"#),
            Some(WorkerLine::Ready { ready: true, mode: String::new() })
        );
        let counted = r#"{"directions_frames":[1,2],"lost_or_reordered_frames":0,"at_ns":5,"ticks":null}"#;
        let Some(WorkerLine::Counted(counts)) = WorkerLine::parse(counted) else { panic!("{counted}") };
        assert_eq!((counts.directions_frames, counts.at_ns), (vec![1, 2], 5));
        assert_eq!(
            WorkerLine::parse(r#"{"error":"no daemon"}"#),
            Some(WorkerLine::Failed { error: "no daemon".into() })
        );
        assert_eq!(WorkerLine::parse("warning: something"), None);
    }
}
