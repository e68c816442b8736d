//! A batch: up to [`BATCH_FRAMES`] frames borrowed from one queue.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;

use ringroad_ring::layout::MAX_FRAGMENTS;
use ringroad_ring::region::RegionId;
use ringroad_ring::shared::SlotWord;

use crate::frame::Fragment;
use crate::offload::Unfinished;

/// Most frames in a batch.
pub const BATCH_FRAMES: usize = 256;

/// 0, 1, 2, ...
static NUMBERS: [u16; BATCH_FRAMES] = {
    let mut numbers = [0; BATCH_FRAMES];
    let mut number = 0;
    while number < BATCH_FRAMES {
        numbers[number] = number as u16;
        number += 1;
    }
    numbers
};

/// The use that a destination in the same region may make of a batch's buffers instead of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Custody {
    /// Read them until it reports that it is done ([`crate::port_queue::Lend::returned`]): the source's slots come back
    /// to the program as they were.
    Lend,
    /// Keep them, giving one of its own for each.
    Give,
}

/// A frame's metadata. It goes with the frame, to other workers too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameMeta {
    /// Arrival time of the frame, ns since the Unix epoch; 0 if unknown.
    pub timestamp_ns: u64,
    /// The open tasks.
    pub unfinished: Unfinished,
}

