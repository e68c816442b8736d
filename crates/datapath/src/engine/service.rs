//! Service of a queue: takes a batch, has it decided, delivers it, and releases its slots.

use std::ops::Range;

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::{DropCause, DropTally};
use ringroad_port::forwarding_plane::{BatchPlan, Outcome, STEPS_PER_COST};
use ringroad_port::port_index::PortIndex;
use ringroad_port::port_queue::{Lend, PortQueue};

use super::{Engine, Scratch, Served};
use crate::copies::LEAST_ROOM;
use crate::engine_queue::{EngineQueue, PendingRelease, SpareBatches};
use crate::exchange::{Outbox, is_consumed, positions};
use crate::execution::{BYTES_PER_COST, DeliveryTargets, Executed, Executor, Job, Origin};
use crate::forwarding::{Forwarding, SwitchId, SwitchView};

/// Cost of waking a program.
pub(super) const KICK_COST: u64 = 8;

impl Engine {
    /// Serves the queue at `queue_index` until `budget` is spent: the rest of its held batch, if it has one, else new
    /// frames.
    #[inline(always)]
    pub(super) fn serve(&mut self, queue_index: u32, budget: u64) -> Served {
        let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) else { return Served::EMPTY_POLL };
        if queue.is_idle() {
            return Served::EMPTY_POLL;
        }
        let forwarding = queue.forwarding;
        if (!queue.pending.is_empty() || !self.outboxes.is_empty())
            && !self.may_serve(queue_index, forwarding)
        {
            return self.serve_later(queue_index);
        }
        match forwarding {
            Forwarding::Wire(destination) => self.serve_wire(queue_index, budget, destination),
            Forwarding::Switch { switch, port, queue } => {
                self.serve_switch(queue_index, budget, (switch, port, queue))
            }
            Forwarding::Hold => Served::EMPTY_POLL,
        }
    }

    /// Takes back the slots of the queue at `queue_index` that their borrowers are done with. Returns whether other
    /// workers, and the memory for header rewrites, have room for a full batch, so that no frame is dropped for lack of
    /// room.
    #[inline(never)]
    pub(super) fn may_serve(&mut self, queue_index: u32, forwarding: Forwarding) -> bool {
        if matches!(self.queues.get(queue_index as usize), Some(Some(queue)) if !queue.pending.is_empty()) {
            self.settle(queue_index, forwarding);
        }
        let free = self.outboxes.iter().flatten().map(Outbox::free).min();
        free.is_none_or(|free| free >= LEAST_ROOM) && self.scratch.copier.has_room(&self.outboxes)
    }

    /// Leaves a held batch of the queue at `queue_index` to the next turn of its owner.
    #[inline(never)]
    pub(super) fn serve_later(&mut self, queue_index: u32) -> Served {
        if self.holds_batch(queue_index) {
            self.scheduler.begin_with(queue_index);
        }
        Served::EMPTY_POLL
    }

    /// Whether the queue at `queue_index` has a held batch.
    #[inline]
    pub(super) fn holds_batch(&self, queue_index: u32) -> bool {
        matches!(self.queues.get(queue_index as usize), Some(Some(queue)) if queue.held.is_some())
    }

    /// Forwards frames of the queue at `queue_index` to the queue at `destination`, which holds them back while it is
    /// full.
    #[inline(never)]
    pub(super) fn serve_wire(&mut self, queue_index: u32, budget: u64, destination: u32) -> Served {
        let Scratch { batch, executor, .. } = &mut self.scratch;
        let Some((source, mut taker)) = pair(&mut self.queues, queue_index, destination) else {
            return Served::EMPTY_POLL;
        };
        let mut most = source.most(budget);
        if let Some(taker) = taker.as_mut().filter(|taker| taker.holds_back)
            && let Some(behind) = taker.port.backpressure()
        {
            most = most.min(behind.room(source.port.longest_frame_bytes()));
            if most == 0 {
                return Served::EMPTY_POLL;
            }
        }
        batch.reset(most);
        batch.set_taker(taker.as_ref().and_then(|taker| taker.properties.region));
        source.receive(batch);
        let (frames, bytes) = (batch.frames(), batch.bytes());
        if frames == 0 {
            return finish_empty(source, batch, &self.outboxes);
        }
        let list = Batch::numbers(0..frames);
        let (mut lent, mut kicks) = (0, 0);
        let mut frame_cost = u64::from(source.properties.take_cost);
        match taker {
            Some(taker) => {
                // Maximum of both costs, since the cost of shared memory is part of either.
                frame_cost = frame_cost.max(taker.properties.frame_cost.into());
                executor.deliveries.deliver_to(taker, destination, batch, list);
                kicks += taker.flush();
                if batch.lends()
                    && let Some(lender) = taker.port.lender()
                {
                    lent = lender.lent();
                    // Slots that a device copies within the call come back at once.
                    if lender.returned() >= lent {
                        lent = 0;
                    }
                }
            }
            None => source.counters.dropped_as(DropCause::PortGone, list.len() as u64),
        }
        source.counters.received(list.len() as u64, bytes);
        finish_batch(source, batch, lent, &self.outboxes);
        kicks += source.flush();
        let cost = bytes / BYTES_PER_COST as u64 + list.len() as u64 * frame_cost;
        Served { frames: list.len(), cost: Served::EMPTY_POLL.cost + cost + u64::from(kicks) * KICK_COST }
    }

    /// Forwards frames of the queue at `queue_index`, which belongs to a port of a switch, as the switch decides.
    #[inline(never)]
    pub(super) fn serve_switch(
        &mut self,
        queue_index: u32,
        budget: u64,
        (switch, port, queue): (SwitchId, PortIndex, u16),
    ) -> Served {
        let Scratch { batch, plan, executor, copier, spare } = &mut self.scratch;
        let Some(Some(source)) = self.queues.get_mut(queue_index as usize) else { return Served::EMPTY_POLL };
        let mut from = 0;
        if source.held.is_some() {
            from = take_up(source, batch, spare);
        } else {
            batch.reset(source.most(budget));
            source.receive(batch);
        }
        let frames = batch.frames();
        if frames == 0 {
            return finish_empty(source, batch, &self.outboxes);
        }
        let mut dropped = DropTally::default();
        let mut executed = Executed { end: frames, replicated: 0, cost: 0 };
        let mut decision_cost = 0;
        match self.switches.get_mut(usize::from(switch.0)) {
            Some(Some(SwitchView { decide, topology, .. })) => {
                plan.reset(from..frames);
                let decided = decide.decide(port, batch, from, budget.saturating_mul(STEPS_PER_COST), plan);
                // Frames that are not executed now are decided again, and paid again.
                decision_cost = decided.steps / STEPS_PER_COST;
                // Frames that are decided are executed in any case if they are short: a second decision would cost
                // more.
                let least = 2 * (decided.end - from) as u64;
                let budget = budget.saturating_sub(decision_cost).max(least).max(1);
                if batch.is_unfinished() {
                    refuse_impossible(batch, from..decided.end, plan);
                }
                let origin = Origin { topology, switch, port, queue, worker: self.index };
                let outcomes = plan.outcomes(0..decided.end);
                let common = plan.common(from..decided.end);
                let job = Job { first: from, outcomes, common, plan, origin, budget };
                let outlets = DeliveryTargets { queues: &mut self.queues, outboxes: &mut self.outboxes };
                executed = match plan.is_plain() {
                    true => executor.execute(batch, job, outlets, &mut dropped),
                    false => copier.execute(executor, batch, job, outlets, &mut dropped),
                };
                decide.executed(port, batch, from..executed.end, plan);
            }
            _ => dropped.add(DropCause::PortGone, (frames - from) as u32),
        }
        let bytes = batch.bytes_of(from..executed.end);
        let received = executed.end - from;
        let mut cost = Served::EMPTY_POLL.cost + decision_cost + executed.cost;
        if received != 0 {
            // Frames are visible before their slots are: a sender whose slots are back finds its frames delivered.
            cost += show_delivered(executor, &mut self.queues, &mut self.outboxes);
        }
        let Some(Some(source)) = self.queues.get_mut(queue_index as usize) else { return Served::EMPTY_POLL };
        source.counters.received(received as u64, bytes);
        source.counters.replicated(executed.replicated);
        source.counters.dropped(&dropped);
        if executed.end < frames {
            hold(source, executed.end, batch, spare);
            self.scheduler.begin_with(queue_index);
        } else {
            finish_batch(source, batch, 0, &self.outboxes);
        }
        // Cost of taking these frames beyond that of taking them from a program's ring.
        cost += received as u64 * u64::from(source.properties.take_cost - 1);
        if received != 0 {
            cost += u64::from(source.flush()) * KICK_COST;
            // Frames that pass a queue wake it.
            self.wake_queue(queue_index);
        }
        Served { frames: received, cost }
    }

    /// Releases the slots of the queue at `queue_index` that their borrowers are done with.
    #[cold]
    pub(super) fn settle(&mut self, queue_index: u32, forwarding: Forwarding) {
        let returned = match forwarding {
            Forwarding::Wire(destination) => {
                let lender = self.queue_mut(destination).and_then(PortQueue::lender);
                lender.map_or(u64::MAX, Lend::returned)
            }
            _ => u64::MAX,
        };
        if let Some(Some(source)) = self.queues.get_mut(queue_index as usize) {
            settle(source, &self.outboxes, returned);
        }
    }

    /// Makes the slots that the queue at `queue_index` got back visible. Returns the cost of waking its program.
    #[inline]
    pub(super) fn flush_source(&mut self, queue_index: u32) -> u64 {
        let Some(Some(source)) = self.queues.get_mut(queue_index as usize) else { return 0 };
        u64::from(source.flush()) * KICK_COST
    }

    /// Makes all delivered frames visible. Returns the cost of waking programs.
    pub(super) fn flush(&mut self) -> u64 {
        show_delivered(&mut self.scratch.executor, &mut self.queues, &mut self.outboxes)
    }
}

