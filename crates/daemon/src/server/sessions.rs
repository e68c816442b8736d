//! Connections: their admission, their turns, and their end.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ringroad_control::ServerConnection;
use ringroad_control::message::{ErrorKind, ErrorReply, Reply};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use tracing::{debug, error, info, warn};

use super::{LISTENER, Server, ServerError, survive, system};
use crate::admission::AdmissionError;
use crate::port_entries::{Client, ClientId};

/// Time that a client may take until its first request, and to complete a request that has begun.
pub(super) const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of requests in a turn, which also has a time limit: other waiting clients are served before the next
/// turn.
pub(super) const TURN_REQUESTS: usize = 16;
const TURN_TIME: Duration = Duration::from_millis(1);
/// Time for which connections are accepted between two turns: long enough to empty the backlog.
const ACCEPT_TIME: Duration = Duration::from_millis(2);
/// Pause in accepting while the kernel is out of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Number of descriptors kept to let administrators in when all others are in use.
const SPARE_DESCRIPTORS: usize = 8;
/// Limit of the kernel's buffer for replies that a client has not read, bytes; the kernel doubles the number.
const SEND_BUFFER_BYTES: usize = 64 << 10;

pub(super) struct Session {
    pub(super) connection: ServerConnection,
    pub(super) client: Client,
    /// The last epoll interest.
    pub(super) interest: EventFlags,
    /// Whether the client waits for its turn.
    pub(super) waits: bool,
    /// Whether the client has sent a request yet.
    pub(super) has_asked: bool,
    /// Whether the client's next request is served after the upgrade that has begun: it is for an upgrade itself, or the
    /// client waits for this one.
    pub(super) awaits_upgrade: bool,
    /// Deadline for a complete request.
    pub(super) due: Option<Instant>,
    /// Memory of the daemon that was counted for the client, bytes.
    pub(super) held_bytes: usize,
}

impl Session {
    pub(super) fn new(connection: ServerConnection, client: Client, has_asked: bool) -> Self {
        let interest = interest_in(&connection);
        let (waits, awaits_upgrade) = (false, false);
        Self { connection, client, interest, waits, has_asked, awaits_upgrade, due: None, held_bytes: 0 }
    }
}

/// Result of a turn.
#[derive(Debug, PartialEq, Eq)]
enum TurnEnd {
    /// The session has work that need not wait for the socket.
    Unfinished,
    /// The session has no work until the socket changes.
    Waiting,
    /// The connection has become a netmap device.
    Device,
    /// The session is over.
    Over,
}

