//! Writer of frames.
//!
//! Frames are encoded into one buffer, which is written by one `write` when it is full. Only whole records enter the
//! buffer. If a `write` fails half-way, the file is cut back to its last whole record.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::error::CaptureError;
use crate::format::{
    CaptureFormat, LINKTYPE_ETHERNET, MAX_FRAME_BYTES, PCAP_NANOSECONDS, SECTION_BYTE_ORDER, SECTION_HEADER,
};

/// Size of the buffer at which it is written, bytes.
const BUFFER_BYTES: usize = 256 * 1024;
/// Room for the last frame before a write, with its headers and padding, bytes.
const RECORD_BYTES: usize = MAX_FRAME_BYTES as usize + 64;

const PCAP_RECORD_HEADER_BYTES: usize = 16;
/// Length of an Enhanced Packet Block without its frame and padding, bytes.
const PCAPNG_BLOCK_BYTES: usize = 32;
const ENHANCED_PACKET: u32 = 6;
const INTERFACE_DESCRIPTION: u32 = 1;
const OPTION_IF_TSRESOL: u16 = 9;
/// Value of if_tsresol for nanoseconds: 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Content of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureSummary {
    /// Number of whole frames.
    pub frames: u64,
    /// Length of the file, bytes, including headers.
    pub bytes: u64,
}

enum Sink {
    /// A regular file that the writer created and can cut back.
    File(File),
    Stream(Box<dyn Write + Send>),
}

/// Writes frames to a pcap or pcapng file, with nanosecond timestamps, numbers little-endian.
///
/// ```no_run
/// # fn main() -> Result<(), ringroad_capture::CaptureError> {
/// use ringroad_capture::{CaptureFormat, CaptureWriter};
/// let path = "traffic.pcapng";
/// let mut capture = CaptureWriter::create(path, CaptureFormat::from_path(path), 0)?;
/// capture.write_frame(1_700_000_000_123_456_789, &[0; 60], 60)?;
/// assert_eq!(capture.finish()?.frames, 1);
/// # Ok(())
/// # }
/// ```
/// Dropping the writer writes the buffered frames, and loses the error if that fails: call [`CaptureWriter::finish`].
pub struct CaptureWriter {
    path: PathBuf,
    sink: Sink,
    format: CaptureFormat,
    snaplen_bytes: u32,
    buffer: Vec<u8>,
    buffered_frames: u64,
    written: CaptureSummary,
    ended: bool,
}

impl Sink {
    fn of_file(file: File) -> io::Result<Self> {
        let is_regular = file.metadata()?.is_file();
        Ok(if is_regular { Self::File(file) } else { Self::Stream(Box::new(file)) })
    }
}

