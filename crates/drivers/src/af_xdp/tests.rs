//! AF_XDP on veth pairs, each test in a network namespace of its own.
#![allow(unsafe_code)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringroad_port::batch::{Batch, Custody};
use ringroad_port::device_options::XdpMode;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, PortQueue};
use ringroad_ring::geometry::RegionGeometry;
use ringroad_ring::layout::FIRST_BUFFER;
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use ringroad_ring::region::{HugePages, Region};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{XdpDevice, XdpError, XdpQueue, XdpWish};
use crate::interface::Interfaces;
use crate::test_network::{RawSocket, in_own_namespace, ip, test_frame};

/// EtherType for local experiments, which test frames have.
const TEST_TYPE: u16 = 0x88B5;

const RING: u32 = 256;

fn wish(ifindex: u32, mode: XdpMode) -> XdpWish {
    XdpWish {
        interface: "near".into(),
        ifindex,
        mtu: 1500,
        queues: 1,
        mode,
        ring_size: RING,
        need_wakeup: true,
        busy_poll_us: 0,
        force: false,
        multi_buffer: true,
    }
}

fn region(buffers: u32, buffer_bytes: u32) -> Arc<Region> {
    let geometry = RegionGeometry::for_ports(1, 1, 64, buffer_bytes, buffers).unwrap();
    Arc::new(Region::create(geometry, HugePages::Never).unwrap())
}

/// Consecutive buffers of a region, `count` for each of `lists`, from number `from` on.
fn buffers(lists: u32, count: u32, from: u32) -> Vec<Vec<u32>> {
    let list = |number: u32| (0..count).map(|buffer| FIRST_BUFFER + from + number * count + buffer).collect();
    (0..lists).map(list).collect()
}

fn open(wish: &XdpWish) -> Result<XdpDevice, XdpError> {
    let count = wish.buffers_per_queue() as u32;
    let lists = u32::from(wish.queues);
    XdpDevice::open(wish, &region(lists * count, 2048), buffers(lists, count, 0))
}

fn frame(number: u32, len: usize) -> Vec<u8> {
    test_frame(2, number, len)
}

fn index_of(interface: &str) -> u32 {
    Interfaces::of_this_namespace().unwrap().index(interface).unwrap()
}

/// A veth pair `near` and `far`, both up, with so many queues each way and this MTU. Returns the index of `near` and a
/// raw socket on `far`.
fn veth(queues: u16, mtu: u32) -> (u32, RawSocket) {
    let each = format!("numrxqueues {queues} numtxqueues {queues} mtu {mtu}");
    ip(&format!("link add near {each} type veth peer name far {each}"));
    ip("link set near up");
    ip("link set far up");
    (index_of("near"), RawSocket::open("far", TEST_TYPE))
}

/// What the kernel says of `near`.
fn near_details() -> String {
    ip("-d link show near")
}

/// Waits for what no descriptor announces.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < limit, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// Waits until no program is on `near`. Other tests of this process start `ip` meanwhile: between its fork and its
/// execution, each such child holds the descriptors of a device that is being dropped.
fn await_detached() {
    until("near is free", || !near_details().contains("xdp"));
}

/// Waits until the queue has something to receive.
fn await_frames(queue: &XdpQueue) {
    let descriptor = queue.wake_descriptor().unwrap();
    let mut wanted = [PollFd::new(&descriptor, PollFlags::IN)];
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wanted, Some(&limit)).unwrap(), 1, "no frame came");
}

/// Receives until `count` frames came.
fn receive(queue: &mut XdpQueue, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut batch = Batch::new();
    while frames.len() < count {
        queue.prepare_sleep(true);
        if !queue.has_waiting() {
            await_frames(queue);
        }
        queue.prepare_sleep(false);
        batch.reset(256);
        queue.receive(&mut batch);
        for number in 0..batch.frames() {
            frames.push(content(&batch, number));
        }
        queue.release(batch.fragment_count());
        queue.flush();
    }
    frames
}

fn content(batch: &Batch, frame: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for fragment in batch.frame(frame) {
        let mut part = vec![0; fragment.len()];
        fragment.bytes().read(&mut part);
        bytes.extend(part);
    }
    bytes
}

/// Delivers frames from private memory, which have to be copied.
fn deliver(queue: &mut XdpQueue, frames: &[Vec<u8>]) -> Delivery {
    let mut batch = Batch::new();
    for frame in frames {
        // SAFETY: the frames outlive the batch.
        batch.push(unsafe { Fragment::from_private(frame, 0) }, true);
    }
    let all: Vec<u16> = (0..frames.len() as u16).collect();
    let delivery = queue.deliver(&mut batch, &all);
    queue.flush();
    delivery
}

