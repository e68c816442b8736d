//! Two switches joined by two cables as a Faucet stack, with hosts in two VLANs, under Faucet and Gauge.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ringroad_netdev::link_change::{VethEnd, add_address, create_veth, set_up};
use ringroad_netdev::link_monitor::wait_running;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{run, stderr};
use crate::daemon::{Daemon, PATIENCE};
use crate::network::{NetworkNamespace, cable, finished};
use crate::service::Service;

/// Faucet's configuration: hosts of two VLANs on each of two switches, which have two cables between them. Hosts of one
/// VLAN may not send UDP to port 9. They reach the other VLAN through Faucet's addresses. Only the port states declare
/// a cable broken, since on a busy machine many beacons in a row may be late.
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
    packetin_pps: 1000
    slowpath_pps: 1000
    lldp_beacon: {send_interval: 1, max_per_interval: 10}
    interfaces:
      1: {native_vlan: office, acls_in: [no_port_9]}
      2: {native_vlan: lab}
      3: {stack: {dp: sw2, port: 3}, max_lldp_lost: 120}
      4: {stack: {dp: sw2, port: 4}, max_lldp_lost: 120}
  sw2:
    dp_id: 0x2
    hardware: "Generic"
    lldp_beacon: {send_interval: 1, max_per_interval: 10}
    interfaces:
      1: {native_vlan: office, acls_in: [no_port_9]}
      2: {native_vlan: lab}
      3: {stack: {dp: sw1, port: 3}, max_lldp_lost: 120}
      4: {stack: {dp: sw1, port: 4}, max_lldp_lost: 120}
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

/// Second byte of the addresses of a VLAN.
pub const OFFICE: u8 = 100;
const LAB: u8 = 200;
/// Addresses at which Faucet and Gauge listen, in the namespace of the test.
const CONTROLLERS: [&str; 2] = ["tcp:127.0.0.1:6653", "tcp:127.0.0.1:6654"];
/// TCP port of Faucet's metrics.
pub const FAUCET_METRICS: u16 = 9302;
/// TCP port of Gauge's metrics.
pub const GAUGE_METRICS: u16 = 9303;
/// Faucet's value for a cable between switches that carries frames (`STACK_STATE_UP`).
const STACKED: f64 = 3.0;

/// A machine in a VLAN.
#[derive(Debug)]
pub struct Host {
    /// Namespace of the host.
    pub namespace: NetworkNamespace,
    /// IPv4 address of the host.
    pub address: Ipv4Addr,
}

impl Host {
    /// Makes a host that a cable joins to `outer` in the namespace `outside`. Faucet is its router.
    fn new(outside: &NetworkNamespace, outer: &str, vlan: u8, number: u8) -> Self {
        let namespace = NetworkNamespace::new();
        namespace.set("net/ipv6/conf/default/disable_ipv6", "1");
        cable(outside, outer, &namespace, "eth0", 1500, 1);
        let address = Ipv4Addr::new(10, vlan, 0, number);
        namespace.inside(|| add_address("eth0", IpAddr::V4(address), 24).unwrap());
        namespace.run(&["ip", "route", "add", "default", "via", &format!("10.{vlan}.0.254")]);
        Self { namespace, address }
    }

    /// Opens a UDP socket whose reads end after the tests' time limit.
    #[must_use]
    pub fn socket(&self, port: u16) -> UdpSocket {
        let socket = self.namespace.inside(|| UdpSocket::bind((self.address, port)).unwrap());
        socket.set_read_timeout(PATIENCE).unwrap();
        socket
    }

    /// Sends one ping. Returns the TTL of the reply, or `None` if no reply comes within a second.
    #[must_use]
    pub fn ping(&self, other: Ipv4Addr) -> Option<u8> {
        let printed =
            self.namespace.command(&["ping", "-n", "-c", "1", "-W", "1", &other.to_string()]).output();
        let printed = String::from_utf8(printed.unwrap().stdout).unwrap();
        let ttl = printed.split_once("ttl=")?.1.split(' ').next()?;
        ttl.parse().ok()
    }

