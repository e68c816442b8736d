//! A netmap program's requests to the daemon, and the replies.
//!
//! A *device* is one open of `/dev/netmap`: a connection of its own, whose other end the program holds as its
//! descriptor. It carries one exchange ([`Request::NetmapOpen`](crate::message::Request::NetmapOpen)) and is idle
//! afterwards: the daemon leaves a *badge* in it, which programs peek at and never consume, so that any process with a
//! copy of the descriptor can identify the device. Requests about the device travel on a connection of that process,
//! with the badge. The binding ends when the last copy is closed.
//!
//! Numbers and meanings are those of netmap API 14 (`NETMAP_REQ_*`, `struct nmreq_*`); an error is an errno value.

use std::fmt;

use ringroad_ring::geometry::RegionGeometry;
use ringroad_ring::layout::Direction;
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of a badge.
const BADGE_MAGIC: [u8; 8] = *b"rr-netmp";
/// Size of a badge on the wire, bytes.
pub const BADGE_BYTES: usize = 32;

/// Badge that names a device to the daemon, and proves that the sender holds the device's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Badge {
    /// Number of the device; never used twice by one daemon.
    pub device: u64,
    /// A secret that no other program can guess.
    pub secret: [u64; 2],
}

impl fmt::Debug for Badge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Badge({})", self.device)
    }
}

impl Badge {
    /// The bytes that lie in the device's connection: magic, number, secret (little endian).
    #[must_use]
    pub fn to_bytes(&self) -> [u8; BADGE_BYTES] {
        let mut bytes = [0; BADGE_BYTES];
        let words = [u64::from_le_bytes(BADGE_MAGIC), self.device, self.secret[0], self.secret[1]];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads the badge in `bytes`; `None` if there is none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; BADGE_BYTES]) -> Option<Self> {
        let mut words = [0; 4];
        for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(from.try_into().ok()?);
        }
        let [magic, device, first, second] = words;
        (magic.to_le_bytes() == BADGE_MAGIC).then_some(Self { device, secret: [first, second] })
    }
}

/// Sizes of a port as netmap has them, separate for each direction, either requested (0 leaves the choice to the
/// daemon) or present.
// Laid out as the same fields of `struct nmreq_register`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[repr(C)]
pub struct PortSizes {
    /// Number of slots of each tx ring.
    pub tx_slots: u32,
    /// Number of slots of each rx ring.
    pub rx_slots: u32,
    /// Number of tx rings, host rings not counted.
    pub tx_rings: u16,
    /// Number of rx rings, host rings not counted.
    pub rx_rings: u16,
    /// Number of host tx rings.
    pub host_tx_rings: u16,
    /// Number of host rx rings.
    pub host_rx_rings: u16,
}

/// The OFFSETS option (`struct nmreq_opt_offsets`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Offsets {
    /// Largest offset, bytes.
    pub max: u64,
    /// Offset that every slot begins with, bytes.
    pub initial: u64,
    /// Number of bits of `slot.ptr` that hold the offset; 0 stands for 64.
    pub bits: u32,
}

/// One pool of a region.
// Laid out as its fields in `struct nmreq_pools_info`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[repr(C)]
pub struct Pool {
    /// Start of the pool in the mapping, bytes.
    pub offset: u64,
    /// Number of objects in the pool.
    pub objects: u32,
    /// Size of an object, bytes.
    pub object_bytes: u32,
}

/// The pools of a region (`struct nmreq_pools_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pools {
    /// Size of the mapping, bytes.
    pub memory_bytes: u64,
    /// Memory id.
    pub mem_id: u16,
    /// `netmap_if` objects.
    pub interfaces: Pool,
    /// `netmap_ring` objects.
    pub rings: Pool,
    /// Buffers.
    pub buffers: Pool,
}

/// The EXTMEM option: the region replaces memory that the program has mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExternalMemory {
    /// Identity of the memory, equal for the same memory and different for other memory: device and inode of a shared
    /// mapping's file and the offset in it, or process, 0 and address.
    pub identity: [u64; 3],
    /// Requested geometry; zero fields leave the choice to the daemon. `memory_bytes` is the size of the program's
    /// memory.
    pub pools: Pools,
}

/// A REGISTER request (`struct nmreq_register`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Register {
    /// Port name, as given in the header.
    pub name: String,
    /// Requested sizes.
    pub sizes: PortSizes,
    /// Requested memory id; 0 requests none.
    pub mem_id: u16,
    /// Number of the ring, for the modes that name one.
    pub ring_id: u16,
    /// Mode: one of `NR_REG_*`.
    pub mode: u32,
    /// Requested extra buffers.
    pub extra_buffers: u32,
    /// Flags: `NR_MONITOR_TX` and others.
    pub flags: u64,
    /// The OFFSETS option.
    #[serde(default)]
    pub offsets: Option<Offsets>,
    /// The EXTMEM option.
    #[serde(default)]
    pub external_memory: Option<ExternalMemory>,
    /// Whether another option of the request needs exclusive use of the rings (CSB). Such a request is refused with
    /// EINVAL if `flags` do not request it.
    #[serde(default)]
    pub needs_exclusive: bool,
}

