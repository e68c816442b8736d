//! Network interfaces as ports: each mechanism carries frames to a switch, a program and the host stack.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::IpAddr;
use std::process::Output;

use ringroad::Port;
use ringroad_netdev::link::XdpReportedMode;
use ringroad_tests::command::last_object;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, binary};
use ringroad_tests::frames::{numbered, receive_from, send, station};
use ringroad_tests::network::{NetworkNamespace, address, cable, careless_cable, finished, is_root};
use ringroad_tests::service::Service;
use ringroad_tests::testbed::{MECHANISMS, Testbed, host, refusal};
use ringroad_tests::transfer::{real_file, there_and_back};
use serde_json::Value;

#[test]
fn an_interface_of_another_daemon_is_refused_and_the_other_daemon_is_named() {
    if !is_root() {
        return;
    }
    for driver in ["xdp:outer0@mode=generic", "packet:outer0"] {
        let mut site = Testbed::new(1, 1500);
        site.attach(0, driver);
        let other = Daemon::within(&site.outside);
        for asked in ["outer0", "xdp:outer0", "xdp:outer0@force=1", "packet:outer0"] {
            let why = refusal(
                &mut other.ringroad_within(&site.outside, &["attach", "vale1:up", "--driver", asked]),
            );
            let holder = format!(
                "another daemon has the interface, as vale0:p0: ringroadd at {}",
                site.daemon.socket().display()
            );
            assert!(why.contains(&holder) && !why.contains("xdp off"), "{asked}: {why}");
        }
        // The claim goes to the process that takes over, and ends with a killed one.
        site.daemon.upgrade();
        let why = refusal(
            &mut other.ringroad_within(&site.outside, &["attach", "vale1:up", "--driver", "packet:outer0"]),
        );
        assert!(why.contains("another daemon has the interface"), "{why}");
        site.daemon.crash();
        finished(&mut other.ringroad_within(&site.outside, &["attach", "vale1:up", "--driver", driver]));
        assert!(other.port("vale1:up").unwrap().link.unwrap().running);
    }
}

#[test]
fn each_mechanism_carries_a_file_and_gives_the_interface_back() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(2, 1500);
    for (driver, kind, mode) in MECHANISMS {
        for report in site.attach_all(driver) {
            assert_eq!(report.kind, kind);
            assert!(report.mode.starts_with(mode), "{driver}: {}", report.mode);
            assert_eq!(report.error, None);
        }
        let listed: Value = serde_json::from_str(&finished(&mut site.ringroad(&["--json", "list"]))).unwrap();
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
    // Drivers other than XDP serve interfaces in a station's own namespace, too.
    attach("vale0:p0", "tap:inner", stations[0].name());
    cable(&outside, "outer1", &stations[1], "inner", 1500, 1);
    finished(&mut daemon.ringroad_within(&outside, &["attach", "vale0:p1", "--driver", "outer1"]));
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
fn an_interface_gets_the_best_mechanism_and_the_reason_for_it() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(1, 1500);
    let printed = finished(&mut site.ringroad(&["--json", "attach", "vale0:outer0"]));
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed[0]["driver"], "af_xdp");
    let mode = printed[0]["mode"].as_str().unwrap();
    assert!(mode.starts_with("AF_XDP copy, native (zero-copy: "), "{printed}");
    assert!(printed[0]["notes"].to_string().contains("zero-copy is not available"), "{printed}");
    assert_eq!(site.outside.link("outer0").xdp.unwrap().mode, XdpReportedMode::Native);
    let report = site.daemon.port("vale0:outer0").unwrap();
    assert_eq!((report.mode.as_str(), report.persistent), (mode, true));
}

#[test]
fn jumbo_frames_pass_through_small_buffers() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(2, 9000);
    for (driver, _, mode) in MECHANISMS {
        for report in site.attach_all(driver) {
            assert!(report.mode.starts_with(mode), "{}", report.mode);
            let mtu = report.link.unwrap().mtu;
            assert_eq!(mtu, 9000);
            assert!(report.buffer_bytes < mtu, "{} bytes", report.buffer_bytes);
        }
        site.stations[1].ping_with(&["-M", "do", "-s", "8972"], "10.78.0.1");
        site.transfer();
        await_conserved(&site.daemon);
        site.detach(0);
        site.detach(1);
    }
}

