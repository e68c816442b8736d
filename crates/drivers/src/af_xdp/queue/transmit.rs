//! Tx side of a queue: it puts frames on the tx ring, by reference or by copy, and takes buffers off the completion
//! ring.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use ringroad_netdev::LinkState;
use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::counters::{RefusedFrames, Waiting};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::{ETHERNET_HEADER_BYTES, Fragment, Gather};
use ringroad_port::offload::Unfinished;
use ringroad_port::port_queue::Delivery;
use ringroad_ring::shared::{SlotWord, prefetch_write};
use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::super::rings::ProducerRing;
use super::super::umem::TX_REQUEST_BYTES;
use super::{Attachment, Interface, PREFETCH_FRAMES, Umem, XdpQueue, XdpSocket};
use crate::nic::set_up_again;

/// Maximum number of descriptors of a frame to send. The kernel builds a packet from this many (`MAX_SKB_FRAGS` of
/// linux/skbuff.h, 17).
pub(super) const MAX_TX_DESCRIPTORS: usize = 17;
/// `XDP_TX_METADATA`: a request lies in front of the frame.
const WITH_REQUEST: XdpDescOptions = XdpDescOptions::from_bits_retain(1 << 1);
/// `XDP_TXMD_FLAGS_CHECKSUM`: the request is to fill in the checksum.
const CHECKSUM_REQUEST: u64 = 1 << 1;
/// Number of calls without progress between two checks of the link, in zero-copy mode.
const KICKS_PER_CHECK: u32 = 64;
/// Maximum number of calls for one batch. A batch usually takes one call, or one for 32 frames on a kernel without
/// `XDP_MAX_TX_SKB_BUDGET`. If the device drops all frames, it takes one call per frame.
const MAX_KICKS: u32 = 2 * BATCH_FRAMES as u32;
/// Time for which a card with frames may send none. Pause frames of its peer take milliseconds.
const SILENCE: Duration = Duration::from_secs(2);

impl XdpQueue {
    /// Takes completed buffers off the completion ring.
    #[inline]
    pub(super) fn reap(&mut self) {
        if self.socket.completion.refresh() == 0 {
            return;
        }
        let Self { socket: XdpSocket { completion, .. }, umem, ledger, .. } = self;
        // The first round takes the entries up to the end of the ring, the second those from its beginning.
        while completion.available() != 0 {
            let mut run = completion.run(u32::MAX);
            let taken = run.len() as u32;
            while !run.is_empty() {
                // Lent buffers come back in order, unless others overtake them or own buffers lie between them.
                let done = ledger.complete_in_order(run);
                let Some((&address, others)) = run.get(done..).and_then(<[u64]>::split_first) else { break };
                if let Some(buffer) = umem.buffer_at(address) {
                    ledger.complete(buffer);
                }
                run = others;
            }
            completion.take(taken);
        }
        completion.publish();
    }

    /// Calls the kernel to send the frames on the tx ring. Returns the number of calls. Whatever a call returns, only
    /// the ring's counter shows which frames the kernel took.
    pub(super) fn kick(&mut self) -> u32 {
        // A driver without carrier takes no frames, and a call in zero-copy mode does not report that.
        let Attachment { link, zero_copy, .. } = &*self.attachment;
        if *zero_copy && self.interface == Interface::Down && link.state() == LinkState::NoCarrier {
            return 0;
        }
        let mut untaken = self.socket.tx.untaken();
        for kick in 1..=MAX_KICKS {
            match self.socket.send() {
                Ok(()) => self.interface = Interface::Up,
                Err(Errno::NXIO | Errno::NODEV) => {
                    self.interface = Interface::Gone;
                    self.unsent = false;
                    self.ledger.abandon();
                    return kick;
                }
                Err(Errno::NETDOWN) => {
                    self.stop();
                    return kick;
                }
                // The device dropped the frame and the kernel stopped, for lack of a carrier or because the other end
                // of a veth did not keep up.
                Err(Errno::BUSY) => {
                    self.note_refused();
                    if !self.attachment.link.is_running() {
                        self.stop();
                        return kick;
                    }
                    self.attachment.link.doubt();
                }
                // A program that shares the region spoiled a request, with which the kernel takes no frame. Linux 6.18
                // completes its buffer all the same, so it is called again before the buffer can be used anew.
                Err(Errno::INVAL) if self.attachment.leaves_checksums => {
                    self.withdraw_requests();
                    continue;
                }
                // The ring has more frames than one call sends, there is no room for completions, or the kernel is
                // short of memory.
                Err(_) => {}
            }
            self.reap();
            let left = self.socket.tx.untaken();
            if self.attachment.zero_copy {
                self.follow_driver(left);
                return kick;
            }
            self.unsent = left > 0;
            if !self.unsent || left == untaken {
                return kick;
            }
            untaken = left;
        }
        MAX_KICKS
    }

