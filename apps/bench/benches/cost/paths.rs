//! The table of paths.

use std::path::{Path, PathBuf};

use ringroad_bench::cost::callgrind::{self, CallgrindCounts};

use crate::testbed::{Card, CardRole};
use crate::{COUNTED, Failure, decision, flows, generator, interface, switch, vhost_user, workers};

/// Frames of a burst.
pub(crate) const BURST: u32 = 32;
/// Two bursts, which separate the cost of a call from the cost of a frame.
pub(crate) const BURSTS: [u32; 2] = [BURST, 256];
/// The object that `ringroad run` puts before the libraries of a program written for netmap.
const NETMAP_OBJECT: &str = "libringroad_preload_netmap.so";

/// The program of the build that moves frames of a card by DPDK: its arguments are the direction, the card, the frames
/// of a burst, and the frames to move.
const OF_CARD: &str = "dpdk-szedata2/cost-card";

/// A turn of a program: moves a burst, and adds its frames to those moved.
pub(crate) type ProgramTurn = Box<dyn FnMut(&mut u64) -> Result<(), Failure>>;

/// Runs under valgrind.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) need: Need,
    /// The function within which callgrind counts.
    pub(crate) counted: &'static str,
    pub(crate) run: Run,
}

/// Kinds of programs.
pub(crate) enum Run {
    /// This process, after the function has prepared it to move bursts of the given number of frames.
    Here(fn(u32) -> Result<ProgramTurn, Failure>),
    /// [`OF_CARD`], with a card that does this.
    OfCard(CardRole),
}

/// Other things that a program needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// Network namespaces.
    Root,
    /// A daemon of its own.
    Daemon,
    /// The same, and the object for netmap programs before its libraries.
    NetmapObject,
}

impl Need {
    /// Why the program cannot run here, if so.
    pub(crate) fn missing(self) -> Option<&'static str> {
        match self {
            Self::Root if !rustix::process::geteuid().is_root() => Some("needs root"),
            _ => None,
        }
    }

    /// Makes these things in `folder`; returns the environment for the program to find them.
    fn environment(self, folder: &Path) -> Result<Vec<(String, String)>, Failure> {
        if !matches!(self, Self::Daemon | Self::NetmapObject) {
            return Ok(Vec::new());
        }
        let socket = folder.join("ringroad.sock");
        // It ends by itself, after the program.
        ringroad::start_daemon(&socket, &["--on-demand"])?;
        let mut environment = vec![("RINGROAD_SOCKET".to_owned(), socket.display().to_string())];
        if self == Self::NetmapObject {
            environment.push(("LD_PRELOAD".to_owned(), built(NETMAP_OBJECT)?.display().to_string()));
        }
        Ok(environment)
    }
}

impl Program {
    /// Counts it over `frames` frames; callgrind writes into `file`.
    pub(crate) fn count(
        &self,
        burst: u32,
        frames: u64,
        file: &Path,
    ) -> Result<(u64, CallgrindCounts), Failure> {
        let folder = tempfile::Builder::new().prefix("rr-").tempdir()?;
        let environment = self.need.environment(folder.path())?;
        let [burst, frames] = [burst.to_string(), frames.to_string()];
        let (program, words, _card) = match self.run {
            Run::Here(_) => {
                let words = vec!["count".to_owned(), self.name.to_owned(), burst, frames];
                (std::env::current_exe()?, words, None)
            }
            Run::OfCard(role) => {
                let path = folder.path().join("card");
                let card = Card::open(&path, role)?;
                let direction = match role {
                    CardRole::Feeds => "receive",
                    CardRole::Idles => "transmit",
                };
                (
                    built(OF_CARD)?,
                    vec![direction.into(), path.display().to_string(), burst, frames],
                    Some(card),
                )
            }
        };
        Ok(callgrind::count(&program, &words, &environment, self.counted, file)?)
    }
}

/// A file of the build, which is a folder or two above this program's.
fn built(file: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()?;
    let found = own.ancestors().skip(1).take(3).map(|folder| folder.join(file)).find(|file| file.is_file());
    found.ok_or_else(|| format!("{file} is not above {}: make cost builds it", own.display()).into())
}

/// Kinds of a path's figure.
pub(crate) enum Formula {
    /// The cost of a frame.
    PerFrame(Program),
    /// The cost of each frame of a call beyond a native program's.
    FrameBeyond { ours: &'static Program, native: &'static Program },
    /// The cost of a call beyond a native program's, without its frames; there are `calls` for each burst.
    CallBeyond { ours: &'static Program, native: &'static Program, calls: f64 },
}

