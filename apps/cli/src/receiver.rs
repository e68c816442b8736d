//! The receive loop of `recv` and `capture`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringroad::{Interest, Port, Reconnections, RxRing, prefetch_read, slot_flags};
use ringroad_capture::{CaptureFiles, CaptureFilter};
use ringroad_generator::SessionClock;
use ringroad_generator::clock::ClockReader;
use ringroad_traffic::meter::{Digest, Meter, MeterSummary};
use ringroad_traffic::rate_meter::{RateMeter, TrafficRate, TrafficSnapshot};
use ringroad_traffic::signature::FormSet;
use serde::Serialize;

use crate::failure::Failure;
use crate::port_drops::{Causes, PortDrops};
use crate::port_wait::Idleness;
use crate::run::{Progress, Run, as_ns};

/// Number of slots that are prefetched ahead of the slot being read.
const PREFETCH_SLOTS: u32 = 8;
/// Longest delay until a port shows a received frame, ns. AF_PACKET shows a frame at most 16 ms after its arrival.
const LATENESS_NS: u64 = 20_000_000;
/// Longest time after the end in which frames with a timestamp before the end are still taken, ns. A busy machine may
/// need it.
const MAX_SLEEP_NS: u64 = 10_000_000_000;
/// Number of frames whose digests go to the meter together.
const DIGESTS: usize = 256;

/// Limits of receiving, besides the run's own end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReceiveLimits {
    /// Maximum number of frames that pass the filter.
    pub(crate) count: Option<u64>,
    /// Longest time without a frame after the first frame; then receiving ends.
    pub(crate) idle_exit: Option<Duration>,
}

/// Processing of each frame besides counting.
#[derive(Debug, Default)]
pub(crate) struct FrameUse {
    pub(crate) check: Option<Check>,
    /// Filter for frames to capture.
    pub(crate) filter: Option<CaptureFilter>,
    pub(crate) capture: Option<CaptureFiles>,
}

/// Meter of test frames.
#[derive(Debug)]
pub(crate) struct Check {
    meter: Meter,
    clock: ClockReader,
    digests: Vec<Digest>,
}

impl Check {
    /// Makes a check with `meter`, timed by `clock`.
    pub(crate) fn new(meter: Meter, clock: &SessionClock) -> Self {
        Self { meter, clock: clock.reader(), digests: Vec::with_capacity(DIGESTS) }
    }

    #[inline]
    fn check(&mut self, frame: &[u8], arrival_ns: u64) {
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

/// Counters of received frames.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct ReceiveSummary {
    pub(crate) port: String,
    pub(crate) frames: u64,
    /// Bytes of the received frames, without FCS.
    pub(crate) bytes: u64,
    /// Time from before the first burst to after the last burst, s.
    pub(crate) seconds: f64,
    /// Mean rate over that time.
    pub(crate) rate: TrafficRate,
    /// Number of times that the port was connected again after its daemon's end.
    #[serde(skip_serializing_if = "Reconnections::is_none")]
    pub(crate) reconnections: Reconnections,
    /// The measurement of test frames, if they are checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) test_frames: Option<MeterSummary>,
    /// Frames left in the port's rings: frames that arrived after the end, or beyond the count.
    pub(crate) left_frames: u64,
    /// Received frames that did not pass the filter; `None` without a filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filtered_frames: Option<u64>,
    /// Frames that the datapath dropped at the port meanwhile, by cause; empty if the daemon does not have the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drops: Option<Causes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capture: Option<CaptureCounts>,
}

/// Summary of the capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CaptureCounts {
    /// Path of the file; of several files, the path without number.
    pub(crate) file: String,
    /// Number of files begun, including overwritten files.
    pub(crate) files: u64,
    /// Number of frames in all files.
    pub(crate) frames: u64,
    /// Length of these frames, bytes.
    pub(crate) bytes: u64,
}

/// State of the receive loop.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    frames: u64,
    bytes: u64,
    /// Number of received frames that did not pass the filter.
    filtered: u64,
    times: Times,
    usage: FrameUse,
    gathered: Vec<u8>,
}

