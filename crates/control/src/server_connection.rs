//! The daemon's end of a control connection. It never blocks, its memory is bounded, and its input may be hostile.
//!
//! The connection is for an event loop, level-triggered or edge-triggered. Whenever the socket is ready, or has hung
//! up:
//!
//! 1. [`ServerConnection::flush`];
//! 2. while [`ServerConnection::next_request`] gives something, serve it and [`ServerConnection::send`] the reply;
//! 3. drop the connection if it [`ServerConnection::is_closed`], else wait for output if
//!    [`ServerConnection::wants_write`], and for input otherwise.
//!
//! A loop that leaves step 2 early, to be fair to others, must come back by itself: a level-triggered one while
//! [`ServerConnection::has_input`], which the kernel does not see; an edge-triggered one always, since no new edge
//! comes for unread input. After step 2 the socket is empty, or is full of replies: wait for the next edge.
//!
//! What a hostile peer can hold: [`RECEIVE_BYTES`] and one frame of input, and one reply at a time, since no request is
//! taken while a reply waits to be sent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::codec::{FrameDecoder, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, PREFIX_BYTES};
use crate::codec::{decode_request, encode_reply, encode_request};
use crate::fd_passing::{receive_bytes, send};
use crate::message::{ErrorKind, ErrorReply, Reply, Request};
use crate::peer::{PeerCredentials, PeerProcess};

/// Maximum number of bytes of input taken from the kernel before they are served.
pub const RECEIVE_BYTES: usize = 16 << 10;
/// Maximum number of bytes of replies that wait for a peer to read; at one byte more the connection is closed.
pub const MAX_QUEUED_BYTES: usize = MAX_REPLY_BYTES + PREFIX_BYTES;

/// State of a connection on the way to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClosingState {
    Open,
    /// The peer sends no more, and its last requests are served.
    PeerClosed,
    /// The last refusal is sent, and the rest of the stream has no meaning.
    Refused,
    Closed,
}

/// The unsent part of a frame that waits for the peer to read.
#[derive(Debug)]
struct QueuedFrame {
    bytes: Vec<u8>,
    sent: usize,
    /// Descriptors, sent with the first byte.
    descriptors: Vec<OwnedFd>,
}

/// A connection that the daemon accepted.
#[derive(Debug)]
pub struct ServerConnection {
    socket: OwnedFd,
    peer: PeerCredentials,
    process: PeerProcess,
    decoder: FrameDecoder,
    /// Received bytes; those from `served` on are not decoded yet.
    input: Vec<u8>,
    served: usize,
    queue: VecDeque<QueuedFrame>,
    queued_bytes: usize,
    closing: ClosingState,
}

impl ServerConnection {
    /// Takes over a connected UNIX stream socket, blocking or not.
    ///
    /// # Errors
    /// The error of getsockopt(2), such as for a descriptor that is not a UNIX socket.
    pub fn new(socket: impl Into<OwnedFd>) -> io::Result<Self> {
        let socket = socket.into();
        let peer = PeerCredentials::of(&socket)?;
        Ok(Self {
            peer,
            process: PeerProcess::of(&socket, peer),
            socket,
            decoder: FrameDecoder::new(MAX_REQUEST_BYTES),
            input: Vec::new(),
            served: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            closing: ClosingState::Open,
        })
    }

