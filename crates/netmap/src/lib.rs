//! A netmap program's side of Ringroad: `/dev/netmap`, made of a connection to the daemon and shared memory.
//!
//! - [`device`]: one open of the device; [`descriptor`]: the operations of control calls; [`wakers`]: the wake-ups of a
//!   sleeping thread.
//! - [`control_call`]: `ioctl`; [`abi`]: its arguments; [`user_memory`]: reading them. Behind a device: `binding`
//!   (rings), `bell` (their eventfds), `bound_ring` (syncs), `outcome` (their results), `ring_lock` and `holder`,
//!   `monitor_fill`, `csb`, `sync_loop`, `urgency`; each process has its own `daemon_link` and `mapping`.
//! - [`private_descriptors`]: descriptors of which the program does not know.

pub mod abi;
mod bell;
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
mod urgency;
pub mod user_memory;
pub mod wakers;
