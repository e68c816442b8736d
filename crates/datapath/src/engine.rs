//! One worker's share of the datapath: its queues, its view of the switches, and a step of work.
//!
//! A step serves every queue once: take a batch, decide, group by destination, deliver each group with one copy,
//! release, and make it all visible. Every frame received is delivered or dropped by cause within the step, or handed to
//! another worker, which then accounts for it.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::counters::QueueCounters;
use ringroad_port::drop_cause::{DropCause, DropTally};
use ringroad_port::port_queue::PortQueue;
use ringroad_ring::layout::MAX_FRAGMENTS;
use ringroad_switch::{DropReason, FrameHeader, MAX_PORTS, PortIndex, SourcePort, Verdict, classify};

use crate::exchange::{Handoff, Inbox, Outbox, Target};
use crate::finishing::Finisher;
use crate::forwarding::{Forwarding, QueueRef, SwitchId, SwitchView};
use crate::grouping::Groups;

/// Groups: two per port (unicast to the source's queue number, flooding to queue 0), then one per worker.
const REMOTE_GROUPS: usize = 2 * MAX_PORTS;
/// Most workers of one datapath.
pub const MAX_WORKERS: usize = 16;

/// Slots that can be released once other workers have copied the frames, or the one they were lent to is done with them.
#[derive(Debug)]
struct PendingRelease {
    slots: usize,
    positions: [u64; MAX_WORKERS],
    /// What [`PortQueue::returned`] of the wire's other end must reach.
    lent: u64,
}

/// A queue in the engine.
pub struct EngineQueue {
    port: Box<dyn PortQueue>,
    forwarding: Forwarding,
    counters: Arc<QueueCounters>,
    pending: VecDeque<PendingRelease>,
    dirty: bool,
}

impl std::fmt::Debug for EngineQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineQueue").field("forwarding", &self.forwarding).finish_non_exhaustive()
    }
}

impl EngineQueue {
    /// A queue whose frames go where `forwarding` says; `counters` is its account.
    #[must_use]
    pub fn new(port: Box<dyn PortQueue>, forwarding: Forwarding, counters: Arc<QueueCounters>) -> Self {
        Self { port, forwarding, counters, pending: VecDeque::new(), dirty: false }
    }

    /// Back to the driver's part.
    #[must_use]
    pub fn into_port(self) -> Box<dyn PortQueue> {
        self.port
    }
}

/// One worker's share of the datapath.
#[derive(Debug)]
pub struct Engine {
    index: u16,
    queues: Vec<Option<Box<EngineQueue>>>,
    /// Places in use, in the order they are served.
    active: Vec<u32>,
    switches: Vec<Option<SwitchView>>,
    outboxes: Vec<Option<Outbox>>,
    inboxes: Vec<Inbox>,
    scratch: Scratch,
}

/// Working memory of a step, allocated once.
#[derive(Debug)]
struct Scratch {
    batch: Batch,
    headers: Vec<FrameHeader>,
    /// Frame number of each header.
    numbers: Vec<u16>,
    verdicts: Vec<Verdict>,
    /// Verdict of each frame of the batch, for frames that go to other workers.
    by_frame: Vec<Verdict>,
    groups: Groups,
    flood_groups: Vec<u16>,
    /// 0, 1, 2, ...
    all: Vec<u16>,
    deliveries: Deliveries,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            batch: Batch::new(),
            headers: Vec::with_capacity(BATCH_FRAMES),
            numbers: Vec::with_capacity(BATCH_FRAMES),
            verdicts: vec![Verdict::Flood; BATCH_FRAMES],
            by_frame: vec![Verdict::Flood; BATCH_FRAMES],
            groups: Groups::new(REMOTE_GROUPS + MAX_WORKERS),
            flood_groups: Vec::with_capacity(MAX_PORTS),
            all: (0..BATCH_FRAMES as u16).collect(),
            deliveries: Deliveries { dirty: Vec::with_capacity(MAX_PORTS), finisher: Finisher::default() },
        }
    }
}

