//! Latency and its variation.

use serde::Serialize;

use super::distribution::{Distribution, DistributionSummary};

/// Upper limit of recorded latency differences, ns: larger than any real difference.
const HIGHEST_DIFFERENCE: u64 = 1 << 58;

/// Follows the latencies of one stream in the order of arrival.
#[derive(Debug, Clone, Default)]
pub(super) struct DelayTracker {
    /// Number and latency of the last frame.
    previous: Option<(u64, i64)>,
    /// Latencies since the interval began. The earlier ones are in the totals, so that each is recorded once.
    recent: Distribution,
    totals: DelayTotals,
}

/// Sums over latencies, of one stream or several.
#[derive(Debug, Clone, Default)]
pub(super) struct DelayTotals {
    latency: Distribution,
    negative: u64,
    lowest_negative: i64,
    /// Jitter estimate of RFC 3550 times 16, as in appendix A.8.
    jitter_16: u64,
    differences: u64,
    sum_of_differences: u128,
    ipdv: Ipdv,
}

#[derive(Debug, Clone, Copy, Default)]
struct Ipdv {
    count: u64,
    lowest: i64,
    highest: i64,
    sum_of_absolute: u128,
}

/// Latency and its variation, ns. Latency is one-way, from the sender's timestamp to the arrival, thus on one clock.
/// The first copy of a duplicated frame is measured; stale frames are left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DelaySummary {
    /// Latency (RFC 7679), ns. None if no frame was measured.
    pub latency_ns: Option<DistributionSummary>,
    /// Packet delay variation, ns: latency minus the lowest latency (RFC 5481 section 4.2).
    pub pdv_ns: Option<DistributionSummary>,
    /// Frames that seem to arrive before they departed, because the clocks differ. They are not part of the latency.
    pub negative: u64,
    /// Lowest of these negative latencies, ns; 0 if there are none.
    pub lowest_negative_ns: i64,
    /// Interarrival jitter (RFC 3550 section 6.4.1), ns: the difference between the latencies of two frames that
    /// arrived one after the other, smoothed over the last 16 or so. For merged streams, the mean of their jitters,
    /// weighted by frames. None for fewer than two frames.
    pub jitter_ns: Option<f64>,
    /// Mean of the difference between the latencies of two frames that arrived one after the other, over all frames,
    /// ns.
    pub mean_difference_ns: Option<f64>,
    /// Inter-packet delay variation. None if no two consecutive frames arrived one right after the other.
    pub ipdv: Option<IpdvSummary>,
}

/// Inter-packet delay variation (RFC 5481 section 4.1): a frame's latency minus the latency of the frame sent before
/// it, if the two arrived one right after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct IpdvSummary {
    /// Number of pairs of frames.
    pub count: u64,
    /// Lowest variation, ns. If negative, the two frames arrived closer together than they were sent.
    pub min_ns: i64,
    /// Highest variation, ns.
    pub max_ns: i64,
    /// Mean of the absolute values, ns.
    pub mean_absolute_ns: f64,
}

impl DelayTracker {
    /// Records the latency of the frame numbered `number`.
    #[inline]
    pub(super) fn record(&mut self, number: u64, latency_ns: i64) {
        match u64::try_from(latency_ns) {
            Ok(latency) => self.recent.record(latency),
            Err(_) => self.totals.record_negative(latency_ns),
        }
        if let Some((before, latency_before)) = self.previous.replace((number, latency_ns)) {
            self.totals.record_difference(
                latency_ns.saturating_sub(latency_before),
                number.wrapping_sub(before) == 1,
            );
        }
    }

    /// Latencies since the interval began.
    pub(super) fn recent(&self) -> &Distribution {
        &self.recent
    }

    /// Begins a new interval.
    pub(super) fn start_interval(&mut self) {
        self.totals.latency.merge(&self.recent);
        self.recent.clear();
    }

    /// Sums so far.
    pub(super) fn totals(&self) -> DelayTotals {
        let mut totals = self.totals.clone();
        totals.latency.merge(&self.recent);
        totals
    }
}

impl DelayTotals {
    #[cold]
    fn record_negative(&mut self, latency_ns: i64) {
        self.negative += 1;
        self.lowest_negative = self.lowest_negative.min(latency_ns);
    }

    #[inline]
    fn record_difference(&mut self, difference: i64, of_neighbours: bool) {
        let absolute = difference.unsigned_abs().min(HIGHEST_DIFFERENCE);
        self.jitter_16 = self.jitter_16 + absolute - ((self.jitter_16 + 8) >> 4);
        self.differences += 1;
        self.sum_of_differences += u128::from(absolute);
        if of_neighbours {
            let ipdv = &mut self.ipdv;
            ipdv.lowest = if ipdv.count == 0 { difference } else { ipdv.lowest.min(difference) };
            ipdv.highest = if ipdv.count == 0 { difference } else { ipdv.highest.max(difference) };
            ipdv.count += 1;
            ipdv.sum_of_absolute += u128::from(absolute);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        self.negative += other.negative;
        self.lowest_negative = self.lowest_negative.min(other.lowest_negative);
        let weighted = |totals: &Self| u128::from(totals.jitter_16) * u128::from(totals.differences);
        let differences = self.differences + other.differences;
        self.jitter_16 =
            (weighted(self) + weighted(other)).checked_div(differences.into()).unwrap_or(0) as u64;
        self.differences = differences;
        self.sum_of_differences += other.sum_of_differences;
        self.ipdv = match (self.ipdv, other.ipdv) {
            (ours, Ipdv { count: 0, .. }) => ours,
            (Ipdv { count: 0, .. }, theirs) => theirs,
            (ours, theirs) => Ipdv {
                count: ours.count + theirs.count,
                lowest: ours.lowest.min(theirs.lowest),
                highest: ours.highest.max(theirs.highest),
                sum_of_absolute: ours.sum_of_absolute + theirs.sum_of_absolute,
            },
        };
    }

    pub(super) fn summary(&self) -> DelaySummary {
        let latency_ns = self.latency.summary();
        let mean = |sum: u128, count: u64| (count > 0).then(|| sum as f64 / count as f64);
        DelaySummary {
            latency_ns,
            pdv_ns: latency_ns.map(DistributionSummary::above_min),
            negative: self.negative,
            lowest_negative_ns: self.lowest_negative,
            jitter_ns: (self.differences > 0).then_some(self.jitter_16 as f64 / 16.0),
            mean_difference_ns: mean(self.sum_of_differences, self.differences),
            ipdv: mean(self.ipdv.sum_of_absolute, self.ipdv.count).map(|mean_absolute_ns| IpdvSummary {
                count: self.ipdv.count,
                min_ns: self.ipdv.lowest,
                max_ns: self.ipdv.highest,
                mean_absolute_ns,
            }),
        }
    }
}
