//! `ringroad capture`: filters, files in turn and losses; tcpdump and capinfos are the judges.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use ringroad::Port;
use ringroad_capture::{CaptureFormat, CaptureWriter};
use ringroad_tests::command::{run, start, stderr, summary};
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{number_of, numbered, read_capture, send, station};
use ringroad_tests::network::{NetworkNamespace, cable, is_root};
use ringroad_tests::service::Service;
use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};
use serde_json::Value;

fn capture(daemon: &Daemon, port: &str, file: &Path, arguments: &[&str]) -> Service {
    let first = ["--json", "capture", port, "-w", file.to_str().unwrap()];
    start(daemon.ringroad(&[&first[..], arguments].concat()))
}

/// Ends a capture, and returns its summary.
fn end(mut capture: Service) -> Value {
    capture.signal(Signal::INT);
    summary(&mut capture)
}

/// Waits until `frames` frames were delivered to a port of the daemon, or dropped there.
fn await_frames(daemon: &Daemon, port: &str, frames: u64) {
    daemon.await_status("all frames at the port", |status| {
        status.ports.iter().any(|report| {
            let counters = &report.counters;
            report.name == port && counters.delivered_frames + counters.drops.values().sum::<u64>() == frames
        })
    });
}

fn transmit(port: &mut Port, frames: &[Vec<u8>]) {
    for frame in frames {
        send(port, frame);
        port.tx().sync().unwrap();
    }
}

/// An IPv4 packet in a frame, in a VLAN if `vlan` is given. `to` is the last byte of the destination address.
fn packet(vlan: Option<u16>, protocol: u8, to: u8, ports: [u16; 2], len: usize) -> Vec<u8> {
    let mut frame = [[0xff; 6], station(1)].concat();
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0x00]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([0x08, 0x00, 0x45, 0]);
    let packet_bytes = len as u16 - frame.len() as u16 + 2;
    frame.extend(packet_bytes.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 198, 18, 0, 1, 198, 19, 0, to]);
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.resize(len, 0x5a);
    frame
}

/// Frames of a capture that pass tcpdump's filter.
fn filtered_by_tcpdump(all: &Path, filter: &str, folder: &Path) -> Vec<Vec<u8>> {
    let judged = folder.join("judged.pcap");
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.arg("-r").arg(all).arg("-w").arg(&judged).args(filter.split(' '));
    let printed = run(tcpdump);
    assert!(printed.status.success(), "{}", stderr(&printed));
    read_capture(&judged)
}

#[test]
fn a_filter_passes_the_frames_that_tcpdumps_passes() {
    const FILTERS: [&str; 6] = [
        "udp port 53",
        "tcp dst port 443 and dst host 198.19.0.3",
        "not ip",
        "vlan 7 and udp",
        "greater 1000 or (ip[9] == 17 and ip[19] == 3)",
        "ether broadcast and less 100",
    ];
    let mut frames = Vec::new();
    for number in 0..500u16 {
        let vlan = (number % 7 == 0).then_some(7 + number % 2);
        let ports = [1024 + number, [53, 443, 80][usize::from(number % 3)]];
        let protocol = if number % 2 == 0 { 17 } else { 6 };
        let len = [60, 128, 1514][usize::from(number / 3 % 3)];
        frames.push(packet(vlan, protocol, (number % 4) as u8, ports, len));
        frames.push(numbered([0xff; 6], station(1), number.into(), 60));
    }
    let daemon = Daemon::start();
    let file = |name: &str| daemon.folder().join(name);
    let all = file("all.pcap");
    let whole = capture(&daemon, "vale0:all@slots=2048", &all, &[]);
    let mut captures: Vec<_> = FILTERS
        .iter()
        .enumerate()
        .map(|(number, filter)| {
            let words: Vec<&str> = filter.split(' ').collect();
            let port = format!("vale0:f{number}");
            capture(&daemon, &format!("{port}@slots=2048"), &file(&format!("{number}.pcap")), &words)
        })
        .collect();
    // The filter sees whole frames, although only 40 bytes of each are kept. `--count` counts only frames that pass.
    let short = ["--count", "10", "--snaplen", "40", "udp", "port", "53"];
    let mut first = capture(&daemon, "vale0:first@slots=2048", &file("first.pcap"), &short);
    let mut sender = daemon.open("vale0:sender");
    transmit(&mut sender, &frames);
    let total = frames.len() as u64;
    await_frames(&daemon, "vale0:all", total);
    assert_eq!(end(whole)["capture"]["frames"], total);
    assert_eq!(read_capture(&all), frames);
    for (number, filter) in FILTERS.iter().enumerate() {
        await_frames(&daemon, &format!("vale0:f{number}"), total);
        let summary = end(captures.remove(0));
        let expected = filtered_by_tcpdump(&all, filter, daemon.folder());
        assert!(!expected.is_empty() && expected.len() < frames.len(), "{filter} selects a part");
        assert_eq!(read_capture(&file(&format!("{number}.pcap"))), expected, "{filter}");
        assert_eq!(summary["capture"]["frames"], expected.len());
        assert_eq!(summary["frames"], total);
        assert_eq!(summary["filtered_frames"], total - expected.len() as u64);
        assert_eq!(summary["drops"], serde_json::json!({}));
    }
    assert_eq!(summary(&mut first)["capture"]["frames"], 10);
    let expected = filtered_by_tcpdump(&all, FILTERS[0], daemon.folder());
    let cut: Vec<_> = expected[..10].iter().map(|frame| frame[..40].to_vec()).collect();
    assert_eq!(read_capture(&file("first.pcap")), cut);
}

