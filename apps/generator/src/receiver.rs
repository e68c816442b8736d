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
    /// Number of frames whose arrival times are the port's; `None` if all are this program's.
    port_timed: Option<u64>,
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
            port_timed: port_times.then_some(0),
        }
    }

    /// Number of frames whose arrival times are the port's; `None` if all are this program's.
    pub(crate) fn port_timed(&self) -> Option<u64> {
        self.port_timed
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
        let Self { frame, len, digests, forms, received, port_timed, .. } = self;
        let wall_ns = if port_timed.is_some() { wall_ns() } else { 0 };
        rx.pop_each(available, |slot, bytes| {
            if digests.len() == BURST_FRAMES {
                return false;
            }
            *len += bytes.read(frame.get_mut(*len..).unwrap_or_default());
            if slot.flags & slot_flags::MORE_FRAGMENTS == 0 {
                let reading = read_signature(frame.get(..*len).unwrap_or_default(), *forms);
                let arrival_ns = match port_timed {
                    None => now_ns,
                    Some(count) => age_ns(slot.ptr, wall_ns).map_or(now_ns, |age_ns| {
                        *count += 1;
                        now_ns.saturating_sub(age_ns)
                    }),
                };
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
