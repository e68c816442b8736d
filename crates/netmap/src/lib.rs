//! A netmap program's side of Ringroad: what `/dev/netmap` would be, made of a connection to the daemon and shared memory.
//!
//! - [`device`]: one open of it; [`descriptor`]: what control calls need of one; [`wakers`]: what a sleeping thread waits for.
//! - [`control_call`]: `ioctl`; [`abi`]: what programs pass to it; [`user_memory`]: how that is read.
//! - [`private_descriptors`]: those that the program does not know of.

pub mod abi;
pub mod control_call;
pub mod descriptor;
pub mod device;
pub mod private_descriptors;
pub mod user_memory;
pub mod wakers;
