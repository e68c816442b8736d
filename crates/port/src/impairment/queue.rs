//! Queue that impairs frames on their way to another queue.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::hold::{HeldBytes, Hold, NotHeld};
use super::plan::{FramePattern, ImpairmentPlan, Impairments};
use super::{Record, add};
use crate::batch::{BATCH_FRAMES, Batch, FrameMeta};
use crate::clock::Clock;
use crate::counters::QueueCounters;
use crate::drop_cause::{DropCause, DropTally};
use crate::port_queue::{Backpressure, Delivery, HandOver, PortQueue, QueueProperties, Upgrade};

/// A queue that applies an [`ImpairmentPlan`] to the frames delivered to it, before they reach another queue. Frames
/// from that queue are passed on unchanged.
pub struct ImpairedQueue {
    port: Box<dyn PortQueue>,
    counters: Arc<QueueCounters>,
    plan: Arc<ImpairmentPlan>,
    queue: u16,
    clock: Clock,
    record: Arc<Record>,
    hold: Hold,
    /// Frames that leave in this order, each when its delay is over.
    line: VecDeque<Held>,
    /// Frames that stepped aside, in the order of their arrival.
    aside: VecDeque<ReorderedFrame>,
    /// Number of the next frame.
    number: u64,
    /// Frames that the plan did not drop.
    survivors: u64,
    /// Frames of the current batch that pass at once, before all frames in the line.
    direct: Vec<u16>,
    /// Frames that are just leaving the line.
    leaving: Batch,
    leaving_order: Vec<u16>,
}

#[derive(Debug)]
struct Held {
    bytes: HeldBytes,
    copies: u8,
    due_ns: u64,
    meta: FrameMeta,
}

#[derive(Debug)]
struct ReorderedFrame {
    held: Held,
    /// Number of survivors at which the frame leaves.
    until_survivor: u64,
    /// Time at which the frame leaves in any case, ns.
    until_ns: u64,
}

impl std::fmt::Debug for ImpairedQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImpairedQueue")
            .field("plan", &self.plan)
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

impl Drop for ImpairedQueue {
    /// Counts the frames that no port will get.
    fn drop(&mut self) {
        let held = self.line.iter().chain(self.aside.iter().map(|aside| &aside.held));
        let copies: u32 = held.map(|held| u32::from(held.copies)).sum();
        add(&self.record.abandoned, u64::from(copies));
        add(&self.record.held, u64::from(copies).wrapping_neg());
        self.drop_frames(DropCause::PortGone, copies);
    }
}

impl ImpairedQueue {
    pub(super) fn new(
        port: Box<dyn PortQueue>,
        counters: Arc<QueueCounters>,
        plan: Arc<ImpairmentPlan>,
        queue: u16,
        clock: Clock,
        record: Arc<Record>,
    ) -> Self {
        let most = plan.hold_frames as usize;
        Self {
            port,
            counters,
            queue,
            clock,
            record,
            hold: Hold::new(plan.hold_frames),
            plan,
            line: VecDeque::with_capacity(most),
            aside: VecDeque::with_capacity(most),
            number: 0,
            survivors: 0,
            direct: Vec::with_capacity(BATCH_FRAMES),
            leaving: Batch::new(),
            leaving_order: Vec::with_capacity(BATCH_FRAMES),
        }
    }

    fn drop_frames(&self, cause: DropCause, frames: u32) {
        let mut dropped = DropTally::default();
        dropped.add(cause, frames);
        self.counters.dropped(&dropped);
    }

    /// Applies the plan to one frame of the batch.
    fn admit(&mut self, batch: &mut Batch, frame: u16, now_ns: u64) {
        if self.line.front().is_some_and(|held| held.due_ns <= now_ns) {
            self.send_direct(batch);
            self.send_due(now_ns);
        }
        let number = self.number;
        self.number += 1;
        let impairments = self.plan.impairments(self.queue, number);
        if impairments.drop {
            add(&self.record.dropped, 1);
            return self.drop_frames(DropCause::Impaired, 1);
        }
        self.survivors += 1;
        let fragments = batch.frame(usize::from(frame));
        let bit = match impairments.corrupt {
            true => self.plan.bit(self.queue, number, fragments.iter().map(|fragment| fragment.len()).sum()),
            false => None,
        };
        if bit.is_none() && !impairments.reorder && impairments.delay_ns == 0 && self.line.is_empty() {
            self.pass(batch, frame, impairments.duplicate);
        } else {
            self.hold_frame(batch, frame, bit, &impairments, now_ns);
        }
        while self.aside.front().is_some_and(|aside| aside.until_survivor <= self.survivors) {
            self.rejoin();
        }
    }

