//! The thread at a card's socket. It answers programs, and frees their channels when they leave.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringroad_control::fd_passing::MAX_DESCRIPTORS;
use ringroad_control::listening_socket::ListeningSocket;
use ringroad_ring::eventfd;
use ringroad_sze2::ChannelState;
use ringroad_sze2::card::design::CardDesign;
use ringroad_sze2::card::filter::CardFilter;
use ringroad_sze2::card::program_rule::ProgramRule;
use ringroad_sze2::client::channels_of;
use ringroad_sze2::memory::ChannelMemory;
use ringroad_sze2::message::{
    CardReply, CardRequest, MessageError, PROTOCOL_VERSION, Subscriber, receive, send,
};
use ringroad_sze2::reader::SegmentReader;
use ringroad_sze2::writer::{ChannelSide, SegmentWriter};

use super::card::Card;
use crate::peer::socket::StopBell;
use crate::peer::wake_set::WakeSet;

/// Maximum number of programs at a card.
const MAX_SESSIONS: usize = 256;
/// Number of rules in a reply: the longest ones fit into a message.
const RULES_IN_REPLY: usize = 64;
/// Pause of the server when the process has no descriptors left for a new client.
const PAUSE: Duration = Duration::from_millis(100);

/// Server of the card's socket.
#[derive(Debug)]
pub(super) struct CardServer {
    pub(super) listener: ListeningSocket,
    pub(super) card: Arc<Card>,
    /// Wake set of each queue.
    pub(super) wakes: Vec<Arc<WakeSet>>,
    pub(super) stop: StopBell,
}

/// A connected program.
#[derive(Debug)]
struct Session {
    socket: OwnedFd,
    /// Number of the connection, greater than those of earlier ones.
    number: u64,
    subscriber: Subscriber,
    /// The eventfd with which the card wakes the program; present after its hello.
    event: Option<Arc<OwnedFd>>,
    /// Masks of the session's receive and transmit channels.
    receive: u32,
    transmit: u32,
    /// Memories of the channels, which are told of the end of the card.
    memories: Vec<Arc<ChannelMemory>>,
    /// Eventfds of transmit channels, each with the queue that waits for it.
    kicks: Vec<(usize, OwnedFd)>,
    /// Number of rules that were added.
    added_rules: u64,
    /// Whether the card was booted by the last request.
    has_booted: bool,
}

type Answer = (CardReply, Vec<OwnedFd>);

