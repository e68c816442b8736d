//! Results of the instructions' interpreter for a frame of a batch, as a part of the batch's plan.

use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{
    BatchPlan, Destination, FrameCopy, MAX_REWRITE_BYTES, Outcome, RewriteId, SetId,
};
use ringroad_port::port_index::PortMask;
use ringroad_switch::{FrameHeader, LearningSwitch};

use crate::control_frame::{PacketInHeader, port_index};
use crate::counters::CounterId;
use crate::fast_path::OutcomePorts;
use crate::flow::FlowEntry;
use crate::packet::Packet;
use crate::pipeline::{OutputPort, PipelineSink, ToController};
use crate::tables::Tables;
use crate::tally::Tally;

/// Tables and learning switch that decide on the frames of one batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupContext<'batch> {
    pub tables: &'batch Tables,
    pub switch: &'batch LearningSwitch,
    pub ends: OutcomePorts,
}

/// Notes taken while a batch is decided.
#[derive(Debug, Default)]
pub(crate) struct DecisionScratch {
    /// Copies of one frame.
    copies: Vec<FrameCopy>,
    dropped: Option<DropCause>,
    /// First frame that NORMAL floods.
    pub normal_flood: Option<usize>,
    /// Last flood: the ports that were excluded, and the set of the others, or `None` if no port was left.
    flooded: Option<(PortMask, Option<SetId>)>,
    /// Header of the last query to the learning switch, and the result.
    normal: Option<(FrameHeader, Outcome)>,
}

/// Collects the results for one frame.
pub(crate) struct OneFrame<'frame> {
    context: LookupContext<'frame>,
    frame: u16,
    plan: &'frame mut BatchPlan,
    noted: &'frame mut DecisionScratch,
    tally: &'frame mut Tally,
}

fn header_of(head: &[u8]) -> FrameHeader {
    let word = |at: usize| {
        head.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&word| u64::from_ne_bytes(word))
    };
    FrameHeader::from_words(word(0), word(6), 0)
}

impl LookupContext<'_> {
    /// Returns the learning switch's decision on a frame that begins with `head`.
    pub fn normal(&self, head: &[u8], plan: &mut BatchPlan, noted: &mut DecisionScratch) -> Outcome {
        let header = header_of(head);
        let last = noted.normal.filter(|(last, _)| *last == header);
        let outcome = last.map_or_else(
            || {
                let outcome = self.switch.forward(header, self.ends.from);
                noted.normal = Some((header, outcome));
                outcome
            },
            |(_, outcome)| outcome,
        );
        match outcome {
            Outcome::Port(port) if port != self.ends.controllers => outcome,
            Outcome::Flood => {
                let closed = self.switch.closed_to_floods(self.ends.from);
                self.flooded(closed, plan, noted)
                    .map_or(Outcome::Drop(DropCause::NoDestination), Outcome::Ports)
            }
            Outcome::Drop(DropCause::Looped) => outcome,
            _ => Outcome::Drop(DropCause::NoDestination),
        }
    }

    /// Returns the set of all ports that may send, without the `closed` ones and the controllers' port.
    fn flooded(&self, closed: PortMask, plan: &mut BatchPlan, noted: &mut DecisionScratch) -> Option<SetId> {
        match noted.flooded {
            Some((last, set)) if last == closed => set,
            _ => {
                let senders: PortMask = self.tables.ports.senders();
                let mut ports = senders.but(closed);
                ports.remove(self.ends.controllers);
                let set = plan.set(ports).filter(|_| !ports.is_empty());
                noted.flooded = Some((closed, set));
                set
            }
        }
    }
}

impl DecisionScratch {
    /// Begins another batch.
    pub fn clear(&mut self) {
        (self.normal_flood, self.flooded, self.normal) = (None, None, None);
    }
}

impl<'frame> OneFrame<'frame> {
    pub fn new(
        context: LookupContext<'frame>,
        frame: usize,
        plan: &'frame mut BatchPlan,
        noted: &'frame mut DecisionScratch,
        tally: &'frame mut Tally,
    ) -> Self {
        noted.copies.clear();
        noted.dropped = None;
        Self { context, frame: frame as u16, plan, noted, tally }
    }

