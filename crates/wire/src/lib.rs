//! Frames on the wire: what standards say about their bytes, in one place for all crates. Pure.
//!
//! [`mac`] has Ethernet addresses, [`ether_type`] and [`ip_protocol`] the numbers of what a header carries, [`headers`]
//! finds the headers of a frame, and [`checksum`] is the Internet's.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod checksum;
pub mod ether_type;
pub mod headers;
pub mod ip_protocol;
pub mod mac;
