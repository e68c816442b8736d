//! Tests of tables, groups and meters as controllers change them. For lookups, the oracle is a linear search.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringroad_flow_tables::counters::CounterId;
use ringroad_flow_tables::flow::FlowEntry;
use ringroad_flow_tables::packet::Packet;
use ringroad_flow_tables::pipeline::{OutputPort, PipelineScratch, PipelineSink, ToController};
use ringroad_flow_tables::state::{FlowState, TableLimits};
use ringroad_flow_tables::tables::TablePort;
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{
    Bucket, FlowCommand, FlowFlags, FlowMod, FlowRemovedReason, FlowStats, FlowStatsRequest, GroupCommand,
    GroupKind, GroupMod, MeterBand, MeterCommand, MeterFlags, MeterMod, PacketInReason, PortConfig,
};
use ringroad_openflow::oxm::{FieldMatch, Match, OxmField};
use ringroad_openflow::{group_id, meter_id, table_id};
use ringroad_port::drop_cause::DropCause;

const NS: u64 = 1_000_000_000;

fn output(port: u32) -> Action {
    Action::Output { port: PortNo(port), max_len: 0 }
}

fn apply(actions: Vec<Action>) -> Instructions {
    Instructions { apply: Some(actions), ..Instructions::default() }
}

fn exact(field: OxmField, value: u128) -> FieldMatch {
    FieldMatch { field, value, mask: field.all_ones() }
}

fn add(table: u8, priority: u16, fields: Vec<FieldMatch>, instructions: Instructions) -> FlowMod {
    let added = FlowMod::add(table, priority, Match::new(fields).unwrap(), instructions);
    FlowMod { flags: FlowFlags::SEND_FLOW_REM, ..added }
}

fn delete(table: u8, fields: Vec<FieldMatch>) -> FlowMod {
    FlowMod { command: FlowCommand::Delete, ..add(table, 0, fields, Instructions::default()) }
}

/// Makes a switch with three ports.
fn state() -> FlowState {
    let (mut state, _) = FlowState::new(1, TableLimits::default());
    for port in 1..=3 {
        state.set_port(PortNo(port), Some(TablePort { config: PortConfig::default(), is_live: true }));
    }
    state
}

/// Events of a packet's path.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    outputs: Vec<(OutputPort, Vec<u8>)>,
    packet_ins: Vec<(PacketInReason, u8)>,
    dropped: Vec<DropCause>,
    tables: Vec<(u8, Option<u16>)>,
    counted: usize,
}

impl PipelineSink for Seen {
    fn output(&mut self, packet: &Packet, to: OutputPort, _: Option<u32>) {
        self.outputs.push((to, packet.changed_headers().map_or(Vec::new(), |(_, head)| head.to_vec())));
    }
    fn packet_in(&mut self, _: &Packet, why: ToController) {
        self.packet_ins.push((why.reason, why.table));
    }
    fn dropped(&mut self, why: DropCause) {
        self.dropped.push(why);
    }
    fn looked_up(&mut self, table: u8, found: Option<&FlowEntry>) {
        self.tables.push((table, found.map(|flow| flow.priority)));
    }
    fn count(&mut self, _: CounterId, _: usize) {
        self.counted += 1;
    }
}

/// Makes an Ethernet frame of this type with a payload.
fn frame(to: u8, ethertype: u16) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 9][..], &ethertype.to_be_bytes(), &[0; 46]].concat()
}

/// Makes an IPv4 packet to an address.
fn ip(last: u8, ttl: u8) -> Vec<u8> {
    let mut frame = frame(1, 0x0800);
    frame[14] = 0x45;
    frame[22] = ttl;
    frame[23] = 200;
    frame[30..34].copy_from_slice(&[10, 0, 0, last]);
    frame
}

fn send(state: &FlowState, in_port: u32, frame: &[u8], now_ns: u64) -> Seen {
    let mut packet = Packet::default();
    packet.load(PortNo(in_port), frame, frame.len(), false);
    let mut seen = Seen::default();
    state.tables().receive(&mut packet, now_ns, &mut PipelineScratch::default(), &mut seen);
    seen
}

fn ports(seen: &Seen) -> Vec<u32> {
    let port = |(target, _): &(OutputPort, Vec<u8>)| match target {
        OutputPort::Port(port) => port.0,
        other => panic!("{other:?}"),
    };
    seen.outputs.iter().map(port).collect()
}

#[test]
fn without_a_flow_a_packet_is_dropped() {
    assert_eq!(send(&state(), 1, &frame(1, 0x0800), 0).dropped, [DropCause::NoFlow]);
}

