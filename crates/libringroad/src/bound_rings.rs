//! Rings of a port that are bound: those with an offset in the table after the interface's header.
#![allow(unsafe_code)]

use std::ffi::c_void;

use ringroad_ring::layout::{InterfaceHeader, RingHeader};

/// Bound rings of a port.
pub struct BoundRings {
    /// Interface in the region.
    pub interface: *mut InterfaceHeader,
    /// First and last tx ring; the first is above the last if there is none.
    pub tx_ring: [u16; 2],
    /// First and last rx ring, in the same way.
    pub rx_ring: [u16; 2],
}

/// Finds the bound rings in a mapped region; `None` if the region is malformed.
pub fn bound_rings(memory: *mut c_void, size: usize, offset: u64) -> Option<BoundRings> {
    let offset = usize::try_from(offset).ok()?;
    let header_end = offset.checked_add(size_of::<InterfaceHeader>())?;
    if header_end > size || !(memory.addr() + offset).is_multiple_of(align_of::<InterfaceHeader>()) {
        return None;
    }
    // SAFETY: the offset is in the mapped region.
    let interface = unsafe { memory.byte_add(offset) }.cast::<InterfaceHeader>();
    // SAFETY: the header is in the mapped region, and aligned.
    let header = unsafe { interface.read() };
    let tx_rings = header.tx_rings.checked_add(header.host_tx_rings)?;
    let rx_rings = header.rx_rings.checked_add(header.host_rx_rings)?;
    let rings = u16::try_from(tx_rings.checked_add(rx_rings)?).ok()?;
    if header_end + usize::from(rings) * size_of::<i64>() > size {
        return None;
    }
    let end = size.checked_sub(size_of::<RingHeader>())?;
    for ring in 0..u32::from(rings) {
        // SAFETY: the table lies in the region, as was just checked.
        let from_interface = unsafe { ring_offset(interface, ring) };
        let from_start = (offset as i64).checked_add(from_interface).and_then(|at| usize::try_from(at).ok());
        let lies_well =
            |at: usize| at <= end && (memory.addr() + at).is_multiple_of(align_of::<RingHeader>());
        if from_interface != 0 && !from_start.is_some_and(lies_well) {
            return None;
        }
    }
    // SAFETY: the table is in the region; `bound_run` reads only these rings.
    let bound = |ring: u32| unsafe { ring_offset(interface, ring) } != 0;
    Some(BoundRings {
        interface,
        tx_ring: bound_run(tx_rings as u16, bound),
        rx_ring: bound_run(rx_rings as u16, |ring| bound(tx_rings + ring)),
    })
}

/// First and last ring of the first run of bound rings; the first is above the last if there is none.
fn bound_run(rings: u16, bound: impl Fn(u32) -> bool) -> [u16; 2] {
    let first = (0..rings).find(|ring| bound((*ring).into()));
    match first {
        Some(first) => {
            let after = (first..rings).find(|ring| !bound((*ring).into())).unwrap_or(rings);
            [first, after - 1]
        }
        None => [rings.max(1), rings.max(1) - 1],
    }
}

/// Returns the offset of ring `index` from its interface, 0 if the ring is not bound. The order is tx, host tx, rx,
/// host rx.
///
/// # Safety
///
/// The interface is mapped and has that many rings.
#[must_use]
pub unsafe fn ring_offset(interface: *mut InterfaceHeader, index: u32) -> i64 {
    // SAFETY: the table begins behind the header.
    let table = unsafe { interface.add(1) }.cast::<i64>();
    // SAFETY: the caller guarantees that the index is in the table.
    let entry = unsafe { table.add(index as usize) };
    // SAFETY: the caller guarantees that the entry is mapped. It is read once, because other processes write it.
    unsafe { entry.read_volatile() }
}
