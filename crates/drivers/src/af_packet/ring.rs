//! Common part of the two kinds of receive ring: memory that the kernel fills and this process empties, handed over by
//! status words (`PACKET_RX_RING`, linux/if_packet.h).
#![allow(unsafe_code)]

use std::fmt::Debug;
use std::io::{Error, Result};
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use ringroad_port::frame::ETHERNET_HEADER_BYTES;
use ringroad_port::offload::{Unfinished, VIRTIO_HEADER_BYTES};
use ringroad_ring::shared::prefetch_read;
use ringroad_wire::ether_type;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Maximum number of slots of a ring.
pub(super) const MAX_SLOTS: u32 = 65536;
/// Minimum and maximum size of a slot, bytes.
const SLOT_BYTES: Range<usize> = 2048..16384;
/// Bytes of a slot before the frame: the kernel's header and address, its offload header, and alignment.
const OVERHEAD_BYTES: usize = 96;

/// Bytes of a slot for frames of `frame_bytes` bytes. Frames longer than 16 KiB do not fit into any slot.
pub(super) fn slot_bytes(frame_bytes: usize) -> usize {
    (frame_bytes + OVERHEAD_BYTES).next_power_of_two().clamp(SLOT_BYTES.start, SLOT_BYTES.end)
}

/// A frame in a ring, from the kernel's description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Frame {
    /// Length on the wire, bytes.
    pub(super) len: usize,
    /// Position of the kept bytes in the ring's memory. If they are fewer than `len`, a part of the frame is missing.
    pub(super) range: Range<usize>,
    /// Whether the whole frame waits in the socket's queue, because it is too long for its slot.
    pub(super) is_copied: bool,
    /// Arrival time, ns since the Unix epoch.
    pub(super) timestamp_ns: u64,
    /// VLAN tag that the kernel took out of the frame, in wire format: type and tag.
    pub(super) tag: Option<[u8; 4]>,
}

/// A frame that lies in a ring as it was on the wire.
#[derive(Debug)]
pub(super) struct PlainFrame<'ring> {
    // A pointer, no reference: with a reference the compiler would compare each frame's address with null, the value of
    // `None`.
    start: *const u8,
    len: u16,
    ring: PhantomData<&'ring Memory>,
    /// Arrival time, ns since the Unix epoch.
    pub(super) timestamp_ns: u64,
    /// Offset of the next frame's description in the block; without a meaning in a ring of slots.
    pub(super) following: usize,
}

impl<'ring> PlainFrame<'ring> {
    #[inline]
    pub(super) fn bytes(&self) -> &'ring [u8] {
        // SAFETY: [`Description::plain`] found this many bytes there. They stay mapped as long as the ring, and the
        // kernel does not write what it has handed over.
        unsafe { std::slice::from_raw_parts(self.start, self.len.into()) }
    }
}

/// Offsets of the fields of a frame's description and of the frame, bytes from the beginning of the description.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) len: usize,
    pub(super) kept: usize,
    pub(super) mac: usize,
    /// Arrival time: seconds, then nanoseconds.
    pub(super) time: usize,
    /// Usual position of an Ethernet frame ([`ethernet_at`]).
    pub(super) frame: usize,
}

/// Offset at which the kernel puts an Ethernet frame behind a description of `header_bytes` bytes. The interface's
/// address and the offload header come between. The kernel aligns the end of the Ethernet header, before it adds the
/// offload header.
pub(super) const fn ethernet_at(header_bytes: usize) -> usize {
    const ALIGNMENT: usize = 16;
    let address_end = header_bytes.next_multiple_of(ALIGNMENT) + size_of::<libc::sockaddr_ll>();
    (address_end + 16).next_multiple_of(ALIGNMENT) + VIRTIO_HEADER_BYTES - ETHERNET_HEADER_BYTES
}

/// A ring that passes frames in order and takes them back in the same order.
pub(super) trait PacketRing: Debug {
    fn socket(&self) -> &OwnedFd;
    fn memory(&self) -> &Memory;
    fn memory_mut(&mut self) -> &mut Memory;

    /// Maximum number of frames that are taken and not handed back.
    fn most_taken(&self) -> usize;

    /// Whether there is a frame to take.
    fn has_frame(&mut self) -> bool;

