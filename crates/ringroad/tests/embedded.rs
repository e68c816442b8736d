//! Tests of the datapath in one process: frames through the switch, pipes and devices.

#![allow(clippy::unwrap_used)]

use ringroad::{
    DropCause, Embedded, Forwarded, Interest, OpenOptions, Port, PortError, RingViolation, Slot, Wait,
    wait_any,
};

fn frame(destination: [u8; 6], source: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(len);
    frame.extend_from_slice(&destination);
    frame.extend_from_slice(&source);
    frame.extend_from_slice(&[0x88, 0xB5]);
    frame.extend((frame.len()..len).map(|index| index as u8));
    frame
}

/// Deadline that only a failure reaches: every wait below ends with an event.
const PATIENCE: Option<std::time::Duration> = Some(std::time::Duration::from_secs(20));

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xA];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xB];
const C: [u8; 6] = [2, 0, 0, 0, 0, 0xC];

fn send(port: &mut Port, frame: &[u8]) {
    assert!(port.tx().send(frame).unwrap());
    port.tx().sync().unwrap();
}

fn received(port: &mut Port) -> Vec<Vec<u8>> {
    port.rx().sync().unwrap();
    let mut frames = Vec::new();
    let mut frame = Vec::new();
    while port.rx().receive(&mut frame).is_some() {
        frames.push(std::mem::take(&mut frame));
    }
    port.rx().sync().unwrap();
    frames
}

fn assert_conserved(net: &Embedded, switch: &str) {
    let totals = net.switch_counters(switch).unwrap();
    assert_eq!(
        totals.received_frames + totals.replicated_frames,
        totals.delivered_frames + totals.dropped_frames(),
        "{totals:?}"
    );
}

#[test]
fn unknown_destinations_are_flooded_and_learned_ones_are_not() {
    let net = Embedded::new();
    let [mut a, mut b, mut c] = ["vale0:a", "vale0:b", "vale0:c"].map(|name| net.open(name).unwrap());
    let first = frame(B, A, 60);
    send(&mut a, &first);
    assert_eq!(received(&mut b), std::slice::from_ref(&first));
    assert_eq!(received(&mut c), [first]);
    let answer = frame(A, B, 80);
    send(&mut b, &answer);
    assert_eq!(received(&mut a), [answer]);
    assert!(received(&mut c).is_empty());
    let direct = frame(B, A, 100);
    send(&mut a, &direct);
    assert_eq!(received(&mut b), [direct]);
    assert!(received(&mut c).is_empty());
    assert_conserved(&net, "vale0");
}

#[test]
fn frames_for_a_full_ring_are_dropped_and_counted_there() {
    let net = Embedded::new();
    let mut a = net.open("vale0:a").unwrap();
    let mut b = net.open("vale0:b@slots=8").unwrap();
    for _ in 0..20 {
        send(&mut a, &frame(B, A, 60));
    }
    assert_eq!(received(&mut b).len(), 7);
    assert_eq!(net.port_counters("vale0", "b").unwrap().dropped_for(DropCause::NoSpace), 13);
    assert_conserved(&net, "vale0");
}

#[test]
fn more_frames_than_a_batch_holds_all_arrive_and_all_slots_come_back() {
    let net = Embedded::new();
    let mut a = net.open("vale0:a").unwrap();
    let mut b = net.open("vale0:b@slots=2048").unwrap();
    for round in 0..20 {
        for number in 0..1000 {
            // Some frames are jumbo frames, so that batches also fill up in mid-frame.
            let len = if number % 100 == 99 { 5000 } else { 60 + number };
            assert!(a.tx().send(&frame(B, A, len)).unwrap());
        }
        let mut got = Vec::new();
        while a.tx().pending() > 0 {
            a.tx().sync().unwrap();
            got.extend(received(&mut b).into_iter().map(|frame| frame.len()));
        }
        let sent: Vec<usize> = (0..1000).map(|n| if n % 100 == 99 { 5000 } else { 60 + n }).collect();
        assert_eq!(got, sent, "round {round}");
    }
    assert_eq!(a.tx().available(), 1023);
    assert_conserved(&net, "vale0");
}

