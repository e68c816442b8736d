//! Live display of a run: loads and ports, redrawn each second at the same position.

use std::io::{self, Write};

use ringroad_generator::series::{Interval, PortInterval};
use ringroad_traffic::meter::IntervalLatency;

use crate::output::rates::{frame_rate, grouped, span};
use crate::output::table::table;

/// A table on standard error that each drawing overwrites.
#[derive(Debug, Default)]
pub(super) struct LiveTable {
    /// Number of lines in the last drawing.
    lines: usize,
    /// Frames sent so far, by load.
    sent: Vec<u64>,
    /// Received, lost, duplicate, reordered and damaged test frames so far, by port.
    received: Vec<[i64; 5]>,
}

impl LiveTable {
    /// Draws the counts of `interval`, and the sums.
    pub(super) fn draw(&mut self, interval: &Interval) {
        let text = self.text(interval);
        self.clear();
        self.lines = text.lines().count();
        // A failure to draw is ignored.
        let _ = write!(io::stderr(), "{text}");
    }

    /// Removes the table from the screen.
    pub(super) fn clear(&mut self) {
        if self.lines > 0 {
            // Escape sequences: cursor up by the number of lines, to the first column, and "erase to the end of the
            // screen" (ECMA-48: CUU, ED).
            let _ = write!(io::stderr(), "\x1b[{}A\r\x1b[J", self.lines);
            self.lines = 0;
        }
    }

    fn text(&mut self, interval: &Interval) -> String {
        self.sent.resize(interval.loads.len(), 0);
        self.received.resize(interval.ports.len(), [0; 5]);
        for (load, sent) in interval.loads.iter().zip(&mut self.sent) {
            *sent += load.sent.frames;
        }
        for (port, sums) in interval.ports.iter().zip(&mut self.received) {
            let total = &port.test_frames.total;
            let now = [total.frames, total.duplicates, total.reordered, total.corrupted]
                .map(|frames| frames as i64);
            for (sum, frames) in sums.iter_mut().zip([now[0], total.lost, now[1], now[2], now[3]]) {
                *sum += frames;
            }
        }
        let loads = table(
            interval.loads.iter().zip(&self.sent),
            &[
                ("load", |(load, _)| load.load.clone()),
                (">sent now", |(load, _)| frame_rate(load.sent.rate_fps)),
                (">Gbit/s L1", |(load, _)| format!("{:.3}", load.sent.l1_gbps)),
                (">frames", |(_, sent)| grouped(**sent)),
            ],
            "no load",
        );
        let ports = table(
            interval.ports.iter().zip(&self.received),
            &[
                ("port", |(port, _)| port.port.clone()),
                (">received now", |(port, _)| frame_rate(port.received.rate_fps)),
                (">test frames", |(_, sums)| count(sums[0])),
                (">lost", |(_, sums)| count(sums[1])),
                (">duplicate", |(_, sums)| count(sums[2])),
                (">reordered", |(_, sums)| count(sums[3])),
                (">damaged", |(_, sums)| count(sums[4])),
                (">latency", |(port, _)| latency(port, |latency| latency.mean_ns)),
                (">p99", |(port, _)| latency(port, |latency| latency.p99_ns as f64)),
                (">max", |(port, _)| latency(port, |latency| latency.max_ns as f64)),
            ],
            "no port",
        );
        format!("{:.0} s\n{loads}{ports}", interval.until_s)
    }
}

fn count(sum: i64) -> String {
    grouped(sum.max(0) as u64)
}

fn latency(port: &PortInterval, value_ns: fn(&IntervalLatency) -> f64) -> String {
    port.test_frames.total.latency.as_ref().map_or(String::new(), |latency| span(value_ns(latency)))
}
