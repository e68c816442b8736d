//! Sessions one after the other over the same ports.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use ringroad::impairment::{Delay, ImpairmentPlan};
use ringroad::{Embedded, OpenOptions};
use ringroad_generator::{
    Load, PlannedPort, SessionClock, SessionError, SessionOptions, SessionReport, SessionResult, TestPlan,
    TestSession, Threads,
};
use ringroad_traffic::definition::StreamDefinition;

const STEP_NS: u64 = 100;
/// Number of frames, at most the slots of a ring, because the receiver may sleep while they arrive.
const FRAMES: u64 = 1000;

/// Options for ports without a daemon, so that only kept ports of a switch or a pipe can be opened.
fn no_daemon() -> OpenOptions {
    OpenOptions {
        socket: Some("/nonexistent/ringroad.sock".into()),
        no_start: true,
        ..OpenOptions::default()
    }
}

/// Loads between the ports `vale0:a` and `vale0:b`.
fn plan(ports: &[&str], loads: Vec<Load>) -> TestPlan {
    TestPlan { ports: ports.iter().map(|name| PlannedPort::new(name)).collect(), loads }
}

fn load(frames: u64, stream: &str) -> Load {
    let stream: StreamDefinition = toml::from_str(stream).unwrap();
    Load {
        frames: Some(frames),
        rate: "1Mpps".parse().unwrap(),
        ..Load::new("vale0:a", &["vale0:b"], vec![stream])
    }
}

fn run(session: &mut TestSession, step: &mut dyn FnMut()) {
    session.start();
    while !session.wait_sent(Duration::ZERO) {
        session.turn().unwrap();
        step();
    }
}

/// Numbers of ports, of distinct and lost frames, and of frames of the previous session: with a time, and without a
/// time or damaged.
fn counts(report: &SessionReport) -> [u64; 5] {
    let (stream, port) = (&report.loads[0].arrivals[0].stream, &report.ports[1].received);
    [
        stream.distinct,
        stream.lost,
        port.earlier_frames,
        port.unknown_stream_frames,
        port.corrupted_unattributed,
    ]
}

/// Sends `late` frames of `stream` that a port holds back. The next session sends `own` frames while the late frames
/// arrive.
fn late_frames(stream: &str, impairment: ImpairmentPlan, late: u64, own: u64) -> SessionReport {
    let (clock, port_clock) = (SessionClock::manual(1_000_000), ringroad::Clock::manual());
    let switch = Embedded::new();
    let (b, _) =
        switch.open_impaired("vale0:b", &OpenOptions::default(), impairment, port_clock.clone()).unwrap();
    let ports = vec![switch.open("vale0:a").unwrap(), b];
    let options =
        SessionOptions { clock: clock.clone(), threads: Threads::Caller, ..SessionOptions::default() };
    let plan = |frames| plan(&["vale0:a", "vale0:b"], vec![load(frames, stream)]);
    let mut step = || {
        clock.advance(STEP_NS);
        port_clock.advance(STEP_NS);
    };
    let mut session = TestSession::over(plan(late), ports, &options).unwrap();
    run(&mut session, &mut step);
    let SessionResult { report, mut ports, outcome } = session.end(Duration::ZERO);
    outcome.unwrap();
    assert_eq!(report.loads[0].arrivals[0].stream.lost, late);

    let mut session = TestSession::open_keeping(plan(own), &mut ports, &no_daemon(), &options).unwrap();
    run(&mut session, &mut step);
    for _ in 0..20_000 {
        session.turn().unwrap();
        step();
    }
    let report = session.report().unwrap();
    let ended = session.end(Duration::ZERO);
    ended.outcome.unwrap();
    assert_eq!(report, ended.report, "the report while it runs equals the report at its end");
    report
}

/// A delay longer than the first session and shorter than the wait in the second.
fn held_back() -> ImpairmentPlan {
    ImpairmentPlan { delay: Delay::Fixed(1_000_000), ..ImpairmentPlan::default() }
}

#[test]
fn frames_of_an_earlier_session_are_recognised_by_time() {
    let report = late_frames("", held_back(), 500, 300);
    assert_eq!(counts(&report), [300, 0, 500, 0, 0]);
    assert_eq!(report.loads[0].sent.frames, 300);
}

#[test]
fn frames_without_a_time_are_recognised_by_stream_number() {
    let tcp = "packet = [{ethernet = {}}, {ipv4 = {}}, {tcp = {}}]";
    assert_eq!(counts(&late_frames(tcp, held_back(), 500, 300)), [300, 0, 0, 500, 0]);
}

