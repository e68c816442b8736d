//! Tests of switches with a cable between two of their ports: frames in the loop end, and other frames pass.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use ringroad_port::batch::Batch;
use ringroad_port::clock::Clock;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{BatchPlan, Destination, ForwardingPlane, Outcome};
use ringroad_port::frame::Fragment;
use ringroad_port::port_index::{PortIndex, PortMask};
use ringroad_port::port_settings::{PortSettings, PortVlans};
use ringroad_switch::loop_guard::{BLOCKED_S, REPEATS_PER_S};
use ringroad_switch::{LearningSwitch, MacTable, MacTableConfig, Policing, PortPolicies, PortPolicy};

const BROADCAST: [u8; 6] = [0xff; 6];
/// The ports that the cable joins.
const CABLED: [u8; 2] = [1, 2];
/// Number of frames that a loop carries before a test gives up: many more than are needed to find the loop.
const MOST_LAPS: usize = 200 * REPEATS_PER_S as usize;
/// Time to forward a frame, ns.
const FRAME_NS: u64 = 10_000;

/// Settings that select the other forwarding plane, and allow all frames that the tests send.
fn limited() -> Vec<(u8, PortSettings)> {
    (0..5).map(|port| (port, PortSettings { storm: Some(u32::MAX), ..PortSettings::default() })).collect()
}

