//! The execution of a plan: the frames of a batch are grouped by destination, and each group is delivered with one
//! copy.
//!
//! This module reads the [`BatchPlan`], and does not know the reasons for a destination.

use std::sync::Arc;

use ringroad_port::batch::Batch;
use ringroad_port::counters::QueueCounters;
use ringroad_port::drop_cause::{DropCause, DropTally};
use ringroad_port::forwarding_plane::{BatchPlan, Outcome, SetId};
use ringroad_port::frame::Fragment;
use ringroad_port::port_index::{MAX_PORTS, NO_PORT_INDEX, PortIndex, PortMask};
use ringroad_port::port_queue::Delivery;
use ringroad_port::trace::Trace;

use crate::engine_queue::EngineQueue;
use crate::exchange::MAX_WORKERS;
use crate::exchange::{Handoff, HandoffTarget, Inbox, Outbox};
use crate::finishing::Finisher;
use crate::forwarding::{QueueRef, SwitchId, SwitchView, Topology};
use crate::grouping::Groups;

/// Groups: two per port (unicast to the source's queue number, flooding to queue 0), then one per worker.
const REMOTE_GROUPS: usize = 2 * MAX_PORTS;
/// Bytes whose copy costs as much as a short frame.
pub(crate) const BYTES_PER_COST: usize = 512;
/// Cost of finishing a frame, as a multiple of the cost of copying it.
const FINISHING_COST: usize = 4;

/// Source of a batch's frames, and the queues of the ports of their switch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'switch> {
    pub(crate) topology: &'switch Topology,
    pub(crate) switch: SwitchId,
    pub(crate) port: PortIndex,
    /// Index of the queue in its port.
    pub(crate) queue: u16,
    /// Worker that executes the plan.
    pub(crate) worker: u16,
}

/// The part of a batch to execute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job<'plan> {
    /// The first frame.
    pub(crate) first: usize,
    /// Outcome of each frame of the batch up to the last one to execute; none is `Copies`.
    pub(crate) outcomes: &'plan [Outcome],
    /// Outcome that all frames from the first on have, if one call set it for all.
    pub(crate) common: Option<Outcome>,
    /// Plan with the sets that the outcomes name.
    pub(crate) plan: &'plan BatchPlan,
    pub(crate) origin: Origin<'plan>,
    /// Maximum cost of the deliveries.
    pub(crate) budget: u64,
}

/// The executed part of a batch.
#[derive(Debug)]
pub(crate) struct Executed {
    /// The first frame that was left for later.
    pub(crate) end: usize,
    /// Copies beyond one per frame.
    pub(crate) replicated: u64,
    pub(crate) cost: u64,
}

/// Working memory of the executor, allocated once.
#[derive(Debug)]
pub(crate) struct Executor {
    groups: Groups,
    spread: FloodGroups,
    pub(crate) deliveries: Deliveries,
}

impl Default for Executor {
    fn default() -> Self {
        Self {
            groups: Groups::new(REMOTE_GROUPS + MAX_WORKERS),
            spread: FloodGroups::default(),
            deliveries: Deliveries {
                dirty: Vec::with_capacity(MAX_PORTS),
                finisher: Finisher::default(),
                trace: None,
            },
        }
    }
}

/// Queues and outboxes to which groups are delivered.
#[derive(Debug)]
pub(crate) struct DeliveryTargets<'engine> {
    pub(crate) queues: &'engine mut [Option<Box<EngineQueue>>],
    pub(crate) outboxes: &'engine mut [Option<Outbox>],
}

/// Factor of the cost of this batch's bytes: above 1 if some frames must be finished.
pub(crate) fn finishing_factor(batch: &Batch) -> usize {
    if batch.is_unfinished() { FINISHING_COST } else { 1 }
}

/// Cost of a frame's bytes at each destination.
pub(crate) fn bytes_cost(batch: &Batch, frame: usize, finishing: usize) -> u64 {
    let fragments = batch.frame(frame);
    let bytes: usize = fragments.iter().map(Fragment::len).sum();
    (bytes * finishing / BYTES_PER_COST + fragments.len() / 4) as u64
}

