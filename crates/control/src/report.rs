//! The daemon's reports about itself and its ports: the replies to `Status`, `List` and `MacTable`, and what the CLI
//! prints with `--json`, field by field.
//!
//! Counters run from the making of the thing counted and never go back. `received` are frames that the datapath took
//! from the port, `delivered` those that it put into the port.

use std::collections::BTreeMap;

pub use ringroad_counters::counters::{CounterReport, Statistic};
use serde::{Deserialize, Serialize};

use crate::message::OpenFlow;

/// The whole daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusReport {
    /// Version of the daemon's program.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// Time since the daemon started, seconds.
    pub uptime_s: u64,
    /// Path of the control socket.
    pub socket: String,
    /// Path of the configuration file, if there is one.
    pub config: Option<String>,
    /// What started the daemon.
    pub started: StartedBy,
    /// The threads that move frames.
    pub workers: Vec<WorkerReport>,
    /// The switches.
    pub switches: Vec<SwitchReport>,
    /// The ports, those on switches and all others.
    pub ports: Vec<PortReport>,
    /// As [`ListReport::next`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Memory of all regions together, bytes.
    pub shared_memory_bytes: u64,
    /// The same by user id.
    #[serde(default)]
    pub shared_memory_by_user: BTreeMap<u32, u64>,
    /// Part of `shared_memory_bytes` that lies in huge pages, bytes.
    pub huge_page_bytes: u64,
    /// Ports that are configured, or that a daemon before this one had, and are not there yet: the reason for each.
    #[serde(default)]
    pub waiting: BTreeMap<String, String>,
    /// Requests that were answered with an error, including malformed requests.
    pub rejected_requests: u64,
}

impl OpenFlowReport {
    /// How many controllers are connected.
    #[must_use]
    pub fn connected_controllers(&self) -> usize {
        self.controllers.iter().filter(|controller| controller.is_connected).count()
    }
}

/// A switch with flow tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenFlowReport {
    /// Its settings.
    pub settings: OpenFlow,
    /// Number of the switch for controllers, 16 hexadecimal digits.
    pub datapath_id: String,
    /// Path of the socket for tools of this machine.
    pub socket: String,
    /// Its connections to controllers, in the order of the settings.
    pub controllers: Vec<ControllerReport>,
    /// Connections of tools.
    pub tools: u64,
    /// Connections of tools that the switch refused or ended.
    #[serde(default)]
    pub refused_tools: u64,
    /// The same by cause: `tls`, `greeting`, `protocol`, `silence`, `unread`, `address`, `crowd` (docs/openflow.md).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_tools_by_cause: BTreeMap<String, u64>,
    /// From where the last of them came, and why it was refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub refusal: String,
    /// Flow entries in all tables.
    pub flows: u64,
    /// Groups.
    #[serde(default)]
    pub groups: u64,
    /// Meters.
    #[serde(default)]
    pub meters: u64,
    /// Memory that entries, groups and meters are charged for, bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// The most that this may be; what all switches have together can be less.
    #[serde(default)]
    pub memory_limit_bytes: u64,
    /// Changes of flow entries that controllers and tools have made.
    #[serde(default)]
    pub flow_mods: u64,
    /// Frames that the switch has had for controllers.
    #[serde(default)]
    pub packet_ins: u64,
    /// Messages that a controller did not get because it did not read.
    pub dropped_news: u64,
    /// Packets of controllers that the switch did not take: too many at once.
    #[serde(default)]
    pub dropped_packet_outs: u64,
    /// The tables that have entries, or have had frames.
    #[serde(default)]
    pub tables: Vec<FlowTableReport>,
    /// Why the settings are not in force yet; empty where they are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waiting: String,
}

/// A flow table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowTableReport {
    /// Its number.
    pub table: u8,
    /// Flow entries.
    pub flows: u64,
    /// Frames that reached it.
    pub lookups: u64,
    /// Frames that an entry of it matched.
    pub matches: u64,
}

/// A connection to a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ControllerReport {
    /// Where the controller is.
    pub address: String,
    /// Whether switch and controller have greeted each other.
    pub is_connected: bool,
    /// Why the connection failed or ended last; empty while it is there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

/// What started the daemon.
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
    /// CPU that it is pinned to, if it is.
    pub cpu: Option<u32>,
    /// Turns over its ports.
    pub loops: u64,
    /// Part of `loops` that moved at least one frame.
    pub busy_loops: u64,
    /// Time that those took, ns; what other programs had of the processor in their middle counts.
    #[serde(default)]
    pub busy_ns: u64,
    /// Frames that those moved.
    #[serde(default)]
    pub frames: u64,
    /// How many of those moved one frame, up to two, up to four, and so on to [`MOST_TURN_FRAMES`], and more.
    #[serde(default)]
    pub turn_frames: Vec<u64>,
    /// Times that it went to sleep for lack of work.
    pub sleeps: u64,
    /// Times that a program's kick woke it.
    pub kicks_received: u64,
    /// CPU time used, ns.
    pub cpu_time_ns: u64,
    /// What it is doing.
    pub state: WorkerState,
}

