//! A datapath that syncs step, and its sleep: the events that would wake a worker wake a program that waits for its own
//! device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ringroad_datapath::engine::Engine;
use ringroad_port::port_queue::FailedDirection;
use ringroad_ring::eventfd;
use ringroad_ring::fork::ProcessMark;

use crate::error::PortError;

/// An engine that the program's threads step in turn.
#[derive(Debug)]
pub(crate) struct Stepped {
    engine: Arc<Mutex<Engine>>,
    /// Number of threads that sleep; changed under the engine's lock only.
    asleep: AtomicUsize,
    /// Number of failed queues when a thread woke last; changed under the engine's lock only.
    failures: AtomicUsize,
    /// Eventfd that wakes all sleeping threads, if the thread that was woken leaves work behind. Made with the first
    /// device.
    bell: OnceLock<OwnedFd>,
    /// Process whose devices these are.
    process: ProcessMark,
}

impl Stepped {
    pub(crate) fn new(engine: Arc<Mutex<Engine>>) -> Self {
        let (asleep, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { engine, asleep, failures, bell: OnceLock::new(), process: ProcessMark::here() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves frames once. Returns the failure of the device with its queue at `device`, for each of `ways` that frames
    /// take, or `None` if the device cannot fail. Moves nothing in a child of the process that made the datapath: there
    /// the rings report that they are another process's.
    #[inline]
    pub(crate) fn step<const WAYS: usize>(
        &self,
        device: Option<u32>,
        ways: [FailedDirection; WAYS],
    ) -> Option<[Result<(), PortError>; WAYS]> {
        if !self.process.is_here() {
            return None;
        }
        let mut engine = self.lock();
        engine.step();
        let queue_index = device.filter(|&queue_index| engine.can_fail(queue_index))?;
        Some(ways.map(|way| match engine.failure(queue_index, way) {
            Some(failure) => Err(PortError::Device(failure)),
            None => Ok(()),
        }))
    }

    /// Announces to the devices that the calling thread is about to sleep. Returns `false`, and the thread must not
    /// sleep, if there is work: step and check again.
    pub(crate) fn fall_asleep(&self) -> bool {
        let mut engine = self.lock();
        let sleeps = engine.fall_asleep(usize::MAX);
        let others = self.asleep.fetch_add(usize::from(sleeps), Ordering::Relaxed);
        if !sleeps && others == 0 {
            engine.awake();
        }
        sleeps
    }

    /// Withdraws the announcement of [`Self::fall_asleep`], does the work that woke the thread, and ensures that no
    /// other sleeping thread misses its wake-up.
    pub(crate) fn awake(&self) {
        let mut engine = self.lock();
        if let Some(bell) = self.bell.get() {
            eventfd::drain(bell);
        }
        engine.drain_wakes();
        let others = self.asleep.fetch_sub(1, Ordering::Relaxed) - 1;
        engine.step();
        if others == 0 {
            engine.awake();
            return;
        }
        let failures = engine.failures();
        let has_failed = self.failures.swap(failures, Ordering::Relaxed) != failures;
        // Each announcement brings one wake-up, and this was it. A device that has failed since may send no more
        // wake-ups, so all programs check their devices.
        if (!engine.fall_asleep(usize::MAX) || has_failed)
            && let Some(bell) = self.bell.get()
        {
            eventfd::ring_own(bell);
        }
    }
}

/// State of one queue for sleeping before a stepped datapath with a device.
#[derive(Debug)]
pub(crate) struct DeviceSleep {
    stepped: Arc<Stepped>,
    /// Wake descriptor of the device's queue, if it has one.
    wake: Option<OwnedFd>,
    is_asleep: bool,
}

impl DeviceSleep {
    /// # Errors
    /// The kernel has no descriptors left.
    pub(crate) fn new(stepped: &Arc<Stepped>, wake: Option<OwnedFd>) -> rustix::io::Result<Self> {
        if stepped.bell.get().is_none() {
            // Two devices may be opened at once; then one of the two eventfds is dropped again.
            let _ = stepped.bell.set(eventfd::create()?);
        }
        Ok(Self { stepped: Arc::clone(stepped), wake, is_asleep: false })
    }

    /// Announces the sleep, as [`Stepped::fall_asleep`].
    pub(crate) fn begin(&mut self) -> bool {
        self.is_asleep = self.is_asleep || self.stepped.fall_asleep();
        self.is_asleep
    }

    /// Ends the sleep, as [`Stepped::awake`], if [`Self::begin`] has announced it.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.is_asleep) && self.stepped.process.is_here() {
            self.stepped.awake();
        }
    }

    /// Descriptors to wait for.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.wake.iter().chain(self.stepped.bell.get()).map(AsFd::as_fd)
    }
}

impl Drop for DeviceSleep {
    fn drop(&mut self) {
        self.end();
    }
}
