//! Regions with room for several ports, and the ports laid out in them.

use std::sync::{Arc, Mutex, PoisonError};

use ringroad_port::counters::QueueCounters;
use ringroad_ring::geometry::{GeometryError, PortPlacement, RegionGeometry};
use ringroad_ring::layout::FIRST_BUFFER;
use ringroad_ring::region::{HugePages, Region, RegionError};
use ringroad_ring::ring_view::{RingView, lay_out_port};

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
    places: Mutex<Places>,
}

#[derive(Debug)]
struct Places {
    used: Vec<bool>,
    /// Buffers from here on were never handed out.
    untouched: u32,
    /// Whether devices hold buffers, which stand in no slot.
    reserved: bool,
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
        let (places, geometry) = match roomy {
            Ok(geometry) => (PLACES, geometry),
            Err(_) => (1, RegionGeometry::for_ports(1, queues, slots, buffer_bytes, besides)?),
        };
        let region = Arc::new(Region::create(geometry, huge_pages)?);
        let places = Places { used: vec![false; places as usize], untouched: FIRST_BUFFER, reserved: false };
        Ok(Arc::new(Self {
            region,
            queues,
            slots,
            extra_buffers,
            device_buffers,
            places: Mutex::new(places),
        }))
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
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
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.free_buffers(&places)?;
        let taken: Vec<u32> = free.into_iter().take(count as usize).collect();
        if taken.len() < count as usize {
            return Err(FULL.into());
        }
        places.untouched = taken.iter().fold(places.untouched, |next, &buffer| next.max(buffer + 1));
        places.reserved = true;
        Ok(taken)
    }

    /// Lays a port out in the next free place.
    ///
    /// # Errors
    /// [`RegionError`] where the region is full.
    pub fn place(self: &Arc<Self>, name: &str) -> Result<ShmPort, RegionError> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.used.iter().position(|used| !used).ok_or(FULL)?;
        let placement = self.placement(place as u32);
        let free = self.free_buffers(&places)?;
        let needed = 2 * u32::from(self.queues) * self.slots + self.extra_buffers;
        if free.len() < needed as usize {
            return Err(FULL.into());
        }
        let mut handed_out = free.into_iter().take(needed as usize).inspect(|&buffer| {
            places.untouched = places.untouched.max(buffer + 1);
        });
        lay_out_port(&self.region, name, &placement, &mut handed_out)?;
        drop(handed_out);
        let failed = |source| RegionError::System { step: "making eventfds for", bytes: 0, source };
        let events =
            (0..self.queues).map(|_| QueueEvents::new()).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        if let Some(used) = places.used.get_mut(place) {
            *used = true;
        }
        Ok(ShmPort { home: Arc::clone(self), place, placement, events })
    }

    fn placement(&self, place: u32) -> PortPlacement {
        PortPlacement::of_port(place, self.queues, self.slots, self.extra_buffers)
    }

    /// Buffers that no port holds. Programs exchange buffers between ports, so it is the slots of the ports in use
    /// that tell; what a hostile program wrote there is its own and its fellows' loss. Extra buffers and those of devices stand in
    /// no slot: where there are such, only buffers that were never handed out are surely free.
    fn free_buffers(&self, places: &Places) -> Result<Vec<u32>, GeometryError> {
        let count = self.region.geometry().buffers;
        let in_use = || (0u32..).zip(&places.used).filter(|(_, used)| **used).map(|(place, _)| place);
        if places.reserved || self.extra_buffers > 0 && in_use().next().is_some() {
            return Ok((places.untouched..count).collect());
        }
        let mut held = vec![false; count as usize];
        for place in in_use() {
            let placement = self.placement(place);
            for &ring in placement.tx_rings.iter().chain(&placement.rx_rings) {
                let view = RingView::new(&self.region, ring, self.slots)?;
                for slot in 0..self.slots {
                    if let Some(held) = held.get_mut(view.slot(slot).load().buffer as usize) {
                        *held = true;
                    }
                }
            }
        }
        Ok((FIRST_BUFFER..count).filter(|&buffer| held.get(buffer as usize) == Some(&false)).collect())
    }
}

/// A program's port: its place in a region, and the eventfds of its queues.
#[derive(Debug)]
pub struct ShmPort {
    home: Arc<ShmRegion>,
    place: usize,
    placement: PortPlacement,
    events: Vec<QueueEvents>,
}

impl Drop for ShmPort {
    fn drop(&mut self) {
        let mut places = self.home.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = places.used.get_mut(self.place) {
            *used = false;
        }
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