#[test]
fn the_highest_priority_decides_and_the_next_table_sees_the_changed_packet() {
    let mut state = state();
    let set = Action::SetField(ringroad_openflow::oxm::FieldValue {
        field: OxmField::EthDst,
        value: 0x0200_0000_0007,
    });
    let first = Instructions { goto: Some(3), metadata: Some((5, 7)), ..apply(vec![set]) };
    state.flow_mod(&add(0, 1, vec![], apply(vec![output(2)])), 0).unwrap();
    state.flow_mod(&add(0, 9, vec![exact(OxmField::InPort, 1)], first), 0).unwrap();
    let changed = vec![exact(OxmField::Metadata, 5), exact(OxmField::EthDst, 0x0200_0000_0007)];
    state.flow_mod(&add(3, 1, changed, apply(vec![output(3)])), 0).unwrap();
    let seen = send(&state, 1, &frame(1, 0x0800), 0);
    assert_eq!((ports(&seen), seen.tables), (vec![3], vec![(0, Some(9)), (3, Some(1))]));
    assert_eq!(ports(&send(&state, 2, &frame(1, 0x0800), 0)), [] as [u32; 0], "back to where it came from");
    assert_eq!(ports(&send(&state, 3, &frame(1, 0x0800), 0)), [2]);
}

#[test]
fn an_action_set_is_done_last_and_in_its_own_order() {
    let mut state = state();
    let write = Instructions {
        write: Some(vec![output(2), Action::PushVlan(0x8100)]),
        goto: Some(1),
        ..Instructions::default()
    };
    state.flow_mod(&add(0, 1, vec![], write), 0).unwrap();
    state
        .flow_mod(
            &add(1, 1, vec![], Instructions { write: Some(vec![output(3)]), ..Instructions::default() }),
            0,
        )
        .unwrap();
    let seen = send(&state, 1, &frame(1, 0x0800), 0);
    assert_eq!(ports(&seen), [3], "one output of a set: the last one written");
    assert_eq!(seen.outputs[0].1[12..14], [0x81, 0x00], "the tag is pushed before");
    let clear = Instructions { clear: true, ..Instructions::default() };
    state.flow_mod(&FlowMod { command: FlowCommand::Modify, ..add(1, 0, vec![], clear) }, 0).unwrap();
    assert_eq!(send(&state, 1, &frame(1, 0x0800), 0).dropped, [DropCause::ByFlow]);
}

#[test]
fn the_controller_hears_why_a_packet_comes() {
    let mut state = state();
    let to_controller = || vec![Action::Output { port: PortNo::CONTROLLER, max_len: 0xffff }];
    state.flow_mod(&add(0, 0, vec![], apply(to_controller())), 0).unwrap();
    state.flow_mod(&add(0, 5, vec![exact(OxmField::InPort, 2)], apply(to_controller())), 0).unwrap();
    let ttl = apply(vec![Action::DecNwTtl, output(2)]);
    state.flow_mod(&add(0, 6, vec![exact(OxmField::EthType, 0x0800)], ttl), 0).unwrap();
    assert_eq!(send(&state, 1, &frame(1, 0x88b5), 0).packet_ins, [(PacketInReason::NoMatch, 0)]);
    assert_eq!(send(&state, 2, &frame(1, 0x88b5), 0).packet_ins, [(PacketInReason::Action, 0)]);
    let expired = send(&state, 1, &ip(1, 1), 0);
    assert_eq!(
        (expired.packet_ins, expired.dropped),
        (vec![(PacketInReason::InvalidTtl, 0)], vec![DropCause::TtlExpired])
    );
    let config = PortConfig::NO_PACKET_IN;
    state.set_port(PortNo(1), Some(TablePort { config, is_live: true }));
    assert_eq!(send(&state, 1, &frame(1, 0x88b5), 0).packet_ins, []);
}

#[test]
fn ports_that_controllers_disable_neither_receive_nor_send() {
    let mut state = state();
    state.flow_mod(&add(0, 0, vec![], apply(vec![output(2), output(3)])), 0).unwrap();
    state.set_port(PortNo(2), Some(TablePort { config: PortConfig::NO_FWD, is_live: true }));
    assert_eq!(ports(&send(&state, 1, &frame(1, 1), 0)), [3]);
    state.set_port(PortNo(1), Some(TablePort { config: PortConfig::NO_RECV, is_live: true }));
    assert_eq!(send(&state, 1, &frame(1, 1), 0).dropped, [DropCause::PortDisabled]);
}

fn bucket(weight: u16, watch_port: PortNo, actions: Vec<Action>) -> Bucket {
    Bucket { weight, watch_port, watch_group: group_id::ANY, actions }
}

fn group(command: GroupCommand, kind: GroupKind, number: u32, buckets: Vec<Bucket>) -> GroupMod {
    GroupMod { command, kind, group: number, buckets }
}

