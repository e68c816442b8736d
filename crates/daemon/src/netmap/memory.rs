//! Regions by memory id. All interfaces share region 1; each port of a switch has its own region unless it requests
//! another port's region.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ringroad_control::netmap::{ExternalMemory, Pool, Pools, PortSizes};
use ringroad_drivers::shm::ShmRegion;
use ringroad_ring::geometry::{
    BUFFER_BYTES_RANGE, MAX_BUFFERS, MAX_RINGS, NETMAP_BUFFER_BYTES, RegionGeometry, ring_object_bytes,
};
use ringroad_ring::layout::FIRST_BUFFER;
use ringroad_ring::ledger::ChargedUser;
use ringroad_ring::liveness;
use ringroad_ring::ring_view::RingView;
use ringroad_ring::shared_lock::{HolderNumber, LockHold};
use rustix::io::Errno;

use super::failure::{NetmapFailure, fail};

/// Memory id of the region for all interfaces.
pub(crate) const GLOBAL: u16 = 1;
/// Number of pipes that a region has room for, with rings like its port's.
const PIPES: u32 = 24;
/// Number of monitors that a region has room for.
const MONITORS: u32 = 8;
/// Number of bindings that a region has room for.
const BINDINGS: u32 = 64;
const INTERFACE_BYTES: u32 = 1024;
const PAGE: u64 = 4096;
/// Pools of an EXTMEM region without requested sizes, as numbers and sizes of objects: netmap's minimum for private
/// regions.
const LEAST_POOLS: [(u32, u32); 3] = [(2, 1024), (4, 20480), (4098, 2048)];

/// The geometry of the global region. Untouched memory costs nothing, but AF_XDP pins the buffers.
pub(crate) fn global_geometry() -> RegionGeometry {
    RegionGeometry {
        interfaces: 100,
        interface_bytes: INTERFACE_BYTES,
        rings: 200,
        ring_bytes: 36_864,
        buffers: 65_536,
        buffer_bytes: NETMAP_BUFFER_BYTES,
    }
}

/// The geometry of a region for one port, with its pipes, monitors and extra buffers.
pub(crate) fn private_geometry(
    sizes: &PortSizes,
    extra_buffers: u32,
) -> Result<RegionGeometry, NetmapFailure> {
    let (tx, rx) = (u32::from(sizes.tx_rings) + 1, u32::from(sizes.rx_rings) + 1);
    let longest = sizes.tx_slots.max(sizes.rx_slots).max(1);
    // Each pipe has two rings of each direction; only its rx rings have buffers of their own.
    let rings = tx + rx + 4 * PIPES + MONITORS;
    let slots = (PIPES + rx) * sizes.rx_slots + (PIPES + tx) * sizes.tx_slots + MONITORS * longest;
    let geometry = RegionGeometry {
        interfaces: BINDINGS,
        interface_bytes: (56 + 8 * (tx + rx)).next_multiple_of(64).max(INTERFACE_BYTES),
        rings,
        ring_bytes: ring_object_bytes(longest),
        buffers: (slots + extra_buffers + 2).min(MAX_BUFFERS),
        buffer_bytes: NETMAP_BUFFER_BYTES,
    };
    geometry.check()?;
    Ok(geometry)
}

