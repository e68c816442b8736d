//! Tests of impaired ports: they do exactly what the plan describes, under any timing, and account for every frame.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use ringroad::impairment::{
    Corruption, Delay, FramePattern, Impairment, ImpairmentCounters, ImpairmentPlan, Impairments, Reorder,
    Within,
};
use ringroad::{Clock, DropCause, Embedded, EmbeddedThread, Interest, OpenError, OpenOptions, Port};
use ringroad_capture::{CaptureFormat, CaptureWriter};

const SWITCH: &str = "vale0";
/// Deadline that only a failure reaches: every wait below ends with an event.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
const MILLISECOND: u64 = 1_000_000;

/// Makes a frame to an address that is never learned, so that it is flooded; `number` follows the header.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0xB, 2, 0, 0, 0, 0, 0xA, 0x88, 0xB5];
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend((frame.len()..len).map(|index| (index as u32 ^ number) as u8));
    frame
}

fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}

/// A switch with a sender and an impaired receiver, stepped by their syncs, and the clock of the delays.
struct Net {
    net: Embedded,
    a: Port,
    b: Port,
    impairment: Impairment,
    clock: Clock,
    sent: u32,
}

impl Net {
    fn new(plan: ImpairmentPlan) -> Self {
        Self::with(plan, "vale0:b@slots=4096")
    }

    fn with(plan: ImpairmentPlan, b: &str) -> Self {
        let (net, clock) = (Embedded::new(), Clock::manual());
        let a = net.open("vale0:a@slots=4096").unwrap();
        let (b, impairment) = net.open_impaired(b, &OpenOptions::default(), plan, clock.clone()).unwrap();
        Self { net, a, b, impairment, clock, sent: 0 }
    }

    /// Sends `count` frames of 60 bytes. Their numbers continue those of the last call.
    fn send(&mut self, count: u32) {
        for _ in 0..count {
            assert!(self.a.tx().send(&frame(self.sent, 60)).unwrap());
            self.sent += 1;
        }
        while self.a.tx().pending() > 0 {
            self.a.tx().sync().unwrap();
        }
    }

    fn receive(&mut self) -> Vec<Vec<u8>> {
        self.b.rx().sync().unwrap();
        let mut frames = Vec::new();
        let mut frame = Vec::new();
        while self.b.rx().receive(&mut frame).is_some() {
            frames.push(std::mem::take(&mut frame));
        }
        self.b.rx().sync().unwrap();
        frames
    }

    fn numbers(&mut self) -> Vec<u32> {
        self.receive().iter().map(|frame| number_of(frame)).collect()
    }

    /// Returns the counters, after a check of their sum.
    fn done(&self) -> ImpairmentCounters {
        let done = self.impairment.counters();
        assert_eq!(
            done.arrived + done.duplicated,
            done.dropped + done.overflowed + done.abandoned + done.held + done.passed,
            "{done:?}"
        );
        let counters = self.net.port_counters(SWITCH, "b").unwrap();
        assert_eq!(counters.dropped_for(DropCause::Impaired), done.dropped);
        assert_eq!(counters.delivered_frames + counters.dropped_for(DropCause::NoSpace), done.passed);
        assert_eq!(counters.replicated_frames, done.duplicated);
        self.assert_conserved(done.held);
        done
    }

    fn assert_conserved(&self, held: u64) {
        let totals = self.net.switch_counters(SWITCH).unwrap();
        assert_eq!(
            totals.received_frames + totals.replicated_frames,
            totals.delivered_frames + totals.dropped_frames() + held,
            "{totals:?}"
        );
    }
}

fn plan() -> ImpairmentPlan {
    ImpairmentPlan::default()
}

#[test]
fn a_plan_that_does_nothing_lets_everything_pass() {
    let mut net = Net::new(plan());
    net.send(1000);
    let frames = net.receive();
    assert_eq!(frames, (0..1000).map(|number| frame(number, 60)).collect::<Vec<_>>());
    assert_eq!(net.done(), ImpairmentCounters { arrived: 1000, passed: 1000, ..Default::default() });
    assert_eq!(net.impairment.affected(0).count(), 0);
}

