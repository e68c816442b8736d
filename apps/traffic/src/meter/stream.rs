//! The meter of one stream.

use super::delay::DelayTracker;
use super::distribution::Distribution;
use super::interval::IntervalCounts;
use super::reordering::ReorderingTracker;
use super::report::StreamReport;
use crate::sequence::{ArrivalOrder, SequenceTracker};
use crate::signature::Signature;

#[derive(Debug, Clone)]
pub(super) struct StreamMeter {
    wire_stream: u16,
    sequence: SequenceTracker,
    bytes: u64,
    corrupted: u64,
    reordering: ReorderingTracker,
    delay: DelayTracker,
    /// Counters at the start of the interval.
    before: IntervalCounts,
}

impl StreamMeter {
    pub(super) fn new(wire_stream: u16, sequence: SequenceTracker) -> Self {
        Self {
            wire_stream,
            sequence,
            bytes: 0,
            corrupted: 0,
            reordering: ReorderingTracker::default(),
            delay: DelayTracker::default(),
            before: IntervalCounts::default(),
        }
    }

    #[inline]
    pub(super) fn record(&mut self, signature: &Signature, len: u32, arrival_ns: u64, latency: bool) {
        let number = signature.sequence(self.sequence.expected());
        self.bytes += u64::from(len);
        match self.sequence.record(number) {
            ArrivalOrder::InOrder { skipped } => self.reordering.record_in_order(number, skipped, arrival_ns),
            ArrivalOrder::Reordered => self.reordering.record_reordered(number, arrival_ns),
            ArrivalOrder::Duplicate | ArrivalOrder::Stale => return,
        }
        if latency && let Some(departure_ns) = signature.timestamp_ns(arrival_ns) {
            self.delay.record(number, arrival_ns.wrapping_sub(departure_ns).cast_signed());
        }
    }

    pub(super) fn record_corrupted(&mut self) {
        self.corrupted += 1;
    }

    /// Ends an interval, and adds its latencies to `latencies`.
    pub(super) fn interval(&mut self, latencies: &mut Distribution) -> IntervalCounts {
        let counts = self.sequence.counts();
        let now = IntervalCounts {
            frames: counts.received,
            bytes: self.bytes,
            lost: counts.lost.cast_signed(),
            duplicates: counts.duplicates,
            reordered: counts.reordered,
            stale: counts.stale,
            corrupted: self.corrupted,
            latency: None,
        };
        let interval = now.since(&self.before).with_latencies(self.delay.recent());
        self.before = now;
        latencies.merge(self.delay.recent());
        self.delay.start_interval();
        interval
    }

    pub(super) fn wire_stream(&self) -> u16 {
        self.wire_stream
    }

    pub(super) fn report(&self) -> StreamReport {
        StreamReport {
            wire_streams: vec![self.wire_stream],
            sent: None,
            counts: self.sequence.counts(),
            bytes: self.bytes,
            corrupted: self.corrupted,
            reordering: self.reordering.totals(),
            delay: self.delay.totals(),
        }
    }
}
