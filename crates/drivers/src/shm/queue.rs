//! The datapath's side of a program's queue.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ringroad_port::batch::{BATCH_FRAMES, Batch, Custody};
use ringroad_port::counters::QueueCounters;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::{Fragment, Gather};
use ringroad_port::port_queue::{
    Backpressure, Delivery, Diagnose, HandOver, PortQueue, ProgramQueue, QueueProperties, Sleep, Upgrade,
};
use ringroad_port::roles;
use ringroad_ring::datapath_end::{EndPosition, RxPutEnd, TxTakeEnd};
use ringroad_ring::eventfd;
use ringroad_ring::geometry::GeometryError;
use ringroad_ring::layout::MAX_FRAGMENTS;
use ringroad_ring::region::{Region, RegionId};
use ringroad_ring::ring_view::RingView;
use ringroad_ring::shared::{prefetch_read, prefetch_write};
use ringroad_ring::violation::RingViolation;
use ringroad_ring::wakeup::{Sleeper, publish_fence};

use super::QueueEvents;

/// Distance of the prefetch of buffers, frames.
const PREFETCH_FRAMES: u32 = 8;

/// One queue of a program's port, from the datapath's side.
#[derive(Debug)]
pub struct ShmQueue {
    take: Option<TxTakeEnd>,
    put: Option<RxPutEnd>,
    events: QueueEvents,
    sleeper: Sleeper,
    /// Region in which buffers can be exchanged.
    region: RegionId,
    /// Region whose pages can be taken back: one with huge pages.
    can_be_lost: Option<Arc<Region>>,
    /// Whether slots are stamped with the arrival time of their frame: from the first frame on whose time is known.
    stamps: bool,
    /// Whether the next sleep ends when the program makes room.
    awaits_room: bool,
    announced_room: bool,
    released: bool,
    /// Whether the queue is closed: frames that the program publishes later are not taken.
    is_closed: bool,
    /// Number of waiting slots known to hold no whole frame. They are checked again only when more slots come.
    incomplete: u32,
    counters: Arc<QueueCounters>,
    counted: [bool; 2],
}

impl ShmQueue {
    /// Resumes a queue with these rings, which another process served until now and left with the state `numbers`
    /// ([`Upgrade::hand_over`]).
    ///
    /// # Errors
    /// [`GeometryError`] if the numbers are not those of a queue.
    pub(super) fn resume(
        region: &Arc<Region>,
        [tx, rx]: [RingView; 2],
        events: QueueEvents,
        counters: Arc<QueueCounters>,
        numbers: &[u64],
    ) -> Result<Self, GeometryError> {
        let [tx_head, tx_next, tx_violation, rx_head, rx_next, rx_violation, sleeps, flags] = *numbers
            .first_chunk()
            .ok_or(GeometryError::Impossible("a queue was handed over without its state"))?;
        let position = |head, next, violation| EndPosition {
            head: head as u32,
            next: next as u32,
            violation: violation as u32,
        };
        let take = TxTakeEnd::resume(tx, position(tx_head, tx_next, tx_violation));
        let put = RxPutEnd::resume(rx, position(rx_head, rx_next, rx_violation));
        let is_set = |bit: u32| flags >> bit & 1 != 0;
        Ok(Self {
            sleeper: Sleeper::after(sleeps as u32),
            stamps: is_set(0),
            is_closed: is_set(1),
            counted: [is_set(2), is_set(3)],
            ..Self::of_ends(region, Some(take), Some(put), events, counters)
        })
    }

    /// A queue of the given ring ends.
    #[must_use]
    pub fn of_ends(
        region: &Arc<Region>,
        take: Option<TxTakeEnd>,
        put: Option<RxPutEnd>,
        events: QueueEvents,
        counters: Arc<QueueCounters>,
    ) -> Self {
        Self {
            take,
            put,
            events,
            sleeper: Sleeper::default(),
            region: region.id(),
            can_be_lost: region.is_huge().then(|| Arc::clone(region)),
            stamps: false,
            awaits_room: false,
            announced_room: false,
            released: false,
            is_closed: false,
            incomplete: 0,
            counters,
            counted: [false; 2],
        }
    }

