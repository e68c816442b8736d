//! A task serves one queue: it sends and receives in turns. A thread has one task, or several that it serves in turn.

use std::time::Duration;

use ringroad::{Interest, PortError, Queue};

use crate::clock::ClockReader;
use crate::receiver::Receiver;
use crate::sender::Sender;

/// A queue with its sender and receiver.
#[derive(Debug)]
pub(crate) struct QueueTask {
    pub(crate) port: usize,
    pub(crate) queue: Queue,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
}

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskTurn {
    /// Whether frames moved.
    pub(crate) busy: bool,
    /// Time of the next frame to send, ns; `None` if there is none. Equals the current time after frames were sent,
    /// since only another turn finds the next frame.
    pub(crate) next_due_ns: Option<u64>,
    /// Whether frames are due and the ring has no room.
    pub(crate) blocked: bool,
}

impl QueueTask {
    /// Sends due frames and takes received ones.
    #[inline]
    pub(crate) fn turn(&mut self, clock: &mut ClockReader) -> Result<TaskTurn, PortError> {
        let now_ns = clock.now_ns();
        let (tx, rx) = self.queue.split();
        let frames = self.sender.fill(tx, now_ns, clock)?;
        match frames {
            0 => rx.sync().map(|_| ())?,
            _ => self.queue.sync()?,
        }
        let mut turn = self.sender.handed_over(frames, now_ns, clock);
        turn.busy |= self.receiver.take(self.queue.split().1, clock)? > 0;
        Ok(turn)
    }

    /// Slots handed over that the other side has not taken.
    pub(crate) fn unsent_slots(&mut self) -> u32 {
        self.queue.tx().pending()
    }

    /// Sleeps until frames arrive, or, if `blocked`, until the ring has room; at most `limit`.
    pub(crate) fn rest(&mut self, blocked: bool, limit: Duration) -> Result<(), PortError> {
        let interest = if blocked { Interest::Both } else { Interest::Rx };
        self.queue.wait(interest, Some(limit)).map(|_| ())
    }
}
