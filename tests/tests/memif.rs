//! memif ports with Debian's testpmd at the other side, in either role.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ringroad::control::report::{PeerReport, StatusReport};
use ringroad::{Interest, Port};
use ringroad_tests::conservation::{assert_conserved, await_conserved};
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::frames::{number_of, numbered, receive_from, send, station};
use ringroad_tests::huge_pages::HugePages;
use ringroad_tests::service::Service;
use rustix::process::Signal;
use tempfile::TempDir;

/// testpmd, where Debian's package dpdk is installed and its pages can be had.
fn has_testpmd() -> bool {
    let is_there = Path::new("/usr/bin/dpdk-testpmd").exists() && rustix::process::geteuid().is_root();
    if !is_there {
        eprintln!("skipped: needs root and dpdk-testpmd (apt-get install dpdk)");
    }
    is_there
}

/// DPDK's arguments for memory, in ordinary pages and in huge ones.
const ORDINARY: &[&str] = &["--no-huge", "-m", "192"];
const HUGE: &[&str] = &["--in-memory", "-m", "192"];

/// What differs from one testpmd to the next.
#[derive(Clone, Copy)]
struct Peer<'a> {
    socket: &'a Path,
    /// `client` or `server`, with what belongs to it.
    role: &'a str,
    queues: u16,
    memory: &'a [&'a str],
}

impl Peer<'_> {
    /// A testpmd that passes all that comes from interface 0 on to interface 1, and back.
    fn start(&self) -> Service {
        let Self { socket, role, queues, memory } = self;
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--lcores=0@0,1@0", "--no-pci", "--single-file-segments"]).args(*memory);
        let unique = socket.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        command.arg(format!("--file-prefix={unique}"));
        for id in 0..2 {
            let path = socket.display();
            command.arg(format!("--vdev=net_memif{id},id={id},socket={path},socket-abstract=no,{role}"));
        }
        command.args(["--", "--forward-mode=io", "--nb-cores=1", "--no-mlockall", "--total-num-mbufs=8192"]);
        command.args(["--stats-period=300", &format!("--rxq={queues}"), &format!("--txq={queues}")]);
        let mut service = Service::start(command);
        service.await_line("Port statistics");
        service
    }
}

/// Two switches, each with a memif port and a program's; what passes from one to the other passes testpmd.
struct Site {
    daemon: Daemon,
    a: Port,
    b: Port,
}

impl Site {
    fn new(socket: &Path, options: &str) -> Self {
        let port = |number: u16| {
            let driver = format!("memif:{}@id={number},{options}", socket.display());
            format!("[[port]]\nname = \"vale{number}:memif\"\ndriver = \"{driver}\"\n")
        };
        let daemon = Daemon::with_config(&(port(0) + &port(1)));
        let (a, b) = (daemon.open("vale0:a@slots=1024"), daemon.open("vale1:b@slots=1024"));
        Self { daemon, a, b }
    }

    /// Waits until both peers are connected, and until frames pass: testpmd says nowhere when it has taken up its rings.
    fn await_peers(&mut self) {
        self.daemon.await_status("connection", |status| {
            let peers: Vec<PeerReport> = peers(status);
            peers.len() == 2 && peers.iter().all(|peer| peer.connected)
        });
        for there in [true, false] {
            let (from, to) = if there { (&mut self.a, &mut self.b) } else { (&mut self.b, &mut self.a) };
            let end = Instant::now() + PATIENCE.unwrap();
            loop {
                send(from, &numbered([0xFF; 6], station(3), 0, 60));
                from.tx().sync().unwrap();
                if to.wait(Interest::Rx, Some(Duration::from_millis(10))).unwrap() {
                    break;
                }
                assert!(Instant::now() < end, "no frame passes");
            }
        }
    }

    /// Sends frames through both interfaces and compares what comes.
    fn there_and_back(&mut self, lengths: &[usize]) {
        for (number, &len) in (0..).zip(lengths) {
            let there = numbered(station(2), station(1), number, len);
            send(&mut self.a, &there);
            self.a.tx().sync().unwrap();
            assert!(receive_from(&mut self.b, station(1)) == there, "{len} bytes differ");
            let back = numbered(station(1), station(2), number, len);
            send(&mut self.b, &back);
            self.b.tx().sync().unwrap();
            assert!(receive_from(&mut self.a, station(2)) == back, "{len} bytes differ");
        }
    }

