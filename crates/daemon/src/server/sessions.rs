//! Connections: who gets one, whose turn it is, and how they end.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ringroad_control::ServerConnection;
use ringroad_control::message::{ErrorKind, ErrorReply, Reply};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use tracing::{debug, error, warn};

use super::{LISTENER, Server, ServerError, survive, system};
use crate::admission::AdmissionError;
use crate::port_entries::{Client, ClientId};

/// How long a client may take until its first request, and to complete a request that it has begun.
pub(super) const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// A turn ends after this many requests, or after a time limit: other waiting clients are served before the next.
pub(super) const TURN_REQUESTS: usize = 16;
const TURN_TIME: Duration = Duration::from_millis(1);
/// How long connections are accepted between two turns: long enough to empty the queue of those that wait.
const ACCEPT_TIME: Duration = Duration::from_millis(2);
/// How long nothing is accepted where the kernel has nothing left for it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Descriptors kept to let administrators in where all others are taken.
const SPARE_DESCRIPTORS: usize = 8;
/// What the kernel holds at most of replies that a client has not read, bytes; it doubles the number.
const SEND_BUFFER_BYTES: usize = 64 << 10;

pub(super) struct Session {
    pub(super) connection: ServerConnection,
    pub(super) client: Client,
    /// The last epoll interest.
    pub(super) interest: EventFlags,
    /// Whether it waits for its turn.
    pub(super) waits: bool,
    /// Whether it has sent a request yet.
    pub(super) has_asked: bool,
    /// By when it must have completed a request.
    pub(super) due: Option<Instant>,
    /// What was counted of the memory that it makes the daemon hold, bytes.
    pub(super) held_bytes: usize,
}

/// What a turn left behind.
#[derive(Debug, PartialEq, Eq)]
enum TurnEnd {
    /// More to be done without waiting for the socket.
    Unfinished,
    /// Nothing more to be done before the socket changes.
    Waiting,
    /// The connection has become a netmap device.
    Device,
    /// The session is over.
    Over,
}

/// What to wait for at a session: for room while replies wait to be read, and for requests only while none does.
pub(super) fn interest_in(connection: &ServerConnection) -> EventFlags {
    let wanted = match connection.wants_write() {
        true => EventFlags::OUT,
        false => EventFlags::IN | EventFlags::RDHUP,
    };
    wanted | EventFlags::ET
}

