//! Links that lose their carrier, and interfaces that change, under traffic and without: every part of the daemon sees
//! the same state at once, the counters agree with the kernel's, and ports follow their interfaces.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use ringroad::Port;
use ringroad::control::report::{CounterReport, PortReport};
use ringroad_netdev::link_change::{set_mtu, set_up};
use ringroad_netdev::link_monitor::wait_running;
use ringroad_tests::command::{run, stderr};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::flow_switch::{FlowSwitch, pass};
use ringroad_tests::frames::{number_of, numbered, receive_from, send, station};
use ringroad_tests::network::{NetworkNamespace, address, cable, careless_cable, cut, finished, is_root};
use ringroad_tests::service::Service;
use ringroad_tests::testbed::{MECHANISMS, Testbed, host};
use ringroad_tests::transfer::real_file;

const LEN: usize = 100;

/// Drivers whose frames leave by a wire.
const WIRES: [&str; 4] = ["xdp:{}@mode=native", "xdp:{}@mode=generic", "packet:{}", "veth:{}"];

/// Command `ovs-ofctl` for the switch `vale0` of a daemon.
fn ofctl(daemon: &Daemon, verb: &str, rest: &[&str]) -> Command {
    let mut command = Command::new("ovs-ofctl");
    let socket = daemon.folder().join("vale0.mgmt");
    command.env("OVS_RUNDIR", daemon.folder()).args(["-O", "OpenFlow13", verb]);
    command.arg(format!("unix:{}", socket.display())).args(rest);
    command
}

fn finish(command: Command) -> String {
    let printed = run(command);
    assert!(printed.status.success(), "{}", stderr(&printed));
    String::from_utf8(printed.stdout).unwrap()
}

/// Gives a switch flow tables and a group that prefers the first of two stations. Frames from the program's port `c` go
/// to the group. Returns this port, and the program that prints the switch's port-status messages.
fn prefer_first(site: &Testbed) -> (Port, Service) {
    let daemon = &site.daemon;
    let c = daemon.open("vale0:c");
    finished(&mut daemon.ringroad(&["switch", "vale0", "--openflow"]));
    finish(ofctl(
        daemon,
        "add-group",
        &["group_id=1,type=ff,bucket=watch_port:1,output:1,bucket=watch_port:2,output:2"],
    ));
    finish(ofctl(daemon, "add-flow", &["in_port=3,actions=group:1"]));
    // Each event comes once, so the monitor must be connected before the first event.
    let mut monitor = Service::start(ofctl(daemon, "monitor", &["65534"]));
    daemon.await_openflow_tools(1);
    let described = finish(ofctl(daemon, "dump-ports-desc", &[]));
    assert_eq!(described.matches("LIVE").count(), 3, "{described}");
    let _ = &mut monitor;
    (c, monitor)
}

/// Sends frames from `port` until `flag` is set. Returns the number of frames.
fn send_until(port: &mut Port, flag: &AtomicBool) -> u64 {
    let mut number = 0;
    while !flag.load(Ordering::Relaxed) {
        send(port, &numbered(station(2), station(1), number, LEN));
        port.tx().sync().unwrap();
        number += 1;
    }
    number
}

fn delivered(daemon: &Daemon, port: &str) -> u64 {
    daemon.port(port).unwrap().counters.delivered_frames
}

fn await_more(daemon: &Daemon, port: &str) {
    let before = delivered(daemon, port);
    daemon.await_status("more frames", |_| delivered(daemon, port) > before + 100);
}

