//! A segment: a frame in an SZE2 buffer, with its header and the card's metadata.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 2 | length of the segment without the padding after it, little-endian |
//! | 2 | 2 | length of the metadata, little-endian; 0 if there are none |
//! | 4 | metadata | the card's metadata of the frame |
//! | 4 + metadata | 0 to 7 | padding, so that the frame begins at a multiple of 8 |
//! | 8 or more | the rest | the frame, without FCS |
//! | length | 0 to 7 | padding, so that the next segment begins at a multiple of 8 |
//!
//! (Thesis "DPDK nad síťovými kartami COMBO", section 2.7.4; libsze2's `szedata_decode_packet`.)

/// Length of a header, bytes: the two lengths.
pub const HEADER_BYTES: usize = 4;
/// Alignment of segments and frames, and unit of lengths of areas, bytes.
pub const ALIGNMENT: usize = 8;
/// Longest frame of a segment without metadata, bytes.
pub const MAX_FRAME_BYTES: usize = u16::MAX as usize - ALIGNMENT;

/// `bytes` rounded up to the next multiple of 8.
#[inline]
#[must_use]
pub const fn align(bytes: usize) -> usize {
    (bytes + ALIGNMENT - 1) & !(ALIGNMENT - 1)
}

/// Header of a segment: its two lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Length of header, metadata, padding before the frame, and frame, bytes.
    pub segment_bytes: u16,
    /// Length of the metadata, bytes.
    pub metadata_bytes: u16,
}

/// Positions of the parts of a checked segment, bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Length of the metadata, which begin at [`HEADER_BYTES`].
    pub metadata_bytes: u16,
    /// Offset of the frame, a multiple of 8.
    pub frame_offset: usize,
    /// Length of the frame.
    pub frame_bytes: usize,
    /// Distance to the next segment, a multiple of 8.
    pub occupied_bytes: usize,
}

/// Reason why bytes cannot be a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The segment is shorter than a header.
    #[error("a segment of {segment_bytes} bytes is shorter than its own header")]
    Short {
        /// Stated length of the segment, bytes.
        segment_bytes: u16,
    },
    /// The metadata, and the padding after them, exceed the segment.
    #[error(
        "a segment of {segment_bytes} bytes has {metadata_bytes} bytes of metadata, which do not fit in it"
    )]
    Metadata {
        /// Stated length of the segment, bytes.
        segment_bytes: u16,
        /// Stated length of the metadata, bytes.
        metadata_bytes: u16,
    },
    /// The segment exceeds the data.
    #[error("a segment of {segment_bytes} bytes begins {there_bytes} bytes before the end of the data")]
    Cut {
        /// Stated length of the segment, bytes.
        segment_bytes: u16,
        /// Number of bytes from the segment's start to the end of the data.
        there_bytes: usize,
    },
}

impl SegmentHeader {
    /// Header for a frame with metadata; `None` if they are longer than a segment can be.
    #[inline]
    #[must_use]
    pub fn new(metadata_bytes: usize, frame_bytes: usize) -> Option<Self> {
        let frame_offset = align(HEADER_BYTES.checked_add(metadata_bytes)?);
        let segment_bytes = u16::try_from(frame_offset.checked_add(frame_bytes)?).ok()?;
        Some(Self { segment_bytes, metadata_bytes: metadata_bytes as u16 })
    }

    /// Distance to the next segment, bytes, a multiple of 8.
    #[inline]
    #[must_use]
    pub fn occupied_bytes(self) -> usize {
        align(usize::from(self.segment_bytes))
    }

    /// Decodes the first bytes of a segment.
    #[inline]
    #[must_use]
    pub fn from_bytes([s0, s1, m0, m1]: [u8; HEADER_BYTES]) -> Self {
        Self { segment_bytes: u16::from_le_bytes([s0, s1]), metadata_bytes: u16::from_le_bytes([m0, m1]) }
    }