impl Server {
    pub(super) fn accept(&mut self) {
        let begin = Instant::now();
        while begin.elapsed() < ACCEPT_TIME {
            match self.parts.listener.accept() {
                Ok(Some(socket)) => self.welcome(UnixStream::from(socket)),
                // Nothing waits any more, or one new client was gone already.
                Ok(None) => return,
                // With one descriptor less in use the new client can be checked, and accepted or rejected.
                Err(_) if self.spares.pop().is_some() => {}
                Err(error) => {
                    let socket = self.parts.socket.display();
                    warn!(visited = %socket, %error, "accepting a connection; trying again soon");
                    self.watch_listener(EventFlags::empty());
                    self.accept_at = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    pub(super) fn watch_listener(&self, interest: EventFlags) {
        if let Err(error) =
            epoll::modify(&self.epoll, &self.parts.listener, EventData::new_u64(LISTENER), interest)
        {
            error!(%error, "watching the control socket");
        }
    }

    /// Makes up for spare descriptors that were used.
    pub(super) fn refill_spares(&mut self) {
        while self.spares.len() < SPARE_DESCRIPTORS {
            let Ok(spare) = rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0) else { return };
            self.spares.push(spare);
        }
    }

    /// Admits a new client, or sends it the reason for the refusal.
    pub(super) fn welcome(&mut self, socket: UnixStream) {
        let mut connection = match ServerConnection::new(socket) {
            Ok(connection) => connection,
            Err(error) => return warn!(%error, "querying the connected peer"),
        };
        let user = connection.peer().uid;
        let administers = self.parts.ports.permissions.may_administer(connection.peer());
        let entered = match self.spares.len() < SPARE_DESCRIPTORS && !administers {
            true => Err(AdmissionError::Descriptors),
            false => self.admission.enter(user, administers),
        };
        if let Err(reason) = entered {
            self.rejected_requests += 1;
            warn!(user, %reason, "a connection was sent away");
            let advice = "close connections, or raise limits.connections or limits.connections_per_user";
            let refusal = ErrorReply::new(ErrorKind::Busy, reason.to_string(), advice);
            connection.send(&Reply::Error(refusal), &[]);
            drop(connection);
            return self.refill_spares();
        }
        let id = self.next_client;
        self.next_client += 1;
        // The kernel's default would do as well, but depends on the machine's tuning.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&connection, SEND_BUFFER_BYTES);
        let interest = interest_in(&connection);
        if let Err(error) = epoll::add(&self.epoll, &connection, EventData::new_u64(id), interest) {
            warn!(user, %error, "watching a connection");
            self.leave(user);
            return;
        }
        let client = Client { id, peer: connection.peer(), program: "unknown".into() };
        debug!(client = id, user, "connected");
        let due = Instant::now() + REQUEST_PATIENCE;
        self.due.insert((due, id));
        let session = Session {
            connection,
            client,
            interest,
            waits: false,
            has_asked: false,
            due: Some(due),
            held_bytes: 0,
        };
        self.sessions.insert(id, session);
        self.watch_idleness();
    }

    fn leave(&mut self, user: u32) {
        if self.admission.leave(user) {
            self.requests.forget(user);
        }
    }

    /// Gives a turn to the client who is next, if any waits.
    pub(super) fn serve_next(&mut self) -> Result<(), ServerError> {
        let next = self.requests.take_next();
        // Taken out for the time, so that requests can change everything else.
        let Some(mut session) = next.and_then(|id| self.sessions.remove(&id)) else { return Ok(()) };
        session.waits = false;
        let (begin, user) = (Instant::now(), session.client.peer.uid);
        let end = self.take_turn(&mut session, begin)?;
        self.requests.charge(user, begin.elapsed());
        match end {
            TurnEnd::Over => self.end_session(session),
            TurnEnd::Device => self.keep_device(session),
            end => self.keep(session, end == TurnEnd::Unfinished),
        }
    }

    /// Serves what a client has sent, as much of it as belongs into one turn.
    fn take_turn(&mut self, session: &mut Session, begin: Instant) -> Result<TurnEnd, ServerError> {
        let mut end = TurnEnd::Unfinished;
        session.connection.flush();
        for _ in 0..TURN_REQUESTS {
            let Some(request) = session.connection.next_request() else {
                end = TurnEnd::Waiting;
                break;
            };
            session.has_asked = true;
            self.answer(session, request)?;
            if self.netmap.is_device(session.client.id) {
                end = TurnEnd::Device;
                break;
            }
            session.connection.flush();
            if begin.elapsed() >= TURN_TIME {
                break;
            }
        }
        Ok(if session.connection.is_closed() { TurnEnd::Over } else { end })
    }

    /// Keeps a session after its turn: it gets in line again, or its socket is waited for.
    fn keep(&mut self, mut session: Session, unfinished: bool) -> Result<(), ServerError> {
        let (id, user) = (session.client.id, session.client.peer.uid);
        let interest = interest_in(&session.connection);
        if interest != session.interest {
            session.interest = interest;
            let data = EventData::new_u64(id);
            if let Err(error) = epoll::modify(&self.epoll, &session.connection, data, interest) {
                warn!(user, %error, "watching a connection");
                return self.end_session(session);
            }
        }
        let held_bytes = session.connection.held_bytes();
        let before = std::mem::replace(&mut session.held_bytes, held_bytes);
        if !self.admission.hold(user, before, held_bytes) {
            warn!(user, client = %session.client, "half requests and unread replies take too much memory");
            return self.end_session(session);
        }
        let is_due = !session.has_asked || session.connection.is_within_request();
        match (is_due, session.due) {
            (true, None) => {
                let due = Instant::now() + REQUEST_PATIENCE;
                session.due = Some(due);
                self.due.insert((due, id));
            }
            (false, Some(due)) => {
                session.due = None;
                self.due.remove(&(due, id));
            }
            _ => {}
        }
        self.sessions.insert(id, session);
        if unfinished {
            self.line_up(id);
        }
        Ok(())
    }

    /// Keeps a session that has become a netmap device: no more bytes may come by it, and a process that writes to it
    /// does not know it as a device.
    fn keep_device(&mut self, mut session: Session) -> Result<(), ServerError> {
        let id = session.client.id;
        let interest = EventFlags::IN | EventFlags::RDHUP;
        let moved = epoll::delete(&self.epoll, &session.connection)
            .and_then(|()| epoll::add(&self.devices, &session.connection, EventData::new_u64(id), interest));
        if moved.is_err() || session.connection.has_input() || session.connection.wants_write() {
            return self.end_session(session);
        }
        if let Some(due) = session.due.take() {
            self.due.remove(&(due, id));
        }
        self.sessions.insert(id, session);
        Ok(())
    }

    pub(super) fn end_session(&mut self, session: Session) -> Result<(), ServerError> {
        let (id, user) = (session.client.id, session.client.peer.uid);
        debug!(client = id, user, "gone");
        self.end_trace(id)?;
        if let Some(due) = session.due {
            self.due.remove(&(due, id));
        }
        if let Err(failure) = self.netmap.close_device(id, &mut self.parts.ports) {
            error!(client = id, user, "closing a netmap device: {}", failure.message);
        }
        let closed = self.parts.ports.close_client(id);
        self.admission.hold(user, session.held_bytes, 0);
        drop(session);
        self.leave(user);
        self.refill_spares();
        self.watch_idleness();
        survive(closed)
    }

    /// Ends the netmap devices whose last descriptor was closed. That may have happened before the current request was
    /// sent, which then relies on it, while the loop would process it later. Idle devices cost nothing.
    pub(super) fn end_closed_devices(&mut self) -> Result<(), ServerError> {
        let empty = epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [empty; 64];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let ready = rustix::io::retry_on_intr(|| epoll::wait(&self.devices, &mut events[..], Some(&now)))
                .map_err(system("polling netmap devices"))?;
            for event in events.iter().take(ready) {
                if let Some(session) = self.sessions.remove(&event.data.u64()) {
                    self.end_session(session)?;
                }
            }
            if ready < events.len() {
                return Ok(());
            }
        }
    }

    /// Ends the sessions of clients whose port was taken away: they see the end of their connection.
    pub(super) fn drop_clients(&mut self, clients: Vec<ClientId>, but: ClientId) -> Result<(), ServerError> {
        for id in clients.into_iter().filter(|&id| id != but) {
            if let Some(session) = self.sessions.remove(&id) {
                self.end_session(session)?;
            }
        }
        Ok(())
    }
}
