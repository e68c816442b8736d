//! A learning switch alone: ports that give frames without a ring behind them and take them without a copy.
#![allow(unsafe_code)]

use ringroad_datapath::fabric::QueueParts;
use ringroad_port::batch::Batch;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, PortQueue};

use crate::paths::Turn;
use crate::site::{Site, frame};
use crate::{Failure, counted};

/// Ports that frames go to.
const RECEIVERS: u8 = 4;
/// An address that no port has.
const NOBODY: u8 = 99;

/// A port that gives the same frames, `rounds` times.
struct Replay {
    frames: Vec<Vec<u8>>,
    rounds: u64,
}

impl PortQueue for Replay {
    fn receive(&mut self, batch: &mut Batch) {
        if self.rounds == 0 {
            return;
        }
        self.rounds -= 1;
        for frame in &self.frames {
            // SAFETY: the frames never change and live as long as the queue.
            batch.push(unsafe { Fragment::from_private(frame, 0) }, true);
        }
    }

    fn release(&mut self, _slots: usize) {}

    fn deliver(&mut self, _batch: &mut Batch, frames: &[u16]) -> Delivery {
        Delivery { frames: frames.len() as u32, ..Delivery::default() }
    }
}

/// A switch whose first port sends bursts to the stations `to` in turn.
fn set_up(burst: u32, to: &[u8]) -> Result<Turn, Failure> {
    let mut site = Site::new();
    let replay = |frames, rounds| QueueParts::new(Box::new(Replay { frames, rounds }));
    for station in 1..=RECEIVERS {
        // Its one frame lets the switch know where it is.
        site.attach(&format!("to{station}"), replay(vec![frame(station, 0)], 1))?;
    }
    site.step();
    let frames: Vec<Vec<u8>> = to.iter().cycle().take(burst as usize).map(|&to| frame(0, to)).collect();
    site.attach("from", replay(frames, u64::MAX))?;
    Ok(Box::new(move |moved| {
        counted(|| site.step());
        *moved += u64::from(burst);
        Ok(())
    }))
}

pub(crate) fn to_one(burst: u32) -> Result<Turn, Failure> {
    set_up(burst, &[1])
}

pub(crate) fn to_four(burst: u32) -> Result<Turn, Failure> {
    set_up(burst, &[1, 2, 3, 4])
}

pub(crate) fn flood(burst: u32) -> Result<Turn, Failure> {
    set_up(burst, &[NOBODY])
}
