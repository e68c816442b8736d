//! Tests of the daemon's end with misbehaving peers. Everything runs in one thread, so a blocking call would hang the
//! test.
#![allow(clippy::unwrap_used)]

mod opened;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use opened::opened;
use ringroad_control::codec::{FrameDecoder, MAX_REPLY_BYTES, PREFIX_BYTES, decode_reply, encode_request};
use ringroad_control::message::ErrorKind;
use ringroad_control::report::MacEntryReport;
use ringroad_control::server_connection::MAX_QUEUED_BYTES;
use ringroad_control::{Reply, Request, ServerConnection, fd_passing};

/// A connection whose socket has no room for a reply of a megabyte, however the machine's sockets are tuned.
fn pair() -> (UnixStream, ServerConnection) {
    let (peer, socket) = UnixStream::pair().unwrap();
    for end in [&peer, &socket] {
        rustix::net::sockopt::set_socket_send_buffer_size(end, 64 << 10).unwrap();
    }
    (peer, ServerConnection::new(socket).unwrap())
}

/// Runs one turn of the daemon's loop, which answers every request with `reply`. Returns the requests.
fn turn(server: &mut ServerConnection, reply: &Reply) -> Vec<Request> {
    server.flush();
    let mut seen = Vec::new();
    while let Some(request) = server.next_request() {
        match request {
            Ok(request) => {
                seen.push(request);
                server.send(reply, &[]);
            }
            Err(refusal) => server.send(&Reply::Error(refusal), &[]),
        }
    }
    seen
}

/// The replies that have arrived at the peer.
fn arrived(peer: &mut UnixStream) -> Vec<Reply> {
    peer.set_nonblocking(true).unwrap();
    let mut stream = Vec::new();
    // The read ends with `WouldBlock`, with a reset or at the end of the stream.
    let _ = peer.read_to_end(&mut stream);
    let mut decoder = FrameDecoder::new(MAX_REPLY_BYTES);
    let mut input = stream.as_slice();
    let mut replies = Vec::new();
    while let Some(body) = decoder.take_frame(&mut input).unwrap() {
        replies.push(decode_reply(&body).unwrap());
    }
    replies
}

fn is_bad_request(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(error) if error.kind == ErrorKind::BadRequest)
}

/// A reply of about `bytes` bytes.
fn long_reply(bytes: usize) -> Reply {
    Reply::MacTable(vec![MacEntryReport {
        mac: "x".repeat(bytes),
        vlan: None,
        port: String::new(),
        age_s: 0,
        is_static: false,
    }])
}

#[test]
fn a_request_fed_byte_by_byte_is_served_once() {
    let (mut peer, mut server) = pair();
    let frame = encode_request(&Request::List).unwrap();
    for (index, byte) in frame.iter().enumerate() {
        assert_eq!(turn(&mut server, &Reply::Done), [], "before byte {index}");
        peer.write_all(&[*byte]).unwrap();
    }
    assert_eq!(turn(&mut server, &Reply::Done), [Request::List]);
    assert_eq!(arrived(&mut peer), [Reply::Done]);
    assert!(!server.is_closed() && !server.wants_write());
}

#[test]
fn requests_sent_together_are_answered_in_order() {
    let (mut peer, mut server) = pair();
    let requests = [Request::List, Request::Status, Request::Reload];
    let stream: Vec<u8> = requests.iter().flat_map(|request| encode_request(request).unwrap()).collect();
    peer.write_all(&stream).unwrap();
    assert_eq!(server.next_request(), Some(Ok(Request::List)));
    assert!(server.has_input());
    assert_eq!(turn(&mut server, &Reply::Done), requests[1..]);
    assert!(!server.has_input());
}

