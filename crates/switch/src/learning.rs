//! Learning switch: the state that its workers share, and each worker's forwarding plane.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::clock::Clock;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{BatchPlan, Decision, Destination, ForwardingPlane, Outcome};
use ringroad_port::frame::{ETHERNET_HEADER_BYTES, Fragment};
use ringroad_port::port_index::{PortIndex, PortMask};
use ringroad_wire::mac::Mac;

use crate::classify::{self, FrameHeader, classify};
use crate::loop_guard::{LoopGuard, probe_header};
use crate::mac_table::{MacTable, Tick};
use crate::port_policies::NO_VLAN;
use crate::port_set::PortSet;

/// State of a switch that its workers share. Any thread may read and write all of it at any time.
#[derive(Debug)]
pub struct LearningSwitch {
    /// Learned addresses.
    pub table: MacTable,
    /// Ports that exist now.
    pub ports: PortSet,
    /// Finds loops and cuts them.
    pub loops: LoopGuard,
    now: AtomicU8,
}

impl LearningSwitch {
    /// A switch without ports.
    #[must_use]
    pub fn new(table: MacTable) -> Self {
        Self::with_clock(table, Clock::system())
    }

    /// A switch without ports, with the given clock for the detection of loops.
    #[must_use]
    pub fn with_clock(table: MacTable, clock: Clock) -> Self {
        Self { table, ports: PortSet::new(), loops: LoopGuard::new(clock), now: AtomicU8::new(0) }
    }

    /// Current ageing tick, with which workers stamp addresses.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Tick {
        Tick(self.now.load(Ordering::Relaxed))
    }

    /// Advances the ageing clock by one tick, and forgets expired addresses.
    pub fn tick(&self) {
        let now = self.now.load(Ordering::Relaxed).wrapping_add(1);
        self.now.store(now, Ordering::Relaxed);
        self.table.sweep(Tick(now));
        self.loops.rest(&self.table);
    }

    /// Writes the outcomes of frames from the port `from`. Returns whether a frame is flooded.
    #[inline]
    fn decide(&self, frames: &[FrameHeader], from: PortIndex, outcomes: &mut [Outcome]) -> bool {
        if self.loops.is_alert() {
            return self.decide_alert(frames, from, outcomes);
        }
        classify(frames, from, &self.table, &self.ports, self.now(), outcomes)
    }

    /// Decides as [`Self::decide`] does, while there may be a loop: nothing is learned from frames that end here.
    #[cold]
    fn decide_alert(&self, frames: &[FrameHeader], from: PortIndex, outcomes: &mut [Outcome]) -> bool {
        let (table, now) = (&self.table, self.now());
        let learns = self.loops.begin_batch(table);
        classify::decide(frames, from, table, &self.ports, now, outcomes);
        let mut floods = false;
        for (frame, outcome) in frames.iter().zip(outcomes) {
            if self.loops.ends_here(*outcome, frame.source, from, NO_VLAN, table, now) {
                *outcome = Outcome::Drop(DropCause::Looped);
                continue;
            }
            floods |= *outcome == Outcome::Flood;
            if learns {
                classify::learn(std::slice::from_ref(frame), from, table, now);
            }
        }
        floods
    }

    /// Outcome of one frame from the port `from`, for a forwarding plane that uses this switch for some frames only.
    /// Such a plane sends a flooded frame to no port of [`LearningSwitch::closed_to_floods`]. For one flooded frame of
    /// each batch it calls [`LearningSwitch::probe_with`], and [`LearningSwitch::flooded`] once the frame has left.
    #[must_use]
    pub fn forward(&self, frame: FrameHeader, from: PortIndex) -> Outcome {
        let mut outcome = [Outcome::Flood];
        self.decide(&[frame], from, &mut outcome);
        let [outcome] = outcome;
        outcome
    }

    /// Ports to which a frame from the port `from` goes, as `plan` decides with `outcome`.
    pub(crate) fn members(&self, outcome: Outcome, from: PortIndex, plan: &BatchPlan) -> PortMask {
        match outcome {
            Outcome::Port(port) => [port].into_iter().collect(),
            Outcome::Flood => self.ports.iter().filter(|&port| port != from).collect(),
            Outcome::Ports(set) => plan.ports(set),
            Outcome::Copies(copies) => {
                let of_copies =
                    plan.copies_of(copies).iter().map(|copy| self.members(copy.to.into(), from, plan));
                of_copies.fold(PortMask::EMPTY, PortMask::or)
            }
            Outcome::Drop(_) => PortMask::EMPTY,
        }
    }

    /// Ports by which flooded frames from the port `from` do not leave: that port itself, and blocked ports.
    #[must_use]
    pub fn closed_to_floods(&self, from: PortIndex) -> PortMask {
        let mut closed = if self.loops.is_alert() { self.loops.blocked() } else { PortMask::EMPTY };
        closed.insert(from);
        closed
    }

    /// Header rewrite for a copy of a flooded frame, which is flooded, too, if a probe for loops is due. It replaces
    /// the Ethernet header.
    #[inline]
    #[must_use]
    pub fn probe_with(&self, frame: &[Fragment]) -> Option<[u8; ETHERNET_HEADER_BYTES]> {
        self.loops.probe_with(frame).map(probe_header)
    }

    /// Remembers a flooded frame, for the detection of loops.
    pub fn flooded(&self, frame: &[Fragment]) {
        self.loops.remember(frame);
    }

    /// Keeps flooded frames of a batch from blocked ports, and sends a probe with the first of them if a probe is due.
    /// Returns that frame.
    #[inline(never)]
    fn flood(
        &self,
        from: PortIndex,
        batch: &Batch,
        frames: Range<usize>,
        plan: &mut BatchPlan,
    ) -> Option<usize> {
        let mut to = (Outcome::Flood, Destination::Others);
        if self.loops.is_alert() {
            let set = plan.set(self.ports.mask().but(self.closed_to_floods(from)))?;
            to = (Outcome::Ports(set), Destination::Ports(set));
            let outcomes = plan.outcomes_mut(frames.clone()).iter_mut();
            outcomes.filter(|outcome| **outcome == Outcome::Flood).for_each(|outcome| *outcome = to.0);
        }
        let frame = frames.clone().find(|&frame| plan.outcome(frame) == to.0)?;
        if let Some(head) = self.probe_with(batch.frame(frame)) {
            plan.copy_both(frame, to.1, &head);
        }
        Some(frame)
    }

    /// Forwarding plane for one worker.
    #[must_use]
    pub fn forwarding_plane(self: &Arc<Self>) -> Box<dyn ForwardingPlane> {
        Box::new(Learning {
            switch: Arc::clone(self),
            headers: Vec::with_capacity(BATCH_FRAMES),
            short: Vec::with_capacity(BATCH_FRAMES),
            flooded: None,
        })
    }
}

