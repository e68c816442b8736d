//! Alone in its process, so that the count of open descriptors is its own.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use ringroad_control::codec::{encode_reply, encode_request};
use ringroad_control::message::{OpenedPort, PortKind};
use ringroad_control::{Connection, Reply, Request, ServerConnection, fd_passing};
use ringroad_ring::geometry::{PortPlacement, RegionGeometry};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn opened() -> Reply {
    Reply::Opened(OpenedPort {
        name: "vale0:a".to_owned(),
        kind: PortKind::SwitchPort,
        mode: String::new(),
        driver: None,
        notes: Vec::new(),
        geometry: RegionGeometry::for_ports(1, 1, 64, 2048, 0).unwrap(),
        placement: PortPlacement {
            interface: 0,
            tx_rings: vec![0],
            rx_rings: vec![1],
            slots: 64,
            extra_buffers: 0,
        },
        peer_placement: None,
        queue_count: 1,
        switch: None,
        switch_index: None,
    })
}

/// A peer sends descriptors that the daemon does not want.
fn unwanted_at_the_daemon() {
    let (peer, socket) = UnixStream::pair().unwrap();
    let mut server = ServerConnection::new(socket).unwrap();
    let before = open_descriptors();
    fd_passing::send(&peer, &encode_request(&Request::Stop).unwrap(), &[peer.as_fd(); 20]).unwrap();
    assert!(matches!(server.next_request(), Some(Err(_))));
    assert_eq!(open_descriptors(), before, "unwanted descriptors entered the daemon's table");
}

/// Replies with descriptors wait in the queue of a connection that is then dropped.
fn queued_at_the_daemon() {
    let (_peer, socket) = UnixStream::pair().unwrap();
    let mut server = ServerConnection::new(socket).unwrap();
    let file = tempfile::tempfile().unwrap();
    let before = open_descriptors();
    while !server.wants_write() {
        server.send(&opened(), &[file.as_fd(); 3]);
    }
    assert_eq!(open_descriptors(), before + 3);
}

/// A daemon sends `count` descriptors with `frame`, which the program refuses.
fn unwanted_at_the_program(frame: Vec<u8>, count: usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ringroad.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut connection = Connection::connect(&path).unwrap();
    let (mut daemon, _) = listener.accept().unwrap();
    // The answer is there before the question, so that no thread is needed.
    let descriptors = vec![daemon.as_fd(); count];
    let sent = fd_passing::send(&daemon, &frame[..1], &descriptors).unwrap();
    daemon.write_all(&frame[sent..]).unwrap();
    assert!(connection.request(&Request::Status).is_err());
}

#[test]
fn no_path_leaks_a_descriptor() {
    let before = open_descriptors();
    for _ in 0..3 {
        unwanted_at_the_daemon();
        queued_at_the_daemon();
        unwanted_at_the_program(encode_reply(&Reply::Done).unwrap(), 2);
        unwanted_at_the_program(encode_reply(&opened()).unwrap(), 33);
        unwanted_at_the_program(b"\x03\0\0\0???".to_vec(), 3);
        unwanted_at_the_program(u32::MAX.to_le_bytes().to_vec(), 3);
        assert_eq!(open_descriptors(), before);
    }
}
