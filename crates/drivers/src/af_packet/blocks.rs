//! A receive ring of TPACKET_V3: blocks that the kernel packs with frames, and hands over when they are full or a
//! timeout ends.
//!
//! A short frame takes little more than its length, so a ring of blocks holds longer bursts than a ring of slots. The
//! price is latency. A block is handed back when all its frames are.
//!
//! When more than three quarters of the blocks are full, the kernel sometimes drops a frame although there is room: it
//! checks the room without its lock, while its timer advances to the next block. Such frames are counted as its other
//! drops are.

#![allow(unsafe_code)]

use std::io::Result;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::ring::{
    Description, Frame, Layout, MAX_SLOTS, Memory, PacketRing, PlainFrame, ethernet_at, half, slot_bytes,
    time_ns, vlan_tag, word,
};
use super::socket;
use crate::poll_backoff::PollBackoff;

/// Bytes of a block. The longest frame that stacks make (`GSO_MAX_SIZE` of the kernel) fits, and a power of two wastes
/// no memory.
const BLOCK_BYTES: usize = 128 << 10;
/// Minimum number of blocks: while one is read and one is filled, others can be filled next.
const FEWEST_BLOCKS: usize = 4;
/// Timeout after which the kernel hands over a block that is not full, ms. A reader can stall for this time multiplied
/// by the number of blocks, because at low rates each block holds few frames. So the timeout is longer with fewer
/// blocks, to bridge half a second if possible without latency that users notice.
const WAIT_MS: std::ops::RangeInclusive<usize> = 4..=16;
const BRIDGED_MS: usize = 512;
/// Maximum number of frames that are taken and not handed back: sixteen batches.
const MOST_TAKEN: usize = 4096;

/// Pause between two checks of an empty ring, because the kernel counts a block's frames in the cache line with its
/// status. The pause is a fraction of the time in which a block fills.
const POLL_INTERVAL_NS: u64 = 20_000;

/// Distance of the prefetch, frames. It loads two cache lines: the kernel's header and the start of the frame.
const FRAMES_AHEAD: u32 = 4;
const CACHE_LINE_BYTES: usize = 64;

/// Offsets of a block's fields (`struct tpacket_block_desc` with `struct tpacket_hdr_v1`): status, number of frames,
/// offset of the first frame.
const STATUS: usize = 8;
const FRAMES: usize = 12;
const FIRST_FRAME: usize = 16;
/// Bytes of `struct tpacket3_hdr` before each frame, and offset of its status. It begins with the distance to the next
/// one.
const HEADER_BYTES: usize = 48;
const FRAME_STATUS: usize = 20;
const LAYOUT: Layout = Layout { kept: 12, len: 16, mac: 24, time: 4, frame: ethernet_at(HEADER_BYTES) };

/// The ring, and the socket that it belongs to.
#[derive(Debug)]
pub(super) struct BlockRing {
    socket: OwnedFd,
    memory: Memory,
    block_bytes: usize,
    /// For each block, number of frames that are taken and not handed back.
    taken: Vec<u32>,
    /// Blocks that this process owns: their number, the index of the first, and the index of the last, from which
    /// frames are taken.
    held: usize,
    first: usize,
    last: usize,
    /// Number of frames of the last block that are not taken yet, and offset of the next one in the block.
    left: u32,
    next: usize,
    pause: PollBackoff,
}

impl BlockRing {
    /// Gives `socket`, which is not bound yet, a ring with the memory of `slots` slots for frames of `frame_bytes`
    /// bytes.
    pub(super) fn new(socket: OwnedFd, slots: u32, frame_bytes: usize) -> Result<Self> {
        socket::prepare_blocks(&socket)?;
        let slot_bytes = slot_bytes(frame_bytes);
        let budget_bytes = (slots as usize).clamp(1, MAX_SLOTS as usize) * slot_bytes;
        let blocks = (budget_bytes / BLOCK_BYTES).max(FEWEST_BLOCKS);
        let wait_ms = (BRIDGED_MS / blocks).clamp(*WAIT_MS.start(), *WAIT_MS.end());
        let config = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            // The field has no meaning in TPACKET_V3, but the kernel checks its size.
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: (blocks * (BLOCK_BYTES / slot_bytes)) as u32,
            tp_retire_blk_tov: wait_ms as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket::set(&socket, libc::PACKET_RX_RING, &config)?;
        Self::over(socket, BLOCK_BYTES, blocks)
    }

