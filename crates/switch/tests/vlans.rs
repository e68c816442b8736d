//! Tests of switches whose ports have settings: the outcome of each frame, compared with a plain model of VLAN
//! bridging.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use proptest::prelude::*;
use ringroad_port::batch::Batch;
use ringroad_port::clock::Clock;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{BatchPlan, Destination, ForwardingPlane, Outcome};
use ringroad_port::frame::Fragment;
use ringroad_port::port_index::{PortIndex, PortMask};
use ringroad_port::port_settings::{PortSettings, PortVlans};
use ringroad_switch::{
    FrameHeader, LearningSwitch, MacTable, MacTableConfig, MirrorRule, Mirroring, Policing, PortPolicies,
    PortPolicy, Tick,
};
use ringroad_wire::mac::Mac;

/// Ports to which a frame went, with its bytes there.
type Ways = Result<BTreeMap<u8, Vec<u8>>, DropCause>;

const BROADCAST: u8 = 255;

fn station(number: u8) -> [u8; 6] {
    if number == BROADCAST { [0xff; 6] } else { [2, 0, 0, 0, 0, number] }
}

/// A frame between stations, with VLAN tags.
fn frame(to: u8, from: u8, tags: &[u16]) -> Vec<u8> {
    let mut bytes = [station(to), station(from)].concat();
    tags.iter().for_each(|tag| bytes.extend([[0x81, 0], tag.to_be_bytes()].concat()));
    bytes.extend([8, 0, 1, 2, 3, 4]);
    bytes
}

fn access(vlan: u16) -> PortSettings {
    PortSettings { vlans: PortVlans::Access(vlan), ..PortSettings::default() }
}

fn trunk(tagged: &str, native: Option<u16>) -> PortSettings {
    let vlans = PortVlans::Trunk { tagged: tagged.parse().unwrap(), native };
    PortSettings { vlans, ..PortSettings::default() }
}

fn isolated() -> PortSettings {
    PortSettings { isolated: true, ..PortSettings::default() }
}

/// A switch whose ports have these settings, from port 0 on.
struct Testbed {
    switch: Arc<LearningSwitch>,
    plane: Box<dyn ForwardingPlane>,
    clock: Clock,
    flags: u16,
}

impl Testbed {
    fn new(settings: &[PortSettings]) -> Self {
        let switch = Arc::new(LearningSwitch::new(MacTable::new(MacTableConfig::new(7)).unwrap()));
        let policies: Vec<_> = settings.iter().cloned().map(PortPolicy::new).collect();
        let ports = (0..).map(PortIndex).zip(&policies);
        ports.clone().for_each(|(port, _)| assert!(switch.ports.insert(port)));
        let policies = PortPolicies::new(ports.filter(|(_, policy)| !policy.settings().is_unset()));
        let clock = Clock::manual();
        let plane = Policing::new(Arc::clone(&switch), Arc::new(policies), clock.clone());
        Self { switch, plane: Box::new(plane), clock, flags: 0 }
    }

    /// Adds mirrors in front of the forwarding plane.
    fn mirrored(mut self, mirrors: Vec<MirrorRule>) -> Self {
        self.plane = Box::new(Mirroring::new(self.plane, Arc::clone(&self.switch), mirrors, 0));
        self
    }

    /// Outcomes of frames from a port, of which the first `executed` are executed.
    fn send_part(&mut self, from: u8, frames: &[Vec<u8>], executed: usize) -> Vec<Ways> {
        let mut batch = Batch::new();
        for frame in frames {
            // Headers may lie in any number of pieces.
            let (head, rest) =
                frame.split_at(if self.switch.ports.len() > 4 { 15.min(frame.len()) } else { 0 });
            let parts: Vec<_> = [head, rest].into_iter().filter(|part| !part.is_empty()).collect();
            for (index, part) in parts.iter().enumerate() {
                // SAFETY: the frames outlive the batch, and nothing writes to them.
                batch.push(unsafe { Fragment::from_private(part, self.flags) }, index == 0);
            }
        }
        let mut plan = BatchPlan::new();
        plan.reset(0..frames.len());
        self.plane.decide(PortIndex(from), &batch, 0, u64::MAX, &mut plan);
        self.plane.executed(PortIndex(from), &batch, 0..executed, &plan);
        (0..executed).map(|number| self.ways(from, &frames[number], &plan, plan.outcome(number))).collect()
    }

