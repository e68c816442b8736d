//! Virtqueues: the rings that a guest's virtio card shares with the device behind it.
//!
//! [`layout`] is what they look like.

pub mod layout;
