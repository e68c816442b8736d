//! `libsze2.so`: the functions of `<libsze2.h>`, for programs in C that were written for SZE2 capture cards.
//!
//! A handle is a program's side of a card ([`ringroad_sze2::client::CardClient`]); all memory shared with the card is
//! checked there. Layouts and contracts are in `compat/include/libsze2.h`.
//!
//! - [`handle`]: the content of a handle; [`reading`], [`area_locks`], [`writing`]: its operations. No unsafe code.
//! - [`abi`]: the structures that cross to C; [`failure`]: an errno and a sentence; [`environment`]: settings of a
//!   program or its environment.
//! - [`szedata`]: the published functions; [`szecard`]: additional functions for drivers: bursts without copies,
//!   counters and settings of the card.
//!
//! Each function for C requires that its pointers match the header and are valid during the call. The functions refuse
//! NULL where it has no meaning, check numbers, and let no panic leave the library.

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
