//! The results of a session.

use std::collections::HashMap;

use ringroad::Reconnections;
use ringroad_traffic::meter::{MeterReport, PortCounts, StreamReport, StreamSummary};
use ringroad_traffic::pacing::{DepartureError, DepartureErrorReport, LoadShape, OfferedLoad, RateSpec};
use ringroad_traffic::rate_meter::{RateMeter, TrafficRate, TrafficSnapshot};
use serde::Serialize;

use crate::clock::ClockError;
use crate::plan::{Load, TestPlan};
use crate::series::Interval;
use crate::shared::{FrameCount, Shared, lock};
use crate::totals::{QueueLoadRecord, TaskTotals, ThreadTotals};

/// The results of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionReport {
    /// The clock of the session, and its error.
    pub clock: ClockError,
    /// Counts by port.
    pub ports: Vec<PortResult>,
    /// Results by load.
    pub loads: Vec<LoadReport>,
    /// The time series, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
}

/// Counts of a port.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortResult {
    /// The port's name in loads.
    pub port: String,
    /// The port's full name.
    pub name: String,
    /// Driver of the port.
    pub driver: String,
    /// The mechanism in use, in words.
    pub mode: String,
    /// Frames handed over.
    pub sent: FrameCount,
    /// Slots handed over that the other side has never taken.
    pub unsent_slots: u64,
    /// Number of times that the port reconnected after its daemon ended.
    #[serde(skip_serializing_if = "Reconnections::is_none")]
    pub reconnections: Reconnections,
    /// Time for which frames were due and the ring had no room, ns, summed over the queues.
    pub blocked_ns: u64,
    /// Number of received frames whose arrival times are the port's; absent if all are this program's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_timed_frames: Option<u64>,
    /// Counts of received frames that belong to no stream.
    pub received: PortCounts,
}

/// The results of a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadReport {
    pub load: String,
    /// The port that sent.
    pub from: String,
    /// The rate of the plan.
    pub intended_rate: RateSpec,
    /// Intended spacing of frames in time.
    pub shape: LoadShape,
    /// The rate of the plan, frames/s of the mean length; absent for the maximum rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intended_fps: Option<f64>,
    /// Mean frame size, bytes with FCS.
    pub mean_size_bytes: f64,
    /// The offered load, beside the intended load.
    pub offered: OfferedLoad,
    /// Intended frames that were not sent: skipped, or waiting when the load ended.
    pub unsent_frames: u64,
    /// Time from the departure of the first frame to that of the last, over all starts, ns; absent if nothing was sent.
    /// Frames handed over by one sync departed together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub departure_span_ns: Option<u64>,
    /// Frames sent.
    pub sent: FrameCount,
    /// Sent frames over the time from the start to the end of the load.
    pub rate: TrafficRate,
    /// The error of the sender's timing; absent at full speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<DepartureErrorReport>,
    /// Arrivals of all streams, by receiving port.
    pub arrivals: Vec<ArrivalReport>,
    /// Results by stream; absent if the load has a single stream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamOutcome>,
}

/// Arrivals of a load or stream at one port.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArrivalReport {
    /// The port's label.
    pub port: String,
    /// The measurement.
    #[serde(flatten)]
    pub stream: StreamSummary,
}

/// The results of one stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamOutcome {
    pub stream: String,
    /// Frames sent.
    pub sent_frames: u64,
    /// Arrivals, by receiving port.
    pub arrivals: Vec<ArrivalReport>,
}

impl SessionReport {
    /// Combines the counts of all threads.
    pub(crate) fn new(
        plan: &TestPlan,
        shared: &Shared,
        threads: &[ThreadTotals],
        intervals: Vec<Interval>,
    ) -> Self {
        let clock =
            threads.iter().map(|thread| thread.clock_error).reduce(ClockError::merge).unwrap_or_default();
        let meters: Vec<MeterReport> = shared.meters.iter().map(|meter| lock(meter).report()).collect();
        let tasks = || threads.iter().flat_map(|thread| &thread.tasks);
        let ports = plan.ports.iter().enumerate().map(|(index, port)| {
            let info = &shared.info[index];
            let tasks = || tasks().filter(|task| task.port == index);
            PortResult {
                port: port.label().to_owned(),
                name: info.name.clone(),
                driver: info.driver.clone(),
                mode: info.mode.clone(),
                sent: tasks()
                    .flat_map(|task| &task.queue_loads)
                    .map(|queue_load| queue_load.totals.sent)
                    .sum(),
                unsent_slots: tasks().map(|task| u64::from(task.unsent_slots)).sum(),
                // All queues of a port report the same number.
                reconnections: tasks().next_back().map(|task| task.reconnections).unwrap_or_default(),
                blocked_ns: tasks().map(|task| task.blocked_ns).sum(),
                port_timed_frames: tasks().map(|task| task.port_timed).sum(),
                received: meters[index].port,
            }
        });
        let ports = ports.collect();
        let queue_loads: Vec<&QueueLoadRecord> =
            tasks().flat_map(|task: &TaskTotals| &task.queue_loads).collect();
        let meters: Vec<_> = meters.iter().map(by_wire_stream).collect();
        let loads = plan.loads.iter().enumerate().map(|(index, load)| {
            let queue_loads: Vec<&QueueLoadRecord> =
                queue_loads.iter().copied().filter(|queue_load| queue_load.load == index).collect();
            LoadReport::new(plan, load, &queue_loads, shared, &meters)
        });
        Self { clock, ports, loads: loads.collect(), intervals }
    }
}

