//! The generator and the meter as users run them: real binaries over the daemon's switch, and tshark as the judge of
//! the sent frames.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use ringroad_tests::command::{run, start, stderr, summary};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, binary};
use ringroad_tests::network::{NetworkNamespace, cable, is_root};
use serde_json::Value;

/// Time for the last frames to arrive, in seconds. A busy machine may be slow, and the commands always wait this long.
const DRAIN_S: &str = "2";

fn json(output: &std::process::Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_else(|| panic!("no output: {}", stderr(output)));
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last}"))
}

/// Captures `count` frames that `ringroad gen` sends with `arguments`.
fn generated(daemon: &Daemon, name: &str, count: u32, arguments: &[&str]) -> String {
    let record = daemon.folder().join(name).display().to_string();
    let count = count.to_string();
    let mut recorder =
        start(daemon.ringroad(&["--json", "recv", "vale0:b@slots=4096", "-w", &record, "--count", &count]));
    let all = ["gen", "vale0:a", "--rate", "10kpps", "--count", &count]
        .into_iter()
        .chain(arguments.iter().copied());
    let sent = run(daemon.ringroad(&all.collect::<Vec<_>>()));
    assert!(sent.status.success(), "{arguments:?}: {}", stderr(&sent));
    let _ = summary(&mut recorder);
    record
}

/// Values of `fields` in each frame of a capture, as tshark reads them. Several values of one field are joined by
/// commas.
fn fields(record: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", record, "-T", "fields", "-E", "separator=/t"]);
    // tshark checks checksums only on request, and takes signatures on the discard port for plain data.
    for option in ["ip.check_checksum", "udp.check_checksum", "tcp.check_checksum"] {
        command.args(["-o", &format!("{option}:TRUE")]);
    }
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Checks that tshark calls every checksum of `field` good (1) in every frame.
fn assert_good(record: &str, field: &str, copies: usize) {
    let good = vec!["1"; copies].join(",");
    let found = fields(record, &[field]);
    assert!(!found.is_empty());
    assert!(found.iter().all(|values| values[0] == good), "{record} {field}: {:?}", found.first());
}

#[test]
fn the_far_end_measures_the_sent_frames() {
    let daemon = Daemon::start();
    let output = run(daemon.ringroad(&[
        "--json",
        "gen",
        "vale0:a@slots=4096",
        "--to",
        "vale0:b@slots=4096",
        "--bidirectional",
        "--rate",
        "20kpps",
        "--count",
        "3000",
        "--interval",
        "0.05",
        "--drain",
        DRAIN_S,
    ]));
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&output);
    for load in report["loads"].as_array().unwrap() {
        assert_eq!(load["sent"]["frames"], 3000, "{load}");
        assert_eq!(load["offered"]["sent_frames"], 3000, "{load}");
        let stream = &load["arrivals"][0];
        assert_eq!((&stream["received"], &stream["lost"]), (&Value::from(3000), &Value::from(0)), "{stream}");
        let latency = &stream["delay"]["latency_ns"];
        assert_eq!(latency["count"], 3000);
        assert!(latency["min"].as_u64().unwrap() <= latency["p99_999"].as_u64().unwrap(), "{latency}");
        assert!(load["timing"]["inter_departure"]["p99_ns"].is_u64(), "{load}");
    }
    let intervals = report["intervals"].as_array().unwrap();
    let counted: u64 = intervals
        .iter()
        .map(|interval| interval["ports"][1]["test_frames"]["total"]["frames"].as_u64().unwrap())
        .sum();
    assert!(intervals.len() > 1 && counted <= 3000, "{} intervals, {counted} frames", intervals.len());
    await_conserved(&daemon);
}

#[test]
fn latency_ends_when_a_frame_comes_to_its_interface_on_request() {
    if !is_root() {
        return;
    }
    let (outside, inside) = (NetworkNamespace::new(), NetworkNamespace::new());
    cable(&outside, "outer", &inside, "inner", 1500, 1);
    let ringroad = binary("ringroad").display().to_string();
    let to = format!("packet:inner@netns={}", inside.name());
    let gen_command = ["--json", "gen", "packet:outer", "--to", &to, "--rate", "2kpps", "--count", "200"];
    for option in [None, Some("--port-times")] {
        let mut command = outside.command(&[&ringroad]);
        command.args(gen_command).args(["--drain", DRAIN_S]).args(option);
        let output = run(command);
        assert!(output.status.success(), "{}", stderr(&output));
        let report = json(&output);
        let arrivals = &report["loads"][0]["arrivals"][0];
        assert_eq!(arrivals["delay"]["latency_ns"]["count"], 200, "{report}");
        assert_eq!(report["ports"][1]["port_timed_frames"].as_u64(), option.map(|_| 200), "{report}");
    }
}

