//! `ringroad sze2 dump`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ringroad_sze2::card::metadata::FrameInfo;
use ringroad_sze2::client::{CardClient, Wanted};
use ringroad_sze2::segment::{HEADER_BYTES, SegmentHeader, parse};
use ringroad_traffic::header::HexBytes;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;
use crate::run::SignalFlag;

/// Bytes of a frame in an output line.
const LINE_BYTES: usize = 16;
/// Longest time until a signal is noticed while nothing arrives.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Print the segments of a channel, or of a file
///
/// For a card it subscribes a receive channel and prints segments until Ctrl-C. A file is a piece of a buffer that
/// begins with a segment, as --save writes it.
#[derive(Debug, Args)]
pub(super) struct Dump {
    /// Path of a card's socket, or of a file with segments
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// Receive channel of the card
    #[arg(long, value_name = "N", default_value_t = 0)]
    channel: u16,
    /// Stop after this number of segments
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print this number of bytes of each frame
    #[arg(long, value_name = "N", default_value_t = 64)]
    bytes: usize,
    /// Also write the segments to a file, unchanged
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// A segment in the output.
#[derive(Debug, Serialize)]
struct Told {
    position: u64,
    segment_bytes: usize,
    metadata_bytes: usize,
    timestamp_ns: Option<u64>,
    interface: Option<u16>,
    frame_bytes: usize,
    frame: HexBytes,
}

/// Output of segments.
struct Printer<'a> {
    dump: &'a Dump,
    output: &'a Output,
    save: Option<File>,
    printed: u64,
}

impl Dump {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let create = |path: &PathBuf| File::create(path).map_err(|error| failed("creating", path, &error));
        let save = self.save.as_ref().map(create).transpose()?;
        let mut printer = Printer { dump: self, output, save, printed: 0 };
        let kind =
            std::fs::metadata(&self.source).map_err(|error| failed("examining", &self.source, &error))?;
        if kind.file_type().is_socket() { self.of_card(&mut printer) } else { self.of_file(&mut printer) }
    }

    fn of_file(&self, printer: &mut Printer<'_>) -> Result<(), Failure> {
        let data = std::fs::read(&self.source).map_err(|error| failed("reading", &self.source, &error))?;
        let mut rest = data.as_slice();
        loop {
            let position = data.len() - rest.len();
            let before = rest;
            match parse(&mut rest) {
                Ok(None) => return Ok(()),
                Ok(Some(_)) if printer.is_enough() => return Ok(()),
                Ok(Some(_)) => {
                    let taken = before.get(..before.len() - rest.len()).unwrap_or_default();
                    printer.print(position as u64, taken)?;
                }
                Err(error) => {
                    let location = format!("{}, byte {position:#x}: {error}", self.source.display());
                    return Err(Failure::new(
                        location,
                        "the file must begin with a segment, and contain whole segments",
                    ));
                }
            }
        }
    }

    fn of_card(&self, printer: &mut Printer<'_>) -> Result<(), Failure> {
        let stop = SignalFlag::on_signals()?;
        let mut card = CardClient::open(&self.source, "ringroad sze2 dump")?;
        let mask = 1u32.checked_shl(self.channel.into()).unwrap_or(0);
        if mask == 0 || card.subscribe(mask, 0)?.0 != mask {
            let has = card.info().receive_channels;
            let source = self.source.display();
            return Err(Failure::new(
                format!("channel {} of {source} is another program's, or not one of its {has}", self.channel),
                format!("ringroad sze2 status {source} shows whose"),
            ));
        }
        card.start()?;
        printer.output.note(&format!("channel {}: Ctrl-C ends", self.channel));
        let wanted = Wanted { receive: mask, ..Wanted::default() };
        while !stop.is_set() && !printer.is_enough() {
            card.wait(&wanted, Some(CHECK_INTERVAL))?;
            let Some(reader) = card.reader(self.channel) else { break };
            loop {
                let position = reader.position();
                let taken = reader
                    .take()
                    .map_err(|fault| Failure::new(format!("channel {}: {fault}", self.channel), ""))?;
                let Some(segment) = taken.filter(|_| !printer.is_enough()) else { break };
                let mut bytes = vec![0; segment.occupied_bytes()];
                segment.whole().read(&mut bytes);
                printer.print(position, &bytes)?;
            }
            reader.release_all();
            card.publish_received(self.channel);
        }
        Ok(())
    }
}

fn failed(step: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{step} {}: {error}", path.display()), "")
}

impl Printer<'_> {
    fn is_enough(&self) -> bool {
        self.dump.count.is_some_and(|count| self.printed >= count)
    }

    /// Prints the segment that consists of all `bytes`.
    fn print(&mut self, position: u64, bytes: &[u8]) -> Result<(), Failure> {
        let mut rest = bytes;
        let Ok(Some(segment)) = parse(&mut rest) else { return Ok(()) };
        let header = bytes.first_chunk::<HEADER_BYTES>().map(|header| SegmentHeader::from_bytes(*header));
        let info = FrameInfo::from_bytes(segment.metadata);
        let shown = segment.frame.get(..self.dump.bytes.min(segment.frame.len())).unwrap_or_default();
        let told = Told {
            position,
            segment_bytes: header.map_or(0, |header| header.segment_bytes.into()),
            metadata_bytes: segment.metadata.len(),
            timestamp_ns: info.map(|info| info.timestamp_ns),
            interface: info.map(|info| info.interface),
            frame_bytes: segment.frame.len(),
            frame: HexBytes(shown.to_vec()),
        };
        self.output.result(&told, text)?;
        if let (Some(file), Some(path)) = (&mut self.save, &self.dump.save) {
            file.write_all(bytes).map_err(|error| failed("writing", path, &error))?;
        }
        self.printed += 1;
        Ok(())
    }
}

fn text(told: &Told) -> String {
    let mut text = format!(
        "{:#010x}  segment of {} bytes, {} of metadata, frame of {}",
        told.position, told.segment_bytes, told.metadata_bytes, told.frame_bytes
    );
    if let (Some(time), Some(interface)) = (told.timestamp_ns, told.interface) {
        let _ = write!(
            text,
            ", at {}.{:09} s on interface {interface}",
            time / 1_000_000_000,
            time % 1_000_000_000
        );
    }
    for (number, line) in told.frame.0.chunks(LINE_BYTES).enumerate() {
        let bytes: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let letters: String =
            line.iter().map(|&byte| if byte.is_ascii_graphic() { char::from(byte) } else { '.' }).collect();
        let _ = write!(text, "\n    {:04x}  {:<47}  {letters}", number * LINE_BYTES, bytes.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_printed_with_its_bytes() {
        let told = Told {
            position: 0x48,
            segment_bytes: 33,
            metadata_bytes: 12,
            timestamp_ns: Some(1_700_000_000_000_000_042),
            interface: Some(0),
            frame_bytes: 17,
            frame: HexBytes(b"0123456789abcdef\x01".to_vec()),
        };
        assert_eq!(
            text(&told),
            "0x00000048  segment of 33 bytes, 12 of metadata, frame of 17, at 1700000000.000000042 s on interface 0\n    \
             0000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n    \
             0010  01                                               ."
        );
        assert_eq!(serde_json::json!(told)["frame"], "3031323334353637383961626364656601");
    }
}
