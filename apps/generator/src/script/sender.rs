//! Sending a batch: sign, compute checksums, wait for each frame's time, copy it into a slot.
//!
//! The time of departure is written when the frame's slot is filled, not when the script made the frame, so that the
//! frame's wait for its turn is not part of the latency measured with it.

use std::time::Duration;

use ringroad::{Interest, PortError, TxRing};
use ringroad_traffic::pacing::{
    DEFAULT_CATCH_UP_FRAMES, DepartureError, DepartureErrorReport, Departures, OfferedLoad,
};

use super::buffers::{BufferArray, ChecksumOffload};
use super::checksum::Layout;
use super::device::DeviceQueue;
use super::load::Load;
use super::memory::FrameBlock;
use super::run::{LONGEST_WAIT, Run};
use crate::clock::ClockReader;
use crate::shared::FrameCount;

/// Time before a frame is due for which the thread stays awake, ns: more than a sleep is usually late by.
const AWAKE_NS: u64 = 100_000;
/// Number of frames put into slots before a sync, if the next frame is due immediately.
const FRAMES_PER_SYNC: u32 = 64;
/// Number of attempts without room before a sleep.
const SPINS: u32 = 64;
/// Shortest frame that a port takes, bytes: an Ethernet header.
const SHORTEST: usize = 14;

/// The tx side of a queue: its load and its counts.
pub(super) struct Sender {
    clock: ClockReader,
    load: Load,
    departures: Option<Departures>,
    /// Totals of the earlier loads.
    past: OfferedLoad,
    error: DepartureError,
    /// Streams signed here, each with its next sequence number.
    sequences: Vec<(u16, u64)>,
}

impl Sender {
    pub(super) fn new(clock: ClockReader) -> Self {
        Self {
            clock,
            load: None,
            departures: None,
            past: OfferedLoad::default(),
            error: DepartureError::default(),
            sequences: Vec::new(),
        }
    }

    /// Sets the load from the next batch on, with a schedule that starts there.
    pub(super) fn set_load(&mut self, load: Load) -> mlua::Result<()> {
        if let Some((rate, shape)) = &load {
            // Values out of range are reported now, not at the next send.
            Departures::new(rate, shape, SHORTEST as f64, 1.0, DEFAULT_CATCH_UP_FRAMES, 0)
                .map_err(|error| mlua::Error::runtime(error.to_string()))?;
        }
        self.past = self.offered();
        self.departures = None;
        self.error.pause();
        self.load = load;
        Ok(())
    }

    /// Frames intended and sent while a rate was set.
    pub(super) fn offered(&self) -> OfferedLoad {
        let Some(departures) = &self.departures else { return self.past };
        let now = departures.offered_load(departures.next_due_ns());
        OfferedLoad {
            elapsed_ns: self.past.elapsed_ns + now.elapsed_ns,
            // Only the script can send the frame that is due next, so it is not counted.
            intended_frames: self.past.intended_frames + now.sent_frames + now.skipped_frames,
            sent_frames: self.past.sent_frames + now.sent_frames,
            skipped_frames: self.past.skipped_frames + now.skipped_frames,
        }
    }

    /// Streams signed here, each with its next sequence number.
    pub(super) fn sequences(&self) -> &[(u16, u64)] {
        &self.sequences
    }

    /// Accuracy of the frames' times; `None` if no rate was set.
    pub(super) fn departure_error(&self) -> Option<DepartureErrorReport> {
        Some(self.error.report()).filter(|report| report.frames > 0)
    }

    /// Sends the first `count` frames of `array`. Returns the number of frames that the port took: all, unless the run
    /// ended.
    pub(super) fn send(
        &mut self,
        queue: &DeviceQueue,
        array: &BufferArray,
        count: usize,
        run: &Run,
    ) -> mlua::Result<u32> {
        let (offload, stream) = array.take_offloads();
        let stream = match stream {
            Some(stream) => Some(self.sequence_of(stream, queue, run)?),
            None => None,
        };
        let mut block = array.block.borrow_mut();
        check(&block, count, queue)?;
        if let (Some((rate, shape)), None) = (&self.load, &self.departures) {
            let bytes: usize = (0..count).map(|index| block.claimed_len(index)).sum();
            let mean_bytes = if count == 0 { return Ok(0) } else { bytes as f64 / count as f64 };
            let now_ns = self.clock.now_ns();
            let departures = Departures::new(rate, shape, mean_bytes, 1.0, DEFAULT_CATCH_UP_FRAMES, now_ns);
            self.departures = Some(departures.map_err(|error| mlua::Error::runtime(error.to_string()))?);
        }
        let mut batch = TxBurst { block: &mut block, count, offload, stream, next: 0, bytes: 0 };
        let sent = self.send_batch(queue, &mut batch, run);
        let (frames, bytes) = (batch.next as u64, batch.bytes);
        queue.sent.add(FrameCount { frames, bytes });
        sent.map_err(|error| error.named(queue))?;
        Ok(frames as u32)
    }

    /// Index of `stream` in `sequences`.
    fn sequence_of(&mut self, stream: u16, queue: &DeviceQueue, run: &Run) -> mlua::Result<usize> {
        if let Some(index) = self.sequences.iter().position(|(known, _)| *known == stream) {
            return Ok(index);
        }
        run.claim_stream(stream, &queue.label).map_err(mlua::Error::runtime)?;
        self.sequences.push((stream, 0));
        Ok(self.sequences.len() - 1)
    }

