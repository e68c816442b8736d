//! How frames leave a switch with VLANs: with a tag by some ports, without one by others.
//!
//! Every frame leaves with the head that was judged: its sender could else put a tag into its memory afterwards, and
//! send into a VLAN in which its port is not.

use ringroad_port::drop_cause::DropCause;
use ringroad_port::plan::{Destination, Fate, FrameCopy, Plan, SetId};
use ringroad_port::port_index::PortMask;

use crate::port_policies::Members;
use crate::vlan_tag::{NewHead, TaggedHeader};

/// Writes the copies of a batch's frames. The frames of a flow share the sets of a plan.
#[derive(Debug, Default)]
pub(crate) struct Egress {
    /// The sets added last, of ports whose frames have a tag and of those whose frames have none.
    tagged: Option<(PortMask, SetId)>,
    untagged: Option<(PortMask, SetId)>,
}

/// The set of these ports, which may be the last one.
fn set(last: &mut Option<(PortMask, SetId)>, ports: PortMask, plan: &mut Plan) -> Option<SetId> {
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

fn copy(to: Destination, head: NewHead, plan: &mut Plan) -> Option<FrameCopy> {
    let head = plan.head(head.replaces, head.bytes())?;
    Some(FrameCopy { to, head: Some(head) })
}

impl Egress {
    /// Has a frame leave as it came, to these ports.
    pub(crate) fn flood(&mut self, frame: usize, to: PortMask, plan: &mut Plan) {
        let set = set(&mut self.untagged, to, plan);
        plan.set_fate(frame, set.map_or(Fate::Drop(DropCause::NoDestination), Fate::Ports));
    }

    /// Sends a frame of a VLAN to its fate's destination: a port or all of `others`.
    pub(crate) fn send(
        &mut self,
        frame: usize,
        fate: Fate,
        (head, vlan): (&TaggedHeader, u16),
        others: Members,
        plan: &mut Plan,
    ) {
        // A frame without its tag would be taken for one of the VLAN that the next tag names.
        let stays_tagged = head.has_inner_tag();
        let copies = match fate {
            Fate::Port(port) if others.tagged.contains(port) => {
                [copy(Destination::Port(port), head.tagged(vlan), plan), None]
            }
            Fate::Port(_) if stays_tagged => return plan.set_fate(frame, Fate::Drop(DropCause::WrongVlan)),
            Fate::Port(port) => [copy(Destination::Port(port), head.untagged(), plan), None],
            Fate::Flood if stays_tagged && others.tagged.is_empty() && !others.untagged.is_empty() => {
                return plan.set_fate(frame, Fate::Drop(DropCause::WrongVlan));
            }
            Fate::Flood => {
                let tagged = set(&mut self.tagged, others.tagged, plan);
                let untagged =
                    if stays_tagged { None } else { set(&mut self.untagged, others.untagged, plan) };
                [
                    tagged.and_then(|set| copy(Destination::Ports(set), head.tagged(vlan), plan)),
                    untagged.and_then(|set| copy(Destination::Ports(set), head.untagged(), plan)),
                ]
            }
            Fate::Ports(_) | Fate::Copies(_) | Fate::Drop(_) => return,
        };
        match copies {
            [Some(first), Some(second)] => plan.copy(frame, &[first, second]),
            [one, other] => plan.copy(frame, one.or(other).as_slice()),
        }
    }
}
