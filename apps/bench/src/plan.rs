//! Measurements of a run: its points, and the duration of each.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Bytes of the frame check sequence. The RFCs count it in a frame's size; software ports do not have it.
pub const FCS_BYTES: u32 = 4;

/// Bytes of a frame on an Ethernet wire in addition to its size: preamble 7, start delimiter 1, gap 12 (IEEE 802.3,
/// clause 4.4.2).
pub const WIRE_OVERHEAD_BYTES: u32 = 20;

/// Measured frame sizes, FCS included (RFC 2544, section 9.1).
pub const FRAME_SIZES_BYTES: [u32; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// Measured bursts, in frames per handover.
pub const BURSTS_FRAMES: [u32; 5] = [1, 8, 32, 128, 256];

/// Mechanism by which a program accesses the frames of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// AF_XDP sockets (Documentation/networking/af_xdp.rst).
    Xdp,
    /// AF_PACKET sockets (packet(7)).
    Packet,
    /// libpcap: the system's, which uses AF_PACKET, or Ringroad's preloaded object, over AF_XDP.
    Pcap,
}

/// Work of a program on the frames of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InterfaceWork {
    /// Sends on one interface.
    Tx,
    /// Receives on one interface.
    Rx,
    /// Forwards from one interface to another.
    Io,
    /// Makes test frames and sends them on one interface: generators with their usual settings.
    Gen,
}

/// Path of the frames. In text and JSON it is one word, such as `veth-xdp-rx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FramePath {
    /// Two null ports, on one core: the cost of the framework itself.
    Null,
    /// One process to another, one direction, one core each.
    Pipe,
    /// A process through a switch on the other core and back to the process, both directions at once.
    Switch,
    /// One or two pairs of virtual interfaces, with the program under test on one core.
    Veth(Mechanism, InterfaceWork),
    /// A generator into a port that accepts all frames, on one core: the cost of making a frame.
    GenNull,
    /// Path of [`FramePath::Pipe`], for a program written for netmap beside the native program.
    NetmapPipe,
    /// A process through a switch on the other core and back to the process, in one direction, for a program written
    /// for netmap beside the native program.
    NetmapSwitch,
    /// Processes on this number of cores, each with both ends of a pipe of its own, written for netmap or native.
    Cores(u8),
    /// One frame's send, cut off at growing depths: by a program of Ringroad, and by system calls on sockets.
    Send,
}

impl FramePath {
    /// All paths of programs written for netmap.
    pub const NETMAP: [Self; 2] = [Self::NetmapPipe, Self::NetmapSwitch];

    /// All paths by number of cores.
    pub const CORES: [Self; 4] = [Self::Cores(1), Self::Cores(2), Self::Cores(3), Self::Cores(4)];

    /// All paths of generators.
    pub const GEN: [Self; 3] = [
        Self::Veth(Mechanism::Xdp, InterfaceWork::Gen),
        Self::Veth(Mechanism::Packet, InterfaceWork::Gen),
        Self::GenNull,
    ];

    /// All paths of plain programs over virtual interfaces.
    pub const VETH: [Self; 6] = [
        Self::Veth(Mechanism::Xdp, InterfaceWork::Tx),
        Self::Veth(Mechanism::Xdp, InterfaceWork::Rx),
        Self::Veth(Mechanism::Xdp, InterfaceWork::Io),
        Self::Veth(Mechanism::Packet, InterfaceWork::Tx),
        Self::Veth(Mechanism::Packet, InterfaceWork::Rx),
        Self::Veth(Mechanism::Packet, InterfaceWork::Io),
    ];

    /// All paths of plain programs over memory.
    const MEMORY: [Self; 3] = [Self::Null, Self::Pipe, Self::Switch];

    /// All paths of programs over libpcap.
    pub const PCAP: [Self; 3] = [
        Self::Veth(Mechanism::Pcap, InterfaceWork::Tx),
        Self::Veth(Mechanism::Pcap, InterfaceWork::Rx),
        Self::Veth(Mechanism::Pcap, InterfaceWork::Io),
    ];

