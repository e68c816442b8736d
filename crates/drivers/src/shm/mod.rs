//! A port whose rings lie in a region that a program maps: the port of every client of the daemon and of embedded mode.
//!
//! Trust: everything in the region may be written by the program at any time. The ring ends check it; a violation
//! stops that ring, is counted, and is shown to the program. Other ports never see this region.
//!
//! [`region`] makes the memory and the ports in it; [`queue`] is the datapath's side; [`watch`] holds the news of
//! bindings and monitors for the queue; `virtio_header` reads and writes the frames of programs that leave work to a
//! card.

pub mod queue;
pub mod region;
mod virtio_header;
pub mod watch;

use std::os::fd::OwnedFd;

use ringroad_ring::eventfd;
use ringroad_ring::region::RegionError;

pub use queue::{ShmQueue, UnboundQueue};
pub use region::{PortShape, ShmPort, ShmRegion};
pub use watch::{BindingUpdates, Watch};

/// The two eventfds of a queue. Non-blocking, close-on-exec.
#[derive(Debug)]
pub struct QueueEvents {
    /// Written by the program to wake the datapath.
    pub kick: OwnedFd,
    /// Written by the datapath to wake the program.
    pub notify: OwnedFd,
}

impl QueueEvents {
    /// A new pair.
    ///
    /// # Errors
    /// The kernel's error from `eventfd` (out of descriptors).
    pub fn new() -> rustix::io::Result<Self> {
        Ok(Self { kick: eventfd::create()?, notify: eventfd::create()? })
    }

    /// A new pair for each of `queues` queues.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn of_queues(queues: u16) -> Result<Vec<Self>, RegionError> {
        let failed = |source| RegionError::System { step: "making eventfds for", bytes: 0, source };
        (0..queues).map(|_| Self::new().map_err(failed)).collect()
    }

    /// Another handle on the same pair.
    ///
    /// # Errors
    /// Out of descriptors.
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