#[test]
fn a_group_fails_over_when_a_link_loses_its_carrier_and_every_frame_is_accounted_for() {
    if !is_root() {
        return;
    }
    for driver in WIRES {
        let site = Testbed::new(2, 1500);
        let sent_by_kernel = |outer: &str| site.outside.link(outer).statistics.tx_packets;
        let before = ["outer0", "outer1"].map(sent_by_kernel);
        site.attach_all(driver);
        let (mut c, mut monitor) = prefer_first(&site);
        let ports = ["vale0:p0", "vale0:p1"].map(|name| site.daemon.port(name).unwrap());
        let taken_before: u64 = ports.iter().map(|port| taken(&port.counters)).sum();
        let is_over = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let sender = scope.spawn(|| send_until(&mut c, &is_over));
            for _ in 0..3 {
                await_more(&site.daemon, "vale0:p0");
                site.stations[0].inside(|| set_up("inner", false).unwrap());
                monitor.await_line("LINK_DOWN");
                // The list of ports shows the same state.
                let port = site.daemon.port("vale0:p0").unwrap();
                assert!(port.error.unwrap().contains("no carrier"), "{driver}");
                assert!(!port.link.unwrap().running, "{driver}");
                await_more(&site.daemon, "vale0:p1");
                site.stations[0].inside(|| set_up("inner", true).unwrap());
                monitor.await_line("LIVE");
                await_more(&site.daemon, "vale0:p0");
            }
            is_over.store(true, Ordering::Relaxed);
            sender.join().unwrap()
        });
        site.daemon.await_status("all frames taken", |status| {
            status.ports.iter().any(|port| port.name == "vale0:c" && port.counters.received_frames == sent)
        });
        let status = await_conserved(&site.daemon);
        let counters = |name: &str| &status.ports.iter().find(|port| port.name == name).unwrap().counters;
        // The kernel sent exactly the frames that were counted as delivered. All other frames have a drop cause.
        let [first, second] = ["vale0:p0", "vale0:p1"].map(counters);
        let delivered = [first, second].map(|counters| counters.delivered_frames);
        let by_kernel = ["outer0", "outer1"].map(sent_by_kernel);
        let mut by_kernel = [by_kernel[0] - before[0], by_kernel[1] - before[1]];
        if driver == "veth:{}" {
            // The kernel does not count the frames that a tcx program redirects to an interface that has just lost its
            // carrier.
            by_kernel[0] = delivered[0];
        }
        assert_eq!(delivered, by_kernel, "{driver}: {first:?}, {second:?}");
        let all = [first, second].iter().map(|counters| taken(counters)).sum::<u64>();
        assert_eq!(all - taken_before, sent, "{driver}: {first:?}, {second:?}");
    }
}

/// Number of frames with this port as their destination: delivered, or dropped there. A device refuses frames before
/// the kernel has reported the lost carrier.
fn taken(counters: &CounterReport) -> u64 {
    let dropped = ["link_down", "refused", "no_space"].map(|cause| counters.drops.get(cause).unwrap_or(&0));
    counters.delivered_frames + dropped.into_iter().sum::<u64>()
}

#[test]
fn a_link_without_traffic_is_seen_dead_and_alive() {
    if !is_root() {
        return;
    }
    for driver in WIRES {
        let site = Testbed::new(2, 1500);
        site.attach_all(driver);
        let (_c, mut monitor) = prefer_first(&site);
        for _ in 0..3 {
            site.stations[0].inside(|| set_up("inner", false).unwrap());
            monitor.await_line("LINK_DOWN");
            assert!(!site.daemon.port("vale0:p0").unwrap().link.unwrap().running, "{driver}");
            site.stations[0].inside(|| set_up("inner", true).unwrap());
            monitor.await_line("LIVE");
        }
    }
}

#[test]
fn frames_to_a_dead_veth_pair_do_not_pass_within_the_kernel() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(2, 1500);
    site.attach_all("veth:{}");
    let far = address(host(1)).to_string();
    site.stations[0].ping(&far);
    site.stations[1].inside(|| set_up("inner", false).unwrap());
    let unanswered = site.stations[0].command(&["ping", "-c", "5", "-i", "0.05", "-W", "1", &far]).output();
    assert!(!unanswered.unwrap().status.success());
    site.daemon.await_status("drops for the dead link", |status| {
        status.ports[1].counters.drops.contains_key("link_down")
    });
}

