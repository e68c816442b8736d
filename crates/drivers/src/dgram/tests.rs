use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Delivery, PortQueue};

use crate::device::Device;
use crate::test_queue::{assert_refuses_descriptors, deliver, open, receive_now};

struct Testbed {
    _folder: tempfile::TempDir,
    path: PathBuf,
    device: Device,
}

impl Testbed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let device = open(&format!("dgram:{}", path.display()));
        Self { _folder: folder, path, device }
    }

    fn peer(&self) -> UnixDatagram {
        let peer = UnixDatagram::bind(self.path.with_extension("peer")).unwrap();
        peer.connect(&self.path).unwrap();
        peer
    }

    fn queue(&mut self) -> &mut dyn PortQueue {
        &mut *self.device.queues[0]
    }
}

/// Delivers one frame, in pieces.
fn send(queue: &mut dyn PortQueue, frame: &[u8]) -> Delivery {
    deliver(queue, &[frame.to_vec()], 2048)
}

#[test]
fn each_datagram_is_a_frame_both_ways() {
    let mut site = Testbed::new();
    let peer = site.peer();
    for len in [14, 60, 1514, 9000, 65535] {
        peer.send(&vec![7; len]).unwrap();
        assert_eq!(receive_now(site.queue()), [vec![7; len]]);
        let delivery = send(site.queue(), &vec![9; len]);
        assert_eq!((delivery.frames, delivery.bytes), (1, len as u64));
        let mut datagram = vec![0; 70_000];
        assert_eq!(peer.recv(&mut datagram).unwrap(), len);
        assert!(datagram[..len].iter().all(|byte| *byte == 9));
    }
    assert_eq!(site.queue().longest_frame_bytes(), 65535);
}

#[test]
fn frames_for_an_absent_peer_are_dropped_by_cause_until_it_returns() {
    let mut site = Testbed::new();
    for _ in 0..2 {
        assert_eq!(send(site.queue(), &[1; 60]).dropped.of(DropCause::NotBound), 1);
        let peer = site.peer();
        assert_eq!(send(site.queue(), &[1; 60]).frames, 1);
        peer.send(&[2; 60]).unwrap();
        assert_eq!(receive_now(site.queue()), [vec![2; 60]]);
        drop(peer);
        // The ended peer leaves a file without a socket.
        assert_eq!(send(site.queue(), &[1; 60]).dropped.of(DropCause::NotBound), 1);
        std::fs::remove_file(site.path.with_extension("peer")).unwrap();
    }
}

#[test]
fn a_peer_that_does_not_read_costs_only_its_own_frames() {
    let mut site = Testbed::new();
    let _peer = site.peer();
    let frames = vec![vec![1u8; 60]; 200];
    let mut sent = 0;
    // The kernel limits the number of waiting datagrams (net.unix.max_dgram_qlen), or their memory.
    loop {
        let delivery = deliver(site.queue(), &frames, 60);
        let full = delivery.dropped.of(DropCause::NoSpace);
        assert_eq!(delivery.frames + full, 200);
        sent += delivery.frames;
        if full > 0 {
            break;
        }
    }
    assert!(sent > 0);
}

#[test]
fn a_datagram_that_no_slot_can_hold_is_counted() {
    let mut site = Testbed::new();
    let peer = site.peer();
    rustix::net::sockopt::set_socket_send_buffer_size(&peer, 1 << 20).unwrap();
    peer.send(&[1; 65536]).unwrap();
    peer.send(&[2; 60]).unwrap();
    assert_eq!(receive_now(site.queue()), [vec![2; 60]]);
    assert_eq!(site.queue().diagnosis().unwrap().missed_frames(), 1);
}

#[test]
fn a_peer_cannot_make_the_worker_close_its_descriptors() {
    let site = Testbed::new();
    assert_refuses_descriptors(site.peer());
}

#[test]
fn the_socket_goes_with_the_port() {
    let site = Testbed::new();
    let path = site.path.clone();
    assert!(path.exists());
    let Testbed { _folder: folder, device, .. } = site;
    drop(device);
    assert!(!path.exists());
    drop(folder);
}