/// Value from capinfos for a file, without its unit.
fn capinfos(option: &str, file: &Path) -> String {
    let mut command = Command::new("capinfos");
    command.args(["-M", "-T", "-r", option]).arg(file);
    let printed = run(command);
    assert!(printed.status.success(), "{}", stderr(&printed));
    let line = String::from_utf8(printed.stdout).unwrap();
    line.trim_end().rsplit('\t').next().unwrap().to_owned()
}

/// Sorted names of a folder's files; only names that begin with `begin`.
fn files(folder: &Path, begin: &str) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.starts_with(begin));
    names.sort();
    names
}

#[test]
fn a_ring_of_files_keeps_the_newest_frames() {
    let daemon = Daemon::start();
    let ring = ["--file-size", "10kB", "--files", "11"];
    let capture = capture(&daemon, "vale0:look@slots=4096", &daemon.folder().join("ring.pcapng"), &ring);
    let mut sender = daemon.open("vale0:sender");
    let frames: Vec<_> = (0..3000).map(|number| numbered([0xff; 6], station(1), number, 100)).collect();
    transmit(&mut sender, &frames);
    await_frames(&daemon, "vale0:look", 3000);
    let summary = end(capture);
    assert_eq!((&summary["frames"], &summary["capture"]["frames"]), (&3000.into(), &3000.into()));
    // Each frame has a block of 132 bytes, after 60 bytes at the beginning of a file: a file holds 75 frames.
    assert_eq!(summary["capture"]["files"], 40);
    let names = files(daemon.folder(), "ring");
    let expected: Vec<_> = (0..11).map(|number| format!("ring.pcapng{number:02}")).collect();
    assert_eq!(names, expected);
    let mut kept = Vec::new();
    for name in names {
        let path = daemon.folder().join(name);
        assert_eq!(capinfos("-c", &path), "75");
        assert!(std::fs::metadata(&path).unwrap().len() <= 10_000);
        kept.extend(read_capture(&path).iter().map(|frame| number_of(frame, station(1)).unwrap()));
    }
    kept.sort_unstable();
    assert_eq!(kept, (3000 - 11 * 75..3000).collect::<Vec<_>>());
}

#[test]
fn a_file_has_the_frames_of_at_most_the_given_time() {
    let daemon = Daemon::start();
    let source = daemon.folder().join("source.pcap");
    let mut writer = CaptureWriter::create(&source, CaptureFormat::Pcap, 0).unwrap();
    let frames: Vec<_> = (0..12).map(|number| numbered([0xff; 6], station(1), number, 60)).collect();
    for (number, frame) in (0u64..).zip(&frames) {
        writer.write_frame(number * 100_000_000, frame, 60).unwrap();
    }
    writer.finish().unwrap();
    let monitor =
        capture(&daemon, "vale0:look", &daemon.folder().join("x.pcap"), &["--file-seconds", "0.25"]);
    let sent = run(daemon.ringroad(&["replay", source.to_str().unwrap(), "vale0:sender"]));
    assert!(sent.status.success(), "{}", stderr(&sent));
    await_frames(&daemon, "vale0:look", 12);
    let summary = end(monitor);
    let names = files(daemon.folder(), "x.pcap");
    assert_eq!(names[..2], ["x.pcap", "x.pcap1"], "{names:?}");
    assert_eq!(summary["capture"]["files"], names.len());
    let mut kept = Vec::new();
    for name in &names {
        let path = daemon.folder().join(name);
        assert!(capinfos("-u", &path).parse::<f64>().unwrap() < 0.25);
        kept.extend(read_capture(&path));
    }
    kept.sort_by_key(|frame| number_of(frame, station(1)));
    assert_eq!(kept, frames);
}

/// Stops a program by SIGSTOP, and waits until it is stopped.
fn stop(program: &mut Service) {
    program.signal(Signal::STOP);
    let stopped = waitid(WaitId::Pid(program.pid()), WaitIdOptions::STOPPED).unwrap().unwrap();
    assert!(stopped.stopped(), "it has ended");
}

