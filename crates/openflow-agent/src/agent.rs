//! The switch as controllers see it: answers to their requests, and news for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringroad_flow_tables::control_frame::{PacketInHeader, port_index};
use ringroad_flow_tables::counters::{Count, CounterId};
use ringroad_flow_tables::flow::Flow;
use ringroad_flow_tables::packet::Packet;
use ringroad_flow_tables::pipeline::{Dropped, Sink, Target, ToController};
use ringroad_flow_tables::state::FlowState;
use ringroad_flow_tables::tables::{self, TABLES, Tables};
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{
    Capabilities, Description, Features, FlowCommand, FlowFlags, FlowMod, FlowRemoved, Fragments,
    GroupCapabilities, GroupFeatures, MeterFeatures, MeterFlags, MultipartReply, MultipartRequest,
    MultipartRequestMessage, PacketIn, PacketInReason, PacketOut, PortConfig, PortDesc, PortFeatures,
    PortMod, PortState, PortStats, PortStatus, PortStatusReason, QueueConfig, Reply, Request, Role,
    RoleMessage, SwitchConfig,
};
use ringroad_openflow::oxm::{Field, FieldMatch, Match};
use ringroad_openflow::{Text, WHOLE_PACKET, group_id, table_id};
use ringroad_port::counters::{CounterSnapshot, QueueCounters};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::plan::Fate;
use ringroad_port::port_index::PortMask;
use ringroad_switch::{FrameHeader, LearningSwitch};
use serde::{Deserialize, Serialize};

use crate::features::table_features;
use crate::session::{Ended, MAX_MULTIPART_BYTES, News, Peer, Session};

/// What a switch does while no controller is connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FailMode {
    /// Its flows stay; without any, it drops all frames.
    #[default]
    Secure,
    /// It is a learning switch until a controller comes.
    Standalone,
}

/// Who the switch says it is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The name of the switch.
    pub switch: String,
    /// Its number among all switches of a controller.
    pub datapath_id: u64,
    /// Version of the software.
    pub version: String,
}

/// A port of the switch.
#[derive(Debug)]
pub struct Port {
    /// Its name on the switch.
    pub name: String,
    /// Whether its link is up.
    pub is_up: bool,
    /// Its account, a part for each of its queues.
    pub counters: Vec<Arc<QueueCounters>>,
    /// The account of queues that it had before.
    pub past: CounterSnapshot,
    /// When it came, ns of the agent's clock.
    pub since_ns: u64,
    config: PortConfig,
}

impl Port {
    /// A port as it comes.
    #[must_use]
    pub fn new(name: String, is_up: bool, counters: Vec<Arc<QueueCounters>>, past: CounterSnapshot) -> Self {
        Self { name, is_up, counters, past, since_ns: 0, config: PortConfig::default() }
    }
}

/// What an agent leaves to one in another process, beside its tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    /// The agent's time when all began, ns of CLOCK_MONOTONIC: ages go on.
    pub start_ns: u64,
    /// Whether fragments are dropped.
    pub drops_fragments: bool,
    /// How much of a packet with an invalid TTL controllers get.
    pub miss_send_bytes: u16,
    /// Whether it is a learning switch for want of a controller.
    pub is_standalone: bool,
    /// The ports: number, what controllers have configured, whether it is live.
    pub ports: Vec<(u32, u32, bool)>,
    /// The greatest generation number of a controller.
    pub generation: Option<u64>,
    /// What was counted.
    pub counted: Counted,
}

