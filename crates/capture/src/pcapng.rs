//! pcapng: a sequence of blocks, each with its length at both ends.
//!
//! A section header gives the byte order. Interface descriptions give link type and clock of the frames that refer to
//! them. Three kinds of block hold frames. The reader skips all other blocks, and options without effect on frames: a
//! name that is not UTF-8 or a malformed comment is harmless.

use crate::error::Fault;
use crate::fields::{ByteOrder, Fields};
use crate::format::{
    LINKTYPE_ETHERNET, MAX_BLOCK_BYTES, MAX_FRAME_BYTES, SECTION_BYTE_ORDER, SECTION_HEADER,
};
use crate::reader::Found;
use crate::window::Window;

const INTERFACE_DESCRIPTION: u32 = 1;
/// Type of the obsolete Packet Block.
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const OPTION_END: u16 = 0;
const OPTION_IF_NAME: u16 = 2;
const OPTION_IF_TSRESOL: u16 = 9;
const OPTION_IF_TSOFFSET: u16 = 14;

/// Length of the fields around a block's body: type and total length before the body, the length again after it.
const FRAMING_BYTES: usize = 12;
/// Offset of the body in a block.
const BODY: usize = 8;
/// Length of the fixed part of an Enhanced or obsolete Packet Block's body.
const PACKET_FIELDS_BYTES: usize = 20;
/// Length of the fixed part of a Simple Packet Block's body.
const SIMPLE_FIELDS_BYTES: usize = 4;

/// Greatest number of interfaces of a section. No real section has more, and the bound limits the memory that a hostile
/// file takes.
const MAX_INTERFACES: usize = 65_536;
/// Longest part of an interface's name that errors quote.
const MAX_NAME_BYTES: usize = 64;

/// State of the reader: the declarations of the current section.
pub(crate) struct PcapNg {
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

struct Interface {
    linktype: u32,
    snaplen_bytes: u32,
    name: Box<str>,
    clock: TimestampUnit,
}

/// Conversion of an interface's timestamps to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimestampUnit {
    /// ns = ticks * `multiplier` / `divisor` + `offset_ns`.
    multiplier: u64,
    divisor: u128,
    offset_ns: i128,
}

/// Kind of the block that was read.
enum Step {
    Frame(Found),
    Declaration,
    Skipped,
    End,
}

impl PcapNg {
    /// Reads up to and including the first interface description, or to the first block that holds a frame.
    pub(crate) fn open(window: &mut Window) -> Result<Self, Fault> {
        // The first block is the section header that the caller has recognised. It sets the byte order.
        let mut pcapng = Self { order: ByteOrder::Little, interfaces: Vec::new() };
        pcapng.step(window)?;
        while pcapng.interfaces.is_empty() {
            let next = Fields::new(window.peek(4)?, pcapng.order).u32();
            let reads_on = !matches!(next, None | Some(PACKET | SIMPLE_PACKET | ENHANCED_PACKET));
            if !reads_on {
                break;
            }
            pcapng.step(window)?;
        }
        Ok(pcapng)
    }

    pub(crate) fn snaplen_bytes(&self) -> u32 {
        self.interfaces.iter().map(|interface| interface.snaplen_bytes).max().unwrap_or(0)
    }

    /// Finds the next frame and consumes all blocks before it; `None` at the end of the file.
    pub(crate) fn next(&mut self, window: &mut Window) -> Result<Option<Found>, Fault> {
        loop {
            match self.step(window)? {
                Step::Frame(found) => return Ok(Some(found)),
                Step::End => return Ok(None),
                Step::Declaration | Step::Skipped => {}
            }
        }
    }

