//! Regions with room for several ports, and the ports laid out in them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringroad_port::counters::QueueCounters;
use ringroad_ring::allocator::RegionAllocator;
use ringroad_ring::geometry::{GeometryError, PortPlacement, RegionGeometry};
use ringroad_ring::region::{HugePages, Region, RegionError};
use ringroad_ring::ring_view::{RingView, lay_out_port, listed_extra_buffers};

use super::{QueueEvents, ShmQueue};

/// Ports that a region of small pages has room for: memory that nobody touches costs nothing.
const PLACES: u32 = 4;
const FULL: GeometryError =
    GeometryError::Impossible("the shared region is full: close a port that shares it");

/// A region with room for several ports, so that others of the same user can come to share it.
#[derive(Debug)]
pub struct ShmRegion {
    region: Arc<Region>,
    queues: u16,
    slots: u32,
    extra_buffers: u32,
    /// Buffers that the device of one port needs for itself.
    device_buffers: u32,
    allocator: Mutex<RegionAllocator>,
}

impl ShmRegion {
    /// Makes a region for ports of `queues` queues of `slots` slots, and for devices that need `device_buffers` buffers each.
    ///
    /// # Errors
    /// [`RegionError`] where a size is out of range or memory is short.
    pub fn create(
        queues: u16,
        slots: u32,
        buffer_bytes: u32,
        extra_buffers: u32,
        device_buffers: u32,
        huge_pages: HugePages,
    ) -> Result<Arc<Self>, RegionError> {
        let besides = extra_buffers.saturating_add(device_buffers);
        let most = besides.checked_mul(PLACES).ok_or(GeometryError::Buffers(u64::from(besides)))?;
        let roomy = RegionGeometry::for_ports(PLACES, queues, slots, buffer_bytes, most);
        // Where four do not fit, one may.
        let geometry = match roomy {
            Ok(geometry) => geometry,
            Err(_) => RegionGeometry::for_ports(1, queues, slots, buffer_bytes, besides)?,
        };
        let region = Arc::new(Region::create(geometry, huge_pages)?);
        let allocator = Mutex::new(RegionAllocator::new(&geometry));
        Ok(Arc::new(Self { region, queues, slots, extra_buffers, device_buffers, allocator }))
    }

    /// Makes a region of just this geometry, whose objects are handed out one by one ([`Self::allocator`]). 4 KiB pages: programs map parts of it.
    ///
    /// # Errors
    /// [`RegionError`] where the geometry is not possible or memory is short.
    pub fn of_geometry(geometry: RegionGeometry) -> Result<Arc<Self>, RegionError> {
        let region = Arc::new(Region::create(geometry, HugePages::Never)?);
        let allocator = Mutex::new(RegionAllocator::new(&geometry));
        let slots = geometry.max_slots();
        Ok(Arc::new(Self { region, queues: 0, slots, extra_buffers: 0, device_buffers: 0, allocator }))
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The books of its objects.
    pub fn allocator(&self) -> MutexGuard<'_, RegionAllocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues of each port in it.
    #[must_use]
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// Buffers that the device of one port can have.
    #[must_use]
    pub fn device_buffers(&self) -> u32 {
        self.device_buffers
    }

    /// Hands out `count` buffers to a device. They go back with the region only: which ones the device holds changes with
    /// every exchange.
    ///
    /// # Errors
    /// [`RegionError`] where there are not so many left.
    pub fn reserve(&self, count: u32) -> Result<Vec<u32>, RegionError> {
        Ok(self.allocator().take_buffers(count).ok_or(FULL)?)
    }

    /// Lays a port out in the next free place.
    ///
    /// # Errors
    /// [`RegionError`] where the region is full.
    pub fn place(self: &Arc<Self>, name: &str) -> Result<ShmPort, RegionError> {
        let failed = |source| RegionError::System { step: "making eventfds for", bytes: 0, source };
        let events =
            (0..self.queues).map(|_| QueueEvents::new()).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let rings = 2 * u32::from(self.queues);
        let mut allocator = self.allocator();
        let buffers = rings * self.slots + self.extra_buffers;
        if allocator.free_rings() < rings || allocator.free_buffers() < buffers {
            return Err(FULL.into());
        }
        let interface = allocator.take_interface().ok_or(FULL)?;
        let mut take_rings = || (0..self.queues).map_while(|_| allocator.take_ring()).collect();
        let placement = PortPlacement {
            interface,
            tx_rings: take_rings(),
            rx_rings: take_rings(),
            slots: self.slots,
            extra_buffers: self.extra_buffers,
        };
        let mut buffers = allocator.take_buffers(buffers).ok_or(FULL)?.into_iter();
        lay_out_port(&self.region, name, &placement, &mut buffers)?;
        drop(allocator);
        Ok(ShmPort { home: Arc::clone(self), placement, events })
    }

    /// Takes back the objects of a port that nobody uses any more. Programs exchange buffers between ports, so it is the slots and the list of extra
    /// buffers that tell which are its own; what a hostile program wrote there is its own and its fellows' loss.
    fn take_back(&self, placement: &PortPlacement) {
        let mut allocator = self.allocator();
        for buffer in listed_extra_buffers(&self.region, placement.interface) {
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

/// A program's port: its place in a region, and the eventfds of its queues.
#[derive(Debug)]
pub struct ShmPort {
    home: Arc<ShmRegion>,
    placement: PortPlacement,
    events: Vec<QueueEvents>,
}

impl Drop for ShmPort {
    fn drop(&mut self) {
        self.home.take_back(&self.placement);
    }
}

impl ShmPort {
    /// A port in a region of its own.
    ///
    /// # Errors
    /// As [`ShmRegion::create`].
    pub fn create(
        name: &str,
        queues: u16,
        slots: u32,
        buffer_bytes: u32,
        extra_buffers: u32,
        huge_pages: HugePages,
    ) -> Result<Self, RegionError> {
        ShmRegion::create(queues, slots, buffer_bytes, extra_buffers, 0, huge_pages)?.place(name)
    }

    /// The datapath's side of queue number `queue`.
    ///
    /// # Errors
    /// [`RegionError`] where there is no such queue or descriptors run out.
    pub fn queue(&self, queue: u16, counters: Arc<QueueCounters>) -> Result<ShmQueue, RegionError> {
        let events = self
            .events
            .get(usize::from(queue))
            .ok_or(RegionError::Geometry(GeometryError::Queues(queue)))?
            .try_clone()?;
        Ok(ShmQueue::new(self.region(), &self.placement, queue, events, counters)?)
    }

    /// The region that the port lies in, with room for others.
    #[must_use]
    pub fn home(&self) -> &Arc<ShmRegion> {
        &self.home
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.home.region
    }

    /// Where the port lies in it.
    #[must_use]
    pub fn placement(&self) -> &PortPlacement {
        &self.placement
    }

    /// The eventfds, one pair per queue.
    #[must_use]
    pub fn events(&self) -> &[QueueEvents] {
        &self.events
    }

    /// Other handles on the eventfds, for the program's side.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn clone_events(&self) -> Result<Vec<QueueEvents>, RegionError> {
        self.events.iter().map(QueueEvents::try_clone).collect()
    }
}
