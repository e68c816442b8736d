//! The table of paths.

use std::path::{Path, PathBuf};

use ringroad_bench::cost::callgrind::{self, CallgrindCounts};

use crate::testbed::{Card, CardRole};
use crate::{COUNTED, Failure, decision, flows, generator, interface, switch, vhost_user, workers};

/// Number of frames in a burst.
pub(crate) const BURST: u32 = 32;
/// Two burst sizes, which separate the cost of a call from the cost of a frame.
pub(crate) const BURSTS: [u32; 2] = [BURST, 256];
/// Object that `ringroad run` preloads into a program written for netmap.
const NETMAP_OBJECT: &str = "libringroad_preload_netmap.so";

/// Program of the build that moves frames of a card by DPDK. Its arguments are the direction, the card, the frames per
/// burst, and the number of frames to move.
const OF_CARD: &str = "dpdk-szedata2/cost-card";

/// Turn of a program: moves a burst, and adds the number of its frames to the argument.
pub(crate) type ProgramTurn = Box<dyn FnMut(&mut u64) -> Result<(), Failure>>;

/// Program that runs under valgrind.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) need: Need,
    /// Function in which callgrind counts.
    pub(crate) counted: &'static str,
    pub(crate) run: Run,
}

/// Kinds of programs.
pub(crate) enum Run {
    /// This process. The function prepares it to move bursts of the given number of frames.
    Here(fn(u32) -> Result<ProgramTurn, Failure>),
    /// [`OF_CARD`] with a card of this role.
    OfCard(CardRole),
}

/// Further requirements of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// Right to make network namespaces.
    Root,
    /// A daemon of its own.
    Daemon,
    /// Daemon of its own, and the object for netmap programs before its libraries.
    NetmapObject,
}

impl Need {
    /// Returns why the program cannot run here; `None` if it can.
    pub(crate) fn missing(self) -> Option<&'static str> {
        match self {
            Self::Root if !rustix::process::geteuid().is_root() => Some("needs root"),
            _ => None,
        }
    }

    /// Provides the requirements in `folder`. Returns the environment by which the program finds them.
    fn environment(self, folder: &Path) -> Result<Vec<(String, String)>, Failure> {
        if !matches!(self, Self::Daemon | Self::NetmapObject) {
            return Ok(Vec::new());
        }
        let socket = folder.join("ringroad.sock");
        // The daemon ends by itself after the program.
        ringroad::start_daemon(&socket, &["--on-demand"])?;
        let mut environment = vec![("RINGROAD_SOCKET".to_owned(), socket.display().to_string())];
        if self == Self::NetmapObject {
            environment.push(("LD_PRELOAD".to_owned(), built(NETMAP_OBJECT)?.display().to_string()));
        }
        Ok(environment)
    }
}

impl Program {
    /// Counts the instructions over `frames` frames. callgrind writes its output to `file`.
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

/// Finds a file of the build, one or two folders above this program's folder.
fn built(file: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()?;
    let found = own.ancestors().skip(1).take(3).map(|folder| folder.join(file)).find(|file| file.is_file());
    found.ok_or_else(|| format!("{file} is not above {}: make cost builds it", own.display()).into())
}

/// Formula for the figure of a path.
pub(crate) enum Formula {
    /// The cost of a frame.
    PerFrame(Program),
    /// Cost of a frame, minus the cost of a frame in the native program.
    FrameBeyond { ours: &'static Program, native: &'static Program },
    /// Cost of a call without its frames, minus that in the native program; a burst has `calls` calls.
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

/// A path and the formula for its figure.
pub(crate) struct PathOf {
    /// Name in the file of budgets.
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

/// Program written for netmap, without changes for counting. Of Ringroad's code it calls only the object's `ioctl`.
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