    /// Lets a frame of the batch pass unchanged.
    fn pass(&mut self, batch: &mut Batch, frame: u16, duplicate: bool) {
        let copies = 1 + usize::from(duplicate);
        if self.direct.len() + copies > BATCH_FRAMES {
            self.send_direct(batch);
        }
        if duplicate {
            // The frame's buffer cannot be in two slots.
            batch.set_replicated(usize::from(frame));
            self.count_duplicate();
        }
        self.direct.extend(std::iter::repeat_n(frame, copies));
    }

    fn count_duplicate(&self) {
        add(&self.record.duplicated, 1);
        self.counters.replicated(1);
    }

    /// Copies a frame of the batch, to deliver it later.
    fn hold_frame(
        &mut self,
        batch: &Batch,
        frame: u16,
        bit: Option<usize>,
        impairments: &Impairments,
        now_ns: u64,
    ) {
        let frame = usize::from(frame);
        let bytes = match self.hold.put(batch.frame(frame)) {
            Ok(bytes) => bytes,
            Err(why) => {
                add(&self.record.overflowed, 1);
                let cause = if why == NotHeld::Full { DropCause::HoldFull } else { DropCause::TooLong };
                return self.drop_frames(cause, 1);
            }
        };
        if let Some(bit) = bit {
            self.hold.flip(&bytes, bit);
            add(&self.record.corrupted, 1);
        }
        if impairments.duplicate {
            self.count_duplicate();
        }
        let copies = 1 + u8::from(impairments.duplicate);
        add(&self.record.held, u64::from(copies));
        add(&self.record.delayed, u64::from(impairments.delay_ns != 0));
        let due_ns = now_ns.saturating_add(impairments.delay_ns);
        let held = Held { bytes, copies, due_ns, meta: batch.meta(frame) };
        if impairments.reorder {
            add(&self.record.reordered, 1);
            let patience_ns = self.plan.reorder.patience_ns.unwrap_or(u64::MAX);
            self.aside.push_back(ReorderedFrame {
                held,
                until_survivor: self.survivors + u64::from(self.plan.reorder.by),
                until_ns: now_ns.saturating_add(patience_ns),
            });
        } else {
            self.line.push_back(held);
        }
    }

    /// Puts the frame that stepped aside first back into the line.
    fn rejoin(&mut self) {
        self.line.extend(self.aside.pop_front().map(|aside| aside.held));
    }

    /// Delivers the frames of the batch that pass at once.
    fn send_direct(&mut self, batch: &mut Batch) {
        if self.direct.is_empty() {
            return;
        }
        let delivery = self.port.deliver(batch, &self.direct);
        self.count_undelivered(&delivery, self.direct.len());
        self.direct.clear();
    }

    /// Delivers the due frames, from the front of the line. Returns whether there was one.
    fn send_due(&mut self, now_ns: u64) -> bool {
        while self.aside.front().is_some_and(|aside| aside.until_ns <= now_ns) {
            self.rejoin();
        }
        let mut any = false;
        loop {
            self.leaving.reset(BATCH_FRAMES);
            self.leaving_order.clear();
            let due = self.line.iter().take_while(|held| held.due_ns <= now_ns);
            for (number, held) in (0u16..).zip(due) {
                let copies = usize::from(held.copies);
                if !self.leaving.has_room(held.bytes.fragments())
                    || self.leaving_order.len() + copies > BATCH_FRAMES
                {
                    break;
                }
                // SAFETY: the memory is freed below, after the delivery, and the batch is emptied before it is used
                // again.
                unsafe { self.hold.append_to(&held.bytes, &mut self.leaving) };
                self.leaving.describe(held.meta);
                self.leaving_order.extend(std::iter::repeat_n(number, copies));
            }
            if self.leaving_order.is_empty() {
                return any;
            }
            any = true;
            let delivery = self.port.deliver(&mut self.leaving, &self.leaving_order);
            let copies = self.leaving_order.len();
            add(&self.record.held, (copies as u64).wrapping_neg());
            self.count_undelivered(&delivery, copies);
            for held in self.line.drain(..self.leaving.frames()) {
                self.hold.free(held.bytes);
            }
        }
    }

