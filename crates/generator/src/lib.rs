//! Generator, receiver, trial, replay and scripts over any port.
//!
//! [`clock`] is what everything is timed by.

pub mod affinity;
pub mod clock;
