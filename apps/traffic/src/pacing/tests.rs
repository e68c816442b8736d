use proptest::prelude::*;

use super::*;

const START_NS: u64 = 5_000_000_000;
/// Bytes without FCS of the shortest frame.
const SHORT: usize = 60;

fn departures(rate: &str, shape: LoadShape, catch_up_frames: u32) -> Departures {
    Departures::new(&rate.parse().unwrap(), &shape, SHORT as f64, 1.0, catch_up_frames, START_NS).unwrap()
}

/// Sends all frames that are due at `now_ns`, `most` frames at most.
fn send(departures: &mut Departures, now_ns: u64, most: u32) -> u32 {
    let mut sent = 0;
    while sent < most && departures.is_due(now_ns) {
        departures.depart(SHORT);
        sent += 1;
    }
    sent
}

/// Due times of the first `count` frames, ns after the start.
fn due_times(departures: &mut Departures, count: usize, slot_bytes: usize) -> Vec<f64> {
    (0..count)
        .map(|_| {
            let due = departures.next_due();
            departures.depart(slot_bytes);
            due
        })
        .collect()
}

#[test]
fn frames_are_due_one_by_one_from_the_start() {
    let mut departures = departures("1Mpps", LoadShape::Constant, 100);
    let sent = [-1, 0, 999, 1000, 1999, 2000, 4500]
        .map(|after| send(&mut departures, START_NS.wrapping_add_signed(after), 64));
    assert_eq!(sent, [0, 1, 0, 1, 0, 1, 2]);
}

#[test]
fn unsent_frames_stay_due() {
    let mut departures = departures("1Mpps", LoadShape::Constant, 100);
    let now_ns = START_NS + 9_000;
    assert_eq!(send(&mut departures, now_ns, 3), 3);
    assert_eq!(departures.offered_load(now_ns).shortfall_frames(), 7);
    assert_eq!(send(&mut departures, now_ns, 64), 7);
}

#[test]
fn a_late_sender_catches_up_to_the_limit_and_skips_the_rest() {
    let mut departures = departures("1Mpps", LoadShape::Constant, 100);
    let now_ns = START_NS + 1_000_000;
    assert_eq!(send(&mut departures, now_ns, 1000), 101);
    let load = departures.offered_load(now_ns);
    let expected =
        OfferedLoad { elapsed_ns: 1_000_000, intended_frames: 1001, sent_frames: 101, skipped_frames: 900 };
    assert_eq!(load, expected);
    assert_eq!(load.shortfall_frames(), 900);
    // The schedule continues as usual from that time on.
    assert_eq!(send(&mut departures, now_ns + 999, 1000), 0);
    assert_eq!(send(&mut departures, now_ns + 1000, 1000), 1);
}

#[test]
fn at_full_speed_a_frame_is_always_due() {
    let mut departures = departures("max", LoadShape::Constant, DEFAULT_CATCH_UP_FRAMES);
    assert_eq!(send(&mut departures, START_NS - 1, 512), 0);
    for _ in 0..10 {
        assert_eq!(send(&mut departures, START_NS, 512), 512);
    }
    let load = departures.offered_load(START_NS + 7);
    assert_eq!((load.intended_frames, load.sent_frames, load.skipped_frames), (5120, 5120, 0));
    assert_eq!(departures.intended_fps(), None);
}

#[test]
fn at_a_bit_rate_each_frame_takes_its_own_time() {
    // 1 Gbit/s is 1 bit/ns. The shortest frame takes 84 bytes on the line, and so do shorter ones.
    let mut departures = departures("1Gbit", LoadShape::Constant, 100);
    assert_eq!(departures.next_due(), 0.0);
    for (slot_bytes, line_bytes) in [(60, 84), (1514, 84 + 1538), (40, 84 + 1538 + 84)] {
        departures.depart(slot_bytes);
        assert_eq!(departures.next_due(), f64::from(line_bytes * 8));
    }
}

