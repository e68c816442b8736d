//! The queue of a `dgram:` port.
#![allow(unsafe_code)]

use std::io::{Error, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use ringroad_control::listening_socket::{BoundSocket, ListeningSocketError};
use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, Diagnose, PortQueue, QueueProperties, Sleep};
use ringroad_port::roles;
use ringroad_ring::layout::MAX_FRAGMENTS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, recv, sendmsg, sendmsg_addr};

use crate::socket_frames::{self, MAX_FRAME_BYTES, USUAL_FRAME_BYTES};

/// Maximum number of borrowed frames.
const BUFFERS: usize = 64;
/// Distance of buffers, bytes. It is an odd number of cache lines, so that the first lines of the buffers map to
/// different cache sets. Pages that no frame has touched take no memory.
const STRIDE_BYTES: usize = 1025 * 64;

const _: () = assert!(STRIDE_BYTES > MAX_FRAME_BYTES);

/// The socket, and the destination of the frames.
#[derive(Debug)]
enum Socket {
    /// Frames go to the socket at this path.
    Bound(BoundSocket, SocketAddrUnix, PathBuf),
    /// Frames go to the other end of the pair.
    Pair(OwnedFd),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Bound(socket, ..) => socket.as_fd(),
            Self::Pair(socket) => socket.as_fd(),
        }
    }
}

/// The only queue of a `dgram:` port, or of a port whose frames the daemon itself takes.
#[derive(Debug)]
pub(super) struct DatagramQueue {
    socket: Socket,
    arena: Vec<u8>,
    /// Index of the buffer that is filled next.
    next: usize,
    /// Number of borrowed buffers: the last `borrowed` ones before `next`.
    borrowed: usize,
    /// Length of the longest expected frame, bytes: that of a usual frame, until a longer one comes.
    longest_bytes: usize,
    /// Number of datagrams too long for a slot.
    cut: u64,
    refusal: Option<Errno>,
}

impl DatagramQueue {
    pub(super) fn new(socket: BoundSocket, peer_path: PathBuf) -> Result<Self, ListeningSocketError> {
        let peer = SocketAddrUnix::new(&peer_path)
            .map_err(|_| ListeningSocketError::Path { path: peer_path.clone() })?;
        Ok(Self::with(Socket::Bound(socket, peer, peer_path)))
    }

    /// A queue at one end of a pair of sockets that keep each packet whole.
    pub(super) fn connected(socket: OwnedFd) -> Self {
        Self::with(Socket::Pair(socket))
    }

    fn with(socket: Socket) -> Self {
        Self {
            socket,
            arena: vec![0; BUFFERS * STRIDE_BYTES],
            next: 0,
            borrowed: 0,
            longest_bytes: USUAL_FRAME_BYTES,
            cut: 0,
            refusal: None,
        }
    }

    /// Sends the frame of `fragments`, and returns its length, bytes. The peer is looked up by its path each time, because a new program at the path
    /// has a new socket.
    fn send(&mut self, fragments: &[Fragment]) -> Result<u64, DropCause> {
        let len: usize = fragments.iter().map(Fragment::len).sum();
        if fragments.len() > MAX_FRAGMENTS || len > MAX_FRAME_BYTES {
            return Err(DropCause::TooLong);
        }
        let mut parts = [IoSlice::new(&[]); MAX_FRAGMENTS];
        for (part, fragment) in parts.iter_mut().zip(fragments) {
            *part = socket_frames::part(fragment);
        }
        let parts = parts.get(..fragments.len()).unwrap_or_default();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut no_descriptors = SendAncillaryBuffer::default();
        let sent = loop {
            let sent = match &self.socket {
                Socket::Bound(socket, peer, _) => {
                    sendmsg_addr(socket, peer, parts, &mut no_descriptors, flags)
                }
                Socket::Pair(socket) => sendmsg(socket, parts, &mut no_descriptors, flags),
            };
            match sent {
                Err(Errno::INTR) => {}
                sent => break sent,
            }
        };
        self.refusal = None;
        sent.map(|_| len as u64).map_err(|errno| {
            let cause = socket_frames::drop_cause(errno);
            self.refusal = (cause == DropCause::WriteFailed).then_some(errno);
            cause
        })
    }
}

impl PortQueue for DatagramQueue {
    fn properties(&mut self) -> QueueProperties {
        // Each frame takes a system call, which also looks up the peer.
        QueueProperties { frame_cost: 16, take_cost: 16, ..QueueProperties::default() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        while self.borrowed < BUFFERS && batch.has_room(1) {
            let start = self.next * STRIDE_BYTES;
            let Some(buffer) = self.arena.get_mut(start..start + STRIDE_BYTES) else { return };
            // The result for a datagram longer than the buffer is its full length.
            let len = match recv(&self.socket, buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((_, len)) => len,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            if len > MAX_FRAME_BYTES {
                self.cut += 1;
                continue;
            }
            let frame = self.arena.get(start..start + len).unwrap_or_default();
            self.longest_bytes = self.longest_bytes.max(len);
            // SAFETY: the arena is never resized and lives as long as the queue; this buffer is not written again
            // before `release` has counted it back.
            batch.push(unsafe { Fragment::from_private(frame, 0) }, true);
            self.next = (self.next + 1) % BUFFERS;
            self.borrowed += 1;
        }
    }

    fn release(&mut self, fragments: usize) {
        self.borrowed = self.borrowed.saturating_sub(fragments);
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery::default();
        for &frame in frames {
            delivery.count(self.send(batch.frame(usize::from(frame))));
        }
        delivery
    }

    fn longest_frame_bytes(&mut self) -> usize {
        self.longest_bytes
    }

    roles! { sleeper: Sleep, diagnosis: Diagnose }
}

impl Sleep for DatagramQueue {
    fn has_waiting(&mut self) -> bool {
        let mut descriptors = [PollFd::new(&self.socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.borrowed < BUFFERS && poll(&mut descriptors, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

impl Diagnose for DatagramQueue {
    fn fault(&self) -> Option<String> {
        let refused = |errno| match &self.socket {
            Socket::Bound(_, _, path) => format!("sending to {}: {}", path.display(), Error::from(errno)),
            Socket::Pair(_) => format!("sending: {}", Error::from(errno)),
        };
        self.refusal.map(refused)
    }

    fn missed_frames(&mut self) -> u64 {
        std::mem::take(&mut self.cut)
    }
}
