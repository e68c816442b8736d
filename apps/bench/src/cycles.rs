//! The processor's time-stamp counter, for the cycles-per-frame figures.
//!
//! On every processor of the last decade the counter ticks at a constant rate, independent of the core's clock rate. A
//! "cycle" in a report is one tick of the counter. On other architectures than x86-64 the figures are absent.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

/// Returns the ticks since some moment in the past; `None` without such a counter.
#[inline]
#[must_use]
pub fn ticks() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC exists on every x86-64 processor, reads one register and touches no memory. It faults only if
        // the kernel disabled it for this process (prctl PR_SET_TSC), which nothing in this program does.
        Some(unsafe { core::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Returns the ticks per second, from a comparison with the monotonic clock over `interval`.
#[must_use]
pub fn calibrate_hz(interval: Duration) -> Option<f64> {
    let (start_ticks, start) = stamped()?;
    std::thread::sleep(interval);
    let (end_ticks, end) = stamped()?;
    let seconds = end.duration_since(start).as_secs_f64();
    (seconds > 0.0).then(|| end_ticks.wrapping_sub(start_ticks) as f64 / seconds)
}

/// Reads counter and clock, as close together as possible in eight attempts.
fn stamped() -> Option<(u64, Instant)> {
    let attempt = || {
        let before = ticks()?;
        let now = Instant::now();
        let after = ticks()?;
        Some((after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), now))
    };
    let (_, ticks, now) = (0..8).filter_map(|_| attempt()).min_by_key(|(width, ..)| *width)?;
    Some((ticks, now))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_counter_advances_and_has_the_frequency_of_a_processor() {
        let hz = calibrate_hz(Duration::from_millis(20)).unwrap();
        assert!((1e8..1e11).contains(&hz), "{hz}");
    }
}