fn passes_frames_both_ways(mode: XdpMode, expected: &'static str) {
    in_own_namespace(move || {
        let (near, far) = veth(1, 1500);
        let mut device = open(&wish(near, mode)).unwrap();
        assert!(device.mode.contains(expected), "{}", device.mode);
        let queue = &mut device.queues[0];
        // More than the rings hold, so that every buffer is used more than once.
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
        assert_eq!(queue.missed_frames(), 0);
        assert_eq!(queue.fault(), None);
    });
}

#[test]
fn native_mode_passes_frames_both_ways() {
    passes_frames_both_ways(XdpMode::Native, "copy, native");
}

#[test]
fn generic_mode_passes_frames_both_ways() {
    passes_frames_both_ways(XdpMode::Generic, "copy, generic");
}

#[test]
fn auto_takes_the_best_mode_and_says_what_was_refused() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        // A veth has no zero-copy, but native XDP.
        let device = open(&wish(near, XdpMode::Auto)).unwrap();
        assert_eq!(device.mode, "AF_XDP copy, native (zero-copy: Operation not supported)");
        assert!(device.notes[0].contains("zero-copy is not to be had"), "{:?}", device.notes);
        let error = open(&wish(near, XdpMode::ZeroCopy)).unwrap_err();
        assert!(error.to_string().contains("another XDP program"), "{error}");
        drop(device);
        await_detached();
        let error = open(&wish(near, XdpMode::ZeroCopy)).unwrap_err();
        assert!(error.to_string().contains("binding the AF_XDP socket: Operation not supported"), "{error}");
        // An interface without native XDP is served in generic mode.
        let loopback = XdpWish { interface: "lo".into(), ..wish(index_of("lo"), XdpMode::Auto) };
        let device = open(&loopback).unwrap();
        assert!(device.mode.starts_with("AF_XDP copy, generic ("), "{}", device.mode);
        assert_eq!(device.notes.len(), 2);
    });
}

#[test]
fn the_program_leaves_with_the_last_queue() {
    in_own_namespace(|| {
        let (near, far) = veth(2, 1500);
        let mut device = open(&XdpWish { queues: 2, ..wish(near, XdpMode::Native) }).unwrap();
        assert!(near_details().contains("xdp"), "{}", near_details());
        device.queues.pop();
        assert!(near_details().contains("xdp"), "one queue is left");
        let sent = frame(1, 100);
        // Whatever queue the peer chooses: the host stack gets what no socket takes, and nothing breaks.
        far.send(&sent);
        drop(device);
        await_detached();
        // The queue can be had again at once.
        drop(open(&wish(near, XdpMode::Native)).unwrap());
    });
}

#[test]
fn a_program_of_others_is_replaced_only_by_force() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 1500);
        let theirs = open(&wish(near, XdpMode::Generic)).unwrap();
        for mode in [XdpMode::Generic, XdpMode::Native, XdpMode::Auto] {
            let error = open(&wish(near, mode)).unwrap_err().to_string();
            assert!(error.contains("ip link set dev near xdp off") && error.contains("force=1"), "{error}");
        }
        // The socket of the other is bound to the queue as well: only its program can be taken off.
        let error = open(&XdpWish { force: true, ..wish(near, XdpMode::Native) }).unwrap_err().to_string();
        assert!(error.contains("another AF_XDP socket holds this queue"), "{error}");
        drop(theirs);
        await_detached();
        let map = ringroad_bpf::map::XskMap::create(1).unwrap();
        let program = ringroad_bpf::program::XdpProgram::to_sockets(&map, false).unwrap();
        let _link = ringroad_bpf::link::Link::attach_xdp(&program, near, ringroad_bpf::link::XdpMode::Native)
            .unwrap();
        assert!(open(&wish(near, XdpMode::Native)).is_err());
        let mut device = open(&XdpWish { force: true, ..wish(near, XdpMode::Native) }).unwrap();
        far.send(&frame(7, 200));
        assert_eq!(receive(&mut device.queues[0], 1), [frame(7, 200)]);
    });
}