impl LoadReport {
    fn new(
        plan: &TestPlan,
        load: &Load,
        queue_loads: &[&QueueLoadRecord],
        shared: &Shared,
        meters: &[ByWireStream<'_>],
    ) -> Self {
        let sent: FrameCount = queue_loads.iter().map(|queue_load| queue_load.totals.sent).sum();
        let offered = queue_loads
            .iter()
            .map(|queue_load| queue_load.totals.offered)
            .fold(OfferedLoad::default(), OfferedLoad::merge);
        let sending = || {
            queue_loads
                .iter()
                .filter_map(|queue_load| Some((queue_load.totals.first_ns?, queue_load.totals.last_ns)))
        };
        let (first_ns, last_ns) =
            (sending().map(|(first, _)| first).min(), sending().map(|(_, last)| last).max());
        let intended_fps: Option<f64> = queue_loads.iter().map(|queue_load| queue_load.intended_fps).sum();
        let timing = queue_loads
            .iter()
            .map(|queue_load| queue_load.totals.timing.clone())
            .reduce(|mut all: DepartureError, timing| {
                all.merge(&timing);
                all
            })
            .filter(|_| intended_fps.is_some())
            .map(|timing| timing.report());
        let mut meter = RateMeter::new(TrafficSnapshot::default());
        meter.update(TrafficSnapshot { frames: sent.frames, bytes: sent.bytes, now_ns: offered.elapsed_ns });
        let streams: Vec<(StreamOutcome, Vec<StreamReport>)> = (0..load.streams.len())
            .map(|stream| outcome(plan, load, stream, queue_loads, shared, meters))
            .collect();
        let arrivals = load.to.iter().enumerate().filter_map(|(index, port)| {
            let all = streams.iter().filter_map(|(_, reports)| reports.get(index)).cloned();
            let total = all.reduce(|mut total, report| {
                total.merge(&report);
                total
            })?;
            Some(ArrivalReport { port: port.clone(), stream: total.summary() })
        });
        let arrivals = arrivals.collect();
        let streams = if streams.len() > 1 {
            streams.into_iter().map(|(outcome, _)| outcome).collect()
        } else {
            Vec::new()
        };
        Self {
            load: load.name.clone(),
            from: load.from.clone(),
            intended_rate: load.rate,
            shape: load.shape,
            intended_fps,
            mean_size_bytes: queue_loads.first().map_or(0.0, |queue_load| queue_load.mean_size_bytes),
            offered,
            unsent_frames: offered.shortfall_frames(),
            departure_span_ns: first_ns.zip(last_ns).map(|(first, last)| last.saturating_sub(first)),
            sent,
            rate: meter.overall(),
            timing,
            arrivals,
            streams,
        }
    }
}

/// Streams of a meter by their number on the wire.
type ByWireStream<'a> = HashMap<u16, &'a StreamReport>;

fn by_wire_stream(meter: &MeterReport) -> ByWireStream<'_> {
    meter
        .streams
        .iter()
        .flat_map(|report| report.wire_streams().iter().map(move |number| (*number, report)))
        .collect()
}

/// Reception of stream number `stream` of a load: the figures for the report, and the complete measurements by expected
/// port. A meter cannot recognise frames of a stream without signatures.
fn outcome(
    plan: &TestPlan,
    load: &Load,
    stream: usize,
    queue_loads: &[&QueueLoadRecord],
    shared: &Shared,
    meters: &[ByWireStream<'_>],
) -> (StreamOutcome, Vec<StreamReport>) {
    let sent = |queue_load: &QueueLoadRecord| queue_load.sent.get(stream).copied().unwrap_or(0);
    let mut arrivals = Vec::new();
    for port in load.to.iter().filter_map(|label| plan.port_index(label)) {
        let parts = queue_loads.iter().filter_map(|queue_load| {
            let wire_stream = shared.wire_numbers.number(queue_load.first_stream + stream)?;
            let mut part = (*meters[port].get(&wire_stream)?).clone();
            part.complete(sent(queue_load));
            Some(part)
        });
        arrivals.extend(parts.reduce(|mut all, part| {
            all.merge(&part);
            all
        }));
    }
    let named = |(port, report): (&String, &StreamReport)| ArrivalReport {
        port: port.clone(),
        stream: report.summary(),
    };
    let outcome = StreamOutcome {
        stream: load.streams[stream].name.clone(),
        sent_frames: queue_loads.iter().map(|queue_load| sent(queue_load)).sum(),
        arrivals: load.to.iter().zip(&arrivals).map(named).collect(),
    };
    (outcome, arrivals)
}
