//! Forwarding plane of a switch with flow tables, on one worker.

use std::ops::Range;
use std::sync::Arc;

use ringroad_port::batch::Batch;
use ringroad_port::clock::Clock;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{
    BatchPlan, Decision, Destination, ForwardingPlane, FrameCopy, Outcome, STEPS_PER_COST,
};
use ringroad_port::frame::ETHERNET_HEADER_BYTES;
use ringroad_port::port_index::{PortIndex, PortMask};
use ringroad_switch::LearningSwitch;

use crate::batch_lookup::BatchLookup;
use crate::cache::{ExactMatchCache, Known};
use crate::control_frame::{PACKET_OUT_BYTES, packet_out_ports, port_number};
use crate::fast_path::{FastOutcome, OutcomePorts};
use crate::key::PIPELINE_WORDS;
use crate::one_frame::{DecisionScratch, LookupContext, OneFrame};
use crate::outcomes::OutcomeRun;
use crate::packet::Packet;
use crate::pipeline::PipelineScratch;
use crate::state::WorkerTables;
use crate::step_budget::StepBudget;
use crate::tally::Tally;

/// Forwarding plane of a switch with flow tables.
#[derive(Debug)]
pub struct FlowPlane {
    needs: WorkerTables,
    switch: Arc<LearningSwitch>,
    controllers: PortIndex,
    clock: Clock,
    packet: Packet,
    scratch: PipelineScratch,
    cache: ExactMatchCache,
    batch_lookup: BatchLookup,
    noted: DecisionScratch,
    tally: Tally,
}

/// Forwarding plane of a switch whose flow tables do not exist yet: it drops what a switch without flows would drop.
#[derive(Debug)]
pub struct NoFlows;

impl ForwardingPlane for NoFlows {
    fn decide(
        &mut self,
        _: PortIndex,
        batch: &Batch,
        first: usize,
        _: u64,
        plan: &mut BatchPlan,
    ) -> Decision {
        plan.outcomes_mut(first..batch.frames()).fill(Outcome::Drop(DropCause::NoFlow));
        Decision::all(batch)
    }
}

impl FlowPlane {
    /// Makes the forwarding plane; `switch` decides on frames that a flow sends to NORMAL.
    #[must_use]
    pub fn new(
        needs: WorkerTables,
        switch: Arc<LearningSwitch>,
        controllers: PortIndex,
        clock: Clock,
    ) -> Self {
        Self {
            needs,
            switch,
            controllers,
            clock,
            packet: Packet::default(),
            scratch: PipelineScratch::default(),
            cache: ExactMatchCache::default(),
            batch_lookup: BatchLookup::default(),
            noted: DecisionScratch::default(),
            tally: Tally::default(),
        }
    }
}

/// Sends the controllers' packets to their destination ports.
fn send_out(batch: &Batch, first: usize, plan: &mut BatchPlan) {
    for frame in first..batch.frames() {
        let mut header = [0; PACKET_OUT_BYTES];
        let ports = match batch.read(frame, &mut header) {
            PACKET_OUT_BYTES => packet_out_ports(&header),
            _ => PortMask::EMPTY,
        };
        let copy = plan.set(ports).zip(plan.rewrite(PACKET_OUT_BYTES, &[]));
        let copy = copy.map(|(set, head)| FrameCopy { to: Destination::Ports(set), rewrite: Some(head) });
        plan.copy(frame, copy.as_slice());
    }
}

