//! The daemon as its operator knows it: start, permissions, reload, stop, and the death of programs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ringroad::control::Connection;
use ringroad::control::message::{PortSpec, Reply, Request};
use ringroad::{Interest, Port, PortError, wait_any};
use ringroad_tests::command;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE, binary};
use ringroad_tests::frames::{number_of, numbered, receive, send, station};
use ringroad_tests::network::{finished, is_root};
use ringroad_tests::testbed::refusal;
use rustix::process::Signal;

#[test]
fn all_frames_between_three_programs_on_a_switch_are_counted() {
    let daemon = Daemon::start();
    let [mut a, mut b, mut c] = ["vale0:a", "vale0:b", "vale0:c"].map(|name| daemon.open(name));
    send(&mut b, &numbered(station(1), station(2), 7, 60));
    b.tx().sync().unwrap();
    assert_eq!(number_of(&receive(&mut a), station(2)), Some(7));
    assert_eq!(number_of(&receive(&mut c), station(2)), Some(7));
    for number in 0..20_000 {
        send(&mut a, &numbered(station(2), station(1), number, 60 + (number % 1455) as usize));
        if number % 50 == 49 {
            a.tx().sync().unwrap();
            for expected in number - 49..=number {
                assert_eq!(number_of(&receive(&mut b), station(1)), Some(expected));
            }
        }
    }
    c.rx().sync().unwrap();
    assert_eq!(c.rx().available(), 0, "unicast to a learned station is not flooded");
    await_conserved(&daemon);
}

#[test]
fn several_workers_keep_the_order_of_a_flow_and_lose_nothing() {
    let daemon = Daemon::with_config("[workers]\ncount = 3\n");
    let mut ports: Vec<Port> = (0..6).map(|port| daemon.open(&format!("vale0:p{port}@slots=2048"))).collect();
    // Each address is learned from a broadcast that all other ports receive.
    for from in 0..ports.len() {
        send(&mut ports[from], &numbered([0xFF; 6], station(from as u8), 0, 60));
        ports[from].tx().sync().unwrap();
        for (to, port) in ports.iter_mut().enumerate() {
            if to != from {
                assert_eq!(number_of(&receive(port), station(from as u8)), Some(0));
            }
        }
    }
    for round in 0..300u64 {
        for from in 0..ports.len() {
            let to = (from + 1 + round as usize % 5) % ports.len();
            for number in 0..20 {
                let frame = numbered(
                    station(to as u8),
                    station(from as u8),
                    round * 20 + number,
                    60 + 3 * number as usize,
                );
                send(&mut ports[from], &frame);
            }
            ports[from].tx().sync().unwrap();
            for number in 0..20 {
                let frame = receive(&mut ports[to]);
                assert_eq!(number_of(&frame, station(from as u8)), Some(round * 20 + number));
            }
        }
    }
    await_conserved(&daemon);
    drop(ports.split_off(3));
    await_conserved(&daemon);
}

#[test]
fn jumbo_frames_cross_between_workers() {
    let daemon = Daemon::with_config("[workers]\ncount = 2\n");
    let mut a = daemon.open("vale0:a");
    let mut b = daemon.open("vale0:b@buf-size=1024");
    let mut c = daemon.open("vale0:c");
    for number in 0..200 {
        let jumbo = numbered(station(9), station(1), number, 9000);
        send(&mut a, &jumbo);
        a.tx().sync().unwrap();
        assert_eq!(receive(&mut b), jumbo);
        assert_eq!(receive(&mut c), jumbo);
    }
    await_conserved(&daemon);
}

#[test]
fn a_used_name_is_refused_until_its_program_is_killed() {
    let daemon = Daemon::start();
    let mut program = command::start(daemon.ringroad(&["--json", "recv", "vale0:x"]));
    let refused = Port::open_with("vale0:x", &daemon.options()).unwrap_err().to_string();
    assert!(refused.contains("in use by"), "{refused}");
    program.kill();
    // The kernel has closed the killed program's connection by now.
    let end = Instant::now() + PATIENCE.unwrap();
    while let Err(error) = Port::open_with("vale0:x", &daemon.options()) {
        assert!(Instant::now() < end, "{error}");
    }
}

