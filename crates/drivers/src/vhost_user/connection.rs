//! The thread that listens to a guest's front end.
#![allow(unsafe_code)]

use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use ringroad_control::listening_socket::ListeningSocket;
use ringroad_port::port_queue::HandOver;
use ringroad_ring::eventfd;
use rustix::io::DupFlags;
use rustix::net::SocketType;
use vhost::vhost_user::{BackendReqHandler, Error};

use super::back_end::BackEnd;
use super::messages::{OwnMessage, VERSION};
use super::vring::Vring;
use crate::device::DeviceError;
use crate::peer::handover::Mailbox;
use crate::peer::inheritance::{Inheritance, leave};
use crate::peer::peer_thread::PeerThread;
use crate::peer::socket::StopBell;
use crate::peer::wake_set::WakeSet;
use crate::peer::watch::PeerWatch;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;

/// A port's connection, which ends when the value is dropped.
#[derive(Debug)]
pub(super) struct VhostUserConnection {
    thread: PeerThread<Vring>,
    /// Field after the thread: the socket's file is removed after the thread has ended.
    card: Arc<Card>,
}

/// State that the thread shares with the port's queues.
#[derive(Debug)]
pub(super) struct Card {
    /// Socket to which front ends connect; `None` if this side connects.
    listener: Option<ListeningSocket>,
    back_end: Arc<Mutex<BackEnd>>,
    /// The socket in use.
    current: Mutex<Option<UnixStream>>,
    /// Lock that is held while a front end's message is received and answered.
    turn: Mutex<()>,
    /// Whether no other process has the sockets. Only then are messages received.
    is_ours: AtomicBool,
    /// Eventfd that is rung when no other process has the sockets any more.
    ours: OwnedFd,
    /// The descriptors that wake the thread for the guest's control queue.
    control_wake: Arc<WakeSet>,
    /// Whether the thread has yet to continue with the control queue, because no other process has it any more.
    is_back: AtomicBool,
}

impl Card {
    /// A card whose front ends connect to `listener`, or which itself connects to front ends. `current` is the socket
    /// of a front end that another process leaves.
    pub(super) fn new(
        listener: Option<ListeningSocket>,
        back_end: BackEnd,
        current: Option<UnixStream>,
        is_ours: bool,
    ) -> std::io::Result<Self> {
        Ok(Self {
            listener,
            control_wake: back_end.control_wake(),
            back_end: Arc::new(Mutex::new(back_end)),
            current: Mutex::new(current),
            turn: Mutex::default(),
            is_ours: AtomicBool::new(is_ours),
            ours: eventfd::create()?,
            is_back: AtomicBool::new(false),
        })
    }

    /// Takes over the sockets that another process leaves of the port at `path`: the listening socket, and that of a
    /// front end.
    ///
    /// # Errors
    /// The path has another file by now.
    pub(super) fn sockets_of(
        left: &mut Inheritance,
        path: &Path,
    ) -> Result<(Option<ListeningSocket>, Option<UnixStream>), DeviceError> {
        let failed =
            |source| DeviceError::Connection { name: format!("vhost-user:{}", path.display()), source };
        let listener = left.optional_descriptor().map_err(failed)?;
        let listener = listener.map(|socket| ListeningSocket::resume(path, socket)).transpose()?;
        Ok((listener, left.optional_descriptor().map_err(failed)?.map(UnixStream::from)))
    }

    fn back_end(&self) -> MutexGuard<'_, BackEnd> {
        self.back_end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the receiving of messages until [`Self::resume_messages`]. Returns `false` if a message is being answered
    /// just now.
    pub(super) fn pause(&self) -> bool {
        match self.turn.try_lock() {
            Err(TryLockError::WouldBlock) => false,
            Ok(_) | Err(TryLockError::Poisoned(_)) => {
                self.is_ours.store(false, Ordering::Release);
                true
            }
        }
    }

