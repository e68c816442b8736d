//! Frames on the wire: layouts and numbers that standards define, in one crate for all other crates. Pure.
//!
//! [`mac`] has Ethernet addresses, [`ether_type`] and [`ip_protocol`] have the protocol numbers of headers, [`headers`]
//! finds the headers of a frame, [`checksum`] computes the Internet checksum, and
//! [`serde_as_text`] serialises a type as its text.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod checksum;
pub mod ether_type;
pub mod headers;
pub mod ip_protocol;
pub mod mac;
mod text;
