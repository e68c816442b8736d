//! One queue of an interface, which the datapath serves.
#![allow(unsafe_code)]

mod transmit;

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringroad_netdev::LinkState;
use ringroad_port::batch::{BATCH_FRAMES, Batch, Custody, FrameMeta};
use ringroad_port::counters::{RefusedFrames, Waiting};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::{ETHERNET_HEADER_BYTES, Fragment};
use ringroad_port::offload::{DETECTION_BYTES, Unfinished, is_plainly_finished};
use ringroad_port::port_queue::{
    Backpressure, Delivery, Diagnose, FailedDirection, Lend, PortQueue, QueueProperties, Sleep,
};
use ringroad_port::roles;
use ringroad_ring::datapath_end::TakenFragment;
use ringroad_ring::layout::MAX_FRAGMENTS;
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use ringroad_ring::shared::{SlotWord, prefetch_read};
use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::ledger::TxBufferTable;
use super::socket::XdpSocket;
use super::umem::Umem;
use super::{Attachment, TX_CHECKSUM, VLAN_TAG};
use crate::nic::set_up_again;
use crate::poll_backoff::PollBackoff;
use crate::sleep_watch::SleepWatch;
use transmit::{CompletionProgress, LateRefusals, MAX_TX_DESCRIPTORS, SingleLengths};

/// Distance of the prefetch of buffers, frames.
const PREFETCH_FRAMES: usize = 8;

/// Pause between two checks of an empty rx ring. With it a veth's sender is 1.2 times as fast.
const POLL_INTERVAL_NS: u64 = 1000;

/// Time after which a sleeping datapath polls again for frames on the tx ring that the driver has not taken.
const UNTAKEN_POLL: Duration = Duration::from_millis(1);

/// State of the interface in the kernel's last answer to a call. [`Attachment::link`] has the state of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interface {
    Up,
    Down,
    Gone,
}

/// One queue of an interface through AF_XDP. Its frames lie in the region, which is the socket's UMEM.
#[derive(Debug)]
pub struct XdpQueue {
    // The first field, so that the socket is closed before the program is detached. Frames that arrive between go to
    // the host stack.
    socket: XdpSocket,
    watch: SleepWatch,
    pause: PollBackoff,
    umem: Umem,
    attachment: Arc<Attachment>,
    /// Number of buffers on the fill ring that are not released yet. They were put last.
    held: u32,
    ledger: TxBufferTable,
    lengths: SingleLengths,
    interface: Interface,
    /// Whether frames are left on the tx ring for which the kernel must be called again.
    unsent: bool,
    /// Whether a request in front of a frame was spoiled.
    is_spoiled: bool,
    /// Number of calls since the driver last took a frame, in zero-copy mode, and the ring's counter at that time.
    fruitless_kicks: u32,
    taken_before: u32,
    completion_progress: Cell<Option<CompletionProgress>>,
    /// Maximum length of a received frame that needs no further check, bytes.
    plain_bytes: u64,
    /// Whether the next descriptors are the rest of a dropped frame.
    in_dropped_frame: bool,
    /// Rule that the kernel broke.
    violation: Option<&'static str>,
    /// Number of frames dropped here as unreadable, and the kernel's count of missed frames at the last query.
    unreadable: u64,
    missed_before: u64,
    /// Number of frames that came without an end and are not reported yet.
    incomplete: u64,
    /// Frames that the device dropped after they were counted as delivered.
    refused: LateRefusals,
}

impl XdpQueue {
    /// A queue on a bound `socket`. The `rx` buffers go to the fill ring, the `tx` buffers are for copies of frames.
    ///
    /// # Errors
    /// The socket cannot be watched.
    pub(super) fn new(
        mut socket: XdpSocket,
        umem: Umem,
        attachment: Arc<Attachment>,
        rx: &[u32],
        tx: Vec<u32>,
    ) -> Result<Self, Errno> {
        socket.fill.put_all(rx, |&buffer| umem.address(buffer));
        socket.fill.publish();
        if socket.fill.needs_wakeup() {
            socket.wake_rx();
        }
        let ring_size = attachment.ring_size;
        Ok(Self {
            watch: SleepWatch::new(&socket)?,
            pause: PollBackoff::new(POLL_INTERVAL_NS),
            held: 0,
            // Twice the ring size: buffers on the tx ring, and buffers that have an entry reserved on the completion
            // ring.
            ledger: TxBufferTable::new(tx, umem.buffers, umem.chunk_shift, 2 * ring_size),
            lengths: SingleLengths::new(attachment.max_frame_bytes.min(umem.capacity())),
            interface: Interface::Up,
            unsent: false,
            is_spoiled: false,
            fruitless_kicks: 0,
            taken_before: 0,
            completion_progress: Cell::new(None),
            plain_bytes: umem.capacity().min(attachment.full_piece_bytes.saturating_sub(1)) as u64,
            in_dropped_frame: false,
            violation: None,
            unreadable: 0,
            missed_before: 0,
            incomplete: 0,
            refused: LateRefusals::default(),
            socket,
            umem,
            attachment,
        })
    }

