//! Definition of a port.
//!
//! Packets enter and leave by a port. A port has one or more *queues*, each a pair of directions served by one worker.
//! [`port_queue::PortQueue`] is the contract between a driver and the datapath; [`frame`] and [`batch`] are the frames
//! that pass between them, borrowed in place; [`counters`] and [`drop_cause`] account for every frame;
//! [`forwarding_plane`] is the contract between the forwarding plane, which chooses the destinations of frames, and the
//! datapath, which executes the plan; [`clock`] is the datapath's only source of time; [`impairment`] impairs any
//! queue; [`offload`] finishes frames that their sender left to a card; [`trace`] records the outcomes of some frames;
//! [`port_settings`] are the VLANs and limits of a port of a switch, and [`token_bucket`] counts against such limits.

#![deny(missing_docs)]
pub mod batch;
pub mod clock;
pub mod forwarding_plane;
pub mod frame;
pub mod frame_record;
pub mod impairment;
pub mod offload;
pub mod port_index;
pub mod port_queue;
pub mod port_settings;
pub mod token_bucket;
pub mod trace;
pub mod vlan_set;

pub use ringroad_counters::{counters, drop_cause};
