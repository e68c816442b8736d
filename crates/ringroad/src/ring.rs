//! Rings in the hands of programs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringroad_port::port_queue::FailedDirection;
use ringroad_ring::eventfd;
use ringroad_ring::layout::slot_flags::{BUF_CHANGED, MORE_FRAGMENTS};
use ringroad_ring::layout::{MAX_FRAGMENTS, Slot};
use ringroad_ring::pipe_end::PipeSendEnd;
use ringroad_ring::program_end::{ProgramEnd, Synced};
use ringroad_ring::program_window::{FreeSlot, ProgramWindow};
use ringroad_ring::ring_view::RingView;
use ringroad_ring::shared::SharedBytes;
use ringroad_ring::violation::RingViolation;

use crate::error::PortError;
use crate::renewal::RenewalQueue;
use crate::stepped::Stepped;
use crate::waiter::Binding;

/// Number of idle syncs between two checks of the connection, for programs that never wait.
const SYNCS_PER_CHECK: u32 = 4096;

/// Mover of the frames on the other side of a ring.
#[derive(Debug)]
pub(crate) enum RemoteEnd {
    /// Another process or thread, which may sleep.
    Elsewhere {
        /// Eventfd that wakes the other side.
        event: OwnedFd,
        /// Whether the other side is another program, which may have made the eventfd blocking; the daemon does not.
        is_program: bool,
    },
    /// This thread, by stepping the datapath.
    Here {
        stepped: Arc<Stepped>,
        /// Queue index of the device at the other end, if there is a device. A failure of the device is an error of
        /// each sync.
        device: Option<u32>,
    },
}

#[derive(Debug)]
pub(crate) enum TxEnd {
    Program(ProgramEnd),
    Pipe(PipeSendEnd),
}

impl TxEnd {
    /// Publishes slots before this thread steps the datapath at the other side. The other side of a pipe is a program,
    /// so nothing is done.
    #[inline]
    fn publish(&mut self) {
        if let Self::Program(end) = self {
            end.publish();
        }
    }
}

/// State that both kinds of rings have.
#[derive(Debug)]
struct Half {
    other: RemoteEnd,
    binding: Arc<Binding>,
    region: (u64, u64),
    idle_syncs: u32,
    /// Part in the renewal, if the ring outlives the daemon.
    renewal: Option<RenewalQueue>,
}

impl Half {
    fn new(other: RemoteEnd, binding: Arc<Binding>, region: (u64, u64)) -> Self {
        Self { other, binding, region, idle_syncs: 0, renewal: None }
    }

    /// Finishes a sync with [`RemoteEnd::Elsewhere`]: wakes the other side. Returns whether the daemon is gone.
    #[inline]
    fn follow(&mut self, synced: Synced) -> bool {
        if synced.kick {
            self.wake();
        }
        synced.gained == 0 && self.is_gone()
    }

    #[cold]
    fn wake(&self) {
        match &self.other {
            RemoteEnd::Elsewhere { event, is_program: true } => eventfd::ring(event),
            RemoteEnd::Elsewhere { event, is_program: false } => eventfd::ring_own(event),
            RemoteEnd::Here { .. } => {}
        }
    }

    /// Whether the daemon is gone; called if a sync found nothing.
    fn is_gone(&mut self) -> bool {
        self.idle_syncs = self.idle_syncs.wrapping_add(1);
        let due = self.idle_syncs.is_multiple_of(SYNCS_PER_CHECK);
        self.binding.is_superseded.load(Ordering::Relaxed) || due && self.binding.is_gone()
    }

    /// Time until frames are due that the datapath, stepped by this thread, holds back; `None` if it holds none.
    fn due_in(&self) -> Option<Duration> {
        match &self.other {
            RemoteEnd::Here { stepped, .. } => stepped.lock().due_in(),
            RemoteEnd::Elsewhere { .. } => None,
        }
    }
}

/// Mapping of a ring's memory, which keeps it mapped even after the port has ended: for views of buffers that outlive a
/// batch. Their content changes when the slots are used again. In a child of fork(2) they read as zeros.
#[derive(Debug, Clone)]
pub struct Mapping {
    ring: RingView,
}

impl Mapping {
    /// Whether this process made the mapping, not a process that forked it.
    #[must_use]
    pub fn is_own_process(&self) -> bool {
        self.ring.region().is_own_process()
    }
}

/// A transmit ring: the program fills slots from the front and hands them over.
#[derive(Debug)]
pub struct TxRing {
    end: TxEnd,
    half: Half,
}

