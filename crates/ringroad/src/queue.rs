//! A queue: one transmit and one receive ring, the unit that moves to a thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::error::PortError;
use crate::port::Reconnections;
use crate::renewal::RenewalQueue;
use crate::ring::{RxRing, TxRing, sync_both};
use crate::stepped::DeviceSleep;
use crate::waiter::{Binding, Wait, Waiter, wait_any};

/// Condition that a program waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Received frames are available.
    Rx,
    /// Free transmit slots are available.
    Tx,
    /// Received frames or free transmit slots are available.
    Both,
}

impl Interest {
    fn rx(self) -> bool {
        self != Self::Tx
    }

    fn tx(self) -> bool {
        self != Self::Rx
    }
}

/// One queue of a port.
#[derive(Debug)]
pub struct Queue {
    pub(crate) tx: TxRing,
    pub(crate) rx: RxRing,
    notify: OwnedFd,
    /// Sleep state of a device in this program, if there is one.
    device: Option<DeviceSleep>,
    pub(crate) waiter: Waiter,
    pub(crate) binding: Arc<Binding>,
    /// Queue's part in the renewal, if the port outlives the daemon.
    renewal: Option<RenewalQueue>,
    /// Whether the daemon is gone. The waiter then watches the timer of the next try, instead of the connection.
    is_lost: bool,
}

impl Queue {
    pub(crate) fn new(
        tx: TxRing,
        rx: RxRing,
        notify: OwnedFd,
        device: Option<DeviceSleep>,
        binding: &Arc<Binding>,
    ) -> rustix::io::Result<Self> {
        let events = device.iter().flat_map(DeviceSleep::descriptors);
        let waiter = Waiter::new(std::iter::once(notify.as_fd()).chain(events), Some(binding))?;
        let binding = Arc::clone(binding);
        Ok(Self { tx, rx, notify, device, waiter, binding, renewal: None, is_lost: false })
    }

    /// Lets the queue outlive the daemon.
    pub(crate) fn outlive_the_daemon(&mut self, renewal: RenewalQueue) {
        self.tx.outlive_the_daemon(renewal.clone());
        self.rx.outlive_the_daemon(renewal.clone());
        self.renewal = Some(renewal);
    }

    /// Splits the queue into the rings and the descriptor that ends their waits.
    pub(crate) fn into_parts(self) -> (TxRing, RxRing, OwnedFd) {
        (self.tx, self.rx, self.notify)
    }

    pub(crate) fn is_renewable(&self) -> bool {
        self.renewal.is_some()
    }

    /// If the daemon is gone, takes up the attachment to the next one, or ensures that waits end when a try is due.
    fn renew(&mut self) -> Result<(), PortError> {
        self.binding.expect_own_process()?;
        let Some(renewal) = &self.renewal else { return Ok(()) };
        if !self.is_lost {
            if !self.binding.is_gone() {
                return Ok(());
            }
            if let Some(connection) = &self.binding.connection {
                self.waiter.forget(connection)?;
            }
            self.waiter.watch(renewal.timer())?;
            self.is_lost = true;
        }
        let Some(mut newest) = renewal.newest(self.binding.generation)? else { return Ok(()) };
        newest.renew_tx(renewal.queue(), &mut self.tx);
        newest.renew_rx(renewal.queue(), &mut self.rx);
        if let Some(notify) = newest.take_notify(renewal.queue()) {
            self.waiter.forget(&self.notify)?;
            self.waiter.watch(&notify)?;
            self.notify = notify;
        }
        self.binding = Arc::clone(&newest.binding);
        self.waiter.forget(renewal.timer())?;
        self.waiter.watch_connection(&self.binding)?;
        self.is_lost = false;
        Ok(())
    }

    /// Checks whether the daemon still runs. Waits do so by themselves, and so do some of the syncs that find nothing.
    /// A program that rarely sends, and never waits, learns of the daemon's end by this call.
    ///
    /// # Errors
    /// [`PortError::DaemonGone`]; with [`OpenOptions::reconnect`](crate::OpenOptions::reconnect) only if reconnecting
    /// did not help. [`PortError::OtherProcess`].
    pub fn check(&mut self) -> Result<(), PortError> {
        self.renew()?;
        if self.renewal.is_none() && self.binding.is_gone() { Err(PortError::DaemonGone) } else { Ok(()) }
    }

