//! Comparison of each worker's forwarding plane with a slow and simple interpreter: decisions and counts are the same,
//! independent of cached earlier frames, and of tables before a change.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::sync::Arc;

use proptest::prelude::*;
use ringroad_flow_tables::control_frame::port_number;
use ringroad_flow_tables::forwarding_plane::FlowPlane;
use ringroad_flow_tables::state::{FlowState, TableLimits};
use ringroad_flow_tables::tables::TablePort;
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{FlowCommand, FlowMod, FlowStatsRequest, PortConfig};
use ringroad_openflow::oxm::{FieldMatch, FieldValue, Match, OxmField, VLAN_PRESENT};
use ringroad_openflow::{group_id, table_id};
use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::clock::Clock;
use ringroad_port::forwarding_plane::{BatchPlan, Destination, ForwardingPlane, Outcome};
use ringroad_port::frame::Fragment;
use ringroad_port::port_index::{MAX_PORTS, PortIndex, PortMask};
use ringroad_switch::{LearningSwitch, MacTable, MacTableConfig};

mod frames;
mod oracle;

use oracle::{Entry, Oracle, OracleOutcome};

const PORTS: u8 = 4;
const CONTROLLERS: PortIndex = PortIndex(MAX_PORTS as u8 - 1);

fn exact(field: OxmField, value: u128) -> FieldMatch {
    FieldMatch::exact(field, value)
}

fn output(port: PortNo) -> Action {
    Action::Output { port, max_len: 0xffff }
}

fn set(field: OxmField, value: u128) -> Action {
    Action::SetField(FieldValue { field, value })
}

fn learning() -> Arc<LearningSwitch> {
    let switch = LearningSwitch::new(MacTable::new(MacTableConfig::new(0)).unwrap());
    for port in (0..PORTS).map(PortIndex) {
        switch.ports.insert(port);
    }
    Arc::new(switch)
}

/// A switch with one worker, and its oracle.
struct Pair {
    state: FlowState,
    plane: FlowPlane,
    plan: BatchPlan,
    oracle: Oracle,
    /// Number of entries that the oracle does not know, since no frame matches them.
    unmet: usize,
}

impl Pair {
    fn new() -> Self {
        let (mut state, needs) = FlowState::new(1, TableLimits::default());
        let ports: Vec<_> = (0..PORTS).map(PortIndex).collect();
        for &port in &ports {
            let known = TablePort { config: PortConfig::default(), is_live: true };
            state.set_port(port_number(port), Some(known));
        }
        let plane = FlowPlane::new(needs[0].clone(), learning(), CONTROLLERS, Clock::manual());
        let oracle = Oracle {
            entries: Vec::new(),
            lookups: [(0, 0); 256],
            ports,
            drops_fragments: false,
            switch: learning(),
            controllers: CONTROLLERS,
        };
        Self { state, plane, plan: BatchPlan::new(), oracle, unmet: 0 }
    }

    fn change(
        &mut self,
        command: FlowCommand,
        table: u8,
        priority: u16,
        fields: Vec<FieldMatch>,
        instructions: Instructions,
    ) {
        let matching = Match::new(fields).unwrap();
        // The specification leaves open which of several entries of one priority matches a packet.
        let is_other =
            |entry: &Entry| (entry.table, entry.priority) == (table, priority) && entry.matching != matching;
        if self.oracle.entries.iter().any(is_other) {
            return;
        }
        let cookie = self.oracle.entries.len() as u64;
        let add = FlowMod::add(table, priority, matching.clone(), instructions.clone());
        let request = FlowMod { cookie, command, ..add };
        // A switch refuses some requests, such as one that sets a field without the match that makes it present.
        if self.state.flow_mod(&request, 0).is_err() {
            return;
        }
        let entries = &mut self.oracle.entries;
        let same =
            |entry: &Entry| (entry.table, entry.priority, &entry.matching) == (table, priority, &matching);
        let at = entries.iter().position(same);
        if command == FlowCommand::DeleteStrict {
            at.map(|at| entries.swap_remove(at));
            return;
        }
        let (packets, bytes) = at.map_or((0, 0), |at| (entries[at].packets, entries[at].bytes));
        at.map(|at| entries.swap_remove(at));
        entries.push(Entry { table, priority, matching, instructions, cookie, packets, bytes });
    }