#[test]
fn an_unknown_request_is_refused_and_the_connection_continues() {
    let (mut peer, mut server) = pair();
    peer.write_all(b"\x05\0\0\0\"fly\"\0\0\0\0").unwrap();
    peer.write_all(&encode_request(&Request::Stop).unwrap()).unwrap();
    assert_eq!(turn(&mut server, &Reply::Done), [Request::Stop]);
    let replies = arrived(&mut peer);
    assert_eq!(replies.len(), 3);
    assert!(is_bad_request(&replies[0]) && is_bad_request(&replies[1]));
    assert_eq!(replies[2], Reply::Done);
    assert!(!server.is_closed());
}

#[test]
fn a_length_over_the_limit_is_refused_and_the_connection_ends() {
    let (mut peer, mut server) = pair();
    peer.write_all(&encode_request(&Request::List).unwrap()).unwrap();
    peer.write_all(&u32::MAX.to_le_bytes()).unwrap();
    peer.write_all(&encode_request(&Request::Stop).unwrap()).unwrap();
    assert_eq!(turn(&mut server, &Reply::Done), [Request::List]);
    assert!(server.is_closed());
    drop(server);
    let replies = arrived(&mut peer);
    assert_eq!(replies.len(), 2);
    assert!(is_bad_request(&replies[1]));
}

#[test]
fn descriptors_with_a_request_are_refused_and_the_connection_ends() {
    let (mut peer, mut server) = pair();
    fd_passing::send(&peer, &encode_request(&Request::Stop).unwrap(), &[peer.as_fd()]).unwrap();
    assert_eq!(turn(&mut server, &Reply::Done), []);
    assert!(server.is_closed());
    let replies = arrived(&mut peer);
    assert_eq!(replies.len(), 1);
    assert!(is_bad_request(&replies[0]));
}

#[test]
fn a_peer_that_ends_its_side_still_gets_its_answers() {
    let (mut peer, mut server) = pair();
    let stream: Vec<u8> =
        [encode_request(&Request::List).unwrap(), encode_request(&Request::Stop).unwrap()].concat();
    // The second request is cut short.
    peer.write_all(&stream[..stream.len() - 1]).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(turn(&mut server, &Reply::Done), [Request::List]);
    assert!(server.is_closed());
    assert_eq!(arrived(&mut peer), [Reply::Done]);
}

#[test]
fn a_peer_that_half_closes_and_reads_slowly_gets_all_of_a_long_reply() {
    let (mut peer, mut server) = pair();
    peer.write_all(&encode_request(&Request::Status).unwrap()).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let reply = long_reply(2 << 20);
    assert_eq!(turn(&mut server, &reply), [Request::Status]);
    assert!(server.wants_write() && !server.is_closed());
    peer.set_nonblocking(true).unwrap();
    let mut stream = Vec::new();
    while !server.is_closed() {
        let mut piece = [0; 10_000];
        let count = peer.read(&mut piece).unwrap();
        stream.extend_from_slice(&piece[..count]);
        turn(&mut server, &reply);
    }
    drop(server);
    peer.read_to_end(&mut stream).unwrap();
    assert_eq!(decode_reply(&stream[PREFIX_BYTES..]).unwrap(), reply);
}

#[test]
fn a_peer_that_hangs_up_while_a_reply_waits_closes_the_connection() {
    let (mut peer, mut server) = pair();
    peer.write_all(&encode_request(&Request::Status).unwrap()).unwrap();
    turn(&mut server, &long_reply(2 << 20));
    assert!(server.wants_write());
    drop(peer);
    turn(&mut server, &Reply::Done);
    assert!(server.is_closed() && !server.wants_write());
}

#[test]
fn no_request_is_taken_while_a_reply_waits() {
    let (mut peer, mut server) = pair();
    let request = encode_request(&Request::Status).unwrap();
    peer.write_all(&request.repeat(10)).unwrap();
    let reply = long_reply(1 << 20);
    assert_eq!(turn(&mut server, &reply).len(), 1);
    assert_eq!(turn(&mut server, &reply), []);
    assert!(!server.has_input() && server.wants_write());
    assert!(server.queued_bytes() <= 2 << 20);
}

