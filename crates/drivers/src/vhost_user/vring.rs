//! The worker's side of one ring of a guest's card. It takes frames from the ring and puts frames into it.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ringroad_port::batch::{BATCH_FRAMES, Batch, FrameMeta};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::{Fragment, Gather};
use ringroad_port::offload::{Unfinished, VIRTIO_HEADER_BYTES};
use ringroad_port::port_queue::Delivery;
use ringroad_ring::layout::{MAX_FRAGMENTS, slot_flags::MORE_FRAGMENTS};
use ringroad_ring::shared::{SharedBytes, prefetch_read};
use ringroad_virtqueue::chain::{BufferAccess, MAX_SEGMENTS, SgEntry};
use ringroad_virtqueue::device_ring::DeviceRing;
use ringroad_virtqueue::dirty_log::DirtyLog;
use ringroad_virtqueue::fault::RingFault;
use ringroad_virtqueue::layout::{NET_HEADER_BYTES, SHORT_NET_HEADER_BYTES};

use super::call::Call;
use super::receive_filter::ReceiveFilter;

/// Maximum number of buffers of a frame.
const MAX_MERGED: usize = MAX_SEGMENTS;
/// Maximum length of a fragment, bytes.
const FRAGMENT_BYTES: usize = 65535;

/// Run of buffers lent to the datapath, which take the same number of a batch's slots each.
#[derive(Debug)]
pub(super) struct Lent {
    buffers: u16,
    /// Number of slots of each buffer.
    slots: u16,
}

/// A ring in use, with all state for its use.
#[derive(Debug)]
pub(super) struct Vring {
    pub(super) ring: DeviceRing,
    /// Wake-up of the driver; `None` if it polls.
    pub(super) call: Option<Arc<Call>>,
    /// Signal for the front end that the ring has failed.
    pub(super) error: Option<Arc<Call>>,
    pub(super) log: Option<Arc<DirtyLog>>,
    /// Whether writes to the used ring are logged, too.
    pub(super) logs_ring: bool,
    /// Length of the header before each frame, bytes.
    pub(super) header_bytes: usize,
    pub(super) is_mergeable: bool,
    /// Whether frames from the guest may be unfinished.
    pub(super) reads_offloads: bool,
    /// Whether the guest takes unfinished frames.
    pub(super) takes_unfinished: bool,
    /// The frames that the guest wants; `None` if it wants all.
    pub(super) filter: Option<Arc<ReceiveFilter>>,
    /// Fault that stopped the ring.
    pub(super) fault: Option<RingFault>,
    /// Whether the fault is not counted yet.
    pub(super) is_uncounted: bool,
    pub(super) scratch: Scratch,
}

/// Memory for the work of one batch, allocated with the ring.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Room for [`BATCH_FRAMES`] buffers of one segment each.
    singles: Vec<SgEntry>,
    segments: Vec<SgEntry>,
    /// End of each taken buffer's segments in the list.
    ends: Vec<usize>,
    /// Size of each buffer that a frame is merged from, bytes.
    merged: Vec<u32>,
    /// The frames that pass the filter.
    passing: Vec<u16>,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self {
            singles: vec![SgEntry::EMPTY; BATCH_FRAMES],
            segments: Vec::with_capacity(BATCH_FRAMES + 2 * MAX_SEGMENTS),
            ends: Vec::with_capacity(BATCH_FRAMES),
            merged: Vec::with_capacity(MAX_MERGED),
            passing: Vec::with_capacity(BATCH_FRAMES),
        }
    }
}

#[inline]
fn bytes_of(segment: &SgEntry) -> SharedBytes<'_> {
    // SAFETY: the ring keeps the segment's memory mapped. This borrow ends before the ring, because rings are released
    // only when no frame is borrowed.
    unsafe { SharedBytes::from_trusted_parts(segment.start, segment.bytes as usize) }
}

impl Vring {
    #[cold]
    fn fail(&mut self, fault: RingFault) {
        if self.fault.is_none() {
            (self.fault, self.is_uncounted) = (Some(fault), true);
            if let Some(error) = &self.error {
                error.ring();
            }
        }
    }

