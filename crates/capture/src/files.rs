//! A capture in several files, one after the other, as tcpdump writes them (-C, -G, -W).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::CaptureError;
use crate::format::CaptureFormat;
use crate::writer::{CaptureSummary, CaptureWriter};

/// Limits at which a capture continues in another file. The default has no limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLimits {
    /// Greatest length of a file, bytes. A file with only one frame may be longer.
    pub file_bytes: Option<u64>,
    /// Time after the first frame of a file, ns, from which on frames go to the next file.
    pub file_ns: Option<u64>,
    /// Maximum number of files. After the last file, the first is overwritten.
    pub files: Option<u32>,
}

impl FileLimits {
    fn has_several(&self) -> bool {
        self.file_bytes.is_some() || self.file_ns.is_some()
    }
}

/// Writes frames to one file, or to several in turn.
///
/// The first file has the given name. Each further file has a number after that name, from 1 on. If
/// [`FileLimits::files`] bounds the number of files, numbers begin with 0 and have as many digits as the greatest. A
/// bound of 1 needs no number. These are tcpdump's names with `-C` and `-W`.
#[derive(Debug)]
pub struct CaptureFiles {
    path: PathBuf,
    limits: FileLimits,
    current: CaptureWriter,
    /// Number of files begun. An overwritten file counts each time.
    begun: u64,
    /// Content of the files before the current one.
    before: CaptureSummary,
    /// Time of the first frame of the current file, ns.
    first_ns: Option<u64>,
}

impl CaptureFiles {
    /// Creates the first file, as [`CaptureWriter::create`] does. Standard output (`-`) has no limits.
    ///
    /// # Errors
    /// Those of [`CaptureWriter::create`].
    pub fn create(path: &Path, snaplen_bytes: u32, limits: FileLimits) -> Result<Self, CaptureError> {
        let format = CaptureFormat::from_path(path);
        let first = CaptureWriter::create(name(path, limits, 0), format, snaplen_bytes)?;
        Ok(Self { path: path.to_owned(), limits, ..first.into() })
    }

    /// Writes a frame as [`CaptureWriter::write_frame`] does. If the current file is full, the frame goes to the next.
    ///
    /// # Errors
    /// Those of [`CaptureWriter::write_frame`] and [`CaptureWriter::create`].
    pub fn write_frame(
        &mut self,
        timestamp_ns: u64,
        bytes: &[u8],
        original_len: u32,
    ) -> Result<(), CaptureError> {
        if let Some(first_ns) = self.first_ns {
            let too_long = |most| self.current.bytes_with(bytes.len()) > most;
            let too_late = |most| timestamp_ns.saturating_sub(first_ns) >= most;
            if self.limits.file_bytes.is_some_and(too_long) || self.limits.file_ns.is_some_and(too_late) {
                self.next_file()?;
            }
        }
        self.current.write_frame(timestamp_ns, bytes, original_len)?;
        self.first_ns.get_or_insert(timestamp_ns);
        Ok(())
    }

    fn next_file(&mut self) -> Result<(), CaptureError> {
        self.current.flush()?;
        let path = name(&self.path, self.limits, self.begun);
        let next = CaptureWriter::create(path, self.current.format(), self.current.snaplen())?;
        self.before = self.written();
        self.current = next;
        self.begun += 1;
        self.first_ns = None;
        Ok(())
    }

    /// Writes the buffered frames of the current file, as [`CaptureWriter::flush`] does.
    ///
    /// # Errors
    /// Those of [`CaptureWriter::flush`].
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        self.current.flush()
    }

    /// Content of all files, including overwritten files, without buffered frames.
    #[must_use]
    pub fn written(&self) -> CaptureSummary {
        let CaptureSummary { frames, bytes } = self.current.written();
        CaptureSummary { frames: self.before.frames + frames, bytes: self.before.bytes + bytes }
    }

    /// Number of files begun, at least one.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun
    }
}

impl From<CaptureWriter> for CaptureFiles {
    /// Makes a capture in one file, without limits.
    fn from(current: CaptureWriter) -> Self {
        Self {
            path: PathBuf::new(),
            limits: FileLimits::default(),
            current,
            begun: 1,
            before: CaptureSummary::default(),
            first_ns: None,
        }
    }
}

