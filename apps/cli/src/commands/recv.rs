//! `ringroad recv`: receive, count, check, capture.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ringroad_capture::{CaptureFiles, CaptureFilter, CaptureSummary, FileLimits};
use ringroad_generator::SessionClock;
use ringroad_traffic::meter::{ExpectedStreams, Meter, MeterSummary};

use super::r#gen::summary::{counts, delay};
use crate::failure::{Failure, VERDICT_FAIL};
use crate::number_parsers::{count, seconds};
use crate::options::{Global, PortSizeArgs, RunLimits};
use crate::output::Output;
use crate::output::rates::{grouped, reconnections, totals};
use crate::output::table;
use crate::port_drops::PortDrops;
use crate::receiver::{CaptureCounts, Check, FrameUse, ReceiveLimits, ReceiveSummary, Receiver};
use crate::run::{Progress, Run, pin};
use crate::verb::MainVerb;

/// Receive and count frames
///
/// Ends with --count, --duration, --idle-exit or Ctrl-C. Frames that arrived before the end are received. Frames left
/// in the ring after the end, or beyond --count, are reported, and so are drops at the port. Rates count from the first
/// frame to the last.
///
/// Exit status: 0; with --check 3 if frames were lost, duplicated or damaged, or no frame had a signature.
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    #[command(flatten)]
    pub(super) reception: ReceiveArgs,
    /// Measure the frames that `ringroad gen` sent: lost, duplicate, reordered, damaged, latency
    #[arg(long)]
    check: bool,
    /// Write the frames to this capture file: pcapng by its extension, else pcap; - is standard output
    #[arg(long, short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Keep at most this many bytes of each frame in the capture
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    snaplen: u32,
}

/// Arguments of both `recv` and `capture`.
#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// Port to receive from
    #[arg(value_name = "PORT")]
    pub(super) port: String,
    /// End after this many frames, such as 1000000 or 1M
    #[arg(long, value_name = "N", value_parser = count)]
    count: Option<u64>,
    /// End when no frame arrives for S seconds after the first one
    #[arg(long, value_name = "S", value_parser = seconds)]
    idle_exit: Option<Duration>,
    #[command(flatten)]
    sizes: PortSizeArgs,
    #[command(flatten)]
    limits: RunLimits,
}

impl MainVerb for RecvArgs {
    const EXAMPLES: &str = "ringroad recv eth0 --duration 5";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let check = self.check.then(check).transpose()?;
        let purpose = Purpose { check, snaplen_bytes: self.snaplen, ..Purpose::default() };
        self.reception.run(global, output, self.write.as_deref(), purpose)
    }
}

/// The processing of received frames besides counting.
#[derive(Debug, Default)]
pub(super) struct Purpose {
    pub(super) check: Option<Check>,
    pub(super) filter: Option<CaptureFilter>,
    pub(super) snaplen_bytes: u32,
    pub(super) file_limits: FileLimits,
}

impl ReceiveArgs {
    /// Receives frames, and writes them to `file` if given.
    pub(super) fn run(
        &self,
        global: &Global,
        output: &Output,
        file: Option<&Path>,
        Purpose { check, filter, snaplen_bytes, file_limits }: Purpose,
    ) -> Result<(), Failure> {
        pin(self.limits.cpu.first().copied())?;
        let output = &if file == Some(Path::new("-")) { output.beside_data() } else { output.clone() };
        let mut port = self.sizes.deep().open(&self.port, global, &self.limits)?;
        let capture = match file {
            Some(file) => Some(CaptureFiles::create(file, snaplen_bytes, file_limits)?),
            None => None,
        };
        let drops = PortDrops::start(global, &port.info().name);
        // The signals are watched before "ready" is printed, since a program that reads "ready" may end this one.
        let run = Run::start(&self.limits)?;
        output.ready(&[port.info()])?;
        let mut progress = Progress::new(output, &self.limits, "received");
        let mut receiver = Receiver::new(FrameUse { check, filter, capture });
        let limits = ReceiveLimits { count: self.count, idle_exit: self.idle_exit };
        let (mut summary, mut ended) =
            receiver.receive(&mut port, &run, limits, drops.as_ref(), &mut progress);
        summary.drops = drops.and_then(PortDrops::end);
        if let (Some(mut capture), Some(file)) = (receiver.take_capture(), file) {
            // A write error that has occurred is the cause to report; the writer has then cut the file back to whole
            // frames.
            if ended.is_ok() {
                ended = capture.flush().map_err(Failure::from);
            }
            let (begun, CaptureSummary { frames, bytes }) = (capture.begun(), capture.written());
            summary.capture =
                Some(CaptureCounts { file: file.display().to_string(), files: begun, frames, bytes });
        }
        output.result(&summary, text)?;
        ended?;
        match &summary.test_frames {
            Some(frames) if !is_good(frames) => Err(Failure::status(VERDICT_FAIL)),
            _ => Ok(()),
        }
    }
}

/// Whether all frames of all streams arrived exactly once and intact.
fn is_good(frames: &MeterSummary) -> bool {
    let MeterSummary { port, total, .. } = frames;
    let of_streams = total.as_ref();
    of_streams.is_some_and(|total| [total.lost, total.duplicates, total.corrupted, total.excess] == [0; 4])
        && port.corrupted_unattributed == 0
}

fn check() -> Result<Check, Failure> {
    let meter = Meter::new(ExpectedStreams { streams: None, latency: true, start_ns: 0 });
    Ok(Check::new(meter.map_err(|error| Failure::new(error.to_string(), ""))?, &SessionClock::new()))
}

fn text(summary: &ReceiveSummary) -> String {
    let mut lines = totals(&summary.port, summary.frames, summary.bytes, summary.seconds, &summary.rate);
    lines.extend(reconnections(&summary.reconnections));
    if let Some(test) = &summary.test_frames {
        let streams = &test.streams;
        for stream in streams.iter().filter(|_| streams.len() > 1).chain(&test.total) {
            let name = match stream.wire_streams.as_slice() {
                [number] => format!("stream {number}"),
                several => format!("{} streams", several.len()),
            };
            lines.push(format!("  {name}: {}", counts(stream)));
            lines.extend(delay(stream).map(|delay| format!("    {delay}")));
        }
        lines.push(format!(
            "  {} frames without signature, {} damaged, {} beyond the streams that are counted separately",
            grouped(test.port.foreign_frames),
            grouped(test.port.corrupted_unattributed),
            grouped(test.port.unknown_stream_frames),
        ));
    }
    if summary.left_frames > 0 {
        lines.push(format!("  {} more frames were in the ring at the end", grouped(summary.left_frames)));
    }
    if let Some(filtered) = summary.filtered_frames {
        lines.push(format!("  {} frames did not pass the filter", grouped(filtered)));
    }
    if let Some(drops) = summary.drops.as_ref().filter(|drops| !drops.is_empty()) {
        lines.push(format!("  dropped at the port meanwhile: {}", table::drops(drops)));
    }
    if let Some(CaptureCounts { file, files, frames, bytes }) = &summary.capture {
        let begun = if *files == 1 { String::new() } else { format!(" in {} files", grouped(*files)) };
        lines.push(format!("  {file}: {} frames, {} bytes{begun}", grouped(*frames), grouped(*bytes)));
    }
    lines.join("\n")
}