/// A receive ring: the program reads slots from the front and gives them back.
#[derive(Debug)]
pub struct RxRing {
    end: ProgramEnd,
    half: Half,
}

/// Result of [`RxRing::forward`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forwarded {
    /// Number of frames moved.
    pub frames: u32,
    /// Number of frames released without being moved, since the other port can never hold them.
    pub too_long: u32,
    /// Whether buffers were exchanged instead of copied.
    pub zero_copy: bool,
}

impl TxRing {
    pub(crate) fn new(end: TxEnd, other: RemoteEnd, binding: Arc<Binding>, region: (u64, u64)) -> Self {
        Self { end, half: Half::new(other, binding, region) }
    }

    #[inline]
    fn window(&self) -> &ProgramWindow {
        match &self.end {
            TxEnd::Program(end) => end.window(),
            TxEnd::Pipe(end) => end.window(),
        }
    }

    #[inline]
    fn window_mut(&mut self) -> &mut ProgramWindow {
        match &mut self.end {
            TxEnd::Program(end) => end.window_mut(),
            TxEnd::Pipe(end) => end.window_mut(),
        }
    }

    /// Number of slots that can be filled now, as of the last sync.
    #[inline]
    #[must_use]
    pub fn available(&self) -> u32 {
        self.window().available()
    }

