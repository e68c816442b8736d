//! Writing side of a buffer: the card in a receive buffer, the program in a transmit buffer.

use core::sync::atomic::{AtomicU32, Ordering};
use std::mem::MaybeUninit;
use std::sync::Arc;

use ringroad_ring::shared::SharedBytes;
use ringroad_ring::wakeup::{Kicker, publish_fence};

use crate::control_page::Line;
use crate::fault::ChannelFault;
use crate::memory::ChannelMemory;
use crate::segment::{ALIGNMENT, HEADER_BYTES, SegmentHeader, align};
use crate::segments::SegmentRoom;

/// Side of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelSide {
    /// The card.
    Card,
    Program,
}

impl ChannelSide {
    /// Line of this side and line of the other side.
    #[inline]
    pub(crate) fn lines(self, memory: &ChannelMemory) -> (&Line, &Line) {
        let page = memory.control();
        match self {
            Self::Card => (&page.hardware, &page.software),
            Self::Program => (&page.software, &page.hardware),
        }
    }
}

/// Checks a pointer of the other side, which may only have advanced from `from` up to `to`.
#[inline]
pub(crate) fn checked(pointer: u64, from: u64, to: u64, size: u64) -> Result<u64, ChannelFault> {
    let mask = size - 1;
    let is_possible = pointer < size
        && pointer.is_multiple_of(ALIGNMENT as u64)
        && (pointer.wrapping_sub(from) & mask) <= (to.wrapping_sub(from) & mask);
    if is_possible { Ok(pointer) } else { Err(ChannelFault::Pointer { pointer, from, to, size }) }
}

/// Writer of segments. [`SegmentWriter::publish`] shows its segments to the other side.
#[derive(Debug)]
pub struct SegmentWriter {
    memory: Arc<ChannelMemory>,
    side: ChannelSide,
    /// Offset of the next segment.
    at: u64,
    /// Offset up to which the other side may read.
    published: u64,
    /// Offset of the first byte that is not given back: the other side's pointer when last read.
    start: u64,
    kicker: Kicker,
}

impl SegmentWriter {
    /// Makes a writer from the start of a new buffer.
    #[must_use]
    pub fn new(memory: Arc<ChannelMemory>, side: ChannelSide) -> Self {
        Self { memory, side, at: 0, published: 0, start: 0, kicker: Kicker::default() }
    }