    fn send(&mut self, from: u8, frame: &[u8]) -> Ways {
        self.send_part(from, &[frame.to_vec()], 1).remove(0)
    }

    fn ways(&self, from: u8, frame: &[u8], plan: &BatchPlan, outcome: Outcome) -> Ways {
        let ports = |to: Destination| -> PortMask {
            match to {
                Destination::Port(port) => [port].into_iter().collect(),
                Destination::Others => self.switch.ports.iter().filter(|port| port.0 != from).collect(),
                Destination::Ports(set) => plan.ports(set),
            }
        };
        let mut ways = BTreeMap::new();
        let mut add = |to, bytes: Vec<u8>| {
            for port in ports(to).iter() {
                assert!(ways.insert(port.0, bytes.clone()).is_none(), "two copies for one port");
            }
        };
        match outcome {
            Outcome::Drop(cause) => return Err(cause),
            Outcome::Port(port) => add(Destination::Port(port), frame.to_vec()),
            Outcome::Flood => add(Destination::Others, frame.to_vec()),
            Outcome::Ports(set) => add(Destination::Ports(set), frame.to_vec()),
            Outcome::Copies(copies) => {
                for copy in plan.copies_of(copies) {
                    let bytes = copy.rewrite.map_or_else(
                        || frame.to_vec(),
                        |head| {
                            let head = plan.rewrite_of(head).unwrap();
                            [head.bytes, &frame[head.replaces..]].concat()
                        },
                    );
                    add(copy.to, bytes);
                }
            }
        }
        if ways.is_empty() { Err(DropCause::NoDestination) } else { Ok(ways) }
    }
}

/// A model of a switch with VLANs, as simple as possible.
struct Model {
    settings: Vec<PortSettings>,
    learned: HashMap<(u16, [u8; 6]), u8>,
}

impl Model {
    /// Whether a port has frames of a VLAN: `Some(true)` with the tag, `Some(false)` without a tag, `None`: it has
    /// none.
    fn membership(&self, port: u8, vlan: u16) -> Option<bool> {
        match &self.settings[usize::from(port)].vlans {
            PortVlans::Unset => Some(vlan != 0),
            PortVlans::Access(own) => (*own == vlan).then_some(false),
            PortVlans::Trunk { native: Some(native), .. } if *native == vlan => Some(false),
            PortVlans::Trunk { tagged, .. } => tagged.contains(vlan).then_some(true),
        }
    }

    fn send(&mut self, from: u8, frame: &[u8]) -> Ways {
        let has_vlans = self.settings.iter().any(|settings| settings.vlans != PortVlans::Unset);
        let is_tagged = has_vlans && frame[12..14] == [0x81, 0];
        let control = if is_tagged { u16::from_be_bytes([frame[14], frame[15]]) } else { 0 };
        let content = if is_tagged { &frame[16..] } else { &frame[12..] };
        let vlan = match (&self.settings[usize::from(from)].vlans, control & 0xfff) {
            (PortVlans::Unset, 0) => Some(0),
            (PortVlans::Access(own), 0) => Some(*own),
            (PortVlans::Trunk { native, .. }, 0) => *native,
            (PortVlans::Access(_), _) | (_, 4095) => None,
            (_, tag) => self.membership(from, tag).map(|_| tag),
        };
        let Some(vlan) = vlan else { return Err(DropCause::WrongVlan) };
        let (to, source): ([u8; 6], [u8; 6]) =
            (frame[..6].try_into().unwrap(), frame[6..12].try_into().unwrap());
        self.learned.insert((vlan, source), from);
        let is_isolated = |port: u8| self.settings[usize::from(port)].isolated;
        let targets: Vec<u8> = match self.learned.get(&(vlan, to)) {
            Some(port) if *port == from => return Err(DropCause::ToSelf),
            Some(port) if is_isolated(from) && is_isolated(*port) => return Err(DropCause::Isolated),
            Some(port) => vec![*port],
            None => (0..self.settings.len() as u8)
                .filter(|port| *port != from && !(is_isolated(from) && is_isolated(*port)))
                .filter(|port| self.membership(*port, vlan).is_some())
                .collect(),
        };
        if targets.is_empty() {
            return Err(DropCause::NoDestination);
        }
        let mut ways = BTreeMap::new();
        for port in targets {
            let bytes = match self.membership(port, vlan).unwrap() {
                _ if !has_vlans => frame.to_vec(),
                true => {
                    let tag = (control & 0xf000 | vlan).to_be_bytes();
                    [&frame[..12], &[0x81, 0], &tag, content].concat()
                }
                // The receiver would take the frame for one of another VLAN.
                false if content[..2] == [0x81, 0] => continue,
                false => [&frame[..12], content].concat(),
            };
            ways.insert(port, bytes);
        }
        if ways.is_empty() { Err(DropCause::WrongVlan) } else { Ok(ways) }
    }
}

