//! The thread that listens to a guest's front end.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ringroad_control::listening_socket::ListeningSocket;
use rustix::net::{RecvFlags, SocketType};
use vhost::vhost_user::{BackendReqHandler, Error, VhostUserBackendReqHandlerMut};

use super::back_end::BackEnd;
use super::vring::Vring;
use crate::device::DeviceError;
use crate::peer::handover::Closer;
use crate::peer::options::SocketRole;
use crate::peer::peer_thread::PeerThread;
use crate::peer::socket::StopBell;
use crate::peer::watch::PeerWatch;

/// A message's request, flags and length of what follows, each of four bytes.
const HEADER_BYTES: usize = 12;
const SET_VRING_ENABLE: u32 = 18;
/// Flags of a message: the protocol's version, that it is a reply, that one is needed.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// A port's connection. Ends with the value.
#[derive(Debug)]
pub(super) struct Connection {
    /// The socket in use, to be shut when the thread waits for the rest of a message.
    current: Arc<Mutex<Option<UnixStream>>>,
    thread: PeerThread<Vring>,
}

/// Where front ends come from.
enum Meeting {
    Listen(ListeningSocket),
    Connect(PathBuf),
}

impl Connection {
    /// Starts the thread.
    ///
    /// # Errors
    /// No socket, or what `failed` makes of the kernel's answer.
    pub(super) fn start(
        path: &Path,
        role: SocketRole,
        socket_mode: Option<u32>,
        back_end: BackEnd,
        closers: Vec<Closer<Vring>>,
        watch: Arc<PeerWatch>,
        failed: impl Fn(std::io::Error) -> DeviceError,
    ) -> Result<Self, DeviceError> {
        let meeting = match role {
            SocketRole::Server => {
                Meeting::Listen(ListeningSocket::bind(path, SocketType::STREAM, socket_mode)?)
            }
            SocketRole::Client => Meeting::Connect(path.to_owned()),
        };
        let stop = StopBell::new().map_err(|errno| failed(errno.into()))?;
        let current = Arc::<Mutex<Option<UnixStream>>>::default();
        let host = Host {
            meeting,
            stop: stop.clone(),
            current: Arc::clone(&current),
            watch,
            back_end: Arc::new(Mutex::new(back_end)),
        };
        let run = move || while host.serve_one().is_some() {};
        let thread = PeerThread::start("vhost-user", stop, closers, run).map_err(failed)?;
        Ok(Self { current, thread })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.thread.stop();
        // After the thread was told, so that it takes up no other socket.
        if let Some(socket) = &*self.current.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// What the thread has.
struct Host {
    meeting: Meeting,
    stop: StopBell,
    current: Arc<Mutex<Option<UnixStream>>>,
    watch: Arc<PeerWatch>,
    back_end: Arc<Mutex<BackEnd>>,
}

impl Host {
    /// Waits for a front end and serves it until it goes. `None` when the port ends.
    fn serve_one(&self) -> Option<()> {
        let socket = match &self.meeting {
            Meeting::Connect(path) => {
                let told = |why| self.watch.disconnected(Some(why));
                self.stop.await_server(path, SocketType::STREAM, told)?
            }
            Meeting::Listen(listener) => loop {
                self.stop.wait([listener.as_fd()], None)?;
                match listener.accept() {
                    Ok(Some(socket)) => break socket,
                    Ok(None) => {}
                    Err(error) => {
                        self.watch.disconnected(Some(format!("accepting a connection: {error}")));
                        self.stop.wait([], Some(std::time::Duration::from_millis(200)))?;
                    }
                }
            },
        };
        self.watch.connected();
        let ending = self.serve(socket);
        *self.current() = None;
        self.back_end.lock().unwrap_or_else(PoisonError::into_inner).reset();
        let (error, goes_on) = ending;
        self.watch.disconnected(error);
        goes_on
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Option<UnixStream>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a front end. Returns why it ended, where that was no good end, and whether the port goes on.
    fn serve(&self, socket: OwnedFd) -> (Option<String>, Option<()>) {
        let socket = UnixStream::from(socket);
        let (wait, shut) = match (socket.try_clone(), socket.try_clone()) {
            (Ok(wait), Ok(shut)) => (wait, shut),
            (Err(error), _) | (_, Err(error)) => return (Some(error.to_string()), Some(())),
        };
        *self.current() = Some(shut);
        let mut handler = BackendReqHandler::from_stream(socket, Arc::clone(&self.back_end));
        loop {
            let is_ready = match &self.meeting {
                Meeting::Connect(_) => self.stop.wait([wait.as_fd()], None).map(|[own]| own),
                Meeting::Listen(listener) => {
                    self.stop.wait([wait.as_fd(), listener.as_fd()], None).map(|[own, other]| {
                        // One card, one guest: whoever else comes is told by the end of the connection.
                        if other {
                            drop(listener.accept());
                        }
                        own
                    })
                }
            };
            match is_ready {
                None => return (None, None),
                Some(false) => continue,
                Some(true) => {}
            }
            let result = match self.switch_ring(&wait) {
                Ok(true) => continue,
                Ok(false) => handler.handle_request(),
                Err(error) => Err(error),
            };
            match result {
                Ok(()) => {}
                Err(Error::Disconnected) => return (None, Some(())),
                Err(error) => return (Some(format!("the guest's front end: {error}")), Some(())),
            }
        }
    }

    /// Takes the next message if it is `VHOST_USER_SET_VRING_ENABLE`, and says whether it was.
    ///
    /// QEMU enables rings before it acknowledges the feature bit of that message, which the `vhost` crate takes for an offence.
    fn switch_ring(&self, mut socket: &UnixStream) -> Result<bool, Error> {
        let mut header = [0; HEADER_BYTES];
        let peeked = rustix::net::recv(socket, &mut header, RecvFlags::PEEK | RecvFlags::WAITALL);
        let (_, count) = peeked.map_err(|errno| Error::SocketError(errno.into()))?;
        let [request, flags, size] = words(&header);
        if count < HEADER_BYTES || (request, size) != (SET_VRING_ENABLE, 8) {
            return Ok(false);
        }
        let mut message = [0; HEADER_BYTES + 8];
        socket.read_exact(&mut message).map_err(Error::SocketError)?;
        let [_, _, _, index, value] = words(&message);
        let switched = match value {
            0 | 1 => {
                let mut back_end = self.back_end.lock().unwrap_or_else(PoisonError::into_inner);
                back_end.set_vring_enable(index, value == 1)
            }
            _ => Err(Error::InvalidParam),
        };
        if flags & NEED_REPLY != 0 {
            let reply = [SET_VRING_ENABLE, VERSION | REPLY, 8, u32::from(switched.is_err()), 0];
            let bytes: Vec<u8> = reply.iter().flat_map(|word| word.to_ne_bytes()).collect();
            socket.write_all(&bytes).map_err(Error::SocketError)?;
        }
        switched.map(|()| true)
    }
}

/// The words that a message begins with, in the machine's byte order.
fn words<const N: usize>(message: &[u8]) -> [u32; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(message.chunks_exact(4)) {
        *word = bytes.try_into().map_or(0, u32::from_ne_bytes);
    }
    words
}
