//! Written captures are read again, by Ringroad's reader and by another implementation. Captures of the other
//! implementation are read, too.
#![allow(clippy::unwrap_used, dead_code)]

mod in_memory;

use std::fs::File;
use std::io::Cursor;
use std::time::Duration;

use in_memory::{Frame, capture_of, drain, read};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapTsResolution, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::blocks::packet::PacketBlock;
use pcap_file::pcapng::blocks::section_header::SectionHeaderBlock;
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
use pcap_file::pcapng::blocks::unknown::UnknownBlock;
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, Endianness};
use proptest::collection::vec;
use proptest::prelude::*;
use ringroad_capture::{CaptureError, CaptureFormat, CaptureReader, CaptureWriter, MAX_FRAME_BYTES};

/// The last nanosecond that classic pcap can name.
const PCAP_END_NS: u64 = (1 << 32) * 1_000_000_000 - 1;

fn frames_until(end_ns: u64) -> impl Strategy<Value = Vec<Frame>> {
    let frame =
        (0..=end_ns, vec(any::<u8>(), 0..300), 0_u32..2000).prop_map(|(timestamp_ns, bytes, beyond)| Frame {
            timestamp_ns,
            original_len: bytes.len() as u32 + beyond,
            bytes,
        });
    vec(frame, 0..20)
}

fn frame(timestamp_ns: u64, len: usize) -> Frame {
    let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
    Frame { timestamp_ns, original_len: len as u32, bytes }
}

