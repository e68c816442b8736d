//! The driver's half of a split virtqueue, common to both directions: available buffers, returned buffers, and the
//! wake-ups of both sides.

use std::sync::atomic::{Ordering, fence};

use ringroad_virtqueue::layout::{USED_NO_NOTIFY, passes_event};

use super::memory::RingMemory;

/// A rule of virtio that the back end broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UsedRingFault {
    #[error("its used index claims {claimed} buffers, and it has {has}")]
    UsedIndex { claimed: u16, has: u16 },
    #[error("it returned descriptor {0}, which it does not have")]
    NotItsOwn(u32),
    #[error("it wrote {0} bytes into a buffer, fewer than a header has or more than there are")]
    Length(u32),
    #[error("it claims that a frame takes {0} buffers")]
    Buffers(u16),
}

/// The driver's half of a ring.
#[derive(Debug)]
pub(super) struct DriverRing {
    pub(super) memory: RingMemory,
    has_event_indexes: bool,
    /// Content of each entry of the available ring. An unchanged value is not written again: if buffers come back in
    /// order, the ring stays unchanged, and its cache lines stay shared.
    available: Box<[u16]>,
    /// Number of descriptors made available, a counter that wraps around.
    next: u16,
    /// Number of descriptors published to the back end.
    published: u16,
    /// Number of descriptors taken back.
    taken: u16,
}

impl DriverRing {
    pub(super) fn new(memory: RingMemory, has_event_indexes: bool) -> Self {
        for index in 0..memory.entries() {
            memory.set_address(index);
        }
        // The copy is zero, as the new memory is.
        let available = vec![0; usize::from(memory.entries())].into_boxed_slice();
        let mut this = Self { memory, has_event_indexes, available, next: 0, published: 0, taken: 0 };
        this.disarm();
        this
    }

    /// Puts `head` into the available ring. The back end sees it after [`Self::publish`]. There are never more
    /// available descriptors than entries.
    #[inline]
    pub(super) fn make_available(&mut self, head: u16) {
        if let Some(available) = self.available.get_mut(usize::from(self.memory.slot_of(self.next)))
            && *available != head
        {
            *available = head;
            self.memory.set_available(self.next, head);
        }
        self.next = self.next.wrapping_add(1);
    }

    /// Publishes the available buffers to the back end. Returns whether it wants to be woken.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        if self.next == self.published {
            return false;
        }
        let before = std::mem::replace(&mut self.published, self.next);
        self.memory.publish(self.next);
        fence(Ordering::SeqCst);
        if self.has_event_indexes {
            passes_event(self.memory.avail_event(), self.next, before)
        } else {
            self.memory.used_flags() & USED_NO_NOTIFY == 0
        }
    }

    /// Number of descriptors that the back end has.
    #[inline]
    pub(super) fn out(&self) -> u16 {
        self.published.wrapping_sub(self.taken)
    }

    /// Number of descriptors that came back and were not taken yet.
    ///
    /// # Errors
    /// [`UsedRingFault::UsedIndex`] if it is above the number that the back end has.
    #[inline]
    pub(super) fn returned(&self) -> Result<u16, UsedRingFault> {
        let claimed = self.memory.used_index().wrapping_sub(self.taken);
        let has = self.out();
        if claimed > has { Err(UsedRingFault::UsedIndex { claimed, has }) } else { Ok(claimed) }
    }

    /// The returned entry that is `ahead` entries after the first one not taken.
    #[inline]
    pub(super) fn entry(&self, ahead: u16) -> (u32, u32) {
        self.memory.used_entry(self.taken.wrapping_add(ahead))
    }

    /// Takes the `entries` oldest returned entries.
    #[inline]
    pub(super) fn take(&mut self, entries: u16) {
        self.taken = self.taken.wrapping_add(entries);
    }

    /// Requests a wake-up when `more` further descriptors, at least one, have come back. The caller must then check for
    /// descriptors that came back before the request.
    pub(super) fn arm(&mut self, more: u16) {
        if self.has_event_indexes {
            self.memory.set_used_event(self.taken.wrapping_add(more.max(1) - 1));
        } else {
            self.memory.set_quiet(false);
        }
        fence(Ordering::SeqCst);
    }

    /// Requests no wake-ups. With event indexes the back end still wakes once in 65536 descriptors, when it passes the
    /// last requested index.
    pub(super) fn disarm(&mut self) {
        if self.has_event_indexes {
            self.memory.set_used_event(self.taken.wrapping_sub(1));
        } else {
            self.memory.set_quiet(true);
        }
    }
}