#[test]
fn chosen_frames_are_dropped() {
    let mut net = Net::new(ImpairmentPlan { drop: FramePattern::Every { n: 10, offset: 3 }, ..plan() });
    net.send(1000);
    assert_eq!(net.numbers(), (0..1000).filter(|number| number % 10 != 3).collect::<Vec<_>>());
    let done = net.done();
    assert_eq!(done, ImpairmentCounters { arrived: 1000, dropped: 100, passed: 900, ..Default::default() });
    let affected: Vec<u64> = net.impairment.affected(0).map(|(number, _)| number).collect();
    assert_eq!(affected, (0..100).map(|number| 10 * number + 3).collect::<Vec<_>>());
}

#[test]
fn the_plan_determines_random_loss() {
    let mut net =
        Net::new(ImpairmentPlan { drop: FramePattern::Random { probability: 0.1, seed: 5 }, ..plan() });
    let impairment = net.impairment.clone();
    let survives = |number: &u32| !impairment.impairments(0, u64::from(*number)).drop;
    net.send(3000);
    let numbers = net.numbers();
    assert_eq!(numbers, (0..3000).filter(survives).collect::<Vec<_>>());
    assert_eq!(net.done().dropped, 3000 - numbers.len() as u64);
    // The expected number is 300, with a standard deviation of 16; the seed is fixed.
    assert!((220..380).contains(&net.done().dropped), "{}", net.done().dropped);
}

#[test]
fn chosen_frames_are_doubled_in_place() {
    let mut net = Net::new(ImpairmentPlan { duplicate: FramePattern::At(vec![6, 2]), ..plan() });
    net.send(8);
    assert_eq!(net.numbers(), [0, 1, 2, 2, 3, 4, 5, 6, 6, 7]);
    let done = net.done();
    assert_eq!(done, ImpairmentCounters { arrived: 8, duplicated: 2, passed: 10, ..Default::default() });
}

#[test]
fn doubled_frames_fill_more_than_a_batch() {
    let mut net = Net::new(ImpairmentPlan {
        duplicate: FramePattern::Every { n: 1, offset: 0 },
        delay: Delay::Fixed(1),
        ..plan()
    });
    net.send(1500);
    net.clock.advance(1);
    assert_eq!(net.numbers(), (0..1500).flat_map(|number| [number, number]).collect::<Vec<_>>());
    assert_eq!(net.done().passed, 3000);
}

#[test]
fn reordered_frames_let_the_planned_number_pass() {
    let reorder = Reorder { frames: FramePattern::At(vec![1, 5]), by: 3, patience_ns: None };
    let mut net = Net::new(ImpairmentPlan { reorder, ..plan() });
    net.send(4);
    assert_eq!(net.numbers(), [0, 2, 3]);
    assert_eq!(net.done().held, 1);
    net.send(3);
    assert_eq!(net.numbers(), [4, 1, 6]);
    net.send(3);
    assert_eq!(net.numbers(), [7, 8, 5, 9]);
    let done = net.done();
    assert_eq!(done, ImpairmentCounters { arrived: 10, reordered: 2, passed: 10, ..Default::default() });
}

#[test]
fn dropped_frames_do_not_count_as_those_that_pass() {
    let reorder = Reorder { frames: FramePattern::At(vec![0]), by: 2, patience_ns: None };
    let mut net = Net::new(ImpairmentPlan { reorder, drop: FramePattern::At(vec![1, 3]), ..plan() });
    net.send(6);
    assert_eq!(net.numbers(), [2, 4, 0, 5]);
    assert_eq!(net.done().dropped, 2);
}

#[test]
fn patience_ends_the_wait_for_frames_that_never_come() {
    let reorder = Reorder { frames: FramePattern::At(vec![1]), by: 3, patience_ns: Some(50) };
    let mut net = Net::new(ImpairmentPlan { reorder, ..plan() });
    net.send(3);
    net.clock.advance(49);
    assert_eq!(net.numbers(), [0, 2]);
    net.clock.advance(1);
    assert_eq!(net.numbers(), [1]);
    assert_eq!(net.done().held, 0);
}

