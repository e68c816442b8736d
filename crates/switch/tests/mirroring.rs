//! Tests of the ports that monitor frames.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::sync::Arc;

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{
    BatchPlan, Decision, Destination, ForwardingPlane, FrameCopy, Outcome,
};
use ringroad_port::frame::Fragment;
use ringroad_port::frame_record::FrameRecord;
use ringroad_port::port_index::{PortIndex, PortMask};
use ringroad_switch::{LearningSwitch, MacTable, MacTableConfig, MirrorRule, Mirroring};

/// Forwarding plane with the same outcome for each frame.
#[derive(Debug)]
struct Always(Outcome);

impl ForwardingPlane for Always {
    fn decide(
        &mut self,
        _: PortIndex,
        batch: &Batch,
        first: usize,
        _: u64,
        plan: &mut BatchPlan,
    ) -> Decision {
        plan.set_common(first..batch.frames(), self.0);
        Decision::all(batch)
    }
}

fn mask<const N: usize>(ports: [u8; N]) -> PortMask {
    ports.map(PortIndex).into_iter().collect()
}

/// A batch of `count` frames from port `from` of a switch with ports 0 to 4, and their outcomes.
fn decided(
    outcome: Outcome,
    mirrors: &[MirrorRule],
    from: u8,
    count: usize,
    bytes: &'static [u8],
) -> (Batch, BatchPlan, Mirroring) {
    decided_by(Box::new(Always(outcome)), mirrors, from, count, bytes)
}

/// Works as [`decided`], with another forwarding plane.
fn decided_by(
    inner: Box<dyn ForwardingPlane>,
    mirrors: &[MirrorRule],
    from: u8,
    count: usize,
    bytes: &'static [u8],
) -> (Batch, BatchPlan, Mirroring) {
    let switch = LearningSwitch::new(MacTable::new(MacTableConfig::new(0)).unwrap());
    for port in 0..5 {
        assert!(switch.ports.insert(PortIndex(port)));
    }
    let mut plane = Mirroring::new(inner, Arc::new(switch), mirrors.to_vec(), 3);
    let mut batch = Batch::new();
    for _ in 0..count {
        // SAFETY: the bytes outlive the batch, and nothing writes them.
        batch.push(unsafe { Fragment::from_private(bytes, 0) }, true);
    }
    let mut plan = BatchPlan::new();
    plane.decide(PortIndex(from), &batch, 0, u64::MAX, &mut plan);
    (batch, plan, plane)
}

/// Destinations of each of `count` frames.
fn ways(outcome: Outcome, mirrors: &[MirrorRule], from: u8, count: usize) -> Vec<Result<Vec<u8>, DropCause>> {
    let (_, plan, _) = decided(outcome, mirrors, from, count, &[0; 60]);
    let ports = |mask: PortMask| mask.iter().map(|port| port.0).collect::<Vec<_>>();
    let way = |outcome| match outcome {
        Outcome::Port(port) => Ok(vec![port.0]),
        Outcome::Ports(set) => Ok(ports(plan.ports(set))),
        Outcome::Drop(cause) => Err(cause),
        Outcome::Copies(id) => {
            let to = |copy: &FrameCopy| match copy.to {
                Destination::Port(port) => vec![port.0],
                Destination::Ports(set) => ports(plan.ports(set)),
                Destination::Others => unreachable!(),
            };
            Ok(plan.copies_of(id).iter().flat_map(to).collect())
        }
        Outcome::Flood => Ok(vec![255]),
    };
    (0..count).map(|frame| way(plan.outcome(frame))).collect()
}

const NONE: MirrorRule = MirrorRule {
    received: PortMask::EMPTY,
    delivered: PortMask::EMPTY,
    to: PortIndex(4),
    sample: 1,
    records: false,
};

#[test]
fn frames_of_a_source_reach_its_mirror_beside_their_destination() {
    let to_1 = Outcome::Port(PortIndex(1));
    let received = [MirrorRule { received: mask([0]), ..NONE }];
    assert_eq!(ways(to_1, &received, 0, 2), [Ok(vec![1, 4]), Ok(vec![1, 4])]);
    assert_eq!(ways(to_1, &received, 2, 1), [Ok(vec![1])]);
    let delivered = [MirrorRule { delivered: mask([1, 3]), ..NONE }];
    assert_eq!(ways(to_1, &delivered, 0, 1), [Ok(vec![1, 4])]);
    assert_eq!(ways(Outcome::Port(PortIndex(2)), &delivered, 0, 1), [Ok(vec![2])]);
    let both = [MirrorRule { received: mask([0]), delivered: mask([1]), ..NONE }];
    assert_eq!(ways(to_1, &both, 0, 1), [Ok(vec![1, 4])], "once, though both request it");
}

