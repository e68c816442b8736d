//! The switch as controllers see it: answers to their requests, and news for them.

mod answers;
mod multipart;
mod packet_out;
mod ports;

use std::collections::BTreeMap;
use std::sync::Arc;

use ringroad_flow_tables::control_frame::PacketInHeader;
use ringroad_flow_tables::state::FlowState;
use ringroad_flow_tables::tables;
use ringroad_openflow::WHOLE_PACKET;
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{
    FlowMod, FlowRemoved, FragmentFlags, PacketIn, PacketInReason, PortConfig, SwitchMessage,
};
use ringroad_openflow::oxm::{FieldMatch, Match, OxmField};
use ringroad_port::port_index::PortMask;
use ringroad_switch::LearningSwitch;
use serde::{Deserialize, Serialize};

pub use self::ports::OpenFlowPort;
use crate::session::{AsyncMessage, OpenFlowSession, SessionPeer};

/// What a switch does while no controller is connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FailMode {
    /// Its flows stay; without any, it drops all frames.
    #[default]
    Secure,
    /// It is a learning switch until a controller comes.
    Standalone,
}

/// How the switch identifies itself.
#[derive(Debug, Clone)]
pub struct SwitchIdentity {
    /// The name of the switch.
    pub switch: String,
    /// Its number among all switches of a controller.
    pub datapath_id: u64,
    /// Version of the software.
    pub version: String,
}

/// What an agent leaves to an agent in another process, besides its tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    /// The agent's start time, ns of CLOCK_MONOTONIC: ages continue from it.
    pub start_ns: u64,
    /// Whether fragments are dropped.
    pub drops_fragments: bool,
    /// How much of a packet with an invalid TTL controllers get.
    pub miss_send_bytes: u16,
    /// Whether it is a learning switch for lack of a controller.
    pub is_standalone: bool,
    /// The ports: number, what controllers have configured, whether it is live.
    pub ports: Vec<(u32, u32, bool)>,
    /// The greatest generation number of a controller.
    pub generation: Option<u64>,
    /// What was counted.
    pub counted: AgentCounters,
}

impl AgentState {
    /// Puts what workers need of it into the tables.
    pub fn resume_in(&self, state: &mut FlowState) {
        for &(number, config, is_live) in &self.ports {
            let port = tables::TablePort { config: PortConfig(config), is_live };
            state.set_port(PortNo(number), Some(port));
        }
        state.set_fragments(match self.drops_fragments {
            true => tables::FragmentPolicy::Drop,
            false => tables::FragmentPolicy::Normal,
        });
        state.publish();
    }
}

/// Where a controller's packets leave: these ports, and the bytes.
pub type Outgoing = (PortMask, Vec<u8>);

/// How a session is named.
pub type SessionId = u64;

/// A switch's side of OpenFlow, without its connections.
#[derive(Debug)]
pub struct Agent {
    identity: SwitchIdentity,
    state: FlowState,
    switch: Arc<LearningSwitch>,
    /// The worker number under which the agent itself counts.
    worker: usize,
    ports: BTreeMap<PortNo, OpenFlowPort>,
    sessions: BTreeMap<SessionId, OpenFlowSession>,
    next_session: SessionId,
    generation: Option<u64>,
    fragments: FragmentFlags,
    miss_send_bytes: u16,
    fail_mode: FailMode,
    is_standalone: bool,
    outgoing: Vec<Outgoing>,
    /// Bytes of these packets.
    outgoing_bytes: usize,
    counted: AgentCounters,
}

/// What an agent has counted since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCounters {
    /// Changes of flow entries that were made.
    pub flow_mods: u64,
    /// Packets that the switch had for controllers.
    pub packet_ins: u64,
    /// News that were dropped because the other side did not read.
    pub dropped_news: u64,
    /// Packets of controllers that were dropped because there were too many at once.
    #[serde(default)]
    pub dropped_packet_outs: u64,
}

