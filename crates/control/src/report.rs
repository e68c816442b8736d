//! The daemon's reports about itself and its ports: the replies to `Status`, `List` and `MacTable`, and what the CLI
//! prints with `--json`, field by field.
//!
//! Counters start with the creation of the counted object and never decrease. `received` are frames that the datapath
//! took from the port, `delivered` are frames that it put into the port.

use std::collections::BTreeMap;

pub use ringroad_counters::counters::{CounterReport, Statistic};
use serde::{Deserialize, Serialize};

use crate::message::OpenFlow;

/// State of the whole daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusReport {
    /// Version of the daemon's program.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Time since the daemon started, seconds.
    pub uptime_s: u64,
    /// Path of the control socket.
    pub socket: String,
    /// Path of the configuration file, if there is one.
    pub config: Option<String>,
    /// Party that started the daemon.
    pub started: StartedBy,
    /// The threads that move frames.
    pub workers: Vec<WorkerReport>,
    /// Switches of the daemon.
    pub switches: Vec<SwitchReport>,
    /// Ports on switches, and all others.
    pub ports: Vec<PortReport>,
    /// Position of the next page, as in [`ListReport::next`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Memory of all regions together, bytes.
    pub shared_memory_bytes: u64,
    /// Memory of all regions by user id, bytes.
    #[serde(default)]
    pub shared_memory_by_user: BTreeMap<u32, u64>,
    /// Part of `shared_memory_bytes` that lies in huge pages, bytes.
    pub huge_page_bytes: u64,
    /// Ports that are configured, or that an earlier daemon had, and that do not exist yet: the reason for each.
    #[serde(default)]
    pub waiting: BTreeMap<String, String>,
    /// Requests that were answered with an error, including malformed requests.
    pub rejected_requests: u64,
}

impl OpenFlowReport {
    /// Number of connected controllers.
    #[must_use]
    pub fn connected_controllers(&self) -> usize {
        self.controllers.iter().filter(|controller| controller.is_connected).count()
    }
}

/// A switch with flow tables.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenFlowReport {
    /// Settings of OpenFlow for the switch.
    pub settings: OpenFlow,
    /// Number of the switch for controllers, 16 hexadecimal digits.
    pub datapath_id: String,
    /// Path of the socket for tools of this machine.
    pub socket: String,
    /// Connections to controllers, in the order of the settings.
    pub controllers: Vec<ControllerReport>,
    /// Number of connections of tools.
    pub tools: u64,
    /// Number of connections of tools that the switch refused or ended.
    #[serde(default)]
    pub refused_tools: u64,
    /// Number of refused connections of tools by cause: `tls`, `greeting`, `protocol`, `silence`, `unread`, `address`,
    /// `crowd` (docs/openflow.md).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_tools_by_cause: BTreeMap<String, u64>,
    /// Address and reason of the last refusal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub refusal: String,
    /// Number of flow entries in all tables.
    pub flows: u64,
    /// Number of groups.
    #[serde(default)]
    pub groups: u64,
    /// Number of meters.
    #[serde(default)]
    pub meters: u64,
    /// Memory that entries, groups and meters are charged for, bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Maximum of this memory, bytes; the memory that is left for all switches together can be less.
    #[serde(default)]
    pub memory_limit_bytes: u64,
    /// Number of changes of flow entries by controllers and tools.
    #[serde(default)]
    pub flow_mods: u64,
    /// Number of frames that the switch has had for controllers.
    #[serde(default)]
    pub packet_ins: u64,
    /// Number of frames that the meters of the controllers (`OFPM_CONTROLLER`, `OFPM_SLOWPATH`) have kept from them.
    #[serde(default)]
    pub metered_packet_ins: u64,
    /// Number of messages that a controller did not get because it did not read.
    pub dropped_news: u64,
    /// Number of packets from controllers that the switch did not accept, because there were too many at once.
    #[serde(default)]
    pub dropped_packet_outs: u64,
    /// The tables that have entries, or have had frames.
    #[serde(default)]
    pub tables: Vec<FlowTableReport>,
    /// Reason why the settings are not in force yet; empty if they are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waiting: String,
}

