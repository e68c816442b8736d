//! Tests of hostile servers at Ringroad's client.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use ringroad_control::listening_socket::ListeningSocket;
use ringroad_ring::foreign_memory::ForeignMemory;
use rustix::fs::ftruncate;
use rustix::net::SocketType;

use super::*;
use crate::memif::channel::Channel;
use crate::memif::message::{AddRing, MemifHello, MemifMessage, VERSION};
use crate::memif::ring::{Descriptor, Regions, Ring};
use crate::peer::socket::StopBell;

fn hello() -> MemifHello {
    MemifHello {
        name: "liar".into(),
        min_version: VERSION,
        max_version: VERSION,
        max_region: 0,
        max_ring_to_client: 0,
        max_ring_to_server: 0,
        max_log2_ring_size: 6,
    }
}

/// A server whose memory the test writes, after a client has connected.
struct Liar {
    channel: Channel,
    stop: StopBell,
    file: OwnedFd,
    to_server: Ring,
    to_client: Ring,
    _events: Vec<OwnedFd>,
}

fn accept(listener: &ListeningSocket, stop: &StopBell) -> Channel {
    assert!(stop.wait([listener.as_fd()], Some(PATIENCE)).is_some_and(|ready| ready[0]), "no client");
    Channel::new(listener.accept().unwrap().unwrap())
}

impl Liar {
    fn connected(listener: &ListeningSocket) -> Self {
        let stop = StopBell::new().unwrap();
        let channel = accept(listener, &stop);
        channel.send(&MemifMessage::Hello(hello()), None).unwrap();
        let (mut file, mut rings, mut events) = (None, Vec::<AddRing>::new(), Vec::new());
        loop {
            let (message, descriptor) = channel.next(&stop).unwrap();
            match message {
                MemifMessage::Init(init) => assert_eq!((init.version, init.id), (VERSION, 0)),
                MemifMessage::AddRegion(region) => file = Some((descriptor.unwrap(), region.bytes)),
                MemifMessage::AddRing(ring) => {
                    rings.push(ring);
                    events.extend(descriptor);
                }
                MemifMessage::Connect(_) => break,
                other => panic!("{other:?}"),
            }
            channel.send(&MemifMessage::Ack, None).unwrap();
        }
        channel.send(&MemifMessage::Connected("lie".into()), None).unwrap();
        let (file, bytes) = file.unwrap();
        let regions = Regions::new(vec![ForeignMemory::map(file.as_fd(), 0, bytes).unwrap()]);
        let ring = |to_server| {
            let shown = rings.iter().find(|ring| ring.to_server == to_server).unwrap();
            Ring::new(&regions, shown.region, shown.offset, shown.log2_size).unwrap()
        };
        Self { channel, stop, file, to_server: ring(true), to_client: ring(false), _events: events }
    }
}

#[test]
fn a_server_with_false_indexes_gets_the_reason_and_a_new_connection() {
    let (_folder, path) = socket();
    let listener = ListeningSocket::bind(&path, SocketType::SEQPACKET, None).unwrap();
    let mut client = Port::open(&path, "role=client");
    type Lie = fn(&Liar);
    let lies: [(&str, Lie); 5] = [
        ("rx ring 0 was stopped: the peer moved its index", |liar| {
            liar.to_client.tail().store(65, Ordering::Release)
        }),
        ("holds 4096 bytes, more than 2048", |liar| {
            let lie = Descriptor { has_next: false, region: 0, bytes: 4096, offset: 0 };
            liar.to_client.describe(0, lie);
            liar.to_client.tail().store(1, Ordering::Release);
        }),
        ("more than 64 parts", |liar| {
            for position in 0..64 {
                let lie = Descriptor { has_next: true, region: 0, bytes: 1, offset: 0 };
                liar.to_client.describe(position, lie);
            }
            liar.to_client.tail().store(64, Ordering::Release);
        }),
        ("tx ring 0 was stopped: the peer moved its index", |liar| {
            liar.to_server.tail().store(9, Ordering::Release)
        }),
        ("tx ring 0 was stopped: the peer moved its index", |liar| {
            liar.to_server.tail().store(u16::MAX, Ordering::Release)
        }),
    ];
    for (turn, (why, lie)) in (1..).zip(lies) {
        let liar = Liar::connected(&listener);
        assert!(ftruncate(&liar.file, 0).is_err(), "the memory can be shortened");
        until(|| {
            client.serve();
            client.has_rings(0)
        });
        lie(&liar);
        until(|| {
            client.receive(0);
            client.device.queues[0].backpressure().unwrap().room(60);
            let status = client.status();
            status.connections == turn && !status.is_connected
        });
        let error = client.status().last_error.unwrap();
        assert!(error.contains(why), "{why}: {error}");
        assert_eq!(client.violations(), 1);
        let Ok((MemifMessage::Disconnect { reason, .. }, _)) = liar.channel.receive() else {
            panic!("no word")
        };
        assert!(error.starts_with(&reason) && !reason.is_empty(), "{reason}");
        // A server that overwrites frames and descriptors does not change the locations at which the client finds its
        // buffers.
        drop(liar);
    }
}

