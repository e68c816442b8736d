//! What happened to some frames, step by step. While a trace runs, its frames cost a lock for each batch and each
//! delivery; without one, the datapath reads one flag per delivery.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::batch::Batch;
use crate::drop_cause::{DropCause, DropTally};
use crate::port_index::{PortIndex, PortMask};

/// Bytes that are kept of the beginning of a frame.
pub const TRACED_BYTES: usize = 128;
/// Most frames of a trace.
pub const MAX_TRACED: u32 = 4096;
/// Most deliveries that are kept of a frame: one for each port that a switch can have.
const MAX_DELIVERIES: usize = 256;

/// What the switch knew of a frame's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceSeen {
    /// The address was on this port already.
    Known,
    /// The address was on no port.
    New,
    /// The address was on another port.
    Moved(PortIndex),
    /// The address is on another port and stays there.
    Refused(PortIndex),
    /// The frame has no source that is learned: it is too short, or forbids learning its source.
    NotLearned,
}

/// Why a frame goes where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its destination is known.
    Known,
    /// Its destination is on no port.
    Unknown,
    /// It is for several stations, or all.
    Multicast,
    /// Its sender has named the port.
    Forced,
}

/// One delivery of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedDelivery {
    /// The worker that delivered it.
    pub worker: u16,
    /// The place of the queue in the worker's engine.
    pub queue_index: u32,
    /// Frames that the queue took: several where a long frame was cut, none where it was dropped.
    pub frames: u32,
    /// Why it was dropped, whole or in part.
    pub dropped: Option<DropCause>,
    /// Whether the queue took it over and delivers or drops it later.
    pub is_held: bool,
}

/// A frame and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedFrame {
    /// When the switch decided on it, ns since the Unix epoch.
    pub time_ns: u64,
    /// The port that it came from.
    pub from: PortIndex,
    /// Bytes, without FCS.
    pub len: usize,
    /// Slots that it lies in.
    pub fragments: usize,
    /// Whether checksums are open, or it must be cut.
    pub is_unfinished: bool,
    /// Its first bytes, at most [`TRACED_BYTES`].
    pub start: Vec<u8>,
    /// What the switch knew of its source.
    pub source: SourceSeen,
    /// Why it goes where it goes.
    pub reason: Reason,
    /// Where the switch sends it.
    pub to: PortMask,
    /// Why the switch sends it nowhere.
    pub dropped: Option<DropCause>,
    /// What became of it at each queue.
    pub deliveries: Vec<TracedDelivery>,
}

#[derive(Debug, Default)]
struct State {
    frames: BTreeMap<u64, TracedFrame>,
    next: u64,
    /// How many more are wanted.
    left: u32,
    /// The frames under way, by the address of their first byte, which is theirs until they are released.
    under_way: HashMap<usize, u64>,
}

/// A trace of a switch, shared by its workers.
#[derive(Debug)]
pub struct Trace {
    /// Only frames from this port.
    from: Option<PortIndex>,
    state: Mutex<State>,
}

/// The key that identifies a frame for all workers while it is borrowed.
fn key(batch: &Batch, frame: usize) -> Option<usize> {
    Some(batch.first_fragment(frame)?.bytes().start().addr().get())
}

impl Trace {
    /// A trace of the next `count` frames, of those from the port `from` if there is one.
    #[must_use]
    pub fn new(from: Option<PortIndex>, count: u32) -> Self {
        let state = State { left: count.min(MAX_TRACED), ..State::default() };
        Self { from, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with the frames of a batch from number `first` on, which came from the port `from`: `describe` returns
    /// what the switch decided for a frame.
    pub fn begin(
        &self,
        (batch, first): (&Batch, usize),
        from: PortIndex,
        mut describe: impl FnMut(usize, TracedFrame) -> TracedFrame,
    ) {
        let mut state = self.state();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let is_meant = self.from.is_none_or(|wanted| wanted == from);
        let mut left = state.left;
        for frame in first..batch.frames() {
            let Some(key) = key(batch, frame) else { continue };
            // The memory is another frame's now.
            state.under_way.remove(&key);
            if !is_meant || left == 0 {
                continue;
            }
            left -= 1;
            let mut start = vec![0; TRACED_BYTES];
            let mut read = 0;
            for fragment in batch.frame(frame) {
                read += fragment.bytes().read(start.get_mut(read..).unwrap_or(&mut []));
            }
            start.truncate(read);
            let traced = TracedFrame {
                time_ns: now,
                from,
                len: batch.frame_bytes(frame),
                fragments: batch.frame(frame).len(),
                is_unfinished: !batch.meta(frame).unfinished.is_nothing(),
                start,
                source: SourceSeen::NotLearned,
                reason: Reason::Unknown,
                to: PortMask::default(),
                dropped: None,
                deliveries: Vec::new(),
            };
            let number = state.next;
            state.next += 1;
            state.frames.insert(number, describe(frame, traced));
            state.under_way.insert(key, number);
        }
    }

    /// Keeps the frames up to number `end`; the others are decided again.
    pub fn executed(&self, batch: &Batch, first: usize, end: usize) {
        let mut state = self.state();
        for frame in first..batch.frames() {
            let Some(key) = key(batch, frame) else { continue };
            let Some(&number) = state.under_way.get(&key) else { continue };
            if frame < end {
                state.left = state.left.saturating_sub(1);
            } else {
                state.frames.remove(&number);
                state.under_way.remove(&key);
            }
        }
    }

    /// Notes a delivery of a frame to the queue at `queue_index` of `worker`: how many frames it took, which it
    /// dropped, and whether it took the frame over.
    pub fn delivered(
        &self,
        (batch, frame): (&Batch, usize),
        (worker, queue_index): (u16, u32),
        (frames, dropped, is_held): (u32, DropTally, bool),
    ) {
        let mut state = self.state();
        let number = key(batch, frame).and_then(|key| state.under_way.get(&key).copied());
        let Some(traced) = number.and_then(|number| state.frames.get_mut(&number)) else { return };
        if traced.deliveries.len() < MAX_DELIVERIES {
            let dropped = DropCause::ALL.into_iter().find(|&cause| dropped.of(cause) != 0);
            traced.deliveries.push(TracedDelivery { worker, queue_index, frames, dropped, is_held });
        }
    }

    /// The frames so far, and how many are still wanted.
    #[must_use]
    pub fn frames(&self) -> (Vec<TracedFrame>, u32) {
        let state = self.state();
        (state.frames.values().cloned().collect(), state.left)
    }
}