#[test]
fn a_mirrors_port_gets_copies_alone_and_sends_nothing() {
    let mirrors = [MirrorRule { received: mask([0]), ..NONE }];
    assert_eq!(ways(Outcome::Flood, &mirrors, 1, 1), [Ok(vec![0, 2, 3])]);
    assert_eq!(ways(Outcome::Flood, &mirrors, 0, 1), [Ok(vec![1, 2, 3, 4])]);
    assert_eq!(ways(Outcome::Port(PortIndex(4)), &mirrors, 1, 1), [Err(DropCause::NoDestination)]);
    assert_eq!(ways(Outcome::Port(PortIndex(4)), &mirrors, 0, 1), [Ok(vec![4])]);
    assert_eq!(ways(Outcome::Flood, &mirrors, 4, 2), vec![Err(DropCause::MirrorPort); 2]);
    let dropped = Outcome::Drop(DropCause::TooShort);
    assert_eq!(ways(dropped, &mirrors, 0, 1), [Err(DropCause::TooShort)]);
}

#[test]
fn several_mirrors_copy_frames_and_a_sampling_one_copies_one_frame_of_each_group() {
    let mirrors = [
        MirrorRule { received: mask([0]), sample: 3, ..NONE },
        MirrorRule { received: mask([0, 1]), to: PortIndex(3), ..NONE },
    ];
    let ways = ways(Outcome::Port(PortIndex(1)), &mirrors, 0, 240);
    let (sampled, other) = (Ok(vec![1, 3, 4]), Ok(vec![1, 3]));
    assert!(ways.iter().all(|way| *way == sampled || *way == other));
    let positions: Vec<_> =
        ways.chunks(3).map(|row| row.iter().position(|way| *way == sampled).unwrap()).collect();
    assert!(ways.chunks(3).all(|row| row.iter().filter(|way| **way == sampled).count() == 1));
    for index in 0..3 {
        assert!(positions.iter().filter(|other| **other == index).count() > 10, "{positions:?}");
    }
}

/// Forwarding plane that sends each frame to port 1 with other headers, to ports 2 and 4 unchanged, and to its own port
/// with a header in front.
#[derive(Debug)]
struct Rewrites;

const OWN_PORT: PortIndex = PortIndex(3);

impl ForwardingPlane for Rewrites {
    fn decide(
        &mut self,
        _: PortIndex,
        batch: &Batch,
        first: usize,
        _: u64,
        plan: &mut BatchPlan,
    ) -> Decision {
        for frame in first..batch.frames() {
            let (other, in_front) = (plan.rewrite(12, b"other"), plan.rewrite(0, b"header"));
            let set = plan.set(mask([2, 4])).unwrap();
            let copy = |to, rewrite| FrameCopy { to, rewrite };
            plan.copy(
                frame,
                &[
                    copy(Destination::Port(PortIndex(1)), other),
                    copy(Destination::Ports(set), None),
                    copy(Destination::Port(OWN_PORT), in_front),
                ],
            );
        }
        Decision::all(batch)
    }

    fn own_port(&self) -> Option<PortIndex> {
        Some(OWN_PORT)
    }
}

