//! The queue of a `stream:` port.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringroad_control::listening_socket::ListeningSocket;
use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Delivery, Diagnose, HandOver, PortQueue, QueueProperties, Sleep, Upgrade};
use ringroad_port::roles;

use super::LENGTH_BYTES;
use super::connector::Connector;
use super::receive_buffer::{ReceiveBuffer, StreamEnd};
use super::send_buffer::SendBuffer;
use crate::peer::inheritance::{Inheritance, leave, leave_bytes};
use crate::peer::wake_set::WakeSet;
use crate::peer::watch::PeerWatch;
use crate::poll_backoff::PollBackoff;
use crate::socket_frames::{MAX_FRAME_BYTES, set_send_room};

/// Number of bytes that may wait until the peer reads them. The kernel doubles it, for its own bookkeeping.
const SEND_ROOM_BYTES: usize = 1 << 20;
/// Pause between two checks for a peer by a worker that does not sleep, ns. Otherwise a peer wakes the worker.
const CHECK_PAUSE_NS: u64 = 1_000_000;

/// Source of a port's peers.
#[derive(Debug)]
pub(super) enum PeerSource {
    /// The port's socket, to which peers connect.
    Listen(ListeningSocket),
    /// The thread that connects to the peer's socket.
    Connect(Connector),
}

/// The only queue of a `stream:` port.
#[derive(Debug)]
pub(super) struct StreamQueue {
    peers: PeerSource,
    connection: Option<OwnedFd>,
    received: ReceiveBuffer,
    unsent: SendBuffer,
    wake: Arc<WakeSet>,
    watch: Arc<PeerWatch>,
    check_pause: PollBackoff,
    /// Whether the last peer could not be accepted.
    has_refused: bool,
    /// Whether room in the connection's socket wakes the worker.
    awaits_room: bool,
    /// Whether another process has the sockets, too.
    is_shared: bool,
    /// Number of wrong lengths that are not reported yet.
    violations: u64,
    /// Number of frames without an end that are not reported yet.
    incomplete: u64,
}

impl StreamQueue {
    /// A queue without a peer. `wake` is the set that wakes the worker.
    ///
    /// # Errors
    /// The kernel has no memory left.
    pub(super) fn new(
        peers: PeerSource,
        wake: Arc<WakeSet>,
        watch: Arc<PeerWatch>,
    ) -> rustix::io::Result<Self> {
        if let PeerSource::Listen(listener) = &peers {
            wake.add(listener.as_fd())?;
        }
        Ok(Self {
            peers,
            connection: None,
            received: ReceiveBuffer::new(),
            unsent: SendBuffer::new(),
            wake,
            watch,
            check_pause: PollBackoff::new(CHECK_PAUSE_NS),
            has_refused: false,
            awaits_room: false,
            is_shared: false,
            violations: 0,
            incomplete: 0,
        })
    }

    /// Takes over what another process leaves behind the listening socket: the connection, and frames that were
    /// received or sent in part.
    ///
    /// # Errors
    /// The other process has left less than that, or the connection cannot be waited for.
    pub(super) fn take_over(&mut self, left: &mut Inheritance) -> io::Result<()> {
        self.is_shared = true;
        let connection = left.optional_descriptor()?;
        self.unsent.begin_with(&left.bytes(LENGTH_BYTES + MAX_FRAME_BYTES)?);
        self.received.begin_with(&left.bytes(ReceiveBuffer::BYTES)?);
        connection.map_or(Ok(()), |socket| self.begin(socket).map_err(io::Error::from))
    }

    /// Serves the peer at `socket` from now on.
    fn begin(&mut self, socket: OwnedFd) -> rustix::io::Result<()> {
        self.wake.add(socket.as_fd())?;
        set_send_room(&socket, SEND_ROOM_BYTES)?;
        self.connection = Some(socket);
        self.watch.connected();
        self.watch.agreed("frames behind their lengths".to_owned(), 1);
        Ok(())
    }

    /// Serves the next peer, if there is one.
    #[cold]
    fn meet(&mut self) {
        let met = match &mut self.peers {
            PeerSource::Listen(listener) => listener.accept(),
            PeerSource::Connect(connector) => Ok(connector.take()),
        };
        let begun =
            met.and_then(|socket| socket.map(|socket| self.begin(socket)).transpose().map_err(Into::into));
        self.has_refused = begun.is_err();
        match begun {
            Ok(Some(())) => {}
            Ok(None) => self.check_pause.begin(),
            Err(error) => {
                self.watch.disconnected(Some(format!("accepting a peer: {error}")));
                self.check_pause.begin();
            }
        }
    }

