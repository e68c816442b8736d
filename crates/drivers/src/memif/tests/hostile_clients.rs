//! Tests of hostile clients at Ringroad's server: false messages, false rings, truncated memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use ringroad_port::drop_cause::DropCause;
use ringroad_ring::eventfd;
use ringroad_ring::foreign_memory::ForeignMemory;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::SocketType;

use super::*;
use crate::memif::channel::Channel;
use crate::memif::message::{AddRegion, AddRing, Init, MemifMessage, VERSION};
use crate::memif::ring::{Descriptor, Regions, Ring, ring_bytes};
use crate::peer::socket::StopBell;
use ringroad_control::listening_socket::connect as connect_socket;

const LOG2: u8 = 6;
const REGION_BYTES: u64 = 1 << 20;
const BUFFERS_AT: u32 = 64 << 10;

/// A client whose memory the test writes: region 0 with the rings, region 1 with buffers.
struct Liar {
    channel: Channel,
    stop: StopBell,
    file: OwnedFd,
    buffers: OwnedFd,
    to_server: Ring,
    to_client: Ring,
    /// The eventfd with which the server wakes the client.
    interrupt: OwnedFd,
}

fn memory() -> OwnedFd {
    let file = memfd_create("liar", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, REGION_BYTES).unwrap();
    file
}

fn init(id: u32) -> MemifMessage {
    MemifMessage::Init(Init { version: VERSION, id, mode: 0, secret: Vec::new(), name: "liar".into() })
}

fn ring(to_server: bool) -> AddRing {
    let offset = if to_server { 0 } else { ring_bytes(LOG2) as u32 };
    AddRing { to_server, index: 0, region: 0, offset, log2_size: LOG2, private_header_bytes: 0 }
}

impl Liar {
    fn greeted(path: &std::path::Path) -> Self {
        let channel = Channel::new(connect_socket(path, SocketType::SEQPACKET).unwrap());
        let (file, buffers, stop) = (memory(), memory(), StopBell::new().unwrap());
        let map = |file: &OwnedFd| ForeignMemory::map(file.as_fd(), 0, REGION_BYTES).unwrap();
        let regions = Regions::new(vec![map(&file), map(&buffers)]);
        let make = |to_server| {
            let ring = Ring::new(&regions, 0, ring(to_server).offset, LOG2).unwrap();
            ring.init();
            ring
        };
        let (to_server, to_client) = (make(true), make(false));
        let Ok((MemifMessage::Hello(hello), _)) = channel.next(&stop) else { panic!("no hello") };
        assert_eq!((hello.min_version, hello.max_log2_ring_size), (VERSION, 14));
        Self { channel, stop, file, buffers, to_server, to_client, interrupt: eventfd::create().unwrap() }
    }

    fn say(&self, message: &MemifMessage, descriptor: Option<BorrowedFd<'_>>) -> MemifMessage {
        self.channel.send(message, descriptor).unwrap();
        match self.channel.next(&self.stop) {
            Ok((answer, _)) => answer,
            Err(end) => MemifMessage::Disconnect { code: 0, reason: end.told(false).unwrap_or_default() },
        }
    }

    fn connected(path: &std::path::Path) -> Self {
        let this = Self::greeted(path);
        let to_server = eventfd::create().unwrap();
        assert_eq!(this.say(&init(0), None), MemifMessage::Ack);
        for (index, file) in [(0, &this.file), (1, &this.buffers)] {
            let region = MemifMessage::AddRegion(AddRegion { index, bytes: REGION_BYTES });
            assert_eq!(this.say(&region, Some(file.as_fd())), MemifMessage::Ack);
        }
        assert_eq!(this.say(&MemifMessage::AddRing(ring(true)), Some(to_server.as_fd())), MemifMessage::Ack);
        assert_eq!(
            this.say(&MemifMessage::AddRing(ring(false)), Some(this.interrupt.as_fd())),
            MemifMessage::Ack
        );
        assert_eq!(
            this.say(&MemifMessage::Connect("lo".into()), None),
            MemifMessage::Connected("ringroad/0".into())
        );
        for position in 0..this.to_client.size() {
            this.to_client.describe_whole(position, honest(position));
        }
        this
    }