fn ways(ways: impl IntoIterator<Item = (u8, Vec<u8>)>) -> Ways {
    Ok(ways.into_iter().collect())
}

#[test]
fn frames_change_their_tags_between_access_ports_and_trunks() {
    let mut bed =
        Testbed::new(&[access(10), access(10), access(20), trunk("10,20", None), trunk("20", Some(10))]);
    let plain = || frame(BROADCAST, 1, &[]);
    let tagged = |control| frame(BROADCAST, 1, &[control]);
    assert_eq!(bed.send(0, &plain()), ways([(1, plain()), (3, tagged(10)), (4, plain())]));
    assert_eq!(bed.send(3, &tagged(0xa00a)), ways([(0, plain()), (1, plain()), (4, plain())]));
    assert_eq!(bed.send(4, &tagged(0xa014)), ways([(2, plain()), (3, tagged(0xa014))]), "the priority stays");
    assert_eq!(bed.send(4, &plain()), ways([(0, plain()), (1, plain()), (3, tagged(10))]));
    assert_eq!(bed.send(0, &tagged(0xa000)), ways([(1, plain()), (3, tagged(0xa00a)), (4, plain())]));
    for (from, bytes) in [(0, tagged(10)), (0, tagged(20)), (3, plain()), (3, tagged(30)), (3, tagged(4095))]
    {
        assert_eq!(bed.send(from, &bytes), Err(DropCause::WrongVlan), "{from} {bytes:x?}");
    }
    assert_eq!(bed.send(0, &frame(BROADCAST, 1, &[])[..13]), Err(DropCause::TooShort));
    assert_eq!(bed.send(3, &tagged(10)[..17]), Err(DropCause::TooShort));
}

#[test]
fn an_address_is_learned_in_each_vlan_by_itself_and_a_refused_frame_teaches_nothing() {
    let mut bed = Testbed::new(&[access(10), access(20), trunk("10,20", None)]);
    bed.send(0, &frame(BROADCAST, 1, &[])).unwrap();
    bed.send(1, &frame(BROADCAST, 1, &[])).unwrap();
    assert_eq!(bed.send(2, &frame(1, 2, &[10])), ways([(0, frame(1, 2, &[]))]));
    assert_eq!(bed.send(2, &frame(1, 2, &[20])), ways([(1, frame(1, 2, &[]))]));
    assert_eq!(bed.send(0, &frame(BROADCAST, 3, &[20])), Err(DropCause::WrongVlan));
    let mut entries: Vec<_> =
        bed.switch.table.entries(Tick(0)).map(|entry| (entry.vlan, entry.mac, entry.port.0)).collect();
    entries.sort_unstable();
    let [one, two] = [1, 2].map(|number| Mac::from(station(number)));
    assert_eq!(entries, [(10, one, 0), (10, two, 2), (20, one, 1), (20, two, 2)]);
}

#[test]
fn a_second_tag_never_becomes_the_first_one() {
    let mut bed =
        Testbed::new(&[trunk("10,20", None), access(10), trunk("20", Some(10)), trunk("10,20", None)]);
    let nested = frame(BROADCAST, 1, &[10, 20]);
    assert_eq!(bed.send(0, &nested), ways([(3, nested.clone())]));
    bed.send(2, &frame(BROADCAST, 2, &[])).unwrap();
    assert_eq!(bed.send(0, &frame(2, 1, &[10, 20])), Err(DropCause::WrongVlan));
    assert!(bed.switch.ports.remove(PortIndex(3)));
    assert_eq!(bed.send(0, &nested), Err(DropCause::WrongVlan));
}