    /// Whether there is certainly no frame to take. May use an earlier check, unlike [`PacketRing::has_frame`].
    fn is_empty(&mut self) -> bool {
        !self.has_frame()
    }

    /// Number of frames that are in the ring and not taken, also those that the kernel will hand over later without
    /// further arrivals.
    fn hidden_frames(&self) -> u32;

    /// Takes the next frame. A copied frame is taken only if `copied_too`.
    fn take(&mut self, copied_too: bool) -> Option<Frame>;

    /// Next plain frames: those that lie as they were on the wire and have at most `longest` bytes, as nearly all do.
    /// Ends before the first other frame, which [`PacketRing::take`] takes. [`PacketRing::take_plain`] takes the plain frames.
    fn plain(&self, longest: u32) -> impl Iterator<Item = PlainFrame<'_>>;

    /// Takes the `frames` frames that [`PacketRing::plain`] returned. `following` is that of the last of them.
    fn take_plain(&mut self, frames: u32, following: usize);

    /// Hands the `frames` oldest taken frames back to the kernel.
    fn hand_back(&mut self, frames: u32);
}

/// The memory of a ring.
#[derive(Debug)]
pub(super) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and can be used on any thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps the `bytes` bytes that the kernel set up for `socket`.
    pub(super) fn map(socket: &OwnedFd, bytes: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice, of the length that it has just agreed to.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, socket.as_fd(), 0) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| Error::other("mapped at address 0"))?;
        Ok(Self { start, bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The word at `offset`, a multiple of 4, that both sides access.
    #[inline]
    pub(super) fn shared_word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes);
        // SAFETY: the word is within the mapping: callers pass offsets in slots or blocks, of which the mapping holds a
        // whole number.
        let word = unsafe { self.start.add(offset) };
        // SAFETY: the word is aligned, since mappings begin with a page, is accessed atomically by both sides, and is
        // mapped while self lives.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    /// Bytes `range`, which the kernel has handed over. Empty if the range is outside of the memory.
    #[inline]
    pub(super) fn slice(&self, range: Range<usize>) -> &[u8] {
        if range.start > range.end || range.end > self.bytes {
            return &[];
        }
        // SAFETY: the range is within the mapping, as checked above.
        let start = unsafe { self.start.add(range.start) };
        // SAFETY: the bytes are mapped while self lives, and the kernel does not write bytes that it has handed over.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), range.len()) }
    }

    /// Bytes `range` as in [`Memory::slice`], for writing.
    pub(super) fn slice_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        if range.start > range.end || range.end > self.bytes {
            return &mut [];
        }
        // SAFETY: the range is within the mapping, as checked above.
        let start = unsafe { self.start.add(range.start) };
        // SAFETY: the bytes are mapped while self lives and borrowed mutably, and the kernel does not access bytes that
        // it has handed over.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), range.len()) }
    }

    /// The description of a frame at `offset`.
    #[inline]
    pub(super) fn description(&self, offset: usize) -> Description<'_> {
        Description { start: self.start.as_ptr().wrapping_add(offset), ring: PhantomData }
    }

    /// The `N` bytes of a header at `offset`.
    #[inline]
    pub(super) fn header<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        self.slice(offset..offset + N).try_into().ok()
    }

    /// Offload header of the frame that begins at `frame`.
    #[inline]
    pub(super) fn offload_header(&self, frame: usize) -> &[u8] {
        self.slice(frame.saturating_sub(VIRTIO_HEADER_BYTES)..frame)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this start and length, and no part of it is borrowed any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Position of a frame's description in a ring. It is a value of its own, which loops keep in a register.
#[derive(Debug, Clone, Copy)]
pub(super) struct Description<'ring> {
    start: *const u8,
    ring: PhantomData<&'ring Memory>,
}

impl<'ring> Description<'ring> {
    /// Position `bytes` bytes after this one.
    #[inline]
    pub(super) fn behind(self, bytes: usize) -> Self {
        Self { start: self.start.wrapping_add(bytes), ..self }
    }

    /// Prefetches the cache line at this position, which may be any address.
    #[inline]
    pub(super) fn prefetch(self) {
        prefetch_read(self.start);
    }

    /// Status at the beginning of the description, which both sides write.
    ///
    /// # Safety
    /// The description begins in the ring, at a multiple of 4.
    #[inline]
    pub(super) unsafe fn status(self) -> u32 {
        let status = self.start.cast_mut().cast();
        // SAFETY: the caller's contract, and mappings begin with a page; both sides access the status atomically.
        unsafe { AtomicU32::from_ptr(status) }.load(Ordering::Acquire)
    }

