//! Handle of a port in a program.

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
use crate::waiter::{self, Wait, Waiter, wait_any};

/// Options for opening a port; options in its name (`@slots=256`) take precedence.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Number of queues; by default 1, and for an interface the number of its queues.
    pub queues: Option<u16>,
    /// Slots per ring, 4 to 4096; 1024 by default.
    pub slots: Option<u32>,
    /// Size of a buffer, bytes, a multiple of 64 up to 65536; 2048 by default.
    pub buffer_bytes: Option<u32>,
    /// Buffers besides those in the slots.
    pub extra_buffers: u32,
    /// Pages of the region.
    pub huge_pages: HugePages,
    /// Socket of the daemon; by default `$RINGROAD_SOCKET` or the usual path.
    pub socket: Option<PathBuf>,
    /// Whether to fail if no daemon runs, instead of starting one.
    pub no_start: bool,
    /// Whether to continue when the daemon ends and comes back.
    ///
    /// No frames move in the meantime: syncs find nothing, waits continue. Then the port is opened again under its
    /// name, with the same options and new, empty rings: after every sync and wait call [`TxRing::available`] and
    /// [`RxRing::available`] again. Frames in the old rings are lost; [`Port::reconnections`] counts transmit slots
    /// that were lost. A daemon that was started on demand is started again. If a user or a service manager has started
    /// the daemon, the port waits. Buffers that a program holds besides those in slots were of the old region.
    ///
    /// A port that is detached ends nevertheless, and so does a port that the next daemon refuses permanently. Ports
    /// without a daemon ignore this option.
    pub reconnect: bool,
}

impl OpenOptions {
    /// Properties of the port itself, for the request to the daemon.
    pub(crate) fn properties(&self) -> PortProperties {
        let Self { queues, slots, buffer_bytes, extra_buffers, huge_pages, .. } = *self;
        PortProperties { queues, slots, buffer_bytes, extra_buffers, huge_pages, ..PortProperties::default() }
    }
}

/// Number of reconnections to a daemon ([`OpenOptions::reconnect`]), and lost slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Reconnections {
    /// Number of reconnections.
    pub count: u64,
    /// Number of transmit slots that were handed over and had not come back when their ring was replaced. Their frames
    /// are lost, except those that the daemon delivered without being able to report that. Slots that a receiver had
    /// not seen yet are not included, since their number is unknown.
    pub unacknowledged_slots: u64,
}

impl Reconnections {
    /// Whether no reconnection happened.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.count == 0
    }
}

/// Properties of an open port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// Full name of the port.
    pub name: String,
    /// Driver that serves the port.
    pub driver: String,
    /// The mechanism in use, in words.
    pub mode: String,
    /// Longest frame that the port sends, bytes without FCS: it fits the rings, and the device behind the port. The
    /// device's limit is that of the moment of opening, when an interface had a certain MTU. A longer frame that fits
    /// the rings is dropped as `too_long`.
    pub max_frame_bytes: usize,
    /// Index of the port on its switch; `None` if it is on no switch.
    pub switch_index: Option<u8>,
}

/// An open port. Dropping it ends the binding; frames synced before are still forwarded.
///
/// A port belongs to the process that opened it. In a child of fork(2) each sync, check and wait of the copy fails with
/// [`PortError::OtherProcess`], its buffers read as zeros, and dropping it changes nothing for the parent. The child
/// can open ports of its own.
#[derive(Debug)]
pub struct Port {
    info: PortInfo,
    queues: Vec<Queue>,
    waiter: Waiter,
}

impl Port {
    /// Opens the port `name`. Starts the daemon if the port needs one and none runs.
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

    /// A port with these queues. The limit in `info` is that of the device; there is none if it is the greatest number.
    pub(crate) fn new(mut info: PortInfo, mut queues: Vec<Queue>) -> Result<Self, OpenError> {
        for queue in &mut queues {
            info.max_frame_bytes = info.max_frame_bytes.min(queue.tx().max_frame_bytes());
        }
        let waiter = if queues.iter().any(Queue::is_renewable) {
            // The port's waiter watches the waiters of the queues: a renewal replaces the events of a queue, but not
            // its waiter.
            Waiter::new(queues.iter().map(AsFd::as_fd), None)
        } else {
            let binding = queues.first().map(|queue| &*queue.binding);
            Waiter::new(queues.iter().flat_map(Queue::events), binding)
        };
        let waiter = waiter
            .map_err(|source| OpenError::System { what: "making an epoll set", source: source.into() })?;
        Ok(Self { info, queues, waiter })
    }

    /// Number of reconnections to a daemon, and lost slots.
    #[must_use]
    pub fn reconnections(&self) -> Reconnections {
        self.queues.first().map(Queue::reconnections).unwrap_or_default()
    }

    /// Actual properties of the port.
    #[must_use]
    pub fn info(&self) -> &PortInfo {
        &self.info
    }

    /// All queues of the port.
    pub fn queues(&mut self) -> &mut [Queue] {
        &mut self.queues
    }

    /// Splits the port into its queues, each of which may move to a thread of its own. The binding lives until the last
    /// queue is dropped.
    #[must_use]
    pub fn into_queues(self) -> Vec<Queue> {
        self.queues
    }

    /// The first queue.
    #[inline]
    pub fn queue(&mut self) -> &mut Queue {
        // A port has at least one queue: both ways to make a port refuse less.
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

    /// Syncs the rings of all queues.
    ///
    /// # Errors
    /// Errors of [`TxRing::sync`].
    pub fn sync(&mut self) -> Result<(), PortError> {
        self.queues.iter_mut().try_for_each(Queue::sync)
    }

    /// Checks all queues, as [`Queue::check`] does for one.
    ///
    /// # Errors
    /// Errors of [`Queue::check`].
    pub fn check(&mut self) -> Result<(), PortError> {
        self.queues.iter_mut().try_for_each(Queue::check)
    }

    /// Whether any queue is ready for `interest`, as of the last sync.
    #[must_use]
    pub fn is_ready(&self, interest: Interest) -> bool {
        self.queues.iter().any(|queue| queue.is_ready(interest))
    }

    /// Prepares a wait on all queues, as [`Queue::arm`] does for one.
    ///
    /// # Errors
    /// Errors of [`TxRing::sync`].
    pub fn arm(&mut self, interest: Interest) -> Result<bool, PortError> {
        waiter::arm(&mut self.queues, interest)
    }

    /// Ends what [`Port::arm`] began, as [`Queue::disarm`] does for one queue.
    ///
    /// # Errors
    /// Errors of [`TxRing::sync`].
    pub fn disarm(&mut self) -> Result<(), PortError> {
        waiter::disarm(&mut self.queues)
    }

    /// Waits until any queue is ready, as [`Queue::wait`] does for one.
    ///
    /// # Errors
    /// Errors of [`TxRing::sync`].
    pub fn wait(&mut self, interest: Interest, timeout: Option<Duration>) -> Result<bool, PortError> {
        wait_any(&mut [self.awaiting(interest)], timeout)
    }

    /// Makes this port one of several that a program waits on by [`wait_any`].
    pub fn awaiting(&mut self, interest: Interest) -> Wait<'_> {
        Wait::new(&mut self.queues, Some(&self.waiter), interest)
    }
}

impl AsFd for Port {
    /// Descriptor that is readable after [`Port::arm`] when there is something. It is an epoll descriptor, and can be
    /// added to any event loop.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}
