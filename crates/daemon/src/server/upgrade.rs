//! Handover of the server to a new process, and the new process's takeover ([`crate::upgrade`]).

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringroad_control::ServerConnection;
use ringroad_control::listening_socket::ListeningSocket;
use ringroad_control::message::{ErrorKind, ErrorReply, PortSpec, Reply, Request};
use ringroad_control::report::UpgradeReport;
use ringroad_port::clock::monotonic_ns;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::{Mode, OFlags};
use tracing::{info, warn};

use super::sessions::Session;
use super::{NEW_PROCESS, RequestError, Server, ServerError, ServerParts, rules};
use crate::attaching::key_of;
use crate::claims::take_over_files;
use crate::config::Config;
use crate::listen::{BACKLOG, is_safe_owner};
use crate::openflow::FlowSwitches;
use crate::port_entries::{Client, ClientId};
use crate::port_rules::PortRules;
use crate::refusal::refuse;
use crate::restore::RestoreFile;
use crate::service_manager::ServiceManager;
use crate::upgrade::export::SentDescriptors;
use crate::upgrade::import::{Clients, Reopenings};
use crate::upgrade::state::{PortsState, SessionState, UpgradeState};
use crate::upgrade::{
    ChannelError, FORM, ReceivedDescriptors, STANDSTILL, START_TIME, UpgradeChannel, UpgradeMessage,
};

/// Time that the workers may take to forward the frames that they have received.
const QUIESCE_TIME: Duration = Duration::from_millis(200);
/// Time that the new process may take to complete its first message.
const MESSAGE_TIME: Duration = Duration::from_secs(1);
/// Time that the old process may take to end. It only holds memory then.
const END_TIME: Duration = Duration::from_secs(30);

/// An upgrade whose new process is starting. The daemon serves meanwhile. Dropping it ends the new process, which has not
/// begun to serve, and must not begin any more.
pub(super) struct BegunUpgrade {
    child: Child,
    channel: UpgradeChannel,
    /// Client that asked for the upgrade.
    asking: ClientId,
    anyway: bool,
    /// Time by which the new process must be ready.
    pub(super) until: Instant,
}

impl Drop for BegunUpgrade {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a process that will replace this one, for the client `asking`, which gets its reply from the new process,
    /// or from this one if that fails. If an upgrade has begun already, the request is served after it.
    pub(super) fn begin_upgrade(&mut self, asking: &mut Session, anyway: bool) -> Result<(), RequestError> {
        if self.upgrade.is_some() {
            asking.connection.put_back(&Request::Upgrade { anyway });
            asking.awaits_upgrade = true;
            return Ok(());
        }
        self.check_netmap(anyway)?;
        let (child, channel) = start_installed(&self.parts.arguments).map_err(refusal)?;
        info!(pid = child.id(), "a new process will take over");
        let until = Instant::now() + START_TIME;
        let begun = BegunUpgrade { child, channel, asking: asking.client.id, anyway, until };
        let data = EventData::new_u64(NEW_PROCESS);
        epoll::add(&self.epoll, &begun.channel, data, EventFlags::IN).map_err(refusal)?;
        asking.awaits_upgrade = true;
        self.upgrade = Some(begun);
        Ok(())
    }

    /// Refuses an upgrade that would take the devices of netmap programs.
    fn check_netmap(&self, anyway: bool) -> Result<(), ErrorReply> {
        if self.netmap.is_empty() || anyway {
            return Ok(());
        }
        let what = "netmap programs are attached, and their devices cannot be handed over";
        Err(refuse(
            ErrorKind::Busy,
            what,
            "end them, or let them lose their devices: ringroad upgrade --anyway",
        ))
    }

    /// Hands over to the new process of the upgrade that has begun: it is ready, has ended, or its time is over. Returns
    /// only if it does not take over; then this process continues unchanged.
    pub(super) fn continue_upgrade(&mut self) -> Result<(), ServerError> {
        let Some(begun) = self.upgrade.take() else { return Ok(()) };
        let failure = match self.hand_over(&begun) {
            Ok(never) => match never {},
            Err(RequestError::Refused(refusal)) => refusal,
            Err(RequestError::Failed(failure)) => return Err(failure),
        };
        let asking = begun.asking;
        drop(begun);
        self.parts.ports.openflow.thaw();
        self.parts.ports.table.fabric().hold(false)?;
        warn!(reason = %failure.message, "the upgrade has failed; this process continues");
        self.rejected_requests += 1;
        if let Some(session) = self.sessions.get_mut(&asking) {
            session.connection.send(&Reply::Error(failure), &[]);
        }
        let waiting: Vec<ClientId> = self
            .sessions
            .values_mut()
            .filter_map(|session| std::mem::take(&mut session.awaits_upgrade).then_some(session.client.id))
            .collect();
        waiting.into_iter().for_each(|id| self.line_up(id));
        Ok(())
    }

