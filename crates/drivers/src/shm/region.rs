//! Regions with room for several ports, and the ports laid out in them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringroad_control::message::PortProperties;
use ringroad_port::counters::QueueCounters;
use ringroad_ring::allocator::{HandedOut, RegionAllocator};
use ringroad_ring::datapath_end::{RxPutEnd, TxTakeEnd};
use ringroad_ring::geometry::{
    DEFAULT_BUFFER_BYTES, DEFAULT_SLOTS, GeometryError, MAX_EXTRA_BUFFERS, PortPlacement, RegionGeometry,
};
use ringroad_ring::ledger::ChargedUser;
use ringroad_ring::region::{HugePages, Region, RegionError};
use ringroad_ring::ring_view::{RingView, lay_out_port, listed_extra_buffers};
use serde::{Deserialize, Serialize};

use super::{QueueEvents, ShmQueue};
use crate::catalogue::port_name::PortOptions;
use crate::device::DevicePlan;

/// Number of ports that a region has room for if memory is plentiful. Other ports may join the region later.
const MAX_PORTS: u32 = 4;
const FULL: GeometryError = GeometryError::Impossible(
    "the region has no room for another port: close one that shares it, or do not share; \
     it was made with room for one port alone if memory was short then",
);
/// Minimum memory in use of a region that is freed on a separate thread, bytes. The kernel takes a tenth of a second or
/// more to free a GiB.
const LARGE_BYTES: u64 = 32 << 20;
/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Sizes of a port. All ports of a region have the same shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortShape {
    /// Number of queues.
    pub queues: u16,
    /// Number of slots of each ring.
    pub slots: u32,
    /// Size of a buffer, bytes.
    pub buffer_bytes: u32,
    /// Number of extra buffers for the program, beside those in its slots.
    pub extra_buffers: u32,
    /// Number of buffers that the port's device needs for itself.
    pub device_buffers: u32,
    /// Use of huge pages for the region.
    pub huge_pages: HugePages,
}

impl PortShape {
    /// The default shape of a port.
    pub const DEFAULT: Self = Self {
        queues: 1,
        slots: DEFAULT_SLOTS,
        buffer_bytes: DEFAULT_BUFFER_BYTES,
        extra_buffers: 0,
        device_buffers: 0,
        huge_pages: HugePages::Auto,
    };

    /// Shape from the options of the name, then the program's request, then the defaults.
    #[must_use]
    pub fn of(options: &PortOptions, config: &PortProperties) -> Self {
        Self {
            queues: options.queues.or(config.queues).unwrap_or(Self::DEFAULT.queues),
            slots: options.slots.or(config.slots).unwrap_or(Self::DEFAULT.slots),
            buffer_bytes: options.buffer_bytes.or(config.buffer_bytes).unwrap_or(Self::DEFAULT.buffer_bytes),
            extra_buffers: options.extra_buffers.unwrap_or(config.extra_buffers),
            huge_pages: config.huge_pages,
            ..Self::DEFAULT
        }
    }

    /// Returns the shape with the queues and buffers that the device of `plan` needs. If the size of buffers is the
    /// default one, the device's default replaces it.
    #[must_use]
    pub fn for_device(self, plan: &DevicePlan) -> Self {
        let buffer_bytes = match self.buffer_bytes {
            DEFAULT_BUFFER_BYTES => plan.buffer_bytes.unwrap_or(DEFAULT_BUFFER_BYTES),
            chosen => chosen,
        };
        Self { queues: plan.queues, device_buffers: plan.region_buffers, buffer_bytes, ..self }
    }

    /// Geometry of a region for `ports` ports of this shape.
    ///
    /// # Errors
    /// [`GeometryError`] if a size is out of range.
    pub fn geometry(&self, ports: u32) -> Result<RegionGeometry, GeometryError> {
        if self.extra_buffers > MAX_EXTRA_BUFFERS {
            return Err(GeometryError::ExtraBuffers(self.extra_buffers));
        }
        let besides = u64::from(self.extra_buffers) + u64::from(self.device_buffers);
        let besides = besides * u64::from(ports);
        let besides = u32::try_from(besides).map_err(|_| GeometryError::Buffers(besides))?;
        RegionGeometry::for_ports(ports, self.queues, self.slots, self.buffer_bytes, besides)
    }
}

