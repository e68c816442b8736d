//! What the two kinds of receive ring have in common: memory that the kernel fills and this process empties, handed over
//! by status words (`PACKET_RX_RING`, linux/if_packet.h).
#![allow(unsafe_code)]

use std::io::{Error, Result};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use ringroad_port::offload::VIRTIO_HEADER_BYTES;
use ringroad_ring::shared::prefetch_read;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Most slots that a ring can be asked to have.
pub(super) const MAX_SLOTS: u32 = 65536;
/// Smallest and largest distance of slots, bytes.
const SLOT_BYTES: Range<usize> = 2048..16384;
/// Bytes of a slot before the frame: the kernel's header and address, its offload header, and alignment.
const OVERHEAD_BYTES: usize = 96;

/// Bytes of a slot for frames of `frame_bytes` bytes; longer ones than 16 KiB do not get one.
pub(super) fn slot_bytes(frame_bytes: usize) -> usize {
    (frame_bytes + OVERHEAD_BYTES).next_power_of_two().clamp(SLOT_BYTES.start, SLOT_BYTES.end)
}

/// A frame in a ring, as the kernel describes it.
#[derive(Debug, Clone, Default)]
pub(super) struct Frame {
    /// Length on the wire, bytes.
    pub(super) len: usize,
    /// Where the part that was kept lies in the ring's memory: all of it, or something is missing.
    pub(super) range: Range<usize>,
    /// The whole frame waits in the socket's queue instead, being too long for its slot.
    pub(super) is_copied: bool,
    /// When it came, ns since the Unix epoch.
    pub(super) timestamp_ns: u64,
    /// The VLAN tag that the kernel took out of it, as it was: type and tag.
    pub(super) tag: Option<[u8; 4]>,
}

/// A ring that gives frames in order and takes them back in the same order.
pub(super) trait Ring {
    fn socket(&self) -> &OwnedFd;
    fn memory(&self) -> &Memory;
    fn memory_mut(&mut self) -> &mut Memory;

    /// Most frames that can be taken and not handed back.
    fn most_taken(&self) -> usize;

    /// Whether there is a frame to take.
    fn has_frame(&mut self) -> bool;

    /// Whether the kernel keeps frames that it will show without more of them coming.
    fn has_hidden(&self) -> bool;

    /// The next frame; one that is copied only if those are wanted now.
    fn take(&mut self, copied_too: bool) -> Option<Frame>;

    /// The bytes of the next frame and when it came, if it lies in the ring as it was on the wire, as nearly all do; for
    /// others there is [`Ring::take`].
    #[inline]
    fn take_plain(&mut self) -> Option<(&[u8], u64)> {
        None
    }

    /// Hands the `frames` frames that were taken first back to the kernel.
    fn hand_back(&mut self, frames: u32);
}

/// The memory of a ring.
#[derive(Debug)]
pub(super) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is as good on any thread.
unsafe impl Send for Memory {}

impl Memory {
    /// The `bytes` bytes that the kernel set up for `socket`.
    pub(super) fn map(socket: &OwnedFd, bytes: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping where the kernel likes, of the length that it has just agreed to.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, socket.as_fd(), 0) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| Error::other("mapped at address 0"))?;
        Ok(Self { start, bytes })
    }

    /// Number of bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The word at `offset`, a multiple of 4, that both sides access.
    #[inline]
    pub(super) fn shared_word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes);
        // SAFETY: within the mapping: callers name words of slots or blocks, of which it holds a whole number.
        let word = unsafe { self.start.add(offset) };
        // SAFETY: aligned, since mappings begin with a page; accessed atomically by both sides; mapped while self lives.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    /// Bytes `range` of what the kernel has handed over; empty where there are no such bytes.
    #[inline]
    pub(super) fn slice(&self, range: Range<usize>) -> &[u8] {
        if range.start > range.end || range.end > self.bytes {
            return &[];
        }
        // SAFETY: within the mapping, checked above.
        let start = unsafe { self.start.add(range.start) };
        // SAFETY: mapped while self lives, and the kernel does not write what it has handed over.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), range.len()) }
    }

    /// As [`Memory::slice`], to write.
    pub(super) fn slice_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        if range.start > range.end || range.end > self.bytes {
            return &mut [];
        }
        // SAFETY: within the mapping, checked above.
        let start = unsafe { self.start.add(range.start) };
        // SAFETY: mapped while self lives, borrowed mutably here, and the kernel keeps off what it has handed over.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), range.len()) }
    }

    /// The `N` bytes of a header at `offset`.
    #[inline]
    pub(super) fn header<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        self.slice(offset..offset + N).try_into().ok()
    }

    /// Starts loading the line at `offset`, wherever that is.
    #[inline]
    pub(super) fn prefetch(&self, offset: usize) {
        prefetch_read(self.start.as_ptr().wrapping_add(offset));
    }

    /// What the kernel left to do for the frame that begins at `frame`.
    #[inline]
    pub(super) fn offload_header(&self, frame: usize) -> &[u8] {
        self.slice(frame.saturating_sub(VIRTIO_HEADER_BYTES)..frame)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this start and length, and nothing of it is borrowed any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The 16-bit field at `at` of a header, in the machine's byte order.
#[inline]
pub(super) fn half(header: &[u8], at: usize) -> u16 {
    match header.get(at..at + 2) {
        Some(&[a, b]) => u16::from_ne_bytes([a, b]),
        _ => 0,
    }
}

/// The 32-bit field at `at`.
#[inline]
pub(super) fn word(header: &[u8], at: usize) -> u32 {
    match header.get(at..at + 4) {
        Some(&[a, b, c, d]) => u32::from_ne_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// Seconds and nanoseconds as one number.
#[inline]
pub(super) fn time_ns(seconds: u32, nanoseconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds)
}

/// The VLAN tag that a frame's status and tag fields tell of.
#[inline]
pub(super) fn vlan_tag(status: u32, tag_type: u16, tag: u16) -> Option<[u8; 4]> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let valid = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let [a, b] = (if valid { tag_type } else { 0x8100 }).to_be_bytes();
    let [c, d] = tag.to_be_bytes();
    Some([a, b, c, d])
}
