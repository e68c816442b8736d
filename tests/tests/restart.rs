//! Death and return of the daemon.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use ringroad::control::message::Request;
use ringroad::control::report::StartedBy;
use ringroad::{Interest, OpenOptions, Port, PortError, Reconnections, wait_any};
use ringroad_capture::{CaptureFormat, CaptureWriter};
use ringroad_tests::command::last_object;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE, binary};
use ringroad_tests::frames::{numbered, station};
use ringroad_tests::network::{NetworkNamespace, address, cable, cut, finished, is_root, unused_name};
use ringroad_tests::service::Service;
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// Number of times that a daemon is killed.
const KILLS: u64 = 10;
/// Number of frames, more than a ring holds: all of them arrive only if a program takes them out of the ring.
const FRAMES: u64 = 3000;

/// Ends a traffic command as Ctrl-C does. Returns its summary.
fn ended(service: &mut Service) -> Value {
    ended_with(service, 0)
}

fn ended_with(service: &mut Service, code: i32) -> Value {
    service.signal(Signal::INT);
    let (status, printed) = service.await_end();
    assert_eq!(status.code(), Some(code), "{printed}");
    last_object(&printed)
}

/// Numbers of a process's open descriptors and of its mappings of regions.
fn holdings(process: Pid) -> (usize, usize) {
    let process = process.as_raw_nonzero();
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("/memfd:")).count())
}

/// Waits until a port has received more frames than its ring holds.
fn await_delivered(daemon: &Daemon, name: &str) {
    daemon.await_status("traffic that has come back", |status| {
        let port = status.ports.iter().find(|port| port.name == name);
        port.is_some_and(|port| port.counters.delivered_frames >= FRAMES)
    });
}

/// Two stations at a switch: the daemon's configuration attaches their interfaces, and a TAP.
struct Wired {
    stations: [NetworkNamespace; 2],
    outside: NetworkNamespace,
}

impl Wired {
    const PORTS: &str = r#"
        [[port]]
        name = "vale1:first"
        driver = "xdp:outer0@mode=native"
        [[port]]
        name = "vale1:second"
        driver = "packet:outer1"
        [[port]]
        name = "vale1:tap"
        driver = "tap:t0"
    "#;

    fn new() -> Self {
        let wired =
            Self { stations: [(); 2].map(|()| NetworkNamespace::new()), outside: NetworkNamespace::new() };
        wired.connect(0);
        wired.connect(1);
        wired
    }

    fn connect(&self, number: u8) {
        let station = &self.stations[usize::from(number)];
        cable(&self.outside, &format!("outer{number}"), station, "inner", 1500, 1);
        station.number("inner", number + 1);
    }

    /// Waits until one station receives a reply from the other.
    fn await_ping(&self) {
        let end = Instant::now() + PATIENCE.unwrap();
        let far = address(2).to_string();
        let mut ping = self.stations[0].command(&["ping", "-n", "-c", "1", "-W", "1", &far]);
        while !ping.output().unwrap().status.success() {
            assert!(Instant::now() < end, "the stations do not hear each other");
        }
    }
}

