//! A patch: two connected ports, to join two switches. Each port receives the frames delivered to the other.
//!
//! Each direction has a ring in a private region. One port puts frames into the ring as into any program's rx ring, and
//! the other port reads the ring as a program would.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringroad_port::batch::Batch;
use ringroad_port::counters::QueueCounters;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, PortQueue, Sleep};
use ringroad_port::roles;
use ringroad_ring::datapath_end::RxPutEnd;
use ringroad_ring::eventfd;
use ringroad_ring::geometry::{DEFAULT_BUFFER_BYTES, DEFAULT_SLOTS, RegionGeometry};
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use ringroad_ring::layout::{Direction, FIRST_BUFFER, MAX_FRAGMENTS};
use ringroad_ring::program_end::ProgramEnd;
use ringroad_ring::region::{HugePages, Region, RegionError};
use ringroad_ring::ring_view::{RingInit, lay_out_ring};

use crate::shm::{QueueEvents, ShmQueue};

/// One of the two ports.
#[derive(Debug)]
pub struct PatchQueue {
    out: ShmQueue,
    input: ProgramEnd,
    /// Number of borrowed slots of `input`.
    borrowed: u32,
    wake: OwnedFd,
}

impl PatchQueue {
    /// Creates both ports.
    ///
    /// # Errors
    /// [`RegionError`] if memory or descriptors run out.
    pub fn pair() -> Result<[Self; 2], RegionError> {
        let geometry = RegionGeometry::for_ports(1, 1, DEFAULT_SLOTS, DEFAULT_BUFFER_BYTES, 0)?;
        let region = Arc::new(Region::create(geometry, HugePages::Never)?);
        let mut buffers = FIRST_BUFFER..geometry.buffers;
        let mut views = Vec::new();
        let events = QueueEvents::of_queues(2)?;
        for ring in 0..2 {
            let plan = RingInit::new(Direction::Rx, 0, DEFAULT_SLOTS);
            views.push(lay_out_ring(&region, ring, &plan, &mut buffers)?);
        }
        let queue = |out: usize, input: usize| {
            let counters = Arc::<QueueCounters>::default();
            let put = RxPutEnd::new(views[out].clone());
            let out = ShmQueue::of_ends(&region, None, Some(put), events[out].try_clone()?, counters);
            let wake = events[input].try_clone()?.notify;
            let input = ProgramEnd::take_up(views[input].clone(), Direction::Rx);
            Ok::<_, RegionError>(Self { out, input, borrowed: 0, wake })
        };
        Ok([queue(0, 1)?, queue(1, 0)?])
    }

    /// Number of waiting slots that are not borrowed.
    fn waiting(&mut self) -> u32 {
        // The result is ignored: the other port is trusted code and breaks no rule.
        let _ = self.input.sync();
        self.input.window().available() - self.borrowed
    }
}

impl PortQueue for PatchQueue {
    fn receive(&mut self, batch: &mut Batch) {
        let end = self.borrowed + self.waiting();
        while self.borrowed < end && batch.has_room(MAX_FRAGMENTS) {
            let mut first = true;
            loop {
                let window = self.input.window();
                let flags = window.slot(self.borrowed).flags & MORE_FRAGMENTS;
                // SAFETY: the region stays mapped while this queue lives, and the slot is not given back before
                // `release`.
                let fragment = unsafe { Fragment::new(&window.bytes(self.borrowed), flags) };
                batch.push(fragment, first);
                first = false;
                self.borrowed += 1;
                // Frames are published whole, so the last slot ends a frame.
                if flags == 0 || self.borrowed == end {
                    break;
                }
            }
        }
    }

    fn release(&mut self, fragments: usize) {
        self.input.window_mut().advance(fragments as u32);
        self.borrowed -= fragments as u32;
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        self.out.deliver(batch, frames)
    }

    fn flush(&mut self) -> u32 {
        let _ = self.input.sync();
        self.out.flush()
    }

    roles! { sleeper: Sleep }
}

impl Sleep for PatchQueue {
    fn has_waiting(&mut self) -> bool {
        self.waiting() > 0
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        if sleeping {
            self.input.announce_sleep();
        } else {
            self.input.awake();
        }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wake.as_fd())
    }

    fn drain_wake(&mut self) {
        eventfd::drain(&self.wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments(bytes: &[u8]) -> Batch {
        let mut batch = Batch::new();
        batch.reset(1);
        // SAFETY: the bytes outlive the batch's use in each test, and nothing writes to them.
        batch.push(unsafe { Fragment::from_private(bytes, 0) }, true);
        batch
    }

    #[test]
    fn one_end_gives_the_frames_that_the_other_takes() {
        let [mut one, mut other] = PatchQueue::pair().unwrap();
        let frame = vec![7; 3000];
        let mut batch = fragments(&frame);
        other.prepare_sleep(true);
        assert!(!other.has_waiting());
        assert_eq!(one.deliver(&mut batch, &[0]).frames, 1);
        assert_eq!(one.flush(), 1, "the other sleeps");
        other.prepare_sleep(false);
        assert!(other.has_waiting());
        let mut received = Batch::new();
        received.reset(256);
        other.receive(&mut received);
        let bytes: usize = received.frame(0).iter().map(Fragment::len).sum();
        assert_eq!((received.frame(0).len(), bytes), (2, 3000));
        other.release(2);
        other.flush();
        assert!(!other.has_waiting() && !one.has_waiting());
    }

    #[test]
    fn a_full_patch_drops_frames_and_reports_it() {
        let [mut one, mut other] = PatchQueue::pair().unwrap();
        let frame = [0; 60];
        let mut batch = fragments(&frame);
        let mut delivered = 0;
        loop {
            let delivery = one.deliver(&mut batch, &[0]);
            one.flush();
            if delivery.frames == 0 {
                break;
            }
            delivered += 1;
        }
        assert_eq!(delivered, DEFAULT_SLOTS - 1);
        let mut received = Batch::new();
        received.reset(256);
        other.receive(&mut received);
        other.release(received.fragment_count());
        other.flush();
        assert_eq!(one.deliver(&mut batch, &[0]).frames, 1);
    }
}
