//! A configuration in operation: open ports, and flows that transmit or not.

use std::time::{Duration, Instant};

use ringroad::OpenOptions;
use ringroad_generator::clock::ClockError;
use ringroad_generator::report::{LoadReport, PortResult};
use ringroad_generator::{
    KeptPorts, SessionError, SessionOptions, SessionReport, SessionResult, TestSession,
};
use ringroad_traffic::line_rate::FCS_BYTES;
use ringroad_traffic::meter::{MeterReport, StreamReport, StreamSummary};
use ringroad_traffic::rate_meter::{RateMeter, TrafficRate, TrafficSnapshot};
use serde::Serialize;

use crate::config::Config;
use crate::refusal::Refusal;

/// Longest time until a flow has stopped after the request to stop: longer than a sender's longest sleep.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// Shortest time over which rates are measured, so that several clients can read them at the same time.
const LEAST_RATE_INTERVAL_NS: u64 = 200_000_000;

/// State of a flow, in the model's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Transmit {
    Started,
    Paused,
    Stopped,
}

/// Settings for opening sessions: all share one clock, which distinguishes their frames.
#[derive(Debug, Clone)]
pub(crate) struct SessionSettings {
    pub(crate) ports: OpenOptions,
    pub(crate) session: SessionOptions,
}

/// A port failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Failure {
    /// The port's name in the configuration, if it is known.
    pub(crate) port: Option<String>,
    pub(crate) reason: String,
}

/// Open ports and their flows.
#[derive(Debug)]
pub(crate) struct Traffic {
    config: Config,
    /// Session with the open ports. `None` if there are no ports, if they could not be opened again, or after a
    /// failure.
    session: Option<TestSession>,
    /// Error that ended the session, and the result until then.
    failed: Option<(Failure, SessionReport)>,
    flows: Vec<FlowRun>,
    /// Rates of each port: sent and received.
    port_rates: Vec<[Rate; 2]>,
    /// Origin of the times of rates.
    origin: Instant,
}

#[derive(Debug, Clone)]
struct FlowRun {
    last_command: Transmit,
    /// Whether the flow was started since the session was opened.
    was_started: bool,
    sent: Rate,
    received: Rate,
}

/// A rate (frames/s and others) that is measured anew from time to time.
#[derive(Debug, Clone)]
struct Rate {
    meter: RateMeter,
    now: TrafficRate,
    /// Time of the last update, ns after `origin`.
    updated_ns: u64,
}

/// Counters at one moment, by flow and by port in the configuration's order.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) flows: Vec<FlowCounts>,
    pub(crate) ports: Vec<FlowPortCounters>,
}

#[derive(Debug)]
pub(crate) struct FlowCounts {
    pub(crate) transmit: Transmit,
    pub(crate) sent: Traversal,
    /// Reception of the flow; `None` if the flow has no signature or no receiver.
    pub(crate) received: Option<(Traversal, StreamSummary)>,
}

#[derive(Debug)]
pub(crate) struct FlowPortCounters {
    pub(crate) transmit: Transmit,
    pub(crate) sent: Traversal,
    pub(crate) received: Traversal,
}

/// Frames in one direction. Bytes are without FCS.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traversal {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) rate: TrafficRate,
}

