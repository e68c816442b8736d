#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::channel;

use ringroad_netdev::link_by_name;
use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::PortQueue;

use super::*;
use crate::test_network::{
    Host, RawSocket, in_own_namespace, ip, number_of, test_frame, until, wait_running,
};
use crate::test_queue::{deliver, forward, receive, receive_now};

const LOCAL: u16 = 0x88b5;

impl PacketConfig {
    /// Default properties: one queue of 2048 slots that hands over frames at once.
    pub(crate) fn new(interface: &str, ifindex: u32, mtu: u32) -> Self {
        Self {
            interface: interface.to_owned(),
            ifindex,
            mtu,
            queues: 1,
            slots: 2048,
            immediate: true,
            timestamps: None,
            fanout: Fanout::Hash,
            ignore_marked: None,
        }
    }
}

/// Function that creates a pair of interfaces with these names and this MTU, both up, and returns the request for the
/// first.
type Pair = fn(&str, &str, u32) -> PacketConfig;

/// Runs `test` with a ring of slots and with one of blocks, each in a namespace of its own.
fn over_each_ring(test: fn(Pair)) {
    in_own_namespace(move || test(pair));
    in_own_namespace(move || test(pair_for_blocks));
}

fn pair_for_blocks(near: &str, far: &str, mtu: u32) -> PacketConfig {
    PacketConfig { immediate: false, ..pair(near, far, mtu) }
}

fn pair(near: &str, far: &str, mtu: u32) -> PacketConfig {
    ip(&format!("link add {near} mtu {mtu} type veth peer name {far} mtu {mtu}"));
    ip(&format!("link set {far} up"));
    ip(&format!("link set {near} up"));
    wait_running(near);
    wait_running(far);
    let ifindex = link_by_name(near).unwrap().index;
    PacketConfig::new(near, ifindex, mtu)
}

fn open_one(config: &PacketConfig) -> Box<dyn PortQueue> {
    open(config).unwrap().queues.remove(0)
}

#[test]
fn frames_pass_both_ways_unchanged_round_a_small_ring() {
    over_each_ring(|pair| {
        let config = pair("rrp0", "rrp1", 1500);
        let mut queue = open_one(&PacketConfig { slots: 32, ..config });
        let far = RawSocket::open("rrp1", LOCAL);
        for number in 0..100 {
            let frame = test_frame(1, number, 60 + 14 * number as usize);
            far.send(&frame);
            assert_eq!(receive(&mut *queue, 1), [frame]);
        }
        let frames: Vec<_> = (0..100).map(|number| test_frame(2, number, 1514)).collect();
        let delivery = deliver(&mut *queue, &frames, 400);
        assert_eq!((delivery.frames, delivery.bytes, delivery.dropped.total()), (100, 151_400, 0));
        for frame in frames {
            assert_eq!(far.receive(), frame);
        }
        assert_eq!(
            (queue.diagnosis().unwrap().fault(), queue.diagnosis().unwrap().missed_frames()),
            (None, 0)
        );
    });
}

#[test]
fn frames_of_a_large_mtu_pass_whole_and_longer_ones_are_refused() {
    over_each_ring(|pair| {
        // Too long for any slot: they come through the socket's queue.
        let mut queue = open_one(&pair("rrp0", "rrp1", 40000));
        let far = RawSocket::open("rrp1", LOCAL);
        let frames: Vec<_> =
            (0..60).map(|number| test_frame(1, number, if number % 2 == 0 { 40014 } else { 1000 })).collect();
        frames.iter().for_each(|frame| far.send(frame));
        assert!(receive(&mut *queue, 60) == frames, "frames differ");
        assert_eq!(queue.diagnosis().unwrap().missed_frames(), 0);

        let frames = [test_frame(2, 1, 60), test_frame(2, 2, 40015), test_frame(2, 3, 60), vec![1; 9]];
        let delivery = deliver(&mut *queue, &frames, 65535);
        assert_eq!((delivery.frames, delivery.bytes), (2, 120));
        assert_eq!(delivery.dropped.of(DropCause::TooLong), 1);
        assert_eq!(delivery.dropped.of(DropCause::TooShort), 1);
        assert_eq!((number_of(&far.receive()), number_of(&far.receive())), (1, 3));
    });
}

