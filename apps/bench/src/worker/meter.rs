//! Counting interval of a worker: after the flow has settled, for the configured time. The worker then continues until
//! it must stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Measured, SETTLE};
use crate::cycles;

/// Number of turns between two readings of the clock, which costs as much as a small burst.
const TURNS_PER_CHECK: u32 = 256;

/// Commands of the bench to a running worker, from the thread that reads them.
#[derive(Debug, Default)]
pub(super) struct WorkerCommands {
    /// Request to print the number of frames received so far.
    pub count: AtomicBool,
    /// Request to end.
    pub end: AtomicBool,
}

/// Counts of a worker so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Number of frames by direction.
    pub directions_frames: [u64; 2],
    /// Number of frames missing or out of order.
    pub lost_or_reordered_frames: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// No frame has arrived yet.
    Silent,
    Settling {
        until: Instant,
    },
    Counting {
        since: Instant,
        ticks: Option<u64>,
        start: WorkerCounts,
    },
    Done,
}

/// The clock of a worker's loop.
#[derive(Debug)]
pub(super) struct LoopClock {
    interval: Duration,
    directions: usize,
    settle: Duration,
    orders: Arc<WorkerCommands>,
    phase: Phase,
    turns: u32,
}

/// The next action of the loop.
#[derive(Debug)]
pub(super) enum Next {
    /// Continue.
    GoOn,
    /// Report this result and continue.
    Report(Measured),
    /// Report this number of received frames and continue.
    SoFar(u64),
    /// End the loop.
    End,
}

impl LoopClock {
    /// Makes a meter for a role that counts in the first `directions` elements of its tally.
    pub(super) fn new(interval: Duration, directions: usize, orders: Arc<WorkerCommands>) -> Self {
        Self { interval, directions, settle: SETTLE, orders, phase: Phase::Silent, turns: 0 }
    }

    /// Returns the next action. Call it once per turn.
    #[inline]
    pub(super) fn turn(&mut self, tally: &WorkerCounts) -> Next {
        self.turns = self.turns.wrapping_add(1);
        if self.orders.count.load(Ordering::Relaxed) {
            self.orders.count.store(false, Ordering::Relaxed);
            return Next::SoFar(tally.directions_frames.iter().sum());
        }
        if self.turns.is_multiple_of(TURNS_PER_CHECK) { self.check(tally) } else { Next::GoOn }
    }

    #[cold]
    fn check(&mut self, tally: &WorkerCounts) -> Next {
        if self.orders.end.load(Ordering::Relaxed) {
            return Next::End;
        }
        let now = Instant::now();
        match self.phase {
            Phase::Silent if *tally != WorkerCounts::default() => {
                self.phase = Phase::Settling { until: now + self.settle };
            }
            Phase::Settling { until } if now >= until => {
                self.phase = Phase::Counting { since: now, ticks: cycles::ticks(), start: *tally };
            }
            Phase::Counting { since, ticks, start } if now.duration_since(since) >= self.interval => {
                self.phase = Phase::Done;
                let ticks = cycles::ticks().zip(ticks).map(|(end, start)| end.wrapping_sub(start));
                return Next::Report(self.measured(&start, tally, now.duration_since(since), ticks));
            }
            Phase::Silent | Phase::Settling { .. } | Phase::Counting { .. } | Phase::Done => {}
        }
        Next::GoOn
    }

    fn measured(
        &self,
        start: &WorkerCounts,
        end: &WorkerCounts,
        elapsed: Duration,
        ticks: Option<u64>,
    ) -> Measured {
        let directions_frames: Vec<u64> = end
            .directions_frames
            .iter()
            .zip(start.directions_frames)
            .take(self.directions)
            .map(|(end, start)| end - start)
            .collect();
        let frames = directions_frames.iter().sum();
        Measured {
            frames,
            directions_frames,
            seconds: elapsed.as_secs_f64(),
            cycles_per_frame: ticks.filter(|_| frames > 0).map(|ticks| ticks as f64 / frames as f64),
            lost_or_reordered_frames: Some(end.lost_or_reordered_frames),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter() -> LoopClock {
        LoopClock { settle: Duration::ZERO, ..LoopClock::new(Duration::ZERO, 1, Arc::default()) }
    }

    fn tally(frames: u64) -> WorkerCounts {
        WorkerCounts { directions_frames: [frames, 0], lost_or_reordered_frames: 0 }
    }

    #[test]
    fn nothing_counts_before_the_first_frame_and_the_settling() {
        let mut meter = meter();
        for _ in 0..10 {
            assert!(matches!(meter.check(&tally(0)), Next::GoOn));
        }
        assert!(matches!(meter.check(&tally(5)), Next::GoOn), "settling begins");
        assert!(matches!(meter.check(&tally(10)), Next::GoOn), "counting begins");
        let Next::Report(measured) = meter.check(&tally(17)) else { panic!("no report") };
        assert_eq!((measured.frames, measured.directions_frames), (7, vec![7]));
        assert!(matches!(meter.check(&tally(99)), Next::GoOn), "one report only");
    }

    #[test]
    fn the_clock_is_read_once_in_many_turns() {
        let mut meter = meter();
        meter.orders.end.store(true, Ordering::Relaxed);
        let turns = (1..).find(|_| matches!(meter.turn(&tally(1)), Next::End));
        assert_eq!(turns, Some(TURNS_PER_CHECK));
    }

    #[test]
    fn a_requested_count_is_reported_once_and_at_the_next_turn() {
        let mut meter = meter();
        meter.orders.count.store(true, Ordering::Relaxed);
        let tally = WorkerCounts { directions_frames: [3, 4], lost_or_reordered_frames: 1 };
        assert!(matches!(meter.turn(&tally), Next::SoFar(7)));
        assert!(matches!(meter.turn(&tally), Next::GoOn));
    }

    #[test]
    fn an_interval_without_frames_has_no_cycles_per_frame() {
        let measured = meter().measured(&tally(3), &tally(3), Duration::from_secs(1), Some(1000));
        assert_eq!((measured.frames, measured.cycles_per_frame), (0, None));
    }
}