#[test]
fn groups_send_to_all_to_one_by_weight_and_to_the_first_that_lives() {
    let mut state = state();
    let push = vec![Action::PushVlan(0x8100), output(2)];
    let all = vec![bucket(0, PortNo::ANY, push), bucket(0, PortNo::ANY, vec![output(3)])];
    state.group_mod(&group(GroupCommand::Add, GroupKind::All, 1, all), 0).unwrap();
    let weights = vec![bucket(1, PortNo::ANY, vec![output(2)]), bucket(3, PortNo::ANY, vec![output(3)])];
    state.group_mod(&group(GroupCommand::Add, GroupKind::Select, 2, weights), 0).unwrap();
    let failover = vec![bucket(0, PortNo(2), vec![output(2)]), bucket(0, PortNo(3), vec![output(3)])];
    state.group_mod(&group(GroupCommand::Add, GroupKind::FastFailover, 3, failover), 0).unwrap();
    for number in 1..=3 {
        let matching = vec![exact(OxmField::EthType, 0x1000 + u128::from(number))];
        state.flow_mod(&add(0, 1, matching, apply(vec![Action::Group(number)])), 0).unwrap();
    }
    let seen = send(&state, 1, &frame(1, 0x1001), 0);
    assert_eq!(ports(&seen), [2, 3]);
    assert!(seen.outputs[1].1.is_empty(), "the other bucket's tag is not in this one");
    let chosen: Vec<u32> = (0..=255).flat_map(|to| ports(&send(&state, 1, &frame(to, 0x1002), 0))).collect();
    assert_eq!(chosen.len(), 256);
    let third = chosen.iter().filter(|&&port| port == 3).count();
    assert!((160..224).contains(&third), "three of four flows: {third}");
    assert_eq!(ports(&send(&state, 1, &frame(1, 0x1003), 0)), [2]);
    state.set_port(PortNo(2), Some(TablePort { config: PortConfig::default(), is_live: false }));
    assert_eq!(ports(&send(&state, 1, &frame(1, 0x1003), 0)), [3]);
    state.set_port(PortNo(3), None);
    assert_eq!(send(&state, 1, &frame(1, 0x1003), 0).dropped, [DropCause::ByFlow]);
}

#[test]
fn arp_packets_about_other_addresses_are_other_flows_for_a_group() {
    let mut state = state();
    let buckets = [2, 3].map(|port| bucket(1, PortNo::ANY, vec![output(port)])).to_vec();
    state.group_mod(&group(GroupCommand::Add, GroupKind::Select, 1, buckets), 0).unwrap();
    state.flow_mod(&add(0, 1, vec![], apply(vec![Action::Group(1)])), 0).unwrap();
    let mut arp = frame(0xff, 0x0806);
    arp[14..20].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
    // Bytes 28 to 31 are the sender's address, 38 to 41 the requested one.
    for index in [31, 41] {
        let chosen: Vec<u32> = (0..=255)
            .flat_map(|last| {
                arp[index] = last;
                ports(&send(&state, 1, &arp, 0))
            })
            .collect();
        let half = chosen.iter().filter(|&&port| port == 3).count();
        assert!((96..160).contains(&half), "half of the packets: {half}");
    }
}

#[test]
fn a_group_is_refused_that_leads_to_itself_and_takes_its_flows_along() {
    let mut state = state();
    let leads_to = |number| vec![bucket(0, PortNo::ANY, vec![Action::Group(number)])];
    let add_group = |number, buckets| group(GroupCommand::Add, GroupKind::Indirect, number, buckets);
    assert_eq!(state.group_mod(&add_group(1, leads_to(1)), 0), Err(ErrorCode::GROUP_LOOP));
    state.group_mod(&add_group(1, vec![bucket(0, PortNo::ANY, vec![output(2)])]), 0).unwrap();
    state.group_mod(&add_group(2, leads_to(1)), 0).unwrap();
    let back = group(GroupCommand::Modify, GroupKind::Indirect, 1, leads_to(2));
    assert_eq!(state.group_mod(&back, 0), Err(ErrorCode::GROUP_LOOP));
    assert_eq!(state.group_mod(&add_group(2, leads_to(1)), 0), Err(ErrorCode::GROUP_EXISTS));
    let remove = |number| group(GroupCommand::Delete, GroupKind::All, number, vec![]);
    assert_eq!(state.group_mod(&remove(1), 0), Err(ErrorCode::GROUP_CHAINED));
    state.flow_mod(&add(7, 1, vec![], apply(vec![Action::Group(2)])), 0).unwrap();
    assert_eq!(
        ports(&send(
            &{
                state
                    .flow_mod(
                        &add(0, 1, vec![], Instructions { goto: Some(7), ..Instructions::default() }),
                        0,
                    )
                    .unwrap();
                state
            },
            1,
            &frame(1, 1),
            0
        )),
        [2]
    );
}