impl Executor {
    /// Delivers the frames of `batch` from the job's first on to their destinations, until the deliveries cost the
    /// job's budget.
    #[inline]
    pub(crate) fn execute(
        &mut self,
        batch: &mut Batch,
        job: Job<'_>,
        outlets: DeliveryTargets<'_>,
        dropped: &mut DropTally,
    ) -> Executed {
        if let Some(executed) = self.execute_as_one(batch, &job, outlets.queues) {
            return executed;
        }
        let executed = self.group(batch, &job, dropped);
        self.dispatch(batch, &job, outlets, dropped);
        executed
    }

    /// Delivers short frames that all go to one port of this worker. Returns `None`, without any effect, for all other
    /// frames.
    #[inline]
    fn execute_as_one(
        &mut self,
        batch: &mut Batch,
        job: &Job<'_>,
        queues: &mut [Option<Box<EngineQueue>>],
    ) -> Option<Executed> {
        let &Job { first, outcomes, common, origin: Origin { topology, queue, worker, .. }, budget, .. } =
            job;
        let Some(Outcome::Port(port)) = common else { return None };
        let target = topology.queue(port, queue)?;
        let end = outcomes.len();
        let frames = Batch::numbers(first..end);
        let bytes = if frames.len() == batch.frames() { batch.bytes() } else { batch.bytes_of(first..end) };
        let bytes_cost = bytes * finishing_factor(batch) as u64 / BYTES_PER_COST as u64;
        let cost = frames.len() as u64 * u64::from(target.frame_cost) + bytes_cost;
        if target.worker != worker || cost > budget {
            return None;
        }
        if !self.deliveries.deliver(queues, target.index, batch, frames) {
            return None;
        }
        Some(Executed { end, replicated: 0, cost })
    }

    #[inline(never)]
    fn group(&mut self, batch: &mut Batch, job: &Job<'_>, dropped: &mut DropTally) -> Executed {
        let &Job { first, outcomes, plan, origin, budget, .. } = job;
        let Self { groups, spread, .. } = self;
        groups.clear();
        spread.forget();
        let frames = outcomes.len();
        let Origin { topology, queue, worker, .. } = origin;
        let mut executed = Executed { end: frames, replicated: 0, cost: 0 };

        let finishing = finishing_factor(batch);
        // A batch of short frames to one port each is cheap as a whole, so its frames need not be weighed one by one.
        let all_bytes = batch.bytes() * finishing as u64 / BYTES_PER_COST as u64;
        let weighs = all_bytes > budget / 2;
        let mut weighs_unicast = weighs;
        // Cost beyond 1 unit for each frame.
        let mut cost = 0;
        let is_spent =
            |cost: u64, number: u16| cost + u64::from(number) >= budget.saturating_add(first as u64);
        let mut last: Option<(PortIndex, u16)> = None;
        let mut more_for_last = 0;
        let mut next = first;
        while let Some(&outcome) = outcomes.get(next) {
            let number = next as u16;
            next += 1;
            let several = match outcome {
                Outcome::Port(port) => {
                    let group = match last {
                        Some((known, group)) if known == port => {
                            if !weighs_unicast {
                                // Frames to one port often follow each other.
                                let behind = outcomes.get(next..).unwrap_or(&[]);
                                let is_same = |behind: &&Outcome| matches!(behind, Outcome::Port(other) if *other == port);
                                next += behind.iter().take_while(is_same).count();
                                groups.add_all(group, number..next as u16);
                                continue;
                            }
                            group
                        }
                        _ => {
                            let Some(target) = topology.queue(port, queue) else {
                                dropped.add(DropCause::PortGone, 1);
                                continue;
                            };
                            more_for_last = u64::from(target.frame_cost.saturating_sub(1));
                            weighs_unicast = weighs || more_for_last > 0;
                            let group = group_of(target, port, false, worker);
                            last = Some((port, group));
                            group
                        }
                    };
                    groups.add(group, number);
                    if !weighs_unicast {
                        continue;
                    }
                    cost += more_for_last + bytes_cost(batch, number.into(), finishing);
                    if is_spent(cost, number) {
                        executed.end = next;
                        break;
                    }
                    continue;
                }
                Outcome::Flood => None,
                Outcome::Ports(set) => Some(set),
                Outcome::Drop(cause) => {
                    dropped.add(cause, 1);
                    continue;
                }
                Outcome::Copies(_) => {
                    dropped.add(DropCause::NoDestination, 1);
                    continue;
                }
            };
            spread.to(several, plan, origin);
            match spread.groups.len() {
                0 => dropped.add(DropCause::NoDestination, 1),
                copies => executed.replicated += copies as u64 - 1,
            }
            if batch.gives() {
                batch.set_replicated(number.into());
            }
            for &group in &spread.groups {
                groups.add(group, number);
            }
            cost +=
                spread.cost.saturating_sub(1) + spread.copies * bytes_cost(batch, number.into(), finishing);
            if is_spent(cost, number) {
                executed.end = next;
                break;
            }
        }
        let frames_executed = (executed.end - first) as u64;
        let short = match batch.frames() as u64 {
            _ if weighs => 0,
            all if all == frames_executed => all_bytes,
            all => all_bytes * frames_executed / all.max(1),
        };
        executed.cost = cost + frames_executed + short;
        executed
    }

