//! What decides for a switch with flow tables, on one worker.

use std::ops::Range;
use std::sync::Arc;

use ringroad_port::batch::Batch;
use ringroad_port::clock::Clock;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::ETHERNET_HEADER_BYTES;
use ringroad_port::plan::{Decide, Decided, Destination, Fate, FrameCopy, Plan, STEPS_PER_COST};
use ringroad_port::port_index::{PortIndex, PortMask};
use ringroad_switch::LearningSwitch;

use crate::ahead::Ahead;
use crate::cache::{Known, WayCache};
use crate::control_frame::{PACKET_OUT_BYTES, packet_out_ports, port_number};
use crate::effort::Effort;
use crate::fates::Fates;
use crate::key::PIPELINE_WORDS;
pub use crate::one_frame::cause;
use crate::one_frame::{Judges, Noted, OneFrame};
use crate::packet::Packet;
use crate::pipeline::Scratch;
use crate::state::WorkerTables;
use crate::tables::Fragments;
use crate::tally::Tally;
use crate::way::{Ends, Way};

/// The decider of a switch with flow tables.
#[derive(Debug)]
pub struct FlowDecider {
    needs: WorkerTables,
    switch: Arc<LearningSwitch>,
    /// The port behind which the controllers are.
    controllers: PortIndex,
    clock: Clock,
    packet: Packet,
    scratch: Scratch,
    cache: WayCache,
    ahead: Ahead,
    noted: Noted,
    tally: Tally,
}

/// The decider of a switch whose flow tables are not there yet: it drops what a switch without flows would drop.
#[derive(Debug)]
pub struct NoFlows;

impl Decide for NoFlows {
    fn decide(&mut self, _: PortIndex, batch: &Batch, first: usize, _: u64, plan: &mut Plan) -> Decided {
        plan.fates_mut(first..batch.frames()).fill(Fate::Drop(DropCause::NoFlow));
        Decided::all(batch)
    }
}

impl FlowDecider {
    /// Decides by the tables; `switch` is what it does with frames that a flow sends to NORMAL.
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
            scratch: Scratch::default(),
            cache: WayCache::default(),
            ahead: Ahead::default(),
            noted: Noted::default(),
            tally: Tally::default(),
        }
    }
}

/// Sends the controllers' packets to their destinations.
fn send_out(batch: &Batch, first: usize, plan: &mut Plan) {
    for frame in first..batch.frames() {
        let (mut header, mut len) = ([0; PACKET_OUT_BYTES], 0);
        for fragment in batch.frame(frame) {
            len += fragment.bytes().read(header.get_mut(len..).unwrap_or_default());
        }
        let ports = match len {
            PACKET_OUT_BYTES => packet_out_ports(&header),
            _ => PortMask::EMPTY,
        };
        let copy = plan.set(ports).zip(plan.head(PACKET_OUT_BYTES, &[]));
        let copy = copy.map(|(set, head)| FrameCopy { to: Destination::Ports(set), head: Some(head) });
        plan.copy(frame, copy.as_slice());
    }
}

