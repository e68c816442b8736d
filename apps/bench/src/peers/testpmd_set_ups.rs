//! The set-ups of testpmd on each path, and their contestants.

use std::ffi::OsString;
use std::rc::Rc;
use std::time::Duration;

use ringroad_guest::testpmd::virtio_user;

use super::telemetry::PortCounter;
use super::testpmd::{Installation, Launch};
use crate::contestant::ContestantFacts;
use crate::ours::{self, Programs};
use crate::plan::{FramePath, InterfaceWork, Mechanism};
use crate::turn::{ProgramContestant, Task};

/// Largest burst of the generator, frames. The virtio driver returns at most 64 frames per receive call
/// (VIRTIO_MBUF_BURST_SZ, DPDK 22.11), and flowgen receives once per burst sent. With a burst of 256 it would send four
/// frames for each frame that it can receive, and the switch would be charged with the loss. The switch keeps the
/// configured burst.
const GENERATOR_BURST_FRAMES: u32 = 64;

/// Names of testpmd's ways to make frames, their options, and their work on each frame before the driver gets it:
///
/// - the same frame each time, with the headers written into each buffer;
/// - new headers for each frame, with the flow's address and checksum. There is one flow, as for all contestants.
const GENERATORS: [(&str, &[&str], &str); 2] = [
    (
        "DPDK txonly",
        &["--forward-mode=txonly"],
        "buffer allocated, 42 header bytes written, payload left as it was",
    ),
    (
        "DPDK flowgen",
        &["--forward-mode=flowgen", "--flowgen-flows=1"],
        "buffer allocated, 42 header bytes computed and written with the IPv4 checksum, payload left as it was",
    ),
];

/// Returns testpmd's contestants. On interfaces they need `source`, the source of frames.
pub(super) fn contestants(
    installation: &Rc<Installation>,
    source: Option<&Programs>,
) -> Vec<ProgramContestant> {
    let mut all = Vec::new();
    if source.is_some() {
        all.extend(on_interfaces());
    }
    all.extend(in_memory());
    all.retain(|set_up| !set_up.needs_hugepages || installation.has_hugepages());
    all.into_iter().map(|set_up| set_up.contestant(installation, source)).collect()
}

