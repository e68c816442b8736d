//! `ringroad replay`: frames of a capture file, sent with their timing.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use ringroad::{Interest, Port, Reconnections};
use ringroad_capture::CaptureReader;
use ringroad_traffic::pacing::{
    AWAKE_NS, DepartureError, Departures, LoadShape, RateError, RateSpec, TimeDistribution,
};
use ringroad_traffic::rate_meter::{RateMeter, TrafficRate, TrafficSnapshot};
use ringroad_traffic::rewrite::{AddressRewrite, PrefixMap};
use ringroad_wire::mac::Mac;
use serde::Serialize;

use crate::failure::Failure;
use crate::options::{Global, PortSizeArgs, RunLimits};
use crate::output::Output;
use crate::output::rates::{grouped, reconnections, totals};
use crate::port_wait::Idleness;
use crate::run::{Progress, Run, pin};
use crate::verb::MainVerb;

/// Longest time without progress while the other side takes the last frames, ns.
const DRAIN_NS: u64 = 1_000_000_000;
/// Maximum number of frames handed over together when several are due.
const BURST_FRAMES: usize = 256;

/// Send the frames of a capture file with its timing
///
/// The first frame is sent immediately, each further frame at its time in the file, or at a rate. A frame with an
/// earlier timestamp than the previous frame's is sent right after that frame. The report shows how late frames were
/// handed over.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Capture file, pcap or pcapng; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Port to send from
    #[arg(value_name = "PORT")]
    port: String,
    /// Timing: original, max, or a multiple of the original speed such as 2 or 0.5x
    #[arg(long, default_value = "original", conflicts_with = "rate")]
    speed: Speed,
    /// Send at this rate instead: 1Mpps, 10Gbit, 50%@10G; a rate in bits counts each frame's own length
    #[arg(long)]
    rate: Option<RateSpec>,
    /// Send the file this many times; 0 repeats without end
    #[arg(long = "loop", value_name = "N", default_value_t = 1)]
    rounds: u64,
    /// Destination Ethernet address for every frame
    #[arg(long, value_name = "MAC", help_heading = "Frame")]
    dst_mac: Option<Mac>,
    /// Source Ethernet address for every frame
    #[arg(long, value_name = "MAC", help_heading = "Frame")]
    src_mac: Option<Mac>,
    /// Map IP addresses, as 10.0.0.0/8=198.18.0.0/8; checksums follow. May be given several times, the first match
    /// counts
    #[arg(long, value_name = "PREFIX=PREFIX", help_heading = "Frame")]
    map_ip: Vec<PrefixMap>,
    #[command(flatten)]
    sizes: PortSizeArgs,
    #[command(flatten)]
    limits: RunLimits,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Speed {
    Max,
    /// Multiple of the original speed, above 0.
    Multiple(f64),
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "original" => Ok(Self::Multiple(1.0)),
            "max" => Ok(Self::Max),
            _ => text
                .trim_end_matches('x')
                .parse()
                .ok()
                .filter(|multiple: &f64| multiple.is_finite() && *multiple > 0.0)
                .map(Self::Multiple)
                .ok_or_else(|| "write original, max, or a number above 0 such as 2 or 0.5x".to_owned()),
        }
    }
}

/// Due times of frames, ns after the start.
#[derive(Debug)]
struct Schedule {
    departures: Departures,
    /// Multiple of the original speed; `None` for a rate or maximum speed.
    multiple: Option<f64>,
    /// Timestamp of the previous frame in this round.
    last_timestamp_ns: Option<u64>,
    /// Number of frames, and time between the first and the last frame of this round, for the gap before the next
    /// round.
    frames: u64,
    span_ns: f64,
    backwards: u64,
}

impl Schedule {
    fn new(rate: Option<RateSpec>, speed: Speed) -> Result<Self, RateError> {
        let multiple = match (rate, speed) {
            (Some(_), _) | (None, Speed::Max) => None,
            (None, Speed::Multiple(multiple)) => Some(multiple),
        };
        let rate = rate.unwrap_or(RateSpec::Max);
        // Mean length and catch-up limit have no effect: a frame is sent at its own time, however late.
        let departures = Departures::new(&rate, &LoadShape::Constant, 0.0, 1.0, u32::MAX, 0)?;
        Ok(Self { departures, multiple, last_timestamp_ns: None, frames: 0, span_ns: 0.0, backwards: 0 })
    }

    /// Returns the due time of a frame with this timestamp and length (without FCS); `None` means immediately.
    fn due_ns(&mut self, timestamp_ns: u64, len: usize) -> Option<u64> {
        let last = self.last_timestamp_ns.replace(timestamp_ns);
        self.backwards += u64::from(last.is_some_and(|last| timestamp_ns < last));
        self.frames += 1;
        if let (Some(multiple), Some(last)) = (self.multiple, last) {
            let gap_ns = timestamp_ns.saturating_sub(last) as f64 / multiple;
            self.departures.postpone(gap_ns);
            self.span_ns += gap_ns;
        }
        let paced = self.multiple.is_some() || self.departures.intended_fps().is_some();
        let due_ns = paced.then(|| self.departures.next_due_ns());
        self.departures.depart(len);
        due_ns
    }

