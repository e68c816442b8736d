//! The thread that speaks OpenFlow for one switch: its connections to controllers, and those of tools to it.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringroad_flow_tables::control_frame::packet_out_header;
use ringroad_openflow::action::PortNo;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{RecvFlags, SendFlags};

use crate::agent::{Agent, FailMode, Port, SessionId};
use crate::session::Peer;

/// How often timeouts are looked at.
const TICK: Duration = Duration::from_millis(500);
/// A controller that was silent for so long is asked whether it is there.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// A controller that was silent for so long is not there.
const GIVE_UP_AFTER: Duration = Duration::from_secs(15);
/// How long a connection may take to come about.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A connection that failed is tried again after so long, and then after twice as long, up to the longest wait.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// Connections of tools at a time, of this machine and by TCP each: those who can reach an address keep no administrator out.
const MAX_TOOLS: usize = 64;
/// Read from one connection in one turn, so that none keeps the others waiting.
const READ_BYTES: usize = 64 * 1024;
/// Frames for controllers taken in one turn.
const FRAMES_A_TURN: usize = 256;
const LONGEST_FRAME: usize = 64 * 1024 + 64;

/// Where a controller is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ControllerAddress {
    /// `tcp:HOST:PORT`
    Tcp(String, u16),
}

impl std::str::FromStr for ControllerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no controller: write tcp:HOST:PORT, as in tcp:127.0.0.1:6653");
        let rest = text.strip_prefix("tcp:").ok_or_else(wrong)?;
        // An IPv6 address has colons of its own, and stands in brackets.
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                (host, port.strip_prefix(':').unwrap_or(if port.is_empty() { "6653" } else { "" }))
            }
            None => rest.split_once(':').unwrap_or((rest, "6653")),
        };
        let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(wrong)?;
        if host.is_empty() || host.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
            return Err(wrong());
        }
        Ok(Self::Tcp(host.to_owned(), port))
    }
}

impl std::fmt::Display for ControllerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "tcp:{host}:{port}"),
        }
    }
}

/// A connection to a controller, as reports have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerReport {
    /// Where it is.
    pub address: String,
    /// Whether both sides have greeted.
    pub is_connected: bool,
    /// Why it was not reached, or left, last.
    pub problem: Option<String>,
}

/// What the thread shows of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The controllers, in the order of the settings.
    pub controllers: Vec<ControllerReport>,
    /// Connections of tools.
    pub tools: usize,
    /// Flow entries.
    pub flows: usize,
    /// News that a controller did not get because it did not read.
    pub dropped_news: u64,
}

/// What the owner of the switch tells the thread.
#[derive(Debug)]
enum Command {
    SetPort(PortNo, Box<Port>),
    RemovePort(PortNo),
    Controllers(Vec<ControllerAddress>, FailMode),
    End,
}

/// The thread of a switch. It ends when this is dropped.
#[derive(Debug)]
pub struct Service {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    report: Arc<Mutex<Report>>,
    thread: Option<JoinHandle<()>>,
}

/// Listening sockets.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For tools of this machine.
    pub unix: Vec<UnixListener>,
    /// For tools elsewhere.
    pub tcp: Vec<TcpListener>,
}