#[test]
fn one_bit_is_flipped_where_it_may_be() {
    let corrupt =
        Corruption { frames: FramePattern::Every { n: 3, offset: 1 }, within: Within::End(4..16), seed: 9 };
    let mut net = Net::new(ImpairmentPlan { corrupt, ..plan() });
    net.send(900);
    let frames = net.receive();
    assert_eq!(frames.len(), 900);
    let mut bytes_hit = [false; 60];
    for (number, got) in (0u32..).zip(&frames) {
        let sent = frame(number, 60);
        let flipped: Vec<usize> =
            (0..480).filter(|bit| (sent[bit / 8] ^ got[bit / 8]) >> (bit % 8) & 1 == 1).collect();
        assert_eq!(flipped.len(), usize::from(number % 3 == 1), "frame {number}");
        flipped.iter().for_each(|bit| bytes_hit[bit / 8] = true);
    }
    // There are 300 flips, so each of the 12 bytes is hit.
    assert_eq!(bytes_hit, std::array::from_fn(|byte| (44..56).contains(&byte)));
    assert_eq!(net.done().corrupted, 300);
}

#[test]
fn a_frame_without_a_byte_in_the_range_is_not_damaged() {
    let corrupt = Corruption {
        frames: FramePattern::Every { n: 1, offset: 0 },
        within: Within::Start(60..64),
        seed: 0,
    };
    let mut net = Net::new(ImpairmentPlan { corrupt, ..plan() });
    net.send(5);
    assert_eq!(net.receive(), (0..5).map(|number| frame(number, 60)).collect::<Vec<_>>());
    assert_eq!(net.done().corrupted, 0);
}

#[test]
fn long_frames_are_damaged_and_doubled_whole() {
    let corrupt = Corruption {
        frames: FramePattern::Every { n: 1, offset: 0 },
        within: Within::Start(2500..2501),
        seed: 1,
    };
    let plan = ImpairmentPlan { corrupt, duplicate: FramePattern::At(vec![0]), ..plan() };
    let mut net = Net::with(plan, "vale0:b@buf-size=512");
    let sent = frame(0, 9000);
    assert!(net.a.tx().send(&sent).unwrap());
    net.a.tx().sync().unwrap();
    let frames = net.receive();
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[0], frames[1]);
    let differing: Vec<usize> = (0..9000).filter(|&byte| frames[0][byte] != sent[byte]).collect();
    assert_eq!(differing, [2500]);
    assert_eq!((frames[0][2500] ^ sent[2500]).count_ones(), 1);
    net.done();
}

#[test]
fn a_fixed_delay_is_kept_to_the_nanosecond() {
    let mut net = Net::new(ImpairmentPlan { delay: Delay::Fixed(1000), ..plan() });
    net.send(2);
    net.clock.advance(999);
    assert!(net.numbers().is_empty());
    net.send(1);
    assert_eq!(net.done().held, 3);
    net.clock.advance(1);
    assert_eq!(net.numbers(), [0, 1]);
    net.clock.advance(998);
    assert!(net.numbers().is_empty());
    net.clock.advance(1);
    assert_eq!(net.net.step(), 0, "nothing new comes, and yet");
    assert_eq!(net.numbers(), [2]);
    let done = net.done();
    assert_eq!(done, ImpairmentCounters { arrived: 3, delayed: 3, passed: 3, ..Default::default() });
}

/// Sends a frame every `gap_ns` and returns the delay of each, checked every nanosecond.
fn delays(plan: ImpairmentPlan, frames: u32, gap_ns: u64, most_ns: u64) -> Vec<u64> {
    let mut net = Net::new(plan);
    let mut delays = Vec::new();
    for now in 0..u64::from(frames - 1) * gap_ns + most_ns + 1 {
        if now % gap_ns == 0 && net.sent < frames {
            net.send(1);
        }
        delays.extend(net.numbers().iter().map(|&number| now - u64::from(number) * gap_ns));
        net.clock.advance(1);
    }
    assert_eq!(net.done().held, 0);
    delays
}

#[test]
fn delays_of_a_cycle_come_in_turn() {
    let delay = Delay::Cycle(vec![0, 7, 3]);
    assert_eq!(delays(ImpairmentPlan { delay, ..plan() }, 9, 10, 7), [0, 7, 3, 0, 7, 3, 0, 7, 3]);
}

#[test]
fn a_frame_never_overtakes_one_that_is_delayed_longer() {
    let delay = Delay::Cycle(vec![25, 0, 2]);
    // The second and the third frame wait for the first; the fourth has a delay of its own.
    assert_eq!(delays(ImpairmentPlan { delay, ..plan() }, 4, 10, 25), [25, 15, 5, 25]);
}

