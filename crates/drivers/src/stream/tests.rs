use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Delivery, PortQueue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;

use crate::device::Device;
use crate::peer::watch::PeerStatus;
use crate::test_network::until;
use crate::test_queue::{
    assert_refuses_descriptors, deliver, frames_of, open, receive, receive_now, resume, take,
};

/// Deadline of waits, which only a failure reaches.
const PATIENCE: Duration = Duration::from_secs(20);

/// A port in the role of a server.
struct Testbed {
    _folder: tempfile::TempDir,
    path: PathBuf,
    device: Device,
}

impl Testbed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let device = open(&name(&path));
        Self { _folder: folder, path, device }
    }

    /// A peer that the port serves.
    fn peer(&mut self) -> UnixStream {
        let peer = self.waiting_peer();
        until(|| {
            assert_eq!(take(self.queue()), Vec::<Vec<u8>>::new());
            self.status().is_connected
        });
        peer
    }

    /// A peer that the port may serve later.
    fn waiting_peer(&self) -> UnixStream {
        let peer = UnixStream::connect(&self.path).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        peer.set_write_timeout(Some(PATIENCE)).unwrap();
        peer
    }

    fn queue(&mut self) -> &mut dyn PortQueue {
        &mut *self.device.queues[0]
    }

    fn status(&self) -> PeerStatus {
        self.device.peer.as_ref().unwrap().status()
    }

    /// Serves until the peer is gone, and returns the frames that came.
    fn await_end(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        until(|| {
            frames.extend(take(self.queue()));
            !self.status().is_connected
        });
        frames
    }

    fn violations_and_incomplete(&mut self) -> (u64, u64) {
        let diagnosis = self.queue().diagnosis().unwrap();
        (diagnosis.violations(), diagnosis.incomplete_frames())
    }
}

fn name(path: &std::path::Path) -> String {
    format!("stream:{}@role=server", path.display())
}

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7) as u8).collect()
}

fn frames(count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| frame(number, len)).collect()
}

/// The frames as a peer sends them.
fn encoded(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.iter().flat_map(|frame| [&(frame.len() as u32).to_be_bytes()[..], frame].concat()).collect()
}

/// The whole frames in what a peer has received, and what is behind them.
fn decoded(mut bytes: &[u8]) -> (Vec<Vec<u8>>, &[u8]) {
    let mut frames = Vec::new();
    while let Some((length, behind)) = bytes.split_first_chunk::<4>()
        && let Some((frame, behind)) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)
    {
        frames.push(frame.to_vec());
        bytes = behind;
    }
    (frames, bytes)
}

/// Reads what is at the peer's socket.
fn read_now(peer: &mut UnixStream, into: &mut Vec<u8>) {
    peer.set_nonblocking(true).unwrap();
    assert_eq!(peer.read_to_end(into).unwrap_err().kind(), ErrorKind::WouldBlock);
    peer.set_nonblocking(false).unwrap();
}

