//! The copy alone: the bytes of frames between private memory and a buffer like a channel's, while a thread on the
//! card's core writes or reads the other end, as the card does. A driver that copies costs at least as much.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ringroad_generator::affinity::pin;
use ringroad_generator::clock::ticks;
use ringroad_sze2::client::CardError;
use ringroad_sze2::memory::{ChannelGeometry, ChannelMemory};
use ringroad_sze2::segment::{HEADER_BYTES, align};

use super::Sze2Session;
use super::plan::{ForwardMode, Sze2Point};
use super::turn::TurnOutcome;
use crate::error::BenchError;
use crate::plan::FCS_BYTES;
use crate::reading::Reading;
use crate::turn::SETTLE;

/// Size of the buffer: a channel's by default.
const GEOMETRY: ChannelGeometry = ChannelGeometry { buffer_bytes: 32 << 20, block_bytes: 4 << 20 };
/// Distance of private buffers, bytes: an mbuf's header, headroom, and 2 KiB.
const PRIVATE_BYTES: usize = PRIVATE_START + 2048;
/// Offset of the frame in a private buffer, bytes.
const PRIVATE_START: usize = 128 + 128;
/// Longest burst of the card.
const CARD_FRAMES: usize = 64;

/// A counter on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct PaddedCount(AtomicU64);

/// A buffer with frames of one size, from one thread to another.
struct Passage {
    memory: ChannelMemory,
    frame_bytes: usize,
    /// Distance of frames, bytes: with the header and the padding of a segment.
    stride: u64,
    /// Bytes written since the start.
    written: PaddedCount,
    /// Bytes read since the start.
    read: PaddedCount,
}

impl Passage {
    fn new(frame_bytes: usize) -> Result<Self, BenchError> {
        let memory = ChannelMemory::create(GEOMETRY).map_err(CardError::from)?;
        memory.populate();
        let stride = align(align(HEADER_BYTES) + frame_bytes) as u64;
        Ok(Self {
            memory,
            frame_bytes,
            stride,
            written: PaddedCount::default(),
            read: PaddedCount::default(),
        })
    }

    /// Number of frames that may be written.
    fn room(&self) -> usize {
        let used = self.written.0.load(Ordering::Relaxed) - self.read.0.load(Ordering::Acquire);
        ((GEOMETRY.buffer_bytes - used) / self.stride) as usize
    }

    /// Number of frames that may be read.
    fn there(&self) -> usize {
        let bytes = self.written.0.load(Ordering::Acquire) - self.read.0.load(Ordering::Relaxed);
        (bytes / self.stride) as usize
    }

    /// Writes a frame from each buffer. There must be room.
    fn write<'a>(&self, buffers: impl IntoIterator<Item = &'a [u8]>) {
        let mut at = self.written.0.load(Ordering::Relaxed);
        for buffer in buffers {
            self.memory.data(at + align(HEADER_BYTES) as u64, self.frame_bytes).write(buffer);
            at += self.stride;
        }
        self.written.0.store(at, Ordering::Release);
    }

    /// Reads the next bytes into each buffer, at most a frame. There must be frames.
    fn read<'a>(&self, buffers: impl IntoIterator<Item = &'a mut [u8]>) {
        let mut at = self.read.0.load(Ordering::Relaxed);
        for buffer in buffers {
            self.memory.data(at + align(HEADER_BYTES) as u64, self.frame_bytes).read(buffer);
            at += self.stride;
        }
        self.read.0.store(at, Ordering::Release);
    }
}

/// State that the threads of a turn share besides the buffers.
#[derive(Default)]
struct CopyProgress {
    /// Frames copied since the start.
    frames: AtomicU64,
    /// Whether the cycles are kept.
    is_measuring: AtomicBool,
    end: AtomicBool,
}

