//! Conversion of the datapath's records and the daemon's reports to samples.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ringroad_control::report::PortReport;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame_record::FrameRecord;
use ringroad_port::port_index::PortIndex;
use serde::Serialize;

use crate::collector::Collector;
use crate::datagram::{
    CounterSample, DatagramSender, DirectionCounters, FCS_BYTES, FlowSample, SampledOutput, Samples,
};

/// Longest time that a sample waits for further samples (section 5: one second).
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// First index for interfaces of switches. They have the upper half of the 24 bits for the index of a data source,
/// apart from the machine's own interfaces.
const FIRST_INTERFACE: u32 = 0x80_0000;

/// Settings of an exporter.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the switch.
    pub switch: String,
    /// Sampling rate N: one of N frames of each port is sampled.
    pub sampling_rate: u32,
    /// Maximum number of bytes of a frame in a sample.
    pub header_bytes: usize,
    /// Address of the agent; `None` means the source address of the first datagram.
    pub agent: Option<IpAddr>,
}

/// Counters of an exporter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExporterCounters {
    /// Number of samples of frames.
    pub flow_samples: u64,
    /// Number of samples of counters.
    pub counter_samples: u64,
    /// Number of datagrams that were sent and not refused.
    pub datagrams: u64,
    /// Number of datagrams that could not be sent, or that the collector's machine refused.
    pub failed_datagrams: u64,
    /// Number of samples that the datapath dropped because the exporter was too slow.
    pub dropped_samples: u64,
    /// Number of frames from the datapath that were not a record of a sample.
    pub foreign_frames: u64,
}

/// A counter that continues when its source begins again at 0, such as a new daemon.
#[derive(Debug, Clone, Copy, Default)]
struct Continued {
    before: u64,
    last: u64,
}

impl Continued {
    fn update(&mut self, now: u64) {
        if now < self.last {
            self.before = self.before.saturating_add(self.last);
        }
        self.last = now;
    }

    fn total(self) -> u64 {
        self.before.saturating_add(self.last)
    }
}

/// A port as a source of samples (section 3).
#[derive(Debug, Default)]
struct Source {
    /// Name of the port; `None` until the daemon has reported it.
    name: Option<String>,
    /// Number of frames of the port, by worker, since each worker counts separately.
    pool: BTreeMap<u8, Continued>,
    flow_sequence: u32,
    counter_sequence: u32,
    received_frames: u64,
    delivered_frames: u64,
}

impl Source {
    /// Returns the number of frames from which samples were taken, up to frame `number` of a worker.
    fn pool_at(&mut self, worker: u8, number: u64) -> u64 {
        self.pool.entry(worker).or_default().update(number.saturating_add(1));
        self.pool.values().fold(0, |sum, count| sum.wrapping_add(count.total()))
    }
}

/// Exporter of one switch to one collector.
#[derive(Debug)]
pub struct Exporter {
    options: Options,
    /// Number that distinguishes the switches of one agent.
    switch_number: u32,
    sources: BTreeMap<u8, Source>,
    drops: Continued,
    samples: Samples,
    /// Arrival time of the oldest sample.
    waiting_since: Option<Instant>,
    collector: Collector,
    sequence: u32,
    started: Instant,
    counts: ExporterCounters,
}

/// Returns the number of a switch, 15 bits of a hash of its name. The number is the same whenever an exporter starts,
/// without a list of switches.
fn switch_number(name: &str) -> u32 {
    // FNV-1a.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 15 ^ hash) & 0x7fff
}