    /// Number of ports that get the frame, each copy counted.
    pub fn copies(&self) -> usize {
        let members = |copy: &FrameCopy| match copy.to {
            Destination::Ports(set) => self.plan.ports(set).len(),
            Destination::Port(_) | Destination::Others => 1,
        };
        match self.noted.copies.as_slice() {
            [FrameCopy { to: Destination::Port(_), .. }] => 1,
            copies => copies.iter().map(members).sum(),
        }
    }

    /// Returns the frame's outcome; `None` if the frame leaves as copies, which are in the plan then.
    pub fn finish(self) -> Option<Outcome> {
        match *self.noted.copies.as_slice() {
            [] => Some(Outcome::Drop(self.noted.dropped.unwrap_or(DropCause::NoDestination))),
            [FrameCopy { to, rewrite: None }] => Some(to.into()),
            ref copies => {
                self.plan.copy(self.frame.into(), copies);
                None
            }
        }
    }

    /// Header rewrite for the frame, if headers have changed. `None` on the outside if the plan has no room for it.
    fn head(&mut self, packet: &Packet) -> Option<Option<RewriteId>> {
        let Some((replaces, head)) = packet.changed_headers() else { return Some(None) };
        // Consecutive ports mostly get the same headers.
        let last = self.noted.copies.last().and_then(|copy| copy.rewrite);
        let is_same = |&last: &RewriteId| {
            self.plan.rewrite_of(last).is_some_and(|last| last.replaces == replaces && last.bytes == head)
        };
        if let Some(last) = last.filter(is_same) {
            return Some(Some(last));
        }
        self.plan.rewrite(replaces, head).map(Some)
    }

    fn copy(&mut self, packet: &Packet, to: Destination) {
        match self.head(packet) {
            Some(rewrite) => self.noted.copies.push(FrameCopy { to, rewrite }),
            None => self.noted.dropped = Some(DropCause::TooLong),
        }
    }
}

impl PipelineSink for OneFrame<'_> {
    fn output(&mut self, packet: &Packet, to: OutputPort, _queue: Option<u32>) {
        match to {
            OutputPort::Port(port) => {
                if let Some(port) = port_index(port).filter(|&port| port != self.context.ends.controllers) {
                    self.copy(packet, Destination::Port(port));
                }
            }
            OutputPort::All | OutputPort::Flood => {
                let from = [self.context.ends.from].into_iter().collect();
                if let Some(set) = self.context.flooded(from, self.plan, self.noted) {
                    self.copy(packet, Destination::Ports(set));
                }
            }
            OutputPort::Normal => match self.context.normal(packet.header_bytes(), self.plan, self.noted) {
                Outcome::Port(port) => self.copy(packet, Destination::Port(port)),
                Outcome::Ports(set) => {
                    self.noted.normal_flood.get_or_insert(self.frame.into());
                    self.copy(packet, Destination::Ports(set));
                }
                _ => {}
            },
        }
    }

    fn packet_in(&mut self, packet: &Packet, why: ToController) {
        let header = PacketInHeader::of(packet, why);
        let (replaces, head) = packet.changed_headers().unwrap_or((0, &[]));
        let mut bytes = [0; MAX_REWRITE_BYTES];
        let all = header.to_bytes().into_iter().chain(head.iter().copied());
        let mut len = 0;
        for (byte, value) in bytes.iter_mut().zip(all) {
            *byte = value;
            len += 1;
        }
        if let Some(head) = bytes.get(..len).and_then(|bytes| self.plan.rewrite(replaces, bytes)) {
            let to = Destination::Port(self.context.ends.controllers);
            self.noted.copies.push(FrameCopy { to, rewrite: Some(head) });
        }
    }

    fn dropped(&mut self, cause: DropCause) {
        self.noted.dropped = Some(cause);
    }

    fn looked_up(&mut self, table: u8, found: Option<&FlowEntry>) {
        if let Some(&(lookups, matched)) = self.context.tables.lookups.get(usize::from(table)) {
            self.tally.add_single(self.frame, lookups, 0);
            if found.is_some() {
                self.tally.add_single(self.frame, matched, 0);
            }
        }
    }

    fn count(&mut self, counter: CounterId, bytes: usize) {
        self.tally.add_single(self.frame, counter, bytes as u64);
    }
}
