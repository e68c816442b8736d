//! Prediction of the switch's decision on a frame. Nothing is learned, and no limit is used up.

use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{BatchPlan, Outcome};
use ringroad_port::port_index::{PortIndex, PortMask};

use super::{Policing, Read};
use crate::classify::FrameHeader;
use crate::port_policies::NO_VLAN;
use crate::vlan_tag::TaggedHeader;

/// Predicted outcome of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prediction {
    /// Addresses and VLAN of the frame, VLAN 0 if it belongs to none; `None` if the switch does not look up the
    /// destination.
    pub looked_up: Option<(FrameHeader, u16)>,
    /// Ports by which the frame leaves, and its bytes there; or the cause of its drop.
    pub outcome: Result<Vec<PredictedOutput>, DropCause>,
}

/// Ports that a frame leaves through in one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictedOutput {
    /// Ports that get this form.
    pub ports: PortMask,
    /// Number of leading bytes replaced.
    pub replaces: usize,
    /// Bytes that replace the leading bytes.
    pub header: Vec<u8>,
}

impl Policing {
    /// Predicts the outcome of a frame from a port that begins with `start`: at least 18 bytes of a longer frame.
    #[must_use]
    pub fn predict(&self, from: PortIndex, start: &[u8]) -> Prediction {
        let (header, ingress) = match self.read_start(from, start) {
            Ok(read) => read,
            Err(cause) => return Prediction { looked_up: None, outcome: Err(cause) },
        };
        let vlan = ingress.map_or(NO_VLAN, |(_, vlan)| vlan);
        let mut outcome = self.lookup(header, from, &self.domain(vlan));
        if let (Outcome::Flood, Some(limit)) = (outcome, self.policies.storm_limit(from))
            && !limit.has(1, self.clock.now_ns())
        {
            outcome = Outcome::Drop(DropCause::Storm);
        }
        let mut plan = BatchPlan::new();
        plan.reset(0..1);
        plan.set_outcome(0, outcome);
        self.send(from, 0..1, &[ingress], None, &mut plan);
        Prediction { looked_up: Some((header, vlan)), outcome: self.departures(from, &plan) }
    }

    fn read_start(&self, from: PortIndex, start: &[u8]) -> Result<Read, DropCause> {
        if self.policies.has_vlans() {
            return self.in_vlan(from, TaggedHeader::parse(start, FrameHeader::NO_LEARN));
        }
        let header = start.first_chunk().ok_or(DropCause::TooShort)?;
        Ok((FrameHeader::from_bytes(header, FrameHeader::NO_LEARN), None))
    }

    fn departures(&self, from: PortIndex, plan: &BatchPlan) -> Result<Vec<PredictedOutput>, DropCause> {
        let to = |outcome| self.switch.members(outcome, from, plan);
        match plan.outcome(0) {
            Outcome::Drop(cause) => Err(cause),
            Outcome::Copies(copies) => {
                let departures = plan.copies_of(copies).iter().map(|copy| {
                    let rewrite = copy.rewrite.and_then(|rewrite| plan.rewrite_of(rewrite));
                    let (replaces, header) =
                        rewrite.map_or((0, Vec::new()), |rewrite| (rewrite.replaces, rewrite.bytes.to_vec()));
                    PredictedOutput { ports: to(copy.to.into()), replaces, header }
                });
                Ok(departures.collect())
            }
            as_it_came => {
                Ok(vec![PredictedOutput { ports: to(as_it_came), replaces: 0, header: Vec::new() }])
            }
        }
    }
}