/// A flow table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowTableReport {
    /// Number of the table.
    pub table: u8,
    /// Number of flow entries.
    pub flows: u64,
    /// Number of frames that reached the table.
    pub lookups: u64,
    /// Number of frames that matched an entry of the table.
    pub matches: u64,
}

/// A connection to a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ControllerReport {
    /// Address of the controller.
    pub address: String,
    /// Whether the connection is established: switch and controller have exchanged HELLO.
    pub is_connected: bool,
    /// Reason why the connection failed or ended last; empty while it is established.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

/// Party that started the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StartedBy {
    /// A program that needed it.
    OnDemand,
    /// A user, with `ringroad up` or by hand.
    Command,
    /// A service manager such as systemd.
    ServiceManager,
}

/// A thread that moves frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerReport {
    /// Number of the worker, from 0.
    pub index: u32,
    /// CPU that the thread is pinned to, if it is pinned.
    pub cpu: Option<u32>,
    /// Number of turns over the worker's ports.
    pub loops: u64,
    /// Number of turns that moved at least one frame.
    pub busy_loops: u64,
    /// Time of the turns that moved frames, ns. Time that other programs took from the processor in the middle of such
    /// a turn counts.
    #[serde(default)]
    pub busy_ns: u64,
    /// Number of frames moved.
    #[serde(default)]
    pub frames: u64,
    /// Number of turns that moved one frame, up to two, up to four, and so on to [`MOST_TURN_FRAMES`], and more.
    #[serde(default)]
    pub turn_frames: Vec<u64>,
    /// Number of times that the worker went to sleep for lack of work.
    pub sleeps: u64,
    /// Number of times that a program's kick woke the worker.
    pub kicks_received: u64,
    /// CPU time used, ns.
    pub cpu_time_ns: u64,
    /// Activity of the worker.
    pub state: WorkerState,
}

/// The greatest bound of [`WorkerReport::turn_frames`].
pub const MOST_TURN_FRAMES: u64 = 1024;

/// Activity of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerState {
    /// The worker moves frames or polls for some.
    Running,
    /// The worker waits for a kick.
    Sleeping,
    /// The worker has ended.
    Stopped,
}

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SwitchReport {
    /// Name of the switch, such as `vale0`.
    pub name: String,
    /// Number of ports.
    pub ports: u32,
    /// Number of addresses learned and not yet aged out.
    pub macs: u32,
    /// Number of addresses that were forgotten because other addresses needed their entry.
    #[serde(default)]
    pub evictions: u64,
    /// Number of times that a frame came from a static address on another port than the address's.
    #[serde(default)]
    pub refused_moves: u64,
    /// Number of copies of frames beyond one per frame.
    pub replicated_frames: u64,
    /// Sum over all ports, including ports that left: once traffic has stopped, `received_frames + replicated_frames`
    /// is `delivered_frames` plus all drops.
    pub totals: CounterReport,
    /// State of the flow tables, if the switch has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openflow: Option<OpenFlowReport>,
}

/// The results of a reload besides the changes that it applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReloadReport {
    /// The configuration file that was read; `None` for a daemon without one, which only opened its log file again.
    pub config: Option<String>,
    /// Keys whose changes take effect when the daemon starts the next time, such as `workers.count`.
    pub at_next_start: Vec<String>,
}

/// Report of a daemon that has taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UpgradeReport {
    /// Version of the earlier daemon.
    pub from: String,
    /// Version of the present daemon.
    pub to: String,
    /// Process id of the present daemon.
    pub pid: u32,
    /// Time in which no frame was forwarded, ns.
    pub pause_ns: u64,
    /// Number of ports that were kept as they were: on switches, devices of programs, and pipes.
    pub kept: u64,
    /// Ports whose devices were closed and opened again: frames may have been lost there meanwhile.
    pub reopened: Vec<String>,
    /// Ports that could not be opened again yet, each with the reason. The daemon retries them every second.
    #[serde(default)]
    pub waiting: BTreeMap<String, String>,
    /// Ports that are gone.
    pub lost: Vec<String>,
    /// Part of the configuration that could not be applied, as text for users; empty if all is in force.
    pub problem: String,
}

