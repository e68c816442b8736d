//! What decides for a switch with flow tables, on one worker.

use std::ops::Range;
use std::sync::Arc;

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::clock::Clock;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::ETHERNET_HEADER_BYTES;
use ringroad_port::plan::{Decide, Destination, Fate, FrameCopy, HeadId, Plan};
use ringroad_port::port_index::{PortIndex, PortMask};
use ringroad_switch::{FrameHeader, LearningSwitch};

use crate::control_frame::{PACKET_OUT_BYTES, PacketInHeader, packet_out_ports, port_index, port_number};
use crate::counters::{Count, CounterId};
use crate::flow::Flow;
use crate::packet::{HEAD_BYTES, Packet};
use crate::pipeline::{Dropped, Scratch, Sink, Target, ToController};
use crate::state::WorkerTables;
use crate::tables::Tables;

/// The decider of a switch with flow tables.
#[derive(Debug)]
pub struct FlowDecider {
    needs: WorkerTables,
    switch: Arc<LearningSwitch>,
    /// The port behind which the controllers are.
    controllers: PortIndex,
    clock: Clock,
    packet: Packet,
    scratch: Scratch,
    noted: Noted,
}

/// The decider of a switch whose flow tables are not there yet: it drops what a switch without flows would drop.
#[derive(Debug)]
pub struct NoFlows;

impl Decide for NoFlows {
    fn decide(&mut self, _: PortIndex, batch: &Batch, first: usize, plan: &mut Plan) {
        plan.fates_mut(first..batch.frames()).fill(Fate::Drop(DropCause::NoFlow));
    }
}

/// What is decided, until it is executed.
#[derive(Debug, Default)]
struct Noted {
    /// What each frame counts for.
    counts: Vec<(u16, CounterId, u64)>,
    /// The copies of one frame.
    copies: Vec<FrameCopy>,
    dropped: Option<Dropped>,
    may_loop: bool,
}

/// What happens to one frame.
struct OneFrame<'frame> {
    tables: &'frame Tables,
    switch: &'frame LearningSwitch,
    controllers: PortIndex,
    from: PortIndex,
    header: FrameHeader,
    frame: u16,
    plan: &'frame mut Plan,
    noted: &'frame mut Noted,
}

impl FlowDecider {
    /// Decides by the tables; `switch` is what it does with frames that a flow sends to NORMAL.
    #[must_use]
    pub fn new(
        needs: WorkerTables,
        switch: Arc<LearningSwitch>,
        controllers: PortIndex,
        clock: Clock,
    ) -> Self {
        let counts = Vec::with_capacity(4 * BATCH_FRAMES);
        Self {
            needs,
            switch,
            controllers,
            clock,
            packet: Packet::default(),
            scratch: Scratch::default(),
            noted: Noted { counts, copies: Vec::with_capacity(8), ..Noted::default() },
        }
    }

    /// Sends the controllers' packets where they say.
    fn send_out(&mut self, batch: &Batch, first: usize, plan: &mut Plan) {
        for frame in first..batch.frames() {
            let mut header = [0; PACKET_OUT_BYTES];
            let ports = match read(batch, frame, &mut header) {
                PACKET_OUT_BYTES => packet_out_ports(&header),
                _ => PortMask::EMPTY,
            };
            let copy = plan.set(ports).zip(plan.head(PACKET_OUT_BYTES, &[]));
            self.noted.copies.clear();
            self.noted
                .copies
                .extend(copy.map(|(set, head)| FrameCopy { to: Destination::Ports(set), head: Some(head) }));
            plan.copy(frame, &self.noted.copies);
        }
    }
}

/// Reads a frame's first bytes, each once; returns how many there are.
fn read(batch: &Batch, frame: usize, head: &mut [u8]) -> usize {
    let mut len = 0;
    for fragment in batch.frame(frame) {
        len += fragment.bytes().read(head.get_mut(len..).unwrap_or_default());
    }
    len
}

impl Decide for FlowDecider {
    fn decide(&mut self, from: PortIndex, batch: &Batch, first: usize, plan: &mut Plan) {
        self.noted.counts.clear();
        self.noted.may_loop = false;
        if from == self.controllers {
            return self.send_out(batch, first, plan);
        }
        let Self { needs, switch, controllers, clock, packet, scratch, noted } = self;
        needs.turns.begin();
        // Nobody changes the tables any more where the state is gone.
        let Some(tables) = needs.tables.enter() else { return };
        let now_ns = if tables.has_meters() { clock.now_ns() } else { 0 };
        for frame in first..batch.frames() {
            let mut head = [0; HEAD_BYTES];
            let len = read(batch, frame, &mut head);
            let Some(head) = head.get(..len).filter(|head| head.len() >= ETHERNET_HEADER_BYTES) else {
                plan.set_fate(frame, Fate::Drop(DropCause::TooShort));
                continue;
            };
            let is_open = batch.meta(frame).unfinished.has_open_checksum();
            packet.load(port_number(from), head, batch.frame_bytes(frame), is_open);
            noted.copies.clear();
            noted.dropped = None;
            let mut sink = OneFrame {
                tables: &tables,
                switch,
                controllers: *controllers,
                from,
                header: header_of(head),
                frame: frame as u16,
                plan: &mut *plan,
                noted: &mut *noted,
            };
            tables.receive(packet, now_ns, scratch, &mut sink);
            match noted.copies.as_slice() {
                [] => plan.set_fate(frame, Fate::Drop(noted.dropped.map_or(DropCause::NoDestination, cause))),
                copies => plan.copy(frame, copies),
            }
        }
        drop(tables);
        if noted.may_loop {
            switch.drop_looped(batch, first..batch.frames(), from, plan);
        }
    }