#[test]
fn random_delays_are_evenly_spread_and_those_of_the_plan() {
    let delay = Delay::Uniform { low: 10, high: 19, seed: 4 };
    let plan = ImpairmentPlan { delay, ..plan() };
    let planned = Impairment::new(plan.clone(), Clock::manual()).unwrap();
    let got = delays(plan, 2000, 20, 19);
    let expected: Vec<u64> = (0..2000).map(|number| planned.impairments(0, number).delay_ns).collect();
    assert_eq!(got, expected);
    let mut counts = [0; 10];
    got.iter().for_each(|&delay| counts[delay as usize - 10] += 1);
    // The expected number of each is 200, with a standard deviation of 13.4; the seed is fixed.
    assert!(counts.iter().all(|count| (140..260).contains(count)), "{counts:?}");
}

#[test]
fn frames_that_cannot_be_held_are_dropped_and_counted() {
    let mut net = Net::new(ImpairmentPlan { delay: Delay::Fixed(1), hold_frames: 5, ..plan() });
    net.send(8);
    net.clock.advance(1);
    assert_eq!(net.numbers(), [0, 1, 2, 3, 4]);
    assert_eq!(net.done().overflowed, 3);
    assert_eq!(net.net.port_counters(SWITCH, "b").unwrap().dropped_for(DropCause::HoldFull), 3);
    net.send(2);
    net.clock.advance(1);
    assert_eq!(net.numbers(), [8, 9]);
}

#[test]
fn held_frames_meet_a_full_ring_like_any_other() {
    let mut net = Net::with(ImpairmentPlan { delay: Delay::Fixed(1), ..plan() }, "vale0:b@slots=8");
    net.send(20);
    net.clock.advance(1);
    assert_eq!(net.numbers(), (0..7).collect::<Vec<_>>());
    assert_eq!(net.done().passed, 20);
    assert_eq!(net.net.port_counters(SWITCH, "b").unwrap().dropped_for(DropCause::NoSpace), 13);
}

#[test]
fn frames_held_when_the_port_ends_are_accounted_for() {
    let reorder = Reorder { frames: FramePattern::At(vec![1]), by: 100, patience_ns: None };
    let plan =
        ImpairmentPlan { reorder, delay: Delay::Fixed(1), duplicate: FramePattern::At(vec![2]), ..plan() };
    let mut net = Net::new(plan);
    net.send(5);
    assert_eq!(net.done().held, 6);
    let Net { net, a, b, impairment, .. } = net;
    drop(b);
    assert_eq!(
        impairment.counters(),
        ImpairmentCounters {
            arrived: 5,
            duplicated: 1,
            reordered: 1,
            delayed: 5,
            abandoned: 6,
            ..Default::default()
        }
    );
    let totals = net.switch_counters(SWITCH).unwrap();
    assert_eq!(totals.dropped_for(DropCause::PortGone), 6);
    assert_eq!(totals.received_frames + totals.replicated_frames, totals.dropped_frames());
    drop(a);
}

#[test]
fn each_queue_has_its_own_plan() {
    let clock = Clock::manual();
    let net = Embedded::new();
    let options = OpenOptions { queues: Some(2), ..OpenOptions::default() };
    let mut a = net.open_with("vale0:a", &options).unwrap();
    let plan = ImpairmentPlan { drop: FramePattern::At(vec![0]), ..plan() };
    let (mut b, impairment) = net.open_impaired("vale0:b", &options, plan, clock).unwrap();
    // The switch learns the address, so that frames stay on the queue that they come by.
    let mut hello = frame(0, 60);
    hello[..12].rotate_left(6);
    assert!(b.tx().send(&hello).unwrap());
    b.tx().sync().unwrap();
    for queue in a.queues() {
        for number in 0..3 {
            assert!(queue.tx().send(&frame(number, 60)).unwrap());
        }
        queue.tx().sync().unwrap();
    }
    for queue in b.queues() {
        queue.rx().sync().unwrap();
        assert_eq!(queue.rx().available(), 2);
    }
    assert_eq!(
        impairment.counters(),
        ImpairmentCounters { arrived: 6, dropped: 2, passed: 4, ..Default::default() }
    );
}

#[test]
fn frames_sent_by_an_impaired_port_are_not_impaired() {
    let mut net = Net::new(ImpairmentPlan { drop: FramePattern::Every { n: 1, offset: 0 }, ..plan() });
    assert!(net.b.tx().send(&frame(7, 60)).unwrap());
    net.b.tx().sync().unwrap();
    net.a.rx().sync().unwrap();
    assert_eq!(net.a.rx().available(), 1);
    assert_eq!(net.done().arrived, 0);
}