impl Exporter {
    /// Makes an exporter that starts at `now`.
    #[must_use]
    pub fn new(options: Options, collector: Collector, now: Instant) -> Self {
        Self {
            switch_number: switch_number(&options.switch),
            options,
            sources: BTreeMap::new(),
            drops: Continued::default(),
            samples: Samples::default(),
            waiting_since: None,
            collector,
            sequence: 0,
            started: now,
            counts: ExporterCounters::default(),
        }
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counts(&self) -> ExporterCounters {
        let (datagrams, failed_datagrams) = self.collector.counts();
        ExporterCounters { datagrams, failed_datagrams, dropped_samples: self.drops.total(), ..self.counts }
    }

    /// Returns a line about a collector that cannot be reached; rarely, however long that lasts.
    pub fn trouble(&mut self, now: Instant) -> Option<String> {
        self.collector.trouble(now)
    }

    /// Takes a frame from the mirror's port: a [`FrameRecord`] and the frame's first bytes.
    pub fn record(&mut self, bytes: &[u8], now: Instant) {
        let Some((record, start)) = FrameRecord::read(bytes) else {
            self.counts.foreign_frames += 1;
            return;
        };
        let source = self.sources.entry(record.from.0).or_default();
        let sample_pool = source.pool_at(record.worker, record.number) as u32;
        source.flow_sequence = source.flow_sequence.wrapping_add(1);
        let sequence = source.flow_sequence;
        self.counts.flow_samples += 1;
        let sample = FlowSample {
            sequence,
            input: self.interface(record.from),
            sampling_rate: self.options.sampling_rate,
            sample_pool,
            drops: self.drops.total() as u32,
            output: match record.destinations {
                0 => SampledOutput::Nowhere,
                1 => SampledOutput::Interface(self.interface(record.to)),
                count => SampledOutput::Several(count.into()),
            },
            frame_bytes: record.frame_bytes,
            header: start.get(..self.options.header_bytes).unwrap_or(start),
        };
        self.add(now, |samples| samples.add_flow(&sample));
    }

    /// Takes the daemon's report of the sampled switch's ports. `mirror` is the port that receives the records: its
    /// drops are lost samples, and it is not an interface.
    pub fn report(&mut self, ports: &[PortReport], mirror: &str, now: Instant) {
        let mut there = BTreeSet::new();
        for port in ports {
            if port.switch.as_ref() != Some(&self.options.switch) {
                continue;
            }
            if port.name == mirror {
                self.drops.update(total(&port.counters.drops, |_| true));
                continue;
            }
            let Some(index) = port.index.map(PortIndex).filter(|index| index.is_port()) else { continue };
            if there.insert(index.0) {
                self.count(index, port, now);
            }
        }
        self.sources.retain(|index, _| there.contains(index));
    }

    /// Adds a sample of a port's counters.
    fn count(&mut self, index: PortIndex, port: &PortReport, now: Instant) {
        let interface = self.interface(index);
        let source = self.sources.entry(index.0).or_default();
        // A different name means that another port has the index now.
        if source.name.as_ref().is_some_and(|name| *name != port.name) {
            *source = Source::default();
        }
        source.name = Some(port.name.clone());
        let counters = &port.counters;
        // Counters that begin again must have a sequence that begins again (section 5).
        let is_anew = counters.received_frames < source.received_frames
            || counters.delivered_frames < source.delivered_frames;
        source.counter_sequence = if is_anew { 1 } else { source.counter_sequence.wrapping_add(1) };
        (source.received_frames, source.delivered_frames) =
            (counters.received_frames, counters.delivered_frames);
        self.counts.counter_samples += 1;
        let direction = |frames: u64, bytes: u64, loss| DirectionCounters {
            octets: bytes.saturating_add(frames.saturating_mul(FCS_BYTES.into())),
            frames,
            discards: total(&counters.drops, |cause| loss_of(cause) == loss),
            errors: 0,
        };
        let received = direction(counters.received_frames, counters.received_bytes, Lost::Inbound);
        let sample = CounterSample {
            sequence: source.counter_sequence,
            interface,
            name: &port.name,
            speed_bps: port.link.as_ref().and_then(|link| link.speed_bps).unwrap_or(0),
            is_enabled: port.link.as_ref().is_none_or(|link| link.up),
            is_up: port.bound && port.error.is_none() && port.link.as_ref().is_none_or(|link| link.running),
            received: DirectionCounters {
                errors: total(&counters.drops, |cause| loss_of(cause) == Lost::Wrong),
                ..received
            },
            sent: direction(counters.delivered_frames, counters.delivered_bytes, Lost::Outbound),
        };
        self.add(now, |samples| samples.add_counters(&sample));
    }

    /// Returns how long samples can still wait; `None` if there are none.
    #[must_use]
    pub fn patience(&self, now: Instant) -> Option<Duration> {
        let since = self.waiting_since?;
        Some(LONGEST_WAIT.saturating_sub(now.duration_since(since)))
    }

    /// Sends the samples if they have waited long enough.
    pub fn tick(&mut self, now: Instant) {
        if self.patience(now).is_some_and(|patience| patience.is_zero()) {
            self.flush(now);
        }
    }

    /// Sends all samples.
    pub fn flush(&mut self, now: Instant) {
        self.waiting_since = None;
        if self.samples.count() == 0 {
            return;
        }
        self.options.agent = self.options.agent.or_else(|| self.collector.local_address(now));
        self.sequence = self.sequence.wrapping_add(1);
        let sender = DatagramSender {
            agent: self.options.agent.unwrap_or(IpAddr::from([0; 4])),
            sub_agent: self.switch_number,
            sequence: self.sequence,
            uptime_ms: now.duration_since(self.started).as_millis() as u32,
        };
        let datagram = self.samples.take(sender);
        self.collector.send(datagram, now);
    }

    fn add(&mut self, now: Instant, add: impl Fn(&mut Samples) -> bool) {
        if !add(&mut self.samples) {
            self.flush(now);
            // An empty datagram has room for any sample.
            let _ = add(&mut self.samples);
        }
        self.waiting_since.get_or_insert(now);
    }

    fn interface(&self, port: PortIndex) -> u32 {
        FIRST_INTERFACE | self.switch_number << 8 | u32::from(port.0)
    }
}

/// Counter of an interface for a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// `ifInErrors`.
    Wrong,
    /// `ifInDiscards`.
    Inbound,
    /// `ifOutDiscards`.
    Outbound,
}

