//! The account of one queue: every frame taken in is given out or dropped by cause.
//!
//! Each value has one writer, the worker that serves the queue; any thread may read at any time. A reader sees each
//! value as of some moment, and exact sums once traffic has stopped.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::drop_cause::{DropCause, DropTally};
use crate::port_queue::Refused;

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

/// The values of a queue, or of several added up.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Frames taken from the port.
    pub received_frames: u64,
    /// Bytes of those frames, without FCS.
    pub received_bytes: u64,
    /// Frames put into the port.
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

    /// Counts frames as dropped that were counted as delivered.
    pub fn refused(&self, refused: Refused) {
        add(&self.delivered_frames, refused.frames.wrapping_neg());
        add(&self.delivered_bytes, refused.bytes.wrapping_neg());
        self.dropped_as(refused.cause, refused.frames);
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
        sum.delivered_frames += get(&self.delivered_frames);
        sum.delivered_bytes += get(&self.delivered_bytes);
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
    }
}

impl CounterSnapshot {
    /// Frames dropped for `cause`.
    #[must_use]
    pub fn dropped_for(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
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