    /// Number of slots of the ring; one always stays unused.
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        self.window().slot_count()
    }

    /// Number of slots handed over that have not come back.
    #[must_use]
    pub fn pending(&self) -> u32 {
        match &self.end {
            TxEnd::Program(end) => end.window().slot_count() - 1 - end.window().available(),
            TxEnd::Pipe(end) => end.pending(),
        }
    }

    /// Size of a buffer, bytes: the maximum that one slot carries (a length is at most 65535).
    #[must_use]
    pub fn buffer_bytes(&self) -> u32 {
        self.window().buffer_bytes()
    }

    /// Maximum length of a frame, over as many slots as a frame may have, bytes.
    #[must_use]
    pub fn max_frame_bytes(&self) -> usize {
        let slots = (self.slot_count() as usize - 1).min(MAX_FRAGMENTS);
        slots * self.slot_bytes()
    }

    fn slot_bytes(&self) -> usize {
        (self.buffer_bytes() as usize).min(usize::from(u16::MAX))
    }

    /// Returns the buffer of the slot `offset` after the first, to fill it in place. Follow with [`TxRing::set`] and
    /// [`TxRing::advance`].
    ///
    /// # Panics
    /// If `offset` is not below [`TxRing::available`].
    #[inline]
    #[must_use]
    pub fn buffer(&mut self, offset: u32) -> SharedBytes<'_> {
        self.window().buffer(offset)
    }

    /// Returns a handle that keeps the ring's memory mapped.
    #[must_use]
    pub fn mapping(&self) -> Mapping {
        Mapping { ring: self.window().view().clone() }
    }

    /// Returns the slot `offset` after the first.
    ///
    /// # Panics
    /// If `offset` is not below [`TxRing::available`].
    #[inline]
    #[must_use]
    pub fn slot(&self, offset: u32) -> Slot {
        self.window().slot(offset)
    }

    /// Sets length (bytes) and [`slot_flags`](crate::slot_flags) of the slot `offset` after the first.
    ///
    /// # Panics
    /// If `offset` is not below [`TxRing::available`].
    #[inline]
    pub fn set(&mut self, offset: u32, len: u16, flags: u16) {
        self.window_mut().set(offset, len, flags);
    }

    /// Replaces a slot with its buffer. The buffer must be in this ring's region and in no other slot or list.
    ///
    /// # Panics
    /// If `offset` is not below [`TxRing::available`].
    #[inline]
    pub fn exchange(&mut self, offset: u32, slot: Slot) {
        self.window_mut().exchange(offset, slot);
    }

    /// Address of the buffer of the slot `offset` after the first, for [`prefetch_write`](crate::prefetch_write).
    #[inline]
    #[must_use]
    pub fn prefetch_address(&self, offset: u32) -> Option<*const u8> {
        self.window().prefetch_address(offset)
    }

    /// Hands the first `count` slots over; the other side sees them at the next sync.
    #[inline]
    pub fn advance(&mut self, count: u32) {
        self.window_mut().advance(count);
    }

    /// Passes the first slots to `write`, at most `most`, in order: the quickest way to fill a burst of slots. A slot
    /// is handed over if `write` returns the length of a frame, bytes. The first `None` ends this. Returns the number
    /// of slots handed over.
    ///
    /// `AHEAD` prefetches buffers some slots before their turn. This pays if `write` writes to most of them.
    #[inline]
    pub fn push_each<const AHEAD: bool>(
        &mut self,
        most: u32,
        write: impl FnMut(FreeSlot<'_>) -> Option<u16>,
    ) -> u32 {
        self.window_mut().push_each::<AHEAD>(most, write)
    }

    /// Returns the region of the ring, if only this program writes to the buffers of its slots: a slot that comes back
    /// with the same buffer then holds what the program wrote to it. Returns `None` for the end of a pipe, whose peer
    /// gets the buffers. A port that survives its daemon's end
    /// ([`OpenOptions::reconnect`](crate::OpenOptions::reconnect)) continues in another region.
    #[inline]
    #[must_use]
    pub fn region_of_kept_buffers(&self) -> Option<(u64, u64)> {
        matches!(self.end, TxEnd::Program(_)).then_some(self.half.region)
    }

    /// Copies a whole frame into the ring, over several slots if it is longer than a buffer. Returns `Ok(false)` if
    /// there is no room now: sync, wait, and try again.
    ///
    /// # Errors
    /// [`PortError::FrameTooLong`] for a frame that can never fit.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> Result<bool, PortError> {
        if self.window_mut().push(frame) {
            return Ok(true);
        }
        self.send_fragmented(frame)
    }

    fn send_fragmented(&mut self, frame: &[u8]) -> Result<bool, PortError> {
        let most = self.max_frame_bytes();
        if frame.len() > most {
            return Err(PortError::FrameTooLong { len: frame.len(), most });
        }
        let slot_bytes = self.slot_bytes();
        let slots = frame.len().div_ceil(slot_bytes).max(1) as u32;
        if self.available() < slots {
            return Ok(false);
        }
        let window = self.window_mut();
        let mut parts = frame.chunks(slot_bytes);
        for offset in 0..slots {
            let part = parts.next().unwrap_or(&[]);
            window.buffer(offset).write(part);
            let more = if offset + 1 < slots { MORE_FRAGMENTS } else { 0 };
            window.set(offset, part.len() as u16, more);
        }
        window.advance(slots);
        Ok(true)
    }

    /// Publishes the slots handed over, and takes back the slots that are done. Returns the number of slots that came
    /// back.
    ///
    /// # Errors
    /// [`PortError::RingStopped`] after a violation, [`PortError::DaemonGone`], [`PortError::OtherProcess`];
    /// [`PortError::Device`] if the program steps the datapath of a device that has failed.
    #[inline]
    pub fn sync(&mut self) -> Result<u32, PortError> {
        if let RemoteEnd::Here { stepped, device } = &self.half.other {
            self.end.publish();
            let failed = stepped.step(*device, [FailedDirection::In]);
            let gained = self.sync_end()?.gained;
            return match failed {
                Some([Err(failure)]) => Err(failure),
                _ => Ok(gained),
            };
        }
        let synced = self.sync_end()?;
        if self.half.follow(synced) { self.renew() } else { Ok(synced.gained) }
    }

    pub(crate) fn outlive_the_daemon(&mut self, renewal: RenewalQueue) {
        self.half.renewal = Some(renewal);
    }

    /// Replaces the ring by `new`, but keeps its part in the renewal.
    pub(crate) fn take_up(&mut self, new: Self) {
        let renewal = self.half.renewal.take();
        *self = new;
        self.half.renewal = renewal;
    }

    /// Continues with the next daemon, if it runs already. Until then no frames move.
    #[cold]
    fn renew(&mut self) -> Result<u32, PortError> {
        let Some(renewal) = self.half.renewal.clone() else { return Err(PortError::DaemonGone) };
        if let Some(mut newest) = renewal.newest(self.half.binding.generation)? {
            newest.renew_tx(renewal.queue(), self);
        }
        Ok(0)
    }

    #[inline]
    fn sync_end(&mut self) -> Result<Synced, RingViolation> {
        match &mut self.end {
            TxEnd::Program(end) => end.sync(),
            TxEnd::Pipe(end) => end.sync(),
        }
    }

    pub(crate) fn announce_sleep(&mut self) {
        match &mut self.end {
            TxEnd::Program(end) => end.announce_sleep(),
            TxEnd::Pipe(end) => end.announce_sleep(),
        }
    }

    pub(crate) fn awake(&mut self) {
        match &mut self.end {
            TxEnd::Program(end) => end.awake(),
            TxEnd::Pipe(end) => end.awake(),
        }
    }
}

