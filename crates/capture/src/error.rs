//! Errors of capture files. Each error names the file, the position in it, and a remedy.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// Position in a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturePosition {
    /// Path as it was given, or a phrase for a source without a name.
    pub path: PathBuf,
    /// Offset of the record or block, in bytes from the beginning.
    pub offset_bytes: u64,
    /// Number of whole frames before this position. A frame at this position is number `frames_before + 1` in other
    /// tools.
    pub frames_before: u64,
}

impl fmt::Display for CapturePosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, offset_bytes, frames_before } = self;
        write!(out, "{}: record {}, at byte {offset_bytes}", path.display(), frames_before + 1)
    }
}

/// An error of reading or writing a capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file cannot be opened for reading.
    #[error("{}: cannot open the capture: {source}; check its name and permissions", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// The file has no bytes at all.
    #[error("{}: the file is empty, not even a capture header; was the capture stopped before it began?", path.display())]
    Empty { path: PathBuf },
    /// The file is compressed.
    #[error("{}: the file is compressed with {kind}; unpack it first: {command} {}", path.display(), path.display())]
    Compressed {
        path: PathBuf,
        /// Name of the compression.
        kind: &'static str,
        /// Program that decompresses the file.
        command: &'static str,
    },
    /// The first bytes are not those of a capture.
    #[error("{}: not a pcap or pcapng file: it begins with {start}; if another tool knows its format, \
             convert it: editcap -F nsecpcap {} new.pcap", path.display(), path.display())]
    NotACapture {
        path: PathBuf,
        /// First bytes of the file (at most four) in hexadecimal.
        start: String,
    },
    /// The version of the format is not 2.4 (pcap) or 1.x (pcapng).
    #[error("{at}: format version {major}.{minor} is not supported; rewrite the file with a current tool: \
             tcpdump -r {} -w new.pcap", at.path.display())]
    Version {
        /// Position of the version.
        at: CapturePosition,
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The file has frames that are not Ethernet frames.
    #[error("{at}: {interface} has link type {linktype}{}, and only Ethernet (1) can pass a port; capture on \
             an Ethernet interface, by its own name", linktype_name(*linktype))]
    LinkType {
        /// Position of the first such frame, or of the file header if all frames are of this type.
        at: CapturePosition,
        /// Interface: its number in the pcapng section and its name, as far as known.
        interface: String,
        /// Number in the tcpdump.org registry of link types.
        linktype: u32,
    },
    /// The file ends inside a record. All frames before the record were delivered.
    #[error("{at}: the file ends inside this record; {}", truncation_advice(at))]
    Truncated {
        /// Start of the truncated record.
        at: CapturePosition,
    },
    /// A record declares a length that is impossible for a frame.
    #[error(
        "{at}: the record declares {length_bytes} bytes, more than the {bound_bytes} that one may have; \
             the file is damaged from here on"
    )]
    TooLong {
        /// Start of the record.
        at: CapturePosition,
        /// Declared length, bytes.
        length_bytes: u32,
        /// Greatest length, bytes: [`crate::MAX_FRAME_BYTES`] or [`crate::MAX_BLOCK_BYTES`].
        bound_bytes: u32,
    },
    /// A record contradicts itself, or earlier declarations.
    #[error("{at}: {problem}; the file is damaged from here on")]
    Malformed {
        /// Start of the record.
        at: CapturePosition,
        problem: String,
    },
    /// Reading failed.
    #[error("{at}: cannot read on: {source}")]
    Read {
        /// Start of the unreadable record.
        at: CapturePosition,
        source: io::Error,
    },
    /// A pipe or stream cannot be read again from the beginning.
    #[error("{}: cannot go back to the first frame: {source}; save the capture to a file and loop over that", path.display())]
    NotRewindable {
        /// Path of the source.
        path: PathBuf,
        source: io::Error,
    },
    /// The file cannot be created.
    #[error("{}: cannot create the capture: {source}; check the folder and its permissions", path.display())]
    Create { path: PathBuf, source: io::Error },
    /// Writing failed, and the capture has ended.
    #[error("{}: cannot write on: {source}; the capture has stopped {}; {}", path.display(),
            extent(*frames, *whole), write_advice(source.kind()))]
    Write {
        path: PathBuf,
        /// Number of whole frames that reached the file.
        frames: u64,
        /// Whether the file ends with its last whole frame. May be false for a pipe, a device or standard output, which
        /// cannot be cut back.
        whole: bool,
        source: io::Error,
    },
    /// A frame came after a [`CaptureError::Write`].
    #[error("{}: the capture has ended with an earlier write error, after {frames} whole frames; \
             create a new one", path.display())]
    Ended {
        path: PathBuf,
        /// Number of whole frames that reached the file.
        frames: u64,
    },
    /// Classic pcap cannot hold the time: its seconds have 32 bits. The frame was not written; later frames can be.
    #[error("{}: {timestamp_ns} ns since 1970 is after the year 2106, which pcap cannot hold; \
             write a .pcapng file", path.display())]
    Timestamp {
        path: PathBuf,
        /// The frame's time, ns since 1970-01-01 UTC.
        timestamp_ns: u64,
    },
}

impl CaptureError {
    /// Whether the reader of our output has gone away (`ringroad capture -w - | head`): a regular end, not a failure.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.kind() == ErrorKind::BrokenPipe)
    }
}

/// A fault that a decoder found; the reader adds the position.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Truncated,
    TooLong {
        length_bytes: u32,
        bound_bytes: u32,
    },
    Malformed(String),
    Version(u16, u16),
    LinkType {
        linktype: u32,
        interface: String,
    },
    /// An error of the whole source, which has no position.
    OfSource(CaptureError),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Fault {
    pub(crate) fn at(self, at: CapturePosition) -> CaptureError {
        match self {
            Self::Io(source) => CaptureError::Read { at, source },
            Self::Truncated => CaptureError::Truncated { at },
            Self::TooLong { length_bytes, bound_bytes } => {
                CaptureError::TooLong { at, length_bytes, bound_bytes }
            }
            Self::Malformed(problem) => CaptureError::Malformed { at, problem },
            Self::Version(major, minor) => CaptureError::Version { at, major, minor },
            Self::LinkType { linktype, interface } => CaptureError::LinkType { at, interface, linktype },
            Self::OfSource(error) => error,
        }
    }
}

/// Name of a link type that users often meet instead of Ethernet.
fn linktype_name(linktype: u32) -> &'static str {
    match linktype {
        0 | 108 => " (BSD loopback)",
        12 | 101 => " (raw IP)",
        105 => " (IEEE 802.11)",
        113 => " (Linux \"any\" device)",
        127 => " (IEEE 802.11 radiotap)",
        276 => " (Linux \"any\" device, version 2)",
        _ => "",
    }
}

fn truncation_advice(at: &CapturePosition) -> String {
    match at.frames_before {
        0 => "nothing of it can be used: capture again".into(),
        frames => {
            let path = at.path.display();
            format!("the {frames} frames in front of it are good: tcpdump -r {path} -w whole.pcap keeps them")
        }
    }
}

fn extent(frames: u64, whole: bool) -> String {
    match whole {
        true => format!("after {frames} whole frames, which the file holds intact"),
        false => format!("after {frames} whole frames, and the next may be cut off"),
    }
}

fn write_advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::StorageFull => {
            "free some space, write to another disk, or store less of each frame (snaplen)"
        }
        ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "raise the limit, write elsewhere, or store less of each frame (snaplen)"
        }
        ErrorKind::BrokenPipe => "the program that read it has ended",
        _ => "write to another disk",
    }
}
