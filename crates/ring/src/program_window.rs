//! Slots that a program owns in one ring, `[head, tail)`, for all kinds of rings.

use crate::cursor::{advance, distance};
use crate::layout::Slot;
use crate::layout::slot_flags::{BUF_CHANGED, MORE_FRAGMENTS};
use crate::ring_view::RingView;
use crate::shared::{SharedBytes, SharedSlot};

/// Number of slots by which the prefetch of buffers is ahead.
const PREFETCH_SLOTS: usize = 8;

/// Free slot that [`ProgramWindow::push_each`] hands out.
#[derive(Debug)]
pub struct FreeSlot<'ring> {
    /// Index of the slot in the ring.
    pub index: u32,
    /// Index of the slot's buffer.
    pub buffer: u32,
    /// Bytes of the whole buffer; empty if the slot has no valid buffer.
    pub bytes: SharedBytes<'ring>,
}

/// Window of a program onto a ring. `head` moves forward as slots are given back, `tail` at each sync.
#[derive(Debug)]
pub struct ProgramWindow {
    pub(crate) view: RingView,
    pub(crate) head: u32,
    pub(crate) tail: u32,
    /// Number of slots whose buffer index was changed since the ring was opened.
    pub(crate) exchanged: u32,
}

impl ProgramWindow {
    /// Number of slots that the program owns now.
    #[inline]
    #[must_use]
    pub fn available(&self) -> u32 {
        distance(self.head, self.tail, self.view.slot_count())
    }

