//! What the switch would do with a frame. Nothing is learned, and no limit is used up.

use ringroad_port::drop_cause::DropCause;
use ringroad_port::plan::{Destination, Fate, Plan};
use ringroad_port::port_index::{PortIndex, PortMask};

use super::{Policing, Read};
use crate::classify::FrameHeader;
use crate::port_policies::NO_VLAN;
use crate::vlan_tag::TaggedHeader;

/// The fate that a frame would have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreseen {
    /// Its addresses and its VLAN, 0 where it is of none; `None` where the switch does not look for its destination.
    pub looked_up: Option<(FrameHeader, u16)>,
    /// Where it leaves, and with which first bytes in place of how many of its own; or why it does not.
    pub outcome: Result<Vec<Departure>, DropCause>,
}

/// Ports that a frame leaves through in one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// The ports.
    pub ports: PortMask,
    /// How many of its first bytes others take the place of.
    pub replaces: usize,
    /// These.
    pub head: Vec<u8>,
}

impl Policing {
    /// The fate of a frame from a port that begins with these bytes, at least 18 of a longer frame.
    #[must_use]
    pub fn foresee(&self, from: PortIndex, start: &[u8]) -> Foreseen {
        let (header, ingress) = match self.read_start(from, start) {
            Ok(read) => read,
            Err(cause) => return Foreseen { looked_up: None, outcome: Err(cause) },
        };
        let vlan = ingress.map_or(NO_VLAN, |(_, vlan)| vlan);
        let mut fate = self.look_up(header, from, &self.domain(vlan));
        if let (Fate::Flood, Some(limit)) = (fate, self.policies.storm_limit(from))
            && !limit.has(1, self.clock.now_ns())
        {
            fate = Fate::Drop(DropCause::Storm);
        }
        let mut plan = Plan::new();
        plan.reset(0..1);
        plan.set_fate(0, fate);
        self.send(from, 0..1, &[ingress], None, &mut plan);
        Foreseen { looked_up: Some((header, vlan)), outcome: self.departures(from, &plan) }
    }

    fn read_start(&self, from: PortIndex, start: &[u8]) -> Result<Read, DropCause> {
        if self.policies.has_vlans() {
            return self.in_vlan(from, TaggedHeader::parse(start, FrameHeader::NO_LEARN));
        }
        let header = start.first_chunk().ok_or(DropCause::TooShort)?;
        Ok((FrameHeader::from_bytes(header, FrameHeader::NO_LEARN), None))
    }

    fn departures(&self, from: PortIndex, plan: &Plan) -> Result<Vec<Departure>, DropCause> {
        let to = |destination| match destination {
            Destination::Port(port) => [port].into_iter().collect(),
            Destination::Others => self.switch.ports.iter().filter(|&port| port != from).collect(),
            Destination::Ports(set) => plan.ports(set),
        };
        let as_it_came = |to| Ok(vec![Departure { ports: to, replaces: 0, head: Vec::new() }]);
        match plan.fate(0) {
            Fate::Port(port) => as_it_came(to(Destination::Port(port))),
            Fate::Flood => as_it_came(to(Destination::Others)),
            Fate::Ports(set) => as_it_came(to(Destination::Ports(set))),
            Fate::Drop(cause) => Err(cause),
            Fate::Copies(copies) => {
                let departures = plan.copies_of(copies).iter().map(|copy| {
                    let head = copy.head.and_then(|head| plan.head_of(head));
                    let (replaces, head) =
                        head.map_or((0, Vec::new()), |head| (head.replaces, head.bytes.to_vec()));
                    Departure { ports: to(copy.to), replaces, head }
                });
                Ok(departures.collect())
            }
        }
    }
}
