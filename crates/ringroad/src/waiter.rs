//! Waits for the other side: an epoll set of eventfds, and of the connection whose end means that the daemon is gone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use crate::error::PortError;
use crate::queue::Interest;

/// What keeps a binding alive, dropped with the last ring of a port.
#[derive(Debug)]
pub(crate) struct Binding {
    /// The connection to the daemon; none in embedded mode.
    pub(crate) connection: Option<ringroad_control::Connection>,
    /// Ends an embedded port.
    pub(crate) _embedded: Option<crate::embedded::EmbeddedBinding>,
    /// How often the port was opened again before.
    pub(crate) generation: u64,
    /// The port was opened again since.
    pub(crate) is_superseded: AtomicBool,
}

impl Binding {
    pub(crate) fn new(
        connection: Option<ringroad_control::Connection>,
        embedded: Option<crate::embedded::EmbeddedBinding>,
        generation: u64,
    ) -> Self {
        Self { connection, _embedded: embedded, generation, is_superseded: AtomicBool::new(false) }
    }

    /// Whether the daemon has closed the connection.
    pub(crate) fn is_gone(&self) -> bool {
        let Some(connection) = &self.connection else { return false };
        let mut set = [rustix::event::PollFd::new(connection, rustix::event::PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut set, Some(&now)), Ok(ready) if ready > 0)
    }
}

const CONNECTION: u64 = u64::MAX;
const OTHER: u64 = 0;
/// How long a program sleeps at most while a datapath that it steps holds frames back.
const UNANNOUNCED_POLL: Duration = Duration::from_millis(1);

/// An epoll set over the queues of a port, or one of them.
#[derive(Debug)]
pub(crate) struct Waiter {
    set: OwnedFd,
}

/// What ended a wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Event,
    DaemonGone,
    Signal,
    Timeout,
}

impl Waiter {
    pub(crate) fn new<'a>(
        events: impl Iterator<Item = BorrowedFd<'a>>,
        binding: Option<&Binding>,
    ) -> rustix::io::Result<Self> {
        let waiter = Self { set: epoll::create(epoll::CreateFlags::CLOEXEC)? };
        for event in events {
            match waiter.watch(event) {
                // The queues of a device share a bell.
                Err(rustix::io::Errno::EXIST) => {}
                added => added?,
            }
        }
        if let Some(binding) = binding {
            waiter.watch_connection(binding)?;
        }
        Ok(waiter)
    }

    /// Lets `event` end waits.
    pub(crate) fn watch(&self, event: impl AsFd) -> rustix::io::Result<()> {
        epoll::add(&self.set, event, epoll::EventData::new_u64(OTHER), epoll::EventFlags::IN)
    }

    /// Lets the end of the connection end waits.
    pub(crate) fn watch_connection(&self, binding: &Binding) -> rustix::io::Result<()> {
        let Some(connection) = &binding.connection else { return Ok(()) };
        let flags = epoll::EventFlags::RDHUP;
        epoll::add(&self.set, connection, epoll::EventData::new_u64(CONNECTION), flags)
    }

    /// What was watched ends waits no more.
    pub(crate) fn forget(&self, event: impl AsFd) -> rustix::io::Result<()> {
        epoll::delete(&self.set, event)
    }

    /// Waits for any event. A signal ends the wait, so that programs which watch a flag see it.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<Woken, PortError> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let empty = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [empty; 4];
        let ready = match epoll::wait(&self.set, &mut events, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(Woken::Signal),
            result => result?,
        };
        if events.iter().take(ready).any(|event| event.data.u64() == CONNECTION) {
            return Ok(Woken::DaemonGone);
        }
        Ok(if ready == 0 { Woken::Timeout } else { Woken::Event })
    }
}

impl AsFd for Waiter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// What a program can wait on: a queue, or all queues of a port.
pub(crate) trait Waitable {
    fn arm(&mut self, interest: Interest) -> Result<bool, PortError>;
    fn disarm(&mut self) -> Result<(), PortError>;
    fn is_ready(&self, interest: Interest) -> bool;
    fn waiter(&self) -> &Waiter;
    /// Whether it gets over the daemon's end: the next look at it does what is needed.
    fn is_renewable(&self) -> bool;
    /// How long until the datapath behind it, if syncs step that, has something to do that wakes nobody.
    fn due_in(&self) -> Option<Duration>;

    /// Sleeps until ready; `Ok(false)` when the time is up or a signal came before that.
    fn wait_for(&mut self, interest: Interest, timeout: Option<Duration>) -> Result<bool, PortError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if self.arm(interest)? {
                return Ok(true);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // The clock by which it is due may be one that stands still until somebody moves it.
            let due = self
                .due_in()
                .map(|due| due.min(UNANNOUNCED_POLL))
                .filter(|&due| left.is_none_or(|left| due < left));
            let woken = self.waiter().wait(due.or(left));
            self.disarm()?;
            if self.is_ready(interest) {
                return Ok(true);
            }
            match woken? {
                Woken::Timeout if due.is_some() => {}
                Woken::Timeout | Woken::Signal => return Ok(false),
                Woken::DaemonGone if !self.is_renewable() => return Err(PortError::DaemonGone),
                Woken::Event | Woken::DaemonGone => {}
            }
        }
    }
}
