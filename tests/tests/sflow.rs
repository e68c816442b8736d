//! `ringroad sflow` with the real binaries: datagrams that a collector gets, as tshark reads them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write as _;
use std::net::UdpSocket;
use std::process::Command;

use ringroad::Port;
use ringroad::control::{Reply, Request};
use ringroad_tests::command::{run, stderr};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::frames::{numbered, receive_from, send, station};
use ringroad_tests::reserved_port::ReservedUdpPort;
use ringroad_tests::service::Service;
use rustix::process::Signal;
use serde_json::Value;

/// Sampling rate: one of this many frames is sampled.
const RATE: u64 = 4;
/// Length of each frame in bytes, without FCS.
const LEN: usize = 100;

/// A collector's socket, and its address.
fn collector() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(PATIENCE).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

fn start(daemon: &Daemon, address: &str, options: &[&str]) -> Service {
    let command = ["--json", "sflow", "vale0", "--collector", address, "--sampling", "1-in-4"];
    let mut exporter = Service::start(daemon.ringroad(&[&command, options].concat()));
    exporter.await_line("\"ready\":true");
    exporter
}

/// Ends the exporter as Ctrl-C does. Returns its summary.
fn end(exporter: &mut Service) -> Value {
    exporter.signal(Signal::INT);
    let (status, printed) = exporter.await_end();
    assert!(status.success(), "{printed}");
    serde_json::from_str(printed.lines().last().unwrap()).unwrap()
}

