//! A token bucket that all workers share: limits of a port's floods, and the bands of meters.

use std::sync::atomic::{AtomicU64, Ordering};

const NS_PER_S: u64 = 1_000_000_000;
/// Value of [`TokenBucket::token_ns`] for a bucket that gets no tokens.
const NEVER: u64 = u64::MAX;
/// Maximum number of attempts to change a bucket that other workers change, too. After them the frame passes: no worker
/// waits for other workers.
const ATTEMPTS: u32 = 8;

/// A token bucket, by the virtual scheduling of ITU-T I.371: its whole state is one word.
///
/// All times are ns of one clock, which may begin at zero.
#[derive(Debug)]
pub struct TokenBucket {
    /// Time between two new tokens, ns in 32.32 fixed point, or [`NEVER`].
    token_ns: u64,
    /// Time in which an empty bucket becomes full, ns.
    full_ns: u64,
    /// Time at which the bucket will be full, ns.
    full_at_ns: AtomicU64,
}

impl TokenBucket {
    /// A full bucket, which gets `tokens_per_s` and holds `burst` tokens. `None`: it holds the tokens of a tenth of a
    /// second.
    #[must_use]
    pub fn new(tokens_per_s: u64, burst: Option<u64>) -> Self {
        let token_ns = (NS_PER_S << 32).checked_div(tokens_per_s).unwrap_or(NEVER);
        let time_of = |tokens| (u128::from(tokens) * u128::from(token_ns)) >> 32;
        // The limit of a quarter leaves room for the addition of times.
        let full_ns =
            burst.map_or(NS_PER_S / 10, |tokens: u64| time_of(tokens).min(u128::from(u64::MAX / 4)) as u64);
        Self { token_ns, full_ns, full_at_ns: AtomicU64::new(0) }
    }

    /// Time at which the bucket will be full if `tokens` are taken; `None` if it has fewer. A full bucket grants any
    /// number once: a frame larger than the burst passes, too.
    #[inline]
    fn full_after(&self, full_at_ns: u64, tokens: u64, now_ns: u64) -> Option<u64> {
        let needed_ns = self.time_of(tokens);
        let then_ns = full_at_ns.max(now_ns).saturating_add(needed_ns);
        (self.token_ns != NEVER && then_ns - now_ns <= self.full_ns.max(needed_ns)).then_some(then_ns)
    }

    #[inline]
    fn time_of(&self, tokens: u64) -> u64 {
        ((u128::from(tokens) * u128::from(self.token_ns)) >> 32) as u64
    }

    /// Takes `tokens`; returns false, and takes none, if the bucket has fewer.
    #[inline]
    pub fn take(&self, tokens: u64, now_ns: u64) -> bool {
        let mut full_at_ns = self.full_at_ns.load(Ordering::Relaxed);
        for _ in 0..ATTEMPTS {
            let Some(then_ns) = self.full_after(full_at_ns, tokens, now_ns) else { return false };
            let (set, load) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.full_at_ns.compare_exchange_weak(full_at_ns, then_ns, set, load) {
                Ok(_) => return true,
                Err(other) => full_at_ns = other,
            }
        }
        true
    }

    /// Whether [`TokenBucket::take`] would return true. Takes nothing.
    #[inline]
    #[must_use]
    pub fn has(&self, tokens: u64, now_ns: u64) -> bool {
        self.full_after(self.full_at_ns.load(Ordering::Relaxed), tokens, now_ns).is_some()
    }

    /// Gives back tokens that were taken one by one and not used.
    pub fn give_back(&self, tokens: u64) {
        let time_ns = tokens.saturating_mul(self.time_of(1));
        // A frame that passed after the last attempt took no token: the time must not fall below zero.
        let _ = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at_ns| {
            Some(full_at_ns.saturating_sub(time_ns))
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(bucket: &TokenBucket, now_ns: u64) -> usize {
        (0..1_000_000).take_while(|_| bucket.take(1, now_ns)).count()
    }

    #[test]
    fn a_tenth_of_a_second_comes_at_once_and_the_rest_at_the_rate() {
        let bucket = TokenBucket::new(1000, None);
        assert!(bucket.has(1, 0));
        assert_eq!(taken(&bucket, 0), 100);
        assert!(!bucket.has(1, 999_999) && bucket.has(1, 1_000_000));
        assert_eq!(taken(&bucket, 999_999), 0);
        assert_eq!(taken(&bucket, 1_000_000), 1);
        assert_eq!(taken(&bucket, 21_000_000), 20);
        assert_eq!(taken(&bucket, 3600 * NS_PER_S), 100, "no more than the bucket holds");
        bucket.give_back(30);
        assert_eq!(taken(&bucket, 3600 * NS_PER_S), 30);
    }

    #[test]
    fn a_slow_bucket_lets_single_frames_through() {
        let bucket = TokenBucket::new(1, None);
        assert_eq!(taken(&bucket, 0), 1);
        assert_eq!(taken(&bucket, NS_PER_S - 1), 0);
        assert_eq!(taken(&bucket, NS_PER_S), 1);
    }

    #[test]
    fn a_bucket_without_a_rate_lets_nothing_through() {
        let bucket = TokenBucket::new(0, Some(100));
        assert!(!bucket.has(1, NS_PER_S) && !bucket.take(1, NS_PER_S));
    }

    #[test]
    fn more_tokens_than_the_burst_pass_once_where_the_bucket_is_full() {
        let bucket = TokenBucket::new(1000, Some(8));
        assert!(bucket.take(20, 0));
        assert!(!bucket.take(1, 12_000_000) && bucket.take(1, 13_000_000));
    }

    #[test]
    fn more_tokens_come_back_than_were_taken_and_the_bucket_is_full() {
        let bucket = TokenBucket::new(1000, Some(8));
        assert!(bucket.take(1, 0));
        bucket.give_back(u64::MAX);
        assert_eq!(taken(&bucket, 0), 8);
    }

    proptest! {
        #[test]
        fn over_any_time_no_more_than_rate_and_burst_allow_pass(
            rate in 1u64..=10_000_000,
            steps in prop::collection::vec(0u64..50_000_000, 1..40),
        ) {
            let bucket = TokenBucket::new(rate, None);
            let (mut now, mut passed) = (0, 0);
            for step in steps {
                now += step;
                passed += (0..200).take_while(|_| bucket.take(1, now)).count() as u64;
            }
            let token_ns = bucket.time_of(1);
            let most = (now + bucket.full_ns.max(token_ns)) / token_ns;
            prop_assert!(passed <= most, "{passed} of {most}");
        }
    }
}
