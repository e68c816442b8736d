use std::net::UdpSocket;

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::PortQueue;

use super::*;
use crate::test_network::{RawSocket, in_own_namespace, ip, number_of, test_frame, until};
use crate::test_queue::{deliver, receive, receive_now};

const LOCAL: u16 = 0x88b5;

fn config(name: &str) -> TapConfig {
    TapConfig { name: name.to_owned(), ..TapConfig::default() }
}

#[test]
fn frames_pass_both_ways_unchanged_with_and_without_offloads() {
    for offloads in [false, true] {
        in_own_namespace(move || {
            let mut tap = TapDevice::open(&TapConfig { offloads, ..config("rrt0") }, Vec::new()).unwrap();
            assert_eq!(tap.name, "rrt0");
            let host = RawSocket::open("rrt0", LOCAL);
            let queue = &mut tap.queues[0];
            // The test sends more frames than a queue has buffers, so that buffers are reused.
            for number in 0..200 {
                let frame = test_frame(1, number, 60 + number as usize);
                host.send(&frame);
                assert_eq!(receive(queue, 1), [frame]);
            }
            let frames: Vec<_> = (0..100).map(|number| test_frame(2, number, 1514)).collect();
            let delivery = deliver(queue, &frames, 400);
            assert_eq!((delivery.frames, delivery.bytes, delivery.dropped.total()), (100, 151_400, 0));
            for frame in frames {
                assert_eq!(host.receive(), frame);
            }
            assert_eq!(queue.diagnosis().unwrap().fault(), None);
        });
    }
}

#[test]
fn checksums_are_open_both_ways_with_offloads_and_filled_in_without() {
    for offloads in [false, true] {
        in_own_namespace(move || {
            let mut tap = TapDevice::open(&TapConfig { offloads, ..config("rrt0") }, Vec::new()).unwrap();
            ip("addr add 10.0.0.1/24 dev rrt0");
            ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev rrt0");
            let socket = UdpSocket::bind("10.0.0.1:9").unwrap();
            socket.connect("10.0.0.2:9").unwrap();
            socket.send(&[7; 99]).unwrap();
            let queue = &mut tap.queues[0];
            let mut batch = Batch::new();
            // The host may send IPv6, too.
            let (mut bytes, meta) = loop {
                batch.reset(1);
                queue.receive(&mut batch);
                queue.release(batch.frames());
                if batch.frames() == 1 {
                    let mut bytes = vec![0; batch.frame_bytes(0)];
                    batch.first_fragment(0).unwrap().bytes().read(&mut bytes);
                    if bytes[12..14] == [8, 0] {
                        break (bytes, batch.meta(0));
                    }
                }
            };
            assert_eq!(!meta.unfinished.is_nothing(), offloads);
            // Addresses and ports are swapped for the reply. Swapping does not change the checksum.
            for (one, other, len) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
                let (head, tail) = bytes.split_at_mut(other);
                head[one..one + len].swap_with_slice(&mut tail[..len]);
            }
            batch.reset(1);
            // SAFETY: the bytes outlive the delivery.
            batch.push(unsafe { Fragment::from_private(&bytes, 0) }, true);
            batch.describe(meta);
            assert_eq!(queue.deliver(&mut batch, &[0]).frames, 1);
            let mut received = [0; 100];
            assert_eq!(socket.recv(&mut received).unwrap(), 99);
            assert_eq!(received[..99], [7; 99]);
        });
    }
}

#[test]
fn frames_of_a_raised_mtu_are_whole_and_the_address_is_set() {
    in_own_namespace(|| {
        let mac = [2, 0, 0, 1, 2, 3];
        let mut tap = TapDevice::open(
            &TapConfig { mtu: Some(9000), mac: Some(mac.into()), ..config("rrt0") },
            Vec::new(),
        )
        .unwrap();
        let shown = ip("link show rrt0");
        assert!(shown.contains("mtu 9000") && shown.contains("02:00:00:01:02:03"), "{shown}");
        let host = RawSocket::open("rrt0", LOCAL);
        let frame = test_frame(1, 7, 9014);
        host.send(&frame);
        assert_eq!(receive(&mut tap.queues[0], 1), [frame]);
    });
}

#[test]
fn each_frame_of_the_host_reaches_one_queue_and_each_queue_sends() {
    in_own_namespace(|| {
        let mut tap = TapDevice::open(&TapConfig { queues: 3, ..config("rrt%d") }, Vec::new()).unwrap();
        assert_eq!((tap.name.as_str(), tap.queues.len()), ("rrt0", 3));
        let host = RawSocket::open(&tap.name, LOCAL);
        for number in 0..90 {
            host.send(&test_frame(1, number, 60));
        }
        let mut numbers: Vec<u32> = Vec::new();
        for queue in &mut tap.queues {
            numbers.extend(receive_now(queue).iter().map(|frame| number_of(frame)));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..90).collect::<Vec<_>>());
        for (from, queue) in tap.queues.iter_mut().enumerate() {
            let frame = test_frame(from as u8, 1, 60);
            assert_eq!(deliver(queue, std::slice::from_ref(&frame), 2048).frames, 1);
            assert_eq!(host.receive(), frame);
        }
    });
}

#[test]
fn an_interface_that_is_down_loses_frames_by_cause_until_it_is_up() {
    in_own_namespace(|| {
        let mut tap = TapDevice::open(&TapConfig { up: false, ..config("rrt0") }, Vec::new()).unwrap();
        let queue = &mut tap.queues[0];
        let frame = [test_frame(1, 1, 60)];
        let delivery = deliver(queue, &frame, 2048);
        assert_eq!((delivery.frames, delivery.dropped.of(DropCause::LinkDown)), (0, 1));
        assert!(queue.diagnosis().unwrap().fault().unwrap().contains("rrt0 is down"));
        ip("link set rrt0 up");
        assert_eq!(deliver(queue, &frame, 2048).frames, 1);
        until(|| queue.diagnosis().unwrap().fault().is_none());
    });
}