    /// Number of reconnections to a daemon, and lost slots.
    #[must_use]
    pub fn reconnections(&self) -> Reconnections {
        // In a child a thread that does not run there may hold the lock.
        let renewal = self.renewal.as_ref().filter(|_| self.binding.process.is_here());
        renewal.map(RenewalQueue::reconnections).unwrap_or_default()
    }

    /// Descriptors that end the queue's waits.
    pub(crate) fn events(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let device = self.device.iter().flat_map(DeviceSleep::descriptors);
        std::iter::once(self.notify.as_fd()).chain(device)
    }

    /// Transmit ring of the queue.
    #[inline]
    pub fn tx(&mut self) -> &mut TxRing {
        &mut self.tx
    }

    /// Receive ring of the queue.
    #[inline]
    pub fn rx(&mut self) -> &mut RxRing {
        &mut self.rx
    }

    /// Returns both rings at once.
    #[inline]
    pub fn split(&mut self) -> (&mut TxRing, &mut RxRing) {
        (&mut self.tx, &mut self.rx)
    }

    /// Syncs both rings.
    ///
    /// # Errors
    /// Errors of [`TxRing::sync`].
    #[inline]
    pub fn sync(&mut self) -> Result<(), PortError> {
        sync_both(&mut self.tx, &mut self.rx)
    }

    /// Whether the queue is ready for `interest`, as of the last sync.
    #[inline]
    #[must_use]
    pub fn is_ready(&self, interest: Interest) -> bool {
        (interest.rx() && self.rx.available() > 0) || (interest.tx() && self.tx.available() > 0)
    }

    /// Prepares a wait outside of this library (select, poll, epoll, tokio): syncs, announces the sleep, and syncs
    /// again. `Ok(true)`: the queue is ready, do not wait. `Ok(false)`: the queue's descriptor becomes readable when
    /// the queue is ready, or when the daemon is gone; then call [`Queue::disarm`].
    ///
    /// # Errors
    /// Errors of [`TxRing::sync`].
    pub fn arm(&mut self, interest: Interest) -> Result<bool, PortError> {
        self.renew()?;
        self.sync()?;
        if self.is_ready(interest) {
            return Ok(true);
        }
        if interest.rx() {
            self.rx.announce_sleep();
        }
        if interest.tx() {
            self.tx.announce_sleep();
        }
        loop {
            self.sync()?;
            if self.is_ready(interest) {
                self.disarm()?;
                return Ok(true);
            }
            // A device may have received frames since the sync.
            if self.device.as_mut().is_none_or(DeviceSleep::begin) {
                return Ok(false);
            }
        }
    }

    /// Ends what [`Queue::arm`] began: clears the descriptor, withdraws the announcement and syncs.
    ///
    /// # Errors
    /// Errors of [`TxRing::sync`].
    pub fn disarm(&mut self) -> Result<(), PortError> {
        self.binding.expect_own_process()?;
        // The signal is cleared first, so that a later signal announces slots that the sync below, or the next one,
        // will see.
        ringroad_ring::eventfd::drain(&self.notify);
        if let Some(device) = &mut self.device {
            device.end();
        }
        self.rx.awake();
        self.tx.awake();
        self.sync()
    }

    /// Sleeps until the queue is ready for `interest`. Returns `Ok(false)` if `timeout` passes, or a signal handler
    /// runs, before that. `None` waits without limit.
    ///
    /// # Errors
    /// Errors of [`TxRing::sync`].
    pub fn wait(&mut self, interest: Interest, timeout: Option<Duration>) -> Result<bool, PortError> {
        wait_any(&mut [self.awaiting(interest)], timeout)
    }

    /// Makes this queue one of several that a program waits on by [`wait_any`].
    pub fn awaiting(&mut self, interest: Interest) -> Wait<'_> {
        Wait::new(std::slice::from_mut(self), None, interest)
    }
}

impl AsFd for Queue {
    /// Descriptor that is readable after [`Queue::arm`] when there is something. It is an epoll descriptor, and can be
    /// added to any event loop.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}