#[test]
fn vlan_tags_are_in_the_frame_again() {
    over_each_ring(|pair| {
        let mut queue = open_one(&pair("rrp0", "rrp1", 40000));
        let far = RawSocket::open("rrp1", LOCAL);
        for tags in [&[0x81, 0, 0x60, 7][..], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7]] {
            for len in [60, 20000] {
                let mut frame = test_frame(1, 1, len);
                frame.splice(12..12, tags.iter().copied());
                far.send(&frame);
                assert!(receive(&mut *queue, 1) == [frame], "a frame of {len} bytes differs");
            }
        }
    });
}

#[test]
fn several_queues_share_the_frames_and_no_frame_comes_twice() {
    over_each_ring(|pair| {
        let config = pair("rrp0", "rrp1", 1500);
        for fanout in [Fanout::RoundRobin, Fanout::Hash, Fanout::Cpu, Fanout::Queue] {
            let config = PacketConfig { queues: 2, fanout, ..config.clone() };
            let mut device = open(&config).unwrap();
            // A second device is in its own group, and receives everything too.
            let mut other = open(&config).unwrap();
            let far = RawSocket::open("rrp1", LOCAL);
            (0..200).for_each(|number| far.send(&test_frame(1, number, 60)));
            for device in [&mut device, &mut other] {
                let mut numbers: Vec<u32> = Vec::new();
                while numbers.len() < 200 {
                    for queue in &mut device.queues {
                        numbers.extend(receive_now(&mut **queue).iter().map(|frame| number_of(frame)));
                    }
                }
                for queue in &mut device.queues {
                    assert_eq!(
                        (receive_now(&mut **queue).len(), queue.diagnosis().unwrap().missed_frames()),
                        (0, 0)
                    );
                }
                numbers.sort_unstable();
                assert_eq!(numbers, (0..200).collect::<Vec<_>>(), "{fanout:?}");
            }
        }
    });
}

#[test]
fn neither_what_the_host_sends_nor_what_is_marked_is_received() {
    over_each_ring(|pair| {
        let config = pair("rrp0", "rrp1", 1500);
        for queues in [1, 2] {
            let config = PacketConfig { queues, ignore_marked: Some(0x5252), ..config.clone() };
            let mut device = open(&config).unwrap();
            let (host, far) = (RawSocket::open("rrp0", LOCAL), RawSocket::open("rrp1", LOCAL));
            host.send(&test_frame(1, 1, 60));
            deliver(&mut *device.queues[0], &[test_frame(1, 2, 60)], 60);
            far.mark(0x5252);
            far.send(&test_frame(2, 3, 60));
            far.mark(0);
            far.send(&test_frame(2, 4, 60));
            let mut numbers = Vec::new();
            while numbers.is_empty() {
                let frames = device.queues.iter_mut().flat_map(|queue| receive_now(&mut **queue));
                numbers.extend(frames.map(|frame| number_of(&frame)));
            }
            assert_eq!(numbers, [4]);
        }
    });
}

