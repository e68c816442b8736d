//! Counts of a thread's tasks up to a moment: reported when the session requests them, and when the thread ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use ringroad::Reconnections;
use ringroad_traffic::line_rate::BitLayer;

use crate::clock::ClockError;
use crate::queue_task::QueueTask;
use crate::sender::{LoadTotals, QueueLoad};
use crate::shared::lock;

#[derive(Debug)]
pub(crate) struct ThreadTotals {
    pub(crate) tasks: Vec<TaskTotals>,
    pub(crate) clock_error: ClockError,
}

/// Counts of one queue.
#[derive(Debug)]
pub(crate) struct TaskTotals {
    pub(crate) port: usize,
    /// Slots handed over that the other side has not taken.
    pub(crate) unsent_slots: u32,
    /// Number of times that the queue's port reconnected after its daemon ended.
    pub(crate) reconnections: Reconnections,
    /// Time for which frames were due and the ring had no room, ns.
    pub(crate) blocked_ns: u64,
    /// Number of received frames whose arrival times are the port's; `None` if all are this program's.
    pub(crate) port_timed: Option<u64>,
    pub(crate) queue_loads: Vec<QueueLoadRecord>,
}

#[derive(Debug)]
pub(crate) struct QueueLoadRecord {
    pub(crate) load: usize,
    pub(crate) first_stream: usize,
    pub(crate) intended_fps: Option<f64>,
    pub(crate) mean_size_bytes: f64,
    /// Frames sent of each stream of the load.
    pub(crate) sent: Vec<u64>,
    pub(crate) totals: LoadTotals,
}

impl ThreadTotals {
    pub(crate) fn new(tasks: &mut [QueueTask], clock_error: ClockError) -> Self {
        Self { tasks: tasks.iter_mut().map(TaskTotals::new).collect(), clock_error }
    }
}

impl TaskTotals {
    fn new(task: &mut QueueTask) -> Self {
        Self {
            port: task.port,
            unsent_slots: task.unsent_slots(),
            reconnections: task.queue.reconnections(),
            blocked_ns: task.sender.blocked_ns(),
            port_timed: task.receiver.port_timed(),
            queue_loads: task.sender.queue_loads().iter().map(QueueLoadRecord::new).collect(),
        }
    }
}

impl QueueLoadRecord {
    fn new(queue_load: &QueueLoad) -> Self {
        Self {
            load: queue_load.load,
            first_stream: queue_load.first_stream,
            intended_fps: queue_load.departures.intended_fps(),
            mean_size_bytes: queue_load.mix.mean_bits(BitLayer::L2) / 8.0,
            sent: queue_load.mix.sources().iter().map(|source| source.next_sequence()).collect(),
            totals: queue_load.totals.clone(),
        }
    }
}

/// Requests of the session for the counts of its threads, and the replies. Threads check [`Inquiry::number`] once per
/// turn.
#[derive(Debug, Default)]
pub(crate) struct TotalsRequest {
    number: AtomicU64,
    answers: Mutex<Vec<(u64, ThreadTotals)>>,
    answered: Condvar,
}

impl TotalsRequest {
    /// Number of the latest request.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Sends the reply to request `number`.
    pub(crate) fn answer(&self, number: u64, totals: ThreadTotals) {
        lock(&self.answers).push((number, totals));
        self.answered.notify_all();
    }

    /// Sends a request and waits for `threads` replies, unless `ended` reports that there will be fewer.
    pub(crate) fn ask(&self, threads: usize, ended: &dyn Fn() -> bool) -> Option<Vec<ThreadTotals>> {
        const CHECK_INTERVAL: Duration = Duration::from_millis(5);
        let mut answers = lock(&self.answers);
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        // Replies to an abandoned request may have come since.
        answers.clear();
        loop {
            if answers.iter().filter(|(of, _)| *of == number).count() == threads {
                let own = answers.drain(..).filter(|(of, _)| *of == number);
                return Some(own.map(|(_, totals)| totals).collect());
            }
            if ended() {
                return None;
            }
            answers =
                self.answered.wait_timeout(answers, CHECK_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
