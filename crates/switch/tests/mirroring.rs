//! Which ports look on at which frames.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::sync::Arc;

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::plan::{Decide, Destination, Fate, FrameCopy, Plan};
use ringroad_port::port_index::{PortIndex, PortMask};
use ringroad_switch::{LearningSwitch, MacTable, MacTableConfig, Mirror, Mirroring};

/// Decides this for each frame.
#[derive(Debug)]
struct Always(Fate);

impl Decide for Always {
    fn decide(&mut self, _from: PortIndex, batch: &Batch, first: usize, plan: &mut Plan) {
        plan.set_common(first..batch.frames(), self.0);
    }
}

fn mask<const N: usize>(ports: [u8; N]) -> PortMask {
    ports.map(PortIndex).into_iter().collect()
}

/// Where each of `count` frames from port 0 goes, on a switch with ports 0 to 4.
fn ways(fate: Fate, mirrors: &[Mirror], from: u8, count: usize) -> Vec<Result<Vec<u8>, DropCause>> {
    let switch = LearningSwitch::new(MacTable::new(MacTableConfig::new(0)).unwrap());
    for port in 0..5 {
        assert!(switch.ports.insert(PortIndex(port)));
    }
    let mut decider = Mirroring::new(Box::new(Always(fate)), Arc::new(switch), mirrors.to_vec());
    let mut batch = Batch::new();
    let bytes = [0; 60];
    for _ in 0..count {
        // SAFETY: the bytes outlive the batch, and nothing writes them.
        batch.push(unsafe { Fragment::from_private(&bytes, 0) }, true);
    }
    let mut plan = Plan::new();
    decider.decide(PortIndex(from), &batch, 0, &mut plan);
    let ports = |mask: PortMask| mask.iter().map(|port| port.0).collect::<Vec<_>>();
    let way = |fate| match fate {
        Fate::Port(port) => Ok(vec![port.0]),
        Fate::Ports(set) => Ok(ports(plan.ports(set))),
        Fate::Drop(cause) => Err(cause),
        Fate::Copies(id) => {
            let to = |copy: &FrameCopy| match copy.to {
                Destination::Port(port) => vec![port.0],
                Destination::Ports(set) => ports(plan.ports(set)),
                Destination::Others => unreachable!(),
            };
            Ok(plan.copies_of(id).iter().flat_map(to).collect())
        }
        Fate::Flood => Ok(vec![255]),
    };
    (0..count).map(|frame| way(plan.fate(frame))).collect()
}

const NONE: Mirror =
    Mirror { received: PortMask::EMPTY, delivered: PortMask::EMPTY, to: PortIndex(4), sample: 1 };

#[test]
fn frames_of_a_source_reach_its_mirror_beside_their_destination() {
    let to_1 = Fate::Port(PortIndex(1));
    let received = [Mirror { received: mask([0]), ..NONE }];
    assert_eq!(ways(to_1, &received, 0, 2), [Ok(vec![1, 4]), Ok(vec![1, 4])]);
    assert_eq!(ways(to_1, &received, 2, 1), [Ok(vec![1])]);
    let delivered = [Mirror { delivered: mask([1, 3]), ..NONE }];
    assert_eq!(ways(to_1, &delivered, 0, 1), [Ok(vec![1, 4])]);
    assert_eq!(ways(Fate::Port(PortIndex(2)), &delivered, 0, 1), [Ok(vec![2])]);
    let both = [Mirror { received: mask([0]), delivered: mask([1]), ..NONE }];
    assert_eq!(ways(to_1, &both, 0, 1), [Ok(vec![1, 4])], "once, though both say so");
}

#[test]
fn a_mirrors_port_gets_copies_alone_and_sends_nothing() {
    let mirrors = [Mirror { received: mask([0]), ..NONE }];
    assert_eq!(ways(Fate::Flood, &mirrors, 1, 1), [Ok(vec![0, 2, 3])]);
    assert_eq!(ways(Fate::Flood, &mirrors, 0, 1), [Ok(vec![1, 2, 3, 4])]);
    assert_eq!(ways(Fate::Port(PortIndex(4)), &mirrors, 1, 1), [Err(DropCause::NoDestination)]);
    assert_eq!(ways(Fate::Port(PortIndex(4)), &mirrors, 0, 1), [Ok(vec![4])]);
    assert_eq!(ways(Fate::Flood, &mirrors, 4, 2), vec![Err(DropCause::MirrorPort); 2]);
    let dropped = Fate::Drop(DropCause::TooShort);
    assert_eq!(ways(dropped, &mirrors, 0, 1), [Err(DropCause::TooShort)]);
}

#[test]
fn several_mirrors_look_on_and_a_sampling_one_at_one_frame_of_so_many() {
    let mirrors = [
        Mirror { received: mask([0]), sample: 3, ..NONE },
        Mirror { received: mask([0, 1]), to: PortIndex(3), ..NONE },
    ];
    let ways = ways(Fate::Port(PortIndex(1)), &mirrors, 0, 4);
    assert_eq!(ways, [vec![1, 3, 4], vec![1, 3], vec![1, 3], vec![1, 3, 4]].map(Ok));
}