#[test]
fn a_full_ring_is_counted_and_every_frame_accounted_for() {
    in_own_namespace(|| {
        let config = pair("rrp0", "rrp1", 1500);
        let mut queue = open_one(&PacketConfig { slots: 32, ..config });
        let far = RawSocket::open("rrp1", LOCAL);
        (0..100).for_each(|number| far.send(&test_frame(1, number, 60)));
        let mut batch = Batch::new();
        while batch.frames() < 32 {
            queue.receive(&mut batch);
        }
        // All slots are borrowed, so no more frames come, and none comes twice.
        queue.receive(&mut batch);
        assert_eq!((batch.frames(), queue.sleeper().unwrap().has_waiting()), (32, false));
        queue.release(10);
        far.send(&test_frame(1, 100, 60));
        batch.reset(256);
        while batch.frames() == 0 {
            queue.receive(&mut batch);
        }
        queue.release(22 + batch.frames());
        let received = 32 + batch.frames() as u64 + receive_now(&mut *queue).len() as u64;
        assert_eq!(received + queue.diagnosis().unwrap().missed_frames(), 101);
        assert_eq!(queue.diagnosis().unwrap().missed_frames(), 0);
    });
}

#[test]
fn frames_carry_their_arrival_time_if_requested() {
    over_each_ring(|pair| {
        let config = pair("rrp0", "rrp1", 1500);
        let now_ns =
            || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        for timestamps in [TimestampSource::Kernel, TimestampSource::Hardware] {
            let mut device = open(&PacketConfig { timestamps: Some(timestamps), ..config.clone() }).unwrap();
            // A veth has no clock of its own.
            assert_eq!(device.notes.len(), usize::from(timestamps == TimestampSource::Hardware));
            let before_ns = now_ns();
            RawSocket::open("rrp1", LOCAL).send(&test_frame(1, 1, 60));
            let mut batch = Batch::new();
            while batch.frames() == 0 {
                device.queues[0].receive(&mut batch);
            }
            assert!((before_ns..=now_ns()).contains(&batch.meta(0).timestamp_ns));
        }
    });
}

#[test]
fn an_interface_without_link_loses_frames_by_cause_until_it_has_one() {
    over_each_ring(|pair| {
        let mut queue = open_one(&pair("rrp0", "rrp1", 1500));
        let frames: Vec<_> = (0..20).map(|number| test_frame(1, number, 60)).collect();
        let cases = [("link set rrp0", "rrp0 is down"), ("link set rrp1", "rrp0 has no carrier")];
        for (command, words) in cases {
            ip(&format!("{command} down"));
            until(|| queue.diagnosis().unwrap().fault().is_some_and(|fault| fault.contains(words)));
            let delivery = deliver(&mut *queue, &frames, 60);
            assert_eq!((delivery.frames, delivery.dropped.of(DropCause::LinkDown)), (0, 20));
            assert!(queue.backpressure().unwrap().room(1514) >= 64, "a wire would be held back for ever");
            queue.sleeper().unwrap().prepare_sleep(true);
            assert!(queue.sleeper().unwrap().wake_descriptor().is_some(), "it may come up again");
            ip(&format!("{command} up"));
            wait_running("rrp0");
            wait_running("rrp1");
            until(|| queue.diagnosis().unwrap().fault().is_none());
            let delivery = deliver(&mut *queue, &frames, 60);
            assert_eq!((delivery.frames, delivery.dropped.total()), (20, 0));
            queue.sleeper().unwrap().drain_wake();
            RawSocket::open("rrp1", LOCAL).send(&frames[0]);
            assert_eq!(receive(&mut *queue, 1), frames[..1]);
            assert_eq!(queue.diagnosis().unwrap().fault(), None);
        }
    });
}