    fn dispatch(
        &mut self,
        batch: &mut Batch,
        job: &Job<'_>,
        outlets: DeliveryTargets<'_>,
        dropped: &mut DropTally,
    ) {
        let Origin { topology, queue, .. } = job.origin;
        for &group in self.groups.touched() {
            let list = self.groups.frames(group);
            if let Some(worker) = usize::from(group).checked_sub(REMOTE_GROUPS) {
                match outlets.outboxes.get_mut(worker) {
                    Some(Some(outbox)) => hand_over(batch, list, job, outbox, dropped),
                    _ => dropped.add(DropCause::PortGone, list.len() as u32),
                }
                continue;
            }
            let port = PortIndex((group / 2) as u8);
            let source_queue = if group % 2 == 1 { 0 } else { queue };
            let delivered = topology
                .queue(port, source_queue)
                .is_some_and(|target| self.deliveries.deliver(outlets.queues, target.index, batch, list));
            if !delivered {
                dropped.add(DropCause::PortGone, list.len() as u32);
            }
        }
    }
}

/// Hands the frames of `list` over to another worker.
fn hand_over(batch: &Batch, list: &[u16], job: &Job<'_>, outbox: &mut Outbox, dropped: &mut DropTally) {
    let &Job { outcomes, plan, origin: Origin { topology, switch, port: from, queue, .. }, .. } = job;
    for &number in list {
        let number = usize::from(number);
        let target = match outcomes.get(number) {
            Some(&Outcome::Port(port)) => {
                topology.queue(port, queue).map(|target| HandoffTarget::Queue(target.index))
            }
            Some(&Outcome::Ports(set)) => {
                Some(HandoffTarget::Ports { switch, set: outbox.set(plan.ports(set)) })
            }
            _ => Some(HandoffTarget::Flood { switch, from }),
        };
        let Some(target) = target else {
            dropped.add(DropCause::PortGone, 1);
            continue;
        };
        let meta = batch.meta(number);
        for &fragment in batch.frame(number) {
            outbox.push(Handoff { fragment, target, switch, meta });
        }
    }
}

/// Destinations of frames to several ports: their groups, computed once for consecutive frames with the same
/// destinations.
#[derive(Debug, Default)]
struct FloodGroups {
    /// Key of the other fields: a set, or all ports but the source (`Some(None)`). `None` if nothing is computed.
    of: Option<Option<SetId>>,
    groups: Vec<u16>,
    /// Number of ports.
    copies: u64,
    /// Cost of a short frame at all these ports together.
    cost: u64,
}

impl FloodGroups {
    fn forget(&mut self) {
        self.of = None;
    }

