//! `ringroad explain` for frames, compared with Open vSwitch's `ofproto/trace` with the same flows and groups.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write;
use std::process::Command;

use ringroad_tests::command::{run, stderr};
use ringroad_tests::daemon::Daemon;
use ringroad_tests::open_vswitch::OpenVSwitch;
use ringroad_tests::random::Random;
use ringroad_tests::random_flows::{GROUPS, LAST_FLOWS, PORTS, STATIONS, flows, mac};
use serde_json::Value;

const FLOWS_A_TABLE: u32 = 90;
const FRAMES: u64 = 400;

/// A frame, with its input port and its headers as text.
struct Frame {
    bytes: Vec<u8>,
    headers: String,
}

fn frame(random: &mut Random) -> Frame {
    let in_port = random.below(u64::from(PORTS)) + 1;
    let (destination, source) = (random.of(&STATIONS), random.of(&STATIONS[..4]));
    let mut bytes = [mac(destination), mac(source)].concat();
    let mut headers = format!("in_port={in_port},dl_dst={destination},dl_src={source}");
    if random.one_of(2) {
        let (vid, pcp) = (5 + random.below(3), random.below(8));
        bytes.extend([0x81, 0, (pcp << 5) as u8, vid as u8]);
        write!(headers, ",dl_vlan={vid},dl_vlan_pcp={pcp}").unwrap();
    }
    let protocol = random.of(&["tcp", "tcp", "udp", "icmp", "arp", "tcp6", "other"]);
    let port = |random: &mut Random| [80u16, 53, 1000, 1001, 1009][random.below(5) as usize];
    match protocol {
        "tcp" | "udp" | "icmp" => {
            let (number, transport) = match protocol {
                "tcp" => (6, 20),
                "udp" => (17, 8),
                _ => (1, 8),
            };
            let (tos, ttl) =
                ([0u8, 32, 184][random.below(3) as usize], [1u8, 2, 64][random.below(3) as usize]);
            let ecn = random.below(4) as u8;
            let (from, to) =
                ([10, 0, 0, random.below(4) as u8], [10, 0, random.below(2) as u8, random.below(4) as u8]);
            bytes.extend([8, 0, 0x45, tos | ecn, 0, 20 + transport, 0, 0, 0, 0, ttl, number, 0, 0]);
            bytes.extend(from.iter().chain(&to));
            let text = |address: [u8; 4]| std::net::Ipv4Addr::from(address).to_string();
            write!(headers, ",{protocol},nw_src={},nw_dst={}", text(from), text(to)).unwrap();
            write!(headers, ",nw_tos={tos},nw_ecn={ecn},nw_ttl={ttl}").unwrap();
            let mut header = vec![0; usize::from(transport)];
            match protocol {
                "icmp" => {
                    header[0] = 8;
                    headers.push_str(",icmp_type=8,icmp_code=0");
                }
                _ => {
                    let (from, to) = (port(random), port(random));
                    header[..2].copy_from_slice(&from.to_be_bytes());
                    header[2..4].copy_from_slice(&to.to_be_bytes());
                    write!(headers, ",{protocol}_src={from},{protocol}_dst={to}").unwrap();
                    if protocol == "tcp" { header[12] = 5 << 4 } else { header[5] = 8 }
                }
            }
            bytes.extend(header);
        }
        "arp" => {
            let (kind, to) = (random.below(2) as u8 + 1, random.below(4) as u8);
            bytes.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, kind]);
            bytes.extend([0; 10]);
            bytes.extend([0; 6]);
            bytes.extend([10, 0, 0, to]);
            write!(headers, ",arp,arp_op={kind},arp_tpa=10.0.0.{to}").unwrap();
        }
        "tcp6" => {
            let (last, to) = (random.below(8) as u8, port(random));
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 9]);
            for last in [1, last] {
                bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
            }
            let mut header = [0; 20];
            header[2..4].copy_from_slice(&to.to_be_bytes());
            header[12] = 5 << 4;
            bytes.extend(header);
            write!(headers, ",tcp6,ipv6_src=fd00::1,ipv6_dst=fd00::{last},nw_ttl=9,tcp_dst={to}").unwrap();
        }
        _ => {
            bytes.extend([0x88, 0xb5]);
            bytes.resize(60, 0);
            headers.push_str(",dl_type=0x88b5");
        }
    }
    Frame { bytes, headers }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Offset of the network header, and its EtherType.
fn network(frame: &[u8]) -> (usize, u16) {
    let mut at = 12;
    while frame[at..at + 2] == [0x81, 0] {
        at += 4;
    }
    (at + 2, u16::from_be_bytes([frame[at], frame[at + 1]]))
}

