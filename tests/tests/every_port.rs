//! Every kind of port, attached in every way, exists after an upgrade and after a kill.
//!
//! The catalogue (`ringroad kinds`) lists the kinds. A kind without a line in [`ways`] fails the test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ringroad::control::Connection;
use ringroad::control::message::{Mirror, Reply, Request};
use ringroad::control::report::PortReport;
use ringroad_capture::{CaptureFormat, CaptureWriter};
use ringroad_tests::command::{run, stderr};
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{numbered, send, station};
use ringroad_tests::network::{NetworkNamespace, cable, is_root};
use serde_json::Value;

const ALL: [u8; 6] = [0xff; 6];

/// The daemon, with the namespaces and files that the ports of a test need.
struct Testbed {
    outside: NetworkNamespace,
    station: NetworkNamespace,
    daemon: Daemon,
    interfaces: u32,
}

/// A way to attach a port: the words after `ringroad attach`.
struct Way {
    words: Vec<String>,
    /// Whether the command runs in the station's namespace.
    is_at_station: bool,
}

impl Testbed {
    fn new() -> Self {
        let (outside, station) = (NetworkNamespace::new(), NetworkNamespace::new());
        let daemon = Daemon::within(&outside);
        Self { outside, station, daemon, interfaces: 0 }
    }

    /// Makes an interface with this many queues in the daemon's namespace. Its far end is at the station.
    fn interface(&mut self, queues: u32) -> String {
        self.interfaces += 1;
        let name = format!("i{}", self.interfaces);
        let far = format!("f{}", self.interfaces);
        cable(&self.outside, &name, &self.station, &far, 1500, queues);
        name
    }

    /// A path that no other port has.
    fn path(&mut self, ending: &str) -> String {
        self.interfaces += 1;
        let path = self.daemon.folder().join(format!("{}.{ending}", self.interfaces));
        path.display().to_string()
    }

    /// Makes a capture file with one frame.
    fn capture(&mut self) -> String {
        let path = self.path("pcap");
        let mut writer = CaptureWriter::create(Path::new(&path), CaptureFormat::Pcap, 0).unwrap();
        writer.write_frame(0, &numbered(ALL, station(200), 0, 60), 60).unwrap();
        writer.finish().unwrap();
        path
    }

    fn ringroad(&self, words: &[&str]) {
        succeed(self.daemon.ringroad_within(&self.outside, words), words);
    }

    fn attach(&self, way: &Way) {
        let words: Vec<&str> = ["attach"].into_iter().chain(way.words.iter().map(String::as_str)).collect();
        let end = if way.is_at_station { &self.station } else { &self.outside };
        succeed(self.daemon.ringroad_within(end, &words), &words);
    }
}

fn succeed(command: std::process::Command, words: &[&str]) {
    let output = run(command);
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
}

