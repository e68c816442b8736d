//! Buffers on the tx ring, and their owners.

/// The buffers of one queue's tx side. A buffer on the tx ring is either own or lent. An own buffer becomes free when
/// the kernel has sent it. A lent one goes back to its source.
///
/// Completions may come in another order than the frames were sent. A hostile program may lend a buffer twice, or lend
/// an own buffer of the queue. So buffer numbers are not trusted, and the counts stay right.
#[derive(Debug)]
pub(super) struct TxBufferTable {
    /// Own buffers that are not in flight. The last one to come back is used first, because the cache still holds it.
    free: Vec<u32>,
    /// Maximum number of free own buffers, which is the capacity of `free`.
    own: usize,
    /// For each buffer of the region, how many times it is in flight as an own buffer.
    sent: Vec<u16>,
    /// Addresses of lent buffers. The buffer lent as number `n` is at `n` modulo the size, a power of two. Numbers from
    /// `returned` up to `lent_ever` are in flight.
    lent: Vec<u64>,
    /// A buffer's number is its address shifted right by this many bits.
    chunk_shift: u32,
    /// Number of buffers ever lent.
    pub(super) lent_ever: u64,
    /// Number of lent buffers that came back, counted in the order in which they were lent.
    pub(super) returned: u64,
    /// For each buffer of the region, how many times it was completed before others that were lent earlier.
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

    /// The free buffer that is `ahead` buffers after the next one, for a prefetch.
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

    /// Takes a free own buffer in exchange for `given`, which becomes an own buffer and is sent.
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

    /// Number of buffers that can still be lent.
    #[inline]
    pub(super) fn lendable(&self) -> usize {
        self.lent.len() - (self.lent_ever - self.returned) as usize
    }

    /// Entries for the addresses of the next lent buffers, up to the end of the list. The caller has checked
    /// [`TxBufferTable::lendable`]. [`TxBufferTable::advance`] counts the first of them as lent.
    #[inline]
    pub(super) fn run_mut(&mut self) -> &mut [u64] {
        let first = self.index(self.lent_ever);
        self.lent.get_mut(first..).unwrap_or(&mut [])
    }

    /// Counts the buffers at the next `count` addresses as lent; their source still owns them.
    #[inline]
    pub(super) fn advance(&mut self, count: usize) {
        self.lent_ever += count as u64;
    }

    /// Counts the buffer at `address` as lent; its source still owns it. The caller has checked
    /// [`TxBufferTable::lendable`].
    pub(super) fn lend(&mut self, address: u64) {
        if let Some(slot) = self.run_mut().first_mut() {
            *slot = address;
            self.advance(1);
        }
    }

    /// Index in `lent` of the buffer lent as number `number`.
    #[inline]
    fn index(&self, number: u64) -> usize {
        number as usize & (self.lent.len() - 1)
    }

    /// The oldest lent buffer in flight.
    #[inline]
    fn first_lent(&self) -> Option<u32> {
        let first = self.lent.get(self.index(self.returned)).filter(|_| self.returned != self.lent_ever);
        first.map(|address| (address >> self.chunk_shift) as u32)
    }

    /// Whether `buffer`, which is in flight, is lent.
    pub(super) fn is_lent(&self, buffer: u32) -> bool {
        self.sent.get(buffer as usize).is_some_and(|&count| count == 0)
    }

    /// Completes the buffers at `addresses`, as far as they are the oldest lent buffers, in order. Returns their
    /// number.
    #[inline]
    pub(super) fn complete_in_order(&mut self, addresses: &[u64]) -> usize {
        let first = self.index(self.returned);
        let end = self.lent.len().min(first + (self.lent_ever - self.returned) as usize);
        let oldest = self.lent.get(first..end).unwrap_or(&[]);
        let most = oldest.len().min(addresses.len());
        // A run of completions nearly always equals a run of lent buffers, so one comparison is enough.
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

    /// Completes `buffer`: the kernel has sent it, or will not need it.
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

    /// Completes an own buffer, or a lent one out of order.
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

    /// Counts buffers as returned that were completed out of order.
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

    /// Counts all lent buffers as returned: the ring is gone, so the kernel reads none of them any more.
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
        assert_eq!(ledger.lent_ever, 3);
        ledger.complete(7);
        ledger.complete(6);
        assert_eq!(ledger.returned, 0);
        ledger.complete(5);
        assert_eq!(ledger.returned, 3);
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
        assert_eq!(ledger.returned, 1);
        ledger.complete(6);
        ledger.complete(5);
        assert_eq!(ledger.returned, 3);
        ledger.complete(5);
        assert_eq!(ledger.returned, 4);
    }

    #[test]
    fn lending_a_buffer_that_is_ours_keeps_the_counts() {
        let mut ledger = TxBufferTable::new(vec![2], 10, 0, 8);
        assert_eq!(ledger.take(), Some(2));
        ledger.lend(2);
        ledger.complete(2);
        ledger.complete(2);
        assert_eq!((ledger.returned, ledger.free()), (1, 1));
        ledger.complete(2);
        assert_eq!(ledger.free(), 1, "no more than there ever were");
        ledger.complete(99);
        assert_eq!((ledger.lent_ever, ledger.returned), (1, 1));
    }

    #[test]
    fn a_buffer_given_in_exchange_becomes_free_and_one_lent_meanwhile_returns() {
        let mut ledger = TxBufferTable::new(vec![2], 10, 0, 8);
        ledger.lend(6);
        assert_eq!((ledger.exchange(5), ledger.exchange(7)), (Some(2), None));
        assert!(!ledger.is_lent(5) && ledger.is_lent(6));
        ledger.complete(5);
        assert_eq!((ledger.free(), ledger.returned), (1, 0));
        ledger.complete(6);
        assert_eq!((ledger.take(), ledger.returned), (Some(5), 1));
    }

    #[test]
    fn no_more_is_lent_than_can_be_in_flight() {
        let mut ledger = TxBufferTable::new(vec![], 10, 0, 8);
        for round in 0..5 {
            [5; 8].into_iter().for_each(|buffer| ledger.lend(buffer));
            assert_eq!(ledger.lendable(), 0);
            (0..8).for_each(|_| ledger.complete(5));
            assert_eq!((ledger.lendable(), ledger.returned), (8, 8 * (round + 1)));
        }
        ledger.lend(4);
        ledger.abandon();
        assert_eq!((ledger.lendable(), ledger.returned), (8, 41));
    }
}
