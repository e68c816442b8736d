//! Programs written for libpcap, unchanged, with ports as their devices.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ringroad_capture::{CaptureFormat, CaptureWriter};
use ringroad_tests::command::{run, start, stderr, summary};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::frames::{numbered, read_capture, station};
use ringroad_tests::network::{NetworkNamespace, cable, finished, is_root, patience_s};
use ringroad_tests::service::Service;

/// A command under `ringroad run`, killed at the tests' time limit.
fn preloaded(daemon: &Daemon, command: &[&str]) -> Command {
    let limit = patience_s();
    let arguments = [&["run", "--", "timeout", &limit], command].concat();
    let mut ringroad = daemon.ringroad(&arguments);
    ringroad.current_dir(daemon.folder());
    ringroad
}

/// Starts a command under `ringroad run` and waits until it has opened `port`.
fn opened(daemon: &Daemon, command: &[&str], port: &str) -> Service {
    let service = Service::start(preloaded(daemon, command));
    daemon
        .await_status("open port", |status| status.ports.iter().any(|each| each.name == port && each.bound));
    service
}

/// Waits for the end of a program that must succeed; returns its output.
fn success(service: &mut Service) -> String {
    let (status, printed) = service.await_end();
    assert!(status.success(), "{status}: {printed}");
    printed
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Writes a capture of frames of many lengths. Every third frame is addressed to another station.
fn write_capture(path: &Path, frames: u64) -> Vec<Vec<u8>> {
    let mut writer = CaptureWriter::create(path, CaptureFormat::from_path(path), 0).unwrap();
    let frames = (0..frames).map(|number| {
        let to = if number % 3 == 0 { station(9) } else { [0xFF; 6] };
        let frame = numbered(to, station(1), number, 60 + (number * 37 % 1400) as usize);
        writer.write_frame(1_000_000_000 + number * 1_000, &frame, frame.len() as u32).unwrap();
        frame
    });
    let frames = frames.collect();
    writer.finish().unwrap();
    frames
}

/// Sends a capture's frames from `port`, slowly enough for all receivers.
fn replay(daemon: &Daemon, file: &Path, port: &str) {
    finished(&mut daemon.ringroad(&["replay", file.to_str().unwrap(), port, "--rate", "20kpps"]));
}

/// Path of the source of a test program.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Builds `pcap_device` against the system's libpcap.
fn pcap_device(folder: &Path) -> String {
    let program = folder.join("pcap_device");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source("pcap_device.c"));
    finished(compiler.args(["-lpcap", "-lpthread"]));
    program.to_str().unwrap().to_owned()
}

/// Makes two namespaces and a cable between them, from `near` to `far`, on which the kernel sends no frames of its own.
fn quiet_cable() -> (NetworkNamespace, NetworkNamespace) {
    let ends = (NetworkNamespace::new(), NetworkNamespace::new());
    for namespace in [&ends.0, &ends.1] {
        namespace.set("net/ipv6/conf/default/disable_ipv6", "1");
    }
    cable(&ends.0, "near", &ends.1, "far", 1500, 1);
    ends
}

/// Path of the capture that the demo replays, with real traffic of both directions.
fn real_capture() -> PathBuf {
    std::env::var("RINGROAD_CAPTURE").expect("make e2e names a capture in RINGROAD_CAPTURE").into()
}

#[test]
fn tcpdump_writes_and_counts_the_sent_frames() {
    let daemon = Daemon::start();
    let (sent, got) = (daemon.folder().join("sent.pcap"), daemon.folder().join("got.pcap"));
    let frames = write_capture(&sent, 500);
    let count = frames.len().to_string();
    let command = ["tcpdump", "-i", "vale0:1", "-c", &count, "-Z", "root", "-w", got.to_str().unwrap()];
    let mut tcpdump = opened(&daemon, &command, "vale0:1");
    replay(&daemon, &sent, "vale0:2");
    let printed = success(&mut tcpdump);
    assert!(printed.contains("500 packets captured"), "{printed}");
    assert!(printed.contains("500 packets received by filter"), "{printed}");
    assert!(printed.contains("0 packets dropped by kernel"), "{printed}");
    assert_eq!(read_capture(&got), frames);
    await_conserved(&daemon);
}

