//! State shared by a session and its threads.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringroad::PortInfo;
use ringroad_traffic::meter::Meter;
use serde::Serialize;

use crate::lineup::{WireNumbers, WireStream};

/// Locks `mutex`. The locks guard plain values that are consistent at each step, so they can be used after a thread
/// panicked.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frames, and their bytes without FCS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct FrameCount {
    /// Number of frames.
    pub frames: u64,
    /// Bytes of the frames, without FCS.
    pub bytes: u64,
}

/// Counter of the frames of one queue, which any thread can read. It is written once per burst.
#[derive(Debug, Default)]
pub(crate) struct FrameCounter {
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl FrameCounter {
    /// Sets the counter, for a queue whose only thread sums up itself.
    #[inline]
    pub(crate) fn set(&self, count: FrameCount) {
        self.frames.store(count.frames, Ordering::Relaxed);
        self.bytes.store(count.bytes, Ordering::Relaxed);
    }

    /// Counts more frames, for a queue that several threads use.
    #[cfg(feature = "scripts")]
    pub(crate) fn add(&self, count: FrameCount) {
        self.frames.fetch_add(count.frames, Ordering::Relaxed);
        self.bytes.fetch_add(count.bytes, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> FrameCount {
        FrameCount { frames: self.frames.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

/// Parts of a session that its threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) info: Vec<PortInfo>,
    /// Meters by port.
    pub(crate) meters: Vec<Arc<Mutex<Meter>>>,
    pub(crate) wire_streams: Vec<WireStream>,
    pub(crate) wire_numbers: WireNumbers,
    /// Counters by port, then queue.
    pub(crate) received: Vec<Vec<Arc<FrameCounter>>>,
    /// Counters by load, then queue.
    pub(crate) sent: Vec<Vec<Arc<FrameCounter>>>,
}

impl Shared {
    /// Number of queue loads of a load: one for each queue of its port.
    pub(crate) fn lanes_of(&self, load: usize) -> usize {
        self.sent[load].len()
    }

    pub(crate) fn queues_of(&self, port: usize) -> usize {
        self.received[port].len()
    }

    /// Frames that a load has sent.
    pub(crate) fn sent(&self, load: usize) -> FrameCount {
        self.sent.get(load).into_iter().flatten().map(|counter| counter.get()).sum()
    }

    /// Frames that a port has received.
    pub(crate) fn received(&self, port: usize) -> FrameCount {
        self.received.get(port).into_iter().flatten().map(|counter| counter.get()).sum()
    }
}

impl Sum for FrameCount {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, count| Self {
            frames: sum.frames + count.frames,
            bytes: sum.bytes + count.bytes,
        })
    }
}
