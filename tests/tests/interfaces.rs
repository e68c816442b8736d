//! Network interfaces as ports of a switch: what each mechanism carries, and what happens when interfaces or rights are missing.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::IpAddr;
use std::process::Command;

use ringroad::Port;
use ringroad::control::report::PortReport;
use ringroad_netdev::link::XdpMode;
use ringroad_netdev::link_change::set_up;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{numbered, receive_from, send, station};
use ringroad_tests::network::{NetworkNamespace, address, cable, cut, finished, is_root};
use ringroad_tests::transfer::{real_file, there_and_back};
use rustix::process::Signal;
use serde_json::Value;

/// Mechanisms by which one interface can be served, with how their reports begin.
const MECHANISMS: [(&str, &str, &str); 3] = [
    ("xdp:{}@mode=native", "af_xdp", "AF_XDP copy, native"),
    ("xdp:{}@mode=generic", "af_xdp", "AF_XDP copy, generic"),
    ("packet:{}", "af_packet", "AF_PACKET"),
];

/// A daemon in a namespace of its own; stations with cables to it: `inner` there, `outer0`, `outer1`, ... here.
struct Site {
    // Fields are dropped in this order: the daemon before the namespace where its interfaces are.
    daemon: Daemon,
    stations: Vec<NetworkNamespace>,
    outside: NetworkNamespace,
}

impl Site {
    fn new(count: usize, mtu: u32) -> Self {
        Self::launched_by(&[], count, mtu, 1)
    }

    /// `launcher` becomes the daemon, in its namespace.
    fn launched_by(launcher: &[&str], count: usize, mtu: u32, queues: u32) -> Self {
        let outside = NetworkNamespace::new();
        let within = [&["ip", "netns", "exec", outside.name()], launcher].concat();
        let daemon = Daemon::launched_by(&within, "");
        let stations: Vec<_> = (0..count).map(|_| NetworkNamespace::new()).collect();
        for (number, station) in stations.iter().enumerate() {
            cable(&outside, &outer(number), station, "inner", mtu, queues);
            station.number("inner", host(number));
        }
        Self { daemon, stations, outside }
    }

    fn attach(&self, number: usize, driver: &str) -> PortReport {
        let name = port(number);
        let driver = driver.replace("{}", &outer(number));
        finished(&mut self.daemon.ringroad(&["attach", &name, "--driver", &driver]));
        self.daemon.port(&name).unwrap()
    }

    fn attach_all(&self, driver: &str) -> Vec<PortReport> {
        (0..self.stations.len()).map(|number| self.attach(number, driver)).collect()
    }

    fn detach(&self, number: usize) {
        finished(&mut self.daemon.ringroad(&["detach", &port(number)]));
    }

    fn refusal(&self, arguments: &[&str]) -> String {
        refusal(&mut self.daemon.ringroad(arguments))
    }

    /// A real file from the first station to the second and back.
    fn transfer(&self) {
        self.transfer_of(&real_file());
    }

    fn transfer_of(&self, file: &[u8]) {
        there_and_back(&self.stations[0], IpAddr::V4(address(host(0))), &self.stations[1], file);
    }

    /// Waits until `frames` frames have gone into the second station's port.
    fn await_delivered(&self, frames: u64) {
        self.daemon.await_status("traffic", |status| status.ports[1].counters.delivered_frames >= frames);
    }
}

fn outer(number: usize) -> String {
    format!("outer{number}")
}

fn port(number: usize) -> String {
    format!("vale0:p{number}")
}

/// The host part of a station's address.
fn host(number: usize) -> u8 {
    number as u8 + 1
}

fn refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{command:?}: {output:?}");
    why
}

