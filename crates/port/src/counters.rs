//! The account of one queue: every frame taken in is given out or dropped by cause.
//!
//! Each value has one writer, the worker that serves the queue; any thread may read at any time. A reader sees each
//! value as of some moment, and exact sums once traffic has stopped.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::drop_cause::{DropCause, DropTally};

/// Counters of one queue. `received` and `delivered` are seen from the datapath: received from the port, delivered to
/// it.
#[derive(Debug, Default)]
pub struct QueueCounters {
    received_frames: AtomicU64,
    received_bytes: AtomicU64,
    delivered_frames: AtomicU64,
    delivered_bytes: AtomicU64,
    replicated_frames: AtomicU64,
    dropped: [AtomicU64; DropCause::ALL.len()],
    violations: AtomicU64,
    wakeups: AtomicU64,
    waiting_frames: AtomicU64,
    waiting_bytes: AtomicU64,
}

/// Frames that passed a queue's port without its worker.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Frames that came in by the port.
    pub received_frames: u64,
    /// Bytes of those frames, without FCS.
    pub received_bytes: u64,
    /// Frames that went out by the port.
    pub delivered_frames: u64,
    /// Bytes of those frames, without FCS.
    pub delivered_bytes: u64,
}

/// Frames that a queue got, and its device has not taken.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// How many.
    pub frames: u64,
    /// Bytes of those frames, without FCS.
    pub bytes: u64,
}

/// Frames that a queue got, and its device dropped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// How many, by cause.
    pub dropped: DropTally,
    /// Bytes of those frames, without FCS.
    pub bytes: u64,
}

/// The values of a queue, or of several added up.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Frames taken from the port.
    pub received_frames: u64,
    /// Bytes of those frames, without FCS.
    pub received_bytes: u64,
    /// Frames put into the port, without those that wait.
    pub delivered_frames: u64,
    /// Bytes of those frames, without FCS.
    pub delivered_bytes: u64,
    /// Copies beyond the first that flooding frames of this port made, and segments beyond the first of long frames
    /// delivered to it.
    pub replicated_frames: u64,
    /// Frames dropped, indexed by [`DropCause`].
    pub dropped: [u64; DropCause::ALL.len()],
    /// Rings stopped because the program broke a rule.
    pub violations: u64,
    /// Times the program was woken by its eventfd.
    pub wakeups: u64,
    /// Frames that a device has not taken, as of the last look; in no other value.
    pub waiting: Waiting,
}

/// A relaxed load and store: there is one writer, so no locked instruction is needed.
#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    if amount != 0 {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }
}

impl QueueCounters {
    /// The account of a queue that another process had up to here.
    #[must_use]
    pub fn resume(account: &CounterSnapshot) -> Self {
        Self {
            received_frames: account.received_frames.into(),
            received_bytes: account.received_bytes.into(),
            delivered_frames: account.delivered_frames.into(),
            delivered_bytes: account.delivered_bytes.into(),
            replicated_frames: account.replicated_frames.into(),
            dropped: account.dropped.map(AtomicU64::new),
            violations: account.violations.into(),
            wakeups: account.wakeups.into(),
            ..Self::default()
        }
    }

    /// Counts frames taken from the port.
    #[inline]
    pub fn received(&self, frames: u64, bytes: u64) {
        add(&self.received_frames, frames);
        add(&self.received_bytes, bytes);
    }

    /// Counts frames put into the port.
    #[inline]
    pub fn delivered(&self, frames: u64, bytes: u64) {
        add(&self.delivered_frames, frames);
        add(&self.delivered_bytes, bytes);
    }

    /// Counts copies beyond the first.
    #[inline]
    pub fn replicated(&self, frames: u64) {
        add(&self.replicated_frames, frames);
    }

    /// Counts frames dropped.
    #[inline]
    pub fn dropped(&self, tally: &DropTally) {
        if tally.total() != 0 {
            self.dropped_by_cause(tally);
        }
    }

    #[cold]
    fn dropped_by_cause(&self, tally: &DropTally) {
        for cause in DropCause::ALL {
            add(&self.dropped[cause as usize], u64::from(tally.of(cause)));
        }
    }

    /// Counts frames dropped for one cause.
    #[inline]
    pub fn dropped_as(&self, cause: DropCause, frames: u64) {
        add(&self.dropped[cause as usize], frames);
    }

    /// Counts frames that the kernel dropped before they could be received, as received and as dropped.
    pub fn missed(&self, frames: u64) {
        add(&self.received_frames, frames);
        self.dropped_as(DropCause::KernelDropped, frames);
    }

    /// Counts frames whose end did not come, as received and as dropped.
    pub fn incomplete(&self, frames: u64) {
        add(&self.received_frames, frames);
        self.dropped_as(DropCause::Incomplete, frames);
    }

    /// Counts frames that were counted as delivered as dropped: their device refused them.
    pub fn refused(&self, refused: &Refused) {
        add(&self.delivered_frames, u64::from(refused.dropped.total()).wrapping_neg());
        add(&self.delivered_bytes, refused.bytes.wrapping_neg());
        self.dropped(&refused.dropped);
    }

    /// Notes which of the delivered frames the device has not taken.
    pub fn waiting(&self, waiting: Waiting) {
        self.waiting_frames.store(waiting.frames, Ordering::Relaxed);
        self.waiting_bytes.store(waiting.bytes, Ordering::Relaxed);
    }

