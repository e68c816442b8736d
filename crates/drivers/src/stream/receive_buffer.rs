//! The bytes that have arrived, and the frames in them.
#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::BorrowedFd;

use ringroad_port::batch::Batch;
use ringroad_port::frame::Fragment;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::LENGTH_BYTES;
use crate::socket_frames::{MAX_FRAME_BYTES, USUAL_FRAME_BYTES};

/// Reason for the end of a connection.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StreamEnd {
    #[error("the peer has left")]
    Left,
    #[error("receiving: {0}")]
    Failed(Errno),
    #[error(
        "the peer announced a frame of {0} bytes, not 1 to {most}: each frame has its length in front, 4 bytes, big endian",
        most = MAX_FRAME_BYTES
    )]
    WrongLength(u32),
}

/// A buffer in which frames are lent where they arrived.
#[derive(Debug)]
pub(super) struct ReceiveBuffer {
    bytes: Vec<u8>,
    /// Received bytes that belong to no lent frame. All lent frames lie before them.
    waiting: Range<usize>,
    /// Number of lent frames.
    lent: usize,
    /// Length of the longest expected frame, bytes: that of a usual frame, until a longer one comes.
    pub(super) longest_bytes: usize,
}

const _: () = assert!(ReceiveBuffer::BYTES > LENGTH_BYTES + MAX_FRAME_BYTES);

impl ReceiveBuffer {
    /// Number of bytes that one call can receive. They stay in the cache until they are delivered.
    pub(super) const BYTES: usize = 256 * 1024;

    pub(super) fn new() -> Self {
        Self { bytes: vec![0; Self::BYTES], waiting: 0..0, lent: 0, longest_bytes: USUAL_FRAME_BYTES }
    }

    /// Lends whole frames to `batch`, as many as it has room for, and returns their number.
    ///
    /// # Errors
    /// The next frame has a length that no frame can have.
    pub(super) fn lend(&mut self, batch: &mut Batch) -> Result<usize, StreamEnd> {
        let before = self.lent;
        while batch.has_room(1)
            && let Some(frame) = self.next_frame()?
        {
            self.waiting.start = frame.end;
            self.longest_bytes = self.longest_bytes.max(frame.len());
            let frame = self.bytes.get(frame).unwrap_or_default();
            // SAFETY: the buffer is never resized and lives as long as the queue; bytes before the waiting ones are not
            // written before `release` has counted all lent frames back.
            batch.push(unsafe { Fragment::from_private(frame, 0) }, true);
            self.lent += 1;
        }
        Ok(self.lent - before)
    }

    /// Position of the next frame, if it is here as a whole.
    fn next_frame(&self) -> Result<Option<Range<usize>>, StreamEnd> {
        let Some((&length, behind)) = self.waiting().split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(length);
        match usize::try_from(length) {
            Ok(len @ 1..=MAX_FRAME_BYTES) => {
                let start = self.waiting.start + LENGTH_BYTES;
                Ok((len <= behind.len()).then_some(start..start + len))
            }
            _ => Err(StreamEnd::WrongLength(length)),
        }
    }

    /// Received bytes that belong to no lent frame.
    pub(super) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.waiting.clone()).unwrap_or_default()
    }

    /// Whether [`Self::lend`] has something to do.
    pub(super) fn has_frame(&self) -> bool {
        self.next_frame() != Ok(None)
    }

    pub(super) fn is_lent(&self) -> bool {
        self.lent > 0
    }

    /// Takes the oldest `frames` lent frames back.
    pub(super) fn release(&mut self, frames: usize) {
        self.lent = self.lent.saturating_sub(frames);
    }

    /// Receives what has arrived at `socket`, by one call, and returns whether it was something. No whole frame may wait
    /// to be lent.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn fill(&mut self, socket: BorrowedFd<'_>) -> Result<bool, StreamEnd> {
        if self.lent == 0 && self.waiting.start > 0 {
            // These are fewer bytes than a frame has.
            self.bytes.copy_within(self.waiting.clone(), 0);
            self.waiting = 0..self.waiting.len();
        }
        let room = self.bytes.get_mut(self.waiting.end..).unwrap_or_default();
        if room.is_empty() {
            return Ok(false);
        }
        loop {
            match recv(socket, &mut *room, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(StreamEnd::Left),
                Ok((_, bytes)) => {
                    self.waiting.end += bytes;
                    return Ok(true);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Ok(false),
                // The peer has left without reading all frames.
                Err(Errno::CONNRESET) => return Err(StreamEnd::Left),
                Err(errno) => return Err(StreamEnd::Failed(errno)),
            }
        }
    }

    /// Takes over the bytes that another process has received.
    pub(super) fn begin_with(&mut self, bytes: &[u8]) {
        let room = self.bytes.get_mut(..bytes.len());
        self.waiting = 0..room.map_or(0, |room| {
            room.copy_from_slice(bytes);
            room.len()
        });
    }

    /// Discards the bytes of a connection that has ended, and returns whether they were the beginning of a frame.
    pub(super) fn discard(&mut self) -> bool {
        let was_incomplete = !self.waiting.is_empty();
        self.waiting.start = self.waiting.end;
        was_incomplete
    }
}
