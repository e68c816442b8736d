//! Reading side of a buffer: the program in a receive buffer, the card in a transmit buffer.

use core::sync::atomic::{AtomicU32, Ordering};
use std::mem::MaybeUninit;
use std::sync::Arc;

use ringroad_ring::wakeup::{Kicker, publish_fence};

use crate::fault::ChannelFault;
use crate::memory::ChannelMemory;
use crate::segment::{ALIGNMENT, HEADER_BYTES, Kind};
use crate::segments::SegmentRef;
use crate::writer::{ChannelSide, checked};

/// Reader of segments. Segments are read in place, and their room is given back in order.
#[derive(Debug)]
pub struct SegmentReader {
    memory: Arc<ChannelMemory>,
    side: ChannelSide,
    /// Offset of the next segment.
    at: u64,
    /// Offset of the first byte that is not given back.
    released: u64,
    /// Value of `released` that the other side knows.
    published: u64,
    /// End of the data: the other side's pointer when last read.
    end: u64,
    /// Probable kind of the next segment.
    kind: Kind,
    kicker: Kicker,
}

impl SegmentReader {
    /// Makes a reader from the start of a new buffer.
    #[must_use]
    pub fn new(memory: Arc<ChannelMemory>, side: ChannelSide) -> Self {
        Self {
            memory,
            side,
            at: 0,
            released: 0,
            published: 0,
            end: 0,
            kind: Kind::BARE,
            kicker: Kicker::default(),
        }
    }

