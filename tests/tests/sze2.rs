//! An SZE2 card on the daemon's switch, and its programs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use ringroad::Port;
use ringroad_tests::command::{run, stderr};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{read_capture, receive};
use ringroad_tests::network::finished;
use ringroad_tests::passage::{both_ways, carry};
use ringroad_tests::service::Service;
use rustix::process::Signal;
use serde_json::Value;

const LENGTHS: [usize; 9] = [60, 64, 128, 256, 512, 1024, 1280, 1514, 9018];

/// A daemon with a card on vale0.
struct Testbed {
    daemon: Daemon,
}

impl Testbed {
    fn new(options: &str) -> Self {
        let site = Self { daemon: Daemon::start() };
        let driver = format!("sze2:{}{options}", site.card().display());
        finished(&mut site.daemon.ringroad(&["attach", "vale0:card", "--driver", &driver]));
        site
    }

    fn card(&self) -> PathBuf {
        self.daemon.folder().join("szedataII0")
    }

    /// Opens a channel as a port of this program.
    fn channel(&self, number: u16) -> Port {
        Port::open(&format!("szedata:{}@channel={number}", self.card().display())).unwrap()
    }

    /// Runs `ringroad sze2 VERB CARD ...` and returns its JSON output.
    fn sze2(&self, verb: &str, arguments: &[&str]) -> Value {
        let card = self.card().display().to_string();
        let arguments = [&["--json", "sze2", verb, &card], arguments].concat();
        serde_json::from_str(&finished(&mut self.daemon.ringroad(&arguments))).unwrap()
    }

    fn number(&self, pointer: &str) -> u64 {
        self.sze2("status", &[]).pointer(pointer).unwrap().as_u64().unwrap()
    }
}

#[test]
fn frames_pass_a_channel_both_ways_unchanged_and_all_counts_agree() {
    let site = Testbed::new("@channels=4,buffer=4M");
    site.sze2("filter", &["--rule", "default allow 2"]);
    let (mut near, mut far) = (site.daemon.open("vale0:near"), site.channel(2));
    both_ways(near.queue(), far.queue(), &LENGTHS, 1, 3000);
    let status = await_conserved(&site.daemon);
    let card = status.ports.iter().find(|port| port.name == "vale0:card").unwrap();
    let counters = &card.counters;
    assert_eq!((counters.violations, card.kind.as_str()), (0, "sze2"));
    assert_eq!(site.number("/ibuf_counters/frames"), counters.delivered_frames);
    assert_eq!(site.number("/ibuf_counters/bytes"), counters.delivered_bytes);
    assert_eq!(site.number("/receive/2/counters/frames"), counters.delivered_frames);
    assert_eq!(site.number("/obuf_counters/frames"), counters.received_frames);
    assert_eq!(site.number("/transmit/2/counters/bytes"), counters.received_bytes);
    let subscriber = site.sze2("status", &[]).pointer("/receive/2/subscriber/pid").unwrap().as_u64();
    assert_eq!(subscriber, Some(std::process::id().into()));
}

#[test]
fn a_real_capture_passes_a_pipe_and_a_card_into_a_capture() {
    let capture = std::env::var("RINGROAD_CAPTURE").expect("make e2e names a capture in RINGROAD_CAPTURE");
    let daemon = Daemon::start();
    let (card, copy) = (daemon.folder().join("card"), daemon.folder().join("copy.pcap"));
    // A pipe is used: a switch would learn from the capture that all stations are behind one port.
    let card = card.to_str().unwrap();
    let mut forwarder = Service::start(daemon.ringroad(&[
        "--json",
        "fwd",
        "x}1",
        &format!("sze2:{card}@channels=1,metadata=1"),
    ]));
    forwarder.await_line("ready");
    let frames = read_capture(capture.as_ref());
    let (device, count) = (format!("szedata:{card}"), frames.len().to_string());
    let record = ["--json", "capture", &device, "--write", copy.to_str().unwrap(), "--count", &count];
    let mut recorder = Service::start(daemon.ringroad(&record));
    recorder.await_line("ready");
    finished(&mut daemon.ringroad(&["replay", &capture, "x{1", "--rate", "20kpps"]));
    let (status, printed) = recorder.await_end();
    assert!(status.success(), "{printed}");
    assert!(read_capture(&copy) == frames);
    let status = finished(&mut daemon.ringroad(&["--json", "sze2", "status", card]));
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["receive"][0]["counters"]["frames"], frames.len());
}

#[test]
fn tcpdump_reads_a_channel() {
    let site = Testbed::new("@channels=1,buffer=1M,metadata=1");
    let device = format!("szedata:{}", site.card().display());
    let tcpdump = ["run", "--", "tcpdump", "-i", &device, "-c", "5", "-n", "-e", "udp"];
    let mut tcpdump = Service::start(site.daemon.ringroad(&tcpdump));
    site.daemon.await_status("subscription", |_| site.sze2("status", &[])["receive"][0]["running"] == true);
    finished(&mut site.daemon.ringroad(&["gen", "vale0:player", "--count", "5", "--rate", "1kpps"]));
    let (status, printed) = tcpdump.await_end();
    assert!(status.success(), "{printed}");
    assert!(printed.contains("5 packets captured"), "{printed}");
}

