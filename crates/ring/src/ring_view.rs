//! One ring of a mapped region: its slots, control block, header and the buffers that its slots may name.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use crate::control_block::ControlBlock;
use crate::cursor::{advance, distance};
use crate::geometry::{GeometryError, PortPlacement, RegionGeometry};
use crate::layout::{Direction, FIRST_BUFFER, InterfaceHeader, RingHeader, Slot};
use crate::region::Region;
use crate::shared::{BufferPool, SharedBytes, SharedSlot, SlotWord};
use crate::sync::{AtomicU32, Ordering};

const OUTSIDE: GeometryError = GeometryError::Impossible("ring outside the region");
const EXHAUSTED: GeometryError = GeometryError::Impossible("no buffer left");

/// View of a ring, for both sides. Cheap to clone; keeps the region mapped.
#[derive(Debug, Clone)]
pub struct RingView {
    region: Arc<Region>,
    slots: NonNull<SharedSlot>,
    /// Fields head, cur, tail and flags of the header.
    cursors: NonNull<[AtomicU32; 4]>,
    control: NonNull<ControlBlock>,
    buffers: BufferPool,
    count: u32,
}

// SAFETY: all memory behind the pointers is atomic or copied raw, and lives as long as the region, which this value
// keeps.
unsafe impl Send for RingView {}
// SAFETY: as above; threads share the memory just as processes do.
unsafe impl Sync for RingView {}

