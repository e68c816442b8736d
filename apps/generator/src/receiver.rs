//! The receiving side of one queue: reads each frame's signature and hands the digests to the port's meter, once per
//! burst.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringroad::{PortError, RxRing, prefetch_read, slot_flags};
use ringroad_traffic::meter::{Digest, Meter};
use ringroad_traffic::signature::{FormSet, read_signature};

use crate::clock::ClockReader;

/// Slots that are fetched for reading ahead of the one being read.
const PREFETCH_SLOTS: u32 = 8;
/// Most frames whose digests go to the meter at once.
const BURST_FRAMES: usize = 256;

/// What one queue received; written by its thread once per burst.
#[derive(Debug, Default)]
pub(crate) struct ReceiveCounters {
    pub(crate) frames: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl ReceiveCounters {
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.frames.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// The receiving side of one queue.
#[derive(Debug)]
pub(crate) struct Receiver {
    meter: Arc<Mutex<Meter>>,
    forms: FormSet,
    counters: Arc<ReceiveCounters>,
    digests: Vec<Digest>,
    /// The frame being read, whole: nobody can change it while it is checked.
    frame: Vec<u8>,
}

impl Receiver {
    pub(crate) fn new(meter: Arc<Mutex<Meter>>, forms: FormSet, counters: Arc<ReceiveCounters>) -> Self {
        Self { meter, forms, counters, digests: Vec::with_capacity(BURST_FRAMES), frame: vec![0; 65536] }
    }

    /// Takes the received frames; returns their number.
    #[inline]
    pub(crate) fn turn(&mut self, rx: &mut RxRing, clock: &mut ClockReader) -> Result<u32, PortError> {
        rx.sync()?;
        let available = rx.available();
        if available == 0 {
            return Ok(0);
        }
        // One reading serves the burst: its frames became visible together.
        let arrival_ns = clock.now_ns();
        for offset in 0..PREFETCH_SLOTS.min(available) {
            rx.prefetch_address(offset).into_iter().for_each(prefetch_read);
        }
        let (mut taken, mut bytes) = (0, 0);
        while taken < available && self.digests.len() < BURST_FRAMES {
            if taken + PREFETCH_SLOTS < available
                && let Some(address) = rx.prefetch_address(taken + PREFETCH_SLOTS)
            {
                prefetch_read(address);
            }
            let (slots, len) = self.gather(rx, taken, available);
            if slots == 0 {
                break;
            }
            let frame = self.frame.get(..len).unwrap_or_default();
            let reading = read_signature(frame, self.forms);
            self.digests.push(Digest { reading, len: len as u32, arrival_ns });
            bytes += len as u64;
            taken += slots;
        }
        let frames = self.digests.len() as u64;
        if frames > 0 {
            self.meter.lock().unwrap_or_else(PoisonError::into_inner).record(&self.digests);
            self.digests.clear();
            let counters = &self.counters;
            counters.frames.store(counters.frames.load(Ordering::Relaxed) + frames, Ordering::Relaxed);
            counters.bytes.store(counters.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        } else if taken == 0 && available == rx.slot_count() - 1 {
            // A frame that can never become whole would stop the ring: more fragments than fit.
            taken = available;
        }
        rx.release(taken);
        rx.sync()?;
        Ok(frames as u32)
    }

    /// Copies the frame that starts `first` slots after the ring's first; returns its slots and bytes, no slots where not
    /// all of it is there.
    #[inline]
    fn gather(&mut self, rx: &RxRing, first: u32, available: u32) -> (u32, usize) {
        let mut len = 0;
        for offset in first..available {
            let room = self.frame.get_mut(len..).unwrap_or_default();
            len += rx.frame(offset).read(room);
            if rx.slot(offset).flags & slot_flags::MORE_FRAGMENTS == 0 {
                return (offset - first + 1, len);
            }
        }
        (0, 0)
    }
}