#[test]
fn a_vanished_interface_is_a_fault_and_causes_no_more_wake_ups() {
    over_each_ring(|pair| {
        let config = pair("rrp0", "rrp1", 1500);
        let mut queue = open_one(&config);
        ip("link set rrp0 down");
        let descriptor = queue.sleeper().unwrap().wake_descriptor().unwrap();
        let mut ready = [rustix::event::PollFd::from_borrowed_fd(descriptor, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut ready, None).unwrap();
        queue.sleeper().unwrap().drain_wake();
        assert!(queue.diagnosis().unwrap().fault().unwrap().contains("rrp0 is down"));
        assert!(queue.sleeper().unwrap().wake_descriptor().is_some(), "it may come up again");
        ip("link del rrp1");
        // No further event at the socket could announce the end.
        until(|| queue.sleeper().unwrap().wake_descriptor().is_none());
        assert!(!queue.sleeper().unwrap().has_waiting());
        assert!(queue.diagnosis().unwrap().fault().unwrap().contains("rrp0 is gone"));
        let delivery = deliver(&mut *queue, &[test_frame(1, 1, 60)], 60);
        assert_eq!(delivery.dropped.of(DropCause::LinkDown), 1);
        assert_eq!((receive_now(&mut *queue).len(), queue.diagnosis().unwrap().missed_frames()), (0, 0));
    });
}

#[test]
fn what_cannot_be_opened_is_refused_with_the_reason() {
    in_own_namespace(|| {
        let config = pair("rrp0", "rrp1", 1500);
        let refused = |config: PacketConfig| open(&config).unwrap_err().to_string();
        assert!(refused(PacketConfig { queues: 0, ..config.clone() }).contains("1 to 256 queues, not 0"));
        assert!(refused(PacketConfig { slots: 0, ..config.clone() }).contains("1 to 65536 slots, not 0"));
        assert!(refused(PacketConfig { ifindex: 999_999, ..config.clone() }).contains("no such interface"));
        ip("tuntap add dev rrt0 mode tun");
        let ifindex = link_by_name("rrt0").unwrap().index;
        assert!(refused(PacketConfig::new("rrt0", ifindex, 1500)).contains("carries no Ethernet"));
    });
}

/// Tests two hosts with a wire of two packet queues between them. `between` runs while frames are forwarded. `cut` says
/// whether some of them need segmentation.
fn with_two_hosts(pair: Pair, cut: bool, between: impl FnOnce(&Host, &Host) + Send + 'static) {
    in_own_namespace(move || {
        let mut left = open_one(&pair("rrp0", "rrp1", 1500));
        let mut right = open_one(&pair("rrp2", "rrp3", 1500));
        let (client, server) = (Host::new(), Host::new());
        client.take("rrp1", "10.9.0.1/24");
        server.take("rrp3", "10.9.0.2/24");
        std::thread::scope(|scope| {
            let (finished, done) = channel::<()>();
            let wire = scope.spawn(move || {
                let mut batch = Batch::new();
                let (mut longest, mut pieces) = (0, 0);
                while done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    let mut moved = forward(&mut *left, &mut *right, &mut batch);
                    for frame in 0..batch.frames() {
                        longest = longest.max(batch.frame(frame).iter().map(|part| part.len()).sum());
                        pieces = pieces.max(batch.frame(frame).len());
                    }
                    moved += forward(&mut *right, &mut *left, &mut batch);
                    if moved == 0 {
                        std::thread::yield_now();
                    }
                }
                (longest, pieces)
            });
            between(&client, &server);
            drop(finished);
            let (longest, pieces) = wire.join().unwrap();
            assert!(longest <= 1514, "a frame of {longest} bytes: no card would send it");
            assert_eq!(pieces > 1, cut, "frames had up to {pieces} fragments");
        });
    });
}

#[test]
fn a_tcp_transfer_with_offloaded_checksums_and_segmentation_is_whole() {
    const TOTAL_BYTES: usize = 8 << 20;
    for pair in [pair, pair_for_blocks] {
        with_two_hosts(pair, true, |client, server| {
            let (result, received) = channel();
            let listener = server.run(|| TcpListener::bind("10.9.0.2:7").unwrap());
            server.start(move || {
                let mut bytes = Vec::new();
                listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
                result.send(bytes).unwrap();
            });
            let sent: Vec<u8> = (0..TOTAL_BYTES).map(|at| (at ^ (at >> 8)) as u8).collect();
            let copy = sent.clone();
            client.run(move || TcpStream::connect("10.9.0.2:7").unwrap().write_all(&copy).unwrap());
            assert!(received.recv().unwrap() == sent, "the bytes differ");
        });
    }
}

