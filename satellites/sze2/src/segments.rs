//! Segments in memory, one after the other. Each header is read once, checked, and skipped.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use ringroad_ring::shared::{SharedBytes, prefetch_read};

use crate::memory::ChannelMemory;
use crate::segment::{ALIGNMENT, HEADER_BYTES, Kind, SegmentError, SegmentHeader, SegmentLayout, align};

/// Distance from the current segment at which the cache is prefetched, bytes. A segment gives the position of the next,
/// so the processor cannot prefetch by itself.
const PREFETCH_BYTES: usize = 1024;

/// Data of a buffer from the start of a segment up to the other side's pointer. The last segment is the last before the
/// end of the buffer, because later segments have other addresses, or the last before an invalid one.
#[derive(Debug)]
pub(crate) struct Segments<'memory> {
    next: NonNull<u8>,
    /// Limit of the start of segments: the end of the data or of the buffer.
    stop: NonNull<u8>,
    /// End of the data.
    end: NonNull<u8>,
    memory: PhantomData<&'memory ChannelMemory>,
}

/// A checked segment in memory.
#[derive(Debug)]
pub struct SegmentRef<'memory> {
    start: NonNull<u8>,
    layout: SegmentLayout,
    memory: PhantomData<&'memory ChannelMemory>,
}

impl<'memory> Segments<'memory> {
    /// Segments in the `bytes` bytes from `start` on. All begin within the first `begin_bytes` bytes.
    ///
    /// # Safety
    /// The bytes stay mapped for `'memory`, `start` and both lengths are multiples of 8, and `begin_bytes` is no more
    /// than `bytes`.
    #[inline]
    pub(crate) unsafe fn from_trusted_parts(start: NonNull<u8>, begin_bytes: usize, bytes: usize) -> Self {
        // SAFETY: the address is within the bytes, or at their end.
        let stop = unsafe { start.add(begin_bytes) };
        // SAFETY: the address is the end of the bytes.
        let end = unsafe { start.add(bytes) };
        Self { next: start, stop, end, memory: PhantomData }
    }

    /// Number of bytes of data from the next segment on.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.end.addr().get() - self.next.addr().get()
    }

    /// Reads segments of this kind, and puts the result of `describe` for each into `places`, from number `first` on.
    /// Stops before the last segment of the data or of the buffer. Returns the number of filled `places`.
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
            // The sum equals `occupied_bytes`. It is computed here because the frame's address is needed anyway.
            let frame = self.next.addr().get() + layout.frame_offset;
            if frame + align(layout.frame_bytes) >= self.stop.addr().get() {
                break;
            }
            segment.write(describe(&self.step(layout)));
            filled += 1;
        }
        filled
    }

    /// Header of the next segment, which must exist.
    #[inline(always)]
    fn header(&self) -> SegmentHeader {
        prefetch_read(self.next.as_ptr().wrapping_add(PREFETCH_BYTES));
        // SAFETY: the address is before the end of the data, all of which are mapped, and is a multiple of 8. Even if
        // another process writes the header, an atomic load is one value.
        let header = unsafe { self.next.cast::<AtomicU32>().as_ref() }.load(Ordering::Relaxed);
        SegmentHeader::from_bytes(header.to_ne_bytes())
    }

    /// Returns the next segment. `layout` was checked to end within the data.
    #[inline(always)]
    fn step(&mut self, layout: SegmentLayout) -> SegmentRef<'memory> {
        let segment = SegmentRef { start: self.next, layout, memory: PhantomData };
        // SAFETY: the segment was checked to end within the data.
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
    /// Bytes of the frame.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> SharedBytes<'memory> {
        self.part(self.layout.frame_offset, self.layout.frame_bytes)
    }

    /// Metadata from the other side.
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

    /// Number of bytes to give back for this segment.
    #[inline]
    #[must_use]
    pub fn occupied_bytes(&self) -> usize {
        self.layout.occupied_bytes
    }

    /// Kind of this segment.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        Kind::of(&self.layout)
    }

    /// The part at `offset` with `bytes` bytes, from the layout.
    #[inline]
    fn part(&self, offset: usize, bytes: usize) -> SharedBytes<'memory> {
        // SAFETY: the layout was checked, and none of its parts ends after the data.
        let start = unsafe { self.start.add(offset) };
        // SAFETY: as above; the memory stays mapped for the lifetime.
        unsafe { SharedBytes::from_trusted_parts(start, bytes) }
    }
}

/// Room in a buffer for segments without metadata, one after the other.
#[derive(Debug)]
pub(crate) struct SegmentRoom<'memory> {
    next: NonNull<u8>,
    end: NonNull<u8>,
    memory: PhantomData<&'memory ChannelMemory>,
}

impl<'memory> SegmentRoom<'memory> {
    /// Room of all these bytes.
    #[inline]
    pub(crate) fn new(bytes: SharedBytes<'memory>) -> Self {
        // SAFETY: the address is the end of the bytes.
        let end = unsafe { bytes.start().add(bytes.len()) };
        Self { next: bytes.start(), end, memory: PhantomData }
    }

    /// Number of bytes that are left.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.end.addr().get() - self.next.addr().get()
    }

    /// Begins a segment: writes its header and zeros for the padding, and returns the bytes for its frame. `None` if
    /// there is no room, now or ever.
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
        // SAFETY: a segment has at least one word.
        let last = unsafe { self.next.sub(ALIGNMENT) };
        // The last word holds the padding, and the caller writes the frame over the rest. So the other side sees no old
        // bytes.
        // SAFETY: the word is mapped, as a part of the room; an array has no alignment.
        unsafe { last.cast().write([0_u8; ALIGNMENT]) };
        // The upper bytes are the length of the metadata, which is 0, and the padding before the frame.
        let first = u64::from(header.segment_bytes).to_le_bytes();
        // SAFETY: as above, for the first word.
        unsafe { start.cast().write(first) };
        // SAFETY: the header is within the segment.
        let frame = unsafe { start.add(ALIGNMENT) };
        // SAFETY: the frame is within the segment, which stays mapped.
        Some(unsafe { SharedBytes::from_trusted_parts(frame, frame_bytes) })
    }
}
