//! A receive ring of TPACKET_V2: a slot for each frame, which is seen as soon as it is there.
//!
//! A slot takes 2 KiB, however short its frame. A frame too long for one waits in the socket's queue, and its slot only says so.

use std::io::Result;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use ringroad_port::offload::{Unfinished, VIRTIO_HEADER_BYTES};

use super::ring::{Frame, MAX_SLOTS, Memory, Ring, half, slot_bytes, time_ns, vlan_tag, word};
use super::socket;

/// Bytes of `struct tpacket2_hdr` up to its padding.
const HEADER_BYTES: usize = 28;
/// The kernel allocates the ring in pieces of this many bytes.
const BLOCK_BYTES: usize = 65536;

/// The ring, and the socket it belongs to.
#[derive(Debug)]
pub(super) struct SlotRing {
    socket: OwnedFd,
    memory: Memory,
    slot_bytes: usize,
    slots: u32,
    /// Slot that is looked at next, and how many before it are taken and not handed back.
    next: u32,
    taken: u32,
}

impl SlotRing {
    /// Gives `socket`, which is not bound yet, a ring of at least `slots` slots for frames of `frame_bytes` bytes.
    pub(super) fn new(socket: OwnedFd, slots: u32, frame_bytes: usize) -> Result<Self> {
        socket::prepare_slots(&socket)?;
        let slot_bytes = slot_bytes(frame_bytes);
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
        let memory = Memory::map(&socket, bytes)?;
        Ok(Self { socket, memory, slot_bytes, slots, next: 0, taken: 0 })
    }
}

impl Ring for SlotRing {
    fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn most_taken(&self) -> usize {
        self.slots as usize
    }

    #[inline]
    fn has_frame(&mut self) -> bool {
        // Slots that are taken have not been handed back: the kernel has not come by since.
        let status = self.memory.shared_word(self.next as usize * self.slot_bytes);
        self.taken < self.slots && status.load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn has_hidden(&self) -> bool {
        false
    }

    #[inline]
    fn take(&mut self, copied_too: bool) -> Option<Frame> {
        if !self.has_frame() {
            return None;
        }
        let slot = self.next as usize * self.slot_bytes;
        let header = self.memory.header::<HEADER_BYTES>(slot)?;
        let (status, len, kept, mac) = (
            word(header, 0),
            word(header, 4) as usize,
            word(header, 8) as usize,
            usize::from(half(header, 12)),
        );
        let is_copied = status & libc::TP_STATUS_COPY != 0;
        if is_copied && !copied_too {
            return None;
        }
        let end = mac + kept;
        let frame = Frame {
            len,
            range: if end <= self.slot_bytes { slot + mac..slot + end } else { slot..slot },
            is_copied,
            timestamp_ns: time_ns(word(header, 16), word(header, 20)),
            tag: vlan_tag(status, half(header, 26), half(header, 24)),
        };
        self.next = if self.next + 1 == self.slots { 0 } else { self.next + 1 };
        self.taken += 1;
        Some(frame)
    }

    #[inline]
    fn take_plain(&mut self) -> Option<(&[u8], u64)> {
        const LOOKED_AT: u32 = libc::TP_STATUS_USER | libc::TP_STATUS_COPY | libc::TP_STATUS_VLAN_VALID;
        let start = self.next as usize * self.slot_bytes;
        let status = self.memory.shared_word(start).load(Ordering::Acquire);
        if status & LOOKED_AT != libc::TP_STATUS_USER || self.taken >= self.slots {
            return None;
        }
        let slot = self.memory.slice(start..start + self.slot_bytes);
        let header = slot.first_chunk::<HEADER_BYTES>()?;
        let (kept, mac) = (word(header, 8) as usize, usize::from(half(header, 12)));
        let described = slot.get(mac.checked_sub(VIRTIO_HEADER_BYTES)?..mac + kept)?;
        let (&[flags, gso_type, ..], bytes) = described.split_first_chunk::<VIRTIO_HEADER_BYTES>()?;
        if word(header, 4) as usize != kept
            || bytes.is_empty()
            || !Unfinished::is_nothing_behind([flags, gso_type])
        {
            return None;
        }
        self.next = if self.next + 1 == self.slots { 0 } else { self.next + 1 };
        self.taken += 1;
        Some((bytes, time_ns(word(header, 16), word(header, 20))))
    }

    #[inline]
    fn hand_back(&mut self, frames: u32) {
        let frames = frames.min(self.taken);
        let mut first = match self.next.checked_sub(self.taken) {
            Some(first) => first,
            None => self.next + self.slots - self.taken,
        };
        self.taken -= frames;
        for _ in 0..frames {
            let status = self.memory.shared_word(first as usize * self.slot_bytes);
            // A plain store on this processor: one fence for all of them would save nothing.
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            first = if first + 1 == self.slots { 0 } else { first + 1 };
        }
    }
}
