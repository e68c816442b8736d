//! Tests of server and client, with each other and with hostile peers. Both sides are in one process, with real sockets
//! and shared memory.

mod exchange;
mod hostile_clients;
mod hostile_servers;

use std::path::PathBuf;
use std::time::Duration;

use ringroad_port::batch::BATCH_FRAMES;
use ringroad_port::port_queue::Delivery;
use tempfile::TempDir;

use crate::device::Device;
use crate::peer::watch::PeerStatus;
use crate::test_network::until;
use crate::test_queue::{deliver, open, take};

/// Deadline of waits, which only a failure reaches.
const PATIENCE: Duration = Duration::from_secs(20);

/// A port that the test itself serves.
struct Port {
    device: Device,
}

impl Port {
    /// Opens `memif:PATH@OPTIONS`.
    fn open(path: &std::path::Path, options: &str) -> Self {
        Self { device: open(&format!("memif:{}@{options}", path.display())) }
    }

    fn status(&self) -> PeerStatus {
        self.device.peer.as_ref().unwrap().status()
    }

    /// Takes a batch from a queue, and gives it back.
    fn receive(&mut self, queue: usize) -> Vec<Vec<u8>> {
        take(&mut *self.device.queues[queue])
    }

    /// Serves all queues without expecting frames.
    fn serve(&mut self) {
        for queue in 0..self.device.queues.len() {
            assert_eq!(self.receive(queue), Vec::<Vec<u8>>::new());
        }
    }

    /// Delivers frames, each in fragments of `part` bytes.
    fn send(&mut self, queue: usize, frames: &[Vec<u8>], part: usize) -> Delivery {
        deliver(&mut *self.device.queues[queue], frames, part)
    }

    /// Whether a queue has its rings. The rings have another size than a batch.
    fn has_rings(&mut self, queue: usize) -> bool {
        self.device.queues[queue].backpressure().unwrap().room(60) != BATCH_FRAMES
    }

    fn violations(&mut self) -> u64 {
        self.device.queues.iter_mut().map(|queue| queue.diagnosis().unwrap().violations()).sum()
    }
}

/// Serves both until they are connected.
fn connect(a: &mut Port, b: &mut Port) {
    until(|| {
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
    until(|| {
        if sent < frames.len() {
            let some = &frames[sent..frames.len().min(sent + 4)];
            let delivery = from.send(queue, some, part);
            assert_eq!(delivery.frames + delivery.dropped.total(), some.len() as u32);
            // Frames that did not fit are the last ones.
            sent += delivery.frames as usize;
        }
        from.serve();
        received.extend(to.receive(queue));
        received.len() >= frames.len()
    });
    assert!(received == frames, "{} of {} frames arrived", received.len(), frames.len());
}

/// A temporary folder, and a path in it for a socket.
fn socket() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sock");
    (folder, path)
}
