//! The generator's clock: the processor's time-stamp counter, tied to the system's monotonic clock.
//!
//! Reading the counter costs a third of a system clock reading, so it can be read every few frames. Each thread has a
//! [`ClockReader`] of its own, which turns ticks into nanoseconds of `CLOCK_MONOTONIC`. Every 10 ms the reader measures
//! its deviation from that clock, records the deviation as its error, and corrects its time. Since all programs of a
//! machine see the same `CLOCK_MONOTONIC`, a sender and a receiver in different programs agree up to that error.
//!
//! Without a usable counter (other architectures, or a counter that the kernel does not trust as its own clock source)
//! the system's clock is read instead.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringroad::monotonic_ns;
use serde::Serialize;

/// Duration of the first comparison of the counter with the system's clock.
const CALIBRATION: Duration = Duration::from_millis(20);
/// Time between two comparisons of the counter with the system's clock, ns.
const TSC_SAMPLE_INTERVAL_NS: f64 = 10e6;
/// File that names the kernel's clock source: `tsc` there shows that the kernel trusts the counter.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// A monotonic clock, shared by the threads of one measurement.
#[derive(Debug, Clone)]
pub struct SessionClock(Source);

#[derive(Debug, Clone)]
enum Source {
    Counter(TscSample),
    System,
    Manual(Arc<AtomicU64>),
}

/// A moment in ticks and in nanoseconds, and the rate between the two.
#[derive(Debug, Clone, Copy)]
struct TscSample {
    ticks: u64,
    now_ns: u64,
    ns_per_tick: f64,
    /// [`TSC_SAMPLE_INTERVAL_NS`] in ticks.
    interval_ticks: u64,
}

/// The clock's source and its greatest error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ClockError {
    /// `tsc`, `system` or `manual`.
    pub source: &'static str,
    /// Number of comparisons with the system's clock.
    pub comparisons: u64,
    /// Greatest difference found, ns.
    pub max_ns: u64,
}

impl SessionClock {
    /// The best clock of this machine. This call compares the counter with the system's clock for 20 ms.
    #[must_use]
    pub fn new() -> Self {
        let trusted = std::fs::read_to_string(CLOCK_SOURCE).is_ok_and(|source| source.trim() == "tsc");
        match (trusted, ticks_and_ns()) {
            (true, Some(first)) => {
                std::thread::sleep(CALIBRATION);
                ticks_and_ns()
                    .and_then(|second| TscSample::between(first, second))
                    .map_or(Self::system(), |tie| Self(Source::Counter(tie)))
            }
            _ => Self::system(),
        }
    }

    /// The system's monotonic clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stays at `now_ns` until [`SessionClock::advance`] moves it, for simulations.
    #[must_use]
    pub fn manual(now_ns: u64) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(now_ns))))
    }

    /// Moves a manual clock forward; other clocks ignore this.
    pub fn advance(&self, ns: u64) {
        if let Source::Manual(now) = &self.0 {
            now.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// A reader of the clock for one thread.
    #[must_use]
    pub fn reader(&self) -> ClockReader {
        let source = match &self.0 {
            Source::Counter(_) => "tsc",
            Source::System => "system",
            Source::Manual(_) => "manual",
        };
        let error = ClockError { source, ..ClockError::default() };
        ClockReader { source: self.0.clone(), last_ns: 0, error }
    }
}

impl Default for SessionClock {
    fn default() -> Self {
        Self::new()
    }
}

/// A thread's view of a [`SessionClock`].
#[derive(Debug, Clone)]
pub struct ClockReader {
    source: Source,
    last_ns: u64,
    error: ClockError,
}

impl ClockReader {
    /// Nanoseconds of `CLOCK_MONOTONIC`; never less than before.
    #[inline]
    pub fn now_ns(&mut self) -> u64 {
        let now_ns = match &mut self.source {
            Source::Counter(tie) => {
                let elapsed = ticks().wrapping_sub(tie.ticks);
                let now_ns = tie.now_ns + (elapsed as f64 * tie.ns_per_tick) as u64;
                if elapsed > tie.interval_ticks {
                    tie.renew(&mut self.error).unwrap_or(now_ns)
                } else {
                    now_ns
                }
            }
            Source::System => monotonic_ns(),
            Source::Manual(now) => now.load(Ordering::Relaxed),
        };
        self.last_ns = self.last_ns.max(now_ns);
        self.last_ns
    }

    /// The clock's source and its greatest error so far.
    #[must_use]
    pub fn error(&self) -> ClockError {
        self.error
    }
}

impl ClockError {
    /// The error of two readers of one clock.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            source: other.source,
            comparisons: self.comparisons + other.comparisons,
            max_ns: self.max_ns.max(other.max_ns),
        }
    }
}

