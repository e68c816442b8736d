//! One worker's share of the datapath: its queues, its view of the switches, and a step of work.
//!
//! To serve a queue, the engine takes a batch, lets the forwarding plane decide as much of it as the owner can pay,
//! groups these frames by destination, delivers each group with one copy, releases the batch, and publishes the rings.
//! Every received frame is then delivered, dropped by cause, or handed to another worker, which accounts for it. In
//! each [`Engine::turn`] of a worker one owner spends its share ([`crate::scheduler`]); a program that steps its own
//! engine serves all queues at once.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringroad_port::batch::{Batch, FrameMeta};
use ringroad_port::counters::QueueCounters;
use ringroad_port::drop_cause::{DropCause, DropTally};
use ringroad_port::forwarding_plane::{BatchPlan, ForwardingPlane, Outcome, STEPS_PER_COST};
use ringroad_port::port_index::PortIndex;
use ringroad_port::port_queue::{FailedDirection, HandOver, Lend, PortQueue};
use ringroad_port::trace::Trace;
use ringroad_ring::layout::MAX_FRAGMENTS;
use rustix::event::epoll;

use crate::copies::{Copier, LEAST_ROOM};
use crate::engine_queue::{EngineQueue, PendingRelease};
use crate::exchange::{Handoff, Inbox, Outbox, is_consumed, positions};
use crate::execution::{
    BYTES_PER_COST, DeliveryTargets, Executed, Executor, HandoffDestination, Job, Origin, finishing_factor,
};
use crate::forwarding::{Forwarding, SwitchId, SwitchView, Topology};
use crate::scheduler::{QueueScheduler, TURN_COST};

/// Event number of the doorbell in [`Engine::wake_set`].
pub(crate) const BELL: u64 = u64::MAX;
/// Edge-triggered events: with level-triggered ones, the descriptor of a device with frames would stay readable while
/// their destination is full. Every queue is checked once more before the engine sleeps, so no edge is missed.
const BY_EDGE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);
/// Cost of waking a program.
const KICK_COST: u64 = 8;

/// One worker's share of the datapath.
#[derive(Debug)]
pub struct Engine {
    index: u16,
    queues: Vec<Option<Box<EngineQueue>>>,
    scheduler: QueueScheduler,
    /// Indexes of the queues that the engine prepares for its sleep, because they do not sleep alone.
    polled: Vec<u32>,
    /// The descriptors that wake the sleeping engine; made at its first sleep.
    wakes: Option<OwnedFd>,
    /// Cost of all turns.
    spent: u64,
    /// Counters for frames without an owner: another worker handed them over for a removed switch.
    counters: Arc<QueueCounters>,
    switches: Vec<Option<SwitchView>>,
    outboxes: Vec<Option<Outbox>>,
    inboxes: Vec<Inbox>,
    /// Whether the engine takes no turns ([`Self::hold`]).
    holds: bool,
    scratch: Scratch,
}

