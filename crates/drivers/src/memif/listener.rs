//! The process's listening sockets: one for each path, shared by any number of interfaces. Each socket has a thread. It
//! greets each client, reads which interface the client requests, and hands the connection to that port.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringroad_control::listening_socket::ListeningSocket;
use ringroad_ring::eventfd;
use rustix::net::SocketType;

use super::channel::{Channel, End, PATIENCE, unexpected};
use super::message::{Init, MODE_ETHERNET, MemifHello, MemifMessage, VERSION};
use super::queue::Line;
use crate::device::DeviceError;
use crate::peer::peer_thread::PeerThread;
use crate::peer::socket::StopBell;

/// Highest number of a region that a client may have.
pub(super) const MAX_REGION: u16 = 255;
/// Connections that have not sent an INIT message yet.
const MAX_UNNAMED: usize = 64;

/// A client that requests a port.
#[derive(Debug)]
pub(super) struct NewClient {
    pub(super) channel: Channel,
    /// Name of the client's program.
    pub(super) name: String,
}

/// Admission of clients to a port.
#[derive(Debug)]
pub(super) struct ClientSlot {
    queues: u16,
    max_log2_ring_size: u8,
    /// Secret that clients must send; empty for none.
    secret: Vec<u8>,
    new_client: Mutex<Option<NewClient>>,
    line: Arc<Line>,
}

impl ClientSlot {
    pub(super) fn new(queues: u16, max_log2_ring_size: u8, secret: Vec<u8>, line: Arc<Line>) -> Arc<Self> {
        Arc::new(Self { queues, max_log2_ring_size, secret, new_client: Mutex::new(None), line })
    }

    /// The client that was admitted, if any.
    pub(super) fn take(&self) -> Option<NewClient> {
        lock(&self.new_client).take()
    }

    /// Accepts a client that has sent INIT, or returns the reason for the rejection.
    fn admit(&self, channel: Channel, init: &Init) -> Result<(), (Channel, String)> {
        if init.mode != MODE_ETHERNET {
            return Err((channel, format!("interface {} carries Ethernet frames only", init.id)));
        }
        if !self.secret.is_empty() && self.secret != init.secret {
            let what = if init.secret.is_empty() { "needs a secret" } else { "has another secret" };
            return Err((channel, format!("interface {} {what}", init.id)));
        }
        let mut new_client = lock(&self.new_client);
        if new_client.is_some() {
            return Err((channel, already_connected(init.id)));
        }
        *new_client = Some(NewClient { channel, name: init.name.clone() });
        drop(new_client);
        eventfd::ring_own(&self.line.bell);
        Ok(())
    }
}

/// Reason that is sent to a second client.
pub(super) fn already_connected(id: u32) -> String {
    format!("another client is connected to interface {id}")
}

#[derive(Debug)]
struct Listener {
    mode: Option<u32>,
    doors: Arc<Mutex<BTreeMap<u32, Arc<ClientSlot>>>>,
    /// The thread of the socket. It hands over no rings.
    _thread: PeerThread<()>,
}

static LISTENERS: Mutex<BTreeMap<PathBuf, Listener>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port's registration at the socket of a path. The end of the last registration closes the socket.
#[derive(Debug)]
pub(super) struct SocketRegistration {
    path: PathBuf,
    id: u32,
}

impl SocketRegistration {
    /// Registers `door` at the socket of `path`, which is created if needed.
    ///
    /// # Errors
    /// The socket cannot be opened, or another port has this `id` at the path.
    pub(super) fn take(
        path: &Path,
        id: u32,
        mode: Option<u32>,
        door: Arc<ClientSlot>,
    ) -> Result<Self, DeviceError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut listeners = lock(&LISTENERS);
        if let Some(listener) = listeners.get(&path) {
            if mode.is_some() && mode != listener.mode {
                return Err(DeviceError::Refused(format!(
                    "{} is served already, with other permissions: give all its ports the same socket-mode, or only the first one",
                    path.display()
                )));
            }
            let mut doors = lock(&listener.doors);
            if doors.contains_key(&id) {
                return Err(DeviceError::Refused(format!(
                    "another port serves interface {id} at {}: choose another id",
                    path.display()
                )));
            }
            doors.insert(id, door);
            drop(doors);
            return Ok(Self { path, id });
        }
        let socket = ListeningSocket::bind(&path, SocketType::SEQPACKET, mode)?;
        let failed = |source| DeviceError::Connection { name: format!("memif:{}", path.display()), source };
        let doors = Arc::new(Mutex::new(BTreeMap::from([(id, door)])));
        let known = Arc::clone(&doors);
        let run = |stop| ListenerThread { socket, doors: known, stop, unnamed: Vec::new() }.run();
        let thread = PeerThread::start("memif-listen", Vec::new(), run).map_err(failed)?;
        listeners.insert(path.clone(), Listener { mode, doors, _thread: thread });
        Ok(Self { path, id })
    }
}

