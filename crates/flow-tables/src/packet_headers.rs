//! First bytes of a frame, in memory that is never allocated.

use std::ops::{Deref, Range};

use ringroad_port::frame::Fragment;

use crate::packet::MAX_REWRITE_BYTES;

/// First bytes of a frame. Bytes after the last valid one are from earlier frames.
#[derive(Debug, Clone)]
pub(crate) struct PacketHeaders {
    bytes: [u8; MAX_REWRITE_BYTES],
    len: usize,
}

impl Default for PacketHeaders {
    fn default() -> Self {
        Self { bytes: [0; MAX_REWRITE_BYTES], len: 0 }
    }
}

impl Deref for PacketHeaders {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

impl PacketHeaders {
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// All bytes, valid or not.
    #[inline]
    pub fn all(&self) -> &[u8; MAX_REWRITE_BYTES] {
        &self.bytes
    }

    /// Starts again with the first `MOST` bytes of a frame, or with the whole frame if it is shorter. Reads each byte
    /// once.
    #[inline]
    pub fn begin<const MOST: usize>(&mut self, fragments: &[Fragment]) {
        if let [one] = fragments
            && let Some(bytes) = one.bytes().read_array::<MOST>()
            && let Some(target) = self.bytes.first_chunk_mut()
        {
            *target = bytes;
            self.len = MOST;
        } else {
            self.len = 0;
            self.read(fragments, MOST);
        }
    }

    /// Continues to read a frame, until there are `most` bytes or the frame ends. Reads each byte once.
    pub fn read(&mut self, fragments: &[Fragment], most: usize) {
        let mut behind = self.len;
        for fragment in fragments {
            if behind == 0 {
                let room = self.bytes.get_mut(self.len..most).unwrap_or_default();
                self.len += fragment.bytes().read(room);
                continue;
            }
            let skipped = behind.min(fragment.len());
            behind -= skipped;
            let room = self.bytes.get_mut(self.len..most).unwrap_or_default();
            self.len += fragment.bytes().skip(skipped).read(room);
        }
    }

    /// Starts again with these bytes, as many as fit.
    pub fn set(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(MAX_REWRITE_BYTES);
        if let (Some(target), Some(bytes)) = (self.bytes.get_mut(..len), bytes.get(..len)) {
            target.copy_from_slice(bytes);
        }
        self.len = len;
    }

    /// Bytes of a range, writable; `None` if some are not valid.
    pub fn get_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        self.bytes.get_mut(..self.len)?.get_mut(range)
    }

    /// Replaces the bytes of a range by more, fewer or as many. Returns whether the result fits.
    pub fn splice(&mut self, range: Range<usize>, bytes: &[u8]) -> bool {
        let Range { start, end } = range;
        let behind = start + bytes.len();
        if start > end || end > self.len || behind + (self.len - end) > MAX_REWRITE_BYTES {
            return false;
        }
        self.bytes.copy_within(end..self.len, behind);
        self.len = behind + (self.len - end);
        if let Some(target) = self.bytes.get_mut(start..behind) {
            target.copy_from_slice(bytes);
        }
        true
    }
}
