//! Memory for held frames: chunks of one size, allocated once.
#![allow(unsafe_code)]

use ringroad_ring::layout::MAX_FRAGMENTS;
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;

use crate::batch::Batch;
use crate::frame::Fragment;

/// Bytes of a chunk: a frame of usual length takes one.
const CHUNK_BYTES: usize = 2048;
/// Index that stands for no chunk.
const NONE: u32 = u32::MAX;

/// Memory of held frames.
#[derive(Debug)]
pub(super) struct Hold {
    bytes: Vec<u8>,
    /// Next chunk after each chunk: in its frame, or in the list of free chunks.
    next: Vec<u32>,
    first_free: u32,
    free: usize,
}

/// Position of a held frame in its [`Hold`], which must get it back.
#[derive(Debug)]
pub(super) struct HeldBytes {
    first: u32,
    len: u32,
}

/// Reason why a frame cannot be held.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotHeld {
    /// Not enough chunks are free.
    Full,
    /// The frame needs more chunks than a frame may have fragments.
    TooLong,
}

impl HeldBytes {
    /// Number of the frame's fragments when it is appended to a batch.
    pub(super) fn fragments(&self) -> usize {
        chunks(self.len as usize)
    }
}

/// Number of chunks for a frame of `len` bytes.
fn chunks(len: usize) -> usize {
    len.div_ceil(CHUNK_BYTES).max(1)
}

fn range(chunk: u32, len: usize) -> std::ops::Range<usize> {
    let start = chunk as usize * CHUNK_BYTES;
    start..start + len
}

impl Hold {
    /// Memory for `frames` frames of up to 2048 bytes.
    pub(super) fn new(frames: u32) -> Self {
        let count = frames as usize;
        Self {
            bytes: vec![0; count * CHUNK_BYTES],
            next: (1..frames).chain([NONE]).collect(),
            first_free: 0,
            free: count,
        }
    }

    /// Number of frames of `frame_bytes` bytes that still fit.
    pub(super) fn room(&self, frame_bytes: usize) -> usize {
        self.free / chunks(frame_bytes)
    }

    /// Copies a frame into free chunks.
    pub(super) fn put(&mut self, fragments: &[Fragment]) -> Result<HeldBytes, NotHeld> {
        let len: usize = fragments.iter().map(Fragment::len).sum();
        let needed = chunks(len);
        if needed > MAX_FRAGMENTS {
            return Err(NotHeld::TooLong);
        }
        if needed > self.free {
            return Err(NotHeld::Full);
        }
        let first = self.first_free;
        let mut chunk = first;
        let (mut fragments, mut offset) = (fragments.iter().peekable(), 0);
        for part in 0..needed {
            let end = (len - part * CHUNK_BYTES).min(CHUNK_BYTES);
            let mut filled = 0;
            while filled < end
                && let Some(fragment) = fragments.peek()
            {
                let room = self.bytes.get_mut(range(chunk, end)).and_then(|chunk| chunk.get_mut(filled..));
                let copied = fragment.bytes().skip(offset).read(room.unwrap_or_default());
                filled += copied;
                offset += copied;
                if offset == fragment.len() {
                    offset = 0;
                    fragments.next();
                }
            }
            let last = part + 1 == needed;
            if let Some(next) = self.next.get_mut(chunk as usize) {
                chunk = *next;
                if last {
                    *next = NONE;
                }
            }
        }
        self.first_free = chunk;
        self.free -= needed;
        Ok(HeldBytes { first, len: len as u32 })
    }

