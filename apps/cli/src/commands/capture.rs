//! `ringroad capture`: `recv` with capture files as its main purpose.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ringroad_capture::{CaptureFilter, FileLimits};

use super::recv::{Purpose, ReceiveArgs};
use crate::failure::Failure;
use crate::number_parsers::{count, seconds};
use crate::options::Global;
use crate::output::Output;
use crate::run::as_ns;
use crate::verb::MainVerb;

/// Write the frames that a port receives to a capture file, or to several in turn
///
/// Timestamps are in ns. Frames of a packet: port have the kernel's timestamps (the interface's with
/// packet:eth0@timestamps=hardware). At other ports all frames of a burst have the same time, that of their reception.
/// Ends with --count, --duration, --idle-exit or Ctrl-C. When the disk is full the file keeps all whole frames and the
/// exit status is 1. The summary reports how many frames the datapath dropped at the port meanwhile, and why, and how
/// many were in the ring after the end.
///
/// With --file-size or --file-seconds the next file has a number after its name, from 1. With --files N the numbers
/// begin with 0, and after N files the first is overwritten, so that the newest frames are kept.
///
/// For a live view: ringroad capture vale0:tap -w - | tcpdump -nr -
#[derive(Debug, Args)]
pub(crate) struct CaptureArgs {
    #[command(flatten)]
    reception: ReceiveArgs,
    /// Capture only frames that pass this filter, in tcpdump's language: pcap-filter(7). --count counts only these
    /// frames
    #[arg(value_name = "FILTER", help_heading = None::<&str>)]
    filter: Vec<String>,
    /// Capture file: pcapng by its extension, else pcap; - is standard output
    #[arg(long, short, value_name = "FILE", help_heading = "Capture")]
    write: PathBuf,
    /// Keep at most this many bytes of each frame
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Capture"
    )]
    snaplen: u32,
    /// Continue in another file before a file exceeds this size, such as 100M
    #[arg(long, value_name = "BYTES", value_parser = file_size, help_heading = "Capture")]
    file_size: Option<u64>,
    /// Continue in another file for frames that arrive S seconds or more after a file's first
    #[arg(long, value_name = "S", value_parser = seconds, help_heading = "Capture")]
    file_seconds: Option<Duration>,
    /// Keep the last N files
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Capture")]
    files: Option<u32>,
}

impl MainVerb for CaptureArgs {
    const EXAMPLES: &str = "\
# Look on at an interface: the host keeps its traffic
ringroad capture packet:eth0 -w - | tcpdump -nr -
# DNS only, and of that the last 10 files of 100 MB
ringroad capture vale0:look -w dns.pcap --file-size 100MB --files 10 udp port 53";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let file_limits = FileLimits {
            file_bytes: self.file_size,
            file_ns: self.file_seconds.map(as_ns),
            files: self.files,
        };
        let has_several = self.file_size.is_some() || self.file_seconds.is_some();
        if self.files.is_some() && !has_several {
            return Err(Failure::usage(
                "--files without --file-size and --file-seconds: one file takes all",
                "set when the next file begins, such as --file-size 100M",
            ));
        }
        if has_several && self.write == Path::new("-") {
            return Err(Failure::usage("standard output is one file", "give --write a name"));
        }
        let filter = match &self.filter[..] {
            [] => None,
            words => Some(CaptureFilter::compile(&words.join(" "))?),
        };
        let purpose = Purpose { filter, file_limits, snaplen_bytes: self.snaplen, ..Purpose::default() };
        self.reception.run(global, output, Some(&self.write), purpose)
    }
}

/// Parses a file size of at least 1 byte: `100M`, `100MB`, `2G`, powers of 1000.
fn file_size(text: &str) -> Result<u64, String> {
    let size = count(text.strip_suffix(['B', 'b']).unwrap_or(text)).ok().filter(|bytes| *bytes > 0);
    size.ok_or_else(|| "give bytes above 0, like 1000000, 100MB or 2G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_sizes_are_bytes_above_zero() {
        for (text, bytes) in [
            ("100MB", 100_000_000),
            ("100M", 100_000_000),
            ("2Gb", 2_000_000_000),
            ("5000", 5000),
            ("64kB", 64_000),
        ] {
            assert_eq!(file_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "-1", "B", "1.5", "M"] {
            assert!(file_size(text).is_err(), "{text}");
        }
    }
}
