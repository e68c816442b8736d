//! Impairment: a port that loses, doubles, reorders, damages and delays frames exactly by its plan, and reports what it
//! did.
//!
//! An [`ImpairedQueue`] wraps a queue. Frames that the datapath delivers pass the [`ImpairmentPlan`] before they reach
//! the program; frames that the program sends are unchanged. Frames are numbered from 0 in the order of their delivery
//! to the queue, and the plan alone decides the outcome of each number: the same plan and the same frames always give
//! the same result. Each frame goes through these stages:
//!
//! 1. **drop**: it ends here, counted as [`DropCause::Impaired`](crate::drop_cause::DropCause::Impaired). Later stages
//!    and [`Reorder::by`] never see it.
//! 2. **corrupt**: one bit is flipped.
//! 3. **duplicate**: it will be delivered twice in a row, both times with the bytes of this stage.
//! 4. **reorder**: it steps aside until [`Reorder::by`] later frames have come (those that were dropped do not count),
//!    then it joins the line behind the last of them.
//! 5. **delay**: it leaves the line at the first step of the datapath at which its delay is over and no frame is in
//!    front of it. A frame never overtakes one in front, so that only **reorder** changes the order.
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

/// The impairment of a port: makes its queues impaired ones, and reports its counters at any time.
#[derive(Debug, Clone)]
pub struct Impairment {
    plan: Arc<ImpairmentPlan>,
    clock: Clock,
    records: Vec<Arc<Record>>,
}

/// What an impairment has done so far, in frames. At any moment at which no frame is on its way:
/// `arrived + duplicated = dropped + overflowed + abandoned + held + passed`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ImpairmentCounters {
    /// Delivered to the port by the datapath.
    pub arrived: u64,
    /// Dropped by the plan.
    pub dropped: u64,
    /// Copies made beyond the first.
    pub duplicated: u64,
    /// Taken aside. Where none of the frames behind it is left to pass it, such a frame is in its old place in the end.
    pub reordered: u64,
    /// With a bit flipped.
    pub corrupted: u64,
    /// With a delay of their own; those behind them may be late too.
    pub delayed: u64,
    /// Dropped because [`ImpairmentPlan::hold_frames`] were held already, or longer than 128 KiB.
    pub overflowed: u64,
    /// Still held when the port ended.
    pub abandoned: u64,
    /// Held now, copies included.
    pub held: u64,
    /// Given to the port's own ring, copies included. The ring may have dropped some: see the port's counters.
    pub passed: u64,
}

/// The counters of one queue. Written by the worker that serves it only.
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

/// One writer: a relaxed load and store. Wraps, so that a gauge can be moved down by adding a negative number.
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
    /// An impairment by `plan`, with no queue yet. Delays are measured by `clock`, which a test can hold in its hand.
    ///
    /// # Errors
    /// [`ImpairmentPlanError`] where the plan holds a value out of range.
    pub fn new(plan: ImpairmentPlan, clock: Clock) -> Result<Self, ImpairmentPlanError> {
        Ok(Self { plan: Arc::new(plan.checked()?), clock, records: Vec::new() })
    }

    /// Puts the impairment before `port`, the next queue of the port, whose counters are `counters`.
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

    /// What was done so far, all queues together. Each value is of some moment; what a program has received is in them.
    #[must_use]
    pub fn counters(&self) -> ImpairmentCounters {
        let mut sum = ImpairmentCounters::default();
        self.records.iter().for_each(|record| record.add_to(&mut sum));
        sum
    }

    /// The plan's outcome for frame `number` of queue `queue`, which the frame had unless there was no room to hold it.
    #[must_use]
    pub fn impairments(&self, queue: u16, number: u64) -> Impairments {
        self.plan.impairments(queue, number)
    }

    /// The number and outcome of every frame that has arrived at queue `queue` so far and did not pass untouched.
    pub fn affected(&self, queue: u16) -> impl Iterator<Item = (u64, Impairments)> + '_ {
        let record = self.records.get(usize::from(queue));
        let arrived = record.map_or(0, |record| record.arrived.load(Ordering::Relaxed));
        (0..arrived)
            .map(move |number| (number, self.impairments(queue, number)))
            .filter(|(_, impairments)| *impairments != Impairments::default())
    }
}
