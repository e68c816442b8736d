//! Limits of users on shared resources, and the return of these resources.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use ringroad::HugePages;
use ringroad::control::message::{ErrorReply, OpenedPort, PortProperties, Reply, Request};
use ringroad::control::netmap::{
    Badge, Bound, ExternalMemory, NetmapReply, NetmapRequest, Pool, Pools, PortSizes, Register,
};
use ringroad::control::{Connection, ControlError};
use ringroad_tests::daemon::Daemon;
use ringroad_tests::netmap_register::register_all_rings;
use ringroad_tests::network::is_root;
use rustix::process::{Resource, Rlimit, prlimit};

const NOBODY: u32 = 65_534;
/// Value of `NR_MONITOR_RX`.
const MONITOR_RX: u64 = 0x200;

/// A program's connection. The program's ports exist until the connection is closed.
struct Program(Connection);

impl Program {
    fn connect(daemon: &Daemon) -> Self {
        Self(Connection::connect(daemon.socket()).unwrap())
    }

    /// Connects as another user. The kernel reports the connecting thread's user to the daemon.
    fn connect_as(daemon: &Daemon, uid: u32) -> Self {
        let socket = daemon.socket();
        let connected = std::thread::spawn(move || {
            let uid = rustix::thread::Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            Connection::connect(socket).unwrap()
        });
        Self(connected.join().unwrap())
    }

