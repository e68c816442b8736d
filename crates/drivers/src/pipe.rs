//! A pipe: two ports in one region, each of which receives the other's frames. Frames pass from program to program by
//! exchange of slots ([`ringroad_ring::pipe_end`]). This driver only makes the region.
//!
//! Trust: the two programs share the region. They may corrupt each other's frames on this pipe, but no other data.

use std::sync::Arc;

use crate::catalogue::port_name::PipeSide;
use ringroad_ring::control_block::FillCounts;
use ringroad_ring::geometry::PortPlacement;
use ringroad_ring::layout::FIRST_BUFFER;
use ringroad_ring::ledger::ChargedUser;
use ringroad_ring::region::{Region, RegionError};
use ringroad_ring::ring_view::{RingView, lay_out_port};

use crate::shm::region::release;
use crate::shm::{PortShape, QueueEvents};

/// A pipe's region, the placement of both ends in it, and their eventfds.
#[derive(Debug)]
pub struct Pipe {
    region: Arc<Region>,
    placements: [PortPlacement; 2],
    /// Eventfds as the master end has them.
    events: Vec<QueueEvents>,
}

impl Drop for Pipe {
    fn drop(&mut self) {
        release(Arc::clone(&self.region));
    }
}

impl Pipe {
    /// Creates a pipe with a port of this shape at each end. `charged` reserves its memory; without one the memory is
    /// not counted.
    ///
    /// # Errors
    /// [`RegionError`] if a size is out of range or memory is short.
    pub fn create(name: &str, shape: PortShape, charged: Option<&ChargedUser>) -> Result<Self, RegionError> {
        let geometry = shape.geometry(2)?;
        let region = Arc::new(Region::create_for(charged, geometry, shape.huge_pages)?);
        let mut buffers = FIRST_BUFFER..geometry.buffers;
        let PortShape { queues, slots, extra_buffers, .. } = shape;
        let placements = [0, 1].map(|end| PortPlacement::of_port(end, queues, slots, extra_buffers));
        for placement in &placements {
            lay_out_port(&region, name, placement, &mut buffers)?;
        }
        Ok(Self { region, placements, events: QueueEvents::of_queues(queues)? })
    }

    /// Takes over a pipe that another process created.
    #[must_use]
    pub fn resume(region: Region, placements: [PortPlacement; 2], events: Vec<QueueEvents>) -> Self {
        Self { region: Arc::new(region), placements, events }
    }

    /// Eventfds as the master end has them.
    #[must_use]
    pub fn events(&self) -> &[QueueEvents] {
        &self.events
    }

    /// The region of both ends.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Frames that reached the end `side` so far, by the counters of the program at the other end.
    #[must_use]
    pub fn filled(&self, side: PipeSide) -> FillCounts {
        let placement = self.placement(side);
        let views = placement
            .rx_rings
            .iter()
            .filter_map(|&ring| RingView::new(&self.region, ring, placement.slots).ok());
        views.map(|view| view.control().datapath.filled.read()).sum()
    }

    /// Placement of the end `side` in the region. Its tx rings are paired with the other end's rx rings, queue by
    /// queue.
    #[must_use]
    pub fn placement(&self, side: PipeSide) -> &PortPlacement {
        match side {
            PipeSide::Master => &self.placements[0],
            PipeSide::Slave => &self.placements[1],
        }
    }

    /// Duplicates of the eventfds of the end `side`. They are crossed: one end rings the eventfd on which the other
    /// waits.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn clone_events(&self, side: PipeSide) -> Result<Vec<QueueEvents>, RegionError> {
        let crossed = |pair: QueueEvents| match side {
            PipeSide::Master => pair,
            PipeSide::Slave => QueueEvents { kick: pair.notify, notify: pair.kick },
        };
        self.events.iter().map(|pair| pair.try_clone().map(crossed)).collect()
    }
}