#[test]
fn a_forced_destination_leads_into_no_other_vlan_and_to_no_isolated_port() {
    let mut bed = Testbed::new(&[access(10), access(20), access(10), isolated(), isolated()]);
    let forced = |port: u16| port << FrameHeader::FORCED_PORT_SHIFT;
    bed.flags = forced(1);
    assert_eq!(bed.send(0, &frame(BROADCAST, 1, &[])), Err(DropCause::WrongVlan));
    assert_eq!(bed.send(2, &frame(9, 1, &[])), Err(DropCause::WrongVlan));
    bed.flags = forced(4);
    assert_eq!(bed.send(3, &frame(9, 1, &[])), Err(DropCause::Isolated));
    bed.flags = forced(2);
    assert_eq!(bed.send(0, &frame(9, 1, &[])), ways([(2, frame(9, 1, &[]))]));
    bed.flags = forced(254);
    let tagged = frame(2, 1, &[10]);
    let all = ways([(2, frame(2, 1, &[])), (3, tagged.clone()), (4, tagged)]);
    assert_eq!(bed.send(0, &frame(2, 1, &[])), all, "all of its VLAN");
}

#[test]
fn isolated_ports_reach_others_and_not_each_other() {
    let mut bed = Testbed::new(&[isolated(), isolated(), PortSettings::default()]);
    let all = frame(BROADCAST, 1, &[]);
    assert_eq!(bed.send(0, &all), ways([(2, all.clone())]));
    assert_eq!(bed.send(1, &frame(BROADCAST, 2, &[])), ways([(2, frame(BROADCAST, 2, &[]))]));
    assert_eq!(bed.send(0, &frame(2, 1, &[])), Err(DropCause::Isolated));
    assert_eq!(bed.send(2, &frame(2, 3, &[])), ways([(1, frame(2, 3, &[]))]));
    assert_eq!(bed.send(2, &all), ways([(0, all.clone()), (1, all.clone())]));
    assert!(bed.switch.ports.remove(PortIndex(2)));
    assert_eq!(bed.send(0, &all), Err(DropCause::NoDestination));
    let tag_cut_off = [&all[..12], &[0x81, 0]].concat();
    assert_eq!(bed.send(0, &tag_cut_off), Err(DropCause::NoDestination), "a tag means nothing here");
}

#[test]
fn a_storm_limit_holds_for_frames_to_several_ports_only_and_by_the_clock() {
    let limited = PortSettings { storm: Some(20), ..PortSettings::default() };
    let mut bed = Testbed::new(&[limited, PortSettings::default(), PortSettings::default()]);
    bed.send(1, &frame(BROADCAST, 2, &[])).unwrap();
    let passed = |bed: &mut Testbed, to: u8, count: usize, executed: usize| {
        let frames = vec![frame(to, 1, &[]); count];
        let ways = bed.send_part(0, &frames, executed);
        let dropped = ways.iter().filter(|ways| **ways == Err(DropCause::Storm)).count();
        assert!(ways.iter().filter(|ways| **ways != Err(DropCause::Storm)).all(Result::is_ok));
        ways.len() - dropped
    };
    // The limit lets the frames of a tenth of a second pass at once.
    assert_eq!(passed(&mut bed, BROADCAST, 10, 10), 2);
    assert_eq!(passed(&mut bed, 9, 10, 10), 0, "an unknown address");
    assert_eq!(passed(&mut bed, 2, 100, 100), 100, "a known address");
    bed.clock.advance(50_000_000);
    assert_eq!(passed(&mut bed, 9, 10, 10), 1);
    bed.clock.advance(100_000_000);
    assert_eq!(passed(&mut bed, BROADCAST, 10, 1), 1, "what is not executed");
    assert_eq!(passed(&mut bed, BROADCAST, 10, 10), 1, "is decided again");
    let others = bed.send(1, &frame(BROADCAST, 2, &[]));
    assert!(others.is_ok(), "{others:?}");
}

#[test]
fn beyond_a_storm_limit_nothing_is_learned() {
    let limited = PortSettings { storm: Some(1), ..access(10) };
    let mut bed = Testbed::new(&[limited, access(10)]);
    bed.send(0, &frame(BROADCAST, 1, &[])).unwrap();
    assert_eq!(bed.send(0, &frame(BROADCAST, 2, &[])), Err(DropCause::Storm));
    assert_eq!(bed.switch.table.len(), 1);
    assert_eq!(bed.send(1, &frame(1, 9, &[])), ways([(0, frame(1, 9, &[]))]));
    assert_eq!(bed.send(0, &frame(9, 3, &[])), ways([(1, frame(9, 3, &[]))]));
}