    /// Hands over, and ends this process. Returns the reason if the other process does not take over.
    fn hand_over(&mut self, begun: &BegunUpgrade) -> Result<Infallible, RequestError> {
        let BegunUpgrade { child, channel, asking, anyway, until } = begun;
        // A message arrives in one piece, so a process that sends half of one is faulty.
        let takes_flow_tables = match channel.receive((Instant::now() + MESSAGE_TIME).min(*until)) {
            Ok((UpgradeMessage::Ready { form: FORM, takes_flow_tables, .. }, _)) => takes_flow_tables,
            Ok((UpgradeMessage::Ready { version, .. }, _)) => {
                let own = env!("CARGO_PKG_VERSION");
                let what = format!("ringroadd {own} cannot hand over to ringroadd {version}");
                let instead =
                    "; end it by kill -9 and start the new one, which makes the attached ports again";
                return Err(refusal(what + instead).into());
            }
            other => return Err(answer(other).into()),
        };
        self.check_netmap(*anyway)?;
        if let Some(tracer) = self.tracer {
            self.end_trace(tracer)?;
        }
        // Sessions with a part of a reply unsent end, since no other process could send the rest.
        let unable = |session: &mut Session| {
            session.connection.flush();
            session.connection.unread().is_none()
        };
        let stuck: Vec<ClientId> =
            self.sessions.iter_mut().filter_map(|(&id, session)| unable(session).then_some(id)).collect();
        for session in stuck.into_iter().filter_map(|id| self.sessions.remove(&id)).collect::<Vec<_>>() {
            warn!(client = %session.client, "a connection with a reply that was not read ends with the upgrade");
            self.end_session(session)?;
        }
        let fabric = self.parts.ports.table.fabric();
        let openflow = &self.parts.ports.openflow;
        if takes_flow_tables && !openflow.is_empty() {
            // Flow tables are frozen first, while traffic continues.
            let (tables, files) = openflow.freeze();
            let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            let deadline = Instant::now() + START_TIME;
            channel.send(&UpgradeMessage::FlowTables(tables), &files, deadline).map_err(refusal)?;
            match channel.receive(deadline) {
                Ok((UpgradeMessage::FlowTablesReady, _)) => {}
                other => return Err(answer(other).into()),
            }
        }
        let stopped_at_ns = monotonic_ns();
        fabric.hold(true)?;
        let deadline = Instant::now() + STANDSTILL;
        if !fabric.quiesce(Instant::now() + QUIESCE_TIME)? {
            return Err(refusal("the workers did not come to rest; try again").into());
        }
        let counts = if takes_flow_tables { openflow.frozen_counts() } else { BTreeMap::new() };
        let mut sent = SentDescriptors::default();
        let listener = sent.share(&self.listener);
        let sessions = self.sessions.values().filter(|session| !self.netmap.is_device(session.client.id));
        let sessions = sessions.map(|session| SessionState {
            id: session.client.id,
            program: session.client.program.clone(),
            has_asked: session.has_asked,
            unread: session.connection.unread().unwrap_or_default(),
            socket: sent.share(&session.connection),
        });
        let sessions = sessions.collect();
        let state = UpgradeState {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: self.parts.config.clone(),
            started: self.started,
            instance: self.instance,
            uptime_ns: u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX),
            next_client: self.next_client,
            rejected_requests: self.rejected_requests,
            listener,
            sessions,
            asking: *asking,
            anyway: *anyway,
            stopped_at_ns,
            ports: PortsState {
                flow_counts: counts.iter().map(|(switch, file)| (switch.clone(), sent.share(file))).collect(),
                ..self.parts.ports.leave(&mut sent)?
            },
        };
        let message = UpgradeMessage::State(Box::new(state));
        if let Err(error) = channel.send(&message, &sent.descriptors(), deadline) {
            // The other process's message is more specific than the broken socket.
            let told = channel.receive(Instant::now());
            return Err(if told.is_ok() { answer(told) } else { refusal(error) }.into());
        }
        match channel.receive(deadline) {
            Ok((UpgradeMessage::Prepared, _)) => {}
            other => return Err(answer(other).into()),
        }
        if let Ok(Some(manager)) = ServiceManager::of_environment()
            && let Err(error) = manager.succeeded_by(child.id())
        {
            warn!(%error, "notifying the service manager of the new process");
        }
        channel.send(&UpgradeMessage::Go, &[], deadline).map_err(refusal)?;
        info!(pid = child.id(), "another process has taken over");
        // Destructors must not run: they would undo resources that belong to the other process.
        std::process::exit(0);
    }

    /// Takes over as the server whose state `successor` receives, with workers of this process. Resources of the other
    /// process are not changed before that process reports that it no longer uses them.
    ///
    /// # Errors
    /// The reason to report to the other process.
    pub fn take_over(successor: &NewProcess, mut parts: ServerParts) -> Result<Self, String> {
        let ServerParts { ports, config, socket, .. } = &mut parts;
        let fabric = ports.table.fabric();
        fabric.hold(true).map_err(told)?;
        let (state, mut descriptors) =
            successor.receive_state(&mut ports.openflow, fabric.runners().len())?;
        // The file of the socket stays if this process does not take over.
        let listener = ListeningSocket::resume(socket, descriptors.take(state.listener)?).map_err(told)?;
        let listener = ManuallyDrop::new(listener);
        let mut clients = Clients::new();
        let mut sessions = Vec::new();
        for SessionState { id, program, has_asked, unread, socket } in state.sessions {
            let connection = ServerConnection::resume(descriptors.take(socket)?, unread).map_err(told)?;
            let client = Client { id, peer: connection.peer(), program };
            clients.insert(id, client.clone());
            sessions.push(Session::new(connection, client, has_asked));
        }
        ports.permissions = rules(config);
        ports.rules = PortRules::new(&state.config.port_policy);
        let mut before = PreviousPorts {
            version: state.version,
            stopped_at_ns: state.stopped_at_ns,
            kept: state.ports.kept(),
            reopened: Vec::new(),
            lost: state.ports.lost.clone(),
            configured: state.config.port.iter().map(key_of).collect(),
        };
        let restore = RestoreFile::resume(socket, state.ports.waiting.clone(), state.ports.last_number);
        let reopenings = ports.arrive(state.ports, &mut descriptors, &clients, restore, &config.port)?;
        before.reopened = reopenings.keys();
        let would_lose: BTreeMap<_, _> =
            before.lost.clone().into_iter().chain(reopenings.refused()).collect();
        if !state.anyway && !would_lose.is_empty() {
            let message = UpgradeMessage::WouldLose(would_lose);
            successor.channel.send(&message, &[], Instant::now() + STANDSTILL).map_err(told)?;
            return Err("ports would be lost".to_owned());
        }
        // The old process's settings stay in force until the file is applied.
        let old = state.config;
        *config = Config {
            socket: old.socket,
            port: old.port,
            port_policy: old.port_policy,
            address: old.address,
            mirror: old.mirror,
            openflow: old.openflow,
            allow: old.allow,
            ..std::mem::take(config)
        };
        successor.channel.send(&UpgradeMessage::Prepared, &[], Instant::now() + STANDSTILL).map_err(told)?;
        match successor.channel.receive(Instant::now() + START_TIME) {
            Ok((UpgradeMessage::Go, _)) => {}
            other => return Err(unexpected(other)),
        }
        let listener = ManuallyDrop::into_inner(listener);
        let now = Instant::now();
        let mut server = Self::new(listener, state.started, parts).map_err(told)?;
        server.instance = state.instance;
        server.next_client = state.next_client;
        server.rejected_requests = state.rejected_requests;
        server.started_at = now.checked_sub(Duration::from_nanos(state.uptime_ns)).unwrap_or(now);
        for session in sessions {
            server.welcome_again(session).map_err(told)?;
        }
        server.begin(successor, reopenings, state.asking, before);
        Ok(server)
    }

    /// Admits a client of the earlier process.
    fn welcome_again(&mut self, session: Session) -> rustix::io::Result<()> {
        let (id, user) = (session.client.id, session.client.peer.uid);
        // The client was admitted before: a lower limit binds only new clients.
        let _ = self.admission.enter(user, true);
        let data = EventData::new_u64(id);
        epoll::add(&self.epoll, &session.connection, data, session.interest)?;
        self.sessions.insert(id, session);
        // Input that was received before causes no new edge.
        self.line_up(id);
        Ok(())
    }

    /// Begins to serve, after the other process has stopped all its work.
    fn begin(
        &mut self,
        successor: &NewProcess,
        reopenings: Reopenings,
        asking: ClientId,
        before: PreviousPorts,
    ) {
        let begun = self.parts.ports.table.fabric().hold(false);
        let pause_ns = monotonic_ns().saturating_sub(before.stopped_at_ns);
        let mut problems: Vec<String> = begun.err().map(|error| error.to_string()).into_iter().collect();
        // Clients query the kernel for the listening process.
        if let Err(error) = rustix::net::listen(&self.listener, BACKLOG) {
            problems.push(format!("listening: {error}"));
        }
        // Devices of the earlier process are free once it has ended.
        if let Err(error) = successor.await_end() {
            problems.push(format!("the end of the process before: {error}"));
        }
        take_over_files();
        self.parts.ports.retry_openflow();
        self.parts.ports.follow_openflow();
        let lost = self.parts.ports.open_anew(reopenings);
        self.parts.ports.attach_waiting();
        match self.reload(asking) {
            Ok(Ok(_)) => {}
            Ok(Err(problem)) => problems.push(problem),
            Err(error) => problems.push(error.to_string()),
        }
        if let Err(error) = self.drop_clients(lost, ClientId::MAX) {
            problems.push(error.to_string());
        }
        self.parts.ports.keep_list();
        let report = self.upgrade_report(before, pause_ns, problems.join("; "));
        info!(
            from = %report.from,
            pause_us = report.pause_ns / 1000,
            kept = report.kept,
            reopened = report.reopened.len(),
            waiting = report.waiting.len(),
            lost = report.lost.len(),
            problem = %report.problem,
            "took over from another process"
        );
        for port in &report.lost {
            warn!(%port, "lost by the upgrade");
        }
        if let Some(session) = self.sessions.get_mut(&asking) {
            session.connection.send(&Reply::Upgraded(report), &[]);
        }
    }

    /// Report of the earlier process's ports, as they are now.
    fn upgrade_report(&self, before: PreviousPorts, pause_ns: u64, problem: String) -> UpgradeReport {
        let ports = &self.parts.ports;
        let by_key = |(name, reason): (String, String)| (key_of(&PortSpec::for_program(name)), reason);
        let mut waits: BTreeMap<_, _> = ports.waiting_ports().into_iter().map(by_key).collect();
        let wanted: BTreeSet<_> = self.parts.config.port.iter().map(key_of).collect();
        let mut report = UpgradeReport {
            from: before.version,
            to: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            pause_ns,
            kept: 0,
            reopened: Vec::new(),
            waiting: BTreeMap::new(),
            lost: before.lost.into_keys().collect(),
            problem,
        };
        let kept = before.kept.into_iter().map(|key| (key, true));
        for (key, was_kept) in kept.chain(before.reopened.into_iter().map(|key| (key, false))) {
            match (ports.has(&key), waits.remove(&key)) {
                (true, _) if was_kept => report.kept += 1,
                (true, _) => report.reopened.push(key),
                (false, Some(reason)) => {
                    report.waiting.insert(key, reason);
                }
                // The changed configuration does not have the port any more.
                (false, None) if before.configured.contains(&key) && !wanted.contains(&key) => {}
                (false, None) => report.lost.push(key),
            }
        }
        report
    }
}

