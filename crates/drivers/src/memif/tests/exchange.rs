//! Tests of Ringroad's server and client with each other.

use ringroad_port::drop_cause::DropCause;

use super::*;
use crate::catalogue::port_name::PortName;
use crate::device::DeviceRole;
use crate::test_queue::try_open;

#[test]
fn frames_of_all_lengths_pass_both_ways_unchanged() {
    let (_folder, path) = socket();
    let mut server = Port::open(&path, "role=server");
    let mut client = Port::open(&path, "role=client,ring-size=64,buf-size=2048");
    connect(&mut server, &mut client);
    let frames: Vec<Vec<u8>> = [0, 1, 14, 60, 64, 1514, 2047, 2048, 2049, 4096, 9018, 65535]
        .into_iter()
        .cycle()
        .take(300)
        .enumerate()
        .map(|(number, len)| frame(number, len.max(1)))
        .collect();
    for part in [usize::MAX >> 1, 1500] {
        pass(&mut client, &mut server, 0, &frames, part);
        pass(&mut server, &mut client, 0, &frames, part);
    }
    assert!(server.status().agreed.contains("of up to 64, in 1 region(s)"), "{:?}", server.status());
    assert!(client.status().agreed.contains("interface ringroad/0"), "{:?}", client.status());
}

#[test]
fn each_queue_is_a_ring_and_the_smaller_count_is_used() {
    let (_folder, path) = socket();
    let mut server = Port::open(&path, "role=server,queues=2");
    let mut client = Port::open(&path, "role=client,queues=4");
    until(|| {
        server.serve();
        client.serve();
        client.status().active_queues == 2 && server.status().active_queues == 2 && server.has_rings(1)
    });
    for queue in 0..2 {
        let frames: Vec<Vec<u8>> = (0..2000).map(|number| frame(queue * 5000 + number, 60)).collect();
        pass(&mut client, &mut server, queue, &frames, 2048);
        pass(&mut server, &mut client, queue, &frames, 2048);
    }
    let lost = client.send(3, &[frame(0, 60)], 2048);
    assert_eq!(lost.dropped.of(DropCause::NotBound), 1);
}

#[test]
fn a_full_ring_drops_and_counts_and_a_wire_knows_its_room() {
    let (_folder, path) = socket();
    let mut server = Port::open(&path, "role=server");
    let mut client = Port::open(&path, "role=client,ring-size=64");
    assert_eq!(client.send(0, &[frame(0, 60)], 2048).dropped.of(DropCause::NotBound), 1);
    connect(&mut server, &mut client);
    let frames: Vec<Vec<u8>> = (0..100).map(|number| frame(number, 60)).collect();
    for to_server in [true, false] {
        let [from, to] = if to_server { [&mut client, &mut server] } else { [&mut server, &mut client] };
        until(|| {
            to.serve();
            from.device.queues[0].backpressure().unwrap().room(60) == 64
        });
        assert_eq!(
            (
                from.device.queues[0].backpressure().unwrap().room(4096),
                to.device.queues[0].backpressure().unwrap().room(60)
            ),
            (32, 64)
        );
        let delivery = from.send(0, &frames, 2048);
        assert_eq!((delivery.frames, delivery.dropped.of(DropCause::NoSpace)), (64, 36));
        assert!(to.device.queues[0].sleeper().unwrap().has_waiting());
        assert_eq!(to.receive(0), frames[..64]);
        assert_eq!(from.send(0, &[frame(0, 65535), frame(1, 60)], 2048).frames, 2);
        assert_eq!(to.receive(0).len(), 2);
        from.serve();
    }
}

#[test]
fn a_sleeping_peer_is_woken_and_an_awake_one_is_not_signalled() {
    let (_folder, path) = socket();
    let mut server = Port::open(&path, "role=server");
    let mut client = Port::open(&path, "role=client");
    connect(&mut server, &mut client);
    for turn in 0..4 {
        let [from, to] = if turn % 2 == 0 { [&mut server, &mut client] } else { [&mut client, &mut server] };
        to.device.queues[0].sleeper().unwrap().drain_wake();
        assert_eq!(from.send(0, &[frame(0, 60)], 2048).frames, 1);
        assert!(!is_readable(to), "no side sleeps");
        assert_eq!(to.receive(0).len(), 1);
        to.device.queues[0].sleeper().unwrap().prepare_sleep(true);
        assert!(!to.device.queues[0].sleeper().unwrap().has_waiting());
        assert_eq!(from.send(0, &[frame(0, 60)], 2048).frames, 1);
        assert!(is_readable(to), "a sleeper was not woken");
        to.device.queues[0].sleeper().unwrap().drain_wake();
        to.device.queues[0].sleeper().unwrap().prepare_sleep(false);
        assert_eq!(to.receive(0).len(), 1);
        from.serve();
    }
}

