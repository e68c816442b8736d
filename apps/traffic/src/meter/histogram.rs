//! Counts of values to three significant digits, like an HDR histogram.
//!
//! Its values equal those of the hdrhistogram crate for the same precision. Its memory differs: an octave of values is
//! allocated with its first value. Latencies of a stream are in a few octaves. So copying, adding and reading the
//! counts takes a few microseconds instead of tens. That matters because frames wait meanwhile.

const BLOCKS: usize = 31;
/// Number of counts of a block. The first two blocks count single numbers, each further block an octave.
const BLOCK_VALUES: usize = 1024;

/// The highest value that is counted as itself.
pub(super) const HIGHEST: u64 = (1 << 40) - 1;

/// Counts of values up to [`HIGHEST`]. Values within 0.1 % of each other are counted as one value.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    blocks: [Option<Box<[u64; BLOCK_VALUES]>>; BLOCKS],
}

impl Histogram {
    /// Counts `value`, or [`HIGHEST`] if the value is higher.
    #[inline]
    pub(super) fn record(&mut self, value: u64) {
        let value = value.min(HIGHEST);
        let block = block_of(value);
        let counts = self.blocks[block].get_or_insert_with(|| Box::new([0; BLOCK_VALUES]));
        counts[(value >> shift(block)) as usize % BLOCK_VALUES] += 1;
    }

    /// Adds the counts of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        for (into, from) in self.blocks.iter_mut().zip(&other.blocks) {
            let Some(from) = from else { continue };
            match into {
                Some(into) => into.iter_mut().zip(from.iter()).for_each(|(into, from)| *into += from),
                None => *into = Some(from.clone()),
            }
        }
    }

    /// Sets all counts to 0. The memory stays.
    pub(super) fn clear(&mut self) {
        self.blocks.iter_mut().flatten().for_each(|counts| counts.fill(0));
    }

    /// Values at `ranks`, where a value's rank is its position in ascending order, from 1. Ranks ascend. Each result is
    /// the highest of the values that are counted as one.
    pub(super) fn at_ranks<const N: usize>(&self, ranks: [u64; N]) -> [u64; N] {
        let mut values = [0; N];
        let mut found = 0;
        let mut passed = 0;
        for (block, counts) in self.blocks.iter().enumerate() {
            let Some(counts) = counts else { continue };
            for (bucket, count) in counts.iter().enumerate() {
                passed += count;
                while found < N && ranks[found] <= passed {
                    values[found] = highest_at(block, bucket);
                    found += 1;
                }
            }
        }
        values
    }
}

#[inline]
fn block_of(value: u64) -> usize {
    (value | (BLOCK_VALUES as u64 - 1)).ilog2() as usize - 9
}

/// Number of low bits of a value that its block does not distinguish.
#[inline]
fn shift(block: usize) -> usize {
    block.saturating_sub(1)
}

fn highest_at(block: usize, bucket: usize) -> u64 {
    let first = if block == 0 { 0 } else { BLOCK_VALUES };
    (((first + bucket + 1) as u64) << shift(block)) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values of all lengths in bits.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = (0..=HIGHEST, 0..40_u32).prop_map(|(value, shift)| value >> shift);
        prop::collection::vec(value, 1..20)
    }

    proptest! {
        #[test]
        fn percentiles_match_hdrhistogram(values in values(), more in values()) {
            let mut foreign = hdrhistogram::Histogram::<u64>::new_with_bounds(1, HIGHEST, 3).unwrap();
            let mut ours = Histogram::default();
            let mut other = Histogram::default();
            values.iter().for_each(|&value| ours.record(value));
            more.iter().for_each(|&value| other.record(value));
            values.iter().chain(&more).for_each(|&value| foreign.record(value).unwrap());
            ours.add(&other);
            let count = (values.len() + more.len()) as u64;
            for rank in 1..=count {
                // The quantile is in the middle of the rank, so that rounding of the quotient does not change the rank.
                let expected = foreign.value_at_quantile((rank as f64 - 0.5) / count as f64);
                prop_assert_eq!(ours.at_ranks([rank]), [expected]);
            }
        }

        #[test]
        fn a_cleared_histogram_counts_anew(values in values(), value in 0..=HIGHEST) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record(value));
            histogram.clear();
            histogram.record(value);
            let [found] = histogram.at_ranks([1]);
            prop_assert!(found >= value && found - value <= value / 1000, "{found} is not {value}");
        }
    }

    #[test]
    fn values_too_high_count_as_the_highest() {
        let mut histogram = Histogram::default();
        histogram.record(u64::MAX);
        assert_eq!(histogram.at_ranks([1]), [HIGHEST]);
    }
}