    /// Whether `word` is the word of the path, or the start of it up to a hyphen.
    #[must_use]
    pub fn is_in(self, word: &str) -> bool {
        let path = self.to_string();
        path.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// Whether the path leads over virtual interfaces.
    #[must_use]
    pub const fn is_veth(self) -> bool {
        matches!(self, Self::Veth(..))
    }

    /// Whether some contestant on the path needs virtual interfaces.
    #[must_use]
    pub const fn has_interfaces(self) -> bool {
        matches!(self, Self::Veth(..) | Self::Send)
    }

    /// Number of cores that make frames.
    #[must_use]
    pub fn cores(self) -> usize {
        if let Self::Cores(cores) = self { cores.into() } else { 1 }
    }

    /// Whether programs written for netmap are compared on the path.
    #[must_use]
    pub const fn is_netmap(self) -> bool {
        matches!(self, Self::NetmapPipe | Self::NetmapSwitch | Self::Cores(_))
    }

    /// Whether generators are compared on the path.
    #[must_use]
    pub const fn is_gen(self) -> bool {
        matches!(self, Self::Veth(_, InterfaceWork::Gen) | Self::GenNull)
    }
}

impl fmt::Display for FramePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cores(cores) => return f.pad(&format!("cores-{cores}")),
            Self::Send => "send",
            Self::Null => "null",
            Self::Pipe => "pipe",
            Self::Switch => "switch",
            Self::Veth(Mechanism::Xdp, InterfaceWork::Tx) => "veth-xdp-tx",
            Self::Veth(Mechanism::Xdp, InterfaceWork::Rx) => "veth-xdp-rx",
            Self::Veth(Mechanism::Xdp, InterfaceWork::Io) => "veth-xdp-io",
            Self::Veth(Mechanism::Packet, InterfaceWork::Tx) => "veth-packet-tx",
            Self::Veth(Mechanism::Packet, InterfaceWork::Rx) => "veth-packet-rx",
            Self::Veth(Mechanism::Packet, InterfaceWork::Io) => "veth-packet-io",
            Self::Veth(Mechanism::Pcap, InterfaceWork::Tx) => "pcap-tx",
            Self::Veth(Mechanism::Pcap, InterfaceWork::Rx) => "pcap-rx",
            Self::Veth(Mechanism::Pcap, InterfaceWork::Io) => "pcap-io",
            Self::Veth(Mechanism::Pcap, InterfaceWork::Gen) => "pcap-gen",
            Self::Veth(Mechanism::Xdp, InterfaceWork::Gen) => "gen-xdp",
            Self::Veth(Mechanism::Packet, InterfaceWork::Gen) => "gen-packet",
            Self::GenNull => "gen-null",
            Self::NetmapPipe => "netmap-pipe",
            Self::NetmapSwitch => "netmap-switch",
        })
    }
}

impl Serialize for FramePath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Conditions under which the contestants are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// Path of the frames.
    pub path: FramePath,
    /// Frame size in bytes, FCS included.
    pub frame_bytes: u32,
    /// Number of frames per handover.
    pub burst_frames: u32,
}

impl Point {
    /// Returns the bytes of the frame in a slot: the frame without its FCS.
    #[must_use]
    pub fn slot_bytes(&self) -> u32 {
        self.frame_bytes.saturating_sub(FCS_BYTES)
    }

    /// Returns the load in bit/s that `frames_per_second` would be on an Ethernet wire (layer 1: preamble, FCS and gap
    /// included).
    #[must_use]
    pub fn layer1_bps(&self, frames_per_second: f64) -> f64 {
        frames_per_second * f64::from(self.frame_bytes + WIRE_OVERHEAD_BYTES) * 8.0
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} B burst {}", self.path, self.frame_bytes, self.burst_frames)
    }
}

/// The points of a run and how each is measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchPlan {
    /// The measured points, in this order.
    pub points: Vec<Point>,
    /// Number of rounds that count at each point. Every contestant is measured once in a round.
    pub rounds: u32,
    /// Length of one sample.
    #[serde(rename = "sample_seconds", serialize_with = "as_seconds")]
    pub sample: Duration,
    /// Length of each contestant's sample in the discarded round before the first.
    #[serde(rename = "warm_up_seconds", serialize_with = "as_seconds")]
    pub warm_up: Duration,
}

pub(crate) fn as_seconds<S: serde::Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

