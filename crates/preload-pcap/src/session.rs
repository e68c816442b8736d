//! An open port as a capture device: batches of received frames, arrival times, and descriptors to wait on.
//!
//! A session is behind its handle's lock, which is held while rings are worked on and never during a callback or a
//! wait. So one thread may read while another sends, and a callback may send on its own handle.

mod arrivals;
mod selectable;

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use ringroad::{Interest, Port, PortError, slot_flags};

use crate::abi::PacketHeader;
use crate::error::PcapError;
use crate::filter::Filter;
use crate::nudge::Nudge;
use crate::system::DeadHandle;
use arrivals::Arrivals;
pub(crate) use selectable::Carrier;
use selectable::{CarrierWait, Selectable};

/// Maximum number of frames that one read of the ring returns.
pub(crate) const BATCH_FRAMES: usize = 64;
/// Number of released slots after which the release is published, so that the other side learns of many at a time.
const PUBLISH_SLOTS: u32 = 64;

/// A frame that passed the filter, in its ring or in `scratch`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// Address of the first byte.
    pub(crate) packet: *const u8,
    /// Length of the frame, bytes.
    pub(crate) len: u32,
    /// Number of bytes that the program gets.
    pub(crate) captured: u32,
    /// Arrival time, ns since the Unix epoch.
    pub(crate) stamp_ns: u64,
    /// Number of the batch's slots up to the end of the frame.
    end: u32,
}

/// Consecutive frames of one ring. They stay in the ring until they are released.
#[derive(Debug, Default)]
pub(crate) struct RingBurst {
    /// Frames that passed the filter.
    pub(crate) frames: Vec<Frame>,
    queue: usize,
    /// Number of slots read. Slots after the last frame that passed hold rejected frames.
    slots: u32,
}

// SAFETY: only the thread that has the batch reads its pointers, and only while their slots are not released.
#[allow(unsafe_code)]
unsafe impl Send for RingBurst {}

impl RingBurst {
    /// Number of slots that can be released after the first `frames` frames.
    fn slots_of(&self, frames: usize) -> u32 {
        if frames == self.frames.len() {
            return self.slots;
        }
        frames.checked_sub(1).and_then(|last| self.frames.get(last)).map_or(0, |frame| frame.end)
    }
}

/// Result of reading the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The batch has frames that passed the filter.
    Frames,
    /// No frame passed. The frames of this many slots were rejected, and are released already.
    Rejected(u32),
    /// The rings are empty.
    Nothing,
}

/// An open port.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) port: Port,
    arrivals: Vec<Arrivals>,
    next_queue: usize,
    snaplen: u32,
    /// Filter of the frames that the program gets; without one the program gets all.
    pub(crate) filter: Option<Filter>,
    /// Handle for compiling filters and writing capture files, made at its first use.
    pub(crate) dead: Option<DeadHandle>,
    /// Buffer in which a frame of several slots is joined.
    scratch: Vec<u8>,
    /// Memory for batches, lent to the reader.
    pub(crate) batch: RingBurst,
    /// Queue and slots of the last frame that the program got and may still read.
    held: Option<(usize, u32)>,
    /// Header of that frame.
    pub(crate) header: Option<PacketHeader>,
    selectable: Option<Selectable>,
    /// Wakes a thread that sleeps until frames come.
    nudge: Arc<Nudge>,
    /// Whether frames came since a read last waited.
    pub(crate) flowing: bool,
    /// Whether a thread sleeps until frames come.
    pub(crate) reader_sleeps: bool,
    /// Number of frames that passed the filter.
    pub(crate) passed: u64,
    /// Number of frames without an end.
    pub(crate) malformed: u64,
}