/// Returns every way to attach a port of the kind whose names have the form `form`. `port` makes an unused port name on
/// a switch.
fn ways(site: &mut Testbed, form: &str, port: &mut dyn FnMut(&str) -> String) -> Vec<Way> {
    let mut ways = Vec::new();
    let mut add = |name: String, words: &[&str]| {
        let words = std::iter::once(name).chain(words.iter().map(|word| (*word).to_owned())).collect();
        ways.push(Way { words, is_at_station: false });
    };
    match form {
        "eth0" => {
            let [plain, hosted, sized, open] = [1, 1, 2, 1].map(|queues| site.interface(queues));
            add(format!("vale1:{plain}"), &[]);
            add(format!("vale1:{hosted}"), &["--host"]);
            add(port("vale1"), &["--driver", &format!("{sized}@ring-size=64"), "--queues", "2"]);
            add(port("vale2") + "@vlan=10,isolated,storm=1000", &["--driver", &open]);
        }
        "xdp:eth0" => {
            let [plain, hosted, first, second, generic, flows] = [(); 6].map(|()| site.interface(1));
            add(port("vale1"), &["--driver", &format!("xdp:{plain}@mode=native,ring-size=128")]);
            add(
                port("vale2") + "@trunk=10,20-22,native=5",
                &["--driver", &format!("xdp:{hosted}"), "--host"],
            );
            // The port with the region has a name that sorts last, although the other port needs it.
            let home = port("vale1").replace("vale1:", "vale1:z");
            add(home.clone(), &["--driver", &format!("xdp:{first}")]);
            add(port("vale1") + &format!("@share={home}"), &["--driver", &format!("xdp:{second}"), "--host"]);
            add(port("vale1"), &["--driver", &format!("xdp:{generic}@mode=generic")]);
            add(port("vale3"), &["--driver", &format!("xdp:{flows}"), "--host"]);
        }
        "packet:eth0" => {
            let [plain, hosted, sized, flows] = [1, 1, 2, 1].map(|queues| site.interface(queues));
            add(port("vale1"), &["--driver", &format!("packet:{plain}")]);
            add(port("vale1"), &["--driver", &format!("packet:{hosted}@immediate=1"), "--host"]);
            add(port("vale2") + "@vlan=10", &["--driver", &format!("packet:{sized}@fanout=cpu,queues=2")]);
            add(port("vale3"), &["--driver", &format!("packet:{flows}")]);
        }
        "eth0^" => {
            let [named, driven] = [(); 2].map(|()| site.interface(1));
            add(format!("vale1:{named}^"), &[]);
            add(port("vale2") + "@vlan=10", &["--driver", &format!("{driven}^@offloads=0"), "--take"]);
        }
        "veth:rrc0" => {
            let [plain, vlan] = [(); 2].map(|()| site.interface(1));
            add(port("vale1"), &["--driver", &format!("veth:{plain}")]);
            add(port("vale2") + "@vlan=20", &["--driver", &format!("veth:{vlan}@offloads=0")]);
        }
        "tap:t0" => {
            add(port("vale1"), &["--driver", "tap:tap0"]);
            add(
                port("vale1"),
                &["--driver", "tap:tap1@persist,mtu=2000,mac=02:00:00:00:99:01", "--queues", "2"],
            );
            add(port("vale2") + "@trunk=all", &["--driver", "tap:tap2@offloads=0"]);
            let netns = site.station.name().to_owned();
            add(port("vale1"), &["--driver", "tap:tap3", "--netns", &netns]);
        }
        "vhost-user:SOCKET" => {
            let [server, client, sized] = [(); 3].map(|()| site.path("vhost"));
            add(port("vale1"), &["--driver", &format!("vhost-user:{server}@offloads=0,packed=0")]);
            add(port("vale1"), &["--driver", &format!("vhost-user:{client}@role=client")]);
            add(port("vale2") + "@vlan=10", &["--driver", &format!("vhost-user:{sized}"), "--queues", "2"]);
        }
        "virtio-user:SOCKET" => {
            let [client, server] = [(); 2].map(|()| site.path("virtio"));
            add(port("vale1"), &["--driver", &format!("virtio-user:{client}")]);
            let server = format!("virtio-user:{server}@role=server,mac=02:00:00:00:99:02,ring-size=256");
            add(port("vale2") + "@vlan=10", &["--driver", &server]);
        }
        "memif:SOCKET" => {
            let [server, client] = [(); 2].map(|()| site.path("memif"));
            let server = format!("memif:{server}@id=3,secret=sesame,ring-size=512,socket-mode=660");
            add(port("vale1"), &["--driver", &server]);
            add(
                port("vale2") + "@vlan=10",
                &["--driver", &format!("memif:{client}@role=client"), "--queues", "2"],
            );
        }
        "dgram:SOCKET" => {
            let socket = site.path("dgram");
            add(port("vale1"), &["--driver", &format!("dgram:{socket}@socket-mode=660")]);
        }
        "stream:SOCKET" => {
            let [client, server] = [(); 2].map(|()| site.path("stream"));
            add(port("vale1"), &["--driver", &format!("stream:{client}")]);
            let server = format!("stream:{server}@role=server,socket-mode=660");
            add(port("vale2") + "@vlan=10", &["--driver", &server]);
        }
        "sze2:SOCKET" => {
            let card = site.path("sze2");
            let sizes = "channels=2,buffer=1M,block=256K,metadata=1,mac=02:00:00:00:99:03";
            add(port("vale1"), &["--driver", &format!("sze2:{card}@{sizes}")]);
        }
        "szedata:SOCKET" => {
            // The card's name sorts last, although the card must exist first.
            let card = site.path("sze2");
            add(port("vale1").replace("vale1:", "vale1:z"), &["--driver", &format!("sze2:{card}")]);
            add(port("vale4"), &["--driver", &format!("szedata:{card}@channel=1")]);
        }
        "null:size=60,copy=0,no-rx=0" => {
            add(port("vale1"), &["--driver", "null:no-rx=1,copy=1"]);
            add(port("vale2") + "@vlan=30", &["--driver", "null:size=100,no-rx=1"]);
        }
        "pcap:FILE" => {
            let [input, second] = [(); 2].map(|()| site.capture());
            let [output, third] = [(); 2].map(|()| site.path("pcap"));
            add(port("vale1"), &["--driver", &format!("pcap:{input}")]);
            add(port("vale1"), &["--driver", &format!("pcap:out={output}")]);
            add(port("vale2") + "@vlan=10", &["--driver", &format!("pcap:in={second},out={third}")]);
        }
        other => panic!("the catalogue has ports like {other}: say here how they are attached"),
    }
    ways
}

