//! A port whose rings lie in a region that a program maps. Every client of the daemon and of embedded mode has such
//! ports.
//!
//! Trust: the program may write every byte of the region at any time. The ring ends check what they read. A violation
//! stops that ring, is counted, and is shown to the program. Other ports never see this region.
//!
//! [`region`] makes the memory and the ports in it; [`queue`] is the datapath's side; [`netmap_queue`] is that of a
//! netmap port, which knows of changed bindings and monitors; `virtio_header` reads and writes the frames of netmap
//! programs that use offloads.

pub mod netmap_queue;
pub mod queue;
pub mod region;
mod virtio_header;

use std::os::fd::OwnedFd;

use ringroad_ring::eventfd;
use ringroad_ring::region::RegionError;

pub use netmap_queue::{BindingUpdates, NetmapQueue};
pub use queue::ShmQueue;
pub use region::{PortShape, ShmPort, ShmRegion};

/// The two eventfds of a queue. Both are non-blocking and close-on-exec.
#[derive(Debug)]
pub struct QueueEvents {
    /// Eventfd that the program writes to wake the datapath.
    pub kick: OwnedFd,
    /// Eventfd that the datapath writes to wake the program.
    pub notify: OwnedFd,
}

impl QueueEvents {
    /// Creates a pair.
    ///
    /// # Errors
    /// The kernel's error from `eventfd`, for example if the process has no descriptors left.
    pub fn new() -> rustix::io::Result<Self> {
        Ok(Self { kick: eventfd::create()?, notify: eventfd::create()? })
    }

    /// Creates a pair for each of `queues` queues.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn of_queues(queues: u16) -> Result<Vec<Self>, RegionError> {
        let failed = |source| RegionError::System { step: "making eventfds for", bytes: 0, source };
        (0..queues).map(|_| Self::new().map_err(failed)).collect()
    }

    /// Duplicates the pair.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn try_clone(&self) -> Result<Self, RegionError> {
        let clone = |event: &OwnedFd| {
            rustix::io::fcntl_dupfd_cloexec(event, 0).map_err(|source| RegionError::System {
                step: "sharing the eventfds of",
                bytes: 0,
                source,
            })
        };
        Ok(Self { kick: clone(&self.kick)?, notify: clone(&self.notify)? })
    }
}