    /// State that pair `queue` leaves to another process, with its rings in the front end's order. The first pair
    /// leaves the sockets, too. `None`: messages are still received, the socket's file is gone, or the guest must
    /// reconnect.
    pub(super) fn leave(&self, queue: usize, rings: [Option<&Vring>; 2]) -> Option<HandOver> {
        if self.is_ours.load(Ordering::Acquire)
            || self.listener.as_ref().is_some_and(|listener| !listener.is_in_place())
        {
            return None;
        }
        let back_end = self.back_end();
        let mut left = HandOver::default();
        if queue == 0 {
            leave(&mut left, self.listener.as_ref()).ok()?;
            leave(&mut left, self.current().as_ref()).ok()?;
            back_end.leave(&mut left)?;
        }
        for (index, vring) in rings.into_iter().enumerate() {
            back_end.leave_ring(2 * queue + index, vring, &mut left)?;
        }
        if queue == 0 {
            back_end.leave_settings(&mut left)?;
        }
        Some(left)
    }

    /// Continues to receive messages, because no other process has the sockets any more.
    pub(super) fn resume_messages(&self) {
        self.is_ours.store(true, Ordering::Release);
        eventfd::ring_own(&self.ours);
        self.is_back.store(true, Ordering::Release);
        eventfd::ring_own(&*self.control_wake.bell());
    }

    /// Serves the guest's control queue, after a signal.
    fn serve_control(&self) {
        self.control_wake.drain();
        let mut back_end = self.back_end();
        if self.is_back.swap(false, Ordering::AcqRel) {
            back_end.come_back();
        }
        back_end.serve_control();
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        if !self.is_ours.load(Ordering::Acquire)
            && let Some(listener) = &mut self.listener
        {
            listener.leave_file();
        }
    }
}

impl VhostUserConnection {
    /// Starts the thread. `path` is the socket to which it connects if it does not listen.
    ///
    /// # Errors
    /// The kernel has no threads or descriptors left.
    pub(super) fn start(
        path: &Path,
        card: Arc<Card>,
        mailboxes: Vec<Mailbox<Vring>>,
        watch: Arc<PeerWatch>,
    ) -> std::io::Result<Self> {
        let (path, served) = (path.to_owned(), Arc::clone(&card));
        let thread = PeerThread::start("vhost-user", mailboxes, move |stop| {
            let host = Host { path, stop, watch, card: served };
            while host.serve_one().is_some() {}
        })?;
        Ok(Self { thread, card })
    }
}

