//! The report of a run: a table for users, JSON for programs.
//!
//! The JSON is the report itself: every sample of every round with the data to repeat it. Its `schema` changes when a
//! field changes meaning or is removed; new fields can be added at any time.

use serde::Serialize;

use crate::contestant::{ContestantFacts, CorePair, CpuCost};
use crate::facts::MachineFacts;
use crate::peers::Absent;
use crate::plan::{BenchPlan, FramePath, Point};
use crate::ratio::{PairedRatio, ValueSummary};
use crate::runner::{Contestants, PointSeries, RunResult};

mod table;

/// Name and version of the JSON's shape.
pub const SCHEMA: &str = "ringroad-bench/1";

/// The meaning of the numbers; part of every report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Conventions {
    /// How rates are counted.
    pub rate: &'static str,
    /// How sizes are counted.
    pub frame_size: &'static str,
    /// How Gbit/s are counted.
    pub layer1: &'static str,
    /// How ratios are formed.
    pub ratio: &'static str,
    /// Definition of a cycle.
    pub cycle: &'static str,
    /// Definition of processor time, on the paths over interfaces.
    pub cpu_cost: &'static str,
}

/// The conventions of this version.
pub const CONVENTIONS: Conventions = Conventions {
    rate: "frames per second received at the end of the path; all directions together, on the null path both ports",
    frame_size: "bytes including 4 of FCS (RFC 2544); the slot or buffer holds 4 fewer",
    layer1: "Gbit/s with preamble and start delimiter (8 bytes), FCS (4) and gap (12) per frame, as on an Ethernet wire",
    ratio: "Ringroad's rate divided by the peer's, within each round; median, minimum and maximum over the rounds",
    cpu_cost: "of the program's process alone, by the scheduler's clock, split by ticks into user and kernel; with the kernel's work on \
               frames it sends, up to their arrival at the far interface, and without that on frames it receives, which the \
               sender's core does",
    cycle: "one tick of the time-stamp counter, at its constant rate, on the one core that forwards",
};

/// A peer beside Ringroad at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Ringroad's contestant; absent if it does not take part.
    pub ours: Option<String>,
    pub peer: String,
    /// Ringroad's rate over the peer's; absent if no round has both.
    pub ratio: Option<PairedRatio>,
}

/// A contestant's absolute figures at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Absolute {
    pub contestant: String,
    /// Frames per second; absent if no sample is valid.
    pub frames_per_second: Option<ValueSummary>,
    /// Each direction's frames per second, over the rounds.
    pub directions_fps: Vec<ValueSummary>,
    /// The median rate as Gbit/s on a wire.
    pub layer1_gbps: Option<f64>,
    /// Nanoseconds per frame, of the median rate.
    pub ns_per_frame: Option<f64>,
    /// Time-stamp counter ticks per frame of the one forwarding core; only on the null path.
    pub cycles_per_frame: Option<f64>,
    /// Median of the frames per second that reached the program, if that is more than it counted; on the paths over
    /// interfaces on which it receives.
    pub offered_fps: Option<f64>,
    /// Medians of the processor time that each frame took; on the paths over interfaces.
    pub cpu_cost: Option<CpuCost>,
    /// The median sample's share of time spent ready to run without a CPU: above a few percent, other programs were
    /// measured too.
    pub cpu_wait: Option<f64>,
    /// Samples that do not count.
    pub invalid_samples: usize,
}

/// One point of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointReport {
    #[serde(flatten)]
    pub point: Point,
    /// The ratios.
    pub ratios: Vec<Comparison>,
    /// The absolute figures, Ringroad first.
    pub absolutes: Vec<Absolute>,
    /// Every turn.
    pub series: Vec<PointSeries>,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of Ringroad.
    pub ringroad_version: &'static str,
    /// The meaning of the numbers.
    pub conventions: Conventions,
    /// The machine.
    pub machine: MachineFacts,
    /// The cores used.
    pub cores: CorePair,
    /// Processor time the hypervisor took during the run, in percent.
    pub steal_percent: Option<f64>,
    /// The planned measurements.
    pub plan: BenchPlan,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
    /// The participants.
    pub contestants: Vec<ContestantFacts>,
    /// The missing contestants.
    pub absent: Vec<Absent>,
    /// The results.
    pub points: Vec<PointReport>,
}

