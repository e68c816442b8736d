//! The frames of a stream: Ethernet, IPv4 and UDP, one template varied by a few fields.
//!
//! A [`FrameTemplate`] is built once; each frame then differs from it only in the fields that [`Variation`] names, and
//! making it rewrites those fields in place: no allocation, no pass over the payload. The same fields, size, variation
//! and sequence number always make the same bytes.
//!
//! ```text
//! byte (of the slot)   0   6   12  14               34  36  38  40  42             50
//!                     | d | s | t | IPv4, 20 bytes | sp| dp| l | c | sequence u64 | payload pattern ... |
//!                           ^varies (low 2 bytes)    ^varies     ^   ^varies
//! ```
//!
//! The sequence number is big-endian and takes the first 8 payload bytes; the shortest frame has 18, so it always fits.
//! The rest of the payload repeats the pattern, which starts at the payload's first byte.
//!
//! Checksums are always right. IPv4 would allow checksum 0, "none" (RFC 768); a real one is sent, so that receivers can
//! tell a frame damaged on its way. The sum over all fields that do not vary is held with the template, and each frame
//! adds its own 16-bit words, which one's complement addition allows in any order (RFC 1071, section 2). Unlike updating
//! the last frame's checksum (RFC 1624) an error could not add up, and any sequence number can be made from any state.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use etherparse::PacketBuilder;
use serde::{Deserialize, Serialize};

use crate::line_rate::FrameSize;
use crate::mac_address::{MacAddress, hex_byte};

/// Most flows of one stream: as many as there are UDP ports.
pub const MAX_FLOWS: u32 = 65536;
/// Where the UDP payload, and with it the sequence number, begins in the slot, bytes.
pub const PAYLOAD_OFFSET_BYTES: usize = 42;
/// Length of the sequence number, bytes.
pub const SEQUENCE_BYTES: usize = 8;

/// All that varies lies in the first so many bytes; the shortest frame has 60.
const HEAD_BYTES: usize = PAYLOAD_OFFSET_BYTES + SEQUENCE_BYTES;
/// RFC 1700's recommendation; a generator's frames cross few routers.
const TIME_TO_LIVE: u8 = 64;

/// What the frames of a stream say.
///
/// The defaults keep test traffic apart from real traffic: locally administered Ethernet addresses, IPv4 addresses from
/// 198.18.0.0/15, reserved for benchmarks (RFC 2544, appendix C.2.2), and the discard port (RFC 863), so that no host
/// answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrameFields {
    /// Destination Ethernet address.
    pub destination: MacAddress,
    /// Source Ethernet address; of the first flow, if flows vary it.
    pub source: MacAddress,
    /// Source IPv4 address.
    pub ipv4_source: Ipv4Addr,
    /// Destination IPv4 address.
    pub ipv4_destination: Ipv4Addr,
    /// Source UDP port; of the first flow.
    pub udp_source_port: u16,
    /// Destination UDP port.
    pub udp_destination_port: u16,
    /// Payload after the sequence number.
    pub payload: PayloadPattern,
}

impl Default for FrameFields {
    fn default() -> Self {
        Self {
            destination: MacAddress([2, 0, 0, 0, 0, 2]),
            source: MacAddress([2, 0, 0, 0, 0, 1]),
            ipv4_source: Ipv4Addr::new(198, 18, 0, 1),
            ipv4_destination: Ipv4Addr::new(198, 19, 0, 1),
            udp_source_port: 49152,
            udp_destination_port: 9,
            payload: PayloadPattern::default(),
        }
    }
}

/// Bytes repeated through the payload; a single one fills it.
///
/// Text: pairs of hexadecimal digits (`00`, `55aa`, `0xdeadbeef`), one pair at least. Serialised as that text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PayloadPattern(Vec<u8>);

impl Default for PayloadPattern {
    /// Zeros.
    fn default() -> Self {
        Self(vec![0])
    }
}

