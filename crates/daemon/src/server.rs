//! The control socket's loop: one thread, epoll, nothing that blocks on a client.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringroad_control::listening_socket::ListeningSocket;
use ringroad_control::message::{ErrorKind, ErrorReply, Mirror, MirrorDirection, OpenFlow, Reply, Request};
use ringroad_control::netmap::NetmapReply;
use ringroad_control::printable::printable;
use ringroad_control::report::{ConfigReport, ListReport, ReloadReport, StartedBy, StatusReport};
use ringroad_control::{PROTOCOL_VERSION, ServerConnection};
use ringroad_datapath::fabric::FabricError;
use ringroad_drivers::catalogue::is_device;
use ringroad_drivers::catalogue::port_name::PortName;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use tracing::{debug, error, info, warn};

use crate::admission::{Admission, NoPlace};
use crate::config::{Config, Log, StaticAddress};
use crate::devices::NamedDevice;
use crate::listen::set_access;
use crate::logging::RunningLog;
use crate::netmap::{Answer, Asker, Netmap};
use crate::permissions::{Permissions, Standing};
use crate::port_entries::{Client, ClientId, Origin};
use crate::ports::{Attachment, Ports, ServedBy};
use crate::refusal::fabric_refusal;
use crate::revival::CommandPort;
use crate::turns::Turns;
use crate::whereabouts::Whereabouts;
use crate::{mirrors, reload, saving, shortcuts, status, tracing_report};

mod upgrade;

pub use upgrade::{NewParts, Successor};

/// Ageing ticks in the lifetime of an address.
pub const AGEING_TICKS: u8 = 60;
/// How long a daemon that was started on demand stays without ports and connections.
const IDLE_BEFORE_EXIT: Duration = Duration::from_secs(10);
/// How long a client may take to ask for the first time, and to complete a request that it has begun.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// A turn ends after so many requests, or after so much time: other clients that wait are served before the next.
const TURN_REQUESTS: usize = 16;
const TURN_TIME: Duration = Duration::from_millis(1);
/// How long connections are accepted between two turns: long enough to empty the queue of those that wait.
const ACCEPT_TIME: Duration = Duration::from_millis(2);
/// How long nothing is accepted where the kernel has nothing left for it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Descriptors kept to let administrators in where all others are taken.
const SPARE_DESCRIPTORS: usize = 8;
/// What the kernel holds at most of replies that a client has not read, bytes; it doubles the number.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Most characters of the name that a program gives itself, and of a name that is quoted to people.
const MAX_PROGRAM_CHARS: usize = 64;

const LISTENER: u64 = u64::MAX;
const SIGNALS: u64 = u64::MAX - 1;
const PEERS: u64 = u64::MAX - 2;
const DEVICES: u64 = u64::MAX - 3;

/// Time between two tries to make configured ports whose devices are not there yet.
const RETRY: Duration = Duration::from_secs(1);