#[test]
fn each_mechanism_carries_a_file_and_gives_the_interface_back() {
    if !is_root() {
        return;
    }
    let site = Site::new(2, 1500);
    for (driver, kind, mode) in MECHANISMS {
        for report in site.attach_all(driver) {
            assert_eq!(report.kind, kind);
            assert!(report.mode.starts_with(mode), "{driver}: {}", report.mode);
            assert_eq!(report.error, None);
        }
        let listed: Value =
            serde_json::from_str(&finished(&mut site.daemon.ringroad(&["--json", "list"]))).unwrap();
        for report in listed["ports"].as_array().unwrap() {
            assert!(report["mode"].as_str().unwrap().starts_with(mode), "{report}");
            assert_eq!(report["link"]["running"], true, "{report}");
        }
        site.stations[1].ping(&address(host(0)).to_string());
        site.transfer();
        let status = await_conserved(&site.daemon);
        assert!(status.ports.iter().all(|port| port.counters.violations == 0), "{driver}: {status:?}");
        site.detach(0);
        site.detach(1);
        assert_eq!(site.outside.link("outer0").xdp, None, "{driver}");
    }
    // The host stack has the interface to itself again.
    site.outside.number("outer1", 99);
    site.stations[1].ping(&address(99).to_string());
    await_conserved(&site.daemon);
}

#[test]
fn mechanisms_mix_on_one_switch_with_taps_made_in_namespaces() {
    if !is_root() {
        return;
    }
    let outside = NetworkNamespace::new();
    let daemon = Daemon::within(&outside);
    let stations: Vec<_> = (0..3).map(|_| NetworkNamespace::new()).collect();
    let attach = |name: &str, driver: &str, netns: &str| {
        let arguments = ["--json", "attach", name, "--driver", driver, "--netns", netns];
        finished(&mut daemon.ringroad(&arguments))
    };
    // Drivers other than XDP reach into a station's own namespace, too.
    attach("vale0:p0", "tap:inner", stations[0].name());
    cable(&outside, "outer1", &stations[1], "inner", 1500, 1);
    finished(&mut daemon.ringroad(&["attach", "vale0:p1", "--driver", "outer1"]));
    let station_outside = NetworkNamespace::new();
    cable(&station_outside, "outer2", &stations[2], "inner", 1500, 1);
    attach("vale0:p2", "packet:outer2", station_outside.name());
    for (number, station) in stations.iter().enumerate() {
        station.number("inner", host(number));
    }
    let kinds: Vec<_> = daemon.status().ports.into_iter().map(|port| port.kind).collect();
    assert_eq!(kinds, ["tap", "af_xdp", "af_packet"]);
    for (server, client) in [(0, 1), (1, 2), (2, 0)] {
        let at = IpAddr::V4(address(host(server)));
        there_and_back(&stations[server], at, &stations[client], &real_file());
    }
    await_conserved(&daemon);
    finished(&mut daemon.ringroad(&["detach", "vale0:p0"]));
    let left = stations[0].inside(|| ringroad_netdev::link::link_by_name("inner"));
    assert!(left.is_err_and(|error| error.is_no_interface()), "a TAP ends with its port");
}

#[test]
fn an_interface_named_alone_gets_the_best_mechanism_and_says_why_not_a_better_one() {
    if !is_root() {
        return;
    }
    let site = Site::new(1, 1500);
    let told = finished(&mut site.daemon.ringroad(&["--json", "attach", "vale0:outer0"]));
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told[0]["driver"], "af_xdp");
    let mode = told[0]["mode"].as_str().unwrap();
    assert!(mode.starts_with("AF_XDP copy, native (zero-copy: "), "{told}");
    assert!(told[0]["notes"].to_string().contains("zero-copy is not to be had"), "{told}");
    assert_eq!(site.outside.link("outer0").xdp.unwrap().mode, XdpMode::Native);
    let report = site.daemon.port("vale0:outer0").unwrap();
    assert_eq!((report.mode.as_str(), report.persistent), (mode, true));
}

#[test]
fn jumbo_frames_pass_through_small_buffers() {
    if !is_root() {
        return;
    }
    let site = Site::new(2, 9000);
    for (driver, _, mode) in MECHANISMS {
        for report in site.attach_all(driver) {
            assert!(report.mode.starts_with(mode), "{}", report.mode);
            assert_eq!((report.buffer_bytes, report.link.unwrap().mtu), (2048, 9000));
        }
        let told = site.stations[1].run(&[
            "ping",
            "-n",
            "-M",
            "do",
            "-s",
            "8972",
            "-c",
            "3",
            "-i",
            "0.05",
            "-W",
            "5",
            "10.78.0.1",
        ]);
        assert!(told.contains(" 3 received"), "{driver}: {told}");
        site.transfer();
        await_conserved(&site.daemon);
        site.detach(0);
        site.detach(1);
    }
}