    fn open(
        &mut self,
        name: &str,
        properties: PortProperties,
    ) -> Result<(OpenedPort, Vec<OwnedFd>), ErrorReply> {
        match self.0.request(&Request::Open { name: name.to_owned(), properties }) {
            Ok((Reply::Opened(opened), descriptors)) => Ok((opened, descriptors)),
            Err(ControlError::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// Makes this connection a netmap device.
    fn become_device(&mut self) -> Badge {
        match self.0.request(&Request::NetmapOpen).unwrap().0 {
            Reply::NetmapDevice(badge) => badge,
            other => panic!("{other:?}"),
        }
    }

    fn register(
        &mut self,
        device: Badge,
        register: Register,
    ) -> Result<(Box<Bound>, Vec<OwnedFd>), (i32, String)> {
        let request = NetmapRequest::Register(register);
        match self.0.request(&Request::Netmap { device: Some(device), request }).unwrap() {
            (Reply::Netmap(NetmapReply::Bound(bound)), descriptors) => Ok((bound, descriptors)),
            (Reply::Netmap(NetmapReply::Failed { errno, message }), _) => Err((errno, message)),
            other => panic!("{other:?}"),
        }
    }
}

fn small() -> PortProperties {
    PortProperties {
        slots: Some(64),
        buffer_bytes: Some(128),
        huge_pages: HugePages::Never,
        ..PortProperties::default()
    }
}

fn register(name: &str) -> Register {
    let sizes = PortSizes { tx_slots: 64, rx_slots: 64, tx_rings: 2, rx_rings: 2, ..PortSizes::default() };
    register_all_rings(name, sizes)
}

fn external(number: u64, memory_bytes: u64) -> Option<ExternalMemory> {
    let pool = |objects, object_bytes| Pool { offset: 0, objects, object_bytes };
    let (interfaces, rings) = (pool(16, 1024), pool(64, 20_480));
    Some(ExternalMemory {
        identity: [7, number, 0],
        pools: Pools { memory_bytes, interfaces, rings, ..Pools::default() },
    })
}

fn file_bytes(memory: &OwnedFd) -> u64 {
    u64::try_from(rustix::fs::fstat(memory).unwrap().st_size).unwrap()
}

/// Number of blocks that the kernel holds for a memfd.
fn blocks(memory: &OwnedFd) -> u64 {
    u64::try_from(rustix::fs::fstat(memory).unwrap().st_blocks).unwrap()
}

/// A daemon that every user can connect to. Only root can act as another user.
fn open_to_all(limits: &str) -> Daemon {
    let daemon = Daemon::with_config(&format!("[socket]\nmode = \"0666\"\n[limits]\n{limits}"));
    daemon.open_folder();
    daemon
}

#[test]
fn all_memory_that_programs_can_touch_is_counted_and_returned() {
    let daemon = Daemon::start();
    let (mut expected, mut kept) = (0, Vec::new());
    let mut native = Program::connect(&daemon);
    for name in ["vale0:a", "pair{1"] {
        let (_, mut descriptors) = native.open(name, small()).unwrap();
        expected += file_bytes(&descriptors[0]);
        kept.push(descriptors.swap_remove(0));
    }
    // Ports in the regions of other ports take no further memory.
    native.open("vale1:b@share=vale0:a", small()).unwrap();
    native.open("pair}1", small()).unwrap();
    let mut requests = Program::connect(&daemon);
    let mut devices: Vec<Program> = (0..5).map(|_| Program::connect(&daemon)).collect();
    let badges: Vec<Badge> = devices.iter_mut().map(Program::become_device).collect();
    for (badge, register, has_memory) in [
        (badges[0], register("vale2:a"), true),
        (badges[1], Register { external_memory: external(1, 16 << 20), ..register("vale2:b") }, true),
        (badges[2], Register { mem_id: 1, extra_buffers: 100, ..register("vale2:c") }, true),
        (badges[3], register("vale2:a{1"), false),
        (badges[4], Register { flags: MONITOR_RX, ..register("vale2:a") }, false),
    ] {
        let (bound, mut descriptors) = requests.register(badge, register).unwrap();
        expected += if has_memory { file_bytes(&descriptors[0]) } else { 0 };
        kept.push(descriptors.swap_remove(0));
        assert!(bound.extra_buffers == 0 || bound.extra_buffers == 100);
    }
    let status = daemon.status();
    assert_eq!(status.shared_memory_bytes, expected);
    assert_eq!(status.shared_memory_by_user.values().sum::<u64>(), expected);
    // A descriptor that a program keeps does not keep the memory: it is allocated here, and freed below.
    assert!(kept.iter().all(|memory| blocks(memory) > 0));
    // The memory is freed without any further netmap request.
    drop((native, requests, devices));
    let status = daemon.await_status("end of all regions", |status| status.shared_memory_bytes == 0);
    assert_eq!(kept.iter().map(blocks).sum::<u64>(), 0);
    assert!(status.ports.is_empty() && status.shared_memory_by_user.is_empty(), "{status:#?}");
}

#[test]
fn every_request_for_memory_beyond_the_limit_is_refused() {
    let daemon = Daemon::with_config("[limits]\nshared_memory_mib = 64\n");
    let mut program = Program::connect(&daemon);
    let large = PortProperties {
        queues: Some(16),
        slots: Some(4096),
        huge_pages: HugePages::Never,
        ..PortProperties::default()
    };
    for name in ["vale0:large", "pair{large"] {
        let refusal = program.open(name, large.clone()).unwrap_err();
        assert!(refusal.advice.contains("limits.shared_memory_mib"), "{refusal:?}");
    }
    let mut device = Program::connect(&daemon);
    let badge = device.become_device();
    for properties in [
        Register { external_memory: external(1, 1 << 30), ..register("vale0:external") },
        Register { mem_id: 1, ..register("vale0:global") },
        Register { sizes: PortSizes::default(), ..register("vale0:private") },
    ] {
        let (errno, message) = program.register(badge, properties).unwrap_err();
        assert_eq!(errno, rustix::io::Errno::NOMEM.raw_os_error());
        assert!(message.contains("limits.shared_memory_mib"), "{message}");
    }
    assert_eq!(daemon.status().shared_memory_bytes, 0);
    program.open("vale0:small", small()).unwrap();
    program.register(badge, register("vale0:netmap")).unwrap();
}

#[test]
fn extra_buffers_of_a_binding_are_bounded() {
    let daemon = Daemon::start();
    let mut program = Program::connect(&daemon);
    let mut device = Program::connect(&daemon);
    let badge = device.become_device();
    let properties = Register {
        extra_buffers: 500_000,
        external_memory: external(1, 1 << 30),
        ..register("vale0:greedy")
    };
    let (bound, _) = program.register(badge, properties).unwrap();
    assert_eq!(bound.extra_buffers, 4096);
    let refusal = program.open("vale0:x@extra-bufs=4097", small()).unwrap_err();
    assert!(refusal.message.contains("4096"), "{refusal:?}");
    program.open("vale0:x@extra-bufs=4096", small()).unwrap();
}

#[test]
fn each_limit_of_a_user_leaves_the_rest_to_others() {
    if !is_root() {
        return;
    }
    let limits = "shared_memory_mib = 64\nuser_shared_memory_mib = 2\nuser_switches = 3\nuser_ports_of_switch = 4\n\
                  user_ports = 6\nuser_queues = 12\nuser_pipes = 2\n";
    let tiny = PortProperties { slots: Some(4), buffer_bytes: Some(64), ..small() };
    for (key, name, queues) in [
        ("user_shared_memory_mib", "vale0:memory", None),
        ("user_switches", "vale{}:x", Some(1)),
        ("user_ports_of_switch", "vale0:x{}", Some(1)),
        ("user_queues", "vale{}:y", Some(8)),
        ("user_pipes", "pair{{}", Some(1)),
    ] {
        let daemon = open_to_all(limits);
        let [mut user, mut root] = [Program::connect_as(&daemon, NOBODY), Program::connect(&daemon)];
        let properties = match queues {
            Some(_) => PortProperties { queues, ..tiny.clone() },
            None => PortProperties {
                slots: Some(4096),
                huge_pages: HugePages::Never,
                ..PortProperties::default()
            },
        };
        let refusal = (0..10)
            .find_map(|number| user.open(&name.replace("{}", &number.to_string()), properties.clone()).err())
            .unwrap_or_else(|| panic!("limits.{key} refuses nothing"));
        assert!(refusal.advice.contains(key), "{key}: {refusal:?}");
        for number in 20..30 {
            root.open(&format!("vale{number}:root"), PortProperties { queues: Some(4), ..tiny.clone() })
                .unwrap();
        }
        let mut other = Program::connect_as(&daemon, NOBODY - 1);
        other.open("vale20:other", tiny.clone()).unwrap();
        drop((user, root, other));
        daemon.await_status("end of all ports", |status| status.shared_memory_bytes == 0);
        // A request like the refused one is granted now.
        let mut again = Program::connect_as(&daemon, NOBODY);
        again.open("vale0:again", tiny.clone()).unwrap();
    }
}

#[test]
fn a_users_netmap_ports_count_towards_the_limits() {
    if !is_root() {
        return;
    }
    let daemon = open_to_all("user_shared_memory_mib = 40\nuser_ports_of_switch = 2\nuser_pipes = 1\n");
    let mut user = Program::connect_as(&daemon, NOBODY);
    let mut devices: Vec<Program> = (0..8).map(|_| Program::connect_as(&daemon, NOBODY)).collect();
    let badges: Vec<Badge> = devices.iter_mut().map(Program::become_device).collect();
    let small = |name: &str| Register { external_memory: external(1, 16 << 20), ..register(name) };
    for (badge, name) in badges.iter().zip(["vale0:a", "vale0:b", "vale0:a{1"]) {
        let properties = if name.contains('{') { register(name) } else { small(name) };
        user.register(*badge, properties).unwrap();
    }
    for (properties, key) in [
        (small("vale0:c"), "limits.user_ports_of_switch"),
        (register("vale0:a{2"), "limits.user_pipes"),
        // A parent port that is made for a pipe is removed with the pipe.
        (small("vale1:lonely{1"), "limits.user_pipes"),
        (
            Register { external_memory: external(2, 32 << 20), ..register("vale1:c") },
            "limits.user_shared_memory_mib",
        ),
    ] {
        let (errno, message) = user.register(badges[3], properties).unwrap_err();
        assert_eq!(errno, rustix::io::Errno::NOMEM.raw_os_error());
        assert!(message.contains(key), "{message}");
    }
    assert!(daemon.status().ports.iter().all(|port| !port.name.contains("lonely")));
}

/// Limits the daemon to `more` descriptors beyond those that are open.
fn limit_descriptors(daemon: &Daemon, more: u64) -> Rlimit {
    let folder = format!("/proc/{}/fd", daemon.pid());
    let open = std::fs::read_dir(folder).unwrap();
    let taken: BTreeSet<u64> =
        open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    // The limit is for descriptor numbers, and the lowest free number is taken first.
    let free = (0..).filter(|number| !taken.contains(number)).nth(usize::try_from(more).unwrap());
    let own = rustix::process::getrlimit(Resource::Nofile);
    let tight = Rlimit { current: free, maximum: own.maximum };
    prlimit(Some(daemon.pid()), Resource::Nofile, tight).unwrap()
}

#[test]
fn a_port_that_fails_for_lack_of_descriptors_leaves_nothing() {
    let daemon = Daemon::start();
    let properties = PortProperties { queues: Some(2), ..small() };
    let mut refused = 0;
    for more in 0..24 {
        for name in ["vale0:a", "pair{1", "netmap"] {
            let mut program = Program::connect(&daemon);
            let mut device = Program::connect(&daemon);
            let badge = device.become_device();
            let before = limit_descriptors(&daemon, more);
            let opened = match name {
                "netmap" => program.register(badge, register("vale1:n")).is_ok(),
                name => program.open(name, properties.clone()).is_ok(),
            };
            prlimit(Some(daemon.pid()), Resource::Nofile, before).unwrap();
            if opened {
                drop((program, device));
                daemon.await_status("end of the port", |status| status.ports.is_empty());
                continue;
            }
            refused += 1;
            // The requester is still connected.
            let status = daemon.status();
            assert!(status.ports.is_empty(), "{name} with {more} descriptors left {:#?}", status.ports);
            assert_eq!(status.shared_memory_bytes, 0, "{name} with {more} descriptors");
            match name {
                "netmap" => drop(program.register(badge, register("vale1:n")).unwrap()),
                name => drop(program.open(name, properties.clone()).unwrap()),
            }
            drop((program, device));
            daemon.await_status("end of the port", |status| status.ports.is_empty());
        }
    }
    assert!(refused > 24, "descriptors did not run out");
    daemon.await_status("end of all regions", |status| status.shared_memory_bytes == 0);
}