#[test]
fn a_waiting_program_notices_the_daemons_death() {
    let mut daemon = Daemon::start();
    let mut waiting = daemon.open("vale0:a");
    let mut busy = daemon.open("vale0:b");
    let waiter = std::thread::spawn(move || waiting.wait(Interest::Rx, PATIENCE));
    let mut several = [daemon.open("vale0:c"), daemon.open("x{1")];
    let waiter_for_several = std::thread::spawn(move || {
        let mut waits = several.each_mut().map(|port| port.awaiting(Interest::Rx));
        wait_any(&mut waits, PATIENCE)
    });
    daemon.signal(Signal::KILL);
    daemon.await_end();
    assert!(matches!(waiter.join().unwrap(), Err(PortError::DaemonGone)));
    assert!(matches!(waiter_for_several.join().unwrap(), Err(PortError::DaemonGone)));
    // A program that never waits detects the end, too.
    let failure = loop {
        match busy.rx().sync() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(failure, PortError::DaemonGone));
}

#[test]
fn a_missing_daemon_that_may_not_be_started_is_a_clear_error() {
    let daemon = Daemon::start();
    let mut options = daemon.options();
    options.socket = Some(daemon.folder().join("nobody.sock"));
    let error = Port::open_with("vale0:a", &options).unwrap_err().to_string();
    assert!(error.contains("nobody.sock") && error.contains("ringroad up"), "{error}");
}

#[test]
fn a_stopped_daemon_removes_its_socket() {
    for by_signal in [false, true] {
        let mut daemon = Daemon::start();
        let mut port = daemon.open("vale0:a");
        if by_signal {
            daemon.signal(Signal::TERM);
        } else {
            assert_eq!(daemon.ask(&Request::Stop), Reply::Done);
        }
        assert!(daemon.await_end(), "{}", daemon.log());
        assert!(!daemon.socket().exists());
        assert!(matches!(port.wait(Interest::Rx, PATIENCE), Err(PortError::DaemonGone)));
    }
}

#[test]
fn a_reload_applies_changes_and_drops_no_frame_elsewhere() {
    let keep = "[[port]]\nname = \"vale0:keep\"\nslots = 2048\n";
    let daemon = Daemon::with_config(&format!("{keep}[[port]]\nname = \"vale0:old\"\n"));
    let mut a = daemon.open("vale0:a@slots=2048");
    let mut keep_port = daemon.open("vale0:keep");
    let mut old = daemon.open("vale0:old");
    send(&mut keep_port, &numbered(station(1), station(2), 0, 60));
    keep_port.tx().sync().unwrap();
    let _ = receive(&mut a);
    let mut number = 0u64;
    for round in 0..40 {
        if round == 10 {
            daemon.write_config(&format!("{keep}[[port]]\nname = \"vale0:new\"\n"));
            daemon.signal(Signal::HUP);
        }
        for _ in 0..100 {
            send(&mut a, &numbered(station(2), station(1), number, 60));
            number += 1;
        }
        a.tx().sync().unwrap();
        for expected in number - 100..number {
            assert_eq!(number_of(&receive(&mut keep_port), station(1)), Some(expected));
        }
    }
    // The port that the new configuration lacks is closed, together with its program's connection.
    let gone = loop {
        match old.wait(Interest::Rx, PATIENCE) {
            Ok(true) => {
                let waiting = old.rx().available();
                old.rx().release(waiting);
            }
            Ok(false) => panic!("the port was not taken away"),
            Err(error) => break error,
        }
    };
    assert!(matches!(gone, PortError::DaemonGone));
    assert!(daemon.port("vale0:old").is_none());
    assert!(daemon.port("vale0:new").is_some_and(|port| port.persistent && !port.bound));
    await_conserved(&daemon);
    // A configuration with a mistake changes nothing.
    daemon.write_config("[[port]]\nname = \"nonsense\"\n");
    let mut connection = Connection::connect(daemon.socket()).unwrap();
    let refused = connection.request(&Request::Reload).unwrap_err().to_string();
    assert!(refused.contains("nonsense"), "{refused}");
    assert!(daemon.port("vale0:new").is_some());
}