impl Remains {
    /// Puts what workers need of it into the tables.
    pub fn resume_in(&self, state: &mut FlowState) {
        for &(number, config, is_live) in &self.ports {
            let port = tables::PortState { config: PortConfig(config), is_live };
            state.set_port(PortNo(number), Some(port));
        }
        state.set_fragments(match self.drops_fragments {
            true => tables::Fragments::Drop,
            false => tables::Fragments::Normal,
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
    identity: Identity,
    state: FlowState,
    switch: Arc<LearningSwitch>,
    /// The worker number under which the agent itself counts.
    worker: usize,
    ports: BTreeMap<PortNo, Port>,
    sessions: BTreeMap<SessionId, Session>,
    next_session: SessionId,
    generation: Option<u64>,
    fragments: Fragments,
    miss_send_bytes: u16,
    fail_mode: FailMode,
    is_standalone: bool,
    outgoing: Vec<Outgoing>,
    counted: Counted,
}

/// What an agent has counted since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Changes of flow entries that were made.
    pub flow_mods: u64,
    /// Packets that the switch had for controllers.
    pub packet_ins: u64,
    /// News that were dropped because the other side did not read.
    pub dropped_news: u64,
}

impl Agent {
    /// A switch with the flows of `state`, and without ports. Without flows of an agent before it, it is to be told that
    /// it has no controller ([`Agent::lose_controllers`]).
    #[must_use]
    pub fn new(
        identity: Identity,
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
            fragments: Fragments::Normal,
            miss_send_bytes: 128,
            fail_mode,
            is_standalone: false,
            outgoing: Vec::new(),
            counted: Counted::default(),
        }
    }

    /// Goes on where another agent stopped, whose tables this one was made with.
    pub fn resume(&mut self, remains: &Remains) {
        self.fragments = if remains.drops_fragments { Fragments::Drop } else { Fragments::Normal };
        self.miss_send_bytes = remains.miss_send_bytes;
        self.is_standalone = remains.is_standalone;
        self.generation = remains.generation;
        self.counted = remains.counted;
    }

    /// What it leaves to an agent in another process; `start_ns` is the beginning of its time.
    #[must_use]
    pub fn remains(&self, start_ns: u64) -> Remains {
        let ports = self.state.tables().ports().iter();
        Remains {
            start_ns,
            drops_fragments: self.state.fragments() == tables::Fragments::Drop,
            miss_send_bytes: self.miss_send_bytes,
            is_standalone: self.is_standalone,
            ports: ports.map(|(number, port)| (number.0, port.config.0, port.is_live)).collect(),
            generation: self.generation,
            counted: self.counted(),
        }
    }

    /// Begins a connection.
    pub fn connect(&mut self, peer: Peer) -> SessionId {
        self.next_session += 1;
        self.sessions.insert(self.next_session, Session::new(peer));
        self.next_session
    }

    /// Forgets a connection.
    pub fn disconnect(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.remove(&id) {
            self.counted.dropped_news += session.dropped_news;
        }
    }

    /// A connection.
    pub fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id)
    }

    /// Whether a controller is connected.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        self.sessions.values().any(|session| session.peer == Peer::Controller && session.is_greeted)
    }

    /// The flow tables.
    #[must_use]
    pub fn state(&self) -> &FlowState {
        &self.state
    }

    /// What was counted.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let dropped_now: u64 = self.sessions.values().map(|session| session.dropped_news).sum();
        Counted { dropped_news: self.counted.dropped_news + dropped_now, ..self.counted }
    }

    /// Takes what controllers want to send, to be put onto the switch.
    pub fn take_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
    }

    /// What the switch does without a controller is to be another thing.
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
        let request = FlowMod {
            cookie: 0,
            cookie_mask: 0,
            table: 0,
            command: FlowCommand::Add,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            priority: 0,
            buffer_id: None,
            out_port: PortNo::ANY,
            out_group: group_id::ANY,
            flags: FlowFlags::default(),
            matching: Match::default(),
            instructions: Instructions { apply: Some(vec![normal]), ..Instructions::default() },
        };
        // Nothing about this entry can be refused.
        let _ = self.state.flow_mod(&request, now_ns);
        self.state.publish();
        self.is_standalone = true;
    }

    /// Makes a port known, or what has changed of it.
    pub fn set_port(&mut self, number: PortNo, mut port: Port) {
        let old = self.ports.get(&number);
        let reason = if old.is_some() { PortStatusReason::Modify } else { PortStatusReason::Add };
        match old {
            Some(old) => (port.config, port.since_ns) = (old.config, old.since_ns),
            // What another agent has left.
            None => {
                port.config = self.state.tables().ports().get(number).map_or(port.config, |port| port.config)
            }
        }
        self.ports.insert(number, port);
        self.show_port(number, reason);
    }

    /// A port has left.
    pub fn remove_port(&mut self, number: PortNo) {
        let Some(description) = self.ports.get(&number).map(|port| self.describe(number, port)) else {
            return;
        };
        self.ports.remove(&number);
        self.state.set_port(number, None);
        self.state.publish();
        self.tell_port(PortStatusReason::Delete, description);
    }

    fn show_port(&mut self, number: PortNo, reason: PortStatusReason) {
        let Some(port) = self.ports.get(&number) else { return };
        self.state.set_port(number, Some(tables::PortState { config: port.config, is_live: port.is_up }));
        self.state.publish();
        let description = self.describe(number, port);
        self.tell_port(reason, description);
    }

    fn tell_port(&mut self, reason: PortStatusReason, port: PortDesc) {
        self.tell(News::PortStatus(reason as u32), &Reply::PortStatus(PortStatus { reason, port }));
    }

    fn tell(&mut self, news: News, message: &Reply) {
        for session in self.sessions.values_mut().filter(|session| session.wants(news)) {
            session.tell(message);
        }
    }

    fn tell_removed(&mut self, removed: Vec<FlowRemoved>) {
        for flow in removed {
            self.tell(News::FlowRemoved(flow.reason as u32), &Reply::FlowRemoved(flow));
        }
    }

    fn describe(&self, number: PortNo, port: &Port) -> PortDesc {
        let [.., a, b, c, d] = self.identity.datapath_id.to_be_bytes();
        let state = match port.is_up {
            true => PortState::LIVE,
            false => PortState::LINK_DOWN,
        };
        PortDesc {
            port: number,
            // Locally administered; the same as long as switch and number are.
            address: [0x02, a ^ b, c, d, (number.0 >> 8) as u8, number.0 as u8],
            name: Text::new(&port.name),
            config: port.config,
            state,
            current: PortFeatures::FULL_10GB,
            advertised: PortFeatures::default(),
            supported: PortFeatures::default(),
            peer: PortFeatures::default(),
            current_kbps: 10_000_000,
            max_kbps: 0,
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
        let news = News::PacketIn(header.reason as u32);
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
        let exact = |field: Field, value: u128| FieldMatch { field, value, mask: field.all_ones() };
        let mut fields = vec![exact(Field::InPort, header.in_port.0.into())];
        if header.metadata != 0 {
            fields.push(exact(Field::Metadata, header.metadata.into()));
        }
        if header.tunnel_id != 0 {
            fields.push(exact(Field::TunnelId, header.tunnel_id.into()));
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
        self.tell(news, &Reply::PacketIn(message));
    }

    /// Takes bytes that came over a connection, and answers them.
    pub fn receive(&mut self, id: SessionId, bytes: &[u8], now_ns: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.push(bytes);
        while let Some(message) = self.sessions.get_mut(&id).and_then(Session::next_message) {
            match Request::decode(&message) {
                Ok((xid, request)) => {
                    if let Err(code) = self.answer(id, xid, &message, request, now_ns)
                        && let Some(session) = self.sessions.get_mut(&id)
                    {
                        session.refuse(xid, &message, code);
                    }
                }
                Err(code) => {
                    let xid = ringroad_openflow::Header::peek(&message).map_or(0, |header| header.xid);
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.refuse(xid, &message, code);
                    }
                }
            }
        }
        // One exchange of tables for all that came together.
        self.state.publish();
    }

    fn answer(
        &mut self,
        id: SessionId,
        xid: u32,
        message: &[u8],
        request: Request,
        now_ns: u64,
    ) -> Result<(), ErrorCode> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        if let Request::Hello(hello) = &request {
            if !hello.speaks_ours() {
                session.refuse(xid, b"this switch speaks OpenFlow 1.3", ErrorCode::HELLO_INCOMPATIBLE);
                session.ended = Some(Ended::OtherVersion);
            } else if !session.is_greeted {
                session.is_greeted = true;
                if session.peer == Peer::Controller && self.is_standalone {
                    self.state.clear();
                    self.is_standalone = false;
                }
            }
            return Ok(());
        }
        let is_slave = session.role == Role::Slave;
        let changes = matches!(
            request,
            Request::SetConfig(_)
                | Request::PacketOut(_)
                | Request::FlowMod(_)
                | Request::GroupMod(_)
                | Request::PortMod(_)
                | Request::TableMod(_)
                | Request::MeterMod(_)
        );
        if is_slave && changes {
            return Err(ErrorCode::REQUEST_IS_SLAVE);
        }
        match request {
            Request::Hello(_) | Request::Error(_) | Request::EchoReply(_) => {}
            Request::EchoRequest(data) => session.reply(xid, &Reply::EchoReply(data)),
            Request::Experimenter(_) => return Err(ErrorCode::REQUEST_BAD_EXPERIMENTER),
            Request::Features => {
                let capabilities = Capabilities::FLOW_STATS
                    | Capabilities::TABLE_STATS
                    | Capabilities::PORT_STATS
                    | Capabilities::GROUP_STATS;
                let datapath_id = self.identity.datapath_id;
                let features =
                    Features { datapath_id, buffers: 0, tables: TABLES as u8, auxiliary_id: 0, capabilities };
                session.reply(xid, &Reply::Features(features));
            }
            Request::GetConfig => {
                let config =
                    SwitchConfig { fragments: self.fragments, miss_send_bytes: self.miss_send_bytes };
                session.reply(xid, &Reply::Config(config));
            }
            Request::SetConfig(config) => {
                let fragments = match config.fragments {
                    Fragments::Normal => tables::Fragments::Normal,
                    Fragments::Drop => tables::Fragments::Drop,
                    Fragments::Reassemble => return Err(ErrorCode::CONFIG_BAD_FLAGS),
                };
                // A tool says by this that it wants to hear of packets.
                session.wants_news |= config.miss_send_bytes > 0;
                (self.fragments, self.miss_send_bytes) = (config.fragments, config.miss_send_bytes);
                self.state.set_fragments(fragments);
            }
            Request::PacketOut(packet) => self.packet_out(&packet, now_ns)?,
            Request::FlowMod(change) => {
                let removed = self.state.flow_mod(&change, now_ns)?;
                self.counted.flow_mods += 1;
                self.tell_removed(removed);
            }
            Request::GroupMod(change) => {
                let removed = self.state.group_mod(&change, now_ns)?;
                self.tell_removed(removed);
            }
            Request::MeterMod(change) => {
                let removed = self.state.meter_mod(&change, now_ns)?;
                self.tell_removed(removed);
            }
            Request::PortMod(change) => self.port_mod(&change)?,
            Request::TableMod(change) => {
                if usize::from(change.table) >= TABLES && change.table != table_id::ALL {
                    return Err(ErrorCode::TABLE_BAD_TABLE);
                }
            }
            Request::Multipart(part) => self.multipart(id, xid, message.len(), part, is_slave, now_ns)?,
            Request::Barrier => {
                // All before it is done, and seen by the workers.
                self.state.publish();
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.reply(xid, &Reply::Barrier);
                }
            }
            Request::QueueConfig(asked) => {
                if asked.port != PortNo::ANY && !self.ports.contains_key(&asked.port) {
                    return Err(ErrorCode::QUEUE_BAD_PORT);
                }
                session.reply(xid, &Reply::QueueConfig(QueueConfig { port: asked.port, queues: Vec::new() }));
            }
            Request::Role(wanted) => self.role(id, xid, wanted)?,
            Request::GetAsync => {
                let masks = session.masks.clone();
                session.reply(xid, &Reply::Async(masks));
            }
            Request::SetAsync(masks) => {
                session.masks = masks;
                session.wants_news = true;
            }
        }
        Ok(())
    }

    fn role(&mut self, id: SessionId, xid: u32, wanted: RoleMessage) -> Result<(), ErrorCode> {
        if matches!(wanted.role, Role::Master | Role::Slave) {
            // A number that is behind is of a master that was (OpenFlow 1.3.5, 6.3.6).
            if self
                .generation
                .is_some_and(|generation| (wanted.generation.wrapping_sub(generation) as i64) < 0)
            {
                return Err(ErrorCode::ROLE_STALE);
            }
            self.generation = Some(wanted.generation);
        }
        if wanted.role == Role::Master {
            let others = self
                .sessions
                .iter_mut()
                .filter(|(other, session)| **other != id && session.role == Role::Master);
            others.for_each(|(_, session)| session.role = Role::Slave);
        }
        let generation = self.generation.unwrap_or(u64::MAX);
        if let Some(session) = self.sessions.get_mut(&id) {
            if wanted.role != Role::NoChange {
                session.role = wanted.role;
            }
            let role = session.role;
            session.reply(xid, &Reply::Role(RoleMessage { role, generation }));
        }
        Ok(())
    }

    fn port_mod(&mut self, change: &PortMod) -> Result<(), ErrorCode> {
        let Some(port) = self.ports.get(&change.port) else { return Err(ErrorCode::PORT_BAD_PORT) };
        if self.describe(change.port, port).address != change.address {
            return Err(ErrorCode::PORT_BAD_HW_ADDR);
        }
        let config = PortConfig(port.config.0 & !change.mask.0 | change.config.0 & change.mask.0);
        if config.0 & !PortConfig::KNOWN.0 != 0 {
            return Err(ErrorCode::PORT_BAD_CONFIG);
        }
        if let Some(port) = self.ports.get_mut(&change.port) {
            port.config = config;
        }
        self.show_port(change.port, PortStatusReason::Modify);
        Ok(())
    }

    fn packet_out(&mut self, out: &PacketOut, now_ns: u64) -> Result<(), ErrorCode> {
        if out.buffer_id.is_some() {
            return Err(ErrorCode::REQUEST_BUFFER_UNKNOWN);
        }
        if out.in_port.is_physical() && !self.ports.contains_key(&out.in_port) {
            return Err(ErrorCode::REQUEST_BAD_PORT);
        }
        if out.data.len() < ringroad_port::frame::ETHERNET_HEADER_BYTES {
            return Err(ErrorCode::REQUEST_BAD_PACKET);
        }
        self.state.check_actions(&out.actions, None)?;
        let mut packet = Packet::default();
        packet.load(out.in_port, &out.data, out.data.len(), false);
        let mut sink = PacketOutSink {
            tables: self.state.tables(),
            switch: &self.switch,
            worker: self.worker,
            data: &out.data,
            outgoing: Vec::new(),
            packet_ins: Vec::new(),
        };
        self.state.tables().apply(&mut packet, &out.actions, now_ns, &mut sink);
        let PacketOutSink { outgoing, packet_ins, .. } = sink;
        self.outgoing.extend(outgoing);
        for (header, data) in packet_ins {
            self.pass_on(header, &data);
        }
        Ok(())
    }

    fn multipart(
        &mut self,
        id: SessionId,
        xid: u32,
        bytes: usize,
        part: MultipartRequestMessage,
        is_slave: bool,
        now_ns: u64,
    ) -> Result<(), ErrorCode> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        let MultipartRequestMessage { more, request } = part;
        let mut request = request;
        // The only request that may have several parts.
        if let MultipartRequest::TableFeatures(features) = &mut request {
            let (_, mut before, before_bytes) =
                session.multipart.take().filter(|&(of, ..)| of == xid).unwrap_or((xid, Vec::new(), 0));
            if before_bytes + bytes > MAX_MULTIPART_BYTES {
                return Err(ErrorCode::REQUEST_MULTIPART_BUFFER_OVERFLOW);
            }
            before.append(features);
            if more {
                session.multipart = Some((xid, before, before_bytes + bytes));
                return Ok(());
            }
            *features = before;
        } else if more {
            return Err(ErrorCode::REQUEST_MULTIPART_BUFFER_OVERFLOW);
        }
        let reply = match request {
            MultipartRequest::Description => MultipartReply::Description(Box::new(Description {
                manufacturer: Text::new("Ringroad"),
                hardware: Text::new("software switch"),
                software: Text::new(&self.identity.version),
                serial: Text::new("none"),
                datapath: Text::new(&self.identity.switch),
            })),
            MultipartRequest::Flows(asked) => MultipartReply::Flows(self.state.flow_stats(&asked, now_ns)?),
            MultipartRequest::Aggregate(asked) => MultipartReply::Aggregate(self.state.aggregate(&asked)?),
            MultipartRequest::Tables => MultipartReply::Tables(self.state.table_stats()),
            MultipartRequest::Ports(asked) => {
                if asked.port != PortNo::ANY && !self.ports.contains_key(&asked.port) {
                    return Err(ErrorCode::REQUEST_BAD_PORT);
                }
                let ports = self
                    .ports
                    .iter()
                    .filter(|(number, _)| asked.port == PortNo::ANY || **number == asked.port);
                MultipartReply::Ports(ports.map(|(&number, port)| port_stats(number, port, now_ns)).collect())
            }
            MultipartRequest::Queues(asked) => {
                if asked.port != PortNo::ANY && !self.ports.contains_key(&asked.port) {
                    return Err(ErrorCode::QUEUE_BAD_PORT);
                }
                MultipartReply::Queues(Vec::new())
            }
            MultipartRequest::Groups(asked) => {
                MultipartReply::Groups(self.state.group_stats(asked.group, now_ns))
            }
            MultipartRequest::GroupDescriptions => {
                MultipartReply::GroupDescriptions(self.state.group_descriptions())
            }
            MultipartRequest::GroupFeatures => MultipartReply::GroupFeatures(GroupFeatures {
                kinds: 0b1111,
                capabilities: GroupCapabilities::SELECT_WEIGHT
                    | GroupCapabilities::SELECT_LIVENESS
                    | GroupCapabilities::CHAINING
                    | GroupCapabilities::CHAINING_CHECKS,
                max_groups: [self.state.limits().groups as u32; 4],
                actions: [crate::features::action_bits(); 4],
            }),
            MultipartRequest::Meters(asked) => {
                MultipartReply::Meters(self.state.meter_stats(asked.meter, now_ns)?)
            }
            MultipartRequest::MeterConfigs(asked) => {
                MultipartReply::MeterConfigs(self.state.meter_configs(asked.meter)?)
            }
            MultipartRequest::MeterFeatures => MultipartReply::MeterFeatures(MeterFeatures {
                max_meters: self.state.limits().meters as u32,
                band_kinds: 0b110,
                capabilities: u32::from(MeterFlags::KNOWN.0),
                max_bands: self.state.limits().bands as u8,
                max_colors: 0,
            }),
            MultipartRequest::TableFeatures(wanted) => {
                if is_slave && !wanted.is_empty() {
                    return Err(ErrorCode::REQUEST_IS_SLAVE);
                }
                // Every table can do everything already, and none can be taken away.
                if !wanted.is_empty() {
                    return Err(ErrorCode::FEATURES_EPERM);
                }
                let max_entries = self.state.limits().flows as u32;
                MultipartReply::TableFeatures(
                    (0..TABLES as u8).map(|table| table_features(table, max_entries)).collect(),
                )
            }
            MultipartRequest::PortDescriptions => MultipartReply::PortDescriptions(
                self.ports.iter().map(|(&number, port)| self.describe(number, port)).collect(),
            ),
            MultipartRequest::Experimenter(_) => return Err(ErrorCode::REQUEST_BAD_EXPERIMENTER),
        };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.multipart(xid, reply);
        }
        Ok(())
    }
}

