//! A switch with flow tables, slow and simple: each lookup checks every entry, and every instruction is executed as in
//! the specification. It shares only the headers and their changes by actions (`packet`) with the real one; they have
//! their own tests.

use std::sync::Arc;

use ringroad_flow_tables::control_frame::{PacketInHeader, port_index, port_number};
use ringroad_flow_tables::packet::{ActionError, HEADER_BYTES, Packet};
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::PacketInReason;
use ringroad_openflow::oxm::Match;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::Outcome;
use ringroad_port::port_index::PortIndex;
use ringroad_switch::{FrameHeader, LearningSwitch};

/// An entry and its counts.
#[derive(Debug, Clone)]
pub struct Entry {
    pub table: u8,
    pub priority: u16,
    pub matching: Match,
    pub instructions: Instructions,
    pub cookie: u64,
    pub packets: u64,
    pub bytes: u64,
}

/// Outcome of a frame: copies, as ports and bytes, or the cause of the drop.
pub type OracleOutcome = Result<Vec<(Vec<u8>, Vec<u8>)>, DropCause>;

#[derive(Debug)]
pub struct Oracle {
    pub entries: Vec<Entry>,
    /// Number of lookups of each table, and of those that found an entry.
    pub lookups: [(u64, u64); 256],
    pub ports: Vec<PortIndex>,
    pub drops_fragments: bool,
    pub switch: Arc<LearningSwitch>,
    pub controllers: PortIndex,
}

/// State of a packet's path through the tables.
struct Walk<'oracle> {
    oracle: &'oracle mut Oracle,
    from: PortIndex,
    frame: &'oracle [u8],
    copies: Vec<(Vec<u8>, Vec<u8>)>,
    is_settled: bool,
    /// Table, cookie, and whether the entry is the table's last resort.
    entry: (u8, u64, bool),
}

impl Oracle {
    pub fn receive(&mut self, from: PortIndex, frame: &[u8]) -> OracleOutcome {
        if frame.len() < 14 {
            return Err(DropCause::TooShort);
        }
        let mut packet = Packet::default();
        packet.load(port_number(from), &frame[..frame.len().min(HEADER_BYTES)], frame.len(), false);
        if self.drops_fragments && packet.is_fragment() {
            return Err(DropCause::Fragment);
        }
        let mut walk =
            Walk { oracle: self, from, frame, copies: Vec::new(), is_settled: false, entry: (0, 0, false) };
        let done = walk.through_tables(&mut packet);
        let Walk { copies, is_settled, .. } = walk;
        match done {
            _ if !copies.is_empty() => Ok(copies),
            Err(cause) => Err(cause),
            Ok(()) if is_settled => Err(DropCause::NoDestination),
            Ok(()) => Err(DropCause::ByFlow),
        }
    }
}

