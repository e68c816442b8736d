//! Tasks from a plan and open ports: compiles streams, numbers them on the wire, and deals queue loads out to queues.

use std::sync::{Arc, Mutex};

use ringroad::PortInfo;
use ringroad_traffic::line_rate::{BitLayer, FCS_BYTES};
use ringroad_traffic::meter::{ExpectedStreams, Meter};
use ringroad_traffic::pacing::Departures;
use ringroad_traffic::signature::{FormSet, SignatureForm};
use ringroad_traffic::stream_mix::StreamMix;

use crate::control::Control;
use crate::error::SessionError;
use crate::open_port::OpenPort;
use crate::plan::{Load, MAX_WIRE_STREAMS, TestPlan, TestPlanError};
use crate::queue_task::QueueTask;
use crate::receiver::Receiver;
use crate::sender::{LoadTotals, QueueLoad, QueueLoadState, Sender};
use crate::session::SessionOptions;
use crate::shared::{FrameCounter, Shared};

/// A stream as one queue sends it. Signatures have its number, see [`WireNumbers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireStream {
    pub(crate) load: usize,
    /// Index of the stream in its load.
    pub(crate) stream: usize,
    pub(crate) signed: bool,
}

/// Number of streams that the shortest form of signature distinguishes.
const FEWEST_NUMBERS: usize = SignatureForm::Short.max_stream() as usize + 1;

/// Numbering of streams on the wire: consecutive from `first`, wrapping to 0 after the last number that fits every form
/// of signature. Consecutive sessions over the same ports use different numbers. A session thus does not count late
/// frames of the previous one, even if they have no time or are damaged. If there are more streams than numbers, the
/// first number is 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WireNumbers {
    first: usize,
    count: usize,
}

impl WireNumbers {
    fn new(first: u16, count: usize) -> Self {
        Self { first: if count <= FEWEST_NUMBERS { usize::from(first) } else { 0 }, count }
    }

    /// Number of the stream with this index; `None` for streams beyond the last that meters distinguish.
    pub(crate) fn number(self, index: usize) -> Option<u16> {
        let number = if self.count <= FEWEST_NUMBERS { (self.first + index) % FEWEST_NUMBERS } else { index };
        u16::try_from(number).ok().filter(|number| usize::from(*number) < MAX_WIRE_STREAMS)
    }

    /// Index of the stream with this number; `None` for numbers that the session does not use.
    pub(crate) fn index(self, number: u16) -> Option<usize> {
        let number = usize::from(number);
        let index = if self.count <= FEWEST_NUMBERS {
            (number < FEWEST_NUMBERS)
                .then(|| (number + FEWEST_NUMBERS - self.first % FEWEST_NUMBERS) % FEWEST_NUMBERS)?
        } else {
            number
        };
        (index < self.count).then_some(index)
    }

    /// First number on the wire of the next session.
    pub(crate) fn next(self) -> u16 {
        self.number(self.count).unwrap_or(0)
    }
}

/// Deals `plan` out to the queues of `ports`, which are in the plan's order. Streams are numbered from `first_number`.
/// Returns a task for each queue, and what the session shares with the tasks.
pub(crate) fn line_up(
    plan: &TestPlan,
    ports: Vec<OpenPort>,
    control: &Arc<Control>,
    options: &SessionOptions,
    start_ns: u64,
    first_number: u16,
) -> Result<(Vec<QueueTask>, Shared), SessionError> {
    if ports.len() != plan.ports.len() {
        return Err(SessionError::PortCount { planned: plan.ports.len(), given: ports.len() });
    }
    let (info, queues): (Vec<PortInfo>, Vec<Vec<_>>) =
        ports.into_iter().map(|port| (port.info, port.queues)).unzip();
    let streams_of =
        |load: &Load| plan.port_index(&load.from).map_or(0, |port| queues[port].len() * load.streams.len());
    let numbers = WireNumbers::new(first_number, plan.loads.iter().map(streams_of).sum());
    let mut wiring = Wiring { streams: Vec::new(), numbers, sent: Vec::new(), forms: FormSet::NONE };
    // Queue loads by port, then queue.
    let mut queue_loads: Vec<Vec<Vec<QueueLoad>>> =
        queues.iter().map(|queues| queues.iter().map(|_| Vec::new()).collect()).collect();
    for (index, load) in plan.loads.iter().enumerate() {
        let Some(port) = plan.port_index(&load.from) else { continue };
        let most = info[port].max_frame_bytes;
        let dealt = wiring.deal(index, load, queues[port].len())?;
        for (queue, queue_load) in dealt.into_iter().enumerate() {
            let frame_bytes = queue_load.mix.longest_slot_bytes();
            if frame_bytes > most {
                let port = info[port].name.clone();
                return Err(SessionError::FrameTooLong { load: load.name.clone(), frame_bytes, port, most });
            }
            queue_loads[port][queue].push(queue_load);
        }
    }
    let forms = if plan.loads.is_empty() { FormSet::ALL } else { wiring.forms };
    let (mut tasks, mut meters, mut received) = (Vec::new(), Vec::new(), Vec::new());
    for (port, (queues, queue_loads)) in queues.into_iter().zip(queue_loads).enumerate() {
        let meter = Arc::new(Mutex::new(Meter::new(wiring.expected_at(plan, port, start_ns))?));
        let mut counters = Vec::new();
        for (queue, queue_loads) in queues.into_iter().zip(queue_loads) {
            let counter = Arc::new(FrameCounter::default());
            counters.push(Arc::clone(&counter));
            let receiver = Receiver::new(Arc::clone(&meter), forms, counter, options.port_times);
            let sender = Sender::new(queue_loads, Arc::clone(control), options.burst.clamp(1, 4096));
            tasks.push(QueueTask { port, queue, sender, receiver });
        }
        meters.push(meter);
        received.push(counters);
    }
    let shared = Shared {
        info,
        meters,
        wire_streams: wiring.streams,
        wire_numbers: wiring.numbers,
        received,
        sent: wiring.sent,
    };
    Ok((tasks, shared))
}