#[test]
fn lost_frames_are_found_where_they_were_dropped() {
    let daemon = Daemon::start();
    let sent = ["gen", "vale0:a", "--to", "vale1:b", "--rate", "20kpps", "--count", "1000"];
    let report = json(&run(daemon.ringroad(&[&["--json"], &sent[..]].concat())));
    let losses = &report["losses"];
    assert_eq!(losses["lost_frames"], 1000, "{losses}");
    let port = &losses["drops"][0];
    assert_eq!((&port["name"], &port["role"]), (&"vale0:a".into(), &"sends".into()), "{losses}");
    let dropped = port["by_cause"]["no_destination"].as_u64().unwrap();
    // No port counts drops of frames that the worker has not taken at the end of the run.
    assert!(dropped > 0, "{losses}");
    assert_eq!(dropped + losses["lost_elsewhere_frames"].as_u64().unwrap(), 1000, "{losses}");
    // A program that takes all frames and passes none on.
    let mut eater = start(daemon.ringroad(&["--json", "recv", "vale0:c", "--count", "1000"]));
    let output = run(daemon.ringroad(&sent));
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("at least 1 000 of the lost frames were dropped at no port"), "{text}");
    assert_eq!(summary(&mut eater)["frames"], 1000);
    let passed = ["gen", "vale0:a", "--to", "vale0:b", "--rate", "20kpps", "--count", "100"];
    let output = run(daemon.ringroad(&[&passed[..], &["--drain", DRAIN_S]].concat()));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("0 lost") && !text.contains("dropped"), "{text}");
    await_conserved(&daemon);
}

#[test]
fn tshark_finds_every_header_and_checksum_right() {
    let daemon = Daemon::start();
    let plain = generated(&daemon, "udp.pcap", 100, &["--size", "64-1518/100"]);
    assert_good(&plain, "ip.checksum.status", 1);
    assert_good(&plain, "udp.checksum.status", 1);
    let tagged =
        generated(&daemon, "tcp.pcap", 100, &["--vlan", "100,200", "--protocol", "tcp", "--size", "128"]);
    assert_good(&tagged, "tcp.checksum.status", 1);
    let tags = fields(&tagged, &["vlan.id", "ieee8021ad.id"]);
    assert!(
        tags.iter().all(|tags| tags.join(" ").contains("200") && tags.join(" ").contains("100")),
        "{:?}",
        tags[0]
    );
    let ping = generated(&daemon, "icmp.pcap", 50, &["--protocol", "icmp", "--size", "98"]);
    assert_good(&ping, "icmp.checksum.status", 1);
    let six = ["--src-ip", "2001:db8::1", "--dst-ip", "2001:db8::2"];
    let ipv6 = generated(&daemon, "ipv6.pcap", 120, &[&six[..], &["--size", "90,594,1518"]].concat());
    assert_good(&ipv6, "udp.checksum.status", 1);
    let ping6 =
        generated(&daemon, "icmpv6.pcap", 50, &[&six[..], &["--protocol", "icmp", "--size", "128"]].concat());
    assert_good(&ping6, "icmpv6.checksum.status", 1);
    let tunnel = generated(&daemon, "vxlan.pcap", 50, &["--vxlan", "4711", "--size", "256", "--flows", "7"]);
    assert_good(&tunnel, "ip.checksum.status", 2);
    assert_good(&tunnel, "udp.checksum.status", 2);
    let network = fields(&tunnel, &["vxlan.vni"]);
    assert!(network.iter().all(|vni| vni[0] == "4711"), "{:?}", network[0]);
}

#[test]
fn imix_sizes_have_their_shares_and_flows_their_number() {
    let daemon = Daemon::start();
    let imix = generated(&daemon, "imix.pcap", 1200, &["--size", "imix"]);
    let sizes = fields(&imix, &["frame.len"]);
    // The lengths are without the 4 bytes of FCS, and the ratio is 7 : 4 : 1.
    for (len, frames) in [("60", 700), ("590", 400), ("1514", 100)] {
        assert_eq!(sizes.iter().filter(|size| size[0] == len).count(), frames, "{len}");
    }
    let flows = generated(&daemon, "flows.pcap", 3000, &["--flows", "1000"]);
    let found = fields(&flows, &["ip.src", "ip.dst", "udp.srcport", "udp.dstport"]);
    assert_eq!(found.into_iter().collect::<HashSet<_>>().len(), 1000);
    let varied = generated(
        &daemon,
        "varied.pcap",
        40,
        &[
            "--stream",
            "size = 128, packet = [{ethernet = {}}, {vlan = {id = 5}}, {ipv4 = {}}, {udp = {}}], modify = [\
         {field = \"vlan.id\", list = [10, 20, 30]}, \
         {field = \"ipv4.source\", increment = {count = 4}, every = 3}, \
         {field = \"udp.source\", random = {seed = 9, low = 2000, high = 2999}}]",
        ],
    );
    assert_good(&varied, "udp.checksum.status", 1);
    let found = fields(&varied, &["vlan.id", "ip.src", "udp.srcport"]);
    for (number, values) in found.iter().enumerate() {
        assert_eq!(values[0], ["10", "20", "30"][number % 3]);
        assert_eq!(values[1], format!("198.18.0.{}", 1 + number / 3 % 4));
        assert!((2000..3000).contains(&values[2].parse().unwrap()), "{values:?}");
    }
}