    /// Name of the ring that has stopped, and the violation.
    fn violation(&self) -> Option<(&'static str, RingViolation)> {
        let tx = self.take.as_ref().and_then(TxTakeEnd::violation).map(|violation| ("tx", violation));
        tx.or_else(|| self.put.as_ref().and_then(RxPutEnd::violation).map(|violation| ("rx", violation)))
    }

    #[cold]
    fn count_violation(&mut self, side: usize) {
        if !self.counted[side] {
            self.counted[side] = true;
            self.counters.violations(1);
            // The program may be asleep on this ring. It must learn why no more frames come.
            eventfd::ring(&self.events.notify);
        }
    }

    /// Stops both rings if the region's pages were taken back, because no program shares the new pages.
    #[inline]
    fn check_region(&mut self) {
        if self.can_be_lost.as_ref().is_some_and(|region| region.is_lost()) {
            self.can_be_lost = None;
            self.stop(RingViolation::RegionLost);
            self.count_violation(0);
            self.counted = [true; 2];
        }
    }

    #[cold]
    fn stop(&mut self, reason: RingViolation) {
        if let Some(take) = &mut self.take {
            take.stop(reason);
        }
        if let Some(put) = &mut self.put {
            put.stop(reason);
        }
    }

    /// The ring from which frames are taken, and the position in it.
    pub(super) fn take_position(&self) -> Option<(&RingView, u32)> {
        self.take.as_ref().map(|take| (take.view(), take.position()))
    }

    /// The ring into which frames are put, and the position in it.
    pub(super) fn put_position(&self) -> Option<(&RingView, u32)> {
        self.put.as_ref().map(|put| (put.view(), put.position()))
    }

    /// Takes frames by `take_frames`, if there are any that it has not seen. Lends their buffers in the region `lends`.
    #[inline]
    pub(super) fn receive_by(
        &mut self,
        batch: &mut Batch,
        lends: Option<RegionId>,
        take_frames: impl FnOnce(&mut TxTakeEnd, &mut Batch) -> Result<(), RingViolation>,
    ) {
        self.check_region();
        let Some(take) = &mut self.take else { return };
        let waiting = match take.violation() {
            None if self.is_closed => Ok(take.waiting()),
            _ => take.refresh(),
        };
        match waiting {
            Ok(waiting) if waiting == self.incomplete => return,
            Ok(_) => {}
            Err(_) => return self.count_violation(0),
        }
        // The slots of a tx ring keep their buffers, so these are lent and never given.
        if let Some(region) = lends
            && batch.taker() == Some(region)
        {
            batch.offer(region, Custody::Lend);
        }
        let outcome = take_frames(take, batch);
        let waiting = take.waiting();
        self.incomplete = if waiting != 0 && batch.has_room(MAX_FRAGMENTS) { waiting } else { 0 };
        if outcome.is_err() {
            self.count_violation(0);
        }
    }

    /// Takes frames as a program publishes them.
    #[inline]
    pub(super) fn take_frames(take: &mut TxTakeEnd, batch: &mut Batch) -> Result<(), RingViolation> {
        Self::take_single(take, batch);
        if take.waiting() == 0 { Ok(()) } else { Self::take_others(take, batch) }
    }

    /// Takes frames of one slot each, as nearly all frames are.
    #[inline]
    fn take_single(take: &mut TxTakeEnd, batch: &mut Batch) {
        take.take_single(|run| {
            batch.push_each(run.slots, |slot| {
                let taken = run.single(slot)?;
                // The frame's header is read after all frames are taken.
                prefetch_read(taken.bytes.as_ptr());
                // SAFETY: as in `take_frame`.
                Some(unsafe { Fragment::of_slot(&taken) })
            })
        });
    }

    /// Takes all other frames: those of several slots, and those of one slot behind them.
    #[inline(never)]
    fn take_others(take: &mut TxTakeEnd, batch: &mut Batch) -> Result<(), RingViolation> {
        while Self::take_frame(take, batch)? {
            Self::take_single(take, batch);
        }
        Ok(())
    }

