//! The signature that a test frame carries: stream, sequence number, time of departure, and a checksum.
//!
//! The signature is the last bytes of the frame before the FCS, thus at the end of the payload. There are four forms. A
//! sender uses the longest form that fits after the headers ([`SignatureForm::longest_within`]). All numbers are
//! big-endian, and a form that has less than 64 bits for a number carries its low bits.
//!
//! ```text
//! Full, 28 bytes
//!   0       4         6        8          16             24
//!   | magic | covered | stream | sequence | timestamp ns | CRC-32C |
//!     4       2         2        8          8              4
//! Compact, 18 bytes: just what a 64-byte Ethernet, IPv4, UDP frame has room for
//!   0       2        4          9              14
//!   | magic | stream | sequence | timestamp ns | CRC-32C |
//!     2       2        5          5              4
//! Short, 10 bytes: the same with two VLAN tags
//!   0        1          4              8
//!   | stream | sequence | timestamp ns | CRC-16 |
//!     1        3          4              2
//! Tiny, 6 bytes: a 64-byte Ethernet, IPv4, TCP frame
//!   0        1          4
//!   | stream | sequence | CRC-16 |
//!     1        3          2
//! ```
//!
//! Every checksum covers the fields before it, except the magic. In the full form the checksum also covers the
//! `covered` bytes immediately before the signature, so that damage to the payload is detected. Each form has another
//! initial checksum. Bytes that are all zero are a signature in no form.
//!
//! A receiver does not know the sent signature, so [`read_signature`] classifies the frame:
//!
//! - magic and checksum right: *intact*;
//! - one of the two right: *corrupted*. Four bytes of evidence outweigh two: only a frame that is not intact in the
//!   short or tiny form is corrupted for a compact magic alone;
//! - neither: *foreign*.
//!
//! Short and tiny signatures have no magic. Frames with a damaged one are foreign, and one foreign frame in 2^16 is
//! taken for signed. If this matters, configure the forms that the receiver expects ([`FormSet`]).

mod checksum;
mod form;

use ringroad_wire::checksum::sum_halves;
use thiserror::Error;

pub use self::form::{FormSet, SignatureForm};

use self::checksum::{Crc32c, crc16, crc32c};

const FULL_MAGIC: u32 = 0xa752_961e;
const COMPACT_MAGIC: u16 = 0xb5e9;
/// Initial checksums. In the full form the covered bytes come first instead.
const COMPACT_SEED: u32 = 0x3c5a_9617;
const SHORT_SEED: u16 = 0x5a3c;
const TINY_SEED: u16 = 0xc369;

pub(crate) const FULL_BYTES: usize = SignatureForm::Full.bytes();
pub(crate) const COMPACT_BYTES: usize = SignatureForm::Compact.bytes();
pub(crate) const SHORT_BYTES: usize = SignatureForm::Short.bytes();
pub(crate) const TINY_BYTES: usize = SignatureForm::Tiny.bytes();

/// Reason why the requested signatures cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SignerError {
    /// The stream's number does not fit the form.
    #[error(
        "stream: {stream} does not fit a signature of {} bytes, which carries 0 to {}; use a lower number, or \
         frames with room for {} bytes behind their headers",
        .form.bytes(), .form.max_stream(), COMPACT_BYTES
    )]
    Stream {
        /// The requested form.
        form: SignatureForm,
        /// The requested stream.
        stream: u16,
    },
    /// The payload is longer than the length field allows.
    #[error(
        "covered: {bytes} bytes are too many for the checksum of a signature, which covers 0 to {}",
        u16::MAX
    )]
    Covered {
        /// Number of bytes to cover.
        bytes: usize,
    },
}

/// Writer of the signatures of one stream. The covered bytes of the payload do not vary: their checksum is computed
/// once.
#[derive(Debug, Clone, Copy)]
pub struct Signer {
    form: SignatureForm,
    stream: u16,
    covered_bytes: u16,
    covered_crc: u32,
    crc: Crc32c,
}

impl Signer {
    /// Makes signatures of `form` for `stream`. `covered` are the bytes of the frame immediately before the signature
    /// that it covers: all of the payload, or its last bytes. Only the full form covers bytes.
    pub fn new(form: SignatureForm, stream: u16, covered: &[u8]) -> Result<Self, SignerError> {
        if stream > form.max_stream() {
            return Err(SignerError::Stream { form, stream });
        }
        let covered = if form == SignatureForm::Full { covered } else { &[] };
        let covered_bytes =
            u16::try_from(covered.len()).map_err(|_| SignerError::Covered { bytes: covered.len() })?;
        Ok(Self { form, stream, covered_bytes, covered_crc: crc32c(covered), crc: Crc32c::new() })
    }