/// Checks that a renamed log file gets no line after the reload, and that a new file with the log's name does. `port`
/// is a name that is not in the log yet.
fn assert_log_moves_on(daemon: &Daemon, log: &Path, port: &str, reload: impl FnOnce()) {
    let before = log.with_extension("1");
    std::fs::rename(log, &before).unwrap();
    reload();
    let mut connection = Connection::connect(daemon.socket()).unwrap();
    let port_spec = PortSpec::for_program(port);
    let attach =
        Request::Attach { port: port_spec, for_program: true, host: false, take: false, provisional: false };
    connection.request(&attach).unwrap();
    assert!(std::fs::read_to_string(log).unwrap().contains(port));
    assert!(!std::fs::read_to_string(before).unwrap().contains(port));
}

#[test]
fn a_reload_opens_the_log_file_again_even_where_the_configuration_has_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let config = format!("[log]\nfile = {log:?}\n");
    let daemon = Daemon::with_config(&config);
    assert_log_moves_on(&daemon, &log, "vale0:first", || drop(finished(&mut daemon.ringroad(&["reload"]))));
    daemon.write_config("colour = 3\n");
    assert_log_moves_on(&daemon, &log, "vale0:second", || {
        let refused = refusal(&mut daemon.ringroad(&["reload"]));
        assert!(refused.contains("colour"), "{refused}");
    });
    // Another log file is a change that needs no restart.
    let other = folder.path().join("other");
    daemon.write_config(&format!("[log]\nfile = {other:?}\n"));
    let printed = finished(&mut daemon.ringroad(&["reload"]));
    assert!(!printed.contains("next start"), "{printed}");
    assert_log_moves_on(&daemon, &other, "vale0:third", || drop(finished(&mut daemon.ringroad(&["reload"]))));
}

#[test]
fn a_reload_names_each_key_that_waits_for_a_restart_every_time() {
    let daemon = Daemon::start();
    let printed = finished(&mut daemon.ringroad(&["reload"]));
    assert!(printed.contains("config.toml") && !printed.contains("next start"), "{printed}");
    daemon.write_config("[workers]\ncount = 2\n[log]\nformat = \"json\"\n[limits]\nuser_ports = 9\n");
    for _ in 0..2 {
        let Reply::Reloaded(report) = daemon.ask(&Request::Reload) else { panic!("not reloaded") };
        assert_eq!(report.at_next_start, ["workers.count", "log.format", "limits.user_ports"]);
    }
    let printed = finished(&mut daemon.ringroad(&["reload"]));
    assert!(
        printed.contains("next start of the daemon:\n  workers.count\n  log.format\n  limits.user_ports"),
        "{printed}"
    );
}

#[test]
fn up_does_not_agree_to_another_configuration_than_the_running_daemons() {
    let daemon = Daemon::start();
    let own = daemon.folder().join("config.toml").display().to_string();
    let other = daemon.folder().join("other.toml").display().to_string();
    finished(&mut daemon.ringroad(&["up"]));
    finished(&mut daemon.ringroad(&["up", "--config", &own]));
    for (arguments, part) in [
        (["up", "--config", &other].as_slice(), "finding the configuration file"),
        (&["up", "--foreground"], "runs already"),
    ] {
        let refused = refusal(&mut daemon.ringroad(arguments));
        assert!(refused.contains(part), "{refused}");
    }
    std::fs::write(&other, "").unwrap();
    let refused = refusal(&mut daemon.ringroad(&["up", "--config", &other]));
    assert!(
        refused.contains(&own) && refused.contains(&other) && refused.contains("ringroad down"),
        "{refused}"
    );
}

