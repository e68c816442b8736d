//! Checksums of signatures, which have few bytes.
//!
//! The crc32c crate is made for long input: a call costs more than the checksum of a whole signature does here.

// The processor's own instructions for CRC-32C, if it has them.
#![allow(unsafe_code)]

/// CRC-32C (Castagnoli; RFC 3720 appendix B.4) of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if bytes.is_empty() { 0 } else { ::crc32c::crc32c(bytes) }
}

/// CRC-32C in the fastest way of this processor. The choice is made once, not for each frame.
#[derive(Debug, Clone, Copy)]
pub struct Crc32c {
    /// Whether the processor has the instruction.
    has_instruction: bool,
}

impl Crc32c {
    #[inline]
    pub fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        let has_instruction = std::arch::is_x86_feature_detected!("sse4.2");
        #[cfg(not(target_arch = "x86_64"))]
        let has_instruction = false;
        Self { has_instruction }
    }

    /// Checksum of bytes: `crc` is the checksum of the first bytes, and the big-endian words `head` and `tail` are the
    /// rest.
    #[inline]
    pub fn append_words<const N: usize>(self, crc: u32, head: u32, tail: [u64; N]) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if self.has_instruction {
            // SAFETY: the processor has the instruction.
            let crc = unsafe { sse42::crc32_u32(!crc, head.swap_bytes()) };
            return !tail.iter().fold(u64::from(crc), |crc, word| {
                // SAFETY: the processor has the instruction.
                unsafe { sse42::crc32_u64(crc, word.swap_bytes()) }
            }) as u32;
        }
        append_words_portable(crc, head, tail)
    }
}

/// Instructions of the processor, which take the least significant byte first. The functions of [`std::arch`] are not
/// inlined if the processor is only known at run time, and a call costs as much as the instructions.
#[cfg(target_arch = "x86_64")]
mod sse42 {
    use std::arch::asm;

    /// # Safety
    /// The processor has SSE 4.2.
    #[inline]
    pub(super) unsafe fn crc32_u32(mut crc: u32, word: u32) -> u32 {
        // SAFETY: the caller guarantees the instruction, which changes only this register.
        unsafe {
            asm!("crc32 {:e}, {:e}", inout(reg) crc, in(reg) word, options(pure, nomem, nostack, preserves_flags))
        };
        crc
    }

    /// # Safety
    /// The processor has SSE 4.2.
    #[inline]
    pub(super) unsafe fn crc32_u64(mut crc: u64, word: u64) -> u64 {
        // SAFETY: the caller guarantees the instruction, which changes only this register.
        unsafe {
            asm!("crc32 {}, {}", inout(reg) crc, in(reg) word, options(pure, nomem, nostack, preserves_flags))
        };
        crc
    }
}

#[inline(never)]
fn append_words_portable<const N: usize>(crc: u32, head: u32, tail: [u64; N]) -> u32 {
    let crc = ::crc32c::crc32c_append(crc, &head.to_be_bytes());
    tail.iter().fold(crc, |crc, word| ::crc32c::crc32c_append(crc, &word.to_be_bytes()))
}

/// CRC-16 of a big-endian number, with the polynomial x^16 + x^12 + x^5 + 1 of ITU-T V.41, initial value 0, not
/// reflected (also named XMODEM). Leading zeros make no difference, so this is also the checksum of a shorter number.
#[inline]
pub fn crc16(number: u64) -> u16 {
    let bytes = number.to_le_bytes();
    (0..bytes.len()).fold(0, |crc, index| crc ^ CRC16_TABLES[index][usize::from(bytes[index])])
}

/// Contribution to the checksum of each byte value at each position of a number. Positions count from the last byte.
static CRC16_TABLES: [[u16; 256]; 8] = crc16_tables();

const fn crc16_tables() -> [[u16; 256]; 8] {
    const POLYNOMIAL: u16 = 0x1021;
    let mut tables = [[0; 256]; 8];
    let mut index = 0;
    while index < 8 {
        let mut byte = 0;
        while byte < 256 {
            let mut crc = if index == 0 { (byte as u16) << 8 } else { tables[index - 1][byte] };
            let mut bit = 0;
            while bit < 8 {
                crc = (crc << 1) ^ ((crc >> 15) * POLYNOMIAL);
                bit += 1;
            }
            tables[index][byte] = crc;
            byte += 1;
        }
        index += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn checksums_match_their_standards() {
        // Check values from the catalogue of CRCs are over the digits 1 to 9: here 1 to 8, then 9.
        let digits = u64::from_be_bytes(*b"12345678");
        let after_9 = |crc: u16| (crc << 8) ^ CRC16_TABLES[0][usize::from((crc >> 8) as u8 ^ b'9')];
        assert_eq!(after_9(crc16(digits)), 0x31c3);
        let head = u32::from_be_bytes(*b"2345");
        let crc = Crc32c::new().append_words(crc32c(b"1"), head, []);
        assert_eq!(::crc32c::crc32c_append(crc, b"6789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn all_ways_to_compute_a_checksum_agree(crc: u32, head: u32, tail: [u64; 2]) {
            let bytes = [&head.to_be_bytes()[..], &tail[0].to_be_bytes(), &tail[1].to_be_bytes()].concat();
            let expected = ::crc32c::crc32c_append(crc, &bytes);
            prop_assert_eq!(append_words_portable(crc, head, tail), expected);
            prop_assert_eq!(Crc32c::new().append_words(crc, head, tail), expected);
        }
    }
}
