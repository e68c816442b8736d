//! The flag that ends a run early, with all reserved resources returned.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::BenchError;

/// The longest time between two checks of the flag in a wait of this crate.
pub(crate) const STOP_LATENCY: Duration = Duration::from_millis(50);

/// A shared request to stop, safe to raise from a signal handler.
///
/// A waiting run notices the request within 50 ms, ends the processes it started, and returns the results so far.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Requests the end of the run.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end of the run was requested.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the atomic of the flag, for registration with a signal-handling library.
    #[must_use]
    pub fn shared(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Waits for `duration`.
    ///
    /// # Errors
    /// [`BenchError::Stopped`]: the flag was raised.
    pub(crate) fn pass(&self, duration: Duration) -> Result<(), BenchError> {
        let end = Instant::now() + duration;
        loop {
            if self.is_raised() {
                return Err(BenchError::Stopped);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(STOP_LATENCY));
        }
    }
}