    fn add(&mut self, table: u8, priority: u16, fields: Vec<FieldMatch>, instructions: Instructions) {
        self.change(FlowCommand::Add, table, priority, fields, instructions);
    }

    /// Decides frames, executes them in two parts, and compares them with the oracle.
    fn send(&mut self, from: PortIndex, frames: &[Vec<u8>], first_part: usize) {
        let mut batch = Batch::new();
        batch.reset(BATCH_FRAMES);
        for frame in frames {
            // A third of the frames are in two fragments.
            let (head, rest) = frame.split_at(if frame.len() % 3 == 0 { frame.len() / 3 } else { 0 });
            if !head.is_empty() {
                // SAFETY: the frames outlive the batch, and nothing writes to them.
                batch.push(unsafe { Fragment::from_private(head, 0) }, true);
            }
            // SAFETY: as above.
            batch.push(unsafe { Fragment::from_private(rest, 0) }, head.is_empty());
        }
        let end = frames.len();
        for part in [0..first_part.min(end), first_part.min(end)..end] {
            if part.is_empty() {
                continue;
            }
            self.plan.reset(part.start..end);
            self.plane.decide(from, &batch, part.start, u64::MAX, &mut self.plan);
            self.plane.executed(from, &batch, part.clone(), &self.plan);
            for number in part.clone() {
                let frame = &frames[number];
                let expected = self.oracle.receive(from, frame);
                let planned = self.plan.outcome(number);
                assert_eq!(
                    outcome(&self.plan, planned, frame),
                    expected,
                    "{frame:02x?} of {:#?}",
                    self.oracle.entries
                );
            }
            let common = self.plan.common(part.start..end);
            assert!(
                common.is_none_or(|outcome| self
                    .plan
                    .outcomes(part.start..end)
                    .iter()
                    .all(|one| *one == outcome))
            );
        }
        self.check_counters();
    }

    /// Decides and executes frames without a comparison; the oracle counts them, too.
    fn send_unjudged(&mut self, from: PortIndex, frames: &[Vec<u8>]) {
        let mut batch = Batch::new();
        batch.reset(BATCH_FRAMES);
        for frame in frames {
            // SAFETY: the frames outlive the batch, and nothing writes to them.
            batch.push(unsafe { Fragment::from_private(frame, 0) }, true);
            let _ = self.oracle.receive(from, frame);
        }
        self.plan.reset(0..frames.len());
        self.plane.decide(from, &batch, 0, u64::MAX, &mut self.plan);
        self.plane.executed(from, &batch, 0..frames.len(), &self.plan);
    }

    fn check_counters(&self) {
        let all = FlowStatsRequest {
            table: table_id::ALL,
            out_port: PortNo::ANY,
            out_group: group_id::ANY,
            cookie: 0,
            cookie_mask: 0,
            matching: Match::default(),
        };
        let mut list = self.state.list_flows(all).unwrap();
        let mut stats = Vec::new();
        while !list.is_over() {
            stats.extend(self.state.next_flows(&mut list, usize::MAX, 0));
        }
        assert_eq!(stats.len(), self.oracle.entries.len() + self.unmet);
        for entry in &self.oracle.entries {
            let same = |one: &&ringroad_openflow::message::FlowStats| {
                (one.table, one.priority, &one.matching) == (entry.table, entry.priority, &entry.matching)
            };
            let found = stats.iter().find(same).unwrap();
            assert_eq!((found.packets, found.bytes), (entry.packets, entry.bytes), "{entry:?}");
        }
        for stats in self.state.table_stats() {
            let expected = self.oracle.lookups[usize::from(stats.table)];
            assert_eq!((stats.lookups, stats.matched), expected, "table {}", stats.table);
        }
    }
}