    #[inline]
    fn to(&mut self, set: Option<SetId>, plan: &BatchPlan, origin: Origin<'_>) {
        if self.of == Some(set) {
            return;
        }
        self.of = Some(set);
        (self.copies, self.cost) = (0, 0);
        self.groups.clear();
        let Origin { topology, queue, worker, port: from, .. } = origin;
        let mut add = |(port, target): (PortIndex, QueueRef)| {
            self.copies += 1;
            self.cost += u64::from(target.frame_cost);
            let apart = topology.queue(port, queue) != Some(target);
            let group = group_of(target, port, apart, worker);
            if usize::from(group) < REMOTE_GROUPS || !self.groups.contains(&group) {
                self.groups.push(group);
            }
        };
        match set {
            None => topology.flood(from).for_each(&mut add),
            Some(set) => topology.first_queues(plan.ports(set)).for_each(&mut add),
        }
    }
}

/// The group of frames to `port`. Unicast and flooding to the same queue share a group, which keeps their order; they
/// differ only where the port has several queues. All frames for another worker are one group.
fn group_of(target: QueueRef, port: PortIndex, to_flood_queue: bool, worker: u16) -> u16 {
    if target.worker == worker {
        2 * u16::from(port.0) + u16::from(to_flood_queue)
    } else {
        REMOTE_GROUPS as u16 + target.worker
    }
}

/// State that the deliveries of a step share.
#[derive(Debug)]
pub(crate) struct Deliveries {
    /// Indexes of queues with deliveries that are not visible yet.
    pub(crate) dirty: Vec<u32>,
    finisher: Finisher,
    /// Number of the worker, with the running trace, if there is one.
    pub(crate) trace: Option<(u16, Arc<Trace>)>,
}

impl Deliveries {
    /// Delivers frames of the batch to the queue at `queue_index`, if there is one, and counts them there.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        queues: &mut [Option<Box<EngineQueue>>],
        queue_index: u32,
        batch: &mut Batch,
        frames: &[u16],
    ) -> bool {
        let Some(Some(queue)) = queues.get_mut(queue_index as usize) else { return false };
        self.deliver_to(queue, queue_index, batch, frames);
        if !queue.dirty {
            queue.dirty = true;
            self.dirty.push(queue_index);
        }
        true
    }

    /// Delivers frames like [`Self::deliver`], to `queue`, which is at `queue_index`.
    #[inline]
    pub(crate) fn deliver_to(
        &mut self,
        queue: &mut EngineQueue,
        queue_index: u32,
        batch: &mut Batch,
        frames: &[u16],
    ) {
        if self.trace.is_none() && !batch.is_unfinished() {
            put(queue, batch, frames);
            return;
        }
        self.deliver_otherwise(queue, queue_index, batch, frames);
    }

    /// Delivers frames like [`Self::deliver_to`], while a trace runs or if some frames are unfinished.
    #[inline(never)]
    fn deliver_otherwise(
        &mut self,
        queue: &mut EngineQueue,
        queue_index: u32,
        batch: &mut Batch,
        frames: &[u16],
    ) {
        match &self.trace {
            Some((worker, trace)) => {
                deliver_traced(&mut self.finisher, queue, (batch, frames), trace, (*worker, queue_index));
            }
            None => {
                put_finished(&mut self.finisher, queue, batch, frames);
            }
        }
    }

    /// Delivers the frames `all` of a batch that another worker handed over for ports of the switch in `view`; `own`
    /// are the counters of the engine itself.
    pub(crate) fn deliver_handed(
        &mut self,
        queues: &mut [Option<Box<EngineQueue>>],
        view: Option<&SwitchView>,
        own: &QueueCounters,
        (batch, all): (&mut Batch, &[u16]),
        to: HandoffDestination,
    ) {
        let mut copies = 0;
        match (to, view) {
            (HandoffDestination::Queue(queue_index), _) => {
                copies += u64::from(self.deliver(queues, queue_index, batch, all))
            }
            (HandoffDestination::Ports { .. }, None) => {}
            (HandoffDestination::Ports { ports, but, worker }, Some(view)) => {
                for target in ports_here(&view.topology, ports, but, worker) {
                    copies += u64::from(self.deliver(queues, target.index, batch, all));
                }
            }
        }
        let counters = view.map_or(own, |view| &*view.counters);
        if copies == 0 {
            let mut gone = DropTally::default();
            gone.add(DropCause::PortGone, all.len() as u32);
            counters.dropped(&gone);
        } else {
            counters.replicated((copies - 1) * all.len() as u64);
        }
    }
}

