//! Ringroad's contestants: worker processes of the program's own binary, started and queried like the peers.
//!
//! Each turn has its own daemon socket in a private folder, so a daemon in daily use is neither measured nor disturbed.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::contestant::{ContestantFacts, CorePair};
use crate::contestants::Contestants;
use crate::error::BenchError;
use crate::facts::allowed_cpus;
use crate::plan::{FramePath, InterfaceWork, Mechanism};
use crate::process::{BenchProcess, EndsBy, PATIENCE};
use crate::stop::StopFlag;
use crate::turn::{DaemonPart, FrameCounter, ProgramContestant, StartSource, Task, Turn, WORKER_START_UP};
use crate::worker::{COUNT, GO, SocketCall, WorkerLine, WorkerOptions, WorkerRole};

/// Time between attempts to connect to a socket until a daemon listens there.
const LISTEN_CHECK: Duration = Duration::from_millis(5);

/// Kinds of the generator: whether its frames carry stream, number and time of departure. Name, role and work.
const GENERATORS: [(&str, WorkerRole, &str); 2] = [
    (
        "Ringroad, signed",
        WorkerRole::Generate,
        "frame written into the slot, with stream, sequence number, time, their checksum and the UDP checksum; departure \
         and timing accounted for",
    ),
    (
        "Ringroad, unsigned",
        WorkerRole::GenerateUnsigned,
        "frame written into the slot; departure and timing accounted for",
    ),
];

/// Contestants on the paths of netmap programs, with the roles of their workers over a pipe and over a switch. The
/// native one is the peer of the others.
const NETMAP: [(&str, [WorkerRole; 2], WorkerRole); 3] = [
    (
        "netmap program, ioctl",
        [WorkerRole::NetmapSyncSink, WorkerRole::NetmapSyncSource],
        WorkerRole::NetmapSyncOneWay,
    ),
    (
        "netmap program, poll",
        [WorkerRole::NetmapPollSink, WorkerRole::NetmapPollSource],
        WorkerRole::NetmapPollOneWay,
    ),
    (NATIVE, [WorkerRole::Sink, WorkerRole::Source], WorkerRole::OneWay),
];

/// Name of the native program beside netmap programs.
const NATIVE: &str = "native program";

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

/// Adds Ringroad's contestants on every path.
pub fn enter(contestants: &mut Contestants, programs: &Programs) {
    for (path, roles) in [
        (FramePath::Null, &[WorkerRole::Null][..]),
        (FramePath::Pipe, &[WorkerRole::Sink, WorkerRole::Source]),
        (FramePath::Switch, &[WorkerRole::Loop]),
    ] {
        contestants.enter(true, workers("Ringroad", path, roles, None, programs));
    }
    for (name, role, work) in GENERATORS {
        contestants.enter(true, workers(name, FramePath::GenNull, &[role], None, programs));
        for mechanism in [Mechanism::Xdp, Mechanism::Packet] {
            let path = FramePath::Veth(mechanism, InterfaceWork::Gen);
            contestants.enter(true, on_interfaces(name, path, role, work, programs));
        }
    }
    enter_sends(contestants, programs);
    if let Some(object) = preloaded_object(contestants, programs, "libringroad_preload_pcap.so", "libpcap") {
        enter_libpcap(contestants, programs, Some(&object));
    }
    if let Some(object) = preloaded_object(contestants, programs, "libringroad_preload_netmap.so", "netmap") {
        for path in FramePath::NETMAP.into_iter().chain(FramePath::CORES) {
            for contestant in netmap_contestants(path, &object, programs) {
                contestants.enter(contestant.name != NATIVE, contestant);
            }
        }
    }
    for path in FramePath::VETH {
        let (role, work) = match path {
            FramePath::Veth(_, InterfaceWork::Rx) => (
                WorkerRole::Receive,
                "copied by the kernel, over AF_PACKET out of its ring as well; dropped unread",
            ),
            FramePath::Veth(_, InterfaceWork::Io) => (
                WorkerRole::Forward,
                "copied by the kernel twice, in and out; the buffer changes hands, over AF_PACKET it is copied out of one ring \
                 and into the other",
            ),
            _ => (
                WorkerRole::Send,
                "42 header bytes written into the slot, payload left as it was; copied by the kernel, over AF_PACKET into its \
                 ring as well",
            ),
        };
        contestants.enter(true, on_interfaces("Ringroad", path, role, work, programs));
    }
}

