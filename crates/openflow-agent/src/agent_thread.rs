//! Event loop of the thread: connections come and go, bytes come in, answers go out.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringroad_flow_tables::control_frame::packet_out_header;
use ringroad_flow_tables::state::handover::Image;
use ringroad_port::clock::monotonic_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use rustls::Connection;

use crate::address::{ControllerAddress, Transport};
use crate::agent::{Agent, AgentState, SessionId};
use crate::connection_limit::{
    AdmissionResult, MAX_TOOLS, RefusalCause, RefusedTools, admit, limit_in_words,
};
use crate::dialing::Dialed;
use crate::link::Link;
use crate::service::{AgentReport, Command, ControllerStatus, Controllers, Listeners};
use crate::session::{SessionEnd, SessionPeer};
use crate::stream::Stream;
use crate::tls::Tls;

/// Interval at which timeouts are checked.
const TICK: Duration = Duration::from_millis(500);
/// Minimum of the limit on the unread answers of all connections, bytes. The limit is a quarter of the switch's memory.
/// Above it, the connection with the most unread answers ends.
const LEAST_WAITING_BYTES: u64 = 16 << 20;
/// Freed bytes after which memory is given back to the kernel.
const GIVE_BACK_BYTES: u64 = 4 << 20;
/// Maximum number of frames for controllers taken in one turn.
const FRAMES_A_TURN: usize = 256;
const LONGEST_FRAME: usize = 64 * 1024 + 64;

/// Channels between the thread and the switch's owner.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) commands: Receiver<Command>,
    /// Signalled when there is a command.
    pub(crate) wake: Arc<OwnedFd>,
    pub(crate) report: Arc<Mutex<AgentReport>>,
    /// Function that gives memory back to the kernel.
    pub(crate) give_back: fn(),
}

/// The thread's state.
#[derive(Debug)]
pub(crate) struct AgentThread {
    agent: Agent,
    /// Image of the tables, while the thread is frozen.
    frozen: Option<Image>,
    start: Instant,
    dialed: Vec<Dialed>,
    tls: Option<Tls>,
    listeners: Listeners,
    packets: OwnedFd,
    links: BTreeMap<SessionId, Link>,
    owner: Owner,
    refusals: RefusedTools,
    next_tick: Instant,
    /// Bytes freed since memory was last given back to the kernel.
    freed_bytes: u64,
}

impl AgentThread {
    /// Makes the thread's state, as for [`OpenFlowService::start`](crate::service::OpenFlowService::start).
    pub(crate) fn new(
        mut agent: Agent,
        controllers: Controllers,
        listeners: Listeners,
        packets: OwnedFd,
        owner: Owner,
        remains: Option<&AgentState>,
    ) -> Self {
        let now = Instant::now();
        let age = remains.map_or(0, |remains| monotonic_ns().saturating_sub(remains.start_ns));
        match remains {
            Some(remains) => agent.resume(remains),
            // No controller is connected yet.
            None => agent.lose_controllers(0),
        }
        Self {
            agent,
            frozen: None,
            start: now.checked_sub(Duration::from_nanos(age)).unwrap_or(now),
            dialed: controllers.addresses.into_iter().map(|address| Dialed::new(address, now)).collect(),
            tls: controllers.tls,
            listeners,
            packets,
            links: BTreeMap::new(),
            owner,
            refusals: RefusedTools::default(),
            next_tick: now + TICK,
            freed_bytes: 0,
        }
    }

