//! End that shows a ring's frames to monitors: it copies slots of the ring into a monitor's rx ring in the same region,
//! or exchanges their buffers.
//!
//! The end keeps no state between calls: it reads the position of the monitor's ring from the control block, checks it,
//! and writes it back. It has one caller at a time (the worker that serves the ring, or the holder of the rings'
//! locks). Frames that do not fit are counted as missed in the monitor's control block; the monitored ring never waits.

use crate::cursor::{advance, distance, previous};
use crate::layout::Slot;
use crate::layout::slot_flags::{BUF_CHANGED, MONITORED_TX, MORE_FRAGMENTS};
use crate::ring_view::RingView;
use crate::shared::SharedSlot;
use crate::sync::Ordering;
use crate::wakeup::{Kicker, publish_fence};

/// The filling end of a monitor's rx ring.
#[derive(Debug)]
pub struct MonitorEnd {
    view: RingView,
    kicker: Kicker,
}

impl MonitorEnd {
    /// The end of the monitor ring `view`.
    #[must_use]
    pub fn new(view: RingView) -> Self {
        Self { view, kicker: Kicker::default() }
    }

    /// Tail that the monitor's ring shows, and the number of free slots after it. Invalid values of the monitor's
    /// program read as a full ring.
    fn room(&self) -> (u32, u32) {
        let slots = self.view.slot_count();
        let control = self.view.control();
        let tail = control.datapath.tail.load(Ordering::Relaxed);
        let head = control.program.head.load(Ordering::Acquire);
        if tail >= slots || head >= slots {
            return (0, 0);
        }
        (tail, distance(tail, previous(head, slots), slots))
    }

    fn publish(&mut self, tail: u32) -> bool {
        let control = self.view.control();
        control.datapath.tail.store(tail, Ordering::Release);
        publish_fence();
        self.kicker.needs_kick(&control.program.sleeping)
    }

    /// Copies the frames in slots `[from, to)` of `source`; if not all fit, the newest ones. `sent`: the frames were
    /// seen on the tx side. Returns true if the monitor's program sleeps: the caller then signals its eventfd.
    #[must_use]
    pub fn copy(&mut self, source: &RingView, from: u32, to: u32, sent: bool) -> bool {
        self.show(source, from, to, |end, index, target| {
            let slot = source.slot(index).load();
            let buffer = target.load().buffer;
            let bytes = source.bytes(slot.buffer, usize::from(slot.len));
            let copied = end.view.bytes(buffer, usize::from(slot.len)).copy_from(&bytes);
            let flags = (slot.flags & MORE_FRAGMENTS) | mark(sent);
            let shown = Slot { buffer, len: copied as u16, flags, ptr: 0 };
            target.store_with_ptr(shown);
            shown
        })
    }

    /// Exchanges the buffers of slots `[from, to)` of `source`, which are no longer needed, with the monitor's buffers;
    /// if not all fit, the newest ones. Returns true as [`Self::copy`] does.
    #[must_use]
    pub fn exchange(&mut self, source: &RingView, from: u32, to: u32, sent: bool) -> bool {
        self.show(source, from, to, |_, index, target| {
            let slot = source.slot(index).load_with_ptr();
            let buffer = target.load().buffer;
            let flags = (slot.flags & MORE_FRAGMENTS) | mark(sent) | BUF_CHANGED;
            target.store_with_ptr(Slot { flags, ..slot });
            source.slot(index).store_with_ptr(Slot { buffer, flags: slot.flags | BUF_CHANGED, ..slot });
            slot
        })
    }

    /// Fills a slot with `put` for each of slots `[from, to)` of `source`, the newest ones if not all fit, and
    /// publishes.
    fn show(
        &mut self,
        source: &RingView,
        from: u32,
        to: u32,
        put: impl Fn(&Self, u32, &SharedSlot) -> Slot,
    ) -> bool {
        let count = distance(from, to, source.slot_count());
        let (mut tail, free) = self.room();
        let missed = count.saturating_sub(free);
        let mut index = advance(from, missed, source.slot_count());
        let filled = &self.view.control().datapath.filled;
        if missed > 0 {
            filled.miss(frames_in(source, from, index));
        }
        let (mut frames, mut bytes) = (0, 0);
        while index != to {
            let shown = put(self, index, self.view.slot(tail));
            frames += shown.ends_frame();
            bytes += u64::from(shown.len);
            tail = advance(tail, 1, self.view.slot_count());
            index = advance(index, 1, source.slot_count());
        }
        filled.add(frames, bytes);
        count > missed && self.publish(tail)
    }
}

