//! `ringroad recv`: receive, count, check, capture.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ringroad_capture::{CaptureFormat, CaptureWriter};
use ringroad_traffic::sequence::SequenceTracker;

use crate::arguments::{Global, PortSizes, RunLimits, count, seconds};
use crate::failure::Failure;
use crate::output::Output;
use crate::output::rates::{CONVENTION, grouped, traffic_rate};
use crate::receiver::{CaptureCounts, FrameUse, ReceiveLimits, ReceiveSummary, Receiver};
use crate::run::{Progress, Run, pin};

/// Receive and count frames
///
/// Ends with --count, --duration, --idle-exit or Ctrl-C. Rates count from the first frame to the last.
#[derive(Debug, Args)]
pub(crate) struct Recv {
    #[command(flatten)]
    pub(super) reception: Reception,
    /// Verify the numbers of frames that `ringroad gen` sent: lost, duplicate, reordered. They are reported; the exit
    /// status stays 0
    #[arg(long)]
    check: bool,
    /// Write the frames to this capture file: pcapng by its extension, else pcap; - is standard output
    #[arg(long, short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Keep at most so many bytes of each frame in the capture
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    snaplen: u32,
}

/// What `recv` and `capture` have in common.
#[derive(Debug, Args)]
pub(crate) struct Reception {
    /// Port to receive from
    #[arg(value_name = "PORT")]
    pub(super) port: String,
    /// End after so many frames, such as 1000000 or 1M
    #[arg(long, value_name = "N", value_parser = count)]
    count: Option<u64>,
    /// End when nothing came for S seconds after the first frame
    #[arg(long, value_name = "S", value_parser = seconds)]
    idle_exit: Option<Duration>,
    #[command(flatten)]
    sizes: PortSizes,
    #[command(flatten)]
    limits: RunLimits,
}

impl Recv {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let sequence = self.check.then(SequenceTracker::new);
        self.reception.run(global, output, sequence, self.write.as_deref(), self.snaplen)
    }
}

impl Reception {
    /// Receives, and writes to `file` where there is one.
    pub(super) fn run(
        &self,
        global: &Global,
        output: &Output,
        sequence: Option<SequenceTracker>,
        file: Option<&Path>,
        snaplen_bytes: u32,
    ) -> Result<(), Failure> {
        pin(self.limits.cpu.first().copied())?;
        let output = &if file == Some(Path::new("-")) { output.beside_data() } else { output.clone() };
        let mut port = self.sizes.open(&self.port, global)?;
        let capture = match file {
            Some(file) => Some(CaptureWriter::create(file, CaptureFormat::from_path(file), snaplen_bytes)?),
            None => None,
        };
        output.ready(&[port.info()])?;
        let run = Run::start(&self.limits)?;
        let mut progress = Progress::new(output, &self.limits, "received");
        let mut receiver = Receiver::new(FrameUse { sequence, capture });
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
        ended
    }
}

fn text(summary: &ReceiveSummary) -> String {
    let mut lines = vec![
        format!(
            "{}: {} frames, {} bytes in {:.3} s: {}",
            summary.port,
            grouped(summary.frames),
            grouped(summary.bytes),
            summary.seconds,
            traffic_rate(&summary.rate)
        ),
        format!("  {CONVENTION}"),
    ];
    if let Some(counts) = &summary.sequence {
        lines.push(format!(
            "  numbers checked: {} lost, {} duplicate, {} reordered, {} too late to tell; {} frames without number",
            grouped(counts.lost),
            grouped(counts.duplicates),
            grouped(counts.reordered),
            grouped(counts.stale),
            grouped(summary.unnumbered_frames.unwrap_or(0)),
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
