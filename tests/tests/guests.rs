//! Guests on a switch: virtual machines under QEMU, network namespaces and DPDK's testpmd. One command starts each of
//! them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ringroad::control::report::StatusReport;
use ringroad::{Interest, Port};
use ringroad_netdev::{Namespace, in_namespace};
use ringroad_tests::command::stderr;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::frames::{number_of, numbered, receive_from, send, station};
use ringroad_tests::network::{
    NetworkNamespace, finished, is_root, killed_at_link_change, patience_s, unused_name,
};
use ringroad_tests::service::Service;
use ringroad_tests::transfer::real_file;
use rustix::process::Signal;
use serde_json::Value;

/// A command whose guests are recorded beside the daemon's files, and boot the kernel that `make e2e` fetched.
fn command(daemon: &Daemon, arguments: &[&str]) -> Command {
    let kernel =
        std::env::var("RINGROAD_KERNEL_DIR").expect("make e2e names a kernel in RINGROAD_KERNEL_DIR");
    let mut command = daemon.ringroad(arguments);
    command.env("RINGROAD_RUNTIME_DIR", daemon.folder()).env("RINGROAD_KERNEL_DIR", kernel);
    command
}

fn run(daemon: &Daemon, arguments: &[&str]) -> String {
    finished(&mut command(daemon, arguments))
}

/// Starts guests side by side and waits until all are up.
fn start_guests(daemon: &Daemon, guests: &[&[&str]]) {
    let start = |guest: &&[&str]| {
        let mut command = command(daemon, &["vm", "--detach", "--accel", "tcg"]);
        command.args(*guest).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let starting: Vec<Child> = guests.iter().map(start).collect();
    let ended: Vec<Output> = starting.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    for output in &ended {
        assert!(output.status.success(), "{}", stderr(output));
    }
}

/// Ends detached guests when the value is dropped, even if a test fails.
struct Guests<'a>(&'a Daemon, &'a [&'a str]);

impl Drop for Guests<'_> {
    fn drop(&mut self) {
        for guest in self.1 {
            let _ = command(self.0, &["vm", "stop", guest]).output();
        }
    }
}

fn running(daemon: &Daemon) -> Vec<Value> {
    serde_json::from_str::<Value>(&run(daemon, &["--json", "vm", "list"]))
        .unwrap()
        .as_array()
        .unwrap()
        .clone()
}