impl Sze2Session {
    /// Measures the copy of the frames of `point`.
    pub(super) fn measure_copy(&self, point: &Sze2Point) -> Result<TurnOutcome, BenchError> {
        let bytes = (point.frame_bytes - FCS_BYTES) as usize;
        let (arriving, leaving) = (Passage::new(bytes)?, Passage::new(bytes)?);
        let (receives, sends) = (point.mode != ForwardMode::TxOnly, point.mode != ForwardMode::RxOnly);
        let done = CopyProgress::default();
        let pinned = |cpu| pin(cpu).map_err(|source| BenchError::Pin { cpu, source });
        let card = || -> Result<(), BenchError> {
            pinned(self.cores.first)?;
            let frame = vec![0x5a; bytes];
            // The card reads no more of a frame that it does not send.
            let mut header = [0; 8];
            while !done.end.load(Ordering::Relaxed) {
                if receives {
                    let room = arriving.room().min(CARD_FRAMES);
                    arriving.write((0..room).map(|_| frame.as_slice()));
                }
                for _ in 0..leaving.there().min(CARD_FRAMES) {
                    leaving.read([header.as_mut_slice()]);
                }
            }
            Ok(())
        };
        let copy = || -> Result<Vec<(f32, u32)>, BenchError> {
            pinned(self.cores.second)?;
            let burst = point.burst_frames as usize;
            let mut memory = vec![0x5a; burst * PRIVATE_BYTES];
            let mut cycles = Vec::new();
            while !done.end.load(Ordering::Relaxed) {
                let count = if receives { arriving.there() } else { leaving.room() }.min(burst);
                if count == 0 || (sends && leaving.room() < count) {
                    std::hint::spin_loop();
                    continue;
                }
                let buffers = memory.chunks_exact_mut(PRIVATE_BYTES).take(count);
                let start = ticks();
                if receives {
                    arriving.read(buffers.map(|buffer| buffer.split_at_mut(PRIVATE_START).1));
                }
                if sends {
                    let buffers = memory.chunks_exact(PRIVATE_BYTES).take(count);
                    leaving.write(buffers.map(|buffer| buffer.split_at(PRIVATE_START).1));
                }
                let spent = ticks().wrapping_sub(start);
                done.frames.fetch_add(count as u64, Ordering::Relaxed);
                if done.is_measuring.load(Ordering::Relaxed) {
                    cycles.push((spent as f32 / count as f32, count as u32));
                }
            }
            Ok(cycles)
        };
        thread::scope(|scope| {
            let (card, copy) = (scope.spawn(card), scope.spawn(copy));
            let count = || Reading::of(|| Ok(done.frames.load(Ordering::Relaxed)));
            let interval = || {
                self.stop.pass(SETTLE)?;
                done.is_measuring.store(true, Ordering::Relaxed);
                let start = count()?;
                self.stop.pass(self.plan.interval)?;
                Ok::<_, BenchError>(start.until(&count()?))
            };
            let counted = interval();
            done.end.store(true, Ordering::Relaxed);
            let ended = |_| BenchError::Implausible("a thread that copies has ended".into());
            card.join().map_err(ended)??;
            let mut cycles = copy.join().map_err(ended)??;
            let (frames, seconds) = counted?;
            let cycles_per_frame = median_of_frames(&mut cycles)
                .ok_or_else(|| BenchError::Implausible("nothing was copied in the interval".into()))?;
            let calls = cycles.len();
            Ok(TurnOutcome {
                frames_per_s: frames as f64 / seconds,
                cycles_per_frame,
                frames_per_call: cycles.iter().map(|(_, frames)| f64::from(*frames)).sum::<f64>()
                    / calls as f64,
                refused_percent: None,
                loop_cycles_per_frame: None,
                tsc_mhz: None,
                cpu_wait: None,
                card: None,
                commands: Vec::new(),
            })
        })
    }
}

/// Returns the median cycles of the frames, from the cycles per frame and the frames of each call; sorts the calls.
fn median_of_frames(calls: &mut [(f32, u32)]) -> Option<f64> {
    calls.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let frames: u64 = calls.iter().map(|(_, frames)| u64::from(*frames)).sum();
    let mut before = 0;
    let middle = calls.iter().find(|(_, of_call)| {
        before += u64::from(*of_call);
        2 * before >= frames
    });
    middle.map(|(cycles, _)| f64::from(*cycles))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_counts_frames_not_calls() {
        assert_eq!(median_of_frames(&mut [(9.0, 1), (1.0, 1), (2.0, 1), (5.0, 128)]), Some(5.0));
        assert_eq!(median_of_frames(&mut []), None);
    }

    #[test]
    fn frames_pass_in_order_and_no_more_than_fit() {
        let passage = Passage::new(60).unwrap();
        assert_eq!((passage.stride, passage.there()), (72, 0));
        let most = (32 << 20) / 72;
        assert_eq!(passage.room(), most);
        let frames = [[1_u8; 60], [2; 60]];
        passage.write(frames.iter().map(|frame| frame.as_slice()));
        assert_eq!((passage.room(), passage.there()), (most - 2, 2));
        let mut read = [[0; 60]; 2];
        passage.read(read.iter_mut().map(|frame| frame.as_mut_slice()));
        assert_eq!((read, passage.room(), passage.there()), (frames, most, 0));
    }
}
