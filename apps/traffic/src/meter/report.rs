//! Reception so far: data that can be merged and completed, and the resulting figures.

use serde::Serialize;

use super::delay::{DelaySummary, DelayTotals};
use super::reordering::{ReorderingSummary, ReorderingTotals};
use crate::sequence::SequenceCounts;

/// Reception at a port.
#[derive(Debug, Clone)]
pub struct MeterReport {
    /// Counts of the port's frames, including those outside the streams.
    pub port: PortCounts,
    /// Reports by stream: expected streams in the given order, or all streams in the order of their first frames.
    pub streams: Vec<StreamReport>,
}

/// Counts of frames at a port. The total is the sum of the foreign, damaged, unknown and earlier frames here, and of
/// the received and corrupted frames of the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PortCounts {
    /// All frames.
    pub frames: u64,
    /// Bytes of all frames, without FCS.
    pub bytes: u64,
    /// Frames without a signature.
    pub foreign_frames: u64,
    /// Bytes of the foreign frames, without FCS.
    pub foreign_bytes: u64,
    /// Frames with a damaged signature whose stream is unknown.
    pub corrupted_unattributed: u64,
    /// Frames with an intact signature whose stream is unknown.
    pub unknown_stream_frames: u64,
    /// Frames that left before the meter began, in a previous run. They are only recognised if the streams were listed,
    /// and by signatures with a time.
    pub earlier_frames: u64,
}

/// Reception of a stream, or of several merged into one.
#[derive(Debug, Clone)]
pub struct StreamReport {
    pub(super) wire_streams: Vec<u16>,
    pub(super) sent: Option<u64>,
    pub(super) counts: SequenceCounts,
    pub(super) bytes: u64,
    pub(super) corrupted: u64,
    pub(super) reordering: ReorderingTotals,
    pub(super) delay: DelayTotals,
}

/// Reception at a port, in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeterSummary {
    /// Counts of the port's frames, including those outside the streams.
    #[serde(flatten)]
    pub port: PortCounts,
    /// Sums over all streams. None without streams.
    pub total: Option<StreamSummary>,
    /// Figures by stream.
    pub streams: Vec<StreamSummary>,
}

/// Reception of a stream, in figures. Counts are frames.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamSummary {
    /// Numbers that the stream had on the wire: several if queues shared it.
    pub wire_streams: Vec<u16>,
    /// Frames sent, as reported by the sender. None if not reported.
    pub sent: Option<u64>,
    /// All frames that arrived intact.
    pub received: u64,
    /// Bytes of the received frames, without FCS.
    pub bytes: u64,
    /// Distinct frames: received frames minus duplicates and stale frames.
    pub distinct: u64,
    /// Frames that did not arrive intact: sent minus distinct. So duplicates do not compensate for loss, and corrupted
    /// or stale frames are lost, too. Before the sender's count is known: the missing numbers below the highest that
    /// arrived.
    pub lost: u64,
    /// Lost frames divided by sent frames (in percent, the frame loss rate of RFC 2544 section 26.3). Before the
    /// sender's count is known: lost frames divided by distinct and lost frames. None without frames.
    pub loss_ratio: Option<f64>,
    /// Number of distinct frames beyond those sent. Not 0 only if frames of another trial arrived.
    pub excess: u64,
    /// Duplicates: frames that had arrived before.
    pub duplicates: u64,
    /// Frames that arrived for the first time, after a frame with a higher number.
    pub reordered: u64,
    /// Frames too late to be classified as duplicate or reordered.
    pub stale: u64,
    /// Frames with damage in the signature or in the bytes that it covers. If the stream number is damaged, the frame
    /// counts for the apparent stream, or for the port.
    pub corrupted: u64,
    /// Reordering in detail.
    pub reordering: ReorderingSummary,
    /// Latency and its variation.
    pub delay: DelaySummary,
}

impl MeterReport {
    /// Report of all streams merged. None without streams.
    #[must_use]
    pub fn total(&self) -> Option<StreamReport> {
        let (first, others) = self.streams.split_first()?;
        let mut total = first.clone();
        others.iter().for_each(|stream| total.merge(stream));
        Some(total)
    }

    /// Figures of the report.
    #[must_use]
    pub fn summary(&self) -> MeterSummary {
        MeterSummary {
            port: self.port,
            total: self.total().map(|total| total.summary()),
            streams: self.streams.iter().map(StreamReport::summary).collect(),
        }
    }
}

impl StreamReport {
    /// Numbers on the wire of the streams merged into this report.
    #[must_use]
    pub fn wire_streams(&self) -> &[u16] {
        &self.wire_streams
    }

    /// Sets the number of frames sent, once the last frames had time to arrive. Missing frames are then lost, also
    /// after the highest number that arrived.
    pub fn complete(&mut self, sent: u64) {
        self.sent = Some(sent);
        self.counts.lost = sent.saturating_sub(self.distinct());
    }

    /// Adds `other`, another part of the same stream. The sender's count is known only if it is known for both parts.
    pub fn merge(&mut self, other: &Self) {
        self.wire_streams.extend(&other.wire_streams);
        self.sent = self.sent.zip(other.sent).map(|(ours, theirs)| ours.saturating_add(theirs));
        self.counts.received += other.counts.received;
        // Forged numbers may have made the counts as large as possible.
        self.counts.lost = self.counts.lost.saturating_add(other.counts.lost);
        self.counts.duplicates += other.counts.duplicates;
        self.counts.reordered += other.counts.reordered;
        self.counts.stale += other.counts.stale;
        self.bytes += other.bytes;
        self.corrupted += other.corrupted;
        self.reordering.merge(&other.reordering);
        self.delay.merge(&other.delay);
    }

    /// Figures of the stream.
    #[must_use]
    pub fn summary(&self) -> StreamSummary {
        let SequenceCounts { received, lost, duplicates, reordered, stale } = self.counts;
        let distinct = self.distinct();
        let of = self.sent.unwrap_or(distinct.saturating_add(lost));
        StreamSummary {
            wire_streams: self.wire_streams.clone(),
            sent: self.sent,
            received,
            bytes: self.bytes,
            distinct,
            lost,
            loss_ratio: (of > 0).then(|| lost as f64 / of as f64),
            excess: self.sent.map_or(0, |sent| distinct.saturating_sub(sent)),
            duplicates,
            reordered,
            stale,
            corrupted: self.corrupted,
            reordering: self.reordering.summary(),
            delay: self.delay.summary(),
        }
    }

    fn distinct(&self) -> u64 {
        self.counts.received - self.counts.duplicates - self.counts.stale
    }
}
