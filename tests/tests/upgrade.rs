//! `ringroad upgrade`: a new daemon continues where the running one stops.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};
use std::process::Command;

use ringroad::control::Connection;
use ringroad_capture::{CaptureFormat, CaptureWriter};
use ringroad_tests::command::{run, stderr};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, binary};
use ringroad_tests::frames::{numbered, receive, send, station};
use ringroad_tests::network::{NetworkNamespace, finished, is_root, unused_name};
use ringroad_tests::ping::{assert_all_answered, ping_command};
use ringroad_tests::service::Service;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn a_stream_loses_no_frame_through_upgrades_and_counters_continue() {
    for workers in 1..=2 {
        let daemon = Daemon::with_config(&format!("[workers]\ncount = {workers}\n"));
        let stream = daemon.stream();
        for _ in 0..5 {
            stream.await_frames(500);
            let before = daemon.status();
            let report = daemon.upgrade();
            assert_ne!(report["pid"], before.pid);
            assert_eq!((&report["reopened"], &report["lost"]), (&Value::from([0; 0]), &Value::from([0; 0])));
            let after = daemon.status();
            assert_eq!(u64::from(after.pid), report["pid"]);
            assert!(after.uptime_s >= before.uptime_s);
            for (before, after) in before.switches.iter().zip(&after.switches) {
                assert!(after.totals.received_frames >= before.totals.received_frames);
                assert!(after.macs >= before.macs);
            }
        }
        stream.await_frames(500);
        let (sent, received) = stream.end();
        assert_eq!(received, sent);
        let drops = daemon.status().switches.iter().map(|switch| switch.totals.drops.len()).sum::<usize>();
        assert_eq!(drops, 0, "{:#?}", daemon.status().switches);
        await_conserved(&daemon);
    }
}

#[test]
fn programs_keep_ports_pipes_shared_regions_and_connections() {
    let daemon = Daemon::start();
    let [mut a, mut b, mut c] = ["vale0:a", "vale0:b@slots=64", "vale0:c"].map(|name| daemon.open(name));
    let [mut master, mut slave] = ["vale0:a{1", "vale0:a}1"].map(|name| daemon.open(name));
    let attached = run(daemon.ringroad(&["attach", "vale0:later", "--for-program"]));
    assert!(attached.status.success(), "{}", stderr(&attached));
    let mut connection = Connection::connect(daemon.socket()).unwrap();
    let instance = connection.hello("test").unwrap().instance;
    // A frame waits to be read, and addresses are learned.
    send(&mut a, &numbered(station(9), station(1), 1, 100));
    a.tx().sync().unwrap();
    assert_eq!(receive(&mut c).len(), 100);
    send(&mut b, &numbered(station(1), station(2), 2, 100));
    b.tx().sync().unwrap();
    assert_eq!(receive(&mut a).len(), 100);
    for round in 0..3 {
        daemon.upgrade();
        assert_eq!(receive(&mut b), numbered(station(9), station(1), 1, 100));
        // The addresses are still known: no other port gets these frames.
        for number in 0..200 {
            send(&mut a, &numbered(station(2), station(1), number, 60));
            a.tx().sync().unwrap();
            assert_eq!(receive(&mut b), numbered(station(2), station(1), number, 60));
        }
        send(&mut master, &[round; 80]);
        master.tx().sync().unwrap();
        assert_eq!(receive(&mut slave), [round; 80]);
        send(&mut a, &numbered(station(9), station(1), 1, 100));
        a.tx().sync().unwrap();
        assert_eq!(receive(&mut c), numbered(station(9), station(1), 1, 100));
    }
    assert_eq!(connection.hello("test").unwrap().instance, instance);
    assert!(daemon.port("vale0:later").is_some_and(|port| port.persistent && !port.bound));
    let mut later = daemon.open("vale0:later");
    send(&mut a, &[0xff; 60]);
    a.tx().sync().unwrap();
    assert_eq!(receive(&mut later), [0xff; 60]);
    // Entries in regions and quotas are kept: ports can leave and come back.
    drop(b);
    daemon
        .await_status("a port that is gone", |status| status.ports.iter().all(|port| port.name != "vale0:b"));
    drop(daemon.open("vale0:b"));
    drop((a, c, later, master, slave));
    daemon.await_status("no programs", |status| status.ports.iter().all(|port| !port.bound));
    await_conserved(&daemon);
}

