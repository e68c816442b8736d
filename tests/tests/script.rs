//! `ringroad script` as users run it: the examples, over the daemon's switch, and errors.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;
use std::path::PathBuf;

use ringroad_capture::CaptureReader;
use ringroad_tests::command::{run, start, stderr, summary};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{number_of, numbered, receive_from, send, station};
use serde_json::Value;

/// One of the examples that come with the project.
fn example(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/scripts");
    folder.join(name).display().to_string()
}

/// The values that a command printed, a line each.
fn lines(output: &std::process::Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn load_and_latency_are_measured_to_the_frame() {
    let daemon = Daemon::start();
    let output = run(daemon.ringroad(&[
        "--json",
        "script",
        &example("l2-load-latency.lua"),
        "vale0:a",
        "vale0:b@slots=4096",
        "--rate",
        "20kpps",
        "--frames",
        "3000",
    ]));
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = lines(&output);
    assert_eq!(lines[0]["ready"], true, "{lines:?}");
    let counters: Vec<_> = lines.iter().filter(|line| line["final"] == true).collect();
    assert_eq!(counters.len(), 2, "{lines:?}");
    assert!(counters.iter().all(|counter| counter["frames"] == 3000), "{counters:?}");
    let summary = lines.last().unwrap();
    let sender = &summary["devices"][0]["queues"][0];
    assert_eq!(
        (&sender["sent_frames"], &sender["departure"]["frames"]),
        (&3000.into(), &3000.into()),
        "{sender}"
    );
    let stream = &summary["devices"][1]["queues"][0]["meter"]["streams"][0];
    assert_eq!(
        (&stream["sent"], &stream["distinct"], &stream["lost"]),
        (&3000.into(), &3000.into(), &0.into())
    );
    assert_eq!(stream["delay"]["latency_ns"]["count"], 3000, "{stream}");
    await_conserved(&daemon);
}

#[test]
fn another_programs_meter_reads_the_signatures() {
    let daemon = Daemon::start();
    let mut receiver =
        start(daemon.ringroad(&["--json", "recv", "vale0:c@slots=4096", "--count", "2000", "--check"]));
    let sent = run(daemon.ringroad(&[
        "script",
        &example("l2-load-latency.lua"),
        "vale0:a",
        "vale0:b@slots=4096",
        "-r20kpps",
        "-f2000",
        "--size=128",
    ]));
    assert!(sent.status.success(), "{}", stderr(&sent));
    let received = summary(&mut receiver);
    // The frames were addressed to a station that never sends, so they were flooded to all ports.
    assert_eq!(received["frames"], 2000, "{received}");
    assert_eq!(received["test_frames"]["total"]["lost"], 0, "{received}");
}

#[test]
fn a_script_makes_the_requested_number_of_flows() {
    let daemon = Daemon::start();
    let record = daemon.folder().join("flows.pcap").display().to_string();
    let mut recorder =
        start(daemon.ringroad(&["--json", "recv", "vale0:b@slots=4096", "-w", &record, "--count", "4000"]));
    let sent = run(daemon.ringroad(&[
        "script",
        &example("udp-flows.lua"),
        "vale0:a",
        "--flows",
        "2000",
        "--frames",
        "4000",
        "--rate",
        "20kpps",
    ]));
    assert!(sent.status.success(), "{}", stderr(&sent));
    assert_eq!(summary(&mut recorder)["frames"], 4000);
    let mut reader = CaptureReader::open(&record).unwrap();
    let mut flows = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        // The ranges are the source address and the source port.
        flows.push((frame.bytes[26..30].to_vec(), frame.bytes[34..36].to_vec()));
    }
    assert_eq!(flows.len(), 4000);
    assert_eq!(flows.iter().collect::<HashSet<_>>().len(), 2000);
    assert_eq!(flows[..2000], flows[2000..], "in the same order each time");
    assert_eq!(flows[1001], (vec![10, 0, 0, 2], vec![4, 1]));
}

