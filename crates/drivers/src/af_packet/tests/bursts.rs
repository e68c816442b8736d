//! Tests with more frames than a ring holds, while some of them are borrowed.

use std::time::{Duration, Instant};

use rustix::process::setpriority_process;

use super::*;

/// Number of frames of full length that exceeds either kind of ring at its usual size.
const TOO_MANY: u32 = 4000;

/// Sender of frames. It checks at the near end that all have arrived, so none is lost before the rings.
struct Source {
    far: RawSocket,
    near: RawSocket,
    frame_bytes: usize,
    next: u32,
}

impl Source {
    fn new(frame_bytes: usize) -> Self {
        let (far, near) = (RawSocket::open("rrp1", LOCAL), RawSocket::open("rrp0", LOCAL));
        Self { far, near, frame_bytes, next: 0 }
    }

    fn send(&mut self, mut count: u32) {
        while count != 0 {
            let some = count.min(256);
            (0..some).for_each(|ahead| self.far.send(&test_frame(1, self.next + ahead, self.frame_bytes)));
            (0..some).for_each(|_| drop(self.near.receive()));
            (self.next, count) = (self.next + some, count - some);
        }
    }
}

fn numbers(frames: &[Vec<u8>]) -> Vec<u32> {
    frames.iter().map(|frame| number_of(frame)).collect()
}

/// Fills `batch` with `count` frames that stay borrowed.
fn borrow(queue: &mut dyn PortQueue, batch: &mut Batch, count: usize) {
    batch.reset(count);
    while batch.frames() < count {
        assert_eq!(queue.diagnosis().unwrap().missed_frames(), 0);
        queue.receive(batch);
    }
}

#[test]
fn blocks_take_many_times_more_frames_than_slots_of_the_same_memory() {
    in_own_namespace(|| {
        let config = pair_for_blocks("rrp0", "rrp1", 1500);
        assert_eq!(config.slots, 2048);
        // A high priority keeps other load from stretching the burst.
        setpriority_process(None, -20).unwrap();
        let slots = open(&PacketConfig { immediate: true, ..config.clone() }).unwrap();
        assert_eq!(
            slots.capabilities.mode,
            "AF_PACKET, TPACKET_V2 (immediate), 1 queue(s), 4096 KiB of rings"
        );
        for _ in 0..100 {
            let mut device = open(&config).unwrap();
            assert_eq!(device.capabilities.mode, "AF_PACKET, TPACKET_V3, 1 queue(s), 4096 KiB of rings");
            let queue = &mut *device.queues[0];
            let begin = Instant::now();
            Source::new(60).send(8000);
            // After their timeout blocks are handed over before they are full. If the machine was too busy, the frames
            // were no burst.
            if begin.elapsed() < Duration::from_millis(200) {
                assert_eq!(numbers(&receive(queue, 8000)), (0..8000).collect::<Vec<_>>());
                assert_eq!((receive_now(queue).len(), queue.diagnosis().unwrap().missed_frames()), (0, 0));
                return;
            }
        }
        panic!("the machine is too busy for a burst");
    });
}

#[test]
fn what_is_released_is_used_again_lap_after_lap() {
    over_each_ring(|pair| {
        let mut queue = open_one(&pair("rrp0", "rrp1", 1500));
        let mut source = Source::new(1514);
        while source.next < 5 * TOO_MANY {
            // The ring's number of frames is no multiple of 900.
            let first = source.next;
            source.send(900);
            let frames = receive(&mut *queue, 900);
            assert_eq!(numbers(&frames), (first..source.next).collect::<Vec<_>>());
        }
        assert_eq!(queue.diagnosis().unwrap().missed_frames(), 0);
    });
}

#[test]
fn an_overflow_is_counted_and_every_frame_accounted_for() {
    over_each_ring(|pair| {
        let mut queue = open_one(&pair("rrp0", "rrp1", 1500));
        let mut source = Source::new(1514);
        for _ in 0..2 {
            let first = source.next;
            source.send(TOO_MANY);
            let received = numbers(&receive_now(&mut *queue));
            // The first frames were received, while there was room.
            assert_eq!(received, (first..first + received.len() as u32).collect::<Vec<_>>());
            let missed = queue.diagnosis().unwrap().missed_frames();
            assert!(missed != 0, "they cannot all have fitted");
            assert_eq!(received.len() as u64 + missed, u64::from(TOO_MANY));
        }
        // The ring continues normally.
        let first = source.next;
        source.send(100);
        assert_eq!(numbers(&receive(&mut *queue, 100)), (first..first + 100).collect::<Vec<_>>());
        assert_eq!(queue.diagnosis().unwrap().missed_frames(), 0);
    });
}

#[test]
fn nothing_is_written_over_while_it_is_borrowed() {
    over_each_ring(|pair| {
        let mut queue = open_one(&pair("rrp0", "rrp1", 1500));
        let mut source = Source::new(1514);
        let (mut one, mut other) = (Batch::new(), Batch::new());
        source.send(10);
        borrow(&mut *queue, &mut one, 4);
        // The batch has the rest of the first frames and the beginning of the new ones.
        source.send(100);
        borrow(&mut *queue, &mut other, 50);
        source.send(TOO_MANY);
        for (batch, first) in [(&one, 0), (&other, 4)] {
            for frame in 0..batch.frames() {
                let mut bytes = vec![0; batch.frame(frame)[0].len()];
                batch.frame(frame)[0].bytes().read(&mut bytes);
                assert!(bytes == test_frame(1, first + frame as u32, 1514), "frame {frame} of {first}");
            }
        }
        queue.release(4);
        queue.release(50);
        let rest = numbers(&receive_now(&mut *queue));
        assert_eq!(rest, (54..54 + rest.len() as u32).collect::<Vec<_>>());
        assert_eq!(
            54 + rest.len() as u64 + queue.diagnosis().unwrap().missed_frames(),
            u64::from(source.next)
        );
    });
}

#[test]
fn times_of_frames_go_forward() {
    over_each_ring(|pair| {
        let config = PacketConfig { timestamps: Some(TimestampSource::Kernel), ..pair("rrp0", "rrp1", 1500) };
        let mut queue = open_one(&config);
        Source::new(60).send(200);
        let mut batch = Batch::new();
        borrow(&mut *queue, &mut batch, 200);
        let times: Vec<u64> = (0..200).map(|frame| batch.meta(frame).timestamp_ns).collect();
        assert!(times.is_sorted() && times[0] < times[199], "{times:?}");
    });
}

#[test]
fn what_an_interface_received_before_it_vanished_still_comes() {
    in_own_namespace(|| {
        let mut queue = open_one(&pair_for_blocks("rrp0", "rrp1", 1500));
        Source::new(60).send(5);
        ip("link del rrp1");
        queue.sleeper().unwrap().drain_wake();
        // The queue has a wake descriptor while frames are still to come.
        let mut frames = receive_now(&mut *queue);
        while queue.sleeper().unwrap().wake_descriptor().is_some() {
            frames.extend(receive_now(&mut *queue));
        }
        frames.extend(receive_now(&mut *queue));
        assert_eq!(numbers(&frames), [0, 1, 2, 3, 4]);
    });
}
