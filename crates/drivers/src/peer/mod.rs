//! What the ports have in common whose other side is a foreign program behind a UNIX socket: a guest, another switch.
//!
//! Such a port has a thread of its own, which speaks the protocol of the socket, and queues, which a worker serves. The thread makes the state of a
//! ring and hands it over ([`handover`]); so the worker's path has no lock in it, and memory is unmapped when no worker uses it. The thread ends with its
//! port ([`peer_thread`]). [`socket`] is how the two programs come together, and come together again; [`wake_set`] what wakes a sleeping worker;
//! [`watch`] what people are told; [`options`] what names can say of all of them.

pub(crate) mod handover;
pub mod options;
pub(crate) mod peer_thread;
pub mod socket;
pub(crate) mod wake_set;
pub mod watch;