/// Frames borrowed from one queue, in order. Allocated once, reused for ever.
#[derive(Debug)]
pub struct Batch {
    fragments: Vec<Fragment>,
    /// Index in `fragments` of the first fragment of each frame; empty while each frame is one fragment.
    frame_starts: Vec<u16>,
    /// Metadata of each frame; shorter or empty if no later frame has any.
    metas: Vec<FrameMeta>,
    /// Whether something is left to do with any.
    is_unfinished: bool,
    /// Whether it is known of any when it came.
    is_stamped: bool,
    /// Slots that hold no byte of a frame, only what the source took off its front.
    skipped: usize,
    /// Frames noted as having more than one destination.
    replicated: Vec<bool>,
    offer: Option<(RegionId, Custody)>,
    taker: Option<RegionId>,
    bytes: u64,
    capacity: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self {
            fragments: Vec::with_capacity(BATCH_FRAMES + MAX_FRAGMENTS),
            frame_starts: Vec::with_capacity(BATCH_FRAMES),
            metas: Vec::with_capacity(BATCH_FRAMES),
            is_unfinished: false,
            is_stamped: false,
            skipped: 0,
            replicated: Vec::with_capacity(BATCH_FRAMES),
            offer: None,
            taker: None,
            bytes: 0,
            capacity: BATCH_FRAMES,
        }
    }

    /// Empties the batch and sets how many frames (at most [`BATCH_FRAMES`]) the next receive may borrow.
    #[inline]
    pub fn reset(&mut self, capacity: usize) {
        self.fragments.clear();
        self.frame_starts.clear();
        self.metas.clear();
        (self.is_unfinished, self.is_stamped, self.skipped) = (false, false, 0);
        self.replicated.clear();
        (self.offer, self.taker) = (None, None);
        self.bytes = 0;
        self.capacity = capacity.min(BATCH_FRAMES);
    }

    /// Sets the region of the only destination of all frames, so that a source there can lend its buffers.
    #[inline]
    pub fn set_taker(&mut self, region: Option<RegionId>) {
        self.taker = region;
    }

    /// The region of the one destination; `None` where there are several or it lies in none.
    #[inline]
    #[must_use]
    pub fn taker(&self) -> Option<RegionId> {
        self.taker
    }

    /// Offers the buffers of the frames that follow, whose fragments name them then ([`Fragment::in_buffer`]).
    #[inline]
    pub fn offer(&mut self, region: RegionId, custody: Custody) {
        self.offer = Some((region, custody));
    }

    /// Whether a destination in `region` may read the buffers where they lie and return them later.
    #[inline]
    #[must_use]
    pub fn lends_to(&self, region: RegionId) -> bool {
        self.offer == Some((region, Custody::Lend))
    }

    /// Whether a destination in `region` may keep buffers for others of its own.
    #[inline]
    #[must_use]
    pub fn gives_to(&self, region: RegionId) -> bool {
        self.offer == Some((region, Custody::Give))
    }

    /// Whether the buffers are offered for reading.
    #[inline]
    #[must_use]
    pub fn lends(&self) -> bool {
        matches!(self.offer, Some((_, Custody::Lend)))
    }

    /// Whether the source offers buffers that a destination may keep.
    #[inline]
    #[must_use]
    pub fn gives(&self) -> bool {
        matches!(self.offer, Some((_, Custody::Give)))
    }

    /// Sets the metadata of the frame appended last, which must be complete.
    #[inline]
    pub fn describe(&mut self, meta: FrameMeta) {
        self.describe_frame(self.frames().saturating_sub(1), meta);
    }

    /// Sets the metadata of `frame`, behind which no frame has any yet.
    #[inline]
    pub fn describe_frame(&mut self, frame: usize, meta: FrameMeta) {
        if self.metas.len() != frame {
            self.metas.resize(frame, FrameMeta::default());
        }
        self.metas.push(meta);
        self.is_unfinished |= !meta.unfinished.is_nothing();
        self.is_stamped |= meta.timestamp_ns != 0;
    }

    /// The metadata of `frame`.
    #[inline]
    #[must_use]
    pub fn meta(&self, frame: usize) -> FrameMeta {
        self.metas.get(frame).copied().unwrap_or_default()
    }

    /// The metadata of each frame; `None` where some frame has none.
    #[inline]
    #[must_use]
    pub fn metas(&self) -> Option<&[FrameMeta]> {
        (self.metas.len() == self.frames()).then_some(&self.metas)
    }

    /// Whether metadata was set for some frame, even if it is "unknown".
    #[inline]
    #[must_use]
    pub fn has_meta(&self) -> bool {
        !self.metas.is_empty()
    }

    /// Whether it is known of some frame when it came.
    #[inline]
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.is_stamped
    }

    /// Whether something is left to do with some frame, so that only queues that take such frames
    /// ([`crate::port_queue::PortQueue::takes_unfinished`]) may be given the batch.
    #[inline]
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Counts a borrowed slot that is not part of a frame for the datapath, and is released with the others.
    #[inline]
    pub fn skip_slot(&mut self) {
        self.skipped += 1;
    }

    /// Slots borrowed: what is released when all frames are done with.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> usize {
        self.fragments.len() + self.skipped
    }

    /// Marks that several destinations get `frame`, so that none may keep its buffers.
    #[inline]
    pub fn set_replicated(&mut self, frame: usize) {
        if self.replicated.len() <= frame {
            self.replicated.resize(frame + 1, false);
        }
        if let Some(replicated) = self.replicated.get_mut(frame) {
            *replicated = true;
        }
    }

    /// Whether `frame` goes to one destination only.
    #[inline]
    #[must_use]
    pub fn is_sole(&self, frame: usize) -> bool {
        !self.replicated.get(frame).copied().unwrap_or(false)
    }

    /// Whether each frame goes to one destination only.
    #[inline]
    #[must_use]
    pub fn is_all_sole(&self) -> bool {
        self.replicated.is_empty()
    }

    /// Whether each frame is one fragment, whose number is the frame's.
    #[inline]
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.frame_starts.is_empty()
    }

    /// Which fragments make up `frame`.
    #[inline]
    #[must_use]
    pub fn fragments_of(&self, frame: usize) -> Range<usize> {
        if self.is_single() {
            let end = (frame + 1).min(self.fragments.len());
            return frame.min(end)..end;
        }
        let Some(&start) = self.frame_starts.get(frame) else { return 0..0 };
        let end = self.frame_starts.get(frame + 1).map_or(self.fragments.len(), |&next| usize::from(next));
        usize::from(start)..end
    }

    /// The buffer of fragment `fragment`, in the region offered: 0, which no frame uses, if none is offered.
    #[inline]
    #[must_use]
    pub fn buffer(&self, fragment: usize) -> u32 {
        self.fragments.get(fragment).map_or(0, Fragment::buffer)
    }

    /// Gives `instead` for the buffer of fragment `fragment`, which the destination keeps.
    #[inline]
    pub fn exchange(&mut self, fragment: usize, instead: u32) {
        if let Some(fragment) = self.fragments.get_mut(fragment) {
            *fragment = fragment.in_buffer(instead);
        }
    }

    /// The fragments, to exchange buffers of theirs: as [`Batch::exchange`], for several.
    #[inline]
    pub fn exchange_buffers(&mut self) -> &mut [Fragment] {
        &mut self.fragments
    }

    /// How many frames it may hold.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many more frames the next receive may borrow, as far as their fragments fit.
    #[inline]
    #[must_use]
    pub fn frame_room(&self) -> usize {
        self.capacity - self.frames()
    }

    /// How many more frames of one fragment fit.
    #[inline]
    #[must_use]
    pub fn single_room(&self) -> usize {
        self.frame_room().min(BATCH_FRAMES + MAX_FRAGMENTS - self.fragments.len())
    }

    /// Whether another frame of up to `fragments` fragments fits. A frame always fits into an empty batch.
    #[inline]
    #[must_use]
    pub fn has_room(&self, fragments: usize) -> bool {
        self.frames() < self.capacity && self.fragments.len() + fragments <= BATCH_FRAMES + MAX_FRAGMENTS
    }

    /// Appends a fragment; `first` begins a new frame. The driver has checked [`Batch::has_room`].
    #[inline]
    pub fn push(&mut self, fragment: Fragment, first: bool) {
        if first != self.is_single() {
            self.note_frame_start(first);
        }
        self.bytes += fragment.len() as u64;
        self.fragments.push(fragment);
    }

    /// Appends frames of one fragment each, at most [`Batch::single_room`]; no more are requested. Returns their
    /// number.
    #[inline]
    pub fn push_all(&mut self, mut frames: impl Iterator<Item = Fragment>) -> usize {
        const ASK: [(); BATCH_FRAMES + MAX_FRAGMENTS] = [(); BATCH_FRAMES + MAX_FRAGMENTS];
        self.push_each(&ASK, |()| frames.next())
    }

    /// As [`Self::push_all`], with the metadata of each.
    #[inline]
    pub fn push_described(&mut self, mut frames: impl Iterator<Item = (Fragment, FrameMeta)>) -> usize {
        let mut metas = std::mem::take(&mut self.metas);
        metas.resize(self.frames(), FrameMeta::default());
        let (described, mut times, mut is_unfinished) = (metas.len(), 0, false);
        let spare = Cell::from_mut(metas.spare_capacity_mut()).as_slice_of_cells();
        let pushed = self.push_each(spare, |target| {
            let (fragment, meta) = frames.next()?;
            times |= meta.timestamp_ns;
            is_unfinished |= !meta.unfinished.is_nothing();
            target.set(MaybeUninit::new(meta));
            Some(fragment)
        });
        // SAFETY: this many places after the last were written just now.
        unsafe { metas.set_len(described + pushed) };
        self.metas = metas;
        self.is_stamped |= times != 0;
        self.is_unfinished |= is_unfinished;
        pushed
    }

    /// Appends a frame of one fragment for each of `sources`, at most [`Batch::single_room`], up to the first that
    /// `fragment` gives none for. Returns their number.
    #[inline]
    pub fn push_each<S>(&mut self, sources: &[S], mut fragment: impl FnMut(&S) -> Option<Fragment>) -> usize {
        let (before, room) = (self.fragments.len(), self.single_room());
        let spare = self.fragments.spare_capacity_mut().get_mut(..room).unwrap_or(&mut []);
        let (mut pushed, mut extents) = (0, 0);
        // Pairs of slices: one counter for both.
        for (target, source) in spare.iter_mut().zip(sources) {
            let Some(fragment) = fragment(source) else { break };
            debug_assert!(!fragment.has_more());
            extents += fragment.slot().extent();
            target.write(fragment);
            pushed += 1;
        }
        // SAFETY: this many places after the last fragment were written just now.
        unsafe { self.fragments.set_len(before + pushed) };
        self.bytes += SlotWord::extent_bytes(extents);
        if !self.is_single() {
            self.note_frame_starts(before, pushed);
        }
        pushed
    }

    /// Notes that each of `count` fragments from `first` on is a frame.
    // Apart, so that the loop over frames of one fragment has the registers to itself.
    #[cold]
    fn note_frame_starts(&mut self, first: usize, count: usize) {
        self.frame_starts.extend(first as u16..(first + count) as u16);
    }

    /// Notes where the frames begin, once there is one of several fragments.
    fn note_frame_start(&mut self, first: bool) {
        if self.is_single() {
            self.frame_starts.extend(0..self.fragments.len() as u16);
        }
        if first {
            self.frame_starts.push(self.fragments.len() as u16);
        }
    }

    /// Drops the fragments from `fragments` on: a frame whose rest is not there.
    pub fn truncate(&mut self, fragments: usize) {
        for fragment in self.fragments.drain(fragments.min(self.fragments.len())..) {
            self.bytes -= fragment.len() as u64;
        }
        while self.frame_starts.last().is_some_and(|&start| usize::from(start) >= self.fragments.len()) {
            self.frame_starts.pop();
        }
        self.metas.truncate(self.frames());
    }

    /// Number of frames.
    #[inline]
    #[must_use]
    pub fn frames(&self) -> usize {
        if self.is_single() { self.fragments.len() } else { self.frame_starts.len() }
    }

    /// Number of fragments.
    #[inline]
    #[must_use]
    pub fn fragment_count(&self) -> usize {
        self.fragments.len()
    }

    /// Sum of all lengths, bytes (without FCS).
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The fragments of frame `frame`; empty where there is no such frame.
    #[inline]
    #[must_use]
    pub fn frame(&self, frame: usize) -> &[Fragment] {
        self.fragments.get(self.fragments_of(frame)).unwrap_or(&[])
    }

    /// Length of frame `frame`, bytes.
    #[inline]
    #[must_use]
    pub fn frame_bytes(&self, frame: usize) -> usize {
        self.frame(frame).iter().map(Fragment::len).sum()
    }

    /// Sum of the lengths of these frames, bytes.
    #[inline]
    #[must_use]
    pub fn bytes_of(&self, frames: Range<usize>) -> u64 {
        match frames.start == 0 && frames.end == self.frames() {
            true => self.bytes,
            false => frames.map(|frame| self.frame_bytes(frame) as u64).sum(),
        }
    }

    /// Sum of the lengths of the frames that a list names, bytes.
    #[inline]
    #[must_use]
    pub fn bytes_of_listed(&self, frames: &[u16]) -> u64 {
        match self.is_whole(frames) {
            true => self.bytes,
            false => frames.iter().map(|&frame| self.frame_bytes(frame.into()) as u64).sum(),
        }
    }

    /// The numbers of these frames: a list for [`crate::port_queue::PortQueue::deliver`].
    #[inline]
    #[must_use]
    pub fn numbers(frames: Range<usize>) -> &'static [u16] {
        NUMBERS.get(frames).unwrap_or(&[])
    }

    /// Whether `frames` are all frames of the batch, each once and in order.
    #[inline]
    #[must_use]
    pub fn is_whole(&self, frames: &[u16]) -> bool {
        if std::ptr::eq(frames.as_ptr(), NUMBERS.as_ptr()) {
            return frames.len() == self.frames();
        }
        // Without an early end, so that several are compared at once.
        let differs = |differs, (&frame, target)| differs | (frame ^ target);
        frames.len() == self.frames() && frames.iter().zip(0u16..).fold(0, differs) == 0
    }

    /// All fragments, in order.
    #[inline]
    #[must_use]
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// Fragment number `fragment` of the batch.
    #[inline]
    #[must_use]
    pub fn fragment(&self, fragment: usize) -> Option<&Fragment> {
        self.fragments.get(fragment)
    }

    /// The first fragment of frame `frame`, which holds its header.
    #[inline]
    #[must_use]
    pub fn first_fragment(&self, frame: usize) -> Option<&Fragment> {
        if self.is_single() {
            return self.fragments.get(frame);
        }
        self.frame_starts.get(frame).and_then(|&start| self.fragments.get(usize::from(start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch_of(frames: &[usize]) -> Batch {
        let mut batch = Batch::new();
        for &fragments in frames {
            for fragment in 0..fragments {
                // SAFETY: constants stay.
                batch.push(unsafe { Fragment::from_private(&[0; 60], 0) }, fragment == 0);
            }
        }
        batch
    }

    #[test]
    fn frames_of_one_fragment_and_of_several_are_found_in_one_batch() {
        let mut batch = batch_of(&[1, 1, 3, 1]);
        assert!(!batch.is_single());
        assert_eq!(
            (0..5).map(|frame| batch.fragments_of(frame)).collect::<Vec<_>>(),
            [0..1, 1..2, 2..5, 5..6, 0..0]
        );
        batch.truncate(2);
        assert_eq!((batch.frames(), batch.fragments_of(1), batch.bytes()), (2, 1..2, 120));
        batch.truncate(0);
        assert!(batch.is_single() && batch.frames() == 0);
    }

    #[test]
    fn frames_of_one_fragment_are_appended_behind_one_of_several_as_far_as_there_is_room() {
        let mut batch = batch_of(&[1, 2]);
        // SAFETY: constants stay.
        let frame = unsafe { Fragment::from_private(&[0; 60], 0) };
        assert_eq!(batch.push_all(std::iter::repeat_n(frame, 2)), 2);
        let fragments: Vec<_> = (0..4).map(|frame| batch.fragments_of(frame)).collect();
        assert_eq!((fragments, batch.bytes()), (vec![0..1, 1..3, 3..4, 4..5], 300));
        let mut more = std::iter::repeat_n(frame, BATCH_FRAMES);
        assert_eq!(batch.push_all(more.by_ref()), BATCH_FRAMES - 4);
        assert_eq!((batch.frames(), more.len()), (BATCH_FRAMES, 4), "what has no room stays");
    }

    #[test]
    fn a_list_with_a_frame_twice_is_not_the_whole_batch() {
        let batch = batch_of(&[1, 1, 1]);
        assert!(batch.is_whole(&[0, 1, 2]));
        for frames in [&[0, 1][..], &[0, 1, 1], &[1, 0, 2], &[0, 1, 2, 3]] {
            assert!(!batch.is_whole(frames), "{frames:?}");
        }
    }
}
