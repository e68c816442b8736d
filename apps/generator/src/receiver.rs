//! The receiving side of one queue: reads each frame's signature and hands the digests to the port's meter, once per
//! burst.

use std::sync::{Arc, Mutex};

use ringroad::{PortError, RxRing, slot_flags};
use ringroad_traffic::meter::{Digest, Meter};
use ringroad_traffic::signature::{FormSet, read_signature};

use crate::clock::ClockReader;
use crate::shared::{FrameCount, FrameCounter, lock};

/// Greatest number of frames whose digests go to the meter at once.
const BURST_FRAMES: usize = 256;

/// The receiving side of one queue.
#[derive(Debug)]
pub(crate) struct Receiver {
    meter: Arc<Mutex<Meter>>,
    forms: FormSet,
    counter: Arc<FrameCounter>,
    received: FrameCount,
    digests: Vec<Digest>,
    /// A private copy of the frame being read, which no other process can change while it is checked.
    frame: Vec<u8>,
    /// Bytes of the frame whose slots have arrived.
    len: usize,
}

impl Receiver {
    pub(crate) fn new(meter: Arc<Mutex<Meter>>, forms: FormSet, counter: Arc<FrameCounter>) -> Self {
        Self {
            meter,
            forms,
            counter,
            received: FrameCount::default(),
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
        let Self { frame, len, digests, forms, received, .. } = self;
        rx.pop_each(available, |slot, bytes| {
            if digests.len() == BURST_FRAMES {
                return false;
            }
            *len += bytes.read(frame.get_mut(*len..).unwrap_or_default());
            if slot.flags & slot_flags::MORE_FRAGMENTS == 0 {
                let reading = read_signature(frame.get(..*len).unwrap_or_default(), *forms);
                digests.push(Digest { reading, len: *len as u32, arrival_ns });
                received.bytes += *len as u64;
                *len = 0;
            }
            true
        });
        let frames = self.digests.len() as u64;
        if frames > 0 {
            lock(&self.meter).record(&self.digests);
            self.digests.clear();
            self.received.frames += frames;
            self.counter.set(self.received);
        }
        rx.sync()?;
        Ok(frames as u32)
    }
}
