//! The plan of a comparison of DPDK drivers over a capture card.

use std::time::Duration;

use serde::Serialize;

use super::Driver;
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

/// Processors and queues of testpmd. The documents name them by cores and threads: "4C/2T" are two threads on each of
/// four cores, with a queue for each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct QueueLayout {
    /// Number of cores that forward.
    pub cores: u16,
    /// Number of forwarding threads on each core, each on a processor of its own.
    pub threads_per_core: u16,
    /// Number of queues, each on its own channel, spread over the threads.
    pub queues: u16,
}

impl QueueLayout {
    /// The configurations of the documents, in their order.
    pub const PUBLISHED: [Self; 7] = [
        Self::published(1, 1),
        Self::published(1, 2),
        Self::published(2, 1),
        Self::published(2, 2),
        Self::published(4, 1),
        Self::published(4, 2),
        Self::published(8, 1),
    ];

    const fn published(cores: u16, threads_per_core: u16) -> Self {
        Self { cores, threads_per_core, queues: cores * threads_per_core }
    }

    /// One thread for `queues` queues.
    #[must_use]
    pub const fn one_thread(queues: u16) -> Self {
        Self { cores: 1, threads_per_core: 1, queues }
    }

    /// Number of forwarding threads.
    #[must_use]
    pub const fn threads(self) -> usize {
        self.cores as usize * self.threads_per_core as usize
    }

    /// Whether the documents have this layout.
    #[must_use]
    pub fn is_published(self) -> bool {
        Self::PUBLISHED.contains(&self)
    }

    /// Returns the name in tables and on the command line.
    #[must_use]
    pub fn name(self) -> String {
        let Self { cores, threads_per_core, queues } = self;
        let queues = if self.is_published() { String::new() } else { format!(", {queues} queues") };
        format!("{cores}C/{threads_per_core}T{queues}")
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
    #[serde(flatten)]
    pub layout: QueueLayout,
}

impl Sze2Point {
    /// Bits of such a frame on the wire, with preamble and gap of 20 bytes.
    #[must_use]
    pub fn line_bits(&self) -> f64 {
        f64::from(self.frame_bytes + 20) * 8.0
    }

    /// Returns the line rate of such frames on 100 Gbit/s Ethernet, frames/s.
    #[must_use]
    pub fn line_rate_fps(&self) -> f64 {
        100e9 / self.line_bits()
    }