impl Decide for FlowDecider {
    fn decide(
        &mut self,
        from: PortIndex,
        batch: &Batch,
        first: usize,
        budget: u64,
        plan: &mut Plan,
    ) -> Decided {
        self.tally.clear();
        self.noted.clear();
        if from == self.controllers {
            send_out(batch, first, plan);
            return Decided::all(batch);
        }
        let Self { needs, switch, controllers, clock, packet, scratch, cache, ahead, noted, tally } = self;
        needs.turns.begin();
        // Nothing changes the tables any more once the state is gone.
        let Some(tables) = needs.tables.enter() else { return Decided::all(batch) };
        let now_ns = if tables.has_meters() { clock.now_ns() } else { 0 };
        let ends = Ends { from, controllers: *controllers };
        let judges = Judges { tables: &tables, switch, ends };
        let Scratch { set, trail } = scratch;
        let (in_port, words) = (port_number(from), tables.words_to_read());
        let end = batch.frames();
        let mut effort = Effort::new();
        // What the frames take beside searches, and of that what their copies will cost: more than the owner can pay is
        // not decided now.
        let (mut beside, mut of_copies) = (0, 0);
        let mut decided_end = end;

        // What does not depend on the frames is decided once for all of them.
        packet.enter(in_port);
        let mut common = None;
        if !tables.receives_by(in_port) {
            common = Some(Way::Drop(DropCause::PortDisabled));
        } else if words & !PIPELINE_WORDS == 0 {
            let (way, step) = tables.way(packet.last_key(), ends, tally.more_mut(), &mut effort);
            match way {
                Way::Other => tally.take_back(step, trail),
                _ => tally.take_new(step),
            }
            common = Some(way);
        }
        let counts = common != Some(Way::Drop(DropCause::PortDisabled));
        let is_cached = common.is_none() && cache.begin(&tables, end - first);
        let drops_fragments = tables.fragments == Fragments::Drop;
        let is_ahead = common.is_none() && !is_cached && !drops_fragments && ahead.begin(&tables);
        let singles = if batch.is_single() { Some(batch.fragments()) } else { None };
        let of_frame = |frame: usize| match singles.and_then(|all| all.get(frame)) {
            Some(one) => (std::slice::from_ref(one), one.len()),
            None => (batch.frame(frame), batch.frame_bytes(frame)),
        };
        let mut fates = Fates::new(first);
        if let Some(Way::Port(port)) = common
            && let Some(all) = singles.and_then(|all| all.get(first..))
            && all.iter().all(|one| one.len() >= ETHERNET_HEADER_BYTES)
        {
            tally.add_same(first..end, batch.bytes_of(first..end));
            plan.set_common(first..end, Fate::Port(port));
            return Decided { end, steps: effort.searched() };
        }
        let mut next = first;
        // A frame whose way is cached takes nothing that is weighed: the end is looked for behind the others.
        let is_spent = |effort: &Effort, beside| effort.searched() + beside >= budget;
        if is_spent(&effort, beside) {
            decided_end = end.min(first + 1);
        }
        while next < decided_end {
            let frame = next;
            next += 1;
            let (fragments, bytes) = of_frame(frame);
            if bytes < ETHERNET_HEADER_BYTES {
                fates.set(plan, frame, Fate::Drop(DropCause::TooShort));
                continue;
            }
            let mut is_new = false;
            // Without a step, the frame has those of the last one.
            let (way, step) = match common {
                Some(way) => (way, None),
                None if is_ahead
                    && let Some((key, first)) = {
                        if !ahead.has_looked(frame) {
                            let frames = (frame..end).map(of_frame);
                            beside += ahead.look((&tables, needs.worker), (packet, words), frame, frames);
                        }
                        ahead.get(frame)
                    } =>
                {
                    effort.begin();
                    let way = tables.way_behind(first, key, ends, tally.more_mut(), &mut effort);
                    if matches!(way, Way::Normal | Way::Other) {
                        packet.enter_frame(fragments, bytes, words);
                    }
                    if is_spent(&effort, beside) {
                        decided_end = next;
                    }
                    (way, Some(first))
                }
                None => {
                    let is_fragment = packet.enter_frame(fragments, bytes, words);
                    if drops_fragments && is_fragment {
                        fates.set(plan, frame, Fate::Drop(DropCause::Fragment));
                        continue;
                    }
                    let more = tally.more_mut();
                    let known = if is_cached { cache.find(packet.last_key()) } else { Known::Nothing };
                    match known {
                        Known::Nothing => {
                            is_new = is_cached;
                            effort.begin();
                            let (way, first) = tables.way(packet.last_key(), ends, more, &mut effort);
                            if is_spent(&effort, beside) {
                                decided_end = next;
                            }
                            (way, Some(first))
                        }
                        Known::Way(way, first, others) => {
                            more.extend_from_slice(others);
                            (way, Some(first))
                        }
                        Known::Last(way) => (way, None),
                    }
                }
            };
            let fate = match way {
                Way::Port(port) => Fate::Port(port),
                Way::Drop(cause) => Fate::Drop(cause),
                Way::Normal => {
                    if common.is_some() {
                        packet.enter(in_port);
                    }
                    let fate = judges.normal(packet.header(fragments), plan, noted);
                    if let Fate::Ports(set) = fate {
                        noted.normal_flood.get_or_insert(frame);
                        let copies = plan.ports(set).len() as u64 * STEPS_PER_COST;
                        (beside, of_copies) = (beside + copies, of_copies + copies);
                        if is_spent(&effort, beside) {
                            decided_end = next;
                        }
                    }
                    fate
                }
                Way::Other => {
                    if let Some(step) = step {
                        tally.take_back(step, trail);
                    }
                    let has_searched = step.is_some() && (!is_cached || is_new);
                    effort.begin_actions(has_searched);
                    packet.load_rest(fragments, bytes, batch.meta(frame).unfinished.has_open_checksum());
                    let mut sink = OneFrame::new(judges, frame, plan, noted, tally);
                    tables.follow(packet, trail, now_ns, set, &mut sink, &mut effort);
                    let copies = sink.copies() as u64 * STEPS_PER_COST;
                    match sink.finish() {
                        Some(fate) => fates.set(plan, frame, fate),
                        None => fates.write(plan, frame),
                    }
                    beside += effort.acted() + copies;
                    of_copies += copies;
                    if is_spent(&effort, beside) {
                        decided_end = next;
                    }
                    packet.enter(in_port);
                    // A cached path is not searched again, so it must not be one that a frame may not search.
                    if is_new
                        && effort.has_found()
                        && let Some(steps) = trail.steps()
                    {
                        cache.put(way, steps);
                    }
                    continue;
                }
            };
            fates.set(plan, frame, fate);
            match step {
                Some(step) => tally.add(step, frame, bytes),
                None if counts => tally.add_same(frame..frame + 1, bytes as u64),
                None => {}
            }
            if is_new {
                cache.put(way, tally.last());
            }
        }
        fates.finish(plan, decided_end);
        drop(tables);
        if let Some(frame) = noted.normal_flood
            && let Some(head) = switch.probe_with(batch.frame(frame))
            && let Fate::Ports(set) = plan.fate(frame)
        {
            plan.copy_both(frame, Destination::Ports(set), &head);
        }
        // A look into the cache for each frame.
        let looks = if is_cached { (decided_end - first) as u64 } else { 0 };
        Decided { end: decided_end, steps: effort.searched() + beside + looks - of_copies }
    }

    fn executed(&mut self, from: PortIndex, batch: &Batch, range: Range<usize>, _: &Plan) {
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

impl Drop for FlowDecider {
    fn drop(&mut self) {
        self.needs.turns.end();
    }
}