    /// Writes `descriptors`, and publishes `count` as their number.
    fn show(&self, descriptors: &[Descriptor], count: u16) {
        for (position, descriptor) in (0..).zip(descriptors) {
            self.to_server.describe_whole(position, *descriptor);
        }
        self.to_server.head().store(count, Ordering::Release);
    }

    /// The server's reason for the end of the connection.
    fn reason(&self, server: &mut Port) -> String {
        let mut reason = None;
        until(|| {
            server.receive(0);
            match self.stop.wait([self.channel.as_fd()], Some(Duration::ZERO)) {
                Some([true]) => match self.channel.receive() {
                    Ok((MemifMessage::Disconnect { reason: told, .. }, _)) => reason = Some(told),
                    other => panic!("{other:?}"),
                },
                _ => return false,
            }
            true
        });
        until(|| {
            server.receive(0);
            !server.status().is_connected
        });
        reason.unwrap()
    }
}

fn honest(position: u16) -> Descriptor {
    let offset = BUFFERS_AT + u32::from(position % 64) * 2048;
    Descriptor { has_next: false, region: 1, bytes: 2048, offset }
}

#[test]
fn a_client_with_false_indexes_gets_the_reason_and_the_next_is_served() {
    let (_folder, path) = socket();
    let mut server = Port::open(&path, "role=server");
    let good = honest(0);
    let chain = [Descriptor { has_next: true, ..good }; 64];
    let lies: [(&str, Vec<Descriptor>, u16); 7] = [
        ("index", vec![good], 65),
        ("index", vec![good], u16::MAX),
        ("region 2", vec![good, Descriptor { region: 2, ..good }], 2),
        ("do not lie in it", vec![Descriptor { offset: REGION_BYTES as u32 - 100, ..good }], 1),
        ("do not lie in it", vec![Descriptor { offset: u32::MAX, bytes: 60, ..good }], 1),
        ("holds 65536 bytes", vec![Descriptor { bytes: 65536, offset: 0, ..good }], 1),
        ("more than 64 parts", chain.to_vec(), 64),
    ];
    for (why, descriptors, count) in lies {
        let liar = Liar::connected(&path);
        liar.show(&descriptors, count);
        let reason = liar.reason(&mut server);
        assert!(reason.contains(why), "{why}: {reason}");
        assert_eq!(server.violations(), 1, "{why}");
        let fault = server.device.queues[0].diagnosis().unwrap().fault().unwrap();
        assert!(fault.contains(why), "{why}: {fault}");
        assert_eq!(server.status().last_error, Some(fault));
    }
    let mut client = Port::open(&path, "role=client");
    connect(&mut server, &mut client);
    pass(&mut client, &mut server, 0, &[frame(1, 100)], 2048);
    assert_eq!(server.device.queues[0].diagnosis().unwrap().fault(), None);
}

#[test]
fn false_empty_buffers_get_no_frame_and_the_frames_are_counted() {
    let (_folder, path) = socket();
    let mut server = Port::open(&path, "role=server");
    let lies = [
        ("region 9", Descriptor { region: 9, ..honest(0) }, 64),
        ("no bytes", Descriptor { bytes: 0, ..honest(0) }, 64),
        ("do not lie in it", Descriptor { offset: u32::MAX - 3, ..honest(0) }, 64),
        ("index", honest(0), 65),
    ];
    for (turn, (why, descriptor, head)) in (1..).zip(lies) {
        let liar = Liar::connected(&path);
        liar.to_client.describe_whole(1, descriptor);
        liar.to_client.head().store(head, Ordering::Release);
        until(|| {
            server.receive(0);
            // The fault of the last connection stays until the next connection.
            server.has_rings(0) || server.status().connections == turn
        });
        let delivery = server.send(0, &[frame(0, 60), frame(1, 60), frame(2, 60)], 2048);
        // The connection's thread may have taken the ring already.
        let stopped = delivery.dropped.of(DropCause::RingStopped) + delivery.dropped.of(DropCause::NotBound);
        assert_eq!(delivery.frames + stopped, 3);
        assert!(stopped >= 2, "{why}");
        let reason = liar.reason(&mut server);
        assert!(reason.contains(why), "{why}: {reason}");
        assert_eq!(server.violations(), 1);
    }
}