#[test]
fn an_interface_of_another_namespace_is_followed_too() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(1, 1500);
    let elsewhere = NetworkNamespace::new();
    cable(&elsewhere, "eth0", &site.stations[0], "second", 1500, 1);
    let port = format!("packet:eth0@netns={}", elsewhere.name());
    finished(&mut site.ringroad(&["attach", "vale0:e", "--driver", &port]));
    for (up, part) in [(false, Some("no carrier")), (true, None)] {
        site.stations[0].inside(|| set_up("second", up).unwrap());
        site.daemon.await_status("state of the link", |status| {
            let error = status.ports.iter().find(|port| port.name == "vale0:e").unwrap().error.as_deref();
            error.is_some() == part.is_some() && part.is_none_or(|part| error.unwrap().contains(part))
        });
    }
}

#[test]
fn a_program_that_opens_a_port_can_send_and_receive_at_once_by_the_flow_tables() {
    let mut switch = FlowSwitch::new(&[]);
    finish(ofctl(&switch.daemon, "add-flow", &["actions=output:2"]));
    let FlowSwitch { daemon, a, b, .. } = &mut switch;
    for number in 0..20 {
        // The port leaves, and comes back.
        let previous = std::mem::replace(b, daemon.open(&format!("vale1:{number}")));
        drop(previous);
        daemon
            .await_status("end of the port", |status| status.ports.iter().all(|port| port.name != "vale0:b"));
        *b = daemon.open("vale0:b");
        pass(a, &numbered(station(2), station(1), number, LEN));
        assert_eq!(number_of(&receive_from(b, station(1)), station(1)), Some(number));
    }
    assert_eq!(switch.dropped("by_flow"), 0);
}

#[test]
fn a_port_whose_program_ends_is_dead_for_groups_at_once() {
    let FlowSwitch { daemon, mut a, b, c, .. } = FlowSwitch::new(&[]);
    drop((b, c));
    for name in ["vale0:d", "vale0:e"] {
        finished(&mut daemon.ringroad(&["attach", name, "--for-program"]));
    }
    let [d, mut e] = ["vale0:d", "vale0:e"].map(|name| daemon.open(name));
    let described = finish(ofctl(&daemon, "dump-ports-desc", &[]));
    let number = |name: &str| {
        let line = described.lines().find(|line| line.contains(&format!("({name})"))).unwrap();
        line.trim().split('(').next().unwrap().to_owned()
    };
    let (first, second) = (number("d"), number("e"));
    let group = format!(
        "group_id=1,type=ff,bucket=watch_port:{first},output:{first},bucket=watch_port:{second},output:{second}"
    );
    finish(ofctl(&daemon, "add-group", &[&group]));
    finish(ofctl(&daemon, "add-flow", &["in_port=1,actions=group:1"]));
    let mut monitor = Service::start(ofctl(&daemon, "monitor", &["65534"]));
    daemon.await_openflow_tools(1);
    drop(d);
    monitor.await_line("LINK_DOWN");
    pass(&mut a, &numbered(station(2), station(1), 1, LEN));
    assert_eq!(number_of(&receive_from(&mut e, station(1)), station(1)), Some(1));
}

/// Waits until a port was reopened and works.
fn await_renewed(site: &Testbed, name: &str, what: &str) -> PortReport {
    let is_renewed = |port: &PortReport| {
        port.name == name
            && port.error.is_none()
            && port.notes.iter().any(|note| note.contains("opened anew") && note.contains(what))
    };
    site.daemon.await_status("renewed port", |status| status.ports.iter().any(is_renewed));
    site.daemon.port(name).unwrap()
}

