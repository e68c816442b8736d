//! Prediction of a frame's path through a switch, step by step. The frame is not counted, and nothing is learned of it.

use ringroad_control::explanation::{
    Explained, ExplainedFlow, ExplainedOutput, ExplainedPort, ExplainedStep, Explanation, HeaderChange,
};
use ringroad_control::message::{ErrorKind, FrameToExplain};
use ringroad_control::report::{TracedReason, TracedSource};
use ringroad_flow_tables::control_frame::{port_index, port_number};
use ringroad_flow_tables::counters::CounterId;
use ringroad_flow_tables::flow::FlowEntry;
use ringroad_flow_tables::meter::MeterEntry;
use ringroad_flow_tables::packet::Packet;
use ringroad_flow_tables::pipeline::{
    OutputPort, OutputRefusal, PipelineScratch, PipelineSink, ToController,
};
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::message::PacketInReason;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::Outcome;
use ringroad_port::frame::ETHERNET_HEADER_BYTES;
use ringroad_port::port_index::{PortIndex, PortMask};
use ringroad_switch::policing::{PredictedOutput, Prediction};
use ringroad_switch::{FrameHeader, LearningSwitch};

use crate::openflow::CONTROLLERS_INDEX;
use crate::ports::Ports;
use crate::refusal::{Refusal, refuse};
use crate::tracing_report::hex;

/// Maximum number of listed steps: nested groups can cause any number of steps.
const MAX_STEPS: usize = 2000;
/// Maximum length of the text of all steps, bytes.
const MAX_TEXT: usize = 1 << 20;
/// Maximum number of a frame's first bytes that are used.
const MAX_START: usize = 256;
/// VLAN number that stands for no VLAN.
const NO_VLAN: u16 = 0;
/// Maximum length of a frame of any port, bytes.
const MAX_FRAME: u32 = 64 << 10;

impl Ports {
    /// Predicts the path of a frame.
    ///
    /// # Errors
    /// The refusal to send: no such switch or port, or no frame.
    pub(crate) fn explain(&self, asked: &FrameToExplain) -> Result<Explanation, Refusal> {
        let fabric = self.table.fabric();
        let switch = asked.switch.as_str();
        let missing =
            |what: String| refuse(ErrorKind::NoSuchPort, what, "ringroad list shows the ports that exist");
        let learning =
            fabric.learning(switch).ok_or_else(|| missing(format!("there is no switch {switch}")))?;
        // A name with its switch is no number: a trace calls port 7 by name vale0:7, whatever its number is.
        let own_name = asked.from.strip_prefix(switch).and_then(|rest| rest.strip_prefix(':'));
        let number = asked.from.parse().ok().map(PortNo);
        let ports = || fabric.ports_of(switch).filter(|(_, index, ..)| *index != CONTROLLERS_INDEX);
        let index_of = |name: &str| ports().find(|(other, ..)| *other == name).map(|(_, index, ..)| index);
        let from = ports()
            .find(|(_, index, ..)| Some(port_number(*index)) == number)
            .map(|(_, index, ..)| index)
            .or_else(|| index_of(own_name.unwrap_or(&asked.from)))
            .ok_or_else(|| missing(format!("{switch} has no port {:?}", asked.from)))?;
        let (start, frame_bytes) = frame_of(asked).map_err(|what| refuse(ErrorKind::BadRequest, what, ""))?;
        let name = |index: PortIndex| format!("{switch}:{}", fabric.port_name(switch, index).unwrap_or("?"));
        let mirrors = fabric.mirrors().filter(|(of, _)| *of == switch);
        let outlets: PortMask = mirrors.filter_map(|(_, mirror)| index_of(&mirror.to)).collect();
        let mut packet = Packet::default();
        packet.load(port_number(from), &start, frame_bytes, false);
        (packet.metadata, packet.tunnel_id) = (asked.metadata, asked.tunnel_id);
        let mut recorder = Recorder {
            learning: &learning,
            name: &name,
            from,
            outlets,
            senders: learning.ports.iter().filter(|&port| port != CONTROLLERS_INDEX).collect(),
            steps: Vec::new(),
            outputs: Vec::new(),
            text_bytes: 0,
            is_cut: false,
            seen: vec![packet.headers().words()],
            dropped: None,
        };
        let headers = packet.headers().to_string();
        let has_flow_tables = fabric.has_forwarding_plane(switch);
        if packet.header_bytes().len() < ETHERNET_HEADER_BYTES {
            recorder.note_dropped(DropCause::TooShort);
        } else if outlets.contains(from) {
            recorder.note_dropped(DropCause::MirrorPort);
        } else if let Some((seen, now_ns)) = self.openflow.tables_of(switch) {
            // The tables do not change any more once the state is gone.
            if let Some(tables) = seen.tables.enter() {
                recorder.senders = tables.ports().senders();
                tables.receive(&mut packet, now_ns, &mut PipelineScratch::default(), &mut recorder);
            }
        } else if has_flow_tables {
            recorder.note_dropped(DropCause::NoFlow);
        } else if let Some(policing) = fabric.policing(switch) {
            let options = fabric.settings_of(switch, from).map(ToString::to_string).unwrap_or_default();
            recorder.by_options(&policing.predict(from, &start), options, (&start, frame_bytes));
        } else {
            recorder.output(&packet, OutputPort::Normal, None);
        }
        let Recorder { steps, outputs, is_cut, dropped, .. } = recorder;
        let dropped =
            outputs.is_empty().then(|| dropped.unwrap_or(DropCause::NoDestination).name().to_owned());
        Ok(Explanation {
            switch: switch.to_owned(),
            from: ExplainedPort { number: port_number(from).0, name: name(from) },
            has_flow_tables,
            headers,
            frame_bytes: frame_bytes as u64,
            steps,
            outputs,
            dropped,
            is_cut,
        })
    }
}