/// Geometry of a region in a program's own memory; the rest becomes buffers.
pub(crate) fn external_geometry(external: &ExternalMemory) -> Result<RegionGeometry, NetmapFailure> {
    let requested = |pool: Pool, (least, bytes): (u32, u32)| {
        let or = |value, default| if value == 0 { default } else { value };
        (or(pool.objects, least), or(pool.object_bytes, bytes))
    };
    let [interfaces, rings, buffers] = LEAST_POOLS;
    let pools = &external.pools;
    let (interfaces, interface_bytes) = requested(pools.interfaces, interfaces);
    let (rings, ring_bytes) = requested(pools.rings, rings);
    let (buffers, buffer_bytes) = requested(pools.buffers, buffers);
    let wrong = |what: &str| Err(fail(Errno::INVAL, format!("external memory: {what} out of range")));
    if !(56..=4096).contains(&interface_bytes) || !(2..=1024).contains(&interfaces) {
        return wrong("interfaces");
    }
    if !(256..=131_072).contains(&ring_bytes) || !(2..=MAX_RINGS).contains(&rings) {
        return wrong("rings");
    }
    if !BUFFER_BYTES_RANGE.contains(&buffer_bytes) || !(4..=MAX_BUFFERS).contains(&buffers) {
        return wrong("buffers");
    }
    let mut geometry = RegionGeometry {
        interfaces,
        interface_bytes: interface_bytes.next_multiple_of(64),
        rings,
        ring_bytes: ring_bytes.next_multiple_of(128).min(131_072),
        buffers,
        buffer_bytes: buffer_bytes.next_multiple_of(64),
    };
    geometry.check()?;
    // Memory is mapped in whole pages.
    let Some(has) = pools.memory_bytes.checked_next_multiple_of(PAGE) else {
        return wrong("size");
    };
    let needed = geometry.pools_bytes();
    // Pools of this region begin at page boundaries, which the program did not include: a few buffers fewer make room
    // for that.
    if needed > has + 3 * PAGE {
        return Err(fail(Errno::NOMEM, format!("external memory of {has} bytes: the pools take {needed}")));
    }
    let more = has.saturating_sub(needed) / u64::from(geometry.buffer_bytes);
    geometry.buffers =
        geometry.buffers.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)).min(MAX_BUFFERS);
    while geometry.pools_bytes() > has {
        geometry.buffers =
            geometry.buffers.checked_sub(1).filter(|&buffers| buffers > FIRST_BUFFER).ok_or_else(|| {
                fail(Errno::NOMEM, format!("external memory of {has} bytes holds no buffer"))
            })?;
    }
    geometry.check()?;
    Ok(geometry)
}

/// A region with a memory id.
#[derive(Debug)]
pub(crate) struct MemoryRegion {
    pub(crate) id: u16,
    pub(crate) home: Arc<ShmRegion>,
    /// User who may share the region.
    pub(crate) uid: u32,
    /// Identity of the program's memory that the region replaces.
    external: Option<[u64; 3]>,
    /// Rings without a user, into which programs may still put frames.
    leaving: Mutex<Vec<ReturningRings>>,
}

/// Rings that return to the region.
#[derive(Debug)]
struct ReturningRings {
    /// Ring objects with their views.
    rings: Vec<(u32, RingView)>,
    /// Syncs under way at rings from which `rings` were filled.
    filled_by: Vec<(RingView, LockHold)>,
}

impl MemoryRegion {
    /// Takes rings back as soon as the present syncs at `filled_from` are over: later syncs know of the change.
    pub(crate) fn take_back_behind(&self, rings: Vec<(u32, RingView)>, filled_from: Vec<RingView>) {
        let under_way = |view: RingView| {
            let hold = view.control().program.lock.hold(|holder| self.is_alive(holder))?;
            Some((view, hold))
        };
        let filled_by = filled_from.into_iter().filter_map(under_way).collect();
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).push(ReturningRings { rings, filled_by });
        self.take_back_left();
    }

    fn is_alive(&self, holder: HolderNumber) -> bool {
        liveness::is_alive(self.home.region().as_fd(), holder)
    }

    /// Takes back rings that no program fills. If a program never releases a lock, the rings that it could fill stay
    /// until the region ends.
    pub(crate) fn take_back_left(&self) {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain_mut(|rings| {
            rings.filled_by.retain(|(view, hold)| {
                !view.control().program.lock.is_over(*hold, |holder| self.is_alive(holder))
            });
            if !rings.filled_by.is_empty() {
                return true;
            }
            let mut allocator = self.home.allocator();
            for (object, view) in &rings.rings {
                for slot in 0..view.slot_count() {
                    allocator.free_buffer(view.slot(slot).load().buffer);
                }
                allocator.free_ring(*object);
            }
            false
        });
    }

    /// Whether memory of that identity is this region: the program's memory that it replaces, or the region itself
    /// after the replacement.
    pub(crate) fn stands_for(&self, identity: [u64; 3]) -> bool {
        let own = || {
            let status = rustix::fs::fstat(self.home.region().as_fd()).ok()?;
            Some([status.st_dev, status.st_ino, 0])
        };
        self.external.is_some_and(|external| external == identity || own() == Some(identity))
    }

    pub(crate) fn geometry(&self) -> &RegionGeometry {
        self.home.region().geometry()
    }

    /// Pools as programs see them.
    pub(crate) fn pools(&self) -> Pools {
        let geometry = self.geometry();
        Pools {
            memory_bytes: geometry.pools_bytes(),
            mem_id: self.id,
            interfaces: Pool {
                offset: geometry.interface_offset(0),
                objects: geometry.interfaces,
                object_bytes: geometry.interface_bytes,
            },
            rings: Pool {
                offset: geometry.ring_offset(0),
                objects: geometry.rings,
                object_bytes: geometry.ring_bytes,
            },
            buffers: Pool {
                offset: geometry.buffer_offset(0),
                objects: geometry.buffers,
                object_bytes: geometry.buffer_bytes,
            },
        }
    }
}

