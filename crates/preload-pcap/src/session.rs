//! An open port as a capture device: received frames in batches, their times, and descriptors to wait for them.
//!
//! A session lies behind its handle's lock, which is held while rings are worked on and never during a callback or a
//! wait. So one thread may read while another sends, and a callback may send on its own handle.

mod arrivals;
mod selectable;

use std::os::fd::{AsFd, RawFd};

use ringroad::{Interest, Port, PortError, slot_flags};

use crate::abi::PacketHeader;
use crate::error::PcapError;
use crate::filter::Filter;
use crate::system::DeadHandle;
use arrivals::Arrivals;
use selectable::Selectable;

/// Most frames that one read of the ring returns.
pub(crate) const BATCH_FRAMES: usize = 64;
/// Slots that are read before their return is published: the other side learns of many at a time.
const PUBLISH_SLOTS: u32 = 64;

/// A frame that passed the filter, where it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// Its first byte.
    pub(crate) packet: *const u8,
    /// Bytes that it has.
    pub(crate) len: u32,
    /// Bytes of it that the program gets.
    pub(crate) captured: u32,
    /// When it came, ns since the Unix epoch.
    pub(crate) stamp_ns: u64,
    /// Slots of the batch up to its end.
    end: u32,
}

/// Frames that follow each other in one ring. They stay there until they are released.
#[derive(Debug, Default)]
pub(crate) struct RingBurst {
    /// Those that passed the filter.
    pub(crate) frames: Vec<Frame>,
    queue: usize,
    /// Slots read: those after the last frame that passed held other frames.
    slots: u32,
}

// SAFETY: the pointers of a batch are read only by the thread that has it, while the slots they point into are not
// released.
#[allow(unsafe_code)]
unsafe impl Send for RingBurst {}

impl RingBurst {
    /// Slots that are done with when the first `frames` frames are.
    fn slots_of(&self, frames: usize) -> u32 {
        if frames == self.frames.len() {
            return self.slots;
        }
        frames.checked_sub(1).and_then(|last| self.frames.get(last)).map_or(0, |frame| frame.end)
    }
}

/// The result of reading the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Frames that passed the filter.
    Frames,
    /// As many slots with frames that did not, which are released already.
    Rejected(u32),
    /// Nothing.
    Nothing,
}

/// An open port.
#[derive(Debug)]
pub(crate) struct Session {
    port: Port,
    arrivals: Vec<Arrivals>,
    next_queue: usize,
    snaplen: u32,
    /// Which frames the program gets; all without one.
    pub(crate) filter: Option<Filter>,
    /// For compiling filters and writing capture files, made when it is needed.
    pub(crate) dead: Option<DeadHandle>,
    /// Frames of several slots are put together here.
    scratch: Vec<u8>,
    /// Room for batches, lent to the reader.
    pub(crate) batch: RingBurst,
    /// Queue and slots of the frame that the program got last and may still read.
    held: Option<(usize, u32)>,
    /// The header that the program got for that frame.
    pub(crate) header: Option<PacketHeader>,
    selectable: Option<Selectable>,
    /// Frames came since a read last waited.
    pub(crate) flowing: bool,
    /// A thread sleeps until frames come.
    pub(crate) reader_sleeps: bool,
    /// Frames that passed the filter.
    pub(crate) passed: u64,
    /// Frames that lacked their end.
    pub(crate) malformed: u64,
}

impl Session {
    /// Takes over an open port. Frames longer than `snaplen` bytes are cut.
    pub(crate) fn new(mut port: Port, snaplen: u32) -> Self {
        let arrivals = port.queues().iter_mut().map(|queue| Arrivals::new(queue.rx().slot_count())).collect();
        Self {
            port,
            arrivals,
            next_queue: 0,
            snaplen,
            filter: None,
            dead: None,
            scratch: Vec::new(),
            batch: RingBurst { frames: Vec::with_capacity(BATCH_FRAMES), ..RingBurst::default() },
            held: None,
            header: None,
            selectable: None,
            flowing: false,
            reader_sleeps: false,
            passed: 0,
            malformed: 0,
        }
    }