#[test]
fn groups_that_multiply_each_other_cost_no_more_than_one_packet_may() {
    let mut state = state();
    let last = group(GroupCommand::Add, GroupKind::All, 0, vec![bucket(0, PortNo::ANY, vec![output(2)])]);
    state.group_mod(&last, 0).unwrap();
    // Twelve levels of ten buckets would multiply a packet to ten to the twelfth copies.
    let mut watched = bucket(0, PortNo(9), vec![output(2)]);
    for level in 1..=12 {
        let next = vec![bucket(0, PortNo::ANY, vec![Action::Group(level - 1)]); 10];
        state.group_mod(&group(GroupCommand::Add, GroupKind::All, level, next), 0).unwrap();
        // The watched groups multiply the liveness checks in the same way.
        let next = vec![watched.clone(); 10];
        state.group_mod(&group(GroupCommand::Add, GroupKind::FastFailover, 100 + level, next), 0).unwrap();
        watched = Bucket { watch_group: 100 + level, ..bucket(0, PortNo::ANY, vec![output(2)]) };
    }
    let both = apply(vec![Action::Group(112), Action::Group(12), output(3)]);
    state.flow_mod(&add(0, 1, vec![], both), 0).unwrap();
    let seen = send(&state, 1, &frame(1, 1), 0);
    let left = ports(&seen);
    let (last, by_groups) = left.split_last().unwrap();
    assert!((1..2048).contains(&by_groups.len()) && by_groups.iter().all(|&port| port == 2), "{by_groups:?}");
    assert_eq!(*last, 3);
    // A depth of seventeen levels is refused.
    let chain = |level| vec![bucket(0, PortNo::ANY, vec![Action::Group(level - 1)])];
    for level in 13..=16 {
        state.group_mod(&group(GroupCommand::Add, GroupKind::Indirect, level, chain(level)), 0).unwrap();
    }
    let too_deep = group(GroupCommand::Add, GroupKind::Indirect, 17, chain(17));
    assert_eq!(state.group_mod(&too_deep, 0), Err(ErrorCode::GROUP_LOOP));
    let too_many = apply(vec![output(2); 2049]);
    assert_eq!(state.flow_mod(&add(0, 2, vec![], too_many), 0), Err(ErrorCode::ACTION_TOO_MANY));
}

#[test]
fn a_group_lives_by_any_bucket_of_any_group_that_it_watches() {
    let mut state = state();
    let add_group = |state: &mut FlowState, command, number, buckets| {
        state.group_mod(&group(command, GroupKind::FastFailover, number, buckets), 0).unwrap();
    };
    let watching =
        |watched, out| Bucket { watch_group: watched, ..bucket(0, PortNo::ANY, vec![output(out)]) };
    // Only the last of a thousand buckets is live. It is also the last one of each group above.
    let dead = bucket(0, PortNo(9), vec![output(3)]);
    let last = bucket(0, PortNo(2), vec![output(3)]);
    add_group(&mut state, GroupCommand::Add, 1, [vec![dead.clone(); 999], vec![last]].concat());
    for number in 2..=5 {
        let buckets = [vec![dead.clone(); 999], vec![watching(number - 1, 3)]].concat();
        add_group(&mut state, GroupCommand::Add, number, buckets);
    }
    add_group(&mut state, GroupCommand::Add, 6, vec![watching(5, 2), bucket(0, PortNo(3), vec![output(3)])]);
    state.flow_mod(&add(0, 1, vec![], apply(vec![Action::Group(6)])), 0).unwrap();
    assert_eq!(ports(&send(&state, 1, &frame(1, 1), 0)), [2]);
    // Liveness follows the port, a group between, and a bucket of that group.
    let port = |is_live| Some(TablePort { config: PortConfig::default(), is_live });
    for (is_live, left) in [(false, 3), (true, 2)] {
        state.set_port(PortNo(2), port(is_live));
        assert_eq!(ports(&send(&state, 1, &frame(1, 1), 0)), [left]);
    }
    for (buckets, left) in [(vec![dead; 2], 3), (vec![watching(1, 3)], 2)] {
        add_group(&mut state, GroupCommand::Modify, 3, buckets);
        assert_eq!(ports(&send(&state, 1, &frame(1, 1), 0)), [left]);
    }
    state.group_mod(&group(GroupCommand::Delete, GroupKind::FastFailover, 1, vec![]), 0).unwrap();
    assert_eq!(ports(&send(&state, 1, &frame(1, 1), 0)), [3]);
}

#[test]
fn the_end_of_a_group_or_a_meter_ends_the_flows_that_use_it() {
    let mut state = state();
    let buckets = vec![bucket(0, PortNo::ANY, vec![output(2)])];
    state.group_mod(&group(GroupCommand::Add, GroupKind::All, 5, buckets), 0).unwrap();
    let meter = |command| MeterMod {
        command,
        flags: MeterFlags::PKTPS,
        meter: 6,
        bands: vec![MeterBand::Drop { rate: 1, burst: 1 }],
    };
    assert_eq!(
        state.flow_mod(&add(0, 2, vec![], Instructions { meter: Some(6), ..Instructions::default() }), 0),
        Err(ErrorCode::METER_UNKNOWN)
    );
    state.meter_mod(&meter(MeterCommand::Add), 0).unwrap();
    state.flow_mod(&add(0, 1, vec![], apply(vec![Action::Group(5)])), 0).unwrap();
    state
        .flow_mod(
            &add(
                0,
                2,
                vec![exact(OxmField::InPort, 1)],
                Instructions { meter: Some(6), ..apply(vec![output(2)]) },
            ),
            0,
        )
        .unwrap();
    let gone =
        state.group_mod(&group(GroupCommand::Delete, GroupKind::All, group_id::ALL, vec![]), NS).unwrap();
    assert_eq!(
        gone.iter().map(|flow| (flow.priority, flow.reason)).collect::<Vec<_>>(),
        [(1, FlowRemovedReason::GroupDelete)]
    );
    let all = MeterMod { meter: meter_id::ALL, ..meter(MeterCommand::Delete) };
    assert_eq!(state.meter_mod(&all, NS).unwrap().len(), 1);
    assert_eq!(state.flows(), 0);
}