impl Walk<'_> {
    fn through_tables(&mut self, packet: &mut Packet) -> Result<(), DropCause> {
        let (mut table, mut set) = (0, Vec::<Action>::new());
        loop {
            let lookups = &mut self.oracle.lookups[usize::from(table)];
            lookups.0 += 1;
            let entries = self.oracle.entries.iter_mut();
            let matching = entries.filter(|entry| entry.table == table && packet.matches(&entry.matching));
            let Some(entry) = matching.max_by_key(|entry| entry.priority) else {
                return Err(DropCause::NoFlow);
            };
            lookups.1 += 1;
            entry.packets += 1;
            entry.bytes += packet.bytes() as u64;
            let is_last_resort = entry.priority == 0 && entry.matching == Match::default();
            self.entry = (table, entry.cookie, is_last_resort);
            let Instructions { apply, clear, write, metadata, goto, .. } = entry.instructions.clone();
            for action in apply.iter().flatten() {
                self.act(packet, action)?;
            }
            if clear {
                set.clear();
            }
            for &action in write.iter().flatten() {
                set.retain(|other| !is_same_kind(other, &action));
                set.push(action);
            }
            if let Some((value, mask)) = metadata {
                packet.metadata = packet.metadata & !mask | value & mask;
            }
            let Some(next) = goto else { break };
            table = next;
        }
        // Headers change first, in the order of the specification; the output is last.
        if set.iter().any(|action| matches!(action, Action::Output { .. })) {
            set.sort_by_key(order);
            for action in &set {
                self.act(packet, action)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, packet: &mut Packet, action: &Action) -> Result<(), DropCause> {
        if let Action::Output { port, .. } = *action {
            self.output(packet, port);
            return Ok(());
        }
        match packet.apply(action) {
            Ok(()) => Ok(()),
            Err(ActionError::TooLong) => Err(DropCause::TooLong),
            Err(ActionError::TtlInvalid) => {
                self.packet_in(packet, PacketInReason::InvalidTtl);
                Err(DropCause::TtlExpired)
            }
        }
    }

    fn bytes(&self, packet: &Packet) -> Vec<u8> {
        let (replaces, head) = packet.changed_headers().unwrap_or((0, &[]));
        [head, &self.frame[replaces..]].concat()
    }

    fn copy(&mut self, packet: &Packet, ports: Vec<u8>) {
        self.is_settled = true;
        if !ports.is_empty() {
            let bytes = self.bytes(packet);
            self.copies.push((ports, bytes));
        }
    }

    fn all_others(&self) -> Vec<u8> {
        self.oracle.ports.iter().filter(|&&port| port != self.from).map(|port| port.0).collect()
    }

    fn output(&mut self, packet: &Packet, port: PortNo) {
        match port {
            PortNo::CONTROLLER => {
                let reason = if self.entry.2 { PacketInReason::NoMatch } else { PacketInReason::Action };
                self.packet_in(packet, reason);
            }
            PortNo::IN_PORT => self.copy(packet, vec![self.from.0]),
            PortNo::ALL | PortNo::FLOOD => self.copy(packet, self.all_others()),
            PortNo::NORMAL => {
                let bytes = self.bytes(packet);
                // A frame may have no source, if an action has made it too short.
                let mut header = [0; 14];
                let known = if bytes.len() < header.len() { bytes.len().min(8) } else { header.len() };
                header[..known].copy_from_slice(&bytes[..known]);
                if known == 8 {
                    header[6..].fill(0);
                }
                let header = FrameHeader::from_bytes(&header, 0);
                let ports = match self.oracle.switch.forward(header, self.from) {
                    Outcome::Port(port) => vec![port.0],
                    Outcome::Flood => self.all_others(),
                    _ => vec![],
                };
                self.copy(packet, ports);
            }
            port => {
                let index = port_index(port).filter(|index| self.oracle.ports.contains(index));
                if let Some(index) = index.filter(|&index| index != self.from) {
                    self.copy(packet, vec![index.0]);
                }
            }
        }
    }

    fn packet_in(&mut self, packet: &Packet, reason: PacketInReason) {
        let (table, cookie, _) = self.entry;
        let header = PacketInHeader {
            in_port: packet.in_port,
            reason,
            table,
            cookie,
            metadata: packet.metadata,
            tunnel_id: packet.tunnel_id,
        };
        let bytes = [&header.to_bytes()[..], &self.bytes(packet)].concat();
        self.is_settled = true;
        self.copies.push((vec![self.oracle.controllers.0], bytes));
    }
}

/// An action set has one of each kind, and one of each field that is set (OpenFlow 1.3.5, 5.10).
fn is_same_kind(one: &Action, other: &Action) -> bool {
    match (one, other) {
        (Action::SetField(one), Action::SetField(other)) => one.field == other.field,
        _ => one.kind() == other.kind(),
    }
}

/// Order of execution: pop, push, TTL, set, output.
fn order(action: &Action) -> u8 {
    match action {
        Action::PopVlan => 0,
        Action::PushVlan(_) => 1,
        Action::DecNwTtl => 2,
        Action::SetField(_) => 3,
        Action::Output { .. } => 4,
        other => panic!("{other:?} is in no test"),
    }
}