#[test]
fn flows_over_several_queues_all_arrive() {
    if !is_root() {
        return;
    }
    let site = Site::launched_by(&[], 2, 1500, 2);
    for (driver, _, mode) in MECHANISMS {
        for report in site.attach_all(driver) {
            assert!(report.mode.starts_with(mode), "{}", report.mode);
            assert_eq!(report.queues, 2, "{driver}");
        }
        // Each flow is bound to a queue: one that nobody served would stop half of them.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| site.transfer_of(&real_file()[..1 << 20]));
            }
        });
        await_conserved(&site.daemon);
        site.detach(0);
        site.detach(1);
    }
}

/// Sends a burst of frames of many lengths and compares each with what arrives.
fn carry(from: &mut Port, to: &mut Port, own: [u8; 6], round: usize) {
    let len = |number: usize| 60 + (round * 50 + number) * 7 % 1455;
    let frames: Vec<_> = (0..50).map(|number| numbered([0xFF; 6], own, number as u64, len(number))).collect();
    for frame in &frames {
        send(from, frame);
    }
    from.tx().sync().unwrap();
    for frame in &frames {
        assert!(receive_from(to, own) == *frame, "another frame in its place");
    }
}

#[test]
fn a_program_has_an_interface_to_itself() {
    if !is_root() {
        return;
    }
    let site = Site::new(1, 1500);
    let netns = site.stations[0].name();
    for (driver, kind, mode) in MECHANISMS {
        let mut near = site.daemon.open(&driver.replace("{}", "outer0"));
        let mut far = site.daemon.open(&format!("packet:inner@netns={netns}"));
        let report = site.daemon.port(&near.info().name).unwrap();
        assert_eq!(report.kind, kind);
        assert!(report.mode.starts_with(mode), "{}", report.mode);
        if kind == "af_xdp" {
            let taken = site.refusal(&["attach", "vale0:x", "--driver", "xdp:outer0"]);
            assert!(taken.contains("another XDP program"), "{taken}");
        }
        for round in 0..40 {
            carry(&mut near, &mut far, station(1), round);
            carry(&mut far, &mut near, station(2), round);
        }
        drop((near, far));
        site.daemon.await_status("ports closed", |status| status.ports.is_empty());
    }
}

#[test]
fn a_host_stack_stays_reachable_through_the_switch() {
    if !is_root() {
        return;
    }
    let site = Site::new(2, 1500);
    site.outside.number("outer0", 99);
    let host = address(99);
    site.attach(1, "{}");
    for driver in ["xdp:outer0", "packet:outer0"] {
        let attach = ["attach", "vale0:p0", "--driver", driver, "--host"];
        finished(&mut site.daemon.ringroad(&attach));
        let names: Vec<_> = site.daemon.status().ports.into_iter().map(|port| port.name).collect();
        assert_eq!(names, ["vale0:p0", "vale0:p0^", "vale0:p1"]);
        for station in &site.stations {
            station.ping(&host.to_string());
            there_and_back(&site.outside, IpAddr::V4(host), station, &real_file());
        }
        site.transfer();
        await_conserved(&site.daemon);
        site.detach(0);
        site.stations[0].ping(&host.to_string());
    }
    let why = site.refusal(&["attach", "vale0:p0", "--driver", "xdp:outer0@mode=generic", "--host"]);
    assert!(why.contains("outer0") && why.contains("generic"), "{why}");
    site.stations[0].ping(&host.to_string());
    let names: Vec<_> = site.daemon.status().ports.into_iter().map(|port| port.name).collect();
    assert_eq!(names, ["vale0:p1"], "nothing stays of the attempt");
}