/// Syncs both rings of a queue. A datapath that this thread steps is stepped once for both.
///
/// # Errors
/// Errors of [`TxRing::sync`].
#[inline]
pub(crate) fn sync_both(tx: &mut TxRing, rx: &mut RxRing) -> Result<(), PortError> {
    let RemoteEnd::Here { stepped, device } = &tx.half.other else {
        tx.sync()?;
        rx.sync()?;
        return Ok(());
    };
    tx.end.publish();
    rx.end.publish();
    let failed = stepped.step(*device, [FailedDirection::In, FailedDirection::Either]);
    tx.sync_end()?;
    rx.end.sync()?;
    match failed {
        None => Ok(()),
        Some([Err(failure), _]) => Err(failure),
        // Frames that came before a failure are delivered first.
        Some([Ok(()), either]) => {
            if rx.available() == 0 {
                either
            } else {
                Ok(())
            }
        }
    }
}

/// A whole frame in a receive ring ([`RxRing::frames`]).
#[derive(Debug, Clone, Copy)]
pub struct RxFrame<'ring> {
    ring: &'ring RxRing,
    offset: u32,
    slots: u32,
}

impl<'ring> RxFrame<'ring> {
    /// Number of slots of the frame.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes of the frame, slot by slot: nearly all frames have one slot.
    pub fn parts(&self) -> impl Iterator<Item = SharedBytes<'ring>> {
        let ring = self.ring;
        (self.offset..self.offset + self.slots).map(|offset| ring.frame(offset))
    }

    /// Length of the frame, bytes without FCS.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.parts().map(|part| part.len()).sum()
    }

    /// Time at which the frame came to its interface, as by [`RxRing::timestamp_ns`].
    #[must_use]
    pub fn timestamp_ns(&self) -> u64 {
        self.ring.timestamp_ns(self.offset)
    }

    /// Appends the frame to `into`. Returns its length, bytes.
    pub fn read(&self, into: &mut Vec<u8>) -> usize {
        let start = into.len();
        for part in self.parts() {
            let end = into.len();
            into.resize(end + part.len(), 0);
            if let Some(room) = into.get_mut(end..) {
                part.read(room);
            }
        }
        into.len() - start
    }
}

impl RxRing {
    pub(crate) fn new(end: ProgramEnd, other: RemoteEnd, binding: Arc<Binding>, region: (u64, u64)) -> Self {
        Self { end, half: Half::new(other, binding, region) }
    }

    /// Number of slots that hold received fragments, as of the last sync.
    #[inline]
    #[must_use]
    pub fn available(&self) -> u32 {
        self.end.window().available()
    }