#[test]
fn offsets_written_by_a_server_lead_to_no_other_memory() {
    let (_folder, path) = socket();
    let listener = ListeningSocket::bind(&path, SocketType::SEQPACKET, None).unwrap();
    let mut client = Port::open(&path, "role=client");
    let liar = Liar::connected(&listener);
    until(|| {
        client.serve();
        client.has_rings(0)
    });
    let lie = Descriptor { has_next: false, region: 77, bytes: 60, offset: u32::MAX };
    liar.to_client.describe_whole(0, lie);
    liar.to_client.tail().store(1, Ordering::Release);
    assert_eq!(client.receive(0), [vec![0; 60]]);
    // The slot is unchanged.
    let given = liar.to_client.descriptor(0);
    assert_eq!((given.region, given.bytes, given.has_next), (0, 2048, false));
    assert_eq!(liar.to_client.head().load(Ordering::Acquire), 65);
    assert!(liar.stop.wait([liar.channel.as_fd()], Some(Duration::ZERO)).is_some_and(|ready| !ready[0]));
}

#[test]
fn a_servers_wrong_messages_are_reported() {
    let (_folder, path) = socket();
    let listener = ListeningSocket::bind(&path, SocketType::SEQPACKET, None).unwrap();
    let client = Port::open(&path, "role=client");
    let stop = StopBell::new().unwrap();
    let old = MemifHello { min_version: 0x0100, max_version: 0x01FF, ..hello() };
    for (message, why) in [
        (MemifMessage::Hello(old), "versions 1 to 1"),
        (MemifMessage::Connected(String::new()), "message connected"),
        (MemifMessage::Disconnect { code: 1, reason: "go away".into() }, "the peer disconnected: go away"),
    ] {
        let channel = accept(&listener, &stop);
        channel.send(&message, None).unwrap();
        until(|| client.status().last_error.is_some_and(|error| error.contains(why)));
    }
}

#[test]
fn a_server_that_refuses_further_rings_gets_fewer() {
    let (_folder, path) = socket();
    let listener = ListeningSocket::bind(&path, SocketType::SEQPACKET, None).unwrap();
    let mut client = Port::open(&path, "role=client,queues=4");
    let stop = StopBell::new().unwrap();
    let greeting = MemifHello { max_ring_to_client: 255, max_ring_to_server: 255, ..hello() };
    // The server has two queues for frames from the client, and one for frames to it.
    let (channel, rings) = 'connections: loop {
        let channel = accept(&listener, &stop);
        channel.send(&MemifMessage::Hello(greeting.clone()), None).unwrap();
        let mut rings = [0, 0];
        loop {
            match channel.next(&stop).unwrap().0 {
                MemifMessage::AddRing(ring) if ring.index >= if ring.to_server { 2 } else { 1 } => {
                    let reason = "Invalid ring index".to_owned();
                    channel.send(&MemifMessage::Disconnect { code: 0, reason }, None).unwrap();
                    break;
                }
                MemifMessage::AddRing(ring) => rings[usize::from(ring.to_server)] += 1,
                MemifMessage::Connect(_) => break 'connections (channel, rings),
                _ => {}
            }
            channel.send(&MemifMessage::Ack, None).unwrap();
        }
    };
    assert_eq!(rings, [1, 2]);
    channel.send(&MemifMessage::Connected("two".into()), None).unwrap();
    until(|| {
        client.serve();
        client.status().is_connected && client.has_rings(1)
    });
    // Frames leave by the queues that have a ring to the server.
    assert_eq!((client.status().active_queues, client.status().last_error), (2, None));
    assert!(!client.has_rings(2));
}

#[test]
fn the_reason_of_a_server_is_kept_when_the_server_has_gone() {
    let (_folder, path) = socket();
    let listener = ListeningSocket::bind(&path, SocketType::SEQPACKET, None).unwrap();
    let client = Port::open(&path, "role=client");
    let channel = accept(&listener, &StopBell::new().unwrap());
    let reason = "wrong secret".to_owned();
    channel.send(&MemifMessage::Disconnect { code: 1, reason }, None).unwrap();
    until(|| client.status().last_error.is_some());
    drop((channel, listener));
    until(|| {
        let told = client.status().last_error.unwrap();
        told.starts_with("the peer disconnected: wrong secret; since then: connecting to ")
    });
}