#[test]
fn tcpdump_filters_by_its_expression_and_cuts_at_its_length() {
    let daemon = Daemon::start();
    let (sent, got) = (daemon.folder().join("sent.pcap"), daemon.folder().join("got.pcap"));
    let frames = write_capture(&sent, 500);
    let mut wanted: Vec<_> =
        frames.into_iter().filter(|frame| frame[..6] == [0xFF; 6] && frame.len() >= 900).collect();
    wanted.iter_mut().for_each(|frame| frame.truncate(100));
    let count = wanted.len().to_string();
    let command = ["tcpdump", "-i", "vale0:1", "-c", &count, "-Z", "root", "-s", "100", "-w", "got.pcap"];
    let filter = ["ether", "broadcast", "and", "greater", "900"];
    let mut tcpdump = opened(&daemon, &[&command[..], &filter].concat(), "vale0:1");
    replay(&daemon, &sent, "vale0:2");
    success(&mut tcpdump);
    assert_eq!(read_capture(&got), wanted);
}

#[test]
fn an_interrupted_tcpdump_prints_all_counts() {
    let daemon = Daemon::start();
    let sent = daemon.folder().join("sent.pcap");
    write_capture(&sent, 30);
    // tcpdump runs without timeout(1), which does not pass SIGINT on.
    let command = daemon.ringroad(&["run", "tcpdump", "-l", "-n", "-e", "-i", "x}1"]);
    let mut tcpdump = Service::start(command);
    daemon
        .await_status("open port", |status| status.ports.iter().any(|port| port.name == "x}1" && port.bound));
    replay(&daemon, &sent, "x{1");
    (0..30).for_each(|_| drop(tcpdump.await_line("ethertype")));
    tcpdump.signal(rustix::process::Signal::INT);
    let printed = success(&mut tcpdump);
    assert!(printed.contains("30 packets captured"), "{printed}");
}

#[test]
fn dumpcap_lists_ports_and_captures_from_them() {
    let daemon = Daemon::start();
    let (sent, got) = (daemon.folder().join("sent.pcap"), daemon.folder().join("got.pcapng"));
    let frames = write_capture(&sent, 300);
    let mut dumpcap =
        opened(&daemon, &["dumpcap", "-i", "vale0:1", "-c", "300", "-w", "got.pcapng"], "vale0:1");
    let listed = succeeded(&run(preloaded(&daemon, &["dumpcap", "-D"])));
    assert!(listed.lines().any(|line| line.contains(". vale0:1")), "{listed}");
    assert!(listed.contains(". any"), "the system's devices are listed as well: {listed}");
    replay(&daemon, &sent, "vale0:2");
    let printed = success(&mut dumpcap);
    assert!(printed.contains("300/0"), "{printed}");
    assert_eq!(read_capture(&got), frames);
}

#[test]
fn tshark_shows_the_fields_of_frames() {
    let daemon = Daemon::start();
    let sent = daemon.folder().join("sent.pcap");
    let frames = write_capture(&sent, 40);
    let fields = ["-T", "fields", "-e", "frame.len", "-e", "eth.src"];
    let command = [&["tshark", "-l", "-i", "vale0:1", "-c", "40"], &fields[..]].concat();
    let mut tshark = opened(&daemon, &command, "vale0:1");
    replay(&daemon, &sent, "vale0:2");
    let printed = success(&mut tshark);
    for frame in frames {
        assert!(printed.contains(&format!("{}\t02:00:00:00:77:01", frame.len())), "{printed}");
    }
}

#[test]
fn scapy_sends_and_sniffs() {
    let daemon = Daemon::start();
    let sent = daemon.folder().join("sent.pcap");
    write_capture(&sent, 100);
    let script = source("scapy_frames.py");
    // The command is Debian's interpreter, which has Debian's Scapy.
    let command = ["/usr/bin/python3", script.to_str().unwrap(), "sent.pcap", "vale0:1", "vale0:2"];
    let mut command = preloaded(&daemon, &command);
    command.env("HOME", daemon.folder()).env("PYTHONDONTWRITEBYTECODE", "1");
    assert_eq!(succeeded(&run(command)).trim(), "100 frames, the same");
    await_conserved(&daemon);
}

#[test]
fn a_program_that_loads_libpcap_itself_gets_ports_too() {
    let daemon = Daemon::start();
    let sent = daemon.folder().join("sent.pcap");
    let frames = write_capture(&sent, 20);
    let script = source("ctypes_pcap.py");
    let command = ["/usr/bin/python3", script.to_str().unwrap(), "vale0:1", "20"];
    let mut program = opened(&daemon, &command, "vale0:1");
    replay(&daemon, &sent, "vale0:2");
    let printed = success(&mut program);
    assert!(printed.contains("libpcap version"), "other names are passed on: {printed}");
    let lengths: Vec<_> = frames.iter().map(Vec::len).collect();
    assert!(printed.contains(&format!("{lengths:?}")), "{printed}");
}