#[test]
fn a_meter_drops_what_is_above_its_rate() {
    let mut state = state();
    let bands = vec![MeterBand::Drop { rate: 10, burst: 1 }];
    let flags = MeterFlags::PKTPS | MeterFlags::BURST;
    state.meter_mod(&MeterMod { command: MeterCommand::Add, flags, meter: 1, bands }, 0).unwrap();
    state.flow_mod(&add(0, 1, vec![], Instructions { meter: Some(1), ..apply(vec![output(2)]) }), 0).unwrap();
    let passed: usize =
        (0..100u64).map(|packet| send(&state, 1, &frame(1, 1), packet * NS / 100).outputs.len()).sum();
    assert!((9..=12).contains(&passed), "{passed}");
}

#[test]
fn virtual_meters_limit_the_packets_to_the_controllers_alone() {
    for number in meter_id::VIRTUAL {
        let mut state = state();
        let meter = |command| MeterMod {
            command,
            flags: MeterFlags::PKTPS | MeterFlags::BURST,
            meter: number,
            bands: vec![MeterBand::Drop { rate: 10, burst: 2 }],
        };
        state.meter_mod(&meter(MeterCommand::Add), 0).unwrap();
        let to_controller = Action::Output { port: PortNo::CONTROLLER, max_len: 0xffff };
        state.flow_mod(&add(0, 1, vec![], apply(vec![to_controller, output(2)])), 0).unwrap();
        let only_there = vec![exact(OxmField::InPort, 3)];
        state.flow_mod(&add(0, 2, only_there, apply(vec![to_controller])), 0).unwrap();
        let seen: Vec<Seen> = (0..5).map(|_| send(&state, 1, &frame(1, 1), 0)).collect();
        assert_eq!(seen.iter().map(|seen| seen.packet_ins.len()).sum::<usize>(), 2);
        assert!(seen.iter().all(|seen| ports(seen) == [2]), "the frame itself is not metered");
        assert_eq!(send(&state, 3, &frame(1, 1), 0).dropped, [DropCause::Metered]);
        // A second of the rate.
        let later = (0..20).map(|_| send(&state, 3, &frame(1, 1), NS).packet_ins.len());
        assert_eq!(later.sum::<usize>(), 2, "the burst limits what a pause leaves");
        let unknown = Instructions { meter: Some(number), ..apply(vec![output(2)]) };
        assert_eq!(state.flow_mod(&add(0, 3, vec![], unknown), 0), Err(ErrorCode::METER_INVALID));
        assert_eq!(state.meter_configs(meter_id::ALL).unwrap()[0].meter, number);
        state.meter_mod(&meter(MeterCommand::Delete), 0).unwrap();
        assert_eq!(send(&state, 3, &frame(1, 1), NS).packet_ins.len(), 1);
    }
}

#[test]
fn a_virtual_meter_remarks_the_copy_for_the_controllers_alone() {
    let mut state = state();
    let bands = vec![MeterBand::DscpRemark { rate: 0, burst: 0, levels: 1 }];
    let flags = MeterFlags::PKTPS;
    let meter = meter_id::CONTROLLER;
    state.meter_mod(&MeterMod { command: MeterCommand::Add, flags, meter, bands }, 0).unwrap();
    let to_controller = Action::Output { port: PortNo::CONTROLLER, max_len: 0xffff };
    state.flow_mod(&add(0, 1, vec![], apply(vec![to_controller, output(2)])), 0).unwrap();
    // Assured forwarding 11.
    let mut packet = ip(1, 9);
    packet[15] = 10 << 2;
    let seen = send(&state, 1, &packet, 0);
    assert_eq!(seen.packet_ins.len(), 1);
    assert_eq!(seen.outputs, [(OutputPort::Port(PortNo(2)), Vec::new())], "unchanged");
}

#[test]
fn a_meter_that_is_not_there_is_deleted_without_an_error() {
    let delete = |meter| MeterMod {
        command: MeterCommand::Delete,
        flags: MeterFlags::default(),
        meter,
        bands: Vec::new(),
    };
    for meter in [1, meter_id::MAX, meter_id::CONTROLLER, meter_id::SLOWPATH, meter_id::ALL] {
        assert_eq!(state().meter_mod(&delete(meter), 0), Ok(Vec::new()), "{meter}");
    }
}

