//! Receiving a batch into a script's buffers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ringroad::{Interest, PortError, RxRing};
use ringroad_traffic::meter::Digest;
use ringroad_traffic::signature::FormSet;

use super::buffers::BufferArray;
use super::context::Context;
use super::device::DeviceQueue;
use super::memory::FrameBlock;
use super::run::LONGEST_WAIT;
use crate::shared::FrameCount;

/// Number of checks without a frame before a sleep.
const SPINS: u32 = 64;

/// Result of one check of the ring.
#[derive(Default)]
struct Taken {
    frames: usize,
    bytes: u64,
    too_long: u64,
}

impl Taken {
    /// The received frames.
    fn seen_in<'a>(&self, block: &'a FrameBlock) -> impl Iterator<Item = &'a [u8]> {
        (0..self.frames).map(|index| block.frame(index, block.claimed_len(index)))
    }
}

/// Waits until there is a frame, at most `limit_ns`, and takes as many as are available and fit `array`. Returns their
/// number: 0 if the time passed, or the run ended meanwhile. After the end of a run the wait is at most
/// [`LONGEST_WAIT`].
pub(super) fn receive(
    queue: &DeviceQueue,
    array: &BufferArray,
    limit_ns: Option<u64>,
    context: &Context,
) -> mlua::Result<usize> {
    let mut block = array.block.borrow_mut();
    let wrong = |error: PortError| mlua::Error::runtime(format!("{}: {error}", queue.label));
    let begin_ns = context.now_ns();
    let end_ns = begin_ns.saturating_add(limit_ns.unwrap_or(u64::MAX));
    let was_over = context.run.is_over();
    let mut turns = 0;
    loop {
        let (taken, now_ns) = {
            let mut ring = queue.ring();
            ring.rx().sync().map_err(wrong)?;
            // The clock is read after the sync, so this time is after the departure of all frames that the sync shows.
            let now_ns = context.now_ns();
            let taken = take(ring.rx(), &mut block, now_ns);
            if taken.frames > 0 || taken.too_long > 0 {
                ring.rx().sync().map_err(wrong)?;
            }
            (taken, now_ns)
        };
        if taken.too_long > 0 {
            queue.too_long.fetch_add(taken.too_long, Ordering::Relaxed);
        }
        if let Some(metered) = &mut *queue.meter() {
            metered.digests.clear();
            metered
                .digests
                .extend(taken.seen_in(&block).map(|frame| Digest::new(frame, FormSet::ALL, now_ns)));
            metered.meter.record(&metered.digests);
        }
        if taken.frames > 0 {
            queue.received.add(FrameCount { frames: taken.frames as u64, bytes: taken.bytes });
            return Ok(taken.frames);
        }
        // The wait after the end is short, but not 0, for loops like `while mg.running(500)`.
        let over_ns =
            if was_over { begin_ns.saturating_add(LONGEST_WAIT.as_nanos() as u64) } else { u64::MAX };
        if now_ns >= end_ns.min(over_ns) || (context.run.is_over() && !was_over) {
            return Ok(0);
        }
        turns += 1;
        if turns < SPINS {
            std::hint::spin_loop();
        } else {
            let left = Duration::from_nanos(end_ns.min(over_ns) - now_ns);
            queue.wait(Interest::Rx, left.min(LONGEST_WAIT)).map_err(wrong)?;
        }
    }
}

/// Copies whole frames out of the ring.
fn take(rx: &mut RxRing, block: &mut FrameBlock, now_ns: u64) -> Taken {
    let mut taken = Taken::default();
    let (mut offset, capacity) = (0, block.capacity());
    while taken.frames < block.count() {
        let slots = rx.frame_slots(offset);
        if slots == 0 {
            break;
        }
        let len: usize = (offset..offset + slots).map(|slot| rx.frame(slot).len()).sum();
        if len > capacity {
            taken.too_long += 1;
        } else {
            let into = block.frame_mut(taken.frames, len);
            let mut at = 0;
            for slot in offset..offset + slots {
                at += rx.frame(slot).read(&mut into[at..]);
            }
            block.received(taken.frames, at, now_ns);
            taken.frames += 1;
            taken.bytes += at as u64;
        }
        offset += slots;
    }
    rx.release(offset);
    taken
}
