//! Waits for the other side of a ring: an epoll set of eventfds, and of the connection whose end means that the daemon
//! is gone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ringroad_ring::epoll_wait::{epoll_wait, timespec};
use ringroad_ring::fork::ProcessMark;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::error::PortError;
use crate::queue::{Interest, Queue};

/// Resources that a port's rings need, dropped with the last ring.
#[derive(Debug)]
pub(crate) struct Binding {
    /// Connection to the daemon; `None` in embedded mode.
    pub(crate) connection: Option<ringroad_control::Connection>,
    /// Value that ends an embedded port when it is dropped.
    pub(crate) _embedded: Option<crate::embedded::EmbeddedBinding>,
    /// Number of times that the port was opened again before.
    pub(crate) generation: u64,
    /// Whether the port was opened again since.
    pub(crate) is_superseded: AtomicBool,
    /// Process that opened the port.
    pub(crate) process: ProcessMark,
}

impl Binding {
    pub(crate) fn new(
        connection: Option<ringroad_control::Connection>,
        embedded: Option<crate::embedded::EmbeddedBinding>,
        generation: u64,
    ) -> Self {
        Self {
            connection,
            _embedded: embedded,
            generation,
            is_superseded: AtomicBool::new(false),
            process: ProcessMark::here(),
        }
    }

    /// Fails in a child of the process that opened the port: the descriptors are also its parent's.
    pub(crate) fn expect_own_process(&self) -> Result<(), PortError> {
        if self.process.is_here() { Ok(()) } else { Err(PortError::OtherProcess) }
    }

    /// Whether the daemon has closed the connection.
    pub(crate) fn is_gone(&self) -> bool {
        let Some(connection) = &self.connection else { return false };
        let mut set = [PollFd::new(connection, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut set, Some(&now)), Ok(ready) if ready > 0)
    }
}

const CONNECTION: u64 = u64::MAX;
const OTHER: u64 = 0;
/// Maximum sleep of a program while a datapath that it steps holds frames back.
const UNANNOUNCED_POLL: Duration = Duration::from_millis(1);

/// An epoll set over the queues of a port, or one of them.
#[derive(Debug)]
pub(crate) struct Waiter {
    set: OwnedFd,
}

/// Reason why a wait ended.
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
                // The queues of a device share an eventfd, which is in the set already.
                Err(rustix::io::Errno::EXIST) => {}
                added => added?,
            }
        }
        if let Some(binding) = binding {
            waiter.watch_connection(binding)?;
        }
        Ok(waiter)
    }

    /// Makes `event` end waits.
    pub(crate) fn watch(&self, event: impl AsFd) -> rustix::io::Result<()> {
        epoll::add(&self.set, event, epoll::EventData::new_u64(OTHER), epoll::EventFlags::IN)
    }

    /// Makes the end of the connection end waits.
    pub(crate) fn watch_connection(&self, binding: &Binding) -> rustix::io::Result<()> {
        let Some(connection) = &binding.connection else { return Ok(()) };
        let flags = epoll::EventFlags::RDHUP;
        epoll::add(&self.set, connection, epoll::EventData::new_u64(CONNECTION), flags)
    }

    /// Stops watching `event`, so that it no longer ends waits.
    pub(crate) fn forget(&self, event: impl AsFd) -> rustix::io::Result<()> {
        epoll::delete(&self.set, event)
    }

    /// Waits for any event. A signal ends the wait, so that programs that watch a flag see it.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<Woken, PortError> {
        let empty = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [empty; 4];
        let ready = match epoll_wait(&self.set, &mut events, timeout) {
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

/// A port or a queue, and the condition that a program waits for there: see [`wait_any`].
pub struct Wait<'a> {
    queues: &'a mut [Queue],
    /// Waiter of the port; `None` for a wait on a queue alone, which has one.
    port: Option<&'a Waiter>,
    interest: Interest,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(queues: &'a mut [Queue], port: Option<&'a Waiter>, interest: Interest) -> Self {
        Self { queues, port, interest }
    }

    fn is_ready(&self) -> bool {
        self.queues.iter().any(|queue| queue.is_ready(self.interest))
    }

    /// Time until the datapath behind the queues, if syncs step it, has work that sends no wake-up. All queues of a
    /// port are in one datapath, so the first one knows the time.
    fn due_in(&self) -> Option<Duration> {
        self.queues.first().and_then(|queue| queue.rx.due_in())
    }

    /// Sleeps until an event, at most for `limit`. Queues that survive the daemon's end do what is needed at their next
    /// check.
    fn sleep(&self, limit: Option<Duration>) -> Result<Woken, PortError> {
        match self.waiter().wait(limit) {
            Ok(Woken::DaemonGone) if self.queues.iter().any(Queue::is_renewable) => Ok(Woken::Event),
            woken => woken,
        }
    }

    fn waiter(&self) -> &Waiter {
        self.port.unwrap_or_else(|| &self.queues[0].waiter)
    }
}