#[test]
fn an_unfinished_frame_waits_for_its_rest_and_lets_the_worker_sleep() {
    let (_folder, path) = socket();
    let mut server = Port::open(&path, "role=server");
    let liar = Liar::connected(&path);
    let part = Descriptor { has_next: true, bytes: 40, ..honest(0) };
    liar.show(&[part, Descriptor { has_next: false, ..part }], 1);
    until(|| {
        server.serve();
        server.has_rings(0)
    });
    server.serve();
    assert!(!server.device.queues[0].sleeper().unwrap().has_waiting());
    liar.to_server.head().store(2, Ordering::Release);
    assert!(server.device.queues[0].sleeper().unwrap().has_waiting());
    assert_eq!(server.receive(0), [vec![0; 80]]);
    // A client that reuses the slots need not clear the flag.
    assert!(!liar.to_server.descriptor(0).has_next);
    assert_eq!(liar.to_server.tail().load(Ordering::Acquire), 2);
}

#[test]
fn truncated_memory_ends_the_connection_and_nothing_else() {
    let (_folder, path) = socket();
    let mut server = Port::open(&path, "role=server");
    for truncates_rings in [true, false] {
        let liar = Liar::connected(&path);
        liar.show(&[honest(0); 64], 60);
        until(|| !server.receive(0).is_empty());
        let file = if truncates_rings { &liar.file } else { &liar.buffers };
        ftruncate(file, 0).unwrap();
        if !truncates_rings {
            liar.to_server.head().store(64, Ordering::Release);
        }
        let reason = liar.reason(&mut server);
        assert!(reason.contains("took back memory"), "{reason}");
    }
}

#[test]
fn messages_without_meaning_are_answered_with_a_reason() {
    let (_folder, path) = socket();
    let mut server = Port::open(&path, "role=server");
    let event = eventfd::create().unwrap();
    let file = memory();
    let region = |index, bytes| MemifMessage::AddRegion(AddRegion { index, bytes });
    let wrong_init = |change: fn(&mut Init)| {
        let MemifMessage::Init(mut wrong) = init(0) else { unreachable!() };
        change(&mut wrong);
        MemifMessage::Init(wrong)
    };
    let (fd, no) = (Some(file.as_fd()), None);
    let good = [(init(0), no), (region(0, REGION_BYTES), fd)];
    let add = |change: fn(&mut AddRing)| {
        let mut wrong = ring(true);
        change(&mut wrong);
        MemifMessage::AddRing(wrong)
    };
    let bell = Some(event.as_fd());
    type Said<'a> = (usize, MemifMessage, Option<BorrowedFd<'a>>, &'a str);
    let lies: Vec<Said<'_>> = vec![
        (0, wrong_init(|init| init.version = 0x0100), no, "version 1.0"),
        (0, wrong_init(|init| init.mode = 1), no, "Ethernet"),
        (0, MemifMessage::Ack, no, "message ack"),
        (1, MemifMessage::Connected(String::new()), no, "message connected"),
        (1, region(1, REGION_BYTES), fd, "region 1 came where 0"),
        (1, region(0, REGION_BYTES), no, "without a descriptor"),
        (1, region(0, REGION_BYTES + 1), fd, "were promised"),
        (1, region(0, 0), fd, "cannot be mapped"),
        (1, region(0, 4096), bell, "file on a disk"),
        (2, add(|_| ()), no, "without a descriptor"),
        (2, add(|_| ()), fd, "not an eventfd"),
        (2, add(|ring| ring.index = 1), bell, "ring 1 came where there are 1"),
    ];
    for (before, message, descriptor, why) in lies {
        let liar = Liar::greeted(&path);
        for (message, descriptor) in &good[..before] {
            assert_eq!(liar.say(message, *descriptor), MemifMessage::Ack, "{why}");
        }
        let MemifMessage::Disconnect { reason, .. } = liar.say(&message, descriptor) else { panic!("{why}") };
        assert!(reason.contains(why), "{why}: {reason}");
    }
    // Changes that the server detects only when the client's setup is complete.
    type Change = fn(&mut AddRing);
    let rings: [(Change, &str); 6] = [
        (|ring| ring.log2_size = 15, "2^15"),
        (|ring| ring.log2_size = 255, "2^255"),
        (|ring| ring.region = 1, "outside region 1"),
        (|ring| ring.offset = u32::MAX - 7, "outside region 0"),
        (|ring| ring.offset = 4, "multiple of 8"),
        (|ring| ring.offset = 4096, "does not begin as"),
    ];
    for (change, why) in rings {
        let liar = Liar::greeted(&path);
        for (message, descriptor) in &good {
            assert_eq!(liar.say(message, *descriptor), MemifMessage::Ack);
        }
        assert_eq!(liar.say(&add(change), bell), MemifMessage::Ack);
        let MemifMessage::Disconnect { reason, .. } = liar.say(&MemifMessage::Connect(String::new()), no)
        else {
            panic!("{why}")
        };
        assert!(reason.contains(why), "{why}: {reason}");
    }
    let mut client = Port::open(&path, "role=client");
    connect(&mut server, &mut client);
    pass(&mut client, &mut server, 0, &[frame(1, 100)], 2048);
}