impl Scratch {
    /// Appends a fragment that another worker handed over. Says whether its frame is whole now.
    #[inline]
    fn take_over(&mut self, handoff: &Handoff, first: bool) -> bool {
        self.batch.push(handoff.fragment, first);
        let whole = !handoff.fragment.has_more();
        if whole && let Some(unfinished) = handoff.unfinished {
            self.batch.push_unfinished(unfinished);
        }
        whole
    }
}

impl Engine {
    /// An engine without ports; `index` is its worker's number.
    #[must_use]
    pub fn new(index: u16) -> Self {
        Self {
            index,
            queues: Vec::new(),
            active: Vec::new(),
            switches: Vec::new(),
            outboxes: Vec::new(),
            inboxes: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Connects the engine with other workers: `outboxes` indexed by worker, none for itself.
    pub fn connect(&mut self, outboxes: Vec<Option<Outbox>>, inboxes: Vec<Inbox>) {
        self.outboxes = outboxes;
        self.inboxes = inboxes;
    }

    /// Puts a queue at `place`, which the caller has chosen and nobody else uses.
    pub fn insert(&mut self, place: u32, queue: EngineQueue) {
        let index = place as usize;
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, || None);
        }
        if let Some(entry) = self.queues.get_mut(index) {
            *entry = Some(Box::new(queue));
        }
        if !self.active.contains(&place) {
            self.active.push(place);
        }
    }

    /// Takes the queue at `place` out. Before it, waits (spinning, while others work) until no other worker borrows
    /// its frames any more. What had been delivered to it becomes visible.
    pub fn remove(&mut self, place: u32) -> Option<EngineQueue> {
        let mut queue = self.queues.get_mut(place as usize)?.take()?;
        self.active.retain(|&other| other != place);
        while !queue.pending.is_empty() {
            // Nobody uses the slots of a queue that leaves: what was lent need not come back.
            settle(&mut queue, &self.outboxes, u64::MAX);
            self.receive_handoffs();
            std::hint::spin_loop();
        }
        queue.port.flush();
        Some(*queue)
    }

    /// Forwards what the queue at `place` has published so far and takes nothing from it any more: a program's last
    /// frames are not lost because it ended right after sending them.
    pub fn drain(&mut self, place: u32) {
        // A ring holds at most 4096 slots; a program that goes on sending is not waited for.
        for _ in 0..64 {
            if self.serve(place) == 0 && !self.has_pending(place) {
                break;
            }
        }
        self.set_forwarding(place, Forwarding::Hold);
    }

    fn has_pending(&self, place: u32) -> bool {
        matches!(self.queues.get(place as usize), Some(Some(queue)) if !queue.pending.is_empty())
    }

    /// The queue at `place`, to look at.
    pub fn queue_mut(&mut self, place: u32) -> Option<&mut dyn PortQueue> {
        match self.queues.get_mut(place as usize)?.as_mut() {
            Some(queue) => Some(queue.port.as_mut()),
            None => None,
        }
    }

    /// The devices at the ends of wires. Programs' queues tell their own program what is wrong with them.
    pub fn wired_devices(&self) -> impl Iterator<Item = &dyn PortQueue> {
        let queues = self.queues.iter().flatten();
        queues
            .filter(|queue| matches!(queue.forwarding, Forwarding::Wire(_)))
            .map(|queue| queue.port.as_ref() as &dyn PortQueue)
            .filter(|port| port.wake_descriptor().is_none())
    }

    /// Changes where the frames of the queue at `place` go.
    pub fn set_forwarding(&mut self, place: u32, forwarding: Forwarding) {
        if let Some(Some(queue)) = self.queues.get_mut(place as usize) {
            queue.forwarding = forwarding;
        }
    }

    /// Sets or removes the view of a switch.
    pub fn set_switch(&mut self, id: SwitchId, view: Option<SwitchView>) {
        let index = usize::from(id.0);
        if self.switches.len() <= index {
            self.switches.resize_with(index + 1, || None);
        }
        if let Some(entry) = self.switches.get_mut(index) {
            *entry = view;
        }
    }

