use ringroad::Embedded;

use super::*;

/// Two pipes, `a` and `b`, whose near ends are joined.
struct Bench {
    junction: PortPair,
    a: Port,
    b: Port,
}

fn bench(macswap: bool, drop: bool, slots: u32) -> Bench {
    let pipes = Embedded::new();
    let open = |name: &str| pipes.open(&format!("{name}@slots={slots}")).unwrap();
    let ports = [open("a}1"), open("b}1")];
    let (a, b) = (open("a{1"), open("b{1"));
    let direction = || ForwarderDirection::new(macswap, drop, 256);
    Bench { junction: PortPair { ports, there: direction(), back: Some(direction()) }, a, b }
}

fn frame(number: u8) -> [u8; 60] {
    let mut frame = [number; 60];
    frame[..12].copy_from_slice(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    frame
}

fn send(port: &mut Port, frames: impl IntoIterator<Item = u8>) {
    for number in frames {
        assert!(port.tx().send(&frame(number)).unwrap());
    }
    port.tx().sync().unwrap();
}

fn received(port: &mut Port) -> Vec<Vec<u8>> {
    port.rx().sync().unwrap();
    let mut frames = Vec::new();
    loop {
        let mut bytes = Vec::new();
        match port.rx().receive(&mut bytes) {
            Some(_) => frames.push(bytes),
            None => break,
        }
    }
    port.rx().sync().unwrap();
    frames
}

#[test]
fn frames_pass_both_ways_and_each_way_is_counted() {
    let mut bench = bench(false, false, 64);
    send(&mut bench.a, 0..5);
    send(&mut bench.b, 5..8);
    assert!(bench.junction.turn().unwrap());
    assert_eq!(received(&mut bench.b).len(), 5);
    assert_eq!(received(&mut bench.a), [frame(5), frame(6), frame(7)]);
    assert_eq!(bench.junction.there.counts.frames, 5);
    assert_eq!(bench.junction.back.as_ref().unwrap().counts.frames, 3);
    assert!(!bench.junction.turn().unwrap());
}

#[test]
fn addresses_are_swapped_once_even_if_frames_wait_for_room() {
    let mut bench = bench(true, false, 8);
    let mut all = Vec::new();
    let mut next = 0;
    // Port b is emptied only in every third turn, so that bursts are split again and again.
    for turn in 0..20 {
        if bench.a.tx().sync().is_ok() && bench.a.tx().available() > 0 {
            let count = bench.a.tx().available().min(5) as u8;
            send(&mut bench.a, next..next + count);
            next += count;
        }
        bench.junction.turn().unwrap();
        if turn % 3 == 2 {
            all.extend(received(&mut bench.b));
        }
    }
    for _ in 0..5 {
        bench.junction.turn().unwrap();
        all.extend(received(&mut bench.b));
    }
    assert_eq!(all.len(), usize::from(next));
    for (number, bytes) in (0u8..).zip(&all) {
        assert_eq!(bytes[..12], [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1], "frame {number}");
        assert_eq!(bytes[12..], frame(number)[12..], "frame {number}");
    }
}

#[test]
fn addresses_are_swapped_only_in_a_frames_first_slot() {
    let mut bench = bench(true, false, 64);
    let long: Vec<u8> = (0..5000u32).map(|n| (n / 7) as u8).collect();
    bench.a.tx().send(&long).unwrap();
    send(&mut bench.a, [9]);
    bench.junction.turn().unwrap();
    let frames = received(&mut bench.b);
    assert_eq!(frames[0][..6], long[6..12]);
    assert_eq!(frames[0][6..12], long[..6]);
    assert_eq!(frames[0][12..], long[12..]);
    assert_eq!(frames[1][..6], [2; 6]);
}

#[test]
fn a_full_port_holds_frames_back_or_drops_and_counts_them() {
    for (drop, delivered, dropped) in [(false, 14, 0), (true, 7, 7)] {
        let mut bench = bench(false, drop, 8);
        for first in [0, 7] {
            send(&mut bench.a, first..first + 7);
            for _ in 0..3 {
                bench.junction.turn().unwrap();
            }
            bench.a.tx().sync().unwrap();
            if bench.a.tx().available() < 7 {
                break;
            }
        }
        let mut frames = received(&mut bench.b).len();
        for _ in 0..3 {
            bench.junction.turn().unwrap();
            frames += received(&mut bench.b).len();
        }
        assert_eq!(frames, delivered, "drop: {drop}");
        assert_eq!(bench.junction.there.counts.dropped_frames, dropped);
    }
}

#[test]
fn pipeline_stages_count_delivered_frames_and_every_drop() {
    let first = DirectionCounts { frames: 10, too_long_frames: 0, dropped_frames: 2, zero_copy: false };
    let second = DirectionCounts { frames: 9, too_long_frames: 1, dropped_frames: 0, zero_copy: false };
    let sum = DirectionCounts { frames: 9, too_long_frames: 1, dropped_frames: 2, zero_copy: false };
    assert_eq!(first.followed_by(second), sum);
}