/// Prepares a wait on all queues of a port, or on a queue alone, as [`Queue::arm`] does.
pub(crate) fn arm(queues: &mut [Queue], interest: Interest) -> Result<bool, PortError> {
    if let [queue] = queues {
        return queue.arm(interest);
    }
    let mut ready = false;
    for queue in &mut *queues {
        ready |= queue.arm(interest)?;
    }
    if ready {
        disarm(queues)?;
    }
    Ok(ready)
}

/// Ends what [`arm`] began.
pub(crate) fn disarm(queues: &mut [Queue]) -> Result<(), PortError> {
    queues.iter_mut().try_for_each(Queue::disarm)
}

impl std::fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait").field("interest", &self.interest).finish_non_exhaustive()
    }
}

/// Sleeps until one of several ports or queues is ready; [`Port::is_ready`](crate::Port::is_ready) shows which. Returns
/// `Ok(false)` if `timeout` passes, or a signal handler runs, before that. `None` waits without limit, but without any
/// port the result is `Ok(false)` at once.
///
/// ```
/// use std::time::Duration;
///
/// use ringroad::{Embedded, Interest, wait_any};
///
/// let switch = Embedded::new();
/// let (mut a, mut b) = (switch.open("vale0:a")?, switch.open("vale0:b")?);
/// let mut sender = switch.open("vale0:sender")?;
/// sender.tx().send(&[0xFF; 60])?;
/// sender.tx().sync()?;
///
/// let both = &mut [a.awaiting(Interest::Rx), b.awaiting(Interest::Rx)];
/// assert!(wait_any(both, Some(Duration::from_secs(10)))?);
/// assert!(a.is_ready(Interest::Rx) || b.is_ready(Interest::Rx));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Errors of [`TxRing::sync`](crate::TxRing::sync), for any of the ports and queues. Announcements at the others are
/// withdrawn then.
pub fn wait_any(waits: &mut [Wait<'_>], timeout: Option<Duration>) -> Result<bool, PortError> {
    if waits.is_empty() && timeout.is_none() {
        return Ok(false);
    }
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        if arm_all(waits)? {
            return Ok(true);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A manual clock may stand still until it is set, so the sleep is bounded.
        let due = waits.iter().filter_map(Wait::due_in).min();
        let due = due.map(|due| due.min(UNANNOUNCED_POLL)).filter(|&due| left.is_none_or(|left| due < left));
        let woken = sleep(waits, due.or(left));
        disarm_all(waits)?;
        if waits.iter().any(Wait::is_ready) {
            return Ok(true);
        }
        match woken? {
            Woken::Timeout if due.is_some() => {}
            Woken::Timeout | Woken::Signal => return Ok(false),
            Woken::DaemonGone => return Err(PortError::DaemonGone),
            Woken::Event => {}
        }
    }
}

/// Announces the sleep at all objects. Returns `Ok(true)`, and leaves no announcement, if one is ready already.
fn arm_all(waits: &mut [Wait<'_>]) -> Result<bool, PortError> {
    for next in 0..waits.len() {
        let Some((wait, armed)) = waits.get_mut(..=next).and_then(<[_]>::split_last_mut) else { break };
        let ready = arm(wait.queues, wait.interest);
        if !matches!(ready, Ok(false)) {
            disarm_all(armed)?;
            return ready;
        }
    }
    Ok(false)
}

/// Withdraws the announcements of all objects, even if one fails.
fn disarm_all(waits: &mut [Wait<'_>]) -> Result<(), PortError> {
    waits.iter_mut().map(|wait| disarm(wait.queues)).fold(Ok(()), Result::and)
}

/// Sleeps until an event at any object.
fn sleep(waits: &[Wait<'_>], limit: Option<Duration>) -> Result<Woken, PortError> {
    if let [wait] = waits {
        return wait.sleep(limit);
    }
    let mut set: Vec<PollFd<'_>> =
        waits.iter().map(|wait| PollFd::new(wait.waiter(), PollFlags::IN)).collect();
    match poll(&mut set, limit.map(timespec).as_ref()) {
        Err(rustix::io::Errno::INTR) => return Ok(Woken::Signal),
        Ok(0) => return Ok(Woken::Timeout),
        polled => polled?,
    };
    for (wait, event) in waits.iter().zip(&set) {
        if !event.revents().is_empty() && wait.sleep(Some(Duration::ZERO))? == Woken::DaemonGone {
            return Ok(Woken::DaemonGone);
        }
    }
    Ok(Woken::Event)
}
