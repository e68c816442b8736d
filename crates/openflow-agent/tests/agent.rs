//! A switch's side of OpenFlow, message by message, as controllers see it.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use ringroad_flow_tables::control_frame::PacketInHeader;
use ringroad_flow_tables::counters::CounterId;
use ringroad_flow_tables::flow::FlowEntry;
use ringroad_flow_tables::packet::Packet;
use ringroad_flow_tables::pipeline::{OutputPort, PipelineScratch, PipelineSink, ToController};
use ringroad_flow_tables::state::{FlowState, TableLimits, WorkerTables};
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{
    AsyncMasks, ControllerRole, FlowMod, Hello, MeterBand, MeterCommand, MeterFlags, MeterMod,
    MultipartReply, MultipartReplyMessage, MultipartRequest, MultipartRequestMessage, PacketInReason,
    PacketOut, PortConfig, PortFeatures, PortMod, PortStatsRequest, PortStatusReason, RoleMessage,
};
use ringroad_openflow::oxm::Match;
use ringroad_openflow::{ControllerMessage, SwitchMessage, first_message, meter_id};
use ringroad_openflow_agent::agent::SessionId;
use ringroad_openflow_agent::agent::{Agent, FailMode, OpenFlowPort, SwitchIdentity};
use ringroad_openflow_agent::session::SessionPeer;
use ringroad_port::clock::Clock;
use ringroad_port::counters::CounterSnapshot;
use ringroad_port::drop_cause::DropCause;
use ringroad_switch::{LearningSwitch, MacTable, MacTableConfig};

const NS: u64 = 1_000_000_000;

/// An agent with two ports, the tables of a worker, and the workers' clock.
struct AgentSwitch {
    agent: Agent,
    worker: WorkerTables,
    clock: Clock,
}

impl AgentSwitch {
    fn new() -> Self {
        let (state, mut workers) = FlowState::new(2, TableLimits::default());
        let identity =
            SwitchIdentity { switch: "vale0".to_owned(), datapath_id: 7, version: "test".to_owned() };
        let clock = Clock::manual();
        let learning = Arc::new(LearningSwitch::new(MacTable::new(MacTableConfig::new(7)).unwrap()));
        let agent = Agent::new(identity, (state, 1, clock.clone()), learning, FailMode::Secure);
        let mut this = Self { agent, worker: workers.remove(0), clock };
        this.set_port(true);
        this
    }

    fn set_port(&mut self, is_up: bool) {
        let port = OpenFlowPort::new("a".to_owned(), is_up, Vec::new(), CounterSnapshot::default());
        self.agent.set_port(PortNo(1), port);
    }

    /// Connects a controller.
    fn controller(&mut self) -> SessionId {
        let id = self.agent.connect(SessionPeer::Controller);
        self.ask(id, &ControllerMessage::Hello(Hello::ours()));
        id
    }

    /// Sends a request, and returns what the switch has sent.
    fn ask(&mut self, id: SessionId, request: &ControllerMessage) -> Vec<SwitchMessage> {
        self.ask_at(id, request, 0)
    }

    fn ask_at(&mut self, id: SessionId, request: &ControllerMessage, now_ns: u64) -> Vec<SwitchMessage> {
        let mut bytes = Vec::new();
        request.encode(9, &mut bytes).unwrap();
        self.agent.receive(id, &bytes);
        self.agent.go_on(id, now_ns);
        self.heard(id)
    }

    /// Takes what the switch has sent to a controller.
    fn heard(&mut self, id: SessionId) -> Vec<SwitchMessage> {
        let session = self.agent.session(id).unwrap();
        let bytes = session.waiting().to_vec();
        session.sent(bytes.len());
        let (mut rest, mut messages) = (&bytes[..], Vec::new());
        while let Some(message) = first_message(rest).unwrap() {
            messages.push(SwitchMessage::decode(message).unwrap().1);
            rest = &rest[message.len()..];
        }
        messages
    }

    /// Asks for a role, and returns the generation number of the reply.
    fn role(&mut self, id: SessionId, role: ControllerRole, generation: u64) -> Result<u64, ErrorCode> {
        match &self.ask(id, &ControllerMessage::Role(RoleMessage { role, generation }))[..] {
            [SwitchMessage::Role(reply)] => Ok(reply.generation),
            [SwitchMessage::Error(error)] => Err(error.code),
            other => panic!("{other:?}"),
        }
    }
}

fn output(port: PortNo, max_len: u16) -> Action {
    Action::Output { port, max_len }
}

