//! The bench's programs over netmap and libpcap under `ringroad run`: the frames of `ringroad bench --path netmap` arrive
//! in order.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use ringroad_tests::daemon::{Daemon, binary};

/// A worker process of the bench that has opened its ports.
struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(daemon: &Daemon, role: &str, ports: &[&str]) -> Self {
        let program = binary("ringroad");
        let other = if role.starts_with("netmap") { "--no-pcap" } else { "--no-netmap" };
        let mut words = vec!["run", other, "--", program.to_str().unwrap(), "bench-worker", role];
        words.extend(ports.iter().flat_map(|port| ["--port", port]));
        words.extend(["--size", "64", "--burst", "32", "--cpu", "0"]);
        let mut command = daemon.ringroad(&words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut worker = Self { child, lines };
        assert_eq!(worker.line()["ready"], true, "{role}");
        worker
    }

    fn line(&mut self) -> serde_json::Value {
        serde_json::from_str(&self.lines.next().expect("a line").unwrap()).unwrap()
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Counts until frames have filled the rings many times.
    fn counted(&mut self) -> serde_json::Value {
        loop {
            self.tell("count");
            let counted = self.line();
            if counted["directions_frames"][0].as_u64().unwrap() > 100_000 {
                return counted;
            }
        }
    }

    /// Ends the worker as the bench does: by the end of its input.
    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn netmap_programs_pass_every_frame_in_order_over_a_pipe() {
    for calls in ["sync", "poll"] {
        let daemon = Daemon::start();
        let mut sink = Worker::start(&daemon, &format!("netmap-{calls}-sink"), &["bench}1"]);
        let mut source = Worker::start(&daemon, &format!("netmap-{calls}-source"), &["bench{1"]);
        source.tell("go");
        sink.tell("go");
        let counted = sink.counted();
        assert_eq!(counted["lost_or_reordered_frames"], 0, "{counted}");
        sink.end();
        source.end();
    }
}

#[test]
fn a_netmap_program_passes_frames_between_two_ports_of_a_switch() {
    for calls in ["sync", "poll"] {
        let daemon = Daemon::start();
        let mut worker =
            Worker::start(&daemon, &format!("netmap-{calls}-one-way"), &["valebench:a", "valebench:b"]);
        worker.tell("go");
        worker.counted();
        worker.end();
    }
}

#[test]
fn a_libpcap_program_forwards_what_another_one_sends() {
    let daemon = Daemon::start();
    let mut sink = Worker::start(&daemon, "pcap-receive", &["to}1"]);
    let mut forwarder = Worker::start(&daemon, "pcap-forward", &["from}1", "to{1"]);
    let mut source = Worker::start(&daemon, "pcap-send", &["from{1"]);
    for worker in [&mut sink, &mut forwarder, &mut source] {
        worker.tell("go");
    }
    sink.counted();
    forwarder.counted();
    // The receivers go last: a sender waits while its ring is full.
    source.end();
    forwarder.end();
    sink.end();
}

#[test]
fn the_bench_compares_numbers_of_cores_and_draws_their_rates() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("cores.svg");
    let output = Command::new(binary("ringroad"))
        .args(["--json", "bench", "--path", "cores", "--burst", "8", "--rounds", "1", "--chart"])
        .arg(&chart)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = report["points"].as_array().unwrap();
    assert_eq!((&points[0]["path"], &points[0]["burst_frames"]), (&"cores-1".into(), &8.into()));
    for series in points.iter().flat_map(|point| point["series"].as_array().unwrap()) {
        let outcome = &series["outcomes"][0];
        // Other programs on the machine may make a sample invalid; its frames are all there nevertheless.
        if outcome["state"] == "valid" {
            assert_eq!(outcome["lost_or_reordered_frames"], 0, "{series}");
        } else {
            let reason = outcome["reason"].as_str().unwrap();
            assert!(reason.starts_with("the sample does not count"), "{series}");
            assert!(!reason.contains("carried nothing"), "{series}");
        }
    }
    let drawn = std::fs::read_to_string(chart).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("cores, 64 B, burst 8"), "{drawn}");
}
