//! The switch as controllers see it: answers to requests, and notifications.

mod answers;
mod multipart;
mod packet_out;
mod ports;

use std::collections::BTreeMap;
use std::sync::Arc;

use ringroad_flow_tables::control_frame::PacketInHeader;
use ringroad_flow_tables::state::FlowState;
use ringroad_flow_tables::tables;
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{FlowMod, FlowRemoved, PacketIn, PortConfig, SwitchMessage};
use ringroad_openflow::oxm::{FieldMatch, Match, OxmField};
use ringroad_port::clock::Clock;
use ringroad_port::port_index::PortMask;
use ringroad_switch::LearningSwitch;
use serde::{Deserialize, Serialize};

pub use self::ports::OpenFlowPort;
use crate::session::{AsyncMessage, OpenFlowSession, SessionPeer};

/// Behaviour of a switch while no controller is connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FailMode {
    /// The switch keeps its flows; without any, it drops all frames.
    #[default]
    Secure,
    /// The switch is a learning switch until a controller connects.
    Standalone,
}

/// Identity of the switch.
#[derive(Debug, Clone)]
pub struct SwitchIdentity {
    /// Name of the switch.
    pub switch: String,
    /// Number of the switch among all switches of a controller.
    pub datapath_id: u64,
    /// Version of the software.
    pub version: String,
}

/// State that an agent leaves to an agent in another process, besides the tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    /// Start time of the agent, ns of CLOCK_MONOTONIC: ages continue from it.
    pub start_ns: u64,
    /// Whether fragments are dropped.
    pub drops_fragments: bool,
    /// Number of bytes of a buffered packet that controllers asked for. There are no buffers: it is only told.
    pub miss_send_bytes: u16,
    /// Whether the switch is a learning switch for lack of a controller.
    pub is_standalone: bool,
    /// Ports: number, configuration by controllers, and whether the port is live.
    pub ports: Vec<(u32, u32, bool)>,
    /// Counts of the agent.
    pub counted: AgentCounters,
}

impl AgentState {
    /// Sets the tables' state that workers need.
    pub fn resume_in(&self, state: &mut FlowState) {
        for &(number, config, is_live) in &self.ports {
            let port = tables::TablePort { config: PortConfig(config), is_live };
            state.set_port(PortNo(number), Some(port));
        }
        state.set_drops_fragments(self.drops_fragments);
        state.publish();
    }
}

/// A controller's packet: the ports by which it leaves, and its bytes.
pub type Outgoing = (PortMask, Vec<u8>);

/// Maximum number of a packet's bytes that controllers get: a packet-in whose match has all three fields leaves this
/// part of a message's 65,535 bytes.
const MAX_PACKET_IN_BYTES: usize = 65_535 - 66;

/// Number that identifies a session.
pub type SessionId = u64;

/// Agent: a switch's side of OpenFlow, without the connections.
#[derive(Debug)]
pub struct Agent {
    identity: SwitchIdentity,
    pub(crate) state: FlowState,
    switch: Arc<LearningSwitch>,
    /// Worker number under which the agent itself counts.
    worker: usize,
    ports: BTreeMap<PortNo, OpenFlowPort>,
    sessions: BTreeMap<SessionId, OpenFlowSession>,
    next_session: SessionId,
    /// Greatest generation number of the controllers that take part in the election of a master.
    generation: Option<u64>,
    /// Time of the workers, by which meters measure.
    clock: Clock,
    miss_send_bytes: u16,
    pub(crate) fail_mode: FailMode,
    is_standalone: bool,
    outgoing: Vec<Outgoing>,
    /// Bytes of the packets in `outgoing`.
    outgoing_bytes: usize,
    counted: AgentCounters,
}

/// Counts of an agent since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCounters {
    /// Number of changes of flow entries.
    pub flow_mods: u64,
    /// Number of packets from the switch for controllers.
    pub packet_ins: u64,
    /// Number of notifications dropped because the peer did not read.
    pub dropped_news: u64,
    /// Number of controllers' packets dropped because too many were waiting.
    #[serde(default)]
    pub dropped_packet_outs: u64,
}

impl Agent {
    /// Makes an agent for the flows of `state`, without ports. It counts as `worker`, and `clock` is the time of the
    /// workers. Unless the flows are an earlier agent's, the owner must then report that there is no controller
    /// ([`Agent::lose_controllers`]).
    #[must_use]
    pub fn new(
        identity: SwitchIdentity,
        (state, worker, clock): (FlowState, usize, Clock),
        switch: Arc<LearningSwitch>,
        fail_mode: FailMode,
    ) -> Self {
        Self {
            identity,
            state,
            switch,
            worker,
            ports: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_session: 0,
            generation: None,
            clock,
            miss_send_bytes: 128,
            fail_mode,
            is_standalone: false,
            outgoing: Vec::new(),
            outgoing_bytes: 0,
            counted: AgentCounters::default(),
        }
    }

    /// Continues from the state of another agent, whose tables this one was made with.
    pub fn resume(&mut self, remains: &AgentState) {
        self.miss_send_bytes = remains.miss_send_bytes;
        self.is_standalone = remains.is_standalone;
        self.counted = remains.counted;
    }