#[test]
fn frames_too_short_or_without_destination_are_counted() {
    let net = Embedded::new();
    let mut a = net.open("vale0:a").unwrap();
    send(&mut a, &[1; 13]);
    send(&mut a, &frame(B, A, 60));
    let counters = net.port_counters("vale0", "a").unwrap();
    assert_eq!(counters.dropped_for(DropCause::TooShort), 1);
    assert_eq!(counters.dropped_for(DropCause::NoDestination), 1);
    assert_conserved(&net, "vale0");
}

#[test]
fn jumbo_frames_cross_over_several_slots_and_buffer_sizes() {
    let net = Embedded::new();
    let mut a = net.open("vale0:a").unwrap();
    let mut small = net.open("vale0:b@buf-size=512").unwrap();
    let mut large = net.open("vale0:c@buf-size=65536").unwrap();
    for len in [2048, 2049, 9000, 30_000] {
        let jumbo = frame(C, A, len);
        send(&mut a, &jumbo);
        assert_eq!(received(&mut small), std::slice::from_ref(&jumbo), "{len} bytes into buffers of 512");
        assert_eq!(received(&mut large), [jumbo], "{len} bytes into buffers of 65536");
    }
    // The frames go around the ring more than once.
    for _ in 0..500 {
        let jumbo = frame(C, A, 9000);
        send(&mut a, &jumbo);
        assert_eq!(received(&mut small), std::slice::from_ref(&jumbo));
        assert_eq!(received(&mut large), [jumbo]);
    }
    // A frame may have at most 64 fragments, here of 512 bytes.
    send(&mut a, &frame(C, A, 33_000));
    assert_eq!(net.port_counters("vale0", "b").unwrap().dropped_for(DropCause::TooLong), 1);
    assert_eq!(received(&mut large).len(), 1);
    assert_conserved(&net, "vale0");
}

#[test]
fn a_frame_longer_than_any_ring_is_refused_at_the_sender() {
    let net = Embedded::new();
    let mut a = net.open("vale0:a@slots=4,buf-size=64").unwrap();
    assert!(matches!(a.tx().send(&[0; 500]), Err(PortError::FrameTooLong { most: 192, .. })));
}

#[test]
fn an_unfinished_frame_waits_for_its_rest() {
    let net = Embedded::new();
    let mut a = net.open("vale0:a").unwrap();
    let mut b = net.open("vale0:b").unwrap();
    let whole = frame(B, A, 100);
    a.tx().buffer(0).write(&whole[..60]);
    a.tx().set(0, 60, ringroad::slot_flags::MORE_FRAGMENTS);
    a.tx().advance(1);
    a.tx().sync().unwrap();
    assert!(received(&mut b).is_empty());
    a.tx().buffer(0).write(&whole[60..]);
    a.tx().set(0, 40, 0);
    a.tx().advance(1);
    a.tx().sync().unwrap();
    assert_eq!(received(&mut b), [whole]);
}

#[test]
fn forced_destination_and_no_learn_flags_are_obeyed() {
    let net = Embedded::new();
    let [mut a, mut b, mut c] = ["vale0:a", "vale0:b", "vale0:c"].map(|name| net.open(name).unwrap());
    let to_c = u16::from(c.info().switch_index.unwrap()) << ringroad::slot_flags::PORT_SHIFT;
    a.tx().buffer(0).write(&frame(B, A, 60));
    a.tx().set(0, 60, to_c | ringroad::slot_flags::NO_LEARN);
    a.tx().advance(1);
    a.tx().sync().unwrap();
    assert!(received(&mut b).is_empty());
    assert_eq!(received(&mut c).len(), 1);
    // A was not learned, so a frame to it is flooded.
    send(&mut b, &frame(A, B, 60));
    assert_eq!(received(&mut a).len(), 1);
    assert_eq!(received(&mut c).len(), 1);
}

#[test]
fn a_program_that_breaks_its_ring_gets_an_error_and_disturbs_no_other() {
    let net = Embedded::new();
    let [mut bad, mut a, mut b] = ["vale0:x", "vale0:a", "vale0:b"].map(|name| net.open(name).unwrap());
    bad.tx().exchange(0, Slot { buffer: 1 << 30, len: 60, flags: 0, ptr: 0 });
    bad.tx().advance(1);
    assert!(matches!(bad.tx().sync(), Err(PortError::RingStopped(RingViolation::BufferIndex))));
    assert_eq!(net.port_counters("vale0", "x").unwrap().violations, 1);
    send(&mut a, &frame(B, A, 60));
    assert_eq!(received(&mut b).len(), 1);
    assert_conserved(&net, "vale0");
}