    /// Form of the signatures.
    #[must_use]
    pub fn form(&self) -> SignatureForm {
        self.form
    }

    /// Writes the signature of frame number `sequence`, which departs at `timestamp_ns`, over the last bytes of `frame`.
    /// Returns the sum of its words, for the checksums that cover it: less than 2^36. A frame that is too short for the
    /// signature stays unchanged.
    #[inline(always)]
    pub fn sign(&self, sequence: u64, timestamp_ns: u64, frame: &mut [u8]) -> u64 {
        match self.form {
            SignatureForm::Full => self.sign_as::<FULL_BYTES>(sequence, timestamp_ns, frame),
            SignatureForm::Compact => self.sign_as::<COMPACT_BYTES>(sequence, timestamp_ns, frame),
            SignatureForm::Short => self.sign_as::<SHORT_BYTES>(sequence, timestamp_ns, frame),
            SignatureForm::Tiny => self.sign_as::<TINY_BYTES>(sequence, timestamp_ns, frame),
        }
    }

    /// Writes a signature as [`Self::sign`] does, for the form of `BYTES` bytes, which must be this signer's form. The
    /// hot callers then write checksums over the signature: inlined, they need no call, and keep the signature in
    /// registers.
    #[inline(always)]
    pub(crate) fn sign_as<const BYTES: usize>(
        &self,
        sequence: u64,
        timestamp_ns: u64,
        frame: &mut [u8],
    ) -> u64 {
        let Some(s) = frame.last_chunk_mut::<BYTES>() else { return 0 };
        self.write::<BYTES>(sequence, timestamp_ns, s);
        // The words are read in the same pieces in which they were written. Reads of other pieces would wait until the
        // signature is in the cache.
        match BYTES {
            FULL_BYTES => dword(s, 0) + dword(s, 4) + qword(s, 8) + qword(s, 16) + dword(s, 24),
            COMPACT_BYTES => word(s, 0) + dword(s, 2) + qword(s, 6) + dword(s, 14),
            SHORT_BYTES => qword(s, 0) + word(s, 8),
            _ => dword(s, 0) + word(s, 4),
        }
    }

    #[inline(always)]
    fn write<const BYTES: usize>(&self, sequence: u64, timestamp_ns: u64, out: &mut [u8; BYTES]) {
        match BYTES {
            FULL_BYTES => {
                let head = u32::from(self.covered_bytes) << 16 | u32::from(self.stream);
                let crc = self.crc.append_words(self.covered_crc, head, [sequence, timestamp_ns]);
                let (front, back) = out.split_at_mut(16);
                front[..4].copy_from_slice(&FULL_MAGIC.to_be_bytes());
                front[4..8].copy_from_slice(&head.to_be_bytes());
                front[8..].copy_from_slice(&sequence.to_be_bytes());
                back[..8].copy_from_slice(&timestamp_ns.to_be_bytes());
                back[8..].copy_from_slice(&crc.to_be_bytes());
            }
            COMPACT_BYTES => {
                let head = u32::from(self.stream) << 16 | low(sequence >> 24, 16) as u32;
                let tail = sequence << 40 | low(timestamp_ns, 40);
                let crc = self.crc.append_words(COMPACT_SEED, head, [tail]);
                let (front, back) = out.split_at_mut(6);
                front[..2].copy_from_slice(&COMPACT_MAGIC.to_be_bytes());
                front[2..].copy_from_slice(&head.to_be_bytes());
                back[..8].copy_from_slice(&tail.to_be_bytes());
                back[8..].copy_from_slice(&crc.to_be_bytes());
            }
            SHORT_BYTES => {
                let fields = u64::from(self.stream) << 56 | low(sequence, 24) << 32 | low(timestamp_ns, 32);
                let (front, back) = out.split_at_mut(8);
                front.copy_from_slice(&fields.to_be_bytes());
                back.copy_from_slice(&(crc16(fields) ^ SHORT_SEED).to_be_bytes());
            }
            _ => {
                let fields = u32::from(self.stream) << 24 | low(sequence, 24) as u32;
                let (front, back) = out.split_at_mut(4);
                front.copy_from_slice(&fields.to_be_bytes());
                back.copy_from_slice(&(crc16(u64::from(fields)) ^ TINY_SEED).to_be_bytes());
            }
        }
    }
}

