//! tcpdump reads Ringroad's captures, and Ringroad reads tcpdump's.
#![allow(clippy::unwrap_used, dead_code)]

mod in_memory;

use std::io::Write;
use std::process::{Command, Stdio};

use in_memory::{Frame, capture_of, read};
use ringroad_capture::CaptureFormat;
use ringroad_test_needs::has_program;

/// Broadcast frames of an experimental EtherType, 60 bytes and more, at odd nanoseconds.
fn frames() -> Vec<Frame> {
    (0..200_u64)
        .map(|n| {
            let mut bytes = vec![0xff; 12];
            bytes.extend([0x88, 0xb5]);
            bytes.resize(60 + n as usize, n as u8);
            let original_len = bytes.len() as u32;
            Frame { timestamp_ns: 1_700_000_000_000_000_000 + n * 1_000_000_007, bytes, original_len }
        })
        .collect()
}

fn tcpdump(arguments: &[&str], input: Vec<u8>) -> Vec<u8> {
    let mut tcpdump = Command::new("tcpdump")
        .args(["-r", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = tcpdump.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = tcpdump.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn tcpdump_prints_our_frames_at_their_nanosecond() {
    if !has_program("tcpdump") {
        return;
    }
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let arguments = ["-n", "-tt", "-e", "--time-stamp-precision=nano"];
        let printed = tcpdump(&arguments, capture_of(format, 0, &frames()));
        let printed = String::from_utf8(printed).unwrap();
        let lines: Vec<&str> = printed.lines().filter(|line| line.contains("ethertype")).collect();
        assert_eq!(lines.len(), frames().len());
        for (line, frame) in lines.iter().zip(frames()) {
            let (seconds, ns) = (frame.timestamp_ns / 1_000_000_000, frame.timestamp_ns % 1_000_000_000);
            assert!(line.starts_with(&format!("{seconds}.{ns:09} ")), "{format}: {line}");
            assert!(line.contains(&format!("length {}", frame.original_len)), "{format}: {line}");
        }
    }
}

#[test]
fn captures_of_tcpdump_are_read() {
    if !has_program("tcpdump") {
        return;
    }
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        for (precision, unit_ns) in [("nano", 1), ("micro", 1000)] {
            let precision = format!("--time-stamp-precision={precision}");
            let written = tcpdump(&["-w", "-", &precision], capture_of(format, 0, &frames()));
            let (read, error) = read(&written, usize::MAX);
            assert!(error.is_none());
            let mut expected = frames();
            for frame in &mut expected {
                frame.timestamp_ns -= frame.timestamp_ns % unit_ns;
            }
            assert_eq!(read, expected);
        }
    }
}

#[test]
fn tcpdump_reads_frames_cut_by_the_snapshot_length() {
    if !has_program("tcpdump") {
        return;
    }
    let capture = capture_of(CaptureFormat::PcapNg, 64, &frames());
    let written = tcpdump(&["-w", "-"], capture);
    let (read, _) = read(&written, usize::MAX);
    assert_eq!((read.len(), read[199].bytes.len(), read[199].original_len), (200, 64, 259));
}