#[test]
fn a_port_that_a_program_has_open_is_detached_only_on_request() {
    let daemon = Daemon::with_config("[[port]]\nname = \"vale0:kept\"\n");
    for name in ["vale0:a", "vale0:kept"] {
        let mut port = daemon.open(name);
        let refused = refusal(&mut daemon.ringroad(&["detach", name]));
        assert!(refused.contains("in use by") && refused.contains("--take"), "{refused}");
        port.check().unwrap();
        assert!(daemon.port(name).is_some_and(|port| port.bound));
        finished(&mut daemon.ringroad(&["detach", name, "--take"]));
        assert!(matches!(port.wait(Interest::Rx, PATIENCE), Err(PortError::DaemonGone)));
        assert!(daemon.port(name).is_none());
    }
}

#[test]
fn provisional_ports_end_with_their_connection_unless_they_are_kept() {
    let daemon = Daemon::start();
    let attach = |connection: &mut Connection, name: &str, driver: Option<&str>| {
        let spec = PortSpec { driver: driver.map(str::to_owned), ..PortSpec::for_program(name) };
        let for_program = driver.is_none();
        let request =
            Request::Attach { port: spec, for_program, host: false, take: false, provisional: true };
        assert!(matches!(connection.request(&request).unwrap().0, Reply::Attached(_)));
    };
    let connect = || {
        let mut connection = Connection::connect(daemon.socket()).unwrap();
        connection.hello("test").unwrap();
        connection
    };
    let names = || daemon.status().ports.into_iter().map(|port| port.name).collect::<Vec<_>>();
    let settle = |connection: &mut Connection, keep| {
        assert_eq!(connection.request(&Request::Settle { keep }).unwrap().0, Reply::Done);
    };
    let (mut one, mut two) = (connect(), connect());
    attach(&mut one, "vale0:a", Some("null:no-rx=1"));
    attach(&mut one, "vale0:b", None);
    attach(&mut two, "vale0:c", Some("null:no-rx=1"));
    settle(&mut two, false);
    assert_eq!(names(), ["vale0:a", "vale0:b"]);
    attach(&mut two, "vale0:c", Some("null:no-rx=1"));
    settle(&mut two, true);
    attach(&mut two, "vale0:d", Some("null:no-rx=1"));
    // Another port that has the name of a provisional one stays.
    let detach = Request::Detach { name: "vale0:a".into(), take: false, number: None };
    assert_eq!(daemon.ask(&detach), Reply::Done);
    finished(&mut daemon.ringroad(&["attach", "vale0:a", "--driver", "null:no-rx=1"]));
    // The connections, and so the ports, outlive an upgrade.
    daemon.upgrade();
    let mut program = daemon.open("vale0:b");
    assert_eq!(names(), ["vale0:a", "vale0:b", "vale0:c", "vale0:d"]);
    drop((one, two));
    daemon.await_status("end of the ports that were not kept", |status| status.ports.len() == 2);
    assert_eq!(names(), ["vale0:a", "vale0:c"]);
    assert!(matches!(program.wait(Interest::Rx, PATIENCE), Err(PortError::DaemonGone)));
}

#[test]
fn a_persistent_port_counts_frames_while_no_program_has_it_open() {
    let daemon = Daemon::start();
    let port = PortSpec::for_program("vale0:p");
    let attach = Request::Attach { port, for_program: true, host: false, take: false, provisional: false };
    let Reply::Attached(attached) = daemon.ask(&attach) else { panic!("not attached") };
    assert_eq!((attached[0].name.as_str(), attached[0].driver.as_str()), ("vale0:p", "shm"));
    let mut a = daemon.open("vale0:a");
    send(&mut a, &numbered([0xFF; 6], station(1), 1, 60));
    a.tx().sync().unwrap();
    while a.tx().pending() > 0 {
        a.tx().sync().unwrap();
    }
    assert_eq!(daemon.port("vale0:p").unwrap().counters.drops.get("not_bound"), Some(&1));
    let mut p = daemon.open("vale0:p");
    send(&mut a, &numbered([0xFF; 6], station(1), 2, 60));
    a.tx().sync().unwrap();
    assert_eq!(number_of(&receive(&mut p), station(1)), Some(2));
    drop(p);
    assert_eq!(
        daemon.ask(&Request::Detach { name: "vale0:p".into(), take: false, number: None }),
        Reply::Done
    );
    assert!(daemon.port("vale0:p").is_none());
    await_conserved(&daemon);
}

