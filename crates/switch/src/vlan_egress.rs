//! Egress of frames from a switch with VLANs: with a tag at some ports, without one at others.
//!
//! Every frame leaves with the header that the switch has checked. Otherwise its sender could write a tag into the
//! frame's memory afterwards, and send into a VLAN that does not have its port.

use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{BatchPlan, Destination, FrameCopy, Outcome, SetId};
use ringroad_port::frame::ETHERNET_HEADER_BYTES;
use ringroad_port::port_index::PortMask;

use crate::port_policies::Members;
use crate::vlan_tag::{TagRewrite, TaggedHeader};

/// Writes the copies of a batch's frames. The frames of a flow share the sets of a plan.
#[derive(Debug, Default)]
pub(crate) struct Egress {
    /// Last added sets: the set of ports whose frames have a tag, and the set of ports whose frames have none.
    tagged: Option<(PortMask, SetId)>,
    untagged: Option<(PortMask, SetId)>,
}

/// Set of these ports, which may be the last added one.
fn set(last: &mut Option<(PortMask, SetId)>, ports: PortMask, plan: &mut BatchPlan) -> Option<SetId> {
    match *last {
        Some((known, set)) if known == ports => Some(set),
        _ if ports.is_empty() => None,
        _ => {
            let set = plan.set(ports)?;
            *last = Some((ports, set));
            Some(set)
        }
    }
}

fn copy(to: Destination, rewrite: TagRewrite, plan: &mut BatchPlan) -> Option<FrameCopy> {
    let rewrite = plan.rewrite(rewrite.replaces, rewrite.bytes())?;
    Some(FrameCopy { to, rewrite: Some(rewrite) })
}

impl Egress {
    /// Sends a frame to these ports unchanged, and sends a copy with the header rewrite `probe`, too.
    pub(crate) fn flood(
        &mut self,
        frame: usize,
        probe: Option<[u8; ETHERNET_HEADER_BYTES]>,
        to: PortMask,
        plan: &mut BatchPlan,
    ) {
        let Some(set) = set(&mut self.untagged, to, plan) else {
            return plan.set_outcome(frame, Outcome::Drop(DropCause::NoDestination));
        };
        match probe {
            Some(rewrite) => plan.copy_both(frame, Destination::Ports(set), &rewrite),
            None => plan.set_outcome(frame, Outcome::Ports(set)),
        }
    }

    /// Sends a frame of a VLAN to the destination of its outcome: a port or all of `others`. A copy with the header
    /// rewrite `probe`, in the same VLAN, goes there, too.
    pub(crate) fn send(
        &mut self,
        frame: usize,
        outcome: Outcome,
        (header, vlan): (&TaggedHeader, u16),
        probe: Option<[u8; ETHERNET_HEADER_BYTES]>,
        others: Members,
        plan: &mut BatchPlan,
    ) {
        let copies = match self.copies(outcome, (header, vlan), others, plan) {
            Ok(copies) => copies,
            Err(None) => return,
            Err(Some(cause)) => return plan.set_outcome(frame, Outcome::Drop(cause)),
        };
        let probe =
            probe.and_then(|probe| self.copies(outcome, (&header.with(probe), vlan), others, plan).ok());
        let mut all = [FrameCopy { to: Destination::Others, rewrite: None }; 4];
        let known = copies.into_iter().chain(probe.into_iter().flatten()).flatten();
        let count = all.iter_mut().zip(known).map(|(target, copy)| *target = copy).count();
        plan.copy(frame, all.get(..count).unwrap_or(&all));
    }

    /// Copies of a frame that goes to a port or to all of `others`. Returns an error if there are none, with the drop
    /// cause unless `outcome` has it.
    fn copies(
        &mut self,
        outcome: Outcome,
        (header, vlan): (&TaggedHeader, u16),
        others: Members,
        plan: &mut BatchPlan,
    ) -> Result<[Option<FrameCopy>; 2], Option<DropCause>> {
        // Without its tag, a frame with an inner tag would be taken for a frame of the inner tag's VLAN.
        let stays_tagged = header.has_inner_tag();
        match outcome {
            Outcome::Port(port) if others.tagged.contains(port) => {
                Ok([copy(Destination::Port(port), header.tagged(vlan), plan), None])
            }
            Outcome::Port(_) if stays_tagged => Err(Some(DropCause::WrongVlan)),
            Outcome::Port(port) => Ok([copy(Destination::Port(port), header.untagged(), plan), None]),
            Outcome::Flood if stays_tagged && others.tagged.is_empty() && !others.untagged.is_empty() => {
                Err(Some(DropCause::WrongVlan))
            }
            Outcome::Flood => {
                let tagged = set(&mut self.tagged, others.tagged, plan);
                let untagged =
                    if stays_tagged { None } else { set(&mut self.untagged, others.untagged, plan) };
                Ok([
                    tagged.and_then(|set| copy(Destination::Ports(set), header.tagged(vlan), plan)),
                    untagged.and_then(|set| copy(Destination::Ports(set), header.untagged(), plan)),
                ])
            }
            Outcome::Ports(_) | Outcome::Copies(_) | Outcome::Drop(_) => Err(None),
        }
    }
}
