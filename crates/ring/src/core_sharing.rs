//! Threads that stay awake while they wait for frames, on a machine with fewer cores than such threads.
//!
//! The kernel lets a thread that spins keep its core for a whole slice, some milliseconds, in which the rings of the
//! threads that wait for the core run full. So each such thread offers its core to others from time to time. If no
//! thread waits, an offer costs a system call of some 0.2 µs. A thread of the same kind offers the core back soon, and
//! the kernel gives it back from one that computes as well: a thread that ceased to offer for a while kept the others
//! waiting just as long.

/// How long a thread works between two offers, ns.
const INTERVAL_NS: u64 = 50_000;

/// When a thread offers its core to others. Times are ns of one monotonic clock of the caller's.
#[derive(Debug, Default)]
pub struct CoreSharing {
    /// When the next offer is due while there is work.
    next_ns: u64,
}

impl CoreSharing {
    /// Offers the core where that was not done for 50 µs: between two turns of work. `now_ns` reads the clock.
    #[inline]
    pub fn between_turns(&mut self, now_ns: impl FnMut() -> u64) {
        self.offer(self.next_ns, now_ns);
    }

    /// Offers the core: in a turn that found nothing to do. `now_ns` reads the clock.
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

    /// How many of these times, ns, an offer reads the clock twice: before the core is offered, and after.
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
