//! Which buffers the tx ring holds, and whose they are.

use std::collections::VecDeque;

/// The buffers of one queue's tx side. A buffer on the tx ring is either our own, which becomes free when the kernel has sent
/// it, or lent, which goes back to its source.
///
/// Completions may come in another order than frames were sent in, and a hostile program may lend a buffer twice or
/// one that is ours: nothing here trusts the numbers, and the counts stay right.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Own buffers that are not in flight.
    free: Vec<u32>,
    /// Own buffers at most: what `free` has room for.
    own: usize,
    /// Lent buffers in flight, oldest first; those at the front are not completed.
    lent: VecDeque<u32>,
    /// For each buffer of the region, how many times it is in `lent`.
    outstanding: Vec<u16>,
    /// For each buffer of the region, how many of those are completed.
    completed: Vec<u16>,
    lent_ever: u64,
    returned: u64,
}

impl Ledger {
    /// A ledger with these own buffers, in a region of `buffers` buffers and with at most `in_flight` on the ring.
    pub(super) fn new(own: Vec<u32>, buffers: u32, in_flight: u32) -> Self {
        Self {
            own: own.len(),
            free: own,
            lent: VecDeque::with_capacity(in_flight as usize),
            outstanding: vec![0; buffers as usize],
            completed: vec![0; buffers as usize],
            lent_ever: 0,
            returned: 0,
        }
    }

    /// Number of free own buffers.
    #[inline]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// The free buffer `ahead` places after the one that comes next, to prefetch it.
    #[inline]
    pub(super) fn peek(&self, ahead: usize) -> Option<u32> {
        self.free.len().checked_sub(1 + ahead).and_then(|place| self.free.get(place)).copied()
    }

    /// Takes a free own buffer, for a copy or in exchange for one that becomes ours.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// A free own buffer that is not used after all.
    #[inline]
    pub(super) fn put_back(&mut self, buffer: u32) {
        if self.free.len() < self.own {
            self.free.push(buffer);
        }
    }

    /// `buffer`, one of the region, goes on the ring and stays its source's.
    #[inline]
    pub(super) fn lend(&mut self, buffer: u32) {
        if let Some(count) = self.outstanding.get_mut(buffer as usize) {
            *count += 1;
            self.lent.push_back(buffer);
            self.lent_ever += 1;
        }
    }

    /// Whether `buffer` is on the ring as a lent one.
    pub(super) fn is_lent(&self, buffer: u32) -> bool {
        self.outstanding.get(buffer as usize).is_some_and(|&count| count > 0)
    }

    /// The kernel is done with `buffer`, or will not need it.
    #[inline]
    pub(super) fn complete(&mut self, buffer: u32) {
        let index = buffer as usize;
        match self.outstanding.get_mut(index) {
            Some(0) => self.put_back(buffer),
            Some(count) if self.lent.front() == Some(&buffer) => {
                *count -= 1;
                self.pop_front();
                self.settle();
            }
            Some(count) => {
                *count -= 1;
                if let Some(done) = self.completed.get_mut(index) {
                    *done += 1;
                }
            }
            None => {}
        }
    }

    /// Takes completed buffers off the front.
    #[inline]
    fn settle(&mut self) {
        while let Some(&buffer) = self.lent.front()
            && let Some(done) = self.completed.get_mut(buffer as usize)
            && *done > 0
        {
            *done -= 1;
            self.pop_front();
        }
    }

    #[inline]
    fn pop_front(&mut self) {
        self.lent.pop_front();
        self.returned += 1;
    }

    /// Buffers ever lent.
    #[inline]
    pub(super) fn lent(&self) -> u64 {
        self.lent_ever
    }

    /// How many of those, in order, are done with.
    #[inline]
    pub(super) fn returned(&self) -> u64 {
        self.returned
    }

    /// The ring is gone with all that was on it: nothing lent is read any more.
    pub(super) fn abandon(&mut self) {
        self.lent.clear();
        self.returned = self.lent_ever;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_buffers_return_in_order_whatever_the_order_of_completion() {
        let mut ledger = Ledger::new(vec![2, 3], 10, 8);
        for buffer in [5, 6, 7] {
            ledger.lend(buffer);
        }
        assert_eq!(ledger.lent(), 3);
        ledger.complete(7);
        ledger.complete(6);
        assert_eq!(ledger.returned(), 0);
        ledger.complete(5);
        assert_eq!(ledger.returned(), 3);
        assert_eq!(ledger.free(), 2);
    }

    #[test]
    fn own_buffers_become_free_again() {
        let mut ledger = Ledger::new(vec![2, 3], 10, 8);
        assert_eq!(ledger.peek(0), Some(3));
        assert_eq!((ledger.take(), ledger.take(), ledger.take()), (Some(3), Some(2), None));
        ledger.complete(2);
        assert_eq!(ledger.take(), Some(2));
    }

    #[test]
    fn a_buffer_lent_twice_is_counted_twice() {
        let mut ledger = Ledger::new(vec![2], 10, 8);
        for buffer in [5, 5, 6, 5] {
            ledger.lend(buffer);
        }
        ledger.complete(5);
        assert_eq!(ledger.returned(), 1);
        ledger.complete(6);
        ledger.complete(5);
        assert_eq!(ledger.returned(), 3);
        ledger.complete(5);
        assert_eq!(ledger.returned(), 4);
    }

    #[test]
    fn lending_a_buffer_that_is_ours_keeps_the_counts() {
        let mut ledger = Ledger::new(vec![2], 10, 8);
        assert_eq!(ledger.take(), Some(2));
        ledger.lend(2);
        ledger.complete(2);
        ledger.complete(2);
        assert_eq!((ledger.returned(), ledger.free()), (1, 1));
        ledger.complete(2);
        assert_eq!(ledger.free(), 1, "no more than there ever were");
        ledger.complete(99);
        ledger.lend(99);
        assert_eq!(ledger.lent(), 1);
    }
}
