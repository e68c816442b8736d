//! Fuzz target: any bytes as frames after virtio-net headers that describe their open tasks. Finishing the frames ends,
//! stays within bounds, makes segments no longer than requested and not too many of them, and accounts for every frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringroad_datapath::finishing::Finisher;
use ringroad_port::batch::{Batch, FrameMeta};
use ringroad_port::frame::Fragment;
use ringroad_port::offload::{HEADER_ROOM_BYTES, MAX_SEGMENTS, Unfinished, VIRTIO_HEADER_BYTES};
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;

/// Messages in `data`: a byte with the number of repetitions that make the frame long, and two bytes with the length of
/// the following header and frame.
fn messages(mut data: &[u8]) -> Vec<(Unfinished, Vec<u8>)> {
    let mut messages = Vec::new();
    while let Some((&[repeats, low, high], rest)) = data.split_first_chunk()
        && messages.len() < 32
    {
        let (message, rest) = rest.split_at(usize::from(u16::from_le_bytes([low, high])).min(rest.len()));
        data = rest;
        let Some((header, frame)) = message.split_first_chunk::<VIRTIO_HEADER_BYTES>() else { continue };
        let mut long = frame.to_vec();
        for _ in 0..repeats {
            if long.len() + frame.len() > 66_000 {
                break;
            }
            long.extend_from_slice(frame);
        }
        messages.push((Unfinished::from_header(header), long));
    }
    messages
}

fuzz_target!(|data: &[u8]| {
    let messages = messages(data);
    let mut batch = Batch::new();
    batch.reset(256);
    let mut given = 0;
    for (unfinished, frame) in &messages {
        assert_eq!(Unfinished::from_header(&unfinished.to_header()), *unfinished);
        if !batch.has_room(64) {
            break;
        }
        // The length of the pieces may have any value: no result depends on it.
        let piece = 1 + usize::from(unfinished.to_header()[2]) * 8;
        let piece = piece.max(frame.len().div_ceil(64)).max(1);
        let last = frame.len().saturating_sub(1) / piece;
        let empty: [&[u8]; 1] = [&[]];
        let pieces: Vec<&[u8]> =
            if frame.is_empty() { empty.to_vec() } else { frame.chunks(piece).collect() };
        for (index, part) in pieces.into_iter().enumerate() {
            // SAFETY: the messages outlive the batch, and nothing writes to them.
            batch.push(
                unsafe { Fragment::from_private(part, if index < last { MORE_FRAGMENTS } else { 0 }) },
                index == 0,
            );
        }
        batch.describe(FrameMeta { unfinished: *unfinished, ..FrameMeta::default() });
        given += 1;
    }
    let longest = messages.iter().map(|(_, frame)| frame.len()).max().unwrap_or(0);
    let frames: Vec<u16> = (0..given).collect();
    for leaves_checksums in [false, true] {
        let mut delivered = 0;
        let finished = Finisher::default().finish(&batch, &frames, leaves_checksums, |finished, frames| {
            assert_eq!(frames.len(), finished.frames());
            delivered += frames.len() as u64;
            for &frame in frames {
                let frame = usize::from(frame);
                let left = finished.meta(frame).unfinished;
                assert!(left.is_nothing() || (leaves_checksums && left.is_internet_checksum()));
                let mut bytes = vec![0; finished.frame_bytes(frame)];
                let mut at = 0;
                let fragments = finished.frame(frame);
                for (index, fragment) in fragments.iter().enumerate() {
                    assert_eq!(fragment.has_more(), index + 1 < fragments.len());
                    at += fragment.bytes().read(&mut bytes[at..]);
                }
                assert!(at == bytes.len() && at <= longest.max(HEADER_ROOM_BYTES));
            }
        });
        let dropped = u64::from(finished.dropped.total());
        assert_eq!(u64::from(given) + finished.replicated, delivered + dropped);
        assert!(finished.replicated <= u64::from(given) * MAX_SEGMENTS as u64);
    }
});