impl CaptureWriter {
    /// Creates the file at `path`, or overwrites it, and writes the header; `-` is standard output.
    ///
    /// At most `snaplen_bytes` bytes of each frame are stored; 0, like any number above it, means [`MAX_FRAME_BYTES`].
    /// [`CaptureFormat::from_path`] gives the format that the name selects.
    ///
    /// # Errors
    /// [`CaptureError::Create`] and [`CaptureError::Write`].
    pub fn create(
        path: impl AsRef<Path>,
        format: CaptureFormat,
        snaplen_bytes: u32,
    ) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let opened = if path == Path::new("-") {
            // The descriptor is written directly, because the standard library's handle flushes at every newline byte.
            io::stdout()
                .as_fd()
                .try_clone_to_owned()
                .map(|stdout| (PathBuf::from("standard output"), Sink::Stream(Box::new(File::from(stdout)))))
        } else {
            File::create(path).and_then(Sink::of_file).map(|sink| (path.to_owned(), sink))
        };
        match opened {
            Ok((path, sink)) => Self::new(path, sink, format, snaplen_bytes),
            Err(source) => Err(CaptureError::Create { path: path.to_owned(), source }),
        }
    }

    /// Writes a capture to a file that is open and empty. The header is written at once. `path` is the file's name in
    /// messages.
    ///
    /// # Errors
    /// [`CaptureError::Create`] and [`CaptureError::Write`].
    pub fn in_file(
        file: File,
        path: impl Into<PathBuf>,
        format: CaptureFormat,
        snaplen_bytes: u32,
    ) -> Result<Self, CaptureError> {
        let path = path.into();
        match Sink::of_file(file) {
            Ok(sink) => Self::new(path, sink, format, snaplen_bytes),
            Err(source) => Err(CaptureError::Create { path, source }),
        }
    }

    /// Writes a capture to any byte sink. The header is written at once. The writer has a buffer, so the sink needs
    /// none.
    ///
    /// # Errors
    /// [`CaptureError::Write`].
    pub fn from_write(
        sink: impl Write + Send + 'static,
        format: CaptureFormat,
        snaplen_bytes: u32,
    ) -> Result<Self, CaptureError> {
        Self::new(PathBuf::from("the stream"), Sink::Stream(Box::new(sink)), format, snaplen_bytes)
    }

    fn new(
        path: PathBuf,
        sink: Sink,
        format: CaptureFormat,
        snaplen_bytes: u32,
    ) -> Result<Self, CaptureError> {
        let snaplen_bytes = match snaplen_bytes {
            0 => MAX_FRAME_BYTES,
            limited => limited.min(MAX_FRAME_BYTES),
        };
        let mut writer = Self {
            path,
            sink,
            format,
            snaplen_bytes,
            buffer: Vec::with_capacity(BUFFER_BYTES + RECORD_BYTES),
            buffered_frames: 0,
            written: CaptureSummary::default(),
            ended: false,
        };
        match format {
            CaptureFormat::Pcap => push_pcap_header(&mut writer.buffer, snaplen_bytes),
            CaptureFormat::PcapNg => push_pcapng_header(&mut writer.buffer, snaplen_bytes),
        }
        writer.flush()?;
        Ok(writer)
    }

    /// Adds a frame captured at `timestamp_ns` (since 1970-01-01 UTC) that had `original_len` bytes on the wire.
    /// `bytes` beyond the snapshot length are left out. An `original_len` below `bytes.len()` counts as `bytes.len()`.
    ///
    /// # Errors
    /// [`CaptureError::Write`] if the full buffer could not be written: the capture has ended. [`CaptureError::Ended`]
    /// for all later frames. [`CaptureError::Timestamp`]: this frame was left out.
    pub fn write_frame(
        &mut self,
        timestamp_ns: u64,
        bytes: &[u8],
        original_len: u32,
    ) -> Result<(), CaptureError> {
        if self.ended {
            return Err(self.ended_error());
        }
        let captured = bytes.get(..self.snaplen_bytes as usize).unwrap_or(bytes);
        // The length is at most the snapshot length, so it fits.
        let captured_len = captured.len() as u32;
        let original_len = original_len.max(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        match self.format {
            CaptureFormat::Pcap => {
                let Ok(seconds) = u32::try_from(timestamp_ns / 1_000_000_000) else {
                    return Err(CaptureError::Timestamp { path: self.path.clone(), timestamp_ns });
                };
                let fraction_ns = (timestamp_ns % 1_000_000_000) as u32;
                push_numbers(&mut self.buffer, [seconds, fraction_ns, captured_len, original_len]);
                self.buffer.extend_from_slice(captured);
            }
            CaptureFormat::PcapNg => {
                let padding = captured.len().next_multiple_of(4) - captured.len();
                let total = (PCAPNG_BLOCK_BYTES + captured.len() + padding) as u32;
                let (high, low) = ((timestamp_ns >> 32) as u32, timestamp_ns as u32);
                push_numbers(
                    &mut self.buffer,
                    [ENHANCED_PACKET, total, 0, high, low, captured_len, original_len],
                );
                self.buffer.extend_from_slice(captured);
                self.buffer.extend([0; 3].into_iter().take(padding));
                push_numbers(&mut self.buffer, [total]);
            }
        }
        self.buffered_frames += 1;
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes all buffered frames, so that a reader of the file or pipe can see them.
    ///
    /// # Errors
    /// [`CaptureError::Write`], [`CaptureError::Ended`].
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        if self.ended {
            return Err(self.ended_error());
        }
        let mut done = 0;
        while let Some(rest) = self.buffer.get(done..).filter(|rest| !rest.is_empty()) {
            let wrote = match &mut self.sink {
                Sink::File(file) => file.write(rest),
                Sink::Stream(stream) => stream.write(rest),
            };
            match wrote {
                Ok(0) => return Err(self.end(done, ErrorKind::WriteZero.into())),
                Ok(wrote) => done += wrote,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.end(done, error)),
            }
        }
        self.written.bytes += done as u64;
        self.written.frames += self.buffered_frames;
        self.buffered_frames = 0;
        self.buffer.clear();
        match &mut self.sink {
            Sink::File(_) => Ok(()),
            Sink::Stream(stream) => stream.flush().map_err(|error| self.end(0, error)),
        }
    }

    /// Writes the buffered frames, and returns the capture's content. Does not wait for the disk.
    ///
    /// # Errors
    /// [`CaptureError::Write`], [`CaptureError::Ended`].
    pub fn finish(mut self) -> Result<CaptureSummary, CaptureError> {
        self.flush()?;
        Ok(self.written)
    }

    /// Content of the file so far, without buffered frames.
    pub fn written(&self) -> CaptureSummary {
        self.written
    }

    /// Length of the file, bytes, after all buffered frames and one more frame of `frame_bytes` bytes are written.
    pub(crate) fn bytes_with(&self, frame_bytes: usize) -> u64 {
        let captured = frame_bytes.min(self.snaplen_bytes as usize);
        let record = match self.format {
            CaptureFormat::Pcap => PCAP_RECORD_HEADER_BYTES + captured,
            CaptureFormat::PcapNg => PCAPNG_BLOCK_BYTES + captured.next_multiple_of(4),
        };
        self.written.bytes + (self.buffer.len() + record) as u64
    }

    pub fn format(&self) -> CaptureFormat {
        self.format
    }

    /// Greatest stored length of a frame, bytes.
    pub fn snaplen(&self) -> u32 {
        self.snaplen_bytes
    }

    /// Ends the capture after `error`, with `done` bytes of the buffer written.
    fn end(&mut self, done: usize, source: io::Error) -> CaptureError {
        self.ended = true;
        let whole = self.whole_records(done);
        self.written.frames += whole.frames;
        self.written.bytes += whole.bytes;
        let cut_back = match &self.sink {
            Sink::File(file) => file.set_len(self.written.bytes).is_ok(),
            Sink::Stream(_) => whole.bytes == done as u64,
        };
        let (path, frames) = (self.path.clone(), self.written.frames);
        CaptureError::Write { path, frames, whole: cut_back, source }
    }

    /// Whole records in the first `done` bytes of the buffer.
    fn whole_records(&self, done: usize) -> CaptureSummary {
        let mut whole = CaptureSummary::default();
        if self.written.bytes == 0 {
            // The buffer held the header, which is not a record, and is useless in part.
            return whole;
        }
        let number = |at: usize| {
            let bytes = self.buffer.get(at..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes) as usize)
        };
        let mut end = 0;
        loop {
            let record_len = match self.format {
                CaptureFormat::Pcap => number(end + 8).map(|captured| PCAP_RECORD_HEADER_BYTES + captured),
                CaptureFormat::PcapNg => number(end + 4),
            };
            match record_len {
                Some(record_len) if record_len > 0 && end + record_len <= done => {
                    end += record_len;
                    whole.frames += 1;
                    whole.bytes = end as u64;
                }
                _ => return whole,
            }
        }
    }

    fn ended_error(&self) -> CaptureError {
        CaptureError::Ended { path: self.path.clone(), frames: self.written.frames }
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        if !self.buffer.is_empty() && !self.ended {
            // The error cannot be returned here. `finish` returns it.
            let _ = self.flush();
        }
    }
}

