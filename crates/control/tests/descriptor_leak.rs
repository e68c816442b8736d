//! A test alone in its process, so that no other test changes the number of open descriptors.
#![allow(clippy::unwrap_used)]

mod opened;

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use opened::opened;
use ringroad_control::codec::{encode_reply, encode_request};
use ringroad_control::{Connection, Reply, Request, ServerConnection, fd_passing};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Sends descriptors that the daemon does not want.
fn unwanted_at_the_daemon() {
    let (peer, socket) = UnixStream::pair().unwrap();
    let mut server = ServerConnection::new(socket).unwrap();
    let before = open_descriptors();
    fd_passing::send(&peer, &encode_request(&Request::Stop).unwrap(), &[peer.as_fd(); 20]).unwrap();
    assert!(matches!(server.next_request(), Some(Err(_))));
    assert_eq!(open_descriptors(), before, "unwanted descriptors entered the daemon's table");
}

/// Queues replies with descriptors on a connection, and drops it.
fn queued_at_the_daemon() {
    let (_peer, socket) = UnixStream::pair().unwrap();
    let mut server = ServerConnection::new(socket).unwrap();
    let file = tempfile::tempfile().unwrap();
    let before = open_descriptors();
    while !server.wants_write() {
        server.send(&opened(1, ""), &[file.as_fd(); 3]);
    }
    assert_eq!(open_descriptors(), before + 3);
}

/// Sends `count` descriptors with `frame` as a daemon; the program refuses them.
fn unwanted_at_the_program(frame: Vec<u8>, count: usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ringroad.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut connection = Connection::connect(&path).unwrap();
    let (mut daemon, _) = listener.accept().unwrap();
    // The reply is sent before the request, so that no thread is needed.
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
        unwanted_at_the_program(encode_reply(&opened(1, "")).unwrap(), 33);
        unwanted_at_the_program(b"\x03\0\0\0???".to_vec(), 3);
        unwanted_at_the_program(u32::MAX.to_le_bytes().to_vec(), 3);
        assert_eq!(open_descriptors(), before);
    }
}
