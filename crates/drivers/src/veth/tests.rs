use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

use ringroad_netdev::link_by_name;
use ringroad_port::batch::Batch;
use ringroad_port::counters::BypassedFrames;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::PortQueue;
use ringroad_wire::mac::Mac;

use super::*;
use crate::test_network::{Host, RawSocket, in_own_namespace, ip, test_frame, until, wait_running};
use crate::test_queue::{deliver, forward, receive, receive_now};

/// A host with the inner end of a pair, and the outer end as a port in this process.
struct Container {
    host: Host,
    mac: [u8; 6],
    device: Device,
}

impl Container {
    /// Container number `number`.
    fn new(number: u8) -> Self {
        let (outer, inner) = (format!("rro{number}"), format!("rri{number}"));
        ip(&format!("link add {outer} type veth peer name {inner}"));
        ip(&format!("link set {outer} up"));
        let host = Host::new();
        host.take(&inner, &format!("10.9.0.{number}/24"));
        wait_running(&outer);
        let mac = host.run(move || link_by_name(&inner).unwrap().mac.unwrap());
        Self { host, mac, device: open(&config(&outer), Vec::new()).unwrap() }
    }

    fn queue(&mut self) -> &mut dyn PortQueue {
        &mut *self.device.queues[0]
    }

    fn shortcut(&self) -> &Shortcut {
        self.device.shortcut.as_ref().unwrap()
    }

    /// Adds the neighbour's address, so that no request for it is sent.
    fn knows(&self, other: &Self, number: u8) {
        let mac = Mac::from(other.mac);
        self.host.run(move || {
            let own = ringroad_netdev::link::links().unwrap();
            let inner = own.into_iter().find(|link| link.name.starts_with("rri")).unwrap().name;
            ip(&format!("neigh add 10.9.0.{number} lladdr {mac} dev {inner}"));
        });
    }

    fn passed(&mut self) -> BypassedFrames {
        self.queue().diagnosis().unwrap().take_passed()
    }
}

fn config(interface: &str) -> DivertConfig {
    let ifindex = link_by_name(interface).unwrap().index;
    DivertConfig { interface: interface.to_owned(), ifindex, mtu: 1500, queues: 1, offloads: true }
}

fn set<const N: usize>(addresses: [[u8; 6]; N]) -> BTreeSet<[u8; 6]> {
    BTreeSet::from(addresses)
}

#[test]
fn frames_of_the_inner_end_are_received_and_delivered_frames_arrive_there() {
    in_own_namespace(|| {
        let mut container = Container::new(1);
        let far = container.host.run(|| RawSocket::open("rri1", 0x88b5));
        far.send(&test_frame(1, 7, 60));
        assert_eq!(receive(container.queue(), 1), [test_frame(1, 7, 60)]);
        let frame = test_frame(2, 8, 1514);
        assert_eq!(deliver(container.queue(), std::slice::from_ref(&frame), 1514).frames, 1);
        assert_eq!(far.receive(), frame);
        // Nothing stays behind after the port's end.
        drop(container.device);
        until(|| !ip("link show").contains("rrv-"));
    });
}

#[test]
fn frames_between_known_addresses_pass_within_the_kernel_and_are_counted() {
    in_own_namespace(|| {
        let (mut a, mut b) = (Container::new(1), Container::new(2));
        a.knows(&b, 2);
        let sender = a.host.run(|| UdpSocket::bind("10.9.0.1:7").unwrap());
        let receiver = b.host.run(|| UdpSocket::bind("10.9.0.2:9").unwrap());
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let send =
            |text: &str| assert_eq!(sender.send_to(text.as_bytes(), "10.9.0.2:9").unwrap(), text.len());
        send("unknown");
        assert_eq!(receive(a.queue(), 1).len(), 1);

        let (of_a, of_b) = (set([a.mac]), set([b.mac]));
        for (container, addresses) in [(&a, &of_a), (&b, &of_b)] {
            assert_eq!(container.shortcut().keep_only(1, addresses).unwrap(), Vec::<[u8; 6]>::new());
            container.shortcut().add(addresses).unwrap();
        }
        send("known");
        let mut text = [0; 16];
        assert_eq!(receiver.recv(&mut text).unwrap(), 5);
        assert_eq!(receive_now(a.queue()), Vec::<Vec<u8>>::new());
        let bytes = 14 + 20 + 8 + 5;
        let received =
            BypassedFrames { received_frames: 1, received_bytes: bytes, ..BypassedFrames::default() };
        let delivered =
            BypassedFrames { delivered_frames: 1, delivered_bytes: bytes, ..BypassedFrames::default() };
        assert_eq!((a.passed(), b.passed()), (received, delivered));
        assert_eq!(
            (a.passed(), b.passed()),
            (BypassedFrames::default(), BypassedFrames::default()),
            "counted once"
        );
        assert_eq!(a.shortcut().keep_only(1, &of_a).unwrap(), [a.mac], "it has sent");
        assert_eq!(a.shortcut().keep_only(1, &of_a).unwrap(), Vec::<[u8; 6]>::new());

        // Frames pass through the datapath between groups, from a source learned elsewhere, and from a port that left
        // the path within the kernel.
        b.shortcut().keep_only(2, &of_b).unwrap();
        b.shortcut().add(&of_b).unwrap();
        send("another group");
        assert_eq!(receive(a.queue(), 1).len(), 1);
        b.shortcut().keep_only(1, &of_b).unwrap();
        b.shortcut().add(&of_b).unwrap();
        a.shortcut().keep_only(1, &set([])).unwrap();
        send("moved");
        assert_eq!(receive(a.queue(), 1).len(), 1);
        a.shortcut().add(&of_a).unwrap();
        b.shortcut().leave().unwrap();
        send("left");
        assert_eq!(receive(a.queue(), 1).len(), 1);
        assert_eq!(a.passed(), BypassedFrames::default());
    });
}

