//! The host stack's side of an interface: the example firewall between a host and its wire, and a host on a switch.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{IpAddr, SocketAddr, UdpSocket};

use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE, binary};
use ringroad_tests::network::{NetworkNamespace, address, cable, careless_cable, finished, is_root};
use ringroad_tests::service::Service;
use ringroad_tests::testbed::refusal;
use ringroad_tests::transfer::{real_file, there_and_back};
use rustix::process::Signal;

const HOST: u8 = 1;
const STATION: u8 = 2;
/// UDP ports that the firewall drops and passes.
const DROPPED: u16 = 5300;
const PASSED: u16 = 5301;

/// A host with interface eth0, a station at the other end of the cable, and a daemon that is in neither's namespace.
struct Testbed {
    // Fields are dropped in this order.
    daemon: Daemon,
    host: NetworkNamespace,
    station: NetworkNamespace,
}

impl Testbed {
    fn new() -> Self {
        Self::joined_by(cable)
    }

    fn joined_by(cable: fn(&NetworkNamespace, &str, &NetworkNamespace, &str, u32, u32)) -> Self {
        let (host, station) = (NetworkNamespace::new(), NetworkNamespace::new());
        cable(&host, "eth0", &station, "rr0", 1500, 1);
        host.number("eth0", HOST);
        station.number("rr0", STATION);
        Self { daemon: Daemon::start(), host, station }
    }

    /// Starts the firewall and waits until it stands between the host and its wire.
    fn firewall(&self, interface: &str, rules: &[&str]) -> Service {
        let mut command = std::process::Command::new(binary("examples/firewall"));
        command.env("RINGROAD_SOCKET", self.daemon.socket());
        command.arg(format!("{interface}@netns={}", self.host.name())).args(rules);
        let mut firewall = Service::start(command);
        firewall.await_line("host stack of eth0");
        firewall
    }

    /// Checks that the host and the station reach each other, both ways.
    fn reach_each_other(&self) {
        self.station.ping(&address(HOST).to_string());
        self.host.ping(&address(STATION).to_string());
    }

    /// Checks that nothing is left on the interface, and that the interface works.
    fn is_restored(&self) {
        self.daemon.await_status("no ports", |status| status.ports.is_empty());
        assert_eq!(self.host.link("eth0").xdp, None);
        let left = self.host.inside(|| ringroad_netdev::link::links().unwrap());
        let names: Vec<_> = left.into_iter().map(|link| link.name).collect();
        assert_eq!(names, ["lo", "eth0"]);
        self.reach_each_other();
    }
}

/// Opens a UDP socket in `namespace`.
fn udp(namespace: &NetworkNamespace, host: u8, port: u16) -> UdpSocket {
    let socket =
        namespace.inside(|| UdpSocket::bind(SocketAddr::new(IpAddr::V4(address(host)), port)).unwrap());
    socket.set_read_timeout(PATIENCE).unwrap();
    socket
}

/// Checks that data for the dropped port never arrive, and that data sent afterwards to the passed port do.
fn only_the_other_port_is_let_through(site: &Testbed) {
    let (dropped, passed) = (udp(&site.host, HOST, DROPPED), udp(&site.host, HOST, PASSED));
    let sender = udp(&site.station, STATION, 0);
    let host = IpAddr::V4(address(HOST));
    for number in 0..100u8 {
        sender.send_to(&[number], (host, DROPPED)).unwrap();
        sender.send_to(&[number], (host, PASSED)).unwrap();
        let mut byte = [0; 1];
        passed.recv(&mut byte).unwrap();
        assert_eq!(byte, [number]);
    }
    dropped.set_nonblocking(true).unwrap();
    assert!(dropped.recv(&mut [0; 1]).is_err(), "a frame that the firewall drops came through");
}

