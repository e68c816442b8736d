//! Loss, duplication, reordering, damage and delay of known size between generator and meter, found exactly. The tests
//! use an impaired port of an embedded switch and a manual clock.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ringroad::impairment::{Corruption, Delay, FramePattern, Impairment, ImpairmentPlan, Reorder, Within};
use ringroad::{Embedded, OpenOptions};
use ringroad_generator::report::ArrivalReport;
use ringroad_generator::{
    Load, PlannedPort, SessionClock, SessionOptions, SessionReport, TestPlan, TestSession, Threads,
};
use ringroad_traffic::definition::StreamDefinition;
use ringroad_traffic::meter::StreamSummary;
use ringroad_traffic::pacing::{LoadShape, RateSpec};

/// Time between two turns, ns.
const STEP_NS: u64 = 100;
/// Bytes of a compact signature that either mark it or are covered by its checksum.
const SIGNATURE_BYTES: u32 = 18;

struct Simulation {
    session: TestSession,
    clock: SessionClock,
    port_clock: ringroad::Clock,
    impairment: Impairment,
}

impl Simulation {
    fn new(plan: ImpairmentPlan, loads: Vec<Load>) -> Self {
        let (clock, port_clock) = (SessionClock::manual(1_000_000), ringroad::Clock::manual());
        let switch = Embedded::new();
        let (b, impairment) =
            switch.open_impaired("vale0:b", &OpenOptions::default(), plan, port_clock.clone()).unwrap();
        let ports = vec![switch.open("vale0:a").unwrap(), b];
        let planned = ["a", "b"]
            .map(|label| PlannedPort { name: format!("vale0:{label}"), label: Some(label.to_owned()) });
        let options =
            SessionOptions { clock: clock.clone(), threads: Threads::Caller, ..SessionOptions::default() };
        let plan = TestPlan { ports: planned.to_vec(), loads };
        let session = TestSession::over(plan, ports, &options).unwrap();
        Self { session, clock, port_clock, impairment }
    }

    fn step(&mut self) {
        self.session.turn().unwrap();
        self.clock.advance(STEP_NS);
        self.port_clock.advance(STEP_NS);
    }

    /// Runs all loads to their end, and for `after_ns` more.
    fn run(mut self, after_ns: u64) -> (SessionReport, Impairment) {
        self.session.start();
        while !self.session.wait_sent(std::time::Duration::ZERO) {
            self.step();
        }
        for _ in 0..after_ns / STEP_NS {
            self.step();
        }
        let (report, ended) = self.session.finish(std::time::Duration::ZERO);
        ended.unwrap();
        (report, self.impairment)
    }
}

fn load(frames: u64, rate: &str) -> Load {
    Load {
        frames: Some(frames),
        rate: rate.parse().unwrap(),
        ..Load::new("a", &["b"], vec![StreamDefinition::default()])
    }
}

fn only(report: &SessionReport) -> &StreamSummary {
    match report.loads[0].arrivals.as_slice() {
        [ArrivalReport { stream, .. }] => stream,
        arrivals => panic!("{arrivals:?}"),
    }
}

fn every(n: u64) -> FramePattern {
    FramePattern::Every { n, offset: n - 1 }
}

#[test]
fn an_unimpaired_port_shows_no_impairment() {
    let (report, _) = Simulation::new(ImpairmentPlan::default(), vec![load(5000, "1Mpps")]).run(1000);
    let stream = only(&report);
    assert_eq!((stream.sent, stream.received, stream.lost), (Some(5000), 5000, 0));
    assert_eq!((stream.duplicates, stream.reordered, stream.corrupted, stream.excess), (0, 0, 0, 0));
    assert_eq!(report.ports[1].received.foreign_frames, 0);
    let offered = report.loads[0].offered;
    assert_eq!((offered.intended_frames, offered.sent_frames, offered.skipped_frames), (5000, 5000, 0));
    let timing = report.loads[0].timing.unwrap();
    assert_eq!(
        (timing.lateness.max_ns, timing.inter_departure.max_ns),
        (0, 0),
        "the clock stands while frames go"
    );
}

