//! Record of the steps of some frames. While a trace runs, its frames cost a lock for each batch and each delivery;
//! without one, the datapath reads one flag per delivery.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::batch::Batch;
use crate::drop_cause::{DropCause, DropTally};
use crate::port_index::{PortIndex, PortMask};

/// Number of leading bytes kept of a frame.
pub const TRACED_BYTES: usize = 128;
/// Maximum number of frames of a trace.
pub const MAX_TRACED: u32 = 4096;
/// Maximum number of deliveries kept of a frame: one for each port that a switch can have.
const MAX_DELIVERIES: usize = 256;

/// Entry of a frame's source in the switch's table.
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
    /// The frame has no source that is learned: it is too short, or forbids the learning.
    NotLearned,
}

/// Reason for a frame's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The destination address is known.
    Known,
    /// The destination address is on no port.
    Unknown,
    /// The destination address means several stations, or all.
    Multicast,
    /// The sender has named the port.
    Forced,
}

/// One delivery of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedDelivery {
    /// Worker that delivered the frame.
    pub worker: u16,
    /// Index of the queue in the worker's engine.
    pub queue_index: u32,
    /// Number of frames that the queue took: several if a long frame was cut, none if the frame was dropped.
    pub frames: u32,
    /// Cause for which the frame was dropped, wholly or in part.
    pub dropped: Option<DropCause>,
    /// Whether the queue took the frame over, and delivers or drops it later.
    pub is_held: bool,
}

/// Frame of a trace, and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedFrame {
    /// Time of the switch's decision, ns since the Unix epoch.
    pub time_ns: u64,
    /// Port from which the frame came.
    pub from: PortIndex,
    /// Length of the frame, bytes without FCS.
    pub len: usize,
    /// Number of slots of the frame.
    pub fragments: usize,
    /// Whether checksums are open, or the frame must be cut.
    pub is_unfinished: bool,
    /// First bytes of the frame, at most [`TRACED_BYTES`].
    pub start: Vec<u8>,
    /// Entry of the source in the switch's table.
    pub source: SourceSeen,
    /// Reason for the destination.
    pub reason: Reason,
    /// Ports to which the switch sends the frame.
    pub to: PortMask,
    /// Cause for which the switch drops the frame, if it does.
    pub dropped: Option<DropCause>,
    /// Deliveries of the frame to queues.
    pub deliveries: Vec<TracedDelivery>,
}

#[derive(Debug, Default)]
struct State {
    frames: BTreeMap<u64, TracedFrame>,
    next: u64,
    /// Number of frames that are still to be traced.
    left: u32,
    /// Frames under way, by the address of their first byte, which no other frame has until they are released.
    under_way: HashMap<usize, u64>,
}

/// A trace of a switch, shared by its workers.
#[derive(Debug)]
pub struct Trace {
    /// Source port of the traced frames; `None`: any port.
    from: Option<PortIndex>,
    state: Mutex<State>,
}

/// The key that identifies a frame for all workers while it is borrowed.
fn key(batch: &Batch, frame: usize) -> Option<usize> {
    Some(batch.first_fragment(frame)?.bytes().start().addr().get())
}

impl Trace {
    /// A trace of the next `count` frames; only of frames from the port `from`, if one is given.
    #[must_use]
    pub fn new(from: Option<PortIndex>, count: u32) -> Self {
        let state = State { left: count.min(MAX_TRACED), ..State::default() };
        Self { from, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with the frames of a batch from number `first` on, which came from the port `from`. `describe` adds the
    /// switch's decision to a frame.
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
            // Another frame uses this memory now.
            state.under_way.remove(&key);
            if !is_meant || left == 0 {
                continue;
            }
            left -= 1;
            let mut start = vec![0; TRACED_BYTES];
            let read = batch.read(frame, &mut start);
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

    /// Keeps the frames up to number `end`; the other frames are decided again.
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

    /// Records a delivery of a frame to the queue with index `queue_index` of `worker`: the number of frames that the
    /// queue took, the dropped frames by cause, and whether the queue took the frame over.
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

    /// Frames so far, and the number of frames that are still to be traced.
    #[must_use]
    pub fn frames(&self) -> (Vec<TracedFrame>, u32) {
        let state = self.state();
        (state.frames.values().cloned().collect(), state.left)
    }
}
