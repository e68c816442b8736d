//! The datapath's time: monotonic nanoseconds, from a source that a test can control.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A monotonic clock.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System(Instant),
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
        Self(Source::System(Instant::now()))
    }

    /// A clock that stands at 0 ns until [`Clock::advance`] moves it.
    #[must_use]
    pub fn manual() -> Self {
        Self(Source::Manual(Arc::default()))
    }

    /// Nanoseconds since the clock was made.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        match &self.0 {
            Source::System(start) => u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Source::Manual(now) => now.load(Ordering::Relaxed),
        }
    }

    /// Moves a manual clock forward; the system's clock does not listen.
    pub fn advance(&self, ns: u64) {
        if let Source::Manual(now) = &self.0 {
            now.fetch_add(ns, Ordering::Relaxed);
        }
    }
}