impl BenchPlan {
    /// Returns the plan of the decisive points only, about a quarter of an hour with the peers: the smallest and the
    /// largest size, and a larger burst at the smallest size.
    #[must_use]
    pub fn quick() -> Self {
        Self::of(Duration::from_millis(500), Duration::from_millis(100), |path| match path {
            FramePath::Null | FramePath::Cores(_) => vec![(64, 32)],
            FramePath::Send => vec![(64, 1), (64, 32)],
            // libpcap hands over one frame at a time.
            FramePath::Veth(Mechanism::Pcap, _) => vec![(64, 1)],
            // The usual bursts of testpmd and of `ringroad gen`.
            path if path.is_gen() || path.is_netmap() => vec![(64, 32), (64, 256)],
            _ => vec![(64, 32), (64, 256), (1518, 32)],
        })
    }

    /// Returns the plan of all sizes and bursts on every path.
    #[must_use]
    pub fn full() -> Self {
        let all = |bursts: &[u32]| -> Vec<(u32, u32)> {
            let with = |size| bursts.iter().map(move |burst| (size, *burst));
            FRAME_SIZES_BYTES.into_iter().flat_map(with).collect()
        };
        Self::of(Duration::from_secs(1), Duration::from_millis(200), |path| match path {
            FramePath::Pipe | FramePath::Switch => all(&BURSTS_FRAMES),
            FramePath::Veth(Mechanism::Pcap, _) => all(&[1]),
            // Every burst at 64 bytes, and every size at burst 32. Other combinations add nothing to the cost of a null
            // port or of the kernel.
            _ => {
                all(&BURSTS_FRAMES).into_iter().filter(|(size, burst)| *size == 64 || *burst == 32).collect()
            }
        })
    }

    fn of(sample: Duration, warm_up: Duration, conditions: impl Fn(FramePath) -> Vec<(u32, u32)>) -> Self {
        let paths: [&[FramePath]; 7] = [
            &FramePath::MEMORY,
            &FramePath::VETH,
            &FramePath::GEN,
            &FramePath::PCAP,
            &FramePath::NETMAP,
            &FramePath::CORES,
            &[FramePath::Send],
        ];
        let points = paths.concat().into_iter().flat_map(|path| {
            let point = move |(frame_bytes, burst_frames)| Point { path, frame_bytes, burst_frames };
            conditions(path).into_iter().map(point)
        });
        Self { points: points.collect(), rounds: 5, sample, warm_up }
    }

    /// Measures each path at all of these sizes with all of these bursts, instead of the points of the plan. An empty
    /// list stands for 64 bytes, or for bursts of 32. Programs over libpcap hand over one frame at a time in any case.
    #[must_use]
    pub fn at(mut self, sizes_bytes: &[u32], bursts_frames: &[u32]) -> Self {
        let or = |list: &[u32], usual| if list.is_empty() { vec![usual] } else { list.to_vec() };
        let (sizes, bursts) = (or(sizes_bytes, 64), or(bursts_frames, 32));
        let mut paths: Vec<FramePath> = self.points.iter().map(|point| point.path).collect();
        paths.dedup();
        let points = paths.into_iter().flat_map(|path| {
            let bursts =
                if matches!(path, FramePath::Veth(Mechanism::Pcap, _)) { vec![1] } else { bursts.clone() };
            sizes.clone().into_iter().flat_map(move |frame_bytes| {
                let point = move |burst_frames| Point { path, frame_bytes, burst_frames };
                bursts.clone().into_iter().map(point)
            })
        });
        self.points = points.collect();
        self
    }

