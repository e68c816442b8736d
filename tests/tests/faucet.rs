//! Faucet and Gauge, the controllers that people run, over two switches of ours that are stacked by two cables.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringroad_netdev::link_change::{VethEnd, add_address, create_veth, set_up};
use ringroad_netdev::link_monitor::wait_running;
use ringroad_netdev::offload::{Offload, set_offload};
use ringroad_tests::command::{run, stderr};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::network::{NetworkNamespace, cable, finished, is_root};
use ringroad_tests::service::Service;
use serde_json::Value;

/// Hosts of two VLANs on each of two switches, which have two cables between them. Hosts of one VLAN may not send UDP to
/// port 9, and go to the other VLAN by Faucet's addresses.
const FAUCET: &str = r#"
vlans:
  office: {vid: 100, faucet_mac: "0e:00:00:00:00:10", faucet_vips: ["10.100.0.254/24"]}
  lab: {vid: 200, faucet_mac: "0e:00:00:00:00:20", faucet_vips: ["10.200.0.254/24"]}
routers:
  campus: {vlans: [office, lab]}
acls:
  no_port_9:
    - rule: {dl_type: 0x0800, ip_proto: 17, udp_dst: 9, actions: {allow: 0}}
    - rule: {actions: {allow: 1}}
dps:
  sw1:
    dp_id: 0x1
    hardware: "Generic"
    stack: {priority: 1}
    lldp_beacon: {send_interval: 1, max_per_interval: 10}
    interfaces:
      1: {native_vlan: office, acls_in: [no_port_9]}
      2: {native_vlan: lab}
      3: {stack: {dp: sw2, port: 3}}
      4: {stack: {dp: sw2, port: 4}}
  sw2:
    dp_id: 0x2
    hardware: "Generic"
    lldp_beacon: {send_interval: 1, max_per_interval: 10}
    interfaces:
      1: {native_vlan: office, acls_in: [no_port_9]}
      2: {native_vlan: lab}
      3: {stack: {dp: sw1, port: 3}}
      4: {stack: {dp: sw1, port: 4}}
"#;

const GAUGE: &str = r#"
faucet_configs: ["FOLDER/faucet.yaml"]
watchers:
  ports: {dps: [sw1, sw2], type: port_stats, interval: 1, db: prometheus}
  ports_text: {dps: [sw1, sw2], type: port_stats, interval: 1, db: ports}
  flows: {dps: [sw1, sw2], type: flow_table, interval: 1, db: flows}
dbs:
  prometheus: {type: prometheus, prometheus_addr: 127.0.0.1, prometheus_port: 9303}
  ports: {type: text, file: "FOLDER/ports.txt"}
  flows: {type: text, path: "FOLDER/flows"}
"#;

const OFFICE: u8 = 100;
const LAB: u8 = 200;
/// Where Faucet and Gauge listen, in the namespace of the test.
const CONTROLLERS: [&str; 2] = ["tcp:127.0.0.1:6653", "tcp:127.0.0.1:6654"];
const FAUCET_METRICS: u16 = 9302;
const GAUGE_METRICS: u16 = 9303;

/// A machine in a VLAN.
struct Host {
    namespace: NetworkNamespace,
    address: Ipv4Addr,
}

impl Host {
    /// Joined by a cable to `outer` outside; Faucet routes for it.
    fn new(outside: &NetworkNamespace, outer: &str, vlan: u8, number: u8) -> Self {
        let namespace = NetworkNamespace::new();
        namespace.set("net/ipv6/conf/default/disable_ipv6", "1");
        cable(outside, outer, &namespace, "eth0", 1500, 1);
        let address = Ipv4Addr::new(10, vlan, 0, number);
        namespace.inside(|| add_address("eth0", IpAddr::V4(address), 24).unwrap());
        namespace.run(&["ip", "route", "add", "default", "via", &format!("10.{vlan}.0.254")]);
        Self { namespace, address }
    }

    fn socket(&self, port: u16) -> UdpSocket {
        let socket = self.namespace.inside(|| UdpSocket::bind((self.address, port)).unwrap());
        socket.set_read_timeout(PATIENCE).unwrap();
        socket
    }