    /// Serves every queue once. Returns the number of frames taken: 0 means that there was nothing to do.
    pub fn step(&mut self) -> usize {
        let mut frames = self.receive_handoffs();
        for turn in 0..self.active.len() {
            if let Some(&place) = self.active.get(turn) {
                frames += self.serve(place);
            }
        }
        frames
    }

    /// Whether some queue or other worker has work, without taking it.
    pub fn has_waiting(&mut self) -> bool {
        self.inboxes.iter().any(Inbox::has_waiting)
            || (0..self.active.len()).any(|turn| {
                let Some(&place) = self.active.get(turn) else { return false };
                let Some(Some(queue)) = self.queues.get_mut(place as usize) else { return false };
                match queue.forwarding {
                    Forwarding::Hold => !queue.pending.is_empty(),
                    Forwarding::Switch { .. } => !queue.pending.is_empty() || queue.port.has_waiting(),
                    Forwarding::Wire(destination) => {
                        queue.port.has_waiting() && !self.sleeps_until_room(place, destination)
                    }
                }
            })
    }

    /// Whether the wire from `place` waits for room at `destination`, whose other side wakes the engine when it makes some.
    fn sleeps_until_room(&mut self, place: u32, destination: u32) -> bool {
        let Some(Some(source)) = self.queues.get(place as usize) else { return false };
        let longest = source.port.longest_frame_bytes();
        self.queue_mut(destination).is_some_and(|queue| queue.room(longest) == 0 && queue.await_room())
    }

    /// Whether slots are lent to a device, whose return no descriptor announces.
    #[must_use]
    pub fn has_lent(&self) -> bool {
        let mut queues = self.active.iter().filter_map(|&place| self.queues.get(place as usize)?.as_ref());
        queues.any(|queue| matches!(queue.forwarding, Forwarding::Wire(_)) && !queue.pending.is_empty())
    }

    /// How long until some queue has something to do that no descriptor announces; `None` where there is no such thing.
    #[must_use]
    pub fn due_in(&self) -> Option<Duration> {
        let queues = self.active.iter().filter_map(|&place| self.queues.get(place as usize)?.as_ref());
        queues.filter_map(|queue| queue.port.due_in()).min()
    }

    /// Tells the programs whose devices have ended.
    pub fn end_wires(&mut self) {
        for turn in 0..self.active.len() {
            let Some(&place) = self.active.get(turn) else { break };
            if let Some(Some(queue)) = self.queues.get(place as usize)
                && let Forwarding::Wire(destination) = queue.forwarding
                && queue.port.is_gone()
                && let Some(program) = self.queue_mut(destination)
            {
                program.end();
            }
        }
    }

    /// Counts what the kernel dropped before it could be received: as received, and as dropped; and rules broken that queues did not count.
    pub fn count_missed(&mut self) {
        for queue in self.queues.iter_mut().flatten() {
            let missed = queue.port.missed_frames();
            if missed != 0 {
                queue.counters.missed(missed);
            }
            queue.counters.violations(queue.port.violations());
        }
    }

    /// Announces or withdraws the engine's sleep on all its queues.
    pub fn prepare_sleep(&mut self, sleeping: bool) {
        for turn in 0..self.active.len() {
            let Some(&place) = self.active.get(turn) else { break };
            let Some(Some(queue)) = self.queues.get_mut(place as usize) else { continue };
            if let Forwarding::Wire(destination) = queue.forwarding
                && sleeping
                && queue.port.has_waiting()
            {
                self.sleeps_until_room(place, destination);
            }
        }
        for &place in &self.active {
            if let Some(Some(queue)) = self.queues.get_mut(place as usize) {
                queue.port.prepare_sleep(sleeping);
            }
        }
    }

    /// The descriptors that wake a sleeping engine, with the place they belong to.
    pub fn wake_descriptors(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.active.iter().filter_map(|&place| {
            let queue = self.queues.get(place as usize)?.as_ref()?;
            queue.port.wake_descriptor().map(|descriptor| (place, descriptor))
        })
    }

