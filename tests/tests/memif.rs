//! memif ports with Debian's testpmd and with gomemif at the other side, in either role.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use ringroad::control::report::{PeerReport, StatusReport};
use ringroad::{Interest, Port};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::frames::{number_of, numbered, station};
use ringroad_tests::passage::{both_ways, reaches};
use ringroad_tests::service::Service;
use ringroad_tests::testpmd::{Memory, Testpmd};
use rustix::process::Signal;
use tempfile::TempDir;

/// Starts a testpmd that forwards all frames from interface 0 to interface 1 and back, and waits until it forwards.
/// `roles` are the role and further options of each interface.
fn testpmd(memory: Memory, socket: &Path, roles: [&str; 2], queues: u16) -> Testpmd {
    let path = socket.display();
    let device = |(id, role)| format!("net_memif{id},id={id},socket={path},socket-abstract=no,{role}");
    let devices: Vec<String> = roles.into_iter().enumerate().map(device).collect();
    let mut testpmd =
        Testpmd::start(memory, &devices, &[&format!("--rxq={queues}"), &format!("--txq={queues}")]);
    testpmd.await_forwarding();
    testpmd
}

/// Two switches, each with a memif port and a program's port. Frames between the switches pass testpmd.
struct Testbed {
    daemon: Daemon,
    a: Port,
    b: Port,
    /// Whether the daemon makes the socket.
    serves: bool,
}

impl Testbed {
    fn new(socket: &Path, options: &str) -> Self {
        let port = |number: u16| {
            let driver = format!("memif:{}@id={number},{options}", socket.display());
            format!("[[port]]\nname = \"vale{number}:memif\"\ndriver = \"{driver}\"\n")
        };
        let daemon = Daemon::with_config(&(port(0) + &port(1)));
        let (a, b) = (daemon.open("vale0:a@slots=1024"), daemon.open("vale1:b@slots=1024"));
        Self { daemon, a, b, serves: options.contains("role=server") }
    }

    /// Starts a testpmd with `start` and waits until frames pass it both ways. Starts another testpmd if the first one
    /// has ended by itself. DPDK 22.11 sometimes ends so: its forwarding core reads memory that a connection maps or
    /// unmaps at that moment.
    fn meet(&mut self, socket: &Path, start: impl Fn() -> Testpmd) -> Testpmd {
        for _ in 0..TESTPMDS_MOST {
            let mut testpmd = start();
            if self.meets(&mut testpmd) {
                return testpmd;
            }
            if !self.serves {
                remove_left(socket);
            }
        }
        panic!("{TESTPMDS_MOST} testpmds have ended by themselves");
    }

    /// Waits until both peers are connected and frames pass them both ways. Returns false if testpmd has ended instead.
    fn meets(&mut self, testpmd: &mut Testpmd) -> bool {
        let meets = self.meets_while(|| testpmd.is_running());
        if !meets {
            eprintln!("testpmd has ended by itself");
        }
        meets
    }

    /// Waits as [`Self::meets`] does, for a peer that `is_running`.
    fn meets_while(&mut self, mut is_running: impl FnMut() -> bool) -> bool {
        let mut runs = true;
        self.daemon.await_status("connection", |status| {
            runs = is_running();
            !runs || are_connected(status)
        });
        let (a, b) = (self.a.queue(), self.b.queue());
        let passes = runs && reaches(a, b, 3, &mut is_running) && reaches(b, a, 4, &mut is_running);
        assert!(passes || !is_running(), "nothing comes through");
        passes
    }

    /// Carries frames through the peer both ways, and compares them.
    fn carry(&mut self) {
        self.carry_of(&LENGTHS);
    }

    /// Carries frames of these lengths.
    fn carry_of(&mut self, lengths: &[usize]) {
        both_ways(self.a.queue(), self.b.queue(), lengths, 3, 300);
    }

