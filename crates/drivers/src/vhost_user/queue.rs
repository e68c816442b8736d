//! One pair of queues of a guest's card, as a queue of a port.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{
    Backpressure, Delivery, Diagnose, FailedDirection, HandOver, PortQueue, Sleep, Upgrade,
};
use ringroad_port::roles;
use ringroad_virtqueue::layout::MAX_RING_ENTRIES;

use super::connection::Card;
use super::vring::{Lent, Vring};
use crate::peer::handover::Held;

/// Minimum size of a guest's receive buffers if a frame may take several, bytes. A frame of the usual MTU fits behind
/// its header.
const USUAL_BUFFER_BYTES: usize = 1526;

/// A pair of queues.
#[derive(Debug)]
pub struct VhostQueue {
    /// The card, and the number of the pair in it.
    card: Weak<Card>,
    number: usize,
    /// Whether the card accepts no messages because another process will take it over or has left it.
    is_shared: bool,
    /// The guest's transmit queue.
    from_guest: Held<Vring>,
    /// The guest's receive queue.
    to_guest: Held<Vring>,
    lent: VecDeque<Lent>,
    /// Number of violations of the guest that are not reported yet.
    violations: u64,
    awaits_room: bool,
    announced_room: bool,
}

impl VhostQueue {
    /// Pair `number` of the card, with its rings in the order of the front end. `is_shared`: another process leaves the
    /// card.
    pub(super) fn new(
        (card, number): (&Arc<Card>, usize),
        [to_guest, from_guest]: [Held<Vring>; 2],
        is_shared: bool,
    ) -> Self {
        Self {
            card: Arc::downgrade(card),
            number,
            is_shared,
            from_guest,
            to_guest,
            lent: VecDeque::with_capacity(BATCH_FRAMES),
            violations: 0,
            awaits_room: false,
            announced_room: false,
        }
    }

    /// Exchanges the rings on request of the connection's thread, if no frame is borrowed.
    #[inline]
    fn follow(&mut self) {
        if self.from_guest.is_recalled() && self.lent.is_empty() {
            put_down(&mut self.from_guest, &mut self.violations);
        }
        if self.to_guest.is_recalled() {
            put_down(&mut self.to_guest, &mut self.violations);
        }
    }
}

/// Gives a ring back to the connection's thread, or changes it as the thread wants, with all its work published to the
/// guest.
#[cold]
fn put_down(held: &mut Held<Vring>, violations: &mut u64) {
    if let Some(vring) = held.get() {
        vring.publish();
        *violations += u64::from(std::mem::take(&mut vring.is_uncounted));
    }
    held.exchange();
}

impl PortQueue for VhostQueue {
    fn receive(&mut self, batch: &mut Batch) {
        self.follow();
        if self.from_guest.is_recalled() {
            return;
        }
        if let Some(vring) = self.from_guest.get() {
            vring.receive(batch, &mut self.lent);
        }
    }

    fn release(&mut self, slots: usize) {
        if let Some(vring) = self.from_guest.get() {
            vring.release(slots, &mut self.lent);
        }
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        if !batch.is_unfinished() {
            // If frames are unfinished, the rings are not exchanged, so that the last answer to whether the guest
            // accepts such frames stays valid.
            self.follow();
        }
        match self.to_guest.get() {
            Some(vring) => vring.deliver(batch, frames),
            None => Delivery::dropped(DropCause::NotBound, frames.len()),
        }
    }

    fn flush(&mut self) -> u32 {
        let woken = |held: &mut Held<Vring>| held.get().is_some_and(Vring::publish);
        u32::from(woken(&mut self.from_guest)) + u32::from(woken(&mut self.to_guest))
    }

    fn takes_unfinished(&mut self) -> bool {
        self.follow();
        self.to_guest.get().is_some_and(|vring| vring.takes_unfinished)
    }

    roles! { sleeper: Sleep, backpressure: Backpressure, diagnosis: Diagnose, upgrade: Upgrade }
}

impl Upgrade for VhostQueue {
    fn prepare(&mut self) -> bool {
        // The thread that answers a message may wait for the rings.
        self.follow();
        self.is_shared = self.card.upgrade().is_some_and(|card| card.pause());
        self.is_shared
    }

    fn hand_over(&mut self) -> Option<HandOver> {
        if self.from_guest.is_recalled() || self.to_guest.is_recalled() || !self.lent.is_empty() {
            return None;
        }
        self.flush();
        self.card.upgrade()?.leave(self.number, [self.to_guest.peek(), self.from_guest.peek()])
    }

    fn resume(&mut self) {
        if !std::mem::take(&mut self.is_shared) {
            return;
        }
        for held in [&mut self.from_guest, &mut self.to_guest] {
            if let Some(vring) = held.get() {
                vring.begin();
            }
        }
        if let Some(card) = self.card.upgrade() {
            card.resume_messages();
        }
    }
}

impl Sleep for VhostQueue {
    fn has_waiting(&mut self) -> bool {
        self.from_guest.is_recalled()
            || self.to_guest.is_recalled()
            || self.from_guest.get().is_some_and(Vring::has_available)
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        self.follow();
        if let Some(vring) = self.from_guest.get() {
            vring.ring.wake_me(sleeping);
        }
        if self.awaits_room
            && let Some(vring) = self.to_guest.get()
        {
            vring.ring.wake_me(sleeping);
        }
        self.announced_room = sleeping && self.awaits_room;
        self.awaits_room &= sleeping;
        if sleeping {
            // The request for a wake-up comes before the check for frames. The guest does the reverse.
            fence(Ordering::SeqCst);
        }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.from_guest.wake().descriptor())
    }

    fn drain_wake(&mut self) {
        self.from_guest.wake().drain();
        self.follow();
    }
}

impl Backpressure for VhostQueue {
    fn room(&mut self, frame_bytes: usize) -> usize {
        self.follow();
        // A missing guest does not hold senders back.
        let Some(vring) = self.to_guest.get() else { return BATCH_FRAMES };
        if vring.is_stopped() {
            return BATCH_FRAMES;
        }
        let buffers = if vring.is_mergeable { (frame_bytes + 12).div_ceil(USUAL_BUFFER_BYTES) } else { 1 };
        let wanted = (BATCH_FRAMES * buffers).min(MAX_RING_ENTRIES.into());
        vring.ring.available(wanted as u16).map_or(BATCH_FRAMES, |available| usize::from(available) / buffers)
    }

    fn await_room(&mut self) -> bool {
        self.awaits_room = true;
        self.announced_room
    }
}

impl Diagnose for VhostQueue {
    fn failure(&self, way: FailedDirection) -> Option<String> {
        let fault = |held: &Held<Vring>| held.peek().and_then(|vring| vring.fault);
        if let Some(fault) = fault(&self.from_guest).filter(|_| way == FailedDirection::Either) {
            return Some(format!("the guest's transmit queue is stopped: {fault}"));
        }
        let fault = fault(&self.to_guest)?;
        Some(format!("the guest's receive queue is stopped: {fault}"))
    }

    fn violations(&mut self) -> u64 {
        for held in [&mut self.from_guest, &mut self.to_guest] {
            self.violations +=
                held.get().map_or(0, |vring| u64::from(std::mem::take(&mut vring.is_uncounted)));
        }
        std::mem::take(&mut self.violations)
    }
}