    /// Notes that the device dropped the frame that the kernel took last, which was counted as delivered.
    #[cold]
    fn note_refused(&mut self) {
        self.socket.tx.untaken();
        let mut bytes = 0;
        for back in 1..=MAX_TX_DESCRIPTORS as u32 {
            let descriptor = self.socket.tx.taken_entry(back);
            // This descriptor ends the frame before the dropped one.
            if back > 1 && !descriptor.options.contains(XdpDescOptions::XDP_PKT_CONTD) {
                break;
            }
            bytes += u64::from(descriptor.len);
        }
        self.refused.frames += 1;
        self.refused.bytes += bytes;
    }

    /// Decides what follows a call in zero-copy mode that left `left` frames on the ring. The call wakes the driver,
    /// which takes the frames later. With busy polling the call does not wake the driver: it polls the receiving side
    /// of the queue once instead (`SO_PREFER_BUSY_POLL`, `xsk_no_wakeup` of net/xdp/xsk.c). This poll takes the frames
    /// only if the driver serves both sides in one poll, which igb and virtio-net do not always do. So the driver is
    /// woken if a poll took no frame, and the kernel is called until no frame is left.
    pub(super) fn follow_driver(&mut self, left: u32) {
        let taken = self.socket.tx.consumed;
        self.fruitless_kicks = match left == 0 || taken != self.taken_before {
            true => 0,
            false => self.fruitless_kicks.wrapping_add(1),
        };
        self.taken_before = taken;
        self.unsent = left > 0 && self.attachment.busy_poll;
        if self.fruitless_kicks % KICKS_PER_CHECK != 1 {
            return;
        }
        if self.fruitless_kicks > 1 && !self.attachment.link.is_running() {
            return self.stop();
        }
        if self.attachment.busy_poll {
            self.socket.wake_driver();
        }
    }

    /// Fault of a card that sends nothing, as text for users. In zero-copy mode it has frames, and sent none between
    /// two checks that are at least [`SILENCE`] apart. A card that was reset below its driver behaves like this while
    /// its link seems to run.
    pub(super) fn card_fault(&self, now: Instant) -> Option<String> {
        if !self.attachment.zero_copy {
            return None;
        }
        let sent = self.socket.completion.produced_now();
        let invalid = self.socket.statistics().map_or(0, |statistics| statistics.tx_invalid_descs) as u32;
        let held = self.socket.tx.taken_now().wrapping_sub(sent).wrapping_sub(invalid);
        let before = self.completion_progress.get().filter(|before| held != 0 && before.sent == sent);
        let progress = before.unwrap_or(CompletionProgress { sent, since: now });
        self.completion_progress.set(Some(progress));
        let name = &self.attachment.interface;
        (now.saturating_duration_since(progress.since) >= SILENCE).then(|| {
            format!(
                "interface {name}: its card holds {held} buffers to send, and sends none: {}",
                set_up_again(name)
            )
        })
    }