impl BenchReport {
    /// Puts a report together after a run.
    #[must_use]
    pub fn new(
        machine: MachineFacts,
        steal_percent: Option<f64>,
        cores: CorePair,
        plan: BenchPlan,
        contestants: &Contestants,
        result: RunResult,
    ) -> Self {
        let tsc_hz = machine.tsc_hz;
        Self {
            schema: SCHEMA,
            ringroad_version: env!("CARGO_PKG_VERSION"),
            conventions: CONVENTIONS,
            machine,
            cores,
            steal_percent,
            contestants: contestants.facts(&plan),
            plan,
            stopped: result.stopped,
            absent: contestants.absent.clone(),
            points: result
                .points
                .into_iter()
                .map(|result| PointReport {
                    point: result.point,
                    ratios: comparisons(&result.series),
                    absolutes: result
                        .series
                        .iter()
                        .map(|series| absolute(&result.point, series, tsc_hz))
                        .collect(),
                    series: result.series,
                })
                .collect(),
        }
    }

    /// The report as indented JSON.
    ///
    /// # Errors
    /// Errors of the serialiser; none is expected.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// The report as tables, at most `width` columns wide (unlimited if not given).
    #[must_use]
    pub fn to_table(&self, width: Option<u16>) -> String {
        table::render(self, width)
    }
}

fn comparisons(series: &[PointSeries]) -> Vec<Comparison> {
    let (ours, peers): (Vec<&PointSeries>, Vec<&PointSeries>) = series.iter().partition(|series| series.ours);
    let compare = |ours: Option<&PointSeries>, peer: &PointSeries| Comparison {
        ours: ours.map(|ours| ours.contestant.clone()),
        peer: peer.contestant.clone(),
        ratio: ours.and_then(|ours| PairedRatio::of(&ours.rates_fps(), &peer.rates_fps())),
    };
    if ours.is_empty() {
        return peers.into_iter().map(|peer| compare(None, peer)).collect();
    }
    ours.iter().flat_map(|ours| peers.iter().map(|peer| compare(Some(*ours), peer))).collect()
}

fn absolute(point: &Point, series: &PointSeries, tsc_hz: Option<f64>) -> Absolute {
    let samples: Vec<_> = series.outcomes.iter().filter_map(|outcome| outcome.sample()).collect();
    let rate = ValueSummary::of(samples.iter().map(|sample| sample.frames_per_second));
    let median_fps = rate.map(|rate| rate.median).filter(|median| *median > 0.0);
    let directions = samples.iter().map(|sample| sample.directions_fps.len()).max().unwrap_or(0);
    let seconds_per_frame = median_fps.map(f64::recip);
    let costs = || samples.iter().filter_map(|sample| sample.cpu_cost);
    Absolute {
        contestant: series.contestant.clone(),
        frames_per_second: rate,
        directions_fps: (0..directions)
            .filter_map(|direction| {
                ValueSummary::of(
                    samples.iter().filter_map(|sample| sample.directions_fps.get(direction).copied()),
                )
            })
            .collect(),
        layer1_gbps: median_fps.map(|fps| point.layer1_bps(fps) / 1e9),
        ns_per_frame: seconds_per_frame.map(|seconds| seconds * 1e9),
        cycles_per_frame: seconds_per_frame
            .filter(|_| point.path == FramePath::Null)
            .and_then(|seconds| tsc_hz.map(|hz| hz * seconds)),
        offered_fps: median(samples.iter().filter_map(|sample| sample.offered_fps)),
        cpu_cost: median(costs().map(|cost| cost.user_ns_per_frame))
            .zip(median(costs().map(|cost| cost.kernel_ns_per_frame)))
            .map(|(user_ns_per_frame, kernel_ns_per_frame)| CpuCost {
                user_ns_per_frame,
                kernel_ns_per_frame,
            }),
        cpu_wait: median(samples.iter().filter_map(|sample| sample.cpu_wait)),
        invalid_samples: series.outcomes.len() - samples.len(),
    }
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    ValueSummary::of(values).map(|summary| summary.median)
}

#[cfg(test)]
mod tests;