    fn over(socket: OwnedFd, block_bytes: usize, blocks: usize) -> Result<Self> {
        let memory = Memory::map(&socket, block_bytes * blocks)?;
        Ok(Self {
            socket,
            memory,
            block_bytes,
            taken: vec![0; blocks],
            held: 0,
            first: 0,
            last: 0,
            left: 0,
            next: 0,
            pause: PollBackoff::new(POLL_INTERVAL_NS),
        })
    }

    /// Offset in memory of the block that is `ahead` blocks after the first one that this process owns.
    #[inline]
    fn block(&self, ahead: usize) -> usize {
        (self.first + ahead) % self.taken.len() * self.block_bytes
    }

    #[inline]
    fn is_shown(&self, block: usize) -> bool {
        self.memory.shared_word(block + STATUS).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Whether the kernel has handed over the next block. Shortly after a check without one the result is `false`,
    /// unchecked.
    fn shows_next(&mut self) -> bool {
        // If this process owns all blocks, the next one is the first again.
        if self.held == self.taken.len() || self.pause.lasts() {
            return false;
        }
        let is_shown = self.is_shown(self.block(self.held));
        if !is_shown {
            self.pause.begin();
        }
        is_shown
    }

    /// Begins with the next block, if the kernel has handed it over.
    fn open_block(&mut self) -> bool {
        if !self.shows_next() {
            return false;
        }
        let block = self.block(self.held);
        let frames = self.memory.shared_word(block + FRAMES).load(Ordering::Relaxed);
        self.left = frames.min((self.block_bytes / HEADER_BYTES) as u32);
        self.next = self.memory.shared_word(block + FIRST_FRAME).load(Ordering::Relaxed) as usize;
        self.held += 1;
        self.last = block / self.block_bytes;
        true
    }

    /// The frame at `offset` of `block`, and the offset of the next one. `None` if no frame can be there.
    #[inline]
    fn frame(&self, block: usize, offset: usize) -> Option<(Frame, usize)> {
        if offset > self.block_bytes - HEADER_BYTES {
            return None;
        }
        let header = self.memory.header::<HEADER_BYTES>(block + offset)?;
        let (following, kept, status) =
            (word(header, 0) as usize, word(header, LAYOUT.kept) as usize, word(header, FRAME_STATUS));
        let mac = usize::from(half(header, LAYOUT.mac));
        let start = offset + mac;
        let fits = mac >= HEADER_BYTES && start + kept <= self.block_bytes;
        let frame = Frame {
            len: word(header, LAYOUT.len) as usize,
            range: if fits { block + start..block + start + kept } else { block..block },
            is_copied: false,
            timestamp_ns: time_ns(word(header, LAYOUT.time), word(header, LAYOUT.time + 4)),
            tag: vlan_tag(status, half(header, 36), word(header, 32) as u16),
        };
        Some((frame, offset + following))
    }

    /// Hands back the first blocks without taken frames and without frames left to take.
    fn hand_back_blocks(&mut self) {
        while self.held != 0 && self.taken.get(self.first) == Some(&0) && (self.held > 1 || self.left == 0) {
            let status = self.memory.shared_word(self.block(0) + STATUS);
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.first = (self.first + 1) % self.taken.len();
            self.held -= 1;
        }
    }
}

/// Prefetches the frame [`FRAMES_AHEAD`] frames on in `block`, which has `left` frames behind the one at `next`.
#[inline]
fn prefetch(block: Description<'_>, next: usize, following: usize, left: u32) {
    if left >= FRAMES_AHEAD {
        // Each header has the distance to the next one, so the processor cannot load headers in parallel. Successive
        // frames often have one length, so the address is guessed.
        let step = following.wrapping_sub(next);
        let guess = following.wrapping_add(step.wrapping_mul(FRAMES_AHEAD as usize - 1));
        block.behind(guess).prefetch();
        block.behind(guess.wrapping_add(CACHE_LINE_BYTES)).prefetch();
    }
}

impl PacketRing for BlockRing {
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
        MOST_TAKEN
    }

    #[inline]
    fn has_frame(&mut self) -> bool {
        // The check is made at once: a reader before its sleep must not miss a frame, and a woken one must find it.
        self.pause.end();
        self.left != 0 || (self.held < self.taken.len() && self.is_shown(self.block(self.held)))
    }

