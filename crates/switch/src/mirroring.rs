//! Copies of a switch's frames for a monitoring port.
//!
//! [`Mirroring`] is in front of the forwarding plane of a switch with mirrors: it adds their ports to the plan. A
//! switch without mirrors does not have it, so its frames cost nothing.
//!
//! A mirror's port serves only the mirror: it gets no other frames, and its own frames are dropped. Otherwise a
//! monitoring program would disturb what it monitors.
//!
//! If a frame leaves with other headers, a mirror of received frames gets it as it came, and a mirror of delivered
//! frames gets it as it leaves; a mirror of both gets both. The port gets each form of a frame once.
//!
//! A mirror that samples takes one frame of each group of consecutive frames, at a pseudo-random position: otherwise
//! periodic traffic would show the same frame again and again.

use std::ops::Range;
use std::sync::Arc;

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{
    BatchPlan, CopiesId, Decision, Destination, ForwardingPlane, FrameCopy, MAX_REWRITE_BYTES, Outcome,
    RewriteId,
};
use ringroad_port::frame_record::{FrameRecord, RECORD_HEADER_BYTES, RECORDED_BYTES};
use ringroad_port::port_index::{MAX_PORTS, NO_PORT_INDEX, PortIndex, PortMask};

use crate::learning::LearningSwitch;

/// Choice of the frames of which a port gets copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorRule {
    /// Ports whose frames are copied when they enter the switch.
    pub received: PortMask,
    /// Ports whose frames are copied when the switch delivers them.
    pub delivered: PortMask,
    /// Port that gets the copies.
    pub to: PortIndex,
    /// Sampling interval: one of this many frames of each port is copied; 1 copies all.
    pub sample: u32,
    /// Whether the port gets a [`FrameRecord`] of each frame instead of the frame.
    pub records: bool,
}

/// Forwarding plane of a switch with mirrors.
#[derive(Debug)]
pub struct Mirroring {
    inner: Box<dyn ForwardingPlane>,
    switch: Arc<LearningSwitch>,
    mirrors: Vec<MirrorRule>,
    /// Ports of the mirrors.
    outlets: PortMask,
    /// Number of this worker, for records.
    worker: u8,
    /// Number of frames of each port that this worker has executed; the choice of sampled frames depends on it.
    executed: Box<[u64; MAX_PORTS]>,
    /// Copies of one frame.
    copies: Vec<FrameCopy>,
    /// Copies that the inner forwarding plane has made of the frame, each with its ports.
    decided: Vec<(FrameCopy, PortMask)>,
    /// Result of the inner forwarding plane's [`ForwardingPlane::own_port`].
    own_port: Option<PortIndex>,
}

/// Number of a port's last forms with which a new form is compared: successive ports mostly get the same form.
const FORMS_COMPARED: usize = 8;

/// Ports that monitor a frame: those that get the frame, and those that get a record.
#[derive(Debug, Clone, Copy, Default)]
struct MonitorPorts {
    frames: PortMask,
    records: PortMask,
}

/// Whether a mirror of one in `sample` frames copies frame `number`: one of each `sample` consecutive frames, at a
/// pseudo-random position (n-out-of-N sampling of RFC 5475, 5.2.1).
fn is_sampled(number: u64, sample: u32) -> bool {
    if sample == 1 {
        return true;
    }
    let sample = u64::from(sample.max(1));
    let (row, offset) = (number / sample, number % sample);
    // The finishing steps of SplitMix64, which mix all bits of the row's number.
    let mut mixed = row.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed >> 32) * sample) >> 32 == offset
}

/// Whether a frame has the same bytes with either header rewrite.
fn is_same_form(
    (batch, frame): (&Batch, usize),
    one: Option<RewriteId>,
    other: Option<RewriteId>,
    plan: &BatchPlan,
) -> bool {
    if one == other {
        return true;
    }
    match (one.and_then(|one| plan.rewrite_of(one)), other.and_then(|other| plan.rewrite_of(other))) {
        (Some(one), Some(other)) => one == other,
        // A header rewrite may equal the first bytes of the frame.
        (Some(rewrite), None) | (None, Some(rewrite)) => {
            let mut start = [0; MAX_REWRITE_BYTES];
            let len = batch.read(frame, start.get_mut(..rewrite.replaces).unwrap_or_default());
            rewrite.replaces == rewrite.bytes.len() && start.get(..len) == Some(rewrite.bytes)
        }
        (None, None) => true,
    }
}