#[test]
fn two_queues_each_get_their_frames() {
    in_own_namespace(|| {
        let (near, far) = veth(2, 1500);
        let mut device = open(&XdpWish { queues: 2, ..wish(near, XdpMode::Native) }).unwrap();
        // A veth receives in the queue in which its peer sends: that of an AF_XDP socket is known.
        let far_wish =
            XdpWish { interface: "far".into(), queues: 2, ..wish(index_of("far"), XdpMode::Native) };
        drop(far);
        let mut other = open(&far_wish).unwrap();
        for number in 0..2 {
            let sent = vec![frame(number, 300)];
            assert_eq!(deliver(&mut other.queues[number as usize], &sent).frames, 1);
            assert_eq!(receive(&mut device.queues[number as usize], 1), sent);
            assert!(!device.queues[1 - number as usize].has_waiting());
        }
    });
}

#[test]
fn jumbo_frames_take_several_buffers() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 9000);
        for mode in [XdpMode::Native, XdpMode::Generic] {
            let mut device = open(&XdpWish { mtu: 9000, ..wish(near, mode) }).unwrap();
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
            assert_eq!(queue.missed_frames(), 0);
            drop(device);
            await_detached();
        }
    });
}

#[test]
fn without_several_buffers_long_frames_are_counted() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 3500);
        let long = XdpWish { mtu: 3500, multi_buffer: false, ..wish(near, XdpMode::Generic) };
        let mut device = open(&long).unwrap();
        assert!(device.notes[0].contains("longer than 1792 bytes are lost"), "{:?}", device.notes);
        let queue = &mut device.queues[0];
        assert_eq!(deliver(queue, &[frame(1, 3000)]).dropped.of(DropCause::TooLong), 1);
        far.send(&frame(2, 3000));
        far.send(&frame(3, 300));
        assert_eq!(receive(queue, 1), [frame(3, 300)]);
        assert_eq!(queue.missed_frames(), 1);
        assert_eq!(queue.missed_frames(), 0);
    });
}

#[test]
fn frames_that_do_not_fit_the_rings_are_counted_once() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 1500);
        let mut device = open(&wish(near, XdpMode::Native)).unwrap();
        let queue = &mut device.queues[0];
        let total = RING + 100;
        for number in 0..total {
            far.send(&frame(number, 64));
        }
        let received = receive(queue, RING as usize);
        assert_eq!(received.len(), RING as usize);
        assert_eq!(queue.missed_frames(), 100);
        // And goes on.
        far.send(&frame(9999, 64));
        assert_eq!(receive(queue, 1), [frame(9999, 64)]);
    });
}

/// Two interfaces whose UMEM is one region: what the test forwards from `near` to `other`.
fn two_devices() -> (XdpQueue, XdpQueue, RawSocket, RawSocket) {
    let (near, far) = veth(1, 3500);
    ip("link add other mtu 3500 type veth peer name remote mtu 3500");
    ip("link set other up");
    ip("link set remote up");
    let shared = region(2048, 2048);
    let first = XdpWish { mtu: 3500, ..wish(near, XdpMode::Native) };
    let second = XdpWish { interface: "other".into(), ifindex: index_of("other"), ..first.clone() };
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
        // Each round uses 7 buffers of 512: after these, all of them have been on both sides.
        for round in 0..400 {
            let sent = [frame(round, 100), frame(round, 3000), frame(round, 60), frame(round, 1514)];
            for frame in &sent {
                far.send(frame);
            }
            let mut done = 0;
            while done < sent.len() {
                if !from.has_waiting() {
                    await_frames(&from);
                }
                batch.reset(256);
                from.receive(&mut batch);
                let before = batch.buffers().to_vec();
                let all: Vec<u16> = (0..batch.frames() as u16).collect();
                // The third frame of each round goes to others too: it has to be copied.
                let shared: Vec<usize> =
                    (0..batch.frames()).filter(|&number| content(&batch, number).len() == 60).collect();
                for &number in &shared {
                    batch.set_replicated(number);
                }
                let delivery = to.deliver(&mut batch, &all);
                assert_eq!(delivery.frames as usize, all.len(), "{:?}", delivery.dropped);
                let kept = before.iter().zip(batch.buffers()).filter(|(old, new)| old != new).count();
                assert_eq!(kept, before.len() - shared.len());
                exchanged += kept;
                done += batch.frames();
                assert!(batch.exchanged() || kept == 0);
                from.reclaim(&batch);
                from.release(batch.fragment_count());
                from.flush();
                to.flush();
            }
            for frame in &sent {
                assert!(remote.receive() == *frame, "round {round}");
            }
        }
        assert_eq!(exchanged, 400 * 4);
        assert_eq!((to.lent(), from.missed_frames()), (0, 0));
    });
}