impl Agent {
    /// A switch with the flows of `state`, and without ports. Without flows of an earlier agent, its owner must report
    /// that it has no controller ([`Agent::lose_controllers`]).
    #[must_use]
    pub fn new(
        identity: SwitchIdentity,
        (state, worker): (FlowState, usize),
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
            fragments: FragmentFlags::Normal,
            miss_send_bytes: 128,
            fail_mode,
            is_standalone: false,
            outgoing: Vec::new(),
            outgoing_bytes: 0,
            counted: AgentCounters::default(),
        }
    }

    /// Continues where another agent stopped, with whose tables this one was made.
    pub fn resume(&mut self, remains: &AgentState) {
        self.fragments = if remains.drops_fragments { FragmentFlags::Drop } else { FragmentFlags::Normal };
        self.miss_send_bytes = remains.miss_send_bytes;
        self.is_standalone = remains.is_standalone;
        self.generation = remains.generation;
        self.counted = remains.counted;
    }

    /// What it leaves to an agent in another process; `start_ns` is the beginning of its time.
    #[must_use]
    pub fn remains(&self, start_ns: u64) -> AgentState {
        let ports = self.state.tables().ports().iter();
        AgentState {
            start_ns,
            drops_fragments: self.state.fragments() == tables::FragmentPolicy::Drop,
            miss_send_bytes: self.miss_send_bytes,
            is_standalone: self.is_standalone,
            ports: ports.map(|(number, port)| (number.0, port.config.0, port.is_live)).collect(),
            generation: self.generation,
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
    }

    /// A connection.
    pub fn session(&mut self, id: SessionId) -> Option<&mut OpenFlowSession> {
        self.sessions.get_mut(&id)
    }

    /// Whether a controller is connected.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        self.sessions.values().any(|session| session.peer == SessionPeer::Controller && session.is_greeted)
    }

    /// The flow tables.
    #[must_use]
    pub fn state(&self) -> &FlowState {
        &self.state
    }

    /// What was counted.
    #[must_use]
    pub fn counted(&self) -> AgentCounters {
        let dropped_now: u64 = self.sessions.values().map(|session| session.dropped_news).sum();
        AgentCounters { dropped_news: self.counted.dropped_news + dropped_now, ..self.counted }
    }

    /// Takes what controllers want to send, to be put onto the switch.
    pub fn take_outgoing(&mut self) -> Vec<Outgoing> {
        self.outgoing_bytes = 0;
        std::mem::take(&mut self.outgoing)
    }

    /// Bytes of tables that became free since the last call.
    pub fn take_freed_bytes(&mut self) -> u64 {
        self.state.take_freed_bytes()
    }

    /// Changes what the switch does without a controller.
    pub fn set_fail_mode(&mut self, fail_mode: FailMode) {
        self.fail_mode = fail_mode;
    }

    /// Becomes a learning switch where that is wanted without a controller.
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
        // Nothing about this entry can be refused.
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

    /// Ends entries whose time is over.
    pub fn tick(&mut self, now_ns: u64) {
        let removed = self.state.expire(now_ns);
        self.state.publish();
        self.tell_removed(removed);
    }

    /// Takes a frame that the switch has for the controllers.
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
        let max_len = match header.reason {
            PacketInReason::InvalidTtl => self.miss_send_bytes,
            _ => header.max_len,
        };
        let data = match max_len {
            WHOLE_PACKET => packet,
            len => packet.get(..usize::from(len)).unwrap_or(packet),
        };
        let exact = |field: OxmField, value: u128| FieldMatch { field, value, mask: field.all_ones() };
        let mut fields = vec![exact(OxmField::InPort, header.in_port.0.into())];
        if header.metadata != 0 {
            fields.push(exact(OxmField::Metadata, header.metadata.into()));
        }
        if header.tunnel_id != 0 {
            fields.push(exact(OxmField::TunnelId, header.tunnel_id.into()));
        }
        let message = PacketIn {
            buffer_id: None,
            total_bytes: u16::try_from(packet.len()).unwrap_or(u16::MAX),
            reason: header.reason,
            table: header.table,
            cookie: header.cookie,
            // None of these fields needs another.
            matching: Match::new(fields).unwrap_or_default(),
            data: data.to_vec(),
        };
        self.tell(news, &SwitchMessage::PacketIn(message));
    }
}
