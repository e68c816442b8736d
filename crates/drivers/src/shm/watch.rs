//! State of a netmap port that its queue must know: whether a program has bound its rx ring, the header in front of its
//! frames, and its monitors.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringroad_port::offload::LONG_VIRTIO_HEADER_BYTES;
use ringroad_ring::eventfd;
use ringroad_ring::layout::Direction;
use ringroad_ring::monitor_end::MonitorEnd;
use ringroad_ring::ring_view::RingView;

/// A monitor of one ring.
#[derive(Debug)]
pub struct RingMonitor {
    /// Direction of the monitored ring.
    pub direction: Direction,
    /// Filling end of the monitor's own ring.
    pub end: MonitorEnd,
    /// Eventfd that wakes the monitor's program.
    pub notify: OwnedFd,
}

/// State of a port's bindings and monitors for one of its queues. The control thread writes it, the worker reads it.
#[derive(Debug, Default)]
pub struct BindingUpdates {
    rx_users: AtomicU32,
    header_bytes: AtomicU32,
    /// Whether `news` must be read.
    changed: AtomicBool,
    news: Mutex<Option<Vec<RingMonitor>>>,
}

impl BindingUpdates {
    /// Sets the number of bindings that use the rx ring.
    pub fn set_rx_users(&self, users: u32) {
        self.rx_users.store(users, Ordering::Relaxed);
    }

    /// Sets the length of the virtio-net header in front of each frame in the rings: 10 or 12 bytes, or 0 for none.
    pub fn set_header_bytes(&self, bytes: u32) {
        self.header_bytes.store(bytes.min(LONG_VIRTIO_HEADER_BYTES as u32), Ordering::Relaxed);
    }

    /// Replaces the queue's monitors.
    pub fn set_monitors(&self, monitors: Vec<RingMonitor>) {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) = Some(monitors);
        self.changed.store(true, Ordering::Release);
    }
}

/// The worker's side of a [`BindingUpdates`].
#[derive(Debug)]
pub struct Watch {
    state: Arc<BindingUpdates>,
    monitors: Vec<RingMonitor>,
}

impl Watch {
    /// Watch of `state`, without monitors at first.
    #[must_use]
    pub fn new(state: Arc<BindingUpdates>) -> Self {
        Self { state, monitors: Vec::new() }
    }

    /// Whether a binding uses the rx ring. Without one, frames for the ring are dropped.
    #[inline]
    #[must_use]
    pub fn is_rx_bound(&self) -> bool {
        self.state.rx_users.load(Ordering::Relaxed) > 0
    }

    /// Length of the virtio-net header in front of each frame, at most [`LONG_VIRTIO_HEADER_BYTES`].
    #[inline]
    pub(super) fn header_bytes(&self) -> usize {
        self.state.header_bytes.load(Ordering::Relaxed) as usize
    }

    /// Shows the monitors slots `[from, to)` of the queue's ring of that direction.
    #[inline]
    pub fn show(&mut self, direction: Direction, ring: &RingView, from: u32, to: u32) {
        if self.state.changed.load(Ordering::Relaxed) {
            self.take_news();
        }
        if from == to {
            return;
        }
        for monitor in self.monitors.iter_mut().filter(|monitor| monitor.direction == direction) {
            if monitor.end.copy(ring, from, to, direction == Direction::Tx) {
                eventfd::ring(&monitor.notify);
            }
        }
    }

    #[cold]
    fn take_news(&mut self) {
        self.state.changed.store(false, Ordering::Relaxed);
        let mut news = self.state.news.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(monitors) = news.take() {
            self.monitors = monitors;
        }
    }
}