    /// Whether the driver has taken no frame for many calls.
    pub(super) fn is_stuck(&self) -> bool {
        self.fruitless_kicks > 16 * KICKS_PER_CHECK
    }

    /// Frames on the tx ring that the kernel has not taken, counted by their last descriptors.
    pub(super) fn untaken_frames(&self) -> Waiting {
        self.socket.tx.waiting().fold(Waiting::default(), |sum, descriptor| Waiting {
            frames: sum.frames + u64::from(!descriptor.options.contains(XdpDescOptions::XDP_PKT_CONTD)),
            bytes: sum.bytes + u64::from(descriptor.len),
        })
    }

    /// Stops sending, because the interface carries no frames.
    #[cold]
    fn stop(&mut self) {
        self.interface = Interface::Down;
        self.unsent = false;
        self.fruitless_kicks = 0;
        if !self.attachment.zero_copy {
            self.give_up_untaken();
        }
        self.refused.by_link = self.refused.frames != 0;
    }

    /// Calls the kernel to drop the frames on the tx ring of an interface without carrier, one frame a call, in copy
    /// mode. Otherwise the kernel would drop them at any poll of the socket, and a poll does not report that
    /// (`xsk_poll` of net/xdp/xsk.c). If the interface is set down, the kernel takes no frames, and sends the waiting
    /// ones when it is up again. Lent buffers are not held until then: their frames move to own buffers.
    fn give_up_untaken(&mut self) {
        while self.socket.tx.untaken() != 0 && self.socket.send() == Err(Errno::BUSY) {
            self.note_refused();
        }
        self.reap();
        let (umem, ledger) = (&self.umem, &mut self.ledger);
        let move_out = |descriptor: XdpDesc| {
            let lent = umem.buffer_at(descriptor.addr).filter(|&buffer| ledger.is_lent(buffer));
            let Some(lent) = lent else { return Some(descriptor) };
            let own = ledger.take()?;
            let len = descriptor.len as usize;
            umem.bytes(own, len).copy_from(&umem.bytes(lent, len));
            ledger.complete(lent);
            Some(XdpDesc { addr: umem.address(own), ..descriptor })
        };
        // SAFETY: in copy mode the kernel reads the tx ring only in a call or a poll of the socket, and the one thread
        // that serves this queue makes both.
        unsafe { self.socket.tx.change_untaken(move_out) };
    }

    /// Takes back the requests in front of frames that the kernel has not taken. These frames leave as they are, and no
    /// more frames with open checksums come.
    #[cold]
    fn withdraw_requests(&mut self) {
        self.is_spoiled = true;
        let without = |descriptor: XdpDesc| {
            Some(XdpDesc { options: descriptor.options.difference(WITH_REQUEST), ..descriptor })
        };
        // SAFETY: as in `give_up_untaken`: requests exist only in copy mode.
        unsafe { self.socket.tx.change_untaken(without) };
    }

    /// Room on the tx ring, entries. If it is less than `wanted`, completions are reaped and the kernel is called
    /// first.
    pub(super) fn tx_room(&mut self, wanted: u32) -> u32 {
        let free = self.socket.tx.free(wanted);
        if free >= wanted && self.ledger.free() >= wanted as usize {
            return free;
        }
        self.reap();
        let free = self.socket.tx.free(wanted);
        if free >= wanted && self.ledger.free() >= wanted as usize {
            return free;
        }
        self.socket.tx.publish();
        self.kick();
        self.socket.tx.free(wanted)
    }

    /// Subtracts frames that were refused earlier from `delivery`, so that no counter ever falls. While the link is
    /// doubted the cause is not known.
    #[cold]
    pub(super) fn settle(&mut self, delivery: &mut Delivery) {
        if self.attachment.link.is_doubted() {
            return;
        }
        let cause = self.refused.cause();
        let frames = self.refused.frames.min(delivery.frames);
        let bytes = self.refused.bytes.min(delivery.bytes);
        delivery.frames -= frames;
        delivery.bytes -= bytes;
        delivery.dropped.add(cause, frames);
        self.refused.frames -= frames;
        self.refused.bytes -= bytes;
        self.refused.by_link &= self.refused.frames != 0;
    }

