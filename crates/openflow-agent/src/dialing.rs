//! A configured controller, and how the switch connects to it.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::address::ControllerAddress;
use crate::agent::SessionId;

/// Maximum time until a connection is established, and then until both sides have sent a hello.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Time after which a failed connection is retried. It doubles with each failure up to the longest wait.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// A controller of the configuration, and its connection.
#[derive(Debug)]
pub(crate) struct Dialed {
    pub(crate) address: ControllerAddress,
    state: Dialing,
    wait: Duration,
    problem: Option<String>,
}

#[derive(Debug)]
enum Dialing {
    /// The next attempt is at this time.
    Waiting(Instant),
    /// A thread resolves the name and connects, which may take long.
    Connecting(Receiver<Result<TcpStream, String>>),
    Connected(SessionId),
}

impl Dialed {
    pub(crate) fn new(address: ControllerAddress, now: Instant) -> Self {
        Self { address, state: Dialing::Waiting(now), wait: FIRST_WAIT, problem: None }
    }

    /// Continues to connect, in a thread that signals `wake` when it is done. Returns a new connection or the error;
    /// `None` while the attempt runs.
    pub(crate) fn dial(&mut self, wake: &Arc<OwnedFd>, now: Instant) -> Option<Result<TcpStream, String>> {
        match &self.state {
            Dialing::Waiting(at) if *at <= now => {
                let (done, result) = channel();
                let (address, wake) = (self.address.clone(), Arc::clone(wake));
                let connecting = move || {
                    let _ = done.send(connect(&address));
                    let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
                };
                match std::thread::Builder::new().name("openflow-dial".to_owned()).spawn(connecting) {
                    Ok(_) => self.state = Dialing::Connecting(result),
                    Err(error) => return Some(Err(error.to_string())),
                }
            }
            Dialing::Connecting(result) => match result.try_recv() {
                Ok(result) => return Some(result),
                Err(TryRecvError::Disconnected) => return Some(Err("the attempt was given up".to_owned())),
                Err(TryRecvError::Empty) => {}
            },
            Dialing::Waiting(_) | Dialing::Connected(_) => {}
        }
        None
    }

    /// Records the session of the established connection.
    pub(crate) fn connected(&mut self, id: SessionId) {
        self.state = Dialing::Connected(id);
    }

    /// Resets the waiting time, since both sides have sent a hello.
    pub(crate) fn greeted(&mut self) {
        (self.wait, self.problem) = (FIRST_WAIT, None);
    }

    /// Records that there is no connection, or no longer.
    pub(crate) fn lost(&mut self, problem: String, now: Instant) {
        self.problem = Some(problem);
        self.state = Dialing::Waiting(now + self.wait);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }

    /// Session of the connection, if there is one.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.state {
            Dialing::Connected(id) => Some(id),
            _ => None,
        }
    }

    /// Time of the next attempt.
    pub(crate) fn next_try(&self) -> Option<Instant> {
        match self.state {
            Dialing::Waiting(at) => Some(at),
            _ => None,
        }
    }

    /// Reason why there is no connection.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

fn connect(address: &ControllerAddress) -> Result<TcpStream, String> {
    let ControllerAddress { host, port, .. } = address;
    let addresses = (host.as_str(), *port).to_socket_addrs().map_err(|error| error.to_string())?;
    let mut last = format!("{host} has no address");
    for address in addresses.collect::<Vec<SocketAddr>>() {
        match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = format!("{address}: {error}"),
        }
    }
    Err(last)
}