impl FromStr for PayloadPattern {
    type Err = StreamError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(hex_byte).collect();
        match bytes {
            Some(bytes) if !bytes.is_empty() => Ok(Self(bytes)),
            _ => Err(StreamError::PayloadPattern { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for PayloadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl TryFrom<String> for PayloadPattern {
    type Error = StreamError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PayloadPattern> for String {
    fn from(pattern: PayloadPattern) -> Self {
        pattern.to_string()
    }
}

/// How the frames of a stream differ from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Variation {
    /// Whether frames carry their sequence number.
    pub sequence_numbers: bool,
    /// Number of flows, 1 to [`MAX_FLOWS`]. Frame number n belongs to flow n modulo this, and its UDP source port is the
    /// stream's plus the flow, modulo 65536.
    pub flows: u32,
    /// Whether the low 2 bytes of the source Ethernet address count with the flow too, modulo 65536.
    pub flows_in_source_address: bool,
}

impl Default for Variation {
    /// Sequence numbers, one flow.
    fn default() -> Self {
        Self { sequence_numbers: true, flows: 1, flows_in_source_address: false }
    }
}

/// Why frames cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The number of flows is none, or more than there are ports.
    #[error("a stream cannot have {flows} flows: give 1 to {MAX_FLOWS}")]
    Flows {
        /// What was given.
        flows: u32,
    },
    /// The text is no payload pattern.
    #[error("\"{text}\" is not a payload pattern: write pairs of hexadecimal digits, like 00 or 55aa")]
    PayloadPattern {
        /// What was given.
        text: String,
    },
    /// The frame does not fit where it should be written.
    #[error(
        "a frame of {frame_bytes} bytes (without FCS) does not fit in a slot of {slot_bytes}: \
         choose a smaller frame size or larger buffers"
    )]
    SlotTooShort {
        /// Bytes of the frame, without FCS.
        frame_bytes: usize,
        /// Bytes there are.
        slot_bytes: usize,
    },
    /// The headers could not be built.
    #[error("the frame's headers could not be built: {reason}")]
    Headers {
        /// The builder's words.
        reason: String,
    },
}

/// One frame of a stream with all that does not vary, checksums included.
#[derive(Debug, Clone)]
pub struct FrameTemplate {
    bytes: Box<[u8]>,
    stamp: Stamp,
}

impl FrameTemplate {
    /// Builds the frame of `size`, of which the slot holds all but the FCS.
    ///
    /// # Errors
    /// [`StreamError::Flows`] for a number of flows outside 1 to [`MAX_FLOWS`].
    pub fn new(fields: &FrameFields, size: FrameSize, variation: Variation) -> Result<Self, StreamError> {
        if !(1..=MAX_FLOWS).contains(&variation.flows) {
            return Err(StreamError::Flows { flows: variation.flows });
        }
        let payload_bytes = size.slot_bytes() - PAYLOAD_OFFSET_BYTES;
        let mut payload: Vec<u8> = fields.payload.0.iter().copied().cycle().take(payload_bytes).collect();
        if variation.sequence_numbers
            && let Some(sequence) = payload.first_chunk_mut::<SEQUENCE_BYTES>()
        {
            *sequence = [0; SEQUENCE_BYTES];
        }
        // Source port and sequence number are 0 here, so that the checksum covers just what does not vary.
        let mut bytes = Vec::with_capacity(size.slot_bytes());
        PacketBuilder::ethernet2(fields.source.0, fields.destination.0)
            .ipv4(fields.ipv4_source.octets(), fields.ipv4_destination.octets(), TIME_TO_LIVE)
            .udp(0, fields.udp_destination_port)
            .write(&mut bytes, &payload)
            .map_err(|error| StreamError::Headers { reason: error.to_string() })?;
        let checksum = match bytes.first_chunk::<HEAD_BYTES>() {
            Some(head) => u16::from_be_bytes([head[40], head[41]]),
            None => return Err(StreamError::Headers { reason: "the frame is too short".to_owned() }),
        };
        let [.., high, low] = fields.source.0;
        let stamp = Stamp {
            variation,
            constant_sum: !checksum,
            udp_source_port: fields.udp_source_port,
            source_low: u16::from_be_bytes([high, low]),
        };
        let mut template = Self { bytes: bytes.into_boxed_slice(), stamp };
        template.stamp.apply(0, 0, &mut template.bytes);
        Ok(template)
    }

    /// Bytes of every frame, without FCS.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Writes frame number `sequence` to the start of `slot` and returns its length in bytes, without FCS.
    ///
    /// # Errors
    /// [`StreamError::SlotTooShort`], and `slot` is as before.
    #[inline]
    pub fn write_into(&self, sequence: u64, slot: &mut [u8]) -> Result<usize, StreamError> {
        self.write(sequence, self.stamp.flow(sequence), slot)
    }

