//! Live display of a run: loads and ports, redrawn each second at the same position.

use std::io::{self, Write};

use ringroad_generator::series::Interval;

use crate::output::rates::{frame_rate, grouped, span};
use crate::output::table::Columns;

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
        let mut loads = Columns::new(&["load", ">sent now", ">Gbit/s L1", ">frames"]);
        for (load, sent) in interval.loads.iter().zip(&mut self.sent) {
            *sent += load.sent.frames;
            loads.row([
                load.load.clone(),
                frame_rate(load.sent.rate_fps),
                format!("{:.3}", load.sent.l1_gbps),
                grouped(*sent),
            ]);
        }
        let mut ports = Columns::new(&[
            "port",
            ">received now",
            ">test frames",
            ">lost",
            ">duplicate",
            ">reordered",
            ">damaged",
            ">latency",
            ">p99",
            ">max",
        ]);
        for (port, sums) in interval.ports.iter().zip(&mut self.received) {
            let total = &port.test_frames.total;
            let now = [total.frames, total.duplicates, total.reordered, total.corrupted]
                .map(|frames| frames as i64);
            for (sum, frames) in sums.iter_mut().zip([now[0], total.lost, now[1], now[2], now[3]]) {
                *sum += frames;
            }
            let counts = sums.iter().map(|sum| grouped((*sum).max(0) as u64));
            let latency = total.latency.map_or([const { String::new() }; 3], |latency| {
                [latency.mean_ns, latency.p99_ns as f64, latency.max_ns as f64].map(span)
            });
            let head = [port.port.clone(), frame_rate(port.received.rate_fps)];
            ports.row(head.into_iter().chain(counts).chain(latency));
        }
        format!("{:.0} s\n{}{}", interval.until_s, loads.lines_or("no load"), ports.lines_or("no port"))
    }
}

#[cfg(test)]
mod tests {
    use ringroad_generator::series::{LoadInterval, PortInterval};
    use ringroad_traffic::meter::{IntervalCounts, IntervalReport};
    use ringroad_traffic::rate_meter::TrafficRate;

    use super::*;

    #[test]
    fn a_loss_is_taken_back_when_its_late_frame_arrives() {
        let interval = |frames, lost| Interval {
            from_s: 0.0,
            until_s: 1.0,
            loads: vec![LoadInterval {
                load: "load 0".to_owned(),
                sent: TrafficRate { frames: 1000, ..TrafficRate::default() },
            }],
            ports: vec![PortInterval {
                port: "b".to_owned(),
                received: TrafficRate::default(),
                test_frames: IntervalReport {
                    from_ns: 0,
                    until_ns: 1,
                    foreign_frames: 0,
                    corrupted_unattributed: 0,
                    unknown_stream_frames: 0,
                    total: IntervalCounts { frames, lost, ..IntervalCounts::default() },
                    streams: Vec::new(),
                },
            }],
        };
        let mut table = LiveTable::default();
        let first = table.text(&interval(998, 2));
        assert!(first.contains("1 000") && first.contains("998"), "{first}");
        let second = table.text(&interval(1001, -1));
        assert!(second.contains("2 000") && second.contains("1 999"), "{second}");
        assert_eq!(table.received[0], [1999, 1, 0, 0, 0]);
    }
}
