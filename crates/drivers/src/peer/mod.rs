//! Common part of ports whose other end is a foreign program behind a UNIX socket: a guest, another switch.
//!
//! Such a port has its own thread for the socket's protocol, and queues that a worker serves. The thread makes the
//! state of a ring and hands the state over ([`handover`]). So the worker's path has no lock, and memory is unmapped
//! only when no worker uses it. The thread ends with its port ([`peer_thread`]). [`socket`] connects the two programs,
//! repeatedly; [`inheritance`] is the state that a port leaves to another process; [`wake_set`] wakes a sleeping
//! worker; [`watch`] reports the peer's state to users; [`options`] are the options of all these ports.

pub(crate) mod handover;
pub(crate) mod inheritance;
pub mod options;
pub(crate) mod peer_thread;
pub mod socket;
pub(crate) mod wake_set;
pub mod watch;
