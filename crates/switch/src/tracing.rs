//! Records a switch's decisions on frames for a [`Trace`]. It is in front of the forwarding planes while a trace runs.

use std::ops::Range;
use std::sync::Arc;

use ringroad_port::batch::Batch;
use ringroad_port::forwarding_plane::{BatchPlan, Decision, ForwardingPlane, Outcome};
use ringroad_port::port_index::PortIndex;
use ringroad_port::trace::{Reason, SourceSeen, Trace};

use crate::classify::FrameHeader;
use crate::learning::LearningSwitch;
use crate::port_policies::{NO_VLAN, PortPolicies};
use crate::vlan_tag::TaggedHeader;

/// Forwarding plane of a switch while a trace runs.
#[derive(Debug)]
pub struct Tracing {
    inner: Box<dyn ForwardingPlane>,
    switch: Arc<LearningSwitch>,
    trace: Arc<Trace>,
    /// Settings of the switch's ports, if some port has any.
    policies: Option<Arc<PortPolicies>>,
    /// VLAN of each frame, and the port of its source before the switch learned it.
    before: Vec<Option<(FrameHeader, u16, Option<PortIndex>)>>,
}

impl Tracing {
    /// Records the decisions of `inner` for `switch`, whose ports have the settings `policies`, in `trace`.
    #[must_use]
    pub fn new(
        inner: Box<dyn ForwardingPlane>,
        switch: Arc<LearningSwitch>,
        policies: Option<Arc<PortPolicies>>,
        trace: Arc<Trace>,
    ) -> Self {
        Self { inner, switch, trace, policies, before: Vec::new() }
    }
}

impl ForwardingPlane for Tracing {
    fn decide(
        &mut self,
        from: PortIndex,
        batch: &Batch,
        first: usize,
        budget: u64,
        plan: &mut BatchPlan,
    ) -> Decision {
        let Self { inner, switch, trace, policies, before } = self;
        let lookup = |vlan, mac| switch.table.lookup_in(vlan, mac, switch.now());
        let vlan_of = |frame| match policies.as_ref().filter(|policies| policies.has_vlans()) {
            Some(policies) => policies.vlan_of(&TaggedHeader::read(batch, frame)?, from),
            None => Some(NO_VLAN),
        };
        before.clear();
        before.extend((0..batch.frames()).map(|frame| {
            let head = batch.first_fragment(frame)?;
            let (start, end) = head.ethernet_header()?;
            let header = FrameHeader::from_words(start, end, head.flags());
            let vlan = vlan_of(frame)?;
            Some((header, vlan, lookup(vlan, header.source)))
        }));
        // Addresses learned from a batch are known when its destinations are decided.
        let decided = inner.decide(from, batch, first, budget, plan);
        trace.begin((batch, first), from, |frame, mut traced| {
            if let Some((header, vlan, was)) = before.get(frame).copied().flatten() {
                traced.source = match was {
                    _ if header.flags & FrameHeader::NO_LEARN != 0 || header.source.is_multicast() => {
                        SourceSeen::NotLearned
                    }
                    None => SourceSeen::New,
                    Some(port) if port == from => SourceSeen::Known,
                    Some(port) if lookup(vlan, header.source) == Some(from) => SourceSeen::Moved(port),
                    Some(port) => SourceSeen::Refused(port),
                };
                traced.reason = match lookup(vlan, header.destination) {
                    _ if header.forced_port().is_some() => Reason::Forced,
                    _ if header.destination.is_multicast() => Reason::Multicast,
                    Some(_) => Reason::Known,
                    None => Reason::Unknown,
                };
            }
            let outcome = plan.outcome(frame);
            traced.to = switch.members(outcome, from, plan);
            if let Outcome::Drop(cause) = outcome {
                traced.dropped = Some(cause);
            }
            traced
        });
        decided
    }

    fn executed(&mut self, from: PortIndex, batch: &Batch, range: Range<usize>, plan: &BatchPlan) {
        self.trace.executed(batch, range.start, range.end);
        self.inner.executed(from, batch, range, plan);
    }
}
