//! Drivers: a file or folder for each kind of port. [`catalogue`] lists the kinds with their descriptions.
//!
//! A driver never uses another driver, except that host rings and veth pairs use a TAP. [`nic`] chooses among the
//! drivers of an interface. [`shm`] and [`pipe`] serve the rings of programs. Drivers of sockets use `sleep_watch` to
//! sleep, `poll_backoff` to poll the kernel's memory, and `socket_frames` to send frames from where they lie.

pub mod absent;
pub mod af_packet;
pub mod af_xdp;
pub mod catalogue;
pub mod device;
pub mod dgram;
pub mod diverted;
pub mod host_rings;
pub mod memif;
pub mod nic;
pub mod null;
pub mod patch;
pub mod pcap_file;
pub mod peer;
pub mod pipe;
mod poll_backoff;
pub mod promiscuous;
pub mod shm;
pub mod shortcut;
mod sleep_watch;
mod socket_frames;
pub mod stream;
pub mod sze2;
pub mod szedata;
pub mod tap;
#[cfg(test)]
mod test_network;
#[cfg(test)]
mod test_queue;
pub mod veth;
pub mod vhost_user;
pub mod virtio_user;
