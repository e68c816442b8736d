//! Which buffers the tx ring holds, and whose they are.

/// The buffers of one queue's tx side. A buffer on the tx ring is either our own, which becomes free when the kernel
/// has sent it, or lent, which goes back to its source.
///
/// Completions may come in another order than frames were sent in, and a hostile program may lend a buffer twice or
/// one that is ours: nothing here trusts the numbers, and the counts stay right.
#[derive(Debug)]
pub(super) struct TxBufferTable {
    /// Own buffers that are not in flight; the one that came last goes first, since the cache still holds it.
    free: Vec<u32>,
    /// Own buffers at most: what `free` has room for.
    own: usize,
    /// For each buffer of the region, how many times it is in flight as our own.
    sent: Vec<u16>,
    /// Addresses of lent buffers by their number modulo the size, a power of two: from `returned` up to `lent_ever`
    /// they are in flight.
    lent: Vec<u64>,
    /// A buffer's number is its address shifted right by this many bits.
    chunk_shift: u32,
    lent_ever: u64,
    returned: u64,
    /// For each buffer of the region, how many times it is completed before others that were lent earlier.
    completed: Vec<u16>,
    /// The sum of `completed`.
    early: u64,
}

impl TxBufferTable {
    /// A ledger with these own buffers, in a region of `buffers` buffers of 2 to the power of `chunk_shift` bytes, and
    /// with at most `in_flight` on the rings.
    pub(super) fn new(own: Vec<u32>, buffers: u32, chunk_shift: u32, in_flight: u32) -> Self {
        Self {
            own: own.len(),
            free: own,
            sent: vec![0; buffers as usize],
            lent: vec![0; in_flight.next_power_of_two() as usize],
            chunk_shift,
            lent_ever: 0,
            returned: 0,
            completed: vec![0; buffers as usize],
            early: 0,
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
        self.free.len().checked_sub(1 + ahead).and_then(|index| self.free.get(index)).copied()
    }

    /// Takes a free own buffer, for a copy that is sent.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        let own = self.free.pop()?;
        self.note_sent(own);
        Some(own)
    }

    /// Takes a free own buffer in exchange for `given`, which becomes ours and is sent.
    #[inline]
    pub(super) fn exchange(&mut self, given: u32) -> Option<u32> {
        let own = self.free.pop()?;
        self.note_sent(given);
        Some(own)
    }

    #[inline]
    fn note_sent(&mut self, buffer: u32) {
        if let Some(count) = self.sent.get_mut(buffer as usize) {
            *count += 1;
        }
    }

    /// How many more buffers can be lent.
    #[inline]
    pub(super) fn lendable(&self) -> usize {
        self.lent.len() - (self.lent_ever - self.returned) as usize
    }

    /// Places for the addresses of what is lent next, up to the ring's end; the caller has checked
    /// [`TxBufferTable::lendable`]. [`TxBufferTable::advance`] puts what was written to the first of them on the ring.
    #[inline]
    pub(super) fn run_mut(&mut self) -> &mut [u64] {
        let first = self.index(self.lent_ever);
        self.lent.get_mut(first..).unwrap_or(&mut [])
    }

    /// Puts the buffers at the next `count` addresses on the ring; their source keeps them.
    #[inline]
    pub(super) fn advance(&mut self, count: usize) {
        self.lent_ever += count as u64;
    }

    /// Puts the buffer at `address` on the ring; its source keeps it. The caller has checked
    /// [`TxBufferTable::lendable`].
    pub(super) fn lend(&mut self, address: u64) {
        if let Some(slot) = self.run_mut().first_mut() {
            *slot = address;
            self.advance(1);
        }
    }

    /// Where `lent` holds a buffer.
    #[inline]
    fn index(&self, number: u64) -> usize {
        number as usize & (self.lent.len() - 1)
    }

    /// The buffer in flight that was lent first.
    #[inline]
    fn first_lent(&self) -> Option<u32> {
        let first = self.lent.get(self.index(self.returned)).filter(|_| self.returned != self.lent_ever);
        first.map(|address| (address >> self.chunk_shift) as u32)
    }

    /// Whether `buffer`, one that is in flight, is a lent one.
    pub(super) fn is_lent(&self, buffer: u32) -> bool {
        self.sent.get(buffer as usize).is_some_and(|&count| count == 0)
    }