fn await_process_end(pid: u64) {
    let end = Instant::now() + PATIENCE.unwrap();
    let running = || {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        state.is_ok_and(|state| !state.contains(") Z "))
    };
    while running() {
        assert!(Instant::now() < end, "process {pid} is still running");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends frames from one port to the other until one arrives, and then `count` frames that must all arrive in order.
fn assert_joined(daemon: &Daemon, sender: &mut Port, receiver: &mut Port, count: u64) {
    let (from, to) = (station(1), station(2));
    let end = Instant::now() + PATIENCE.unwrap();
    let mut frame = Vec::new();
    // A forwarder does not report when it is ready.
    loop {
        send(sender, &numbered(to, from, u64::MAX, 60));
        sender.tx().sync().unwrap();
        let came = receiver.wait(Interest::Rx, Some(Duration::from_millis(20))).unwrap();
        frame.clear();
        if came && receiver.rx().receive(&mut frame).is_some() && number_of(&frame, from).is_some() {
            break;
        }
        assert!(Instant::now() < end, "no frame came: {:#?}", daemon.status().ports);
    }
    for number in 0..count {
        send(sender, &numbered(to, from, number, 60 + (number as usize * 37) % 1400));
        sender.tx().sync().unwrap();
        let mut received = receive_from(receiver, from);
        while number_of(&received, from) == Some(u64::MAX) {
            received = receive_from(receiver, from);
        }
        // Frames that a guest forwards have at least Ethernet's minimum length.
        assert_eq!(number_of(&received, from), Some(number));
    }
}

#[test]
fn two_virtual_machines_exchange_a_file_unchanged() {
    let daemon = Daemon::start();
    start_guests(
        &daemon,
        &[
            &["a", "--port", "vale0:a", "--address", "10.0.0.1/24", "--queues", "2", "--cpus", "2"],
            &[
                "b",
                "--port",
                "vale0:b",
                "--address",
                "10.0.0.2/24",
                "--address",
                "10.1.0.2/24",
                "--port",
                "vale1:b",
            ],
        ],
    );
    let _guests = Guests(&daemon, &["a", "b"]);
    let guests = running(&daemon);
    assert_eq!(guests.len(), 2, "{guests:?}");
    assert_eq!(guests[1]["ports"], serde_json::json!(["vale0:b", "vale1:b"]));
    assert_eq!(daemon.port("vale0:a").unwrap().peer.unwrap().active_queues, 2);

    let printed =
        run(&daemon, &["vm", "exec", "a", "--", "ping", "-c", "1", "-W", &patience_s(), "10.0.0.2"]);
    assert!(printed.contains("1 packets received"), "{printed}");
    // Guest `b` makes a file, which guest `a` fetches over TCP.
    let served = run(
        &daemon,
        &["vm", "exec", "b", "head -c 4000000 /dev/urandom >/tmp/file; sha256sum </tmp/file; httpd -h /tmp"],
    );
    let fetched = run(&daemon, &["vm", "exec", "a", "wget -q -O - http://10.0.0.2/file | sha256sum"]);
    assert_eq!(fetched, served);
    assert_eq!(served.trim().len(), 67, "{served}");
    // Upgrades replace the daemon during another fetch: neither guest has to reconnect.
    let fetch = ["vm", "exec", "a", "for i in 1 2 3; do wget -q -O - http://10.0.0.2/file; done | wc -c"];
    let mut fetching = Service::start(command(&daemon, &fetch));
    for _ in 0..3 {
        assert_eq!(daemon.upgrade()["reopened"], serde_json::json!([]));
    }
    assert_eq!(fetching.await_end().1.trim(), "12000000");
    assert!(daemon.status().ports.iter().all(|port| port.peer.as_ref().unwrap().connections == 1));
    await_conserved(&daemon);

    let failed =
        command(&daemon, &["vm", "exec", "a", "--", "sh", "-c", "echo one two; exit 7"]).output().unwrap();
    assert!(failed.stderr.is_empty(), "{}", stderr(&failed));
    assert_eq!((failed.status.code(), failed.stdout.as_slice()), (Some(7), &b"one two\n"[..]));
    let json = run(&daemon, &["--json", "vm", "exec", "b", "cat /sys/class/net/eth1/operstate"]);
    assert_eq!(
        serde_json::from_str::<Value>(&json).unwrap(),
        serde_json::json!({"status": 0, "output": "up\n"})
    );

    let taken = command(&daemon, &["vm", "a", "--port", "vale0:x"]).output().unwrap();
    assert!(stderr(&taken).contains("a guest a runs already"), "{}", stderr(&taken));
    run(&daemon, &["vm", "stop", "a"]);
    run(&daemon, &["vm", "stop", "b"]);
    guests.iter().for_each(|guest| await_process_end(guest["pid"].as_u64().unwrap()));
    assert!(daemon.status().ports.is_empty());
    assert!(running(&daemon).is_empty());
}

#[test]
fn a_virtual_machine_as_a_bridge_joins_two_switches() {
    let daemon = Daemon::start();
    start_guests(&daemon, &[&["dut", "--port", "vale0:dut", "--port", "vale1:dut", "--bridge"]]);
    let _guests = Guests(&daemon, &["dut"]);
    let (mut one, mut other) = (daemon.open("vale0:end"), daemon.open("vale1:end"));
    assert_joined(&daemon, &mut one, &mut other, 100);
    drop((one, other));
    await_conserved(&daemon);
}

#[test]
fn a_guest_at_a_stream_socket_exchanges_files_with_the_hosts_stack() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let station = NetworkNamespace::new();
    let path = |name: &str| daemon.folder().join(name).display().to_string();
    let driver = format!("stream:{}@role=server", path("s"));
    run(&daemon, &["attach", "vale0:guest", "--driver", &driver]);
    run(&daemon, &["attach", "vale0:station", "--driver", "tap:t0", "--netns", station.name()]);
    station.number("t0", 1);
    // QEMU gets a second card, which is behind a stream socket.
    let programs = daemon.folder().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let qemu = format!(
        "#!/bin/sh\nPATH=${{PATH#*:}} exec qemu-system-x86_64 \"$@\" -device virtio-net-pci,netdev=s,mac=02:00:00:00:78:02 \
         -netdev stream,id=s,server=off,addr.type=unix,addr.path={}\n",
        path("s")
    );
    let program = programs.join("qemu-system-x86_64");
    std::fs::write(&program, qemu).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut vm = command(&daemon, &["vm", "g", "--port", "vale1:g", "--detach", "--accel", "tcg"]);
    let rest = std::env::var("PATH").unwrap();
    finished(vm.env("PATH", format!("{}:{rest}", programs.display())));
    let _guests = Guests(&daemon, &["g"]);
    let inside = |script: &str| run(&daemon, &["vm", "exec", "g", script]);
    inside(
        "card=$(grep -l 02:00:00:00:78:02 /sys/class/net/*/address | cut -d/ -f5); \
         ip addr add 10.78.0.2/24 dev $card; ip link set $card up",
    );
    // The station's stack leaves checksums and segmentation to its card, which QEMU's stream sockets do not do.
    let made = inside("head -c 2000000 /dev/urandom >/tmp/file; sha256sum </tmp/file; httpd -h /tmp");
    let fetch = "busybox wget -q -O - http://10.78.0.2/file | sha256sum";
    assert_eq!(station.run(&["sh", "-c", fetch]), made);
    let www = path("www");
    std::fs::create_dir(&www).unwrap();
    std::fs::write(format!("{www}/file"), &real_file()[..2 << 20]).unwrap();
    let served = station.run(&["sh", "-c", &format!("sha256sum <{www}/file")]);
    let _server = Service::start(station.command(&["busybox", "httpd", "-f", "-h", &www]));
    // The server does not report when it listens.
    let fetch = "until wget -q -O /tmp/up http://10.78.0.1/file; do sleep 0.1; done; sha256sum </tmp/up";
    assert_eq!(inside(fetch), served);
    let mut fetching = Service::start(command(&daemon, &["vm", "exec", "g", fetch]));
    for _ in 0..3 {
        assert_eq!(daemon.upgrade()["reopened"], serde_json::json!([]));
    }
    assert_eq!(fetching.await_end().1.trim(), served.trim());
    assert_eq!(daemon.port("vale0:guest").unwrap().peer.unwrap().connections, 1);
    await_conserved(&daemon);
}

#[test]
fn a_guest_and_its_port_end_with_the_command() {
    let daemon = Daemon::start();
    let script = daemon.folder().join("script");
    std::fs::write(&script, "ip link show eth0 >/dev/null && echo from the guest; exit 3\n").unwrap();
    let script = script.display().to_string();
    let ended = command(&daemon, &["vm", "s", "--port", "vale0:s", "--run", &script]).output().unwrap();
    assert_eq!(ended.status.code(), Some(3), "{}", stderr(&ended));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "from the guest\n");
    assert!(daemon.status().ports.is_empty());

    let mut foreground = Service::start(command(&daemon, &["--json", "vm", "k", "--port", "vale0:k"]));
    let up: Value = serde_json::from_str(&foreground.await_line("\"ready\":true")).unwrap();
    foreground.signal(Signal::KILL);
    // QEMU ends because the command that started it has ended.
    await_process_end(up["pid"].as_u64().unwrap());
    daemon.await_status("end of the port", |status| status.ports.is_empty());
    assert!(running(&daemon).is_empty());
}

