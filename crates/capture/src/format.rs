//! Formats, their magic numbers and the bounds on lengths, for reader and writer.

use std::fmt;
use std::path::Path;

/// Length of the longest frame that is read or written, bytes: 256 KiB, the largest snapshot length of tcpdump and
/// Wireshark. A longer record means that the file is damaged.
pub const MAX_FRAME_BYTES: u32 = 256 * 1024;

/// Length of the longest pcapng block that is held in memory, bytes: a frame of [`MAX_FRAME_BYTES`] and as much again
/// for its options. Blocks that cannot hold frames are skipped at any length.
pub const MAX_BLOCK_BYTES: u32 = 2 * MAX_FRAME_BYTES;

/// Link type of Ethernet in the tcpdump.org registry. Ports carry no other type.
pub(crate) const LINKTYPE_ETHERNET: u32 = 1;

/// Magic number of classic pcap with microseconds, in the file's own byte order.
pub(crate) const PCAP_MICROSECONDS: u32 = 0xa1b2_c3d4;
/// Magic number of classic pcap with nanoseconds, in the file's own byte order.
pub(crate) const PCAP_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Block type of a pcapng section header, which reads the same in both byte orders.
pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
/// Byte-order magic inside a section header, in the section's own byte order.
pub(crate) const SECTION_BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// Layout of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CaptureFormat {
    /// Classic pcap: one header, then records. Every tool reads it.
    Pcap,
    /// pcapng: blocks; several interfaces, timestamps beyond the year 2106.
    PcapNg,
}

impl CaptureFormat {
    /// Format that a file name selects: pcapng if the name ends in `.pcapng` (in any case), else pcap.
    pub fn from_path(path: impl AsRef<Path>) -> Self {
        match path.as_ref().extension() {
            Some(extension) if extension.eq_ignore_ascii_case("pcapng") => Self::PcapNg,
            _ => Self::Pcap,
        }
    }
}

impl fmt::Display for CaptureFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Pcap => "pcap",
            Self::PcapNg => "pcapng",
        })
    }
}