    /// Number of slots of the ring. Slots that are given back but not yet processed by the other side count against it.
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        self.view.slot_count()
    }

    /// Size of every buffer, bytes.
    #[inline]
    #[must_use]
    pub fn buffer_bytes(&self) -> u32 {
        self.view.buffers().buffer_bytes()
    }

    /// View of the ring.
    #[must_use]
    pub fn view(&self) -> &RingView {
        &self.view
    }

    /// Index in the ring of the slot `offset` after `head`.
    #[inline]
    fn index(&self, offset: u32) -> u32 {
        assert!(offset < self.available(), "slot {offset} of {} available", self.available());
        advance(self.head, offset, self.view.slot_count())
    }

    /// The slot `offset` after `head`.
    ///
    /// # Panics
    /// If `offset` is not below [`Self::available`].
    #[inline]
    #[must_use]
    pub fn slot(&self, offset: u32) -> Slot {
        self.view.slot(self.index(offset)).load_with_ptr()
    }

    /// Writes length and flags of the slot `offset` after `head`; its buffer stays.
    ///
    /// # Panics
    /// If `offset` is not below [`Self::available`].
    #[inline]
    pub fn set(&mut self, offset: u32, len: u16, flags: u16) {
        let slot = self.view.slot(self.index(offset));
        let buffer = slot.load().buffer;
        slot.store(Slot { buffer, len, flags, ptr: 0 });
    }

    /// Writes a whole slot, its buffer included.
    ///
    /// # Panics
    /// If `offset` is not below [`Self::available`].
    #[inline]
    pub fn exchange(&mut self, offset: u32, slot: Slot) {
        self.view.slot(self.index(offset)).store_with_ptr(slot);
        self.exchanged = self.exchanged.wrapping_add(1);
    }

    /// The valid bytes of the slot `offset` after `head`.
    ///
    /// # Panics
    /// If `offset` is not below [`Self::available`].
    #[inline]
    #[must_use]
    pub fn bytes(&self, offset: u32) -> SharedBytes<'_> {
        let slot = self.view.slot(self.index(offset)).load();
        self.view.bytes(slot.buffer, usize::from(slot.len))
    }

    /// The whole buffer of the slot `offset` after `head`.
    ///
    /// # Panics
    /// If `offset` is not below [`Self::available`].
    #[inline]
    #[must_use]
    pub fn buffer(&self, offset: u32) -> SharedBytes<'_> {
        let slot = self.view.slot(self.index(offset)).load();
        self.view.bytes(slot.buffer, self.buffer_bytes() as usize)
    }

    /// Copies `frame` into the first slot and gives it to the other side. Returns false, and changes nothing, if there
    /// is no slot or its buffer is too short.
    #[inline]
    pub fn push(&mut self, frame: &[u8]) -> bool {
        let Ok(len) = u16::try_from(frame.len()) else { return false };
        if self.head == self.tail {
            return false;
        }
        let slot = self.view.slot(self.head);
        let old = slot.load_word();
        if self.view.buffers().fill(old.buffer(), &SharedBytes::of(frame)).is_none() {
            return false;
        }
        slot.describe(old, len, 0);
        self.head = advance(self.head, 1, self.view.slot_count());
        true
    }

    /// Hands the first slots to `write`, at most `most`, in order. If `write` returns the length of a frame, bytes, the
    /// slot goes to the other side; `None` ends the calls. Returns the number of slots that went to the other side.
    ///
    /// `AHEAD`: prefetches buffers some slots before their turn. This pays if `write` writes to most of them.
    #[inline]
    pub fn push_each<const AHEAD: bool>(
        &mut self,
        most: u32,
        mut write: impl FnMut(FreeSlot<'_>) -> Option<u16>,
    ) -> u32 {
        let (slots, most) = (self.view.slot_count(), most.min(self.available()));
        let buffers = *self.view.buffers();
        let mut pushed = 0;
        'runs: while pushed < most {
            let first = advance(self.head, pushed, slots);
            for (index, slot) in (first..).zip(self.view.slots(first, most - pushed)) {
                let old = slot.load_word();
                let bytes = buffers.bytes(old.buffer(), usize::MAX);
                if AHEAD {
                    buffers.prefetch_write_behind(bytes.start(), PREFETCH_SLOTS);
                }
                let Some(len) = write(FreeSlot { index, buffer: old.buffer(), bytes }) else { break 'runs };
                slot.describe(old, len, 0);
                pushed += 1;
            }
        }
        self.head = advance(self.head, pushed, slots);
        pushed
    }

    /// Hands the first slots and their bytes to `read`, at most `most`, in order. If `read` returns true, the slot goes
    /// back to the other side; false ends the calls. Returns the number of slots that went back.
    #[inline]
    pub fn pop_each(&mut self, most: u32, mut read: impl FnMut(Slot, SharedBytes<'_>) -> bool) -> u32 {
        let (slots, most) = (self.view.slot_count(), most.min(self.available()));
        let buffers = *self.view.buffers();
        let mut popped = 0;
        'runs: while popped < most {
            for slot in self.view.slots(advance(self.head, popped, slots), most - popped) {
                let slot = slot.load();
                let bytes = buffers.bytes(slot.buffer, slot.len.into());
                buffers.prefetch_read_behind(bytes.start(), PREFETCH_SLOTS);
                if !read(slot, bytes) {
                    break 'runs;
                }
                popped += 1;
            }
        }
        self.head = advance(self.head, popped, slots);
        popped
    }

    /// Copies frames of one slot each from the first slots of this window into the first slots of `to`, at most `most`,
    /// and gives the slots of both windows to their other sides. Stops before the first frame that has several slots or
    /// does not fit. Returns the number of copied frames.
    #[inline(never)]
    pub fn copy_single(&mut self, to: &mut Self, most: u32) -> u32 {
        let buffers = self.view.buffers().copying_to(*to.view.buffers());
        self.each_single(to, most, |source, target| {
            let old = target.load_word();
            let Some(new) = buffers.copy(source.load_word(), old, PREFETCH_SLOTS) else { return false };
            target.replace(old, new);
            true
        })
    }

    /// Works as [`Self::copy_single`], by exchange of the buffers, which lie in one region.
    #[inline(never)]
    pub fn exchange_single(&mut self, to: &mut Self, most: u32) -> u32 {
        let exchanged = self.each_single(to, most, |source, target| {
            let (slot, old) = (source.load_word(), target.load_word());
            if slot.flags() & MORE_FRAGMENTS != 0 {
                return false;
            }
            // The high bits are cleared: a fragment count that a switch left there would force a destination on the way
            // out.
            let given = slot.with_flags(BUF_CHANGED);
            target.overwrite(given);
            target.overwrite_ptr(source.load_ptr());
            source.overwrite(given.in_buffer(old.buffer()));
            source.overwrite_ptr(0);
            true
        });
        self.exchanged = self.exchanged.wrapping_add(exchanged);
        to.exchanged = to.exchanged.wrapping_add(exchanged);
        exchanged
    }

    /// Shows pairs of the first slots of this window and of `to` to `each`, and gives them to their other sides until
    /// `each` returns false. Returns the number of pairs for which `each` returned true.
    #[inline]
    fn each_single(
        &mut self,
        to: &mut Self,
        most: u32,
        mut each: impl FnMut(&SharedSlot, &SharedSlot) -> bool,
    ) -> u32 {
        let most = most.min(self.available()).min(to.available());
        let mut done = 0;
        while done < most {
            let from = self.view.slots(self.head, most - done);
            let into = to.view.slots(to.head, most - done);
            let pairs = from.len().min(into.len());
            let good = from.iter().zip(into).take_while(|(source, target)| each(source, target)).count();
            self.head = advance(self.head, good as u32, self.view.slot_count());
            to.head = advance(to.head, good as u32, to.view.slot_count());
            done += good as u32;
            if good != pairs {
                break;
            }
        }
        done
    }

    /// Address of the buffer of the slot `offset` after `head`, for a prefetch; `None` beyond the window.
    #[inline]
    #[must_use]
    pub fn prefetch_address(&self, offset: u32) -> Option<*const u8> {
        if offset >= self.available() {
            return None;
        }
        let index = advance(self.head, offset, self.view.slot_count());
        let slot = self.view.slot(index).load();
        self.view.buffers().address(slot.buffer).map(|address| address.as_ptr().cast_const())
    }

    /// Gives the first `count` slots (at most [`Self::available`]) to the other side, which sees them at the next sync.
    #[inline]
    pub fn advance(&mut self, count: u32) {
        let count = count.min(self.available());
        self.head = advance(self.head, count, self.view.slot_count());
    }
}