    /// Reads one block. The block is consumed unless it holds a frame.
    fn step(&mut self, window: &mut Window) -> Result<Step, Fault> {
        window.begin_record();
        let framing = window.peek(FRAMING_BYTES)?;
        if framing.is_empty() {
            return Ok(Step::End);
        }
        let mut framing = Fields::new(framing, self.order);
        let mut fields = || Some((framing.array()?, framing.array()?, framing.array()?));
        let (kind, total, magic): ([u8; 4], [u8; 4], [u8; 4]) = fields().ok_or(Fault::Truncated)?;
        let order = if kind == SECTION_HEADER.to_le_bytes() {
            ByteOrder::of_magic(magic, SECTION_BYTE_ORDER)
                .ok_or(Fault::Malformed("a section header without a byte-order magic".into()))?
        } else {
            self.order
        };
        let (kind, total) = (order.u32(kind), order.u32(total));
        if total < FRAMING_BYTES as u32 || total % 4 != 0 {
            return Err(Fault::Malformed(format!("a block length of {total} bytes")));
        }
        if !matches!(kind, SECTION_HEADER | INTERFACE_DESCRIPTION | PACKET | SIMPLE_PACKET | ENHANCED_PACKET)
        {
            return match window.skip(u64::from(total))? {
                true => Ok(Step::Skipped),
                false => Err(Fault::Truncated),
            };
        }
        if total > MAX_BLOCK_BYTES {
            return Err(Fault::TooLong { length_bytes: total, bound_bytes: MAX_BLOCK_BYTES });
        }
        let record_len = total as usize;
        let block = window.peek(record_len)?;
        if block.len() < record_len {
            return Err(Fault::Truncated);
        }
        let framed = block.get(BODY..).and_then(|rest| rest.split_last_chunk::<4>());
        let body = match framed {
            Some((body, trailer)) if order.u32(*trailer) == total => body,
            _ => return Err(Fault::Malformed("a block whose two length fields differ".into())),
        };
        let mut fields = Fields::new(body, order);
        match kind {
            SECTION_HEADER => {
                self.begin_section(order, &mut fields)?;
                window.consume(record_len);
                Ok(Step::Declaration)
            }
            INTERFACE_DESCRIPTION => {
                self.declare_interface(&mut fields)?;
                window.consume(record_len);
                Ok(Step::Declaration)
            }
            SIMPLE_PACKET => self.simple_packet(&mut fields, record_len).map(Step::Frame),
            _ => self.packet(&mut fields, kind, record_len).map(Step::Frame),
        }
    }

    fn begin_section(&mut self, order: ByteOrder, fields: &mut Fields<'_>) -> Result<(), Fault> {
        let mut versions = || {
            let _byte_order: [u8; 4] = fields.array()?;
            let version = (fields.u16()?, fields.u16()?);
            let _section_length: [u8; 8] = fields.array()?;
            Some(version)
        };
        let (major, minor) = versions().ok_or_else(too_short)?;
        // Minor version 2 was once written by mistake instead of 0. By the specification, readers treat both alike.
        if major != 1 {
            return Err(Fault::Version(major, minor));
        }
        self.order = order;
        self.interfaces.clear();
        Ok(())
    }

    fn declare_interface(&mut self, fields: &mut Fields<'_>) -> Result<(), Fault> {
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(Fault::Malformed(format!("more than {MAX_INTERFACES} interfaces in one section")));
        }
        let mut fixed = || {
            let linktype = fields.u16()?;
            let _reserved = fields.u16()?;
            Some((u32::from(linktype), fields.u32()?))
        };
        let (linktype, snaplen_bytes) = fixed().ok_or_else(too_short)?;
        let mut name = Box::default();
        let (mut resolution, mut offset_s) = (6, 0);
        let mut next_option = || {
            let (code, len) = (fields.u16()?, fields.u16()?);
            (code != OPTION_END).then_some(())?;
            Some((code, fields.padded(usize::from(len))?))
        };
        while let Some((code, value)) = next_option() {
            match (code, value) {
                (OPTION_IF_NAME, name_bytes) => {
                    let quoted = name_bytes.get(..MAX_NAME_BYTES).unwrap_or(name_bytes);
                    name = String::from_utf8_lossy(quoted).into();
                }
                (OPTION_IF_TSRESOL, &[value]) => resolution = value,
                (OPTION_IF_TSOFFSET, value) if value.len() == 8 => {
                    offset_s = Fields::new(value, self.order).i64().unwrap_or(0);
                }
                _ => {}
            }
        }
        let clock = TimestampUnit::new(resolution, offset_s);
        self.interfaces.push(Interface { linktype, snaplen_bytes, name, clock });
        Ok(())
    }

    /// Reads an Enhanced Packet Block, or its obsolete predecessor, in which one field has another width.
    fn packet(&self, fields: &mut Fields<'_>, kind: u32, record_len: usize) -> Result<Found, Fault> {
        let mut fixed = || {
            let interface = match kind {
                PACKET => {
                    let interface = fields.u16()?;
                    let _drops = fields.u16()?;
                    u32::from(interface)
                }
                _ => fields.u32()?,
            };
            let (high, low) = (fields.u32()?, fields.u32()?);
            let ticks = u64::from(high) << 32 | u64::from(low);
            Some((interface, ticks, fields.u32()?, fields.u32()?))
        };
        let (interface, ticks, captured_len, original_len) = fixed().ok_or_else(too_short)?;
        let interface = self.ethernet_interface(interface)?;
        Ok(Found {
            timestamp_ns: interface.clock.timestamp_ns(ticks),
            original_len: original_len.max(captured_len),
            record_len,
            offset: BODY + PACKET_FIELDS_BYTES,
            len: checked_len(captured_len, fields)?,
        })
    }

    /// Reads a Simple Packet Block. It belongs to the section's first interface, and has neither a time nor a captured
    /// length.
    fn simple_packet(&self, fields: &mut Fields<'_>, record_len: usize) -> Result<Found, Fault> {
        let original_len = fields.u32().ok_or_else(too_short)?;
        let interface = self.ethernet_interface(0)?;
        let captured_len = match interface.snaplen_bytes {
            0 => original_len,
            snaplen_bytes => original_len.min(snaplen_bytes),
        };
        Ok(Found {
            timestamp_ns: 0,
            original_len,
            record_len,
            offset: BODY + SIMPLE_FIELDS_BYTES,
            len: checked_len(captured_len, fields)?,
        })
    }

    fn ethernet_interface(&self, number: u32) -> Result<&Interface, Fault> {
        let interface = usize::try_from(number).ok().and_then(|number| self.interfaces.get(number));
        match interface {
            Some(interface) if interface.linktype == LINKTYPE_ETHERNET => Ok(interface),
            Some(Interface { linktype, name, .. }) => Err(Fault::LinkType {
                linktype: *linktype,
                interface: match &**name {
                    "" => format!("interface {number}"),
                    name => format!("interface {number} ({})", name.escape_debug()),
                },
            }),
            None => Err(Fault::Malformed(format!("a frame of interface {number}, which is not declared"))),
        }
    }
}

