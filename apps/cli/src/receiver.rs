//! The receive loop of `recv` and `capture`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringroad::{Interest, Port, Reconnections, RxRing, prefetch_read, slot_flags};
use ringroad_capture::{CaptureSummary, CaptureWriter};
use ringroad_generator::Clock;
use ringroad_generator::clock::ClockReader;
use ringroad_traffic::meter::{Digest, Meter, MeterSummary};
use ringroad_traffic::rate_meter::{RateMeter, TrafficRate, TrafficSnapshot};
use ringroad_traffic::signature::FormSet;
use serde::Serialize;

use crate::failure::Failure;
use crate::port_wait::Idleness;
use crate::run::{Progress, Run};

/// Slots that are prefetched ahead of the one being read.
const PREFETCH_SLOTS: u32 = 8;
/// Digests of so many frames go to the meter at once.
const DIGESTS: usize = 256;

/// When to stop receiving, besides the run's own end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReceiveLimits {
    pub(crate) count: Option<u64>,
    /// Ends when nothing came for so long after the first frame.
    pub(crate) idle_exit: Option<Duration>,
}

/// The work on each frame besides counting.
#[derive(Debug, Default)]
pub(crate) struct FrameUse {
    pub(crate) check: Option<Check>,
    pub(crate) capture: Option<CaptureWriter>,
}

/// Test frames, read and measured.
#[derive(Debug)]
pub(crate) struct Check {
    meter: Meter,
    clock: ClockReader,
    digests: Vec<Digest>,
}

impl Check {
    /// Of `meter`, timed by `clock`.
    pub(crate) fn new(meter: Meter, clock: &Clock) -> Self {
        Self { meter, clock: clock.reader(), digests: Vec::with_capacity(DIGESTS) }
    }

    #[inline]
    fn look_at(&mut self, frame: &[u8], arrival_ns: u64) {
        self.digests.push(Digest::new(frame, FormSet::ALL, arrival_ns));
        if self.digests.len() == DIGESTS {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.meter.record(&self.digests);
        self.digests.clear();
    }
}

/// Counts of received frames.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct ReceiveSummary {
    /// Port received from.
    pub(crate) port: String,
    /// Frames received.
    pub(crate) frames: u64,
    /// Their bytes, without FCS.
    pub(crate) bytes: u64,
    /// From before the first burst to after the last, s.
    pub(crate) seconds: f64,
    /// Traffic over that time.
    pub(crate) rate: TrafficRate,
    /// How often the port got over its daemon's end.
    #[serde(skip_serializing_if = "Reconnections::is_none")]
    pub(crate) reconnections: Reconnections,
    /// The measurement of test frames, if they are checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) test_frames: Option<MeterSummary>,
    /// Content of the capture file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capture: Option<CaptureCounts>,
}

/// Content of a capture file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CaptureCounts {
    /// Path of the file.
    pub(crate) file: String,
    /// Frames in it.
    pub(crate) frames: u64,
    /// Its length, bytes.
    pub(crate) bytes: u64,
}

impl CaptureCounts {
    pub(crate) fn new(file: &str, summary: CaptureSummary) -> Self {
        Self { file: file.to_owned(), frames: summary.frames, bytes: summary.bytes }
    }
}

/// The receive loop's state.
#[derive(Debug)]
pub(crate) struct Receiver {
    frames: u64,
    bytes: u64,
    usage: FrameUse,
    gathered: Vec<u8>,
}

impl Receiver {
    pub(crate) fn new(usage: FrameUse) -> Self {
        Self { frames: 0, bytes: 0, usage, gathered: Vec::new() }
    }

    /// Receives until a limit, the end of the run, or a failure. The summary has the counts in either case; the capture
    /// in it is left to the caller, who names the file.
    pub(crate) fn receive(
        &mut self,
        port: &mut Port,
        run: &Run,
        limits: ReceiveLimits,
        progress: &mut Progress,
    ) -> (ReceiveSummary, Result<(), Failure>) {
        let mut times = Times::default();
        let ended = self.turn_until_end(port, run, limits, progress, &mut times);
        progress.finish();
        let mut meter =
            RateMeter::new(TrafficSnapshot { now_ns: times.first_ns, ..TrafficSnapshot::default() });
        meter.update(TrafficSnapshot { frames: self.frames, bytes: self.bytes, now_ns: times.last_ns });
        let summary = ReceiveSummary {
            port: port.info().name.clone(),
            frames: self.frames,
            bytes: self.bytes,
            seconds: times.last_ns.saturating_sub(times.first_ns) as f64 / 1e9,
            rate: meter.overall(),
            reconnections: port.reconnections(),
            test_frames: self.usage.check.as_mut().map(|check| {
                check.settle();
                check.meter.report().summary()
            }),
            capture: None,
        };
        (summary, ended)
    }

    /// Takes the capture, to finish it.
    pub(crate) fn take_capture(&mut self) -> Option<CaptureWriter> {
        self.usage.capture.take()
    }

