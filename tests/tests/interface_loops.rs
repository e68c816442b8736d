//! Loops of network interfaces behind a switch, and generators that would flood an interface.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ringroad::control::report::StatusReport;
use ringroad_netdev::link_change::{VethEnd, create_veth, set_up};
use ringroad_netdev::link_monitor::wait_running;
use ringroad_tests::conservation::is_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::frames::{numbered, receive, send, station};
use ringroad_tests::network::{NetworkNamespace, cable, finished, is_root};
use serde_json::Value;

/// A cable with both ends on one switch.
fn loop_on(daemon: &Daemon, outside: &NetworkNamespace, switch: &str) {
    outside.inside(|| {
        create_veth(VethEnd::here("left"), VethEnd::here("right")).unwrap();
        set_up("left", true).unwrap();
        set_up("right", true).unwrap();
        wait_running("left", PATIENCE.unwrap()).unwrap();
    });
    for end in ["left", "right"] {
        let name = format!("{switch}:{end}");
        finished(&mut daemon.ringroad_within(outside, &["attach", &name, "--take"]));
    }
}

fn received(status: &StatusReport) -> u64 {
    status.switches.iter().map(|switch| switch.totals.received_frames).sum()
}

/// Waits until frames have moved and then stopped, and a port was reported as blocked.
fn await_end_of_storm(daemon: &Daemon, least: u64) {
    let (mut last, mut still, mut has_blocked) = (0, 0, false);
    daemon.await_status("storm and its end", |status| {
        let now = received(status);
        still = if now == last { still + 1 } else { 0 };
        last = now;
        let mut errors = status.ports.iter().filter_map(|port| port.error.as_deref());
        has_blocked |= errors.any(|error| error.contains("a loop is behind this port"));
        has_blocked && now >= least && still >= 20 && is_conserved(status)
    });
}

#[test]
fn a_storm_between_two_ends_of_a_cable_ends_and_the_log_names_one_of_them() {
    if !is_root() {
        return;
    }
    for port in ["vale5:bb", "vale5:bb@vlan=10"] {
        let outside = NetworkNamespace::new();
        let launcher = ["ip", "netns", "exec", outside.name()];
        let daemon = Daemon::launched_by(&launcher, "[switch]\nageing_s = 1\n");
        loop_on(&daemon, &outside, "vale5");
        let destination = ["--dst-mac", "ff:ff:ff:ff:ff:ff", "--flood"];
        let count = ["gen", port, "--rate", "1kpps", "--count", "300"];
        finished(&mut daemon.ringroad(&[&count[..], &destination].concat()));
        await_end_of_storm(&daemon, 300);
        daemon.await_status("line in the log", |_| {
            daemon.log().contains("a frame that the switch sent came back at vale5:")
        });
    }
}

#[test]
fn programs_lose_no_frame_while_a_storm_is_cut() {
    if !is_root() {
        return;
    }
    let outside = NetworkNamespace::new();
    let daemon = Daemon::within(&outside);
    loop_on(&daemon, &outside, "vale5");
    let [mut a, mut b] = ["vale5:a", "vale5:b"].map(|name| daemon.open(name));
    send(&mut a, &numbered([0xff; 6], station(1), 0, 60));
    a.sync().unwrap();
    await_end_of_storm(&daemon, 100);
    for round in 1..=20 {
        let there = numbered(station(2), station(1), round, 60);
        send(&mut a, &there);
        a.sync().unwrap();
        // Frames of the storm are in the port's ring, too.
        while receive(&mut b) != there {}
        let back = numbered(station(1), station(2), round, 60);
        send(&mut b, &back);
        b.sync().unwrap();
        while receive(&mut a) != back {}
    }
}

#[test]
fn a_generator_announces_its_receivers_and_floods_no_interface() {
    if !is_root() {
        return;
    }
    let (outside, inside) = (NetworkNamespace::new(), NetworkNamespace::new());
    let daemon = Daemon::within(&outside);
    cable(&outside, "outer", &inside, "inner", 1500, 1);
    finished(&mut daemon.ringroad_within(&outside, &["attach", "vale0:outer", "--take"]));
    let both = ["--json", "gen", "vale0:a", "--to", "vale0:b", "--count", "3000", "--rate", "100kpps"];
    let text = finished(&mut daemon.ringroad(&both));
    let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(report["loads"][0]["arrivals"][0]["distinct"], 3000, "{report}");
    let out = |status: &StatusReport| {
        status.ports.iter().find(|port| port.name == "vale0:outer").unwrap().counters.delivered_frames
    };
    let announced = out(&daemon.status());
    assert!((1..=3).contains(&announced), "{announced} frames: more than those that announce the receiver");

    // No station has announced this address.
    let unknown = ["gen", "vale0:a", "--dst-mac", "02:00:00:00:00:77", "--count", "10"];
    let refused = daemon.ringroad(&unknown).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && text.contains("would flood") && text.contains("vale0:outer"),
        "{text}"
    );
    assert_eq!(out(&daemon.status()), announced);
    finished(&mut daemon.ringroad(&[&unknown[..], &["--flood"]].concat()));
    daemon.await_status("flooded frames", |status| out(status) == announced + 10);
}