/// Script that sends frames of 9000 bytes with FCS.
const LONG_FRAMES: &str = r#"
local memory, device = require "memory", require "device"
function master(port)
  local bufs = memory.createMemPool{ func = function(buf) end, bufSize = 9216 }:bufArray(10)
  bufs:alloc(8996)
  device.config{ port = port }:getTxQueue(0):send(bufs)
end
"#;

#[test]
fn frames_longer_than_an_interface_sends_are_refused_or_counted_by_cause() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(1, 1500);
    let folder = site.daemon.folder();
    let long = format!("pcap:out={}", folder.join("long.pcap").display());
    finished(&mut site.ringroad(&["gen", &long, "--size", "9000", "--count", "10"]));
    let (long, script) = (folder.join("long.pcap"), folder.join("long.lua"));
    std::fs::write(&script, LONG_FRAMES).unwrap();
    for (driver, ..) in MECHANISMS {
        let port = driver.replace("{}", "outer0");
        let replayed = finished(&mut site.ringroad(&["--json", "replay", long.to_str().unwrap(), &port]));
        assert_eq!(last_object(&replayed)["too_long_frames"], 10, "{replayed}");
        let why = site.refusal(&["script", script.to_str().unwrap(), &port]);
        assert!(why.contains("has 8996 bytes: a frame has 14 to 1518"), "{why}");
        let why = site.refusal(&["gen", &port, "--size", "9000", "--count", "10"]);
        assert!(why.contains("frames of 8996 bytes") && why.contains("carries 1518 at most"), "{why}");
        finished(&mut site.ringroad(&["gen", &port, "--size", "1518", "--count", "10"]));
    }
    // Only frames with a VLAN tag can be as long as this; the kernel tells by each frame.
    let run = ["--json", "gen", "packet:outer0", "--size", "1522", "--count", "10"];
    let Output { status, stdout, stderr } = site.ringroad(&run).output().unwrap();
    let (sent, why) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    let losses = &last_object(&sent)["losses"];
    assert_eq!(losses["drops"][0]["by_cause"]["too_long"], 10, "{sent}");
    assert_eq!(status.code(), Some(1));
    assert!(why.contains("10 frames are longer than packet:outer0 can send"), "{why}");
}