/// Whether the port has closed the connection.
fn is_closed(peer: &mut UnixStream) -> bool {
    match peer.read(&mut [0; 64]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Delivers one frame, in pieces.
fn send(queue: &mut dyn PortQueue, frame: &[u8]) -> Delivery {
    deliver(queue, &[frame.to_vec()], 2048)
}

/// Sends frames to a peer that does not read, until one is dropped. Returns the number of frames taken.
fn fill(queue: &mut dyn PortQueue) -> usize {
    let mut taken = 0;
    loop {
        let delivery = deliver(queue, &frames(200, 9001), 9001);
        taken += delivery.frames as usize;
        if delivery.dropped.total() > 0 {
            return taken;
        }
    }
}

#[test]
fn frames_pass_both_ways_behind_their_lengths() {
    let mut site = Testbed::new();
    let mut peer = site.peer();
    for len in [1, 14, 60, 1514, 9000, 65535] {
        peer.write_all(&encoded(&[frame(len, len)])).unwrap();
        assert_eq!(receive(site.queue(), 1), [frame(len, len)]);
        let delivery = send(site.queue(), &frame(7, len));
        assert_eq!((delivery.frames, delivery.bytes), (1, len as u64));
        let mut came = vec![0; 4 + len];
        peer.read_exact(&mut came).unwrap();
        assert_eq!(came, encoded(&[frame(7, len)]));
    }
    assert_eq!(site.queue().longest_frame_bytes(), 65535);
    // Frames in so many pieces that a batch takes several calls.
    let burst = frames(100, 600);
    assert_eq!(deliver(site.queue(), &burst, 20).frames, 100);
    let mut came = vec![0; 100 * 604];
    peer.read_exact(&mut came).unwrap();
    assert!(came == encoded(&burst));
}

#[test]
fn frames_are_whole_however_the_peer_cuts_the_stream() {
    let mut site = Testbed::new();
    let mut peer = site.peer();
    let sent: Vec<Vec<u8>> =
        [60, 1, 1514, 333, 20_000].into_iter().enumerate().map(|(number, len)| frame(number, len)).collect();
    let stream = encoded(&sent);
    for piece in [1, 2, 3, 5, 61, 1000, stream.len()] {
        let mut came = Vec::new();
        for piece in stream.chunks(piece) {
            peer.write_all(piece).unwrap();
            came.extend(take(site.queue()));
        }
        came.extend(receive_now(site.queue()));
        assert!(came == sent, "pieces of {piece}");
    }
    assert_eq!(site.violations_and_incomplete(), (0, 0));
}

#[test]
fn lent_frames_stay_as_they_are_while_more_come() {
    let mut site = Testbed::new();
    let mut peer = site.peer();
    let sent = frames(1000, 1514);
    let stream = encoded(&sent);
    let writing = std::thread::spawn(move || peer.write_all(&stream).map(|()| peer));
    let mut came = Vec::new();
    while came.len() < sent.len() {
        // All that the buffer has room for is lent at a time.
        let mut batches = Vec::new();
        loop {
            let mut batch = Batch::new();
            batch.reset(64);
            site.queue().receive(&mut batch);
            if batch.frames() == 0 {
                break;
            }
            batches.push(batch);
        }
        for batch in batches {
            came.extend(frames_of(&batch));
            site.queue().release(batch.slots());
        }
        std::thread::yield_now();
    }
    assert!(came == sent);
    drop(writing.join().unwrap().unwrap());
}

#[test]
fn a_length_that_no_frame_has_ends_the_connection_and_the_next_peer_is_served() {
    let mut site = Testbed::new();
    for (length, told) in [
        (0, "of 0 bytes"),
        (65536, "of 65536 bytes"),
        (u32::MAX, "of 4294967295 bytes"),
        (u32::from_be_bytes(*b"GET "), "4 bytes, big endian"),
    ] {
        let mut peer = site.peer();
        // The frames before it are whole.
        let good = frames(3, 60);
        peer.write_all(&[encoded(&good), length.to_be_bytes().to_vec(), vec![1; 500]].concat()).unwrap();
        assert_eq!(site.await_end(), good);
        assert!(is_closed(&mut peer));
        let error = site.status().last_error.unwrap();
        assert!(error.contains(told), "{error}");
        assert_eq!(site.violations_and_incomplete(), (1, 0));
        assert_eq!(send(site.queue(), &[1; 60]).dropped.of(DropCause::NotBound), 1);
    }
    let mut peer = site.peer();
    peer.write_all(&encoded(&frames(1, 60))).unwrap();
    assert_eq!(receive(site.queue(), 1), frames(1, 60));
    assert_eq!(site.status().last_error, None);
}

#[test]
fn a_frame_without_an_end_is_counted_and_no_part_of_it_reaches_the_next_peer() {
    let mut site = Testbed::new();
    for left in [1, 4, 63] {
        let mut peer = site.peer();
        peer.write_all(&encoded(&frames(1, 100))).unwrap();
        peer.write_all(&encoded(&frames(1, 60))[..left]).unwrap();
        drop(peer);
        assert_eq!(site.await_end(), frames(1, 100));
        assert_eq!(site.status().last_error, None);
        assert_eq!(site.violations_and_incomplete(), (0, 1));
    }
    // A frame that was sent in part belongs to the peer that is gone, too.
    let peer = site.peer();
    while deliver(site.queue(), &frames(200, 9000), 9000).dropped.total() == 0 {}
    drop(peer);
    site.await_end();
    let mut next = site.peer();
    assert_eq!(send(site.queue(), &[5; 60]).frames, 1);
    let mut came = vec![0; 64];
    next.read_exact(&mut came).unwrap();
    assert_eq!(came, encoded(&[vec![5; 60]]));
    assert_eq!(site.violations_and_incomplete(), (0, 0));
}

#[test]
fn a_peer_that_does_not_read_costs_only_whole_frames() {
    let mut site = Testbed::new();
    let mut peer = site.peer();
    let mut taken = Vec::new();
    let mut came = Vec::new();
    let mut has_dropped = false;
    for round in 0..28 {
        let burst: Vec<Vec<u8>> = (0..200)
            .map(|number| frame(round * 200 + number, 60 + (round * 997 + number * 31) % 9000))
            .collect();
        let delivery = deliver(site.queue(), &burst, 3000);
        let dropped = delivery.dropped.of(DropCause::NoSpace);
        assert_eq!(delivery.frames + dropped, 200);
        has_dropped |= dropped > 0;
        // The first frames are taken, and none behind a dropped one.
        taken.extend_from_slice(&burst[..delivery.frames as usize]);
        if round % 7 == 6 {
            // The peer reads a part.
            let mut part = vec![0; 100_000];
            let bytes = peer.read(&mut part).unwrap();
            came.extend_from_slice(&part[..bytes]);
        }
    }
    assert!(has_dropped);
    until(|| {
        take(site.queue());
        read_now(&mut peer, &mut came);
        decoded(&came).0.len() >= taken.len()
    });
    let (frames, rest) = decoded(&came);
    assert!(frames == taken && rest.is_empty());
}

#[test]
fn the_rest_of_a_frame_follows_when_the_peer_makes_room_for_a_sleeping_worker() {
    let mut site = Testbed::new();
    let mut peer = site.peer();
    let taken = fill(site.queue());
    let sleeper = site.queue().sleeper().unwrap();
    sleeper.prepare_sleep(true);
    assert!(!sleeper.has_waiting());
    let mut came = Vec::new();
    read_now(&mut peer, &mut came);
    let (whole, rest) = decoded(&came);
    assert!(whole.len() == taken - 1 && !rest.is_empty(), "the kernel took the last frame in part");
    let mut ready = [PollFd::from_borrowed_fd(sleeper.wake_descriptor().unwrap(), PollFlags::IN)];
    assert_eq!(poll(&mut ready, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).unwrap(), 1);
    sleeper.drain_wake();
    sleeper.prepare_sleep(false);
    take(site.queue());
    read_now(&mut peer, &mut came);
    assert!(decoded(&came).0.len() == taken && decoded(&came).1.is_empty());
    // Room alone wakes no worker that has nothing to send.
    let sleeper = site.queue().sleeper().unwrap();
    sleeper.prepare_sleep(true);
    sleeper.drain_wake();
    let mut ready = [PollFd::from_borrowed_fd(sleeper.wake_descriptor().unwrap(), PollFlags::IN)];
    assert_eq!(poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap(), 0);
}

#[test]
fn a_peer_that_sends_no_frame_does_not_keep_the_worker_awake() {
    let mut site = Testbed::new();
    let mut peer = site.peer();
    // Not every kernel has out-of-band bytes on UNIX sockets.
    let _ = rustix::net::send(&peer, &[9], SendFlags::OOB);
    peer.write_all(&encoded(&frames(1, 60))[..30]).unwrap();
    assert_eq!(receive_now(site.queue()), Vec::<Vec<u8>>::new());
    for _ in 0..2 {
        assert!(!site.queue().sleeper().unwrap().has_waiting());
    }
    peer.write_all(&encoded(&frames(1, 60))[30..]).unwrap();
    assert_eq!(receive(site.queue(), 1), frames(1, 60));
    // The end of the peer is noticed by a worker that is about to sleep.
    drop(peer);
    assert!(site.queue().sleeper().unwrap().has_waiting());
    assert!(!site.status().is_connected);
}

#[test]
fn a_second_peer_is_served_when_the_first_has_left() {
    let mut site = Testbed::new();
    let first = site.peer();
    let mut second = site.waiting_peer();
    second.write_all(&encoded(&frames(2, 60))).unwrap();
    assert_eq!(receive_now(site.queue()), Vec::<Vec<u8>>::new());
    drop(first);
    // No later event announces the second peer.
    assert_eq!(receive(site.queue(), 2), frames(2, 60));
    assert_eq!((site.status().connections, site.status().is_connected), (2, true));
}

#[test]
fn a_client_finds_its_server_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let mut device = open(&format!("stream:{}", path.display()));
    let watch = device.peer.clone().unwrap();
    let queue = &mut *device.queues[0];
    assert_eq!(send(queue, &[1; 60]).dropped.of(DropCause::NotBound), 1);
    until(|| {
        take(queue);
        watch.status().last_error.is_some_and(|error| error.contains("No such file"))
    });
    let listener = UnixListener::bind(&path).unwrap();
    for number in 1..=2 {
        // The connection wakes a worker that sleeps.
        let server = std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut server = listener.accept().unwrap().0;
                server.write_all(&encoded(&frames(number, 60))).unwrap();
                server
            });
            assert_eq!(receive(queue, number), frames(number, 60));
            server.join().unwrap()
        });
        assert_eq!((watch.status().connections, watch.status().last_error), (number as u64, None));
        assert_eq!(send(queue, &[1; 60]).frames, 1);
        drop(server);
        until(|| {
            take(queue);
            !watch.status().is_connected
        });
    }
}