#[test]
fn several_senders_share_a_rate() {
    let rate = "1Mpps".parse().unwrap();
    let mut quarter = Departures::new(&rate, &LoadShape::Constant, 60.0, 0.25, 100, 0).unwrap();
    assert_eq!(quarter.intended_fps(), Some(250_000.0));
    assert_eq!(due_times(&mut quarter, 3, SHORT), [0.0, 4000.0, 8000.0]);
}

#[test]
fn bursts_keep_the_rate_on_average_or_within() {
    let mut average = departures("1Mpps", LoadShape::Bursts { frames: 3, gap_ns: None }, 100);
    assert_eq!(due_times(&mut average, 7, SHORT), [0.0, 0.0, 0.0, 3000.0, 3000.0, 3000.0, 6000.0]);
    assert_eq!(average.intended_fps(), Some(1e6));
    let mut within = departures("1Mpps", LoadShape::Bursts { frames: 2, gap_ns: Some(500) }, 100);
    assert_eq!(due_times(&mut within, 5, SHORT), [0.0, 1000.0, 2500.0, 3500.0, 5000.0]);
    assert_eq!(within.intended_fps(), Some(800_000.0));
    let mut unpaced = departures("max", LoadShape::Bursts { frames: 2, gap_ns: Some(500) }, 100);
    assert_eq!(due_times(&mut unpaced, 5, SHORT), [0.0, 0.0, 500.0, 500.0, 1000.0]);
}

#[test]
fn a_ramp_grows_linearly_to_its_final_rate() {
    let from = "1Mpps".parse().unwrap();
    let mut ramp = departures("3Mpps", LoadShape::Ramp { from, over_ns: 1_000_000 }, 100);
    let times = due_times(&mut ramp, 5000, SHORT);
    // A quarter, a half and all of the ramp: 1·t + t² thousand frames after t ms.
    for (frame, time_ns) in [(312.5, 250_000.0), (750.0, 500_000.0), (2000.0, 1_000_000.0)] {
        let at = times.partition_point(|due| *due < time_ns);
        assert!((at as f64 - frame).abs() <= 1.0, "{frame}: {at}");
    }
    assert!((times[4000] - times[3999] - 1000.0 / 3.0).abs() < 1e-6);
    // The rate falls in the same way.
    let from = "3Mpps".parse().unwrap();
    let mut ramp = departures("1Mpps", LoadShape::Ramp { from, over_ns: 1_000_000 }, 100);
    let times = due_times(&mut ramp, 3000, SHORT);
    assert!((times[1] - 1000.0 / 3.0).abs() < 0.1, "{}", times[1]);
    assert!((times[2999] - times[2998] - 1000.0).abs() < 1e-6);
}

#[test]
fn the_gaps_of_a_poisson_process_are_exponentially_distributed() {
    let mut poisson = departures("1Mpps", LoadShape::Poisson { seed: 42 }, 100);
    let times = due_times(&mut poisson, 100_001, SHORT);
    let mut gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_by(f64::total_cmp);
    // Kolmogorov-Smirnov test against 1 − exp(−gap / 1000 ns); 1.63 / sqrt(n) is the 1 % bound. The seed makes the
    // result the same in each run.
    let count = gaps.len() as f64;
    let distance = gaps
        .iter()
        .enumerate()
        .map(|(at, gap)| {
            let expected = 1.0 - (-gap / 1000.0).exp();
            (expected - at as f64 / count).abs().max((expected - (at as f64 + 1.0) / count).abs())
        })
        .fold(0.0, f64::max);
    assert!(distance < 1.63 / count.sqrt(), "{distance}");
    assert_eq!(
        due_times(&mut departures("1Mpps", LoadShape::Poisson { seed: 42 }, 100), 50, SHORT),
        times[..50]
    );
    assert_ne!(
        due_times(&mut departures("1Mpps", LoadShape::Poisson { seed: 43 }, 100), 50, SHORT),
        times[..50]
    );
}

