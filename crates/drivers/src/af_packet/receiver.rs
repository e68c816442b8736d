//! Receiving from a packet socket's ring: frames as they were on the wire, borrowed in place.
//!
//! A frame that the kernel hands on unfinished is finished here: its VLAN tag is put back and its checksum is filled
//! in. A long frame is segmented: each segment is a new header and a part of the frame in place.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;

use ringroad_port::batch::{Batch, FrameMeta};
use ringroad_port::frame::Fragment;
use ringroad_port::offload::{Cut, HEADER_ROOM_BYTES, Unfinished, VIRTIO_HEADER_BYTES};
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;

use super::ring::{Frame, PacketRing};
use super::socket;

/// Maximum length of a fragment, bytes.
const MAX_FRAGMENT_BYTES: usize = u16::MAX as usize;
/// Maximum number of borrowed headers of segments.
const HEADERS: usize = 512;
/// Maximum number of borrowed frames too long for a slot, and bytes of the buffer of each. A buffer holds the longest
/// frame that stacks make (`GSO_MAX_SIZE` of the kernel with headers), its offload header and a VLAN tag.
const LONG_FRAMES: usize = 16;
const LONG_FRAME_BYTES: usize = 65536 + 512;
const VLAN_TAG_BYTES: usize = 4;
/// Bytes of both addresses, which precede a VLAN tag.
const ADDRESSES_BYTES: usize = 12;

/// Location of a frame: in the ring, or in the buffers for long frames.
#[derive(Debug, Clone)]
struct FrameLocation {
    is_long: bool,
    range: Range<usize>,
}

/// Number of borrowed fragments of a frame that is not passed unchanged, and number of unchanged frames before it.
#[derive(Debug, Clone, Copy, Default)]
struct Lent {
    plain_before: u32,
    fragments: u32,
    /// Whether the frame is segmented: each segment has two fragments, and the first fragment is a new header.
    is_cut: bool,
    is_long: bool,
}

/// The receiving half of a queue.
#[derive(Debug)]
pub(super) struct Receiver<R> {
    ring: R,
    /// An entry for each frame taken from the ring that is not passed unchanged.
    lent: VecDeque<Lent>,
    /// Number of borrowed frames behind the last entry that are passed unchanged.
    plain_lent: u32,
    /// The last taken frame, until all its segments are made.
    cutting: Option<(Cut, FrameLocation, u64)>,
    headers: Vec<u8>,
    next_header: usize,
    headers_lent: usize,
    long_frames: Vec<u8>,
    next_long: usize,
    long_lent: usize,
    /// Whether frames are passed with their arrival time.
    timestamps: bool,
    /// Length of the longest expected frame, bytes.
    longest_bytes: usize,
    lost: u64,
}

impl<R: PacketRing> Receiver<R> {
    /// Receiver on `ring`. `longest_bytes` is the longest frame at the interface's MTU.
    pub(super) fn new(ring: R, longest_bytes: usize, timestamps: bool) -> Self {
        let lent = VecDeque::with_capacity(ring.most_taken());
        Self {
            ring,
            lent,
            plain_lent: 0,
            cutting: None,
            headers: vec![0; HEADERS * HEADER_ROOM_BYTES],
            next_header: 0,
            headers_lent: 0,
            // Pages that no long frame has touched take no memory.
            long_frames: vec![0; LONG_FRAMES * LONG_FRAME_BYTES],
            next_long: 0,
            long_lent: 0,
            timestamps,
            longest_bytes,
            lost: 0,
        }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        self.ring.socket()
    }

    /// Bytes of the ring's memory.
    pub(super) fn ring_bytes(&self) -> usize {
        self.ring.memory().bytes()
    }

    /// Length of the longest expected frame, bytes: that of the MTU, or of the longest frame so far.
    pub(super) fn longest_frame_bytes(&self) -> usize {
        self.longest_bytes
    }

    /// Whether there is a frame to take.
    pub(super) fn has_waiting(&mut self) -> bool {
        self.cutting.is_some() || (self.has_room() && self.ring.has_frame())
    }

    /// Whether there is certainly no frame to take.
    #[inline]
    pub(super) fn is_empty(&mut self) -> bool {
        self.cutting.is_none() && self.ring.is_empty()
    }

    /// Number of frames that are in the ring and not taken, also those that the kernel will hand over later.
    pub(super) fn hidden_frames(&self) -> u32 {
        self.ring.hidden_frames()
    }

    fn has_room(&self) -> bool {
        self.lent.len() < self.lent.capacity()
    }