/// Finds an object for foreign programs near Ringroad's program: in the folder of the build, or installed. Notes its
/// absence.
fn preloaded_object(
    contestants: &mut Contestants,
    programs: &Programs,
    file: &str,
    library: &str,
) -> Option<PathBuf> {
    let folder = programs.worker.parent().unwrap_or(Path::new(""));
    let objects = [folder.to_owned(), folder.join("../lib/ringroad")].map(|folder| folder.join(file));
    let object = objects.into_iter().find(|object| object.is_file());
    if object.is_none() {
        let reason = format!("it is not beside {}: make build", programs.worker.display());
        contestants.leave_out(&format!("Ringroad's object for {library} programs"), reason);
    }
    object
}

/// Makes a contestant of workers with these roles on a path without interfaces; the first counts the frames. `object`
/// is preloaded into programs written for netmap.
fn workers(
    name: &'static str,
    path: FramePath,
    roles: &[WorkerRole],
    object: Option<&Path>,
    programs: &Programs,
) -> ProgramContestant {
    let facts = ContestantFacts {
        work_per_frame: match path {
            FramePath::Null => {
                "frame copied from the null device into its ring, and copied on into the other ring: 2 copies"
            }
            FramePath::Cores(_) => {
                "each process: every byte of the frame written into its slot; buffers change hands; at the other end, \
                 in the same process, every byte copied to private memory, sequence numbers checked"
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
            FramePath::GenNull | FramePath::Veth(..) | FramePath::Send => {
                GENERATORS.iter().find(|(generator, ..)| *generator == name).map_or("", |(.., work)| work)
            }
        },
        counting: if path.is_gen() {
            "by the generator, frames handed over within an interval of its own monotonic clock"
        } else {
            "by the receiving worker, over an interval of its own monotonic clock"
        },
        ..own_facts(name, path)
    };
    let (roles, object, own) = (roles.to_vec(), object.map(Path::to_owned), programs.clone());
    let start = move |task: &Task<'_>| {
        let part = match path {
            FramePath::Switch | FramePath::NetmapSwitch => Some(DaemonPart::Carries),
            // A pipe does not use the daemon, which then sleeps on the source's core.
            FramePath::Pipe | FramePath::NetmapPipe | FramePath::Cores(_) => Some(DaemonPart::None),
            _ => None,
        };
        let daemon = match part {
            Some(part) => Some((start_daemon(&own, task, Some(task.cores.second))?, part)),
            None => None,
        };
        let mut started = Vec::new();
        for (&role, (ports, cpu)) in roles.iter().zip(ports(path, task)) {
            started.push(start_worker(&own, role, ports, &Task { cpu, ..*task }, object.as_deref())?);
        }
        let mut started = started.into_iter();
        let mut turn = started.next().ok_or_else(|| BenchError::Implausible("no process counts".into()))?;
        for other in started {
            turn.memory = other.memory;
            turn.others.push(other.first);
            if matches!(path, FramePath::Cores(_)) {
                turn.other_counters.push(other.counter);
            }
        }
        Ok(Turn { daemon, ..turn })
    };
    ProgramContestant { name, path, facts, start: Box::new(start), start_up: WORKER_START_UP, source: None }
}

fn own_facts(name: &str, path: FramePath) -> ContestantFacts {
    ContestantFacts {
        name: format!("{name} ({path})"),
        version: Some(concat!("Ringroad ", env!("CARGO_PKG_VERSION")).into()),
        memory: "not measured".into(),
        ..ContestantFacts::default()
    }
}

