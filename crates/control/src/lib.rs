//! The protocol between the client library or CLI and the daemon `ringroadd`, over a UNIX stream socket.
//!
//! # On the wire
//!
//! A frame is a `u32` (little-endian) with the length of the body in bytes, then the body: one JSON value, a
//! [`Request`] towards the daemon and a [`Reply`] back. Each request gets exactly one reply, in order. Descriptors
//! travel by `SCM_RIGHTS` with the first byte of a reply's frame; requests carry none.
//!
//! # Trust
//!
//! The daemon treats every byte of a request as hostile: [`codec::MAX_REQUEST_BYTES`] bounds a request, one frame at
//! most is being assembled per connection, a request is taken only while no reply waits to be sent, descriptors never
//! enter the daemon's table, and nothing blocks. An invalid request body is answered with an error and the connection
//! continues; a length over the limit or a descriptor is answered and the connection ends. The client bounds replies
//! too ([`codec::MAX_REPLY_BYTES`], [`fd_passing::MAX_DESCRIPTORS`]) and gives up after a timeout.
//!
//! - [`message`], [`report`], [`explanation`]: the messages; [`codec`]: bytes to messages and back.
//! - [`connection`]: the program's end; [`server_connection`]: the daemon's end, for its event loop.
//! - [`fd_passing`], [`peer`], [`socket_path`]: descriptors, the process at the other end, and the socket's path;
//!   [`printable`]: text of untrusted peers.
//! - [`listening_socket`]: a server's socket file; [`guarded_file`]: files at paths where other users may write.

#![deny(missing_docs)]
pub mod codec;
pub mod connection;
pub mod error;
pub mod explanation;
pub mod fd_passing;
pub mod guarded_file;
pub mod listening_socket;
pub mod message;
pub mod netmap;
pub mod peer;
pub mod printable;
pub mod report;
pub mod server_connection;
pub mod socket_path;

pub use connection::Connection;
pub use error::ControlError;
pub use message::{PROTOCOL_VERSION, Reply, Request};
pub use server_connection::ServerConnection;
