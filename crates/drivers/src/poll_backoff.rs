//! A pause between reads of memory that the kernel writes.
//!
//! A read of a cache line takes it away from the processor that writes it. So a datapath that polls all the time
//! without a result slows down the senders whose frames it waits for.

use ringroad_port::clock::Clock;

/// Checks without a result, and when the next may follow.
#[derive(Debug)]
pub(crate) struct PollBackoff {
    clock: Clock,
    pause_ns: u64,
    /// When the pause ends; 0 where there is none.
    until_ns: u64,
    /// The time at which the last pause was seen to be over; 0 where that is long ago.
    now_ns: u64,
}

impl PollBackoff {
    /// Pauses of `pause_ns` nanoseconds.
    pub(crate) fn new(pause_ns: u64) -> Self {
        Self { clock: Clock::system(), pause_ns, until_ns: 0, now_ns: 0 }
    }

    /// Whether it is too early for the next look.
    #[inline]
    pub(crate) fn lasts(&mut self) -> bool {
        if self.until_ns == 0 {
            self.now_ns = 0;
            return false;
        }
        self.now_ns = self.clock.now_ns();
        if self.now_ns < self.until_ns {
            return true;
        }
        self.until_ns = 0;
        false
    }

    /// A check had no result, right after [`Self::lasts`].
    #[inline]
    pub(crate) fn begin(&mut self) {
        // One reading of the clock does for both.
        let now_ns = match std::mem::take(&mut self.now_ns) {
            0 => self.clock.now_ns(),
            read => read,
        };
        self.until_ns = now_ns + self.pause_ns;
    }

    /// The next look may follow at once.
    #[inline]
    pub(crate) fn end(&mut self) {
        (self.until_ns, self.now_ns) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_follows_a_check_without_a_result_until_it_expires_or_is_ended() {
        let clock = Clock::manual();
        let mut pause = PollBackoff { clock: clock.clone(), ..PollBackoff::new(100) };
        assert!(!pause.lasts());
        pause.begin();
        clock.advance(99);
        assert!(pause.lasts());
        clock.advance(1);
        assert!(!pause.lasts());
        pause.begin();
        pause.end();
        assert!(!pause.lasts());
    }
}
