//! A receive ring of TPACKET_V2: a slot for each frame, which is handed over at once.
//!
//! A slot takes at least 2 KiB, even for a short frame. A frame too long for a slot waits in the socket's queue, and
//! its slot only marks that.

#![allow(unsafe_code)]

use std::io::Result;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::ring::{
    Frame, Layout, MAX_SLOTS, Memory, PacketRing, PlainFrame, ethernet_at, half, slot_bytes, time_ns,
    vlan_tag, word,
};
use super::socket;

/// Bytes of `struct tpacket2_hdr` up to its padding.
const HEADER_BYTES: usize = 28;
const LAYOUT: Layout = Layout { len: 4, kept: 8, mac: 12, time: 16, frame: ethernet_at(HEADER_BYTES) };
/// The kernel allocates the ring in pieces of this many bytes.
const BLOCK_BYTES: usize = 65536;

/// The ring, and the socket that it belongs to.
#[derive(Debug)]
pub(super) struct SlotRing {
    socket: OwnedFd,
    memory: Memory,
    slot_bytes: usize,
    /// Offset in memory of the next slot to read, and bytes of the slots before it that are taken and not handed back.
    next: usize,
    taken_bytes: usize,
}

impl SlotRing {
    /// Gives `socket`, which is not bound yet, a ring of at least `slots` slots for frames of `frame_bytes` bytes.
    pub(super) fn new(socket: OwnedFd, slots: u32, frame_bytes: usize) -> Result<Self> {
        socket::prepare_slots(&socket)?;
        let slot_bytes = slot_bytes(frame_bytes);
        let bytes = (slots as usize).clamp(1, MAX_SLOTS as usize) * slot_bytes;
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        let bytes = blocks * BLOCK_BYTES;
        let config = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: (bytes / slot_bytes) as u32,
        };
        socket::set(&socket, libc::PACKET_RX_RING, &config)?;
        Self::over(socket, bytes, slot_bytes)
    }

    fn over(socket: OwnedFd, bytes: usize, slot_bytes: usize) -> Result<Self> {
        let memory = Memory::map(&socket, bytes)?;
        Ok(Self { socket, memory, slot_bytes, next: 0, taken_bytes: 0 })
    }
}