    /// Flips bit number `bit` of the frame.
    pub(super) fn flip(&mut self, held: &HeldBytes, bit: usize) {
        let byte = bit / 8;
        let mut chunk = held.first;
        for _ in 0..byte / CHUNK_BYTES {
            chunk = self.next.get(chunk as usize).copied().unwrap_or(NONE);
        }
        if let Some(byte) = self.bytes.get_mut(chunk as usize * CHUNK_BYTES + byte % CHUNK_BYTES) {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Appends the frame to `batch`, which has room for it.
    ///
    /// # Safety
    /// The caller must be done with the batch before it gives the frame back to [`Hold::free`].
    pub(super) unsafe fn append_to(&self, held: &HeldBytes, batch: &mut Batch) {
        let mut chunk = held.first;
        let mut left = held.len as usize;
        for part in 0..held.fragments() {
            let len = left.min(CHUNK_BYTES);
            left -= len;
            let flags = if left > 0 { MORE_FRAGMENTS } else { 0 };
            let bytes = self.bytes.get(range(chunk, len)).unwrap_or_default();
            // SAFETY: the memory is never reallocated, and a chunk of a frame is not written again before the frame is
            // given back, which the caller does only after it is done with the batch.
            let fragment = unsafe { Fragment::from_private(bytes, flags) };
            batch.push(fragment, part == 0);
            chunk = self.next.get(chunk as usize).copied().unwrap_or(NONE);
        }
    }

    /// Frees the frame's memory.
    pub(super) fn free(&mut self, held: HeldBytes) {
        let mut last = held.first;
        for _ in 1..held.fragments() {
            last = self.next.get(last as usize).copied().unwrap_or(NONE);
        }
        if let Some(next) = self.next.get_mut(last as usize) {
            *next = self.first_free;
            self.first_free = held.first;
            self.free += held.fragments();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fragments(frame: &[u8], lens: &[usize]) -> Vec<Fragment> {
        let mut rest = frame;
        let mut fragments = Vec::new();
        for &len in lens {
            let (fragment, behind) = rest.split_at(len.min(rest.len()));
            // SAFETY: the frame outlives its fragments in every test here, and nothing writes to it.
            fragments.push(unsafe { Fragment::from_private(fragment, 0) });
            rest = behind;
        }
        // SAFETY: as above.
        fragments.push(unsafe { Fragment::from_private(rest, 0) });
        fragments
    }

    fn content(hold: &Hold, held: &HeldBytes) -> Vec<u8> {
        let mut batch = Batch::new();
        // SAFETY: the batch ends with this function.
        unsafe { hold.append_to(held, &mut batch) };
        let mut content = Vec::new();
        let parts = batch.frame(0);
        for (number, fragment) in parts.iter().enumerate() {
            assert_eq!(fragment.has_more(), number + 1 < parts.len());
            let start = content.len();
            content.resize(start + fragment.len(), 0);
            fragment.bytes().read(&mut content[start..]);
        }
        content
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn held_frames_come_out_unchanged(
            steps in prop::collection::vec((0usize..9000, prop::collection::vec(0usize..3000, 0..4), any::<bool>(), any::<usize>()), 1..60),
        ) {
            let mut hold = Hold::new(16);
            let mut held: Vec<(HeldBytes, Vec<u8>)> = Vec::new();
            for (len, lens, put, which) in steps {
                if put {
                    let mut frame: Vec<u8> = (0..len).map(|index| (index.wrapping_mul(which | 1) >> 3) as u8).collect();
                    let used: usize = held.iter().map(|(held, _)| held.fragments()).sum();
                    match hold.put(&fragments(&frame, &lens)) {
                        Ok(bytes) => {
                            prop_assert!(used + bytes.fragments() <= 16);
                            if len > 0 {
                                let bit = which % (8 * len);
                                hold.flip(&bytes, bit);
                                frame[bit / 8] ^= 1 << (bit % 8);
                            }
                            held.push((bytes, frame));
                        }
                        Err(why) => {
                            prop_assert_eq!(why, NotHeld::Full);
                            prop_assert!(used + chunks(len) > 16);
                        }
                    }
                } else if !held.is_empty() {
                    let (bytes, _) = held.remove(which % held.len());
                    hold.free(bytes);
                }
                for (bytes, frame) in &held {
                    prop_assert_eq!(&content(&hold, bytes), frame);
                }
            }
            for (bytes, _) in held {
                hold.free(bytes);
            }
            prop_assert_eq!(hold.room(0), 16);
        }
    }

    #[test]
    fn frames_of_more_than_64_chunks_are_refused() {
        let mut hold = Hold::new(100);
        let frame = vec![1; 64 * CHUNK_BYTES + 1];
        let lens = [60_000, 60_000];
        assert_eq!(hold.put(&fragments(&frame, &lens)).unwrap_err(), NotHeld::TooLong);
        let held = hold.put(&fragments(&frame[1..], &lens)).unwrap();
        assert_eq!(content(&hold, &held), &frame[1..]);
    }
}
