//! Tests of the buffers of frames: several per frame, lent, exchanged, used up.
#![allow(unsafe_code)]

use super::*;

#[test]
fn jumbo_frames_take_several_buffers() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 9000);
        for mode in [AfXdpMode::Native, AfXdpMode::Generic] {
            let mut device = open(&XdpConfig { mtu: 9000, ..config(near, mode) }).unwrap();
            let queue = &mut device.queues[0];
            assert!(device.notes.is_empty(), "{:?}", device.notes);
            assert!(queue.longest_frame_bytes() >= 9014);
            for round in 0..30 {
                let sent: Vec<Vec<u8>> = [1792, 1793, 3584, 3600, 60, 9014]
                    .into_iter()
                    .map(|length| frame(round, length))
                    .collect();
                for frame in &sent {
                    far.send(frame);
                }
                assert_eq!(receive(queue, sent.len()), sent);
                assert_eq!(deliver(queue, &sent).frames, 6);
                for frame in &sent {
                    assert!(far.receive() == *frame, "a frame of {} bytes, {mode:?}", frame.len());
                }
            }
            assert_eq!(deliver(queue, &[frame(1, 9019)]).dropped.of(DropCause::TooLong), 1);
            assert_eq!(queue.diagnosis().unwrap().missed_frames(), 0);
            drop(device);
            assert_detached();
        }
    });
}

#[test]
fn without_several_buffers_long_frames_are_counted() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 3500);
        let long = XdpConfig { mtu: 3500, multi_buffer: false, ..config(near, AfXdpMode::Generic) };
        let mut device = open(&long).unwrap();
        assert!(device.notes[0].contains("longer than 1792 bytes are lost"), "{:?}", device.notes);
        let queue = &mut device.queues[0];
        assert_eq!(deliver(queue, &[frame(1, 3000)]).dropped.of(DropCause::TooLong), 1);
        far.send(&frame(2, 3000));
        far.send(&frame(3, 300));
        assert_eq!(receive(queue, 1), [frame(3, 300)]);
        assert_eq!(queue.diagnosis().unwrap().missed_frames(), 1);
        assert_eq!(queue.diagnosis().unwrap().missed_frames(), 0);
    });
}

#[test]
fn frames_that_do_not_fit_the_rings_are_counted_once() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 1500);
        let mut device = open(&config(near, AfXdpMode::Native)).unwrap();
        let queue = &mut device.queues[0];
        let total = RING + 100;
        for number in 0..total {
            far.send(&frame(number, 64));
        }
        let received = receive(queue, RING as usize);
        assert_eq!(received.len(), RING as usize);
        assert_eq!(queue.diagnosis().unwrap().missed_frames(), 100);
        // The queue continues to receive.
        far.send(&frame(9999, 64));
        assert_eq!(receive(queue, 1), [frame(9999, 64)]);
    });
}

#[test]
fn a_buffer_goes_back_to_the_kernel_when_its_frame_is_released_and_not_before() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 1500);
        let mut device = open(&config(near, AfXdpMode::Native)).unwrap();
        let queue = &mut device.queues[0];
        for number in 0..RING {
            far.send(&frame(number, 64));
        }
        let mut batch = Batch::new();
        let mut borrowed = 0;
        while borrowed < RING as usize {
            queue.sleeper().unwrap().prepare_sleep(true);
            if !queue.sleeper().unwrap().has_waiting() {
                await_frames(queue);
            }
            batch.reset(256);
            queue.receive(&mut batch);
            queue.lender().unwrap().reclaim(&batch);
            queue.flush();
            borrowed += batch.slots();
        }
        far.send(&frame(RING, 64));
        let mut missed = 0;
        until(|| {
            missed += queue.diagnosis().unwrap().missed_frames();
            missed == 1
        });
        queue.release(borrowed);
        queue.flush();
        far.send(&frame(RING + 1, 64));
        assert_eq!(receive(queue, 1), [frame(RING + 1, 64)]);
    });
}