#[test]
fn host_and_wire_keep_their_connections_through_a_firewall() {
    if !is_root() {
        return;
    }
    for interface in ["eth0", "packet:eth0"] {
        let site = Testbed::new();
        let mut firewall = site.firewall(interface, &[&format!("udp/{DROPPED}"), "tcp/8100"]);
        site.reach_each_other();
        there_and_back(&site.host, IpAddr::V4(address(HOST)), &site.station, &real_file());
        there_and_back(&site.station, IpAddr::V4(address(STATION)), &site.host, &real_file());
        if interface == "eth0" {
            only_the_other_port_is_let_through(&site);
        }
        // Each frame from the wire was delivered to the host or dropped by the firewall. The same holds for frames from
        // the host.
        site.daemon.await_status("frames in the firewall to be done with", |status| {
            let counters = |suffix: &str| {
                let port =
                    status.ports.iter().find(|port| port.name.starts_with(&format!("{suffix}@"))).unwrap();
                &port.counters
            };
            let (wire, host) = (counters(interface), counters("eth0^"));
            // While the daemon gets no processor time, the kernel drops frames whose senders do not wait.
            let taken = |suffix: &str| {
                let port = counters(suffix);
                let missed = port.drops.get("kernel_dropped").copied().unwrap_or(0);
                (port.drops.values().sum::<u64>() == missed).then(|| port.received_frames - missed)
            };
            let dropped_by_the_firewall = if interface == "eth0" { 100 } else { 0 };
            taken("eth0^") == Some(wire.delivered_frames)
                && taken(interface) == Some(host.delivered_frames + dropped_by_the_firewall)
        });
        firewall.signal(Signal::KILL);
        firewall.await_end();
        site.is_restored();
    }
}

#[test]
fn iperf_runs_through_the_firewall() {
    if !is_root() {
        return;
    }
    let site = Testbed::new();
    let _firewall = site.firewall("xdp:eth0", &[]);
    let _server = site.host.start(&["iperf3", "-s", "-1", "--forceflush"], "Server listening");
    let printed = site.station.run(&["iperf3", "-c", &address(HOST).to_string(), "-n", "20M", "-J"]);
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    // Bytes that the server has not read at the time of its report are not lost. Other tests compare the bytes.
    assert!(report["end"]["sum_sent"]["bytes"].as_u64().unwrap() >= 20 << 20, "{printed}");
    assert!(report["end"]["sum_received"]["bytes"].as_u64().unwrap() > 0, "{printed}");
}

#[test]
fn the_host_keeps_its_interface_when_the_daemon_is_killed() {
    if !is_root() {
        return;
    }
    let mut site = Testbed::new();
    let mut firewall = site.firewall("eth0", &[]);
    site.reach_each_other();
    site.daemon.signal(Signal::KILL);
    site.daemon.await_end();
    let (status, printed) = firewall.await_end();
    assert_eq!(status.code(), Some(1), "{printed}");
    assert_eq!(site.host.link("eth0").xdp, None);
    site.reach_each_other();
}

#[test]
fn an_interface_and_its_host_stack_on_a_switch_keep_the_host_connected() {
    if !is_root() {
        return;
    }
    let site = Testbed::new();
    let attach = ["attach", "vale0:eth0", "--host", "--netns", site.host.name()];
    let printed = finished(&mut site.daemon.ringroad(&attach));
    assert!(printed.contains("vale0:eth0: af_xdp") && printed.contains("vale0:eth0^: host"), "{printed}");
    site.reach_each_other();
    there_and_back(&site.host, IpAddr::V4(address(HOST)), &site.station, &real_file());
    await_conserved(&site.daemon);
    // Both sides of the interface are detached together.
    finished(&mut site.daemon.ringroad(&["detach", "vale0:eth0"]));
    site.is_restored();
}

#[test]
fn refusing_the_host_stack_beside_generic_xdp_names_a_remedy() {
    if !is_root() {
        return;
    }
    let site = Testbed::new();
    let netns = site.host.name();
    let first = ["attach", "vale0:up", "--driver", "xdp:eth0@mode=generic", "--netns", netns, "--take"];
    finished(&mut site.daemon.ringroad(&first));
    let second =
        site.daemon.ringroad(&["attach", "vale0:host", "--driver", "eth0^", "--netns", netns]).output();
    let second = second.unwrap();
    let why = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{why}");
    assert!(why.contains("generic") && why.contains("packet:eth0"), "{why}");
    // The opposite order is refused, too.
    finished(&mut site.daemon.ringroad(&["detach", "vale0:up"]));
    let host = ["attach", "vale0:host", "--driver", "eth0^", "--netns", netns, "--take"];
    finished(&mut site.daemon.ringroad(&host));
    let again = site.daemon.ringroad(&first).output().unwrap();
    let why = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(again.status.code(), Some(1), "{why}");
    assert!(why.contains("generic"), "{why}");
    finished(&mut site.daemon.ringroad(&["detach", "vale0:host"]));
    // No frames are diverted any more.
    let left = site.host.inside(|| ringroad_netdev::link::links().unwrap());
    assert!(left.iter().all(|link| !link.name.starts_with("rrh-")));
}

