//! `libringroad.so`: the functions of `<libnetmap.h>`, for C programs that were written for netmap.
//!
//! The functions open `/dev/netmap`, bind and map as netmap's own library does. [`ringroad_preload_netmap`] serves
//! these calls. Its functions are in this library too, so a program that links it needs nothing preloaded. Layouts and
//! contracts are in `compat/include/libnetmap.h`.
//!
//! - [`port_name`], [`binding`], [`option_text`], [`number`]: the grammar of names; no unsafe code, no pointers.
//! - [`abi`]: structures shared with C; [`failure`]: an errno and a message.
//! - [`context`], [`region`]: state shared by ports; [`bound_rings`]: the rings in a region; [`device`]: the system
//!   calls.
//! - [`request`], [`option_parser`]: C functions for parsing and for option lists; [`port_options`]: the options of
//!   port names.
//! - [`port`]: the port's functions, from name to close; [`extmem`], [`offset`]: options that a program sets itself;
//!   [`inject`]: sending.
//!
//! Each C function requires of its pointers that they match the header, and are valid during the call. NULL is refused
//! if it has no meaning.

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

// This crate is linked for its exports.
use ringroad_preload_netmap as _;

#[cfg(test)]
mod grammar_tests;
