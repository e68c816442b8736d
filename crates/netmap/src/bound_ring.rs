//! Ring that a device is bound to, and its syncs.
//!
//! The ring's position is not kept here: bindings of several processes may use the ring, so a sync reads the position
//! from the ring's control block and writes it back, under the ring's lock. A sync that finds the lock taken is
//! skipped, as netmap skips a ring that is being synced. If the caller is about to sleep, the lock's holder must wake
//! it.
//!
//! Each kind of ring treats the slots `[published, head)` differently:
//!
//! - served by the datapath: `head` goes into the control block, and the datapath's worker does the rest;
//! - pipe, tx: whole frames' slots are copied into the peer's rx ring; the program's window grows by the slots that the
//!   peer has released;
//! - pipe, rx: slots with another buffer are copied into the peer's tx ring; `head` goes into the control block, where
//!   the sender finds it;
//! - monitor, rx: as for a pipe, without copies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringroad_control::netmap::{RingBinding as Placed, RingService};
use ringroad_ring::cursor::{advance, distance, previous, within};
use ringroad_ring::geometry::GeometryError;
use ringroad_ring::layout::slot_flags::{BUF_CHANGED, FORWARD, INDIRECT};
use ringroad_ring::layout::{Direction, Slot};
use ringroad_ring::pipe_end::{pass_slots, whole_frames_end};
use ringroad_ring::ring_view::{Cursors, RingView};
use ringroad_ring::wakeup::{SharedKicker, publish_fence};

use crate::bell::Bell;
use crate::mapping::RegionMapping;
use crate::monitor_fill::MonitorFill;
use crate::outcome::SyncOutcome;
use crate::ring_lock::{Held, RingLock, SyncIntent};
use crate::user_memory;

/// Server of the ring's other side.
#[derive(Debug)]
enum Service {
    Datapath,
    /// Other end's rx ring of a tx ring, slot by slot with the same buffers.
    PipeTx(RingView),
    /// Other end's tx ring of an rx ring.
    PipeRx(RingView),
    Monitor,
    Nobody {
        fails: bool,
    },
}

/// Position of a ring for its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// First slot that the program has not given away, as the provider knows it.
    pub(crate) hwcur: u32,
    /// First slot that the program does not own.
    pub(crate) hwtail: u32,
}

/// A ring that a device is bound to.
#[derive(Debug)]
pub(crate) struct BoundRing {
    pub(crate) direction: Direction,
    pub(crate) index: u16,
    pub(crate) host: bool,
    /// Index of the ring's pair of eventfds.
    pub(crate) events: usize,
    pub(crate) view: RingView,
    lock: RingLock,
    service: Service,
    kicker: SharedKicker,
    /// Monitors that this ring's syncs have to fill.
    pub(crate) monitors: MonitorFill,
}

impl BoundRing {
    /// Binds the ring at the position that the daemon has given. Its sleepers wait on `notify`.
    pub(crate) fn new(
        mapping: &RegionMapping,
        ring: &Placed,
        notify: &Arc<Bell>,
    ) -> Result<Self, GeometryError> {
        let region = &mapping.region;
        let view = RingView::new(region, ring.object, ring.slots)?;
        let service = match ring.service {
            RingService::Datapath => Service::Datapath,
            RingService::Pipe { peer } => {
                let peer = RingView::new(region, peer, ring.slots)?;
                match ring.direction {
                    Direction::Tx => Service::PipeTx(peer),
                    Direction::Rx => Service::PipeRx(peer),
                }
            }
            RingService::Monitor => Service::Monitor,
            RingService::Nobody { fails } => Service::Nobody { fails },
        };
        Ok(Self {
            direction: ring.direction,
            index: ring.index,
            host: ring.host,
            events: usize::from(ring.events),
            monitors: MonitorFill::new(&view),
            lock: RingLock::new(&view, &mapping.holder, notify),
            view,
            service,
            kicker: SharedKicker::default(),
        })
    }

    /// Whether the datapath serves the ring.
    pub(crate) fn is_served(&self) -> bool {
        matches!(self.service, Service::Datapath)
    }

    /// Number of bindings that use the ring, in all processes.
    pub(crate) fn users(&self) -> u32 {
        self.view.control().datapath.users.load(Ordering::Relaxed)
    }

