//! The state that a daemon hands over. Descriptors are numbers in the list that goes with it.

use std::collections::BTreeMap;

use ringroad_control::message::PortSpec;
use ringroad_control::report::StartedBy;
use ringroad_drivers::shm::PortShape;
use ringroad_openflow_agent::agent::AgentState;
use ringroad_port::counters::CounterSnapshot;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_settings::PortSettings;
use ringroad_ring::allocator::HandedOut;
use ringroad_ring::geometry::{PortPlacement, RegionGeometry};
use serde::{Deserialize, Serialize};

use crate::attaching::PortRecord;
use crate::config::Config;
use crate::port_entries::{ClientId, PortOrigin};
use crate::provisional_ports::ProvisionalPorts;
use crate::switch_settings::SwitchSettings;

/// Whole state of a daemon.
#[derive(Debug, Serialize, Deserialize)]
pub struct UpgradeState {
    pub(crate) version: String,
    pub(crate) config: Config,
    pub(crate) started: StartedBy,
    pub(crate) instance: u64,
    pub(crate) uptime_ns: u64,
    pub(crate) next_client: ClientId,
    pub(crate) rejected_requests: u64,
    pub(crate) listener: usize,
    pub(crate) sessions: Vec<SessionState>,
    /// The client that requested the upgrade.
    pub(crate) asking: ClientId,
    /// Whether ports may be lost.
    pub(crate) anyway: bool,
    /// Time at which the workers stopped, by CLOCK_MONOTONIC, ns.
    pub(crate) stopped_at_ns: u64,
    pub(crate) ports: PortsState,
}

/// A connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SessionState {
    pub(crate) id: ClientId,
    pub(crate) program: String,
    pub(crate) has_asked: bool,
    /// Bytes that were received and not answered.
    pub(crate) unread: Vec<u8>,
    pub(crate) socket: usize,
}

/// State of all ports.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PortsState {
    pub(crate) homes: Vec<HomeState>,
    pub(crate) on_switches: Vec<SwitchPortState>,
    pub(crate) devices: Vec<DeviceState>,
    pub(crate) pipes: Vec<PipeState>,
    pub(crate) settings: SwitchSettings,
    /// Counts for the flow tables that were sent before, by switch, as numbers of descriptors.
    pub(crate) flow_counts: BTreeMap<String, usize>,
    /// Learned addresses of each switch, with their ports.
    pub(crate) learned: BTreeMap<String, Vec<([u8; 6], u8)>>,
    /// Learned addresses of each switch with their VLANs and ports.
    pub(crate) learned_in_vlans: BTreeMap<String, Vec<(u16, [u8; 6], u8)>>,
    pub(crate) departed_of_switches: BTreeMap<String, CountersState>,
    pub(crate) departed: CountersState,
    /// Ports that commands attached and whose devices do not exist.
    pub(crate) waiting: Vec<PortRecord>,
    pub(crate) last_number: u64,
    /// Ports that commands attached and that end with their connections.
    #[serde(default)]
    pub(crate) provisional: ProvisionalPorts,
    /// Ports of switches whose devices are reopened.
    pub(crate) reopened: Vec<PortRecord>,
    /// Names of ports that cannot be handed over and are not reopened, each with the reason.
    pub(crate) lost: BTreeMap<String, String>,
}

impl PortsState {
    /// The names of the ports that are handed over.
    pub(crate) fn kept(&self) -> Vec<String> {
        let on_switches = self.on_switches.iter().map(|port| format!("{}:{}", port.switch, port.port));
        let devices = self.devices.iter().filter(|device| device.device_queues.is_some());
        let pipes = self.pipes.iter().map(|PipeState { name: (parent, id), .. }| format!("{parent}{{{id}"));
        on_switches.chain(devices.map(|device| device.key.clone())).chain(pipes).collect()
    }
}

/// The flow tables of a switch.
#[derive(Debug, Serialize, Deserialize)]
pub struct FlowTablesState {
    pub(crate) switch: String,
    #[serde(rename = "remains")]
    pub(crate) agent_state: AgentState,
    /// Number of the descriptor of a file with the image of the tables.
    pub(crate) image: usize,
}

/// A region in which ports lie.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HomeState {
    pub(crate) shape: PortShape,
    pub(crate) geometry: RegionGeometry,
    pub(crate) handed_out: HandedOut,
    pub(crate) memory: usize,
    /// Client whose user pays for the region.
    pub(crate) payer: ClientId,
}

