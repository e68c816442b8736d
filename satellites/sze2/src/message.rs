//! Messages between a program and the card over the card's socket.
//!
//! Each message is one packet (`SOCK_SEQPACKET`) of JSON. The program sends a request, the card a reply, one after the
//! other. The reply to [`CardRequest::Hello`] comes with an eventfd with which the card wakes the program.
//! [`CardReply::Subscribed`] comes with the memory of each receive channel, in the order of the channels' numbers, then
//! with the memory of each transmit channel and an eventfd with which the program wakes the card.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ringroad_control::fd_passing;
use ringroad_control::peer::PeerCredentials;
use ringroad_control::printable::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::card::counters::{ChannelCounters, IbufCounters, ObufCounters, RuleCounters};
use crate::card::design::DesignInfo;
use crate::card::distribution::ChannelDistribution;
use crate::card::program_rule::RuleStatus;
use crate::card::settings::IbufSettings;

/// Version of these messages and of a channel's memory.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longest message, bytes.
pub const MAX_MESSAGE_BYTES: usize = 128 << 10;
/// Greatest length of a program's name, characters.
const MAX_PROGRAM_CHARS: usize = 64;

/// A program's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum CardRequest {
    /// First request of a program.
    Hello {
        /// Version of the program, [`PROTOCOL_VERSION`].
        version: u32,
        /// Name of the program for users.
        program: String,
    },
    /// Subscribes the channels of two masks. Channels of other programs are left out.
    Subscribe {
        /// Mask of receive channels.
        receive: u32,
        /// Mask of transmit channels.
        transmit: u32,
    },
    /// Moves data on all subscribed channels.
    Start,
    /// Stops the movement of data and ends the subscriptions.
    Stop,
    /// Replaces the buffer of a started receive channel of the program by a new one. The reply is
    /// [`CardReply::Subscribed`] with the new memory. No frame is lost: those that came before are in the old buffer,
    /// into which the card puts no more.
    Renew {
        /// Number of the channel.
        channel: u16,
    },
    /// Requests settings, counters and channels of the card.
    Status,
    /// Sets the input buffer.
    SetIbuf {
        /// All settings of the input buffer.
        ibuf: IbufSettings,
    },
    /// Switches the output buffer on or off.
    SetObuf {
        /// Whether the output buffer lets out frames.
        enabled: bool,
    },
    /// Sets the distribution of frames over channels.
    SetDistribution {
        /// The new distribution.
        distribution: ChannelDistribution,
    },
    /// Sets the filter.
    SetFilter {
        /// Rules of the filter ([`crate::card::filter`]).
        rules: String,
    },
    /// Checks a rule as [`Self::AddRule`] does, and adds none.
    CheckRule {
        /// The rule.
        rule: String,
    },
    /// Adds a rule of the program, before those of the filter. It goes with the program's connection. The reply is
    /// [`CardReply::RuleAdded`].
    AddRule {
        /// The rule, as in a filter ([`crate::card::program_rule`]).
        rule: String,
        /// Priority among the rules of the program; the least comes first.
        priority: u32,
        /// Whether the rule counts its frames.
        counts: bool,
    },
    /// Removes a rule of the program. The reply is [`CardReply::RuleCounters`].
    RemoveRule {
        /// Number of the rule.
        number: u64,
    },
    /// Requests the counters of a rule of the program. The reply is [`CardReply::RuleCounters`].
    RuleCounters {
        /// Number of the rule.
        number: u64,
    },
    /// Requests rules of all programs. The reply is [`CardReply::Rules`].
    Rules {
        /// Position of the first.
        from: u32,
    },
    /// Sets all counters to zero.
    ClearCounters,
    /// Requests the card's design. The reply is [`CardReply::Design`].
    Design,
    /// Loads a design. All subscriptions end, connections of other programs too, and all settings and counters are as
    /// at the start.
    Boot {
        /// Name of the design ([`crate::card::design`]).
        design: String,
    },
}

