//! A queue in an engine: the driver's part, its counters, and its borrowed slots.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::counters::QueueCounters;
use ringroad_port::port_queue::{PortQueue, QueueProperties, Sleep};

use crate::exchange::MAX_WORKERS;
use crate::forwarding::Forwarding;
use crate::scheduler::{OwnerId, TURN_COST};

/// Slots that can be released once other workers have copied the frames, or the taker of lent slots is done with them.
#[derive(Debug)]
pub(crate) struct PendingRelease {
    pub(crate) slots: usize,
    pub(crate) positions: [u64; MAX_WORKERS],
    /// Count of lent slots that [`ringroad_port::port_queue::Lend::returned`] of the wire's other end must reach.
    pub(crate) lent: u64,
}

/// A batch that is dispatched in part: the rest costs more than the owner could spend, or needs memory that other
/// workers still use. Its frames stay borrowed.
#[derive(Debug, Default)]
pub(crate) struct HeldBatch {
    pub(crate) batch: Batch,
    /// The first frame that is not dispatched.
    pub(crate) next: usize,
}

/// Memory of batches that are held no longer, for the next ones. A queue keeps the box, so that its own memory, which
/// every poll reads, stays small.
#[allow(clippy::vec_box)]
pub(crate) type SpareBatches = Vec<Box<HeldBatch>>;

/// A queue in the engine.
pub struct EngineQueue {
    pub(crate) port: Box<dyn PortQueue>,
    pub(crate) forwarding: Forwarding,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) owner: OwnerId,
    pub(crate) properties: QueueProperties,
    /// Whether the queue can report faults.
    pub(crate) has_diagnosis: bool,
    /// Whether the queue can hold a wire's source back.
    pub(crate) holds_back: bool,
    /// Frames whose receive cost uses up a turn.
    pub(crate) affordable: usize,
    pub(crate) pending: VecDeque<PendingRelease>,
    pub(crate) held: Option<Box<HeldBatch>>,
    pub(crate) dirty: bool,
    /// Whether the queue has announced its sleep by itself.
    pub(crate) asleep: bool,
}

impl std::fmt::Debug for EngineQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineQueue").field("forwarding", &self.forwarding).finish_non_exhaustive()
    }
}

impl EngineQueue {
    /// Creates a queue whose frames are forwarded by `forwarding`, in the time of `owner`; `counters` counts them.
    #[must_use]
    pub fn new(
        mut port: Box<dyn PortQueue>,
        forwarding: Forwarding,
        counters: Arc<QueueCounters>,
        owner: OwnerId,
    ) -> Self {
        let mut properties = port.properties();
        properties.frame_cost = properties.frame_cost.max(1);
        properties.take_cost = properties.take_cost.max(1);
        let has_diagnosis = port.diagnosis().is_some();
        let holds_back = port.backpressure().is_some();
        Self {
            port,
            forwarding,
            counters,
            owner,
            properties,
            has_diagnosis,
            holds_back,
            affordable: BATCH_FRAMES.min(TURN_COST as usize / usize::from(properties.take_cost)).max(1),
            pending: VecDeque::new(),
            held: None,
            dirty: false,
            asleep: false,
        }
    }

    /// Properties that never change.
    #[must_use]
    pub fn properties(&self) -> QueueProperties {
        self.properties
    }

    /// Counts frames and violations that no worker saw: frames that the kernel dropped, cut or passed on by itself,
    /// frames that a device has dropped or refused, and violations.
    pub(crate) fn count_missed(&mut self) {
        let Some(diagnosis) = self.port.diagnosis() else { return };
        let missed = diagnosis.missed_frames();
        if missed != 0 {
            self.counters.missed(missed);
        }
        let incomplete = diagnosis.incomplete_frames();
        if incomplete != 0 {
            self.counters.incomplete(incomplete);
        }
        self.counters.refused(&diagnosis.refused());
        self.counters.waiting(diagnosis.waiting());
        self.counters.hidden(diagnosis.hidden_frames());
        self.counters.passed(diagnosis.take_passed());
        self.counters.violations(diagnosis.violations());
    }

    /// Ends the driver's part and returns the counters, to which nothing is added any more.
    #[must_use]
    pub fn close(mut self) -> Arc<QueueCounters> {
        self.count_missed();
        self.counters.give_up_waiting();
        // Frames that the driver held back are counted when the driver is dropped.
        drop(self.port);
        self.counters
    }

    /// Whether the queue announces its sleep by itself, and stays asleep until it is woken or a frame passes it. Other
    /// queues announce their sleep whenever the engine is about to sleep.
    pub(crate) fn sleeps_alone(&self) -> bool {
        self.properties.sleeps_alone && !matches!(self.forwarding, Forwarding::Wire(_))
    }

    /// Whether the queue has nothing to do: no frames, and no slots to release.
    #[inline]
    pub(crate) fn is_idle(&mut self) -> bool {
        !self.has_borrowed() && self.port.is_empty()
    }

    /// Whether frames of the queue are borrowed between two turns.
    #[inline]
    pub(crate) fn has_borrowed(&self) -> bool {
        self.held.is_some() || !self.pending.is_empty()
    }

    /// Number of frames that may be taken from the queue within `budget`.
    #[inline]
    pub(crate) fn most(&self, budget: u64) -> usize {
        if budget == u64::MAX { BATCH_FRAMES } else { self.affordable }
    }

    /// Receives frames into the batch, as many as it has room for.
    #[inline]
    pub(crate) fn receive(&mut self, batch: &mut Batch) {
        self.port.receive(batch);
        // Frames beyond the capacity would have no outcome, and would not be counted.
        debug_assert!(batch.frames() <= batch.capacity(), "the queue gives more frames than it may");
    }

    /// Makes delivered frames and returned slots visible. Returns the number of wake-ups sent.
    #[inline]
    pub(crate) fn flush(&mut self) -> u32 {
        let kicks = self.port.flush();
        self.counters.wakeups(kicks.into());
        kicks
    }

    pub(crate) fn has_work(&mut self) -> bool {
        match self.forwarding {
            Forwarding::Hold => self.has_borrowed(),
            _ => self.has_borrowed() || self.has_waiting(),
        }
    }

    /// Whether frames wait, or may wait without a notification.
    pub(crate) fn has_waiting(&mut self) -> bool {
        self.port.sleeper().is_none_or(Sleep::has_waiting)
    }

    pub(crate) fn prepare_sleep(&mut self, sleeping: bool) {
        if let Some(sleeper) = self.port.sleeper() {
            sleeper.prepare_sleep(sleeping);
        }
    }

    pub(crate) fn wake_descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        self.port.sleeper()?.wake_descriptor()
    }
}
