//! `nmport_inject`: one frame, copied into a tx ring.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;

use ringroad_ring::layout::{MAX_FRAGMENTS, RingHeader, Slot, slot_flags};

use crate::abi::NmportDesc;
use crate::bound_rings::ring_offset;

/// Reads one field of a ring's header. The field is read once, because other processes write the header; the rest is
/// left alone.
macro_rules! field {
    ($ring:expr, $field:ident) => {{
        // SAFETY: the field is in the header of a mapped ring.
        let pointer = unsafe { &raw const (*$ring).$field };
        // SAFETY: the field is in the header of a mapped ring.
        unsafe { pointer.read_volatile() }
    }};
}

/// Copies a frame into the free slots of a ring, over as many as it needs. Returns `false` if there are too few.
///
/// # Safety
///
/// The ring and its buffers are mapped, and only this thread uses them; the frame can be read.
unsafe fn put(ring: *mut RingHeader, mut frame: *const u8, mut size: usize) -> bool {
    let (num_slots, buffer_bytes) = (field!(ring, num_slots), field!(ring, buffer_bytes));
    let (buffers_offset, offset_mask) = (field!(ring, buffers_offset), field!(ring, offset_mask));
    let (head, tail) = (field!(ring, head), field!(ring, tail));
    // SAFETY: the slots begin after the header.
    let slots = unsafe { ring.add(1) }.cast::<Slot>();
    let mut index = head;
    for _ in 0..MAX_FRAGMENTS {
        if index == tail || index >= num_slots {
            return false;
        }
        // SAFETY: the index is below the number of slots.
        let slot = unsafe { slots.add(index as usize) };
        // SAFETY: the slot is mapped, and the program owns it.
        let mut content = unsafe { slot.read() };
        let offset = content.ptr & offset_mask;
        let room = u64::from(buffer_bytes).saturating_sub(offset) as usize;
        let length = size.min(room).min(u16::MAX.into());
        let at = buffers_offset
            + i64::from(content.buffer) * i64::from(buffer_bytes)
            + offset.min(buffer_bytes.into()) as i64;
        // SAFETY: the slot names a buffer of the region, which the program owns.
        let buffer = unsafe { ring.byte_offset(at as isize) }.cast::<u8>();
        // SAFETY: `length` bytes are left of the frame and in the buffer.
        unsafe { ptr::copy_nonoverlapping(frame, buffer, length) };
        // SAFETY: at least `length` bytes of the frame are left.
        frame = unsafe { frame.add(length) };
        size -= length;
        content.len = length as u16;
        content.flags = if size > 0 { slot_flags::MORE_FRAGMENTS } else { 0 };
        // SAFETY: the slot is mapped, and the program owns it.
        unsafe { slot.write(content) };
        index = if index + 1 == num_slots { 0 } else { index + 1 };
        if size == 0 {
            // SAFETY: the header is mapped, and the program owns `cur`.
            unsafe { (*ring).cur = index };
            // SAFETY: the header is mapped, and the program owns `head`.
            unsafe { (*ring).head = index };
            return true;
        }
    }
    false
}

/// `nmport_inject`.
///
/// # Safety
///
/// `port` is an open port, and the frame can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_inject(port: *mut NmportDesc, frame: *const c_void, size: usize) -> c_int {
    // SAFETY: guaranteed by the caller.
    let port = unsafe { &mut *port };
    let [first, last] = port.tx_ring;
    if port.interface.is_null() || frame.is_null() || first > last {
        return 0;
    }
    let mut ring = port.current_tx_ring.clamp(first, last);
    for _ in first..=last {
        // SAFETY: the interface is mapped, and its table has the rings `first..=last`.
        let offset = unsafe { ring_offset(port.interface, ring.into()) };
        if offset != 0 {
            // SAFETY: the table gives this offset of the ring.
            let header = unsafe { port.interface.byte_offset(offset as isize) }.cast::<RingHeader>();
            // SAFETY: the ring is mapped, the program owns it, and the frame can be read.
            if unsafe { put(header, frame.cast(), size) } {
                port.current_tx_ring = ring;
                return size as c_int;
            }
        }
        ring = if ring == last { first } else { ring + 1 };
    }
    0
}
