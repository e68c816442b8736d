//! Connections: their output and timeouts.

use std::io::{ErrorKind, Result};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::connection_limit::RefusalCause;
use crate::dialing::CONNECT_WITHIN;
use crate::session::OpenFlowSession;
use crate::stream::Stream;

/// Silence after which a remote peer gets a probe (echo request).
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// Silence after which a remote peer counts as gone.
const GIVE_UP_AFTER: Duration = Duration::from_secs(15);
/// Time for which a tool of this machine may leave an answer unread: users read page by page.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: Stream,
    /// Index of the controller in the configuration; `None` for a tool.
    pub(crate) controller: Option<usize>,
    /// Address of a tool, if it connected by TCP.
    pub(crate) from: Option<SocketAddr>,
    since: Instant,
    /// Time at which the peer last sent or accepted something.
    heard: Instant,
    is_probed: bool,
    /// Whether output was waiting for room at the last attempt.
    is_blocked: bool,
}

impl Link {
    pub(crate) fn new(stream: Stream, controller: Option<usize>, from: Option<SocketAddr>) -> Self {
        let now = Instant::now();
        Self { stream, controller, from, since: now, heard: now, is_probed: false, is_blocked: false }
    }

    /// Whether this is the connection of an accepted tool.
    pub(crate) fn is_tool(&self) -> bool {
        self.controller.is_none() && !self.stream.is_handshaking()
    }

    /// Whether this is the connection of a tool of this machine.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        self.controller.is_none() && self.from.is_none()
    }

    /// Sends waiting output, as far as the peer accepts it.
    ///
    /// # Errors
    /// The error that ends the connection.
    pub(crate) fn send(&mut self, session: &mut OpenFlowSession, now: Instant) -> Result<()> {
        match self.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let mut has_taken = false;
        let was_blocked = std::mem::take(&mut self.is_blocked);
        while !session.waiting().is_empty() {
            match self.stream.write(session.waiting()) {
                Ok(sent) => {
                    session.sent(sent);
                    has_taken = true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        // A probe that the kernel accepts is not a sign of life. Accepted output is one if the kernel had no room
        // before, or if it is part of a list: programs do not answer probes while they read a list.
        if session.take_spoken() || has_taken && (was_blocked || session.is_listing()) {
            (self.heard, self.is_probed) = (now, false);
        }
        Ok(())
    }

    /// Returns the cause, and its text, if this connection has timed out. Sends a probe to a silent peer.
    pub(crate) fn keep_time(
        &mut self,
        session: &mut OpenFlowSession,
        now: Instant,
    ) -> Option<(RefusalCause, String)> {
        let over =
            |cause, what: &str, within: Duration| Some((cause, format!("it {what} {} s", within.as_secs())));
        if !session.is_greeted {
            if now.saturating_duration_since(self.since) < CONNECT_WITHIN {
                return None;
            }
            return match self.stream.is_handshaking() {
                true => over(RefusalCause::Tls, "did not finish the TLS handshake within", CONNECT_WITHIN),
                false => over(RefusalCause::Greeting, "did not greet within", CONNECT_WITHIN),
            };
        }
        let silence = now.saturating_duration_since(self.heard);
        let limit = if self.is_of_this_machine() { READ_WITHIN } else { GIVE_UP_AFTER };
        if self.is_blocked && silence >= limit {
            return over(RefusalCause::Unread, "did not read what waits for it for", limit);
        }
        if self.is_of_this_machine() {
            return None;
        }
        if silence >= GIVE_UP_AFTER {
            return over(RefusalCause::Silence, "sent nothing for", GIVE_UP_AFTER);
        }
        if silence >= PROBE_AFTER && !self.is_probed {
            session.probe();
            self.is_probed = true;
        }
        None
    }
}