impl Receiver {
    pub(crate) fn new(usage: FrameUse) -> Self {
        Self { usage, ..Self::default() }
    }

    /// Receives until a limit, the end of the run, or a failure. The summary has the counters in either case. The
    /// caller adds the daemon's drops and the capture's summary.
    pub(crate) fn receive(
        &mut self,
        port: &mut Port,
        run: &Run,
        limits: ReceiveLimits,
        drops: Option<&PortDrops<'_>>,
        progress: &mut Progress,
    ) -> (ReceiveSummary, Result<(), Failure>) {
        let ended = self.turn_until_end(port, run, limits, drops, progress);
        let left_frames = port.queues().iter_mut().map(|queue| queue.rx().frames().count() as u64).sum();
        progress.finish();
        let mut meter =
            RateMeter::new(TrafficSnapshot { now_ns: self.times.first_ns, ..TrafficSnapshot::default() });
        meter.update(TrafficSnapshot { frames: self.frames, bytes: self.bytes, now_ns: self.times.last_ns });
        let summary = ReceiveSummary {
            port: port.info().name.clone(),
            frames: self.frames,
            bytes: self.bytes,
            seconds: self.times.last_ns.saturating_sub(self.times.first_ns) as f64 / 1e9,
            rate: meter.overall(),
            reconnections: port.reconnections(),
            left_frames,
            test_frames: self.usage.check.as_mut().map(|check| {
                check.settle();
                check.meter.report().summary()
            }),
            filtered_frames: self.usage.filter.as_ref().map(|_| self.filtered),
            drops: None,
            capture: None,
        };
        (summary, ended)
    }

    /// Returns the capture, to finish it.
    pub(crate) fn take_capture(&mut self) -> Option<CaptureFiles> {
        self.usage.capture.take()
    }

    /// Returns the number of frames that passed the filter, or of all frames without a filter.
    fn passed(&self) -> u64 {
        self.frames - self.filtered
    }

    fn turn_until_end(
        &mut self,
        port: &mut Port,
        run: &Run,
        limits: ReceiveLimits,
        drops: Option<&PortDrops<'_>>,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let count = limits.count.unwrap_or(u64::MAX);
        let idle_ns = limits.idle_exit.map_or(u64::MAX, as_ns);
        let mut idleness = Idleness::default();
        let mut now_ns = run.now_ns();
        while self.passed() < count && !run.is_over(now_ns) {
            if self.turn(port, run, now_ns, count)? {
                idleness.busy();
            } else {
                let quiet_ns = if self.frames > 0 { run.now_ns() - self.times.last_ns } else { 0 };
                if quiet_ns >= idle_ns {
                    break;
                }
                if idleness.is_long() {
                    let limit = run.wait_limit(now_ns).min(Duration::from_nanos(idle_ns - quiet_ns));
                    self.rest(port, limit)?;
                }
            }
            now_ns = run.now_ns();
            progress.update(now_ns, self.frames, self.bytes)?;
        }
        if run.is_over(now_ns) {
            self.take_the_rest(port, run, count, drops)?;
        }
        // The syncs return the taken slots to the sender.
        for queue in port.queues() {
            queue.rx().sync()?;
        }
        Ok(())
    }

    /// Takes frames that have arrived at any queue, until `count` have passed. Returns `false` if there were none.
    fn turn(&mut self, port: &mut Port, run: &Run, now_ns: u64, count: u64) -> Result<bool, Failure> {
        let before = self.frames;
        for queue in port.queues() {
            queue.rx().sync()?;
            self.take(queue.rx(), count)?;
        }
        if self.frames == before {
            return Ok(false);
        }
        if before == 0 {
            self.times.first_ns = now_ns;
        }
        self.times.last_ns = run.now_ns();
        Ok(true)
    }

