//! Our server against our client, and against peers that lie: in one process, through real sockets and shared memory.

mod exchange;
mod hostile_clients;
mod hostile_servers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::catalogue::port_name::PortName;
use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::Delivery;
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use tempfile::TempDir;

use crate::catalogue::{open_device, plan_device};
use crate::device::{Device, Role};
use crate::peer::watch::PeerStatus;

/// Only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A port, served by the test itself.
struct Port {
    device: Device,
    batch: Batch,
}

impl Port {
    /// Opens `memif:PATH@OPTIONS`.
    fn open(path: &std::path::Path, options: &str) -> Self {
        let name: PortName = format!("memif:{}@{options}", path.display()).parse().unwrap();
        let plan = plan_device(&name, None).unwrap();
        let device = open_device(&name, plan, Role::SwitchPort, None).unwrap();
        Self { device, batch: Batch::new() }
    }

    fn status(&self) -> PeerStatus {
        self.device.peer.as_ref().unwrap().status()
    }

    /// Takes a batch from a queue, and gives it back.
    fn receive(&mut self, queue: usize) -> Vec<Vec<u8>> {
        let queue = &mut self.device.queues[queue];
        self.batch.reset(256);
        queue.receive(&mut self.batch);
        let frames = (0..self.batch.frames())
            .map(|frame| {
                let mut bytes = vec![0; self.batch.frame_bytes(frame)];
                let mut at = 0;
                for fragment in self.batch.frame(frame) {
                    at += fragment.bytes().read(&mut bytes[at..]);
                }
                bytes
            })
            .collect();
        let slots = self.batch.slots();
        self.batch.reset(256);
        queue.release(slots);
        queue.flush();
        frames
    }

    /// Looks after all queues without expecting frames.
    fn serve(&mut self) {
        for queue in 0..self.device.queues.len() {
            assert_eq!(self.receive(queue), Vec::<Vec<u8>>::new());
        }
    }

    /// Delivers frames, each in fragments of `part` bytes.
    fn send(&mut self, queue: usize, frames: &[Vec<u8>], part: usize) -> Delivery {
        self.batch.reset(256);
        for frame in frames {
            let parts = frame.len().div_ceil(part);
            for (number, bytes) in frame.chunks(part).enumerate() {
                let flags = if number + 1 < parts { MORE_FRAGMENTS } else { 0 };
                // SAFETY: the frames outlive the batch's use, and nobody writes them.
                #[allow(unsafe_code)]
                let fragment = unsafe { Fragment::from_private(bytes, flags) };
                self.batch.push(fragment, number == 0);
            }
        }
        let list: Vec<u16> = (0..frames.len() as u16).collect();
        let delivery = self.device.queues[queue].deliver(&mut self.batch, &list);
        self.device.queues[queue].flush();
        delivery
    }

    /// Whether a queue has its rings: their size is no batch's.
    fn has_rings(&mut self, queue: usize) -> bool {
        self.device.queues[queue].backpressure().unwrap().room(60) != BATCH_FRAMES
    }

    fn violations(&mut self) -> u64 {
        self.device.queues.iter_mut().map(|queue| queue.diagnosis().unwrap().violations()).sum()
    }
}

/// Waits for what nothing announces.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "no {what}");
        std::thread::yield_now();
    }
}

/// Serves both until they are connected.
fn connect(a: &mut Port, b: &mut Port) {
    until("connection", || {
        a.serve();
        b.serve();
        [&mut *a, &mut *b].into_iter().all(|port| {
            port.status().is_connected && (0..port.device.queues.len()).all(|queue| port.has_rings(queue))
        })
    });
}

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7) as u8).collect()
}

/// Sends `frames` from a queue of one port to one of another, as fast as they fit, and checks every byte.
fn pass(from: &mut Port, to: &mut Port, queue: usize, frames: &[Vec<u8>], part: usize) {
    let (mut sent, mut received) = (0, Vec::new());
    until("frames", || {
        if sent < frames.len() {
            let some = &frames[sent..frames.len().min(sent + 4)];
            let delivery = from.send(queue, some, part);
            assert_eq!(delivery.frames + delivery.dropped.total(), some.len() as u32);
            // What did not fit is at the end.
            sent += delivery.frames as usize;
        }
        from.serve();
        received.extend(to.receive(queue));
        received.len() >= frames.len()
    });
    assert!(received == frames, "{} frames came of {}", received.len(), frames.len());
}

/// A folder with a path for a socket.
fn socket() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sock");
    (folder, path)
}
