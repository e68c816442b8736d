//! One queue of a memif port. It has a ring in each direction while a connected peer has them.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Backpressure, Delivery, Diagnose, FailedDirection, PortQueue, Sleep};
use ringroad_port::roles;
use ringroad_ring::eventfd;

use super::fault::Fault;
use super::receive_ring::ReceiveRing;
use super::transmit_ring::{Refused, TransmitRing};
use crate::peer::handover::Held;

/// Length of an Ethernet frame of MTU 1500 with a VLAN tag, bytes.
const USUAL_FRAME_BYTES: usize = 1518;

/// The rings of a queue. A peer may have fewer rings than this port.
#[derive(Debug, Default)]
pub(super) struct Rings {
    pub(super) receive: Option<ReceiveRing>,
    pub(super) transmit: Option<TransmitRing>,
}

impl Rings {
    fn are_lost(&self) -> bool {
        let regions = self.receive.as_ref().map(|receive| &receive.ring.regions);
        let regions = regions.or_else(|| self.transmit.as_ref().map(|transmit| &transmit.ring.regions));
        regions.is_some_and(|regions| regions.are_lost())
    }

    fn publish(&mut self) -> u32 {
        if let Some(receive) = &mut self.receive {
            receive.publish();
        }
        self.transmit.as_mut().map_or(0, TransmitRing::publish)
    }
}

/// The queues' reports of a peer's faults to the connection's thread.
#[derive(Debug)]
pub(super) struct Line {
    fault: Mutex<Option<String>>,
    /// Eventfd that wakes the thread.
    pub(super) bell: OwnedFd,
}

impl Line {
    pub(super) fn new() -> rustix::io::Result<Self> {
        Ok(Self { fault: Mutex::new(None), bell: eventfd::create()? })
    }

    /// Reported fault, which stays until the next connection begins without one.
    pub(super) fn fault(&self) -> MutexGuard<'_, Option<String>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, fault: String) {
        self.fault().get_or_insert(fault);
        eventfd::ring_own(&self.bell);
    }
}

/// One queue of a memif port.
#[derive(Debug)]
pub(super) struct MemifQueue {
    number: u16,
    held: Held<Rings>,
    line: Arc<Line>,
    /// Whether a ring was stopped. The thread has the report, and takes the rings back.
    is_stopped: bool,
    is_ending: bool,
    is_asleep: bool,
    violations: u64,
    longest_bytes: usize,
}

impl MemifQueue {
    pub(super) fn new(number: u16, held: Held<Rings>, line: Arc<Line>) -> Self {
        Self {
            number,
            held,
            line,
            is_stopped: false,
            is_ending: false,
            is_asleep: false,
            violations: 0,
            longest_bytes: USUAL_FRAME_BYTES,
        }
    }

    #[cold]
    fn stop(&mut self, direction: &str, fault: Fault) {
        // Lost memory reads as zeros, which look like any violation.
        let lost = self.held.get().is_some_and(|rings| rings.are_lost());
        let fault = if lost { Fault::Lost } else { fault };
        self.is_stopped = true;
        self.violations += 1;
        self.line.report(format!("the {direction} ring {} was stopped: {fault}", self.number));
    }

    /// Gives the rings back on the thread's request, once all earlier frames are served and no slot is borrowed.
    #[cold]
    fn give_back(&mut self, has_room: bool) {
        if !self.is_ending {
            self.is_ending = true;
            let receive = self.held.get().and_then(|rings| rings.receive.as_mut());
            if let Err(fault) = receive.map_or(Ok(()), ReceiveRing::end)
                && !self.is_stopped
            {
                self.stop("rx", fault);
            }
        }
        let serves_on = has_room && !self.is_stopped;
        if let Some(receive) = self.held.get().and_then(|rings| rings.receive.as_ref())
            && (!receive.is_returned() || serves_on && receive.is_waiting())
        {
            return;
        }
        if let Some(rings) = self.held.get() {
            rings.publish();
        }
        self.held.exchange();
        (self.is_stopped, self.is_ending) = (false, false);
        self.announce();
    }

