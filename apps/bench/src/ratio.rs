//! Arithmetic of a comparison, without clock, input or output.
//!
//! Ratios are taken inside a round and summarised afterwards. In a ratio of the medians a slow minute of the machine
//! could count for one side only. The interval around the median ratio is the distribution-free interval from order
//! statistics (the inverted sign test): with n independent ratios, the k-th smallest and k-th largest enclose the true
//! median with probability 1 - 2 P(Binomial(n, 1/2) < k). It assumes no distribution, needs no random numbers, and has
//! a known confidence; five rounds reach at most 93.75 %.

use serde::Serialize;

/// Desired confidence of the interval.
const TARGET_CONFIDENCE: f64 = 0.95;

/// Median and range of some values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ValueSummary {
    /// Number of values.
    pub n: usize,
    /// Middle value, or mean of the two middle values.
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl ValueSummary {
    /// Summarises the values; `None` if there are none. Values that are not finite are left out.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sorted_finite(values);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self { n: sorted.len(), median: median_of_sorted(&sorted)?, min, max })
    }
}

/// Bounds for the true median, and the probability with which they enclose it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ConfidenceInterval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Probability that the bounds enclose the median, 0 to 1.
    pub confidence: f64,
}

/// The ratio of two contestants over the rounds in which both have a valid sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairedRatio {
    /// Ratio of each round, first contestant over second, in the order of the rounds.
    pub rounds: Vec<f64>,
    /// Median and range of the ratios.
    #[serde(flatten)]
    pub summary: ValueSummary,
    /// Bounds for the true median.
    pub interval: ConfidenceInterval,
}

impl PairedRatio {
    /// Pairs two series round by round. A round counts if both have a positive value. Returns `None` if no round
    /// counts.
    #[must_use]
    pub fn of(first: &[Option<f64>], second: &[Option<f64>]) -> Option<Self> {
        let rounds: Vec<f64> = first
            .iter()
            .zip(second)
            .filter_map(|(first, second)| match (first, second) {
                (Some(a), Some(b)) if *a > 0.0 && *b > 0.0 => Some(a / b),
                _ => None,
            })
            .filter(|ratio| ratio.is_finite())
            .collect();
        let summary = ValueSummary::of(rounds.iter().copied())?;
        let interval = median_interval(&rounds)?;
        Some(Self { rounds, summary, interval })
    }
}

/// Returns the order-statistics interval for the median: the narrowest that reaches 95 %, else the whole range.
#[must_use]
pub fn median_interval(values: &[f64]) -> Option<ConfidenceInterval> {
    let sorted = sorted_finite(values.iter().copied());
    let n = sorted.len();
    let mut best =
        ConfidenceInterval { low: *sorted.first()?, high: *sorted.last()?, confidence: enclosing(n, 1) };
    for (k, (low, high)) in sorted.iter().zip(sorted.iter().rev()).enumerate().take(n / 2).skip(1) {
        let confidence = enclosing(n, k + 1);
        if confidence < TARGET_CONFIDENCE {
            break;
        }
        best = ConfidenceInterval { low: *low, high: *high, confidence };
    }
    Some(best)
}

/// Returns 1 - 2 P(Binomial(n, 1/2) < k).
fn enclosing(n: usize, k: usize) -> f64 {
    let mut probability = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut below = 0.0;
    for i in 0..k {
        below += probability;
        probability *= (n - i) as f64 / (i + 1) as f64;
    }
    (1.0 - 2.0 * below).max(0.0)
}

fn sorted_finite(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(*upper);
    }
    let lower = sorted.get((sorted.len() / 2).checked_sub(1)?)?;
    Some(f64::midpoint(*lower, *upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    #[test]
    fn the_median_of_an_even_count_is_between_the_two_in_the_middle() {
        let summary = ValueSummary::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((summary.n, summary.median, summary.min, summary.max), (4, 2.5, 1.0, 4.0));
    }

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(ValueSummary::of([]), None);
        assert_eq!(ValueSummary::of([f64::NAN]), None);
        assert_eq!(PairedRatio::of(&[], &[]), None);
    }

    #[test]
    fn a_machine_that_slows_down_in_the_middle_leaves_the_ratio_alone() {
        let ours = some(&[20.0, 20.0, 6.0, 6.0, 6.0]);
        let peer = some(&[10.0, 10.0, 3.0, 3.0, 3.0]);
        let ratio = PairedRatio::of(&ours, &peer).unwrap();
        assert_eq!((ratio.summary.median, ratio.summary.min, ratio.summary.max), (2.0, 2.0, 2.0));
    }

    #[test]
    fn an_invalid_round_is_left_out_and_never_counts_as_zero() {
        let ours = [Some(4.0), None, Some(8.0), Some(0.0)];
        let peer = [Some(2.0), Some(2.0), Some(2.0), Some(2.0)];
        assert_eq!(PairedRatio::of(&ours, &peer).unwrap().rounds, [2.0, 4.0]);
    }

    #[test]
    fn five_rounds_enclose_the_median_with_93_75_percent() {
        let interval = median_interval(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((interval.low, interval.high), (1.0, 5.0));
        assert!((interval.confidence - 0.9375).abs() < 1e-12);
    }

    #[test]
    fn nine_rounds_drop_the_outermost_values_at_96_percent() {
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        let interval = median_interval(&values).unwrap();
        assert_eq!((interval.low, interval.high), (2.0, 8.0));
        assert!((interval.confidence - (1.0 - 2.0 * 10.0 / 512.0)).abs() < 1e-12);
    }

    #[test]
    fn one_round_alone_claims_no_confidence() {
        assert_eq!(median_interval(&[3.0]).unwrap().confidence, 0.0);
    }
}
