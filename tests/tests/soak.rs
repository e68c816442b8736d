//! Ports of every kind, hostile programs and short-lived programs run side by side for a given time. None of them
//! leaves anything behind.
//!
//! `RINGROAD_SOAK_SECONDS` sets the duration (20).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringroad::Port;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::frames::{numbered, station};
use ringroad_tests::network::{NetworkNamespace, cable, finished, is_root};
use ringroad_tests::passage::both_ways;
use ringroad_tests::raw_port::RawPort;

/// Time before the measurement, in which the daemon learns and every kind of traffic runs once.
const WARM_UP: Duration = Duration::from_secs(5);
/// Maximum growth of the daemon's memory, in bytes: the allocator keeps some.
const ALLOCATOR_BYTES: u64 = 8 << 20;
const LENGTHS: [usize; 6] = [60, 61, 128, 777, 1500, 1514];
/// Switches, one for each kind of port. A port that stays keeps the switch, and with it the switch's counters.
const SWITCHES: [&str; 7] = ["hostile", "native", "guest", "memif", "veth", "churn", "device"];

/// Names of ports that exist all the time, without the names of their switches.
const STAYING: [&str; 7] = [":stays", ":p", ":outer", ":g", ":g-idle", ":m", ":m-idle"];

fn config() -> String {
    let stays = SWITCHES.map(|switch| format!("[[port]]\nname = \"vale{switch}:stays\"\n"));
    format!(
        "[workers]\ncount = 2\n[socket]\nmode = \"0666\"\n{}[[port]]\nname = \"valechurn:p\"\n",
        stays.concat()
    )
}

/// Resources that the daemon uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Footprint {
    descriptors: usize,
    threads: usize,
    resident_bytes: u64,
    shared_bytes: u64,
}

struct Testbed {
    // Fields are dropped in this order: the daemon before the namespaces.
    daemon: Daemon,
    station: Option<NetworkNamespace>,
    outside: Option<NetworkNamespace>,
}

/// A task that runs beside the others. Each call returns the number of its operations.
struct Deed<'a> {
    name: &'a str,
    act: Box<dyn FnMut(u64) -> u64 + Send + 'a>,
}

impl Testbed {
    fn new() -> Self {
        let outside = is_root().then(NetworkNamespace::new);
        let launcher = outside.as_ref().map_or(vec![], |outside| vec!["ip", "netns", "exec", outside.name()]);
        let daemon = Daemon::launched_by(&launcher, &config());
        let station = outside.as_ref().map(|outside| {
            let station = NetworkNamespace::new();
            cable(outside, "outer", &station, "inner", 1500, 1);
            station
        });
        let site = Self { daemon, station, outside };
        for (port, kind) in [("valeguest:g", "vhost-user"), ("valememif:m", "memif")] {
            for (suffix, socket) in [("", kind.to_owned()), ("-idle", format!("{kind}-idle"))] {
                let driver = format!("{kind}:{}", site.path(&socket).display());
                site.attach(&format!("{port}{suffix}"), &driver);
            }
        }
        if let Some(outside) = &site.outside {
            site.attach("valeveth:outer", &format!("xdp:outer@netns={}", outside.name()));
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.daemon.folder().join(name)
    }

    /// Opens a port whose last user has closed it. A child that another thread starts has a copy of the connection
    /// until its exec, so the name may still be in use for a while.
    fn open(&self, name: &str) -> Port {
        let patience = Instant::now() + PATIENCE.unwrap();
        loop {
            match Port::open_with(name, &self.daemon.options()) {
                Ok(port) => return port,
                Err(error) => assert!(Instant::now() < patience, "{name}: {error}"),
            }
        }
    }

    fn attach(&self, port: &str, driver: &str) {
        finished(&mut self.daemon.ringroad(&["attach", port, "--driver", driver]));
    }

    fn footprint(&self) -> Footprint {
        let process = format!("/proc/{}", self.daemon.pid().as_raw_nonzero());
        let count = |folder: &str| std::fs::read_dir(format!("{process}/{folder}")).unwrap().count();
        let statm = std::fs::read_to_string(format!("{process}/statm")).unwrap();
        let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
        Footprint {
            descriptors: count("fd"),
            threads: count("task"),
            resident_bytes: pages * 4096,
            shared_bytes: self.daemon.status().shared_memory_bytes,
        }
    }

    /// Carries frames there and back between two ports. Each frame must arrive whole and in order.
    fn both_ways(one: &mut Port, other: &mut Port) -> u64 {
        const FRAMES: usize = 2000;
        both_ways(one.queue(), other.queue(), &LENGTHS, 1, FRAMES);
        2 * FRAMES as u64
    }

    /// Carries frames between ports that were opened for this round.
    fn pass(&self, one: &str, other: impl FnOnce() -> Port) -> u64 {
        Self::both_ways(&mut self.open(one), &mut other())
    }

    fn here(&self, scheme: &str, socket: &str, options: &str) -> Port {
        Port::open(&format!("{scheme}:{}{options}", self.path(socket).display())).unwrap()
    }

    /// Starts a command, and kills it while it works.
    fn kill_early(&self, arguments: &[&str], round: u64) {
        let mut command = self.daemon.ringroad(arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round * 7 % 60));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn traffic(&self) -> Vec<Deed<'_>> {
        let mut deeds = vec![
            Deed::new("native", |_| self.pass("valenative:a", || self.open("valenative:b"))),
            Deed::new("pipe", |_| self.pass("pipe{1", || self.open("pipe}1"))),
            Deed::new("guest", |_| self.pass("valeguest:n", || self.here("virtio-user", "vhost-user", ""))),
            Deed::new("memif", |_| self.pass("valememif:n", || self.here("memif", "memif", "@role=client"))),
        ];
        if let Some(station) = &self.station {
            let name = format!("packet:inner@netns={}", station.name());
            deeds.push(Deed::new("veth", move |_| self.pass("valeveth:n", || self.open(&name))));
        }
        deeds
    }

