//! Loops over an embedded datapath, without a daemon or a second process.

use std::io::{BufReader, PipeReader, PipeWriter, pipe};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use ringroad::{Embedded, EmbeddedThread, Interest};
use ringroad_traffic::signature::{FormSet, SignatureReading, read_signature};

use super::*;

/// A worker on a thread, with the bench's ends of the pipes.
struct Worker {
    thread: JoinHandle<Result<(), BenchWorkerError>>,
    input: PipeWriter,
    output: std::io::Lines<BufReader<PipeReader>>,
}

impl Worker {
    fn start(role: WorkerRole, ports: &[&str], datapath: &Embedded) -> Self {
        let (input_reader, input) = pipe().unwrap();
        let (output, mut output_writer) = pipe().unwrap();
        let options = WorkerOptions {
            role,
            ports: ports.iter().map(|port| (*port).to_owned()).collect(),
            frame_bytes: 64,
            burst_frames: 32,
            cpu: crate::facts::allowed_cpus()[0],
        };
        let datapath = datapath.clone();
        let thread = spawn(move || {
            run_with(&options, &|name| datapath.open(name), BufReader::new(input_reader), &mut output_writer)
        });
        Self { thread, input, output: BufReader::new(output).lines() }
    }

    fn line(&mut self) -> WorkerLine {
        let line = self.output.next().unwrap().unwrap();
        WorkerLine::parse(&line).unwrap_or_else(|| panic!("{line}"))
    }

    fn ready(mut self) -> Self {
        assert!(matches!(self.line(), WorkerLine::Ready { ready: true, .. }));
        self
    }

    fn go(&mut self) {
        writeln!(self.input, "{GO}").unwrap();
    }

    /// Returns the counts that the worker reports.
    fn count(&mut self) -> TimedCounts {
        writeln!(self.input, "{COUNT}").unwrap();
        match self.line() {
            WorkerLine::Counted(counts) => counts,
            other => panic!("{other:?}"),
        }
    }

    /// Counts until frames have come in every direction.
    fn counted(&mut self) -> TimedCounts {
        loop {
            let counts = self.count();
            if counts.directions_frames.iter().all(|frames| *frames > 0) {
                return counts;
            }
        }
    }

    /// Ends the worker like the bench: by the end of the worker's input.
    fn end(self) -> Result<(), BenchWorkerError> {
        drop(self.input);
        self.thread.join().unwrap()
    }
}

#[test]
fn a_source_and_a_sink_carry_every_frame_in_order_over_a_pipe() {
    let datapath = Embedded::new();
    let mut sink = Worker::start(WorkerRole::Sink, &["x}1"], &datapath).ready();
    let mut source = Worker::start(WorkerRole::Source, &["x{1"], &datapath).ready();
    source.go();
    sink.go();
    let (first, second) = (sink.counted(), sink.count());
    assert_eq!(second.directions_frames.len(), 1);
    assert!(second.directions_frames >= first.directions_frames && second.at_ns > first.at_ns);
    assert_eq!(second.lost_or_reordered_frames, Some(0));
    source.end().unwrap();
    sink.end().unwrap();
}

#[test]
fn the_loop_counts_frames_out_of_both_ports_of_a_switch() {
    let datapath = Embedded::on_thread(&EmbeddedThread::default()).unwrap();
    let mut worker = Worker::start(WorkerRole::Loop, &["vale0:a", "vale0:b"], &datapath).ready();
    worker.go();
    assert_eq!(worker.counted().directions_frames.len(), 2);
    worker.end().unwrap();
}

#[test]
fn one_way_counts_frames_from_the_second_port_of_a_switch() {
    let datapath = Embedded::on_thread(&EmbeddedThread::default()).unwrap();
    let mut worker = Worker::start(WorkerRole::OneWay, &["vale0:a", "vale0:b"], &datapath).ready();
    worker.go();
    assert_eq!(worker.counted().directions_frames.len(), 1);
    worker.end().unwrap();
}

#[test]
fn a_netmap_program_without_a_device_reports_the_failed_call() {
    // A name that is too long for a request, even if a device exists.
    let name = "x".repeat(64);
    for role in [WorkerRole::NetmapSyncSink, WorkerRole::NetmapPollSink] {
        let mut worker = Worker::start(role, &[&name], &Embedded::new());
        let line = worker.line();
        let told = |error: &String| error.contains("as a netmap program") && error.contains(&name);
        assert!(matches!(&line, WorkerLine::Failed { error } if told(error)), "{line:?}");
        assert!(matches!(worker.end(), Err(BenchWorkerError::Netmap { .. })));
    }
}

#[test]
fn the_null_forwarder_counts_both_ways() {
    let mut worker =
        Worker::start(WorkerRole::Null, &["null:size=60", "null:size=60"], &Embedded::new()).ready();
    worker.go();
    assert_eq!(worker.counted().directions_frames.len(), 2);
    worker.end().unwrap();
}

#[test]
fn generators_report_their_sent_frames_until_the_end() {
    for role in [WorkerRole::Generate, WorkerRole::GenerateUnsigned] {
        let mut worker = Worker::start(role, &["null:size=60,no-rx=1"], &Embedded::new()).ready();
        worker.go();
        let counts = worker.counted();
        assert_eq!(counts.directions_frames.len(), 1, "{role:?}");
        assert!(worker.count().directions_frames >= counts.directions_frames, "{role:?}");
        worker.end().unwrap();
    }
}

#[test]
fn a_generated_frame_has_a_signature_if_configured_and_the_configured_length() {
    for (role, signed) in [(WorkerRole::Generate, true), (WorkerRole::GenerateUnsigned, false)] {
        let datapath = Embedded::new();
        let mut far = datapath.open("bench}1").unwrap();
        let mut worker = Worker::start(role, &["bench{1"], &datapath).ready();
        worker.go();
        far.wait(Interest::Rx, Some(Duration::from_secs(20))).unwrap();
        far.rx().sync().unwrap();
        assert!(far.rx().available() > 0, "{role:?}");
        let mut frame = [0; 2048];
        let length = far.rx().frame(0).read(&mut frame);
        assert_eq!(length, 60, "{role:?}");
        let reading = read_signature(&frame[..length], FormSet::ALL);
        assert_eq!(matches!(reading, SignatureReading::Intact(_)), signed, "{role:?}: {reading:?}");
        worker.end().unwrap();
    }
}

#[test]
fn a_port_that_cannot_be_opened_is_reported_on_the_output() {
    let mut worker = Worker::start(WorkerRole::Sink, &["no such port"], &Embedded::new());
    let line = worker.line();
    assert!(matches!(&line, WorkerLine::Failed { error } if error.contains("no such port")), "{line:?}");
    assert!(matches!(worker.end(), Err(BenchWorkerError::Open { .. })));
}

#[test]
fn a_role_with_the_wrong_number_of_ports_reports_how_many_it_needs() {
    let worker = Worker::start(WorkerRole::Loop, &["null:size=60"], &Embedded::new());
    assert!(matches!(worker.end(), Err(BenchWorkerError::Ports { needed: 2, given: 1, .. })));
}

#[test]
fn a_worker_whose_bench_ends_before_the_start_ends() {
    let worker = Worker::start(WorkerRole::Null, &["null:size=60", "null:size=60"], &Embedded::new()).ready();
    assert!(matches!(worker.end(), Err(BenchWorkerError::BenchGone)));
}
