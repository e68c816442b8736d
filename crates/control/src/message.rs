//! Requests and replies.
//!
//! In JSON an enum's variant is its name in snake case, alone (`"status"`) or as the one key of an object
//! (`{"detach":{"name":"vale0:a"}}`). Requests must not hold fields that the daemon does not know, so that no setting
//! is silently ignored. Replies may hold unknown fields, so that an older client can read a newer daemon of the same
//! protocol.

use std::fmt;

use ringroad_ring::geometry::{PortPlacement, RegionGeometry};
pub use ringroad_ring::region::HugePages;
use serde::{Deserialize, Serialize};

use crate::explanation::Explanation;
use crate::netmap::{Badge, NetmapReply, NetmapRequest};
use crate::report::{
    ConfigDifference, ConfigReport, ListReport, MacEntryReport, OpenFlowReport, ReloadReport, SaveReport,
    StartedBy, StatusReport, TraceReport, UpgradeReport,
};

/// Version of frames and messages. It changes if an older peer would misunderstand a newer one.
pub const PROTOCOL_VERSION: u32 = 1;

/// A program's request to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// Introduces the program; the first request of a connection. Answered by [`Reply::Hello`].
    Hello {
        /// [`PROTOCOL_VERSION`] of the program.
        protocol: u32,
        /// Name of the program, for reports to people; not trusted for anything.
        program: String,
    },
    /// Opens a port for this program; it is closed with the connection. Answered by [`Reply::Opened`].
    Open {
        /// Port name as the user typed it: `vale0:a`, `x{1`, `vale0:a@share=vale0:b`.
        name: String,
        /// Requested size and mode.
        #[serde(rename = "wish")]
        properties: PortProperties,
    },
    /// Requests the daemon's whole state. Answered by [`Reply::Status`].
    Status,
    /// Requests the ports. Answered by [`Reply::List`].
    List,
    /// Requests the ports after those of an earlier reply that did not have room for all ports. Answered by
    /// [`Reply::List`].
    ListFrom {
        /// [`ListReport::next`] of the earlier reply.
        #[serde(rename = "place")]
        from: String,
    },
    /// Makes a port that stays until it is detached. Answered by [`Reply::Attached`].
    Attach {
        /// Description of the port.
        #[serde(flatten)]
        port: PortSpec,
        /// Whether a program serves the port instead of the interface of the port's name. The port has no driver then.
        #[serde(default)]
        for_program: bool,
        /// Whether the host stack's side of the interface is attached too, as a port whose name ends in `^`.
        #[serde(default)]
        host: bool,
        /// Whether the interface is attached even if that cuts the host off from it.
        #[serde(default)]
        take: bool,
        /// Whether the port is removed at the end of the connection, unless [`Request::Settle`] keeps it before. A TAP
        /// or veth pair behind the port is removed too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        provisional: bool,
    },
    /// Makes all provisional ports of this connection ordinary attached ports, or removes them now. Answered by
    /// [`Reply::Done`].
    Settle {
        /// Whether the ports stay.
        keep: bool,
    },
    /// Removes an attached port. Answered by [`Reply::Done`].
    Detach {
        /// Port name as it was attached.
        name: String,
        /// Whether the port is removed even if a program has it open. The program then loses the port.
        #[serde(default)]
        take: bool,
        /// [`AttachedPort::number`] of the port: a later port of that name is not removed. `None` stands for any port
        /// of the name.
        #[serde(default)]
        number: Option<u64>,
    },
    /// Writes the present ports into the daemon's configuration file: attached ports are added, detached ports are
    /// removed. Answered by [`Reply::Saved`].
    Save {
        /// Names of the ports; none stands for all.
        #[serde(default)]
        ports: Vec<String>,
    },
    /// Requests the configuration in force. Answered by [`Reply::Config`].
    Config,
    /// Requests the differences between a configuration and both the configuration in force and the ports. Answered by
    /// [`Reply::ConfigDifference`].
    CompareConfig {
        /// The other configuration, in TOML; `None` stands for the present content of the daemon's file.
        #[serde(default)]
        toml: Option<String>,
    },
    /// Writes a configuration into the daemon's file and reloads the file. If that fails, the file is unchanged.
    /// Answered by [`Reply::ConfigDifference`], which lists the changes.
    ApplyConfig {
        /// The configuration, in TOML.
        toml: String,
    },
    /// Sets a static address of a port of a switch, or removes it. Answered by [`Reply::Done`].
    SetAddress {
        /// Name of the switch, such as `vale0`.
        switch: String,
        /// The address, such as `02:00:00:00:00:01`.
        mac: String,
        /// Name of the port on this switch, such as `a`, which need not exist yet; `None` removes the address.
        port: Option<String>,
    },
    /// Sends copies of frames to a port of a switch. A mirror with the same source and the same target is replaced.
    /// Answered by [`Reply::Done`].
    SetMirror(Mirror),
    /// Ends a mirror. Answered by [`Reply::Done`].
    RemoveMirror {
        /// [`Mirror::from`].
        from: String,
        /// [`Mirror::to`].
        to: String,
    },
    /// Requests all mirrors. Answered by [`Reply::Mirrors`].
    Mirrors,
    /// Makes a switch forward by flow tables, which OpenFlow controllers and tools change. Earlier settings of the
    /// switch are replaced, and its flows stay. Answered by [`Reply::Done`].
    SetOpenFlow(OpenFlow),
    /// Makes a switch forward by learned addresses again. Answered by [`Reply::Done`].
    RemoveOpenFlow {
        /// Name of the switch.
        switch: String,
    },
    /// Requests all switches with flow tables. Answered by [`Reply::OpenFlow`].
    OpenFlow,
    /// Requests a prediction of a frame's path through a switch. The frame is not counted or metered, and no address is
    /// learned. Answered by [`Reply::Explained`].
    Explain(FrameToExplain),
    /// Records the path of the next frames of a switch. There is one trace at a time, which ends with its client's
    /// connection. Answered by [`Reply::Done`].
    StartTrace {
        /// Name of the switch, such as `vale0`.
        switch: String,
        /// Port whose received frames are traced, by its name on the switch; `None` stands for all ports.
        #[serde(default)]
        from: Option<String>,
        /// Number of frames, at most 4096.
        count: u32,
    },
    /// Requests the frames of this client's trace. Answered by [`Reply::Traced`].
    Traced,
    /// Ends this client's trace. Answered by [`Reply::Done`].
    StopTrace,
    /// Changes the VLANs, the isolation and the storm limit of a switch's port while it is in use, to exactly the
    /// options in `name`. Answered by [`Reply::Done`].
    SetPortOptions {
        /// Name of the port with its new options, such as `vale0:a@vlan=10,isolated`.
        name: String,
    },
    /// Forgets learned addresses. Answered by [`Reply::Forgotten`].
    ForgetAddresses {
        /// Name of the switch.
        switch: String,
        /// Port whose addresses are forgotten, by its name on this switch; `None` stands for all ports.
        #[serde(default)]
        port: Option<String>,
    },
    /// Requests the learned addresses of a switch, as many as fit in a reply. Answered by [`Reply::MacTable`].
    MacTable {
        /// Name of the switch, such as `vale0`.
        switch: String,
        /// Last address of an earlier reply: this reply lists the addresses behind it. `None` begins with the first
        /// address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// VLAN of the last address, if it was in one: an address may be in several VLANs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_vlan: Option<u16>,
    },
    /// Makes this connection a netmap device. Answered by [`Reply::NetmapDevice`], after which the daemon puts the same
    /// badge into the connection as [`Badge::to_bytes`] and takes no more requests from it.
    NetmapOpen,
    /// A netmap program's request. Answered by [`Reply::Netmap`].
    Netmap {
        /// Device that the request is about; requests about ports need none.
        device: Option<Badge>,
        /// The request.
        request: NetmapRequest,
    },
    /// Reads the configuration file again, and opens the log file again. Answered by [`Reply::Reloaded`].
    Reload,
    /// Replaces the daemon by a new process of the installed program. The new process takes over the connection and
    /// answers with [`Reply::Upgraded`].
    Upgrade {
        /// Whether to upgrade even if programs lose ports that cannot be handed over.
        #[serde(default)]
        anyway: bool,
    },
    /// Ends the daemon after the reply. Answered by [`Reply::Done`].
    Stop,
}

