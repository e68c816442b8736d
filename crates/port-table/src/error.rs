//! Errors of changes to the table.

use ringroad_datapath::fabric::FabricError;
use ringroad_ring::region::RegionError;

/// Reason why the table could not be changed; it is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// There is no memory for the port, or no room in the region that the port should share.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The port to be made exists already, the port to be used does not exist, or the datapath has no room for it.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Another program has this end of the pipe open.
    #[error("{0} is in use")]
    EndInUse(String),
    /// The device cannot have as many queues as the ports of the region that it should share.
    #[error("{asked} queues in a region whose ports have {has}")]
    SharedQueues {
        /// Number of queues that the device would have.
        asked: u16,
        /// Number of queues of each port in the region.
        has: u16,
    },
}