#[test]
fn only_the_buckets_of_select_groups_have_weights() {
    for (kind, is_valid) in [
        (GroupKind::Select, true),
        (GroupKind::All, false),
        (GroupKind::Indirect, false),
        (GroupKind::FastFailover, false),
    ] {
        for command in [GroupCommand::Add, GroupCommand::Modify] {
            let mut state = state();
            if command == GroupCommand::Modify {
                let unweighted = vec![bucket(0, PortNo(1), vec![output(2)])];
                state.group_mod(&group(GroupCommand::Add, kind, 5, unweighted), 0).unwrap();
            }
            let weighted = group(command, kind, 5, vec![bucket(3, PortNo(1), vec![output(2)])]);
            let expected = if is_valid { Ok(Vec::new()) } else { Err(ErrorCode::GROUP_INVALID) };
            assert_eq!(state.group_mod(&weighted, 0), expected, "{kind:?} {command:?}");
        }
    }
}

#[test]
fn entries_end_after_their_time() {
    let mut state = state();
    let timed = |priority, idle_timeout_s, hard_timeout_s| FlowMod {
        idle_timeout_s,
        hard_timeout_s,
        ..add(0, priority, vec![], Instructions::default())
    };
    state.flow_mod(&timed(1, 2, 0), 0).unwrap();
    state.flow_mod(&timed(2, 0, 3), 0).unwrap();
    assert_eq!(state.expire(NS), []);
    let idle = state.expire(2 * NS);
    assert_eq!(
        idle.iter().map(|flow| (flow.priority, flow.reason)).collect::<Vec<_>>(),
        [(1, FlowRemovedReason::IdleTimeout)]
    );
    let over = state.expire(3 * NS);
    assert_eq!(
        over.iter().map(|flow| (flow.priority, flow.reason)).collect::<Vec<_>>(),
        [(2, FlowRemovedReason::HardTimeout)]
    );
    assert_eq!(over[0].duration_s, 3);
    assert_eq!(state.flows(), 0);
}

#[test]
fn deletes_choose_by_match_cookie_port_and_group() {
    let mut state = state();
    let fill = |state: &mut FlowState| {
        for (priority, cookie, port) in [(1, 1, 2), (2, 2, 2), (3, 3, 3)] {
            let fields = vec![exact(OxmField::InPort, priority.into()), exact(OxmField::EthType, 0x0800)];
            state
                .flow_mod(&FlowMod { cookie, ..add(0, priority, fields, apply(vec![output(port)])) }, 0)
                .unwrap();
        }
    };
    let cases = [
        (delete(0, vec![exact(OxmField::EthType, 0x0800)]), 3),
        (delete(0, vec![exact(OxmField::EthType, 0x0806)]), 0),
        (delete(1, vec![]), 0),
        (FlowMod { table: table_id::ALL, ..delete(0, vec![]) }, 3),
        (FlowMod { cookie: 2, cookie_mask: 3, ..delete(0, vec![]) }, 1),
        (FlowMod { out_port: PortNo(2), ..delete(0, vec![]) }, 2),
        (FlowMod { out_group: 1, ..delete(0, vec![]) }, 0),
        (FlowMod { command: FlowCommand::DeleteStrict, ..delete(0, vec![]) }, 0),
    ];
    for (request, expected) in cases {
        fill(&mut state);
        assert_eq!(state.flow_mod(&request, 0).unwrap().len(), expected, "{request:?}");
        state.clear();
    }
}

#[test]
fn an_added_entry_replaces_an_equal_one_and_overlap_is_refused_if_requested() {
    let mut state = state();
    state.flow_mod(&add(0, 5, vec![exact(OxmField::InPort, 1)], apply(vec![output(2)])), 0).unwrap();
    state.flow_mod(&add(0, 5, vec![exact(OxmField::InPort, 1)], apply(vec![output(3)])), 0).unwrap();
    assert_eq!((state.flows(), ports(&send(&state, 1, &frame(1, 1), 0))), (1, vec![3]));
    let overlapping = |value| FlowMod {
        flags: FlowFlags::CHECK_OVERLAP,
        ..add(
            0,
            5,
            vec![exact(OxmField::InPort, value), exact(OxmField::EthType, 0x0800)],
            Instructions::default(),
        )
    };
    assert_eq!(state.flow_mod(&overlapping(1), 0), Err(ErrorCode::FLOW_OVERLAP));
    assert_eq!(state.flow_mod(&overlapping(2), 0), Ok(vec![]));
}