impl RingView {
    /// View of ring object `ring` of `region`, with `slots` slots.
    ///
    /// # Errors
    /// [`GeometryError`] if the region has no such ring.
    pub fn new(region: &Arc<Region>, ring: u32, slots: u32) -> Result<Self, GeometryError> {
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
        // SAFETY: the region maps `pool_bytes` bytes from there, as just checked, and this view keeps them mapped.
        let buffers =
            unsafe { BufferPool::from_trusted_parts(pool_base, geometry.buffers, geometry.buffer_bytes) };
        Ok(Self {
            slots: region.at(slots_offset, slots_bytes).ok_or(OUTSIDE)?.cast(),
            cursors: region.at(cursors_offset, 16).ok_or(OUTSIDE)?.cast(),
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
    /// If `index` is not below [`Self::slot_count`]: a fault of the caller, never of shared data.
    #[inline]
    #[must_use]
    pub fn slot(&self, index: u32) -> &SharedSlot {
        self.check(index);
        // SAFETY: the index is within the mapped slots.
        let slot = unsafe { self.slots.add(index as usize) };
        // SAFETY: mapped, aligned (ring objects are 128-aligned), and only ever accessed atomically.
        unsafe { slot.as_ref() }
    }

    /// The slots from `index` on, at most `count`, up to the ring's last slot.
    ///
    /// # Panics
    /// If `index` is not below [`Self::slot_count`]: a fault of the caller, never of shared data.
    #[inline]
    #[must_use]
    pub fn slots(&self, index: u32, count: u32) -> &[SharedSlot] {
        self.check(index);
        let count = count.min(self.count - index);
        // SAFETY: the index is within the mapped slots.
        let first = unsafe { self.slots.add(index as usize) };
        // SAFETY: `count` slots from there are mapped as well; aligned (ring objects are 128-aligned), and only ever
        // accessed atomically.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), count as usize) }
    }

    #[inline]
    fn check(&self, index: u32) {
        if index >= self.count {
            no_such_slot(index, self.count);
        }
    }

    /// Union of the flags of slots `[from, to)`. Both indexes are below [`Self::slot_count`].
    #[inline]
    #[must_use]
    pub fn flags_among(&self, from: u32, to: u32) -> u16 {
        let mut all = SlotWord::default();
        let mut index = from;
        while index != to {
            let run = self.slots(index, distance(index, to, self.count));
            for slot in run {
                all = all.with(slot.load_word());
            }
            index = advance(index, run.len() as u32, self.count);
        }
        all.flags()
    }

    /// The ring's control block.
    #[inline]
    #[must_use]
    pub fn control(&self) -> &ControlBlock {
        // SAFETY: mapped, 128-aligned, atomics only.
        unsafe { self.control.as_ref() }
    }

    /// Pool of the buffers that slots of this ring may name.
    #[inline]
    #[must_use]
    pub fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    /// Region of the ring.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The first `len` bytes (at most a buffer) of buffer `index`; an index outside the pool gives no bytes, as netmap
    /// reads such slots as empty.
    #[inline]
    #[must_use]
    pub fn bytes(&self, index: u32, len: usize) -> SharedBytes<'_> {
        self.buffers.bytes(index, len)
    }

    /// The first `len` bytes (at most a buffer) of the reserved buffer, which takes the frames for invalid indexes.
    #[must_use]
    pub fn reserved_bytes(&self, len: usize) -> SharedBytes<'_> {
        let len = len.min(self.buffers.buffer_bytes() as usize);
        // SAFETY: a whole buffer lies there and the region stays mapped while self is borrowed.
        unsafe { SharedBytes::from_trusted_parts(self.buffers.reserved(), len) }
    }

    fn cursors(&self) -> &[AtomicU32; 4] {
        // SAFETY: mapped and 4-aligned (offset 20 of a 128-aligned object); accessed atomically.
        unsafe { self.cursors.as_ref() }
    }

    /// Shows head, cur and tail to programs that read the `netmap_ring` itself.
    #[inline]
    pub fn show_cursors(&self, head: u32, cur: u32, tail: u32) {
        let [shown_head, shown_cur, shown_tail, _] = self.cursors();
        shown_head.store(head, Ordering::Relaxed);
        shown_cur.store(cur, Ordering::Relaxed);
        shown_tail.store(tail, Ordering::Relaxed);
    }

    /// Shows only the tail.
    #[inline]
    pub fn show_tail(&self, tail: u32) {
        self.cursors()[2].store(tail, Ordering::Relaxed);
    }

    /// Cursors that a netmap program has left in the `netmap_ring`, each read once. Untrusted values.
    #[inline]
    #[must_use]
    pub fn cursors_shown(&self) -> Cursors {
        let [head, cur, tail, flags] = self.cursors().each_ref().map(|cursor| cursor.load(Ordering::Relaxed));
        Cursors { head, cur, tail, flags }
    }

    /// Address of the header's field at `offset`, which is not below that of `head`.
    #[inline]
    fn field<T>(&self, offset: usize) -> NonNull<T> {
        let from_cursors = offset - std::mem::offset_of!(RingHeader, head);
        // SAFETY: the header lies whole in the mapping, so its fields do.
        unsafe { self.cursors.cast::<u8>().add(from_cursors) }.cast()
    }

    fn counts_of_2012(&self) -> &[AtomicU32; 2] {
        let counts = self.field(std::mem::offset_of!(RingHeader, available));
        // SAFETY: mapped and 4-aligned (offset 128 of a 128-aligned object); accessed atomically.
        unsafe { counts.as_ref() }
    }

    /// Sets `head` for a program of 2012, which moves only `cur`: as many slots before it stay the program's as
    /// `reserved` says, if `keeps_reserved`. Values outside the ring become a `head` that a sync refuses.
    pub fn derive_head(&self, keeps_reserved: bool) {
        let [_, reserved] = self.counts_of_2012();
        let [head, cur, ..] = self.cursors();
        let kept = if keeps_reserved { reserved.load(Ordering::Relaxed) } else { 0 };
        let first = match cur.load(Ordering::Relaxed) {
            cur if cur < self.count && kept < self.count => distance(kept, cur, self.count),
            _ => u32::MAX,
        };
        head.store(first, Ordering::Relaxed);
    }

    /// Shows a program of 2012 how many slots from `cur` on are its own.
    pub fn show_available(&self) {
        let Cursors { cur, tail, .. } = self.cursors_shown();
        let own = if cur.max(tail) < self.count { distance(cur, tail, self.count) } else { 0 };
        self.counts_of_2012()[0].store(own, Ordering::Relaxed);
    }

    /// Ends what a program of 2012 keeps of received slots.
    pub fn clear_reserved(&self) {
        self.counts_of_2012()[1].store(0, Ordering::Relaxed);
    }

    /// Stamps the ring with the time of a sync: seconds and microseconds since the Unix epoch.
    #[inline]
    pub fn stamp(&self, seconds: i64, microseconds: i64) {
        let stamp: NonNull<[AtomicI64; 2]> = self.field(std::mem::offset_of!(RingHeader, timestamp));
        // SAFETY: mapped, 8-aligned (offset 40 of a 128-aligned object), accessed atomically.
        let [to_seconds, to_microseconds] = unsafe { stamp.as_ref() };
        to_seconds.store(seconds, Ordering::Relaxed);
        to_microseconds.store(microseconds, Ordering::Relaxed);
    }
}

// Panics for slots outside of the ring. Takes its numbers by value, so that loops over slots keep them in registers.
#[cold]
fn no_such_slot(index: u32, count: u32) -> ! {
    panic!("slot {index} of a ring of {count}")
}

/// Cursors in a ring's header. Untrusted values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursors {
    /// First slot that the program still owns.
    pub head: u32,
    /// Slot at which the program wants to be woken.
    pub cur: u32,
    /// End of the program's slots, in the program's view.
    pub tail: u32,
    /// Flags: `NR_*`.
    pub flags: u32,
}

