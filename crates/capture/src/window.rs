//! A buffer over a byte source. It alone reads from the source, and it bounds the memory of a reader.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

use crate::format::MAX_BLOCK_BYTES;

/// Source of the bytes.
pub(crate) enum Source {
    /// An open file, and the offset at which it was handed over; the offset is `None` for a pipe or a terminal.
    File { file: File, start: Option<u64> },
    /// Any other byte source.
    Stream(Box<dyn Read + Send>),
}

impl Source {
    pub(crate) fn file(mut file: File) -> Self {
        let start = file.stream_position().ok();
        Self::File { file, start }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::File { file, .. } => file.read(into),
                Self::Stream(stream) => stream.read(into),
            };
            match read {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

/// Size of a window that has held no longer record, bytes.
const WINDOW_BYTES: usize = 64 * 1024;

/// A window that moves over a [`Source`]; `start..end` of the buffer is unread input. It grows to the longest
/// record met, and no record is longer than [`MAX_BLOCK_BYTES`].
pub(crate) struct Window {
    source: Source,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    consumed_bytes: u64,
    record_bytes: u64,
}

impl Window {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, buffer: vec![0; WINDOW_BYTES], start: 0, end: 0, consumed_bytes: 0, record_bytes: 0 }
    }

    /// Records that the next record begins at the current offset.
    pub(crate) fn begin_record(&mut self) {
        self.record_bytes = self.consumed_bytes;
    }

    /// Offset of the current record, bytes from the beginning of the source.
    pub(crate) fn record_offset_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// The next `wanted` bytes, without consuming them. Fewer only at the end of the source. `wanted` is at most
    /// [`MAX_BLOCK_BYTES`].
    pub(crate) fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        debug_assert!(wanted <= MAX_BLOCK_BYTES as usize, "callers bound their records");
        if self.end - self.start < wanted {
            self.fill(wanted)?;
        }
        let end = self.end.min(self.start + wanted);
        Ok(self.buffer.get(self.start..end).unwrap_or_default())
    }

    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.start == self.end || self.start + wanted > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if wanted > self.buffer.len() {
            self.buffer.resize(wanted.next_power_of_two(), 0);
        }
        while self.end - self.start < wanted {
            let Some(free) = self.buffer.get_mut(self.end..).filter(|free| !free.is_empty()) else { break };
            match self.source.read(free)? {
                0 => break,
                read => self.end += read,
            }
        }
        Ok(())
    }

    /// Skips up to `len` bytes that [`Window::peek`] has returned.
    pub(crate) fn consume(&mut self, len: usize) {
        let len = len.min(self.end - self.start);
        self.start += len;
        self.consumed_bytes += len as u64;
    }

    /// Consumes a record of `record` bytes that [`Window::peek`] has returned, and lends the `len` bytes at `offset` in
    /// it.
    pub(crate) fn take(&mut self, record: usize, offset: usize, len: usize) -> &[u8] {
        let from = self.start + offset;
        self.consume(record);
        self.buffer.get(from..from + len).unwrap_or_default()
    }

    /// Skips `len` bytes, even more than the window holds. Returns `false` if the source ends earlier.
    pub(crate) fn skip(&mut self, mut len: u64) -> io::Result<bool> {
        while len > 0 {
            let step = len.min(self.buffer.len() as u64) as usize;
            let shown = self.peek(step)?.len();
            self.consume(shown);
            if shown < step {
                return Ok(false);
            }
            len -= step as u64;
        }
        Ok(true)
    }

    /// Returns to the beginning of the source. Possible only for files.
    pub(crate) fn rewind(&mut self) -> io::Result<()> {
        match &mut self.source {
            Source::File { file, start: Some(start) } => file.seek(SeekFrom::Start(*start))?,
            _ => return Err(ErrorKind::NotSeekable.into()),
        };
        (self.start, self.end) = (0, 0);
        (self.consumed_bytes, self.record_bytes) = (0, 0);
        Ok(())
    }
}
