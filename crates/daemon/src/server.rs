//! The control socket's loop: one thread, epoll, nothing that blocks on a client.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringroad_control::message::{ErrorKind, ErrorReply, Reply, Request};
use ringroad_control::netmap::NetmapReply;
use ringroad_control::report::{StartedBy, StatusReport};
use ringroad_control::{PROTOCOL_VERSION, ServerConnection};
use ringroad_datapath::fabric::FabricError;
use ringroad_drivers::registry::is_device;
use ringroad_port::port_name::PortName;
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tracing::{debug, error, info, warn};

use crate::config::{Config, ConfigError};
use crate::devices::device_key;
use crate::listen::set_access;
use crate::logging::LevelHandle;
use crate::netmap::{Answer, Asker, Netmap};
use crate::permissions::{Permissions, Standing};
use crate::port_entries::{Client, ClientId, Origin};
use crate::ports::Ports;
use crate::{logging, reload, status};

/// Ageing ticks in the lifetime of an address.
pub const AGEING_TICKS: u8 = 60;
/// How long a daemon that was started on demand stays without ports and connections.
const IDLE_BEFORE_EXIT: Duration = Duration::from_secs(10);

const LISTENER: u64 = u64::MAX;
const SIGNALS: u64 = u64::MAX - 1;
const TIMER: u64 = u64::MAX - 2;
const IDLE_TIMER: u64 = u64::MAX - 3;
const PEERS: u64 = u64::MAX - 4;

/// Why the daemon ended without being asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The kernel refused something it cannot do without.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: rustix::io::Errno,
    },
    /// A worker is gone.
    #[error("the datapath failed: {0}")]
    Fabric(#[from] FabricError),
}

/// What a server starts with.
#[derive(Debug)]
pub struct ServerParts {
    /// The socket.
    pub listener: UnixListener,
    /// Its path.
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
    /// Changes the log level.
    pub level: LevelHandle,
}

struct Session {
    connection: ServerConnection,
    client: Client,
    /// What epoll was asked for last.
    writable: bool,
}

/// The running daemon.
pub struct Server {
    parts: ServerParts,
    epoll: OwnedFd,
    timer: OwnedFd,
    idle_timer: OwnedFd,
    sessions: BTreeMap<ClientId, Session>,
    netmap: Netmap,
    next_client: ClientId,
    started_at: Instant,
    rejected_requests: u64,
    stopping: bool,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}

fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> ServerError {
    move |source| ServerError::System { what, source }
}

