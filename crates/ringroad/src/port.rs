//! A program's handle of a port.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use ringroad_control::message::PortProperties;
use ringroad_drivers::catalogue::port_name::PortName;
use ringroad_ring::region::HugePages;
use serde::Serialize;

use crate::error::{OpenError, PortError};
use crate::queue::{Interest, Queue};
use crate::ring::{RxRing, TxRing};
use crate::waiter::{Wait, Waitable, Waiter, wait_any};

/// Options for opening a port; options in its name (`@slots=256`) take precedence.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Number of queues; by default 1, and for an interface as many as it has.
    pub queues: Option<u16>,
    /// Slots per ring, 4 to 4096; 1024 by default.
    pub slots: Option<u32>,
    /// Size of a buffer, bytes, a multiple of 64 up to 65536; 2048 by default.
    pub buffer_bytes: Option<u32>,
    /// Buffers besides those in the slots.
    pub extra_buffers: u32,
    /// Pages of the region.
    pub huge_pages: HugePages,
    /// Socket of the daemon; else `$RINGROAD_SOCKET` or the usual place.
    pub socket: Option<PathBuf>,
    /// Fail where no daemon runs instead of starting one.
    pub no_start: bool,
    /// Continue when the daemon ends and comes back.
    ///
    /// Nothing moves in the meantime: syncs find nothing, waits continue. Then the port is opened again under its name,
    /// with the same options and new, empty rings: after every sync and wait call [`TxRing::available`] and
    /// [`RxRing::available`] again. What was in the old rings is lost; [`Port::reconnections`] counts it. A daemon that
    /// was started on demand is started again; for one that a user or a service manager has started the port waits.
    /// Buffers that a program holds besides those in slots were of the old region.
    ///
    /// A port that is detached ends nevertheless, and so does a port that the next daemon refuses for good. Ports
    /// without a daemon ignore this.
    pub reconnect: bool,
}

impl OpenOptions {
    /// The requested properties of the port itself, for the request to the daemon.
    pub(crate) fn properties(&self) -> PortProperties {
        let Self { queues, slots, buffer_bytes, extra_buffers, huge_pages, .. } = *self;
        PortProperties { queues, slots, buffer_bytes, extra_buffers, huge_pages, ..PortProperties::default() }
    }
}

/// How often a port got over a daemon's end ([`OpenOptions::reconnect`]), and at what cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Reconnections {
    /// How often.
    pub count: u64,
    /// Transmit slots that were handed over and had not come back when their ring was left: their frames are lost,
    /// apart from those that the daemon delivered without being able to report that. Slots that a receiver had not seen
    /// yet are not included, since their number is unknown.
    pub unacknowledged_slots: u64,
}

impl Reconnections {
    /// Whether there was none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.count == 0
    }
}

/// What a port turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// Full name.
    pub name: String,
    /// Driver that serves it.
    pub driver: String,
    /// The mechanism in use, in words.
    pub mode: String,
    /// Index on its switch.
    pub switch_index: Option<u8>,
}

/// An open port. Dropping it ends the binding: what was synced before is still forwarded.
#[derive(Debug)]
pub struct Port {
    info: PortInfo,
    queues: Vec<Queue>,
    waiter: Waiter,
}