impl Drop for SocketRegistration {
    fn drop(&mut self) {
        let mut listeners = lock(&LISTENERS);
        let Some(listener) = listeners.get(&self.path) else { return };
        let is_last = {
            let mut doors = lock(&listener.doors);
            doors.remove(&self.id);
            doors.is_empty()
        };
        if is_last {
            // The socket is closed under the lock, so that the next opening finds the path free. Its thread waits for
            // no other thread.
            listeners.remove(&self.path);
        }
    }
}

/// The thread of a listening socket.
struct ListenerThread {
    socket: ListeningSocket,
    doors: Arc<Mutex<BTreeMap<u32, Arc<ClientSlot>>>>,
    stop: StopBell,
    /// Clients that were sent HELLO, and their deadlines for INIT.
    unnamed: Vec<(Channel, Instant)>,
}

impl ListenerThread {
    fn run(mut self) {
        loop {
            let first_due = self.unnamed.iter().map(|(_, due)| *due).min();
            let timeout = first_due.map(|due| due.saturating_duration_since(Instant::now()));
            let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(self.socket.as_fd())
                .chain(self.unnamed.iter().map(|(channel, _)| channel.as_fd()))
                .collect();
            let Some(ready) = self.stop.wait_for_any(&descriptors, timeout) else { return };
            let (comes, speak) = ready.split_first().unwrap_or((&false, &[]));
            let mut speak = speak.iter();
            let now = Instant::now();
            for (channel, due) in std::mem::take(&mut self.unnamed) {
                if speak.next() == Some(&true) {
                    self.hear(channel);
                } else if due <= now {
                    channel.say_goodbye("no init message came");
                } else {
                    self.unnamed.push((channel, due));
                }
            }
            if *comes {
                match self.socket.accept() {
                    Ok(Some(connection)) => self.greet(Channel::new(connection)),
                    Ok(None) => {}
                    // The process has no descriptors left.
                    Err(_) => {
                        if self.stop.pause().is_none() {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Sends a client the limits of all interfaces at this socket (HELLO).
    fn greet(&mut self, channel: Channel) {
        let limits = {
            let doors = lock(&self.doors);
            let queues = doors.values().map(|door| door.queues).min();
            let log2 = doors.values().map(|door| door.max_log2_ring_size).min();
            queues.zip(log2)
        };
        let Some((queues, max_log2_ring_size)) = limits else { return };
        if self.unnamed.len() == MAX_UNNAMED {
            return channel.say_goodbye("too many clients wait here");
        }
        let last_ring = queues.saturating_sub(1);
        let hello = MemifHello {
            name: super::program_name(),
            min_version: VERSION,
            max_version: VERSION,
            max_region: MAX_REGION,
            max_ring_to_client: last_ring,
            max_ring_to_server: last_ring,
            max_log2_ring_size,
        };
        if channel.send(&MemifMessage::Hello(hello), None).is_ok() {
            self.unnamed.push((channel, Instant::now() + PATIENCE));
        }
    }

    /// Receives a client's first message, and hands the client to the port that it names.
    fn hear(&self, channel: Channel) {
        let init = match channel.receive() {
            Ok((MemifMessage::Init(init), _)) => init,
            Ok((other, _)) => return refuse(&channel, &unexpected(&other)),
            Err(end) => return refuse(&channel, &end),
        };
        if init.version != VERSION {
            let version = init.version;
            return channel.say_goodbye(&format!(
                "version {}.{} is not spoken here",
                version >> 8,
                version & 0xFF
            ));
        }
        let door = lock(&self.doors).get(&init.id).cloned();
        let Some(door) = door else {
            return channel.say_goodbye(&format!("there is no interface {} here", init.id));
        };
        if let Err((channel, reason)) = door.admit(channel, &init) {
            channel.say_goodbye(&reason);
        }
    }
}

fn refuse(channel: &Channel, end: &End) {
    if let End::Broken(reason) = end {
        channel.say_goodbye(reason);
    }
}