/// All regions; each exists while a port lies in it.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Regions by memory id. `globals` holds each user's region of all interfaces, by user id.
    regions: BTreeMap<u16, Weak<MemoryRegion>>,
    globals: BTreeMap<u32, Weak<MemoryRegion>>,
    next: u16,
}

impl Default for Memory {
    fn default() -> Self {
        Self { regions: BTreeMap::new(), globals: BTreeMap::new(), next: GLOBAL + 1 }
    }
}

impl Memory {
    /// Region that a program names by an id other than 0. `payer`, here and below, is the user who makes the request,
    /// to whom a new region is charged.
    pub(crate) fn named(&mut self, id: u16, payer: &ChargedUser) -> Result<Arc<MemoryRegion>, NetmapFailure> {
        if id == GLOBAL {
            return self.global(payer);
        }
        match self.regions.get(&id).and_then(Weak::upgrade) {
            Some(region) if region.uid == payer.user() => Ok(region),
            Some(_) => Err(fail(Errno::ACCESS, format!("memory {id} belongs to another user"))),
            None => Err(fail(Errno::INVAL, format!("there is no memory {id}"))),
        }
    }

    /// The region of all interfaces that the user has open. Each user has one, so no user can take it from another.
    pub(crate) fn global(&mut self, payer: &ChargedUser) -> Result<Arc<MemoryRegion>, NetmapFailure> {
        if let Some(region) = self.globals.get(&payer.user()).and_then(Weak::upgrade) {
            return Ok(region);
        }
        self.make(GLOBAL, payer, global_geometry(), None)
    }

    /// Creates a region.
    pub(crate) fn private(
        &mut self,
        payer: &ChargedUser,
        geometry: RegionGeometry,
    ) -> Result<Arc<MemoryRegion>, NetmapFailure> {
        let id = self.free_id()?;
        self.make(id, payer, geometry, None)
    }

    /// Creates the region that replaces a program's memory.
    pub(crate) fn external(
        &mut self,
        payer: &ChargedUser,
        external: &ExternalMemory,
    ) -> Result<Arc<MemoryRegion>, NetmapFailure> {
        let known = self.regions.values().filter_map(Weak::upgrade);
        if let Some(region) = known.into_iter().find(|region| region.stands_for(external.identity)) {
            return match region.uid == payer.user() {
                true => Ok(region),
                false => Err(fail(Errno::ACCESS, "the memory belongs to another user")),
            };
        }
        let geometry = external_geometry(external)?;
        let id = self.free_id()?;
        self.make(id, payer, geometry, Some(external.identity))
    }

