//! Answers to requests.

use std::time::{Duration, Instant};

use ringroad_flow_tables::state::FlowState;
use ringroad_flow_tables::tables::{self, TABLES};
use ringroad_openflow::action::PortNo;
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::message::{
    Capabilities, Features, Fragments, QueueConfig, Reply, Request, Role, RoleMessage, SwitchConfig,
};
use ringroad_openflow::table_id;

use super::{Agent, SessionId};
use crate::session::{Ended, Peer, Session};

/// A turn of a connection ends after this time, so that others are answered meanwhile.
const TURN_TIME: Duration = Duration::from_millis(5);
/// Maximum number of flows in one message.
const FLOWS_A_MESSAGE: usize = 256;

impl Agent {
    /// Takes bytes that came over a connection.
    pub fn receive(&mut self, id: SessionId, bytes: &[u8]) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.push(bytes);
        }
    }

    /// Answers messages of a connection for one turn; [`Session::has_work`] returns whether there are more.
    pub fn go_on(&mut self, id: SessionId, now_ns: u64) {
        let begin = Instant::now();
        while begin.elapsed() < TURN_TIME
            && let Some(message) = self.sessions.get_mut(&id).and_then(Session::next_message)
        {
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
        if let Some(session) = self.sessions.get_mut(&id) {
            go_on_listing(&self.state, session, begin, now_ns);
        }
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
                // With this a tool subscribes to packet-in messages.
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
            // A smaller generation number is from a former master (OpenFlow 1.3.5, 6.3.6).
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
}

/// Sends more of a list of flows, as much as the peer has room for and a turn has time for.
fn go_on_listing(state: &FlowState, session: &mut Session, begin: Instant, now_ns: u64) {
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
