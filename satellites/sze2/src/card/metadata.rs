//! Metadata that the card puts into the segment of a received frame.

/// Length of the metadata, bytes.
pub const FRAME_INFO_BYTES: usize = 12;

/// Metadata of a received frame: time, then network interface, then two bytes of zeros, all little-endian. The layout
/// is our own: the layout of real cards depends on their firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameInfo {
    /// Time of arrival, ns since the Unix epoch.
    pub timestamp_ns: u64,
    /// Network interface of the card on which the frame arrived.
    pub interface: u16,
}

impl FrameInfo {
    /// Encodes the metadata.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; FRAME_INFO_BYTES] {
        let mut bytes = [0; FRAME_INFO_BYTES];
        bytes[..8].copy_from_slice(&self.timestamp_ns.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.interface.to_le_bytes());
        bytes
    }

    /// Decodes the metadata of a segment; `None` if they have another length.
    #[inline]
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FRAME_INFO_BYTES] = bytes.try_into().ok()?;
        let (time, rest) = bytes.split_first_chunk()?;
        let (interface, _) = rest.split_first_chunk()?;
        Some(Self { timestamp_ns: u64::from_le_bytes(*time), interface: u16::from_le_bytes(*interface) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_round_trip() {
        let info = FrameInfo { timestamp_ns: 0x0102_0304_0506_0708, interface: 3 };
        assert_eq!(info.to_bytes(), [8, 7, 6, 5, 4, 3, 2, 1, 3, 0, 0, 0]);
        assert_eq!(FrameInfo::from_bytes(&info.to_bytes()), Some(info));
        assert_eq!(FrameInfo::from_bytes(&[0; 11]), None);
    }
}
