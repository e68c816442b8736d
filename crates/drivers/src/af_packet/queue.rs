//! One queue of an interface through packet sockets.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringroad_netdev::{LinkState, LinkWatch};
use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{
    Backpressure, Delivery, Diagnose, FailedDirection, PortQueue, QueueProperties, Sleep,
};

use super::blocks::BlockRing;
use super::receiver::Receiver;
use super::sender::Sender;
use super::slots::SlotRing;
use crate::sleep_watch::SleepWatch;

/// The receiving half, for each kind of ring.
#[derive(Debug)]
pub(super) enum AnyReceiver {
    Slots(Receiver<SlotRing>),
    Blocks(Receiver<BlockRing>),
}

/// Evaluates an expression for either kind of receiver. The kind is matched once per batch, not per frame.
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

/// One queue of an interface: a socket with a ring for receiving, and a socket for sending.
#[derive(Debug)]
pub struct PacketQueue {
    receiver: AnyReceiver,
    watch: SleepWatch,
    sender: Sender,
    link: Arc<LinkWatch>,
    /// Name that the interface had when it was opened.
    name: String,
}

impl PacketQueue {
    /// A queue of the interface called `name`.
    ///
    /// # Errors
    /// The socket cannot be watched.
    pub(super) fn new(
        receiver: AnyReceiver,
        sender: Sender,
        link: Arc<LinkWatch>,
        name: String,
    ) -> rustix::io::Result<Self> {
        let watch = SleepWatch::new(receiver.socket())?;
        Ok(Self { receiver, watch, sender, link, name })
    }
}

impl PacketQueue {
    /// Takes the error that a socket has after its interface went down, which also happens before a deletion. The
    /// socket would stay readable until then, and the worker must know before it sleeps again.
    fn check_error(&mut self) {
        if let Ok(Err(_)) = rustix::net::sockopt::socket_error(self.receiver.socket()) {
            self.link.refresh();
        }
    }

    fn is_gone(&self) -> bool {
        self.link.state() == LinkState::Gone
    }

    /// Whether no more frames come. The kernel may still hand over received frames of an interface that is gone.
    fn is_over(&self) -> bool {
        self.is_gone() && !either!(&self.receiver, receiver => receiver.has_hidden())
    }
}

impl PortQueue for PacketQueue {
    fn properties(&mut self) -> QueueProperties {
        // One system call sends several frames, but the kernel's path costs for each. Received frames lie in memory.
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
        if !self.link.is_running() {
            return Delivery::dropped(DropCause::LinkDown, frames.len());
        }
        self.sender.send(batch, frames, &self.link)
    }

    fn flush(&mut self) -> u32 {
        // Nothing to do: deliver sends the frames and counts the kernel's answers, and release hands back the slots.
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
        if sleeping && !self.is_gone() {
            self.check_error();
            self.watch.begin(self.receiver.socket());
        }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_over()).then(|| self.watch.descriptor())
    }

    fn drain_wake(&mut self) {
        self.check_error();
    }
}

impl Backpressure for PacketQueue {
    fn room(&mut self, frame_bytes: usize) -> usize {
        self.sender.room(frame_bytes).min(BATCH_FRAMES)
    }

    /// No wake-up comes when the kernel has sent frames and so made room, so the datapath must poll.
    fn await_room(&mut self) -> bool {
        false
    }
}

impl Diagnose for PacketQueue {
    fn failure(&self, _way: FailedDirection) -> Option<String> {
        self.is_over().then(|| format!("interface {} is gone", self.name))
    }

    fn fault(&self) -> Option<String> {
        self.link.state().fault(&self.name)
    }

    fn is_gone(&self) -> bool {
        self.link.state() == LinkState::Gone
    }

    fn missed_frames(&mut self) -> u64 {
        self.check_error();
        either!(&mut self.receiver, receiver => receiver.take_missed())
    }
}