/// The captured length, if it exceeds neither the greatest length of a frame nor the rest of the block.
fn checked_len(captured_len: u32, rest: &Fields<'_>) -> Result<usize, Fault> {
    if captured_len > MAX_FRAME_BYTES {
        return Err(Fault::TooLong { length_bytes: captured_len, bound_bytes: MAX_FRAME_BYTES });
    }
    match captured_len as usize {
        len if len <= rest.rest().len() => Ok(len),
        len => Err(Fault::Malformed(format!("a frame of {len} bytes in a block too short for it"))),
    }
}

fn too_short() -> Fault {
    Fault::Malformed("a block too short for its kind".into())
}

impl TimestampUnit {
    /// Conversion by `resolution`, the option if_tsresol: a negative power of 10, or of 2 if the top bit is set.
    /// `offset_s` is the option if_tsoffset, s.
    fn new(resolution: u8, offset_s: i64) -> Self {
        let power = u32::from(resolution & 0x7f);
        let (multiplier, divisor) = match (resolution & 0x80 != 0, power) {
            (true, power) => (1_000_000_000, 1 << power),
            (false, 0..=9) => (10_u64.pow(9 - power), 1),
            (false, power) => (1, 10_u128.saturating_pow(power - 9)),
        };
        Self { multiplier, divisor, offset_ns: i128::from(offset_s) * 1_000_000_000 }
    }

    fn timestamp_ns(self, ticks: u64) -> u64 {
        if self.divisor == 1 && self.offset_ns == 0 {
            return ticks.saturating_mul(self.multiplier);
        }
        // The product stays below 2^94: both factors are below 2^64, and the multiplier is far smaller.
        let since_offset = u128::from(ticks) * u128::from(self.multiplier) / self.divisor;
        let ns = since_offset as i128 + self.offset_ns;
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timestamp_resolution_counts_in_nanoseconds() {
        assert_eq!(TimestampUnit::new(6, 0).timestamp_ns(1_500_000), 1_500_000_000);
        assert_eq!(TimestampUnit::new(9, 0).timestamp_ns(1_500_000_001), 1_500_000_001);
        assert_eq!(TimestampUnit::new(0, 0).timestamp_ns(3), 3_000_000_000);
        assert_eq!(TimestampUnit::new(12, 0).timestamp_ns(1_999), 1);
        assert_eq!(TimestampUnit::new(0x80 | 10, 0).timestamp_ns(1_536), 1_500_000_000);
        assert_eq!(TimestampUnit::new(6, 100).timestamp_ns(1), 100_000_001_000);
        assert_eq!(TimestampUnit::new(6, -1).timestamp_ns(1_500_000), 500_000_000);
    }

    #[test]
    fn times_out_of_range_become_the_nearest_valid_one() {
        assert_eq!(TimestampUnit::new(0, 0).timestamp_ns(u64::MAX), u64::MAX);
        assert_eq!(TimestampUnit::new(6, -2).timestamp_ns(1), 0);
        for resolution in 0..=u8::MAX {
            for offset_s in [i64::MIN, -1, 0, 1, i64::MAX] {
                for ticks in [0, 1, u64::MAX] {
                    TimestampUnit::new(resolution, offset_s).timestamp_ns(ticks);
                }
            }
        }
    }
}