#[test]
fn a_guest_ends_when_its_terminal_leaves_the_console() {
    let daemon = Daemon::start();
    let mut vm = command(&daemon, &["vm", "t", "--port", "vale0:t"]);
    let mut vm = vm.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut keys = vm.stdin.take().unwrap();
    keys.write_all(b"echo $((6 * 7)) from the console\n").unwrap();
    let mut screen = BufReader::new(vm.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(screen.any(|line| line.contains("42 from the console")), "the console ended before");
    keys.write_all(b"\x1dnot for the guest").unwrap();
    let ended = vm.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert!(daemon.status().ports.is_empty());
    assert!(running(&daemon).is_empty());
}

#[test]
fn a_guest_that_does_not_start_is_reported_and_leaves_nothing() {
    let daemon = Daemon::start();
    let slow =
        command(&daemon, &["vm", "g", "--port", "vale0:g", "--boot-timeout", "0.01"]).output().unwrap();
    assert_eq!(slow.status.code(), Some(1));
    assert!(stderr(&slow).contains("the guest was not up within"), "{}", stderr(&slow));
    let mut nowhere = command(&daemon, &["vm", "g", "--port", "vale0:g", "--kernel", "/nonexistent"]);
    assert!(stderr(&nowhere.output().unwrap()).contains("has no boot/vmlinuz-VERSION"));
    let mut bare = command(&daemon, &["vm", "g", "--port", "vale0:g"]);
    let printed = stderr(&bare.env("PATH", "/nonexistent").output().unwrap());
    assert!(printed.contains("apt-get install qemu-system-x86"), "{printed}");
    assert!(daemon.status().ports.is_empty());
    assert!(running(&daemon).is_empty());
}

#[test]
fn containers_by_tap_and_by_veth_reach_each_other() {
    if !is_root() {
        return;
    }
    let outside = NetworkNamespace::new();
    let daemon = Daemon::within(&outside);
    let (tap, veth, docker) = (unused_name("rrt"), unused_name("rrv"), NetworkNamespace::new());
    let start = |name: &str, port: &str, more: &[&str]| {
        let mut arguments = vec!["--json", "container", name, "--port", port];
        arguments.extend(more);
        let mut service = Service::start(command(&daemon, &arguments));
        service.await_line("\"ready\":true");
        service
    };
    let sleep = ["--", "sleep", "1000"];
    let mut first = start(
        &tap,
        "vale0:t",
        &[&["--address", "10.79.0.1/24", "--mac", "02:00:00:00:79:01", "--via", "tap"], &sleep[..]].concat(),
    );
    let mut second = start(&veth, "vale0:v", &[&["--address", "10.79.0.2/24"], &sleep[..]].concat());
    assert_eq!(running(&daemon).len(), 2);
    let printed = run(
        &daemon,
        &[
            "container",
            "p",
            "--netns",
            docker.name(),
            "--port",
            "vale0:p",
            "--address",
            "10.79.0.3/24",
            "--",
            "sh",
            "-c",
            &format!("ping -c 1 -W {0} 10.79.0.1 && ping -c 1 -W {0} 10.79.0.2", patience_s()),
        ],
    );
    assert_eq!(
        printed.matches(" 1 received").count() + printed.matches("1 packets received").count(),
        2,
        "{printed}"
    );
    finished(Command::new("ip").args([
        "netns",
        "exec",
        &veth,
        "ping",
        "-c",
        "1",
        "-W",
        &patience_s(),
        "10.79.0.1",
    ]));
    let links = docker.inside(|| ringroad_netdev::link::links().unwrap());
    assert_eq!(links.len(), 1, "the namespace stays and its interface does not: {links:?}");
    let failed = command(
        &daemon,
        &["container", &unused_name("rrf"), "--port", "vale0:f", "--", "sh", "-c", "exit 5"],
    );
    assert_eq!({ failed }.output().unwrap().status.code(), Some(5));
    let again = command(&daemon, &["container", &tap, "--port", "vale0:x"]).output().unwrap();
    assert!(stderr(&again).contains("runs already"), "{}", stderr(&again));

    for service in [&mut first, &mut second] {
        service.signal(Signal::TERM);
        assert_eq!(service.await_end().0.code(), Some(128 + 15));
    }
    for name in [&tap, &veth] {
        assert!(!Path::new("/run/netns").join(name).exists(), "{name} is left");
    }
    assert!(daemon.status().ports.is_empty());
    assert_eq!(outside.inside(|| ringroad_netdev::link::links().unwrap()).len(), 1);
}

#[test]
fn tcp_between_containers_passes_within_the_kernel_and_is_counted() {
    if !is_root() {
        return;
    }
    let outside = NetworkNamespace::new();
    let daemon = Daemon::within(&outside);
    let names = ["rrc", "rrs"].map(unused_name);
    let mut containers = [0, 1].map(|index: usize| {
        let (port, address) = (format!("vale0:{index}"), format!("10.79.0.{}/24", index + 1));
        let container = ["--json", "container", &names[index], "--port", &port, "--address", &address];
        let mut service =
            Service::start(command(&daemon, &[&container[..], &["--", "sleep", "1000"]].concat()));
        service.await_line("\"ready\":true");
        service
    });
    let [client, server] = names.each_ref().map(|name| Namespace::Named(name.clone()));
    let listener = in_namespace(&server, || TcpListener::bind("10.79.0.2:7").unwrap()).unwrap();
    let mut sender = in_namespace(&client, || TcpStream::connect("10.79.0.2:7").unwrap()).unwrap();
    let mut receiver = listener.accept().unwrap().0;
    const PIECE: u64 = 1 << 20;
    // The workers count each frame that passes them, and not the frames that the kernel passes on.
    let mut send_and_receive = || {
        std::thread::scope(|scope| {
            scope.spawn(|| sender.write_all(&vec![7; PIECE as usize]).unwrap());
            receiver.read_exact(&mut vec![0; PIECE as usize]).unwrap();
        });
    };
    let busy = |status: &StatusReport| status.workers.iter().map(|worker| worker.frames).sum::<u64>();
    let mut pieces = 0;
    daemon.await_status("a piece that passes within the kernel", |before| {
        send_and_receive();
        pieces += 1;
        busy(&daemon.status()) == busy(before)
    });
    // The counters include the frames that the kernel passed on.
    let status = await_conserved(&daemon);
    let port = |name: &str| status.ports.iter().find(|port| port.name == name).unwrap();
    assert!(port("vale0:0").counters.received_bytes > pieces * PIECE);
    assert!(port("vale0:1").counters.delivered_bytes > pieces * PIECE);

    // A port that leaves takes its addresses with it, and a new port can take over its name.
    drop((sender, receiver, listener));
    containers[1].signal(Signal::TERM);
    containers[1].await_end();
    let status = await_conserved(&daemon);
    assert!(status.switches[0].totals.delivered_bytes > pieces * PIECE);
    containers[0].signal(Signal::TERM);
    containers[0].await_end();
    assert_eq!(outside.inside(|| ringroad_netdev::link::links().unwrap()).len(), 1);
}

#[test]
fn guests_containers_and_links_find_each_other_after_the_daemon_was_killed() {
    if !is_root() {
        return;
    }
    let (outside, docker, linked) =
        (NetworkNamespace::new(), NetworkNamespace::new(), NetworkNamespace::new());
    let mut daemon = Daemon::within(&outside);
    start_guests(&daemon, &[&["a", "--port", "vale0:a", "--address", "10.77.0.1/24"]]);
    let names = ["rrt", "rrv", "rrd"].map(unused_name);
    let start = |name: &str, host: u8, more: &[&str]| {
        let (port, address) = (format!("vale0:{host}"), format!("10.77.0.{host}/24"));
        let mut arguments = vec!["--json", "container", name, "--port", &port, "--address", &address];
        arguments.extend(more);
        arguments.extend(["--", "sleep", "1000"]);
        let mut service = Service::start(command(&daemon, &arguments));
        service.await_line("\"ready\":true");
        service
    };
    let [tap, veth, existing] = &names;
    let mut containers = [
        start(tap, 2, &["--via", "tap"]),
        start(veth, 3, &[]),
        start(existing, 4, &["--netns", docker.name()]),
    ];
    run(&daemon, &["link", linked.name(), "--address", "10.77.0.5/24"]);
    let hear = |host: u8| {
        let mut ping = linked.command(&["ping", "-n", "-c", "1", "-W", "1", &format!("10.77.0.{host}")]);
        ping.output().unwrap().status.success()
    };
    let await_all = |daemon: &Daemon| {
        daemon.await_status("word from every guest", |_| (1..=4).all(hear));
    };
    await_all(&daemon);
    let names_of =
        |daemon: &Daemon| daemon.status().ports.into_iter().map(|port| port.name).collect::<Vec<_>>();
    let before = names_of(&daemon);
    daemon.crash_and_restart();
    await_all(&daemon);
    assert_eq!(names_of(&daemon), before);

    for container in &mut containers {
        container.signal(Signal::TERM);
        assert_eq!(container.await_end().0.code(), Some(128 + 15));
    }
    run(&daemon, &["unlink", linked.name()]);
    run(&daemon, &["vm", "stop", "a"]);
    assert!(daemon.status().ports.is_empty(), "all are gone from the daemon that attached them again");
    for namespace in [&outside, &docker, &linked] {
        assert_eq!(namespace.inside(|| ringroad_netdev::link::links().unwrap()).len(), 1);
    }
}

#[test]
fn all_of_a_container_ends_when_its_command_is_killed() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let name = unused_name("rrk");
    let mut service = Service::start(command(
        &daemon,
        &[
            "--json",
            "container",
            &name,
            "--port",
            "vale0:k",
            "--",
            "sh",
            "-c",
            "echo $$; exec sleep infinity",
        ],
    ));
    service.await_line("\"ready\":true");
    let inside = service.await_line("").trim().parse().unwrap();
    service.signal(Signal::KILL);
    // The command inside ends because the process that started it has ended.
    await_process_end(inside);
    drop(service);
    daemon.await_status("end of the port", |status| status.ports.is_empty());
    await_absence(&Path::new("/run/netns").join(&name));
    // The keeper of the namespace has removed the record too.
    await_absence(&daemon.folder().join("guests").join(&name));
}