    /// Begins the file again, a mean gap after its last frame.
    fn next_round(&mut self) {
        if self.frames > 1 {
            self.departures.postpone(self.span_ns / (self.frames - 1) as f64);
        }
        (self.last_timestamp_ns, self.frames, self.span_ns) = (None, 0, 0.0);
    }
}

/// Counters of sent frames.
#[derive(Debug, Default, Serialize)]
struct Summary {
    port: String,
    frames: u64,
    /// Bytes, without FCS.
    bytes: u64,
    seconds: f64,
    rate: TrafficRate,
    rounds: u64,
    /// Frames too long for the port.
    too_long_frames: u64,
    /// Frames that the file contains only in part; that part is sent.
    truncated_frames: u64,
    /// Frames with an earlier timestamp than the previous frame's.
    backwards_timestamps: u64,
    /// Frames that found the ring full.
    waited_frames: u64,
    /// Slots with frames that the other side did not take.
    unsent_slots: u64,
    #[serde(skip_serializing_if = "Reconnections::is_none")]
    reconnections: Reconnections,
    /// Delay between the due time and the hand-over of frames, ns. No frame is handed over early.
    #[serde(skip_serializing_if = "Option::is_none")]
    timing_error: Option<TimeDistribution>,
}

/// State of the replay.
struct Player<'a> {
    port: &'a mut Port,
    run: &'a Run,
    progress: &'a mut Progress,
    rewrite: AddressRewrite,
    /// Buffer for a frame with its new addresses.
    rewritten: Vec<u8>,
    schedule: Schedule,
    timing: DepartureError,
    /// Due times of the frames that are not handed over yet.
    held: Vec<u64>,
    unpaced_held: usize,
    last_ns: u64,
    sent: Summary,
}

impl MainVerb for ReplayArgs {
    const EXAMPLES: &str = "\
ringroad replay capture.pcap vale0:a --speed 2
ringroad replay capture.pcap vale0:a --loop 10 --rate 1Gbit --map-ip 10.0.0.0/8=198.18.0.0/8";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        pin(self.limits.cpu.first().copied())?;
        let mut reader = CaptureReader::open(&self.file)?;
        let mut port = self.sizes.open(&self.port, global, &self.limits)?;
        let run = Run::start(&self.limits)?;
        output.ready(&[port.info()])?;
        let mut progress = Progress::new(output, &self.limits, "sent");
        let mut player = Player {
            port: &mut port,
            run: &run,
            progress: &mut progress,
            rewrite: AddressRewrite {
                source: self.src_mac,
                destination: self.dst_mac,
                ip: self.map_ip.clone(),
            },
            rewritten: Vec::new(),
            schedule: Schedule::new(self.rate, self.speed)?,
            timing: DepartureError::default(),
            held: Vec::with_capacity(BURST_FRAMES),
            unpaced_held: 0,
            last_ns: 0,
            sent: Summary::default(),
        };
        let ended = player.play(&mut reader, self.rounds);
        // Frames read before an error of the file are still sent.
        let ended = player.hand_over().and(drain(player.port, &run)).and(ended);
        let summary = player.into_summary();
        progress.finish();
        output.result(&summary, text)?;
        ended
    }
}

