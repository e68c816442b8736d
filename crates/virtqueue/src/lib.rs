//! Virtqueues: the rings that a guest's virtio card shares with the device behind it.
//!
//! [`layout`] is what they look like; [`guest_memory`] where they and the buffers lie; [`device_ring`] the device's side, [`split_device`] and
//! [`packed_device`] its two kinds, [`chain`] what it takes from them, `table` where a chain goes on outside of them, and [`fault`] how a driver can
//! break their rules: everything in a guest's memory is hostile, and read once before it is checked and used. [`dirty_log`] is for guests that move,
//! [`inflight`] for devices that end in the middle.

pub mod chain;
pub mod device_ring;
pub mod dirty_log;
pub mod fault;
pub mod guest_memory;
pub mod inflight;
pub mod layout;
pub mod packed_device;
pub mod split_device;
mod table;
#[cfg(test)]
mod tests;
mod words;
