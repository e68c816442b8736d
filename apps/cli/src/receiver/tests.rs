use ringroad::Embedded;
use ringroad_capture::{CaptureFormat, CaptureReader, CaptureWriter};
use ringroad_traffic::definition::StreamDefinition;
use ringroad_traffic::meter::ExpectedStreams;

use super::*;
use crate::options::{Global, RunLimits};
use crate::output::Output;

fn receive(
    receiver: &mut Receiver,
    port: &mut Port,
    limits: ReceiveLimits,
) -> (ReceiveSummary, Result<(), Failure>) {
    let run_limits = RunLimits::default();
    let output = Output::new(&Global { quiet: true, ..Global::default() });
    let run = Run::start(&run_limits).unwrap();
    let mut progress = Progress::new(&output, &run_limits, "received");
    receiver.receive(port, &run, limits, None, &mut progress)
}

fn count(count: u64) -> ReceiveLimits {
    ReceiveLimits { count: Some(count), idle_exit: None }
}

#[test]
fn a_frame_count_leaves_further_frames_in_the_ring() {
    let mut port = Port::open("null:size=100").unwrap();
    let mut receiver = Receiver::new(FrameUse::default());
    let (summary, ended) = receive(&mut receiver, &mut port, count(5000));
    assert_eq!(ended, Ok(()));
    assert_eq!((summary.frames, summary.bytes), (5000, 500_000));
    assert_eq!(summary.left_frames, u64::from(port.rx().available()));
    assert!(summary.left_frames > 0);
}

#[test]
fn test_frames_show_loss_duplicates_and_reordering() {
    let pipe = Embedded::new();
    let (mut near, mut far) = (pipe.open("x{1").unwrap(), pipe.open("x}1").unwrap());
    let mut stream = StreamDefinition::default().compile(0).unwrap();
    let frames: Vec<Vec<u8>> = (0..8).map(|_| stream.next_frame(0).to_vec()).collect();
    for number in [0, 1, 3, 4, 3, 7, 6] {
        assert!(near.tx().send(&frames[number]).unwrap());
    }
    assert!(near.tx().send(&[0xff; 60]).unwrap());
    near.tx().sync().unwrap();
    let meter = Meter::new(ExpectedStreams { streams: None, latency: true, start_ns: 0 }).unwrap();
    let mut receiver = Receiver::new(FrameUse {
        check: Some(Check::new(meter, &SessionClock::system())),
        ..FrameUse::default()
    });
    let (summary, _) = receive(&mut receiver, &mut far, count(8));
    let test_frames = summary.test_frames.unwrap();
    let total = test_frames.total.unwrap();
    assert_eq!((total.received, total.lost, total.duplicates, total.reordered), (7, 2, 1, 1));
    assert_eq!(test_frames.port.foreign_frames, 1);
}

#[test]
fn a_frame_over_several_slots_is_one_frame_in_the_capture() {
    let pipe = Embedded::new();
    let (mut near, mut far) = (pipe.open("x{1").unwrap(), pipe.open("x}1").unwrap());
    let long: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
    near.tx().send(&long).unwrap();
    near.tx().send(&[7; 60]).unwrap();
    near.tx().sync().unwrap();
    let (sink, source) = std::io::pipe().map(|(reader, writer)| (writer, reader)).unwrap();
    let capture = CaptureWriter::from_write(sink, CaptureFormat::PcapNg, 0).unwrap();
    let mut receiver = Receiver::new(FrameUse { capture: Some(capture.into()), ..FrameUse::default() });
    let (summary, ended) = receive(&mut receiver, &mut far, count(2));
    assert_eq!(ended, Ok(()));
    assert_eq!((summary.frames, summary.bytes), (2, 5060));
    receiver.take_capture().unwrap().flush().unwrap();
    let mut read = CaptureReader::from_read(source).unwrap();
    assert_eq!(read.next_frame().unwrap().unwrap().bytes, long);
    assert_eq!(read.next_frame().unwrap().unwrap().bytes, [7; 60]);
    assert!(read.next_frame().unwrap().is_none());
}

