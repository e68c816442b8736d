//! Flow tables of OpenFlow 1.3: packets through tables, groups and meters. No input or output, no thread.
//!
//! [`state::FlowState`] alone changes the tables; each worker of a switch has a [`forwarding_plane::FlowPlane`], which
//! reads them without waiting.
#![forbid(unsafe_code)]

mod batch_lookup;
mod cache;
mod classifier;
pub mod control_frame;
pub mod counters;
mod fast_path;
pub mod flow;
pub mod forwarding_plane;
#[cfg(test)]
#[path = "../tests/frames/mod.rs"]
mod frames;
pub mod group;
mod key;
mod layout;
mod lookup_cache;
pub mod memory_budget;
pub mod meter;
mod one_frame;
mod outcomes;
mod packed_entry;
pub mod packed_match;
pub mod packet;
mod packet_headers;
pub mod pipeline;
pub mod sample_frame;
mod sctp_checksum;
pub mod state;
mod step_budget;
mod subtable;
pub mod tables;
mod tally;
mod tuples;
