//! The operations of `ioctl` on a device, after its arguments have been read and checked.

use ringroad_control::netmap::{Bound, NetmapReply, NetmapRequest, Register};
use rustix::io::Errno;

use crate::abi::{CsbOption, EventPair};

/// Settings of a sync loop (`SYNC_KLOOP_START` and its options).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoopPlan {
    /// Sleep between rounds if no eventfds are given, µs.
    pub sleep_us: u32,
    /// Eventfds of each bound ring, tx rings first; `None`: the loop polls.
    pub events: Option<Vec<EventPair>>,
    /// Bits of `SYNC_KLOOP_MODE`: 1 direct tx, 2 direct rx.
    pub mode: u32,
}

/// Reason why a sync loop did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopError {
    /// Error of the request as a whole.
    Request(Errno),
    /// Error of the eventfds option, whose status shows it, too.
    EventsOption(Errno),
    /// Error of the mode option, whose status shows it, too.
    ModeOption(Errno),
}

/// One open of `/dev/netmap`, as control calls see it.
pub trait NetmapFile {
    /// Binds the device. `external_memory`: address at which the region is mapped, in place of the program's memory.
    /// `csb`: the CSB option.
    ///
    /// # Errors
    /// EBUSY if the device is already bound, and the errors of REGISTER.
    fn register(
        &self,
        request: Register,
        external_memory: Option<usize>,
        csb: Option<CsbOption>,
    ) -> Result<Bound, Errno>;

    /// Notes the port whose sizes a program of 2012 has asked for: such a program may map the region before it binds.
    fn expect_early_mapping(&self, name: String);

    /// Returns, once, the binding to all rings of port `name` that a mapping made before the program did.
    fn take_early_binding(&self, name: &str) -> Option<Bound>;

    /// Sends any request that neither binds nor needs a binding.
    ///
    /// # Errors
    /// The daemon's errno; EIO if the daemon cannot be reached.
    fn ask(&self, request: NetmapRequest) -> Result<NetmapReply, Errno>;

    /// Number of bound rings, (tx, rx); `None` if the device is not bound.
    fn bound_rings(&self) -> Option<(usize, usize)>;

    /// Carries out CSB_ENABLE, and checks alignment and accessibility of the arrays.
    ///
    /// # Errors
    /// EINVAL, EFAULT, EBUSY, ENXIO as documented for the option.
    fn enable_csb(&self, csb: CsbOption) -> Result<(), Errno>;

    /// Runs the sync loop in this thread until it is stopped.
    ///
    /// # Errors
    /// ENXIO, EINVAL, EBUSY as documented for SYNC_KLOOP_START.
    fn run_sync_loop(&self, plan: LoopPlan) -> Result<(), LoopError>;

    /// Stops the sync loop and waits for its end.
    ///
    /// # Errors
    /// ENXIO if the device is not bound.
    fn stop_sync_loop(&self) -> Result<(), Errno>;

    /// Carries out NIOCTXSYNC.
    ///
    /// # Errors
    /// ENXIO if the device is not bound, EBUSY in CSB mode, EIO for a stopped ring.
    fn tx_sync(&self) -> Result<(), Errno>;

    /// Carries out NIOCRXSYNC.
    ///
    /// # Errors
    /// The errors of [`Self::tx_sync`].
    fn rx_sync(&self) -> Result<(), Errno>;
}