/// Releases a region. The caller does not wait while the kernel frees a large region.
pub(crate) fn release(region: Arc<Region>) {
    let blocks = rustix::fs::fstat(&*region).map_or(0, |status| status.st_blocks);
    if u64::try_from(blocks).unwrap_or(0) * BLOCK_BYTES >= LARGE_BYTES {
        // If no thread can be started, the region is dropped here with the closure.
        let _ = std::thread::Builder::new().name("memory".into()).spawn(move || drop(region));
    }
}

/// A region with room for several ports, so that other ports of the same user can share it.
#[derive(Debug)]
pub struct ShmRegion {
    region: Arc<Region>,
    /// Shape of the ports that are laid out by [`Self::place`].
    shape: PortShape,
    allocator: Mutex<RegionAllocator>,
}

impl Drop for ShmRegion {
    fn drop(&mut self) {
        release(Arc::clone(&self.region));
    }
}

impl ShmRegion {
    /// Creates a region for ports of this shape: for several if memory is plentiful, otherwise for one. The whole
    /// region is charged to `payer`; without a payer it is not counted.
    ///
    /// # Errors
    /// [`RegionError`] if a size is out of range or memory is short.
    pub fn create(shape: PortShape, charged: Option<&ChargedUser>) -> Result<Arc<Self>, RegionError> {
        let has_plenty = |bytes| charged.is_none_or(|charged| charged.has_plenty(bytes));
        let geometry = match shape.geometry(MAX_PORTS) {
            Ok(roomy) if has_plenty(roomy.total_bytes()) => roomy,
            _ => shape.geometry(1)?,
        };
        Self::with(shape, geometry, charged)
    }

    /// Creates a region of exactly this geometry, whose objects are handed out one by one ([`Self::allocator`]). It has
    /// 4 KiB pages, because programs map parts of it.
    ///
    /// # Errors
    /// [`RegionError`] if the geometry is not possible or memory is short.
    pub fn of_geometry(
        geometry: RegionGeometry,
        charged: Option<&ChargedUser>,
    ) -> Result<Arc<Self>, RegionError> {
        let (slots, buffer_bytes) = (geometry.max_slots(), geometry.buffer_bytes);
        let huge_pages = HugePages::Never;
        let shape = PortShape { queues: 0, slots, buffer_bytes, huge_pages, ..PortShape::DEFAULT };
        Self::with(shape, geometry, charged)
    }

    fn with(
        shape: PortShape,
        geometry: RegionGeometry,
        charged: Option<&ChargedUser>,
    ) -> Result<Arc<Self>, RegionError> {
        let region = Arc::new(Region::create_for(charged, geometry, shape.huge_pages)?);
        Ok(Arc::new(Self { region, shape, allocator: Mutex::new(RegionAllocator::new(&geometry)) }))
    }

    /// Takes over the region that another process created for ports of this shape, with its objects in use.
    ///
    /// # Errors
    /// Those of [`Region::inherit`].
    pub fn inherit(
        shape: PortShape,
        geometry: RegionGeometry,
        descriptor: OwnedFd,
        handed_out: &HandedOut,
        charged: Option<&ChargedUser>,
    ) -> Result<Arc<Self>, RegionError> {
        let region = Arc::new(Region::inherit(charged, geometry, descriptor)?);
        let allocator = Mutex::new(RegionAllocator::resume(&geometry, handed_out));
        Ok(Arc::new(Self { region, shape, allocator }))
    }

    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Records that a program with a port in this region has ended. After the last one no program may read the region's
    /// content.
    pub fn program_has_gone(self: &Arc<Self>) {
        if Arc::strong_count(self) == 1 {
            self.region.discard_at_end();
        }
    }

    /// Allocator of the region's objects.
    pub fn allocator(&self) -> MutexGuard<'_, RegionAllocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shape of each port that is laid out in the region ([`Self::lay_out_next`]).
    #[must_use]
    pub fn shape(&self) -> &PortShape {
        &self.shape
    }

