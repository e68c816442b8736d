//! Programs that attack the daemon harm nobody but themselves.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ringroad_tests::conservation::assert_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{number_of, numbered, receive, send, station};
use ringroad_tests::raw_port::RawPort;

/// How long the attack lasts: the design asks for at least ten seconds.
const ATTACK: Duration = Duration::from_secs(11);

/// Calls the attackers off when it goes, so that a failure ends the test instead of waiting for them.
struct Truce<'a>(&'a AtomicBool);

impl Drop for Truce<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_random_attack_disturbs_neither_the_daemon_nor_a_bystander_pair() {
    let daemon = Daemon::start();
    let socket = daemon.socket().display().to_string();
    // On a switch of their own, served by the same worker: whoever is on a switch may fill it with frames, and repeat what was
    // flooded to it.
    let mut a = daemon.open("vale1:bystander-a");
    let mut b = daemon.open("vale1:bystander-b");
    let mut target = daemon.open("vale0:target");
    // Both are learned before the attack begins.
    send(&mut a, &numbered(station(2), station(1), 0, 60));
    a.tx().sync().unwrap();
    assert_eq!(number_of(&receive(&mut b), station(1)), Some(0));
    send(&mut b, &numbered(station(1), station(2), 0, 60));
    b.tx().sync().unwrap();
    assert_eq!(number_of(&receive(&mut a), station(2)), Some(0));

    let over = AtomicBool::new(false);
    let attacks = AtomicU64::new(0);
    let mut frames = 0u64;
    std::thread::scope(|scope| {
        let _truce = Truce(&over);
        for attacker in 0..2u64 {
            let (over, attacks, socket) = (&over, &attacks, &socket);
            scope.spawn(move || {
                let mut seed = attacker << 32;
                while !over.load(Ordering::Relaxed) {
                    seed += 1;
                    // How it ends is its own affair, but not when.
                    Command::new("timeout")
                        .args([
                            "-s",
                            "KILL",
                            "20",
                            env!("CARGO_BIN_EXE_hostile_client"),
                            socket,
                            &format!("vale0:hostile{attacker}"),
                            &seed.to_string(),
                        ])
                        .status()
                        .unwrap();
                    attacks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let begin = Instant::now();
        while begin.elapsed() < ATTACK {
            let batch = 100;
            for number in 0..batch {
                let len = 60 + ((frames + number) % 1400) as usize;
                send(&mut a, &numbered(station(2), station(1), 1 + frames + number, len));
            }
            a.tx().sync().unwrap();
            let mut expected = 1 + frames;
            while expected <= frames + batch {
                let frame = receive(&mut b);
                assert_eq!(
                    number_of(&frame, station(1)),
                    Some(expected),
                    "a frame is missing, out of order or foreign"
                );
                expected += 1;
            }
            frames += batch;
            // A station on the attackers' switch: it takes what they flood.
            let waiting = target.rx().available();
            target.rx().release(waiting);
            target.rx().sync().unwrap();
        }
    });
    let status = daemon.status();
    let left = daemon.port("vale1:bystander-b").unwrap();
    println!(
        "{} attacks, {frames} frames all in order, {} requests refused",
        attacks.load(Ordering::Relaxed),
        status.rejected_requests
    );
    assert_eq!(left.counters.drops, std::collections::BTreeMap::new());
    assert!(status.rejected_requests > 0, "no attack reached the control socket");
    drop((a, b, target));
    assert_conserved(&daemon.status());
}

#[test]
fn an_eventfd_that_its_program_made_blocking_and_full_holds_up_no_worker() {
    let daemon = Daemon::start();
    let attacker = RawPort::open(&daemon, "vale0:attacker");
    let mut sender = daemon.open("vale0:sender");
    let (mut a, mut b) = (daemon.open("vale1:a"), daemon.open("vale1:b"));
    attacker.lie_in_wait();
    // Flooded to the attacker, whom the worker wakes.
    send(&mut sender, &numbered([0xFF; 6], station(1), 0, 60));
    sender.tx().sync().unwrap();
    daemon.await_status("the frame at the attacker's port", |status| {
        status.ports.iter().any(|port| port.name == "vale0:attacker" && port.counters.delivered_frames == 1)
    });
    send(&mut a, &numbered([0xFF; 6], station(2), 7, 60));
    a.tx().sync().unwrap();
    assert_eq!(number_of(&receive(&mut b), station(2)), Some(7));
}

#[test]
fn an_eventfd_that_one_end_of_a_pipe_made_blocking_and_full_does_not_hold_up_the_other() {
    let daemon = Daemon::start();
    let attacker = RawPort::open(&daemon, "x}1");
    attacker.lie_in_wait();
    let mut victim = daemon.open("x{1");
    let (done, sent) = channel();
    std::thread::spawn(move || {
        send(&mut victim, &numbered([0xFF; 6], station(1), 0, 60));
        victim.tx().sync().unwrap();
        done.send(()).unwrap();
    });
    sent.recv_timeout(Duration::from_secs(60)).expect("the victim's sync waits in write(2)");
}
