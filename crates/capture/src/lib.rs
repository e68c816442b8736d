//! Capture files as a source and a sink of Ethernet frames.
//!
//! [`CaptureReader`] reads classic pcap (both byte orders, microsecond and nanosecond files) and pcapng (any number of
//! sections and interfaces); the first four bytes distinguish them. [`CaptureWriter`] writes either format, always with
//! nanosecond timestamps; [`CaptureFiles`] writes several files in turn. [`CaptureFilter`] selects frames.
//!
//! A capture file is untrusted input. Whatever its bytes are, a reader
//! - ends: each step consumes at least twelve bytes or finishes;
//! - holds at most [`MAX_BLOCK_BYTES`] of the file in memory, plus a bounded list of interfaces;
//! - delivers every whole frame before a fault, and then reports the fault and its position.
//!
//! Neither reader nor writer allocates memory or makes a system call for each frame.
//!
//! Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; link types: the tcpdump.org registry.

mod error;
mod fields;
mod files;
mod filter;
mod format;
mod pcap;
mod pcapng;
mod reader;
mod window;
mod writer;

pub use error::{CaptureError, CapturePosition};
pub use files::{CaptureFiles, FileLimits};
pub use filter::{CaptureFilter, CaptureFilterError};
pub use format::{CaptureFormat, MAX_BLOCK_BYTES, MAX_FRAME_BYTES};
pub use reader::{CaptureReader, CapturedFrame};
pub use writer::{CaptureSummary, CaptureWriter};
