//! `ringroad recv`: receive, count, check, capture.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ringroad_capture::{CaptureFormat, CaptureWriter};
use ringroad_generator::Clock;
use ringroad_traffic::meter::{Meter, MeterConfig, MeterSummary};

use super::r#gen::summary::{counts, delay};
use crate::arguments::{Global, PortSizes, RunLimits, count, seconds};
use crate::failure::{Failure, VERDICT_FAIL};
use crate::output::Output;
use crate::output::rates::{grouped, reconnections, totals};
use crate::port_argument::PortArgument;
use crate::receiver::{CaptureCounts, Check, FrameUse, ReceiveLimits, ReceiveSummary, Receiver};
use crate::run::{Progress, Run, pin};

/// Receive and count frames
///
/// Ends with --count, --duration, --idle-exit or Ctrl-C. Rates count from the first frame to the last.
///
/// Exit status: 0; with --check 3 where frames were lost, duplicated or damaged, or none with a signature came.
#[derive(Debug, Args)]
pub(crate) struct Recv {
    #[command(flatten)]
    pub(super) reception: Reception,
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
pub(crate) struct Reception {
    /// Port to receive from
    #[arg(value_name = "PORT", value_parser = PortArgument, hide_possible_values = true)]
    pub(super) port: String,
    /// End after this many frames, such as 1000000 or 1M
    #[arg(long, value_name = "N", value_parser = count)]
    count: Option<u64>,
    /// End when no frame came for S seconds after the first one
    #[arg(long, value_name = "S", value_parser = seconds)]
    idle_exit: Option<Duration>,
    #[command(flatten)]
    sizes: PortSizes,
    #[command(flatten)]
    limits: RunLimits,
}

impl Recv {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let check = self.check.then(check).transpose()?;
        self.reception.run(global, output, check, self.write.as_deref(), self.snaplen)
    }
}

impl Reception {
    /// Receives, and writes to `file` if one is given.
    pub(super) fn run(
        &self,
        global: &Global,
        output: &Output,
        check: Option<Check>,
        file: Option<&Path>,
        snaplen_bytes: u32,
    ) -> Result<(), Failure> {
        pin(self.limits.cpu.first().copied())?;
        let output = &if file == Some(Path::new("-")) { output.beside_data() } else { output.clone() };
        let mut port = self.sizes.open(&self.port, global, &self.limits)?;
        let capture = match file {
            Some(file) => Some(CaptureWriter::create(file, CaptureFormat::from_path(file), snaplen_bytes)?),
            None => None,
        };
        output.ready(&[port.info()])?;
        let run = Run::start(&self.limits)?;
        let mut progress = Progress::new(output, &self.limits, "received");
        let mut receiver = Receiver::new(FrameUse { check, capture });
        let limits = ReceiveLimits { count: self.count, idle_exit: self.idle_exit };
        let (mut summary, mut ended) = receiver.receive(&mut port, &run, limits, &mut progress);
        if let (Some(capture), Some(file)) = (receiver.take_capture(), file) {
            // After a write error the writer has cut the file back to whole frames; the first error is the cause.
            let written = capture.written();
            let finished = if ended.is_ok() { capture.finish() } else { Ok(written) };
            let written = finished.unwrap_or_else(|error| {
                ended = Err(error.into());
                written
            });
            summary.capture = Some(CaptureCounts::new(&file.display().to_string(), written));
        }
        output.result(&summary, text)?;
        ended?;
        match &summary.test_frames {
            Some(frames) if !is_good(frames) => Err(Failure::verdict(VERDICT_FAIL)),
            _ => Ok(()),
        }
    }
}

/// Whether all frames of all streams came, once and intact.
fn is_good(frames: &MeterSummary) -> bool {
    let MeterSummary { port, total, .. } = frames;
    let of_streams = total.as_ref();
    of_streams.is_some_and(|total| [total.lost, total.duplicates, total.corrupted, total.excess] == [0; 4])
        && port.corrupted_unattributed == 0
}

fn check() -> Result<Check, Failure> {
    let meter = Meter::new(MeterConfig { streams: None, latency: true, start_ns: 0 });
    Ok(Check::new(meter.map_err(|error| Failure::new(error.to_string(), ""))?, &Clock::new()))
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
    if let Some(capture) = &summary.capture {
        lines.push(format!(
            "  {}: {} frames, {} bytes",
            capture.file,
            grouped(capture.frames),
            grouped(capture.bytes)
        ));
    }
    lines.join("\n")
}
