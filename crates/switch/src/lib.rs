//! The learning switch as pure decisions over batches.
//!
//! [`classify()`] takes the headers of a batch of frames from one port, learns their sources, and writes the outcome of
//! each frame: one port, all other ports, or a drop cause. It does no input or output and reads no clock: the caller
//! hands in the time ([`Tick`]). [`LearningSwitch`] gives these decisions to the datapath as a [`ForwardingPlane`]. The
//! semantics are those of netmap's VALE switch, with ageing added. The slot flags that VALE documents but does not
//! implement (no-learn, forced destination) are implemented.
//!
//! One [`MacTable`] and one [`PortSet`] serve a switch. Both may be read and written by any number of threads at once:
//! every operation on them is wait-free and has a bound on its steps, none locks or allocates.
//!
//! If ports have settings ([`PortPolicies`]), [`Policing`] replaces the learning switch: VLANs, isolation, storm
//! limits.
//!
//! Headers come from hostile programs. Any header is a valid input. A hostile sender can do only what it can do to any
//! learning switch: claim the address of another station, or fill the table with invented addresses. The latter causes
//! flooding, and is counted ([`MacTable::evictions`]). A [`loop_guard`] finds loops behind a switch's ports, and cuts
//! them.
//!
//! [`ForwardingPlane`]: ringroad_port::forwarding_plane::ForwardingPlane

#![forbid(unsafe_code)]

pub mod classify;
pub mod learning;
pub mod loop_guard;
pub mod mac_table;
pub mod mirroring;
pub mod policing;
pub mod port_policies;
pub mod port_set;
mod static_addresses;
pub mod tracing;
mod vlan_egress;
mod vlan_tag;

pub use classify::{FrameHeader, classify};
pub use learning::LearningSwitch;
pub use mac_table::{MacEntry, MacTable, MacTableConfig, MacTableError, Tick};
pub use mirroring::{MirrorRule, Mirroring};
pub use policing::Policing;
pub use port_policies::{PortPolicies, PortPolicy};
pub use port_set::PortSet;
pub use tracing::Tracing;