/// Properties that a port must keep.
fn lasting(port: &PortReport) -> Value {
    let link = port.link.as_ref().map(|link| (&link.interface, &link.netns));
    serde_json::json!({
        "kind": port.kind, "mode": port.mode, "switch": port.switch, "index": port.index, "persistent": port.persistent,
        "queues": port.queues, "slots": port.slots, "buffer_bytes": port.buffer_bytes, "settings": port.settings,
        "link": link, "error": port.error, "notes": port.notes,
    })
}

fn attached(ports: &[PortReport]) -> BTreeMap<String, Value> {
    let ports = ports.iter().filter(|port| port.persistent);
    ports.map(|port| (port.name.clone(), lasting(port))).collect()
}

/// Removes the notes: they are about the opening of a device, for example that its TAP existed already.
fn without_notes(mut ports: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    ports.values_mut().for_each(|port| drop(port.as_object_mut().unwrap().remove("notes")));
    ports
}

/// Checks that the attached ports are as before, and shows those that are not.
fn assert_as_before(now: &BTreeMap<String, Value>, before: &BTreeMap<String, Value>) {
    let differ = |name: &&String| before.get(*name) != now.get(*name);
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).filter(differ).collect();
    let shown =
        names.iter().map(|name| format!("{name}: {:?}\n  now {:?}", before.get(*name), now.get(*name)));
    assert!(names.is_empty(), "{}", shown.collect::<Vec<_>>().join("\n"));
}

/// Settings of the switches beyond their ports.
fn switch_settings(daemon: &Daemon) -> (Vec<Mirror>, Vec<String>, Vec<String>) {
    let Reply::Mirrors(mirrors) = daemon.ask(&Request::Mirrors) else { panic!("no mirrors") };
    let addresses = Connection::connect(daemon.socket()).unwrap().mac_table("vale1").unwrap();
    let addresses = addresses.into_iter().filter(|entry| entry.is_static);
    let addresses = addresses.map(|entry| format!("{} on {}", entry.mac, entry.port)).collect();
    let Reply::OpenFlow(openflow) = daemon.ask(&Request::OpenFlow) else { panic!("no flow tables") };
    (mirrors, addresses, openflow.into_iter().map(|report| report.settings.switch).collect())
}

/// Number of frames that a port took from its switch or dropped.
fn reached(port: &PortReport) -> u64 {
    port.counters.delivered_frames + port.counters.drops.values().sum::<u64>()
}

/// Waits until a frame for all stations has reached each port of a switch without VLANs.
fn flood(daemon: &Daemon) {
    let mut probe = daemon.open("vale1:probe");
    let before: BTreeMap<String, u64> =
        daemon.status().ports.iter().map(|port| (port.name.clone(), reached(port))).collect();
    send(&mut probe, &numbered(ALL, station(201), 7, 60));
    probe.tx().sync().unwrap();
    daemon.await_status("frame for all at each port of the switch", |status| {
        let others = status.ports.iter().filter(|port| port.switch.as_deref() == Some("vale1"));
        let mut others = others.filter(|port| port.name != "vale1:probe");
        others.all(|port| reached(port) > before[&port.name])
    });
}

