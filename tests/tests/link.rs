//! `ringroad link`: namespaces joined through a switch, with the traffic of common programs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::IpAddr;
use std::process::{Command, Output};

use ringroad_capture::CaptureReader;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{numbered, send, station};
use ringroad_tests::network::{NetworkNamespace, finished, is_root, killed_at_link_change, unused_name};
use ringroad_tests::service::Service;
use ringroad_tests::transfer::{real_file, there_and_back};
use serde_json::Value;

/// A daemon in a namespace of its own, and namespaces that `ringroad link` has joined.
struct Testbed {
    // Fields are dropped in this order: the daemon before the namespace where its interfaces are.
    daemon: Daemon,
    stations: Vec<NetworkNamespace>,
    outside: NetworkNamespace,
    linked: Value,
}

impl Testbed {
    fn new(count: usize, options: &[&str]) -> Self {
        let outside = NetworkNamespace::new();
        let daemon = Daemon::within(&outside);
        let stations: Vec<_> = (0..count).map(|_| NetworkNamespace::new()).collect();
        let mut site = Self { daemon, stations, outside, linked: Value::Null };
        let printed = finished(&mut site.command("link", options));
        site.linked = serde_json::from_str(&printed).unwrap();
        site
    }

    /// Command for all stations.
    fn command(&self, verb: &str, options: &[&str]) -> Command {
        let mut command = self.daemon.ringroad(&["--json", verb]);
        command.args(options).args(self.stations.iter().map(NetworkNamespace::name));
        command
    }

    fn links_outside(&self) -> Vec<String> {
        let links = self.outside.inside(|| ringroad_netdev::link::links().unwrap());
        links.into_iter().map(|link| link.name).collect()
    }
}

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 77, 0, host])
}

fn failed(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    let why = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(1), "{why}");
    assert!(!why.contains("panicked"), "{why}");
    why
}

#[test]
fn joined_namespaces_reach_each_other_and_unlink_leaves_nothing() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(3, &[]);
    let links = site.linked["links"].as_array().unwrap();
    for (host, link) in links.iter().enumerate() {
        assert_eq!(link["address"], format!("10.77.0.{}/24", host + 1), "{link}");
        let port = site.daemon.port(link["name"].as_str().unwrap()).unwrap();
        assert_eq!(port.mode, link["mode"].as_str().unwrap());
        assert_eq!(port.link.unwrap().interface, "rr0");
    }
    let [a, b, c] = &site.stations[..] else { panic!("three stations") };
    a.ping("10.77.0.2");
    a.ping("10.77.0.3");
    c.ping("10.77.0.2");
    // The command that the output suggests next.
    let next = site.linked["next"].as_str().unwrap();
    assert!(Command::new("sh").args(["-c", &format!("{next} -c 1")]).output().unwrap().status.success());
    // IPv6 works, too: neighbours answer on their link-local addresses.
    a.ping(&format!("{}%rr0", b.link_local("rr0")));
    there_and_back(a, address(1), b, &real_file());
    await_conserved(&site.daemon);

    finished(&mut site.command("unlink", &[]));
    assert!(site.daemon.status().ports.is_empty());
    assert_eq!(site.links_outside(), ["lo"]);
    assert!(failed(site.command("unlink", &[])).contains("there is no interface rr0"));
}

#[test]
fn tagged_frames_and_bulk_traffic_of_foreign_programs_cross() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(2, &["--mtu", "1400", "--name", "port0", "--address", "fd00:77::1/64"]);
    let [a, b] = &site.stations[..] else { panic!("two stations") };
    assert_eq!((a.link("port0").mtu, b.link("port0").mtu), (1400, 1400));
    a.ping("fd00:77::2");
    if [(a, "10.79.0.1/24"), (b, "10.79.0.2/24")]
        .iter()
        .all(|(station, address)| add_tagged(station, address))
    {
        a.ping("10.79.0.2");
        there_and_back(a, "10.79.0.1".parse().unwrap(), b, &real_file());
    }

    let _server = a.start(&["iperf3", "-s", "-1", "--forceflush"], "Server listening");
    let printed = b.run(&["iperf3", "-c", "fd00:77::1", "-n", "16M", "-J"]);
    let report: Value = serde_json::from_str(&printed).unwrap();
    // Bytes that the server has not read at the time of its report are not lost. Other tests compare the bytes.
    assert!(report["end"]["sum_sent"]["bytes"].as_u64().unwrap() >= 16 << 20, "{printed}");
    assert!(report["end"]["sum_received"]["bytes"].as_u64().unwrap() > 0, "{printed}");
    // Several TCP segments pass the switch as one frame.
    let counters = site.daemon.port(site.linked["links"][0]["name"].as_str().unwrap()).unwrap().counters;
    assert!(counters.delivered_bytes / counters.delivered_frames > 3000, "{counters:?}");
    let udp = a.start(&["iperf3", "-s", "-1", "--forceflush"], "Server listening");
    let printed = b.run(&["iperf3", "-c", "fd00:77::1", "-u", "-b", "20M", "-n", "2M", "-J"]);
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert!(report["end"]["sum"]["packets"].as_u64().unwrap() > 1000, "{printed}");
    drop(udp);
    await_conserved(&site.daemon);
}

