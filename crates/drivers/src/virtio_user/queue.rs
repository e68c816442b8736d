//! One queue of a virtio-user port.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Backpressure, Delivery, Diagnose, FailedDirection, PortQueue, Sleep};
use ringroad_port::roles;
use ringroad_ring::eventfd;

use super::driver_ring::UsedRingFault;
use super::receive_ring::ReceiveRing;
use super::send_ring::SendRing;
use crate::peer::handover::Held;
use crate::peer::watch::PeerWatch;

/// Length of an Ethernet frame of MTU 1500 with a VLAN tag, bytes.
const USUAL_FRAME_BYTES: usize = 1518;

/// A queue's rings while a back end is connected. The connection's thread makes them, and the worker uses them.
#[derive(Debug)]
pub(super) struct QueueRings {
    pub(super) receive: ReceiveRing,
    pub(super) send: SendRing,
    /// Eventfds that wake the back end, one for each ring.
    pub(super) receive_kick: OwnedFd,
    pub(super) send_kick: OwnedFd,
    /// Whether the back end accepts unfinished frames: partial checksums, and long frames for segmentation.
    pub(super) takes_unfinished: bool,
    /// Rule that the back end broke. The rings are then not used any more, until the thread takes them back.
    pub(super) fault: Option<UsedRingFault>,
    /// Bell that tells the thread of a fault.
    pub(super) fault_bell: Arc<OwnedFd>,
}

impl QueueRings {
    #[cold]
    fn fail(&mut self, fault: UsedRingFault) {
        if self.fault.is_none() {
            self.fault = Some(fault);
            eventfd::ring_own(&*self.fault_bell);
        }
    }

    /// Publishes released buffers and delivered frames to the back end. Returns the number of wake-ups.
    fn publish(&mut self) -> u32 {
        let mut kicks = 0;
        if self.send.publish() {
            eventfd::ring(&self.send_kick);
            kicks += 1;
        }
        if self.receive.publish() {
            eventfd::ring(&self.receive_kick);
            kicks += 1;
        }
        kicks
    }
}

/// One queue of a virtio-user port.
#[derive(Debug)]
pub(super) struct VirtioUserQueue {
    held: Held<QueueRings>,
    watch: Arc<PeerWatch>,
    path: Arc<str>,
    /// Length of the longest expected frame, bytes: that of a usual frame, until a longer one comes.
    longest_bytes: usize,
    /// The rule that the last back end broke, until the next one connects.
    last_fault: Option<UsedRingFault>,
    is_room_awaited: bool,
    is_room_announced: bool,
}

impl VirtioUserQueue {
    pub(super) fn new(held: Held<QueueRings>, watch: Arc<PeerWatch>, path: Arc<str>) -> Self {
        Self {
            held,
            watch,
            path,
            longest_bytes: USUAL_FRAME_BYTES,
            last_fault: None,
            is_room_awaited: false,
            is_room_announced: false,
        }
    }

    /// The rings, if they can be used.
    #[inline]
    fn rings(&mut self) -> Option<&mut QueueRings> {
        self.held.get().filter(|rings| rings.fault.is_none())
    }

    /// The rings, if frames can be delivered to them.
    #[inline]
    fn open_rings(&mut self) -> Option<&mut QueueRings> {
        if self.held.is_recalled() { None } else { self.rings() }
    }
}

impl PortQueue for VirtioUserQueue {
    fn receive(&mut self, batch: &mut Batch) {
        if self.held.is_recalled() {
            if self.held.get().is_some_and(|rings| !rings.receive.is_quiescent()) {
                return;
            }
            let fault = self.held.get().and_then(|rings| rings.fault);
            self.held.exchange();
            self.last_fault = if self.held.get().is_some() { None } else { fault.or(self.last_fault) };
        }
        let longest_bytes = &mut self.longest_bytes;
        let Some(rings) = self.held.get().filter(|rings| rings.fault.is_none()) else { return };
        if let Err(fault) = rings.receive.receive(batch, longest_bytes) {
            rings.fail(fault);
        }
    }