/// Classification of a frame's last bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureReading {
    /// No signature.
    Foreign,
    /// A signature with damage, in itself or in the bytes that it covers.
    Corrupted {
        /// The stream number in the frame. It is certain if the damage is in the magic, else it may itself be damaged.
        stream: u16,
    },
    /// A signature without damage.
    Intact(Signature),
}

/// The fields of an intact signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// The form, on which the lengths of the other fields depend.
    pub form: SignatureForm,
    /// Number of the stream on the wire.
    pub stream: u16,
    /// Low [`SignatureForm::sequence_bits`] bits of the sequence number.
    pub sequence_low: u64,
    /// Low [`SignatureForm::timestamp_bits`] bits of the time of departure, ns; 0 if the form has no timestamp.
    pub timestamp_low: u64,
}

impl Signature {
    /// The sequence number: the number nearest to `near` among those with these low bits, where `near` is the number
    /// expected next. Right if the distance from `near` is less than half the range of the form: 2^39 for the compact
    /// form, 2^23 for the short and tiny forms.
    #[inline]
    #[must_use]
    pub fn sequence(&self, near: u64) -> u64 {
        let bits = self.form.sequence_bits();
        latest(self.sequence_low, bits, near.saturating_add(low(u64::MAX, bits) / 2))
    }

    /// The time of departure, ns of the sender's clock, which must also be the clock of `now_ns`. It is the latest time
    /// with these low bits that is at most a sixteenth of the form's range after `now_ns`. A time after `now_ns` means
    /// that the clocks differ.
    ///
    /// Right for 17 minutes in the compact form, for 4 seconds in the short form. None if the form has no timestamp.
    #[inline]
    #[must_use]
    pub fn timestamp_ns(&self, now_ns: u64) -> Option<u64> {
        let bits = self.form.timestamp_bits();
        self.form
            .carries_timestamp()
            .then(|| latest(self.timestamp_low, bits, now_ns.saturating_add(low(u64::MAX, bits) / 16)))
    }
}

/// Reads the signature of `frame`, without FCS, in any of `forms`. A frame with bytes appended or cut off is foreign.
#[inline]
#[must_use]
pub fn read_signature(frame: &[u8], forms: FormSet) -> SignatureReading {
    if forms.contains(SignatureForm::Full)
        && let Some(full) = Full::at_end_of(frame)
        && full.magic_right
    {
        return if full.crc_right(frame) {
            SignatureReading::Intact(full.signature())
        } else {
            full.corrupted()
        };
    }
    if forms.contains(SignatureForm::Compact)
        && let Some(compact) = Compact::at_end_of(frame)
        && compact.magic_right
        && compact.crc_right()
    {
        return SignatureReading::Intact(compact.signature());
    }
    read_weaker(frame, forms)
}

/// Reads a frame that is not intact in the full or compact form and does not have the magic of the full form.
#[inline(never)]
fn read_weaker(frame: &[u8], forms: FormSet) -> SignatureReading {
    if forms.contains(SignatureForm::Full)
        && let Some(full) = Full::at_end_of(frame)
        && full.crc_right(frame)
    {
        return full.corrupted();
    }
    let compact = if forms.contains(SignatureForm::Compact) { Compact::at_end_of(frame) } else { None };
    if let Some(compact) = &compact
        && compact.crc_right()
    {
        return compact.corrupted();
    }
    if forms.contains(SignatureForm::Short)
        && let Some(bytes) = frame.last_chunk::<SHORT_BYTES>()
    {
        let fields = u64_at(bytes, 0);
        if crc16(fields) ^ SHORT_SEED == u16_at(bytes, 8) {
            return SignatureReading::Intact(Signature {
                form: SignatureForm::Short,
                stream: (fields >> 56) as u16,
                sequence_low: low(fields >> 32, 24),
                timestamp_low: low(fields, 32),
            });
        }
    }
    if forms.contains(SignatureForm::Tiny)
        && let Some(bytes) = frame.last_chunk::<TINY_BYTES>()
    {
        let fields = u32_at(bytes, 0);
        if crc16(fields.into()) ^ TINY_SEED == u16_at(bytes, 4) {
            return SignatureReading::Intact(Signature {
                form: SignatureForm::Tiny,
                stream: (fields >> 24) as u16,
                sequence_low: low(fields.into(), 24),
                timestamp_low: 0,
            });
        }
    }
    match compact {
        Some(compact) if compact.magic_right => compact.corrupted(),
        _ => SignatureReading::Foreign,
    }
}

