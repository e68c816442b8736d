//! Drivers: one file per kind of port.
//!
//! | driver | names | what it is |
//! |---|---|---|
//! | [`shm`] | `vale0:a` | rings in a region that a program maps |
//! | [`pipe`] | `x{1`, `x}1` | two programs' rings in one region; frames never pass a datapath |
//! | [`null`] | `null:` | invents and discards frames: the overhead floor |
//! | [`pcap_file`] | `pcap:` | frames of a capture file, or into one |
//! | [`af_xdp`] | `eth0`, `xdp:eth0` | a network interface; the region is the kernel's UMEM |
//! | [`af_packet`] | `packet:eth0` | a network interface, beside the host stack |
//! | [`host_rings`] | `eth0^` | the host stack's side of a network interface |
//! | [`tap`] | `tap:t0` | a TAP interface |
//! | [`vhost_user`] | `vhost-user:SOCKET` | a guest's virtio-net card |
//! | [`memif`] | `memif:SOCKET` | a program that speaks memif: DPDK, VPP, libmemif |
//! | [`sze2`] | `sze2:SOCKET` | a capture card in software |
//! | [`szedata`] | `szedata:SOCKET` | channels of a capture card |
//! | [`virtio_user`] | `virtio-user:` | a virtio network card for a vhost-user back end |
//!
//! A driver never uses another driver, but that host rings lead through a TAP. `nic` chooses among those of an interface. [`registry`] is where they are named for the rest.

pub mod af_packet;
pub mod af_xdp;
pub mod device;
pub mod host_rings;
mod interface;
pub mod memif;
mod nic;
pub mod null;
pub mod patch;
pub mod pcap_file;
pub mod peer;
pub mod pipe;
pub mod promiscuous;
pub mod registry;
pub mod shm;
pub mod sze2;
pub mod szedata;
pub mod tap;
#[cfg(test)]
mod test_network;
pub mod vhost_user;
pub mod virtio_user;
