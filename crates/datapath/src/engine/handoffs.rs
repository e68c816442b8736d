//! Delivery of frames that other workers hand over.

use ringroad_port::batch::{Batch, FrameMeta};
use ringroad_ring::layout::MAX_FRAGMENTS;

use super::{Engine, Scratch, Served};
use crate::exchange::Handoff;
use crate::execution::{BYTES_PER_COST, HandoffDestination, finishing_factor};
use crate::forwarding::SwitchId;

impl Scratch {
    /// Appends a fragment that another worker handed over. Returns whether its frame is complete.
    #[inline]
    fn take_over(&mut self, handoff: &Handoff, first: bool) -> bool {
        self.batch.push(handoff.fragment, first);
        let whole = !handoff.fragment.has_more();
        if whole && handoff.meta != FrameMeta::default() {
            self.batch.describe(handoff.meta);
        }
        whole
    }
}

impl Engine {
    /// Delivers frames that other workers handed over, until `budget` is spent on each of these workers.
    pub(super) fn receive_handoffs(&mut self, budget: u64) -> Served {
        let mut served = Served::default();
        for inbox in &mut self.inboxes {
            let scratch = &mut self.scratch;
            let mut cost = 0;
            while cost < budget
                && let Some(target) = inbox.peek().map(|handoff| handoff.target)
            {
                let to = HandoffDestination::from(target, inbox, self.index);
                let view =
                    |switch: SwitchId| self.switches.get(usize::from(switch.0)).and_then(Option::as_ref);
                let copies = to.copies(inbox.peek().and_then(|handoff| view(handoff.switch)));
                let affordable = (budget - cost).div_ceil(copies).try_into().unwrap_or(usize::MAX);
                // Consecutive frames with one target make a batch.
                scratch.batch.reset(affordable);
                let mut first = true;
                let mut switch = SwitchId(0);
                while let Some(handoff) = inbox.peek()
                    && (!first || (handoff.target == target && scratch.batch.has_room(MAX_FRAGMENTS)))
                {
                    inbox.skip();
                    switch = handoff.switch;
                    first = scratch.take_over(&handoff, first);
                }
                let frames = scratch.batch.frames();
                served.frames += frames;
                let Scratch { batch, executor, .. } = scratch;
                let handed = (batch, Batch::numbers(0..frames));
                executor.deliveries.deliver_handed(
                    &mut self.queues,
                    view(switch),
                    &self.counters,
                    handed,
                    to,
                );
                let long = scratch.batch.bytes() / BYTES_PER_COST as u64;
                cost += copies * (frames as u64 + long * finishing_factor(&scratch.batch) as u64);
            }
            served.cost += cost;
        }
        if served.frames != 0 {
            served.cost += self.flush();
        }
        // The senders' slots come back when the frames are visible.
        for inbox in self.inboxes.iter_mut().filter(|inbox| inbox.has_taken()) {
            inbox.consume();
        }
        served
    }
}