    /// Begins to serve the ring, which another process may have served before. The guest is woken now, because the
    /// wake-up for earlier used buffers may be lost. A needless wake-up is harmless, but a missing one would leave the
    /// guest asleep.
    pub(super) fn begin(&mut self) {
        self.ring.wake_me(false);
        if let Some(call) = &self.call {
            call.ring();
        }
    }

    /// Whether the ring has stopped. Also checks that the guest's memory still exists.
    #[inline]
    pub(super) fn is_stopped(&mut self) -> bool {
        if self.ring.memory().is_lost() {
            self.fail(RingFault::MemoryLost);
        }
        self.fault.is_some()
    }

    /// Whether the guest has made buffers available: frames to take, or buffers to fill.
    pub(super) fn has_available(&mut self) -> bool {
        if self.fault.is_some() {
            return false;
        }
        self.ring.has_available().unwrap_or_else(|fault| {
            self.fail(fault);
            false
        })
    }

    /// Borrows frames into the batch.
    #[inline]
    pub(super) fn receive(&mut self, batch: &mut Batch, lent: &mut VecDeque<Lent>) {
        if self.is_stopped() {
            return;
        }
        let Scratch { singles, segments, ends, .. } = &mut self.scratch;
        // All descriptors are read before the frames themselves, so that prefetches of the frames' first bytes can
        // complete.
        let singles = take_singles::<false>(&mut self.ring, singles, batch.single_room());
        let pushed = match self.header_bytes {
            NET_HEADER_BYTES => push_singles::<NET_HEADER_BYTES>(batch, singles, self.reads_offloads),
            _ => push_singles::<SHORT_NET_HEADER_BYTES>(batch, singles, self.reads_offloads),
        };
        if pushed > 0 {
            lent.push_back(Lent { buffers: pushed as u16, slots: 1 });
        }
        if pushed == singles.len() && self.ring.is_taken() {
            return;
        }
        self.ring.put_back((singles.len() - pushed) as u16);
        segments.clear();
        ends.clear();
        let room = batch.frame_room();
        let mut fault = None;
        while ends.len() < room && segments.len() + MAX_SEGMENTS <= BATCH_FRAMES + MAX_FRAGMENTS {
            let before = segments.len();
            match self.ring.take(BufferAccess::Read, segments) {
                Ok(true) => {
                    if let Some(first) = segments.get(before) {
                        prefetch_read(first.start.as_ptr());
                    }
                    ends.push(segments.len());
                }
                Ok(false) => break,
                Err(found) => {
                    segments.truncate(before);
                    fault = Some(found);
                    break;
                }
            }
        }
        let (mut accepted, mut from) = (0, 0);
        for &end in ends.iter() {
            let pieces = segments.get(from..end).unwrap_or(&[]);
            let Some(slots) = push_frame(batch, pieces, self.header_bytes, self.reads_offloads) else {
                break;
            };
            lent.push_back(Lent { buffers: 1, slots });
            accepted += 1;
            from = end;
        }
        self.ring.put_back((ends.len() - accepted) as u16);
        if let Some(fault) = fault {
            self.fail(fault);
        }
    }

    /// Gives back the buffers of the `slots` oldest lent slots.
    #[inline]
    pub(super) fn release(&mut self, mut slots: usize, lent: &mut VecDeque<Lent>) {
        while let Some(oldest) = lent.front_mut() {
            let whole = slots.checked_div(oldest.slots.into()).unwrap_or(0);
            let buffers = oldest.buffers.min(whole.min(u16::MAX.into()) as u16);
            self.ring.give_back_read(buffers);
            slots -= usize::from(buffers) * usize::from(oldest.slots);
            oldest.buffers -= buffers;
            if oldest.buffers > 0 {
                break;
            }
            lent.pop_front();
        }
    }