/// The greatest bound of [`WorkerReport::turn_frames`].
pub const MOST_TURN_FRAMES: u64 = 1024;

/// What a worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerState {
    /// Moves frames or looks for some.
    Running,
    /// Waits to be kicked.
    Sleeping,
    /// Ended.
    Stopped,
}

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SwitchReport {
    /// Name, such as `vale0`.
    pub name: String,
    /// Number of ports.
    pub ports: u32,
    /// Number of addresses learned and not yet aged out.
    pub macs: u32,
    /// Addresses that were forgotten because others needed their place.
    #[serde(default)]
    pub evictions: u64,
    /// Times that a frame came from a static address on another port than the address's.
    #[serde(default)]
    pub refused_moves: u64,
    /// Frames that went to more than one port.
    pub replicated_frames: u64,
    /// Sum over all ports, those that left included: once traffic has stopped, `received_frames + replicated_frames` is
    /// `delivered_frames` plus all drops.
    pub totals: CounterReport,
    /// Its flow tables, if it has some.
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

/// How a new daemon took over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UpgradeReport {
    /// Version of the daemon before.
    pub from: String,
    /// Version of the daemon now.
    pub to: String,
    /// Process of the daemon now.
    pub pid: u32,
    /// How long no frame was forwarded, ns.
    pub pause_ns: u64,
    /// Ports that stayed as they were and are there now: on switches, devices of programs, and pipes.
    pub kept: u64,
    /// Ports whose devices were closed and opened again, and are there now: frames may have been lost there meanwhile.
    pub reopened: Vec<String>,
    /// Ports that could not be opened again yet, and why. The daemon retries them every second.
    #[serde(default)]
    pub waiting: BTreeMap<String, String>,
    /// Ports that are gone.
    pub lost: Vec<String>,
    /// What of the configuration could not be applied; empty if all is in force.
    pub problem: String,
}

/// What was saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SaveReport {
    /// The configuration file.
    pub config: String,
    /// Ports, and static addresses (`MAC on PORT`), that it has now and did not have before.
    pub added: Vec<String>,
    /// Ports and static addresses that were removed from it.
    pub removed: Vec<String>,
}

/// A configuration in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigReport {
    /// The file from which it was read; `None` for a daemon without one.
    pub config: Option<String>,
    /// All of it in TOML, with the values of keys that the file leaves out.
    pub toml: String,
}

/// How a daemon differs from a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigDifference {
    /// Keys with other values.
    pub keys: Vec<KeyDifference>,
    /// Ports that were attached and that the configuration does not have, and static addresses (`MAC on PORT`).
    pub only_attached: Vec<String>,
    /// Ports that the configuration has and the daemon does not have, or has with other options, and static addresses.
    pub only_configured: Vec<String>,
}

/// A key whose value in force is not the configured one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyDifference {
    /// Such as `workers.count`.
    pub key: String,
    /// The value in force, in TOML.
    pub in_force: String,
    /// The configured value, in TOML.
    pub configured: String,
    /// Whether the change takes effect when the daemon starts the next time only.
    pub at_next_start: bool,
}

impl ConfigDifference {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.only_attached.is_empty() && self.only_configured.is_empty()
    }
}

/// The ports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListReport {
    /// The ports, those on switches and all others.
    pub ports: Vec<PortReport>,
    /// Where the answer had not room for all: the place of the next, for
    /// [`Request::ListFrom`](crate::message::Request::ListFrom).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// In the answer to [`Request::List`](crate::message::Request::List): ports that are not there yet, and why. The
    /// daemon retries them every second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waiting: BTreeMap<String, String>,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortReport {
    /// Full name.
    pub name: String,
    /// Name of its driver: `shm`, `pipe`, `af_xdp`, ...
    pub kind: String,
    /// The mechanism in use, as text for users.
    pub mode: String,
    /// Switch that it is on.
    pub switch: Option<String>,
    /// Index on its switch.
    pub index: Option<u8>,
    /// Whether it was attached, and so outlives the program that uses it.
    pub persistent: bool,
    /// Whether a program or driver serves it now.
    pub bound: bool,
    /// The program that has it open, else the program that made it and keeps it: then `bound` is false.
    pub owner: Option<PortOwner>,
    /// Queues, each a tx ring and an rx ring.
    pub queues: u16,
    /// Slots of each ring.
    pub slots: u32,
    /// Size of a buffer, bytes.
    pub buffer_bytes: u32,
    /// Its VLANs and limits on its switch, where some are set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<PortSettingsReport>,
    /// What went through it.
    pub counters: CounterReport,
    /// The same for each queue that it has now, where it has several and is on a switch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_counters: Vec<CounterReport>,
    /// Why the port is stopped, if it is.
    pub error: Option<String>,
    /// Notes for the user, such as why a better mechanism was not available.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The network interface behind it, as it is now; `None` for ports without one and where it is gone.
    #[serde(default)]
    pub link: Option<LinkReport>,
    /// The program at the other side of its socket; `None` for ports without one.
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
    /// Whether it exchanges frames only with ports that are not isolated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// How many frames/s it may send that go to several ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storm: Option<u32>,
}

