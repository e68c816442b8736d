//! Sharing of cores by threads that stay awake while they wait for frames, if the machine has fewer cores than such
//! threads.
//!
//! The kernel lets a spinning thread keep its core for a whole time slice of some milliseconds. Meanwhile the rings of
//! the threads that wait for the core run full. So each such thread offers its core to others from time to time. If no
//! thread waits, an offer costs a system call of some 0.2 µs. Another thread of this kind soon offers the core back.
//! The kernel also takes the core back from a thread that only computes. A thread that stops its offers for a while
//! keeps the other threads waiting for the same time.

/// Time that a thread works between two offers, ns.
const INTERVAL_NS: u64 = 50_000;

/// Schedule of the offers of one thread's core to other threads. Times are ns of one monotonic clock of the caller.
#[derive(Debug, Default)]
pub struct CoreSharing {
    /// Time of the next offer while there is work, ns.
    next_ns: u64,
}

impl CoreSharing {
    /// Offers the core between two turns of work, if the last offer is at least 50 µs ago. `now_ns` reads the clock.
    #[inline]
    pub fn between_turns(&mut self, now_ns: impl FnMut() -> u64) {
        self.offer(self.next_ns, now_ns);
    }

    /// Offers the core in a turn that found no work. `now_ns` reads the clock.
    #[inline]
    pub fn while_idle(&mut self, now_ns: impl FnMut() -> u64) {
        self.offer(0, now_ns);
    }

    #[inline]
    fn offer(&mut self, not_before_ns: u64, mut now_ns: impl FnMut() -> u64) {
        if now_ns() < not_before_ns {
            return;
        }
        rustix::thread::sched_yield();
        self.next_ns = now_ns() + INTERVAL_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of the given times, ns, at which the clock is read twice: an offer reads it before and after.
    fn offers(sharing: &mut CoreSharing, idle: bool, times: impl Iterator<Item = u64>) -> usize {
        let mut offers = 0;
        for now_ns in times {
            let mut readings = 0;
            let clock = || {
                readings += 1;
                now_ns
            };
            if idle {
                sharing.while_idle(clock)
            } else {
                sharing.between_turns(clock)
            }
            offers += readings - 1;
        }
        offers
    }

    #[test]
    fn the_core_is_offered_every_50_us_of_work_and_in_each_idle_turn() {
        let turns = || (1..=100).map(|turn| turn * 10_000);
        assert_eq!(offers(&mut CoreSharing::default(), false, turns()), 20);
        assert_eq!(offers(&mut CoreSharing::default(), true, turns()), 100);
    }
}