proptest! {
    #[test]
    fn pcap_round_trips(frames in frames_until(PCAP_END_NS), piece in 1_usize..5000) {
        let (read, error) = read(&capture_of(CaptureFormat::Pcap, 0, &frames), piece);
        prop_assert!(error.is_none());
        prop_assert_eq!(read, frames);
    }

    #[test]
    fn pcapng_round_trips(frames in frames_until(u64::MAX), piece in 1_usize..5000) {
        let (read, error) = read(&capture_of(CaptureFormat::PcapNg, 0, &frames), piece);
        prop_assert!(error.is_none());
        prop_assert_eq!(read, frames);
    }

    #[test]
    fn a_foreign_reader_reads_our_pcap(frames in frames_until(PCAP_END_NS)) {
        let capture = capture_of(CaptureFormat::Pcap, 0, &frames);
        let mut reader = PcapReader::new(Cursor::new(capture)).unwrap();
        prop_assert_eq!(reader.header().datalink, DataLink::ETHERNET);
        let mut read = Vec::new();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.unwrap();
            let timestamp_ns = packet.timestamp().as_nanos() as u64;
            read.push(Frame { timestamp_ns, original_len: packet.orig_len(), bytes: packet.data().to_vec() });
        }
        prop_assert_eq!(read, frames);
    }

    #[test]
    fn a_foreign_reader_reads_our_pcapng(frames in frames_until(u64::MAX)) {
        let capture = capture_of(CaptureFormat::PcapNg, 0, &frames);
        let mut reader = PcapNgReader::new(Cursor::new(capture)).unwrap();
        let mut read = Vec::new();
        while let Some(block) = reader.next_block() {
            if let (Block::EnhancedPacket(packet), _) = block.unwrap() {
                read.push(Frame {
                    timestamp_ns: packet.timestamp.as_nanos() as u64,
                    original_len: packet.original_len,
                    bytes: packet.data.to_vec(),
                });
            }
        }
        prop_assert_eq!(read, frames);
    }

    #[test]
    fn pcap_of_either_byte_order_and_resolution_is_read(
        frames in frames_until(PCAP_END_NS), big in any::<bool>(), micro in any::<bool>()
    ) {
        let endianness = if big { Endianness::Big } else { Endianness::Little };
        let (ts_resolution, unit_ns) =
            if micro { (PcapTsResolution::MicroSecond, 1000) } else { (PcapTsResolution::NanoSecond, 1) };
        let header = PcapHeader { endianness, ts_resolution, snaplen: 777, ..PcapHeader::default() };
        let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
        let mut expected = frames;
        for frame in &mut expected {
            let time = Duration::from_nanos(frame.timestamp_ns);
            writer.write_packet(&PcapPacket::new(time, frame.original_len, &frame.bytes).unwrap()).unwrap();
            frame.timestamp_ns -= frame.timestamp_ns % unit_ns;
        }
        let reader = CaptureReader::from_read(Cursor::new(writer.into_inner())).unwrap();
        prop_assert_eq!((reader.format(), reader.snaplen()), (CaptureFormat::Pcap, 777));
        let (read, error) = drain(reader);
        prop_assert!(error.is_none());
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn pcapng_sections_interfaces_and_packet_kinds_are_read(
        sections in vec((any::<bool>(), frames_until(PCAP_END_NS)), 1..4), piece in 1_usize..5000
    ) {
        let mut writer = None;
        let mut expected = Vec::new();
        for (big, frames) in sections {
            let endianness = if big { Endianness::Big } else { Endianness::Little };
            let header = SectionHeaderBlock { endianness, ..SectionHeaderBlock::default() };
            let writer = match &mut writer {
                None => writer.insert(PcapNgWriter::with_section_header(Vec::new(), header).unwrap()),
                Some(writer) => {
                    writer.write_pcapng_block(header).unwrap();
                    writer
                }
            };
            let nanoseconds = InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: 0,
                options: vec![
                    InterfaceDescriptionOption::IfName("port a".into()),
                    InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
                ],
            };
            writer.write_pcapng_block(nanoseconds).unwrap();
            writer.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 9000)).unwrap();
            for (kind, frame) in (0..4).cycle().zip(frames) {
                let timestamp = Duration::from_nanos(frame.timestamp_ns);
                let microseconds = Frame { timestamp_ns: frame.timestamp_ns / 1000 * 1000, ..frame.clone() };
                let data = (&frame.bytes).into();
                match kind {
                    0 => {
                        let comment = CommonOption::Comment("a comment".into());
                        writer.write_pcapng_block(EnhancedPacketBlock {
                            interface_id: 0,
                            timestamp,
                            original_len: frame.original_len,
                            data,
                            options: vec![EnhancedPacketOption::Common(comment)],
                        }).unwrap();
                        expected.push(frame);
                    }
                    1 => {
                        writer.write_pcapng_block(EnhancedPacketBlock {
                            interface_id: 1,
                            timestamp,
                            original_len: frame.original_len,
                            data,
                            options: vec![],
                        }).unwrap();
                        expected.push(microseconds);
                    }
                    2 => {
                        writer.write_pcapng_block(PacketBlock {
                            interface_id: 1,
                            drop_count: 3,
                            timestamp,
                            original_len: frame.original_len,
                            data,
                            options: vec![],
                        }).unwrap();
                        expected.push(microseconds);
                    }
                    _ => {
                        let original_len = frame.bytes.len() as u32;
                        writer.write_pcapng_block(SimplePacketBlock { original_len, data }).unwrap();
                        writer.write_pcapng_block(UnknownBlock::new(0x0bad_cafe, 0, &frame.bytes)).unwrap();
                        expected.push(Frame { timestamp_ns: 0, original_len, bytes: frame.bytes });
                    }
                }
            }
        }
        let (read, error) = read(&writer.unwrap().into_inner(), piece);
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert_eq!(read, expected);
    }
}

#[test]
fn more_frames_than_any_buffer_holds_come_back_in_order() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let frames: Vec<Frame> = (0..3000).map(|n| frame(n, 60 + n as usize % 1458)).collect();
        let (read, error) = read(&capture_of(format, 0, &frames), usize::MAX);
        assert!(error.is_none() && read == frames);
    }
}

#[test]
fn the_longest_frame_fits_and_longer_ones_are_cut_to_the_snapshot_length() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let whole = frame(1, MAX_FRAME_BYTES as usize);
        let longer = frame(2, MAX_FRAME_BYTES as usize + 5);
        let (read, error) = read(&capture_of(format, 0, &[whole.clone(), longer.clone()]), usize::MAX);
        assert!(error.is_none());
        assert_eq!(read[0], whole);
        assert_eq!(read[1].bytes.len(), MAX_FRAME_BYTES as usize);
        assert_eq!(read[1].original_len, MAX_FRAME_BYTES + 5);
    }
}