#[test]
fn impossible_plans_and_ports_are_refused() {
    let net = Embedded::new();
    let open = |name: &str, plan| {
        net.open_impaired(name, &OpenOptions::default(), plan, Clock::manual()).unwrap_err()
    };
    let error = open("vale0:a", ImpairmentPlan { drop: FramePattern::Every { n: 0, offset: 0 }, ..plan() });
    assert!(matches!(error, OpenError::Impairment(_)), "{error}");
    let error = open("x{1", plan());
    assert!(error.to_string().starts_with("x{1 cannot be opened impaired: "), "{error}");
    assert_eq!(net.switch_counters(SWITCH), None);
}

/// Reads a capture file of 2000 frames through an impaired port, and returns the counters of the impairments.
fn read_impaired(options: &OpenOptions, hold_frames: u32) -> ImpairmentCounters {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in.pcap");
    let mut writer = CaptureWriter::create(&path, CaptureFormat::Pcap, 65535).unwrap();
    for number in 0..2000 {
        writer.write_frame(0, &frame(number, 60), 60).unwrap();
    }
    writer.flush().unwrap();
    let plan = ImpairmentPlan {
        duplicate: FramePattern::Every { n: 2, offset: 0 },
        reorder: Reorder { frames: FramePattern::Every { n: 50, offset: 0 }, by: 60, patience_ns: None },
        delay: Delay::Cycle(vec![1, 3, 20]),
        hold_frames,
        ..plan()
    };
    let (net, clock) = (Embedded::new(), Clock::manual());
    let name = format!("pcap:{}", path.display());
    let (mut port, impairment) = net.open_impaired(&name, options, plan, clock.clone()).unwrap();
    let mut got = Vec::new();
    let mut bytes = Vec::new();
    // The last reordered frame stays held: too few frames follow to let it pass. At least one frame moves in 20 rounds,
    // and sometimes many are due at once.
    for round in 0..20 * 2000 {
        clock.advance(if round % 8 == 7 { 20 } else { 1 });
        port.rx().sync().unwrap();
        while port.rx().receive(&mut bytes).is_some() {
            got.push(number_of(&bytes));
            bytes.clear();
        }
    }
    got.sort_unstable();
    let copies = |number: u32| 1 + usize::from(number.is_multiple_of(2));
    let expected = (0..2000u32).filter(|&number| number != 1950);
    assert_eq!(
        got,
        expected.flat_map(|number| std::iter::repeat_n(number, copies(number))).collect::<Vec<_>>()
    );
    impairment.counters()
}

#[test]
fn frames_of_a_device_are_held_back_rather_than_lost() {
    let done = ImpairmentCounters {
        arrived: 2000,
        duplicated: 1000,
        reordered: 40,
        delayed: 2000,
        held: 2,
        passed: 2998,
        ..Default::default()
    };
    // Both runs have little room: first for held frames, then in the program's ring.
    assert_eq!(read_impaired(&OpenOptions::default(), 10), done);
    let small = OpenOptions { slots: Some(32), buffer_bytes: Some(65536), ..OpenOptions::default() };
    assert_eq!(read_impaired(&small, 16384), done);
}

#[test]
fn a_wait_ends_when_a_held_frame_is_due() {
    let net = Embedded::new();
    let mut a = net.open("vale0:a").unwrap();
    let plan = ImpairmentPlan { delay: Delay::Fixed(2 * MILLISECOND), ..plan() };
    let clock = Clock::system();
    let (mut b, _) = net.open_impaired("vale0:b", &OpenOptions::default(), plan, clock.clone()).unwrap();
    let sent_at = clock.now_ns();
    assert!(a.tx().send(&frame(0, 60)).unwrap());
    a.tx().sync().unwrap();
    assert!(b.wait(Interest::Rx, PATIENCE).unwrap());
    let waited = clock.now_ns() - sent_at;
    assert!(waited >= 2 * MILLISECOND);
    assert!(Some(Duration::from_nanos(waited)) < PATIENCE, "it was patience that ended the wait");
    // No frame is held any more: the wait lasts until its timeout.
    b.rx().release(1);
    assert!(!b.wait(Interest::Rx, Some(Duration::from_millis(3))).unwrap());
}