fn station(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// A frame of 60 bytes that differs from others by its number.
fn frame(to: [u8; 6], from: [u8; 6], number: u16) -> Vec<u8> {
    let mut bytes = [&to[..], &from, &[8, 0], &number.to_be_bytes()].concat();
    bytes.resize(60, 0);
    bytes
}

/// A switch with ports 0 to 4, of which two are joined by a cable.
struct Testbed {
    switch: Arc<LearningSwitch>,
    plane: Box<dyn ForwardingPlane>,
    /// Time; each frame takes [`FRAME_NS`].
    clock: Clock,
    /// Frames on the cable, each with the port by which it comes in.
    cable: VecDeque<(u8, Vec<u8>)>,
    /// Frames that the stations got, by port.
    got: Vec<(u8, Vec<u8>)>,
    looped: usize,
    /// Number of frames entering the cable of which one is lost; 0: none is lost.
    loses: usize,
    entered: usize,
}

impl Testbed {
    fn new(settings: &[(u8, PortSettings)]) -> Self {
        let (table, clock) = (MacTable::new(MacTableConfig::new(7)).unwrap(), Clock::manual());
        let switch = Arc::new(LearningSwitch::with_clock(table, clock.clone()));
        (0..5).for_each(|port| assert!(switch.ports.insert(PortIndex(port))));
        let plane: Box<dyn ForwardingPlane> = if settings.is_empty() {
            switch.forwarding_plane()
        } else {
            let policies: Vec<_> = settings
                .iter()
                .map(|(port, settings)| (PortIndex(*port), PortPolicy::new(settings.clone())))
                .collect();
            let policies = PortPolicies::new(policies.iter().map(|(port, policy)| (*port, policy)));
            Box::new(Policing::new(Arc::clone(&switch), Arc::new(policies), clock.clone()))
        };
        let (cable, got) = (VecDeque::new(), Vec::new());
        Self { switch, plane, clock, cable, got, looped: 0, loses: 0, entered: 0 }
    }

    fn send(&mut self, from: u8, bytes: &[u8]) {
        self.clock.advance(FRAME_NS);
        let mut batch = Batch::new();
        // SAFETY: the frame outlives the batch, and nothing writes to it.
        batch.push(unsafe { Fragment::from_private(bytes, 0) }, true);
        let mut plan = BatchPlan::new();
        plan.reset(0..1);
        self.plane.decide(PortIndex(from), &batch, 0, u64::MAX, &mut plan);
        self.plane.executed(PortIndex(from), &batch, 0..1, &plan);
        let to = |to: Destination| -> PortMask {
            match to {
                Destination::Port(port) => [port].into_iter().collect(),
                Destination::Others => self.switch.ports.iter().filter(|port| port.0 != from).collect(),
                Destination::Ports(set) => plan.ports(set),
            }
        };
        let copies: Vec<(PortMask, Vec<u8>)> = match plan.outcome(0) {
            Outcome::Drop(cause) => {
                self.looped += usize::from(cause == DropCause::Looped);
                return;
            }
            Outcome::Port(port) => vec![(to(Destination::Port(port)), bytes.to_vec())],
            Outcome::Flood => vec![(to(Destination::Others), bytes.to_vec())],
            Outcome::Ports(set) => vec![(to(Destination::Ports(set)), bytes.to_vec())],
            Outcome::Copies(copies) => {
                let copies = plan.copies_of(copies).iter().map(|copy| {
                    let head = copy.rewrite.and_then(|head| plan.rewrite_of(head));
                    let bytes = head.map_or_else(
                        || bytes.to_vec(),
                        |head| [head.bytes, &bytes[head.replaces..]].concat(),
                    );
                    (to(copy.to), bytes)
                });
                copies.collect()
            }
        };
        for (ports, bytes) in copies {
            for port in ports.iter() {
                match CABLED.iter().position(|&cabled| cabled == port.0) {
                    Some(end) => {
                        self.entered += 1;
                        if self.loses == 0 || !self.entered.is_multiple_of(self.loses) {
                            self.cable.push_back((CABLED[1 - end], bytes.clone()));
                        }
                    }
                    None => self.got.push((port.0, bytes.clone())),
                }
            }
        }
    }

    /// Carries frames through the cable until none is left; returns their number.
    fn settle(&mut self) -> usize {
        let mut laps = 0;
        while let Some((port, bytes)) = self.cable.pop_front() {
            laps += 1;
            assert!(laps < MOST_LAPS, "{} frames go round", self.cable.len() + 1);
            self.send(port, &bytes);
        }
        laps
    }

    fn access(vlan: u16) -> PortSettings {
        PortSettings { vlans: PortVlans::Access(vlan), ..PortSettings::default() }
    }

    fn got_by(&self, port: u8, number: u16) -> usize {
        let is_it =
            |bytes: &[u8]| bytes.windows(4).any(|part| part == [&[8, 0], &number.to_be_bytes()[..]].concat());
        self.got.iter().filter(|(at, bytes)| *at == port && is_it(bytes)).count()
    }
}

#[test]
fn a_storm_ends_and_one_end_of_the_loop_is_reported() {
    let mut bed = Testbed::new(&[]);
    for number in 0..300 {
        bed.send(0, &frame(BROADCAST, station(0), number));
    }
    assert!(bed.settle() > REPEATS_PER_S as usize);
    let blocked = bed.switch.loops.take_blocked().unwrap();
    assert!(CABLED.contains(&blocked.0), "{blocked:?}");
    assert_eq!(bed.switch.loops.take_blocked(), None, "it is reported once");
    assert!(bed.looped > 0);
}

#[test]
fn one_copy_that_always_comes_by_the_same_port_ends_too() {
    for first in CABLED {
        let mut bed = Testbed::new(&[]);
        // The frame comes from the cable itself, so no port has seen it before.
        bed.send(first, &frame(BROADCAST, station(9), 1));
        assert!(bed.settle() > REPEATS_PER_S as usize);
        assert_eq!(bed.switch.loops.take_blocked(), Some(PortIndex(first)));
    }
}

#[test]
fn a_storm_ends_where_the_loop_loses_frames() {
    for loses in 2..40 {
        let mut bed = Testbed::new(&[]);
        bed.loses = loses;
        for number in 0..50 {
            bed.send(0, &frame(BROADCAST, station(0), number));
        }
        bed.settle();
    }
}

#[test]
fn a_storm_in_a_vlan_ends_where_stations_have_no_tags() {
    let mut bed =
        Testbed::new(&[(0, Testbed::access(10)), (3, Testbed::access(10)), (4, Testbed::access(20))]);
    for number in 0..100 {
        bed.send(0, &frame(BROADCAST, station(0), number));
    }
    assert!(bed.settle() > REPEATS_PER_S as usize);
    assert!(bed.switch.loops.take_blocked().is_some_and(|port| CABLED.contains(&port.0)));
    let (own, other) = (bed.got.iter().filter(|(port, _)| *port == 3).count(), bed.got_by(4, 1));
    assert!(own >= 100 && other == 0, "{own} in the VLAN, {other} in another");
    let probes = bed.got.iter().filter(|(_, bytes)| bytes[12..14] == [0x90, 0]).count();
    assert!(probes >= 1, "a probe has the form that a station of the VLAN gets");
}

#[test]
fn while_a_loop_is_cut_stations_lose_nothing_and_get_nothing_twice() {
    for settings in [Vec::new(), limited()] {
        let mut bed = Testbed::new(&settings);
        bed.send(3, &frame(BROADCAST, station(3), 0));
        bed.send(0, &frame(BROADCAST, station(0), 1));
        bed.settle();
        assert!(bed.switch.loops.take_blocked().is_some());
        // The steps cover the time from the cut to the end of the block.
        for number in 1000..1150 {
            bed.clock.advance(u64::from(BLOCKED_S) * 1_000_000_000 / 160);
            // Addresses learned in the loop mislead no frame. Each frame has left the cable before the next.
            for (from, to, with) in
                [(0, station(3), number), (3, station(0), number), (4, BROADCAST, number + 1000)]
            {
                bed.send(from, &frame(to, station(from), with));
                let laps = bed.settle();
                assert!(laps < 10, "{laps} at {number}");
            }
            assert_eq!([3, 0].map(|port| bed.got_by(port, number)), [1, 1], "{number}");
            assert_eq!([0, 3].map(|port| bed.got_by(port, number + 1000)), [1, 1], "{number}");
        }
    }
}

#[test]
fn frames_to_a_station_behind_the_blocked_port_pass() {
    let mut bed = Testbed::new(&[]);
    bed.send(1, &frame(BROADCAST, station(9), 1));
    bed.settle();
    assert_eq!(bed.switch.loops.take_blocked(), Some(PortIndex(1)));
    // Nothing is learned until frames of the loop have come in.
    bed.clock.advance(2_000_000_000);
    bed.send(0, &frame(BROADCAST, station(0), 2));
    bed.settle();
    // The station's port is learned from its frame to a learned address.
    bed.send(1, &frame(station(0), station(9), 3));
    assert_eq!(bed.got_by(0, 3), 1);
    bed.send(0, &frame(station(9), station(0), 4));
    assert_eq!(bed.cable.iter().filter(|(port, _)| *port == 2).count(), 1, "it left by port 1");
}

#[test]
fn a_frame_to_a_learned_address_goes_round_once() {
    for settings in [Vec::new(), limited()] {
        let mut bed = Testbed::new(&settings);
        bed.send(1, &frame(BROADCAST, station(9), 1));
        bed.settle();
        assert_eq!(bed.switch.loops.take_blocked(), Some(PortIndex(1)));
        bed.clock.advance(2_000_000_000);
        bed.send(3, &frame(BROADCAST, station(3), 2));
        bed.settle();
        // The station was at the other end of the loop a moment ago, and is gone.
        bed.send(2, &frame(BROADCAST, station(0), 3));
        let looped = bed.looped;
        bed.send(3, &frame(station(0), station(3), 4));
        assert_eq!(bed.cable.len(), 1);
        assert_eq!((bed.settle(), bed.looped - looped), (1, 1));
        bed.send(0, &frame(station(3), station(0), 5));
        assert_eq!(bed.got_by(3, 5), 1, "the sender is still where it was");
    }
}

#[test]
fn a_program_that_floods_copies_of_one_frame_loses_none_and_provokes_few_probes() {
    let mut bed = Testbed::new(&[]);
    bed.switch.ports.remove(PortIndex(1));
    bed.switch.ports.remove(PortIndex(2));
    let one = frame(BROADCAST, station(0), 1);
    for _ in 0..100_000 {
        bed.send(0, &one);
    }
    assert_eq!((bed.looped, bed.switch.loops.take_blocked()), (0, None));
    let copies = bed.got.iter().filter(|(port, bytes)| *port == 3 && *bytes == one).count();
    assert_eq!(copies, 100_000);
    let probes = bed.got.iter().filter(|(port, bytes)| *port == 3 && *bytes != one).count();
    assert!((1..=13).contains(&probes), "{probes}");
}

#[test]
fn a_port_that_gets_the_index_of_a_blocked_one_is_not_blocked() {
    let mut bed = Testbed::new(&[]);
    bed.send(1, &frame(BROADCAST, station(9), 1));
    bed.settle();
    bed.switch.loops.release(PortIndex(1));
    bed.send(0, &frame(BROADCAST, station(0), 2));
    assert_eq!(bed.cable.len(), 2);
}

#[test]
fn frames_that_differ_in_a_number_alone_provoke_no_probe() {
    let mut bed = Testbed::new(&[]);
    bed.switch.ports.remove(PortIndex(1));
    bed.switch.ports.remove(PortIndex(2));
    for number in 0..10_000_u64 {
        let mut bytes = [&BROADCAST[..], &station(0), &[0x88, 0xb5], &number.to_be_bytes()].concat();
        bytes.resize([60, 61, 777, 1514][number as usize % 4], 0x5a);
        bed.send(0, &bytes);
    }
    assert_eq!(bed.got.iter().filter(|(port, _)| *port == 3).count(), 10_000);
}
