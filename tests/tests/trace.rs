//! `ringroad trace` reports what happened to each frame.
#![allow(clippy::unwrap_used)]

use ringroad::control::{Connection, Request};
use ringroad_tests::command::stderr;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{numbered, receive, send, station};
use ringroad_tests::network::finished;
use ringroad_tests::service::Service;
use serde_json::Value;

/// Starts a trace. Its frames are printed when it has ended.
fn start(daemon: &Daemon, arguments: &[&str]) -> Service {
    let service = Service::start(daemon.ringroad(&[&["--json", "trace", "vale0"], arguments].concat()));
    // The trace is in place before another client's trace is refused.
    daemon.await_status("a trace that runs", |_| is_traced(daemon));
    service
}

fn is_traced(daemon: &Daemon) -> bool {
    let answer = Connection::connect(daemon.socket()).unwrap().request(&Request::Traced);
    answer.unwrap_err().to_string().contains("another client")
}

fn frames(service: &mut Service) -> Vec<Value> {
    let text = service.await_line("");
    service.await_end();
    serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().clone()
}

#[test]
fn each_step_of_each_frame_is_reported_also_across_workers() {
    for workers in 1..=2 {
        let daemon = Daemon::with_config(&format!("[workers]\ncount = {workers}\n"));
        let [mut a, mut b, c] = ["vale0:a", "vale0:b", "vale0:c@slots=64"].map(|name| daemon.open(name));
        let mut trace = start(&daemon, &["--count", "70"]);
        let mut pass = |frame: &[u8]| {
            send(&mut a, frame);
            a.tx().sync().unwrap();
            assert_eq!(receive(&mut b), frame);
        };
        // Frames go to all ports, the first with a new source and the others with a known one. The third port does not
        // read its ring, which has 63 free slots.
        for number in 0..68 {
            pass(&numbered([0xff; 6], station(1), number, 60));
        }
        send(&mut b, &numbered(station(1), station(2), 0, 1000));
        b.tx().sync().unwrap();
        assert_eq!(receive(&mut a).len(), 1000);
        // The frame's destination is behind the port from which it came.
        send(&mut b, &numbered(station(2), station(2), 0, 60));
        b.tx().sync().unwrap();
        let traced = frames(&mut trace);
        assert_eq!(traced.len(), 70);
        let delivery = |frame: &Value, port: &str| {
            let deliveries = frame["deliveries"].as_array().unwrap();
            let found = deliveries.iter().find(|delivery| delivery["port"] == port);
            let found = found.unwrap_or_else(|| panic!("no delivery to {port}: {frame}"));
            (found["frames"].as_u64().unwrap(), found["dropped"].as_str().map(str::to_owned))
        };
        let first = &traced[0];
        assert_eq!((&first["from"], &first["source"]), (&"vale0:a".into(), &"learned".into()));
        assert_eq!(
            (&first["reason"], &first["to"]),
            (&"multicast".into(), &serde_json::json!(["vale0:b", "vale0:c"]))
        );
        assert!(first["start"].as_str().unwrap().starts_with("ffffffffffff020000007701"), "{first}");
        assert_eq!((delivery(first, "vale0:b"), delivery(first, "vale0:c")), ((1, None), (1, None)));
        assert_eq!(traced[1]["source"], "known");
        assert_eq!(delivery(&traced[67], "vale0:c"), (0, Some("no_space".to_owned())));
        assert_eq!(delivery(&traced[67], "vale0:b"), (1, None));
        assert_eq!(
            (&traced[68]["reason"], &traced[68]["to"]),
            (&"known".into(), &serde_json::json!(["vale0:a"]))
        );
        assert_eq!((&traced[69]["dropped"], &traced[69]["to"]), (&"to_self".into(), &serde_json::json!([])));
        await_conserved(&daemon);
        drop((a, b, c));
    }
}

#[test]
fn a_trace_takes_frames_of_one_port_and_ends_with_its_client() {
    let daemon = Daemon::start();
    let [mut a, mut b] = ["vale0:a", "vale0:b"].map(|name| daemon.open(name));
    let mut trace = start(&daemon, &["--from", "vale0:b", "--count", "1"]);
    for (number, port) in [(1, &mut a), (2, &mut b)] {
        send(port, &numbered([0xff; 6], station(number), 0, 60));
        port.tx().sync().unwrap();
    }
    assert_eq!(frames(&mut trace)[0]["from"], "vale0:b");

    let mut killed = start(&daemon, &[]);
    killed.signal(rustix::process::Signal::KILL);
    killed.await_end();
    daemon.await_status("a trace that has ended with its client", |_| !is_traced(&daemon));
    let refused = daemon.ringroad(&["trace", "vale7"]).output().unwrap();
    assert!(!refused.status.success() && stderr(&refused).contains("vale7"), "{}", stderr(&refused));
}

#[test]
fn explain_takes_the_port_names_that_a_trace_prints() {
    let daemon = Daemon::start();
    // The name of each port is the number of the other one.
    let [mut second, _first] = ["vale0:2", "vale0:1"].map(|name| daemon.open(name));
    let mut trace = start(&daemon, &["--count", "1"]);
    send(&mut second, &numbered([0xff; 6], station(1), 0, 60));
    second.tx().sync().unwrap();
    let traced = frames(&mut trace);
    let name = traced[0]["from"].as_str().unwrap();
    assert_eq!(name, "vale0:2");
    let explained = |arguments: &[&str]| {
        let arguments = [&["--json", "explain", "vale0"], arguments].concat();
        let printed: Value = serde_json::from_str(&finished(&mut daemon.ringroad(&arguments))).unwrap();
        printed["from"].clone()
    };
    let from = serde_json::json!({"number": 1, "name": name});
    assert_eq!(explained(&[&format!("in_port={name},tcp")]), from);
    assert_eq!(explained(&["tcp", "--in-port", name]), from);
    assert_eq!(explained(&["in_port=1,tcp"]), from, "a number is still one");
}
