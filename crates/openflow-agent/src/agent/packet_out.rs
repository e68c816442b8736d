//! Packets that controllers send.

use ringroad_flow_tables::control_frame::{PacketInHeader, port_index};
use ringroad_flow_tables::counters::{Count, CounterId};
use ringroad_flow_tables::flow::FlowEntry;
use ringroad_flow_tables::packet::Packet;
use ringroad_flow_tables::pipeline::{OutputPort, PipelineSink, ToController};
use ringroad_flow_tables::tables::Tables;
use ringroad_openflow::action::PortNo;
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::message::PacketOut;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::Outcome;
use ringroad_port::port_index::PortMask;
use ringroad_switch::{FrameHeader, LearningSwitch};

use super::{Agent, Outgoing};

impl Agent {
    pub(super) fn packet_out(&mut self, out: &PacketOut) -> Result<(), ErrorCode> {
        if out.buffer_id.is_some() {
            return Err(ErrorCode::REQUEST_BUFFER_UNKNOWN);
        }
        if out.in_port.is_physical() && !self.ports.contains_key(&out.in_port) {
            return Err(ErrorCode::REQUEST_BAD_PORT);
        }
        if out.data.len() < ringroad_port::frame::ETHERNET_HEADER_BYTES {
            return Err(ErrorCode::REQUEST_BAD_PACKET);
        }
        self.state.check_actions(&out.actions, None)?;
        let mut packet = Packet::default();
        packet.load(out.in_port, &out.data, out.data.len(), false);
        let mut sink = PacketOutSink {
            tables: self.state.tables(),
            switch: &self.switch,
            worker: self.worker,
            data: &out.data,
            outgoing: Vec::new(),
            packet_ins: Vec::new(),
            bytes: self.outgoing_bytes,
            dropped: 0,
        };
        self.state.tables().apply(&mut packet, &out.actions, self.clock.now_ns(), &mut sink);
        let PacketOutSink { outgoing, packet_ins, bytes, dropped, .. } = sink;
        self.outgoing_bytes = bytes;
        self.counted.dropped_packet_outs += dropped;
        self.outgoing.extend(outgoing);
        for (header, data) in packet_ins {
            self.pass_on(header, &data);
        }
        Ok(())
    }
}

/// Receives the events of a controller's packet on its path.
struct PacketOutSink<'state> {
    tables: &'state Tables,
    switch: &'state LearningSwitch,
    worker: usize,
    data: &'state [u8],
    outgoing: Vec<Outgoing>,
    packet_ins: Vec<(PacketInHeader, Vec<u8>)>,
    /// Bytes of all packets so far, other requests' too, and number of packets dropped beyond the maximum.
    bytes: usize,
    dropped: u64,
}

/// Maximum number of bytes of controllers' packets that wait for the switch, or go back to controllers: one packet can
/// leave as thousands of copies.
const MAX_OUTGOING_BYTES: usize = 4 << 20;

impl PacketOutSink<'_> {
    /// Copies the packet as it is now. Returns `None`, and counts a drop, if too many bytes wait.
    fn kept(&mut self, packet: &Packet) -> Option<Vec<u8>> {
        if self.bytes > MAX_OUTGOING_BYTES {
            self.dropped += 1;
            return None;
        }
        let bytes = self.bytes(packet);
        self.bytes += bytes.len();
        Some(bytes)
    }

    fn bytes(&self, packet: &Packet) -> Vec<u8> {
        match packet.changed_headers() {
            Some((replaces, head)) => [head, self.data.get(replaces..).unwrap_or(&[])].concat(),
            None => self.data.to_vec(),
        }
    }

    fn all_but(&self, in_port: PortNo) -> PortMask {
        let mut ports = self.tables.ports().senders();
        if let Some(index) = port_index(in_port) {
            ports.remove(index);
        }
        ports
    }
}

impl PipelineSink for PacketOutSink<'_> {
    fn output(&mut self, packet: &Packet, to: OutputPort, _queue: Option<u32>) {
        let ports = match to {
            OutputPort::Port(port) => port_index(port).into_iter().collect(),
            OutputPort::All | OutputPort::Flood => self.all_but(packet.in_port),
            OutputPort::Normal => {
                // The learning switch needs no more than the addresses.
                let bytes = match packet.changed_headers() {
                    Some((_, head)) if head.len() >= 14 => head,
                    Some(_) => &self.bytes(packet)[..],
                    None => self.data,
                };
                let word = |at: usize| {
                    bytes
                        .get(at..)
                        .and_then(|rest| rest.first_chunk())
                        .map_or(0, |&word| u64::from_ne_bytes(word))
                };
                let header = FrameHeader::from_words(word(0), word(6), FrameHeader::NO_LEARN);
                let from = port_index(packet.in_port).unwrap_or(ringroad_port::port_index::NO_PORT_INDEX);
                match self.switch.forward(header, from) {
                    Outcome::Port(port) => [port].into_iter().collect(),
                    Outcome::Flood => self.all_but(packet.in_port),
                    _ => PortMask::EMPTY,
                }
            }
        };
        if !ports.is_empty()
            && let Some(bytes) = self.kept(packet)
        {
            self.outgoing.push((ports, bytes));
        }
    }

    fn packet_in(&mut self, packet: &Packet, why: ToController) {
        let header = PacketInHeader::of(packet, why);
        if let Some(bytes) = self.kept(packet) {
            self.packet_ins.push((header, bytes));
        }
    }

    fn dropped(&mut self, _: DropCause) {}

    fn looked_up(&mut self, table: u8, found: Option<&FlowEntry>) {
        self.tables.count_lookup(self.worker, table, found.is_some());
    }

    fn count(&mut self, counter: CounterId, bytes: usize) {
        self.tables.count(self.worker, counter, Count { packets: 1, bytes: bytes as u64 });
    }
}