impl std::fmt::Display for PortSettingsReport {
    /// As the options of a port's name.
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
    /// Whether one is connected.
    pub connected: bool,
    /// Connections that there were, the present one included.
    pub connections: u64,
    /// Features negotiated with the connected peer, in words for the user; empty without a peer.
    pub agreed: String,
    /// Queues that the peer uses now.
    pub active_queues: u16,
    /// Why the last connection failed or could not be made; absent after a regular end.
    pub last_error: Option<String>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkReport {
    /// Its name.
    pub interface: String,
    /// Network namespace in which it is, as the port's name gives it; `None` is the daemon's.
    pub netns: Option<String>,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether it has a carrier.
    pub running: bool,
    /// Speed, bit/s, where the interface has one.
    pub speed_bps: Option<u64>,
    /// Its address, in lower case with colons.
    pub mac: String,
    /// Longest packet that it carries, bytes without the Ethernet header.
    pub mtu: u32,
}

/// The program that has a port open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortOwner {
    /// Its process when it connected; `None` where it lives in a PID namespace that the daemon does not see.
    pub pid: Option<u32>,
    /// Its effective user when it connected.
    pub uid: u32,
    /// What it calls itself.
    pub program: String,
}

/// A learned address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MacEntryReport {
    /// Address in lower case with colons, such as `02:00:00:00:00:01`.
    pub mac: String,
    /// The VLAN in which it was seen; `None` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Name of the port behind which it was seen.
    pub port: String,
    /// Time since it was last seen, seconds.
    pub age_s: u64,
    /// Whether an operator has put it there: it does not age, and frames do not move it.
    #[serde(default, rename = "static")]
    pub is_static: bool,
}

/// A trace as far as it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceReport {
    /// The traced frames, in the order in which the switch decided on them.
    pub frames: Vec<TracedFrameReport>,
    /// How many frames are still wanted.
    pub left: u32,
}

/// What happened to a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TracedFrameReport {
    /// When the switch decided on it, ns since the Unix epoch.
    pub time_ns: u64,
    /// Name of the port that it came in by.
    pub from: String,
    /// Bytes, without FCS.
    pub len: u64,
    /// Slots that it lay in.
    pub fragments: u32,
    /// Whether its sender left checksums open, or left it to be cut.
    pub unfinished: bool,
    /// Its first bytes, at most 128, in hexadecimal digits.
    pub start: String,
    /// What the switch knew of its source.
    pub source: TracedSource,
    /// The other port of its source, if it has moved or is refused.
    pub source_port: Option<String>,
    /// Why it goes where it goes.
    pub reason: TracedReason,
    /// Names of the ports to which the switch sent it.
    pub to: Vec<String>,
    /// Why the switch sent it nowhere.
    pub dropped: Option<String>,
    /// What became of it at each port.
    pub deliveries: Vec<TracedDeliveryReport>,
}

/// What a switch knew of a frame's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TracedSource {
    /// It was on this port.
    Known,
    /// It was on no port, and is on this one now.
    Learned,
    /// It was on another port, and is on this one now.
    Moved,
    /// It is on another port, where it stays.
    Refused,
    /// It is not learned: the frame is too short, has a multicast source, or forbids it.
    NotLearned,
}

/// Why a frame goes where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TracedReason {
    /// Its destination is known.
    Known,
    /// Its destination is on no port: it goes to all others.
    Unknown,
    /// It is for several stations, or all.
    Multicast,
    /// Its sender has named the port.
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
    /// Frames that the queue took: several if a long frame was cut.
    pub frames: u32,
    /// Why it was dropped, if it was, whole or in part.
    pub dropped: Option<String>,
    /// Whether the queue holds it, and delivers or drops it later.
    pub held: bool,
}