    /// Whether frames can be sent. If they could not and the link carries frames, the kernel is called again, once per
    /// batch.
    #[inline]
    pub(super) fn is_up(&mut self) -> bool {
        match (self.attachment.link.is_running(), self.interface) {
            (true, Interface::Up) => return true,
            (true, Interface::Down) => drop(self.kick()),
            (false, Interface::Up) => self.stop(),
            (_, Interface::Gone) | (false, Interface::Down) => {}
        }
        self.interface == Interface::Up
    }

    #[inline]
    fn put(&mut self, buffer: u32, len: usize, more: bool) {
        self.put_at(self.umem.address(buffer), len, more, XdpDescOptions::empty());
    }

    #[inline]
    fn put_at(&mut self, addr: u64, len: usize, more: bool, mut options: XdpDescOptions) {
        options.set(XdpDescOptions::XDP_PKT_CONTD, more);
        self.socket.tx.put_all(&[XdpDesc { addr, len: len as u32, options }], |&descriptor| descriptor);
    }

    /// Puts frames of one fragment each that fit in one buffer, as nearly all do, on the tx ring, up to the first other
    /// frame or the first without room. Returns their number.
    #[inline]
    pub(super) fn put_singles(
        &mut self,
        batch: &mut Batch,
        frames: &[u16],
        lends: bool,
        gives: bool,
        delivery: &mut Delivery,
    ) -> usize {
        let is_whole = batch.is_whole(frames);
        let put = match (lends, gives) {
            _ if !batch.is_single() || batch.is_unfinished() => return 0,
            (true, _) if is_whole => self.lend_all(batch),
            (true, _) => return 0,
            (false, true) if batch.is_all_sole() => self.exchange_singles(batch, frames),
            (false, true) => return 0,
            (false, false) => self.copy_singles(batch, frames),
        };
        delivery.frames += put as u32;
        delivery.uncopied += if lends || gives { put as u32 } else { 0 };
        delivery.bytes += match is_whole && put == frames.len() {
            true => batch.bytes(),
            false => batch.bytes_of_listed(frames.get(..put).unwrap_or(frames)),
        };
        put
    }

    /// Puts the buffers of a batch's frames on the tx ring without a copy. Their source still owns them.
    #[inline(never)]
    fn lend_all(&mut self, batch: &Batch) -> usize {
        let Self { socket: XdpSocket { tx, .. }, umem, ledger, lengths, .. } = self;
        let frames = batch.fragments();
        let room = ledger.lendable().min(tx.free(frames.len() as u32) as usize);
        let frames = frames.get(..room).unwrap_or(frames);
        let mut put = 0;
        loop {
            let rest = frames.get(put..).unwrap_or(&[]);
            let mut count = 0;
            let descriptors = tx.run_mut(rest.len() as u32).iter_mut().zip(ledger.run_mut());
            for ((descriptor, lent), frame) in descriptors.zip(rest) {
                let slot = frame.slot();
                if !lengths.has(slot) || !umem.has(slot.buffer()) {
                    break;
                }
                *descriptor = describe(umem, slot);
                *lent = descriptor.addr;
                count += 1;
            }
            tx.advance(count as u32);
            ledger.advance(count);
            put += count;
            // The loop goes on if the run ended at the end of the ring or of the ledger's list.
            if count == 0 || put == frames.len() {
                return put;
            }
        }
    }