    /// Serves until the owner ends it.
    pub(crate) fn run(mut self) {
        while self.obey() {
            if self.frozen.is_some() {
                let _ = poll(&mut [PollFd::new(&self.owner.wake, PollFlags::IN)], None);
                continue;
            }
            self.dial();
            self.tell_report();
            let ready = self.wait();
            for fd in ready {
                self.serve(fd);
            }
            if !self.go_on() {
                return;
            }
            self.send_out();
            // The report is updated before answers are sent, so whoever has read an answer finds its effect in the
            // report.
            self.tell_report();
            self.flush();
            self.keep_time();
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Carries out commands. Returns false if the thread must end.
    fn obey(&mut self) -> bool {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.owner.wake, &mut count);
        loop {
            match self.owner.commands.try_recv() {
                Ok(Command::SetPort(number, mut port)) => {
                    port.since_ns = self.now_ns();
                    self.agent.set_port(number, *port);
                }
                Ok(Command::RemovePort(number)) => self.agent.remove_port(number),
                Ok(Command::Controllers(controllers, fail_mode)) => {
                    self.agent.fail_mode = fail_mode;
                    self.tls = controllers.tls;
                    self.change_controllers(controllers.addresses);
                }
                Ok(Command::Settle(reply)) => drop(reply.send(())),
                Ok(Command::Freeze(reply)) => {
                    let image = self.frozen.insert(self.agent.state.image());
                    let records = std::mem::take(&mut image.bytes);
                    let start_ns = monotonic_ns().saturating_sub(self.now_ns());
                    let _ = reply.send((self.agent.remains(start_ns), records));
                }
                Ok(Command::Counts(reply)) => {
                    if let Some(image) = &self.frozen {
                        let _ = reply.send(self.agent.state.counts(image));
                    }
                }
                Ok(Command::Thaw) => self.frozen = None,
                Ok(Command::End) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn change_controllers(&mut self, controllers: Vec<ControllerAddress>) {
        let mut before = std::mem::take(&mut self.dialed);
        let now = Instant::now();
        for address in controllers {
            let kept =
                before.iter().position(|dialed| dialed.address == address).map(|index| before.remove(index));
            self.dialed.push(kept.unwrap_or_else(|| Dialed::new(address, now)));
        }
        for dialed in before {
            if let Some(id) = dialed.session() {
                self.links.remove(&id);
                self.agent.disconnect(id);
            }
        }
        // Links refer to controllers by index, which may have changed.
        for (index, dialed) in self.dialed.iter().enumerate() {
            if let Some(link) = dialed.session().and_then(|id| self.links.get_mut(&id)) {
                link.controller = Some(index);
            }
        }
    }

    /// Connects to the controllers whose next attempt is due.
    fn dial(&mut self) {
        let now = Instant::now();
        let mut has_failed = false;
        for (index, dialed) in self.dialed.iter_mut().enumerate() {
            let stream = match dialed.dial(&self.owner.wake, now) {
                Some(Ok(stream)) => dialed_stream(stream, &dialed.address, self.tls.as_ref()),
                Some(Err(problem)) => Err(problem),
                None => continue,
            };
            match stream {
                Ok(stream) => {
                    let id = self.agent.connect(SessionPeer::Controller);
                    self.links.insert(id, Link::new(stream, Some(index), None));
                    dialed.connected(id);
                }
                Err(problem) => {
                    has_failed = true;
                    dialed.lost(problem, now);
                }
            }
        }
        // The flows of an earlier agent may be those of a controller that is gone.
        if has_failed && !self.agent.is_controlled() {
            let now_ns = self.now_ns();
            self.agent.lose_controllers(now_ns);
        }
    }

    /// Waits for work or for the next timeout. Returns the descriptors that are ready.
    fn wait(&mut self) -> Vec<i32> {
        let mut descriptors =
            vec![PollFd::new(&self.owner.wake, PollFlags::IN), PollFd::new(&self.packets, PollFlags::IN)];
        let of_this_machine = self.links.values().filter(|link| link.is_of_this_machine());
        if of_this_machine.count() < MAX_TOOLS {
            descriptors
                .extend(self.listeners.unix.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        }
        let listeners = self.listeners.tcp.iter().chain(&self.listeners.tls);
        descriptors.extend(listeners.map(|listener| PollFd::new(listener, PollFlags::IN)));
        let next = self.dialed.iter().filter_map(Dialed::next_try).fold(self.next_tick, Instant::min);
        let mut wait = next.saturating_duration_since(Instant::now());
        for (id, link) in &self.links {
            let Some(session) = self.agent.session(*id) else { continue };
            if session.has_work() {
                // The session has work, so the loop does not wait. A closed connection is noticed later.
                wait = Duration::ZERO;
                continue;
            }
            let mut interest = PollFlags::empty();
            interest.set(PollFlags::IN, !session.is_listing());
            interest.set(PollFlags::OUT, link.stream.has_to_send(!session.waiting().is_empty()));
            descriptors.push(PollFd::new(&link.stream, interest));
        }
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let _ = poll(&mut descriptors, Some(&wait));
        let ready = descriptors.iter().filter(|one| !one.revents().is_empty());
        ready.map(|one| one.as_fd().as_raw_fd()).collect()
    }

    fn serve(&mut self, fd: i32) {
        if fd == self.packets.as_raw_fd() {
            return self.take_packets();
        }
        if let Some(listener) = self.listeners.unix.iter().find(|listener| listener.as_raw_fd() == fd) {
            if let Ok((stream, _)) = listener.accept() {
                self.admit(Stream::unix(stream), None);
            }
            return;
        }
        let is = |listener: &&TcpListener| listener.as_raw_fd() == fd;
        if let Some(listener) = self.listeners.tcp.iter().find(is) {
            if let Ok((stream, from)) = listener.accept() {
                self.admit_from(stream, None, from);
            }
            return;
        }
        if let Some(listener) = self.listeners.tls.iter().find(is) {
            if let Ok((stream, from)) = listener.accept() {
                // Clients are refused if there are no certificates.
                match self.tls.as_ref().map(Tls::accept) {
                    Some(Ok(tls)) => self.admit_from(stream, Some(tls), from),
                    Some(Err(problem)) => self.refusals.note(RefusalCause::Tls, Some(from), &problem),
                    None => self.refusals.note(RefusalCause::Tls, Some(from), "there are no certificates"),
                }
            }
            return;
        }
        let link = self.links.iter().find(|(_, link)| link.stream.as_fd().as_raw_fd() == fd);
        if let Some(id) = link.map(|(&id, _)| id) {
            self.read(id);
        }
    }

    fn admit(&mut self, stream: std::io::Result<Stream>, from: Option<SocketAddr>) {
        if let Ok(stream) = stream {
            let id = self.agent.connect(SessionPeer::Tool);
            self.links.insert(id, Link::new(stream, None, from));
        }
    }

    /// Accepts a tool that connected by TCP, if a limit allows it or another connection can end for it.
    fn admit_from(&mut self, stream: TcpStream, tls: Option<Connection>, from: SocketAddr) {
        let links = self.links.iter().filter_map(|(&id, link)| {
            let is_greeted = self.agent.session(id).is_some_and(|session| session.is_greeted);
            link.from.map(|from| (id, from, is_greeted))
        });
        match admit(links, from) {
            AdmissionResult::Free => {}
            AdmissionResult::Of(id, cause) => self.refuse(id, cause, limit_in_words(cause).to_owned()),
            AdmissionResult::None(cause) => {
                return self.refusals.note(cause, Some(from), limit_in_words(cause));
            }
        }
        self.admit(Stream::tcp(stream, tls), Some(from));
    }

    fn read(&mut self, id: SessionId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        match link.stream.read() {
            Ok(bytes) if bytes.is_empty() => {
                self.lose(id, "the other side closed the connection".to_owned());
            }
            Ok(bytes) => self.agent.receive(id, &bytes),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => self.lose(id, error.to_string()),
        }
    }

    fn take_packets(&mut self) {
        let mut frame = vec![0; LONGEST_FRAME];
        for _ in 0..FRAMES_A_TURN {
            match rustix::net::recv(&self.packets, &mut frame[..], RecvFlags::DONTWAIT) {
                Ok((_, len)) => self.agent.packet_in(frame.get(..len).unwrap_or_default()),
                Err(_) => return,
            }
        }
    }

    /// Gives a turn to each connection that has work, and carries out the owner's commands between turns. Returns false
    /// if the thread must end.
    fn go_on(&mut self) -> bool {
        let now_ns = self.now_ns();
        let ids: Vec<SessionId> = self.links.keys().copied().collect();
        for id in ids {
            if self.frozen.is_none() && self.agent.session(id).is_some_and(|session| session.has_work()) {
                self.agent.go_on(id, now_ns);
                // A single answer can be long, and there are many connections, so the limit is checked after each.
                self.bound_waiting();
                if !self.obey() {
                    return false;
                }
            }
        }
        true
    }

    /// Ends the connection with the most waiting answers, if all together exceed the limit.
    fn bound_waiting(&mut self) {
        let (mut waiting_bytes, mut most) = (0, (0, None));
        for &id in self.links.keys() {
            let Some(session) = self.agent.session(id) else { continue };
            let bytes = session.waiting().len();
            waiting_bytes += bytes;
            most = most.max((bytes, Some(id)));
        }
        let most_bytes = (self.agent.state.limits().memory_bytes / 4).max(LEAST_WAITING_BYTES);
        if waiting_bytes as u64 > most_bytes
            && let Some(id) = most.1
        {
            self.refuse(id, RefusalCause::Unread, SessionEnd::TooSlow.to_string());
        }
    }

    /// Sends controllers' packets to the switch.
    fn send_out(&mut self) {
        for (ports, packet) in self.agent.take_outgoing() {
            let frame = [&packet_out_header(ports)[..], &packet].concat();
            // Packets are lost if the switch has no room, as with an interface.
            let _ = rustix::net::send(&self.packets, &frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Sends waiting output, as far as the peers accept it.
    fn flush(&mut self) {
        let now = Instant::now();
        let (mut lost, mut refused) = (Vec::new(), Vec::new());
        for (&id, link) in &mut self.links {
            let Some(session) = self.agent.session(id) else { continue };
            if let Err(error) = link.send(session, now) {
                lost.push((id, error.to_string()));
                continue;
            }
            if let Some(ended) = &session.ended {
                refused.push((id, RefusalCause::of(ended), ended.to_string()));
            }
        }
        lost.into_iter().for_each(|(id, problem)| self.lose(id, problem));
        refused.into_iter().for_each(|(id, cause, problem)| self.refuse(id, cause, problem));
    }

    /// Ends a connection for this cause. Counts a tool's connection as refused.
    fn refuse(&mut self, id: SessionId, cause: RefusalCause, problem: String) {
        if let Some(link) = self.links.get(&id).filter(|link| link.controller.is_none()) {
            self.refusals.note(cause, link.from, &problem);
        }
        self.end(id, problem);
    }

    /// Ends a connection that the peer has closed or broken.
    fn lose(&mut self, id: SessionId, problem: String) {
        let Some(link) = self.links.get(&id) else { return };
        match link.stream.is_handshaking() {
            true => self.refuse(id, RefusalCause::Tls, problem),
            false => self.end(id, problem),
        }
    }

    fn end(&mut self, id: SessionId, problem: String) {
        let Some(link) = self.links.remove(&id) else { return };
        self.agent.disconnect(id);
        let now = Instant::now();
        if let Some(dialed) = link.controller.and_then(|index| self.dialed.get_mut(index)) {
            dialed.lost(problem, now);
            if !self.agent.is_controlled() {
                let now_ns = self.now_ns();
                self.agent.lose_controllers(now_ns);
            }
        }
    }

    fn keep_time(&mut self) {
        let now = Instant::now();
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        let now_ns = self.now_ns();
        self.agent.tick(now_ns);
        self.freed_bytes += self.agent.state.take_freed_bytes();
        if self.freed_bytes >= GIVE_BACK_BYTES {
            self.freed_bytes = 0;
            (self.owner.give_back)();
        }
        let mut over = Vec::new();
        for (&id, link) in &mut self.links {
            let Some(session) = self.agent.session(id) else { continue };
            over.extend(link.keep_time(session, now).map(|what| (id, what)));
            if session.is_greeted
                && let Some(dialed) = link.controller.and_then(|index| self.dialed.get_mut(index))
            {
                dialed.greeted();
            }
        }
        for (id, (cause, problem)) in over {
            self.refuse(id, cause, problem);
        }
    }

    fn tell_report(&mut self) {
        let controllers = self.dialed.iter().map(|dialed| {
            let session = dialed.session().and_then(|id| self.agent.session(id));
            let is_connected = session.is_some_and(|session| session.is_greeted);
            let problem = dialed.problem().filter(|_| !is_connected).map(str::to_owned);
            ControllerStatus { address: dialed.address.to_string(), is_connected, problem }
        });
        let controllers = controllers.collect();
        let report = AgentReport {
            controllers,
            tools: self.links.values().filter(|link| link.is_tool()).count(),
            refusals: self.refusals.clone(),
            flows: self.agent.state.flows(),
            memory_bytes: self.agent.state.memory_bytes(),
            memory_limit_bytes: self.agent.state.limits().memory_bytes,
            counted: self.agent.counted(),
        };
        *self.owner.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

/// Makes the stream of a connection to this controller.
fn dialed_stream(
    stream: TcpStream,
    address: &ControllerAddress,
    tls: Option<&Tls>,
) -> Result<Stream, String> {
    let tls = match (address.transport, tls) {
        (Transport::Tcp, _) => None,
        (Transport::Tls, Some(tls)) => Some(tls.dial(&address.host)?),
        (Transport::Tls, None) => return Err("there are no certificates for TLS".to_owned()),
    };
    Stream::tcp(stream, tls).map_err(|error| error.to_string())
}