    /// Takes the next request of a control queue: its bytes, and the segment for the answer. `None` if there is none, or
    /// the ring has stopped.
    pub(super) fn take_request(&mut self) -> Option<(Vec<u8>, SgEntry)> {
        if self.is_stopped() {
            return None;
        }
        let segments = &mut self.scratch.segments;
        segments.clear();
        let fault = match self.ring.take(BufferAccess::ReadThenWrite, segments) {
            Ok(false) => return None,
            Ok(true) => None,
            Err(fault) => Some(fault),
        };
        let mut parts = segments.split(|segment| segment.bytes == 0);
        let (request, answer) = (parts.next().unwrap_or_default(), parts.next().and_then(<[_]>::first));
        let Some(&answer) = answer.filter(|_| fault.is_none()) else {
            // A request without room for an answer breaks the rules, too.
            self.fail(fault.unwrap_or(RingFault::Direction));
            return None;
        };
        let mut bytes = vec![0; request.iter().map(|segment| segment.bytes as usize).sum()];
        let mut rest = bytes.as_mut_slice();
        for segment in request {
            let read = bytes_of(segment).read(rest);
            rest = rest.get_mut(read..).unwrap_or_default();
        }
        Some((bytes, answer))
    }

    /// Answers the last taken request of a control queue by one byte.
    pub(super) fn answer(&mut self, segment: SgEntry, answer: u8) {
        bytes_of(&segment).write(&[answer]);
        if let Some(log) = &self.log {
            log.wrote(segment.guest, 1);
        }
        self.ring.give_back_all(std::iter::once(1));
        self.publish();
    }

    /// Requests a wake-up for the next buffer. Returns whether one is available already.
    pub(super) fn arm(&mut self) -> bool {
        self.ring.wake_me(true);
        // The request comes before the check. The guest does the reverse.
        fence(Ordering::SeqCst);
        self.has_available()
    }

    /// Writes those frames of the batch into the guest's buffers that the guest wants.
    pub(super) fn deliver(&mut self, batch: &Batch, frames: &[u16]) -> Delivery {
        match self.filter.clone() {
            None => self.put_all(batch, frames),
            Some(filter) => self.put_passing(&filter, batch, frames),
        }
    }

    #[cold]
    fn put_passing(&mut self, filter: &ReceiveFilter, batch: &Batch, frames: &[u16]) -> Delivery {
        let mut passing = std::mem::take(&mut self.scratch.passing);
        passing.clear();
        passing.extend(frames.iter().filter(|&&frame| filter.lets_pass(batch, frame)));
        let mut delivery = self.put_all(batch, &passing);
        delivery.dropped.add(DropCause::Filtered, (frames.len() - passing.len()) as u32);
        self.scratch.passing = passing;
        delivery
    }

    /// Writes frames of the batch into the guest's buffers.
    fn put_all(&mut self, batch: &Batch, frames: &[u16]) -> Delivery {
        if self.is_stopped() {
            return Delivery::dropped(DropCause::RingStopped, frames.len());
        }
        let (mut done, mut delivery) = (0, Delivery::default());
        if batch.is_single() && !batch.is_unfinished() && self.fault.is_none() && self.log.is_none() {
            let singles = take_singles::<true>(&mut self.ring, &mut self.scratch.singles, frames.len());
            let bytes;
            (done, bytes) = match self.header_bytes {
                NET_HEADER_BYTES => put_listed::<NET_HEADER_BYTES>(&mut self.ring, batch, frames, singles),
                _ => put_listed::<SHORT_NET_HEADER_BYTES>(&mut self.ring, batch, frames, singles),
            };
            self.ring.put_back((singles.len() - done) as u16);
            (delivery.frames, delivery.bytes) = (done as u32, bytes);
        }
        for &frame in frames.get(done..).unwrap_or(&[]) {
            let number = usize::from(frame);
            delivery.count(self.put(batch.frame(number), batch.meta(number).unfinished));
        }
        delivery
    }