#[test]
fn another_process_continues_in_the_middle_of_a_frame_both_ways() {
    let mut site = Testbed::new();
    let mut peer = site.peer();
    let stream = encoded(&frames(5, 700));
    // A frame is lent and given back, one is here as a whole, and one in part.
    peer.write_all(&stream[..2 * 704 + 300]).unwrap();
    let mut batch = Batch::new();
    batch.reset(1);
    until(|| {
        site.queue().receive(&mut batch);
        batch.frames() == 1
    });
    assert_eq!(frames_of(&batch), frames(1, 700));
    assert!(site.queue().upgrade().unwrap().hand_over().is_none(), "a frame is lent");
    site.queue().release(1);
    let taken = fill(site.queue());
    // A process that does not take over changes nothing.
    let left = site.queue().upgrade().unwrap().hand_over().unwrap();
    drop(resume(&name(&site.path), left));
    assert!(site.path.exists());
    site.queue().upgrade().unwrap().resume();

    let left = site.queue().upgrade().unwrap().hand_over().unwrap();
    let next = resume(&name(&site.path), left);
    // The process before ends without cleaning up.
    std::mem::forget(std::mem::replace(&mut site.device, next));
    site.queue().upgrade().unwrap().resume();
    assert_eq!((site.status().connections, site.status().is_connected), (1, true));
    peer.write_all(&stream[2 * 704 + 300..]).unwrap();
    assert_eq!(receive(site.queue(), 4), frames(5, 700)[1..]);
    let mut came = Vec::new();
    until(|| {
        take(site.queue());
        read_now(&mut peer, &mut came);
        decoded(&came).0.len() >= taken
    });
    assert!(decoded(&came).1.is_empty());
    drop(peer);
    site.await_end();
    // The next peer finds the socket.
    let mut peer = site.peer();
    peer.write_all(&stream[..704]).unwrap();
    assert_eq!(receive(site.queue(), 1), frames(1, 700));
    let Testbed { _folder: folder, path, device } = site;
    drop(device);
    assert!(!path.exists());
    drop(folder);
}

