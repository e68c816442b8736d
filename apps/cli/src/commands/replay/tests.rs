use super::*;

fn at_speed(multiple: f64) -> Schedule {
    Schedule::new(None, Speed::Multiple(multiple)).unwrap()
}

fn due(schedule: &mut Schedule, timestamp_ns: u64) -> Option<u64> {
    schedule.due_ns(timestamp_ns, 60)
}

#[test]
fn speeds_are_words_or_multiples() {
    assert_eq!("original".parse(), Ok(Speed::Multiple(1.0)));
    assert_eq!("max".parse(), Ok(Speed::Max));
    assert_eq!("2.0".parse(), Ok(Speed::Multiple(2.0)));
    assert_eq!("0.5x".parse(), Ok(Speed::Multiple(0.5)));
    for text in ["", "0", "-1", "inf", "nan", "fast"] {
        assert!(text.parse::<Speed>().is_err(), "{text}");
    }
}

#[test]
fn a_speed_divides_the_times_since_the_first_frame() {
    let mut original = at_speed(1.0);
    assert_eq!([5000, 6000, 9000].map(|at| due(&mut original, at)), [Some(0), Some(1000), Some(4000)]);
    let mut double = at_speed(2.0);
    assert_eq!([5000, 6000, 9000].map(|at| due(&mut double, at)), [Some(0), Some(500), Some(2000)]);
}

#[test]
fn a_backwards_timestamp_is_counted_and_adds_no_delay() {
    let mut schedule = at_speed(1.0);
    let dues = [5000, 7000, 6000, 6500].map(|at| due(&mut schedule, at));
    assert_eq!(dues, [Some(0), Some(2000), Some(2000), Some(2500)]);
    assert_eq!(schedule.backwards, 1);
}

#[test]
fn the_next_loop_starts_a_mean_gap_after_the_last_frame() {
    let mut schedule = at_speed(1.0);
    for at in [100, 200, 400, 700] {
        due(&mut schedule, at);
    }
    schedule.next_round();
    assert_eq!(due(&mut schedule, 100), Some(800));
    assert_eq!(schedule.backwards, 0);
}

#[test]
fn a_bit_rate_counts_each_frames_length() {
    let mut schedule = Schedule::new("1Gbit".parse().ok(), Speed::Multiple(1.0)).unwrap();
    assert_eq!(schedule.due_ns(0, 60), Some(0));
    // A frame of 60 bytes has 84 bytes on the line; the rate is 1 bit/ns.
    assert_eq!(schedule.due_ns(0, 1514), Some(84 * 8));
    assert_eq!(schedule.due_ns(0, 60), Some((84 + 1538) * 8));
}
