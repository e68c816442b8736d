//! Programs that send and receive by raw sockets, through a TAP that is a port of a switch.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use ringroad::Port;
use ringroad_tests::command::{run, stderr};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{numbered, receive_from, send, station};
use ringroad_tests::network::{NetworkNamespace, finished, is_root};

/// A switch with a program's port, and a TAP `raw0` in a namespace.
struct Testbed {
    machine: NetworkNamespace,
    daemon: Daemon,
    port: Port,
}

impl Testbed {
    fn new() -> Self {
        let machine = NetworkNamespace::new();
        // The kernel's stack sends no frames of its own on the interface.
        machine.set("net/ipv6/conf/default/disable_ipv6", "1");
        let daemon = Daemon::within(&machine);
        let attached =
            run(daemon.ringroad_within(&machine, &["attach", "vale0:raw", "--driver", "tap:raw0"]));
        assert!(attached.status.success(), "{}", stderr(&attached));
        let port = daemon.open("vale0:port");
        Self { machine, daemon, port }
    }

    fn expect(&mut self, count: u64, frame: impl Fn(u64) -> Vec<u8>) {
        for number in 0..count {
            assert_eq!(receive_from(&mut self.port, station(1)), frame(number));
        }
        await_conserved(&self.daemon);
    }
}

fn frame(number: u64) -> Vec<u8> {
    numbered(station(2), station(1), number, 60 + number as usize)
}

#[test]
fn tcpreplay_sends_a_capture_and_tcpdump_sees_frames() {
    if !is_root() {
        return;
    }
    let mut site = Testbed::new();
    let file = site.daemon.folder().join("frames.pcap").display().to_string();
    let mut capture = Port::open(&format!("pcap:out={file}")).unwrap();
    for number in 0..100 {
        send(&mut capture, &frame(number));
    }
    capture.tx().sync().unwrap();
    drop(capture);
    site.machine.run(&["tcpreplay", "--intf1=raw0", "--topspeed", &file]);
    site.expect(100, frame);

    let arguments =
        ["tcpdump", "-i", "raw0", "-nn", "-c", "5", "--immediate-mode", "-l", "ether", "proto", "0x88b5"];
    let mut dump = site.machine.start(&arguments, "");
    // tcpdump prints nothing when it is ready.
    while dump.is_running() {
        send(&mut site.port, &numbered(station(1), station(2), 0, 60));
        site.port.tx().sync().unwrap();
        std::thread::yield_now();
    }
    assert!(dump.await_end().0.success());
}

#[test]
fn trafgen_and_scapy_send_the_configured_frames() {
    if !is_root() {
        return;
    }
    let mut site = Testbed::new();
    let bytes: Vec<String> = frame(0).iter().map(|byte| format!("{byte:#04x}")).collect();
    let recipe = site.daemon.folder().join("frames.cfg").display().to_string();
    std::fs::write(&recipe, format!("{{ {} }}\n", bytes.join(", "))).unwrap();
    site.machine.run(&["trafgen", "--dev", "raw0", "--conf", &recipe, "--num", "20", "--cpus", "1"]);
    site.expect(20, |_| frame(0));

    let hexadecimal: String = frame(7).iter().map(|byte| format!("{byte:02x}")).collect();
    let program = format!(
        "from scapy.all import Raw, conf, sendp; conf.verb = 0\n\
         sendp(Raw(bytes.fromhex('{hexadecimal}')), iface='raw0', count=5)"
    );
    let mut scapy = Command::new("ip");
    scapy.args(["netns", "exec", site.machine.name(), "/usr/bin/python3", "-c", &program]);
    finished(&mut scapy);
    site.expect(5, |_| frame(7));
}