    /// Memory of the channel.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &Arc<ChannelMemory> {
        &self.memory
    }

    /// Offset of the next segment, bytes from the start of the buffer.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at
    }

    #[inline]
    fn known_bytes(&self) -> usize {
        (self.end.wrapping_sub(self.at) & (self.memory.buffer_bytes() - 1)) as usize
    }

    /// Number of bytes that are not read yet. Loads the other side's pointer first.
    ///
    /// # Errors
    /// [`ChannelFault::Pointer`].
    #[inline]
    pub fn available(&mut self) -> Result<usize, ChannelFault> {
        let pointer = self.side.lines(&self.memory).1.pointer.load(Ordering::Acquire);
        let size = self.memory.buffer_bytes();
        // A writer leaves 8 bytes free before the first byte that is not given back.
        let most = self.published.wrapping_sub(ALIGNMENT as u64) & (size - 1);
        self.end = checked(pointer, self.end, most, size)?;
        Ok(self.known_bytes())
    }

    /// Position of the next segment, which begins `known_bytes` bytes before the known end of the data.
    #[inline]
    fn before_end(&self, known_bytes: usize) -> u64 {
        self.end.wrapping_sub(known_bytes as u64) & (self.memory.buffer_bytes() - 1)
    }

    /// Reads the next segment. Loads the other side's pointer if no segment is known.
    ///
    /// # Errors
    /// [`ChannelFault`]; the reader stays where it is.
    pub fn take(&mut self) -> Result<Option<SegmentRef<'_>>, ChannelFault> {
        if self.at == self.end && self.available()? == 0 {
            return Ok(None);
        }
        let at = self.at;
        let mut known = self.memory.segments(at, self.end);
        let segment = known.next().transpose().map_err(|error| ChannelFault::Segment { at, error })?;
        self.at = self.before_end(known.bytes());
        if let Some(segment) = &segment {
            self.kind = segment.kind();
        }
        Ok(segment)
    }

    /// Reads segments, as many as there are and `places` has room for, and puts the result of `describe` for each into
    /// `places`. Loads the other side's pointer if no segment is known. Returns the number of segments.
    ///
    /// # Errors
    /// [`ChannelFault`], if there are no segments before it. Otherwise a later call reports the fault.
    #[inline(always)]
    pub fn take_burst<T>(
        &mut self,
        segments: &mut [MaybeUninit<T>],
        describe: impl Fn(&SegmentRef<'_>) -> T,
    ) -> Result<usize, ChannelFault> {
        let taken = self.take_alike(segments, 0, &describe);
        if taken == segments.len() {
            return Ok(taken);
        }
        self.take_rest(segments, taken, describe)
    }

    /// Continues [`Self::take_burst`] when `segments` are filled up to number `taken`. The next segment is the last
    /// known one, of another kind than the one before, or not known yet.
    #[inline(never)]
    fn take_rest<T>(
        &mut self,
        segments: &mut [MaybeUninit<T>],
        mut taken: usize,
        describe: impl Fn(&SegmentRef<'_>) -> T,
    ) -> Result<usize, ChannelFault> {
        while let Some(target) = segments.get_mut(taken) {
            match self.take() {
                Ok(Some(segment)) => target.write(describe(&segment)),
                Err(fault) if taken == 0 => return Err(fault),
                _ => break,
            };
            taken = self.take_alike(segments, taken + 1, &describe);
        }
        Ok(taken)
    }

    /// Reads segments of the same kind as the one before: all known ones except the last. Returns the number of filled
    /// `places`.
    #[inline(always)]
    fn take_alike<T>(
        &mut self,
        segments: &mut [MaybeUninit<T>],
        taken: usize,
        describe: impl Fn(&SegmentRef<'_>) -> T,
    ) -> usize {
        let mut known = self.memory.segments(self.at, self.end);
        let taken = known.describe_alike(self.kind, segments, taken, describe);
        self.at = self.before_end(known.bytes());
        taken
    }

    /// Skips `bytes` bytes of data that the caller read directly. Returns `false` if there are fewer bytes, or `bytes`
    /// is not a multiple of 8.
    pub fn skip(&mut self, bytes: usize) -> bool {
        let is_possible = bytes.is_multiple_of(ALIGNMENT) && bytes <= self.known_bytes();
        if is_possible {
            self.at = (self.at + bytes as u64) & (self.memory.buffer_bytes() - 1);
        }
        is_possible
    }

    /// Flag by which this side announces that it sleeps ([`ringroad_ring::wakeup::Sleeper`]).
    #[must_use]
    pub fn sleep_flag(&self) -> &AtomicU32 {
        &self.side.lines(&self.memory).0.sleeping
    }

    /// Gives back the first `bytes` of the bytes that are read and not given back.
    #[inline]
    pub fn release(&mut self, bytes: usize) {
        let mask = self.memory.buffer_bytes() - 1;
        let most = self.at.wrapping_sub(self.released) & mask;
        self.released = (self.released + (bytes as u64).min(most)) & mask;
    }

    /// Gives back all bytes that were read.
    #[inline]
    pub fn release_all(&mut self) {
        self.released = self.at;
    }

    /// Gives back the segments before the one with these metadata, which was read and not given back. Returns `false`
    /// if there is no such segment.
    #[inline]
    pub fn release_before(&mut self, metadata: *const u8) -> bool {
        let mask = self.memory.buffer_bytes() - 1;
        let Some(start) = self.memory.offset_of(metadata.wrapping_sub(HEADER_BYTES)) else { return false };
        let [bytes, most] = [start, self.at].map(|at| at.wrapping_sub(self.released) & mask);
        let is_possible = bytes.is_multiple_of(ALIGNMENT as u64) && bytes < most;
        if is_possible {
            self.released = start;
        }
        is_possible
    }

    /// Returns to the first byte that is not given back, to read it again.
    pub fn rewind(&mut self) {
        self.at = self.released;
    }

    /// Shows the other side the returned bytes. Returns `true` if that side sleeps and needs a wake-up, once per sleep.
    #[inline]
    #[must_use]
    pub fn publish(&mut self) -> bool {
        if self.published == self.released {
            return false;
        }
        self.published = self.released;
        let (own, other) = self.side.lines(&self.memory);
        own.pointer.store(self.released, Ordering::Release);
        publish_fence();
        self.kicker.needs_kick(&other.sleeping)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;
    use ringroad_ring::shared::SharedBytes;

    use super::*;
    use crate::descriptors::PAGE_BYTES;
    use crate::memory::{ChannelGeometry, MIN_BUFFER_BYTES};
    use crate::segment::SegmentError;
    use crate::writer::SegmentWriter;

    fn channel() -> (SegmentWriter, SegmentReader) {
        let geometry = ChannelGeometry { buffer_bytes: MIN_BUFFER_BYTES, block_bytes: PAGE_BYTES };
        let card = ChannelMemory::create(geometry).unwrap();
        let program = ChannelMemory::open(card.as_fd().try_clone_to_owned().unwrap()).unwrap();
        (
            SegmentWriter::new(Arc::new(card), ChannelSide::Card),
            SegmentReader::new(Arc::new(program), ChannelSide::Program),
        )
    }

    fn bytes_of(bytes: &SharedBytes<'_>) -> Vec<u8> {
        let mut copy = vec![0; bytes.len()];
        bytes.read(&mut copy);
        copy
    }

    fn write(writer: &mut SegmentWriter, metadata: &[u8], frame: &[u8]) -> bool {
        writer
            .reserve(metadata, frame.len())
            .unwrap()
            .is_some_and(|mut segment| segment.write(frame) == frame.len())
    }

    #[test]
    fn a_full_buffer_refuses_segments_until_it_drains() {
        let (mut writer, mut reader) = channel();
        let mut written = 0;
        while write(&mut writer, &[], &[7; 1000]) {
            written += 1;
        }
        // A segment has 1008 bytes, and 8 bytes stay free.
        assert_eq!(written, (MIN_BUFFER_BYTES as usize - 8) / 1008);
        assert!(reader.take().unwrap().is_none(), "what is not published is not seen");
        assert!(!writer.publish());
        for _ in 0..written {
            assert_eq!(bytes_of(&reader.take().unwrap().unwrap().frame()), [7; 1000]);
        }
        assert!(reader.take().unwrap().is_none());
        assert!(!write(&mut writer, &[], &[7; 1000]), "what is not given back is not free");
        reader.release_all();
        assert!(!reader.publish());
        assert!(writer.is_drained().unwrap());
        assert!(write(&mut writer, &[], &[7; 1000]));
    }

    #[test]
    fn segments_not_given_back_are_read_again() {
        let (mut writer, mut reader) = channel();
        for number in 0..3 {
            assert!(write(&mut writer, &[], &[number; 60]));
        }
        assert!(!writer.publish());
        let mut frame = || bytes_of(&reader.take().unwrap().unwrap().frame());
        assert_eq!((frame(), frame()), (vec![0; 60], vec![1; 60]));
        reader.release(72);
        reader.rewind();
        assert_eq!(bytes_of(&reader.take().unwrap().unwrap().frame()), [1; 60]);
        assert_eq!(bytes_of(&reader.take().unwrap().unwrap().frame()), [2; 60]);
    }

    #[test]
    fn segments_before_one_are_given_back_and_it_stays() {
        let (mut writer, mut reader) = channel();
        let mut metadata = |number: u8| {
            assert!(write(&mut writer, &[number; 12], &[number; 40_000]));
            let _ = writer.publish();
            reader.take().unwrap().unwrap().metadata().as_ptr().cast_const()
        };
        let mut segments = [metadata(0), metadata(1), metadata(2)];
        assert!(!write(&mut writer, &[], &[3; 40_000]));
        assert!(reader.release_before(segments[1]) && !reader.publish());
        assert!(!reader.release_before(segments[0]), "it is given back");
        assert!(!reader.release_before(segments[1].wrapping_add(1)), "no segment begins there");
        assert!(!reader.release_before(std::ptr::null()));
        assert!(!reader.release_before(segments[0].wrapping_add(MIN_BUFFER_BYTES as usize)));
        // The fourth goes round the end of the buffer, into the room of the first.
        assert!(write(&mut writer, &[], &[3; 40_000]));
        let _ = writer.publish();
        assert!(
            !reader.release_before(reader.memory().data(reader.position() + 4, 0).as_ptr()),
            "it is not read"
        );
        segments[0] = reader.take().unwrap().unwrap().metadata().as_ptr();
        assert!(!write(&mut writer, &[], &[4; 40_000]));
        assert!(reader.release_before(segments[0]) && !reader.publish());
        assert!(write(&mut writer, &[], &[4; 40_000]) && write(&mut writer, &[], &[5; 40_000]));
    }

    #[test]
    fn a_burst_continues_at_the_start_of_the_buffer_and_ends_before_what_is_out_of_order() {
        let (mut writer, mut reader) = channel();
        while write(&mut writer, &[], &[0; 1000]) {}
        assert!(!writer.publish());
        let taken = |reader: &mut SegmentReader, most| {
            let frames = std::cell::RefCell::new(Vec::new());
            let describe = |segment: &SegmentRef<'_>| {
                let (frame, bytes) = (segment.frame(), bytes_of(&segment.frame()));
                frames.borrow_mut().push((frame.as_ptr(), bytes.first().copied(), bytes.len()));
            };
            let count = reader.take_burst(&mut vec![MaybeUninit::uninit(); most], describe)?;
            let frames = frames.into_inner();
            assert_eq!(count, frames.len());
            Ok(frames)
        };
        assert_eq!(taken(&mut reader, 1000).map(|frames| frames.len()), Ok(MIN_BUFFER_BYTES as usize / 1008));
        reader.release_all();
        assert!(!reader.publish());
        let start = reader.position();
        for number in 1..=4 {
            assert!(write(&mut writer, &[], &[number; 1000]));
        }
        assert!(!writer.publish());
        // The fourth segment claims to be longer than all available data.
        writer.memory().data(start + 3 * 1008, 2).write(&u16::MAX.to_le_bytes());
        let memory = Arc::clone(reader.memory());
        let expected = |number: u8| {
            let at = start + 1008 * u64::from(number - 1) + 8;
            (memory.data(at, 0).as_ptr(), Some(number), 1000)
        };
        assert_eq!(taken(&mut reader, 1), Ok(vec![expected(1)]));
        assert_eq!(taken(&mut reader, 8), Ok(vec![expected(2), expected(3)]));
        let at = (start + 3 * 1008) % MIN_BUFFER_BYTES;
        let error = SegmentError::Cut { segment_bytes: u16::MAX, there_bytes: 1008 };
        assert_eq!(
            (taken(&mut reader, 8), reader.position()),
            (Err(ChannelFault::Segment { at, error }), at)
        );
    }

    #[test]
    fn padding_is_zeros() {
        let (mut writer, _) = channel();
        writer.memory().data(0, 1000).write(&[0xEE; 1000]);
        assert!(write(&mut writer, &[], &[7; 61]));
        assert!(write(&mut writer, &[1; 5], &[]));
        assert_eq!(bytes_of(&writer.memory().data(8 + 61, 3)), [0; 3]);
        assert_eq!(bytes_of(&writer.memory().data(72 + 4, 12)), [1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn invalid_writer_pointers_are_detected() {
        let (mut writer, mut reader) = channel();
        assert!(write(&mut writer, &[], &[1; 60]));
        assert!(!writer.publish());
        let memory = Arc::clone(writer.memory());
        let line = &memory.control().hardware;
        for pointer in [4, MIN_BUFFER_BYTES, u64::MAX] {
            line.pointer.store(pointer, Ordering::Release);
            assert!(matches!(reader.available(), Err(ChannelFault::Pointer { .. })), "{pointer}");
        }
        // The pointer is before the published end.
        line.pointer.store(72, Ordering::Release);
        assert_eq!(reader.available(), Ok(72));
        line.pointer.store(64, Ordering::Release);
        assert!(matches!(reader.available(), Err(ChannelFault::Pointer { .. })));
        line.pointer.store(72, Ordering::Release);
        writer.memory().data(0, 4).write(&[73, 0, 0, 0]);
        let error = SegmentError::Cut { segment_bytes: 73, there_bytes: 72 };
        assert_eq!(reader.take().unwrap_err(), ChannelFault::Segment { at: 0, error });
        assert_eq!(reader.position(), 0);
    }

    #[test]
    fn invalid_reader_pointers_are_detected() {
        let (mut writer, _reader) = channel();
        assert!(write(&mut writer, &[], &[1; 60]));
        assert!(!writer.publish());
        let memory = Arc::clone(writer.memory());
        let line = &memory.control().software;
        for pointer in [80, 7, MIN_BUFFER_BYTES] {
            line.pointer.store(pointer, Ordering::Release);
            assert!(matches!(writer.room(usize::MAX), Err(ChannelFault::Pointer { .. })), "{pointer}");
        }
        line.pointer.store(72, Ordering::Release);
        assert!(writer.is_drained().unwrap());
    }

    #[test]
    fn a_sleeper_is_woken_once() {
        let (mut writer, mut reader) = channel();
        reader.memory().control().software.sleeping.store(5, Ordering::Relaxed);
        assert!(write(&mut writer, &[], &[1; 60]));
        assert!(writer.publish());
        assert!(write(&mut writer, &[], &[1; 60]));
        assert!(!writer.publish());
        assert_eq!(reader.available().unwrap(), 144);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_burst_has_the_room_of_its_frames_one_by_one(
            rounds in proptest::collection::vec(
                (proptest::collection::vec(prop_oneof![9 => 0u32..3000, 1 => 65520u32..65540], 0..40), 0usize..40),
                1..40,
            )
        ) {
            let (mut single, mut single_reader) = channel();
            let (mut bursts, mut bursts_reader) = channel();
            let size = MIN_BUFFER_BYTES as usize;
            for writer in [&single, &bursts] {
                writer.memory().data(0, size).write(&vec![0xEE; size]);
            }
            for (lengths, taken) in rounds {
                let frame = vec![lengths.len() as u8; 1 << 16];
                let fill = |mut segment: SharedBytes<'_>| segment.write(&frame);
                let mut count = 0;
                while let Some(&length) = lengths.get(count)
                    && single.reserve(&[], length as usize).unwrap().map(fill).is_some()
                {
                    count += 1;
                }
                let mut segments = vec![MaybeUninit::uninit(); lengths.len()];
                prop_assert_eq!(bursts.reserve_burst(&lengths, &mut segments, fill), Ok(count));
                prop_assert_eq!(bursts.position(), single.position());
                for (writer, reader) in [(&mut single, &mut single_reader), (&mut bursts, &mut bursts_reader)] {
                    let _ = writer.publish();
                    for _ in 0..taken {
                        let _ = reader.take().unwrap();
                    }
                    reader.release_all();
                    let _ = reader.publish();
                }
            }
            prop_assert_eq!(bytes_of(&bursts.memory().data(0, size)), bytes_of(&single.memory().data(0, size)));
        }

        #[test]
        fn a_burst_takes_what_is_taken_one_by_one(
            rounds in proptest::collection::vec((0usize..14, 0usize..2000, 1usize..60, 1usize..40), 1..60)
        ) {
            let (mut writer, mut bursts) = channel();
            let mut single = SegmentReader::new(Arc::clone(bursts.memory()), ChannelSide::Program);
            let describe = |segment: &SegmentRef<'_>| {
                let (frame, metadata) = (segment.frame(), segment.metadata());
                (frame.as_ptr() as usize, frame.len(), metadata.as_ptr() as usize, metadata.len())
            };
            for (metadata, frame, segments, most) in rounds {
                // Two of three segments have metadata of the same length.
                for number in 0..segments {
                    let _ = write(&mut writer, &vec![1; metadata + number % 3 / 2], &vec![2; frame + number]);
                }
                let _ = writer.publish();
                loop {
                    let burst = std::cell::RefCell::new(Vec::new());
                    let note = |segment: &SegmentRef<'_>| burst.borrow_mut().push(describe(segment));
                    let count = bursts.take_burst(&mut vec![MaybeUninit::uninit(); most], note).unwrap();
                    let mut taken = Vec::new();
                    while taken.len() < most && let Some(segment) = single.take().unwrap() {
                        taken.push(describe(&segment));
                    }
                    prop_assert_eq!(count, taken.len());
                    prop_assert_eq!(burst.into_inner(), taken);
                    prop_assert_eq!(bursts.position(), single.position());
                    if count == 0 {
                        break;
                    }
                }
                for reader in [&mut bursts, &mut single] {
                    reader.release_all();
                    let _ = reader.publish();
                }
            }
        }

        #[test]
        fn segments_round_trip_across_the_buffers_end(
            frames in proptest::collection::vec((0usize..30, 0usize..9100, 1usize..20), 1..120)
        ) {
            let (mut writer, mut reader) = channel();
            let mut under_way = std::collections::VecDeque::new();
            for (number, (metadata, frame, release_after)) in frames.into_iter().enumerate() {
                let (metadata, frame) = (vec![number as u8; metadata], vec![!number as u8; frame]);
                while !write(&mut writer, &metadata, &frame) {
                    let _ = writer.publish();
                    let segment = reader.take().unwrap().unwrap();
                    let (expected_metadata, expected_frame): (Vec<u8>, Vec<u8>) = under_way.pop_front().unwrap();
                    prop_assert_eq!(bytes_of(&segment.metadata()), expected_metadata);
                    prop_assert_eq!(bytes_of(&segment.frame()), expected_frame);
                    let occupied = segment.occupied_bytes();
                    reader.release(occupied);
                    let _ = reader.publish();
                }
                under_way.push_back((metadata, frame));
                if number % release_after == 0 {
                    let _ = writer.publish();
                }
            }
            let _ = writer.publish();
            for (metadata, frame) in under_way {
                let segment = reader.take().unwrap().unwrap();
                prop_assert_eq!(bytes_of(&segment.metadata()), metadata);
                prop_assert_eq!(bytes_of(&segment.frame()), frame);
            }
            prop_assert!(reader.take().unwrap().is_none());
        }
    }
}