#[test]
fn lent_buffers_are_sent_where_they_lie_and_come_back() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 3500);
        let shared = region(2048, 2048);
        let open_wish = XdpWish { mtu: 3500, ..wish(near, XdpMode::Native) };
        let count = open_wish.buffers_per_queue() as u32;
        let mut device = XdpDevice::open(&open_wish, &shared, buffers(1, count, 0)).unwrap();
        let queue = &mut device.queues[0];
        assert_eq!(queue.region(), Some(shared.id()));
        let (area, _) = shared.buffer_area().unwrap();
        let mut lent = 0;
        for round in 0..300 {
            let mut batch = Batch::new();
            batch.offer(shared.id(), Custody::Lend);
            // One buffer, two buffers, and one that reaches into the next chunk and so has to be copied.
            let mut expected = Vec::new();
            for (number, pieces) in [&[100_usize][..], &[1500, 700], &[2048]].into_iter().enumerate() {
                let bytes = frame(round, pieces.iter().sum());
                let mut rest = &bytes[..];
                for (place, &length) in pieces.iter().enumerate() {
                    let buffer = FIRST_BUFFER + count + 4 * number as u32 + 2 * place as u32;
                    let start = area.as_ptr().wrapping_add(buffer as usize * 2048 + 256);
                    // SAFETY: a buffer of the region and the chunk after it, which nobody else uses.
                    let slice = unsafe { std::slice::from_raw_parts_mut(start, length) };
                    slice.copy_from_slice(&rest[..length]);
                    rest = &rest[length..];
                    let more = if rest.is_empty() { 0 } else { MORE_FRAGMENTS };
                    // SAFETY: the region outlives the batch.
                    batch.push_buffer(unsafe { Fragment::from_private(slice, more) }, buffer, place == 0);
                }
                expected.push(bytes);
            }
            assert_eq!(queue.deliver(&mut batch, &[0, 1, 2]).frames, 3);
            assert!(!batch.exchanged());
            lent += 3;
            assert_eq!(queue.lent(), lent, "two frames in three buffers; the third was copied");
            queue.flush();
            for frame in &expected {
                assert!(far.receive() == *frame, "round {round}");
            }
            // A peer that has read the frame has freed it, and the kernel says so before the next call.
            while queue.returned() < lent {
                std::thread::yield_now();
            }
        }
        assert_eq!(queue.returned(), lent);
    });
}

#[test]
fn an_interface_without_carrier_loses_nothing_silently() {
    in_own_namespace(|| {
        let (near, _) = veth(1, 1500);
        let mut device = open(&wish(near, XdpMode::Native)).unwrap();
        let queue = &mut device.queues[0];
        for command in ["link set near down", "link set far down"] {
            ip(command);
            // The first batch finds out, later ones are counted. The kernel tells of a lost carrier some time after.
            until("the fault is known", || {
                deliver(queue, &[frame(1, 60)]);
                queue.fault().is_some_and(|fault| fault.contains("interface near"))
            });
            deliver(queue, &[frame(1, 60)]);
            let delivery = deliver(queue, &[frame(2, 60), frame(3, 60)]);
            assert_eq!((delivery.frames, delivery.dropped.of(DropCause::LinkDown)), (0, 2), "{command}");
            assert_eq!(queue.room(60), 256, "dropped and counted rather than held back");
            ip(&command.replace("down", "up"));
            let far = RawSocket::open("far", TEST_TYPE);
            let sent = frame(4, 60);
            until("the carrier is back", || deliver(queue, std::slice::from_ref(&sent)).frames == 1);
            assert_eq!(queue.fault(), None);
            while far.receive() != sent {}
            far.send(&frame(5, 60));
            assert_eq!(receive(queue, 1), [frame(5, 60)]);
        }
    });
}

