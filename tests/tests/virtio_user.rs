//! `virtio-user:` ports against DPDK's vhost-user back end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use ringroad::{Interest, OpenOptions, Port, Queue};
use ringroad_tests::daemon::PATIENCE;
use ringroad_tests::frames::{number_of, numbered, station};
use ringroad_tests::testpmd::Testpmd;
use tempfile::TempDir;

/// Two sockets in a folder of their own, between which testpmd passes frames.
fn sockets() -> (TempDir, [String; 2]) {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let paths = [path("a"), path("b")];
    (folder, paths)
}

fn testpmd(folder: &Path, paths: &[String; 2], device: &str, options: &[&str]) -> Testpmd {
    let devices: Vec<String> =
        (0..).zip(paths).map(|(number, path)| format!("net_vhost{number},iface={path},{device}")).collect();
    Testpmd::start(folder, &devices, options)
}

fn open(paths: &[String; 2], options: &str) -> [Port; 2] {
    paths.each_ref().map(|path| Port::open(&format!("virtio-user:{path}{options}")).unwrap())
}

/// Sends frames of the lengths given from one queue to the other, through testpmd, and compares what comes. Sends anew what went lost while the
/// other side was not connected yet.
fn carry(from: &mut Queue, to: &mut Queue, lengths: &[usize], seed: u64) {
    let source = station(seed as u8);
    let make = |number: usize| {
        let length = lengths[number % lengths.len()];
        let mut frame = numbered([0xFF; 6], source, seed << 32 | number as u64, length);
        for (offset, byte) in frame.iter_mut().enumerate().skip(22) {
            *byte = (number * 31 + offset * 7) as u8;
        }
        frame
    };
    // The first frame shows when both sides are there.
    let mut received = Vec::new();
    let deadline = std::time::Instant::now() + PATIENCE.unwrap();
    let short = Some(std::time::Duration::from_millis(20));
    let probe = numbered([0xFF; 6], source, u64::MAX, 60);
    loop {
        assert!(std::time::Instant::now() < deadline, "nothing came through");
        from.tx().send(&probe).unwrap();
        from.sync().unwrap();
        if to.wait(Interest::Rx, short).unwrap() {
            break;
        }
    }
    let frames = 4000;
    let (mut sent, mut came) = (0, 0);
    while came < frames {
        // No more under way than fit everywhere: testpmd drops where a ring is full.
        while sent < frames && sent - came < 200 && from.tx().send(&make(sent)).unwrap() {
            sent += 1;
        }
        from.sync().unwrap();
        // What is under way wakes us.
        assert!(to.wait(Interest::Rx, PATIENCE).unwrap(), "{came} of {sent} frames came through");
        received.clear();
        while to.rx().receive(&mut received).is_some() {
            if number_of(&received, source) != Some(u64::MAX) {
                assert!(received == make(came), "frame {came} of {} bytes came changed", received.len());
                came += 1;
            }
            received.clear();
        }
    }
}

fn both_ways(ports: &mut [Port; 2], lengths: &[usize], seed: u64) {
    let [a, b] = ports;
    for (queue_a, queue_b) in a.queues().iter_mut().zip(b.queues()) {
        carry(queue_a, queue_b, lengths, seed);
        carry(queue_b, queue_a, lengths, seed + 1);
    }
}

const LENGTHS: [usize; 7] = [60, 61, 64, 128, 777, 1500, 1514];

#[test]
fn as_client_frames_pass_through_a_server_as_they_are() {
    if !Testpmd::is_installed() {
        return;
    }
    let (folder, paths) = sockets();
    let _testpmd = testpmd(folder.path(), &paths, "queues=1", &[]);
    both_ways(&mut open(&paths, ""), &LENGTHS, 1);
}

#[test]
fn as_server_frames_pass_through_a_client_as_they_are_with_small_rings() {
    if !Testpmd::is_installed() {
        return;
    }
    let (folder, paths) = sockets();
    let mut ports = open(&paths, "@role=server,ring-size=256");
    let _testpmd = testpmd(folder.path(), &paths, "queues=1,client=1", &[]);
    both_ways(&mut ports, &LENGTHS, 3);
    drop(ports);
    assert!(paths.iter().all(|path| !Path::new(path).exists()), "a socket was left behind");
}

#[test]
fn long_frames_pass_in_several_buffers() {
    if !Testpmd::is_installed() {
        return;
    }
    let (folder, paths) = sockets();
    // 0x8000: frames of several segments are sent.
    let _testpmd =
        testpmd(folder.path(), &paths, "queues=1", &["--max-pkt-len=9018", "--tx-offloads=0x8000"]);
    both_ways(&mut open(&paths, ""), &[60, 2176, 2177, 4000, 9014], 5);
}

#[test]
fn each_queue_leads_to_the_queue_of_its_number() {
    if !Testpmd::is_installed() {
        return;
    }
    let (folder, paths) = sockets();
    let _testpmd = testpmd(folder.path(), &paths, "queues=2", &["--rxq=2", "--txq=2"]);
    let options = OpenOptions { queues: Some(2), ..OpenOptions::default() };
    let mut ports =
        paths.each_ref().map(|path| Port::open_with(&format!("virtio-user:{path}"), &options).unwrap());
    both_ways(&mut ports, &LENGTHS, 7);
}

#[test]
fn our_own_back_end_serves_it_with_and_without_offloads() {
    for offloads in [0, 1] {
        let (_folder, [path, _]) = sockets();
        let mut guest = Port::open(&format!("virtio-user:{path}@offloads={offloads}")).unwrap();
        let mut switch = Port::open(&format!("vhost-user:{path}@offloads={offloads}")).unwrap();
        let (guest, switch) = (guest.queue(), switch.queue());
        // Each sleeps in turn, and is stepped only by itself: the other has to wake it.
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
fn a_back_end_that_was_killed_and_started_again_is_found_again() {
    if !Testpmd::is_installed() {
        return;
    }
    for (options, device) in [("", "queues=1"), ("@role=server", "queues=1,client=1")] {
        let (folder, paths) = sockets();
        let mut ports = open(&paths, options);
        for life in 0..3 {
            let mut testpmd = testpmd(folder.path(), &paths, device, &[]);
            both_ways(&mut ports, &LENGTHS, 10 + life);
            testpmd.kill();
            // DPDK does not replace the socket of a server that has ended.
            let left = paths.iter().filter(|_| options.is_empty());
            left.for_each(|path| std::fs::remove_file(path).unwrap());
        }
    }
}