    fn netmap_programs(&self) -> Vec<Deed<'_>> {
        let deed = |name| {
            let program = self.compiled(name).display().to_string();
            Deed::new(name, move |_| {
                let mut command = self.daemon.ringroad(&["run", "--no-pcap", "--", &program]);
                let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
                // The program checks what has arrived after one poll, which under this load may be too early. Here it
                // only has to end.
                assert!(status.code().is_some(), "{program}: {status}");
                1
            })
        };
        ["switch", "pipes", "bindings", "monitors"].map(deed).into()
    }

    fn compiled(&self, name: &str) -> PathBuf {
        let compat = Path::new(env!("CARGO_MANIFEST_DIR")).join("../compat");
        let program = self.path(name);
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-O2", "-pthread", "-I"]).arg(compat.join("include"));
        gcc.arg(compat.join("tests/device").join(name).with_extension("c")).arg("-o").arg(&program);
        finished(&mut gcc);
        program
    }

    fn hostility(&self) -> Vec<Deed<'_>> {
        let program = self.daemon.program_for_all(Path::new(env!("CARGO_BIN_EXE_hostile_client")));
        vec![
            Deed::new("scribblers", move |round| {
                let mut command = match is_root() {
                    true => {
                        let mut command = Command::new("setpriv");
                        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
                        command
                    }
                    false => Command::new(&program),
                };
                command.arg(self.daemon.socket()).args(["valehostile:scribbler", &round.to_string()]);
                // The client kills itself at any point.
                command.stderr(Stdio::null()).status().unwrap();
                1
            }),
            Deed::new("blocking eventfds", |round| {
                let attacker = RawPort::open(&self.daemon, &format!("valehostile:w{}", round % 64));
                attacker.lie_in_wait();
                let mut sender = self.open("valehostile:sender");
                for number in 0..64 {
                    sender.tx().send(&numbered([0xFF; 6], station(9), number, 60)).unwrap();
                    sender.tx().sync().unwrap();
                }
                1
            }),
            Deed::new("unread replies", |_| {
                let mut stream = UnixStream::connect(self.daemon.socket()).unwrap();
                stream.set_nonblocking(true).unwrap();
                let request = b"\x08\0\0\0\"status\"".repeat(1000);
                while stream.write(&request).is_ok_and(|bytes| bytes > 0) {}
                // The next round starts when the daemon has had time for other clients.
                let _ = self.daemon.status();
                1
            }),
            Deed::new("garbage for peers", |round| {
                for (socket, kind) in [("vhost-user-idle", false), ("memif-idle", true)] {
                    self.garbage(socket, kind, round);
                }
                1
            }),
        ]
    }

    fn garbage(&self, socket: &str, packets: bool, round: u64) {
        use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};
        let kind = if packets { SocketType::SEQPACKET } else { SocketType::STREAM };
        let socket_of_ours = rustix::net::socket(AddressFamily::UNIX, kind, None).unwrap();
        let address = SocketAddrUnix::new(self.path(socket)).unwrap();
        if rustix::net::connect(&socket_of_ours, &address).is_err() {
            return;
        }
        let mut state = round | 1;
        for _ in 0..4 {
            let bytes: Vec<u8> = (0..128)
                .map(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) as u8
                })
                .collect();
            let _ = rustix::net::send(&socket_of_ours, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    fn coming_and_going(&self) -> Vec<Deed<'_>> {
        let mut sender = self.open("valechurn:s");
        let frame = numbered([0xFF; 6], station(7), 0, 60);
        vec![
            Deed::new("flood for a port that comes and goes", move |_| {
                let mut frames = 0;
                while frames < 1000 && sender.tx().send(&frame).unwrap() {
                    frames += 1;
                }
                sender.tx().sync().unwrap();
                frames
            }),
            Deed::new("persistent port opened", |_| {
                let mut port = self.open("valechurn:p");
                port.wait(ringroad::Interest::Rx, Some(Duration::from_millis(5))).unwrap();
                1
            }),
            Deed::new("receivers killed", |round| {
                self.kill_early(&["recv", "valechurn:r"], round);
                1
            }),
            Deed::new("devices attached", |_| {
                self.attach("valedevice:null", "null:size=60");
                finished(&mut self.daemon.ringroad(&["detach", "valedevice:null"]));
                1
            }),
        ]
    }

    /// Runs all tasks side by side for a time. Returns the number of operations of each.
    fn run(&self, time: Duration) -> Vec<(String, u64)> {
        let deeds = [self.traffic(), self.netmap_programs(), self.hostility(), self.coming_and_going()];
        let (over, end) = (AtomicBool::new(false), Instant::now() + time);
        std::thread::scope(|scope| {
            let over = &over;
            let running: Vec<_> = deeds
                .into_iter()
                .flatten()
                .map(|mut deed| {
                    let name = deed.name.to_owned();
                    // The thread's name identifies a task that fails.
                    let thread = std::thread::Builder::new().name(name.clone());
                    let thread = thread.spawn_scoped(scope, move || {
                        let _end = EndOfAll(over);
                        let (mut done, mut round) = (0, 0);
                        while !over.load(Ordering::Relaxed) && Instant::now() < end {
                            done += (deed.act)(round);
                            round += 1;
                        }
                        done
                    });
                    (name, thread.unwrap())
                })
                .collect();
            running.into_iter().map(|(name, thread)| (name, thread.join().unwrap())).collect()
        })
    }
}

