//! Ringroad's contestants: worker processes of the program's own binary, started and queried like the peers.
//!
//! Each turn has its own daemon socket in a private folder, so a daemon in daily use is neither measured nor disturbed.

mod interface;
mod libpcap;
mod netmap;

use std::ffi::{OsStr, OsString};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringroad_netdev::Namespace;

use crate::contestant::{Contestant, ContestantFacts, CorePair, Sample};
use crate::error::BenchError;
use crate::peers::Absent;
use crate::plan::{FramePath, InterfaceWork, Mechanism, Point};
use crate::process::{BenchProcess, EndsBy, ThreadTimes, command_line, cpu_wait_share};
use crate::runner::Contestants;
use crate::sockets::socket_folder;
use crate::stop::StopFlag;
use crate::veth::{InterfaceProgram, VethContestant};
use crate::worker::{GO, Measured, SETTLE, WorkerLine, WorkerOptions, WorkerRole};
use interface::RingroadInterface;
use libpcap::LibpcapProgram;
use netmap::NetmapProgram;

/// Time limit for a worker to attach, or to report after its interval.
const LIMIT: Duration = Duration::from_secs(60);

/// Time between attempts to connect to a socket until a daemon listens there.
const LISTEN_CHECK: Duration = Duration::from_millis(5);

/// Contestant that runs Ringroad on one path.
#[derive(Debug)]
pub struct Ringroad {
    path: FramePath,
    /// Kind of the generator, on the path of generators.
    signing: Signing,
    /// Use of netmap, for a program written for netmap.
    netmap: Option<NetmapProgram>,
    programs: Programs,
    cores: CorePair,
    stop: StopFlag,
    commands: Vec<String>,
    mode: Option<String>,
}

/// Kind of a generator: whether its frames carry stream, number and time of departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signing {
    Signed,
    Unsigned,
}

impl Signing {
    /// Returns the contestant's name in tables.
    const fn name(self) -> &'static str {
        match self {
            Self::Signed => "Ringroad, signed",
            Self::Unsigned => "Ringroad, unsigned",
        }
    }

    /// Returns the role of the worker that generates such frames.
    const fn role(self) -> WorkerRole {
        match self {
            Self::Signed => WorkerRole::Generate,
            Self::Unsigned => WorkerRole::GenerateUnsigned,
        }
    }

    /// Describes the generator's work on each frame.
    const fn work_per_frame(self) -> &'static str {
        match self {
            Self::Signed => {
                "frame written into the slot, with stream, sequence number, time, their checksum and the UDP checksum; departure \
                 and timing accounted for"
            }
            Self::Unsigned => "frame written into the slot; departure and timing accounted for",
        }
    }
}

/// Programs of Ringroad's contestants.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Binary with the command `bench-worker`, usually the running program.
    pub worker: PathBuf,
    /// Path of the daemon; `None` allows only the null path.
    pub daemon: Option<PathBuf>,
}

impl Programs {
    /// Returns `worker`, and the daemon that a program in the same folder would start.
    #[must_use]
    pub fn beside(worker: &Path) -> Self {
        Self { worker: worker.to_owned(), daemon: ringroad::daemon_program() }
    }
}

/// Role, ports and CPU of one worker of a turn.
struct Part {
    role: WorkerRole,
    ports: Vec<String>,
    cpu: usize,
}

/// Adds Ringroad's contestants on every path.
pub fn enter(contestants: &mut Contestants, programs: &Programs, cores: CorePair, stop: &StopFlag) {
    for path in [FramePath::Null, FramePath::Pipe, FramePath::Switch] {
        let ours = Ringroad::new(path, programs.clone(), cores, stop);
        contestants.field_mut(path).ours.push(Box::new(ours));
    }
    for signing in [Signing::Signed, Signing::Unsigned] {
        let ours = Ringroad::generating(signing, programs.clone(), cores, stop);
        contestants.field_mut(FramePath::GenNull).ours.push(Box::new(ours));
        for mechanism in [Mechanism::Xdp, Mechanism::Packet] {
            let program = Box::new(RingroadInterface::generating(signing, programs));
            // A generator needs no source of frames: the given source is never started.
            let source = interface_program(programs);
            let ours = VethContestant::new(mechanism, InterfaceWork::Gen, program, source, cores, stop);
            contestants.field_mut(FramePath::Veth(mechanism, InterfaceWork::Gen)).ours.push(Box::new(ours));
        }
    }
    if let Some(object) = preloaded_object(&programs.worker, libpcap::OBJECT) {
        enter_libpcap(contestants, programs, Some(&object), cores, stop);
    } else {
        contestants.absent.push(Absent {
            name: "Ringroad's object for libpcap programs".into(),
            reason: format!("it is not beside {}: make build", programs.worker.display()),
        });
    }
    netmap::enter(contestants, programs, cores, stop);
    for path in FramePath::VETH {
        if let FramePath::Veth(mechanism, flow) = path {
            let [program, source] = [(); 2].map(|()| interface_program(programs));
            let ours = VethContestant::new(mechanism, flow, program, source, cores, stop);
            contestants.field_mut(path).ours.push(Box::new(ours));
        }
    }
}

