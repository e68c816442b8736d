//! Copies of a switch's frames for a port that looks on.
//!
//! [`Mirroring`] stands before the decider of a switch that has mirrors: it adds their ports to the plan. A switch
//! without mirrors has no such decider, so its frames cost nothing.
//!
//! A port to which a mirror leads is kept for that: it gets no other frames, and its own are dropped. Else a program
//! that looks on would disturb what it looks at.

use std::ops::Range;
use std::sync::Arc;

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::plan::{Decide, Destination, Fate, FrameCopy, Plan};
use ringroad_port::port_index::{PortIndex, PortMask};

use crate::learning::LearningSwitch;

/// Which frames a port gets copies of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirror {
    /// Frames that come in by these ports.
    pub received: PortMask,
    /// Frames that the switch delivers to these ports.
    pub delivered: PortMask,
    /// The port that gets the copies.
    pub to: PortIndex,
    /// One of so many frames is copied; 1 copies all.
    pub sample: u32,
}

/// The decider of a switch with mirrors.
#[derive(Debug)]
pub struct Mirroring {
    inner: Box<dyn Decide>,
    switch: Arc<LearningSwitch>,
    mirrors: Vec<Mirror>,
    /// The ports to which mirrors lead.
    outlets: PortMask,
    /// Frames that this worker has executed: which one a mirror samples depends on it.
    executed: u64,
}

impl Mirroring {
    /// Adds `mirrors` to what `inner` decides for `switch`.
    #[must_use]
    pub fn new(inner: Box<dyn Decide>, switch: Arc<LearningSwitch>, mirrors: Vec<Mirror>) -> Self {
        let outlets = mirrors.iter().map(|mirror| mirror.to).collect();
        Self { inner, switch, mirrors, outlets, executed: 0 }
    }

    /// The ports to which a frame goes from the port `from`.
    fn members(&self, fate: Fate, from: PortIndex, plan: &Plan) -> PortMask {
        let mut members = match fate {
            Fate::Port(port) => [port].into_iter().collect(),
            Fate::Flood => self.switch.ports.iter().filter(|&port| port != from).collect(),
            Fate::Ports(set) => plan.ports(set),
            Fate::Copies(_) | Fate::Drop(_) => PortMask::default(),
        };
        self.outlets.iter().for_each(|outlet| members.remove(outlet));
        members
    }

    /// The ports that look on at frame number `number`, which goes from `from` to `members`.
    fn lookers(&self, number: u64, from: PortIndex, members: PortMask) -> PortMask {
        let looks = |mirror: &&Mirror| {
            number.is_multiple_of(u64::from(mirror.sample))
                && (mirror.received.contains(from)
                    || members.iter().any(|member| mirror.delivered.contains(member)))
        };
        self.mirrors.iter().filter(looks).map(|mirror| mirror.to).collect()
    }
}

impl Decide for Mirroring {
    fn decide(&mut self, from: PortIndex, batch: &Batch, first: usize, plan: &mut Plan) {
        let frames = first..batch.frames();
        if self.outlets.contains(from) {
            plan.fates_mut(frames).fill(Fate::Drop(DropCause::MirrorPort));
            return;
        }
        self.inner.decide(from, batch, first, plan);
        for frame in frames {
            let fate = plan.fate(frame);
            let members = self.members(fate, from, plan);
            let lookers = self.lookers(self.executed + (frame - first) as u64, from, members);
            let fate = match fate {
                // It keeps its queue, which a frame to a set does not.
                Fate::Port(port) if members.contains(port) => {
                    if let Some(lookers) = (!lookers.is_empty()).then(|| plan.set(lookers)).flatten() {
                        let copy = |to| FrameCopy { to, head: None };
                        plan.copy(frame, &[copy(Destination::Port(port)), copy(Destination::Ports(lookers))]);
                    }
                    continue;
                }
                Fate::Port(_) | Fate::Flood | Fate::Ports(_) => {
                    let all: PortMask = members.iter().chain(lookers.iter()).collect();
                    match all.is_empty() {
                        true => Fate::Drop(DropCause::NoDestination),
                        false => plan.set(all).map_or(Fate::Drop(DropCause::NoDestination), Fate::Ports),
                    }
                }
                Fate::Copies(_) | Fate::Drop(_) => continue,
            };
            plan.set_fate(frame, fate);
        }
    }

    fn executed(&mut self, from: PortIndex, batch: &Batch, range: Range<usize>, plan: &Plan) {
        self.executed += range.len() as u64;
        self.inner.executed(from, batch, range, plan);
    }
}