#[test]
fn each_lost_frame_is_counted_also_at_the_end() {
    let mut lost: Vec<u64> = (0..5000).step_by(37).collect();
    lost.extend([4998, 4999]);
    let plan = ImpairmentPlan { drop: FramePattern::At(lost.clone()), ..ImpairmentPlan::default() };
    let (report, impairment) = Simulation::new(plan, vec![load(5000, "1Mpps")]).run(1000);
    let stream = only(&report);
    assert_eq!(impairment.counters().dropped, lost.len() as u64);
    assert_eq!((stream.lost, stream.received), (lost.len() as u64, 5000 - lost.len() as u64));
    assert_eq!(stream.loss_ratio, Some(lost.len() as f64 / 5000.0));
}

#[test]
fn duplicates_are_counted_and_make_up_for_no_loss() {
    let plan = ImpairmentPlan {
        drop: every(10),
        duplicate: FramePattern::Every { n: 7, offset: 0 },
        ..ImpairmentPlan::default()
    };
    let (report, impairment) = Simulation::new(plan, vec![load(7000, "1Mpps")]).run(1000);
    let (stream, done) = (only(&report), impairment.counters());
    assert!(done.duplicated > 0);
    assert_eq!((stream.lost, stream.duplicates), (done.dropped, done.duplicated));
    assert_eq!(stream.distinct, 7000 - done.dropped);
    assert_eq!(stream.received, stream.distinct + stream.duplicates);
}

#[test]
fn reordered_frames_are_counted_with_how_far_they_fell_behind() {
    let reorder = Reorder { frames: every(50), by: 3, patience_ns: Some(1_000_000) };
    let plan = ImpairmentPlan { reorder, ..ImpairmentPlan::default() };
    let (report, impairment) = Simulation::new(plan, vec![load(5000, "1Mpps")]).run(2_000_000);
    let (stream, done) = (only(&report), impairment.counters());
    // The last frame was held back, and no frame followed to overtake it.
    assert_eq!((done.reordered, stream.reordered, stream.lost), (100, 99, 0));
    let extent = stream.reordering.extent_frames.unwrap();
    assert_eq!((extent.count, extent.min, extent.max), (99, 3, 3));
    // A frame passed by three is three-reordered (RFC 4737, section 5).
    assert_eq!(stream.reordering.n_reordered, [99, 99, 99]);
}

#[test]
fn damage_to_signature_or_covered_bytes_is_found() {
    for (size, covered) in [(64, SIGNATURE_BYTES), (512, 466)] {
        let corrupt = Corruption { frames: every(5), within: Within::End(0..covered), seed: 3 };
        let plan = ImpairmentPlan { corrupt, ..ImpairmentPlan::default() };
        let mut load = load(5000, "1Mpps");
        load.streams[0].size = Some(size.to_string().parse().unwrap());
        let (report, impairment) = Simulation::new(plan, vec![load]).run(1000);
        let (stream, done) = (only(&report), impairment.counters());
        assert_eq!(done.corrupted, 1000);
        let port = &report.ports[1].received;
        assert_eq!(
            stream.corrupted + port.corrupted_unattributed + port.unknown_stream_frames,
            1000,
            "{size}"
        );
        assert_eq!((stream.received, stream.lost, port.foreign_frames), (4000, 1000, 0), "{size}");
    }
}

#[test]
fn a_fixed_delay_is_the_latency_of_every_frame() {
    let plan = ImpairmentPlan { delay: Delay::Fixed(25_000), ..ImpairmentPlan::default() };
    let (report, _) = Simulation::new(plan, vec![load(2000, "100kpps")]).run(100_000);
    let delay = &only(&report).delay;
    let latency = delay.latency_ns.unwrap();
    assert_eq!((latency.count, latency.min, latency.max), (2000, 25_000, 25_000));
    assert_eq!((delay.jitter_ns, delay.negative), (Some(0.0), 0));
    assert_eq!(delay.pdv_ns.unwrap().max, 0);
}