    pub(crate) fn port(&mut self) -> &mut Port {
        &mut self.port
    }

    /// Slots of one ring.
    pub(crate) fn ring_slots(&mut self) -> u32 {
        self.port.rx().slot_count()
    }

    /// Makes ready for reading: the slots that the program read last are given back, and the descriptor that it polls
    /// is not readable.
    pub(crate) fn begin_read(&mut self) -> Result<(), PortError> {
        if let Some((queue, slots)) = self.held.take() {
            self.release_slots(queue, slots)?;
        }
        if self.selectable.as_mut().is_some_and(Selectable::disarm) {
            self.port.disarm()?;
        }
        Ok(())
    }

    /// Looks for up to `limit` frames, in each queue in turn.
    #[inline]
    pub(crate) fn fill(&mut self, batch: &mut RingBurst, limit: usize) -> Result<Found, PortError> {
        batch.frames.clear();
        batch.slots = 0;
        let queues = self.arrivals.len();
        for _ in 0..queues {
            let queue = self.next_queue;
            self.next_queue = if queue + 1 == queues { 0 } else { queue + 1 };
            if !self.has_slots(queue)? {
                continue;
            }
            batch.queue = queue;
            self.walk(batch, limit);
            self.passed += batch.frames.len() as u64;
            if batch.frames.is_empty() {
                self.release_slots(queue, batch.slots)?;
                return Ok(Found::Rejected(batch.slots));
            }
            return Ok(Found::Frames);
        }
        Ok(Found::Nothing)
    }

    /// Whether a queue has received anything, by a sync where nothing is left of the last one.
    #[inline]
    fn has_slots(&mut self, queue: usize) -> Result<bool, PortError> {
        let Some(rings) = self.port.queues().get_mut(queue) else { return Ok(false) };
        if rings.rx().available() == 0 {
            rings.rx().sync()?;
            self.note_arrivals(queue);
        }
        Ok(self.port.queues().get_mut(queue).is_some_and(|rings| rings.rx().available() > 0))
    }

    /// Records the arrival time of slots that a sync brought.
    #[inline]
    fn note_arrivals(&mut self, queue: usize) {
        if let (Some(rings), Some(arrivals)) =
            (self.port.queues().get_mut(queue), self.arrivals.get_mut(queue))
        {
            arrivals.note(rings.rx().available());
        }
    }

    /// Collects what passes the filter of a queue's slots.
    fn walk(&mut self, batch: &mut RingBurst, limit: usize) {
        let (Some(rings), Some(arrivals)) =
            (self.port.queues().get_mut(batch.queue), self.arrivals.get(batch.queue))
        else {
            return;
        };
        let rx = rings.rx();
        let available = rx.available();
        let mut times = arrivals.times();
        let mut gathered = false;
        let mut offset = 0;
        while offset < available && batch.frames.len() < limit {
            let slot = rx.slot(offset);
            let first = rx.frame(offset);
            let mut packet = first.as_ptr().cast_const();
            let mut len = first.len() as u32;
            let mut slots = 1;
            if slot.flags & slot_flags::MORE_FRAGMENTS != 0 {
                slots = rx.frame_slots(offset);
                if slots == 0 {
                    // Senders publish whole frames; what has no end never gets one.
                    self.malformed += 1;
                    offset = available;
                    break;
                }
                len = (offset..offset + slots).map(|part| rx.frame(part).len() as u32).sum();
                if self.filter.is_some() || len.min(self.snaplen) > first.len() as u32 {
                    if gathered {
                        // The one place to put frames together holds another of this batch.
                        break;
                    }
                    gathered = true;
                    self.scratch.resize(len as usize, 0);
                    let mut rest = self.scratch.as_mut_slice();
                    for part in offset..offset + slots {
                        let read = rx.frame(part).read(rest);
                        rest = rest.get_mut(read..).unwrap_or_default();
                    }
                    packet = self.scratch.as_ptr();
                }
            }
            let from = offset;
            offset += slots;
            if let Some(filter) = &self.filter {
                // SAFETY: all `len` bytes lie at `packet`: in one slot's buffer, which is bounded by its ring, or in
                // `scratch`.
                #[allow(unsafe_code)]
                let passes = unsafe { filter.passes(packet, len) };
                if !passes {
                    gathered &= packet != self.scratch.as_ptr();
                    continue;
                }
            }
            let stamp_ns = if slot.ptr != 0 { slot.ptr } else { times.at(from) };
            let captured = len.min(self.snaplen);
            batch.frames.push(Frame { packet, len, captured, stamp_ns, end: offset });
        }
        batch.slots = offset;
    }