#[test]
fn an_interface_that_vanishes_is_a_fault_and_no_hang() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let mut device = open(&wish(near, XdpMode::Native)).unwrap();
        let queue = &mut device.queues[0];
        assert_eq!(deliver(queue, &[frame(1, 60)]).frames, 1);
        ip("link del far");
        assert_eq!(queue.fault().as_deref(), Some("interface near is gone"));
        queue.prepare_sleep(true);
        assert!(queue.wake_descriptor().is_none(), "nothing will ever come");
        assert!(!queue.has_waiting());
        assert_eq!(deliver(queue, &[frame(2, 60)]).dropped.of(DropCause::LinkDown), 1);
        assert_eq!(queue.returned(), queue.lent());
        let mut batch = Batch::new();
        queue.receive(&mut batch);
        assert_eq!(batch.frames(), 0);
    });
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let good = wish(near, XdpMode::Native);
        let says = |wish: &XdpWish, part: &str| {
            let error = open(wish).unwrap_err().to_string();
            assert!(error.contains(part), "{error:?} does not say {part:?}");
        };
        says(&XdpWish { ring_size: 100, ..good.clone() }, "power of two");
        says(&XdpWish { queues: 0, ..good.clone() }, "at least 1");
        says(&XdpWish { queues: 5, ..good.clone() }, "fewer queues");
        says(&XdpWish { ifindex: 4242, ..good.clone() }, "no interface with index 4242");
        let small = region(1024, 1024);
        let error = XdpDevice::open(&good, &small, buffers(1, 512, 0)).unwrap_err().to_string();
        assert!(error.contains("buf-size=2048"), "{error}");
        let few = XdpDevice::open(&good, &region(1024, 2048), buffers(1, 511, 0)).unwrap_err().to_string();
        assert!(few.contains("511 buffers") && few.contains("512 needed"), "{few}");
        let outside = XdpDevice::open(&good, &region(64, 2048), buffers(1, 512, 0)).unwrap_err().to_string();
        assert!(outside.contains("in the region"), "{outside}");
        // Nothing is left attached.
        await_detached();
    });
}

#[test]
fn frames_too_short_for_a_header_are_counted() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 1500);
        let mut device = open(&wish(near, XdpMode::Native)).unwrap();
        let queue = &mut device.queues[0];
        let delivery = deliver(queue, &[vec![0; 13], vec![], frame(1, 1519), frame(2, 60)]);
        assert_eq!(delivery.dropped.of(DropCause::TooShort), 2);
        assert_eq!(delivery.dropped.of(DropCause::TooLong), 1);
        assert_eq!(delivery.frames, 1);
        assert_eq!(far.receive(), frame(2, 60));
        assert_eq!(queue.fault(), None);
    });
}

/// Not a test of its own: opens the interface whose index is in the environment and waits to be killed.
#[test]
#[ignore = "the other half of a_killed_process_leaves_the_interface_as_it_was"]
fn holder() {
    let Ok(index) = std::env::var("RINGROAD_TEST_HOLD") else { return };
    let _device = open(&wish(index.parse().unwrap(), XdpMode::Native)).unwrap();
    println!("\nheld");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_process_leaves_the_interface_as_it_was() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 1500);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "af_xdp::tests::holder", "--ignored", "--nocapture"])
            .env("RINGROAD_TEST_HOLD", near.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let held = BufReader::new(child.stdout.take().unwrap()).lines().any(|line| line.unwrap() == "held");
        let attached = near_details();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(held && attached.contains("xdp"), "the child did not open it");
        assert!(!near_details().contains("xdp"), "{}", near_details());
        let host = RawSocket::open("near", TEST_TYPE);
        far.send(&frame(1, 60));
        assert_eq!(host.receive(), frame(1, 60), "the host stack gets the frames again");
    });
}

/// Not a test: what one queue does on this machine. Run with `--ignored --nocapture`, best in release mode.
#[test]
#[ignore = "a measurement"]
fn rate() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let big = |ifindex, interface: &str| XdpWish {
            interface: interface.into(),
            ring_size: 2048,
            ..wish(ifindex, XdpMode::Native)
        };
        let mut near = open(&big(near, "near")).unwrap();
        let mut far = open(&big(index_of("far"), "far")).unwrap();
        let sent: Vec<Vec<u8>> = (0..64).map(|number| frame(number, 60)).collect();
        let (from, to) = (&mut near.queues[0], &mut far.queues[0]);
        let start = Instant::now();
        let (mut delivered, mut received) = (0_u64, 0_u64);
        let mut batch = Batch::new();
        while start.elapsed() < Duration::from_secs(3) {
            delivered += u64::from(deliver(from, &sent).frames);
            batch.reset(256);
            to.receive(&mut batch);
            received += batch.frames() as u64;
            to.release(batch.fragment_count());
            to.flush();
        }
        let seconds = start.elapsed().as_secs_f64();
        let rate = |count: u64| count as f64 / seconds / 1e6;
        println!(
            "sent {:.3} M/s, received {:.3} M/s, missed {}",
            rate(delivered),
            rate(received),
            to.missed_frames()
        );
    });
}
