//! Flow tables compared with those of Open vSwitch: both switches get the same random flows and the same frames, and
//! every frame has to leave by the same ports with the same bytes, checksums included.
//!
//! `random_flows` lists what the flows avoid. The frames avoid what the two switches treat differently:
//!
//! - Later fragments of a packet: in Open vSwitch their ports are zero, here they have none.
//! - IP packets with an invalid header: Open vSwitch sees addresses of zeros, here there is no IP header.
//! - A TTL that becomes zero: here the frame is dropped, and in Open vSwitch it still has the action set that earlier
//!   tables wrote.
//!
//! `RINGROAD_OPENFLOW_ROUNDS` is the number of rounds, each with other flows, and `RINGROAD_OPENFLOW_SEED` the seed of
//! the first one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write;
use std::process::Command;

use ringroad::Port;
use ringroad_tests::command::{run, stderr};
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{receive, send};
use ringroad_tests::open_vswitch::{OpenVSwitch, Plug};
use ringroad_tests::random::Random;
use ringroad_tests::random_flows::{GROUPS, LAST_FLOWS, PORTS, STATIONS, flows, mac};

const ROUNDS: u64 = 8;
const FLOWS_A_TABLE: u32 = 40;
const FRAMES_A_ROUND: usize = 400;
/// Type of the frames that say that all frames before them have left.
const MARKER_TYPE: [u8; 2] = [0x88, 0xb6];
/// Entry that sends such a frame out of every port.
const MARKER_FLOW: &str =
    "table=0,priority=65535,dl_type=0x88b6 actions=output:1,output:2,output:3,output:4,IN_PORT";

/// A switch with four ports.
trait ComparedSwitch {
    /// Runs `ovs-ofctl` with a verb, for this switch, and a file.
    fn ofctl(&self, verb: &str, file: &str);
    /// Waits until frames meet the new flows.
    fn settle(&self);
    fn send(&mut self, port: usize, frame: &[u8]);
    fn receive(&mut self, port: usize) -> Vec<u8>;
}

struct Ours {
    daemon: Daemon,
    ports: Vec<Port>,
}

impl ComparedSwitch for Ours {
    fn ofctl(&self, verb: &str, file: &str) {
        let socket = format!("unix:{}", self.daemon.folder().join("vale0.mgmt").display());
        let mut command = Command::new("ovs-ofctl");
        command.env("OVS_RUNDIR", self.daemon.folder()).args(["-O", "OpenFlow13", verb, &socket, file]);
        let printed = run(command);
        assert!(printed.status.success(), "{verb}: {}", stderr(&printed));
    }
    // ovs-ofctl ends with a barrier.
    fn settle(&self) {}
    fn send(&mut self, port: usize, frame: &[u8]) {
        send(&mut self.ports[port], frame);
        self.ports[port].tx().sync().unwrap();
    }
    fn receive(&mut self, port: usize) -> Vec<u8> {
        receive(&mut self.ports[port])
    }
}

struct Theirs {
    ovs: OpenVSwitch,
    plugs: Vec<Plug>,
}

impl ComparedSwitch for Theirs {
    fn ofctl(&self, verb: &str, file: &str) {
        self.ovs.ofctl(verb, &[file]);
    }
    fn settle(&self) {
        self.ovs.settle();
    }
    fn send(&mut self, port: usize, frame: &[u8]) {
        self.plugs[port].send(frame);
    }
    fn receive(&mut self, port: usize) -> Vec<u8> {
        self.plugs[port].receive()
    }
}

/// Frames that left for one frame: the index of the port, and the bytes. Sorted.
type Outputs = Vec<(usize, Vec<u8>)>;

/// Sends each frame by the port with its index. Returns what leaves for each.
fn forward(switch: &mut dyn ComparedSwitch, frames: &[Vec<u8>]) -> Vec<Outputs> {
    for (port, frame) in frames.iter().enumerate() {
        switch.send(port, frame);
        switch.send(port, &[&[2; 12][..], &MARKER_TYPE, &[0; 46]].concat());
    }
    let mut outputs = vec![Outputs::new(); frames.len()];
    for port in 0..PORTS as usize {
        let mut markers = 0;
        while markers < frames.len() {
            let frame = switch.receive(port);
            match frame.last() {
                _ if frame[12..14] == MARKER_TYPE => markers += 1,
                Some(&number) => outputs[usize::from(number)].push((port, frame)),
                None => panic!("an empty frame"),
            }
        }
    }
    outputs.iter_mut().for_each(|outputs| outputs.sort());
    outputs
}

/// Both switches.
struct SwitchPair {
    switches: [Box<dyn ComparedSwitch>; 2],
    folder: tempfile::TempDir,
}

impl SwitchPair {
    fn new() -> Self {
        let ovs = OpenVSwitch::start(PORTS);
        let plugs = (1..=PORTS).map(|port| ovs.plug(port)).collect();
        let daemon = Daemon::start();
        let ports = ["vale0:a", "vale0:b", "vale0:c", "vale0:d"].map(|name| daemon.open(name)).into();
        assert!(run(daemon.ringroad(&["switch", "vale0", "--openflow"])).status.success());
        let folder = tempfile::tempdir().unwrap();
        let this =
            Self { switches: [Box::new(Ours { daemon, ports }), Box::new(Theirs { ovs, plugs })], folder };
        this.all("add-groups", GROUPS);
        this
    }