#[test]
fn a_real_capture_is_injected_whole_before_the_device_closes() {
    let daemon = Daemon::start();
    let (real, got) = (real_capture(), daemon.folder().join("got.pcap"));
    let frames = read_capture(&real);
    let count = frames.len().to_string();
    let program = pcap_device(daemon.folder());
    // A pipe is used, since a switch would not forward frames between two stations behind one port.
    let mut capture = start(daemon.ringroad(&[
        "--json",
        "capture",
        "x}1",
        "--count",
        &count,
        "--write",
        got.to_str().unwrap(),
    ]));
    succeeded(&run(preloaded(&daemon, &[&program, "replay", real.to_str().unwrap(), "x{1"])));
    let _ = summary(&mut capture);
    assert!(read_capture(&got) == frames, "other frames than the {count} of the capture");
}

#[test]
fn accepted_frames_are_sent_before_an_interface_closes() {
    if !is_root() {
        return;
    }
    let (outside, far) = quiet_cable();
    let daemon = Daemon::within(&outside);
    let program = pcap_device(daemon.folder());
    let sent = daemon.folder().join("sent.pcap");
    write_capture(&sent, 3000);
    let arrived = || far.link("far").statistics.rx_packets;
    for device in ["xdp:near", "packet:near"] {
        let before = arrived();
        let device = format!("{device}@netns={}", outside.name());
        succeeded(&run(preloaded(&daemon, &[&program, "replay", sent.to_str().unwrap(), &device])));
        assert_eq!(arrived() - before, 3000, "{device}");
    }
}

#[test]
fn tcpreplay_sends_by_the_systems_interfaces_and_reads_captures() {
    if !is_root() {
        return;
    }
    // Debian's tcpreplay sends on AF_PACKET sockets, so it needs an interface. A TAP is an interface and a port.
    let outside = NetworkNamespace::new();
    // The kernel must not send frames of its own on the TAP.
    outside.set("net/ipv6/conf/default/disable_ipv6", "1");
    let daemon = Daemon::within(&outside);
    let (real, got) = (real_capture(), daemon.folder().join("got.pcap"));
    let frames: Vec<_> = read_capture(&real).into_iter().take(2000).collect();
    let count = frames.len().to_string();
    let mut capture = start(daemon.ringroad(&[
        "--json",
        "capture",
        &format!("tap:t0@slots=4096,netns={}", outside.name()),
        "--count",
        &count,
        "--write",
        got.to_str().unwrap(),
    ]));
    outside.inside(|| {
        // The kernel's queue has room for all frames, however long the daemon gets no processor time.
        finished(Command::new("ip").args(["link", "set", "t0", "txqueuelen", &count]));
        ringroad_netdev::link_change::set_mtu("t0", 9000).unwrap();
        ringroad_netdev::link_change::set_up("t0", true).unwrap();
        ringroad_netdev::link_monitor::wait_running("t0", PATIENCE.unwrap()).unwrap();
    });
    let replay = ["tcpreplay", "-i", "t0", "-L", &count, "--pps", "20000", real.to_str().unwrap()];
    let within = [&["ip", "netns", "exec", outside.name()], &replay[..]].concat();
    succeeded(&run(preloaded(&daemon, &within)));
    let _ = summary(&mut capture);
    let got = read_capture(&got);
    let differing = got.iter().zip(&frames).position(|(got, sent)| got != sent);
    assert_eq!((got.len(), differing), (frames.len(), None), "{:x?}", differing.map(|at| &got[at]));
}

/// Runs one check of `pcap_device` on two devices.
fn check(name: &str, a: &str, b: &str) {
    let daemon = Daemon::start();
    let program = pcap_device(daemon.folder());
    succeeded(&run(preloaded(&daemon, &[&program, "check", name, a, b])));
}

#[test]
fn loops_end_by_callbacks_signals_and_other_threads() {
    check("breakloop", "vale0:a", "vale0:b");
    check("breakloop", "x{1", "x}1");
}

#[test]
fn the_descriptor_is_readable_while_frames_are_unread() {
    check("descriptor", "vale0:a", "vale0:b");
    check("descriptor", "x{1", "x}1");
}

