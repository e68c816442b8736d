//! A capture file as a port. The port receives the file's frames, and writes frames delivered to it into another file.
//!
//! Trust: the input file is foreign, and the reader of [`ringroad_capture`] checks it. Reading and writing block on the
//! disk, so such a port belongs in an embedded datapath or on a worker with spare time.
#![allow(unsafe_code)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ringroad_capture::{CaptureError, CaptureFormat, CaptureReader, CaptureWriter};
use ringroad_control::guarded_file::{self, FilePurpose, GuardedFileError};
use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, Diagnose, FailedDirection, PortCapabilities, PortQueue, Sleep};
use ringroad_port::roles;

use crate::catalogue::port_kind::{NameTarget, OpenContext, OpenedBy, Planning, PortKind, Spelling};
use crate::device::{Device, DeviceError, DevicePlan, DeviceRole, DriverError};

/// Size of the memory for borrowed frames, bytes.
const ARENA_BYTES: usize = 1 << 20;
/// Maximum length of a frame that a slot can describe, bytes.
const MAX_FRAME_BYTES: usize = 65535;
/// Maximum length of a frame that is kept whole in output files, bytes.
const SNAPLEN_BYTES: u32 = 65535;

/// Ports of capture files.
pub(crate) const KINDS: &[PortKind] = &[PortKind {
    driver: "pcap",
    spelling: Spelling::Scheme("pcap"),
    form: "pcap:FILE",
    about: "the frames of a capture file (pcap, pcapng); `pcap:in=FILE,out=FILE` writes frames into another one, and either part alone will do",
    page: None,
    target: NameTarget::CaptureFiles,
    options: &[],
    access: OpenedBy::Program,
    plan,
    open,
}];

impl DriverError for CaptureError {}

/// A capture file that does not exist or is not safe to open.
#[derive(Debug, thiserror::Error)]
#[error("opening the capture file {}: {source}", path.display())]
struct UnusableFile {
    path: PathBuf,
    source: GuardedFileError,
}

impl DriverError for UnusableFile {}

fn plan(planning: &Planning<'_>) -> Result<DevicePlan, DeviceError> {
    let files = NamedFiles::read(planning.target).unwrap_or_default();
    let folder =
        |path: &Path| path.parent().filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_owned);
    let folder = files.output.as_deref().and_then(folder);
    for path in files.input.into_iter().chain(folder) {
        rustix::fs::stat(&path)
            .map_err(|errno| UnusableFile { path, source: GuardedFileError::System(errno) })?;
    }
    planning.queues_up_to(1, "pcap")
}

fn open(context: OpenContext<'_>) -> Result<Device, DeviceError> {
    let files = NamedFiles::read(context.target).unwrap_or_default();
    let queue = PcapQueue::open(&files, context.role)?;
    let part = |word: &str, path: &Option<PathBuf>| {
        path.as_ref().map(|path| format!("{word} {}", path.display())).unwrap_or_default()
    };
    let mode = format!("{} {}", part("from", &files.input), part("to", &files.output));
    let capabilities = PortCapabilities {
        driver: "pcap",
        mode: mode.trim().to_owned(),
        max_frame_bytes: MAX_FRAME_BYTES as u32,
    };
    Ok(Device::new(vec![Box::new(queue)], capabilities))
}

/// Files in a name: `FILE`, `in=FILE,out=FILE`, `in=FILE` or `out=FILE`.
#[derive(Debug, Default)]
pub(crate) struct NamedFiles {
    /// File from which frames come.
    pub(crate) input: Option<PathBuf>,
    /// File to which frames go.
    pub(crate) output: Option<PathBuf>,
}

impl NamedFiles {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let file = |path: &str| match path {
            "" => Err("the file is missing".to_owned()),
            path => Ok(Some(PathBuf::from(path))),
        };
        if let Some(output) = text.strip_prefix("out=") {
            return Ok(Self { input: None, output: file(output)? });
        }
        match text.strip_prefix("in=").unwrap_or(text).split_once(",out=") {
            Some((input, output)) if text.starts_with("in=") => {
                Ok(Self { input: file(input)?, output: file(output)? })
            }
            _ => Ok(Self { input: file(text.strip_prefix("in=").unwrap_or(text))?, output: None }),
        }
    }

    pub(crate) fn map(self, f: impl Fn(PathBuf) -> PathBuf) -> Self {
        Self { input: self.input.map(&f), output: self.output.map(&f) }
    }
}

impl fmt::Display for NamedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part =
            |key: &str, path: &Option<PathBuf>| path.as_ref().map(|path| format!("{key}={}", path.display()));
        let parts: Vec<_> =
            [part("in", &self.input), part("out", &self.output)].into_iter().flatten().collect();
        f.write_str(&parts.join(","))
    }
}

/// The only queue of a capture-file port.
#[derive(Debug)]
struct PcapQueue {
    input: Option<CaptureReader>,
    output: Option<CaptureWriter>,
    arena: Vec<u8>,
    /// Number of fragments borrowed from the arena. It must not change while there are any.
    borrowed: usize,
    gathered: Vec<u8>,
    input_fault: Option<String>,
    output_fault: Option<String>,
}

