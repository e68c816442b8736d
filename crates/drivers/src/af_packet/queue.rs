//! One queue of an interface through packet sockets.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringroad_netdev::{LinkProbe, LinkState};
use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Backpressure, Delivery, Diagnose, PortQueue, QueueProperties, Sleep, Way};

use super::blocks::BlockRing;
use super::receiver::Receiver;
use super::sender::Sender;
use super::slots::SlotRing;
use crate::sleep_watch::SleepWatch;

/// The receiving half, by the kind of its ring.
#[derive(Debug)]
pub(super) enum AnyReceiver {
    Slots(Receiver<SlotRing>),
    Blocks(Receiver<BlockRing>),
}

/// Does the same with either: distinguished once per batch, not per frame.
macro_rules! either {
    ($receiver:expr, $name:ident => $action:expr) => {
        match $receiver {
            AnyReceiver::Slots($name) => $action,
            AnyReceiver::Blocks($name) => $action,
        }
    };
}

impl AnyReceiver {
    pub(super) fn socket(&self) -> &OwnedFd {
        either!(self, receiver => receiver.socket())
    }

    pub(super) fn ring_bytes(&self) -> usize {
        either!(self, receiver => receiver.ring_bytes())
    }
}

/// One queue: a socket with a ring to receive, and one to send.
#[derive(Debug)]
pub struct PacketQueue {
    receiver: AnyReceiver,
    watch: SleepWatch,
    sender: Sender,
    link: Arc<LinkProbe>,
    /// The interface's name when it was opened.
    name: String,
    /// It went down, and was not seen up since.
    suspect: bool,
    gone: bool,
}

impl PacketQueue {
    /// # Errors
    /// The socket cannot be watched.
    pub(super) fn new(
        receiver: AnyReceiver,
        sender: Sender,
        link: Arc<LinkProbe>,
        name: String,
    ) -> rustix::io::Result<Self> {
        let watch = SleepWatch::new(receiver.socket())?;
        Ok(Self { receiver, watch, sender, link, name, suspect: false, gone: false })
    }
}

impl PacketQueue {
    /// Looks whether the interface has gone. Going down leaves an error, for which the socket would be readable until
    /// it is taken; an interface that goes away goes down first, and leaves no other.
    fn look_for_end(&mut self) {
        if let Ok(Err(_)) = rustix::net::sockopt::socket_error(self.receiver.socket()) {
            self.suspect = true;
        }
        if self.suspect {
            let state = self.link.state();
            self.gone = state == LinkState::Gone;
            self.suspect = matches!(state, LinkState::Gone | LinkState::Down);
        }
    }

    /// Whether nothing comes any more. The kernel may still show received frames of an interface that is gone.
    fn is_over(&self) -> bool {
        self.gone && !either!(&self.receiver, receiver => receiver.has_hidden())
    }
}

impl PortQueue for PacketQueue {
    fn properties(&mut self) -> QueueProperties {
        // Several are sent with one system call, but each takes the kernel's way. What is received lies in memory.
        QueueProperties { frame_cost: 8, ..QueueProperties::default() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        either!(&mut self.receiver, receiver => receiver.receive(batch));
        self.watch.note_frames(self.receiver.socket(), batch.frames());
    }

    #[inline]
    fn is_empty(&mut self) -> bool {
        either!(&mut self.receiver, receiver => receiver.is_empty())
    }

    fn release(&mut self, fragments: usize) {
        either!(&mut self.receiver, receiver => receiver.release(fragments));
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let link = &self.link;
        let delivery = self.sender.send(batch, frames, || link.state() == LinkState::Running);
        if delivery.dropped.of(DropCause::LinkDown) != 0 && !self.gone {
            self.look_for_end();
        }
        delivery
    }

    fn flush(&mut self) -> u32 {
        // Frames are sent in deliver, where the kernel's answer can be counted; slots are handed back in release.
        0
    }

    fn longest_frame_bytes(&mut self) -> usize {
        either!(&self.receiver, receiver => receiver.longest_frame_bytes())
    }

    fn sleeper(&mut self) -> Option<&mut dyn Sleep> {
        Some(self)
    }

    fn backpressure(&mut self) -> Option<&mut dyn Backpressure> {
        Some(self)
    }

    fn diagnosis(&mut self) -> Option<&mut dyn Diagnose> {
        Some(self)
    }
}

impl Sleep for PacketQueue {
    fn has_waiting(&mut self) -> bool {
        self.watch.has_failed() || either!(&mut self.receiver, receiver => receiver.has_waiting())
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        if sleeping && !self.gone {
            self.look_for_end();
            self.watch.begin(self.receiver.socket());
        }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_over()).then(|| self.watch.descriptor())
    }

    fn drain_wake(&mut self) {
        self.look_for_end();
    }
}

impl Backpressure for PacketQueue {
    fn room(&mut self, frame_bytes: usize) -> usize {
        self.sender.room(frame_bytes).min(BATCH_FRAMES)
    }

    /// Nothing wakes the datapath when the kernel has sent what fills the ring.
    fn await_room(&mut self) -> bool {
        false
    }
}

impl Diagnose for PacketQueue {
    fn failure(&self, _way: Way) -> Option<String> {
        self.is_over().then(|| format!("interface {} is gone", self.name))
    }

    fn fault(&self) -> Option<String> {
        let name = &self.name;
        match self.link.state() {
            LinkState::Running => None,
            LinkState::NoCarrier => {
                Some(format!("interface {name} has no link: its cable or its peer is missing"))
            }
            LinkState::Down => Some(format!("interface {name} is down (`ip link set {name} up`)")),
            LinkState::Gone => Some(format!("interface {name} is gone")),
        }
    }

    fn is_gone(&self) -> bool {
        self.gone
    }

    fn missed_frames(&mut self) -> u64 {
        self.look_for_end();
        either!(&mut self.receiver, receiver => receiver.take_missed())
    }
}