    /// The kernel is done with what lies at `addresses`, as far as it is what was lent first of what is in flight, in
    /// order. Returns the number.
    #[inline]
    pub(super) fn complete_in_order(&mut self, addresses: &[u64]) -> usize {
        let first = self.index(self.returned);
        let end = self.lent.len().min(first + (self.lent_ever - self.returned) as usize);
        let oldest = self.lent.get(first..end).unwrap_or(&[]);
        let most = oldest.len().min(addresses.len());
        // A run is nearly always one that was lent as it is.
        let count = match oldest.get(..most) == addresses.get(..most) {
            true => most,
            false => oldest.iter().zip(addresses).take_while(|(lent, address)| lent == address).count(),
        };
        self.returned += count as u64;
        if self.early != 0 {
            self.settle();
        }
        count
    }

    /// The kernel is done with `buffer`, or will not need it.
    #[inline]
    pub(super) fn complete(&mut self, buffer: u32) {
        if self.first_lent() != Some(buffer) {
            return self.complete_other(buffer);
        }
        self.returned += 1;
        if self.early != 0 {
            self.settle();
        }
    }

    /// Completes one of our own, or a lent one out of order.
    fn complete_other(&mut self, buffer: u32) {
        let index = buffer as usize;
        let (Some(sent), Some(completed)) = (self.sent.get_mut(index), self.completed.get_mut(index)) else {
            return;
        };
        if *sent > 0 {
            *sent -= 1;
            if self.free.len() < self.own {
                self.free.push(buffer);
            }
        } else if self.early < self.lent_ever - self.returned {
            *completed += 1;
            self.early += 1;
        }
    }

    /// Passes what was completed before its turn.
    #[cold]
    fn settle(&mut self) {
        while let Some(buffer) = self.first_lent()
            && let Some(completed) = self.completed.get_mut(buffer as usize)
            && *completed > 0
        {
            *completed -= 1;
            self.early -= 1;
            self.returned += 1;
        }
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
        self.returned = self.lent_ever;
        self.completed.fill(0);
        self.early = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_buffers_return_in_order_for_any_order_of_completion() {
        let mut ledger = TxBufferTable::new(vec![2, 3], 10, 0, 8);
        [5, 6, 7].into_iter().for_each(|buffer| ledger.lend(buffer));
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
        let mut ledger = TxBufferTable::new(vec![2, 3], 10, 0, 8);
        assert_eq!(ledger.peek(0), Some(3));
        assert_eq!((ledger.take(), ledger.take(), ledger.take()), (Some(3), Some(2), None));
        ledger.complete(2);
        assert_eq!(ledger.take(), Some(2));
    }

    #[test]
    fn a_buffer_lent_twice_is_counted_twice() {
        let mut ledger = TxBufferTable::new(vec![2], 10, 0, 8);
        [5, 5, 6, 5].into_iter().for_each(|buffer| ledger.lend(buffer));
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
        let mut ledger = TxBufferTable::new(vec![2], 10, 0, 8);
        assert_eq!(ledger.take(), Some(2));
        ledger.lend(2);
        ledger.complete(2);
        ledger.complete(2);
        assert_eq!((ledger.returned(), ledger.free()), (1, 1));
        ledger.complete(2);
        assert_eq!(ledger.free(), 1, "no more than there ever were");
        ledger.complete(99);
        assert_eq!((ledger.lent(), ledger.returned()), (1, 1));
    }

    #[test]
    fn a_buffer_given_in_exchange_becomes_free_and_one_lent_meanwhile_returns() {
        let mut ledger = TxBufferTable::new(vec![2], 10, 0, 8);
        ledger.lend(6);
        assert_eq!((ledger.exchange(5), ledger.exchange(7)), (Some(2), None));
        assert!(!ledger.is_lent(5) && ledger.is_lent(6));
        ledger.complete(5);
        assert_eq!((ledger.free(), ledger.returned()), (1, 0));
        ledger.complete(6);
        assert_eq!((ledger.take(), ledger.returned()), (Some(5), 1));
    }

    #[test]
    fn no_more_is_lent_than_can_be_in_flight() {
        let mut ledger = TxBufferTable::new(vec![], 10, 0, 8);
        for round in 0..5 {
            [5; 8].into_iter().for_each(|buffer| ledger.lend(buffer));
            assert_eq!(ledger.lendable(), 0);
            (0..8).for_each(|_| ledger.complete(5));
            assert_eq!((ledger.lendable(), ledger.returned()), (8, 8 * (round + 1)));
        }
        ledger.lend(4);
        ledger.abandon();
        assert_eq!((ledger.lendable(), ledger.returned()), (8, 41));
    }
}
