//! A connection of the control socket. It carries whole messages, each with at most one descriptor.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::message::{MESSAGE_BYTES, MemifMessage};
use crate::peer::socket::StopBell;

/// Timeout for a peer's next message during the setup of a connection.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Reason why a connection has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The own port ends.
    Stopped,
    /// The peer is gone.
    Gone,
    /// The peer disconnected, with its reason.
    Disconnected(String),
    /// The peer broke a rule, and gets the reason.
    Broken(String),
}

impl End {
    /// Reason as text for users. `serving`: whether the connection was set up, so that a peer may leave without a
    /// message.
    pub(super) fn told(&self, serving: bool) -> Option<String> {
        match self {
            Self::Stopped => None,
            Self::Gone => (!serving).then(|| "the peer closed the connection before it was made".to_owned()),
            Self::Disconnected(reason) if reason.is_empty() => Some("the peer disconnected".to_owned()),
            Self::Disconnected(reason) => Some(format!("the peer disconnected: {reason}")),
            Self::Broken(reason) => Some(reason.clone()),
        }
    }
}

/// A connection of the control socket.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl Channel {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Receives a waiting message. If it has more than one descriptor, the others are closed.
    pub(super) fn receive(&self) -> Result<(MemifMessage, Option<OwnedFd>), End> {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags);
        let mut descriptor = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                descriptor = descriptors.last();
            }
        }
        let received = received.map_err(|_| End::Gone)?;
        match received.bytes {
            0 => Err(End::Gone),
            MESSAGE_BYTES => {
                MemifMessage::parse(&bytes).map(|message| (message, descriptor)).map_err(End::Broken)
            }
            other => Err(End::Broken(format!("a message has {other} bytes, not {MESSAGE_BYTES}"))),
        }
    }

    /// Waits for the next message during the setup of a connection. A disconnect of the peer ends the connection.
    pub(super) fn next(&self, stop: &StopBell) -> Result<(MemifMessage, Option<OwnedFd>), End> {
        match stop.wait([self.as_fd()], Some(PATIENCE)) {
            None => Err(End::Stopped),
            Some([false]) => Err(End::Broken(format!("the peer sent nothing for {} s", PATIENCE.as_secs()))),
            Some([true]) => match self.receive()? {
                (MemifMessage::Disconnect { reason, .. }, _) => Err(End::Disconnected(reason)),
                other => Ok(other),
            },
        }
    }

    pub(super) fn await_ack(&self, stop: &StopBell) -> Result<(), End> {
        match self.next(stop)? {
            (MemifMessage::Ack, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Sends a message, with an optional descriptor.
    pub(super) fn send(&self, message: &MemifMessage, descriptor: Option<BorrowedFd<'_>>) -> Result<(), End> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let bytes = message.to_bytes();
        // A peer that does not read must not block this thread.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut ancillary, flags) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::AGAIN) => Err(End::Broken("the peer does not read its socket".to_owned())),
            Err(_) => Err(End::Gone),
        }
    }

    /// Sends the reason for the end, if the peer still reads.
    pub(super) fn say_goodbye(&self, reason: &str) {
        let _ = self.send(&MemifMessage::Disconnect { code: 0, reason: reason.to_owned() }, None);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The error text for an unexpected message.
pub(super) fn unexpected(message: &MemifMessage) -> End {
    let name = match message {
        MemifMessage::Ack => "ack",
        MemifMessage::Hello(_) => "hello",
        MemifMessage::Init(_) => "init",
        MemifMessage::AddRegion(_) => "add region",
        MemifMessage::AddRing(_) => "add ring",
        MemifMessage::Connect(_) => "connect",
        MemifMessage::Connected(_) => "connected",
        MemifMessage::Disconnect { .. } => "disconnect",
    };
    End::Broken(format!("message {name} came where it must not"))
}