#[test]
fn a_sleeping_worker_wakes_when_a_held_frame_is_due() {
    let net = Embedded::on_thread(&EmbeddedThread::default()).unwrap();
    let mut a = net.open("vale0:a").unwrap();
    let plan = ImpairmentPlan {
        delay: Delay::Cycle(vec![5 * MILLISECOND, 0]),
        reorder: Reorder { frames: FramePattern::At(vec![3]), by: 5, patience_ns: Some(3 * MILLISECOND) },
        ..plan()
    };
    let clock = Clock::system();
    let (mut b, impairment) =
        net.open_impaired("vale0:b", &OpenOptions::default(), plan, clock.clone()).unwrap();
    let sent_at = clock.now_ns();
    for number in 0..4 {
        assert!(a.tx().send(&frame(number, 60)).unwrap());
    }
    a.tx().sync().unwrap();
    let mut got = Vec::new();
    while got.len() < 4 {
        assert!(b.wait(Interest::Rx, PATIENCE).unwrap());
        while b.rx().available() > 0 {
            got.push(b.rx().frame(0).len());
            b.rx().release(1);
        }
        assert!(clock.now_ns() - sent_at >= 5 * MILLISECOND);
    }
    assert_eq!(impairment.counters().passed, 4);
}

#[test]
fn a_worker_follows_a_manual_clock() {
    let net = Embedded::on_thread(&EmbeddedThread::default()).unwrap();
    let mut a = net.open("vale0:a").unwrap();
    let clock = Clock::manual();
    let plan = ImpairmentPlan { delay: Delay::Fixed(1_000_000_000), ..plan() };
    let (mut b, impairment) =
        net.open_impaired("vale0:b", &OpenOptions::default(), plan, clock.clone()).unwrap();
    for number in 0..100 {
        assert!(a.tx().send(&frame(number, 60)).unwrap());
    }
    a.tx().sync().unwrap();
    while a.tx().pending() > 0 {
        assert!(a.wait(Interest::Tx, PATIENCE).unwrap());
        a.tx().sync().unwrap();
    }
    assert_eq!(impairment.counters().held, 100);
    clock.advance(1_000_000_000);
    let mut got = 0;
    while got < 100 {
        assert!(b.wait(Interest::Rx, PATIENCE).unwrap());
        got += b.rx().available();
        let available = b.rx().available();
        b.rx().release(available);
    }
    assert_eq!(impairment.counters().held, 0);
}

/// Model of an impaired port, as simple as possible.
struct Model {
    planned: Impairment,
    plan: ImpairmentPlan,
    ring: usize,
    line: VecDeque<(u32, usize, u64)>,
    /// Reordered frames: frame, copies, due time, number of survivors and time at which it rejoins the line.
    aside: Vec<(u32, usize, u64, u64, u64)>,
    arrived: u64,
    survivors: u64,
    delivered: Vec<u32>,
    counters: ImpairmentCounters,
}

impl Model {
    fn held(&self) -> usize {
        self.line.len() + self.aside.len()
    }

    fn let_go(&mut self, now: u64) {
        let (patient, impatient) =
            std::mem::take(&mut self.aside).into_iter().partition(|entry| entry.4 > now);
        self.aside = patient;
        let impatient: Vec<(u32, usize, u64, u64, u64)> = impatient;
        self.line.extend(impatient.iter().map(|entry| (entry.0, entry.1, entry.2)));
        while self.line.front().is_some_and(|entry| entry.2 <= now) {
            let (frame, copies, _) = self.line.pop_front().unwrap();
            self.deliver(frame, copies);
        }
    }

    fn deliver(&mut self, frame: u32, copies: usize) {
        self.counters.passed += copies as u64;
        for _ in 0..copies {
            if self.delivered.len() < self.ring {
                self.delivered.push(frame);
            }
        }
    }