impl Drop for VhostUserConnection {
    fn drop(&mut self) {
        self.thread.stop();
        // The thread may wait for the rest of a message, so its socket is shut down. It was stopped before, so that it
        // accepts no other socket.
        if let Some(socket) = &*self.card.current()
            && self.card.is_ours.load(Ordering::Acquire)
        {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// State of the thread.
struct Host {
    path: PathBuf,
    stop: StopBell,
    watch: Arc<PeerWatch>,
    card: Arc<Card>,
}

impl Host {
    /// Waits until one of `descriptors` is ready and no other process has the sockets. Returns which are ready, with
    /// the lock for acting on them. `None` when the port ends.
    fn await_turn<const N: usize>(
        &self,
        descriptors: [BorrowedFd<'_>; N],
    ) -> Option<([bool; N], MutexGuard<'_, ()>)> {
        loop {
            let ready = if N == 0 { [false; N] } else { self.stop.wait(descriptors, None)? };
            let turn = self.card.turn.lock().unwrap_or_else(PoisonError::into_inner);
            if self.card.is_ours.load(Ordering::Acquire) {
                return Some((ready, turn));
            }
            drop(turn);
            self.stop.wait([self.card.ours.as_fd()], None)?;
            eventfd::drain(&self.card.ours);
        }
    }

    /// Waits for a front end and serves it until it leaves. `None` when the port ends.
    fn serve_one(&self) -> Option<()> {
        let current = self.card.current().as_ref().map(UnixStream::try_clone);
        let socket = match current {
            Some(socket) => socket,
            None => self.meet()?,
        };
        match socket {
            Ok(socket) => self.serve(socket),
            Err(error) => {
                self.end(Some(error.to_string()));
                Some(())
            }
        }
    }

    /// Waits for a front end. `None` when the port ends.
    fn meet(&self) -> Option<std::io::Result<UnixStream>> {
        loop {
            let (socket, turn) = match &self.card.listener {
                None => {
                    drop(self.await_turn([])?);
                    let told = |why| self.watch.unreachable(why);
                    let socket = self.stop.await_server(&self.path, SocketType::STREAM, told)?;
                    (Ok(Some(socket)), self.await_turn([])?.1)
                }
                Some(listener) => {
                    let (_, turn) = self.await_turn([listener.as_fd()])?;
                    (listener.accept(), turn)
                }
            };
            match socket {
                Ok(Some(socket)) => {
                    let socket = UnixStream::from(socket);
                    let own = socket.try_clone();
                    *self.card.current() = Some(socket);
                    self.watch.connected();
                    return Some(own);
                }
                Ok(None) => {}
                Err(error) => {
                    self.watch.disconnected(Some(format!("accepting a connection: {error}")));
                    drop(turn);
                    self.stop.pause()?;
                }
            }
        }
    }

    /// Forgets the front end. If the front end disconnected, the caller holds the lock `turn`.
    fn end(&self, error: Option<String>) {
        *self.card.current() = None;
        self.card.back_end().reset();
        self.watch.disconnected(error);
    }

    /// Serves a front end until it leaves. `None` when the port ends.
    fn serve(&self, socket: UnixStream) -> Option<()> {
        let (wait, mut handler) = match socket.try_clone().and_then(|wait| Ok((wait, self.handler(socket)?)))
        {
            Ok(both) => both,
            Err(error) => {
                self.end(Some(error.to_string()));
                return Some(());
            }
        };
        loop {
            let (own, control) = (wait.as_fd(), self.card.control_wake.descriptor());
            let awaited = match &self.card.listener {
                None => self.await_turn([own, control]),
                Some(listener) => {
                    let awaited = self.await_turn([own, control, listener.as_fd()]);
                    awaited.map(|([own, control, other], turn)| {
                        // A card serves one guest, so the connection of any other guest is closed.
                        if other {
                            drop(listener.accept());
                        }
                        ([own, control], turn)
                    })
                }
            };
            let Some(([is_ready, is_kicked], _turn)) = awaited else {
                self.end(None);
                return None;
            };
            if is_kicked {
                self.card.serve_control();
            }
            if !is_ready {
                continue;
            }
            let result = match self.take_own_message(&wait) {
                Ok(true) => continue,
                Ok(false) => handler.handle_request(),
                Err(error) => Err(error),
            };
            let error = match result {
                Ok(()) => continue,
                Err(Error::Disconnected) => None,
                Err(error) => Some(format!("the guest's front end: {error}")),
            };
            self.end(error);
            return Some(());
        }
    }

    /// Handler of the messages from `socket`.
    ///
    /// The handler knows only features that were acknowledged through it. If another process has served the front end,
    /// its messages are repeated through a socket pair. The front end's own socket then replaces the pair.
    fn handler(&self, socket: UnixStream) -> std::io::Result<BackendReqHandler<Mutex<BackEnd>>> {
        let back_end = Arc::clone(&self.card.back_end);
        let acknowledged = self.card.back_end().acknowledged();
        if acknowledged == [0; 2] {
            return Ok(BackendReqHandler::from_stream(socket, back_end));
        }
        let [features, protocol_features] = acknowledged;
        let (mut front, own) = UnixStream::pair()?;
        let mut handler = BackendReqHandler::from_stream(own, back_end);
        for (request, value) in [
            (GET_FEATURES, None),
            (GET_PROTOCOL_FEATURES, None),
            (SET_PROTOCOL_FEATURES, Some(protocol_features)),
            (SET_FEATURES, Some(features)),
        ] {
            let payload: Vec<u8> = value.into_iter().flat_map(u64::to_ne_bytes).collect();
            let header = [request, VERSION, payload.len() as u32].map(u32::to_ne_bytes).concat();
            front.write_all(&[header, payload].concat())?;
            handler.handle_request().map_err(std::io::Error::other)?;
        }
        // SAFETY: the descriptor is open, and the handler keeps the ownership of it.
        let mut descriptor = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(handler.as_raw_fd()) });
        rustix::io::dup3(&socket, &mut descriptor, DupFlags::CLOEXEC)?;
        Ok(handler)
    }

    /// Takes the next message and carries it out, if the `vhost` crate cannot. Returns whether it was taken.
    fn take_own_message(&self, socket: &UnixStream) -> Result<bool, Error> {
        let Some((message, answer)) = OwnMessage::next(socket)? else { return Ok(false) };
        let outcome = self.card.back_end().carry_out(message);
        answer.send(socket, outcome)?;
        Ok(true)
    }
}
