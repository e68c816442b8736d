//! Finishes frames that their sender left unfinished, for queues that take only finished frames. Each frame is copied
//! out of the source's memory, which may change at any time, then completed or cut.
#![allow(unsafe_code)]

use ringroad_port::batch::{BATCH_FRAMES, Batch, FrameMeta};
use ringroad_port::drop_cause::{DropCause, DropTally};
use ringroad_port::frame::Fragment;
use ringroad_port::offload::{Cut, HEADER_ROOM_BYTES, LONGEST_UNFINISHED_BYTES, Unfinished};
use ringroad_ring::layout::{MAX_FRAGMENTS, slot_flags::MORE_FRAGMENTS};

/// Bytes of memory for copies of frames and for headers of segments: room for two frames of maximum length, with the
/// headers of all the segments that they may be cut into.
const MEMORY_BYTES: usize = 256 * 1024;
const _: () = assert!(MEMORY_BYTES >= LONGEST_UNFINISHED_BYTES + HEADER_ROOM_BYTES);

/// Changes of the number of frames by finishing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Segments beyond the first of each frame.
    pub replicated: u64,
    /// Frames that could not be finished.
    pub dropped: DropTally,
}

/// Finisher of frames, with memory of its own, which the first unfinished frame allocates.
#[derive(Debug, Default)]
pub struct Finisher(Option<Box<SegmentBuffer>>);

impl Finisher {
    /// Finishes the frames `frames` of `source`, and gives them to `deliver` in their order, in one batch or several,
    /// with the numbers of all frames of the batch. Internet checksums stay open with `leaves_checksums`. No fragment
    /// outlives the call of `deliver` that gets it.
    #[cold]
    pub fn finish(
        &mut self,
        source: &Batch,
        frames: &[u16],
        leaves_checksums: bool,
        deliver: impl FnMut(&mut Batch, &[u16]),
    ) -> Finished {
        let buffer = self.0.get_or_insert_with(Box::default);
        let mut work = Work { buffer, source, leaves_checksums, deliver, finished: Finished::default() };
        for &frame in frames {
            work.add(usize::from(frame));
        }
        work.hand_over();
        work.finished
    }
}

#[derive(Debug)]
struct SegmentBuffer {
    batch: Batch,
    memory: Box<[u8]>,
    /// Bytes of the memory that the batch refers to.
    used: usize,
}

impl Default for SegmentBuffer {
    fn default() -> Self {
        Self { batch: Batch::new(), memory: vec![0; MEMORY_BYTES].into_boxed_slice(), used: 0 }
    }
}

struct Work<'work, Deliver> {
    buffer: &'work mut SegmentBuffer,
    source: &'work Batch,
    leaves_checksums: bool,
    deliver: Deliver,
    finished: Finished,
}

impl<Deliver: FnMut(&mut Batch, &[u16])> Work<'_, Deliver> {
    /// Delivers the batch and starts the next one.
    fn hand_over(&mut self) {
        let SegmentBuffer { batch, used, .. } = &mut *self.buffer;
        if batch.frames() != 0 {
            let frames = Batch::numbers(0..batch.frames());
            (self.deliver)(batch, frames);
        }
        batch.reset(BATCH_FRAMES);
        *used = 0;
    }

    fn add(&mut self, frame: usize) {
        let unfinished = self.source.meta(frame).unfinished;
        if !self.buffer.batch.has_room(MAX_FRAGMENTS) {
            self.hand_over();
        }
        if unfinished.is_nothing() || (self.leaves_checksums && unfinished.is_internet_checksum()) {
            let fragments = self.source.frame(frame);
            for (index, &fragment) in fragments.iter().enumerate() {
                self.buffer.batch.push(fragment, index == 0);
            }
            self.stamp(frame, unfinished);
            return;
        }
        let bytes = self.source.frame_bytes(frame);
        // The engine has checked this already. Without this check a wrong offset would lead out of bounds.
        if !unfinished.fits(bytes) {
            return self.finished.dropped.add(DropCause::BadOffload, 1);
        }
        if self.buffer.memory.len() - self.buffer.used < bytes + HEADER_ROOM_BYTES {
            self.hand_over();
        }
        let start = self.buffer.used;
        let end = start + bytes;
        let Some(copy) = self.buffer.memory.get_mut(start..end) else {
            return self.finished.dropped.add(DropCause::BadOffload, 1);
        };
        self.source.read(frame, copy);
        if unfinished.is_long() {
            return match Cut::plan(copy, unfinished) {
                Some(cut) => self.cut(frame, cut, start, end),
                None => self.finished.dropped.add(DropCause::BadOffload, 1),
            };
        }
        unfinished.complete_checksum(copy);
        self.buffer.used = end;
        push(&mut self.buffer.batch, copy);
        self.stamp(frame, Unfinished::default());
    }

    /// Adds the segments of the frame that was copied to `start..end` of the memory.
    fn cut(&mut self, frame: usize, mut cut: Cut, start: usize, end: usize) {
        self.buffer.used = end;
        let left = if self.leaves_checksums { cut.leave_checksums() } else { Unfinished::default() };
        let mut segments = 0u64;
        while !cut.is_done() {
            let room = self.buffer.memory.len() - self.buffer.used >= HEADER_ROOM_BYTES;
            if !room || !self.buffer.batch.has_room(2) {
                self.hand_over();
                self.buffer.used = end;
            }
            let SegmentBuffer { batch, memory, used, .. } = &mut *self.buffer;
            let Some((copies, headers)) = memory.split_at_mut_checked(end) else { break };
            let (Some(copy), Some(header)) = (copies.get(start..), headers.get_mut(*used - end..)) else {
                break;
            };
            let Some((header_bytes, payload)) = cut.next_segment(copy, header) else { break };
            *used += header_bytes;
            let (header, payload) =
                (header.get(..header_bytes).unwrap_or(&[]), copy.get(payload).unwrap_or(&[]));
            // SAFETY: the memory is written again only beyond `used`, which goes back when the batch has been delivered
            // and emptied.
            batch.push(unsafe { Fragment::from_private(header, MORE_FRAGMENTS) }, true);
            // SAFETY: as above.
            batch.push(unsafe { Fragment::from_private(payload, 0) }, false);
            self.stamp(frame, left);
            segments += 1;
        }
        self.finished.replicated += segments.saturating_sub(1);
        if segments == 0 {
            self.finished.dropped.add(DropCause::BadOffload, 1);
        }
    }

    /// Copies the known metadata of `frame` to the frame appended last, whose open tasks are `unfinished`.
    fn stamp(&mut self, frame: usize, unfinished: Unfinished) {
        let meta = self.source.meta(frame);
        self.buffer.batch.describe(FrameMeta { unfinished, ..meta });
    }
}

/// Appends a frame, in several fragments if it is longer than a fragment can be.
fn push(batch: &mut Batch, frame: &[u8]) {
    let last = frame.len().saturating_sub(1) / usize::from(u16::MAX);
    for (index, part) in frame.chunks(usize::from(u16::MAX)).enumerate() {
        let flags = if index < last { MORE_FRAGMENTS } else { 0 };
        // SAFETY: as in `Work::cut`.
        batch.push(unsafe { Fragment::from_private(part, flags) }, index == 0);
    }
}