#[test]
fn a_batch_gets_no_more_frames_than_it_has_room_for() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 9000);
        let mut device = open(&XdpConfig { mtu: 9000, ..config(near, AfXdpMode::Native) }).unwrap();
        let queue = &mut device.queues[0];
        // A long frame follows ten frames of one buffer each, or nine of one and one of two. The batch is full after
        // either.
        for lengths in [[60; 20], std::array::from_fn(|number| if number % 10 == 9 { 3000 } else { 60 })] {
            let sent: Vec<Vec<u8>> = (0..).zip(lengths).map(|(number, len)| frame(number, len)).collect();
            for frame in &sent {
                far.send(frame);
            }
            let mut received = Vec::new();
            let mut batch = Batch::new();
            while received.len() < sent.len() {
                if !queue.sleeper().unwrap().has_waiting() {
                    await_frames(queue);
                }
                batch.reset(10);
                queue.receive(&mut batch);
                assert!(batch.frames() <= 10, "{} frames in a batch for 10", batch.frames());
                received.extend(frames_of(&batch));
                queue.lender().unwrap().reclaim(&batch);
                queue.release(batch.slots());
                queue.flush();
            }
            assert_eq!(received, sent);
        }
    });
}

/// Two interfaces whose UMEM is one region. The test forwards from `near` to `other`.
fn two_devices() -> (XdpQueue, XdpQueue, RawSocket, RawSocket) {
    let (near, far) = veth(1, 3500);
    ip("link add other mtu 3500 type veth peer name remote mtu 3500");
    ip("link set other up");
    ip("link set remote up");
    let shared = region(2048, 2048);
    let first = XdpConfig { mtu: 3500, ..config(near, AfXdpMode::Native) };
    let second = XdpConfig { interface: "other".into(), ifindex: index_of("other"), ..first.clone() };
    let count = first.buffers_per_queue() as u32;
    let mut first = XdpDevice::open(&first, &shared, buffers(1, count, 0)).unwrap();
    let mut second = XdpDevice::open(&second, &shared, buffers(1, count, count)).unwrap();
    (first.queues.remove(0), second.queues.remove(0), far, RawSocket::open("remote", TEST_TYPE))
}

#[test]
fn buffers_are_exchanged_between_devices_of_a_region() {
    in_own_namespace(|| {
        let (mut from, mut to, far, remote) = two_devices();
        let mut batch = Batch::new();
        let mut exchanged = 0;
        // Each round uses 7 buffers of 512. After all rounds each buffer has been on both sides.
        for round in 0..400 {
            let sent = [frame(round, 100), frame(round, 3000), frame(round, 60), frame(round, 1514)];
            for frame in &sent {
                far.send(frame);
            }
            let mut done = 0;
            while done < sent.len() {
                if !from.sleeper().unwrap().has_waiting() {
                    await_frames(&mut from);
                }
                batch.reset(256);
                from.receive(&mut batch);
                let buffers =
                    |batch: &Batch| batch.fragments().iter().map(Fragment::buffer).collect::<Vec<_>>();
                let before = buffers(&batch);
                let all: Vec<u16> = (0..batch.frames() as u16).collect();
                // The third frame of each round has other destinations, too, so it must be copied.
                let shared: Vec<usize> =
                    (0..batch.frames()).filter(|&number| batch.frame_bytes(number) == 60).collect();
                for &number in &shared {
                    batch.set_replicated(number);
                }
                let delivery = to.deliver(&mut batch, &all);
                assert_eq!(delivery.frames as usize, all.len(), "{:?}", delivery.dropped);
                let kept = before.iter().zip(buffers(&batch)).filter(|(old, new)| **old != *new).count();
                assert_eq!(kept, before.len() - shared.len());
                exchanged += kept;
                done += batch.frames();
                from.lender().unwrap().reclaim(&batch);
                from.release(batch.slots());
                from.flush();
                to.flush();
            }
            for frame in &sent {
                assert!(remote.receive() == *frame, "round {round}");
            }
        }
        assert_eq!(exchanged, 400 * 4);
        assert_eq!((to.lender().unwrap().lent(), from.diagnosis().unwrap().missed_frames()), (0, 0));
    });
}