impl CardServer {
    /// Serves until the stop bell rings.
    pub(super) fn serve(self) {
        let mut sessions: Vec<Session> = Vec::new();
        loop {
            let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.listener.as_fd()];
            descriptors.extend(sessions.iter().map(|session| session.socket.as_fd()));
            let Some(ready) = self.stop.wait_for_any(&descriptors, None) else { break };
            let mut ready = ready.into_iter();
            let has_new_client = ready.next() == Some(true);
            let mut is_ready = ready;
            sessions.retain_mut(|session| {
                let stays = is_ready.next() != Some(true) || self.answer(session);
                if !stays {
                    self.leave(session);
                }
                stays
            });
            if sessions.iter().any(|session| session.has_booted) {
                self.end_others(&mut sessions);
            }
            if has_new_client {
                self.welcome(&mut sessions);
            }
        }
        sessions.iter_mut().for_each(|session| self.part_with(session));
    }

    /// Ends the sessions of a card that was booted, except the one that requested it.
    fn end_others(&self, sessions: &mut Vec<Session>) {
        sessions.retain_mut(|session| {
            let stays = std::mem::take(&mut session.has_booted);
            if !stays {
                self.part_with(session);
            }
            stays
        });
    }

    /// Releases all of a session whose program has not left. Its memories tell the program.
    fn part_with(&self, session: &mut Session) {
        session.memories.iter().for_each(|memory| memory.set_state(ChannelState::Gone));
        self.leave(session);
    }

    /// Releases all that a session has at the card.
    fn leave(&self, session: &mut Session) {
        if session.added_rules > 0 {
            self.card.change(|settings| settings.rules.remove_all(session.number));
        }
        self.end(session);
    }

    fn welcome(&self, sessions: &mut Vec<Session>) {
        match self.listener.accept() {
            Ok(Some(socket)) if sessions.len() < MAX_SESSIONS => {
                sessions.push(Session {
                    // Sessions stay in their order.
                    number: sessions.last().map_or(0, |session| session.number + 1),
                    subscriber: Subscriber::at(&socket),
                    socket,
                    event: None,
                    receive: 0,
                    transmit: 0,
                    memories: Vec::new(),
                    kicks: Vec::new(),
                    added_rules: 0,
                    has_booted: false,
                });
            }
            Ok(Some(socket)) => {
                let reason = format!("{MAX_SESSIONS} programs are connected, which is all there can be");
                let _ = send(&socket, &CardReply::Refused { reason }, &[], Duration::ZERO);
            }
            Ok(None) => {}
            Err(_) => drop(self.stop.wait([], Some(PAUSE))),
        }
    }

    /// Answers a program's request; `false` if its connection has ended.
    fn answer(&self, session: &mut Session) -> bool {
        let request = match receive::<CardRequest>(&session.socket, Duration::ZERO) {
            Ok((request, _)) => request,
            Err(MessageError::Silent(_)) => return true,
            Err(error @ (MessageError::Garbage(_) | MessageError::TooLong(_))) => {
                let reason = error.to_string();
                let _ = send(&session.socket, &CardReply::Refused { reason }, &[], Duration::ZERO);
                return false;
            }
            Err(_) => return false,
        };
        let (reply, descriptors) =
            self.done(session, request).unwrap_or_else(|reason| (CardReply::Refused { reason }, Vec::new()));
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        // A client sends one request at a time, so there is room for the reply.
        send(&session.socket, &reply, &descriptors, Duration::ZERO).is_ok()
    }

    /// Executes the request. Returns the answer, or the reason for a refusal.
    fn done(&self, session: &mut Session, request: CardRequest) -> Result<Answer, String> {
        if session.event.is_none() && !matches!(request, CardRequest::Hello { .. }) {
            return Err("hello must come first".to_owned());
        }
        let design = self.card.settings().design;
        match request {
            CardRequest::Hello { version, program } => return self.hello(session, version, &program),
            CardRequest::Subscribe { receive, transmit } => {
                return self.subscribe(session, receive, transmit);
            }
            CardRequest::Renew { channel } => return self.renew(session, channel),
            CardRequest::Start => self.start(session),
            CardRequest::Stop => self.end(session),
            CardRequest::Status => {
                return Ok((CardReply::Status { status: Box::new(self.card.status()) }, Vec::new()));
            }
            CardRequest::SetIbuf { ibuf } => {
                ibuf.check()?;
                self.card.change(|settings| settings.ibuf = ibuf);
            }
            CardRequest::SetObuf { enabled } => self.card.change(|settings| settings.obuf_enabled = enabled),
            CardRequest::SetDistribution { distribution } => {
                design.expect(design.has_distribution, "distribution to set")?;
                self.card.change(|settings| settings.distribution = distribution);
            }
            CardRequest::SetFilter { rules } => {
                design.expect(design.has_filter, "filter")?;
                let filter: CardFilter = rules.parse()?;
                filter.check(self.card.info().receive_channels)?;
                self.card.change(|settings| settings.filter = filter);
            }
            CardRequest::CheckRule { rule } => drop(self.checked(&rule)?),
            CardRequest::AddRule { rule, priority, counts } => {
                let rule = self.checked(&rule)?;
                let number = session.added_rules;
                let program = session.subscriber.clone();
                self.card.change(|settings| {
                    settings.rules.add(session.number, number, program, priority, rule, counts);
                });
                session.added_rules += 1;
                return Ok((CardReply::RuleAdded { number }, Vec::new()));
            }
            CardRequest::RemoveRule { number } => {
                let counters = self.card.change(|settings| settings.rules.remove(session.number, number))?;
                return Ok((CardReply::RuleCounters { counters }, Vec::new()));
            }
            CardRequest::RuleCounters { number } => {
                let counters = self.card.settings().rules.counters(session.number, number)?;
                return Ok((CardReply::RuleCounters { counters }, Vec::new()));
            }
            CardRequest::Rules { from } => {
                let rules = self.card.settings().rules.status(from as usize, RULES_IN_REPLY);
                return Ok((CardReply::Rules { rules }, Vec::new()));
            }
            CardRequest::ClearCounters => self.card.clear_counters(),
            CardRequest::Design => return Ok((CardReply::Design { design: design.info() }, Vec::new())),
            CardRequest::Boot { design } => {
                let design = CardDesign::of_name(&design)?;
                self.part_with(session);
                session.has_booted = true;
                self.card.boot(design);
            }
        }
        Ok((CardReply::Done, Vec::new()))
    }

    /// The rule, for which there is room.
    fn checked(&self, rule: &str) -> Result<ProgramRule, String> {
        let settings = self.card.settings();
        settings.design.expect(settings.design.has_filter, "filter")?;
        settings.rules.check_room()?;
        ProgramRule::new(rule, self.card.info().receive_channels)
    }

    fn hello(&self, session: &mut Session, version: u32, program: &str) -> Result<Answer, String> {
        if version != PROTOCOL_VERSION {
            return Err(format!(
                "the program speaks version {version}, and the card {PROTOCOL_VERSION}: update the older"
            ));
        }
        let event = eventfd::create().map_err(|error| format!("making an eventfd: {error}"))?;
        let copy = copy_of(&event)?;
        session.subscriber.set_program(program);
        session.event = Some(Arc::new(event));
        Ok((CardReply::Hello { info: self.card.info() }, vec![copy]))
    }

    fn subscribe(&self, session: &mut Session, receive: u32, transmit: u32) -> Result<Answer, String> {
        let Some(event) = session.event.clone() else { return Err("hello must come first".to_owned()) };
        if (receive.count_ones() + 2 * transmit.count_ones()) as usize > MAX_DESCRIPTORS {
            return Err(
                "one reply has no room for so many channels: subscribe receive and transmit channels \
                        by a request each"
                    .to_owned(),
            );
        }
        let (mut given, mut descriptors) = ((0, 0), Vec::new());
        let channels = self.card.info().receive_channels;
        let is_there = |number: &u16| *number < channels;
        for number in channels_of(receive).filter(is_there) {
            let Some(channel) = self.card.receive.get(usize::from(number)) else { continue };
            if !channel.record.is_free() {
                continue;
            }
            let memory = self.memory(session, &mut descriptors)?;
            channel.subscribe(
                session.subscriber.clone(),
                SegmentWriter::new(memory, ChannelSide::Card),
                Arc::clone(&event),
            );
            session.receive |= 1 << number;
            given.0 |= 1 << number;
        }
        for number in channels_of(transmit).filter(is_there) {
            let Some(channel) = self.card.transmit.get(usize::from(number)) else { continue };
            let queue = usize::from(number) % self.wakes.len().max(1);
            let (true, Some(wake)) = (channel.record.is_free(), self.wakes.get(queue)) else { continue };
            let kick = eventfd::create().map_err(|error| format!("making an eventfd: {error}"))?;
            let memory = self.memory(session, &mut descriptors)?;
            descriptors.push(copy_of(&kick)?);
            wake.add(kick.as_fd()).map_err(|error| format!("waiting for an eventfd: {error}"))?;
            let reader = SegmentReader::new(memory, ChannelSide::Card);
            channel.subscribe(session.subscriber.clone(), reader, Arc::clone(&event));
            session.kicks.push((queue, kick));
            session.transmit |= 1 << number;
            given.1 |= 1 << number;
        }
        Ok((CardReply::Subscribed { receive: given.0, transmit: given.1 }, descriptors))
    }

    fn renew(&self, session: &mut Session, number: u16) -> Result<Answer, String> {
        let is_own = session.receive.checked_shr(number.into()).unwrap_or(0) & 1 == 1;
        let Some(channel) = self.card.receive.get(usize::from(number)).filter(|_| is_own) else {
            return Err(format!("the program has not subscribed receive channel {number}"));
        };
        let mut descriptors = Vec::new();
        let memory = self.memory(session, &mut descriptors)?;
        let left = channel.renew(&memory);
        let unused = left.as_ref().unwrap_or(&memory);
        session.memories.retain(|memory| !Arc::ptr_eq(memory, unused));
        match left {
            Some(_) => Ok((CardReply::Subscribed { receive: 1 << number, transmit: 0 }, descriptors)),
            None => Err(format!("receive channel {number} is not running")),
        }
    }

    fn memory(
        &self,
        session: &mut Session,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<Arc<ChannelMemory>, String> {
        let memory = ChannelMemory::create(self.card.geometry).map_err(|error| error.to_string())?;
        descriptors.push(copy_of(memory.as_fd())?);
        let memory = Arc::new(memory);
        session.memories.push(Arc::clone(&memory));
        Ok(memory)
    }

    fn start(&self, session: &Session) {
        for number in channels_of(session.receive) {
            self.card.receive[usize::from(number)].start();
        }
        for number in channels_of(session.transmit) {
            self.card.transmit[usize::from(number)].start();
        }
        self.ring();
    }

    /// Releases the channels of a session.
    fn end(&self, session: &mut Session) {
        for number in channels_of(std::mem::take(&mut session.receive)) {
            self.card.receive[usize::from(number)].end();
        }
        for number in channels_of(std::mem::take(&mut session.transmit)) {
            self.card.transmit[usize::from(number)].end();
        }
        for (queue, kick) in session.kicks.drain(..) {
            if let Some(wake) = self.wakes.get(queue) {
                wake.remove(kick.as_fd());
            }
        }
        session.memories.clear();
        self.ring();
    }

    /// Wakes the workers.
    fn ring(&self) {
        self.wakes.iter().for_each(|wake| eventfd::ring_own(&*wake.bell()));
    }
}

fn copy_of(descriptor: impl AsFd) -> Result<OwnedFd, String> {
    descriptor.as_fd().try_clone_to_owned().map_err(|error| format!("copying a descriptor: {error}"))
}