/// A port of a switch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SwitchPortState {
    pub(crate) switch: String,
    pub(crate) port: String,
    pub(crate) index: u8,
    pub(crate) shape: PortShape,
    pub(crate) is_persistent: bool,
    pub(crate) spec: Option<PortSpec>,
    /// The settings requested last.
    pub(crate) asked: PortSettings,
    pub(crate) origin: PortOrigin,
    pub(crate) occupant: OccupantState,
    pub(crate) queues: Vec<QueueState>,
    pub(crate) past: CountersState,
}

/// Occupant of a port of a switch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum OccupantState {
    Nobody,
    Program(RingsState),
    Device {
        /// Notes of the device for the user.
        notes: Vec<String>,
    },
}

/// A program's rings.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RingsState {
    pub(crate) client: ClientId,
    /// Index of the rings' region among the homes.
    pub(crate) home: usize,
    pub(crate) placement: PortPlacement,
    /// Descriptor numbers of kick and notify of each queue.
    pub(crate) events: Vec<[usize; 2]>,
}

/// A device that a program has open.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeviceState {
    pub(crate) key: String,
    pub(crate) spec: PortSpec,
    pub(crate) rings: RingsState,
    pub(crate) ring_queues: Vec<QueueState>,
    /// Queues of the device; `None` if the device is reopened.
    pub(crate) device_queues: Option<Vec<QueueState>>,
}

/// A pipe.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PipeState {
    pub(crate) name: (String, String),
    pub(crate) shape: PortShape,
    pub(crate) geometry: RegionGeometry,
    pub(crate) memory: usize,
    pub(crate) placements: [PortPlacement; 2],
    pub(crate) events: Vec<[usize; 2]>,
    pub(crate) owners: [Option<ClientId>; 2],
    pub(crate) origin: PortOrigin,
}

/// A queue.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct QueueState {
    pub(crate) numbers: Vec<u64>,
    pub(crate) descriptors: Vec<usize>,
    #[serde(rename = "account")]
    pub(crate) counters: CountersState,
}

/// Totals of frames.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CountersState {
    received: [u64; 2],
    delivered: [u64; 2],
    replicated: u64,
    dropped: Vec<(DropCause, u64)>,
    /// Events by name. A daemon of another version may have others.
    #[serde(flatten)]
    events: BTreeMap<String, u64>,
}

impl From<&CounterSnapshot> for CountersState {
    fn from(counters: &CounterSnapshot) -> Self {
        let dropped = DropCause::ALL.into_iter().map(|cause| (cause, counters.dropped_for(cause)));
        Self {
            received: [counters.received_frames, counters.received_bytes],
            delivered: [counters.delivered_frames, counters.delivered_bytes],
            replicated: counters.replicated_frames,
            dropped: dropped.filter(|(_, frames)| *frames != 0).collect(),
            events: counters.events().map(|(name, count)| (name.to_owned(), count)).collect(),
        }
    }
}

impl From<&CountersState> for CounterSnapshot {
    fn from(state: &CountersState) -> Self {
        let mut counters = Self {
            received_frames: state.received[0],
            received_bytes: state.received[1],
            delivered_frames: state.delivered[0],
            delivered_bytes: state.delivered[1],
            replicated_frames: state.replicated,
            ..Self::default()
        };
        for (name, count) in counters.events_mut() {
            *count = state.events.get(name).copied().unwrap_or(0);
        }
        for &(cause, frames) in &state.dropped {
            counters.dropped[cause as usize] += frames;
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_survive_an_upgrade_from_and_to_daemons_with_other_events() {
        let handed_over = r#"{"received":[1,2],"delivered":[3,4],"replicated":5,"dropped":[["no_space",6]],"uncopied_frames":9,"violations":7,"wakeups":8}"#;
        let state: CountersState = serde_json::from_str(handed_over).unwrap();
        let counters = CounterSnapshot::from(&state);
        let mut expected = CounterSnapshot {
            received_frames: 1,
            received_bytes: 2,
            delivered_frames: 3,
            delivered_bytes: 4,
            replicated_frames: 5,
            violations: 7,
            wakeups: 8,
            uncopied_frames: 9,
            ..CounterSnapshot::default()
        };
        expected.dropped[DropCause::NoSpace as usize] = 6;
        assert_eq!(counters, expected);
        assert_eq!(serde_json::to_string(&CountersState::from(&counters)).unwrap(), handed_over);

        let other = handed_over.replace("wakeups", "of_another_version");
        let other = CounterSnapshot::from(&serde_json::from_str(&other).unwrap());
        assert_eq!(other, CounterSnapshot { wakeups: 0, ..expected });
    }
}