    /// Sends pings until one is answered. Returns the TTL of the reply.
    ///
    /// # Panics
    /// If no ping is answered within the time limit.
    pub fn await_ping(&self, other: Ipv4Addr) -> u8 {
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
#[derive(Debug)]
pub struct Campus {
    // Fields are dropped in this order.
    /// The process of Faucet.
    pub faucet: Service,
    _gauge: Service,
    /// Daemon with both switches, `vale0` (`sw1`) and `vale1` (`sw2`).
    pub daemon: Daemon,
    /// Hosts in this order: `office` and `lab` at the first switch, then both at the second.
    pub hosts: Vec<Host>,
    /// Folder with the files of the controllers.
    pub folder: TempDir,
    /// Namespace of the daemon, the controllers and the cables' outer ends.
    pub outside: NetworkNamespace,
}

impl Campus {
    /// Starts the daemon, the hosts and the controllers.
    #[must_use]
    pub fn start() -> Self {
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
                    outside.send_complete_frames(end);
                    set_up(end, true).unwrap();
                }
                wait_running(one, PATIENCE.unwrap()).unwrap();
                wait_running(other, PATIENCE.unwrap()).unwrap();
            }
        });
        // Port numbers follow the order of attachment.
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
            let printed = run(campus.daemon.ringroad(&arguments));
            assert!(printed.status.success(), "{}", stderr(&printed));
        }
        campus.await_controllers();
        campus.await_stack();
        campus
    }

    /// Returns the report of `ringroad switch` about a switch.
    ///
    /// # Panics
    /// If the command fails.
    #[must_use]
    pub fn report(&self, switch: &str) -> Value {
        let printed = run(self.daemon.ringroad(&["--json", "switch", switch]));
        assert!(printed.status.success(), "{}", stderr(&printed));
        let reports: Value = serde_json::from_slice(&printed.stdout).unwrap();
        reports[0].clone()
    }

    /// Polls until the condition holds.
    ///
    /// # Panics
    /// If the time limit passes first.
    pub fn await_true(&self, what: &str, mut requested: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE.unwrap();
        while !requested() {
            assert!(Instant::now() < end, "no {what}: {:#} {:#}", self.report("vale0"), self.report("vale1"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until each switch is connected to both controllers.
    pub fn await_controllers(&self) {
        self.await_true("connection to both controllers", || {
            let controllers = ["vale0", "vale1"].map(|switch| self.report(switch)["controllers"].clone());
            controllers.iter().all(|both| both[0]["is_connected"] == true && both[1]["is_connected"] == true)
        });
    }

    /// Waits until Faucet has found both cables. Faucet has then rebuilt its tables for the last time.
    pub fn await_stack(&self) {
        self.await_true("cables between the switches", || {
            ["sw1", "sw2"].iter().all(|switch| {
                [3, 4].iter().all(|port| {
                    let parts = [format!("dp_name=\"{switch}\""), format!("port=\"{port}\"")];
                    self.metric(FAUCET_METRICS, "port_stack_state", &parts.each_ref().map(String::as_str))
                        == Some(STACKED)
                })
            })
        });
    }

    /// Returns the flows of a switch, as `ovs-ofctl` prints them.
    #[must_use]
    pub fn flows(&self, switch: &str) -> Vec<String> {
        let mut command = Command::new("ovs-ofctl");
        let socket = self.daemon.folder().join(format!("{switch}.mgmt"));
        command.args(["-O", "OpenFlow13", "dump-flows"]).arg(format!("unix:{}", socket.display()));
        finished(&mut command).lines().skip(1).map(str::to_owned).collect()
    }

    /// Returns the value of a metric from a controller's Prometheus client, from the line that contains all these
    /// parts.
    #[must_use]
    pub fn metric(&self, port: u16, metric: &str, parts: &[&str]) -> Option<f64> {
        let printed = self.outside.inside(|| {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE.unwrap()).ok()?;
            stream.set_read_timeout(PATIENCE).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
            let mut printed = String::new();
            stream.read_to_string(&mut printed).ok()?;
            Some(printed)
        })?;
        let line = printed.lines().find(|line| {
            line.split(['{', ' ']).next() == Some(metric) && parts.iter().all(|part| line.contains(part))
        })?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// Starts Faucet again after its end.
    pub fn restart_faucet(&mut self) {
        self.faucet = controller(&self.outside, self.folder.path(), "faucet", 6653);
    }

    /// Numbers of received and delivered frames of a port, as the daemon counts them.
    #[must_use]
    pub fn frames(&self, port: &str) -> (u64, u64) {
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
    // Faucet runs another program of its folder by name, found through PATH.
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let file = |what: &str| folder.join(format!("{name}{what}"));
    let upper = name.to_uppercase();
    command.env(format!("{upper}_CONFIG"), file(".yaml")).env(format!("{upper}_LOG"), file(".log"));
    command.env(format!("{upper}_EXCEPTION_LOG"), file(".exceptions"));
    command.env(format!("{upper}_PROMETHEUS_ADDR"), "127.0.0.1");
    command.env(format!("{upper}_PROMETHEUS_PORT"), FAUCET_METRICS.to_string());
    Service::start(command)
}
