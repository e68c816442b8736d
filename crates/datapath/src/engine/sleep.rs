//! Sleep of a worker and of its queues, and what wakes them.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ringroad_port::port_queue::PortQueue;
use rustix::event::epoll;

use super::Engine;
use super::service::KICK_COST;
use crate::engine_queue::EngineQueue;
use crate::exchange::Inbox;
use crate::forwarding::Forwarding;

/// Event number of the doorbell in [`Engine::wake_set`].
pub(crate) const BELL: u64 = u64::MAX;
/// Edge-triggered events: with level-triggered ones, the descriptor of a device with frames would stay readable while
/// their destination is full. Every queue is checked once more before the engine sleeps, so no edge is missed.
pub(super) const BY_EDGE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);

impl Engine {
    /// Whether the wire from `queue_index` waits for room at `destination`, whose other side will wake the engine when
    /// it makes room.
    pub(super) fn sleeps_until_room(&mut self, queue_index: u32, destination: u32) -> bool {
        let Some(source) = self.queue_mut(queue_index) else { return false };
        let longest = source.longest_frame_bytes();
        let behind = self.queue_mut(destination).and_then(PortQueue::backpressure);
        behind.is_some_and(|behind| behind.room(longest) == 0 && behind.await_room())
    }

    /// Lets a queue announce its sleep, if it sleeps alone. Returns `false` if it has work.
    pub(super) fn put_to_sleep(&mut self, queue_index: u32) -> bool {
        let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) else { return true };
        if queue.asleep || !queue.sleeps_alone() {
            return true;
        }
        queue.prepare_sleep(true);
        if queue.has_work() {
            queue.prepare_sleep(false);
            return false;
        }
        queue.asleep = true;
        self.scheduler.set_awake(queue_index, false);
        true
    }

    /// Ends the sleep of a queue that sleeps alone.
    pub(super) fn wake_queue(&mut self, queue_index: u32) {
        if let Some(Some(queue)) = self.queues.get_mut(queue_index as usize)
            && queue.asleep
        {
            queue.asleep = false;
            queue.prepare_sleep(false);
            self.scheduler.set_awake(queue_index, true);
        }
    }

    /// Announces the engine's sleep on all queues, on at most `most` of those that are notified one by one. Returns
    /// `false` if the engine must not sleep, since there is work, or more queues must be notified. The caller calls
    /// [`Self::awake`] in either case.
    pub fn fall_asleep(&mut self, most: usize) -> bool {
        if self.inboxes.iter().any(Inbox::has_waiting) {
            return false;
        }
        let (mut skip, mut told) = (0, 0);
        while let Some(queue_index) = self.scheduler.awake_queue(skip) {
            let alone =
                matches!(self.queues.get(queue_index as usize), Some(Some(queue)) if queue.sleeps_alone());
            if !alone {
                skip += 1;
                continue;
            }
            if told == most || !self.put_to_sleep(queue_index) {
                return false;
            }
            told += 1;
        }
        for turn in 0..self.polled.len() {
            let Some(&queue_index) = self.polled.get(turn) else { break };
            let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) else { continue };
            if let Forwarding::Wire(destination) = queue.forwarding
                && queue.has_waiting()
            {
                self.sleeps_until_room(queue_index, destination);
            }
        }
        self.announce(true);
        !(0..self.polled.len()).any(|turn| {
            let Some(&queue_index) = self.polled.get(turn) else { return false };
            let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) else { return false };
            match queue.forwarding {
                Forwarding::Wire(destination) => {
                    queue.has_waiting() && !self.sleeps_until_room(queue_index, destination)
                }
                _ => queue.has_work(),
            }
        })
    }

    /// Withdraws the announcements of [`Self::fall_asleep`], except for the queues that sleep alone.
    pub fn awake(&mut self) {
        self.announce(false);
    }

    pub(super) fn announce(&mut self, sleeping: bool) {
        for &queue_index in &self.polled {
            if let Some(Some(queue)) = self.queues.get_mut(queue_index as usize) {
                queue.prepare_sleep(sleeping);
            }
        }
    }

    pub(super) fn polled_queues(&self) -> impl Iterator<Item = &EngineQueue> {
        self.polled.iter().filter_map(|&queue_index| self.queues.get(queue_index as usize)?.as_deref())
    }

    /// Whether a device has lent slots: no descriptor announces their return.
    #[must_use]
    pub fn has_lent(&self) -> bool {
        self.polled_queues()
            .any(|queue| matches!(queue.forwarding, Forwarding::Wire(_)) && !queue.pending.is_empty())
    }

    /// Time until some queue has work that no descriptor announces; `None` if there is no such queue.
    #[must_use]
    pub fn due_in(&mut self) -> Option<Duration> {
        let Self { polled, queues, .. } = self;
        let due = |queue_index: &u32| queues.get_mut(*queue_index as usize)?.as_mut()?.port.due_in();
        polled.iter().filter_map(due).min()
    }

    /// Notifies the programs whose devices have ended.
    pub fn end_wires(&mut self) {
        for turn in 0..self.polled.len() {
            let Some(&queue_index) = self.polled.get(turn) else { break };
            if let Some(Some(queue)) = self.queues.get_mut(queue_index as usize)
                && let Forwarding::Wire(destination) = queue.forwarding
                && queue.port.diagnosis().is_some_and(|diagnosis| diagnosis.is_gone())
                && let Some(program) = self.queue_mut(destination).and_then(PortQueue::program)
            {
                program.end();
            }
        }
    }

    /// The descriptor that becomes readable when a sleeping engine has work; [`Self::woken`] processes its events.
    /// `bell` is added to the descriptor when it is created again.
    ///
    /// # Errors
    /// The kernel has no descriptors or no memory left.
    pub fn wake_set(&mut self, bell: BorrowedFd<'_>) -> rustix::io::Result<BorrowedFd<'_>> {
        if self.wakes.is_none() {
            let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&set, bell, epoll::EventData::new_u64(BELL), BY_EDGE)?;
            for (queue_index, queue) in (0u64..).zip(&mut self.queues) {
                if let Some(descriptor) = queue.as_mut().and_then(|queue| queue.wake_descriptor()) {
                    epoll::add(&set, descriptor, epoll::EventData::new_u64(queue_index), BY_EDGE)?;
                }
            }
            self.wakes = Some(set);
        }
        self.wakes.as_ref().map(AsFd::as_fd).ok_or(rustix::io::Errno::BADF)
    }

    /// Wakes the queue that an event of the wake set names. Returns whether the event was a queue's.
    pub fn woken(&mut self, event: u64) -> bool {
        let Ok(queue_index) = u32::try_from(event) else { return false };
        let Some(sleeper) = self.queue_mut(queue_index).and_then(PortQueue::sleeper) else { return false };
        sleeper.drain_wake();
        // A device that has ended has no descriptor any more: its old descriptor in the set would stay readable for
        // ever.
        if sleeper.wake_descriptor().is_none() {
            self.wakes = None;
            self.end_wires();
        }
        self.wake_queue(queue_index);
        self.scheduler.charge(queue_index, KICK_COST);
        true
    }

    /// Whether some sleeping queues are in no turn, so that the wake set must be polled while others work.
    #[must_use]
    pub fn has_unwatched(&self) -> bool {
        self.scheduler.has_unwatched()
    }

    /// Drains the descriptors of all queues, and ends the sleep of all queues.
    pub fn drain_wakes(&mut self) {
        for queue_index in 0..self.queues.len() as u32 {
            if let Some(sleeper) = self.queue_mut(queue_index).and_then(PortQueue::sleeper) {
                sleeper.drain_wake();
            }
            self.wake_queue(queue_index);
        }
    }
}
