//! A client that attacks the daemon: random bytes in its region, nonsense on the control socket, death at any point.
//!
//! Usage: `hostile_client SOCKET PORT SEED`. The client writes through the memfd, so that nothing here needs unsafe
//! code.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use ringroad::HugePages;
use ringroad::control::Connection;
use ringroad::control::message::{OpenedPort, PortProperties, Reply, Request};
use ringroad_tests::random::Random;

fn open(connection: &mut Connection, port: &str) -> Option<(OpenedPort, Vec<OwnedFd>)> {
    // Huge pages are off, since write(2) to a memfd of huge pages fails.
    let properties =
        PortProperties { slots: Some(64), huge_pages: HugePages::Never, ..PortProperties::default() };
    match connection.request(&Request::Open { name: port.to_owned(), properties }).ok()? {
        (Reply::Opened(opened), descriptors) => Some((opened, descriptors)),
        _ => None,
    }
}

/// Writes random words over rings and control blocks, where they hurt most, and random bytes anywhere else.
fn scribble(random: &mut Random, opened: &OpenedPort, descriptors: &[OwnedFd]) {
    let memory = &descriptors[0];
    let geometry = &opened.geometry;
    for _ in 0..random.below(400) {
        let ring = [opened.placement.tx_rings[0], opened.placement.rx_rings[0]][random.below(2) as usize];
        let (offset, word) = match random.below(6) {
            // A plausible head gets past the first check.
            0 => (geometry.control_offset(ring), random.below(64)),
            1 => (geometry.control_offset(ring) + random.below(256), random.number()),
            2 => (geometry.ring_offset(ring) + 256 + 16 * random.below(64), random.number()),
            // A plausible slot with a wild length or flags.
            3 => (
                geometry.ring_offset(ring) + 256 + 16 * random.below(64),
                random.below(100) | random.number() << 32,
            ),
            4 => (geometry.ring_offset(ring) + random.below(256), random.number()),
            _ => (random.below(geometry.total_bytes()), random.number()),
        };
        let _ = rustix::io::pwrite(memory, &word.to_le_bytes(), offset);
        if random.below(3) == 0 {
            // A kick wakes the datapath, so that it reads the random data.
            let _ = rustix::io::write(&descriptors[1], &1u64.to_ne_bytes());
        }
    }
    let _ = rustix::fs::ftruncate(memory, 0);
    // The notify counter is full, and the kick counter is drained: the daemon must block on neither.
    let _ = rustix::io::write(&descriptors[2], &(u64::MAX - 1).to_ne_bytes());
    let _ = rustix::io::read(&descriptors[1], &mut [0; 8]);
    // Blocking mode is set on the eventfds, too: all holders share this flag.
    for event in &descriptors[1..] {
        let _ = rustix::fs::fcntl_setfl(event, rustix::fs::OFlags::empty());
    }
}

fn flood(random: &mut Random, socket: &str) {
    let Ok(mut stream) = UnixStream::connect(socket) else { return };
    let mut garbage = vec![0u8; random.below(5000) as usize];
    garbage.iter_mut().for_each(|byte| *byte = random.number() as u8);
    if random.below(2) == 0 && garbage.len() > 8 {
        // A believable length before the garbage.
        garbage[..4].copy_from_slice(&200u32.to_le_bytes());
    }
    let _ = stream.write_all(&garbage);
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, port, seed] = arguments.as_slice() else {
        panic!("usage: hostile_client SOCKET PORT SEED");
    };
    let mut random = Random(seed.parse().unwrap());
    for _ in 0..=random.below(4) {
        match random.below(5) {
            0 => flood(&mut random, socket),
            1 => {
                // Requests are sent without waiting for the replies; silence follows.
                let Ok(mut connection) = Connection::connect(socket) else { continue };
                let _ = connection.request(&Request::Open {
                    name: "vale0:\u{7}".into(),
                    properties: PortProperties::default(),
                });
                let _ = connection.request(&Request::Status);
            }
            _ => {
                let Ok(mut connection) = Connection::connect(socket) else { continue };
                let Some((opened, descriptors)) = open(&mut connection, port) else { continue };
                scribble(&mut random, &opened, &descriptors);
                if random.below(2) == 0 {
                    let own = rustix::process::getpid();
                    rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
                }
            }
        }
    }
}