    /// Takes the fragments of one frame. Returns `Ok(false)` if there is no whole frame or no room in the batch.
    #[inline]
    fn take_frame(take: &mut TxTakeEnd, batch: &mut Batch) -> Result<bool, RingViolation> {
        let before = batch.fragment_count();
        let mut fragments = 0;
        loop {
            // The room is checked before any slot is taken, because taken slots must end up in the batch or be put
            // back.
            if fragments == 0 && !batch.has_room(MAX_FRAGMENTS) {
                return Ok(false);
            }
            let taken = match take.take() {
                Ok(Some(taken)) => taken,
                // An incomplete frame waits for its rest.
                Ok(None) => {
                    batch.truncate(before);
                    take.put_back(fragments);
                    return Ok(false);
                }
                Err(violation) => {
                    batch.truncate(before);
                    take.put_back(fragments);
                    return Err(violation);
                }
            };
            // SAFETY: the region stays mapped while this queue lives, and the slot is not given back to the program
            // before `release`.
            let fragment = unsafe { Fragment::of_slot(&taken) };
            batch.push(fragment, fragments == 0);
            fragments += 1;
            if !fragment.has_more() {
                return Ok(true);
            }
            if fragments as usize == MAX_FRAGMENTS {
                batch.truncate(before);
                take.stop(RingViolation::Fragments);
                return Err(RingViolation::Fragments);
            }
        }
    }

    /// Puts frames of one fragment each, with their arrival times if `stamps` is set. Returns their number and bytes.
    #[inline]
    fn put_singles(put: &mut RxPutEnd, batch: &Batch, frames: &[u16], free: u32, stamps: bool) -> (u32, u64) {
        let all = batch.fragments();
        let fragment = |&frame: &u16| all.get(usize::from(frame)).map(Fragment::bytes);
        let is_whole = batch.is_whole(frames);
        let count = match (stamps, batch.metas()) {
            (false, _) if is_whole => {
                put.put_single(free, |from| behind(all, from).iter().map(|frame| (frame.bytes(), None)))
            }
            (false, _) => put.put_single(free, |from| {
                behind(frames, from).iter().map_while(|frame| Some((fragment(frame)?, None)))
            }),
            (true, Some(metas)) if is_whole => put.put_single(free, |from| {
                let frames = behind(all, from).iter().zip(behind(metas, from));
                frames.map(|(frame, meta)| (frame.bytes(), Some(meta.timestamp_ns)))
            }),
            (true, _) => put.put_single(free, |from| {
                let time = |&frame: &u16| Some(batch.meta(frame.into()).timestamp_ns);
                behind(frames, from).iter().map_while(move |frame| Some((fragment(frame)?, time(frame))))
            }),
        };
        if is_whole && count as usize == frames.len() {
            return (count, batch.bytes());
        }
        (count, batch.bytes_of_listed(frames.get(..count as usize).unwrap_or(frames)))
    }

    /// Puts frames of one fragment each by exchange of buffers: the source receives the buffers of the slots. Returns
    /// their number and bytes.
    #[inline(never)]
    fn exchange_singles(put: &mut RxPutEnd, batch: &mut Batch, frames: &[u16], free: u32) -> (u32, u64) {
        let is_whole = batch.is_whole(frames);
        let fragments = Cell::from_mut(batch.exchange_buffers()).as_slice_of_cells();
        let exchange = |fragment: &Cell<Fragment>, own| {
            let given = fragment.get().slot();
            fragment.set(fragment.get().in_buffer(own));
            given
        };
        let put = match is_whole {
            true => put.exchange_single(free, fragments, |fragment, own| Some(exchange(fragment, own))),
            false => put.exchange_single(free, frames, |&frame, own| {
                Some(exchange(fragments.get(usize::from(frame))?, own))
            }),
        };
        (put, batch.bytes_of_listed(frames.get(..put as usize).unwrap_or(frames)))
    }