impl ForwardingPlane for FlowPlane {
    fn decide(
        &mut self,
        from: PortIndex,
        batch: &Batch,
        first: usize,
        budget: u64,
        plan: &mut BatchPlan,
    ) -> Decision {
        self.tally.clear();
        self.noted.clear();
        if from == self.controllers {
            send_out(batch, first, plan);
            return Decision::all(batch);
        }
        let Self { needs, switch, controllers, clock, packet, scratch, cache, batch_lookup, noted, tally } =
            self;
        needs.turns.begin();
        // The tables are gone once the state is dropped: nothing changes them any more.
        let Some(tables) = needs.tables.enter() else { return Decision::all(batch) };
        let now_ns = if tables.has_meters() { clock.now_ns() } else { 0 };
        let ends = OutcomePorts { from, controllers: *controllers };
        let context = LookupContext { tables: &tables, switch, ends };
        let PipelineScratch { set, lookup_cache } = scratch;
        let (in_port, words) = (port_number(from), tables.words_to_read());
        let end = batch.frames();
        let mut steps_left = StepBudget::new();
        // Steps of the frames beside searches, and the part of them that copies will cost. Frames beyond the owner's
        // budget are decided later.
        let (mut beside, mut of_copies) = (0, 0);
        let mut decided_end = end;

        // Results that do not depend on the frames are found once for all of them.
        packet.enter(in_port);
        let mut common = None;
        if !tables.receives_by(in_port) {
            common = Some(FastOutcome::Drop(DropCause::PortDisabled));
        } else if words & !PIPELINE_WORDS == 0 {
            let (fast_outcome, step) =
                tables.fast_outcome(packet.last_key(), ends, tally.more_mut(), &mut steps_left);
            match fast_outcome {
                FastOutcome::Other => tally.take_back(step, lookup_cache),
                _ => tally.take_new(step),
            }
            common = Some(fast_outcome);
        }
        let counts = common != Some(FastOutcome::Drop(DropCause::PortDisabled));
        let is_cached = common.is_none() && cache.begin(&tables, end - first);
        let drops_fragments = tables.drops_fragments;
        let is_ahead = common.is_none() && !is_cached && !drops_fragments && batch_lookup.begin(&tables);
        let singles = if batch.is_single() { Some(batch.fragments()) } else { None };
        let of_frame = |frame: usize| match singles.and_then(|all| all.get(frame)) {
            Some(one) => (std::slice::from_ref(one), one.len()),
            None => (batch.frame(frame), batch.frame_bytes(frame)),
        };
        let mut outcomes = OutcomeRun::new(first);
        if let Some(FastOutcome::Port(port)) = common
            && let Some(all) = singles.and_then(|all| all.get(first..))
            && all.iter().all(|one| one.len() >= ETHERNET_HEADER_BYTES)
        {
            tally.add_same(first..end, batch.bytes_of(first..end));
            plan.set_common(first..end, Outcome::Port(port));
            return Decision { end, steps: steps_left.searched() };
        }
        let mut next = first;
        // Cached frames add no searches, so the budget is checked only after other frames.
        let is_spent = |steps_left: &StepBudget, beside| steps_left.searched() + beside >= budget;
        if is_spent(&steps_left, beside) {
            decided_end = end.min(first + 1);
        }
        while next < decided_end {
            let frame = next;
            next += 1;
            let (fragments, bytes) = of_frame(frame);
            if bytes < ETHERNET_HEADER_BYTES {
                outcomes.set(plan, frame, Outcome::Drop(DropCause::TooShort));
                continue;
            }
            let mut is_new = false;
            // A step of `None` means the steps of the last frame.
            let (fast_outcome, step) = match common {
                Some(fast_outcome) => (fast_outcome, None),
                None if is_ahead
                    && let Some((key, first)) = {
                        if !batch_lookup.has_result(frame) {
                            let frames = (frame..end).map(of_frame);
                            beside +=
                                batch_lookup.lookup((&tables, needs.worker), (packet, words), frame, frames);
                        }
                        batch_lookup.get(frame)
                    } =>
                {
                    steps_left.begin();
                    let fast_outcome =
                        tables.fast_outcome_after(first, key, ends, tally.more_mut(), &mut steps_left);
                    if matches!(fast_outcome, FastOutcome::Normal | FastOutcome::Other) {
                        packet.enter_frame(fragments, bytes, words);
                    }
                    if is_spent(&steps_left, beside) {
                        decided_end = next;
                    }
                    (fast_outcome, Some(first))
                }
                None => {
                    let is_fragment = packet.enter_frame(fragments, bytes, words);
                    if drops_fragments && is_fragment {
                        outcomes.set(plan, frame, Outcome::Drop(DropCause::Fragment));
                        continue;
                    }
                    let more = tally.more_mut();
                    let known = if is_cached { cache.find(packet.last_key()) } else { Known::Nothing };
                    match known {
                        Known::Nothing => {
                            is_new = is_cached;
                            steps_left.begin();
                            let (fast_outcome, first) =
                                tables.fast_outcome(packet.last_key(), ends, more, &mut steps_left);
                            if is_spent(&steps_left, beside) {
                                decided_end = next;
                            }
                            (fast_outcome, Some(first))
                        }
                        Known::Way(fast_outcome, first, others) => {
                            more.extend_from_slice(others);
                            (fast_outcome, Some(first))
                        }
                        Known::Last(fast_outcome) => (fast_outcome, None),
                    }
                }
            };
            let outcome = match fast_outcome {
                FastOutcome::Port(port) => Outcome::Port(port),
                FastOutcome::Drop(cause) => Outcome::Drop(cause),
                FastOutcome::Normal => {
                    if common.is_some() {
                        packet.enter(in_port);
                    }
                    let outcome = context.normal(packet.header(fragments), plan, noted);
                    if let Outcome::Ports(set) = outcome {
                        noted.normal_flood.get_or_insert(frame);
                        let copies = plan.ports(set).len() as u64 * STEPS_PER_COST;
                        (beside, of_copies) = (beside + copies, of_copies + copies);
                        if is_spent(&steps_left, beside) {
                            decided_end = next;
                        }
                    }
                    outcome
                }
                FastOutcome::Other => {
                    if let Some(step) = step {
                        tally.take_back(step, lookup_cache);
                    }
                    let has_searched = step.is_some() && (!is_cached || is_new);
                    steps_left.begin_actions(has_searched);
                    packet.load_rest(fragments, bytes, batch.meta(frame).unfinished.has_open_checksum());
                    let mut sink = OneFrame::new(context, frame, plan, noted, tally);
                    tables.follow(packet, lookup_cache, now_ns, set, &mut sink, &mut steps_left);
                    let copies = sink.copies() as u64 * STEPS_PER_COST;
                    match sink.finish() {
                        Some(outcome) => outcomes.set(plan, frame, outcome),
                        None => outcomes.write(plan, frame),
                    }
                    beside += steps_left.acted() + copies;
                    of_copies += copies;
                    if is_spent(&steps_left, beside) {
                        decided_end = next;
                    }
                    packet.enter(in_port);
                    // The cache gets no path that exceeds a frame's limit, because a cached path is not searched again.
                    if is_new
                        && steps_left.has_found()
                        && let Some(steps) = lookup_cache.steps()
                    {
                        cache.put(fast_outcome, steps);
                    }
                    continue;
                }
            };
            outcomes.set(plan, frame, outcome);
            match step {
                Some(step) => tally.add(step, frame, bytes),
                None if counts => tally.add_same(frame..frame + 1, bytes as u64),
                None => {}
            }
            if is_new {
                cache.put(fast_outcome, tally.last());
            }
        }
        outcomes.finish(plan, decided_end);
        drop(tables);
        if let Some(frame) = noted.normal_flood
            && let Some(head) = switch.probe_with(batch.frame(frame))
            && let Outcome::Ports(set) = plan.outcome(frame)
        {
            plan.copy_both(frame, Destination::Ports(set), &head);
        }
        // Each frame costs one query of the cache.
        let lookups = if is_cached { (decided_end - first) as u64 } else { 0 };
        Decision { end: decided_end, steps: steps_left.searched() + beside + lookups - of_copies }
    }

    fn executed(&mut self, from: PortIndex, batch: &Batch, range: Range<usize>, _: &BatchPlan) {
        if from == self.controllers {
            return;
        }
        let Self { needs, tally, switch, noted, .. } = self;
        if let Some(frame) = noted.normal_flood.filter(|frame| range.contains(frame)) {
            switch.flooded(batch.frame(frame));
        }
        if let Some(tables) = needs.tables.enter() {
            tally.count(&tables, needs.worker, batch, range);
        }
        needs.turns.end();
    }

    fn own_port(&self) -> Option<PortIndex> {
        Some(self.controllers)
    }
}

impl Drop for FlowPlane {
    fn drop(&mut self) {
        self.needs.turns.end();
    }
}
