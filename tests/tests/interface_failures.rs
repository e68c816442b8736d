//! Network interfaces as ports, with faults of names, interfaces, rights, or the daemon itself.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ringroad::control::report::{PortReport, StatusReport};
use ringroad_netdev::link_change::set_up;
use ringroad_tests::command::stderr;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::network::{address, cable, cut, finished, is_root};
use ringroad_tests::service::Service;
use ringroad_tests::testbed::{MECHANISMS, Testbed, host};
use rustix::process::Signal;

#[test]
fn names_of_missing_devices_are_clear_errors() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(1, 1500);
    let station = site.stations[0].name();
    for (arguments, parts) in [
        (vec!["--driver", "eth7"], ["no interface eth7", "outer0"]),
        (vec!["--driver", "xdp:eth7"], ["no interface eth7", "outer0"]),
        (vec!["--driver", "packet:eth7", "--netns", station], ["eth7", station]),
        (vec!["--driver", "outer0", "--netns", "no-such-blue"], ["no-such-blue", "ip netns"]),
        (vec!["--driver", "outer0", "--netns", "4194305"], ["4194305", "process"]),
        (vec!["--driver", "xdp:outer0@mode=zero-copy"], ["outer0", "zero-copy"]),
        (vec!["--driver", "xdp:outer0", "--queues", "9"], ["outer0", "9"]),
        (vec!["--driver", "xdp:outer0", "--buf-size", "512"], ["512", "2048"]),
        (vec!["--driver", "tap:outer0"], ["outer0", "TAP"]),
    ] {
        let why = site.refusal(&[&["attach", "vale0:p9"][..], &arguments].concat());
        assert!(parts.iter().all(|part| why.contains(part)), "{arguments:?}: {why}");
    }
    // Names that no device can have are wrong usage.
    for (driver, parts) in [
        ("xdp:outer0@mode=fast", ["mode", "native"]),
        ("tap:much-too-long-name", ["much-too-long-name", "15"]),
    ] {
        let output = site.ringroad(&["attach", "vale0:p9", "--driver", driver]).output().unwrap();
        let why = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{driver}: {why}");
        assert!(parts.iter().all(|part| why.contains(part)), "{driver}: {why}");
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
        let site = Testbed::new(3, 1500);
        site.attach_all(driver);
        let third = address(host(2)).to_string();
        site.stations[0].ping(&third);
        std::thread::scope(|scope| {
            scope.spawn(|| site.transfer());
            site.await_delivered(1000);
            cut(&site.outside, "outer2");
        });
        let status = site.daemon.await_status("port that reports its lost interface", |status| {
            status.ports.iter().any(|port| port.name == "vale0:p2" && port.error.is_some())
        });
        let [first, second, lost] = &status.ports[..] else { panic!("{status:?}") };
        assert_eq!((&first.error, &second.error), (&None, &None), "{driver}");
        assert!(lost.error.as_ref().unwrap().contains("outer2"), "{driver}: {lost:?}");
        assert_eq!(lost.link, None, "{driver}");
        // The switch still knows the lost station's address. Frames to this address are counted as drops.
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
        // A new interface with the name of the lost one is attached as a new port.
        cable(&site.outside, "outer2", &site.stations[2], "inner", 1500, 1);
        site.stations[2].number("inner", host(2));
        site.attach(2, driver);
        site.stations[2].ping(&address(host(0)).to_string());
        await_conserved(&site.daemon);
    }
}

#[test]
fn a_program_notices_that_its_interface_vanished() {
    if !is_root() {
        return;
    }
    for (driver, ..) in MECHANISMS {
        let site = Testbed::new(1, 1500);
        let port = driver.replace("{}", "outer0");
        let mut receiver = Service::start(site.ringroad(&["recv", &port]));
        site.daemon.await_status("program's port", |status| !status.ports.is_empty());
        cut(&site.outside, "outer0");
        let (status, printed) = receiver.await_end();
        assert_eq!(status.code(), Some(1), "{driver}: {printed}");
        assert!(printed.contains("the device behind the port is gone"), "{driver}: {printed}");
        site.daemon.await_status("no ports", |status| status.ports.is_empty());
    }
}