impl Mirroring {
    /// Adds `mirrors` to the decisions of `inner` for `switch`, on the worker with the number `worker`.
    #[must_use]
    pub fn new(
        inner: Box<dyn ForwardingPlane>,
        switch: Arc<LearningSwitch>,
        mirrors: Vec<MirrorRule>,
        worker: u8,
    ) -> Self {
        let outlets = mirrors.iter().map(|mirror| mirror.to).collect();
        let executed = Box::new([0; MAX_PORTS]);
        let own_port = inner.own_port();
        let (copies, decided) = (Vec::with_capacity(3), Vec::new());
        Self { inner, switch, mirrors, outlets, worker, executed, copies, decided, own_port }
    }

    /// Ports to which a frame from the port `from` goes.
    fn members(&self, outcome: Outcome, from: PortIndex, plan: &BatchPlan) -> PortMask {
        self.switch.members(outcome, from, plan).but(self.outlets)
    }

    /// Ports that monitor frame `number` of the port `from`, which goes to `members`.
    fn monitors(&self, number: u64, from: PortIndex, members: PortMask) -> MonitorPorts {
        let mut monitors = MonitorPorts::default();
        for mirror in &self.mirrors {
            let is_meant = mirror.received.contains(from)
                || members.iter().any(|member| mirror.delivered.contains(member));
            if is_meant && is_sampled(number, mirror.sample) {
                let kind = if mirror.records { &mut monitors.records } else { &mut monitors.frames };
                kind.insert(mirror.to);
            }
        }
        monitors
    }

    /// Adds the copies for mirrors to a frame that leaves as copies, and removes the mirrors' ports from the frame's
    /// other copies. Returns the number of steps.
    fn mirror_copies(
        &mut self,
        (batch, frame): (&Batch, usize),
        (number, from): (u64, PortIndex),
        copies: CopiesId,
        plan: &mut BatchPlan,
    ) -> u64 {
        self.decided.clear();
        for &copy in plan.copies_of(copies) {
            let members = self.members(copy.to.into(), from, plan);
            self.decided.push((copy, members));
        }
        self.decided.retain(|(_, members)| !members.is_empty());
        self.copies.clear();
        let mut all = PortMask::EMPTY;
        for &(copy, members) in &self.decided {
            let to = match copy.to {
                Destination::Ports(set) if plan.ports(set) != members => {
                    plan.set(members).map(Destination::Ports)
                }
                Destination::Others => plan.set(members).map(Destination::Ports),
                to => Some(to),
            };
            self.copies.extend(to.map(|to| FrameCopy { to, ..copy }));
            all = all.or(members);
        }
        // Frames from the forwarding plane's own port have a header in front that is not part of the frame.
        let is_own = self.own_port == Some(from);
        let as_it_came = if is_own { self.copies.first().and_then(|copy| copy.rewrite) } else { None };
        let leaving = self.copies.len();
        let mut steps = leaving as u64;
        let mut records = PortMask::EMPTY;
        for mirror in self.mirrors.iter().filter(|mirror| is_sampled(number, mirror.sample)) {
            let is_received = mirror.received.contains(from);
            let is_delivered = |members: PortMask| {
                members.iter().any(|port| mirror.delivered.contains(port) && Some(port) != self.own_port)
            };
            if mirror.records {
                if !is_own && (is_received || is_delivered(all)) {
                    records.insert(mirror.to);
                }
                continue;
            }
            let delivered = self.decided.iter().filter(|(_, members)| is_delivered(*members));
            let heads =
                is_received.then_some(as_it_came).into_iter().chain(delivered.map(|(copy, _)| copy.rewrite));
            for rewrite in heads {
                let copy = FrameCopy { to: Destination::Port(mirror.to), rewrite };
                let others = self.copies.iter().skip(leaving).rev().filter(|other| other.to == copy.to);
                let is_known = others.take(FORMS_COMPARED).any(|other| {
                    steps += 1;
                    is_same_form((batch, frame), other.rewrite, copy.rewrite, plan)
                });
                if !is_known {
                    self.copies.push(copy);
                }
            }
        }
        if !records.is_empty()
            && let rewrite @ Some(_) = self.record((batch, frame), (number, from, all), plan)
            && let Some(set) = plan.set(records)
        {
            self.copies.push(FrameCopy { to: Destination::Ports(set), rewrite });
        }
        plan.copy(frame, &self.copies);
        steps
    }