/// Streams that are numbered so far.
struct Wiring {
    streams: Vec<WireStream>,
    numbers: WireNumbers,
    sent: Vec<Vec<Arc<FrameCounter>>>,
    forms: FormSet,
}

impl Wiring {
    /// The queue loads of a load, one for each of `queues` queues.
    fn deal(&mut self, index: usize, load: &Load, queues: usize) -> Result<Vec<QueueLoad>, SessionError> {
        let mut queue_loads = Vec::with_capacity(queues);
        let mut counters = Vec::with_capacity(queues);
        for queue in 0..queues {
            let first_stream = self.streams.len();
            let mut sources = Vec::with_capacity(load.streams.len());
            for (stream, definition) in load.streams.iter().enumerate() {
                let wire = self.numbers.number(self.streams.len()).ok_or(TestPlanError::TooManyStreams)?;
                let source = definition
                    .compile(wire)
                    .map_err(|source| SessionError::Stream {
                        load: load.name.clone(),
                        source: Box::new(source),
                    })?
                    .share(queue as u32, queues as u32)
                    .map_err(|source| SessionError::Share { load: load.name.clone(), source })?;
                let forms = source.forms();
                self.streams.push(WireStream { load: index, stream, signed: forms != FormSet::NONE });
                self.forms = self.forms.and(forms);
                sources.push((source, definition.weight));
            }
            let mix = StreamMix::new(sources)
                .map_err(|source| SessionError::Mix { load: load.name.clone(), source })?;
            let departures = Departures::new(
                &load.rate,
                &load.shape,
                mean_slot_bytes(&mix),
                1.0 / queues as f64,
                load.catch_up_frames,
                0,
            )
            .map_err(|source| SessionError::Rate { load: load.name.clone(), source })?;
            let counter = Arc::new(FrameCounter::default());
            counters.push(Arc::clone(&counter));
            queue_loads.push(QueueLoad {
                load: index,
                first_stream,
                mix,
                departures,
                frame_limit: load.frames.map_or(u64::MAX, |frames| part(frames, queue, queues)),
                duration_ns: load.duration_ns().unwrap_or(u64::MAX),
                delay_ns: load.delay_ns(),
                counter,
                totals: LoadTotals::default(),
                state: QueueLoadState::Idle,
                starts: 0,
            });
        }
        self.sent.push(counters);
        Ok(queue_loads)
    }

    /// The streams that a port's meter expects: the signed streams of the loads that lead to the port. All streams, if
    /// the plan has no load.
    fn expected_at(&self, plan: &TestPlan, port: usize, start_ns: u64) -> ExpectedStreams {
        if plan.loads.is_empty() {
            return ExpectedStreams { streams: None, latency: true, start_ns };
        }
        let leads_here = |load: &Load| load.to.iter().any(|label| plan.port_index(label) == Some(port));
        let expected = self
            .streams
            .iter()
            .enumerate()
            .filter(|(_, wire)| wire.signed && leads_here(&plan.loads[wire.load]))
            .filter_map(|(index, _)| self.numbers.number(index))
            .collect();
        ExpectedStreams { streams: Some(expected), latency: true, start_ns }
    }
}

/// Mean length of the frames, bytes without FCS.
pub(crate) fn mean_slot_bytes(mix: &StreamMix) -> f64 {
    mix.mean_bits(BitLayer::L2) / 8.0 - f64::from(FCS_BYTES)
}

/// Share of part `index` of `parts` when `whole` is divided.
fn part(whole: u64, index: usize, parts: usize) -> u64 {
    let (index, parts) = (index as u64, parts as u64);
    whole / parts + u64::from(index < whole % parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successive_sessions_number_their_streams_differently() {
        let mut first = 0;
        let mut last: Vec<u16> = Vec::new();
        for count in [1, 7, 100, 100, 100, 3] {
            let numbers = WireNumbers::new(first, count);
            let own: Vec<u16> = (0..count).map(|index| numbers.number(index).unwrap()).collect();
            assert!(own.iter().all(|number| !last.contains(number) && *number < 256), "{own:?} {last:?}");
            for (index, number) in own.iter().enumerate() {
                assert_eq!(numbers.index(*number), Some(index));
            }
            assert!(last.iter().all(|number| numbers.index(*number).is_none()));
            (first, last) = (numbers.next(), own);
        }
    }

    #[test]
    fn too_many_streams_for_short_forms_are_numbered_from_0() {
        let numbers = WireNumbers::new(200, MAX_WIRE_STREAMS + 1);
        assert_eq!(numbers.number(0), Some(0));
        assert_eq!(numbers.index(4000), Some(4000));
        assert_eq!(numbers.number(MAX_WIRE_STREAMS - 1), Some(65534));
        assert_eq!(numbers.number(MAX_WIRE_STREAMS), None);
    }
}
