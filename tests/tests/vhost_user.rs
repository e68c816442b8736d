//! vhost-user ports: a real DPDK guest (testpmd over `net_virtio_user`) between two switches, with restarts of either
//! side.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use ringroad::Port;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{number_of, numbered, receive, send, station};
use ringroad_tests::network::finished;
use ringroad_tests::passage;
use ringroad_tests::testpmd::{Memory, Testpmd};
use rustix::process::Signal;
use serde_json::Value;

/// A daemon with two switches, a guest's port on each, and a program's on each.
struct Testbed {
    daemon: Daemon,
}

impl Testbed {
    fn new(options: &str) -> Self {
        let site = Self { daemon: Daemon::start() };
        site.attach(options);
        site
    }

    fn attach(&self, options: &str) {
        for number in 0..2 {
            let driver = format!("vhost-user:{}{options}", self.socket(number).display());
            finished(&mut self.daemon.ringroad(&["attach", &port(number), "--driver", &driver]));
        }
    }

    fn socket(&self, number: usize) -> PathBuf {
        self.daemon.folder().join(format!("guest{number}"))
    }

    /// Starts a guest that forwards between the two switches, with `device` as further options of its cards.
    fn guest(&self, device: &str) -> Testpmd {
        Testpmd::start(Memory::Ordinary, &self.cards(device), &[])
    }

    fn cards(&self, device: &str) -> [String; 2] {
        let device = |number: usize| {
            let path = self.socket(number);
            format!("net_virtio_user{number},path={},{device}", path.display())
        };
        [device(0), device(1)]
    }

    /// Number of frames that have come from the guest.
    fn passed(&self) -> u64 {
        (0..2).map(|number| self.daemon.port(&port(number)).unwrap().counters.received_frames).sum()
    }

    fn await_guest(&self) {
        self.daemon.await_status("guest in service", |status| {
            let guests = status.ports.iter().filter_map(|port| port.peer.as_ref());
            guests.filter(|peer| peer.active_queues > 0).count() == 2
        });
    }
}

/// Ends another thread's work when the value is dropped, also by a panic.
struct Ending<'flag>(&'flag AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn port(number: usize) -> String {
    format!("vale{number}:guest")
}

const LENGTHS: [usize; 7] = [60, 61, 64, 128, 777, 1500, 1514];

/// Sends frames of many lengths through the guest and compares those that arrive.
fn carry(from: &mut Port, to: &mut Port, seed: u8, frames: usize) {
    passage::carry(from.queue(), to.queue(), &LENGTHS, seed, frames);
}

#[test]
fn frames_pass_a_guest_with_rings_of_every_kind() {
    if !Testpmd::is_installed() {
        return;
    }
    let kinds = [
        ("", "queues=1", "split rings"),
        ("", "queues=1,mrg_rxbuf=0", "split rings"),
        ("", "queues=1,in_order=0,queue_size=1024,packed_vq=1", "packed rings"),
        ("", "queues=1,mrg_rxbuf=0,packed_vq=1", "packed rings"),
        ("@offloads=0", "queues=1,queue_size=64", "split rings"),
        ("@packed=0", "queues=1,vectorized=1", "split rings"),
    ];
    for (seed, (options, device, agreed)) in (0u8..).zip(kinds) {
        let site = Testbed::new(options);
        let _guest = site.guest(device);
        site.await_guest();
        let (mut a, mut b) = (site.daemon.open("vale0:a"), site.daemon.open("vale1:b"));
        passage::both_ways(a.queue(), b.queue(), &LENGTHS, 2 * seed, 3000);
        let status = await_conserved(&site.daemon);
        for number in 0..2 {
            let report = status.ports.iter().find(|report| report.name == port(number)).unwrap();
            let peer = report.peer.as_ref().unwrap();
            assert!(peer.connected && peer.agreed.contains(agreed), "{peer:?}");
            assert_eq!((report.counters.violations, &report.error), (0, &None), "{device}");
        }
    }
}