#[test]
fn containers_keep_their_links_and_interfaces_are_reopened() {
    if !is_root() {
        return;
    }
    let outside = NetworkNamespace::new();
    let daemon = Daemon::within(&outside);
    let mut containers = ["tap", "veth"].map(|via| {
        let name = unused_name(&format!("rr{via}"));
        let (port, address) = (format!("vale0:{via}"), format!("10.79.0.{}/24", via.len()));
        let arguments = ["container", &name, "--port", &port, "--address", &address, "--via", via];
        let arguments = [&["--json"], &arguments[..], &["--", "sleep", "1000"]].concat();
        let mut service = Service::start(daemon.ringroad(&arguments));
        service.await_line("\"ready\":true");
        (name, service)
    });
    outside.run(&["ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1"]);
    for interface in ["up0", "up1"] {
        outside.run(&["ip", "link", "set", interface, "up"]);
    }
    let made = run(daemon.ringroad_within(&outside, &["attach", "vale0:up", "--driver", "packet:up0"]));
    assert!(made.status.success(), "{}", stderr(&made));
    let ping = |count| {
        let mut ping = Command::new("ip");
        ping.args(["netns", "exec", &containers[0].0]).args(ping_command(&[], count, "0.01", "10.79.0.4"));
        ping
    };
    assert!(run(ping(1)).status.success());
    for _ in 0..2 {
        let mut stream = Service::start(ping(100));
        stream.await_line("icmp_seq=5 ");
        let report = daemon.upgrade();
        assert_eq!(report["reopened"], Value::from(vec!["vale0:up"]));
        let (_, printed) = stream.await_end();
        assert_all_answered(&printed, 100);
        assert!(daemon.port("vale0:up").is_some_and(|port| port.error.is_none()));
    }
    for (_, service) in &mut containers {
        service.signal(Signal::TERM);
        service.await_end();
    }
    await_conserved(&daemon);
}

#[test]
fn a_process_that_cannot_take_over_leaves_the_old_one_running() {
    let daemon = Daemon::with_config("");
    let [mut a, mut b] = ["vale0:a", "vale0:b"].map(|name| daemon.open(name));
    let pid = daemon.status().pid;
    daemon.write_config("[workers]\ncount = 0\n");
    let refused = run(daemon.ringroad(&["upgrade"]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("workers.count is 0"), "{}", stderr(&refused));
    // The limit is below the memory of the ports, which is detected only once all workers stand still.
    daemon.write_config("[limits]\nshared_memory_mib = 1\n");
    let refused = run(daemon.ringroad(&["upgrade"]));
    assert!(stderr(&refused).contains("region"), "{}", stderr(&refused));
    assert_eq!(daemon.status().pid, pid);
    send(&mut a, &[0xff; 60]);
    a.tx().sync().unwrap();
    assert_eq!(receive(&mut b), [0xff; 60]);
    // Settings that only a start can change are in force after the next upgrade.
    daemon.write_config("[workers]\ncount = 2\n");
    daemon.upgrade();
    assert_eq!(daemon.status().workers.len(), 2);
    send(&mut a, &[0xff; 60]);
    a.tx().sync().unwrap();
    assert_eq!(receive(&mut b), [0xff; 60]);
}

#[test]
fn upgrades_that_are_requested_at_the_same_time_follow_each_other() {
    let daemon = Daemon::start();
    let [mut a, mut b] = ["vale0:a", "vale0:b"].map(|name| daemon.open(name));
    let made = run(daemon.ringroad(&["switch", "vale1", "--openflow"]));
    assert!(made.status.success(), "{}", stderr(&made));
    let first = daemon.status().pid;
    let upgrades: Vec<Service> =
        (0..4).map(|_| Service::start(daemon.ringroad(&["--json", "upgrade"]))).collect();
    let mut pids: Vec<u64> = upgrades
        .into_iter()
        .map(|mut upgrade| {
            let (status, printed) = upgrade.await_end();
            assert!(status.success(), "{printed}");
            let report: Value = serde_json::from_str(printed.trim()).unwrap();
            assert_eq!(report["problem"], "", "{report}");
            report["pid"].as_u64().unwrap()
        })
        .collect();
    let last = u64::from(daemon.status().pid);
    assert!(pids.contains(&last), "{last} of {pids:?}");
    pids.push(first.into());
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 5, "each is another process");
    // Two upgrades follow each other directly.
    assert_ne!(daemon.upgrade()["pid"], daemon.upgrade()["pid"]);
    send(&mut a, &[0xff; 60]);
    a.tx().sync().unwrap();
    assert_eq!(receive(&mut b), [0xff; 60]);
    await_conserved(&daemon);
}