    fn make(
        &mut self,
        id: u16,
        payer: &ChargedUser,
        geometry: RegionGeometry,
        external: Option<[u64; 3]>,
    ) -> Result<Arc<MemoryRegion>, NetmapFailure> {
        let home = ShmRegion::of_geometry(geometry, Some(payer))?;
        let region =
            Arc::new(MemoryRegion { id, home, uid: payer.user(), external, leaving: Mutex::default() });
        match id {
            GLOBAL => {
                self.globals.retain(|_, region| region.strong_count() > 0);
                self.globals.insert(payer.user(), Arc::downgrade(&region));
            }
            _ => {
                self.regions.insert(id, Arc::downgrade(&region));
            }
        }
        Ok(region)
    }

    /// Memory id that no living region has, and whose last use was as long ago as possible.
    fn free_id(&mut self) -> Result<u16, NetmapFailure> {
        self.regions.retain(|_, region| region.strong_count() > 0);
        for _ in 0..u16::MAX {
            let id = self.next;
            self.next = self.next.checked_add(1).unwrap_or(GLOBAL + 1);
            if !self.regions.contains_key(&id) {
                return Ok(id);
            }
        }
        Err(fail(Errno::NOMEM, "all memory ids are in use"))
    }
}

#[cfg(test)]
mod tests {
    use ringroad_ring::ledger::{Ledger, LedgerLimits};

    use super::*;

    fn sizes(slots: u32, rings: u16) -> PortSizes {
        PortSizes {
            tx_slots: slots,
            rx_slots: slots,
            tx_rings: rings,
            rx_rings: rings,
            ..PortSizes::default()
        }
    }

    #[test]
    fn every_size_of_a_port_has_a_geometry() {
        for (slots, rings) in [(2, 1), (1024, 1), (4096, 16)] {
            let geometry = private_geometry(&sizes(slots, rings), 128 * 4096).unwrap();
            assert!(geometry.max_slots() >= slots);
            assert!(geometry.rings > 2 * u32::from(rings));
        }
    }

    #[test]
    fn external_pools_stay_within_the_memory_and_use_it() {
        let external = ExternalMemory {
            identity: [1, 2, 3],
            pools: Pools { memory_bytes: 16 << 20, ..Pools::default() },
        };
        let geometry = external_geometry(&external).unwrap();
        assert!(geometry.pools_bytes() <= 16 << 20);
        assert!(geometry.pools_bytes() + 3 * 4096 > 16 << 20, "{geometry:?}");
    }

    #[test]
    fn external_memory_of_exactly_the_pools_size_is_enough() {
        let pool = |objects, object_bytes| Pool { offset: 0, objects, object_bytes };
        let (interfaces, rings, buffers) = (pool(2, 1024), pool(64, 512), pool(4096, 2048));
        let memory_bytes = 2 * 1024 + 64 * 512 + 4096 * 2048;
        let pools = Pools { memory_bytes, mem_id: 0, interfaces, rings, buffers };
        let geometry = external_geometry(&ExternalMemory { identity: [0; 3], pools }).unwrap();
        assert!(geometry.pools_bytes() <= memory_bytes.next_multiple_of(PAGE));
        assert!(geometry.buffers > 4090 && geometry.max_slots() == 16);
    }

    #[test]
    fn external_pools_are_refused_by_cause() {
        let with = |change: fn(&mut Pools)| {
            let mut pools = Pools { memory_bytes: 16 << 20, ..Pools::default() };
            change(&mut pools);
            external_geometry(&ExternalMemory { identity: [0; 3], pools }).unwrap_err().errno
        };
        assert_eq!(with(|pools| pools.memory_bytes = 4096), Errno::NOMEM);
        assert_eq!(with(|pools| pools.memory_bytes = u64::MAX), Errno::INVAL);
        assert_eq!(with(|pools| pools.rings.object_bytes = 255), Errno::INVAL);
        assert_eq!(with(|pools| pools.buffers.object_bytes = 65537), Errno::INVAL);
        assert_eq!(with(|pools| pools.interfaces.object_bytes = 55), Errno::INVAL);
        assert_eq!(with(|pools| pools.buffers.objects = MAX_BUFFERS + 1), Errno::INVAL);
    }