#[test]
fn unsent_frames_and_the_sending_time_are_reported() {
    let report = late_frames("", held_back(), 10, 300);
    let load = &report.loads[0];
    assert_eq!((load.offered.intended_frames, load.unsent_frames), (300, 0));
    // The clock advances in steps, so 299 gaps of a microsecond are the time between the first and the last frame.
    let span_ns = load.departure_span_ns.unwrap();
    assert!((298_800..=299_200).contains(&span_ns), "{span_ns}");
}

#[test]
fn ports_outside_the_next_plan_close_and_errors_close_none() {
    let switch = Embedded::new();
    let options = SessionOptions { threads: Threads::Caller, ..SessionOptions::default() };
    let ports = ["vale0:a", "vale0:b"].map(|name| switch.open(name).unwrap()).into();
    let session = TestSession::over(plan(&["vale0:a", "vale0:b"], Vec::new()), ports, &options).unwrap();
    let mut kept = session.end(Duration::ZERO).ports;
    let held = || switch.open("vale0:a").is_err();
    assert!(held());

    let refused = TestSession::open_keeping(
        plan(&["vale0:a", "vale0:c"], Vec::new()),
        &mut kept,
        &no_daemon(),
        &options,
    );
    assert!(matches!(refused, Err(SessionError::Open { port, .. }) if port == "vale0:c"));
    assert!(held());
    drop(switch.open("vale0:b").unwrap());

    let session = TestSession::open_keeping(
        plan(&["vale0:a", "null:no-rx=1"], Vec::new()),
        &mut kept,
        &no_daemon(),
        &options,
    )
    .unwrap();
    assert!(held());
    drop(session.end(Duration::ZERO));
    assert!(!held());
}

#[test]
fn a_port_with_untaken_frames_is_not_kept() {
    let pipe = Embedded::new();
    let mut far = pipe.open("x}1").unwrap();
    let options = SessionOptions { threads: Threads::One, ..SessionOptions::default() };
    let load = Load {
        rate: "1Mpps".parse().unwrap(),
        frames: Some(5000),
        ..Load::new("x{1", &[], vec![StreamDefinition::default()])
    };
    let plan = || plan(&["x{1"], vec![load.clone()]);
    let mut session = TestSession::over(plan(), vec![pipe.open("x{1").unwrap()], &options).unwrap();
    session.start();
    // The ring at the far end fills up, then the ring at the near end.
    let deadline = Instant::now() + Duration::from_secs(30);
    while session.report().unwrap().ports[0].unsent_slots == 0 {
        assert!(Instant::now() < deadline);
    }
    let mut ended = session.end(Duration::ZERO);
    assert!(ended.report.ports[0].unsent_slots > 0);
    let again = TestSession::open_keeping(plan(), &mut ended.ports, &no_daemon(), &options);
    assert!(matches!(again, Err(SessionError::Open { .. })));
    far.sync().unwrap();
}

#[test]
fn threads_report_their_counts_and_continue() {
    for threads in [Threads::PerQueue, Threads::One] {
        let switch = Embedded::new();
        let options = SessionOptions { threads, ..SessionOptions::default() };
        let names = ["vale0:a", "vale0:b"];
        let ports = names.map(|name| switch.open(name).unwrap()).into();
        let mut kept =
            TestSession::over(plan(&names, Vec::new()), ports, &options).unwrap().end(Duration::ZERO).ports;
        for _ in 0..3 {
            let next = plan(&names, vec![load(FRAMES, "")]);
            let mut session = TestSession::open_keeping(next, &mut kept, &no_daemon(), &options).unwrap();
            session.start();
            let deadline = Instant::now() + Duration::from_secs(30);
            while counts(&session.report().unwrap())[0] < FRAMES {
                assert!(Instant::now() < deadline, "{:?}", session.report());
            }
            assert!(session.wait_sent(Duration::from_secs(30)));
            let report = session.report().unwrap();
            assert_eq!(counts(&report), [FRAMES, 0, 0, 0, 0]);
            assert_eq!(report.loads[0].offered.sent_frames, FRAMES);
            let ended = session.end(Duration::ZERO);
            ended.outcome.unwrap();
            assert_eq!(report.loads, ended.report.loads);
            kept = ended.ports;
        }
    }
}
