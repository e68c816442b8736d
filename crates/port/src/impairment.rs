//! Impairment: a port that loses, doubles, reorders, damages and delays frames exactly by its plan, and reports what it
//! did.
//!
//! An [`ImpairedQueue`] wraps a queue. Frames that the datapath delivers pass the [`ImpairmentPlan`] before they reach
//! the program; frames that the program sends are unchanged. Frames are numbered from 0 in the order of their delivery
//! to the queue, and the plan alone decides the outcome of each number: the same plan and the same frames always give
//! the same result. Each frame goes through these stages:
//!
//! 1. **drop**: the frame ends here, counted as [`DropCause::Impaired`](crate::drop_cause::DropCause::Impaired). Later
//!    stages and [`Reorder::by`] never see it.
//! 2. **corrupt**: one bit is flipped.
//! 3. **duplicate**: the frame will be delivered twice in a row, both times with the bytes of this stage.
//! 4. **reorder**: the frame steps aside until [`Reorder::by`] later frames have come (dropped frames do not count),
//!    then it joins the line behind the last of them.
//! 5. **delay**: the frame leaves the line at the first step of the datapath at which its delay is over and no frame is
//!    in front of it. A frame never overtakes the frame in front, so that only **reorder** changes the order.
//!
//! Frames that cannot pass at once are copied into memory that is allocated with the queue
//! ([`ImpairmentPlan::hold_frames`]). If this memory is full, they are dropped as
//! [`DropCause::HoldFull`](crate::drop_cause::DropCause::HoldFull); frames still held when the port ends count as
//! [`DropCause::PortGone`](crate::drop_cause::DropCause::PortGone). A copy made by **duplicate** counts as replicated.
//! So a port's counters are exact once no frame is held.

mod hold;
mod plan;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::counters::QueueCounters;
use crate::port_queue::PortQueue;

pub use plan::{
    Corruption, Delay, FramePattern, ImpairmentPlan, ImpairmentPlanError, Impairments, Reorder, Within,
};
pub use queue::ImpairedQueue;

/// Impairment of a port: wraps the port's queues, and reports its counters at any time.
#[derive(Debug, Clone)]
pub struct Impairment {
    plan: Arc<ImpairmentPlan>,
    clock: Clock,
    records: Vec<Arc<Record>>,
}

/// Counters of an impairment, in frames. Whenever no frame is on its way:
/// `arrived + duplicated = dropped + overflowed + abandoned + held + passed`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ImpairmentCounters {
    /// Frames that the datapath delivered to the port.
    pub arrived: u64,
    /// Frames dropped by the plan.
    pub dropped: u64,
    /// Copies made beyond the first.
    pub duplicated: u64,
    /// Frames taken aside. A frame taken aside keeps its old position if no frame behind it is left to pass it.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames with a delay of their own; frames behind them may be late, too.
    pub delayed: u64,
    /// Frames dropped because [`ImpairmentPlan::hold_frames`] were held already, or because they were longer than 128
    /// KiB.
    pub overflowed: u64,
    /// Frames still held when the port ended.
    pub abandoned: u64,
    /// Frames held now, copies included.
    pub held: u64,
    /// Frames given to the port's own ring, copies included. The ring may have dropped some: see the port's counters.
    pub passed: u64,
}

/// Counters of one queue. Only the worker that serves the queue writes them.
#[derive(Debug, Default)]
struct Record {
    arrived: AtomicU64,
    dropped: AtomicU64,
    duplicated: AtomicU64,
    reordered: AtomicU64,
    corrupted: AtomicU64,
    delayed: AtomicU64,
    overflowed: AtomicU64,
    abandoned: AtomicU64,
    held: AtomicU64,
    passed: AtomicU64,
}

/// Adds to a counter by a relaxed load and store: a counter has one writer. The sum wraps, so that a negative number
/// can lower a gauge.
#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl Record {
    fn add_to(&self, sum: &mut ImpairmentCounters) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        sum.arrived += get(&self.arrived);
        sum.dropped += get(&self.dropped);
        sum.duplicated += get(&self.duplicated);
        sum.reordered += get(&self.reordered);
        sum.corrupted += get(&self.corrupted);
        sum.delayed += get(&self.delayed);
        sum.overflowed += get(&self.overflowed);
        sum.abandoned += get(&self.abandoned);
        sum.held += get(&self.held);
        sum.passed += get(&self.passed);
    }
}

impl Impairment {
    /// An impairment by `plan`, with no queue yet. `clock` measures delays; a test can control it.
    ///
    /// # Errors
    /// [`ImpairmentPlanError`] if a value of the plan is out of range.
    pub fn new(plan: ImpairmentPlan, clock: Clock) -> Result<Self, ImpairmentPlanError> {
        Ok(Self { plan: Arc::new(plan.checked()?), clock, records: Vec::new() })
    }

    /// Puts the impairment in front of `port`, the next queue of the port; `counters` are the port queue's counters.
    #[must_use]
    pub fn wrap(&mut self, port: Box<dyn PortQueue>, counters: Arc<QueueCounters>) -> ImpairedQueue {
        let queue = self.records.len() as u16;
        let record = Arc::<Record>::default();
        self.records.push(Arc::clone(&record));
        ImpairedQueue::new(port, counters, Arc::clone(&self.plan), queue, self.clock.clone(), record)
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &ImpairmentPlan {
        &self.plan
    }

    /// Counters so far, of all queues together. The values may be of different moments; frames that a program has
    /// received are counted.
    #[must_use]
    pub fn counters(&self) -> ImpairmentCounters {
        let mut sum = ImpairmentCounters::default();
        self.records.iter().for_each(|record| record.add_to(&mut sum));
        sum
    }

    /// Outcome that the plan gives frame `number` of queue `queue`; the frame had it unless there was no room to hold
    /// the frame.
    #[must_use]
    pub fn impairments(&self, queue: u16, number: u64) -> Impairments {
        self.plan.impairments(queue, number)
    }

    /// Number and outcome of every frame that has arrived at queue `queue` so far and did not pass unchanged.
    pub fn affected(&self, queue: u16) -> impl Iterator<Item = (u64, Impairments)> + '_ {
        let record = self.records.get(usize::from(queue));
        let arrived = record.map_or(0, |record| record.arrived.load(Ordering::Relaxed));
        (0..arrived)
            .map(move |number| (number, self.impairments(queue, number)))
            .filter(|(_, impairments)| *impairments != Impairments::default())
    }
}