/// Makes all delivered frames visible. Returns the cost of waking programs.
#[inline]
fn show_delivered(
    executor: &mut Executor,
    queues: &mut [Option<Box<EngineQueue>>],
    outboxes: &mut [Option<Outbox>],
) -> u64 {
    let mut kicks = 0;
    for queue_index in executor.deliveries.dirty.drain(..) {
        if let Some(Some(queue)) = queues.get_mut(queue_index as usize) {
            queue.dirty = false;
            kicks += queue.flush();
        }
    }
    for outbox in outboxes.iter_mut().flatten() {
        outbox.flush();
    }
    u64::from(kicks) * KICK_COST
}

/// Borrows the queue at `one`, and the queue at `other`, if there is one.
#[inline]
fn pair(
    queues: &mut [Option<Box<EngineQueue>>],
    one: u32,
    other: u32,
) -> Option<(&mut EngineQueue, Option<&mut EngineQueue>)> {
    if other as usize >= queues.len() || one == other {
        return queues.get_mut(one as usize)?.as_deref_mut().map(|one| (one, None));
    }
    let Ok([Some(one), other]) = queues.get_disjoint_mut([one as usize, other as usize]) else { return None };
    Some((one, other.as_deref_mut()))
}

/// Drops frames whose metadata is impossible.
#[cold]
fn refuse_impossible(batch: &Batch, frames: Range<usize>, plan: &mut BatchPlan) {
    for frame in frames {
        if !batch.meta(frame).unfinished.fits(batch.frame_bytes(frame)) {
            plan.set_outcome(frame, Outcome::Drop(DropCause::BadOffload));
        }
    }
}