/// The card's reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case", deny_unknown_fields)]
pub enum CardReply {
    /// Reply to [`CardRequest::Hello`].
    Hello { info: CardInfo },
    /// Reply to [`CardRequest::Subscribe`]: the newly subscribed channels.
    Subscribed {
        /// Mask of receive channels.
        receive: u32,
        /// Mask of transmit channels.
        transmit: u32,
    },
    /// Reply to requests that were carried out and return nothing.
    Done,
    /// Reply to [`CardRequest::Status`].
    Status {
        /// Status of the card.
        status: Box<CardStatus>,
    },
    /// Reply to [`CardRequest::Design`].
    Design {
        /// The design.
        design: DesignInfo,
    },
    /// Reply to [`CardRequest::AddRule`].
    RuleAdded {
        /// Number of the rule among those of the program.
        number: u64,
    },
    /// Reply to [`CardRequest::RuleCounters`], and to [`CardRequest::RemoveRule`].
    RuleCounters {
        /// Counters of the rule; zeros if it does not count.
        counters: RuleCounters,
    },
    /// Reply to [`CardRequest::Rules`].
    Rules {
        /// The next rules, in their order: none after the last.
        rules: Vec<RuleStatus>,
    },
    /// Reply to a request that was not carried out.
    Refused {
        /// Reason, in words for the user.
        reason: String,
    },
}

/// The properties of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardInfo {
    pub name: String,
    /// Number of receive channels.
    pub receive_channels: u16,
    /// Number of transmit channels.
    pub transmit_channels: u16,
    /// Size of the buffer of each receive channel, bytes.
    pub receive_buffer_bytes: u64,
    /// Size of the buffer of each transmit channel, bytes.
    pub transmit_buffer_bytes: u64,
    /// Station address of the card.
    pub address: [u8; 6],
}

/// Settings, counters and channels of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardStatus {
    pub info: CardInfo,
    /// Settings of the input buffer.
    pub ibuf: IbufSettings,
    /// Counters of the input buffer.
    pub ibuf_counters: IbufCounters,
    /// Whether the output buffer lets out frames.
    pub obuf_enabled: bool,
    /// Counters of the output buffer.
    pub obuf_counters: ObufCounters,
    /// Distribution of frames over channels.
    pub distribution: ChannelDistribution,
    /// Rules of the filter.
    pub filter: String,
    /// Whether each frame's metadata has its arrival time.
    pub timestamps: bool,
    /// States of the receive channels.
    pub receive: Vec<ChannelStatus>,
    /// States of the transmit channels.
    pub transmit: Vec<ChannelStatus>,
}

/// State of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelStatus {
    /// Program that has subscribed the channel.
    pub subscriber: Option<Subscriber>,
    /// Whether the channel is started.
    pub running: bool,
    /// Counters of the channel.
    pub counters: ChannelCounters,
    /// Number of bytes in the channel's buffer.
    pub used_bytes: u64,
    /// Last rule that a subscriber broke.
    pub fault: Option<String>,
    /// Number of rules broken.
    pub faults: u64,
}

/// A program that has subscribed a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscriber {
    /// Process ID from the kernel; `None` if the process is in a PID namespace that the card does not see.
    pub pid: Option<u32>,
    /// Name that the program states.
    pub program: String,
}

impl Subscriber {
    /// The program at the other end of `socket`, which has not sent its name yet.
    #[must_use]
    pub fn at(socket: impl AsFd) -> Self {
        Self { pid: PeerCredentials::of(socket).ok().and_then(|peer| peer.pid), program: String::new() }
    }

    /// Sets the name that the program states, made fit for terminals.
    pub fn set_program(&mut self, name: &str) {
        self.program = printable(name, MAX_PROGRAM_CHARS);
    }
}