    /// Whether one ping is answered within a second; with which TTL.
    fn ping(&self, other: Ipv4Addr) -> Option<u8> {
        let told = self.namespace.command(&["ping", "-n", "-c", "1", "-W", "1", &other.to_string()]).output();
        let told = String::from_utf8(told.unwrap().stdout).unwrap();
        let ttl = told.split_once("ttl=")?.1.split(' ').next()?;
        ttl.parse().ok()
    }

    /// Pings until one is answered.
    fn await_ping(&self, other: Ipv4Addr) -> u8 {
        let end = Instant::now() + PATIENCE.unwrap();
        loop {
            if let Some(ttl) = self.ping(other) {
                return ttl;
            }
            assert!(Instant::now() < end, "{other} does not answer {}", self.address);
        }
    }
}

/// Two switches of one daemon under Faucet and Gauge.
struct Campus {
    // Dropped in this order.
    faucet: Service,
    _gauge: Service,
    daemon: Daemon,
    hosts: Vec<Host>,
    folder: tempfile::TempDir,
    outside: NetworkNamespace,
}

impl Campus {
    fn new() -> Self {
        let outside = NetworkNamespace::new();
        let daemon = Daemon::within(&outside);
        let hosts = vec![
            Host::new(&outside, "a1", OFFICE, 1),
            Host::new(&outside, "a2", LAB, 1),
            Host::new(&outside, "b1", OFFICE, 2),
            Host::new(&outside, "b2", LAB, 2),
        ];
        outside.set("net/ipv6/conf/default/disable_ipv6", "1");
        outside.inside(|| {
            for (one, other) in [("a3", "b3"), ("a4", "b4")] {
                create_veth(VethEnd::here(one), VethEnd::here(other)).unwrap();
                for end in [one, other] {
                    for offload in [Offload::TxChecksum, Offload::Tso, Offload::TxVlan] {
                        set_offload(end, offload, false).unwrap();
                    }
                    set_up(end, true).unwrap();
                }
                wait_running(one, PATIENCE.unwrap()).unwrap();
                wait_running(other, PATIENCE.unwrap()).unwrap();
            }
        });
        // Ports have their numbers by the order in which they come.
        for (switch, ends) in [("vale0", ["a1", "a2", "a3", "a4"]), ("vale1", ["b1", "b2", "b3", "b4"])] {
            for end in ends {
                let port = format!("{switch}:{end}");
                let driver = format!("packet:{end}");
                finished(&mut daemon.ringroad_within(&outside, &["attach", &port, "--driver", &driver]));
            }
        }
        let folder = tempfile::Builder::new().prefix("ringroad-faucet-").tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        std::fs::create_dir(folder.path().join("flows")).unwrap();
        std::fs::write(folder.path().join("faucet.yaml"), FAUCET).unwrap();
        std::fs::write(folder.path().join("gauge.yaml"), GAUGE.replace("FOLDER", path)).unwrap();
        let faucet = controller(&outside, folder.path(), "faucet", 6653);
        let gauge = controller(&outside, folder.path(), "gauge", 6654);
        let campus = Self { faucet, _gauge: gauge, daemon, hosts, folder, outside };
        for (switch, datapath_id) in [("vale0", "1"), ("vale1", "2")] {
            let arguments = [
                "switch",
                switch,
                "--openflow",
                CONTROLLERS[0],
                CONTROLLERS[1],
                "--datapath-id",
                datapath_id,
            ];
            let told = run(campus.daemon.ringroad(&arguments));
            assert!(told.status.success(), "{}", stderr(&told));
        }
        campus.await_controllers();
        campus
    }

    fn report(&self, switch: &str) -> Value {
        let told = run(self.daemon.ringroad(&["--json", "switch", switch]));
        assert!(told.status.success(), "{}", stderr(&told));
        let reports: Value = serde_json::from_slice(&told.stdout).unwrap();
        reports[0].clone()
    }

