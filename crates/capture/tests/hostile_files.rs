//! Damaged, foreign and hostile files: each fault is named, and all whole frames before it are delivered.
#![allow(clippy::unwrap_used, dead_code)]

mod in_memory;

use std::io::{self, Cursor, Read};

use in_memory::{Frame, capture_of, read};
use proptest::collection::vec;
use proptest::prelude::*;
use ringroad_capture::{CaptureError, CaptureFormat, CaptureReader, MAX_BLOCK_BYTES, MAX_FRAME_BYTES};

const FORMATS: [CaptureFormat; 2] = [CaptureFormat::Pcap, CaptureFormat::PcapNg];

/// Length of the section header and interface description that our writer makes, bytes.
const PCAPNG_HEADER_BYTES: usize = 60;
const PCAP_HEADER_BYTES: usize = 24;

fn frames(count: usize) -> Vec<Frame> {
    (0..count)
        .map(|n| Frame { timestamp_ns: n as u64, bytes: vec![n as u8; 14 + n], original_len: 1500 })
        .collect()
}

fn with_u32(mut capture: Vec<u8>, offset: usize, value: u32) -> Vec<u8> {
    capture[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    capture
}

/// A little-endian pcapng block.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = (12 + body.len() as u32).to_le_bytes();
    [&kind.to_le_bytes(), &len, body, &len].concat()
}

fn interface(linktype: u16, options: &[u8]) -> Vec<u8> {
    block(1, &[&linktype.to_le_bytes()[..], &[0; 6], options].concat())
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
    [&code.to_le_bytes(), &(value.len() as u16).to_le_bytes()[..], value, &padding].concat()
}

fn enhanced_packet(interface: u32, ticks: u64, bytes: &[u8]) -> Vec<u8> {
    let len = bytes.len() as u32;
    let mut body: Vec<u8> = [interface, (ticks >> 32) as u32, ticks as u32, len, len]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    body.extend_from_slice(bytes);
    body.resize(body.len().next_multiple_of(4), 0);
    block(6, &body)
}

fn section() -> Vec<u8> {
    capture_of(CaptureFormat::PcapNg, 0, &[])[..28].to_vec()
}

#[test]
fn a_file_cut_at_any_byte_gives_all_whole_frames_then_the_position_of_the_cut() {
    for format in FORMATS {
        let frames = frames(5);
        let capture = capture_of(format, 0, &frames);
        let ends: Vec<usize> = (0..=5).map(|n| capture_of(format, 0, &frames[..n]).len()).collect();
        for cut in 1..capture.len() {
            let (read, error) = read(&capture[..cut], 7);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(read, frames[..whole.saturating_sub(1)], "{format} cut at {cut}");
            let on_boundary = ends.contains(&cut) || format == CaptureFormat::PcapNg && cut == 28;
            match error {
                None => assert!(on_boundary, "{format} cut at {cut}"),
                Some(CaptureError::Truncated { at }) => {
                    assert!(!on_boundary, "{format} cut at {cut}");
                    assert_eq!(at.frames_before, read.len() as u64);
                    let record = match whole {
                        0 if format == CaptureFormat::PcapNg && cut > 28 => 28,
                        0 => 0,
                        whole => ends[whole - 1],
                    };
                    assert_eq!(at.offset_bytes, record as u64, "{format} cut at {cut}");
                }
                Some(other) => panic!("{format} cut at {cut}: {other}"),
            }
        }
    }
}

#[test]
fn files_of_other_formats_are_named() {
    let opened = |bytes: &[u8]| CaptureReader::from_read(Cursor::new(bytes.to_vec())).unwrap_err();
    assert!(matches!(opened(b""), CaptureError::Empty { .. }));
    assert!(matches!(opened(b"hi"), CaptureError::NotACapture { .. }));
    assert!(opened(b"\x7fELF rest").to_string().contains("begins with 7f 45 4c 46"));
    assert!(matches!(opened(&[0xd4, 0xc3]), CaptureError::Truncated { .. }));
    for (magic, command) in [
        (&[0x1f, 0x8b, 8, 0][..], "gunzip"),
        (&[0x1f, 0x8b], "gunzip"),
        (b"BZh91AY", "bunzip2"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "unzstd"),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0], "unxz"),
    ] {
        assert!(opened(magic).to_string().contains(command));
    }
}