impl Service {
    /// Starts the thread. `packets` is the other end of the switch's port for controllers, each frame a packet.
    ///
    /// # Errors
    /// The kernel's: no thread, or no descriptor.
    pub fn start(
        agent: Agent,
        controllers: Vec<ControllerAddress>,
        listeners: Listeners,
        packets: OwnedFd,
    ) -> std::io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (commands, received) = channel();
        let report = Arc::new(Mutex::new(Report::default()));
        for listener in &listeners.unix {
            listener.set_nonblocking(true)?;
        }
        for listener in &listeners.tcp {
            listener.set_nonblocking(true)?;
        }
        let now = Instant::now();
        let turn = Turn {
            agent,
            start: now,
            dialed: controllers.into_iter().map(|address| Dialed::new(address, now)).collect(),
            listeners,
            packets,
            links: BTreeMap::new(),
            commands: received,
            wake: Arc::clone(&wake),
            report: Arc::clone(&report),
            next_tick: now + TICK,
        };
        let thread = std::thread::Builder::new().name("openflow".to_owned()).spawn(move || turn.run())?;
        Ok(Self { commands, wake, report, thread: Some(thread) })
    }

    fn tell(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// A port came, or has changed.
    pub fn set_port(&self, number: PortNo, port: Port) {
        self.tell(Command::SetPort(number, Box::new(port)));
    }

    /// A port has left.
    pub fn remove_port(&self, number: PortNo) {
        self.tell(Command::RemovePort(number));
    }

    /// Other controllers, or another fail mode. Connections to controllers that stay go on.
    pub fn set_controllers(&self, controllers: Vec<ControllerAddress>, fail_mode: FailMode) {
        self.tell(Command::Controllers(controllers, fail_mode));
    }

    /// What is going on.
    #[must_use]
    pub fn report(&self) -> Report {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.tell(Command::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A stream to a controller or a tool.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Stream {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }
}

/// A connection.
#[derive(Debug)]
struct Link {
    stream: Stream,
    /// Of which controller, by its place in the settings.
    controller: Option<usize>,
    heard: Instant,
    is_probed: bool,
}

/// A controller of the settings.
#[derive(Debug)]
struct Dialed {
    address: ControllerAddress,
    state: Dialing,
    wait: Duration,
    problem: Option<String>,
}

#[derive(Debug)]
enum Dialing {
    /// To be tried at this time.
    Waiting(Instant),
    /// A thread resolves its name and connects: that may take long.
    Connecting(Receiver<Result<TcpStream, String>>),
    Connected(SessionId),
}

impl Dialed {
    fn new(address: ControllerAddress, now: Instant) -> Self {
        Self { address, state: Dialing::Waiting(now), wait: FIRST_WAIT, problem: None }
    }

    fn lost(&mut self, problem: String, now: Instant) {
        self.problem = Some(problem);
        self.state = Dialing::Waiting(now + self.wait);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}

fn connect(address: &ControllerAddress) -> Result<TcpStream, String> {
    let ControllerAddress::Tcp(host, port) = address;
    let addresses = (host.as_str(), *port).to_socket_addrs().map_err(|error| error.to_string())?;
    let mut last = format!("{host} has no address");
    for address in addresses.collect::<Vec<SocketAddr>>() {
        match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
            Ok(stream) => {
                // A small answer is not to wait for a larger one.
                let ready = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
                return ready.map(|()| stream).map_err(|error| error.to_string());
            }
            Err(error) => last = format!("{address}: {error}"),
        }
    }
    Err(last)
}

/// The thread's state.
#[derive(Debug)]
struct Turn {
    agent: Agent,
    start: Instant,
    dialed: Vec<Dialed>,
    listeners: Listeners,
    packets: OwnedFd,
    links: BTreeMap<SessionId, Link>,
    commands: Receiver<Command>,
    wake: Arc<OwnedFd>,
    report: Arc<Mutex<Report>>,
    next_tick: Instant,
}

impl Turn {
    fn run(mut self) {
        while self.obey() {
            self.dial();
            self.tell_report();
            let ready = self.wait();
            for fd in ready {
                self.serve(fd);
            }
            self.send_out();
            self.flush();
            self.keep_time();
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Carries out commands. False where the thread is to end.
    fn obey(&mut self) -> bool {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
        loop {
            match self.commands.try_recv() {
                Ok(Command::SetPort(number, mut port)) => {
                    port.since_ns = self.now_ns();
                    self.agent.set_port(number, *port);
                }
                Ok(Command::RemovePort(number)) => self.agent.remove_port(number),
                Ok(Command::Controllers(controllers, fail_mode)) => {
                    self.agent.set_fail_mode(fail_mode);
                    self.change_controllers(controllers);
                }
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
                before.iter().position(|dialed| dialed.address == address).map(|place| before.remove(place));
            self.dialed.push(kept.unwrap_or_else(|| Dialed::new(address, now)));
        }
        for dialed in before {
            if let Dialing::Connected(id) = dialed.state {
                self.links.remove(&id);
                self.agent.disconnect(id);
            }
        }
        // Links know their controllers by place.
        for (place, dialed) in self.dialed.iter().enumerate() {
            if let Dialing::Connected(id) = dialed.state
                && let Some(link) = self.links.get_mut(&id)
            {
                link.controller = Some(place);
            }
        }
    }

    /// Connects to the controllers whose time has come.
    fn dial(&mut self) {
        let now = Instant::now();
        for (place, dialed) in self.dialed.iter_mut().enumerate() {
            match &dialed.state {
                Dialing::Waiting(at) if *at <= now => {
                    let (done, result) = channel();
                    let (address, wake) = (dialed.address.clone(), Arc::clone(&self.wake));
                    let connecting = move || {
                        let _ = done.send(connect(&address));
                        let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
                    };
                    match std::thread::Builder::new().name("openflow-dial".to_owned()).spawn(connecting) {
                        Ok(_) => dialed.state = Dialing::Connecting(result),
                        Err(error) => dialed.lost(error.to_string(), now),
                    }
                }
                Dialing::Connecting(result) => match result.try_recv() {
                    Ok(Ok(stream)) => {
                        let id = self.agent.connect(Peer::Controller);
                        let link = Link {
                            stream: Stream::Tcp(stream),
                            controller: Some(place),
                            heard: now,
                            is_probed: false,
                        };
                        self.links.insert(id, link);
                        dialed.state = Dialing::Connected(id);
                    }
                    Ok(Err(problem)) => dialed.lost(problem, now),
                    Err(TryRecvError::Disconnected) => {
                        dialed.lost("the attempt was given up".to_owned(), now)
                    }
                    Err(TryRecvError::Empty) => {}
                },
                Dialing::Waiting(_) | Dialing::Connected(_) => {}
            }
        }
    }

    /// Waits for something to do, or for the time to look at something. Returns the descriptors that are ready.
    fn wait(&mut self) -> Vec<i32> {
        let mut descriptors =
            vec![PollFd::new(&self.wake, PollFlags::IN), PollFd::new(&self.packets, PollFlags::IN)];
        let tools = self.links.values().filter(|link| link.controller.is_none());
        let by_tcp = tools.clone().filter(|link| matches!(link.stream, Stream::Tcp(_))).count();
        if tools.count() - by_tcp < MAX_TOOLS {
            descriptors
                .extend(self.listeners.unix.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        }
        if by_tcp < MAX_TOOLS {
            descriptors
                .extend(self.listeners.tcp.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        }
        for (id, link) in &self.links {
            let is_waiting = self.agent.session(*id).is_some_and(|session| !session.waiting().is_empty());
            let interest = if is_waiting { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            descriptors.push(PollFd::new(&link.stream, interest));
        }
        let dials = self.dialed.iter().filter_map(|dialed| match dialed.state {
            Dialing::Waiting(at) => Some(at),
            _ => None,
        });
        let next = dials.fold(self.next_tick, Instant::min);
        let wait = next.saturating_duration_since(Instant::now());
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let _ = poll(&mut descriptors, Some(&wait));
        let ready = descriptors.iter().filter(|one| !one.revents().is_empty());
        ready.map(|one| one.as_fd().as_raw_fd()).collect()
    }

    fn serve(&mut self, fd: i32) {
        if fd == self.packets.as_raw_fd() {
            return self.take_packets();
        }
        let unix = self.listeners.unix.iter().find(|listener| listener.as_raw_fd() == fd);
        let accepted = unix.map(|listener| listener.accept().map(|(stream, _)| Stream::Unix(stream)));
        let accepted = accepted.or_else(|| {
            let tcp = self.listeners.tcp.iter().find(|listener| listener.as_raw_fd() == fd)?;
            Some(tcp.accept().map(|(stream, _)| Stream::Tcp(stream)))
        });
        if let Some(accepted) = accepted {
            if let Ok(stream) = accepted {
                self.admit(stream);
            }
            return;
        }
        let link = self.links.iter().find(|(_, link)| link.stream.as_fd().as_raw_fd() == fd);
        if let Some(id) = link.map(|(&id, _)| id) {
            self.read(id);
        }
    }

    fn admit(&mut self, stream: Stream) {
        let ready = match &stream {
            Stream::Tcp(stream) => stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)),
            Stream::Unix(stream) => stream.set_nonblocking(true),
        };
        if ready.is_ok() {
            let id = self.agent.connect(Peer::Tool);
            let link = Link { stream, controller: None, heard: Instant::now(), is_probed: false };
            self.links.insert(id, link);
        }
    }

    fn read(&mut self, id: SessionId) {
        let mut bytes = vec![0; READ_BYTES];
        let Some(link) = self.links.get_mut(&id) else { return };
        match link.stream.read(&mut bytes) {
            Ok(0) => self.lose(id, "the other side closed the connection".to_owned()),
            Ok(len) => {
                (link.heard, link.is_probed) = (Instant::now(), false);
                let now_ns = self.now_ns();
                self.agent.receive(id, bytes.get(..len).unwrap_or_default(), now_ns);
            }
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

    /// Puts controllers' packets onto the switch.
    fn send_out(&mut self) {
        for (ports, packet) in self.agent.take_outgoing() {
            let frame = [&packet_out_header(ports)[..], &packet].concat();
            // A switch that takes no more loses them, as an interface would.
            let _ = rustix::net::send(&self.packets, &frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Sends what waits, as far as the other sides take it.
    fn flush(&mut self) {
        let mut lost = Vec::new();
        for (&id, link) in &mut self.links {
            let Some(session) = self.agent.session(id) else { continue };
            while !session.waiting().is_empty() {
                match link.stream.write(session.waiting()) {
                    Ok(sent) => session.sent(sent),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => {
                        lost.push((id, error.to_string()));
                        break;
                    }
                }
            }
            if let Some(ended) = session.ended() {
                lost.push((id, ended.to_string()));
            }
        }
        for (id, problem) in lost {
            self.lose(id, problem);
        }
    }

    fn lose(&mut self, id: SessionId, problem: String) {
        let Some(link) = self.links.remove(&id) else { return };
        self.agent.disconnect(id);
        let now = Instant::now();
        if let Some(dialed) = link.controller.and_then(|place| self.dialed.get_mut(place)) {
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
        let mut silent = Vec::new();
        for (&id, link) in self.links.iter_mut().filter(|(_, link)| link.controller.is_some()) {
            let silence = now.saturating_duration_since(link.heard);
            let Some(session) = self.agent.session(id) else { continue };
            if silence >= GIVE_UP_AFTER {
                silent.push(id);
            } else if silence >= PROBE_AFTER && !link.is_probed && session.is_greeted() {
                session.probe();
                link.is_probed = true;
            }
            if session.is_greeted()
                && let Some(dialed) = link.controller.and_then(|place| self.dialed.get_mut(place))
            {
                (dialed.wait, dialed.problem) = (FIRST_WAIT, None);
            }
        }
        for id in silent {
            self.lose(id, format!("it said nothing for {} s", GIVE_UP_AFTER.as_secs()));
        }
    }

    fn tell_report(&mut self) {
        let controllers = self.dialed.iter().map(|dialed| {
            let is_connected = match dialed.state {
                Dialing::Connected(id) => self.agent.session(id).is_some_and(|session| session.is_greeted()),
                _ => false,
            };
            let problem = dialed.problem.clone().filter(|_| !is_connected);
            ControllerReport { address: dialed.address.to_string(), is_connected, problem }
        });
        let controllers = controllers.collect();
        let report = Report {
            controllers,
            tools: self.links.values().filter(|link| link.controller.is_none()).count(),
            flows: self.agent.state().flows(),
            dropped_news: self.agent.dropped_news(),
        };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_controllers_are_read_and_shown() {
        for (text, shown) in [
            ("tcp:127.0.0.1:6653", "tcp:127.0.0.1:6653"),
            ("tcp:lab.example", "tcp:lab.example:6653"),
            ("tcp:[::1]:6633", "tcp:[::1]:6633"),
            ("tcp:[::1]", "tcp:[::1]:6653"),
        ] {
            assert_eq!(
                text.parse::<ControllerAddress>().map(|address| address.to_string()),
                Ok(shown.to_owned())
            );
        }
        for text in [
            "",
            "127.0.0.1:6653",
            "tcp:",
            "tcp::1",
            "tcp:a:0",
            "tcp:a:x",
            "tcp:a b:1",
            "tcp:[::1",
            "tcp:[::1]x",
        ] {
            let refused = text.parse::<ControllerAddress>().unwrap_err();
            assert!(refused.contains("tcp:HOST:PORT"), "{text}: {refused}");
        }
    }
}
