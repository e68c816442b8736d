//! The datapath's time: monotonic nanoseconds, from a source that a test can control.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// A monotonic clock.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    /// The system's clock, with its time when this value was made, ns.
    System(u64),
    Manual(Arc<AtomicU64>),
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl Clock {
    /// The system's monotonic clock, counted from now.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System(monotonic_ns()))
    }

    /// A clock that stands at 0 ns until [`Clock::advance`] moves it.
    #[must_use]
    pub fn manual() -> Self {
        Self(Source::Manual(Arc::default()))
    }

    /// Nanoseconds since the clock was made.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        match &self.0 {
            Source::System(start_ns) => monotonic_ns() - start_ns,
            Source::Manual(now) => now.load(Ordering::Relaxed),
        }
    }

    /// Moves a manual clock forward; has no effect on the system's clock.
    pub fn advance(&self, ns: u64) {
        if let Source::Manual(now) = &self.0 {
            now.fetch_add(ns, Ordering::Relaxed);
        }
    }
}

/// Time of the system's monotonic clock, ns, which is the same for all processes.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
