//! The control socket's loop: one thread, epoll, no operation that blocks on a client.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringroad_control::listening_socket::ListeningSocket;
use ringroad_control::message::ErrorReply;
use ringroad_control::report::StartedBy;
use ringroad_datapath::fabric::FabricError;
use ringroad_ring::eventfd;
use ringroad_switch::loop_guard::BLOCKED_S;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use tracing::{debug, error, info, warn};

use self::sessions::{REQUEST_PATIENCE, Session};
use self::upgrade::BegunUpgrade;
use crate::admission::Admission;
use crate::config::Config;
use crate::logging::RunningLog;
use crate::netmap::Netmap;
use crate::permissions::Permissions;
use crate::port_entries::ClientId;
use crate::ports::Ports;
use crate::real_time::WorkerPriority;
use crate::refusal::fabric_refusal;
use crate::request_scheduler::RequestScheduler;
use crate::{reload, shortcuts};

mod configuration;
mod requests;
mod sessions;
mod switches;
mod upgrade;

pub use upgrade::NewProcess;

/// Number of ageing ticks in the lifetime of an address.
pub const AGEING_TICKS: u8 = 60;
/// Time for which a daemon that was started on demand stays without ports and connections.
const IDLE_BEFORE_EXIT: Duration = Duration::from_secs(10);
const LISTENER: u64 = u64::MAX;
const SIGNALS: u64 = u64::MAX - 1;
const PEERS: u64 = u64::MAX - 2;
const DEVICES: u64 = u64::MAX - 3;
const LINKS: u64 = u64::MAX - 4;
const NEW_PROCESS: u64 = u64::MAX - 5;

/// Time between two attempts to make ports whose devices are not there, or not free.
const RETRY: Duration = Duration::from_secs(1);
/// Minimum time between two checks of changed links: a user at the other end of a link can change it at any rate.
const LINK_PAUSE: Duration = Duration::from_millis(2);