#[test]
fn a_pipe_between_two_attachments_bypasses_the_daemon() {
    let daemon = Daemon::start();
    let mut a = daemon.open("x{1");
    let mut b = daemon.open("x}1");
    // A stopped daemon cannot move a frame.
    daemon.signal(Signal::STOP);
    for number in 0..50_000u64 {
        send(&mut a, &numbered(station(2), station(1), number, 60));
        if number % 64 == 63 {
            a.tx().sync().unwrap();
            for expected in number - 63..=number {
                assert_eq!(number_of(&receive(&mut b), station(1)), Some(expected));
            }
        }
    }
    daemon.signal(Signal::CONT);
    // The programs have counted the frames.
    let [a, b] = ["x{1", "x}1"].map(|end| daemon.port(end).unwrap().counters);
    assert_eq!((a.received_frames, a.delivered_frames), (b.delivered_frames, b.received_frames));
    let passed = 50_000 / 64 * 64;
    assert_eq!((a.received_frames, a.received_bytes, a.delivered_frames), (passed, passed * 60, 0));
}

#[test]
fn an_idle_daemon_with_ten_ports_sleeps_and_wakes_for_traffic() {
    let daemon = Daemon::start();
    let mut ports: Vec<Port> = (0..10).map(|port| daemon.open(&format!("vale0:p{port}"))).collect();
    for round in 0..20 {
        daemon.await_sleep();
        send(&mut ports[0], &numbered([0xFF; 6], station(1), round, 60));
        ports[0].tx().sync().unwrap();
        for port in &mut ports[1..] {
            assert_eq!(number_of(&receive(port), station(1)), Some(round));
        }
    }
    assert!(daemon.status().workers[0].kicks_received > 0, "nothing but a kick can have woken it");
}

#[test]
fn only_socket_mode_and_rules_admit_another_user() {
    use std::os::unix::process::CommandExt;
    if !is_root() {
        return;
    }
    let daemon =
        Daemon::with_config("[socket]\nmode = \"0666\"\n[[allow]]\nport = \"vale0:*\"\nuids = [12345]\n");
    let program = daemon.program_for_all(&binary("ringroad"));
    let run = |uid: u32, arguments: &[&str]| {
        let output = Command::new(&program)
            .arg("--socket")
            .arg(daemon.socket())
            .args(arguments)
            .uid(uid)
            .gid(uid)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(run(12345, &["gen", "vale0:a", "--count", "10"]).0);
    let (allowed, why) = run(54321, &["gen", "vale0:a", "--count", "10"]);
    assert!(!allowed && why.contains("may not open"), "{why}");
    assert!(run(54321, &["gen", "vale1:a", "--count", "10"]).0, "no rule names vale1");
    let (allowed, why) = run(12345, &["down"]);
    assert!(!allowed && why.contains("may not stop"), "{why}");
}

#[test]
fn ports_work_with_select_poll_and_epoll() {
    use rustix::event::{
        FdSetElement, PollFd, PollFlags, epoll, fd_set_insert, fd_set_num_elements, poll, select,
    };
    let daemon = Daemon::start();
    let mut a = daemon.open("vale0:a");
    let mut b = daemon.open("vale0:b");
    for (round, by) in [(1, "poll"), (2, "epoll"), (3, "select")] {
        assert!(!b.arm(Interest::Rx).unwrap());
        send(&mut a, &numbered([0xFF; 6], station(1), round, 60));
        a.tx().sync().unwrap();
        if by == "poll" {
            assert_eq!(poll(&mut [PollFd::from_borrowed_fd(b.as_fd(), PollFlags::IN)], None).unwrap(), 1);
        } else if by == "select" {
            let descriptor = b.as_fd().as_raw_fd();
            let mut set = vec![FdSetElement::default(); fd_set_num_elements(1, descriptor + 1)];
            fd_set_insert(&mut set, descriptor);
            // SAFETY: the only descriptor in the set is borrowed from an open port.
            #[allow(unsafe_code)]
            let ready = unsafe { select(descriptor + 1, Some(&mut set), None, None, None) };
            assert_eq!(ready.unwrap(), 1);
        } else {
            let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            epoll::add(&set, b.as_fd(), epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
            let empty =
                epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
            assert_eq!(epoll::wait(&set, &mut [empty; 4], None).unwrap(), 1);
        }
        b.disarm().unwrap();
        assert_eq!(number_of(&receive(&mut b), station(1)), Some(round));
    }
}

#[test]
fn ports_work_with_tokio() {
    let daemon = Daemon::start();
    let mut a = daemon.open("vale0:a");
    let mut b = daemon.open("vale0:b");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let owned = b.as_fd().try_clone_to_owned().unwrap();
        // SAFETY: the descriptor belongs to the registration and is closed with it.
        #[allow(unsafe_code)]
        let descriptor = unsafe { tokio::io::unix::AsyncFd::register(owned) }.unwrap();
        for number in 0..100 {
            let armed = b.arm(Interest::Rx).unwrap();
            send(&mut a, &numbered([0xFF; 6], station(1), number, 60));
            a.tx().sync().unwrap();
            if !armed {
                let mut guard = descriptor.readable().await.unwrap();
                guard.clear_ready();
                b.disarm().unwrap();
            }
            assert_eq!(number_of(&receive(&mut b), station(1)), Some(number));
        }
    });
}