/// Clears the checksums: those of the test frames are zero, and Open vSwitch does not report new ones.
fn without_checksums(mut frame: Vec<u8>) -> Vec<u8> {
    let (at, found) = network(&frame);
    let (protocol, transport) = match found {
        0x0800 => {
            frame[at + 10..at + 12].fill(0);
            (frame[at + 9], at + 20)
        }
        0x86dd => (frame[at + 6], at + 40),
        _ => return frame,
    };
    let checksum = match protocol {
        6 => 16,
        17 => 6,
        _ => 2,
    };
    frame[transport + checksum..transport + checksum + 2].fill(0);
    frame
}

/// Outputs of a frame, sorted: each has the port and the frame that leaves there.
type Outputs = Vec<(String, String)>;

/// Applies the actions that Open vSwitch gives its datapath.
fn outputs_of(actions: &str, frame: &mut Vec<u8>, outputs: &mut Outputs) {
    for action in parts(actions) {
        let (name, argument) = action.split_once('(').map_or((action, ""), |(name, rest)| {
            (name, rest.strip_suffix(')').unwrap_or_else(|| panic!("{action}")))
        });
        match name {
            // The port `br0` is Open vSwitch's own port, which Ringroad's switch does not have.
            "drop" | "br0" => {}
            "push_vlan" => {
                let value =
                    |key: &str| number(parts(argument).find_map(|part| part.strip_prefix(key)).unwrap());
                let tag = (value("pcp=") << 13 | value("vid=")) as u16;
                frame.splice(12..12, [0x81, 0, (tag >> 8) as u8, tag as u8]);
            }
            "pop_vlan" => drop(frame.drain(12..16)),
            "set" => set(argument, frame),
            "clone" => outputs_of(argument, &mut frame.clone(), outputs),
            "userspace" => {
                let reason = if argument.contains("reason=2") { "invalid_ttl" } else { "action" };
                outputs
                    .push((format!("controllers: {reason}"), hexadecimal(&without_checksums(frame.clone()))));
            }
            port => {
                assert!(port.starts_with('p') && argument.is_empty(), "{action} in {actions}");
                outputs.push((port.to_owned(), hexadecimal(&without_checksums(frame.clone()))));
            }
        }
    }
    outputs.sort();
}

/// Parts of a list, split at the commas outside of parentheses.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    list.split(move |letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    })
}

