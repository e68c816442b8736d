//! Rules of a card: the frames that its network side lets in and out, and the channel of each frame. The rules are
//! pure: no memory, socket, clock or thread.
//!
//! ```text
//! network ─ input buffer (IBUF: on? address? length?) ─ programs' rules, filter ─ distribution ─ channel 0, 1, ...
//! network ─ output buffer (OBUF: on?) ─────────────────────────────────────────────────── channel 0, 1, ...
//! ```

pub mod counters;
pub mod design;
pub mod distribution;
pub mod filter;
pub mod flow_key;
pub mod input;
pub mod metadata;
pub mod program_rule;
pub mod settings;