#[test]
fn segments_are_dumped_saved_and_read_again() {
    let site = Testbed::new("@channels=1,buffer=1M,metadata=1");
    let (card, file) = (site.card().display().to_string(), site.daemon.folder().join("segments"));
    let file = file.to_str().unwrap();
    let dump = ["--json", "sze2", "dump", &card, "--count", "3", "--bytes", "2000", "--save", file];
    let mut dump = Service::start(site.daemon.ringroad(&dump));
    site.daemon.await_status("subscription", |_| site.sze2("status", &[])["receive"][0]["running"] == true);
    finished(&mut site.daemon.ringroad(&[
        "gen",
        "vale0:player",
        "--count",
        "3",
        "--size",
        "128",
        "--rate",
        "1kpps",
    ]));
    let (status, live) = dump.await_end();
    assert!(status.success(), "{live}");
    let read = finished(&mut site.daemon.ringroad(&["--json", "sze2", "dump", file, "--bytes", "2000"]));
    let lines: Vec<Value> = live.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        read.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>(),
        lines
    );
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[1]["frame_bytes"], &lines[1]["metadata_bytes"]), (&124.into(), &12.into()));
    std::fs::write(file, [3u8; 16]).unwrap();
    let output = run(site.daemon.ringroad(&["sze2", "dump", file]));
    assert!(!output.status.success() && stderr(&output).contains("byte 0x0"), "{output:?}");
}

#[test]
fn the_command_line_sets_the_card_and_bad_settings_are_refused() {
    let site = Testbed::new("@channels=2,buffer=1M");
    let card = site.card().display().to_string();
    let status = site.sze2(
        "ibuf",
        &[
            "--disable",
            "--check",
            "multicast",
            "--address",
            "02:00:00:00:00:07",
            "--min",
            "60",
            "--max",
            "1514",
        ],
    );
    assert_eq!(status["ibuf"]["enabled"], false);
    assert_eq!(status["ibuf"]["address_check"], "multicast");
    assert_eq!(status["ibuf"]["max_frame_bytes"], 1514);
    assert_eq!(site.sze2("ibuf", &["--enable"])["ibuf"]["enabled"], true);
    assert_eq!(site.sze2("obuf", &["--disable"])["obuf_enabled"], false);
    assert_eq!(site.sze2("dist", &["symmetric-hash", "--ports", "false"])["spread"], "symmetric-hash");
    let text = finished(&mut site.daemon.ringroad(&["sze2", "status", &card]));
    assert!(
        text.contains("check multicast") && text.contains("OBUF off") && text.contains("without protocol"),
        "{text}"
    );
    for (arguments, part) in [
        (vec!["sze2", "filter", &card, "--rule", "default allow 9"], "channel 9"),
        (vec!["sze2", "filter", &card, "--rule", "allow 1"], "line 1"),
        (vec!["sze2", "ibuf", &card, "--address", "01:00:5e:00:00:01"], "group"),
        (vec!["sze2", "ibuf", &card, "--min", "2000"], "no greater than"),
        (vec!["sze2", "status", "/nowhere/card"], "/nowhere/card"),
        (vec!["sze2", "dump", &card, "--channel", "2"], "not one of its 2"),
    ] {
        let output = run(site.daemon.ringroad(&arguments));
        assert!(!output.status.success() && stderr(&output).contains(part), "{arguments:?}: {output:?}");
    }
    assert_eq!(site.sze2("status", &[])["filter"], "default allow 0-1\n");
}

#[test]
fn the_command_line_boots_a_card() {
    let site = Testbed::new("@channels=2,buffer=1M,design=HANIC_100G1_LR4");
    let card = site.card().display().to_string();
    assert_eq!(site.sze2("boot", &[])["name"], "HANIC_100G1_LR4");
    site.sze2("obuf", &["--disable"]);
    let booted = site.sze2("boot", &["NIC_100G1_LR4"]);
    assert_eq!((&booted["name"], &booted["filter"]), (&"NIC_100G1_LR4".into(), &false.into()));
    let status = site.sze2("status", &[]);
    assert_eq!((&status["design"]["name"], &status["obuf_enabled"]), (&booted["name"], &true.into()));
    let text = finished(&mut site.daemon.ringroad(&["sze2", "status", &card]));
    assert!(text.contains("design NIC_100G1_LR4"), "{text}");
    for (arguments, part) in
        [(["sze2", "boot", &card, "NIC"], "RINGROAD"), (["sze2", "dist", &card, "hash"], "no distribution")]
    {
        let output = run(site.daemon.ringroad(&arguments));
        assert!(!output.status.success() && stderr(&output).contains(part), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_card_stays_usable_when_programs_are_killed_under_traffic() {
    let site = Testbed::new("@channels=1,buffer=1M");
    let device = format!("szedata:{}", site.card().display());
    let mut near = site.daemon.open("vale0:near");
    for round in 0..3 {
        let mut program = Service::start(site.daemon.ringroad(&["gen", &device]));
        let _flows = receive(&mut near);
        program.kill();
        site.daemon.await_status("end of the subscription", |_| {
            site.sze2("status", &[])["transmit"][0]["subscriber"].is_null()
        });
        let mut far = site.channel(0);
        carry(near.queue(), far.queue(), &LENGTHS, round, 300);
        drop(far);
        site.daemon.await_status("end of the subscription", |_| {
            site.sze2("status", &[])["transmit"][0]["subscriber"].is_null()
        });
    }
    await_conserved(&site.daemon);
}

#[test]
fn programs_report_the_daemons_death() {
    let mut site = Testbed::new("@channels=1,buffer=1M");
    let card = site.card().display().to_string();
    let mut dump = Service::start(site.daemon.ringroad(&["sze2", "dump", &card]));
    site.daemon.await_status("subscription", |_| site.sze2("status", &[])["receive"][0]["running"] == true);
    site.daemon.signal(Signal::KILL);
    site.daemon.await_end();
    let (status, printed) = dump.await_end();
    assert!(!status.success() && printed.contains("has closed the connection"), "{printed}");
}
