//! Reception of test frames: counted and measured per stream, at a receiving port.
//!
//! Threads that receive read each frame's signature into a [`Digest`], which needs no lock, and hand a batch of them to
//! the port's [`Meter`]. The meter counts frames that arrived intact, duplicated, reordered, damaged or not at all, and
//! measures latency. It returns a [`MeterReport`] of all frames, or an [`IntervalReport`] of the frames since the
//! previous interval report.
//!
//! ```text
//! all frames of the port
//! ├ foreign: no signature
//! ├ of a run before
//! ├ damaged signature ── of a known stream: its corrupted; else the port's
//! └ intact signature ─── of a known stream: its received; else the port's unknown
//!     received = in order + reordered + duplicates + stale
//!     lost     = sent - in order - reordered
//! ```
//!
//! A stream takes about 10 KiB of memory, and 8 KiB for each octave of its latencies, or 16 KiB from the first interval
//! report on. It takes up to 200 KiB more while gaps in its numbers wait to be filled. This memory is allocated when a
//! stream, an octave or a gap first appears, not per frame.

mod delay;
mod distribution;
mod histogram;
mod interval;
mod reordering;
mod report;
mod stream;

use thiserror::Error;

pub use self::delay::{DelaySummary, IpdvSummary};
pub use self::distribution::{Distribution, DistributionSummary};
pub use self::interval::{IntervalCounts, IntervalLatency, IntervalReport, StreamInterval};
pub use self::reordering::ReorderingSummary;
pub use self::report::{MeterReport, MeterSummary, PortCounts, StreamReport, StreamSummary};

use self::stream::StreamMeter;
use crate::sequence::SequenceTracker;
use crate::signature::{FormSet, Signature, SignatureReading, read_signature};

/// Number of streams that are accepted as they appear. Frames of further streams are counted as frames of unknown
/// streams.
pub const MAX_APPEARING_STREAMS: usize = 1024;

/// Data of a frame that the meter needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// Reading of the frame's signature.
    pub reading: SignatureReading,
    /// Length of the frame in its slots, bytes without FCS.
    pub len: u32,
    /// Arrival time, ns of the clock of the sender's timestamps.
    pub arrival_ns: u64,
}

impl Digest {
    /// Digest of a whole `frame` without FCS that arrived at `arrival_ns`.
    #[inline]
    #[must_use]
    pub fn new(frame: &[u8], forms: FormSet, arrival_ns: u64) -> Self {
        // Neither a slot nor all slots of a ring together have more bytes than a u32 counts.
        Self { reading: read_signature(frame, forms), len: frame.len() as u32, arrival_ns }
    }
}

/// Streams that a meter expects, and what it measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedStreams {
    /// Streams by their numbers on the wire. Their frames are numbered from 0. `None`: up to [`MAX_APPEARING_STREAMS`]
    /// as they appear, each numbered from its first frame.
    pub streams: Option<Vec<u16>>,
    /// Whether latency is measured. False for a sender that sets no timestamps.
    pub latency: bool,
    /// Start of the first interval, ns of the timestamps' clock. If streams are listed, frames that left before the
    /// start are counted separately.
    pub start_ns: u64,
}

/// Reason why a meter cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MeterConfigError {
    /// The list has a number twice.
    #[error("streams: {0} is listed twice; the number of each stream on the wire must be its own")]
    RepeatedStream(u16),
}

/// Index that stands for an unknown stream.
const UNKNOWN: u32 = u32::MAX;

/// Counts and measures frames that arrive at one port.
#[derive(Debug, Clone)]
pub struct Meter {
    latency: bool,
    accepts_streams: bool,
    start_ns: u64,
    /// Indexes in `streams`, by number on the wire.
    indices: Vec<u32>,
    streams: Vec<StreamMeter>,
    port: PortCounts,
    interval_start_ns: u64,
    /// Counters at the start of the interval.
    port_before: PortCounts,
    /// Latencies of all streams in an interval, kept to reuse the memory.
    interval_latencies: Distribution,
}

