//! Frames on the wire: what standards say about their bytes, in one place for all crates. Pure.
#![forbid(unsafe_code)]

pub mod mac;