/// Output of an upgrade that must end with this exit status.
fn failing_upgrade(daemon: &Daemon, more: &[&str], status: i32) -> String {
    let printed = run(daemon.ringroad(&[&["upgrade"], more].concat()));
    let text = String::from_utf8_lossy(&printed.stdout).into_owned() + &stderr(&printed);
    assert_eq!(printed.status.code(), Some(status), "{text}");
    text
}

fn attach(daemon: &Daemon, name: &str, driver: &str) {
    let attached = run(daemon.ringroad(&["attach", name, "--driver", driver]));
    assert!(attached.status.success(), "{}", stderr(&attached));
}

fn names(daemon: &Daemon) -> Vec<String> {
    daemon.status().ports.into_iter().map(|port| port.name).collect()
}

#[test]
fn an_upgrade_that_would_lose_a_port_is_refused_and_nothing_is_given_up() {
    let daemon = Daemon::start();
    let capture = daemon.folder().join("in.pcap");
    let one_frame = || {
        let mut writer = CaptureWriter::create(&capture, CaptureFormat::Pcap, 0).unwrap();
        writer.write_frame(0, &[0xff; 60], 60).unwrap();
        writer.finish().unwrap();
    };
    one_frame();
    let [mut a, mut b] = ["vale0:a", "vale0:b"].map(|name| daemon.open(name));
    attach(&daemon, "vale1:in@vlan=7", &format!("pcap:{}", capture.display()));
    attach(&daemon, "vale0:out", &format!("pcap:out={}", daemon.folder().join("out.pcap").display()));
    let outside = is_root().then(NetworkNamespace::new);
    if let Some(outside) = &outside {
        outside.run(&["ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1"]);
        for interface in ["up0", "up1"] {
            let port = format!("vale0:{interface}");
            let driver = format!("packet:{interface}");
            let attached = run(daemon.ringroad_within(outside, &["attach", &port, "--driver", &driver]));
            assert!(attached.status.success(), "{}", stderr(&attached));
        }
    }
    let (before, pid) = (names(&daemon), daemon.status().pid);
    // The port still has the file open, but could not open it again.
    std::fs::remove_file(&capture).unwrap();
    let refused = failing_upgrade(&daemon, &[], 1);
    assert!(refused.contains("vale1:in (") && refused.contains("in.pcap"), "{refused}");
    assert!(refused.contains("--anyway") && !refused.contains("vale0:out"), "{refused}");
    if let Some(outside) = &outside {
        outside.run(&["ip", "link", "delete", "up0"]);
        let refused = failing_upgrade(&daemon, &[], 1);
        assert!(
            ["vale1:in (", "vale0:up0 (", "vale0:up1 ("].iter().all(|port| refused.contains(port)),
            "{refused}"
        );
    }
    assert_eq!((names(&daemon), daemon.status().pid), (before.clone(), pid));
    send(&mut a, &[0xff; 60]);
    a.tx().sync().unwrap();
    assert_eq!(receive(&mut b), [0xff; 60]);

    let told = failing_upgrade(&daemon, &["--anyway"], 3);
    assert!(
        told.contains("opened anew: vale0:out") && told.contains("again every second: vale1:in: "),
        "{told}"
    );
    assert!(!told.contains("lost"), "{told}");
    let status = daemon.status();
    assert_ne!(status.pid, pid);
    assert!(status.waiting.contains_key("vale1:in@vlan=7"), "{:?}", status.waiting);
    assert!(daemon.log().contains("vale1:in"), "{}", daemon.log());
    // The port comes back with its settings once its file exists again.
    one_frame();
    daemon.await_status("port whose file is there again", |status| {
        let port = status.ports.iter().find(|port| port.name == "vale1:in");
        port.is_some_and(|port| port.settings.as_ref().is_some_and(|settings| settings.vlan == Some(7)))
    });
    if let Some(outside) = &outside {
        outside.run(&["ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1"]);
    }
    daemon.await_status("ports as before", |status| status.waiting.is_empty());
    assert_eq!(names(&daemon), before);
    send(&mut a, &[0xff; 60]);
    a.tx().sync().unwrap();
    assert_eq!(receive(&mut b), [0xff; 60]);
    daemon.upgrade();
    assert_eq!(names(&daemon), before);
}

