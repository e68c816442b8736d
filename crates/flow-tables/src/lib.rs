//! Flow tables of OpenFlow 1.3: packets through tables, groups and meters. No input or output, no thread.
//!
//! [`state::FlowState`] is the one hand that changes the tables; each worker of a switch has a [`decider::FlowDecider`],
//! which reads them without waiting.
#![forbid(unsafe_code)]

mod checksum;
pub mod control_frame;
pub mod counters;
pub mod decider;
pub mod flow;
pub mod group;
mod layout;
pub mod meter;
pub mod packet;
pub mod pipeline;
pub mod state;
pub mod tables;