#[test]
fn ports_that_share_a_region_exchange_buffers_across_switches() {
    let daemon = Daemon::start();
    let mut a = daemon.open("vale0:a");
    let mut inside = daemon.open("vale0:f");
    let mut outside = daemon.open("vale1:f@share=vale0:f");
    let mut b = daemon.open("vale1:b");
    for number in 0..5000 {
        send(&mut a, &numbered([0xFF; 6], station(1), number, 60));
        a.tx().sync().unwrap();
        while inside.rx().available() == 0 {
            assert!(inside.wait(Interest::Rx, PATIENCE).unwrap());
        }
        let moved = inside.rx().forward(outside.tx(), u32::MAX);
        assert!(moved.zero_copy && moved.frames == 1);
        outside.tx().sync().unwrap();
        inside.rx().sync().unwrap();
        assert_eq!(number_of(&receive(&mut b), station(1)), Some(number));
        while outside.tx().pending() > 0 {
            outside.tx().sync().unwrap();
        }
    }
    await_conserved(&daemon);
}

#[test]
fn each_queue_of_a_port_can_have_its_own_thread() {
    let daemon = Daemon::with_config("[workers]\ncount = 2\n");
    let mut source = daemon.open("vale0:a@queues=4");
    let sink = daemon.open("vale0:b@queues=4");
    // An address that is learned on one queue is known on all.
    let mut sinks = sink.into_queues();
    sinks[0].tx().send(&numbered([0xFF; 6], station(2), 0, 60)).unwrap();
    sinks[0].tx().sync().unwrap();
    assert_eq!(number_of(&receive(&mut source), station(2)), Some(0));
    let threads: Vec<_> = sinks
        .into_iter()
        .map(|mut queue| {
            std::thread::spawn(move || {
                for expected in 0..1000 {
                    let mut frame = Vec::new();
                    while queue.rx().receive(&mut frame).is_none() {
                        assert!(queue.wait(Interest::Rx, PATIENCE).unwrap());
                    }
                    assert_eq!(number_of(&frame, station(1)), Some(expected));
                }
            })
        })
        .collect();
    for number in 0..1000 {
        for queue in source.queues() {
            while !queue.tx().send(&numbered(station(2), station(1), number, 60)).unwrap() {
                assert!(queue.wait(Interest::Tx, PATIENCE).unwrap());
            }
            queue.tx().sync().unwrap();
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
    await_conserved(&daemon);
}