/// Events to wait for at a session: room while replies wait to be read, and requests only while none does.
fn interest_in(connection: &ServerConnection) -> EventFlags {
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
            match self.listener.accept() {
                Ok(Some(socket)) => self.welcome(UnixStream::from(socket)),
                // The backlog is empty, or a new client was gone already.
                Ok(None) => return,
                // One descriptor less in use lets the new client be checked, and accepted or rejected.
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
        if let Err(error) = epoll::modify(&self.epoll, &self.listener, EventData::new_u64(LISTENER), interest)
        {
            error!(%error, "watching the control socket");
        }
    }

    /// Replaces spare descriptors that were used.
    pub(super) fn refill_spares(&mut self) {
        while self.spares.len() < SPARE_DESCRIPTORS {
            let Ok(spare) = rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0) else { return };
            self.spares.push(spare);
        }
    }

    /// Admits a new client, or refuses it with the reason.
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
        // A fixed size does not depend on the machine's tuning, as the kernel's default does.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&connection, SEND_BUFFER_BYTES);
        let client = Client { id, peer: connection.peer(), program: "unknown".into() };
        let mut session = Session::new(connection, client, false);
        let data = EventData::new_u64(id);
        if let Err(error) = epoll::add(&self.epoll, &session.connection, data, session.interest) {
            warn!(user, %error, "watching a connection");
            return self.leave(user);
        }
        debug!(client = id, user, "connected");
        self.set_due(&mut session, Some(Instant::now() + REQUEST_PATIENCE));
        self.sessions.insert(id, session);
        self.watch_idleness();
    }

    /// Sets the time by which a session must complete a request, or removes it.
    fn set_due(&mut self, session: &mut Session, due: Option<Instant>) {
        let id = session.client.id;
        if let Some(before) = std::mem::replace(&mut session.due, due) {
            self.due.remove(&(before, id));
        }
        self.due.extend(due.map(|due| (due, id)));
    }

    fn leave(&mut self, user: u32) {
        if self.admission.leave(user) {
            self.requests.forget(user);
        }
    }

    /// Gives a turn to the next client, if any waits.
    pub(super) fn serve_next(&mut self) -> Result<(), ServerError> {
        let next = self.requests.take_next();
        // The session is taken out of the map for the turn, so that requests can change everything else.
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

    /// Serves requests of a client, within one turn.
    fn take_turn(&mut self, session: &mut Session, begin: Instant) -> Result<TurnEnd, ServerError> {
        let mut end = TurnEnd::Unfinished;
        session.connection.flush();
        for _ in 0..TURN_REQUESTS {
            let next = if session.awaits_upgrade { None } else { session.connection.next_request() };
            let Some(request) = next else {
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

    /// Keeps a session after its turn: it waits for another turn, or for its socket.
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
        if is_due != session.due.is_some() {
            self.set_due(&mut session, is_due.then(|| Instant::now() + REQUEST_PATIENCE));
        }
        self.sessions.insert(id, session);
        if unfinished {
            self.line_up(id);
        }
        Ok(())
    }

    /// Keeps a session that has become a netmap device. Bytes on this connection end the device, since the process that
    /// sent them does not know that it is a device.
    fn keep_device(&mut self, mut session: Session) -> Result<(), ServerError> {
        let id = session.client.id;
        let interest = EventFlags::IN | EventFlags::RDHUP;
        let moved = epoll::delete(&self.epoll, &session.connection)
            .and_then(|()| epoll::add(&self.devices, &session.connection, EventData::new_u64(id), interest));
        if moved.is_err() || session.connection.has_input() || session.connection.wants_write() {
            return self.end_session(session);
        }
        self.set_due(&mut session, None);
        self.sessions.insert(id, session);
        Ok(())
    }

    pub(super) fn end_session(&mut self, mut session: Session) -> Result<(), ServerError> {
        let (id, user) = (session.client.id, session.client.peer.uid);
        debug!(client = id, user, "gone");
        self.end_trace(id)?;
        self.set_due(&mut session, None);
        if let Err(failure) = self.netmap.close_device(id, &mut self.parts.ports) {
            error!(client = id, user, "closing a netmap device: {}", failure.message);
        }
        let closed = self.parts.ports.table.close_all_of(|owner| owner.id == id);
        self.end_provisional_ports(id)?;
        self.admission.hold(user, session.held_bytes, 0);
        drop(session);
        self.leave(user);
        self.refill_spares();
        self.watch_idleness();
        survive(closed)
    }

    /// Removes the ports that a client has not kept, in the order of their requests: an interface takes its host stack's
    /// side along. Returns the last refusal, if a port stays.
    pub(super) fn end_provisional_ports(
        &mut self,
        client: ClientId,
    ) -> Result<Option<ErrorReply>, ServerError> {
        let mut refused = None;
        for (key, number) in self.parts.ports.provisional.take(client) {
            // The port may have been removed before, or another one may have its name.
            if !self.parts.ports.has_number(&key, number) {
                continue;
            }
            match self.parts.ports.detach_with_interface(&key) {
                Ok(owner) => {
                    info!(port = %key, client, "detached: its client did not keep it");
                    self.netmap.forget_detached(&self.parts.ports);
                    self.drop_clients(owner.into_iter().collect(), client)?;
                }
                Err(refusal) => {
                    error!(port = %key, client, reason = %refusal.message, "detaching");
                    refused = Some(refusal);
                }
            }
        }
        Ok(refused)
    }

    /// Ends the netmap devices whose last descriptor was closed. The current request may rely on an end that came
    /// before it, while the loop would process that end later. Idle devices cost nothing.
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

    /// Ends the sessions of clients whose port was taken away. These clients see the end of their connection.
    pub(super) fn drop_clients(&mut self, clients: Vec<ClientId>, but: ClientId) -> Result<(), ServerError> {
        for id in clients.into_iter().filter(|&id| id != but) {
            if let Some(session) = self.sessions.remove(&id) {
                self.end_session(session)?;
            }
        }
        Ok(())
    }
}
