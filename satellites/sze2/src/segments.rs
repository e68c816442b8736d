//! Segments where they lie, one behind the other: each header is read once, checked, and stepped over.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};
use std::marker::PhantomData;
use std::ptr::NonNull;

use ringroad_ring::shared::{SharedBytes, prefetch_read};

use crate::memory::ChannelMemory;
use crate::segment::{HEADER_BYTES, Header, Layout, SegmentError};

/// How far ahead of the segment that is read the next ones are fetched into the cache, bytes: each one's place is known
/// from the one before, so the processor cannot look ahead by itself.
const PREFETCH_BYTES: usize = 1024;

/// Data of a buffer from the start of a segment on, as the other side's pointer says. The last segment is the one before
/// the buffer's end, behind which the next ones have other addresses, or before the first that is out of order.
#[derive(Debug)]
pub(crate) struct Segments<'memory> {
    next: NonNull<u8>,
    /// No segment begins here or behind: the end of the data or of the buffer.
    stop: NonNull<u8>,
    /// Data from the next segment on.
    bytes: usize,
    memory: PhantomData<&'memory ChannelMemory>,
}

/// A segment where it lies, checked.
#[derive(Debug)]
pub struct SegmentPlace<'memory> {
    start: NonNull<u8>,
    layout: Layout,
    memory: PhantomData<&'memory ChannelMemory>,
}

impl<'memory> Segments<'memory> {
    /// In `data`, of which the first `begin_bytes` bytes are those where segments may begin.
    ///
    /// # Safety
    /// `data` begin on a border of 8, and both lengths are multiples of 8.
    #[inline]
    pub(crate) unsafe fn from_trusted_parts(data: SharedBytes<'memory>, begin_bytes: usize) -> Self {
        let bytes = data.len();
        // SAFETY: no range of bytes begins at NULL.
        let next = unsafe { NonNull::new_unchecked(data.as_ptr()) };
        // SAFETY: within the data, or at their end.
        let stop = unsafe { next.add(bytes.min(begin_bytes)) };
        Self { next, stop, bytes, memory: PhantomData }
    }

    /// Bytes of data from the next segment on.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<'memory> Iterator for Segments<'memory> {
    type Item = Result<SegmentPlace<'memory>, SegmentError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.stop {
            return None;
        }
        prefetch_read(self.next.as_ptr().wrapping_add(PREFETCH_BYTES));
        // SAFETY: before the end of the data, all of which are mapped; on a border of 8. Whoever else writes the header,
        // an atomic load is one value.
        let header = unsafe { self.next.cast::<AtomicU32>().as_ref() }.load(Ordering::Relaxed);
        let layout = match Header::from_bytes(header.to_ne_bytes()).layout(self.bytes) {
            Ok(layout) => layout,
            Err(error) => return Some(Err(error)),
        };
        let segment = SegmentPlace { start: self.next, layout, memory: PhantomData };
        // SAFETY: the layout was checked to end where the data do, or before.
        self.next = unsafe { self.next.add(layout.occupied_bytes) };
        self.bytes -= layout.occupied_bytes;
        Some(Ok(segment))
    }
}

impl<'memory> SegmentPlace<'memory> {
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

    /// A part that the layout names.
    #[inline]
    fn part(&self, offset: usize, bytes: usize) -> SharedBytes<'memory> {
        // SAFETY: the layout was checked, and none of its parts ends behind the data.
        let start = unsafe { self.start.add(offset) };
        // SAFETY: as above; the memory stays mapped for the lifetime.
        unsafe { SharedBytes::from_trusted_parts(start, bytes) }
    }
}