/// Finds an object for foreign programs near a program of Ringroad: in the folder of the build, or installed.
fn preloaded_object(program: &Path, file: &str) -> Option<PathBuf> {
    let folder = program.parent()?;
    [folder.to_owned(), folder.join("../lib/ringroad")]
        .into_iter()
        .map(|folder| folder.join(file))
        .find(|object| object.is_file())
}

/// Adds the program over libpcap, with an object before the system's library or without.
pub(crate) fn enter_libpcap(
    contestants: &mut Contestants,
    programs: &Programs,
    object: Option<&Path>,
    cores: CorePair,
    stop: &StopFlag,
) {
    for path in FramePath::PCAP {
        if let FramePath::Veth(mechanism, flow) = path {
            let program = Box::new(LibpcapProgram::new(programs, object.map(Path::to_owned)));
            let source = interface_program(programs);
            let contestant = Box::new(VethContestant::new(mechanism, flow, program, source, cores, stop));
            let field = contestants.field_mut(path);
            if object.is_some() { field.ours.push(contestant) } else { field.peers.push(contestant) }
        }
    }
}

/// Makes Ringroad's program on network interfaces: a contestant, and the source of frames for all contestants.
pub(crate) fn interface_program(programs: &Programs) -> Box<dyn InterfaceProgram> {
    Box::new(RingroadInterface::new(programs))
}

impl Ringroad {
    /// Makes the contestant on `path`.
    #[must_use]
    pub fn new(path: FramePath, programs: Programs, cores: CorePair, stop: &StopFlag) -> Self {
        let signing = Signing::Unsigned;
        let (stop, netmap) = (stop.clone(), None);
        Self { path, signing, netmap, programs, cores, stop, commands: Vec::new(), mode: None }
    }

    /// Makes a contestant on `path` that is a program written for netmap.
    fn as_netmap_program(
        path: FramePath,
        program: NetmapProgram,
        programs: Programs,
        cores: CorePair,
        stop: &StopFlag,
    ) -> Self {
        Self { netmap: Some(program), ..Self::new(path, programs, cores, stop) }
    }

    /// Makes a contestant that is Ringroad's generator on a null port.
    pub(crate) fn generating(signing: Signing, programs: Programs, cores: CorePair, stop: &StopFlag) -> Self {
        Self { signing, ..Self::new(FramePath::GenNull, programs, cores, stop) }
    }

    /// Returns the workers in the order of starting. The first worker counts the frames.
    fn parts(&self, point: &Point) -> Vec<Part> {
        let CorePair { first, second } = self.cores;
        let part = |role, ports: &[&str], cpu| Part {
            role,
            ports: ports.iter().map(|port| (*port).to_owned()).collect(),
            cpu,
        };
        match self.path {
            FramePath::Null => {
                let port = format!("null:size={},copy=0", point.slot_bytes());
                vec![part(WorkerRole::Null, &[&port, &port], second)]
            }
            FramePath::Pipe | FramePath::NetmapPipe => {
                let calls = self.netmap.as_ref().map(|program| program.calls);
                let sink = calls.map_or(WorkerRole::Sink, WorkerRole::NetmapSink);
                let source = calls.map_or(WorkerRole::Source, WorkerRole::NetmapSource);
                vec![part(sink, &["bench}1"], first), part(source, &["bench{1"], second)]
            }
            FramePath::NetmapSwitch => {
                let calls = self.netmap.as_ref().map(|program| program.calls);
                let role = calls.map_or(WorkerRole::OneWay, WorkerRole::NetmapOneWay);
                vec![part(role, &["valebench:a", "valebench:b"], first)]
            }
            FramePath::Switch => vec![part(WorkerRole::Loop, &["valebench:a", "valebench:b"], first)],
            FramePath::GenNull => {
                let port = format!("null:size={},copy=0,no-rx=1", point.slot_bytes());
                vec![part(self.signing.role(), &[&port], second)]
            }
            // Interfaces have another contestant: see `interface`.
            FramePath::Veth(..) => Vec::new(),
        }
    }

