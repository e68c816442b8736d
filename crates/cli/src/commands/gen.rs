//! `ringroad gen`: a generator of frames.

use std::net::Ipv4Addr;
use std::time::Duration;

use clap::Args;
use ringroad::{Interest, Port, TxRing, prefetch_write};
use ringroad_traffic::line_rate::FrameSize;
use ringroad_traffic::mac_address::MacAddress;
use ringroad_traffic::pacing::{DEFAULT_BACKLOG_FRAMES, OfferedLoad, Pacer, RateSpec};
use ringroad_traffic::rate_meter::{RateMeter, TrafficRate, TrafficSnapshot};
use ringroad_traffic::stream::{FrameFields, FrameStream, FrameTemplate, PayloadPattern, Variation};
use serde::Serialize;

use crate::arguments::{Global, PortSizes, RunLimits, count};
use crate::failure::Failure;
use crate::output::Output;
use crate::output::rates::{CONVENTION, frame_rate, grouped, traffic_rate};
use crate::port_wait::Idleness;
use crate::run::{Progress, Run, pin};

/// Slots whose buffers are fetched for writing ahead of the one being filled.
const PREFETCH_SLOTS: u32 = 8;
/// Closer to its time than this a frame is awaited awake: more than a sleep is usually late by.
const AWAKE_NS: u64 = 100_000;
/// Longest time without progress in which the other side takes the last frames.
const DRAIN_NS: u64 = 1_000_000_000;

/// Send frames at full speed or at a given rate
///
/// Frames are Ethernet, IPv4 and UDP with right checksums; each carries its number, which `recv --check` verifies. A
/// frame size counts the 4 bytes of FCS, as standards do, although ports of memory carry none: a frame of 64 bytes
/// takes 60 in its slot. Rates in bit/s count L1 bits, as line rate does: frame with FCS, preamble and gap, 84 bytes
/// for a frame of 64; say L2 for frames with FCS alone.
#[derive(Debug, Args)]
pub(crate) struct Gen {
    /// Port to send from
    #[arg(value_name = "PORT")]
    port: String,
    /// Frame size in bytes, FCS included; in the slot 4 less
    #[arg(long, value_name = "BYTES", default_value = "64")]
    size: FrameSize,
    /// Offered rate: max, 1Mpps, 10Gbit, 1GbitL2, 50%@10G
    #[arg(long, default_value = "max")]
    rate: RateSpec,
    /// End after so many frames, such as 1000000 or 1M
    #[arg(long, value_name = "N", value_parser = count)]
    count: Option<u64>,
    /// Most frames per sync
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    burst: u32,
    /// Destination Ethernet address
    #[arg(long, value_name = "MAC", default_value_t = FrameFields::default().destination, help_heading = "Frame")]
    dst_mac: MacAddress,
    /// Source Ethernet address
    #[arg(long, value_name = "MAC", default_value_t = FrameFields::default().source, help_heading = "Frame")]
    src_mac: MacAddress,
    /// Source IPv4 address
    #[arg(long, value_name = "IP", default_value_t = FrameFields::default().ipv4_source, help_heading = "Frame")]
    src_ip: Ipv4Addr,
    /// Destination IPv4 address
    #[arg(long, value_name = "IP", default_value_t = FrameFields::default().ipv4_destination, help_heading = "Frame")]
    dst_ip: Ipv4Addr,
    /// Source UDP port, of the first flow
    #[arg(long, value_name = "N", default_value_t = FrameFields::default().udp_source_port, help_heading = "Frame")]
    src_port: u16,
    /// Destination UDP port
    #[arg(long, value_name = "N", default_value_t = FrameFields::default().udp_destination_port, help_heading = "Frame")]
    dst_port: u16,
    /// Flows, told apart by their UDP source port
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Frame")]
    flows: u32,
    /// Let flows have source Ethernet addresses of their own too
    #[arg(long, help_heading = "Frame")]
    flow_macs: bool,
    /// Send frames without numbers, which costs less
    #[arg(long, help_heading = "Frame")]
    no_sequence: bool,
    #[command(flatten)]
    sizes: PortSizes,
    #[command(flatten)]
    limits: RunLimits,
}