type Launches = Box<dyn Fn(&Task<'_>) -> Vec<Launch>>;

/// A set-up of testpmd processes.
struct SetUp {
    name: &'static str,
    path: FramePath,
    work_per_frame: &'static str,
    needs_hugepages: bool,
    /// Counter of the counted ports.
    counter: PortCounter,
    /// Returns the processes in the order of starting.
    launches: Launches,
}

impl SetUp {
    fn new(
        name: &'static str,
        path: FramePath,
        work_per_frame: &'static str,
        launches: impl Fn(&Task<'_>) -> Vec<Launch> + 'static,
    ) -> Self {
        let counter = if path == FramePath::GenNull { PortCounter::Sent } else { PortCounter::Received };
        Self { name, path, work_per_frame, needs_hugepages: false, counter, launches: Box::new(launches) }
    }

    fn contestant(self, installation: &Rc<Installation>, source: Option<&Programs>) -> ProgramContestant {
        let Self { name, path, work_per_frame, counter, launches, .. } = self;
        let facts = ContestantFacts {
            name: if path.is_veth() { format!("{name} ({path})") } else { name.into() },
            memory: installation.memory(),
            work_per_frame,
            counting: match counter {
                PortCounter::Received => {
                    "the receiving ports' own counters, read over DPDK's telemetry socket at both ends of the interval"
                }
                PortCounter::Sent => {
                    "the sending ports' own counters, read over DPDK's telemetry socket at both ends of the interval"
                }
            },
            ..ContestantFacts::default()
        };
        // Measured start-up times: 0.3 s for one process, 0.9 s more for a process with virtio-user, then the time
        // until the first frame.
        let start_up_ms = match path {
            FramePath::Null | FramePath::GenNull => 400,
            FramePath::Veth(..) => 700,
            _ => 1300,
        };
        let installation = Rc::clone(installation);
        ProgramContestant {
            name,
            path,
            facts,
            start: Box::new(move |task| {
                installation.start(&launches(task), counter, task.namespace, task.folder, task.stop)
            }),
            start_up: Duration::from_millis(start_up_ms),
            source: source.and_then(ours::source),
        }
    }
}

/// Returns the options of a mode that makes frames.
fn sending(options: &[&str], task: &Task<'_>) -> Vec<String> {
    let size = format!("--txpkts={}", task.point.slot_bytes());
    options.iter().map(|&option| option.into()).chain([size]).collect()
}

/// Returns the set-ups on paths without interfaces.
fn in_memory() -> Vec<SetUp> {
    let null =
        |name, copy, work| SetUp::new(name, FramePath::Null, work, move |task| vec![null_ports(copy, task)]);
    let memif = |name, zero_copy, work| {
        SetUp::new(name, FramePath::Pipe, work, move |task| {
            let device = |role| {
                let socket = task.folder.join("memif");
                format!("net_memif0,role={role},id=0,socket={},socket-abstract=no", socket.display())
            };
            let sending = sending(&["--forward-mode=txonly"], task);
            pair(device("server").into(), (device("client") + zero_copy).into(), sending, task)
        })
    };
    let [null_generator, other_null_generator] = GENERATORS.map(|(name, options, work)| {
        SetUp::new(name, FramePath::GenNull, work, move |task| {
            let device = format!("net_null0,size={},copy=0,no-rx=1", task.point.slot_bytes());
            vec![Launch {
                role: "generator",
                cpus: vec![task.cores.second],
                devices: vec![device.into()],
                burst_frames: task.point.burst_frames,
                mode: sending(options, task),
                counted_ports: 1,
                ..Launch::default()
            }]
        })
    });
    vec![
        null("DPDK null", 0, "buffer allocated and freed: no byte of the frame written or read"),
        null(
            "DPDK null, copying",
            1,
            "buffer allocated, frame copied in, frame copied out, buffer freed: 2 copies",
        ),
        memif(
            "DPDK memif",
            "",
            "sender: buffer allocated, 42 header bytes written, payload left as it was; memif copies the frame into the \
             shared ring and, at the receiver, out of it: 2 copies; frame freed unread",
        ),
        SetUp::new(
            "DPDK vhost-user",
            FramePath::Pipe,
            "sender: buffer allocated, 42 header bytes written, payload left as it was, buffer's address put into the \
             ring; receiver: vhost copies the frame out of the sender's memory: 1 copy; frame freed unread",
            |task| {
                let socket = task.folder.join("vhost");
                let sending = [sending(&["--forward-mode=txonly"], task), virtio_rings()].concat();
                let device = format!("net_vhost0,iface={},queues=1", socket.display());
                pair(device.into(), virtio_user(0, &socket, 1), sending, task)
            },
        ),
        SetUp::new(
            "DPDK io, 2 vhost-user",
            FramePath::Switch,
            "generator (bursts of 64 at most): buffer allocated, 42 header bytes written, payload left as it was; switch: vhost copies the frame in \
             and out again: 2 copies, no address looked up, nothing learnt; generator: frame freed unread",
            vhost_user_switch,
        ),
        null_generator,
        other_null_generator,
        // The driver supports sharing of packet memory only for the client.
        SetUp {
            needs_hugepages: true,
            ..memif(
                "DPDK memif, zero copy",
                ",zero-copy=yes",
                "sender: buffer allocated, 42 header bytes written, payload left as it was, buffer's address put into the \
                 ring; receiver: memif copies the frame out of the sender's memory: 1 copy; frame freed unread",
            )
        },
    ]
}

/// Returns a process between two ports that invent received frames and drop sent frames: the cost of the framework
/// itself. `copy` is 1 if the ports copy the bytes of a frame on each side, like a real device.
fn null_ports(copy: u8, task: &Task<'_>) -> Launch {
    let device = |port| format!("net_null{port},size={},copy={copy}", task.point.slot_bytes()).into();
    Launch {
        role: "null",
        cpus: vec![task.cores.second],
        devices: (0..2).map(device).collect(),
        burst_frames: task.point.burst_frames,
        mode: vec!["--forward-mode=io".into()],
        counted_ports: 2,
        ..Launch::default()
    }
}

/// Returns two processes with a device each: one only receives, the other only sends.
fn pair(receiver: OsString, sender: OsString, sending: Vec<String>, task: &Task<'_>) -> Vec<Launch> {
    let burst_frames = task.point.burst_frames;
    vec![
        Launch {
            role: "receiver",
            cpus: vec![task.cores.first],
            devices: vec![receiver],
            burst_frames,
            mode: vec!["--forward-mode=rxonly".into()],
            counted_ports: 1,
            ..Launch::default()
        },
        Launch {
            role: "sender",
            cpus: vec![task.cores.second],
            devices: vec![sender],
            burst_frames,
            mode: sending,
            ..Launch::default()
        },
    ]
}

/// Returns the options for rings as long as those of virtio-user ports.
fn virtio_rings() -> Vec<String> {
    vec!["--txd=1024".into(), "--rxd=1024".into()]
}

/// Returns a switch between two vhost-user ports, and a process that loads it both ways.
///
/// The generator's mode is flowgen: for each port in turn it receives and drops a burst, then sends a burst. So one
/// core loads both directions and counts them. The switch forwards in `io` mode: frames received at one port leave at
/// the other, without checking addresses.
fn vhost_user_switch(task: &Task<'_>) -> Vec<Launch> {
    let socket = |port: usize| task.folder.join(format!("vhost{port}"));
    let vhost = |port| format!("net_vhost{port},iface={},queues=1", socket(port).display()).into();
    vec![
        Launch {
            role: "switch",
            cpus: vec![task.cores.second],
            devices: (0..2).map(vhost).collect(),
            burst_frames: task.point.burst_frames,
            mode: vec!["--forward-mode=io".into()],
            ..Launch::default()
        },
        Launch {
            role: "generator",
            cpus: vec![task.cores.first],
            devices: (0..2).map(|port| virtio_user(port, &socket(port), 1)).collect(),
            burst_frames: task.point.burst_frames.min(GENERATOR_BURST_FRAMES),
            mode: [sending(&["--forward-mode=flowgen", "--flowgen-flows=1"], task), virtio_rings()].concat(),
            counted_ports: 2,
            ..Launch::default()
        },
    ]
}

/// Returns the set-ups on interfaces, over testpmd's AF_XDP and AF_PACKET drivers.
fn on_interfaces() -> Vec<SetUp> {
    let mut set_ups = Vec::new();
    for mechanism in [Mechanism::Xdp, Mechanism::Packet] {
        let (name, works) = if mechanism == Mechanism::Xdp {
            (
                "DPDK net_af_xdp",
                [
                    "buffer allocated, 42 header bytes written, payload left as it was; copied by the kernel",
                    "copied by the kernel; freed unread",
                    "copied by the kernel twice, in and out; the buffer changes hands",
                ],
            )
        } else {
            (
                "DPDK net_af_packet",
                [
                    "buffer allocated, 42 header bytes written, payload left as it was; copied into the ring, and by the kernel",
                    "copied by the kernel, and out of the ring; freed unread",
                    "copied by the kernel, out of the ring, into the other ring, and by the kernel",
                ],
            )
        };
        let flows = [InterfaceWork::Tx, InterfaceWork::Rx, InterfaceWork::Io];
        let plain = flows.into_iter().zip(works).map(|(flow, work)| (name, flow, &[][..], work));
        let generators =
            GENERATORS.into_iter().map(|(name, options, work)| (name, InterfaceWork::Gen, options, work));
        set_ups.extend(plain.chain(generators).map(|(name, flow, options, work)| {
            let launches = move |task: &Task<'_>| {
                let mode = match flow {
                    InterfaceWork::Tx => sending(&["--forward-mode=txonly"], task),
                    InterfaceWork::Gen => sending(options, task),
                    InterfaceWork::Rx => vec!["--forward-mode=rxonly".into()],
                    InterfaceWork::Io => vec!["--forward-mode=io".into()],
                };
                vec![interface_launch(mechanism, mode, task)]
            };
            SetUp::new(name, FramePath::Veth(mechanism, flow), work, launches)
        }));
    }
    set_ups
}

fn interface_launch(mechanism: Mechanism, mode: Vec<String>, task: &Task<'_>) -> Launch {
    let device = |(number, interface): (usize, &&str)| match mechanism {
        Mechanism::Xdp => format!("net_af_xdp{number},iface={interface}").into(),
        // The driver bypasses the queueing discipline, as Ringroad does.
        Mechanism::Packet | Mechanism::Pcap => {
            format!("net_af_packet{number},iface={interface},qdisc_bypass=1").into()
        }
    };
    Launch {
        role: "interface",
        cpus: vec![task.cpu],
        devices: task.interfaces.iter().enumerate().map(device).collect(),
        burst_frames: task.point.burst_frames,
        mode,
        counted_ports: 1,
        ..Launch::default()
    }
}