#[test]
fn programs_and_interfaces_survive_ten_daemon_deaths_under_load() {
    let wired = is_root().then(Wired::new);
    let mut config = "[[port]]\nname = \"vale0:in\"\n[[port]]\nname = \"vale0:out\"\n".to_owned();
    let mut launcher = Vec::new();
    if let Some(wired) = &wired {
        config += Wired::PORTS;
        launcher = vec!["ip", "netns", "exec", wired.outside.name()];
    }
    let mut daemon = Daemon::launched_by(&launcher, &config);
    let mut receiver =
        Service::start(daemon.ringroad(&["--json", "recv", "vale0:out", "--reconnect", "--check"]));
    receiver.await_line("\"ready\":true");
    let mut sender =
        Service::start(daemon.ringroad(&["--json", "gen", "vale0:in", "--rate", "20kpps", "--reconnect"]));
    sender.await_line("\"ready\":true");
    await_delivered(&daemon, "vale0:out");
    let mut before = None;
    for _ in 0..KILLS {
        daemon.crash_and_restart();
        await_delivered(&daemon, "vale0:out");
        wired.iter().for_each(Wired::await_ping);
        // Descriptors and mappings are those of one attachment, however many attachments came before.
        let held = || [holdings(sender.pid()), holdings(receiver.pid())];
        let requested = *before.get_or_insert_with(held);
        daemon.await_status(&format!("{requested:?} as descriptors and regions"), |_| held() == requested);
    }
    let sent = ended(&mut sender);
    // Frames were lost with each daemon.
    let received = ended_with(&mut receiver, 3);
    let port = &sent["ports"][0];
    assert_eq!(port["reconnections"]["count"], KILLS, "{sent}");
    assert_eq!(received["reconnections"]["count"], KILLS, "{received}");
    assert_eq!(port["unsent_slots"], 0, "what was handed over to the last daemon was taken: {sent}");
    // Each received frame was sent, and arrived once.
    let total = &received["test_frames"]["total"];
    assert_eq!((total["duplicates"].as_u64(), total["corrupted"].as_u64()), (Some(0), Some(0)), "{received}");
    assert!(received["frames"].as_u64().unwrap() > KILLS * FRAMES, "{received}");
    let status = await_conserved(&daemon);
    assert!(status.ports.iter().all(|port| port.persistent && port.error.is_none()), "{status:?}");
    daemon.signal(Signal::TERM);
    assert!(daemon.await_end(), "{}", daemon.log());
    let files = daemon.folder().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    let mut files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, ["config.toml", "log", "r.sock.ringroadd.lock"]);
    if let Some(wired) = &wired {
        wired.outside.await_links("interfaces as before", |links| {
            links.iter().all(|link| link.xdp.is_none() && !link.promiscuous && link.name != "t0")
        });
    }
}

fn capture_of_one_frame(daemon: &Daemon) -> PathBuf {
    let capture = daemon.folder().join("one.pcap");
    let mut writer = CaptureWriter::create(&capture, CaptureFormat::Pcap, 0).unwrap();
    writer.write_frame(0, &[0xFF; 60], 60).unwrap();
    writer.finish().unwrap();
    capture
}

#[test]
fn each_traffic_command_reports_the_daemons_death() {
    let mut daemon = Daemon::start();
    let capture = capture_of_one_frame(&daemon);
    let written = daemon.folder().join("written.pcap").display().to_string();
    // The senders send seldom, so no full ring shows them the daemon's end.
    let commands = [
        vec!["gen", "vale0:a", "--rate", "5pps"],
        vec!["recv", "vale0:b"],
        vec!["capture", "vale0:c", "--write", written.as_str()],
        vec!["fwd", "vale0:d", "vale0:e"],
        vec!["fwd", "--one-way", "vale0:f", "vale0:g"],
        vec!["replay", capture.to_str().unwrap(), "vale0:h", "--rate", "5pps", "--loop", "0"],
        vec!["recv", "x{1"],
    ];
    let start = |command: &Vec<&str>| {
        let mut service = Service::start(daemon.ringroad(&[&["--json"][..], command].concat()));
        service.await_line("\"ready\":true");
        service
    };
    let mut services: Vec<_> = commands.iter().map(start).collect();
    daemon.crash();
    for (service, command) in services.iter_mut().zip(&commands) {
        let (status, printed) = service.await_end();
        assert_eq!(status.code(), Some(1), "{command:?}: {printed}");
        assert!(printed.contains("the daemon is gone"), "{command:?}: {printed}");
    }
}

#[test]
fn each_traffic_command_reconnects_to_the_next_daemon() {
    let mut daemon = Daemon::start();
    let capture = capture_of_one_frame(&daemon);
    let written = daemon.folder().join("written.pcap").display().to_string();
    let replay = ["replay", capture.to_str().unwrap(), "vale0:a", "--rate", "20pps", "--loop", "0"];
    let commands = [
        &replay[..],
        &["fwd", "--one-way", "vale0:b", "vale1:a"],
        &["fwd", "--pipeline", "--mode", "macswap", "vale1:b", "vale2:a"],
        &["recv", "vale2:b"],
        &["capture", "vale2:c", "--write", written.as_str()],
    ];
    let start = |command: &&[&str]| {
        let mut service =
            Service::start(daemon.ringroad(&[&["--json"][..], command, &["--reconnect"]].concat()));
        service.await_line("\"ready\":true");
        service
    };
    let mut services: Vec<_> = commands.iter().map(start).collect();
    let await_frames = |daemon: &Daemon| {
        daemon.await_status("frames at the far end", |status| {
            let far = status.ports.iter().filter(|port| ["vale2:b", "vale2:c"].contains(&port.name.as_str()));
            far.filter(|port| port.counters.delivered_frames > 0).count() == 2
        });
    };
    await_frames(&daemon);
    for _ in 0..2 {
        daemon.crash_and_restart();
        await_frames(&daemon);
    }
    let summaries: Vec<_> = services.iter_mut().map(ended).collect();
    for printed in [&summaries[0], &summaries[3], &summaries[4]] {
        assert_eq!(printed["reconnections"]["count"], 2, "{printed}");
    }
    await_conserved(&daemon);
}