    fn send_batch(
        &mut self,
        queue: &DeviceQueue,
        batch: &mut TxBurst<'_>,
        run: &Run,
    ) -> Result<(), SendError> {
        let mut turns = 0;
        while batch.next < batch.count && !run.is_over() {
            let before = batch.next;
            let step = {
                let mut ring = queue.ring();
                let step = self.fill(ring.tx(), batch);
                ring.tx().sync()?;
                step?
            };
            if batch.next > before {
                turns = 0;
            }
            match step {
                Step::Filled => {}
                Step::Full => {
                    turns += 1;
                    if turns < SPINS {
                        std::hint::spin_loop();
                    } else {
                        queue.wait(Interest::Tx, LONGEST_WAIT)?;
                    }
                }
                Step::Early(wait_ns) => self.rest(wait_ns, run),
            }
        }
        Ok(())
    }

    /// Waits until a frame is due: asleep if the wait is long, awake if it is short.
    fn rest(&mut self, wait_ns: u64, run: &Run) {
        if wait_ns > AWAKE_NS {
            std::thread::sleep(Duration::from_nanos(wait_ns - AWAKE_NS).min(LONGEST_WAIT));
            return;
        }
        let end_ns = self.clock.now_ns() + wait_ns;
        while self.clock.now_ns() < end_ns && !run.is_over() {
            std::hint::spin_loop();
        }
    }

    /// Puts frames into slots until a frame is not due, the ring is full, or enough slots are filled for a sync.
    fn fill(&mut self, tx: &mut TxRing, batch: &mut TxBurst<'_>) -> Result<Step, SendError> {
        let paced = self.departures.is_some();
        let mut filled = 0;
        while batch.next < batch.count {
            if filled == FRAMES_PER_SYNC && paced {
                return Ok(Step::Filled);
            }
            if tx.available() == 0 {
                return Ok(Step::Full);
            }
            let mut now_ns = 0;
            if paced || batch.stream.is_some() {
                now_ns = self.clock.now_ns();
            }
            if let Some(departures) = &mut self.departures
                && !departures.is_due(now_ns)
            {
                return Ok(Step::Early(departures.next_due_ns().saturating_sub(now_ns)));
            }
            let index = batch.next;
            let len = batch.block.claimed_len(index);
            self.finish(batch, index, len, now_ns)?;
            if !tx.send(batch.block.frame(index, len))? {
                return Ok(Step::Full);
            }
            if let Some(stream) = batch.stream {
                self.sequences[stream].1 += 1;
            }
            if let Some(departures) = &mut self.departures {
                let left_ns = now_ns.saturating_sub(departures.origin_ns()) as f64;
                self.error.record(departures.next_due(), left_ns);
                departures.depart(len);
            }
            batch.next += 1;
            batch.bytes += len as u64;
            filled += 1;
        }
        Ok(Step::Filled)
    }

    /// Writes signature and checksums of frame `index`.
    #[inline]
    fn finish(
        &self,
        batch: &mut TxBurst<'_>,
        index: usize,
        len: usize,
        now_ns: u64,
    ) -> Result<(), SendError> {
        if batch.offload == ChecksumOffload::Nothing && batch.stream.is_none() {
            return Ok(());
        }
        let frame = batch.block.frame_mut(index, len);
        let layout = Layout::of(frame);
        if let Some((stream, sequence)) = batch.stream.and_then(|stream| self.sequences.get(stream)) {
            let written = layout.write_signature(frame, *stream, *sequence, now_ns);
            if !written.map_err(|error| SendError::Frame { index, why: error.to_string() })? {
                let why = format!(
                    "has {} bytes behind its headers, and the shortest signature takes 6: make frames longer",
                    len.saturating_sub(layout.payload)
                );
                return Err(SendError::Frame { index, why });
            }
        }
        if batch.offload != ChecksumOffload::Nothing {
            layout.write_checksums(frame, batch.offload == ChecksumOffload::Transport);
        }
        Ok(())
    }
}

/// Frames on their way into a ring.
struct TxBurst<'a> {
    block: &'a mut FrameBlock,
    count: usize,
    offload: ChecksumOffload,
    /// Index of the stream in `sequences`.
    stream: Option<usize>,
    /// Index of the first frame that is not in a slot.
    next: usize,
    /// Bytes of the frames in slots.
    bytes: u64,
}

/// Reason why filling stopped.
enum Step {
    /// All frames are in slots, or enough for a sync.
    Filled,
    /// The ring is full.
    Full,
    /// Time until the next frame is due, ns.
    Early(u64),
}

enum SendError {
    Port(PortError),
    Frame { index: usize, why: String },
}

impl From<PortError> for SendError {
    fn from(error: PortError) -> Self {
        Self::Port(error)
    }
}

impl SendError {
    fn named(self, queue: &DeviceQueue) -> mlua::Error {
        mlua::Error::runtime(match self {
            Self::Port(error) => format!("{}: {error}", queue.label),
            Self::Frame { index, why } => format!("{}: the frame in buffer {} {why}", queue.label, index + 1),
        })
    }
}

/// Checks the lengths, which the script can set to any value.
fn check(block: &FrameBlock, count: usize, queue: &DeviceQueue) -> mlua::Result<()> {
    let longest = block.capacity().min(queue.max_frame_bytes);
    for index in 0..count {
        let len = block.claimed_len(index);
        if !(SHORTEST..=longest).contains(&len) {
            return Err(mlua::Error::runtime(format!(
                "{}: the frame in buffer {} has {len} bytes: a frame has {SHORTEST} to {longest}, without FCS; set \
                 lengths with bufs:alloc(size) or buf:setSize(size)",
                queue.label,
                index + 1
            )));
        }
    }
    Ok(())
}
