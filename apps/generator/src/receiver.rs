//! The receiving side of one queue: reads each frame's signature and hands the digests to the port's meter, once per
//! burst.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringroad::{PortError, RxRing, slot_flags};
use ringroad_traffic::meter::{Digest, Meter};
use ringroad_traffic::signature::{FormSet, read_signature};

use crate::clock::ClockReader;

/// Greatest number of frames whose digests go to the meter at once.
const BURST_FRAMES: usize = 256;

/// Counts of one queue's received frames; written by its thread once per burst.
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
    /// A private copy of the frame being read, which no other process can change while it is checked.
    frame: Vec<u8>,
    /// Bytes of the frame whose slots have arrived.
    len: usize,
}

impl Receiver {
    pub(crate) fn new(meter: Arc<Mutex<Meter>>, forms: FormSet, counters: Arc<ReceiveCounters>) -> Self {
        Self {
            meter,
            forms,
            counters,
            digests: Vec::with_capacity(BURST_FRAMES),
            frame: vec![0; 65536],
            len: 0,
        }
    }

    /// Takes the frames that the last sync found; returns their number.
    #[inline]
    pub(crate) fn take(&mut self, rx: &mut RxRing, clock: &mut ClockReader) -> Result<u32, PortError> {
        let available = rx.available();
        if available == 0 {
            return Ok(0);
        }
        // One clock reading serves the whole burst: its frames became visible together.
        let arrival_ns = clock.now_ns();
        let Self { frame, len, digests, forms, .. } = self;
        let mut received_bytes = 0;
        rx.pop_each(available, |slot, bytes| {
            if digests.len() == BURST_FRAMES {
                return false;
            }
            *len += bytes.read(frame.get_mut(*len..).unwrap_or_default());
            if slot.flags & slot_flags::MORE_FRAGMENTS == 0 {
                let reading = read_signature(frame.get(..*len).unwrap_or_default(), *forms);
                digests.push(Digest { reading, len: *len as u32, arrival_ns });
                received_bytes += *len as u64;
                *len = 0;
            }
            true
        });
        let frames = self.digests.len() as u64;
        if frames > 0 {
            self.meter.lock().unwrap_or_else(PoisonError::into_inner).record(&self.digests);
            self.digests.clear();
            let counters = &self.counters;
            counters.frames.store(counters.frames.load(Ordering::Relaxed) + frames, Ordering::Relaxed);
            counters.bytes.store(counters.bytes.load(Ordering::Relaxed) + received_bytes, Ordering::Relaxed);
        }
        rx.sync()?;
        Ok(frames as u32)
    }
}
