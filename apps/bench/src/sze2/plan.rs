//! The plan of a comparison of DPDK drivers over a capture card.

use std::time::Duration;

use serde::Serialize;

use crate::plan::FRAME_SIZES_BYTES;

/// Work of testpmd on frames (its `--forward-mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ForwardMode {
    /// Receives and drops.
    RxOnly,
    /// Makes and sends.
    TxOnly,
    /// Receives and sends back.
    Io,
}

impl ForwardMode {
    /// Modes in the order of the published tables.
    pub const ALL: [Self; 3] = [Self::RxOnly, Self::TxOnly, Self::Io];

    /// Returns the name in testpmd and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RxOnly => "rxonly",
            Self::TxOnly => "txonly",
            Self::Io => "io",
        }
    }
}

/// Conditions of one row in a table, the same for all drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sze2Point {
    /// The work on frames.
    pub mode: ForwardMode,
    /// Frame size in bytes, FCS included.
    pub frame_bytes: u32,
    /// Number of frames per burst.
    pub burst_frames: u32,
    /// Number of queues, each on its own channel.
    pub queues: u16,
}

impl Sze2Point {
    /// Returns the line rate of such frames on 100 Gbit/s Ethernet, frames/s. Preamble and gap are 20 bytes per frame.
    #[must_use]
    pub fn line_rate_fps(&self) -> f64 {
        100e9 / (f64::from(self.frame_bytes + 20) * 8.0)
    }

    /// Returns the processor cycles per frame that the founding thesis published for the card, with the copy between
    /// buffer and mbuf and without it: one queue, bursts of 128, 2.6 GHz.
    #[must_use]
    pub fn published_cycles(&self) -> (Option<f64>, Option<f64>) {
        if self.burst_frames != 128 || self.queues != 1 {
            return (None, None);
        }
        match (self.mode, self.frame_bytes) {
            (ForwardMode::RxOnly, 64) => (Some(52.0), Some(42.0)),
            (ForwardMode::RxOnly, 1518) => (Some(533.0), Some(70.0)),
            (ForwardMode::TxOnly, 64) => (Some(52.0), None),
            (ForwardMode::TxOnly, 1518) => (Some(562.0), Some(262.0)),
            (ForwardMode::Io, 64) => (Some(109.0), Some(94.0)),
            (ForwardMode::Io, 1518) => (Some(1165.0), Some(435.0)),
            _ => (None, None),
        }
    }
}

/// The measured points and their settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sze2Plan {
    /// Modes of testpmd.
    pub modes: Vec<ForwardMode>,
    /// Frame sizes, FCS included.
    pub sizes_bytes: Vec<u32>,
    /// Numbers of frames per burst.
    pub bursts_frames: Vec<u32>,
    /// Numbers of queues.
    pub queues: Vec<u16>,
    /// Number of turns of each driver at each point.
    pub repeat: u32,
    /// Length of the measurement in a turn.
    #[serde(rename = "interval_seconds", serialize_with = "crate::plan::as_seconds")]
    pub interval: Duration,
}

impl Default for Sze2Plan {
    fn default() -> Self {
        Self {
            modes: ForwardMode::ALL.to_vec(),
            sizes_bytes: vec![64, 1518],
            bursts_frames: vec![128],
            queues: vec![1],
            repeat: 3,
            interval: Duration::from_secs(1),
        }
    }
}

impl Sze2Plan {
    /// Returns all points of the published tables that one machine can repeat.
    #[must_use]
    pub fn full() -> Self {
        Self {
            sizes_bytes: FRAME_SIZES_BYTES.to_vec(),
            bursts_frames: vec![32, 128],
            queues: vec![1, 2],
            ..Self::default()
        }
    }

    /// Returns the points, in the order of the tables.
    #[must_use]
    pub fn points(&self) -> Vec<Sze2Point> {
        let mut points = Vec::new();
        for &mode in &self.modes {
            for &queues in &self.queues {
                for &burst_frames in &self.bursts_frames {
                    let at_size = |&frame_bytes| Sze2Point { mode, frame_bytes, burst_frames, queues };
                    points.extend(self.sizes_bytes.iter().map(at_size));
                }
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rates_are_the_published_ones() {
        for (frame_bytes, fps) in [(64, 148_809_523.0), (512, 23_496_240.0), (1518, 8_127_438.0)] {
            let point = Sze2Point { mode: ForwardMode::RxOnly, frame_bytes, burst_frames: 32, queues: 1 };
            assert!((point.line_rate_fps() - fps).abs() < 1.0, "{frame_bytes}");
            assert_eq!(point.published_cycles(), (None, None));
        }
    }

    #[test]
    fn a_full_plan_has_every_row_once() {
        let points = Sze2Plan::full().points();
        assert_eq!(points.len(), 3 * 2 * 2 * 7);
        assert_eq!(
            points[0],
            Sze2Point { mode: ForwardMode::RxOnly, frame_bytes: 64, burst_frames: 32, queues: 1 }
        );
        assert!(points.iter().enumerate().all(|(number, point)| !points[..number].contains(point)));
    }
}
