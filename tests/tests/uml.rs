//! User-mode Linux on a switch: Linux's own driver at a vhost-user port that is the whole card, without a program that
//! emulates one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::Command;

use ringroad::control::report::PeerReport;
use ringroad_guest::program::libraries;
use ringroad_tests::command::stderr;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{numbered, send, station};
use ringroad_tests::network::{NetworkNamespace, finished, is_root, patience_s};
use ringroad_tests::service::Service;
use serde_json::Value;

/// Address of the card that `ringroad vm` is told, and the one that the guest takes instead.
const GIVEN: &str = "02:00:00:00:77:01";
const TAKEN: &str = "02:00:00:00:77:02";

/// A switch with a namespace of the machine at one port.
struct Site {
    daemon: Daemon,
    namespace: NetworkNamespace,
    _outside: NetworkNamespace,
}

impl Site {
    fn new() -> Self {
        let (namespace, outside) = (NetworkNamespace::new(), NetworkNamespace::new());
        let site = Self { daemon: Daemon::within(&outside), namespace, _outside: outside };
        site.run(&["link", site.namespace.name(), "--address", "10.77.0.5/24"]);
        site
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.daemon.ringroad(arguments);
        command.env("RINGROAD_RUNTIME_DIR", self.daemon.folder());
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        finished(&mut self.command(arguments))
    }

    /// Starts the guest, and returns the report of its start.
    fn start(&self) -> Value {
        let mut vm = vec!["--json", "vm", "u", "--kind", "uml", "--port", "vale0:u", "--queues", "2"];
        vm.extend(["--mac", GIVEN, "--address", "10.77.0.1/24", "--detach"]);
        vm.extend(["--boot-timeout", "600"]);
        let told = self.run(&vm);
        serde_json::from_str(told.lines().next().unwrap()).unwrap()
    }

    /// Runs a script in the guest.
    fn exec(&self, script: &str) -> String {
        self.run(&["vm", "exec", "u", &format!("set -e\n{script}")])
    }

    fn peer(&self) -> PeerReport {
        self.daemon.port("vale0:u").unwrap().peer.unwrap()
    }

    fn await_peer(&self, what: &str, is_so: impl Fn(&PeerReport) -> bool) {
        self.daemon.await_status(what, |status| {
            let port = status.ports.iter().find(|port| port.name == "vale0:u");
            port.is_some_and(|port| port.peer.as_ref().is_some_and(&is_so))
        });
    }

    /// Addresses that the switch has learned at the guest's port.
    fn learned(&self) -> String {
        self.run(&["--json", "macs", "vale0"])
    }

    /// Asserts that guest and namespace reach each other, with the addresses that they have now.
    fn hears(&self) {
        self.namespace.run(&["ip", "neigh", "flush", "all"]);
        self.namespace.run(&["ping", "-n", "-c", "1", "-W", &patience_s(), "10.77.0.1"]);
        self.exec(&format!("ping -c 1 -W {} 10.77.0.5 >/dev/null", patience_s()));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.command(&["vm", "stop", "u"]).output();
        let _ = self.command(&["unlink", self.namespace.name()]).output();
    }
}

/// Copies a program with its libraries into a folder.
fn copy_with_libraries(program: &str, folder: &Path) {
    std::fs::copy(program, folder.join("program")).unwrap();
    for library in libraries(Path::new(program)).unwrap() {
        std::fs::copy(&library, folder.join(library.file_name().unwrap())).unwrap();
    }
}