impl Request {
    /// Privilege that the request needs, such as `attach ports`; only root and the daemon's own user have it. `None`: all
    /// users who can connect may send the request, or the daemon's rules decide by the port that it names. The daemon
    /// checks this before anything else.
    #[must_use]
    pub fn privilege(&self) -> Option<&'static str> {
        // No `_` arm: the compiler refuses a request that has no line here.
        match self {
            Self::Hello { .. }
            | Self::Status
            | Self::List
            | Self::ListFrom { .. }
            | Self::Mirrors
            | Self::OpenFlow
            | Self::MacTable { .. }
            | Self::NetmapOpen => None,
            // The rules decide.
            Self::Open { .. } => None,
            Self::Netmap { request, .. } => request.privilege(),
            Self::Attach { .. } | Self::Settle { .. } => Some("attach ports"),
            Self::Detach { .. } => Some("detach ports"),
            Self::Save { .. } => Some("save ports"),
            Self::Config | Self::CompareConfig { .. } => Some("see the configuration"),
            Self::ApplyConfig { .. } => Some("change the configuration"),
            Self::SetAddress { .. } | Self::ForgetAddresses { .. } => Some("change addresses"),
            Self::SetMirror(_) | Self::RemoveMirror { .. } => Some("change mirrors"),
            Self::SetOpenFlow(_) | Self::RemoveOpenFlow { .. } => Some("change flow tables"),
            Self::Explain(_) => Some("see where frames go"),
            Self::StartTrace { .. } | Self::Traced | Self::StopTrace => Some("trace frames"),
            Self::SetPortOptions { .. } => Some("change options of ports"),
            Self::Reload => Some("reload the configuration"),
            Self::Upgrade { .. } => Some("upgrade the daemon"),
            Self::Stop => Some("stop the daemon"),
        }
    }

    /// Whether the daemon may need more than seconds for the request, because it opens interfaces, whose drivers can be
    /// slow. The effects of such a request stay, even if nobody reads the reply.
    #[must_use]
    pub fn may_take_long(&self) -> bool {
        matches!(
            self,
            Self::Attach { .. }
                | Self::Settle { .. }
                | Self::Detach { .. }
                | Self::ApplyConfig { .. }
                | Self::Reload
        )
    }
}