#[test]
fn frames_that_arrived_before_the_end_are_received() {
    let pipe = Embedded::new();
    let (mut near, mut far) = (pipe.open("x{1").unwrap(), pipe.open("x}1").unwrap());
    for len in [60, 5000, 61] {
        near.tx().send(&vec![7; len]).unwrap();
    }
    near.tx().sync().unwrap();
    let run_limits = RunLimits::default();
    let output = Output::new(&Global { quiet: true, ..Global::default() });
    let run = Run::start(&run_limits).unwrap();
    run.end();
    let mut receiver = Receiver::new(FrameUse::default());
    let mut progress = Progress::new(&output, &run_limits, "received");
    let (summary, ended) = receiver.receive(&mut far, &run, ReceiveLimits::default(), None, &mut progress);
    assert_eq!(ended, Ok(()));
    assert_eq!((summary.frames, summary.bytes, summary.left_frames), (3, 5121, 0));
}

#[test]
fn frames_beyond_the_count_are_reported_as_left_and_filtered_ones_do_not_count() {
    if ringroad_test_needs::installed_libpcap().is_none() {
        return;
    }
    let pipe = Embedded::new();
    let (mut near, mut far) = (pipe.open("x{1").unwrap(), pipe.open("x}1").unwrap());
    for len in [60, 100, 60, 101, 60, 5000, 60] {
        near.tx().send(&vec![7; len]).unwrap();
    }
    near.tx().sync().unwrap();
    let filter = Some(CaptureFilter::compile("greater 100").unwrap());
    let capture = CaptureWriter::from_write(std::io::sink(), CaptureFormat::Pcap, 0).unwrap();
    let mut receiver =
        Receiver::new(FrameUse { filter, capture: Some(capture.into()), ..FrameUse::default() });
    let (summary, ended) = receive(&mut receiver, &mut far, count(2));
    assert_eq!(ended, Ok(()));
    assert_eq!((summary.frames, summary.filtered_frames, summary.left_frames), (4, Some(2), 3));
    let mut capture = receiver.take_capture().unwrap();
    capture.flush().unwrap();
    assert_eq!((capture.begun(), capture.written().frames), (1, 2));
}

#[test]
fn a_receiver_ends_when_the_line_is_quiet_after_a_frame() {
    let pipe = Embedded::new();
    let (mut near, mut far) = (pipe.open("x{1").unwrap(), pipe.open("x}1").unwrap());
    near.tx().send(&[7; 60]).unwrap();
    near.tx().sync().unwrap();
    let limits = ReceiveLimits { count: None, idle_exit: Some(Duration::from_millis(5)) };
    let (summary, ended) = receive(&mut Receiver::new(FrameUse::default()), &mut far, limits);
    assert_eq!((summary.frames, ended), (1, Ok(())));
}

#[test]
fn a_failed_capture_ends_the_receiver_with_its_counts() {
    let capture = CaptureWriter::create("/dev/full", CaptureFormat::Pcap, 0);
    // /dev/full already refuses the header. A sink that closes later makes a later write fail.
    assert!(capture.is_err());
    let (source, sink) = std::io::pipe().unwrap();
    let capture = CaptureWriter::from_write(sink, CaptureFormat::Pcap, 0).unwrap();
    drop(source);
    let mut port = Port::open("null:size=1000").unwrap();
    let mut receiver = Receiver::new(FrameUse { capture: Some(capture.into()), ..FrameUse::default() });
    let (summary, ended) = receive(&mut receiver, &mut port, count(1_000_000));
    let failure = ended.unwrap_err();
    assert!(failure.message.contains("cannot write"), "{failure}");
    assert!(summary.frames > 0 && summary.frames < 1_000_000);
}
