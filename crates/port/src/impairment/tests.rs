//! Tests of the contract between an impaired queue and its inner queue.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringroad_ring::geometry::RegionGeometry;
use ringroad_ring::region::{HugePages, Region};

use super::{Delay, FramePattern, Impairment, ImpairmentPlan, Reorder};
use crate::batch::{BATCH_FRAMES, Batch, Custody, FrameMeta};
use crate::clock::Clock;
use crate::frame::Fragment;
use crate::offload::Unfinished;
use crate::port_queue::{
    Backpressure, Delivery, Diagnose, FailedDirection, Lend, PortQueue, ProgramQueue, QueueProperties, Sleep,
};

/// First byte and timestamp of a frame, and whether the queue could have kept its buffers.
type Taken = (u8, u64, bool);

/// Queue that takes all frames and records them.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Vec<Taken>>>>);

impl PortQueue for Notes {
    fn receive(&mut self, _batch: &mut Batch) {}

    fn release(&mut self, _fragments: usize) {}

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let taken = frames.iter().map(|&frame| {
            let frame = usize::from(frame);
            let mut first = [0];
            batch.first_fragment(frame).unwrap().bytes().read(&mut first);
            (first[0], batch.meta(frame).timestamp_ns, batch.gives() && batch.is_sole(frame))
        });
        self.0.lock().unwrap().push(taken.collect());
        Delivery { frames: frames.len() as u32, bytes: 0, ..Delivery::default() }
    }
}