#[test]
fn a_peer_that_never_reads_is_dropped_at_the_limit() {
    let (_peer, mut server) = pair();
    let reply = long_reply(1 << 20);
    let mut sent = 0;
    while !server.is_closed() {
        server.send(&reply, &[]);
        assert!(server.queued_bytes() <= MAX_QUEUED_BYTES);
        sent += 1;
        assert!(sent < 20, "the limit does not hold");
    }
    assert_eq!(server.queued_bytes(), 0);
}

#[test]
fn the_longest_reply_fits_the_queue_and_a_longer_one_becomes_an_error() {
    let (_peer, mut server) = pair();
    let envelope = encode_reply_len(&long_reply(0));
    server.send(&long_reply(MAX_REPLY_BYTES - envelope), &[]);
    assert!(server.wants_write() && !server.is_closed());

    let (mut peer, mut server) = pair();
    server.send(&long_reply(MAX_REPLY_BYTES - envelope + 1), &[]);
    assert!(matches!(&arrived(&mut peer)[..], [Reply::Error(error)] if error.kind == ErrorKind::Internal));
}

fn encode_reply_len(reply: &Reply) -> usize {
    ringroad_control::codec::encode_reply(reply).unwrap().len() - PREFIX_BYTES
}

/// Sends `reply` with three descriptors, and closes them at this side.
fn send_with_descriptors(server: &mut ServerConnection, reply: &Reply) {
    let files: Vec<_> = (0..3).map(|_| tempfile::tempfile().unwrap()).collect();
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    server.send(reply, &borrowed);
}

/// Reads `bytes` bytes at the peer in small pieces, and flushes in between. Returns the number of received descriptors.
fn drain(peer: &UnixStream, server: &mut ServerConnection, mut bytes: usize) -> usize {
    let mut descriptors = Vec::new();
    while bytes > 0 {
        let mut piece = vec![0; bytes.min(50_000)];
        bytes -= fd_passing::receive(peer, &mut piece, &mut descriptors).unwrap().bytes;
        server.flush();
    }
    descriptors.len()
}

#[test]
fn queued_descriptors_arrive_with_the_first_byte_of_their_own_reply() {
    let (peer, mut server) = pair();
    let first = long_reply(1 << 20);
    server.send(&first, &[]);
    assert!(server.wants_write());
    send_with_descriptors(&mut server, &opened(1, ""));
    assert_eq!(drain(&peer, &mut server, PREFIX_BYTES + encode_reply_len(&first)), 0);
    assert_eq!(drain(&peer, &mut server, 1), 3);
    assert!(!server.wants_write());
}

#[test]
fn descriptors_of_a_reply_sent_in_pieces_arrive_once() {
    let (peer, mut server) = pair();
    let long = opened(1, &"x".repeat(1 << 20));
    let bytes = PREFIX_BYTES + encode_reply_len(&long);
    // The first reply is sent in part at once, the second waits in the queue; both end in the queue.
    send_with_descriptors(&mut server, &long);
    assert!(server.queued_bytes() > 0 && server.queued_bytes() < bytes);
    send_with_descriptors(&mut server, &long);
    assert_eq!(drain(&peer, &mut server, 1), 3);
    assert_eq!(drain(&peer, &mut server, bytes - 1), 0);
    assert_eq!(drain(&peer, &mut server, 1), 3);
    assert_eq!(drain(&peer, &mut server, bytes - 1), 0);
    assert!(!server.wants_write());
}

#[test]
fn the_peer_is_known() {
    let (_peer, server) = pair();
    assert_eq!(server.peer().pid, Some(std::process::id()));
}

proptest::proptest! {
    #[test]
    fn garbage_never_panics_nor_blocks(
        pieces in proptest::collection::vec(proptest::collection::vec(0u8..8, 0..100), 0..20),
    ) {
        let (mut peer, mut server) = pair();
        for piece in pieces {
            if peer.write_all(&piece).is_err() {
                break;
            }
            turn(&mut server, &Reply::Done);
            if server.is_closed() {
                break;
            }
        }
        drop(peer);
        turn(&mut server, &Reply::Done);
        proptest::prop_assert!(server.is_closed());
    }
}