    /// Writes one frame. Returns its length, bytes.
    #[inline]
    fn put(&mut self, fragments: &[Fragment], unfinished: Unfinished) -> Result<u64, DropCause> {
        if self.fault.is_some() {
            return Err(DropCause::RingStopped);
        }
        let frame_bytes: usize = fragments.iter().map(Fragment::len).sum();
        let total = self.header_bytes + frame_bytes;
        let Scratch { segments, merged, .. } = &mut self.scratch;
        segments.clear();
        merged.clear();
        let mut room = 0;
        let failure = loop {
            let before = segments.len();
            match self.ring.take(BufferAccess::Write, segments) {
                Ok(true) => {
                    let bytes: usize = segments
                        .get(before..)
                        .unwrap_or(&[])
                        .iter()
                        .map(|segment| segment.bytes as usize)
                        .sum();
                    merged.push(bytes as u32);
                    room += bytes;
                    if room >= total {
                        break None;
                    }
                    if !self.is_mergeable
                        || merged.len() == MAX_MERGED
                        || segments.len() > BATCH_FRAMES
                        || bytes == 0
                    {
                        break Some(DropCause::TooLong);
                    }
                }
                Ok(false) => break Some(DropCause::NoSpace),
                Err(fault) => {
                    self.fail(fault);
                    return Err(DropCause::RingStopped);
                }
            }
        };
        if let Some(cause) = failure {
            self.ring.put_back(merged.len() as u16);
            return Err(cause);
        }
        write_frame(segments, fragments, self.header_bytes, unfinished, merged.len() as u16);
        let mut left = total as u32;
        self.ring.give_back_all(merged.iter().map(|&bytes| {
            let written = left.min(bytes);
            left -= written;
            written
        }));
        if let Some(log) = &self.log {
            let mut left = total as u32;
            for segment in segments.iter() {
                let written = left.min(segment.bytes);
                left -= written;
                log.wrote(segment.guest, written);
            }
        }
        Ok(frame_bytes as u64)
    }

    /// Publishes the returned buffers to the guest, and wakes it if it requests that. Returns whether it was woken.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        if !self.ring.is_unpublished() {
            return false;
        }
        let log = self.log.as_ref().filter(|_| self.logs_ring);
        let wanted = self.ring.publish(|guest, bytes| {
            if let Some(log) = log {
                log.wrote(guest, bytes);
            }
        });
        match &self.call {
            Some(call) if wanted => {
                call.ring();
                true
            }
            _ => false,
        }
    }
}

/// Takes up to `most` buffers of one segment each, for reading or for writing (`WRITE`).
#[inline(never)]
fn take_singles<'a, const WRITE: bool>(
    ring: &mut DeviceRing,
    segments: &'a mut [SgEntry],
    most: usize,
) -> &'a [SgEntry] {
    let access = if WRITE { BufferAccess::Write } else { BufferAccess::Read };
    let most = most.min(segments.len());
    let taken = ring.take_singles(access, segments.get_mut(..most).unwrap_or(&mut []));
    segments.get(..taken).unwrap_or(&[])
}

/// Appends frames of one segment each, up to the first that needs the general path. Returns their number.
#[inline(never)]
fn push_singles<const HEADER_BYTES: usize>(
    batch: &mut Batch,
    singles: &[SgEntry],
    reads_offloads: bool,
) -> usize {
    batch.push_each(singles, |single| {
        if !(HEADER_BYTES + 1..=FRAGMENT_BYTES).contains(&(single.bytes as usize)) {
            return None;
        }
        let bytes = bytes_of(single);
        if reads_offloads && !bytes.read_array().is_some_and(Unfinished::is_nothing_behind) {
            return None;
        }
        // SAFETY: the ring keeps the memory mapped, and the buffer is not given back to the guest before its release.
        Some(unsafe { Fragment::new(&bytes.skip(HEADER_BYTES), 0) })
    })
}

/// Writes frames as [`put_singles`] does: those of the batch with the indexes `frames`.
#[inline]
fn put_listed<const HEADER_BYTES: usize>(
    ring: &mut DeviceRing,
    batch: &Batch,
    frames: &[u16],
    singles: &[SgEntry],
) -> (usize, u64) {
    if batch.is_whole(frames) {
        return put_singles::<HEADER_BYTES>(ring, batch.fragments().iter().zip(singles));
    }
    let fragments = frames.iter().map_while(|&frame| batch.fragment(frame.into()));
    put_singles::<HEADER_BYTES>(ring, fragments.zip(singles))
}