#[test]
fn a_switch_has_254_ports_and_no_more() {
    let net = Embedded::new();
    let small = OpenOptions { slots: Some(4), buffer_bytes: Some(64), ..OpenOptions::default() };
    let mut ports: Vec<Port> =
        (0..254).map(|index| net.open_with(&format!("vale0:p{index}"), &small).unwrap()).collect();
    let refused = net.open_with("vale0:one-more", &small).unwrap_err().to_string();
    assert!(refused.contains("254"), "{refused}");
    send(&mut ports[0], &frame([0xFF; 6], A, 60));
    for port in &mut ports[1..] {
        assert_eq!(received(port).len(), 1);
    }
    assert_conserved(&net, "vale0");
    drop(ports);
    net.open_with("vale0:again", &small).unwrap();
}

#[test]
fn a_port_that_leaves_is_forgotten_and_its_counters_are_kept() {
    let net = Embedded::new();
    let [mut a, mut b, mut c] = ["vale0:a", "vale0:b", "vale0:c"].map(|name| net.open(name).unwrap());
    send(&mut b, &frame(A, B, 60));
    received(&mut a);
    received(&mut c);
    drop(b);
    send(&mut a, &frame(B, A, 60));
    assert_eq!(received(&mut c).len(), 1, "flooded, since B is unknown again");
    assert_conserved(&net, "vale0");
}

#[test]
fn frames_synced_right_before_closing_arrive() {
    let net = Embedded::on_thread(&ringroad::EmbeddedThread::default()).unwrap();
    let mut b = net.open("vale0:b").unwrap();
    for round in 0u8..50 {
        let mut a = net.open("vale0:a").unwrap();
        for _ in 0..10 {
            assert!(a.tx().send(&frame(B, [2, 0, 0, 0, 1, round], 60)).unwrap());
        }
        a.tx().sync().unwrap();
        drop(a);
        let mut count = 0;
        while count < 10 {
            assert!(b.wait(Interest::Rx, PATIENCE).unwrap());
            count += received(&mut b).len();
        }
    }
    assert_conserved(&net, "vale0");
}

#[test]
fn sleeping_programs_are_woken_in_both_directions() {
    let net = Embedded::on_thread(&ringroad::EmbeddedThread::default()).unwrap();
    let mut a = net.open("vale0:a").unwrap();
    let mut b = net.open("vale0:b").unwrap();
    let echo = std::thread::spawn(move || {
        for _ in 0..2000 {
            assert!(b.wait(Interest::Rx, PATIENCE).unwrap());
            for frame in received(&mut b) {
                let mut back = frame.clone();
                back[..6].copy_from_slice(&frame[6..12]);
                back[6..12].copy_from_slice(&frame[..6]);
                while !b.tx().send(&back).unwrap() {
                    b.wait(Interest::Tx, PATIENCE).unwrap();
                }
                b.tx().sync().unwrap();
            }
        }
    });
    for _ in 0..2000 {
        send(&mut a, &frame(B, A, 60));
        assert!(a.wait(Interest::Rx, PATIENCE).unwrap());
        assert_eq!(received(&mut a).len(), 1);
    }
    echo.join().unwrap();
    assert_conserved(&net, "vale0");
}

#[test]
fn a_frame_at_any_of_several_ports_and_queues_ends_a_wait_for_all() {
    // The frames differ: copies of one frame would make the switch search for a loop.
    let source = |side, round: usize| [2, 0, 0, side, (round >> 8) as u8, round as u8];
    let net = Embedded::on_thread(&ringroad::EmbeddedThread::default()).unwrap();
    let mut ports: Vec<Port> = ["x{1", "y{1", "vale0:a"].map(|name| net.open(name).unwrap()).into();
    let mut far: Vec<Port> = ["x}1", "y}1", "vale0:b"].map(|name| net.open(name).unwrap()).into();
    let sender = std::thread::spawn(move || {
        for round in 0..1500 {
            let port = &mut far[round % 3];
            send(port, &frame([0xff; 6], source(1, round), 60));
            // The answer shows that the waiting side has taken the frame.
            assert!(port.wait(Interest::Rx, PATIENCE).unwrap());
            assert_eq!(received(port).len(), 1);
        }
    });
    for round in 0..1500 {
        let waits = ports.iter_mut().enumerate();
        let mut waits: Vec<Wait<'_>> = waits
            .map(|(number, port)| match number {
                1 => port.queues()[0].awaiting(Interest::Rx),
                _ => port.awaiting(Interest::Rx),
            })
            .collect();
        assert!(wait_any(&mut waits, PATIENCE).unwrap());
        let ready: Vec<usize> = (0..3).filter(|&number| ports[number].is_ready(Interest::Rx)).collect();
        assert_eq!(ready, [round % 3]);
        let port = &mut ports[round % 3];
        assert_eq!(received(port).len(), 1);
        send(port, &frame([0xff; 6], source(2, round), 60));
    }
    sender.join().unwrap();
}