#[test]
fn a_clients_full_blocking_interrupt_does_not_block_the_worker() {
    let (_folder, path) = socket();
    let mut server = Port::open(&path, "role=server");
    let liar = Liar::connected(&path);
    until(|| {
        server.receive(0);
        server.has_rings(0)
    });
    liar.to_client.head().store(64, Ordering::Release);
    rustix::io::write(&liar.interrupt, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    rustix::fs::fcntl_setfl(&liar.interrupt, rustix::fs::OFlags::empty()).unwrap();
    for number in 0..3 {
        assert_eq!(server.send(0, &[frame(number, 60)], 1000).frames, 1);
    }
}

#[test]
fn a_silent_client_blocks_no_other() {
    let (_folder, path) = socket();
    let mut server = Port::open(&path, "role=server");
    let _silent: Vec<Liar> = (0..8).map(|_| Liar::greeted(&path)).collect();
    let mut client = Port::open(&path, "role=client");
    connect(&mut server, &mut client);
    pass(&mut server, &mut client, 0, &[frame(1, 100)], 2048);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_server_survives_any_bytes_in_a_clients_ring(
        words in prop::collection::vec((any::<bool>(), 0u16..3, 0u32..70_000, any::<u32>()), 64),
        head in any::<u16>(),
    ) {
        let (_folder, path) = socket();
        let mut server = Port::open(&path, "role=server");
        let liar = Liar::connected(&path);
        let descriptors: Vec<Descriptor> = words
            .into_iter()
            .map(|(has_next, region, bytes, offset)| Descriptor { has_next, region, bytes, offset })
            .collect();
        for (position, descriptor) in (0..).zip(&descriptors) {
            liar.to_client.describe_whole(position, *descriptor);
        }
        liar.to_client.head().store(head % 80, Ordering::Release);
        liar.show(&descriptors, head % 80);
        until(|| {
            server.receive(0);
            server.has_rings(0) || server.device.queues[0].diagnosis().unwrap().fault().is_some()
        });
        for len in [60, 3000] {
            let delivery = server.send(0, &[frame(0, len), frame(1, len)], 1000);
            prop_assert_eq!(delivery.frames + delivery.dropped.total(), 2);
        }
    }
}