/// Copies of frames for a monitoring port. Frames that this port sends are dropped, and the port gets no other frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// Name of the port whose frames are copied, such as `vale0:a`, or of a switch, such as `vale0`, for all its ports.
    /// The port need not exist yet.
    pub from: String,
    /// Name of the port that gets the copies, on the same switch. The port need not exist yet.
    pub to: String,
    /// Direction of the copied frames.
    #[serde(default)]
    pub direction: MirrorDirection,
    /// Sampling divisor, at least 1: one frame, chosen at random, of each group of this many consecutive frames of a
    /// port is copied.
    #[serde(default = "one")]
    pub sample: u32,
    /// Whether the port gets a record of each frame (number, ports, length, first bytes) in place of the frame.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub records: bool,
}

/// OpenFlow for a switch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenFlow {
    /// Name of the switch, such as `vale0`. It is created with these settings if it does not exist.
    pub switch: String,
    /// Controllers that the switch connects to, such as `tcp:127.0.0.1:6653`, or by TLS `ssl:127.0.0.1:6653`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<String>,
    /// Addresses on which the switch listens for tools, such as `127.0.0.1:6654`, or by TLS `ssl:127.0.0.1:6654`. Tools
    /// of this machine have the socket `SWITCH.mgmt` beside the control socket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<String>,
    /// Behaviour of the switch without a controller.
    #[serde(default)]
    pub fail_mode: FailMode,
    /// Number of the switch for controllers, 1 to 16 hexadecimal digits; `None` stands for a number made from the
    /// switch's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datapath_id: Option<String>,
    /// Path of the switch's private key for TLS, a PEM file that the daemon reads. TLS needs this file and the two
    /// files that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_key: Option<String>,
    /// Path of the switch's certificate, followed by the certificates between it and its CA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Path of the certificates of the CAs that sign the certificates of controllers and tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_cert: Option<String>,
}

/// A frame, and the port by which it comes in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FrameToExplain {
    /// Name of the switch, such as `vale0`.
    pub switch: String,
    /// Port that the frame comes in by: its name, as `a` or `vale0:a`, or its number for flow tables.
    pub from: String,
    /// First bytes of the frame without FCS, in hexadecimal digits; at most 256 bytes are used.
    pub start: String,
    /// Length of the frame, bytes; `None` if `start` is the whole frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_bytes: Option<u32>,
    /// Metadata of the frame at the first table.
    #[serde(default)]
    pub metadata: u64,
    /// Number of the tunnel that the frame comes from.
    #[serde(default)]
    pub tunnel_id: u64,
}

/// Behaviour of a switch with flow tables while no controller is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailMode {
    /// The flows stay, and frames that match no flow are dropped.
    #[default]
    Secure,
    /// The switch is a learning switch until a controller connects.
    Standalone,
}