/// Drops that a port counts as a destination; it counts the others as a source.
const TX_DROPS: [DropCause; 6] = [
    DropCause::NoSpace,
    DropCause::NotBound,
    DropCause::RingStopped,
    DropCause::TooLong,
    DropCause::WriteFailed,
    DropCause::LinkDown,
];

fn port_stats(number: PortNo, port: &Port, now_ns: u64) -> PortStats {
    let mut account = port.past.clone();
    port.counters.iter().for_each(|queue| queue.add_to(&mut account));
    let age = now_ns.saturating_sub(port.since_ns);
    let tx_dropped = TX_DROPS.iter().filter_map(|&cause| account.dropped.get(cause as usize)).sum::<u64>();
    let total_dropped = account.dropped.iter().sum::<u64>();
    // What the port receives, the switch takes from it.
    PortStats {
        port: number,
        rx_packets: account.received_frames,
        tx_packets: account.delivered_frames,
        rx_bytes: account.received_bytes,
        tx_bytes: account.delivered_bytes,
        rx_dropped: total_dropped - tx_dropped,
        tx_dropped,
        rx_errors: 0,
        tx_errors: 0,
        rx_frame_errors: 0,
        rx_overruns: 0,
        rx_crc_errors: 0,
        collisions: 0,
        duration_s: (age / 1_000_000_000) as u32,
        duration_ns: (age % 1_000_000_000) as u32,
    }
}