    /// Hands out `count` buffers to a device. They are returned only with the region: the device's buffers change with
    /// every exchange.
    ///
    /// # Errors
    /// [`RegionError`] if there are not enough left.
    pub fn reserve(&self, count: u32) -> Result<Vec<u32>, RegionError> {
        Ok(self.allocator().take_buffers(count).ok_or(FULL)?)
    }

    /// Lays out a port in free space of the region.
    ///
    /// # Errors
    /// [`RegionError`] if the region is full.
    pub fn lay_out_next(self: &Arc<Self>, name: &str) -> Result<ShmPort, RegionError> {
        let PortShape { queues, slots, extra_buffers, .. } = self.shape;
        let events = QueueEvents::of_queues(queues)?;
        let rings = 2 * u32::from(queues);
        let mut allocator = self.allocator();
        let buffers = rings * slots + extra_buffers;
        if allocator.free_rings() < rings || allocator.free_buffers() < buffers {
            return Err(FULL.into());
        }
        let interface = allocator.take_interface().ok_or(FULL)?;
        let mut take_rings = || (0..queues).map_while(|_| allocator.take_ring()).collect();
        let placement =
            PortPlacement { interface, tx_rings: take_rings(), rx_rings: take_rings(), slots, extra_buffers };
        let mut buffers = allocator.take_buffers(buffers).ok_or(FULL)?.into_iter();
        lay_out_port(&self.region, name, &placement, &mut buffers)?;
        drop(allocator);
        Ok(ShmPort { home: Arc::clone(self), placement, events })
    }

    /// Takes back the objects of a port that is no longer used. Programs exchange buffers between ports, so the slots
    /// and the list of extra buffers determine the port's buffers. Invalid values of a hostile program harm only this
    /// program and others in the region.
    fn take_back(&self, placement: &PortPlacement) {
        let mut allocator = self.allocator();
        for buffer in listed_extra_buffers(&self.region, placement.interface, placement.extra_buffers) {
            allocator.free_buffer(buffer);
        }
        for &ring in placement.tx_rings.iter().chain(&placement.rx_rings) {
            if let Ok(view) = RingView::new(&self.region, ring, placement.slots) {
                for slot in 0..placement.slots {
                    allocator.free_buffer(view.slot(slot).load().buffer);
                }
            }
            allocator.free_ring(ring);
        }
        allocator.free_interface(placement.interface);
    }
}

/// A program's port: its placement in a region, and the eventfds of its queues.
#[derive(Debug)]
pub struct ShmPort {
    home: Arc<ShmRegion>,
    placement: PortPlacement,
    events: Vec<QueueEvents>,
}

impl Drop for ShmPort {
    fn drop(&mut self) {
        // The last port frees the whole region, so its objects need not be taken back.
        if Arc::strong_count(&self.home) > 1 {
            self.home.take_back(&self.placement);
        }
    }
}

impl ShmPort {
    /// Creates a port in a region of its own.
    ///
    /// # Errors
    /// Those of [`ShmRegion::create`].
    pub fn create(name: &str, shape: PortShape) -> Result<Self, RegionError> {
        ShmRegion::create(shape, None)?.lay_out_next(name)
    }

    /// Takes over a port that another process laid out in `home`, with its eventfds.
    #[must_use]
    pub fn resume(home: &Arc<ShmRegion>, placement: PortPlacement, events: Vec<QueueEvents>) -> Self {
        Self { home: Arc::clone(home), placement, events }
    }

    /// The datapath's side of queue number `queue`, as another process left it with `numbers`.
    ///
    /// # Errors
    /// [`RegionError`] if there is no such queue or descriptors run out.
    pub fn resume_queue(
        &self,
        queue: u16,
        counters: Arc<QueueCounters>,
        numbers: &[u64],
    ) -> Result<ShmQueue, RegionError> {
        let (rings, events) = self.parts(queue)?;
        Ok(ShmQueue::resume(self.region(), rings, events, counters, numbers)?)
    }