#[test]
fn user_mode_linux_is_a_guest_like_any_other() {
    if !is_root() {
        return;
    }
    let site = Site::new();
    let started = site.start();
    assert_eq!(started["kind"], "uml");
    assert!(started["accelerator"].is_null());
    assert_eq!(started["interfaces"][0]["mac"], GIVEN);
    site.await_peer("its own address", |peer| peer.address.as_deref() == Some(GIVEN));
    assert!(site.peer().agreed.contains("control queue"), "{:?}", site.peer());

    // 64 kB each way over TCP, by hash.
    let folder = site.daemon.folder().join("files");
    std::fs::create_dir(&folder).unwrap();
    let urandom = std::fs::File::open("/dev/urandom").unwrap();
    let mut random = std::io::Read::take(urandom, 65_536);
    std::io::copy(&mut random, &mut std::fs::File::create(folder.join("random")).unwrap()).unwrap();
    copy_with_libraries("/usr/sbin/ethtool", &folder);
    let files = folder.display().to_string();
    let _server = Service::start(site.namespace.command(&["busybox", "httpd", "-f", "-h", &files]));
    let hash = |printed: String| printed.split_whitespace().next().unwrap().to_owned();
    let ours = hash(finished(Command::new("sha256sum").arg(folder.join("random"))));
    let fetch = format!(
        "mkdir -p /tmp/f; cd /tmp/f; timeout {} sh -c \
         'until wget -q -O random http://10.77.0.5/random; do sleep 0.1; done'; sha256sum random",
        patience_s()
    );
    assert_eq!(hash(site.exec(&fetch)), ours);
    let theirs =
        hash(site.exec("cd /tmp/f; head -c 65536 /dev/urandom >own; sha256sum own; httpd -h /tmp/f"));
    let fetch = "busybox wget -q -O - http://10.77.0.1/own | sha256sum";
    assert_eq!(hash(site.namespace.run(&["sh", "-c", fetch])), theirs);

    // The driver uses one pair of queues until it is told otherwise.
    assert_eq!(site.peer().active_queues, 1);
    for file in std::fs::read_dir(&folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        site.exec(&format!("cd /tmp/f; wget -q -O {name} http://10.77.0.5/{name}; chmod +x {name}"));
    }
    let ethtool = "cd /tmp/f; ./ld-linux-x86-64.so.2 --library-path . ./program";
    for pairs in [2, 1, 2] {
        site.exec(&format!("{ethtool} -L eth0 combined {pairs}"));
        assert_eq!(site.peer().active_queues, pairs);
        site.hears();
    }

    // The new address counts at once; the switch has forgotten the other.
    assert!(site.learned().contains(GIVEN));
    site.exec(&format!("ip link set eth0 address {TAKEN}"));
    assert_eq!(site.peer().address.as_deref(), Some(TAKEN));
    site.daemon.await_status("no station with the former address", |_| !site.learned().contains(GIVEN));
    site.hears();
    assert!(site.learned().contains(TAKEN));
    // Frames to other stations do not reach the guest. They are flooded, and counted.
    let mut sender = site.daemon.open("vale0:sender");
    for number in 0..100 {
        send(&mut sender, &numbered(station(9), station(8), number, 60));
        sender.tx().sync().unwrap();
    }
    let filtered = |drops: &std::collections::BTreeMap<String, u64>| drops.get("filtered").copied();
    site.daemon.await_status("filtered frames", |status| {
        status.ports.iter().any(|port| port.name == "vale0:u" && filtered(&port.counters.drops) >= Some(100))
    });
    drop(sender);

    // The guest stays through an upgrade, with its settings, and announces itself to the new daemon's switch.
    assert_eq!(site.daemon.upgrade()["reopened"], serde_json::json!([]));
    assert_eq!((site.peer().connections, site.peer().active_queues), (1, 2));
    assert_eq!(site.peer().address.as_deref(), Some(TAKEN));
    site.hears();
    await_conserved(&site.daemon);
}

#[test]
fn user_mode_linux_and_the_daemon_can_be_killed() {
    if !is_root() {
        return;
    }
    let mut site = Site::new();
    for _ in 0..2 {
        let started = site.start();
        site.hears();
        // The keeper is killed, and Linux with it.
        let keeper = started["pid"].as_u64().unwrap();
        finished(Command::new("kill").args(["-KILL", &keeper.to_string()]));
        site.await_peer("end of the guest", |peer| !peer.connected);
        let listed = site.run(&["--json", "vm", "list"]);
        assert_eq!(serde_json::from_str::<Value>(&listed).unwrap(), Value::Array(Vec::new()));
    }
    site.start();
    site.hears();
    site.daemon.crash_and_restart();
    // Linux removes its card when the back end has ended, and can hang meanwhile. It has a card when it starts again.
    site.await_peer("no guest", |peer| !peer.connected);
    site.run(&["vm", "stop", "u"]);
    site.start();
    site.hears();
    await_conserved(&site.daemon);
}

#[test]
fn what_user_mode_linux_lacks_is_refused_with_a_remedy() {
    let daemon = Daemon::start();
    let refused = |arguments: &[&str], path: &str, status: i32, part: &str| {
        let mut command = daemon.ringroad(&["vm", "u", "--kind", "uml", "--port", "vale0:u"]);
        command.args(arguments).env("PATH", path).env("RINGROAD_RUNTIME_DIR", daemon.folder());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
        assert!(stderr(&output).contains(part), "{part}: {}", stderr(&output));
    };
    refused(&[], "/nonexistent", 1, "apt-get install user-mode-linux");
    refused(&["--kernel", "/nonexistent"], "/nonexistent", 1, "/nonexistent/usr/bin/linux.uml");
    for option in [&["--cpus", "2"][..], &["--packed"], &["--accel", "tcg"]] {
        refused(option, "/nonexistent", 2, option[0]);
    }
    assert!(daemon.status().ports.is_empty());
}