    fn count_undelivered(&self, delivery: &Delivery, frames: usize) {
        add(&self.record.passed, frames as u64);
        self.counters.delivered(u64::from(delivery.frames), delivery.bytes);
        self.counters.uncopied_frames(delivery.uncopied.into());
        self.counters.dropped(&delivery.dropped);
    }

    fn holds(&self) -> bool {
        !self.line.is_empty() || !self.aside.is_empty()
    }
}

impl PortQueue for ImpairedQueue {
    fn inner(&mut self) -> Option<&mut dyn PortQueue> {
        Some(self.port.as_mut())
    }

    /// The queue has work of its own, so the datapath must prepare each sleep.
    fn properties(&mut self) -> QueueProperties {
        QueueProperties { sleeps_alone: false, ..self.port.properties() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        // The datapath calls this at each of its steps: due frames leave even if no frame arrives.
        if self.holds() && self.send_due(self.clock.now_ns()) {
            self.counters.wakeups(self.port.flush().into());
        }
        self.port.receive(batch);
    }

    fn release(&mut self, slots: usize) {
        self.port.release(slots);
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let now_ns = self.clock.now_ns();
        add(&self.record.arrived, frames.len() as u64);
        if self.holds() {
            self.send_due(now_ns);
        }
        for &frame in frames {
            self.admit(batch, frame, now_ns);
        }
        self.send_direct(batch);
        self.send_due(now_ns);
        Delivery { taken_over: frames.len() as u32, ..Delivery::default() }
    }

    /// Returns false: held frames may leave at a time when the next queue takes only finished frames.
    fn takes_unfinished(&mut self) -> bool {
        false
    }

    /// Returns false, as above.
    fn takes_open_checksums(&mut self) -> bool {
        false
    }

    fn due_in(&mut self) -> Option<Duration> {
        let line = self.line.front().map(|held| held.due_ns);
        let aside = self.aside.front().map(|aside| aside.until_ns).filter(|&until_ns| until_ns != u64::MAX);
        let next = line.into_iter().chain(aside).min();
        let own = next.map(|next| Duration::from_nanos(next.saturating_sub(self.clock.now_ns())));
        own.into_iter().chain(self.port.due_in()).min()
    }

    crate::roles! { backpressure: Backpressure, upgrade: Upgrade }
}

impl Upgrade for ImpairedQueue {
    fn prepare(&mut self) -> bool {
        self.port.upgrade().is_none_or(Upgrade::prepare)
    }

    /// Returns `None`: held frames would be lost.
    fn hand_over(&mut self) -> Option<HandOver> {
        None
    }

    fn resume(&mut self) {
        if let Some(port) = self.port.upgrade() {
            port.resume();
        }
    }
}

impl Backpressure for ImpairedQueue {
    /// Room beside the held frames, which need room when they leave. Frames that stepped aside wait for later frames,
    /// so they alone do not hold a source back.
    fn room(&mut self, frame_bytes: usize) -> usize {
        let behind = self.port.backpressure().map_or(BATCH_FRAMES, |behind| behind.room(frame_bytes));
        let held = self.record.held.load(Ordering::Relaxed) as usize;
        let room = behind.saturating_sub(held).min(self.hold.room(frame_bytes));
        let room = if self.plan.duplicate == FramePattern::Never { room } else { room / 2 };
        if self.line.is_empty() { room.max(behind.min(1)) } else { room }
    }

    fn await_room(&mut self) -> bool {
        self.port.backpressure().is_some_and(|behind| behind.await_room())
    }
}