#[test]
fn a_wait_for_several_ports_ends_at_its_timeout_and_a_wait_for_none_at_once() {
    let net = Embedded::new();
    let (mut a, mut b) = (net.open("vale0:a").unwrap(), net.open("vale0:b").unwrap());
    let waits = &mut [a.awaiting(Interest::Rx), b.awaiting(Interest::Rx)];
    assert!(!wait_any(waits, Some(std::time::Duration::from_millis(1))).unwrap());
    let waits = &mut [a.awaiting(Interest::Rx), b.awaiting(Interest::Tx)];
    assert!(wait_any(waits, None).unwrap(), "there is room already");
    assert!(!wait_any(&mut [], None).unwrap());
}

#[test]
fn frames_of_a_ring_are_listed_whole_and_stay_until_their_slots_are_released() {
    let net = Embedded::new();
    let (mut near, mut far) = (net.open("x{1").unwrap(), net.open("x}1").unwrap());
    let sent: Vec<Vec<u8>> = [60, 5000, 61].map(|len| frame(A, B, len)).into();
    for frame in &sent {
        assert!(near.tx().send(frame).unwrap());
    }
    near.tx().sync().unwrap();
    far.rx().sync().unwrap();
    for first in 0..=sent.len() {
        let listed: Vec<Vec<u8>> = far
            .rx()
            .frames()
            .map(|frame| {
                let mut bytes = Vec::new();
                assert_eq!((frame.read(&mut bytes), frame.timestamp_ns()), (frame.len(), 0));
                bytes
            })
            .collect();
        assert_eq!(listed, sent[first..]);
        let slots = far.rx().frames().next().map_or(0, |frame| frame.slots());
        far.rx().release(slots);
    }
    assert_eq!(far.rx().available(), 0);
}

#[test]
fn a_pipe_carries_frames_in_order_and_survives_a_sender_that_returns() {
    let net = Embedded::new();
    let mut a = net.open("x{1").unwrap();
    let mut b = net.open("x}1").unwrap();
    assert!(net.open("x{1").is_err(), "an end is taken by one program");
    let mut sent = Vec::new();
    for len in 20..60 {
        sent.push(frame(B, A, len));
        send(&mut a, &sent[sent.len() - 1]);
    }
    drop(a);
    let mut a = net.open("x{1").unwrap();
    sent.push(frame(B, A, 99));
    send(&mut a, &sent[sent.len() - 1]);
    assert_eq!(received(&mut b), sent);
    send(&mut b, &sent[0]);
    assert_eq!(received(&mut a), sent[..1]);
}

#[test]
fn a_full_pipe_makes_the_sender_wait_and_loses_nothing() {
    let net = Embedded::new();
    let mut a = net.open("x{1").unwrap();
    let mut b = net.open("x}1").unwrap();
    let total = 100_000u32;
    let receiver = std::thread::spawn(move || {
        let mut expected = 0u32;
        let mut bytes = [0; 4];
        while expected < total {
            assert!(b.wait(Interest::Rx, PATIENCE).unwrap());
            while b.rx().available() > 0 {
                b.rx().frame(0).read(&mut bytes);
                assert_eq!(u32::from_ne_bytes(bytes), expected);
                b.rx().release(1);
                expected += 1;
            }
            b.rx().sync().unwrap();
        }
    });
    for number in 0..total {
        while !a.tx().send(&number.to_ne_bytes()).unwrap() {
            a.wait(Interest::Tx, PATIENCE).unwrap();
        }
        if number % 7 == 0 {
            a.tx().sync().unwrap();
        }
    }
    a.tx().sync().unwrap();
    receiver.join().unwrap();
}