fn outcome(plan: &BatchPlan, outcome: Outcome, frame: &[u8]) -> OracleOutcome {
    let ports = |set: PortMask| set.iter().map(|port| port.0).collect::<Vec<_>>();
    let to = |to: Destination| match to {
        Destination::Port(port) => vec![port.0],
        Destination::Ports(set) => ports(plan.ports(set)),
        Destination::Others => panic!("the controllers' port is one of the others"),
    };
    match outcome {
        Outcome::Port(port) => Ok(vec![(vec![port.0], frame.to_vec())]),
        Outcome::Ports(set) => Ok(vec![(ports(plan.ports(set)), frame.to_vec())]),
        Outcome::Flood => panic!("the controllers' port is one of the others"),
        Outcome::Drop(cause) => Err(cause),
        Outcome::Copies(copies) => {
            let copy = |copy: &ringroad_port::forwarding_plane::FrameCopy| {
                let head = copy.rewrite.and_then(|head| plan.rewrite_of(head));
                let bytes =
                    head.map_or(frame.to_vec(), |head| [head.bytes, &frame[head.replaces..]].concat());
                (to(copy.to), bytes)
            };
            Ok(plan.copies_of(copies).iter().map(copy).collect())
        }
    }
}

/// Makes fields of matches, with their prerequisites.
fn fields() -> impl Strategy<Value = Vec<FieldMatch>> {
    let masked = |field: OxmField, value: u128, mask: u128| FieldMatch { field, value: value & mask, mask };
    let mac = 0x0200_0000_0000u128;
    let ipv4 = [exact(OxmField::EthType, 0x0800)];
    let ipv6 = [exact(OxmField::EthType, 0x86dd)];
    let with = |fields: &[FieldMatch], one: FieldMatch| [fields, &[one]].concat();
    let field = prop_oneof![
        (1..4u128).prop_map(|port| vec![exact(OxmField::InPort, port)]),
        (0..3u128, 0..4u128).prop_map(move |(last, mask)| vec![masked(OxmField::EthDst, mac + last, mask)]),
        (0..3u128).prop_map(move |last| vec![exact(OxmField::EthSrc, mac + 256 + last)]),
        prop::sample::select(&[0x0800u128, 0x0806, 0x86dd, 0x88b5, 0x05ff][..])
            .prop_map(|kind| vec![exact(OxmField::EthType, kind)]),
        prop::sample::select(&[0u128, VLAN_PRESENT, VLAN_PRESENT | 1][..])
            .prop_map(|vid| vec![exact(OxmField::VlanVid, vid)]),
        Just(vec![masked(OxmField::VlanVid, VLAN_PRESENT, VLAN_PRESENT)]),
        (0..2u128).prop_map(move |pcp| vec![
            masked(OxmField::VlanVid, VLAN_PRESENT, VLAN_PRESENT),
            exact(OxmField::VlanPcp, pcp)
        ]),
        (0..3u128, 0..4u32).prop_map(move |(last, short)| {
            with(
                &ipv4,
                masked(OxmField::Ipv4Dst, 0x0a00_0000 + last, 0xffff_ffff & (u128::from(u32::MAX) << short)),
            )
        }),
        (0..3u128).prop_map(move |last| with(&ipv4, exact(OxmField::Ipv4Src, 0x0a00_0000 + last))),
        (0..2u128).prop_map(move |dscp| with(&ipv4, exact(OxmField::IpDscp, dscp * 10))),
        prop::sample::select(&[1u128, 6, 17][..])
            .prop_map(move |proto| with(&ipv4, exact(OxmField::IpProto, proto))),
        (
            prop::sample::select(
                &[
                    (6u128, OxmField::TcpDst),
                    (17, OxmField::UdpDst),
                    (132, OxmField::SctpSrc),
                    (1, OxmField::Icmpv4Type)
                ][..]
            ),
            1..3u128
        )
            .prop_map(move |((proto, field), port)| with(
                &[ipv4[0], exact(OxmField::IpProto, proto)],
                exact(field, port)
            )),
        (0..3u128, 0..2u32).prop_map(move |(last, short)| {
            with(
                &ipv6,
                masked(OxmField::Ipv6Dst, (0x2001 << 112) + (last << 64) + 1, u128::MAX << (short * 64)),
            )
        }),
        (0..3u128).prop_map(move |label| with(&ipv6, exact(OxmField::Ipv6Flabel, label))),
        Just(with(&[ipv6[0], exact(OxmField::IpProto, 17)], exact(OxmField::UdpDst, 1))),
        Just(
            [
                ipv6[0],
                exact(OxmField::IpProto, 58),
                exact(OxmField::Icmpv6Type, 135),
                exact(OxmField::Ipv6NdSll, mac + 1)
            ]
            .to_vec()
        ),
        (0..3u128).prop_map(|last| vec![
            exact(OxmField::EthType, 0x0806),
            exact(OxmField::ArpTpa, 0x0a00_0000 + last)
        ]),
        (0..3u128)
            .prop_map(|label| vec![exact(OxmField::EthType, 0x8847), exact(OxmField::MplsLabel, label)]),
        (0..4u128, 1..4u128).prop_map(move |(value, mask)| vec![masked(OxmField::Metadata, value, mask)]),
        (0..2u128).prop_map(|tunnel| vec![exact(OxmField::TunnelId, tunnel)]),
    ];
    proptest::collection::vec(field, 0..3).prop_map(|fields| {
        // If two set different values of one field, the first counts.
        let mut kept: Vec<Vec<FieldMatch>> = Vec::new();
        for more in fields {
            let agrees = |one: &FieldMatch| {
                kept.iter().flatten().all(|other| other.field != one.field || other == one)
            };
            if more.iter().all(agrees) {
                kept.push(more);
            }
        }
        let mut fields: Vec<_> = kept.into_iter().flatten().filter(|one| one.mask != 0).collect();
        fields.sort();
        fields.dedup();
        fields
    })
}

