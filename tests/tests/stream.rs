//! Ports whose frames go through a stream socket, with real peers: QEMU, passt, a script, and another such port.
//! `guests.rs` has a guest behind such a port.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use ringroad::Port;
use ringroad::control::report::StatusReport;
use ringroad_test_needs::has_program;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::network::{NetworkNamespace, address, finished, is_root};
use ringroad_tests::passage::both_ways;
use ringroad_tests::service::Service;
use ringroad_tests::transfer::{real_file, there_and_back};

const LENGTHS: [usize; 7] = [60, 61, 64, 128, 777, 1500, 1514];

fn attach(daemon: &Daemon, port: &str, driver: &str) {
    finished(&mut daemon.ringroad(&["attach", port, "--driver", driver]));
}

/// Whether these ports have peers.
fn have_peers(status: &StatusReport, ports: &[&str]) -> bool {
    let is_connected = |name: &&str| {
        let port = status.ports.iter().find(|port| port.name == **name);
        port.is_some_and(|port| port.peer.as_ref().is_some_and(|peer| peer.connected))
    };
    ports.iter().all(is_connected)
}

#[test]
fn frames_pass_from_switch_to_switch_through_qemu_and_through_the_next_qemu() {
    let daemon = Daemon::start();
    let [ours, qemus] = ["ours", "qemus"].map(|name| daemon.folder().join(name).display().to_string());
    attach(&daemon, "vale0:q", &format!("stream:{ours}@role=server"));
    attach(&daemon, "vale1:q", &format!("stream:{qemus}"));
    let qemu = || {
        // QEMU has no machine: it is only the hub between its two network back ends.
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-machine", "none", "-nodefaults", "-display", "none", "-monitor", "none"]);
        for (number, (server, path)) in [("off", &ours), ("on", &qemus)].into_iter().enumerate() {
            qemu.arg("-netdev")
                .arg(format!("stream,id=s{number},server={server},addr.type=unix,addr.path={path}"));
            qemu.arg("-netdev").arg(format!("hubport,id=h{number},hubid=0,netdev=s{number}"));
        }
        Service::start(qemu)
    };
    let (mut one, mut two) = (daemon.open("vale0:p"), daemon.open("vale1:p"));
    for seed in [1, 3] {
        let mut qemu = qemu();
        daemon.await_status("QEMU at both ports", |status| have_peers(status, &["vale0:q", "vale1:q"]));
        both_ways(one.queue(), two.queue(), &LENGTHS, seed, 2000);
        // QEMU would not connect again.
        let report = daemon.upgrade();
        assert_eq!(report["reopened"], serde_json::json!([]), "{report}");
        both_ways(one.queue(), two.queue(), &LENGTHS, seed, 2000);
        // A new port connects to the same QEMU.
        finished(&mut daemon.ringroad(&["detach", "vale1:q"]));
        attach(&daemon, "vale1:q", &format!("stream:{qemus}"));
        daemon.await_status("QEMU at the new port", |status| have_peers(status, &["vale1:q"]));
        both_ways(one.queue(), two.queue(), &LENGTHS, seed, 2000);
        qemu.kill();
        daemon.await_status("ports without peers", |status| {
            !have_peers(status, &["vale0:q"]) && !have_peers(status, &["vale1:q"])
        });
    }
    drop((one, two));
    await_conserved(&daemon);
}

#[test]
fn stations_reach_the_hosts_network_through_passt() {
    if !is_root() || !has_program("passt") {
        return;
    }
    let (outside, station) = (NetworkNamespace::new(), NetworkNamespace::new());
    outside.run(&["ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1"]);
    outside.run(&["ip", "link", "set", "up1", "up"]);
    outside.number("up0", 1);
    outside.run(&["ip", "route", "add", "default", "via", "10.78.0.254"]);
    let daemon = Daemon::start();
    // passt runs as another user.
    daemon.open_folder();
    let folder = daemon.folder().join("passt");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let socket = folder.join("s").display().to_string();
    attach(&daemon, "vale0:out", &format!("stream:{socket}"));
    finished(&mut daemon.ringroad(&["attach", "vale0:t", "--driver", "tap:t0", "--netns", station.name()]));
    let options = [
        "--foreground",
        "--stderr",
        "--one-off",
        "--ipv4-only",
        "--interface",
        "up0",
        "--address",
        "10.78.0.9",
    ];
    let passt = [&["passt", "--socket", &socket], &options[..]].concat();
    let mut passt = Service::start(outside.command(&passt));
    daemon.await_status("passt at the port", |status| have_peers(status, &["vale0:out"]));

    station.run(&["ip", "link", "set", "t0", "up"]);
    let bound = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/dhcp-bound");
    station.run(&["busybox", "udhcpc", "-i", "t0", "-n", "-q", "-f", "-t", "20", "-T", "1", "-s", bound]);
    let got = station.run(&["ip", "-4", "-o", "addr", "show", "dev", "t0"]);
    assert!(got.contains(" 10.78.0.9/"), "{got}");
    let file = real_file();
    let file = &file[..file.len().min(2 << 20)];
    there_and_back(&outside, address(1).into(), &station, file);
    std::thread::scope(|scope| {
        let transfer = scope.spawn(|| there_and_back(&outside, address(1).into(), &station, file));
        for _ in 0..3 {
            assert_eq!(daemon.upgrade()["reopened"], serde_json::json!([]));
        }
        transfer.join().unwrap();
    });
    await_conserved(&daemon);
    // passt has one connection in its life: it was the same all the time.
    assert!(passt.is_running());
    finished(&mut daemon.ringroad(&["detach", "vale0:out"]));
    passt.await_end();
}

#[test]
fn a_script_of_a_few_lines_is_a_station_on_the_switch() {
    let daemon = Daemon::start();
    let socket = daemon.folder().join("s");
    attach(&daemon, "vale0:script", &format!("stream:{}@role=server", socket.display()));
    attach(&daemon, "vale1:script", &format!("stream:{}@role=server", socket.with_extension("2").display()));
    let script = "import socket, struct, sys, threading\n\
                  def pass_on(a, b):\n\
                  \x20   while True:\n\
                  \x20       length, = struct.unpack('!I', a.recv(4, socket.MSG_WAITALL))\n\
                  \x20       b.sendall(struct.pack('!I', length) + a.recv(length, socket.MSG_WAITALL))\n\
                  ports = [socket.socket(socket.AF_UNIX) for path in sys.argv[1:]]\n\
                  for port, path in zip(ports, sys.argv[1:]): port.connect(path)\n\
                  for pair in (ports, ports[::-1]): threading.Thread(target=pass_on, args=pair).start()\n";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(&socket).arg(socket.with_extension("2"));
    let mut python = Service::start(python);
    daemon
        .await_status("script at both ports", |status| have_peers(status, &["vale0:script", "vale1:script"]));
    let (mut one, mut two) = (daemon.open("vale0:p"), daemon.open("vale1:p"));
    both_ways(one.queue(), two.queue(), &LENGTHS, 1, 500);
    python.kill();
    drop((one, two));
    await_conserved(&daemon);
}

#[test]
fn two_programs_exchange_frames_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let open =
        |path: &Path, options: &str| Port::open(&format!("stream:{}{options}", path.display())).unwrap();
    let path = folder.path().join("s");
    // The client waits for its server.
    let mut client = open(&path, "");
    for seed in [1, 3] {
        let mut server = open(&path, "@role=server");
        both_ways(client.queue(), server.queue(), &LENGTHS, seed, 2000);
    }
}
