//! The card's rules: what its network side lets in and out, and which channel gets a frame. Decisions only: no memory,
//! socket, clock or thread.
//!
//! ```text
//! network ─ input buffer (IBUF: switched on? address? length?) ─ filter ─ distribution ─ channel 0, 1, ...
//! network ─ output buffer (OBUF: switched on?) ─────────────────────────────────────────── channel 0, 1, ...
//! ```

pub mod counters;
pub mod distribution;
pub mod filter;
pub mod flow_key;
pub mod input;
pub mod metadata;
pub mod settings;
