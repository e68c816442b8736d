use proptest::prelude::*;

use super::*;

const START_NS: u64 = 5_000_000_000;

fn pacer(rate_fps: f64, backlog: u32) -> Pacer {
    let backlog = NonZeroU32::new(backlog).unwrap();
    Pacer::new(&RateSpec::Frames { rate_fps }, FrameSize::MIN, backlog, START_NS).unwrap()
}

/// Asks and sends all that is due.
fn send(pacer: &mut Pacer, now_ns: u64, burst_limit: u32) -> u32 {
    let due = pacer.due(now_ns, burst_limit);
    pacer.record_sent(due);
    due
}

#[test]
fn frames_are_due_one_by_one_from_the_start() {
    let mut pacer = pacer(1e6, 100);
    let sent = [-1, 0, 999, 1000, 1999, 2000, 4500]
        .map(|after| send(&mut pacer, START_NS.wrapping_add_signed(after), 64));
    assert_eq!(sent, [0, 1, 0, 1, 0, 1, 2]);
}

#[test]
fn what_is_not_sent_stays_due() {
    let mut pacer = pacer(1e6, 100);
    let now_ns = START_NS + 9_000;
    assert_eq!(pacer.due(now_ns, 64), 10);
    assert_eq!(pacer.due(now_ns, 4), 4);
    pacer.record_sent(3);
    assert_eq!(pacer.due(now_ns, 64), 7);
    assert_eq!(pacer.offered_load(now_ns).shortfall_frames(), 7);
}

#[test]
fn a_sender_held_up_catches_up_to_the_backlog_limit_and_the_rest_is_skipped() {
    let mut pacer = pacer(1e6, 100);
    let now_ns = START_NS + 1_000_000;
    assert_eq!(send(&mut pacer, now_ns, 64), 64);
    assert_eq!(send(&mut pacer, now_ns, 64), 36);
    assert_eq!(send(&mut pacer, now_ns, 64), 0);
    let load = pacer.offered_load(now_ns);
    let expected =
        OfferedLoad { elapsed_ns: 1_000_000, intended_frames: 1001, sent_frames: 100, skipped_frames: 901 };
    assert_eq!(load, expected);
    assert_eq!(load.shortfall_frames(), 901);
    assert!((load.sent_fps() - 100_000.0).abs() < 1e-6);
}

#[test]
fn at_full_speed_a_burst_is_always_due_and_nothing_falls_short() {
    let mut pacer = Pacer::new(&RateSpec::Max, FrameSize::MIN, DEFAULT_BACKLOG_FRAMES, START_NS).unwrap();
    assert_eq!(send(&mut pacer, START_NS - 1, 512), 0);
    for _ in 0..10 {
        assert_eq!(send(&mut pacer, START_NS, 512), 512);
    }
    let load = pacer.offered_load(START_NS + 7);
    assert_eq!((load.intended_frames, load.sent_frames, load.shortfall_frames()), (5120, 5120, 0));
    assert_eq!(pacer.next_due_ns(), None);
}

#[test]
fn rates_in_bits_pace_frames_of_the_size() {
    let rate = "100%@10G".parse().unwrap();
    let size = FrameSize::new(1518).unwrap();
    let mut pacer = Pacer::new(&rate, size, NonZeroU32::MAX, START_NS).unwrap();
    // 812743.82 frames/s, the frame at the start among those of the second.
    assert_eq!(pacer.due(START_NS + 1_000_000_000, u32::MAX), 812_744);
}

#[test]
fn a_rate_that_is_none_is_refused() {
    let rate = RateSpec::Frames { rate_fps: f64::NAN };
    assert!(Pacer::new(&rate, FrameSize::MIN, DEFAULT_BACKLOG_FRAMES, 0).is_err());
}

#[test]
fn a_clock_that_steps_back_makes_nothing_due_twice() {
    let mut pacer = pacer(1e6, 100);
    assert_eq!(send(&mut pacer, START_NS + 10_000, 64), 11);
    assert_eq!(send(&mut pacer, START_NS + 5_000, 64), 0);
    assert_eq!(send(&mut pacer, START_NS + 11_000, 64), 1);
}

#[test]
fn after_a_year_at_ten_gigabit_the_count_is_right_to_one_frame() {
    const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;
    let intended = pacer(14_880_952.0, 1).offered_load(START_NS + YEAR_NS).intended_frames;
    assert!(intended.abs_diff(14_880_952 * (YEAR_NS / 1_000_000_000)) <= 1, "{intended}");
}

fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![1.0..1e4f64, 1e4..2e8f64]
}

/// Between two calls: time passed in ns, burst limit, how many of those due get sent (in 256ths).
fn calls() -> impl Strategy<Value = Vec<(u64, u32, u32)>> {
    let gap = prop_oneof![0..10u64, 0..100_000u64, 0..100_000_000u64];
    prop::collection::vec((gap, 0..2048u32, prop_oneof![Just(256u32), 0..=256u32]), 1..100)
}

proptest! {
    #[test]
    fn in_no_span_is_more_sent_than_the_rate_and_the_backlog_limit_allow(
        rate in rate(), backlog in 1..5000u32, calls in calls(),
    ) {
        let mut pacer = pacer(rate, backlog);
        let (mut now_ns, mut total) = (START_NS, 0u64);
        // Frames sent before each call, and its time.
        let mut history = Vec::new();
        for (gap_ns, burst_limit, share) in calls {
            now_ns += gap_ns;
            history.push((now_ns, total));
            let due = pacer.due(now_ns, burst_limit);
            prop_assert!(due <= burst_limit);
            let sent = (u64::from(due) * u64::from(share) / 256) as u32;
            pacer.record_sent(sent);
            total += u64::from(sent);
            let frames_in = |from_ns: u64| (now_ns - from_ns) as f64 * rate / 1e9 + 1.0 + 1e-6;
            prop_assert!(total as f64 <= frames_in(START_NS));
            for (from_ns, before) in &history {
                prop_assert!((total - before) as f64 <= frames_in(*from_ns) + f64::from(backlog));
            }
            let load = pacer.offered_load(now_ns);
            prop_assert_eq!(load.sent_frames, total);
            let waiting = load.intended_frames - load.sent_frames - load.skipped_frames;
            prop_assert!(waiting <= u64::from(backlog));
        }
    }

    #[test]
    fn a_caller_who_asks_often_enough_sends_the_rate_to_one_frame_and_skips_nothing(
        rate in rate(), gaps in prop::collection::vec(1..=1000u64, 1..2000),
    ) {
        // 200 frames at most in 1000 ns.
        let mut pacer = pacer(rate, 256);
        let mut now_ns = START_NS;
        for gap_ns in gaps {
            now_ns += gap_ns;
            send(&mut pacer, now_ns, 256);
        }
        let load = pacer.offered_load(now_ns);
        prop_assert_eq!(load.shortfall_frames(), 0);
        prop_assert!((load.sent_frames as f64 - load.elapsed_ns as f64 * rate / 1e9).abs() <= 1.0 + 1e-6);
    }

    #[test]
    fn waiting_until_the_next_frame_is_due_sends_one_at_a_time(rate in 1.0..1e8f64) {
        let mut pacer = pacer(rate, 4);
        for frame in 0..200u64 {
            let next_ns = pacer.next_due_ns().unwrap();
            // Rounding may cost a nanosecond; several frames can be due in one.
            prop_assert!(send(&mut pacer, next_ns + 1, 1) == 1, "frame {}", frame);
            prop_assert!(next_ns.abs_diff(START_NS + (frame as f64 * 1e9 / rate) as u64) <= 1);
        }
    }
}