    /// Takes the signals off the descriptors of all queues.
    pub fn drain_wakes(&mut self) {
        for queue in self.queues.iter_mut().flatten() {
            queue.port.drain_wake();
        }
    }

    /// Takes the signal off the descriptor of the queue at `place`. Says whether the queue still has one.
    pub fn drain_wake(&mut self, place: u32) -> bool {
        let Some(queue) = self.queue_mut(place) else { return false };
        queue.drain_wake();
        queue.wake_descriptor().is_some()
    }

    fn serve(&mut self, place: u32) -> usize {
        // The source leaves its place for the time, so that destinations can be borrowed beside it.
        let Some(mut source) = self.queues.get_mut(place as usize).and_then(Option::take) else { return 0 };
        let frames = self.serve_source(&mut source);
        if frames != 0 {
            source.dirty = false;
            source.counters.wakeups(source.port.flush());
        }
        if let Some(entry) = self.queues.get_mut(place as usize) {
            *entry = Some(source);
        }
        if frames != 0 {
            self.flush();
        }
        frames
    }

    fn serve_source(&mut self, source: &mut EngineQueue) -> usize {
        if !source.pending.is_empty() {
            let returned = match source.forwarding {
                Forwarding::Wire(destination) => {
                    self.queue_mut(destination).map_or(u64::MAX, PortQueue::returned)
                }
                _ => u64::MAX,
            };
            settle(source, &self.outboxes, returned);
        }
        // A full batch must fit into every exchange, so that nothing has to be dropped for want of room there.
        let room = self.outboxes.iter().flatten().map(Outbox::free).min();
        if room.is_some_and(|room| room < BATCH_FRAMES + MAX_FRAGMENTS) {
            return 0;
        }
        if matches!(source.forwarding, Forwarding::Hold) {
            return 0;
        }
        // A switch drops where a receiver is full; a wire holds its source back.
        let (capacity, taker) = match source.forwarding {
            Forwarding::Wire(destination) => {
                let longest = source.port.longest_frame_bytes();
                let destination = self.queue_mut(destination);
                destination.map_or((BATCH_FRAMES, None), |queue| (queue.room(longest), queue.region()))
            }
            _ => (BATCH_FRAMES, None),
        };
        self.scratch.batch.reset(capacity);
        self.scratch.batch.set_taker(taker);
        source.port.receive(&mut self.scratch.batch);
        let frames = self.scratch.batch.frames();
        if frames == 0 {
            return 0;
        }
        source.counters.received(frames as u64, self.scratch.batch.bytes());
        let mut dropped = DropTally::default();
        let mut lent = 0;
        match &mut source.forwarding {
            Forwarding::Hold => {}
            Forwarding::Wire(destination) => {
                let scratch = &mut self.scratch;
                let list = scratch.all.get(..frames).unwrap_or(&[]);
                if !scratch.deliveries.deliver(&mut self.queues, *destination, &mut scratch.batch, list) {
                    dropped.add(DropCause::PortGone, frames as u32);
                }
                let taker = self.queues.get(*destination as usize).and_then(Option::as_ref);
                lent = taker.map_or(0, |queue| queue.port.lent());
            }
            Forwarding::Switch { switch, source: learning, queue } => {
                match self.switches.get(usize::from(switch.0)) {
                    Some(Some(view)) => {
                        let scratch = &mut self.scratch;
                        let replicated = decide(scratch, view, learning, *queue, self.index, &mut dropped);
                        source.counters.replicated(replicated);
                        let from = learning.index();
                        let mut outlets = Outlets { queues: &mut self.queues, outboxes: &mut self.outboxes };
                        outlets.dispatch(scratch, view, *switch, from, *queue, &mut dropped);
                    }
                    _ => dropped.add(DropCause::PortGone, frames as u32),
                }
            }
        }
        source.counters.dropped(&dropped);
        if self.scratch.batch.exchanged() {
            source.port.reclaim(&self.scratch.batch);
        }
        let lent = if self.scratch.batch.lends() { lent } else { 0 };
        let slots = self.scratch.batch.slots();
        release(source, slots, lent, &self.outboxes);
        frames
    }

