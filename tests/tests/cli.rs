//! The command line as users type it, with the real binaries.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::{Command, Stdio};

use ringroad::control::report::StatusReport;
use ringroad_capture::{CaptureFormat, CaptureWriter};
use ringroad_tests::command::{run, start, stderr, summary};
use ringroad_tests::conservation::{await_conserved, is_conserved};
use ringroad_tests::daemon::{Daemon, binary};
use ringroad_tests::frames::{numbered, read_capture, station};
use ringroad_tests::network::is_root;
use rustix::process::Signal;
use serde_json::Value;

fn write_capture(path: &Path, frames: u64) -> Vec<Vec<u8>> {
    let mut writer = CaptureWriter::create(path, CaptureFormat::from_path(path), 0).unwrap();
    let mut written = Vec::new();
    for number in 0..frames {
        let frame = numbered([0xFF; 6], station(1), number, 60 + (number * 37 % 1400) as usize);
        writer.write_frame(1_000_000_000 + number * 1_000, &frame, frame.len() as u32).unwrap();
        written.push(frame);
    }
    writer.finish().unwrap();
    written
}

#[test]
fn paced_frames_all_arrive_and_the_counts_are_exact() {
    let daemon = Daemon::start();
    let mut receiver =
        start(daemon.ringroad(&["--json", "recv", "vale0:b@slots=4096", "--count", "4000", "--check"]));
    let sent = run(daemon.ringroad(&["--json", "gen", "vale0:a", "--count", "4000", "--rate", "50kpps"]));
    assert!(sent.status.success(), "{}", stderr(&sent));
    let received = summary(&mut receiver);
    assert_eq!(received["frames"], 4_000);
    assert_eq!(received["test_frames"]["total"]["lost"], 0, "{received}");
    await_conserved(&daemon);
}

#[test]
fn at_full_speed_every_frame_is_received_or_dropped_by_cause() {
    let daemon = Daemon::start();
    let mut receiver = start(daemon.ringroad(&["--json", "recv", "vale0:b"]));
    let sent = run(daemon.ringroad(&["--json", "gen", "vale0:a", "--count", "500000"]));
    assert!(sent.status.success(), "{}", stderr(&sent));
    // Ports end with their programs, so the switch's totals are read while the receiver still runs. No frame may be
    // lost on the way into the switch.
    let status = daemon.await_status("all frames in the switch", |status| {
        status.switches[0].totals.received_frames == 500_000 && is_conserved(status)
    });
    let totals = &status.switches[0].totals;
    receiver.signal(Signal::INT);
    assert_eq!(summary(&mut receiver)["frames"].as_u64().unwrap(), totals.delivered_frames);
}

#[test]
fn a_replayed_capture_is_recorded_frame_by_frame() {
    let daemon = Daemon::start();
    let source = daemon.folder().join("source.pcapng");
    let written = write_capture(&source, 3000);
    let record = daemon.folder().join("record.pcap");
    let record_text = record.display().to_string();
    let mut recorder = start(daemon.ringroad(&[
        "--json",
        "capture",
        "vale0:b@slots=4096",
        "-w",
        &record_text,
        "--count",
        "3000",
    ]));
    let replayed = run(daemon.ringroad(&[
        "--json",
        "replay",
        &source.display().to_string(),
        "vale0:a",
        "--rate",
        "20kpps",
    ]));
    assert!(replayed.status.success(), "{}", stderr(&replayed));
    assert_eq!(summary(&mut recorder)["frames"], 3000);
    assert_eq!(read_capture(&record), written);
    await_conserved(&daemon);
}

#[test]
fn tcpdump_reads_the_sent_frames() {
    let daemon = Daemon::start();
    let record = daemon.folder().join("record.pcap").display().to_string();
    let mut recorder =
        start(daemon.ringroad(&["--json", "recv", "vale0:b", "-w", &record, "--count", "100"]));
    let sent =
        run(daemon.ringroad(&["gen", "vale0:a", "--count", "100", "--size", "128", "--rate", "10kpps"]));
    assert!(sent.status.success(), "{}", stderr(&sent));
    assert_eq!(summary(&mut recorder)["frames"], 100);
    let seen = Command::new("tcpdump").args(["-nn", "-v", "-r", &record]).output().unwrap();
    let text = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert_eq!(text.matches("proto UDP").count(), 100, "{text}");
    assert!(!text.contains("bad"), "{text}");
}

