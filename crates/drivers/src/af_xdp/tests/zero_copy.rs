//! Behaviour of drivers with zero copy, simulated at a queue by the tests: a veth has no zero copy.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use ringroad_port::counters::RefusedFrames;

use super::*;
use crate::af_xdp::{Attempt, most_uncut_mtu};

#[test]
fn no_card_cuts_a_frame_of_an_mtu_that_the_rule_allows() {
    // The room behind the headroom is 1792 and 3840 bytes. A card with buffer sizes in KiB writes 1024 and 3072.
    for (chunk, written) in [(2048, 1024), (4096, 3072)] {
        let most = most_uncut_mtu(chunk);
        // Bytes of the Ethernet header, two tags, the FCS and the timestamp.
        assert_eq!(most + 14 + 8 + 4 + 16, written);
    }
    assert!(most_uncut_mtu(2048) < 1500 && most_uncut_mtu(4096) >= 1500);
}

#[test]
fn zero_copy_in_buffers_in_which_a_card_may_cut_is_refused_with_the_remedy() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        // The test claims that the veth's driver has zero copy. The kernel refuses it only when it is tried.
        let may = |mode| XdpConfig { may_zero_copy: true, ..config(near, mode) };
        let device = open(&may(AfXdpMode::Auto)).unwrap();
        assert!(device.mode.starts_with("AF_XDP copy, native (zero-copy with several buffers per frame: "));
        assert!(
            device.mode.ends_with("zero-copy: frames may be cut in buffers of 2048 bytes)"),
            "{}",
            device.mode
        );
        assert!(device.notes.iter().any(|note| note.contains("choose buf-size=4096")), "{:?}", device.notes);
        drop(device);
        assert_detached();
        let error = open(&may(AfXdpMode::ZeroCopy)).unwrap_err().to_string();
        assert!(
            error.contains("longer than 1004 bytes") && error.contains("choose buf-size=4096"),
            "{error}"
        );
        // At an MTU without cut frames zero copy is tried.
        let error = open(&XdpConfig { mtu: 900, ..may(AfXdpMode::ZeroCopy) }).unwrap_err().to_string();
        assert!(error.contains("Operation not supported"), "{error}");
        let error = open(&XdpConfig { mtu: 9000, ..may(AfXdpMode::ZeroCopy) }).unwrap_err().to_string();
        assert!(error.contains("an MTU up to 3030 with buf-size=4096, or mode=native"), "{error}");
        assert_detached();
    });
}

#[test]
fn zero_copy_comes_first_and_with_several_buffers_where_a_card_may_cut() {
    let names = |long_frames, may_cut, multi_buffer| {
        let attempts = Attempt::all(AfXdpMode::Auto, long_frames, may_cut, multi_buffer);
        let name =
            |attempt: &Attempt| format!("{}{}", attempt.name(), if attempt.multi_buffer { "+" } else { "" });
        attempts.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(false, false, true), ["zero-copy", "copy, native", "copy, generic+", "copy, generic"]);
    assert_eq!(
        names(false, true, true),
        ["zero-copy+", "zero-copy", "copy, native", "copy, generic+", "copy, generic"]
    );
    assert_eq!(names(false, true, false), ["zero-copy", "copy, native", "copy, generic"]);
    assert_eq!(names(true, true, true)[..3], ["zero-copy+", "copy, native+", "copy, generic+"]);
}

/// Lengths of the frames that the queue receives from its rx ring.
fn received_lengths(queue: &mut XdpQueue) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut batch = Batch::new();
    while queue.sleeper().unwrap().has_waiting() {
        batch.reset(256);
        queue.receive(&mut batch);
        lengths.extend((0..batch.frames()).map(|frame| batch.frame_bytes(frame)));
        queue.lender().unwrap().reclaim(&batch);
        queue.release(batch.slots());
    }
    lengths
}

#[test]
fn pieces_in_a_mode_of_one_buffer_per_frame_are_dropped_and_counted_once_a_frame() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let mut device = open(&XdpConfig { multi_buffer: false, ..config(near, AfXdpMode::Native) }).unwrap();
        let queue = &mut device.queues[0];
        queue.receive_pieces(&[
            (60, false),
            (1000, true),
            (1000, true),
            (500, false),
            (61, false),
            (700, true),
        ]);
        assert_eq!(received_lengths(queue), [60, 61]);
        let incomplete = |queue: &mut XdpQueue| queue.diagnosis().unwrap().incomplete_frames();
        assert_eq!((incomplete(queue), incomplete(queue)), (2, 0));
        // The rest of the last frame comes later.
        queue.receive_pieces(&[(701, true), (62, false), (63, false)]);
        assert_eq!(received_lengths(queue), [63]);
        assert_eq!((incomplete(queue), queue.diagnosis().unwrap().missed_frames()), (0, 0));
    });
}

#[test]
fn a_chain_of_more_pieces_than_a_frame_has_is_dropped_and_not_waited_for() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 9000);
        let mut device = open(&XdpConfig { mtu: 9000, ..config(near, AfXdpMode::Native) }).unwrap();
        let queue = &mut device.queues[0];
        queue.receive_pieces(&[(100, true); 70]);
        assert!(received_lengths(queue).is_empty());
        queue.receive_pieces(&[(100, true), (100, false), (100, true), (50, false)]);
        assert_eq!(received_lengths(queue), [150]);
        assert_eq!(queue.diagnosis().unwrap().incomplete_frames(), 1);
    });
}