impl TscSample {
    fn between(first: (u64, u64), second: (u64, u64)) -> Option<Self> {
        let (elapsed_ticks, elapsed_ns) = (second.0.checked_sub(first.0)?, second.1.checked_sub(first.1)?);
        if elapsed_ticks == 0 || elapsed_ns == 0 {
            return None;
        }
        let ns_per_tick = elapsed_ns as f64 / elapsed_ticks as f64;
        let interval_ticks = (TSC_SAMPLE_INTERVAL_NS / ns_per_tick) as u64;
        Some(Self { ticks: second.0, now_ns: second.1, ns_per_tick, interval_ticks })
    }

    /// Ties the counter to the system's clock anew, and adjusts the rate by the time since the last tie.
    #[cold]
    fn renew(&mut self, error: &mut ClockError) -> Option<u64> {
        let (ticks, now_ns) = ticks_and_ns()?;
        let expected_ns = self.now_ns + (ticks.wrapping_sub(self.ticks) as f64 * self.ns_per_tick) as u64;
        error.comparisons += 1;
        error.max_ns = error.max_ns.max(expected_ns.abs_diff(now_ns));
        let following = Self::between((self.ticks, self.now_ns), (ticks, now_ns))?;
        // The rate takes a sixteenth of the difference each time, so that one bad comparison does not spoil it.
        let rate = self.ns_per_tick + (following.ns_per_tick - self.ns_per_tick) / 16.0;
        *self = Self { ns_per_tick: rate, ..following };
        Some(now_ns)
    }
}

/// Reads the time-stamp counter and the system's clock, ns, and returns the closest pair of four attempts; `None`
/// without such a counter.
#[must_use]
pub fn ticks_and_ns() -> Option<(u64, u64)> {
    let attempt = || {
        let before = ticks();
        let now_ns = monotonic_ns();
        let width = ticks().wrapping_sub(before);
        (width, before.wrapping_add(width / 2), now_ns)
    };
    let (_, ticks, now_ns) = (0..4).map(|_| attempt()).min_by_key(|(width, ..)| *width)?;
    (cfg!(target_arch = "x86_64")).then_some((ticks, now_ns))
}

/// Reads the time-stamp counter; 0 without one.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC exists on every x86-64 processor, reads one register and touches no memory. It faults only if the
    // kernel disabled it for this process (prctl PR_SET_TSC), which nothing in this program does.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_follows_the_system_clock_and_never_runs_backwards() {
        let mut reader = SessionClock::new().reader();
        let mut last_ns = 0;
        for _ in 0..100_000 {
            let before_ns = monotonic_ns();
            let now_ns = reader.now_ns();
            let after_ns = monotonic_ns();
            assert!(now_ns >= last_ns);
            last_ns = now_ns;
            // The two clocks are read one after the other; the difference is at least the clock's own stated error.
            let slack_ns = 100_000 + reader.error().max_ns;
            assert!(
                now_ns + slack_ns >= before_ns && now_ns <= after_ns + slack_ns,
                "{before_ns} {now_ns} {after_ns}"
            );
        }
    }

    #[test]
    fn a_manual_clock_stops_until_it_is_advanced() {
        let clock = SessionClock::manual(5);
        let mut reader = clock.reader();
        assert_eq!((reader.now_ns(), reader.now_ns()), (5, 5));
        clock.advance(7);
        assert_eq!(reader.now_ns(), 12);
        assert_eq!(reader.error(), ClockError { source: "manual", ..ClockError::default() });
    }

    #[test]
    fn two_comparisons_give_the_clock_rate() {
        let tie = TscSample::between((1000, 50), (3000, 1050)).unwrap();
        assert_eq!((tie.ns_per_tick, tie.now_ns), (0.5, 1050));
        assert!(TscSample::between((3000, 0), (1000, 5)).is_none());
        assert!(TscSample::between((1000, 5), (1000, 5)).is_none());
    }
}
