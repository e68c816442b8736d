//! The receiving side of one queue: reads each frame's signature and hands the digests to the port's meter, once per
//! burst.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use ringroad::{PortError, RxRing, slot_flags};
use ringroad_traffic::meter::{Digest, Meter};
use ringroad_traffic::signature::{FormSet, read_signature};

use crate::clock::ClockReader;
use crate::shared::{FrameCount, FrameCounter, lock};

/// Greatest number of frames whose digests go to the meter at once.
const BURST_FRAMES: usize = 256;
/// Greatest age of a frame, ns. An older time is none that the port's driver has written.
const OLDEST_FRAME_NS: u64 = 60_000_000_000;

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
    /// Arrival times of the port; `None` if all are this program's.
    port_times: Option<PortTimes>,
}

/// Arrival times that the port's driver gives frames.
#[derive(Debug, Default)]
struct PortTimes {
    /// Number of frames that had such a time so far.
    frames: u64,
    /// Time by the driver's clock when the burst was seen, ns since the Unix epoch.
    wall_ns: u64,
    /// The driver's time for each frame of the burst, by the same clock.
    stamps_ns: Vec<u64>,
}

impl PortTimes {
    /// Reads the times of the frames that end in the next `slots` slots.
    fn read(&mut self, rx: &RxRing, slots: u32) {
        self.wall_ns = wall_ns();
        let is_end = |offset: &u32| rx.slot(*offset).flags & slot_flags::MORE_FRAGMENTS == 0;
        self.stamps_ns.clear();
        self.stamps_ns.extend((0..slots).filter(is_end).map(|offset| rx.timestamp_ns(offset)));
    }

    /// Gives the frames of the burst, which was seen at `now_ns`, their times.
    fn apply(&mut self, digests: &mut [Digest], now_ns: u64) {
        for (digest, &stamp_ns) in digests.iter_mut().zip(&self.stamps_ns) {
            if let Some(age_ns) = age_ns(stamp_ns, self.wall_ns) {
                digest.arrival_ns = now_ns.saturating_sub(age_ns);
                self.frames += 1;
            }
        }
    }
}

impl Receiver {
    /// `port_times`: a frame arrives when it comes to its interface, if the port's driver knows this time.
    pub(crate) fn new(
        meter: Arc<Mutex<Meter>>,
        forms: FormSet,
        counter: Arc<FrameCounter>,
        port_times: bool,
    ) -> Self {
        Self {
            meter,
            forms,
            counter,
            received: FrameCount::default(),
            digests: Vec::with_capacity(BURST_FRAMES),
            frame: vec![0; 65536],
            len: 0,
            port_times: port_times.then(PortTimes::default),
        }
    }

    /// Number of frames whose arrival times are the port's; `None` if all are this program's.
    pub(crate) fn port_timed(&self) -> Option<u64> {
        self.port_times.as_ref().map(|times| times.frames)
    }

    /// Takes the frames that the last sync found; returns their number.
    #[inline]
    pub(crate) fn take(&mut self, rx: &mut RxRing, clock: &mut ClockReader) -> Result<u32, PortError> {
        let available = rx.available();
        if available == 0 {
            return Ok(0);
        }
        // One clock reading serves the whole burst: its frames became visible together.
        let now_ns = clock.now_ns();
        if let Some(times) = &mut self.port_times {
            times.read(rx, available);
        }
        let Self { frame, len, digests, forms, received, .. } = self;
        rx.pop_each(available, |slot, bytes| {
            if digests.len() == BURST_FRAMES {
                return false;
            }
            *len += bytes.read(frame.get_mut(*len..).unwrap_or_default());
            if slot.flags & slot_flags::MORE_FRAGMENTS == 0 {
                let reading = read_signature(frame.get(..*len).unwrap_or_default(), *forms);
                digests.push(Digest { reading, len: *len as u32, arrival_ns: now_ns });
                received.bytes += *len as u64;
                *len = 0;
            }
            true
        });
        if let Some(times) = &mut self.port_times {
            times.apply(&mut self.digests, now_ns);
        }
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

/// Time of the system's wall clock, by which drivers time frames, ns since the Unix epoch.
fn wall_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_nanos() as u64
}

/// Time since a frame came to its interface, ns, if `stamp_ns` is a driver's time for it.
#[inline]
fn age_ns(stamp_ns: u64, wall_ns: u64) -> Option<u64> {
    wall_ns.checked_sub(stamp_ns).filter(|age_ns| *age_ns < OLDEST_FRAME_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_recent_time_of_the_past_is_a_drivers_time() {
        let now = wall_ns();
        assert_eq!(age_ns(now - 5_000, now), Some(5_000));
        assert_eq!(age_ns(now, now), Some(0));
        for odd in [0, 1, now - OLDEST_FRAME_NS, now + 1, u64::MAX] {
            assert_eq!(age_ns(odd, now), None, "{odd}");
        }
    }
}