    /// Names of the metadata of frames that the queue uses.
    pub(super) fn metadata(&self) -> Vec<&'static str> {
        let Attachment { leaves_checksums, puts_tags_back, .. } = *self.attachment;
        let used = [(TX_CHECKSUM, leaves_checksums), (VLAN_TAG, puts_tags_back)];
        used.into_iter().filter(|(_, is_used)| *is_used).map(|(name, _)| name).collect()
    }

    /// Whether the queue receives and sends no more frames.
    fn has_ended(&self) -> bool {
        self.interface == Interface::Gone
            || self.attachment.link.state() == LinkState::Gone
            || self.violation.is_some()
    }

    /// Whether the rx ring has no frame. Shortly after a check without one the result is `true`, unchecked.
    #[inline]
    fn shows_nothing(&mut self) -> bool {
        if self.pause.lasts() {
            return true;
        }
        let shows_nothing = self.socket.rx.refresh() == 0;
        if shows_nothing {
            match self.attachment.busy_poll {
                true => self.socket.wake_rx(),
                false => self.pause.begin(),
            }
        }
        shows_nothing
    }

    /// Number of descriptors of the next frame on the rx ring; 0 if no whole frame is there. A frame that is already
    /// too long is not waited for.
    #[inline]
    fn next_frame(&self) -> u32 {
        let most = if self.attachment.multi_buffer { MAX_FRAGMENTS as u32 } else { 1 };
        let mut descriptors = 0;
        while let Some(descriptor) = self.socket.rx.peek(descriptors) {
            descriptors += 1;
            if descriptors == most || !self.continues(descriptor) {
                return descriptors;
            }
        }
        0
    }

    /// Whether the frame continues in the next descriptor. A driver without support of several buffers does not report
    /// this: a full buffer shows that its card had more to write.
    #[inline]
    fn continues(&self, descriptor: XdpDesc) -> bool {
        descriptor.options.contains(XdpDescOptions::XDP_PKT_CONTD)
            || descriptor.len as usize == self.attachment.full_piece_bytes
    }

    /// Takes frames of one descriptor each that begin at the start of their buffer, as nearly all do, up to the first
    /// other frame.
    #[inline(never)]
    fn take_singles(&mut self, batch: &mut Batch) {
        let Self { socket, umem, plain_bytes, .. } = self;
        loop {
            let run = socket.rx.run(batch.single_room() as u32);
            let waiting = run.len();
            let taken = batch.push_each(run, |descriptor| {
                // Any option bit makes the length larger than any buffer.
                let len = u64::from(descriptor.len) | u64::from(descriptor.options.bits()) << u32::BITS;
                let (buffer, bytes) = umem.beginning_at(descriptor.addr, len, *plain_bytes)?;
                // The headers are read after all frames are taken.
                prefetch_read(bytes.as_ptr());
                // SAFETY: as in `take_fragment`.
                Some(unsafe {
                    Fragment::of_slot(&TakenFragment { slot: SlotWord::new(buffer, len as u16, 0), bytes })
                })
            });
            socket.rx.take(taken as u32);
            // The loop goes on if the run ended at the end of the ring.
            if taken == 0 || taken < waiting || socket.rx.available() == 0 {
                return;
            }
        }
    }

    /// Takes a frame of `descriptors` descriptors into `batch`, or drops it if it is invalid.
    #[inline(never)]
    fn take_frame(&mut self, batch: &mut Batch, descriptors: u32) {
        let before = batch.fragment_count();
        let last = descriptors.saturating_sub(1);
        self.in_dropped_frame = self.socket.rx.peek(last).is_some_and(|last| self.continues(last));
        let is_whole = !self.in_dropped_frame
            && (0..descriptors).all(|ahead| self.take_fragment(batch, ahead, ahead < last));
        if is_whole {
            self.socket.rx.take(descriptors);
            return;
        }
        batch.truncate(before);
        match self.in_dropped_frame {
            true => self.incomplete += 1,
            false => self.unreadable += 1,
        }
        self.drop_descriptors(batch, descriptors);
    }

    /// Drops the received part of the rest of a dropped frame.
    #[cold]
    fn drop_rest(&mut self, batch: &mut Batch) {
        while self.in_dropped_frame
            && let Some(descriptor) = self.socket.rx.peek(0)
        {
            self.in_dropped_frame = self.continues(descriptor);
            self.drop_descriptors(batch, 1);
        }
    }

    /// Gives the buffers of the next descriptors back to the kernel.
    fn drop_descriptors(&mut self, batch: &mut Batch, descriptors: u32) {
        for ahead in 0..descriptors {
            if let Some(descriptor) = self.socket.rx.peek(ahead)
                && let Some(buffer) = self.umem.buffer_at(descriptor.addr)
            {
                self.take_back(&[buffer], |&buffer| buffer);
                batch.skip_slot();
            }
        }
        self.socket.rx.take(descriptors);
    }

    /// Adds the buffer of the descriptor `ahead` after the next one to `batch`, as part of a frame. Returns `false` if
    /// the descriptor is invalid.
    fn take_fragment(&mut self, batch: &mut Batch, ahead: u32, has_more: bool) -> bool {
        let Some(descriptor) = self.socket.rx.peek(ahead) else { return false };
        let len = descriptor.len as usize;
        let Some(buffer) = self.umem.buffer_at(descriptor.addr) else {
            self.violation = Some("the kernel gave an address outside the region");
            return false;
        };
        if descriptor.addr != self.umem.address(buffer)
            && !self.umem.move_to_start(buffer, descriptor.addr, len)
        {
            self.violation = Some("the kernel gave a frame that leaves its buffer");
            return false;
        }
        let flags = if has_more { MORE_FRAGMENTS } else { 0 };
        // SAFETY: the region stays mapped while this queue lives; the kernel does not write the buffer before
        // `release`.
        let fragment = unsafe { Fragment::new(&self.umem.bytes(buffer, len), flags) };
        batch.push(fragment.in_buffer(buffer), ahead == 0);
        true
    }

    /// Puts buffers on the fill ring, which are held until they are released.
    #[inline]
    fn take_back<S>(&mut self, sources: &[S], buffer: impl Fn(&S) -> u32) {
        let Self { socket: XdpSocket { fill, .. }, umem, held, .. } = self;
        let room = fill.free(sources.len() as u32) as usize;
        let sources = sources.get(..room).unwrap_or(sources);
        fill.put_all(sources, |source| umem.address(buffer(source)));
        *held += sources.len() as u32;
    }

    /// Records the unfinished work of frames. Virtual interfaces pass on frames with work that their sender left to a
    /// card, and the kernel passes on frames that it merged. AF_XDP has no field for this work.
    fn mark_open_checksums(&self, batch: &mut Batch) {
        let mut fragments_read = 0;
        while let Some(frame) = next_unclear(batch, fragments_read) {
            let mut start = [0; DETECTION_BYTES];
            let len = batch.first_fragment(frame).map_or(0, |head| head.bytes().read(&mut start));
            let total = batch.frame_bytes(frame);
            let start = start.get(..len).unwrap_or(&[]);
            if let Some(unfinished) = Unfinished::detect(start, total, self.attachment.mtu) {
                batch.describe_frame(frame, FrameMeta { unfinished, ..FrameMeta::default() });
            }
            fragments_read = frame + 1;
        }
    }
}