impl Formula {
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Program> {
        let (first, second) = match self {
            Self::PerFrame(program) => (program, None),
            Self::FrameBeyond { ours, native } | Self::CallBeyond { ours, native, .. } => {
                (*ours, Some(*native))
            }
        };
        std::iter::once(first).chain(second)
    }
}

/// A path.
pub(crate) struct PathOf {
    /// As in the file of budgets.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) formula: Formula,
}

const fn frame(
    name: &'static str,
    need: Need,
    set_up: fn(u32) -> Result<ProgramTurn, Failure>,
    about: &'static str,
) -> PathOf {
    PathOf {
        name,
        about,
        formula: Formula::PerFrame(Program { name, need, counted: COUNTED, run: Run::Here(set_up) }),
    }
}

/// A program written for netmap is not changed to be counted: it calls the object's `ioctl` and nothing else of ours.
static NETMAP: Program = Program {
    name: "netmap",
    need: Need::NetmapObject,
    counted: "ioctl",
    run: Run::Here(workers::netmap_syncs),
};
static NATIVE: Program =
    Program { name: "native", need: Need::Daemon, counted: COUNTED, run: Run::Here(workers::native_syncs) };

/// All paths, with frames of 64 bytes.
pub(crate) static PATHS: &[PathOf] = &[
    frame("null-copy", Need::Nothing, workers::null_copy, "null port, copied by a program, null port"),
    frame("null-swap", Need::Nothing, workers::null_swap, "the same, the program exchanges buffers"),
    frame("pipe", Need::Nothing, workers::pipe, "native pipe: written, sent, received and read"),
    frame(
        "switch",
        Need::Nothing,
        switch::shm,
        "datapath alone: from a program's ring, switched, into another's",
    ),
    frame(
        "switch-vhost-user",
        Need::Nothing,
        vhost_user::switch,
        "the same between two vhost-user ports, split rings",
    ),
    frame("switch-1", Need::Nothing, decision::to_one, "switching alone, no bytes moved: to one port"),
    frame("switch-4", Need::Nothing, decision::to_four, "to four ports in turn"),
    frame("switch-flood-4", Need::Nothing, decision::flood, "to four ports each"),
    frame("flows-1", Need::Nothing, flows::one, "the same by flow tables: one entry, by the port"),
    frame("flows-1k", Need::Nothing, flows::thousand, "a thousand UDP flows, each an entry of its own"),
    frame(
        "flows-20-shapes",
        Need::Nothing,
        flows::twenty_shapes,
        "a thousand entries with 20 combinations of masks",
    ),
    frame(
        "flows-acl",
        Need::Nothing,
        flows::access_list,
        "ten thousand rules like those of an access control list",
    ),
    frame("flows-goto", Need::Nothing, flows::pipeline, "five tables, as Faucet's are, tagged frames"),
    frame("flows-tags", Need::Nothing, flows::tags, "the same, untagged frames: tags pushed and popped"),
    frame("wire", Need::Nothing, switch::wire, "datapath alone: from a device into a program's ring"),
    frame("generator", Need::Nothing, generator::unsigned, "generator into a null port"),
    frame("generator-signed", Need::Nothing, generator::signed, "the same with signatures"),
    frame("xdp-tx", Need::Root, interface::xdp_tx, "AF_XDP, sending: program, datapath and driver"),
    frame("xdp-rx", Need::Root, interface::xdp_rx, "AF_XDP, receiving"),
    frame("packet-tx", Need::Root, interface::packet_tx, "AF_PACKET, sending"),
    frame("packet-rx", Need::Root, interface::packet_rx, "AF_PACKET, receiving"),
    PathOf {
        name: "szedata2-rx",
        about: "DPDK's driver for SZE2 cards and its library, receiving with the copy",
        formula: Formula::PerFrame(Program {
            name: "szedata2-rx",
            need: Need::Nothing,
            counted: "szedata2_rx_burst",
            run: Run::OfCard(CardRole::Feeds),
        }),
    },
    PathOf {
        name: "szedata2-tx",
        about: "the same, transmitting",
        formula: Formula::PerFrame(Program {
            name: "szedata2-tx",
            need: Need::Nothing,
            counted: "szedata2_tx_burst",
            run: Run::OfCard(CardRole::Idles),
        }),
    },
    PathOf {
        name: "netmap-call",
        about: "the syncs of a netmap program on a pipe, by ioctl: each beyond a native program's",
        formula: Formula::CallBeyond { ours: &NETMAP, native: &NATIVE, calls: 2.0 },
    },
    PathOf {
        name: "netmap-frame",
        about: "each frame of such a sync beyond a native program's",
        formula: Formula::FrameBeyond { ours: &NETMAP, native: &NATIVE },
    },
];
