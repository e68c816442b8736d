//! One ring of a mapped region: its slots, control block, header and the buffers that its slots may name.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use crate::control_block::ControlBlock;
use crate::geometry::{GeometryError, PortPlacement};
use crate::layout::{Direction, FIRST_BUFFER, InterfaceHeader, RingHeader, Slot, ring_offset_index};
use crate::region::Region;
use crate::shared::{BufferPool, SharedBytes, SharedSlot};
use crate::sync::{AtomicU32, Ordering};

/// A ring, from either side. Cheap to clone; keeps the region mapped.
#[derive(Debug, Clone)]
pub struct RingView {
    region: Arc<Region>,
    slots: NonNull<SharedSlot>,
    cursors: NonNull<[AtomicU32; 3]>,
    control: NonNull<ControlBlock>,
    buffers: BufferPool,
    count: u32,
}

// SAFETY: everything behind the pointers is atomic or copied raw, and lives as long as the region it keeps.
unsafe impl Send for RingView {}

impl RingView {
    /// The ring object `ring` of `region` with `slots` slots.
    ///
    /// # Errors
    /// [`GeometryError`] where the region has no such ring.
    pub fn new(region: &Arc<Region>, ring: u32, slots: u32) -> Result<Self, GeometryError> {
        const OUTSIDE: GeometryError = GeometryError::Impossible("ring outside the region");
        let geometry = region.geometry();
        if ring >= geometry.rings || slots > geometry.max_slots() || slots < 2 {
            return Err(OUTSIDE);
        }
        let start = geometry.ring_offset(ring);
        let slots_offset = start + size_of::<RingHeader>() as u64;
        let slots_bytes = slots as usize * size_of::<SharedSlot>();
        let cursors_offset = start + std::mem::offset_of!(RingHeader, head) as u64;
        let pool_bytes = geometry.buffers as usize * geometry.buffer_bytes as usize;
        let pool_base = region.at(geometry.buffer_offset(0), pool_bytes).ok_or(OUTSIDE)?;
        // SAFETY: the region maps `pool_bytes` from there, just checked, and this view keeps it mapped.
        let buffers =
            unsafe { BufferPool::from_trusted_parts(pool_base, geometry.buffers, geometry.buffer_bytes) };
        Ok(Self {
            slots: region.at(slots_offset, slots_bytes).ok_or(OUTSIDE)?.cast(),
            cursors: region.at(cursors_offset, 12).ok_or(OUTSIDE)?.cast(),
            control: region
                .at(geometry.control_offset(ring), size_of::<ControlBlock>())
                .ok_or(OUTSIDE)?
                .cast(),
            buffers,
            count: slots,
            region: Arc::clone(region),
        })
    }

    /// Number of slots.
    #[inline]
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        self.count
    }

    /// Slot `index`.
    ///
    /// # Panics
    /// Where `index` is not below [`Self::slot_count`]: a fault of the caller, never of shared data.
    #[inline]
    #[must_use]
    pub fn slot(&self, index: u32) -> &SharedSlot {
        assert!(index < self.count, "slot {index} of a ring of {}", self.count);
        // SAFETY: the index is within the mapped slots.
        let slot = unsafe { self.slots.add(index as usize) };
        // SAFETY: mapped, aligned (ring objects are 128-aligned), and only ever accessed atomically.
        unsafe { slot.as_ref() }
    }

    /// The ring's control block.
    #[inline]
    #[must_use]
    pub fn control(&self) -> &ControlBlock {
        // SAFETY: mapped, 128-aligned, atomics only.
        unsafe { self.control.as_ref() }
    }

    /// The buffers that slots of this ring may name.
    #[inline]
    #[must_use]
    pub fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    /// The region this ring lies in.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// `len` bytes (at most a buffer) of buffer `index`; an index outside the pool gives no bytes, as netmap reads
    /// such slots as empty.
    #[inline]
    #[must_use]
    pub fn bytes(&self, index: u32, len: usize) -> SharedBytes<'_> {
        match self.buffers.address(index) {
            // SAFETY: a whole buffer lies there and the region stays mapped while self is borrowed.
            Some(start) => unsafe {
                SharedBytes::from_trusted_parts(start, len.min(self.buffers.buffer_bytes() as usize))
            },
            // SAFETY: no byte at all.
            None => unsafe { SharedBytes::from_trusted_parts(NonNull::dangling(), 0) },
        }
    }

    /// Shows head, cur and tail to programs that look at the `netmap_ring` itself.
    #[inline]
    pub fn show_cursors(&self, head: u32, cur: u32, tail: u32) {
        // SAFETY: mapped and 4-aligned (offset 20 of a 128-aligned object); accessed atomically.
        let cursors = unsafe { self.cursors.as_ref() };
        cursors[0].store(head, Ordering::Relaxed);
        cursors[1].store(cur, Ordering::Relaxed);
        cursors[2].store(tail, Ordering::Relaxed);
    }
}

