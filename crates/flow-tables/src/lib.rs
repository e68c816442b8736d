//! Flow tables of OpenFlow 1.3: packets through tables, groups and meters. No input or output, no thread.
//!
//! [`state::FlowState`] is the only place that changes the tables; each worker of a switch has a
//! [`decider::FlowDecider`], which reads them without waiting.
#![forbid(unsafe_code)]

pub mod account;
mod ahead;
mod brief;
mod cache;
mod classifier;
pub mod control_frame;
pub mod counters;
pub mod decider;
mod effort;
mod fates;
pub mod flow;
#[cfg(test)]
#[path = "../tests/frames/mod.rs"]
mod frames;
pub mod group;
mod head;
mod key;
mod layout;
pub mod meter;
mod one_frame;
pub mod packed_match;
pub mod packet;
mod part;
pub mod pipeline;
pub mod sample_frame;
mod sctp_checksum;
pub mod state;
pub mod tables;
mod tally;
mod trail;
mod tuples;
mod way;