#[test]
fn an_interface_set_down_and_up_again_keeps_its_port() {
    if !is_root() {
        return;
    }
    for (driver, ..) in MECHANISMS {
        let site = Testbed::new(2, 1500);
        site.attach_all(driver);
        std::thread::scope(|scope| {
            let transfer = scope.spawn(|| site.transfer());
            for times in 1..=3 {
                site.await_delivered(1000 * times);
                site.outside.inside(|| set_up("outer1", false).unwrap());
                let is_down = |status: &StatusReport| !status.ports[1].link.as_ref().unwrap().up;
                site.daemon.await_status("port that is down", is_down);
                site.outside.inside(|| set_up("outer1", true).unwrap());
            }
            transfer.join().unwrap();
        });
        // The transfer may have ended before the last change.
        let works = |port: &PortReport| port.error.is_none() && port.link.as_ref().unwrap().running;
        site.daemon.await_status("ports that work", |status| status.ports.iter().all(works));
        site.stations[0].ping(&address(host(1)).to_string());
        let status = await_conserved(&site.daemon);
        assert!(status.ports.iter().all(|port| port.error.is_none()), "{driver}: {status:?}");
    }
}

#[test]
fn a_port_reattached_under_traffic_counts_every_frame() {
    if !is_root() {
        return;
    }
    for (driver, ..) in MECHANISMS {
        let site = Testbed::new(2, 1500);
        site.attach_all(driver);
        for _ in 0..2 {
            let before = site.delivered();
            std::thread::scope(|scope| {
                scope.spawn(|| site.transfer());
                site.await_delivered(before + 500);
                site.detach(1);
                site.attach(1, driver);
            });
        }
        await_conserved(&site.daemon);
    }
}

#[test]
fn an_interface_is_refused_while_another_daemon_holds_it() {
    if !is_root() {
        return;
    }
    let site = Testbed::new(1, 1500);
    let other = Daemon::within(&site.outside);
    finished(&mut other.ringroad_within(&site.outside, &["attach", "vale0:p0", "--driver", "xdp:outer0"]));
    let theirs = site.outside.link("outer0").xdp;
    let attach = ["attach", "vale0:p0", "--driver", "xdp:outer0"];
    let why = site.refusal(&attach);
    assert!(why.contains("another daemon has the interface, as vale0:p0"), "{why}");
    assert_eq!(site.outside.link("outer0").xdp, theirs);
    finished(&mut other.ringroad_within(&site.outside, &["detach", "vale0:p0"]));
    finished(&mut site.ringroad(&attach));
    assert_ne!(site.outside.link("outer0").xdp, theirs);
}

#[test]
fn missing_rights_are_named() {
    if !is_root() {
        return;
    }
    let without = |capabilities: &str| {
        Testbed::launched_by(&["setpriv", "--inh-caps", "-all", "--bounding-set", capabilities], 2, 1500, 1)
    };
    // The kernel accepts CAP_SYS_ADMIN in place of CAP_NET_ADMIN when it loads programs.
    let site = without("-net_admin,-sys_admin");
    for driver in ["xdp:outer0", "tap:t0"] {
        let why = site.refusal(&["attach", "vale0:p0", "--driver", driver]);
        assert!(why.contains("CAP_NET_ADMIN"), "{driver}: {why}");
    }
    // Ports that need fewer rights still work, and report their mechanism.
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
    let site = Testbed::launched_by(&limited, 1, 1500, 1);
    let why = site.refusal(&["attach", "vale0:p0", "--driver", "xdp:outer0"]);
    assert!(why.contains("memlock") || why.contains("locked memory") || why.contains("ulimit -l"), "{why}");
    assert_eq!(site.outside.link("outer0").xdp, None, "nothing stays of the attempt");
}

#[test]
fn a_killed_daemon_leaves_no_program_on_interfaces() {
    if !is_root() {
        return;
    }
    let mut site = Testbed::new(2, 1500);
    site.attach(0, "xdp:{}@mode=native");
    site.attach(1, "packet:{}");
    finished(&mut site.ringroad(&["attach", "vale0:tap", "--driver", "tap:t0"]));
    site.stations[0].ping(&address(host(1)).to_string());
    assert!(site.outside.link("outer0").xdp.is_some());
    site.daemon.signal(Signal::KILL);
    site.daemon.await_end();
    // The kernel detaches programs when it has closed the last descriptor, which may be after the end of the process.
    site.outside.await_links("interfaces as before", |links| {
        links.iter().all(|link| link.xdp.is_none() && !link.promiscuous && link.name != "t0")
    });
    site.outside.number("outer0", 99);
    site.stations[0].ping(&address(99).to_string());
}