/// What was sent.
#[derive(Debug, Serialize)]
struct Summary {
    port: String,
    /// Frames that the other side took.
    frames: u64,
    /// Their bytes, without FCS.
    bytes: u64,
    seconds: f64,
    /// Traffic from the first frame until the last was handed over.
    rate: TrafficRate,
    size_bytes: u32,
    intended_rate: RateSpec,
    /// Frames per second meant; absent for "max".
    #[serde(skip_serializing_if = "Option::is_none")]
    intended_fps: Option<f64>,
    offered: OfferedLoad,
    /// Frames that were due and found the ring full.
    waited_frames: u64,
    /// Frames handed over that the other side did not take.
    unsent_frames: u64,
}

/// Account of frames that find the ring full, each counted once.
#[derive(Debug, Default)]
struct Waiting {
    now: u64,
    total: u64,
}

impl Waiting {
    #[inline]
    fn after(&mut self, due: u32, sent: u32) {
        let left = u64::from(due - sent);
        let known = self.now.saturating_sub(u64::from(sent));
        self.total += left.saturating_sub(known);
        self.now = left;
    }
}

impl Gen {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let mut stream = FrameStream::new(self.template()?, 0);
        pin(self.limits.cpu.first().copied())?;
        let mut port = self.sizes.open(&self.port, global)?;
        let slot_bytes = port.tx().buffer_bytes().min(65535) as usize;
        if self.size.slot_bytes() > slot_bytes {
            return Err(Failure::new(
                format!("frames of {} bytes do not fit buffers of {slot_bytes}", self.size.slot_bytes()),
                "choose larger buffers with --buf-size, or a smaller --size",
            ));
        }
        output.ready(&[port.info()])?;
        let run = Run::start(&self.limits)?;
        let mut pacer = Pacer::new(&self.rate, self.size, DEFAULT_BACKLOG_FRAMES, 0)?;
        let mut progress = Progress::new(output, &self.limits, "sent");
        let mut waiting = Waiting::default();
        let ended = self.send(&mut port, &mut stream, &mut pacer, &mut waiting, &run, &mut progress);
        let end_ns = run.now_ns();
        let offered = pacer.offered_load(end_ns);
        let ended = ended.and_then(|()| drain(&mut port, &run));
        progress.finish();
        let unsent_frames: u64 = port.queues().iter_mut().map(|queue| u64::from(queue.tx().pending())).sum();
        let frames = offered.sent_frames.saturating_sub(unsent_frames);
        let bytes = frames * self.size.slot_bytes() as u64;
        let mut meter = RateMeter::new(TrafficSnapshot::default());
        meter.update(TrafficSnapshot { frames, bytes, now_ns: end_ns });
        let summary = Summary {
            port: port.info().name.clone(),
            frames,
            bytes,
            seconds: end_ns as f64 / 1e9,
            rate: meter.overall(),
            size_bytes: self.size.bytes(),
            intended_rate: self.rate,
            intended_fps: self.rate.frame_rate_fps(self.size)?,
            offered,
            waited_frames: waiting.total,
            unsent_frames,
        };
        output.result(&summary, text)?;
        ended
    }

    fn template(&self) -> Result<FrameTemplate, Failure> {
        let fields = FrameFields {
            destination: self.dst_mac,
            source: self.src_mac,
            ipv4_source: self.src_ip,
            ipv4_destination: self.dst_ip,
            udp_source_port: self.src_port,
            udp_destination_port: self.dst_port,
            payload: PayloadPattern::default(),
        };
        let variation = Variation {
            sequence_numbers: !self.no_sequence,
            flows: self.flows,
            flows_in_source_address: self.flow_macs,
        };
        Ok(FrameTemplate::new(&fields, self.size, variation)?)
    }

    fn send(
        &self,
        port: &mut Port,
        stream: &mut FrameStream,
        pacer: &mut Pacer,
        waiting: &mut Waiting,
        run: &Run,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let slot_bytes = self.size.slot_bytes() as u64;
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut sent = 0u64;
        let queues = port.queues().len();
        let mut turn = 0;
        let mut idleness = Idleness::default();
        while left > 0 {
            let now_ns = run.now_ns();
            if run.is_over(now_ns) {
                break;
            }
            progress.look(now_ns, sent, sent * slot_bytes)?;
            let due = pacer.due(now_ns, self.burst).min(u32::try_from(left).unwrap_or(u32::MAX));
            if due == 0 {
                rest_until(pacer.next_due_ns().unwrap_or(now_ns), now_ns, run);
                continue;
            }
            let Some(queue) = port.queues().get_mut(turn) else { break };
            turn = (turn + 1) % queues;
            let filled = fill(queue.tx(), stream, due);
            queue.tx().sync()?;
            pacer.record_sent(filled);
            waiting.after(due, filled);
            sent += u64::from(filled);
            left -= u64::from(filled);
            if filled > 0 {
                idleness.busy();
            } else if idleness.is_long() {
                port.wait(Interest::Tx, Some(run.wait_limit(now_ns)))?;
            }
        }
        Ok(())
    }
}