    fn arrive(&mut self, frame: u32, now: u64) {
        self.let_go(now);
        let Impairments { drop, duplicate, reorder, corrupt, delay_ns } =
            self.planned.impairments(0, self.arrived);
        self.arrived += 1;
        self.counters.arrived += 1;
        if drop {
            self.counters.dropped += 1;
            return;
        }
        self.survivors += 1;
        let copies = 1 + usize::from(duplicate);
        let at_once = !reorder && !corrupt && delay_ns == 0 && self.line.is_empty();
        if !at_once && self.held() == self.plan.hold_frames as usize {
            self.counters.overflowed += 1;
        } else {
            self.counters.duplicated += u64::from(duplicate);
            self.counters.corrupted += u64::from(corrupt);
            if at_once {
                self.deliver(frame, copies);
            } else {
                self.counters.delayed += u64::from(delay_ns > 0);
                self.counters.reordered += u64::from(reorder);
                let due = now + delay_ns;
                if reorder {
                    let patience = self.plan.reorder.patience_ns.unwrap_or(u64::MAX);
                    let until = self.survivors + u64::from(self.plan.reorder.by);
                    self.aside.push((frame, copies, due, until, now.saturating_add(patience)));
                } else {
                    self.line.push_back((frame, copies, due));
                }
            }
        }
        let survivors = self.survivors;
        let (later, ready) =
            std::mem::take(&mut self.aside).into_iter().partition(|entry| entry.3 > survivors);
        self.aside = later;
        let ready: Vec<(u32, usize, u64, u64, u64)> = ready;
        self.line.extend(ready.iter().map(|entry| (entry.0, entry.1, entry.2)));
    }
}

fn patterns() -> impl Strategy<Value = FramePattern> {
    prop_oneof![
        2 => Just(FramePattern::Never),
        1 => (1u64..6, any::<u64>()).prop_map(|(n, offset)| FramePattern::Every { n, offset: offset % n }),
        2 => (0.0..1.0, any::<u64>()).prop_map(|(probability, seed)| FramePattern::Random { probability, seed }),
        1 => prop::collection::vec(0u64..400, 0..20).prop_map(FramePattern::At),
    ]
}

fn delays_to_try() -> impl Strategy<Value = Delay> {
    prop_oneof![
        2 => Just(Delay::None),
        1 => (0u64..50).prop_map(Delay::Fixed),
        1 => prop::collection::vec(0u64..50, 1..5).prop_map(Delay::Cycle),
        1 => (0u64..30, 0u64..30, any::<u64>())
            .prop_map(|(low, more, seed)| Delay::Uniform { low, high: low + more, seed }),
    ]
}

fn plans() -> impl Strategy<Value = ImpairmentPlan> {
    let reorder = (patterns(), 1u32..8, prop::option::of(1u64..60));
    let corrupt = (patterns(), any::<u64>());
    let hold = prop_oneof![1u32..40, Just(4000)];
    (patterns(), patterns(), reorder, corrupt, delays_to_try(), hold).prop_map(
        |(drop, duplicate, (frames, by, patience_ns), (damaged, seed), delay, hold_frames)| ImpairmentPlan {
            drop,
            duplicate,
            reorder: Reorder { frames, by, patience_ns },
            corrupt: Corruption { frames: damaged, within: Within::End(0..16), seed },
            delay,
            hold_frames,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn any_plan_matches_the_model(
        plan in plans(),
        slots in prop_oneof![Just(4096usize), 4usize..60],
        steps in prop::collection::vec((0u32..60, 0u64..20), 1..12),
    ) {
        let mut net = Net::with(plan.clone(), &format!("vale0:b@slots={slots}"));
        let mut model = Model {
            planned: net.impairment.clone(),
            plan,
            ring: slots - 1,
            line: VecDeque::new(),
            aside: Vec::new(),
            arrived: 0,
            survivors: 0,
            delivered: Vec::new(),
            counters: ImpairmentCounters::default(),
        };
        let mut now = 0;
        for (frames, pause) in steps {
            for number in net.sent..net.sent + frames {
                model.arrive(number, now);
            }
            net.send(frames);
            now += pause;
            net.clock.advance(pause);
            model.let_go(now);
            // The datapath delivers before the program makes room again.
            net.net.step();
            let got = net.receive();
            let numbers: Vec<u32> = got.iter().map(|frame| number_of(frame)).collect();
            prop_assert_eq!(&numbers, &std::mem::take(&mut model.delivered));
            for got in &got {
                let number = number_of(got);
                let sent = frame(number, 60);
                let flipped: u32 = sent.iter().zip(got).map(|(sent, got)| (sent ^ got).count_ones()).sum();
                prop_assert_eq!(flipped, u32::from(model.planned.impairments(0, u64::from(number)).corrupt));
            }
            let held = model.line.iter().map(|entry| entry.1).chain(model.aside.iter().map(|entry| entry.1));
            model.counters.held = held.sum::<usize>() as u64;
            prop_assert_eq!(net.done(), model.counters);
        }
    }
}