impl Port {
    /// Opens the port `name`, starting the daemon where one is needed and none runs.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(name: &str) -> Result<Self, OpenError> {
        Self::open_with(name, &OpenOptions::default())
    }

    /// Opens the port `name` with options.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_with(name: &str, options: &OpenOptions) -> Result<Self, OpenError> {
        let parsed: PortName = name.parse()?;
        if ringroad_drivers::catalogue::is_own_device(&parsed.base) {
            return crate::embedded::open_device_port(&parsed, options);
        }
        crate::attach::open(name, options)
    }

    pub(crate) fn new(info: PortInfo, queues: Vec<Queue>) -> Result<Self, OpenError> {
        let waiter = if queues.iter().any(Queue::is_renewable) {
            // What ends the waits of a queue changes; the queue's own waiter stays.
            Waiter::new(queues.iter().map(AsFd::as_fd), None)
        } else {
            let binding = queues.first().map(|queue| &*queue.binding);
            Waiter::new(queues.iter().flat_map(Queue::events), binding)
        };
        let waiter = waiter
            .map_err(|source| OpenError::System { what: "making an epoll set", source: source.into() })?;
        Ok(Self { info, queues, waiter })
    }

    /// How often the port got over a daemon's end, and at what cost.
    #[must_use]
    pub fn reconnections(&self) -> Reconnections {
        self.queues.first().map(Queue::reconnections).unwrap_or_default()
    }

    /// The actual properties of the port.
    #[must_use]
    pub fn info(&self) -> &PortInfo {
        &self.info
    }

    /// All queues.
    pub fn queues(&mut self) -> &mut [Queue] {
        &mut self.queues
    }

    /// Splits the port into its queues, each of which may move to a thread of its own. The binding lives until the last
    /// of them is dropped.
    #[must_use]
    pub fn into_queues(self) -> Vec<Queue> {
        self.queues
    }

    /// The first queue.
    #[inline]
    pub fn queue(&mut self) -> &mut Queue {
        // A port has at least one queue: both ways to make one refuse less.
        &mut self.queues[0]
    }

    /// The transmit ring of the first queue.
    #[inline]
    pub fn tx(&mut self) -> &mut TxRing {
        &mut self.queue().tx
    }

    /// The receive ring of the first queue.
    #[inline]
    pub fn rx(&mut self) -> &mut RxRing {
        &mut self.queue().rx
    }

    /// Syncs all rings.
    ///
    /// # Errors
    /// As [`TxRing::sync`].
    pub fn sync(&mut self) -> Result<(), PortError> {
        self.queues.iter_mut().try_for_each(Queue::sync)
    }

    /// As [`Queue::check`], for all queues.
    ///
    /// # Errors
    /// As [`Queue::check`].
    pub fn check(&mut self) -> Result<(), PortError> {
        self.queues.iter_mut().try_for_each(Queue::check)
    }

    /// Whether any queue has what `interest` requests, as of the last sync.
    #[must_use]
    pub fn is_ready(&self, interest: Interest) -> bool {
        self.queues.iter().any(|queue| queue.is_ready(interest))
    }

    /// As [`Queue::arm`], for all queues.
    ///
    /// # Errors
    /// As [`TxRing::sync`].
    pub fn arm(&mut self, interest: Interest) -> Result<bool, PortError> {
        let mut ready = false;
        for queue in &mut self.queues {
            ready |= queue.arm(interest)?;
        }
        if ready {
            self.disarm()?;
        }
        Ok(ready)
    }

    /// As [`Queue::disarm`], for all queues.
    ///
    /// # Errors
    /// As [`TxRing::sync`].
    pub fn disarm(&mut self) -> Result<(), PortError> {
        self.queues.iter_mut().try_for_each(Queue::disarm)
    }

    /// As [`Queue::wait`], for all queues: ready when any of them is.
    ///
    /// # Errors
    /// As [`TxRing::sync`].
    pub fn wait(&mut self, interest: Interest, timeout: Option<Duration>) -> Result<bool, PortError> {
        wait_any(&mut [self.awaiting(interest)], timeout)
    }

    /// This port as one of several that a program waits on: [`wait_any`].
    pub fn awaiting(&mut self, interest: Interest) -> Wait<'_> {
        Wait::new(self, interest)
    }
}

impl Waitable for Port {
    fn arm(&mut self, interest: Interest) -> Result<bool, PortError> {
        Port::arm(self, interest)
    }

    fn disarm(&mut self) -> Result<(), PortError> {
        Port::disarm(self)
    }

    fn is_ready(&self, interest: Interest) -> bool {
        Port::is_ready(self, interest)
    }

    fn due_in(&self) -> Option<Duration> {
        // All queues of a port are of one datapath.
        self.queues.first().and_then(|queue| queue.rx.due_in())
    }

    fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    fn is_renewable(&self) -> bool {
        self.queues.iter().any(Queue::is_renewable)
    }
}

impl AsFd for Port {
    /// Readable after [`Port::arm`] when something has come. An epoll descriptor: add it to any event loop.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}