    /// Header rewrite that replaces the whole frame by its record.
    fn record(
        &self,
        (batch, frame): (&Batch, usize),
        (number, from, members): (u64, PortIndex, PortMask),
        plan: &mut BatchPlan,
    ) -> Option<RewriteId> {
        let frame_bytes = batch.frame_bytes(frame);
        let record = FrameRecord {
            number,
            frame_bytes: frame_bytes as u32,
            from,
            destinations: members.len() as u8,
            to: members.iter().next().unwrap_or(NO_PORT_INDEX),
            worker: self.worker,
        };
        let mut rewrite = [0; RECORD_HEADER_BYTES + RECORDED_BYTES];
        let (header, start) = rewrite.split_at_mut(RECORD_HEADER_BYTES);
        header.copy_from_slice(&record.to_bytes());
        let len = batch.read(frame, start);
        plan.rewrite(frame_bytes, rewrite.get(..RECORD_HEADER_BYTES + len)?)
    }
}

impl ForwardingPlane for Mirroring {
    fn decide(
        &mut self,
        from: PortIndex,
        batch: &Batch,
        first: usize,
        budget: u64,
        plan: &mut BatchPlan,
    ) -> Decision {
        if self.outlets.contains(from) {
            plan.outcomes_mut(first..batch.frames()).fill(Outcome::Drop(DropCause::MirrorPort));
            return Decision::all(batch);
        }
        let Decision { end, steps } = self.inner.decide(from, batch, first, budget, plan);
        let mut more_steps = 0;
        let executed = self.executed.get(usize::from(from.0)).copied().unwrap_or_default();
        for frame in first..end {
            let outcome = plan.outcome(frame);
            let number = executed + (frame - first) as u64;
            if let Outcome::Copies(copies) = outcome {
                more_steps += self.mirror_copies((batch, frame), (number, from), copies, plan);
                if more_steps >= budget {
                    return Decision { end: frame + 1, steps: steps + more_steps };
                }
                continue;
            }
            let members = self.members(outcome, from, plan);
            let monitors = self.monitors(number, from, members);
            let mut ports = monitors.frames;
            self.copies.clear();
            match outcome {
                // The frame keeps its queue; a frame to a set does not.
                Outcome::Port(port) if members.contains(port) => {
                    if ports.is_empty() && monitors.records.is_empty() {
                        continue;
                    }
                    self.copies.push(FrameCopy { to: Destination::Port(port), rewrite: None });
                }
                Outcome::Port(_) | Outcome::Flood | Outcome::Ports(_) => {
                    ports = members.iter().chain(ports.iter()).collect();
                }
                Outcome::Copies(_) | Outcome::Drop(_) => continue,
            }
            if !ports.is_empty()
                && let Some(set) = plan.set(ports)
            {
                self.copies.push(FrameCopy { to: Destination::Ports(set), rewrite: None });
            }
            if !monitors.records.is_empty()
                && let rewrite @ Some(_) = self.record((batch, frame), (number, from, members), plan)
                && let Some(set) = plan.set(monitors.records)
            {
                self.copies.push(FrameCopy { to: Destination::Ports(set), rewrite });
            }
            plan.copy(frame, &self.copies);
        }
        Decision { end, steps: steps + more_steps }
    }

    fn executed(&mut self, from: PortIndex, batch: &Batch, range: Range<usize>, plan: &BatchPlan) {
        if let Some(executed) = self.executed.get_mut(usize::from(from.0)) {
            *executed += range.len() as u64;
        }
        self.inner.executed(from, batch, range, plan);
    }
}