/// The name of file number `number`, from 0.
fn name(path: &Path, limits: FileLimits, number: u64) -> PathBuf {
    let mut name = OsString::from(path);
    let (number, digits) = match limits.files {
        Some(files) if limits.has_several() => {
            let last = files.max(1) - 1;
            // A single file needs no number.
            (number % (u64::from(last) + 1), last.checked_ilog10().map_or(0, |log| log as usize + 1))
        }
        _ => (number, 0),
    };
    if number > 0 || digits > 0 {
        name.push(format!("{number:0digits$}"));
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::CaptureReader;

    /// Names of the files in a folder, each with the times of its frames.
    fn read(folder: &Path) -> Vec<(String, Vec<u64>)> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries
            .map(|path| {
                let mut reader = CaptureReader::open(&path).unwrap();
                let mut times = Vec::new();
                while let Some(frame) = reader.next_frame().unwrap() {
                    times.push(frame.timestamp_ns);
                }
                (path.file_name().unwrap().to_str().unwrap().to_owned(), times)
            })
            .collect();
        files.sort();
        files
    }

    fn write(
        folder: &Path,
        limits: FileLimits,
        frames: impl IntoIterator<Item = (u64, usize)>,
    ) -> CaptureFiles {
        let mut files = CaptureFiles::create(&folder.join("x.pcap"), 0, limits).unwrap();
        for (timestamp_ns, len) in frames {
            files.write_frame(timestamp_ns, &vec![0; len], len as u32).unwrap();
        }
        files.flush().unwrap();
        files
    }

    #[test]
    fn without_limits_there_is_one_file_of_that_name() {
        let folder = tempfile::tempdir().unwrap();
        let limits = FileLimits { files: Some(3), ..FileLimits::default() };
        let files = write(folder.path(), limits, (0..5).map(|number| (number, 100)));
        assert_eq!(read(folder.path()), [("x.pcap".to_owned(), (0..5).collect())]);
        assert_eq!((files.begun(), files.written().frames), (1, 5));
    }

    #[test]
    fn names_are_tcpdumps() {
        let folder = tempfile::tempdir().unwrap();
        let limits = FileLimits { file_ns: Some(10), ..FileLimits::default() };
        write(folder.path(), limits, [(5, 60), (14, 60), (15, 60), (31, 60), (2, 60)]);
        let names: Vec<_> = read(folder.path()).into_iter().collect();
        let file = |name: &str, times: &[u64]| (name.to_owned(), times.to_vec());
        assert_eq!(names, [file("x.pcap", &[5, 14]), file("x.pcap1", &[15]), file("x.pcap2", &[31, 2])]);

        let folder = tempfile::tempdir().unwrap();
        let limits = FileLimits { files: Some(11), ..limits };
        let files = write(folder.path(), limits, (0..12).map(|number| (10 * number, 60)));
        let names: Vec<_> = read(folder.path()).into_iter().map(|(name, times)| (name, times[0])).collect();
        assert_eq!(names[..2], [("x.pcap00".to_owned(), 110), ("x.pcap01".to_owned(), 10)]);
        assert_eq!(names[10], ("x.pcap10".to_owned(), 100));
        assert_eq!((names.len(), files.begun(), files.written().frames), (11, 12, 12));

        let folder = tempfile::tempdir().unwrap();
        let limits = FileLimits { files: Some(1), ..limits };
        let files = write(folder.path(), limits, [(0, 60), (10, 60)]);
        assert_eq!(read(folder.path()), [file("x.pcap", &[10])]);
        assert_eq!((files.begun(), files.written().frames), (2, 2));
    }

    proptest! {
        #[test]
        fn files_are_no_longer_than_agreed_and_nothing_is_missing_but_what_was_written_over(
            frames in prop::collection::vec((0u64..5, 0usize..400), 1..60),
            file_bytes in prop::option::of(100u64..3000),
            file_ns in prop::option::of(1u64..40),
            files in prop::option::of(1u32..20),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut now_ns = 0;
            let frames: Vec<_> = frames
                .into_iter()
                .map(|(gap, len)| {
                    now_ns += gap;
                    (now_ns, len)
                })
                .collect();
            let limits = FileLimits { file_bytes, file_ns, files };
            let written = write(folder.path(), limits, frames.iter().copied());
            let kept = read(folder.path());
            for (name, times) in &kept {
                let bytes = std::fs::metadata(folder.path().join(name)).unwrap().len();
                prop_assert!(times.len() <= 1 || file_bytes.is_none_or(|most| bytes <= most), "{name}: {bytes}");
                let span = times.last().unwrap_or(&0) - times.first().unwrap_or(&0);
                prop_assert!(file_ns.is_none_or(|most| span < most));
            }
            prop_assert_eq!(written.written().frames, frames.len() as u64);
            // The remaining files hold the last frames, in order of time.
            let mut times: Vec<_> = kept.iter().flat_map(|(_, times)| times).copied().collect();
            times.sort_unstable();
            let last: Vec<_> = frames.iter().skip(frames.len() - times.len()).map(|&(at, _)| at).collect();
            prop_assert_eq!(times, last);
            match files {
                Some(files) if limits.has_several() => {
                    prop_assert_eq!(kept.len() as u64, written.begun().min(files.into()));
                }
                _ => prop_assert_eq!(kept.len() as u64, written.begun()),
            }
        }
    }
}