/// First bytes of a frame, and its length.
fn frame_of(asked: &FrameToExplain) -> Result<(Vec<u8>, usize), String> {
    let FrameToExplain { start, frame_bytes, .. } = asked;
    let digit = |&byte: &u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    let bytes = start.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>();
    let mut bytes = bytes.ok_or("the frame is not made of pairs of hexadecimal digits")?;
    let len = match frame_bytes {
        Some(len) if *len > MAX_FRAME => return Err(format!("no frame is longer than {MAX_FRAME} bytes")),
        Some(len) => bytes.len().max(*len as usize),
        None => bytes.len(),
    };
    bytes.truncate(MAX_START);
    Ok((bytes, len))
}

/// Records each step of the path.
struct Recorder<'way> {
    learning: &'way LearningSwitch,
    name: &'way dyn Fn(PortIndex) -> String,
    from: PortIndex,
    /// The ports that can send frames.
    senders: PortMask,
    /// Ports that get copies from mirrors, and no other frames.
    outlets: PortMask,
    steps: Vec<ExplainedStep>,
    outputs: Vec<ExplainedOutput>,
    text_bytes: usize,
    is_cut: bool,
    /// Headers at the last listing: those of the packet, and of its copy in each bucket around this step.
    seen: Vec<Vec<(&'static str, String)>>,
    dropped: Option<DropCause>,
}