fn is_readable(port: &mut Port) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let descriptor = port.device.queues[0].sleeper().unwrap().wake_descriptor().unwrap();
    let mut wait = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut wait, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn sides_return_in_any_order_and_frames_sent_before_are_not_lost() {
    let (_folder, path) = socket();
    let frames: Vec<Vec<u8>> = (0..100).map(|number| frame(number, 200)).collect();
    let mut client = Port::open(&path, "role=client,queues=2");
    until(|| client.status().last_error.is_some_and(|error| error.contains("m.sock")));
    let mut server = Port::open(&path, "role=server,queues=2");
    for turn in 1..4 {
        connect(&mut server, &mut client);
        pass(&mut client, &mut server, 1, &frames, 2048);
        pass(&mut server, &mut client, 0, &frames, 2048);
        // The last frames of a peer that leaves are received.
        assert_eq!(client.send(0, &frames, 2048).frames, 100);
        drop(client);
        let mut heard = Vec::new();
        until(|| {
            heard.extend(server.receive(0));
            server.receive(1);
            !server.status().is_connected
        });
        assert_eq!(heard, frames);
        assert_eq!(server.status().last_error.as_deref(), Some("the peer disconnected: the port was closed"));
        client = Port::open(&path, "role=client,queues=2");
        connect(&mut server, &mut client);
        drop(server);
        assert!(!path.exists());
        until(|| {
            client.serve();
            !client.status().is_connected
        });
        server = Port::open(&path, "role=server,queues=2");
        assert_eq!(client.status().connections, 1, "turn {turn}");
    }
}

#[test]
fn interfaces_share_a_socket_and_refused_clients_get_the_reason() {
    let (_folder, path) = socket();
    let mut zero = Port::open(&path, "role=server,socket-mode=660");
    let mut seven = Port::open(&path, "role=server,id=7,secret=sesame");
    let taken = try_open(&format!("memif:{}@id=7", path.display()), DeviceRole::SwitchPort).unwrap_err();
    assert!(taken.to_string().contains("another port serves interface 7"), "{taken}");

    let refused = |options: &str, why: &str| {
        let client = Port::open(&path, options);
        until(|| client.status().last_error.is_some_and(|error| error.contains(why)));
        assert_eq!(client.status().connections, 0);
    };
    refused("role=client,id=3", "there is no interface 3 here");
    refused("role=client,id=7", "interface 7 needs a secret");
    refused("role=client,id=7,secret=open", "interface 7 has another secret");

    let mut first = Port::open(&path, "role=client,id=7,secret=sesame");
    connect(&mut seven, &mut first);
    refused("role=client,id=7,secret=sesame", "another client is connected to interface 7");
    let mut second = Port::open(&path, "role=client");
    connect(&mut zero, &mut second);
    pass(&mut first, &mut seven, 0, &[frame(7, 100)], 2048);
    pass(&mut second, &mut zero, 0, &[frame(0, 100)], 2048);
    drop(zero);
    assert!(path.exists(), "another interface is still there");
    pass(&mut seven, &mut first, 0, &[frame(7, 100)], 2048);
    drop(seven);
    assert!(!path.exists());
}

#[test]
fn impossible_sizes_are_refused_with_a_reason() {
    let (_folder, path) = socket();
    let all = "role=client,queues=16,ring-size=16384,buf-size=65536";
    let error = try_open(&format!("memif:{}@{all}", path.display()), DeviceRole::SwitchPort).unwrap_err();
    assert!(error.to_string().contains("4 GiB"), "{error}");
    for (options, why) in
        [("ring-size=32768", "to 16384"), ("buf-size=65600", "64 to 65536"), ("queues=17", "1 to 16")]
    {
        let refused = format!("memif:{}@{options}", path.display()).parse::<PortName>().unwrap_err();
        assert!(refused.to_string().contains(why), "{options}: {refused}");
    }
}