    /// Number of slots of the ring; one always stays unused.
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        self.end.window().slot_count()
    }

    /// Size of a buffer, bytes.
    #[must_use]
    pub fn buffer_bytes(&self) -> u32 {
        self.end.window().buffer_bytes()
    }

    /// Returns the slot `offset` after the first.
    ///
    /// # Panics
    /// If `offset` is not below [`RxRing::available`].
    #[inline]
    #[must_use]
    pub fn slot(&self, offset: u32) -> Slot {
        self.end.window().slot(offset)
    }

    /// Returns the bytes of the slot `offset` after the first: a whole frame unless the slot marks that more fragments
    /// follow.
    ///
    /// # Panics
    /// If `offset` is not below [`RxRing::available`].
    #[inline]
    #[must_use]
    pub fn frame(&self, offset: u32) -> SharedBytes<'_> {
        self.end.window().bytes(offset)
    }

    /// Returns the whole buffer of the slot `offset` after the first; no bytes if the slot names an invalid buffer.
    ///
    /// # Panics
    /// If `offset` is not below [`RxRing::available`].
    #[inline]
    #[must_use]
    pub fn buffer(&self, offset: u32) -> SharedBytes<'_> {
        self.end.window().buffer(offset)
    }

    /// Returns a handle that keeps the ring's memory mapped.
    #[must_use]
    pub fn mapping(&self) -> Mapping {
        Mapping { ring: self.end.window().view().clone() }
    }

    /// Passes the first slots and their bytes to `read`, at most `most`, in order. A slot is released if `read` returns
    /// true. The first false ends this. Returns the number of slots released.
    #[inline]
    pub fn pop_each(&mut self, most: u32, read: impl FnMut(Slot, SharedBytes<'_>) -> bool) -> u32 {
        self.end.window_mut().pop_each(most, read)
    }

    /// Returns the time at which the frame in the slot `offset` after the first came to its interface, ns since the
    /// Unix epoch, if the port's driver knows it (AF_PACKET does); else 0.
    ///
    /// # Panics
    /// If `offset` is not below [`RxRing::available`].
    #[inline]
    #[must_use]
    pub fn timestamp_ns(&self, offset: u32) -> u64 {
        self.slot(offset).ptr
    }

    /// Number of slots of the frame that starts `offset` slots after the first; 0 if the frame is incomplete.
    #[must_use]
    pub fn frame_slots(&self, offset: u32) -> u32 {
        for end in offset..self.available() {
            if self.slot(end).flags & MORE_FRAGMENTS == 0 {
                return end - offset + 1;
            }
        }
        0
    }

    /// Iterates over the received whole frames, in order. They stay in the ring until [`RxRing::release`] releases
    /// their slots: the sum of [`RxFrame::slots`] of the first ones.
    ///
    /// ```
    /// # let switch = ringroad::Embedded::new();
    /// # let (mut a, mut b) = (switch.open("x{1")?, switch.open("x}1")?);
    /// for len in [60, 5000] {
    ///     a.tx().send(&vec![7; len])?;
    /// }
    /// a.tx().sync()?;
    /// let rx = b.rx();
    /// rx.sync()?;
    /// assert!(rx.frames().map(|frame| frame.len()).eq([60, 5000]));
    /// let slots = rx.frames().map(|frame| frame.slots()).sum();
    /// rx.release(slots);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn frames(&self) -> impl Iterator<Item = RxFrame<'_>> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let slots = self.frame_slots(offset);
            let frame = RxFrame { ring: self, offset, slots };
            offset += slots;
            (slots > 0).then_some(frame)
        })
    }

    /// Appends the first whole frame to `into` and releases its slots. Returns its length in bytes, or `None` if there
    /// is none.
    pub fn receive(&mut self, into: &mut Vec<u8>) -> Option<usize> {
        let frame = self.frames().next()?;
        let (slots, bytes) = (frame.slots(), frame.read(into));
        self.release(slots);
        Some(bytes)
    }

    /// Replaces a slot with its buffer. The buffer must be in this ring's region and in no other slot or list.
    ///
    /// # Panics
    /// If `offset` is not below [`RxRing::available`].
    #[inline]
    pub fn exchange(&mut self, offset: u32, slot: Slot) {
        self.end.window_mut().exchange(offset, slot);
    }

    /// Address of the buffer of the slot `offset` after the first, for [`prefetch_read`](crate::prefetch_read).
    #[inline]
    #[must_use]
    pub fn prefetch_address(&self, offset: u32) -> Option<*const u8> {
        self.end.window().prefetch_address(offset)
    }

    /// Releases the first `count` slots; the other side sees it at the next sync.
    #[inline]
    pub fn release(&mut self, count: u32) {
        self.end.window_mut().advance(count);
    }

    /// Publishes the released slots, and takes received ones. Returns the number of new slots.
    ///
    /// # Errors
    /// [`PortError::RingStopped`] after a violation, [`PortError::DaemonGone`], [`PortError::OtherProcess`];
    /// [`PortError::Device`] if the program steps the datapath of a device that has failed.
    #[inline]
    pub fn sync(&mut self) -> Result<u32, PortError> {
        if let RemoteEnd::Here { stepped, device } = &self.half.other {
            self.end.publish();
            let failed = stepped.step(*device, [FailedDirection::Either]);
            let gained = self.end.sync()?.gained;
            return match failed {
                // Frames that came before a failure are delivered first.
                Some([Err(failure)]) if self.available() == 0 => Err(failure),
                _ => Ok(gained),
            };
        }
        let synced = self.end.sync()?;
        if self.half.follow(synced) { self.renew() } else { Ok(synced.gained) }
    }

    pub(crate) fn outlive_the_daemon(&mut self, renewal: RenewalQueue) {
        self.half.renewal = Some(renewal);
    }

    /// Replaces the ring by `new`, but keeps its part in the renewal.
    pub(crate) fn take_up(&mut self, new: Self) {
        let renewal = self.half.renewal.take();
        *self = new;
        self.half.renewal = renewal;
    }

    /// Continues with the next daemon, if it runs already. Until then no frames move.
    #[cold]
    fn renew(&mut self) -> Result<u32, PortError> {
        let Some(renewal) = self.half.renewal.clone() else { return Err(PortError::DaemonGone) };
        if let Some(mut newest) = renewal.newest(self.half.binding.generation)? {
            newest.renew_rx(renewal.queue(), self);
        }
        Ok(0)
    }

    /// Moves whole frames of up to `limit` received slots to `tx`. Buffers are exchanged if both rings are in one
    /// region, else copied once (over more slots if the buffers of `tx` are smaller). Neither ring is synced.
    pub fn forward(&mut self, tx: &mut TxRing, limit: u32) -> Forwarded {
        let zero_copy = self.half.region == tx.half.region;
        let limit = limit.min(self.available());
        let window = self.end.window_mut();
        // Nearly all frames are of one slot.
        let frames = match zero_copy {
            true => window.exchange_single(tx.window_mut(), limit),
            false => window.copy_single(tx.window_mut(), limit),
        };
        let mut forwarded = Forwarded { frames, too_long: 0, zero_copy };
        if frames < limit {
            self.forward_others(tx, limit - frames, &mut forwarded);
        }
        forwarded
    }

    /// Moves whole frames of any number of slots, up to `limit` slots, and adds them to `forwarded`.
    #[inline(never)]
    fn forward_others(&mut self, tx: &mut TxRing, limit: u32, forwarded: &mut Forwarded) {
        let (mut taken, mut filled) = (0, 0);
        while taken < limit {
            let slots = self.frame_slots(taken);
            if slots == 0 || taken + slots > limit {
                break;
            }
            let put = if forwarded.zero_copy {
                self.exchange_frame(tx, taken, slots, filled)
            } else {
                match self.copy_frame(tx, taken, slots, filled) {
                    Some(put) => put,
                    None => {
                        // No ring of that port can ever hold this frame.
                        forwarded.too_long += 1;
                        taken += slots;
                        continue;
                    }
                }
            };
            if put == 0 {
                break;
            }
            taken += slots;
            filled += put;
            forwarded.frames += 1;
        }
        tx.advance(filled);
        self.release(taken);
    }

    /// Exchanges the buffers of one frame. Returns the number of slots filled, 0 if there is no room.
    fn exchange_frame(&mut self, tx: &mut TxRing, first: u32, slots: u32, filled: u32) -> u32 {
        if tx.available() - filled < slots {
            return 0;
        }
        for offset in 0..slots {
            let from = self.slot(first + offset);
            let to = tx.slot(filled + offset);
            // The high bits are cleared: a switch leaves the fragment count there, which would force a destination on
            // transmit.
            let flags = from.flags & MORE_FRAGMENTS | BUF_CHANGED;
            tx.exchange(filled + offset, Slot { flags, ..from });
            self.exchange(
                first + offset,
                Slot { buffer: to.buffer, flags: BUF_CHANGED, len: from.len, ptr: 0 },
            );
        }
        slots
    }

    /// Copies one frame. Returns the number of slots filled, 0 if there is no room, `None` if the frame can never fit.
    fn copy_frame(&self, tx: &mut TxRing, first: u32, slots: u32, filled: u32) -> Option<u32> {
        let part_bytes = tx.slot_bytes();
        if slots == 1 && tx.available() > filled {
            let bytes = self.frame(first);
            // A frame of one slot, the usual case, needs no divisions.
            if bytes.len() <= part_bytes {
                tx.buffer(filled).copy_from(&bytes);
                tx.set(filled, bytes.len() as u16, 0);
                return Some(1);
            }
        }
        let parts = |offset: u32| self.frame(first + offset).len().div_ceil(part_bytes).max(1) as u32;
        let needed: u32 = (0..slots).map(parts).sum();
        if needed as usize > MAX_FRAGMENTS || needed >= tx.slot_count() {
            return None;
        }
        if tx.available() - filled < needed {
            return Some(0);
        }
        let mut put = 0;
        for offset in 0..slots {
            for part in 0..parts(offset) {
                let bytes = self.frame(first + offset).skip(part as usize * part_bytes);
                let len = tx.buffer(filled + put).copy_from(&bytes);
                put += 1;
                let more = if put < needed { MORE_FRAGMENTS } else { 0 };
                tx.set(filled + put - 1, len as u16, more);
            }
        }
        Some(put)
    }

    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.half.due_in()
    }

    pub(crate) fn announce_sleep(&mut self) {
        self.end.announce_sleep();
    }

    pub(crate) fn awake(&mut self) {
        self.end.awake();
    }
}