#[test]
fn flows_over_several_queues_all_arrive() {
    if !is_root() {
        return;
    }
    let site = Testbed::launched_by(&[], 2, 1500, 2);
    for (driver, _, mode) in MECHANISMS {
        for report in site.attach_all(driver) {
            assert!(report.mode.starts_with(mode), "{}", report.mode);
            assert_eq!(report.queues, 2, "{driver}");
        }
        // Each flow is bound to a queue: an unserved queue would stop half of them.
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

#[test]
fn either_of_two_ports_that_share_a_region_may_close_first() {
    if !is_root() {
        return;
    }
    for (driver, _, mode) in &MECHANISMS[..2] {
        let site = Testbed::new(3, 1500);
        let shared = format!("{driver}@share=vale0:p0");
        for report in [site.attach(0, driver), site.attach(1, &shared), site.attach(2, &shared)] {
            assert!(report.mode.starts_with(mode), "{}", report.mode);
        }
        site.transfer();
        // Flooded frames are copied, and the others pass by exchange of buffers.
        for port in
            await_conserved(&site.daemon).ports.iter().filter(|port| port.counters.delivered_frames > 100)
        {
            let (delivered, uncopied) = (port.counters.delivered_frames, port.counters.uncopied_frames);
            assert!(uncopied * 10 > delivered * 9, "{}: {uncopied} of {delivered}", port.name);
        }
        // The port that brought the region is detached under traffic, and the other ports keep the region.
        let [_, first, second] = &site.stations[..] else { panic!("three stations") };
        let before = site.delivered();
        std::thread::scope(|scope| {
            let file = real_file();
            scope.spawn(move || there_and_back(first, IpAddr::V4(address(host(1))), second, &file));
            site.await_delivered(before + 1000);
            site.detach(0);
        });
        await_conserved(&site.daemon);
        let refused = site.refusal(&["attach", "vale0:p0", "--driver", "xdp:outer0@share=vale0:p7"]);
        assert!(refused.contains("vale0:p7"), "{refused}");
    }
}

/// Sends a burst of frames of many lengths and compares each with the frame that arrives.
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
fn a_program_has_exclusive_use_of_an_interface() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(1, 1500);
    let netns = site.stations[0].name();
    for (driver, kind, mode) in MECHANISMS {
        let separator = if driver.contains('@') { ',' } else { '@' };
        let outside = format!("{separator}netns={}", site.outside.name());
        let mut near = site.daemon.open(&(driver.replace("{}", "outer0") + &outside));
        let mut far = site.daemon.open(&format!("packet:inner@netns={netns}"));
        let report = site.daemon.port(&near.info().name).unwrap();
        assert_eq!(report.kind, kind);
        assert!(report.mode.starts_with(mode), "{}", report.mode);
        // The interface is taken for every mechanism, and by every form of its name.
        for other in ["xdp:outer0", "packet:outer0", "outer0"] {
            let taken = site.refusal(&["attach", "vale0:x", "--driver", other]);
            assert!(taken.contains("taken already") && taken.contains(&near.info().name), "{taken}");
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
    let site = Testbed::new(2, 1500);
    site.outside.number("outer0", 99);
    let host = address(99);
    site.attach(1, "{}");
    for driver in ["xdp:outer0", "packet:outer0"] {
        let attach = ["attach", "vale0:p0", "--driver", driver, "--host"];
        finished(&mut site.ringroad(&attach));
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
fn an_interface_name_means_the_programs_namespace_not_the_daemons() {
    if !is_root() {
        return;
    }
    // An interface of this name exists in the daemon's namespace and in two others.
    let [own, first, second, far] = [(); 4].map(|()| NetworkNamespace::new());
    for (number, namespace) in [&own, &first, &second].into_iter().enumerate() {
        cable(namespace, "eth0", &far, &format!("far{number}"), 1500, 1);
    }
    let daemon = Daemon::within(&own);
    let taken = || [&own, &first, &second].map(|namespace| namespace.link("eth0").xdp.is_some());
    assert_eq!(taken(), [false; 3]);
    finished(&mut daemon.ringroad_within(&first, &["attach", "vale0:eth0"]));
    assert_eq!(taken(), [false, true, false]);
    assert_eq!(daemon.port("vale0:eth0").unwrap().link.unwrap().netns.as_deref(), Some(first.name()));
    // A program's port is in its own namespace. The option `--netns` selects another namespace.
    let mut receiver = Service::start(daemon.ringroad_within(&second, &["recv", "xdp:eth0"]));
    let key = format!("xdp:eth0@netns={}", second.name());
    daemon.await_status("program's port", |status| status.ports.iter().any(|port| port.name == key));
    assert_eq!(taken(), [false, true, true]);
    finished(&mut daemon.ringroad_within(&second, &["attach", "vale1:eth0", "--netns", own.name()]));
    assert_eq!(taken(), [true; 3]);
    assert_eq!(daemon.port("vale1:eth0").unwrap().link.unwrap().netns, None);
    // The error names the port that has the interface, for any name of the namespace.
    let number = daemon.pid().as_raw_nonzero().to_string();
    for netns in [own.name(), &number] {
        let arguments = ["attach", "vale2:x", "--driver", "packet:eth0", "--netns", netns];
        let why = refusal(&mut daemon.ringroad_within(&first, &arguments));
        assert!(why.contains("taken already, by vale1:eth0"), "{why}");
    }
    receiver.signal(rustix::process::Signal::TERM);
    receiver.await_end();
}

#[test]
fn the_doctor_names_the_mechanism_that_an_interface_then_gets() {
    if !is_root() {
        return;
    }
    let (own, far) = (NetworkNamespace::new(), NetworkNamespace::new());
    cable(&own, "eth0", &far, "far0", 1500, 1);
    cable(&own, "eth1", &far, "far1", 9000, 1);
    own.run(&["ip", "link", "add", "br0", "type", "bridge"]);
    own.run(&["ip", "link", "set", "br0", "up"]);
    let (daemon, other) = (Daemon::within(&own), Daemon::within(&own));
    let checks = |daemon: &Daemon, interface: &str| -> Vec<Value> {
        let printed = finished(&mut daemon.ringroad_within(&own, &["--json", "doctor", interface]));
        serde_json::from_str::<Value>(&printed).unwrap()["checks"].as_array().unwrap().clone()
    };
    let findings = |daemon: &Daemon, interface: &str, check: &str| -> Vec<String> {
        let checks = checks(daemon, interface).into_iter().filter(|one| one["check"] == check);
        checks.map(|one| one["finding"].as_str().unwrap().to_owned()).collect()
    };
    for interface in ["eth0", "eth1", "br0"] {
        let foretold = findings(&daemon, interface, "mechanism");
        assert_eq!(foretold.first().unwrap(), "not AF_XDP zero-copy: its driver has no zero copy");
        let end = format!(", as soon as a port opens {interface}");
        let mechanism = foretold.last().unwrap().strip_suffix(&end).unwrap();
        let name = format!("vale0:{interface}");
        finished(&mut daemon.ringroad_within(&own, &["attach", &name, "--take"]));
        let mode = daemon.port(&name).unwrap().mode;
        assert!(mode.starts_with(mechanism), "{interface}: {mode}, and not {mechanism}");
        // The daemon that has the interface knows its own XDP program; for another daemon it is in the way.
        assert_eq!(findings(&daemon, interface, "port"), [format!("{name}: af_xdp, {mode}")]);
        // A port uses what the driver has, unless its program runs after the driver.
        let metadata = findings(&daemon, interface, "metadata of frames");
        let has_tags = metadata.iter().any(|metadata| metadata.contains("vlan-tag"));
        assert_eq!(mode.contains("vlan-tag"), has_tags, "{interface}: {mode}; {metadata:?}");
        let foretold = findings(&other, interface, "mechanism");
        assert!(foretold[0].starts_with("not AF_XDP: XDP program "), "{foretold:?}");
        assert!(foretold[1].starts_with("AF_PACKET, "), "{foretold:?}");
    }
    assert_eq!(findings(&daemon, "eth0", "driver"), ["veth"]);
    // All at once are the same as one by one.
    let all = checks(&daemon, "--all");
    let of = |interface: &str| {
        let is_its = |check: &&Value| check["interface"].is_null() || check["interface"] == interface;
        all.iter().filter(is_its).cloned().collect::<Vec<_>>()
    };
    for interface in ["eth0", "eth1", "br0"] {
        assert_eq!(of(interface), checks(&daemon, interface));
    }
    assert_eq!(of("lo"), of("no interface"), "loopback is no port");
    let both = daemon.ringroad_within(&own, &["doctor", "eth0", "--all"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2));
    let why = refusal(&mut daemon.ringroad_within(&own, &["doctor", "eht0"]));
    assert!(why.contains("did you mean eth0?"), "{why}");
    let why = refusal(&mut daemon.ringroad_within(&own, &["attach", "vale0:eht0"]));
    assert!(why.contains("did you mean eth0?"), "{why}");
}

#[test]
fn a_veth_goes_through_the_driver_matrix_without_a_guest() {
    if !is_root() {
        return;
    }
    let namespace = NetworkNamespace::new();
    let cards = binary("cards");
    for (mechanism, outcome) in [("zero-copy", "refused"), ("native", "whole")] {
        let arguments = ["--inside", "--driver", "veth", "--mechanism", mechanism];
        let mut command = namespace.command(&[&[cards.to_str().unwrap()], &arguments[..]].concat());
        let printed = finished(command.env("RINGROAD_BIN_DIR", cards.parent().unwrap()));
        let row = printed.lines().find_map(|line| line.strip_prefix("@row ")).unwrap();
        let row: Value = serde_json::from_str(row).unwrap();
        assert_eq!(row["outcome"], outcome, "{printed}");
        // The kernel counts what the port counts.
        assert_eq!(row["remarks"].as_array().unwrap().len(), 0, "{printed}");
    }
}

#[test]
fn an_interface_is_refused_to_a_program_of_unknown_namespace() {
    if !is_root() {
        return;
    }
    let (own, far) = (NetworkNamespace::new(), NetworkNamespace::new());
    cable(&own, "eth0", &far, "far", 1500, 1);
    // In a separate PID namespace the daemon sees no processes outside.
    let launcher =
        ["ip", "netns", "exec", own.name(), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let daemon = Daemon::launched_by(&launcher, "");
    let why = refusal(&mut daemon.ringroad_within(&own, &["attach", "vale0:eth0"]));
    assert!(why.contains("PID namespace") && why.contains("--netns"), "{why}");
    let why = refusal(&mut daemon.ringroad_within(&own, &["recv", "eth0"]));
    assert!(why.contains("PID namespace"), "{why}");
    assert_eq!(own.link("eth0").xdp, None);
    finished(&mut daemon.ringroad(&["attach", "vale0:p", "--for-program"]));
    finished(&mut daemon.ringroad(&["attach", "vale0:eth0", "--netns", own.name()]));
    assert!(own.link("eth0").xdp.is_some());
}

#[test]
fn a_pipe_that_replaces_a_namespace_does_not_stop_the_daemon() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let path = daemon.folder().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let path = path.to_str().unwrap();
    let why = refusal(&mut daemon.ringroad(&["attach", "vale0:eth0", "--netns", path]));
    assert!(why.contains("is not a network namespace"), "{why}");
    assert!(daemon.status().ports.is_empty());
}

#[test]
fn an_interface_name_makes_a_program_port_only_on_request() {
    let daemon = Daemon::start();
    let why = refusal(&mut daemon.ringroad(&["attach", "vale0:eth99"]));
    assert!(why.contains("no interface eth99") && why.contains("--for-program"), "{why}");
    assert!(daemon.status().ports.is_empty());
    finished(&mut daemon.ringroad(&["attach", "vale0:eth99", "--for-program"]));
    assert_eq!(daemon.port("vale0:eth99").unwrap().kind, "shm");
}

#[test]
fn unfinished_frames_of_a_virtual_peer_arrive_finished() {
    if !is_root() {
        return;
    }
    // Each driver serves the first interface. The second interface has the best mechanism, and the third port is a TAP.
    for driver in ["{}", "xdp:{}@mode=native", "xdp:{}@mode=generic", "packet:{}"] {
        let outside = NetworkNamespace::new();
        let daemon = Daemon::within(&outside);
        let stations: Vec<_> = (0..3).map(|_| NetworkNamespace::new()).collect();
        for (number, driver) in [driver, "{}"].into_iter().enumerate() {
            let outer = format!("outer{number}");
            careless_cable(&outside, &outer, &stations[number], "inner", 1500, 1);
            let driver = driver.replace("{}", &outer);
            let arguments = ["attach", &format!("vale0:p{number}"), "--driver", &driver];
            finished(&mut daemon.ringroad_within(&outside, &arguments));
        }
        let tap = ["attach", "vale0:p2", "--driver", "tap:inner", "--netns", stations[2].name()];
        finished(&mut daemon.ringroad(&tap));
        for (number, station) in stations.iter().enumerate() {
            station.number("inner", host(number));
        }
        for (server, client) in [(0, 1), (2, 0)] {
            let at = IpAddr::V4(address(host(server)));
            there_and_back(&stations[server], at, &stations[client], &real_file());
        }
        await_conserved(&daemon);
    }
}