    /// Encodes the first bytes of the segment.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let ([s0, s1], [m0, m1]) = (self.segment_bytes.to_le_bytes(), self.metadata_bytes.to_le_bytes());
        [s0, s1, m0, m1]
    }

    /// Positions of the segment's parts. `there_bytes` bytes of data follow from its start on.
    ///
    /// # Errors
    /// [`SegmentError`] if the lengths contradict each other, or the segment exceeds the data.
    #[inline]
    pub fn layout(self, there_bytes: usize) -> Result<SegmentLayout, SegmentError> {
        let Self { segment_bytes, metadata_bytes } = self;
        let length = usize::from(segment_bytes);
        // The offset is at least 8, so that a segment shorter than its own header has no frame either.
        let frame_offset = align(HEADER_BYTES + usize::from(metadata_bytes));
        let Some(frame_bytes) = length.checked_sub(frame_offset) else {
            return Err(match length {
                0..ALIGNMENT => SegmentError::Short { segment_bytes },
                _ => SegmentError::Metadata { segment_bytes, metadata_bytes },
            });
        };
        let occupied_bytes = self.occupied_bytes();
        if occupied_bytes > there_bytes {
            return Err(SegmentError::Cut { segment_bytes, there_bytes });
        }
        Ok(SegmentLayout { metadata_bytes, frame_offset, frame_bytes, occupied_bytes })
    }
}

/// Kind of segments whose metadata have one length. One comparison checks whether a header belongs to the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The header of an empty frame, as a number.
    empty: usize,
    most_frame_bytes: usize,
    frame_offset: usize,
}

impl Kind {
    /// Segments without metadata.
    pub(crate) const BARE: Self =
        Self { empty: ALIGNMENT, most_frame_bytes: MAX_FRAME_BYTES, frame_offset: ALIGNMENT };

    /// The kind of a checked segment.
    #[inline]
    pub(crate) fn of(segment: &SegmentLayout) -> Self {
        let SegmentLayout { metadata_bytes, frame_offset, .. } = *segment;
        let empty = usize::from(metadata_bytes) << 16 | frame_offset;
        Self { empty, most_frame_bytes: usize::from(u16::MAX) - frame_offset, frame_offset }
    }

    /// Positions of the parts of a segment of this kind. The segment's end is not checked. `None` if the header is
    /// invalid, or of another kind.
    #[inline]
    pub(crate) fn layout(self, header: SegmentHeader) -> Option<SegmentLayout> {
        let Self { empty, most_frame_bytes, frame_offset } = self;
        let header = usize::from(header.metadata_bytes) << 16 | usize::from(header.segment_bytes);
        // With other metadata, or an end before the frame, this difference exceeds any length.
        let frame_bytes = header.wrapping_sub(empty);
        (frame_bytes <= most_frame_bytes).then(|| SegmentLayout {
            metadata_bytes: (empty >> 16) as u16,
            frame_offset,
            frame_bytes,
            occupied_bytes: frame_offset + align(frame_bytes),
        })
    }
}

/// A segment that [`parse`] found, as one piece of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'data> {
    /// Metadata that the card has for the frame.
    pub metadata: &'data [u8],
    pub frame: &'data [u8],
}

/// Takes the segment at the front of `data`, which then begins with the next segment. `None` if no data are left.
///
/// # Errors
/// [`SegmentError`]; `data` stays as it was.
pub fn parse<'data>(data: &mut &'data [u8]) -> Result<Option<Segment<'data>>, SegmentError> {
    let Some(header) = data.first_chunk() else {
        return match data.len() {
            0 => Ok(None),
            there_bytes => Err(SegmentError::Cut { segment_bytes: HEADER_BYTES as u16, there_bytes }),
        };
    };
    let layout = SegmentHeader::from_bytes(*header).layout(data.len())?;
    let (segment, rest) = data.split_at(layout.occupied_bytes);
    let metadata = &segment[HEADER_BYTES..HEADER_BYTES + usize::from(layout.metadata_bytes)];
    let frame = &segment[layout.frame_offset..layout.frame_offset + layout.frame_bytes];
    *data = rest;
    Ok(Some(Segment { metadata, frame }))
}

