//! Ports that deliver frames without a ring and accept them without a copy.
#![allow(unsafe_code)]

use ringroad_datapath::fabric::QueueParts;
use ringroad_port::batch::Batch;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, PortQueue};

/// Port that delivers a list of bursts repeatedly.
struct Replay {
    bursts: Vec<Vec<Vec<u8>>>,
    next: usize,
    rounds: u64,
}

/// Makes a port that delivers `rounds` bursts of these frames in turn.
pub(crate) fn replay(frames: &[Vec<u8>], burst: u32, rounds: u64) -> QueueParts {
    let mut frames_in_turn = frames.iter().cycle().cloned();
    let mut bursts: Vec<Vec<_>> = Vec::new();
    while !frames.is_empty() {
        bursts.push(frames_in_turn.by_ref().take(burst as usize).collect());
        // The next burst would begin with the first frame, as the first burst does.
        if (bursts.len() * burst as usize).is_multiple_of(frames.len()) {
            break;
        }
    }
    QueueParts::new(Box::new(Replay { bursts, next: 0, rounds }))
}

impl PortQueue for Replay {
    fn receive(&mut self, batch: &mut Batch) {
        if self.rounds == 0 {
            return;
        }
        self.rounds -= 1;
        let Some(burst) = self.bursts.get(self.next) else { return };
        self.next = if self.next + 1 == self.bursts.len() { 0 } else { self.next + 1 };
        for frame in burst {
            // SAFETY: the frames never change and live as long as the queue.
            batch.push(unsafe { Fragment::from_private(frame, 0) }, true);
        }
    }

    fn release(&mut self, _slots: usize) {}

    fn deliver(&mut self, _batch: &mut Batch, frames: &[u16]) -> Delivery {
        Delivery { frames: frames.len() as u32, ..Delivery::default() }
    }
}