#[test]
fn forwarding_within_one_region_exchanges_buffers() {
    let net = Embedded::new();
    let [mut a, mut b] = ["vale0:a", "vale0:b"].map(|name| net.open(name).unwrap());
    let [mut out, mut c] = ["vale1:out@share=vale0:b", "vale1:c"].map(|name| net.open(name).unwrap());
    for round in 0..3000u32 {
        let mut ping = frame(B, A, 60);
        ping[20..24].copy_from_slice(&round.to_ne_bytes());
        send(&mut a, &ping);
        b.rx().sync().unwrap();
        assert_eq!(b.rx().forward(out.tx(), 10), Forwarded { frames: 1, too_long: 0, zero_copy: true });
        out.sync().unwrap();
        b.sync().unwrap();
        assert_eq!(received(&mut c), [ping]);
    }
    // A port that leaves gives back the buffers in its slots, and the next port gets only free ones.
    drop(out);
    let mut again = net.open("vale1:again@share=vale0:b").unwrap();
    send(&mut again, &frame(C, B, 70));
    assert_eq!(received(&mut c), [frame(C, B, 70)]);
    assert_conserved(&net, "vale0");
    assert_conserved(&net, "vale1");
}

#[test]
fn forwarding_between_regions_copies() {
    let net = Embedded::new();
    let [mut a, mut b] = ["vale0:a", "vale0:b"].map(|name| net.open(name).unwrap());
    let [mut c, mut d] = ["x{1@buf-size=64", "x}1"].map(|name| net.open(name).unwrap());
    send(&mut a, &frame(B, A, 177));
    b.rx().sync().unwrap();
    assert_eq!(b.rx().forward(c.tx(), 10), Forwarded { frames: 1, too_long: 0, zero_copy: false });
    c.tx().sync().unwrap();
    assert_eq!(received(&mut d), [frame(B, A, 177)]);
}

#[test]
fn addresses_age_and_unknown_ones_are_flooded_again() {
    let net = Embedded::new();
    let [mut a, mut b, mut c] = ["vale0:a", "vale0:b", "vale0:c"].map(|name| net.open(name).unwrap());
    send(&mut b, &frame(A, B, 60));
    received(&mut a);
    received(&mut c);
    for _ in 0..60 {
        net.tick();
    }
    send(&mut a, &frame(B, A, 60));
    assert!(received(&mut c).is_empty(), "as old as it may be, and still known");
    received(&mut b);
    net.tick();
    send(&mut a, &frame(B, A, 60));
    assert_eq!(received(&mut c).len(), 1, "too old");
    assert_eq!(received(&mut b).len(), 1);
}

#[test]
fn a_device_in_a_shared_region_has_the_queues_of_that_region() {
    let net = Embedded::new();
    let _first = net.open("vale0:a@queues=2").unwrap();
    let mut device = net.open("null:size=60@share=vale0:a").unwrap();
    assert_eq!(device.queues().len(), 2);
    for queue in device.queues() {
        queue.rx().sync().unwrap();
        assert!(queue.rx().available() > 0, "a queue that nothing serves");
    }
    let refused = net.open("null:size=60@share=vale0:a,queues=1").unwrap_err().to_string();
    assert!(refused.contains("queues"), "{refused}");
}

#[test]
fn each_open_of_a_device_name_makes_another_device() {
    let net = Embedded::new();
    let mut ports = [(); 3].map(|()| net.open("null:size=60").unwrap());
    for port in &mut ports {
        port.sync().unwrap();
        assert!(port.rx().available() > 0);
    }
}

#[test]
fn an_end_of_a_pipe_is_open_once_at_a_time() {
    let net = Embedded::new();
    let [master, _slave] = ["x{1", "x}1"].map(|name| net.open(name).unwrap());
    let refused = net.open("x{1").unwrap_err().to_string();
    assert!(refused.contains("open already"), "{refused}");
    drop(master);
    net.open("x{1").unwrap();
}

#[test]
fn a_full_ring_lets_the_datapath_sleep_and_room_wakes_it() {
    let embedded = Embedded::on_thread(&ringroad::EmbeddedThread::default()).unwrap();
    let mut port = embedded.open("null:size=60@slots=8").unwrap();
    for _ in 0..1000 {
        assert!(port.wait(Interest::Rx, PATIENCE).unwrap(), "no frame came");
        let taken = port.rx().available();
        port.rx().release(taken);
        // After this sync only the next wait reads the ring, so nothing but the release itself can wake the datapath.
        port.rx().sync().unwrap();
    }
}

