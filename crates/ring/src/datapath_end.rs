//! The datapath's ends of a program's rings. Everything that the program can write is hostile here.
//!
//! The datapath keeps its own cursors (the shadow). It reads the program's `head` and each slot in shared memory
//! exactly once per use, checks the values, and continues with its copy of them. The datapath never reads back the line
//! that it publishes. A violation stops the ring for good, and its code stays in the control block for the program.

use crate::cursor::{advance, distance, previous, within};
use crate::layout::slot_flags::{MORE_FRAGMENTS, PORT_SHIFT};
use crate::layout::{MAX_FRAGMENTS, Slot};
use crate::ring_view::RingView;
use crate::shared::{BufferPool, SharedBytes, SharedSlot, SlotWord};
use crate::sync::{AtomicU32, Ordering};
use crate::violation::RingViolation;
use crate::wakeup::Kicker;

/// Number of slots by which the prefetch of buffers is ahead.
const PREFETCH_SLOTS: usize = 8;

/// Treatment of slots with an invalid buffer index, or with a length beyond the buffer's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlotRule {
    /// Stops the ring: such a slot is a fault of one of Ringroad's own programs.
    #[default]
    Stop,
    /// Treats the slot as netmap does: a tx slot counts as empty, the frame for an rx slot goes to the reserved buffer.
    Pardon,
}

/// The position of a datapath's end, for the process that serves the ring next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndPosition {
    /// Last `head` of the program that passed the check.
    pub head: u32,
    /// First slot that is not taken yet (tx) or not filled yet (rx).
    pub next: u32,
    /// Code of the violation that stopped the ring; 0: none.
    pub violation: u32,
}

impl EndPosition {
    /// The position, with indexes of a ring of `slots` slots.
    fn within(self, slots: u32) -> Self {
        Self { head: self.head % slots, next: self.next % slots, ..self }
    }
}

/// State that both ends have: shadow cursors, and whether the ring is stopped.
#[derive(Debug)]
struct Shadow {
    view: RingView,
    /// Last `head` of the program that passed the check.
    head: u32,
    /// Last published `tail`.
    tail: u32,
    violation: Option<RingViolation>,
    kicker: Kicker,
    rule: SlotRule,
    /// Bits of `slot.ptr` in which the program gives a fragment's offset in its buffer.
    offset_mask: u64,
    /// Bytes at the start of each rx buffer that are kept free for the offset.
    max_offset: u32,
}

impl Shadow {
    fn new(view: RingView, head: u32, tail: u32) -> Self {
        let (rule, kicker) = (SlotRule::Stop, Kicker::default());
        Self { view, head, tail, violation: None, kicker, rule, offset_mask: 0, max_offset: 0 }
    }

    /// Continues where an earlier end stopped.
    fn resume(view: RingView, position: EndPosition, tail: u32) -> Self {
        let mut shadow = Self::new(view, position.head, tail);
        shadow.violation = RingViolation::from_code(position.violation);
        shadow.publish(tail);
        shadow
    }

    fn position(&self, next: u32) -> EndPosition {
        let violation = self.violation.map_or(0, |violation| violation as u32);
        EndPosition { head: self.head, next, violation }
    }

    /// Slot `index`, and the offset of its fragment in the buffer.
    #[inline]
    fn slot(&self, index: u32) -> (Slot, u64) {
        if self.offset_mask == 0 {
            return (self.view.slot(index).load(), 0);
        }
        let slot = self.view.slot(index).load_with_ptr();
        (slot, slot.ptr & self.offset_mask)
    }

