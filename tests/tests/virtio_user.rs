//! `virtio-user:` ports against DPDK's vhost-user back end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use ringroad::{Interest, OpenOptions, Port, Queue};
use ringroad_tests::daemon::PATIENCE;
use ringroad_tests::frames::{number_of, numbered, station};
use ringroad_tests::passage;
use ringroad_tests::testpmd::{Memory, Testpmd};
use tempfile::TempDir;

/// Two sockets in a folder of their own, between which testpmd passes frames.
fn sockets() -> (TempDir, [String; 2]) {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let paths = [path("a"), path("b")];
    (folder, paths)
}

fn testpmd(paths: &[String; 2], device: &str, options: &[&str]) -> Testpmd {
    let devices: Vec<String> =
        (0..).zip(paths).map(|(number, path)| format!("net_vhost{number},iface={path},{device}")).collect();
    Testpmd::start(Memory::Ordinary, &devices, options)
}

fn open(paths: &[String; 2], options: &str) -> [Port; 2] {
    paths.each_ref().map(|path| Port::open(&format!("virtio-user:{path}{options}")).unwrap())
}

fn both_ways(ports: &mut [Port; 2], lengths: &[usize], seed: u8) {
    let [a, b] = ports;
    for (queue_a, queue_b) in a.queues().iter_mut().zip(b.queues()) {
        passage::both_ways(queue_a, queue_b, lengths, seed, 4000);
    }
}

const LENGTHS: [usize; 7] = [60, 61, 64, 128, 777, 1500, 1514];

#[test]
fn as_client_frames_pass_a_server_unchanged() {
    if !Testpmd::is_installed() {
        return;
    }
    let (_folder, paths) = sockets();
    let _testpmd = testpmd(&paths, "queues=1", &[]);
    both_ways(&mut open(&paths, ""), &LENGTHS, 1);
}

#[test]
fn as_server_frames_pass_a_client_with_small_rings_unchanged() {
    if !Testpmd::is_installed() {
        return;
    }
    let (_folder, paths) = sockets();
    let mut ports = open(&paths, "@role=server,ring-size=256");
    let _testpmd = testpmd(&paths, "queues=1,client=1", &[]);
    both_ways(&mut ports, &LENGTHS, 3);
    drop(ports);
    assert!(paths.iter().all(|path| !Path::new(path).exists()), "a socket was left behind");
}

#[test]
fn long_frames_pass_in_several_buffers() {
    if !Testpmd::is_installed() {
        return;
    }
    let (_folder, paths) = sockets();
    // The value 0x8000 enables the sending of frames of several segments.
    let _testpmd = testpmd(&paths, "queues=1", &["--max-pkt-len=9018", "--tx-offloads=0x8000"]);
    both_ways(&mut open(&paths, ""), &[60, 2176, 2177, 4000, 9014], 5);
}

#[test]
fn each_queue_leads_to_the_queue_of_its_number() {
    if !Testpmd::is_installed() {
        return;
    }
    let (_folder, paths) = sockets();
    let _testpmd = testpmd(&paths, "queues=2", &["--rxq=2", "--txq=2"]);
    let options = OpenOptions { queues: Some(2), ..OpenOptions::default() };
    let mut ports =
        paths.each_ref().map(|path| Port::open_with(&format!("virtio-user:{path}"), &options).unwrap());
    both_ways(&mut ports, &LENGTHS, 7);
}

#[test]
fn our_own_back_end_serves_virtio_user_with_and_without_offloads() {
    for offloads in [0, 1] {
        let (_folder, [path, _]) = sockets();
        let mut guest = Port::open(&format!("virtio-user:{path}@offloads={offloads}")).unwrap();
        let mut switch = Port::open(&format!("vhost-user:{path}@offloads={offloads}")).unwrap();
        let (guest, switch) = (guest.queue(), switch.queue());
        // Each side sleeps in turn, and only its own thread steps it: the other side has to wake it.
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                for number in 0..1000 {
                    let frame = next(switch);
                    assert_eq!(number_of(&frame, station(1)), Some(number));
                    send(switch, &numbered(station(1), station(2), number, 1514));
                }
            });
            for number in 0..1000 {
                send(guest, &numbered(station(2), station(1), number, 60));
                assert_eq!(number_of(&next(guest), station(2)), Some(number));
            }
            receiving.join().unwrap();
        });
    }
}

fn send(queue: &mut Queue, frame: &[u8]) {
    while !queue.tx().send(frame).unwrap() {
        assert!(queue.wait(Interest::Tx, PATIENCE).unwrap(), "no room for a frame");
    }
    queue.sync().unwrap();
}

fn next(queue: &mut Queue) -> Vec<u8> {
    let mut frame = Vec::new();
    while queue.rx().receive(&mut frame).is_none() {
        assert!(queue.wait(Interest::Rx, PATIENCE).unwrap(), "no frame came");
    }
    frame
}

#[test]
fn the_port_reconnects_to_a_restarted_back_end() {
    if !Testpmd::is_installed() {
        return;
    }
    for (options, device) in [("", "queues=1"), ("@role=server", "queues=1,client=1")] {
        let (_folder, paths) = sockets();
        let mut ports = open(&paths, options);
        for life in 0..3 {
            let testpmd = testpmd(&paths, device, &[]);
            both_ways(&mut ports, &LENGTHS, 10 + life);
            testpmd.kill();
            // DPDK does not replace the socket of a server that has ended.
            let left = paths.iter().filter(|_| options.is_empty());
            left.for_each(|path| std::fs::remove_file(path).unwrap());
        }
    }
}