fn await_absence(path: &Path) {
    let end = Instant::now() + PATIENCE.unwrap();
    while path.exists() {
        assert!(Instant::now() < end, "{} is left", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_container_that_is_killed_at_any_step_leaves_nothing() {
    if !is_root() {
        return;
    }
    let outside = NetworkNamespace::new();
    let daemon = Daemon::within(&outside);
    let lent = NetworkNamespace::new();
    for via in ["veth", "tap"] {
        for netns in [None, Some(lent.name())] {
            let name = unused_name("rrk");
            let mut arguments = vec!["container", &name, "--port", "vale0:k", "--via", via];
            arguments.extend(netns.into_iter().flat_map(|netns| ["--netns", netns]));
            arguments.extend(["--", "true"]);
            let mut kills = 0;
            while killed_at_link_change(&mut command(&daemon, &arguments), &[&outside, &lent], kills + 1) {
                kills += 1;
                daemon.await_status("end of the port", |status| status.ports.is_empty());
                await_absence(&Path::new("/run/netns").join(&name));
                outside.await_links("removal of the outer end", |links| links.len() == 1);
                lent.await_links("removal of the inner end", |links| links.len() == 1);
            }
            // A TAP in a namespace of its own changes no other namespace.
            assert!(kills > 1 || (via, netns) == ("tap", None), "{via} {netns:?}: {kills}");
        }
    }
}

/// Carries frames from one switch to the other through testpmd.
fn through_testpmd(via: &str) {
    let daemon = Daemon::start();
    let ports = ["--port", "vale0:dut", "--port", "vale1:dut"];
    let mut arguments = vec!["testpmd", "--via", via, "--no-huge", "--cores", "0,1"];
    arguments.extend(ports);
    let mut testpmd = Service::start(command(&daemon, &arguments));
    testpmd.await_line("Press enter to exit");
    let (mut one, mut other) = (daemon.open("vale0:end"), daemon.open("vale1:end"));
    assert_joined(&daemon, &mut one, &mut other, 200);
    drop((one, other));
    testpmd.signal(Signal::TERM);
    let (status, printed) = testpmd.await_end();
    assert!(status.success(), "{printed}");
    assert!(daemon.status().ports.is_empty());
    assert!(running(&daemon).is_empty());
}

#[test]
fn testpmd_forwards_between_two_switches_over_vhost_user() {
    through_testpmd("vhost-user");
}

#[test]
fn testpmd_forwards_between_two_switches_over_memif() {
    through_testpmd("memif");
}