/// Ports of the earlier process, and the plan for each.
struct PreviousPorts {
    version: String,
    stopped_at_ns: u64,
    /// Names of the ports that are kept.
    kept: Vec<String>,
    /// Names of the ports that are reopened.
    reopened: Vec<String>,
    /// Names of the ports that are lost, each with the reason.
    lost: BTreeMap<String, String>,
    /// Names of the ports that the earlier configuration had.
    configured: BTreeSet<String>,
}

/// New process that will take over from the process that started it.
#[derive(Debug)]
pub struct NewProcess {
    channel: UpgradeChannel,
    /// Descriptor (pidfd) of the other process.
    process: OwnedFd,
}

impl NewProcess {
    /// Takes the other process's socket from this process's standard input, which becomes `/dev/null`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of_standard_input() -> std::io::Result<Self> {
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        let null = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        // The parent lives until this process begins to serve.
        let parent =
            rustix::process::getppid().ok_or_else(|| std::io::Error::other("no process before this one"))?;
        let process = rustix::process::pidfd_open(parent, rustix::process::PidfdFlags::empty())?;
        Ok(Self { channel: UpgradeChannel::new(socket), process })
    }

    /// Receives the state; flow tables for `workers` workers may come before it.
    fn receive_state(
        &self,
        openflow: &mut FlowSwitches,
        workers: usize,
    ) -> Result<(UpgradeState, ReceivedDescriptors), String> {
        let ready = UpgradeMessage::Ready {
            form: FORM,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            takes_flow_tables: true,
        };
        let send = |message| self.channel.send(&message, &[], Instant::now() + START_TIME);
        send(ready).map_err(told)?;
        let receive = || self.channel.receive(Instant::now() + START_TIME);
        let mut received = receive();
        if let Ok((UpgradeMessage::FlowTables(states), descriptors)) = received {
            openflow.prepare(states, &mut ReceivedDescriptors::new(descriptors), workers)?;
            send(UpgradeMessage::FlowTablesReady).map_err(told)?;
            received = receive();
        }
        match received {
            Ok((UpgradeMessage::State(state), descriptors)) => {
                Ok((*state, ReceivedDescriptors::new(descriptors)))
            }
            other => Err(unexpected(other)),
        }
    }

    /// Waits until the other process has ended, and the kernel has closed its descriptors.
    fn await_end(&self) -> Result<(), ChannelError> {
        self.channel.await_end(Instant::now() + END_TIME)?;
        let wait = rustix::event::Timespec { tv_sec: END_TIME.as_secs() as i64, tv_nsec: 0 };
        let mut ended = [rustix::event::PollFd::new(&self.process, rustix::event::PollFlags::IN)];
        let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut ended, Some(&wait)));
        match ready.map_err(std::io::Error::from)? {
            0 => Err(ChannelError::Late),
            _ => Ok(()),
        }
    }

    /// Reports to the other process that this one does not take over.
    pub fn report_failure(&self, reason: &str) {
        let message = UpgradeMessage::Failed(reason.to_owned());
        // No process is left to notify if the other process is gone as well.
        let _ = self.channel.send(&message, &[], Instant::now() + STANDSTILL);
    }
}