    #[inline]
    fn is_empty(&mut self) -> bool {
        self.left == 0 && !self.shows_next()
    }

    fn hidden_frames(&self) -> u32 {
        let mut frames = self.left;
        for block in (self.held..self.taken.len()).map(|ahead| self.block(ahead)) {
            frames = frames.saturating_add(self.memory.shared_word(block + FRAMES).load(Ordering::Relaxed));
            // The kernel fills the first block that it has not handed over.
            if !self.is_shown(block) {
                break;
            }
        }
        frames
    }

    #[inline]
    fn take(&mut self, _copied_too: bool) -> Option<Frame> {
        while self.left == 0 {
            // A block without frames goes back at once.
            self.hand_back_blocks();
            if !self.open_block() {
                return None;
            }
        }
        let block = self.last * self.block_bytes;
        // After a break in the chain, each announced frame counts as missing.
        let (frame, following) =
            self.frame(block, self.next).unwrap_or((Frame { len: 1, ..Frame::default() }, usize::MAX));
        prefetch(self.memory.description(block), self.next, following, self.left - 1);
        self.take_plain(1, following);
        Some(frame)
    }

    #[inline]
    fn plain(&self, longest: u32) -> impl Iterator<Item = PlainFrame<'_>> {
        let Self { ref memory, block_bytes, mut next, left, .. } = *self;
        let block = memory.description(self.last * block_bytes);
        (0..left).rev().map_while(move |left| {
            let room = (block_bytes - LAYOUT.frame).checked_sub(next)?;
            let description = block.behind(next);
            // SAFETY: the field is in the block, which the kernel has handed over.
            let field = |at| unsafe { description.field(at) };
            if field(FRAME_STATUS) & libc::TP_STATUS_VLAN_VALID != 0 {
                return None;
            }
            let following = next + field(0) as usize;
            prefetch(block, next, following, left);
            next = following;
            // SAFETY: as above, with `room` bytes behind the description.
            unsafe { description.plain(&LAYOUT, longest.min(room as u32), following) }
        })
    }

    #[inline]
    fn take_plain(&mut self, frames: u32, following: usize) {
        self.left -= frames;
        self.next = following;
        if let Some(taken) = self.taken.get_mut(self.last) {
            *taken += frames;
        }
    }

    #[inline]
    fn hand_back(&mut self, mut frames: u32) {
        while let Some(taken) = self.taken.get_mut(self.first)
            && *taken != 0
            && frames != 0
        {
            let some = frames.min(*taken);
            *taken -= some;
            frames -= some;
            self.hand_back_blocks();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;

    use super::super::ring::tests::{in_runs, one_by_one};
    use super::*;

    const BLOCK: usize = 4096;
    const BLOCKS: usize = 4;

    /// A ring in a file that the test writes in place of the kernel.
    fn ring(blocks: &[Vec<u8>]) -> BlockRing {
        let file = tempfile::tempfile().unwrap();
        file.set_len((BLOCK * BLOCKS) as u64).unwrap();
        for (number, block) in blocks.iter().enumerate() {
            file.write_all_at(block, (number * BLOCK) as u64).unwrap();
        }
        BlockRing::over(file.into(), BLOCK, BLOCKS).unwrap()
    }

    /// A block that is handed over, made of its header and the headers of its frames.
    fn block(frames: u32, first: u32, words: &[(usize, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        let fields = [(STATUS, libc::TP_STATUS_USER), (FRAMES, frames), (FIRST_FRAME, first)];
        for &(at, value) in fields.iter().chain(words) {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_block_without_frames_goes_back_in_its_turn() {
        // Fields of a header: distance to the next one, kept bytes, length, and offset of the frame.
        let header = |at: usize, next| [(at, next), (at + 12, 60), (at + 16, 60), (at + 24, 92)];
        let one = block(1, 48, &header(48, 0));
        let two = block(2, 48, &[header(48, 160), header(208, 0)].concat());
        let mut ring = ring(&[block(0, 48, &[]), one, block(0, 48, &[]), two]);
        let frames: Vec<Frame> = std::iter::from_fn(|| ring.take(false)).collect();
        let starts: Vec<usize> = frames.iter().map(|frame| frame.range.start).collect();
        assert_eq!(starts, [BLOCK + 140, 3 * BLOCK + 140, 3 * BLOCK + 300]);
        assert!(frames.iter().all(|frame| frame.range.len() == 60));
        let shown = |ring: &BlockRing| [0, 1, 2, 3].map(|number| ring.is_shown(number * BLOCK));
        assert_eq!(shown(&ring), [false, true, true, true]);
        ring.hand_back(1);
        assert_eq!(shown(&ring), [false, false, false, true]);
        ring.hand_back(1);
        assert_eq!(shown(&ring), [false, false, false, true]);
        ring.hand_back(1);
        assert_eq!((shown(&ring), ring.held), ([false; 4], 0));
    }

    proptest! {
        #[test]
        fn for_any_block_header_its_frames_lie_in_it_and_end(
            frames: u32,
            first in prop_oneof![0..5000u32, any::<u32>()],
            words in proptest::collection::vec((6..BLOCK / 4, prop_oneof![0..5000u32, any::<u32>()]), 0..200),
        ) {
            let words: Vec<_> = words.iter().map(|&(at, value)| (at * 4, value)).collect();
            let blocks = [block(0, 0, &[]), block(frames, first, &words)];
            let (mut one, mut other) = (ring(&blocks), ring(&blocks));
            let frames = one_by_one(&mut one);
            for frame in &frames {
                let range = &frame.range;
                prop_assert!(range.is_empty() || range.start >= BLOCK && range.end <= 2 * BLOCK);
                prop_assert!(one.memory().slice(range.clone()).len() == range.len());
            }
            prop_assert_eq!(&in_runs(&mut other).0, &frames);
            prop_assert!(frames.len() <= BLOCK / HEADER_BYTES);
            frames.iter().for_each(|_| one.hand_back(1));
            other.hand_back(frames.len() as u32);
            for ring in [&one, &other] {
                prop_assert!(ring.held == 0 && !ring.is_shown(BLOCK));
            }
        }

        #[test]
        fn for_any_frame_description_runs_give_the_same_as_single_frames(
            said in proptest::collection::vec(said(), 1..9),
        ) {
            let mut words = Vec::new();
            for (number, &(status, len, kept, mac, offloads)) in said.iter().enumerate() {
                let at = 48 + 256 * number;
                // The offload header begins in the middle of a word.
                let fields = [
                    (0, 256),
                    (LAYOUT.kept, kept),
                    (LAYOUT.len, len),
                    (FRAME_STATUS, status),
                    (LAYOUT.mac, mac),
                    (LAYOUT.frame - 12, offloads),
                ];
                words.extend(fields.map(|(field, value)| (at + field, value)));
            }
            let blocks = [block(said.len() as u32, 48, &words)];
            let (mut one, mut other) = (ring(&blocks), ring(&blocks));
            prop_assert_eq!(in_runs(&mut one).0, one_by_one(&mut other));
        }
    }

    /// The description of a frame: status, length, bytes kept, its offset, and the word with the first bytes of its
    /// offload header.
    fn said() -> impl Strategy<Value = (u32, u32, u32, u32, u32)> {
        let status = prop_oneof![8 => Just(1), 1 => 0..0x80u32];
        let lens = prop_oneof![
            8 => (0..2000u32).prop_map(|len| (len, len)),
            1 => (0..2000u32, 0..2000u32),
            1 => any::<u32>().prop_map(|len| (len, len)),
        ];
        let mac = prop_oneof![8 => Just(LAYOUT.frame as u32), 1 => any::<u32>()];
        let offloads = prop_oneof![8 => Just(0), 1 => any::<u32>()];
        (status, lens, mac, offloads)
            .prop_map(|(status, (len, kept), mac, offloads)| (status, len, kept, mac, offloads))
    }

    #[test]
    fn frames_of_the_usual_kind_come_in_a_run_behind_the_first_of_their_block() {
        let fields = |at: usize| [(at, 256), (at + 12, 60), (at + 16, 60), (at + 24, LAYOUT.frame as u32)];
        let words: Vec<_> = (0..8).flat_map(|number| fields(48 + 256 * number)).collect();
        let (frames, plain) = in_runs(&mut ring(&[block(8, 48, &words), block(3, 48, &words)]));
        assert_eq!((frames.len(), plain), (11, 9));
        assert!(frames.iter().all(|frame| frame.len == 60 && frame.range.len() == 60));
    }
}