    /// Puts frames of any kind behind the `used` slots that are already filled, by exchange of buffers if they are
    /// `given`, with their arrival times if `stamps` is set. Returns the number of slots filled then.
    #[inline(never)]
    fn put_others(
        put: &mut RxPutEnd,
        batch: &mut Batch,
        frames: &[u16],
        (given, stamps): (bool, bool),
        (mut used, mut free): (u32, u32),
        delivery: &mut Delivery,
    ) -> u32 {
        let buffer_bytes = put.buffer_bytes() as usize;
        for &frame in frames {
            prefetch_slot(put, used, free);
            let fragments = batch.frame(usize::from(frame));
            let bytes = batch.frame_bytes(usize::from(frame)) as u64;
            let result = match fragments {
                _ if given && batch.is_sole(usize::from(frame)) => {
                    let result = Self::put_exchanged(put, batch, usize::from(frame), used);
                    delivery.uncopied += u32::from(result.is_ok());
                    result
                }
                [single] if single.len() <= buffer_bytes => {
                    if used >= free {
                        // Earlier frames of several slots may have used up the slots known to be free.
                        free = put.free(used + 1).unwrap_or(0);
                    }
                    if used >= free {
                        Err(DropCause::NoSpace)
                    } else {
                        match put.buffer(used, single.len()) {
                            Ok((mut bytes, buffer)) => {
                                bytes.copy_from(&single.bytes());
                                put.describe(used, buffer, single.len() as u16, 1, false);
                                Ok(1)
                            }
                            Err(_) => Err(DropCause::RingStopped),
                        }
                    }
                }
                several => put_gathered(put, several.iter(), bytes as usize, used),
            };
            if let Ok(slots) = result {
                if stamps {
                    for slot in used..used + slots {
                        put.stamp(slot, batch.meta(usize::from(frame)).timestamp_ns);
                    }
                }
                used += slots;
            }
            delivery.count(result.map(|_| bytes));
        }
        used
    }

    /// Puts a frame by exchange of buffers: the source receives the buffers of the slots.
    fn put_exchanged(
        put: &mut RxPutEnd,
        batch: &mut Batch,
        frame: usize,
        used: u32,
    ) -> Result<u32, DropCause> {
        let fragments = batch.fragments_of(frame);
        let needed = fragments.len() as u32;
        let free = put.free(used + needed).map_err(|_| DropCause::RingStopped)?;
        if used + needed > free {
            return Err(DropCause::NoSpace);
        }
        let last = fragments.end.saturating_sub(1);
        for (ahead, fragment) in (used..).zip(fragments) {
            let (_, own) = put.buffer(ahead, 0).map_err(|_| DropCause::RingStopped)?;
            let len = batch.fragment(fragment).map_or(0, Fragment::len);
            put.describe(ahead, batch.buffer(fragment), len as u16, needed as u8, fragment != last);
            batch.exchange(fragment, own);
        }
        Ok(needed)
    }

    /// Puts `frames` frames by `fill`, which gets the number of known free slots. It returns the number of slots that
    /// it filled, and what became of the frames.
    #[inline]
    pub(super) fn deliver_by(
        &mut self,
        frames: usize,
        fill: impl FnOnce(&mut RxPutEnd, u32) -> (u32, Delivery),
    ) -> Delivery {
        self.check_region();
        let Some(put) = &mut self.put else { return Delivery::dropped(DropCause::NotBound, frames) };
        let Ok(free) = put.free(frames as u32) else {
            self.count_violation(1);
            return Delivery::dropped(DropCause::RingStopped, frames);
        };
        let (used, delivery) = fill(put, free);
        put.commit(used);
        if delivery.dropped.of(DropCause::RingStopped) != 0 {
            self.count_violation(1);
        }
        delivery
    }