#[test]
fn reads_end_when_their_time_is_up() {
    check("timeout", "vale0:a", "vale0:b");
}

#[test]
fn a_send_to_a_full_ring_waits_or_fails() {
    check("full", "x{1", "x}1");
}

#[test]
fn the_descriptor_is_writable_while_the_ring_has_room() {
    check("room", "x{1", "x}1");
}

#[test]
fn a_device_belongs_to_the_process_that_opened_it() {
    check("fork", "vale0:a", "vale0:b");
}

#[test]
fn callbacks_may_send_on_their_own_device() {
    check("both-ways", "vale0:a", "vale0:b");
    check("both-ways", "x{1", "x}1");
}

#[test]
fn frames_settings_and_files_match_libpcap() {
    check("frames", "vale0:a", "vale0:b");
}

#[test]
fn drops_for_lack_of_room_are_counted() {
    check("drops", "vale0:a", "vale0:b");
}

#[test]
fn libpcap_itself_opens_the_systems_devices() {
    if is_root() {
        check("system", "vale0:a", "vale0:b");
    }
}

#[test]
fn interfaces_by_name_carry_frames_both_ways() {
    if !is_root() {
        return;
    }
    let (outside, far) = quiet_cable();
    let daemon = Daemon::within(&outside);
    let program = pcap_device(daemon.folder());
    let far = format!("packet:far@netns={}", far.name());
    for near in ["xdp:near", "packet:near"] {
        let near = format!("{near}@netns={}", outside.name());
        succeeded(&run(preloaded(&daemon, &[&program, "check", "both-ways", &near, &far])));
    }
}

#[test]
fn missing_devices_are_refused_with_a_reason() {
    let daemon = Daemon::start();
    let printed = |device: &str| {
        let output = run(preloaded(&daemon, &["tcpdump", "-i", device]));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        stderr(&output)
    };
    let missing = printed("xdp:nosuch0");
    assert!(missing.contains("No such device") && missing.contains("no interface nosuch0"), "{missing}");
    let wrong = printed("vale0:a@colour=3");
    assert!(wrong.contains("colour"), "{wrong}");
    let _port = daemon.open("vale0:taken");
    let taken = printed("vale0:taken");
    assert!(taken.contains("vale0:taken"), "{taken}");
}

#[test]
fn an_object_in_a_program_without_our_devices_opens_nothing() {
    let daemon = Daemon::start();
    let output = run(preloaded(&daemon, &["sh", "-c", "ls -l /proc/self/fd; ls /proc/self/task | wc -l"]));
    let printed = succeeded(&output);
    assert!(
        !printed.contains("socket:") && !printed.contains("eventfd") && !printed.contains("memfd"),
        "{printed}"
    );
    assert_eq!(printed.lines().last().unwrap().trim(), "1", "{printed}");
    assert_eq!(stderr(&output), "");
    // A listing starts no daemon.
    let mut listing = preloaded(&daemon, &["dumpcap", "-D"]);
    let nowhere = daemon.folder().join("nowhere.sock");
    let listing = listing.env("RINGROAD_SOCKET", &nowhere).output().unwrap();
    assert!(listing.status.success());
}

#[test]
fn programs_that_ignore_preloading_are_refused() {
    let daemon = Daemon::start();
    let status_of = |arguments: &[&str]| {
        let output = run(daemon.ringroad(&[&["run"], arguments].concat()));
        (output.status.code(), stderr(&output))
    };
    let program = daemon.folder().join("static");
    std::fs::write(daemon.folder().join("main.c"), "int main(void) { return 0; }").unwrap();
    finished(Command::new("cc").args(["-static", "-o"]).arg(&program).arg(daemon.folder().join("main.c")));
    let (status, printed) = status_of(&[program.to_str().unwrap()]);
    assert_eq!(status, Some(126));
    assert!(printed.contains("statically linked"), "{printed}");
    assert_eq!(status_of(&["no-such-program"]).0, Some(127));
    assert_eq!(status_of(&["/etc/passwd"]).0, Some(126));
    assert_eq!(status_of(&["sh", "-c", "exit 7"]).0, Some(7));
    let mut elsewhere = daemon.ringroad(&["run", "--no-netmap", "true"]);
    let output = elsewhere.env("RINGROAD_LIB_DIR", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("libringroad_preload_pcap.so was not found in /nonexistent"));
}
