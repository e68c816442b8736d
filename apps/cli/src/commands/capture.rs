//! `ringroad capture`: `recv` with a file as its purpose.

use std::path::PathBuf;

use clap::Args;

use super::recv::Reception;
use crate::arguments::Global;
use crate::failure::Failure;
use crate::output::Output;

/// Write the frames that a port receives to a capture file Timestamps are in ns. A packet: port has the kernel's (or
/// the interface's, with packet:eth0@timestamps=hardware); other ports have the time of reception, one for all frames
/// of a burst. Ends with --count, --duration, --idle-exit or Ctrl-C. When the disk is full the file keeps all whole
/// frames and the exit status is 1. For a live view: ringroad capture vale0:tap -w - | tcpdump -nr -
#[derive(Debug, Args)]
pub(crate) struct Capture {
    #[command(flatten)]
    reception: Reception,
    /// Capture file: pcapng by its extension, else pcap; - is standard output
    #[arg(long, short, value_name = "FILE")]
    write: PathBuf,
    /// Keep at most this many bytes of each frame
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    snaplen: u32,
}

impl Capture {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        self.reception.run(global, output, None, Some(&self.write), self.snaplen)
    }
}
