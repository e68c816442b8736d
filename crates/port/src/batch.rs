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

/// Maximum number of frames in a batch.
pub const BATCH_FRAMES: usize = 256;

/// Frame numbers 0, 1, 2, ..., in order.
static NUMBERS: [u16; BATCH_FRAMES] = {
    let mut numbers = [0; BATCH_FRAMES];
    let mut number = 0;
    while number < BATCH_FRAMES {
        numbers[number] = number as u16;
        number += 1;
    }
    numbers
};

/// Use of a batch's buffers by a destination in the same region, instead of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Custody {
    /// The destination reads the buffers until it reports that it is done ([`crate::port_queue::Lend::returned`]). Then
    /// the source's slots go back to the program unchanged.
    Lend,
    /// The destination keeps the buffers, and gives one of its own for each.
    Give,
}

/// Metadata of a frame. It goes with the frame, also to other workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameMeta {
    /// Arrival time of the frame, ns since the Unix epoch; 0 if unknown.
    pub timestamp_ns: u64,
    /// Open tasks of the frame.
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
    /// Whether any frame is unfinished.
    is_unfinished: bool,
    /// Whether the arrival time of any frame is known.
    is_stamped: bool,
    /// Number of slots without a byte of a frame: they hold only a header that the source removed.
    skipped: usize,
    /// Marks of the frames with more than one destination.
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

    /// Empties the batch, and sets the number of frames (at most [`BATCH_FRAMES`]) that the next receive may borrow.
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

    /// Sets the region of the only destination of all frames, so that a source in this region can lend its buffers.
    #[inline]
    pub fn set_taker(&mut self, region: Option<RegionId>) {
        self.taker = region;
    }

    /// Region of the only destination; `None` if there are several destinations, or the destination has no region.
    #[inline]
    #[must_use]
    pub fn taker(&self) -> Option<RegionId> {
        self.taker
    }

    /// Offers the buffers of the following frames, whose fragments then name them ([`Fragment::in_buffer`]).
    #[inline]
    pub fn offer(&mut self, region: RegionId, custody: Custody) {
        self.offer = Some((region, custody));
    }

    /// Whether a destination in `region` may read the buffers in place and return them later.
    #[inline]
    #[must_use]
    pub fn lends_to(&self, region: RegionId) -> bool {
        self.offer == Some((region, Custody::Lend))
    }

    /// Whether a destination in `region` may keep buffers, and give buffers of its own for them.
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

    /// Sets the metadata of `frame`; no later frame has metadata yet.
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

    /// Metadata of each frame; `None` if some frame has none.
    #[inline]
    #[must_use]
    pub fn metas(&self) -> Option<&[FrameMeta]> {
        (self.metas.len() == self.frames()).then_some(&self.metas)
    }

    /// Whether the arrival time of some frame is known.
    #[inline]
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.is_stamped
    }

    /// Whether some frame is unfinished: then only queues that take such frames
    /// ([`crate::port_queue::PortQueue::takes_unfinished`]) may get the batch.
    #[inline]
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Counts a borrowed slot that holds no part of a frame for the datapath; it is released with the other slots.
    #[inline]
    pub fn skip_slot(&mut self) {
        self.skipped += 1;
    }

    /// Number of borrowed slots, which are released when all frames are done.
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

    /// Whether each frame is one fragment, with the same number as the frame.
    #[inline]
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.frame_starts.is_empty()
    }

    /// Numbers of the fragments of `frame`.
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

    /// Index of the buffer of fragment `fragment` in the offered region; 0, which no frame uses, if no region is
    /// offered.
    #[inline]
    #[must_use]
    pub fn buffer(&self, fragment: usize) -> u32 {
        self.fragments.get(fragment).map_or(0, Fragment::buffer)
    }

    /// Replaces the buffer of fragment `fragment`, which the destination keeps, by `instead`.
    #[inline]
    pub fn exchange(&mut self, fragment: usize, instead: u32) {
        if let Some(fragment) = self.fragments.get_mut(fragment) {
            *fragment = fragment.in_buffer(instead);
        }
    }

    /// Fragments, for exchanges of their buffers as by [`Batch::exchange`].
    #[inline]
    pub fn exchange_buffers(&mut self) -> &mut [Fragment] {
        &mut self.fragments
    }

    /// Maximum number of frames in this batch.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of frames that the next receive may still borrow, if their fragments fit.
    #[inline]
    #[must_use]
    pub fn frame_room(&self) -> usize {
        self.capacity - self.frames()
    }

    /// Number of frames of one fragment that still fit.
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

    /// Appends frames of one fragment each, at most [`Batch::single_room`]; takes no more from the iterator. Returns
    /// their number.
    #[inline]
    pub fn push_all(&mut self, mut frames: impl Iterator<Item = Fragment>) -> usize {
        const ASK: [(); BATCH_FRAMES + MAX_FRAGMENTS] = [(); BATCH_FRAMES + MAX_FRAGMENTS];
        self.push_each(&ASK, |()| frames.next())
    }

    /// Works as [`Self::push_all`], with the metadata of each frame.
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
        // SAFETY: this many entries after the last were written just now.
        unsafe { metas.set_len(described + pushed) };
        self.metas = metas;
        self.is_stamped |= times != 0;
        self.is_unfinished |= is_unfinished;
        pushed
    }

    /// Appends a frame of one fragment for each of `sources`, at most [`Batch::single_room`], until `fragment` returns
    /// `None`. Returns their number.
    #[inline]
    pub fn push_each<S>(&mut self, sources: &[S], mut fragment: impl FnMut(&S) -> Option<Fragment>) -> usize {
        let (before, room) = (self.fragments.len(), self.single_room());
        let spare = self.fragments.spare_capacity_mut().get_mut(..room).unwrap_or(&mut []);
        let (mut pushed, mut extents) = (0, 0);
        // Zipped slices need only one counter.
        for (target, source) in spare.iter_mut().zip(sources) {
            let Some(fragment) = fragment(source) else { break };
            debug_assert!(!fragment.has_more());
            extents += fragment.slot().extent();
            target.write(fragment);
            pushed += 1;
        }
        // SAFETY: this many entries after the last fragment were written just now.
        unsafe { self.fragments.set_len(before + pushed) };
        self.bytes += SlotWord::extent_bytes(extents);
        if !self.is_single() {
            self.note_frame_starts(before, pushed);
        }
        pushed
    }

    /// Notes that each of `count` fragments from `first` on is a frame. A separate function, so that the loop over
    /// frames of one fragment has all registers.
    // Apart, so that the loop over frames of one fragment has the registers to itself.
    #[cold]
    fn note_frame_starts(&mut self, first: usize, count: usize) {
        self.frame_starts.extend(first as u16..(first + count) as u16);
    }

    /// Notes the first fragment of each frame, once a frame has several fragments.
    fn note_frame_start(&mut self, first: bool) {
        if self.is_single() {
            self.frame_starts.extend(0..self.fragments.len() as u16);
        }
        if first {
            self.frame_starts.push(self.fragments.len() as u16);
        }
    }

    /// Drops the fragments from `fragments` on: those of an incomplete frame.
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

    /// Fragments of frame `frame`; empty if there is no such frame.
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

    /// Copies the first bytes of frame `frame`, as many as `into` has room for. Returns their number.
    #[inline]
    pub fn read(&self, frame: usize, into: &mut [u8]) -> usize {
        let mut read = 0;
        for fragment in self.frame(frame) {
            if read == into.len() {
                break;
            }
            read += fragment.bytes().read(into.get_mut(read..).unwrap_or_default());
        }
        read
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

    /// Sum of the lengths of the listed frames, bytes.
    #[inline]
    #[must_use]
    pub fn bytes_of_listed(&self, frames: &[u16]) -> u64 {
        match self.is_whole(frames) {
            true => self.bytes,
            false => frames.iter().map(|&frame| self.frame_bytes(frame.into()) as u64).sum(),
        }
    }

    /// Numbers of these frames, as a list for [`crate::port_queue::PortQueue::deliver`].
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
        // The loop has no early end, so that several numbers are compared at once.
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
                // SAFETY: constants live for ever.
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
        // SAFETY: constants live for ever.
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