    /// Bytes of a buffer: `len` bytes from `offset` on. The caller has checked that they lie in the buffer.
    #[inline]
    fn bytes(&self, buffer: u32, offset: u64, len: usize) -> SharedBytes<'_> {
        match offset {
            0 => self.view.bytes(buffer, len),
            _ => self.view.bytes(buffer, offset as usize + len).skip(offset as usize),
        }
    }

    /// Reads and checks the program's head: it may only have moved forward, up to the published tail.
    #[inline]
    fn refresh_head(&mut self) -> Result<(), RingViolation> {
        let head = self.view.control().program.head.load(Ordering::Acquire);
        if head == self.head {
            return Ok(());
        }
        if !within(self.head, head, self.tail, self.view.slot_count()) {
            return Err(self.stop(RingViolation::Head));
        }
        self.head = head;
        Ok(())
    }

    #[cold]
    fn stop(&mut self, violation: RingViolation) -> RingViolation {
        self.violation = Some(violation);
        self.view.control().datapath.violation.store(violation as u32, Ordering::Release);
        violation
    }

    #[inline]
    fn publish(&mut self, tail: u32) {
        self.tail = tail;
        self.view.control().datapath.tail.store(tail, Ordering::Release);
    }

    /// Publishes `tail` on a ring that an earlier end may have stopped.
    fn start_anew(&mut self, tail: u32) {
        self.view.control().datapath.violation.store(0, Ordering::Relaxed);
        self.publish(tail);
    }

    #[inline]
    fn needs_kick(&mut self) -> bool {
        let flag = &self.view.control().program.sleeping;
        self.kicker.needs_kick(flag)
    }
}

/// Fragment that the datapath borrows from a tx ring.
#[derive(Debug)]
pub struct TakenFragment<'ring> {
    /// Buffer, length and flags of the slot, read once.
    pub slot: SlotWord,
    /// Bytes of the fragment, checked to lie in the region; the slot has their number.
    pub bytes: SharedBytes<'ring>,
}

/// Waiting slots that follow each other in memory.
#[derive(Debug)]
pub struct SlotRun<'ring> {
    /// Slots of the run.
    pub slots: &'ring [SharedSlot],
    buffers: BufferPool,
}

impl<'ring> SlotRun<'ring> {
    /// Single-slot frame of `slot`; `None` for any other slot, which the caller passes to [`TxTakeEnd::take`].
    #[inline]
    #[must_use]
    pub fn single(&self, slot: &SharedSlot) -> Option<TakenFragment<'ring>> {
        let slot = slot.load_word();
        let bytes = self.buffers.single(slot)?;
        Some(TakenFragment { slot, bytes })
    }
}

/// The datapath's end of a tx ring: takes frames.
#[derive(Debug)]
pub struct TxTakeEnd {
    shadow: Shadow,
    /// First slot not given back yet.
    released: u32,
    /// First slot not taken yet.
    taken: u32,
}

impl TxTakeEnd {
    /// The end of a newly laid out tx ring.
    #[must_use]
    pub fn new(view: RingView) -> Self {
        let tail = previous(0, view.slot_count());
        Self { shadow: Shadow::new(view, 0, tail), released: 0, taken: 0 }
    }

    /// Takes over a tx ring that was in use: published slots that were not taken go back to the program unsent.
    #[must_use]
    pub fn take_up(view: RingView) -> Self {
        let head = view.control().program.head.load(Ordering::Acquire);
        let head = if head < view.slot_count() { head } else { 0 };
        let tail = previous(head, view.slot_count());
        let mut shadow = Shadow::new(view, head, tail);
        shadow.start_anew(tail);
        Self { shadow, released: head, taken: head }
    }

    /// Continues a tx ring that another process served up to `position`. All taken slots are given back.
    #[must_use]
    pub fn resume(view: RingView, position: EndPosition) -> Self {
        let position = position.within(view.slot_count());
        let tail = previous(position.next, view.slot_count());
        let shadow = Shadow::resume(view, position, tail);
        Self { shadow, released: position.next, taken: position.next }
    }

    /// Position of this end, for the process that serves the ring next.
    #[must_use]
    pub fn end_position(&self) -> EndPosition {
        self.shadow.position(self.taken)
    }

    /// Sets the treatment of wrong slots, the bits of `ptr` that are offsets (0: none), and the largest offset, bytes.
    pub fn set_rules(&mut self, rule: SlotRule, offset_mask: u64, max_offset: u32) {
        (self.shadow.rule, self.shadow.offset_mask) = (rule, offset_mask);
        self.shadow.max_offset = max_offset;
    }

