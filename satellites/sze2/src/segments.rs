//! Segments where they lie, one behind the other: each header is read once, checked, and stepped over.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use ringroad_ring::shared::{SharedBytes, prefetch_read};

use crate::memory::ChannelMemory;
use crate::segment::{ALIGNMENT, HEADER_BYTES, Kind, SegmentError, SegmentHeader, SegmentLayout, align};

/// How far ahead of the segment that is read the next ones are fetched into the cache, bytes: each one's place is known
/// from the one before, so the processor cannot look ahead by itself.
const PREFETCH_BYTES: usize = 1024;

/// Data of a buffer from the start of a segment on, up to the other side's pointer. The last segment is the one before
/// the buffer's end, behind which the next ones have other addresses, or before the first that is out of order.
#[derive(Debug)]
pub(crate) struct Segments<'memory> {
    next: NonNull<u8>,
    /// No segment begins here or behind: the end of the data or of the buffer.
    stop: NonNull<u8>,
    /// End of the data.
    end: NonNull<u8>,
    memory: PhantomData<&'memory ChannelMemory>,
}

/// A segment where it lies, checked.
#[derive(Debug)]
pub struct SegmentRef<'memory> {
    start: NonNull<u8>,
    layout: SegmentLayout,
    memory: PhantomData<&'memory ChannelMemory>,
}

impl<'memory> Segments<'memory> {
    /// In the `bytes` bytes from `start` on; none begins behind the first `begin_bytes` of them.
    ///
    /// # Safety
    /// The bytes stay mapped for `'memory`, `start` is on a border of 8, both lengths are multiples of 8, and
    /// `begin_bytes` is no more than `bytes`.
    #[inline]
    pub(crate) unsafe fn from_trusted_parts(start: NonNull<u8>, begin_bytes: usize, bytes: usize) -> Self {
        // SAFETY: within the bytes, or at their end.
        let stop = unsafe { start.add(begin_bytes) };
        // SAFETY: the end of the bytes.
        let end = unsafe { start.add(bytes) };
        Self { next: start, stop, end, memory: PhantomData }
    }

    /// Bytes of data from the next segment on.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.end.addr().get() - self.next.addr().get()
    }

    /// Steps over segments of this kind, and puts what `describe` makes of each into `segments`, from number `first`
    /// on. The last segment of the data or of the buffer is left. Returns how far `segments` are filled.
    #[inline(always)]
    pub(crate) fn describe_alike<T>(
        &mut self,
        kind: Kind,
        segments: &mut [MaybeUninit<T>],
        first: usize,
        describe: impl Fn(&SegmentRef<'memory>) -> T,
    ) -> usize {
        let mut filled = first;
        if self.next >= self.stop {
            return filled;
        }
        while let Some(segment) = segments.get_mut(filled) {
            let Some(layout) = kind.layout(self.header()) else { break };
            // As `occupied_bytes`, but the sum in front of the frame is needed anyway.
            let frame = self.next.addr().get() + layout.frame_offset;
            if frame + align(layout.frame_bytes) >= self.stop.addr().get() {
                break;
            }
            segment.write(describe(&self.step(layout)));
            filled += 1;
        }
        filled
    }

    /// The header of the next segment, of which there is one.
    #[inline(always)]
    fn header(&self) -> SegmentHeader {
        prefetch_read(self.next.as_ptr().wrapping_add(PREFETCH_BYTES));
        // SAFETY: before the end of the data, all of which are mapped; on a border of 8. Even if another process writes
        // the header, an atomic load is one value.
        let header = unsafe { self.next.cast::<AtomicU32>().as_ref() }.load(Ordering::Relaxed);
        SegmentHeader::from_bytes(header.to_ne_bytes())
    }

    /// The next segment, checked to end where the data do, or before.
    #[inline(always)]
    fn step(&mut self, layout: SegmentLayout) -> SegmentRef<'memory> {
        let segment = SegmentRef { start: self.next, layout, memory: PhantomData };
        // SAFETY: as checked.
        self.next = unsafe { self.next.add(layout.occupied_bytes) };
        segment
    }
}