#[test]
fn each_way_to_attach_each_kind_of_port_outlives_an_upgrade_and_a_kill() {
    if !is_root() {
        return;
    }
    let mut site = Testbed::new();
    let printed = run(site.daemon.ringroad(&["--json", "kinds"]));
    let kinds: Vec<Value> = serde_json::from_slice(&printed.stdout).unwrap();
    site.ringroad(&["switch", "vale3", "--openflow"]);
    let mut number = 0;
    let mut port = |switch: &str| {
        number += 1;
        format!("{switch}:p{number}")
    };
    let mut how: Vec<(String, Way)> = Vec::new();
    for kind in &kinds {
        let form = kind["form"].as_str().unwrap();
        let ways = ways(&mut site, form, &mut port);
        assert!(!ways.is_empty(), "{form}");
        for way in ways {
            site.attach(&way);
            how.push((form.to_owned(), way));
        }
    }
    // Ports of programs, and a port in the namespace in which the command runs.
    let plain = |words: &[&str]| Way {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        is_at_station: false,
    };
    let inner = {
        site.interface(1);
        Way { words: vec![format!("vale1:f{}", site.interfaces)], is_at_station: true }
    };
    for way in [
        plain(&["vale1:later@slots=64,queues=2", "--for-program"]),
        plain(&["vale2:later@vlan=10", "--for-program", "--buf-size", "4096"]),
        plain(&["vale1:gone", "--for-program"]),
        inner,
    ] {
        site.attach(&way);
        how.push(("vale0:a".to_owned(), way));
    }
    // The indexes of the other ports now differ from those that a new switch would give.
    site.ringroad(&["detach", "vale1:gone"]);
    how.retain(|(_, way)| way.words[0] != "vale1:gone");
    site.ringroad(&["port", "vale2:later@vlan=20,isolated"]);
    site.ringroad(&["mirror", "vale1:later", "--to", "vale1:p1", "--direction", "delivered"]);
    site.ringroad(&["macs", "vale1", "--set", "02:00:00:00:aa:01=later"]);

    let (before, settings) = (attached(&site.daemon.status().ports), switch_settings(&site.daemon));
    let expected: usize =
        how.iter().map(|(_, way)| 1 + usize::from(way.words.iter().any(|word| word == "--host"))).sum();
    assert_eq!(before.len(), expected, "{before:#?}");
    assert_eq!((settings.0.len(), settings.1.len(), settings.2.len()), (1, 1, 1));
    // Ports that end with their programs are kept by an upgrade.
    let netns = format!("@netns={}", site.outside.name());
    let [device, watched] = [(); 2].map(|()| site.interface(1));
    let of_interfaces =
        [format!("xdp:{device}"), format!("packet:{watched}"), format!("{watched}^"), "tap:tap9".into()];
    let of_interfaces = of_interfaces.map(|name| name + &netns);
    let others = ["vale1:prog@queues=2", "x{1", "x}1", "vale3:prog"].map(str::to_owned);
    let mut programs: Vec<_> =
        of_interfaces.iter().chain(&others).map(|name| site.daemon.open(name)).collect();
    let all = site.daemon.status().ports.len();

    flood(&site.daemon);
    let mut report = Value::Null;
    for _ in 0..2 {
        report = site.daemon.upgrade();
        assert_eq!(
            (&report["lost"], &report["waiting"]),
            (&serde_json::json!([]), &serde_json::json!({})),
            "{report}"
        );
        // Both ends of a pipe are one port in the report.
        let reopened = report["reopened"].as_array().unwrap().len();
        assert_eq!(report["kept"].as_u64().unwrap() as usize + reopened, all - 1, "{report}");
        let ports = site.daemon.status().ports;
        assert_eq!(ports.len(), all);
        assert_as_before(&attached(&ports), &before);
        assert_eq!(switch_settings(&site.daemon), settings);
        flood(&site.daemon);
    }
    programs.clear();
    site.daemon.await_status("no programs", |status| status.ports.iter().all(|port| port.persistent));

    let before = without_notes(before);
    site.daemon.crash_and_restart();
    site.daemon.await_status("ports as before", |status| status.waiting.is_empty());
    assert_as_before(&without_notes(attached(&site.daemon.status().ports)), &before);
    assert_eq!(switch_settings(&site.daemon), settings);
    flood(&site.daemon);
    // A daemon that restored the ports passes them on to its successor.
    site.daemon.upgrade();
    assert_as_before(&without_notes(attached(&site.daemon.status().ports)), &before);
    let reopened: Vec<&str> =
        report["reopened"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    println!("{:<28} {:<10} {:<10} {:<10} attached by", "kind", "port", "upgrade", "kill");
    for (form, way) in &how {
        let name = way.words[0].split('@').next().unwrap();
        let upgrade = if reopened.contains(&name) { "reopened" } else { "kept" };
        println!("{form:<28} {name:<10} {upgrade:<10} {:<10} {}", "restored", way.words.join(" "));
    }
}
