//! Conversion of bytes to messages and back, within limits.
//!
//! [`FrameDecoder`] accepts bytes in pieces of any size and holds one frame at most; bytes of the next frame stay with
//! the caller. No input makes the decoder panic or hold more than its limit.

use std::collections::TryReserveError;
use std::io::{self, Write};

use serde::Serialize;

use crate::message::{ErrorKind, ErrorReply, Reply, Request};
use crate::printable::printable;

/// Maximum length of a request's body, bytes.
pub const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Maximum length of a reply's body, bytes.
pub const MAX_REPLY_BYTES: usize = 8 << 20;
/// Length of a frame's header, bytes. The header holds the length of the body in bytes, as a little-endian `u32`.
pub const PREFIX_BYTES: usize = 4;
/// Maximum number of characters of a peer's text that are quoted to people.
const QUOTED_CHARS: usize = 200;

/// Error in a frame's header, after which the stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The body would be longer than allowed.
    #[error("a message of {announced_bytes} bytes was announced, {max_bytes} are allowed")]
    TooLong {
        /// Length in the header, bytes.
        announced_bytes: usize,
        /// Limit, bytes.
        max_bytes: usize,
    },
    /// There is no memory for a body within the limit.
    #[error("no memory for a message: {0}")]
    OutOfMemory(#[from] TryReserveError),
}

/// Reason why a message cannot be sent.
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
}

impl FrameDecoder {
    /// A decoder for bodies of at most `max_body_bytes` bytes, before the first byte of a stream.
    #[must_use]
    pub fn new(max_body_bytes: usize) -> Self {
        Self { max_body_bytes, prefix: [0; PREFIX_BYTES], prefix_bytes: 0, body: Vec::new() }
    }

    /// Takes bytes from the front of `input` up to the end of the current frame. `Some` is that frame's body, and
    /// `input` keeps the bytes behind the frame; `None` means that `input` is used up.
    ///
    /// # Errors
    /// [`FrameError`]; the stream is lost.
    pub fn take_frame(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
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
        // Memory follows the bytes that came, not the announced length, and never exceeds that length.
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

    /// Received bytes of the current frame, its header included.
    pub(crate) fn begun(&self) -> Vec<u8> {
        let prefix = self.prefix.get(..self.prefix_bytes).unwrap_or_default();
        prefix.iter().chain(&self.body).copied().collect()
    }

    /// Memory held for the current frame, bytes: at most the frame's length, and at most twice the received bytes,
    /// whatever the size of the pieces.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.body.capacity()
    }

    /// Number of bytes that the current frame needs at least: the rest of the header, then the rest of the body. A
    /// reader that reads at most this many bytes never takes bytes of the next frame.
    pub(crate) fn wanted_bytes(&self) -> usize {
        if self.prefix_bytes < PREFIX_BYTES {
            return PREFIX_BYTES - self.prefix_bytes;
        }
        usize::try_from(u32::from_le_bytes(self.prefix)).unwrap_or(usize::MAX).saturating_sub(self.body.len())
    }
}

/// Encodes a request as a frame.
///
/// # Errors
/// [`EncodeError`]: longer than [`MAX_REQUEST_BYTES`].
pub fn encode_request(request: &Request) -> Result<Vec<u8>, EncodeError> {
    encode(request, MAX_REQUEST_BYTES)
}

/// Encodes a reply as a frame.
///
/// # Errors
/// [`EncodeError`]: longer than [`MAX_REPLY_BYTES`].
pub fn encode_reply(reply: &Reply) -> Result<Vec<u8>, EncodeError> {
    encode(reply, MAX_REPLY_BYTES)
}

/// Number of bytes that a part of a message takes in a frame.
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

/// Decodes the request in a frame's body.
///
/// # Errors
/// The refusal to answer with, of kind [`ErrorKind::BadRequest`]; the next frame may be valid again.
pub fn decode_request(body: &[u8]) -> Result<Request, ErrorReply> {
    serde_json::from_slice(body).map_err(|error| {
        ErrorReply::new(
            ErrorKind::BadRequest,
            format!("not a request that this daemon knows: {}", printable(&error.to_string(), QUOTED_CHARS)),
            "use a program and a daemon of the same version",
        )
    })
}

/// Decodes the reply in a frame's body.
///
/// # Errors
/// The reason why the body is invalid, as text that is safe for a terminal.
pub fn decode_reply(body: &[u8]) -> Result<Reply, String> {
    serde_json::from_slice(body).map_err(|error| printable(&error.to_string(), QUOTED_CHARS))
}

#[cfg(test)]
mod tests;
