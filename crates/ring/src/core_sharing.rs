//! Threads that stay awake while they wait for frames, on a machine with fewer cores than such threads.
//!
//! The kernel lets a thread that spins keep its core for a whole slice, some milliseconds, in which the rings of the
//! threads that wait for the core run full. So each such thread offers its core to others every now and then. Where
//! nobody waits, an offer costs a system call of some 0.2 µs. A thread of the same kind offers the core back soon. One
//! that computes keeps it for a slice of its own, and a thread that went on offering would get next to nothing. So
//! after such an offer there is none for a while.

/// How long a thread works, or waits awake, between two offers, ns.
const INTERVAL_NS: u64 = 50_000;
/// A core that does not come back for so long is not shared in turns, ns.
const LONGEST_TURN_NS: u64 = 500_000;
/// How many times as long as the core was away there is no offer after that.
const RETREAT: u64 = 8;

/// When a thread offers its core to others. Times are ns of one monotonic clock of the caller's.
#[derive(Debug, Default)]
pub struct CoreSharing {
    /// When the next offer is due while there is work.
    next_ns: u64,
    /// Until when there is none at all.
    retreat_until_ns: u64,
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
        self.offer(self.retreat_until_ns, now_ns);
    }

    #[inline]
    fn offer(&mut self, not_before_ns: u64, mut now_ns: impl FnMut() -> u64) {
        let offered_ns = now_ns();
        if offered_ns < not_before_ns {
            return;
        }
        rustix::thread::sched_yield();
        self.note(offered_ns, now_ns());
    }

    fn note(&mut self, offered_ns: u64, back_ns: u64) {
        let away_ns = back_ns.saturating_sub(offered_ns);
        self.next_ns = back_ns + INTERVAL_NS;
        if away_ns > LONGEST_TURN_NS {
            self.retreat_until_ns = back_ns.saturating_add(away_ns.saturating_mul(RETREAT));
            self.next_ns = self.retreat_until_ns;
        }
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

    #[test]
    fn a_core_that_stayed_away_for_a_slice_is_not_offered_for_8_times_as_long() {
        let mut sharing = CoreSharing::default();
        sharing.note(0, 3_000_000);
        for idle in [false, true] {
            assert_eq!(offers(&mut sharing, idle, (3_000_000..27_000_000).step_by(100_000)), 0);
        }
        assert_eq!(offers(&mut sharing, true, 27_000_000..27_000_001), 1);
    }

    #[test]
    fn a_short_time_away_changes_nothing() {
        let mut sharing = CoreSharing::default();
        sharing.note(0, 400_000);
        assert_eq!(offers(&mut sharing, true, 400_000..400_001), 1);
    }
}