impl Meter {
    /// Makes a meter that has counted nothing.
    pub fn new(config: ExpectedStreams) -> Result<Self, MeterConfigError> {
        let mut meter = Self {
            latency: config.latency,
            accepts_streams: config.streams.is_none(),
            start_ns: config.start_ns,
            indices: Vec::new(),
            streams: Vec::new(),
            port: PortCounts::default(),
            interval_start_ns: config.start_ns,
            port_before: PortCounts::default(),
            interval_latencies: Distribution::default(),
        };
        for wire_stream in config.streams.unwrap_or_default() {
            if meter.index(wire_stream).is_some() {
                return Err(MeterConfigError::RepeatedStream(wire_stream));
            }
            meter.add(wire_stream, SequenceTracker::starting_at(0));
        }
        Ok(meter)
    }

    /// Counts a batch of frames of the port, in order of arrival.
    pub fn record(&mut self, digests: &[Digest]) {
        for digest in digests {
            self.port.frames += 1;
            self.port.bytes += u64::from(digest.len);
            match &digest.reading {
                SignatureReading::Intact(signature) if self.is_earlier(signature, digest.arrival_ns) => {
                    self.port.earlier_frames += 1;
                }
                SignatureReading::Intact(signature) => match self.index_or_add(signature.stream) {
                    Some(index) => {
                        self.streams[index].record(signature, digest.len, digest.arrival_ns, self.latency);
                    }
                    None => self.port.unknown_stream_frames += 1,
                },
                SignatureReading::Corrupted { stream } => match self.index(*stream) {
                    Some(index) => self.streams[index].record_corrupted(),
                    None => self.port.corrupted_unattributed += 1,
                },
                SignatureReading::Foreign => {
                    self.port.foreign_frames += 1;
                    self.port.foreign_bytes += u64::from(digest.len);
                }
            }
        }
    }

    /// Reception since the last call, or since the start. `now_ns` is a time of the caller's clock.
    pub fn interval(&mut self, now_ns: u64) -> IntervalReport {
        let mut total = IntervalCounts::default();
        self.interval_latencies.clear();
        let mut streams = Vec::with_capacity(self.streams.len());
        for stream in &mut self.streams {
            let counts = stream.interval(&mut self.interval_latencies);
            total.add(&counts);
            streams.push(StreamInterval { wire_stream: stream.wire_stream(), counts });
        }
        let (now, before) = (&self.port, &self.port_before);
        let report = IntervalReport {
            from_ns: self.interval_start_ns,
            until_ns: now_ns,
            foreign_frames: now.foreign_frames - before.foreign_frames,
            corrupted_unattributed: now.corrupted_unattributed - before.corrupted_unattributed,
            unknown_stream_frames: now.unknown_stream_frames - before.unknown_stream_frames,
            total: total.with_latencies(&self.interval_latencies),
            streams,
        };
        self.interval_start_ns = now_ns;
        self.port_before = self.port;
        report
    }

    /// Reception so far. The report is a copy, which takes some microseconds for each stream.
    #[must_use]
    pub fn report(&self) -> MeterReport {
        MeterReport { port: self.port, streams: self.streams.iter().map(StreamMeter::report).collect() }
    }

    /// Whether a frame left before this meter began, as a queue may hold back frames of a previous run. Always false if
    /// the meter accepts streams as they appear.
    #[inline]
    fn is_earlier(&self, signature: &Signature, arrival_ns: u64) -> bool {
        !self.accepts_streams
            && signature.timestamp_ns(arrival_ns).is_some_and(|departure_ns| departure_ns < self.start_ns)
    }

    #[inline]
    fn index(&self, wire_stream: u16) -> Option<usize> {
        match self.indices.get(usize::from(wire_stream)) {
            None | Some(&UNKNOWN) => None,
            Some(&index) => Some(index as usize),
        }
    }

    #[inline]
    fn index_or_add(&mut self, wire_stream: u16) -> Option<usize> {
        match self.index(wire_stream) {
            None if self.accepts_streams && self.streams.len() < MAX_APPEARING_STREAMS => {
                Some(self.add(wire_stream, SequenceTracker::new()))
            }
            index => index,
        }
    }

    /// Adds a new stream and returns its index.
    #[cold]
    fn add(&mut self, wire_stream: u16, sequence: SequenceTracker) -> usize {
        let index = self.streams.len();
        let wire_index = usize::from(wire_stream);
        if self.indices.len() <= wire_index {
            self.indices.resize(wire_index + 1, UNKNOWN);
        }
        self.indices[wire_index] = index as u32;
        self.streams.push(StreamMeter::new(wire_stream, sequence));
        index
    }
}

#[cfg(test)]
mod tests;