#[test]
fn latency_percentiles_match_the_delay_distribution() {
    // Nine frames of ten wait 2 µs, the tenth 10 µs. The frames are so far apart that none waits for the previous one.
    let mut delays = vec![2000; 9];
    delays.push(10_000);
    let plan = ImpairmentPlan { delay: Delay::Cycle(delays), ..ImpairmentPlan::default() };
    let (report, _) = Simulation::new(plan, vec![load(5000, "50kpps")]).run(100_000);
    let delay = &only(&report).delay;
    let latency = delay.latency_ns.unwrap();
    assert_eq!((latency.min, latency.p50, latency.p90), (2000, 2000, 2000));
    // The histogram has three significant digits.
    for high in [latency.p99, latency.p99_9, latency.max] {
        assert!(high.abs_diff(10_000) <= 10, "{high}");
    }
    assert!((latency.mean - 2800.0).abs() < 3.0, "{}", latency.mean);
    // RFC 5481: delays minus the least delay.
    let pdv = delay.pdv_ns.unwrap();
    assert_eq!((pdv.min, pdv.p50), (0, 0));
    assert!(pdv.p99.abs_diff(8000) <= 10, "{}", pdv.p99);
    // RFC 3550: differences of 8 µs, two in ten frames.
    let mean_difference = delay.mean_difference_ns.unwrap();
    assert!((mean_difference - 1600.0).abs() < 5.0, "{mean_difference}");
}

#[test]
fn combined_impairments_are_counted_separately() {
    let random = |probability, seed| FramePattern::Random { probability, seed };
    let plan = ImpairmentPlan {
        drop: random(0.02, 1),
        duplicate: random(0.03, 2),
        corrupt: Corruption { frames: random(0.01, 3), within: Within::End(0..SIGNATURE_BYTES), seed: 4 },
        delay: Delay::Uniform { low: 1000, high: 3000, seed: 5 },
        ..ImpairmentPlan::default()
    };
    let (report, impairment) = Simulation::new(plan, vec![load(20_000, "200kpps")]).run(100_000);
    let stream = only(&report);
    // The plan's effect on each frame, counted by hand.
    let (mut intact, mut twice, mut damaged) = (0, 0, 0);
    for number in 0..20_000 {
        let impairments = impairment.impairments(0, number);
        let copies = if impairments.drop { 0 } else { 1 + u64::from(impairments.duplicate) };
        match (copies, impairments.corrupt) {
            (0, _) => {}
            (copies, true) => damaged += copies,
            (copies, false) => {
                intact += 1;
                twice += copies - 1;
            }
        }
    }
    let port = &report.ports[1].received;
    assert_eq!(stream.distinct, intact);
    assert_eq!((stream.duplicates, stream.lost), (twice, 20_000 - intact));
    assert_eq!(stream.corrupted + port.corrupted_unattributed + port.unknown_stream_frames, damaged);
    let latency = stream.delay.latency_ns.unwrap();
    assert!(latency.min >= 1000 && latency.max <= 3100, "{latency:?}");
}

#[test]
fn streams_of_a_load_are_counted_separately_by_weight() {
    let stream = |name: &str, weight, size: &str| StreamDefinition {
        name: name.to_owned(),
        weight,
        size: Some(size.parse().unwrap()),
        ..StreamDefinition::default()
    };
    let mut both = load(8000, "1Mpps");
    both.streams = vec![stream("small", 3, "64"), stream("large", 1, "imix")];
    let plan = ImpairmentPlan { drop: FramePattern::Every { n: 4, offset: 0 }, ..ImpairmentPlan::default() };
    let (report, impairment) = Simulation::new(plan, vec![both]).run(1000);
    let streams = &report.loads[0].streams;
    let sent: Vec<_> = streams.iter().map(|stream| (stream.stream.as_str(), stream.sent_frames)).collect();
    assert_eq!(sent, [("small", 6000), ("large", 2000)]);
    let lost: u64 = streams.iter().map(|stream| stream.arrivals[0].stream.lost).sum();
    assert_eq!(lost, impairment.counters().dropped);
    assert_eq!(only(&report).lost, lost);
}

#[test]
fn both_directions_and_several_loads_run_side_by_side() {
    let named = |name: &str, load: Load| Load { name: name.to_owned(), ..load };
    let back = Load { from: "b".to_owned(), to: vec!["a".to_owned()], ..load(3000, "700kpps") };
    let loads = vec![
        named("there", load(4000, "1Mpps")),
        named("also there", load(1000, "100kpps")),
        named("back", back),
    ];
    let (report, _) = Simulation::new(ImpairmentPlan::default(), loads).run(1000);
    for (load, frames) in report.loads.iter().zip([4000, 1000, 3000]) {
        let stream = &load.arrivals[0].stream;
        assert_eq!((load.sent.frames, stream.received, stream.lost), (frames, frames, 0), "{}", load.load);
    }
    assert_eq!(report.ports.iter().map(|port| port.received.unknown_stream_frames).sum::<u64>(), 0);
}

