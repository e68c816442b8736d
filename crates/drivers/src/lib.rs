//! Drivers: one file per kind of port.
//!
//! | driver | names | what it is |
//! |---|---|---|
//! | [`shm`] | `vale0:a` | rings in a region that a program maps |
//! | [`pipe`] | `x{1`, `x}1` | two programs' rings in one region; frames never pass a datapath |
//! | [`null`] | `null:` | invents and discards frames: the overhead floor |
//! | [`pcap_file`] | `pcap:` | frames of a capture file, or into one |
//!
//! A driver never uses another driver. [`registry`] is where they are named for the rest.

pub mod af_packet;
pub mod af_xdp;
pub mod host_rings;
mod interface;
mod nic;
pub mod null;
pub mod pcap_file;
pub mod pipe;
pub mod promiscuous;
pub mod registry;
pub mod shm;
pub mod tap;
#[cfg(test)]
mod test_network;