#[test]
fn a_static_address_holds_in_the_vlans_of_its_port() {
    let mut bed = Testbed::new(&[access(10), access(10), access(20), access(20)]);
    let fixed = Mac::from(station(7));
    bed.switch.table.set_static(fixed, PortIndex(1), Tick(0));
    assert_eq!(bed.send(0, &frame(7, 1, &[])), ways([(1, frame(7, 1, &[]))]));
    assert_eq!(bed.send(2, &frame(7, 1, &[])), ways([(3, frame(7, 1, &[]))]), "unknown in this VLAN");
    bed.send(0, &frame(BROADCAST, 7, &[])).unwrap();
    assert_eq!(bed.send(0, &frame(7, 1, &[])), ways([(1, frame(7, 1, &[]))]), "it did not move");
    assert_eq!(bed.switch.table.refused_moves(), 1);
}

#[test]
fn mirrors_get_frames_as_they_came_and_as_they_leave_and_are_in_no_vlan() {
    let mask = |ports: &[u8]| ports.iter().copied().map(PortIndex).collect();
    let mirror = |received: &[u8], delivered: &[u8], to| MirrorRule {
        received: mask(received),
        delivered: mask(delivered),
        to: PortIndex(to),
        sample: 1,
        records: false,
    };
    let settings = [
        access(10),
        access(10),
        trunk("10,20", None),
        trunk("all", Some(10)),
        access(20),
        trunk("all", Some(10)),
        access(10),
    ];
    let mirrors = vec![mirror(&[0], &[], 3), mirror(&[], &[2], 5), mirror(&[0], &[1], 6)];
    let mut bed = Testbed::new(&settings).mirrored(mirrors);
    let plain = frame(BROADCAST, 1, &[]);
    let tagged = frame(BROADCAST, 1, &[10]);
    let as_it_came = [(1, plain.clone()), (3, plain.clone()), (6, plain.clone())];
    let sent = bed.send(0, &plain);
    assert_eq!(sent, ways(as_it_came.into_iter().chain([(2, tagged.clone()), (5, tagged)])));
    assert_eq!(bed.send(2, &frame(BROADCAST, 2, &[20])), ways([(4, frame(BROADCAST, 2, &[]))]));
    let answer = frame(2, 3, &[20]);
    assert_eq!(bed.send(4, &frame(2, 3, &[])), ways([(2, answer.clone()), (5, answer)]));
    assert_eq!(bed.send(3, &plain), Err(DropCause::MirrorPort));
}

fn vlans() -> impl Strategy<Value = PortVlans> {
    let native = prop::option::of(prop::sample::select(&[10u16, 20, 30][..]));
    let tagged = prop::sample::select(&["10", "20", "10,20", "all", "20-30"][..]);
    prop_oneof![
        Just(PortVlans::Unset),
        prop::sample::select(&[10u16, 20][..]).prop_map(PortVlans::Access),
        (tagged, native)
            .prop_map(|(tagged, native)| PortVlans::Trunk { tagged: tagged.parse().unwrap(), native }),
    ]
}

fn settings() -> impl Strategy<Value = PortSettings> {
    (vlans(), any::<bool>()).prop_map(|(vlans, isolated)| PortSettings { vlans, isolated, storm: None })
}

fn frames() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let station = || prop_oneof![4 => 1u8..4, 1 => Just(BROADCAST)];
    let tag = prop::sample::select(&[0u16, 10, 20, 30, 4095, 0xa000, 0xb00a, 0x6014][..]);
    (0u8..6, station(), 1u8..4, prop::collection::vec(tag, 0..3))
        .prop_map(|(port, to, from, tags)| (port, frame(to, from, &tags)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn every_frame_goes_where_the_model_sends_it(
        settings in prop::collection::vec(settings(), 2..6),
        frames in prop::collection::vec((frames(), 1usize..5), 1..40),
    ) {
        let mut bed = Testbed::new(&settings);
        let has_vlans = settings.iter().any(|settings| settings.vlans != PortVlans::Unset);
        let ports = settings.len() as u8;
        let mut model = Model { settings, learned: HashMap::new() };
        for ((port, bytes), copies) in frames {
            let from = port % ports;
            // A switch without VLANs learns from a whole batch first.
            let batch = vec![bytes.clone(); if has_vlans { copies } else { 1 }];
            let expected: Vec<_> = batch.iter().map(|bytes| model.send(from, bytes)).collect();
            prop_assert_eq!(bed.send_part(from, &batch, batch.len()), expected, "{} {:x?}", from, bytes);
        }
    }
}
