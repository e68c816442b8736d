//! One connection: its input and output, and the peer's subscriptions.

use ringroad_flow_tables::state::FlowList;
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::message::{
    AsyncMasks, ControllerRole, ErrorMessage, FlowStats, Hello, MultipartReply, MultipartReplyMessage,
    SwitchMessage,
};
use ringroad_openflow::{first_message, message};

/// Bytes of waiting output above which unsolicited messages are dropped and counted.
const CROWDED_BYTES: usize = 1 << 20;
/// Bytes of waiting output above which no further request is answered and the connection ends: a client must read the
/// answers.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// Bytes of waiting output below which a list of flows continues.
const LISTED_BYTES: usize = 256 << 10;
/// Maximum size of a request of several messages, bytes.
pub(crate) const MAX_MULTIPART_BYTES: usize = 1 << 20;

/// Bits of the reasons for a packet-in: no match, action, invalid TTL.
const PACKET_INS: u32 = 0b011;
/// Bits of the reasons for a port status: added, deleted, modified.
const PORT_CHANGES: u32 = 0b111;
/// Bits of the reasons for a removed flow: idle, hard, deleted, group deleted.
const FLOW_ENDS: u32 = 0b1111;
/// Index of a slave's notifications in the masks.
const SLAVE: usize = 1;

/// Kind of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionPeer {
    /// A controller, to which the switch connects.
    Controller,
    /// A tool, which connects to the switch and receives only what it requested.
    Tool,
}

/// Kind of an unsolicited message, with its reason's bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsyncMessage {
    PacketIn(u32),
    PortStatus(u32),
    FlowRemoved(u32),
}

/// Reason why a connection ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    /// The received bytes are not OpenFlow.
    #[error("it does not speak OpenFlow: a message with a length of less than 8 bytes")]
    NotOpenFlow,
    /// The peer offers other versions only.
    #[error("it does not speak OpenFlow 1.3")]
    OtherVersion,
    /// The peer does not read.
    #[error("it did not read the answers to its requests")]
    TooSlow,
}

/// A connection.
#[derive(Debug)]
pub struct OpenFlowSession {
    pub(crate) peer: SessionPeer,
    pub(crate) role: ControllerRole,
    /// Whether the peer has taken part in the election of a master: it asked for a role by a generation number.
    pub(crate) is_elector: bool,
    pub(crate) masks: AsyncMasks,
    /// Whether the peer gets unsolicited messages: a tool requests them.
    pub(crate) wants_news: bool,
    /// Whether both sides have agreed on the version.
    pub(crate) is_greeted: bool,
    /// Parts received so far of a request of several messages.
    pub(crate) multipart: Option<(u32, Vec<message::TableFeatures>, usize)>,
    /// Flow list being sent, and the request's number. It continues as the peer reads.
    pub(crate) list: Option<(u32, FlowList)>,
    /// Whether a whole message has come since `take_spoken` was last called.
    has_spoken: bool,
    input: Vec<u8>,
    /// Number of bytes of `input` that are taken.
    taken: usize,
    output: Vec<u8>,
    /// Number of bytes of `output` that are sent.
    sent: usize,
    /// Number of notifications dropped because the peer did not read.
    pub(crate) dropped_news: u64,
    /// Reason why the connection must end, if it must.
    pub(crate) ended: Option<SessionEnd>,
    next_xid: u32,
}

impl OpenFlowSession {
    /// Begins a session, with a hello to send.
    #[must_use]
    pub fn new(peer: SessionPeer) -> Self {
        let mut session = Self {
            peer,
            role: ControllerRole::Equal,
            is_elector: false,
            masks: AsyncMasks {
                packet_in: [PACKET_INS, 0],
                port_status: [PORT_CHANGES, PORT_CHANGES],
                flow_removed: [FLOW_ENDS, 0],
            },
            wants_news: peer == SessionPeer::Controller,
            is_greeted: false,
            multipart: None,
            list: None,
            has_spoken: false,
            input: Vec::new(),
            taken: 0,
            output: Vec::new(),
            sent: 0,
            dropped_news: 0,
            ended: None,
            next_xid: 1,
        };
        session.reply(0, &SwitchMessage::Hello(Hello::ours()));
        session
    }