impl Recorder<'_> {
    /// Whether there is room for one more step.
    fn has_room(&mut self) -> bool {
        let has_room = self.steps.len() < MAX_STEPS && self.text_bytes < MAX_TEXT;
        self.is_cut |= !has_room;
        has_room
    }

    fn note(&mut self, what: Explained) {
        if self.has_room() {
            let depth = self.seen.len().saturating_sub(1) as u32;
            self.steps.push(ExplainedStep { depth, what });
        }
    }

    fn note_dropped(&mut self, cause: DropCause) {
        self.dropped = Some(cause);
        self.note(Explained::Dropped { cause: cause.name().to_owned() });
    }

    fn port(&self, index: PortIndex) -> ExplainedPort {
        ExplainedPort { number: port_number(index).0, name: (self.name)(index) }
    }

    /// Lists an output, and returns its index.
    fn leave(&mut self, packet: &Packet, ports: PortMask, queue: Option<u32>) -> u32 {
        let output = ExplainedOutput {
            to_controllers: ports.is_empty(),
            ports: ports.iter().map(|port| self.port(port)).collect(),
            queue,
            headers: packet.headers().to_string(),
            start: hex(packet.header_bytes()),
            frame_bytes: packet.bytes() as u64,
        };
        let names = output.ports.iter().map(|port| port.name.len() + 40).sum::<usize>();
        self.text_bytes += output.headers.len() + output.start.len() + names;
        self.outputs.push(output);
        self.outputs.len() as u32 - 1
    }

    fn others(&self) -> PortMask {
        let mut others = self.senders;
        others.remove(self.from);
        self.outlets.iter().for_each(|outlet| others.remove(outlet));
        others
    }

    /// Ports to which the learned addresses send the packet.
    fn by_learned(&mut self, packet: &Packet) -> PortMask {
        let Some(header) = packet.header_bytes().first_chunk() else { return PortMask::default() };
        let header = FrameHeader::from_bytes(header, FrameHeader::NO_LEARN);
        self.note_learned(header, NO_VLAN);
        match self.learning.forward(header, self.from) {
            Outcome::Port(port) if self.outlets.contains(port) => PortMask::default(),
            Outcome::Port(port) => [port].into_iter().collect(),
            Outcome::Flood => self.others(),
            Outcome::Drop(cause) => {
                self.note_dropped(cause);
                PortMask::default()
            }
            Outcome::Ports(_) | Outcome::Copies(_) => PortMask::default(),
        }
    }

    /// Records the decision of a switch whose ports have options, for a frame of these first bytes and this length.
    fn by_options(&mut self, prediction: &Prediction, options: String, (start, bytes): (&[u8], usize)) {
        let looked_up = prediction.looked_up;
        let vlan = looked_up.map(|(_, vlan)| vlan).filter(|&vlan| vlan != NO_VLAN);
        self.note(Explained::Vlan { options, vlan });
        if let Some((header, vlan)) = looked_up {
            self.note_learned(header, vlan);
        }
        let departures = match &prediction.outcome {
            Ok(departures) => departures,
            Err(cause) => return self.note_dropped(*cause),
        };
        for PredictedOutput { ports, replaces, header: new_header } in departures {
            let ports = ports.but(self.outlets);
            let frame = [new_header, start.get(*replaces..).unwrap_or_default()].concat();
            let mut packet = Packet::default();
            packet.load(port_number(self.from), &frame, bytes + new_header.len() - replaces, false);
            let output = (!ports.is_empty()).then(|| self.leave(&packet, ports, None));
            self.note(Explained::Output { to: PortNo::NORMAL.to_string(), output });
        }
    }

    /// Records the switch's knowledge of a frame's addresses in a VLAN.
    fn note_learned(&mut self, header: FrameHeader, vlan: u16) {
        let lookup = |mac| self.learning.table.lookup_in(vlan, mac, self.learning.now());
        let is_static = |mac| self.learning.table.static_port(mac).is_some();
        let (source, other) = match lookup(header.source) {
            _ if header.source.is_multicast() => (TracedSource::NotLearned, None),
            None => (TracedSource::Learned, None),
            Some(port) if port == self.from => (TracedSource::Known, None),
            Some(port) if is_static(header.source) => (TracedSource::Refused, Some(port)),
            Some(port) => (TracedSource::Moved, Some(port)),
        };
        let reason = match lookup(header.destination) {
            _ if header.destination.is_multicast() => TracedReason::Multicast,
            Some(_) => TracedReason::Known,
            None => TracedReason::Unknown,
        };
        let source_port = other.map(|port| (self.name)(port));
        self.note(Explained::Learned { source, source_port, reason });
    }
}