    fn release(&mut self, buffers: usize) {
        if let Some(rings) = self.held.get() {
            rings.receive.release(buffers);
        }
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let Some(rings) = self.open_rings() else {
            return Delivery::dropped(DropCause::NotBound, frames.len());
        };
        let mut delivery = Delivery::default();
        let mut failure = rings.send.make_free(frames.len()).err();
        for (number, &frame) in frames.iter().enumerate() {
            if failure.is_some() {
                delivery.dropped.add(DropCause::RingStopped, (frames.len() - number) as u32);
                break;
            }
            rings.send.prefetch();
            let fragments = batch.frame(usize::from(frame));
            let bytes = batch.frame_bytes(usize::from(frame));
            let unfinished = batch.meta(usize::from(frame)).unfinished;
            let mut put = rings.send.put(fragments, bytes, unfinished);
            if put == Err(DropCause::NoSpace) {
                // Earlier frames of several buffers may have used up the free ones.
                failure = rings.send.make_free(usize::MAX).err();
                put = rings.send.put(fragments, bytes, unfinished);
            }
            delivery.count(put.map(|()| bytes as u64));
        }
        if let Some(fault) = failure {
            rings.fail(fault);
        }
        delivery
    }

    fn flush(&mut self) -> u32 {
        self.rings().map_or(0, QueueRings::publish)
    }

    fn longest_frame_bytes(&mut self) -> usize {
        self.longest_bytes
    }

    fn takes_unfinished(&mut self) -> bool {
        self.open_rings().is_some_and(|rings| rings.takes_unfinished)
    }

    roles! { sleeper: Sleep, backpressure: Backpressure, diagnosis: Diagnose }
}

impl Sleep for VirtioUserQueue {
    fn has_waiting(&mut self) -> bool {
        if self.held.is_recalled() {
            return true;
        }
        let Some(rings) = self.rings() else { return false };
        match rings.receive.has_waiting() {
            Ok(has_waiting) => has_waiting,
            Err(fault) => {
                rings.fail(fault);
                false
            }
        }
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        let awaits_room = self.is_room_awaited;
        if let Some(rings) = self.rings() {
            if sleeping {
                rings.receive.arm();
                if awaits_room {
                    rings.send.arm();
                }
            } else {
                rings.receive.disarm();
                rings.send.disarm();
            }
        }
        self.is_room_announced = sleeping && awaits_room;
        if !sleeping {
            self.is_room_awaited = false;
        }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.held.wake().descriptor())
    }

    fn drain_wake(&mut self) {
        self.held.wake().drain();
    }
}

impl Backpressure for VirtioUserQueue {
    fn room(&mut self, frame_bytes: usize) -> usize {
        // A wire holds its source back without a back end, because no receiver misses the frames.
        let Some(rings) = self.open_rings() else { return 0 };
        match rings.send.room(frame_bytes, BATCH_FRAMES) {
            Ok(room) => room,
            Err(fault) => {
                rings.fail(fault);
                0
            }
        }
    }

    fn await_room(&mut self) -> bool {
        self.is_room_awaited = true;
        // Without rings, the bell that announces new rings also announces the room.
        self.is_room_announced || self.rings().is_none()
    }
}

impl Diagnose for VirtioUserQueue {
    fn failure(&self, _way: FailedDirection) -> Option<String> {
        let fault = self.held.peek().and_then(|rings| rings.fault).or(self.last_fault)?;
        Some(format!("the back end at {} broke a rule: {fault}", self.path))
    }

    fn fault(&self) -> Option<String> {
        let status = self.watch.status();
        if status.is_connected {
            return None;
        }
        let why = status.last_error.map(|error| format!(": {error}")).unwrap_or_default();
        Some(format!("no back end is connected at {}{why}", self.path))
    }
}
