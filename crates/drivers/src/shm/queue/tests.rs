//! Tests of which published frames a queue takes, and when.
#![allow(clippy::unwrap_used)]

use ringroad_ring::layout::Direction;
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use ringroad_ring::program_end::ProgramEnd;
use ringroad_ring::region::HugePages;

use super::super::{PortShape, ShmPort};
use super::*;

const SLOTS: u32 = 64;

fn site() -> (ShmPort, ShmQueue, ProgramEnd) {
    let shape = PortShape { slots: SLOTS, huge_pages: HugePages::Never, ..PortShape::DEFAULT };
    let port = ShmPort::create("p", shape).unwrap();
    let queue = port.queue(0, Arc::default()).unwrap();
    let ring = RingView::new(port.region(), port.placement().tx_rings[0], SLOTS).unwrap();
    (port, queue, ProgramEnd::take_up(ring, Direction::Tx))
}

/// Publishes slots of 60 bytes; `more` marks those that the next slot continues.
fn publish(program: &mut ProgramEnd, more: &[bool]) {
    let window = program.window_mut();
    for (index, more) in (0..).zip(more) {
        window.set(index, 60, if *more { MORE_FRAGMENTS } else { 0 });
    }
    window.advance(more.len() as u32);
    program.sync().unwrap();
}

fn take(queue: &mut ShmQueue) -> Vec<usize> {
    let mut batch = Batch::new();
    batch.reset(BATCH_FRAMES);
    queue.receive(&mut batch);
    queue.release(batch.slots());
    queue.flush();
    (0..batch.frames()).map(|frame| batch.frame(frame).len()).collect()
}

#[test]
fn a_closed_queue_takes_only_frames_published_before_the_close() {
    let (_port, mut queue, mut program) = site();
    publish(&mut program, &[false; 3]);
    queue.close();
    publish(&mut program, &[false; 5]);
    queue.close();
    assert_eq!(take(&mut queue), [1; 3]);
    assert_eq!(take(&mut queue), [0; 0]);
}

#[test]
fn a_frame_in_parts_is_taken_only_when_it_is_whole() {
    let (_port, mut queue, mut program) = site();
    for _ in 0..3 {
        publish(&mut program, &[false, true, true]);
        assert!(queue.has_waiting());
        assert_eq!(take(&mut queue), [1]);
        for _ in 0..3 {
            assert!(!queue.has_waiting());
            assert_eq!(take(&mut queue), [0; 0]);
        }
        publish(&mut program, &[true]);
        assert!(!queue.has_waiting());
        assert_eq!(take(&mut queue), [0; 0]);
        publish(&mut program, &[false, false]);
        assert!(queue.has_waiting());
        assert_eq!(take(&mut queue), [4, 1]);
        assert!(!queue.has_waiting());
    }
}
