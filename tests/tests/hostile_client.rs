//! Programs that attack the daemon harm nobody but themselves.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringroad_tests::conservation::assert_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{number_of, numbered, receive, send, station};

/// How long the attack lasts: the design asks for at least ten seconds.
const ATTACK: Duration = Duration::from_secs(11);

#[test]
fn a_random_attack_disturbs_neither_the_daemon_nor_a_bystander_pair() {
    let daemon = Daemon::start();
    let socket = daemon.socket().display().to_string();
    let mut a = daemon.open("vale0:bystander-a@slots=4096");
    let mut b = daemon.open("vale0:bystander-b@slots=4096");
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
        for attacker in 0..2u64 {
            let (over, attacks, socket) = (&over, &attacks, &socket);
            scope.spawn(move || {
                let mut seed = attacker << 32;
                while !over.load(Ordering::Relaxed) {
                    seed += 1;
                    // How it ends is its own affair.
                    Command::new(env!("CARGO_BIN_EXE_hostile_client"))
                        .args([socket, &format!("vale0:hostile{attacker}"), &seed.to_string()])
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
                // What attackers managed to send is not part of the count.
                if let Some(number) = number_of(&frame, station(1)) {
                    assert_eq!(number, expected, "a frame is missing or out of order");
                    expected += 1;
                }
            }
            frames += batch;
            // The other direction stays empty but for what attackers flood.
            let waiting = a.rx().available();
            a.rx().release(waiting);
            a.rx().sync().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    let status = daemon.status();
    let left = daemon.port("vale0:bystander-b").unwrap();
    println!(
        "{} attacks, {frames} frames all in order, {} requests refused",
        attacks.load(Ordering::Relaxed),
        status.rejected_requests
    );
    assert_eq!(left.counters.drops, std::collections::BTreeMap::new());
    assert!(status.rejected_requests > 0, "no attack reached the control socket");
    drop((a, b));
    assert_conserved(&daemon.status());
}
