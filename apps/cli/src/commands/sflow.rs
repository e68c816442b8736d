//! `ringroad sflow`.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use clap::Args;
use ringroad::{Interest, OpenOptions, Port};
use ringroad_control::message::{Mirror, MirrorDirection};
use ringroad_control::{Reply, Request};
use ringroad_sflow::{Collector, CollectorAddress, Exporter, ExporterCounters, Options};
use serde::Serialize;

use crate::failure::Failure;
use crate::number_parsers::{count, seconds};
use crate::options::{DEEP_SLOTS, Global, switch_name};
use crate::output::Output;
use crate::output::rates::grouped;
use crate::run::SignalFlag;
use crate::verb::{MainVerb, request};

/// Longest wait between two checks of the stop flag.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// Time between two attempts to reach a daemon that has ended.
const RETRY: Duration = Duration::from_millis(500);
/// Shortest time between two messages about such attempts.
const QUIET: Duration = Duration::from_secs(600);
/// Size of the port's buffers, bytes: a record has 144 bytes.
const BUFFER_BYTES: u32 = 256;
/// Allowed bytes of a frame in a sample: from an Ethernet header to all bytes in a record.
const HEADER_BYTES: std::ops::RangeInclusive<i64> = 14..=128;

/// Export samples of a switch's frames, and its counters, to an sFlow collector
///
/// Sends sFlow version 5 over UDP. For one of N frames received by each port it sends the frame's first bytes, length,
/// ingress and egress ports. Every --polling seconds it sends the counters and the name of each port. Runs until
/// Ctrl-C, and resumes when the daemon restarts. The daemon must run.
///
/// Samples come from a mirror of the switch to its port sflow, such as vale0:sflow. The command sets the mirror, and
/// removes it at its end, which only administrators can do. Samples for which the command is too slow are dropped
/// there, counted, and reported to the collector. A missing collector does not end the command: datagrams that cannot
/// be sent or are refused are counted in the summary. See docs/observe.md.
#[derive(Debug, Args)]
pub(crate) struct SflowArgs {
    /// Name of the switch, such as vale0
    #[arg(value_name = "SWITCH", value_parser = switch_name)]
    switch: String,
    /// Address of the collector; its port is 6343 unless given
    #[arg(long, value_name = "HOST[:PORT]")]
    collector: CollectorAddress,
    /// Sample one of N frames of each port
    #[arg(long, value_name = "1-in-N", default_value = "1-in-1000", value_parser = sampling)]
    sampling: u32,
    /// Bytes of a frame in its sample, 14 to 128
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 128,
        value_parser = clap::value_parser!(u8).range(HEADER_BYTES)
    )]
    header: u8,
    /// Time between two samples of a port's counters, seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    polling: Duration,
    /// Address that identifies this exporter to the collector [default: the source address of the first datagram]
    #[arg(long, value_name = "ADDRESS")]
    agent: Option<IpAddr>,
}

/// Parses a sampling rate: `1-in-1000`, or `1000`.
fn sampling(text: &str) -> Result<u32, String> {
    let rate = count(text.strip_prefix("1-in-").unwrap_or(text)).ok();
    rate.and_then(|rate| u32::try_from(rate).ok())
        .filter(|rate| *rate > 0)
        .ok_or_else(|| "give the sampling rate, such as 1-in-1000, or 1000".to_owned())
}

#[derive(Debug, Serialize)]
struct Ready<'a> {
    ready: bool,
    switch: &'a str,
    port: &'a str,
    collector: String,
}

#[derive(Debug, Serialize)]
struct Summary {
    /// Number of times that the exporter resumed and opened its port again.
    reconnections: u64,
    #[serde(flatten)]
    counts: ExporterCounters,
}

/// Mirror and exporter of a switch.
struct Session<'a> {
    global: &'a Global,
    mirror: Mirror,
    exporter: Exporter,
    polling: Duration,
    /// Time of the last request to the daemon; `None` if a request is due.
    polled: Option<Instant>,
    stop: SignalFlag,
    output: &'a Output,
}

impl MainVerb for SflowArgs {
    const EXAMPLES: &str = "\
ringroad sflow vale0 --collector 192.0.2.10
# Another port, more samples, and an address that stays the same
ringroad sflow vale0 --collector [2001:db8::10]:7343 --sampling 1-in-100 --agent 192.0.2.1";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let now = Instant::now();
        let options = Options {
            switch: self.switch.clone(),
            sampling_rate: self.sampling,
            header_bytes: self.header.into(),
            agent: self.agent,
        };
        let mirror = Mirror {
            from: self.switch.clone(),
            to: format!("{}:sflow", self.switch),
            direction: MirrorDirection::Both,
            sample: self.sampling,
            records: true,
        };
        let mut session = Session {
            global,
            mirror,
            exporter: Exporter::new(options, Collector::new(self.collector.clone()), now),
            polling: self.polling,
            polled: None,
            stop: SignalFlag::on_signals()?,
            output,
        };
        let mut port = session.open()?;
        let Mirror { from: switch, to: name, .. } = &session.mirror;
        let ready = Ready { ready: true, switch, port: name, collector: self.collector.to_string() };
        output.result(&ready, |ready| format!("exporting {switch} to {}", ready.collector))?;
        let mut reconnections = 0;
        let mut told: Option<Instant> = None;
        while let Err(failure) = session.export(&mut port) {
            drop(port);
            if told.is_none_or(|told| told.elapsed() >= QUIET) {
                told = Some(Instant::now());
                output.note(&format!("{}: trying again", failure.message));
            }
            port = match session.reopen() {
                Some(port) => port,
                None => return session.summarize(reconnections),
            };
            reconnections += 1;
        }
        session.end();
        drop(port);
        session.summarize(reconnections)
    }
}