    fn start_worker(
        &mut self,
        part: Part,
        point: &Point,
        interval: Duration,
        folder: &Path,
    ) -> Result<WorkerProcess, BenchError> {
        let options = WorkerOptions {
            role: part.role,
            ports: part.ports,
            frame_bytes: point.frame_bytes,
            burst_frames: point.burst_frames,
            cpu: part.cpu,
            interval,
        };
        let socket = socket(folder);
        let mut environment = vec![("RINGROAD_SOCKET", socket.as_os_str())];
        environment.extend(self.netmap.iter().map(|program| ("LD_PRELOAD", program.object.as_os_str())));
        let started =
            WorkerProcess::start(&self.programs, &Namespace::Current, &options, &environment, &self.stop)?;
        self.commands.push(started.command);
        self.mode = Some(started.mode);
        Ok(started.worker)
    }
}

/// Worker process that has its ports and waits for [`GO`].
#[derive(Debug)]
struct WorkerProcess {
    role: WorkerRole,
    process: BenchProcess,
}

/// A started worker and its description.
struct Started {
    worker: WorkerProcess,
    command: String,
    mode: String,
}

impl WorkerProcess {
    fn start(
        programs: &Programs,
        namespace: &Namespace,
        options: &WorkerOptions,
        environment: &[(&str, &OsStr)],
        stop: &StopFlag,
    ) -> Result<Started, BenchError> {
        let role = options.role;
        let arguments: Vec<OsString> = options.to_arguments().into_iter().map(OsString::from).collect();
        let program = programs.worker.as_os_str();
        let command = command_line(program, &arguments);
        let name = format!("worker ({role})");
        let process = BenchProcess::start(namespace, &name, program, &arguments, environment, EndsBy::Input)?;
        let mut worker = Self { role, process };
        let mode = worker.answer("attach", LIMIT, stop, |line| match line {
            WorkerLine::Ready { mode, .. } => Some(mode),
            _ => None,
        })?;
        Ok(Started { worker, command, mode })
    }

    /// Waits for a line that `wanted` accepts. A failure that the worker reports instead is returned as the error.
    fn answer<T>(
        &mut self,
        awaited: &'static str,
        within: Duration,
        stop: &StopFlag,
        mut wanted: impl FnMut(WorkerLine) -> Option<T>,
    ) -> Result<T, BenchError> {
        let role = self.role;
        self.process.wait_for_line(awaited, within, stop, |line| match WorkerLine::parse(line)? {
            WorkerLine::Failed { error } => {
                Some(Err(BenchError::Worker { role: role.word(), message: error }))
            }
            line => wanted(line).map(Ok),
        })?
    }
}

impl Contestant for Ringroad {
    fn name(&self) -> &str {
        match &self.netmap {
            Some(program) => program.name(),
            None if self.path.is_netmap() => "native program",
            None if self.path.is_gen() => self.signing.name(),
            None => "Ringroad",
        }
    }

    fn measure(&mut self, point: &Point, duration: Duration) -> Result<Sample, BenchError> {
        if point.path != self.path {
            return Err(BenchError::WrongPath { contestant: self.name().into(), path: point.path });
        }
        let folder = socket_folder()?;
        self.commands.clear();
        let daemon = match self.path {
            FramePath::Null | FramePath::GenNull | FramePath::Veth(..) => None,
            FramePath::Pipe | FramePath::Switch | FramePath::NetmapPipe | FramePath::NetmapSwitch => {
                let daemon = start_daemon(
                    &self.programs,
                    &Namespace::Current,
                    folder.path(),
                    Some(self.cores.second),
                    &self.stop,
                )?;
                self.commands.push(daemon.command);
                Some(daemon.process)
            }
        };
        let mut workers = Vec::new();
        for part in self.parts(point) {
            workers.push(self.start_worker(part, point, duration, folder.path())?);
        }
        for worker in &mut workers {
            worker.process.tell(GO)?;
        }
        // A pipe does not use the daemon, which then sleeps on the source's core.
        let through_daemon = matches!(self.path, FramePath::Switch | FramePath::NetmapSwitch);
        let datapath = daemon.as_ref().filter(|_| through_daemon);
        let waits = |workers: &[WorkerProcess]| -> Vec<ThreadTimes> {
            workers
                .iter()
                .map(|worker| &worker.process)
                .chain(datapath)
                .map(BenchProcess::thread_times)
                .collect()
        };
        let waits_before = waits(&workers);
        let began = Instant::now();
        let limit = SETTLE + duration + LIMIT;
        let measured = match workers.first_mut() {
            Some(worker) => worker.answer("report its count", limit, &self.stop, |line| match line {
                WorkerLine::Measured(measured) => Some(measured),
                _ => None,
            }),
            None => Err(BenchError::Implausible("no process counts on this path".into())),
        };
        let cpu_wait = cpu_wait_share(&waits_before, &waits(&workers), began.elapsed().max(duration));
        workers.iter_mut().for_each(|worker| worker.process.ask_to_end());
        Sample { cpu_wait, ..sample_of(&measured?) }.checked(duration)
    }

