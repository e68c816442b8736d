//! The slots that a program owns in one ring, `[head, tail)`, whichever ring it is.

use crate::cursor::{advance, distance};
use crate::layout::Slot;
use crate::ring_view::RingView;
use crate::shared::SharedBytes;

/// A program's window onto a ring. `head` moves forward as slots are given back, `tail` at each sync.
#[derive(Debug)]
pub struct ProgramWindow {
    pub(crate) view: RingView,
    pub(crate) head: u32,
    pub(crate) tail: u32,
    /// Slots whose buffer index was changed since the ring was opened.
    pub(crate) exchanged: u32,
}

impl ProgramWindow {
    /// Slots that the program owns now.
    #[inline]
    #[must_use]
    pub fn available(&self) -> u32 {
        distance(self.head, self.tail, self.view.slot_count())
    }

    /// Slots given back but not yet processed by the other side count against this size.
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

    /// The ring behind it.
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
    /// Where `offset` is not below [`Self::available`].
    #[inline]
    #[must_use]
    pub fn slot(&self, offset: u32) -> Slot {
        self.view.slot(self.index(offset)).load_with_ptr()
    }

    /// Writes length and flags of the slot `offset` after `head`; its buffer stays.
    ///
    /// # Panics
    /// Where `offset` is not below [`Self::available`].
    #[inline]
    pub fn set(&mut self, offset: u32, len: u16, flags: u16) {
        let slot = self.view.slot(self.index(offset));
        let buffer = slot.load().buffer;
        slot.store(Slot { buffer, len, flags, ptr: 0 });
    }

    /// Writes a whole slot, its buffer included.
    ///
    /// # Panics
    /// Where `offset` is not below [`Self::available`].
    #[inline]
    pub fn exchange(&mut self, offset: u32, slot: Slot) {
        self.view.slot(self.index(offset)).store_with_ptr(slot);
        self.exchanged = self.exchanged.wrapping_add(1);
    }

    /// The valid bytes of the slot `offset` after `head`.
    ///
    /// # Panics
    /// Where `offset` is not below [`Self::available`].
    #[inline]
    #[must_use]
    pub fn bytes(&self, offset: u32) -> SharedBytes<'_> {
        let slot = self.view.slot(self.index(offset)).load();
        self.view.bytes(slot.buffer, usize::from(slot.len))
    }

    /// The whole buffer of the slot `offset` after `head`.
    ///
    /// # Panics
    /// Where `offset` is not below [`Self::available`].
    #[inline]
    #[must_use]
    pub fn buffer(&self, offset: u32) -> SharedBytes<'_> {
        let slot = self.view.slot(self.index(offset)).load();
        self.view.bytes(slot.buffer, self.buffer_bytes() as usize)
    }

    /// Address of the buffer of the slot `offset` after `head`, to prefetch it; `None` beyond the window.
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

    /// Gives the first `count` slots (at most [`Self::available`]) to the other side; seen at the next sync.
    #[inline]
    pub fn advance(&mut self, count: u32) {
        let count = count.min(self.available());
        self.head = advance(self.head, count, self.view.slot_count());
    }
}