impl PcapQueue {
    /// Opens the input file and creates the output file. The server of a switch has other privileges than the users who
    /// may write to the folders of the files, so it opens them as files at which users may have put links or pipes.
    fn open(files: &NamedFiles, role: DeviceRole) -> Result<Self, DeviceError> {
        let is_guarded = role == DeviceRole::SwitchPort;
        let guarded = |path: &Path, purpose| {
            guarded_file::open(path, purpose).map_err(|source| UnusableFile { path: path.to_owned(), source })
        };
        let read = |path: &PathBuf| -> Result<_, DeviceError> {
            Ok(match is_guarded {
                true => CaptureReader::from_file(guarded(path, FilePurpose::Read)?, path)?,
                false => CaptureReader::open(path)?,
            })
        };
        let write = |path: &PathBuf| -> Result<_, DeviceError> {
            let format = CaptureFormat::from_path(path);
            Ok(match is_guarded {
                true => {
                    CaptureWriter::in_file(guarded(path, FilePurpose::Replace)?, path, format, SNAPLEN_BYTES)?
                }
                false => CaptureWriter::create(path, format, SNAPLEN_BYTES)?,
            })
        };
        Ok(Self {
            input: files.input.as_ref().map(read).transpose()?,
            output: files.output.as_ref().map(write).transpose()?,
            arena: Vec::with_capacity(ARENA_BYTES),
            borrowed: 0,
            gathered: Vec::new(),
            input_fault: None,
            output_fault: None,
        })
    }

    /// Copies the next frame of the file into the arena; `None` at the end.
    fn read_frame(&mut self) -> Option<std::ops::Range<usize>> {
        let reader = self.input.as_mut()?;
        match reader.next_frame() {
            Ok(Some(frame)) => {
                let start = self.arena.len();
                let bytes = match frame.bytes.get(..MAX_FRAME_BYTES) {
                    Some(cut) if cut.len() < frame.bytes.len() => {
                        let len = frame.bytes.len();
                        self.input_fault.get_or_insert_with(|| {
                            format!("a frame of {len} bytes was cut to {MAX_FRAME_BYTES}, the most that a slot carries")
                        });
                        cut
                    }
                    _ => frame.bytes,
                };
                self.arena.extend_from_slice(bytes);
                Some(start..self.arena.len())
            }
            Ok(None) => {
                self.input = None;
                None
            }
            Err(error) => {
                self.input_fault.get_or_insert_with(|| error.to_string());
                self.input = None;
                None
            }
        }
    }
}

impl PortQueue for PcapQueue {
    fn receive(&mut self, batch: &mut Batch) {
        if self.borrowed != 0 {
            return;
        }
        self.arena.clear();
        while batch.has_room(1) && self.arena.len() + MAX_FRAME_BYTES <= ARENA_BYTES {
            let Some(range) = self.read_frame() else { break };
            let bytes = self.arena.get(range).unwrap_or(&[]);
            // SAFETY: the arena neither grows beyond its capacity, checked above, nor changes while a fragment of it is
            // borrowed, and it lives as long as the queue.
            let fragment = unsafe { Fragment::from_private(bytes, 0) };
            batch.push(fragment, true);
            self.borrowed += 1;
        }
    }

    fn release(&mut self, fragments: usize) {
        self.borrowed = self.borrowed.saturating_sub(fragments);
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery::default();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        for &frame in frames {
            self.gathered.clear();
            for fragment in batch.frame(usize::from(frame)) {
                let start = self.gathered.len();
                self.gathered.resize(start + fragment.len(), 0);
                if let Some(room) = self.gathered.get_mut(start..) {
                    fragment.bytes().read(room);
                }
            }
            let len = self.gathered.len() as u32;
            let written = match &mut self.output {
                Some(writer) => writer.write_frame(now_ns, &self.gathered, len),
                // A port without an output file accepts all frames, like a wire without a far end.
                None => Ok(()),
            };
            if let Err(error) = &written {
                self.output_fault.get_or_insert_with(|| error.to_string());
            }
            delivery.count(written.map(|()| u64::from(len)).map_err(|_| DropCause::WriteFailed));
        }
        delivery
    }

    roles! { sleeper: Sleep, diagnosis: Diagnose }
}

impl Sleep for PcapQueue {
    fn has_waiting(&mut self) -> bool {
        self.borrowed == 0 && self.input.is_some()
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        // Accepted frames must be on disk before an idle time.
        if sleeping
            && let Some(writer) = &mut self.output
            && let Err(error) = writer.flush()
        {
            self.output_fault.get_or_insert_with(|| error.to_string());
        }
    }
}

impl Diagnose for PcapQueue {
    fn failure(&self, way: FailedDirection) -> Option<String> {
        let input = || self.input_fault.clone().filter(|_| way == FailedDirection::Either);
        self.output_fault.clone().or_else(input)
    }
}