    /// Sends as fast as it goes until `enough` frames have come at the other side.
    fn flow(&mut self, enough: u64) {
        let (mut frame, mut came) = (Vec::new(), 0);
        let end = Instant::now() + PATIENCE.unwrap();
        while came < enough {
            assert!(Instant::now() < end, "{came} frames of {enough} came: {:#?}", self.daemon.status());
            for number in 0..64 {
                let _ = self.a.tx().send(&numbered(station(2), station(1), number, 60)).unwrap();
            }
            self.a.tx().sync().unwrap();
            self.b.rx().sync().unwrap();
            while self.b.rx().receive(&mut frame).is_some() {
                came += u64::from(number_of(&frame, station(1)).is_some());
                frame.clear();
            }
            assert!(self.a.wait(Interest::Tx, PATIENCE).unwrap(), "no room");
        }
    }
}

fn peers(status: &StatusReport) -> Vec<PeerReport> {
    status.ports.iter().filter_map(|port| port.peer.clone()).collect()
}

fn socket() -> (TempDir, PathBuf) {
    let folder = tempfile::Builder::new().prefix("ringroad-memif-").tempdir().unwrap();
    let path = folder.path().join("m.sock");
    (folder, path)
}

const LENGTHS: [usize; 12] = [22, 60, 61, 64, 512, 1023, 1500, 1514, 1518, 2048, 2049, 9018];

#[test]
fn frames_come_back_unchanged_from_testpmd_as_client() {
    if !has_testpmd() {
        return;
    }
    // For testpmd 96 of them; the daemon takes some for its regions too.
    let pages = HugePages::reserve(256);
    let huge = pages.as_ref().map(|_| ("no", 1, HUGE));
    let kinds = [("no", 1, ORDINARY), ("yes", 1, ORDINARY), ("no", 2, ORDINARY)];
    for (zero_copy, queues, memory) in kinds.into_iter().chain(huge) {
        let (_folder, path) = socket();
        let mut site = Site::new(&path, &format!("role=server,queues={queues}"));
        let role = format!("role=client,zero-copy={zero_copy}");
        let _peer = Peer { socket: &path, role: &role, queues, memory }.start();
        site.await_peers();
        site.there_and_back(&LENGTHS);
        site.flow(20_000);
        let status = await_conserved(&site.daemon);
        for peer in peers(&status) {
            assert_eq!((peer.connections, peer.active_queues, peer.last_error), (1, queues, None));
            assert!(peer.agreed.starts_with("DPDK 2"), "{}", peer.agreed);
        }
    }
}

#[test]
fn frames_come_back_unchanged_from_testpmd_as_server() {
    if !has_testpmd() {
        return;
    }
    let (_folder, path) = socket();
    // As many queues as testpmd; it is not there yet.
    let mut site = Site::new(&path, "role=client,queues=2,ring-size=512");
    let _peer = Peer { socket: &path, role: "role=server", queues: 2, memory: ORDINARY }.start();
    site.await_peers();
    site.there_and_back(&LENGTHS);
    site.flow(20_000);
    await_conserved(&site.daemon);
}

#[test]
fn a_testpmd_that_is_killed_in_full_flow_comes_back() {
    if !has_testpmd() {
        return;
    }
    for (ours, theirs) in [("role=server", "role=client"), ("role=client", "role=server")] {
        let (_folder, path) = socket();
        let mut site = Site::new(&path, ours);
        let peer = Peer { socket: &path, role: theirs, queues: 1, memory: ORDINARY };
        for turn in 1..3 {
            let running = peer.start();
            site.await_peers();
            site.flow(5_000);
            running.signal(Signal::KILL);
            drop(running);
            // Whoever sends now loses frames, and the account holds.
            for number in 0..200 {
                let _ = site.a.tx().send(&numbered(station(2), station(1), number, 60)).unwrap();
            }
            site.a.tx().sync().unwrap();
            let status = site.daemon.await_status("end", |status| {
                peers(status).iter().all(|peer| !peer.connected && peer.connections == turn)
            });
            assert_eq!(status.ports.iter().map(|port| port.counters.violations).sum::<u64>(), 0);
            assert_conserved(&await_conserved(&site.daemon));
            if theirs == "role=server" {
                // testpmd does not replace the socket that it left behind when it was killed.
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

#[test]
fn a_daemon_that_is_killed_in_full_flow_finds_its_testpmd_again() {
    if !has_testpmd() {
        return;
    }
    let (_folder, path) = socket();
    let _peer = Peer { socket: &path, role: "role=server", queues: 1, memory: ORDINARY }.start();
    for _ in 0..2 {
        let mut site = Site::new(&path, "role=client");
        site.await_peers();
        site.there_and_back(&LENGTHS);
        site.flow(5_000);
        site.daemon.signal(Signal::KILL);
        site.daemon.await_end();
    }
}