    fn turn_until_end(
        &mut self,
        port: &mut Port,
        run: &Run,
        limits: ReceiveLimits,
        progress: &mut Progress,
        times: &mut Times,
    ) -> Result<(), Failure> {
        let count = limits.count.unwrap_or(u64::MAX);
        let idle_ns =
            limits.idle_exit.map_or(u64::MAX, |idle| idle.as_nanos().try_into().unwrap_or(u64::MAX));
        let mut idleness = Idleness::default();
        let mut now_ns = run.now_ns();
        while self.frames < count && !run.is_over(now_ns) {
            let before = self.frames;
            for queue in port.queues() {
                queue.rx().sync()?;
                self.take(queue.rx(), count - self.frames)?;
            }
            let looked_ns = run.now_ns();
            if self.frames > before {
                if before == 0 {
                    times.first_ns = now_ns;
                }
                times.last_ns = looked_ns;
                idleness.busy();
            } else if self.frames > 0 && looked_ns - times.last_ns >= idle_ns {
                break;
            } else if idleness.is_long() {
                let idle_left = match self.frames {
                    0 => u64::MAX,
                    _ => idle_ns.saturating_sub(looked_ns - times.last_ns),
                };
                self.rest(port, run.wait_limit(looked_ns).min(Duration::from_nanos(idle_left)))?;
            }
            now_ns = run.now_ns();
            progress.look(now_ns, self.frames, self.bytes)?;
        }
        // What was taken is handed back, so that the sender sees it consumed.
        for queue in port.queues() {
            queue.rx().sync()?;
        }
        Ok(())
    }

    /// Sleeps until frames come. Before it sleeps it writes captured frames out.
    fn rest(&mut self, port: &mut Port, limit: Duration) -> Result<(), Failure> {
        if let Some(capture) = &mut self.usage.capture {
            capture.flush()?;
        }
        port.wait(Interest::Rx, Some(limit))?;
        Ok(())
    }

    /// Takes up to `limit` whole frames of `rx`.
    fn take(&mut self, rx: &mut RxRing, limit: u64) -> Result<(), Failure> {
        let touched = self.usage.check.is_some() || self.usage.capture.is_some();
        // Where the port does not know when frames came one clock reading serves the burst: they became visible
        // together.
        let now_ns = if self.usage.capture.is_some() { unix_time_ns() } else { 0 };
        let arrival_ns = self.usage.check.as_mut().map_or(0, |check| check.clock.now_ns());
        let available = rx.available();
        let mut taken = 0;
        let mut left = limit;
        let mut result = Ok(());
        if touched {
            (0..PREFETCH_SLOTS.min(available))
                .filter_map(|offset| rx.prefetch_address(offset))
                .for_each(prefetch_read);
        }
        while taken < available && left > 0 {
            let slots = rx.frame_slots(taken);
            if slots == 0 {
                break;
            }
            for offset in taken..taken + slots {
                self.bytes += rx.frame(offset).len() as u64;
            }
            self.frames += 1;
            left -= 1;
            if touched {
                if taken + PREFETCH_SLOTS < available
                    && let Some(address) = rx.prefetch_address(taken + PREFETCH_SLOTS)
                {
                    prefetch_read(address);
                }
                result = self.look_at(rx, taken, slots, now_ns, arrival_ns);
            }
            taken += slots;
            if result.is_err() {
                break;
            }
        }
        // A frame that can never become whole would stop the ring: more fragments than fit.
        if taken == 0 && available == rx.slot_count() - 1 && left > 0 && is_endless(rx) {
            taken = available;
        }
        rx.release(taken);
        result
    }

    /// Reads the frame of `slots` slots that starts `first` after the ring's first.
    fn look_at(
        &mut self,
        rx: &RxRing,
        first: u32,
        slots: u32,
        now_ns: u64,
        arrival_ns: u64,
    ) -> Result<(), Failure> {
        let mut len = 0;
        for offset in first..first + slots {
            let bytes = rx.frame(offset);
            if self.gathered.len() < len + bytes.len() {
                self.gathered.resize(len + bytes.len(), 0);
            }
            len += self.gathered.get_mut(len..).map_or(0, |room| bytes.read(room));
        }
        let frame = self.gathered.get(..len).unwrap_or_default();
        if let Some(check) = &mut self.usage.check {
            check.look_at(frame, arrival_ns);
        }
        let Some(capture) = &mut self.usage.capture else { return Ok(()) };
        let came_ns = match rx.timestamp_ns(first) {
            0 => now_ns,
            known_ns => known_ns,
        };
        Ok(capture.write_frame(came_ns, frame, u32::try_from(len).unwrap_or(u32::MAX))?)
    }
}

fn is_endless(rx: &RxRing) -> bool {
    (0..rx.available()).all(|offset| rx.slot(offset).flags & slot_flags::MORE_FRAGMENTS != 0)
}

#[derive(Debug, Default)]
struct Times {
    first_ns: u64,
    last_ns: u64,
}

/// Time since 1970-01-01 UTC, ns.
fn unix_time_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