#[test]
fn a_port_without_its_sockets_file_is_opened_anew() {
    let mut site = Testbed::new();
    std::fs::remove_file(&site.path).unwrap();
    assert!(site.queue().upgrade().unwrap().hand_over().is_none());
}

#[test]
fn a_peer_cannot_make_the_worker_close_its_descriptors() {
    let mut site = Testbed::new();
    assert_refuses_descriptors(site.peer());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let mut client = open(&format!("stream:{}", path.display()));
    take(&mut *client.queues[0]);
    assert_refuses_descriptors(listener.accept().unwrap().0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_frames_up_to_the_first_wrong_length(
        lengths in prop::collection::vec(prop_oneof![1u32..200, 1u32..70_000, any::<u32>()], 1..6),
        piece in 1usize..5000,
    ) {
        let mut site = Testbed::new();
        let mut peer = site.peer();
        let mut stream = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            stream.extend_from_slice(&length.to_be_bytes());
            stream.extend(frame(number, (*length as usize).min(70_000)));
        }
        let is_good = |length: &&u32| (1..=65535).contains(*length);
        let good: Vec<Vec<u8>> =
            lengths.iter().take_while(is_good).enumerate().map(|(number, len)| frame(number, *len as usize)).collect();
        let mut came = Vec::new();
        for piece in stream.chunks(piece) {
            // The port may have ended the connection.
            let _ = peer.write_all(piece);
            came.extend(take(site.queue()));
        }
        drop(peer);
        came.extend(site.await_end());
        prop_assert!(came == good, "{} of {} frames", came.len(), good.len());
        let is_broken = good.len() < lengths.len();
        prop_assert_eq!(site.violations_and_incomplete(), (u64::from(is_broken), 0));
    }
}