impl Session {
    /// Takes over an open port. Frames longer than `snaplen` bytes are cut. `nudge` wakes its reader.
    pub(crate) fn new(mut port: Port, snaplen: u32, nudge: Arc<Nudge>) -> Self {
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
            nudge,
            flowing: false,
            reader_sleeps: false,
            passed: 0,
            malformed: 0,
        }
    }

    pub(crate) fn ring_slots(&mut self) -> u32 {
        self.port.rx().slot_count()
    }

    /// Prepares a read: releases the slots that the program read last. No signals are needed while it reads, except for
    /// room in a full ring: a read may last long, and another thread may wait for the room.
    pub(crate) fn begin_read(&mut self) -> Result<(), PortError> {
        self.expect_no_failure()?;
        if let Some((queue, slots)) = self.held.take() {
            self.release_slots(queue, slots)?;
        }
        if let Some(selectable) = &mut self.selectable
            && selectable.announced
            && selectable.is_writable()
        {
            selectable.announced = false;
            self.disarm()?;
        }
        Ok(())
    }

    /// Reads up to `limit` frames from the next queue that has any.
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

    /// Whether a queue has received slots. Syncs if no slots are left from the last sync.
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

    /// Collects the frames of a queue that pass the filter.
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
                    // Senders publish whole frames, so a frame without an end never gets one.
                    self.malformed += 1;
                    offset = available;
                    break;
                }
                len = (offset..offset + slots).map(|part| rx.frame(part).len() as u32).sum();
                if self.filter.is_some() || len.min(self.snaplen) > first.len() as u32 {
                    if gathered {
                        // The buffer for joined frames holds another frame of this batch.
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
                // SAFETY: all `len` bytes are at `packet`: in one slot's buffer, which its ring bounds, or in
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

    /// Releases the slots of the first `frames` frames of a batch.
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

    /// Keeps the batch's one frame for the program until the next call, and returns its address.
    pub(crate) fn hold(&mut self, batch: &RingBurst) -> Result<*const u8, PortError> {
        let Some(frame) = batch.frames.first() else { return Ok(std::ptr::null()) };
        let left = self.port.queues().get_mut(batch.queue).map_or(0, |rings| rings.rx().available());
        if self.selectable.is_none() || left > batch.slots {
            self.held = Some((batch.queue, batch.slots));
            return Ok(frame.packet);
        }
        // To a program that polls, a held slot looks like an available frame. So the last slot is released, and its
        // bytes are copied.
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

    /// Announces that the program will sleep until there are frames, or room to send in the first queue, by which all
    /// frames leave. Returns true if it must not sleep, because there are some already. That may have withdrawn the
    /// announcements of other threads: [`Session::settle`] must follow.
    pub(crate) fn arm(&mut self, interest: Interest) -> Result<bool, PortError> {
        let mut ready = false;
        let queues = self.port.queues();
        for (number, queue) in queues.iter_mut().enumerate() {
            match (number, interest) {
                (0, _) => ready |= queue.arm(interest)?,
                (_, Interest::Tx) => {}
                _ => ready |= queue.arm(Interest::Rx)?,
            }
        }
        if ready && queues.len() > 1 {
            self.port.disarm()?;
        }
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

    /// Descriptor for select, poll and epoll; `None` before [`Session::make_selectable`].
    pub(crate) fn selectable_descriptor(&self) -> Option<RawFd> {
        self.selectable.as_ref().map(Selectable::descriptor)
    }

    /// Makes the descriptor for select, poll and epoll, and returns its thread. `shared` is this session.
    pub(crate) fn make_selectable(&mut self, shared: &Arc<Mutex<Self>>) -> Result<Carrier, PcapError> {
        let failed = |error| PcapError::new(format!("making a descriptor to poll: {error}"));
        let carrier = Carrier::start(self, shared).map_err(failed)?;
        self.settle();
        Ok(carrier)
    }

    /// Restores the announcements of sleeping threads, and updates the descriptor that programs poll. Called after each
    /// change: after reads, sends, and the end of a thread's sleep.
    pub(crate) fn settle(&mut self) {
        if self.reader_sleeps {
            // It announces its sleep again, unless there are frames.
            self.nudge.give();
        }
        let watch = self.update_selectable();
        let watch = self.unless_failed(watch);
        if let Some(selectable) = &mut self.selectable {
            selectable.require(watch);
        }
    }

    /// As [`Session::settle`] after a send, which seldom changes whether there is room.
    #[inline]
    pub(crate) fn settle_sent(&mut self) {
        let Some(selectable) = &mut self.selectable else { return };
        selectable.wanted_slots = 1;
        if selectable.is_writable() != (self.port.tx().available() > 0) {
            self.settle();
        }
    }

    /// As [`Session::settle`] when there is no room for a frame of `bytes` bytes.
    pub(crate) fn settle_refused(&mut self, bytes: usize) -> Result<(), PortError> {
        self.expect_no_failure()?;
        let wanted = self.slots_for(bytes);
        if let Some(selectable) = &mut self.selectable {
            selectable.wanted_slots = wanted;
        }
        self.settle();
        Ok(())
    }

    /// Whether the transmit ring has room for a frame of `bytes` bytes, as of the last sync.
    pub(crate) fn has_room_for(&mut self, bytes: usize) -> bool {
        self.port.tx().available() >= self.slots_for(bytes)
    }

    /// Number of slots that a frame of `bytes` bytes takes.
    fn slots_for(&mut self, bytes: usize) -> u32 {
        let slot_bytes = self.port.tx().buffer_bytes().min(u16::MAX.into());
        bytes.div_ceil(slot_bytes as usize) as u32
    }

    /// Updates the descriptor after a signal or a nudge, and returns what its thread has to wait for. A reader that
    /// sleeps gets the same signals, and settles by itself.
    fn carry_signals(&mut self) -> CarrierWait {
        let watch = if self.reader_sleeps { Ok(CarrierWait::Nudge) } else { self.update_after_signal() };
        let watch = self.unless_failed(watch);
        if let Some(selectable) = &mut self.selectable {
            selectable.watches(watch);
        }
        watch
    }

    fn update_after_signal(&mut self) -> Result<CarrierWait, PortError> {
        self.disarm()?;
        let watch = self.update_selectable()?;
        if self.selectable.as_ref().is_some_and(|selectable| selectable.announced) {
            // The signal may have been the end of the daemon.
            self.port.check()?;
        }
        Ok(watch.max(CarrierWait::Port))
    }

    /// Updates the descriptor, and announces a sleep for what it is not ready for. Returns what its thread must wait
    /// for.
    fn update_selectable(&mut self) -> Result<CarrierWait, PortError> {
        loop {
            let Some(selectable) = self.selectable.as_ref().filter(|selectable| !selectable.failed) else {
                return Ok(CarrierWait::Nudge);
            };
            let wanted = selectable.wanted_slots;
            let (readable, free) = (self.port.is_ready(Interest::Rx), self.port.tx().available());
            let missing = match (readable, free > 0) {
                (true, true) => None,
                (false, true) => Some(Interest::Rx),
                (true, false) => Some(Interest::Tx),
                (false, false) => Some(Interest::Both),
            };
            if let Some(interest) = missing
                && self.arm(interest)?
            {
                continue;
            }
            if let Some(selectable) = &mut self.selectable {
                selectable.announced = missing.is_some();
                selectable.tell(readable, free >= wanted);
            }
            return Ok(match missing {
                _ if free > 0 && free < wanted => CarrierWait::PortAndTime,
                Some(_) => CarrierWait::Port,
                None => CarrierWait::Nudge,
            });
        }
    }

    /// If the port has failed, makes the descriptor readable and writable, so that the program learns of it.
    fn unless_failed(&mut self, watch: Result<CarrierWait, PortError>) -> CarrierWait {
        watch.unwrap_or_else(|_| {
            if let Some(selectable) = &mut self.selectable {
                selectable.failed = true;
                selectable.tell(true, true);
            }
            CarrierWait::Nudge
        })
    }

    /// Fails if the port was found to have failed while the program polled.
    fn expect_no_failure(&mut self) -> Result<(), PortError> {
        match &self.selectable {
            Some(selectable) if selectable.failed => self.port.check(),
            _ => Ok(()),
        }
    }
}
