//! Frames behind a virtio-net header (`struct virtio_net_hdr`, linux/virtio_net.h) in the slots of a ring. The header
//! may lie in slots of its own.
#![allow(unsafe_code)]

use ringroad_port::batch::{Batch, FrameMeta};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::offload::{LONG_VIRTIO_HEADER_BYTES, Unfinished, VIRTIO_HEADER_BYTES};
use ringroad_ring::datapath_end::{RxPutEnd, TxTakeEnd};
use ringroad_ring::layout::{MAX_FRAGMENTS, slot_flags::MORE_FRAGMENTS};
use ringroad_ring::violation::RingViolation;

use super::queue::{put_gathered, slot_bytes};

/// Takes one frame behind a header of `header_bytes` bytes, at most [`LONG_VIRTIO_HEADER_BYTES`]. The header is read
/// once and is not passed on as a part of the frame: the batch has its content. Returns `Ok(false)` if there is no
/// whole frame or no room in the batch.
pub(super) fn take_frame_behind_header(
    take: &mut TxTakeEnd,
    batch: &mut Batch,
    header_bytes: usize,
) -> Result<bool, RingViolation> {
    if !batch.has_room(MAX_FRAGMENTS) {
        return Ok(false);
    }
    let before = batch.fragment_count();
    let (mut slots, mut header_slots) = (0, 0);
    let (mut header, mut read) = ([0; LONG_VIRTIO_HEADER_BYTES], 0);
    let mut first_flags = 0;
    let outcome = loop {
        let taken = match take.take() {
            Ok(Some(taken)) => taken,
            Ok(None) => break Ok(false),
            Err(violation) => break Err(violation),
        };
        slots += 1;
        if slots == 1 {
            first_flags = taken.slot.flags();
        }
        let own = taken.bytes.read(header.get_mut(read..header_bytes).unwrap_or(&mut []));
        read += own;
        let bytes = taken.bytes.skip(own);
        let more = taken.slot.flags() & MORE_FRAGMENTS;
        let is_first = batch.fragment_count() == before;
        if bytes.is_empty() && is_first && more != 0 {
            header_slots += 1;
        } else {
            // The program describes the frame in its first slot.
            let flags = if is_first { first_flags & !MORE_FRAGMENTS | more } else { taken.slot.flags() };
            // SAFETY: the queue keeps the region mapped, and the slot is not given back to the program before its
            // `release`.
            batch.push(unsafe { Fragment::new(&bytes, flags) }, is_first);
        }
        if more == 0 {
            break Ok(true);
        }
        if slots as usize == MAX_FRAGMENTS {
            take.stop(RingViolation::Fragments);
            break Err(RingViolation::Fragments);
        }
    };
    if outcome != Ok(true) {
        batch.truncate(before);
        if outcome != Err(RingViolation::Fragments) {
            take.put_back(slots);
        }
        return outcome;
    }
    for _ in 0..header_slots {
        batch.skip_slot();
    }
    let whole = read == header_bytes;
    // A frame that ends within its header is empty, and is dropped as too short.
    let unfinished = match header.first_chunk::<VIRTIO_HEADER_BYTES>() {
        Some(header) if whole => Unfinished::from_header(header),
        _ => Unfinished::default(),
    };
    batch.describe(FrameMeta { unfinished, ..FrameMeta::default() });
    Ok(true)
}

/// Puts a frame of a batch behind a header of `header_bytes` bytes, after the `used` slots that are already filled.
/// Returns the number of its slots.
pub(super) fn put_frame_behind_header(
    put: &mut RxPutEnd,
    batch: &Batch,
    frame: usize,
    used: u32,
    header_bytes: usize,
) -> Result<u32, DropCause> {
    let total = header_bytes + batch.frame_bytes(frame);
    let slots = total.div_ceil(slot_bytes(put)) as u16;
    let header = batch.meta(frame).unfinished.to_long_header(slots);
    // SAFETY: the header outlives the call, and nothing writes to it.
    let header = unsafe { Fragment::from_private(header.get(..header_bytes).unwrap_or(&[]), 0) };
    put_gathered(put, std::iter::once(&header).chain(batch.frame(frame)), total, used)
}

#[cfg(test)]
mod tests;