    /// Gives back the slots of the first `frames` frames of a batch.
    #[inline]
    pub(crate) fn release(&mut self, batch: &RingBurst, frames: usize) -> Result<(), PortError> {
        let passed_over = batch.frames.len() - frames;
        self.passed -= passed_over as u64;
        self.release_slots(batch.queue, batch.slots_of(frames))
    }

    fn release_slots(&mut self, queue: usize, slots: u32) -> Result<(), PortError> {
        let (Some(rings), Some(arrivals)) = (self.port.queues().get_mut(queue), self.arrivals.get_mut(queue))
        else {
            return Ok(());
        };
        let rx = rings.rx();
        rx.release(slots);
        if arrivals.release(slots) >= PUBLISH_SLOTS || rx.available() == 0 {
            arrivals.published();
            rx.sync()?;
            self.note_arrivals(queue);
        }
        Ok(())
    }

    /// Keeps the batch's one frame for the program to read until the next call, and returns where it lies.
    pub(crate) fn hold(&mut self, batch: &RingBurst) -> Result<*const u8, PortError> {
        let Some(frame) = batch.frames.first() else { return Ok(std::ptr::null()) };
        let left = self.port.queues().get_mut(batch.queue).map_or(0, |rings| rings.rx().available());
        if self.selectable.is_none() || left > batch.slots {
            self.held = Some((batch.queue, batch.slots));
            return Ok(frame.packet);
        }
        // A held slot looks like an available frame to a program that polls: the last slot is released, and its bytes
        // stay.
        if frame.packet != self.scratch.as_ptr() {
            let Some(rings) = self.port.queues().get_mut(batch.queue) else { return Ok(std::ptr::null()) };
            let first = frame.end - 1;
            let bytes = rings.rx().frame(first);
            self.scratch.resize(bytes.len(), 0);
            bytes.read(&mut self.scratch);
        }
        self.release_slots(batch.queue, batch.slots)?;
        Ok(self.scratch.as_ptr())
    }

    /// Announces that the program will sleep until frames come, or room to send. True: do not, there is something
    /// already.
    pub(crate) fn arm(&mut self, interest: Interest) -> Result<bool, PortError> {
        let ready = self.port.arm(interest)?;
        self.note_all();
        Ok(ready)
    }

    /// Ends a sleep.
    pub(crate) fn disarm(&mut self) -> Result<(), PortError> {
        self.port.disarm()?;
        self.note_all();
        Ok(())
    }

    fn note_all(&mut self) {
        (0..self.arrivals.len()).for_each(|queue| self.note_arrivals(queue));
    }

    /// The descriptor that is readable while there are frames, for select, poll and epoll.
    pub(crate) fn selectable_descriptor(&mut self) -> Result<RawFd, PcapError> {
        if self.selectable.is_none() {
            let made = Selectable::new(self.port.as_fd());
            let failed = |errno| PcapError::new(format!("making a descriptor to poll: {errno}"));
            self.selectable = Some(made.map_err(failed)?);
            self.settle()?;
        }
        self.selectable.as_ref().map(Selectable::descriptor).ok_or_else(PcapError::not_activated)
    }

    /// Updates the descriptor that programs poll: readable if frames are left.
    pub(crate) fn settle(&mut self) -> Result<(), PortError> {
        if self.selectable.is_none() {
            return Ok(());
        }
        let ready = self.is_ready() || self.arm(Interest::Rx)?;
        if let Some(selectable) = &mut self.selectable {
            selectable.tell(ready);
        }
        Ok(())
    }

    fn is_ready(&mut self) -> bool {
        self.port.queues().iter().any(|queue| queue.is_ready(Interest::Rx))
    }
}