    fn announce(&mut self) {
        let is_asleep = self.is_asleep;
        if let Some(receive) = self.held.get().and_then(|rings| rings.receive.as_ref()) {
            receive.ring.want_interrupt(is_asleep);
        }
    }
}

impl PortQueue for MemifQueue {
    fn receive(&mut self, batch: &mut Batch) {
        if self.held.is_recalled() {
            self.give_back(batch.has_room(1));
        }
        if self.is_stopped {
            return;
        }
        let Some(rings) = self.held.get() else { return };
        if rings.are_lost() {
            return self.stop("rx", Fault::Lost);
        }
        let Some(receive) = &mut rings.receive else { return };
        let received = receive.receive(batch);
        self.longest_bytes = self.longest_bytes.max(receive.longest_bytes);
        if let Err(fault) = received {
            self.stop("rx", fault);
        }
    }

    fn release(&mut self, slots: usize) {
        if let Some(receive) = self.held.get().and_then(|rings| rings.receive.as_mut()) {
            receive.release(slots);
        }
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        if self.is_stopped {
            return Delivery::dropped(DropCause::RingStopped, frames.len());
        }
        let Some(transmit) = self.held.get().and_then(|rings| rings.transmit.as_mut()) else {
            return Delivery::dropped(DropCause::NotBound, frames.len());
        };
        let mut delivery = Delivery::default();
        let mut stopped = None;
        for &frame in frames {
            if stopped.is_some() {
                delivery.dropped.add(DropCause::RingStopped, 1);
                continue;
            }
            delivery.count(match transmit.put(batch.frame(usize::from(frame))) {
                Ok(bytes) => Ok(bytes as u64),
                Err(Refused::Dropped(cause)) => Err(cause),
                Err(Refused::Fault(fault)) => {
                    stopped = Some(fault);
                    Err(DropCause::RingStopped)
                }
            });
        }
        if let Some(fault) = stopped {
            self.stop("tx", fault);
        }
        delivery
    }

    fn flush(&mut self) -> u32 {
        self.held.get().map_or(0, Rings::publish)
    }

    fn longest_frame_bytes(&mut self) -> usize {
        self.longest_bytes
    }

    roles! { sleeper: Sleep, backpressure: Backpressure, diagnosis: Diagnose }
}

impl Sleep for MemifQueue {
    fn has_waiting(&mut self) -> bool {
        if self.held.is_recalled() {
            return true;
        }
        if self.is_stopped {
            return false;
        }
        self.held.get().and_then(|rings| rings.receive.as_ref()).is_some_and(ReceiveRing::is_waiting)
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        self.is_asleep = sleeping;
        self.announce();
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.held.wake().descriptor())
    }

    fn drain_wake(&mut self) {
        self.held.wake().drain();
        if self.held.is_recalled() {
            self.give_back(true);
        }
    }
}

/// A peer interrupts for frames, not for room.
impl Backpressure for MemifQueue {
    fn room(&mut self, frame_bytes: usize) -> usize {
        // A peer that is absent or lacks this ring does not hold a source back.
        let Some(transmit) = self.held.get().and_then(|rings| rings.transmit.as_mut()) else {
            return BATCH_FRAMES;
        };
        if self.is_stopped {
            return BATCH_FRAMES;
        }
        match transmit.room(frame_bytes) {
            Ok(room) => room,
            Err(fault) => {
                self.stop("tx", fault);
                BATCH_FRAMES
            }
        }
    }
}

impl Diagnose for MemifQueue {
    fn failure(&self, _way: FailedDirection) -> Option<String> {
        self.line.fault().clone()
    }

    fn violations(&mut self) -> u64 {
        std::mem::take(&mut self.violations)
    }
}
