use proptest::prelude::*;
use ringroad_port::batch::BATCH_FRAMES;

use super::*;
use crate::test_queue::frames_of;
use crate::virtio_user::tests::{BackEnd, ENTRIES};

const USUAL: usize = 1518;

fn ring(is_mergeable: bool) -> (BackEnd, ReceiveRing) {
    let (back_end, memory) = BackEnd::with_ring();
    let mut ring = ReceiveRing::new(memory, true, is_mergeable, false);
    ring.publish();
    (back_end, ring)
}

fn receive(ring: &mut ReceiveRing) -> (Batch, Result<(), UsedRingFault>) {
    let mut batch = Batch::new();
    batch.reset(BATCH_FRAMES);
    let mut longest = usize::MAX;
    let outcome = ring.receive(&mut batch, &mut longest);
    (batch, outcome)
}

fn frame(number: u32, len: usize) -> Vec<u8> {
    (0..len).map(|offset| (number as usize * 7 + offset) as u8).collect()
}

#[test]
fn frames_come_as_they_were_written_lap_after_lap() {
    let (mut back_end, mut ring) = ring(true);
    assert_eq!(back_end.available(), ENTRIES);
    for lap in 0..2000 {
        let sent: Vec<_> = (0..u32::from(ENTRIES) / 2).map(|number| frame(lap + number, 60)).collect();
        sent.iter().for_each(|frame| back_end.fill(1, frame));
        back_end.publish();
        assert_eq!(ring.has_waiting(), Ok(true));
        let (batch, outcome) = receive(&mut ring);
        assert_eq!(outcome, Ok(()));
        assert_eq!(frames_of(&batch), sent);
        assert!(!ring.is_quiescent());
        ring.release(batch.slots());
        ring.publish();
        assert!(ring.is_quiescent());
        assert_eq!((back_end.available(), ring.has_waiting()), (ENTRIES, Ok(false)));
    }
}

#[test]
fn a_frame_of_several_buffers_is_one() {
    let (mut back_end, mut ring) = ring(true);
    let first = frame(1, BUFFER_BYTES - NET_HEADER_BYTES);
    back_end.fill(3, &first);
    back_end.publish();
    // The rest of the frame has not come yet.
    assert_eq!(receive(&mut ring).0.frames(), 0);
    let mut sent = first;
    for number in 2..4 {
        let head = back_end.take();
        let part = frame(number, 1000);
        back_end.write(back_end.descriptor(head).address, &part);
        back_end.put_used(head.into(), 1000);
        sent.extend(part);
    }
    back_end.fill(1, b"the next");
    back_end.publish();
    let (batch, outcome) = receive(&mut ring);
    assert_eq!(outcome, Ok(()));
    assert_eq!(frames_of(&batch), [sent, b"the next".to_vec()]);
    assert_eq!(batch.slots(), 4);
}

#[test]
fn without_mergeable_buffers_the_number_in_the_header_means_nothing() {
    let (mut back_end, mut ring) = ring(false);
    back_end.fill(7, b"alone");
    back_end.publish();
    assert_eq!(frames_of(&receive(&mut ring).0), [b"alone"]);
}

#[test]
fn a_frame_longer_than_was_expected_waits_for_room_to_be_made() {
    let (mut back_end, mut ring) = ring(true);
    back_end.fill(1, &frame(1, 60));
    back_end.fill(1, &frame(2, 2000));
    back_end.publish();
    let mut longest = USUAL;
    for expected in [60, 2000] {
        let mut batch = Batch::new();
        batch.reset(BATCH_FRAMES);
        ring.receive(&mut batch, &mut longest).unwrap();
        assert_eq!((batch.frames(), batch.bytes(), longest), (1, expected, 2000));
    }
}

#[test]
fn each_violation_is_reported_and_earlier_frames_are_lent() {
    let full = BUFFER_BYTES as u32;
    let wrong: [(u32, u32, u16, UsedRingFault); 7] = [
        (64, 100, 1, UsedRingFault::NotItsOwn(64)),
        (u32::MAX, 100, 1, UsedRingFault::NotItsOwn(u32::MAX)),
        (0, 100, 1, UsedRingFault::NotItsOwn(0)),
        (5, full + 1, 1, UsedRingFault::Length(full + 1)),
        (5, 11, 1, UsedRingFault::Length(11)),
        (5, 100, 0, UsedRingFault::Buffers(0)),
        (5, 100, 65, UsedRingFault::Buffers(65)),
    ];
    for (id, len, buffers, fault) in wrong {
        let (mut back_end, mut ring) = ring(true);
        back_end.fill(1, b"a right one");
        if id < 64 {
            let address = back_end.descriptor(id as u16).address;
            if id != 0 {
                back_end.write(address + 10, &buffers.to_le_bytes());
            }
        }
        back_end.put_used(id, len);
        back_end.publish();
        let (batch, outcome) = receive(&mut ring);
        assert_eq!(outcome, Err(fault));
        assert_eq!(frames_of(&batch), [b"a right one"]);
        ring.release(batch.slots());
        assert!(ring.is_quiescent());
    }
    let (mut back_end, mut ring) = ring(true);
    back_end.used = ENTRIES + 1;
    back_end.publish();
    assert_eq!(receive(&mut ring).1, Err(UsedRingFault::UsedIndex { claimed: 65, has: 64 }));
}

proptest! {
    #[test]
    fn for_any_used_ring_only_its_own_buffers_are_lent(
        entries in prop::collection::vec((0..80u32, 0..2300u32, prop_oneof![Just(1u16), 0..70u16]), 1..100),
        steps in prop::collection::vec(1..20u16, 1..10),
    ) {
        let (mut back_end, mut ring) = ring(true);
        let mut entries = entries.into_iter();
        for step in steps {
            for (id, len, buffers) in entries.by_ref().take(step.into()) {
                if id < u32::from(ENTRIES) {
                    back_end.write(back_end.descriptor(id as u16).address + 10, &buffers.to_le_bytes());
                }
                back_end.put_used(id, len);
            }
            back_end.publish();
            let (batch, outcome) = receive(&mut ring);
            for frame in 0..batch.frames() {
                prop_assert!(batch.frame(frame).iter().all(|fragment| fragment.len() <= BUFFER_BYTES));
                prop_assert_eq!(batch.frame(frame).last().map(Fragment::has_more), Some(false));
            }
            frames_of(&batch);
            prop_assert_eq!(ring.borrowed.len(), batch.slots());
            ring.release(batch.slots());
            ring.publish();
            if outcome.is_err() {
                break;
            }
        }
    }
}
