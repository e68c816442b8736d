//! Monitors that a program's own syncs have to fill: zero-copy monitors of any port, and those of pipes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

use ringroad_ring::monitor_end::{MonitorEnd, frames_in};
use ringroad_ring::ring_view::RingView;

use crate::ring_lock::RingLock;

/// Monitor of a ring.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// Ring of the monitor.
    pub(crate) ring: RingView,
    /// Lock of the ring; it also wakes the ring's program.
    pub(crate) lock: RingLock,
    pub(crate) zero_copy: bool,
    /// Whether frames are marked as seen on the tx side.
    pub(crate) sent: bool,
}

impl Monitor {
    /// Shows slots `[from, to)` of `ring`.
    fn show(&self, ring: &RingView, from: u32, to: u32) {
        // The monitor misses these frames if its lock is taken: no sender waits for it.
        let Some(held) = self.lock.take_soon() else {
            return self.ring.control().datapath.filled.miss(frames_in(ring, from, to));
        };
        let mut end = MonitorEnd::new(self.ring.clone());
        let kick = match self.zero_copy {
            true => end.exchange(ring, from, to, self.sent),
            false => end.copy(ring, from, to, self.sent),
        };
        // The lock is released before the wake-up: the woken process takes it at once.
        drop(held);
        if kick {
            self.lock.wake_sleepers();
        }
    }
}

/// Monitors of one ring, and their known generation.
#[derive(Debug)]
pub(crate) struct MonitorFill {
    generation: AtomicU32,
    any: AtomicBool,
    monitors: RwLock<Vec<Monitor>>,
}

impl MonitorFill {
    pub(crate) fn new(view: &RingView) -> Self {
        // The known generation differs at first, so that the first check updates it, unless there never was a monitor.
        let generation = view.control().datapath.monitors.load(Ordering::Acquire);
        let known = if generation == 0 { 0 } else { generation.wrapping_sub(1) };
        Self {
            generation: AtomicU32::new(known),
            any: AtomicBool::new(false),
            monitors: RwLock::new(Vec::new()),
        }
    }

    /// Whether the set of monitors has changed since the last update.
    #[inline]
    pub(crate) fn is_outdated(&self, view: &RingView) -> bool {
        view.control().datapath.monitors.load(Ordering::SeqCst) != self.generation.load(Ordering::Relaxed)
    }

    /// Sets the monitors of `generation`.
    pub(crate) fn set(&self, generation: u32, monitors: Vec<Monitor>) {
        self.any.store(!monitors.is_empty(), Ordering::Relaxed);
        *self.monitors.write().unwrap_or_else(PoisonError::into_inner) = monitors;
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// Shows slots `[from, to)` of a ring from which the program sends.
    #[inline]
    pub(crate) fn copy(&self, ring: &RingView, from: u32, to: u32) {
        if self.any.load(Ordering::Relaxed) && from != to {
            self.each(false, |monitor| monitor.show(ring, from, to));
        }
    }

    /// Exchanges the buffers of slots `[from, to)`, which have no further use.
    #[inline]
    pub(crate) fn exchange(&self, ring: &RingView, from: u32, to: u32) {
        if self.any.load(Ordering::Relaxed) && from != to {
            self.each(true, |monitor| monitor.show(ring, from, to));
        }
    }

    fn each(&self, zero_copy: bool, act: impl Fn(&Monitor)) {
        // The lock is held only for reading on this path; a signal handler that finds it held for writing shows no
        // frame.
        let Ok(monitors) = self.monitors.try_read() else { return };
        monitors.iter().filter(|monitor| monitor.zero_copy == zero_copy).for_each(act);
    }
}