    /// Gives both switches a file with this text.
    fn all(&self, verb: &str, text: &str) {
        let file = self.folder.path().join("file");
        std::fs::write(&file, text).unwrap();
        self.switches.iter().for_each(|switch| switch.ofctl(verb, file.to_str().unwrap()));
    }

    fn set_flows(&self, flows: &[String]) {
        self.all("replace-flows", &format!("{MARKER_FLOW}\n{LAST_FLOWS}{}\n", flows.join("\n")));
        self.switches.iter().for_each(|switch| switch.settle());
    }

    /// Sends each frame by the port with its index into both switches. Returns what leaves for each, ours first.
    fn forward(&mut self, frames: &[Vec<u8>]) -> [Vec<Outputs>; 2] {
        self.switches.each_mut().map(|switch| forward(&mut **switch, frames))
    }

    /// Whether the switches differ on a frame, with these flows.
    fn differ(&mut self, flows: &[String], port: usize, frame: &[u8]) -> bool {
        self.set_flows(flows);
        // The other ports get a frame that matches no flow.
        let frames: Vec<_> = (0..PORTS as usize)
            .map(|other| {
                if other == port {
                    frame.to_vec()
                } else {
                    marked([&[2; 12][..], &[0x88, 0xb7], &[0; 46]].concat(), other)
                }
            })
            .collect();
        let [ours, theirs] = self.forward(&frames);
        ours[port] != theirs[port]
    }

    /// Leaves out as many flows as possible with which the switches still differ on a frame.
    fn smallest(&mut self, mut flows: Vec<String>, port: usize, frame: &[u8]) -> Vec<String> {
        let mut piece = flows.len().div_ceil(2);
        while piece > 0 {
            let mut at = 0;
            while at < flows.len() {
                let mut fewer = flows.clone();
                fewer.drain(at..(at + piece).min(flows.len()));
                match self.differ(&fewer, port, frame) {
                    true => flows = fewer,
                    false => at += piece,
                }
            }
            piece /= 2;
        }
        flows
    }
}

/// Writes the number of a frame to its last byte, where no action changes it.
fn marked(mut frame: Vec<u8>, number: usize) -> Vec<u8> {
    *frame.last_mut().unwrap() = number as u8;
    frame
}

/// Internet checksum of some bytes (RFC 1071).
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let bytes = parts.concat();
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| low.into()));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!sum as u16).to_be_bytes()
}

/// CRC-32C of an SCTP packet (RFC 9260, appendix A).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

/// A header of the transport with its payload, whose checksum is right behind these addresses.
fn transport(random: &mut Random, protocol: u8, addresses: &[u8], number: usize) -> Vec<u8> {
    let port = |random: &mut Random| [80u16, 53, 1000, 1001, 1009][random.below(5) as usize].to_be_bytes();
    let ports = [port(random), port(random)].concat();
    let payload = random.below(300) as usize;
    let mut payload: Vec<u8> = (0..payload).map(|_| random.below(256) as u8).collect();
    payload.push(number as u8);
    let mut packet = match protocol {
        6 => [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 4, 0, 0, 0, 0, 0], &payload].concat(),
        17 => [&ports[..], &(8 + payload.len() as u16).to_be_bytes(), &[0, 0], &payload].concat(),
        132 => [&ports[..], &[1, 2, 3, 4, 0, 0, 0, 0], &payload].concat(),
        58 => [&[128, 0, 0, 0, 0, 1, 0, 2][..], &payload].concat(),
        _ => [&[8, 0, 0, 0, 0, 1, 0, 2][..], &payload].concat(),
    };
    let pseudo_header = [addresses, &(packet.len() as u32).to_be_bytes(), &[0, 0, 0, protocol]].concat();
    let sum = match protocol {
        1 => checksum(&[&packet]),
        // The sender of a UDP packet in IPv4 may leave the checksum out (RFC 768).
        17 if addresses.len() == 8 && random.one_of(4) => [0, 0],
        17 => match checksum(&[&pseudo_header, &packet]) {
            [0, 0] => [0xff, 0xff],
            sum => sum,
        },
        _ => checksum(&[&pseudo_header, &packet]),
    };
    match protocol {
        6 => packet[16..18].copy_from_slice(&sum),
        17 => packet[6..8].copy_from_slice(&sum),
        132 => {
            let crc = crc32c(&packet);
            packet[8..12].copy_from_slice(&crc.to_le_bytes());
        }
        _ => packet[2..4].copy_from_slice(&sum),
    }
    packet
}