/// Departure times of the frames of a load, ns, from the timestamps in their signatures.
fn departures(shape: LoadShape, rate: &str, frames: u64) -> Vec<u64> {
    let clock = SessionClock::manual(0);
    let pipe = Embedded::new();
    let mut far = pipe.open("x}1").unwrap();
    let options =
        SessionOptions { clock: clock.clone(), threads: Threads::Caller, ..SessionOptions::default() };
    let mut load = load(frames, rate);
    (load.shape, load.to) = (shape, Vec::new());
    let plan = TestPlan {
        ports: vec![PlannedPort { name: "x{1".to_owned(), label: Some("a".to_owned()) }],
        loads: vec![load],
    };
    let mut session = TestSession::over(plan, vec![pipe.open("x{1").unwrap()], &options).unwrap();
    session.start();
    let mut times = Vec::new();
    let mut frame = Vec::new();
    while !session.wait_sent(std::time::Duration::ZERO) {
        session.turn().unwrap();
        far.rx().sync().unwrap();
        frame.clear();
        while far.rx().receive(&mut frame).is_some() {
            let reading = ringroad_traffic::signature::read_signature(&frame, Default::default());
            let ringroad_traffic::signature::SignatureReading::Intact(signature) = reading else {
                panic!("{reading:?}")
            };
            times.push(signature.timestamp_low);
            frame.clear();
        }
        clock.advance(1);
    }
    assert_eq!(times.len() as u64, frames);
    times
}

#[test]
fn constant_spacing_is_exact_to_the_nanosecond() {
    let times = departures(LoadShape::Constant, "3Mpps", 3000);
    for (frame, time) in times.iter().enumerate() {
        let due = frame as f64 * 1000.0 / 3.0;
        assert!((*time as f64 - due).abs() <= 1.0, "frame {frame}: {time} instead of {due}");
    }
}

#[test]
fn the_recorded_gaps_of_a_poisson_load_are_exponentially_distributed() {
    let times = departures(LoadShape::Poisson { seed: 11 }, "1Mpps", 4001);
    let mut gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    gaps.sort_by(f64::total_cmp);
    let count = gaps.len() as f64;
    // Kolmogorov-Smirnov test at 1 %. The clock's steps of 1 ns add a thousandth of the mean.
    let distance = gaps
        .iter()
        .enumerate()
        .map(|(at, gap)| (1.0 - (-gap / 1000.0).exp() - at as f64 / count).abs())
        .fold(0.0, f64::max);
    assert!(distance < 1.63 / count.sqrt() + 0.001, "{distance}");
    let mean = gaps.iter().sum::<f64>() / count;
    assert!((mean - 1000.0).abs() < 4.0 * 1000.0 / count.sqrt(), "{mean}");
}

#[test]
fn bursts_leave_together_with_their_pause() {
    let times = departures(LoadShape::Bursts { frames: 4, gap_ns: Some(5000) }, "max", 20);
    for (burst, of_burst) in times.chunks(4).enumerate() {
        assert_eq!(of_burst, [burst as u64 * 5000; 4]);
    }
}

#[test]
fn a_bit_rate_spaces_imix_frames_as_a_link_would() {
    let clock_rate: RateSpec = "1Gbit".parse().unwrap();
    let mut load = load(120, "1Gbit");
    load.streams[0].size = Some("imix".parse().unwrap());
    let (report, _) = Simulation::new(ImpairmentPlan::default(), vec![load]).run(1000);
    // 12 frames of the IMIX are 4342 bytes with FCS, and take 20 bytes more each on the line. The time of the last
    // frame itself is not waited for.
    let line_ns = 10 * (4342 + 12 * 20) * 8;
    let elapsed_ns = report.loads[0].offered.elapsed_ns;
    assert!(
        elapsed_ns < line_ns && elapsed_ns + (1518 + 20) * 8 + STEP_NS >= line_ns,
        "{elapsed_ns} {line_ns} {clock_rate}"
    );
}