    /// Returns the processor cycles per frame in the driver's calls that the founding thesis published for the card,
    /// with the copy between buffer and mbuf and without it: one queue, bursts of 128, 2.6 GHz.
    #[must_use]
    pub fn published_cycles(&self) -> (Option<f64>, Option<f64>) {
        if self.burst_frames != 128 || self.layout != QueueLayout::one_thread(1) {
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

    /// Returns the share of 100 Gbit/s line rate, percent, that the thesis states in words for the card with the copy,
    /// bursts of 128. Its charts have more values, but are not to be had. For `io` it states that the share was
    /// greater, and no layout; the paper states eight cores.
    #[must_use]
    pub fn published_line_percent(&self) -> Option<f64> {
        let QueueLayout { cores, queues, .. } = self.layout;
        if self.burst_frames != 128
            || !self.layout.is_published()
            || !FRAME_SIZES_BYTES.contains(&self.frame_bytes)
        {
            return None;
        }
        match (self.mode, self.frame_bytes) {
            (ForwardMode::RxOnly, 64) => (queues >= 4).then_some(97.0),
            (ForwardMode::RxOnly, 128) => (queues >= 4).then_some(100.0),
            (ForwardMode::RxOnly, _) => (queues >= 2).then_some(100.0),
            (ForwardMode::TxOnly, 64) => (cores >= 8).then_some(97.0),
            (ForwardMode::TxOnly, 128) => (cores >= 8).then_some(100.0),
            (ForwardMode::TxOnly, _) => (cores >= 4).then_some(100.0),
            (ForwardMode::Io, 128) => (cores >= 8).then_some(80.0),
            (ForwardMode::Io, _) => (cores >= 8).then_some(90.0),
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
    /// Processors and queues.
    pub layouts: Vec<QueueLayout>,
    /// Drivers, in the order of the tables.
    pub drivers: Vec<Driver>,
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
            layouts: vec![QueueLayout::one_thread(1)],
            drivers: Driver::ALL.to_vec(),
            repeat: 3,
            interval: Duration::from_secs(1),
        }
    }
}

impl Sze2Plan {
    /// Returns all points of the published tables and charts.
    #[must_use]
    pub fn full() -> Self {
        Self {
            sizes_bytes: FRAME_SIZES_BYTES.to_vec(),
            bursts_frames: vec![32, 128],
            layouts: QueueLayout::PUBLISHED.to_vec(),
            ..Self::default()
        }
    }

    /// Returns the points of section 5.6 of the thesis: what the copy costs, or gains, at each of many sizes.
    #[must_use]
    pub fn multiread() -> Self {
        Self {
            modes: vec![ForwardMode::RxOnly],
            sizes_bytes: (64..=512).step_by(2).collect(),
            drivers: vec![Driver::Szedata2 { copy: true }, Driver::Szedata2 { copy: false }],
            ..Self::default()
        }
    }

    /// Returns the points, in the order of the tables.
    #[must_use]
    pub fn points(&self) -> Vec<Sze2Point> {
        let mut points = Vec::new();
        for &mode in &self.modes {
            for &layout in &self.layouts {
                for &burst_frames in &self.bursts_frames {
                    let at_size = |&frame_bytes| Sze2Point { mode, frame_bytes, burst_frames, layout };
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

    const ONE: QueueLayout = QueueLayout::one_thread(1);

    fn point(mode: ForwardMode, frame_bytes: u32, layout: QueueLayout) -> Sze2Point {
        Sze2Point { mode, frame_bytes, burst_frames: 128, layout }
    }

    #[test]
    fn line_rates_are_the_published_ones() {
        for (frame_bytes, fps) in [(64, 148_809_523.0), (512, 23_496_240.0), (1518, 8_127_438.0)] {
            let point = Sze2Point { burst_frames: 32, ..point(ForwardMode::RxOnly, frame_bytes, ONE) };
            assert!((point.line_rate_fps() - fps).abs() < 1.0, "{frame_bytes}");
            assert_eq!(point.published_cycles(), (None, None));
        }
    }

    #[test]
    fn shares_of_line_rate_are_the_published_ones() {
        let share = |mode, bytes, name: &str| {
            let layout = QueueLayout::PUBLISHED.into_iter().find(|layout| layout.name() == name).unwrap();
            point(mode, bytes, layout).published_line_percent()
        };
        assert_eq!(share(ForwardMode::RxOnly, 64, "4C/1T"), Some(97.0));
        assert_eq!(share(ForwardMode::RxOnly, 128, "2C/1T"), None);
        assert_eq!(share(ForwardMode::RxOnly, 256, "1C/2T"), Some(100.0));
        assert_eq!(share(ForwardMode::TxOnly, 64, "4C/2T"), None);
        assert_eq!(share(ForwardMode::TxOnly, 64, "8C/1T"), Some(97.0));
        assert_eq!(share(ForwardMode::Io, 128, "8C/1T"), Some(80.0));
        assert_eq!(
            point(ForwardMode::RxOnly, 256, QueueLayout::one_thread(2)).published_line_percent(),
            None
        );
    }

    #[test]
    fn a_full_plan_has_every_row_once() {
        let points = Sze2Plan::full().points();
        assert_eq!(points.len(), 3 * 7 * 2 * 7);
        assert_eq!(points[0], Sze2Point { burst_frames: 32, ..point(ForwardMode::RxOnly, 64, ONE) });
        assert!(points.iter().enumerate().all(|(number, point)| !points[..number].contains(point)));
    }

    #[test]
    fn a_multiread_plan_has_the_sizes_of_the_thesis_for_the_driver_alone() {
        let plan = Sze2Plan::multiread();
        let points = plan.points();
        assert_eq!(
            (points.len(), points[1], plan.drivers.len()),
            (225, point(ForwardMode::RxOnly, 66, ONE), 2)
        );
        assert_eq!(points[224].frame_bytes, 512);
    }

    #[test]
    fn a_layout_that_is_not_published_has_its_queues_in_its_name() {
        assert_eq!(QueueLayout::one_thread(1).name(), "1C/1T");
        assert_eq!(QueueLayout::one_thread(2).name(), "1C/1T, 2 queues");
        assert_eq!(QueueLayout::PUBLISHED[5].name(), "4C/2T");
        assert_eq!(QueueLayout::PUBLISHED[5].queues, 8);
    }
}