#[test]
fn each_phase_of_a_script_reports_its_load() {
    let daemon = Daemon::start();
    let sent = run(daemon.ringroad(&[
        "--json",
        "script",
        &example("ramp-phases.lua"),
        "vale0:a",
        "--peak",
        "20kpps",
        "--seconds",
        "0.05",
    ]));
    assert!(sent.status.success(), "{}", stderr(&sent));
    let printed = stderr(&sent);
    let phases: Vec<_> =
        printed.lines().map(|line| line.split(':').nth(1).unwrap_or_default().trim()).collect();
    assert_eq!(phases, ["up", "hold", "bursts"], "{printed}");
    let summary = lines(&sent).pop().unwrap();
    let queue = &summary["devices"][0]["queues"][0];
    assert_eq!(queue["sent_frames"], queue["offered"]["sent_frames"], "{queue}");
    await_conserved(&daemon);
}

#[test]
fn a_reflector_returns_frames_until_it_is_interrupted() {
    let daemon = Daemon::start();
    let mut reflector =
        start(daemon.ringroad(&["--json", "script", &example("reflector.lua"), "vale0:b@slots=4096"]));
    let mut port = daemon.open("vale0:a@slots=4096");
    for number in 0..500 {
        // A frame to a station that is not learned yet is flooded.
        send(&mut port, &numbered(station(9), station(1), number, 60));
    }
    port.sync().unwrap();
    for number in 0..500 {
        let frame = receive_from(&mut port, station(9));
        assert_eq!(number_of(&frame, station(9)), Some(number));
        assert_eq!(frame[..6], station(1));
    }
    // SIGINT ends the reflector in order.
    reflector.signal(rustix::process::Signal::INT);
    let _ = summary(&mut reflector);
    await_conserved(&daemon);
}

#[test]
fn script_errors_exit_with_1_and_wrong_arguments_with_2() {
    let daemon = Daemon::start();
    let script = |name: &str, source: &str| {
        let path = daemon.folder().join(name);
        std::fs::write(&path, source).unwrap();
        path.display().to_string()
    };
    let syntax = script("syntax.lua", "function master(\n");
    let failing = script("failing.lua", "function master()\n  local x = nil\n  x.y = 1\nend\n");
    let closed = script("closed.lua", "require('device').config{ port = 'nonsense' }");
    for (file, printed) in [
        (syntax.as_str(), "syntax.lua:2:"),
        (failing.as_str(), "failing.lua:3: attempt to index local 'x'"),
        (closed.as_str(), "closed.lua:1: device.config: nonsense"),
        ("/nowhere.lua", "/nowhere.lua"),
    ] {
        let output = run(daemon.ringroad(&["script", file]));
        assert_eq!(output.status.code(), Some(1), "{file}: {}", stderr(&output));
        assert!(stderr(&output).contains(printed), "{file}: {}", stderr(&output));
    }
    let flows = example("udp-flows.lua");
    for (arguments, printed) in [
        (vec!["script", &flows], "argument <port> is missing"),
        (vec!["script", &flows, "vale0:a", "--flow", "1"], "there is no option --flow"),
    ] {
        let output = run(daemon.ringroad(&arguments));
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(printed), "{}", stderr(&output));
        assert!(stderr(&output).contains("Usage: ringroad script"), "{}", stderr(&output));
    }
    let help = run(daemon.ringroad(&["script", &flows, "--help"]));
    assert!(help.status.success());
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(text.contains("--flows") && text.contains("[default: 1000000]"), "{text}");
}

#[test]
fn an_interrupted_script_prints_its_counts() {
    let daemon = Daemon::start();
    let path = daemon.folder().join("busy.lua");
    let source = "local mg, device = require 'moongen', require 'device'
        function master() device.config{ port = 'vale0:a' } mg.startTask('work') mg.waitForTasks() end
        function work() while mg.running() do end print '{\"work\":\"done\"}' end";
    std::fs::write(&path, source).unwrap();
    let mut script = start(daemon.ringroad(&["--json", "script", &path.display().to_string()]));
    script.signal(rustix::process::Signal::TERM);
    assert_eq!(script.await_line(""), "{\"work\":\"done\"}");
    assert_eq!(summary(&mut script)["devices"][0]["name"], "vale0:a");
}
