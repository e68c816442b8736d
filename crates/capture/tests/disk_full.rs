//! A full disk loses only frames that did not fit.
#![allow(clippy::unwrap_used, dead_code)]

mod in_memory;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use in_memory::drain;
use ringroad_capture::{CaptureError, CaptureFormat, CaptureReader, CaptureWriter};

const FORMATS: [(CaptureFormat, &str); 2] =
    [(CaptureFormat::Pcap, "full.pcap"), (CaptureFormat::PcapNg, "full.pcapng")];

#[test]
fn a_device_without_space_fails_the_capture_at_once() {
    let error = CaptureWriter::create("/dev/full", CaptureFormat::Pcap, 0).unwrap_err();
    assert!(matches!(error, CaptureError::Write { frames: 0, .. }));
    let text = error.to_string();
    assert!(text.contains("/dev/full") && text.contains("free some space"), "{text}");
}

#[test]
fn a_missing_folder_is_named() {
    let error = CaptureWriter::create("/nowhere/a.pcap", CaptureFormat::Pcap, 0).unwrap_err();
    assert!(matches!(error, CaptureError::Create { .. }));
    assert!(error.to_string().contains("/nowhere/a.pcap"));
}

/// A sink that takes `room` bytes in all, and at most 1000 bytes at once.
struct Small {
    room: usize,
    taken: in_memory::Sink,
}

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let len = bytes.len().min(self.room).min(1000);
        self.room -= len;
        self.taken.write(&bytes[..len])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_broken_streams_error_counts_its_whole_frames() {
    for (format, _) in FORMATS {
        let header = in_memory::capture_of(format, 0, &[]).len();
        for room in header..header + 500 {
            let taken = in_memory::Sink::default();
            let mut writer =
                CaptureWriter::from_write(Small { room, taken: taken.clone() }, format, 0).unwrap();
            for n in 0..10_u8 {
                writer.write_frame(u64::from(n), &vec![n; 60 + usize::from(n)], 60).unwrap();
            }
            let error = writer.flush().unwrap_err();
            let CaptureError::Write { frames, whole, .. } = error else { panic!("{error}") };
            let (read, cut) = in_memory::read(&taken.bytes(), usize::MAX);
            assert_eq!((frames, whole), (read.len() as u64, cut.is_none()), "{format} with room for {room}");
            assert_eq!(writer.written().frames, frames);
            let after = writer.write_frame(0, &[0; 60], 60);
            assert!(matches!(after, Err(CaptureError::Ended { .. })));
        }
    }
}

/// Writes frames until the disk that holds `folder` is full.
fn fill(folder: &Path) {
    for (format, name) in FORMATS {
        let path = folder.join(name);
        let mut writer = CaptureWriter::create(&path, format, 0).unwrap();
        let mut offered = 0_u64;
        let error = loop {
            assert!(offered < 100_000, "the disk does not fill");
            match writer.write_frame(offered, &offered.to_le_bytes().repeat(13), 1500) {
                Ok(()) => offered += 1,
                Err(error) => break error,
            }
        };
        let CaptureError::Write { frames, whole, ref source, .. } = error else { panic!("{error}") };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        assert!(whole && frames > 0 && frames < offered);
        assert!(error.to_string().contains(&format!("after {frames} whole frames, which the file holds")));

        let (read, error) = drain(CaptureReader::from_read(File::open(&path).unwrap()).unwrap());
        assert!(error.is_none(), "{error:?}");
        assert_eq!(read.len() as u64, frames);
        assert!(read.iter().zip(0..).all(|(frame, n)| frame.timestamp_ns == n));
        // The file is filled to the last whole record: there is no room for one more.
        assert_eq!(std::fs::metadata(&path).unwrap().len(), writer.written().bytes);
        drop(writer);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_full_disk_leaves_every_whole_frame_readable() {
    const FOLDER: &str = "CAPTURE_TEST_SMALL_DISK";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return fill(folder.as_ref());
    }
    // The small disk is mounted in a mount namespace of this test's own, and disappears with the namespace.
    let Some(mut in_mount_namespace) = ringroad_test_needs::mount_namespace() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mount = r#"mount -t tmpfs -o size=900k tmpfs "$CAPTURE_TEST_SMALL_DISK" && exec "$@""#;
    let output = in_mount_namespace
        .args(["sh", "-c", mount, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_full_disk_leaves_every_whole_frame_readable"])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
