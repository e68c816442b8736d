//! Programs written for libpcap get Ringroad's ports as devices: this library is loaded before the system's libpcap
//! (`LD_PRELOAD`, set by `ringroad run`) and exports all of libpcap's public functions.
//!
//! A device that is named like a port (`vale0:1`, `x{1`, `xdp:eth0`) is opened through the crate `ringroad`; its
//! `pcap_t` is one of Ringroad's. All other devices and files, above all plain interfaces and capture files, pass to
//! the system's libpcap, which is loaded at its first use.
//!
//! | module | content |
//! |---|---|
//! | [`abi`] | libpcap's structures and numbers, as its headers define them |
//! | [`system`] | the system's libpcap, and the functions that pass to it directly |
//! | [`dlopen`] | programs that load libpcap themselves get this library |
//! | [`exports`] | the functions on handles, of Ringroad or the system |
//! | [`registry`] | recognises Ringroad's handles |
//! | [`device`] | recognises Ringroad's device names, and the options of opening them |
//! | [`handle`] | a device before and after its activation |
//! | [`session`] | an open port: batches of received frames, waiting, descriptors to poll |
//! | [`receive`], [`inject`] | reading and sending |
//! | [`filter`], [`statistics`], [`listing`], [`savefile`] | filters, counters, the list of devices, capture files |
//!
//! Before the first device of Ringroad is opened, this library allocates, starts, connects and writes nothing.
//!
//! Pointers given to these functions come from C: by libpcap's rules the caller guarantees that they are valid.

mod abi;
mod device;
mod dlopen;
mod error;
mod exports;
mod filter;
mod handle;
mod inject;
mod listing;
mod nudge;
mod receive;
mod registry;
mod savefile;
mod session;
mod statistics;
mod system;