/// Adds an interface with tagged frames on `port0`. Prints a message and returns false if the kernel has no support.
fn add_tagged(station: &NetworkNamespace, address: &str) -> bool {
    let add = ["ip", "link", "add", "link", "port0", "name", "tagged", "type", "vlan", "id", "79"];
    let made = station.command(&add).output().unwrap();
    let why = String::from_utf8_lossy(&made.stderr).into_owned();
    if why.contains("Unknown device type") {
        eprintln!("skipped: tagged frames need a kernel with CONFIG_VLAN_8021Q");
        return false;
    }
    assert!(made.status.success(), "{why}");
    station.run(&["ip", "addr", "add", address, "dev", "tagged"]);
    station.run(&["ip", "link", "set", "tagged", "up"]);
    true
}

#[test]
fn a_dhcp_address_is_leased_across_the_switch() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(2, &["--address", "none"]);
    let [server, client] = &site.stations[..] else { panic!("two stations") };
    server.run(&["ip", "addr", "add", "10.80.0.1/24", "dev", "rr0"]);
    let file = |name: &str| site.daemon.folder().join(name).display().to_string();
    let config = format!(
        "interface rr0\nstart 10.80.0.100\nend 10.80.0.110\noption subnet 255.255.255.0\nlease_file {}\npidfile {}\n",
        file("leases"),
        file("udhcpd.pid")
    );
    std::fs::write(file("udhcpd.conf"), config).unwrap();
    std::fs::write(file("leases"), "").unwrap();
    let bound = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/dhcp-bound");
    let _server = server.start(&["busybox", "udhcpd", "-f", &file("udhcpd.conf")], "started");
    client.run(&["busybox", "udhcpc", "-i", "rr0", "-n", "-q", "-f", "-t", "20", "-T", "1", "-s", bound]);
    let got = client.run(&["ip", "-4", "-o", "addr", "show", "dev", "rr0"]);
    assert!(got.contains(" 10.80.0.1"), "{got}");
    client.ping("10.80.0.1");
    await_conserved(&site.daemon);
}

#[test]
fn tcpdump_in_a_namespace_and_a_capture_on_the_switch_see_the_same() {
    const FRAMES: usize = 1000;
    if !is_root() {
        return;
    }
    let site = Testbed::new(1, &["--address", "10.77.0.9/24"]);
    let [watched] = &site.stations[..] else { panic!("one station") };
    let file = |name: &str| site.daemon.folder().join(name).display().to_string();
    let (inside, outside, count) = (file("inside.pcap"), file("outside.pcap"), FRAMES.to_string());
    // The filter excludes frames that the namespace itself sends, and the buffer has room for all test frames.
    let filter = "ether proto 0x88b5";
    let mut inner = watched.start(
        &[
            "tcpdump", "-Z", "root", "-i", "rr0", "-B", "16384", "-Q", "in", "-c", &count, "-w", &inside,
            filter,
        ],
        "listening on",
    );
    let recorder = ["--json", "capture", "vale0:mirror@slots=4096", "-w", &outside];
    let mut outer = Service::start(site.daemon.ringroad(&recorder));
    outer.await_line("\"ready\":true");
    let mut source = site.daemon.open("vale0:source@slots=2048");
    let mut sent = Vec::new();
    for number in 0..FRAMES {
        let frame = numbered([0xFF; 6], station(1), number as u64, 60 + number * 37 % 1455);
        send(&mut source, &frame);
        source.tx().sync().unwrap();
        sent.push(frame);
    }
    let (status, printed) = inner.await_end();
    assert!(status.success(), "{printed}");
    // The source's frames were delivered to both captures before the inner tcpdump ended, so SIGINT cuts no frame off.
    outer.signal(rustix::process::Signal::INT);
    let (status, printed) = outer.await_end();
    assert!(status.success(), "{printed}");
    assert!(numbered_frames(&inside) == sent, "tcpdump saw {} frames", numbered_frames(&inside).len());
    assert!(numbered_frames(&outside) == sent, "{} frames captured", numbered_frames(&outside).len());
    await_conserved(&site.daemon);
}

