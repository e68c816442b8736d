//! Forwarding plane of a switch whose ports have settings: VLANs, isolation, storm limits.
//!
//! It replaces the learning switch, but only while some port has settings. In each VLAN, it treats a frame as a switch
//! without settings does: addresses are learned by VLAN, and a frame goes to members of its VLAN only. Nothing is
//! learned from a frame that is dropped because of its VLAN or a limit.

mod prediction;

use std::ops::Range;
use std::sync::Arc;

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::clock::Clock;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{BatchPlan, Decision, ForwardingPlane, Outcome};
use ringroad_port::frame::ETHERNET_HEADER_BYTES;
use ringroad_port::port_index::{BROADCAST_INDEX, PortIndex, PortMask};

pub use self::prediction::{PredictedOutput, Prediction};
use crate::classify::FrameHeader;
use crate::learning::LearningSwitch;
use crate::mac_table::Entry;
use crate::port_policies::{Members, NO_VLAN, PortPolicies};
use crate::vlan_egress::Egress;
use crate::vlan_tag::TaggedHeader;

/// Forwarding plane of a switch whose ports have settings.
#[derive(Debug)]
pub struct Policing {
    switch: Arc<LearningSwitch>,
    policies: Arc<PortPolicies>,
    /// Forwarding plane for frames of ports without settings, on a switch without VLANs.
    inner: Box<dyn ForwardingPlane>,
    clock: Clock,
    ingress: Vec<Ingress>,
    /// Frames for which a token of their port's storm limit was taken.
    metered: Vec<u16>,
    /// A flooded frame of the batch.
    flooded: Option<usize>,
}

/// The header with which a frame can leave, and its VLAN; `None` on a switch without VLANs, and if the frame goes
/// nowhere.
type Ingress = Option<(TaggedHeader, u16)>;

/// A VLAN with its ports, or no VLAN.
#[derive(Debug, Clone, Copy)]
struct Domain {
    vlan: u16,
    members: Members,
}

impl Policing {
    /// Forwarding plane for `switch`, whose ports have the settings `policies`. Storm limits use `clock`, which all
    /// workers share.
    #[must_use]
    pub fn new(switch: Arc<LearningSwitch>, policies: Arc<PortPolicies>, clock: Clock) -> Self {
        let inner = switch.forwarding_plane();
        let ingress = Vec::with_capacity(BATCH_FRAMES);
        let metered = Vec::with_capacity(BATCH_FRAMES);
        Self { switch, policies, inner, clock, ingress, metered, flooded: None }
    }

    fn domain(&self, vlan: u16) -> Domain {
        let ports = &self.switch.ports;
        let members = match self.policies.has_vlans() {
            true => self.policies.members(vlan, ports),
            false => Members { tagged: PortMask::EMPTY, untagged: ports.mask() },
        };
        Domain { vlan, members }
    }

    /// Reads the properties that decide on a frame: its addresses, and on a switch with VLANs its tag and its VLAN.
    fn read(&self, from: PortIndex, batch: &Batch, frame: usize) -> Result<Read, DropCause> {
        if self.policies.has_vlans() {
            return self.in_vlan(from, TaggedHeader::read(batch, frame));
        }
        let head = batch.first_fragment(frame).and_then(|head| Some((head.ethernet_header()?, head.flags())));
        let ((start, end), flags) = head.ok_or(DropCause::TooShort)?;
        Ok((FrameHeader::from_words(start, end, flags), None))
    }

    /// Properties that decide on a frame with this header, on a switch with VLANs.
    fn in_vlan(&self, from: PortIndex, head: Option<TaggedHeader>) -> Result<Read, DropCause> {
        let tagged = head.ok_or(DropCause::TooShort)?;
        let vlan = self.policies.vlan_of(&tagged, from).ok_or(DropCause::WrongVlan)?;
        Ok((tagged.header, Some((tagged, vlan))))
    }

    /// Destination of a frame in a domain.
    fn lookup(&self, header: FrameHeader, from: PortIndex, domain: &Domain) -> Outcome {
        let LearningSwitch { table, ports, .. } = &*self.switch;
        let port = match header.forced_port() {
            Some(BROADCAST_INDEX) => None,
            Some(port) => Some(port),
            None => table
                .lookup_in(domain.vlan, header.destination, self.switch.now())
                // A static address comes into the table of a VLAN with its first frame there.
                .or_else(|| table.static_port(header.destination).filter(|_| domain.vlan != NO_VLAN))
                // A static address is unknown in a VLAN that does not have its port.
                .filter(|&port| domain.members.contains(port) || !ports.contains(port)),
        };
        match port {
            None => Outcome::Flood,
            Some(port) if port == from => Outcome::Drop(DropCause::ToSelf),
            Some(port) if !ports.contains(port) => Outcome::Drop(DropCause::PortGone),
            Some(port) if !domain.members.contains(port) => Outcome::Drop(DropCause::WrongVlan),
            Some(port) if self.policies.kept_from(from).contains(port) => Outcome::Drop(DropCause::Isolated),
            Some(port) => Outcome::Port(port),
        }
    }

