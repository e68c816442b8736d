//! Programs that attack the daemon harm only themselves.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ringroad::Port;
use ringroad::control::codec::{FrameDecoder, MAX_REPLY_BYTES, decode_reply, encode_request};
use ringroad::control::message::{Reply, Request};
use ringroad::control::{Connection, ControlError};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::frames::{number_of, numbered, receive, send, station};
use ringroad_tests::network::{is_root, patience_s};
use ringroad_tests::raw_port::RawPort;

/// Duration of the attack: the design requires at least ten seconds.
const ATTACK: Duration = Duration::from_secs(11);

/// Ends the attack when the value is dropped, so that a failure ends the test instead of waiting for the attackers.
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
    // The bystanders are on another switch with the same worker: a program may fill its own switch with frames, and
    // repeat frames that were flooded to it.
    let mut a = daemon.open("vale1:bystander-a");
    let mut b = daemon.open("vale1:bystander-b");
    let mut target = daemon.open("vale0:target");
    // Both addresses are learned before the attack begins.
    send(&mut a, &numbered(station(2), station(1), 0, 60));
    a.tx().sync().unwrap();
    assert_eq!(number_of(&receive(&mut b), station(1)), Some(0));
    send(&mut b, &numbered(station(1), station(2), 0, 60));
    b.tx().sync().unwrap();
    assert_eq!(number_of(&receive(&mut a), station(2)), Some(0));

    let (over, patience) = (AtomicBool::new(false), patience_s());
    let attacks = AtomicU64::new(0);
    let mut frames = 0u64;
    std::thread::scope(|scope| {
        let _truce = Truce(&over);
        for attacker in 0..2u64 {
            let (over, attacks, socket, patience) = (&over, &attacks, &socket, &patience);
            scope.spawn(move || {
                let mut seed = attacker << 32;
                while !over.load(Ordering::Relaxed) {
                    seed += 1;
                    // The client's exit status is ignored, but its duration is limited.
                    Command::new("timeout")
                        .args([
                            "-s",
                            "KILL",
                            patience,
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
            // A station on the attackers' switch takes the frames that they flood.
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
    await_conserved(&daemon);
}

#[test]
fn a_blocking_full_eventfd_delays_no_worker() {
    let daemon = Daemon::start();
    let attacker = RawPort::open(&daemon, "vale0:attacker");
    let mut sender = daemon.open("vale0:sender");
    let (mut a, mut b) = (daemon.open("vale1:a"), daemon.open("vale1:b"));
    attacker.lie_in_wait();
    // The frame is flooded to the attacker, which the worker then wakes.
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
fn a_blocking_full_eventfd_of_one_pipe_end_does_not_delay_the_other() {
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
    sent.recv_timeout(PATIENCE.unwrap()).expect("the victim's sync waits in write(2)");
}

/// A client that reads its replies only in [`Self::replies`].
struct RawClient {
    socket: UnixStream,
    decoder: FrameDecoder,
}

impl RawClient {
    fn connect(daemon: &Daemon) -> Self {
        let socket = UnixStream::connect(daemon.socket()).unwrap();
        Self { socket, decoder: FrameDecoder::new(MAX_REPLY_BYTES) }
    }

    /// Reads the next replies.
    fn replies(&mut self) -> Vec<Reply> {
        let mut piece = vec![0; 64 << 10];
        let count = self.socket.read(&mut piece).unwrap();
        assert!(count > 0, "the daemon has ended the connection");
        let mut input = &piece[..count];
        let mut replies = Vec::new();
        while let Some(body) = self.decoder.take_frame(&mut input).unwrap() {
            replies.push(decode_reply(&body).unwrap());
        }
        replies
    }
}

#[test]
fn a_client_with_unread_replies_harms_no_other_and_gets_them_later() {
    let daemon = Daemon::start();
    let mut silent = RawClient::connect(&daemon);
    silent.socket.set_nonblocking(true).unwrap();
    let request = encode_request(&Request::Status).unwrap();
    let mut asked = 0;
    // Requests are sent until the daemon accepts no more. The daemon answers other clients meanwhile.
    loop {
        let before = asked;
        while silent.socket.write(&request).is_ok_and(|count| count == request.len()) {
            asked += 1;
        }
        assert_eq!(daemon.status().ports.len(), 0);
        if asked == before {
            break;
        }
    }
    silent.socket.set_nonblocking(false).unwrap();
    let mut answered = 0;
    while answered < asked {
        let replies = silent.replies();
        assert!(replies.iter().all(|reply| matches!(reply, Reply::Status(_))));
        answered += replies.len();
    }
    assert_eq!(answered, asked);
}

#[test]
fn a_flood_of_requests_loses_no_reply_and_starves_no_other_client() {
    let daemon = Daemon::start();
    let port = daemon.open("vale0:a");
    let count = 100_000;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _truce = Truce(&over);
        let mut reader = RawClient::connect(&daemon);
        let mut writer = reader.socket.try_clone().unwrap();
        scope.spawn(move || {
            let request =
                encode_request(&Request::MacTable { switch: "none".into(), after: None, after_vlan: None })
                    .unwrap();
            for _ in 0..count / 100 {
                writer.write_all(&request.repeat(100)).unwrap();
            }
        });
        let flood = scope.spawn(move || {
            let mut answered = 0;
            while answered < count {
                answered += reader.replies().len();
            }
            answered
        });
        // Other clients are served during the attack, and at least once.
        loop {
            let ended = flood.is_finished();
            assert_eq!(daemon.status().ports[0].name, "vale0:a");
            if ended {
                break;
            }
        }
        assert_eq!(flood.join().unwrap(), count);
    });
    drop(port);
}

/// Opens `wanted` connections as another user, until one is refused. Returns the accepted connections and the error of
/// the refused one. A thread can run as a user of its own.
fn connections_of(user: u32, daemon: &Daemon, wanted: usize) -> (Vec<Connection>, Option<String>) {
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let uid = rustix::process::Uid::from_raw(user);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            let mut connections = Vec::new();
            while connections.len() < wanted {
                let mut connection = Connection::connect(daemon.socket()).unwrap();
                match connection.hello("stranger") {
                    Ok(_) => connections.push(connection),
                    Err(ControlError::Refused(refusal)) => return (connections, Some(refusal.to_string())),
                    Err(error) => panic!("{error}"),
                }
            }
            (connections, None)
        });
        connecting.join().unwrap()
    })
}

/// A daemon that any user may connect to.
fn open_daemon(launcher: &[&str], config: &str) -> Daemon {
    let daemon = Daemon::launched_by(launcher, &format!("[socket]\nmode = \"0666\"\n{config}"));
    daemon.open_folder();
    daemon
}

#[test]
fn untrusted_peers_exhaust_neither_connections_nor_the_log() {
    if !is_root() {
        return;
    }
    let mut daemon = open_daemon(&[], "[limits]\nconnections = 32\n");
    let (first, refusal) = connections_of(12345, &daemon, 100);
    assert_eq!(first.len(), 8, "a quarter of all");
    assert!(refusal.unwrap().contains("user 12345 has 8 connections"));
    let others: Vec<_> = (1..20).map(|user| connections_of(20_000 + user, &daemon, 8)).collect();
    assert_eq!(others.iter().map(|(connections, _)| connections.len()).sum::<usize>(), 22);
    assert!(others.last().unwrap().1.as_ref().unwrap().contains("all 32 connections"));
    // Root can still connect.
    assert_eq!(daemon.status().ports.len(), 0);
    for _ in 0..1000 {
        assert!(connections_of(12345, &daemon, 1).0.is_empty());
    }
    drop(first);
    let end = Instant::now() + PATIENCE.unwrap();
    while connections_of(12345, &daemon, 1).0.is_empty() {
        assert!(Instant::now() < end, "places are not given back");
    }
    assert_eq!(daemon.ask(&Request::Stop), Reply::Done);
    assert!(daemon.await_end());
    let log = daemon.log();
    assert!(log.lines().count() < 200, "{} lines", log.lines().count());
    assert!(log.contains("more lines of user 12345 left out"), "{log}");
}

#[test]
fn administrators_connect_when_all_descriptors_are_taken() {
    if !is_root() {
        return;
    }
    let daemon = open_daemon(&["prlimit", "--nofile=96:96"], "");
    let mut a = daemon.open("vale0:a");
    let mut b = daemon.open("vale0:b");
    let mut taken = Vec::new();
    let refusal = loop {
        match Port::open_with(&format!("vale1:p{}", taken.len()), &daemon.options()) {
            Ok(port) => taken.push(port),
            Err(error) => break error.to_string(),
        }
    };
    assert!(taken.len() > 4, "{refusal}");
    assert!(daemon.status().ports.len() >= taken.len() + 2);
    let (let_in, refusal) = connections_of(12345, &daemon, 100);
    assert!(let_in.len() < 24 && refusal.is_some());
    assert!(daemon.status().ports.len() >= taken.len() + 2);
    send(&mut a, &numbered(station(2), station(1), 7, 60));
    a.tx().sync().unwrap();
    assert_eq!(number_of(&receive(&mut b), station(1)), Some(7));
    drop((taken, let_in));
    daemon.await_status("end of the ports that took all", |status| status.ports.len() == 2);
    drop(daemon.open("vale1:again"));
}
