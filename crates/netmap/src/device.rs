//! One open of `/dev/netmap`.

use std::ffi::c_void;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringroad_control::netmap::{Bound, NetmapReply, NetmapRequest, Register};
use rustix::io::Errno;

use crate::descriptor::{CsbAddresses, Descriptor, LoopError, LoopPlan};
use crate::wakers::Wakers;

/// One open of `/dev/netmap`, as this process sees it; copies of its descriptor share it.
#[derive(Debug)]
pub struct Device {}

impl Device {
    /// Opens a device: the descriptor to give to the program, and what stands behind it.
    ///
    /// # Errors
    /// ENOENT where no daemon runs and none can be started; EACCES where it may not be used.
    pub fn open() -> Result<(OwnedFd, Arc<Self>), Errno> {
        Err(Errno::NOENT)
    }

    /// The device behind a descriptor that this process inherited or received, if it is one. Nothing is taken from the descriptor.
    #[must_use]
    pub fn recognise(_descriptor: BorrowedFd<'_>) -> Option<Arc<Self>> {
        None
    }

    /// What mmap(2) on the device does: `[offset, offset + bytes)` of the region.
    ///
    /// # Errors
    /// EINVAL where the device is not bound or the range is not in the region, and those of mmap(2).
    pub fn map(
        &self,
        _address: *mut c_void,
        _bytes: usize,
        _protection: i32,
        _flags: i32,
        _offset: i64,
    ) -> Result<*mut c_void, Errno> {
        Err(Errno::INVAL)
    }

    /// What poll(2) does without sleeping: syncs as `events` (POLLIN, POLLOUT, ...) ask, and returns `revents`.
    #[must_use]
    pub fn ready(&self, _events: i16) -> i16 {
        libc::POLLERR
    }

    /// Prepares a sleep: announces it, then does what [`Self::ready`] does. Where the result is not 0 nothing is armed; otherwise what to wait for
    /// has been added to `wakers`, and [`Self::disarm`] must follow, whatever ends the sleep.
    #[must_use]
    pub fn arm(&self, events: i16, _wakers: &mut Wakers) -> i16 {
        self.ready(events)
    }

    /// Ends what [`Self::arm`] began.
    pub fn disarm(&self, _events: i16) {}
}

impl Descriptor for Device {
    fn register(
        &self,
        _request: Register,
        _external_memory: Option<usize>,
        _csb: Option<CsbAddresses>,
    ) -> Result<Bound, Errno> {
        Err(Errno::NOSYS)
    }

    fn ask(&self, _request: NetmapRequest) -> Result<NetmapReply, Errno> {
        Err(Errno::NOSYS)
    }

    fn bound_rings(&self) -> Option<(usize, usize)> {
        None
    }

    fn enable_csb(&self, _csb: CsbAddresses) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn run_sync_loop(&self, _plan: LoopPlan) -> Result<(), LoopError> {
        Err(LoopError::Request(Errno::NOSYS))
    }

    fn stop_sync_loop(&self) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn tx_sync(&self) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn rx_sync(&self) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
}
