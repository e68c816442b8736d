//! Report of a run: a table for users, JSON for programs.
//!
//! The JSON contains the whole report: every sample of every round, with the data to repeat it. Its `schema` changes
//! when a field changes meaning or is removed; new fields can be added at any time.

use serde::Serialize;

use crate::contestant::{ContestantFacts, CorePair, CpuCost};
use crate::contestants::{Absent, Contestants};
use crate::facts::MachineFacts;
use crate::plan::{BenchPlan, Point};
use crate::ratio::{PairedRatio, ValueSummary};
use crate::runner::{PointSeries, RunResult};

mod table;

/// Name and version of the JSON's schema.
pub const SCHEMA: &str = "ringroad-bench/1";

/// The meaning of the numbers; part of every report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Conventions {
    /// Meaning of rates.
    pub rate: &'static str,
    /// Meaning of sizes.
    pub frame_size: &'static str,
    /// Meaning of Gbit/s.
    pub layer1: &'static str,
    /// Meaning of ratios.
    pub ratio: &'static str,
    /// Meaning of a cycle.
    pub cycle: &'static str,
    /// Meaning of processor time, on the paths over interfaces.
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
    cycle: "one tick of the time-stamp counter, at its constant rate, between two frames of one core: the core that forwards or \
            makes frames; where two cores work, the slower one",
};

/// Comparison of Ringroad with a peer at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of Ringroad's contestant; `None` if Ringroad does not take part.
    pub ours: Option<String>,
    pub peer: String,
    /// Ringroad's rate divided by the peer's; `None` if no round has both.
    pub ratio: Option<PairedRatio>,
}

/// Absolute figures of a contestant at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Absolute {
    pub contestant: String,
    /// Frames per second; `None` if no sample is valid.
    pub frames_per_second: Option<ValueSummary>,
    /// Frames per second of each direction, over the rounds.
    pub directions_fps: Vec<ValueSummary>,
    /// Gbit/s on a wire at the median rate.
    pub layer1_gbps: Option<f64>,
    /// Nanoseconds per frame at the median rate.
    pub ns_per_frame: Option<f64>,
    /// Time-stamp counter ticks of a core per frame; on the paths in memory.
    pub cycles_per_frame: Option<f64>,
    /// Median of the frames per second that reached the program, if more than it counted; on the receiving paths over
    /// interfaces.
    pub offered_fps: Option<f64>,
    /// Medians of the processor time per frame; on the paths over interfaces.
    pub cpu_cost: Option<CpuCost>,
    /// Share of time that the processes were ready to run without a CPU, of the median sample. Above a few percent,
    /// other programs were measured too.
    pub cpu_wait: Option<f64>,
    pub invalid_samples: usize,
}

/// Results of one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointReport {
    #[serde(flatten)]
    pub point: Point,
    /// Ratios of Ringroad to the peers.
    pub ratios: Vec<Comparison>,
    /// The absolute figures, Ringroad first.
    pub absolutes: Vec<Absolute>,
    /// Results of all turns.
    pub series: Vec<PointSeries>,
}

/// Report of a whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    /// Name and version of the schema: [`SCHEMA`].
    pub schema: &'static str,
    pub ringroad_version: &'static str,
    /// The meaning of the numbers.
    pub conventions: Conventions,
    /// Properties of the machine.
    pub machine: MachineFacts,
    /// Used cores.
    pub cores: CorePair,
    /// Processor time that the hypervisor took during the run, in percent.
    pub steal_percent: Option<f64>,
    /// The planned measurements.
    pub plan: BenchPlan,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
    /// Descriptions of the participants.
    pub contestants: Vec<ContestantFacts>,
    /// The missing contestants.
    pub absent: Vec<Absent>,
    /// Results by point.
    pub points: Vec<PointReport>,
}

impl BenchReport {
    /// Makes the report of a run.
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

    /// Formats the report as indented JSON.
    ///
    /// # Errors
    /// Errors of the serialiser; none is expected.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// Formats the report as tables, at most `width` columns wide (unlimited if not given).
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
            .filter(|_| !point.path.is_veth())
            .zip(tsc_hz)
            .map(|(seconds, hz)| seconds * hz * point.path.cores() as f64),
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