#[test]
fn a_port_follows_the_number_of_queues_of_its_interface() {
    if !is_root() {
        return;
    }
    for (driver, ..) in MECHANISMS {
        let site = Testbed::launched_by(&[], 2, 1500, 4);
        let channels = |count: u32| {
            let queues = count.to_string();
            let set = |namespace: &NetworkNamespace, end: &str| {
                namespace.run(&["ethtool", "-L", end, "rx", &queues, "tx", &queues]);
            };
            let mut ends = [(&site.stations[1], "inner"), (&site.outside, "outer1")];
            // With a native XDP program an interface has no fewer queues than its other end.
            if count > 2 {
                ends.reverse();
            }
            ends.into_iter().for_each(|(namespace, end)| set(namespace, end));
        };
        channels(2);
        assert_eq!(site.attach_all(driver)[1].queues, 2, "{driver}");
        site.transfer_of(&real_file()[..1 << 20]);
        let before = site.daemon.port("vale0:p1").unwrap();
        channels(4);
        let after = await_renewed(&site, "vale0:p1", "4 queue(s), before 2");
        assert_eq!((after.queues, after.index), (4, before.index), "{driver}");
        assert!(after.counters.delivered_frames >= before.counters.delivered_frames, "{driver}");
        // Each flow is bound to a queue: an unserved queue would stop some of them.
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| site.transfer_of(&real_file()[..1 << 18]));
            }
        });
        await_conserved(&site.daemon);
    }
}

#[test]
fn a_port_follows_the_mtu_of_its_interface() {
    if !is_root() {
        return;
    }
    for driver in WIRES {
        let site = Testbed::new(2, 1500);
        site.attach_all(driver);
        for (number, station) in site.stations.iter().enumerate() {
            station.inside(|| set_mtu("inner", 3000).unwrap());
            site.outside.inside(|| set_mtu(&format!("outer{number}"), 3000).unwrap());
            let port = await_renewed(&site, &format!("vale0:p{number}"), "MTU 3000, before 1500");
            assert_eq!(port.link.unwrap().mtu, 3000, "{driver}");
        }
        let far = address(host(0)).to_string();
        site.stations[1].ping_with(&["-M", "do", "-s", "2972"], &far);
        await_conserved(&site.daemon);
    }
}

#[test]
fn a_port_takes_up_another_interface_of_its_name() {
    if !is_root() {
        return;
    }
    for driver in WIRES {
        let site = Testbed::new(2, 1500);
        site.attach_all(driver);
        site.transfer_of(&real_file()[..1 << 18]);
        let before = site.daemon.port("vale0:p1").unwrap();
        cut(&site.outside, "outer1");
        site.daemon.await_status("port without its interface", |status| {
            status.ports[1].error.as_ref().is_some_and(|error| error.contains("outer1 is gone"))
        });
        let again = if driver == "veth:{}" { careless_cable } else { cable };
        again(&site.outside, "outer1", &site.stations[1], "inner", 1500, 1);
        site.stations[1].number("inner", host(1));
        let after = await_renewed(&site, "vale0:p1", "another one of this name");
        assert_eq!(after.index, before.index, "{driver}");
        assert!(after.counters.delivered_frames >= before.counters.delivered_frames, "{driver}");
        site.outside.inside(|| wait_running("outer1", PATIENCE.unwrap()).unwrap());
        site.stations[1].ping(&address(host(0)).to_string());
        await_conserved(&site.daemon);
        // The new interface is followed like the one before.
        site.stations[1].inside(|| set_up("inner", false).unwrap());
        site.daemon.await_status("dead link", |status| {
            status.ports[1].error.as_ref().is_some_and(|error| error.contains("no carrier"))
        });
    }
}

#[test]
fn an_upgraded_daemon_follows_links_too() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(2, 1500);
    site.attach_all("xdp:{}@mode=native");
    site.stations[0].inside(|| set_up("inner", false).unwrap());
    let has_carrier = |number: usize, requested: bool| {
        site.daemon.await_status("state of the link", |status| {
            let port = &status.ports[number];
            port.error.is_none() == requested && port.link.as_ref().unwrap().running == requested
        });
    };
    has_carrier(0, false);
    site.daemon.upgrade();
    has_carrier(0, false);
    has_carrier(1, true);
    site.stations[0].inside(|| set_up("inner", true).unwrap());
    site.stations[1].inside(|| set_up("inner", false).unwrap());
    has_carrier(0, true);
    has_carrier(1, false);
}
