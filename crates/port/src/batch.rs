//! A batch: up to [`BATCH_FRAMES`] frames borrowed from one queue.

use ringroad_ring::layout::MAX_FRAGMENTS;

use crate::frame::Fragment;

/// Most frames in a batch.
pub const BATCH_FRAMES: usize = 256;

/// Frames borrowed from one queue, in order. Allocated once, reused for ever.
#[derive(Debug)]
pub struct Batch {
    fragments: Vec<Fragment>,
    /// Index in `fragments` of the first fragment of each frame.
    heads: Vec<u16>,
    bytes: u64,
    capacity: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self {
            fragments: Vec::with_capacity(BATCH_FRAMES + MAX_FRAGMENTS),
            heads: Vec::with_capacity(BATCH_FRAMES),
            bytes: 0,
            capacity: BATCH_FRAMES,
        }
    }

    /// Empties the batch and sets how many frames (at most [`BATCH_FRAMES`]) the next receive may borrow.
    #[inline]
    pub fn reset(&mut self, capacity: usize) {
        self.fragments.clear();
        self.heads.clear();
        self.bytes = 0;
        self.capacity = capacity.min(BATCH_FRAMES);
    }

    /// Whether another frame of up to `fragments` fragments fits. A frame always fits into an empty batch.
    #[inline]
    #[must_use]
    pub fn has_room(&self, fragments: usize) -> bool {
        self.heads.len() < self.capacity && self.fragments.len() + fragments <= BATCH_FRAMES + MAX_FRAGMENTS
    }

    /// Appends a fragment; `first` begins a new frame. The driver has checked [`Batch::has_room`].
    #[inline]
    pub fn push(&mut self, fragment: Fragment, first: bool) {
        if first {
            self.heads.push(self.fragments.len() as u16);
        }
        self.bytes += fragment.len() as u64;
        self.fragments.push(fragment);
    }

    /// Drops the fragments from `fragments` on: a frame whose rest is not there.
    pub fn truncate(&mut self, fragments: usize) {
        for fragment in self.fragments.drain(fragments.min(self.fragments.len())..) {
            self.bytes -= fragment.len() as u64;
        }
        while self.heads.last().is_some_and(|&head| usize::from(head) >= self.fragments.len()) {
            self.heads.pop();
        }
    }

    /// Number of frames.
    #[inline]
    #[must_use]
    pub fn frames(&self) -> usize {
        self.heads.len()
    }

    /// Number of fragments: what is released when all frames are done with.
    #[inline]
    #[must_use]
    pub fn fragment_count(&self) -> usize {
        self.fragments.len()
    }

    /// Sum of all lengths, bytes (without FCS).
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The fragments of frame `frame`; empty where there is no such frame.
    #[inline]
    #[must_use]
    pub fn frame(&self, frame: usize) -> &[Fragment] {
        let Some(&head) = self.heads.get(frame) else { return &[] };
        let head = usize::from(head);
        let end = match self.heads.get(frame + 1) {
            Some(&next) => usize::from(next),
            None => self.fragments.len(),
        };
        self.fragments.get(head..end).unwrap_or(&[])
    }

    /// The first fragment of frame `frame`, which holds its header.
    #[inline]
    #[must_use]
    pub fn head(&self, frame: usize) -> Option<&Fragment> {
        self.heads.get(frame).and_then(|&head| self.fragments.get(usize::from(head)))
    }
}