/// Reason why the daemon ended without a request.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The kernel refused something essential.
    #[error("{what}: {source}")]
    System { what: &'static str, source: Errno },
    /// A worker is gone.
    #[error("the datapath failed: {0}")]
    Fabric(#[from] FabricError),
}

/// Signals that the daemon has received.
pub type Signals = SignalDelivery<UnixStream, SignalOnly>;

/// The parts with which a server starts.
#[derive(Debug)]
pub struct ServerParts {
    /// Path of the control socket.
    pub socket: PathBuf,
    /// The configuration.
    pub config: Config,
    /// File of the configuration.
    pub config_path: Option<PathBuf>,
    /// Ports, those of the configuration included.
    pub ports: Ports,
    /// SIGHUP, SIGTERM and SIGINT.
    pub signals: Signals,
    /// The log.
    pub log: RunningLog,
    /// Arguments of a process that will replace this one.
    pub arguments: Vec<OsString>,
}

/// The running daemon.
pub struct Server {
    listener: ListeningSocket,
    /// Party that started the daemon.
    started: StartedBy,
    parts: ServerParts,
    /// Epoll set of the loop. Sessions are edge-triggered: a turn continues until their socket has no more input, so no
    /// session misses an edge. A session that waits for its turn or for its client's reading costs nothing.
    epoll: OwnedFd,
    /// Connections that are netmap devices, level-triggered: any event at one of them ends the device.
    devices: OwnedFd,
    sessions: BTreeMap<ClientId, Session>,
    requests: RequestScheduler,
    admission: Admission,
    /// Deadlines of sessions that must complete a request.
    due: BTreeSet<(Instant, ClientId)>,
    spares: Vec<OwnedFd>,
    next_tick: Instant,
    /// The time at which a daemon without users ends.
    idle_at: Option<Instant>,
    /// Time at which accepting resumes, if it was stopped.
    accept_at: Option<Instant>,
    /// Time of the next attempt to make ports whose devices were not there, or not free.
    retry_at: Option<Instant>,
    /// Time of the next check of changed links; `links_seen` is the time of the last one.
    links_at: Option<Instant>,
    links_seen: Option<Instant>,
    /// Time at which the kernel's tables for veth pairs are next updated with learned addresses. `ports_at_look` is the
    /// number of ports at the last update, `usize::MAX` if something else has changed.
    shortcuts_at: Option<Instant>,
    ports_at_check: usize,
    netmap: Netmap,
    worker_priority: WorkerPriority,
    /// Client of the running trace.
    tracer: Option<ClientId>,
    /// The upgrade whose new process is starting.
    upgrade: Option<BegunUpgrade>,
    next_client: ClientId,
    started_at: Instant,
    /// Number that distinguishes this daemon from earlier ones.
    instance: u64,
    rejected_requests: u64,
    stopping: bool,
}

/// Reason why a request has no other reply.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    /// The client gets this reply.
    #[error(transparent)]
    Refused(#[from] ErrorReply),
    /// The daemon cannot continue.
    #[error(transparent)]
    Failed(#[from] ServerError),
}

impl From<FabricError> for RequestError {
    fn from(error: FabricError) -> Self {
        match error {
            FabricError::Worker(_) => Self::Failed(error.into()),
            error => Self::Refused(fabric_refusal(error)),
        }
    }
}

fn system(what: &'static str) -> impl FnOnce(Errno) -> ServerError {
    move |source| ServerError::System { what, source }
}

/// Passes on the errors that end the daemon: a worker that is gone. Any other failure of one client's ports concerns
/// only that client, and is logged.
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

impl Server {
    /// Creates a server that is ready to run.
    ///
    /// # Errors
    /// [`ServerError::System`].
    pub fn new(
        listener: ListeningSocket,
        started: StartedBy,
        mut parts: ServerParts,
    ) -> Result<Self, ServerError> {
        parts.ports.permissions = rules(&parts.config);
        let make_set = || epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("making an epoll set"));
        let (epoll, devices) = (make_set()?, make_set()?);
        let watched = [
            (listener.as_fd(), LISTENER),
            (parts.signals.get_read().as_fd(), SIGNALS),
            (parts.ports.peer_changes.as_fd(), PEERS),
            (devices.as_fd(), DEVICES),
            (parts.ports.links.bell.as_fd(), LINKS),
        ];
        for (descriptor, name) in watched {
            epoll::add(&epoll, descriptor, EventData::new_u64(name), EventFlags::IN)
                .map_err(system("watching the control socket"))?;
        }
        let limits = &parts.config.limits;
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let descriptors = descriptors.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        let admission = Admission::new(limits.connections, limits.connections_per_user, descriptors);
        if admission.connections < limits.connections {
            let (wanted, connections) = (limits.connections, admission.connections);
            warn!(
                wanted,
                connections, descriptors, "limits.connections is more than the limit of descriptors allows"
            );
        }
        let worker_priority = WorkerPriority::new(parts.config.workers.real_time);
        let now = Instant::now();
        let mut server = Self {
            listener,
            started,
            next_tick: now + tick_length(&parts.config),
            parts,
            epoll,
            devices,
            sessions: BTreeMap::new(),
            requests: RequestScheduler::default(),
            admission,
            due: BTreeSet::new(),
            spares: Vec::new(),
            idle_at: None,
            accept_at: None,
            retry_at: None,
            // Links may have changed before the server followed them.
            links_at: Some(now),
            links_seen: None,
            shortcuts_at: None,
            ports_at_check: 0,
            netmap: Netmap::default(),
            worker_priority,
            tracer: None,
            upgrade: None,
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
    /// [`ServerError`] if it cannot continue.
    pub fn run(&mut self) -> Result<(), ServerError> {
        info!(
            socket = %self.parts.socket.display(),
            workers = self.parts.config.workers.count,
            ports = self.parts.ports.table.on_switches().len(),
            "ringroadd {} is ready", env!("CARGO_PKG_VERSION")
        );
        while !self.stopping {
            let wait = match self.requests.is_empty() {
                true => self.next_deadline().saturating_duration_since(Instant::now()),
                false => Duration::ZERO,
            };
            self.take_events(wait)?;
            self.keep_time(Instant::now())?;
            self.serve_next()?;
            self.parts.ports.follow_openflow_ports();
        }
        Ok(())
    }

    /// Waits for events for at most `wait`, and handles them; clients with requests are queued.
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
                PEERS => {
                    let ports = &mut self.parts.ports;
                    survive(ports.follow_peers().and_then(|()| ports.watch_devices()))?;
                }
                LINKS => {
                    eventfd::drain(&*self.parts.ports.links.bell);
                    let now = Instant::now();
                    self.links_at = Some(self.links_seen.map_or(now, |seen| now.max(seen + LINK_PAUSE)));
                }
                DEVICES => self.end_closed_devices()?,
                NEW_PROCESS => self.continue_upgrade()?,
                client => self.line_up(client),
            }
        }
        Ok(())
    }

    fn line_up(&mut self, id: ClientId) {
        if let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.waits) {
            session.waits = true;
            self.requests.add(session.client.peer.uid, id);
        }
    }

    fn next_deadline(&self) -> Instant {
        let due = self.due.first().map(|&(at, _)| at);
        let upgrade = self.upgrade.as_ref().map(|upgrade| upgrade.until);
        let priority = self.worker_priority.due;
        [
            due,
            upgrade,
            priority,
            self.idle_at,
            self.accept_at,
            self.retry_at,
            self.links_at,
            self.shortcuts_at,
        ]
        .into_iter()
        .flatten()
        .fold(self.next_tick, Instant::min)
    }

    /// Logs loops between switches. The log's limit applies to these lines, too.
    fn tell_of_loops(&self) {
        let fabric = self.parts.ports.table.fabric();
        for (switch, port) in fabric.take_loops() {
            let port = fabric.port_name(switch, port).unwrap_or("a port that left");
            warn!(
                switch,
                "a frame that the switch sent came back at {switch}:{port}: there is a loop behind this port. Flooded \
                 frames neither enter nor leave by it for {BLOCKED_S} s, and again while the loop exists"
            );
        }
    }

    /// Does the tasks that are due by `now`.
    fn keep_time(&mut self, now: Instant) -> Result<(), ServerError> {
        if self.next_tick <= now {
            self.next_tick = now + tick_length(&self.parts.config);
            self.parts.ports.table.fabric().tick();
            self.tell_of_loops();
            // Polling finds faults that no event announces: a capture file that cannot be written, a violation, a
            // card's reset.
            self.parts.ports.suspect_all_cards();
            survive(self.parts.ports.watch_devices())?;
            self.parts.log.limit.report();
            self.refill_spares();
        }
        if self.upgrade.as_ref().is_some_and(|upgrade| upgrade.until <= now) {
            self.continue_upgrade()?;
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
                self.parts.ports.attach_waiting();
            }
            self.parts.ports.retry_openflow();
            if self.parts.ports.links.is_pending() {
                self.links_at = Some(now);
            }
            self.watch_waiting_ports();
        }
        if self.links_at.is_some_and(|at| at <= now) {
            self.links_at = None;
            survive(self.parts.ports.follow_links())?;
            // Links have changed, and with them the ends of the kernel's path between veth pairs.
            self.ports_at_check = usize::MAX;
            self.links_seen = Some(Instant::now());
            // A link that changes all the time must not postpone the next attempt.
            if self.retry_at.is_none() {
                self.watch_waiting_ports();
            }
        }
        if self.worker_priority.due.is_some_and(|at| at <= now) {
            let clients = self.sessions.values().map(|session| session.client.peer);
            let permissions = &self.parts.ports.permissions;
            let programs = clients.filter(|&peer| permissions.may_administer(peer));
            self.worker_priority.follow(programs, self.parts.ports.table.fabric());
        }
        let ports = self.parts.ports.table.on_switches().len();
        if self.ports_at_check != ports || self.shortcuts_at.is_some_and(|at| at <= now) {
            self.ports_at_check = ports;
            let needed = shortcuts::follow(&self.parts.ports.table);
            self.shortcuts_at = needed.then(|| now + shortcuts::PERIOD);
        }
        while let Some(&(at, id)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, id));
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if session.waits {
                // A client that waits for its turn may have completed its request already.
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

    /// Ends the daemon in order: no new connections, programs see the end of theirs, the socket is removed.
    pub fn shut_down(self) {
        self.parts.log.limit.report();
        info!("ended");
    }

    fn is_idle(&self) -> bool {
        self.started == StartedBy::OnDemand
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
        !self.parts.ports.waiting.is_empty() || !self.parts.ports.restore.waiting.is_empty()
    }

    /// Schedules the next attempt to make missing ports.
    fn watch_waiting_ports(&mut self) {
        let Ports { openflow, links, .. } = &self.parts.ports;
        let waits = self.ports_wait() || openflow.is_waiting() || links.is_pending();
        self.retry_at = waits.then(|| Instant::now() + RETRY);
    }

    fn handle_signals(&mut self) {
        for signal in self.parts.signals.pending() {
            if signal == SIGHUP {
                match self.reload(ClientId::MAX) {
                    Ok(Ok(_)) => {}
                    Ok(Err(message)) => error!(%message, "reload"),
                    Err(failure) => {
                        error!(%failure, "reload");
                        self.stopping = true;
                    }
                }
            } else {
                info!("stopping: signal received");
                self.stopping = true;
            }
        }
    }
}

/// Creates a number that no earlier daemon had: the time of the start, ns.
fn instance() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}

/// The rules of a configuration.
fn rules(config: &Config) -> Arc<Permissions> {
    Arc::new(Permissions::new(rustix::process::geteuid().as_raw(), &config.allow))
}

/// Length of an ageing tick.
fn tick_length(config: &Config) -> Duration {
    Duration::from_secs(u64::from(config.switch.ageing_s)) / u32::from(AGEING_TICKS)
}

#[cfg(test)]
mod tests;
