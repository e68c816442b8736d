//! Flow tables of OpenFlow 1.3, pure: no input or output, no clock, no thread.
#![forbid(unsafe_code)]

mod checksum;
mod layout;
pub mod packet;