impl<'a> Deed<'a> {
    fn new(name: &'a str, act: impl FnMut(u64) -> u64 + Send + 'a) -> Self {
        Self { name, act: Box::new(act) }
    }
}

/// Ends all tasks if one fails, so that the test does not run on for an hour.
struct EndOfAll<'a>(&'a AtomicBool);

impl Drop for EndOfAll<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn under_attack_every_frame_is_counted_and_nothing_is_left_behind() {
    let seconds = std::env::var("RINGROAD_SOAK_SECONDS").map_or(20, |text| text.parse().unwrap());
    let site = Testbed::new();
    site.run(WARM_UP);
    let ports =
        |site: &Testbed| site.daemon.status().ports.into_iter().map(|port| port.name).collect::<Vec<_>>();
    let settle = |site: &Testbed, requested: &[String]| {
        site.daemon.await_status("end of what came and went", |status| {
            status.ports.iter().map(|port| &port.name).eq(requested)
        });
        await_conserved(&site.daemon);
        site.footprint()
    };
    let stays: Vec<String> =
        ports(&site).into_iter().filter(|port| STAYING.iter().any(|part| port.ends_with(part))).collect();
    let before = settle(&site, &stays);
    let done = site.run(Duration::from_secs(seconds));
    // The last connections, and the threads that unmap large memory, end by themselves.
    let patience = Instant::now() + PATIENCE.unwrap();
    let mut after = settle(&site, &stays);
    while (after.descriptors, after.threads) != (before.descriptors, before.threads)
        && Instant::now() < patience
    {
        after = settle(&site, &stays);
    }
    for (name, count) in &done {
        println!("{count:12} {name}");
    }
    for switch in &site.daemon.status().switches {
        println!("{}: {:?}, {} replicated", switch.name, switch.totals, switch.replicated_frames);
    }
    println!("{seconds} s; before {before:?}, after {after:?}");
    assert!(done.iter().all(|(_, count)| *count > 0), "not everything took place: {done:?}");
    assert_eq!(
        (after.descriptors, after.threads, after.shared_bytes),
        (before.descriptors, before.threads, before.shared_bytes)
    );
    assert!(after.resident_bytes <= before.resident_bytes + ALLOCATOR_BYTES, "the daemon grew");
}
