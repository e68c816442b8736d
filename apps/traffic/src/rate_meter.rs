//! Rates from counters.

use serde::Serialize;

use crate::line_rate::BitLayer;

const NS_PER_S: f64 = 1e9;
const BITS_PER_GIGABIT: f64 = 1e9;

/// Values of two counters at one moment. The counters only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficSnapshot {
    /// Number of frames so far.
    pub frames: u64,
    /// Bytes of the frames without FCS, as the ports count them.
    pub bytes: u64,
    /// Time of the snapshot, ns of a monotonic clock.
    pub now_ns: u64,
}

/// Traffic over an interval. All rates of an empty interval are 0.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct TrafficRate {
    /// Length of the interval, ns.
    pub interval_ns: u64,
    /// Number of frames in the interval.
    pub frames: u64,
    /// Bytes of the frames, without FCS.
    pub bytes: u64,
    /// Rate, frames/s.
    pub rate_fps: f64,
    /// Rate on the line, Gbit/s: with FCS, preamble, delimiter and gap.
    pub l1_gbps: f64,
    /// Rate of frames with their FCS, Gbit/s.
    pub l2_gbps: f64,
}

impl TrafficRate {
    fn new(interval_ns: u64, frames: u64, bytes: u64) -> Self {
        let per_s = |count: f64| if interval_ns == 0 { 0.0 } else { count * NS_PER_S / interval_ns as f64 };
        let gbps = |layer: BitLayer| {
            let line_bytes = bytes as f64 + frames as f64 * f64::from(layer.bytes_over_slot());
            per_s(line_bytes * 8.0) / BITS_PER_GIGABIT
        };
        Self {
            interval_ns,
            frames,
            bytes,
            rate_fps: per_s(frames as f64),
            l1_gbps: gbps(BitLayer::L1),
            l2_gbps: gbps(BitLayer::L2),
        }
    }
}

/// Rates from snapshots, since the last snapshot and since the first.
///
/// A counter that became smaller was restarted: its value is then the count since the last snapshot. A snapshot no
/// later than the last one is skipped: its counts are part of the next interval.
#[derive(Debug, Clone)]
pub struct RateMeter {
    first_ns: u64,
    last: TrafficSnapshot,
    frames: u64,
    bytes: u64,
}

impl RateMeter {
    /// Makes a meter for the time after `first`.
    #[must_use]
    pub fn new(first: TrafficSnapshot) -> Self {
        Self { first_ns: first.now_ns, last: first, frames: 0, bytes: 0 }
    }

    /// Adds a snapshot and returns the traffic since the last one.
    pub fn update(&mut self, snapshot: TrafficSnapshot) -> TrafficRate {
        let interval_ns = snapshot.now_ns.saturating_sub(self.last.now_ns);
        if interval_ns == 0 {
            return TrafficRate::default();
        }
        let frames = growth(self.last.frames, snapshot.frames);
        let bytes = growth(self.last.bytes, snapshot.bytes);
        self.last = snapshot;
        self.frames = self.frames.saturating_add(frames);
        self.bytes = self.bytes.saturating_add(bytes);
        TrafficRate::new(interval_ns, frames, bytes)
    }

    /// Traffic from the first snapshot to the last.
    #[must_use]
    pub fn overall(&self) -> TrafficRate {
        TrafficRate::new(self.last.now_ns.saturating_sub(self.first_ns), self.frames, self.bytes)
    }
}

fn growth(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn at(now_ns: u64, frames: u64) -> TrafficSnapshot {
        TrafficSnapshot { frames, bytes: frames * 60, now_ns }
    }

    #[test]
    fn rates_are_since_the_last_snapshot_and_overall() {
        let mut meter = RateMeter::new(at(SECOND_NS, 1000));
        let first = meter.update(at(2 * SECOND_NS, 1_001_000));
        assert_eq!((first.frames, first.bytes, first.interval_ns), (1_000_000, 60_000_000, SECOND_NS));
        assert_eq!((first.rate_fps, first.l1_gbps, first.l2_gbps), (1e6, 0.672, 0.512));
        let second = meter.update(at(4 * SECOND_NS, 1_001_000));
        assert_eq!((second.rate_fps, second.l1_gbps, second.interval_ns), (0.0, 0.0, 2 * SECOND_NS));
        let overall = meter.overall();
        assert_eq!((overall.frames, overall.interval_ns), (1_000_000, 3 * SECOND_NS));
        assert!((overall.rate_fps - 1e6 / 3.0).abs() < 1e-6);
    }

    #[test]
    fn a_full_ten_gigabit_link_shows_ten_gigabit_on_the_line() {
        let mut meter = RateMeter::new(at(0, 0));
        let rate = meter.update(at(21 * SECOND_NS, 312_500_000));
        assert!((rate.l1_gbps - 10.0).abs() < 1e-9, "{rate:?}");
    }

    #[test]
    fn a_counter_started_anew_counts_from_zero() {
        let mut meter = RateMeter::new(at(0, 5000));
        assert_eq!(meter.update(at(SECOND_NS, 300)).frames, 300);
        assert_eq!(meter.overall().frames, 300);
    }

    #[test]
    fn a_snapshot_no_later_than_the_last_belongs_to_the_next_interval() {
        let mut meter = RateMeter::new(at(SECOND_NS, 0));
        assert_eq!(meter.overall(), TrafficRate::default());
        assert_eq!(meter.update(at(SECOND_NS, 10)), TrafficRate::default());
        assert_eq!(meter.update(at(0, 10)), TrafficRate::default());
        assert_eq!(meter.update(at(2 * SECOND_NS, 15)).frames, 15);
    }
}