impl Notes {
    fn take(&self) -> Vec<Vec<Taken>> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Frames 0, 1, 2, ..., one for each byte, with arrival times of 100, 101, 102, ... ns. `give`: their buffers are
/// given.
fn batch(bytes: &[u8], give: bool) -> (Batch, Vec<u16>) {
    let mut batch = Batch::new();
    let geometry = RegionGeometry::for_ports(1, 1, 4, 64, 0).unwrap();
    if give {
        batch.offer(Region::create(geometry, HugePages::Never).unwrap().id(), Custody::Give);
    }
    for byte in bytes {
        // SAFETY: the bytes outlive the batch in every test here, and nothing writes to them.
        let fragment = unsafe { Fragment::from_private(std::slice::from_ref(byte), 0) };
        batch.push(fragment.in_buffer(7), true);
        batch.describe(FrameMeta { timestamp_ns: 100 + u64::from(*byte), ..FrameMeta::default() });
    }
    (batch, (0..bytes.len() as u16).collect())
}

fn impaired(plan: ImpairmentPlan) -> (impl PortQueue, Notes, Clock) {
    let (notes, clock) = (Notes::default(), Clock::manual());
    let mut impairment = Impairment::new(plan, clock.clone()).unwrap();
    (impairment.wrap(Box::new(notes.clone()), Arc::default()), notes, clock)
}

#[test]
fn held_frames_keep_their_arrival_time() {
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
fn buffers_can_be_kept_only_of_unchanged_frames_that_pass_once() {
    let (mut queue, notes, clock) = impaired(ImpairmentPlan {
        duplicate: FramePattern::At(vec![1]),
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
    let plan =
        ImpairmentPlan { duplicate: FramePattern::Every { n: 1, offset: 0 }, ..ImpairmentPlan::default() };
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
fn an_impaired_queue_reports_when_its_next_work_is_due() {
    let (mut queue, _, clock) = impaired(ImpairmentPlan {
        reorder: Reorder { frames: FramePattern::At(vec![1, 2]), by: 9, patience_ns: Some(50) },
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

    // The frame waits only for later frames.
    let (mut queue, _, _) = impaired(ImpairmentPlan {
        reorder: Reorder { frames: FramePattern::At(vec![0]), by: 9, patience_ns: None },
        ..ImpairmentPlan::default()
    });
    queue.deliver(&mut batch, &frames[..1]);
    assert_eq!(queue.due_in(), None);
}

/// Queue that has every role, and records its calls.
#[derive(Clone)]
struct Player {
    asked: Arc<Mutex<Vec<String>>>,
    wake: Arc<OwnedFd>,
}

impl Player {
    fn note(&self, what: impl Into<String>) {
        self.asked.lock().unwrap().push(what.into());
    }
}

impl PortQueue for Player {
    fn properties(&mut self) -> QueueProperties {
        QueueProperties { frame_cost: 7, take_cost: 5, takes_frames: false, sleeps_alone: true, region: None }
    }

    fn receive(&mut self, _batch: &mut Batch) {
        self.note("receive");
    }

    fn release(&mut self, slots: usize) {
        self.note(format!("release {slots}"));
    }

    fn deliver(&mut self, _batch: &mut Batch, frames: &[u16]) -> Delivery {
        Delivery { frames: frames.len() as u32, ..Delivery::default() }
    }

    fn flush(&mut self) -> u32 {
        11
    }

    fn longest_frame_bytes(&mut self) -> usize {
        12
    }

    fn takes_unfinished(&mut self) -> bool {
        true
    }

    fn takes_open_checksums(&mut self) -> bool {
        true
    }

    fn due_in(&mut self) -> Option<Duration> {
        Some(Duration::from_nanos(13))
    }

    fn sleeper(&mut self) -> Option<&mut dyn Sleep> {
        Some(self)
    }

    fn backpressure(&mut self) -> Option<&mut dyn Backpressure> {
        Some(self)
    }

    fn lender(&mut self) -> Option<&mut dyn Lend> {
        Some(self)
    }

    fn diagnosis(&mut self) -> Option<&mut dyn Diagnose> {
        Some(self)
    }

    fn program(&mut self) -> Option<&mut dyn ProgramQueue> {
        Some(self)
    }
}

impl Sleep for Player {
    fn has_waiting(&mut self) -> bool {
        true
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        self.note(format!("prepare_sleep {sleeping}"));
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wake.as_fd())
    }

    fn drain_wake(&mut self) {
        self.note("drain_wake");
    }
}

impl Backpressure for Player {
    fn room(&mut self, frame_bytes: usize) -> usize {
        frame_bytes
    }

    fn await_room(&mut self) -> bool {
        true
    }
}

impl Lend for Player {
    fn reclaim(&mut self, _batch: &Batch) {
        self.note("reclaim");
    }

    fn lent(&self) -> u64 {
        14
    }

    fn returned(&mut self) -> u64 {
        15
    }
}

impl Diagnose for Player {
    fn failure(&self, way: FailedDirection) -> Option<String> {
        Some(format!("failure {way:?}"))
    }

    fn fault(&self) -> Option<String> {
        Some("fault".into())
    }

    fn is_gone(&self) -> bool {
        true
    }

    fn missed_frames(&mut self) -> u64 {
        16
    }

    fn violations(&mut self) -> u64 {
        17
    }
}

impl ProgramQueue for Player {
    fn close(&mut self) {
        self.note("close");
    }

    fn end(&mut self) {
        self.note("end");
    }
}

#[test]
fn an_impaired_queue_has_every_role_of_its_inner_queue() {
    let wake = Arc::new(ringroad_ring::eventfd::create().unwrap());
    let player = Player { asked: Arc::default(), wake };
    let mut impairment = Impairment::new(ImpairmentPlan::default(), Clock::manual()).unwrap();
    let queue = &mut impairment.wrap(Box::new(player.clone()), Arc::default());

    let asked = |expected: &[&str]| assert_eq!(std::mem::take(&mut *player.asked.lock().unwrap()), expected);
    let expected = QueueProperties {
        frame_cost: 7,
        take_cost: 5,
        takes_frames: false,
        sleeps_alone: false,
        region: None,
    };
    assert_eq!(queue.properties(), expected, "the datapath queries an impaired queue for its due time");
    queue.receive(&mut Batch::new());
    queue.release(9);
    asked(&["receive", "release 9"]);
    assert_eq!((queue.flush(), queue.longest_frame_bytes()), (11, 12));
    let takes = queue.takes_unfinished() || queue.takes_open_checksums();
    assert!(!takes, "held frames may outlive the answer of the queue behind");
    assert_eq!(queue.due_in(), Some(Duration::from_nanos(13)));

    let sleeper = queue.sleeper().unwrap();
    assert!(sleeper.has_waiting());
    assert_eq!(sleeper.wake_descriptor().unwrap().as_raw_fd(), player.wake.as_raw_fd());
    sleeper.prepare_sleep(true);
    sleeper.drain_wake();
    asked(&["prepare_sleep true", "drain_wake"]);

    let backpressure = queue.backpressure().unwrap();
    assert_eq!((backpressure.room(60), backpressure.await_room()), (60, true));
    let lender = queue.lender().unwrap();
    lender.reclaim(&Batch::new());
    assert_eq!((lender.lent(), lender.returned()), (14, 15));
    asked(&["reclaim"]);

    let diagnosis = queue.diagnosis().unwrap();
    assert_eq!(diagnosis.failure(FailedDirection::In).as_deref(), Some("failure In"));
    assert_eq!((diagnosis.fault().as_deref(), diagnosis.is_gone()), (Some("fault"), true));
    assert_eq!((diagnosis.missed_frames(), diagnosis.violations()), (16, 17));

    let program = queue.program().unwrap();
    program.close();
    program.end();
    asked(&["close", "end"]);
}

#[test]
fn an_impaired_queue_before_one_without_roles_has_only_its_own() {
    let (mut queue, _, _) = impaired(ImpairmentPlan::default());
    assert!(queue.sleeper().is_none() && queue.lender().is_none());
    assert!(queue.diagnosis().is_none() && queue.program().is_none());
    let behind = queue.backpressure().unwrap();
    assert_eq!((behind.room(60), behind.await_room()), (BATCH_FRAMES, false));
}

#[test]
fn a_held_frame_keeps_its_metadata() {
    let (mut queue, notes, clock) =
        impaired(ImpairmentPlan { delay: Delay::Fixed(5), ..ImpairmentPlan::default() });
    let (mut batch, frames) = batch(&[0, 1], false);
    batch.truncate(1);
    queue.deliver(&mut batch, &frames[..1]);
    clock.advance(5);
    queue.receive(&mut Batch::new());
    assert_eq!(notes.take(), [[(0, 100, false)]]);
    assert_eq!(batch.meta(0), FrameMeta { timestamp_ns: 100, unfinished: Unfinished::default() });
    assert_eq!(batch.meta(1), FrameMeta::default(), "of a frame that was taken back nothing is known");
}