#[test]
fn a_frame_with_other_headers_is_seen_as_it_came_and_as_it_leaves() {
    let seen = |mirrors: &[MirrorRule], from: u8| {
        let (_, plan, _) = decided_by(Box::new(Rewrites), mirrors, from, 1, &[0; 60]);
        let Outcome::Copies(id) = plan.outcome(0) else { panic!("{:?}", plan.outcome(0)) };
        let of = |copy: &FrameCopy| {
            let ports = match copy.to {
                Destination::Port(port) => vec![port.0],
                Destination::Ports(set) => plan.ports(set).iter().map(|port| port.0).collect(),
                Destination::Others => unreachable!(),
            };
            let head = copy
                .rewrite
                .and_then(|head| plan.rewrite_of(head))
                .map_or("", |head| str::from_utf8(head.bytes).unwrap());
            (ports, head.to_owned())
        };
        let mut all: Vec<(Vec<u8>, String)> = plan.copies_of(id).iter().map(of).collect();
        let decided = [(vec![1], "other"), (vec![2], ""), (vec![3], "header")];
        let decided = decided.map(|(ports, head)| (ports, head.to_owned()));
        assert_eq!(all[..3], decided, "the mirror's port is taken out");
        let forms = all.split_off(3).into_iter().map(|(ports, head)| {
            assert_eq!(ports, [4]);
            head
        });
        forms.collect::<Vec<_>>()
    };
    let [received, delivered] = [mask([0]), mask([1])];
    assert_eq!(seen(&[MirrorRule { received, ..NONE }], 0), [""]);
    assert_eq!(seen(&[MirrorRule { received, ..NONE }], 1), [""; 0]);
    assert_eq!(seen(&[MirrorRule { delivered, ..NONE }], 0), ["other"]);
    assert_eq!(seen(&[MirrorRule { received, delivered, ..NONE }], 0), ["", "other"]);
    let unchanged = MirrorRule { received, delivered: mask([2]), ..NONE };
    assert_eq!(seen(&[unchanged, unchanged], 0), [""], "once, though all request it");
    // Frames to the forwarding plane's own port are not mirrored: they have headers of its own.
    assert_eq!(seen(&[MirrorRule { delivered: mask([3]), ..NONE }], 0), [""; 0]);
    assert_eq!(seen(&[MirrorRule { received: PortMask::all(), ..NONE }], 3), ["other"]);
}

/// Record in a copy of a frame, and the port that gets it.
fn record(plan: &BatchPlan, frame: usize) -> Option<(PortIndex, FrameRecord, Vec<u8>)> {
    let Outcome::Copies(id) = plan.outcome(frame) else { return None };
    let copy = plan.copies_of(id).iter().find(|copy| copy.rewrite.is_some())?;
    let head = plan.rewrite_of(copy.rewrite?)?;
    let (record, start) = FrameRecord::read(head.bytes)?;
    assert_eq!(head.replaces, record.frame_bytes as usize, "nothing is left of the frame");
    let Destination::Ports(set) = copy.to else { return None };
    Some((plan.ports(set).iter().next()?, record, start.to_vec()))
}

#[test]
fn a_record_replaces_the_frame_and_names_its_ports() {
    const BYTES: [u8; 200] = [9; 200];
    let mirrors = [MirrorRule { received: PortMask::all(), records: true, ..NONE }];
    let (batch, mut plan, mut plane) = decided(Outcome::Flood, &mirrors, 2, 3, &BYTES);
    let (monitor, flooded, start) = record(&plan, 1).unwrap();
    let wanted = FrameRecord {
        number: 1,
        frame_bytes: 200,
        from: PortIndex(2),
        destinations: 3,
        to: PortIndex(0),
        worker: 3,
    };
    assert_eq!((monitor, flooded, start), (PortIndex(4), wanted, vec![9; 128]));
    // Numbers are counted per port, and continue after the executed frames.
    plane.executed(PortIndex(2), &batch, 0..2, &plan);
    for (from, number) in [(2, 2), (1, 0)] {
        plan.reset(0..3);
        plane.decide(PortIndex(from), &batch, 0, u64::MAX, &mut plan);
        assert_eq!(record(&plan, 0).unwrap().1.number, number);
    }
}

#[test]
fn a_frame_without_a_destination_has_a_record_and_a_dropped_one_has_none() {
    let mirrors = [MirrorRule { received: PortMask::all(), records: true, ..NONE }];
    let (_, plan, _) = decided(Outcome::Port(PortIndex(4)), &mirrors, 1, 1, &[0; 60]);
    let (_, record_of_it, start) = record(&plan, 0).unwrap();
    assert_eq!((record_of_it.destinations, start.len()), (0, 60));
    let (_, plan, _) = decided(Outcome::Drop(DropCause::Looped), &mirrors, 1, 1, &[0; 60]);
    assert_eq!(plan.outcome(0), Outcome::Drop(DropCause::Looped));
}