/// Sleeps while `due_ns` is far, and comes back to look when it is near.
fn rest_until(due_ns: u64, now_ns: u64, run: &Run) {
    let far_ns = due_ns.saturating_sub(now_ns).saturating_sub(AWAKE_NS);
    if far_ns > 0 {
        std::thread::sleep(Duration::from_nanos(far_ns).min(run.wait_limit(now_ns)));
    } else {
        std::hint::spin_loop();
    }
}

/// Fills up to `most` slots where they lie and gives them away.
#[inline]
fn fill(tx: &mut TxRing, stream: &mut FrameStream, most: u32) -> u32 {
    let available = tx.available();
    let batch = available.min(most);
    for offset in 0..PREFETCH_SLOTS.min(batch) {
        tx.prefetch_address(offset).into_iter().for_each(prefetch_write);
    }
    for offset in 0..batch {
        if offset + PREFETCH_SLOTS < available
            && let Some(address) = tx.prefetch_address(offset + PREFETCH_SLOTS)
        {
            prefetch_write(address);
        }
        let frame = stream.frame();
        let len = tx.buffer(offset).write(frame);
        tx.set(offset, len as u16, 0);
    }
    tx.advance(batch);
    batch
}

/// Syncs until the other side has taken every slot, or has taken none for a while.
pub(super) fn drain(port: &mut Port, run: &Run) -> Result<(), Failure> {
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
            // A port wakes its program when a slot comes back, not when the last one has: look again soon.
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn text(summary: &Summary) -> String {
    let mut lines = vec![
        format!(
            "{}: {} frames of {} bytes in {:.3} s: {}",
            summary.port,
            grouped(summary.frames),
            summary.size_bytes,
            summary.seconds,
            traffic_rate(&summary.rate)
        ),
        format!("  {CONVENTION}"),
    ];
    if let Some(intended_fps) = summary.intended_fps {
        lines.push(format!(
            "  offered {} of {} meant ({}); {} frames skipped for being late",
            frame_rate(summary.offered.sent_fps()),
            frame_rate(intended_fps),
            summary.intended_rate,
            grouped(summary.offered.skipped_frames),
        ));
    }
    lines.push(format!("  {} frames found the ring full and waited", grouped(summary.waited_frames)));
    if summary.unsent_frames > 0 {
        lines.push(format!(
            "  {} more frames were left in the ring: nobody took them",
            grouped(summary.unsent_frames)
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use ringroad::Embedded;
    use ringroad_traffic::stream::read_sequence;

    use super::*;

    #[test]
    fn a_frame_that_waits_is_counted_once() {
        let mut waiting = Waiting::default();
        for (due, sent) in [(10, 10), (10, 4), (10, 0), (10, 6), (10, 10), (3, 0)] {
            waiting.after(due, sent);
        }
        // 6 wait; 4 more come; 6 of those 10 go and the rest follows; 3 wait at the end.
        assert_eq!(waiting.total, 6 + 4 + 3);
    }

    #[test]
    fn slots_are_filled_with_frames_in_order_and_never_more_than_there_are() {
        let pipe = Embedded::new();
        let (mut near, mut far) = (pipe.open("x{1@slots=16").unwrap(), pipe.open("x}1").unwrap());
        let template =
            FrameTemplate::new(&FrameFields::default(), FrameSize::MIN, Variation::default()).unwrap();
        let mut stream = FrameStream::new(template, 0);
        assert_eq!(fill(near.tx(), &mut stream, 10), 10);
        assert_eq!(fill(near.tx(), &mut stream, 10), 5);
        near.tx().sync().unwrap();
        assert_eq!(far.rx().sync().unwrap(), 15);
        for number in 0..15 {
            let mut frame = [0; 60];
            assert_eq!(far.rx().frame(number).read(&mut frame), 60);
            assert_eq!(read_sequence(&frame), Some(u64::from(number)));
        }
    }
}