fn header_actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        (0..3u128).prop_map(|last| set(OxmField::EthDst, 0x0200_0000_0000 + last)),
        (0..3u128).prop_map(|last| set(OxmField::Ipv4Dst, 0x0a00_0000 + last)),
        (1..3u128).prop_map(|port| set(OxmField::UdpDst, port)),
        (0..2u128).prop_map(|vid| set(OxmField::VlanVid, VLAN_PRESENT | vid)),
        Just(set(OxmField::IpDscp, 10)),
        Just(set(OxmField::EthType, 0x88b5)),
        (0..2u128).prop_map(|tunnel| set(OxmField::TunnelId, tunnel)),
        prop::sample::select(&[0x8100u16, 0x88a8][..]).prop_map(Action::PushVlan),
        Just(Action::PopVlan),
        Just(Action::DecNwTtl),
    ];
    proptest::collection::vec(action, 0..3)
}

fn outputs() -> impl Strategy<Value = Vec<Action>> {
    let port = prop_oneof![
        6 => (1..=u32::from(PORTS) + 1).prop_map(PortNo),
        1 => prop::sample::select(&[PortNo::IN_PORT, PortNo::ALL, PortNo::FLOOD, PortNo::CONTROLLER][..]),
        2 => Just(PortNo::NORMAL),
    ];
    proptest::collection::vec(port.prop_map(output), 0..3)
}

/// Makes instructions for an entry of this table.
fn instructions(table: u8) -> impl Strategy<Value = Instructions> {
    let plain = prop_oneof![
        (1..=u32::from(PORTS)).prop_map(|port| Some(vec![output(PortNo(port))])),
        Just(None),
        Just(Some(vec![output(PortNo::NORMAL)])),
    ];
    let goto = move |far: u8| (table < 4).then_some(table + 1 + far % (4 - table).max(1));
    let plain = prop_oneof![
        (plain, any::<bool>()).prop_map(|(actions, is_written)| match is_written {
            true => Instructions { write: actions, ..Instructions::default() },
            false => Instructions { apply: actions, ..Instructions::default() },
        }),
        any::<u8>().prop_map(move |far| Instructions { goto: goto(far), ..Instructions::default() }),
    ];
    let lists = (header_actions(), outputs(), header_actions(), outputs());
    let others = (any::<bool>(), proptest::option::of((0..4u64, 0..4u64)), proptest::option::of(any::<u8>()));
    let other =
        (lists, others).prop_map(move |((first, out, written, last), (clear, metadata, far))| Instructions {
            meter: None,
            apply: Some([first, out].concat()),
            clear,
            write: Some([written, last].concat()),
            metadata,
            goto: far.and_then(goto),
        });
    prop_oneof![3 => plain, 2 => other]
}

type Change = (u8, u8, u16, Vec<FieldMatch>, Instructions);