#[test]
fn names_of_what_is_not_there_are_clear_errors() {
    if !is_root() {
        return;
    }
    let site = Site::new(1, 1500);
    let station = site.stations[0].name();
    for (arguments, parts) in [
        (vec!["--driver", "eth7"], ["no interface eth7", "outer0"]),
        (vec!["--driver", "xdp:eth7"], ["no interface eth7", "outer0"]),
        (vec!["--driver", "packet:eth7", "--netns", station], ["eth7", station]),
        (vec!["--driver", "outer0", "--netns", "no-such-blue"], ["no-such-blue", "ip netns"]),
        (vec!["--driver", "outer0", "--netns", "4194305"], ["4194305", "process"]),
        (vec!["--driver", "xdp:outer0@mode=zero-copy"], ["outer0", "zero-copy"]),
        (vec!["--driver", "xdp:outer0@mode=fast"], ["mode", "native"]),
        (vec!["--driver", "xdp:outer0", "--queues", "9"], ["outer0", "9"]),
        (vec!["--driver", "xdp:outer0", "--buf-size", "512"], ["512", "2048"]),
        (vec!["--driver", "tap:outer0"], ["outer0", "TAP"]),
        (vec!["--driver", "tap:much-too-long-name"], ["much-too-long-name", "15"]),
    ] {
        let why = site.refusal(&[&["attach", "vale0:p9"][..], &arguments].concat());
        assert!(parts.iter().all(|part| why.contains(part)), "{arguments:?}: {why}");
    }
    assert!(site.daemon.status().ports.is_empty());
    assert_eq!(site.outside.link("outer0").xdp, None);
    assert!(!site.outside.link("outer0").promiscuous);
}

#[test]
fn an_interface_that_vanishes_stops_its_port_only() {
    if !is_root() {
        return;
    }
    for (driver, ..) in MECHANISMS {
        let site = Site::new(3, 1500);
        site.attach_all(driver);
        let third = address(host(2)).to_string();
        site.stations[0].ping(&third);
        std::thread::scope(|scope| {
            scope.spawn(|| site.transfer());
            site.await_delivered(1000);
            cut(&site.outside, "outer2");
        });
        let status = site.daemon.await_status("port that tells of its lost interface", |status| {
            status.ports.iter().any(|port| port.name == "vale0:p2" && port.error.is_some())
        });
        let [first, second, lost] = &status.ports[..] else { panic!("{status:?}") };
        assert_eq!((&first.error, &second.error), (&None, &None), "{driver}");
        assert!(lost.error.as_ref().unwrap().contains("outer2"), "{driver}: {lost:?}");
        assert_eq!(lost.link, None, "{driver}");
        // The switch still knows the lost station; what goes there is counted.
        let unanswered =
            site.stations[0].command(&["ping", "-c", "3", "-i", "0.05", "-W", "1", &third]).output();
        assert!(!unanswered.unwrap().status.success());
        let counted = site.daemon.await_status("drop for the link that is down", |status| {
            status
                .ports
                .iter()
                .any(|port| port.name == "vale0:p2" && port.counters.drops.contains_key("link_down"))
        });
        drop(counted);
        site.transfer();
        await_conserved(&site.daemon);
        site.detach(2);
        // A new interface of that name is a new port.
        cable(&site.outside, "outer2", &site.stations[2], "inner", 1500, 1);
        site.stations[2].number("inner", host(2));
        site.attach(2, driver);
        site.stations[2].ping(&address(host(0)).to_string());
        await_conserved(&site.daemon);
    }
}

#[test]
fn an_interface_set_down_and_up_again_goes_on_where_it_was() {
    if !is_root() {
        return;
    }
    for (driver, ..) in MECHANISMS {
        let site = Site::new(2, 1500);
        site.attach_all(driver);
        std::thread::scope(|scope| {
            let transfer = scope.spawn(|| site.transfer());
            for times in 1..=3 {
                site.await_delivered(1000 * times);
                site.outside.inside(|| set_up("outer1", false).unwrap());
                assert!(!site.daemon.port("vale0:p1").unwrap().link.unwrap().up);
                site.outside.inside(|| set_up("outer1", true).unwrap());
            }
            transfer.join().unwrap();
        });
        site.stations[0].ping(&address(host(1)).to_string());
        let status = await_conserved(&site.daemon);
        assert!(status.ports.iter().all(|port| port.error.is_none()), "{driver}: {status:?}");
    }
}

