//! Ports whose far side the test controls.

#![allow(dead_code, clippy::unwrap_used, unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};

use ringroad_datapath::engine::Engine;
use ringroad_datapath::fabric::{QueueParts, Share};
use ringroad_port::batch::Batch;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, PortQueue, ProgramQueue, QueueProperties, Sleep};

/// The far side of a port.
#[derive(Default)]
pub struct Far {
    /// Number of frames that the far side has left to send.
    pub left: AtomicU64,
    /// Frames that were taken from it.
    pub taken: AtomicU64,
    /// Frames delivered to it.
    pub got: AtomicU64,
    /// Numbers of the received frames, if the far side was set to keep them.
    pub numbers: Mutex<Vec<u32>>,
    pub keeps_numbers: AtomicBool,
    /// Times that the queue was polled for frames.
    pub polls: AtomicU64,
    /// Announcements of sleep that the far side got.
    pub told: AtomicU64,
    pub is_closed: AtomicBool,
    /// Number of the port's queues that exist.
    pub queues: AtomicUsize,
    /// Slots that were not released when their queue ended.
    pub unreleased: AtomicUsize,
}

impl Far {
    pub fn sending(frames: u64) -> Arc<Self> {
        Arc::new(Self { left: frames.into(), ..Self::default() })
    }
}

/// A queue that sends copies of one frame, each with the number of frames left in bytes 14 to 18.
pub struct Near {
    far: Arc<Far>,
    frame: Vec<u8>,
    lent: usize,
    /// Frames of a batch, kept until they are released.
    memory: Vec<Vec<u8>>,
    /// Engine that is stepped when the fabric requests the queue's properties, so that frames move in the middle of a
    /// change.
    steps: Option<Weak<Mutex<Engine>>>,
    /// Cost of a frame delivered to the queue.
    frame_cost: u16,
}

pub const BROADCAST: [u8; 6] = [0xff; 6];

/// The address of the station at port `number`.
pub fn station(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// The share of a user with one program.
pub const fn user(user: u32) -> Share {
    Share::Program { user, program: 0 }
}

impl Near {
    pub fn new(far: &Arc<Far>, to: [u8; 6], from: [u8; 6], bytes: usize) -> Self {
        let mut frame = [&to[..], &from[..]].concat();
        frame.resize(bytes, 0);
        far.queues.fetch_add(1, SeqCst);
        Self { far: Arc::clone(far), frame, lent: 0, memory: Vec::new(), steps: None, frame_cost: 1 }
    }

    pub fn stepping(mut self, engine: &Arc<Mutex<Engine>>) -> Self {
        self.steps = Some(Arc::downgrade(engine));
        self
    }

    pub fn costing(mut self, frame_cost: u16) -> Self {
        self.frame_cost = frame_cost;
        self
    }

    pub fn parts(self) -> Vec<QueueParts> {
        vec![QueueParts::new(Box::new(self))]
    }
}

impl PortQueue for Near {
    fn properties(&mut self) -> QueueProperties {
        if let Some(engine) = self.steps.as_ref().and_then(Weak::upgrade) {
            engine.lock().unwrap().step();
        }
        QueueProperties { sleeps_alone: true, frame_cost: self.frame_cost, ..QueueProperties::default() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.far.polls.fetch_add(1, SeqCst);
        if self.lent == 0 {
            self.memory.clear();
        }
        while batch.has_room(1) && !self.far.is_closed.load(SeqCst) {
            let left = self.far.left.load(SeqCst);
            if left == 0 {
                return;
            }
            self.far.left.store(left - 1, SeqCst);
            let mut frame = self.frame.clone();
            frame[14..18].copy_from_slice(&(left as u32).to_be_bytes());
            self.memory.push(frame);
            let frame = self.memory.last().unwrap();
            // SAFETY: a vector's bytes stay where they are when it moves, and the vector is kept until all frames are
            // released.
            batch.push(unsafe { Fragment::from_private(frame, 0) }, true);
            self.lent += 1;
        }
    }

    fn release(&mut self, slots: usize) {
        self.lent -= slots;
        self.far.taken.fetch_add(slots as u64, SeqCst);
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        for &number in frames {
            let frame = batch.frame(usize::from(number));
            let mut head = [0; 18];
            frame[0].bytes().read(&mut head);
            if self.far.keeps_numbers.load(SeqCst) {
                let number = u32::from_be_bytes(head[14..].try_into().unwrap());
                self.far.numbers.lock().unwrap().push(number);
            }
        }
        self.far.got.fetch_add(frames.len() as u64, SeqCst);
        let bytes = frames.iter().map(|&number| batch.frame_bytes(usize::from(number)) as u64).sum();
        Delivery { frames: frames.len() as u32, bytes, ..Delivery::default() }
    }

    fn sleeper(&mut self) -> Option<&mut dyn Sleep> {
        Some(self)
    }

    fn program(&mut self) -> Option<&mut dyn ProgramQueue> {
        Some(self)
    }
}

impl Sleep for Near {
    fn has_waiting(&mut self) -> bool {
        self.far.left.load(SeqCst) > 0
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        self.far.told.fetch_add(u64::from(sleeping), SeqCst);
    }
}

impl ProgramQueue for Near {
    fn close(&mut self) {
        self.far.is_closed.store(true, SeqCst);
    }

    fn end(&mut self) {}
}

impl Drop for Near {
    fn drop(&mut self) {
        self.far.queues.fetch_sub(1, SeqCst);
        self.far.unreleased.fetch_add(self.lent, SeqCst);
    }
}
