//! An operator's day: from the configuration to the removal, after which the machine is as before.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use ringroad_tests::command::{run, stderr};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::network::{NetworkNamespace, finished, is_root, patience_s, unused_name};
use ringroad_tests::service::Service;
use ringroad_tests::testpmd::{Memory, Testpmd};
use rustix::process::Signal;
use serde_json::Value;

const CONFIG: &str = "[[port]]\nname = \"vale0:monitor\"\n[switch]\nageing_s = 60\n";

/// State of a network namespace that a day could change: links and their programs, addresses, routes, queueing
/// disciplines and filters, settings of the interface.
fn state(machine: &NetworkNamespace) -> Vec<String> {
    let questions: [&[&str]; 7] = [
        &["ip", "-d", "-o", "link"],
        &["ip", "-o", "address"],
        &["ip", "route", "show", "table", "all"],
        &["ip", "-6", "route", "show", "table", "all"],
        &["tc", "qdisc", "show"],
        &["tc", "filter", "show", "dev", "up0"],
        &["ethtool", "-k", "up0"],
    ];
    // iproute2 prints this line if another test's namespace goes while iproute2 searches for names.
    let is_answer = |line: &&str| !line.contains("Peer netns reference is invalid");
    let answer = |text: String| text.lines().filter(is_answer).collect::<Vec<_>>().join("\n");
    questions.iter().map(|question| answer(machine.run(question))).collect()
}

fn files(folder: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name != "log").collect()
}

/// Command lines of processes that name the daemon's folder.
fn processes(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&folder).then_some(line)
    });
    lines.collect()
}

struct Day {
    machine: NetworkNamespace,
    daemon: Daemon,
}