#[test]
fn an_interface_that_another_program_holds_is_refused_until_that_lets_go() {
    if !is_root() {
        return;
    }
    let site = Site::new(1, 1500);
    let other = Daemon::within(&site.outside);
    finished(&mut other.ringroad(&["attach", "vale0:p0", "--driver", "xdp:outer0"]));
    let theirs = site.outside.link("outer0").xdp;
    let attach = ["attach", "vale0:p0", "--driver", "xdp:outer0"];
    let why = site.refusal(&attach);
    assert!(why.contains("outer0") && why.contains("another"), "{why}");
    assert_eq!(site.outside.link("outer0").xdp, theirs);
    finished(&mut other.ringroad(&["detach", "vale0:p0"]));
    finished(&mut site.daemon.ringroad(&attach));
    assert_ne!(site.outside.link("outer0").xdp, theirs);
}

#[test]
fn missing_rights_are_named() {
    if !is_root() {
        return;
    }
    let without = |capabilities: &str| {
        Site::launched_by(&["setpriv", "--inh-caps", "-all", "--bounding-set", capabilities], 2, 1500, 1)
    };
    // The kernel takes CAP_SYS_ADMIN for CAP_NET_ADMIN where programs are loaded.
    let site = without("-net_admin,-sys_admin");
    for driver in ["xdp:outer0", "tap:t0"] {
        let why = site.refusal(&["attach", "vale0:p0", "--driver", driver]);
        assert!(why.contains("CAP_NET_ADMIN"), "{driver}: {why}");
    }
    // What needs fewer rights still works, and says what it is.
    for report in site.attach_all("{}") {
        assert_eq!(report.kind, "af_packet");
        assert!(report.notes.concat().contains("CAP_NET_ADMIN"), "{report:?}");
    }
    site.transfer();
    await_conserved(&site.daemon);

    let site = without("-net_admin,-sys_admin,-net_raw");
    for driver in ["xdp:outer0", "packet:outer0", "outer0"] {
        let why = site.refusal(&["attach", "vale0:p0", "--driver", driver]);
        assert!(why.contains("CAP_NET_"), "{driver}: {why}");
    }
    assert!(site.daemon.status().ports.is_empty());
}

#[test]
fn a_limit_of_locked_memory_is_named() {
    if !is_root() {
        return;
    }
    let limited = [
        "prlimit",
        "--memlock=65536",
        "setpriv",
        "--inh-caps",
        "-all",
        "--bounding-set",
        "-ipc_lock,-sys_resource",
    ];
    let site = Site::launched_by(&limited, 1, 1500, 1);
    let why = site.refusal(&["attach", "vale0:p0", "--driver", "xdp:outer0"]);
    assert!(why.contains("memlock") || why.contains("locked memory") || why.contains("ulimit -l"), "{why}");
    assert_eq!(site.outside.link("outer0").xdp, None, "nothing stays of the attempt");
}

#[test]
fn a_killed_daemon_leaves_nothing_attached() {
    if !is_root() {
        return;
    }
    let mut site = Site::new(2, 1500);
    site.attach(0, "xdp:{}@mode=native");
    site.attach(1, "packet:{}");
    finished(&mut site.daemon.ringroad(&["attach", "vale0:tap", "--driver", "tap:t0"]));
    site.stations[0].ping(&address(host(1)).to_string());
    assert!(site.outside.link("outer0").xdp.is_some());
    site.daemon.signal(Signal::KILL);
    site.daemon.await_end();
    // The kernel takes programs off when it has closed the last descriptor, which may be after the process has ended.
    site.outside.await_links("interfaces as before", |links| {
        links.iter().all(|link| link.xdp.is_none() && !link.promiscuous && link.name != "t0")
    });
    site.outside.number("outer0", 99);
    site.stations[0].ping(&address(99).to_string());
}