    /// Number of frames lost before they could be passed on, since the last call.
    pub(super) fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.lost) + socket::take_drops(self.ring.socket()).unwrap_or(0)
    }

    /// Borrows frames into `batch`.
    pub(super) fn receive(&mut self, batch: &mut Batch) {
        loop {
            if self.cutting.is_none() {
                self.take_plain(batch);
                if self.ring.is_empty() {
                    return;
                }
            }
            if !self.take_other(batch) {
                return;
            }
        }
    }

    /// Borrows frames that are passed unchanged from the ring, as nearly all are, up to the first other frame.
    #[inline(never)]
    fn take_plain(&mut self, batch: &mut Batch) {
        let mut following = 0;
        let frames = self.ring.plain(self.longest_bytes.min(MAX_FRAGMENT_BYTES) as u32).map(|frame| {
            following = frame.following;
            // SAFETY: as in [`Self::give`].
            (unsafe { Fragment::from_private(frame.bytes(), 0) }, frame.timestamp_ns)
        });
        let frames = match self.timestamps {
            true => batch
                .push_described(frames.map(|(frame, timestamp_ns)| {
                    (frame, FrameMeta { timestamp_ns, ..FrameMeta::default() })
                })),
            false => batch.push_all(frames.map(|(frame, _)| frame)),
        } as u32;
        if frames != 0 {
            self.ring.take_plain(frames, following);
            self.plain_lent += frames;
        }
    }

    /// Takes the next frame of any kind, or continues to segment the current one, as far as there is room. Returns
    /// whether more can be taken.
    #[inline(never)]
    fn take_other(&mut self, batch: &mut Batch) -> bool {
        if self.cutting.is_none() {
            if batch.single_room() == 0 || !self.has_room() {
                return false;
            }
            let Some(frame) = self.ring.take(self.long_lent < LONG_FRAMES) else { return false };
            let plain_before = std::mem::take(&mut self.plain_lent);
            self.lent.push_back(Lent { plain_before, is_long: frame.is_copied, ..Lent::default() });
            let location = if frame.is_copied { self.take_long() } else { self.take_whole(&frame) };
            match location {
                Some((location, unfinished)) => self.give(batch, &frame, location, unfinished),
                None => self.lost += 1,
            }
        }
        self.cut(batch);
        self.hand_back();
        self.cutting.is_none()
    }

    /// Location and open work of the frame in the ring; `None` if a part of the frame is missing.
    #[inline]
    fn take_whole(&self, frame: &Frame) -> Option<(FrameLocation, Unfinished)> {
        if frame.range.len() < frame.len {
            return None;
        }
        let unfinished = Unfinished::from_header(self.ring.memory().offload_header(frame.range.start));
        Some((FrameLocation { is_long: false, range: frame.range.clone() }, unfinished))
    }

    /// Receives the next long frame from the socket's queue into a buffer.
    fn take_long(&mut self) -> Option<(FrameLocation, Unfinished)> {
        let start = self.next_long * LONG_FRAME_BYTES + VLAN_TAG_BYTES;
        let end = (self.next_long + 1) * LONG_FRAME_BYTES;
        self.next_long = (self.next_long + 1) % LONG_FRAMES;
        self.long_lent += 1;
        let room = self.long_frames.get_mut(start..end)?;
        let flags = rustix::net::RecvFlags::TRUNC | rustix::net::RecvFlags::DONTWAIT;
        let (kept, len) = rustix::net::recv(self.ring.socket(), &mut *room, flags).ok()?;
        if kept < len {
            return None;
        }
        let unfinished = Unfinished::from_header(room.get(..VIRTIO_HEADER_BYTES)?);
        let range = start + VIRTIO_HEADER_BYTES..start + len;
        Some((FrameLocation { is_long: true, range }, unfinished))
    }

    fn bytes(&self, location: &FrameLocation) -> &[u8] {
        bytes_at(&self.ring, &self.long_frames, location)
    }

    fn bytes_mut(&mut self, location: &FrameLocation) -> &mut [u8] {
        let range = location.range.clone();
        match location.is_long {
            true => self.long_frames.get_mut(range).unwrap_or(&mut []),
            false => self.ring.memory_mut().slice_mut(range),
        }
    }

    #[inline]
    fn give(
        &mut self,
        batch: &mut Batch,
        frame: &Frame,
        mut location: FrameLocation,
        mut unfinished: Unfinished,
    ) {
        if let Some(tag) = frame.tag {
            location = self.put_tag(location, tag);
            // Open work that cannot be shifted does not fit the frame, and is refused for that reason.
            unfinished = unfinished.shifted(VLAN_TAG_BYTES as isize).unwrap_or(unfinished);
        }
        if !unfinished.is_nothing() {
            if let Some(cut) = Cut::plan(self.bytes(&location), unfinished) {
                if let Some(lent) = self.lent.back_mut() {
                    lent.is_cut = true;
                }
                self.cutting = Some((cut, location, frame.timestamp_ns));
                return;
            }
            unfinished.complete_checksum(self.bytes_mut(&location));
        }
        let len = self.bytes(&location).len();
        if len == 0 || len > MAX_FRAGMENT_BYTES {
            self.lost += 1;
            return;
        }
        self.longest_bytes = self.longest_bytes.max(len);
        let bytes = self.bytes(&location);
        // SAFETY: the frame's memory in the ring or buffer is neither written nor handed back before `release` has
        // counted the fragment back.
        batch.push(unsafe { Fragment::from_private(bytes, 0) }, true);
        if self.timestamps {
            batch.describe(FrameMeta { timestamp_ns: frame.timestamp_ns, ..FrameMeta::default() });
        }
        if let Some(lent) = self.lent.back_mut() {
            lent.fragments = 1;
        }
    }

    /// Inserts a tag behind the addresses, which move towards the space that is before every frame.
    fn put_tag(&mut self, mut location: FrameLocation, tag: [u8; 4]) -> FrameLocation {
        location.range.start = location.range.start.saturating_sub(VLAN_TAG_BYTES);
        let bytes = self.bytes_mut(&location);
        if bytes.len() >= ADDRESSES_BYTES + VLAN_TAG_BYTES {
            bytes.copy_within(VLAN_TAG_BYTES..VLAN_TAG_BYTES + ADDRESSES_BYTES, 0);
            if let Some(field) = bytes.get_mut(ADDRESSES_BYTES..ADDRESSES_BYTES + VLAN_TAG_BYTES) {
                field.copy_from_slice(&tag);
            }
        }
        location
    }

    /// Passes segments of the last taken frame, as many as there is room for.
    fn cut(&mut self, batch: &mut Batch) {
        let Some((mut cut, location, timestamp_ns)) = self.cutting.take() else { return };
        while !cut.is_done() {
            if self.headers_lent == HEADERS || !batch.has_room(2) {
                self.cutting = Some((cut, location, timestamp_ns));
                return;
            }
            let start = self.next_header * HEADER_ROOM_BYTES;
            // The call borrows the frame's memory, and not `headers`, which is written below.
            let frame = bytes_at(&self.ring, &self.long_frames, &location);
            let Some(room) = self.headers.get_mut(start..start + HEADER_ROOM_BYTES) else { break };
            let Some((header_bytes, range)) = cut.next_segment(frame, room) else { break };
            self.longest_bytes = self.longest_bytes.max(header_bytes + range.len());
            let (header, payload) =
                (room.get(..header_bytes).unwrap_or(&[]), frame.get(range).unwrap_or(&[]));
            // SAFETY: this header is not written again before `release` has counted it back.
            batch.push(unsafe { Fragment::from_private(header, MORE_FRAGMENTS) }, true);
            // SAFETY: nor is the memory of the frame.
            batch.push(unsafe { Fragment::from_private(payload, 0) }, false);
            if self.timestamps {
                batch.describe(FrameMeta { timestamp_ns, ..FrameMeta::default() });
            }
            self.next_header = (self.next_header + 1) % HEADERS;
            self.headers_lent += 1;
            if let Some(lent) = self.lent.back_mut() {
                lent.fragments += 2;
            }
        }
        // A part of the frame could not be made into segments, so the frame counts as lost.
        self.lost += u64::from(!cut.is_done());
    }

    /// Takes back the `fragments` oldest borrowed fragments.
    pub(super) fn release(&mut self, mut fragments: usize) {
        while let Some(first) = self.lent.front_mut() {
            let plain = fragments.min(first.plain_before as usize);
            first.plain_before -= plain as u32;
            self.ring.hand_back(plain as u32);
            fragments -= plain;
            // The frame's own fragments come back after the unchanged frames before it.
            let own = fragments.min(first.fragments as usize);
            first.fragments -= own as u32;
            if first.is_cut {
                self.headers_lent = self.headers_lent.saturating_sub(own / 2);
            }
            fragments -= own;
            if !self.hand_back_first() {
                return;
            }
        }
        let plain = fragments.min(self.plain_lent as usize) as u32;
        self.plain_lent -= plain;
        self.ring.hand_back(plain);
    }

    /// Hands the first frames back to the kernel, up to a frame with a borrowed fragment.
    fn hand_back(&mut self) {
        while self.hand_back_first() {}
    }

    fn hand_back_first(&mut self) -> bool {
        let Some(first) = self.lent.front() else { return false };
        // The frame that is being segmented is the last entry.
        let is_cutting = self.lent.len() == 1 && self.cutting.is_some();
        if first.plain_before != 0 || first.fragments != 0 || is_cutting {
            return false;
        }
        self.long_lent -= usize::from(first.is_long);
        self.ring.hand_back(1);
        self.lent.pop_front();
        true
    }
}

/// The bytes of a frame in `ring` or in `long_frames`.
fn bytes_at<'memory>(
    ring: &'memory impl PacketRing,
    long_frames: &'memory [u8],
    location: &FrameLocation,
) -> &'memory [u8] {
    let range = location.range.clone();
    match location.is_long {
        true => long_frames.get(range).unwrap_or(&[]),
        false => ring.memory().slice(range),
    }
}