#[test]
fn a_guest_stays_through_upgrades_and_loses_no_frame() {
    if !Testpmd::is_installed() {
        return;
    }
    let kinds = [
        ("", "queues=1"),
        ("", "queues=1,packed_vq=1,in_order=0"),
        ("@role=client", "queues=1,server=1"),
        ("@queues=2", "queues=2"),
    ];
    for (options, device) in kinds {
        let site = Testbed::new(options);
        let both = ["--rxq=2", "--txq=2", "--disable-rss"];
        let device_options = if device.starts_with("queues=2") { &both[..] } else { &[] };
        let _guest = Testpmd::start(Memory::Ordinary, &site.cards(device), device_options);
        site.await_guest();
        let (mut a, mut b) = (site.daemon.open("vale0:a"), site.daemon.open("vale1:b"));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    passage::both_ways(a.queue(), b.queue(), &LENGTHS, 1, 500);
                }
            });
            let _end = Ending(&over);
            let before = site.passed();
            for upgrades in 1..=5 {
                let report = site.daemon.upgrade();
                assert_eq!(report["reopened"], Value::from([0; 0]), "{device}");
                // Each upgrade happens while frames pass.
                site.daemon.await_status("traffic", |_| site.passed() >= before + 1000 * upgrades);
            }
        });
        let status = await_conserved(&site.daemon);
        for number in 0..2 {
            let report = status.ports.iter().find(|report| report.name == port(number)).unwrap();
            let peer = report.peer.as_ref().unwrap();
            assert_eq!((peer.connected, peer.connections, &report.error), (true, 1, &None), "{device}");
        }
    }
}

#[test]
fn frames_pass_a_guest_in_huge_pages() {
    if !Testpmd::is_installed() {
        return;
    }
    let Some(memory) = Memory::huge() else { return };
    let site = Testbed::new("");
    let _guest = Testpmd::start(memory, &site.cards("queues=1"), &[]);
    site.await_guest();
    let (mut a, mut b) = (site.daemon.open("vale0:a"), site.daemon.open("vale1:b"));
    passage::both_ways(a.queue(), b.queue(), &LENGTHS, 1, 3000);
    await_conserved(&site.daemon);
}

#[test]
fn each_used_queue_of_a_guest_gets_frames() {
    if !Testpmd::is_installed() {
        return;
    }
    let site = Testbed::new("@queues=4");
    let device = |number: usize, queues| {
        let path = site.socket(number);
        format!("net_virtio_user{number},path={},queues={queues}", path.display())
    };
    let options = ["--rxq=2", "--txq=2", "--disable-rss"];
    let _guest = Testpmd::start(Memory::Ordinary, &[device(0, 2), device(1, 2)], &options);
    site.daemon.await_status("two queues in use", |status| {
        let guests = status.ports.iter().filter_map(|port| port.peer.as_ref());
        guests.filter(|peer| peer.active_queues == 2).count() == 2
    });
    let mut from = site.daemon.open("vale0:a@queues=4");
    let mut to = site.daemon.open("vale1:b");
    // The address of the other side is learned, so that each queue's frames go to a queue of the guest and not all to
    // the first.
    let known = station(1);
    carry(&mut to, &mut from, 1, 100);
    for (number, queue) in from.queues().iter_mut().enumerate() {
        assert!(queue.tx().send(&numbered(known, station(100 + number as u8), number as u64, 60)).unwrap());
        queue.sync().unwrap();
        let frame = receive(&mut to);
        assert_eq!(number_of(&frame, station(100 + number as u8)), Some(number as u64));
    }
    await_conserved(&site.daemon);
}

#[test]
fn guests_killed_under_traffic_reconnect_and_disturb_no_other() {
    if !Testpmd::is_installed() {
        return;
    }
    let site = Testbed::new("");
    let (mut a, mut b) = (site.daemon.open("vale0:a"), site.daemon.open("vale1:b"));
    let (mut c, mut d) = (site.daemon.open("vale2:c"), site.daemon.open("vale2:d"));
    for round in 0..3 {
        let guest = site.guest("queues=1,packed_vq=1");
        site.await_guest();
        carry(&mut a, &mut b, round, 1000);
        // The guest dies while as many frames are in flight as there is room for.
        for number in 0..500 {
            a.tx().send(&numbered([0xFF; 6], station(99), number, 60)).unwrap();
        }
        a.sync().unwrap();
        guest.kill();
        carry(&mut c, &mut d, 50 + round, 1000);
        site.daemon.await_status("end of the guest", |status| {
            status.ports.iter().filter_map(|port| port.peer.as_ref()).all(|peer| !peer.connected)
        });
        // Without a guest, frames are dropped and counted by this cause, and other ports continue.
        let before =
            site.daemon.port(&port(0)).unwrap().counters.drops.get("not_bound").copied().unwrap_or(0);
        send(&mut a, &numbered([0xFF; 6], station(98), 0, 60));
        a.sync().unwrap();
        site.daemon.await_status("frame without a receiver", |status| {
            let report = status.ports.iter().find(|report| report.name == port(0)).unwrap();
            report.counters.drops.get("not_bound").copied().unwrap_or(0) > before
        });
    }
    await_conserved(&site.daemon);
}