/// Appends a segment to `data`, padded with zeros. Returns `false`, and appends nothing, if the segment would be too
/// long.
#[must_use]
pub fn append(data: &mut Vec<u8>, metadata: &[u8], frame: &[u8]) -> bool {
    let Some(header) = SegmentHeader::new(metadata.len(), frame.len()) else { return false };
    let start = data.len();
    data.extend(header.to_bytes());
    data.extend(metadata);
    data.resize(start + align(data.len() - start), 0);
    data.extend(frame);
    data.resize(start + align(data.len() - start), 0);
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_follow_the_published_format() {
        for (frame, segment, occupied) in [(60, 68, 72), (1514, 1522, 1528), (9000, 9008, 9008)] {
            let header = SegmentHeader::new(0, frame).unwrap();
            assert_eq!(usize::from(header.segment_bytes), segment);
            let layout = header.layout(usize::MAX).unwrap();
            assert_eq!(
                (layout.frame_offset, layout.frame_bytes, layout.occupied_bytes),
                (8, frame, occupied)
            );
        }
        assert_eq!(SegmentHeader::new(12, 60).unwrap().layout(80).unwrap().frame_offset, 16);
        assert!(SegmentHeader::new(0, MAX_FRAME_BYTES).is_some());
        assert!(SegmentHeader::new(0, MAX_FRAME_BYTES + 1).is_none());
        assert!(SegmentHeader::new(usize::MAX, 1).is_none());
    }

    #[test]
    fn bytes_follow_the_published_order() {
        let mut data = Vec::new();
        assert!(append(&mut data, &[0xAA; 5], &[0xF0, 0xF1, 0xF2]));
        let expected =
            [19, 0, 5, 0, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0, 0, 0, 0, 0, 0, 0, 0xF0, 0xF1, 0xF2, 0, 0, 0, 0, 0];
        assert_eq!(data, expected);
    }

    #[test]
    fn each_invalid_segment_has_its_own_error() {
        let check = |segment_bytes, metadata_bytes, there| {
            SegmentHeader { segment_bytes, metadata_bytes }.layout(there)
        };
        assert_eq!(check(0, 0, 64), Err(SegmentError::Short { segment_bytes: 0 }));
        assert_eq!(check(7, 0, 64), Err(SegmentError::Short { segment_bytes: 7 }));
        // The metadata fit, but not the padding after them. libsze2 takes that for a frame of negative length.
        let padding = SegmentError::Metadata { segment_bytes: 10, metadata_bytes: 6 };
        assert_eq!(check(10, 6, 64), Err(padding));
        assert_eq!(
            check(68, 65535, 1 << 20),
            Err(SegmentError::Metadata { segment_bytes: 68, metadata_bytes: 65535 })
        );
        assert_eq!(check(68, 0, 71), Err(SegmentError::Cut { segment_bytes: 68, there_bytes: 71 }));
        assert_eq!(check(68, 0, 72).unwrap().frame_bytes, 60);
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(frames in proptest::collection::vec((0usize..40, 0usize..3000), 0..20)) {
            let mut data = Vec::new();
            let frames: Vec<(Vec<u8>, Vec<u8>)> =
                frames.iter().map(|&(metadata, frame)| (vec![metadata as u8; metadata], vec![frame as u8; frame])).collect();
            for (metadata, frame) in &frames {
                prop_assert!(append(&mut data, metadata, frame));
                prop_assert_eq!(data.len() % ALIGNMENT, 0);
            }
            let mut rest = data.as_slice();
            for (metadata, frame) in &frames {
                let segment = parse(&mut rest).unwrap().unwrap();
                prop_assert_eq!(segment, Segment { metadata, frame });
            }
            prop_assert_eq!(parse(&mut rest), Ok(None));
        }

        #[test]
        fn a_kind_lays_out_its_segments_and_no_others(
            kind_metadata in 0u16..9, metadata_bytes in 0u16..9, segment in any::<u16>(), random in any::<[u8; 4]>()
        ) {
            let kind = Kind::of(&SegmentHeader::new(kind_metadata.into(), 0).unwrap().layout(64).unwrap());
            let around = [segment % 40, segment].map(|segment_bytes| SegmentHeader { segment_bytes, metadata_bytes });
            for header in around.into_iter().chain([SegmentHeader::from_bytes(random)]) {
                let layout = header.layout(usize::MAX).ok();
                let own = layout.filter(|layout| layout.metadata_bytes == kind_metadata);
                prop_assert_eq!(kind.layout(header), own);
            }
        }

        #[test]
        fn any_bytes_are_read_forward_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = bytes.as_slice();
            loop {
                let before = rest.len();
                match parse(&mut rest) {
                    Ok(Some(_)) => prop_assert!(rest.len() + ALIGNMENT <= before),
                    Ok(None) => break prop_assert!(rest.is_empty()),
                    Err(_) => break prop_assert_eq!(rest.len(), before),
                }
            }
        }
    }
}