#[test]
fn an_address_that_moves_leaves_its_old_port_first_and_stays_at_the_new_one() {
    in_own_namespace(|| {
        let (a, b) = (Container::new(1), Container::new(2));
        let moving = set([[2, 0, 0, 0, 0, 9]]);
        a.shortcut().keep_only(1, &moving).unwrap();
        a.shortcut().add(&moving).unwrap();
        a.shortcut().keep_only(1, &set([])).unwrap();
        b.shortcut().keep_only(1, &moving).unwrap();
        b.shortcut().add(&moving).unwrap();
        let far = b.host.run(|| RawSocket::open("rri2", 0x88b5));
        // The kernel does not send a frame back to the port from which it came and which has the destination.
        let mut frame = test_frame(9, 1, 60);
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        let mut b = b;
        far.send(&frame);
        assert_eq!(receive(b.queue(), 1), [frame]);
    });
}

#[test]
fn tcp_passes_both_ways_with_segments_whole() {
    in_own_namespace(|| {
        let (mut a, mut b) = (Container::new(1), Container::new(2));
        let listener = b.host.run(|| TcpListener::bind("10.9.0.2:80").unwrap());
        let (done, ended) = std::sync::mpsc::channel();
        let echo = done.clone();
        b.host.start(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut bytes = vec![0; 1 << 20];
            connection.read_exact(&mut bytes).unwrap();
            connection.write_all(&bytes).unwrap();
            drop(echo);
        });
        a.host.start(move || {
            let mut connection = TcpStream::connect("10.9.0.2:80").unwrap();
            let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
            connection.write_all(&bytes).unwrap();
            let mut back = vec![0; 1 << 20];
            connection.read_exact(&mut back).unwrap();
            assert!(back == bytes);
            done.send(()).unwrap();
        });
        let (of_a, of_b) = (set([a.mac]), set([b.mac]));
        let mut batch = Batch::new();
        let mut on_way = false;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while ended.try_recv().is_err() {
            assert!(std::time::Instant::now() < end, "the connection does not end");
            let forwarded =
                forward(a.queue(), b.queue(), &mut batch) + forward(b.queue(), a.queue(), &mut batch);
            // The first frames, which query addresses (ARP), pass this loop. Then the kernel takes over in the middle
            // of the connection.
            if forwarded != 0 && !on_way {
                for (container, addresses) in [(&a, &of_a), (&b, &of_b)] {
                    container.shortcut().keep_only(1, addresses).unwrap();
                    container.shortcut().add(addresses).unwrap();
                }
                on_way = true;
            }
        }
        // The last frames of the connection may still be in flight between the two reads of the counters.
        let (mut frames, mut bytes, mut arrived, mut back) = (0, 0, 0, 0);
        until(|| {
            let (of_a, of_b) = (a.passed(), b.passed());
            (frames, bytes) = (frames + of_a.received_frames, bytes + of_a.received_bytes);
            (arrived, back) = (arrived + of_b.delivered_frames, back + of_b.received_bytes);
            frames == arrived
        });
        assert!(bytes > 1 << 20 && back > 1 << 20, "{bytes} {back}");
        assert!(bytes / frames > 1514, "segments pass whole: {bytes} bytes in {frames} frames");
    });
}

#[test]
fn only_ends_of_veth_pairs_are_taken() {
    in_own_namespace(|| {
        use crate::catalogue::plan_device;
        let refused = plan_device(&"veth:lo".parse().unwrap(), None).unwrap_err();
        assert!(refused.to_string().contains("not an end of a veth pair"), "{refused}");
        ip("link add rro1 type veth peer name rri1");
        let first = open(&config("rro1"), Vec::new()).unwrap();
        let second = open(&config("rro1"), Vec::new()).unwrap_err();
        assert!(matches!(second, DivertError::Busy(_)), "{second}");
        drop(first);
    });
}

#[test]
fn an_outer_end_without_carrier_loses_frames_by_cause_until_it_has_one() {
    in_own_namespace(|| {
        let mut container = Container::new(1);
        let frame = [test_frame(1, 1, 60)];
        container.host.run(|| ip("link set rri1 down"));
        until(|| {
            let fault = container.queue().diagnosis().unwrap().fault();
            fault.is_some_and(|fault| fault.contains("rro1 has no carrier"))
        });
        let delivery = deliver(container.queue(), &frame, 60);
        assert_eq!((delivery.frames, delivery.dropped.of(DropCause::LinkDown)), (0, 1));
        container.host.run(|| ip("link set rri1 up"));
        until(|| container.queue().diagnosis().unwrap().fault().is_none());
        assert_eq!(deliver(container.queue(), &frame, 60).frames, 1);
    });
}