fn ipv4(random: &mut Random, number: usize) -> Vec<u8> {
    let protocol = [1, 6, 6, 17, 132][random.below(5) as usize];
    let from = [10, 0, 0, random.below(4) as u8];
    let to = [10, 0, random.below(2) as u8, random.below(4) as u8];
    let addresses = [from, to].concat();
    let payload = transport(random, protocol, &addresses, number);
    let options: &[u8] = if random.one_of(4) { &[1, 1, 1, 0] } else { &[] };
    let words = 5 + options.len() / 4;
    let bytes = (words * 4 + payload.len()) as u16;
    let tos = [0, 32, 184][random.below(3) as usize] | random.below(4) as u8;
    let ttl = [9, 64, 200][random.below(3) as usize];
    let start =
        [&[0x40 | words as u8, tos], &bytes.to_be_bytes()[..], &[0, 7, 0x40, 0, ttl, protocol]].concat();
    let sum = checksum(&[&start, &addresses, options]);
    [&[8, 0][..], &start, &sum, &addresses, options, &payload].concat()
}

fn ipv6(random: &mut Random, number: usize) -> Vec<u8> {
    let protocol = [6, 6, 17, 58][random.below(4) as usize];
    let address = |last: u64| [&[0xfd][..], &[0; 14], &[last as u8]].concat();
    let (from, to, last) = (address(1), address(random.below(8)), address(9));
    // The checksum behind a routing header with segments left has the last address (RFC 8200, 8.1).
    let segments_left = random.below(2) as u8;
    let routing = [&[protocol, 2, 0, segments_left, 0, 0, 0, 0][..], &last].concat();
    let (routing, counted) = match random.below(3) {
        0 if segments_left > 0 => (routing, last),
        0 => (routing, to.clone()),
        _ => (Vec::new(), to.clone()),
    };
    let next = if routing.is_empty() { protocol } else { 43 };
    let payload = transport(random, protocol, &[&from[..], &counted].concat(), number);
    let bytes = (routing.len() + payload.len()) as u16;
    let start = [&[0x86, 0xdd, 0x60, 0, 0, 0][..], &bytes.to_be_bytes(), &[next, 9]].concat();
    [start, from, to, routing, payload].concat()
}

fn frame(random: &mut Random, number: usize) -> Vec<u8> {
    let mut frame = [mac(random.of(&STATIONS)), mac(random.of(&STATIONS[..4]))].concat();
    if random.one_of(2) {
        frame.extend([0x81, 0, (random.below(8) << 5) as u8, 5 + random.below(3) as u8]);
    }
    match random.below(8) {
        0..4 => frame.extend(ipv4(random, number)),
        4 | 5 => frame.extend(ipv6(random, number)),
        6 => {
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, random.below(2) as u8 + 1]);
            frame.extend([0; 16]);
            frame.extend([10, 0, 0, random.below(4) as u8]);
        }
        _ if random.one_of(2) => frame.extend([0x88, 0xb5]),
        // A length in place of a type, for LLC.
        _ => frame.extend([0, 46, 0x42, 0x42, 3]),
    }
    // Short frames have padding, which is not part of the packet.
    frame.resize(frame.len().max(60) + random.below(4) as usize, 0);
    marked(frame, number)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn in_words(outputs: &Outputs) -> String {
    outputs.iter().fold(String::new(), |mut text, (port, frame)| {
        writeln!(text, "  port {}: {}", port + 1, hexadecimal(frame)).unwrap();
        text
    })
}

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().expect(variable))
}

#[test]
fn frames_leave_as_from_open_vswitch_with_the_same_flows() {
    let mut pair = SwitchPair::new();
    let first_seed = number_from("RINGROAD_OPENFLOW_SEED", 20_261_127);
    let (mut frames_sent, mut outputs, mut changed) = (0, 0, 0);
    for seed in first_seed..first_seed + number_from("RINGROAD_OPENFLOW_ROUNDS", ROUNDS) {
        let mut random = Random(seed);
        let flows = flows(&mut random, FLOWS_A_TABLE);
        pair.set_flows(&flows);
        for _ in 0..FRAMES_A_ROUND / PORTS as usize {
            let frames: Vec<_> = (0..PORTS as usize).map(|port| frame(&mut random, port)).collect();
            let [ours, theirs] = pair.forward(&frames);
            for (port, frame) in frames.iter().enumerate() {
                frames_sent += 1;
                outputs += ours[port].len();
                changed += ours[port].iter().filter(|(_, output)| output != frame).count();
                if ours[port] != theirs[port] {
                    let difference = format!(
                        "RINGROAD_OPENFLOW_SEED={seed}: the frame {} by port {} leaves as\n{}and from Open vSwitch as\n{}",
                        hexadecimal(frame),
                        port + 1,
                        in_words(&ours[port]),
                        in_words(&theirs[port]),
                    );
                    assert!(pair.differ(&flows, port, frame), "{difference}only behind the frames before it");
                    let flows = pair.smallest(flows.clone(), port, frame);
                    panic!(
                        "{difference}with these flows, the fewest with which the two still differ:\n{}\n\
                         and these groups:\n{GROUPS}",
                        flows.join("\n"),
                    );
                }
            }
        }
    }
    // Fewer such frames would prove little.
    assert!(
        outputs > frames_sent / 2 && changed > frames_sent / 8,
        "{frames_sent} frames, {outputs} outputs, {changed} of them changed"
    );
    println!("{frames_sent} frames, {outputs} outputs, {changed} of them changed");
}