#[test]
fn what_cannot_be_is_refused_with_its_code() {
    let (mut state, _) = FlowState::new(1, TableLimits { flows: 1, ..TableLimits::default() });
    let set_port = Action::SetField(ringroad_openflow::oxm::FieldValue { field: OxmField::TcpDst, value: 1 });
    let goto = |next| Instructions { goto: Some(next), ..Instructions::default() };
    let cases = [
        (add(254, 1, vec![], Instructions::default()), ErrorCode::FLOW_BAD_TABLE_ID),
        (add(table_id::ALL, 1, vec![], Instructions::default()), ErrorCode::FLOW_BAD_TABLE_ID),
        (add(3, 1, vec![], goto(3)), ErrorCode::INSTRUCTION_BAD_TABLE_ID),
        (add(3, 1, vec![], goto(254)), ErrorCode::INSTRUCTION_BAD_TABLE_ID),
        (add(0, 1, vec![], apply(vec![Action::Group(1)])), ErrorCode::ACTION_BAD_OUT_GROUP),
        (add(0, 1, vec![], apply(vec![set_port])), ErrorCode::ACTION_MATCH_INCONSISTENT),
        (add(0, 1, vec![], apply(vec![output(PortNo::TABLE.0)])), ErrorCode::ACTION_BAD_OUT_PORT),
        (
            FlowMod { buffer_id: Some(1), ..add(0, 1, vec![], Instructions::default()) },
            ErrorCode::REQUEST_BUFFER_UNKNOWN,
        ),
    ];
    for (request, code) in cases {
        assert_eq!(state.flow_mod(&request, 0), Err(code), "{request:?}");
    }
    state.flow_mod(&add(0, 1, vec![], Instructions::default()), 0).unwrap();
    assert_eq!(
        state.flow_mod(&add(0, 2, vec![], Instructions::default()), 0),
        Err(ErrorCode::FLOW_TABLE_FULL)
    );
}

/// Makes fields of small tables and packets, so that many entries match.
fn fields() -> impl Strategy<Value = Vec<FieldMatch>> {
    let field = prop_oneof![
        (1..4u128).prop_map(|port| exact(OxmField::InPort, port)),
        (0..4u128, 0..4u128).prop_map(|(value, mask)| FieldMatch {
            field: OxmField::EthDst,
            value: value & mask,
            mask
        }),
        (0..4u128, 0..3u32).prop_map(|(value, short)| {
            let mask = 0xffff_ffff & (u128::from(u32::MAX) << short);
            FieldMatch { field: OxmField::Ipv4Dst, value: (0x0a00_0000 + value) & mask, mask }
        }),
    ];
    proptest::collection::vec(field, 0..4).prop_map(|mut fields| {
        fields.sort_by_key(|field| field.field);
        fields.dedup_by_key(|field| field.field);
        if fields.iter().any(|field| field.field == OxmField::Ipv4Dst) {
            fields.push(exact(OxmField::EthType, 0x0800));
        }
        fields
    })
}

fn listed(state: &FlowState, request: &FlowStatsRequest, now_ns: u64) -> Vec<FlowStats> {
    let mut list = state.list_flows(request.clone()).unwrap();
    let mut flows = Vec::new();
    while !list.is_over() {
        flows.extend(state.next_flows(&mut list, 3, now_ns));
    }
    flows
}

#[test]
fn a_list_has_each_lasting_entry_once_despite_changes_meanwhile() {
    let mut state = FlowState::new(1, TableLimits::default()).0;
    let numbered =
        |table, number: u128| add(table, 1, vec![exact(OxmField::EthDst, number)], apply(vec![output(1)]));
    const STAY: u128 = 10_000;
    for number in 0..STAY {
        state.flow_mod(&numbered(3, number), 0).unwrap();
        // Other entries: some of another table, and some that are removed meanwhile.
        state.flow_mod(&numbered(4, number), 0).unwrap();
        state.flow_mod(&numbered(3, STAY + number), 0).unwrap();
    }
    let all = FlowStatsRequest {
        table: 3,
        out_port: PortNo(1),
        out_group: group_id::ANY,
        cookie: 0,
        cookie_mask: 0,
        matching: Match::default(),
    };
    let mut list = state.list_flows(all.clone()).unwrap();
    let mut seen = std::collections::HashMap::<u128, usize>::new();
    let mut step = 0;
    while !list.is_over() {
        for flow in state.next_flows(&mut list, 100, 0) {
            assert_eq!(flow.table, 3);
            *seen.entry(flow.matching.get(OxmField::EthDst).unwrap().value).or_default() += 1;
        }
        // Changes meanwhile: some entries are deleted, others are added so that hash tables grow, and one gets other
        // actions.
        for number in 0..40 {
            let index = step * 40 + number;
            let gone = FlowMod { command: FlowCommand::DeleteStrict, ..numbered(3, STAY + index) };
            state.flow_mod(&gone, 0).unwrap();
            state.flow_mod(&numbered(3, 100 * STAY + index), 0).unwrap();
        }
        let changed = Instructions { goto: Some(9), ..apply(vec![output(1)]) };
        state.flow_mod(&FlowMod { instructions: changed, ..numbered(3, step) }, 0).unwrap();
        state.publish();
        step += 1;
    }
    let wrong = (0..STAY).find(|number| seen.get(number) != Some(&1));
    assert_eq!(wrong, None, "of {} entries in {step} steps", seen.len());
    let sum = state.aggregate(&all).unwrap();
    assert_eq!(sum.flows as usize, listed(&state, &all, 0).len());
}