fn loss_of(cause: &str) -> Lost {
    let is = |causes: &[DropCause]| causes.iter().any(|known| known.name() == cause);
    if is(&[DropCause::TooShort, DropCause::BadOffload, DropCause::Incomplete]) {
        Lost::Wrong
    } else if is(&[
        DropCause::ToSelf,
        DropCause::PortGone,
        DropCause::NoDestination,
        DropCause::Looped,
        DropCause::MirrorPort,
        DropCause::KernelDropped,
    ]) {
        Lost::Inbound
    } else {
        Lost::Outbound
    }
}

fn total(drops: &BTreeMap<String, u64>, counts: impl Fn(&str) -> bool) -> u64 {
    let counted = drops.iter().filter(|(cause, _)| counts(cause));
    counted.fold(0, |sum, (_, frames)| sum.saturating_add(*frames))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use ringroad_control::report::CounterReport;

    use super::*;

    const MIRROR: &str = "vale0:sflow";

    /// Makes an exporter of a switch, and the socket of a collector.
    fn exporter(now: Instant) -> (Exporter, UdpSocket) {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        collector.set_nonblocking(true).unwrap();
        let address = collector.local_addr().unwrap().to_string();
        let options =
            Options { switch: "vale0".to_owned(), sampling_rate: 10, header_bytes: 64, agent: None };
        (Exporter::new(options, Collector::new(address.parse().unwrap()), now), collector)
    }

    /// Receives the next datagram, as words.
    fn words(collector: &UdpSocket) -> Option<Vec<u32>> {
        let mut bytes = [0; 2000];
        let len = collector.recv(&mut bytes).ok()?;
        Some(bytes[..len].chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect())
    }

    fn record(from: u8, worker: u8, number: u64, len: usize) -> Vec<u8> {
        let record = FrameRecord {
            number,
            frame_bytes: len as u32,
            from: PortIndex(from),
            destinations: 1,
            to: PortIndex(9),
            worker,
        };
        [&record.to_bytes()[..], &vec![7; len.min(128)]].concat()
    }

    fn port(name: &str, index: u8, received: u64, drops: &[(&str, u64)]) -> PortReport {
        let drops = drops.iter().map(|(cause, frames)| ((*cause).to_owned(), *frames)).collect();
        PortReport {
            name: name.to_owned(),
            switch: Some("vale0".to_owned()),
            index: Some(index),
            bound: true,
            counters: CounterReport {
                received_frames: received,
                received_bytes: 60 * received,
                drops,
                ..Default::default()
            },
            ..PortReport::default()
        }
    }

    /// Returns sequence, pool and drops of the one flow sample of the next datagram.
    fn flow(exporter: &mut Exporter, collector: &UdpSocket, now: Instant) -> (u32, u32, u32) {
        exporter.flush(now);
        let words = words(collector).unwrap();
        assert_eq!(words[6], 1, "one sample");
        (words[9], words[12], words[13])
    }

    #[test]
    fn the_pool_of_a_port_is_the_sum_of_its_workers_and_never_decreases() {
        let now = Instant::now();
        let (mut exporter, collector) = exporter(now);
        let mut pools = Vec::new();
        for (worker, number) in [(0, 9), (1, 4), (0, 19), (0, 2), (0, 12)] {
            exporter.record(&record(3, worker, number, 60), now);
            pools.push(flow(&mut exporter, &collector, now));
        }
        // Worker 0 begins again after 20 frames.
        assert_eq!(pools, [(1, 10, 0), (2, 15, 0), (3, 25, 0), (4, 28, 0), (5, 38, 0)]);
        exporter.record(&record(4, 0, 0, 60), now);
        assert_eq!(flow(&mut exporter, &collector, now), (1, 1, 0), "another port has its own");
    }

    #[test]
    fn a_sample_has_its_ports_its_length_and_the_frames_first_bytes() {
        let now = Instant::now();
        let (mut exporter, collector) = exporter(now);
        exporter.record(&record(3, 0, 0, 1000), now);
        exporter.flush(now);
        let words = words(&collector).unwrap();
        let port = |index: u32| 0x80_0000 | switch_number("vale0") << 8 | index;
        assert_eq!(words[..7], [5, 1, 0x7f00_0001, switch_number("vale0"), 1, words[5], 1]);
        assert_eq!(words[9..17], [1, port(3), 10, 1, 0, port(3), port(9), 1]);
        assert_eq!(words[19..23], [1, 1004, 4, 64]);
        assert_eq!(words.len(), 23 + 16);
    }

    #[test]
    fn frames_that_are_not_records_are_counted_and_not_exported() {
        let now = Instant::now();
        let (mut exporter, collector) = exporter(now);
        for bytes in [&[][..], &[0xff; 60], &record(254, 0, 0, 60), &record(3, 0, 0, 60)[..70]] {
            exporter.record(bytes, now);
        }
        exporter.flush(now);
        assert_eq!((words(&collector), exporter.counts().foreign_frames), (None, 4));
    }

    #[test]
    fn counters_are_of_the_switchs_ports_and_drops_of_the_mirrors_port_are_lost_samples() {
        let now = Instant::now();
        let (mut exporter, collector) = exporter(now);
        let other = PortReport { switch: Some("vale1".to_owned()), ..port("vale1:x", 5, 1, &[]) };
        let mirror = |drops| port(MIRROR, 7, 0, &[("no_space", drops)]);
        let drops = [("looped", 2), ("no_space", 3), ("too_short", 4)];
        exporter.report(&[port("vale0:a", 1, 100, &drops), other, mirror(6)], MIRROR, now);
        exporter.flush(now);
        let words = words(&collector).unwrap();
        assert_eq!((words[6], words[7]), (1, 2), "one sample, of counters");
        let if_counters = &words[14..];
        assert_eq!(if_counters[5], 3, "up");
        assert_eq!(if_counters[6..14], [0, 6400, 100, u32::MAX, u32::MAX, 2, 4, u32::MAX]);
        assert_eq!(if_counters[14..22], [0, 0, 0, u32::MAX, u32::MAX, 3, 0, 0]);
        // Reports of a restarted daemon, whose counters add to the drops.
        exporter.report(&[mirror(1)], MIRROR, now);
        exporter.record(&record(1, 0, 0, 60), now);
        assert_eq!(flow(&mut exporter, &collector, now).2, 7);
    }

    #[test]
    fn the_sequence_of_counters_begins_anew_with_them_and_with_another_port() {
        let now = Instant::now();
        let (mut exporter, collector) = exporter(now);
        let mut sequences = Vec::new();
        for (name, received) in
            [("vale0:a", 5), ("vale0:a", 9), ("vale0:a", 3), ("vale0:a", 3), ("vale0:b", 8)]
        {
            exporter.report(&[port(name, 1, received, &[])], MIRROR, now);
            exporter.flush(now);
            sequences.push(words(&collector).unwrap()[9]);
        }
        assert_eq!(sequences, [1, 2, 1, 2, 1]);
    }

    #[test]
    fn a_sample_waits_for_others_a_second_at_most() {
        let now = Instant::now();
        let (mut exporter, collector) = exporter(now);
        assert_eq!(exporter.patience(now), None);
        exporter.record(&record(3, 0, 0, 60), now);
        exporter.tick(now + LONGEST_WAIT / 2);
        assert_eq!(words(&collector), None);
        assert_eq!(exporter.patience(now + LONGEST_WAIT / 2), Some(LONGEST_WAIT / 2));
        exporter.tick(now + LONGEST_WAIT);
        assert_eq!(words(&collector).unwrap()[6], 1);
        // A full datagram does not wait.
        for number in 0..20 {
            exporter.record(&record(3, 0, number, 60), now);
        }
        assert!(words(&collector).unwrap()[6] > 5);
    }
}