    #[inline]
    fn write(&self, sequence: u64, flow: u16, slot: &mut [u8]) -> Result<usize, StreamError> {
        let (frame_bytes, slot_bytes) = (self.bytes.len(), slot.len());
        let frame =
            slot.get_mut(..frame_bytes).ok_or(StreamError::SlotTooShort { frame_bytes, slot_bytes })?;
        frame.copy_from_slice(&self.bytes);
        self.stamp.apply(sequence, flow, frame);
        Ok(frame_bytes)
    }
}

/// The varying fields' values, and the rest's share of the UDP checksum.
#[derive(Debug, Clone, Copy)]
struct Stamp {
    variation: Variation,
    /// One's complement sum of pseudo-header, header and payload with source port and sequence number 0.
    constant_sum: u16,
    udp_source_port: u16,
    source_low: u16,
}

impl Stamp {
    /// The flow that frame `sequence` belongs to: below 65536, because there are at most [`MAX_FLOWS`].
    #[inline]
    fn flow(&self, sequence: u64) -> u16 {
        (sequence % u64::from(self.variation.flows)) as u16
    }

    #[inline]
    fn apply(&self, sequence: u64, flow: u16, frame: &mut [u8]) {
        let Some(head) = frame.first_chunk_mut::<HEAD_BYTES>() else { return };
        let source_port = self.udp_source_port.wrapping_add(flow);
        let mut sum = u32::from(self.constant_sum) + u32::from(source_port);
        head[34..36].copy_from_slice(&source_port.to_be_bytes());
        if self.variation.flows_in_source_address {
            head[10..12].copy_from_slice(&self.source_low.wrapping_add(flow).to_be_bytes());
        }
        if self.variation.sequence_numbers {
            head[42..50].copy_from_slice(&sequence.to_be_bytes());
            for shift in [0, 16, 32, 48] {
                sum += (sequence >> shift) as u32 & 0xffff;
            }
        }
        head[40..42].copy_from_slice(&udp_checksum(sum).to_be_bytes());
    }
}

/// The UDP checksum for a sum of a few 16-bit words; 0 would mean "none" and is sent as all ones (RFC 768).
#[inline]
fn udp_checksum(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    let folded = (once & 0xffff) + (once >> 16);
    match !(folded as u16) {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// The frames of a stream one after another, made in one buffer.
#[derive(Debug, Clone)]
pub struct FrameStream {
    template: FrameTemplate,
    sequence: u64,
    flow: u16,
}

impl FrameStream {
    /// A stream whose next frame has number `first_sequence`.
    #[must_use]
    pub fn new(template: FrameTemplate, first_sequence: u64) -> Self {
        let flow = template.stamp.flow(first_sequence);
        Self { template, sequence: first_sequence, flow }
    }

    /// The number of the next frame; minus the first, how many frames were made.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// The next frame, without FCS: the same as [`FrameTemplate::write_into`] writes for its number.
    #[inline]
    pub fn frame(&mut self) -> &[u8] {
        let FrameTemplate { bytes, stamp } = &mut self.template;
        stamp.apply(self.sequence, self.flow, bytes);
        self.advance();
        &self.template.bytes
    }

    /// Writes the next frame to the start of `slot` and returns its length in bytes, without FCS.
    ///
    /// For filling slots this costs less than copying what [`Self::frame`] returns (the `frame` benchmark has both).
    ///
    /// # Errors
    /// [`StreamError::SlotTooShort`]; `slot` is as before, and the frame is still the next.
    #[inline]
    pub fn write_next(&mut self, slot: &mut [u8]) -> Result<usize, StreamError> {
        let frame_bytes = self.template.write(self.sequence, self.flow, slot)?;
        self.advance();
        Ok(frame_bytes)
    }

    #[inline]
    fn advance(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
        // Counted rather than divided; the flow starts again where the sequence number does.
        let following = u32::from(self.flow) + 1;
        let round_ends = following == self.template.stamp.variation.flows || self.sequence == 0;
        self.flow = if round_ends { 0 } else { following as u16 };
    }
}

/// The sequence number that `frame` (without FCS) carries, if it has the form of a stream's frame: untagged, IPv4
/// without options, no fragment, UDP, and long enough.
///
/// Frames say no more about themselves: UDP traffic of other origin yields whatever its first 8 payload bytes are, so
/// the caller must know that the traffic comes from a stream with sequence numbers.
#[inline]
#[must_use]
pub fn read_sequence(frame: &[u8]) -> Option<u64> {
    let head = frame.first_chunk::<HEAD_BYTES>()?;
    let ipv4_without_options = head[12..15] == [0x08, 0x00, 0x45];
    // More-fragments flag and fragment offset; the don't-fragment flag may be either.
    let fragment = head[20] & 0x3f != 0 || head[21] != 0;
    let udp = head[23] == 17;
    let long_enough = usize::from(u16::from_be_bytes([head[38], head[39]])) >= 8 + SEQUENCE_BYTES;
    if !(ipv4_without_options && !fragment && udp && long_enough) {
        return None;
    }
    head.last_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests;