/// Number of frames that end in slots `[from, to)`.
#[must_use]
pub fn frames_in(ring: &RingView, from: u32, to: u32) -> u32 {
    let mut frames = 0;
    let mut index = from;
    while index != to {
        frames += ring.slot(index).load().ends_frame();
        index = advance(index, 1, ring.slot_count());
    }
    frames
}

fn mark(sent: bool) -> u16 {
    if sent { MONITORED_TX } else { 0 }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::control_block::FillCounts;
    use crate::geometry::RegionGeometry;
    use crate::layout::Direction;
    use crate::region::{HugePages, Region};
    use crate::ring_view::{RingInit, lay_out_ring};

    fn rings() -> (RingView, RingView) {
        let geometry = RegionGeometry::for_ports(1, 1, 8, 128, 0).unwrap();
        let region = Arc::new(Region::create(geometry, HugePages::Never).unwrap());
        let mut buffers = 2..geometry.buffers;
        let tx = lay_out_ring(&region, 0, &RingInit::new(Direction::Tx, 0, 8), &mut buffers).unwrap();
        let rx = lay_out_ring(&region, 1, &RingInit::new(Direction::Rx, 0, 8), &mut buffers).unwrap();
        for (index, byte) in (0..8).zip(b'a'..) {
            let buffer = tx.slot(index).load().buffer;
            tx.bytes(buffer, 1).write(&[byte]);
            tx.slot(index).store(Slot { buffer, len: 1, flags: MORE_FRAGMENTS, ptr: 0 });
        }
        (tx, rx)
    }

    fn first_byte(view: &RingView, index: u32) -> u8 {
        let mut byte = [0];
        view.bytes(view.slot(index).load().buffer, 1).read(&mut byte);
        byte[0]
    }

    #[test]
    fn a_full_monitor_keeps_the_newest_of_a_batch_and_counts_the_rest() {
        let (tx, rx) = rings();
        let mut end = MonitorEnd::new(rx.clone());
        // A ring of eight slots holds seven frames.
        assert!(!end.copy(&tx, 0, 5, true) && !end.copy(&tx, 5, 2, true));
        let seen: Vec<u8> = (0..7).map(|index| first_byte(&rx, index)).collect();
        assert_eq!(seen, b"abcdeab");
        assert_eq!(rx.slot(0).load().flags, MORE_FRAGMENTS | MONITORED_TX);
        assert_eq!(rx.control().datapath.tail.load(Ordering::Relaxed), 7);
        // The slots hold one frame each, except the last, whose frame has no end yet.
        tx.slot(4).store(Slot { flags: 0, ..tx.slot(4).load() });
        rx.control().program.head.store(5, Ordering::Relaxed);
        assert!(!end.copy(&tx, 2, 5, true) && !end.copy(&tx, 2, 5, true));
        let filled = rx.control().datapath.filled.read();
        assert_eq!(filled, FillCounts { frames: 2, bytes: 12, missed: 0 });
    }

    #[test]
    fn an_exchange_leaves_every_buffer_in_one_slot() {
        let (tx, rx) = rings();
        let before = tx.slot(3).load().buffer;
        let mut end = MonitorEnd::new(rx.clone());
        assert!(!end.exchange(&tx, 3, 5, false));
        assert_eq!(rx.slot(0).load().buffer, before);
        assert_eq!(first_byte(&rx, 1), b'e');
        let mut all: Vec<u32> =
            (0..8).flat_map(|i| [tx.slot(i), rx.slot(i)].map(|s| s.load().buffer)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 16);
        assert_ne!(tx.slot(3).load().flags & BUF_CHANGED, 0);
    }

    #[test]
    fn a_malformed_monitor_ring_gets_no_frame_and_counts_a_missed_one() {
        let (tx, rx) = rings();
        rx.control().program.head.store(u32::MAX, Ordering::Relaxed);
        tx.slot(1).store(Slot { flags: 0, ..tx.slot(1).load() });
        assert!(!MonitorEnd::new(rx.clone()).copy(&tx, 0, 3, false));
        assert_eq!(rx.control().datapath.filled.read(), FillCounts { frames: 0, bytes: 0, missed: 1 });
    }
}