    /// Delivers what other workers handed over.
    fn receive_handoffs(&mut self) -> usize {
        let mut frames = 0;
        for inbox in &mut self.inboxes {
            let scratch = &mut self.scratch;
            let mut waiting = None;
            loop {
                // Consecutive frames with one target make a batch.
                scratch.batch.reset(BATCH_FRAMES);
                let mut first = waiting.is_none();
                let mut current: Option<Handoff> = None;
                if let Some(handoff) = waiting.take() {
                    let handoff: Handoff = handoff;
                    first = scratch.take_over(&handoff, true);
                    current = Some(handoff);
                }
                while let Some(handoff) = inbox.take() {
                    let fits = !first || scratch.batch.has_room(MAX_FRAGMENTS);
                    let same = current.is_none_or(|known| known.target == handoff.target);
                    if first && (!same || !fits) {
                        waiting = Some(handoff);
                        break;
                    }
                    first = scratch.take_over(&handoff, first);
                    current = Some(handoff);
                }
                let Some(handoff) = current else { break };
                frames += scratch.batch.frames();
                deliver_handoffs(&mut self.queues, &self.switches, self.index, scratch, handoff);
            }
            if inbox.has_taken() {
                inbox.consume();
            }
        }
        if frames != 0 {
            self.flush();
        }
        frames
    }

    /// Makes everything delivered visible.
    fn flush(&mut self) {
        for place in self.scratch.deliveries.dirty.drain(..) {
            if let Some(Some(queue)) = self.queues.get_mut(place as usize) {
                queue.dirty = false;
                queue.counters.wakeups(queue.port.flush());
            }
        }
        for outbox in self.outboxes.iter_mut().flatten() {
            outbox.flush();
        }
    }
}

/// Reads the headers of the batch, classifies them and groups the frames. Returns the number of copies beyond one
/// per frame.
fn decide(
    scratch: &mut Scratch,
    view: &SwitchView,
    learning: &mut SourcePort,
    queue: u16,
    worker: u16,
    dropped: &mut DropTally,
) -> u64 {
    scratch.headers.clear();
    scratch.numbers.clear();
    scratch.groups.clear();
    let is_unfinished = scratch.batch.is_unfinished();
    for number in 0..scratch.batch.frames() {
        let Some(head) = scratch.batch.head(number) else { break };
        match head.ethernet_header() {
            Some(_) if is_unfinished && !fits(&scratch.batch, number) => {
                dropped.add(DropCause::BadOffload, 1)
            }
            Some((first, second)) => {
                scratch.headers.push(FrameHeader::from_words(first, second, head.flags()));
                scratch.numbers.push(number as u16);
            }
            None => dropped.add(DropCause::TooShort, 1),
        }
    }
    let count = scratch.headers.len();
    let Some(verdicts) = scratch.verdicts.get_mut(..count) else { return 0 };
    let state = &view.state;
    classify(&scratch.headers, learning, &state.table, &state.ports, state.now(), verdicts);

    let from = learning.index();
    let mut replicated = 0;
    let mut flood_groups_known = false;
    let mut last: Option<(PortIndex, u16)> = None;
    for (&number, &verdict) in scratch.numbers.iter().zip(verdicts.iter()) {
        if let Some(entry) = scratch.by_frame.get_mut(usize::from(number)) {
            *entry = verdict;
        }
        match verdict {
            Verdict::Port(port) => {
                let group = match last {
                    Some((known, group)) if known == port => Some(group),
                    _ => view.topology.queue(port, queue).map(|target| group_of(target, port, false, worker)),
                };
                match group {
                    Some(group) => {
                        last = Some((port, group));
                        scratch.groups.add(group, number);
                    }
                    None => dropped.add(DropCause::PortGone, 1),
                }
            }
            Verdict::Flood => {
                if !flood_groups_known {
                    flood_groups_known = true;
                    list_flood_groups(&mut scratch.flood_groups, view, from, queue, worker);
                }
                match scratch.flood_groups.len() {
                    0 => dropped.add(DropCause::NoDestination, 1),
                    copies => replicated += copies as u64 - 1,
                }
                if scratch.batch.gives() {
                    scratch.batch.set_replicated(usize::from(number));
                }
                for &group in &scratch.flood_groups {
                    scratch.groups.add(group, number);
                }
            }
            Verdict::Drop(reason) => dropped.add(cause_of(reason), 1),
        }
    }
    replicated
}