#[derive(Debug)]
struct Learning {
    switch: Arc<LearningSwitch>,
    headers: Vec<FrameHeader>,
    /// Frames whose first fragment has no whole Ethernet header.
    short: Vec<u16>,
    /// A flooded frame of the batch.
    flooded: Option<usize>,
}

/// Header that stands for a missing one: nothing is learned from it.
const NO_HEADER: FrameHeader = FrameHeader { destination: Mac::BROADCAST, source: Mac::BROADCAST, flags: 0 };

/// Header of all frames, if it is the same and each frame is one fragment: a batch often is part of one flow.
#[inline]
fn common_header(frames: &[Fragment]) -> Option<FrameHeader> {
    let (head, others) = frames.split_first()?;
    let ((start, end), flags) = (head.ethernet_header()?, head.flags());
    let is_same = |other: &Fragment| {
        other.ethernet_header_with(flags).is_some_and(|(other_start, other_end)| {
            // Bytes 12 and 13, which end `end`, are not addresses.
            ((other_start ^ start)
                | (other_end ^ end) & u64::from_ne_bytes([255, 255, 255, 255, 255, 255, 0, 0]))
                == 0
        })
    };
    others.iter().all(is_same).then(|| FrameHeader::from_words(start, end, flags))
}

impl ForwardingPlane for Learning {
    fn decide(
        &mut self,
        from: PortIndex,
        batch: &Batch,
        first: usize,
        _: u64,
        plan: &mut BatchPlan,
    ) -> Decision {
        let Self { switch, headers, short, flooded } = self;
        *flooded = None;
        let frames = first..batch.frames();
        if batch.is_single()
            && let Some(header) = batch.fragments().get(first..).and_then(common_header)
        {
            let mut outcome = [Outcome::Flood];
            let floods = switch.decide(&[header], from, &mut outcome);
            let [outcome] = outcome;
            plan.set_common(frames.clone(), outcome);
            if floods {
                *flooded = switch.flood(from, batch, frames, plan);
            }
            return Decision::all(batch);
        }
        headers.clear();
        let mut read = |frame: usize, head: Option<&Fragment>| match head
            .and_then(|head| Some((head.ethernet_header()?, head.flags())))
        {
            Some(((start, end), flags)) => FrameHeader::from_words(start, end, flags),
            None => {
                short.push(frame as u16);
                NO_HEADER
            }
        };
        if batch.is_single() {
            let heads = batch.fragments().iter().enumerate().skip(first);
            headers.extend(heads.map(|(frame, head)| read(frame, Some(head))));
        } else {
            headers.extend((first..batch.frames()).map(|frame| read(frame, batch.first_fragment(frame))));
        }
        if switch.decide(headers, from, plan.outcomes_mut(frames.clone())) {
            *flooded = switch.flood(from, batch, frames, plan);
        }
        for frame in short.drain(..) {
            plan.set_outcome(usize::from(frame), Outcome::Drop(DropCause::TooShort));
        }
        Decision::all(batch)
    }

    #[inline]
    fn executed(&mut self, _: PortIndex, batch: &Batch, range: Range<usize>, _: &BatchPlan) {
        if let Some(frame) = self.flooded.filter(|frame| range.contains(frame)) {
            self.switch.flooded(batch.frame(frame));
        }
    }
}
