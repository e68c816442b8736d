//! Program's side of a card: connects to a card, subscribes channels, and reads and writes their buffers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringroad_ring::eventfd;
use ringroad_ring::fork::WithheldFd;
use ringroad_ring::wakeup::Sleeper;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::card::counters::RuleCounters;
use crate::card::design::DesignInfo;
use crate::card::filter::MAX_RULES;
use crate::card::program_rule::RuleStatus;
use crate::control_page::ChannelState;
use crate::fault::ChannelFault;
use crate::memory::{ChannelMemory, MemoryError};
use crate::message::{
    CardInfo, CardReply, CardRequest, CardStatus, MessageError, PROTOCOL_VERSION, receive, send,
};
use crate::reader::SegmentReader;
use crate::writer::{ChannelSide, SegmentWriter};

/// Longest wait for a reply of the card.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reason why a card cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CardError {
    /// No card serves the socket.
    #[error("{}: {source}: is there a card? (`ringroad attach vale0:card --driver sze2:{}`)", path.display(), path.display())]
    NotThere { path: PathBuf, source: std::io::Error },
    /// The card refused.
    #[error("the card refuses: {0}")]
    Refused(String),
    /// A message could not be exchanged.
    #[error("the card at {}: {source}", path.display())]
    Message {
        path: PathBuf,
        /// The error of the message.
        source: MessageError,
    },
    /// The card sent a reply to another request.
    #[error("the card at {} sent a reply to another request: use a program and a daemon of the same version", .0.display())]
    Unexpected(PathBuf),
    /// A channel's memory is unusable.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The other side of a buffer broke a rule.
    #[error("channel {channel}: {fault}")]
    Fault {
        /// Number of the channel.
        channel: u16,
        fault: ChannelFault,
    },
    /// The program wrote other bytes than segments to a transmit channel, so the card takes no more from it.
    #[error("the card has stopped transmit channel {0}: the program wrote something else than segments")]
    Stopped(u16),
    /// The card was opened by the process that forked this one.
    #[error(
        "the handle of the card at {} belongs to the process that opened it, and this is a child of that process: \
         open the card here",
        .0.display()
    )]
    OtherProcess(PathBuf),
    /// Waiting failed.
    #[error("waiting for the card: {0}")]
    Wait(std::io::Error),
    /// The card cannot be woken safely.
    #[error("the kernel refuses asynchronous I/O, which wakes the card: {0}; raise the sysctl fs.aio-max-nr")]
    NoWaking(std::io::Error),
}

/// Events to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Mask of receive channels. Data in one of them end the wait.
    pub receive: u32,
    /// Mask of transmit channels. Room in one of them ends the wait.
    pub transmit: u32,
    /// Required room, bytes.
    pub transmit_bytes: usize,
}

/// A transmit channel.
#[derive(Debug)]
struct Transmit {
    writer: SegmentWriter,
    /// Eventfd that wakes the card.
    kick: OwnedFd,
}

/// A card, as seen by a program. It belongs to the process that opened it: in a child of fork(2) every call fails with
/// [`CardError::OtherProcess`] or does nothing, and the child can open the card itself.
#[derive(Debug)]
pub struct CardClient {
    path: PathBuf,
    socket: WithheldFd,
    info: CardInfo,
    /// Eventfd with which the card wakes the program.
    event: OwnedFd,
    receive: Vec<Option<SegmentReader>>,
    transmit: Vec<Option<Transmit>>,
    /// Readers of new buffers, by channel, until the old ones are empty.
    renewed: Vec<(u16, SegmentReader)>,
    sleeper: Sleeper,
}

