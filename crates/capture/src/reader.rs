//! Reader of frames from files of both formats.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::error::{CaptureError, CapturePosition, Fault};
use crate::format::{CaptureFormat, PCAP_MICROSECONDS, PCAP_NANOSECONDS, SECTION_HEADER};
use crate::pcap::Pcap;
use crate::pcapng::PcapNg;
use crate::window::{Source, Window};

/// A frame that [`CaptureReader::next_frame`] lends until its next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedFrame<'a> {
    /// Time of capture, ns since 1970-01-01 UTC. 0 if the file does not state it (pcapng Simple Packet Blocks). A time
    /// outside the range of `u64` becomes the nearest time in the range.
    pub timestamp_ns: u64,
    /// The captured bytes from the destination address on; at most [`crate::MAX_FRAME_BYTES`].
    pub bytes: &'a [u8],
    /// Length of the frame on the wire, bytes; never less than `bytes.len()`.
    pub original_len: u32,
}

/// A frame that a decoder found in the window. Offsets count from the window's start.
pub(crate) struct Found {
    pub(crate) timestamp_ns: u64,
    pub(crate) original_len: u32,
    pub(crate) record_len: usize,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

enum Decoder {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

/// Reads the frames of a pcap or pcapng file, or stream, in order.
///
/// ```no_run
/// # fn main() -> Result<(), ringroad_capture::CaptureError> {
/// let mut capture = ringroad_capture::CaptureReader::open("traffic.pcapng")?;
/// while let Some(frame) = capture.next_frame()? {
///     println!("{} ns: {} of {} bytes", frame.timestamp_ns, frame.bytes.len(), frame.original_len);
/// }
/// # Ok(())
/// # }
/// ```
pub struct CaptureReader {
    path: PathBuf,
    window: Window,
    decoder: Decoder,
    frames: u64,
    ended: bool,
}

impl CaptureReader {
    /// Opens the file at `path` and reads its header; `-` is standard input.
    ///
    /// # Errors
    /// [`CaptureError::Open`] if the file cannot be opened, and the errors of [`CaptureReader::from_read`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let from_stdin = path == Path::new("-");
        let file = if from_stdin {
            io::stdin().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::open(path)
        };
        let path = if from_stdin { PathBuf::from("standard input") } else { path.to_owned() };
        match file {
            Ok(file) => Self::new(path, Source::file(file)),
            Err(source) => Err(CaptureError::Open { path, source }),
        }
    }

    /// Reads a capture from an open file. Its header is read at once. `path` is the file's name in messages.
    ///
    /// # Errors
    /// Those of [`CaptureReader::from_read`].
    pub fn from_file(file: File, path: impl Into<PathBuf>) -> Result<Self, CaptureError> {
        Self::new(path.into(), Source::file(file))
    }

    /// Reads a capture from any byte source. Its header is read at once, and for pcapng all up to the first interface
    /// description or packet. The reader has a buffer, so the source needs none.
    ///
    /// # Errors
    /// Errors that state what the bytes are instead of a capture of Ethernet frames: [`CaptureError::Empty`],
    /// [`CaptureError::Compressed`], [`CaptureError::NotACapture`], [`CaptureError::Version`],
    /// [`CaptureError::LinkType`], [`CaptureError::Truncated`], [`CaptureError::TooLong`], [`CaptureError::Malformed`],
    /// [`CaptureError::Read`].
    pub fn from_read(source: impl Read + Send + 'static) -> Result<Self, CaptureError> {
        Self::new(PathBuf::from("the stream"), Source::Stream(Box::new(source)))
    }

    fn new(path: PathBuf, source: Source) -> Result<Self, CaptureError> {
        let mut window = Window::new(source);
        match open_decoder(&path, &mut window) {
            Ok(decoder) => Ok(Self { path, window, decoder, frames: 0, ended: false }),
            Err(fault) => {
                let offset_bytes = window.record_offset_bytes();
                Err(fault.at(CapturePosition { path, offset_bytes, frames_before: 0 }))
            }
        }
    }