    /// The ring.
    #[must_use]
    pub fn view(&self) -> &RingView {
        &self.shadow.view
    }

    /// First slot not taken yet.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u32 {
        self.taken
    }

    /// Number of slots that the program has published and that are not taken yet.
    ///
    /// # Errors
    /// The violation that stopped the ring.
    #[inline]
    pub fn refresh(&mut self) -> Result<u32, RingViolation> {
        if let Some(violation) = self.shadow.violation {
            return Err(violation);
        }
        self.shadow.refresh_head()?;
        Ok(self.waiting())
    }

    /// Whether the program has published no slot since the last refresh.
    #[inline]
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.shadow.view.control().program.head.load(Ordering::Relaxed) == self.shadow.head
    }

    /// Number of slots known to wait, without a read of the program's head.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> u32 {
        distance(self.taken, self.shadow.head, self.shadow.view.slot_count())
    }

    /// Takes the next waiting fragment; `None` if no fragment waits. The fragment stays borrowed until
    /// [`Self::release`].
    ///
    /// # Errors
    /// A violation, which stops the ring; the fragment does not count as taken.
    #[inline]
    pub fn take(&mut self) -> Result<Option<TakenFragment<'_>>, RingViolation> {
        if self.taken == self.shadow.head {
            return Ok(None);
        }
        let (slot, offset) = self.shadow.slot(self.taken);
        let buffers = self.shadow.view.buffers();
        let end = offset.saturating_add(u64::from(slot.len));
        let mut len = slot.len;
        if !buffers.has(slot.buffer) || end > u64::from(buffers.buffer_bytes()) {
            if self.shadow.rule == SlotRule::Stop {
                let has = buffers.has(slot.buffer);
                let violation = if has { RingViolation::Length } else { RingViolation::BufferIndex };
                return Err(self.shadow.stop(violation));
            }
            len = 0;
        }
        self.taken = advance(self.taken, 1, self.shadow.view.slot_count());
        let bytes = self.shadow.bytes(slot.buffer, if len == 0 { 0 } else { offset }, len.into());
        Ok(Some(TakenFragment { slot: SlotWord::new(slot.buffer, len, slot.flags), bytes }))
    }

    /// Shows waiting slots to `take`. `take` takes frames of one slot each ([`SlotRun::single`]) from the first slot
    /// on, and returns their number.
    #[inline(never)]
    pub fn take_single(&mut self, mut take: impl FnMut(SlotRun<'_>) -> usize) {
        let &Shadow { ref view, head, offset_mask, .. } = &self.shadow;
        if offset_mask != 0 {
            return;
        }
        let slots = view.slot_count();
        while self.taken != head {
            let run = view.slots(self.taken, distance(self.taken, head, slots));
            let taken = take(SlotRun { slots: run, buffers: *view.buffers() });
            self.taken = advance(self.taken, taken as u32, slots);
            if taken != run.len() {
                break;
            }
        }
    }

    /// Address of the buffer of the slot `ahead` slots after the next slot to take, for a prefetch. The slot is read
    /// again, and checked, when it is taken.
    #[inline]
    #[must_use]
    pub fn prefetch_address(&self, ahead: u32) -> Option<*const u8> {
        if ahead >= self.waiting() {
            return None;
        }
        let index = advance(self.taken, ahead, self.shadow.view.slot_count());
        let slot = self.shadow.view.slot(index).load();
        self.shadow.view.buffers().address(slot.buffer).map(|address| address.as_ptr().cast_const())
    }

    /// Whether a frame waits whose fragments are all published. The slots are read again when they are taken.
    #[must_use]
    pub fn has_whole_frame(&self) -> bool {
        let slots = self.shadow.view.slot_count();
        let mut index = self.taken;
        // Limit of the search: `take` finds a frame with more fragments than allowed, and stops the ring.
        for _ in 0..MAX_FRAGMENTS {
            if index == self.shadow.head {
                return false;
            }
            if self.shadow.view.slot(index).load().flags & MORE_FRAGMENTS == 0 {
                return true;
            }
            index = advance(index, 1, slots);
        }
        true
    }

    /// Puts back the last `count` fragments taken: they are the next to be taken again.
    pub fn put_back(&mut self, count: u32) {
        let slots = self.shadow.view.slot_count();
        debug_assert!(count <= distance(self.released, self.taken, slots));
        self.taken = advance(self.taken, slots - count, slots);
    }

    /// Stops the ring because of a violation that needs several slots to be found.
    pub fn stop(&mut self, violation: RingViolation) {
        self.shadow.stop(violation);
    }

    /// Gives the `count` fragments taken first back to the program.
    #[inline]
    pub fn release(&mut self, count: u32) {
        let slots = self.shadow.view.slot_count();
        debug_assert!(count <= distance(self.released, self.taken, slots));
        self.released = advance(self.released, count, slots);
        self.shadow.publish(previous(self.released, slots));
    }

    /// Whether the program sleeps until slots come back. To be called after [`crate::wakeup::publish_fence`].
    #[inline]
    pub fn needs_kick(&mut self) -> bool {
        self.shadow.needs_kick()
    }

    /// Flag in which the datapath announces its sleep for this ring.
    #[must_use]
    pub fn sleeping_flag(&self) -> &AtomicU32 {
        &self.shadow.view.control().datapath.sleeping
    }

    /// Violation that stopped the ring, if any.
    #[must_use]
    pub fn violation(&self) -> Option<RingViolation> {
        self.shadow.violation
    }
}