    /// The 32-bit field at `at`.
    ///
    /// # Safety
    /// The field's 4 bytes are in the ring, and the kernel has handed them over.
    #[inline]
    pub(super) unsafe fn field(self, at: usize) -> u32 {
        let field = self.start.wrapping_add(at).cast();
        // SAFETY: the caller's contract.
        unsafe { std::ptr::read_unaligned(field) }
    }

    /// The frame, if it is at the usual position, is whole, has 1 to `longest` bytes, and has no open offloads. Its
    /// `following` is the one given.
    ///
    /// # Safety
    /// `layout.frame + longest` bytes from the beginning of the description are in the ring, and the kernel has handed
    /// them over.
    #[inline]
    pub(super) unsafe fn plain(
        self,
        layout: &Layout,
        longest: u32,
        following: usize,
    ) -> Option<PlainFrame<'ring>> {
        // SAFETY: all fields lie before the frame.
        let field = |at| unsafe { self.field(at) };
        let start = self.start.wrapping_add(layout.frame);
        // SAFETY: so does the offload header.
        let offloads = unsafe { start.wrapping_sub(VIRTIO_HEADER_BYTES).cast::<[u8; 2]>().read() };
        let [mac0, mac1, ..] = field(layout.mac).to_ne_bytes();
        let kept = field(layout.kept);
        if usize::from(u16::from_ne_bytes([mac0, mac1])) != layout.frame
            || field(layout.len) != kept
            || kept.wrapping_sub(1) >= longest
            || !Unfinished::is_nothing_behind(offloads)
        {
            return None;
        }
        let timestamp_ns = time_ns(field(layout.time), field(layout.time + 4));
        Some(PlainFrame { start, len: kept as u16, ring: self.ring, timestamp_ns, following })
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

/// The 32-bit field at `at` of a header, in the machine's byte order.
#[inline]
pub(super) fn word(header: &[u8], at: usize) -> u32 {
    match header.get(at..at + 4) {
        Some(&[a, b, c, d]) => u32::from_ne_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// Time in ns from seconds and nanoseconds.
#[inline]
pub(super) fn time_ns(seconds: u32, nanoseconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds)
}

/// The VLAN tag in a frame's status and tag fields.
#[inline]
pub(super) fn vlan_tag(status: u32, tag_type: u16, tag: u16) -> Option<[u8; 4]> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let valid = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let [a, b] = (if valid { tag_type } else { ether_type::VLAN }).to_be_bytes();
    let [c, d] = tag.to_be_bytes();
    Some([a, b, c, d])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Maximum length of frames that are taken in runs, bytes.
    const LONGEST: u32 = 1522;

    /// All frames of a ring, one by one.
    pub(in super::super) fn one_by_one(ring: &mut impl PacketRing) -> Vec<Frame> {
        std::iter::from_fn(|| ring.take(true)).collect()
    }

    /// All frames of a ring, taken in runs of plain frames and single other ones, and the number of plain frames.
    pub(in super::super) fn in_runs(ring: &mut impl PacketRing) -> (Vec<Frame>, usize) {
        let (mut frames, mut plain_frames) = (Vec::new(), 0);
        loop {
            let begin = ring.memory().slice(0..0).as_ptr().addr();
            let mut following = 0;
            let run: Vec<Frame> = ring
                .plain(LONGEST)
                .map(|plain| {
                    following = plain.following;
                    let (start, len) = (plain.bytes().as_ptr().addr() - begin, plain.bytes().len());
                    Frame {
                        len,
                        range: start..start + len,
                        is_copied: false,
                        timestamp_ns: plain.timestamp_ns,
                        tag: None,
                    }
                })
                .collect();
            for plain in &run {
                let header = ring.memory().offload_header(plain.range.start);
                assert!(Unfinished::from_header(header).is_nothing());
                assert!((1..=LONGEST as usize).contains(&plain.len));
            }
            if !run.is_empty() {
                ring.take_plain(run.len() as u32, following);
            }
            plain_frames += run.len();
            frames.extend(run);
            match ring.take(true) {
                Some(frame) => frames.push(frame),
                None => return (frames, plain_frames),
            }
        }
    }
}
