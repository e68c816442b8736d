//! Tests of modes and queues: frames pass in both directions, in every mode that the kernel supports.
#![allow(unsafe_code)]

use super::*;

fn passes_frames_both_ways(expected: &'static str, config: impl FnOnce(u32) -> XdpConfig + Send + 'static) {
    in_own_namespace(move || {
        let (near, far) = veth(1, 1500);
        let mut device = open(&config(near)).unwrap();
        assert!(device.mode.contains(expected), "{}", device.mode);
        let queue = &mut device.queues[0];
        // The test sends more frames than the rings hold, so that every buffer is used more than once.
        for round in 0..20 {
            let sent: Vec<Vec<u8>> =
                (0..50).map(|number| frame(round * 50 + number, 60 + number as usize * 29)).collect();
            for frame in &sent {
                far.send(frame);
            }
            assert_eq!(receive(queue, 50), sent);
            let delivery = deliver(queue, &sent);
            assert_eq!((delivery.frames, delivery.dropped.total()), (50, 0));
            for frame in &sent {
                assert_eq!(&far.receive(), frame);
            }
        }
        assert_eq!(queue.diagnosis().unwrap().missed_frames(), 0);
        assert_eq!(queue.diagnosis().unwrap().fault(), None);
    });
}

#[test]
fn native_mode_passes_frames_both_ways() {
    passes_frames_both_ways("copy, native", |near| config(near, AfXdpMode::Native));
}

#[test]
fn generic_mode_passes_frames_both_ways() {
    passes_frames_both_ways("copy, generic", |near| config(near, AfXdpMode::Generic));
}

#[test]
fn frames_pass_without_wakeups_and_with_busy_polling() {
    passes_frames_both_ways("copy, native", |near| XdpConfig {
        need_wakeup: false,
        busy_poll_us: 20,
        ..config(near, AfXdpMode::Native)
    });
}

#[test]
fn native_mode_is_left_out_where_it_gives_no_whole_frames() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let with = |mode| XdpConfig { native_defect: Some("frames are cut"), ..config(near, mode) };
        let device = open(&with(AfXdpMode::Auto)).unwrap();
        assert!(device.mode.starts_with("AF_XDP copy, generic ("), "{}", device.mode);
        assert!(device.mode.contains("copy, native: frames are cut"), "{}", device.mode);
        drop(device);
        let error = open(&with(AfXdpMode::Native)).unwrap_err().to_string();
        assert!(error.contains("frames are cut") && error.ends_with("choose mode=generic"), "{error}");
    });
}

#[test]
fn auto_takes_the_best_mode_and_reports_what_was_refused() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        // A veth supports native XDP, but no zero-copy.
        let device = open(&config(near, AfXdpMode::Auto)).unwrap();
        assert_eq!(device.mode, "AF_XDP copy, native (zero-copy: Operation not supported)");
        assert!(device.notes[0].contains("zero-copy is not available"), "{:?}", device.notes);
        let error = open(&config(near, AfXdpMode::ZeroCopy)).unwrap_err();
        assert!(error.to_string().contains("another XDP program"), "{error}");
        drop(device);
        assert_detached();
        let error = open(&config(near, AfXdpMode::ZeroCopy)).unwrap_err();
        assert!(error.to_string().contains("binding the AF_XDP socket: Operation not supported"), "{error}");
        // An interface without native XDP is served in generic mode.
        let loopback = XdpConfig { interface: "lo".into(), ..config(index_of("lo"), AfXdpMode::Auto) };
        let device = open(&loopback).unwrap();
        assert!(device.mode.starts_with("AF_XDP copy, generic ("), "{}", device.mode);
        assert_eq!(device.notes.len(), 2);
    });
}

#[test]
fn the_program_leaves_with_the_last_queue() {
    in_own_namespace(|| {
        let (near, far) = veth(2, 1500);
        let mut device = open(&XdpConfig { queues: 2, ..config(near, AfXdpMode::Native) }).unwrap();
        assert!(near_details().contains("xdp"), "{}", near_details());
        device.queues.pop();
        assert!(near_details().contains("xdp"), "one queue is left");
        let sent = frame(1, 100);
        // The peer may choose any queue. Frames of a queue without a socket go to the host stack.
        far.send(&sent);
        drop(device);
        assert_detached();
        // The queue can be opened again at once.
        drop(open(&config(near, AfXdpMode::Native)).unwrap());
    });
}

#[test]
fn two_queues_each_get_their_frames() {
    in_own_namespace(|| {
        let (near, far) = veth(2, 1500);
        let mut device = open(&XdpConfig { queues: 2, ..config(near, AfXdpMode::Native) }).unwrap();
        // A veth receives in the queue in which its peer sends. The queue of an AF_XDP socket is known.
        let far_config =
            XdpConfig { interface: "far".into(), queues: 2, ..config(index_of("far"), AfXdpMode::Native) };
        drop(far);
        let mut other = open(&far_config).unwrap();
        for number in 0..2 {
            let sent = vec![frame(number, 300)];
            assert_eq!(deliver(&mut other.queues[number as usize], &sent).frames, 1);
            assert_eq!(receive(&mut device.queues[number as usize], 1), sent);
            assert!(!device.queues[1 - number as usize].sleeper().unwrap().has_waiting());
        }
    });
}