/// Result of a request to save.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SaveReport {
    /// Path of the configuration file.
    pub config: String,
    /// Ports, and static addresses (`MAC on PORT`), that were added to the file.
    pub added: Vec<String>,
    /// Ports and static addresses that were removed from the file.
    pub removed: Vec<String>,
}

/// A configuration in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigReport {
    /// File from which the configuration was read; `None` for a daemon without one.
    pub config: Option<String>,
    /// Whole configuration in TOML, with the values of keys that the file leaves out.
    pub toml: String,
}

/// Differences between a daemon and a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigDifference {
    /// Keys with other values.
    pub keys: Vec<KeyDifference>,
    /// Attached ports that the configuration does not have, and static addresses (`MAC on PORT`).
    pub only_attached: Vec<String>,
    /// Configured ports that the daemon does not have, or has with other options, and static addresses.
    pub only_configured: Vec<String>,
}

/// A key whose value in force is not the configured one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyDifference {
    /// Name of the key, such as `workers.count`.
    pub key: String,
    /// The value in force, in TOML.
    pub in_force: String,
    /// The configured value, in TOML.
    pub configured: String,
    /// Whether the change takes effect only when the daemon starts the next time.
    pub at_next_start: bool,
}

impl ConfigDifference {
    /// Whether there is no difference.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.only_attached.is_empty() && self.only_configured.is_empty()
    }
}

/// Ports of a daemon, or a part of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListReport {
    /// Ports on switches, and all others.
    pub ports: Vec<PortReport>,
    /// Position of the next port, for [`Request::ListFrom`](crate::message::Request::ListFrom), if the reply did not
    /// have room for all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Ports that do not exist yet, each with the reason, in the reply to
    /// [`Request::List`](crate::message::Request::List). The daemon retries them every second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waiting: BTreeMap<String, String>,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortReport {
    /// Full name of the port.
    pub name: String,
    /// Name of the port's driver: `shm`, `pipe`, `af_xdp`, ...
    pub kind: String,
    /// The mechanism in use, as text for users.
    pub mode: String,
    /// Switch that the port is on.
    pub switch: Option<String>,
    /// Index of the port on its switch.
    pub index: Option<u8>,
    /// Whether the port was attached, and so outlives the program that uses it.
    pub persistent: bool,
    /// Whether a program or driver serves the port now.
    pub bound: bool,
    /// Program that has the port open, else the program that made the port and keeps it: then `bound` is false.
    pub owner: Option<PortOwner>,
    /// Number of queues, each a tx ring and an rx ring.
    pub queues: u16,
    /// Number of slots of each ring.
    pub slots: u32,
    /// Size of a buffer, bytes.
    pub buffer_bytes: u32,
    /// VLANs and limits of the port on its switch, if some are set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<PortSettingsReport>,
    /// Counters of the port.
    pub counters: CounterReport,
    /// Counters of each present queue, if the port has several and is on a switch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_counters: Vec<CounterReport>,
    /// Reason why the port is stopped, if it is.
    pub error: Option<String>,
    /// Notes for the user, such as why a better mechanism was not available.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Network interface behind the port, as it is now; `None` for ports without one, and if the interface is gone.
    #[serde(default)]
    pub link: Option<LinkReport>,
    /// Program at the other side of the port's socket; `None` for ports without a socket.
    #[serde(default)]
    pub peer: Option<PeerReport>,
}

/// The settings of a port of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortSettingsReport {
    /// The VLAN of an access port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// The VLANs of a trunk: `10,20-30`, or `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<String>,
    /// The VLAN of a trunk's frames without tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<u16>,
    /// Whether the port exchanges frames only with ports that are not isolated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// Storm limit: frames per second to several ports that the port may send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storm: Option<u32>,
}