/// Copies frames into the slots of a run, one frame per slot, as [`RxPutEnd::put_single`] does. Returns the number of
/// copied frames.
// A separate function for each kind of frame: an inlined loop would share registers with the loop around it.
#[inline(never)]
fn put_run<'frame>(
    buffers: BufferPool,
    run: &[SharedSlot],
    frames: impl Iterator<Item = (SharedBytes<'frame>, Option<u64>)>,
) -> u32 {
    let mut put = 0;
    for (slot, (frame, timestamp_ns)) in run.iter().zip(frames) {
        let old = slot.load_word();
        if frame.len() > usize::from(u16::MAX) {
            break;
        }
        let Some(start) = buffers.fill(old.buffer(), &frame) else { break };
        buffers.prefetch_write_behind(start, PREFETCH_SLOTS);
        slot.describe(old, frame.len() as u16, 1 << PORT_SHIFT);
        if let Some(timestamp_ns) = timestamp_ns {
            // The timestamp differs from the slot's old value nearly always, so no comparison saves the write.
            slot.overwrite_ptr(timestamp_ns);
        }
        put += 1;
    }
    put
}

/// The datapath's end of an rx ring: puts frames.
#[derive(Debug)]
pub struct RxPutEnd {
    shadow: Shadow,
    /// First slot not filled yet.
    filled: u32,
}

impl RxPutEnd {
    /// The end of a newly laid out rx ring.
    #[must_use]
    pub fn new(view: RingView) -> Self {
        Self { shadow: Shadow::new(view, 0, 0), filled: 0 }
    }

    /// Takes over an rx ring that was in use: frames that its program has not read yet stay for it.
    #[must_use]
    pub fn take_up(view: RingView) -> Self {
        let slots = view.slot_count();
        let mut head = view.control().program.head.load(Ordering::Acquire);
        let mut tail = view.control().datapath.tail.load(Ordering::Relaxed);
        if head >= slots || tail >= slots {
            (head, tail) = (0, 0);
        }
        let mut shadow = Shadow::new(view, head, tail);
        shadow.start_anew(tail);
        Self { shadow, filled: tail }
    }

    /// Continues an rx ring that another process served up to `position`. All filled slots count as published.
    #[must_use]
    pub fn resume(view: RingView, position: EndPosition) -> Self {
        let position = position.within(view.slot_count());
        Self { shadow: Shadow::resume(view, position, position.next), filled: position.next }
    }

    /// Position of this end, for the process that serves the ring next.
    #[must_use]
    pub fn end_position(&self) -> EndPosition {
        self.shadow.position(self.filled)
    }

