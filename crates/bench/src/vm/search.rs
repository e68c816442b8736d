//! The search for the throughput of RFC 2544 (section 26.1): the highest rate at which no more is lost than allowed. No clock, no traffic.

/// A binary search between nothing and a rate that a device cannot exceed.
#[derive(Clone, Debug, PartialEq)]
pub struct ThroughputSearch {
    /// Highest rate that was carried.
    low: f64,
    /// Lowest rate that was not, or the limit.
    high: f64,
    /// Whether the limit itself was tried.
    has_begun: bool,
    /// Width of the answer, as a share of it.
    precision: f64,
}

impl ThroughputSearch {
    /// Up to `limit` frames per second, to within `precision` (0.05: five percent).
    #[must_use]
    pub fn up_to(limit: f64, precision: f64) -> Self {
        Self { low: 0.0, high: limit, has_begun: false, precision }
    }

    /// The rate to try next, frames per second; `None` when the answer is close enough. The limit is tried first.
    #[must_use]
    pub fn next_rate(&self) -> Option<f64> {
        if !self.has_begun {
            return Some(self.high);
        }
        let width = self.high - self.low;
        (width > self.precision * self.high).then(|| self.low + width / 2.0)
    }

    /// Says whether `rate`, which [`Self::next_rate`] gave, was carried.
    pub fn record(&mut self, rate: f64, carried: bool) {
        self.has_begun = true;
        if carried {
            self.low = rate;
        } else {
            self.high = rate;
        }
        if self.low == 0.0 && self.high < 1.0 {
            // Not a frame a second: the search ends.
            self.low = self.high;
        }
    }

    /// The answer so far, frames per second; `None` where no rate was carried.
    #[must_use]
    pub fn throughput(&self) -> Option<f64> {
        (self.low >= 1.0).then_some(self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a device that carries up to `capacity`; returns the answer and the trials it took.
    fn find(capacity: f64, limit: f64, precision: f64) -> (Option<f64>, u32) {
        let mut search = ThroughputSearch::up_to(limit, precision);
        let mut trials = 0;
        while let Some(rate) = search.next_rate() {
            trials += 1;
            assert!(trials < 100 && rate > 0.0 && rate <= limit);
            search.record(rate, rate <= capacity);
        }
        (search.throughput(), trials)
    }

    #[test]
    fn the_answer_is_carried_and_within_the_precision_of_the_capacity() {
        for capacity in [1.0e3, 0.3e6, 2.0e6, 3.1e6, 4.99e6] {
            let (found, trials) = find(capacity, 5.0e6, 0.05);
            let found = found.unwrap();
            assert!(found <= capacity && found >= capacity * 0.94, "{found} of {capacity}");
            assert!(trials < 20);
        }
    }

    #[test]
    fn a_device_that_carries_the_limit_takes_one_trial() {
        assert_eq!(find(9.0e6, 5.0e6, 0.05), (Some(5.0e6), 1));
    }

    #[test]
    fn a_device_that_carries_nothing_has_no_throughput() {
        assert_eq!(find(0.0, 5.0e6, 0.05).0, None);
    }
}
