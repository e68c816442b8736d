//! `libringroad.so`: the functions of `<libnetmap.h>`, for programs in C that were written for netmap.
//!
//! What a program calls opens `/dev/netmap`, binds and maps as netmap's own library does; what answers is [`ringroad_preload_netmap`], whose functions are
//! in this library too, so that a program which links it needs nothing preloaded.
//! Layouts and contracts are in `compat/include/libnetmap.h`.
//!
//! - [`port_name`], [`binding`], [`option_text`], [`number`]: the grammar of names; no unsafe code, no pointers.
//! - [`abi`]: the structures that cross to C; [`failure`]: an errno and a sentence.
//! - [`context`], [`region`]: what ports have in common; [`bound_rings`]: the rings in a region; [`device`]: the system calls.
//! - [`request`], [`option_parser`]: the C face of parsing and of option lists; [`port_options`]: the options of port names.
//! - [`port`]: descriptors and their life; [`extmem`], [`offset`]: options that a program sets itself; [`inject`]: sending.
//!
//! Each function of the C face asks of its pointers what C always asks: that they are what the header says, and valid
//! during the call. NULL is refused where it means nothing.

#![deny(missing_docs)]
mod abi;
mod binding;
mod bound_rings;
mod context;
mod device;
mod extmem;
mod failure;
mod inject;
mod number;
mod offset;
mod option_parser;
mod option_text;
mod port;
mod port_name;
mod port_options;
mod region;
mod request;

// Linked for what it exports.
use ringroad_preload_netmap as _;

#[cfg(test)]
mod grammar_tests;