#[test]
fn a_port_that_fails_only_when_it_is_opened_anew_is_reported_and_waits() {
    let daemon = Daemon::start();
    let socket = daemon.folder().join("d.sock");
    attach(&daemon, "vale0:d", &format!("dgram:{}", socket.display()));
    // No check can predict what is at the path when the old process has ended.
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "another program's").unwrap();
    let told = failing_upgrade(&daemon, &[], 3);
    assert!(told.contains("again every second: vale0:d: ") && !told.contains("opened anew"), "{told}");
    let status = daemon.status();
    assert!(status.waiting["vale0:d"].contains("d.sock"), "{:?}", status.waiting);
    assert!(names(&daemon).is_empty());
    let listed = String::from_utf8(run(daemon.ringroad(&["list"])).stdout).unwrap();
    assert!(listed.contains("vale0:d waits: ") && listed.contains("d.sock"), "{listed}");
    assert!(daemon.log().contains("port=vale0:d"), "{}", daemon.log());
    std::fs::remove_file(&socket).unwrap();
    daemon.await_status("port whose path is free", |status| status.waiting.is_empty());
    assert_eq!(names(&daemon), ["vale0:d"]);
    daemon.upgrade();
    assert_eq!(names(&daemon), ["vale0:d"]);
}

#[test]
fn changed_settings_of_a_configured_port_outlive_its_reopening_and_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[[port]]\nname = \"vale0:out\"\ndriver = \"pcap:out={}\"\nslots = 256\n[[port]]\nname = \"vale0:gone\"\n\
         driver = \"null:no-rx=1\"\n",
        folder.path().join("out.pcap").display()
    );
    let daemon = Daemon::with_config(&config);
    let changed = run(daemon.ringroad(&["port", "vale0:out@vlan=5"]));
    assert!(changed.status.success(), "{}", stderr(&changed));
    // A port that was removed from the file does not count as lost.
    daemon.write_config(config.split("[[port]]\nname = \"vale0:gone\"").next().unwrap());
    let report = daemon.upgrade();
    assert_eq!(
        (&report["reopened"], &report["lost"]),
        (&serde_json::json!(["vale0:out"]), &serde_json::json!([]))
    );
    for _ in 0..2 {
        let port = daemon.port("vale0:out").unwrap();
        assert_eq!((port.settings.unwrap().vlan, port.slots), (Some(5), 256));
        assert_eq!(names(&daemon), ["vale0:out"]);
        let reloaded = run(daemon.ringroad(&["reload"]));
        assert!(reloaded.status.success(), "{}", stderr(&reloaded));
    }
}

/// Message of a program that reports, as a daemon that can take over does, that it has another form of the state.
fn another_form() -> Vec<u8> {
    let body = br#"{"Ready":{"form":1,"version":"0.0.9","takes_flow_tables":true}}"#;
    [&(body.len() as u64).to_le_bytes()[..], &[0; 8], body].concat()
}