impl PipelineSink for Recorder<'_> {
    fn output(&mut self, packet: &Packet, to: OutputPort, queue: Option<u32>) {
        if !self.has_room() {
            return;
        }
        let (to, ports) = match to {
            OutputPort::Port(port) => {
                let index = port_index(port);
                if index.is_some_and(|index| self.outlets.contains(index)) {
                    let (to, why) = (port.to_string(), "mirror_port".to_owned());
                    return self.note(Explained::NotSent { to, why });
                }
                (port, index.into_iter().collect())
            }
            OutputPort::All => (PortNo::ALL, self.others()),
            OutputPort::Flood => (PortNo::FLOOD, self.others()),
            OutputPort::Normal => (PortNo::NORMAL, self.by_learned(packet)),
        };
        let output = (!ports.is_empty()).then(|| self.leave(packet, ports, queue));
        self.note(Explained::Output { to: to.to_string(), output });
    }

    fn packet_in(&mut self, packet: &Packet, why: ToController) {
        if !self.has_room() {
            return;
        }
        let reason = match why.reason {
            PacketInReason::NoMatch => "no_match",
            PacketInReason::Action => "action",
            PacketInReason::InvalidTtl => "invalid_ttl",
        };
        let output = self.leave(packet, PortMask::default(), None);
        self.note(Explained::Controllers { reason: reason.to_owned(), output });
    }

    fn dropped(&mut self, cause: DropCause) {
        self.note_dropped(cause);
    }

    fn looked_up(&mut self, table: u8, found: Option<&FlowEntry>) {
        if !self.has_room() {
            return;
        }
        let flow = found.map(|flow| ExplainedFlow {
            priority: flow.priority,
            cookie: flow.cookie,
            matching: flow.matching.to_match().to_string(),
            actions: flow.instructions.to_string(),
        });
        self.text_bytes += flow.as_ref().map_or(0, |flow| flow.matching.len() + flow.actions.len());
        self.note(Explained::Table { table, flow });
    }

    fn count(&mut self, _: CounterId, _: usize) {}

    fn measure(&mut self, meter: &MeterEntry, bytes: usize, now_ns: u64) -> Option<usize> {
        let exceeded = meter.predict(bytes, now_ns);
        let exceeded_band = exceeded.map(|band| band as u32);
        self.note(Explained::Meter { meter: meter.config.meter, exceeded_band });
        exceeded
    }

    fn changed(&mut self, packet: &Packet, action: &Action) {
        if !self.has_room() {
            return;
        }
        let now = packet.headers().words();
        let before = self.seen.last().cloned().unwrap_or_default();
        let value = |words: &[(&str, String)], name| {
            words.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
        };
        let gone = before.iter().filter(|(name, _)| value(&now, *name).is_none());
        let names = now.iter().chain(gone).map(|&(name, _)| name);
        let changes: Vec<_> = names
            // Metadata is set by an instruction, not by an action; it is listed with its entry.
            .filter(|name| *name != "metadata")
            .map(|name| HeaderChange {
                field: name.to_owned(),
                before: value(&before, name),
                after: value(&now, name),
            })
            .filter(|change| change.before != change.after)
            .collect();
        self.text_bytes += changes.len() * 64;
        if let Some(last) = self.seen.last_mut() {
            *last = now;
        }
        self.note(Explained::Action { action: action.to_string(), changes });
    }

    fn does_action_set(&mut self) {
        self.note(Explained::ActionSet);
    }

    fn grouped(&mut self, group: u32, chosen: usize) {
        self.note(Explained::Group { group, chosen: chosen as u32 });
    }

    fn enters_bucket(&mut self, packet: &Packet, bucket: usize) -> bool {
        if !self.has_room() {
            return false;
        }
        self.note(Explained::Bucket { bucket: bucket as u32 });
        self.seen.push(packet.headers().words());
        true
    }

    fn leaves_bucket(&mut self) {
        self.seen.pop();
    }

    fn not_sent(&mut self, port: PortNo, why: OutputRefusal) {
        let why = match why {
            OutputRefusal::CameFromThere => "came_from_there",
            OutputRefusal::NoSuchPort => "no_such_port",
            OutputRefusal::Disabled => "disabled",
            OutputRefusal::NoPacketIn => "no_packet_in",
        };
        self.note(Explained::NotSent { to: port.to_string(), why: why.to_owned() });
    }
}
