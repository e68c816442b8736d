//! A netmap program's side of Ringroad: `/dev/netmap`, made of a connection to the daemon and shared memory.
//!
//! - [`device`]: one open of it; [`descriptor`]: the operations of control calls; [`wakers`]: the wake-ups of a
//!   sleeping thread.
//! - [`control_call`]: `ioctl`; [`abi`]: its arguments; [`user_memory`]: reading them. Behind a device: `binding`
//!   (rings, eventfds), `bound_ring` (syncs), `outcome` (what they did), `ring_lock` and `holder`, `monitor_fill`,
//!   `csb`, `sync_loop`; `daemon_link` and `mapping` are the process's own.
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
mod outcome;
pub mod private_descriptors;
mod ring_lock;
mod sync_loop;
pub mod user_memory;
pub mod wakers;