/// A request about a device or about ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NetmapRequest {
    /// Binds the device. Answered by [`NetmapReply::Bound`].
    Register(Register),
    /// Requests the device's binding, for a process that did not make it. Answered by [`NetmapReply::Bound`]; ENXIO if
    /// the device is not bound.
    Binding,
    /// Waits until the resources of all closed bindings are taken back. Answered by [`NetmapReply::Done`].
    Settle,
    /// Requests the monitors of the device's port, for a process that has to fill them. Answered by
    /// [`NetmapReply::Monitors`].
    Monitors,
    /// PORT_INFO_GET. Answered by [`NetmapReply::PortInfo`].
    PortInfo {
        /// Name of the port; if empty, only the region is queried.
        name: String,
        /// Requested sizes, if the query creates the port.
        sizes: PortSizes,
        /// Memory id.
        mem_id: u16,
    },
    /// VALE_ATTACH. Answered by [`NetmapReply::PortIndex`].
    ValeAttach {
        /// Names of switch and interface: `valeX:IF`.
        name: String,
        /// Mode: `NR_REG_ALL_NIC` or `NR_REG_NIC_SW`.
        mode: u32,
        /// Number of the ring; must be 0.
        ring_id: u16,
        /// Requested memory id.
        mem_id: u16,
    },
    /// VALE_DETACH. Answered by [`NetmapReply::PortIndex`].
    ValeDetach {
        /// Names of switch and interface: `valeX:IF`.
        name: String,
    },
    /// VALE_LIST. Answered by [`NetmapReply::Listed`].
    ValeList {
        /// Port to look up; if empty, the first port at or after the indices.
        name: String,
        /// Index of the switch to begin with.
        switch_index: u16,
        /// Index of the port to begin with.
        port_index: u32,
    },
    /// PORT_HDR_SET. Answered by [`NetmapReply::HeaderBytes`].
    PortHeaderSet {
        /// Name of the port.
        name: String,
        /// Length of the header, bytes: 0, 10 or 12.
        bytes: u32,
    },
    /// PORT_HDR_GET. Answered by [`NetmapReply::HeaderBytes`].
    PortHeaderGet {
        /// Name of the port.
        name: String,
    },
    /// VALE_NEWIF. Answered by [`NetmapReply::PortInfo`].
    ValeNewInterface {
        /// Name of the new port.
        name: String,
        /// Requested sizes.
        sizes: PortSizes,
        /// Requested memory id.
        mem_id: u16,
    },
    /// VALE_DELIF. Answered by [`NetmapReply::Done`].
    ValeDeleteInterface {
        /// Name of the port.
        name: String,
    },
    /// VALE_POLLING_ENABLE. Answered by [`NetmapReply::Done`].
    PollingEnable {
        /// Names of switch and interface: `valeX:IF`.
        name: String,
        /// Mode: 1 for one processor, 2 for one processor per ring.
        mode: u32,
        /// Number of the first processor.
        first_cpu: u32,
        /// Number of processors.
        cpus: u32,
    },
    /// VALE_POLLING_DISABLE. Answered by [`NetmapReply::Done`].
    PollingDisable {
        /// Names of switch and interface: `valeX:IF`.
        name: String,
    },
    /// POOLS_INFO_GET. Answered by [`NetmapReply::Pools`].
    PoolsInfo {
        /// Name of the port.
        name: String,
        /// Memory id.
        mem_id: u16,
    },
}

impl NetmapRequest {
    /// Privilege that the request needs, as [`crate::Request::privilege`].
    #[must_use]
    pub fn privilege(&self) -> Option<&'static str> {
        // No `_` arm: the compiler refuses a request that has no line here.
        match self {
            // The rules decide.
            Self::Register(_)
            | Self::PortInfo { .. }
            | Self::PortHeaderSet { .. }
            | Self::PortHeaderGet { .. }
            | Self::PoolsInfo { .. } => None,
            // The badge proves that the sender holds the device.
            Self::Binding | Self::Monitors | Self::Settle | Self::ValeList { .. } => None,
            Self::ValeAttach { .. } => Some("attach ports"),
            Self::ValeDetach { .. } => Some("detach ports"),
            Self::ValeNewInterface { .. } | Self::ValeDeleteInterface { .. } => Some("make or delete ports"),
            Self::PollingEnable { .. } | Self::PollingDisable { .. } => Some("change polling"),
        }
    }
}