#[test]
fn the_snapshot_length_cuts_frames_and_keeps_their_original_length() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let capture = capture_of(format, 61, &[frame(7, 60), frame(8, 62)]);
        let reader = CaptureReader::from_read(Cursor::new(capture)).unwrap();
        assert_eq!((reader.format(), reader.snaplen()), (format, 61));
        let (read, _) = drain(reader);
        let lengths: Vec<_> = read.iter().map(|frame| (frame.bytes.len(), frame.original_len)).collect();
        assert_eq!(lengths, [(60, 60), (61, 62)]);
    }
}

#[test]
fn a_time_after_2106_is_refused_by_pcap_and_the_capture_continues() {
    let sink = in_memory::Sink::default();
    let mut writer = CaptureWriter::from_write(sink.clone(), CaptureFormat::Pcap, 0).unwrap();
    let late = writer.write_frame(PCAP_END_NS + 1, &[0; 60], 60);
    assert!(matches!(late, Err(CaptureError::Timestamp { .. })));
    writer.write_frame(PCAP_END_NS, &[1; 60], 60).unwrap();
    assert_eq!(writer.finish().unwrap().frames, 1);
    assert_eq!(read(&sink.bytes(), usize::MAX).0[0].timestamp_ns, PCAP_END_NS);
}

#[test]
fn a_file_is_overwritten_named_by_extension_and_read_again_after_rewind() {
    let folder = tempfile::tempdir().unwrap();
    for (name, format) in [
        ("a.pcap", CaptureFormat::Pcap),
        ("a.cap", CaptureFormat::Pcap),
        ("a", CaptureFormat::Pcap),
        ("a.pcapng", CaptureFormat::PcapNg),
        ("a.PcapNg", CaptureFormat::PcapNg),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, [0; 5000]).unwrap();
        assert_eq!(CaptureFormat::from_path(&path), format);
        let mut writer = CaptureWriter::create(&path, format, 0).unwrap();
        for n in 0..10 {
            writer.write_frame(n, &[n as u8; 60], 60).unwrap();
        }
        let summary = writer.finish().unwrap();
        assert_eq!(summary.bytes, std::fs::metadata(&path).unwrap().len());

        let mut reader = CaptureReader::open(&path).unwrap();
        assert_eq!(reader.format(), format);
        for _ in 0..3 {
            for n in 0..10 {
                assert_eq!(reader.next_frame().unwrap().unwrap().timestamp_ns, n);
            }
            assert!(reader.next_frame().unwrap().is_none());
            reader.rewind().unwrap();
        }
    }
}

#[test]
fn rewinding_a_stream_fails_with_an_error() {
    let capture = capture_of(CaptureFormat::Pcap, 0, &[frame(1, 60)]);
    let mut reader = CaptureReader::from_read(Cursor::new(capture)).unwrap();
    assert!(matches!(reader.rewind(), Err(CaptureError::NotRewindable { .. })));
}

#[test]
fn a_dropped_writer_leaves_its_frames_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dropped.pcap");
    let mut writer = CaptureWriter::create(&path, CaptureFormat::Pcap, 0).unwrap();
    writer.write_frame(1, &[0; 60], 60).unwrap();
    drop(writer);
    let (read, error) = drain(CaptureReader::from_read(File::open(&path).unwrap()).unwrap());
    assert!(error.is_none() && read.len() == 1);
}

#[test]
fn flushed_frames_can_be_read_while_the_capture_continues() {
    let sink = in_memory::Sink::default();
    let mut writer = CaptureWriter::from_write(sink.clone(), CaptureFormat::PcapNg, 0).unwrap();
    writer.write_frame(1, &[0; 61], 61).unwrap();
    assert_eq!((read(&sink.bytes(), 1).0.len(), writer.written().frames), (0, 0));
    writer.flush().unwrap();
    assert_eq!((read(&sink.bytes(), 1).0.len(), writer.written().frames), (1, 1));
}