/// Writes the interface, ring headers, control blocks and first slots of a new port into its region.
///
/// `buffers` yields the index of a free buffer for each slot and extra buffer. The region must not be shared yet, or
/// not these objects.
///
/// # Errors
/// [`GeometryError`] where the placement does not lie in the region or the buffers run out.
pub fn lay_out_port(
    region: &Arc<Region>,
    name: &str,
    placement: &PortPlacement,
    buffers: &mut dyn Iterator<Item = u32>,
) -> Result<(), GeometryError> {
    const EXHAUSTED: GeometryError = GeometryError::Impossible("no buffer left");
    let geometry = *region.geometry();
    placement.check(&geometry)?;
    let queues = placement.tx_rings.len() as u32;

    let interface_offset = geometry.interface_offset(placement.interface);
    let table_bytes = (size_of::<InterfaceHeader>() as u32 + 8 * (2 * queues + 2)) as usize;
    if table_bytes > geometry.interface_bytes as usize {
        return Err(GeometryError::Impossible("interface object too small for its rings"));
    }
    let mut extra_head = 0;
    for _ in 0..placement.extra_buffers {
        let index = buffers.next().ok_or(EXHAUSTED)?;
        let offset = geometry.buffer_offset(index);
        put(region, offset, extra_head)?;
        extra_head = index;
    }
    let mut header = InterfaceHeader {
        name: [0; 16],
        version: 0,
        flags: 1,
        tx_rings: queues,
        rx_rings: queues,
        extra_buffers_head: extra_head,
        host_tx_rings: 1,
        host_rx_rings: 1,
        spare: [0; 3],
    };
    for (to, from) in header.name[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    put(region, interface_offset, header)?;

    let directions = [(Direction::Tx, &placement.tx_rings), (Direction::Rx, &placement.rx_rings)];
    for (direction, rings) in directions {
        for (queue, &ring) in (0u32..).zip(rings) {
            let ring_offset = geometry.ring_offset(ring);
            let entry = ring_offset_index(direction, queue, queues, 1);
            let table = interface_offset + size_of::<InterfaceHeader>() as u64;
            put(region, table + 8 * u64::from(entry), ring_offset as i64 - interface_offset as i64)?;
            let buffers_offset = geometry.buffer_offset(0) as i64 - ring_offset as i64;
            put(
                region,
                ring_offset,
                RingHeader::new(
                    buffers_offset,
                    placement.slots,
                    geometry.buffer_bytes,
                    queue as u16,
                    direction,
                ),
            )?;
            let view = RingView::new(region, ring, placement.slots)?;
            let full = geometry.buffer_bytes.min(u32::from(u16::MAX)) as u16;
            for index in 0..placement.slots {
                let buffer = buffers.next().ok_or(EXHAUSTED)?;
                debug_assert!(buffer >= FIRST_BUFFER);
                view.slot(index).store_with_ptr(Slot { buffer, len: full, flags: 0, ptr: 0 });
            }
            let control = view.control();
            let tail = if direction == Direction::Tx { placement.slots - 1 } else { 0 };
            control.program.head.store(0, Ordering::Relaxed);
            control.program.cur.store(0, Ordering::Relaxed);
            control.program.sleeping.store(0, Ordering::Relaxed);
            control.datapath.sleeping.store(0, Ordering::Relaxed);
            control.datapath.violation.store(0, Ordering::Relaxed);
            control.datapath.tail.store(tail, Ordering::Release);
        }
    }
    Ok(())
}

fn put<T: Copy>(region: &Region, offset: u64, value: T) -> Result<(), GeometryError> {
    let place = region
        .at(offset, size_of::<T>())
        .ok_or(GeometryError::Impossible("object outside the region"))?
        .cast::<T>();
    // SAFETY: mapped for the size of T; write_unaligned asks no alignment; a concurrent writer can only be the
    // program that this memory is handed to, and it is not handed out yet.
    unsafe { place.write_unaligned(value) };
    Ok(())
}