impl Player<'_> {
    fn play(&mut self, reader: &mut CaptureReader, rounds: u64) -> Result<(), Failure> {
        loop {
            while let Some(frame) = reader.next_frame()? {
                let due_ns = self.schedule.due_ns(frame.timestamp_ns, frame.bytes.len());
                if !self.await_time(due_ns)? {
                    return Ok(());
                }
                let taken = if self.rewrite.is_empty() {
                    self.put(frame.bytes, due_ns)?
                } else {
                    let mut bytes = std::mem::take(&mut self.rewritten);
                    bytes.clear();
                    bytes.extend_from_slice(frame.bytes);
                    self.rewrite.apply(&mut bytes);
                    let taken = self.put(&bytes, due_ns)?;
                    self.rewritten = bytes;
                    taken
                };
                if !taken {
                    return Ok(());
                }
                if (frame.bytes.len() as u64) < u64::from(frame.original_len) {
                    self.sent.truncated_frames += 1;
                }
            }
            self.sent.rounds += 1;
            let empty = self.schedule.frames == 0;
            if self.sent.rounds == rounds || empty {
                return Ok(());
            }
            reader.rewind()?;
            self.schedule.next_round();
        }
    }

    /// Waits for a frame's due time. Returns `false` if the run ends first.
    fn await_time(&mut self, due_ns: Option<u64>) -> Result<bool, Failure> {
        let mut now_ns = self.run.now_ns();
        if due_ns.is_some_and(|due_ns| due_ns > now_ns) || self.held.len() + self.unpaced_held >= BURST_FRAMES
        {
            self.hand_over()?;
            now_ns = self.run.now_ns();
        }
        loop {
            if self.run.is_over(now_ns) {
                return Ok(false);
            }
            self.progress.update(now_ns, self.sent.frames, self.sent.bytes)?;
            let left_ns = due_ns.unwrap_or(0).saturating_sub(now_ns);
            match left_ns {
                0 => return Ok(true),
                1..AWAKE_NS => std::hint::spin_loop(),
                _ => {
                    self.port.check()?;
                    std::thread::sleep(
                        Duration::from_nanos(left_ns - AWAKE_NS).min(self.run.wait_limit(now_ns)),
                    );
                }
            }
            now_ns = self.run.now_ns();
        }
    }

    /// Writes a frame into the ring, and waits for room. Returns `false` if the run ends first.
    fn put(&mut self, bytes: &[u8], due_ns: Option<u64>) -> Result<bool, Failure> {
        if bytes.len() > self.port.info().max_frame_bytes {
            self.sent.too_long_frames += 1;
            return Ok(true);
        }
        let mut waited = false;
        loop {
            if self.port.tx().send(bytes)? {
                break;
            }
            self.sent.waited_frames += u64::from(!waited);
            waited = true;
            self.hand_over()?;
            let now_ns = self.run.now_ns();
            if self.run.is_over(now_ns) {
                return Ok(false);
            }
            // A long frame may need more slots than this wait provides; then the loop repeats until enough are free.
            self.port.wait(Interest::Tx, Some(self.run.wait_limit(now_ns)))?;
        }
        match due_ns {
            Some(due_ns) => self.held.push(due_ns),
            None => self.unpaced_held += 1,
        }
        self.sent.frames += 1;
        self.sent.bytes += bytes.len() as u64;
        Ok(true)
    }

    /// Passes the frames in the ring to the other side, and records how late they are.
    fn hand_over(&mut self) -> Result<(), Failure> {
        self.port.tx().sync()?;
        if self.held.len() + self.unpaced_held == 0 {
            return Ok(());
        }
        self.last_ns = self.run.now_ns();
        for due_ns in self.held.drain(..) {
            self.timing.record(due_ns as f64, self.last_ns as f64);
        }
        self.unpaced_held = 0;
        Ok(())
    }

    fn into_summary(self) -> Summary {
        let Summary { frames, bytes, .. } = self.sent;
        let mut meter = RateMeter::new(TrafficSnapshot::default());
        meter.update(TrafficSnapshot { frames, bytes, now_ns: self.last_ns });
        let timing = self.timing.report();
        Summary {
            port: self.port.info().name.clone(),
            seconds: self.last_ns as f64 / 1e9,
            rate: meter.overall(),
            backwards_timestamps: self.schedule.backwards,
            unsent_slots: u64::from(self.port.tx().pending()),
            reconnections: self.port.reconnections(),
            timing_error: (timing.frames > 0).then_some(timing.lateness),
            ..self.sent
        }
    }
}

/// Syncs until the other side has taken every slot, or has taken none for [`DRAIN_NS`].
fn drain(port: &mut Port, run: &Run) -> Result<(), Failure> {
    let mut pending = u64::MAX;
    let mut progress_ns = run.now_ns();
    let mut idleness = Idleness::default();
    loop {
        port.sync()?;
        let left: u64 = port.queues().iter_mut().map(|queue| u64::from(queue.tx().pending())).sum();
        let now_ns = run.now_ns();
        if left < pending {
            (pending, progress_ns) = (left, now_ns);
            idleness.busy();
        }
        if left == 0 || now_ns - progress_ns > DRAIN_NS {
            return Ok(());
        }
        if idleness.is_long() {
            // A short sleep: a port wakes its program when one slot is returned, not when the last slot is.
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn text(summary: &Summary) -> String {
    let mut lines = totals(&summary.port, summary.frames, summary.bytes, summary.seconds, &summary.rate);
    if let Some(error) = &summary.timing_error {
        lines.push(format!(
            "  behind the schedule by {:.0} ns on average, {} ns at the 99th percentile, {} ns at most",
            error.mean_ns,
            grouped(error.p99_ns),
            grouped(error.max_ns)
        ));
    }
    for (number, what) in [
        (summary.too_long_frames, "frames not sent: longer than the port carries"),
        (
            summary.truncated_frames,
            "frames sent truncated as in the file: it was captured with a short snapshot length",
        ),
        (summary.backwards_timestamps, "frames with an earlier timestamp than the frame before them"),
        (summary.waited_frames, "frames found the ring full and waited"),
        (summary.unsent_slots, "slots left in the ring: the other side did not take them"),
    ] {
        if number > 0 {
            lines.push(format!("  {} {what}", grouped(number)));
        }
    }
    lines.extend(reconnections(&summary.reconnections));
    lines.join("\n")
}

#[cfg(test)]
mod tests;
