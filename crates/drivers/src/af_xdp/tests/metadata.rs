//! Tests of what the kernel knows of a frame beside its bytes: open checksums of sent frames, VLAN tags of received ones.
#![allow(unsafe_code)]

use std::net::UdpSocket;
use std::time::Duration;

use ringroad_bpf::link::{BpfLink, TcxSide, XdpAttachMode};
use ringroad_bpf::map::XskMap;
use ringroad_bpf::program::{RedirectPath, TcxProgram, XdpProgram};
use ringroad_port::batch::FrameMeta;
use ringroad_port::offload::Unfinished;

use super::*;
use crate::test_network::{Host, set_tx_checksums, wait_running};

const IPV4: u16 = 0x0800;
const CHECKSUM_AT: usize = 14 + 20 + 6;

fn leaving(ifindex: u32, mode: AfXdpMode) -> XdpConfig {
    XdpConfig { leaves_checksums: true, ..config(ifindex, mode) }
}

/// A UDP packet from 10.0.0.1 to port 4001 of 10.0.0.2, finished, and with its checksum left open.
fn udp_frame(payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(4000, 4001);
    let mut finished = Vec::new();
    builder.write(&mut finished, payload).unwrap();
    // The sum of the pseudo header.
    let words = [0x0A00, 1, 0x0A00, 2, 17, 8 + payload.len() as u32];
    let sum: u32 = words.iter().sum();
    let mut open = finished.clone();
    open[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    (finished, open)
}

fn task_of(open: &[u8]) -> Unfinished {
    Unfinished::detect(open, open.len(), 9000).unwrap()
}

/// An open checksum behind `start` and `offset`.
fn task(start: u16, offset: u16) -> Unfinished {
    let offsets = [0, 0, start, offset].map(u16::to_ne_bytes);
    Unfinished::from_header(&[&[1, 0][..], offsets.as_flattened()].concat())
}

/// Delivers frames from private memory with their open tasks. The kernel is not called for them.
fn put_unfinished(queue: &mut XdpQueue, frames: &[(&[u8], Unfinished)]) -> Delivery {
    let mut batch = Batch::new();
    for &(frame, unfinished) in frames {
        // SAFETY: the frames outlive the batch.
        batch.push(unsafe { Fragment::from_private(frame, 0) }, true);
        batch.describe(FrameMeta { unfinished, ..FrameMeta::default() });
    }
    let all: Vec<u16> = (0..frames.len() as u16).collect();
    queue.deliver(&mut batch, &all)
}

#[test]
fn an_open_checksum_leaves_open_or_is_filled_in_as_the_interface_is_set() {
    in_own_namespace(|| {
        let (near, _) = veth(1, 9000);
        let far = RawSocket::open("far", IPV4);
        for mode in [AfXdpMode::Native, AfXdpMode::Generic] {
            let mut device = open(&XdpConfig { mtu: 9000, ..leaving(near, mode) }).unwrap();
            assert!(device.mode.ends_with("; with tx-checksum"), "{}", device.mode);
            let queue = &mut device.queues[0];
            assert!(queue.takes_open_checksums() && !queue.takes_unfinished());
            for stays_open in [true, false, true] {
                set_tx_checksums("near", stays_open);
                // The longest frames with their request in one buffer, and in two, are among them.
                for bytes in [0, 1, 18, 1000, 1726, 1727, 1750, 1751, 5000, 8972] {
                    let payload: Vec<u8> = (0..bytes).map(|at| (at * 7) as u8).collect();
                    let (finished, open) = udp_frame(&payload);
                    let sent = [(&open[..], task_of(&open)), (&finished[..], Unfinished::default())];
                    assert_eq!(put_unfinished(queue, &sent).frames, 2);
                    queue.flush();
                    assert!(
                        far.receive() == if stays_open { open } else { finished.clone() },
                        "{bytes} bytes"
                    );
                    assert!(far.receive() == finished, "{bytes} bytes, finished");
                }
            }
            assert_eq!(queue.diagnosis().unwrap().fault(), None);
        }
    });
}

#[test]
fn a_network_stack_takes_a_frame_with_an_open_checksum_and_not_one_with_a_wrong_checksum() {
    in_own_namespace(|| {
        let (near, _) = veth(1, 1500);
        ip("link set far address 02:00:00:00:00:02");
        let host = Host::new();
        host.take("far", "10.0.0.2/24");
        wait_running("near");
        let socket = host.run(|| UdpSocket::bind("10.0.0.2:4001").unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut device = open(&leaving(near, AfXdpMode::Native)).unwrap();
        let (_, wrong) = udp_frame(b"wrong");
        let (_, good) = udp_frame(b"good");
        let sent = [(&wrong[..], Unfinished::default()), (&good[..], task_of(&good))];
        assert_eq!(put_unfinished(&mut device.queues[0], &sent).frames, 2);
        device.queues[0].flush();
        let mut received = [0; 16];
        let (len, _) = socket.recv_from(&mut received).unwrap();
        assert_eq!(&received[..len], b"good");
    });
}

#[test]
fn a_frame_whose_checksum_the_kernel_cannot_reach_is_counted_and_holds_no_other_up() {
    in_own_namespace(|| {
        let (near, _) = veth(1, 9000);
        let far = RawSocket::open("far", TEST_TYPE);
        let mut device = open(&XdpConfig { mtu: 9000, ..leaving(near, AfXdpMode::Native) }).unwrap();
        let queue = &mut device.queues[0];
        let long = frame(1, 5000);
        // A first buffer has 1768 bytes of the frame.
        let sent = [(&long[..], task(1761, 6)), (&long[..], task(0, u16::MAX)), (&long[..], task(1760, 6))];
        let delivery = put_unfinished(queue, &sent);
        assert_eq!((delivery.frames, delivery.dropped.of(DropCause::BadOffload)), (1, 2));
        queue.flush();
        assert!(far.receive() == long);
        assert_eq!(deliver(queue, &[frame(2, 60)]).frames, 1);
        assert_eq!(far.receive(), frame(2, 60));
    });
}

#[test]
fn requests_spoiled_by_a_program_that_shares_the_region_do_not_stop_the_queue() {
    in_own_namespace(|| {
        let (near, _) = veth(1, 1500);
        let (far, others) = (RawSocket::open("far", IPV4), RawSocket::open("far", TEST_TYPE));
        let shared = region(1024, 2048);
        let open_config = leaving(near, AfXdpMode::Native);
        let count = open_config.buffers_per_queue() as u32;
        let mut device = XdpDevice::open(&open_config, &shared, buffers(1, count, 0)).unwrap();
        let queue = &mut device.queues[0];
        let (area, _) = shared.buffer_area().unwrap();
        assert!(queue.takes_open_checksums());
        // More rounds than there are buffers show that none is lost.
        for round in 0..2 * RING {
            let (_, open) = udp_frame(&[round as u8; 100]);
            assert_eq!(put_unfinished(queue, &[(&open[..], task_of(&open))]).frames, 1);
            for buffer in FIRST_BUFFER..FIRST_BUFFER + count {
                let start = area.as_ptr().wrapping_add(buffer as usize * 2048 + 256);
                // SAFETY: the first bytes of a buffer of the region, which no other code uses now.
                unsafe { start.write_bytes(0xFF, 8) };
            }
            queue.flush();
            assert!(!queue.takes_open_checksums(), "checksums are filled in from now on");
            let after = frame(round, 60);
            assert_eq!(deliver(queue, std::slice::from_ref(&after)).frames, 1);
            assert_eq!(far.receive(), open);
            assert_eq!(others.receive(), after);
        }
    });
}

#[test]
fn checksums_are_left_open_only_on_request_and_beside_the_longest_frame() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let one_buffer = |mtu| XdpConfig { mtu, multi_buffer: false, ..leaving(near, AfXdpMode::Native) };
        // A buffer has 1792 bytes, a request takes 24, and a frame is 18 longer than its packet.
        for (config, leaves) in [
            (config(near, AfXdpMode::Native), false),
            (one_buffer(1750), true),
            (one_buffer(1751), false),
            (XdpConfig { mtu: 9000, ..leaving(near, AfXdpMode::Native) }, true),
        ] {
            let mut device = open(&config).unwrap();
            assert_eq!(device.queues[0].takes_open_checksums(), leaves, "{config:?}");
            assert_eq!(device.mode.contains("tx-checksum"), leaves, "{}", device.mode);
        }
    });
}