proptest! {
    #[test]
    fn lookups_find_what_a_linear_search_finds(
        changes in proptest::collection::vec((any::<bool>(), 0..6u16, fields()), 1..60),
        packets in proptest::collection::vec((1..4u32, 0..4u8, any::<bool>()), 1..20),
    ) {
        let mut state = state();
        let mut model: Vec<(u16, Match)> = Vec::new();
        for (is_added, priority, fields) in changes {
            let request = add(0, priority, fields, Instructions::default());
            let same = |one: &(u16, Match)| *one == (priority, request.matching.clone());
            let was = model.iter().position(same);
            if is_added {
                state.flow_mod(&request, 0).unwrap();
                if was.is_none() {
                    model.push((priority, request.matching.clone()));
                }
            } else {
                let gone = state.flow_mod(&FlowMod { command: FlowCommand::DeleteStrict, ..request.clone() }, 0).unwrap();
                prop_assert_eq!(gone.len(), usize::from(was.is_some()));
                was.map(|index| model.swap_remove(index));
            }
            prop_assert_eq!(state.flows(), model.len());
        }
        for (in_port, last, is_ip) in packets {
            let frame = if is_ip { ip(last, 9) } else { frame(last, 0x88b5) };
            let mut packet = Packet::default();
            packet.load(PortNo(in_port), &frame, frame.len(), false);
            let expected = model.iter().filter(|(_, matching)| packet.matches(matching)).map(|(priority, _)| *priority).max();
            prop_assert_eq!(send(&state, in_port, &frame, 0).tables, vec![(0, expected)]);
        }
        let everything = FlowStatsRequest {
            table: table_id::ALL, out_port: PortNo::ANY, out_group: group_id::ANY, cookie: 0, cookie_mask: 0, matching: Match::default(),
        };
        prop_assert_eq!(listed(&state, &everything, 0).len(), model.len());
    }
}

#[test]
fn tables_continue_unchanged_in_another_process() {
    let mut before = state();
    let meter = MeterMod {
        command: MeterCommand::Add,
        flags: MeterFlags::KBPS,
        meter: 3,
        bands: vec![MeterBand::Drop { rate: 1_000_000, burst: 0 }],
    };
    before.meter_mod(&meter, NS).unwrap();
    let to_2 = bucket(0, PortNo::ANY, vec![output(2)]);
    let seven = group(GroupCommand::Add, GroupKind::All, 7, vec![to_2]);
    before.group_mod(&seven, 2 * NS).unwrap();
    let timed = FlowMod {
        idle_timeout_s: 10,
        cookie: 5,
        ..add(
            1,
            9,
            vec![exact(OxmField::InPort, 1)],
            Instructions { meter: Some(3), ..apply(vec![Action::Group(7)]) },
        )
    };
    before.flow_mod(&timed, 3 * NS).unwrap();
    before.flow_mod(&add(0, 1, vec![], apply(vec![output(3)])), 4 * NS).unwrap();
    before.publish();
    let image = before.image();
    let all = FlowStatsRequest {
        table: table_id::ALL,
        out_port: PortNo::ANY,
        out_group: group_id::ANY,
        cookie: 0,
        cookie_mask: 0,
        matching: Match::default(),
    };
    // Counts made after the image are handed over as well.
    let mut packet = Packet::default();
    packet.load(PortNo(1), &[0; 60], 60, false);
    let mut counter = Counting(&before);
    before.tables().receive(&mut packet, 5 * NS, &mut PipelineScratch::default(), &mut counter);
    let counts = before.counts(&image);
    let (mut after, _) = FlowState::new(3, TableLimits::default());
    let resumed = after.resume(image.bytes.clone()).unwrap();
    after.resume_counts(&resumed, &counts);
    let now = 6 * NS;
    assert_eq!(listed(&after, &all, now), listed(&before, &all, now));
    assert_eq!(listed(&after, &all, now)[0].packets, 1);
    assert_eq!(after.group_stats(group_id::ALL, now), before.group_stats(group_id::ALL, now));
    assert_eq!(after.meter_stats(meter_id::ALL, now), before.meter_stats(meter_id::ALL, now));
    assert_eq!(after.table_stats(), before.table_stats());
    assert_eq!(after.tables().used(), before.tables().used());
    // The entries' ages continue.
    assert!(after.expire(12 * NS).is_empty() && after.flows() == 2);
    assert_eq!(after.expire(14 * NS).len(), 1);
    for wrong in [&image.bytes[..20], &[0; 40]] {
        assert!(FlowState::new(1, TableLimits::default()).0.resume(wrong.to_vec()).is_err());
    }
}

/// Sink that counts as the only worker would.
struct Counting<'state>(&'state FlowState);

impl PipelineSink for Counting<'_> {
    fn output(&mut self, _: &Packet, _: OutputPort, _: Option<u32>) {}
    fn packet_in(&mut self, _: &Packet, _: ToController) {}
    fn dropped(&mut self, _: DropCause) {}
    fn looked_up(&mut self, table: u8, found: Option<&FlowEntry>) {
        self.0.tables().count_lookup(0, table, found.is_some());
    }
    fn count(&mut self, counter: CounterId, bytes: usize) {
        let count = ringroad_flow_tables::counters::Count { packets: 1, bytes: bytes as u64 };
        self.0.tables().count(0, counter, count);
    }
}