fn numbered_frames(path: &str) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        if frame.bytes.get(12..14) == Some(&[0x88, 0xB5]) {
            frames.push(frame.bytes.to_vec());
        }
    }
    frames
}

#[test]
fn a_link_that_fails_half_way_leaves_nothing() {
    if !is_root() {
        return;
    }
    let outside = NetworkNamespace::new();
    let daemon = Daemon::within(&outside);
    let stations = [NetworkNamespace::new(), NetworkNamespace::new()];
    let [a, b] = &stations;
    let links_of = |namespace: &NetworkNamespace| -> Vec<String> {
        namespace
            .inside(|| ringroad_netdev::link::links().unwrap())
            .into_iter()
            .map(|link| link.name)
            .collect()
    };
    // A program's port already has the second port's name. This port is not visible from the interfaces.
    let taken = format!("vale0:rr-{}", b.name());
    assert!(daemon.ringroad(&["attach", &taken, "--for-program"]).output().unwrap().status.success());
    let why = failed(daemon.ringroad(&["link", a.name(), b.name()]));
    assert!(why.contains(&taken), "{why}");
    assert_eq!(links_of(&outside), ["lo"], "{why}");
    assert_eq!(links_of(a), ["lo"]);
    assert_eq!(links_of(b), ["lo"]);
    let ports: Vec<_> = daemon.status().ports.into_iter().map(|port| port.name).collect();
    assert_eq!(ports, std::slice::from_ref(&taken), "what was there before stays");
    assert!(daemon.ringroad(&["detach", &taken]).output().unwrap().status.success());

    for (arguments, parts) in [
        (vec!["link", a.name(), "no-such-blue"], ["no-such-blue", "ip netns add"]),
        (vec!["unlink", a.name()], ["there is no interface rr0", a.name()]),
        (vec!["unlink", a.name(), "--name", "lo"], ["lo", "not made by ringroad link"]),
    ] {
        let why = failed(daemon.ringroad(&arguments));
        assert!(parts.iter().all(|part| why.contains(part)), "{arguments:?}: {why}");
    }
    for arguments in [
        vec!["link", a.name()],
        vec!["link", a.name(), a.name()],
        vec!["link", a.name(), b.name(), "--address", "10.0.0.2/30"],
        vec!["link", a.name(), b.name(), "--address", "everywhere"],
        vec!["link", a.name(), b.name(), "--mtu", "20"],
        vec!["link", a.name(), b.name(), "--name", "rr0@mtu=70"],
        vec!["recv", "eth0", "--netns", "blue,force"],
        vec!["link", a.name(), b.name(), "--switch", "bridge0"],
    ] {
        let output = daemon.ringroad(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
    assert_eq!((links_of(a), links_of(b)), (vec!["lo".to_owned()], vec!["lo".to_owned()]));

    // The error names a link that exists already.
    assert!(daemon.ringroad(&["link", a.name(), b.name()]).output().unwrap().status.success());
    let why = failed(daemon.ringroad(&["link", a.name(), b.name()]));
    assert!(why.contains("rr0 already") && why.contains("unlink"), "{why}");
    a.ping("10.77.0.2");
}

#[test]
fn a_link_that_is_killed_at_any_step_leaves_all_or_nothing() {
    if !is_root() {
        return;
    }
    let outside = NetworkNamespace::new();
    let daemon = Daemon::within(&outside);
    let [a, b] = [NetworkNamespace::new(), NetworkNamespace::new()];
    let mut kills = 0;
    while killed_at_link_change(&mut daemon.ringroad(&["link", a.name(), b.name()]), &[&a, &b], kills + 1) {
        kills += 1;
        // It fails without a change unless the link is complete.
        let _ = daemon.ringroad(&["unlink", a.name(), b.name()]).output().unwrap();
        daemon.await_status("end of the ports", |status| status.ports.is_empty());
        for namespace in [&a, &b] {
            namespace.await_links("removal of rr0", |links| links.len() == 1);
        }
    }
    assert!(kills > 2, "{kills}");
    a.ping("10.77.0.2");
    finished(&mut daemon.ringroad(&["unlink", a.name(), b.name()]));
}

#[test]
fn an_address_behind_another_daemons_port_is_free_though_the_indexes_are_equal() {
    if !is_root() {
        return;
    }
    let outside = [NetworkNamespace::new(), NetworkNamespace::new()];
    let daemons = outside.each_ref().map(Daemon::within);
    let stations = [NetworkNamespace::new(), NetworkNamespace::new(), NetworkNamespace::new()];
    let contain = |number: usize, station: &NetworkNamespace, port: &str, address: &str| {
        let name = unused_name("c");
        let words = ["--json", "container", &name, "--netns", station.name(), "--port"];
        let port = format!("vale0:{port}");
        let words = [&words[..], &[&port, "--address", address, "--", "sleep", "1000"]].concat();
        let mut held = Service::start(daemons[number].ringroad_within(&outside[number], &words));
        held.await_line("\"ready\":true");
        held
    };
    let _held = [
        contain(0, &stations[0], "a", "10.77.0.9/24"),
        contain(1, &stations[1], "a", "10.77.0.1/24"),
        contain(1, &stations[2], "b", "10.77.0.9/24"),
    ];
}

#[test]
fn an_address_in_use_is_refused_with_the_interface_that_has_it() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(2, &[]);
    let [_, linked] = &site.stations[..] else { panic!("two stations") };
    let [new, other] = [NetworkNamespace::new(), NetworkNamespace::new()];
    let container = unused_name("c");
    let mut held = Service::start(site.daemon.ringroad(&[
        "--json",
        "container",
        &container,
        "--port",
        "vale0:c",
        "--address",
        "10.77.0.7/24",
        "--",
        "sleep",
        "1000",
    ]));
    held.await_line("\"ready\":true");
    new.run(&["ip", "address", "add", "10.88.0.2/32", "dev", "lo"]);
    for (verb, address, interface, namespace) in [
        (&["link", new.name()][..], "10.77.0.2/24", "rr0", linked.name()),
        (&["link", new.name()], "10.77.0.7/24", "eth0", container.as_str()),
        (&["link", new.name()], "10.88.0.2/24", "lo", new.name()),
        (&["link", new.name(), other.name()], "10.88.0.1/24", "lo", new.name()),
        (&["link", other.name(), new.name()], "10.88.0.2/24", "lo", new.name()),
        (
            &["container", "c", "--port", "vale0:d", "--netns", new.name()],
            "10.77.0.2/24",
            "rr0",
            linked.name(),
        ),
    ] {
        let why = failed(site.daemon.ringroad(&[verb, &["--address", address]].concat()));
        let expected = format!("is in use already: {interface} in network namespace {namespace} has it");
        assert!(why.contains(&expected) && why.contains("--address"), "{verb:?}: {why}");
    }
    for station in [&new, &other] {
        let links = station.inside(|| ringroad_netdev::link::links().unwrap());
        assert_eq!(links.len(), 1, "{links:?}");
    }
    // The same address on another switch is another network's.
    finished(&mut site.daemon.ringroad(&[
        "link",
        new.name(),
        "--switch",
        "vale1",
        "--address",
        "10.77.0.2/24",
    ]));
}

#[test]
fn missing_rights_are_named_and_a_deleted_namespace_is_replaced() {
    if !is_root() {
        return;
    }
    let mut site = Testbed::new(2, &[]);
    let binary =
        site.daemon.ringroad(&["link", site.stations[0].name(), site.stations[1].name(), "--name", "rr1"]);
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args(["--bounding-set", "-sys_admin,-net_admin", "--inh-caps", "-all"]);
    unprivileged.arg(binary.get_program()).args(binary.get_args());
    let why = failed(unprivileged);
    assert!(why.contains("needs root"), "{why}");

    // The port keeps its namespace, which has lost its name, until a new namespace of this name takes its place.
    let gone = site.stations.pop().unwrap();
    let name = gone.name().to_owned();
    drop(gone);
    let port = format!("vale0:rr-{name}");
    finished(Command::new("ip").args(["netns", "add", &name]));
    let again = NetworkNamespace::adopt(name.clone());
    let printed = finished(&mut site.daemon.ringroad(&["link", again.name(), "--address", "10.77.0.2/24"]));
    assert!(printed.contains(&port), "{printed}");
    site.stations[0].ping("10.77.0.2");
    await_conserved(&site.daemon);

    // A port can be removed even if its namespace is gone.
    drop(again);
    finished(&mut site.daemon.ringroad(&["unlink", &name]));
    assert_eq!(site.daemon.port(&port), None);
    let unknown = failed(site.daemon.ringroad(&["unlink", &name]));
    assert!(unknown.contains("no network namespace"), "{unknown}");
}