    /// Counts the frames that wait as dropped: their device has ended.
    pub fn give_up_waiting(&self) {
        let waiting = self.waiting_frames.swap(0, Ordering::Relaxed);
        add(&self.delivered_frames, waiting.wrapping_neg());
        add(&self.delivered_bytes, self.waiting_bytes.swap(0, Ordering::Relaxed).wrapping_neg());
        self.dropped_as(DropCause::LinkDown, waiting);
    }

    /// Counts frames that passed without the worker.
    pub fn passed(&self, traffic: Traffic) {
        self.received(traffic.received_frames, traffic.received_bytes);
        self.delivered(traffic.delivered_frames, traffic.delivered_bytes);
    }

    /// Counts a violation.
    pub fn violation(&self) {
        self.violations(1);
    }

    /// Counts several.
    pub fn violations(&self, violations: u64) {
        add(&self.violations, violations);
    }

    /// Counts kicks given to the program.
    #[inline]
    pub fn wakeups(&self, kicks: u32) {
        add(&self.wakeups, u64::from(kicks));
    }

    /// Adds the values to `sum`.
    pub fn add_to(&self, sum: &mut CounterSnapshot) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        sum.received_frames += get(&self.received_frames);
        sum.received_bytes += get(&self.received_bytes);
        let waiting = Waiting { frames: get(&self.waiting_frames), bytes: get(&self.waiting_bytes) };
        sum.delivered_frames += get(&self.delivered_frames).saturating_sub(waiting.frames);
        sum.delivered_bytes += get(&self.delivered_bytes).saturating_sub(waiting.bytes);
        sum.waiting += waiting;
        sum.replicated_frames += get(&self.replicated_frames);
        for (total, counter) in sum.dropped.iter_mut().zip(&self.dropped) {
            *total += get(counter);
        }
        sum.violations += get(&self.violations);
        sum.wakeups += get(&self.wakeups);
    }
}

impl std::ops::AddAssign for CounterSnapshot {
    fn add_assign(&mut self, other: Self) {
        self.received_frames += other.received_frames;
        self.received_bytes += other.received_bytes;
        self.delivered_frames += other.delivered_frames;
        self.delivered_bytes += other.delivered_bytes;
        self.replicated_frames += other.replicated_frames;
        for (total, dropped) in self.dropped.iter_mut().zip(other.dropped) {
            *total += dropped;
        }
        self.violations += other.violations;
        self.wakeups += other.wakeups;
        self.waiting += other.waiting;
    }
}

impl std::ops::AddAssign for Waiting {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }
}

impl CounterSnapshot {
    /// Frames dropped for `cause`.
    #[must_use]
    pub fn dropped_for(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
    }

    /// Counts the frames that wait as dropped: what they wait in ends with the process.
    pub fn give_up_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.dropped[DropCause::LinkDown as usize] += waiting.frames;
    }

    /// All frames dropped.
    #[must_use]
    pub fn dropped_frames(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// The conservation sum over ports that exchange frames: received + replicated - delivered - dropped. Zero once
    /// traffic has stopped.
    #[must_use]
    pub fn unaccounted(all: &[Self]) -> i128 {
        all.iter()
            .map(|port| {
                i128::from(port.received_frames) + i128::from(port.replicated_frames)
                    - i128::from(port.delivered_frames)
                    - i128::from(port.dropped_frames())
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(counters: &QueueCounters) -> CounterSnapshot {
        let mut sum = CounterSnapshot::default();
        counters.add_to(&mut sum);
        sum
    }

    #[test]
    fn what_waits_is_delivered_once_it_is_taken_and_dropped_if_it_never_is() {
        let counters = QueueCounters::default();
        counters.received(5, 500);
        counters.delivered(5, 500);
        counters.waiting(Waiting { frames: 3, bytes: 300 });
        let stuck = snapshot(&counters);
        assert_eq!((stuck.delivered_frames, stuck.delivered_bytes, stuck.waiting.frames), (2, 200, 3));
        counters.waiting(Waiting { frames: 1, bytes: 100 });
        assert_eq!(snapshot(&counters).delivered_frames, 4);

        // Another process takes up the account, and not what waits.
        let mut left = snapshot(&counters);
        left.give_up_waiting();
        let resumed = snapshot(&QueueCounters::resume(&left));
        counters.give_up_waiting();
        for ended in [snapshot(&counters), resumed] {
            assert_eq!((ended.delivered_frames, ended.delivered_bytes), (4, 400));
            assert_eq!((ended.dropped_for(DropCause::LinkDown), ended.waiting), (1, Waiting::default()));
            assert_eq!(CounterSnapshot::unaccounted(&[ended]), 0);
        }
    }

    #[test]
    fn refused_frames_are_dropped_and_not_delivered() {
        let counters = QueueCounters::default();
        counters.received(5, 500);
        counters.delivered(5, 500);
        let mut refused = Refused { bytes: 200, ..Refused::default() };
        refused.dropped.add(DropCause::Refused, 2);
        counters.refused(&refused);
        let sum = snapshot(&counters);
        assert_eq!((sum.delivered_frames, sum.delivered_bytes), (3, 300));
        assert_eq!(sum.dropped_for(DropCause::Refused), 2);
        assert_eq!(CounterSnapshot::unaccounted(&[sum]), 0);
    }

    #[test]
    fn incomplete_frames_are_received_and_dropped() {
        let counters = QueueCounters::default();
        counters.incomplete(7);
        let sum = snapshot(&counters);
        assert_eq!((sum.received_frames, sum.dropped_for(DropCause::Incomplete)), (7, 7));
        assert_eq!(CounterSnapshot::unaccounted(&[sum]), 0);
    }
}