    /// Puts the buffers of frames on the tx ring without a copy, and exchanges them for own buffers.
    #[inline(never)]
    fn exchange_singles(&mut self, batch: &mut Batch, frames: &[u16]) -> usize {
        let Self { socket: XdpSocket { tx, .. }, umem, ledger, lengths, .. } = self;
        let fragments = batch.exchange_buffers();
        let exchange = |&frame: &u16| {
            let fragment = fragments.get_mut(usize::from(frame))?;
            let slot = fragment.slot();
            if !lengths.has(slot) || !umem.has(slot.buffer()) {
                return None;
            }
            *fragment = fragment.in_buffer(ledger.exchange(slot.buffer())?);
            Some(slot)
        };
        put_each(tx, umem, frames, exchange)
    }

    /// Copies frames into own buffers.
    #[inline(never)]
    fn copy_singles(&mut self, batch: &Batch, frames: &[u16]) -> usize {
        let Self { socket: XdpSocket { tx, .. }, umem, ledger, lengths, .. } = self;
        let copy = |&frame: &u16| {
            let fragment = batch.fragment(frame.into())?;
            if !lengths.has(fragment.slot()) {
                return None;
            }
            let own = ledger.take()?;
            if let Some(ahead) = ledger.peek(PREFETCH_FRAMES) {
                prefetch_write(umem.start(umem.address(ahead)));
            }
            umem.bytes(own, fragment.len()).copy_from(&fragment.bytes());
            Some(fragment.slot().in_buffer(own))
        };
        put_each(tx, umem, frames, copy)
    }

    /// Whether the kernel can send these fragments without a copy.
    #[inline]
    pub(super) fn fits_in_place(&self, batch: &Batch, frame: usize) -> bool {
        let range = batch.fragments_of(frame);
        let single = range.len() == 1;
        (single || (self.attachment.multi_buffer && range.len() <= MAX_TX_DESCRIPTORS))
            && range.into_iter().all(|fragment| {
                let len = batch.fragment(fragment).map_or(0, Fragment::len);
                len > 0 && len <= self.umem.capacity() && self.umem.has(batch.buffer(fragment))
            })
    }

    /// Puts the buffers of a frame on the tx ring without a copy. With `keep` they are exchanged for free own buffers.
    #[inline]
    pub(super) fn put_in_place(
        &mut self,
        batch: &mut Batch,
        frame: usize,
        keep: bool,
    ) -> Result<(), DropCause> {
        let range = batch.fragments_of(frame);
        let needed = range.len();
        let room = if keep { self.ledger.free() } else { self.ledger.lendable() };
        if room.min(self.socket.tx.free(needed as u32) as usize) < needed {
            return Err(DropCause::NoSpace);
        }
        let last = range.end.saturating_sub(1);
        for fragment in range {
            let buffer = batch.buffer(fragment);
            let len = batch.fragment(fragment).map_or(0, Fragment::len);
            if keep {
                let Some(own) = self.ledger.exchange(buffer) else { return Err(DropCause::NoSpace) };
                batch.exchange(fragment, own);
            } else {
                self.ledger.lend(self.umem.address(buffer));
            }
            self.put(buffer, len, fragment != last);
        }
        Ok(())
    }

    /// Copies a frame into free own buffers. If its checksum is open, a request to fill it in lies in front of it, in the
    /// same buffer: the bytes in front of a buffer can belong to a long frame in the buffer before.
    pub(super) fn put_copy(
        &mut self,
        fragments: &[Fragment],
        total: usize,
        unfinished: Unfinished,
    ) -> Result<(), DropCause> {
        let capacity = self.umem.capacity();
        let (front, options) = match unfinished.is_nothing() {
            true => (0, XdpDescOptions::empty()),
            false => (TX_REQUEST_BYTES, WITH_REQUEST),
        };
        let (start, offset) = unfinished.checksum_position();
        // The kernel takes no frame whose checksum is not in its first buffer.
        if front != 0 && usize::from(start) + usize::from(offset) + 2 > total.min(capacity - front) {
            return Err(DropCause::BadOffload);
        }
        let needed = (front + total).div_ceil(capacity).max(1);
        if needed > MAX_TX_DESCRIPTORS || (needed > 1 && !self.attachment.multi_buffer) {
            return Err(DropCause::TooLong);
        }
        if (self.socket.tx.free(needed as u32) as usize) < needed || self.ledger.free() < needed {
            return Err(DropCause::NoSpace);
        }
        let mut gather = Gather::new(fragments.iter());
        for piece in 0..needed {
            let Some(buffer) = self.ledger.take() else { return Err(DropCause::NoSpace) };
            let end = (front + total - piece * capacity).min(capacity);
            let (begin, options) = if piece == 0 { (front, options) } else { (0, XdpDescOptions::empty()) };
            let mut room = self.umem.bytes(buffer, end);
            if begin != 0 {
                room.write(checksum_request(start, offset).as_flattened());
            }
            gather.fill(room.skip(begin));
            let address = self.umem.address(buffer) + begin as u64;
            self.put_at(address, end - begin, piece + 1 < needed, options);
        }
        Ok(())
    }
}