    fn await_true(&self, what: &str, mut wished: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE.unwrap();
        while !wished() {
            assert!(Instant::now() < end, "no {what}: {:#} {:#}", self.report("vale0"), self.report("vale1"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn await_controllers(&self) {
        self.await_true("connection to both controllers", || {
            let controllers = ["vale0", "vale1"].map(|switch| self.report(switch)["controllers"].clone());
            controllers.iter().all(|both| both[0]["is_connected"] == true && both[1]["is_connected"] == true)
        });
    }

    /// The flows of a switch, as `ovs-ofctl` prints them.
    fn flows(&self, switch: &str) -> Vec<String> {
        let mut command = Command::new("ovs-ofctl");
        let socket = self.daemon.folder().join(format!("{switch}.mgmt"));
        command.args(["-O", "OpenFlow13", "dump-flows"]).arg(format!("unix:{}", socket.display()));
        finished(&mut command).lines().skip(1).map(str::to_owned).collect()
    }

    /// What a controller's Prometheus client says of a metric, where the line has all these parts.
    fn metric(&self, port: u16, metric: &str, parts: &[&str]) -> Option<f64> {
        let told = self.outside.inside(|| {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE.unwrap()).ok()?;
            stream.set_read_timeout(PATIENCE).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
            let mut told = String::new();
            stream.read_to_string(&mut told).ok()?;
            Some(told)
        })?;
        let line = told.lines().find(|line| {
            line.split(['{', ' ']).next() == Some(metric) && parts.iter().all(|part| line.contains(part))
        })?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// Received and delivered frames of a port, as the daemon counts them.
    fn frames(&self, port: &str) -> (u64, u64) {
        let counters = self.daemon.port(port).unwrap().counters;
        (counters.received_frames, counters.delivered_frames)
    }
}

/// Starts Faucet or Gauge, which `make` has installed.
fn controller(outside: &NetworkNamespace, folder: &Path, name: &str, port: u16) -> Service {
    let bin = std::env::var_os("RINGROAD_FAUCET").expect("make e2e names Faucet's folder in RINGROAD_FAUCET");
    let bin = PathBuf::from(bin).join("bin");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", outside.name()]).arg(bin.join(name));
    command.args([format!("--ryu-ofp-tcp-listen-port={port}"), "--ryu-ofp-listen-host=127.0.0.1".to_owned()]);
    // It runs a program beside it by its name.
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let file = |what: &str| folder.join(format!("{name}{what}"));
    let upper = name.to_uppercase();
    command.env(format!("{upper}_CONFIG"), file(".yaml")).env(format!("{upper}_LOG"), file(".log"));
    command.env(format!("{upper}_EXCEPTION_LOG"), file(".exceptions"));
    command.env(format!("{upper}_PROMETHEUS_ADDR"), "127.0.0.1");
    command.env(format!("{upper}_PROMETHEUS_PORT"), FAUCET_METRICS.to_string());
    Service::start(command)
}

#[test]
fn faucet_and_gauge_run_two_stacked_switches() {
    if !is_root() {
        return;
    }
    let mut campus = Campus::new();
    let [lab_a, office_b, lab_b] = [1, 2, 3].map(|host| campus.hosts[host].address);

    // One VLAN over the trunk, whose frames have tags; the two cables do not make a loop.
    assert_eq!(campus.hosts[0].await_ping(office_b), 64);
    assert_eq!(campus.hosts[1].await_ping(lab_b), 64);
    // Another VLAN by Faucet's routing, also over the trunk.
    assert_eq!(campus.hosts[0].await_ping(lab_a), 63);
    assert_eq!(campus.hosts[0].await_ping(lab_b), 63);
    // Nobody hears of the other VLAN without it.
    campus.hosts[1].namespace.run(&["ip", "addr", "add", "10.100.0.77/24", "dev", "eth0"]);
    assert_eq!(campus.hosts[0].ping(Ipv4Addr::new(10, OFFICE, 0, 77)), None);
    campus.hosts[1].namespace.run(&["ip", "addr", "del", "10.100.0.77/24", "dev", "eth0"]);

    obey_the_acl(&campus);
    live_without_faucet(&mut campus);
    take_the_other_cable(&campus);
    agree_with_gauge(&campus);
    let exceptions = std::fs::read_to_string(campus.folder.path().join("faucet.exceptions"));
    assert_eq!(exceptions.unwrap_or_default(), "");
}

/// What the rule forbids does not arrive, what it allows does, and the rule's flow has counted.
fn obey_the_acl(campus: &Campus) {
    let [from, to] = [&campus.hosts[0], &campus.hosts[2]];
    let sender = from.socket(1000);
    let [forbidden, allowed] = [to.socket(9), to.socket(10)];
    for number in 0..5u8 {
        sender.send_to(&[number], (to.address, 9)).unwrap();
    }
    sender.send_to(&[5], (to.address, 10)).unwrap();
    let mut byte = [0; 1];
    allowed.recv(&mut byte).unwrap();
    assert_eq!(byte, [5]);
    forbidden.set_nonblocking(true).unwrap();
    assert!(forbidden.recv(&mut byte).is_err(), "it arrived");
    let flows = campus.flows("vale0");
    let rule = flows.iter().find(|flow| flow.contains("tp_dst=9 ")).unwrap_or_else(|| panic!("{flows:#?}"));
    assert!(rule.contains("n_packets=5,") && rule.contains("actions=drop"), "{rule}");
}

/// Faucet dies while frames move and comes back: without it all frames arrive. When it comes back it makes its tables
/// anew, and what is lost then is counted.
fn live_without_faucet(campus: &mut Campus) {
    let [sender, receiver] = [0, 2].map(|host| campus.hosts[host].socket(2000));
    let target = campus.hosts[2].address;
    let go_on = AtomicBool::new(true);
    let drops = |campus: &Campus| -> u64 {
        let ports = campus.daemon.status().ports;
        ports.iter().map(|port| port.counters.drops.values().sum::<u64>()).sum()
    };
    let drops_before = drops(campus);
    let sent = AtomicU64::new(0);
    // How often each number has come.
    let came = Mutex::new(BTreeMap::<u64, u32>::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while go_on.load(Ordering::Relaxed) {
                let number = sent.fetch_add(1, Ordering::Relaxed);
                sender.send_to(&number.to_be_bytes(), (target, 2000)).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
            sender.send_to(&u64::MAX.to_be_bytes(), (target, 2000)).unwrap();
        });
        scope.spawn(|| {
            loop {
                let mut number = [0; 8];
                receiver.recv(&mut number).unwrap();
                match u64::from_be_bytes(number) {
                    u64::MAX => return,
                    number => *came.lock().unwrap().entry(number).or_default() += 1,
                }
            }
        });
        // What the main part panics of has to end the two others.
        let _end = Ending(&go_on);
        let has_come =
            |number: u64| came.lock().unwrap().last_key_value().is_some_and(|(&last, _)| last >= number);
        campus.await_true("traffic", || has_come(200));
        campus.faucet.kill();
        campus.await_true("end of Faucet", || {
            let controllers = ["vale0", "vale1"].map(|switch| campus.report(switch)["controllers"].clone());
            controllers.iter().all(|both| both[0]["is_connected"] == false && both[1]["is_connected"] == true)
        });
        let first = sent.load(Ordering::Relaxed);
        campus.await_true("traffic without Faucet", || has_come(first + 500));
        let without: Vec<u32> =
            came.lock().unwrap().range(first..first + 500).map(|(_, &times)| times).collect();
        assert_eq!(without, [1; 500], "each frame comes once without a controller");
        campus.faucet = controller(&campus.outside, campus.folder.path(), "faucet", 6653);
        campus.await_controllers();
        let again = sent.load(Ordering::Relaxed);
        campus.await_true("traffic with Faucet again", || has_come(again + 500));
    });
    let (sent, came) = (sent.into_inner(), came.into_inner().unwrap().len() as u64);
    let dropped = drops(campus) - drops_before;
    println!("{} of {sent} frames were lost while Faucet made its tables anew", sent - came);
    assert!(sent == came || dropped > 0, "{} frames are lost, and none is counted", sent - came);
    await_conserved(&campus.daemon);
}

/// Has the other threads end when this part ends, however that is.
struct Ending<'flag>(&'flag AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A cable between the switches breaks: Faucet hears of the port, and frames take the other cable.
fn take_the_other_cable(campus: &Campus) {
    let [from, to] = [&campus.hosts[0], &campus.hosts[2]];
    let sent_by = |cable: &str| campus.frames(&format!("vale0:{cable}")).1;
    let before = ["a3", "a4"].map(sent_by);
    (0..20).for_each(|_| assert!(from.ping(to.address).is_some()));
    let after = ["a3", "a4"].map(sent_by);
    let (broken, other) = if after[0] - before[0] >= 20 { ("a3", "a4") } else { ("a4", "a3") };
    let port = format!("port=\"{}\"", &broken[1..]);
    let is_up = || campus.metric(FAUCET_METRICS, "port_status", &["dp_name=\"sw1\"", &port]);
    assert_eq!(is_up(), Some(1.0));
    campus.outside.inside(|| set_up(broken, false).unwrap());
    campus.await_true("word of the broken cable", || is_up() == Some(0.0));
    from.await_ping(to.address);
    let before = sent_by(other);
    (0..20).for_each(|_| assert!(from.ping(to.address).is_some()));
    assert!(sent_by(other) - before >= 20, "frames do not take the other cable");
    campus.outside.inside(|| set_up(broken, true).unwrap());
    campus.await_true("word of the whole cable", || is_up() == Some(1.0));
    from.await_ping(to.address);
}

/// Gauge has the counters and flows that the switches have. Both change now and then, so they are read until they agree.
fn agree_with_gauge(campus: &Campus) {
    for (switch, dp, hosts) in [("vale0", "sw1", ["a1", "a2"]), ("vale1", "sw2", ["b1", "b2"])] {
        for (number, host) in ["1", "2"].into_iter().zip(hosts) {
            let gauge = |metric: &str| {
                let labels = [format!("dp_name=\"{dp}\""), format!("port=\"{number}\"")];
                campus.metric(GAUGE_METRICS, metric, &[&labels[0], &labels[1]])
            };
            let in_text = |counter: &str| {
                let text = std::fs::read_to_string(campus.folder.path().join("ports.txt")).ok()?;
                let name = format!("\t{dp}-{number}-{counter}\t");
                let line = text.lines().rfind(|line| line.contains(&name))?;
                line.rsplit('\t').next()?.parse().ok()
            };
            campus.await_true("agreement on the frames of a port", || {
                let (received, delivered) = campus.frames(&format!("{switch}:{host}"));
                let [received, delivered] = [received as f64, delivered as f64].map(Some);
                received > Some(0.0)
                    && [gauge("of_port_rx_packets"), in_text("packets-in")] == [received; 2]
                    && [gauge("of_port_tx_packets"), in_text("packets-out")] == [delivered; 2]
            });
        }
        campus.await_true("agreement on the flows", || {
            let mut own: Vec<_> = campus.flows(switch).iter().map(|flow| place(flow)).collect();
            own.sort_unstable();
            gauge_flows(campus.folder.path(), dp) == Some(own)
        });
    }
}

/// Table and priority of a flow that `ovs-ofctl` has printed.
fn place(flow: &str) -> (u64, u64) {
    let number = |name: &str, default: u64| {
        let Some((_, rest)) = flow.split_once(name) else { return default };
        let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap();
        digits.parse().unwrap()
    };
    (number("table=", 0), number("priority=", 32768))
}

/// The same of all flows of a switch, in order, by the last whole file that Gauge has written.
fn gauge_flows(folder: &Path, dp: &str) -> Option<Vec<(u64, u64)>> {
    let files = std::fs::read_dir(folder.join("flows")).unwrap().map(|file| file.unwrap().path());
    let is_of_dp = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().starts_with(dp);
    let last = files.filter(is_of_dp).max()?;
    let told: Value = serde_json::from_slice(&std::fs::read(last).unwrap()).ok()?;
    let flows = told["OFPFlowStatsReply"]["body"].as_array()?.iter().map(|flow| {
        let flow = &flow["OFPFlowStats"];
        (flow["table_id"].as_u64().unwrap(), flow["priority"].as_u64().unwrap())
    });
    let mut flows: Vec<_> = flows.collect();
    flows.sort_unstable();
    Some(flows)
}
