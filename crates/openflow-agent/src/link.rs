//! A connection: what goes out by it, and when its time is over.

use std::io::{ErrorKind, Result};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::connection_limit::RefusalCause;
use crate::dialing::CONNECT_WITHIN;
use crate::session::OpenFlowSession;
use crate::stream::Stream;

/// A remote peer that was silent for this long gets a probe (echo request).
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// A remote peer that was silent for this long counts as gone.
const GIVE_UP_AFTER: Duration = Duration::from_secs(15);
/// A tool of this machine may leave an answer unread for this long: users read page by page.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: Stream,
    /// Of which controller, by its place in the settings.
    pub(crate) controller: Option<usize>,
    /// Where a tool came from, by TCP.
    pub(crate) from: Option<SocketAddr>,
    since: Instant,
    /// When the peer last sent or accepted something.
    heard: Instant,
    is_probed: bool,
    /// Whether something waited for room the last time.
    is_blocked: bool,
}

/// Why the time of a connection is over.
#[derive(Debug)]
pub(crate) struct Expired {
    pub(crate) cause: RefusalCause,
    pub(crate) problem: String,
}

impl Link {
    pub(crate) fn new(stream: Stream, controller: Option<usize>, from: Option<SocketAddr>) -> Self {
        let now = Instant::now();
        Self { stream, controller, from, since: now, heard: now, is_probed: false, is_blocked: false }
    }

    /// Whether it is a connection from an accepted tool.
    pub(crate) fn is_tool(&self) -> bool {
        self.controller.is_none() && !self.stream.is_handshaking()
    }

    /// Whether it is of a tool of this machine.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        self.controller.is_none() && self.from.is_none()
    }

    /// Sends waiting output, as far as the peer accepts it.
    ///
    /// # Errors
    /// Why the connection must end.
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
        // A probe that the kernel accepts is not a sign of life. Output that it accepts after it was full is one, and
        // so is each part of a list: programs do not answer probes while they read a list.
        if session.take_spoken() || has_taken && (was_blocked || session.is_listing()) {
            (self.heard, self.is_probed) = (now, false);
        }
        Ok(())
    }

    /// Whether this connection has timed out. Sends a probe to a silent peer.
    pub(crate) fn keep_time(&mut self, session: &mut OpenFlowSession, now: Instant) -> Option<Expired> {
        let over = |cause, what: &str, within: Duration| {
            Some(Expired { cause, problem: format!("it {what} {} s", within.as_secs()) })
        };
        if !session.is_greeted() {
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