    /// The datapath's side of queue number `queue`, newly laid out.
    ///
    /// # Errors
    /// [`RegionError`] if there is no such queue or descriptors run out.
    pub fn queue(&self, queue: u16, counters: Arc<QueueCounters>) -> Result<ShmQueue, RegionError> {
        let ([tx, rx], events) = self.parts(queue)?;
        let (take, put) = (TxTakeEnd::new(tx), RxPutEnd::new(rx));
        Ok(ShmQueue::of_ends(self.region(), Some(take), Some(put), events, counters))
    }

    /// The rings of queue number `queue`, tx first, and duplicates of its eventfds.
    fn parts(&self, queue: u16) -> Result<([RingView; 2], QueueEvents), RegionError> {
        let PortPlacement { tx_rings, rx_rings, slots, .. } = &self.placement;
        let index = usize::from(queue);
        let (Some(events), Some(&tx), Some(&rx)) =
            (self.events.get(index), tx_rings.get(index), rx_rings.get(index))
        else {
            return Err(GeometryError::Queues(queue).into());
        };
        let ring = |ring| RingView::new(self.region(), ring, *slots);
        Ok(([ring(tx)?, ring(rx)?], events.try_clone()?))
    }

    /// Region that the port lies in, with room for other ports.
    #[must_use]
    pub fn home(&self) -> &Arc<ShmRegion> {
        &self.home
    }

    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.home.region
    }

    /// Placement of the port in the region.
    #[must_use]
    pub fn placement(&self) -> &PortPlacement {
        &self.placement
    }

    /// The eventfds, one pair per queue.
    #[must_use]
    pub fn events(&self) -> &[QueueEvents] {
        &self.events
    }

    /// Duplicates of the eventfds, for the program's side.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn clone_events(&self) -> Result<Vec<QueueEvents>, RegionError> {
        self.events.iter().map(QueueEvents::try_clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use ringroad_ring::ledger::{Ledger, LedgerLimits};

    use super::*;

    const SHAPE: PortShape = PortShape { slots: 64, huge_pages: HugePages::Never, ..PortShape::DEFAULT };

    fn ledger(ports: u64) -> Arc<Ledger> {
        let total = ports * SHAPE.geometry(1).unwrap().total_bytes();
        Ledger::new(LedgerLimits { total, user: total, reserve: 0 })
    }

    #[test]
    fn a_region_has_room_for_others_only_while_memory_is_plentiful() {
        let ledger = ledger(20);
        let charged = ChargedUser::new(&ledger, 1, false);
        let roomy = ShmRegion::create(SHAPE, Some(&charged)).unwrap();
        let _ports: Vec<_> = (0..MAX_PORTS).map(|_| roomy.lay_out_next("p").unwrap()).collect();
        let tight = ShmRegion::create(SHAPE, Some(&charged)).unwrap();
        let _port = tight.lay_out_next("p").unwrap();
        assert!(tight.lay_out_next("p").unwrap_err().to_string().contains("no room for another port"));
        let counted = [&roomy, &tight].map(|home| home.region().mapped_bytes() as u64);
        assert_eq!(ledger.total(), counted.iter().sum::<u64>());
    }

    #[test]
    fn released_memory_is_counted_until_the_kernel_has_it_back() {
        let shape = PortShape { buffer_bytes: 65_536, slots: 512, ..SHAPE };
        let ledger = Ledger::new(LedgerLimits { total: 1 << 32, user: 1 << 32, reserve: 0 });
        let home = ShmRegion::create(shape, Some(&ChargedUser::new(&ledger, 1, false))).unwrap();
        let bytes = home.region().mapped_bytes() as u64;
        assert!(bytes >= LARGE_BYTES && ledger.total() == bytes);
        rustix::fs::fallocate(&**home.region(), rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
        drop(home);
        // A separate thread frees the memory, and no event announces its end.
        while ledger.total() > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn more_extra_buffers_than_the_limit_are_refused() {
        let greedy = PortShape { extra_buffers: MAX_EXTRA_BUFFERS + 1, ..SHAPE };
        assert_eq!(greedy.geometry(1), Err(GeometryError::ExtraBuffers(MAX_EXTRA_BUFFERS + 1)));
    }
}
