//! One queue of an interface through packet sockets.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ringroad_netdev::{LinkState, LinkWatch};
use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{
    Backpressure, Delivery, Diagnose, FailedDirection, PortQueue, QueueProperties, Sleep,
};
use ringroad_port::roles;

use super::receiver::Receiver;
use super::ring::PacketRing;
use super::sender::Sender;
use crate::sleep_watch::SleepWatch;

/// One queue of an interface: a socket with a ring for receiving, and a socket for sending.
#[derive(Debug)]
pub(super) struct PacketQueue<R> {
    receiver: Receiver<R>,
    watch: SleepWatch,
    sender: Sender,
    link: Arc<LinkWatch>,
    /// Name that the interface had when it was opened.
    name: String,
}

impl<R: PacketRing> PacketQueue<R> {
    /// A queue of the interface called `name`.
    ///
    /// # Errors
    /// The socket cannot be watched.
    pub(super) fn new(
        receiver: Receiver<R>,
        sender: Sender,
        link: Arc<LinkWatch>,
        name: String,
    ) -> rustix::io::Result<Self> {
        let watch = SleepWatch::new(receiver.socket())?;
        Ok(Self { receiver, watch, sender, link, name })
    }

    /// Takes the error that a socket has after its interface went down, which also happens before a deletion. The
    /// socket would stay readable until then, and the worker must know before it sleeps again.
    fn check_error(&mut self) {
        if let Ok(Err(_)) = rustix::net::sockopt::socket_error(self.receiver.socket()) {
            self.link.refresh();
        }
    }

    /// Whether no more frames come. The kernel may still hand over received frames of an interface that is gone.
    fn is_over(&self) -> bool {
        self.is_gone() && self.receiver.hidden_frames() == 0
    }
}

impl<R: PacketRing + Send> PortQueue for PacketQueue<R> {
    fn properties(&mut self) -> QueueProperties {
        // One system call sends several frames, but the kernel's path costs for each. Received frames lie in memory.
        QueueProperties { frame_cost: 8, ..QueueProperties::default() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.receiver.receive(batch);
        self.watch.note_frames(self.receiver.socket(), batch.frames());
    }

    #[inline]
    fn is_empty(&mut self) -> bool {
        self.receiver.is_empty()
    }

    fn release(&mut self, fragments: usize) {
        self.receiver.release(fragments);
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        if !self.link.is_running() {
            return Delivery::dropped(DropCause::LinkDown, frames.len());
        }
        self.sender.send(batch, frames, &self.link)
    }

    fn longest_frame_bytes(&mut self) -> usize {
        self.receiver.longest_frame_bytes()
    }

    roles! { sleeper: Sleep, backpressure: Backpressure, diagnosis: Diagnose }
}

impl<R: PacketRing> Sleep for PacketQueue<R> {
    fn has_waiting(&mut self) -> bool {
        self.watch.has_failed() || self.receiver.has_waiting()
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

/// No wake-up comes when the kernel has sent frames and so made room.
impl<R: PacketRing> Backpressure for PacketQueue<R> {
    fn room(&mut self, frame_bytes: usize) -> usize {
        self.sender.room(frame_bytes).min(BATCH_FRAMES)
    }
}

impl<R: PacketRing> Diagnose for PacketQueue<R> {
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
        self.receiver.take_missed()
    }

    fn hidden_frames(&self) -> u64 {
        self.receiver.hidden_frames().into()
    }
}