    /// Learns the source of a frame; `last` is the VLAN and the entry of the last learned source.
    fn learn(&self, header: FrameHeader, from: PortIndex, vlan: u16, last: &mut (u16, Entry)) {
        if header.source.is_multicast() || header.flags & FrameHeader::NO_LEARN != 0 || !from.is_port() {
            return;
        }
        let now = self.switch.now();
        let entry = Entry::new(header.source, from, now);
        if *last != (vlan, entry) {
            *last = (vlan, entry);
            self.switch.table.learn_entry(vlan, header.source, entry, now);
        }
    }

    /// Writes the outcome of each frame in its domain.
    fn judge(&mut self, from: PortIndex, batch: &Batch, frames: Range<usize>, plan: &mut BatchPlan) {
        let policies = Arc::clone(&self.policies);
        let storm = policies.storm_limit(from);
        let mut now_ns = None;
        let mut domain = self.domain(NO_VLAN);
        let mut last = (NO_VLAN, Entry::EMPTY);
        let LearningSwitch { loops, table, .. } = &*self.switch;
        let is_alert = loops.is_alert();
        let learns = !is_alert || loops.begin_batch(table);
        self.ingress.clear();
        for frame in frames {
            let (header, tagged) = match self.read(from, batch, frame) {
                Ok(read) => read,
                Err(cause) => {
                    plan.set_outcome(frame, Outcome::Drop(cause));
                    self.ingress.push(None);
                    continue;
                }
            };
            self.ingress.push(tagged);
            let vlan = tagged.map_or(NO_VLAN, |(_, vlan)| vlan);
            if vlan != domain.vlan {
                domain = self.domain(vlan);
            }
            if let Some(limit) = storm
                && self.lookup(header, from, &domain) == Outcome::Flood
            {
                if !limit.take(1, *now_ns.get_or_insert_with(|| self.clock.now_ns())) {
                    plan.set_outcome(frame, Outcome::Drop(DropCause::Storm));
                    continue;
                }
                self.metered.push(frame as u16);
            }
            let outcome = || self.lookup(header, from, &domain);
            if is_alert && loops.ends_here(outcome(), header.source, from, vlan, table, self.switch.now()) {
                plan.set_outcome(frame, Outcome::Drop(DropCause::Looped));
                continue;
            }
            if learns {
                self.learn(header, from, vlan, &mut last);
            }
            plan.set_outcome(frame, outcome());
        }
    }

    /// Sends each frame to the ports that may get it, in the form that they get; sends a probe with one of the frames,
    /// too.
    fn send(
        &self,
        from: PortIndex,
        frames: Range<usize>,
        ingress: &[Ingress],
        probe: Option<(usize, [u8; ETHERNET_HEADER_BYTES])>,
        plan: &mut BatchPlan,
    ) {
        let kept_from = self.policies.kept_from(from);
        let mut others = kept_from;
        others.insert(from);
        let closed = kept_from.or(self.switch.closed_to_floods(from));
        let floods_to_all = closed.len() == 1;
        let mut domain = self.domain(NO_VLAN);
        let mut egress = Egress::default();
        for (frame, ingress) in frames.zip(ingress) {
            let outcome = plan.outcome(frame);
            let but = if outcome == Outcome::Flood { closed } else { others };
            let probe = probe.filter(|(with, _)| *with == frame).map(|(_, head)| head);
            match ingress {
                Some((head, vlan)) => {
                    if *vlan != domain.vlan {
                        domain = self.domain(*vlan);
                    }
                    egress.send(frame, outcome, (head, *vlan), probe, domain.members.but(but), plan);
                }
                None if outcome == Outcome::Flood && (probe.is_some() || !floods_to_all) => {
                    egress.flood(frame, probe, domain.members.untagged.but(but), plan);
                }
                None => {}
            }
        }
    }
}

/// Addresses of a frame; on a switch with VLANs also the header with which it can leave, and its VLAN.
type Read = (FrameHeader, Ingress);

impl ForwardingPlane for Policing {
    fn decide(
        &mut self,
        from: PortIndex,
        batch: &Batch,
        first: usize,
        budget: u64,
        plan: &mut BatchPlan,
    ) -> Decision {
        self.metered.clear();
        if !self.policies.concern(from) {
            return self.inner.decide(from, batch, first, budget, plan);
        }
        let frames = first..batch.frames();
        self.judge(from, batch, frames.clone(), plan);
        self.flooded = frames.clone().find(|&frame| plan.outcome(frame) == Outcome::Flood);
        let probe = self.flooded.and_then(|frame| Some((frame, self.switch.probe_with(batch.frame(frame))?)));
        self.send(from, frames, &self.ingress, probe, plan);
        Decision::all(batch)
    }

    fn executed(&mut self, from: PortIndex, batch: &Batch, range: Range<usize>, plan: &BatchPlan) {
        if !self.policies.concern(from) {
            return self.inner.executed(from, batch, range, plan);
        }
        if let Some(frame) = self.flooded.filter(|frame| range.contains(frame)) {
            self.switch.flooded(batch.frame(frame));
        }
        let unused = self.metered.iter().filter(|&&frame| !range.contains(&usize::from(frame))).count();
        if let Some(limit) = self.policies.storm_limit(from).filter(|_| unused > 0) {
            limit.give_back(unused as u64);
        }
        self.metered.clear();
    }
}
