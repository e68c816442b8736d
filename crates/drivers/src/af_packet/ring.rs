//! The receive ring of a packet socket (`PACKET_RX_RING`, TPACKET_V2 of linux/if_packet.h): slots in memory that the kernel
//! fills and this process empties, each handed over by its status word.
//!
//! Version 2 rather than 3: it shows a frame at once, while version 3 shows a block of frames when it is full or has
//! waited for a millisecond or more.
#![allow(unsafe_code)]

use std::io::{Error, Result};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::offload::VNET_HEADER_BYTES;
use super::socket;

/// Smallest and largest distance of slots, bytes: longer frames come another way ([`SlotHeader::is_copied`]).
const SLOT_BYTES: Range<usize> = 2048..16384;
/// Bytes of a slot before the frame: the kernel's header and address, its offload header, and alignment.
const OVERHEAD_BYTES: usize = 96;
/// The kernel allocates the ring in pieces of this many bytes.
const BLOCK_BYTES: usize = 65536;
/// Most slots of a ring.
pub(super) const MAX_SLOTS: u32 = 65536;

/// `struct tpacket2_hdr`, read once.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotHeader {
    status: u32,
    /// Length of the frame, bytes, and how much of it lies in the slot.
    pub(super) len: usize,
    pub(super) kept: usize,
    /// Where the frame begins in the slot.
    pub(super) mac: usize,
    seconds: u32,
    nanoseconds: u32,
    tag: u16,
    tag_type: u16,
}

impl SlotHeader {
    fn parse(bytes: &[u8; 28]) -> Self {
        let half = |at: usize| match bytes.get(at..at + 2) {
            Some(&[a, b]) => u16::from_ne_bytes([a, b]),
            _ => 0,
        };
        let word = |at: usize| match bytes.get(at..at + 4) {
            Some(&[a, b, c, d]) => u32::from_ne_bytes([a, b, c, d]),
            _ => 0,
        };
        Self {
            status: word(0),
            len: word(4) as usize,
            kept: word(8) as usize,
            mac: usize::from(half(12)),
            seconds: word(16),
            nanoseconds: word(20),
            tag: half(24),
            tag_type: half(26),
        }
    }

    /// Whether the whole frame waits in the socket's queue, being too long for the slot.
    pub(super) fn is_copied(&self) -> bool {
        self.status & libc::TP_STATUS_COPY != 0
    }

    /// When it came, ns since the Unix epoch.
    pub(super) fn timestamp_ns(&self) -> u64 {
        u64::from(self.seconds) * 1_000_000_000 + u64::from(self.nanoseconds)
    }

    /// The VLAN tag that the kernel took out of the frame, as it was: type and tag.
    pub(super) fn vlan_tag(&self) -> Option<[u8; 4]> {
        if self.status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let valid = self.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let [a, b] = (if valid { self.tag_type } else { 0x8100 }).to_be_bytes();
        let [c, d] = self.tag.to_be_bytes();
        Some([a, b, c, d])
    }
}

/// The ring, and the socket it belongs to.
#[derive(Debug)]
pub(super) struct RxRing {
    socket: OwnedFd,
    start: NonNull<u8>,
    bytes: usize,
    slot_bytes: usize,
    slots: u32,
}

// SAFETY: the mapping belongs to this value alone and is as good on any thread.
unsafe impl Send for RxRing {}

impl RxRing {
    /// Gives `socket`, which is not bound yet, a ring of at least `slots` slots for frames of `frame_bytes` bytes.
    pub(super) fn new(socket: OwnedFd, slots: u32, frame_bytes: usize) -> Result<Self> {
        let slot_bytes =
            (frame_bytes + OVERHEAD_BYTES).next_power_of_two().clamp(SLOT_BYTES.start, SLOT_BYTES.end);
        let bytes = (slots as usize).clamp(1, MAX_SLOTS as usize) * slot_bytes;
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        let bytes = blocks * BLOCK_BYTES;
        let slots = (bytes / slot_bytes) as u32;
        let wish = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slots,
        };
        socket::set(&socket, libc::PACKET_RX_RING, &wish)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping where the kernel likes, of the length that it has just agreed to.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, socket.as_fd(), 0) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| Error::other("mapped at address 0"))?;
        Ok(Self { socket, start, bytes, slot_bytes, slots })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn slot(&self, slot: u32) -> NonNull<u8> {
        let offset = slot.min(self.slots - 1) as usize * self.slot_bytes;
        // SAFETY: `slots` is not 0, and the offset of a slot below it lies within the mapping.
        unsafe { self.start.add(offset) }
    }

    fn status(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: a slot begins with its status word, aligned, which both sides access atomically; mapped while self lives.
        unsafe { AtomicU32::from_ptr(self.slot(slot).cast().as_ptr()) }
    }

    /// Whether the kernel has filled `slot` and handed it over.
    #[inline]
    pub(super) fn is_ours(&self, slot: u32) -> bool {
        self.status(slot).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The header of a slot that is ours.
    #[inline]
    pub(super) fn header(&self, slot: u32) -> SlotHeader {
        // SAFETY: every slot has room for the header, and the kernel does not write a slot that is ours.
        SlotHeader::parse(unsafe { self.slot(slot).cast::<[u8; 28]>().as_ref() })
    }

    /// Bytes `range` of a slot that is ours; empty where a slot has no such bytes.
    #[inline]
    pub(super) fn slice(&self, slot: u32, range: Range<usize>) -> &[u8] {
        if range.start > range.end || range.end > self.slot_bytes {
            return &[];
        }
        // SAFETY: within the slot, checked above.
        let start = unsafe { self.slot(slot).add(range.start) };
        // SAFETY: mapped while self lives, and the kernel does not write a slot that is ours.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), range.len()) }
    }

    /// As [`RxRing::slice`], to write.
    pub(super) fn slice_mut(&mut self, slot: u32, range: Range<usize>) -> &mut [u8] {
        if range.start > range.end || range.end > self.slot_bytes {
            return &mut [];
        }
        // SAFETY: within the slot, checked above.
        let start = unsafe { self.slot(slot).add(range.start) };
        // SAFETY: mapped while self lives, borrowed mutably here, and the kernel keeps off a slot that is ours.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), range.len()) }
    }

    /// What the kernel left to do, for the frame at `mac`.
    #[inline]
    pub(super) fn offload_header(&self, slot: u32, mac: usize) -> &[u8] {
        self.slice(slot, mac.saturating_sub(VNET_HEADER_BYTES)..mac)
    }

    /// Hands `slot` back to the kernel.
    #[inline]
    pub(super) fn hand_back(&self, slot: u32) {
        self.status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Drop for RxRing {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this start and length, and nothing of it is borrowed any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