#[test]
fn datagrams_with_partial_checksums_arrive() {
    for pair in [pair, pair_for_blocks] {
        with_two_hosts(pair, false, |client, server| {
            let receiver = server.run(|| UdpSocket::bind("10.9.0.2:7").unwrap());
            receiver.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            for len in [0, 1, 100, 1471, 1472] {
                let payload = vec![len as u8; len];
                let copy = payload.clone();
                client.run(move || {
                    let sender = UdpSocket::bind("10.9.0.1:0").unwrap();
                    sender.send_to(&copy, "10.9.0.2:7").unwrap();
                });
                let mut buffer = [0; 2000];
                let received = receiver.recv(&mut buffer).unwrap();
                assert_eq!(buffer[..received], payload);
            }
        });
    }
}

#[test]
fn a_second_open_receives_the_same_frames() {
    over_each_ring(|pair| {
        let config = pair("rrp0", "rrp1", 1500);
        let (mut one, mut two) = (open_one(&config), open_one(&config));
        let frame = test_frame(1, 1, 60);
        RawSocket::open("rrp1", LOCAL).send(&frame);
        assert_eq!(receive(&mut *one, 1), receive(&mut *two, 1));
    });
}

#[test]
fn the_kernel_puts_frames_where_runs_expect_them() {
    fn most_come_in_runs<R: PacketRing>(ring: fn(OwnedFd, u32, usize) -> std::io::Result<R>) {
        let config = pair("rrp0", "rrp1", 1500);
        let mut ring = ring(socket::open().unwrap(), config.slots, 1522).unwrap();
        socket::bind(ring.socket(), config.ifindex, libc::ETH_P_ALL).unwrap();
        let far = RawSocket::open("rrp1", LOCAL);
        (0..100).for_each(|number| far.send(&test_frame(1, number, 60)));
        let (mut come, mut plain) = (0, 0);
        until(|| {
            let (frames, plain_frames) = ring::tests::in_runs(&mut ring);
            come += frames.len();
            plain += plain_frames;
            come == 100
        });
        // The first frame of a block does not count as plain, nor does one that comes right after the end of a run.
        assert!(plain > 50, "{plain} of 100");
    }
    in_own_namespace(|| most_come_in_runs(SlotRing::new));
    in_own_namespace(|| most_come_in_runs(BlockRing::new));
}

#[test]
fn frames_are_sent_as_listed_after_any_earlier_frames() {
    in_own_namespace(|| {
        let mut queue = open_one(&pair("rrp0", "rrp1", 1500));
        let far = RawSocket::open("rrp1", LOCAL);
        let frames: Vec<_> = (0..6).map(|number| test_frame(1, number, 60 + 100 * number as usize)).collect();
        let mut singles = Batch::new();
        for frame in &frames {
            // SAFETY: the frames outlive the batch, and nothing writes to them.
            singles.push(unsafe { Fragment::from_private(frame, 0) }, true);
        }
        for list in [&[0, 1, 2, 3, 4, 5][..], &[5, 2, 2], &[0, 1, 2], &[4, 5], &[1, 0, 2, 3, 4, 5]] {
            let delivery = queue.deliver(&mut singles, list);
            let expected: Vec<_> = list.iter().map(|&frame| frames[usize::from(frame)].clone()).collect();
            let bytes: usize = expected.iter().map(Vec::len).sum();
            assert_eq!((delivery.frames as usize, delivery.bytes as usize), (list.len(), bytes));
            assert_eq!(expected.iter().map(|_| far.receive()).collect::<Vec<_>>(), expected);
            // Frames in several pieces take another path.
            assert_eq!(deliver(&mut *queue, &frames, 70).frames, 6);
            assert_eq!(frames.iter().map(|_| far.receive()).collect::<Vec<_>>(), frames);
        }
    });
}

mod bursts;