    /// Puts frames, with their arrival times if `stamps` is set. Buffers in the region `takes` are exchanged.
    #[inline]
    pub(super) fn put_frames(
        &mut self,
        batch: &mut Batch,
        frames: &[u16],
        takes: Option<RegionId>,
        stamps: bool,
    ) -> Delivery {
        self.deliver_by(frames.len(), |put, free| {
            let given = takes.is_some_and(|region| batch.gives_to(region));
            // Nearly all frames are of one fragment and fit one slot.
            let (used, bytes) = match (given, stamps) {
                _ if !batch.is_single() => (0, 0),
                (false, stamps) => Self::put_singles(put, batch, frames, free, stamps),
                (true, false) if batch.is_all_sole() => Self::exchange_singles(put, batch, frames, free),
                (true, _) => (0, 0),
            };
            let uncopied = if given { used } else { 0 };
            let mut delivery = Delivery { frames: used, bytes, uncopied, ..Delivery::default() };
            let rest = behind(frames, used as usize);
            if rest.is_empty() {
                return (used, delivery);
            }
            (Self::put_others(put, batch, rest, (given, stamps), (used, free), &mut delivery), delivery)
        })
    }
}

/// Prefetches the buffer that is filled some frames after the `used` slots that are already filled.
#[inline]
pub(super) fn prefetch_slot(put: &RxPutEnd, used: u32, free: u32) {
    if used + PREFETCH_FRAMES < free
        && let Some(address) = put.prefetch_address(used + PREFETCH_FRAMES)
    {
        prefetch_write(address);
    }
}

/// Maximum number of bytes in a slot.
pub(super) fn slot_bytes(put: &RxPutEnd) -> usize {
    put.buffer_bytes().min(u32::from(u16::MAX)) as usize
}

/// Copies a frame of `total` bytes, in any number of fragments, into as many slots as it needs behind the `used` slots
/// that are already filled. Returns their number.
pub(super) fn put_gathered<'frame>(
    put: &mut RxPutEnd,
    fragments: impl Iterator<Item = &'frame Fragment>,
    total: usize,
    used: u32,
) -> Result<u32, DropCause> {
    let slot_bytes = slot_bytes(put);
    let needed = total.div_ceil(slot_bytes).max(1);
    if needed > MAX_FRAGMENTS || needed as u32 >= put.slot_count() {
        return Err(DropCause::TooLong);
    }
    let free = put.free(used + needed as u32).map_err(|_| DropCause::RingStopped)?;
    if used + needed as u32 > free {
        return Err(DropCause::NoSpace);
    }
    let mut gather = Gather::new(fragments);
    for slot in 0..needed {
        let len = (total - slot * slot_bytes).min(slot_bytes);
        let ahead = used + slot as u32;
        let (bytes, buffer) = put.buffer(ahead, len).map_err(|_| DropCause::RingStopped)?;
        gather.fill(bytes);
        // Receivers rely on the number of slots, so it is computed here, independent of the sender's value.
        put.describe(ahead, buffer, len as u16, needed as u8, slot + 1 < needed);
    }
    Ok(needed as u32)
}

/// Part of `list` from index `from` on.
#[inline]
fn behind<T>(list: &[T], from: usize) -> &[T] {
    list.get(from..).unwrap_or(&[])
}

