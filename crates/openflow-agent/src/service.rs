//! The thread that speaks OpenFlow for one switch, and its control by the owner.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringroad_openflow::action::PortNo;
use rustix::event::{EventfdFlags, eventfd};

use crate::address::ControllerAddress;
use crate::agent::{Agent, AgentCounters, AgentState, FailMode, OpenFlowPort};
use crate::agent_thread::{AgentThread, Owner};
use crate::connection_limit::RefusedTools;
use crate::tls::Tls;

/// Maximum time until the thread answers its owner.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A connection to a controller, for reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerStatus {
    /// Address of the controller.
    pub address: String,
    /// Whether both sides have sent a hello.
    pub is_connected: bool,
    /// Reason of the last failure or disconnection.
    pub problem: Option<String>,
}

/// State of the thread, for reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentReport {
    /// Controllers, in the order of the configuration.
    pub controllers: Vec<ControllerStatus>,
    /// Number of connected tools.
    pub tools: usize,
    /// Tools that were refused.
    pub refusals: RefusedTools,
    /// Number of flow entries.
    pub flows: usize,
    /// Charged memory of the entries, groups and meters, bytes.
    pub memory_bytes: u64,
    /// Maximum of the charged memory, bytes.
    pub memory_limit_bytes: u64,
    /// Counts of the agent.
    pub counted: AgentCounters,
}

/// The controllers of a switch.
#[derive(Debug, Default)]
pub struct Controllers {
    pub addresses: Vec<ControllerAddress>,
    /// TLS settings for controllers that use TLS, and for tools.
    pub tls: Option<Tls>,
}

/// A command of the switch's owner to the thread.
#[derive(Debug)]
pub(crate) enum Command {
    SetPort(PortNo, Box<OpenFlowPort>),
    RemovePort(PortNo),
    Controllers(Controllers, FailMode),
    Settle(Sender<()>),
    Freeze(Sender<(AgentState, Vec<u8>)>),
    Counts(Sender<Vec<u8>>),
    Thaw,
    End,
}

/// The OpenFlow thread of a switch. Dropping this value ends the thread.
#[derive(Debug)]
pub struct OpenFlowService {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    report: Arc<Mutex<AgentReport>>,
    thread: Option<JoinHandle<()>>,
}

/// Listening sockets.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Listeners for tools of this machine.
    pub unix: Vec<UnixListener>,
    /// Listeners for tools by TCP.
    pub tcp: Vec<TcpListener>,
    /// Listeners for tools by TLS.
    pub tls: Vec<TcpListener>,
}

impl OpenFlowService {
    /// Starts the thread. `packets` is the other end of the switch's port for controllers, and each frame is a packet.
    /// With `remains`, the time of an earlier agent continues. The thread calls `give_back` after much memory was
    /// freed.
    ///
    /// # Errors
    /// The kernel's error, if there is no thread or descriptor.
    pub fn start(
        agent: Agent,
        controllers: Controllers,
        listeners: Listeners,
        packets: OwnedFd,
        remains: Option<&AgentState>,
        give_back: fn(),
    ) -> std::io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (commands, received) = channel();
        let report = Arc::new(Mutex::new(AgentReport::default()));
        for listener in &listeners.unix {
            listener.set_nonblocking(true)?;
        }
        for listener in listeners.tcp.iter().chain(&listeners.tls) {
            listener.set_nonblocking(true)?;
        }
        let owner =
            Owner { commands: received, wake: Arc::clone(&wake), report: Arc::clone(&report), give_back };
        let turn = AgentThread::new(agent, controllers, listeners, packets, owner, remains);
        let thread = std::thread::Builder::new().name("openflow".to_owned()).spawn(move || turn.run())?;
        Ok(Self { commands, wake, report, thread: Some(thread) })
    }

    fn tell(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Waits for the answer to a command. `None` if there is none within this time.
    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command, within: Duration) -> Option<T> {
        let (reply, answer) = channel();
        self.tell(command(reply));
        answer.recv_timeout(within).ok()
    }

    /// Adds a port, or updates it.
    pub fn set_port(&self, number: PortNo, port: OpenFlowPort) {
        self.tell(Command::SetPort(number, Box::new(port)));
    }

    pub fn remove_port(&self, number: PortNo) {
        self.tell(Command::RemovePort(number));
    }

    /// Waits until the workers see all ports as set before. Returns false if this takes longer than `within`.
    #[must_use]
    pub fn settle(&self, within: Duration) -> bool {
        self.ask(Command::Settle, within).is_some()
    }

    /// Sets other controllers, another fail mode, or other certificates. Connections to controllers that stay
    /// configured continue.
    pub fn set_controllers(&self, controllers: Controllers, fail_mode: FailMode) {
        self.tell(Command::Controllers(controllers, fail_mode));
    }

    /// Freezes the thread. Returns the state of the agent, and the records of the tables' image, with which another
    /// process can continue. Returns `None` if the thread does not answer.
    #[must_use]
    pub fn freeze(&self) -> Option<(AgentState, Vec<u8>)> {
        self.ask(Command::Freeze, ANSWER_WITHIN)
    }

    /// Returns the counts of everything in the image, or `None` if the thread is not frozen or does not answer.
    #[must_use]
    pub fn counts(&self) -> Option<Vec<u8>> {
        self.ask(Command::Counts, ANSWER_WITHIN)
    }

    /// Lets a frozen thread continue.
    pub fn thaw(&self) {
        self.tell(Command::Thaw);
    }

    /// Current state of the thread.
    #[must_use]
    pub fn report(&self) -> AgentReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for OpenFlowService {
    fn drop(&mut self) {
        self.tell(Command::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