/// A veth pair `near` and `far`, and a raw socket. The kernel takes the VLAN tags out of the frames that the socket
/// sends, and passes them on through `far`, with the tags beside them, as long as the link lives.
fn tagging_peer(mtu: u32) -> (u32, RawSocket, BpfLink) {
    let (near, _) = veth(1, mtu);
    ip(&format!("link add other mtu {mtu} type veth peer name remote mtu {mtu}"));
    ip("link set other up");
    ip("link set remote up");
    let program = TcxProgram::redirect(index_of("far"), RedirectPath::Egress, None).unwrap();
    let link = BpfLink::attach_tcx(&program, index_of("other"), TcxSide::Ingress).unwrap();
    (near, RawSocket::open("remote", TEST_TYPE), link)
}

fn tagged(frame: &[u8], tag: [u8; 4]) -> Vec<u8> {
    [&frame[..12], &tag, &frame[12..]].concat()
}

const TAG: [u8; 4] = [0x81, 0, 0x60, 7];

fn puts_vlan_tags_back(mtu: u32, lengths: &'static [usize]) {
    in_own_namespace(move || {
        let (near, remote, _link) = tagging_peer(mtu);
        let without = XdpConfig { mtu, ..config(near, AfXdpMode::Native) };
        let mut device = open(&without).unwrap();
        remote.send(&tagged(&frame(1, 100), TAG));
        assert_eq!(receive(&mut device.queues[0], 1), [frame(1, 100)], "the tag lies beside the frame");
        drop(device);
        let mut device = open(&XdpConfig { has_vlan_tags: true, ..without }).unwrap();
        assert!(device.mode.ends_with("; with vlan-tag"), "{}", device.mode);
        for round in 0..20 {
            let mut sent = Vec::new();
            for &len in lengths {
                let plain = frame(round, len);
                let inner = tagged(&plain, [0x81, 0, 0, 9]);
                sent.extend([tagged(&plain, TAG), tagged(&plain, [0x88, 0xA8, 0x1F, 0xFE]), plain]);
                sent.push(tagged(&inner, TAG));
            }
            for frame in &sent {
                remote.send(frame);
            }
            assert!(receive(&mut device.queues[0], sent.len()) == sent, "round {round}");
        }
        assert_eq!(device.queues[0].diagnosis().unwrap().missed_frames(), 0);
    });
}

