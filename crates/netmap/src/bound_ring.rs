//! A ring that a device is bound to, and its syncs.
//!
//! The ring's position is not kept here: bindings of several processes may use the ring, so a sync reads the position
//! from the ring's control block and writes it back, under the ring's lock. A sync that finds the lock taken is
//! skipped, as netmap skips a ring that is being synced. If the caller is about to sleep, the lock's holder must wake
//! it.
//!
//! Each kind of ring treats the slots `[published, head)` differently:
//!
//! - served by the datapath: `head` goes into the control block, the datapath's worker does the rest;
//! - pipe, tx: whole frames' slots are copied into the peer's rx ring; slots that the peer has released come back with
//!   the peer's buffers;
//! - pipe and monitor, rx: `head` goes into the control block, where the filling side finds it.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringroad_control::netmap::{BoundRing as Placed, RingService};
use ringroad_ring::cursor::{advance, previous, within};
use ringroad_ring::geometry::GeometryError;
use ringroad_ring::layout::slot_flags::INDIRECT;
use ringroad_ring::layout::{Direction, Slot};
use ringroad_ring::pipe_end::{pass_slots, whole_frames_end};
use ringroad_ring::ring_view::RingView;
use ringroad_ring::wakeup::{SharedKicker, publish_fence};

use crate::mapping::Mapping;
use crate::monitor_fill::MonitorFill;
use crate::private_descriptors::PrivateDescriptor;
use crate::ring_lock::{Look, RingLock};
use crate::user_memory;

/// Who works the other side.
#[derive(Debug)]
enum Service {
    Datapath,
    /// The ring of the other end.
    Pipe(RingView),
    Monitor,
    Nobody {
        fails: bool,
    },
}

/// The result of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done; `cur` of the program against the new tail says whether it has slots.
    Synced {
        /// Whether slots went to the other side.
        given: bool,
        /// Whether slots came from there.
        gained: bool,
        /// Whether `cur != tail`.
        ready: bool,
        /// Whether the other side sleeps.
        kick: bool,
    },
    /// Somebody else is at it.
    Skipped,
    /// Nothing is done: other monitors have to be filled than are known.
    MonitorsChanged,
    /// The program's indexes were outside its slots; they were put right.
    BadIndexes,
    /// The ring has stopped: its device is gone, or a rule was broken.
    Stopped,
}

/// A ring's position for its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// First slot that the program has not given away, as the provider knows it.
    pub(crate) hwcur: u32,
    /// First slot that is not the program's.
    pub(crate) hwtail: u32,
}

/// A ring that a device is bound to.
#[derive(Debug)]
pub(crate) struct BoundRing {
    pub(crate) direction: Direction,
    pub(crate) index: u16,
    pub(crate) host: bool,
    /// Which pair of eventfds is its own.
    pub(crate) events: usize,
    pub(crate) view: RingView,
    lock: RingLock,
    service: Service,
    kicker: SharedKicker,
    monitors: MonitorFill,
}

impl BoundRing {
    /// The ring as the daemon has placed it. Its sleepers wait on `notify`.
    pub(crate) fn new(
        mapping: &Mapping,
        placed: &Placed,
        notify: &Arc<PrivateDescriptor>,
    ) -> Result<Self, GeometryError> {
        let region = mapping.region();
        let view = RingView::new(region, placed.object, placed.slots)?;
        let service = match placed.service {
            RingService::Datapath => Service::Datapath,
            RingService::Pipe { peer } => Service::Pipe(RingView::new(region, peer, placed.slots)?),
            RingService::Monitor => Service::Monitor,
            RingService::Nobody { fails } => Service::Nobody { fails },
        };
        Ok(Self {
            direction: placed.direction,
            index: placed.index,
            host: placed.host,
            events: usize::from(placed.events),
            monitors: MonitorFill::new(&view),
            lock: RingLock::new(&view, mapping.holder(), notify),
            view,
            service,
            kicker: SharedKicker::default(),
        })
    }

    /// Whether the datapath serves it.
    pub(crate) fn is_served(&self) -> bool {
        matches!(self.service, Service::Datapath)
    }

    /// The monitors that this ring's syncs have to fill.
    pub(crate) fn monitors(&self) -> &MonitorFill {
        &self.monitors
    }

    /// Bindings that use the ring, in all processes.
    pub(crate) fn users(&self) -> u32 {
        self.view.control().datapath.users.load(Ordering::Relaxed)
    }

    /// The flag that sleepers of this ring set.
    pub(crate) fn sleeping_flag(&self) -> &std::sync::atomic::AtomicU32 {
        match (&self.service, self.direction) {
            // On a pipe, the sender's announcement stands in the receiver's ring.
            (Service::Pipe(peer), Direction::Tx) => &peer.control().datapath.sleeping,
            _ => &self.view.control().program.sleeping,
        }
    }