#[test]
fn a_load_can_be_restarted() {
    for shape in [LoadShape::Constant, LoadShape::Bursts { frames: 3, gap_ns: None }] {
        let mut departures = departures("1Mpps", shape, 100);
        let first = due_times(&mut departures, 7, SHORT);
        departures.restart(START_NS + 1_000_000);
        assert_eq!(due_times(&mut departures, 7, SHORT), first);
        assert_eq!(departures.offered_load(0).sent_frames, 7);
    }
}

#[test]
fn shapes_outside_their_ranges_are_refused_by_name() {
    let from = RateSpec::Max;
    for (rate, shape, told) in [
        ("max", LoadShape::Poisson { seed: 0 }, "shape poisson"),
        ("max", LoadShape::Bursts { frames: 2, gap_ns: None }, "shape bursts"),
        ("1Mpps", LoadShape::Bursts { frames: 0, gap_ns: None }, "bursts.frames is 0: give 1 to 1000000000"),
        ("1Mpps", LoadShape::Bursts { frames: 2, gap_ns: Some(0) }, "bursts.gap_ns is 0"),
        ("1Mpps", LoadShape::Ramp { from, over_ns: 1 }, "shape ramp"),
        ("1Mpps", LoadShape::Ramp { from: "1pps".parse().unwrap(), over_ns: 0 }, "ramp.over_ns is 0"),
    ] {
        let error = Departures::new(&rate.parse().unwrap(), &shape, 60.0, 1.0, 1, 0).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

fn shape() -> impl Strategy<Value = LoadShape> {
    prop_oneof![
        Just(LoadShape::Constant),
        any::<u64>().prop_map(|seed| LoadShape::Poisson { seed }),
        (1..50u32).prop_map(|frames| LoadShape::Bursts { frames, gap_ns: None }),
        (1..50u32, 1..100_000u64).prop_map(|(frames, gap)| LoadShape::Bursts { frames, gap_ns: Some(gap) }),
        (1.0..1e7f64, 1..10_000_000u64)
            .prop_map(|(rate_fps, over_ns)| LoadShape::Ramp { from: RateSpec::Frames { rate_fps }, over_ns }),
    ]
}

proptest! {
    #[test]
    fn due_times_never_decrease_and_the_mean_rate_holds(
        shape in shape(),
        rate_fps in 1e3..1e7f64,
        sizes in prop::collection::vec(60..1514usize, 1..200),
    ) {
        let rate = RateSpec::Frames { rate_fps };
        let mut departures = Departures::new(&rate, &shape, 500.0, 1.0, 100, 0).unwrap();
        let mut last = 0.0;
        for size in sizes.iter().cycle().take(1000) {
            prop_assert!(departures.next_due() >= last);
            last = departures.next_due();
            departures.depart(*size);
        }
        if shape == LoadShape::Constant {
            prop_assert!((last - 999.0 / rate_fps * 1e9).abs() < 1e-3);
        }
    }

    /// The number of frames in any span of time is at most the rate's, one more, and the catch-up limit, whenever the
    /// caller polls.
    #[test]
    fn the_rate_is_never_exceeded_by_more_than_the_catch_up_limit(
        steps in prop::collection::vec((0..200_000u64, 1..300u32), 1..60),
        catch_up in 1..200u32,
    ) {
        let mut departures = departures("1Mpps", LoadShape::Constant, catch_up);
        let mut now_ns = START_NS;
        let mut log = Vec::new();
        for (step_ns, most) in steps {
            now_ns += step_ns;
            let sent = send(&mut departures, now_ns, most);
            log.push((now_ns, u64::from(sent)));
        }
        for (at, (from_ns, _)) in log.iter().enumerate() {
            let mut frames = 0;
            for (until_ns, sent) in &log[at..] {
                frames += sent;
                let allowed = (until_ns - from_ns) / 1000 + 2 + u64::from(catch_up);
                prop_assert!(frames <= allowed, "{frames} > {allowed}");
            }
        }
        let load = departures.offered_load(now_ns);
        let entitled = load.elapsed_ns / 1000 + 1;
        prop_assert!(load.intended_frames.abs_diff(entitled) <= 1, "{load:?} {entitled}");
        prop_assert!(load.sent_frames + load.skipped_frames <= load.intended_frames);
    }
}
