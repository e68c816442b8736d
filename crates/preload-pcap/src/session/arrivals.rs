//! Arrival times of the slots of a receive ring: the time of the sync that found them.

use std::collections::VecDeque;

use rustix::time::{ClockId, clock_gettime};

/// Slots of one ring that are not released, in runs that one sync found.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Number of slots, and arrival time (ns since the Unix epoch), of each run.
    runs: VecDeque<(u32, u64)>,
    /// Number of slots in all runs.
    slots: u32,
    /// Number of released slots that are not published yet.
    unpublished: u32,
}

impl Arrivals {
    /// Begins with an empty ring of `ring_slots` slots.
    pub(super) fn new(ring_slots: u32) -> Self {
        Self { runs: VecDeque::with_capacity(ring_slots as usize), slots: 0, unpublished: 0 }
    }

    /// Records that the ring has `available` slots: the new ones have come now.
    #[inline]
    pub(super) fn note(&mut self, available: u32) {
        let new = available.saturating_sub(self.slots);
        if new > 0 {
            self.runs.push_back((new, now_ns()));
            self.slots = available;
        }
    }

    /// Releases slots from the front. Returns the number of released slots that are not published.
    #[inline]
    pub(super) fn release(&mut self, slots: u32) -> u32 {
        let mut left = slots;
        while let Some(run) = self.runs.front_mut() {
            if run.0 > left {
                run.0 -= left;
                break;
            }
            left -= run.0;
            self.runs.pop_front();
        }
        self.slots -= slots.min(self.slots);
        self.unpublished += slots;
        self.unpublished
    }

    /// Records that all released slots are published.
    #[inline]
    pub(super) fn published(&mut self) {
        self.unpublished = 0;
    }

    /// Iterates over the times of slots, which are queried in their order.
    #[inline]
    pub(super) fn times(&self) -> Times<'_> {
        Times { runs: &self.runs, run: 0, start: 0 }
    }
}

/// Position in the runs of times.
#[derive(Debug)]
pub(super) struct Times<'a> {
    runs: &'a VecDeque<(u32, u64)>,
    run: usize,
    /// Number of slots before the run.
    start: u32,
}

impl Times<'_> {
    /// Arrival time of the slot `offset` after the first. Offsets must not decrease from call to call.
    #[inline]
    pub(super) fn at(&mut self, offset: u32) -> u64 {
        while let Some((slots, stamp_ns)) = self.runs.get(self.run) {
            if offset < self.start + slots {
                return *stamp_ns;
            }
            self.start += slots;
            self.run += 1;
        }
        0
    }
}

/// The time, ns since the Unix epoch.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_the_time_of_the_sync_that_found_them() {
        let mut arrivals = Arrivals::new(16);
        arrivals.note(3);
        arrivals.note(3);
        arrivals.note(5);
        assert_eq!(arrivals.runs.iter().map(|run| run.0).collect::<Vec<_>>(), [3, 2]);
        let (early, late) = (arrivals.runs[0].1, arrivals.runs[1].1);
        assert!(early > 1_600_000_000_000_000_000 && late >= early);
        let mut times = arrivals.times();
        assert_eq!([0, 2, 3, 4].map(|offset| times.at(offset)), [early, early, late, late]);
        assert_eq!(arrivals.release(2), 2);
        assert_eq!(arrivals.release(2), 4);
        arrivals.published();
        assert_eq!((arrivals.slots, arrivals.times().at(0)), (1, late));
        arrivals.note(2);
        assert_eq!(arrivals.release(2), 2);
        assert!(arrivals.runs.is_empty());
    }
}
