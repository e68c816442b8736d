//! Answers to requests.

use std::time::{Duration, Instant};

use ringroad_flow_tables::state::FlowState;
use ringroad_flow_tables::tables::TABLES;
use ringroad_openflow::action::PortNo;
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::message::{
    ControllerMessage, ControllerRole, FragmentFlags, MultipartReplyMessage, QueueConfig, RoleMessage,
    SwitchCapabilities, SwitchConfig, SwitchFeatures, SwitchMessage,
};
use ringroad_openflow::table_id;

use super::{Agent, SessionId};
use crate::session::{OpenFlowSession, SessionEnd, SessionPeer};

/// Time after which a connection's turn ends, so that others are answered.
const TURN_TIME: Duration = Duration::from_millis(5);
/// Maximum number of flows in one message.
const FLOWS_A_MESSAGE: usize = 256;

impl Agent {
    /// Takes bytes received from a connection.
    pub fn receive(&mut self, id: SessionId, bytes: &[u8]) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.push(bytes);
        }
    }

    /// Answers a connection's messages for one turn. [`OpenFlowSession::has_work`] returns whether there are more.
    pub fn go_on(&mut self, id: SessionId, now_ns: u64) {
        let begin = Instant::now();
        while begin.elapsed() < TURN_TIME
            && let Some(message) = self.sessions.get_mut(&id).and_then(OpenFlowSession::next_message)
        {
            let xid = ringroad_openflow::MessageHeader::peek(&message).map_or(0, |header| header.xid);
            let answer = ControllerMessage::decode(&message)
                .and_then(|(_, request)| self.answer(id, xid, message.len(), request, now_ns));
            if let Some(session) = self.sessions.get_mut(&id) {
                match answer {
                    Ok(reply) => reply.iter().for_each(|reply| session.reply(xid, reply)),
                    Err(code) => session.refuse(xid, &message, code),
                }
            }
        }
        // The changes of all messages of the turn are published together.
        self.state.publish();
        if let Some(session) = self.sessions.get_mut(&id) {
            go_on_listing(&self.state, session, begin, now_ns);
        }
    }

    /// Carries out a request of `bytes` bytes. Returns the reply, if the request gets one now.
    fn answer(
        &mut self,
        id: SessionId,
        xid: u32,
        bytes: usize,
        request: ControllerMessage,
        now_ns: u64,
    ) -> Result<Option<SwitchMessage>, ErrorCode> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(None) };
        if let ControllerMessage::Hello(hello) = &request {
            if !hello.speaks_ours() {
                session.refuse(xid, b"this switch speaks OpenFlow 1.3", ErrorCode::HELLO_INCOMPATIBLE);
                session.ended = Some(SessionEnd::OtherVersion);
            } else if !session.is_greeted {
                session.is_greeted = true;
                if session.peer == SessionPeer::Controller && self.is_standalone {
                    self.state.clear();
                    self.is_standalone = false;
                }
            }
            return Ok(None);
        }
        let is_slave = session.role == ControllerRole::Slave;
        let changes = matches!(
            request,
            ControllerMessage::SetConfig(_)
                | ControllerMessage::PacketOut(_)
                | ControllerMessage::FlowMod(_)
                | ControllerMessage::GroupMod(_)
                | ControllerMessage::PortMod(_)
                | ControllerMessage::TableMod(_)
                | ControllerMessage::MeterMod(_)
        );
        if is_slave && changes {
            return Err(ErrorCode::REQUEST_IS_SLAVE);
        }
        let reply = match request {
            ControllerMessage::Hello(_) | ControllerMessage::Error(_) | ControllerMessage::EchoReply(_) => {
                return Ok(None);
            }
            ControllerMessage::EchoRequest(data) => SwitchMessage::EchoReply(data),
            ControllerMessage::Experimenter(_) => return Err(ErrorCode::REQUEST_BAD_EXPERIMENTER),
            ControllerMessage::Features => {
                let capabilities = SwitchCapabilities::FLOW_STATS
                    | SwitchCapabilities::TABLE_STATS
                    | SwitchCapabilities::PORT_STATS
                    | SwitchCapabilities::GROUP_STATS;
                SwitchMessage::Features(SwitchFeatures {
                    datapath_id: self.identity.datapath_id,
                    buffers: 0,
                    tables: TABLES as u8,
                    auxiliary_id: 0,
                    capabilities,
                })
            }
            ControllerMessage::GetConfig => {
                let fragments = match self.state.drops_fragments() {
                    true => FragmentFlags::Drop,
                    false => FragmentFlags::Normal,
                };
                SwitchMessage::Config(SwitchConfig { fragments, miss_send_bytes: self.miss_send_bytes })
            }
            ControllerMessage::SetConfig(config) => {
                if config.fragments == FragmentFlags::Reassemble {
                    return Err(ErrorCode::CONFIG_BAD_FLAGS);
                }
                // A tool subscribes to packet-in messages by this request.
                session.wants_news |= config.miss_send_bytes > 0;
                self.miss_send_bytes = config.miss_send_bytes;
                self.state.set_drops_fragments(config.fragments == FragmentFlags::Drop);
                return Ok(None);
            }
            ControllerMessage::PacketOut(packet) => return self.packet_out(&packet).map(|()| None),
            ControllerMessage::FlowMod(change) => {
                let removed = self.state.flow_mod(&change, now_ns)?;
                self.counted.flow_mods += 1;
                self.tell_removed(removed);
                return Ok(None);
            }
            ControllerMessage::GroupMod(change) => {
                let removed = self.state.group_mod(&change, now_ns)?;
                self.tell_removed(removed);
                return Ok(None);
            }
            ControllerMessage::MeterMod(change) => {
                let removed = self.state.meter_mod(&change, now_ns)?;
                self.tell_removed(removed);
                return Ok(None);
            }
            ControllerMessage::PortMod(change) => return self.port_mod(&change).map(|()| None),
            ControllerMessage::TableMod(change) => {
                if usize::from(change.table) >= TABLES && change.table != table_id::ALL {
                    return Err(ErrorCode::TABLE_BAD_TABLE);
                }
                return Ok(None);
            }
            ControllerMessage::Multipart(part) => {
                let reply = self.multipart(id, xid, bytes, part, is_slave, now_ns)?;
                let whole = |reply| SwitchMessage::Multipart(MultipartReplyMessage { more: false, reply });
                return Ok(reply.map(whole));
            }
            ControllerMessage::Barrier => {
                // A barrier's answer promises that the workers see all earlier changes.
                self.state.publish();
                SwitchMessage::Barrier
            }
            ControllerMessage::QueueConfig(asked) => {
                self.check_port(asked.port, ErrorCode::QUEUE_BAD_PORT)?;
                SwitchMessage::QueueConfig(QueueConfig { port: asked.port, queues: Vec::new() })
            }
            ControllerMessage::Role(wanted) => SwitchMessage::Role(self.role(id, wanted)?),
            ControllerMessage::GetAsync => SwitchMessage::Async(session.masks.clone()),
            ControllerMessage::SetAsync(masks) => {
                session.masks = masks;
                session.wants_news = true;
                return Ok(None);
            }
        };
        Ok(Some(reply))
    }

    /// Checks the port that a request is about: one of the switch, or any.
    pub(super) fn check_port(&self, port: PortNo, unknown: ErrorCode) -> Result<(), ErrorCode> {
        if port == PortNo::ANY || self.ports.contains_key(&port) { Ok(()) } else { Err(unknown) }
    }

    fn role(&mut self, id: SessionId, wanted: RoleMessage) -> Result<RoleMessage, ErrorCode> {
        if matches!(wanted.role, ControllerRole::Master | ControllerRole::Slave) {
            // A lower generation number is from a former master (OpenFlow 1.3.5, 6.3.6).
            if self
                .generation
                .is_some_and(|generation| (wanted.generation.wrapping_sub(generation) as i64) < 0)
            {
                return Err(ErrorCode::ROLE_STALE);
            }
            self.generation = Some(wanted.generation);
            if let Some(session) = self.sessions.get_mut(&id) {
                session.is_elector = true;
            }
        }
        if wanted.role == ControllerRole::Master {
            let masters = self.sessions.values_mut().filter(|session| session.role == ControllerRole::Master);
            masters.for_each(|session| session.role = ControllerRole::Slave);
        }
        let generation = self.generation.unwrap_or(u64::MAX);
        let mut role = wanted.role;
        if let Some(session) = self.sessions.get_mut(&id) {
            if wanted.role != ControllerRole::NoChange {
                session.role = wanted.role;
            }
            role = session.role;
        }
        Ok(RoleMessage { role, generation })
    }
}

/// Sends more of a list of flows, as much as the peer has room for and the turn has time for.
fn go_on_listing(state: &FlowState, session: &mut OpenFlowSession, begin: Instant, now_ns: u64) {
    while session.is_listing() && session.has_work() && begin.elapsed() < TURN_TIME {
        let Some((xid, mut list)) = session.list.take() else { return };
        let flows = state.next_flows(&mut list, FLOWS_A_MESSAGE, now_ns);
        let more = !list.is_over();
        if !more || !flows.is_empty() {
            session.tell_flows(xid, flows, more);
        }
        session.list = more.then_some((xid, list));
    }
}
