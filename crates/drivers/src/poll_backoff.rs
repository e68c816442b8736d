//! A pause between reads of memory that the kernel writes.
//!
//! A read of a cache line takes the line away from the processor that writes it. So a datapath that polls an empty ring
//! without pauses slows down the senders whose frames it waits for.

use ringroad_port::clock::Clock;

/// Pause after checks without a result.
#[derive(Debug)]
pub(crate) struct PollBackoff {
    clock: Clock,
    pause_ns: u64,
    /// End of the pause, ns; 0 without a pause.
    until_ns: u64,
    /// Time at which the last pause was found to be over, ns; 0 if that is no longer recent.
    now_ns: u64,
}

impl PollBackoff {
    /// Creates pauses of `pause_ns` nanoseconds.
    pub(crate) fn new(pause_ns: u64) -> Self {
        Self { clock: Clock::system(), pause_ns, until_ns: 0, now_ns: 0 }
    }

    /// Whether it is too early for the next check.
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

    /// Begins a pause after a check without a result, right after [`Self::lasts`].
    #[inline]
    pub(crate) fn begin(&mut self) {
        // The clock's reading of [`Self::lasts`] is used again.
        let now_ns = match std::mem::take(&mut self.now_ns) {
            0 => self.clock.now_ns(),
            read => read,
        };
        self.until_ns = now_ns + self.pause_ns;
    }

    /// Ends the pause, so that the next check may follow at once.
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
