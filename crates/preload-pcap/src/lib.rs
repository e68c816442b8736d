//! Programs written for libpcap get Ringroad's ports as devices: this object stands before the system's libpcap
//! (`LD_PRELOAD`, set by `ringroad run`) and exports all of its public functions.
//!
//! A device that is named like a port (`vale0:1`, `x{1`, `xdp:eth0`) is opened through the crate `ringroad`; its `pcap_t` is
//! one of ours. Everything else, plain interfaces and capture files above all, passes to the system's libpcap, which is
//! found when it is first needed.
//!
//! | module | what it holds |
//! |---|---|
//! | [`abi`] | libpcap's structures and numbers, as its headers define them |
//! | [`system`] | the system's libpcap, and what passes to it unseen |
//! | [`dlopen`] | programs that load libpcap themselves get this object |
//! | [`exports`] | the functions that look whose handle they are given |
//! | [`registry`] | which handles are ours |
//! | [`device`] | which names are ours, and what opening them asks for |
//! | [`handle`] | a device before and after its activation |
//! | [`session`] | an open port: batches of received frames, waiting, descriptors to poll |
//! | [`receive`], [`inject`] | reading and sending |
//! | [`filter`], [`statistics`], [`listing`], [`savefile`] | what their names say |
//!
//! Until a device of Ringroad's is opened nothing is allocated, started, connected or written.
//!
//! Pointers that functions here are given come from C: what they point to is the caller's promise, by libpcap's own rules.

mod abi;
mod device;
mod dlopen;
mod error;
mod exports;
mod filter;
mod handle;
mod inject;
mod listing;
mod receive;
mod registry;
mod savefile;
mod session;
mod statistics;
mod system;
