//! What an impaired queue keeps to in its dealings with the queue behind it.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringroad_ring::geometry::RegionGeometry;
use ringroad_ring::region::{HugePages, Region};

use super::{Delay, Impairment, ImpairmentPlan, Pattern, Reorder};
use crate::batch::{BATCH_FRAMES, Batch, Custody};
use crate::clock::Clock;
use crate::frame::Fragment;
use crate::port_queue::{Delivery, PortQueue};

/// First byte and timestamp of a frame, and whether the queue could have kept its buffers.
type Taken = (u8, u64, bool);

/// A queue that takes everything and notes it.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Vec<Taken>>>>);

impl PortQueue for Notes {
    fn receive(&mut self, _batch: &mut Batch) {}

    fn release(&mut self, _fragments: usize) {}

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let taken = frames.iter().map(|&frame| {
            let frame = usize::from(frame);
            let mut first = [0];
            batch.head(frame).unwrap().bytes().read(&mut first);
            (first[0], batch.timestamp_ns(frame), batch.gives() && batch.is_sole(frame))
        });
        self.0.lock().unwrap().push(taken.collect());
        Delivery { frames: frames.len() as u32, bytes: 0, ..Delivery::default() }
    }

    fn flush(&mut self) -> u32 {
        0
    }

    fn prepare_sleep(&mut self, _sleeping: bool) {}

    fn has_waiting(&mut self) -> bool {
        false
    }
}

impl Notes {
    fn take(&self) -> Vec<Vec<Taken>> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// The frames 0, 1, 2, ..., one for each byte, which came at 100, 101, 102, ... ns, with their buffers given where that is asked for.
fn batch(bytes: &[u8], give: bool) -> (Batch, Vec<u16>) {
    let mut batch = Batch::new();
    let geometry = RegionGeometry::for_ports(1, 1, 4, 64, 0).unwrap();
    if give {
        batch.offer(Region::create(geometry, HugePages::Never).unwrap().id(), Custody::Give);
    }
    for byte in bytes {
        // SAFETY: the bytes outlive the batch in every test here, and nobody writes them.
        let fragment = unsafe { Fragment::from_private(std::slice::from_ref(byte), 0) };
        batch.push_buffer(fragment, 7, true);
        batch.push_timestamp(100 + u64::from(*byte));
    }
    (batch, (0..bytes.len() as u16).collect())
}

fn impaired(plan: ImpairmentPlan) -> (impl PortQueue, Notes, Clock) {
    let (notes, clock) = (Notes::default(), Clock::manual());
    let mut impairment = Impairment::new(plan, clock.clone()).unwrap();
    (impairment.wrap(Box::new(notes.clone()), Arc::default()), notes, clock)
}

#[test]
fn held_frames_keep_the_time_at_which_they_came() {
    let (mut queue, notes, clock) =
        impaired(ImpairmentPlan { delay: Delay::Cycle(vec![0, 5]), ..ImpairmentPlan::default() });
    let bytes = [0, 1, 2];
    let (mut batch, frames) = batch(&bytes, false);
    let delivery = queue.deliver(&mut batch, &frames);
    assert_eq!(delivery, Delivery { taken_over: 3, ..Delivery::default() });
    assert_eq!(notes.take(), [[(0, 100, false)]]);
    clock.advance(5);
    queue.receive(&mut Batch::new());
    assert_eq!(notes.take(), [[(1, 101, false), (2, 102, false)]]);
}

#[test]
fn buffers_can_be_kept_of_frames_that_pass_untouched_and_once() {
    let (mut queue, notes, clock) = impaired(ImpairmentPlan {
        duplicate: Pattern::At(vec![1]),
        delay: Delay::Cycle(vec![0, 0, 0, 5]),
        ..ImpairmentPlan::default()
    });
    let bytes = [0, 1, 2, 3];
    let (mut batch, frames) = batch(&bytes, true);
    queue.deliver(&mut batch, &frames);
    assert_eq!(notes.take(), [[(0, 100, true), (1, 101, false), (1, 101, false), (2, 102, true)]]);
    clock.advance(5);
    queue.receive(&mut Batch::new());
    assert_eq!(notes.take(), [[(3, 103, false)]]);
}

#[test]
fn no_delivery_is_larger_than_a_batch() {
    let plan = ImpairmentPlan { duplicate: Pattern::Every { n: 1, offset: 0 }, ..ImpairmentPlan::default() };
    for delay in [Delay::None, Delay::Fixed(1)] {
        let (mut queue, notes, clock) = impaired(ImpairmentPlan { delay, ..plan.clone() });
        let bytes: [u8; 256] = std::array::from_fn(|byte| byte as u8);
        let (mut batch, frames) = batch(&bytes, false);
        queue.deliver(&mut batch, &frames);
        clock.advance(1);
        queue.receive(&mut Batch::new());
        let lens: Vec<usize> = notes.take().iter().map(Vec::len).collect();
        assert_eq!(lens, [BATCH_FRAMES, BATCH_FRAMES]);
    }
}

#[test]
fn it_says_when_it_has_something_to_do() {
    let (mut queue, _, clock) = impaired(ImpairmentPlan {
        reorder: Reorder { frames: Pattern::At(vec![1, 2]), by: 9, patience_ns: Some(50) },
        delay: Delay::Cycle(vec![70, 0, 0]),
        ..ImpairmentPlan::default()
    });
    assert_eq!(queue.due_in(), None);
    let bytes = [0, 1];
    let (mut batch, frames) = batch(&bytes, false);
    queue.deliver(&mut batch, &frames);
    clock.advance(1);
    assert_eq!(queue.due_in(), Some(Duration::from_nanos(49)));
    clock.advance(49);
    queue.receive(&mut Batch::new());
    assert_eq!(queue.due_in(), Some(Duration::from_nanos(20)), "the other is behind the first now");
    clock.advance(20);
    queue.receive(&mut Batch::new());
    assert_eq!(queue.due_in(), None);

    // One that waits for others only.
    let (mut queue, _, _) = impaired(ImpairmentPlan {
        reorder: Reorder { frames: Pattern::At(vec![0]), by: 9, patience_ns: None },
        ..ImpairmentPlan::default()
    });
    queue.deliver(&mut batch, &frames[..1]);
    assert_eq!(queue.due_in(), None);
}