    /// Flag that sleepers of this ring set.
    pub(crate) fn sleeping_flag(&self) -> &std::sync::atomic::AtomicU32 {
        match &self.service {
            // On a pipe, the receiver's ring has the sender's announcement.
            Service::PipeTx(peer) => &peer.control().datapath.sleeping,
            _ => &self.view.control().program.sleeping,
        }
    }

    /// Current position of the ring.
    pub(crate) fn position(&self) -> Position {
        let own = self.view.control();
        match &self.service {
            Service::PipeTx(peer) => Position {
                hwcur: peer.control().datapath.tail.load(Ordering::Acquire),
                hwtail: own.program.shown_tail.load(Ordering::Relaxed),
            },
            Service::Nobody { .. } => {
                let cursors = self.view.cursors_shown();
                Position { hwcur: cursors.head, hwtail: cursors.tail }
            }
            _ => Position {
                hwcur: own.program.head.load(Ordering::Relaxed),
                hwtail: own.datapath.tail.load(Ordering::Acquire),
            },
        }
    }

    /// Whether the program has given slots that the next sync would pass on.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.view.cursors_shown().head != self.position().hwcur
    }

    /// First slot that the program has not given away.
    #[inline]
    fn given_before(&self) -> u32 {
        match &self.service {
            Service::PipeTx(peer) => peer.control().datapath.tail.load(Ordering::Acquire),
            _ => self.view.control().program.head.load(Ordering::Relaxed),
        }
    }

    /// Syncs with the values of the ring's own header.
    #[inline(always)]
    pub(crate) fn sync(&self, cursors: Cursors, intent: SyncIntent) -> SyncOutcome {
        let outcome = self.sync_to(cursors.head, cursors.cur, intent);
        if !outcome.intersects(SyncOutcome::UNSYNCED) {
            // The store repairs a tail that the program has changed.
            self.view.show_tail(self.view.control().program.shown_tail.load(Ordering::Relaxed));
        } else if outcome == SyncOutcome::BAD_INDEXES {
            self.put_right();
        }
        outcome
    }

    /// Syncs with these indexes.
    #[inline(always)]
    pub(crate) fn sync_to(&self, head: u32, cur: u32, intent: SyncIntent) -> SyncOutcome {
        if let Service::Nobody { fails } = self.service {
            return SyncOutcome::STOPPED.when(fails);
        }
        let Some(held) = self.lock.try_take(intent) else { return SyncOutcome::SKIPPED };
        let slots = self.view.slot_count();
        let own = self.view.control();
        if own.datapath.violation.load(Ordering::Relaxed) != 0 {
            return refused(held, SyncOutcome::STOPPED);
        }
        // The check is under the lock: a monitor's ring is taken back when the syncs that still knew it are over.
        if self.monitors.is_outdated(&self.view) {
            return refused(held, SyncOutcome::MONITORS_CHANGED);
        }
        let from = self.given_before();
        let shown = own.program.shown_tail.load(Ordering::Relaxed);
        if from.max(shown).max(head).max(cur) >= slots {
            return refused(held, SyncOutcome::BAD_INDEXES);
        }
        let [to_head, to_cur, to_tail] = [head, cur, shown].map(|index| distance(from, index, slots));
        if to_head > to_cur || to_cur > to_tail {
            return refused(held, SyncOutcome::BAD_INDEXES);
        }
        let (end, kick) = match head == from {
            true => (head, false),
            false => self.give(from, head),
        };
        let given = SyncOutcome::GIVEN.when(end != from) | SyncOutcome::KICK.when(kick);
        let reached = match &self.service {
            Service::PipeTx(peer) => previous(peer.control().program.head.load(Ordering::Acquire), slots),
            _ => own.datapath.tail.load(Ordering::Acquire),
        };
        if reached == shown {
            return given | SyncOutcome::READY.when(cur != shown);
        }
        // The other side may only have added to the slots that the program owns.
        if !within(shown, reached, previous(end, slots), slots) {
            return match self.service {
                // The peer's program wrote an invalid number, so no slot has come back yet.
                Service::PipeTx(_) => given | SyncOutcome::READY.when(cur != shown),
                _ => refused(held, SyncOutcome::STOPPED),
            };
        }
        if self.direction == Direction::Tx {
            self.monitors.exchange(&self.view, advance(shown, 1, slots), advance(reached, 1, slots));
        }
        own.program.shown_tail.store(reached, Ordering::Relaxed);
        given | SyncOutcome::GAINED | SyncOutcome::READY.when(cur != reached)
    }

    /// Gives slots `[from, head)` to the other side. Returns the end of the slots that it got, and whether it sleeps.
    #[inline(always)]
    fn give(&self, from: u32, head: u32) -> (u32, bool) {
        match (&self.service, self.direction) {
            (Service::PipeTx(peer), _) => return self.send_by_pipe(peer, from, head),
            (_, Direction::Tx) => self.fetch_indirect(from, head),
            (service, Direction::Rx) => {
                // The slots are not needed any more: their buffers may be exchanged with a monitor's before they go
                // back.
                self.monitors.exchange(&self.view, from, head);
                if let Service::PipeRx(sender) = service {
                    self.return_exchanged(sender, from, head);
                }
            }
        }
        (head, self.publish(head))
    }

    /// Publishes `head`; returns whether the other side sleeps.
    #[inline]
    fn publish(&self, head: u32) -> bool {
        let control = self.view.control();
        control.program.cur.store(head, Ordering::Relaxed);
        control.program.head.store(head, Ordering::Release);
        publish_fence();
        self.kicker.needs_kick(&control.datapath.sleeping)
    }

    /// Puts whole frames of slots `[from, head)` into the peer's ring. Returns their end, and whether the peer sleeps.
    #[inline(always)]
    fn send_by_pipe(&self, peer: &RingView, from: u32, head: u32) -> (u32, bool) {
        let end = whole_frames_end(&self.view, from, head);
        if end == from {
            return (end, false);
        }
        self.fetch_indirect(from, end);
        self.monitors.copy(&self.view, from, end);
        pass_slots(&self.view, peer, from, end);
        publish_fence();
        (end, self.kicker.needs_kick(&peer.control().program.sleeping))
    }

    /// Copies slots of `[from, head)` with exchanged buffers into the sender's slots, which are this ring's until
    /// `head` is published.
    #[inline]
    fn return_exchanged(&self, sender: &RingView, from: u32, head: u32) {
        if self.view.flags_among(from, head) & BUF_CHANGED != 0 {
            self.each_marked(BUF_CHANGED, from, head, |index, slot| sender.slot(index).store_with_ptr(slot));
        }
    }

    /// Copies the data of indirect slots into the slots' own buffers.
    #[inline]
    fn fetch_indirect(&self, from: u32, head: u32) {
        if self.view.flags_among(from, head) & INDIRECT != 0 {
            self.each_marked(INDIRECT, from, head, |index, slot| self.fetch_slot(index, slot));
        }
    }

    /// Calls `act` for each of slots `[from, to)` that has a flag.
    #[cold]
    fn each_marked(&self, flag: u16, from: u32, to: u32, act: impl Fn(u32, Slot)) {
        let mut index = from;
        while index != to {
            let slot = self.view.slot(index).load_with_ptr();
            if slot.flags & flag != 0 {
                act(index, slot);
            }
            index = advance(index, 1, self.view.slot_count());
        }
    }

    fn fetch_slot(&self, index: u32, slot: Slot) {
        let own = self.view.bytes(slot.buffer, usize::from(slot.len));
        if own.len() < usize::from(slot.len) {
            return;
        }
        if user_memory::read_shared(slot.ptr as usize, &own).is_err() {
            // A frame that cannot be read counts as empty.
            self.view.slot(index).store(Slot { len: 0, ..slot });
        }
    }

    /// Repairs a ring whose indexes left their window, as netmap does: slots with invalid buffers are emptied, and
    /// indexes beyond the ring are reset.
    #[cold]
    fn put_right(&self) {
        let Some(_held) = self.lock.try_take(SyncIntent::Passing) else { return };
        let slots = self.view.slot_count();
        let buffers = *self.view.buffers();
        for index in 0..slots {
            let slot = self.view.slot(index).load();
            if !buffers.has(slot.buffer) {
                self.view.slot(index).store(Slot { buffer: 0, len: 0, ..slot });
            } else if u32::from(slot.len) > buffers.buffer_bytes() {
                self.view.slot(index).store(Slot { len: 0, ..slot });
            }
        }
        let cursors = self.view.cursors_shown();
        if cursors.head >= slots || cursors.cur >= slots || cursors.tail >= slots {
            let hwcur = self.position().hwcur;
            let shown = self.view.control().program.shown_tail.load(Ordering::Relaxed);
            self.view.show_cursors(hwcur, hwcur, shown);
        }
    }

    /// Passes slots that the program marked with `NS_FORWARD` from this rx ring, which it is about to release, on to
    /// the tx ring `to` of the same region, by an exchange of buffers.
    pub(crate) fn forward(&self, to: &Self) {
        let slots = self.view.slot_count();
        let cursors = self.view.cursors_shown();
        let from = self.position().hwcur;
        let shown = self.view.control().program.shown_tail.load(Ordering::Relaxed);
        if from >= slots || shown >= slots || !within(from, cursors.head, shown, slots) {
            return;
        }
        let Some(_held) = to.lock.take_soon() else { return };
        let to_slots = to.view.slot_count();
        let start = to.position().hwcur % to_slots;
        let end = to.view.control().datapath.tail.load(Ordering::Acquire) % to_slots;
        let mut to_index = start;
        let mut index = from;
        while index != cursors.head && to_index != end {
            let slot = self.view.slot(index).load();
            if slot.flags & FORWARD != 0 {
                let other = to.view.slot(to_index).load();
                to.view.slot(to_index).store(Slot {
                    buffer: slot.buffer,
                    len: slot.len,
                    flags: BUF_CHANGED,
                    ptr: 0,
                });
                let flags = slot.flags & !FORWARD | BUF_CHANGED;
                self.view.slot(index).store(Slot { buffer: other.buffer, flags, ..slot });
                to_index = advance(to_index, 1, to_slots);
            }
            index = advance(index, 1, slots);
        }
        if to_index != start {
            to.publish(to_index);
            let control = to.view.control();
            let tail = control.datapath.tail.load(Ordering::Acquire);
            control.program.shown_tail.store(tail, Ordering::Relaxed);
            to.view.show_cursors(to_index, to_index, tail);
        }
    }
}