#[test]
fn frames_that_came_before_the_end_are_received_and_those_without_room_are_reported_by_cause() {
    let daemon = Daemon::start();
    let mut sender = daemon.open("vale0:sender");
    let frames: Vec<_> = (0..200).map(|number| numbered([0xff; 6], station(1), number, 60)).collect();
    for verb in ["recv", "capture"] {
        let file = daemon.folder().join(verb);
        let port = format!("vale0:{verb}");
        let arguments = ["--json", verb, &format!("{port}@slots=64"), "-w", file.to_str().unwrap()];
        let mut receiver = start(daemon.ringroad(&arguments));
        stop(&mut receiver);
        transmit(&mut sender, &frames);
        await_frames(&daemon, &port, 200);
        // The receiver ends before it can read its ring.
        receiver.signal(Signal::INT);
        receiver.signal(Signal::CONT);
        let summary = summary(&mut receiver);
        let lost = summary["drops"]["no_space"].as_u64().unwrap();
        assert!(lost >= 200 - 63, "{summary}");
        assert_eq!(summary["left_frames"], 0);
        assert_eq!(summary["frames"].as_u64().unwrap() + lost, 200);
        assert_eq!(read_capture(&file), frames[..200 - lost as usize]);
    }
}

#[test]
fn frames_beyond_the_count_are_reported() {
    let daemon = Daemon::start();
    let file = daemon.folder().join("x.pcap");
    let mut capture = capture(&daemon, "vale0:look@slots=256", &file, &["--count", "150"]);
    stop(&mut capture);
    let mut sender = daemon.open("vale0:sender");
    let frames: Vec<_> = (0..200).map(|number| numbered([0xff; 6], station(1), number, 60)).collect();
    transmit(&mut sender, &frames);
    await_frames(&daemon, "vale0:look", 200);
    capture.signal(Signal::CONT);
    let summary = summary(&mut capture);
    assert_eq!((&summary["frames"], &summary["left_frames"]), (&150.into(), &50.into()));
    assert_eq!(read_capture(&file), frames[..150]);
}

#[test]
fn an_interface_is_captured_to_the_frame_before_the_end() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let [near, far] = [NetworkNamespace::new(), NetworkNamespace::new()];
    cable(&far, "outer", &near, "inner", 1500, 1);
    let file = daemon.folder().join("x.pcap");
    let filter = "ether proto 0x88b5 and ether src 02:00:00:00:77:01";
    let arguments = ["--json", "capture", "packet:outer@slots=64", "-w", file.to_str().unwrap(), filter];
    let mut capture = start(daemon.ringroad_within(&far, &arguments));
    // More frames are sent than the ring of the stopped capture holds: the kernel still has the others when the capture
    // ends.
    stop(&mut capture);
    let mut sender =
        Port::open_with(&format!("packet:inner@netns={}", near.name()), &daemon.options()).unwrap();
    let frames: Vec<_> = (0..400).map(|number| numbered([0xff; 6], station(1), number, 60)).collect();
    for frame in &frames {
        send(&mut sender, frame);
        send(&mut sender, &numbered([0xff; 6], station(2), 0, 60));
        sender.tx().sync().unwrap();
    }
    let received = || {
        let statistics = far.inside(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap();
        let line = statistics.lines().find(|line| line.trim_start().starts_with("outer:")).unwrap();
        line.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap()
    };
    daemon.await_status("all frames at the interface", |_| received() >= 800);
    capture.signal(Signal::INT);
    capture.signal(Signal::CONT);
    let summary = summary(&mut capture);
    let captured = read_capture(&file);
    assert!(captured == frames, "{} of {} frames: {summary}", captured.len(), frames.len());
    assert_eq!(summary["filtered_frames"], summary["frames"].as_u64().unwrap() - 400);
    assert_eq!(summary["drops"], serde_json::json!({}));
}

#[test]
fn without_libpcap_a_filter_is_refused_and_a_capture_works() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let file = daemon.folder().join("x.pcap");
    let without_libpcap = |filter: &[&str]| {
        let arguments = ["capture", "vale0:look", "--duration", "0.1", "-w", file.to_str().unwrap()];
        let command = daemon.ringroad(&[&arguments[..], filter].concat());
        let mut hidden = Command::new("unshare");
        let hide = "for library in $(ldconfig -p | sed -n 's/.*libpcap.so.* => //p'); do
            mount --bind /dev/null $library; done; exec \"$@\"";
        hidden.args(["--mount", "sh", "-c", hide, "sh"]).arg(command.get_program()).args(command.get_args());
        run(hidden)
    };
    let refused = without_libpcap(&["udp"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("apt install libpcap0.8"), "{}", stderr(&refused));
    assert!(!file.exists());
    let captured = without_libpcap(&[]);
    assert!(captured.status.success(), "{}", stderr(&captured));
    assert!(read_capture(&file).is_empty());
}

#[test]
fn wrong_captures_are_refused_with_the_reason() {
    let daemon = Daemon::start();
    let file = daemon.folder().join("x.pcap");
    let file = file.to_str().unwrap();
    for (arguments, reason) in [
        (&["-w", file, "udp", "prot", "53"][..], "syntax error"),
        (&["-w", file, "tcp port http-not"], "http-not"),
        (&["-w", file, "--files", "3"], "--file-size"),
        (&["-w", file, "--file-size", "0"], "bytes above 0"),
        (&["-w", "-", "--file-seconds", "60"], "--write"),
    ] {
        let refused = run(daemon.ringroad(&[&["capture", "vale0:look"], arguments].concat()));
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(reason), "{}", stderr(&refused));
    }
    assert!(files(daemon.folder(), "x.pcap").is_empty(), "nothing was written over");
}