impl CardClient {
    /// Connects to the card at `path`, under the name `program`.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn open(path: &Path, program: &str) -> Result<Self, CardError> {
        let not_there =
            |source: rustix::io::Errno| CardError::NotThere { path: path.to_owned(), source: source.into() };
        eventfd::prepare().map_err(|errno| CardError::NoWaking(errno.into()))?;
        let address = SocketAddrUnix::new(path).map_err(not_there)?;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(not_there)?;
        rustix::net::connect(&socket, &address).map_err(not_there)?;
        let hello = CardRequest::Hello { version: PROTOCOL_VERSION, program: program.to_owned() };
        let (reply, descriptors) = ask(path, &socket, &hello)?;
        let unexpected = || CardError::Unexpected(path.to_owned());
        let CardReply::Hello { info } = reply else { return Err(unexpected()) };
        let event = descriptors.into_iter().next().ok_or_else(unexpected)?;
        let none = |channels: u16| usize::from(channels.min(crate::card::settings::MAX_CHANNELS));
        Ok(Self {
            path: path.to_owned(),
            socket: socket.into(),
            receive: (0..none(info.receive_channels)).map(|_| None).collect(),
            transmit: (0..none(info.transmit_channels)).map(|_| None).collect(),
            renewed: Vec::new(),
            info,
            event,
            sleeper: Sleeper::default(),
        })
    }

    /// The card's properties.
    #[must_use]
    pub fn info(&self) -> &CardInfo {
        &self.info
    }

    /// Whether this process opened the card, not a process that forked it.
    #[inline]
    #[must_use]
    pub fn is_own_process(&self) -> bool {
        self.socket.is_own_process()
    }

    /// The error of a child that uses its parent's card.
    #[cold]
    #[must_use]
    pub fn other_process(&self) -> CardError {
        CardError::OtherProcess(self.path.clone())
    }

    fn expect_own_process(&self) -> Result<(), CardError> {
        if self.is_own_process() { Ok(()) } else { Err(self.other_process()) }
    }

    fn ask(&self, request: &CardRequest) -> Result<(CardReply, Vec<OwnedFd>), CardError> {
        self.expect_own_process()?;
        ask(&self.path, &self.socket, request)
    }

    /// Subscribes the channels of two masks. Returns masks of the newly subscribed channels, which do not include
    /// channels of other programs.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn subscribe(&mut self, receive: u32, transmit: u32) -> Result<(u32, u32), CardError> {
        // One reply has no room for the descriptors of all channels.
        let receive = if receive == 0 { 0 } else { self.subscribe_at_once(receive, 0)?.0 };
        let transmit = if transmit == 0 { 0 } else { self.subscribe_at_once(0, transmit)?.1 };
        Ok((receive, transmit))
    }

    fn subscribe_at_once(&mut self, receive: u32, transmit: u32) -> Result<(u32, u32), CardError> {
        let unexpected = || CardError::Unexpected(self.path.clone());
        let (reply, descriptors) = self.ask(&CardRequest::Subscribe { receive, transmit })?;
        let CardReply::Subscribed { receive, transmit } = reply else { return Err(unexpected()) };
        let mut descriptors = descriptors.into_iter();
        for channel in channels_of(receive) {
            let memory = map(descriptors.next().ok_or_else(unexpected)?)?;
            let target = self.receive.get_mut(usize::from(channel)).ok_or_else(unexpected)?;
            *target = Some(SegmentReader::new(memory, ChannelSide::Program));
        }
        for channel in channels_of(transmit) {
            let memory = map(descriptors.next().ok_or_else(unexpected)?)?;
            let kick = descriptors.next().ok_or_else(unexpected)?;
            let target = self.transmit.get_mut(usize::from(channel)).ok_or_else(unexpected)?;
            *target = Some(Transmit { writer: SegmentWriter::new(memory, ChannelSide::Program), kick });
        }
        Ok((receive, transmit))
    }

    /// Makes the card move data on all subscribed channels.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn start(&mut self) -> Result<(), CardError> {
        self.set(&CardRequest::Start)
    }

    /// Stops the movement of data and ends all subscriptions, after published segments have been transmitted.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn stop(&mut self) -> Result<(), CardError> {
        self.set(&CardRequest::Stop)?;
        self.receive.fill_with(|| None);
        self.transmit.fill_with(|| None);
        self.renewed.clear();
        Ok(())
    }

    /// Gives a started receive channel a new buffer, without losing a frame. [`Self::reader`] reads the old one until
    /// [`Self::leave_empty_buffer`] finds it empty.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn renew(&mut self, channel: u16) -> Result<(), CardError> {
        let unexpected = || CardError::Unexpected(self.path.clone());
        let (reply, descriptors) = self.ask(&CardRequest::Renew { channel })?;
        let CardReply::Subscribed { .. } = reply else { return Err(unexpected()) };
        let memory = map(descriptors.into_iter().next().ok_or_else(unexpected)?)?;
        self.renewed.push((channel, SegmentReader::new(memory, ChannelSide::Program)));
        Ok(())
    }

    /// Whether the channel has a new buffer, and the old one is still read.
    #[must_use]
    pub fn is_renewed(&self, channel: u16) -> bool {
        self.renewed.iter().any(|(number, _)| *number == channel)
    }

    /// Goes on to the new buffer of a renewed channel, if all segments of the old one were read. Returns whether it
    /// did.
    ///
    /// # Errors
    /// [`ChannelFault`].
    #[inline]
    pub fn leave_empty_buffer(&mut self, channel: u16) -> Result<bool, ChannelFault> {
        match self.renewed.iter().position(|(number, _)| *number == channel) {
            Some(position) => self.replace_reader(channel, position),
            None => Ok(false),
        }
    }

    #[cold]
    fn replace_reader(&mut self, channel: u16, position: usize) -> Result<bool, ChannelFault> {
        let Some(reader) = self.reader(channel) else { return Ok(false) };
        let is_empty = reader.available()? == 0;
        if is_empty && let Some(present) = self.receive.get_mut(usize::from(channel)) {
            *present = Some(self.renewed.remove(position).1);
        }
        Ok(is_empty)
    }

    /// Masks of the subscribed receive and transmit channels.
    #[must_use]
    pub fn subscribed(&self) -> (u32, u32) {
        let mask = |are: &mut dyn Iterator<Item = bool>| {
            are.zip(0..32).fold(0, |mask, (is, channel)| mask | u32::from(is) << channel)
        };
        (
            mask(&mut self.receive.iter().map(Option::is_some)),
            mask(&mut self.transmit.iter().map(Option::is_some)),
        )
    }

    /// Reader of a receive channel; `None` if the channel is not subscribed.
    #[inline]
    pub fn reader(&mut self, channel: u16) -> Option<&mut SegmentReader> {
        self.receive.get_mut(usize::from(channel))?.as_mut()
    }

    /// Writer of a transmit channel; `None` if the channel is not subscribed.
    #[inline]
    pub fn writer(&mut self, channel: u16) -> Option<&mut SegmentWriter> {
        self.transmit.get_mut(usize::from(channel))?.as_mut().map(|transmit| &mut transmit.writer)
    }

    /// Gives back the released part of a receive channel.
    #[inline]
    pub fn publish_received(&mut self, channel: u16) {
        if let Some(reader) = self.reader(channel) {
            // The card needs no wake-up: it does not wait for room, but drops frames.
            let _ = reader.publish();
        }
    }

    /// Shows the card the written segments of a transmit channel, and wakes the card if it has announced a sleep.
    /// Returns whether it was woken.
    #[inline]
    pub fn publish_transmitted(&mut self, channel: u16) -> bool {
        let Some(Some(transmit)) = self.transmit.get_mut(usize::from(channel)) else { return false };
        // In a child the memory is not the card's.
        let wakes = transmit.writer.publish() && self.socket.is_own_process();
        if wakes {
            eventfd::ring(&transmit.kick);
        }
        wakes
    }

    /// Reader and writer of the channels with this number, for queries.
    #[must_use]
    pub fn ends(&self, channel: u16) -> (Option<&SegmentReader>, Option<&SegmentWriter>) {
        let number = usize::from(channel);
        let transmit = self.transmit.get(number).and_then(Option::as_ref);
        (self.receive.get(number).and_then(Option::as_ref), transmit.map(|transmit| &transmit.writer))
    }

    /// State of a transmit channel; `None` if the channel is not subscribed.
    #[must_use]
    pub fn transmit_state(&self, channel: u16) -> Option<ChannelState> {
        self.ends(channel).1.map(|writer| writer.memory().state())
    }

    /// Channels of `wanted` that are ready, as masks of receive and transmit channels.
    fn ready(&mut self, wanted: &Wanted) -> Result<(u32, u32), CardError> {
        let (mut receive, mut transmit) = (0, 0);
        for channel in channels_of(wanted.receive) {
            self.leave_empty_buffer(channel).map_err(|fault| CardError::Fault { channel, fault })?;
            if let Some(reader) = self.reader(channel)
                && reader.available().map_err(|fault| CardError::Fault { channel, fault })? > 0
            {
                receive |= 1 << channel;
            }
        }
        for channel in channels_of(wanted.transmit) {
            if let Some(writer) = self.writer(channel) {
                let room = writer
                    .room(wanted.transmit_bytes)
                    .map_err(|fault| CardError::Fault { channel, fault })?;
                if room >= wanted.transmit_bytes.max(1) {
                    transmit |= 1 << channel;
                } else if writer.memory().state() == ChannelState::Faulty {
                    return Err(CardError::Stopped(channel));
                }
            }
        }
        Ok((receive, transmit))
    }

    fn announce(&mut self, wanted: &Wanted) {
        let Self { receive, transmit, sleeper, .. } = self;
        let readers =
            channels_of(wanted.receive).filter_map(|channel| receive.get(usize::from(channel))?.as_ref());
        let writers =
            channels_of(wanted.transmit).filter_map(|channel| transmit.get(usize::from(channel))?.as_ref());
        let flags = readers
            .map(SegmentReader::sleep_flag)
            .chain(writers.map(|transmit| transmit.writer.sleep_flag()));
        sleeper.announce(flags);
    }

    fn awake(&self) {
        let readers = self.receive.iter().flatten().map(SegmentReader::sleep_flag);
        let writers = self.transmit.iter().flatten().map(|transmit| transmit.writer.sleep_flag());
        readers.chain(writers).for_each(Sleeper::awake);
    }

    /// Waits until a channel of `wanted` is ready, for at most `timeout` (`None` is endless), or until a signal comes.
    /// Returns masks of the receive channels with data and the transmit channels with room. Both are 0 after the
    /// timeout or a signal.
    ///
    /// # Errors
    /// [`CardError`]: the card has gone, or the other side of a buffer broke a rule.
    pub fn wait(&mut self, wanted: &Wanted, timeout: Option<Duration>) -> Result<(u32, u32), CardError> {
        self.expect_own_process()?;
        let end = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let ready = self.ready(wanted)?;
            if ready != (0, 0) || timeout == Some(Duration::ZERO) {
                return Ok(ready);
            }
            self.announce(wanted);
            let ready = self.ready(wanted);
            let waited = match ready {
                Ok((0, 0)) => self.sleep(end),
                _ => Ok(true),
            };
            self.awake();
            let ready = ready?;
            if ready != (0, 0) || !waited? {
                return Ok(ready);
            }
        }
    }

    /// Sleeps until the card rings. Returns `false` after the timeout or a signal.
    fn sleep(&self, end: Option<Instant>) -> Result<bool, CardError> {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut waits =
            [PollFd::new(&self.event, PollFlags::IN), PollFd::new(&self.socket, PollFlags::RDHUP)];
        let rang = match poll(&mut waits, left.as_ref()) {
            Ok(rang) => rang,
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(CardError::Wait(error.into())),
        };
        let [event, socket] = waits.map(|wait| !wait.revents().is_empty());
        if event {
            eventfd::drain(&self.event);
        } else if socket {
            return Err(CardError::Message { path: self.path.clone(), source: MessageError::Gone });
        }
        Ok(rang > 0)
    }

    /// Eventfd for event loops. The card rings it when data or room come while a sleep is announced
    /// ([`SegmentReader::sleep_flag`]).
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Connection to the card, which hangs up when the card goes.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Settings, counters and channels of the card.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn status(&self) -> Result<CardStatus, CardError> {
        match self.ask(&CardRequest::Status)?.0 {
            CardReply::Status { status } => Ok(*status),
            _ => Err(CardError::Unexpected(self.path.clone())),
        }
    }

    /// The card's design. The request goes over a connection of its own, since a card of an earlier version does not
    /// know it and ends the connection.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn design(&self) -> Result<DesignInfo, CardError> {
        match Self::open(&self.path, "design")?.ask(&CardRequest::Design)?.0 {
            CardReply::Design { design } => Ok(design),
            _ => Err(CardError::Unexpected(self.path.clone())),
        }
    }

    /// Checks a rule as [`Self::add_rule`] does, and adds none. The request goes over a connection of its own, as that
    /// of [`Self::design`].
    ///
    /// # Errors
    /// [`CardError`].
    pub fn check_rule(&self, rule: &str) -> Result<(), CardError> {
        Self::open(&self.path, "rule")?.set(&CardRequest::CheckRule { rule: rule.to_owned() })
    }

    /// Adds a rule of this program before those of the filter, and returns its number. It goes with this connection.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn add_rule(&self, rule: &str, priority: u32, counts: bool) -> Result<u64, CardError> {
        match self.ask(&CardRequest::AddRule { rule: rule.to_owned(), priority, counts })?.0 {
            CardReply::RuleAdded { number } => Ok(number),
            _ => Err(CardError::Unexpected(self.path.clone())),
        }
    }

    /// Removes a rule of this program, and returns its counters.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn remove_rule(&self, number: u64) -> Result<RuleCounters, CardError> {
        self.counters_of(&CardRequest::RemoveRule { number })
    }

    /// Counters of a rule of this program.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn rule_counters(&self, number: u64) -> Result<RuleCounters, CardError> {
        self.counters_of(&CardRequest::RuleCounters { number })
    }

    fn counters_of(&self, request: &CardRequest) -> Result<RuleCounters, CardError> {
        match self.ask(request)?.0 {
            CardReply::RuleCounters { counters } => Ok(counters),
            _ => Err(CardError::Unexpected(self.path.clone())),
        }
    }

    /// Rules of all programs, in their order. The requests go over a connection of their own, as that of
    /// [`Self::design`].
    ///
    /// # Errors
    /// [`CardError`].
    pub fn rules(&self) -> Result<Vec<RuleStatus>, CardError> {
        let card = Self::open(&self.path, "rules")?;
        let mut all = Vec::new();
        // A card has no more, however often they change meanwhile.
        while all.len() < MAX_RULES {
            match card.ask(&CardRequest::Rules { from: all.len() as u32 })?.0 {
                CardReply::Rules { rules } if rules.is_empty() => break,
                CardReply::Rules { rules } => all.extend(rules),
                _ => return Err(CardError::Unexpected(self.path.clone())),
            }
        }
        Ok(all)
    }

    /// Sends a request whose reply is [`CardReply::Done`]: for settings, or to clear the counters.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn set(&self, request: &CardRequest) -> Result<(), CardError> {
        match self.ask(request)?.0 {
            CardReply::Done => Ok(()),
            _ => Err(CardError::Unexpected(self.path.clone())),
        }
    }
}

fn map(file: OwnedFd) -> Result<Arc<ChannelMemory>, MemoryError> {
    let memory = ChannelMemory::open(file)?;
    memory.populate();
    Ok(Arc::new(memory))
}

/// Numbers of the channels in a mask.
pub fn channels_of(mask: u32) -> impl Iterator<Item = u16> {
    (0..32).filter(move |channel| mask >> channel & 1 == 1)
}

fn ask(
    path: &Path,
    socket: impl AsFd,
    request: &CardRequest,
) -> Result<(CardReply, Vec<OwnedFd>), CardError> {
    let failed = |source| CardError::Message { path: path.to_owned(), source };
    send(socket.as_fd(), request, &[], PATIENCE).map_err(failed)?;
    match receive(socket.as_fd(), PATIENCE).map_err(failed)? {
        (CardReply::Refused { reason }, _) => Err(CardError::Refused(reason)),
        answer => Ok(answer),
    }
}