    /// Sets the treatment of wrong slots, the bits of `ptr` that are offsets (0: none), and the largest offset, bytes.
    pub fn set_rules(&mut self, rule: SlotRule, offset_mask: u64, max_offset: u32) {
        (self.shadow.rule, self.shadow.offset_mask) = (rule, offset_mask);
        self.shadow.max_offset = max_offset;
    }

    /// The ring.
    #[must_use]
    pub fn view(&self) -> &RingView {
        &self.shadow.view
    }

    /// First slot not filled yet.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u32 {
        self.filled
    }

    /// Number of slots known to be free, without a read of the program's head.
    #[inline]
    fn known_free(&self) -> u32 {
        let slots = self.shadow.view.slot_count();
        distance(self.filled, previous(self.shadow.head, slots), slots)
    }

    /// Number of free slots. Reads the program's head only if fewer than `wanted` are known to be free.
    ///
    /// # Errors
    /// The violation that stopped the ring.
    #[inline]
    pub fn free(&mut self, wanted: u32) -> Result<u32, RingViolation> {
        if let Some(violation) = self.shadow.violation {
            return Err(violation);
        }
        let free = self.known_free();
        if free >= wanted {
            return Ok(free);
        }
        self.shadow.refresh_head()?;
        Ok(self.known_free())
    }

    /// Number of bytes that fit into every buffer.
    #[inline]
    #[must_use]
    pub fn buffer_bytes(&self) -> u32 {
        self.shadow.view.buffers().buffer_bytes().saturating_sub(self.shadow.max_offset).max(1)
    }

    /// Number of slots of the ring; one always stays unused.
    #[inline]
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        self.shadow.view.slot_count()
    }

    /// The buffer of the free slot `ahead` slots after the next slot to fill, for `len` bytes, and the buffer's index.
    ///
    /// # Errors
    /// [`RingViolation::BufferIndex`], which stops the ring, if the program left an invalid index in the slot.
    #[inline]
    pub fn buffer(&mut self, ahead: u32, len: usize) -> Result<(SharedBytes<'_>, u32), RingViolation> {
        let index = advance(self.filled, ahead, self.shadow.view.slot_count());
        let (slot, offset) = self.shadow.slot(index);
        let buffers = self.shadow.view.buffers();
        if !buffers.has(slot.buffer) {
            if self.shadow.rule == SlotRule::Stop {
                return Err(self.shadow.stop(RingViolation::BufferIndex));
            }
            return Ok((self.shadow.view.reserved_bytes(len), 0));
        }
        // The limit for an offset that leaves no room: the frame becomes shorter, for the program that wrote the
        // offset.
        let offset = offset.min(u64::from(buffers.buffer_bytes()));
        Ok((self.shadow.bytes(slot.buffer, offset, len), slot.buffer))
    }

    /// Copies frames of one slot each into the next slots to fill. `free` is the number of slots known to be free.
    /// `frames` returns the frames from a given number on. The time of a frame, if it has one, goes into the slot (see
    /// [`Self::stamp`]). Stops before the first frame without room, or without a valid slot; the caller passes these to
    /// [`Self::buffer`]. Returns the number of copied frames.
    #[inline]
    pub fn put_single<'frame, I>(&mut self, free: u32, frames: impl Fn(usize) -> I) -> u32
    where
        I: Iterator<Item = (SharedBytes<'frame>, Option<u64>)>,
    {
        let Shadow { view, offset_mask, max_offset, .. } = &self.shadow;
        if *offset_mask != 0 || *max_offset != 0 {
            return 0;
        }
        let (slots, buffers) = (view.slot_count(), *view.buffers());
        let mut put = 0;
        while put < free {
            let run = view.slots(advance(self.filled, put, slots), free - put);
            let done = put_run(buffers, run, frames(put as usize));
            put += done;
            if done < run.len() as u32 {
                break;
            }
        }
        put
    }

    /// Fills the next slots with one buffer each. `free` is the number of slots known to be free. `exchange` gets a
    /// source and the slot's buffer. It returns another buffer and the length of the frame in it, or `None` if it has
    /// no more frames. Stops before the first invalid slot, which the caller passes to [`Self::buffer`]. Returns the
    /// number of filled slots.
    #[inline]
    pub fn exchange_single<S>(
        &mut self,
        free: u32,
        mut sources: &[S],
        mut exchange: impl FnMut(&S, u32) -> Option<SlotWord>,
    ) -> u32 {
        let Shadow { view, offset_mask, max_offset, .. } = &self.shadow;
        if *offset_mask != 0 || *max_offset != 0 {
            return 0;
        }
        let (slots, buffers) = (view.slot_count(), *view.buffers());
        let mut filled = 0;
        while filled < free && !sources.is_empty() {
            let run = view.slots(advance(self.filled, filled, slots), free - filled);
            let mut exchanged = 0;
            for (slot, source) in run.iter().zip(sources) {
                let own = slot.load_word().buffer();
                if !buffers.has(own) {
                    return filled + exchanged;
                }
                let Some(given) = exchange(source, own) else { return filled + exchanged };
                slot.overwrite(given.with_flags(1 << PORT_SHIFT));
                exchanged += 1;
            }
            filled += exchanged;
            sources = sources.get(run.len()..).unwrap_or(&[]);
        }
        filled
    }

    /// Address of the buffer of the free slot `ahead` slots after the next slot to fill, for a prefetch.
    #[inline]
    #[must_use]
    pub fn prefetch_address(&self, ahead: u32) -> Option<*const u8> {
        let index = advance(self.filled, ahead, self.shadow.view.slot_count());
        let slot = self.shadow.view.slot(index).load();
        self.shadow.view.buffers().address(slot.buffer).map(|address| address.as_ptr().cast_const())
    }

    /// Stops the ring for a reason outside of the ring.
    pub fn stop(&mut self, violation: RingViolation) {
        self.shadow.stop(violation);
    }

    /// Flag in which the datapath announces that it sleeps until slots come back.
    #[must_use]
    pub fn sleeping_flag(&self) -> &AtomicU32 {
        &self.shadow.view.control().datapath.sleeping
    }

    /// Writes the free slot `ahead` slots after the next slot to fill. `buffer` is the slot's own ([`Self::buffer`]),
    /// or one that replaces it.
    #[inline]
    pub fn describe(&mut self, ahead: u32, buffer: u32, len: u16, fragments: u8, more: bool) {
        let index = advance(self.filled, ahead, self.shadow.view.slot_count());
        let mut flags = u16::from(fragments) << PORT_SHIFT;
        if more {
            flags |= MORE_FRAGMENTS;
        }
        self.shadow.view.slot(index).store(Slot { buffer, len, flags, ptr: 0 });
    }

    /// Writes the arrival time of a frame to `ptr` of the free slot `ahead` slots after the next slot to fill: ns since
    /// the Unix epoch, 0 if unknown.
    #[inline]
    pub fn stamp(&mut self, ahead: u32, timestamp_ns: u64) {
        let index = advance(self.filled, ahead, self.shadow.view.slot_count());
        self.shadow.view.slot(index).store_ptr(timestamp_ns);
    }

    /// Counts the next `count` slots as filled; [`Self::flush`] gives them to the program.
    #[inline]
    pub fn commit(&mut self, count: u32) {
        self.filled = advance(self.filled, count, self.shadow.view.slot_count());
    }

    /// Publishes the committed slots; returns whether there were any.
    #[inline]
    pub fn flush(&mut self) -> bool {
        if self.filled == self.shadow.tail {
            return false;
        }
        self.shadow.publish(self.filled);
        true
    }

    /// Whether the program sleeps until frames come. To be called after [`crate::wakeup::publish_fence`].
    #[inline]
    pub fn needs_kick(&mut self) -> bool {
        self.shadow.needs_kick()
    }

    /// Violation that stopped the ring, if any.
    #[must_use]
    pub fn violation(&self) -> Option<RingViolation> {
        self.shadow.violation
    }
}