    fn facts(&self) -> ContestantFacts {
        ContestantFacts {
            name: format!("{} ({})", self.name(), self.path),
            version: Some(concat!("Ringroad ", env!("CARGO_PKG_VERSION")).into()),
            commands: self.commands.clone(),
            memory: self.mode.clone().unwrap_or_else(|| "not measured".into()),
            work_per_frame: match self.path {
                FramePath::Null => {
                    "frame copied from the null device into its ring, and copied on into the other ring: 2 copies"
                }
                FramePath::Pipe | FramePath::NetmapPipe => {
                    "source: every byte of the frame written into its slot; buffers change hands: no copy on the way; \
                     sink: every byte copied to private memory, sequence numbers checked"
                }
                FramePath::NetmapSwitch => {
                    "program: every byte of the frame written into its slot; switch: source address learnt, destination \
                     looked up, 1 copy into the receiver's own region; program: every byte copied to private memory, \
                     sequence numbers checked"
                }
                FramePath::Switch => {
                    "generator: 42 header bytes written, payload left as it was; switch: source address learnt, \
                     destination looked up, 1 copy into the receiver's own region; generator: frame dropped unread"
                }
                FramePath::GenNull => self.signing.work_per_frame(),
                FramePath::Veth(..) => "",
            },
            counting: if self.path.is_gen() {
                "by the generator, frames handed over within an interval of its own monotonic clock"
            } else {
                "by the receiving worker, over an interval of its own monotonic clock"
            },
        }
    }

    fn turn_overhead(&self) -> Duration {
        SETTLE + Duration::from_millis(150)
    }
}

/// A daemon of one turn.
pub(crate) struct StartedDaemon {
    pub(crate) process: BenchProcess,
    pub(crate) command: String,
}

/// Starts a daemon with its worker on `cpu`, or on any CPU. All other settings are defaults.
pub(crate) fn start_daemon(
    programs: &Programs,
    namespace: &Namespace,
    folder: &Path,
    cpu: Option<usize>,
    stop: &StopFlag,
) -> Result<StartedDaemon, BenchError> {
    let program = programs.daemon.clone().ok_or(BenchError::DaemonAbsent)?;
    let (socket, config) = (socket(folder), folder.join("ringroadd.toml"));
    std::fs::write(&config, daemon_config(cpu)).map_err(BenchError::TemporaryDirectory)?;
    // Option `--on-demand` makes the daemon end by itself if the bench is killed.
    let arguments: Vec<OsString> = vec![
        "--on-demand".into(),
        "--socket".into(),
        socket.clone().into(),
        "--config".into(),
        config.into(),
    ];
    let command = command_line(program.as_os_str(), &arguments);
    let mut process =
        BenchProcess::start(namespace, "ringroadd", program.as_os_str(), &arguments, &[], EndsBy::Signal)?;
    let began = Instant::now();
    // A daemon in the foreground announces nothing: the first connection shows that it is ready.
    while UnixStream::connect(&socket).is_err() {
        if process.has_ended() {
            return Err(process.exited());
        }
        if began.elapsed() > LIMIT {
            return Err(process.not_ready("listen", LIMIT));
        }
        stop.pass(LISTEN_CHECK)?;
    }
    Ok(StartedDaemon { process, command })
}

/// Returns the daemon's configuration: the CPU of its worker, and defaults.
fn daemon_config(cpu: Option<usize>) -> String {
    let pinned = cpu.map(|cpu| format!("cpus = [{cpu}]\n")).unwrap_or_default();
    format!("[workers]\ncount = 1\n{pinned}\n[log]\nlevel = \"warn\"\n")
}

/// Returns the socket path of a turn's daemon.
pub(crate) fn socket(folder: &Path) -> PathBuf {
    folder.join("ringroad.sock")
}

fn sample_of(measured: &Measured) -> Sample {
    let directions: Vec<(u64, f64)> =
        measured.directions_frames.iter().map(|frames| (*frames, measured.seconds)).collect();
    Sample {
        lost_or_reordered_frames: measured.lost_or_reordered_frames,
        cycles_per_frame: measured.cycles_per_frame,
        ..Sample::of_directions(&directions, 0.0)
    }
}

#[cfg(test)]
mod tests;
