//! Classic pcap: a file header of 24 bytes, then records of a 16-byte header and the captured bytes.
//!
//! The reader is as lenient as others where this is harmless: it delivers a frame that is longer than the file's
//! snapshot length, or than its own original length.

use crate::error::Fault;
use crate::fields::{ByteOrder, Fields};
use crate::format::{LINKTYPE_ETHERNET, MAX_FRAME_BYTES, PCAP_MICROSECONDS, PCAP_NANOSECONDS};
use crate::reader::Found;
use crate::window::Window;

const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;

/// Mask of the link type in its field. The other bits state whether frames carry a frame check sequence.
const LINKTYPE_MASK: u32 = 0x03ff_ffff;

/// Values of the header of a classic pcap file.
pub(crate) struct Pcap {
    order: ByteOrder,
    fraction_ns: u64,
    pub(crate) snaplen_bytes: u32,
}

impl Pcap {
    /// Byte order and nanoseconds per unit of the fraction field, if `magic` belongs to classic pcap.
    fn recognise(magic: [u8; 4]) -> Option<(ByteOrder, u64)> {
        let order = |number| ByteOrder::of_magic(magic, number);
        order(PCAP_MICROSECONDS)
            .map(|order| (order, 1_000))
            .or_else(|| order(PCAP_NANOSECONDS).map(|order| (order, 1)))
    }

    pub(crate) fn has_magic(magic: [u8; 4]) -> bool {
        Self::recognise(magic).is_some()
    }

    /// Reads the file header.
    pub(crate) fn open(window: &mut Window) -> Result<Self, Fault> {
        let mut header = Fields::new(window.peek(FILE_HEADER_BYTES)?, ByteOrder::Little);
        let magic = header.array().ok_or(Fault::Truncated)?;
        let (order, fraction_ns) =
            Self::recognise(magic).ok_or(Fault::Malformed("the magic number has changed".into()))?;
        let mut header = Fields::new(header.rest(), order);
        let mut fields = || {
            let version = (header.u16()?, header.u16()?);
            let _zone_and_accuracy: [u8; 8] = header.array()?;
            Some((version, header.u32()?, header.u32()? & LINKTYPE_MASK))
        };
        let (version, snaplen_bytes, linktype) = fields().ok_or(Fault::Truncated)?;
        if version != (2, 4) {
            return Err(Fault::Version(version.0, version.1));
        }
        if linktype != LINKTYPE_ETHERNET {
            return Err(Fault::LinkType { linktype, interface: "the only interface".into() });
        }
        window.consume(FILE_HEADER_BYTES);
        Ok(Self { order, fraction_ns, snaplen_bytes })
    }

    /// Finds the next frame at the start of the window; `None` at the end of the file.
    pub(crate) fn next(&mut self, window: &mut Window) -> Result<Option<Found>, Fault> {
        window.begin_record();
        let header = window.peek(RECORD_HEADER_BYTES)?;
        if header.is_empty() {
            return Ok(None);
        }
        let mut header = Fields::new(header, self.order);
        let mut fields = || Some((header.u32()?, header.u32()?, header.u32()?, header.u32()?));
        let (seconds, fraction, captured_len, original_len) = fields().ok_or(Fault::Truncated)?;
        if captured_len > MAX_FRAME_BYTES {
            return Err(Fault::TooLong { length_bytes: captured_len, bound_bytes: MAX_FRAME_BYTES });
        }
        let len = captured_len as usize;
        let record_len = RECORD_HEADER_BYTES + len;
        if window.peek(record_len)?.len() < record_len {
            return Err(Fault::Truncated);
        }
        Ok(Some(Found {
            // The time is at most 2^32 * 1e9 + 2^32 * 1e3 and cannot overflow.
            timestamp_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.fraction_ns,
            original_len: original_len.max(captured_len),
            record_len,
            offset: RECORD_HEADER_BYTES,
            len,
        }))
    }
}