/// A daemon whose program can be replaced.
struct Installed {
    daemon: Daemon,
    folder: TempDir,
}

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("ringroadd");
        install(&binary("ringroadd"), &program);
        let start = format!("shift; exec {} \"$@\"", program.display());
        let daemon = Daemon::launched_by(&["sh", "-c", &start, "sh"], "");
        Self { daemon, folder }
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("ringroadd")
    }
}

fn install(from: &Path, to: &Path) {
    finished(Command::new("install").arg("-m755").arg(from).arg(to));
}

#[test]
fn a_program_that_knows_another_form_of_the_state_does_not_take_over() {
    let site = Installed::new();
    let daemon = &site.daemon;
    let mut a = daemon.open("vale0:a");
    attach(daemon, "vale0:out", &format!("pcap:out={}", daemon.folder().join("out.pcap").display()));
    let (before, pid) = (names(daemon), daemon.status().pid);
    install(&binary("other_daemon"), &site.program());
    std::fs::write(site.folder.path().join("ringroadd.answer"), another_form()).unwrap();
    let refused = failing_upgrade(daemon, &[], 1);
    assert!(refused.contains("cannot hand over to ringroadd 0.0.9; end it by kill -9"), "{refused}");
    assert_eq!((names(daemon), daemon.status().pid), (before.clone(), pid));
    install(&binary("ringroadd"), &site.program());
    daemon.upgrade();
    assert_eq!(names(daemon), before);
    send(&mut a, &[0xff; 60]);
    a.tx().sync().unwrap();
    await_conserved(daemon);
}

#[test]
fn a_daemon_serves_on_while_a_new_program_hangs() {
    let site = Installed::new();
    let daemon = &site.daemon;
    let [mut a, mut b] = ["vale0:a", "vale0:b"].map(|name| daemon.open(name));
    install(&binary("other_daemon"), &site.program());
    let mut first = Service::start(daemon.ringroad(&["upgrade"]));
    let mut started = None;
    daemon.await_status("new process", |_| {
        let log = daemon.log();
        let line = log.lines().find(|line| line.contains("a new process will take over"));
        let pid = line.and_then(|line| line.split_once("pid=")?.1.split(' ').next()?.parse().ok());
        started = pid.and_then(Pid::from_raw);
        started.is_some()
    });
    // The second upgrade follows the first.
    install(&binary("ringroadd"), &site.program());
    let mut second = Service::start(daemon.ringroad(&["--json", "upgrade"]));
    attach(daemon, "vale0:out", "null:no-rx=1");
    send(&mut a, &[0xff; 60]);
    a.tx().sync().unwrap();
    assert_eq!(receive(&mut b), [0xff; 60]);
    rustix::process::kill_process(started.unwrap(), Signal::KILL).unwrap();
    let (status, printed) = first.await_end();
    // If the daemon had not served meanwhile, the new process would have been late before it was killed.
    assert!(!status.success() && printed.contains("the other process has ended"), "{printed}");
    let (status, printed) = second.await_end();
    assert!(status.success(), "{printed}");
    assert!(names(daemon).contains(&"vale0:out".to_owned()));
    await_conserved(daemon);
}

#[test]
fn a_program_that_others_can_replace_is_not_started() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let site = Installed::new();
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = || {
        let told = failing_upgrade(&site.daemon, &[], 1);
        assert!(told.contains("belongs to another user, or others can write it"), "{told}");
    };
    for mode in [0o777, 0o775] {
        allow(site.folder.path(), mode);
        refused();
    }
    allow(site.folder.path(), 0o755);
    allow(&site.program(), 0o757);
    refused();
    // A link to a program in a folder that others can write.
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("ringroadd");
    install(&binary("ringroadd"), &target);
    std::fs::remove_file(site.program()).unwrap();
    symlink(&target, site.program()).unwrap();
    allow(elsewhere.path(), 0o777);
    refused();
    // The sticky bit keeps others from replacing the file.
    allow(elsewhere.path(), 0o1777);
    let pid = site.daemon.upgrade()["pid"].as_u64().unwrap();
    assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "ringroadd\n");
}
