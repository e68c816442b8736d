//! The thread of a port. It sets up one connection after the other, hands the rings to the queues, and takes them back.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use ringroad_ring::eventfd;
use rustix::net::SocketType;

use super::channel::{Channel, End, unexpected};
use super::client::{self, ClientConfig, RingLimits};
use super::listener::{ClientSlot, already_connected};
use super::message::MemifMessage;
use super::queue::{Line, Rings};
use super::server;
use crate::peer::handover::Mailbox;
use crate::peer::socket::StopBell;
use crate::peer::watch::PeerWatch;

/// A connection that was set up.
#[derive(Debug)]
pub(super) struct Made {
    /// Rings for each queue of the port.
    pub(super) rings: Vec<Rings>,
    /// The agreed settings, as text for users.
    pub(super) agreed: String,
}

/// The state of a port's thread.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) mailboxes: Vec<Mailbox<Rings>>,
    pub(super) watch: Arc<PeerWatch>,
    pub(super) line: Arc<Line>,
    pub(super) stop: StopBell,
}

impl Connections {
    /// Serves the clients that connect to `door`, until the stop bell rings.
    pub(super) fn serve(&self, door: &ClientSlot, id: u32, interface: &str) {
        loop {
            let Some(new_client) = door.take() else {
                if self.stop.wait([self.line.bell.as_fd()], None).is_none() {
                    return;
                }
                eventfd::drain(&self.line.bell);
                continue;
            };
            let made = server::make(&new_client, self.mailboxes.len() as u16, interface, &self.stop);
            let refuse_others = || {
                if let Some(other) = door.take() {
                    other.channel.say_goodbye(&already_connected(id));
                }
            };
            if self.carry(&new_client.channel, made, refuse_others) == End::Stopped {
                return;
            }
        }
    }

    /// Connects to the server at `path`, again after each connection, until the stop bell rings.
    pub(super) fn visit(&self, path: &Path, config: &ClientConfig) {
        let mut limits = RingLimits::new(config);
        loop {
            let failed = |error| self.watch.unreachable(error);
            let Some(socket) = self.stop.await_server(path, SocketType::SEQPACKET, failed) else { return };
            let channel = Channel::new(socket);
            let made = client::make(&channel, config, &mut limits, &self.stop);
            if made.is_ok() {
                // The next server may have more queues.
                limits = RingLimits::new(config);
            }
            if self.carry(&channel, made, || ()) == End::Stopped || self.stop.pause().is_none() {
                return;
            }
        }
    }

    /// Serves a connection to its end, if it was set up, and reports the end.
    fn carry(&self, channel: &Channel, made: Result<Made, End>, knock: impl Fn()) -> End {
        let serving = made.is_ok();
        let end = match made {
            Ok(made) => self.carry_frames(channel, made, knock),
            Err(end) => end,
        };
        match &end {
            End::Broken(reason) => channel.say_goodbye(reason),
            End::Stopped => channel.say_goodbye("the port was closed"),
            End::Gone | End::Disconnected(_) => {}
        }
        if serving && end != End::Stopped {
            self.take_back();
        }
        self.watch.disconnected(end.told(serving));
        end
    }

    fn carry_frames(&self, channel: &Channel, made: Made, knock: impl Fn()) -> End {
        *self.line.fault() = None;
        // A peer can have rings to it for fewer queues than rings from it: frames need the former.
        let active = made.rings.iter().filter(|rings| rings.transmit.is_some()).count();
        for (mailbox, rings) in self.mailboxes.iter().zip(made.rings) {
            if let Some(receive) = &rings.receive
                && let Err(error) = mailbox.wake().add(receive.event.as_fd())
            {
                return End::Broken(format!("an eventfd cannot be waited for: {error}"));
            }
            mailbox.exchange(Some(rings));
        }
        self.watch.connected();
        self.watch.agreed(made.agreed, active as u16);
        loop {
            match self.stop.wait([channel.as_fd(), self.line.bell.as_fd()], None) {
                None => return End::Stopped,
                Some([true, _]) => match channel.receive() {
                    Ok((MemifMessage::Disconnect { reason, .. }, _)) => return End::Disconnected(reason),
                    Ok((other, _)) => return unexpected(&other),
                    Err(end) => return end,
                },
                Some([false, _]) => {
                    eventfd::drain(&self.line.bell);
                    if let Some(fault) = self.line.fault().clone() {
                        return End::Broken(fault);
                    }
                    knock();
                }
            }
        }
    }

    /// Takes the rings from the queues. Their memory goes with them.
    fn take_back(&self) {
        for mailbox in &self.mailboxes {
            if let Some(receive) = mailbox.exchange(None).as_ref().and_then(|rings| rings.receive.as_ref()) {
                mailbox.wake().remove(receive.event.as_fd());
            }
        }
    }
}