/// Writes frames of one fragment each into buffers of one segment each, up to the first that does not fit. Returns
/// their number and the sum of their lengths, bytes.
#[inline(never)]
fn put_singles<'a, const HEADER_BYTES: usize>(
    ring: &mut DeviceRing,
    frames: impl Iterator<Item = (&'a Fragment, &'a SgEntry)>,
) -> (usize, u64) {
    let header = Unfinished::default().to_long_header(1);
    let header = *header.first_chunk::<HEADER_BYTES>().unwrap_or(&[0; HEADER_BYTES]);
    let (mut count, mut total) = (0, 0);
    ring.give_back_all(frames.map_while(|(fragment, single)| {
        let written = HEADER_BYTES + fragment.len();
        if written > single.bytes as usize {
            return None;
        }
        let mut bytes = bytes_of(single);
        bytes.write_array(header);
        bytes.skip(HEADER_BYTES).copy_from(&fragment.bytes());
        count += 1;
        total += fragment.len() as u64;
        Some(written as u32)
    }));
    (count, total)
}

/// Appends the frame in `pieces` behind its header. Returns the number of its slots; `None` if the batch has no room.
#[inline]
fn push_frame(
    batch: &mut Batch,
    pieces: &[SgEntry],
    header_bytes: usize,
    reads_offloads: bool,
) -> Option<u16> {
    if !batch.has_room(pieces.len().max(1)) {
        return None;
    }
    let mut header = [0; NET_HEADER_BYTES];
    let mut read = 0;
    let mut pushed = 0;
    for (index, piece) in pieces.iter().enumerate() {
        let mut bytes = bytes_of(piece);
        if read < header_bytes {
            let own = bytes.read(header.get_mut(read..header_bytes).unwrap_or(&mut []));
            read += own;
            bytes = bytes.skip(own);
        }
        while !bytes.is_empty() {
            let is_last = index + 1 == pieces.len() && bytes.len() <= FRAGMENT_BYTES;
            let flags = if is_last { 0 } else { MORE_FRAGMENTS };
            // SAFETY: the ring keeps the memory mapped, and the buffer is not given back to the guest before its
            // release.
            batch.push(unsafe { Fragment::new(&bytes, flags) }, pushed == 0);
            pushed += 1;
            bytes = bytes.skip(FRAGMENT_BYTES);
        }
    }
    if pushed == 0 {
        // A frame without bytes behind its header is empty, and is dropped as too short. SAFETY: no byte is
        // dereferenced.
        batch.push(unsafe { Fragment::from_private(&[], 0) }, true);
        return Some(1);
    }
    if reads_offloads && let Some(header) = header.first_chunk::<VIRTIO_HEADER_BYTES>() {
        let unfinished = Unfinished::from_header(header);
        if !unfinished.is_nothing() {
            batch.describe(FrameMeta { unfinished, ..FrameMeta::default() });
        }
    }
    Some(pushed)
}

/// Writes a header and a frame into a guest's buffers, which have room for both.
#[inline]
fn write_frame(
    segments: &[SgEntry],
    fragments: &[Fragment],
    header_bytes: usize,
    unfinished: Unfinished,
    buffers: u16,
) {
    let header = unfinished.to_long_header(buffers);
    let header = header.get(..header_bytes).unwrap_or(&[]);
    if let ([segment], [fragment]) = (segments, fragments) {
        let mut bytes = bytes_of(segment);
        bytes.write(header);
        bytes.skip(header_bytes).copy_from(&fragment.bytes());
        return;
    }
    // SAFETY: the header outlives the loop, and nothing writes to it.
    let header = unsafe { Fragment::from_private(header, 0) };
    let mut gather = Gather::new(std::iter::once(&header).chain(fragments));
    for segment in segments {
        gather.fill(bytes_of(segment));
    }
}
