//! A netmap program's side of Ringroad: what `/dev/netmap` would be, made of a connection to the daemon and shared memory.
//!
//! - [`device`]: one open of it; [`descriptor`]: what control calls need of one; [`wakers`]: what a sleeping thread waits for.
//! - [`control_call`]: `ioctl`; [`abi`]: what programs pass to it; [`user_memory`]: how that is read.
//!   Behind a device: `binding` (rings, eventfds), `bound_ring` (syncs), `ring_lock` and `holder`, `monitor_fill`, `csb`, `sync_loop`; `daemon_link` and `mapping`
//!   are the process's own.
//! - [`private_descriptors`]: those that the program does not know of.

pub mod abi;
mod binding;
mod bound_ring;
pub mod control_call;
mod csb;
mod daemon_link;
pub mod descriptor;
pub mod device;
mod foreign_descriptor;
mod holder;
mod mapping;
mod monitor_fill;
pub mod private_descriptors;
mod ring_lock;
mod sync_loop;
pub mod user_memory;
pub mod wakers;