/// Next frame from `first` on that a quick check does not prove finished.
#[inline(never)]
fn next_unclear(batch: &Batch, first: usize) -> Option<usize> {
    if !batch.is_single() {
        return (first < batch.frames()).then_some(first);
    }
    let is_finished =
        |frame: &Fragment| frame.bytes().read_array().is_some_and(|start| is_plainly_finished(&start));
    let mut rest = batch.fragments().get(first..)?.iter();
    rest.find(|frame| !is_finished(frame))?;
    Some(batch.frames() - rest.len() - 1)
}

impl PortQueue for XdpQueue {
    fn properties(&mut self) -> QueueProperties {
        // In copy mode one call sends several frames. The kernel copies each, and processes it up to the other end of a
        // virtual interface.
        let frame_cost = if self.attachment.zero_copy { 1 } else { 8 };
        QueueProperties { frame_cost, region: Some(self.umem.region.id()), ..QueueProperties::default() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        // Frames are retried that a full queue of the interface refused.
        if self.unsent {
            self.kick();
        }
        if self.violation.is_some() || self.shows_nothing() {
            return;
        }
        batch.offer(self.umem.region.id(), Custody::Give);
        loop {
            if self.in_dropped_frame {
                self.drop_rest(batch);
            }
            self.take_singles(batch);
            // The room is checked even after single frames: the batch may have no room for one more frame.
            if !batch.has_room(MAX_FRAGMENTS) {
                break;
            }
            let descriptors = self.next_frame();
            if descriptors == 0 {
                break;
            }
            self.take_frame(batch, descriptors);
        }
        self.watch.note_frames(&self.socket, batch.fragment_count());
        self.socket.rx.publish();
        if batch.frames() == 0 {
            // A batch without frames is never released.
            self.release(batch.slots());
            return;
        }
        // In zero-copy mode the card writes frames as they were on the wire, without unfinished work.
        if !self.attachment.zero_copy {
            self.mark_open_checksums(batch);
        }
    }

    #[inline]
    fn is_empty(&mut self) -> bool {
        !self.unsent && self.shows_nothing()
    }

    #[inline]
    fn release(&mut self, slots: usize) {
        self.held = self.held.saturating_sub(slots as u32);
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        if !self.is_up() {
            return Delivery::dropped(DropCause::LinkDown, frames.len());
        }
        let mut delivery = Delivery::default();
        let region = self.umem.region.id();
        self.watch.note_frames(&self.socket, frames.len());
        let lends = batch.lends_to(region);
        let gives = batch.gives_to(region);
        self.tx_room(frames.len() as u32);
        let mut rest = frames;
        loop {
            let done = self.put_singles(batch, rest, lends, gives, &mut delivery);
            // The next frame needs the general path, or cannot be sent.
            let Some((&frame, others)) = rest.get(done..).and_then(<[u16]>::split_first) else { break };
            rest = others;
            let frame = usize::from(frame);
            let total = batch.frame_bytes(frame);
            let unfinished = batch.meta(frame).unfinished;
            let in_place = unfinished.is_nothing() && (lends || (gives && batch.is_sole(frame)));
            let result = if total > self.attachment.max_frame_bytes {
                Err(DropCause::TooLong)
            } else if total < ETHERNET_HEADER_BYTES {
                Err(DropCause::TooShort)
            } else if in_place && self.fits_in_place(batch, frame) {
                let result = self.put_in_place(batch, frame, gives);
                delivery.uncopied += u32::from(result.is_ok());
                result
            } else {
                self.put_copy(batch.frame(frame), total, unfinished)
            };
            delivery.count(result.map(|()| total as u64));
        }
        if self.refused.frames != 0 {
            self.settle(&mut delivery);
        }
        delivery
    }

    fn flush(&mut self) -> u32 {
        let mut calls = 0;
        if self.socket.fill.publish_but(self.held) && self.socket.fill.needs_wakeup() {
            self.socket.wake_rx();
            calls += 1;
        }
        if self.socket.tx.publish() && self.socket.tx.needs_wakeup() {
            calls += self.kick();
        }
        calls
    }

    fn longest_frame_bytes(&mut self) -> usize {
        self.attachment.longest_rx_bytes
    }

    fn takes_open_checksums(&mut self) -> bool {
        self.attachment.leaves_checksums && !self.is_spoiled
    }

    /// No event announces that the driver can again take the frames that it left on the ring.
    fn due_in(&mut self) -> Option<Duration> {
        let is_waiting = self.interface == Interface::Up && self.socket.tx.untaken() > 0;
        is_waiting.then_some(UNTAKEN_POLL)
    }

    roles! { sleeper: Sleep, backpressure: Backpressure, lender: Lend, diagnosis: Diagnose }
}

impl Sleep for XdpQueue {
    fn has_waiting(&mut self) -> bool {
        if self.has_ended() {
            return false;
        }
        // The check is made at once: a reader before its sleep must not miss a frame, and a woken one must find it.
        self.pause.end();
        self.unsent || self.socket.rx.refresh() > 0 || self.watch.has_failed()
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        if sleeping {
            // The call also shows whether the interface still exists.
            self.kick();
            if self.socket.fill.needs_wakeup() {
                self.socket.wake_rx();
            }
            self.watch.begin(&self.socket);
        }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        (!self.has_ended()).then(|| self.watch.descriptor())
    }
}

/// No wake-up comes when the kernel has sent frames and so made room.
impl Backpressure for XdpQueue {
    fn room(&mut self, frame_bytes: usize) -> usize {
        // Frames for an interface that is down are dropped and counted, not held forever.
        if !self.is_up() {
            return BATCH_FRAMES;
        }
        let frame_bytes = frame_bytes.min(self.attachment.max_frame_bytes);
        let needed = frame_bytes.div_ceil(self.umem.capacity()).clamp(1, MAX_TX_DESCRIPTORS);
        let wanted = BATCH_FRAMES * needed;
        let free = self.tx_room(wanted as u32) as usize;
        free.min(self.ledger.free()) / needed
    }
}

impl Lend for XdpQueue {
    fn reclaim(&mut self, batch: &Batch) {
        self.take_back(batch.fragments(), Fragment::buffer);
    }

