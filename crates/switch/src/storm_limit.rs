//! A limit of frames that go to several ports: a token bucket, which all workers share.

use std::sync::atomic::{AtomicU64, Ordering};

const NS_PER_S: u64 = 1_000_000_000;
/// Longest burst: the frames of a tenth of a second may come at once.
const BURST_NS: u64 = NS_PER_S / 10;

/// A token bucket of a port.
#[derive(Debug)]
pub struct StormLimit {
    /// Time in which a token comes in, ns.
    interval_ns: u64,
    /// Time in which the bucket becomes full, ns: at least one token's.
    full_ns: u64,
    /// Time at which the bucket would have been empty, had tokens come in ever since. A bucket is full if that was
    /// [`Self::full_ns`] ago or before.
    empty_ns: AtomicU64,
}

impl StormLimit {
    /// A full bucket, for this many frames/s of [`STORM_LIMITS`](ringroad_port::port_settings::STORM_LIMITS).
    #[must_use]
    pub fn new(frames_per_s: u32) -> Self {
        let frames = u64::from(frames_per_s.max(1));
        let interval_ns = ((NS_PER_S + frames / 2) / frames).max(1);
        Self { interval_ns, full_ns: BURST_NS.max(interval_ns), empty_ns: AtomicU64::new(0) }
    }

    /// Takes a token. `now_ns` counts from before the bucket was made.
    pub fn take(&self, now_ns: u64) -> bool {
        // A clock that has just begun would find the bucket empty.
        let now_ns = now_ns + self.full_ns;
        let taken = self.empty_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |empty_ns| {
            let empty_ns = empty_ns.max(now_ns - self.full_ns) + self.interval_ns;
            (empty_ns <= now_ns).then_some(empty_ns)
        });
        taken.is_ok()
    }

    /// Whether there is a token. `now_ns` is as for [`StormLimit::take`].
    #[must_use]
    pub fn has_token(&self, now_ns: u64) -> bool {
        self.empty_ns.load(Ordering::Relaxed).max(now_ns) + self.interval_ns <= now_ns + self.full_ns
    }

    /// Gives tokens back that were not used.
    pub fn give_back(&self, tokens: usize) {
        self.empty_ns.fetch_sub(tokens as u64 * self.interval_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(limit: &StormLimit, now_ns: u64) -> usize {
        (0..1_000_000).take_while(|_| limit.take(now_ns)).count()
    }

    #[test]
    fn a_tenth_of_a_second_comes_at_once_and_the_rest_at_the_rate() {
        let limit = StormLimit::new(1000);
        assert!(limit.has_token(0));
        assert_eq!(taken(&limit, 0), 100);
        assert!(!limit.has_token(999_999) && limit.has_token(1_000_000));
        assert_eq!(taken(&limit, 999_999), 0);
        assert_eq!(taken(&limit, 1_000_000), 1);
        assert_eq!(taken(&limit, 21_000_000), 20);
        assert_eq!(taken(&limit, 3600 * NS_PER_S), 100, "no more than the bucket holds");
        limit.give_back(30);
        assert_eq!(taken(&limit, 3600 * NS_PER_S), 30);
    }

    #[test]
    fn a_slow_limit_lets_single_frames_through() {
        let limit = StormLimit::new(1);
        assert_eq!(taken(&limit, 0), 1);
        assert_eq!(taken(&limit, NS_PER_S - 1), 0);
        assert_eq!(taken(&limit, NS_PER_S), 1);
    }

    proptest! {
        #[test]
        fn over_any_time_no_more_than_rate_and_bucket_allow_pass(
            rate in 1u32..=10_000_000,
            steps in prop::collection::vec(0u64..50_000_000, 1..40),
        ) {
            let limit = StormLimit::new(rate);
            let (mut now, mut passed) = (0, 0);
            for step in steps {
                now += step;
                passed += (0..200).take_while(|_| limit.take(now)).count() as u64;
            }
            let most = (now + limit.full_ns) / limit.interval_ns;
            prop_assert!(passed <= most, "{passed} of {most}");
        }
    }
}