#[test]
fn a_trial_passes_fails_and_is_invalid() {
    let daemon = Daemon::start();
    let trial = |arguments: &[&str]| {
        let fixed = ["trial", "--duration", "0.5", "--settle", "0.05", "--drain", DRAIN_S];
        let output = run(daemon.ringroad(&fixed.iter().chain(arguments).copied().collect::<Vec<_>>()));
        let report = json(&output);
        let status =
            ["pass", "", "", "fail", "invalid"].iter().position(|verdict| report["verdict"] == *verdict);
        assert_eq!(
            output.status.code().map(|code| code as usize),
            status,
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(output.stderr.is_empty(), "{}", stderr(&output));
        report
    };
    let passed = trial(&["vale0:a@slots=4096", "vale0:b@slots=4096", "--rate", "2kpps", "--bidirectional"]);
    assert_eq!(passed["verdict"], "pass", "{passed}");
    assert_eq!((&passed["sent_frames"], &passed["lost_frames"]), (&Value::from(2000), &Value::from(0)));
    // Learning frames taught the switch both addresses, so that nothing is flooded to a third port.
    assert_eq!(passed["report"]["ports"][1]["received"]["unknown_stream_frames"], 0, "{passed}");
    // Nothing joins the two switches.
    let failed = trial(&["vale0:a", "vale1:b", "--rate", "2kpps"]);
    assert_eq!((&failed["verdict"], &failed["received_frames"]), (&Value::from("fail"), &Value::from(0)));
    assert_eq!(failed["loss_ratio"], 1.0);
    // No memory is fast enough for this rate.
    let invalid = trial(&["vale0:a", "vale0:b", "--rate", "10000Mpps"]);
    assert_eq!(invalid["verdict"], "invalid");
    assert!(invalid["reasons"][0].as_str().unwrap().contains("less than configured"), "{invalid}");
}

#[test]
fn a_plan_means_the_same_as_arguments() {
    let daemon = Daemon::start();
    let shown = run(daemon.ringroad(&[
        "gen",
        "vale0:a",
        "--to",
        "vale0:b@slots=4096",
        "--rate",
        "20kpps",
        "--count",
        "500",
        "--vlan",
        "7",
        "--size",
        "128",
        "--drain",
        DRAIN_S,
        "--show-plan",
    ]));
    assert!(shown.status.success(), "{}", stderr(&shown));
    let file = daemon.folder().join("plan.toml");
    std::fs::write(&file, &shown.stdout).unwrap();
    let report = json(&run(daemon.ringroad(&["--json", "gen", "--plan", &file.display().to_string()])));
    assert_eq!(report["loads"][0]["arrivals"][0]["received"], 500, "{report}");
    assert_eq!(report["loads"][0]["mean_size_bytes"], 128.0);
}

#[test]
fn an_interrupted_generator_reports_its_results() {
    let daemon = Daemon::start();
    let mut generator = start(daemon.ringroad(&[
        "--json",
        "gen",
        "vale0:a",
        "--to",
        "vale0:b@slots=4096",
        "--rate",
        "1kpps",
        "--drain",
        DRAIN_S,
    ]));
    generator.signal(rustix::process::Signal::INT);
    let report = summary(&mut generator);
    let load = &report["loads"][0];
    assert_eq!(load["arrivals"][0]["received"], load["sent"]["frames"], "{report}");
}

#[test]
fn replayed_frames_have_other_addresses_and_right_checksums() {
    let daemon = Daemon::start();
    let source = generated(&daemon, "source.pcap", 60, &["--flows", "6", "--size", "100"]);
    let record = daemon.folder().join("mapped.pcap").display().to_string();
    let mut recorder =
        start(daemon.ringroad(&["--json", "recv", "vale0:b", "-w", &record, "--count", "120"]));
    let replayed = run(daemon.ringroad(&[
        "replay",
        &source,
        "vale0:a",
        "--rate",
        "10kpps",
        "--loop",
        "2",
        "--dst-mac",
        "02:00:00:00:00:77",
        "--map-ip",
        "198.18.0.0/16=10.20.0.0/16",
    ]));
    assert!(replayed.status.success(), "{}", stderr(&replayed));
    let _ = summary(&mut recorder);
    let found = fields(&record, &["eth.dst", "ip.src", "ip.dst"]);
    assert!(
        found.iter().all(|frame| *frame == ["02:00:00:00:00:77", "10.20.0.1", "198.19.0.1"]),
        "{:?}",
        found[0]
    );
    assert_good(&record, "ip.checksum.status", 1);
    assert_good(&record, "udp.checksum.status", 1);
}

#[test]
fn errors_of_definitions_name_field_and_allowed_values() {
    let daemon = Daemon::start();
    let file = daemon.folder().join("streams.toml");
    let plan = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Path::new(&file).display().to_string()
    };
    let streams = plan("[[stream]]\npacket = [{ethernet = {}}, {ipv4 = {ttl = 300}}]\n");
    for (arguments, code, parts) in [
        (vec!["gen", "vale0:a", "--size", "63"], 2, vec!["63", "64 to 65539"]),
        (vec!["gen", "vale0:a", "--flows", "10000001"], 1, vec!["flows", "10000000"]),
        (vec!["gen", "vale0:a", "--rate", "5"], 2, vec!["5pps"]),
        (vec!["gen", "vale0:a", "--shape", "poisson"], 1, vec!["poisson", "rate"]),
        (vec!["gen", "vale0:a", "--shape", "waves"], 2, vec!["waves", "bursts:FRAMES"]),
        (vec!["gen", "vale0:a", "--vlan", "4096"], 1, vec!["vlan", "4095"]),
        (vec!["gen", "vale0:a", "--streams", &streams], 1, vec!["stream[0].packet[1].ipv4.ttl", "300"]),
        (
            vec!["gen", "vale0:a", "--stream", "modify = [{field = \"ipv4.sauce\", list = [1]}]"],
            1,
            vec!["ipv4.sauce", "dscp", "source"],
        ),
        (
            vec!["gen", "vale0:a", "--protocol", "tcp", "--size", "64", "--vlan", "1,2"],
            1,
            vec!["too short", "at least"],
        ),
        (vec!["gen", "vale0:a", "--to", "vale0:a"], 2, vec!["port vale0:a is given twice", "--to"]),
        (vec!["trial", "vale0:a", "vale0:a"], 2, vec!["port vale0:a is given twice"]),
        (vec!["gen", "vale0:a", "--frame", "xyz"], 2, vec!["xyz"]),
        (vec!["gen", "vale0:a", "--cpu", "4000"], 1, vec!["CPU 4000"]),
        (vec!["trial", "vale0:a", "vale0:b", "--acceptable-loss", "101"], 2, vec!["101", "0 to 100"]),
        (vec!["replay", "x.pcap", "vale0:a", "--map-ip", "10.0.0.0/8"], 2, vec!["10.0.0.0/8=198.18.0.0/8"]),
    ] {
        let output = run(daemon.ringroad(&[&arguments[..], &["--json"]].concat()));
        let why = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {why}");
        for part in parts {
            assert!(why.contains(part), "{arguments:?}: {part} is not in: {why}");
        }
        assert!(!why.contains("panicked"), "{arguments:?}: {why}");
    }
    for (text, parts) in [
        ("", vec!["no port"]),
        (
            "[[port]]\nname = \"vale0:a\"\n[[load]]\nfrom = \"b\"\nstream = [{}]\n",
            vec!["from", "\"b\"", "vale0:a"],
        ),
        (
            "[[port]]\nname = \"vale0:a\"\n[[load]]\nfrom = \"vale0:a\"\nduration = 0\nstream = [{}]\n",
            vec!["duration", "above 0"],
        ),
        (
            "[[port]]\nname = \"vale0:a\"\n[[load]]\nfrom = \"vale0:a\"\nraet = \"1pps\"\nstream = [{}]\n",
            vec!["raet"],
        ),
        (
            "[[port]]\nname = \"vale0:a\"\n[[load]]\nfrom = \"vale0:a\"\nstream = [{weight = 0}]\n",
            vec!["weight", "1 to 10000"],
        ),
    ] {
        let output = run(daemon.ringroad(&["gen", "--plan", &plan(text)]));
        let why = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{why}");
        for part in parts {
            assert!(why.contains(part), "{part} is not in: {why}");
        }
    }
}