    fn lent(&self) -> u64 {
        self.ledger.lent_ever
    }

    fn returned(&mut self) -> u64 {
        self.reap();
        self.ledger.returned
    }
}

impl Diagnose for XdpQueue {
    fn failure(&self, _way: FailedDirection) -> Option<String> {
        let name = &self.attachment.interface;
        match self.violation {
            Some(violation) => Some(format!("interface {name}: {violation}")),
            None => self.has_ended().then(|| LinkState::Gone.fault(name)).flatten(),
        }
    }

    fn fault(&self) -> Option<String> {
        let name = &self.attachment.interface;
        if let Some(failure) = self.failure(FailedDirection::Either) {
            return Some(failure);
        }
        if let Some(fault) = self.attachment.link.state().fault(name) {
            return Some(fault);
        }
        if self.is_stuck() {
            let waiting = self.untaken_frames().frames;
            let remedy = set_up_again(name);
            return Some(format!(
                "interface {name}: its driver takes no frames off the ring, {waiting} wait: {remedy}"
            ));
        }
        if let Some(fault) = self.card_fault(Instant::now()) {
            return Some(fault);
        }
        let refused = self.socket.statistics().map_or(0, |statistics| statistics.tx_invalid_descs);
        (refused > 0).then(|| format!("interface {name}: the kernel refused to send {refused} descriptors"))
    }