impl<'memory> Iterator for Segments<'memory> {
    type Item = Result<SegmentRef<'memory>, SegmentError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.stop {
            return None;
        }
        Some(self.header().layout(self.bytes()).map(|layout| self.step(layout)))
    }
}

impl<'memory> SegmentRef<'memory> {
    /// The frame.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> SharedBytes<'memory> {
        self.part(self.layout.frame_offset, self.layout.frame_bytes)
    }

    /// The other side's metadata.
    #[inline]
    #[must_use]
    pub fn metadata(&self) -> SharedBytes<'memory> {
        self.part(HEADER_BYTES, usize::from(self.layout.metadata_bytes))
    }

    /// The segment from its header to the end of its frame.
    #[inline]
    #[must_use]
    pub fn whole(&self) -> SharedBytes<'memory> {
        self.part(0, self.layout.frame_offset + self.layout.frame_bytes)
    }

    /// Bytes to give back for it.
    #[inline]
    #[must_use]
    pub fn occupied_bytes(&self) -> usize {
        self.layout.occupied_bytes
    }

    /// What segments like this one have in common.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        Kind::of(&self.layout)
    }

    /// A part that the layout names.
    #[inline]
    fn part(&self, offset: usize, bytes: usize) -> SharedBytes<'memory> {
        // SAFETY: the layout was checked, and none of its parts ends behind the data.
        let start = unsafe { self.start.add(offset) };
        // SAFETY: as above; the memory stays mapped for the lifetime.
        unsafe { SharedBytes::from_trusted_parts(start, bytes) }
    }
}

/// Room in a buffer for segments without metadata, one behind the other.
#[derive(Debug)]
pub(crate) struct SegmentRoom<'memory> {
    next: NonNull<u8>,
    end: NonNull<u8>,
    memory: PhantomData<&'memory ChannelMemory>,
}

impl<'memory> SegmentRoom<'memory> {
    /// All of these bytes.
    #[inline]
    pub(crate) fn new(bytes: SharedBytes<'memory>) -> Self {
        // SAFETY: the end of the bytes.
        let end = unsafe { bytes.start().add(bytes.len()) };
        Self { next: bytes.start(), end, memory: PhantomData }
    }

    /// Bytes that are left.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.end.addr().get() - self.next.addr().get()
    }

    /// Begins a segment: its header, zeros for the padding, and the place of its frame. `None` where there is no room,
    /// now or ever.
    #[inline(always)]
    pub(crate) fn begin(&mut self, frame_bytes: usize) -> Option<SharedBytes<'memory>> {
        let header = SegmentHeader::new(0, frame_bytes)?;
        let occupied = header.occupied_bytes();
        let start = self.next;
        if start.addr().get() + occupied > self.end.addr().get() {
            return None;
        }
        // SAFETY: there is room for this many bytes.
        self.next = unsafe { start.add(occupied) };
        // SAFETY: a segment has one word at least.
        let last = unsafe { self.next.sub(ALIGNMENT) };
        // The padding behind the frame, which goes over the rest: nothing of what lay there before is shown.
        // SAFETY: mapped, as a part of the room; an array has no alignment.
        unsafe { last.cast().write([0_u8; ALIGNMENT]) };
        // The length of the metadata, which is 0, and the padding before the frame are the upper bytes.
        let first = u64::from(header.segment_bytes).to_le_bytes();
        // SAFETY: as above.
        unsafe { start.cast().write(first) };
        // SAFETY: the header is within the segment.
        let frame = unsafe { start.add(ALIGNMENT) };
        // SAFETY: the frame is within the segment, which stays mapped.
        Some(unsafe { SharedBytes::from_trusted_parts(frame, frame_bytes) })
    }
}
