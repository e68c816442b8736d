//! Messages between the threads of a session and its owner: a command per load, counters, an end.
//!
//! Threads read [`Control::version`] once per burst, and take the lock only when it changed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::shared::lock;

/// State that all threads of a session share.
#[derive(Debug)]
pub(crate) struct Control {
    version: AtomicU64,
    ended: AtomicBool,
    loads: Mutex<Vec<LoadControl>>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, Default)]
struct LoadControl {
    command: Command,
    /// Number of queue loads that are sending, or due to send, for the latest start.
    queue_loads: usize,
}

/// The command for a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Command {
    /// Number of starts so far.
    pub(crate) starts: u64,
    /// Time of the latest start, ns.
    pub(crate) start_ns: u64,
    pub(crate) stopped: bool,
}

impl Control {
    pub(crate) fn new(loads: usize) -> Self {
        Self {
            version: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            loads: Mutex::new(vec![LoadControl::default(); loads]),
            changed: Condvar::new(),
        }
    }

    /// Number that changes whenever a command changes.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn command(&self, load: usize) -> Command {
        lock(&self.loads)[load].command
    }

    /// Starts `load`, which has `queue_loads` queue loads, at `start_ns`.
    pub(crate) fn start(&self, load: usize, queue_loads: usize, start_ns: u64) {
        let load = &mut lock(&self.loads)[load];
        let starts = load.command.starts + 1;
        // Threads may have missed an earlier start: the session no longer waits for it.
        *load = LoadControl { command: Command { starts, start_ns, stopped: false }, queue_loads };
    }

    pub(crate) fn stop(&self, load: usize) {
        lock(&self.loads)[load].command.stopped = true;
    }

    /// Makes all commands given so far visible to the threads at once.
    pub(crate) fn publish(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Records that a queue load of `load` has sent all its frames for start number `starts`.
    pub(crate) fn lane_done(&self, load: usize, starts: u64) {
        let load = &mut lock(&self.loads)[load];
        if load.command.starts == starts {
            load.queue_loads = load.queue_loads.saturating_sub(1);
        }
        self.changed.notify_all();
    }

    /// Whether a queue load of `load` is sending, or due to send.
    pub(crate) fn is_sending(&self, load: usize) -> bool {
        !self.is_ended() && lock(&self.loads).get(load).is_some_and(|load| load.queue_loads > 0)
    }

    /// Waits until no queue load is sending, `limit` at most. Returns whether no queue load is sending.
    pub(crate) fn wait_sent(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut loads = lock(&self.loads);
        while loads.iter().any(|load| load.queue_loads > 0) && !self.is_ended() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            loads = self.changed.wait_timeout(loads, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Orders all threads to end.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_was_superseded_unseen_is_not_awaited() {
        let control = Control::new(2);
        control.start(0, 2, 5);
        control.start(1, 1, 5);
        control.start(0, 2, 7);
        assert_eq!(control.command(0), Command { starts: 2, start_ns: 7, stopped: false });
        // One queue load took the first start and abandons it for the second.
        control.lane_done(0, 1);
        control.lane_done(0, 2);
        assert!(control.is_sending(0) && !control.wait_sent(Duration::ZERO));
        control.lane_done(0, 2);
        assert!(!control.is_sending(0) && control.is_sending(1));
        control.lane_done(1, 1);
        assert!(control.wait_sent(Duration::ZERO));
    }
}
