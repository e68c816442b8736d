//! `libsze2.so`: the functions of `<libsze2.h>`, for programs in C that were written for SZE2 capture cards.
//!
//! A handle is a program's side of a card ([`ringroad_sze2::client::Card`]); what is shared with the card is checked there. Layouts and contracts are in
//! `compat/include/libsze2.h`.
//!
//! - [`handle`]: what a handle holds; [`reading`], [`area_locks`], [`writing`]: what is done with it. No unsafe code.
//! - [`abi`]: the structures that cross to C; [`failure`]: an errno and a sentence; [`environment`]: what a program or its environment may set.
//! - [`szedata`]: the functions as published; [`szecard`]: those beyond, for drivers: bursts without copies, counters and settings of the card.
//!
//! Each function of the C face asks of its pointers what C always asks: that they are what the header says, and valid during the call. NULL is
//! refused where it means nothing, numbers are checked, and no panic leaves the library.

#![deny(missing_docs)]
mod abi;
mod area_locks;
mod environment;
mod failure;
mod handle;
mod reading;
mod szecard;
mod szedata;
mod writing;
