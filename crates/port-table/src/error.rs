//! Errors of changes to the table.

use ringroad_datapath::fabric::FabricError;
use ringroad_ring::region::RegionError;

/// Why the table could not be changed; it is as it was before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// There is no memory for the port, or no room in the region that it should share.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The port to make exists already, the port to use does not exist, or the datapath has no room for it.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Another program has this end of the pipe open.
    #[error("{0} is in use")]
    EndInUse(String),
    /// The device cannot have as many queues as the ports of the region that it should share.
    #[error("{asked} queues in a region whose ports have {has}")]
    SharedQueues {
        /// Queues that the device would have.
        asked: u16,
        /// Queues of each port in the region.
        has: u16,
    },
}