/// Keeps `batch` at its source, dispatched up to the frame `next`, and leaves an empty batch in its stead.
#[cold]
fn hold(source: &mut EngineQueue, next: usize, batch: &mut Batch, spare: &mut SpareBatches) {
    let mut held = spare.pop().unwrap_or_default();
    std::mem::swap(batch, &mut held.batch);
    held.next = next;
    source.held = Some(held);
}

/// Moves the held batch of `source` into `batch`. Returns its first frame that is not dispatched.
#[cold]
fn take_up(source: &mut EngineQueue, batch: &mut Batch, spare: &mut SpareBatches) -> usize {
    let Some(mut held) = source.held.take() else { return 0 };
    std::mem::swap(batch, &mut held.batch);
    let next = held.next;
    spare.push(held);
    next
}

/// Gives back the held batch of `source`: frames that were not dispatched count as not received.
pub(super) fn give_up_held(source: &mut EngineQueue, outboxes: &[Option<Outbox>]) {
    if let Some(held) = source.held.take() {
        finish_batch(source, &held.batch, 0, outboxes);
    }
}

/// Gives the batch back to its source: first buffers that the destination keeps, then the slots.
#[inline]
fn finish_batch(source: &mut EngineQueue, batch: &Batch, lent: u64, outboxes: &[Option<Outbox>]) {
    if batch.gives()
        && let Some(lender) = source.port.lender()
    {
        lender.reclaim(batch);
    }
    release(source, batch.slots(), lent, outboxes);
}

/// Gives a batch without frames back to its source. Most are empty polls, which have no slots either.
#[inline(always)]
fn finish_empty(source: &mut EngineQueue, batch: &Batch, outboxes: &[Option<Outbox>]) -> Served {
    match batch.slots() {
        0 => Served::EMPTY_POLL,
        slots => finish_skipped(source, batch, slots, outboxes),
    }
}

/// Gives a batch back to its source, all of whose `slots` were skipped.
#[cold]
#[inline(never)]
fn finish_skipped(
    source: &mut EngineQueue,
    batch: &Batch,
    slots: usize,
    outboxes: &[Option<Outbox>],
) -> Served {
    finish_batch(source, batch, 0, outboxes);
    let kicks = u64::from(source.flush()) * KICK_COST;
    // The worker goes on: more such slots may wait.
    Served { frames: slots, cost: Served::EMPTY_POLL.cost + slots as u64 + kicks }
}

/// Releases the batch's slots, now or when their borrowers are done.
#[inline]
fn release(source: &mut EngineQueue, slots: usize, lent: u64, outboxes: &[Option<Outbox>]) {
    if source.pending.is_empty()
        && lent == 0
        && outboxes.iter().flatten().all(|outbox| outbox.position() == outbox.consumed())
    {
        return source.port.release(slots);
    }
    release_later(source, slots, lent, outboxes);
}

#[inline(never)]
fn release_later(source: &mut EngineQueue, slots: usize, lent: u64, outboxes: &[Option<Outbox>]) {
    source.pending.push_back(PendingRelease { slots, positions: positions(outboxes), lent });
}

/// Releases the slots that other workers, and the taker of lent slots, are done with.
pub(super) fn settle(source: &mut EngineQueue, outboxes: &[Option<Outbox>], returned: u64) {
    let mut any = false;
    while let Some(pending) = source.pending.front() {
        if pending.lent > returned || !is_consumed(&pending.positions, outboxes) {
            break;
        }
        source.port.release(pending.slots);
        source.pending.pop_front();
        any = true;
    }
    if any {
        source.flush();
    }
}
