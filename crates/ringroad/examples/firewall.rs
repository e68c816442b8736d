//! A firewall between an interface and its host: drops frames from or to given UDP or TCP ports, counts them, and
//! passes all others. The host keeps its addresses and connections; buffers are exchanged, not copied.
//!
//! Runs as `firewall eth0 udp/53 tcp/80` until interrupted; `eth0@netns=blue` names an interface elsewhere.

use std::error::Error;
use std::time::{Duration, Instant};

use etherparse::{LaxSlicedPacket, TransportSlice};
use ringroad::{Interest, OpenOptions, Port, Queue, wait_any};

/// Time between two reports.
const REPORT: Duration = Duration::from_secs(1);

/// A rule for frames that are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Udp(u16),
    Tcp(u16),
}

impl Rule {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once('/')? {
            ("udp", port) => Some(Self::Udp(port.parse().ok()?)),
            ("tcp", port) => Some(Self::Tcp(port.parse().ok()?)),
            _ => None,
        }
    }

    fn matches(self, frame: &[u8]) -> bool {
        let Ok(packet) = LaxSlicedPacket::from_ethernet(frame) else { return false };
        match (self, packet.transport) {
            (Self::Udp(port), Some(TransportSlice::Udp(udp))) => {
                [udp.source_port(), udp.destination_port()].contains(&port)
            }
            (Self::Tcp(port), Some(TransportSlice::Tcp(tcp))) => {
                [tcp.source_port(), tcp.destination_port()].contains(&port)
            }
            _ => false,
        }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: u64,
    dropped: u64,
}

/// Moves received frames from `from` to `to`, except those that a rule drops. Frames stay in `from` if `to` is full.
fn filter(from: &mut Queue, to: &mut Queue, rules: &[Rule], counts: &mut Counts) {
    let mut head = [0; 128];
    loop {
        let slots = from.rx().frame_slots(0);
        if slots == 0 {
            break;
        }
        let len = from.rx().frame(0).read(&mut head);
        if rules.iter().any(|rule| rule.matches(head.get(..len).unwrap_or_default())) {
            from.rx().release(slots);
            counts.dropped += 1;
        } else if from.rx().forward(to.tx(), slots).frames == 1 {
            counts.passed += 1;
        } else {
            break;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((interface, rules)) = arguments.split_first() else {
        return Err("usage: firewall IFACE [udp/PORT | tcp/PORT]...".into());
    };
    let rules = rules
        .iter()
        .map(|text| Rule::parse(text).ok_or_else(|| format!("{text} is not a rule: write udp/53 or tcp/80")))
        .collect::<Result<Vec<_>, _>>()?;
    let mut wire = Port::open(interface)?;
    // The host's side shares the region, so that buffers can be exchanged.
    let (name, options) = interface.split_once('@').unwrap_or((interface, ""));
    let queues = Some(wire.queues().len() as u16);
    let sizes = OpenOptions { queues, ..OpenOptions::default() };
    let plain = name.rsplit(':').next().unwrap_or(name);
    let separator = if options.is_empty() { "" } else { "@" };
    let mut host = Port::open_with(&format!("{plain}^@share={name}{separator}{options}"), &sizes)?;
    for port in [&wire, &host] {
        println!("{}: {}", port.info().name, port.info().mode);
    }
    let (mut inward, mut outward) = (Counts::default(), Counts::default());
    let mut reported = ((inward, outward), Instant::now());
    loop {
        let before = (inward, outward);
        for (wire, host) in wire.queues().iter_mut().zip(host.queues()) {
            wire.sync()?;
            host.sync()?;
            filter(wire, host, &rules, &mut inward);
            filter(host, wire, &rules, &mut outward);
            wire.sync()?;
            host.sync()?;
        }
        if reported.0 != (inward, outward) && reported.1.elapsed() >= REPORT {
            println!("in {inward:?}, out {outward:?}");
            reported = ((inward, outward), Instant::now());
        }
        if before == (inward, outward) {
            wait_any(&mut [wire.awaiting(Interest::Rx), host.awaiting(Interest::Rx)], None)?;
        }
    }
}