    /// Keeps only the points of `wanted` paths.
    #[must_use]
    pub fn only(mut self, wanted: impl Fn(FramePath) -> bool) -> Self {
        self.points.retain(|point| wanted(point.path));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_profile_has_every_size_with_every_burst_on_pipe_and_switch_once() {
        let plan = BenchPlan::full();
        for path in [FramePath::Pipe, FramePath::Switch] {
            for frame_bytes in FRAME_SIZES_BYTES {
                for burst_frames in BURSTS_FRAMES {
                    let wanted = Point { path, frame_bytes, burst_frames };
                    assert_eq!(plan.points.iter().filter(|point| **point == wanted).count(), 1, "{wanted}");
                }
            }
        }
    }

    #[test]
    fn every_profile_has_a_null_floor_and_at_least_five_rounds() {
        for plan in [BenchPlan::quick(), BenchPlan::full()] {
            assert!(plan.rounds >= 5);
            assert!(plan.points.iter().any(|point| point.path == FramePath::Null));
        }
    }

    #[test]
    fn every_profile_compares_generators_at_64_bytes_on_every_path_of_theirs() {
        for plan in [BenchPlan::quick(), BenchPlan::full()] {
            for path in FramePath::GEN {
                assert!(path.is_gen());
                let wanted = Point { path, frame_bytes: 64, burst_frames: 32 };
                assert_eq!(plan.points.iter().filter(|point| **point == wanted).count(), 1, "{wanted}");
            }
        }
    }

    #[test]
    fn every_profile_compares_libpcap_programs_at_64_bytes_in_all_their_work() {
        for plan in [BenchPlan::quick(), BenchPlan::full()] {
            for path in FramePath::PCAP {
                let wanted = Point { path, frame_bytes: 64, burst_frames: 1 };
                let points = &plan.points;
                assert_eq!(points.iter().filter(|point| **point == wanted).count(), 1, "{wanted}");
            }
        }
    }

    #[test]
    fn every_profile_compares_netmap_programs_at_64_bytes_with_both_bursts() {
        for plan in [BenchPlan::quick(), BenchPlan::full()] {
            for path in FramePath::NETMAP {
                assert!(path.is_netmap());
                for burst_frames in [32, 256] {
                    let wanted = Point { path, frame_bytes: 64, burst_frames };
                    let points = &plan.points;
                    assert_eq!(points.iter().filter(|point| **point == wanted).count(), 1, "{wanted}");
                }
            }
        }
    }

    #[test]
    fn every_profile_has_both_sizes_on_every_path_over_interfaces() {
        for plan in [BenchPlan::quick(), BenchPlan::full()] {
            for path in FramePath::VETH {
                for frame_bytes in [64, 1518] {
                    let wanted = Point { path, frame_bytes, burst_frames: 32 };
                    assert_eq!(plan.points.iter().filter(|point| **point == wanted).count(), 1, "{wanted}");
                }
            }
        }
    }

    #[test]
    fn a_word_is_a_path_or_the_start_of_several() {
        let words = |word: &str| BenchPlan::quick().only(|path| path.is_in(word)).points.len();
        assert_eq!([words("veth"), words("veth-xdp"), words("gen"), words("gen-null")], [18, 9, 6, 2]);
        assert_eq!([words("netmap"), words("pipe"), words("pcap"), words("ve")], [4, 3, 3, 0]);
        assert_eq!([words("cores"), words("cores-2"), words("send")], [4, 1, 2]);
    }

    #[test]
    fn sizes_and_bursts_of_ones_own_replace_the_points_of_each_path() {
        let plan = BenchPlan::quick().only(|path| path.is_in("netmap-pipe") || path.is_in("pcap-tx"));
        let plan = plan.at(&[64, 69], &[1, 8]);
        let points: Vec<String> = plan.points.iter().map(Point::to_string).collect();
        assert_eq!(
            points,
            [
                "pcap-tx 64 B burst 1",
                "pcap-tx 69 B burst 1",
                "netmap-pipe 64 B burst 1",
                "netmap-pipe 64 B burst 8",
                "netmap-pipe 69 B burst 1",
                "netmap-pipe 69 B burst 8",
            ]
        );
        let usual = BenchPlan::quick().only(|path| path == FramePath::Cores(3)).at(&[], &[256]);
        assert_eq!(usual.points[0].to_string(), "cores-3 64 B burst 256");
    }

    #[test]
    fn keeping_one_path_keeps_nothing_else() {
        let plan = BenchPlan::full().only(|path| path.is_in("switch"));
        assert_eq!(plan.points.len(), 35);
        assert!(plan.points.iter().all(|point| point.path == FramePath::Switch));
    }

    #[test]
    fn ten_gigabit_ethernet_carries_14_88_million_64_byte_frames() {
        let point = Point { path: FramePath::Pipe, frame_bytes: 64, burst_frames: 32 };
        assert_eq!(point.slot_bytes(), 60);
        assert!((point.layer1_bps(14_880_952.0) - 1e10).abs() < 1e3);
    }
}