    /// Takes frames that arrived before the end: frames in the rings, and frames that drivers have not put there yet.
    fn take_the_rest(
        &mut self,
        port: &mut Port,
        run: &Run,
        count: u64,
        drops: Option<&PortDrops<'_>>,
    ) -> Result<(), Failure> {
        let (ended_ns, start_ns) = (unix_time_ns(), run.now_ns());
        let shown_ns = start_ns + LATENESS_NS;
        // Whether all frames from before the end have had the time to reach the rings.
        let mut is_complete = false;
        while self.passed() < count {
            let now_ns = run.now_ns();
            let came = self.turn(port, run, now_ns, count)?;
            // Timestamp 0 means a ring that shows frames immediately.
            let is_late = (1..ended_ns).contains(&self.times.newest_frame_ns);
            if (came && !is_late) || (!came && is_complete) || now_ns - start_ns > MAX_SLEEP_NS {
                break;
            }
            if came {
                // The sync returns slots, since full rings may have kept frames back.
                port.sync()?;
            } else {
                self.rest(port, Duration::from_nanos(shown_ns.saturating_sub(now_ns)))?;
            }
            let are_shown = run.now_ns() >= shown_ns;
            // On a busy machine the kernel hands frames over later.
            is_complete = drops.is_none_or(PortDrops::await_turn) && are_shown;
        }
        Ok(())
    }

    /// Writes captured frames out, and sleeps until frames arrive.
    fn rest(&mut self, port: &mut Port, limit: Duration) -> Result<(), Failure> {
        if let Some(capture) = &mut self.usage.capture {
            capture.flush()?;
        }
        port.wait(Interest::Rx, Some(limit))?;
        Ok(())
    }

    /// Takes whole frames of `rx` until `count` have passed.
    fn take(&mut self, rx: &mut RxRing, count: u64) -> Result<(), Failure> {
        let touched = self.usage.check.is_some() || self.usage.capture.is_some();
        // One clock reading serves a burst without arrival times: its frames became visible together.
        let now_ns = if self.usage.capture.is_some() { unix_time_ns() } else { 0 };
        let arrival_ns = self.usage.check.as_mut().map_or(0, |check| check.clock.now_ns());
        let available = rx.available();
        let mut taken = 0;
        let mut newest = 0;
        let mut result = Ok(());
        if touched {
            (0..PREFETCH_SLOTS.min(available))
                .filter_map(|offset| rx.prefetch_address(offset))
                .for_each(prefetch_read);
        }
        while taken < available && self.passed() < count {
            let slots = rx.frame_slots(taken);
            if slots == 0 {
                break;
            }
            for offset in taken..taken + slots {
                self.bytes += rx.frame(offset).len() as u64;
            }
            self.frames += 1;
            if touched {
                if taken + PREFETCH_SLOTS < available
                    && let Some(address) = rx.prefetch_address(taken + PREFETCH_SLOTS)
                {
                    prefetch_read(address);
                }
                result = self.check(rx, taken, slots, now_ns, arrival_ns);
            }
            newest = taken;
            taken += slots;
            if result.is_err() {
                break;
            }
        }
        if taken > 0 {
            self.times.newest_frame_ns = rx.timestamp_ns(newest);
        }
        // A frame with more fragments than the ring has slots never becomes whole. It would stop the ring, so it is
        // released.
        if taken == 0 && available == rx.slot_count() - 1 && self.passed() < count && is_endless(rx) {
            taken = available;
        }
        rx.release(taken);
        result
    }

    /// Processes the frame of `slots` slots that starts `first` slots after the ring's first slot.
    fn check(
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
            check.check(frame, arrival_ns);
        }
        if self.usage.filter.as_ref().is_some_and(|filter| !filter.passes(frame)) {
            self.filtered += 1;
            return Ok(());
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
    /// Time before the first burst, ns since the run's start.
    first_ns: u64,
    /// Time after the last burst, ns since the run's start.
    last_ns: u64,
    /// Arrival time of the last taken frame, ns since 1970-01-01 UTC; 0 if the port does not know it.
    newest_frame_ns: u64,
}

/// Returns the time since 1970-01-01 UTC, ns.
pub(crate) fn unix_time_ns() -> u64 {
    as_ns(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests;