#[test]
fn a_missing_file_is_named_in_the_error() {
    let error = CaptureReader::open("/nowhere/missing.pcap").unwrap_err();
    assert!(matches!(error, CaptureError::Open { .. }));
    assert!(error.to_string().contains("/nowhere/missing.pcap"));
}

#[test]
fn a_pcap_of_another_link_type_is_refused_with_its_number() {
    let capture = with_u32(capture_of(CaptureFormat::Pcap, 0, &frames(1)), 20, 113);
    let (read, error) = read(&capture, usize::MAX);
    assert!(read.is_empty());
    assert!(matches!(error, Some(CaptureError::LinkType { linktype: 113, .. })));
    assert!(error.unwrap().to_string().contains("link type 113 (Linux \"any\" device)"));
}

#[test]
fn the_frame_check_sequence_bits_of_the_link_type_are_no_link_type() {
    let capture = with_u32(capture_of(CaptureFormat::Pcap, 0, &frames(2)), 20, 0x2400_0001);
    assert_eq!(read(&capture, usize::MAX).0, frames(2));
}

#[test]
fn a_pcapng_interface_of_another_link_type_is_refused_when_it_has_a_frame() {
    let wlan = option(2, "wlan0\u{1b}[2J".as_bytes());
    let unused =
        [section(), interface(1, &[]), interface(105, &wlan), enhanced_packet(0, 5, &[1; 60])].concat();
    let (frames, error) = read(&unused, 3);
    assert_eq!((frames.len(), frames[0].timestamp_ns), (1, 5000));
    assert!(error.is_none());

    let used = [unused, enhanced_packet(1, 6, &[2; 60])].concat();
    let (frames, error) = read(&used, 3);
    assert_eq!(frames.len(), 1);
    let text = error.unwrap().to_string();
    assert!(text.contains("interface 1 (wlan0\\u{1b}[2J) has link type 105"), "{text}");
    assert!(text.contains("record 2,"), "{text}");
}

#[test]
fn other_versions_are_refused() {
    let mut capture = capture_of(CaptureFormat::Pcap, 0, &frames(1));
    capture[6] = 3;
    assert!(matches!(read(&capture, 9).1, Some(CaptureError::Version { major: 2, minor: 3, .. })));
    let mut capture = capture_of(CaptureFormat::PcapNg, 0, &frames(1));
    capture[12] = 2;
    assert!(matches!(read(&capture, 9).1, Some(CaptureError::Version { major: 2, minor: 0, .. })));
}

#[test]
fn a_record_longer_than_any_frame_is_refused_before_it_is_read() {
    for length in [MAX_FRAME_BYTES + 1, u32::MAX] {
        let capture = with_u32(capture_of(CaptureFormat::Pcap, 0, &frames(1)), PCAP_HEADER_BYTES + 8, length);
        let error = read(&capture, 50).1;
        assert!(matches!(error, Some(CaptureError::TooLong { length_bytes, .. }) if length_bytes == length));

        let capture = capture_of(CaptureFormat::PcapNg, 0, &frames(1));
        let error = read(&with_u32(capture, PCAPNG_HEADER_BYTES + 20, length), 50).1;
        assert!(matches!(error, Some(CaptureError::TooLong { length_bytes, .. }) if length_bytes == length));
    }
    let capture = capture_of(CaptureFormat::PcapNg, 0, &frames(1));
    let error = read(&with_u32(capture, PCAPNG_HEADER_BYTES + 4, MAX_BLOCK_BYTES + 4), 50).1;
    assert!(matches!(error, Some(CaptureError::TooLong { bound_bytes: MAX_BLOCK_BYTES, .. })));
}

#[test]
fn a_block_that_contradicts_itself_or_its_section_is_malformed() {
    let good = capture_of(CaptureFormat::PcapNg, 0, &frames(1));
    let end = good.len();
    for (what, capture) in [
        ("length of 0", with_u32(good.clone(), PCAPNG_HEADER_BYTES + 4, 0)),
        ("length not of four", with_u32(good.clone(), PCAPNG_HEADER_BYTES + 4, 35)),
        ("lengths differ", with_u32(good.clone(), end - 4, 44)),
        ("no such interface", with_u32(good.clone(), PCAPNG_HEADER_BYTES + 8, 1)),
        ("frame longer than its block", with_u32(good.clone(), PCAPNG_HEADER_BYTES + 20, 17)),
        ("block too short for a packet", [section(), interface(1, &[]), block(6, &[0; 16])].concat()),
        ("simple packet before any interface", [section(), block(3, &[0; 64])].concat()),
        (
            "simple packet longer than its block",
            [section(), interface(1, &[]), block(3, &[9, 0, 0, 0])].concat(),
        ),
        ("no byte order", with_u32(good.clone(), 8, 7)),
        ("interface block too short", [section(), block(1, &[0; 4])].concat()),
    ] {
        let error = read(&capture, 11).1;
        assert!(matches!(error, Some(CaptureError::Malformed { .. })), "{what}: {error:?}");
    }
}