/// Options for this daemon, and for the daemons after it.
fn reconnecting(daemon: &Daemon) -> OpenOptions {
    OpenOptions { reconnect: true, ..daemon.options() }
}

#[test]
fn both_ends_of_a_pipe_reconnect() {
    let mut daemon = Daemon::start();
    let mut master = Port::open_with("x{1", &reconnecting(&daemon)).unwrap();
    let mut slave = Port::open_with("x}1", &reconnecting(&daemon)).unwrap();
    let frame = numbered(station(1), station(2), 7, 60);
    assert!(master.tx().send(&frame).unwrap());
    // The frame passes from program to program without a daemon, so the daemon's death does not matter.
    daemon.crash_and_restart();
    let end = Instant::now() + PATIENCE.unwrap();
    let briefly = Some(Duration::from_millis(20));
    let met =
        |master: &Port, slave: &Port| [master, slave].iter().all(|port| port.reconnections().count == 1);
    while !met(&master, &slave) {
        assert!(Instant::now() < end, "the ends do not come back");
        master.wait(Interest::Rx, briefly).unwrap();
        slave.wait(Interest::Rx, briefly).unwrap();
    }
    assert_eq!(slave.rx().available(), 0, "its rings are new");
    assert!(master.tx().send(&frame).unwrap());
    master.tx().sync().unwrap();
    assert!(slave.wait(Interest::Rx, PATIENCE).unwrap());
    assert_eq!(slave.rx().available(), 1);
}

#[test]
fn a_program_that_never_waits_reconnects_and_counts_lost_slots() {
    let mut daemon = Daemon::start();
    let mut port = Port::open_with("vale0:a@slots=64,queues=2", &reconnecting(&daemon)).unwrap();
    daemon.crash();
    let mut filled = 0;
    while port.tx().send(&[0xFF; 60]).unwrap() {
        filled += 1;
    }
    port.tx().sync().unwrap();
    assert_eq!((filled, port.reconnections()), (63, Reconnections::default()));
    daemon.restart();
    let mut queues = port.into_queues();
    let end = Instant::now() + PATIENCE.unwrap();
    // Both rings of both queues reconnect, one sync at a time.
    while queues.iter_mut().any(|queue| queue.reconnections().count == 0 || queue.tx().available() == 0) {
        assert!(Instant::now() < end, "the port does not come back");
        for queue in &mut queues {
            queue.tx().sync().unwrap();
            queue.rx().sync().unwrap();
        }
    }
    assert_eq!(queues[0].reconnections(), Reconnections { count: 1, unacknowledged_slots: 63 });
    let mut other = daemon.open("vale0:b");
    for queue in &mut queues {
        assert!(queue.tx().send(&[0xFF; 60]).unwrap());
        queue.tx().sync().unwrap();
    }
    while other.rx().available() < 2 {
        assert!(other.wait(Interest::Rx, PATIENCE).unwrap());
        other.rx().sync().unwrap();
    }
    // Queues that sleep work, too.
    assert!(other.tx().send(&[0xFF; 60]).unwrap());
    other.tx().sync().unwrap();
    let [first, second] = &mut queues[..] else { panic!("two queues") };
    let mut waits = [first.awaiting(Interest::Rx), second.awaiting(Interest::Rx)];
    assert!(wait_any(&mut waits, PATIENCE).unwrap());
}

#[test]
fn a_detached_port_does_not_reconnect() {
    let daemon = Daemon::with_config("[[port]]\nname = \"vale0:a\"\n");
    let mut port = Port::open_with("vale0:a", &reconnecting(&daemon)).unwrap();
    let _ = daemon.ask(&Request::Detach { name: "vale0:a".to_owned(), take: true, number: None });
    let gone = port.wait(Interest::Rx, PATIENCE).unwrap_err();
    assert!(matches!(gone, PortError::DaemonGone), "{gone}");
    assert!(daemon.status().ports.is_empty());
}