impl std::fmt::Display for PortSettingsReport {
    /// Writes the settings as options of a port's name.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = |key: &str, number: Option<u32>| number.map(|number| format!("{key}={number}"));
        let parts = [
            number("vlan", self.vlan.map(u32::from)),
            self.trunk.as_ref().map(|trunk| format!("trunk={trunk}")),
            number("native", self.native.map(u32::from)),
            self.isolated.then(|| "isolated".to_owned()),
            number("storm", self.storm),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

/// A guest or another foreign program at the other side of a port's socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerReport {
    /// Whether a program is connected.
    pub connected: bool,
    /// Number of connections so far, the present one included.
    pub connections: u64,
    /// Features negotiated with the connected peer, in words for the user; empty without a peer.
    pub agreed: String,
    /// Number of queues that the peer uses now.
    pub active_queues: u16,
    /// Ethernet address of the peer's card, if the peer has it from this port, or has set it here.
    #[serde(default)]
    pub address: Option<String>,
    /// Reason why the last connection failed or could not be made, or what of the present one is stopped; absent after a
    /// regular end.
    pub last_error: Option<String>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkReport {
    /// Name of the interface.
    pub interface: String,
    /// Network namespace of the interface, as the port's name gives it; `None` is the daemon's.
    pub netns: Option<String>,
    /// Whether the interface is switched on.
    pub up: bool,
    /// Whether the interface has a carrier.
    pub running: bool,
    /// Speed, bit/s, if the interface has one.
    pub speed_bps: Option<u64>,
    /// Address of the interface, in lower case with colons.
    pub mac: String,
    /// Maximum length of a packet, bytes without the Ethernet header.
    pub mtu: u32,
}

/// The program that has a port open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortOwner {
    /// Process id of the program when it connected; `None` if it lives in a PID namespace that the daemon does not see.
    pub pid: Option<u32>,
    /// Effective user id of the program when it connected.
    pub uid: u32,
    /// Name that the program gave itself.
    pub program: String,
}

/// A learned address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MacEntryReport {
    /// Address in lower case with colons, such as `02:00:00:00:00:01`.
    pub mac: String,
    /// VLAN in which the address was seen; `None` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Name of the port behind which the address was seen.
    pub port: String,
    /// Time since the address was last seen, seconds.
    pub age_s: u64,
    /// Whether an operator has set the address: then it does not age, and frames do not move it.
    #[serde(default, rename = "static")]
    pub is_static: bool,
}

/// A trace, with the frames recorded so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceReport {
    /// The traced frames, in the order in which the switch decided on them.
    pub frames: Vec<TracedFrameReport>,
    /// Number of frames that are still to come.
    pub left: u32,
}

/// Path of a traced frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TracedFrameReport {
    /// Time of the switch's decision, ns since the Unix epoch.
    pub time_ns: u64,
    /// Name of the port that the frame came in by.
    pub from: String,
    /// Length of the frame, bytes without FCS.
    pub len: u64,
    /// Number of slots that held the frame.
    pub fragments: u32,
    /// Whether the sender left checksums open, or left the frame to be cut.
    pub unfinished: bool,
    /// First bytes of the frame, at most 128, in hexadecimal digits.
    pub start: String,
    /// Knowledge of the switch about the frame's source.
    pub source: TracedSource,
    /// Other port of the source address, if the address has moved or is refused.
    pub source_port: Option<String>,
    /// Reason for the frame's destination.
    pub reason: TracedReason,
    /// Names of the ports to which the switch sent it.
    pub to: Vec<String>,
    /// Reason why the switch sent the frame nowhere.
    pub dropped: Option<String>,
    /// Outcome at each port.
    pub deliveries: Vec<TracedDeliveryReport>,
}

/// Knowledge of a switch about a frame's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TracedSource {
    /// The address was on this port.
    Known,
    /// The address was on no port, and is on this port now.
    Learned,
    /// The address was on another port, and is on this port now.
    Moved,
    /// The address is on another port, and stays there.
    Refused,
    /// The address is not learned: the frame is too short, has a multicast source, or forbids it.
    NotLearned,
}

/// Reason for a frame's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TracedReason {
    /// The destination is known.
    Known,
    /// The destination is on no port: the frame goes to all other ports.
    Unknown,
    /// The frame is for several stations, or all.
    Multicast,
    /// The sender has named the port.
    Forced,
}

/// A delivery of a traced frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TracedDeliveryReport {
    /// Name of the port; `None` if it has left.
    pub port: Option<String>,
    /// Number of the port's queue.
    pub queue: u32,
    /// Number of frames that the queue took: several if a long frame was cut.
    pub frames: u32,
    /// Reason why the frame was dropped, whole or in part, if it was.
    pub dropped: Option<String>,
    /// Whether the queue holds the frame, and delivers or drops it later.
    pub held: bool,
}
