//! What a port is.
//!
//! A port is anything packets enter and leave by; it has one or more *queues*, each a pair of directions served by one
//! worker. [`port_queue::PortQueue`] is the contract between a driver and the datapath; [`frame`] and [`batch`] are what
//! crosses it, borrowed where the frames lie; [`counters`] and [`drop_cause`] account for every frame;
//! [`plan`] is the contract between what decides where frames go and the datapath that executes it;
//! [`clock`] is the only way by which the datapath learns the time; [`impairment`]
//! makes any queue a bad one; [`offload`] finishes frames that their sender left to a card.

#![deny(missing_docs)]
pub mod batch;
pub mod clock;
pub mod counters;
pub mod drop_cause;
pub mod frame;
pub mod impairment;
pub mod offload;
pub mod plan;
pub mod port_index;
pub mod port_queue;