/// Whether what is said to be left to do with a frame can be.
#[cold]
fn fits(batch: &Batch, frame: usize) -> bool {
    batch.unfinished(frame).fits(batch.frame_bytes(frame))
}

/// The group of frames to `port`. Unicast and flooding to the same queue share a group, which keeps their order; they
/// differ only where the port has several queues. All frames for one other worker are one group.
fn group_of(target: QueueRef, port: PortIndex, to_flood_queue: bool, worker: u16) -> u16 {
    if target.worker == worker {
        2 * u16::from(port.0) + u16::from(to_flood_queue)
    } else {
        REMOTE_GROUPS as u16 + target.worker
    }
}

fn list_flood_groups(groups: &mut Vec<u16>, view: &SwitchView, from: PortIndex, queue: u16, worker: u16) {
    groups.clear();
    for (port, target) in view.topology.flood(from) {
        let apart = view.topology.queue(port, queue) != Some(target);
        let group = group_of(target, port, apart, worker);
        if usize::from(group) < REMOTE_GROUPS || !groups.contains(&group) {
            groups.push(group);
        }
    }
}

/// Where groups are delivered to.
struct Outlets<'engine> {
    queues: &'engine mut Vec<Option<Box<EngineQueue>>>,
    outboxes: &'engine mut Vec<Option<Outbox>>,
}

impl Outlets<'_> {
    fn dispatch(
        &mut self,
        scratch: &mut Scratch,
        view: &SwitchView,
        switch: SwitchId,
        from: PortIndex,
        queue: u16,
        dropped: &mut DropTally,
    ) {
        let has_headers = scratch.batch.has_headers();
        for &group in scratch.groups.touched() {
            let list = scratch.groups.frames(group);
            if usize::from(group) >= REMOTE_GROUPS {
                let Some(Some(outbox)) = self.outboxes.get_mut(usize::from(group) - REMOTE_GROUPS) else {
                    dropped.add(DropCause::PortGone, list.len() as u32);
                    continue;
                };
                for &number in list {
                    let verdict = scratch.by_frame.get(usize::from(number)).copied();
                    let target = match verdict {
                        Some(Verdict::Port(port)) => {
                            view.topology.queue(port, queue).map(|target| Target::Queue(target.place))
                        }
                        _ => Some(Target::Flood { switch, from }),
                    };
                    let Some(target) = target else {
                        dropped.add(DropCause::PortGone, 1);
                        continue;
                    };
                    let number = usize::from(number);
                    let unfinished = has_headers.then(|| scratch.batch.unfinished(number));
                    for &fragment in scratch.batch.frame(number) {
                        outbox.push(Handoff { fragment, target, switch, unfinished });
                    }
                }
                continue;
            }
            let port = PortIndex((group / 2) as u8);
            let source_queue = if group % 2 == 1 { 0 } else { queue };
            let delivered = match view.topology.queue(port, source_queue) {
                Some(target) => {
                    scratch.deliveries.deliver(self.queues, target.place, &mut scratch.batch, list)
                }
                None => false,
            };
            if !delivered {
                dropped.add(DropCause::PortGone, list.len() as u32);
            }
        }
    }
}

/// What the deliveries of a step have in common.
#[derive(Debug)]
struct Deliveries {
    /// Places with something to make visible.
    dirty: Vec<u32>,
    finisher: Finisher,
}