    /// Ends the connection, if there is one.
    #[cold]
    fn end(&mut self, end: StreamEnd) {
        let Some(socket) = self.connection.take() else { return };
        self.wake.remove(socket.as_fd());
        self.awaits_room = false;
        self.unsent.discard();
        let is_violation = matches!(end, StreamEnd::WrongLength(_));
        self.violations += u64::from(is_violation);
        // Bytes behind a wrong length belong to no frame.
        self.incomplete += u64::from(self.received.discard() && !is_violation);
        self.watch.disconnected((end != StreamEnd::Left).then(|| end.to_string()));
    }

    /// Lends whole frames to `batch`. Only if none is here, the socket is read.
    fn lend(&mut self, batch: &mut Batch) -> Result<(), StreamEnd> {
        let Some(socket) = &self.connection else { return Ok(()) };
        if self.received.lend(batch)? == 0 && batch.has_room(1) && self.received.fill(socket.as_fd())? {
            self.received.lend(batch)?;
        }
        Ok(())
    }
}

impl PortQueue for StreamQueue {
    fn properties(&mut self) -> QueueProperties {
        // A burst takes one system call, which copies each frame. A peer can send its frames one by one.
        QueueProperties { frame_cost: 8, take_cost: 8, ..QueueProperties::default() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        if self.connection.is_none() && !self.check_pause.lasts() {
            self.meet();
        }
        if let Some(socket) = &self.connection
            && !self.unsent.rest().is_empty()
        {
            self.unsent.send_rest(socket.as_fd());
        }
        if let Err(end) = self.lend(batch) {
            self.end(end);
        }
    }

    fn release(&mut self, frames: usize) {
        self.received.release(frames);
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        match &self.connection {
            Some(socket) => self.unsent.send(socket.as_fd(), batch, frames),
            None => Delivery::dropped(DropCause::NotBound, frames.len()),
        }
    }

    fn longest_frame_bytes(&mut self) -> usize {
        self.received.longest_bytes
    }

    fn due_in(&mut self) -> Option<Duration> {
        self.has_refused.then_some(Duration::from_nanos(CHECK_PAUSE_NS))
    }

    roles! { sleeper: Sleep, diagnosis: Diagnose, upgrade: Upgrade }
}

impl Sleep for StreamQueue {
    fn has_waiting(&mut self) -> bool {
        let Some(socket) = &self.connection else { return !self.check_pause.lasts() };
        if self.received.has_frame() {
            return true;
        }
        match self.received.fill(socket.as_fd()) {
            // A call can leave something in the socket.
            Ok(has_arrived) => has_arrived,
            Err(end) => {
                self.end(end);
                true
            }
        }
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        let awaits_room = sleeping && !self.unsent.rest().is_empty();
        if awaits_room != self.awaits_room
            && let Some(socket) = &self.connection
        {
            // The socket is in the set as long as the connection lasts.
            let _ = self.wake.wake_for_room(socket.as_fd(), awaits_room);
            self.awaits_room = awaits_room;
        }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wake.descriptor())
    }

    fn drain_wake(&mut self) {
        self.wake.drain();
        self.check_pause.end();
    }
}

impl Diagnose for StreamQueue {
    fn incomplete_frames(&mut self) -> u64 {
        std::mem::take(&mut self.incomplete)
    }

    fn violations(&mut self) -> u64 {
        std::mem::take(&mut self.violations)
    }
}

impl Upgrade for StreamQueue {
    fn hand_over(&mut self) -> Option<HandOver> {
        if self.received.is_lent() {
            return None;
        }
        if self.connection.is_none() {
            // The thread may have a connection by now.
            self.meet();
        }
        let mut left = HandOver::default();
        if let PeerSource::Listen(listener) = &self.peers {
            let listener = listener.is_in_place().then_some(listener)?;
            left.descriptors.push(listener.as_fd().try_clone_to_owned().ok()?);
        }
        leave(&mut left, self.connection.as_ref()).ok()?;
        leave_bytes(&mut left, self.unsent.rest()).ok()?;
        leave_bytes(&mut left, self.received.waiting()).ok()?;
        Some(left)
    }

    fn resume(&mut self) {
        self.is_shared = false;
    }
}

impl Drop for StreamQueue {
    fn drop(&mut self) {
        // The other process continues with the port.
        if self.is_shared
            && let PeerSource::Listen(listener) = &mut self.peers
        {
            listener.leave_file();
        }
    }
}