    fn ledger() -> Arc<Ledger> {
        Ledger::new(LedgerLimits { total: 256 << 20, user: 256 << 20, reserve: 0 })
    }

    #[test]
    fn a_ring_is_taken_back_when_no_program_is_filling_it() {
        use ringroad_ring::layout::Direction;
        use ringroad_ring::liveness::prove;
        use ringroad_ring::ring_view::{RingInit, lay_out_ring};
        let payer = ChargedUser::new(&ledger(), 0, false);
        let memory = Memory::default().private(&payer, private_geometry(&sizes(8, 1), 0).unwrap()).unwrap();
        let laid_out = || {
            let mut allocator = memory.home.allocator();
            let object = allocator.take_ring().unwrap();
            let mut buffers = allocator.take_buffers(8).unwrap().into_iter();
            let plan = RingInit::new(Direction::Rx, 0, 8);
            (object, lay_out_ring(memory.home.region(), object, &plan, &mut buffers).unwrap())
        };
        let (filler, monitor) = (laid_out().1, laid_out());
        let before = memory.home.allocator().free_rings();
        let (number, proof) = prove(memory.home.region().as_fd()).unwrap();
        let lock = &filler.control().program.lock;
        assert!(lock.try_take(number, |_| true));
        memory.take_back_behind(vec![monitor], vec![filler.clone()]);
        assert_eq!(memory.home.allocator().free_rings(), before);
        let _ = lock.release(number);
        memory.take_back_left();
        assert_eq!(memory.home.allocator().free_rings(), before + 1);
        // A program that was killed in the middle of a sync does not keep the ring either.
        assert!(lock.try_take(number, |_| true));
        drop(proof);
        memory.take_back_behind(vec![laid_out()], vec![filler.clone()]);
        assert_eq!(memory.home.allocator().free_rings(), before + 1);
    }

    #[test]
    fn a_region_goes_with_its_last_port_and_its_id_comes_back_late() {
        let mut memory = Memory::default();
        let ledger = ledger();
        let [root, other] = [0, 1].map(|user| ChargedUser::new(&ledger, user, false));
        let geometry = private_geometry(&sizes(4, 1), 0).unwrap();
        let first = memory.private(&root, geometry).unwrap();
        assert_eq!(memory.named(first.id, &root).unwrap().id, first.id);
        assert_eq!(memory.named(first.id, &other).unwrap_err().errno, Errno::ACCESS);
        let id = first.id;
        assert_eq!(ledger.total(), geometry.total_bytes());
        drop(first);
        assert_eq!(ledger.total(), 0);
        assert_eq!(memory.named(id, &root).unwrap_err().errno, Errno::INVAL);
        assert_ne!(memory.private(&root, geometry).unwrap().id, id);
    }

    #[test]
    fn every_kind_of_region_is_counted_and_refused_beyond_the_limit() {
        let mut memory = Memory::default();
        let ledger = ledger();
        let payer = ChargedUser::new(&ledger, 1, false);
        let external = ExternalMemory {
            identity: [1, 2, 3],
            pools: Pools { memory_bytes: 64 << 20, ..Pools::default() },
        };
        let mut held = vec![memory.named(GLOBAL, &payer).unwrap()];
        held.push(memory.external(&payer, &external).unwrap());
        let counted = held.iter().map(|region| region.geometry().total_bytes()).sum::<u64>();
        assert_eq!(ledger.by_user().get(&1), Some(&counted));
        assert!(Arc::ptr_eq(&held[1], &memory.external(&payer, &external).unwrap()), "known: no more of it");
        assert_eq!(ledger.total(), counted);
        let another = ExternalMemory { identity: [1, 2, 4], pools: external.pools };
        assert_eq!(memory.external(&payer, &another).unwrap_err().errno, Errno::NOMEM);
        assert_eq!(memory.private(&payer, global_geometry()).unwrap_err().errno, Errno::NOMEM);
    }
}
