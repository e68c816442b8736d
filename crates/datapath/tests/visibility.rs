//! Frames are visible at their receiver before the sender's slots come back.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::sync::{Arc, Mutex};

use ringroad_datapath::engine::Engine;
use ringroad_datapath::engine_queue::EngineQueue;
use ringroad_datapath::exchange::{Doorbell, Handoff, HandoffTarget, exchange};
use ringroad_datapath::fabric::{Fabric, QueueParts, Share};
use ringroad_datapath::forwarding::{Forwarding, SwitchId};
use ringroad_datapath::scheduler::OwnerId;
use ringroad_port::batch::{Batch, FrameMeta};
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, PortQueue};
use ringroad_switch::MacTableConfig;

const FRAME: [u8; 60] = [0xff; 60];

/// A queue that sends one frame, and tells when its slot is back and when frames for it are visible.
struct Near {
    has_frame: bool,
    is_dirty: bool,
    tell: Box<dyn FnMut(&'static str) + Send>,
}

impl Near {
    fn new(has_frame: bool, tell: impl FnMut(&'static str) + Send + 'static) -> Box<Self> {
        Box::new(Self { has_frame, is_dirty: false, tell: Box::new(tell) })
    }
}

impl PortQueue for Near {
    fn receive(&mut self, batch: &mut Batch) {
        if std::mem::take(&mut self.has_frame) {
            // SAFETY: the fragment's bytes are a constant.
            batch.push(unsafe { Fragment::from_private(&FRAME, 0) }, true);
        }
    }

    fn release(&mut self, _slots: usize) {
        (self.tell)("slots are back");
    }

    fn deliver(&mut self, _batch: &mut Batch, frames: &[u16]) -> Delivery {
        self.is_dirty = true;
        Delivery { frames: frames.len() as u32, bytes: FRAME.len() as u64, ..Delivery::default() }
    }

    fn flush(&mut self) -> u32 {
        if std::mem::take(&mut self.is_dirty) {
            (self.tell)("frames are visible");
        }
        0
    }
}

#[test]
fn a_sender_whose_slots_are_back_finds_its_frames_at_a_port_of_the_switch_or_the_end_of_a_wire() {
    let (mut fabric, engine) = Fabric::stepped(MacTableConfig::new(0));
    let told = Arc::<Mutex<Vec<&str>>>::default();
    let parts = |has_frame| {
        let told = Arc::clone(&told);
        vec![QueueParts::new(Near::new(has_frame, move |what| told.lock().unwrap().push(what)))]
    };
    fabric.attach("vale0", "to", Share::Own, parts(false)).unwrap();
    fabric.attach("vale0", "from", Share::Own, parts(true)).unwrap();
    engine.lock().unwrap().step();
    assert_eq!(*told.lock().unwrap(), ["frames are visible", "slots are back"]);
    told.lock().unwrap().clear();
    fabric.wire(Share::Own, parts(true), parts(false)).unwrap();
    engine.lock().unwrap().step();
    assert_eq!(*told.lock().unwrap(), ["frames are visible", "slots are back"]);
}

#[test]
fn a_worker_hands_entries_back_when_their_frames_are_visible() {
    let (outbox, inbox) = exchange(Arc::new(Doorbell::new().unwrap()));
    let outbox = Arc::new(Mutex::new(outbox));
    let mut engine = Engine::new(0);
    engine.connect(vec![None, None], vec![inbox]);
    let handed_back = Arc::<Mutex<Vec<u64>>>::default();
    let tell = {
        let (outbox, handed_back) = (Arc::clone(&outbox), Arc::clone(&handed_back));
        move |_| handed_back.lock().unwrap().push(outbox.lock().unwrap().consumed())
    };
    let owner = OwnerId { user: 1, program: 0 };
    engine.insert(0, EngineQueue::new(Near::new(false, tell), Forwarding::Hold, Arc::default(), owner));
    {
        let mut outbox = outbox.lock().unwrap();
        // SAFETY: the fragment's bytes are a constant.
        let fragment = unsafe { Fragment::from_private(&FRAME, 0) };
        let (target, meta) = (HandoffTarget::Queue(0), FrameMeta::default());
        outbox.push(Handoff { fragment, target, switch: SwitchId(0), meta });
        outbox.flush();
    }
    engine.step();
    assert_eq!(*handed_back.lock().unwrap(), [0], "at the time when the frames became visible");
    assert_eq!(outbox.lock().unwrap().consumed(), 1);
}