impl Session<'_> {
    /// Sets the mirror, then opens its port: a port without a mirror would get other frames.
    fn open(&self) -> Result<Port, Failure> {
        let name = &self.mirror.to;
        let mut connection = self.global.connect()?;
        // Setting the mirror would replace the mirror of another exporter.
        if connection.list()?.ports.iter().any(|port| port.name == *name && port.bound) {
            let advice = format!("see who: ringroad list; one exporter at a time has {name}");
            return Err(Failure::new(format!("another program has {name} open"), advice));
        }
        request!(connection, &Request::SetMirror(self.mirror.clone()), Reply::Done => ())?;
        let options = OpenOptions {
            slots: Some(DEEP_SLOTS),
            buffer_bytes: Some(BUFFER_BYTES),
            socket: Some(self.global.socket_path()),
            no_start: true,
            ..OpenOptions::default()
        };
        let mut port = Port::open_with(name, &options)?;
        // Frames that arrived before the mirror was set may come from any sender.
        port.rx().sync()?;
        let available = port.rx().available();
        port.rx().release(available);
        Ok(port)
    }

    /// Opens the port again when a daemon provides it; `None` if a signal ends the wait.
    fn reopen(&mut self) -> Option<Port> {
        while !self.stop.is_set() {
            if let Ok(port) = self.open() {
                // The new daemon's ports may differ, so a request for the counters is due.
                self.polled = None;
                return Some(port);
            }
            // Repeated attempts, since a daemon does not announce its start.
            let end = Instant::now() + RETRY;
            while Instant::now() < end && !self.stop.is_set() {
                std::thread::sleep(LONGEST_WAIT);
            }
            self.exporter.tick(Instant::now());
        }
        None
    }

    /// Exports until a signal arrives. An error is an error of the port, which must be opened again.
    fn export(&mut self, port: &mut Port) -> Result<(), Failure> {
        let mut frame = Vec::new();
        while !self.stop.is_set() {
            port.rx().sync()?;
            let mut now = Instant::now();
            frame.clear();
            while port.rx().receive(&mut frame).is_some() {
                self.exporter.record(&frame, now);
                frame.clear();
            }
            if self.polled.is_none_or(|polled| now.duration_since(polled) >= self.polling) {
                self.poll();
                now = Instant::now();
                self.polled = Some(now);
            }
            self.exporter.tick(now);
            if let Some(trouble) = self.exporter.trouble(now) {
                self.output.note(&trouble);
            }
            let limit =
                self.exporter.patience(now).unwrap_or(LONGEST_WAIT).min(self.polling).min(LONGEST_WAIT);
            port.wait(Interest::Rx, Some(limit))?;
        }
        Ok(())
    }

    /// Reads the daemon's counters. The port detects a daemon that does not answer.
    fn poll(&mut self) {
        if let Ok(mut daemon) = self.global.connect()
            && let Ok(list) = daemon.list()
        {
            self.exporter.report(&list.ports, &self.mirror.to, Instant::now());
        }
    }

    /// Reads the last counters, which include the latest lost samples, and removes the mirror.
    fn end(&mut self) {
        self.poll();
        let Mirror { from, to, .. } = self.mirror.clone();
        // A daemon that has just ended has no mirror to remove.
        if let Ok(mut connection) = self.global.connect() {
            let _ = connection.request(&Request::RemoveMirror { from, to });
        }
    }

    fn summarize(mut self, reconnections: u64) -> Result<(), Failure> {
        self.exporter.flush(Instant::now());
        let summary = Summary { reconnections, counts: self.exporter.counts() };
        self.output.result(&summary, |Summary { reconnections, counts }| {
            let ExporterCounters { flow_samples, counter_samples, datagrams, .. } = *counts;
            let mut lines = vec![format!(
                "{} samples of frames, {} of counters, in {} datagrams",
                grouped(flow_samples),
                grouped(counter_samples),
                grouped(datagrams)
            )];
            let others = [
                (counts.failed_datagrams, "datagrams could not leave, or were refused"),
                (counts.dropped_samples, "samples were dropped before they arrived here"),
                (counts.foreign_frames, "frames were not samples"),
                (*reconnections, "reconnections to the daemon"),
            ];
            lines.extend(
                others
                    .iter()
                    .filter(|(number, _)| *number > 0)
                    .map(|(number, what)| format!("  {} {what}", grouped(*number))),
            );
            lines.join("\n")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampling_is_one_of_a_number() {
        for (text, rate) in [("1-in-1000", 1000), ("400", 400), ("1-in-64k", 64_000), ("1", 1)] {
            assert_eq!(sampling(text), Ok(rate), "{text}");
        }
        for text in ["", "0", "1-in-0", "2-in-3", "1:1000", "1-in-5G"] {
            assert!(sampling(text).is_err(), "{text}");
        }
    }
}