#[test]
fn a_full_buffer_of_a_card_with_zero_copy_is_the_begin_of_a_cut_frame() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let mut device = open(&config(near, AfXdpMode::Native)).unwrap();
        let queue = &mut device.queues[0];
        queue.pretend_zero_copy(1024, false);
        // Frames of one, two and three pieces, and one longer than a card with a coarse step writes in one piece.
        for len in [1023, 1024, 476, 1024, 1024, 1, 1500, 64] {
            queue.receive_pieces(&[(len, false)]);
        }
        assert_eq!(received_lengths(queue), [1023, 1500, 64]);
        assert_eq!(queue.diagnosis().unwrap().incomplete_frames(), 2);
    });
}

#[test]
fn frames_that_the_kernel_has_not_taken_wait_and_are_not_delivered() {
    in_own_namespace(|| {
        let (near, _) = veth(1, 1500);
        let mut device = open(&config(near, AfXdpMode::Native)).unwrap();
        let queue = &mut device.queues[0];
        let waiting = |queue: &mut XdpQueue| {
            let waiting = queue.diagnosis().unwrap().waiting();
            (waiting.frames, waiting.bytes)
        };
        assert_eq!(deliver(queue, &[frame(1, 60)]).frames, 1);
        assert_eq!(waiting(queue), (0, 0));
        assert_eq!(put(queue, &[frame(2, 60), frame(3, 100)]).frames, 2);
        // The interface goes down before the kernel is called for the frames.
        ip("link set near down");
        queue.flush();
        assert_eq!(waiting(queue), (2, 160));
        assert_eq!(queue.due_in(), None, "an interface that is down keeps no datapath awake");
        ip("link set near up");
        until(|| {
            queue.sleeper().unwrap().prepare_sleep(true);
            waiting(queue) == (0, 0)
        });
    });
}

#[test]
fn frames_that_the_device_drops_are_refused_and_the_kernel_counts_the_others_as_sent() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 3500);
        let mut device = open(&XdpConfig { mtu: 3500, ..config(near, AfXdpMode::Native) }).unwrap();
        let queue = &mut device.queues[0];
        // A veth drops frames that are too long for its other end.
        ip("link set far mtu 100");
        let sent_before = link_by_name("near").unwrap().statistics.tx_packets;
        // The fourth frame lies in two buffers.
        let frames = [frame(1, 60), frame(2, 200), frame(3, 61), frame(4, 3000), frame(5, 62)];
        assert_eq!(deliver(queue, &frames).frames, 5);
        let refused = queue.diagnosis().unwrap().refused();
        assert_eq!((refused.dropped.of(DropCause::Refused), refused.dropped.total()), (2, 2));
        assert_eq!(refused.bytes, 3200);
        assert_eq!(queue.diagnosis().unwrap().waiting().frames, 0);
        for number in [0, 2, 4] {
            assert_eq!(far.receive(), frames[number]);
        }
        assert_eq!(link_by_name("near").unwrap().statistics.tx_packets - sent_before, 3);
        assert_eq!(queue.diagnosis().unwrap().refused(), RefusedFrames::default());
    });
}

/// A queue with a frame on its tx ring, which it treats as one that a driver with zero copy left there.
fn with_untaken_frame(near: u32, busy_poll: bool) -> XdpDevice {
    let mut device = open(&config(near, AfXdpMode::Native)).unwrap();
    let queue = &mut device.queues[0];
    assert_eq!(put(queue, &[frame(1, 60)]).frames, 1);
    // The interface goes down before the kernel is called for the frame.
    ip("link set near down");
    queue.flush();
    ip("link set near up");
    until(|| queue.diagnosis().unwrap().fault().is_none());
    queue.pretend_zero_copy(3072, busy_poll);
    queue.note_fruitless_kick();
    device
}

#[test]
fn a_queue_that_polls_wakes_a_driver_that_takes_nothing_and_does_not_sleep_before_all_is_taken() {
    in_own_namespace(|| {
        let (near, _) = veth(1, 1500);
        let mut device = with_untaken_frame(near, true);
        let queue = &mut device.queues[0];
        assert!(!queue.is_empty() && queue.sleeper().unwrap().has_waiting());
        // The call that wakes a driver makes the veth send.
        until(|| queue.diagnosis().unwrap().waiting().frames == 0);
        queue.note_fruitless_kick();
        assert!(queue.is_empty() && !queue.sleeper().unwrap().has_waiting());
    });
}

#[test]
fn a_queue_that_does_not_poll_leaves_the_driver_its_time_and_checks_again() {
    in_own_namespace(|| {
        let (near, _) = veth(1, 1500);
        let mut device = with_untaken_frame(near, false);
        let queue = &mut device.queues[0];
        assert!(queue.is_empty() && !queue.sleeper().unwrap().has_waiting());
        assert!(queue.due_in().is_some());
        for _ in 0..1100 {
            queue.note_fruitless_kick();
        }
        let fault = queue.diagnosis().unwrap().fault().unwrap();
        assert!(fault.contains("interface near: its driver takes no frames off the ring"), "{fault}");
    });
}

#[test]
fn a_card_that_holds_frames_and_sends_none_is_reported_with_the_remedy() {
    in_own_namespace(|| {
        let (near, _) = veth(1, 1500);
        let mut device = with_untaken_frame(near, false);
        let queue = &mut device.queues[0];
        let began = Instant::now();
        let fault_after =
            |queue: &XdpQueue, seconds| queue.card_fault_at(began + Duration::from_secs(seconds));
        // The frame waits on the ring, so the card has none.
        assert_eq!((fault_after(queue, 0), fault_after(queue, 10)), (None, None));
        queue.pretend_silent_card(1);
        assert_eq!((fault_after(queue, 10), fault_after(queue, 11)), (None, None));
        let fault = fault_after(queue, 13).unwrap();
        assert!(fault.contains("holds 1 buffers to send, and sends none"), "{fault}");
        assert!(fault.contains("`ip link set dev near down`, then `up`"), "{fault}");
    });
}
