use proptest::prelude::*;

use super::*;
use crate::virtio_user::tests::{BackEnd, ENTRIES};

fn ring() -> (BackEnd, SendRing) {
    let (back_end, memory) = BackEnd::with_ring();
    (back_end, SendRing::new(memory, true))
}

#[allow(unsafe_code)]
fn fragment(bytes: &[u8]) -> Fragment {
    // SAFETY: the tests keep the sent bytes.
    unsafe { Fragment::from_private(bytes, 0) }
}

fn put(ring: &mut SendRing, parts: &[&[u8]]) -> Result<(), DropCause> {
    let fragments: Vec<_> = parts.iter().map(|part| fragment(part)).collect();
    let bytes = parts.iter().map(|part| part.len()).sum();
    ring.put(&fragments, bytes, Unfinished::default())
}

/// Head of the next frame, and its bytes, header included.
fn take(back_end: &mut BackEnd) -> (u16, Vec<u8>) {
    let head = back_end.take();
    let (mut index, mut bytes) = (head, Vec::new());
    loop {
        let descriptor = back_end.descriptor(index);
        bytes.extend(back_end.bytes(descriptor.address, descriptor.len as usize));
        if descriptor.flags & DESC_NEXT == 0 {
            return (head, bytes);
        }
        index = descriptor.next;
    }
}

#[test]
fn frames_arrive_as_they_are_behind_a_header_of_zeros() {
    let (mut back_end, mut ring) = ring();
    let long: Vec<u8> = (0..9000).map(|offset| (offset % 251) as u8).collect();
    for lap in 0..300usize {
        let short = [lap as u8; 60];
        put(&mut ring, &[&short]).unwrap();
        put(&mut ring, &[&short[..14], &long[..5000 + lap], b"end"]).unwrap();
        put(&mut ring, &[&long]).unwrap();
        ring.publish();
        assert_eq!(back_end.available(), 3);
        let scattered = [&short[..14], &long[..5000 + lap], b"end"].concat();
        let mut heads = Vec::new();
        for sent in [&short[..], &scattered, &long] {
            let (head, bytes) = take(&mut back_end);
            assert_eq!(bytes[..NET_HEADER_BYTES], [0; NET_HEADER_BYTES]);
            assert!(&bytes[NET_HEADER_BYTES..] == sent);
            heads.push(head);
        }
        // The buffers come back in any order.
        heads.rotate_left(lap % 3);
        heads.iter().for_each(|&head| back_end.put_used(head.into(), 0));
        back_end.publish();
        ring.make_free(usize::MAX).unwrap();
        assert_eq!(ring.free.len(), usize::from(ENTRIES));
    }
}

#[test]
fn a_header_describes_what_is_left_to_do_and_is_cleared_for_the_next_frame() {
    let (mut back_end, mut ring) = ring();
    let said = Unfinished::from_header(&[1, 0, 0, 0, 0, 0, 34, 0, 6, 0]);
    let frame = [3; 60];
    for lap in 0..2 * ENTRIES {
        let unfinished = if lap % 3 == 0 { said } else { Unfinished::default() };
        ring.put(&[fragment(&frame)], 60, unfinished).unwrap();
        ring.publish();
        let (head, bytes) = take(&mut back_end);
        assert_eq!(bytes[..VIRTIO_HEADER_BYTES], unfinished.to_header());
        back_end.put_used(head.into(), 0);
        back_end.publish();
        ring.make_free(usize::MAX).unwrap();
    }
}

#[test]
fn a_full_ring_takes_nothing_until_something_comes_back() {
    let (mut back_end, mut ring) = ring();
    assert_eq!(ring.room(60, 256), Ok(usize::from(ENTRIES)));
    assert_eq!(ring.room(65535, 256), Ok(usize::from(ENTRIES) / 30));
    for _ in 0..ENTRIES {
        put(&mut ring, &[&[1; 60]]).unwrap();
    }
    assert_eq!(put(&mut ring, &[&[1; 60]]), Err(DropCause::NoSpace));
    assert_eq!(put(&mut ring, &[&[1; 65535], &[1]]), Err(DropCause::TooLong));
    ring.publish();
    assert_eq!(ring.room(60, 256), Ok(0));
    assert_eq!(ring.arm_for_all(), Ok(false));
    let head = back_end.take();
    back_end.put_used(head.into(), 0);
    back_end.publish();
    assert_eq!(ring.room(60, 256), Ok(1));
    put(&mut ring, &[&[1; 60]]).unwrap();
}

#[test]
fn what_the_back_end_does_not_have_it_cannot_return() {
    for (id, fault) in [(64, UsedRingFault::NotItsOwn(64)), (7, UsedRingFault::NotItsOwn(7))] {
        let (mut back_end, mut ring) = ring();
        put(&mut ring, &[&[1; 60]]).unwrap();
        ring.publish();
        back_end.put_used(id, 0);
        back_end.publish();
        assert_eq!(ring.make_free(usize::MAX), Err(fault));
    }
    let (mut back_end, mut ring) = ring();
    put(&mut ring, &[&[1; 60]]).unwrap();
    ring.publish();
    back_end.used = 2;
    back_end.publish();
    assert_eq!(ring.make_free(usize::MAX), Err(UsedRingFault::UsedIndex { claimed: 2, has: 1 }));
}

proptest! {
    #[test]
    fn for_any_returned_entries_no_buffer_is_free_twice(
        returned in prop::collection::vec(0..70u32, 1..200),
        lengths in prop::collection::vec(1..9000usize, 1..200),
    ) {
        let (mut back_end, mut ring) = ring();
        let bytes = vec![1; 9000];
        for (id, length) in returned.into_iter().zip(lengths) {
            let _ = put(&mut ring, &[&bytes[..length]]);
            ring.publish();
            back_end.put_used(id, 0);
            back_end.publish();
            if ring.make_free(usize::MAX).is_err() {
                break;
            }
            let mut free: Vec<_> = ring.free.iter().collect();
            free.sort_unstable();
            free.dedup();
            prop_assert_eq!(free.len(), ring.free.len());
        }
    }
}