#[test]
fn programs_restart_a_daemon_that_was_started_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("r.sock").display().to_string();
    let program = binary("ringroad");
    let mut on_demand = Command::new(&program);
    on_demand.args(["--socket", &socket, "--json", "recv", "vale0:a", "--reconnect"]);
    on_demand.env("RINGROAD_DAEMON", binary("ringroadd"));
    let mut receiver = Service::start(on_demand);
    receiver.await_line("\"ready\":true");
    let status = || {
        let output = Command::new(&program).args(["--socket", &socket, "--json", "status"]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).ok()
    };
    let first = status().unwrap();
    assert_eq!(first["started"], "on_demand");
    let pid = |status: &Value| i32::try_from(status["pid"].as_u64().unwrap()).unwrap();
    rustix::process::kill_process(Pid::from_raw(pid(&first)).unwrap(), Signal::KILL).unwrap();
    let end = Instant::now() + PATIENCE.unwrap();
    let second = loop {
        assert!(Instant::now() < end, "the daemon was not restarted");
        match status() {
            Some(second) if pid(&second) != pid(&first) && second["ports"][0]["name"] == "vale0:a" => {
                break second;
            }
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert_eq!(second["started"], "on_demand");
    assert_eq!(ended(&mut receiver)["reconnections"]["count"], 1);
    assert!(Command::new(&program).args(["--socket", &socket, "down"]).output().unwrap().status.success());
}

#[test]
fn attached_ports_come_back_after_a_kill_and_not_after_an_end_in_order() {
    let mut daemon = Daemon::start();
    let attach = |daemon: &Daemon, name: &str, more: &[&str]| {
        let mut words = vec!["attach", name];
        words.extend(more);
        assert!(daemon.ringroad(&words).output().unwrap().status.success());
    };
    let record = daemon.folder().join("record.pcap").display().to_string();
    attach(&daemon, "vale0:z@slots=512", &["--for-program"]);
    attach(&daemon, "vale0:gone", &["--for-program"]);
    attach(&daemon, "vale0:a", &["--driver", &format!("pcap:out={record}")]);
    // An interface of the namespace in which the command runs. It does not exist while the next daemon starts.
    let namespace = is_root().then(NetworkNamespace::new);
    if let Some(namespace) = &namespace {
        namespace.run(&["ip", "link", "add", "rrc0", "type", "veth", "peer", "name", "rrc1"]);
        finished(&mut daemon.ringroad_within(namespace, &["attach", "vale1:rrc0"]));
    }
    assert!(daemon.ringroad(&["detach", "vale0:gone"]).output().unwrap().status.success());
    let reported = |daemon: &Daemon| -> Vec<_> {
        let ports = daemon.status().ports.into_iter();
        ports.map(|port| (port.name, port.kind, port.slots, port.link.and_then(|link| link.netns))).collect()
    };
    let before = reported(&daemon);
    assert_eq!(before.len(), 2 + usize::from(namespace.is_some()));

    daemon.crash();
    if let Some(namespace) = &namespace {
        namespace.run(&["ip", "link", "delete", "rrc0"]);
    }
    daemon.restart();
    assert_eq!(daemon.status().ports.len(), 2);
    if let Some(namespace) = &namespace {
        namespace.run(&["ip", "link", "add", "rrc0", "type", "veth", "peer", "name", "rrc1"]);
    }
    daemon.await_status("ports as before", |status| status.ports.len() == before.len());
    assert_eq!(reported(&daemon), before);
    // A second crash changes nothing.
    daemon.crash_and_restart();
    daemon.await_status("ports as before", |status| status.ports.len() == before.len());

    daemon.signal(Signal::TERM);
    assert!(daemon.await_end(), "{}", daemon.log());
    daemon.restart();
    assert!(daemon.status().ports.is_empty());
}

#[test]
fn a_host_stack_comes_back_with_its_interface_and_not_alone() {
    if !is_root() {
        return;
    }
    let (outside, station) = (NetworkNamespace::new(), NetworkNamespace::new());
    let mut daemon = Daemon::within(&outside);
    cable(&outside, "p0", &station, "f0", 1500, 2);
    let attach = ["attach", "vale0:p0", "--driver", "xdp:p0@queues=2", "--host"];
    finished(&mut daemon.ringroad_within(&outside, &attach));
    finished(&mut daemon.ringroad(&["port", "vale0:p0^@vlan=5"]));
    let shown = |daemon: &Daemon| -> Vec<_> {
        let ports = daemon.status().ports.into_iter();
        ports.map(|port| (port.name, port.kind, port.settings.and_then(|settings| settings.vlan))).collect()
    };
    let before = shown(&daemon);
    let expected = [("vale0:p0", "af_xdp", None), ("vale0:p0^", "host", Some(5))];
    assert_eq!(before, expected.map(|(name, kind, vlan)| (name.to_owned(), kind.to_owned(), vlan)));
    daemon.crash_and_restart();
    daemon.await_status("ports as before", |status| status.waiting.is_empty());
    assert_eq!(shown(&daemon), before);

    daemon.crash();
    cut(&outside, "p0");
    // The wire's side does not work with one queue, although the host's side would.
    cable(&outside, "p0", &station, "f0", 1500, 1);
    daemon.restart();
    let status = daemon.status();
    assert!(status.ports.is_empty(), "{status:#?}");
    assert!(status.waiting["vale0:p0"].contains("1 queue(s), not 2"), "{:?}", status.waiting);
    assert!(status.waiting["vale0:p0^"].contains("waits for vale0:p0"), "{:?}", status.waiting);
    finished(&mut daemon.ringroad(&["detach", "vale0:p0"]));
    assert!(daemon.status().waiting.is_empty());
}

#[test]
fn static_addresses_mirrors_and_openflow_set_by_commands_come_back_after_a_kill() {
    let mut daemon = Daemon::with_config("[[address]]\nmac = \"02:00:00:00:00:01\"\nport = \"vale0:a\"\n");
    for words in [
        &["macs", "vale0", "--set", "02:00:00:00:00:02=b"][..],
        &["macs", "vale0", "--set", "02:00:00:00:00:03=c"],
        &["macs", "vale0", "--unset", "02:00:00:00:00:03"],
        &["mirror", "vale0:a", "--to", "vale0:m", "--sample", "7"],
        &["switch", "vale1", "--openflow"],
    ] {
        finished(&mut daemon.ringroad(words));
    }
    let settings = |daemon: &Daemon| {
        let printed = |words: &[&str]| {
            // The exit status is not checked: `config diff` fails if there are differences.
            String::from_utf8(daemon.ringroad(words).output().unwrap().stdout).unwrap()
        };
        let config = printed(&["config", "diff"]);
        (config, printed(&["--json", "mirror"]))
    };
    let before = settings(&daemon);
    for part in ["02:00:00:00:00:02 on vale0:b", "a mirror from vale0:a to vale0:m", "vale1"] {
        assert!(before.0.contains(part), "{part}: {}", before.0);
    }
    daemon.crash_and_restart();
    assert_eq!(settings(&daemon), before);
    // The list does not restore settings of the configuration file: they go with the file, and the difference stays.
    daemon.crash();
    daemon.write_config("");
    daemon.restart();
    assert_eq!(settings(&daemon), before);
    daemon.signal(Signal::TERM);
    assert!(daemon.await_end(), "{}", daemon.log());
    daemon.restart();
    assert!(!settings(&daemon).0.contains("vale0"), "{}", settings(&daemon).0);
}

/// Starts a daemon that finds `list` of an earlier version beside its socket.
fn daemon_after(list: &str) -> Daemon {
    let mut daemon = Daemon::start();
    daemon.crash();
    // A list is of one run of the machine.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let mut list: Value = serde_json::from_str(list).unwrap();
    list["boot"] = boot.into();
    let file = daemon.folder().join("r.sock.ports");
    let options = &mut std::fs::OpenOptions::new();
    let written = options.write(true).create_new(true).mode(0o600).open(file).unwrap();
    serde_json::to_writer(written, &list).unwrap();
    daemon.restart();
    daemon
}

#[test]
fn a_list_of_ports_that_an_earlier_version_wrote_is_restored() {
    let lists =
        [include_str!("../written-by-0.1.0/r.sock.ports"), include_str!("../written-by-0.2.0/r.sock.ports")];
    for list in lists {
        let daemon = daemon_after(list);
        let ports = daemon.status().ports.into_iter().filter(|port| port.persistent);
        let ports: Vec<_> = ports.map(|port| (port.name, port.kind, port.slots)).collect();
        let web = ("vale0:web".to_owned(), "shm".to_owned(), 256);
        assert!(ports.contains(&web), "{ports:?}: {}", daemon.log());
        assert_eq!(ports.len(), 3, "{ports:?}");
        assert_eq!(daemon.port("vale0:web").unwrap().queues, 2);
        let settings = daemon.port("vale0:trunk").unwrap().settings.unwrap();
        assert_eq!(settings.to_string(), "trunk=10,20-29,native=5");
    }
}

#[test]
fn settings_that_version_0_2_0_listed_are_restored() {
    let daemon = daemon_after(include_str!("../written-by-0.2.0/r.sock.ports"));
    let difference = daemon.ringroad(&["config", "diff"]).output().unwrap();
    let difference = String::from_utf8(difference.stdout).unwrap();
    for part in ["02:00:00:00:00:02 on vale0:web", "a mirror from vale0:web to vale0:look", "vale1"] {
        assert!(difference.contains(part), "{part}: {difference}");
    }
}

#[test]
fn a_list_of_ports_that_another_user_could_have_written_is_not_read() {
    let mut daemon = Daemon::start();
    assert!(daemon.ringroad(&["attach", "vale0:a", "--for-program"]).output().unwrap().status.success());
    daemon.crash();
    let list = daemon.folder().join("r.sock.ports");
    assert_eq!(std::fs::metadata(&list).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::hard_link(&list, daemon.folder().join("second")).unwrap();
    daemon.restart();
    assert!(daemon.status().ports.is_empty());
    assert!(daemon.log().contains("r.sock.ports: it has several names"), "{}", daemon.log());
}

#[test]
fn a_configured_port_is_made_when_its_interface_appears() {
    if !is_root() {
        return;
    }
    let (outside, station) = (NetworkNamespace::new(), NetworkNamespace::new());
    let config =
        "[[port]]\nname = \"vale0:later\"\ndriver = \"packet:outer0\"\n[[port]]\nname = \"vale0:now\"\n";
    let daemon = Daemon::launched_by(&["ip", "netns", "exec", outside.name()], config);
    assert!(daemon.port("vale0:later").is_none());
    assert!(daemon.port("vale0:now").is_some(), "what can be made is not held up");
    assert!(daemon.log().contains("outer0"), "{}", daemon.log());
    cable(&outside, "outer0", &station, "inner", 1500, 1);
    daemon.await_status("port of the interface that has come", |status| {
        status.ports.iter().any(|port| port.name == "vale0:later" && port.error.is_none())
    });
}

#[test]
fn a_configured_port_is_made_when_its_namespace_appears() {
    if !is_root() {
        return;
    }
    let name = unused_name("rrlate");
    let daemon = Daemon::with_config(&format!(
        "[[port]]\nname = \"vale0:later\"\ndriver = \"packet:lo@netns={name}\"\n"
    ));
    assert!(daemon.log().contains(&format!("there is no network namespace {name}")), "{}", daemon.log());
    finished(Command::new("ip").args(["netns", "add", &name]));
    let _namespace = NetworkNamespace::adopt(name);
    daemon.await_status("port in the namespace that has come", |status| {
        status.ports.iter().any(|port| port.name == "vale0:later")
    });
}

#[test]
fn no_program_starts_a_daemon_while_the_service_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let manager = folder.path().join("notify");
    let _manager = UnixDatagram::bind(&manager).unwrap();
    let mut daemon = Daemon::launched_by(&["env", &format!("NOTIFY_SOCKET={}", manager.display())], "");
    daemon.crash();
    let mut receiver = Service::start(daemon.ringroad(&["--json", "recv", "vale0:a"]));
    daemon.restart();
    receiver.await_line("\"ready\":true");
    assert_eq!(daemon.status().started, StartedBy::ServiceManager);
    assert_eq!(i32::try_from(daemon.status().pid).unwrap(), daemon.pid().as_raw_nonzero().get());
}

#[test]
fn the_daemon_notifies_the_service_manager_of_start_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(PATIENCE).unwrap();
    let named = format!("NOTIFY_SOCKET={}", path.display());
    let mut daemon = Daemon::launched_by(&["env", &named], "");
    let heard = || {
        let mut bytes = [0; 256];
        let len = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    assert!(heard().starts_with("READY=1\n"));
    assert_eq!(daemon.status().started, StartedBy::ServiceManager);
    daemon.signal(Signal::TERM);
    assert!(daemon.await_end());
    assert_eq!(heard(), "STOPPING=1");
}