/// What becomes of a controller's packet.
struct PacketOutSink<'state> {
    tables: &'state Tables,
    switch: &'state LearningSwitch,
    worker: usize,
    data: &'state [u8],
    outgoing: Vec<Outgoing>,
    packet_ins: Vec<(PacketInHeader, Vec<u8>)>,
}

impl PacketOutSink<'_> {
    fn bytes(&self, packet: &Packet) -> Vec<u8> {
        match packet.changed_head() {
            Some((replaces, head)) => [head, self.data.get(replaces..).unwrap_or(&[])].concat(),
            None => self.data.to_vec(),
        }
    }

    fn all_but(&self, in_port: PortNo) -> PortMask {
        let mut ports = self.tables.ports().senders();
        if let Some(index) = port_index(in_port) {
            ports.remove(index);
        }
        ports
    }
}

impl Sink for PacketOutSink<'_> {
    fn output(&mut self, packet: &Packet, to: Target, _queue: Option<u32>) {
        let ports = match to {
            Target::Port(port) => port_index(port).into_iter().collect(),
            Target::All | Target::Flood => self.all_but(packet.in_port),
            Target::Normal => {
                let bytes = self.bytes(packet);
                let word = |at: usize| {
                    bytes
                        .get(at..)
                        .and_then(|rest| rest.first_chunk())
                        .map_or(0, |&word| u64::from_ne_bytes(word))
                };
                let header = FrameHeader::from_words(word(0), word(6), FrameHeader::NO_LEARN);
                let from = port_index(packet.in_port).unwrap_or(ringroad_port::port_index::NO_PORT_INDEX);
                match self.switch.forward(header, from).0 {
                    Fate::Port(port) => [port].into_iter().collect(),
                    Fate::Flood => self.all_but(packet.in_port),
                    _ => PortMask::EMPTY,
                }
            }
        };
        if !ports.is_empty() {
            let bytes = self.bytes(packet);
            self.outgoing.push((ports, bytes));
        }
    }

    fn packet_in(&mut self, packet: &Packet, why: ToController) {
        let header = PacketInHeader::of(packet, why);
        let bytes = self.bytes(packet);
        self.packet_ins.push((header, bytes));
    }

    fn dropped(&mut self, _: Dropped) {}

    fn looked_up(&mut self, table: u8, found: Option<&Flow>) {
        self.tables.count_lookup(self.worker, table, found.is_some());
    }

    fn count(&mut self, counter: CounterId, bytes: usize) {
        self.tables.count(self.worker, counter, Count { packets: 1, bytes: bytes as u64 });
    }
}
