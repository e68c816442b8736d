//! Distributions of values: their number, mean and spread.

use serde::Serialize;

use super::histogram::{HIGHEST, Histogram};

/// Distribution of values from 0 on: exact count and moments, percentiles to three significant digits.
///
/// Merging distributions gives the distribution of all their values.
#[derive(Debug, Clone, Default)]
pub struct Distribution {
    histogram: Histogram,
    count: u64,
    sum: u128,
    sum_of_squares: u128,
    /// Complement of the lowest value, so that the default 0 stands for no value.
    not_lowest: u64,
    highest: u64,
    saturated: u64,
}

/// Percentiles of a summary, in 1/1,000,000.
const PERCENTILES_PPM: [u32; 6] = [500_000, 900_000, 990_000, 999_000, 999_900, 999_990];

/// A distribution in figures. Their unit is the unit of the values, which is part of the name of the field with the
/// summary.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DistributionSummary {
    /// Number of values.
    pub count: u64,
    /// Lowest value, exact.
    pub min: u64,
    /// Mean of the values.
    pub mean: f64,
    /// Standard deviation of the values (divided by their count, not by one less).
    pub stddev: f64,
    /// Percentile 50: half of the values are this value or lower. All percentiles are at most 0.1 % too high. With too
    /// few values a percentile is the highest value.
    pub p50: u64,
    /// Percentile 90.
    pub p90: u64,
    /// Percentile 99.
    pub p99: u64,
    /// Percentile 99.9.
    pub p99_9: u64,
    /// Percentile 99.99.
    pub p99_99: u64,
    /// Percentile 99.999.
    pub p99_999: u64,
    /// Highest value, exact.
    pub max: u64,
    /// Number of values above 2^40 - 1 (1100 s in nanoseconds), which are counted as 2^40 - 1.
    pub saturated: u64,
}

impl Distribution {
    #[inline]
    pub(crate) fn record(&mut self, value: u64) {
        if value > HIGHEST {
            self.saturated += 1;
        }
        let value = value.min(HIGHEST);
        self.histogram.record(value);
        self.count += 1;
        self.sum += u128::from(value);
        self.sum_of_squares += u128::from(value) * u128::from(value);
        self.not_lowest = self.not_lowest.max(!value);
        self.highest = self.highest.max(value);
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram);
        self.count += other.count;
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.not_lowest = self.not_lowest.max(other.not_lowest);
        self.highest = self.highest.max(other.highest);
        self.saturated += other.saturated;
    }

    /// Removes all values, and keeps the memory for the next values.
    pub(super) fn clear(&mut self) {
        let mut histogram = std::mem::take(&mut self.histogram);
        histogram.clear();
        *self = Self { histogram, ..Self::default() };
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Summary of the values; None without values.
    #[must_use]
    pub fn summary(&self) -> Option<DistributionSummary> {
        if self.count == 0 {
            return None;
        }
        let count = u128::from(self.count);
        let whole_mean = self.sum / count;
        // Whole numbers are exact: the sums are far larger than their difference.
        let squares_about_it =
            self.sum_of_squares + count * whole_mean * whole_mean - 2 * whole_mean * self.sum;
        let above_it = (self.sum - whole_mean * count) as f64 / count as f64;
        let variance = squares_about_it as f64 / count as f64 - above_it * above_it;
        let ranks = PERCENTILES_PPM.map(|ppm| (count * u128::from(ppm)).div_ceil(1_000_000) as u64);
        let [p50, p90, p99, p99_9, p99_99, p99_999] =
            self.histogram.at_ranks(ranks).map(|value| value.min(self.highest));
        Some(DistributionSummary {
            count: self.count,
            min: !self.not_lowest,
            mean: whole_mean as f64 + above_it,
            stddev: variance.max(0.0).sqrt(),
            p50,
            p90,
            p99,
            p99_9,
            p99_99,
            p99_999,
            max: self.highest,
            saturated: self.saturated,
        })
    }
}

impl DistributionSummary {
    /// Distribution of the same values, each minus the lowest.
    #[must_use]
    pub fn above_min(self) -> Self {
        let above = |value: u64| value - self.min;
        Self {
            min: 0,
            mean: self.mean - self.min as f64,
            p50: above(self.p50),
            p90: above(self.p90),
            p99: above(self.p99),
            p99_9: above(self.p99_9),
            p99_99: above(self.p99_99),
            p99_999: above(self.p99_999),
            max: above(self.max),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn distribution(values: &[u64]) -> Distribution {
        let mut distribution = Distribution::default();
        values.iter().for_each(|&value| distribution.record(value));
        distribution
    }

    #[test]
    fn an_empty_distribution_has_no_values() {
        assert_eq!(Distribution::default().summary(), None);
        let mut cleared = distribution(&[5]);
        cleared.clear();
        assert_eq!(cleared.summary(), None);
    }

    #[test]
    fn mean_minimum_and_maximum_are_exact() {
        let mut values: Vec<u64> = (1..=1000).collect();
        values.reverse();
        let summary = distribution(&values).summary().unwrap();
        let variance: f64 = (1000.0 * 1000.0 - 1.0) / 12.0;
        assert_eq!((summary.count, summary.min, summary.max, summary.mean), (1000, 1, 1000, 500.5));
        assert!((summary.stddev - variance.sqrt()).abs() < 1e-9, "{}", summary.stddev);
        assert_eq!((summary.p50, summary.p90, summary.p99, summary.p99_9), (500, 900, 990, 999));
        assert_eq!((summary.p99_99, summary.p99_999), (1000, 1000));
        let above = summary.above_min();
        assert_eq!((above.min, above.p50, above.max, above.mean), (0, 499, 999, 499.5));
    }

    #[test]
    fn a_small_spread_of_large_values_is_not_rounded_away() {
        let summary = distribution(&[999_999_999_000, 999_999_999_002]).summary().unwrap();
        assert_eq!((summary.mean, summary.stddev), (999_999_999_001.0, 1.0));
    }

    #[test]
    fn values_out_of_range_count_as_the_highest() {
        let summary = distribution(&[7, u64::MAX]).summary().unwrap();
        assert_eq!((summary.min, summary.max, summary.saturated), (7, HIGHEST, 1));
    }

    proptest! {
        #[test]
        fn merging_equals_recording_all_values(values in prop::collection::vec(0..HIGHEST, 0..100), split: prop::sample::Index) {
            let split = split.index(values.len() + 1);
            let mut merged = distribution(&values[..split]);
            merged.merge(&distribution(&values[split..]));
            prop_assert_eq!(merged.summary(), distribution(&values).summary());
        }
    }
}