impl PacketRing for SlotRing {
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
        self.memory.bytes() / self.slot_bytes
    }

    #[inline]
    fn has_frame(&mut self) -> bool {
        // The kernel has not written taken slots since, because they have not been handed back.
        let status = self.memory.shared_word(self.next);
        self.taken_bytes < self.memory.bytes() && status.load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn hidden_frames(&self) -> u32 {
        0
    }

    #[inline]
    fn take(&mut self, copied_too: bool) -> Option<Frame> {
        if !self.has_frame() {
            return None;
        }
        let slot = self.next;
        let header = self.memory.header::<HEADER_BYTES>(slot)?;
        let (status, len, kept, mac) = (
            word(header, 0),
            word(header, LAYOUT.len) as usize,
            word(header, LAYOUT.kept) as usize,
            usize::from(half(header, LAYOUT.mac)),
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
            timestamp_ns: time_ns(word(header, LAYOUT.time), word(header, LAYOUT.time + 4)),
            tag: vlan_tag(status, half(header, 26), half(header, 24)),
        };
        self.take_plain(1, 0);
        Some(frame)
    }

    #[inline]
    fn plain(&self, longest: u32) -> impl Iterator<Item = PlainFrame<'_>> {
        const STATUS_BITS: u32 = libc::TP_STATUS_USER | libc::TP_STATUS_COPY | libc::TP_STATUS_VLAN_VALID;
        let Self { ref memory, slot_bytes, next, taken_bytes, .. } = *self;
        let mut slot = memory.description(next);
        // Number of slots up to the end of memory. Slots are a power of two long.
        let most = (memory.bytes() - taken_bytes.max(next)) >> slot_bytes.trailing_zeros();
        let longest = longest.min((slot_bytes - LAYOUT.frame) as u32);
        (0..most).map_while(move |_| {
            // SAFETY: the slots before the end begin with their status.
            if unsafe { slot.status() } & STATUS_BITS != libc::TP_STATUS_USER {
                return None;
            }
            // SAFETY: the kernel has handed over the slot, in which so long a frame has room.
            let frame = unsafe { slot.plain(&LAYOUT, longest, 0) };
            slot = slot.behind(slot_bytes);
            frame
        })
    }

    #[inline]
    fn take_plain(&mut self, frames: u32, _following: usize) {
        let bytes = frames as usize * self.slot_bytes;
        self.taken_bytes += bytes;
        self.next += bytes;
        if self.next == self.memory.bytes() {
            self.next = 0;
        }
    }

    #[inline]
    fn hand_back(&mut self, frames: u32) {
        let ring_bytes = self.memory.bytes();
        let bytes = (frames as usize * self.slot_bytes).min(self.taken_bytes);
        let first = match self.next.checked_sub(self.taken_bytes) {
            Some(first) => first,
            None => self.next + ring_bytes - self.taken_bytes,
        };
        self.taken_bytes -= bytes;
        let straight = bytes.min(ring_bytes - first);
        for (mut slot, end) in [(first, first + straight), (0, bytes - straight)] {
            while slot < end {
                // A release store is a plain store on x86-64, so one fence for all slots would save nothing.
                self.memory.shared_word(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
                slot += self.slot_bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;

    use super::super::ring::tests::{in_runs, one_by_one};
    use super::*;

    const SLOT: usize = 2048;
    const SLOTS: usize = 8;

    /// The header of a slot: status, length, kept bytes, offset of the frame, flags and type of its offload header.
    type Said = (u32, u32, u32, u16, u16);

    /// A ring in a file that the test writes in place of the kernel. Reading begins at slot `next`.
    fn ring(said: &[Said], next: usize) -> SlotRing {
        let file = tempfile::tempfile().unwrap();
        file.set_len((SLOT * SLOTS) as u64).unwrap();
        for (number, &(status, len, kept, mac, offloads)) in said.iter().enumerate() {
            let mut slot = vec![0; SLOT];
            if let Some(header) = usize::from(mac).checked_sub(10).and_then(|at| slot.get_mut(at..at + 2)) {
                header.copy_from_slice(&offloads.to_ne_bytes());
            }
            for (at, field) in [(0, status), (LAYOUT.len, len), (LAYOUT.kept, kept), (LAYOUT.time, 7)] {
                slot[at..at + 4].copy_from_slice(&field.to_ne_bytes());
            }
            slot[LAYOUT.mac..LAYOUT.mac + 2].copy_from_slice(&mac.to_ne_bytes());
            file.write_all_at(&slot, (number * SLOT) as u64).unwrap();
        }
        let mut ring = SlotRing::over(file.into(), SLOT * SLOTS, SLOT).unwrap();
        ring.next = next * SLOT;
        ring
    }

    fn said() -> impl Strategy<Value = Said> {
        let status = prop_oneof![8 => Just(1), 1 => 0..0x80u32];
        let lens = prop_oneof![
            8 => (0..2000u32).prop_map(|len| (len, len)),
            1 => (0..2000u32, 0..2000u32),
            1 => any::<u32>().prop_map(|len| (len, len)),
        ];
        let mac = prop_oneof![8 => Just(LAYOUT.frame as u16), 1 => 28..3000u16, 1 => any::<u16>()];
        let offloads = prop_oneof![8 => Just(0), 1 => any::<u16>()];
        (status, lens, mac, offloads)
            .prop_map(|(status, (len, kept), mac, offloads)| (status, len, kept, mac, offloads))
    }

    #[test]
    fn frames_of_the_usual_kind_come_in_runs_as_far_as_the_end_of_memory() {
        let mut ring = ring(&[(1, 60, 60, LAYOUT.frame as u16, 0); SLOTS], 5);
        let lens: Vec<usize> = ring.plain(60).map(|frame| frame.bytes().len()).collect();
        assert_eq!(lens, [60; 3]);
        assert_eq!(ring.plain(59).count(), 0, "longer ones are taken one by one");
        ring.take_plain(3, 0);
        assert_eq!(ring.plain(60).count(), 5, "what is taken does not come again");
    }

    proptest! {
        #[test]
        fn for_any_slot_header_runs_give_the_same_as_single_frames_and_all_goes_back(
            said in proptest::collection::vec(said(), SLOTS..=SLOTS),
            next in 0..SLOTS,
            back in 0..=SLOTS as u32,
        ) {
            let (mut one, mut other) = (ring(&said, next), ring(&said, next));
            let frames = one_by_one(&mut one);
            for frame in &frames {
                prop_assert_eq!(one.memory().slice(frame.range.clone()).len(), frame.range.len());
            }
            prop_assert_eq!(&in_runs(&mut other).0, &frames);
            let is_shown = |ring: &SlotRing, slot: usize| {
                ring.memory.shared_word(slot * SLOT).load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0
            };
            let shown = |ring: &SlotRing| (0..SLOTS).filter(|&slot| is_shown(ring, slot)).count();
            let before = shown(&other);
            let back = back.min(frames.len() as u32);
            other.hand_back(back);
            prop_assert_eq!(shown(&other), before - back as usize);
            other.hand_back(frames.len() as u32 - back);
            prop_assert_eq!((shown(&other), other.taken_bytes), (before - frames.len(), 0));
        }
    }
}