    /// Memory of the channel.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &Arc<ChannelMemory> {
        &self.memory
    }

    /// Offset of the next segment, bytes from the start of the buffer.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at
    }

    #[inline]
    fn free_bytes(&self) -> usize {
        let size = self.memory.buffer_bytes();
        let used = self.at.wrapping_sub(self.start) & (size - 1);
        // Equal pointers mean that there are no data, so 8 bytes stay free.
        size as usize - used as usize - ALIGNMENT
    }

    /// Number of free bytes, a multiple of 8. Loads the other side's pointer if fewer than `wanted` bytes are known to
    /// be free.
    ///
    /// # Errors
    /// [`ChannelFault::Pointer`].
    #[inline]
    pub fn room(&mut self, wanted: usize) -> Result<usize, ChannelFault> {
        if self.free_bytes() < wanted {
            let pointer = self.side.lines(&self.memory).1.pointer.load(Ordering::Acquire);
            self.start = checked(pointer, self.start, self.published, self.memory.buffer_bytes())?;
        }
        Ok(self.free_bytes())
    }

    /// Begins a segment with room for a frame of `frame_bytes` bytes, which the caller must write before publishing.
    /// `None` if there is no room. A frame longer than a segment can hold never has room.
    ///
    /// # Errors
    /// [`ChannelFault::Pointer`].
    #[inline]
    pub fn reserve(
        &mut self,
        metadata: &[u8],
        frame_bytes: usize,
    ) -> Result<Option<SharedBytes<'_>>, ChannelFault> {
        let Some(header) = SegmentHeader::new(metadata.len(), frame_bytes) else { return Ok(None) };
        let occupied = header.occupied_bytes();
        if self.room(occupied)? < occupied {
            return Ok(None);
        }
        let at = self.at;
        self.at = (at + occupied as u64) & (self.memory.buffer_bytes() - 1);
        if metadata.is_empty() {
            return Ok(SegmentRoom::new(self.memory.data(at, occupied)).begin(frame_bytes));
        }
        // The last word holds the padding, and the caller writes the frame over the rest. So the other side sees no old
        // bytes.
        self.memory.data(at + (occupied - ALIGNMENT) as u64, ALIGNMENT).write_array([0; ALIGNMENT]);
        let mut segment = self.memory.data(at, usize::from(header.segment_bytes));
        segment.write(&header.to_bytes());
        let frame_offset = align(HEADER_BYTES + metadata.len());
        let mut behind = segment.skip(HEADER_BYTES);
        let written = behind.write(metadata);
        Ok(Some(behind.skip(written).skip(frame_offset - HEADER_BYTES - written)))
    }

    /// Begins segments without metadata for frames of these lengths, as many as there are `places` and room for. Puts
    /// the result of `describe` for each frame into `places`. The caller must write the frames before publishing.
    /// Returns the number of segments.
    ///
    /// # Errors
    /// [`ChannelFault::Pointer`], if no segment was begun before it.
    #[inline(always)]
    pub fn reserve_burst<T>(
        &mut self,
        lengths: &[u32],
        segments: &mut [MaybeUninit<T>],
        describe: impl Fn(SharedBytes<'_>) -> T,
    ) -> Result<usize, ChannelFault> {
        let reserved = self.reserve_known(lengths, segments, 0, &describe);
        if reserved == lengths.len() {
            return Ok(reserved);
        }
        self.reserve_rest(lengths, segments, reserved, describe)
    }

    /// Continues [`Self::reserve_burst`] from number `reserved` on. The next frame has no known room, or is too long.
    #[inline(never)]
    fn reserve_rest<T>(
        &mut self,
        lengths: &[u32],
        segments: &mut [MaybeUninit<T>],
        mut reserved: usize,
        describe: impl Fn(SharedBytes<'_>) -> T,
    ) -> Result<usize, ChannelFault> {
        while let (Some(segment), Some(&length)) = (segments.get_mut(reserved), lengths.get(reserved)) {
            match self.reserve(&[], length as usize) {
                Ok(Some(frame)) => segment.write(describe(frame)),
                Err(fault) if reserved == 0 => return Err(fault),
                _ => break,
            };
            reserved = self.reserve_known(lengths, segments, reserved + 1, &describe);
        }
        Ok(reserved)
    }

    /// Continues [`Self::reserve_burst`] from number `reserved` on, in the known room. Returns the number of filled
    /// `segments`.
    #[inline(always)]
    fn reserve_known<T>(
        &mut self,
        lengths: &[u32],
        segments: &mut [MaybeUninit<T>],
        mut reserved: usize,
        describe: impl Fn(SharedBytes<'_>) -> T,
    ) -> usize {
        let known_bytes = self.free_bytes();
        let mut room = SegmentRoom::new(self.memory.data(self.at, known_bytes));
        let free = segments.get_mut(reserved..).unwrap_or_default();
        for (segment, &length) in free.iter_mut().zip(lengths.get(reserved..).unwrap_or_default()) {
            let Some(frame) = room.begin(length as usize) else { break };
            segment.write(describe(frame));
            reserved += 1;
        }
        let used = (known_bytes - room.bytes()) as u64;
        self.at = (self.at + used) & (self.memory.buffer_bytes() - 1);
        reserved
    }

    /// Advances by `bytes` bytes, which the caller wrote as whole segments. Returns `false`, and does not advance, if
    /// fewer bytes are free, or `bytes` is not a multiple of 8.
    ///
    /// # Errors
    /// [`ChannelFault::Pointer`]; the writer does not advance.
    pub fn skip(&mut self, bytes: usize) -> Result<bool, ChannelFault> {
        if !bytes.is_multiple_of(ALIGNMENT) || self.room(bytes)? < bytes {
            return Ok(false);
        }
        self.at = (self.at + bytes as u64) & (self.memory.buffer_bytes() - 1);
        Ok(true)
    }

    /// Shows the other side the written segments. Returns `true` if that side sleeps and needs a wake-up, once per
    /// sleep.
    #[inline]
    #[must_use]
    pub fn publish(&mut self) -> bool {
        if self.published == self.at {
            return false;
        }
        self.published = self.at;
        let (own, other) = self.side.lines(&self.memory);
        own.pointer.store(self.at, Ordering::Release);
        publish_fence();
        self.kicker.needs_kick(&other.sleeping)
    }

    /// Flag by which this side announces that it sleeps ([`ringroad_ring::wakeup::Sleeper`]).
    #[must_use]
    pub fn sleep_flag(&self) -> &AtomicU32 {
        &self.side.lines(&self.memory).0.sleeping
    }

    /// Whether all published bytes were given back.
    ///
    /// # Errors
    /// [`ChannelFault::Pointer`].
    #[cfg(test)]
    pub(crate) fn is_drained(&mut self) -> Result<bool, ChannelFault> {
        self.room(usize::MAX)?;
        Ok(self.start == self.published)
    }
}
