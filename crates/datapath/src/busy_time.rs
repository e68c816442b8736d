//! Busy time of a worker: the time of all turns that moved frames, waiting and empty turns not counted. Time that other
//! programs take from the worker's processor in the middle of such a turn counts.
//!
//! The clock is read once a turn, so it is the processor's time-stamp counter: a reading costs some 20 cycles, a
//! reading of the system's clock three times as much.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The busy time of one worker, which any thread can read.
#[derive(Debug)]
pub struct BusyTime {
    ticks: AtomicU64,
    /// Time of creation, in both clocks.
    began: (Instant, u64),
}

impl Default for BusyTime {
    fn default() -> Self {
        Self { ticks: AtomicU64::new(0), began: (Instant::now(), ticks()) }
    }
}

impl BusyTime {
    /// Sum of the turns that moved frames, ns.
    #[must_use]
    pub fn ns(&self) -> u64 {
        let busy = self.ticks.load(Ordering::Relaxed);
        let (began, began_ticks) = self.began;
        let (elapsed_ns, elapsed) = (began.elapsed().as_nanos(), ticks().wrapping_sub(began_ticks));
        (u128::from(busy) * elapsed_ns / u128::from(elapsed.max(1))).try_into().unwrap_or(u64::MAX)
    }
}

/// Writer of a worker's busy time, used by the worker alone.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    /// Time-stamp counter at the end of the last turn.
    last: u64,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { last: ticks() }
    }

    /// Ends a turn, which began when the last ended, and returns whether it moved frames.
    #[inline]
    pub(crate) fn end_turn(&mut self, moved: bool, busy: &BusyTime) {
        let now = ticks();
        if moved {
            let turn = now.wrapping_sub(self.last);
            busy.ticks.store(busy.ticks.load(Ordering::Relaxed).wrapping_add(turn), Ordering::Relaxed);
        }
        self.last = now;
    }

    /// Leaves out the time between the last turn and now.
    pub(crate) fn leave_out(&mut self) {
        self.last = ticks();
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter; a system that forbids it to programs would break libc's clock
    // too.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    use std::sync::LazyLock;
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the counter move on.
    fn wait() {
        let began = ticks();
        while ticks() == began {}
    }

    #[test]
    fn only_turns_that_moved_frames_count() {
        let busy = BusyTime::default();
        let mut watch = Stopwatch::start();
        wait();
        watch.end_turn(false, &busy);
        assert_eq!(busy.ticks.load(Ordering::Relaxed), 0);
        wait();
        watch.end_turn(true, &busy);
        let counted = busy.ticks.load(Ordering::Relaxed);
        assert!(counted > 0);
        watch.leave_out();
        watch.end_turn(false, &busy);
        assert_eq!(busy.ticks.load(Ordering::Relaxed), counted);
    }

    #[test]
    fn a_worker_is_not_busy_for_longer_than_it_lives() {
        let busy = BusyTime::default();
        let mut watch = Stopwatch { last: busy.began.1 };
        for _ in 0..100 {
            wait();
            watch.end_turn(true, &busy);
        }
        let ns = busy.ns();
        assert!(ns > 0 && u128::from(ns) <= busy.began.0.elapsed().as_nanos());
    }
}