#[test]
fn a_deleted_interface_is_a_fault_and_wakes_no_worker_again() {
    in_own_namespace(|| {
        let mut tap = TapDevice::open(&config("rrt0"), Vec::new()).unwrap();
        let queue = &mut tap.queues[0];
        assert!(
            queue.sleeper().unwrap().wake_descriptor().is_some() && !queue.sleeper().unwrap().has_waiting()
        );
        ip("link del rrt0");
        queue.sleeper().unwrap().drain_wake();
        assert!(queue.sleeper().unwrap().wake_descriptor().is_none());
        assert_eq!(receive_now(queue), Vec::<Vec<u8>>::new());
        assert!(queue.diagnosis().unwrap().fault().unwrap().contains("rrt0 is gone"));
        assert!(
            queue.sleeper().unwrap().wake_descriptor().is_none() && !queue.sleeper().unwrap().has_waiting()
        );
        assert_eq!(deliver(queue, &[test_frame(1, 1, 60)], 2048).dropped.of(DropCause::LinkDown), 1);
        assert_eq!(queue.diagnosis().unwrap().missed_frames(), 0);
    });
}

#[test]
fn a_tap_vanishes_with_its_queues_unless_it_is_persistent() {
    in_own_namespace(|| {
        drop(TapDevice::open(&config("rrt0"), Vec::new()).unwrap());
        until(|| !ip("link show").contains("rrt0"));
        let lasting = TapConfig { persistent: true, queues: 2, ..config("rrt1") };
        drop(TapDevice::open(&lasting, Vec::new()).unwrap());
        assert!(ip("link show").contains("rrt1"));
        let tap = TapDevice::open(&TapConfig { persistent: false, ..lasting }, Vec::new()).unwrap();
        assert!(tap.notes.iter().any(|note| note.contains("existed already")), "{:?}", tap.notes);
        drop(tap);
        assert!(ip("link show").contains("rrt1"));
    });
}

#[test]
fn the_kernel_chooses_a_number_for_a_tap_without_a_name() {
    in_own_namespace(|| {
        let first = TapDevice::open(&config(""), Vec::new()).unwrap();
        let second = TapDevice::open(&config(""), Vec::new()).unwrap();
        assert_eq!((first.name.as_str(), second.name.as_str()), ("tap0", "tap1"));
    });
}

#[test]
fn a_taken_or_impossible_name_is_refused_with_the_reason() {
    in_own_namespace(|| {
        ip("link add rrv0 type veth peer name rrv1");
        let error = TapDevice::open(&config("rrv0"), Vec::new()).unwrap_err();
        assert!(matches!(&error, TapError::NotTap { kind, .. } if kind == "veth"), "{error}");
        let _tap = TapDevice::open(&config("rrt0"), Vec::new()).unwrap();
        let error = TapDevice::open(&config("rrt0"), Vec::new()).unwrap_err();
        assert!(matches!(&error, TapError::Busy(name) if name == "rrt0"), "{error}");
        for name in ["a/b", "sixteen-bytes-xx", "a b"] {
            let error = TapDevice::open(&config(name), Vec::new()).unwrap_err().to_string();
            assert!(error.contains("cannot be an interface's name"), "{error}");
        }
        let error =
            TapDevice::open(&TapConfig { mtu: Some(65535), ..config("rrt1") }, Vec::new()).unwrap_err();
        assert!(matches!(error, TapError::Mtu(65535)), "{error}");
        let error = TapDevice::open(&TapConfig { queues: 0, ..config("rrt1") }, Vec::new()).unwrap_err();
        assert!(matches!(error, TapError::Queues(0)), "{error}");
    });
}

#[test]
fn frames_that_the_kernel_drops_for_lack_of_room_are_counted_once() {
    in_own_namespace(|| {
        let mut tap = TapDevice::open(&config("rrt0"), Vec::new()).unwrap();
        ip("link set rrt0 txqueuelen 16");
        let host = RawSocket::open("rrt0", LOCAL);
        for number in 0..100 {
            host.send(&test_frame(1, number, 60));
        }
        let queue = &mut tap.queues[0];
        let received = receive_now(queue).len() as u64;
        let missed = queue.diagnosis().unwrap().missed_frames();
        assert!(missed > 0, "received {received}");
        assert_eq!(received + missed, 100);
        assert_eq!(queue.diagnosis().unwrap().missed_frames(), 0);
    });
}

#[test]
fn a_borrowed_frame_stays_as_it_is_while_others_arrive() {
    in_own_namespace(|| {
        let mut tap = TapDevice::open(&config("rrt0"), Vec::new()).unwrap();
        let host = RawSocket::open("rrt0", LOCAL);
        for number in 0..300 {
            host.send(&test_frame(1, number, 60));
        }
        let queue = &mut tap.queues[0];
        let mut batch = Batch::new();
        queue.receive(&mut batch);
        let borrowed = batch.frames();
        assert!(borrowed > 0 && borrowed < 300);
        let mut other = Batch::new();
        queue.receive(&mut other);
        assert_eq!(other.frames(), 0, "more is lent than there are buffers");
        let mut bytes = [0; 60];
        batch.first_fragment(0).unwrap().bytes().read(&mut bytes);
        assert_eq!(bytes.to_vec(), test_frame(1, 0, 60));
        queue.release(borrowed);
        assert_eq!(receive_now(queue).len(), 300 - borrowed);
    });
}
