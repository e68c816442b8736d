//! The monitors that a program's own syncs have to fill: zero-copy ones of any port, and those of pipes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

use ringroad_ring::monitor_end::{MonitorEnd, frames_in};
use ringroad_ring::ring_view::RingView;

use crate::ring_lock::RingLock;

/// A monitor of a ring.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// Its ring.
    pub(crate) ring: RingView,
    /// The ring's lock, which wakes its program too.
    pub(crate) lock: RingLock,
    pub(crate) zero_copy: bool,
    /// Whether frames are marked as seen on the tx side.
    pub(crate) sent: bool,
}

impl Monitor {
    /// Shows slots `[from, to)` of `ring`.
    fn show(&self, ring: &RingView, from: u32, to: u32) {
        // A monitor whose lock is taken misses these frames: no sender waits for it.
        let Some(held) = self.lock.take_soon() else {
            return self.ring.control().datapath.filled.miss(frames_in(ring, from, to));
        };
        let mut end = MonitorEnd::new(self.ring.clone());
        let kick = match self.zero_copy {
            true => end.exchange(ring, from, to, self.sent),
            false => end.copy(ring, from, to, self.sent),
        };
        // The woken process takes the lock at once.
        drop(held);
        if kick {
            self.lock.wake_sleepers();
        }
    }
}

/// The monitors of one ring, and which generation of them is known.
#[derive(Debug)]
pub(crate) struct MonitorFill {
    generation: AtomicU32,
    any: AtomicBool,
    monitors: RwLock<Vec<Monitor>>,
}

impl MonitorFill {
    pub(crate) fn new(view: &RingView) -> Self {
        // Nothing is known yet: the first look differs, unless there never was a monitor.
        let generation = view.control().datapath.monitors.load(Ordering::Acquire);
        let known = if generation == 0 { 0 } else { generation.wrapping_sub(1) };
        Self {
            generation: AtomicU32::new(known),
            any: AtomicBool::new(false),
            monitors: RwLock::new(Vec::new()),
        }
    }

    /// Whether the set of monitors has changed since.
    #[inline]
    pub(crate) fn is_outdated(&self, view: &RingView) -> bool {
        view.control().datapath.monitors.load(Ordering::SeqCst) != self.generation.load(Ordering::Relaxed)
    }

    /// Sets the monitors as of `generation`.
    pub(crate) fn set(&self, generation: u32, monitors: Vec<Monitor>) {
        self.any.store(!monitors.is_empty(), Ordering::Relaxed);
        *self.monitors.write().unwrap_or_else(PoisonError::into_inner) = monitors;
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// Shows slots `[from, to)` of a ring that is being sent from.
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
        // Held only for reading on this path; a signal handler that finds it being changed shows nothing.
        let Ok(monitors) = self.monitors.try_read() else { return };
        monitors.iter().filter(|monitor| monitor.zero_copy == zero_copy).for_each(act);
    }
}