#[test]
fn a_null_port_gives_and_takes_frames_without_end() {
    let mut null = Port::open("null:size=100,copy=1").unwrap();
    null.rx().sync().unwrap();
    assert!(null.rx().available() >= 256);
    assert_eq!(null.rx().frame(0).len(), 100);
    for _ in 0..5000 {
        while !null.tx().send(&[0; 60]).unwrap() {
            null.tx().sync().unwrap();
        }
    }
}

#[test]
fn a_capture_file_is_read_whole_however_slow_its_reader_is() {
    use ringroad_capture::{CaptureFormat, CaptureReader, CaptureWriter};
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    let mut writer = CaptureWriter::create(&input, CaptureFormat::Pcap, 0).unwrap();
    let sent: Vec<Vec<u8>> = (0..3000).map(|n| frame(B, A, 60 + n * 31 % 9000)).collect();
    for (number, bytes) in (0u64..).zip(&sent) {
        writer.write_frame(number, bytes, bytes.len() as u32).unwrap();
    }
    writer.finish().unwrap();
    let name = format!("pcap:in={},out={}", input.display(), output.display());
    let options = OpenOptions { slots: Some(64), ..OpenOptions::default() };
    let mut port = Port::open_with(&name, &options).unwrap();
    let mut got = Vec::new();
    loop {
        let frames = received(&mut port);
        if frames.is_empty() {
            break;
        }
        for bytes in &frames {
            while !port.tx().send(bytes).unwrap() {
                port.tx().sync().unwrap();
            }
        }
        port.tx().sync().unwrap();
        got.extend(frames);
    }
    assert_eq!(got, sent);
    drop(port);
    let mut reader = CaptureReader::open(&output).unwrap();
    for bytes in &sent {
        assert_eq!(reader.next_frame().unwrap().unwrap().bytes, bytes);
    }
    assert!(reader.next_frame().unwrap().is_none());
}

#[test]
fn a_capture_file_that_is_cut_gives_its_whole_frames_and_then_an_error() {
    use ringroad_capture::{CaptureFormat, CaptureWriter};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    let mut writer = CaptureWriter::create(&path, CaptureFormat::Pcap, 0).unwrap();
    for number in 0..10 {
        writer.write_frame(number, &frame(B, A, 60), 60).unwrap();
    }
    writer.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 7]).unwrap();
    let mut port = Port::open(&format!("pcap:{}", path.display())).unwrap();
    assert!(port.wait(Interest::Rx, PATIENCE).unwrap());
    assert_eq!(port.rx().available(), 9);
    port.rx().release(9);
    let error = port.rx().sync().unwrap_err().to_string();
    assert!(error.contains("cut.pcap"), "{error}");
    let mut full = Port::open("pcap:out=/dev/full").map_err(|error| error.to_string());
    let error = match &mut full {
        // Headers may be written later than the file is opened.
        Ok(port) => loop {
            port.tx().send(&frame(B, A, 1500)).unwrap();
            if let Err(error) = port.tx().sync() {
                break error.to_string();
            }
        },
        Err(error) => error.clone(),
    };
    assert!(error.contains("/dev/full"), "{error}");
}

#[test]
fn several_queues_keep_their_number() {
    let net = Embedded::new();
    let mut a = net.open("vale0:a@queues=3").unwrap();
    let mut b = net.open("vale0:b@queues=3").unwrap();
    send(&mut b, &frame(A, B, 60));
    a.sync().unwrap();
    for queue in 0..3 {
        let queue_frame = frame(B, A, 60 + queue);
        let queue = &mut a.queues()[queue];
        assert!(queue.tx().send(&queue_frame).unwrap());
        queue.tx().sync().unwrap();
    }
    b.sync().unwrap();
    for (number, queue) in b.queues().iter_mut().enumerate() {
        assert_eq!(queue.rx().available(), 1);
        assert_eq!(queue.rx().frame(0).len(), 60 + number);
    }
    // Flooding goes to ring 0.
    assert!(a.queues()[2].tx().send(&frame([0xFF; 6], A, 70)).unwrap());
    a.sync().unwrap();
    b.sync().unwrap();
    assert_eq!(b.queues()[0].rx().available(), 2);
}