fn refusal(reason: impl Display) -> ErrorReply {
    let advice = "the daemon continues as before; its log may give details";
    refuse(ErrorKind::Internal, format!("no upgrade: {reason}"), advice)
}

/// Refusal for a reply of the other process that ends the handover.
fn answer(answer: Result<(UpgradeMessage, Vec<OwnedFd>), ChannelError>) -> ErrorReply {
    match answer {
        Ok((UpgradeMessage::WouldLose(ports), _)) => {
            let ports: Vec<_> = ports.iter().map(|(port, why)| format!("{port} ({why})")).collect();
            refuse(
                ErrorKind::Busy,
                format!("no upgrade: these ports would be lost: {}", ports.join(", ")),
                "mend or detach them, or let them be lost: ringroad upgrade --anyway",
            )
        }
        other => refusal(unexpected(other)),
    }
}

fn told(error: impl Display) -> String {
    error.to_string()
}

/// Description of an unexpected reply of the other process.
fn unexpected(answer: Result<(UpgradeMessage, Vec<OwnedFd>), ChannelError>) -> String {
    match answer {
        Ok((UpgradeMessage::Failed(reason), _)) => reason,
        Ok(_) => "the other process sent an unexpected message".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Starts the program that is installed now at the path of this process's program. What is started is the file that was
/// checked, whatever is at the path by then.
fn start_installed(arguments: &[OsString]) -> Result<(Child, UpgradeChannel), String> {
    let running = std::env::current_exe().map_err(|error| format!("finding the program: {error}"))?;
    let path = installed(&running);
    let program = open_trusted(&path)?;
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg0(&path).arg("--take-over").args(arguments).stdin(Stdio::from(OwnedFd::from(theirs)));
    let child = command.spawn().map_err(failed)?;
    Ok((child, UpgradeChannel::new(ours.into())))
}

/// Opens a program, if only root and this user can have written it, or put another in its place.
fn open_trusted(path: &Path) -> Result<OwnedFd, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let program = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let status = rustix::fs::fstat(&program).map_err(|errno| failed(errno.into()))?;
    let check = |file: &Path, uid: u32, others_write: bool| {
        if is_safe_owner(uid) && !others_write {
            return Ok(());
        }
        Err(format!("{} belongs to another user, or others can write it", file.display()))
    };
    check(path, status.st_uid, status.st_mode & 0o022 != 0)?;
    // The path can be a link, and the file's own path leads to it without links.
    let file = std::fs::read_link(format!("/proc/self/fd/{}", program.as_raw_fd())).map_err(failed)?;
    for folder in path.ancestors().skip(1).chain(file.ancestors().skip(1)) {
        let status = std::fs::metadata(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // The sticky bit keeps others from replacing files that are not theirs.
        check(folder, status.uid(), status.mode() & 0o022 != 0 && status.mode() & 0o1000 == 0)?;
    }
    Ok(program)
}

/// The path of a program that may have been replaced since it was started: the kernel then appends ` (deleted)`.
fn installed(running: &Path) -> PathBuf {
    let bytes = running.as_os_str().as_bytes();
    let path = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    PathBuf::from(OsStr::from_bytes(path))
}