#[test]
fn the_next_daemon_finds_listening_guests() {
    if !Testpmd::is_installed() {
        return;
    }
    let site = Testbed::new("@role=client");
    let guest_paths = [site.socket(0), site.socket(1)];
    let _guest = site.guest("queues=1,server=1");
    site.await_guest();
    let (mut a, mut b) = (site.daemon.open("vale0:a"), site.daemon.open("vale1:b"));
    carry(&mut a, &mut b, 1, 1000);
    for number in 0..500 {
        a.tx().send(&numbered([0xFF; 6], station(99), number, 60)).unwrap();
    }
    a.sync().unwrap();
    let Testbed { mut daemon } = site;
    daemon.signal(Signal::KILL);
    assert!(!daemon.await_end());
    let next = Daemon::start();
    for (number, path) in guest_paths.iter().enumerate() {
        let driver = format!("vhost-user:{}@role=client", path.display());
        finished(&mut next.ringroad(&["attach", &port(number), "--driver", &driver]));
    }
    let next = Testbed { daemon: next };
    next.await_guest();
    let (mut a, mut b) = (next.daemon.open("vale0:a"), next.daemon.open("vale1:b"));
    passage::both_ways(a.queue(), b.queue(), &LENGTHS, 2, 1000);
    await_conserved(&next.daemon);
}

/// A message of the protocol: request, flags, payload (docs/interop/vhost-user.rst).
fn message(request: u32, payload: &[u8]) -> Vec<u8> {
    [request, 1, payload.len() as u32]
        .map(u32::to_ne_bytes)
        .concat()
        .into_iter()
        .chain(payload.iter().copied())
        .collect()
}

#[test]
fn front_ends_that_send_garbage_are_reported_and_dropped() {
    let site = Testbed::new("");
    let last_error = |part: &str| {
        site.daemon.await_status(part, |status| {
            let report = status.ports.iter().find(|report| report.name == port(0)).unwrap();
            let peer = report.peer.as_ref().unwrap();
            !peer.connected && peer.last_error.as_ref().is_some_and(|error| error.contains(part))
        });
    };
    let say = |bytes: &[u8]| {
        let mut socket = UnixStream::connect(site.socket(0)).unwrap();
        let _ = socket.write_all(bytes);
        // The daemon ends the connection, so the client need not.
        let _ = socket.read_to_end(&mut Vec::new());
    };
    say(&[0xA5; 4096]);
    last_error("front end");
    say(&message(2, &(1u64 << 63).to_ne_bytes()));
    last_error("features that were not offered");
    // The message is about ring 9 of a port with two rings.
    say(&message(8, &[9u32, 64].map(u32::to_ne_bytes).concat()));
    last_error("no ring 9");
    say(&message(8, &[0u32, 70_000].map(u32::to_ne_bytes).concat()));
    last_error("1 to 32768 entries");
    // Half a message is sent, then nothing: the port can be removed nevertheless.
    let mut socket = UnixStream::connect(site.socket(0)).unwrap();
    socket.write_all(&message(8, &[0; 8])[..5]).unwrap();
    site.daemon.await_status("connection", |status| {
        status.ports.iter().filter_map(|port| port.peer.as_ref()).any(|peer| peer.connected)
    });
    finished(&mut site.daemon.ringroad(&["detach", &port(0)]));
    assert!(!site.socket(0).exists());
    let (mut a, mut b) = (site.daemon.open("vale0:a"), site.daemon.open("vale0:b"));
    carry(&mut a, &mut b, 1, 100);
}

#[test]
fn refusing_a_socket_names_a_remedy() {
    let site = Testbed::new("");
    let refused = |driver: &str, part: &str| {
        let output = site.daemon.ringroad(&["attach", "vale0:x", "--driver", driver]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(part), "{driver}: {error}");
    };
    let taken = format!("vhost-user:{}", site.socket(0).display());
    refused(&taken, "listens");
    refused("vhost-user:/nonexistent/folder/socket", "No such file");
    refused(&format!("vhost-user:{}", site.daemon.folder().join("config.toml").display()), "is not a socket");
    refused(&format!("vhost-user:/tmp/{}", "x".repeat(200)), "107 bytes");
    refused("vhost-user:", "path");
    refused("vhost-user:/tmp/s@id=3", "no option id");
}