/// Fields of the full form, before they are checked.
struct Full {
    magic_right: bool,
    /// Fields `covered` and `stream`.
    head: u32,
    sequence: u64,
    timestamp_ns: u64,
    crc: u32,
}

impl Full {
    #[inline]
    fn at_end_of(frame: &[u8]) -> Option<Self> {
        let bytes = frame.last_chunk::<FULL_BYTES>()?;
        Some(Self {
            magic_right: u32_at(bytes, 0) == FULL_MAGIC,
            head: u32_at(bytes, 4),
            sequence: u64_at(bytes, 8),
            timestamp_ns: u64_at(bytes, 16),
            crc: u32_at(bytes, 24),
        })
    }

    #[inline]
    fn crc_right(&self, frame: &[u8]) -> bool {
        let before = &frame[..frame.len() - FULL_BYTES];
        let Some(start) = before.len().checked_sub((self.head >> 16) as usize) else {
            return false;
        };
        let covered_crc = crc32c(&before[start..]);
        Crc32c::new().append_words(covered_crc, self.head, [self.sequence, self.timestamp_ns]) == self.crc
    }

    #[inline]
    fn signature(&self) -> Signature {
        Signature {
            form: SignatureForm::Full,
            stream: self.head as u16,
            sequence_low: self.sequence,
            timestamp_low: self.timestamp_ns,
        }
    }

    fn corrupted(&self) -> SignatureReading {
        SignatureReading::Corrupted { stream: self.head as u16 }
    }
}

/// Fields of the compact form, before they are checked.
struct Compact {
    magic_right: bool,
    /// Field `stream` and the upper 16 bits of `sequence`.
    head: u32,
    /// The lower 24 bits of `sequence`, and field `timestamp`.
    tail: u64,
    crc: u32,
}

impl Compact {
    #[inline]
    fn at_end_of(frame: &[u8]) -> Option<Self> {
        let bytes = frame.last_chunk::<COMPACT_BYTES>()?;
        Some(Self {
            magic_right: u16_at(bytes, 0) == COMPACT_MAGIC,
            head: u32_at(bytes, 2),
            tail: u64_at(bytes, 6),
            crc: u32_at(bytes, 14),
        })
    }

    #[inline]
    fn crc_right(&self) -> bool {
        Crc32c::new().append_words(COMPACT_SEED, self.head, [self.tail]) == self.crc
    }

    #[inline]
    fn signature(&self) -> Signature {
        Signature {
            form: SignatureForm::Compact,
            stream: (self.head >> 16) as u16,
            sequence_low: low(self.head.into(), 16) << 24 | self.tail >> 40,
            timestamp_low: low(self.tail, 40),
        }
    }

    fn corrupted(&self) -> SignatureReading {
        SignatureReading::Corrupted { stream: (self.head >> 16) as u16 }
    }
}

/// Two bytes of a signature as a word of checksums.
#[inline]
fn word<const BYTES: usize>(signature: &[u8; BYTES], at: usize) -> u64 {
    u16_at(signature, at).swap_bytes().into()
}

#[inline]
fn dword<const BYTES: usize>(signature: &[u8; BYTES], at: usize) -> u64 {
    u32_at(signature, at).swap_bytes().into()
}

#[inline]
fn qword<const BYTES: usize>(signature: &[u8; BYTES], at: usize) -> u64 {
    sum_halves(u64_at(signature, at).swap_bytes())
}

#[inline]
fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    let mut number = [0; 2];
    number.copy_from_slice(&bytes[at..at + 2]);
    u16::from_be_bytes(number)
}

#[inline]
fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(number)
}

#[inline]
fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(number)
}

/// The low `bits` bits of `number`; `bits` is 0 to 64.
#[inline]
const fn low(number: u64, bits: u32) -> u64 {
    match bits {
        0 => 0,
        bits => number & u64::MAX >> (u64::BITS - bits),
    }
}

/// The highest number up to `limit` with the low `bits` bits `number`, or `number` if there is none.
#[inline]
fn latest(number: u64, bits: u32, limit: u64) -> u64 {
    limit.checked_sub(low(limit.wrapping_sub(number), bits)).unwrap_or(number)
}

#[cfg(test)]
mod tests;