#[test]
fn a_host_on_a_switch_talks_tcp_to_a_veth_that_skips_checksums() {
    if !is_root() {
        return;
    }
    for driver in ["eth0", "xdp:eth0@mode=native", "packet:eth0"] {
        let site = Testbed::joined_by(careless_cable);
        let attach = ["attach", "vale0:up", "--driver", driver, "--host", "--netns", site.host.name()];
        finished(&mut site.daemon.ringroad(&attach));
        site.reach_each_other();
        there_and_back(&site.host, IpAddr::V4(address(HOST)), &site.station, &real_file());
        there_and_back(&site.station, IpAddr::V4(address(STATION)), &site.host, &real_file());
        await_conserved(&site.daemon);
    }
}

#[test]
fn an_interface_in_use_is_taken_from_the_host_only_on_request() {
    if !is_root() {
        return;
    }
    let site = Testbed::new();
    let netns = site.host.name();
    for driver in ["eth0", "xdp:eth0", "eth0^"] {
        let why =
            refusal(&mut site.daemon.ringroad(&["attach", "vale0:p", "--driver", driver, "--netns", netns]));
        assert!(
            ["10.78.0.1/24", "--host", "--take"].iter().all(|part| why.contains(part)),
            "{driver}: {why}"
        );
        site.is_restored();
    }
    let why = refusal(&mut site.daemon.ringroad_within(&site.host, &["attach", "vale0:eth0"]));
    assert!(why.contains("--take"), "{why}");
    // The host keeps its frames: a packet socket gets copies.
    finished(&mut site.daemon.ringroad(&["attach", "vale0:p", "--driver", "packet:eth0", "--netns", netns]));
    site.reach_each_other();
    finished(&mut site.daemon.ringroad(&["detach", "vale0:p"]));
    let printed = finished(&mut site.daemon.ringroad_within(&site.host, &["attach", "vale0:eth0", "--take"]));
    assert!(printed.contains("cut off from eth0") && printed.contains("10.78.0.1/24"), "{printed}");
    finished(&mut site.daemon.ringroad(&["detach", "vale0:eth0"]));
    site.is_restored();
    // Frames that the host forwards need a route, and no address.
    site.host.run(&["ip", "address", "flush", "dev", "eth0"]);
    site.host.run(&["ip", "route", "add", "10.55.0.0/16", "dev", "eth0"]);
    let why = refusal(&mut site.daemon.ringroad_within(&site.host, &["attach", "vale0:eth0"]));
    assert!(why.contains("the route to 10.55.0.0/16") && why.contains("--take"), "{why}");
}

#[test]
fn the_host_port_stays_while_the_interface_is_open() {
    if !is_root() {
        return;
    }
    let site = Testbed::new();
    finished(&mut site.daemon.ringroad_within(&site.host, &["attach", "vale0:eth0", "--host"]));
    let why = refusal(&mut site.daemon.ringroad(&["detach", "vale0:eth0^"]));
    assert!(why.contains("vale0:eth0^") && why.contains("vale0:eth0 has"), "{why}");
    site.reach_each_other();
    // An interface can be one port only, on this switch or another, on either side.
    for driver in ["eth0", "xdp:eth0", "packet:eth0", "eth0^"] {
        let again = ["attach", "vale0:again", "--driver", driver];
        let why = refusal(&mut site.daemon.ringroad_within(&site.host, &again));
        assert!(why.contains("taken already, by vale0:eth0"), "{driver}: {why}");
    }
    site.reach_each_other();
    finished(&mut site.daemon.ringroad(&["detach", "vale0:eth0"]));
    site.is_restored();
    // Both sides are detached together, even if they were attached one by one and under other names.
    let netns = site.host.name();
    for (port, driver, word) in [("vale0:up", "eth0", "--take"), ("vale1:host", "eth0^", "--take")] {
        finished(&mut site.daemon.ringroad(&["attach", port, "--driver", driver, "--netns", netns, word]));
    }
    finished(&mut site.daemon.ringroad(&["detach", "vale0:up"]));
    site.is_restored();
}