    fn is_gone(&self) -> bool {
        self.has_ended()
    }

    fn incomplete_frames(&mut self) -> u64 {
        std::mem::take(&mut self.incomplete)
    }

    fn refused(&mut self) -> RefusedFrames {
        self.refused.take()
    }

    fn waiting(&mut self) -> Waiting {
        self.untaken_frames()
    }

    fn missed_frames(&mut self) -> u64 {
        // Two counters are left out. Frames of rx_fill_ring_empty_descs are also in rx_dropped in copy mode, and in the
        // interface's own statistics in zero-copy mode. rx_invalid_descs counts buffers, not frames.
        let Ok(statistics) = self.socket.statistics() else { return 0 };
        let total =
            statistics.rx_dropped.saturating_add(statistics.rx_ring_full.unwrap_or(0)) + self.unreadable;
        let missed = total.saturating_sub(self.missed_before);
        self.missed_before = total;
        missed
    }
}

#[cfg(test)]
impl XdpQueue {
    /// Puts pieces of frames on the rx ring as the kernel would: length, and whether a piece follows. Each lies in a
    /// buffer from the fill ring.
    pub(super) fn receive_pieces(&mut self, pieces: &[(u32, bool)]) {
        for &(len, continues) in pieces {
            let options = if continues { XdpDescOptions::XDP_PKT_CONTD } else { XdpDescOptions::empty() };
            let addr = self.umem.address(self.umem.buffers - 1);
            self.socket.rx.put_as_kernel(&[XdpDesc { addr, len, options }]);
        }
    }

    /// Makes the queue behave as that of a driver with zero copy, whose frames lie in one buffer each.
    pub(super) fn pretend_zero_copy(&mut self, full_piece_bytes: usize, busy_poll: bool) {
        let attachment = Arc::get_mut(&mut self.attachment).expect("one queue has it");
        (attachment.zero_copy, attachment.multi_buffer, attachment.busy_poll) = (true, false, busy_poll);
        attachment.full_piece_bytes = full_piece_bytes;
        self.plain_bytes = full_piece_bytes as u64 - 1;
        self.interface = Interface::Up;
    }

    /// Polls the socket as a datapath does that waits for frames.
    pub(super) fn poll_socket(&self) {
        self.socket.wake_driver();
    }

    /// Makes the queue behave as if its card held this many buffers to send, and sent none.
    pub(super) fn pretend_silent_card(&mut self, held: u32) {
        self.socket.tx.take_as_kernel(held);
    }

    /// Fault of the card that [`Diagnose::fault`] would report at time `now`.
    pub(super) fn card_fault_at(&self, now: Instant) -> Option<String> {
        self.card_fault(now)
    }

    /// Counts a call after which the driver took no frame.
    pub(super) fn note_fruitless_kick(&mut self) {
        let left = self.socket.tx.untaken();
        self.follow_driver(left);
    }
}
