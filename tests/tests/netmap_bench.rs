//! The bench's netmap programs under `ringroad run`: the frames of `ringroad bench --path netmap` arrive in order.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Stdio};

use ringroad_tests::daemon::{Daemon, binary};

/// A worker process of the bench that has opened its ports.
struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(daemon: &Daemon, role: &str, ports: &[&str]) -> Self {
        let program = binary("ringroad");
        let mut words = vec!["run", "--no-pcap", "--", program.to_str().unwrap(), "bench-worker", role];
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
