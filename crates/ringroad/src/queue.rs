//! A queue: one transmit and one receive ring, the unit that moves to a thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::error::PortError;
use crate::ring::{RxRing, TxRing};
use crate::stepped::DeviceSleep;
use crate::waiter::{Binding, Waitable, Waiter};

/// What a program waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Received frames.
    Rx,
    /// Free slots to transmit.
    Tx,
    /// Either.
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
    /// Where a device is in this program.
    device: Option<DeviceSleep>,
    waiter: Waiter,
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
        let waiter = Waiter::new(std::iter::once(notify.as_fd()).chain(events), binding)?;
        Ok(Self { tx, rx, notify, device, waiter })
    }

    /// What ends its waits.
    pub(crate) fn events(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let device = self.device.iter().flat_map(DeviceSleep::descriptors);
        std::iter::once(self.notify.as_fd()).chain(device)
    }

    /// The transmit ring.
    #[inline]
    pub fn tx(&mut self) -> &mut TxRing {
        &mut self.tx
    }

    /// The receive ring.
    #[inline]
    pub fn rx(&mut self) -> &mut RxRing {
        &mut self.rx
    }

    /// Both rings at once.
    #[inline]
    pub fn split(&mut self) -> (&mut TxRing, &mut RxRing) {
        (&mut self.tx, &mut self.rx)
    }

    /// Syncs both rings.
    ///
    /// # Errors
    /// As [`TxRing::sync`].
    #[inline]
    pub fn sync(&mut self) -> Result<(), PortError> {
        self.tx.sync()?;
        self.rx.sync()?;
        Ok(())
    }

    /// Whether there is what `interest` asks for, as of the last sync.
    #[inline]
    #[must_use]
    pub fn is_ready(&self, interest: Interest) -> bool {
        (interest.rx() && self.rx.available() > 0) || (interest.tx() && self.tx.available() > 0)
    }

    /// Prepares a wait outside of this library (select, poll, epoll, tokio): syncs, announces the sleep, and syncs
    /// again. `Ok(true)`: there is something already, do not wait. `Ok(false)`: the queue's descriptor becomes readable
    /// when there is, or when the daemon is gone; then call [`Queue::disarm`].
    ///
    /// # Errors
    /// As [`TxRing::sync`].
    pub fn arm(&mut self, interest: Interest) -> Result<bool, PortError> {
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
            // A device may have got something since.
            if self.device.as_mut().is_none_or(DeviceSleep::begin) {
                return Ok(false);
            }
        }
    }

    /// Ends what [`Queue::arm`] began: takes the signal off the descriptor, withdraws the announcement and syncs.
    ///
    /// # Errors
    /// As [`TxRing::sync`].
    pub fn disarm(&mut self) -> Result<(), PortError> {
        // The signal goes first: one that comes after it stands for something the sync below, or the next, will see.
        ringroad_ring::eventfd::drain(&self.notify);
        if let Some(device) = &mut self.device {
            device.end();
        }
        self.rx.awake();
        self.tx.awake();
        self.sync()
    }

    /// Sleeps until there is what `interest` asks for; `Ok(false)` when `timeout` has passed, or a signal handler ran,
    /// before that. No timeout waits for ever.
    ///
    /// # Errors
    /// As [`TxRing::sync`].
    pub fn wait(&mut self, interest: Interest, timeout: Option<Duration>) -> Result<bool, PortError> {
        self.wait_for(interest, timeout)
    }
}

impl Waitable for Queue {
    fn arm(&mut self, interest: Interest) -> Result<bool, PortError> {
        Queue::arm(self, interest)
    }

    fn disarm(&mut self) -> Result<(), PortError> {
        Queue::disarm(self)
    }

    fn is_ready(&self, interest: Interest) -> bool {
        Queue::is_ready(self, interest)
    }

    fn due_in(&self) -> Option<Duration> {
        self.rx.due_in()
    }

    fn waiter(&self) -> &Waiter {
        &self.waiter
    }
}

impl AsFd for Queue {
    /// Readable after [`Queue::arm`] when something has come. An epoll descriptor: add it to any event loop.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}
