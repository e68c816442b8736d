//! A segment: a frame in an SZE2 buffer, with its header and the card's metadata.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 2 | length of the segment without the padding behind it, little-endian |
//! | 2 | 2 | length of the metadata, little-endian; 0 where there is none |
//! | 4 | metadata | the card's metadata of the frame |
//! | 4 + metadata | 0 to 7 | padding, so that the frame begins on 8 |
//! | 8 or more | the rest | the frame, without FCS |
//! | length | 0 to 7 | padding, so that the next segment begins on 8 |
//!
//! (Thesis "Ovladač typu poll mode pro karty COMBO", section 2.7.4; libsze2's `szedata_decode_packet`.)

/// Bytes of the two lengths.
pub const HEADER_BYTES: usize = 4;
/// Segments, frames and lengths of areas are multiples of this many bytes.
pub const ALIGNMENT: usize = 8;
/// Longest frame of a segment without metadata, bytes.
pub const MAX_FRAME_BYTES: usize = u16::MAX as usize - ALIGNMENT;

/// `bytes` up to the next multiple of 8.
#[inline]
#[must_use]
pub const fn align(bytes: usize) -> usize {
    (bytes + ALIGNMENT - 1) & !(ALIGNMENT - 1)
}

/// The two lengths at the start of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Header, metadata, padding before the frame and frame, bytes.
    pub segment_bytes: u16,
    /// Metadata, bytes.
    pub metadata_bytes: u16,
}

/// Where the parts of a checked segment lie, in bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Metadata, which begins at [`HEADER_BYTES`].
    pub metadata_bytes: u16,
    /// Where the frame begins, a multiple of 8.
    pub frame_offset: usize,
    /// Length of the frame.
    pub frame_bytes: usize,
    /// Up to the next segment, a multiple of 8.
    pub occupied_bytes: usize,
}

/// Why bytes cannot be a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// Not even a header.
    #[error("a segment of {segment_bytes} bytes is shorter than its own header")]
    Short {
        /// Its length by itself, bytes.
        segment_bytes: u16,
    },
    /// The metadata, and the padding behind them, go beyond its end.
    #[error(
        "a segment of {segment_bytes} bytes has {metadata_bytes} bytes of metadata, which do not fit in it"
    )]
    Metadata {
        /// Its length by itself, bytes.
        segment_bytes: u16,
        /// Length of its metadata by itself, bytes.
        metadata_bytes: u16,
    },
    /// Its end is not there.
    #[error("a segment of {segment_bytes} bytes begins {there_bytes} bytes before the end of the data")]
    Cut {
        /// Its length by itself, bytes.
        segment_bytes: u16,
        /// Bytes from its start to the end of the data.
        there_bytes: usize,
    },
}

impl SegmentHeader {
    /// Of a frame with metadata; `None` where they are longer than a segment can be.
    #[inline]
    #[must_use]
    pub fn new(metadata_bytes: usize, frame_bytes: usize) -> Option<Self> {
        let frame_offset = align(HEADER_BYTES.checked_add(metadata_bytes)?);
        let segment_bytes = u16::try_from(frame_offset.checked_add(frame_bytes)?).ok()?;
        Some(Self { segment_bytes, metadata_bytes: metadata_bytes as u16 })
    }

    /// Bytes up to the next segment, a multiple of 8.
    #[inline]
    #[must_use]
    pub fn occupied_bytes(self) -> usize {
        align(usize::from(self.segment_bytes))
    }

    /// From the first bytes of a segment.
    #[inline]
    #[must_use]
    pub fn from_bytes([s0, s1, m0, m1]: [u8; HEADER_BYTES]) -> Self {
        Self { segment_bytes: u16::from_le_bytes([s0, s1]), metadata_bytes: u16::from_le_bytes([m0, m1]) }
    }

    /// The first bytes of the segment.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let ([s0, s1], [m0, m1]) = (self.segment_bytes.to_le_bytes(), self.metadata_bytes.to_le_bytes());
        [s0, s1, m0, m1]
    }

    /// Where its parts lie, with `there_bytes` bytes of data from its start on.
    ///
    /// # Errors
    /// [`SegmentError`], where the lengths contradict each other or the end of the data.
    #[inline]
    pub fn layout(self, there_bytes: usize) -> Result<SegmentLayout, SegmentError> {
        let Self { segment_bytes, metadata_bytes } = self;
        let length = usize::from(segment_bytes);
        // 8 at least, so that a segment shorter than its own header has no frame either.
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

/// Segments whose metadata have one length: one comparison checks whether such a header is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The header of an empty frame, as a number.
    empty: usize,
    most_frame_bytes: usize,
    frame_offset: usize,
}

impl Kind {
    /// Without metadata.
    pub(crate) const BARE: Self =
        Self { empty: ALIGNMENT, most_frame_bytes: MAX_FRAME_BYTES, frame_offset: ALIGNMENT };

    /// The kind of a checked segment.
    #[inline]
    pub(crate) fn of(segment: &SegmentLayout) -> Self {
        let SegmentLayout { metadata_bytes, frame_offset, .. } = *segment;
        let empty = usize::from(metadata_bytes) << 16 | frame_offset;
        Self { empty, most_frame_bytes: usize::from(u16::MAX) - frame_offset, frame_offset }
    }

    /// Where the parts of a segment of this kind lie, and, not checked, its end; `None` where it is of another kind, or
    /// none.
    #[inline]
    pub(crate) fn layout(self, header: SegmentHeader) -> Option<SegmentLayout> {
        let Self { empty, most_frame_bytes, frame_offset } = self;
        let header = usize::from(header.metadata_bytes) << 16 | usize::from(header.segment_bytes);
        // With other metadata, or an end before the frame, this is beyond any length.
        let frame_bytes = header.wrapping_sub(empty);
        (frame_bytes <= most_frame_bytes).then(|| SegmentLayout {
            metadata_bytes: (empty >> 16) as u16,
            frame_offset,
            frame_bytes,
            occupied_bytes: frame_offset + align(frame_bytes),
        })
    }
}

/// A segment as one piece of memory: what [`parse`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'data> {
    /// The card's metadata of the frame.
    pub metadata: &'data [u8],
    pub frame: &'data [u8],
}

/// Takes the segment at the front of `data`, which then begins with the next one; `None` where there is nothing left.
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

/// Appends a segment to `data`, padded with zeros; `false`, and nothing, where it would be too long.
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
        // Its metadata fit, the padding behind them does not: libsze2 takes that for a frame of negative length.
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