/// Direction of the copied frames of a port, seen from the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MirrorDirection {
    /// Frames that come in by the port.
    Received,
    /// Frames that the switch delivers to the port.
    Delivered,
    /// Both directions.
    #[default]
    Both,
}

fn one() -> u32 {
    1
}

/// One port that outlives programs, described so that every daemon can make it from this description alone. A
/// configuration has the description as `[[port]]`; the daemon keeps it to make the port again after a crash or an
/// upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PortSpec {
    /// Name of the port with its options, as the user typed it.
    pub name: String,
    /// Device that serves the port, such as `xdp:eth0@netns=blue`; `None` if a program opens the port.
    #[serde(default)]
    pub driver: Option<String>,
    /// Requested size and mode.
    #[serde(rename = "wish")]
    pub properties: PortProperties,
    /// The kernel's number (inode) of the network namespace in which the driver's interface was found; `None` if the
    /// interface is to be looked up: by the driver's `netns=`, else in the requesting program's namespace, or in the
    /// daemon's if there is no program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<u64>,
}

impl PortSpec {
    /// Describes a port that a program serves, with sizes of the daemon's choice.
    #[must_use]
    pub fn for_program(name: impl Into<String>) -> Self {
        Self { name: name.into(), driver: None, properties: PortProperties::default(), netns: None }
    }

    /// Describes a port that a device serves, with sizes of the daemon's choice.
    #[must_use]
    pub fn for_device(name: impl Into<String>, driver: impl Into<String>) -> Self {
        Self { driver: Some(driver.into()), ..Self::for_program(name) }
    }
}

/// The properties that a program requests for a port. `None` leaves the choice to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PortProperties {
    /// Number of queues, each a tx ring and an rx ring.
    pub queues: Option<u16>,
    /// Number of slots of each ring.
    pub slots: Option<u32>,
    /// Size of a buffer, bytes.
    pub buffer_bytes: Option<u32>,
    /// Number of buffers besides those in the rings, for programs that hold frames back.
    pub extra_buffers: u32,
    /// Pages of the region.
    pub huge_pages: HugePages,
    /// Whether the program sends.
    pub tx: bool,
    /// Whether the program receives.
    pub rx: bool,
}

fn by_command() -> StartedBy {
    StartedBy::Command
}

impl Default for PortProperties {
    /// The daemon's own choice, for sending and receiving.
    fn default() -> Self {
        Self {
            queues: None,
            slots: None,
            buffer_bytes: None,
            extra_buffers: 0,
            huge_pages: HugePages::Auto,
            tx: true,
            rx: true,
        }
    }
}

/// The daemon's reply.
// `OpenedPort` makes the enum large, but there is one reply at a time, and none on a hot path.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// Introduces the daemon.
    Hello {
        /// [`PROTOCOL_VERSION`] of the daemon.
        protocol: u32,
        /// Version of the daemon's program, such as `0.1.0`.
        version: String,
        /// Process id of the daemon, in its own PID namespace.
        pid: u32,
        /// Number that distinguishes this daemon from earlier daemons at the socket.
        #[serde(default)]
        instance: u64,
        /// Party that started the daemon.
        #[serde(default = "by_command")]
        started: StartedBy,
    },
    /// The port is open; its descriptors come with the frame.
    Opened(OpenedPort),
    /// The daemon has carried out the request.
    Done,
    /// The configuration is in force, except for the keys that the report names.
    Reloaded(ReloadReport),
    /// A new daemon has taken over.
    Upgraded(UpgradeReport),
    /// The ports are attached.
    Attached(Vec<AttachedPort>),
    /// The ports are in the configuration file.
    Saved(SaveReport),
    /// The configuration in force.
    Config(ConfigReport),
    /// Differences between a daemon and a configuration.
    ConfigDifference(ConfigDifference),
    /// The daemon's state.
    Status(StatusReport),
    /// The ports.
    List(ListReport),
    /// The mirrors.
    Mirrors(Vec<Mirror>),
    /// The switches with flow tables.
    OpenFlow(Vec<OpenFlowReport>),
    /// Path of the frame through the switch.
    Explained(Explanation),
    /// The frames of a trace.
    Traced(TraceReport),
    /// Learned addresses are forgotten.
    Forgotten {
        /// Number of addresses.
        addresses: u64,
    },
    /// Learned addresses of a switch in their order; empty if there are no more.
    MacTable(Vec<MacEntryReport>),
    /// The connection is a netmap device.
    NetmapDevice(Badge),
    /// Reply to a netmap program's request.
    Netmap(NetmapReply),
    /// The request was not served, and changed nothing.
    Error(ErrorReply),
}

