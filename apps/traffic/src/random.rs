//! Random numbers that a seed reproduces: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). The generator is fast,
//! uniform, and has a period of 2^64. It is not for secrets.

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Begins the sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Number `index` of the sequence of `seed`, computed without the numbers before it.
    #[inline]
    #[must_use]
    pub const fn at(seed: u64, index: u64) -> u64 {
        Self { state: seed.wrapping_add(GOLDEN_GAMMA.wrapping_mul(index)) }.mixed().1
    }

    #[inline]
    pub const fn next(&mut self) -> u64 {
        let (following, value) = self.mixed();
        *self = following;
        value
    }

    /// The next number in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// The next number of an exponential distribution with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    #[inline]
    const fn mixed(self) -> (Self, u64) {
        let state = self.state.wrapping_add(GOLDEN_GAMMA);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (Self { state }, z ^ (z >> 31))
    }
}

/// `drawn` scaled to a number below `bound`, without division (Lemire, "Fast Random Integer Generation in an Interval",
/// 2019). Uniform up to `bound` / 2^64.
#[inline]
pub(crate) const fn below(drawn: u64, bound: u64) -> u64 {
    ((drawn as u128 * bound as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_matches_the_published_one() {
        // First numbers of seed 1234567, as other implementations of SplitMix64 print them.
        let mut random = SplitMix64::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn any_number_of_the_sequence_can_be_computed_directly() {
        let mut random = SplitMix64::new(7);
        for index in 0..1000 {
            assert_eq!(random.next(), SplitMix64::at(7, index));
        }
    }

    #[test]
    fn exponential_numbers_have_mean_and_deviation_one() {
        let mut random = SplitMix64::new(1);
        let numbers: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / 1e5;
        // The bounds are four standard errors each; the numbers are the same in each run.
        assert!((mean - 1.0).abs() < 0.0127, "{mean}");
        assert!((variance - 1.0).abs() < 0.036, "{variance}");
    }

    #[test]
    fn bounded_random_numbers_are_uniform() {
        let mut seen = [0; 10];
        for index in 0..100_000 {
            seen[below(SplitMix64::at(7, index), 10) as usize] += 1;
        }
        // The bounds are five standard deviations; the numbers are the same in each run.
        assert!(seen.iter().all(|count| (9_525..10_475).contains(count)), "{seen:?}");
    }
}
