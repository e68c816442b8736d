//! Update of SCTP's checksum after a change of a header, without reading the rest of the packet.

/// Updates SCTP's checksum (RFC 9260, appendix A) after a change, given as old bytes XOR new ones; `behind` bytes
/// follow them. CRC-32C is linear: the CRC of the change is sufficient.
pub(crate) fn updated_crc32c(checksum: u32, changed: &[u8], behind: usize) -> u32 {
    // The register begins at zero here, and the result is not complemented.
    let change = !crc32c::crc32c_append(!0, changed);
    checksum ^ crc32c::crc32c_combine(change, 0, behind) as u32
}