/// Returns ports and CPU of each worker on a path without interfaces.
fn ports(path: FramePath, task: &Task<'_>) -> Vec<(Vec<String>, usize)> {
    let CorePair { first, second } = task.cores;
    let null = format!("null:size={},copy=0", task.point.slot_bytes());
    match path {
        FramePath::Null => vec![(vec![null.clone(), null], second)],
        FramePath::GenNull => vec![(vec![null + ",no-rx=1"], second)],
        FramePath::Pipe | FramePath::NetmapPipe => {
            vec![(vec!["bench}1".into()], first), (vec!["bench{1".into()], second)]
        }
        FramePath::Switch | FramePath::NetmapSwitch => {
            vec![(vec!["valebench:a".into(), "valebench:b".into()], first)]
        }
        FramePath::Cores(cores) => {
            let ends = |number| vec![format!("bench{{{number}"), format!("bench}}{number}")];
            (1..=cores).map(ends).zip(allowed_cpus()).collect()
        }
        FramePath::Veth(..) | FramePath::Send => Vec::new(),
    }
}

/// Makes the contestants on a path of netmap programs, with `object` preloaded into those.
fn netmap_contestants(path: FramePath, object: &Path, programs: &Programs) -> Vec<ProgramContestant> {
    let contestant = |(name, over_pipe, over_switch): (_, [WorkerRole; 2], WorkerRole)| {
        let one_way = vec![over_switch; path.cores()];
        let roles = if path == FramePath::NetmapPipe { &over_pipe[..] } else { &one_way };
        workers(name, path, roles, (name != NATIVE).then_some(object), programs)
    };
    NETMAP.map(contestant).into()
}

/// Makes the contestant that opens interfaces itself and steps the datapath on its own thread.
fn on_interfaces(
    name: &'static str,
    path: FramePath,
    role: WorkerRole,
    work_per_frame: &'static str,
    programs: &Programs,
) -> ProgramContestant {
    let own = programs.clone();
    ProgramContestant {
        name,
        path,
        facts: ContestantFacts { work_per_frame, ..own_facts(name, path) },
        start: Box::new(move |task| start_worker(&own, role, interface_ports(path, task), task, None)),
        start_up: WORKER_START_UP,
        source: source(programs),
    }
}

/// Steps of a frame's send: name, role, port, and the work on the frame. Each step does the work of the step before it,
/// and more.
const OUR_SENDS: [(&str, WorkerRole, &str, &str); 3] = [
    (
        "slot",
        WorkerRole::Fill,
        "null:no-rx=1",
        "42 header bytes written into the slot, its length set; not handed over",
    ),
    (
        "null port",
        WorkerRole::Send,
        "null:no-rx=1",
        "the same; handed over, and taken by datapath and null device",
    ),
    (
        SENT,
        WorkerRole::Send,
        "xdp:bench0",
        "the same, over AF_XDP: copied by the kernel, and passed to the far interface",
    ),
];

/// Name of the whole send by Ringroad.
const SENT: &str = "AF_XDP, veth";

/// Steps of a send by a socket: name, call, and what the call goes through.
const SOCKET_SENDS: [(&str, SocketCall, &str); 8] = [
    ("loop", SocketCall::Loop, "a turn of the loop, without a call"),
    ("getppid", SocketCall::SystemCall, "the way into the kernel and back"),
    ("sendto, no socket", SocketCall::NoSocket, "table of descriptors: EBADF"),
    ("UDP, no route", SocketCall::NoRoute, "socket, address copied in, table of routes: ENETUNREACH"),
    (
        "UDP, full TAP",
        SocketCall::UdpTap,
        "buffer, payload copied in, headers, neighbour, queueing discipline; dropped by the driver",
    ),
    ("UDP, veth", SocketCall::UdpVeth, "the same, passed to the far interface, whose stack drops it"),
    (
        "packet, full TAP",
        SocketCall::PacketTap,
        "buffer, frame copied in, queueing discipline; dropped by the driver",
    ),
    ("packet, veth", SocketCall::PacketVeth, "the same, passed to the far interface, whose stack drops it"),
];