/// Request to fill in a checksum that covers the bytes of a frame from `start` on, and lies `offset` bytes behind that.
fn checksum_request(start: u16, offset: u16) -> [[u8; 8]; TX_REQUEST_BYTES / 8] {
    let ([start0, start1], [offset0, offset1]) = (start.to_ne_bytes(), offset.to_ne_bytes());
    [CHECKSUM_REQUEST.to_ne_bytes(), [start0, start1, offset0, offset1, 0, 0, 0, 0], [0; 8]]
}

/// Progress of a card at the last report.
#[derive(Debug, Clone, Copy)]
pub(super) struct CompletionProgress {
    /// The completion ring's counter.
    sent: u32,
    /// Time of the first report with this counter.
    since: Instant,
}

/// Frames that the device dropped after they were counted as delivered. The kernel reports such a drop only when it is
/// called for later frames. The next delivery or the next report subtracts them.
#[derive(Debug, Default)]
pub(super) struct LateRefusals {
    pub(super) frames: u32,
    bytes: u64,
    /// Whether the link was found not to carry frames since then.
    by_link: bool,
}

impl LateRefusals {
    fn cause(&self) -> DropCause {
        if self.by_link { DropCause::LinkDown } else { DropCause::Refused }
    }

    pub(super) fn take(&mut self) -> RefusedFrames {
        let mut refused = RefusedFrames { bytes: self.bytes, ..RefusedFrames::default() };
        refused.dropped.add(self.cause(), self.frames);
        *self = Self::default();
        refused
    }
}

/// Lengths of frames that are sent from one buffer, as extents of slots ([`SlotWord::extent`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct SingleLengths {
    least: u64,
    span: u64,
}

impl SingleLengths {
    /// Lengths of frames of at most `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        let extent = |len| SlotWord::new(0, len, 0).extent();
        let least = extent(ETHERNET_HEADER_BYTES as u16);
        Self { least, span: extent(most as u16).saturating_sub(least) }
    }

    /// Whether a slot holds a whole frame of such a length.
    #[inline]
    fn has(self, slot: SlotWord) -> bool {
        slot.extent().wrapping_sub(self.least) <= self.span
    }
}

/// Puts frames of one fragment each on the tx ring, while there is room and `source` returns a frame's buffer and
/// length. Returns the number.
#[inline]
fn put_each(
    tx: &mut ProducerRing<XdpDesc>,
    umem: &Umem,
    frames: &[u16],
    mut source: impl FnMut(&u16) -> Option<SlotWord>,
) -> usize {
    let room = tx.free(frames.len() as u32) as usize;
    let frames = frames.get(..room).unwrap_or(frames);
    tx.put_each(frames, |frame| Some(describe(umem, source(frame)?)))
}

/// Descriptor of a frame that lies in one slot.
#[inline]
fn describe(umem: &Umem, slot: SlotWord) -> XdpDesc {
    let len = SlotWord::extent_bytes(slot.extent()) as u32;
    XdpDesc { addr: umem.address(slot.buffer()), len, options: XdpDescOptions::empty() }
}