impl Day {
    fn order(&self, arguments: &[&str]) -> String {
        let output = run(self.daemon.ringroad_within(&self.machine, arguments));
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn container(&self, name: &str, address: &str) -> (String, Service) {
        let namespace = unused_name(&format!("rr{name}"));
        let port = format!("vale0:{name}");
        let arguments = ["--json", "container", &namespace, "--port", &port, "--address", address];
        let arguments = [&arguments[..], &["--", "sleep", "1000"]].concat();
        // The container is not started by `ip netns exec`: mounts made there, names of namespaces included, are
        // invisible elsewhere.
        let mut service = Service::start(self.daemon.ringroad(&arguments));
        service.await_line("\"ready\":true");
        (namespace, service)
    }

    /// Checks that the container reaches the station behind the interface, and the machine itself.
    fn check(&self, container: &str) {
        for address in ["10.94.0.2", "10.94.0.1"] {
            let ping = [
                "netns",
                "exec",
                container,
                "ping",
                "-n",
                "-c",
                "3",
                "-i",
                "0.1",
                "-W",
                &patience_s(),
                address,
            ];
            finished(std::process::Command::new("ip").args(ping));
        }
    }

    fn scrape(&self) -> String {
        let arguments = ["--json", "metrics", "--listen", "127.0.0.1:0"];
        let mut metrics = Service::start(self.daemon.ringroad_within(&self.machine, &arguments));
        let ready: Value = serde_json::from_str(&metrics.await_line("\"ready\":true")).unwrap();
        let address = ready["address"].as_str().unwrap().to_owned();
        let printed = self.machine.inside(|| {
            let mut connection = TcpStream::connect(address).unwrap();
            connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            let mut printed = String::new();
            connection.read_to_string(&mut printed).unwrap();
            printed
        });
        metrics.signal(Signal::TERM);
        metrics.await_end();
        printed
    }
}

fn end(service: &mut Service) {
    service.signal(Signal::TERM);
    service.await_end();
}

#[test]
fn after_an_operators_day_the_machine_is_as_before() {
    if !is_root() || !Testpmd::is_installed() {
        return;
    }
    let machine = NetworkNamespace::new();
    let outside = NetworkNamespace::new();
    machine.run(&[
        "ip",
        "link",
        "add",
        "up0",
        "type",
        "veth",
        "peer",
        "name",
        "up1",
        "netns",
        outside.name(),
    ]);
    machine.run(&["ip", "address", "add", "10.94.0.1/24", "dev", "up0"]);
    machine.run(&["ip", "link", "set", "up0", "up"]);
    outside.run(&["ip", "address", "add", "10.94.0.2/24", "dev", "up1"]);
    outside.run(&["ip", "link", "set", "up1", "up"]);
    machine.ping("10.94.0.2");
    let before = state(&machine);

    let daemon = Daemon::launched_by(&["ip", "netns", "exec", machine.name()], CONFIG);
    let mut day = Day { machine, daemon };

    // The machine's interface is attached together with the host behind it, which must stay.
    day.order(&["attach", "vale0:up0", "--driver", "packet:up0", "--host", "--save"]);
    day.machine.ping("10.94.0.2");
    let mut one = day.container("one", "10.94.0.11/24");
    let mut two = day.container("two", "10.94.0.12/24");
    day.check(&one.0);
    let socket = day.daemon.folder().join("guest");
    day.order(&["attach", "vale0:guest", "--driver", &format!("vhost-user:{}", socket.display())]);
    let device = format!("net_virtio_user0,path={},queues=1", socket.display());
    let guest = Testpmd::start(Memory::Ordinary, &[device], &["--forward-mode=rxonly"]);
    day.daemon.await_status("a guest", |status| {
        status.ports.iter().any(|port| port.peer.as_ref().is_some_and(|peer| peer.active_queues > 0))
    });

    // Metrics are read and an upgrade happens under load.
    let sink = "vale0:sink@slots=4096";
    let arguments = ["gen", "vale0:source", "--to", sink, "--rate", "2kpps", "--drain", "2", "--json"];
    let mut load = Service::start(day.daemon.ringroad_within(&day.machine, &arguments));
    load.await_line("\"ready\":true");
    let printed = day.scrape();
    assert!(
        printed.contains("ringroad_port_received_frames_total") && printed.contains("vale0:up0"),
        "{printed}"
    );
    for _ in 0..2 {
        let report = day.daemon.upgrade();
        assert_eq!(report["lost"], Value::from([0; 0]));
    }
    load.signal(Signal::INT);
    let (status, printed) = load.await_end();
    assert!(status.success() && printed.contains("\"lost\":0"), "{printed}");
    day.check(&one.0);
    day.check(&two.0);
    await_conserved(&day.daemon);

    // The machine is shut down and comes back.
    end(&mut one.1);
    end(&mut two.1);
    drop(guest);
    day.order(&["down"]);
    day.machine.ping("10.94.0.2");
    day.daemon.restart();
    day.daemon.await_status("the ports that must stay", |status| {
        ["vale0:monitor", "vale0:up0", "vale0:up0^"]
            .iter()
            .all(|name| status.ports.iter().any(|port| port.name == *name))
    });
    let mut one = day.container("one", "10.94.0.11/24");
    day.check(&one.0);

    // The daemon is killed, and the next daemon restores everything.
    day.daemon.crash_and_restart();
    day.daemon.await_status("the ports of before", |status| {
        ["vale0:up0", "vale0:up0^", "vale0:one"]
            .iter()
            .all(|name| status.ports.iter().any(|port| port.name == *name && port.error.is_none()))
    });
    day.check(&one.0);
    await_conserved(&day.daemon);

    // Everything is removed.
    end(&mut one.1);
    day.order(&["detach", "vale0:up0", "--save"]);
    day.order(&["down"]);
    assert!(day.daemon.await_end());
    assert_eq!(state(&day.machine), before);
    // The lock file stays: a lock file that is removed cannot keep two daemons apart.
    let left = files(day.daemon.folder());
    assert_eq!(left, ["config.toml", "r.sock.ringroadd.lock"].map(str::to_owned).into());
    assert_eq!(std::fs::read_to_string(day.daemon.folder().join("config.toml")).unwrap(), CONFIG);
    assert_eq!(processes(day.daemon.folder()), [""; 0]);
    day.machine.ping("10.94.0.2");
}