#[test]
fn lent_buffers_are_sent_where_they_lie_and_come_back() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 3500);
        let shared = region(2048, 2048);
        let open_config = XdpConfig { mtu: 3500, ..config(near, AfXdpMode::Native) };
        let count = open_config.buffers_per_queue() as u32;
        let mut device = XdpDevice::open(&open_config, &shared, buffers(1, count, 0)).unwrap();
        let queue = &mut device.queues[0];
        assert_eq!(queue.properties().region, Some(shared.id()));
        let (area, _) = shared.buffer_area().unwrap();
        let mut lent = 0;
        for round in 0..300 {
            let mut batch = Batch::new();
            batch.offer(shared.id(), Custody::Lend);
            // The frames have one buffer, two buffers, and one buffer that reaches into the next chunk and so must be
            // copied.
            let mut expected = Vec::new();
            for (number, pieces) in [&[100_usize][..], &[1500, 700], &[2048]].into_iter().enumerate() {
                let bytes = frame(round, pieces.iter().sum());
                let mut rest = &bytes[..];
                for (index, &length) in pieces.iter().enumerate() {
                    let buffer = FIRST_BUFFER + count + 4 * number as u32 + 2 * index as u32;
                    let start = area.as_ptr().wrapping_add(buffer as usize * 2048 + 256);
                    // SAFETY: the slice is a buffer of the region and the chunk after it, which no other code uses.
                    let slice = unsafe { std::slice::from_raw_parts_mut(start, length) };
                    slice.copy_from_slice(&rest[..length]);
                    rest = &rest[length..];
                    let more = if rest.is_empty() { 0 } else { MORE_FRAGMENTS };
                    // SAFETY: the region outlives the batch.
                    let fragment = unsafe { Fragment::from_private(slice, more) };
                    batch.push(fragment.in_buffer(buffer), index == 0);
                }
                expected.push(bytes);
            }
            assert_eq!(queue.deliver(&mut batch, &[0, 1, 2]).frames, 3);
            assert!(
                batch
                    .fragments()
                    .iter()
                    .map(Fragment::buffer)
                    .eq([0, 4, 6, 8].map(|index| FIRST_BUFFER + count + index))
            );
            lent += 3;
            assert_eq!(
                queue.lender().unwrap().lent(),
                lent,
                "two frames in three buffers; the third was copied"
            );
            queue.flush();
            for frame in &expected {
                assert!(far.receive() == *frame, "round {round}");
            }
            // A peer that has read the frame has freed it, and the kernel reports that before the next call.
            while queue.lender().unwrap().returned() < lent {
                std::thread::yield_now();
            }
        }
        assert_eq!(queue.lender().unwrap().returned(), lent);
    });
}

#[test]
fn an_interface_that_is_down_does_not_keep_what_it_was_lent() {
    in_own_namespace(|| {
        let (near, _) = veth(1, 1500);
        let shared = region(1024, 2048);
        let open_config = config(near, AfXdpMode::Native);
        let count = open_config.buffers_per_queue() as u32;
        let mut device = XdpDevice::open(&open_config, &shared, buffers(1, count, 0)).unwrap();
        let queue = &mut device.queues[0];
        let (area, _) = shared.buffer_area().unwrap();
        let mut batch = Batch::new();
        batch.offer(shared.id(), Custody::Lend);
        let sent: Vec<Vec<u8>> = (0..3).map(|number| frame(number, 60 + number as usize)).collect();
        let pointers: Vec<*mut u8> = (0..3_usize)
            .map(|number| {
                area.as_ptr().wrapping_add((FIRST_BUFFER + count) as usize * 2048 + number * 2048 + 256)
            })
            .collect();
        for (number, (bytes, &pointer)) in (0..).zip(sent.iter().zip(&pointers)) {
            // SAFETY: the slice is a buffer of the region that no other code uses.
            let slice = unsafe { std::slice::from_raw_parts_mut(pointer, bytes.len()) };
            slice.copy_from_slice(bytes);
            // SAFETY: the region outlives the batch.
            let fragment = unsafe { Fragment::from_private(slice, 0) };
            batch.push(fragment.in_buffer(FIRST_BUFFER + count + number), true);
        }
        assert_eq!(queue.deliver(&mut batch, &[0, 1, 2]).frames, 3);
        // The interface goes down before the kernel is called for the frames.
        ip("link set near down");
        queue.flush();
        assert_eq!((queue.lender().unwrap().lent(), queue.lender().unwrap().returned()), (3, 3));
        // The owner may write the buffers again, and the frames are sent unchanged.
        for pointer in pointers {
            // SAFETY: as above; the batch is not read any more.
            unsafe { pointer.write_bytes(0xEE, 100) };
        }
        ip("link set near up");
        let far = RawSocket::open("far", TEST_TYPE);
        until(|| deliver(queue, &[frame(9, 60)]).frames == 1);
        for frame in &sent {
            assert_eq!(&far.receive(), frame);
        }
    });
}