    fn executed(&mut self, from: PortIndex, _: &Batch, range: Range<usize>, _: &Plan) {
        if from == self.controllers {
            return;
        }
        let Self { needs, noted, .. } = self;
        if let Some(tables) = needs.tables.enter() {
            let done = noted.counts.iter().filter(|(frame, ..)| range.contains(&usize::from(*frame)));
            for &(_, counter, bytes) in done {
                tables.counters.add(needs.worker, counter, Count { packets: 1, bytes });
            }
        }
        needs.turns.end();
    }
}

impl Drop for FlowDecider {
    fn drop(&mut self) {
        self.needs.turns.end();
    }
}

fn header_of(head: &[u8]) -> FrameHeader {
    let word = |at: usize| {
        head.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&word| u64::from_ne_bytes(word))
    };
    FrameHeader::from_words(word(0), word(6), 0)
}

fn cause(dropped: Dropped) -> DropCause {
    match dropped {
        Dropped::NoFlow => DropCause::NoFlow,
        Dropped::ByFlow => DropCause::ByFlow,
        Dropped::ByMeter => DropCause::Metered,
        Dropped::TtlInvalid => DropCause::TtlExpired,
        Dropped::TooLong => DropCause::TooLong,
        Dropped::Fragment => DropCause::Fragment,
        Dropped::ByPort => DropCause::PortDisabled,
    }
}

impl OneFrame<'_> {
    /// The head that the frame leaves with, if it has changed.
    fn head(&mut self, packet: &Packet) -> Option<Option<HeadId>> {
        let Some((replaces, head)) = packet.changed_head() else { return Some(None) };
        // Ports one after the other mostly get the same.
        let last = self.noted.copies.last().and_then(|copy| copy.head);
        let is_same = |&last: &HeadId| {
            self.plan.head_of(last).is_some_and(|last| last.replaces == replaces && last.bytes == head)
        };
        if let Some(last) = last.filter(is_same) {
            return Some(Some(last));
        }
        self.plan.head(replaces, head).map(Some)
    }

    fn copy(&mut self, packet: &Packet, to: Destination) {
        match self.head(packet) {
            Some(head) => self.noted.copies.push(FrameCopy { to, head }),
            None => self.noted.dropped = Some(Dropped::TooLong),
        }
    }

    fn copy_to_all(&mut self, packet: &Packet, mut ports: PortMask) {
        ports.remove(self.from);
        ports.remove(self.controllers);
        if let Some(set) = self.plan.set(ports).filter(|_| !ports.is_empty()) {
            self.copy(packet, Destination::Ports(set));
        }
    }
}

impl Sink for OneFrame<'_> {
    fn output(&mut self, packet: &Packet, to: Target, _queue: Option<u32>) {
        match to {
            Target::Port(port) => {
                if let Some(port) = port_index(port).filter(|&port| port != self.controllers) {
                    self.copy(packet, Destination::Port(port));
                }
            }
            Target::All | Target::Flood => self.copy_to_all(packet, self.tables.ports.senders()),
            Target::Normal => {
                let (fate, may_loop) = self.switch.forward(self.header, self.from);
                self.noted.may_loop |= may_loop;
                match fate {
                    Fate::Port(port) if port != self.controllers => {
                        self.copy(packet, Destination::Port(port))
                    }
                    Fate::Flood => self.copy_to_all(packet, self.tables.ports.senders()),
                    _ => {}
                }
            }
        }
    }

    fn packet_in(&mut self, packet: &Packet, why: ToController) {
        let header = PacketInHeader {
            in_port: packet.in_port,
            reason: why.reason,
            table: why.table,
            max_len: why.max_len,
            cookie: why.cookie,
            metadata: packet.metadata,
            tunnel_id: packet.tunnel_id,
        };
        let (replaces, head) = packet.changed_head().unwrap_or((0, &[]));
        let mut bytes = [0; ringroad_port::plan::MAX_HEAD_BYTES];
        let all = header.to_bytes().into_iter().chain(head.iter().copied());
        let mut len = 0;
        for (byte, value) in bytes.iter_mut().zip(all) {
            *byte = value;
            len += 1;
        }
        if let Some(head) = bytes.get(..len).and_then(|bytes| self.plan.head(replaces, bytes)) {
            let to = Destination::Port(self.controllers);
            self.noted.copies.push(FrameCopy { to, head: Some(head) });
        }
    }

    fn dropped(&mut self, why: Dropped) {
        self.noted.dropped = Some(why);
    }

    fn looked_up(&mut self, table: u8, found: Option<&Flow>) {
        if let Some(&(lookups, matched)) = self.tables.lookups.get(usize::from(table)) {
            self.noted.counts.push((self.frame, lookups, 0));
            if found.is_some() {
                self.noted.counts.push((self.frame, matched, 0));
            }
        }
    }

    fn count(&mut self, counter: CounterId, bytes: usize) {
        self.noted.counts.push((self.frame, counter, bytes as u64));
    }
}
