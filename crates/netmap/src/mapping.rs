//! Regions that this process has mapped for its own syncs: one mapping each, for any number of devices bound in it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ringroad_ring::geometry::RegionGeometry;
use ringroad_ring::region::{Region, RegionError};
use rustix::io::Errno;

use crate::holder::Holder;
use crate::private_descriptors;

/// A mapped region; its descriptor is private.
#[derive(Debug)]
pub(crate) struct RegionMapping {
    inode: u64,
    pub(crate) region: Arc<Region>,
    /// Number of this process in the locks of its rings.
    pub(crate) holder: Arc<Holder>,
}

impl Drop for RegionMapping {
    fn drop(&mut self) {
        private_descriptors::forget(self.region.as_fd());
    }
}

static MAPPINGS: Mutex<Vec<Weak<RegionMapping>>> = Mutex::new(Vec::new());

/// Mapping of the region behind `descriptor`; made unless there is one.
pub(crate) fn mapping_of(geometry: RegionGeometry, descriptor: OwnedFd) -> Result<Arc<RegionMapping>, Errno> {
    let inode = rustix::fs::fstat(&descriptor)?.st_ino;
    let mut mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
    mappings.retain(|mapping| mapping.strong_count() > 0);
    let known = mappings.iter().filter_map(Weak::upgrade).find(|mapping| mapping.inode == inode);
    if let Some(mapping) = known {
        return Ok(mapping);
    }
    let region =
        Arc::new(Region::open_inheritable(geometry, private_descriptors::hide(descriptor)).map_err(
            |error| match error {
                RegionError::System { source, .. } => source,
                _ => Errno::IO,
            },
        )?);
    let holder = Arc::new(Holder::new(&region));
    let mapping = Arc::new(RegionMapping { inode, region, holder });
    mappings.push(Arc::downgrade(&mapping));
    Ok(mapping)
}