/// Working memory of a step, allocated once.
#[derive(Debug)]
struct Scratch {
    batch: Batch,
    plan: BatchPlan,
    executor: Executor,
    copier: Copier,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            batch: Batch::new(),
            plan: BatchPlan::new(),
            executor: Executor::default(),
            copier: Copier::default(),
        }
    }
}

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
    /// Creates an engine without ports; `index` is its worker's number.
    #[must_use]
    pub fn new(index: u16) -> Self {
        Self {
            index,
            queues: Vec::new(),
            scheduler: QueueScheduler::default(),
            polled: Vec::new(),
            wakes: None,
            spent: 0,
            counters: Arc::default(),
            switches: Vec::new(),
            outboxes: Vec::new(),
            inboxes: Vec::new(),
            holds: false,
            scratch: Scratch::default(),
        }
    }

    /// Connects the engine with other workers: `outboxes` is indexed by worker, `None` at its own index.
    pub fn connect(&mut self, outboxes: Vec<Option<Outbox>>, inboxes: Vec<Inbox>) {
        self.outboxes = outboxes;
        self.inboxes = inboxes;
    }

    /// Counters for frames without an owner.
    #[must_use]
    pub fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }

    /// Cost of all turns together.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Puts a queue at `queue_index`, which the caller has chosen and which no other queue uses.
    pub fn insert(&mut self, queue_index: u32, queue: EngineQueue) {
        let index = queue_index as usize;
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, || None);
        }
        self.scheduler.insert(queue_index, queue.owner);
        if let Some(entry) = self.queues.get_mut(index) {
            let queue = entry.insert(Box::new(queue));
            if let (Some(set), Some(descriptor)) = (&self.wakes, queue.wake_descriptor())
                && epoll::add(set, descriptor, epoll::EventData::new_u64(queue_index.into()), BY_EDGE)
                    .is_err()
            {
                self.wakes = None;
            }
        }
        self.note_polled(queue_index);
    }

    fn note_polled(&mut self, queue_index: u32) {
        self.polled.retain(|&other| other != queue_index);
        if let Some(Some(queue)) = self.queues.get(queue_index as usize)
            && !queue.sleeps_alone()
        {
            self.polled.push(queue_index);
        }
    }

    /// Removes the queue at `queue_index`: nothing is added to its counters any more. Delivers the frames that other
    /// workers have handed over for this queue, and waits (spinning, while other workers run) until none borrows its
    /// frames any more. Frames delivered to the queue before become visible.
    pub fn remove(&mut self, queue_index: u32) -> Option<EngineQueue> {
        // Frames that stayed in an inbox would go to the next queue at this index. Receiving them first frees the room
        // of other workers only afterwards, so this ends.
        self.receive_handoffs(u64::MAX);
        self.forget_rest(queue_index);
        let mut queue = self.queues.get_mut(queue_index as usize)?.take()?;
        self.scheduler.remove(queue_index);
        self.polled.retain(|&other| other != queue_index);
        while !queue.pending.is_empty() {
            // No program uses the slots of a removed queue, so lent slots need not come back.
            settle(&mut queue, &self.outboxes, u64::MAX);
            self.receive_handoffs(u64::MAX);
            std::hint::spin_loop();
        }
        queue.port.flush();
        if let (Some(set), Some(descriptor)) = (&self.wakes, queue.wake_descriptor()) {
            // The program has a duplicate of the descriptor, which would keep the event in the set.
            let _ = epoll::delete(set, descriptor);
        }
        Some(*queue)
    }

    /// Gives back the held batch of the queue at `queue_index`: frames that were not dispatched count as not received.
    fn forget_rest(&mut self, queue_index: u32) {
        let Some(rest) = self.scheduler.take_rest(queue_index) else { return };
        if rest.0 != queue_index {
            return self.scheduler.put_rest_back(rest);
        }
        self.scheduler.take_up(queue_index, &mut self.scratch.batch);
        if let Some(Some(source)) = self.queues.get_mut(queue_index as usize) {
            finish_batch(source, &self.scratch.batch, 0, &self.outboxes);
        }
    }

    /// Stops the queue at `queue_index` from taking frames that its program publishes from now on.
    pub fn close(&mut self, queue_index: u32) {
        if let Some(program) = self.queue_mut(queue_index).and_then(PortQueue::program) {
            program.close();
        }
    }

    /// Forwards some of the remaining frames of the queues at `queue_indexes`, within a turn's cost and in their
    /// owner's time, so that a program's last frames are not lost because it ended right after sending them. Returns
    /// whether more frames may remain.
    pub fn drain(&mut self, queue_indexes: &[u32]) -> bool {
        let mut cost = 0;
        for &queue_index in queue_indexes {
            loop {
                let (next, from) = self.scheduler.take_rest(queue_index).unwrap_or((queue_index, 0));
                let served = self.serve(next, from, TURN_COST);
                self.scheduler.charge(next, served.cost);
                cost += served.cost;
                if cost >= TURN_COST {
                    return true;
                }
                if served.frames == 0 {
                    break;
                }
            }
        }
        queue_indexes.iter().any(|&queue_index| self.has_pending(queue_index))
    }

    fn has_pending(&self, queue_index: u32) -> bool {
        matches!(self.queues.get(queue_index as usize), Some(Some(queue)) if !queue.pending.is_empty())
    }

    /// Borrows the queue at `queue_index`, for inspection.
    pub fn queue_mut(&mut self, queue_index: u32) -> Option<&mut dyn PortQueue> {
        match self.queues.get_mut(queue_index as usize)?.as_mut() {
            Some(queue) => Some(queue.port.as_mut()),
            None => None,
        }
    }

    /// Reason why the queue at `queue_index` has stopped frames that go `way`, as text for users; `None` while it has
    /// not.
    #[inline]
    pub fn failure(&mut self, queue_index: u32, way: FailedDirection) -> Option<String> {
        let queue = self.queues.get_mut(queue_index as usize)?.as_mut()?;
        if queue.has_diagnosis { queue.port.diagnosis()?.failure(way) } else { None }
    }

    /// Number of queues that have stopped frames.
    pub fn failures(&mut self) -> usize {
        let queue_indexes = 0..self.queues.len() as u32;
        queue_indexes
            .filter(|&queue_index| self.failure(queue_index, FailedDirection::Either).is_some())
            .count()
    }

    /// Whether the queue at `queue_index` can report faults.
    #[inline]
    #[must_use]
    pub fn can_fail(&self, queue_index: u32) -> bool {
        matches!(self.queues.get(queue_index as usize), Some(Some(queue)) if queue.has_diagnosis)
    }

    /// Changes the destination of the frames of the queue at `queue_index`.
    pub fn set_forwarding(&mut self, queue_index: u32, forwarding: Forwarding) {
        let holds = matches!(forwarding, Forwarding::Hold);
        if let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) {
            queue.forwarding = forwarding;
        }
        if holds {
            self.forget_rest(queue_index);
        }
        self.wake_queue(queue_index);
        self.note_polled(queue_index);
    }

    /// Replaces the map of the ports of a switch that this worker knows.
    pub fn set_topology(&mut self, id: SwitchId, topology: Arc<Topology>) {
        if let Some(Some(view)) = self.switches.get_mut(usize::from(id.0)) {
            view.topology = topology;
        }
    }

    /// Records deliveries in this trace from now on, or in none.
    pub fn set_trace(&mut self, trace: Option<Arc<Trace>>) {
        self.scratch.executor.deliveries.trace = trace.map(|trace| (self.index, trace));
    }

    /// Replaces the forwarding plane of a switch.
    pub fn set_forwarding_plane(&mut self, id: SwitchId, decide: Box<dyn ForwardingPlane>) {
        if let Some(Some(view)) = self.switches.get_mut(usize::from(id.0)) {
            view.decide = decide;
        }
    }

    /// Sets or removes the worker's view of a switch.
    pub fn set_switch(&mut self, id: SwitchId, view: Option<SwitchView>) {
        if view.is_none() {
            // Handed-over frames would else go to the ports of the switch that gets the number next.
            self.receive_handoffs(u64::MAX);
        }
        let index = usize::from(id.0);
        if self.switches.len() <= index {
            self.switches.resize_with(index + 1, || None);
        }
        if let Some(entry) = self.switches.get_mut(index) {
            *entry = view;
        }
    }

    /// Makes the worker run nothing but commands, or everything again.
    pub fn hold(&mut self, holds: bool) {
        self.holds = holds;
        if !holds {
            self.queues.iter_mut().flatten().for_each(|queue| queue.port.resume_messages());
        }
    }

    /// Whether the worker runs nothing but commands.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds
    }

    /// Forwards the frames received before. Returns whether none of them remains: every frame was delivered, dropped by
    /// cause or handed to another worker, which has copied it, and every queue has all its slots back. With `patient`,
    /// devices may still send the slots that programs have lent them, and drivers may finish their work beside the
    /// worker; without, these slots count as back.
    pub fn quiesce(&mut self, patient: bool) -> bool {
        self.receive_handoffs(u64::MAX);
        let mut queue_indexes = 0..self.queues.len() as u32;
        for queue_index in queue_indexes.clone() {
            if let Some((held, from)) = self.scheduler.take_rest(queue_index) {
                self.serve(held, from, u64::MAX);
            }
            match self.queues.get(queue_index as usize) {
                Some(Some(queue)) if !queue.pending.is_empty() => {
                    let forwarding = if patient { queue.forwarding } else { Forwarding::Hold };
                    self.settle(queue_index, forwarding);
                }
                _ => {}
            }
            self.flush_source(queue_index);
        }
        let mut is_quiet = true;
        if patient {
            for queue in self.queues.iter_mut().flatten().filter(|queue| queue.pending.is_empty()) {
                is_quiet &= queue.port.prepare_hand_over();
            }
        }
        is_quiet
            && !self.scheduler.has_rest()
            && !self.inboxes.iter().any(Inbox::has_waiting)
            && is_consumed(&positions(&self.outboxes), &self.outboxes)
            && queue_indexes.all(|queue_index| !self.has_pending(queue_index))
    }

    /// State that the queue at `queue_index` leaves to the process that serves its port next
    /// ([`PortQueue::hand_over`]), once the engine has quiesced.
    pub fn hand_over(&mut self, queue_index: u32) -> Option<HandOver> {
        let queue = self.queues.get_mut(queue_index as usize)?.as_mut()?;
        queue.count_missed();
        queue.port.hand_over()
    }

    /// Serves every queue once. Returns the number of frames taken: 0 if there was nothing to do.
    pub fn step(&mut self) -> usize {
        let mut frames = 0;
        if !self.inboxes.is_empty() {
            frames += self.receive_handoffs(u64::MAX).frames;
        }
        if self.scheduler.has_rest() {
            for queue_index in 0..self.queues.len() as u32 {
                if let Some((held, from)) = self.scheduler.take_rest(queue_index) {
                    frames += self.serve(held, from, u64::MAX).frames;
                }
            }
        }
        for queue_index in 0..self.queues.len() as u32 {
            frames += self.serve(queue_index, 0, u64::MAX).frames;
        }
        frames
    }

    /// Serves the queues of the owner whose turn it is, within its share, and the frames that other workers have handed
    /// over. Returns the number of frames taken.
    pub fn turn(&mut self) -> usize {
        let handed = self.receive_handoffs(TURN_COST);
        self.spent += handed.cost;
        let mut frames = handed.frames;
        let Some(mut turn) = self.scheduler.begin_turn() else { return frames };
        // Frames that an owner hands over to other workers must not pile up in front of other owners' frames.
        if !is_consumed(self.scheduler.handed_before(&turn), &self.outboxes) {
            return frames;
        }
        let before = positions(&self.outboxes);
        while let Some((queue_index, from)) = self.scheduler.next(&mut turn) {
            let served = self.serve(queue_index, from, TURN_COST);
            frames += served.frames;
            self.spent += served.cost;
            if self.scheduler.note_poll(&mut turn, queue_index, served.frames != 0, served.cost) {
                self.put_to_sleep(queue_index);
            }
            if from != 0 && served.frames == 0 {
                // No room at another worker: the owner's next turn continues with this queue.
                break;
            }
        }
        if !self.outboxes.is_empty() {
            self.scheduler.note_handed(&turn, before, positions(&self.outboxes));
        }
        frames
    }

    /// Whether the wire from `queue_index` waits for room at `destination`, whose other side will wake the engine when
    /// it makes room.
    fn sleeps_until_room(&mut self, queue_index: u32, destination: u32) -> bool {
        let Some(source) = self.queue_mut(queue_index) else { return false };
        let longest = source.longest_frame_bytes();
        let behind = self.queue_mut(destination).and_then(PortQueue::backpressure);
        behind.is_some_and(|behind| behind.room(longest) == 0 && behind.await_room())
    }

    /// Lets a queue announce its sleep, if it sleeps alone. Returns `false` if it has work.
    fn put_to_sleep(&mut self, queue_index: u32) -> bool {
        let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) else { return true };
        if queue.asleep || !queue.sleeps_alone() {
            return true;
        }
        queue.prepare_sleep(true);
        if queue.has_work() {
            queue.prepare_sleep(false);
            return false;
        }
        queue.asleep = true;
        self.scheduler.set_awake(queue_index, false);
        true
    }

    /// Ends the sleep of a queue that sleeps alone.
    fn wake_queue(&mut self, queue_index: u32) {
        if let Some(Some(queue)) = self.queues.get_mut(queue_index as usize)
            && queue.asleep
        {
            queue.asleep = false;
            queue.prepare_sleep(false);
            self.scheduler.set_awake(queue_index, true);
        }
    }

    /// Announces the engine's sleep on all queues, on at most `most` of those that are notified one by one. Returns
    /// `false` if the engine must not sleep, since there is work, or more queues must be notified. The caller calls
    /// [`Self::awake`] in either case.
    pub fn fall_asleep(&mut self, most: usize) -> bool {
        if self.scheduler.has_rest() || self.inboxes.iter().any(Inbox::has_waiting) {
            return false;
        }
        let (mut skip, mut told) = (0, 0);
        while let Some(queue_index) = self.scheduler.awake_queue(skip) {
            let alone =
                matches!(self.queues.get(queue_index as usize), Some(Some(queue)) if queue.sleeps_alone());
            if !alone {
                skip += 1;
                continue;
            }
            if told == most || !self.put_to_sleep(queue_index) {
                return false;
            }
            told += 1;
        }
        for turn in 0..self.polled.len() {
            let Some(&queue_index) = self.polled.get(turn) else { break };
            let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) else { continue };
            if let Forwarding::Wire(destination) = queue.forwarding
                && queue.has_waiting()
            {
                self.sleeps_until_room(queue_index, destination);
            }
        }
        self.announce(true);
        !(0..self.polled.len()).any(|turn| {
            let Some(&queue_index) = self.polled.get(turn) else { return false };
            let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) else { return false };
            match queue.forwarding {
                Forwarding::Wire(destination) => {
                    queue.has_waiting() && !self.sleeps_until_room(queue_index, destination)
                }
                _ => queue.has_work(),
            }
        })
    }

    /// Withdraws the announcements of [`Self::fall_asleep`], except for the queues that sleep alone.
    pub fn awake(&mut self) {
        self.announce(false);
    }

    fn announce(&mut self, sleeping: bool) {
        for &queue_index in &self.polled {
            if let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) {
                queue.prepare_sleep(sleeping);
            }
        }
    }

    fn polled_queues(&self) -> impl Iterator<Item = &EngineQueue> {
        self.polled.iter().filter_map(|&queue_index| self.queues.get(queue_index as usize)?.as_deref())
    }

    /// Whether a device has lent slots: no descriptor announces their return.
    #[must_use]
    pub fn has_lent(&self) -> bool {
        self.polled_queues()
            .any(|queue| matches!(queue.forwarding, Forwarding::Wire(_)) && !queue.pending.is_empty())
    }

    /// Time until some queue has work that no descriptor announces; `None` if there is no such queue.
    #[must_use]
    pub fn due_in(&mut self) -> Option<Duration> {
        let Self { polled, queues, .. } = self;
        let due = |queue_index: &u32| queues.get_mut(*queue_index as usize)?.as_mut()?.port.due_in();
        polled.iter().filter_map(due).min()
    }

    /// Notifies the programs whose devices have ended.
    pub fn end_wires(&mut self) {
        for turn in 0..self.polled.len() {
            let Some(&queue_index) = self.polled.get(turn) else { break };
            if let Some(Some(queue)) = self.queues.get_mut(queue_index as usize)
                && let Forwarding::Wire(destination) = queue.forwarding
                && queue.port.diagnosis().is_some_and(|diagnosis| diagnosis.is_gone())
                && let Some(program) = self.queue_mut(destination).and_then(PortQueue::program)
            {
                program.end();
            }
        }
    }

    /// Counts frames and violations that no worker saw: frames that the kernel dropped before they could be received,
    /// as received and as dropped; frames that devices have dropped or refused; violations that queues did not count.
    pub fn count_missed(&mut self) {
        for queue in self.queues.iter_mut().flatten() {
            queue.count_missed();
        }
    }

    /// The descriptor that becomes readable when a sleeping engine has work; [`Self::woken`] processes its events.
    /// `bell` is added to the descriptor when it is created again.
    ///
    /// # Errors
    /// The kernel has no descriptors or no memory left.
    pub fn wake_set(&mut self, bell: BorrowedFd<'_>) -> rustix::io::Result<BorrowedFd<'_>> {
        if self.wakes.is_none() {
            let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&set, bell, epoll::EventData::new_u64(BELL), BY_EDGE)?;
            for (queue_index, queue) in (0u64..).zip(&mut self.queues) {
                if let Some(descriptor) = queue.as_mut().and_then(|queue| queue.wake_descriptor()) {
                    epoll::add(&set, descriptor, epoll::EventData::new_u64(queue_index), BY_EDGE)?;
                }
            }
            self.wakes = Some(set);
        }
        self.wakes.as_ref().map(AsFd::as_fd).ok_or(rustix::io::Errno::BADF)
    }

    /// Wakes the queue that an event of the wake set names. Returns whether the event was a queue's.
    pub fn woken(&mut self, event: u64) -> bool {
        let Ok(queue_index) = u32::try_from(event) else { return false };
        let Some(sleeper) = self.queue_mut(queue_index).and_then(PortQueue::sleeper) else { return false };
        sleeper.drain_wake();
        // A device that has ended has no descriptor any more: its old descriptor in the set would stay readable for
        // ever.
        if sleeper.wake_descriptor().is_none() {
            self.wakes = None;
            self.end_wires();
        }
        self.wake_queue(queue_index);
        self.scheduler.charge(queue_index, KICK_COST);
        true
    }

    /// Whether some sleeping queues are in no turn, so that the wake set must be polled while others work.
    #[must_use]
    pub fn has_unwatched(&self) -> bool {
        self.scheduler.has_unwatched()
    }

    /// Drains the descriptors of all queues, and ends the sleep of all queues.
    pub fn drain_wakes(&mut self) {
        for queue_index in 0..self.queues.len() as u32 {
            if let Some(sleeper) = self.queue_mut(queue_index).and_then(PortQueue::sleeper) {
                sleeper.drain_wake();
            }
            self.wake_queue(queue_index);
        }
    }

    /// Serves the queue at `queue_index` until `budget` is spent. `from` is the number of frames of a held batch that
    /// are already dispatched, 0 without a held batch.
    #[inline(always)]
    fn serve(&mut self, queue_index: u32, from: usize, budget: u64) -> Served {
        let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) else { return Served::EMPTY_POLL };
        if from == 0 && queue.is_idle() {
            return Served::EMPTY_POLL;
        }
        let forwarding = queue.forwarding;
        if (!queue.pending.is_empty() || !self.outboxes.is_empty())
            && !self.may_serve(queue_index, forwarding)
        {
            return self.serve_later(queue_index, from);
        }
        match forwarding {
            Forwarding::Wire(destination) => self.serve_wire(queue_index, from, budget, destination),
            Forwarding::Switch { switch, port, queue } => {
                self.serve_switch(queue_index, from, budget, (switch, port, queue))
            }
            Forwarding::Hold => self.serve_later(queue_index, from),
        }
    }

    /// Takes back the slots of the queue at `queue_index` that their borrowers are done with. Returns whether other
    /// workers, and the memory for header rewrites, have room for a full batch, so that no frame is dropped for lack of
    /// room.
    #[inline(never)]
    fn may_serve(&mut self, queue_index: u32, forwarding: Forwarding) -> bool {
        if matches!(self.queues.get(queue_index as usize), Some(Some(queue)) if !queue.pending.is_empty()) {
            self.settle(queue_index, forwarding);
        }
        let free = self.outboxes.iter().flatten().map(Outbox::free).min();
        free.is_none_or(|free| free >= LEAST_ROOM) && self.scratch.copier.has_room(&self.outboxes)
    }

    /// Keeps a held batch of the queue at `queue_index`.
    #[inline(never)]
    fn serve_later(&mut self, queue_index: u32, from: usize) -> Served {
        if from != 0 {
            self.scheduler.put_rest_back((queue_index, from));
        }
        Served::EMPTY_POLL
    }

    /// Forwards frames of the queue at `queue_index` to the queue at `destination`, which holds them back while it is
    /// full.
    #[inline(never)]
    fn serve_wire(&mut self, queue_index: u32, from: usize, budget: u64, destination: u32) -> Served {
        let Scratch { batch, executor, .. } = &mut self.scratch;
        let Some((source, mut taker)) = pair(&mut self.queues, queue_index, destination) else {
            return Served::EMPTY_POLL;
        };
        if from != 0 {
            self.scheduler.take_up(queue_index, batch);
        } else {
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
        }
        let frames = batch.frames();
        if frames == from {
            return Served::EMPTY_POLL;
        }
        let list = Batch::numbers(from..frames);
        let bytes = if from == 0 { batch.bytes() } else { batch.bytes_of(from..frames) };
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
    fn serve_switch(
        &mut self,
        queue_index: u32,
        from: usize,
        budget: u64,
        (switch, port, queue): (SwitchId, PortIndex, u16),
    ) -> Served {
        let Scratch { batch, plan, executor, copier, .. } = &mut self.scratch;
        let Some(Some(source)) = self.queues.get_mut(queue_index as usize) else { return Served::EMPTY_POLL };
        if from != 0 {
            self.scheduler.take_up(queue_index, batch);
        } else {
            batch.reset(source.most(budget));
            source.receive(batch);
        }
        let frames = batch.frames();
        if frames == 0 {
            return Served::EMPTY_POLL;
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
        let Some(Some(source)) = self.queues.get_mut(queue_index as usize) else { return Served::EMPTY_POLL };
        source.counters.received(received as u64, bytes);
        source.counters.replicated(executed.replicated);
        source.counters.dropped(&dropped);
        if executed.end < frames {
            self.scheduler.hold(queue_index, executed.end, batch);
        } else {
            finish_batch(source, batch, 0, &self.outboxes);
        }
        // Cost of taking these frames beyond that of taking them from a program's ring.
        let taking = received as u64 * u64::from(source.properties.take_cost - 1);
        let mut cost = Served::EMPTY_POLL.cost + decision_cost + executed.cost + taking;
        if received != 0 {
            cost += u64::from(source.flush()) * KICK_COST + self.flush();
            // Frames that pass a queue wake it.
            self.wake_queue(queue_index);
        }
        Served { frames: received, cost }
    }

    /// Releases the slots of the queue at `queue_index` that their borrowers are done with.
    #[cold]
    fn settle(&mut self, queue_index: u32, forwarding: Forwarding) {
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
    fn flush_source(&mut self, queue_index: u32) -> u64 {
        let Some(Some(source)) = self.queues.get_mut(queue_index as usize) else { return 0 };
        u64::from(source.flush()) * KICK_COST
    }

    /// Delivers frames that other workers handed over, until `budget` is spent on each of these workers.
    fn receive_handoffs(&mut self, budget: u64) -> Served {
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
            if inbox.has_taken() {
                inbox.consume();
            }
        }
        if served.frames != 0 {
            served.cost += self.flush();
        }
        served
    }

    /// Makes all delivered frames visible. Returns the cost of waking programs.
    fn flush(&mut self) -> u64 {
        let mut kicks = 0;
        for queue_index in self.scratch.executor.deliveries.dirty.drain(..) {
            if let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) {
                queue.dirty = false;
                kicks += queue.flush();
            }
        }
        for outbox in self.outboxes.iter_mut().flatten() {
            outbox.flush();
        }
        u64::from(kicks) * KICK_COST
    }
}

/// Result of serving a queue.
#[derive(Debug, Default, Clone, Copy)]
struct Served {
    /// Frames taken.
    frames: usize,
    cost: u64,
}

impl Served {
    /// Result of a check that found no frame: the check costs 1 unit.
    const EMPTY_POLL: Self = Self { frames: 0, cost: 1 };
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
fn settle(source: &mut EngineQueue, outboxes: &[Option<Outbox>], returned: u64) {
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