fn seconds(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

impl Server {
    /// A server ready to run.
    ///
    /// # Errors
    /// [`ServerError::System`].
    pub fn new(mut parts: ServerParts) -> Result<Self, ServerError> {
        parts.ports.permissions = rules(&parts.config);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("making an epoll set"))?;
        let make_timer = || {
            rustix::time::timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )
            .map_err(system("making a timer"))
        };
        let (timer, idle_timer) = (make_timer()?, make_timer()?);
        let tick = seconds(tick_length(&parts.config));
        let spec = Itimerspec { it_interval: tick, it_value: tick };
        rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)
            .map_err(system("starting the ageing timer"))?;
        let watched = [
            (parts.listener.as_fd(), LISTENER),
            (parts.signals.as_fd(), SIGNALS),
            (timer.as_fd(), TIMER),
            (idle_timer.as_fd(), IDLE_TIMER),
            (parts.ports.peer_changes.as_fd(), PEERS),
        ];
        for (descriptor, name) in watched {
            epoll::add(&epoll, descriptor, epoll::EventData::new_u64(name), epoll::EventFlags::IN)
                .map_err(system("watching the control socket"))?;
        }
        let mut server = Self {
            parts,
            epoll,
            timer,
            idle_timer,
            sessions: BTreeMap::new(),
            netmap: Netmap::default(),
            next_client: 0,
            started_at: Instant::now(),
            rejected_requests: 0,
            stopping: false,
        };
        server.watch_idleness()?;
        Ok(server)
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// [`ServerError`] where it cannot go on.
    pub fn run(&mut self) -> Result<(), ServerError> {
        info!(
            socket = %self.parts.socket.display(),
            workers = self.parts.config.workers.count,
            ports = self.parts.ports.on_switches.len(),
            "ringroadd {} is ready", env!("CARGO_PKG_VERSION")
        );
        let empty = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [empty; 64];
        while !self.stopping {
            let ready = match epoll::wait(&self.epoll, &mut events, None) {
                Err(rustix::io::Errno::INTR) => continue,
                result => result.map_err(system("waiting for events"))?,
            };
            for event in events.iter().take(ready) {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    SIGNALS => self.handle_signals(),
                    TIMER => {
                        drain(&self.timer);
                        self.parts.ports.fabric.tick();
                        self.parts.ports.watch_devices()?;
                    }
                    IDLE_TIMER => {
                        drain(&self.idle_timer);
                        if self.is_idle() {
                            info!("no ports and no connections: ending");
                            self.stopping = true;
                        }
                    }
                    PEERS => self.parts.ports.follow_peers()?,
                    client => self.serve(client)?,
                }
            }
        }
        Ok(())
    }

    /// Ends everything in order: no new connections, programs see the end of theirs, the socket goes.
    pub fn shut_down(self) {
        // The path is removed only by the daemon that has it; a successor would have waited for the lock.
        let _ = std::fs::remove_file(&self.parts.socket);
        info!("ended");
    }

    fn is_idle(&self) -> bool {
        self.parts.started == StartedBy::OnDemand
            && self.sessions.is_empty()
            && self.parts.ports.is_empty()
            && self.netmap.is_empty()
    }

    /// Starts or stops the countdown of a daemon that nobody needs.
    fn watch_idleness(&mut self) -> Result<(), ServerError> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = if self.is_idle() { seconds(IDLE_BEFORE_EXIT) } else { zero };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        rustix::time::timerfd_settime(&self.idle_timer, TimerfdTimerFlags::empty(), &spec)
            .map_err(system("setting the idle timer"))?;
        Ok(())
    }

    fn accept(&mut self) {
        loop {
            let socket = match self.parts.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    warn!(%error, "accepting a connection");
                    return;
                }
            };
            if self.sessions.len() >= self.parts.config.limits.connections {
                warn!(limit = self.parts.config.limits.connections, "too many connections: one refused");
                self.rejected_requests += 1;
                continue;
            }
            if let Err(error) = self.add_session(socket) {
                warn!(%error, "taking a connection");
            }
        }
    }

    fn add_session(&mut self, socket: UnixStream) -> std::io::Result<()> {
        let watched = socket.try_clone()?;
        let connection = ServerConnection::new(socket)?;
        let id = self.next_client;
        self.next_client += 1;
        let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&self.epoll, &watched, epoll::EventData::new_u64(id), events)?;
        let client = Client { id, peer: connection.peer(), program: "unknown".into() };
        debug!(client = id, %client, "connected");
        self.sessions.insert(id, Session { connection, client, writable: false });
        self.watch_idleness().map_err(std::io::Error::other)
    }

    /// Handles what a client has sent, and ends its session where it is over.
    fn serve(&mut self, id: ClientId) -> Result<(), ServerError> {
        // Taken out for the time, so that requests can change everything else.
        let Some(mut session) = self.sessions.remove(&id) else { return Ok(()) };
        session.connection.flush();
        while let Some(request) = session.connection.next_request() {
            if self.netmap.is_device(id) {
                // Nothing is to come by a device; whoever writes to it does not know what it is.
                return self.end_session(session);
            }
            self.answer(&mut session, request)?;
            session.connection.flush();
        }
        if session.connection.is_closed() {
            return self.end_session(session);
        }
        let wants_write = session.connection.wants_write();
        if wants_write != session.writable {
            session.writable = wants_write;
            let mut events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            if wants_write {
                events |= epoll::EventFlags::OUT;
            }
            let data = epoll::EventData::new_u64(id);
            epoll::modify(&self.epoll, &session.connection, data, events)
                .map_err(system("watching a connection"))?;
        }
        self.sessions.insert(id, session);
        Ok(())
    }

    fn end_session(&mut self, session: Session) -> Result<(), ServerError> {
        debug!(client = session.client.id, "gone");
        if let Err(failure) = self.netmap.close_device(session.client.id, &mut self.parts.ports) {
            error!(client = session.client.id, "closing a netmap device: {}", failure.message);
        }
        self.parts.ports.close_client(session.client.id)?;
        drop(session);
        self.watch_idleness()
    }

    fn answer(
        &mut self,
        session: &mut Session,
        request: Result<Request, ErrorReply>,
    ) -> Result<(), ServerError> {
        let result = match request {
            Ok(Request::Open { name, wish }) => {
                let permitted = self.check_open(&session.client, &name);
                let opened = permitted.and_then(|name| self.parts.ports.open(&name, &wish, &session.client));
                match opened {
                    Ok(opened) => {
                        info!(port = %opened.reply.name, client = %session.client, "opened");
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
                let asker = Asker { client: &session.client, permissions: &permissions };
                let Answer { reply, descriptors } =
                    self.netmap.answer(&mut self.parts.ports, asker, device, request);
                if let NetmapReply::Failed { errno, message } = &reply {
                    debug!(client = %session.client, errno, reason = %message, "refused");
                }
                let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                session.connection.send(&Reply::Netmap(reply), &borrowed);
                return Ok(());
            }
            Ok(request) => self.handle(&mut session.client, request)?,
            Err(refusal) => Err(refusal),
        };
        let reply = result.unwrap_or_else(|refusal| {
            self.rejected_requests += 1;
            // The client is told; a log of what anybody may ask in vain could be filled at will.
            debug!(client = %session.client, reason = %refusal.message, "refused");
            Reply::Error(refusal)
        });
        session.connection.send(&reply, &[]);
        Ok(())
    }

    /// Ends the netmap devices whose last descriptor was closed. That may have happened before the request in hand was made, which then counts on
    /// it, and the loop come to it later.
    fn end_closed_devices(&mut self) -> Result<(), ServerError> {
        let devices: Vec<ClientId> =
            self.sessions.keys().copied().filter(|&client| self.netmap.is_device(client)).collect();
        let closed = {
            let sessions = devices.iter().filter_map(|client| self.sessions.get(client));
            let mut set: Vec<PollFd<'_>> =
                sessions.map(|session| PollFd::new(&session.connection, PollFlags::RDHUP)).collect();
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut set, Some(&now)).map_err(system("looking at netmap devices"))?;
            let closed = set.iter().map(|entry| !entry.revents().is_empty());
            devices
                .iter()
                .zip(closed)
                .filter(|(_, closed)| *closed)
                .map(|(client, _)| *client)
                .collect::<Vec<_>>()
        };
        for client in closed {
            if let Some(session) = self.sessions.remove(&client) {
                self.end_session(session)?;
            }
        }
        Ok(())
    }

    /// Makes the connection a netmap device, and leaves the badge in it.
    fn open_netmap_device(&mut self, session: &mut Session) {
        let asker = Asker { client: &session.client, permissions: &self.parts.ports.permissions };
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

    fn check_open(&self, client: &Client, name: &str) -> Result<PortName, ErrorReply> {
        let name = parse_name(name)?;
        let permissions = &self.parts.ports.permissions;
        let standing = Standing::Free { device: is_device(&name.base) };
        permissions.check(client.peer, &device_key(&name), standing)?;
        // To take an interface from another program is more than to open it.
        if name.options.device.force == Some(true) && !permissions.may_administer(client.peer) {
            return Err(ErrorReply::new(
                ErrorKind::PermissionDenied,
                format!("user {} may not take an interface by force", client.peer.uid),
                "leave the option force out",
            ));
        }
        Ok(name)
    }

    fn handle(
        &mut self,
        client: &mut Client,
        request: Request,
    ) -> Result<Result<Reply, ErrorReply>, ServerError> {
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
                    client.program = program.chars().filter(|c| !c.is_control()).take(64).collect();
                    Ok(Reply::Hello {
                        protocol: PROTOCOL_VERSION,
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                        pid: std::process::id(),
                    })
                }
            }
            Request::Status => Ok(Reply::Status(self.status()?)),
            Request::List => Ok(Reply::List(status::list(&self.parts.ports, &self.netmap)?)),
            Request::MacTable { switch } => {
                let tick_s = tick_length(&self.parts.config).as_secs_f64();
                match status::mac_table(&self.parts.ports, &switch, tick_s) {
                    Some(entries) => Ok(Reply::MacTable(entries)),
                    None => Err(ErrorReply::new(
                        ErrorKind::NoSuchPort,
                        format!("there is no switch {switch}"),
                        "a switch exists while it has ports; ringroad list shows them",
                    )),
                }
            }
            Request::Attach { .. } if !administers => denied("attach ports"),
            Request::Attach { name, driver, host, wish } => parse_name(&name).and_then(|name| {
                let ports = &mut self.parts.ports;
                let attached = ports.attach(&name, driver.as_deref(), host, &wish, Origin::Command)?;
                for port in &attached {
                    info!(port = %port.name, driver = %port.driver, mode = %port.mode, "attached");
                    port.notes.iter().for_each(|note| info!(port = %port.name, "{note}"));
                }
                Ok(Reply::Attached(attached))
            }),
            Request::Detach { .. } if !administers => denied("detach ports"),
            Request::Detach { name } => {
                let detached =
                    parse_name(&name).and_then(|name| self.parts.ports.detach(&name.base.to_string()));
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
            Request::Reload if !administers => denied("reload the configuration"),
            Request::Reload => match self.reload(client.id)? {
                Ok(()) => Ok(Reply::Done),
                Err(message) => Err(ErrorReply::new(
                    ErrorKind::BadRequest,
                    message,
                    "what could not be applied was left as it was",
                )),
            },
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

    fn status(&self) -> Result<StatusReport, ServerError> {
        let ports = &self.parts.ports;
        Ok(StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started_at.elapsed().as_secs(),
            socket: self.parts.socket.display().to_string(),
            config: self.parts.config_path.as_ref().map(|path| path.display().to_string()),
            started: self.parts.started,
            workers: status::workers(ports),
            switches: status::switches(ports),
            ports: status::list(ports, &self.netmap)?.ports,
            shared_memory_bytes: ports.shared_memory_bytes(),
            huge_page_bytes: ports.huge_page_bytes(),
            rejected_requests: self.rejected_requests,
        })
    }

    fn handle_signals(&mut self) {
        let mut bytes = [0; 64];
        let count = rustix::io::read(&self.parts.signals, &mut bytes).unwrap_or(0);
        for byte in bytes.iter().take(count) {
            if *byte == b'h' {
                match self.reload(ClientId::MAX) {
                    Ok(Ok(())) => {}
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

    /// Reads the configuration again and applies it, or says why not and changes nothing of what is wrong.
    fn reload(&mut self, asking: ClientId) -> Result<Result<(), String>, ServerError> {
        let Some(path) = self.parts.config_path.clone() else {
            return Ok(Err("the daemon was started without a configuration file".into()));
        };
        let read: Result<Config, ConfigError> = Config::read(&path);
        let new = match read {
            Ok(new) => new,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let mut problems = Vec::new();
        for part in reload::needs_restart(&self.parts.config, &new) {
            warn!(part, "takes effect at the next start");
        }
        match logging::filter(&new.log.level) {
            Ok(filter) => {
                let _ = self.parts.level.reload(filter);
            }
            Err(problem) => problems.push(problem),
        }
        if let Ok(mode) = new.socket_mode()
            && let Err(error) = set_access(&self.parts.socket, mode, new.socket.gid)
        {
            problems.push(error.to_string());
        }
        self.parts.ports.permissions = rules(&new);
        let (lost, port_problems) = reload::apply_ports(&mut self.parts.ports, &new.port);
        self.netmap.forget_detached(&self.parts.ports);
        self.drop_clients(lost, asking)?;
        problems.extend(port_problems);
        // What needs a restart stays as it was started.
        self.parts.config = Config {
            workers: self.parts.config.workers.clone(),
            switch: self.parts.config.switch.clone(),
            limits: self.parts.config.limits.clone(),
            ..new
        };
        info!(ports = self.parts.ports.on_switches.len(), "configuration reloaded");
        Ok(if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) })
    }
}

/// The rules of a configuration.
fn rules(config: &Config) -> Arc<Permissions> {
    Arc::new(Permissions::new(rustix::process::geteuid().as_raw(), &config.allow))
}

/// Length of an ageing tick.
fn tick_length(config: &Config) -> Duration {
    Duration::from_secs(u64::from(config.switch.ageing_s)) / u32::from(AGEING_TICKS)
}

fn parse_name(name: &str) -> Result<PortName, ErrorReply> {
    name.parse().map_err(|error: ringroad_port::port_name::PortNameError| {
        ErrorReply::new(ErrorKind::BadName, error.to_string(), "")
    })
}

fn drain(timer: &OwnedFd) {
    let mut count = [0; 8];
    let _ = rustix::io::read(timer, &mut count);
}