impl fmt::Debug for CaptureWriter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CaptureWriter")
            .field("path", &self.path)
            .field("format", &self.format)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

fn push_numbers<const N: usize>(buffer: &mut Vec<u8>, numbers: [u32; N]) {
    for number in numbers {
        buffer.extend_from_slice(&number.to_le_bytes());
    }
}

fn push_shorts<const N: usize>(buffer: &mut Vec<u8>, numbers: [u16; N]) {
    for number in numbers {
        buffer.extend_from_slice(&number.to_le_bytes());
    }
}

fn push_pcap_header(buffer: &mut Vec<u8>, snaplen_bytes: u32) {
    push_numbers(buffer, [PCAP_NANOSECONDS]);
    push_shorts(buffer, [2, 4]);
    // Time zone and accuracy, which are always 0, and the other fields.
    push_numbers(buffer, [0, 0, snaplen_bytes, LINKTYPE_ETHERNET]);
}

fn push_pcapng_header(buffer: &mut Vec<u8>, snaplen_bytes: u32) {
    push_numbers(buffer, [SECTION_HEADER, 28, SECTION_BYTE_ORDER]);
    push_shorts(buffer, [1, 0]);
    // Length of the section, which is unknown, then the block's length again.
    push_numbers(buffer, [u32::MAX, u32::MAX, 28]);
    push_numbers(buffer, [INTERFACE_DESCRIPTION, 32]);
    push_shorts(buffer, [LINKTYPE_ETHERNET as u16, 0]);
    push_numbers(buffer, [snaplen_bytes]);
    push_shorts(buffer, [OPTION_IF_TSRESOL, 1]);
    buffer.extend_from_slice(&[NANOSECONDS, 0, 0, 0]);
    // End of the options, and the block's length again.
    push_numbers(buffer, [0, 32]);
}