    /// Resumes a connection of another process. `unread` are the bytes that this process had received and not answered
    /// ([`Self::unread`]).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn resume(socket: impl Into<OwnedFd>, unread: Vec<u8>) -> io::Result<Self> {
        Ok(Self { input: unread, ..Self::new(socket)? })
    }

    /// Bytes that were received and not answered. `None` while replies wait to be sent, or the connection ends: no
    /// other process can resume it.
    #[must_use]
    pub fn unread(&self) -> Option<Vec<u8>> {
        if self.closing != ClosingState::Open || !self.queue.is_empty() {
            return None;
        }
        let mut unread = self.decoder.begun();
        unread.extend_from_slice(self.input.get(self.served..).unwrap_or_default());
        Some(unread)
    }

    /// Puts back a request that [`Self::next_request`] returned last, so that it is returned again.
    pub fn put_back(&mut self, request: &Request) {
        // A request that was received fits.
        if let Ok(mut bytes) = encode_request(request) {
            bytes.extend_from_slice(self.input.get(self.served..).unwrap_or_default());
            (self.input, self.served) = (bytes, 0);
        }
    }

    /// Credentials of the process that connected.
    #[must_use]
    pub fn peer(&self) -> PeerCredentials {
        self.peer
    }

    /// Descriptor (pidfd) of the process that connected, which never refers to another process, unlike the process id.
    ///
    /// # Errors
    /// The process is gone, or in a PID namespace that this one does not see; no descriptor is left.
    pub fn peer_process(&self) -> io::Result<OwnedFd> {
        self.process.descriptor(&self.socket)
    }

    /// Returns the next request, or the refusal to send instead of a reply. `None` means that there is no request for
    /// now, because the peer sent nothing more, has replies to read first, or is gone.
    pub fn next_request(&mut self) -> Option<Result<Request, ErrorReply>> {
        while !self.is_closed() && self.queue.is_empty() {
            if self.closing == ClosingState::Refused {
                self.closing = ClosingState::Closed;
                return None;
            }
            let mut rest = self.input.get(self.served..).unwrap_or_default();
            let frame = self.decoder.take_frame(&mut rest);
            self.served = self.input.len() - rest.len();
            match frame {
                Ok(Some(body)) => return Some(decode_request(&body)),
                Ok(None) if self.closing == ClosingState::PeerClosed => self.closing = ClosingState::Closed,
                Ok(None) => match self.receive() {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(refusal) => return Some(Err(refusal)),
                },
                Err(error) => {
                    let advice = format!("keep requests within {MAX_REQUEST_BYTES} bytes");
                    return Some(Err(self.refuse_and_end(error.to_string(), advice)));
                }
            }
        }
        None
    }

    /// Stops reading, and closes once the refusal is sent.
    fn refuse_and_end(&mut self, message: String, advice: String) -> ErrorReply {
        self.closing = ClosingState::Refused;
        ErrorReply::new(ErrorKind::BadRequest, message, advice)
    }

    /// Refills the empty input buffer. Returns `false` if the peer sent nothing more yet, and a refusal if it sent
    /// descriptors.
    fn receive(&mut self) -> Result<bool, ErrorReply> {
        self.served = 0;
        self.input.resize(RECEIVE_BYTES, 0);
        let received = receive_bytes(&self.socket, &mut self.input);
        self.input.truncate(received.as_ref().map_or(0, |received| received.bytes));
        match received {
            Ok(received) if received.descriptors_lost => {
                let what = "the program sent descriptors with a request".to_owned();
                return Err(self.refuse_and_end(what, "send requests without descriptors".to_owned()));
            }
            Ok(received) if received.bytes == 0 => self.closing = ClosingState::PeerClosed,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // An idle connection holds no buffer.
                self.input = Vec::new();
                return Ok(false);
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                self.closing = ClosingState::PeerClosed;
            }
            Err(_) => self.close(),
        }
        Ok(true)
    }

    /// Closes at once: queued replies are lost.
    fn close(&mut self) {
        self.closing = ClosingState::Closed;
        self.queue = VecDeque::new();
        self.queued_bytes = 0;
        self.input = Vec::new();
        self.served = 0;
    }

    /// Sends `reply` with `descriptors`, as many bytes as the peer takes now. The rest is queued for [`Self::flush`],
    /// with duplicates of the descriptors. A reply too long to send is replaced by an error. A closed connection sends
    /// nothing. If the peer reads too little ([`MAX_QUEUED_BYTES`]), the connection is closed.
    pub fn send(&mut self, reply: &Reply, descriptors: &[BorrowedFd<'_>]) {
        if self.is_closed() {
            return;
        }
        debug_assert_eq!(reply.descriptor_count(), descriptors.len());
        match encode_reply(reply) {
            Ok(bytes) => self.send_frame(bytes, descriptors),
            Err(error) => {
                let message = format!("the reply cannot be sent: {error}");
                let refusal = ErrorReply::new(ErrorKind::Internal, message, "request less");
                if let Ok(bytes) = encode_reply(&Reply::Error(refusal)) {
                    self.send_frame(bytes, &[]);
                }
            }
        }
    }

    /// Sends bytes that are not a frame, after the queued replies.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        if !self.is_closed() {
            self.send_frame(bytes.to_vec(), &[]);
        }
    }

    fn send_frame(&mut self, bytes: Vec<u8>, descriptors: &[BorrowedFd<'_>]) {
        let mut sent = 0;
        if self.queue.is_empty() {
            match send(&self.socket, &bytes, descriptors) {
                Ok(count) => sent = count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return self.close(),
            }
        }
        if sent == bytes.len() {
            return;
        }
        if self.queued_bytes + (bytes.len() - sent) > MAX_QUEUED_BYTES {
            return self.close();
        }
        let waiting = if sent == 0 { descriptors } else { &[] };
        match waiting.iter().map(BorrowedFd::try_clone_to_owned).collect() {
            Ok(descriptors) => {
                self.queued_bytes += bytes.len() - sent;
                self.queue.push_back(QueuedFrame { bytes, sent, descriptors });
            }
            Err(_) => self.close(),
        }
    }

    /// Sends as much of the queue as the peer takes now.
    pub fn flush(&mut self) {
        while let Some(frame) = self.queue.front_mut() {
            let descriptors: Vec<BorrowedFd<'_>> = frame.descriptors.iter().map(AsFd::as_fd).collect();
            match send(&self.socket, frame.bytes.get(frame.sent..).unwrap_or_default(), &descriptors) {
                Ok(count) => {
                    frame.sent += count;
                    frame.descriptors.clear();
                    self.queued_bytes -= count;
                    if frame.sent == frame.bytes.len() {
                        self.queue.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.close(),
            }
        }
    }

    /// Whether the event loop is to wait for room for output.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether [`Self::next_request`] has received input that it has not decoded.
    #[must_use]
    pub fn has_input(&self) -> bool {
        !self.is_closed()
            && self.queue.is_empty()
            && (self.served < self.input.len() || self.closing != ClosingState::Open)
    }

    /// Bytes of replies that wait for the peer to read.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Whether a request has begun and not ended.
    #[must_use]
    pub fn is_within_request(&self) -> bool {
        self.decoder.is_within_frame()
    }

    /// Memory that the peer makes this connection hold, bytes: an incomplete request, unprocessed input, and replies
    /// that the peer has not read.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let replies: usize = self.queue.iter().map(|frame| frame.bytes.capacity()).sum();
        self.decoder.held_bytes() + self.input.capacity() + replies
    }

    /// Whether the connection can only be dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closing == ClosingState::Closed
    }
}

impl AsFd for ServerConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