#[test]
fn a_forwarder_joins_two_switches() {
    for mode in [&["--mode", "io"][..], &["--mode", "macswap"], &["--mode", "io", "--pipeline"]] {
        let daemon = Daemon::start();
        let arguments: Vec<&str> =
            ["--json", "fwd", "vale0:f", "vale1:f"].iter().chain(mode).copied().collect();
        let mut forwarder = start(daemon.ringroad(&arguments));
        let mut receiver =
            start(daemon.ringroad(&["--json", "recv", "vale1:b", "--count", "1000", "--check"]));
        // A ring holds all 1000 frames, so none is lost however long the forwarder gets no processor time.
        let sent = run(daemon.ringroad(&["gen", "vale0:a", "--count", "1000", "--rate", "20kpps"]));
        assert!(sent.status.success(), "{}", stderr(&sent));
        let received = summary(&mut receiver);
        assert_eq!(received["frames"], 1000, "{mode:?}");
        // SIGINT ends the forwarder in order.
        forwarder.signal(Signal::INT);
        let _ = summary(&mut forwarder);
        await_conserved(&daemon);
    }
}

#[test]
fn a_storm_in_a_loop_of_two_links_ends_and_the_log_names_the_port() {
    let daemon = Daemon::with_config("[switch]\nageing_s = 1\n");
    let mut links = ["1", "2"].map(|link| {
        let [near, far] = ["vale0", "vale1"].map(|switch| format!("{switch}:f{link}"));
        start(daemon.ringroad(&["--json", "fwd", &near, &far, "--mode", "io"]))
    });
    let sent = run(daemon.ringroad(&["gen", "vale0:a", "--count", "10"]));
    assert!(sent.status.success(), "{}", stderr(&sent));
    let looped = |status: &StatusReport| -> u64 {
        let switches = status.switches.iter();
        switches.map(|switch| switch.totals.drops.get("looped").copied().unwrap_or(0)).sum()
    };
    let received = |status: &StatusReport| -> u64 {
        status.switches.iter().map(|switch| switch.totals.received_frames).sum()
    };
    let (mut last, mut still) = (0, 0);
    daemon.await_status("storm and its end", |status| {
        let now = received(status);
        still = if now == last { still + 1 } else { 0 };
        last = now;
        now > 1000 && looped(status) > 0 && still >= 20 && is_conserved(status)
    });
    let is_said = |log: &str| {
        ["f1", "f2"].iter().any(|port| {
            ["vale0", "vale1"].iter().any(|switch| log.contains(&format!("came back at {switch}:{port}")))
        })
    };
    daemon.await_status("line in the log", |_| is_said(&daemon.log()));
    for link in &mut links {
        link.kill();
    }
}

#[test]
fn a_full_disk_ends_a_capture_with_an_error_and_whole_frames() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let disk = daemon.folder().join("disk");
    std::fs::create_dir(&disk).unwrap();
    // The recorder has a disk of its own, in a mount namespace that ends with the command.
    let script =
        "mount -t tmpfs -o size=256k tmpfs \"$1\" && shift && \"$@\"; code=$?; cat \"$0\" >&3; exit $code";
    let record = disk.join("record.pcap");
    let kept = daemon.folder().join("kept.pcap");
    let recorder = daemon.ringroad(&["--json", "recv", "vale0:b", "-w", &record.display().to_string()]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("exec 3>\"{}\"; {script}", kept.display())]);
    command
        .arg(&record)
        .arg(&disk)
        .arg(recorder.get_program())
        .args(recorder.get_args())
        .stdin(Stdio::null());
    let mut recorder = start(command);
    let sent =
        run(daemon.ringroad(&["gen", "vale0:a", "--count", "2000", "--size", "1500", "--rate", "20kpps"]));
    assert!(sent.status.success(), "{}", stderr(&sent));
    let (status, why) = recorder.await_end();
    assert_eq!(status.code(), Some(1), "{why}");
    assert!(why.contains("record.pcap"), "{why}");
    let frames = read_capture(&kept);
    assert!(frames.len() > 100, "{} frames were kept: {why}", frames.len());
    assert!(frames.iter().all(|frame| frame.len() == 1496), "only whole frames");
    await_conserved(&daemon);
}