    /// Sends at full rate until `enough` frames have arrived at the other side.
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

/// Removes the socket that a killed testpmd left behind: testpmd does not replace it.
fn remove_left(socket: &Path) {
    let _ = std::fs::remove_file(socket);
}

fn are_connected(status: &StatusReport) -> bool {
    let peers = peers(status);
    peers.len() == 2 && peers.iter().all(|peer| peer.connected)
}

fn peers(status: &StatusReport) -> Vec<PeerReport> {
    status.ports.iter().filter_map(|port| port.peer.clone()).collect()
}

fn socket() -> (TempDir, PathBuf) {
    let folder = tempfile::Builder::new().prefix("ringroad-memif-").tempdir().unwrap();
    let path = folder.path().join("m.sock");
    (folder, path)
}

/// Maximum number of testpmds that may end by themselves.
const TESTPMDS_MOST: usize = 10;

const LENGTHS: [usize; 12] = [22, 60, 61, 64, 512, 1023, 1500, 1514, 1518, 2048, 2049, 9018];

#[test]
fn frames_come_back_unchanged_from_testpmd_as_client() {
    if !Testpmd::is_installed() {
        return;
    }
    // DPDK 22.11 closes the descriptor of its memory when its first zero-copy interface is connected, so a second such
    // interface has none to pass on.
    let copying = ["role=client", "role=client"];
    let sharing = ["role=client,zero-copy=yes", "role=client"];
    let kinds =
        [(copying, 1), (sharing, 1), (copying, 2)].map(|(roles, queues)| (Memory::Ordinary, roles, queues));
    let in_huge_pages = [copying, sharing].into_iter().filter_map(|roles| Some((Memory::huge()?, roles, 1)));
    for (memory, roles, queues) in kinds.into_iter().chain(in_huge_pages) {
        let (_folder, path) = socket();
        let mut site = Testbed::new(&path, &format!("role=server,queues={queues}"));
        let _peer = site.meet(&path, || testpmd(memory, &path, roles, queues));
        site.carry();
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
    if !Testpmd::is_installed() {
        return;
    }
    let (_folder, path) = socket();
    // The port has as many queues as testpmd, which does not run yet.
    let mut site = Testbed::new(&path, "role=client,queues=2,ring-size=512");
    let _peer = site.meet(&path, || testpmd(Memory::Ordinary, &path, ["role=server"; 2], 2));
    site.carry();
    site.flow(20_000);
    await_conserved(&site.daemon);
}

#[test]
fn a_testpmd_with_fewer_queues_is_served_with_as_many_as_it_has() {
    if !Testpmd::is_installed() {
        return;
    }
    for (ours, theirs) in [("role=server", "role=client"), ("role=client", "role=server")] {
        let (_folder, path) = socket();
        let mut site = Testbed::new(&path, &format!("{ours},queues=3"));
        let _peer = site.meet(&path, || testpmd(Memory::Ordinary, &path, [theirs; 2], 1));
        site.carry();
        let status = await_conserved(&site.daemon);
        for peer in peers(&status) {
            assert_eq!((peer.active_queues, peer.last_error), (1, None), "{ours}");
        }
    }
}

#[test]
fn a_testpmd_killed_under_traffic_reconnects() {
    if !Testpmd::is_installed() {
        return;
    }
    for (ours, theirs) in [("role=server", "role=client"), ("role=client", "role=server")] {
        let (_folder, path) = socket();
        let mut site = Testbed::new(&path, ours);
        for turn in 1..3 {
            let running = site.meet(&path, || testpmd(Memory::Ordinary, &path, [theirs; 2], 1));
            site.carry();
            site.flow(5_000);
            let connections =
                || peers(&site.daemon.status()).iter().map(|peer| peer.connections).collect::<Vec<_>>();
            let connected = connections();
            assert!(connected.iter().all(|&times| times >= turn), "{connected:?}");
            running.kill();
            // The sender's frames are now lost, and the counters still balance.
            for number in 0..200 {
                let _ = site.a.tx().send(&numbered(station(2), station(1), number, 60)).unwrap();
            }
            site.a.tx().sync().unwrap();
            let status =
                site.daemon.await_status("end", |status| peers(status).iter().all(|peer| !peer.connected));
            assert_eq!(connections(), connected, "no client has connected since");
            assert_eq!(status.ports.iter().map(|port| port.counters.violations).sum::<u64>(), 0);
            await_conserved(&site.daemon);
            if theirs == "role=server" {
                remove_left(&path);
            }
        }
    }
}

#[test]
fn a_daemon_killed_under_traffic_reconnects_to_testpmd() {
    if !Testpmd::is_installed() {
        return;
    }
    let (_folder, path) = socket();
    let start = || testpmd(Memory::Ordinary, &path, ["role=server"; 2], 1);
    let (mut peer, mut served) = (start(), 0);
    for _ in 0..TESTPMDS_MOST {
        let mut site = Testbed::new(&path, "role=client");
        if !site.meets(&mut peer) {
            remove_left(&path);
            (peer, served) = (start(), 0);
            continue;
        }
        site.carry();
        site.flow(5_000);
        site.daemon.signal(Signal::KILL);
        site.daemon.await_end();
        served += 1;
        if served == 2 {
            return;
        }
    }
    panic!("no testpmd was found again");
}

/// Starts gomemif's forwarder (`tests/gomemif`), and waits until frames pass it. Returns `None` if it is not built.
fn gomemif(site: &mut Testbed, socket: &Path, options: &str) -> Option<Service> {
    let Some(program) = std::env::var_os("RINGROAD_GOMEMIF") else {
        ringroad_test_needs::skip("gomemif's forwarder, which `make e2e` names in RINGROAD_GOMEMIF");
        return None;
    };
    let mut command = Command::new(program);
    command.arg("--socket").arg(socket).args(options.split_whitespace());
    let mut service = Service::start(command);
    assert!(site.meets_while(|| service.is_running()), "gomemif has ended by itself");
    Some(service)
}

/// A server for a client of gomemif, which takes the number of the server's last queue for that of its queues.
const FOR_GOMEMIF: &str = "role=server,queues=2";

/// Lengths of frames that fit into one buffer: gomemif repeats the beginning of a longer frame that it sends.
fn up_to(bytes: usize) -> Vec<usize> {
    LENGTHS.into_iter().filter(|&length| length <= bytes).collect()
}

#[test]
fn frames_come_back_unchanged_from_gomemif_as_client() {
    for (options, buffer) in
        [("--ring-size=64 --buf-size=256", 256), ("", 2048), ("--ring-size=1024 --buf-size=9216", 9216)]
    {
        let (_folder, path) = socket();
        let mut site = Testbed::new(&path, FOR_GOMEMIF);
        let Some(_peer) = gomemif(&mut site, &path, options) else { return };
        site.carry_of(&up_to(buffer));
        site.flow(20_000);
        let status = await_conserved(&site.daemon);
        for peer in peers(&status) {
            assert_eq!((peer.active_queues, peer.last_error), (1, None), "{options}");
        }
    }
}

#[test]
fn frames_come_back_unchanged_from_gomemif_as_server() {
    for (ours, queues) in
        [("ring-size=64", 1), ("ring-size=16384,queues=2", 2), ("ring-size=512,queues=3", 3)]
    {
        let (_folder, path) = socket();
        let mut site = Testbed::new(&path, &format!("role=client,{ours}"));
        let options = format!("--server --queues={queues}");
        let Some(_peer) = gomemif(&mut site, &path, &options) else { return };
        site.carry_of(&up_to(2048));
        site.flow(20_000);
        let status = await_conserved(&site.daemon);
        for peer in peers(&status) {
            assert_eq!((peer.active_queues, peer.last_error), (queues, None), "{ours}");
        }
    }
}

#[test]
fn gomemif_and_the_port_find_each_other_again_after_either_was_killed() {
    let (_folder, path) = socket();
    let mut site = Testbed::new(&path, FOR_GOMEMIF);
    for _ in 0..3 {
        let Some(mut peer) = gomemif(&mut site, &path, "") else { return };
        site.carry_of(&up_to(2048));
        site.flow(5_000);
        peer.kill();
        site.daemon.await_status("end", |status| peers(status).iter().all(|peer| !peer.connected));
        await_conserved(&site.daemon);
    }

    let (_folder, path) = socket();
    let mut site = Testbed::new(&path, "role=client");
    let Some(mut peer) = gomemif(&mut site, &path, "--server") else { return };
    for _ in 0..2 {
        site.flow(5_000);
        site.daemon.signal(Signal::KILL);
        site.daemon.await_end();
        site = Testbed::new(&path, "role=client");
        assert!(site.meets_while(|| peer.is_running()), "gomemif has ended by itself");
        site.carry_of(&up_to(2048));
    }
}