/// Destination of frames that another worker handed over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HandoffDestination {
    /// One queue.
    Queue(u32),
    /// Ports of this set (`None`: all ports) that `worker` serves, except `but`.
    Ports { ports: Option<PortMask>, but: PortIndex, worker: u16 },
}

impl HandoffDestination {
    /// Translates `target`, which the worker has read from `inbox`.
    pub(crate) fn from(target: HandoffTarget, inbox: &Inbox, worker: u16) -> Self {
        match target {
            HandoffTarget::Queue(queue_index) => Self::Queue(queue_index),
            HandoffTarget::Flood { from, .. } => Self::Ports { ports: None, but: from, worker },
            HandoffTarget::Ports { set, .. } => {
                Self::Ports { ports: Some(inbox.ports(set)), but: NO_PORT_INDEX, worker }
            }
        }
    }

    /// Cost of a short frame at all queues of this destination: at least 1.
    pub(crate) fn copies(self, view: Option<&SwitchView>) -> u64 {
        let (Self::Ports { ports, but, worker }, Some(view)) = (self, view) else { return 1 };
        let here = ports_here(&view.topology, ports, but, worker);
        here.map(|target| u64::from(target.frame_cost)).sum::<u64>().max(1)
    }
}

fn ports_here(
    topology: &Topology,
    ports: Option<PortMask>,
    but: PortIndex,
    worker: u16,
) -> impl Iterator<Item = QueueRef> + '_ {
    let named = move |port| ports.is_none_or(|ports| ports.contains(port));
    let here = topology.flood(but).filter(move |&(port, target)| target.worker == worker && named(port));
    here.map(|(_, target)| target)
}

/// Delivers frames one by one, to learn the outcome of each.
#[cold]
fn deliver_traced(
    finisher: &mut Finisher,
    queue: &mut EngineQueue,
    (batch, frames): (&mut Batch, &[u16]),
    trace: &Trace,
    at: (u16, u32),
) {
    for frame in frames {
        let delivery = put_finished(finisher, queue, batch, std::slice::from_ref(frame));
        let outcome = (delivery.frames, delivery.dropped, delivery.taken_over != 0);
        trace.delivered((batch, usize::from(*frame)), at, outcome);
    }
}

/// Puts frames into a queue like [`put`], with no open task that the queue does not take.
fn put_finished(
    finisher: &mut Finisher,
    queue: &mut EngineQueue,
    batch: &mut Batch,
    frames: &[u16],
) -> Delivery {
    if !batch.is_unfinished() || queue.port.takes_unfinished() {
        return put(queue, batch, frames);
    }
    let leaves_checksums = queue.port.takes_open_checksums();
    let mut sum = Delivery::default();
    let finished = finisher.finish(batch, frames, leaves_checksums, |batch, frames| {
        let delivery = put(queue, batch, frames);
        sum.frames += delivery.frames;
        sum.dropped.add_all(&delivery.dropped);
        sum.taken_over += delivery.taken_over;
    });
    queue.counters.replicated(finished.replicated);
    queue.counters.dropped(&finished.dropped);
    sum.dropped.add_all(&finished.dropped);
    sum
}

#[inline]
fn put(queue: &mut EngineQueue, batch: &mut Batch, frames: &[u16]) -> Delivery {
    let delivery = queue.port.deliver(batch, frames);
    debug_assert_eq!(delivery.frames + delivery.dropped.total() + delivery.taken_over, frames.len() as u32);
    queue.counters.delivered(u64::from(delivery.frames), delivery.bytes);
    queue.counters.uncopied_frames(delivery.uncopied.into());
    queue.counters.dropped(&delivery.dropped);
    delivery
}