    /// Appends received bytes to the input.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Takes the next whole message; none while a list is sent.
    pub(crate) fn next_message(&mut self) -> Option<Vec<u8>> {
        if self.ended.is_some() || self.list.is_some() {
            return None;
        }
        match first_message(self.input.get(self.taken..).unwrap_or(&[])) {
            Ok(Some(_)) if self.waiting().len() > MAX_WAITING_BYTES => {
                self.ended = Some(SessionEnd::TooSlow);
                None
            }
            Ok(Some(message)) => {
                let message = message.to_vec();
                self.has_spoken = true;
                self.taken += message.len();
                Some(message)
            }
            Ok(None) => {
                self.input.drain(..self.taken);
                self.taken = 0;
                None
            }
            Err(_) => {
                self.ended = Some(SessionEnd::NotOpenFlow);
                None
            }
        }
    }

    /// Whether there is work before more input comes in.
    #[must_use]
    pub fn has_work(&self) -> bool {
        match &self.list {
            _ if self.ended.is_some() => false,
            Some(_) => self.waiting().len() < LISTED_BYTES,
            None => !matches!(first_message(self.input.get(self.taken..).unwrap_or(&[])), Ok(None)),
        }
    }

    /// Whether a list is being sent; no input is read meanwhile.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        self.list.is_some()
    }

    /// Whether a whole message has come since the last call.
    pub fn take_spoken(&mut self) -> bool {
        std::mem::take(&mut self.has_spoken)
    }

    /// Sends some flows of a list.
    pub(crate) fn tell_flows(&mut self, xid: u32, flows: Vec<FlowStats>, more: bool) {
        let part = |more, flows| {
            SwitchMessage::Multipart(MultipartReplyMessage { more, reply: MultipartReply::Flows(flows) })
        };
        let whole = part(more, flows);
        if whole.encode(xid, &mut self.output).is_ok() {
            return;
        }
        let SwitchMessage::Multipart(MultipartReplyMessage { reply: MultipartReply::Flows(flows), .. }) =
            whole
        else {
            return;
        };
        // An entry that is too long for a message is left out, but the others are sent.
        flows.into_iter().for_each(|flow| self.reply(xid, &part(true, vec![flow])));
        if !more {
            self.reply(xid, &part(false, Vec::new()));
        }
    }

    /// Answers a request.
    pub(crate) fn reply(&mut self, xid: u32, reply: &SwitchMessage) {
        // A single entry that is too long for a message is left out.
        let _ = reply.encode(xid, &mut self.output);
    }

    /// Sends an error about a request.
    pub(crate) fn refuse(&mut self, xid: u32, request: &[u8], code: ErrorCode) {
        self.reply(xid, &SwitchMessage::Error(ErrorMessage::about(request, code)));
    }

    /// Whether the peer has subscribed to a notification.
    pub(crate) fn wants(&self, news: AsyncMessage) -> bool {
        let side = if self.role == ControllerRole::Slave { SLAVE } else { 0 };
        let (mask, bit) = match news {
            AsyncMessage::PacketIn(bit) => (self.masks.packet_in, bit),
            AsyncMessage::PortStatus(bit) => (self.masks.port_status, bit),
            AsyncMessage::FlowRemoved(bit) => (self.masks.flow_removed, bit),
        };
        self.is_greeted && self.wants_news && mask.get(side).is_some_and(|mask| mask >> bit & 1 != 0)
    }

    /// Sends a message to which the peer has subscribed.
    pub(crate) fn tell(&mut self, news: &SwitchMessage) {
        if self.output.len() - self.sent > CROWDED_BYTES {
            self.dropped_news += 1;
            return;
        }
        self.reply(0, news);
    }

    /// Sends a probe (echo request) to the peer.
    pub fn probe(&mut self) {
        self.next_xid = self.next_xid.wrapping_add(1);
        self.reply(self.next_xid, &SwitchMessage::EchoRequest(Vec::new()));
    }

    /// Output to send.
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        self.output.get(self.sent..).unwrap_or(&[])
    }

    /// Records that `bytes` bytes of the output are sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent >= self.output.len() {
            self.output.clear();
            self.output.shrink_to(LISTED_BYTES);
            self.sent = 0;
        } else if self.sent > CROWDED_BYTES {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }
}
