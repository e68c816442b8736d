//! Bytes to messages and back, within limits.
//!
//! [`FrameDecoder`] accepts bytes in pieces of any size and holds one frame at most; what belongs to the next frame
//! stays with the caller. No input makes it panic or hold more than its limit.

use std::collections::TryReserveError;
use std::io::{self, Write};

use serde::Serialize;

use crate::message::{ErrorKind, ErrorReply, Reply, Request};
use crate::printable::printable;

/// Longest body of a request, bytes.
pub const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Longest body of a reply, bytes.
pub const MAX_REPLY_BYTES: usize = 8 << 20;
/// Length of a frame's head: the length of its body as `u32`, little-endian, bytes.
pub const PREFIX_BYTES: usize = 4;
/// Most characters of what a peer sent that are quoted to people.
const QUOTED_CHARS: usize = 200;

/// A head after which the stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The body would be longer than allowed.
    #[error("a message of {announced_bytes} bytes was announced, {max_bytes} are allowed")]
    TooLong {
        /// Length in the head, bytes.
        announced_bytes: usize,
        /// Limit, bytes.
        max_bytes: usize,
    },
    /// There is no memory for a body within the limit.
    #[error("no memory for a message: {0}")]
    OutOfMemory(#[from] TryReserveError),
}

/// A message that cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The body would be longer than allowed.
    #[error("a message of {bytes} bytes is too long, {max_bytes} are allowed")]
    TooLong {
        /// Length of the body, bytes.
        bytes: usize,
        /// Limit, bytes.
        max_bytes: usize,
    },
    /// The message has no JSON form.
    #[error("message without a JSON form: {0}")]
    Json(#[from] serde_json::Error),
}

/// Assembles frames from pieces.
#[derive(Debug)]
pub struct FrameDecoder {
    max_body_bytes: usize,
    prefix: [u8; PREFIX_BYTES],
    prefix_bytes: usize,
    body: Vec<u8>,
    error: Option<FrameError>,
}

impl FrameDecoder {
    /// A decoder for bodies of at most `max_body_bytes` bytes, before the first byte of a stream.
    #[must_use]
    pub fn new(max_body_bytes: usize) -> Self {
        Self { max_body_bytes, prefix: [0; PREFIX_BYTES], prefix_bytes: 0, body: Vec::new(), error: None }
    }

    /// Takes bytes from the front of `input` up to the end of the current frame. `Some` is that frame's body, with
    /// the bytes behind it left in `input`; `None` means that `input` is used up.
    ///
    /// # Errors
    /// [`FrameError`]; the stream is lost, and every later call returns the same.
    pub fn take_frame(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let frame = self.assemble(input);
        if let Err(error) = &frame {
            self.error = Some(error.clone());
            self.body = Vec::new();
        }
        frame
    }

    fn assemble(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
        while self.prefix_bytes < PREFIX_BYTES {
            let Some((&byte, rest)) = input.split_first() else { return Ok(None) };
            if let Some(target) = self.prefix.get_mut(self.prefix_bytes) {
                *target = byte;
            }
            self.prefix_bytes += 1;
            *input = rest;
        }
        let announced_bytes = usize::try_from(u32::from_le_bytes(self.prefix)).unwrap_or(usize::MAX);
        if announced_bytes > self.max_body_bytes {
            return Err(FrameError::TooLong { announced_bytes, max_bytes: self.max_body_bytes });
        }
        let missing = announced_bytes - self.body.len();
        let (piece, rest) = input.split_at(missing.min(input.len()));
        // Memory follows the bytes that came, not those announced, and never goes beyond those.
        if self.body.capacity() - self.body.len() < piece.len() {
            self.body.try_reserve_exact(missing.min(piece.len().max(self.body.len())))?;
        }
        self.body.extend_from_slice(piece);
        *input = rest;
        if self.body.len() < announced_bytes {
            return Ok(None);
        }
        self.prefix_bytes = 0;
        Ok(Some(std::mem::take(&mut self.body)))
    }

    /// Whether a frame has begun and not ended.
    #[must_use]
    pub fn is_within_frame(&self) -> bool {
        self.prefix_bytes > 0
    }

    /// What has come of the current frame, its head included.
    pub(crate) fn begun(&self) -> Vec<u8> {
        let prefix = self.prefix.get(..self.prefix_bytes).unwrap_or_default();
        prefix.iter().chain(&self.body).copied().collect()
    }

    /// Memory held for the current frame, bytes: at most the frame's length, and twice what has come of it, however the
    /// pieces come.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.body.capacity()
    }

    /// How many bytes the current frame needs at least before anything new is known: the rest of the head, then the
    /// rest of the body. A reader that reads at most this many never takes bytes of the next frame.
    pub(crate) fn wanted_bytes(&self) -> usize {
        if self.prefix_bytes < PREFIX_BYTES {
            return PREFIX_BYTES - self.prefix_bytes;
        }
        usize::try_from(u32::from_le_bytes(self.prefix)).unwrap_or(usize::MAX).saturating_sub(self.body.len())
    }
}

/// The frame of a request.
///
/// # Errors
/// [`EncodeError`]: longer than [`MAX_REQUEST_BYTES`].
pub fn encode_request(request: &Request) -> Result<Vec<u8>, EncodeError> {
    encode(request, MAX_REQUEST_BYTES)
}

/// The frame of a reply.
///
/// # Errors
/// [`EncodeError`]: longer than [`MAX_REPLY_BYTES`].
pub fn encode_reply(reply: &Reply) -> Result<Vec<u8>, EncodeError> {
    encode(reply, MAX_REPLY_BYTES)
}

/// How many bytes a part of a message takes in a frame.
#[must_use]
pub fn encoded_bytes(part: &impl Serialize) -> usize {
    let mut counted = Counted(0);
    // A message that cannot be encoded cannot be sent either, which is reported at that point.
    let _ = serde_json::to_writer(&mut counted, part);
    counted.0
}

/// Counts bytes instead of keeping them.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn encode(message: &impl Serialize, max_bytes: usize) -> Result<Vec<u8>, EncodeError> {
    let mut frame = vec![0; PREFIX_BYTES];
    serde_json::to_writer(&mut frame, message)?;
    let bytes = frame.len() - PREFIX_BYTES;
    match u32::try_from(bytes) {
        Ok(length) if bytes <= max_bytes => {
            for (target, byte) in frame.iter_mut().zip(length.to_le_bytes()) {
                *target = byte;
            }
            Ok(frame)
        }
        _ => Err(EncodeError::TooLong { bytes, max_bytes }),
    }
}

/// The request in a frame's body.
///
/// # Errors
/// The refusal to answer with, of kind [`ErrorKind::BadRequest`]; the next frame may be good again.
pub fn decode_request(body: &[u8]) -> Result<Request, ErrorReply> {
    serde_json::from_slice(body).map_err(|error| {
        ErrorReply::new(
            ErrorKind::BadRequest,
            format!("not a request that this daemon knows: {}", printable(&error.to_string(), QUOTED_CHARS)),
            "use a program and a daemon of the same version",
        )
    })
}

/// The reply in a frame's body.
///
/// # Errors
/// Why it is invalid, as text that is safe for a terminal.
pub fn decode_reply(body: &[u8]) -> Result<Reply, String> {
    serde_json::from_slice(body).map_err(|error| printable(&error.to_string(), QUOTED_CHARS))
}

#[cfg(test)]
mod tests;