/// Peer at the other side of a bound ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RingService {
    /// The daemon's datapath.
    Datapath,
    /// The other end of a pipe, whose ring of the other direction is in the same region.
    Pipe {
        /// Object of the peer's ring.
        peer: u32,
    },
    /// The monitored ports, which fill this rx ring.
    Monitor,
    /// No peer: this is a null port's ring, or a monitor's tx ring.
    Nobody {
        /// Whether a sync is an error (a monitor's tx ring).
        fails: bool,
    },
}

/// A ring that a device is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RingBinding {
    /// Direction, as seen by the program.
    pub direction: Direction,
    /// Index of the ring within its direction; host rings follow the others.
    pub index: u16,
    /// Object of the ring in the region. A foreign number: check it.
    pub object: u32,
    /// Number of slots.
    pub slots: u32,
    /// Peer at the other side of the ring.
    pub service: RingService,
    /// Index of the ring's pair of eventfds (`kick`, `notify`); several rings may share a pair.
    pub events: u16,
    /// Whether the ring is a host ring.
    pub host: bool,
}

/// A device's binding. Its descriptors are the region's memfd, then `event_pairs` times `kick` (written to wake the
/// other side) and `notify` (waited on).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bound {
    /// Full name of the port.
    pub port: String,
    /// Sizes of the port.
    pub sizes: PortSizes,
    /// Memory id of the region.
    pub mem_id: u16,
    /// Layout of the region. Foreign numbers: check them.
    pub geometry: RegionGeometry,
    /// Offset of the device's `netmap_if`, bytes.
    pub interface_offset: u64,
    /// Extra buffers granted.
    pub extra_buffers: u32,
    /// `nr_mode` and `nr_flags` as REGISTER returns them.
    pub mode: u32,
    /// Flags; see `mode`.
    pub flags: u64,
    /// Bound rings: tx rings first, each direction in its order.
    pub rings: Vec<RingBinding>,
    /// Number of pairs of eventfds that come with the reply.
    pub event_pairs: u16,
    /// Whether only programs of this user and of administrators can get these eventfds, and those of the port's
    /// monitors. Otherwise another user's program can make an eventfd blocking.
    #[serde(default)]
    pub is_single_user: bool,
    /// The highest real-time priority that the daemon's workers take for this program, 0 to 99.
    #[serde(default)]
    pub workers_real_time: u8,
    /// Geometry that EXTMEM answers with.
    #[serde(default)]
    pub external_memory: Option<Pools>,
}

/// A monitor's ring, and the ring of the port that it monitors. Its descriptor is the eventfd that wakes the monitor's
/// program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MonitorRing {
    /// Direction of the monitored ring.
    pub direction: Direction,
    /// Index of the monitored ring.
    pub index: u16,
    /// Object of the monitor's rx ring, in the same region.
    pub object: u32,
    /// Number of slots of the monitor's ring.
    pub slots: u32,
    /// Whether buffers are exchanged with the monitor's ring after use, instead of copied.
    pub zero_copy: bool,
    /// Whether the copied frames are marked as seen on the tx side. Frames that arrive at the other end of a pipe are
    /// not.
    pub sent: bool,
}

/// The daemon's reply to a [`NetmapRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NetmapReply {
    /// The device is bound.
    Bound(Box<Bound>),
    /// The monitors; one descriptor each.
    Monitors(Vec<MonitorRing>),
    /// Properties of a port.
    PortInfo {
        /// Size of the mapping, bytes.
        memory_bytes: u64,
        /// Sizes of the port.
        sizes: PortSizes,
        /// Memory id of the port.
        mem_id: u16,
    },
    /// Index of a port on its switch.
    PortIndex(u32),
    /// Entry of a switch's list of ports.
    Listed {
        /// Full name of the port.
        name: String,
        /// Index of the switch.
        switch_index: u16,
        /// Index of the port; 255 if the switch has no such port.
        port_index: u32,
    },
    /// Length of the virtio-net header, bytes.
    HeaderBytes(u32),
    /// The pools of a region.
    Pools(Pools),
    /// The daemon has carried out the request.
    Done,
    /// The request failed and changed nothing.
    Failed {
        /// Errno value.
        errno: i32,
        /// Description of the failure, for the user.
        message: String,
    },
}

impl NetmapReply {
    /// Number of descriptors that travel with this reply.
    #[must_use]
    pub fn descriptor_count(&self) -> usize {
        match self {
            Self::Bound(bound) => 1 + 2 * usize::from(bound.event_pairs),
            Self::Monitors(monitors) => monitors.len(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_badge_is_read_as_a_badge() {
        let badge = Badge { device: 7, secret: [1, u64::MAX] };
        assert_eq!(Badge::from_bytes(&badge.to_bytes()), Some(badge));
        let mut foreign = badge.to_bytes();
        foreign[0] ^= 1;
        assert_eq!(Badge::from_bytes(&foreign), None);
    }
}