fn number(text: &str) -> u64 {
    let digits = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
    digits.unwrap_or_else(|| text.parse()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Bytes of a value: an address, or a number of `len` bytes.
fn value_bytes(text: &str, len: usize) -> Vec<u8> {
    if len == 16 {
        return text.parse::<std::net::Ipv6Addr>().unwrap().octets().to_vec();
    }
    if text.contains(':') {
        return mac(text).to_vec();
    }
    if text.contains('.') {
        return text.parse::<std::net::Ipv4Addr>().unwrap().octets().to_vec();
    }
    number(text).to_be_bytes()[8 - len..].to_vec()
}

/// Sets fields from `eth(src=...,dst=...)`, each perhaps with a mask.
fn set(header: &str, frame: &mut [u8]) {
    let (kind, fields) = header.strip_suffix(')').and_then(|header| header.split_once('(')).unwrap();
    let (at, _) = network(frame);
    for field in parts(fields) {
        let (name, value) = field.split_once('=').unwrap();
        let (offset, len) = match (kind, name) {
            ("eth", "dst") => (0, 6),
            ("eth", "src") => (6, 6),
            ("ipv4", "tos") => (at + 1, 1),
            ("ipv4", "ttl") => (at + 8, 1),
            ("ipv4", "src") => (at + 12, 4),
            ("ipv4", "dst") => (at + 16, 4),
            ("ipv6", "src") => (at + 8, 16),
            ("ipv6", "dst") => (at + 24, 16),
            ("tcp" | "udp", "src") => (at + 20, 2),
            ("tcp" | "udp", "dst") => (at + 22, 2),
            _ => panic!("{header}"),
        };
        let (value, mask) = value.split_once('/').unwrap_or((value, ""));
        let mask = if mask.is_empty() { vec![0xff; len] } else { value_bytes(mask, len) };
        for (at, (new, mask)) in value_bytes(value, len).iter().zip(mask).enumerate() {
            let byte = &mut frame[offset + at];
            *byte = *byte & !mask | new & mask;
        }
    }
}

/// Outputs of a frame according to an explanation of Ringroad.
fn explained_outputs(explanation: &Value, len: usize) -> Outputs {
    let steps = explanation["steps"].as_array().unwrap();
    let of_step = |number: usize| steps.iter().find(|step| step["output"] == number);
    let list = explanation["outputs"].as_array().unwrap().iter().enumerate().flat_map(|(number, output)| {
        let digits = output["start"].as_str().unwrap();
        let bytes = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let mut bytes: Vec<u8> = bytes.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        // A frame made from headers is padded with zeros.
        let tags = output["frame_bytes"].as_u64().unwrap() as i64
            - explanation["frame_bytes"].as_u64().unwrap() as i64;
        bytes.truncate((len as i64 + tags) as usize);
        let frame = hexadecimal(&without_checksums(bytes));
        let controllers: Vec<String> = match output["to_controllers"] == true {
            true => vec![format!("controllers: {}", of_step(number).unwrap()["reason"].as_str().unwrap())],
            false => {
                let ports = output["ports"].as_array().unwrap();
                ports.iter().map(|port| format!("p{}", port["number"])).collect()
            }
        };
        controllers.into_iter().map(move |controller| (controller, frame.clone()))
    });
    let mut outputs: Outputs = list.collect();
    outputs.sort();
    outputs
}

/// Words of headers that both programs print, such as `dl_src=...`.
fn words(headers: &str) -> Vec<&str> {
    let mut words: Vec<&str> = headers
        .split(',')
        .filter(|word| {
            // These words are the forms of "no tag", and fields that are not in OpenFlow 1.3.
            let left_out = [
                "vlan_tci=0x0000",
                "vlan_tci1",
                "nw_frag",
                "tcp_flags",
                "in_port",
                "ipv6_label",
                "nw_tos",
                "nw_ecn",
            ];
            !left_out.iter().any(|name| word.starts_with(name))
                && !word.ends_with("=0")
                && !word.ends_with("=::")
                && !word.ends_with("=00:00:00:00:00:00")
                && !word.ends_with("=0.0.0.0")
        })
        .collect();
    words.sort_unstable();
    words
}

#[test]
fn explanations_agree_with_open_vswitch_for_the_same_flows() {
    let ovs = OpenVSwitch::start(PORTS);
    let daemon = Daemon::start();
    let ports = ["vale0:a", "vale0:b", "vale0:c", "vale0:d"].map(|name| daemon.open(name));
    assert_eq!(ports.len() as u32, PORTS);
    assert!(run(daemon.ringroad(&["switch", "vale0", "--openflow"])).status.success());
    let seed = 20_261_125;
    let mut random = Random(seed);
    let flows = format!("{LAST_FLOWS}{}", flows(&mut random, FLOWS_A_TABLE).join("\n"));
    let file = |name: &str, text: &str| {
        let path = daemon.folder().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (groups, flows) = (file("groups", GROUPS), file("flows", &flows));
    let ours = format!("unix:{}", daemon.folder().join("vale0.mgmt").display());
    for (verb, file) in [("add-groups", &groups), ("add-flows", &flows)] {
        ovs.ofctl(verb, &[file]);
        let mut command = Command::new("ovs-ofctl");
        command.env("OVS_RUNDIR", daemon.folder()).args(["-O", "OpenFlow13", verb, &ours, file]);
        let printed = run(command);
        assert!(printed.status.success(), "{}", stderr(&printed));
    }
    let (mut left, mut changed, mut differ) = (0, 0, Vec::new());
    for number in 0..FRAMES {
        let Frame { bytes, headers } = frame(&mut random);
        let digits = hexadecimal(&bytes);
        // Every other frame is given to both programs by its headers alone.
        let is_whole = number % 2 == 0;
        let in_port = headers.split(',').next().unwrap();
        let (trace, explained) = match is_whole {
            true => {
                let arguments = [
                    "--json",
                    "explain",
                    "vale0",
                    "--hex",
                    &digits,
                    "--in-port",
                    &in_port["in_port=".len()..],
                ];
                (ovs.trace(in_port, Some(&digits)), run(daemon.ringroad(&arguments)))
            }
            false => {
                (ovs.trace(&headers, None), run(daemon.ringroad(&["--json", "explain", "vale0", &headers])))
            }
        };
        assert!(explained.status.success(), "{headers}: {}", stderr(&explained));
        let explanation: Value = serde_json::from_slice(&explained.stdout).unwrap();
        let mut theirs = Outputs::new();
        outputs_of(&trace.actions, &mut bytes.clone(), &mut theirs);
        let ours = explained_outputs(&explanation, bytes.len());
        left += u32::from(!ours.is_empty());
        let unchanged = hexadecimal(&without_checksums(bytes));
        changed += u32::from(ours.iter().any(|(_, frame)| *frame != unchanged));
        let our_headers = explanation["headers"].as_str().unwrap();
        if ours != theirs || words(our_headers) != words(&trace.headers) {
            differ.push(format!(
                "{headers}\n{ours:#?}\n{theirs:#?}\n{our_headers}\n{}\n{:#}",
                trace.text, explanation["steps"]
            ));
        }
    }
    assert!(
        differ.is_empty(),
        "{} of {FRAMES} frames differ (seed {seed}), the first:\n{}",
        differ.len(),
        differ[0]
    );
    // A smaller share of such frames would prove little.
    assert!(
        left > FRAMES as u32 / 4 && changed > FRAMES as u32 / 8,
        "{left} leave, {changed} with other headers"
    );
}