/// Properties of a ring that is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingInit {
    /// Direction, seen by the program.
    pub direction: Direction,
    /// Index within the direction; host rings come after the other rings.
    pub index: u16,
    /// Number of slots.
    pub slots: u32,
    /// Mask of the offset bits in `slot.ptr`; 0: no offsets.
    pub offset_mask: u64,
    /// Offset in every slot at first, bytes.
    pub initial_offset: u64,
}

impl RingInit {
    /// A ring without offsets.
    #[must_use]
    pub fn new(direction: Direction, index: u16, slots: u32) -> Self {
        Self { direction, index, slots, offset_mask: 0, initial_offset: 0 }
    }
}

/// Writes header, control block and first slots of ring object `ring`; `buffers` yields a free buffer for each slot.
/// The object must not be in use yet.
///
/// # Errors
/// [`GeometryError`] if the region has no such ring or the buffers run out.
pub fn lay_out_ring(
    region: &Arc<Region>,
    ring: u32,
    plan: &RingInit,
    buffers: &mut dyn Iterator<Item = u32>,
) -> Result<RingView, GeometryError> {
    let view = RingView::new(region, ring, plan.slots)?;
    write_ring_header(region, ring, plan)?;
    let full = view.buffers.buffer_bytes().min(u32::from(u16::MAX)) as u16;
    for index in 0..plan.slots {
        let buffer = buffers.next().ok_or(EXHAUSTED)?;
        debug_assert!(buffer >= FIRST_BUFFER);
        view.slot(index).store_with_ptr(Slot { buffer, len: full, flags: 0, ptr: plan.initial_offset });
    }
    Ok(view)
}

/// Works as [`lay_out_ring`], for a ring without a far end: all of its slots name the reserved buffer.
///
/// # Errors
/// [`GeometryError`] if the region has no such ring.
pub fn lay_out_fake_ring(
    region: &Arc<Region>,
    ring: u32,
    plan: &RingInit,
) -> Result<RingView, GeometryError> {
    let view = RingView::new(region, ring, plan.slots)?;
    write_ring_header(region, ring, plan)?;
    for index in 0..plan.slots {
        view.slot(index).store_with_ptr(Slot { buffer: 0, len: 0, flags: 0, ptr: 0 });
    }
    Ok(view)
}

fn write_ring_header(region: &Arc<Region>, ring: u32, plan: &RingInit) -> Result<(), GeometryError> {
    let geometry = region.geometry();
    let offset = geometry.ring_offset(ring);
    let buffers_offset = geometry.buffer_offset(0) as i64 - offset as i64;
    let mut header =
        RingHeader::new(buffers_offset, plan.slots, geometry.buffer_bytes, plan.index, plan.direction);
    header.offset_mask = plan.offset_mask;
    let tail = header.tail;
    put(region, offset, header)?;
    let start = region.at(geometry.control_offset(ring), size_of::<ControlBlock>()).ok_or(OUTSIDE)?;
    // SAFETY: mapped for a control block and not in use; the lock that an earlier program may have left is erased, too.
    unsafe { start.as_ptr().write_bytes(0, size_of::<ControlBlock>()) };
    let view = RingView::new(region, ring, plan.slots)?;
    let control = view.control();
    control.program.shown_tail.store(tail, Ordering::Relaxed);
    control.datapath.tail.store(tail, Ordering::Release);
    Ok(())
}