impl Traffic {
    /// Opens the ports of `config`. Ports among `kept` stay open; ports of `kept` that `config` does not name are
    /// closed. On failure, `kept` contains the ports that are still open.
    pub(crate) fn open(
        config: Config,
        kept: &mut KeptPorts,
        settings: &SessionSettings,
    ) -> Result<Self, Refusal> {
        let session = if config.ports.is_empty() {
            *kept = KeptPorts::default();
            None
        } else {
            Some(open(&config, kept, settings)?)
        };
        let (sent, received) = (Rate::default(), Rate::default());
        let idle = FlowRun { last_command: Transmit::Stopped, was_started: false, sent, received };
        let flows = vec![idle; config.flows.len()];
        let port_rates = vec![<[Rate; 2]>::default(); config.ports.len()];
        Ok(Self { config, session, failed: None, flows, port_rates, origin: Instant::now() })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Ends the session, and returns the configuration and the ports, which stay open.
    pub(crate) fn close(mut self) -> (Config, KeptPorts) {
        let kept = self.end_session();
        (self.config, kept)
    }

    fn end_session(&mut self) -> KeptPorts {
        self.session.take().map(|session| session.end(Duration::ZERO).ports).unwrap_or_default()
    }

    /// Starts `flows` with their counters at 0.
    pub(crate) fn start(&mut self, flows: &[usize], settings: &SessionSettings) -> Result<(), Refusal> {
        let again = flows.iter().any(|index| self.flows.get(*index).is_some_and(|flow| flow.was_started));
        if again || self.session.is_none() {
            self.renew(flows, settings)?;
        }
        self.go(flows)
    }

    /// Begins a new session over the same ports. Counters of the previous session are lost.
    fn renew(&mut self, flows: &[usize], settings: &SessionSettings) -> Result<(), Refusal> {
        let others: Vec<&str> = (0..self.flows.len())
            .filter(|index| !flows.contains(index) && self.transmit(*index) != Transmit::Stopped)
            .filter_map(|index| self.config.flows.get(index))
            .map(|flow| flow.name.as_str())
            .collect();
        if !others.is_empty() {
            return Err(Refusal::invalid(format!(
                "traffic.flow_transmit.flow_names: flows that were started before cannot start again, with their counters \
                 at 0, while others transmit; stop {} first",
                others.join(", ")
            )));
        }
        let mut kept = self.end_session();
        *self = Self::open(self.config.clone(), &mut kept, settings)?;
        Ok(())
    }

    /// Starts `flows` and continues their counters.
    pub(crate) fn resume(&mut self, flows: &[usize]) -> Result<(), Refusal> {
        let resting: Vec<usize> =
            flows.iter().copied().filter(|index| self.transmit(*index) != Transmit::Started).collect();
        self.go(&resting)
    }

    fn go(&mut self, flows: &[usize]) -> Result<(), Refusal> {
        let session = session(&mut self.session)?;
        for index in flows {
            if let Some(flow) = self.flows.get_mut(*index) {
                (flow.last_command, flow.was_started) = (Transmit::Started, true);
            }
        }
        session.start_loads(flows);
        Ok(())
    }

    /// Stops `flows`, and sets their state to `transmit`.
    pub(crate) fn stop(&mut self, flows: &[usize], transmit: Transmit) -> Result<(), Refusal> {
        let session = session(&mut self.session)?;
        session.stop_loads(flows);
        for index in flows {
            if let Some(flow) = self.flows.get_mut(*index) {
                flow.last_command = transmit;
            }
        }
        if self.flows.iter().all(|flow| flow.last_command != Transmit::Started) {
            // Waiting makes the counters final before the client reads them.
            session.wait_sent(STOP_LIMIT);
        }
        Ok(())
    }

    /// Whether any flow is transmitting.
    pub(crate) fn is_transmitting(&self) -> bool {
        (0..self.flows.len()).any(|index| self.transmit(index) == Transmit::Started)
    }

    fn transmit(&self, index: usize) -> Transmit {
        let last_command = self.flows.get(index).map_or(Transmit::Stopped, |flow| flow.last_command);
        let is_sending = self.session.as_ref().is_some_and(|session| session.is_sending(index));
        // A flow ends by itself when it has sent all its frames.
        if last_command == Transmit::Started && !is_sending { Transmit::Stopped } else { last_command }
    }

    /// Returns current counters and rates. The reception of flows is included only on request, since the receiving
    /// threads wait while it is copied.
    pub(crate) fn counts(&mut self, with_received_flows: bool) -> Result<Counts, Refusal> {
        self.check_health()?;
        // States come before counters, so that the counters of a stopped flow are final.
        let states: Vec<Transmit> = (0..self.config.flows.len()).map(|index| self.transmit(index)).collect();
        let meters: Vec<MeterReport> = match &self.session {
            Some(session) if with_received_flows => {
                (0..self.config.ports.len()).map(|port| session.meter(port)).collect()
            }
            _ => Vec::new(),
        };
        let states = states.into_iter().enumerate();
        let flows: Vec<FlowCounts> =
            states.map(|(index, transmit)| self.flow(index, transmit, &meters)).collect();
        let ports = (0..self.config.ports.len()).map(|index| self.port(index, &flows)).collect();
        let mut counts = Counts { flows, ports };
        let now_ns = self.origin.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        for (flow, run) in counts.flows.iter_mut().zip(&mut self.flows) {
            run.sent.update(now_ns, &mut flow.sent);
            if let Some((traversal, _)) = &mut flow.received {
                run.received.update(now_ns, traversal);
            }
        }
        for (port, [sent, received]) in counts.ports.iter_mut().zip(&mut self.port_rates) {
            sent.update(now_ns, &mut port.sent);
            received.update(now_ns, &mut port.received);
        }
        Ok(counts)
    }

    fn flow(&self, index: usize, transmit: Transmit, meters: &[MeterReport]) -> FlowCounts {
        let sent = self.session.as_ref().map(|session| session.sent(index)).unwrap_or_default();
        FlowCounts {
            sent: Traversal { frames: sent.frames, bytes: sent.bytes, ..Traversal::default() },
            received: self.received(index, meters).map(|stream| {
                let summary = stream.summary();
                let seen =
                    Traversal { frames: summary.received, bytes: summary.bytes, ..Traversal::default() };
                (seen, summary)
            }),
            transmit,
        }
    }

    /// Sums the reception of a flow over its receiving ports.
    fn received(&self, index: usize, meters: &[MeterReport]) -> Option<StreamReport> {
        let (config, session) = (self.config.flows.get(index)?, self.session.as_ref()?);
        let is_its = |stream: &&StreamReport| {
            stream
                .wire_streams()
                .first()
                .and_then(|number| session.wire_stream(*number))
                .is_some_and(|(load, _)| load == index)
        };
        let receiving =
            self.config.ports.iter().zip(meters).filter(|(port, _)| config.rx.contains(&port.name));
        let mut streams = receiving.flat_map(|(_, meter)| meter.streams.iter().filter(is_its));
        let mut sum = streams.next()?.clone();
        streams.for_each(|stream| sum.merge(stream));
        Some(sum)
    }

    fn port(&self, index: usize, flows: &[FlowCounts]) -> FlowPortCounters {
        let name = self.config.ports.get(index).map_or("", |port| &port.name);
        let own = || {
            self.config.flows.iter().zip(flows).filter(|(config, _)| config.tx == name).map(|(_, flow)| flow)
        };
        let transmits = own().any(|flow| flow.transmit == Transmit::Started);
        let received = self.session.as_ref().map(|session| session.received(index)).unwrap_or_default();
        FlowPortCounters {
            transmit: if transmits { Transmit::Started } else { Transmit::Stopped },
            sent: Traversal {
                frames: own().map(|flow| flow.sent.frames).sum(),
                bytes: own().map(|flow| flow.sent.bytes).sum(),
                ..Traversal::default()
            },
            received: Traversal { frames: received.frames, bytes: received.bytes, ..Traversal::default() },
        }
    }

    /// Returns the results of the flows' latest start; refused while a flow transmits.
    pub(crate) fn outcome(&mut self) -> Result<FlowResults, Refusal> {
        self.note_failure();
        if self.failed.is_none() && self.is_transmitting() {
            return Err(Refusal::invalid("a flow transmits; stop all flows, or wait for their end"));
        }
        let mut report = self.session.as_mut().and_then(TestSession::report);
        if self.session.is_some() && report.is_none() {
            // A missing report means that a port failed just now.
            self.note_failure();
        }
        let mut failure = None;
        if let Some((failed, what_came)) = &self.failed {
            (failure, report) = (Some(failed.clone()), Some(what_came.clone()));
        }
        let (clock, flows, ports) =
            report.map(|report| (report.clock, report.loads, report.ports)).unwrap_or_default();
        Ok(FlowResults { failure, clock, flows, ports })
    }

    /// Ends the session if a port failed, closes the other ports, and records which port failed and why.
    fn note_failure(&mut self) {
        let Some(failed) = self.session.take_if(|session| session.has_failed()) else { return };
        let SessionResult { report, outcome, .. } = failed.end(Duration::ZERO);
        let port = match &outcome {
            Err(SessionError::Port { port, .. }) => {
                report.ports.iter().find(|known| known.name == *port).map(|known| known.port.clone())
            }
            _ => None,
        };
        let reason = outcome.err().map_or_else(|| "a port failed".to_owned(), |error| error.to_string());
        self.failed = Some((Failure { port, reason }, report));
    }

    /// Checks that all ports work; if one failed, the refusal tells which and why.
    fn check_health(&mut self) -> Result<(), Refusal> {
        self.note_failure();
        if let Some((failure, _)) = &self.failed {
            return Err(Refusal::internal(format!("{}; set the configuration again", failure.reason)));
        }
        session(&mut self.session)
            .map(|_| ())
            .or_else(|refusal| if self.config.ports.is_empty() { Ok(()) } else { Err(refusal) })
    }
}

/// Results of the flows' latest start, and whether a port failed.
#[derive(Debug, Serialize)]
pub(crate) struct FlowResults {
    pub(crate) failure: Option<Failure>,
    pub(crate) clock: ClockError,
    pub(crate) flows: Vec<LoadReport>,
    pub(crate) ports: Vec<PortResult>,
}

fn session(session: &mut Option<TestSession>) -> Result<&mut TestSession, Refusal> {
    session.as_mut().ok_or_else(|| Refusal::internal("no port is open; set a configuration with ports"))
}

fn open(config: &Config, kept: &mut KeptPorts, settings: &SessionSettings) -> Result<TestSession, Refusal> {
    TestSession::open_keeping(config.plan(), kept, &settings.ports, &settings.session)
        .map_err(|error| refusal(config, &error))
}

/// The refusal for an error of the generator, in the words of the model.
fn refusal(config: &Config, error: &SessionError) -> Refusal {
    let port = |name: &str| config.ports.iter().position(|port| port.location == name);
    let flow = |name: &str| config.flows.iter().position(|flow| flow.name == name);
    let told = match error {
        SessionError::Open { port: name, .. } => {
            port(name).map(|index| format!("ports[{index}].location: {error}"))
        }
        SessionError::Stream { load, source } => {
            flow(load).map(|index| format!("flows[{index}]: {}", source.problem))
        }
        SessionError::Rate { load, source } => flow(load).map(|index| format!("flows[{index}].rate: {source}")),
        SessionError::FrameTooLong { load, frame_bytes, port, most } => flow(load).map(|index| {
            format!(
                "flows[{index}].size: frames of {} bytes given, and port {port} carries {} at most; give smaller ones, or \
                 a location with larger buffers or a larger MTU",
                frame_bytes + FCS_BYTES as usize,
                most + FCS_BYTES as usize
            )
        }),
        _ => None,
    };
    told.map_or_else(|| Refusal::internal(error.to_string()), Refusal::invalid)
}

impl Rate {
    fn update(&mut self, now_ns: u64, traversal: &mut Traversal) {
        if now_ns.saturating_sub(self.updated_ns) >= LEAST_RATE_INTERVAL_NS {
            let Traversal { frames, bytes, .. } = *traversal;
            self.now = self.meter.update(TrafficSnapshot { frames, bytes, now_ns });
            self.updated_ns = now_ns;
        }
        traversal.rate = self.now;
    }
}

impl Default for Rate {
    fn default() -> Self {
        let meter = RateMeter::new(TrafficSnapshot::default());
        Self { meter, now: TrafficRate::default(), updated_ns: 0 }
    }
}