/// Lines that tshark prints for datagrams, without their indents.
fn read(datagrams: &[Vec<u8>]) -> Vec<String> {
    // text2pcap wraps this dump into UDP. Each offset 0 begins another datagram.
    let mut dump = String::new();
    for datagram in datagrams {
        dump.push_str("000000");
        datagram.iter().for_each(|byte| write!(dump, " {byte:02x}").unwrap());
        dump.push('\n');
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let (text, capture) = (path("dump"), path("pcap"));
    std::fs::write(&text, dump).unwrap();
    let wrapped = run(command("text2pcap", &["-q", "-u", "6343,6343", &text, &capture]));
    assert!(wrapped.status.success(), "{}", stderr(&wrapped));
    let printed = run(command("tshark", &["-n", "-r", &capture, "-O", "sflow"]));
    assert!(printed.status.success(), "{}", stderr(&printed));
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(!printed.contains("Malformed"), "{printed}");
    printed.lines().map(|line| line.trim().to_owned()).collect()
}

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// The number after `name` in a line such as `Sample pool: 12`.
fn number(lines: &[String], name: &str) -> u64 {
    let line = lines.iter().find_map(|line| line.split_once(name).map(|(_, behind)| behind));
    let behind = line.unwrap_or_else(|| panic!("no {name}: {lines:#?}"));
    let digits: String =
        behind.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Samples in the lines that tshark has printed.
fn samples(lines: &[String]) -> Vec<Vec<String>> {
    let is_start = |line: &String| line.contains("sample, seq");
    let is_datagram = |line: &String| {
        line.strip_prefix("Frame ")
            .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
    };
    let starts = (0..lines.len()).filter(|&at| is_start(&lines[at]));
    let parts = starts.map(|start| {
        let behind = &lines[start + 1..];
        let end = behind.iter().position(|line| is_start(line) || is_datagram(line)).unwrap_or(behind.len());
        lines[start..=start + end].to_vec()
    });
    parts.collect()
}

/// Samples of a kind (`Flow sample`, `Counters sample`).
fn of_kind(samples: &[Vec<String>], kind: &str) -> Vec<Vec<String>> {
    samples.iter().filter(|lines| lines[0].contains(kind)).cloned().collect()
}

/// Number of frame samples in a datagram, counted here so that tshark need not read each datagram as it comes.
fn flow_samples(datagram: &[u8]) -> usize {
    let word = |at: usize| u32::from_be_bytes(*datagram[at..].first_chunk().unwrap()) as usize;
    // Samples follow the header, which has an IPv4 address. Each begins with its kind and its length.
    let mut at = 28;
    let kinds = (0..word(24)).map(|_| {
        let (kind, len) = (word(at), word(at + 4));
        at += 8 + len;
        kind
    });
    kinds.filter(|kind| *kind == 1).count()
}

/// Samples and datagrams that a collector received.
#[derive(Debug, Default)]
struct Collected {
    /// Samples of frames.
    flows: Vec<Vec<String>>,
    /// Samples of counters.
    counters: Vec<Vec<String>>,
    /// The datagrams.
    bytes: Vec<u8>,
}

/// Receives until there are `flows` samples of frames.
fn collect(socket: &UdpSocket, flows: usize) -> Collected {
    let (mut datagrams, mut came) = (Vec::new(), 0);
    let mut bytes = [0; 2000];
    while came < flows {
        let len = socket.recv(&mut bytes).expect("a datagram");
        assert!(len <= 1400);
        came += flow_samples(&bytes[..len]);
        datagrams.push(bytes[..len].to_vec());
    }
    let samples = samples(&read(&datagrams));
    let collected = Collected {
        flows: of_kind(&samples, "Flow sample"),
        counters: of_kind(&samples, "Counters sample"),
        bytes: datagrams.concat(),
    };
    assert_eq!(collected.flows.len(), came, "tshark sees as many");
    collected
}

/// Sends frames with these numbers from `from` to `to`, and receives them there, never more at a time than a ring
/// holds.
fn pass(from: &mut Port, to: &mut Port, numbers: std::ops::Range<u64>) {
    let numbers: Vec<u64> = numbers.collect();
    for some in numbers.chunks(100) {
        for number in some {
            send(from, &numbered(station(2), station(1), *number, LEN));
        }
        from.tx().sync().unwrap();
        for _ in some {
            let _ = receive_from(to, station(1));
        }
    }
}

/// Two ports that know each other, `a` with station 1 and `b` with station 2.
fn ports(daemon: &Daemon) -> [Port; 2] {
    let [mut a, mut b] = ["vale0:a", "vale0:b"].map(|name| daemon.open(name));
    send(&mut b, &numbered(station(1), station(2), 0, LEN));
    b.tx().sync().unwrap();
    let _ = receive_from(&mut a, station(2));
    [a, b]
}

fn index(daemon: &Daemon, name: &str) -> u64 {
    daemon.port(name).unwrap().index.unwrap().into()
}

#[test]
fn a_collector_gets_samples_with_their_ports_and_pool_and_the_counters_of_ports() {
    let daemon = Daemon::with_config("[workers]\ncount = 2\n");
    let [mut a, mut b] = ports(&daemon);
    let (socket, address) = collector();
    let mut exporter =
        start(&daemon, &address, &["--polling", "3600", "--header", "64", "--agent", "192.0.2.7"]);
    let second = run(daemon.ringroad(&["sflow", "vale0", "--collector", &address]));
    assert!(!second.status.success() && stderr(&second).contains("vale0:sflow open"), "{}", stderr(&second));

    pass(&mut a, &mut b, 0..400);
    let Collected { flows, counters, bytes } = collect(&socket, 400 / RATE as usize);
    let input = number(&flows[0], "Input interface (ifIndex)");
    assert_eq!(input & 0xff, index(&daemon, "vale0:a"), "{:#?}", flows[0]);
    for (row, flow) in flows.iter().enumerate() {
        let row = row as u64;
        assert_eq!(number(flow, "Sequence number"), row + 1, "{flow:#?}");
        assert_eq!(number(flow, "= Index"), input);
        assert_eq!(number(flow, "Sampling rate: 1 out of"), RATE);
        assert_eq!(number(flow, "Dropped packets"), 0);
        assert_eq!(number(flow, "Input interface (ifIndex)"), input);
        assert_eq!(number(flow, "Output interface value") & 0xff, index(&daemon, "vale0:b"));
        assert_eq!(number(flow, "Frame Length"), LEN as u64 + 4, "with FCS");
        assert_eq!(number(flow, "Payload stripped"), 4);
        assert_eq!(number(flow, "Sampled header length"), 64, "as requested");
        // One of each four frames is sampled. The pool identifies this frame, and so does the number in the frame.
        let pool = number(flow, "Sample pool");
        assert_eq!((pool - 1) / RATE, row, "{flow:#?}");
        let frame = numbered(station(2), station(1), pool - 1, LEN);
        // tshark shows no more bytes of the frame.
        let start = format!("Header of sampled packet: {}", hex(&frame[..36]));
        assert!(flow.iter().any(|line| line.starts_with(&start)), "{pool}: {flow:#?}");
    }
    // The first counter samples came before these frames.
    let interfaces: Vec<_> = counters.iter().map(|sample| number(sample, "Interface index") & 0xff).collect();
    assert_eq!(interfaces, ["vale0:a", "vale0:b"].map(|name| index(&daemon, name)), "not the exporter's own");
    // tshark does not decode the names of ports.
    let names = |name: &[u8]| bytes.windows(name.len()).filter(|part| *part == name).count();
    assert_eq!([&b"\0\0\0\x07vale0:a\0"[..], b"\0\0\0\x07vale0:b\0", b"vale0:sflow"].map(names), [1, 1, 0]);

    let summary = end(&mut exporter);
    let mut bytes = [0; 2000];
    let len = socket.recv(&mut bytes).unwrap();
    let last = read(&[bytes[..len].to_vec()]);
    assert!(last.iter().any(|line| line.contains("Agent") && line.contains("192.0.2.7")));
    let last = of_kind(&samples(&last), "Counters sample");
    let of_a = last.iter().find(|sample| number(sample, "Interface index") == input).unwrap();
    assert_eq!((number(of_a, "Sequence number"), number(of_a, "Input Packets")), (2, 400), "{of_a:#?}");
    assert_eq!(number(of_a, "Input Octets"), 400 * (LEN as u64 + 4));
    assert_eq!((number(of_a, "Output Packets"), number(of_a, "Output Discarded Packets")), (1, 0));
    for (count, wanted) in [
        ("flow_samples", 100),
        ("counter_samples", 4),
        ("dropped_samples", 0),
        ("failed_datagrams", 0),
        ("foreign_frames", 0),
        ("reconnections", 0),
    ] {
        assert_eq!(summary[count], wanted, "{count}: {summary}");
    }
    assert!(matches!(daemon.ask(&Request::Mirrors), Reply::Mirrors(mirrors) if mirrors.is_empty()));
    await_conserved(&daemon);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn samples_that_the_exporter_is_too_slow_for_are_counted() {
    let daemon = Daemon::start();
    let [mut a, mut b] = ports(&daemon);
    let (socket, address) = collector();
    let mut exporter = start(&daemon, &address, &["--polling", "3600"]);
    exporter.signal(Signal::STOP);
    // The samples are more than the ring of 4096 slots holds.
    pass(&mut a, &mut b, 0..20_000);
    let dropped = await_conserved(&daemon);
    let port = dropped.ports.iter().find(|port| port.name == "vale0:sflow").unwrap();
    let lost = port.counters.drops["no_space"];
    assert_eq!(lost + port.counters.delivered_frames, 20_000 / RATE);
    exporter.signal(Signal::CONT);
    let _ = collect(&socket, 100);
    let summary = end(&mut exporter);
    assert_eq!(
        (&summary["dropped_samples"], &summary["flow_samples"]),
        (&lost.into(), &port.counters.delivered_frames.into())
    );
}

#[test]
fn the_exporter_outlives_an_upgrade_and_a_crash_of_the_daemon() {
    let mut daemon = Daemon::start();
    let mut both = ports(&daemon);
    let (socket, address) = collector();
    let mut exporter = start(&daemon, &address, &["--polling", "0.2"]);
    let (mut samples, mut last_pool) = (0, 0);
    let mut some = |both: &mut [Port; 2]| {
        let [a, b] = both;
        pass(a, b, 0..RATE * 3);
        for flow in collect(&socket, 3).flows {
            let pool = number(&flow, "Sample pool");
            // The pool and the sequence number restart with a port that is gone when the exporter queries the daemon.
            assert!(pool > last_pool || number(&flow, "Sequence number") == 1, "{last_pool}: {flow:#?}");
            (samples, last_pool) = (samples + 1, pool);
        }
    };
    some(&mut both);
    drop(both);
    daemon.crash_and_restart();
    daemon.await_status("the exporter", |status| {
        status.ports.iter().any(|port| port.name == "vale0:sflow" && port.bound)
    });
    let Reply::Mirrors(mirrors) = daemon.ask(&Request::Mirrors) else { panic!("no mirrors") };
    assert!(mirrors[0].records && mirrors[0].sample == RATE as u32);
    let mut both = ports(&daemon);
    some(&mut both);
    assert_eq!(daemon.upgrade()["lost"], serde_json::json!([]));
    some(&mut both);
    assert_eq!(samples, 9);
    let summary = end(&mut exporter);
    assert_eq!((&summary["reconnections"], &summary["flow_samples"]), (&1.into(), &9.into()), "{summary}");
}

#[test]
fn a_collector_that_is_not_there_does_not_end_the_exporter() {
    let daemon = Daemon::start();
    let [mut a, mut b] = ports(&daemon);
    let reserved = ReservedUdpPort::reserve();
    let address = reserved.address().to_string();
    let options = ["sflow", "vale0", "--collector", &address, "--sampling", "1-in-4", "--polling", "0.05"];
    let mut exporter = Service::start(daemon.ringroad(&options));
    exporter.await_line("exporting vale0");
    pass(&mut a, &mut b, 0..400);
    exporter.await_line("no process listens there");
    // A collector starts.
    let socket = reserved.receiver();
    socket.set_read_timeout(PATIENCE).unwrap();
    pass(&mut a, &mut b, 400..800);
    let flows = collect(&socket, 10).flows;
    assert!(flows.iter().all(|flow| number(flow, "Sampling rate: 1 out of") == RATE));
    exporter.signal(Signal::INT);
    let (status, printed) = exporter.await_end();
    assert!(status.success() && printed.contains("200 samples of frames"), "{printed}");
    assert!(printed.contains("datagrams could not leave, or were refused"), "{printed}");
    assert_eq!(printed.matches("no process listens").count(), 1, "once, for any duration: {printed}");
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let daemon = Daemon::start();
    for (arguments, part) in [
        (&["sflow", "vale0", "--collector", "a b"][..], "not a collector"),
        (&["sflow", "vale0"], "--collector"),
        (&["sflow", "vale0:a", "--collector", "127.0.0.1"], "vale0:a"),
        (&["sflow", "vale0", "--collector", "127.0.0.1", "--sampling", "0"], "give the sampling rate"),
        (&["sflow", "vale0", "--collector", "127.0.0.1", "--header", "13"], "13"),
    ] {
        let refused = run(daemon.ringroad(arguments));
        assert!(!refused.status.success() && stderr(&refused).contains(part), "{}", stderr(&refused));
    }
}