/// Adds the steps of a frame's send.
fn enter_sends(contestants: &mut Contestants, programs: &Programs) {
    let ours = OUR_SENDS.map(|(name, role, port, work)| (true, name, role, port.to_owned(), work));
    let sockets =
        SOCKET_SENDS.map(|(name, call, work)| (false, name, WorkerRole::SocketSend, call.to_string(), work));
    for (is_ours, name, role, port, work_per_frame) in ours.into_iter().chain(sockets) {
        let own = programs.clone();
        let contestant = ProgramContestant {
            name,
            path: FramePath::Send,
            facts: ContestantFacts {
                work_per_frame,
                counting: "by the program itself: frames handed over, or calls",
                memory: if is_ours { "not measured" } else { "the kernel's" }.into(),
                ..own_facts(name, FramePath::Send)
            },
            start: Box::new(move |task| {
                let turn = start_worker(&own, role, vec![port.clone()], task, None)?;
                Ok(if is_ours { turn } else { Turn { memory: None, ..turn } })
            }),
            start_up: WORKER_START_UP,
            source: None,
        };
        contestants.enter(is_ours, contestant);
    }
}

/// Returns the ports of a task on interfaces. The sending port shares the other port's region, so that buffers can be
/// exchanged.
fn interface_ports(path: FramePath, task: &Task<'_>) -> Vec<String> {
    let port = |interface: &&str| match path {
        // Immediate mode, since a forwarder must not wait for a block of frames.
        FramePath::Veth(Mechanism::Packet, InterfaceWork::Io) => format!("packet:{interface}@immediate=1"),
        FramePath::Veth(Mechanism::Packet, _) => format!("packet:{interface}"),
        _ => format!("xdp:{interface}"),
    };
    let mut ports: Vec<String> = task.interfaces.iter().map(port).collect();
    if let [first, second] = ports.as_mut_slice() {
        let name = first.split('@').next().unwrap_or_default();
        second.push_str("@share=");
        second.push_str(name);
    }
    ports
}

/// The source of frames of all contestants that receive from interfaces: Ringroad's sender over AF_XDP.
pub(crate) fn source(programs: &Programs) -> Option<StartSource> {
    let (own, path) = (programs.clone(), FramePath::Veth(Mechanism::Xdp, InterfaceWork::Tx));
    Some(Box::new(move |task| {
        Ok(start_worker(&own, WorkerRole::Send, interface_ports(path, task), task, None)?.first)
    }))
}

/// Adds the program over libpcap, with an object before the system's library or without.
pub(crate) fn enter_libpcap(contestants: &mut Contestants, programs: &Programs, object: Option<&Path>) {
    for path in FramePath::PCAP {
        let is_receiver = matches!(path, FramePath::Veth(_, InterfaceWork::Rx | InterfaceWork::Io));
        let name = if object.is_some() { "Ringroad (libpcap program)" } else { "libpcap" };
        let memory = match object {
            Some(_) => "rings of 4096 slots, AF_XDP rings of 8192 descriptors, the object's own choice",
            None => "a ring of 2 MiB, libpcap's default",
        };
        let (role, work_per_frame) = match path {
            FramePath::Veth(_, InterfaceWork::Rx) => {
                (WorkerRole::PcapReceive, "a callback of pcap_dispatch counts it, unread")
            }
            FramePath::Veth(_, InterfaceWork::Io) => {
                (WorkerRole::PcapForward, "a callback of pcap_dispatch hands it to pcap_inject")
            }
            _ => (WorkerRole::PcapSend, "one frame handed to pcap_inject over and over"),
        };
        let (own, preloaded) = (programs.clone(), object.map(Path::to_owned));
        let start = move |task: &Task<'_>| {
            let daemon = match preloaded {
                // The daemon of a receiver runs on the receiver's processor, since the source uses the second
                // processor.
                Some(_) if is_receiver => {
                    Some((start_daemon(&own, task, Some(task.cpu))?, DaemonPart::SharesProcessor))
                }
                Some(_) => Some((start_daemon(&own, task, None)?, DaemonPart::None)),
                None => None,
            };
            let scheme = if preloaded.is_some() { "xdp:" } else { "" };
            let devices = task.interfaces.iter().map(|interface| format!("{scheme}{interface}")).collect();
            let turn = start_worker(&own, role, devices, task, preloaded.as_deref())?;
            Ok(Turn { daemon, memory: None, ..turn })
        };
        let contestant = ProgramContestant {
            name,
            path,
            facts: ContestantFacts {
                name: format!("{name} ({path})"),
                memory: memory.into(),
                work_per_frame,
                ..ContestantFacts::default()
            },
            start: Box::new(start),
            start_up: WORKER_START_UP,
            source: source(programs),
        };
        contestants.enter(object.is_some(), contestant);
    }
}