impl PortQueue for ShmQueue {
    fn properties(&mut self) -> QueueProperties {
        let (takes_frames, region) = (self.put.is_some(), Some(self.region));
        QueueProperties { takes_frames, sleeps_alone: true, region, ..QueueProperties::default() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.receive_by(batch, Some(self.region), Self::take_frames);
    }

    #[inline]
    fn is_empty(&mut self) -> bool {
        // The queue is not empty if pages were taken back, so that `receive` detects the loss.
        self.can_be_lost.as_ref().is_none_or(|region| !region.is_lost())
            && self.take.as_ref().is_none_or(|take| take.is_unchanged() && take.waiting() == self.incomplete)
    }

    fn release(&mut self, slots: usize) {
        if let Some(take) = &mut self.take {
            take.release(slots as u32);
        }
        self.released = true;
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        self.stamps |= batch.is_stamped();
        self.put_frames(batch, frames, Some(self.region), self.stamps)
    }

    fn flush(&mut self) -> u32 {
        let put = self.put.as_mut().is_some_and(RxPutEnd::flush);
        if !put && !self.released {
            return 0;
        }
        publish_fence();
        let wake_rx = put && self.put.as_mut().is_some_and(RxPutEnd::needs_kick);
        let wake_tx = self.released && self.take.as_mut().is_some_and(TxTakeEnd::needs_kick);
        self.released = false;
        if wake_rx || wake_tx {
            eventfd::ring(&self.events.notify);
            return 1;
        }
        0
    }

    roles! { sleeper: Sleep, backpressure: Backpressure, diagnosis: Diagnose, upgrade: Upgrade, program: ProgramQueue }
}

impl Upgrade for ShmQueue {
    fn hand_over(&mut self) -> Option<HandOver> {
        let (tx, rx) = (self.take.as_ref()?.end_position(), self.put.as_ref()?.end_position());
        let flags = [self.stamps, self.is_closed, self.counted[0], self.counted[1]];
        let flags = (0..).zip(flags).map(|(bit, is_set)| u64::from(is_set) << bit).sum();
        let positions = [tx, rx].map(|end| [end.head, end.next, end.violation].map(u64::from));
        let last = [self.sleeper.last_sleep().into(), flags];
        let numbers = positions.into_iter().flatten().chain(last).collect();
        Some(HandOver { numbers, descriptors: Vec::new() })
    }
}

impl Sleep for ShmQueue {
    fn has_waiting(&mut self) -> bool {
        self.check_region();
        let Some(take) = &mut self.take else { return false };
        // An unfinished frame does not count as work: it would keep the datapath from sleeping.
        match take.refresh() {
            Ok(waiting) if waiting == self.incomplete => false,
            Ok(_) => take.has_whole_frame(),
            Err(_) => {
                self.count_violation(0);
                false
            }
        }
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        let room = self.put.as_ref().filter(|_| self.awaits_room).map(RxPutEnd::sleeping_flag);
        let flags = self.take.as_ref().map(TxTakeEnd::sleeping_flag).into_iter().chain(room);
        if sleeping {
            self.sleeper.announce(flags);
        } else {
            flags.for_each(Sleeper::awake);
        }
        self.announced_room = sleeping && self.awaits_room;
        self.awaits_room &= sleeping;
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.kick.as_fd())
    }

    fn drain_wake(&mut self) {
        eventfd::drain(&self.events.kick);
    }
}

impl Backpressure for ShmQueue {
    fn room(&mut self, frame_bytes: usize) -> usize {
        let Some(put) = &mut self.put else { return BATCH_FRAMES };
        let slot_bytes = slot_bytes(put);
        if frame_bytes <= slot_bytes {
            return put.free(BATCH_FRAMES as u32).map_or(BATCH_FRAMES, |free| free as usize);
        }
        let slots = frame_bytes.div_ceil(slot_bytes).min(MAX_FRAGMENTS);
        // A ring too small for such a frame accepts one at a time when it is empty, and drops the frame by cause.
        let slots = slots.min(put.slot_count() as usize - 1);
        let wanted = (BATCH_FRAMES * slots) as u32;
        put.free(wanted).map_or(BATCH_FRAMES, |free| free as usize / slots)
    }

    fn await_room(&mut self) -> bool {
        self.awaits_room = true;
        self.announced_room
    }
}

impl Diagnose for ShmQueue {
    fn fault(&self) -> Option<String> {
        let (direction, violation) = self.violation()?;
        Some(format!("{direction} ring stopped: {violation}"))
    }
}

impl ProgramQueue for ShmQueue {
    fn close(&mut self) {
        if let Some(take) = &mut self.take
            && !self.is_closed
        {
            // A violation is reported when the frames are taken.
            let _ = take.refresh();
            self.is_closed = true;
        }
    }

    fn end(&mut self) {
        if self.violation().is_none() {
            self.stop(RingViolation::DeviceGone);
            // The program broke no rule, so no violation is counted.
            self.counted = [true; 2];
            eventfd::ring(&self.events.notify);
        }
    }
}

#[cfg(test)]
mod tests;
