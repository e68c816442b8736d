//! Checksum updates after a change of a header, without reading the rest of the packet.

/// What changing bytes adds to an internet checksum (RFC 1624). Both slices begin at an even place of what is summed
/// up.
pub(crate) fn difference(old: &[u8], new: &[u8]) -> u16 {
    let sum = |bytes: &[u8], invert: u16| {
        let words = bytes.chunks(2).map(|word| match *word {
            [high, low] => u16::from_be_bytes([high, low]),
            [high] => u16::from_be_bytes([high, 0]),
            _ => 0,
        });
        words.map(|word| u32::from(word ^ invert)).sum::<u32>()
    };
    fold(sum(old, 0xffff) + sum(new, 0))
}

/// The checksum after a change; `checksum` stands for the complement of the sum.
pub(crate) fn updated(checksum: u16, difference: u16) -> u16 {
    !fold(u32::from(!checksum) + u32::from(difference))
}

/// The same for a sum that is not complemented yet: what a sender leaves for its card to finish.
pub(crate) fn updated_sum(sum: u16, difference: u16) -> u16 {
    fold(u32::from(sum) + u32::from(difference))
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// SCTP's checksum (RFC 9260, appendix A) after `changed` (old bytes XOR new ones) has become part of a packet;
/// `behind` bytes follow it. CRC-32C is linear: the CRC of the change is sufficient.
pub(crate) fn updated_crc32c(checksum: u32, changed: &[u8], behind: usize) -> u32 {
    // The register begins at zero here, and what comes out is not complemented.
    let change = !crc32c::crc32c_append(!0, changed);
    checksum ^ crc32c::crc32c_combine(change, 0, behind) as u32
}