/// Releases the lock.
#[cold]
fn refused(held: Held<'_>, outcome: SyncOutcome) -> SyncOutcome {
    drop(held);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::mapping_of;
    use ringroad_ring::eventfd;
    use ringroad_ring::geometry::RegionGeometry;
    use ringroad_ring::region::{HugePages, Region};
    use ringroad_ring::ring_view::{RingInit, lay_out_ring};
    use std::os::fd::AsFd;

    #[test]
    fn a_sync_with_unknown_monitors_is_postponed() {
        let geometry = RegionGeometry::for_ports(1, 1, 8, 128, 0).unwrap();
        let region = Arc::new(Region::create(geometry, HugePages::Never).unwrap());
        let mut buffers = 2..geometry.buffers;
        lay_out_ring(&region, 0, &RingInit::new(Direction::Tx, 0, 8), &mut buffers).unwrap();
        let mapping = mapping_of(geometry, region.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let notify = Arc::new(Bell::new(eventfd::create().unwrap(), true));
        let binding = Placed {
            direction: Direction::Tx,
            index: 0,
            object: 0,
            slots: 8,
            service: RingService::Datapath,
            events: 0,
            host: false,
        };
        let ring = BoundRing::new(&mapping, &binding, &notify).unwrap();
        ring.view.show_cursors(2, 2, 7);
        let generation = ring.view.control().datapath.monitors.fetch_add(1, Ordering::Relaxed) + 1;
        let sync = || ring.sync(ring.view.cursors_shown(), SyncIntent::Passing);
        assert_eq!(sync(), SyncOutcome::MONITORS_CHANGED);
        assert_eq!(ring.position().hwcur, 0);
        ring.monitors.set(generation, Vec::new());
        assert_eq!(sync(), SyncOutcome::GIVEN | SyncOutcome::READY);
    }
}
