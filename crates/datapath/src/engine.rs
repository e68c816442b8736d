//! One worker's share of the datapath: its queues, its view of the switches, and a step of work.
//!
//! To serve a queue, the engine takes a batch, lets the forwarding plane decide as much of it as the owner can pay,
//! groups these frames by destination, delivers each group with one copy, releases the batch, and publishes the rings.
//! Every received frame is then delivered, dropped by cause, or handed to another worker, which accounts for it. In
//! each [`Engine::turn`] of a worker one owner spends its share ([`crate::scheduler`]); a program that steps its own
//! engine serves all queues at once.

mod handoffs;
mod quiescence;
mod service;
mod sleep;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringroad_port::batch::Batch;
use ringroad_port::counters::QueueCounters;
use ringroad_port::forwarding_plane::{BatchPlan, ForwardingPlane};
use ringroad_port::port_queue::{FailedDirection, PortQueue, Upgrade};
use ringroad_port::trace::Trace;
use rustix::event::epoll;

use crate::copies::Copier;
use crate::engine_queue::{EngineQueue, SpareBatches};
use crate::exchange::{Inbox, Outbox, is_consumed, positions};
use crate::execution::Executor;
use crate::forwarding::{Forwarding, SwitchId, SwitchView, Topology};
use crate::scheduler::{QueueScheduler, TURN_COST};

use service::{give_up_held, settle};
use sleep::BY_EDGE;

pub(crate) use sleep::BELL;

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
    spare: SpareBatches,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            batch: Batch::new(),
            plan: BatchPlan::new(),
            executor: Executor::default(),
            copier: Copier::default(),
            spare: SpareBatches::new(),
        }
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
        let mut queue = self.queues.get_mut(queue_index as usize)?.take()?;
        give_up_held(&mut queue, &self.outboxes);
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
                let served = self.serve(queue_index, TURN_COST);
                self.scheduler.charge(queue_index, served.cost);
                cost += served.cost;
                if cost >= TURN_COST {
                    return true;
                }
                if served.frames == 0 {
                    break;
                }
            }
        }
        queue_indexes.iter().any(|&queue_index| self.has_borrowed(queue_index))
    }

    fn has_borrowed(&self, queue_index: u32) -> bool {
        matches!(self.queues.get(queue_index as usize), Some(Some(queue)) if queue.has_borrowed())
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

    /// Changes the destination of the frames of the queue at `queue_index`. Frames of its held batch that were not
    /// dispatched count as not received.
    pub fn set_forwarding(&mut self, queue_index: u32, forwarding: Forwarding) {
        if let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) {
            queue.forwarding = forwarding;
            give_up_held(queue, &self.outboxes);
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
            self.queues
                .iter_mut()
                .flatten()
                .filter_map(|queue| queue.port.upgrade())
                .for_each(Upgrade::resume);
        }
    }

    /// Whether the worker runs nothing but commands.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds
    }

    /// Serves every queue once. Returns the number of frames taken: 0 if there was nothing to do.
    pub fn step(&mut self) -> usize {
        let mut frames = 0;
        if !self.inboxes.is_empty() {
            frames += self.receive_handoffs(u64::MAX).frames;
        }
        for queue_index in 0..self.queues.len() as u32 {
            frames += self.serve(queue_index, u64::MAX).frames;
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
        while let Some(queue_index) = self.scheduler.next(&mut turn) {
            let served = self.serve(queue_index, TURN_COST);
            frames += served.frames;
            self.spent += served.cost;
            if self.scheduler.note_poll(&mut turn, queue_index, served.frames != 0, served.cost) {
                self.put_to_sleep(queue_index);
            }
            if served.frames == 0 && self.holds_batch(queue_index) {
                // No room at another worker: the owner's next turn continues with this queue.
                break;
            }
        }
        if !self.outboxes.is_empty() {
            self.scheduler.note_handed(&turn, before, positions(&self.outboxes));
        }
        frames
    }

    /// Counts frames and violations that no worker saw: frames that the kernel dropped before they could be received,
    /// as received and as dropped; frames that devices have dropped or refused; violations that queues did not count.
    pub fn count_missed(&mut self) {
        for queue in self.queues.iter_mut().flatten() {
            queue.count_missed();
        }
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