impl Reply {
    /// Number of descriptors that travel with this reply.
    #[must_use]
    pub fn descriptor_count(&self) -> usize {
        match self {
            Self::Opened(port) => port.descriptor_count(),
            Self::Netmap(reply) => reply.descriptor_count(),
            _ => 0,
        }
    }
}

/// A port that the daemon opened for a program.
///
/// Its descriptors come in this order: the region's memfd; then for each queue, from 0, two eventfds: `kick`, which the
/// program writes to wake the other side, and `notify`, on which the program waits. The two ends of a pipe get the same
/// pairs crossed: one end's `kick` is the other end's `notify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenedPort {
    /// The port's full name.
    pub name: String,
    /// Kind of the port, which tells who works the other side of the rings.
    pub kind: PortBackend,
    /// The mechanism in use, as text for users: page size, isolation and similar details.
    pub mode: String,
    /// Name of the driver behind the port, for devices.
    #[serde(default)]
    pub driver: Option<String>,
    /// Longest frame that the device behind the port takes, bytes without FCS.
    #[serde(default)]
    pub max_frame_bytes: Option<u32>,
    /// Notes for the user, such as why a better mechanism was not available.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Layout of the region. Foreign numbers: check them before the region is mapped.
    pub geometry: RegionGeometry,
    /// Objects of the region that belong to this port. Foreign numbers: check them against the geometry.
    pub placement: PortPlacement,
    /// Objects of the other end of a pipe, since this end's tx rings feed that end's rx rings.
    #[serde(default)]
    pub peer_placement: Option<PortPlacement>,
    /// Number of queues, each a tx ring, an rx ring and a pair of eventfds.
    pub queue_count: u16,
    /// Switch that the port is on.
    pub switch: Option<String>,
    /// Index of the port on its switch.
    pub switch_index: Option<u8>,
}

impl OpenedPort {
    /// Number of descriptors that travel with this port: one, and two per queue.
    #[must_use]
    pub fn descriptor_count(&self) -> usize {
        1 + 2 * usize::from(self.queue_count)
    }
}

/// A port that the daemon attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttachedPort {
    /// Full name of the port.
    pub name: String,
    /// Name of the port's driver.
    pub driver: String,
    /// The mechanism in use, as text for users.
    pub mode: String,
    /// Notes for the user, such as why a better mechanism was not available.
    pub notes: Vec<String>,
    /// Number that no other attached port has, and that the port keeps if the daemon dies and the next daemon attaches
    /// the port again; 0 for ports of the configuration.
    #[serde(default)]
    pub number: u64,
}

/// Kind of an opened port: the peer of its rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PortBackend {
    /// The daemon's datapath.
    SwitchPort,
    /// The program at the other end of the pipe.
    PipeEnd,
    /// A device, such as a network interface, joined to the port queue by queue.
    Device,
}

/// Reason why a request was not served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorReply {
    /// Cause for programs.
    pub kind: ErrorKind,
    /// Cause for people: the step that failed, and its object.
    pub message: String,
    /// A remedy for the user; empty if there is none.
    pub advice: String,
}

impl ErrorReply {
    /// Creates a refusal with its cause and advice.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { kind, message: message.into(), advice: advice.into() }
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, ": {}", self.advice) }
    }
}

impl std::error::Error for ErrorReply {}

/// Causes for which a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The port name does not follow the grammar.
    BadName,
    /// No port or switch has that name.
    NoSuchPort,
    /// Another program has the port.
    PortTaken,
    /// This user may not do this.
    PermissionDenied,
    /// The switch has no free port.
    SwitchFull,
    /// The port cannot be as requested.
    #[serde(rename = "bad_wish")]
    BadProperties,
    /// There is no memory, or no huge page, for the region.
    OutOfMemory,
    /// The request is malformed, or makes no sense here.
    BadRequest,
    /// Program and daemon speak different protocols.
    VersionMismatch,
    /// The user or the daemon has as many ports as are allowed.
    TooManyPorts,
    /// The daemon cannot serve the request now, but may later.
    Busy,
    /// This daemon, kernel or driver does not support the request.
    Unsupported,
    /// The daemon failed.
    Internal,
}