    /// The next frame, or `None` at the end. After an error there is no next frame until
    /// [`CaptureReader::rewind`].
    ///
    /// # Errors
    /// [`CaptureError::Truncated`], [`CaptureError::TooLong`], [`CaptureError::Malformed`], [`CaptureError::LinkType`],
    /// [`CaptureError::Version`] (of a later pcapng section) and [`CaptureError::Read`], each with the position in the
    /// file.
    pub fn next_frame(&mut self) -> Result<Option<CapturedFrame<'_>>, CaptureError> {
        if self.ended {
            return Ok(None);
        }
        let found = match &mut self.decoder {
            Decoder::Pcap(pcap) => pcap.next(&mut self.window),
            Decoder::PcapNg(pcapng) => pcapng.next(&mut self.window),
        };
        self.ended = !matches!(found, Ok(Some(_)));
        let Some(found) = found.map_err(|fault| fault.at(self.position()))? else { return Ok(None) };
        self.frames += 1;
        Ok(Some(CapturedFrame {
            timestamp_ns: found.timestamp_ns,
            bytes: self.window.take(found.record_len, found.offset, found.len),
            original_len: found.original_len,
        }))
    }

    /// Returns to the first frame, for another round of a replay. Possible only for files.
    ///
    /// # Errors
    /// [`CaptureError::NotRewindable`] for pipes and streams; the errors of [`CaptureReader::open`] if the file has
    /// changed since.
    pub fn rewind(&mut self) -> Result<(), CaptureError> {
        self.ended = true;
        self.frames = 0;
        let rewound = self.window.rewind();
        rewound.map_err(|source| CaptureError::NotRewindable { path: self.path.clone(), source })?;
        let decoder = open_decoder(&self.path, &mut self.window);
        self.decoder = decoder.map_err(|fault| fault.at(self.position()))?;
        self.ended = false;
        Ok(())
    }

    pub fn format(&self) -> CaptureFormat {
        match self.decoder {
            Decoder::Pcap(_) => CaptureFormat::Pcap,
            Decoder::PcapNg(_) => CaptureFormat::PcapNg,
        }
    }

    /// Snapshot length that the file declares, bytes: the greatest captured length of a frame. For pcapng, the largest
    /// of the interfaces read so far. 0 if the file declares none.
    pub fn snaplen(&self) -> u32 {
        match &self.decoder {
            Decoder::Pcap(pcap) => pcap.snaplen_bytes,
            Decoder::PcapNg(pcapng) => pcapng.snaplen_bytes(),
        }
    }

    fn position(&self) -> CapturePosition {
        CapturePosition {
            path: self.path.clone(),
            offset_bytes: self.window.record_offset_bytes(),
            frames_before: self.frames,
        }
    }
}

impl fmt::Debug for CaptureReader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CaptureReader")
            .field("position", &self.position())
            .field("format", &self.format())
            .finish_non_exhaustive()
    }
}

fn open_decoder(path: &Path, window: &mut Window) -> Result<Decoder, Fault> {
    let start = window.peek(4)?;
    let path = || path.to_owned();
    if start.is_empty() {
        return Err(Fault::OfSource(CaptureError::Empty { path: path() }));
    }
    if let Some((_, kind, command)) = COMPRESSED.iter().find(|(magic, ..)| start.starts_with(magic)) {
        return Err(Fault::OfSource(CaptureError::Compressed { path: path(), kind, command }));
    }
    match start.try_into() {
        Ok(magic) if Pcap::has_magic(magic) => Ok(Decoder::Pcap(Pcap::open(window)?)),
        Ok(magic) if magic == SECTION_HEADER.to_le_bytes() => Ok(Decoder::PcapNg(PcapNg::open(window)?)),
        Err(_) if begins_a_capture(start) => Err(Fault::Truncated),
        _ => Err(Fault::OfSource(CaptureError::NotACapture {
            path: path(),
            start: start.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
        })),
    }
}

/// Common compressions of captures: first bytes, name and decompression command.
const COMPRESSED: [(&[u8], &str, &str); 5] = [
    (&[0x1f, 0x8b], "gzip", "gunzip"),
    (b"BZh", "bzip2", "bunzip2"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "unzstd"),
    (&[0xfd, 0x37, 0x7a, 0x58], "xz", "unxz"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4", "unlz4"),
];

/// Whether fewer than four bytes are the beginning of a magic number.
fn begins_a_capture(start: &[u8]) -> bool {
    [PCAP_MICROSECONDS, PCAP_NANOSECONDS, SECTION_HEADER]
        .iter()
        .flat_map(|magic| [magic.to_le_bytes(), magic.to_be_bytes()])
        .any(|magic| magic.starts_with(start))
}
