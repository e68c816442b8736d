//! The operations of `ioctl` on a device, after its arguments have been read and checked.

use ringroad_control::netmap::{Bound, NetmapReply, NetmapRequest, Register};
use rustix::io::Errno;

/// The CSB arrays of a program (`struct nmreq_opt_csb`): addresses in this process, 64 bytes per bound ring, tx rings
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CsbAddresses {
    /// The array that the program writes (`csb_atok`).
    pub to_provider: usize,
    /// The array that the provider writes (`csb_ktoa`).
    pub to_program: usize,
}

/// The eventfds of one ring in a sync loop; negative: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopEvents {
    /// Written by the program to wake the loop (`ioeventfd`).
    pub kick: i32,
    /// Written by the loop to wake the program (`irqfd`).
    pub interrupt: i32,
}

/// How a sync loop runs (`SYNC_KLOOP_START` and its options).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoopPlan {
    /// Sleep between rounds where no eventfds were given, µs.
    pub sleep_us: u32,
    /// One entry per bound ring, tx rings first; `None`: the loop polls.
    pub events: Option<Vec<LoopEvents>>,
    /// `SYNC_KLOOP_MODE` bits: 1 direct tx, 2 direct rx.
    pub mode: u32,
}

/// Why a sync loop did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopError {
    /// The request as a whole.
    Request(Errno),
    /// The eventfds option, whose status shows it too.
    EventsOption(Errno),
    /// The mode option, whose status shows it too.
    ModeOption(Errno),
}

/// One open of `/dev/netmap`, as control calls see it.
pub trait NetmapFile {
    /// Binds the device. `external_memory`: where the region is mapped in place of what lies there. `csb`: the CSB
    /// option.
    ///
    /// # Errors
    /// EBUSY where it is bound already, and the errors of REGISTER.
    fn register(
        &self,
        request: Register,
        external_memory: Option<usize>,
        csb: Option<CsbAddresses>,
    ) -> Result<Bound, Errno>;

    /// Any request that neither binds nor needs a binding.
    ///
    /// # Errors
    /// The daemon's errno; EIO where it cannot be reached.
    fn ask(&self, request: NetmapRequest) -> Result<NetmapReply, Errno>;

    /// Number of rings bound, (tx, rx); `None` where the device is not bound.
    fn bound_rings(&self) -> Option<(usize, usize)>;

    /// CSB_ENABLE. Alignment and accessibility of the arrays are checked here.
    ///
    /// # Errors
    /// EINVAL, EFAULT, EBUSY, ENXIO as documented for the option.
    fn enable_csb(&self, csb: CsbAddresses) -> Result<(), Errno>;

    /// Runs the sync loop in this thread until it is stopped.
    ///
    /// # Errors
    /// ENXIO, EINVAL, EBUSY as documented for SYNC_KLOOP_START.
    fn run_sync_loop(&self, plan: LoopPlan) -> Result<(), LoopError>;

    /// Stops the sync loop and waits for its end.
    ///
    /// # Errors
    /// ENXIO where the device is not bound.
    fn stop_sync_loop(&self) -> Result<(), Errno>;

    /// NIOCTXSYNC.
    ///
    /// # Errors
    /// ENXIO unbound, EBUSY in CSB mode, EIO for a stopped ring.
    fn tx_sync(&self) -> Result<(), Errno>;

    /// NIOCRXSYNC.
    ///
    /// # Errors
    /// As [`Self::tx_sync`].
    fn rx_sync(&self) -> Result<(), Errno>;
}