#[test]
fn a_vlan_tag_beside_a_frame_is_put_back_into_it() {
    puts_vlan_tags_back(1500, &[60, 1000, 1509, 1510]);
}

#[test]
fn a_vlan_tag_is_put_back_into_a_frame_of_several_buffers() {
    puts_vlan_tags_back(9000, &[60, 1784, 1785, 1788, 1789, 1792, 5000, 9010]);
}

#[test]
fn a_mode_that_loses_vlan_tags_says_so_with_the_remedy() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let device = open(&XdpConfig { has_vlan_tags: true, ..config(near, AfXdpMode::Generic) }).unwrap();
        assert!(device.notes[0].contains("`tx-vlan-hw-insert off`"), "{:?}", device.notes);
        assert!(!device.mode.contains("vlan-tag"), "{}", device.mode);
    });
}

#[test]
fn a_frame_for_the_host_stack_keeps_its_vlan_tag_where_it_lies() {
    in_own_namespace(|| {
        let (near, remote, _link) = tagging_peer(9000);
        let map = XskMap::create(1).unwrap();
        let program = XdpProgram::to_sockets(&map, true, Some(near)).unwrap();
        assert!(program.puts_tags_back() && program.multi_buffer());
        let _attached = BpfLink::attach_xdp(&program, near, XdpAttachMode::Native).unwrap();
        // With the tag in the frame, too, it would be of another type.
        let host = RawSocket::open("near", TEST_TYPE);
        remote.send(&tagged(&frame(1, 100), TAG));
        assert_eq!(host.receive(), frame(1, 100));
    });
}
