//! Virtqueues: the rings that a guest's virtio card shares with the device behind it.
//!
//! [`layout`]: their layout; [`guest_memory`]: the memory with rings and buffers; [`device_ring`]: the device's side,
//! with its two kinds [`split_device`] and [`packed_device`]; [`chain`]: the buffers; `table`: chains that continue
//! outside the ring; [`fault`]: a driver's violations. Everything in a guest's memory is hostile: it is read once, then
//! checked, then used. [`dirty_log`] is for guests that move, [`inflight`] for back ends that crash.

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
pub mod words;