#[test]
fn malformed_options_cost_no_frame() {
    let odd_options = [
        option(2, &[0xff, 0xfe]),
        option(9, &[12]),
        option(8, &[1]),
        option(14, &[1]),
        option(2988, &[0xff; 5]),
        vec![1, 0, 0xff, 0xff],
    ];
    let capture =
        [section(), interface(1, &odd_options.concat()), enhanced_packet(0, 7_000_000, &[3; 60])].concat();
    let (frames, error) = read(&capture, 13);
    assert!(error.is_none());
    assert_eq!((frames.len(), frames[0].timestamp_ns), (1, 7_000));
}

#[test]
fn unknown_blocks_of_any_length_are_skipped() {
    let long = vec![0xaa; 3 * MAX_BLOCK_BYTES as usize];
    let capture =
        [section(), interface(1, &[]), block(0x0bad, &long), block(5, &[]), enhanced_packet(0, 1, &[4; 60])];
    let (frames, error) = read(&capture.concat(), usize::MAX);
    assert!(error.is_none() && frames.len() == 1);

    let cut = [&capture[..2].concat()[..], &capture[2][..long.len() / 2]].concat();
    let Some(CaptureError::Truncated { at }) = read(&cut, usize::MAX).1 else { panic!("not truncated") };
    assert_eq!(at.offset_bytes, capture[..2].concat().len() as u64);
}

#[test]
fn a_flood_of_interfaces_is_stopped() {
    let capture = [section(), interface(1, &option(2, &[b'n'; 200])).repeat(70_000)].concat();
    let (frames, error) = read(&capture, usize::MAX);
    assert!(frames.is_empty());
    assert!(matches!(error, Some(CaptureError::Malformed { .. })));
}

/// A source that fails after its bytes, and is once interrupted by a signal.
struct Breaking {
    bytes: Cursor<Vec<u8>>,
    interrupted: bool,
}

impl Read for Breaking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.interrupted {
            self.interrupted = true;
            return Err(io::ErrorKind::Interrupted.into());
        }
        match self.bytes.read(into)? {
            0 => Err(io::Error::other("the disk is on fire")),
            read => Ok(read),
        }
    }
}

#[test]
fn a_read_error_follows_the_frames_before_it() {
    let bytes = Cursor::new(capture_of(CaptureFormat::Pcap, 0, &frames(3)));
    let reader = CaptureReader::from_read(Breaking { bytes, interrupted: false }).unwrap();
    let (read, error) = in_memory::drain(reader);
    assert_eq!(read, frames(3));
    assert!(error.unwrap().to_string().contains("the disk is on fire"));
}

proptest! {
    /// The checks of `in_memory::drain` hold for any input.
    #[test]
    fn random_bytes_behind_a_header_never_panic(
        format in 0_usize..2, bytes in vec(any::<u8>(), 0..400), piece in 1_usize..50
    ) {
        let capture = [capture_of(FORMATS[format], 0, &frames(2)), bytes].concat();
        let (in_pieces, _) = read(&capture, piece);
        prop_assert_eq!(&in_pieces[..2], &frames(2)[..]);
        prop_assert_eq!(in_pieces, read(&capture, usize::MAX).0);
    }

    #[test]
    fn changed_bytes_never_panic(
        format in 0_usize..2, changes in vec((0_usize..300, any::<u8>()), 1..8), piece in 1_usize..50
    ) {
        let mut capture = capture_of(FORMATS[format], 0, &frames(5));
        for (at, value) in changes {
            let len = capture.len();
            capture[at % len] = value;
        }
        prop_assert_eq!(read(&capture, piece).0, read(&capture, usize::MAX).0);
    }
}