/// Reason why a message cannot be sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The other side has closed the connection.
    #[error("the other side has closed the connection")]
    Gone,
    /// The other side sent nothing, or did not read, for too long.
    #[error("the other side did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The received bytes are not a message.
    #[error("invalid message: {0}")]
    Garbage(String),
    /// The message to send is too long.
    #[error("a message of {0} bytes is too long: {MAX_MESSAGE_BYTES} is the most")]
    TooLong(usize),
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Repeats `step` until it need not wait for `events` of the socket, each time for at most `patience`.
fn patiently<T>(
    socket: BorrowedFd<'_>,
    events: PollFlags,
    patience: Duration,
    mut step: impl FnMut() -> io::Result<T>,
) -> Result<T, MessageError> {
    let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    loop {
        match step() {
            Ok(done) => return Ok(done),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => {}
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => return Err(MessageError::Gone),
                _ => return Err(error.into()),
            },
        }
        let mut waits = [PollFd::from_borrowed_fd(socket, events)];
        let ready =
            rustix::io::retry_on_intr(|| poll(&mut waits, Some(&timeout))).map_err(io::Error::from)?;
        if ready == 0 {
            return Err(MessageError::Silent(patience));
        }
    }
}

/// Sends `message` with `descriptors`. Waits for room for at most `patience`.
///
/// # Errors
/// [`MessageError`].
pub fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
    patience: Duration,
) -> Result<(), MessageError> {
    let bytes = serde_json::to_vec(message).map_err(|error| MessageError::Garbage(error.to_string()))?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(MessageError::TooLong(bytes.len()));
    }
    let socket = socket.as_fd();
    patiently(socket, PollFlags::OUT, patience, || fd_passing::send(socket, &bytes, descriptors))?;
    Ok(())
}

/// Waits for a message for at most `patience`, and returns it with its descriptors.
///
/// # Errors
/// [`MessageError`].
pub fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
    patience: Duration,
) -> Result<(T, Vec<OwnedFd>), MessageError> {
    let mut buffer = vec![0; MAX_MESSAGE_BYTES + 1];
    let mut descriptors = Vec::new();
    let socket = socket.as_fd();
    let received = patiently(socket, PollFlags::IN, patience, || {
        fd_passing::receive(socket, &mut buffer, &mut descriptors)
    })?;
    match received.bytes {
        0 => Err(MessageError::Gone),
        bytes if bytes > MAX_MESSAGE_BYTES => Err(MessageError::TooLong(bytes)),
        _ if received.descriptors_lost => Err(MessageError::Garbage(
            "descriptors that came with it were lost: too many are open".to_owned(),
        )),
        bytes => {
            let body = buffer.get(..bytes).unwrap_or_default();
            let message =
                serde_json::from_slice(body).map_err(|error| MessageError::Garbage(error.to_string()))?;
            Ok((message, descriptors))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test runs again in a PID namespace where this process has no number. Standard input is a socket from the
    /// outer namespace.
    #[test]
    fn a_program_of_another_pid_namespace_is_served_without_a_number() {
        const INSIDE: &str = "RINGROAD_TEST_INSIDE";
        if std::env::var_os(INSIDE).is_some() {
            assert_eq!(Subscriber::at(io::stdin()).pid, None);
            return;
        }
        // Only root may make a PID namespace.
        if !ringroad_test_needs::is_root() {
            return;
        }
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(Subscriber::at(&here).pid, Some(std::process::id()));
        let name = "message::tests::a_program_of_another_pid_namespace_is_served_without_a_number";
        let inside = std::process::Command::new("unshare")
            .args(["--pid", "--fork"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(INSIDE, "1")
            .stdin(OwnedFd::from(there))
            .output()
            .unwrap();
        assert!(inside.status.success(), "{}", String::from_utf8_lossy(&inside.stdout));
    }

    #[test]
    fn a_programs_name_loses_control_characters() {
        let mut subscriber = Subscriber { pid: None, program: String::new() };
        subscriber.set_program("\x1b[2Jcapture");
        assert_eq!(subscriber.program, "\u{fffd}[2Jcapture");
    }
}