    /// Returns the state for an agent in another process; `start_ns` is the start of this agent's time.
    #[must_use]
    pub fn remains(&self, start_ns: u64) -> AgentState {
        let ports = self.state.tables().ports().iter();
        AgentState {
            start_ns,
            drops_fragments: self.state.drops_fragments(),
            miss_send_bytes: self.miss_send_bytes,
            is_standalone: self.is_standalone,
            ports: ports.map(|(number, port)| (number.0, port.config.0, port.is_live)).collect(),
            counted: self.counted(),
        }
    }

    /// Begins a connection.
    pub fn connect(&mut self, peer: SessionPeer) -> SessionId {
        self.next_session += 1;
        self.sessions.insert(self.next_session, OpenFlowSession::new(peer));
        self.next_session
    }

    /// Forgets a connection.
    pub fn disconnect(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.remove(&id) {
            self.counted.dropped_news += session.dropped_news;
        }
        // Generation numbers put the requests of these controllers in order (OpenFlow 1.3.5, 6.3.6). Without the
        // controllers there are no such requests, and the next ones may begin with any number.
        if !self.sessions.values().any(|session| session.is_elector) {
            self.generation = None;
        }
    }

    /// Session of a connection.
    pub fn session(&mut self, id: SessionId) -> Option<&mut OpenFlowSession> {
        self.sessions.get_mut(&id)
    }

    /// Whether a controller is connected.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        self.sessions.values().any(|session| session.peer == SessionPeer::Controller && session.is_greeted)
    }

    /// Counts since the agent began.
    #[must_use]
    pub fn counted(&self) -> AgentCounters {
        let dropped_now: u64 = self.sessions.values().map(|session| session.dropped_news).sum();
        AgentCounters { dropped_news: self.counted.dropped_news + dropped_now, ..self.counted }
    }

    /// Takes the packets of controllers, which the caller sends to the switch.
    pub fn take_outgoing(&mut self) -> Vec<Outgoing> {
        self.outgoing_bytes = 0;
        std::mem::take(&mut self.outgoing)
    }

    /// Becomes a learning switch, if the fail mode says so and no controller is connected.
    pub fn lose_controllers(&mut self, now_ns: u64) {
        if self.fail_mode == FailMode::Standalone && !self.is_standalone {
            self.stand_alone(now_ns);
        }
    }

    fn stand_alone(&mut self, now_ns: u64) {
        self.state.clear();
        let normal = Action::Output { port: PortNo::NORMAL, max_len: 0 };
        let instructions = Instructions { apply: Some(vec![normal]), ..Instructions::default() };
        let request = FlowMod::add(0, 0, Match::default(), instructions);
        // This entry is always valid, so it cannot be refused.
        let _ = self.state.flow_mod(&request, now_ns);
        self.state.publish();
        self.is_standalone = true;
    }

    fn tell(&mut self, news: AsyncMessage, message: &SwitchMessage) {
        for session in self.sessions.values_mut().filter(|session| session.wants(news)) {
            session.tell(message);
        }
    }

    fn tell_removed(&mut self, removed: Vec<FlowRemoved>) {
        for flow in removed {
            self.tell(AsyncMessage::FlowRemoved(flow.reason as u32), &SwitchMessage::FlowRemoved(flow));
        }
    }

    /// Ends entries whose timeout has passed.
    pub fn tick(&mut self, now_ns: u64) {
        let removed = self.state.expire(now_ns);
        self.state.publish();
        self.tell_removed(removed);
    }

    /// Takes a frame from the switch for the controllers.
    pub fn packet_in(&mut self, frame: &[u8]) {
        if let Some((header, packet)) = PacketInHeader::read(frame) {
            self.pass_on(header, packet);
        }
    }

    fn pass_on(&mut self, header: PacketInHeader, packet: &[u8]) {
        self.counted.packet_ins += 1;
        let news = AsyncMessage::PacketIn(header.reason as u32);
        if !self.sessions.values().any(|session| session.wants(news)) {
            return;
        }
        let rest = [(OxmField::Metadata, header.metadata), (OxmField::TunnelId, header.tunnel_id)];
        let fields = std::iter::once((OxmField::InPort, header.in_port.0.into()))
            .chain(rest.into_iter().filter(|&(_, value)| value != 0))
            .map(|(field, value)| FieldMatch::exact(field, value.into()));
        let message = PacketIn {
            buffer_id: None,
            total_bytes: u16::try_from(packet.len()).unwrap_or(u16::MAX),
            reason: header.reason,
            table: header.table,
            cookie: header.cookie,
            // These fields have no prerequisites.
            matching: Match::new(fields).unwrap_or_default(),
            // The switch has no buffers, so controllers get the whole packet, whatever length they asked for (OpenFlow
            // 1.3.5, 7.4.1). It is cut only if no message can carry it.
            data: packet.get(..MAX_PACKET_IN_BYTES).unwrap_or(packet).to_vec(),
        };
        self.tell(news, &SwitchMessage::PacketIn(message));
    }
}
