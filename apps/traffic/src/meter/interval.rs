//! Reception in an interval: one point of a time series.

use serde::Serialize;

use super::distribution::{Distribution, DistributionSummary};

/// Reception at a port in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IntervalReport {
    /// Start of the interval, ns of the caller's clock.
    pub from_ns: u64,
    /// End of the interval, ns of the caller's clock. Later arrivals belong to the next interval.
    pub until_ns: u64,
    /// Frames without a signature.
    pub foreign_frames: u64,
    /// Frames with a damaged signature whose stream is unknown.
    pub corrupted_unattributed: u64,
    /// Frames with an intact signature whose stream is unknown.
    pub unknown_stream_frames: u64,
    /// Counts of all streams together.
    pub total: IntervalCounts,
    /// Counts by stream, in the order of the full report.
    pub streams: Vec<StreamInterval>,
}

/// Reception of a stream in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamInterval {
    /// Number of the stream on the wire.
    pub wire_stream: u16,
    #[serde(flatten)]
    pub counts: IntervalCounts,
}

/// Counts of an interval, frames unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct IntervalCounts {
    /// Intact frames, including duplicates and stale frames.
    pub frames: u64,
    /// Bytes of the intact frames, without FCS.
    pub bytes: u64,
    /// Numbers newly missing, minus numbers that had been missing and arrived now. Negative if the latter are more.
    pub lost: i64,
    /// Duplicates: frames that had arrived before.
    pub duplicates: u64,
    /// Frames that arrived for the first time, after a frame with a higher number.
    pub reordered: u64,
    /// Frames too late to be classified as duplicate or reordered.
    pub stale: u64,
    /// Frames with damage in the signature or in the bytes that it covers.
    pub corrupted: u64,
    /// Latency of frames that arrived for the first time. None if there are no such frames, or latency is not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<IntervalLatency>,
}

/// Latency in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct IntervalLatency {
    /// Number of measured frames.
    pub count: u64,
    /// Lowest latency, ns.
    pub min_ns: u64,
    /// Mean latency, ns.
    pub mean_ns: f64,
    /// 99th percentile of the latency, ns.
    pub p99_ns: u64,
    /// Highest latency, ns.
    pub max_ns: u64,
}

impl IntervalCounts {
    /// The counts minus those of `before`, without latency.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            frames: self.frames - before.frames,
            bytes: self.bytes - before.bytes,
            lost: self.lost.wrapping_sub(before.lost),
            duplicates: self.duplicates - before.duplicates,
            reordered: self.reordered - before.reordered,
            stale: self.stale - before.stale,
            corrupted: self.corrupted - before.corrupted,
            latency: None,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.lost = self.lost.wrapping_add(other.lost);
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.stale += other.stale;
        self.corrupted += other.corrupted;
    }

    pub(super) fn with_latencies(self, latencies: &Distribution) -> Self {
        let of = |summary: DistributionSummary| IntervalLatency {
            count: summary.count,
            min_ns: summary.min,
            mean_ns: summary.mean,
            p99_ns: summary.p99,
            max_ns: summary.max,
        };
        Self { latency: latencies.summary().map(of), ..self }
    }
}