    /// The ring's present position.
    pub(crate) fn position(&self) -> Position {
        let own = self.view.control();
        match (&self.service, self.direction) {
            (Service::Pipe(peer), Direction::Tx) => Position {
                hwcur: peer.control().datapath.tail.load(Ordering::Acquire),
                hwtail: own.program.shown_tail.load(Ordering::Relaxed),
            },
            (Service::Nobody { .. }, _) => {
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

    /// A sync by the indexes in the ring's own header.
    #[inline]
    pub(crate) fn sync(&self, look: Look) -> Outcome {
        let cursors = self.view.cursors_shown();
        let outcome = self.sync_to(cursors.head, cursors.cur, look);
        match outcome {
            Outcome::Synced { .. } => {
                // A tail that the program changed is put right.
                self.view.show_tail(self.view.control().program.shown_tail.load(Ordering::Relaxed));
            }
            Outcome::BadIndexes => self.put_right(),
            Outcome::Skipped | Outcome::MonitorsChanged | Outcome::Stopped => {}
        }
        outcome
    }

    /// A sync by these indexes.
    pub(crate) fn sync_to(&self, head: u32, cur: u32, look: Look) -> Outcome {
        if let Service::Nobody { fails } = self.service {
            return if fails {
                Outcome::Stopped
            } else {
                Outcome::Synced { given: false, gained: false, ready: false, kick: false }
            };
        }
        let Some(_held) = self.lock.try_take(look) else { return Outcome::Skipped };
        let slots = self.view.slot_count();
        let own = self.view.control();
        if own.datapath.violation.load(Ordering::Relaxed) != 0 {
            return Outcome::Stopped;
        }
        // Under the lock: a monitor's ring is taken back when the syncs that still knew it are over.
        if self.monitors.is_outdated(&self.view) {
            return Outcome::MonitorsChanged;
        }
        let from = self.position().hwcur;
        let shown = own.program.shown_tail.load(Ordering::Relaxed);
        if from >= slots
            || shown >= slots
            || !within(from, head, shown, slots)
            || !within(head, cur, shown, slots)
        {
            return Outcome::BadIndexes;
        }
        let (given, kick) = match (&self.service, self.direction) {
            (Service::Pipe(peer), Direction::Tx) => self.send_by_pipe(peer, from, head),
            (_, Direction::Tx) => self.publish(from, head, true),
            (_, Direction::Rx) => {
                // Nobody needs them any more: they may be exchanged with a monitor's before they go back.
                self.monitors.exchange(&self.view, from, head);
                self.publish(from, head, false)
            }
        };
        let before = own.program.shown_tail.load(Ordering::Relaxed);
        let tail = match (&self.service, self.direction) {
            (Service::Pipe(peer), Direction::Tx) => self.reclaim_by_pipe(peer, before),
            _ => own.datapath.tail.load(Ordering::Acquire),
        };
        // The other side may only have added to what the program owns.
        if !within(before, tail, previous(head, slots), slots) {
            return Outcome::Stopped;
        }
        if self.direction == Direction::Tx && !matches!(self.service, Service::Pipe(_)) {
            self.monitors.exchange(&self.view, advance(before, 1, slots), advance(tail, 1, slots));
        }
        own.program.shown_tail.store(tail, Ordering::Relaxed);
        Outcome::Synced { given, gained: tail != before, ready: cur != tail, kick }
    }

    /// Gives slots `[from, head)` to the other side: whether there are any, and whether it sleeps.
    fn publish(&self, from: u32, head: u32, sends: bool) -> (bool, bool) {
        if from == head {
            return (false, false);
        }
        if sends {
            self.fetch_indirect(from, head);
        }
        let control = self.view.control();
        control.program.cur.store(head, Ordering::Relaxed);
        // Any slot may have another buffer now: the sending end of a pipe looks at each.
        let exchanged = control.program.exchanged.load(Ordering::Relaxed);
        control.program.exchanged.store(exchanged.wrapping_add(1), Ordering::Relaxed);
        control.program.head.store(head, Ordering::Release);
        publish_fence();
        let kick = self.kicker.needs_kick(&control.datapath.sleeping);
        (true, kick)
    }

    /// Puts whole frames of slots `[from, head)` into the peer's ring: whether there are any, and whether it sleeps.
    fn send_by_pipe(&self, peer: &RingView, from: u32, head: u32) -> (bool, bool) {
        let end = whole_frames_end(&self.view, from, head);
        if end == from {
            return (false, false);
        }
        self.fetch_indirect(from, end);
        self.monitors.copy(&self.view, from, end);
        pass_slots(&self.view, peer, from, end);
        publish_fence();
        let kick = self.kicker.needs_kick(&peer.control().program.sleeping);
        (true, kick)
    }

    /// Takes back the slots that the peer has released since the program last saw `tail`; returns the new `tail`.
    fn reclaim_by_pipe(&self, peer: &RingView, tail: u32) -> u32 {
        let slots = self.view.slot_count();
        let control = peer.control();
        let released = control.program.head.load(Ordering::Acquire);
        let from = advance(tail, 1, slots);
        if !within(from, released, control.datapath.tail.load(Ordering::Relaxed) % slots, slots) {
            return tail;
        }
        let mut index = from;
        while index != released {
            self.view.slot(index).store_with_ptr(peer.slot(index).load_with_ptr());
            index = advance(index, 1, slots);
        }
        self.monitors.exchange(&self.view, from, released);
        previous(released, slots)
    }

    /// Brings the data of indirect slots into the slots' own buffers.
    fn fetch_indirect(&self, from: u32, head: u32) {
        let slots = self.view.slot_count();
        let mut index = from;
        while index != head {
            if self.view.slot(index).load().flags & INDIRECT != 0 {
                self.fetch_slot(index);
            }
            index = advance(index, 1, slots);
        }
    }

    #[cold]
    fn fetch_slot(&self, index: u32) {
        let slot = self.view.slot(index).load_with_ptr();
        let own = self.view.bytes(slot.buffer, usize::from(slot.len));
        if own.len() < usize::from(slot.len) {
            return;
        }
        // SAFETY: the slot is the program's until it is published below, so its buffer is this thread's; `own` vouches for `len` mapped bytes.
        let into = unsafe { std::slice::from_raw_parts_mut(own.as_ptr(), own.len()) };
        if user_memory::read_bytes(slot.ptr as usize, into).is_err() {
            // A frame that cannot be read counts as empty.
            self.view.slot(index).store(Slot { len: 0, ..slot });
        }
    }

    /// Repairs a ring whose indexes left their window, as netmap does: slots with invalid buffers are emptied, and
    /// indexes beyond the ring are reset.
    fn put_right(&self) {
        let Some(_held) = self.lock.try_take(Look::Passing) else { return };
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

    /// Passes slots that the program marked with `NS_FORWARD` from this rx ring, which it is about to release, on to the tx ring `to` of the same
    /// region: their buffers change places.
    pub(crate) fn forward(&self, to: &Self) {
        use ringroad_ring::layout::slot_flags::{BUF_CHANGED, FORWARD};
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
        let mut place = start;
        let mut index = from;
        while index != cursors.head && place != end {
            let slot = self.view.slot(index).load();
            if slot.flags & FORWARD != 0 {
                let other = to.view.slot(place).load();
                to.view.slot(place).store(Slot {
                    buffer: slot.buffer,
                    len: slot.len,
                    flags: BUF_CHANGED,
                    ptr: 0,
                });
                let flags = slot.flags & !FORWARD | BUF_CHANGED;
                self.view.slot(index).store(Slot { buffer: other.buffer, flags, ..slot });
                place = advance(place, 1, to_slots);
            }
            index = advance(index, 1, slots);
        }
        if place != start {
            to.publish(start, place, false);
            let control = to.view.control();
            let tail = control.datapath.tail.load(Ordering::Acquire);
            control.program.shown_tail.store(tail, Ordering::Relaxed);
            to.view.show_cursors(place, place, tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::mapping_of;
    use ringroad_ring::eventfd;
    use ringroad_ring::geometry::RegionGeometry;
    use ringroad_ring::region::{HugePages, Region};
    use ringroad_ring::ring_view::{RingPlan, lay_out_ring};
    use std::os::fd::AsFd;

    #[test]
    fn a_sync_with_unknown_monitors_is_postponed() {
        let geometry = RegionGeometry::for_ports(1, 1, 8, 128, 0).unwrap();
        let region = Arc::new(Region::create(geometry, HugePages::Never).unwrap());
        let mut buffers = 2..geometry.buffers;
        lay_out_ring(&region, 0, &RingPlan::new(Direction::Tx, 0, 8), &mut buffers).unwrap();
        let mapping = mapping_of(geometry, region.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let notify = Arc::new(PrivateDescriptor::new(eventfd::create().unwrap()));
        let placed = Placed {
            direction: Direction::Tx,
            index: 0,
            object: 0,
            slots: 8,
            service: RingService::Datapath,
            events: 0,
            host: false,
        };
        let ring = BoundRing::new(&mapping, &placed, &notify).unwrap();
        ring.view.show_cursors(2, 2, 7);
        let generation = ring.view.control().datapath.monitors.fetch_add(1, Ordering::Relaxed) + 1;
        assert_eq!(ring.sync(Look::Passing), Outcome::MonitorsChanged);
        assert_eq!(ring.position().hwcur, 0);
        ring.monitors().set(generation, Vec::new());
        let given = Outcome::Synced { given: true, gained: false, ready: true, kick: false };
        assert_eq!(ring.sync(Look::Passing), given);
    }
}