/// Writes interface object `interface`: header and the table of ring offsets. `counts`: tx, host tx, rx and host rx
/// rings; `rings`: one entry for each of these in this order, `None` if the interface does not show the ring.
///
/// # Errors
/// [`GeometryError`] if the object is too small.
pub fn lay_out_interface(
    region: &Region,
    interface: u32,
    name: &str,
    flags: u32,
    counts: [u32; 4],
    rings: impl ExactSizeIterator<Item = Option<u32>>,
) -> Result<(), GeometryError> {
    let geometry = region.geometry();
    if size_of::<InterfaceHeader>() + 8 * rings.len() > geometry.interface_bytes as usize {
        return Err(GeometryError::Impossible("interface object too small for its rings"));
    }
    let [tx_rings, host_tx_rings, rx_rings, host_rx_rings] = counts;
    let mut header = InterfaceHeader {
        name: [0; 16],
        version: 0,
        flags,
        tx_rings,
        rx_rings,
        extra_buffers_head: 0,
        host_tx_rings,
        host_rx_rings,
        spare: [0; 3],
    };
    for (to, from) in header.name[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    let offset = geometry.interface_offset(interface);
    put(region, offset, header)?;
    let table = offset + size_of::<InterfaceHeader>() as u64;
    for (entry, ring) in (0u64..).zip(rings) {
        let ring_offset = ring.map_or(0, |ring| geometry.ring_offset(ring) as i64 - offset as i64);
        put(region, table + 8 * entry, ring_offset)?;
    }
    Ok(())
}

/// Lists `buffers` as the extra buffers of an interface object.
///
/// # Errors
/// [`GeometryError`] if the region has no such object.
pub fn list_extra_buffers(region: &Region, interface: u32, buffers: &[u32]) -> Result<(), GeometryError> {
    let geometry = region.geometry();
    let mut head = 0;
    for &buffer in buffers.iter().rev() {
        put(region, geometry.buffer_offset(buffer), head)?;
        head = buffer;
    }
    put(region, extra_head_offset(geometry, interface), head)
}

/// Extra buffers that a program left listed at an interface object. Untrusted numbers: only valid indexes are returned,
/// at most `most`. Each buffer is a page that may have to be loaded.
#[must_use]
pub fn listed_extra_buffers(region: &Region, interface: u32, most: u32) -> Vec<u32> {
    let geometry = region.geometry();
    let mut listed = Vec::new();
    let mut next = read_word(region, extra_head_offset(geometry, interface));
    while (FIRST_BUFFER..geometry.buffers).contains(&next) && listed.len() < most as usize {
        listed.push(next);
        next = read_word(region, geometry.buffer_offset(next));
    }
    listed
}

fn extra_head_offset(geometry: &RegionGeometry, interface: u32) -> u64 {
    geometry.interface_offset(interface) + std::mem::offset_of!(InterfaceHeader, extra_buffers_head) as u64
}

fn read_word(region: &Region, offset: u64) -> u32 {
    let Some(address) = region.at(offset, 4) else { return 0 };
    // SAFETY: mapped and 4-aligned (objects and buffers are 64-aligned); read atomically, once.
    unsafe { address.cast::<AtomicU32>().as_ref() }.load(Ordering::Relaxed)
}

/// Writes the interface object, ring headers, control blocks and first slots of a new port into its region.
///
/// `buffers` yields the index of a free buffer for each slot and extra buffer. No other process may use these objects
/// yet.
///
/// # Errors
/// [`GeometryError`] if the placement does not lie in the region or the buffers run out.
pub fn lay_out_port(
    region: &Arc<Region>,
    name: &str,
    placement: &PortPlacement,
    buffers: &mut dyn Iterator<Item = u32>,
) -> Result<(), GeometryError> {
    placement.check(region.geometry())?;
    let queues = placement.tx_rings.len() as u32;
    let (tx, rx) = (&placement.tx_rings, &placement.rx_rings);
    let host = [None];
    let shown = tx.iter().copied().map(Some).chain(host).chain(rx.iter().copied().map(Some)).chain(host);
    let shown: Vec<_> = shown.collect();
    let extra: Vec<u32> = buffers.take(placement.extra_buffers as usize).collect();
    if extra.len() < placement.extra_buffers as usize {
        return Err(EXHAUSTED);
    }
    lay_out_interface(region, placement.interface, name, 1, [queues, 1, queues, 1], shown.into_iter())?;
    list_extra_buffers(region, placement.interface, &extra)?;
    for (direction, rings) in [(Direction::Tx, tx), (Direction::Rx, rx)] {
        for (queue, &ring) in (0u16..).zip(rings) {
            lay_out_ring(region, ring, &RingInit::new(direction, queue, placement.slots), buffers)?;
        }
    }
    Ok(())
}

fn put<T: Copy>(region: &Region, offset: u64, value: T) -> Result<(), GeometryError> {
    let address = region
        .at(offset, size_of::<T>())
        .ok_or(GeometryError::Impossible("object outside the region"))?
        .cast::<T>();
    // SAFETY: mapped for the size of T; write_unaligned requires no alignment. The only possible concurrent writer is
    // the program that gets this memory, and the memory is not handed out yet.
    unsafe { address.write_unaligned(value) };
    Ok(())
}