/// Starts a worker and its work on `ports`, with `object` before the libraries of a foreign program.
fn start_worker(
    programs: &Programs,
    role: WorkerRole,
    ports: Vec<String>,
    task: &Task<'_>,
    object: Option<&Path>,
) -> Result<Turn, BenchError> {
    let (frame_bytes, burst_frames) = (task.point.frame_bytes, task.point.burst_frames);
    let options = WorkerOptions { role, ports, frame_bytes, burst_frames, cpu: task.cpu };
    let arguments = options.to_arguments().into_iter().map(OsString::from);
    let command: Vec<_> = std::iter::once(programs.worker.clone().into()).chain(arguments).collect();
    let socket = socket(task.folder);
    let mut environment = vec![("RINGROAD_SOCKET", socket.as_os_str())];
    environment.extend(object.map(|object| ("LD_PRELOAD", object.as_os_str())));
    let name = format!("worker ({})", role.word());
    let mut process = BenchProcess::start(task.namespace, &name, &[], &command, &environment, EndsBy::Input)?;
    let mode = answer(&mut process, role, "attach", task.stop, |line| match line {
        WorkerLine::Ready { mode, .. } => Some(mode),
        _ => None,
    })?;
    process.tell(GO)?;
    let counter: FrameCounter = Box::new(move |process, stop| {
        // A worker that has failed tells why.
        let _ = process.tell(COUNT);
        answer(process, role, "report its count", stop, |line| match line {
            WorkerLine::Counted(counts) => Some(counts.into()),
            _ => None,
        })
    });
    Ok(Turn { memory: Some(mode), ..Turn::of(process, counter) })
}

/// Waits for a line of a worker that `wanted` accepts. A failure that the worker reports instead is returned as the
/// error.
fn answer<T>(
    process: &mut BenchProcess,
    role: WorkerRole,
    awaited: &'static str,
    stop: &StopFlag,
    mut wanted: impl FnMut(WorkerLine) -> Option<T>,
) -> Result<T, BenchError> {
    process.wait_for_line(awaited, stop, |line| match WorkerLine::parse(line)? {
        WorkerLine::Failed { error } => Some(Err(BenchError::Worker { role: role.word(), message: error })),
        line => wanted(line).map(Ok),
    })?
}

/// Starts a daemon with its worker on `cpu`, or on any CPU. All other settings are defaults.
fn start_daemon(
    programs: &Programs,
    task: &Task<'_>,
    cpu: Option<usize>,
) -> Result<BenchProcess, BenchError> {
    let program = programs.daemon.clone().ok_or(BenchError::DaemonAbsent)?;
    let (socket, config) = (socket(task.folder), task.folder.join("ringroadd.toml"));
    std::fs::write(&config, daemon_config(cpu)).map_err(BenchError::TemporaryDirectory)?;
    // Option `--on-demand` makes the daemon end by itself if the bench is killed.
    let command: [OsString; 6] = [
        program.into(),
        "--on-demand".into(),
        "--socket".into(),
        socket.clone().into(),
        "--config".into(),
        config.into(),
    ];
    let mut process = BenchProcess::start(task.namespace, "ringroadd", &[], &command, &[], EndsBy::Signal)?;
    let began = Instant::now();
    // A daemon in the foreground announces nothing: the first connection shows that it is ready.
    while UnixStream::connect(&socket).is_err() {
        if process.has_ended() {
            return Err(process.exited());
        }
        if began.elapsed() > PATIENCE {
            return Err(process.not_ready("listen"));
        }
        task.stop.pass(LISTEN_CHECK)?;
    }
    Ok(process)
}

/// Returns the daemon's configuration: the CPU of its worker, and defaults.
fn daemon_config(cpu: Option<usize>) -> String {
    let pinned = cpu.map(|cpu| format!("cpus = [{cpu}]\n")).unwrap_or_default();
    format!("[workers]\ncount = 1\n{pinned}\n[log]\nlevel = \"warn\"\n")
}

/// Returns the socket path of a turn's daemon.
fn socket(folder: &Path) -> PathBuf {
    folder.join("ringroad.sock")
}

#[cfg(test)]
mod tests;