fn change() -> impl Strategy<Value = Change> {
    (0..5u8).prop_flat_map(|table| (0..5u8, Just(table), 1..30u16, fields(), instructions(table)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_forwarding_plane_does_what_a_slow_interpreter_does(
        rounds in proptest::collection::vec(
            (proptest::collection::vec(change(), 0..12), any::<bool>(), 0..3u8, 0..60usize),
            1..5,
        ),
        pool in proptest::collection::vec(frames::parts(), 1..12),
        order in proptest::collection::vec(any::<prop::sample::Index>(), 1..50),
    ) {
        let mut pair = Pair::new();
        let frames: Vec<Vec<u8>> = order.iter().map(|index| frames::bytes(index.get(&pool))).collect();
        // Tables continue by default, so that there are long paths.
        for table in 0..4 {
            pair.add(table, 0, vec![], Instructions { goto: Some(table + 1), ..Instructions::default() });
        }
        for (changes, drops_fragments, from, first_part) in rounds {
            for (kind, table, priority, fields, instructions) in changes {
                let command = if kind == 0 { FlowCommand::DeleteStrict } else { FlowCommand::Add };
                // The specification leaves open which of several entries of one priority matches a packet.
                let matching = Match::new(fields.clone()).unwrap();
                let is_other = |entry: &Entry| {
                    (entry.table, entry.priority) == (table, priority) && entry.matching != matching
                };
                if pair.oracle.entries.iter().any(is_other) {
                    continue;
                }
                pair.change(command, table, priority, fields, instructions);
            }
            pair.oracle.drops_fragments = drops_fragments;
            pair.state.set_drops_fragments(drops_fragments);
            pair.state.publish();
            // The second round comes from the cache, if anything is cached.
            pair.send(PortIndex(from), &frames, first_part);
            pair.send(PortIndex(from), &frames, frames.len());
        }
    }
}

/// Makes fields with nested masks, so that many entries match one frame, and tables merge them.
fn nested_fields() -> impl Strategy<Value = Vec<FieldMatch>> {
    fn nested(
        field: OxmField,
        base: u128,
        bits: u32,
        wild: &'static [u32],
    ) -> impl Strategy<Value = FieldMatch> {
        (0..4u128, prop::sample::select(wild)).prop_map(move |(last, wild)| {
            let mask = (1u128 << bits) - (1 << wild);
            FieldMatch { field, value: (base + last) & mask, mask }
        })
    }
    let addresses = (
        nested(OxmField::Ipv4Src, 0x0a00_0000, 32, &[0, 1, 2, 7, 8, 12, 16, 20, 32]),
        nested(OxmField::Ipv4Dst, 0x0a00_0000, 32, &[0, 1, 2, 3, 8, 16, 24, 32]),
    );
    let ports = prop::sample::select(
        &[(6u128, OxmField::TcpSrc, OxmField::TcpDst), (17, OxmField::UdpSrc, OxmField::UdpDst)][..],
    )
    .prop_flat_map(|(proto, source, target)| {
        (
            Just(exact(OxmField::IpProto, proto)),
            nested(source, 0, 16, &[0, 1, 2, 16, 16]),
            nested(target, 0, 16, &[0, 1, 2, 8, 16]),
        )
    });
    let others = (
        nested(OxmField::EthDst, 0x0200_0000_0000, 48, &[0, 1, 48, 48, 48]),
        nested(OxmField::EthSrc, 0x0200_0000_0100, 48, &[0, 48, 48, 48, 48]),
        nested(OxmField::IpDscp, 0, 6, &[0, 6, 6, 6]),
        proptest::option::weighted(0.2, 1..4u128),
    );
    (addresses, proptest::option::of(ports), others).prop_map(|((source, target), ports, others)| {
        let mut fields = vec![exact(OxmField::EthType, 0x0800), source, target, others.0, others.1, others.2];
        fields.extend(ports.into_iter().flat_map(|(proto, source, target)| [proto, source, target]));
        fields.extend(others.3.map(|port| exact(OxmField::InPort, port)));
        fields.retain(|one| one.mask != 0);
        fields
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn merged_entries_are_found_as_by_a_slow_interpreter(
        rounds in proptest::collection::vec(
            (
                proptest::collection::vec((1..400u16, nested_fields(), instructions(0)), 1..120),
                proptest::collection::vec(any::<prop::sample::Index>(), 0..80),
                0..3u8,
            ),
            1..4,
        ),
        pool in proptest::collection::vec(frames::parts(), 1..40),
    ) {
        let mut pair = Pair::new();
        let frames: Vec<Vec<u8>> = pool.iter().map(frames::bytes).collect();
        for (added, removed, from) in rounds {
            for (priority, fields, instructions) in added {
                pair.add(0, priority, fields, instructions);
            }
            pair.state.publish();
            pair.send(PortIndex(from), &frames, 7);
            for index in removed {
                if pair.oracle.entries.is_empty() {
                    break;
                }
                let Entry { table, priority, matching, instructions, .. } = index.get(&pair.oracle.entries).clone();
                let fields = matching.fields().to_vec();
                pair.change(FlowCommand::DeleteStrict, table, priority, fields, instructions);
            }
            pair.state.publish();
            pair.send(PortIndex(from), &frames, 7);
        }
    }
}

#[test]
fn frames_that_are_looked_up_together_go_the_same_ways() {
    let mut pair = Pair::new();
    // The first table gets enough entries for joint lookups. The oracle has only the entries that a frame can match.
    let flow = |from: u32, to: u32, priority: u16, instructions: Instructions| {
        let matching = Match::new([
            exact(OxmField::EthType, 0x0800),
            exact(OxmField::Ipv4Src, from.into()),
            exact(OxmField::Ipv4Dst, to.into()),
        ]);
        FlowMod::add(0, priority, matching.unwrap(), instructions)
    };
    for number in 0..20_000 {
        pair.state.flow_mod(&flow(0x0b00_0000 + number, 0x0a00_0001, 1, to(3)), 0).unwrap();
        pair.unmet += 1;
    }
    let ends = |last: u128| {
        let (source, target) =
            (exact(OxmField::Ipv4Src, 0x0a00_0009), exact(OxmField::Ipv4Dst, 0x0a00_0000 + last));
        vec![exact(OxmField::EthType, 0x0800), source, target]
    };
    let on = Instructions { goto: Some(1), ..Instructions::default() };
    let normal = Instructions { apply: Some(vec![output(PortNo::NORMAL)]), ..Instructions::default() };
    let changed = Instructions {
        apply: Some(vec![set(OxmField::EthDst, 0x0200_0000_0007), output(PortNo(2))]),
        ..Instructions::default()
    };
    let two =
        Instructions { apply: Some(vec![output(PortNo(2)), output(PortNo(4))]), ..Instructions::default() };
    for (last, does) in (0..).zip([to(2), on, normal, changed, two, Instructions::default()]) {
        pair.add(0, 10 + last as u16, ends(last), does);
    }
    pair.add(1, 1, vec![exact(OxmField::EthType, 0x0800)], to(4));
    pair.state.publish();
    let mut frames: Vec<_> = (0..100u32).map(|number| udp((number * 7 % 8) as u8, 5)).collect();
    frames[40].truncate(10);
    frames[41].truncate(20);
    frames[42].truncate(36);
    frames[43].splice(12..12, [0x81, 0, 0, 5]);
    for from in [0, 1] {
        pair.send(PortIndex(from), &frames, 45);
        pair.send(PortIndex(from), &frames[..3], 1);
    }
}

fn to(port: u32) -> Instructions {
    Instructions { apply: Some(vec![output(PortNo(port))]), ..Instructions::default() }
}

fn udp(last: u8, port: u16) -> Vec<u8> {
    let mut frame =
        vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0];
    frame.extend([10, 0, 0, 9, 10, 0, 0, last]);
    frame.extend([0, 1]);
    frame.extend(port.to_be_bytes());
    frame.resize(61, 0);
    frame
}

/// Adds entries of eight shapes. All frames match the shape that is searched last.
fn many_shapes(pair: &mut Pair) {
    for short in 0..8u16 {
        let mask = 0xffff_ffff & (u128::from(u32::MAX) << short);
        let to_nobody = FieldMatch { field: OxmField::Ipv4Dst, value: 0x0b00_0000 & mask, mask };
        pair.add(0, 20 - short, vec![exact(OxmField::EthType, 0x0800), to_nobody], to(3));
    }
    pair.add(0, 1, vec![], to(2));
}

#[test]
fn nothing_is_remembered_of_tables_as_they_were() {
    let mut pair = Pair::new();
    many_shapes(&mut pair);
    pair.state.publish();
    let frames: Vec<_> = (0..20).map(|last| udp(last, 5)).collect();
    for port in [2, 3, 4, 2] {
        pair.add(0, 1, vec![], to(port));
        pair.state.publish();
        for _ in 0..3 {
            pair.send(PortIndex(0), &frames, 7);
            assert_eq!(pair.plan.common(7..20), Some(Outcome::Port(PortIndex(port as u8 - 1))));
        }
    }
    // A port that may not send any more is a change, too.
    let config = PortConfig::NO_FWD;
    pair.state.set_port(PortNo(2), Some(TablePort { config, is_live: true }));
    pair.oracle.ports.remove(1);
    pair.state.publish();
    pair.send(PortIndex(0), &frames, 7);
}

#[test]
fn a_flood_of_different_packets_changes_nothing_for_the_others() {
    let mut pair = Pair::new();
    many_shapes(&mut pair);
    pair.add(
        0,
        2,
        vec![exact(OxmField::EthType, 0x0800), exact(OxmField::IpProto, 17), exact(OxmField::UdpDst, 7)],
        to(4),
    );
    pair.state.publish();
    // The number of packets exceeds any cache, so the forwarding plane also bypasses its cache for a while, and uses it
    // again.
    for round in 0..2500u32 {
        let mut frames: Vec<_> =
            (0..64u32).map(|number| udp(number as u8, (round * 64 + number) as u16 | 8)).collect();
        frames.push(udp(1, 7));
        frames.push(udp(1, 9));
        if round % 100 == 0 {
            pair.send(PortIndex(0), &frames, frames.len());
        } else {
            pair.send_unjudged(PortIndex(0), &frames);
        }
    }
}

#[test]
fn headers_that_an_action_uncovers_are_read_in_each_frame() {
    let mut pair = Pair::new();
    let pop = Instructions { goto: Some(1), apply: Some(vec![Action::PopVlan]), ..Instructions::default() };
    pair.add(0, 1, vec![exact(OxmField::VlanVid, VLAN_PRESENT | 5)], pop);
    pair.add(1, 5, vec![exact(OxmField::VlanVid, VLAN_PRESENT | 6)], to(2));
    pair.add(1, 6, vec![exact(OxmField::VlanVid, VLAN_PRESENT | 7)], to(3));
    pair.add(1, 1, vec![], to(4));
    // Caching pays only with several shapes. They are in a table that no packet reaches.
    for short in 0..4u16 {
        let mask = 0xffff_ffff_ffff & (u128::from(u64::MAX) << short);
        pair.add(3, short, vec![FieldMatch { field: OxmField::EthSrc, value: 0, mask }], to(2));
    }
    pair.state.publish();
    // The frames differ only after the outer tag.
    let frames = [6, 7, 8, 6, 7].map(|inner| {
        let mut frame = udp(1, 5);
        frame.splice(12..12, [0x81, 0, 0, 5, 0x81, 0, 0, inner]);
        frame
    });
    for _ in 0..3 {
        pair.send(PortIndex(0), &frames, 2);
    }
}

#[test]
fn a_learning_switch_decides_each_frame_even_if_the_port_is_all() {
    let mut pair = Pair::new();
    let normal = Instructions { apply: Some(vec![output(PortNo::NORMAL)]), ..Instructions::default() };
    for from in 1..=4 {
        pair.add(0, from, vec![exact(OxmField::InPort, from.into())], normal.clone());
    }
    pair.state.publish();
    let frame = |to: u8, from: u8| {
        let mut frame = udp(1, 5);
        (frame[5], frame[10], frame[11]) = (to, 0, from);
        frame
    };
    for from in 0..4 {
        pair.send(PortIndex(from), &[frame(99, from)], 1);
    }
    pair.send(PortIndex(0), &[frame(1, 0), frame(2, 0), frame(2, 0), frame(77, 0), frame(3, 0)], 2);
}
