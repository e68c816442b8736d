//! The time series of a session: frames sent and received in each interval.

use ringroad_traffic::meter::IntervalReport;
use ringroad_traffic::rate_meter::{RateMeter, TrafficRate, TrafficSnapshot};
use serde::Serialize;

use crate::plan::TestPlan;
use crate::shared::{FrameCount, Shared, lock};

/// Greatest number of streams of one port that an interval lists. With more streams it has only their sum.
const MOST_STREAMS: usize = 32;

/// Frames sent and received in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interval {
    /// Start of the interval, s after the start of the session.
    pub from_s: f64,
    /// End of the interval, s after the start of the session.
    pub until_s: f64,
    /// Sent frames by load.
    pub loads: Vec<LoadInterval>,
    /// Received frames by port.
    pub ports: Vec<PortInterval>,
}

/// Frames that a load sent in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadInterval {
    pub load: String,
    /// Frames sent.
    pub sent: TrafficRate,
}

/// Frames that a port received in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortInterval {
    /// The port's label.
    pub port: String,
    /// All received frames.
    pub received: TrafficRate,
    /// Received test frames, by stream if there are at most 32 streams.
    pub test_frames: IntervalReport,
}

/// The intervals so far.
#[derive(Debug, Default)]
pub(crate) struct Series {
    pub(crate) intervals: Vec<Interval>,
    last_ns: Option<u64>,
    sent: Vec<RateMeter>,
    received: Vec<RateMeter>,
}

impl Series {
    /// Ends an interval at `now_ns`. The first interval began at `start_ns`.
    pub(crate) fn next(&mut self, plan: &TestPlan, shared: &Shared, start_ns: u64, now_ns: u64) -> &Interval {
        let last_ns = *self.last_ns.get_or_insert(start_ns);
        let meters =
            |count| (0..count).map(|_| RateMeter::new(snapshot(FrameCount::default(), start_ns))).collect();
        if self.sent.len() != plan.loads.len() || self.received.len() != plan.ports.len() {
            (self.sent, self.received) = (meters(plan.loads.len()), meters(plan.ports.len()));
        }
        let loads = plan.loads.iter().zip(&mut self.sent).enumerate().map(|(index, (load, meter))| {
            LoadInterval { load: load.name.clone(), sent: meter.update(snapshot(shared.sent(index), now_ns)) }
        });
        let ports = plan.ports.iter().zip(&mut self.received).enumerate().map(|(index, (port, meter))| {
            let mut test_frames = lock(&shared.meters[index]).interval(now_ns);
            if test_frames.streams.len() > MOST_STREAMS {
                test_frames.streams.clear();
            }
            let received = meter.update(snapshot(shared.received(index), now_ns));
            PortInterval { port: port.label().to_owned(), received, test_frames }
        });
        let seconds = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        let interval = Interval {
            from_s: seconds(last_ns),
            until_s: seconds(now_ns),
            loads: loads.collect(),
            ports: ports.collect(),
        };
        self.last_ns = Some(now_ns);
        self.intervals.push(interval);
        // The vector has an element: one was pushed just now.
        &self.intervals[self.intervals.len() - 1]
    }
}

fn snapshot(count: FrameCount, now_ns: u64) -> TrafficSnapshot {
    TrafficSnapshot { frames: count.frames, bytes: count.bytes, now_ns }
}