fn flow(meter: Option<u32>, action: Action) -> ControllerMessage {
    let instructions = Instructions { meter, apply: Some(vec![action]), ..Instructions::default() };
    ControllerMessage::FlowMod(FlowMod::add(0, 1, Match::default(), instructions))
}

fn meter(meter: u32, rate: u32, burst: u32) -> ControllerMessage {
    ControllerMessage::MeterMod(MeterMod {
        command: MeterCommand::Add,
        flags: MeterFlags::PKTPS | MeterFlags::BURST,
        meter,
        bands: vec![MeterBand::Drop { rate, burst }],
    })
}

fn packet_out(action: Action) -> ControllerMessage {
    ControllerMessage::PacketOut(PacketOut {
        buffer_id: None,
        in_port: PortNo(1),
        actions: vec![action],
        data: vec![2; 60],
    })
}

#[test]
fn controllers_get_the_whole_packet_because_the_switch_has_no_buffers() {
    let mut switch = AgentSwitch::new();
    let controller = switch.controller();
    let all = AsyncMasks { packet_in: [0b111, 0], port_status: [0, 0], flow_removed: [0, 0] };
    switch.ask(controller, &ControllerMessage::SetAsync(all));
    // The last packet does not fit into a message.
    for (bytes, told) in [(60, 60), (1500, 1500), (65_469, 65_469), (66_000, 65_469)] {
        for reason in [PacketInReason::NoMatch, PacketInReason::Action, PacketInReason::InvalidTtl] {
            let header = PacketInHeader {
                in_port: PortNo(1),
                reason,
                table: 3,
                cookie: 5,
                metadata: u64::MAX,
                tunnel_id: u64::MAX,
            };
            let packet: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            switch.agent.packet_in(&[&header.to_bytes()[..], &packet].concat());
            let heard = switch.heard(controller);
            let [SwitchMessage::PacketIn(message)] = &heard[..] else { panic!("{bytes}: {heard:?}") };
            assert_eq!((message.buffer_id, message.reason), (None, reason));
            assert_eq!(usize::from(message.total_bytes), bytes.min(65_535));
            assert!(message.data == packet[..told], "{} of {bytes} bytes", message.data.len());
        }
    }
    // The length of an entry's action is for buffered packets.
    switch.ask(controller, &flow(None, output(PortNo::CONTROLLER, 20)));
    let heard = switch.ask(controller, &packet_out(output(PortNo::TABLE, 0)));
    let [SwitchMessage::PacketIn(message)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(message.data, [2; 60]);
}

#[test]
fn a_port_that_stays_the_same_is_no_news() {
    let mut switch = AgentSwitch::new();
    let controller = switch.controller();
    let no_forward = PortConfig::NO_FWD;
    let news = [(PortStatusReason::Modify, no_forward)];
    for (config, mask, expected) in [
        (PortConfig::default(), no_forward, &[][..]),
        (no_forward, PortConfig::default(), &[]),
        (no_forward, no_forward, &news),
        (no_forward, no_forward, &[]),
    ] {
        let address = [2, 0, 0, 7, 0, 1];
        let request = PortMod { port: PortNo(1), address, config, mask, advertise: PortFeatures::default() };
        let heard = switch.ask(controller, &ControllerMessage::PortMod(request));
        let heard = heard.into_iter().map(|message| match message {
            SwitchMessage::PortStatus(news) => (news.reason, news.port.config),
            other => panic!("{other:?}"),
        });
        assert_eq!(heard.collect::<Vec<_>>(), expected, "{config:?} {mask:?}");
    }
    // The owner tells the port again, perhaps with other queues.
    switch.set_port(true);
    assert_eq!(switch.heard(controller), []);
    switch.set_port(false);
    assert!(matches!(&switch.heard(controller)[..], [SwitchMessage::PortStatus(_)]));
}

#[test]
fn each_drop_of_a_port_is_in_one_of_its_statistics() {
    let mut switch = AgentSwitch::new();
    let controller = switch.controller();
    let mut past = CounterSnapshot::default();
    for cause in DropCause::ALL {
        past.dropped[cause as usize] = 1 << cause as u32;
    }
    let sum = |causes: &[DropCause]| causes.iter().map(|&cause| 1u64 << cause as u32).sum::<u64>();
    switch.agent.set_port(PortNo(2), OpenFlowPort::new("b".to_owned(), true, Vec::new(), past));
    let request = MultipartRequest::Ports(PortStatsRequest { port: PortNo(2) });
    let request = ControllerMessage::Multipart(MultipartRequestMessage { more: false, request });
    let heard = switch.ask(controller, &request);
    let stats = heard.iter().find_map(|message| match message {
        SwitchMessage::Multipart(MultipartReplyMessage { reply: MultipartReply::Ports(stats), .. }) => {
            stats.first()
        }
        _ => None,
    });
    let stats = stats.unwrap();
    assert_eq!(stats.tx_errors, sum(&[DropCause::WriteFailed, DropCause::RingStopped]));
    let overruns = sum(&[DropCause::KernelDropped]);
    let malformed = sum(&[DropCause::TooShort, DropCause::Incomplete, DropCause::BadOffload]);
    assert_eq!((stats.rx_errors, stats.rx_overruns), (malformed + overruns, overruns));
    let at_destination = [
        DropCause::NoSpace,
        DropCause::NotBound,
        DropCause::TooLong,
        DropCause::LinkDown,
        DropCause::Refused,
        DropCause::Impaired,
        DropCause::HoldFull,
    ];
    assert_eq!(stats.tx_dropped, sum(&at_destination));
    let all = [stats.rx_dropped, stats.rx_errors, stats.tx_dropped, stats.tx_errors];
    assert_eq!(all.iter().sum::<u64>(), sum(&DropCause::ALL));
    assert_eq!([stats.rx_crc_errors, stats.rx_frame_errors, stats.collisions], [u64::MAX; 3], "not counted");
}

#[test]
fn generation_numbers_end_with_the_connections_that_used_them() {
    let mut switch = AgentSwitch::new();
    let (one, other, third) = (switch.controller(), switch.controller(), switch.controller());
    assert_eq!(switch.role(third, ControllerRole::NoChange, 99), Ok(u64::MAX), "none yet");
    assert_eq!(switch.role(one, ControllerRole::Master, 5), Ok(5));
    assert_eq!(switch.role(other, ControllerRole::Slave, 5), Ok(5));
    assert_eq!(switch.role(other, ControllerRole::Master, 4), Err(ErrorCode::ROLE_STALE));
    // A controller that becomes equal has used the number, too.
    assert_eq!(switch.role(other, ControllerRole::Equal, 0), Ok(5));
    switch.agent.disconnect(one);
    assert_eq!(switch.role(third, ControllerRole::Slave, 4), Err(ErrorCode::ROLE_STALE));
    switch.agent.disconnect(other);
    assert_eq!(switch.role(third, ControllerRole::NoChange, 0), Ok(u64::MAX));
    assert_eq!(switch.role(third, ControllerRole::Master, 1), Ok(1));
}

#[test]
fn packets_of_controllers_that_come_back_are_metered_like_others() {
    let mut switch = AgentSwitch::new();
    let controller = switch.controller();
    assert_eq!(switch.ask(controller, &meter(meter_id::CONTROLLER, 1, 2)), []);
    let back = packet_out(output(PortNo::CONTROLLER, 0));
    let heard: usize = (0..5).map(|_| switch.ask(controller, &back).len()).sum();
    assert_eq!((heard, switch.worker.tables.enter().unwrap().metered_packet_ins()), (2, 3));
}

/// Number of outputs of a packet.
#[derive(Default)]
struct Outputs(usize);

impl PipelineSink for Outputs {
    fn output(&mut self, _: &Packet, _: OutputPort, _: Option<u32>) {
        self.0 += 1;
    }
    fn packet_in(&mut self, _: &Packet, _: ToController) {}
    fn dropped(&mut self, _: DropCause) {}
    fn looked_up(&mut self, _: u8, _: Option<&FlowEntry>) {}
    fn count(&mut self, _: CounterId, _: usize) {}
}

#[test]
fn meters_measure_packets_of_controllers_by_the_time_of_the_workers() {
    let mut switch = AgentSwitch::new();
    let controller = switch.controller();
    switch.ask(controller, &meter(1, 10, 1));
    switch.ask(controller, &flow(Some(1), output(PortNo::IN_PORT, 0)));
    // The agent's own time may be an hour ahead: it continues through an upgrade, and that of the workers begins anew.
    switch.ask_at(controller, &packet_out(output(PortNo::TABLE, 0)), 3600 * NS);
    assert_eq!(switch.agent.take_outgoing().len(), 1);
    switch.clock.advance(NS);
    let mut packet = Packet::default();
    packet.load(PortNo(1), &[2; 60], 60, false);
    let (mut scratch, mut outputs) = (PipelineScratch::default(), Outputs::default());
    let tables = switch.worker.tables.enter().unwrap();
    tables.receive(&mut packet, switch.clock.now_ns(), &mut scratch, &mut outputs);
    assert_eq!(outputs.0, 1);
}
