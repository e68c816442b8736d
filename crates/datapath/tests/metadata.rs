//! A frame's metadata goes with the frame, also to ports that another worker serves.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::sync::{Arc, Mutex};

use ringroad_datapath::engine::Engine;
use ringroad_datapath::engine_queue::EngineQueue;
use ringroad_datapath::exchange::{Doorbell, exchange};
use ringroad_datapath::forwarding::{Forwarding, QueueRef, SwitchId, SwitchView, Topology};
use ringroad_datapath::scheduler::OwnerId;
use ringroad_port::batch::{Batch, FrameMeta};
use ringroad_port::frame::Fragment;
use ringroad_port::offload::Unfinished;
use ringroad_port::port_index::PortIndex;
use ringroad_port::port_queue::{Delivery, PortQueue};
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use ringroad_switch::{LearningSwitch, MacTable, MacTableConfig};

/// Far side of a port: metadata of the frames that it sends, and of those that it got.
#[derive(Clone, Default)]
struct Far {
    sends: Arc<Mutex<Vec<FrameMeta>>>,
    got: Arc<Mutex<Vec<FrameMeta>>>,
}

/// A queue that floods its frames.
struct Near(Far);

impl PortQueue for Near {
    fn receive(&mut self, batch: &mut Batch) {
        for meta in self.0.sends.lock().unwrap().drain(..) {
            for (first, flags) in [(true, 1), (false, 0)] {
                // SAFETY: the fragment's bytes are a constant.
                let fragment = unsafe { Fragment::from_private(&[0xff; 60], flags * MORE_FRAGMENTS) };
                batch.push(fragment, first);
            }
            batch.describe(meta);
        }
    }

    fn release(&mut self, _slots: usize) {}

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        self.0.got.lock().unwrap().extend(frames.iter().map(|&frame| batch.meta(usize::from(frame))));
        Delivery { frames: frames.len() as u32, ..Delivery::default() }
    }

    fn takes_unfinished(&mut self) -> bool {
        true
    }
}

#[test]
fn timestamps_and_open_tasks_reach_ports_of_another_worker() {
    const SWITCH: SwitchId = SwitchId(0);
    let (outbox, inbox) = exchange(Arc::new(Doorbell::new().unwrap()));
    let mut engines = [Engine::new(0), Engine::new(1)];
    engines[0].connect(vec![None, Some(outbox)], Vec::new());
    engines[1].connect(vec![None, None], vec![inbox]);

    let fars: [Far; 3] = Default::default();
    let switch = Arc::new(LearningSwitch::new(MacTable::new(MacTableConfig::new(0)).unwrap()));
    let mut topology = Topology::default();
    // The first two ports belong to the first worker, the third to the second.
    for (number, far) in (0u8..).zip(&fars) {
        let (index, worker, queue_index) = (PortIndex(number), number / 2, u32::from(number));
        let forwarding = Forwarding::Switch { switch: SWITCH, port: index, queue: 0 };
        let owner = OwnerId { user: 1, program: 0 };
        let queue = EngineQueue::new(Box::new(Near(far.clone())), forwarding, Arc::default(), owner);
        let frame_cost = queue.properties().frame_cost;
        engines[usize::from(worker)].insert(queue_index, queue);
        topology.set(index, vec![QueueRef { worker: worker.into(), frame_cost, index: queue_index }]);
        switch.ports.insert(index);
    }
    let topology = Arc::new(topology);
    for engine in &mut engines {
        let (decide, topology) = (switch.forwarding_plane(), Arc::clone(&topology));
        engine.set_switch(SWITCH, Some(SwitchView { decide, topology, counters: Arc::default() }));
    }

    // The checksum at offset 16 behind byte 34 is left to be filled in.
    let open = Unfinished::from_header(
        &[[1, 0].as_slice(), &[54, 0, 34, 16].map(u16::to_ne_bytes).concat()].concat(),
    );
    let sent = vec![
        FrameMeta { timestamp_ns: 1_700_000_000_000_000_001, unfinished: Unfinished::default() },
        FrameMeta::default(),
        FrameMeta { timestamp_ns: 1_700_000_000_000_000_003, unfinished: open },
        FrameMeta { timestamp_ns: 0, unfinished: open },
    ];
    fars[0].sends.lock().unwrap().extend(&sent);
    for engine in &mut engines {
        engine.step();
    }
    for far in &fars[1..] {
        assert_eq!(*far.got.lock().unwrap(), sent);
    }
    assert!(fars[0].got.lock().unwrap().is_empty());
}