/// Why the daemon ended without being asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The kernel refused something it cannot do without.
    #[error("{what}: {source}")]
    System { what: &'static str, source: Errno },
    /// A worker is gone.
    #[error("the datapath failed: {0}")]
    Fabric(#[from] FabricError),
}

/// The parts with which a server starts.
#[derive(Debug)]
pub struct ServerParts {
    pub listener: ListeningSocket,
    pub socket: PathBuf,
    /// The configuration.
    pub config: Config,
    /// The file it came from.
    pub config_path: Option<PathBuf>,
    /// How the daemon was started.
    pub started: StartedBy,
    /// The ports, with those of the configuration.
    pub ports: Ports,
    /// Becomes readable with a byte per signal: `h` for SIGHUP, `t` for SIGTERM and SIGINT.
    pub signals: UnixStream,
    /// The log.
    pub log: RunningLog,
    /// Arguments of a process that is to go on in place of this one.
    pub arguments: Vec<OsString>,
}

struct Session {
    connection: ServerConnection,
    client: Client,
    /// What epoll was asked for last.
    interest: EventFlags,
    /// Whether it waits for its turn.
    waits: bool,
    /// Whether it has asked for anything yet.
    has_asked: bool,
    /// By when it must have completed a request.
    due: Option<Instant>,
    /// What was counted of the memory that it makes the daemon hold, bytes.
    held_bytes: usize,
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

/// The running daemon.
pub struct Server {
    parts: ServerParts,
    /// Everything that is waited for. Sessions are in it by edge: a turn goes on until their socket has nothing more,
    /// so no session misses an edge, and one that waits for its turn or is behind with reading costs nothing.
    epoll: OwnedFd,
    /// Connections that are netmap devices, by level: whatever happens at one of them ends it.
    devices: OwnedFd,
    sessions: BTreeMap<ClientId, Session>,
    turns: Turns,
    admission: Admission,
    /// Sessions that must complete a request, by when.
    due: BTreeSet<(Instant, ClientId)>,
    spares: Vec<OwnedFd>,
    next_tick: Instant,
    /// The time at which a daemon without users ends.
    idle_at: Option<Instant>,
    /// When accepting goes on, where it was stopped.
    accept_at: Option<Instant>,
    /// When configured ports are tried again whose devices were not there.
    retry_at: Option<Instant>,
    /// When the kernel's way between veth pairs is brought to what switches have learned; and the number of ports at
    /// the last look, which is none where something else has changed.
    shortcuts_at: Option<Instant>,
    ports_at_look: usize,
    netmap: Netmap,
    /// The client whose trace runs.
    tracer: Option<ClientId>,
    next_client: ClientId,
    started_at: Instant,
    /// Tells this daemon from those before it.
    instance: u64,
    rejected_requests: u64,
    stopping: bool,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}

fn system(what: &'static str) -> impl FnOnce(Errno) -> ServerError {
    move |source| ServerError::System { what, source }
}

/// Only a worker that is gone ends the daemon: whatever else fails about the ports of one client is that client's
/// affair.
fn survive(result: Result<(), FabricError>) -> Result<(), ServerError> {
    match result {
        Err(failure @ FabricError::Worker(_)) => Err(failure.into()),
        Err(failure) => {
            error!(%failure, "changing ports");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// As [`survive`], for a client's request: the client gets the error.
fn told<T>(result: Result<T, FabricError>) -> Result<Result<T, ErrorReply>, ServerError> {
    match result {
        Err(failure @ FabricError::Worker(_)) => Err(failure.into()),
        other => Ok(other.map_err(fabric_refusal)),
    }
}

/// What to wait for at a session: for room while replies wait to be read, and for requests only while none does.
fn interest_in(connection: &ServerConnection) -> EventFlags {
    let wanted = match connection.wants_write() {
        true => EventFlags::OUT,
        false => EventFlags::IN | EventFlags::RDHUP,
    };
    wanted | EventFlags::ET
}

impl Server {
    /// A server ready to run.
    ///
    /// # Errors
    /// [`ServerError::System`].
    pub fn new(mut parts: ServerParts) -> Result<Self, ServerError> {
        parts.ports.permissions = rules(&parts.config);
        let make_set = || epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("making an epoll set"));
        let (epoll, devices) = (make_set()?, make_set()?);
        let watched = [
            (parts.listener.as_fd(), LISTENER),
            (parts.signals.as_fd(), SIGNALS),
            (parts.ports.peer_changes.as_fd(), PEERS),
            (devices.as_fd(), DEVICES),
        ];
        for (descriptor, name) in watched {
            epoll::add(&epoll, descriptor, EventData::new_u64(name), EventFlags::IN)
                .map_err(system("watching the control socket"))?;
        }
        let limits = &parts.config.limits;
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let descriptors = descriptors.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        let admission = Admission::new(limits.connections, limits.connections_per_user, descriptors);
        if admission.places() < limits.connections {
            let (wanted, places) = (limits.connections, admission.places());
            warn!(
                wanted,
                places, descriptors, "limits.connections is more than the limit of descriptors allows"
            );
        }
        let now = Instant::now();
        let mut server = Self {
            next_tick: now + tick_length(&parts.config),
            parts,
            epoll,
            devices,
            sessions: BTreeMap::new(),
            turns: Turns::default(),
            admission,
            due: BTreeSet::new(),
            spares: Vec::new(),
            idle_at: None,
            accept_at: None,
            retry_at: None,
            shortcuts_at: None,
            ports_at_look: 0,
            netmap: Netmap::default(),
            tracer: None,
            next_client: 0,
            started_at: now,
            instance: instance(),
            rejected_requests: 0,
            stopping: false,
        };
        server.refill_spares();
        server.watch_idleness();
        server.watch_waiting_ports();
        Ok(server)
    }

    /// Serves until a stop signal or request.
    ///
    /// # Errors
    /// [`ServerError`] where it cannot go on.
    pub fn run(&mut self) -> Result<(), ServerError> {
        info!(
            socket = %self.parts.socket.display(),
            workers = self.parts.config.workers.count,
            ports = self.parts.ports.table.on_switches().len(),
            "ringroadd {} is ready", env!("CARGO_PKG_VERSION")
        );
        while !self.stopping {
            let wait = match self.turns.is_empty() {
                true => self.next_deadline().saturating_duration_since(Instant::now()),
                false => Duration::ZERO,
            };
            self.take_events(wait)?;
            self.keep_time(Instant::now())?;
            self.serve_next()?;
        }
        Ok(())
    }

    /// Handles what has happened, or waits for it for so long; clients that want something get in line.
    fn take_events(&mut self, wait: Duration) -> Result<(), ServerError> {
        let empty = epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [empty; 256];
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let ready = match epoll::wait(&self.epoll, &mut events, Some(&wait)) {
            Err(Errno::INTR) => return Ok(()),
            result => result.map_err(system("waiting for events"))?,
        };
        for event in events.iter().take(ready) {
            match event.data.u64() {
                LISTENER => self.accept(),
                SIGNALS => self.handle_signals(),
                PEERS => survive(self.parts.ports.follow_peers())?,
                DEVICES => self.end_closed_devices()?,
                client => self.line_up(client),
            }
        }
        Ok(())
    }

    fn line_up(&mut self, id: ClientId) {
        if let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.waits) {
            session.waits = true;
            self.turns.add(session.client.peer.uid, id);
        }
    }

    fn next_deadline(&self) -> Instant {
        let due = self.due.first().map(|&(at, _)| at);
        [due, self.idle_at, self.accept_at, self.retry_at, self.shortcuts_at]
            .into_iter()
            .flatten()
            .fold(self.next_tick, Instant::min)
    }

    /// Says where switches are joined in a loop. The log's limit holds for this, too.
    fn tell_of_loops(&self) {
        let fabric = self.parts.ports.table.fabric();
        for (switch, seen) in fabric.take_loops() {
            let [one, other] =
                seen.ports.map(|port| fabric.port_name(switch, port).unwrap_or("a port that left"));
            warn!(
                switch,
                address = %seen.mac,
                "the same frames come in at {switch}:{one} and {switch}:{other}, and addresses move between them: \
                 is there a loop behind them? Flooded frames that go round are dropped"
            );
        }
    }

    /// Does what is due by `now`.
    fn keep_time(&mut self, now: Instant) -> Result<(), ServerError> {
        if self.next_tick <= now {
            self.next_tick = now + tick_length(&self.parts.config);
            self.parts.ports.table.fabric().tick();
            self.tell_of_loops();
            survive(self.parts.ports.watch_devices())?;
            self.parts.log.limit.report();
            self.refill_spares();
        }
        if self.idle_at.is_some_and(|at| at <= now) {
            self.idle_at = None;
            if self.is_idle() {
                info!("no ports and no connections: ending");
                self.stopping = true;
            }
        }
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept_at = None;
            self.watch_listener(EventFlags::IN);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            if self.ports_wait() {
                reload::apply_ports(&mut self.parts.ports, &self.parts.config.port);
                self.parts.ports.revive();
            }
            if !self.parts.ports.openflow.is_empty() {
                survive(self.parts.ports.watch_devices())?;
                self.parts.ports.retry_openflow();
                self.parts.ports.follow_openflow();
            }
            self.watch_waiting_ports();
        }
        self.parts.ports.follow_openflow_ports();
        let ports = self.parts.ports.table.on_switches().len();
        if self.ports_at_look != ports || self.shortcuts_at.is_some_and(|at| at <= now) {
            self.ports_at_look = ports;
            let needed = shortcuts::follow(&self.parts.ports.table);
            self.shortcuts_at = needed.then(|| now + shortcuts::PERIOD);
        }
        while let Some(&(at, id)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, id));
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if session.waits {
                // It may have done its part and not have had its turn.
                let due = now + REQUEST_PATIENCE;
                session.due = Some(due);
                self.due.insert((due, id));
            } else if let Some(session) = self.sessions.remove(&id) {
                debug!(client = id, user = session.client.peer.uid, "no request within the time for one");
                self.end_session(session)?;
            }
        }
        Ok(())
    }

    /// Ends everything in order: no new connections, programs see the end of theirs, the socket goes.
    pub fn shut_down(self) {
        self.parts.log.limit.report();
        info!("ended");
    }

    fn is_idle(&self) -> bool {
        self.parts.started == StartedBy::OnDemand
            && self.sessions.is_empty()
            && self.parts.ports.is_empty()
            && self.netmap.is_empty()
    }

    /// Starts or stops the countdown of a daemon without users.
    fn watch_idleness(&mut self) {
        self.idle_at = self.is_idle().then(|| Instant::now() + IDLE_BEFORE_EXIT);
    }

    /// Whether there are ports whose devices are not there yet.
    fn ports_wait(&self) -> bool {
        !self.parts.ports.waiting.is_empty() || self.parts.ports.revival.waits()
    }

    /// Sees to it that configured ports whose devices are not there yet are tried again, and that controllers hear of links
    /// that go up or down.
    fn watch_waiting_ports(&mut self) {
        let waits = self.ports_wait() || !self.parts.ports.openflow.is_empty();
        self.retry_at = waits.then(|| Instant::now() + RETRY);
    }

    fn accept(&mut self) {
        let begin = Instant::now();
        while begin.elapsed() < ACCEPT_TIME {
            match self.parts.listener.accept() {
                Ok(Some(socket)) => self.welcome(UnixStream::from(socket)),
                // Nothing waits any more, or one newcomer was gone already.
                Ok(None) => return,
                // With one descriptor less in use the newcomer can be looked at, and let in or sent away.
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

    fn watch_listener(&self, interest: EventFlags) {
        if let Err(error) =
            epoll::modify(&self.epoll, &self.parts.listener, EventData::new_u64(LISTENER), interest)
        {
            error!(%error, "watching the control socket");
        }
    }

    /// Makes up for spare descriptors that were used.
    fn refill_spares(&mut self) {
        while self.spares.len() < SPARE_DESCRIPTORS {
            let Ok(spare) = rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0) else { return };
            self.spares.push(spare);
        }
    }

    /// Admits a new client, or sends it the reason for the refusal.
    fn welcome(&mut self, socket: UnixStream) {
        let mut connection = match ServerConnection::new(socket) {
            Ok(connection) => connection,
            Err(error) => return warn!(%error, "asking who has connected"),
        };
        let user = connection.peer().uid;
        let administers = self.parts.ports.permissions.may_administer(connection.peer());
        let entered = match self.spares.len() < SPARE_DESCRIPTORS && !administers {
            true => Err(NoPlace::Descriptors),
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
        // The kernel's default would do as well, but is whatever the machine was tuned to.
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
            self.turns.forget(user);
        }
    }

    /// Gives a turn to the client who is next, if any waits.
    fn serve_next(&mut self) -> Result<(), ServerError> {
        let next = self.turns.take_next();
        // Taken out for the time, so that requests can change everything else.
        let Some(mut session) = next.and_then(|id| self.sessions.remove(&id)) else { return Ok(()) };
        session.waits = false;
        let (begin, user) = (Instant::now(), session.client.peer.uid);
        let end = self.take_turn(&mut session, begin)?;
        self.turns.charge(user, begin.elapsed());
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

    fn end_session(&mut self, session: Session) -> Result<(), ServerError> {
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

    fn answer(
        &mut self,
        session: &mut Session,
        request: Result<Request, ErrorReply>,
    ) -> Result<(), ServerError> {
        let result = match request {
            Ok(Request::Open { name, wish }) => {
                let permitted = self.check_open(session, &name);
                let opened = permitted.and_then(|name| self.parts.ports.open(&name, &wish, &session.client));
                match opened {
                    Ok(opened) => {
                        let user = session.client.peer.uid;
                        info!(port = %opened.reply.name, client = %session.client, user, "opened");
                        let reply = Reply::Opened(opened.reply.clone());
                        session.connection.send(&reply, &opened.descriptors());
                        return Ok(());
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            Ok(Request::NetmapOpen) => {
                self.open_netmap_device(session);
                return Ok(());
            }
            Ok(Request::Netmap { device, request }) => {
                self.end_closed_devices()?;
                let permissions = Arc::clone(&self.parts.ports.permissions);
                let administers = permissions.may_administer(session.client.peer);
                let place = Whereabouts::of(&session.connection, administers);
                let asker = Asker { client: &session.client, permissions: &permissions, place };
                let Answer { reply, descriptors } =
                    self.netmap.answer(&mut self.parts.ports, asker, device, request);
                if let NetmapReply::Failed { errno, message } = &reply {
                    let user = session.client.peer.uid;
                    debug!(client = %session.client, user, errno, reason = %message, "refused");
                }
                let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                session.connection.send(&Reply::Netmap(reply), &borrowed);
                return Ok(());
            }
            Ok(request) => self.handle(session, request)?,
            Err(refusal) => Err(refusal),
        };
        let reply = result.unwrap_or_else(|refusal| {
            self.rejected_requests += 1;
            let user = session.client.peer.uid;
            debug!(client = %session.client, user, reason = %refusal.message, "refused");
            Reply::Error(refusal)
        });
        session.connection.send(&reply, &[]);
        Ok(())
    }

    /// Ends the netmap devices whose last descriptor was closed. That may have happened before the request in hand was
    /// made, which then counts on it, and the loop come to it later. Devices at which nothing happened cost nothing.
    fn end_closed_devices(&mut self) -> Result<(), ServerError> {
        let empty = epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [empty; 64];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let ready = rustix::io::retry_on_intr(|| epoll::wait(&self.devices, &mut events[..], Some(&now)))
                .map_err(system("looking at netmap devices"))?;
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

    /// Makes the connection a netmap device, and leaves the badge in it.
    fn open_netmap_device(&mut self, session: &mut Session) {
        let permissions = &self.parts.ports.permissions;
        let place = Whereabouts::of(&session.connection, permissions.may_administer(session.client.peer));
        let asker = Asker { client: &session.client, permissions, place };
        match self.netmap.open_device(asker) {
            Ok(badge) => {
                session.connection.send(&Reply::NetmapDevice(badge), &[]);
                session.connection.send_raw(&badge.to_bytes());
            }
            Err(failure) => {
                let refusal = ErrorReply::new(ErrorKind::TooManyPorts, failure.message, "close some of them");
                session.connection.send(&Reply::Error(refusal), &[]);
            }
        }
    }

    fn check_open(&self, session: &Session, name: &str) -> Result<NamedDevice, ErrorReply> {
        let Session { client, connection, .. } = session;
        let (spelled, name) = (name.to_owned(), parse_name(name)?);
        let permissions = &self.parts.ports.permissions;
        let administers = permissions.may_administer(client.peer);
        let place = Whereabouts::of(connection, administers);
        let named = NamedDevice { netns: place.find(&name)?, name, spelled };
        let standing = Standing::Free { device: is_device(&named.name.base) };
        permissions.check(client.peer, &named.key(), standing)?;
        // To take an interface from another program is more than to open it.
        if let Some(option) = named.name.options.for_administrators()
            && !administers
        {
            return Err(ErrorReply::new(
                ErrorKind::PermissionDenied,
                format!("user {} is no administrator and may not give the option {option}", client.peer.uid),
                "leave the option out",
            ));
        }
        Ok(named)
    }

    fn handle(
        &mut self,
        session: &mut Session,
        request: Request,
    ) -> Result<Result<Reply, ErrorReply>, ServerError> {
        let Session { client, connection, .. } = session;
        let administers = self.parts.ports.permissions.may_administer(client.peer);
        let denied = |what: &str| {
            Err(ErrorReply::new(
                ErrorKind::PermissionDenied,
                format!("user {} may not {what}", client.peer.uid),
                "ask root or the user that runs the daemon",
            ))
        };
        Ok(match request {
            Request::Hello { protocol, program } => {
                if protocol != PROTOCOL_VERSION {
                    Err(ErrorReply::new(
                        ErrorKind::VersionMismatch,
                        format!("the daemon speaks protocol {PROTOCOL_VERSION}, the program {protocol}"),
                        "restart the daemon after an upgrade: ringroad down",
                    ))
                } else {
                    client.program = printable(&program, MAX_PROGRAM_CHARS);
                    Ok(Reply::Hello {
                        protocol: PROTOCOL_VERSION,
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                        pid: std::process::id(),
                        instance: self.instance,
                        started: self.parts.started,
                    })
                }
            }
            Request::Status => told(self.status())?.map(Reply::Status),
            Request::List => told(self.list(None))?.map(Reply::List),
            Request::ListFrom { place } => told(self.list(Some(&place)))?.map(Reply::List),
            Request::SetAddress { .. } | Request::ForgetAddresses { .. } if !administers => {
                denied("change addresses")
            }
            Request::SetAddress { switch, mac, port } => self.set_address(&switch, mac, port),
            Request::SetMirror(_) | Request::RemoveMirror { .. } if !administers => denied("change mirrors"),
            Request::SetMirror(mirror) => self.set_mirror(&mirror)?,
            Request::RemoveMirror { from, to } => {
                let mirror = Mirror { from, to, direction: MirrorDirection::Both, sample: 1, records: false };
                self.remove_mirror(&mirror)?
            }
            Request::SetOpenFlow(_) | Request::RemoveOpenFlow { .. } if !administers => {
                denied("change flow tables")
            }
            Request::SetOpenFlow(settings) => self.set_openflow(&settings),
            Request::RemoveOpenFlow { switch } => self.remove_openflow(&switch),
            Request::OpenFlow => Ok(Reply::OpenFlow(self.parts.ports.openflow_report())),
            Request::Explain(_) if !administers => denied("see where frames go"),
            Request::Explain(frame) => self.parts.ports.explain(&frame).map(Reply::Explained),
            Request::StartTrace { .. } | Request::Traced | Request::StopTrace if !administers => {
                denied("trace frames")
            }
            Request::StartTrace { switch, from, count } => {
                self.start_trace(client.id, &switch, from.as_deref(), count)?
            }
            Request::Traced => self
                .check_tracer(client.id)
                .map(|()| Reply::Traced(tracing_report::report(self.parts.ports.table.fabric()))),
            Request::StopTrace => {
                self.end_trace(client.id)?;
                Ok(Reply::Done)
            }
            Request::Mirrors => Ok(Reply::Mirrors(mirrors::in_force(&self.parts.ports))),
            Request::ForgetAddresses { switch, port } => {
                match self.parts.ports.table.fabric().forget_learned(&switch, port.as_deref()) {
                    Some(addresses) => Ok(Reply::Forgotten { addresses: addresses as u64 }),
                    None => Err(no_such(&switch, port.as_deref())),
                }
            }
            Request::MacTable { switch, after, after_vlan } => {
                let tick_s = tick_length(&self.parts.config).as_secs_f64();
                let after = after.as_deref().map(|mac| (mac, after_vlan.unwrap_or(0)));
                match status::mac_table(&self.parts.ports, &switch, after, tick_s) {
                    Some(entries) => Ok(Reply::MacTable(entries)),
                    None => Err(ErrorReply::new(
                        ErrorKind::NoSuchPort,
                        format!("there is no switch {}", printable(&switch, MAX_PROGRAM_CHARS)),
                        "a switch exists while it has ports; ringroad list shows them",
                    )),
                }
            }
            Request::Attach { .. } if !administers => denied("attach ports"),
            Request::Attach { driver: Some(_), for_program: true, .. } => Err(ErrorReply::new(
                ErrorKind::BadRequest,
                "a port is served by a device or by a program, not by both",
                "leave one of them out",
            )),
            Request::Attach { name: typed, driver, for_program, host, take, wish } => parse_name(&typed)
                .and_then(|name| {
                    let served_by = match &driver {
                        Some(device) => ServedBy::Device(device),
                        None if for_program => ServedBy::Program,
                        None => ServedBy::Namesake,
                    };
                    let attachment = Attachment { served_by, host, take, wish: &wish };
                    let place = Whereabouts::of(connection, administers);
                    let origin = Origin::Command(CommandPort::new(&typed, attachment));
                    let attached = self.parts.ports.attach(&name, attachment, place, origin)?;
                    for port in &attached {
                        info!(port = %port.name, driver = %port.driver, mode = %port.mode, "attached");
                        port.notes.iter().for_each(|note| info!(port = %port.name, "{note}"));
                    }
                    Ok(Reply::Attached(attached))
                }),
            Request::Detach { .. } if !administers => denied("detach ports"),
            Request::Detach { name, take, number } => {
                let detached = parse_name(&name).and_then(|name| {
                    let (ports, key) = (&mut self.parts.ports, name.base.to_string());
                    match number {
                        Some(number) if !ports.has_number(&key, number) => Err(ErrorReply::new(
                            ErrorKind::NoSuchPort,
                            format!("port {key} is another one than the one to remove, or gone"),
                            "",
                        )),
                        _ => ports.detach(&key, take),
                    }
                });
                match detached {
                    Ok(owner) => {
                        info!(port = %name, "detached");
                        self.netmap.forget_detached(&self.parts.ports);
                        self.drop_clients(owner.into_iter().collect(), client.id)?;
                        Ok(Reply::Done)
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            Request::Save { .. } if !administers => denied("save ports"),
            Request::Save { ports } => self.save(&ports),
            Request::ApplyConfig { .. } if !administers => denied("change the configuration"),
            Request::ApplyConfig { toml } => self.apply(&toml, client.id)?,
            Request::Config | Request::CompareConfig { .. } if !administers => {
                denied("see the configuration")
            }
            Request::Config => Ok(Reply::Config(ConfigReport {
                config: self.parts.config_path.as_ref().map(|path| path.display().to_string()),
                toml: toml::to_string_pretty(&self.parts.config).unwrap_or_default(),
            })),
            Request::CompareConfig { toml } => self.compare(toml.as_deref()),
            Request::Reload if !administers => denied("reload the configuration"),
            Request::Reload => match self.reload(client.id)? {
                Ok(report) => Ok(Reply::Reloaded(report)),
                Err(message) => Err(ErrorReply::new(
                    ErrorKind::BadRequest,
                    message,
                    "what could not be applied was left as it was",
                )),
            },
            Request::Upgrade { .. } if !administers => denied("upgrade the daemon"),
            Request::Upgrade { anyway } => Err(self.upgrade(session, anyway)?),
            Request::Stop if !administers => denied("stop the daemon"),
            Request::Stop => {
                info!(%client, "told to stop");
                self.stopping = true;
                Ok(Reply::Done)
            }
            _ => Err(ErrorReply::new(ErrorKind::BadRequest, "the daemon does not know this request", "")),
        })
    }

    /// Ends the sessions of clients whose port was taken away: they see the end of their connection.
    fn drop_clients(&mut self, clients: Vec<ClientId>, but: ClientId) -> Result<(), ServerError> {
        for id in clients.into_iter().filter(|&id| id != but) {
            if let Some(session) = self.sessions.remove(&id) {
                self.end_session(session)?;
            }
        }
        Ok(())
    }

    /// The ports from a place on.
    fn list(&self, place: Option<&str>) -> Result<ListReport, FabricError> {
        status::list(&self.parts.ports, &self.netmap, place)
    }

    fn status(&self) -> Result<StatusReport, FabricError> {
        let ports = &self.parts.ports;
        let list = self.list(None)?;
        Ok(StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started_at.elapsed().as_secs(),
            socket: self.parts.socket.display().to_string(),
            config: self.parts.config_path.as_ref().map(|path| path.display().to_string()),
            started: self.parts.started,
            workers: status::workers(ports),
            switches: status::switches(ports),
            ports: list.ports,
            next: list.next,
            shared_memory_bytes: ports.shared_memory_bytes(),
            shared_memory_by_user: ports.shared_memory_by_user(),
            huge_page_bytes: ports.huge_page_bytes(),
            waiting: ports.waiting_ports(),
            rejected_requests: self.rejected_requests,
        })
    }

    fn handle_signals(&mut self) {
        let mut bytes = [0; 64];
        let count = rustix::io::read(&self.parts.signals, &mut bytes).unwrap_or(0);
        for byte in bytes.iter().take(count) {
            if *byte == b'h' {
                match self.reload(ClientId::MAX) {
                    Ok(Ok(_)) => {}
                    Ok(Err(message)) => error!(%message, "reload"),
                    Err(failure) => {
                        error!(%failure, "reload");
                        self.stopping = true;
                    }
                }
            } else {
                info!("told to stop by a signal");
                self.stopping = true;
            }
        }
    }

    /// Puts an address onto a port, or takes it back.
    fn set_address(&mut self, switch: &str, mac: String, port: Option<String>) -> Result<Reply, ErrorReply> {
        let name = format!("{switch}:{}", port.as_deref().unwrap_or("any"));
        let bad = |what: String| ErrorReply::new(ErrorKind::BadName, what, "");
        let (switch, mac, name) = StaticAddress { mac, port: name }.parse().map_err(bad)?;
        let fabric = self.parts.ports.table.fabric_mut();
        if !fabric.set_static(&switch, mac, port.map(|_| name.as_str())) {
            return Err(bad(format!("{mac} is no static address of {switch}")));
        }
        info!(%switch, %mac, port = %name, "static address changed");
        Ok(Reply::Done)
    }

    /// Has copies of frames go to a port.
    fn set_mirror(&mut self, mirror: &Mirror) -> Result<Result<Reply, ErrorReply>, ServerError> {
        let (switch, named) = match mirrors::parse(mirror) {
            Ok(parsed) => parsed,
            Err(what) => return Ok(Err(ErrorReply::new(ErrorKind::BadWish, what, ""))),
        };
        let set = told(self.parts.ports.table.fabric_mut().set_mirror(&switch, named))?;
        self.ports_at_look = usize::MAX;
        Ok(set.map(|()| {
            info!(from = %mirror.from, to = %mirror.to, sample = mirror.sample, "mirror set");
            Reply::Done
        }))
    }

    fn remove_mirror(&mut self, mirror: &Mirror) -> Result<Result<Reply, ErrorReply>, ServerError> {
        let (switch, named) = match mirrors::parse(mirror) {
            Ok(parsed) => parsed,
            Err(what) => return Ok(Err(ErrorReply::new(ErrorKind::BadWish, what, ""))),
        };
        let fabric = self.parts.ports.table.fabric_mut();
        let removed = told(fabric.remove_mirror(&switch, named.from.as_deref(), &named.to))?;
        self.ports_at_look = usize::MAX;
        Ok(removed.and_then(|removed| match removed {
            true => {
                info!(from = %mirror.from, to = %mirror.to, "mirror removed");
                Ok(Reply::Done)
            }
            false => Err(ErrorReply::new(
                ErrorKind::NoSuchPort,
                format!("there is not {}", mirrors::words(mirror)),
                "ringroad mirror lists the mirrors",
            )),
        }))
    }

    fn set_openflow(&mut self, settings: &OpenFlow) -> Result<Reply, ErrorReply> {
        self.parts.ports.set_openflow(settings)?;
        self.ports_at_look = usize::MAX;
        self.watch_waiting_ports();
        info!(switch = %settings.switch, controllers = ?settings.controllers, "flow tables decide");
        Ok(Reply::Done)
    }

    fn remove_openflow(&mut self, switch: &str) -> Result<Reply, ErrorReply> {
        self.parts.ports.remove_openflow(switch)?;
        self.ports_at_look = usize::MAX;
        info!(%switch, "learned addresses decide");
        Ok(Reply::Done)
    }

    fn start_trace(
        &mut self,
        client: ClientId,
        switch: &str,
        from: Option<&str>,
        count: u32,
    ) -> Result<Result<Reply, ErrorReply>, ServerError> {
        if self.tracer.is_some_and(|tracer| tracer != client) {
            return Ok(Err(another_traces()));
        }
        let started = match self.parts.ports.table.fabric_mut().start_trace(switch, from, count) {
            Err(FabricError::NoSuchPort(_)) => return Ok(Err(no_such(switch, from))),
            started => told(started)?,
        };
        self.ports_at_look = usize::MAX;
        Ok(started.map(|()| {
            self.tracer = Some(client);
            Reply::Done
        }))
    }

    /// Refuses a client that has no trace.
    fn check_tracer(&self, client: ClientId) -> Result<(), ErrorReply> {
        match self.tracer {
            Some(tracer) if tracer == client => Ok(()),
            Some(_) => Err(another_traces()),
            None => Err(ErrorReply::new(ErrorKind::BadRequest, "no client has begun a trace", "")),
        }
    }

    /// Ends the client's trace, if it has one.
    fn end_trace(&mut self, client: ClientId) -> Result<(), ServerError> {
        if self.tracer.take_if(|tracer| *tracer == client).is_some() {
            survive(self.parts.ports.table.fabric_mut().stop_trace())?;
            self.ports_at_look = usize::MAX;
        }
        Ok(())
    }

    /// Writes ports into the configuration file.
    fn save(&mut self, names: &[String]) -> Result<Reply, ErrorReply> {
        let ServerParts { ports, config, config_path: Some(path), .. } = &mut self.parts else {
            return Err(without_file());
        };
        let saved = saving::save(ports, config, path, names)?;
        info!(added = ?saved.added, removed = ?saved.removed, "ports saved");
        Ok(Reply::Saved(saved))
    }

    /// Compares what is in force with a configuration, or with the daemon's file.
    fn compare(&self, text: Option<&str>) -> Result<Reply, ErrorReply> {
        let other = match (text, &self.parts.config_path) {
            (Some(text), _) => Config::parse(text, "given"),
            (None, Some(path)) => Config::read(path),
            (None, None) => return Err(without_file()),
        };
        let other = other.map_err(|error| ErrorReply::new(ErrorKind::BadRequest, error.to_string(), ""))?;
        let difference = saving::compare(&self.parts.ports, &self.parts.config, &other);
        Ok(Reply::ConfigDifference(difference))
    }

    /// Puts a configuration into the daemon's file and reloads it, or leaves both as they were.
    fn apply(&mut self, text: &str, asking: ClientId) -> Result<Result<Reply, ErrorReply>, ServerError> {
        let difference = match self.compare(Some(text)) {
            Ok(difference) => difference,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(path) = self.parts.config_path.clone() else { return Ok(Err(without_file())) };
        let bad =
            |what: &str| ErrorReply::new(ErrorKind::BadRequest, format!("{}: {what}", path.display()), "");
        let replaced =
            std::fs::read_to_string(&path).and_then(|old| saving::replace(&path, text).map(|()| old));
        let old = match replaced {
            Ok(old) => old,
            Err(error) => return Ok(Err(bad(&error.to_string()))),
        };
        let Err(message) = self.reload(asking)? else { return Ok(Ok(difference)) };
        if let Err(error) = saving::replace(&path, &old) {
            return Ok(Err(bad(&format!("{message}; and the file before it cannot be restored: {error}"))));
        }
        // As it was before, so that it is in force again.
        let restored = self.reload(asking)?.err().map(|again| format!("; after that: {again}"));
        Ok(Err(bad(&format!("{message}; nothing was changed{}", restored.unwrap_or_default()))))
    }

    /// Opens the log file again, reads the configuration again and applies it, or says why not and changes nothing of
    /// what is wrong.
    fn reload(&mut self, asking: ClientId) -> Result<Result<ReloadReport, String>, ServerError> {
        let path = self.parts.config_path.as_deref();
        let read = path.map_or_else(|| Ok(self.parts.config.clone()), Config::read);
        // A program that rotates log files counts on this, whatever the configuration looks like.
        let log = &read.as_ref().unwrap_or(&self.parts.config).log;
        let mut problems: Vec<_> = self.parts.log.reopen(log).err().into_iter().collect();
        let new = match read {
            Ok(new) => new,
            Err(error) => {
                problems.insert(0, error.to_string());
                return Ok(Err(problems.join("; ")));
            }
        };
        let at_next_start = reload::needs_restart(&self.parts.config, &new);
        for key in &at_next_start {
            warn!(key, "takes effect at the next start");
        }
        if let Err(problem) = self.parts.log.set_level(&new.log.level) {
            problems.push(problem);
        }
        if let Ok(mode) = new.socket_mode()
            && let Err(error) = set_access(&self.parts.socket, mode, new.socket.gid)
        {
            problems.push(error.to_string());
        }
        self.parts.ports.permissions = rules(&new);
        problems.extend(reload::apply_policies(&mut self.parts.ports, &new.port_policy));
        // A port that has settings now must not have frames pass within the kernel.
        shortcuts::follow(&self.parts.ports.table);
        reload::apply_addresses(&mut self.parts.ports, &self.parts.config.address, &new.address);
        reload::apply_mirrors(&mut self.parts.ports, &self.parts.config.mirror, &new.mirror)?;
        problems.extend(reload::apply_openflow(
            &mut self.parts.ports,
            &self.parts.config.openflow,
            &new.openflow,
        ));
        self.ports_at_look = usize::MAX;
        let applied = reload::apply_ports(&mut self.parts.ports, &new.port);
        self.watch_waiting_ports();
        self.netmap.forget_detached(&self.parts.ports);
        self.drop_clients(applied.lost, asking)?;
        problems.extend(applied.problems.into_iter().chain(applied.waiting));
        // What needs a restart stays as it was started.
        let started = &self.parts.config;
        self.parts.config = Config {
            workers: started.workers.clone(),
            switch: started.switch.clone(),
            limits: started.limits.clone(),
            log: Log { format: started.log.format, ..new.log },
            ..new
        };
        info!(ports = self.parts.ports.table.on_switches().len(), "configuration reloaded");
        if problems.is_empty() {
            let config = self.parts.config_path.as_ref().map(|path| path.display().to_string());
            let at_next_start = at_next_start.into_iter().map(str::to_owned).collect();
            return Ok(Ok(ReloadReport { config, at_next_start }));
        }
        if !at_next_start.is_empty() {
            problems.push(format!("at the next start: {}", at_next_start.join(", ")));
        }
        Ok(Err(problems.join("; ")))
    }
}

/// A number that no daemon before this one had: the time of its start, ns.
fn instance() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}

/// The rules of a configuration.
fn rules(config: &Config) -> Arc<Permissions> {
    Arc::new(Permissions::new(rustix::process::geteuid().as_raw(), &config.allow))
}

fn another_traces() -> ErrorReply {
    ErrorReply::new(
        ErrorKind::Busy,
        "another client traces frames",
        "wait for its end: there is one trace at a time",
    )
}

fn no_such(switch: &str, port: Option<&str>) -> ErrorReply {
    let port = port.map(|port| format!(", or it has no port {port}")).unwrap_or_default();
    ErrorReply::new(
        ErrorKind::NoSuchPort,
        format!("there is no switch {switch}{port}"),
        "ringroad list shows the ports that exist",
    )
}

fn without_file() -> ErrorReply {
    ErrorReply::new(
        ErrorKind::BadRequest,
        "the daemon was started without a configuration file",
        "start it with one: ringroad up --config FILE",
    )
}

/// Length of an ageing tick.
fn tick_length(config: &Config) -> Duration {
    Duration::from_secs(u64::from(config.switch.ageing_s)) / u32::from(AGEING_TICKS)
}

fn parse_name(name: &str) -> Result<PortName, ErrorReply> {
    name.parse().map_err(|error: ringroad_drivers::catalogue::port_name::PortNameError| {
        ErrorReply::new(ErrorKind::BadName, error.to_string(), "")
    })
}

#[cfg(test)]
mod tests;