#[test]
fn a_wrong_command_line_is_an_object_with_json_and_text_without() {
    let daemon = Daemon::start();
    let wrong = run(daemon.ringroad(&["--json", "list", "--wrong"]));
    assert_eq!((wrong.status.code(), wrong.stdout.len()), (Some(2), 0));
    let printed: Value = serde_json::from_slice(&wrong.stderr).unwrap();
    assert_eq!(printed["kind"], "UnknownArgument", "{printed}");
    assert!(printed["error"].as_str().unwrap().contains("--wrong"), "{printed}");
    let wrong = run(daemon.ringroad(&["list", "--wrong"]));
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).starts_with("error: "), "{}", stderr(&wrong));
}

#[test]
fn bad_files_and_names_are_clear_errors() {
    let daemon = Daemon::start();
    let folder = daemon.folder();
    write_capture(&folder.join("whole.pcap"), 10);
    let mut bytes = std::fs::read(folder.join("whole.pcap")).unwrap();
    bytes.truncate(bytes.len() - 5);
    std::fs::write(folder.join("cut.pcap"), &bytes).unwrap();
    std::fs::write(folder.join("foreign.pcap"), b"this is not a capture at all, but long enough").unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let (cut, foreign, missing) = (file("cut.pcap"), file("foreign.pcap"), file("missing.pcap"));
    let cut_port = format!("pcap:{cut}");
    for (arguments, part) in [
        (vec!["attach", "x{1"], "x{1"),
        (vec!["attach", "vale0:q", "--driver", "null:size=1"], "size"),
        (vec!["attach", "vale0:q", "--driver", "br0:q"], "begins with vale"),
    ] {
        let output = run(daemon.ringroad(&arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
    for (arguments, part) in [
        (vec!["recv", &cut_port], "cut.pcap"),
        (vec!["replay", &cut, "vale0:a", "--speed", "max"], "cut.pcap"),
        (vec!["replay", &foreign, "vale0:a"], "foreign.pcap"),
        (vec!["replay", &missing, "vale0:a"], "missing.pcap"),
        (vec!["gen", "nonsense", "--count", "1"], "nonsense"),
        (vec!["gen", "vale0", "--count", "1"], "a port of the switch vale0 is named like vale0:a"),
        (vec!["gen", "vale0:a", "--count", "1", "--cpu", "1023"], "CPU 1023 is not among those"),
        (vec!["gen", "vale0:a", "--count", "1", "--slots", "3"], "slots"),
        (vec!["gen", "vale0:a@buf-size=100", "--count", "1"], "buffer size"),
        (vec!["detach", "vale0:nobody"], "vale0:nobody"),
        (vec!["macs", "vale7"], "vale7"),
    ] {
        let output = run(daemon.ringroad(&arguments));
        let why = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {why}");
        assert!(why.contains(part), "{arguments:?}: {why}");
        assert!(!why.contains("panicked"), "{arguments:?}: {why}");
    }
    for (arguments, part) in [
        (&["gen"][..], "PORT"),
        (&["gen", "vale0:a", "--frames", "5"], "'--count'"),
        (&["fwd", "vale0:a", "vale0:a@slots=512"], "is given twice"),
    ] {
        let output = run(daemon.ringroad(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(stderr(&output).contains(part), "{arguments:?}: {output:?}");
    }
    await_conserved(&daemon);
}

#[test]
fn a_device_on_a_switch_records_flooded_frames() {
    let daemon = Daemon::start();
    let record = daemon.folder().join("tap.pcapng");
    let device = format!("pcap:out={}", record.display());
    assert!(run(daemon.ringroad(&["attach", "vale0:tap", "--driver", &device])).status.success());
    let sent = run(daemon.ringroad(&["gen", "vale0:a", "--count", "500", "--rate", "10kpps"]));
    assert!(sent.status.success(), "{}", stderr(&sent));
    assert!(run(daemon.ringroad(&["detach", "vale0:tap"])).status.success());
    assert_eq!(read_capture(&record).len(), 500);
}

#[test]
fn the_daemon_starts_on_demand_and_stops_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("r.sock");
    let ringroad = |arguments: &[&str]| {
        let mut command = Command::new(binary("ringroad"));
        command.arg("--socket").arg(&socket).args(arguments).env("RINGROAD_DAEMON", binary("ringroadd"));
        command.stdin(Stdio::null()).output().unwrap()
    };
    let nobody = ringroad(&["status"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("ringroad up"), "{}", stderr(&nobody));
    let nobody = ringroad(&["down"]);
    assert_eq!(nobody.status.code(), Some(1));
    let why = stderr(&nobody);
    assert!(why.contains("nothing to stop") && !why.contains("ringroad up"), "{why}");
    let sent = ringroad(&["gen", "vale0:a", "--count", "1000"]);
    assert!(sent.status.success(), "{}", stderr(&sent));
    let status: Value = serde_json::from_slice(&ringroad(&["--json", "status"]).stdout).unwrap();
    assert_eq!(status["started"], "on_demand");
    assert!(ringroad(&["down"]).status.success());
    assert!(!socket.exists());
    let up = ringroad(&["--json", "up"]);
    assert!(up.status.success(), "{}", stderr(&up));
    assert!(ringroad(&["down"]).status.success());
}

#[test]
fn the_demo_compares_every_byte_of_a_real_capture() {
    let capture = std::env::var("RINGROAD_CAPTURE").expect("make e2e names a capture in RINGROAD_CAPTURE");
    let output = Command::new(binary("ringroad"))
        .args(["--json", "demo", "--seconds", "3", "--capture", &capture])
        .env("RINGROAD_DAEMON", binary("ringroadd"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(report["unaccounted_frames"], 0);
    assert!(report["programs"].as_array().unwrap().iter().all(|program| program["identical"] == true));
}

/// Verbs of a command, as its help lists them; empty if it has none. `words` are the command's.
fn verbs_of(words: &[&str]) -> Vec<String> {
    let help = Command::new(binary("ringroad")).args(words).arg("-h").output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap();
    let Some((_, listed)) = help.split_once("Commands:\n") else { return Vec::new() };
    // Lines with an indent of more than two spaces continue the line above.
    let lines = listed.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let verbs = lines.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next());
    verbs.filter(|verb| *verb != "help").map(str::to_owned).collect()
}

/// Lines that lack an argument.
const INCOMPLETE: [&str; 33] = [
    "attach",
    "detach",
    "link",
    "unlink",
    "vm",
    "vm stop",
    "vm exec a",
    "container",
    "container c",
    "testpmd",
    "sze2",
    "config",
    "config check",
    "config apply",
    "macs",
    "mirror vale0:a",
    "port",
    "switch",
    "flows",
    "flows add vale0",
    "flows replace vale0",
    "explain vale0",
    "explain vale0 tcp",
    "trace",
    "gen",
    "trial vale0:a",
    "recv",
    "fwd vale0:a",
    "capture vale0:a",
    "replay",
    "run",
    "script",
    "sflow vale0",
];

/// Verbs that need no words.
const WITHOUT_WORDS: [&str; 11] =
    ["up", "down", "status", "list", "kinds", "reload", "upgrade", "otg", "top", "demo", "bench"];

/// Lines with a name that none can have.
const MISNAMED: [&str; 30] = [
    "attach vale0:",
    "attach eth0",
    "attach vale0",
    "attach br0:eth0",
    "attach vale0:a@colour=red",
    "detach a/b",
    "vm a/b --port vale0:a",
    "vm a --port vale0:",
    "container a/b --port vale0:a",
    "container c --port br0:a",
    "testpmd --port vale0:",
    "config save vale0:",
    "macs br0",
    "mirror br0:a --to vale0:b",
    "mirror vale0:a --to b",
    "port vale0:@vlan=1",
    "port --unset vale0:",
    "switch br0",
    "flows dump br0",
    "explain br0 in_port=1",
    "trace br0",
    "gen vale0:",
    "trial vale0: vale0:b --rate 1kpps",
    "recv vale0:",
    "fwd vale0: vale0:b",
    "capture vale0: -w -",
    "replay examples/captures/stations.pcap vale0:",
    "metrics --listen nowhere",
    "sflow br0 --collector 127.0.0.1",
    "doctor a/b",
];

#[test]
fn wrong_usage_of_every_verb_has_exit_status_2_and_starts_no_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("r.sock");
    let ringroad = |line: &str| {
        let mut command = Command::new(binary("ringroad"));
        command
            .arg("--socket")
            .arg(&socket)
            .args(line.split(' '))
            .env("RINGROAD_DAEMON", binary("ringroadd"));
        command.env("RINGROAD_RUNTIME_DIR", folder.path());
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        run(command)
    };
    let mut lines: Vec<String> = INCOMPLETE.iter().chain(&MISNAMED).map(|line| (*line).to_owned()).collect();
    let verbs = verbs_of(&[]);
    assert!(verbs.len() > 30, "{verbs:?}");
    for verb in &verbs {
        let named = lines.iter().any(|line| line.split(' ').next() == Some(verb));
        assert!(named || WITHOUT_WORDS.contains(&verb.as_str()), "no wrong line of {verb} is tried");
        let inner = verbs_of(&[verb]).into_iter().map(|inner| format!("{verb} {inner}"));
        lines.extend(inner.chain([verb.clone()]).map(|verb| format!("{verb} --no-such-option")));
    }
    for line in &lines {
        let output = ringroad(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{line}");
    }
    assert!(!socket.exists(), "no line may start a daemon");
}

#[test]
fn every_command_has_help_a_manual_page_and_a_completion() {
    let folder = tempfile::tempdir().unwrap();
    let ringroad = |arguments: &[&str]| Command::new(binary("ringroad")).args(arguments).output().unwrap();
    assert!(ringroad(&["man", &folder.path().display().to_string()]).status.success());
    let verbs = verbs_of(&[]);
    let first_and_last = ["up", "demo"].map(str::to_owned);
    assert!(first_and_last.iter().all(|verb| verbs.contains(verb)), "{verbs:?}");
    for verb in verbs {
        assert!(ringroad(&[&verb, "--help"]).status.success(), "{verb}");
        assert!(folder.path().join(format!("man1/ringroad-{verb}.1")).is_file(), "{verb}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(!ringroad(&["completions", shell]).stdout.is_empty(), "{shell}");
    }
}

#[test]
fn a_shell_completes_verbs_options_and_the_names_that_the_daemon_has() {
    let daemon = Daemon::start();
    let _ports = ["vale0:a", "vale0:ab", "vale1:c"].map(|name| daemon.open(name));
    let complete = |words: &str| {
        let count = words.split(' ').count() - 1;
        let script = format!(
            "source <(ringroad completions bash)
            COMP_WORDS=({words}) COMP_CWORD={count} COMP_TYPE=9
            _clap_complete_ringroad ringroad \"${{COMP_WORDS[COMP_CWORD]}}\"
            printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let folder = binary("ringroad").parent().unwrap().display().to_string();
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).env("RINGROAD_SOCKET", daemon.socket());
        bash.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap()));
        let output = bash.output().unwrap();
        assert!(output.stderr.is_empty(), "{}", stderr(&output));
        let printed = String::from_utf8(output.stdout).unwrap();
        printed.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete("ringroad det"), ["detach"]);
    assert_eq!(complete("ringroad detach vale0:"), ["vale0:a", "vale0:ab"]);
    assert_eq!(complete("ringroad macs v"), ["vale0", "vale1"]);
    assert!(complete("ringroad gen vale0:a --ra").contains(&"--rate".to_owned()));
    assert_eq!(complete("ringroad gen vale0:a --to vale1"), ["vale1:c"]);
    drop(daemon);
}