impl Deliveries {
    /// Delivers frames of the batch to the queue at `place`, if there is one, in its own account.
    #[inline]
    fn deliver(
        &mut self,
        queues: &mut [Option<Box<EngineQueue>>],
        place: u32,
        batch: &mut Batch,
        frames: &[u16],
    ) -> bool {
        let Some(Some(queue)) = queues.get_mut(place as usize) else { return false };
        if batch.is_unfinished() && !queue.port.takes_unfinished() {
            let finished = self.finisher.finish(batch, frames, |batch, frames| put(queue, batch, frames));
            queue.counters.replicated(finished.replicated);
            queue.counters.dropped(&finished.dropped);
        } else {
            put(queue, batch, frames);
        }
        if !queue.dirty {
            queue.dirty = true;
            self.dirty.push(place);
        }
        true
    }
}

#[inline]
fn put(queue: &mut EngineQueue, batch: &mut Batch, frames: &[u16]) {
    let delivery = queue.port.deliver(batch, frames);
    debug_assert_eq!(delivery.frames + delivery.dropped.total() + delivery.taken_over, frames.len() as u32);
    queue.counters.delivered(u64::from(delivery.frames), delivery.bytes);
    queue.counters.dropped(&delivery.dropped);
}

/// Delivers the batch that another worker handed over.
fn deliver_handoffs(
    queues: &mut [Option<Box<EngineQueue>>],
    switches: &[Option<SwitchView>],
    worker: u16,
    scratch: &mut Scratch,
    handoff: Handoff,
) {
    let frames = scratch.batch.frames();
    let list = scratch.all.get(..frames).unwrap_or(&[]);
    let Some(Some(view)) = switches.get(usize::from(handoff.switch.0)) else { return };
    let mut copies = 0;
    match handoff.target {
        Target::Queue(place) => {
            copies += u64::from(scratch.deliveries.deliver(queues, place, &mut scratch.batch, list));
        }
        Target::Flood { from, .. } => {
            for (_, target) in view.topology.flood(from) {
                if target.worker == worker {
                    copies +=
                        u64::from(scratch.deliveries.deliver(queues, target.place, &mut scratch.batch, list));
                }
            }
        }
    }
    if copies == 0 {
        let mut gone = DropTally::default();
        gone.add(DropCause::PortGone, frames as u32);
        view.counters.dropped(&gone);
    } else {
        view.counters.replicated((copies - 1) * frames as u64);
    }
}

/// Releases the batch's slots, now or when those who borrow them are done.
fn release(source: &mut EngineQueue, slots: usize, lent: u64, outboxes: &[Option<Outbox>]) {
    if source.pending.is_empty()
        && lent == 0
        && outboxes.iter().flatten().all(|outbox| outbox.position() == outbox.consumed())
    {
        source.port.release(slots);
        return;
    }
    let mut positions = [0; MAX_WORKERS];
    for (position, outbox) in positions.iter_mut().zip(outboxes) {
        *position = outbox.as_ref().map_or(0, Outbox::position);
    }
    source.pending.push_back(PendingRelease { slots, positions, lent });
}

/// Releases what other workers, and the one to whom slots were lent, are done with.
fn settle(source: &mut EngineQueue, outboxes: &[Option<Outbox>], returned: u64) {
    let mut any = false;
    while let Some(pending) = source.pending.front() {
        let done = pending.lent <= returned
            && pending.positions.iter().zip(outboxes).all(|(&position, outbox)| {
                outbox.as_ref().is_none_or(|outbox| outbox.consumed() >= position)
            });
        if !done {
            break;
        }
        source.port.release(pending.slots);
        source.pending.pop_front();
        any = true;
    }
    if any {
        source.counters.wakeups(source.port.flush());
    }
}

fn cause_of(reason: DropReason) -> DropCause {
    match reason {
        DropReason::ToSelf => DropCause::ToSelf,
        DropReason::PortGone => DropCause::PortGone,
    }
}
